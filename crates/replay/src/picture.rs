//! Picture of a summary, as one SVG without references: rates, popularity, and what caches must reach.

use crate::chart::{BELOW, PANEL_HEIGHT, Panel, Scale, TOP, WIDTH, powers, quarters};
use crate::summary::Summary;
use crate::units::size;

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
    let rate = Panel {
        title: "Accesses",
        across: (
            Scale::linear(0.0, days),
            "days since the first",
            quarters(days).map(|day| (day, format!("{day:.1}"))).to_vec(),
        ),
        up: (
            Scale::linear(0.0, most),
            "accesses an hour",
            quarters(most).map(|rate| (rate, format!("{rate:.0}"))).to_vec(),
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
        up: (
            Scale::linear(0.0, 100.0),
            "% found",
            quarters(100.0).map(|at| (at, format!("{at:.0}"))).to_vec(),
        ),
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
            // Four lines, and two beside names.
            assert_eq!(picture.matches("class=\"line").count(), 6);
        }
    }
}
