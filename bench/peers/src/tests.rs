//! Every peer, small: that every line is measured, answers are right, and what is killed opens again.

use super::*;

/// Returns the output of a small run of one peer.
async fn small(who: Who, exacat: Option<PathBuf>) -> String {
    let place = tempfile::tempdir().unwrap();
    let mut args =
        Args::parse_from(["bench-peers", "--entries", "2000", "--cache", "64MiB", "--buffer-pool", "128MiB"]);
    args.exacat = exacat;
    let plan = Plan { layout: Layout::new(args.entries), time: Duration::from_millis(50), only: None };
    let mut out = Vec::new();
    let mut report = Report::new(&mut out, false);
    measure_one(who, &args, 0, place.path(), &plan, &mut report).await.unwrap();
    String::from_utf8(out).unwrap()
}

fn has_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

const LINES: [&str; 13] = [
    "make directories",
    "create, groups of 1000, durable",
    "tenths of the time",
    "create, groups of 1000, until quiet",
    "look-up by path, uniform",
    "look-up, batches of 128, hot set",
    "look-up, 100 of one directory",
    "look-up by GUID",
    "look-up, not there",
    "list directories of 1000",
    "list one large directory",
    "usage below a directory",
    "open after a kill",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_is_measured() {
    let text = small(Who::Engine, None).await;
    has_lines(&text, &LINES);
    has_lines(&text, &["bytes a file on disk", "rename a directory"]);
}

#[cfg(feature = "rocksdb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rocksdb_is_measured() {
    let text = small(Who::Rocksdb, None).await;
    has_lines(&text, &LINES);
    has_lines(&text, &["bytes a file on disk", "rename a directory", "names and GUIDs are free"]);
}

/// An installed MariaDB is measured in all its ways. A missing one is left out, with a note.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_is_measured_or_left_out() {
    let text = small(Who::Mariadb, None).await;
    if mariadb::Programs::find().is_none() {
        return has_lines(&text, &["MariaDB: left out"]);
    }
    has_lines(&text, &LINES);
    has_lines(
        &text,
        &[
            "create, single, durable: as JAliEn",
            "create, single, durable: one transaction",
            "look-up by path, hot set: as JAliEn",
            "look-up by GUID: one statement",
            "rename a directory: as JAliEn",
            "rename a directory: one statement",
        ],
    );
}

/// Without a binary to serve with it says so, and goes on.
#[tokio::test]
async fn without_a_binary_nothing_is_served() {
    let text = small(Who::Served, None).await;
    has_lines(&text, &["exacat served: left out", "--exacat"]);
}

#[test]
fn numbers_and_sizes_are_read() {
    assert_eq!(number("200M"), Ok(200_000_000));
    assert_eq!(number("7"), Ok(7));
    assert_eq!(size("6gib"), Ok(6 << 30));
    for bad in ["", "M", "0", "1x", "-1", "99999999999G"] {
        assert!(number(bad).is_err(), "{bad}");
    }
    assert!(size("1M").is_err() && seconds("0").is_err() && seconds("nan").is_err());
    assert_eq!(seconds("2.5"), Ok(2.5));
}
