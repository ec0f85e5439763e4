//! Two moments compared, by snapshots and by the history, and the biography of a file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use std::collections::BTreeSet;

use serde_json::Value;
use service::Service;

fn revision(service: &Service) -> String {
    let status = service.json("status");
    let store = status.iter().find_map(|part| part["metrics"]["revision"].as_u64());
    store.expect("a revision").to_string()
}

/// Returns what differs: kind, path, former path, changed fields.
fn differences(service: &Service, line: &str) -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let shown = |item: Value| {
        let fields = item["changed"].as_array().map(|all| all.iter().map(text).collect::<Vec<_>>().join("+"));
        let parts = [text(&item["difference"]), text(&item["lfn"]), text(&item["from"]), text(&item["kind"])];
        format!("{} {}", parts.join(" "), fields.unwrap_or_default())
    };
    service.json(line).into_iter().map(shown).collect()
}

/// A directory with files, then every kind of difference in it. Returns the revision in between.
fn scene(service: &Service) -> String {
    service.ok("se add A::B::C --prefix root://h//d");
    service.ok("mkdir -p /d/a /d/b /d/gone/below /e");
    service.ok("register /d/a/moved --size 1 --se A::B::C");
    service.ok("register /d/a/removed --size 1 --se A::B::C");
    service.ok("register /d/a/changed --size 1 --se A::B::C");
    service.ok("register /d/gone/below/file --size 1 --se A::B::C");
    service.ok("register /e/leaves --size 1 --se A::B::C");
    service.ok("snapshot create one");
    service.ok("mkdir /e/between");
    let between = revision(service);
    service.ok("mv /d/a/moved /d/b/new-name");
    service.ok("rm /d/a/removed");
    service.ok("chmod 600 /d/a/changed");
    service.ok("tag set /d/a/changed run=7");
    service.ok("mkdir /d/made");
    service.ok("register /d/made/file --size 1 --se A::B::C");
    // It came and went.
    service.ok("mkdir /d/short");
    service.ok("rmdir /d/short");
    service.ok("rm -r /d/gone");
    service.ok("mv /e/leaves /d/b/came");
    service.ok("mkdir /e/outside");
    between
}

/// The history gives the differences that two snapshots have, and a directory bounds both.
#[test]
fn moments_differ_the_same_by_snapshots_and_by_the_history() {
    let service = Service::start();
    let between = scene(&service);
    let by_snapshot = differences(&service, "diff one now /d");
    let wanted: BTreeSet<String> = [
        "moved /d/b/new-name /d/a/moved file ",
        "removed /d/a/removed - file ",
        "changed /d/a/changed - file mode+tags",
        "created /d/made - directory ",
        "created /d/made/file - file ",
        "removed /d/gone - directory ",
        "moved /d/b/came /e/leaves file ",
    ]
    .map(str::to_owned)
    .into();
    assert_eq!(by_snapshot, wanted);
    assert_eq!(differences(&service, &format!("diff {between} now /d")), wanted);
    let all = differences(&service, &format!("diff {between} now"));
    assert_eq!(all.difference(&wanted).collect::<Vec<_>>(), ["created /e/outside - directory "]);
    // Of a revision that a snapshot has, the snapshot is read.
    let first = service.json("snapshot ls")[0]["revision"].to_string();
    assert_eq!(differences(&service, &format!("diff {first} now /d")), wanted);
    // Below a directory that went with one above it.
    assert_eq!(
        differences(&service, &format!("diff {between} now /d/gone/below")),
        ["removed /d/gone - directory "].map(str::to_owned).into()
    );
    service.ok("snapshot create two");
    service.ok("mkdir /d/after-two");
    assert_eq!(differences(&service, "diff one two /d"), wanted);
    assert_eq!(differences(&service, "diff two now /d").len(), 1);
    // A time before everything, and one of the future, which is now.
    assert!(differences(&service, "diff 2000-01-01 now /d").contains("created /d/a - directory "));
    assert_eq!(differences(&service, "diff two 2999-01-01 /d"), differences(&service, "diff two now /d"));
    let last = revision(&service);
    assert_eq!(differences(&service, &format!("diff {last} now")), BTreeSet::new());
    let said = service.ok(&format!("diff -v {between} now /d/made"));
    assert!(
        said.contains("created  /d/made\n") && said.ends_with("2 created, 0 changed, 0 moved, 0 removed\n"),
        "{said}"
    );
}

