//! Rate of aggregates: a day of 1000 elements by minute, as pages of a request take them.

use exacat_model::Cursor;
use exacat_model::element::{AggregateBy, ElementCourse};
use exacat_model::limits::PAGE_ITEMS_MAX;

use super::*;
use crate::run::DAY_NANOSECONDS;

const ELEMENTS: i64 = 1000;
/// Seconds between two rows of an element.
const EVERY_S: i64 = 10;
/// Begin of the day: some days before the tests' now.
const BEGIN: i64 = NOW - NOW % DAY_NANOSECONDS - 5 * DAY_NANOSECONDS;
const MINUTE: i64 = 60_000_000_000;

/// Returns the nanoseconds that this thread has been on a processor.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Prints rows a second of a core, with the pages and all that a request does in the history; and of the scan
/// alone, which reads the same columns.
#[test]
#[ignore = "a measurement: cargo test --release -p exacat-history aggregates_are_measured -- --ignored --nocapture"]
fn aggregates_are_measured() {
    let directory = tempfile::tempdir().unwrap();
    let now = Arc::new(|| TimeMs(NOW_MS));
    let history = History::open(HistorySettings::new(directory.path().to_owned(), now)).unwrap();
    let group = make_group(&history, "det");
    let steps = DAY_NANOSECONDS / (EVERY_S * 1_000_000_000);
    for step in 0..steps {
        let line = |element: i64| {
            let time = BEGIN + (step * EVERY_S * 1000 + element) * 1_000_000;
            // A random walk in steps of a hundredth.
            let value = 800.0 + ((element * 7919 + step * step) % 9 + step % 100) as f64 / 100.0;
            format!("ev,e={element} v={value},q=0i {time}\n")
        };
        write(&history, &group, &(0..ELEMENTS).map(line).collect::<String>()).unwrap();
    }
    // A second flush, of no rows: the day is not being filled.
    history.flush().unwrap();
    history.flush().unwrap();
    history.shared.merge_all().unwrap();
    let rows = (ELEMENTS * steps) as f64;
    for _ in 0..3 {
        let begun = processor_ns();
        let field = group.names.read().field(0, "v").unwrap();
        let wanted = Wanted {
            elements: Elements::All,
            times: BEGIN..=BEGIN + DAY_NANOSECONDS - 1,
            fields: Fields::Set([field].into()),
        };
        let mut scan = group.scan(&wanted).unwrap();
        while scan.next_rows().unwrap().is_some() {}
        let scanned = processor_ns() - begun;
        println!("scan: {:.1} M rows/s of a core", rows / scanned as f64 * 1e3);
        for course in [ElementCourse::Samples, ElementCourse::Holds, ElementCourse::Line] {
            let by = AggregateBy { field: None, every: MINUTE, origin: 0, course };
            let times = (BEGIN, BEGIN + DAY_NANOSECONDS - 1);
            let (begun, mut cursor, mut intervals, mut counted) = (processor_ns(), Cursor::default(), 0, 0);
            loop {
                let (items, next) = group.aggregate_page("*", times, &by, (&cursor, PAGE_ITEMS_MAX)).unwrap();
                intervals += items.iter().map(|of| of.intervals.len()).sum::<usize>();
                counted += items.iter().flat_map(|of| &of.intervals).map(|one| one.count).sum::<u64>();
                let Some(next) = next else { break };
                cursor = next;
            }
            let took = processor_ns() - begun;
            assert_eq!(counted as f64, rows, "each row once");
            println!("{course:?}: {:.1} M rows/s of a core, {intervals} intervals", rows / took as f64 * 1e3);
        }
    }
}
