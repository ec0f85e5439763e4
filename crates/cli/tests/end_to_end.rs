//! Commands that a new user types, at a real server process: their output and exit status.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use std::process::Stdio;

use serde_json::{Value, json};
use service::{Ran, Service, exacat, signal};

/// Makes a small tree for the tests below.
fn small_tree(service: &Service) {
    service.ok("se add VO::NEAR::DISK --prefix root://near//data --qos disk --distance CERN=1 --number 7");
    service.ok("se add VO::FAR::TAPE --prefix root://far//data --qos tape --distance CERN=9");
    service.ok("mkdir -p /demo/data/2026 /demo/sim /demo/empty");
    for (name, size) in [("AOD1.root", "3G"), ("AOD2.root", "500M"), ("ESD1.root", "1Gi")] {
        service.ok(&format!(
            "register /demo/data/2026/{name} --size {size} --checksum adler32:{:08x} --se VO::FAR::TAPE --se \
             VO::NEAR::DISK --modified 2026-03-01T10:00:00Z",
            size.len()
        ));
    }
    service.ok("register /demo/sim/log.txt --size 10 --se VO::NEAR::DISK=root://near//odd%20place?x=1&y=2");
}

fn texts<'a>(values: &'a [Value], field: &str) -> Vec<&'a str> {
    values.iter().map(|value| value[field].as_str().unwrap()).collect()
}

#[test]
fn looking_around() {
    let service = Service::start();
    assert_eq!(service.ok("ls"), "");
    small_tree(&service);
    assert_eq!(service.ok("ls"), "demo\n");
    assert_eq!(service.ok("ls /demo"), "data\nempty\nsim\n");
    assert_eq!(service.ok("ls -d /demo"), "/demo\n");
    assert_eq!(service.ok("ls /demo/sim/log.txt /demo/empty"), "/demo/sim/log.txt\n\n/demo/empty:\n");
    assert_eq!(
        service.ok("ls -lh /demo/data/2026"),
        "-rw-r--r--  2  admin  admin  3.0G  2026-03-01 10:00  AOD1.root\n\
         -rw-r--r--  2  admin  admin  500M  2026-03-01 10:00  AOD2.root\n\
         -rw-r--r--  2  admin  admin  1.1G  2026-03-01 10:00  ESD1.root\n"
    );
    assert!(service.ok("ls -l /demo/data/2026").contains("  1073741824  "));
    assert_eq!(
        service.ok("ls -R /demo"),
        "/demo:\ndata\nempty\nsim\n\n/demo/data:\n2026\n\n/demo/data/2026:\nAOD1.root\nAOD2.root\nESD1.root\n\n\
         /demo/empty:\n\n/demo/sim:\nlog.txt\n"
    );
    let listed = service.json("ls /demo/data/2026");
    assert_eq!(texts(&listed, "lfn")[0], "/demo/data/2026/AOD1.root");
    assert_eq!(listed[0]["size"], json!(3_000_000_000u64));

    let stat = service.json1("stat /demo/data/2026/AOD2.root");
    assert_eq!(stat["kind"], "file");
    assert_eq!(stat["modified"], "2026-03-01T10:00:00Z");
    assert_eq!(stat["checksums"], json!(["adler32:00000004"]));
    assert_eq!(stat["mode"], "644");
    let guid = stat["guid"].as_str().unwrap();
    let ses: Vec<&str> =
        stat["replicas"].as_array().unwrap().iter().map(|r| r["se"].as_str().unwrap()).collect();
    assert!(ses.contains(&"VO::NEAR::DISK") && ses.contains(&"VO::FAR::TAPE"), "{ses:?}");
    let text = service.ok("stat /demo/data/2026/AOD2.root");
    for part in ["kind      file", "size      500000000", "mode      644 rw-r--r--", guid] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(service.json1("stat /")["directory"], 1);

    // Near before far, and a derived PFN ends with the GUID.
    let places = service.ok("whereis /demo/data/2026/AOD2.root --site CERN");
    let lines: Vec<&str> = places.lines().collect();
    assert!(lines[0].starts_with("VO::NEAR::DISK  available  root://near//data/"), "{places}");
    assert!(lines[0].ends_with(guid) && lines[1].starts_with("VO::FAR::TAPE"), "{places}");
    assert_eq!(service.ok(&format!("whereis -1 --site CERN {guid}")).lines().count(), 1);
    assert_eq!(
        service.json1("whereis /demo/sim/log.txt")["replicas"][0]["pfn"],
        "root://near//odd%20place?x=1&y=2"
    );
    assert_eq!(service.ok(&format!("lfn {guid}")), "/demo/data/2026/AOD2.root\n");
    assert_eq!(service.ok("-q du /demo"), "4573741834  4  /demo\n");
    assert_eq!(service.ok("du -h /demo/sim"), "BYTES  FILES  LFN\n   10      1  /demo/sim\n");
    let usage = &service.json1("du /demo")["usage"];
    assert_eq!(
        (&usage["files"], &usage["directories"], &usage["replicas"]),
        (&json!(4), &json!(4), &json!(7))
    );
    assert!(service.ok("du -l / /demo").starts_with("/:\n  bytes               4573741834\n"));
}

