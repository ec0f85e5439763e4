//! Picture of a summary, as one SVG without references: rates, popularity, and what caches must reach.

use std::fmt::Write as _;

use crate::summary::Summary;

/// Size of the picture, of a panel in it, and of the space around a panel.
const WIDTH: f64 = 1000.0;
const PANEL_HEIGHT: f64 = 200.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BELOW: f64 = 50.0;

/// A scale: the values at both ends, and whether it is logarithmic.
#[derive(Clone, Copy)]
struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    fn linear(from: f64, to: f64) -> Scale {
        Scale { from, to: if to > from { to } else { from + 1.0 }, is_log: false }
    }

    fn log(from: f64, to: f64) -> Scale {
        let from = from.max(1e-12);
        Scale { from, to: to.max(from * 1.0001), is_log: true }
    }

    /// Returns the place of a value, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        let place = match self.is_log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        place.clamp(0.0, 1.0)
    }
}

/// An axis: its scale, title, and marks.
type Axis<'a> = (Scale, &'a str, Vec<(f64, String)>);
/// A line: its class, its name, and its points.
type Line<'a> = (&'static str, &'a str, Vec<(f64, f64)>);

/// A panel with lines.
struct Panel<'a> {
    title: &'a str,
    across: Axis<'a>,
    up: Axis<'a>,
    lines: Vec<Line<'a>>,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Panel<'_> {
    fn draw(&self, out: &mut String, top: f64) {
        let (wide, high) = (WIDTH - LEFT - RIGHT, PANEL_HEIGHT);
        let bottom = top + high;
        let (across, across_title, across_marks) = &self.across;
        let (up, up_title, up_marks) = &self.up;
        let x = |value: f64| LEFT + across.place(value) * wide;
        let y = |value: f64| bottom - up.place(value) * high;
        let _ = write!(
            out,
            "<text class=\"title\" x=\"{LEFT}\" y=\"{:.0}\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{top}\" width=\"{wide}\" height=\"{high}\"/>",
            top - 14.0,
            escaped(self.title)
        );
        for (value, text) in across_marks {
            let _ = write!(
                out,
                "<path class=\"mark\" d=\"M{0:.1} {top}V{bottom}\"/><text x=\"{0:.1}\" y=\"{1:.0}\" text-anchor=\"middle\">{2}</text>",
                x(*value),
                bottom + 18.0,
                escaped(text)
            );
        }
        for (value, text) in up_marks {
            let _ = write!(
                out,
                "<path class=\"mark\" d=\"M{LEFT} {0:.1}H{1}\"/><text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
                y(*value),
                WIDTH - RIGHT,
                LEFT - 8.0,
                y(*value) + 5.0,
                escaped(text)
            );
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\">{}; {}</text>",
            WIDTH - RIGHT,
            top - 14.0,
            escaped(up_title),
            escaped(across_title)
        );
        for (number, (class, name, points)) in self.lines.iter().enumerate() {
            let mut path = String::new();
            for (at, value) in points {
                let _ =
                    write!(path, "{}{:.1} {:.1}", if path.is_empty() { 'M' } else { 'L' }, x(*at), y(*value));
            }
            if points.len() == 1 {
                path.push_str("h3");
            }
            let _ = write!(out, "<path class=\"line {class}\" d=\"{path}\"/>");
            if !name.is_empty() {
                let _ = write!(
                    out,
                    "<text class=\"{class}\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
                    LEFT + 12.0,
                    top + 20.0 + 18.0 * number as f64,
                    escaped(name)
                );
            }
        }
    }
}

