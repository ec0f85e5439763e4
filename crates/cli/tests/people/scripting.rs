//! JSON of changes and of errors, exit statuses of wrong use, and dry runs, for scripts, at a real
//! server process.
use crate::service::Service;
use serde_json::{Value, json};

/// Exit status of wrong use.
const LOCAL: i32 = 1;
/// Exit status of a missing entry.
const NOT_FOUND: i32 = 11;
/// Exit status of a listing with rejected rows.
const REJECTED: i32 = 18;

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn every_change_says_in_json_that_it_was_done() {
    let service = Service::start();
    for (line, item) in [
        ("se add VO::A::DISK --prefix root://a//d", "VO::A::DISK"),
        ("se set VO::A::DISK --qos disk", "VO::A::DISK"),
        ("user add alice", "alice"),
        ("user set alice --home /alice", "alice"),
        ("group add physics", "physics"),
        ("quota set user:alice --files 100", "user:alice"),
        ("mkdir -p /d/e", "/d/e"),
        ("touch /d/empty", "/d/empty"),
        ("touch /d/empty", "/d/empty"),
        ("ln /d/e /d/link", "/d/link"),
        ("tag set /d k=1", "/d"),
        ("collection create /d/set", "/d/set"),
        ("replica add /d/empty VO::A::DISK", "/d/empty"),
        ("replica state /d/empty VO::A::DISK suspect", "/d/empty"),
        ("replica rm /d/empty VO::A::DISK", "/d/empty"),
        ("group rm physics", "physics"),
    ] {
        assert_eq!(service.json1(line), json!({"item": item, "done": true}), "{line}");
    }
    assert_eq!(service.json1("chmod 700 /d/e"), json!({"set": 1}));
    let token = service.json1("token issue --lifetime 1h");
    let id = token["id"].to_string().trim_matches('"').to_owned();
    assert_eq!(service.json1(&format!("token revoke {id}")), json!({"item": id, "done": true}));
    // Without --json nothing is printed.
    assert_eq!(service.ok("mkdir /quiet"), "");
}

#[test]
fn errors_are_json_with_kind_status_and_subject() {
    let service = Service::start();
    let error = |line: &str| -> (Option<i32>, Value) {
        let mut args = vec!["--json"];
        args.extend(words(line));
        let ran = service.run(&args);
        let lines: Vec<&str> = ran.err.lines().collect();
        assert_eq!(lines.len(), 1, "{line}: {}", ran.err);
        let value: Value = serde_json::from_str(lines[0]).unwrap();
        (ran.status, value["error"].clone())
    };
    let (status, found) = error("stat /nope");
    assert_eq!((status, &found["status"]), (Some(NOT_FOUND), &json!(NOT_FOUND)));
    assert_eq!((&found["kind"], &found["subject"]), (&json!("not-found"), &json!("/nope")));
    for line in
        ["stat relative", "nonsense", "find / --size x", "import /no/such/file", "ls --no-such-option"]
    {
        let (status, found) = error(line);
        assert_eq!((status, &found["status"]), (Some(LOCAL), &json!(LOCAL)), "{line}: {found}");
        assert!(found["message"].as_str().is_some_and(|text| !text.is_empty()), "{line}: {found}");
    }
    // A name beyond every limit is shown by its ends.
    let long = format!("/{}", "x".repeat(20_000));
    let said = service.run(&["stat", &long]).fails(LOCAL + 20);
    assert!(said.len() < 1000 && said.contains("(20001 bytes)"), "{said}");
}