#[test]
fn finding() {
    let service = Service::start();
    small_tree(&service);
    service.ok("user add alice");
    service.ok("chown alice:alice /demo/sim/log.txt");
    service.ok("tag set /demo/data/2026 run=246087 beam=Pb-Pb");
    service.ok("tag set /demo/data/2026/AOD2.root run=5");
    let (a1, a2, e1) =
        ("/demo/data/2026/AOD1.root\n", "/demo/data/2026/AOD2.root\n", "/demo/data/2026/ESD1.root\n");
    let log = "/demo/sim/log.txt\n";
    for (line, found) in [
        ("find /demo AOD*.root --size +1G", a1.to_owned()),
        ("find /demo AOD*.root", [a1, a2].concat()),
        ("find /demo {AOD1,ESD1}.root", [a1, e1].concat()),
        ("find /demo /2026/A.*2 --regex", a2.to_owned()),
        ("find /demo --size -1k", log.to_owned()),
        ("find /demo --size 1G..2G --size +1", e1.to_owned()),
        ("find /demo --tag run>=246000", ["/demo/data/2026\n", a1, e1].concat()),
        ("find /demo --type f --tag run=5 --tag beam=Pb-Pb", a2.to_owned()),
        ("find /demo --type f --owner alice", log.to_owned()),
        ("find /demo --group alice", log.to_owned()),
        ("find /demo --se VO::FAR::TAPE --limit 1", a1.to_owned()),
        ("find /demo --newer 1d", "/demo/data\n/demo/data/2026\n/demo/empty\n/demo/sim\n".to_owned() + log),
        ("find /demo --older 2026-03-01T10:00:00Z", String::new()),
        ("find /demo --created-after now", String::new()),
        ("find /demo --depth 1", "/demo/data\n/demo/empty\n/demo/sim\n".to_owned()),
        (
            "find /demo --type directory --depth 2",
            "/demo/data\n/demo/data/2026\n/demo/empty\n/demo/sim\n".to_owned(),
        ),
        ("tag find /demo run=5", a2.to_owned()),
        ("find /demo --type f --count", "4 4573741834\n".to_owned()),
        ("find /demo -0 AOD*", [a1, a2].concat().replace('\n', "\0")),
    ] {
        assert_eq!(service.ok(line), found, "{line}");
    }
    assert_eq!(texts(&service.json("find /demo log*"), "owner"), ["alice"]);
    assert!(service.ok("find /demo log* -l").ends_with("  /demo/sim/log.txt\n"));
    // A find feeds other commands.
    let found = service.ok("find /demo AOD* -0");
    let places = service.run_with(&["--json", "-0", "whereis", "-"], found).json();
    assert_eq!(texts(&places, "lfn").len(), 2);
    for (line, status) in [
        ("find /demo [", 1),
        ("find /demo ( --regex", 1),
        ("find /demo --tag run=", 1),
        ("find /demo --size x", 1),
        ("find /demo --newer yesterday", 1),
        ("find /demo --se VO::NO::WHERE", 11),
        ("find /demo --owner nobody", 11),
        ("find /nope", 11),
        ("find demo", 1),
    ] {
        service.fails(line, status);
    }
}

