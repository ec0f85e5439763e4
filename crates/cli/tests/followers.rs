//! Followers of a real server: they serve what their source has, through kills of either side, restores of
//! the source, and cascades.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it measured"
)]

mod service;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use exacat_client::{Behind, CallOptions, Client, ClientSettings, Credentials, Target, Trust};
use exacat_model::{Answer, Lfn, Operation, OperationId};
use exacat_store::Clock;
use parking_lot::Mutex;
use serde_json::Value;
use service::Service;

/// Longest wait for a follower, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Exit status of a change whose outcome is unknown.
const UNKNOWN: i32 = 24;
const HTTP: [&str; 3] = ["--http", "127.0.0.1:0", "--http-plain"];
/// Options of a filtered follower.
const FILTERED: [&str; 5] = ["--http", "127.0.0.1:0", "--http-plain", "--under", "/data/own"];

/// A source, and the place of its followers.
struct Site {
    source: Service,
    _directory: tempfile::TempDir,
    place: PathBuf,
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        std::fs::create_dir(place.join("source")).unwrap();
        let source = Service::start_in(&place.join("source"), &HTTP);
        Site { source, place, _directory: directory }
    }

    fn token(&self) -> PathBuf {
        self.source.data().join("admin.token")
    }

    /// Starts a follower of a server.
    fn follower(&self, of: &Service, name: &str) -> Service {
        let place = self.place.join(name);
        std::fs::create_dir_all(&place).unwrap();
        Service::follow_in(&place, &plain(of), &self.token(), &HTTP)
    }

    /// Starts a filtered follower of the source.
    fn filtered(&self, name: &str) -> Service {
        let place = self.place.join(name);
        std::fs::create_dir_all(&place).unwrap();
        Service::follow_in(&place, &plain(&self.source), &self.token(), &FILTERED)
    }

    /// Starts the source again at its address.
    fn restart(&mut self) {
        let address = self.source.addresses["http"].as_str().unwrap().replace("https://", "");
        self.source.restart_with(&["--http", &address, "--http-plain"]);
    }
}

/// Returns the URL of a server's HTTP without TLS.
fn plain(of: &Service) -> String {
    of.addresses["http"].as_str().unwrap().replace("https://", "http://")
}

/// Returns the headers of an answer of a server's HTTP, and its body.
fn get(of: &Service, path: &str, token: &str) -> (HashMap<String, String>, String) {
    try_get(of, path, token).unwrap()
}

/// Like [`get`]; none from a server that is away, as while it opens another copy.
fn try_get(of: &Service, path: &str, token: &str) -> Option<(HashMap<String, String>, String)> {
    let address = plain(of).replace("http://", "");
    let mut stream = TcpStream::connect(&address).ok()?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Some((headers, body.to_owned()))
}

fn token(site: &Site) -> String {
    std::fs::read_to_string(site.token()).unwrap().trim().to_owned()
}

/// Returns the last revision of a server; none while it is away.
fn revision(site: &Site, of: &Service) -> Option<u64> {
    let (_, body) = try_get(of, "/api/v1/position", &token(site))?;
    serde_json::from_str::<Value>(&body).ok()?["revision"].as_u64()
}

/// Waits until a follower has the revision that its source has now.
fn wait(site: &Site, source: &Service, follower: &Service) {
    let wanted = revision(site, source).unwrap();
    let began = Instant::now();
    while revision(site, follower) != Some(wanted) {
        assert!(began.elapsed() < LIMIT, "the follower stays behind: {}", follower.log());
        std::thread::yield_now();
    }
}

fn digest(of: &Service) -> String {
    of.ok("digest /")
}

fn assert_same(site: &Site, source: &Service, follower: &Service) {
    wait(site, source, follower);
    assert_eq!(digest(source), digest(follower));
    assert!(follower.ok("fsck").contains("everything agrees"));
}

/// Waits until a filtered follower has what the source has now, and compares the directory.
fn assert_same_below(site: &Site, follower: &Service) {
    wait(site, &site.source, follower);
    for command in ["digest /data/own", "find /data/own", "du /data/own"] {
        assert_eq!(site.source.ok(command), follower.ok(command), "{command}");
    }
    assert!(follower.ok("fsck").contains("everything agrees"));
}

