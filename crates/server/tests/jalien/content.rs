//! Commands for contents of files, for existing replicas, and with misspelt storage elements.

use exacat_model::operation::{Attribute, SeSettings};
use exacat_model::{Operation, SeName};

use crate::alien::{Alien, new_user, world};
use crate::element::Element;
use crate::world::{World, account, lfn};

const HOME: &str = "/alice/cern.ch/user/j/jdoe";
const SE: &str = "ALICE::TEST::SE1";
/// MD5 of `one\nTwo\nthree\n`.
const MD5: &str = "2f8d35d2c1e7bbd4b60d5bb8a44d0e73";

/// Starts a server with a user, and a storage element with files.
async fn with_storage() -> (World, Element, Alien) {
    let world = world().await;
    let element = Element::start().await;
    world
        .admin(Operation::SeSet(SeSettings {
            name: SeName::parse(SE).unwrap(),
            number: Some(1),
            prefix: Some(format!("root://127.0.0.1:{}//data", element.port)),
            qos: Some(vec![account("disk")]),
            status: None,
            distances: Vec::new(),
            https: None,
            only_new: true,
        }))
        .await;
    new_user(&world, "jdoe", |_| {}).await;
    let alien = Alien::user(&world, "jdoe").await;
    (world, element, alien)
}

