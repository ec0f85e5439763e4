//! JSON of a report. Names of fields are stable; those of numbers end in their unit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::differences::Difference;
use super::hits::HitShare;
use super::times::{CurvePoint, TimeFigures};
use super::views::{CacheFilesView, CacheView, ExpectedView, HandingOut, OriginView, RunFacts};
use crate::run::outcome::Outcome;

/// Version of the shape of a report.
pub const REPORT_VERSION: u32 = 1;

/// Report of a run, during it or after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayReport)]
pub struct Report {
    /// Version of this shape, now 1.
    pub version: u32,
    /// Run.
    pub run: RunFacts,
    /// Sums over all accesses that ended.
    pub totals: TotalsView,
    /// Accesses by outcome. Outcomes that did not occur are left out.
    pub outcomes: Vec<OutcomeRow>,
    /// Durations by class of accesses, from the intended begin and from the actual one.
    pub durations: Vec<DurationRow>,
    /// Time from the actual begin to the first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<TimeFigures>,
    /// Time from the intended begin to the actual one: the part of the delay that the agents are to blame
    /// for, or that a bound of accesses in flight makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<TimeFigures>,
    /// Curves of durations.
    pub curves: Curves,
    /// Accesses told apart by their first bytes, for each cache.
    pub splits: Vec<SplitRow>,
    /// Figures over time.
    pub series: SeriesView,
    /// Accesses by the place of the client in the trace.
    pub sites: NamesView,
    /// Accesses by the dataset of the file.
    pub datasets: NamesView,
    /// Accesses by cache.
    pub caches: NamesView,
    /// Accesses by agent.
    pub agents: NamesView,
    /// Accesses by the way in which agents read.
    pub drivers: NamesView,
    /// Counts of the service.
    pub handing_out: HandingOut,
    /// Hits that a cache of the given size must reach with the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedView>,
    /// Figures of caches, from their records.
    pub cache_records: Vec<CacheView>,
    /// Files of caches, from the states on their disks.
    #[serde(default)]
    pub cache_files: Vec<CacheFilesView>,
    /// Figures of origins.
    pub origins: Vec<OriginView>,
    /// Hits, by quantity and view.
    pub hits: Vec<HitShare>,
    /// Differences between clients, caches and origins, with their causes.
    pub differences: Vec<Difference>,
    /// Thresholds, and whether they hold.
    pub verdicts: Vec<Verdict>,
    /// Exit code of commands that wait for the run: 0, or that of the condition that stopped it, or that of
    /// the first threshold that does not hold.
    pub exit_code: u8,
}

/// Sums over accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayTotals)]
pub struct TotalsView {
    /// Accesses that ended.
    pub accesses: u64,
    /// Accesses that failed.
    pub errors: u64,
    /// Bytes that the accesses ask for.
    pub bytes_asked: u64,
    /// Bytes that came to clients.
    pub bytes: u64,
    /// Those of them that came in accesses that failed.
    pub bytes_of_errors: u64,
    /// Accesses to files that were read before in the run, by the plan.
    pub read_again: u64,
    /// Bytes that these ask for.
    pub bytes_asked_again: u64,
    /// Accesses that ask for a part of their file.
    pub partial: u64,
    /// Accesses that were not the first attempt.
    pub retried: u64,
    /// Redirects that clients followed.
    pub redirects: u64,
    /// Bytes by which the blocks of a cache exceed what was asked for, at the first access to each file.
    pub rounding_bytes: u64,
    /// Accesses that ended a second, over the run.
    pub accesses_per_second: f64,
    /// Bytes that came a second, over the run.
    pub bytes_per_second: f64,
    /// Bytes that came a second, in the busiest point of the series.
    pub peak_bytes_per_second: f64,
}

/// Accesses of one outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayOutcome)]
pub struct OutcomeRow {
    /// Outcome.
    pub outcome: Outcome,
    /// Accesses.
    pub accesses: u64,
    /// Bytes that came in them.
    pub bytes: u64,
    /// Accesses by the number of their error, the most frequent first, at most 20.
    pub numbers: Vec<NumberRow>,
    /// Accesses with an error of another number.
    pub other_numbers: u64,
}

/// Accesses with one error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayErrorNumber)]
pub struct NumberRow {
    /// Number: of XRootD, of HTTP, of the exit of a program.
    pub number: u32,
    /// Accesses.
    pub accesses: u64,
}

/// Class of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayAccessClass)]
#[serde(rename_all = "snake_case")]
pub enum AccessClass {
    /// All accesses.
    All,
    /// Accesses that succeeded.
    Ok,
    /// Accesses that failed.
    Error,
    /// Accesses that succeeded, with an early first byte. An estimate.
    Hit,
    /// Accesses that succeeded, with a late first byte. An estimate.
    Miss,
    /// Accesses that succeeded, and of which nobody can say whether they hit or missed.
    Unclear,
}