fn status(of: &Service, part: &str) -> Value {
    let parts = of.json("status");
    let part = parts.into_iter().find(|one| one["part"] == part);
    part.unwrap_or_else(|| panic!("the status has the part"))
}

/// Property: a follower serves what its source has, says how far it is behind, waits for a revision, and
/// refuses changes with the address of the source; a follower of it does so too.
#[test]
fn follower_serves_what_its_source_has() {
    let site = Site::new();
    site.source.ok("mkdir -p /a/b");
    site.source.ok("touch /a/b/f1 /a/b/f2");
    let follower = site.follower(&site.source, "first");
    assert_same(&site, &site.source, &follower);
    site.source.ok("user add alice");
    site.source.ok("mkdir /a/later");
    let now = revision(&site, &site.source).unwrap();
    let seen = follower.ok(&format!("--at-least {now} ls /a"));
    assert!(seen.contains("later"), "{seen}");
    assert!(follower.ok("user ls").contains("alice"));
    let late = follower.fails(&format!("--timeout 1s --at-least {} ls /a", now + 1000), 23);
    assert!(late.contains(&format!("did not reach {}", now + 1000)), "{late}");
    let refused = follower.fails("--timeout 1s mkdir /a/own", 23);
    assert!(refused.contains(&plain(&site.source)), "{refused}");
    let (headers, _) = get(&follower, "/api/v1/children/a", &token(&site));
    assert_eq!(headers["exacat-behind"], "0", "{headers:?}");
    assert!(headers["exacat-behind-ms"].parse::<u64>().is_ok(), "{headers:?}");
    assert_eq!(headers["exacat-revision"], now.to_string());
    let part = status(&follower, "follower");
    assert!(part.to_string().contains(&plain(&site.source)), "{part}");
    let part = status(&site.source, "followers");
    assert_eq!(part["metrics"]["followers_following"], 1, "{part}");
    let (_, metrics) = get(&follower, "/metrics", "");
    assert!(metrics.contains("exacat_follows 1"), "{metrics}");
    let second = site.follower(&follower, "second");
    site.source.ok("rm -r /a/b");
    wait(&site, &site.source, &follower);
    assert_same(&site, &follower, &second);
    assert_eq!(digest(&site.source), digest(&second));
    // Other tokens than those of admins get nothing.
    let issued = site.source.json1("token issue --user alice --lifetime 1h --write");
    let secret = issued["secret"].as_str().unwrap().to_owned();
    let (_, refused) = get(&site.source, "/follow/v1/source", &secret);
    assert!(refused.contains("denied"), "{refused}");
    let (_, refused) = get(&site.source, "/follow/v1/source", "nothing");
    assert!(refused.contains("unauthenticated"), "{refused}");
}

/// Asks a server for its root by the native protocol; returns what it said of its distance to its source.
fn asked_behind(of: &Service) -> Option<Behind> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = Target::parse(of.local_url()).unwrap();
        let client = Client::connect(target, Credentials::local(), ClientSettings::default()).await.unwrap();
        assert_eq!(client.behind(), None, "nothing was answered yet");
        client.stat(Lfn::root(), false).await.unwrap();
        let behind = client.behind();
        client.close().await;
        behind
    })
}

/// Property: answers of the native protocol say how far a follower is behind, and the command tells a person
/// once that is much.
#[test]
fn answers_say_how_far_the_follower_is_behind() {
    let mut site = Site::new();
    site.source.ok("mkdir /a");
    let follower = site.follower(&site.source, "first");
    wait(&site, &site.source, &follower);
    let behind = asked_behind(&follower).unwrap();
    let now = revision(&site, &follower).unwrap();
    assert_eq!((behind.revision.0, behind.changes), (now, 0), "{behind:?}");
    assert_eq!(asked_behind(&site.source), None);
    site.source.kill();
    let began = Instant::now();
    let told = loop {
        let told = follower.run(&["ls", "/"]).err;
        if !told.is_empty() {
            break told;
        }
        assert!(began.elapsed() < LIMIT, "the command says nothing: {:?}", asked_behind(&follower));
    };
    let expected = format!("answered by a follower at revision {now}, 0 changes and ");
    assert!(told.contains(&expected) && told.contains(" s behind its source"), "{told}");
    assert!(asked_behind(&follower).unwrap().ms >= 5_000);
    assert_eq!(follower.run(&["--quiet", "ls", "/"]).err, "");
}

