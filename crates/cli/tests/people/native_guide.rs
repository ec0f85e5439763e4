//! The page of the native protocol: a Python client written from it speaks with a real server.

use std::path::Path;
use std::process::Command;

use crate::service::{Ran, Service};

/// Storage element of the client's files.
const SE: &str = "se add TEST::SE --prefix root://se.example.org//data";

// A client that knows the pages only can make, register, locate, list and repeat.
#[test]
#[allow(clippy::print_stderr, reason = "a skipped test is reported as such")]
fn python_client_written_from_the_page_makes_locates_lists_and_repeats() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/people/native_client.py");
    let service = Service::start();
    service.ok(SE);
    let mut command = Command::new("python3");
    command.arg(client).arg(service.data().join("exacat.sock"));
    let out = Ran::of(command, b"").ok();
    assert!(out.ends_with(": user admin, 5 names in 3 pages\n"), "{out}");
    assert_eq!(service.json("find /page f*").len(), 5);
}
