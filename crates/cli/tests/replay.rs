//! A replay with real processes: a service, agents, an origin. Each access has one result, whatever dies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use service::{Ran, Service, exacat, signal};

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
    // Slow enough for the kills to come while accesses go on.
    let mut rig = Rig::new("1500", &["--read-delay", "10ms"]);
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
    // The origin sent what the killed agent had read, too, and counted on while the service was away.
    let [sent, taken] = [&report["origins"][0]["bytes_out"], &report["totals"]["bytes"]].map(Value::as_u64);
    assert!(taken > Some(0) && sent >= taken, "{report}");
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

/// Writes a table of accesses as a trace.
fn trace_of(place: &Path, table: &str) -> PathBuf {
    let (source, out) = (place.join("accesses.tsv"), place.join("t.trace"));
    std::fs::write(&source, table).unwrap();
    let import = ["replay", "import", source.to_str().unwrap(), "--out", out.to_str().unwrap()];
    run(&import).ok();
    out
}

/// Property: with a catalogue, files have its sizes and checksums. Those that it does not have are left out
/// and listed. The figures of the service are there for Prometheus.
#[test]
fn catalogue_gives_its_files_to_the_trace() {
    let (catalogue, place) = (Service::start(), tempfile::tempdir().unwrap());
    catalogue.ok("mkdir -p /r");
    catalogue.ok("register /r/a --size 7 --checksum adler32:00620062");
    catalogue.ok("register /r/b --size 9");
    let trace = trace_of(
        place.path(),
        "time\tname\tsize\n1800000000\t/r/a\t5\n1800000001\t/r/none\t5\n1800000002\t/r/b\t9\n\
         1800000003\t/r/a\t5\n1800000004\t/r\t5\n",
    );
    let [runs, missing] = ["runs", "missing"].map(|name| place.path().join(name).display().to_string());
    let token = catalogue.data().join("admin.token").display().to_string();
    let socket = catalogue.addresses["socket"].as_str().unwrap();
    let serve = ["replay", "serve", "--trace", trace.to_str().unwrap(), "--runs", &runs];
    let listen = ["--listen", "127.0.0.1:0", "--catalogue", socket, "--catalogue-token-file", &token];
    let service = Serving::start(&[&serve[..], &listen, &["--missing", &missing]].concat());
    let told = &service.said["in_catalogue"];
    let counts = ["found", "missing", "left_out", "differing"].map(|name| told[name].as_u64().unwrap());
    assert_eq!(counts, [2, 2, 2, 1], "{told}");
    let missing = std::fs::read_to_string(missing).unwrap();
    assert_eq!(missing, "/r/none\tthe catalogue does not have it\n/r\tit is no file\n");
    let url = service.text("url").to_owned();
    let created = run(&["replay", "run", "create", "first", "--service", &url]).json().remove(0);
    assert_eq!(created["accesses"], 3, "{created}");
    let kept: Vec<_> =
        std::fs::read_dir(Path::new(&runs)).unwrap().map(|of| of.unwrap().file_name()).collect();
    assert!(!kept.iter().any(|name| name.to_string_lossy().contains("of-catalogue")), "{kept:?}");

    let metrics = text_at(&url, "/metrics");
    for line in [
        "exacat_replay_run_state{run=\"first\",state=\"planned\"} 1",
        "exacat_replay_accesses_planned{run=\"first\"} 3",
        "exacat_replay_journal_faults_total 0",
    ] {
        assert!(metrics.lines().any(|of| of == line), "{line}: {metrics}");
    }
    // A catalogue that has nothing of the trace is a mistake, not an empty run.
    let trace = trace_of(place.path(), "time\tname\tsize\n1800000000\t/x/a\t5\n");
    let mut command = exacat();
    command.args(["replay", "serve", "--trace", trace.to_str().unwrap(), "--runs", &runs]).args(listen);
    assert!(Ran::of(command, b"").fails(1).contains("no file of the trace"));
}

/// Returns the body of an answer to `GET`.
fn text_at(url: &str, path: &str) -> String {
    let mut to = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    write!(to, "GET {path} HTTP/1.1\r\nhost: replay\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    to.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Writes the state of a file of 2 MiB with one block in the cache, and one access of so many bytes hit.
fn write_state(path: &Path, hit: i64) {
    let numbers = [1_i64 << 20, 2 << 20, 1000, 0, 1];
    let fixed = [&numbers.map(i64::to_le_bytes).concat()[..], &[0; 4], &1_i32.to_le_bytes()].concat();
    let access = [
        &[1001_i64, 1009].map(i64::to_le_bytes).concat()[..],
        &[1_i32, 8, 0, 0].map(i32::to_le_bytes).concat(),
        &[hit, 20, 30].map(i64::to_le_bytes).concat(),
    ];
    let behind = [&[1][..], &access.concat()].concat();
    let sum = |bytes: &[u8]| crc32c::crc32c(bytes).to_le_bytes();
    let state = [&4_i32.to_le_bytes()[..], &fixed, &sum(&fixed), &behind, &sum(&behind)].concat();
    std::fs::write(path, state).unwrap();
}

/// Property: the states of a cache's files are shown, and go to the report of a run until it has ended.
#[test]
fn states_of_a_cache_are_in_the_report() {
    let rig = Rig::new("20", &[]);
    let files = rig.place.path().join("ns/data");
    std::fs::create_dir_all(&files).unwrap();
    write_state(&files.join("a.cinfo"), 10);
    std::fs::write(files.join("b.cinfo"), "no state").unwrap();
    let namespace = rig.place.path().join("ns").display().to_string();
    let shown = run(&["replay", "cinfo", &namespace, "--files"]).json();
    assert_eq!((shown.len(), &shown[0]["lfn"], &shown[0]["hit"]), (2, &"/data/a".into(), &10.into()));
    assert_eq!((&shown[1]["files"], &shown[1]["damaged"]), (&1.into(), &1.into()), "{shown:?}");

    rig.one(&["run", "create", "first", "--in-flight", "4"]);
    let mut command = exacat();
    command.args(["--json", "replay", "cinfo", &namespace, "--run", "first", "--cache", "root://cache:1094"]);
    command.args(["--every", "100ms", "--service", &rig.url]).stdout(Stdio::piped());
    let sending = command.spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    while rig.one(&["report", "first"])["cache_files"].as_array().unwrap().is_empty() {
        assert!(Instant::now() < until, "the states do not come");
        std::thread::park_timeout(LOOK_EVERY);
    }
    write_state(&files.join("a.cinfo"), 50);
    rig.one(&["run", "start", "first"]);
    let (status, told) = ended(rig.agent("first", "a", &[]));
    assert_eq!(status, 0, "{told}");
    let (status, told) = ended(sending);
    assert_eq!((status, &told["bytes_hit"]), (0, &50.into()), "{told}");
    // A report is shown again for a moment.
    let until = Instant::now() + PATIENCE;
    let told = || rig.one(&["report", "first"])["cache_files"][0].clone();
    while told()["last"]["bytes_hit"] != 50 {
        assert!(Instant::now() < until, "{}", told());
        std::thread::park_timeout(LOOK_EVERY);
    }
    assert_eq!(told()["first"]["bytes_hit"], 10);
    let mut text = exacat();
    text.args(["replay", "report", "first", "--service", &rig.url]);
    let text = Ran::of(text, b"").ok();
    assert!(
        text.contains("Files of caches") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}
