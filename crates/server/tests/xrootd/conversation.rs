//! Answers to clients about names, checksums, and the server.

use std::collections::HashMap;

use exacat_model::Operation;
use exacat_model::operation::{NewFile, Owner};
use exacat_wire::xrootd::StreamId;
use exacat_wire::xrootd::numbers::{error, query, request, role, status};

use crate::root::{ADLER, GUID, Root, body_at, file, storage, world, world_with};
use crate::world::lfn;

const PARENTS: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Returns the body of a listing request with these options.
fn listing(options: u8) -> [u8; 16] {
    let mut body = [0; 16];
    body[15] = options;
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_a_manager_that_can_do_tls() {
    let world = world().await;
    let roles = Root::raw(&world).await.greet(0).await;
    assert_eq!(roles, role::MANAGER | role::HAS_TLS, "clients come back to a manager, and to nothing else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_told_made_moved_and_removed() {
    let world = world().await;
    storage(&world, 1).await;
    let mut root = Root::admin(&world).await;
    assert_eq!(root.fails(request::MKDIR, body_at(14, 0o750), "/d/e").await, error::NOT_FOUND);
    let mut body = PARENTS;
    body[14..].copy_from_slice(&0o750u16.to_be_bytes());
    root.done(request::MKDIR, body, "/d/e").await;
    root.done(request::MKDIR, PARENTS, "//d//e/").await;
    assert_eq!(root.fails(request::MKDIR, [0; 16], "/d/e").await, error::IT_EXISTS);
    file(&world, "/d/f", GUID, &[(1, None)]).await;
    let told = root.stat("/d/e").await.text();
    let fields: Vec<&str> = told.split(' ').collect();
    assert_eq!((fields.len(), fields[1], fields[2], fields[6]), (9, "0", "51", "0750"), "{told}");
    let told = root.stat("//d/f?cks.type=adler32").await.text();
    let fields: Vec<&str> = told.split(' ').collect();
    assert_eq!(
        (fields[1], fields[2], fields[6], fields[7], fields[8]),
        ("11", "48", "0644", "admin", "admin")
    );
    assert_eq!(root.fails(request::STAT, [0; 16], "/nope").await, error::NOT_FOUND);
    assert_eq!(root.done(request::STATX, [0; 16], "/d\n/d/f").await.bytes, [51, 48]);
    assert_eq!(root.fails(request::STATX, [0; 16], "/d\n/nope").await, error::NOT_FOUND);

    root.done(request::CHMOD, body_at(14, 0o600), "/d/f").await;
    assert!(root.stat("/d/f").await.text().contains(" 0600 "));
    root.done(request::MV, body_at(14, 4), "/d/f /d/g h").await;
    assert_eq!(root.fails(request::STAT, [0; 16], "/d/f").await, error::NOT_FOUND);
    assert!(root.stat("/d/g h").await.text().contains(" 11 48 "));
    assert_eq!(root.fails(request::RMDIR, [0; 16], "/d").await, error::IT_EXISTS, "not empty");
    assert_eq!(root.fails(request::RMDIR, [0; 16], "/d/g h").await, error::NOT_FILE);
    assert_eq!(root.fails(request::RM, [0; 16], "/d/e").await, error::IS_DIRECTORY);
    root.done(request::RM, [0; 16], "/d/g h").await;
    root.done(request::RMDIR, [0; 16], "/d/e").await;
    assert_eq!(root.done(request::DIRLIST, [0; 16], "/d").await.bytes, b"");
    for request in [request::PING, request::SET, request::ENDSESS] {
        root.done(request, [0; 16], "").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_are_listed_with_what_is_in_them() {
    let world = world().await;
    storage(&world, 1).await;
    file(&world, "/d/a", GUID, &[(1, None)]).await;
    world.admin(Operation::Link { lfn: lfn("/d/l"), target: lfn("/d/a") }).await;
    world.admin(Operation::Link { lfn: lfn("/d/m"), target: lfn("/nowhere") }).await;
    world
        .admin(Operation::Mkdir { lfns: vec![lfn("/d/z\nq"), lfn("/d/y")], parents: true, mode: None })
        .await;
    let mut root = Root::anonymous(&world).await;
    assert_eq!(root.done(request::DIRLIST, [0; 16], "/d/").await.text(), "a\nl\nm\ny");
    let told = root.done(request::DIRLIST, listing(2), "/d").await.text();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..2], [".", "0 0 0 0"]);
    let stats: HashMap<&str, Vec<&str>> =
        lines[2..].chunks(2).map(|pair| (pair[0], pair[1].split(' ').collect())).collect();
    assert_eq!(stats.len(), 4, "one with a line end in its name cannot be told: {told}");
    assert_eq!((stats["a"][1], stats["a"][2]), ("11", "48"));
    assert_eq!(stats["l"], stats["a"], "a link is what it stands for");
    assert_eq!(stats["m"][2], "20", "one that leads nowhere is neither a file nor a directory");
    assert_eq!(stats["y"][2], "51");
    let told = root.done(request::DIRLIST, listing(4), "/d").await.text();
    assert!(told.contains(&format!(" [ {ADLER} ]")) && told.contains(" [ adler32:none ]"), "{told}");
    let told = root.done(request::DIRLIST, listing(4), "/d?cks.type=md5").await.text();
    assert!(told.contains(" [ md5:none ]") && !told.contains("adler32"), "{told}");
    assert_eq!(root.fails(request::DIRLIST, [0; 16], "/d/a").await, error::NOT_FILE);
    assert_eq!(root.fails(request::DIRLIST, [0; 16], "/nope").await, error::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_directory_comes_in_parts_and_others_are_answered_meanwhile() {
    let world = world().await;
    const COUNT: usize = 12_000;
    world.files("/many", COUNT).await;
    let mut root = Root::anonymous(&world).await;
    let told = root.done(request::DIRLIST, listing(2), "/many").await;
    assert!(told.parts > 1, "{} bytes in one part", told.bytes.len());
    assert_eq!(told.text().lines().count(), 2 * COUNT + 2);
    let names = root.done(request::DIRLIST, [0; 16], "/many").await.text();
    let expected: Vec<String> = (0..COUNT).map(|number| format!("f{number:06}")).collect();
    assert_eq!(names.lines().collect::<Vec<_>>(), expected);
    // Requests after a slow directory do not wait for it.
    world.hooks.hold_lists.send_replace(true);
    let slow = root.send(request::DIRLIST, [0; 16], b"/many").await;
    let fast = root.send(request::STAT, [0; 16], b"/many").await;
    assert_eq!(root.answer().await.unwrap().stream, fast);
    world.hooks.hold_lists.send_replace(false);
    let answer = root.answer().await.unwrap();
    assert_eq!((answer.stream, answer.status), (slow, status::OK));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_sent_ahead_are_each_answered() {
    // Exactly as many listings as allowed at once: one more client request would have to wait.
    let world = world_with(|settings| settings.limits.xrootd_listings_max = 20).await;
    world.files("/many", 100).await;
    let mut root = Root::anonymous(&world).await;
    let mut sent = HashMap::new();
    for number in 0..1000 {
        let path = format!("/many/f{:06}", number % 120);
        let request = if number % 50 == 0 { request::DIRLIST } else { request::STAT };
        let path = if number % 50 == 0 { "/many".to_owned() } else { path };
        sent.insert(root.send(request, [0; 16], path.as_bytes()).await, (number, path));
    }
    for _ in 0..1000 {
        let answer = root.answer().await.unwrap();
        let (number, path) = sent.remove(&answer.stream).expect("each once");
        let is_there = number % 50 == 0 || number % 120 < 100;
        assert_eq!(answer.status == status::OK, is_there, "{path}");
    }
    assert_eq!(root.send(request::PING, [0; 16], b"").await, StreamId(1002u16.to_be_bytes()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checksums_are_told_as_they_are_known() {
    let world = world().await;
    storage(&world, 1).await;
    file(&world, "/d/a", GUID, &[(1, None)]).await;
    world.files("/plain", 1).await;
    let mut root = Root::anonymous(&world).await;
    assert_eq!(root.checksum("/d/a").await.text(), "adler32 e222ea89");
    assert_eq!(root.checksum("//d/a?cks.type=ADLER32\0").await.text(), "adler32 e222ea89");
    assert_eq!(root.checksum("/d/a?cks.type=md5").await.error().0, error::UNSUPPORTED);
    assert_eq!(root.checksum("/d/a?cks.type=rot13").await.error().0, error::UNSUPPORTED);
    assert_eq!(root.checksum("/plain/f000000").await.error().0, error::UNSUPPORTED);
    assert_eq!(root.checksum("/d").await.error().0, error::IS_DIRECTORY);
    assert_eq!(root.checksum("/nope").await.error().0, error::NOT_FOUND);
    let md5 = exacat_model::Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap();
    let checksums = exacat_model::Checksums::one(md5);
    let other = NewFile { checksums, ..NewFile::named(lfn("/d/md5")) };
    let existing = exacat_model::operation::Existing::Refuse;
    world.admin(Operation::Register { files: vec![other], parents: true, existing }).await;
    let told = root.checksum("/d/md5").await.text();
    assert_eq!(told, "md5 d41d8cd98f00b204e9800998ecf8427e", "what there is, if nothing else is asked for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_and_space_are_told() {
    let world = world().await;
    storage(&world, 2).await;
    file(&world, "/d/a", GUID, &[(1, None), (2, None)]).await;
    let mut root = Root::admin(&world).await;
    let told = root.query(query::CONFIG, "chksum version role what").await.text();
    let expected = "0:adler32,1:crc32c,2:md5,3:sha1,4:sha256\nv5.5.3\nmanager\nwhat\n";
    assert_eq!(told, expected);
    assert_eq!(root.query(query::CONFIG, "").await.error().0, error::ARG_INVALID);
    let told = root.query(query::SPACE, "/").await.text();
    assert!(told.ends_with("&oss.used=22&oss.quota=-1"), "{told}");
    let owner = Owner::User(crate::world::account("admin"));
    let quota = Operation::QuotaSet { owner, files: None, bytes: None, replica_bytes: Some(100) };
    world.admin(quota).await;
    let told = root.query(query::SPACE, "/d").await.text();
    assert_eq!(told, "oss.cgroup=public&oss.space=100&oss.free=78&oss.maxf=78&oss.used=22&oss.quota=100");
    assert_eq!(root.query(query::SPACE, "/nope").await.error().0, error::NOT_FOUND);
    assert_eq!(root.query(query::STATS, "a").await.error().0, error::UNSUPPORTED);
    let vfs = root.call(request::STAT, PARENTS, b"/").await.text();
    assert_eq!(vfs, "2 0 0 0 0 0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_done_here_is_said_to_be() {
    let world = world().await;
    let mut root = Root::anonymous(&world).await;
    for request in [request::TRUNCATE, request::PREPARE, request::FATTR, request::BIND, request::SIGVER] {
        assert_eq!(root.fails(request, [0; 16], "/").await, error::UNSUPPORTED, "{request}");
    }
    for request in
        [request::READ, request::WRITE, request::CLOSE, request::SYNC, request::PGREAD, request::READV]
    {
        assert_eq!(root.fails(request, [0; 16], "").await, error::FILE_NOT_OPEN, "{request}");
    }
    assert_eq!(root.fails(request::STAT, [0; 16], "").await, error::FILE_NOT_OPEN);
    for request in [2999, 3100, request::LOGIN, request::AUTH] {
        assert_eq!(root.fails(request, [0; 16], "").await, error::INVALID_REQUEST, "{request}");
    }
    assert_eq!(root.fails(request::MKDIR, [0; 16], "/x").await, error::NOT_AUTHORIZED, "by nobody");
    root.done(request::PING, [0; 16], "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_a_server_that_is_busy_is_told_to_wait() {
    let world = world_with(|settings| {
        settings.limits.heavy_slots = 1;
        settings.limits.heavy_queue_max = 1;
        settings.limits.heavy_queue_per_user_max = 1;
    })
    .await;
    world.files("/many", 3).await;
    let mut root = Root::anonymous(&world).await;
    world.hooks.hold_lists.send_replace(true);
    let one = root.send(request::DIRLIST, [0; 16], b"/many").await;
    crate::client::eventually("a slot is taken", || {
        world.hooks.lists_begun.load(std::sync::atomic::Ordering::SeqCst) > 0
    })
    .await;
    let two = root.send(request::DIRLIST, [0; 16], b"/many").await;
    let waits = root.call(request::DIRLIST, [0; 16], b"/many").await;
    assert_eq!((waits.status, &waits.bytes[..4]), (status::WAIT, &[0, 0, 0, 1][..]));
    world.hooks.hold_lists.send_replace(false);
    let mut answered = [root.answer().await.unwrap(), root.answer().await.unwrap()];
    answered.sort_by_key(|answer| answer.stream.0);
    assert_eq!(answered.map(|answer| (answer.stream, answer.status)), [(one, 0), (two, 0)]);
}

/// A drained server asks open connections to wait, and lets no new one in; both go on once it is resumed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_server_lets_clients_wait() {
    let world = world().await;
    let mut admin = crate::client::Client::admin(&world).await;
    let mut root = Root::admin(&world).await;
    root.done(request::MKDIR, PARENTS, "/d").await;
    admin.call(Operation::Drain { resume: false }).await.unwrap();
    let told = root.on(request::STAT, "/d").await;
    assert_eq!(told.status, status::WAIT, "{told:?}");
    assert_eq!(told.bytes[..4], 10u32.to_be_bytes());
    root.done(request::PING, [0; 16], "").await;
    let mut other = Root::raw(&world).await;
    other.greet(0).await;
    assert_eq!(other.login().await.error().0, error::OVERLOADED);
    admin.call(Operation::Drain { resume: true }).await.unwrap();
    assert_eq!(root.stat("/d").await.status, status::OK);
    Root::admin(&world).await.stat("/d").await;
}