/// Returns a number of bytes in words of at most a few letters.
fn size(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if value >= 10.0 || value == value.round() {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// Returns powers of ten within bounds.
fn powers(from: f64, to: f64) -> Vec<f64> {
    let first = from.max(1e-12).log10().ceil() as i32;
    (first..first + 25).map(|power| 10_f64.powi(power)).take_while(|value| *value <= to).collect()
}

/// Draws the summary of a trace.
pub fn draw(of: &Summary) -> String {
    let height = 3.0 * (TOP + PANEL_HEIGHT + BELOW);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Summary of a trace\"><style>text{{font:13px sans-serif;fill:#333}}.title{{font-weight:bold}}\
         rect{{fill:none;stroke:#999}}.mark{{stroke:#e4e4e4}}.line{{fill:none;stroke-width:2}}.one{{stroke:#0b5fa5}}\
         .two{{stroke:#b5460f}}text.one{{fill:#0b5fa5;stroke:none}}text.two{{fill:#b5460f;stroke:none}}</style>\
         <rect width=\"100%\" height=\"100%\" style=\"fill:#fff;stroke:none\"/>"
    );
    let rates: Vec<(f64, f64)> = of
        .bars
        .iter()
        .map(|bar| (bar.from_us as f64 / 8.64e10, bar.accesses as f64 / of.bar_hours.max(1) as f64))
        .collect();
    let first = rates.first().map_or(0.0, |(day, _)| *day);
    let rates: Vec<(f64, f64)> = rates.into_iter().map(|(day, rate)| (day - first, rate)).collect();
    let days = rates.last().map_or(1.0, |(day, _)| *day).max(1.0 / 24.0);
    let most = rates.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let marks = |to: f64| [0.25, 0.5, 0.75, 1.0].map(|share| share * to);
    let rate = Panel {
        title: "Accesses",
        across: (
            Scale::linear(0.0, days),
            "days since the first",
            marks(days).map(|day| (day, format!("{day:.1}"))).to_vec(),
        ),
        up: (
            Scale::linear(0.0, most),
            "accesses an hour",
            marks(most).map(|rate| (rate, format!("{rate:.0}"))).to_vec(),
        ),
        lines: vec![("one", "", rates)],
    };
    let points: Vec<(f64, f64)> = of.popularity.iter().map(|of| (of.rank as f64, of.uses as f64)).collect();
    let (ranks, uses) = (of.files.max(2) as f64, of.uses.max.max(2) as f64);
    let popular = Panel {
        title: "Popularity of files",
        across: (
            Scale::log(1.0, ranks),
            "rank",
            powers(1.0, ranks).into_iter().map(|at| (at, format!("{at}"))).collect(),
        ),
        up: (
            Scale::log(1.0, uses),
            "accesses",
            powers(1.0, uses).into_iter().map(|at| (at, format!("{at}"))).collect(),
        ),
        lines: vec![("one", "", points)],
    };
    let curve = |hits: fn(&crate::summary::CacheRow) -> f64| -> Vec<(f64, f64)> {
        of.caches.iter().map(|cache| (cache.cache_bytes as f64, 100.0 * hits(cache))).collect()
    };
    let sizes: Vec<f64> =
        of.caches.iter().map(|cache| cache.cache_bytes as f64).filter(|size| *size > 0.0).collect();
    let (least, largest) =
        (sizes.iter().copied().fold(f64::MAX, f64::min).min(1e18), sizes.iter().copied().fold(1.0, f64::max));
    let cache = Panel {
        title: "What a cache must reach",
        across: (
            Scale::log(least, largest),
            "size of the cache",
            powers(least, largest).into_iter().map(|at| (at, size(at))).collect(),
        ),
        up: (Scale::linear(0.0, 100.0), "% found", marks(100.0).map(|at| (at, format!("{at:.0}"))).to_vec()),
        lines: vec![
            ("one", "of accesses", curve(|cache| cache.hit_requests)),
            ("two", "of bytes", curve(|cache| cache.hit_bytes)),
        ],
    };
    for (number, panel) in [rate, popular, cache].iter().enumerate() {
        panel.draw(&mut out, TOP + number as f64 * (TOP + PANEL_HEIGHT + BELOW));
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::{BLOCK_BYTES, Distances};
    use crate::generate::{Statistics, generate};
    use crate::summary::summarise;
    use crate::trace::Trace;

    /// Property: the picture is well-formed, and all numbers in it are finite, also for an empty trace.
    #[test]
    fn pictures_are_well_formed() {
        let of = Statistics { files: 500, accesses: 2000, days: 2.0, ..Statistics::default() };
        for trace in [generate(&of, &mut |_| {}).unwrap(), Trace::new()] {
            let distances = Distances::of(&trace, BLOCK_BYTES);
            let picture = draw(&summarise(&trace, &distances, &[]));
            assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
            assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
            assert_eq!(picture.matches("<text").count(), picture.matches("</text>").count());
            assert_eq!(picture.matches("class=\"line").count(), 4);
        }
        assert_eq!((size(999.0), size(1500.0), size(2e12)), ("999 B".into(), "1.5 kB".into(), "2 TB".into()));
    }
}
