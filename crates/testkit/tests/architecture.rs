//! Checks that the workspace is as ARCHITECTURE.md says. Crates are in the order of data flow, each
//! using only those above it. Every file states its purpose, and is short enough to be read; names
//! have a meaning. Links of pages resolve, pages fit a screen, and decision records are complete.

#![allow(clippy::expect_used, clippy::panic, reason = "a panic is how a test says what it found")]

use std::path::{Path, PathBuf};

/// Maximum lines of a file: a longer one has two subjects.
const FILE_LINES_MAX: usize = 800;

/// Names that say nothing about the content.
const EMPTY_NAMES: [&str; 10] =
    ["util", "utils", "common", "manager", "managers", "helper", "helpers", "misc", "base", "core"];

/// Folder of the crate for tests only.
const DEV_ONLY: &str = "testkit";

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate is in crates/ of the workspace").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the members in their order, by the name of their folder.
fn members() -> Vec<String> {
    let manifest = read(&root().join("Cargo.toml"));
    let list = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).expect("members");
    list.split('"').filter_map(|text| text.strip_prefix("crates/")).map(str::to_owned).collect()
}

/// Returns our crates among the dependencies in a manifest's section, by the name of their folder.
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
    let mut waiting: Vec<PathBuf> = ["crates", "bench", "fuzz"].map(|folder| root().join(folder)).into();
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        let entries =
            std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                // Build output is not part of the sources.
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

/// Goal: the first crate does no I/O and keeps no time: it uses nothing that could.
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

/// Characters of a line of a comment.
const COMMENT_LINE_CHARS_MAX: usize = 110;

/// Words that no doc comment opens with: a reader expects a noun or a verb (CONTRIBUTING.md).
const WRONG_OPENINGS: [&str; 7] = ["What", "Who", "Whoever", "Where", "How", "Of", "That"];

#[test]
fn comments_open_with_a_noun_or_a_verb_and_are_not_too_long() {
    let mut wrong = Vec::new();
    for path in rust_files() {
        let text = read(&path);
        let mut in_doc = false;
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.trim_start();
            let place = || format!("{}:{number}", shown(&path));
            let chars = line.chars().count();
            if comment.starts_with("//") && chars > COMMENT_LINE_CHARS_MAX {
                wrong.push(format!("{}: {chars} characters, the limit is {COMMENT_LINE_CHARS_MAX}", place()));
            }
            let doc = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
            if let Some(doc) = doc
                && !in_doc
                && let Some(word) = doc.split_whitespace().next()
                && WRONG_OPENINGS.contains(&word.trim_end_matches([',', '.', ':']))
            {
                wrong.push(format!("{}: opens with {word}", place()));
            }
            in_doc = doc.is_some();
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Goal: an example in a doc comment is a test. Most crates have none, and a run of their doc tests
/// would read each of them once more, so `make test` names the crates that have some.
#[test]
fn example_of_a_doc_comment_is_compiled_by_the_doc_tests() {
    let makefile = read(&root().join("Makefile"));
    let run = makefile.lines().find(|line| line.contains("test --locked --doc ")).expect("doc tests");
    for path in rust_files() {
        let name = shown(&path);
        let Some(member) = name.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) else {
            continue;
        };
        let is_tested = run.contains(&format!("-p exacat-{member}"));
        if is_tested || !name.contains("/src/") {
            continue;
        }
        let mut is_open = false;
        for (number, line) in (1..).zip(read(&path).lines()) {
            let comment = line.trim_start();
            let doc = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
            let Some(fence) = doc.and_then(|doc| doc.trim().strip_prefix("```")) else { continue };
            is_open = !is_open;
            assert!(
                !is_open || fence.starts_with("text"),
                "{name}:{number}: an example, but `make test` runs no doc tests of exacat-{member}"
            );
        }
    }
}

/// Returns the names of the dependencies that a lock file gives a package.
fn locked(lock: &str, package: &str) -> Option<Vec<String>> {
    let block = lock
        .split("[[package]]")
        .find(|block| block.lines().any(|line| line == format!("name = \"{package}\"")))?;
    let list =
        block.split("dependencies = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let names = list.split('"').skip(1).step_by(2).filter_map(|text| text.split(' ').next());
    Some(names.map(str::to_owned).collect())
}

/// Returns the names of the dependencies in a manifest that are neither for tests nor optional.
fn declared(manifest: &str) -> Vec<String> {
    let (mut inside, mut names) = (false, Vec::new());
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]") && !line.contains("dev-dependencies");
        } else if inside
            && line.starts_with(|first: char| first.is_ascii_alphabetic())
            && !line.contains("optional = true")
        {
            names.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    names
}

/// Goal: the lock files of other workspaces are up to date. `make bench-peers` and `make fuzz`
/// build with `--locked`, so a new dependency of a crate belongs into them, too.
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

/// Longest line of a page, apart from tables, code blocks and targets of links.
const PAGE_LINE_CHARS_MAX: usize = 110;

/// Longest ARCHITECTURE.md, in lines.
const ARCHITECTURE_LINES_MAX: usize = 150;

/// Sections of a decision record, in their order.
const RECORD_SECTIONS: [&str; 4] = ["Context", "Choice", "Rejected", "Consequences"];

/// Returns the files below a folder whose names end in `.md`.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut waiting = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        let entries =
            std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns all pages for readers, sorted within their folder.
fn pages() -> Vec<PathBuf> {
    let mut pages = pages_below(&root().join("docs"));
    assert!(pages.len() > 60, "the pages of docs/ are found");
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "cluster/README.md"];
    pages.extend(names.map(|name| root().join(name)));
    pages
}

