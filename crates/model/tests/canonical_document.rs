//! Checks that the document of the canonical bytes describes the code: each table is compared with
//! the macros that define the encodings.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

use std::collections::BTreeMap;

use exacat_model::{ErrorKind, Operation};

const DOCUMENT: &str = include_str!("../../../docs/internals/canonical-bytes.md");

const SOURCES: [&str; 19] = [
    include_str!("../src/account.rs"),
    include_str!("../src/answer.rs"),
    include_str!("../src/arguments.rs"),
    include_str!("../src/change.rs"),
    include_str!("../src/consistency.rs"),
    include_str!("../src/element.rs"),
    include_str!("../src/entry.rs"),
    include_str!("../src/feed.rs"),
    include_str!("../src/history.rs"),
    include_str!("../src/mutation.rs"),
    include_str!("../src/operation.rs"),
    include_str!("../src/past.rs"),
    include_str!("../src/period.rs"),
    include_str!("../src/query.rs"),
    include_str!("../src/registry.rs"),
    include_str!("../src/se.rs"),
    include_str!("../src/snapshot.rs"),
    include_str!("../src/tag.rs"),
    include_str!("../src/whereis.rs"),
];

/// Finds the content of each `$macro!(Type { … });`, by type.
fn definitions(name: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut found = BTreeMap::new();
    for source in SOURCES {
        for definition in source.split(name).skip(1) {
            let Some((head, rest)) = definition.split_once('{') else { continue };
            let Some(body) = rest.split("});").next() else { continue };
            let items = split(body).into_iter().map(str::trim).filter(|item| !item.is_empty()).collect();
            found.insert(head.trim_start_matches("!(").trim(), items);
        }
    }
    found
}

/// Splits at commas and semicolons outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            ',' | ';' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Returns the cells of the rows of a section.
fn rows(section: &str) -> Vec<Vec<&'static str>> {
    let (_, after) = DOCUMENT.split_once(&format!("## {section}\n")).expect("the section is there");
    let section = after.split("\n## ").next().expect("a first part");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns the names of the fields of `a: T, b: T`.
fn field_names(fields: &str) -> Vec<&str> {
    split(fields).into_iter().filter_map(|field| field.split_once(':')).map(|(name, _)| name.trim()).collect()
}

/// Returns the number, name and named fields of `1 => Variant { a, b }`.
fn variant(item: &str) -> (&str, &str, Vec<&str>) {
    let (number, rest) = item.split_once("=>").expect("a number and a variant");
    let rest = rest.trim();
    let name = rest.split(|character: char| !character.is_alphanumeric()).next().expect("a name");
    let fields = rest.split_once('{').map_or("", |(_, fields)| fields.trim_end_matches('}'));
    let fields = fields.split(',').map(str::trim).filter(|field| !field.is_empty()).collect();
    (number.trim(), name, fields)
}

#[test]
fn structures_have_the_fields_of_the_code() {
    let code = definitions("canonical_struct");
    let document = rows("Structures");
    assert!(document.len() > 30);
    // These are written by hand in the code.
    let by_hand = ["Se", "SeSettings"];
    for row in document {
        if by_hand.contains(&row[0]) {
            continue;
        }
        let fields = code.get(row[0]).unwrap_or_else(|| panic!("{} is documented, but not there", row[0]));
        assert_eq!(field_names(row[1]), *fields, "{}", row[0]);
    }
}

#[test]
fn operations_and_answers_have_the_numbers_and_fields_of_the_code() {
    let code = definitions("canonical_enum");
    for (section, name, fields_at) in [("Operations", "Operation", 4), ("Answers", "Answer", 2)] {
        let document = rows(section);
        assert_eq!(document.len(), code[name].len(), "{section}");
        for (row, item) in document.iter().zip(&code[name]) {
            let (number, variant, fields) = variant(item);
            assert_eq!((row[0], row[1]), (number, variant));
            assert_eq!(field_names(row[fields_at]), fields, "{variant}");
        }
    }
    for (row, name) in rows("Operations").iter().zip(Operation::NAMES) {
        assert_eq!(row[2], format!("`{name}`"));
    }
}

#[test]
fn enumerations_have_the_numbers_and_fields_of_the_code() {
    let code = definitions("canonical_enum");
    // These are written by hand in the code.
    let by_hand = ["Effect", "TagExpression", "TagValue"];
    let document = rows("Enumerations");
    assert!(document.len() > 20);
    for row in document {
        let Some(items) = code.get(row[0]) else {
            assert!(by_hand.contains(&row[0]), "{} is documented, but not there", row[0]);
            continue;
        };
        let documented = split(row[1]);
        assert_eq!(documented.len(), items.len(), "{}", row[0]);
        for (said, item) in documented.into_iter().zip(items) {
            let (number, name, fields) = variant(item);
            let (head, said_fields) = said.trim().split_once(" (").unwrap_or((said.trim(), ""));
            assert_eq!(head, format!("{number} {name}"), "{}", row[0]);
            assert_eq!(field_names(said_fields.trim_end_matches(')')), fields, "{} {name}", row[0]);
        }
    }
}

#[test]
fn errors_have_the_numbers_of_the_code() {
    for kind in ErrorKind::ALL {
        let cell = format!("| {} | {} |", kind as u8, kind.name());
        assert!(DOCUMENT.contains(&cell), "{cell}");
    }
}
