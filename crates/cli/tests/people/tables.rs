//! Tables, orders, lists from standard input, and options without effect.

use serde_json::Value;

use crate::service::Service;

/// Columns of a terminal.
const WIDTH: usize = 80;
/// Exit status of wrong use.
const LOCAL: i32 = 1;
const NOT_FOUND: i32 = 11;
const REJECTED: i32 = 18;

/// Makes a tree with names and sizes that make tables wide: sums of exabytes, long names of
/// accounts.
fn wide() -> Service {
    let service = Service::start();
    service.ok("se add LONGVO::SITENAME::DISK --prefix root://near//data --qos disk");
    service.ok("group add physics-analysis");
    service.ok("user add c.montgomery --groups physics-analysis --home /home/chris");
    service.ok("mkdir -p /demo/a /demo/b");
    for (name, size) in [("/demo/a/x", "9P"), ("/demo/a/y", "1k"), ("/demo/b/z", "1M")] {
        service
            .ok(&format!("register {name} --size {size} --se LONGVO::SITENAME::DISK --owner c.montgomery"));
    }
    service.ok("register /demo/b/unknown");
    service
}

#[test]
fn tables_fit_a_terminal_and_have_headings() {
    let service = wide();
    service.ok("token issue --lifetime 1h --write --user c.montgomery --note work");
    service.ok("upload reserve /demo/up --size 1P --se LONGVO::SITENAME::DISK");
    service.ok("snapshot create nightly-2026-11-23");
    service.ok("rm -r /demo/b");
    for (line, heading) in [
        ("du /demo", "BYTES  FILES  LFN"),
        ("du -l /demo", "/demo:"),
        ("du --by-se /demo", "BYTES"),
        ("trash ls", "ID "),
        ("se ls", "NAME "),
        ("se usage", "NAME "),
        ("se deletions LONGVO::SITENAME::DISK", ""),
        ("upload ls", "/demo/up:"),
        ("token ls", "ID  "),
        ("user ls", "USER "),
        ("group ls", "GROUP "),
        ("quota get c.montgomery", "OWNER "),
        ("snapshot ls", "NAME "),
        ("log /demo/a/x", "REVISION "),
        ("changes --limit 5", "REVISION "),
        ("ls -l /demo/a", "-rw"),
        ("tag get /demo", ""),
        ("status", ""),
        ("whoami", "user"),
    ] {
        let text = service.ok(line);
        assert!(text.trim_start().starts_with(heading), "{line}: {text}");
        for shown in text.lines() {
            assert!(shown.chars().count() <= WIDTH, "{line}: {shown}");
        }
        if line == "status" {
            // Its metrics change from one request to the next.
            continue;
        }
        // Scripts omit the headings.
        let quiet = service.ok(&format!("-q {line}"));
        let has_headings = text.lines().next().is_some_and(|first| {
            first.chars().all(|letter| letter.is_ascii_uppercase() || matches!(letter, ' ' | '-'))
        });
        let expected = text.lines().skip(usize::from(has_headings)).count();
        assert_eq!(quiet.lines().count(), expected, "{line}: {quiet}");
    }
}

#[test]
fn replicas_of_several_files_are_indented_below_each() {
    let service = wide();
    let text = service.ok("whereis /demo/a/x /demo/a/y");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (4, "/demo/a/x:", "/demo/a/y:"), "{text}");
    for line in [lines[1], lines[3]] {
        assert!(line.starts_with("  LONGVO::SITENAME::DISK  available  root://near"), "{text}");
    }
    assert!(service.ok("whereis /demo/a/x").starts_with("LONGVO::"));
}

#[test]
fn removal_of_a_directory_prints_the_command_that_restores_it() {
    let service = wide();
    let said = service.ok("rm -r /demo/a");
    let (_, command) = said.trim_end().rsplit_once(": exacat ").unwrap();
    assert!(command.starts_with("trash restore "), "{said}");
    service.ok(command);
    assert_eq!(service.ok("ls /demo/a"), "x\ny\n");
    assert_eq!(service.ok("-q rm -r /demo/a"), "");
    assert_eq!(service.ok("rm /demo/b/z"), "");
}