/// Makes a file of the user's, with its content on the storage element.
async fn stored(alien: &mut Alien, element: &Element, name: &str, content: &[u8]) {
    alien.done("touch", &[name]).await;
    alien.done("rm", &[name]).await;
    let size = content.len().to_string();
    let path = format!("{HOME}/{name}");
    let place = &alien.done("access", &["-s", &size, "write", &path, SE]).await["results"][0];
    let field = |name: &str| place[name].as_str().unwrap().to_owned();
    let (envelope, url, guid) = (field("envelope"), field("url"), field("guid"));
    element.hold(&format!("/data{}", url.split("//data").nth(1).unwrap()), content);
    alien.done("commit", &[&envelope, &size, &path, "644", "0", &url, SE, &guid, ""]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grep_tells_the_lines_that_match() {
    let (_world, element, mut alien) = with_storage().await;
    stored(&mut alien, &element, "a.txt", b"one\nTwo\nthree\n").await;
    stored(&mut alien, &element, "b.txt", b"two (2)\n").await;
    assert_eq!(alien.texts("grep", &["t", "a.txt"]).await, ["three"]);
    assert_eq!(alien.texts("grep", &["-in", "^t", "a.txt"]).await, ["2:Two", "3:three"]);
    assert_eq!(alien.texts("grep", &["-v", "e", "a.txt"]).await, ["Two"]);
    assert_eq!(alien.texts("grep", &["-c", "o", "a.txt"]).await, ["2"]);
    let both = [format!("{HOME}/a.txt"), format!("{HOME}/b.txt")];
    assert_eq!(alien.texts("grep", &["-il", "two", "*.txt"]).await, both);
    assert_eq!(alien.texts("grep", &["-F", "(2)", "*.txt"]).await, [format!("{HOME}/b.txt:two (2)")]);
    assert_eq!(alien.fails("grep", &["(", "a.txt"]).await, libc::EINVAL);
    assert_eq!(alien.fails("grep", &["x", "none.txt"]).await, libc::ENOENT);
    assert_eq!(alien.fails("grep", &["x"]).await, libc::EINVAL);
    // A replica that is gone, and one that is too short.
    element.state.lock().contents.values_mut().for_each(|content| content.truncate(1));
    assert_eq!(alien.fails("grep", &["x", "a.txt"]).await, libc::EBADFD);
    element.state.lock().files.clear();
    assert_eq!(alien.fails("grep", &["x", "a.txt"]).await, libc::EBADFD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collections_are_stored_and_made_of_lists() {
    let (_world, element, mut alien) = with_storage().await;
    stored(&mut alien, &element, "a.txt", b"one\nTwo\nthree\n").await;
    stored(&mut alien, &element, "list", format!("# files\n\n{HOME}/a.txt\n").as_bytes()).await;
    let told = alien.texts("toXml", &["-l", "list"]).await;
    assert!(told[1].contains(&format!("lfn=\"{HOME}/a.txt\"")), "{told:?}");
    alien.done("toXml", &["-x", "coll.xml", "a.txt"]).await;
    let found = alien.done("find", &["-f", ".", "coll.xml"]).await["results"][0].clone();
    let size: usize = found["size"].as_str().unwrap().parse().unwrap();
    assert_eq!(found["md5"].as_str().unwrap().len(), 32);
    let contents: Vec<Vec<u8>> = element.state.lock().contents.values().cloned().collect();
    let text = contents.iter().find(|content| content.starts_with(b"<?xml")).unwrap();
    assert_eq!(text.len(), size);
    let text = String::from_utf8_lossy(text);
    assert!(text.contains("<collection name=\"coll.xml\">") && text.ends_with("</alien>\n"), "{text}");
    assert_eq!(alien.fails("toXml", &["-x", "coll.xml", "a.txt"]).await, libc::EEXIST);
    assert_eq!(alien.fails("toXml", &["-a", "-x", "other.xml", "a.txt"]).await, libc::EINVAL);
    alien.done("find", &["-x", "found.xml", ".", "*.txt"]).await;
    assert!(alien.texts("grep", &["event name", "found.xml"]).await[0].contains("name=\"1\""));
    // A failed write leaves nothing behind.
    element.behave(crate::element::Manner::Gone);
    assert_eq!(alien.fails("toXml", &["-x", "never.xml", "a.txt"]).await, libc::EREMOTEIO);
    assert_eq!(alien.fails("stat", &["never.xml"]).await, libc::ENOENT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_is_there_is_registered_and_found_at_random() {
    let (world, element, mut alien) = with_storage().await;
    alien.done("touch", &["f"]).await;
    alien.done("addMirror", &["f", SE]).await;
    let pfn = alien.fields("pfn", "whereis", &["f"]).await;
    assert!(pfn[0].starts_with(&format!("root://127.0.0.1:{}//data/", element.port)), "{pfn:?}");
    assert_eq!(alien.fails("addMirror", &["f", "ALICE::NO::SE"]).await, libc::ENOENT);
    assert_eq!(alien.fails("addMirror", &["f"]).await, libc::EINVAL);
    alien.done("touch", &["g"]).await;
    alien.done("addMirror", &["g", SE, "root://elsewhere:1094//g"]).await;
    assert_eq!(alien.fields("pfn", "whereis", &["g"]).await, ["root://elsewhere:1094//g"]);
    assert_eq!(alien.fails("randomPFNs", &[SE, "1"]).await, libc::EACCES);
    let mut admin = Alien::admin(&world).await;
    let mut all = admin.fields("pfn", "randomPFNs", &[SE, "10"]).await;
    all.sort();
    let mut expected = vec![pfn[0].clone(), "root://elsewhere:1094//g".to_owned()];
    expected.sort();
    assert_eq!(all, expected);
    let one = admin.fields("pfn", "randomPFNs", &["1", "1"]).await;
    assert!(one.len() == 1 && expected.contains(&one[0]), "{one:?}");
    assert_eq!(admin.fails("randomPFNs", &[SE, "1001"]).await, libc::EINVAL);
    assert_eq!(admin.fails("randomPFNs", &["ALICE::NO::SE", "1"]).await, libc::ENOENT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misspelt_storage_element_is_refused_and_nothing_is_reserved() {
    let (world, _element, mut alien) = with_storage().await;
    for specs in ["ALICE::TEST::SE8", "disk:1,ALICE::TEST::SE8", "disk:1,!ALICE::TEST::SE8"] {
        let answer = alien.call("access", &["-s", "1", "-m", MD5, "write", "up", specs]).await;
        assert_eq!(answer["metadata"]["exitcode"], "22", "{specs}: {answer}");
        assert!(answer["metadata"]["error"].as_str().unwrap().contains("ALICE::TEST::SE8"), "{answer}");
    }
    let reservations = Operation::UploadList { cursor: exacat_model::Cursor::default(), limit: 10 };
    match world.admin(reservations).await {
        exacat_model::Answer::Uploads { items, .. } => assert!(items.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recursive_chown_of_what_is_owned_already_succeeds() {
    let (world, _element, mut alien) = with_storage().await;
    alien.done("mkdir", &["-p", "d/e"]).await;
    alien.done("touch", &["d/e/f"]).await;
    alien.done("chown", &["-R", "jdoe.jdoe", "d"]).await;
    alien.done("chown", &["jdoe", "d/e/f"]).await;
    assert_eq!(alien.fails("chown", &["-R", "admin", "d"]).await, libc::EACCES);
    // The caller may not give away another user's file below.
    let other = vec![Attribute::Owner(account("admin"))];
    let lfns = vec![lfn(&format!("{HOME}/d/e/f"))];
    world.admin(Operation::SetAttributes { lfns, attributes: other }).await;
    assert_eq!(alien.fails("chown", &["-R", "jdoe", "d"]).await, libc::EACCES);
    assert_eq!(alien.fails("chown", &["admin", "d/e/f"]).await, libc::EACCES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn found_link_has_the_content_of_its_target() {
    let (_world, element, mut alien) = with_storage().await;
    stored(&mut alien, &element, "target", b"one\nTwo\nthree\n").await;
    alien.done("ln", &["target", "link"]).await;
    alien.done("ln", &["nowhere", "dangling"]).await;
    let found = alien.done("find", &["-f", ".", "*"]).await;
    let size = |name: &str| {
        let results = found["results"].as_array().unwrap();
        let one = results.iter().find(|one| one["lfn"] == format!("{HOME}/{name}")).unwrap();
        one["size"].as_str().unwrap().to_owned()
    };
    assert_eq!((size("target"), size("link"), size("dangling")), ("14".into(), "14".into(), "0".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uuid_without_a_guid_tells_its_own_usage() {
    let (_world, _element, mut alien) = with_storage().await;
    let answer = alien.call("uuid", &[]).await;
    assert!(answer["metadata"]["error"].as_str().unwrap().contains("usage: uuid GUID"), "{answer}");
    assert!(alien.texts("uuid", &["-h"]).await[0].starts_with("usage: uuid GUID"));
}