#[test]
fn moving_removing_restoring() {
    let service = Service::start();
    small_tree(&service);
    assert_eq!(service.ok("mv /demo/sim /demo/mc"), "");
    assert_eq!(service.ok("mv -v /demo/mc/log.txt /demo/empty"), "/demo/mc/log.txt -> /demo/empty/log.txt\n");
    // A taken name is never replaced: not by a file, not inside of a directory.
    service.fails("mv /demo/mc /demo/data/2026/AOD1.root", 12);
    service.fails("mv /demo/data/2026/AOD1.root /demo/data/2026/AOD2.root", 12);
    service.ok("mkdir /demo/empty/mc");
    service.fails("mv /demo/mc /demo/empty", 12);
    service.ok("rmdir /demo/empty/mc");
    service.fails("mv /demo/mc /demo/mc/below", 1);
    service.fails("mv /demo/mc /demo/empty /demo/data/2026/AOD1.root", 13);
    service.ok("mv /demo/mc /demo/empty /demo/data");
    assert_eq!(service.ok("ls /demo/data"), "2026\nempty\nmc\n");

    service.fails("rm /demo/data", 15);
    service.fails("rmdir /demo/data", 15);
    service.fails("rmdir /demo/data/2026/AOD1.root", 13);
    service.ok("rmdir /demo/data/mc");
    service.ok("rm -f /demo/data/nothing");
    assert!(service.ok("rm -r /demo/data").starts_with("/demo/data is in the trash;"));
    service.fails("ls /demo/data", 11);
    let removed = service.json1("rm -r /demo");
    assert_eq!(removed["lfn"], "/demo");
    // An entry removed inside of another one is found under its former name.
    let trash = service.json("trash ls");
    assert_eq!(texts(&trash, "lfn"), ["/demo/empty/mc", "/demo/data/mc", "/demo/data", "/demo"]);
    assert_eq!(trash[2]["usage"]["files"], 4);
    assert!(service.ok("trash ls").lines().nth(3).unwrap().ends_with("  4  4573741834  /demo/data"));
    service.fails("trash restore /demo/data", 11);
    service.ok("trash restore /demo");
    let id = trash[2]["id"].as_str().unwrap();
    service.ok(&format!("trash restore {id}"));
    let timeline = id.split_once('.').unwrap().1;
    assert_eq!(service.ok("ls /demo"), "data\n");
    assert_eq!(service.ok("-q du /demo"), "4573741834  4  /demo\n");
    service.fails(&format!("trash restore 999999.{timeline}"), 11);
    service.fails("trash restore 999999", 1);

    // Purging queues the physical copies for deletion; nothing is deleted by the catalogue.
    service.ok("rm /demo/data/2026/AOD1.root");
    service.ok("trash restore /demo/data/2026/AOD1.root --to /demo/back.root");
    service.ok("rm -r /demo/data");
    let id = service.json("trash ls").last().unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(service.json1(&format!("trash purge {id}"))["entries"], 6);
    let queue = service.ok("-q se deletions VO::NEAR::DISK");
    assert_eq!(queue.lines().count(), 3, "{queue}");
    assert!(queue.contains("  10  root://near//odd%20place?x=1&y=2\n"), "{queue}");
    let ids: Vec<&str> = queue.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    // An interrupted run is repeated: its acknowledged ids come first, in batches with nothing
    // left.
    let acknowledged = (0..2500).map(|number| format!("999999.{number}.{timeline}"));
    let again: Vec<String> = acknowledged.chain(ids.iter().map(|id| (*id).to_owned())).collect();
    service.run_with(&["se", "deleted", "VO::NEAR::DISK", "-"], again.join("\n")).ok();
    service.fails(&format!("se deleted VO::NEAR::DISK 999999.0.{timeline}"), 11);
    service.fails(&format!("se deleted VO::NO::SE 999999.0.{timeline}"), 11);
    assert_eq!(service.ok("se deletions VO::NEAR::DISK"), "");
    let unsure = service.command(&["trash", "purge", "--all"]).output().unwrap();
    assert_eq!(unsure.status.code(), Some(1), "ending everything takes --yes");
    service.ok("trash purge --all --yes");
    assert_eq!(service.ok("trash ls"), "");
    assert_eq!(service.ok("find /"), "/demo\n/demo/back.root\n");
    assert!(service.ok("fsck").contains("everything agrees at revision"));

    // Many names at once, some below others: their order counts.
    service.ok("mkdir -p /x/y/z");
    service.ok("rmdir /x/y/z /x/y /x");
    service.fails("ls /x", 11);
}

