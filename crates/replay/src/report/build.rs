//! Report of a tally, with what the service, caches and origins tell.

use super::bounded::ByName;
use super::conditions::{Condition, Measure};
use super::differences::differences;
use super::first_byte::{ClassSums, Split};
use super::hits::{HitQuantity, HitShare, HitView, hits, share_of};
use super::merge::Merge;
use super::shapes::{
    AccessClass, CountedFrom, Curves, DurationRow, NameRow, NamesView, NumberRow, OutcomeRow, REPORT_VERSION,
    Report, SeriesPoint, SeriesView, SplitClass, SplitRow, TotalsView, Verdict,
};
use super::tally::{NameSums, OutcomeSums, Point, Tally};
use super::times::{TimeFigures, Times};
use super::views::{CacheFilesView, CacheView, ExpectedView, HandingOut, OriginView, RunFacts};
use crate::limits::{REPORT_NUMBERS_MAX, REPORT_ROWS_MAX};
use crate::run::outcome::Outcome;
use crate::run::shapes::RunState;
use exacat_model::Result;

/// All that a report is made of.
pub struct ReportInput<'a> {
    /// Run.
    pub run: RunFacts,
    /// Results.
    pub tally: &'a Tally,
    /// Counts of the service.
    pub handing_out: HandingOut,
    /// Hits that the trace foretells, if the size of the cache is known.
    pub expected: Option<ExpectedView>,
    /// Figures of caches.
    pub caches: Vec<CacheView>,
    /// Files of caches.
    pub cache_files: Vec<CacheFilesView>,
    /// Figures of origins.
    pub origins: Vec<OriginView>,
    /// Thresholds that decide the exit code.
    pub thresholds: &'a [Condition],
}

/// Histograms of all accesses.
struct All {
    intended: Times,
    actual: Times,
}

impl All {
    fn of(tally: &Tally) -> Result<All> {
        let of = &tally.latencies;
        let (mut intended, mut actual) = (of.intended_ok.clone(), of.actual_ok.clone());
        intended.merge(&of.intended_error)?;
        actual.merge(&of.actual_error)?;
        Ok(All { intended, actual })
    }
}

impl Report {
    /// Makes the report.
    ///
    /// # Errors
    /// None but a defect.
    pub fn of(input: ReportInput<'_>) -> Result<Report> {
        let ReportInput { run, tally, handing_out, expected, caches, cache_files, origins, thresholds } =
            input;
        let all = All::of(tally)?;
        let (split, splits) = tally.splits();
        let rows = hits((&tally.totals, &split, expected.as_ref()), &caches, &origins);
        let series = series_of(tally);
        let totals = totals_of(tally, &run, &series);
        let bypass = caches.iter().filter(|cache| cache.place == 0);
        let bypass = bypass.fold((0_u64, 0_u64), |(bypass, all), cache| {
            (bypass.saturating_add(cache.bytes_bypass), all.saturating_add(cache.bytes_asked()))
        });
        let out = (!origins.is_empty())
            .then(|| origins.iter().fold(0_u64, |sum, origin| sum.saturating_add(origin.bytes_out)));
        let known = Known {
            totals: &totals,
            intended: all.intended.figures(),
            late: tally.latencies.late.figures(),
            bypass,
            out,
            elapsed_us: run.elapsed_us,
            hits: &rows,
        };
        let verdicts: Vec<Verdict> = thresholds.iter().map(|threshold| known.judge(threshold)).collect();
        let stop_code =
            run.stop.as_ref().filter(|_| run.state == RunState::Stopped).map(|stop| stop.exit_code);
        let failed = verdicts.iter().find(|verdict| !verdict.holds).map(|verdict| verdict.exit_code);
        Ok(Report {
            version: REPORT_VERSION,
            outcomes: outcomes_of(tally),
            durations: durations_of(tally, &all, &split),
            first_byte: tally.latencies.first_byte.figures(),
            lateness: tally.latencies.late.figures(),
            curves: Curves {
                intended: all.intended.curve(),
                actual: all.actual.curve(),
                first_byte: tally.latencies.first_byte.curve(),
            },
            splits: splits.into_iter().map(|(cache, split)| split_row(cache, &split)).collect(),
            sites: names_of(&tally.sites, |sums| sums),
            datasets: names_of(&tally.datasets, |sums| sums),
            caches: names_of(&tally.caches, |sums| &sums.sums),
            agents: names_of(&tally.agents, |sums| sums),
            drivers: names_of(&tally.drivers, |sums| sums),
            differences: differences((&tally.totals, &handing_out), &caches, &origins),
            exit_code: stop_code.or(failed).unwrap_or(0),
            hits: rows,
            run,
            totals,
            series,
            handing_out,
            expected,
            cache_records: caches,
            cache_files,
            origins,
            verdicts,
        })
    }
}

