//! The pages of docs/reference that are made from the program.

use crate::service::{Ran, exacat};

/// Goal: the pages in the repository are those that the program makes.
#[test]
fn pages_of_the_reference_are_current() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = exacat();
    command.arg("reference").arg(directory.path());
    Ran::of(command, b"").ok();
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let mut count = 0;
    for page in std::fs::read_dir(directory.path()).unwrap() {
        let page = page.unwrap();
        let made = std::fs::read_to_string(page.path()).unwrap();
        let found = std::fs::read_to_string(kept.join(page.file_name())).unwrap_or_default();
        let line = made.lines().zip(found.lines()).position(|(made, found)| made != found);
        let name = page.file_name();
        assert!(
            made == found,
            "{name:?} is stale from line {:?} on: make reference",
            line.map(|line| line + 1)
        );
        assert!(made.lines().count() > 20, "{name:?}: {made}");
        count += 1;
    }
    assert_eq!(count, 6, "cli, configuration, errors, json, metrics, waits");
}