/// Property: a directory of a follower is opened by no other server, and a follower refuses the catalogue
/// of another source.
#[test]
fn directories_of_followers_are_not_mixed_up() {
    let site = Site::new();
    let mut follower = site.follower(&site.source, "first");
    assert_eq!(follower.stop(), Some(0));
    let data = follower.data().display().to_string();
    let refused = site.source.fails(&format!("serve --listen 127.0.0.1:0 --data {data}"), 19);
    assert!(refused.contains("exacat follow"), "{refused}");
    let other = Service::start_with(&HTTP);
    let line = format!(
        "follow {} --token-file {} --listen 127.0.0.1:0 --data {data}",
        plain(&other),
        other.data().join("admin.token").display()
    );
    let refused = site.source.fails(&line, 19);
    assert!(refused.contains("another catalogue"), "{refused}");
}

fn load(url: &str, trust: &Path, secret: String, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let target = Target::parse(url).unwrap().trusting(Trust::CertificateFile(trust.to_owned()));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let settings = ClientSettings { deadline: LIMIT, ..ClientSettings::default() };
            let client = Client::connect(target, Credentials::token(secret), settings).await.unwrap();
            let mut made = 0;
            while !stop.load(Ordering::Relaxed) {
                let lfns = (0..50).map(|number| Lfn::parse(&format!("/load/{made}/{number}")).unwrap());
                let operation = Operation::Mkdir { lfns: lfns.collect(), parents: true, mode: None };
                client.call(operation).await.unwrap();
                made += 1;
            }
            made
        })
    })
}

/// Property: through kills of the follower and of the source under load, nothing is lost and the two are
/// equal in the end.
#[test]
fn kills_of_either_side_lose_nothing() {
    let mut site = Site::new();
    let native = site.source.url().replace("exacat://", "");
    let http = site.source.addresses["http"].as_str().unwrap().replace("https://", "");
    let stop = Arc::new(AtomicBool::new(false));
    let worker =
        load(site.source.url(), &site.source.data().join("server.crt"), token(&site), Arc::clone(&stop));
    let mut follower = site.follower(&site.source, "first");
    for round in 0..6 {
        let before = revision(&site, &follower).unwrap();
        let began = Instant::now();
        while revision(&site, &follower) < Some(before + 500) {
            assert!(began.elapsed() < LIMIT, "the follower stands still: {}", follower.log());
            std::thread::yield_now();
        }
        if round % 2 == 0 {
            follower.kill();
            follower.restart_with(&HTTP);
        } else {
            site.source.kill();
            site.source.restart_with(&["--listen", &native, "--http", &http, "--http-plain"]);
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(worker.join().unwrap() > 0);
    assert_same(&site, &site.source, &follower);
}

/// Property: a first copy that is killed again and again is whole in the end.
#[test]
fn killed_first_copy_goes_on() {
    let site = Site::new();
    for number in 0..20 {
        let names: Vec<String> = (0..50).map(|one| format!("/many/{number}/{one}")).collect();
        site.source.ok(&format!("mkdir -p {}", names.join(" ")));
    }
    let mut follower = site.follower(&site.source, "first");
    follower.kill();
    let data = follower.data().to_owned();
    for after in 1..9 {
        // One that was killed early has made nothing.
        let _made = std::fs::remove_dir_all(&data);
        follower.start_and_kill(Duration::from_millis(20 * after));
        follower.start_and_kill(Duration::from_millis(15 * after));
    }
    follower.restart_with(&HTTP);
    assert_same(&site, &site.source, &follower);
}

/// Property: a source that was restored to an earlier point is copied again by a follower that goes on
/// serving, in the same process.
#[test]
fn source_that_was_put_back_is_copied_again() {
    let mut site = Site::new();
    site.source.ok("mkdir /kept");
    site.source.ok("snapshot create before");
    let follower = site.follower(&site.source, "first");
    site.source.ok("mkdir /undone /undone2");
    wait(&site, &site.source, &follower);
    assert_eq!(site.source.stop(), Some(0));
    assert!(follower.ok("ls /").contains("undone"), "it serves without its source");
    let data = site.source.data().display().to_string();
    site.source.ok(&format!("restore before --data {data}"));
    site.restart();
    site.source.ok("mkdir /instead");
    let began = Instant::now();
    while !follower.run(&["ls", "/"]).out.contains("instead") {
        assert!(began.elapsed() < LIMIT, "the follower does not copy again: {}", follower.log());
    }
    assert!(!follower.ok("ls /").contains("undone"));
    assert_same(&site, &site.source, &follower);
}

/// A directory whose making was answered, its operation id, and the time of the answer.
type Answered = Arc<Mutex<Vec<(String, OperationId, Instant)>>>;

fn mkdir(lfn: &str) -> Operation {
    Operation::Mkdir { lfns: vec![Lfn::parse(lfn).unwrap()], parents: false, mode: None }
}

fn operation_id(number: u64) -> OperationId {
    let mut random = [0; 10];
    random[..8].copy_from_slice(&number.to_le_bytes());
    OperationId::new(exacat_store::SystemClock.now(), random)
}

/// Makes directories one after the other, and notes each that was answered.
async fn work(client: Client, worker: u64, answered: Answered, stop: Arc<AtomicBool>) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (lfn, id) = (format!("/drill/{worker}-{number}"), operation_id((worker << 32) | number));
        let options = CallOptions { operation_id: Some(id), deadline: Some(LIMIT) };
        match client.call_with(mkdir(&lfn), options).await {
            Ok(Answer::EachDone(done)) if done.iter().all(Result::is_ok) => {
                answered.lock().push((lfn, id, Instant::now()));
            }
            other => panic!("{lfn}: {other:?}"),
        }
    }
}