impl AccessClass {
    /// Returns its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            AccessClass::All => "all",
            AccessClass::Ok => "ok",
            AccessClass::Error => "failed",
            AccessClass::Hit => "hit (estimate)",
            AccessClass::Miss => "miss (estimate)",
            AccessClass::Unclear => "hit or miss",
        }
    }
}

/// Begin that a duration is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayBegin)]
#[serde(rename_all = "snake_case")]
pub enum CountedFrom {
    /// Intended begin: the time that a job would have waited.
    Intended,
    /// Actual begin: the time that the cache took.
    Actual,
}

/// Durations of a class of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayDuration)]
pub struct DurationRow {
    /// Class.
    pub class: AccessClass,
    /// Begin that the durations are counted from.
    pub from: CountedFrom,
    /// Figures. Those of hits and misses are up to 1/16 too high, the others are exact to three digits.
    pub figures: TimeFigures,
}

/// Curves of durations of all accesses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayCurves)]
pub struct Curves {
    /// From the intended begin.
    pub intended: Vec<CurvePoint>,
    /// From the actual begin.
    pub actual: Vec<CurvePoint>,
    /// From the actual begin to the first byte.
    pub first_byte: Vec<CurvePoint>,
}

/// Successful accesses through a cache, told apart by their first bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplaySplit)]
pub struct SplitRow {
    /// Cache.
    pub cache: String,
    /// Latest first byte of a hit, in microseconds; none if first bytes do not form two groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub border_us: Option<u64>,
    /// Accesses that hit.
    pub hits: SplitClass,
    /// Accesses that missed.
    pub misses: SplitClass,
    /// Accesses of which nothing can be said.
    pub unclear: SplitClass,
}

/// Accesses of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplaySplitClass)]
pub struct SplitClass {
    /// Accesses.
    pub accesses: u64,
    /// Those of them to files that were read before in the run.
    pub read_again: u64,
    /// Bytes that came.
    pub bytes: u64,
}

/// Figures over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplaySeries)]
pub struct SeriesView {
    /// Microseconds of each point. The first begins with the run.
    pub width_us: u64,
    /// Points, at most 512.
    pub points: Vec<SeriesPoint>,
}

/// Figures of a point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplaySeriesPoint)]
pub struct SeriesPoint {
    /// Accesses whose intended begin it is.
    pub due: u64,
    /// Bytes that these ask for.
    pub bytes_due: u64,
    /// Accesses that ended.
    pub ended: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Bytes that came to clients.
    pub bytes: u64,
    /// Duration from the intended begin that half of the accesses that were due did not exceed, up to 1/16
    /// too high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    /// The same of 99 in a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
}

/// Accesses by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayNames)]
pub struct NamesView {
    /// Names, those with most accesses first, at most 1000.
    pub rows: Vec<NameRow>,
    /// Sum of all names that have no row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<NameRow>,
    /// Says whether there were more names than a tally tells apart: the rows are then not those with most
    /// accesses of all names, but of some that were chosen by hash. The figures of each are complete.
    pub is_sample: bool,
}

/// Accesses of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayName)]
pub struct NameRow {
    /// Name.
    pub name: String,
    /// Accesses.
    pub accesses: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Bytes that the accesses ask for.
    pub bytes_asked: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Accesses to files that were read before in the run.
    pub read_again: u64,
    /// Duration from the intended begin that half of the accesses do not exceed, up to 1/16 too high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    /// The same of 99 in a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    /// Lateness of the driver that 99 of a hundred accesses do not exceed, up to 1/16 too high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_p99_us: Option<u64>,
}

/// Threshold, judged over a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayVerdict)]
pub struct Verdict {
    /// Threshold.
    pub threshold: String,
    /// Says whether it holds. One that cannot be judged does not hold.
    pub holds: bool,
    /// Measured value: millionths of a share, microseconds, or bytes a second; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Measured value and bound, in words.
    pub text: String,
    /// Exit code if it does not hold.
    pub exit_code: u8,
}

/// Two runs, side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayComparison)]
pub struct Comparison {
    /// Name of the first run.
    pub first: String,
    /// Name of the second run.
    pub second: String,
    /// Figures of both.
    pub figures: Vec<ComparedFigure>,
    /// Settings that differ, with both values.
    pub settings: BTreeMap<String, ComparedSetting>,
}

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayUnit)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// Number.
    Count,
    /// Share from 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Number a second.
    PerSecond,
    /// Microseconds.
    Us,
}

/// Figure of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayComparedFigure)]
pub struct ComparedFigure {
    /// Name.
    pub figure: String,
    /// Unit.
    pub unit: FigureUnit,
    /// Value of the first run; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<f64>,
    /// Value of the second run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<f64>,
    /// Second by first; none if either is not known, or the first is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

/// Setting of two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayComparedSetting)]
pub struct ComparedSetting {
    /// Value of the first run; none if it has no such setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// Value of the second run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<String>,
}
