//! The tour and the instructions for developers: each link to a function leads to it.

use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns the links to functions of a page: name and path.
fn functions(page: &str) -> Vec<(String, String)> {
    let links = page.split("[`").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once("`](")?;
        let (path, _) = rest.split_once(')')?;
        let is_name =
            name.chars().all(|letter| letter.is_ascii_lowercase() || "_0123456789".contains(letter));
        (is_name && path.ends_with(".rs")).then(|| (name.to_owned(), path.to_owned()))
    });
    links.collect()
}

/// Checks the links of a page; returns their number.
#[track_caller]
fn checked(page: &Path) -> usize {
    let text = std::fs::read_to_string(page).unwrap();
    let functions = functions(&text);
    for (name, path) in &functions {
        let source = std::fs::read_to_string(page.parent().unwrap().join(path))
            .unwrap_or_else(|error| panic!("{}: {path}: {error}", page.display()));
        let is_there = source.contains(&format!("fn {name}(")) || source.contains(&format!("fn {name}<"));
        assert!(is_there, "{}: there is no function {name} in {path}", page.display());
    }
    functions.len()
}

#[test]
fn functions_of_the_tour_stand_where_it_says() {
    let found = checked(&docs().join("tour.md"));
    assert!((15..=25).contains(&found), "{found} links to functions");
}

#[test]
fn functions_of_the_how_to_pages_stand_where_they_say() {
    for entry in std::fs::read_dir(docs().join("how-to")).unwrap() {
        checked(&entry.unwrap().path());
    }
}
