//! Table of measurements, for people and as JSON lines.

use std::io::Write;

use super::measure::Sample;

/// CPU time is counted in ticks of 1/100 s: less than this means nothing.
const CPU_S_MIN: f64 = 0.1;

/// Returns the heads of the columns.
pub fn head() -> String {
    format!(
        "{:<11} {:<58} {:>11} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "target", "what", "items", "items/s", "CPU µs/it", "p50 µs", "p99 µs", "p99.9 µs", "max µs"
    )
}

/// Prints one line.
pub fn print(out: &mut (impl Write + ?Sized), sample: &Sample, json: bool) -> std::io::Result<()> {
    if json {
        let line = serde_json::to_string(sample).map_err(std::io::Error::other)?;
        return writeln!(out, "{line}");
    }
    let cpu_us = if sample.cpu_s < CPU_S_MIN { "-".to_owned() } else { format!("{:.2}", sample.cpu_us()) };
    writeln!(
        out,
        "{:<11} {:<58} {:>11} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}",
        sample.target,
        sample.what,
        sample.items,
        rounded(sample.rate()),
        cpu_us,
        sample.p50_us,
        sample.p99_us,
        sample.p999_us,
        sample.max_us
    )
}

/// Rounds to three significant digits: a shared machine is no more accurate.
pub fn rounded(rate: f64) -> String {
    if rate < 1000.0 {
        return format!("{rate:.0}");
    }
    let scale = 10f64.powi(rate.log10().floor() as i32 - 2);
    let whole = ((rate / scale).round() * scale) as u64;
    let digits = whole.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}
