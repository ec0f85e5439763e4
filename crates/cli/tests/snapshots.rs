//! Snapshots, clones, restores and backups as an operator types them, at real server processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use service::{Ran, Service, exacat};

/// Runs a command on a data directory, with or without a server.
fn on(data: &Path, line: &str) -> Ran {
    let mut command = exacat();
    command.env("EXACAT_DATA", data).args(line.split_whitespace());
    Ran::of(command, b"")
}

/// Makes a few entries, a snapshot of them, and later changes.
fn with_snapshot() -> Service {
    let service = Service::start();
    service.ok("se add VO::NEAR::DISK --prefix root://near//data --number 7");
    service.ok("mkdir -p /demo/a /demo/b");
    service.ok("register /demo/a/one --size 1k --se VO::NEAR::DISK");
    service.ok("register /demo/a/two --size 2k");
    let taken = service.ok("snapshot create before");
    assert!(taken.starts_with("before: revision ") && taken.contains("5 entries"), "{taken}");
    service.ok("chmod 600 /demo/a/one");
    service.ok("mv /demo/a/two /demo/b/second");
    service.ok("mkdir /demo/new");
    service.ok("rm /demo/a/one");
    service.ok("register /demo/a/three --size 3k");
    service.ok("chmod 700 /demo/b");
    service
}

#[test]
fn snapshots_are_taken_listed_compared_checked_and_dropped() {
    let service = with_snapshot();
    let listed = service.json1("snapshot ls");
    assert_eq!((&listed["name"], &listed["entries"]), (&json!("before"), &json!(5)));
    // The snapshot shares the sorted runs. Taking it seals a log segment, which the catalogue may
    // archive since.
    assert!(listed["own_bytes"].as_u64().unwrap() < 4096, "{listed}");
    let text = service.ok("snapshot ls");
    assert!(text.starts_with("NAME    REVISION  TAKEN") && text.contains("\nbefore  "), "{text}");
    let diff = service.ok("snapshot diff before");
    let mut lines: Vec<&str> = diff.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "changed  /demo/b  (mode)",
            "created  /demo/a/three",
            "created  /demo/new",
            "moved    /demo/b/second  from /demo/a/two",
            "removed  /demo/a/one",
        ]
    );
    let told = service.json("snapshot diff before");
    let moved = told.iter().find(|item| item["difference"] == "moved").unwrap();
    assert_eq!((&moved["lfn"], &moved["from"]), (&json!("/demo/b/second"), &json!("/demo/a/two")));
    assert!(service.ok("-v snapshot diff before").ends_with("2 created, 1 changed, 1 moved, 1 removed\n"));
    service.ok("snapshot create after");
    assert_eq!(service.json("snapshot diff before after").len(), 5);
    assert_eq!(service.ok("snapshot diff after"), "");
    let checked = service.json1("snapshot verify before");
    assert_eq!(checked["problems"], json!([]));
    assert!(service.ok("snapshot verify before after").contains("after: 7 entries in "));
    assert!(on(service.data(), "snapshot verify --offline before").ok().contains("all good"));
    assert_eq!(on(service.data(), "--json snapshot ls --offline").json().len(), 2);

    assert!(service.fails("snapshot create before", 12).contains("choose another name"));
    assert!(service.fails("snapshot create ../x", 1).contains("not a valid name"));
    assert!(service.fails("snapshot diff none", 11).contains("there are after, before"));
    service.ok("user add alice");
    assert!(service.fails("--as alice snapshot ls", 16).contains("admin"));
    service.ok("snapshot drop before");
    assert_eq!(service.json("snapshot ls").len(), 1);
    service.fails("snapshot drop before after", 11);
    assert_eq!(service.json("snapshot ls").len(), 0, "the others are dropped all the same");
}