#[test]
fn token_is_named_by_the_beginning_of_its_id() {
    let service = wide();
    let issued = service.json1("token issue --lifetime 1h --note first");
    service.ok("token issue --lifetime 1h --note second");
    let id = issued["id"].as_str().unwrap();
    assert_eq!(id.len(), 16);
    assert!(issued["secret"].as_str().unwrap().contains(id), "the id stands in the secret");
    let listed = service.ok("-q token ls");
    let shown = listed.lines().find(|line| line.ends_with("first")).unwrap().split(' ').next().unwrap();
    assert_eq!(shown, &id[..8]);
    service.fails("token revoke 12", NOT_FOUND);
    service.fails("token revoke zzzzzzzz", NOT_FOUND);
    service.run_with(&["token", "revoke", "-"], format!("{}\n", shown.to_uppercase())).ok();
    let notes =
        || -> Vec<Value> { service.json("token ls").iter().map(|token| token["note"].clone()).collect() };
    assert!(!notes().contains(&Value::from("first")) && notes().contains(&Value::from("second")));
    // The whole id, and the decimal number that earlier versions showed.
    let left = service.json("token ls");
    let second = left.iter().find(|token| token["note"] == "second").unwrap();
    let decimal = u64::from_str_radix(second["id"].as_str().unwrap(), 16).unwrap();
    service.ok(&format!("token revoke {decimal}"));
    assert!(!notes().contains(&Value::from("second")));
}