/// A moment that is none, that is later than the other, or that the history does not have, is refused.
#[test]
fn wrong_moments_are_refused() {
    let service = Service::start();
    let between = scene(&service);
    assert!(service.fails("diff nosuch now", 11).contains("neither a snapshot"));
    assert!(service.fails(&format!("diff now {between}"), 1).contains("earlier moment first"));
    assert!(service.fails(&format!("diff {between} 99999999"), 11).contains("history ends"));
    service.fails(&format!("diff {between}.00000000 now"), 19);
    service.fails("diff one now relative", 1);
    service.ok("user add bob");
    let token = service.ok("token issue --user bob --lifetime 1h");
    let ran = service.over_tls(Some(token.lines().next().unwrap()), &format!("diff {between} now"));
    assert!(ran.status != Some(0) && ran.out.is_empty(), "{ran:?}");
}

/// A biography has the moves, removals and returns of the directories that the file was in, while it was in
/// them, and nothing from before or after.
#[test]
fn biography_follows_the_directories_above() {
    let service = Service::start();
    service.ok("se add A::B::C --prefix root://h//d");
    service.ok("mkdir -p /p/q /other");
    service.ok("mv /p /before");
    service.ok("register /before/q/file --size 1 --se A::B::C");
    service.ok("mv /before /p2");
    service.ok("mv /p2/q /p2/q2");
    service.ok("rm -r /p2/q2");
    let trash = service.json1("trash ls");
    let id = trash["id"].as_str().map_or_else(|| trash["id"].to_string(), str::to_owned);
    service.ok(&format!("trash restore {id}"));
    service.ok("chmod 600 /p2/q2/file");
    service.ok("mv /p2/q2/file /other/file");
    service.ok("mv /p2 /p3");
    service.ok("mv /other /last");
    let effects = |line: &str| -> Vec<String> {
        service.json(line).iter().map(|change| change["effect"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(effects("log /last/file"), ["created", "updated", "moved"]);
    let full = ["created", "moved", "moved", "removed", "restored", "updated", "moved", "moved"];
    assert_eq!(effects("log --full /last/file"), full);
    let shown = service.ok("log --full /last/file");
    assert!(shown.contains("/p3 before -> p2\n") && shown.contains("/last other -> last\n"), "{shown}");
    // Of a name that is free: the last entry there, with what happened to its directories.
    service.ok("rm /last/file");
    assert_eq!(effects("log --full /last/file").last().unwrap(), "removed");
    service.fails("log --full /none", 11);
}

/// A biography reads the histories of 256 directories, and says how many more there were.
#[test]
fn biography_reads_no_more_directories_than_its_bound() {
    let service = Service::start();
    let names: Vec<String> = (0..256).map(|number| format!("/a/{number}")).collect();
    service.ok(&format!("mkdir -p {}", names.join(" ")));
    service.ok("register /a/0/f --size 1");
    let moved = |from: usize| service.ok(&format!("mv {}/f {}/f", names[from], names[from + 1]));
    // 255 directories, and the one above them.
    (0..254).for_each(|from| drop(moved(from)));
    let shown = service.run(&["log", "--full", "/a/254/f"]);
    assert_eq!((shown.status, shown.err.as_str()), (Some(0), ""));
    moved(254);
    let shown = service.run(&["log", "--full", "/a/255/f"]);
    assert_eq!(shown.status, Some(0));
    let said = "moves of 1 directory that it was in are not shown: --full reads 256 directories";
    assert!(shown.err.contains(said), "{}", shown.err);
    assert_eq!(shown.out.lines().filter(|line| line.contains("moved")).count(), 255, "{}", shown.out);
}
