//! The history of elements at real server processes: snapshots and restores at one moment with the
//! catalogue, a damaged file, and kills under load. Nothing answered is missing, and nothing is invented.
//!
//! `EXACAT_TEST_ROUNDS` sets the number of kills.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_model::TimeMs;
use exacat_store::{Clock, SystemClock};
use serde_json::{Value, json};
use service::{Ran, Service, exacat};

/// Options of a server with a history.
const OPTIONS: [&str; 4] = ["--http", "127.0.0.1:0", "--http-plain", "--history"];
/// Kills of a default run.
const ROUNDS: u64 = 5;
/// Writers of the kill test, and rows of each of their batches.
const WRITERS: usize = 4;
const BATCH_ROWS: u64 = 25;
/// Time after which a server without an answer is unresponsive, not slow.
const LIMIT: Duration = Duration::from_secs(60);
/// Time of row 0, in nanoseconds: 2026-11-18.
const BEGIN: u64 = 1_795_000_000_000_000_000;

/// A client of InfluxDB's interface.
#[derive(Clone)]
struct Client {
    address: String,
    token: String,
}

impl Client {
    fn of(service: &Service, token: &str) -> Client {
        let url = service.addresses["http"].as_str().unwrap();
        Client { address: url.trim_start_matches("https://").to_owned(), token: token.to_owned() }
    }

    /// Sends a request; returns the status and the body.
    fn send(&self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let (address, token, length) = (&self.address, &self.token, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Token {token}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let cut = || std::io::Error::other("the answer is cut off");
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(cut)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(cut)?;
        Ok((status, body.to_owned()))
    }

    /// Writes lines. True if they were answered as durable.
    fn write(&self, lines: &str) -> bool {
        self.send("POST", "/write?db=dcs", lines).is_ok_and(|(status, _)| status == 204)
    }

    fn query(&self, statement: &str) -> Value {
        let encoded: String = statement.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (status, body) = self.send("GET", &format!("/query?db=dcs&epoch=ns&q={encoded}"), "").unwrap();
        assert_eq!(status, 200, "{statement}: {body}");
        // The body may come in chunks.
        let begin = body.find('{').unwrap();
        let end = body.rfind('}').unwrap();
        serde_json::from_str(&body[begin..=end]).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// Returns time and value of all rows of an element, in order.
    fn rows(&self, element: &str) -> Vec<(u64, u64)> {
        let answer = self.query(&format!("SELECT \"v\" FROM \"ev\" WHERE \"e\" = '{element}'"));
        let values = &answer["results"][0]["series"][0]["values"];
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
        values
            .as_array()
            .map_or_else(Vec::new, |rows| rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect())
    }
}

/// Starts a server with a group of elements; returns it with the secret of a writer.
fn start() -> (Service, String) {
    let service = Service::start_with(&OPTIONS);
    let token = service.json1("token issue --write --lifetime 1d")["secret"].as_str().unwrap().to_owned();
    let client = Client::of(&service, &token);
    client.query("CREATE DATABASE \"dcs\"");
    (service, token)
}

fn on(data: &Path, line: &str) -> Ran {
    let mut command = exacat();
    command.env("EXACAT_DATA", data).args(line.split_whitespace());
    Ran::of(command, b"")
}

fn now_ms() -> u64 {
    SystemClock.now().0
}

/// Waits until the clock has gone on.
fn next_ms() -> u64 {
    let begin = now_ms();
    while now_ms() <= begin + 1 {
        std::thread::yield_now();
    }
    now_ms()
}

/// Updates a value and an entry of the catalogue, and reads both.
fn step(service: &Service, client: &Client, number: u64) {
    assert!(client.write(&format!("ev,e=demo v={number}i {}", BEGIN + number)));
    service.ok(&format!("mkdir -p /demo/n{number:03}"));
    assert_eq!(client.rows("demo").last(), Some(&(BEGIN + number, number)));
    assert!(service.ok("ls /demo").contains(&format!("n{number:03}")));
}

/// Requires that value and entry of exactly the first `count` steps are there.
fn has_steps(service: &Service, client: &Client, count: u64) {
    let rows: Vec<(u64, u64)> = (1..=count).map(|number| (BEGIN + number, number)).collect();
    assert_eq!(client.rows("demo"), rows);
    let entries: Vec<String> = (1..=count).map(|number| format!("n{number:03}")).collect();
    let listed = service.ok("ls /demo");
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), entries);
}

