//! Reads of past states: `ls`, `stat`, `find`, `whereis` and `du` with `--at`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use std::collections::BTreeMap;

use serde_json::Value;
use service::Service;

/// Output and exit status of each command.
type Seen = BTreeMap<String, (String, Option<i32>)>;

fn revision(service: &Service) -> u64 {
    let status = service.json("status");
    let store = status.iter().find_map(|part| part["metrics"]["revision"].as_u64());
    store.expect("a revision")
}

/// Commands that take `--at`, each with arguments that fit all states.
const COMMANDS: [&str; 8] = [
    "ls -l /d",
    "ls -R /",
    "ls '/d/*'",
    "stat /d /d/a/file",
    "find / -l",
    "find /d --type f --se A::B::C --owner admin --count",
    "whereis /d/a/file",
    "du -l /d /",
];

/// Returns the output of a command; as a past state it may have failed for some names.
fn shown(service: &Service, line: &str) -> (String, Option<i32>) {
    let words: Vec<String> = line.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = service.run(&words);
    (ran.out, ran.status)
}

/// Property: with `--at`, by revision or by time, each command prints exactly what it printed then, though
/// entries were moved, renamed and removed since, and the storage element has another name and place.
#[test]
fn commands_show_the_past_as_they_showed_it_then() {
    let service = Service::start();
    let mut then: Vec<(u64, Seen)> = Vec::new();
    let mut look = |service: &Service| {
        let all = COMMANDS.iter().flat_map(|line| [(*line).to_owned(), format!("--json {line}")]);
        let seen = all.map(|line| (line.clone(), shown(service, &line))).collect();
        then.push((revision(service), seen));
    };
    service.ok("se add A::B::C --prefix root://first.example//d");
    service.ok("mkdir -p /d/a /d/b");
    service.ok("register /d/a/file --size 10 --se A::B::C");
    service.ok("register /d/a/other --size 20 --se A::B::C");
    look(&service);
    service.ok("snapshot create one");
    service.ok("mv /d/a/other /d/b/renamed");
    service.ok("chmod 600 /d/a/file");
    service.ok("tag set /d/a/file run=7");
    look(&service);
    service.ok("rm /d/b/renamed");
    service.ok("mkdir /d/c");
    look(&service);
    service.ok("snapshot create two");
    service.ok("se set A::B::C --prefix root://second.example//d");
    service.ok("mv /d/a /d/moved");
    service.ok("rm -r /d/b");
    look(&service);
    service.ok("snapshot drop one");
    for (revision, seen) in &then {
        for (line, (out, status)) in seen {
            let (command, rest) = match line.strip_prefix("--json ") {
                Some(rest) => (rest.split_once(' ').unwrap(), "--json "),
                None => (line.split_once(' ').unwrap(), ""),
            };
            let ((command, arguments), json) = (command, rest);
            let asked = format!("{json}{command} --at {revision} {arguments}");
            assert_eq!(&shown(&service, &asked), &(out.clone(), *status), "{asked}");
        }
    }
    // By the time of each change: the change itself counts.
    let changes = service.json("changes --limit 1000");
    for (revision, seen) in &then {
        let change = changes.iter().find(|change| change["revision"].as_u64() == Some(*revision)).unwrap();
        let time = change["time"].as_str().unwrap();
        let (out, _) = &seen["find / -l"];
        assert_eq!(&service.ok(&format!("find --at {time} / -l")), out, "{time}");
    }
    assert_eq!(service.ok("find --at 0s / -l"), service.ok("find / -l"));
    // Before everything there is the root, and nothing in it.
    assert_eq!(service.ok("ls --at 2001-01-01 /"), "");
    assert!(service.fails("stat --at 2001-01-01 /d", 11).contains("/d"));
}

/// A point that is none, of the future, or of another timeline is refused, and so is one by an anonymous or
/// unknown client. The present state is not asked for by it.
#[test]
fn wrong_points_are_refused() {
    let service = Service::start();
    service.ok("mkdir /d");
    let last = revision(&service);
    assert!(service.fails("ls --at yesterday /", 1).contains("neither a revision"));
    assert!(service.fails("ls --at now /", 1).contains("without --at"));
    assert!(service.fails(&format!("ls --at {} /", last + 1), 11).contains("still to come"));
    assert!(service.fails("ls --at 2999-01-01 /", 11).contains("in the future"));
    assert!(service.fails(&format!("ls --at {last}.00000000 /"), 19).contains("timeline"));
    service.ok(&format!("ls --at {last} /"));
    assert_eq!(service.run(&["mkdir", "--at", "1", "/e"]).status, Some(1), "it has no such option");
}

/// The owner and mode of that time say who may read, and the user is who it is now.
#[test]
fn permissions_are_those_of_the_entries_then_and_of_the_user_now() {
    let service = Service::start();
    service.ok("user add bob");
    service.ok("mkdir -m 755 /open");
    service.ok("mkdir -m 700 /closed");
    service.ok("mkdir /open/inside");
    service.ok("mkdir /closed/inside");
    let then = revision(&service);
    service.ok("chmod 700 /open");
    service.ok("chmod 755 /closed");
    let token = service.ok("token issue --user bob --lifetime 1h");
    let token = token.lines().next().unwrap().to_owned();
    let bob = |line: &str| service.over_tls(Some(&token), line);
    assert_eq!(bob(&format!("ls --at {then} /open")).ok(), "inside\n");
    assert_eq!(bob(&format!("ls --at {then} /closed")).status, Some(16));
    assert_eq!(bob("ls /open").status, Some(16));
    assert_eq!(bob("ls /closed").ok(), "inside\n");
    let stat: Value = serde_json::from_str(&bob(&format!("--json stat --at {then} /open")).ok()).unwrap();
    assert_eq!(stat["mode"], "755");
    assert!(service.over_tls(None, &format!("ls --at {then} /open")).status != Some(0));
}
