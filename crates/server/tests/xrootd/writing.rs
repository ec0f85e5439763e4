//! Uploads: written where the catalogue says, and visible once the storage element reports them
//! complete.

use std::net::{Ipv4Addr, SocketAddr};

use base64::Engine;
use exacat_model::operation::SeSettings;
use exacat_model::{Answer, Checksum, Cursor, Guid, Operation};
use exacat_server::{Server, ServerSettings, XrootdSettings};
use exacat_testkit::waiting::found;
use exacat_wire::xrootd::numbers::{error, request, status};

use crate::client::{eventually, eventually_so};
use crate::element::{Element, Manner, There};
use crate::root::{Root, body_at, se, world_with};
use crate::world::{World, account, lfn};

/// Options of `xrdcp`: new, for reading and writing, with directories, and a stat.
pub(crate) const NEW: u16 = 0x0568;
/// Options of `xrdcp -f` and gfal-copy: overwrite.
const OVER: u16 = 0x0562;

pub(crate) async fn world() -> World {
    world_with(|_| {}).await
}

/// Adds storage elements to a world, from 1 on.
pub(crate) async fn elements(world: &World, count: u16) -> Vec<Element> {
    let mut all = Vec::new();
    for number in 1..=count {
        let element = Element::start().await;
        world.admin(Operation::SeSet(settings_of(number, &element))).await;
        all.push(element);
    }
    all
}

pub(crate) fn settings_of(number: u16, element: &Element) -> SeSettings {
    SeSettings {
        name: se(number),
        number: Some(number),
        prefix: Some(format!("root://127.0.0.1:{}//data", element.port)),
        qos: Some(vec![account("disk")]),
        status: None,
        distances: Vec::new(),
        https: None,
        only_new: true,
    }
}

/// A redirection of a client that writes.
#[derive(Debug)]
pub(crate) struct Sent {
    pub port: u16,
    pub path: String,
    pub fields: String,
}

impl Sent {
    pub(crate) fn field(&self, name: &str) -> &str {
        let mut fields = self.fields.split('&');
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).unwrap()
    }

    pub(crate) fn guid(&self) -> Guid {
        Guid::parse(self.field("exacat.guid")).unwrap()
    }
}

pub(crate) async fn write(root: &mut Root, how: u16, path: &str) -> Sent {
    let (port, url) = root.call(request::OPEN, body_at(2, how), path.as_bytes()).await.redirect();
    assert_eq!(port, -1, "{url}");
    let (place, fields) = url.strip_prefix("root://127.0.0.1:").unwrap().split_once('?').unwrap();
    let (port, path) = place.split_once('/').unwrap();
    Sent { port: port.parse().unwrap(), path: path.to_owned(), fields: fields.to_owned() }
}

async fn not_written(root: &mut Root, how: u16, path: &str) -> (u32, String) {
    root.call(request::OPEN, body_at(2, how), path.as_bytes()).await.error()
}

fn at<'a>(all: &'a [Element], sent: &Sent) -> &'a Element {
    all.iter().find(|element| element.port == sent.port).unwrap()
}

pub(crate) const WHOLE: There =
    There { size: 11, modified: 5, open: false, checksum: Some("adler32 e222ea89") };

/// Polls until a name is visible.
pub(crate) async fn visible(root: &mut Root, path: &str) {
    eventually_so("the file to be visible", async || root.stat(path).await.status == status::OK).await;
}

/// Checks that the file stays invisible for some more visits.
async fn stays_invisible(root: &mut Root, element: &Element, path: &str) {
    let before = element.state.lock().shown.len();
    eventually_so("further visits", async || {
        assert_eq!(root.fails(request::STAT, [0; 16], path).await, error::NOT_FOUND, "{path}");
        element.state.lock().shown.len() >= before + 2
    })
    .await;
    assert_eq!(root.fails(request::STAT, [0; 16], path).await, error::NOT_FOUND, "{path}");
}