#[test]
fn listings_are_sorted_and_limited() {
    let service = wide();
    assert_eq!(service.ok("ls --sort size /demo/a"), "y\nx\n");
    assert_eq!(service.ok("ls --sort size --reverse --limit 1 /demo/a"), "x\n");
    assert_eq!(service.ok("ls --reverse /demo/a"), "y\nx\n");
    assert_eq!(service.ok("ls --limit 1 /demo/a"), "x\n");
    assert_eq!(service.ok("ls --sort time /demo/a"), "x\ny\n");
    assert_eq!(
        service.ok("find /demo --type f --sort size"),
        "/demo/b/unknown\n/demo/a/y\n/demo/b/z\n/demo/a/x\n"
    );
    assert_eq!(service.ok("find /demo --type f --sort size --reverse --limit 1"), "/demo/a/x\n");
    assert_eq!(service.ok("find /demo --type f --count --sort size --limit 2").split(' ').next(), Some("2"));
    assert_eq!(service.ok("-q du /demo/a /demo/b --sort files --reverse --limit 1").lines().count(), 1);
    assert!(service.ok("-q du /demo/b /demo/a --sort size").ends_with("/demo/a\n"));
    service.ok("rm /demo/a/y /demo/a/x /demo/b/z");
    let trash = |options: &str| -> Vec<String> {
        let items = service.json(&format!("trash ls {options}"));
        items.iter().map(|item| item["lfn"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(trash("--sort size"), ["/demo/a/y", "/demo/b/z", "/demo/a/x"]);
    assert_eq!(trash("--sort name --reverse --limit 2"), ["/demo/b/z", "/demo/a/y"]);
    assert_eq!(trash("--limit 1").len(), 1);
    service.ok("register /demo/c1 /demo/c2 --size 1 --se LONGVO::SITENAME::DISK");
    assert_eq!(service.ok("se files LONGVO::SITENAME::DISK --limit 1").lines().count(), 1);
    service.ok("collection create /demo/set");
    service.ok("collection add /demo/set /demo/c1 /demo/c2");
    assert_eq!(service.ok("collection ls --limit 1 /demo/set").lines().count(), 1);
}

#[test]
fn names_come_from_standard_input() {
    let service = wide();
    for (line, ends) in [
        ("ls -d -", "/demo/a/x\n/demo/a/y\n"),
        ("-q du -", "1000  1  /demo/a/y\n"),
        ("whereis -1 -", ""),
        ("--json stat -", "}\n"),
        ("tag set - k=1", ""),
        ("-q tag get -", "  k=1\n"),
        ("chmod 600 -", ""),
        ("expire - 2100-01-01", ""),
        ("mv - /demo/b", ""),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let out = service.run_with(&words, "/demo/a/x\n/demo/a/y\n").ok();
        assert!(out.ends_with(ends), "{line}: {out}");
    }
    service.run_with(&["-0", "rm", "-"], "/demo/b/x\0/demo/b/y\0").ok();
    assert_eq!(service.ok("ls /demo/b"), "unknown\nz\n");
}

#[test]
fn number_is_compared_with_a_tag_of_text_as_text() {
    let service = wide();
    service.ok("tag set /demo/a year=text:2016");
    service.ok("tag set /demo/b year=2016");
    for expression in ["year=2016", "year>=2016", "year<2017", "year!=2017"] {
        let found = service.ok(&format!("find /demo --type d --tag {expression}"));
        assert_eq!(found, "/demo/a\n/demo/b\n", "{expression}");
    }
    assert_eq!(service.ok("find /demo --type d --tag year=2017"), "");
}

#[test]
fn files_of_unknown_size_are_found() {
    let service = wide();
    assert_eq!(service.ok("find /demo --size unknown"), "/demo/b/unknown\n");
    let said = service.fails("find /demo --size unknown --size +1", LOCAL);
    assert!(said.contains("--size"), "{said}");
}

#[test]
fn values_that_mean_nothing_are_refused() {
    let service = wide();
    for (line, word) in [
        ("--timeout 0s ls /", "--timeout"),
        ("expire /demo/a now", "in the past"),
        ("expire /demo/a 0s", "in the past"),
        ("expire /demo/a 2001-01-01", "in the past"),
        ("register /demo/late --expires 2001-01-01", "in the past"),
        ("find /demo --limit 0", "0"),
        ("ls --limit 0 /", "0"),
        ("changes --limit 0", "0"),
        ("trash ls --limit 0", "0"),
        ("find /demo --depth 0", "0"),
        ("find /demo --size +2k --size -1k", "--size"),
        ("find /demo --newer 1d --older 2d", "--newer, --older"),
        ("find /demo --created-after 1d --created-before 2d", "--created-after"),
        ("token issue --lifetime 0s", "less than a second"),
        ("upload reserve /demo/u --size 1 --lifetime 0s", "less than a second"),
        ("serve --reservation-lifetime 0s", "less than a second"),
    ] {
        let said = service.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(said.status, Some(LOCAL), "{line}: {}{}", said.out, said.err);
        assert!(said.err.contains(word), "{line}: {}", said.err);
    }
    service.fails("stat /demo/late", NOT_FOUND);
    assert_eq!(service.json1("stat /demo/a").get("expires"), None);
}

#[test]
fn refused_regular_expression_is_told_in_one_line() {
    let service = wide();
    for bad in ["(", "[z-a]", "a{2,1}", "*"] {
        let said = service.run(&["find", "/demo", bad, "--regex"]).fails(LOCAL);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("bad regular expression: ") && !said.contains("\\n"), "{said}");
    }
}

#[test]
fn dry_run_of_an_offline_import_judges_and_changes_nothing() {
    let mut service = wide();
    let listing = service.file("in.tsv", "/in/a\nrelative\n/in/b\n");
    let before = service.json1("digest")["digest"].clone();
    assert_eq!(service.stop(), Some(0));
    let said = service.run(&["import", "--offline", "--dry-run", &listing]);
    assert!(said.out.contains("3 rows: 2 could go in, 1 rejected"), "{}", said.out);
    said.fails(REJECTED);
    service.restart();
    assert_eq!(service.json1("digest")["digest"], before);
    service.fails("stat /in", NOT_FOUND);
}

#[test]
fn every_command_prints_json() {
    let service = wide();
    let listing = service.file("in.tsv", "/in/a\n");
    let digests = service.place().join("digests").to_str().unwrap().to_owned();
    let saved = service.place().join("saved.tsv").to_str().unwrap().to_owned();
    let backup = service.place().join("backup").to_str().unwrap().to_owned();
    let clone = service.place().join("clone").to_str().unwrap().to_owned();
    service.ok("tag set /demo k=1");
    service.ok("collection create /demo/set");
    service.ok("collection add /demo/set /demo/a/x");
    service.ok("register /demo/all.zip --size 9");
    service.ok("register /demo/member --member-of /demo/all.zip?member");
    service.ok("upload reserve /demo/up --size 1 --se LONGVO::SITENAME::DISK");
    service.ok("token issue --lifetime 1h");
    service.ok("rm /demo/a/y");
    for line in [
        "ls /demo",
        "stat /demo",
        "whereis /demo/a/x",
        "find /demo",
        "find /demo --count",
        "du /demo",
        "du --by-se /demo",
        "tag get /demo",
        "collection ls /demo/set",
        "archive ls /demo/all.zip",
        "upload ls",
        "trash ls",
        "log /demo",
        "changes",
        "se ls",
        "se usage",
        "se files LONGVO::SITENAME::DISK",
        "quota get admin",
        "user ls",
        "group ls",
        "token ls",
        "whoami",
        "status",
        "clock show",
        "clock confirm",
        "fsck",
        "chmod 755 /demo",
        "mv /demo/a/x /demo/a/w",
        "touch /demo/touched",
        "snapshot create one",
        "snapshot ls",
        "snapshot ls --offline",
        "snapshot diff one",
        "snapshot verify one",
        &format!("clone one {clone}"),
        &format!("backup {backup}"),
        &format!("backup --ls {backup}"),
        &format!("backup --verify {backup}"),
        "snapshot drop one",
        &format!("import --dry-run {listing}"),
        &format!("import {listing}"),
        &format!("verify {listing}"),
        &format!("export / -o {saved}"),
        "digest",
        &format!("digest -o {digests}"),
        "generate --entries 100 --prefix /sample",
        "trash purge --all --yes",
    ] {
        let values = service.json(line);
        // An empty difference has no documents.
        assert!(!values.is_empty() || line.contains(" diff"), "{line} printed nothing");
    }
}
