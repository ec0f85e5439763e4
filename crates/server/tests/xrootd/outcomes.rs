//! Uploads whose outcome a client requests or decides: it lists the directory, requests the
//! checksum, or removes the name.

use exacat_model::{Answer, Cursor, FileRef, Operation};
use exacat_server::ChecksumServer;
use exacat_wire::xrootd::numbers::{error, request, status};

use crate::client::{Client, eventually_so};
use crate::element::{Element, Manner, There};
use crate::root::{Root, world_with};
use crate::world::lfn;
use crate::writing::{
    NEW, Sent, WHOLE, deletions, elements, reservations, settings_of, visible, world, write,
};

/// Number of copied files that must all be listed.
const COPIED: usize = 60;

async fn listed(root: &mut Root, path: &str) -> Vec<String> {
    let answer = root.on(request::DIRLIST, path).await;
    assert_eq!(answer.status, status::OK, "{path}: {:?}", String::from_utf8_lossy(&answer.bytes));
    let mut names: Vec<String> = answer.text().split('\n').map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recursive_copy_that_is_whole_is_listed_whole() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let mut sent: Vec<Sent> = Vec::new();
    for number in 0..COPIED {
        let path = format!("/d/copy/s{}/f{number:02}?oss.asize=11", number % 3);
        sent.push(write(&mut root, NEW, &path).await);
    }
    for sent in &sent {
        all[0].put(&sent.path, WHOLE);
    }
    // The first committed file in each directory makes it.
    assert_eq!(root.stat("/d/copy").await.status, status::OK);
    assert_eq!(listed(&mut root, "/d/copy").await, ["s0", "s1", "s2"]);
    for number in 0..3 {
        let names = listed(&mut root, &format!("/d/copy/s{number}")).await;
        let expected: Vec<String> =
            (0..COPIED).filter(|file| file % 3 == number).map(|file| format!("f{file:02}")).collect();
        assert_eq!(names, expected);
    }
    assert_eq!(reservations(&world).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_ends_just_after_a_look_is_seen_by_the_next_request() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/new?oss.asize=11").await;
    assert_eq!(root.stat("/d/new").await.status, status::ERROR);
    all[0].put(&sent.path, WHOLE);
    assert_eq!(root.stat("/d/new").await.status, status::OK, "the look before was too early");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_is_located_and_opened_as_soon_as_it_is_whole() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/located?oss.asize=11").await;
    all[0].put(&sent.path, WHOLE);
    assert_eq!(root.on(request::LOCATE, "/d/located").await.status, status::OK);
    let sent = write(&mut root, NEW, "/d/opened?oss.asize=11").await;
    all[0].put(&sent.path, WHOLE);
    assert!(root.open("/d/opened").await.redirect().1.contains(&sent.path));
    let sent = write(&mut root, NEW, "/d/kind?oss.asize=11").await;
    all[0].put(&sent.path, WHOLE);
    assert_eq!(root.on(request::STATX, "/d/kind").await.status, status::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_is_whole_is_seen_by_clients_of_other_protocols() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let mut client = Client::admin(&world).await;
    for place in ["stat", "list", "whereis", "directory", "above"] {
        let sent = write(&mut root, NEW, &format!("/n/{place}/deep/f?oss.asize=11")).await;
        all[0].put(&sent.path, WHOLE);
        let name = |path: &str| lfn(&format!("/n/{place}{path}"));
        let list = |lfn| Operation::List { lfn, cursor: Cursor::default(), limit: 100 };
        let stat = |lfn| Operation::Stat { lfns: vec![lfn], follow: false };
        let answer = match place {
            "stat" => client.call(stat(name("/deep/f"))).await,
            "list" => client.call(list(name("/deep"))).await,
            "whereis" => {
                client
                    .call(Operation::Whereis { files: vec![FileRef::Lfn(name("/deep/f"))], site: None })
                    .await
            }
            // The first committed file makes its directories.
            "directory" => client.call(stat(name("/deep"))).await,
            _ => client.call(list(name(""))).await,
        };
        match answer.unwrap() {
            Answer::Stats(found) => assert!(found[0].is_ok(), "{place}: {found:?}"),
            Answer::Whereis(found) => assert!(found[0].is_ok(), "{place}: {found:?}"),
            Answer::Entries { items, .. } => assert_eq!(items.len(), 1, "{place}: {items:?}"),
            other => panic!("{place}: {other:?}"),
        }
    }
    assert_eq!(reservations(&world).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_its_writer_removes_is_given_up() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let before = deletions(&world, 1).await;
    let sent = write(&mut root, NEW, "/d/refused?oss.asize=11").await;
    all[0].put(&sent.path, WHOLE);
    root.done(request::RM, [0; 16], "/d/refused").await;
    assert_eq!(reservations(&world).await, 0);
    assert_eq!(root.fails(request::STAT, [0; 16], "/d/refused").await, error::NOT_FOUND);
    assert_eq!(deletions(&world, 1).await, before + 1, "what was written goes");
    assert_eq!(std::fs::read_dir(world.data().join("uploads")).unwrap().count(), 0);
    assert_eq!(root.fails(request::RM, [0; 16], "/d/refused").await, error::NOT_FOUND);
    assert_eq!(world.figure("server", "xrootd_writes_committed").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_of_somebody_else_survives_a_removal() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let token = world.new_user("jdoe").await;
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/kept?oss.asize=11").await;
    let mut other = Root::token(&world, &token).await;
    assert_eq!(other.fails(request::RM, [0; 16], "/d/kept").await, error::NOT_FOUND);
    all[0].put(&sent.path, WHOLE);
    visible(&mut root, "/d/kept").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checksum_is_told_to_the_writer_before_the_commit() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    // Refused because of the checksum: the file was never visible.
    let sent = write(&mut root, NEW, "/d/refused?oss.asize=11").await;
    all[0].put(&sent.path, WHOLE);
    assert_eq!(root.checksum("/d/refused?cks.type=adler32").await.text(), "adler32 e222ea89");
    assert_eq!(reservations(&world).await, 1, "it waits for the verdict");
    root.done(request::RM, [0; 16], "/d/refused").await;
    assert_eq!(reservations(&world).await, 0);
    assert_eq!(world.figure("server", "xrootd_writes_committed").await, 0);
    // Accepted: the file is visible at the next request, and without one after a while.
    let sent = write(&mut root, NEW, "/d/asked?oss.asize=11").await;
    all[0].put(&sent.path, WHOLE);
    assert_eq!(root.checksum("/d/asked").await.text(), "adler32 e222ea89");
    assert_eq!(root.stat("/d/asked").await.status, status::OK);
    let sent = write(&mut root, NEW, "/d/alone?oss.asize=11").await;
    all[0].put(&sent.path, WHOLE);
    assert_eq!(root.checksum("/d/alone").await.text(), "adler32 e222ea89");
    eventually_so("a commit", async || reservations(&world).await == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checksums_are_asked_of_the_second_server_where_the_first_sends_on() {
    let (first, second) = (Element::start().await, Element::start().await);
    first.behave(Manner::ChecksumsElsewhere);
    let address = |element: &Element| ("127.0.0.1".to_owned(), element.port);
    let checksums = vec![ChecksumServer { of: address(&first), at: address(&second) }];
    let world = world_with(|settings| settings.xrootd.as_mut().unwrap().checksums = checksums).await;
    world.admin(Operation::SeSet(settings_of(1, &first))).await;
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/new?oss.asize=11").await;
    first.put(&sent.path, There { checksum: None, ..WHOLE });
    second.put(&sent.path, WHOLE);
    assert_eq!(root.checksum("/d/new").await.text(), "adler32 e222ea89");
    visible(&mut root, "/d/new").await;
    assert_eq!(root.checksum("/d/new").await.text(), "adler32 e222ea89");
}
