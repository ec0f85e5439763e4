//! Log of the service as an operator reads it: identities of requests, rotation, a full disk.
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
use std::time::{Duration, Instant};

use serde_json::Value;
use service::{Service, signal};

/// Longest wait for a line.
const PATIENCE: Duration = Duration::from_secs(60);

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits until a file has a line with these words, and returns it.
fn line(path: &Path, words: &[&str]) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let text = read(path);
        if let Some(line) = text.lines().find(|line| words.iter().all(|word| line.contains(word))) {
            return line.to_owned();
        }
        assert!(Instant::now() < until, "no line with {words:?} in {text}");
        std::thread::yield_now();
    }
}

fn start(place: &Path, log: &Path, options: &[&str]) -> Service {
    let mut all = vec!["--log-file", log.to_str().unwrap(), "--log", "debug"];
    all.extend(options);
    Service::start_in(place, &all)
}

/// Property: a renamed log file gets lines until SIGHUP, the new one those after it, and no line is lost.
/// Standard error has none.
#[test]
fn sighup_opens_a_renamed_log_file_again() {
    let place = tempfile::tempdir().unwrap();
    let (log, old) = (place.path().join("exacat.log"), place.path().join("exacat.log.1"));
    let mut service = start(place.path(), &log, &[]);
    line(&log, &["serving"]);
    std::fs::rename(&log, &old).unwrap();
    service.ok("mkdir /before");
    line(&old, &["request ended", "operation=mkdir"]);
    signal(service.pid(), "HUP");
    line(&log, &["opened the log file again"]);
    service.ok("mkdir /after");
    line(&log, &["request ended", "operation=mkdir"]);
    let made = |path: &Path| read(path).lines().filter(|line| line.contains("operation=mkdir")).count();
    assert_eq!((made(&old), made(&log)), (1, 1));

    // A file that cannot be opened again: the one of before goes on.
    std::fs::rename(&log, &old).unwrap();
    std::fs::create_dir(&log).unwrap();
    signal(service.pid(), "HUP");
    line(&old, &["the log file cannot be opened again"]);
    assert_eq!(service.stop(), Some(0));
    line(&old, &["stopped"]);
    let errors = service.log();
    assert!(errors.lines().all(|line| line.starts_with("exacat: ")), "{errors}");
}

/// Property: while the log's disk is full the service goes on, and counts the lines that are lost.
#[test]
fn full_disk_of_the_log_is_counted_and_stops_nothing() {
    let place = tempfile::tempdir().unwrap();
    let mut service = start(place.path(), Path::new("/dev/full"), &[]);
    let lost = || {
        let status = service.json("status");
        let server = status.iter().find(|part| part["part"] == "server").unwrap();
        server["metrics"]["log_lines_lost"].as_u64().unwrap()
    };
    let before = lost();
    assert!(before > 0);
    service.ok("mkdir -p /a/b");
    assert_eq!(service.ok("ls /a"), "b\n");
    assert!(lost() > before);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn log_file_that_cannot_be_written_is_refused_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    let mut serve = service::exacat();
    let log = place.path().join("no/such/directory");
    serve.args(["serve", "--listen", "127.0.0.1:0", "--log-file"]).arg(&log);
    let ended = serve.arg("--data").arg(place.path().join("data")).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("--log-file: cannot write to"), "{said}");
}

/// Property: lines of a request have its number, its user and its client, in both formats, and the number
/// is that of `exacat sessions`.
#[test]
fn lines_of_a_request_have_its_identity() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("json.log");
    let mut service = start(place.path(), &log, &["--log-format", "json"]);
    let token =
        service.ok("token issue --write --lifetime 1h --note test").lines().last().unwrap().trim().to_owned();
    service.over_tls(Some(&token), "mkdir /d").ok();
    let ended = line(&log, &["request ended", "\"operation\":\"mkdir\""]);
    let ended: Value = serde_json::from_str(&ended).unwrap();
    let of = |line: &Value| {
        let fields = &line["fields"];
        (fields["request"].as_u64().unwrap(), fields["user"].clone(), fields["client"].clone())
    };
    assert_eq!((&of(&ended).1, &of(&ended).2), (&"admin".into(), &"127.0.0.1".into()), "{ended}");
    assert_eq!((&ended["level"], &ended["target"]), (&"DEBUG".into(), &"exacat_server::ended".into()));

    // A request that waits has a number in the list; killing it writes a line of the killing request.
    let mut waits = service.command(&["changes", "--follow"]);
    let mut waits = waits.stdout(std::process::Stdio::null()).spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    let waiting = loop {
        // It waits for a while, and then again with another number.
        let sessions = service.json("sessions");
        if let Some(found) = sessions.iter().find(|one| one["operation"] == "changes") {
            let number = found["id"].as_u64().unwrap();
            if service.over_tls(Some(&token), &format!("sessions kill {number}")).status == Some(0) {
                break number;
            }
        }
        if Instant::now() >= until {
            waits.kill().unwrap();
            panic!("nothing to kill: {sessions:?}");
        }
    };
    waits.kill().unwrap();
    waits.wait().unwrap();
    let kill: Value = serde_json::from_str(&line(&log, &["cancelled a request"])).unwrap();
    assert_eq!(kill["fields"]["cancelled"], waiting, "{kill}");
    assert_eq!((&of(&kill).1, &of(&kill).2), (&"admin".into(), &"127.0.0.1".into()), "{kill}");
    let of_kill = format!("\"request\":{}", of(&kill).0);
    line(&log, &["request ended", "\"operation\":\"session-kill\"", &of_kill]);
    line(&log, &["request ended", "\"outcome\":\"cancelled\"", &format!("\"request\":{waiting}")]);
    for line in read(&log).lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()), "{line}");
    }

    service.stop();
    let log = place.path().join("text.log");
    service.restart_with(&["--log-file", log.to_str().unwrap(), "--log", "debug", "--log-format", "human"]);
    service.over_tls(Some(&token), "mkdir /e").ok();
    let ended = line(&log, &["request ended", "operation=mkdir"]);
    assert!(ended.contains(" user=admin client=127.0.0.1 ") && ended.contains(" request="), "{ended}");
}
