//! Rows at a fixed rate, at the time of now, with readers beside. Times count from the planned moment: a
//! server that stalls delays what is planned meanwhile, and that counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use exacat_bench::process::{own_cpu_s, process_memory_bytes, tree_cpu_s};
use exacat_bench::scatter;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::figures::{Part, ReadTimes, histogram, micros, show};
use crate::fill::BUSY_PAUSE;
use crate::reads::{RANGE_ROWS, Read, last_rows};
use crate::rows::Rows;
use crate::{Asked, Client, Connect};

/// Reads of a latest value a second.
const LATEST_A_SECOND: u64 = 100;
/// Reads of a range a second.
const RANGES_A_SECOND: u64 = 10;
/// Parts of the run whose figures are shown.
const PARTS: u64 = 10;

/// Figures since the last ones were shown.
struct Figures {
    rows: u64,
    refused: u64,
    batches: Histogram<u64>,
    latest: Histogram<u64>,
    range: Histogram<u64>,
    range_rows: u64,
}

impl Figures {
    fn new() -> Self {
        let (batches, latest, range) = (histogram(), histogram(), histogram());
        Figures { rows: 0, refused: 0, batches, latest, range, range_rows: 0 }
    }
}

/// Runs for the time that was asked for.
pub(crate) fn run(asked: &Asked, connect: Connect<'_>) {
    // A row of each element in turn, so that all rows together have the rate.
    let interval_us = asked.elements * 1_000_000 / asked.rate;
    let start_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let rows = Rows { start_ms, interval_us };
    let (begun, figures) = (Instant::now(), Mutex::new(Figures::new()));
    let (ended, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let clients: Vec<Box<dyn Client>> = (0..asked.connections).map(connect).collect();
    std::thread::scope(|scope| {
        for (number, mut client) in (0..).zip(clients) {
            let (rows, figures, ended, written) = (&rows, &figures, &ended, &written);
            scope.spawn(move || {
                let (mut body, mut batch) = (Vec::new(), Vec::new());
                let mut turn: u64 = number;
                while !ended.load(Ordering::Relaxed) {
                    let first = turn * asked.batch;
                    batch.clear();
                    batch.extend(
                        (first..first + asked.batch).map(|row| (row % asked.elements, row / asked.elements)),
                    );
                    body.clear();
                    client.put(rows, &batch, &mut body);
                    // The last row is due when the batch is.
                    let due =
                        begun + Duration::from_secs_f64((first + asked.batch) as f64 / asked.rate as f64);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let mut refused = 0;
                    while !client.send(&body) {
                        refused += 1;
                        std::thread::sleep(BUSY_PAUSE);
                    }
                    let took = micros(due.elapsed());
                    written.fetch_max(first, Ordering::Relaxed);
                    let mut figures = figures.lock();
                    figures.rows += asked.batch;
                    figures.refused += refused;
                    figures.batches.record(took).unwrap();
                    drop(figures);
                    turn += asked.connections;
                }
            });
        }
        for (rate, is_range) in [(LATEST_A_SECOND, false), (RANGES_A_SECOND, true)] {
            let (rows, figures, ended, written) = (&rows, &figures, &ended, &written);
            scope.spawn(move || {
                let (mut number, mut client) = (0, None);
                while !ended.load(Ordering::Relaxed) {
                    number += 1;
                    let due = begun + Duration::from_micros(number * 1_000_000 / rate);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    // Connections send their batches in any order: the steps before are all there.
                    let steps = (written.load(Ordering::Relaxed) / asked.elements).saturating_sub(1);
                    if steps == 0 {
                        continue;
                    }
                    let element = scatter(number) % asked.elements;
                    let read = match is_range {
                        true => last_rows(rows, element, steps),
                        false => Read::Latest { element },
                    };
                    // Not before: a server closes connections that say nothing.
                    let found = client.get_or_insert_with(|| connect(0)).read(&read);
                    let took = micros(due.elapsed());
                    let mut figures = figures.lock();
                    if is_range {
                        assert_eq!(found, (steps + 1).min(RANGE_ROWS), "element {element}, step {steps}");
                        figures.range.record(took).unwrap();
                        figures.range_rows = found;
                    } else {
                        assert_eq!(found, 1, "element {element}");
                        figures.latest.record(took).unwrap();
                    }
                }
            });
        }
        let pid = asked.pid.map(|pid| pid.to_string());
        let cpu = || (own_cpu_s(), pid.as_deref().map_or(0.0, tree_cpu_s), Instant::now());
        let mut before = cpu();
        for part in 1..=PARTS {
            let until = begun + Duration::from_millis(asked.steady_s * 1000 * part / PARTS);
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            let now = cpu();
            let taken = std::mem::replace(&mut *figures.lock(), Figures::new());
            show(
                asked,
                &Part {
                    what: format!("tenth {part}"),
                    rows: taken.rows,
                    wall_s: (now.2 - before.2).as_secs_f64(),
                    generator_s: now.0 - before.0,
                    server_s: now.1 - before.1,
                    refused: taken.refused,
                    memory_bytes: pid.as_deref().map_or(0, process_memory_bytes),
                    times: taken.batches,
                    reads: Some(ReadTimes {
                        latest: taken.latest,
                        range: taken.range,
                        rows: taken.range_rows,
                    }),
                },
            );
            before = now;
        }
        ended.store(true, Ordering::Relaxed);
    });
}
