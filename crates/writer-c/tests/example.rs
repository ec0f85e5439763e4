//! The example in C, compiled against the header and the library, and run against a service in this process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

#[path = "../../writer-client/tests/rig/mod.rs"]
mod rig;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of the library. `make test` has built it.
fn library() -> PathBuf {
    // A test program is in target/PROFILE/deps.
    let deps = std::env::current_exe().unwrap();
    let profile = deps.ancestors().nth(2).unwrap();
    if std::env::var_os("EXACAT_LIBRARIES_BUILT").is_none() {
        let mut build = Command::new(env!("CARGO"));
        // With its tests, so that dependencies have the same features as now, and are not built again.
        build.args(["build", "--offline", "--lib", "--tests", "-p", "exacat-writer-c", "--target-dir"]);
        build.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        // Build scripts depend on these variables, which a test has: the next build would begin anew.
        let is_of_test = |name: &str| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|of_test| name.starts_with(of_test))
        };
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for name in names.filter(|name| is_of_test(name)) {
            build.env_remove(name);
        }
        assert!(build.status().unwrap().success(), "the library is built");
    }
    profile.to_owned()
}

/// Property: the example compiles without a warning, writes its events, and its files are certified. Wrong
/// arguments give codes.
#[test]
fn example_in_c_writes_certified_files() {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no C compiler (cc)");
        return;
    }
    let (here, library) = (Path::new(env!("CARGO_MANIFEST_DIR")), library());
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("produce");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c99", "-o"])
        .arg(&program)
        .arg(here.join("examples/produce.c"))
        .arg("-I")
        .arg(here.join("include"))
        .arg("-L")
        .arg(&library)
        .args(["-lexacat_writer", &format!("-Wl,-rpath,{}", library.display())])
        .status()
        .unwrap();
    assert!(compiled.success());
    let rig = rig::Rig::new(1);
    let run = Command::new(&program).args([&rig.address(0), "/run/1042/physics"]).output().unwrap();
    let (out, errors) = (String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap());
    assert!(run.status.success(), "{out}{errors}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 5, "{out}");
    assert!(lines[0].starts_with("/run/1042/physics.000001 0 400 events 40000 bytes"), "{out}");
    assert_eq!(lines[3], "1000 of 1000 events are durable");
    assert_eq!(lines[4], "a pointer is null");
    let content: Vec<u8> = rig.certified().into_values().flatten().collect();
    assert_eq!(content.len(), 100_000);
    assert!(content.chunks(100).enumerate().all(|(at, event)| event.iter().all(|byte| *byte == at as u8)));
    let failed = Command::new(&program).args(["127.0.0.1:1", "/run/1"]).output().unwrap();
    let errors = String::from_utf8(failed.stderr).unwrap();
    assert!(!failed.status.success() && errors.contains("127.0.0.1:1"), "{errors}");
}
