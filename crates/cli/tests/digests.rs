//! Digests as users type them: of a catalogue and of its copy elsewhere, and of later differences.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use serde_json::{Value, json};
use service::Service;

#[test]
fn a_copy_is_proven_and_its_differences_are_named() {
    let mut service = Service::start();
    service.ok("generate --entries 2000 --seed 3");
    service.ok("collection create /set");
    let file = service.ok("find /demo --type f --limit 1");
    service.run(&["collection", "add", "/set", file.trim_end()]).ok();
    let saved = service.place().join("saved.tsv.zst");
    let saved = saved.to_str().unwrap();
    service.run(&["export", "/", "-o", saved]).ok();
    let copy = Service::start();
    copy.ok("se add NOT::THERE::FIRST --prefix root://first//d");
    copy.run(&["import", saved, "--restore"]).ok();

    let here = service.ok("digest");
    assert!(here.len() > 64 && here.trim_end().ends_with(" /"), "{here}");
    let of_copy = copy.json1("digest");
    assert_eq!(here[..64], *of_copy["digest"].as_str().unwrap());
    assert_eq!((&of_copy["lfn"], &of_copy["entries"]), (&json!("/"), &json!(2001)));
    let shown = service.json("digest --depth 1");
    assert_eq!(shown[0]["lfn"], "/");
    assert!(shown.iter().any(|one| one["lfn"] == "/demo"), "{shown:?}");

    let digests = service.place().join("here.digests");
    let digests = digests.to_str().unwrap();
    service.run(&["digest", "-o", digests]).ok();
    let same = copy.run(&["digest", "--against", digests]).ok();
    assert!(same.starts_with("the same, "), "{same}");
    assert_eq!(copy.run(&["--json", "digest", "--against", digests]).ok(), "");

    copy.ok("mkdir /only-in-the-copy/below -p");
    copy.run(&["chmod", "600", file.trim_end()]).ok();
    let directory = file.rsplit_once('/').unwrap().0;
    let ran = copy.run(&["--json", "digest", "--against", digests]);
    let differences: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named: Vec<(&str, &str)> =
        differences.iter().map(|one| (one["lfn"].as_str().unwrap(), one["what"].as_str().unwrap())).collect();
    assert_eq!(named, [(directory, "entries"), ("/only-in-the-copy", "only-here"), ("/", "entries")]);
    ran.fails(19);
    let ran = copy.run(&["digest", "--against", digests]);
    assert!(ran.out.contains("/only-in-the-copy: only here, with 1 entry\n"), "{}", ran.out);
    assert!(ran.fails(19).contains("3 differences"));

    // The same in the data directory itself: a snapshot beside the server, and the catalogue once
    // the server has ended.
    service.ok("snapshot create kept");
    service.ok("mkdir /later");
    assert_eq!(service.ok("digest --snapshot kept"), here);
    let ran = service.run(&["digest", "--snapshot", "kept", "--against", digests]).ok();
    assert!(ran.starts_with("the same, "), "{ran}");
    let plain = service.place().join("plain.tsv");
    let (plain, here_again) = (plain.to_str().unwrap(), service.place().join("again.tsv"));
    service.run(&["export", "/", "--owner", "admin", "-o", plain]).ok();
    // The name of the standard output is no file.
    assert_eq!(service.ok("export / --owner admin -o -"), std::fs::read_to_string(plain).unwrap());
    service.fails("digest --snapshot none", 11);
    assert!(service.fails("export / --offline", 23).contains("a server uses this data directory"));
    assert_eq!(service.stop(), Some(0));
    service.run(&["export", "/", "--offline", "--owner", "admin", "-o", here_again.to_str().unwrap()]).ok();
    assert_eq!(std::fs::read(plain).unwrap(), std::fs::read(&here_again).unwrap());
    let ran = service.run(&["digest", "--offline", "--against", digests]);
    assert!(ran.out.contains("/later: only here, with 0 entries\n"), "{}", ran.out);
    ran.fails(19);

    // A wrong file, or digests of another directory, are refused before any work.
    copy.run(&["digest", "--against", saved]).fails(1);
    assert!(copy.run(&["digest", "/demo", "--against", digests]).fails(1).contains("the digests of /,"));
    copy.ok("fsck");
}