fn per_second(number: u64, us: u64) -> f64 {
    if us == 0 { 0.0 } else { number as f64 * 1e6 / us as f64 }
}

fn totals_of(tally: &Tally, run: &RunFacts, series: &SeriesView) -> TotalsView {
    let of = &tally.totals;
    let peak = series.points.iter().map(|point| point.bytes).max().unwrap_or(0);
    TotalsView {
        accesses: of.accesses,
        errors: of.errors,
        bytes_asked: of.bytes_asked,
        bytes: of.bytes,
        bytes_of_errors: of.bytes_of_errors,
        read_again: of.again,
        bytes_asked_again: of.bytes_asked_again,
        partial: of.partial,
        retried: of.retried,
        redirects: of.redirects,
        rounding_bytes: of.rounding,
        accesses_per_second: per_second(of.accesses, run.elapsed_us),
        bytes_per_second: per_second(of.bytes, run.elapsed_us),
        peak_bytes_per_second: per_second(peak, series.width_us),
    }
}

fn outcomes_of(tally: &Tally) -> Vec<OutcomeRow> {
    let row = |(outcome, sums): (Outcome, &OutcomeSums)| {
        let mut numbers: Vec<NumberRow> = sums
            .numbers
            .iter()
            .map(|(number, accesses)| NumberRow { number: *number, accesses: *accesses })
            .collect();
        numbers.sort_by_key(|row| (std::cmp::Reverse(row.accesses), row.number));
        let rest: u64 = numbers.iter().skip(REPORT_NUMBERS_MAX).map(|row| row.accesses).sum();
        numbers.truncate(REPORT_NUMBERS_MAX);
        OutcomeRow {
            outcome,
            accesses: sums.accesses,
            bytes: sums.bytes,
            numbers,
            other_numbers: sums.other_numbers + rest,
        }
    };
    let all = Outcome::ALL.into_iter().zip(&tally.outcomes);
    all.filter(|(_, sums)| sums.accesses > 0).map(row).collect()
}

fn durations_of(tally: &Tally, all: &All, split: &Split) -> Vec<DurationRow> {
    let of = &tally.latencies;
    let exact = [
        (AccessClass::All, &all.intended, &all.actual),
        (AccessClass::Ok, &of.intended_ok, &of.actual_ok),
        (AccessClass::Error, &of.intended_error, &of.actual_error),
    ];
    let classes = [
        (AccessClass::Hit, &split.hits),
        (AccessClass::Miss, &split.misses),
        (AccessClass::Unclear, &split.unclear),
    ];
    let exact = exact.into_iter().flat_map(|(class, intended, actual)| {
        [(class, CountedFrom::Intended, intended.figures()), (class, CountedFrom::Actual, actual.figures())]
    });
    let classes = classes.into_iter().flat_map(|(class, sums)| {
        let figures = TimeFigures::of_coarse;
        [
            (class, CountedFrom::Intended, figures(&sums.intended)),
            (class, CountedFrom::Actual, figures(&sums.actual)),
        ]
    });
    let row = |(class, from, figures): (AccessClass, CountedFrom, Option<TimeFigures>)| {
        figures.map(|figures| DurationRow { class, from, figures })
    };
    exact.chain(classes).filter_map(row).collect()
}

fn split_row(cache: &str, split: &Split) -> SplitRow {
    let class = |of: &ClassSums| SplitClass { accesses: of.accesses, read_again: of.again, bytes: of.bytes };
    SplitRow {
        cache: cache.to_owned(),
        border_us: split.border_us,
        hits: class(&split.hits),
        misses: class(&split.misses),
        unclear: class(&split.unclear),
    }
}

