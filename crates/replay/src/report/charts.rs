//! Charts of a report: one SVG each, with a title and a description. Colours come from the page.

use std::fmt::Write as _;

use super::sections::OtherRates;
use super::series::RateView;
use super::shapes::{Report, SeriesPoint};
use super::times::CurvePoint;
use crate::chart::{
    Axis, BELOW, LEFT, Line, PANEL_HEIGHT, Panel, RIGHT, Scale, TOP, WIDTH, escaped, even, moments, powers,
};
use crate::units::{count, duration, number, percent, rate, size};

/// Names of lines: the page has a colour and a pattern for each.
const CLASSES: [&str; 4] = ["one", "two", "three", "four"];
/// Height of a bar, and of the space that one takes.
const BAR: f64 = 18.0;
const BAR_STEP: f64 = 26.0;
/// Space for the names of bars, and for the numbers behind them.
const BAR_LEFT: f64 = 140.0;
const BAR_RIGHT: f64 = 220.0;
/// Shares that the axis of curves marks.
const SHARES: [(f64, &str); 6] =
    [(0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

/// Chart, and the section whose table has its numbers.
pub(crate) struct Chart {
    pub section: &'static str,
    pub svg: String,
}

/// Begins an SVG with its title and description, for those who do not see it.
fn open(name: &str, height: f64, (title, description): (&str, &str)) -> String {
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{name}-t {name}-d\">\
         <title id=\"{name}-t\">{}</title><desc id=\"{name}-d\">{}</desc>",
        escaped(title),
        escaped(description)
    )
}

fn panel(name: &str, description: &str, panel: &Panel<'_>) -> String {
    let mut svg = open(name, TOP + PANEL_HEIGHT + BELOW, (panel.title, description));
    panel.draw(&mut svg, TOP);
    svg.push_str("</svg>");
    svg
}

/// Returns an axis of time since the begin.
fn time_axis(end_us: u64) -> Axis<'static> {
    let mark = |us: u64| (us as f64, if us == 0 { "0 s".to_owned() } else { duration(us) });
    let marks = moments(end_us).into_iter().map(mark).collect();
    (Scale::linear(0.0, end_us.max(1) as f64), "time since the begin", marks)
}

/// Returns an axis from 0 to a round number.
fn even_axis(most: f64, title: &str, shown: fn(f64) -> String) -> Axis<'_> {
    let marks = even(most);
    let scale = Scale::linear(0.0, marks.last().copied().unwrap_or(most));
    (scale, title, marks.into_iter().map(|value| (value, shown(value))).collect())
}

/// Returns a logarithmic axis of durations.
fn duration_axis(points: &[&[(f64, f64)]]) -> Axis<'static> {
    let values = || points.iter().flat_map(|line| line.iter()).map(|(_, us)| us.max(1.0));
    let least = values().fold(f64::MAX, f64::min).min(1e12);
    let largest = values().fold(least * 10.0, f64::max);
    // Whole powers of ten: a mark at both ends.
    let (from, to) = (10_f64.powf(least.log10().floor()), 10_f64.powf(largest.log10().ceil()));
    (
        Scale::log(from, to),
        "duration",
        powers(from, to).into_iter().map(|us| (us, duration(us as u64))).collect(),
    )
}

fn rates(of: &Report, others: &OtherRates) -> Option<Chart> {
    let clients = RateView {
        width_us: of.series.width_us,
        bytes: of.series.points.iter().map(|point| point.bytes).collect(),
    };
    let all = [
        (Some(&clients), "came to clients"),
        (others.asked.as_ref(), "asked of caches"),
        (others.fetched.as_ref(), "fetched by caches"),
        (others.origin.as_ref(), "sent by origins"),
    ];
    let lines: Vec<Line<'_>> = all
        .into_iter()
        .zip(CLASSES)
        .filter_map(|((of, name), class)| {
            let points = of?.rates().into_iter().map(|(us, rate)| (us as f64, rate)).collect();
            Some((class, name, points))
        })
        .collect();
    let (end, most) = ends(&lines)?;
    let description = format!(
        "Lines of bytes a second over {}: {}. The largest value is {}. The table over time has the numbers.",
        duration(end as u64),
        lines.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", "),
        rate(most)
    );
    let chart = Panel {
        title: "Rates",
        across: time_axis(end as u64),
        up: even_axis(most, "bytes a second", size),
        lines,
    };
    Some(Chart { section: "series", svg: panel("rates", &description, &chart) })
}

/// Returns the last time and the largest value; none without points.
fn ends(lines: &[Line<'_>]) -> Option<(f64, f64)> {
    let points = || lines.iter().flat_map(|(_, _, points)| points);
    points().next()?;
    Some((
        points().map(|(us, _)| *us).fold(0.0, f64::max),
        points().map(|(_, value)| *value).fold(1.0, f64::max),
    ))
}

/// Returns the points of a figure over time, at the middles.
fn over_time(of: &Report, figure: impl Fn(&SeriesPoint) -> Option<f64>) -> Vec<(f64, f64)> {
    let width = of.series.width_us as f64;
    let points = of.series.points.iter().enumerate();
    points.filter_map(|(number, point)| Some(((number as f64 + 0.5) * width, figure(point)?))).collect()
}

fn accesses(of: &Report) -> Option<Chart> {
    let seconds = of.series.width_us.max(1) as f64 / 1e6;
    let line = |figure: fn(&SeriesPoint) -> u64| over_time(of, |point| Some(figure(point) as f64 / seconds));
    let lines: Vec<Line<'_>> = vec![
        (CLASSES[0], "due", line(|point| point.due)),
        (CLASSES[1], "ended", line(|point| point.ended)),
        (CLASSES[2], "failed", line(|point| point.errors)),
    ];
    let (end, most) = ends(&lines)?;
    let description = format!(
        "Lines of accesses a second over {}: due by the plan, ended, failed. The largest value is {}. The table \
         over time has the numbers.",
        duration(end as u64),
        number(most)
    );
    let chart = Panel {
        title: "Accesses",
        across: time_axis(end as u64),
        up: even_axis(most, "accesses a second", number),
        lines,
    };
    Some(Chart { section: "series", svg: panel("accesses", &description, &chart) })
}

