//! Comparison of two reports: figures with their ratio, and the settings that differ.

use std::collections::BTreeSet;

use super::hits::{HitShare, share_of};
use super::html::{page_of, tables};
use super::shapes::{
    AccessClass, ComparedFigure, ComparedSetting, Comparison, CountedFrom, FigureUnit, Report,
};
use super::table::{Column, Section};
use super::text::text_of;
use crate::units;

/// Figure of a report, before it is compared.
type Figure = (String, FigureUnit, Option<f64>);

fn number(value: u64) -> Option<f64> {
    Some(value as f64)
}

/// Returns the figures of a report. Each report has the same ones, in the same order.
fn figures(of: &Report, hits: &[&HitShare]) -> Vec<Figure> {
    let totals = &of.totals;
    let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
    let mut all: Vec<Figure> = [
        ("duration", FigureUnit::Us, number(of.run.elapsed_us)),
        ("accesses ended", FigureUnit::Count, number(totals.accesses)),
        ("failed", FigureUnit::Share, share(totals.errors, totals.accesses)),
        ("accesses a second", FigureUnit::PerSecond, Some(totals.accesses_per_second)),
        ("bytes that came", FigureUnit::Bytes, number(totals.bytes)),
        ("bytes a second", FigureUnit::BytesPerSecond, Some(totals.bytes_per_second)),
        ("busiest bytes a second", FigureUnit::BytesPerSecond, Some(totals.peak_bytes_per_second)),
    ]
    .map(|(name, unit, value)| (name.to_owned(), unit, value))
    .to_vec();
    let begins = [(CountedFrom::Intended, "intended"), (CountedFrom::Actual, "actual")];
    for (from, name) in begins {
        let row = of.durations.iter().find(|row| row.class == AccessClass::All && row.from == from);
        let of = row.map(|row| row.figures);
        let values = [
            ("p50", of.map(|of| of.p50_us)),
            ("p99", of.map(|of| of.p99_us)),
            ("p99.9", of.map(|of| of.p999_us)),
            ("max", of.map(|of| of.max_us)),
        ];
        let figure = |(quantile, us): (&str, Option<u64>)| {
            (format!("{quantile} from the {name} begin"), FigureUnit::Us, us.and_then(number))
        };
        all.extend(values.map(figure));
    }
    let first_byte = of.first_byte.map(|of| of.p50_us).and_then(number);
    all.push(("median first byte".to_owned(), FigureUnit::Us, first_byte));
    let late = of.lateness.map(|of| of.p99_us).and_then(number);
    all.push(("p99 of the driver's lateness".to_owned(), FigureUnit::Us, late));
    for row in hits {
        let name = format!("hits: {}, {}", row.quantity.name(), row.view.name());
        all.push((name, FigureUnit::Share, share_of(&of.hits, &[(row.quantity, row.view)])));
    }
    let fetched = super::hits::sum_known(&of.cache_records, |cache| cache.bytes_fetched);
    all.push(("bytes fetched".to_owned(), FigureUnit::Bytes, fetched.and_then(number)));
    let sent = of.origins.iter().fold(0_u64, |sum, origin| sum.saturating_add(origin.bytes_out));
    let sent = (!of.origins.is_empty()).then_some(sent);
    all.push(("bytes that origins sent".to_owned(), FigureUnit::Bytes, sent.and_then(number)));
    all.push((
        "leases without a result".to_owned(),
        FigureUnit::Count,
        number(of.handing_out.leases_expired),
    ));
    all
}

/// Compares two reports.
pub fn compare(first: &Report, second: &Report) -> Comparison {
    // Hits that either of both has.
    let mut hits: Vec<&HitShare> = first.hits.iter().collect();
    for row in &second.hits {
        if share_of(&first.hits, &[(row.quantity, row.view)]).is_none() {
            hits.push(row);
        }
    }
    let pairs = figures(first, &hits).into_iter().zip(figures(second, &hits));
    let figure = |((figure, unit, first), (_, _, second)): (Figure, Figure)| {
        let ratio =
            first.zip(second).filter(|(first, _)| *first != 0.0).map(|(first, second)| second / first);
        ComparedFigure { figure, unit, first, second, ratio }
    };
    let known = |figure: &ComparedFigure| figure.first.is_some() || figure.second.is_some();
    let mut names: BTreeSet<&String> = first.run.settings.keys().collect();
    names.extend(second.run.settings.keys());
    let setting = |name: &String| {
        let of = |report: &Report| report.run.settings.get(name).cloned();
        (name.clone(), ComparedSetting { first: of(first), second: of(second) })
    };
    let mut settings: std::collections::BTreeMap<String, ComparedSetting> =
        names.into_iter().map(setting).filter(|(_, of)| of.first != of.second).collect();
    if first.run.mode != second.run.mode {
        let modes =
            ComparedSetting { first: Some(first.run.mode.clone()), second: Some(second.run.mode.clone()) };
        settings.insert("mode".to_owned(), modes);
    }
    Comparison {
        first: first.run.name.clone(),
        second: second.run.name.clone(),
        figures: pairs.map(figure).filter(known).collect(),
        settings,
    }
}

fn shown(unit: FigureUnit, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match unit {
        FigureUnit::Count => units::count(value as u64),
        FigureUnit::Share => units::percent(value),
        FigureUnit::Bytes => units::bytes(value as u64),
        FigureUnit::BytesPerSecond => units::rate(value),
        FigureUnit::PerSecond => format!("{value:.1}/s"),
        FigureUnit::Us => units::duration(value as u64),
    }
}

fn sections(of: &Comparison) -> Vec<Section> {
    let columns =
        [Column::Text("figure"), Column::Number("first"), Column::Number("second"), Column::Number("ratio")];
    let mut figures = Section::new("figures", &format!("{} and {}", of.first, of.second), &columns);
    figures.note("The ratio is the second by the first.");
    for row in &of.figures {
        let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        figures.row([row.figure.clone(), shown(row.unit, row.first), shown(row.unit, row.second), ratio]);
    }
    let columns = [Column::Text("setting"), Column::Text("first"), Column::Text("second")];
    let mut settings = Section::new("settings", "Settings that differ", &columns);
    for (name, values) in &of.settings {
        let value = |of: &Option<String>| of.clone().unwrap_or_else(|| "-".to_owned());
        settings.row([name.clone(), value(&values.first), value(&values.second)]);
    }
    if of.settings.is_empty() {
        settings.note("None.");
    }
    vec![figures, settings]
}

impl Comparison {
    /// Returns the comparison as text of 80 columns.
    pub fn text(&self) -> String {
        text_of(&sections(self))
    }

    /// Returns the comparison as one HTML file that loads nothing.
    pub fn page(&self) -> String {
        page_of(&format!("Replay {} and {}", self.first, self.second), &tables(&sections(self)))
    }

    /// Returns the sections of that file, for a page that has a style of its own.
    pub fn body(&self) -> String {
        tables(&sections(self))
    }
}