#[test]
fn attributes() {
    let service = Service::start();
    small_tree(&service);
    service.ok("group add physics");
    service.ok("user add alice --groups physics --home /home/alice");
    assert_eq!(service.ok("chmod 600 /demo/sim/log.txt"), "");
    assert_eq!(service.json1("stat /demo/sim/log.txt")["mode"], "600");
    assert_eq!(service.ok("chmod -R go-rwx,u+X /demo"), "9 entries set\n");
    assert_eq!(service.json1("stat /demo/data")["mode"], "700");
    assert_eq!(service.json1("chmod -R a=rX /demo"), json!({"set": 9}));
    assert_eq!(service.json1("stat /demo/data")["mode"], "555");
    assert_eq!(service.json1("stat /demo/sim/log.txt")["mode"], "444");
    assert_eq!(service.ok("chown -R alice:physics /demo/data"), "5 entries set\n");
    let owners = service.json("find /demo --owner alice");
    assert_eq!(texts(&owners, "group"), ["physics"; 5]);
    service.ok("chgrp admin /demo/data");
    service.fails("chown nobody /demo/data", 11);
    service.fails("chmod 999 /demo", 1);
    // Failures are reported, the rest is done, and the status is that of a failure.
    let error = service.fails("chmod 640 rel /demo/nope /demo/sim/log.txt", 11);
    assert!(error.contains("exacat: /demo/nope: ") && error.contains("exacat: rel: an LFN begins with '/'"));
    assert_eq!(service.json1("stat /demo/sim/log.txt")["mode"], "640");

    service.ok("touch /demo/sim/done /demo/sim/log.txt --time 2020-01-01");
    let touched = service.json("stat /demo/sim/done /demo/sim/log.txt");
    assert_eq!(texts(&touched, "modified"), ["2020-01-01T00:00:00Z"; 2]);
    assert_eq!(touched[0]["size"], 0);
    service.ok("touch -c /demo/sim/never");
    service.fails("stat /demo/sim/never", 11);
    service.ok("expire /demo/sim/done /demo/empty 2100-01-01");
    assert_eq!(service.json1("stat /demo/empty")["expires"], "2100-01-01T00:00:00Z");
    service.ok("expire /demo/empty never");
    assert_eq!(service.json1("stat /demo/empty").get("expires"), None);
    service.fails("expire /demo/empty soon", 1);

    service.ok("ln /demo/data/2026 /demo/latest");
    assert_eq!(service.ok("ls /demo/latest"), "AOD1.root\nAOD2.root\nESD1.root\n");
    assert_eq!(service.json1("stat /demo/latest")["target"], "/demo/data/2026");
    assert_eq!(service.json1("stat -L /demo/latest")["kind"], "directory");
    assert!(service.ok("ls -ld /demo/latest").ends_with("  /demo/latest -> /demo/data/2026\n"));
}

#[test]
fn registering_and_replicas() {
    let service = Service::start();
    small_tree(&service);
    let guid = service
        .ok("register -p /demo/new/a.root --size 1k --se VO::NEAR::DISK --tag run=7 --mode 640 --job 9");
    let guid = guid.split_whitespace().next().unwrap();
    assert_eq!(service.json1("stat /demo/new/a.root")["guid"], guid);
    service.fails("register /demo/new/a.root --size 1k", 12);
    assert_eq!(service.json1("register /demo/new/a.root --size 1k --existing same")["result"], "unchanged");
    service.fails("register /demo/new/a.root --size 2k --existing same", 12);
    let merge = "register /demo/new/a.root --se VO::FAR::TAPE --checksum md5:d41d8cd98f00b204e9800998ecf8427e \
                 --existing merge";
    assert_eq!(service.json1(merge)["result"], "merged");
    service.fails("register /demo/new/b.root --se VO::NO::WHERE", 11);
    service.fails("register /demo/none/b.root", 11);
    service.fails("register /demo/new/b.root --checksum crc:1", 1);
    service
        .fails("register /demo/new/b.root /demo/new/c.root --guid 5d9a8f1e-5607-11ee-90f9-6c02e09897e9", 1);

    // Many, as JSON; a bad one does not stop the others.
    let lines = concat!(
        "{\"lfn\":\"/demo/new/ä b?x=1;y%20.root\",\"size\":5,\"checksum\":\"adler32: 1\",\"tags\":{\"run\":8}}\n",
        "{\"lfn\":\"relative\"}\n",
        "{\"lfn\":\"/demo/new/c.root\",\"replicas\":[\"VO::NEAR::DISK=root://x//c\",{\"se\":\"VO::FAR::TAPE\",\
         \"state\":\"lost\"}]}\n",
        "{\"lfn\":\"/demo/new/d.root\",\"sise\":5}\n",
    );
    let ran = service.run_with(&["register", "-"], lines);
    assert!(ran.err.contains("exacat: relative: ") && ran.err.contains("sise"), "{}", ran.err);
    assert_eq!(ran.status, Some(1));
    assert_eq!(ran.out.lines().count(), 2);
    let odd = service.run(&["--json", "stat", "/demo/new/ä b?x=1;y%20.root"]).json();
    assert_eq!(odd[0]["checksums"], json!(["adler32:00000001"]));
    assert_eq!(odd[0]["tags"], json!({"run": 8}));

    service.ok("replica add /demo/new/c.root VO::FAR::TAPE");
    assert_eq!(service.ok("whereis /demo/new/c.root").lines().count(), 2);
    service.ok("replica state /demo/new/c.root VO::FAR::TAPE suspect");
    assert!(service.ok("whereis /demo/new/c.root").ends_with('\n'));
    assert!(service.ok("whereis /demo/new/c.root").lines().nth(1).unwrap().contains("  suspect    "));
    service.fails("replica add /demo/new/c.root VO::NEAR::DISK=root://y//c", 12);
    service.ok("replica rm --delete /demo/new/c.root VO::NEAR::DISK");
    service.ok(&format!("replica rm {guid} VO::NEAR::DISK"));
    service.fails("replica rm /demo/new/c.root VO::NEAR::DISK", 11);
    assert_eq!(service.json("se deletions VO::NEAR::DISK")[0]["pfn"], "root://x//c");

    service.ok("se set VO::NEAR::DISK --status read-only");
    let ses = service.json("se ls");
    assert_eq!(texts(&ses, "name"), ["VO::FAR::TAPE", "VO::NEAR::DISK"]);
    assert_eq!((&ses[1]["status"], &ses[1]["number"]), (&json!("read-only"), &json!(7)));
    assert_eq!(ses[1]["distances"], json!({"CERN": 1}));
    assert!(service.ok("se ls").starts_with("NAME            NO  STATUS"));
    assert!(service.ok("se usage VO::FAR::TAPE -H").contains("VO::FAR::TAPE         5"));
    let files = service.ok("se files VO::NEAR::DISK");
    assert_eq!(files.lines().count(), 4, "{files}");
    service.fails("se rm VO::NEAR::DISK", 12);
    service.fails("se set VO::NO::WHERE --status offline", 11);
    service.fails("se add VO::NEAR::DISK", 12);
    service.ok("se add VO::SPARE::DISK");
    service.ok("se rm VO::SPARE::DISK");
}