fn files_of(data: &Path, ending: &str) -> Vec<PathBuf> {
    let names = std::fs::read_dir(data.join("history/files")).unwrap();
    let paths = names.map(|name| name.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|of| of == ending)).collect()
}

/// A data file is damaged by dd while values and entries change. The check names the file. A restore of
/// the snapshot and the log after it brings back everything that was answered, to the end or to a time.
#[test]
fn damaged_file_is_found_and_nothing_answered_is_missing_after_the_restore() {
    let (mut service, token) = start();
    let mut client = Client::of(&service, &token);
    for number in 1..=10 {
        step(&service, &client, number);
    }
    let begun = Instant::now();
    let taken = service.json1("snapshot create one");
    let snapshot_took = begun.elapsed();
    assert!(taken["elements"]["revision"].as_u64().unwrap() >= 10, "{taken}");
    assert!(service.ok("snapshot ls").contains(" VALUES"));
    assert!(service.ok("snapshot verify one").contains("all good"));
    for number in 11..=20 {
        step(&service, &client, number);
    }
    let at_20 = next_ms();
    next_ms();
    for number in 21..=30 {
        step(&service, &client, number);
    }
    service.stop();
    let data = service.data().to_owned();
    let run = files_of(&data, "run").pop().expect("closing writes a run");
    let target = format!("of={}", run.display());
    let damage = ["if=/dev/urandom", &target, "bs=16", "seek=5", "count=2", "conv=notrunc", "status=none"];
    assert!(Command::new("dd").args(damage).status().unwrap().success());
    let found = Instant::now();
    let fsck = on(&data, "fsck --offline");
    assert_eq!(fsck.status, Some(25), "{fsck:?}");
    assert!(fsck.out.contains(run.to_str().unwrap()), "{}", fsck.out);
    let (fsck_took, begun) = (found.elapsed(), Instant::now());
    let restored = on(&data, "restore one --until now").ok();
    let restore_took = begun.elapsed();
    assert!(restored.contains("values of elements: restored up to record"), "{restored}");
    service.restart_with(&OPTIONS);
    client = Client::of(&service, &token);
    has_steps(&service, &client, 30);
    println!("snapshot {snapshot_took:?}, check {fsck_took:?}, restore with roll-forward {restore_took:?}");
    // The restored history goes on.
    step(&service, &client, 31);
    service.stop();
    let sound = on(&data, "fsck --offline").ok();
    assert!(sound.contains("values of 1 element: 31 rows"), "{sound}");
    // To a time between, from the log that the first restore kept; and the snapshot itself.
    let until = iso(at_20);
    on(&data, &format!("restore one --until {until}")).ok();
    service.restart_with(&OPTIONS);
    has_steps(&service, &Client::of(&service, &token), 20);
    service.stop();
    on(&data, "restore one").ok();
    service.restart_with(&OPTIONS);
    has_steps(&service, &Client::of(&service, &token), 10);
    service.stop();
    // The first restore of the three replaced a log with all 30 steps.
    let replaced = data.join("store/replaced/1");
    on(&data, &format!("restore one --until now --log {}", replaced.display())).ok();
    service.restart_with(&OPTIONS);
    has_steps(&service, &Client::of(&service, &token), 30);
    service.stop();
    on(&data, "restore one").ok();
    service.restart_with(&OPTIONS);
    // A clone has the values of its snapshot, and goes on by itself.
    let clone = service.place().join("clone");
    std::fs::create_dir_all(&clone).unwrap();
    service.ok(&format!("clone one {}", clone.join("data").display()));
    let cloned = Service::start_in(&clone, &OPTIONS);
    has_steps(&cloned, &Client::of(&cloned, &token), 10);
    step(&cloned, &Client::of(&cloned, &token), 11);
    has_steps(&service, &Client::of(&service, &token), 10);
    service.ok("snapshot drop one");
    assert!(!data.join("store/snapshots/one").exists());
}

