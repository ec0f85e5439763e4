//! Cost of a range of one element whose rows are spread over many flushes.

use std::time::Instant;

use exacat_testkit::waiting::eventually;

use super::*;
use crate::run::day_of;

/// Rows of an element in a flush. Also the case for a million elements and [`crate::MEMTABLE_BYTES`].
const ROWS_OF_FLUSH: i64 = 4;
/// Time between two rows of an element.
const INTERVAL_NS: i64 = 7_000_000_000;
/// Rows of a range.
const RANGE_ROWS: i64 = 300;

fn value_of(element: i64, row: i64) -> f64 {
    let mixed = (element << 24 ^ row).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 40;
    (element * 100 + mixed % 7) as f64 / 100.0
}

/// Returns what a field of a file of `/proc` says of this thread.
fn of_thread(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/thread-self/{file}")).unwrap();
    let rest = text.split_once(field).unwrap().1;
    rest.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

/// Reads ranges up to a row, and prints what one costs.
fn print_ranges(what: &str, group: &Arc<Group>, elements: i64, rows: i64) {
    let reads_of: i64 = std::env::var("READS").map_or(300, |value| value.parse().unwrap());
    let (from, to) = (NOW + (rows - RANGE_ROWS).max(0) * INTERVAL_NS, NOW + rows * INTERVAL_NS - 1);
    let of_day = |day: i32| group.rows.read().runs.days().get(&day).map_or(0, Vec::len);
    let runs: usize = (day_of(from)..=day_of(to)).map(of_day).sum();
    let read = |number: i64| {
        let element = (number * 7919 % elements) as u32;
        let wanted =
            Wanted { elements: Elements::one(element), times: from..=to, fields: Fields::Set([0].into()) };
        let (mut scan, mut count) = (group.scan(&wanted).unwrap(), 0);
        while let Some(rows) = scan.next_rows().unwrap() {
            count += rows.rows();
        }
        assert_eq!(count as i64, rows.min(RANGE_ROWS));
    };
    (0..reads_of / 10).for_each(&read);
    let (begun, cpu, reads) = (Instant::now(), of_thread("schedstat", ""), of_thread("io", "syscr:"));
    (0..reads_of).for_each(&read);
    let us = |ns: u64| ns as f64 / 1e3 / reads_of as f64;
    println!(
        "{:>9} rows, {what}: {runs} runs of the day, {:.1} reads of a file, {:.0} us, {:.0} us of CPU",
        rows * elements,
        (of_thread("io", "syscr:") - reads) as f64 / reads_of as f64,
        us(u64::try_from(begun.elapsed().as_nanos()).unwrap()),
        us(of_thread("schedstat", "") - cpu),
    );
}

/// Prints the cost of a range of 300 rows after so many flushes, and the rows that merges wrote for a row.
#[test]
#[ignore = "a measurement: cargo test --release -p exacat-history ranges_are_measured -- --ignored --nocapture"]
fn ranges_are_measured() {
    let number = |name: &str, or: i64| std::env::var(name).map_or(or, |value| value.parse().unwrap());
    let (elements, flushes) = (number("ELEMENTS", 50_000), number("FLUSHES", 250));
    let directory = tempfile::tempdir().unwrap();
    let settings = HistorySettings {
        memtable_bytes: 1 << 30,
        log_kept_bytes: 0,
        ..HistorySettings::new(directory.path().join("history"), Arc::new(|| TimeMs(NOW_MS)))
    };
    let history = History::open(settings).unwrap();
    let wide = GroupSettings { elements_max: 2_000_000, ..group_settings("g") };
    let group = wait(history.set_group(wide)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let begun = Instant::now();
    for flush in 0..flushes {
        let mut body = String::new();
        for row in flush * ROWS_OF_FLUSH..(flush + 1) * ROWS_OF_FLUSH {
            for element in 0..elements {
                let time = NOW + row * INTERVAL_NS + element % 7000 * 1_000_000;
                body.push_str(&format!(
                    "ev,e=SYS1:dcs/ch{element:06}.vMon v={},q=0i {time}\n",
                    value_of(element, row)
                ));
            }
        }
        let (mut refused, mut place) = (Refused::default(), 0);
        while place < body.len() {
            let mut ingest = Ingest::new(&group, NOW + flushes * ROWS_OF_FLUSH * INTERVAL_NS);
            place = ingest.lines(body.as_bytes(), place, Precision::Nanoseconds, &mut refused);
            wait(history.commit(ingest.finish())).unwrap();
        }
        history.flush().unwrap();
        let done = flush + 1;
        if [1, 10, 75, 100, 150, 200, 225, 240, 245].contains(&done) || done == flushes {
            println!("{:.1} s", begun.elapsed().as_secs_f64());
            print_ranges("as they are", &group, elements, done * ROWS_OF_FLUSH);
        }
    }
    let is_quiet = || history.shared.next_merge().is_none();
    runtime.block_on(eventually("merges end", is_quiet));
    print_ranges("after the merges", &group, elements, flushes * ROWS_OF_FLUSH);
}
