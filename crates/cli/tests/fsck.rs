//! Checks and repairs of a damaged data directory as an operator types them, at real server
//! processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use std::path::{Path, PathBuf};

use serde_json::json;
use service::{Ran, Service, exacat};

/// Runs a command on a data directory without a server.
fn on(data: &Path, line: &str) -> Ran {
    let mut command = exacat();
    command.env("EXACAT_DATA", data).args(line.split_whitespace());
    Ran::of(command, b"")
}

/// Makes a stopped service with some files; returns all its entries too.
fn stopped() -> (Service, Vec<serde_json::Value>) {
    let mut service = Service::start();
    service.ok("se add VO::NEAR::DISK --prefix root://near//data --number 7");
    for directory in 0..4 {
        service.ok(&format!("mkdir -p /demo/{directory}"));
        for number in 0..12 {
            service.ok(&format!(
                "register /demo/{directory}/file-{number} --size {number}k --se VO::NEAR::DISK"
            ));
        }
    }
    service.ok("rm /demo/0/file-3");
    let before = service.json("find /demo");
    assert!(before.len() > 40, "{}", before.len());
    assert_eq!(service.stop(), Some(0));
    (service, before)
}

fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let names = std::fs::read_dir(directory).unwrap().map(|item| item.unwrap().path());
    let mut files: Vec<PathBuf> = names.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    files.sort();
    files
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_in_a_run_is_named_and_mended() {
    let (mut service, before) = stopped();
    let data = service.data().to_owned();
    assert!(on(&data, "fsck --offline --repair").ok().contains("nothing is wrong: "));
    let run = files(&data.join("store/runs"), ".run").pop().expect("closing wrote a run");
    flip(&run, 300);
    let named = run.file_name().unwrap().to_str().unwrap();
    let checked = on(&data, "fsck --offline");
    assert!(checked.out.contains("WRONG") && checked.out.contains(named), "{checked:?}");
    assert!(checked.fails(25).contains("repair it with --repair"));
    let told = on(&data, "--json fsck --offline");
    assert_eq!(told.status, Some(25));
    assert!(told.out.contains(named), "{told:?}");
    let repaired = on(&data, "fsck --offline --repair").ok();
    assert!(repaired.contains("REPAIRED") && repaired.contains("repaired: "), "{repaired}");
    assert!(data.join("store/replaced/1/runs").is_dir());
    assert!(on(&data, "fsck --offline").ok().contains("everything agrees"));
    service.restart();
    assert_eq!(service.json("find /demo"), before);
    assert!(service.ok("fsck").contains("everything agrees"));
    service.fails("fsck --offline --repair", 23);
    service.ok("register /demo/1/more --size 1k");
}

#[test]
fn what_would_be_lost_is_asked_for_and_a_backup_has_it() {
    let (mut service, before) = stopped();
    let data = service.data().to_owned();
    let safe = tempfile::tempdir().unwrap();
    let backups = safe.path().join("backups");
    service.restart();
    service.ok(&format!("backup {}", backups.display()));
    assert_eq!(service.stop(), Some(0));
    let run = files(&data.join("store/runs"), ".run").pop().unwrap();
    let log = files(&data.join("store/log"), ".log").remove(0);
    flip(&run, 300);
    flip(&log, 400);
    let copy = safe.path().join("copy");
    std::fs::create_dir_all(copy.join("store")).unwrap();
    for part in ["runs", "log"] {
        std::fs::create_dir(copy.join("store").join(part)).unwrap();
        for path in files(&data.join("store").join(part), "") {
            std::fs::copy(&path, copy.join("store").join(part).join(path.file_name().unwrap())).unwrap();
        }
    }
    std::fs::copy(data.join("store/CATALOGUE"), copy.join("store/CATALOGUE")).unwrap();

    let asked = on(&data, "fsck --offline --repair");
    assert!(asked.out.contains("WOULD LOSE"), "{asked:?}");
    assert!(asked.fails(25).contains("--accept-loss"));
    assert!(!data.join("store/replaced").exists(), "nothing was changed");
    assert_eq!(on(&data, "fsck --repair").status, Some(1), "only offline");
    let repaired = on(&data, &format!("fsck --offline --repair --from {}", backups.display())).ok();
    assert!(repaired.contains("repaired: "), "{repaired}");
    service.restart();
    assert_eq!(service.json("find /demo"), before);
    service.ok("fsck");

    // Without the backup, everything readable is kept.
    let lost = on(&copy, "--json fsck --offline --repair --accept-loss").json();
    assert_eq!(lost[0]["done"], json!(true));
    assert!(lost[0]["losses_total"].as_u64().unwrap() > 0, "{lost:?}");
    assert!(on(&copy, "fsck --offline").ok().contains("everything agrees"));
}
