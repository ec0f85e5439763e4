//! The conformance suite on the memory store. Also checks that the suite is whole: every clause and
//! every row has a test, and every test is in it.

use std::collections::BTreeSet;

use exacat_model::Mutation;
use exacat_testkit::MemoryFactory;
use exacat_testkit::conformance::TESTS;

exacat_testkit::conformance_suite!(MemoryFactory);

const CONTRACT: &str = include_str!("../../../store/src/contract.rs");

/// Returns the clauses as the contract's text numbers them, in small letters: `a1`, `r9`.
fn clauses() -> BTreeSet<String> {
    let starts = CONTRACT.lines().filter_map(|line| line.strip_prefix("//! * **"));
    starts.filter_map(|rest| rest.split([' ', '*']).next()).map(str::to_lowercase).collect()
}

#[test]
fn every_clause_has_a_test() {
    let clauses = clauses();
    assert!(clauses.len() >= 24, "the contract's clauses are found: {clauses:?}");
    for clause in &clauses {
        let prefix = format!("{clause}_");
        assert!(TESTS.iter().any(|(_, name)| name.starts_with(&prefix)), "no test of clause {clause}");
    }
}

#[test]
fn every_row_has_a_test() {
    let rows: Vec<&str> = CONTRACT
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"))
        .filter_map(|rest| rest.split('`').next())
        .collect();
    assert_eq!(rows.len(), 13, "one row for each kind of mutation: {rows:?}");
    for row in rows {
        let prefix: String = row
            .chars()
            .enumerate()
            .flat_map(|(at, letter)| {
                let gap = (at > 0 && letter.is_uppercase()).then_some('_');
                gap.into_iter().chain(letter.to_lowercase())
            })
            .chain(['_'])
            .collect();
        assert!(TESTS.iter().any(|(_, name)| name.starts_with(&prefix)), "no test named {prefix}…");
    }
    let release = Mutation::Release { guid: exacat_model::Guid([0; 16]), se: None, only_expired: false };
    assert_eq!(release.name(), "release", "rows are named as mutations are");
}

#[test]
fn every_test_is_of_a_clause_or_row_and_in_the_suite() {
    let sources = [
        ("applying", include_str!("../../src/conformance/applying.rs")),
        ("bounds", include_str!("../../src/conformance/bounds.rs")),
        ("deleting", include_str!("../../src/conformance/deleting.rs")),
        ("entries", include_str!("../../src/conformance/entries.rs")),
        ("history", include_str!("../../src/conformance/history.rs")),
        ("judging", include_str!("../../src/conformance/judging.rs")),
        ("moving", include_str!("../../src/conformance/moving.rs")),
        ("reading", include_str!("../../src/conformance/reading.rs")),
        ("records", include_str!("../../src/conformance/records.rs")),
        ("uploads", include_str!("../../src/conformance/uploads.rs")),
    ];
    let mut written = BTreeSet::new();
    for (module, source) in sources {
        let names = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        written.extend(names.filter_map(|rest| rest.split('(').next()).map(|name| (module, name)));
    }
    let in_suite: BTreeSet<_> = TESTS.iter().copied().collect();
    assert_eq!(written, in_suite);
    assert_eq!(in_suite.len(), TESTS.len(), "none is in it twice");
    let clauses = clauses();
    let rows = [
        "create", "update", "move", "remove", "restore", "purge", "reserve", "commit", "release", "dequeue",
        "set", "drop",
    ];
    for (_, name) in TESTS {
        let prefix = name.split('_').next().unwrap_or_default();
        assert!(clauses.contains(prefix) || rows.contains(&prefix), "{name} names no clause and no row");
    }
}