#[test]
fn uploads_and_quotas() {
    let service = Service::start();
    small_tree(&service);
    service.ok("user add alice --home /home/alice");
    service.ok("mkdir -p /home/alice");
    service.ok("chown alice:alice /home/alice");
    let token = service.ok("token issue --user alice --write --lifetime 1h");
    let token = token.trim();
    let alice = |line: &str| service.over_tls(Some(token), line);

    let reserved =
        alice("--json upload reserve /home/alice/x/up.root --size 1k --qos disk=1 --site CERN").json();
    let guid = reserved[0]["guid"].as_str().unwrap().to_owned();
    assert_eq!(reserved[0]["targets"][0]["se"], "VO::NEAR::DISK");
    assert!(reserved[0]["targets"][0]["pfn"].as_str().unwrap().starts_with("root://near//data/"));
    service.fails("stat /home/alice/x/up.root", 11);
    assert_eq!(service.json("upload ls").len(), 1);
    assert!(alice("upload ls").ok().contains("VO::NEAR::DISK"));
    alice(&format!("upload commit {guid} VO::NEAR::DISK --size 2k")).fails(19);
    alice(&format!("upload commit {guid} VO::NEAR::DISK --size 1k --checksum adler32:1")).ok();
    assert_eq!(alice("--json stat /home/alice/x/up.root").json()[0]["owner"], "alice");
    alice(&format!("upload commit {guid} VO::NEAR::DISK --size 1k")).fails(11);

    // Upload reservations count against the quota until they are given up.
    service.ok("quota set alice --files 3 --bytes 10k");
    service.ok("quota set alice --replica-bytes 1T");
    let quota = service.json1("quota get alice");
    assert_eq!(quota["limits"], json!({"files": 3, "bytes": 10_000, "replica_bytes": 1_000_000_000_000u64}));
    assert_eq!(quota["used"]["files"], 1);
    let error = alice("upload reserve /home/alice/big --size 10k --se VO::NEAR::DISK").fails(20);
    assert!(error.contains("/home/alice/big"), "{error}");
    let reserved = alice("--json upload reserve /home/alice/fits --size 9k --se VO::NEAR::DISK").json();
    let guid = reserved[0]["guid"].as_str().unwrap();
    alice("register /home/alice/too-much --size 1").fails(20);
    assert_eq!(alice("--json quota get").json()[0]["reserved"]["bytes"], 9000);
    assert!(alice("quota get -H alice").ok().contains("user:alice  bytes"));
    alice(&format!("upload abort {guid}")).ok();
    alice("register /home/alice/room --size 1").ok();
    service.ok("quota set alice --files none --bytes none --replica-bytes none");
    assert_eq!(service.json1("quota get alice")["limits"], json!({}));
    service.fails("quota set nobody --files 1", 11);
    service.fails("quota set alice", 1);
    alice("quota set alice --files none").fails(16);
    service.fails("upload reserve /home/alice/y --size 1 --se VO::NO::WHERE", 11);
}

