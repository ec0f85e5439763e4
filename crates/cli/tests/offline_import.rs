//! `exacat import --offline` as an operator types it, and all reads of its result: look-ups,
//! history, changes, snapshots, restores to the middle of it, checks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use serde_json::json;
use service::Service;

/// Makes a listing of files in a few directories, in no order, with two bad rows.
fn listing() -> String {
    let rows = (0..3000u64).map(|row| row * 7919 % 3000);
    let rows: String = rows
        .map(|row| format!("/load/{}/file-{row:04}\t{row}\tmd5:{row:032x}\tVO::NEAR::DISK\n", row % 9))
        .collect();
    format!("lfn\tsize\tchecksum\tse\n{rows}/load/1/file-0001\t5\t\t\nrelative\t1\t\t\n")
}

#[test]
fn a_listing_is_loaded_and_everything_reads_it() {
    let mut service = Service::start();
    service.ok("se add VO::NEAR::DISK --prefix root://near//data --number 7");
    service.ok("mkdir -p /load/3");
    service.ok("register /load/3/file-0003 --size 77");
    service.ok("snapshot create before");
    let first = service.json("changes").last().unwrap()["revision"].as_u64().unwrap();
    let path = service.file("listing.tsv", listing());
    let rejects = service.place().join("rejects.tsv");
    let import = format!("import --offline {path} --rejects {}", rejects.display());
    let in_use = service.fails(&import, 23);
    assert!(
        in_use.contains("a server uses this data directory") && in_use.contains("without --offline"),
        "{in_use}"
    );
    assert_eq!(service.stop(), Some(0));

    let mut args = vec!["--json"];
    args.extend(import.split_whitespace());
    let ran = service.run(&args);
    assert_eq!(ran.status, Some(18), "{}", ran.err);
    let report: serde_json::Value = serde_json::from_str(ran.out.trim()).unwrap();
    // The existing file has another size.
    assert_eq!((&report["created"], &report["rejected"]), (&json!(2999), &json!(3)), "{report}");
    assert_eq!(report["reasons"], json!({"bad-lfn": 1, "duplicate": 1, "exists": 1}));
    assert_eq!(std::fs::read_to_string(&rejects).unwrap().lines().count(), 4);
    assert!(service.ok("fsck --offline").contains("everything agrees"));

    service.restart();
    assert_eq!(service.json1("stat /load/4/file-0004")["size"], 4);
    assert!(service.ok("whereis /load/5/file-0005").contains("root://near//data/"));
    assert_eq!(service.json1("du /load")["usage"]["files"], 3000);
    assert_eq!(service.json("log /load/4/file-0004").len(), 1);
    let changes = service.json(&format!("changes --after {first}"));
    let created = changes.iter().filter(|change| change["effect"] == "created").count();
    assert!(created >= 2999, "{created} of {}", changes.len());
    service.ok("snapshot create after");
    assert!(service.ok("snapshot verify after").contains("all good"));
    service.ok("rm /load/4/file-0004");
    service.ok("fsck");
    // Again, through the server: all entries exist.
    let again = service.run(&["--json", "import", &path, "--state", "none"]);
    assert_eq!(again.status, Some(18), "{}", again.err);
    let again: serde_json::Value = serde_json::from_str(again.out.trim()).unwrap();
    assert_eq!((&again["created"], &again["unchanged"]), (&json!(1), &json!(2998)), "{again}");
    assert_eq!(service.stop(), Some(0));

    // To the middle of the load: after its directories, and so many files.
    let middle = changes[created / 2]["revision"].as_u64().unwrap();
    service.ok(&format!("restore before --until {middle}"));
    service.restart();
    assert_eq!(service.json("changes").last().unwrap()["revision"], middle);
    let files = service.json1("du /load")["usage"]["files"].as_u64().unwrap();
    assert!(files > 1000 && files < 2000, "{files} files");
    service.ok("fsck");
    assert_eq!(service.stop(), Some(0));
    // The rows after that are loaded again.
    let ran = service.run(&["--json", "import", "--offline", &path, "--state", "none"]);
    let report: serde_json::Value = serde_json::from_str(ran.out.trim()).unwrap();
    assert_eq!(report["created"], 3000 - files, "{report}");
    assert!(service.ok("fsck --offline").contains("everything agrees"));
}

#[test]
fn without_a_catalogue_nothing_is_made() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("nothing");
    let mut command = service::exacat();
    command.args(["import", "--offline", "/dev/null", "--data"]).arg(&data);
    assert!(service::Ran::of(command, b"").fails(11).contains("no catalogue is here"));
    assert!(!data.exists());
}