/// Property: with a standby, kill -9 of the source under load and a promotion lose no answered change.
/// Clients fail over by their list of servers, operation ids are recognised, and the old source takes no
/// more changes and follows the new one. Prints the time without answers.
#[test]
fn answered_changes_survive_the_promotion_of_a_standby() {
    let mut site = Site::new();
    let http = site.source.addresses["http"].as_str().unwrap().replace("https://", "");
    let native = site.source.url().replace("exacat://", "");
    site.source.ok("mkdir /drill");
    let follower = site.follower(&site.source, "standby");
    assert_eq!(site.source.stop(), Some(0));
    let addresses = ["--listen", &native, "--http", &http, "--http-plain"];
    let with_standby: Vec<&str> = addresses.iter().copied().chain(["--standby-acks", "1"]).collect();
    site.source.restart_with(&with_standby);
    let trusted: String = [&site.source, &follower]
        .map(|one| std::fs::read_to_string(one.data().join("server.crt")).unwrap())
        .concat();
    let trust = Trust::CertificateFile(site.source.file("both.crt", trusted).into());
    // The follower first: clients prefer the source wherever it is in their list.
    let target = Target::parse(&format!("{},{}", follower.url(), site.source.url())).unwrap().trusting(trust);
    let (answered, stop): (Answered, _) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let secret = token(&site);
    let settings = ClientSettings { deadline: LIMIT, ..ClientSettings::default() };
    let client = runtime.block_on(Client::connect(target, Credentials::token(secret), settings)).unwrap();
    let workers: Vec<_> = (0..4)
        .map(|worker| runtime.spawn(work(client.clone(), worker, Arc::clone(&answered), Arc::clone(&stop))))
        .collect();
    let until = |count: usize| {
        let began = Instant::now();
        while answered.lock().len() < count {
            assert!(began.elapsed() < LIMIT, "no answers: {}", follower.log());
            std::thread::yield_now();
        }
    };
    until(200);
    site.source.kill();
    let killed = Instant::now();
    let before = answered.lock().len();
    let told = follower.run(&["promote"]);
    assert_eq!(told.status, Some(0), "{}{}", told.err, follower.log());
    let promoted = killed.elapsed();
    until(before + 200);
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        runtime.block_on(worker).unwrap();
    }
    let answered = answered.lock().clone();
    let first = answered.iter().map(|(.., at)| *at).filter(|at| *at > killed + promoted).min().unwrap();
    println!(
        "{} changes answered; the promotion took {promoted:?}, the first change came {:?} after the kill",
        answered.len(),
        first - killed
    );
    let listed = follower.ok("ls /drill");
    let there: std::collections::BTreeSet<&str> = listed.lines().collect();
    for (lfn, id, _) in &answered {
        let name = lfn.strip_prefix("/drill/").unwrap();
        assert!(there.contains(name), "{lfn} was answered and is gone");
        let options = CallOptions { operation_id: Some(*id), deadline: Some(LIMIT) };
        let again = runtime.block_on(client.call_with(mkdir(lfn), options));
        let is_known = matches!(&again, Ok(Answer::EachDone(done)) if done.iter().all(Result::is_ok));
        assert!(is_known, "{lfn}: {again:?}");
    }
    assert!(follower.ok("fsck").contains("everything agrees"));
    // The source before comes back, hears of the promotion, and takes no changes, also after a restart.
    site.source.restart_with(&addresses);
    let began = Instant::now();
    loop {
        let tried = site.source.run(&["--timeout", "1s", "mkdir", "/late"]);
        if tried.status == Some(23) && tried.err.contains(follower.url()) {
            break;
        }
        assert!(began.elapsed() < LIMIT, "the old source goes on: {} {}", tried.err, site.source.log());
    }
    site.source.kill();
    site.source.restart_with(&addresses);
    site.source.fails("--timeout 1s mkdir /later", 23);
    assert_eq!(site.source.stop(), Some(0));
    let old = Service::follow_in(&site.place.join("source"), &plain(&follower), &site.token(), &HTTP);
    assert_same(&site, &follower, &old);
}