/// Returns the path of a page from the root of the repository, for messages.
fn shown(page: &Path) -> String {
    page.strip_prefix(root()).unwrap_or(page).display().to_string()
}

/// Returns the lines of a page outside of code blocks, with their numbers from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            lines.push((number, line));
        }
    }
    lines
}

/// Splits a line into its text without the targets of links, and these targets. Text in backquotes
/// has no links.
fn without_targets(line: &str) -> (String, Vec<String>) {
    let (mut text, mut targets) = (String::new(), Vec::new());
    for (place, piece) in line.split('`').enumerate() {
        if place > 0 {
            text.push('`');
        }
        if place % 2 == 1 {
            text.push_str(piece);
            continue;
        }
        let mut rest = piece;
        while let Some((before, after)) = rest.split_once("](") {
            let Some((target, behind)) = after.split_once(')') else { break };
            text.push_str(before);
            text.push(']');
            targets.push(target.to_owned());
            rest = behind;
        }
        text.push_str(rest);
    }
    (text, targets)
}

/// Returns the anchors of the headings of a page, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).into_iter().filter(|(_, line)| line.starts_with('#'));
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    headings
        .map(|(_, line)| {
            let title: String = line.trim_start_matches('#').trim().chars().filter(kept).collect();
            title.to_lowercase().replace(' ', "-")
        })
        .collect()
}

/// Returns the fault of a link, if it leads nowhere.
fn broken(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => page.to_owned(),
        _ => page.parent().unwrap_or(page).join(path),
    };
    if !file.exists() {
        return Some(format!("no file {path}"));
    }
    let has_anchor = anchor.is_empty() || anchors(&read(&file)).iter().any(|known| known == anchor);
    (!has_anchor).then(|| format!("no heading #{anchor} in {}", shown(&file)))
}

