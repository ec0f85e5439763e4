//! Table of measurements, for people and as JSON lines.

use std::io::Write;

use super::measure::Sample;

/// CPU time is counted in ticks of 1/100 s: less than this means nothing.
const CPU_S_MIN: f64 = 0.1;

/// Columns of a terminal that a line has at most.
const COLUMNS: usize = 80;

/// Returns the heads of the columns. A measurement has two lines, because its name is long.
pub(crate) fn head() -> String {
    format!(
        "target: what\n  {:>12} {:>12} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "items", "items/s", "CPU µs", "p50 µs", "p99 µs", "p99.9 µs", "max µs"
    )
}

/// Prints one measurement; the CPU time is for each item.
pub(crate) fn print(out: &mut (impl Write + ?Sized), sample: &Sample, json: bool) -> std::io::Result<()> {
    if json {
        let line = serde_json::to_string(sample).map_err(std::io::Error::other)?;
        return writeln!(out, "{line}");
    }
    let cpu_us = if sample.cpu_s < CPU_S_MIN { "-".to_owned() } else { format!("{:.2}", sample.cpu_us()) };
    writeln!(
        out,
        "{}\n  {:>12} {:>12} {:>8} {:>9} {:>9} {:>9} {:>9}",
        wrapped(&format!("{}: {}", sample.target, sample.what)),
        sample.items,
        rounded(sample.rate()),
        cpu_us,
        sample.p50_us,
        sample.p99_us,
        sample.p999_us,
        sample.max_us
    )
}

/// Breaks lines at blanks, so that they fit into a terminal; the further lines are indented alike.
pub(crate) fn wrapped(lines: &str) -> String {
    lines.split('\n').map(wrapped_line).collect::<Vec<_>>().join("\n")
}

fn wrapped_line(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mut text = " ".repeat(indent);
    let mut width = indent;
    // Blanks that align columns stay as they are.
    for (index, word) in line[indent..].split(' ').enumerate() {
        let columns = word.chars().count();
        if index > 0 && width + 1 + columns > COLUMNS && !word.is_empty() {
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent));
            width = indent;
        } else if index > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += columns;
    }
    text
}

/// Rounds to three significant digits: a shared machine is no more accurate.
pub fn rounded(rate: f64) -> String {
    if rate < 10.0 {
        return format!("{rate:.2}");
    }
    let scale = 10f64.powi((rate.log10().floor() as i32 - 2).max(0));
    let digits = format!("{:.0}", (rate / scale).round() * scale);
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn heads_and_widest_figures_fit_80_columns() {
        let sample = Sample {
            target: "in process".to_owned(),
            what: "whereis, single, 64 x 1 in flight, bare frames, and a name of unusual length".to_owned(),
            items: 999_999_999_999,
            calls: 1,
            wall_s: 10_000.0,
            cpu_s: 9e10,
            p50_us: 600_000_000,
            p99_us: 600_000_000,
            p999_us: 600_000_000,
            max_us: 600_000_000,
        };
        let mut out = Vec::new();
        print(&mut out, &sample, false).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(columns(&text) <= COLUMNS && columns(&head()) <= COLUMNS, "{text}");
        assert_eq!(head().lines().last().unwrap().chars().count(), columns(text.lines().last().unwrap()));
    }

    #[test]
    fn long_lines_are_broken_at_blanks_and_short_ones_stay() {
        for line in ["", "  a   b", "\nlibrary beside bare frames", &"x".repeat(80)] {
            assert_eq!(wrapped(line), line);
        }
        let long = format!("  {}", "word ".repeat(40));
        let text = wrapped(long.trim_end());
        assert!(
            text.lines().all(|line| line.starts_with("  word") && line.chars().count() <= COLUMNS),
            "{text}"
        );
        assert_eq!(text.split_whitespace().count(), 40);
    }

    #[test]
    fn rates_have_three_digits() {
        let pairs =
            [(0.123, "0.12"), (9.9, "9.90"), (12.3, "12"), (1234.0, "1 230"), (2_345_678.0, "2 350 000")];
        for (rate, text) in pairs {
            assert_eq!(rounded(rate), text);
        }
    }
}
