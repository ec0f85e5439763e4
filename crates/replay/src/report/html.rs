//! Report as one HTML file: style inside, nothing loaded, no scripts, light and dark.
//!
//! Every text is escaped. The file is well-formed XML, too, so that tests can read it.

use std::fmt::Write as _;

use super::charts::charts;
use super::sections::sections;
use super::shapes::Report;
use super::table::{Column, Section};
use crate::chart::escaped;
use crate::limits::REPORT_ROWS_MAX;

/// Points in time that the table of a series shows.
const POINTS_MAX: usize = 128;
/// Rows from which on a table is folded away until it is opened.
const ROWS_OPEN_MAX: usize = 40;

const STYLE: &str = "
:root { color-scheme: light dark; --ground: #fff; --text: #1c2126; --soft: #57606a; --line: #d0d7de;
  --one: #0b5fa5; --two: #b5460f; --three: #6b3fa0; --four: #116329; --bad: #a40e26; }
@media (prefers-color-scheme: dark) { :root { --ground: #101418; --text: #e6edf3; --soft: #a3adb8;
  --line: #363e47; --one: #79b8ff; --two: #ffab70; --three: #d2a8ff; --four: #8ee6a4; --bad: #ffb3ad; } }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--ground); color: var(--text);
  font: 1rem/1.5 system-ui, \"DejaVu Sans\", sans-serif; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 1.75rem 0 .25rem; }
p { margin: .25rem 0; } .note, caption { color: var(--soft); text-align: start; max-width: 46rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9375rem; }
th, td { text-align: start; padding: .2rem .75rem; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; } tbody th { font-weight: 400; }
.number { text-align: end; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.why { color: var(--soft); max-width: 30rem; }
bdi { overflow-wrap: anywhere; white-space: pre-wrap; } .number bdi { white-space: nowrap; }
figure { margin: 1rem 0; } .chart { width: 100%; height: auto; }
.chart text { font: 13px system-ui, \"DejaVu Sans\", sans-serif; fill: var(--text); stroke: none; }
.chart .title { font-weight: bold; } .chart rect { fill: none; stroke: var(--line); }
.chart .mark { stroke: var(--line); opacity: .6; } .chart .line { fill: none; stroke-width: 2; }
.chart .one { stroke: var(--one); } .chart .two { stroke: var(--two); stroke-dasharray: 8 3; }
.chart .three { stroke: var(--three); stroke-dasharray: 2 3; }
.chart .four { stroke: var(--four); stroke-dasharray: 10 3 2 3; }
.chart text.one { fill: var(--one); stroke: none; } .chart text.two { fill: var(--two); stroke: none; }
.chart text.three { fill: var(--three); stroke: none; } .chart text.four { fill: var(--four); stroke: none; }
.chart rect.bar { stroke: none; } .chart rect.ok { fill: var(--one); } .chart rect.failed { fill: var(--bad); }
";

fn cell(out: &mut String, column: Column, text: &str, is_first: bool) {
    let class = if matches!(column, Column::Number(_)) { " class=\"number\"" } else { "" };
    let (open, close) = if is_first { ("th scope=\"row\"", "th") } else { ("td", "td") };
    let _ = write!(out, "<{open}{class}><bdi>{}</bdi></{close}>", escaped(text));
}

fn table(out: &mut String, of: &Section) {
    let has_notes = of.rows.iter().any(|row| !row.note.is_empty());
    let title = escaped(&of.title);
    let _ =
        write!(out, "<div class=\"scroll\" role=\"region\" aria-label=\"{title}\" tabindex=\"0\"><table>");
    if of.columns.iter().any(|column| !column.name().is_empty()) {
        out.push_str("<thead><tr>");
        for column in &of.columns {
            let class = if matches!(column, Column::Number(_)) { " class=\"number\"" } else { "" };
            let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escaped(column.name()));
        }
        if has_notes {
            out.push_str("<th scope=\"col\">explanation</th>");
        }
        out.push_str("</tr></thead>");
    }
    out.push_str("<tbody>\n");
    for row in &of.rows {
        out.push_str("<tr>");
        for (number, (column, text)) in of.columns.iter().zip(&row.cells).enumerate() {
            cell(out, *column, text, number == 0);
        }
        if has_notes {
            let _ = write!(out, "<td class=\"why\"><bdi>{}</bdi></td>", escaped(&row.note));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn section(out: &mut String, of: &Section, charts: &[String]) {
    let _ = writeln!(out, "<section>\n<h2><bdi>{}</bdi></h2>", escaped(&of.title));
    for note in &of.notes {
        let _ = writeln!(out, "<p class=\"note\"><bdi>{}</bdi></p>", escaped(note));
    }
    for svg in charts {
        let _ = writeln!(out, "<figure>{svg}</figure>");
    }
    if of.rows.len() > ROWS_OPEN_MAX {
        let _ = writeln!(out, "<details><summary>{} rows</summary>", of.rows.len());
        table(out, of);
        out.push_str("</details>\n");
    } else if !of.rows.is_empty() {
        table(out, of);
    }
    out.push_str("</section>\n");
}

/// Returns a page with sections.
pub(crate) fn page_of(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1><bdi>{title}</bdi></h1>\n{body}</main>\n\
         </body>\n</html>\n"
    )
}

/// Returns sections with tables only.
pub(crate) fn tables(of: &[Section]) -> String {
    let mut out = String::new();
    of.iter().for_each(|one| section(&mut out, one, &[]));
    out
}

/// Returns the sections of a report, with charts and tables, for a page that has a style of its own. Its
/// classes are those of [`page`].
pub fn body(of: &Report) -> String {
    let charts = charts(of);
    let mut out = String::new();
    for one in sections(of, (REPORT_ROWS_MAX, POINTS_MAX)) {
        let svgs: Vec<String> =
            charts.iter().filter(|chart| chart.section == one.id).map(|chart| chart.svg.clone()).collect();
        section(&mut out, &one, &svgs);
    }
    out
}

/// Returns a report as one HTML file that loads nothing.
pub fn page(of: &Report) -> String {
    page_of(&format!("Replay {}", of.run.name), &body(of))
}