/// Backups have the values of elements, also if only these changed. A restore from them leads to the newest
/// backup, and to a time between two.
#[test]
fn backups_have_the_values_up_to_each_time() {
    let (mut service, token) = start();
    let client = Client::of(&service, &token);
    let backups = service.place().join("backups").to_str().unwrap().to_owned();
    for number in 1..=5 {
        step(&service, &client, number);
    }
    service.ok(&format!("backup {backups}"));
    for number in 6..=10 {
        step(&service, &client, number);
    }
    let at_10 = next_ms();
    next_ms();
    step(&service, &client, 11);
    service.ok(&format!("backup {backups}"));
    assert!(client.write(&format!("ev,e=alone v=1i {BEGIN}")));
    let last = service.ok(&format!("backup {backups}"));
    assert!(!last.contains("nothing changed"), "{last}");
    service.ok(&format!("backup --verify {backups}"));
    service.stop();
    // Values that were there already stay in the replaced copy.
    for (name, until, count) in
        [("newest", String::new(), 11), ("between", format!(" --until {}", iso(at_10)), 10)]
    {
        let place = service.place().join(name);
        let data = place.join("data");
        std::fs::create_dir_all(&place).unwrap();
        let restored = on(&data, &format!("restore {backups}{until}")).ok();
        assert!(restored.contains("values of elements: restored up to record"), "{restored}");
        let again = Service::start_in(&place, &OPTIONS);
        let client = Client::of(&again, &token);
        has_steps(&again, &client, count);
        assert_eq!(client.rows("alone").len(), usize::from(count == 11));
    }
    let path = format!("{backups}/history/log");
    let segment = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let damaged = on(service.data(), &format!("backup --verify {backups}"));
    assert_eq!(damaged.status, Some(25), "{damaged:?}");
    assert!(damaged.out.contains(segment.to_str().unwrap()), "{}", damaged.out);
}

/// Returns a time in the form of RFC 3339.
fn iso(ms: u64) -> String {
    TimeMs(ms).to_string()
}

/// `find --during` finds the entries of the times in which an element had a value, by their time or by their
/// run. Of the history it reads the times that the search leaves, and the value that holds when these begin.
#[test]
fn entries_of_a_state_are_found() {
    let (service, token) = start();
    let client = Client::of(&service, &token);
    let write = |element: &str, value: &str| {
        let time = next_ms();
        assert!(client.write(&format!("{element} v={value} {}", time * 1_000_000)));
        next_ms();
        time
    };
    let make = |name: &str, run: u32| {
        service.ok(&format!("mkdir -p /during/{name}"));
        service.ok(&format!("tag set /during/{name} run={run}"));
        next_ms()
    };
    write("run", "5i");
    let on = write("beam", "\"ON\"");
    let after_first = make("first", 5);
    let off = write("beam", "\"OFF\"");
    write("run", "6i");
    make("second", 6);
    write("run", "7i");
    write("beam", "\"ON\"");
    make("third", 7);
    let find = |more: &str| -> Vec<String> {
        let found = service.ok(&format!("find /during --type d --during {more}"));
        let names =
            found.lines().map(|line| line.trim_start_matches("/during/").trim_end_matches('/').to_owned());
        names.filter(|name| !name.is_empty()).collect()
    };
    assert_eq!(find("dcs:beam=ON"), ["first", "third"]);
    assert_eq!(find("dcs:beam!=ON"), ["second"]);
    assert_eq!(find("dcs:beam=ON --during-by run"), ["first", "third"]);
    // The value that holds when the range begins was set before it.
    assert_eq!(find(&format!("dcs:beam=ON --created-after {}", iso(on + 1))), ["first", "third"]);
    assert_eq!(find(&format!("dcs:beam=ON --created-after {}", iso(off))), ["third"]);
    assert_eq!(find(&format!("dcs:beam=ON --created-before {}", iso(after_first))), ["first"]);
    let none: [&str; 0] = [];
    assert_eq!(find(&format!("dcs:beam=OFF --created-before {}", iso(after_first))), none);
    assert_eq!(find("dcs:beam=ON --count"), ["2 0"]);
    for wrong in ["dcs:nothing=ON", "dcs:beam", "none:beam=ON", "dcs:beam>3"] {
        let ran = service.run(&["find", "/during", "--during", wrong]);
        assert_ne!(ran.status, Some(0), "{wrong}: {ran:?}");
    }
    // A second element of the name makes it unclear which one is meant.
    assert!(client.write("one,name=twice v=1 1\nother,name=twice v=1 1"));
    let ran = service.run(&["find", "/during", "--during", "dcs:twice=1"]);
    assert!(ran.status != Some(0) && ran.err.contains("several elements"), "{ran:?}");
}