#[test]
fn a_snapshot_is_served_beside_the_catalogue() {
    let service = with_snapshot();
    let mut view = exacat();
    view.args(["--json", "serve", "--snapshot", "before", "--data"]).arg(service.data());
    let mut view = view.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(view.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let addresses: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(addresses["native"], json!(null));
    let socket = addresses["socket"].as_str().unwrap();
    assert!(socket.ends_with("/views/before/exacat.sock"), "{socket}");
    let asked = |words: &str| on(service.data(), &format!("--server {socket} {words}"));
    assert_eq!(asked("ls -R /demo").ok(), "/demo:\na\nb\n\n/demo/a:\none\ntwo\n\n/demo/b:\n");
    assert_eq!(service.ok("ls /demo/a"), "three\n");
    assert_eq!(asked("--json stat /demo/a/one").json()[0]["mode"], "644");
    assert!(asked("mkdir /demo/x").fails(16).contains("this is a snapshot, it cannot be changed"));
    assert!(asked("snapshot create again").fails(16).contains("cannot be changed"));
    assert!(asked("snapshot ls").fails(1).contains("snapshots"));
    assert!(asked("status").ok().contains("before, of revision"));
    asked("fsck").ok();
    service::signal(view.id(), "TERM");
    assert_eq!(view.wait().unwrap().code(), Some(0));
    let none = on(service.data(), "serve --snapshot none --listen none");
    assert!(none.fails(11).contains("there are before") || service.data().join("views/none").exists());
    assert!(!service.data().join("views/none").exists(), "nothing is made for what is not there");
}

#[test]
fn a_clone_is_a_catalogue_of_its_own() {
    let mut service = with_snapshot();
    let place = service.place().join("twin");
    let shown = place.to_str().unwrap();
    let cloned = on(service.data(), &format!("--json clone before {shown}")).json().remove(0);
    assert_eq!(cloned["entries"], 5);
    assert!(on(service.data(), &format!("clone before {shown}")).fails(12).contains("not empty"));
    assert!(on(service.data(), &format!("clone none {shown}2")).fails(11).contains("no snapshot"));
    assert!(!service.place().join("twin2").exists(), "what failed leaves nothing");
    // Services keep their data in `data` of their place.
    let twin_place = service.place().join("twins");
    std::fs::create_dir(&twin_place).unwrap();
    std::fs::rename(&place, twin_place.join("data")).unwrap();
    let mut twin = Service::start_in(&twin_place, &[]);
    assert_eq!(twin.ok("ls /demo/a"), "one\ntwo\n");
    twin.ok("rm /demo/a/one");
    twin.ok("snapshot create here");
    twin.ok("fsck");
    assert_eq!(service.ok("ls /demo/a"), "three\n");
    service.ok("fsck");
    assert_eq!(twin.stop(), Some(0));
    twin.restart();
    assert_eq!(twin.ok("ls /demo/a"), "two\n");
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn the_catalogue_is_restored_to_a_snapshot_and_to_points_after_it() {
    let mut service = with_snapshot();
    let last = service.json("changes").last().unwrap()["revision"].as_u64().unwrap();
    let in_use = on(service.data(), "restore before");
    assert!(in_use.fails(23).contains("in use by another process"));
    service.stop();
    let early = on(service.data(), "restore before --until 1").fails(1);
    assert!(early.contains("restore an earlier snapshot"), "{early}");
    let late = on(service.data(), &format!("restore before --until {}", last + 1)).fails(1);
    assert!(late.contains(&format!("to {last}")), "{late}");
    assert!(on(service.data(), "restore before --until tomorrow-ish").fails(1).contains("--until"));
    on(service.data(), "restore before --backup r1").fails(1);

    let restored =
        on(service.data(), &format!("--json restore before --until {}", last - 1)).json().remove(0);
    assert_eq!(restored["revision"], last - 1);
    let replaced = restored["replaced_copy"].as_str().unwrap().to_owned();
    assert!(replaced.ends_with("/store/replaced/1"), "{replaced}");
    service.restart();
    // The last change, which made the directory private, is gone.
    assert_eq!(service.json1("stat /demo/b")["mode"], "755");
    assert_eq!(service.ok("ls /demo/a"), "three\n");
    service.ok("mkdir /demo/another-line");
    service.ok("fsck");
    service.stop();

    let text = on(service.data(), "restore before").ok();
    assert!(text.starts_with("restored: revision ") && text.contains("replaced/2"), "{text}");
    service.restart();
    assert_eq!(service.ok("ls -R /demo"), "/demo:\na\nb\n\n/demo/a:\none\ntwo\n\n/demo/b:\n");
    service.ok("fsck");
    service.stop();
    // The first replaced copy still leads to its end.
    on(service.data(), &format!("restore before --until {last} --log {replaced}")).ok();
    service.restart();
    assert_eq!(service.json1("stat /demo/b")["mode"], "700");
    service.ok("fsck");
}

/// Goal: a consumer of changes learns of a restore, and ids that were given before it reach nothing
/// else. Method: as many changes after the restore as before it, so that each revision is there
/// again.
#[test]
fn revisions_and_ids_replaced_by_a_restore_are_conflicts() {
    let mut service = with_snapshot();
    let last = service.json("changes").pop().unwrap();
    let (revision, timeline) = (last["revision"].as_u64().unwrap(), last["timeline"].as_str().unwrap());
    let taken = service.json1("snapshot ls");
    assert_eq!(taken["timeline"], timeline);
    let parted = taken["revision"].as_u64().unwrap();
    let item = service.json1("trash ls")["id"].as_str().unwrap().to_owned();
    let after = format!("{revision}.{timeline}");
    service.stop();
    on(service.data(), "restore before").ok();
    service.restart();

    for name in ["/demo/x", "/demo/y", "/demo/z"] {
        service.ok(&format!("mkdir {name}"));
    }
    let removed = service.json1("rm -r /demo/a")["trash"].as_str().unwrap().to_owned();
    let number = |id: &str| id.split_once('.').unwrap().0.to_owned();
    assert_eq!(number(&removed), number(&item), "the same revision, on two timelines");
    service.ok("mkdir /demo/v");
    service.ok("mkdir /demo/w");

    let refused = service.fails(&format!("changes --after {after}"), 19);
    assert!(
        refused.contains(&format!("the timelines part after {parted}; start again from {parted}.")),
        "{refused}"
    );
    for command in ["trash restore", "trash purge"] {
        let refused = service.fails(&format!("{command} {item}"), 19);
        assert!(refused.contains("was replaced"), "{refused}");
    }
    // Without its timeline a revision may be of either.
    for command in ["changes --after", "changes --from"] {
        let refused = service.fails(&format!("{command} {revision}"), 19);
        assert!(refused.contains(&format!("part after revision {parted}; give {revision}.")), "{refused}");
    }
    service.ok(&format!("changes --after {parted}"));
    // A revision that both timelines have continues, with the changes of the new one.
    let since = service.json(&format!("changes --after {parted}.{timeline}"));
    assert_eq!(since.len() as u64, revision - parted);
    let current = since[0]["timeline"].as_str().unwrap();
    assert_ne!(current, timeline);
    // Long notes are folded.
    let status = service.ok("status").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(status.contains(&format!("timeline {current}, parted from {timeline}")), "{status}");
    service.ok(&format!("trash restore {removed}"));
    service.ok("fsck");
}

#[test]
fn backups_bring_a_catalogue_back_elsewhere() {
    let mut service = with_snapshot();
    let safe = service.place().join("safe");
    let safe = safe.to_str().unwrap();
    let first = service.json1(&format!("backup {safe}"));
    assert_eq!(first["copied"], first["bytes"]);
    let again = service.ok(&format!("backup {safe}"));
    assert!(again.contains("is there already"), "{again}");
    let at_first = service.json("changes").last().unwrap()["revision"].as_u64().unwrap();
    service.ok("mkdir /demo/later");
    service.ok("mkdir /demo/last");
    let second = service.ok(&format!("backup {safe}"));
    assert!(second.contains("all verified"), "{second}");
    let last = service.json("changes").last().unwrap()["revision"].as_u64().unwrap();
    let names: Vec<String> = on(service.data(), &format!("--json backup --ls {safe}"))
        .json()
        .iter()
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, [format!("r{at_first}"), format!("r{last}")]);
    assert!(on(service.data(), &format!("backup --ls {safe}")).ok().contains("REVISION"));
    assert!(on(service.data(), &format!("backup --verify {safe}")).ok().contains("as it was written"));
    service.ok("user add alice");
    assert!(service.fails(&format!("--as alice backup {safe}"), 16).contains("admin"));
    service.kill();

    let place = service.place().join("elsewhere");
    let data = place.join("data");
    let restored = on(&data, &format!("--json restore {safe} --until {}", last - 1)).json().remove(0);
    assert_eq!(restored["revision"], last - 1);
    assert!(on(&data, &format!("restore {safe}")).fails(12).contains("there is a catalogue"));
    let mut back = Service::start_in(&place, &[]);
    assert_eq!(back.ok("ls /demo"), "a\nb\nlater\nnew\n");
    assert_eq!(back.json("changes").iter().filter(|change| change["revision"] == 1).count(), 1);
    back.ok("fsck");
    back.stop();

    let older = service.place().join("older");
    on(&older.join("data"), &format!("restore {safe} --backup r{at_first}")).ok();
    let back = Service::start_in(&older, &[]);
    assert_eq!(back.ok("ls /demo"), "a\nb\nnew\n");
    drop(back);

    // The error names a damaged file, and nothing is restored.
    let log = std::fs::read_dir(Path::new(safe).join("log")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let wrong = on(service.data(), &format!("backup --verify {safe}"));
    assert!(wrong.out.contains(log.to_str().unwrap()), "{wrong:?}");
    wrong.fails(25);
    // The damage is in one of the backups, or in both.
    let tried = ["", &format!("--backup r{at_first}")].map(|which| {
        let spoiled = service.place().join(format!("spoiled{}", which.len()));
        on(&spoiled, &format!("restore {safe} {which}"))
    });
    assert!(
        tried.iter().any(|ran| ran.status == Some(25) && ran.err.contains(log.to_str().unwrap())),
        "{tried:?}"
    );
    on(service.data(), "restore ./none").fails(11);
}