#[test]
fn every_link_of_a_page_resolves() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for (number, line) in prose(&read(&page)) {
            for target in without_targets(line).1 {
                count += 1;
                if let Some(fault) = broken(&page, &target) {
                    wrong.push(format!("{}:{number}: {target}: {fault}", shown(&page)));
                }
            }
        }
    }
    assert!(count > 100, "links are found");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_page_that_a_source_file_names_exists() {
    let in_page = |letter: char| letter.is_ascii_alphanumeric() || "-_/.".contains(letter);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in rust_files() {
        let text = read(&path);
        for (place, _) in text.match_indices("docs/") {
            let name: String = text[place..].chars().take_while(|letter| in_page(*letter)).collect();
            let name = name.trim_end_matches('.');
            if name.ends_with(".md") {
                count += 1;
                if !root().join(name).exists() {
                    wrong.push(format!("{}: no page {name}", shown(&path)));
                }
            }
        }
    }
    assert!(count > 10, "names of pages are found");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_line_of_a_page_is_too_long() {
    let mut wrong = Vec::new();
    for page in pages() {
        let name = shown(&page);
        for (number, line) in prose(&read(&page)) {
            let chars = without_targets(line).0.chars().count();
            if !line.starts_with('|') && chars > PAGE_LINE_CHARS_MAX {
                wrong
                    .push(format!("{name}:{number}: {chars} characters, the limit is {PAGE_LINE_CHARS_MAX}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn architecture_page_is_short() {
    let lines = read(&root().join("ARCHITECTURE.md")).lines().count();
    assert!(lines <= ARCHITECTURE_LINES_MAX, "{lines} lines, the limit is {ARCHITECTURE_LINES_MAX}");
}

/// Returns the name of a file without its folder.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the numbers of decision records that a text names: its words of four digits.
fn record_numbers(text: &str) -> Vec<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| word.len() == 4 && word.bytes().all(|digit| digit.is_ascii_digit())).collect()
}

#[test]
fn every_decision_record_has_a_status_and_a_line_in_the_table() {
    let folder = root().join("docs/decisions");
    let table = read(&folder.join("README.md"));
    let files: Vec<String> = pages_below(&folder).iter().map(|page| file_name(page)).collect();
    let records: Vec<&String> = files.iter().filter(|name| *name != "README.md").collect();
    assert!(records.len() >= 57, "the decision records are found");
    let numbers: Vec<&str> = records.iter().filter_map(|name| name.get(..4)).collect();
    let mut rows = Vec::new();
    for (name, place) in records.iter().zip(1..) {
        let text = read(&folder.join(name));
        let mut lines = text.lines();
        let number = format!("{place:04}");
        let title = lines.next().and_then(|line| line.strip_prefix(&format!("# {number}: ")));
        let title = title.unwrap_or_else(|| panic!("{name}: the first line is no `# {number}: title`"));
        assert!(name.starts_with(&format!("{number}-")), "{name}: the file name begins with {number}-");
        let status = lines.nth(1).and_then(|line| line.strip_prefix("Status: "));
        let status = status.unwrap_or_else(|| panic!("{name}: the third line is no `Status: `"));
        let named = record_numbers(status);
        for other in &named {
            assert!(numbers.contains(other) && *other != number, "{name}: no other record {other}");
        }
        assert!(
            status.starts_with("accepted") || status.starts_with("superseded by ") && !named.is_empty(),
            "{name}: the status is neither `accepted` nor `superseded by NNNN`: {status}"
        );
        let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(sections, RECORD_SECTIONS, "{name}: the sections and their order");
        rows.push(format!("| [{number}]({name}) | {title} | {status} |"));
    }
    let listed: Vec<&str> = table.lines().filter(|line| line.starts_with("| [")).collect();
    assert_eq!(listed, rows, "the table in docs/decisions/README.md");
}

/// Goal: tests wait for conditions, through the bounded helpers of `testkit::waiting`. A pause in
/// place of a condition is a flake on a slow machine, and a delay on a fast one.
#[test]
fn tests_do_not_sleep() {
    let helper = root().join("crates/testkit/src/waiting.rs");
    let mut wrong = Vec::new();
    for path in rust_files().into_iter().filter(|path| *path != helper) {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        if !(name.contains("/tests/") || name.starts_with("crates/testkit/src/")) {
            continue;
        }
        // In two parts, so that this file does not contain it.
        let pause = concat!("sle", "ep(");
        let is_pause = |place: usize, text: &str| {
            !text[..place].ends_with(|before: char| before.is_alphanumeric() || before == '_')
        };
        let text = read(&path);
        let count = text.match_indices(pause).filter(|(place, _)| is_pause(*place, &text)).count();
        if count > 0 {
            wrong.push(format!("{name}: {count} pauses"));
        }
    }
    assert!(wrong.is_empty(), "wait for a condition instead:\n{}", wrong.join("\n"));
}
