//! Report as text, in lines of 80 columns.

use super::sections::sections;
use super::shapes::Report;
use super::table::Section;

/// Rows of names, and points in time, that a text shows.
const NAMES_MAX: usize = 10;
const POINTS_MAX: usize = 20;

/// Returns sections as text.
pub(crate) fn text_of(sections: &[Section]) -> String {
    let mut out = String::new();
    sections.iter().for_each(|section| section.write_text(&mut out));
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Returns a report as text: aligned tables with headers.
pub fn text(of: &Report) -> String {
    text_of(&sections(of, (NAMES_MAX, POINTS_MAX)))
}