#[test]
fn tags_collections_archives() {
    let service = Service::start();
    small_tree(&service);
    service.ok("tag set /demo/data run=246087 good=true energy=6.5 since=2026-01-01T00:00:00Z name=text:007");
    service.ok("tag set /demo/data/2026/AOD1.root good=false");
    let tags = service.json("tag get /demo/data/2026/AOD1.root");
    let of = |key: &str| tags.iter().find(|tag| tag["key"] == key).unwrap();
    assert_eq!(
        (&of("good")["value"], &of("good")["from"]),
        (&json!(false), &json!("/demo/data/2026/AOD1.root"))
    );
    assert_eq!((&of("run")["value"], &of("run")["from"]), (&json!(246_087), &json!("/demo/data")));
    assert_eq!((&of("name")["type"], &of("since")["type"]), (&json!("text"), &json!("time")));
    assert_eq!(service.ok("tag get --own /demo/data/2026/AOD1.root"), "good=false\n");
    assert_eq!(service.ok("tag get /demo/data/2026/AOD1.root run"), "run=246087  (from /demo/data)\n");
    service.ok("tag rm /demo/data/2026/AOD1.root good");
    assert_eq!(service.json("tag get /demo/data/2026/AOD1.root good")[0]["value"], true);
    service.fails("tag set /demo/data 7=x", 1);
    service.fails("tag set run=1", 1);
    service.fails("tag get /demo/nope", 11);

    service.ok("collection create /demo/set --tag year=2026");
    assert_eq!(service.json1("stat /demo/set")["members"], 0);
    let files = service.ok("find /demo AOD*");
    let added = service.run_with(&["--json", "collection", "add", "/demo/set", "-"], files).json();
    assert_eq!(added[0]["added"], 2);
    assert_eq!(service.ok("collection add -v /demo/set /demo/sim/log.txt"), "1 file added\n");
    service.ok("mv /demo/sim/log.txt /demo/sim/moved.txt");
    let members = service.ok("collection ls /demo/set");
    assert_eq!(members.lines().count(), 3);
    assert!(members.contains("/demo/sim/moved.txt\n"), "{members}");
    service.fails("collection add /demo/set /demo/nope", 11);
    service.fails("collection add /demo/sim /demo/sim/moved.txt", 1);
    service.ok("collection rm /demo/set /demo/sim/moved.txt");
    assert_eq!(service.json("collection ls /demo/set").len(), 2);
    assert!(service.ok("collection ls -l /demo/set").contains("  /demo/data/2026/AOD1.root\n"));

    service.ok("register /demo/all.zip --size 1k --se VO::NEAR::DISK");
    service.ok("register -p /demo/in/a.root --size 5 --member-of /demo/all.zip?a.root");
    assert!(service.ok("whereis /demo/in/a.root").ends_with("?ZIP=a.root\n"));
    assert_eq!(service.ok("archive ls /demo/all.zip"), "/demo/in/a.root\n");
    assert_eq!(service.json("archive ls /demo/all.zip --under /demo/in")[0]["size"], 5);
    let usage = &service.json1("du /demo/in")["usage"];
    assert_eq!(
        (&usage["files"], &usage["members"], &usage["member_bytes"]),
        (&json!(0), &json!(1), &json!(5))
    );
}

#[test]
fn history() {
    let service = Service::start();
    small_tree(&service);
    service.ok("mv /demo/sim/log.txt /demo/empty/log.txt");
    service.ok("chmod 600 /demo/empty/log.txt");
    let log = service.json("log /demo/empty/log.txt");
    assert_eq!(texts(&log, "effect"), ["created", "moved", "updated"]);
    assert_eq!(log[2]["fields"], json!([{"field": "mode", "before": "644", "after": "600"}]));
    assert_eq!(texts(&log, "who"), ["admin"; 3]);
    assert!(service.ok("log /demo/empty/log.txt").ends_with("mode 644 -> 600\n"));
    service.ok("rm /demo/empty/log.txt");
    assert_eq!(service.json("log /demo/empty/log.txt").len(), 4);
    service.fails("log /demo/never", 11);

    let all = service.json("changes");
    let revisions: Vec<u64> = all.iter().map(|change| change["revision"].as_u64().unwrap()).collect();
    assert_eq!(revisions, (1..=revisions.len() as u64).collect::<Vec<_>>());
    assert_eq!(service.json("changes --limit 3").len(), 3);
    assert_eq!(service.json(&format!("changes --after {}", revisions.len() - 2)).len(), 2);
    assert_eq!(service.json(&format!("changes --from {}", revisions.len() - 2)).len(), 3);
    assert_eq!(service.json("changes --after last").len(), 0);
    let below = service.json("changes --under /demo/data");
    assert!(
        below.iter().all(|change| change["lfn"].as_str().unwrap().starts_with("/demo/data")),
        "{below:?}"
    );

    // Following shows later changes, and ends with its reader or at a signal, both without a
    // message.
    let mut following =
        service.command(&["--json", "changes", "--after", "last", "--follow", "--limit", "2"]);
    let mut follower = following.stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = String::new();
    // Changes made before the follower has asked do not reach it: so make changes until it has
    // ended.
    let mut output = std::io::BufReader::new(follower.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        std::io::Read::read_to_string(&mut output, &mut seen).unwrap();
        seen
    });
    for number in 0.. {
        service.ok(&format!("mkdir /demo/follow{number}"));
        if reader.is_finished() {
            break;
        }
        assert!(number < 1000, "the follower sees nothing");
    }
    let seen = reader.join().unwrap();
    assert!(follower.wait().unwrap().success());
    assert_eq!(seen.lines().count(), 2, "{seen}");
    assert!(seen.contains("\"effect\":\"created\""), "{seen}");

    let mut following = service.command(&["changes", "--follow"]);
    let mut follower = following.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    std::io::Read::read_exact(follower.stdout.as_mut().unwrap(), &mut first).unwrap();
    signal(follower.id(), "INT");
    let ended = follower.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    assert!(ended.stderr.is_empty() && ended.stdout.ends_with(b"\n"));
}

