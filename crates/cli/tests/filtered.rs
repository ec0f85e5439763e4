//! Filtered followers of a real server: one directory, by one command, through kills of either side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use service::Service;

/// Longest wait for a follower, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
const HTTP: [&str; 3] = ["--http", "127.0.0.1:0", "--http-plain"];
const FILTERED: [&str; 5] = ["--http", "127.0.0.1:0", "--http-plain", "--under", "/data/own"];

struct Site {
    source: Service,
    place: PathBuf,
    _directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        std::fs::create_dir(place.join("source")).unwrap();
        let source = Service::start_in(&place.join("source"), &HTTP);
        Site { source, place, _directory: directory }
    }

    fn address(&self) -> String {
        self.source.addresses["http"].as_str().unwrap().replace("https://", "http://")
    }

    fn token(&self) -> PathBuf {
        self.source.data().join("admin.token")
    }

    fn follower(&self, name: &str) -> Service {
        let place = self.place.join(name);
        std::fs::create_dir_all(&place).unwrap();
        Service::follow_in(&place, &self.address(), &self.token(), &FILTERED)
    }

    fn revision(&self, of: &Service) -> u64 {
        let body = get(of, "/api/v1/position", std::fs::read_to_string(self.token()).unwrap().trim());
        serde_json::from_str::<Value>(&body).unwrap()["revision"].as_u64().unwrap()
    }

    /// Waits until the follower has what its source has now, and compares the directory.
    fn assert_same(&self, follower: &Service) {
        let wanted = self.revision(&self.source);
        let began = Instant::now();
        while self.revision(follower) < wanted {
            assert!(began.elapsed() < LIMIT, "the follower stays behind: {}", follower.log());
            std::thread::yield_now();
        }
        for command in ["digest /data/own", "find /data/own", "du /data/own"] {
            assert_eq!(self.source.ok(command), follower.ok(command), "{command}");
        }
        assert!(follower.ok("fsck").contains("everything agrees"));
    }
}

/// Returns the body of an answer of a server's HTTP.
fn get(of: &Service, path: &str, token: &str) -> String {
    let address = of.addresses["http"].as_str().unwrap().replace("https://", "");
    let mut stream = TcpStream::connect(&address).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Property: one command makes a copy of one directory, which follows moves across its border, goes on after
/// kills of either side, and says of everything else where to ask.
#[test]
fn filtered_follower_serves_its_directory_and_nothing_else() {
    let mut site = Site::new();
    site.source.ok("mkdir -p /data/own/run1 /data/other /else");
    site.source.ok("touch /data/own/run1/f1 /data/own/f2 /data/other/f3 /else/f4");
    let mut follower = site.follower("first");
    site.assert_same(&follower);
    site.source.ok("user add alice");
    site.source.ok("mv /data/other /data/own/other");
    site.source.ok("mv /data/own/run1 /else/run1");
    site.source.ok("rm -r /data/own/f2");
    site.source.ok("touch /data/own/other/late");
    let now = site.revision(&site.source);
    let seen = follower.ok(&format!("--at-least {now} ls /data/own/other"));
    assert!(seen.contains("late") && seen.contains("f3"), "{seen}");
    site.assert_same(&follower);
    assert!(follower.ok("user ls").contains("alice"));
    follower.ok("stat /data/own/other/late");
    follower.ok("whereis /data/own/other/f3");
    follower.fails("stat /data/own/run1", 11);
    // Everything else is elsewhere, and no list is shown that lacks something.
    for command in ["ls /data", "ls /", "stat /else/f4", "whereis /else/f4", "find /", "trash ls", "log /data/own"] {
        let refused = follower.run(&command.split(' ').collect::<Vec<_>>());
        assert_ne!(refused.status, Some(0), "{command}: {}", refused.out);
        assert!(refused.err.contains(&site.address()), "{command}: {}", refused.err);
    }
    let refused = follower.fails("--timeout 1s mkdir /data/own/mine", 23);
    assert!(refused.contains(&site.address()), "{refused}");
    let status = follower.ok("status");
    assert!(status.contains("has only /data/own"), "{status}");
    let data = follower.data().display().to_string();
    let refused = site.source.run(&["promote", "--data", &data]);
    assert!(refused.status != Some(0) && refused.err.contains("never be promoted"), "{}", refused.err);
    // It cannot be followed itself.
    let token = std::fs::read_to_string(site.token()).unwrap();
    let refused = get(&follower, "/follow/v1/source", token.trim());
    assert!(refused.contains(&site.address()), "{refused}");
    // Kills of either side.
    follower.kill();
    site.source.ok("mkdir /data/own/meanwhile");
    follower.restart_with(&FILTERED);
    site.assert_same(&follower);
    let address = site.address().replace("http://", "");
    site.source.kill();
    follower.ok("ls /data/own");
    site.source.restart_with(&["--http", &address, "--http-plain"]);
    site.source.ok("mv /else/run1 /data/own/back");
    site.assert_same(&follower);
    // Another directory, or the whole, needs another place.
    assert_eq!(follower.stop(), Some(0));
    let (source, token) = (site.address(), site.token().display().to_string());
    for under in [&["--under", "/else"][..], &[]] {
        let mut args =
            vec!["follow", &source, "--token-file", &token, "--listen", "127.0.0.1:0", "--data", &data];
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
            let refused = get(&site.source, path, secret);
            assert!(refused.contains("denied") || refused.contains("unauthenticated"), "{path}: {refused}");
        }
    }
    let token = std::fs::read_to_string(site.token()).unwrap();
    let refused = get(&site.source, "/follow/v1/changes?after=0&follower=00&wait=0", token.trim());
    assert!(refused.contains("follower"), "{refused}");
    let data = site.place.join("none").display().to_string();
    let (source, token) = (site.address(), site.token().display().to_string());
    let refused = site.source.run(&[
        "follow",
        &source,
        "--token-file",
        &token,
        "--listen",
        "127.0.0.1:0",
        "--under",
        "/data/own",
        "--data",
        &data,
    ]);
    assert!(refused.status != Some(0) && refused.err.contains("no directory /data/own"), "{}", refused.err);
}