/// Property: a new source without its standby starts, answers reads and its status, and lets the standby
/// copy it; changes wait, with an unknown outcome, and are answered once the standby is there.
#[test]
fn source_starts_before_its_standby() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_owned();
    std::fs::create_dir(place.join("source")).unwrap();
    let flags: Vec<&str> = HTTP.iter().copied().chain(["--standby-acks", "1"]).collect();
    let source = Service::start_in(&place.join("source"), &flags);
    let site = Site { source, place, _directory: directory };
    assert_eq!(site.source.ok("ls /"), "");
    site.source.fails("--timeout 1s mkdir /waits", UNKNOWN);
    status(&site.source, "server");
    let mut standby = site.follower(&site.source, "standby");
    site.source.ok("mkdir -p /waits /more");
    assert_same(&site, &site.source, &standby);
    standby.kill();
    site.source.fails("--timeout 1s mkdir /late", UNKNOWN);
    // What does not show the change that waits is answered.
    site.source.ok("ls /more");
    assert!(site.source.ok("user ls").contains("admin"));
    status(&site.source, "server");
    let standby = site.follower(&site.source, "standby");
    assert!(site.source.ok("ls /").contains("late"));
    assert_same(&site, &site.source, &standby);
}

/// Property: one command makes a copy of one directory, which follows moves across its border, goes on after
/// kills of either side, and says of everything else where to ask.
#[test]
fn filtered_follower_serves_its_directory_and_nothing_else() {
    let mut site = Site::new();
    site.source.ok("mkdir -p /data/own/run1 /data/other /else");
    site.source.ok("touch /data/own/run1/f1 /data/own/f2 /data/other/f3 /else/f4");
    let mut follower = site.filtered("first");
    assert_same_below(&site, &follower);
    site.source.ok("user add alice");
    site.source.ok("mv /data/other /data/own/other");
    site.source.ok("mv /data/own/run1 /else/run1");
    site.source.ok("rm -r /data/own/f2");
    site.source.ok("touch /data/own/other/late");
    let now = revision(&site, &site.source).unwrap();
    let seen = follower.ok(&format!("--at-least {now} ls /data/own/other"));
    assert!(seen.contains("late") && seen.contains("f3"), "{seen}");
    assert_same_below(&site, &follower);
    assert!(follower.ok("user ls").contains("alice"));
    follower.ok("stat /data/own/other/late");
    follower.ok("whereis /data/own/other/f3");
    follower.fails("stat /data/own/run1", 11);
    // Everything else is elsewhere, and no list is shown that lacks something.
    for command in
        ["ls /data", "ls /", "stat /else/f4", "whereis /else/f4", "find /", "trash ls", "log /data/own"]
    {
        let refused = follower.run(&command.split(' ').collect::<Vec<_>>());
        assert_ne!(refused.status, Some(0), "{command}: {}", refused.out);
        assert!(refused.err.contains(&plain(&site.source)), "{command}: {}", refused.err);
    }
    // One path elsewhere refuses no other one.
    for command in ["stat /else/f4 /data/own/other/late", "whereis /else/f4 /data/own/other/f3"] {
        let mixed = follower.run(&command.split(' ').collect::<Vec<_>>());
        let found = command.split(' ').next_back().unwrap();
        assert!(mixed.out.contains(found), "{command}: {}{}", mixed.out, mixed.err);
        assert!(mixed.err.contains(&plain(&site.source)), "{command}: {}", mixed.err);
    }
    let refused = follower.fails("--timeout 1s mkdir /data/own/mine", 23);
    assert!(refused.contains(&plain(&site.source)), "{refused}");
    let status = follower.ok("status");
    assert!(status.contains("has only /data/own"), "{status}");
    let data = follower.data().display().to_string();
    let refused = site.source.run(&["promote", "--data", &data]);
    assert!(refused.status != Some(0) && refused.err.contains("never be promoted"), "{}", refused.err);
    // It cannot be followed itself.
    let (_, refused) = get(&follower, "/follow/v1/source", &token(&site));
    assert!(refused.contains(&plain(&site.source)), "{refused}");
    // Kills of either side.
    follower.kill();
    site.source.ok("mkdir /data/own/meanwhile");
    follower.restart_with(&FILTERED);
    assert_same_below(&site, &follower);
    site.source.kill();
    follower.ok("ls /data/own");
    site.restart();
    site.source.ok("mv /else/run1 /data/own/back");
    assert_same_below(&site, &follower);
    // Another directory, or the whole, needs another place.
    assert_eq!(follower.stop(), Some(0));
    let (source, file) = (plain(&site.source), site.token().display().to_string());
    for under in [&["--under", "/else"][..], &[]] {
        let mut args =
            vec!["follow", &source, "--token-file", &file, "--listen", "127.0.0.1:0", "--data", &data];
        args.extend(under);
        let refused = site.source.run(&args);
        assert!(refused.status != Some(0) && refused.err.contains("/data/own"), "{}", refused.err);
    }
}