pub(crate) async fn reservations(world: &World) -> usize {
    match world.admin(Operation::UploadList { cursor: Cursor::default(), limit: 100 }).await {
        Answer::Uploads { items, .. } => items.len(),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn deletions(world: &World, number: u16) -> usize {
    let deletions = Operation::SeDeletions { name: se(number), cursor: Cursor::default(), limit: 100 };
    match world.admin(deletions).await {
        Answer::Deletions { items, .. } => items.len(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_there_when_it_is_whole_and_closed_and_not_before() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/deep/new file?oss.asize=11").await;
    let own = format!("/data{}", sent.guid().storage_path().as_str());
    assert_eq!((sent.path.as_str(), sent.field("exacat.lfn")), (own.as_str(), "/d/deep/new%20file"));
    let token = sent.field("authz").strip_prefix("Bearer%20").unwrap();
    let claims = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["scope"], format!("storage.create:{own} storage.read:{own}"));
    stays_invisible(&mut root, &all[0], "/d/deep/new file").await;
    all[0].put(&own, There { size: 10, ..WHOLE });
    stays_invisible(&mut root, &all[0], "/d/deep/new file").await;
    all[0].put(&own, There { open: true, ..WHOLE });
    stays_invisible(&mut root, &all[0], "/d/deep/new file").await;
    assert_eq!(reservations(&world).await, 1);
    all[0].put(&own, WHOLE);
    visible(&mut root, "/d/deep/new file").await;
    assert!(root.stat("/d/deep/new file").await.text().contains(" 11 "));
    assert_eq!(root.checksum("/d/deep/new file").await.text(), "adler32 e222ea89");
    assert_eq!(reservations(&world).await, 0, "nothing waits for it any more");
    assert_eq!(std::fs::read_dir(world.data().join("uploads")).unwrap().count(), 0);
    assert!(
        root.open("/d/deep/new file").await.redirect().1.contains(&own),
        "it is read where it was written"
    );
    let shown = all[0].state.lock().shown.clone();
    assert!(shown.iter().all(|fields| fields.starts_with("authz=Bearer%20ey")), "{shown:?}");
    assert_eq!(world.figure("server", "xrootd_writes").await, 1);
    assert_eq!(world.figure("server", "xrootd_writes_committed").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_becomes_visible_though_nobody_asks_for_it() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, OVER, "/d/new?oss.asize=11").await;
    all[0].put(&sent.path, There { checksum: None, ..WHOLE });
    eventually_so("a commit", async || reservations(&world).await == 0).await;
    assert_eq!(
        root.stat("/d/new").await.status,
        status::OK,
        "of a storage element without checksums by its size"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checksum_that_comes_later_is_waited_for() {
    let world = world().await;
    let all = elements(&world, 1).await;
    all[0].behave(Manner::Later);
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/new?oss.asize=11&exacat.checksum=adler32:e222ea89").await;
    all[0].put(&sent.path, WHOLE);
    visible(&mut root, "/d/new").await;
    assert_eq!(root.checksum("/d/new").await.text(), "adler32 e222ea89");
    assert_eq!(all[0].state.lock().visits, 1, "nothing is left there that nobody takes away");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checksum_that_a_storage_element_lost_is_requested_again() {
    let world = world().await;
    let all = elements(&world, 1).await;
    all[0].behave(Manner::Forgetful);
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/new?oss.asize=11&exacat.checksum=adler32:e222ea89").await;
    all[0].put(&sent.path, WHOLE);
    visible(&mut root, "/d/new").await;
    assert_eq!(root.checksum("/d/new").await.text(), "adler32 e222ea89");
    let state = all[0].state.lock();
    assert_eq!((state.visits, state.checksums), (1, 2), "one visit asks twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_another_than_was_reserved_is_given_up() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    for (name, there, reserved) in [
        ("/d/other", WHOLE, "&exacat.checksum=adler32:00000001"),
        ("/d/longer", There { size: 12, ..WHOLE }, ""),
    ] {
        let before = deletions(&world, 1).await;
        let sent = write(&mut root, NEW, &format!("{name}?oss.asize=11{reserved}")).await;
        all[0].put(&sent.path, there);
        eventually_so("the end of the reservation", async || {
            assert_eq!(root.fails(request::STAT, [0; 16], name).await, error::NOT_FOUND);
            reservations(&world).await == 0
        })
        .await;
        assert_eq!(root.fails(request::STAT, [0; 16], name).await, error::NOT_FOUND);
        assert_eq!(deletions(&world, 1).await, before + 1, "what was written there goes");
    }
    // A checksum that no server reports was not verified.
    let sent = write(&mut root, NEW, "/d/unverified?oss.asize=11&exacat.checksum=adler32:e222ea89").await;
    all[0].put(&sent.path, There { checksum: None, ..WHOLE });
    stays_invisible(&mut root, &all[0], "/d/unverified").await;
    all[0].put(&sent.path, WHOLE);
    visible(&mut root, "/d/unverified").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_written_is_said_to_be() {
    let world = world().await;
    let all = elements(&world, 2).await;
    world.files("/d", 1).await;
    let mut nobody = Root::anonymous(&world).await;
    assert_eq!(not_written(&mut nobody, NEW, "/d/new?oss.asize=1").await.0, error::NOT_AUTHORIZED);
    let mut root = Root::admin(&world).await;
    let (number, why) = not_written(&mut root, OVER, "/d/f000000?oss.asize=1").await;
    assert_eq!(number, error::IT_EXISTS);
    assert!(why.contains("nothing is written over"), "{why}");
    assert_eq!(not_written(&mut root, NEW, "/d?oss.asize=1").await.0, error::IT_EXISTS);
    for (how, path, expected) in [
        (0x0020, "/d/f000000?oss.asize=1", error::UNSUPPORTED),
        (0x0200, "/d/new?oss.asize=1", error::UNSUPPORTED),
        (NEW, "/d/new", error::ARG_MISSING),
        (NEW, "/d/new?oss.asize=-1", error::ARG_MISSING),
        (NEW, "/d/../new?oss.asize=1", error::ARG_INVALID),
        (NEW, "/d/new?oss.asize=1&exacat.guid=x", error::ARG_INVALID),
        (NEW, "/d/new?oss.asize=1&exacat.checksum=x", error::ARG_INVALID),
        (NEW, "/d/new?oss.asize=1&exacat.se=A::B::C", error::NOT_FOUND),
    ] {
        assert_eq!(not_written(&mut root, how, path).await.0, expected, "{path}");
    }
    for (number, mentions) in [
        (request::TRUNCATE, "write a new file"),
        (request::PREPARE, "open the file"),
        (request::FATTR, "exacat tag"),
    ] {
        let (code, why) = root.on(number, "/d/f000000").await.error();
        assert_eq!(code, error::UNSUPPORTED);
        assert!(why.contains(mentions), "{why}");
    }
    let one = write(&mut root, NEW, &format!("/d/n?oss.asize=11&exacat.se={}", se(2).as_str())).await;
    assert_eq!(one.port, all[1].port, "the one that is wanted");
    let other = write(&mut root, NEW, &format!("/d/n2?oss.asize=11&exacat.not={}", se(2).as_str())).await;
    assert_eq!(other.port, all[0].port);
    assert_eq!(reservations(&world).await, 2, "of what was refused nothing is reserved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_back_writes_elsewhere() {
    let world = world().await;
    let all = elements(&world, 2).await;
    let mut root = Root::admin(&world).await;
    let first = write(&mut root, NEW, "/d/new?oss.asize=11").await;
    let back = format!("{}?oss.asize=11&{}&tried=127.0.0.1&triedrc=ioerr", first.path, first.fields);
    let second = write(&mut root, NEW, &back).await;
    assert_ne!(first.port, second.port);
    assert_eq!((first.guid(), reservations(&world).await), (second.guid(), 1));
    at(&all, &first).put(&first.path, WHOLE);
    stays_invisible(&mut root, at(&all, &second), "/d/new").await;
    at(&all, &second).put(&second.path, WHOLE);
    visible(&mut root, "/d/new").await;
    let back = "/d/x?oss.asize=11&exacat.lfn=/d/x&exacat.ses=1,2&tried=127.0.0.1";
    assert_eq!(not_written(&mut root, NEW, back).await.0, error::NO_SERVER);
    // A further replica, for a client that names the file.
    let more = format!("/d/new?oss.asize=11&exacat.guid={}&exacat.checksum=adler32:e222ea89", second.guid());
    let third = write(&mut root, NEW, &more).await;
    assert_eq!(third.port, first.port);
    at(&all, &third).put(&third.path, WHOLE);
    eventually_so("two replicas", async || {
        root.stat("/d/new").await;
        root.on(request::LOCATE, "/d/new").await.text().split(' ').count() >= 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_elements_that_answer_badly_do_no_harm() {
    let world = world().await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/new?oss.asize=11").await;
    for manner in [Manner::Endless, Manner::Nonsense, Manner::Gone] {
        all[0].behave(manner);
        // An earlier visit may still be running.
        let until = all[0].state.lock().visits + 2;
        eventually_so("visits", async || {
            let outcome = root.fails(request::STAT, [0; 16], "/d/new").await;
            assert_eq!(outcome, error::NOT_FOUND, "{manner:?}");
            all[0].state.lock().visits >= until
        })
        .await;
    }
    all[0].put(&sent.path, WHOLE);
    all[0].behave(Manner::Good);
    visible(&mut root, "/d/new").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_are_written_at_once_and_no_more() {
    let world = world_with(|settings| settings.limits.xrootd_uploads_max = 1).await;
    let all = elements(&world, 1).await;
    let mut root = Root::admin(&world).await;
    let sent = write(&mut root, NEW, "/d/a?oss.asize=11").await;
    let told = root.call(request::OPEN, body_at(2, NEW), b"/d/b?oss.asize=11").await;
    assert_eq!(told.status, status::WAIT);
    assert_eq!(reservations(&world).await, 1);
    all[0].put(&sent.path, WHOLE);
    visible(&mut root, "/d/a").await;
    write(&mut root, NEW, "/d/b?oss.asize=11").await;
    // A file that never arrives ends with its reservation.
    world.clock.turn(90 * 24 * 3_600_000);
    eventually("the upload to be forgotten", || {
        std::fs::read_dir(world.data().join("uploads")).unwrap().count() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_being_written_is_known_after_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let start = async || {
        let mut settings = ServerSettings::new(place.path().join("data"));
        settings.xrootd = Some(XrootdSettings::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
        Server::start(settings).await.unwrap()
    };
    let element = Element::start().await;
    let server = start().await;
    let admin = server.catalogue().caller_named(&account("admin")).await.unwrap();
    let se = Operation::SeSet(settings_of(1, &element));
    let id = server.catalogue().new_operation_id().unwrap();
    server.catalogue().execute(&admin, id, se).await.unwrap();
    let token = std::fs::read_to_string(&server.addresses.admin_token).unwrap();
    let address = server.addresses.xrootd.unwrap();
    let mut root = Root::at(address, &server.addresses.certificate, token.trim()).await;
    let sent = write(&mut root, NEW, "/d/new?oss.asize=11&exacat.checksum=adler32:e222ea89").await;
    drop(root);
    server.shutdown();
    server.wait().await.unwrap();
    element.put(&sent.path, WHOLE);
    let server = start().await;
    let stat = || Operation::Stat { lfns: vec![lfn("/d/new")], follow: true };
    let checksum = found("the file", async || {
        let id = server.catalogue().new_operation_id().unwrap();
        match server.catalogue().execute(&admin, id, stat()).await.unwrap() {
            Answer::Stats(mut stats) => {
                let stat = stats.pop().unwrap().ok()?;
                Some(stat.entry.file().unwrap().checksums.iter().next().copied())
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(checksum, Some(Checksum::parse("adler32:e222ea89").unwrap()));
    server.shutdown();
    server.wait().await.unwrap();
}