#[test]
fn who_may_do_what() {
    let service = Service::start();
    small_tree(&service);
    service.ok("group add physics");
    service.ok("user add alice --groups physics --roles operator --subject CN=Alice");
    let users = service.json("user ls");
    assert_eq!(texts(&users, "user"), ["admin", "alice"]);
    assert_eq!((&users[1]["roles"], &users[1]["subjects"]), (&json!(["operator"]), &json!(["CN=Alice"])));
    assert!(service.ok("user ls").lines().nth(2).unwrap().contains("physics  operator  enabled"));
    service.ok("user set alice --roles --home /demo");
    assert_eq!(service.json("user ls")[1]["roles"], json!([]));
    service.fails("user set bob --disable", 11);
    service.fails("user add alice", 12);
    let groups = service.json("group ls");
    let physics = groups.iter().find(|group| group["group"] == "physics").unwrap();
    assert_eq!(physics["users"], json!(["alice"]));
    service.fails("group rm physics", 12);

    assert_eq!(service.json1("whoami")["user"], "admin");
    let issue = |options: &str| service.ok(&format!("token issue --lifetime 1h {options}")).trim().to_owned();
    let admin = std::fs::read_to_string(service.data().join("admin.token")).unwrap();
    let reader = issue("--note reading");
    let scoped = issue("--write --scope /demo/sim");
    let alice = issue("--user alice --write");

    let whoami = service.over_tls(Some(admin.trim()), "--json whoami").json();
    assert_eq!((&whoami[0]["user"], &whoami[0]["write"]), (&json!("admin"), &json!(true)));
    service.over_tls(Some(&reader), "ls /demo").ok();
    service.over_tls(Some(&reader), "mkdir /demo/x").fails(16);
    service.over_tls(Some(&scoped), "mkdir /demo/sim/x").ok();
    service.over_tls(Some(&scoped), "mkdir /demo/x").fails(16);
    service.over_tls(Some(&scoped), "ls /demo/data").fails(16);
    service.over_tls(Some(&alice), "mkdir /demo/x").fails(16);
    // A directory that may not be listed is reported once.
    service.ok("chmod 700 /demo/data");
    let refused = service.over_tls(Some(&alice), "ls -R /demo/data").fails(16);
    assert_eq!(refused.lines().count(), 1, "{refused}");
    let refused = service.over_tls(Some(&alice), "ls -R /demo").fails(16);
    assert_eq!(refused.lines().count(), 1, "{refused}");
    service.ok("chmod 755 /demo/data");
    service.over_tls(Some(&alice), "user add eve").fails(16);
    service.over_tls(Some(&alice), "se add VO::EVIL::SE").fails(16);
    assert_eq!(service.over_tls(Some(&alice), "--json whoami").json()[0]["user"], "alice");
    service.over_tls(None, "ls /demo").fails(17);
    service.over_tls(Some("not-a-token"), "ls /demo").fails(17);

    let tokens = service.json("token ls");
    assert!(tokens.iter().all(|token| token.get("secret").is_none()));
    let of_reader = tokens.iter().find(|token| token["note"] == "reading").unwrap();
    service.ok(&format!("token revoke {}", &of_reader["id"].as_str().unwrap()[..8]));
    service.over_tls(Some(&reader), "ls /demo").fails(17);
    service.fails("token revoke 1", 11);

    // An expired token is refused.
    let short = service.ok("token issue --lifetime 1s").trim().to_owned();
    let mut tries = 0;
    while service.over_tls(Some(&short), "whoami").status == Some(0) {
        tries += 1;
        assert!(tries < 2000, "a token of a second does not expire");
    }
    service.over_tls(Some(&short), "whoami").fails(17);

    // Secrets go to files that only their owner can read.
    let file = service.place().join("my.token");
    service.run(&["token", "issue", "--lifetime", "1h", "--out", file.to_str().unwrap()]).ok();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut command = service.command(&["--token-file", file.to_str().unwrap(), "whoami"]);
    command.env("EXACAT_SERVER", service.url());
    Ran::of(command, b"").ok();

    // A server that is not trusted does not get the token.
    let other = Service::start();
    let mut command = service.command(&["whoami"]);
    command.env("EXACAT_SERVER", other.url()).env("EXACAT_TOKEN", admin.trim());
    let refused = Ran::of(command, b"");
    assert!(refused.status != Some(0) && refused.err.contains("certificate"), "{refused:?}");
    let zeros = "00".repeat(32);
    let mut command = service.command(&["--fingerprint", &zeros, "whoami"]);
    command.env("EXACAT_SERVER", service.url()).env("EXACAT_TOKEN", admin.trim());
    assert_ne!(Ran::of(command, b"").status, Some(0));

    service.ok("user set alice --disable");
    service.over_tls(Some(&alice), "whoami").fails(17);
    service.ok("user rm alice");
    service.ok("group rm physics");
}