fn series_of(tally: &Tally) -> SeriesView {
    let point = |of: &Point| SeriesPoint {
        due: of.due,
        bytes_due: of.bytes_due,
        ended: of.ended,
        errors: of.errors,
        bytes: of.bytes,
        p50_us: of.intended.quantile(0.5),
        p99_us: of.intended.quantile(0.99),
    };
    SeriesView {
        width_us: tally.series.width_us(),
        points: tally.series.points().iter().map(point).collect(),
    }
}

fn name_row(name: &str, of: &NameSums) -> NameRow {
    NameRow {
        name: name.to_owned(),
        accesses: of.accesses,
        errors: of.errors,
        bytes_asked: of.bytes_asked,
        bytes: of.bytes,
        read_again: of.again,
        p50_us: of.intended.quantile(0.5),
        p99_us: of.intended.quantile(0.99),
        late_p99_us: of.late.quantile(0.99),
    }
}

fn names_of<V: Merge>(names: &ByName<V>, sums: impl Fn(&V) -> &NameSums) -> NamesView {
    let mut all: Vec<(&str, &NameSums)> = names.rows().map(|(name, of)| (name, sums(of))).collect();
    all.sort_by_key(|(name, of)| (std::cmp::Reverse(of.accesses), *name));
    let rest = all.split_off(all.len().min(REPORT_ROWS_MAX));
    let mut others = NameSums::default();
    rest.iter().for_each(|(_, of)| others.merge(of));
    if let Some(of) = names.others() {
        others.merge(sums(of));
    }
    NamesView {
        rows: all.into_iter().map(|(name, of)| name_row(name, of)).collect(),
        others: (others.accesses > 0).then(|| name_row("", &others)),
        is_sample: names.others().is_some(),
    }
}

/// Values of a whole run that thresholds are judged by.
struct Known<'a> {
    totals: &'a TotalsView,
    intended: Option<TimeFigures>,
    late: Option<TimeFigures>,
    /// Bytes that passed caches by, and all.
    bypass: (u64, u64),
    /// Bytes that origins sent.
    out: Option<u64>,
    elapsed_us: u64,
    hits: &'a [HitShare],
}

impl Known<'_> {
    fn value(&self, measure: Measure) -> Option<u64> {
        let share = |part: u64, of: u64| (of > 0).then(|| (part as f64 / of as f64 * 1e6).round() as u64);
        let each_second =
            |number: u64| (self.elapsed_us > 0).then(|| per_second(number, self.elapsed_us) as u64);
        let off = |foretold: (HitQuantity, HitView), measured: &[(HitQuantity, HitView)]| {
            let (foretold, measured) = (share_of(self.hits, &[foretold])?, share_of(self.hits, measured)?);
            Some(((foretold - measured).abs() * 1e6).round() as u64)
        };
        use HitQuantity::{BytesAsked, BytesFetched, Requests};
        use HitView::{Cache, Clients, Origin, Trace};
        match measure {
            Measure::Errors => share(self.totals.errors, self.totals.accesses),
            Measure::P50 => self.intended.map(|of| of.p50_us),
            Measure::P90 => self.intended.map(|of| of.p90_us),
            Measure::P99 => self.intended.map(|of| of.p99_us),
            Measure::P999 => self.intended.map(|of| of.p999_us),
            Measure::Late => self.late.map(|of| of.p99_us),
            Measure::Rate => each_second(self.totals.bytes),
            Measure::Origin => self.out.and_then(each_second),
            Measure::Bypass => share(self.bypass.0, self.bypass.1),
            Measure::Flat => None,
            Measure::RequestsOff => off((Requests, Trace), &[(Requests, Clients), (Requests, Cache)]),
            Measure::BytesOff => off(
                (BytesAsked, Trace),
                &[(BytesFetched, Origin), (BytesFetched, Cache), (BytesAsked, Cache)],
            ),
        }
    }

    fn judge(&self, threshold: &Condition) -> Verdict {
        let value = self.value(threshold.measure());
        let text = match value {
            Some(value) => threshold.compared(value),
            None => "cannot be judged: the figure is not known".to_owned(),
        };
        Verdict {
            threshold: threshold.to_string(),
            holds: value.is_some_and(|value| !threshold.is_crossed(value)),
            value,
            text,
            exit_code: threshold.measure().exit_code(),
        }
    }
}
