//! That the workspace is what ARCHITECTURE.md says: crates in the order of data flow, each using only those above
//! it; every file says what it is for, and is short enough to be read; nothing is named after nothing.

#![allow(clippy::expect_used, clippy::panic, reason = "a panic is how a test says what it found")]

use std::path::{Path, PathBuf};

/// Beyond this a file has two subjects.
const FILE_LINES_MAX: usize = 900;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 10] =
    ["util", "utils", "common", "manager", "managers", "helper", "helpers", "misc", "base", "core"];

/// What only tests may use, wherever it stands.
const DEV_ONLY: &str = "testkit";

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate is in crates/ of the workspace").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The members in their order, by the name of their folder.
fn members() -> Vec<String> {
    let manifest = read(&root().join("Cargo.toml"));
    let list = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).expect("members");
    list.split('"').filter_map(|text| text.strip_prefix("crates/")).map(str::to_owned).collect()
}

/// What a manifest's section names as dependencies of ours, by the name of their folder.
fn uses(manifest: &str, section: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line == format!("[{section}]");
        } else if inside && let Some(rest) = line.strip_prefix("exacat-") {
            found.extend(rest.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    found
}

fn rust_files() -> Vec<PathBuf> {
    let mut waiting = vec![root().join("crates")];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        let entries =
            std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                // A target folder is not ours to judge.
                if path.file_name().is_none_or(|name| name != "target") {
                    waiting.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 50, "the workspace's files are found");
    found
}

#[test]
fn a_crate_uses_only_those_above_it() {
    let members = members();
    assert_eq!(members.first().map(String::as_str), Some("model"));
    assert_eq!(members.last().map(String::as_str), Some(DEV_ONLY), "what is for tests comes last");
    let folders = std::fs::read_dir(root().join("crates")).expect("crates/");
    for folder in folders {
        let name = folder.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(members.contains(&name), "crates/{name} is not a member of the workspace");
    }
    for (place, member) in members.iter().enumerate() {
        let manifest = read(&root().join("crates").join(member).join("Cargo.toml"));
        assert!(
            manifest.contains(&format!("name = \"exacat-{member}\"")),
            "{member}: folder and name differ"
        );
        let above = &members[..place];
        for section in ["dependencies", "build-dependencies"] {
            for used in uses(&manifest, section) {
                assert!(above.contains(&used), "exacat-{member} uses exacat-{used}, which is not above it");
            }
        }
        for used in uses(&manifest, "dev-dependencies") {
            assert!(
                above.contains(&used) || used == DEV_ONLY,
                "tests of exacat-{member} use exacat-{used}, which is neither above it nor for tests"
            );
        }
    }
}

/// The first crate does no I/O and keeps no time: it uses nothing that could.
#[test]
fn the_vocabulary_does_nothing() {
    let sources = rust_files().into_iter().filter(|path| path.starts_with(root().join("crates/model/src")));
    for path in sources {
        let text = read(&path);
        for word in ["std::fs", "std::net", "std::io", "SystemTime", "Instant::now", "tokio"] {
            assert!(!text.contains(word), "{}: {word} in the vocabulary", path.display());
        }
    }
}

#[test]
fn every_file_says_what_it_is_for_and_is_not_too_long() {
    let mut wrong = Vec::new();
    for path in rust_files() {
        let text = read(&path);
        let first = text.lines().next().unwrap_or_default();
        let says = first.strip_prefix("//!").is_some_and(|rest| rest.trim().len() >= 10);
        let lines = text.lines().count();
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        if !says {
            wrong.push(format!("{name}: the first line is no `//!` that says what the file is for"));
        }
        if lines > FILE_LINES_MAX {
            wrong.push(format!("{name}: {lines} lines, the limit is {FILE_LINES_MAX}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn nothing_is_named_after_nothing() {
    for path in rust_files() {
        let name = path.strip_prefix(root()).unwrap_or(&path).to_owned();
        for part in name.with_extension("").components().skip(1) {
            let part = part.as_os_str().to_string_lossy().into_owned();
            assert!(!EMPTY_NAMES.contains(&part.as_str()), "{}: name it after what is in it", name.display());
        }
    }
}

/// Names of the dependencies that a lock file gives a package.
fn locked(lock: &str, package: &str) -> Option<Vec<String>> {
    let block = lock
        .split("[[package]]")
        .find(|block| block.lines().any(|line| line == format!("name = \"{package}\"")))?;
    let list =
        block.split("dependencies = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let names = list.split('"').skip(1).step_by(2).filter_map(|text| text.split(' ').next());
    Some(names.map(str::to_owned).collect())
}

/// Names of the dependencies in a manifest that are not for tests.
fn declared(manifest: &str) -> Vec<String> {
    let (mut inside, mut names) = (false, Vec::new());
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]") && !line.contains("dev-dependencies");
        } else if inside && line.starts_with(|first: char| first.is_ascii_alphabetic()) {
            names.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    names
}

/// `make bench-peers` and `make fuzz` build with `--locked`: a new dependency of a crate belongs
/// into their lock files, too.
#[test]
fn lock_files_of_other_workspaces_know_every_dependency_of_the_crates() {
    for workspace in ["bench/peers", "fuzz"] {
        let lock = read(&root().join(workspace).join("Cargo.lock"));
        let mut known = 0;
        for member in members() {
            let Some(locked) = locked(&lock, &format!("exacat-{member}")) else { continue };
            known += 1;
            let manifest = read(&root().join("crates").join(&member).join("Cargo.toml"));
            for name in declared(&manifest) {
                assert!(
                    locked.contains(&name),
                    "{workspace}/Cargo.lock does not know that exacat-{member} needs {name}: \
                     cargo update --workspace --manifest-path {workspace}/Cargo.toml"
                );
            }
        }
        assert!(known > 2, "{workspace}/Cargo.lock has the crates");
    }
}