fn delays(of: &Report) -> Option<Chart> {
    let line =
        |figure: fn(&SeriesPoint) -> Option<u64>| over_time(of, |point| figure(point).map(|us| us as f64));
    let (median, high) = (line(|point| point.p50_us), line(|point| point.p99_us));
    let up = duration_axis(&[&median, &high]);
    let end = of.series.width_us.saturating_mul(of.series.points.len() as u64);
    let worst = high.iter().map(|(_, us)| *us as u64).max()?;
    let description = format!(
        "Lines of the median and of the 99th percentile of durations from the intended begin, over {}, on a \
         logarithmic scale. The longest p99 is {}. The table over time has the numbers.",
        duration(end),
        duration(worst)
    );
    let lines = vec![(CLASSES[0], "p50", median), (CLASSES[1], "p99", high)];
    let chart = Panel { title: "Durations over time", across: time_axis(end), up, lines };
    Some(Chart { section: "series", svg: panel("delays", &description, &chart) })
}

/// Returns the place of a share on an axis where each halving of the rest is as long.
fn halvings(share: f64) -> f64 {
    -(1.0 - share).max(1e-12).log2()
}

fn curves(of: &Report) -> Option<Chart> {
    let end = |of: &[CurvePoint]| {
        of.iter().filter(|point| point.share < 1.0).map(|point| halvings(point.share)).fold(1.0, f64::max)
    };
    let all = [
        (CLASSES[0], "from the intended begin", &of.curves.intended),
        (CLASSES[1], "from the actual begin", &of.curves.actual),
        (CLASSES[2], "to the first byte", &of.curves.first_byte),
    ];
    let last = all.iter().map(|(_, _, of)| end(of)).fold(1.0, f64::max);
    let lines: Vec<Line<'_>> = all
        .into_iter()
        .filter(|(_, _, of)| !of.is_empty())
        .map(|(class, name, of)| {
            // The longest duration stands where the last halving leaves one access.
            let at = |point: &CurvePoint| if point.share < 1.0 { halvings(point.share) } else { end(of) };
            (class, name, of.iter().map(|point| (at(point), point.us as f64)).collect())
        })
        .collect();
    let up = duration_axis(&lines.iter().map(|(_, _, points)| points.as_slice()).collect::<Vec<_>>());
    let worst = |of: &[CurvePoint]| duration(of.last().map_or(0, |point| point.us));
    let _ = lines.first()?;
    let description = format!(
        "Durations by the share of accesses that they do not exceed, both on logarithmic scales. The longest is \
         {} from the intended begin, and {} from the actual one. The tables of durations have the numbers.",
        worst(&of.curves.intended),
        worst(&of.curves.actual)
    );
    let marks = SHARES.iter().map(|(share, text)| (halvings(*share), (*text).to_owned()));
    let chart = Panel {
        title: "Durations of accesses",
        across: (
            Scale::linear(0.0, last),
            "share of accesses",
            marks.filter(|(at, _)| *at <= last).collect(),
        ),
        up,
        lines,
    };
    Some(Chart { section: "intended", svg: panel("curves", &description, &chart) })
}

fn outcomes(of: &Report) -> Option<Chart> {
    let most = of.outcomes.iter().map(|row| row.accesses).max()?;
    let height = TOP + BAR_STEP * of.outcomes.len() as f64 + 10.0;
    let description = format!(
        "Bars of the accesses of {} outcomes, on a logarithmic scale. The table of outcomes has the numbers.",
        of.outcomes.len()
    );
    let title = "Outcomes (logarithmic)";
    let mut svg = open("outcome-bars", height, (title, &description));
    let scale = Scale::log(0.5, most as f64);
    let _ = write!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"{:.0}\">{title}</text>", TOP - 14.0);
    for (number, row) in of.outcomes.iter().enumerate() {
        let y = TOP + BAR_STEP * number as f64;
        let wide = scale.place(row.accesses as f64) * (WIDTH - BAR_LEFT - BAR_RIGHT - RIGHT);
        let class = if row.outcome == crate::run::outcome::Outcome::Ok { "ok" } else { "failed" };
        let share = percent(row.accesses as f64 / of.totals.accesses.max(1) as f64);
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
             <rect class=\"bar {class}\" x=\"{BAR_LEFT}\" y=\"{y:.0}\" width=\"{wide:.1}\" height=\"{BAR}\"/>\
             <text x=\"{:.1}\" y=\"{:.0}\">{} ({share})</text>",
            BAR_LEFT - 8.0,
            y + 14.0,
            escaped(&row.outcome.name().replace('_', " ")),
            BAR_LEFT + wide + 8.0,
            y + 14.0,
            count(row.accesses)
        );
    }
    svg.push_str("</svg>");
    Some(Chart { section: "outcomes", svg })
}

/// Returns the charts of a report that have anything to show.
pub(crate) fn charts(of: &Report) -> Vec<Chart> {
    let others = OtherRates::of(of);
    [rates(of, &others), accesses(of), delays(of), curves(of), outcomes(of)].into_iter().flatten().collect()
}
