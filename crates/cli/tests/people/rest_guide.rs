//! The guide to the REST API: its blocks run as they stand, with `curl`, `jq` and Python.

use std::process::Command;

use crate::service::{Ran, Service};

/// Entries of the sample catalogue.
const SAMPLE_ENTRIES: &str = "2000";

/// Returns the code blocks of one language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    page.split(start.as_str()).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

#[allow(clippy::print_stderr, reason = "a skipped test is reported as such")]
fn has(program: &str, arguments: &[&str]) -> bool {
    let is_there = Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success());
    if !is_there {
        eprintln!("skipped: there is no {program} {}", arguments.join(" "));
    }
    is_there
}

#[test]
fn blocks_of_the_rest_guide_run_as_they_stand() {
    if !(has("curl", &["--version"]) && has("jq", &["--version"])) {
        return;
    }
    let page = include_str!("../../../../docs/how-to/rest.md");
    let service = Service::start_with(&["--http", "127.0.0.1:0"]);
    service.ok(&format!("generate --entries {SAMPLE_ENTRIES}"));
    let address = service.addresses["http"].as_str().unwrap();
    let port = address.rsplit_once(':').unwrap().1;
    let run = |program: &str, option: &str, script: &str| {
        let mut command = Command::new(program);
        command.args([option, script]).env("XDG_DATA_HOME", service.place());
        Ran::of(command, b"")
    };
    // The guide's data directory is XDG_DATA_HOME/exacat.
    std::os::unix::fs::symlink(service.data(), service.place().join("exacat")).unwrap();
    let shell = blocks(page, "sh");
    let (first, tasks) = shell.split_first().unwrap();
    let first = format!("set -euo pipefail\n{}", first.replace(":7421", &format!(":{port}")));
    assert_eq!(tasks.len(), 10, "ten tasks");
    for (number, task) in tasks.iter().enumerate() {
        let out = run("bash", "-c", &format!("{first}\n{task}")).ok();
        // The fifth prints what was refused: nothing.
        assert_eq!(out.is_empty(), number == 4, "task {}: {out}", number + 1);
        assert!(!out.contains("null"), "task {}: {out}", number + 1);
    }
    let python = blocks(page, "python");
    assert_eq!(python.len(), 4);
    if has("python3", &["-c", "import requests"]) {
        let script = format!("{first}\npython3 -c '{}'", python.concat().replace('\'', "'\\''"));
        let out = run("bash", "-c", &script).ok();
        let told: Vec<&str> = out.lines().collect();
        assert_eq!((told[0], told[2]), ("admin", "1000 files located"), "{out}");
        assert!(told[1].starts_with("bytes in files of /demo: "), "{out}");
    }
}