#[test]
fn output_is_harmless_and_errors_are_clear() {
    let service = Service::start();
    // A name may contain any byte but a slash and NUL. Output that is no terminal gets it
    // unchanged.
    service.run(&["mkdir", "/a\nb\u{1b}[31m", "/c d"]).ok();
    assert_eq!(service.ok("ls /"), "a\nb\u{1b}[31m\nc d\n");
    assert_eq!(service.ok("ls -0 /"), "a\nb\u{1b}[31m\0c d\0");
    let names = service.ok("find -0 /");
    service.run_with(&["-0", "rmdir", "-"], names).ok();
    assert_eq!(service.ok("ls"), "");
    let error = service.run(&["stat", "/a\nb\u{1b}[31m"]).fails(11);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("exacat: $'/a\\nb\\x1b[31m': "), "{error}");
    assert!(service.run(&["stat", "/c d"]).fails(11).starts_with("exacat: '/c d': "));

    // The reader may close the output early.
    for number in 0..3 {
        let names: Vec<String> = (0..1000).map(|name| format!("/many/{number}/{name:0200}")).collect();
        service.run_with(&["mkdir", "-p", "-"], names.join("\n")).ok();
    }
    let mut command = service.command(&["find", "/many"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
    assert_eq!(service.ok("find /many").lines().count(), 3003);
    assert_eq!(service.ok("ls -R /many").lines().count(), 3004 + 3003 + 3003);

    // Wrong use is 1, with the usage.
    for line in ["", "nonsense", "ls --nonsense", "mv /a", "serve --listen nowhere", "serve --log =="] {
        let ran = service.run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(ran.status, Some(1), "{line}: {}", ran.err);
        assert!(!ran.err.is_empty(), "{line}");
    }
    assert!(service.ok("--help").contains("Exit status"));
    assert!(service.ok("find --help").contains("Examples:"));
    assert!(service.ok("--version").starts_with("exacat "));
    for shell in ["bash", "zsh", "fish"] {
        assert!(service.ok(&format!("completions {shell}")).contains("EXACAT_COMPLETE"), "{shell}");
    }

    // No server: the error has advice.
    let mut command = exacat();
    command.args(["--data", service.place().join("none").to_str().unwrap(), "ls"]);
    let error = Ran::of(command, b"").fails(23);
    assert!(error.contains("is the service running?") && error.contains("exacat serve"), "{error}");
}

#[test]
fn a_restart_keeps_everything() {
    let mut service = Service::start();
    small_tree(&service);
    service.ok("rm /demo/sim/log.txt");
    service.ok("upload reserve /demo/up --size 5 --se VO::NEAR::DISK");
    service.ok("tag set /demo run=1");
    let everything = |service: &Service| {
        [
            "find /",
            "trash ls",
            "upload ls",
            "se ls",
            "user ls",
            "token ls",
            "quota get admin",
            "changes",
            "tag get /demo",
        ]
        .map(|line| service.json(line))
    };
    let before = everything(&service);
    assert_eq!(service.stop(), Some(0));
    let error = service.run(&["ls"]).fails(23);
    assert!(error.contains("is the service running?"), "{error}");
    assert!(service.ok("fsck --offline").contains("everything agrees"));
    service.restart();
    assert_eq!(everything(&service), before);
    service.fails("fsck --offline", 23);
    service.kill();
    service.restart();
    assert_eq!(everything(&service), before);
    let fsck = service.json1("fsck");
    assert_eq!(fsck["findings_total"], 0);
    assert_eq!(fsck["findings"], json!([]));
    assert!(service.json("status").iter().any(|part| part["part"] == "store"));
    assert!(service.ok("status").contains("\nstore:\n"));
    // Two servers on one directory would destroy it.
    let second = service.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status, Some(23), "{second:?}");
    assert!(second.err.contains("another server"), "{}", second.err);
}