/// A writer of one element: rows that it sent, and rows that were answered.
#[derive(Default)]
struct Writer {
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Writer {
    /// Writes batches until the server is gone. A batch without an answer is sent again, as clients do.
    fn run(&self, client: &Client, name: usize, ended: &AtomicBool) {
        while !ended.load(Ordering::Relaxed) {
            let first = self.answered.load(Ordering::Relaxed) + 1;
            let numbers = first..first + BATCH_ROWS;
            let time = |number: u64| BEGIN + number * 1_000_000;
            let lines: String =
                numbers.map(|number| format!("ev,e=w{name} v={number}i {}\n", time(number))).collect();
            self.sent.fetch_max(first + BATCH_ROWS - 1, Ordering::Relaxed);
            if !client.write(&lines) {
                return;
            }
            self.answered.store(first + BATCH_ROWS - 1, Ordering::Relaxed);
        }
    }
}

/// Kills the server under writes again and again, also while it starts, and between it ends in order.
/// After each restart every answered row is there, and every row that is there was sent.
#[test]
fn killed_server_has_every_answered_value() {
    let rounds = std::env::var("EXACAT_TEST_ROUNDS").ok().map_or(ROUNDS, |text| text.parse().unwrap());
    let (mut service, token) = start();
    let writers: Vec<Writer> = (0..WRITERS).map(|_| Writer::default()).collect();
    for round in 0..rounds {
        let client = Client::of(&service, &token);
        let ended = AtomicBool::new(false);
        let begin: u64 = writers.iter().map(|writer| writer.answered.load(Ordering::Relaxed)).sum();
        std::thread::scope(|scope| {
            for (name, writer) in writers.iter().enumerate() {
                let (client, ended) = (&client, &ended);
                scope.spawn(move || writer.run(client, name, ended));
            }
            let limit = Instant::now() + LIMIT;
            let answered =
                || writers.iter().map(|writer| writer.answered.load(Ordering::Relaxed)).sum::<u64>();
            while answered() < begin + 2000 + round * 731 % 3000 {
                assert!(Instant::now() < limit, "the server answers nothing: {}", service.log());
                std::thread::yield_now();
            }
            if round % 2 == 1 {
                service.ok(&format!("snapshot create k{round}"));
            }
            match round % 3 {
                2 => drop(service.stop()),
                _ => service.kill(),
            }
            ended.store(true, Ordering::Relaxed);
        });
        if round % 4 == 1 {
            // Killed again while it opens.
            service.start_and_kill(Duration::from_millis(round * 37 % 200));
        }
        service.restart_with(&OPTIONS);
        let client = Client::of(&service, &token);
        for (name, writer) in writers.iter().enumerate() {
            let rows = client.rows(&format!("w{name}"));
            let (answered, sent) =
                (writer.answered.load(Ordering::Relaxed), writer.sent.load(Ordering::Relaxed));
            let count = rows.len() as u64;
            assert!(count >= answered, "round {round}: {count} rows of w{name}, {answered} were answered");
            assert!(count <= sent, "round {round}: {count} rows of w{name}, {sent} were sent");
            for (row, number) in rows.iter().zip(1..) {
                assert_eq!(*row, (BEGIN + number * 1_000_000, number), "round {round}: w{name}");
            }
        }
    }
    service.stop();
    let checked = on(service.data(), "--json fsck --offline");
    let checked: Value = serde_json::from_str(&checked.ok()).unwrap();
    assert_eq!(checked["elements"]["problems"], json!([]), "{checked}");
    let count: u64 = writers.iter().map(|writer| writer.answered.load(Ordering::Relaxed)).sum();
    println!("{rounds} ends, {count} rows answered, all there");
}
