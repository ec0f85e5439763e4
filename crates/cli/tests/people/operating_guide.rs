//! The pages for operators of a single server: their commands run as they stand, on a real server.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::service::{EXACAT, Ran, exacat};

/// Programs that the pages use beside `exacat`.
const PROGRAMS: [(&str, &str); 5] =
    [("bash", "--version"), ("curl", "--version"), ("jq", "--version"), ("openssl", "version"), ("ss", "-V")];
/// Time limit for the commands of a page.
const PAGE_SECONDS: &str = "300";

fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating")
}

#[allow(clippy::print_stderr, reason = "a skipped test is reported as such")]
fn has(program: &str, argument: &str) -> bool {
    let is_there = Command::new(program).arg(argument).output().is_ok_and(|done| done.status.success());
    if !is_there {
        eprintln!("skipped: there is no {program}");
    }
    is_there
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs the `sh` blocks of a page as one script; returns the output.
#[track_caller]
fn run(page: &str) -> String {
    let text = std::fs::read_to_string(pages().join(page)).unwrap();
    let blocks: Vec<&str> =
        text.split("```sh\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert!(!blocks.is_empty(), "{page} has commands");
    let place = tempfile::tempdir().unwrap();
    let (native, http) = (free_port().to_string(), free_port().to_string());
    let here = |name: &str| place.path().join(name).display().to_string();
    let script = blocks
        .join("\n")
        .replace("/var/lib/exacat", &here("data"))
        .replace("/srv/exacat-backup", &here("backup"))
        .replace("/srv/exacat-drill", &here("drill"))
        .replace("/srv/compare", &here("compare"))
        .replace("/srv/exacat-follower", &here("follower"))
        .replace("127.0.0.1:7420", &format!("127.0.0.1:{native}"))
        .replace("127.0.0.1:7421", &format!("127.0.0.1:{http}"));
    std::fs::write(place.path().join("page"), script).unwrap();
    let programs = Path::new(EXACAT).parent().unwrap().display().to_string();
    let mut command = Command::new("timeout");
    command.args([PAGE_SECONDS, "bash"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/people/operating_guide.sh"));
    for (name, _) in exacat().get_envs() {
        command.env_remove(name);
    }
    command
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .env("PLACE", place.path())
        .env("PAGE", place.path().join("page"))
        .env("NATIVE", native)
        .env("HTTP", http)
        .current_dir(pages());
    Ran::of(command, b"").ok()
}

fn can_run() -> bool {
    PROGRAMS.iter().all(|(program, argument)| has(program, argument))
}

#[test]
fn commands_of_the_page_on_installation_run_as_they_stand() {
    if can_run() {
        let out = run("install.md");
        assert!(out.contains("user    admin") && out.contains("user    alice"), "{out}");
        assert!(out.contains("root://se.example.org//data/"), "{out}");
    }
}

#[test]
fn commands_of_the_page_on_configuration_run_as_they_stand() {
    if can_run() {
        let out = run("configure.md");
        assert!(out.contains("memory_cache_bytes_max"), "{out}");
    }
}

#[test]
fn commands_of_the_page_on_monitoring_run_as_they_stand() {
    if can_run() && has("promtool", "--version") {
        let out = run("monitor.md");
        assert!(out.contains("exacat_store_warnings 0") && out.contains("everything agrees"), "{out}");
    }
}

#[test]
fn commands_of_the_page_on_backups_run_as_they_stand() {
    if can_run() {
        let out = run("backup-restore.md");
        assert_eq!(out.matches("everything agrees").count(), 3, "{out}");
        assert!(out.contains("run2"), "{out}");
    }
}

#[test]
fn commands_of_the_page_on_dark_data_run_as_they_stand() {
    if can_run() {
        let out = run("dark-data.md");
        assert!(out.contains("applied dark") && out.contains("/dark/data/unknown/file"), "{out}");
    }
}

#[test]
fn commands_of_the_page_on_followers_run_as_they_stand() {
    if can_run() {
        let out = run("followers.md");
        let is_behind_0 = |line: &str| line.split_whitespace().eq(["behind", "0"]);
        assert!(out.lines().any(is_behind_0) && out.contains("run2"), "{out}");
    }
}

#[test]
fn commands_of_the_page_on_upgrades_run_as_they_stand() {
    if can_run() {
        assert_eq!(run("upgrade.md").matches("everything agrees").count(), 3);
    }
}

#[test]
fn commands_of_the_page_on_trouble_run_as_they_stand() {
    if can_run() {
        let out = run("troubleshoot.md");
        assert!(out.contains("active\n") && out.contains("healthy\n"), "{out}");
    }
}

// The command line of the unit starts a server, and systemd accepts the unit.
#[test]
fn systemd_unit_is_valid_and_its_command_serves() {
    let unit = std::fs::read_to_string(pages().join("exacat.service")).unwrap();
    let unit = unit.replace("/usr/local/bin/exacat", EXACAT);
    let place = tempfile::tempdir().unwrap();
    if has("systemd-analyze", "--version") {
        let path = place.path().join("exacat.service");
        std::fs::write(&path, &unit).unwrap();
        let done = Command::new("systemd-analyze").arg("verify").arg(path).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success() && !said.contains("exacat.service:"), "{said}");
    }
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let options: Vec<String> =
        words[2..].iter().map(|word| word.replace(":7420", ":0").replace(":7421", ":0")).collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut service = crate::service::Service::start_with(&options[2..]);
    assert_eq!((words[1], options[0]), ("serve", "--listen"));
    assert!(service.addresses["http"].is_string());
    assert_eq!(service.stop(), Some(0));
}

/// Each metric that the rules, the page and the dashboards name is one of the reference. Each alert has its
/// paragraph, a test in which it fires, and one in which it stays quiet.
#[test]
fn monitoring_files_name_metrics_of_the_reference() {
    let known: Vec<String> = exacat_server::reference::metrics()
        .into_iter()
        .flat_map(|(_, metrics)| metrics)
        .map(exacat_store::Metric::full_name)
        .collect();
    let read = |name: &str| std::fs::read_to_string(pages().join(name)).unwrap();
    let boards =
        ["single-server", "cluster", "storage-elements"].map(|name| format!("dashboards/{name}.json"));
    for name in ["exacat.rules.yml", "monitor.md"].into_iter().chain(boards.iter().map(String::as_str)) {
        let text = read(name);
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        for rest in text.split("exacat_").skip(1) {
            let metric = format!("exacat_{}", rest.split(|letter| !is_name(letter)).next().unwrap());
            if metric == "exacat_" {
                continue;
            }
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| metric.strip_suffix(end));
            let is_known = |name: &str| known.iter().any(|metric| metric == name);
            assert!(is_known(&metric) || family.is_some_and(is_known), "{name}: {metric}");
        }
    }
    let (rules, tests, page) = (read("exacat.rules.yml"), read("exacat.rules.test.yml"), read("monitor.md"));
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(page.contains(&format!("\n### {alert}\n")), "{alert} has no paragraph");
        let tests: Vec<&str> =
            tests.split("alertname: ").filter(|test| test.starts_with(&format!("{alert}\n"))).collect();
        let quiet = tests.iter().filter(|test| test.contains("exp_alerts: []")).count();
        assert!(quiet >= 1 && tests.len() > quiet, "{alert}: {} tests, {quiet} of them quiet", tests.len());
    }
}

// A server whose standard error is on a full disk serves on: the same disk often has the data.
#[test]
fn server_that_cannot_write_its_log_lines_serves() {
    let place = tempfile::tempdir().unwrap();
    let mut command = exacat();
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--data"]).arg(place.path().join("data"));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(full).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    assert!(line.contains("\"socket\""), "{line}");
    crate::service::signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

// A backup of a catalogue at rest can be restored, although the last segment of its log is archived.
#[test]
fn backup_behind_an_archived_segment_restores() {
    let service = crate::service::Service::start();
    service.ok("mkdir -p /a/b");
    // A snapshot seals the segment. It is archived once a later snapshot links the archived form.
    let is_archived = (0..500).any(|number| {
        service.ok(&format!("snapshot create s{number}"));
        let log = service.data().join(format!("store/snapshots/s{number}/log"));
        std::fs::read_dir(log)
            .unwrap()
            .any(|file| file.unwrap().path().extension().is_some_and(|it| it == "logz"))
    });
    assert!(is_archived, "{}", service.log());
    let (backup, back) = (service.place().join("backup"), service.place().join("back"));
    let (backup, back) = (backup.to_str().unwrap(), back.to_str().unwrap());
    service.ok(&format!("backup {backup}"));
    service.ok(&format!("restore {backup} --data {back}"));
    service.ok(&format!("fsck --offline --data {back}"));
}
