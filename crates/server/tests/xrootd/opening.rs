//! Opening of files at their storage elements: at the best place, and then at the next.

use std::sync::Arc;

use base64::Engine;
use exacat_model::Operation;
use exacat_model::operation::{Existing, FileRef, NewFile, SeSettings};
use exacat_server::{LOOK_UPS_HEAD, LookUpLog};
use exacat_wire::xrootd::numbers::{error, request};
use parking_lot::Mutex;

use crate::root::{GUID, Root, body_at, file, se, storage, world, world_with};
use crate::world::{World, lfn};

/// Returns the host of a redirection's URL, and the fields after it.
async fn sent(root: &mut Root, path: &str) -> (String, String) {
    let (port, url) = root.open(path).await.redirect();
    assert_eq!(port, -1, "{url}");
    let (place, fields) = url.strip_prefix("root://").unwrap().split_once('?').unwrap();
    let (host, _) = place.split_once(':').unwrap();
    (host.to_owned(), fields.to_owned())
}

fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    fields.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

fn scope(fields: &str) -> String {
    let token = field(fields, "authz").unwrap().strip_prefix("Bearer%20").unwrap();
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    claims["scope"].as_str().unwrap().to_owned()
}

async fn set_status(world: &World, number: u16, status: exacat_model::SeStatus) {
    let set = SeSettings {
        name: se(number),
        number: None,
        prefix: None,
        qos: None,
        status: Some(status),
        distances: Vec::new(),
        https: None,
        only_new: false,
    };
    world.admin(Operation::SeSet(set)).await;
}

