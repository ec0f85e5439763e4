//! Numbers over time, as lines in SVG and as a legend with the last, least, average and largest number.

use std::fmt::Write as _;

use exacat_model::TimeMs;

use super::table::{Cell, NUMBER, Table};
use super::text::time;

/// Size of the picture, and space for the texts in it.
const WIDTH: u64 = 1000;
const HEIGHT: u64 = 260;
const MARGIN: u64 = 40;
/// Width of a letter of the legend.
const LETTER: u64 = 9;

/// A line.
pub(super) struct Line {
    pub name: &'static str,
    /// Its values, in the order of time.
    pub points: Vec<(TimeMs, u128)>,
}

/// Draws lines between two moments, from 0 to the largest number; nothing without points.
pub(super) fn lines(
    what: &str,
    lines: &[Line],
    (from, to): (TimeMs, TimeMs),
    show: fn(u128) -> String,
) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let Some(top) = points().map(|(_, value)| *value).max() else { return String::new() };
    let (bottom, high, wide) = (HEIGHT - MARGIN, HEIGHT - 2 * MARGIN, WIDTH - 2 * MARGIN);
    let mut out = format!(
        "<svg class=\"picture plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{what} over time, at \
         most {}; also in the table below\">",
        show(top)
    );
    let length = to.0.saturating_sub(from.0).max(1) as f64;
    let mut x = MARGIN;
    for (number, line) in lines.iter().enumerate() {
        let _ = write!(
            out,
            "<path class=\"line-{number}\" d=\"M{x} 16h12\"/><text x=\"{}\" y=\"21\">{}</text>",
            x + 18,
            line.name
        );
        x += 30 + LETTER * line.name.len() as u64;
        let mut path = String::new();
        for (at, value) in &line.points {
            let across = MARGIN as f64 + at.0.saturating_sub(from.0) as f64 / length * wide as f64;
            let up = bottom as f64 - *value as f64 / (top.max(1)) as f64 * high as f64;
            let _ = write!(path, "{}{across:.1} {up:.1}", if path.is_empty() { 'M' } else { 'L' });
        }
        if let [_] = line.points.as_slice() {
            // A line needs a length.
            path.push_str("h3");
        }
        let _ = write!(out, "<path class=\"line-{number}\" d=\"{path}\"/>");
    }
    let _ = write!(
        out,
        "<text x=\"4\" y=\"{}\">{}</text><text x=\"4\" y=\"{bottom}\">0</text>\
         <text x=\"{MARGIN}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text></svg>",
        MARGIN - 6,
        show(top),
        HEIGHT - 12,
        time(from),
        WIDTH - MARGIN,
        HEIGHT - 12,
        time(to)
    );
    out
}

/// Returns the table of the legend.
pub(super) fn legend(caption: &str, lines: &[Line], cell: fn(u128) -> Cell) -> Table {
    let columns =
        [("Line", ""), ("Last", NUMBER), ("Least", NUMBER), ("Average", NUMBER), ("Largest", NUMBER)];
    let mut table = Table::new(caption.to_owned(), &columns);
    for line in lines {
        let values = || line.points.iter().map(|(_, value)| *value);
        let Some((least, largest)) = values().min().zip(values().max()) else { continue };
        let last = values().next_back().unwrap_or_default();
        let sum = values().fold(0, u128::saturating_add);
        let average = sum / line.points.len() as u128;
        let numbers = [last, least, average, largest].map(cell);
        table.push([vec![Cell::text(line.name)], numbers.to_vec()].concat());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: the largest number touches the top, the times span the picture, and the legend has the
    /// numbers.
    #[test]
    fn lines_fill_the_picture() {
        let line = |name, values: &[(u64, u128)]| Line {
            name,
            points: values.iter().map(|(at, value)| (TimeMs(*at), *value)).collect(),
        };
        let all = [line("files", &[(1000, 0), (1500, 10), (2000, 40)]), line("one", &[(2000, 20)])];
        let span = (TimeMs(1000), TimeMs(2000));
        let picture = lines("Numbers", &all, span, |value| value.to_string());
        let (left, right, top, bottom) = (MARGIN, WIDTH - MARGIN, MARGIN, HEIGHT - MARGIN);
        assert!(picture.contains(&format!("M{left}.0 {bottom}.0L")), "{picture}");
        assert!(picture.contains(&format!("L{right}.0 {top}.0\"")), "{picture}");
        assert!(picture.contains("h3\""), "{picture}");
        let csv = legend("Numbers", &all, Cell::count).csv();
        assert!(csv.contains("\"files\",\"40\",\"0\",\"16\",\"40\""), "{csv}");
        assert!(lines("None", &[line("x", &[])], span, |value| value.to_string()).is_empty());
        let flat = lines("Zero", &[line("x", &[(5, 0), (6, 0)])], (TimeMs(5), TimeMs(5)), |_| String::new());
        assert!(!flat.contains("NaN") && !flat.contains("inf"), "{flat}");
    }
}
