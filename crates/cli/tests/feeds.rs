//! Feeds of a real server: killed with SIGKILL in the middle, and mirrored by the example consumer, which
//! is killed as well. The mirror equals the catalogue's own listing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use service::{Ran, Service};

fn consumer(directory: &Path, database: &Path) -> Command {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/feed_mirror.py");
    let mut command = Command::new("python3");
    command.arg(example).arg(directory).arg(database);
    command
}

fn feed(service: &Service) -> Value {
    service.run(&["--json", "feed", "show", "mirror"]).json().remove(0)
}

/// Waits until the feed has delivered everything.
fn caught_up(service: &Service) {
    let began = Instant::now();
    loop {
        let shown = feed(service);
        assert_eq!(shown["state"], json!("running"), "{shown}");
        if shown["lag_changes"] == json!(0) && shown["copying"] == json!(false) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain: {shown}");
    }
}

/// Returns the lines of a subtree as the catalogue lists them, relative to its top.
fn listed(service: &Service, top: &str) -> BTreeSet<String> {
    let mut found = service.run(&["--json", "find", top]).json();
    found.extend(service.run(&["--json", "stat", top]).json());
    let line = |entry: &Value| {
        let lfn = entry["lfn"].as_str().unwrap().strip_prefix(top).unwrap();
        let lfn = if lfn.is_empty() { "/" } else { lfn };
        let size = entry["size"].as_u64().map_or_else(String::new, |size| size.to_string());
        format!("{lfn}\t{}\t{size}\t{}", entry["kind"].as_str().unwrap(), entry["owner"].as_str().unwrap())
    };
    found.iter().map(line).collect()
}

/// Property: after kills of the server and of the consumer, moves of directories into and out of the
/// subtree, removals and undos, the mirror equals the listing.
#[test]
fn mirror_of_a_killed_server_equals_the_listing() {
    let mut service = Service::start();
    let place = service.place().to_owned();
    let (segments, database): (PathBuf, PathBuf) = (place.join("segments"), place.join("mirror.db"));
    for directory in ["/top/a", "/top/b", "/other/x/y"] {
        service.run(&["mkdir", "-p", directory]).ok();
    }
    service.run(&["touch", "/top/a/f1", "/top/a/f2", "/other/x/y/f3"]).ok();
    let sink = format!("dir:{}", segments.display());
    let create = [
        "feed",
        "create",
        "mirror",
        "--sink",
        &sink,
        "--under",
        "/top",
        "--from",
        "copy",
        "--when-lost",
        "copy",
    ];
    service.run(&create).ok();
    for round in 0..4 {
        let name = format!("/top/a/new{round}");
        service.run(&["touch", &name, &format!("/top/b/n{round}")]).ok();
        service.run(&["mv", "/top/b", &format!("/top/b{round}")]).ok();
        service.run(&["mkdir", "/top/b"]).ok();
        // Into the subtree, with all that is below, and out of it.
        service.run(&["mv", "/other/x", "/top/x"]).ok();
        service.run(&["touch", &format!("/top/x/y/inside{round}")]).ok();
        if round % 2 == 0 {
            // The end of the process falls anywhere: before or after a segment got its name.
            service.kill();
            service.restart();
        }
        service.run(&["mv", "/top/x", "/other/x"]).ok();
        service.run(&["touch", &format!("/other/x/y/outside{round}")]).ok();
        let removed: Value = service.run(&["--json", "rm", "-r", "/top/a"]).json().remove(0);
        if round < 3 {
            let item = removed["trash"].as_str().unwrap();
            service.run(&["trash", "restore", item]).ok();
        }
        let mut killed = consumer(&segments, &database);
        let mut killed = killed.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        if round == 1 {
            caught_up(&service);
        }
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    service.run(&["mv", "/other/x", "/top/x"]).ok();
    service.run(&["chmod", "600", "/top/x/y/f3"]).ok();
    service.kill();
    service.restart();
    caught_up(&service);
    let mut command = consumer(&segments, &database);
    command.arg("--list");
    let ran = Ran::of(command, b"");
    assert!(ran.err.trim_end().ends_with("exact=True"), "{}", ran.err);
    let mirrored: BTreeSet<String> = ran.ok().lines().map(str::to_owned).collect();
    assert_eq!(mirrored, listed(&service, "/top"));
    // A server that stops does so at once, and keeps the position.
    let began = Instant::now();
    service.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Property: commands show, pause, resume, rewind and drop a feed, and wrong ones name the remedy.
#[test]
fn commands_of_feeds_work_and_name_the_remedy() {
    let service = Service::start();
    let sink = format!("dir:{}", service.place().join("s").display());
    service.run(&["feed", "create", "mirror", "--sink", &sink]).ok();
    assert!(service.run(&["feed", "ls"]).ok().contains("running"));
    assert!(service.run(&["feed", "show", "mirror"]).ok().contains("lost after"));
    service.run(&["feed", "pause", "mirror"]).ok();
    assert_eq!(feed(&service)["state"], json!("paused"));
    let status = service.run(&["status"]).ok();
    assert!(status.contains("feed mirror is paused"), "{status}");
    service.run(&["feed", "resume", "mirror"]).ok();
    service.run(&["feed", "rewind", "mirror", "--to", "copy"]).ok();
    caught_up(&service);
    let taken = service.run(&["feed", "create", "mirror", "--sink", &sink]).fails(12);
    assert!(taken.contains("drop it first"), "{taken}");
    let unknown = service.run(&["feed", "pause", "mirrow"]).fails(11);
    assert!(unknown.contains("exacat feed ls"), "{unknown}");
    let start = service.run(&["feed", "rewind", "mirror", "--to", "yesterday"]).fails(1);
    assert!(start.contains("give now, copy, start"), "{start}");
    service.run(&["feed", "drop", "mirror"]).ok();
    assert_eq!(service.run(&["--json", "feed", "ls"]).json(), Vec::<Value>::new());
}