/// Property: each file that a client was sent to is one line of the log of look-ups, whatever the number of
/// its tries. Files that are missing or withheld are none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn look_up_is_one_line_of_the_log() {
    let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
    let kept = Arc::clone(&lines);
    let write = Arc::new(move |line: &[u8]| kept.lock().extend_from_slice(line));
    let log = LookUpLog { write, lost: Arc::default() };
    let world = world_with(|settings| settings.look_ups = Some(log)).await;
    storage(&world, 2).await;
    file(&world, "/d/a", GUID, &[(1, None), (2, None)]).await;
    let mut root = Root::anonymous(&world).await;
    let (_, fields) = sent(&mut root, "/d/a").await;
    assert_eq!(sent(&mut root, &format!("/d/a?{fields}&tried=se1.example")).await.0, "se2.example");
    assert_eq!(sent(&mut root, "/d/a?tried=se1.example").await.0, "se2.example");
    root.open("/d/none").await.error();
    sent(&mut root, "/d/a").await;
    let text = String::from_utf8(lines.lock().clone()).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 2, "{text}");
    for row in rows {
        assert_eq!((row.len(), row[1], row[4]), (5, "/d/a", ""), "{text}");
        assert!(row[0].parse::<u64>().unwrap() > 1_700_000_000_000, "{text}");
        assert_eq!(row.len(), LOOK_UPS_HEAD.split('\t').count());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_sent_from_place_to_place_until_none_is_left() {
    let world = world().await;
    storage(&world, 3).await;
    file(&world, "/d/a b,c", GUID, &[(1, None), (2, None), (3, None)]).await;
    let mut root = Root::anonymous(&world).await;
    let (host, fields) = sent(&mut root, "/d/a b,c").await;
    assert_eq!(host, "se1.example");
    assert_eq!(
        scope(&fields),
        format!("storage.read:/data{}", exacat_model::Guid::parse(GUID).unwrap().storage_path().as_str())
    );
    assert_eq!(
        (field(&fields, "exacat.ses"), field(&fields, "exacat.lfn")),
        (Some("1"), Some("/d/a%20b%2Cc"))
    );
    // A client that opens the file anew, with its old fields, starts at the first place.
    assert_eq!(sent(&mut root, &format!("/d/a b,c?{fields}")).await.0, "se1.example");
    // One that comes back with the LFN, then one that comes back with the path of the PFN, fields
    // joined.
    let (host, again) = sent(&mut root, &format!("/d/a b,c?{fields}&tried=se1.example&triedrc=ioerr")).await;
    assert_eq!((host.as_str(), field(&again, "exacat.ses")), ("se2.example", Some("1,2")));
    let joined = "exacat.lfn=/d/a%20b%2Cc,/d/a%20b%2Cc&exacat.ses=1,1,2&authz=Bearer%20a.b.c,Bearer%20d.e.f";
    let path = format!("/data/06/x?{joined}&tried=se1.example,se2.example&triedrc=ioerr,enoent");
    let (host, last) = sent(&mut root, &path).await;
    assert_eq!((host.as_str(), field(&last, "exacat.ses")), ("se3.example", Some("1,1,2,3")));
    let (number, why) = root.open(&format!("/d/a b,c?{last}&tried=se3.example")).await.error();
    assert_eq!(number, error::NO_REPLICAS, "{why}");
    // Without our fields it still names the hosts that it tried.
    assert_eq!(sent(&mut root, "/d/a b,c?tried=se1.example,se3.example").await.0, "se2.example");
    let told = root.on(request::LOCATE, "/d/a b,c").await.text();
    assert_eq!(told, "Srse1.example:1095 Srse2.example:1095 Srse3.example:1095");
    assert_eq!(world.figure("server", "xrootd_retried").await, 4);
    assert!(world.figure("server", "xrootd_redirects").await >= 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coming_back_opens_no_door() {
    let world = world().await;
    storage(&world, 1).await;
    file(&world, "/secret/a", GUID, &[(1, None)]).await;
    let mode = exacat_model::operation::Attribute::Mode(exacat_model::Mode::new(0o700).unwrap());
    world.admin(Operation::SetAttributes { lfns: vec![lfn("/secret")], attributes: vec![mode] }).await;
    world.files("/d", 1).await;
    let mut root = Root::anonymous(&world).await;
    for path in [
        "/secret/a",
        "/d/f000000?exacat.lfn=/secret/a&tried=x",
        "/d/f000000?exacat.lfn=%2Fsecret%2Fa&tried=x",
    ] {
        assert_eq!(root.open(path).await.error().0, error::NOT_AUTHORIZED, "{path}");
    }
    assert_eq!(root.open("/d/f000000?exacat.lfn=../x&tried=x").await.error().0, error::ARG_INVALID);
    assert_eq!(root.fails(request::LOCATE, [0; 16], "/secret/a").await, error::NOT_AUTHORIZED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_that_are_not_the_files_own_get_no_envelope() {
    let world = world().await;
    storage(&world, 2).await;
    let other = "6d9a8f1e-5607-11ee-90f9-6c02e09897e9";
    let places = [(1, Some("root://se1.example:1095//elsewhere/f?x=y")), (2, Some("https://se2.example/f"))];
    file(&world, "/d/a", GUID, &places).await;
    file(&world, "/same/path", other, &[(1, Some("root://se1.example:1095//same/path"))]).await;
    let mut root = Root::anonymous(&world).await;
    let (port, url) = root.open("/d/a").await.redirect();
    assert_eq!(port, -1);
    assert_eq!(url, "root://se1.example:1095//elsewhere/f?x=y&exacat.ses=1&exacat.lfn=/d/a");
    assert_eq!(root.open("/d/a?tried=se1.example&exacat.ses=1").await.error().0, error::NO_REPLICAS);
    // Any client can follow a PFN whose path is the LFN.
    let (port, host) = root.open("//same/path").await.redirect();
    assert_eq!((port, host.as_str()), (1095, "se1.example?exacat.ses=1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_opened_is_said_to_be() {
    let world = world().await;
    storage(&world, 1).await;
    file(&world, "/d/archive.zip", GUID, &[(1, None)]).await;
    let member = NewFile {
        member_of: Some((FileRef::Lfn(lfn("/d/archive.zip")), "in/side.txt".to_owned())),
        size: Some(3),
        ..NewFile::named(lfn("/d/member"))
    };
    world.admin(Operation::Register { files: vec![member], parents: true, existing: Existing::Refuse }).await;
    world.files("/d", 1).await;
    let mut root = Root::admin(&world).await;
    assert_eq!(root.open("/d").await.error().0, error::IS_DIRECTORY);
    assert_eq!(root.open("/nope").await.error().0, error::NOT_FOUND);
    assert_eq!(root.open("/d/f000000").await.error().0, error::NO_REPLICAS);
    let (number, why) = root.open("/d/member").await.error();
    assert_eq!(number, error::UNSUPPORTED, "it would be given the whole archive");
    assert!(why.contains("/d/archive.zip?xrdcl.unzip=in/side.txt"), "{why}");
    assert_eq!(sent(&mut root, "/d/archive.zip").await.0, "se1.example");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nearest_place_is_first_and_what_is_offline_or_broken_is_not() {
    let place = tempfile::tempdir().unwrap();
    let networks = place.path().join("networks");
    std::fs::write(&networks, "127.0.0.0/8 SITE3\n").unwrap();
    let world = world_with(|settings| settings.networks = Some(networks)).await;
    storage(&world, 3).await;
    file(&world, "/d/a", GUID, &[(1, None), (2, None), (3, None)]).await;
    let mut root = Root::anonymous(&world).await;
    let (host, fields) = sent(&mut root, "/d/a").await;
    assert_eq!(host, "se3.example", "the client's site by its network");
    // Failures of several clients put it behind the others; a missing file does not.
    let failed = |why: &str| format!("/d/a?{fields}&tried=se3.example&triedrc={why}");
    for _ in 0..5 {
        sent(&mut root, &failed("enoent")).await;
    }
    assert_eq!(sent(&mut root, "/d/a").await.0, "se3.example");
    for _ in 0..5 {
        sent(&mut root, &failed("ioerr")).await;
    }
    assert_eq!(sent(&mut root, "/d/a").await.0, "se3.example", "one client is one client");
    set_status(&world, 3, exacat_model::SeStatus::Offline).await;
    assert_eq!(sent(&mut root, "/d/a").await.0, "se1.example");
    assert_eq!(root.on(request::LOCATE, "/d/a").await.text(), "Srse1.example:1095 Srse2.example:1095");
    for number in [1, 2] {
        set_status(&world, number, exacat_model::SeStatus::Offline).await;
    }
    assert_eq!(root.open("/d/a").await.error().0, error::NO_REPLICAS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_are_to_be_asked_for_here() {
    let world =
        world_with(|settings| settings.xrootd.as_mut().unwrap().name = Some("c.example".into())).await;
    world.files("/d", 1).await;
    let mut root = Root::anonymous(&world).await;
    let port = world.server.addresses.xrootd.unwrap().port();
    for path in ["/d", "*/d", "*", "*/nope"] {
        assert_eq!(root.on(request::LOCATE, path).await.text(), format!("Swc.example:{port}"), "{path}");
    }
    assert_eq!(root.fails(request::LOCATE, [0; 16], "/nope").await, error::NOT_FOUND);
    assert_eq!(root.fails(request::LOCATE, [0; 16], "/d/f000000").await, error::NO_REPLICAS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_of_several_sources_is_sent_to_each_replica_by_its_user_name() {
    let world = world().await;
    storage(&world, 2).await;
    file(&world, "/d/a", GUID, &[(1, None), (2, None)]).await;
    let mut root = Root::anonymous(&world).await;
    // As `xrdcp --sources` asks: each server once, by name.
    let told = root.call(request::LOCATE, body_at(0, 0x101), b"/d/a").await.text();
    let here = world.server.addresses.xrootd.unwrap();
    let mut places: Vec<&str> = told.split(' ').collect();
    places.sort_unstable();
    assert_eq!(places, [format!("Srse.1@{here}"), format!("Srse.2@{here}")]);
    for number in [1, 2] {
        let mut source = Root::raw(&world).await;
        source.greet(0).await;
        source.login_as(&format!("se.{number}")).await;
        let sent = source.open("/d/a").await.redirect().1;
        assert!(sent.starts_with(&format!("root://se{number}.example:1095//data")), "{sent}");
        // That replica or none: the client has the others.
        let failed = format!("/d/a?tried=se{number}.example&exacat.ses={number}");
        assert_eq!(source.open(&failed).await.error().0, error::NO_REPLICAS);
    }
    // A PFN whose path is the LFN is opened there.
    file(
        &world,
        "/d/b",
        "6d9a8f1e-5607-11ee-90f9-6c02e09897e9",
        &[(1, Some("root://se1.example:1095//d/b"))],
    )
    .await;
    let told = root.call(request::LOCATE, body_at(0, 0x101), b"/d/b").await.text();
    assert_eq!(told, "Srse1.example:1095");
}