/// Property: only admins get changes and rows, and a directory that is not there is refused.
#[test]
fn changes_and_rows_take_an_admin_and_a_directory_that_exists() {
    let site = Site::new();
    site.source.ok("user add alice");
    let issued = site.source.json1("token issue --user alice --lifetime 1h --write");
    for secret in [issued["secret"].as_str().unwrap(), "nothing"] {
        for path in ["/follow/v1/changes?after=0&follower=00&wait=0", "/follow/v1/rows"] {
            let (_, refused) = get(&site.source, path, secret);
            assert!(refused.contains("denied") || refused.contains("unauthenticated"), "{path}: {refused}");
        }
    }
    let (_, refused) = get(&site.source, "/follow/v1/changes?after=0&follower=00&wait=0", &token(&site));
    assert!(refused.contains("follower"), "{refused}");
    let data = site.place.join("none").display().to_string();
    let (source, file) = (plain(&site.source), site.token().display().to_string());
    let refused = site.source.run(&[
        "follow",
        &source,
        "--token-file",
        &file,
        "--listen",
        "127.0.0.1:0",
        "--under",
        "/data/own",
        "--data",
        &data,
    ]);
    assert!(refused.status != Some(0) && refused.err.contains("no directory /data/own"), "{}", refused.err);
    assert!(!PathBuf::from(&data).join("store/FOLLOWS").exists(), "a wrong name binds nothing");
}
