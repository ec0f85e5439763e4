//! Completions of a shell: the script, and the values that the program offers.

use crate::service::{Ran, Service};

/// Returns the words that bash would offer for the last of these.
fn offered(service: &Service, words: &[&str]) -> Vec<String> {
    let mut command = service.command(&["--", "exacat"]);
    command.args(words);
    command.env("EXACAT_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command.env("_CLAP_IFS", "\n");
    Ran::of(command, b"").ok().lines().map(str::to_owned).collect()
}

#[test]
fn script_asks_the_program() {
    let service = Service::start();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(service.ok(&format!("completions {shell}")).contains("EXACAT_COMPLETE"), "{shell}");
    }
}

#[test]
fn lfns_and_registered_names_are_completed() {
    let service = Service::start();
    service.ok("se add VO::NEAR::DISK --prefix root://near//data");
    service.ok("se add VO::FAR::TAPE --prefix root://far//data");
    service.ok("user add alice");
    service.ok("group add physics");
    service.ok("mkdir -p /demo/data /demo/docs /other");
    service.ok("register /demo/draft --size 1");
    service.ok("snapshot create before");
    for (words, wanted) in [
        (&["ls", "/d"][..], &["/demo/"][..]),
        (&["ls", "/demo/d"], &["/demo/data/", "/demo/docs/", "/demo/draft"]),
        (&["whereis", "/demo/dr"], &["/demo/draft"]),
        (&["mv", "/demo/draft", "/o"], &["/other/"]),
        (&["find", "/demo/da"], &["/demo/data/"]),
        (&["find", "/", "--se", "VO::N"], &["VO::NEAR::DISK"]),
        (&["se", "usage", "VO::"], &["VO::FAR::TAPE", "VO::NEAR::DISK"]),
        (&["replica", "add", "/demo/draft", "VO::F"], &["VO::FAR::TAPE"]),
        (&["find", "/", "--owner", "al"], &["alice"]),
        (&["chgrp", "phy"], &["physics"]),
        (&["find", "/", "--type", "d"], &["directory"]),
        (&["replica", "state", "/demo/draft", "VO::FAR::TAPE", "l"], &["lost"]),
        (&["import", "--format", "js"], &["jsonl"]),
        (&["ls", "--sort", "s"], &["size"]),
        (&["snapshot", "verify", "be"], &["before"]),
        (&["wher"], &["whereis"]),
    ] {
        assert_eq!(offered(&service, words), wanted, "{words:?}");
    }
}

#[test]
fn without_a_server_nothing_is_offered_and_nothing_is_said() {
    let mut service = Service::start();
    service.stop();
    assert_eq!(offered(&service, &["ls", "/d"]), Vec::<String>::new());
}
