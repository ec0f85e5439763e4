//! Checks that the document of the protocol describes the code: its tables of frames and limits are
//! compared.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

use exacat_model::Operation;
use exacat_model::limits::READ_BATCH_MAX;
use exacat_wire::native::limits::{
    BATCH_OPERATIONS_MAX, CREDIT_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MAX_LEAST, HANDSHAKE_FRAME_BYTES_MAX,
    HEADER_BYTES, PEER_NAME_BYTES_MAX, REASON_BYTES_MAX, SECRET_BYTES_MAX,
};
use exacat_wire::native::{FrameType, MAGIC, PROTOCOL_VERSION};

const DOCUMENT: &str = include_str!("../../../docs/internals/native-protocol.md");

const CANONICAL: &str = include_str!("../../../docs/internals/canonical-bytes.md");

/// Returns the cells of the row that begins with these two.
fn row(first: &str, second: &str) -> Vec<String> {
    let start = format!("| {first} | {second} |");
    let line =
        DOCUMENT.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no row {start}"));
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn the_table_of_frames_is_the_codes() {
    for frame_type in FrameType::ALL {
        let cells = row(&(frame_type as u8).to_string(), frame_type.name());
        let flags = cells[3].split_whitespace().map(|flag| flag.parse::<u8>().unwrap()).sum::<u8>();
        assert_eq!(flags, frame_type.flags_allowed(), "{}", frame_type.name());
        assert_eq!(cells[4] == "0", !frame_type.admits_request(1), "{}", frame_type.name());
        assert_eq!(cells[4].ends_with('0'), frame_type.admits_request(0), "{}", frame_type.name());
    }
}

#[test]
fn the_limits_are_the_codes() {
    let flat = DOCUMENT.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        format!("Version {PROTOCOL_VERSION}."),
        format!("the number of bytes that follow, at least {}", HEADER_BYTES - 4),
        format!("to the end, 1 to {BATCH_OPERATIONS_MAX} times"),
        format!("so many more parts may be sent: u32, at most {CREDIT_MAX}"),
        format!("never lets more than {CREDIT_MAX} be outstanding"),
        format!("why: text, at most {REASON_BYTES_MAX} bytes"),
        format!("its length field included: u32, at least {FRAME_BYTES_MAX_LEAST}"),
        format!("the secret of a bearer token: text, at most {SECRET_BYTES_MAX} bytes"),
        format!("for logs, at most {PEER_NAME_BYTES_MAX} bytes"),
        format!("a frame has at most {HANDSHAKE_FRAME_BYTES_MAX} bytes"),
        format!("never more than {} MiB", FRAME_BYTES_MAX >> 20),
        MAGIC.map(|byte| format!("{byte:02x}")).join(" "),
    ] {
        assert!(flat.contains(&said), "the document does not say: {said}");
    }
}

/// Returns the cells of the rows of a section of a page.
fn rows<'a>(page: &'a str, section: &str) -> Vec<Vec<&'a str>> {
    let (_, after) = page.split_once(&format!("## {section}\n")).expect("the section is there");
    let section = after.split("\n## ").next().expect("a first part");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn each_operation_has_its_answer_its_pages_and_its_limit() {
    let (operations, answers) = (rows(CANONICAL, "Operations"), rows(CANONICAL, "Answers"));
    let described = rows(DOCUMENT, "Operations");
    let names: Vec<String> = Operation::NAMES.iter().map(|name| format!("`{name}`")).collect();
    assert_eq!(described.iter().map(|row| row[0]).collect::<Vec<_>>(), names);
    for (row, operation) in described.iter().zip(operations) {
        let &[name, answer, pages, items, _] = row.as_slice() else { panic!("{row:?} has five cells") };
        assert_eq!(name, operation[2]);
        let fields = operation[4];
        // The position of `changes` is its cursor.
        assert_eq!(pages == "yes", fields.contains("cursor: Cursor") || name == "`changes`", "{name}");
        let answer =
            answers.iter().find(|row| row[1] == answer).unwrap_or_else(|| panic!("{name}: {answer}"));
        assert!(pages != "yes" || answer[2].contains("next: optional Cursor"), "{name}");
        assert!(items.is_empty() || items == READ_BATCH_MAX.to_string(), "{name}");
        assert!(!items.is_empty() || !answer[2].starts_with("list of result"), "{name} has a limit");
    }
}
