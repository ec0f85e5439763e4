//! Figures of a part of a run, for people and as JSON.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Asked;

/// Times of reads.
pub(crate) struct ReadTimes {
    pub latest: Histogram<u64>,
    pub range: Histogram<u64>,
    /// Rows of a range.
    pub rows: u64,
}

/// Result of a part of the run.
pub(crate) struct Part {
    pub what: String,
    pub rows: u64,
    pub wall_s: f64,
    pub generator_s: f64,
    pub server_s: f64,
    pub refused: u64,
    /// Resident memory of the server.
    pub memory_bytes: u64,
    pub times: Histogram<u64>,
    pub reads: Option<ReadTimes>,
}

/// Returns a histogram of microseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(3).unwrap()
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn ms(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1000.0
}

pub(crate) fn show(asked: &Asked, part: &Part) {
    let rate = part.rows as f64 / part.wall_s;
    let us = |seconds: f64| seconds * 1e6 / part.rows.max(1) as f64;
    if asked.json {
        let reads = part.reads.as_ref().map_or_else(String::new, |reads| {
            format!(
                ",\"latest_p50_ms\":{:.3},\"latest_p99_ms\":{:.3},\"latest_max_ms\":{:.3},\"range_p50_ms\":{:.3},\
                 \"range_p99_ms\":{:.3},\"range_max_ms\":{:.3},\"range_rows\":{}",
                ms(&reads.latest, 0.5),
                ms(&reads.latest, 0.99),
                ms(&reads.latest, 1.0),
                ms(&reads.range, 0.5),
                ms(&reads.range, 0.99),
                ms(&reads.range, 1.0),
                reads.rows
            )
        });
        println!(
            "{{\"what\":\"{}\",\"rows\":{},\"rows_s\":{rate:.0},\"server_us\":{:.3},\"generator_us\":{:.3},\"p50_ms\":{:.2},\
             \"p99_ms\":{:.2},\"max_ms\":{:.2},\"refused\":{},\"memory_mib\":{}{reads}}}",
            part.what,
            part.rows,
            us(part.server_s),
            us(part.generator_s),
            ms(&part.times, 0.5),
            ms(&part.times, 0.99),
            ms(&part.times, 1.0),
            part.refused,
            part.memory_bytes >> 20
        );
        return;
    }
    let reads = part.reads.as_ref().map_or_else(String::new, |reads| {
        format!(
            "\n  latest p50 {:.3} p99 {:.3} max {:.1} ms, {} rows p50 {:.3} p99 {:.3} max {:.1} ms",
            ms(&reads.latest, 0.5),
            ms(&reads.latest, 0.99),
            ms(&reads.latest, 1.0),
            reads.rows,
            ms(&reads.range, 0.5),
            ms(&reads.range, 0.99),
            ms(&reads.range, 1.0)
        )
    });
    println!(
        "{:<16} {:>8.0} rows/s, server {:.2} us, generator {:.2} us, {} MiB{}\n  batch p50 {:.1} p99 {:.1} max {:.1} ms{reads}",
        part.what,
        rate,
        us(part.server_s),
        us(part.generator_s),
        part.memory_bytes >> 20,
        if part.refused > 0 { format!(", refused {}", part.refused) } else { String::new() },
        ms(&part.times, 0.5),
        ms(&part.times, 0.99),
        ms(&part.times, 1.0)
    );
}
