//! Charts as SVG: scales, axes, panels with lines, bars.

use std::fmt::Write as _;

/// Size of a panel, and of the space around it.
pub(crate) const WIDTH: f64 = 1000.0;
pub(crate) const PANEL_HEIGHT: f64 = 200.0;
pub(crate) const LEFT: f64 = 80.0;
pub(crate) const RIGHT: f64 = 20.0;
pub(crate) const TOP: f64 = 40.0;
pub(crate) const BELOW: f64 = 56.0;
/// Most marks of an axis, without the one at 0.
const MARKS: f64 = 6.0;
/// Average width of a letter, for the places of names.
const LETTER: f64 = 7.5;

/// A scale: the values at both ends, and whether it is logarithmic.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    pub(crate) fn linear(from: f64, to: f64) -> Scale {
        Scale { from, to: if to > from { to } else { from + 1.0 }, is_log: false }
    }

    pub(crate) fn log(from: f64, to: f64) -> Scale {
        let from = from.max(1e-12);
        Scale { from, to: to.max(from * 1.0001), is_log: true }
    }

    /// Returns the place of a value, from 0 to 1.
    pub(crate) fn place(self, value: f64) -> f64 {
        let place = match self.is_log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        place.clamp(0.0, 1.0)
    }
}

/// An axis: its scale, title, and marks.
pub(crate) type Axis<'a> = (Scale, &'a str, Vec<(f64, String)>);
/// A line: its class, its name, and its points.
pub(crate) type Line<'a> = (&'static str, &'a str, Vec<(f64, f64)>);

/// A panel with lines.
pub(crate) struct Panel<'a> {
    pub title: &'a str,
    pub across: Axis<'a>,
    pub up: Axis<'a>,
    pub lines: Vec<Line<'a>>,
}

/// Returns a text as it stands in XML, in a text or between quotes. Control characters, which XML does
/// not have, become U+FFFD.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ if letter.is_control() => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}

impl Panel<'_> {
    /// Draws the panel, with its upper edge at `top`. The names of the lines stand below it.
    pub(crate) fn draw(&self, out: &mut String, top: f64) {
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
            let is_last = x(*value) > WIDTH - RIGHT - LETTER;
            let _ = write!(
                out,
                "<path class=\"mark\" d=\"M{0:.1} {top}V{bottom}\"/><text x=\"{0:.1}\" y=\"{1:.0}\" text-anchor=\"{3}\">{2}</text>",
                x(*value),
                bottom + 18.0,
                escaped(text),
                if is_last { "end" } else { "middle" }
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
        let mut name_at = LEFT;
        for (class, name, points) in &self.lines {
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
                let y = bottom + 40.0;
                let _ = write!(
                    out,
                    "<path class=\"line {class}\" d=\"M{name_at:.0} {:.0}h28\"/>\
                     <text class=\"{class}\" x=\"{:.0}\" y=\"{y:.0}\">{}</text>",
                    y - 4.0,
                    name_at + 34.0,
                    escaped(name)
                );
                name_at += 60.0 + LETTER * name.chars().count() as f64;
            }
        }
    }
}

/// Returns marks at four even places above 0.
pub(crate) fn quarters(to: f64) -> [f64; 4] {
    [0.25, 0.5, 0.75, 1.0].map(|share| share * to)
}

/// Returns even marks of 1, 2 or 5 times a power of ten, from 0 to the first that is not below `to`.
pub(crate) fn even(to: f64) -> Vec<f64> {
    let to = to.max(1e-9);
    let power = 10_f64.powf((to / MARKS).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| step * MARKS >= to);
    let step = step.unwrap_or(10.0 * power);
    (0..).map(|number| f64::from(number) * step).take(1 + (to / step).ceil() as usize).collect()
}

/// Returns marks of time in microseconds, at whole seconds, minutes, hours or days, up to an end.
pub(crate) fn moments(end_us: u64) -> Vec<u64> {
    let second = 1_000_000;
    let units = [1, 60, 3_600, 86_400, 864_000, 8_640_000, u64::MAX / second].map(|unit| unit * second);
    let mut steps =
        units.into_iter().flat_map(|unit| [1, 2, 5, 10, 15, 30].map(|factor| unit.saturating_mul(factor)));
    let step = steps.find(|step| end_us / step <= MARKS as u64).unwrap_or(u64::MAX);
    (0..=end_us / step).map(|number| number * step).collect()
}

/// Returns powers of ten within bounds.
pub(crate) fn powers(from: f64, to: f64) -> Vec<f64> {
    let first = from.max(1e-12).log10().ceil() as i32;
    (first..first + 25).map(|power| 10_f64.powi(power)).take_while(|value| *value <= to * 1.000_001).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: nothing of a text ends a text or an attribute, and XML can have every character.
    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("<a b=\"c\">'&'"), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;&#39;");
        assert_eq!(
            escaped("a\u{0}\u{1b}[31m\u{7f}\u{85}\u{ffff}é\n"),
            "a\u{fffd}\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}é\n"
        );
    }

    /// Property: values outside of a scale stand at its ends, and no scale is empty.
    #[test]
    fn scales_have_ends() {
        for scale in [Scale::linear(5.0, 5.0), Scale::log(0.0, 0.0), Scale::log(1.0, 1e9)] {
            for value in [-1.0, 0.0, 5.0, 1e300] {
                let place = scale.place(value);
                assert!((0.0..=1.0).contains(&place), "{value} {place}");
            }
        }
        assert_eq!(powers(1.0, 1000.0), [1.0, 10.0, 100.0, 1000.0]);
        assert!(powers(5.0, 6.0).is_empty());
    }

    /// Property: marks are round, few, and reach the end.
    #[test]
    fn marks_are_round_and_few() {
        assert_eq!(even(3.1e9), [0.0, 1e9, 2e9, 3e9, 4e9]);
        assert_eq!(even(6.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let minute = 60_000_000;
        assert_eq!(moments(95 * minute), [0, 15, 30, 45, 60, 75, 90].map(|number| number * minute));
        assert_eq!(moments(0), [0]);
        for power in 0..19 {
            let end = 7 * 10_u64.pow(power) / 3;
            assert!(moments(end).len() <= 7, "{end}");
            let marks = even(end as f64);
            assert!(marks.len() <= 7 && marks.last().is_some_and(|last| *last >= end as f64), "{end}");
        }
        assert!(moments(u64::MAX).len() <= 7);
    }
}