#[test]
fn dry_runs_show_what_would_go_and_change_nothing() {
    let service = Service::start();
    service.ok("se add VO::A::DISK --prefix root://a//d");
    service.ok("mkdir -p /d/e");
    service.ok("register /d/e/f /d/e/g --size 5 --se VO::A::DISK");
    let before = service.json("changes").len();
    let text = service.ok("rm -r --dry-run /d");
    assert!(text.starts_with("would remove /d: 2 files"), "{text}");
    assert_eq!(service.json1("rm --dry-run /d/e/f")["usage"]["files"], 1);
    service.run(&["rm", "--dry-run", "/d"]).fails(15);
    service.fails("rm --dry-run /nope", NOT_FOUND);
    service.ok("rm -f --dry-run /nope");
    assert_eq!(service.json("changes").len(), before);
    let id = service.json1("rm /d/e/f")["trash"].as_str().unwrap().to_owned();
    let before = service.json("changes").len();
    assert!(service.ok("trash purge --all --dry-run").contains("/d/e/f: 1 file"));
    assert_eq!(service.json1(&format!("trash purge --dry-run {id}"))["lfn"], "/d/e/f");
    let other = format!("999999.{}", id.split('.').next_back().unwrap());
    service.fails(&format!("trash purge --dry-run {other}"), NOT_FOUND);
    service.fails("trash purge --all", LOCAL);
    assert_eq!((service.json("changes").len(), service.json("trash ls").len()), (before, 1));
    service.ok(&format!("trash purge {id}"));
    let waiting = service.json1("se deletions VO::A::DISK")["id"].as_str().unwrap().to_owned();
    let text = service.ok(&format!("se deleted --dry-run VO::A::DISK {waiting}"));
    assert!(text.starts_with(&format!("would take off {waiting}: root://a//d/")), "{text}");
    assert_eq!(service.json("se deletions VO::A::DISK").len(), 1);
    let listing = service.file("in.tsv", "/in/a\nrelative\n/in/b\n");
    let said = service.run(&["import", "--dry-run", &listing]);
    assert!(said.out.contains("3 rows: 2 could go in, 1 rejected"), "{}", said.out);
    said.fails(REJECTED);
    service.fails("stat /in", NOT_FOUND);
}

#[test]
fn owner_of_an_entry_in_a_removed_directory_gets_it_back() {
    let service = Service::start();
    service.ok("user add alice --home /home/alice");
    service.ok("mkdir -p /home/alice /pub/m/sub");
    service.ok("chown alice:alice /home/alice");
    service.ok("chmod 777 /pub/m/sub");
    let token = service.ok("token issue --user alice --write --lifetime 1h");
    let alice = |line: &str| service.over_tls(Some(token.trim()), line);
    alice("register /pub/m/sub/mine --size 7").ok();
    service.ok("register /pub/m/other --size 9");
    let id = service.json1("rm -r /pub/m")["trash"].as_str().unwrap().to_owned();

    assert!(alice("--json trash ls").json().is_empty());
    let inside = alice("--json trash ls --inside").json();
    assert_eq!(inside.len(), 1, "{inside:?}");
    assert_eq!((inside[0]["id"].as_str(), inside[0]["lfn"].as_str()), (Some(&*id), Some("/pub/m/sub/mine")));
    assert!(alice("trash ls --inside").ok().contains("/pub/m/sub/mine"));
    let restore = |rest: &str| alice(&format!("--json trash restore {id} --path /pub/m/{rest}"));
    restore("other --to /home/alice/x").fails(NOT_FOUND);
    restore("sub/mine").fails(NOT_FOUND);
    assert_eq!(restore("sub/mine --to /home/alice").json()[0]["item"], *id);
    assert_eq!(service.json1("stat /home/alice/mine")["size"], 7);
    assert!(alice("--json trash ls --inside").json().is_empty());
    service.ok(&format!("trash restore {id}"));
    assert_eq!(service.json("ls /pub/m/sub").len(), 0);
    service.ok("fsck");
}

#[test]
fn export_and_changes_tell_the_end_of_the_history() {
    let service = Service::start();
    service.ok("mkdir /d");
    let last = service.json("changes").pop().unwrap();
    let file = service.place().join("all.tsv");
    let told = service.json1(&format!("export / -o {}", file.display()));
    assert_eq!((&told["revision"], &told["timeline"]), (&last["revision"], &last["timeline"]));
    assert!(told["catalogue"].is_string(), "{told}");
    let ran = service.run(&["changes"]);
    let tag = &last["timeline"].as_str().unwrap()[..6];
    let cursor = format!("exacat: go on with --after {}.{tag}", last["revision"]);
    assert!(ran.err.contains(&cursor), "{}", ran.err);
    assert!(service.json(&format!("changes --after {}.{tag}", last["revision"])).is_empty());
}
