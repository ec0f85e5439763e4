//! A replay with real processes: a service, agents, an origin. Each access has one result, whatever dies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use service::{Ran, exacat, signal};

/// Longest wait for a change of state.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time between two looks at a state.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A process that says in its first line, as JSON, where it is. It is killed at the end.
struct Serving {
    child: Child,
    said: Value,
}

impl Serving {
    fn start(args: &[&str]) -> Serving {
        let mut command = exacat();
        command.arg("--json").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{args:?}: {error}: {line}"));
        Serving { child, said }
    }

    fn text(&self, field: &str) -> &str {
        self.said[field].as_str().unwrap()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A trace, an origin that has its files, and a service.
struct Rig {
    place: tempfile::TempDir,
    trace: PathBuf,
    origin: Serving,
    service: Option<Serving>,
    url: String,
}

fn run(args: &[&str]) -> Ran {
    let mut command = exacat();
    command.arg("--json").args(args);
    Ran::of(command, b"")
}

impl Rig {
    fn new(accesses: &str, origin: &[&str]) -> Rig {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("t.trace");
        let out = trace.to_str().unwrap();
        let options =
            ["--files", "60", "--accesses", accesses, "--days", "1", "--size", "200kB", "--seed", "5"];
        run(&[&["replay", "generate", "--out", out][..], &options].concat()).ok();
        let serve =
            ["replay", "origin", "--trace", out, "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"];
        let origin = Serving::start(&[&serve, origin].concat());
        let mut rig = Rig { place, trace, origin, service: None, url: "127.0.0.1:0".to_owned() };
        rig.serve();
        rig
    }

    /// Starts the service, at the address that it had.
    fn serve(&mut self) {
        let runs = self.place.path().join("runs");
        let (runs, trace) = (runs.to_str().unwrap(), self.trace.to_str().unwrap());
        let listen = self.url.trim_start_matches("http://").to_owned();
        let control = self.origin.text("control").to_owned();
        let args =
            ["replay", "serve", "--trace", trace, "--runs", runs, "--listen", &listen, "--origin", &control];
        let service = Serving::start(&args);
        self.url = service.text("url").to_owned();
        self.service = Some(service);
    }

    fn replay(&self, args: &[&str]) -> Ran {
        run(&[&["replay"], args, &["--service", &self.url]].concat())
    }

    fn one(&self, args: &[&str]) -> Value {
        self.replay(args).json().remove(0)
    }

    fn agent(&self, run: &str, name: &str, options: &[&str]) -> Child {
        let mut command = exacat();
        command.args(["--json", "replay", "agent", "--run", run, "--name", name, "--service", &self.url]);
        command.args(["--cache", self.origin.text("url")]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until so many accesses of a run have ended.
    fn until_ended(&self, run: &str, count: u64) {
        let until = Instant::now() + PATIENCE;
        while self.one(&["run", "show", run])["ended"].as_u64().unwrap() < count {
            assert!(Instant::now() < until, "{count} accesses do not end");
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

/// Returns the exit status and the JSON of an agent that ends.
fn ended(agent: Child) -> (i32, Value) {
    let output = agent.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let told = serde_json::from_str(&text);
    let told =
        told.unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), told)
}

/// Property: the service is killed again and again, an agent is killed and another one interrupted; every
/// access ends once, and what the clients report is what the origin has sent.
#[test]
fn every_access_ends_once_whatever_is_killed() {
    let mut rig = Rig::new("1500", &["--read-delay", "2ms"]);
    rig.one(&["run", "create", "first", "--in-flight", "24", "--lease", "3", "--start"]);
    let steady = rig.agent("first", "steady", &["--verify-content"]);
    let mut killed = Some(rig.agent("first", "killed", &[]));
    let interrupted = rig.agent("first", "interrupted", &[]);
    for (round, count) in [150, 400, 700].into_iter().enumerate() {
        rig.until_ended("first", count);
        rig.service.take().unwrap().kill();
        if let Some(mut killed) = killed.take_if(|_| round == 1) {
            killed.kill().unwrap();
            killed.wait().unwrap();
        }
        rig.serve();
    }
    signal(interrupted.id(), "INT");
    let (status, told) = ended(interrupted);
    assert_eq!(status, 130);
    assert_eq!(told["unreported"], 0, "{told}");
    let end = rig.one(&["run", "wait", "first"]);
    assert_eq!((&end["state"], &end["ended"], &end["failed"]), (&"done".into(), &1500.into(), &0.into()));
    let (status, told) = ended(steady);
    assert_eq!((status, &told["refused"]), (0, &0.into()), "{told}");
    let report = rig.one(&["report", "first"]);
    assert_eq!(report["totals"]["accesses"], 1500);
    assert_eq!(report["totals"]["errors"], 0);
    assert_eq!(report["totals"]["bytes"], report["totals"]["bytes_asked"]);
    // The counters of the origin have what the killed agent had read, too.
    let (sent, taken) = (&report["origins"][0]["bytes_out"], &report["totals"]["bytes"]);
    assert!(sent.as_u64() > Some(0) && taken.as_u64() > Some(0), "{report}");
}

/// Property: missing files, wrong bytes and errors of the origin are told apart, with their numbers.
#[test]
fn failures_are_told_by_their_class() {
    let rig = Rig::new("300", &["--absent-share", "0.2", "--wrong-share", "0.2", "--failing-reads", "0.05"]);
    let create = ["run", "create", "first", "--in-flight", "16", "--fail-when", "errors>1%", "--start"];
    rig.one(&create);
    let (status, told) = ended(rig.agent("first", "a", &["--pages"]));
    assert_eq!(status, 0, "{told}");
    let outcomes = &told["outcomes"];
    for class in ["ok", "not_found", "checksum", "server"] {
        assert!(outcomes[class].as_u64() > Some(0), "{class}: {told}");
    }
    let report = rig.replay(&["report", "first"]);
    assert_eq!(report.status, Some(31), "the threshold fails: {}", report.err);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    let not_found = report["outcomes"].as_array().unwrap().iter().find(|row| row["outcome"] == "not_found");
    assert_eq!(not_found.unwrap()["numbers"][0]["number"], 3011, "{report}");
    assert_eq!(run(&["replay", "run", "wait", "first", "--service", &rig.url]).status, Some(31));
}

#[test]
fn reports_are_pages_and_compare_runs() {
    let rig = Rig::new("200", &[]);
    for name in ["one", "two"] {
        rig.one(&["run", "create", name, "--in-flight", "8", "--cache-size", "1MB", "--start"]);
        let (status, told) = ended(rig.agent(name, "a", &[]));
        assert_eq!((status, &told["accesses"]), (0, &200.into()), "{told}");
    }
    let page = rig.place.path().join("one.html");
    let text = |args: &[&str]| {
        let mut command = exacat();
        command.arg("replay").args(args).args(["--service", &rig.url]);
        Ran::of(command, b"").ok()
    };
    let report = text(&["report", "one", "--html", page.to_str().unwrap()]);
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!") && html.contains("<svg") && !html.contains("<script"), "{html:.200}");
    let compared = text(&["report", "two", "--compare", "one"]);
    assert!(
        compared.contains("one") && compared.lines().all(|line| line.chars().count() <= 80),
        "{compared}"
    );
    let listed = text(&["run", "ls"]);
    assert!(listed.contains("one") && listed.contains("200 of 200"), "{listed}");
}

#[test]
fn bad_options_are_refused_with_a_remedy() {
    let place = tempfile::tempdir().unwrap();
    let runs = place.path().to_str().unwrap();
    let fails = |args: &[&str]| {
        let mut command = exacat();
        command.arg("replay").args(args);
        let ran = Ran::of(command, b"");
        assert_ne!(ran.status, Some(0), "{args:?}");
        ran.err
    };
    let open = fails(&["serve", "--runs", runs, "--listen", "0.0.0.0:0"]);
    assert!(open.contains("--token-file"), "{open}");
    let nothing = fails(&["origin", "--listen", "127.0.0.1:0", "--control", "none"]);
    assert!(nothing.contains("--trace"), "{nothing}");
    let ramp = fails(&["run", "create", "x", "--ramp", "1:2:3"]);
    assert!(ramp.contains("FROM:STEP:SECONDS:MOST"), "{ramp}");
    let away = fails(&["run", "ls", "--service", "http://127.0.0.1:9"]);
    assert!(away.contains("127.0.0.1:9"), "{away}");
    let missing = fails(&["serve", "--runs", runs, "--trace", "/nosuch", "--listen", "127.0.0.1:0"]);
    assert!(missing.contains("/nosuch"), "{missing}");
    let token = Path::new(runs).join("token");
    std::fs::write(&token, "two words\n").unwrap();
    let token = fails(&["serve", "--runs", runs, "--token-file", token.to_str().unwrap()]);
    assert!(token.contains("one line"), "{token}");
}

/// Property: a cache that is not there fails the accesses, and not the agent.
#[test]
fn cache_that_is_away_fails_accesses_and_the_run_ends() {
    let rig = Rig::new("50", &[]);
    rig.one(&["run", "create", "first", "--in-flight", "8", "--start"]);
    let mut command: Command = exacat();
    command.args(["--json", "replay", "agent", "--run", "first", "--service", &rig.url]);
    command.args(["--cache", "root://127.0.0.1:9"]);
    let told: Value = serde_json::from_str(&Ran::of(command, b"").ok()).unwrap();
    assert_eq!(told["outcomes"]["connection"], 50, "{told}");
    assert_eq!(rig.one(&["run", "show", "first"])["state"], "done");
}
