//! Summary of a trace: rates by hour, sizes, popularity, working set, reuse, and what caches must reach.

use serde::Serialize;
use utoipa::ToSchema;

use crate::distance::{Distances, Expected};
use crate::trace::Trace;
use crate::trace::reads::Reads;

/// Microseconds of an hour.
const HOUR_US: u64 = 3_600_000_000;
/// Hours that are shown one by one; longer traces are shown by several hours together.
pub const BARS_MAX: usize = 1000;
/// Sites and datasets that are named.
const NAMED_MAX: usize = 10;
/// Points of the curve of popularity.
const RANKS: usize = 200;

/// Numbers at some shares of a sorted list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = TraceQuantiles)]
pub struct Quantiles {
    /// Least.
    pub min: u64,
    /// Half are below.
    pub p50: u64,
    /// Nine of ten are below.
    pub p90: u64,
    /// 99 of a hundred are below.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// Average.
    pub mean: u64,
}

impl Quantiles {
    fn of(mut values: Vec<u64>) -> Quantiles {
        if values.is_empty() {
            return Quantiles::default();
        }
        values.sort_unstable();
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
        let mean = u64::try_from(sum / values.len() as u128).unwrap_or(u64::MAX);
        Quantiles { min: at(0.0), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0), mean }
    }
}

/// A site or dataset, with its accesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TraceNamed)]
pub struct Named {
    /// Name.
    pub name: String,
    /// Accesses.
    pub accesses: u64,
    /// Bytes that these ask for.
    pub bytes_asked: u64,
}

/// Accesses of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TraceBar)]
pub struct Bar {
    /// Begin, in microseconds since 1970.
    pub from_us: u64,
    /// Accesses.
    pub accesses: u64,
    /// Bytes that these ask for.
    pub bytes_asked: u64,
}

/// Summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = TraceSummary)]
pub struct Summary {
    /// Origin of the trace.
    pub description: serde_json::Value,
    /// Accesses.
    pub accesses: u64,
    /// Files.
    pub files: u64,
    /// Bytes of the files.
    pub file_bytes: u64,
    /// Files whose Adler-32 is known.
    pub files_with_sum: u64,
    /// Bytes that the accesses ask for.
    pub bytes_asked: u64,
    /// Bytes of the blocks that are touched: a cache of this size never removes a file.
    pub working_set_bytes: u64,
    /// First access, in microseconds since 1970.
    pub first_us: u64,
    /// Last access.
    pub last_us: u64,
    /// Accesses that read a part of their file.
    pub partial_reads: u64,
    /// Accesses a second, over the busiest minute.
    pub busiest_minute: f64,
    /// Accesses by spans of time.
    pub bars: Vec<Bar>,
    /// Length of such a span in hours.
    pub bar_hours: u64,
    /// Bytes of files.
    pub sizes: Quantiles,
    /// Accesses of a file.
    pub uses: Quantiles,
    /// Seconds from one use of a file to its next.
    pub reuse_seconds: Quantiles,
    /// Share of the files that are used once.
    pub used_once: f64,
    /// Share of the accesses to the most used hundredth of the files.
    pub of_top_percent: f64,
    /// Sites, the busiest first.
    pub sites: Vec<Named>,
    /// Number of sites.
    pub sites_total: u64,
    /// Datasets, the busiest first.
    pub datasets: Vec<Named>,
    /// Number of datasets.
    pub datasets_total: u64,
    /// Files at some ranks, the most used first.
    pub popularity: Vec<Ranked>,
    /// Caches, and what they must reach.
    pub caches: Vec<CacheRow>,
}

/// A file by the number of its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TraceRank)]
pub struct Ranked {
    /// Rank, from 1.
    pub rank: u64,
    /// Accesses.
    pub uses: u64,
}

/// Shares that a cache of some size must reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = TraceCache)]
pub struct CacheRow {
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Its share of the working set.
    pub of_working_set: f64,
    /// Share of accesses whose file it has.
    pub hit_requests: f64,
    /// Share of the bytes asked for that are in these files.
    pub hit_bytes: f64,
}

impl CacheRow {
    fn of(expected: &Expected, working_set: u64) -> CacheRow {
        CacheRow {
            cache_bytes: expected.cache_bytes,
            of_working_set: expected.cache_bytes as f64 / working_set.max(1) as f64,
            hit_requests: expected.of_requests,
            hit_bytes: expected.of_bytes,
        }
    }
}

/// Shares of the working set for which caches are shown if no size is asked for.
pub const SHARES: [f64; 9] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0];

/// Counts by numbers: accesses and bytes.
fn named(counts: Vec<(u64, u64)>, name: impl Fn(usize) -> String) -> Vec<Named> {
    let mut all: Vec<(usize, (u64, u64))> =
        counts.into_iter().enumerate().filter(|(_, (accesses, _))| *accesses > 0).collect();
    all.sort_by_key(|(number, (accesses, _))| (std::cmp::Reverse(*accesses), *number));
    all.truncate(NAMED_MAX);
    let to_named = |(number, (accesses, bytes_asked))| Named { name: name(number), accesses, bytes_asked };
    all.into_iter().map(to_named).collect()
}

fn bars_of(trace: &Trace, first: u64, last: u64) -> (Vec<Bar>, u64) {
    let hours = (last - first) / HOUR_US + 1;
    let each = hours.div_ceil(BARS_MAX as u64);
    let span = each * HOUR_US;
    // Whole hours of the day.
    let begin = first - first % HOUR_US;
    let count = usize::try_from((last - begin) / span + 1).unwrap_or(0);
    let mut bars: Vec<Bar> =
        (0..count).map(|at| Bar { from_us: begin + at as u64 * span, ..Bar::default() }).collect();
    for access in trace.accesses() {
        let at = usize::try_from((access.time_us - begin) / span).unwrap_or(usize::MAX);
        if let Some(bar) = bars.get_mut(at) {
            bar.accesses += 1;
            bar.bytes_asked = bar.bytes_asked.saturating_add(trace.bytes_asked(access));
        }
    }
    (bars, each)
}

/// Returns the most accesses of 60 seconds, for each second of them.
fn busiest_minute(trace: &Trace) -> f64 {
    let accesses = trace.accesses();
    let (mut from, mut most) = (0, 0);
    for (at, access) in accesses.iter().enumerate() {
        while accesses[from].time_us + 60_000_000 <= access.time_us {
            from += 1;
        }
        most = most.max(at + 1 - from);
    }
    most as f64 / 60.0
}

/// Summarises a trace. `caches` are the sizes of caches to be judged; none for shares of the working set.
pub fn summarise(trace: &Trace, distances: &Distances, caches: &[u64]) -> Summary {
    let accesses = trace.accesses();
    let (Some(first), Some(last)) = (accesses.first(), accesses.last()) else {
        return Summary { description: trace.description.clone(), ..Summary::default() };
    };
    let (first_us, last_us) = (first.time_us, last.time_us);
    let mut uses = vec![0_u64; trace.files().len()];
    let mut before: Vec<Option<u64>> = vec![None; trace.files().len()];
    let (mut sites, mut datasets) = (vec![(0, 0); trace.sites()], vec![(0, 0); trace.datasets()]);
    let (mut reuse, mut partial_reads) = (Vec::new(), 0);
    let add = |counts: &mut (u64, u64), asked: u64| *counts = (counts.0 + 1, counts.1.saturating_add(asked));
    for access in accesses {
        let file = access.file as usize;
        uses[file] += 1;
        reuse.extend(before[file].map(|before| (access.time_us - before) / 1_000_000));
        before[file] = Some(access.time_us);
        let asked = trace.bytes_asked(access);
        add(&mut sites[usize::from(access.site)], asked);
        add(&mut datasets[trace.file(access.file).dataset as usize], asked);
        partial_reads += u64::from(*trace.reads(access) != Reads::Whole);
    }
    let used_once = uses.iter().filter(|uses| **uses == 1).count() as f64 / uses.len() as f64;
    let mut ranked = uses.clone();
    ranked.sort_unstable_by_key(|uses| std::cmp::Reverse(*uses));
    let top: u64 = ranked.iter().take(ranked.len().div_ceil(100)).sum();
    let working_set = distances.bytes_touched;
    let expected = match caches {
        [] => distances.curve(&SHARES),
        sizes => sizes.iter().map(|size| distances.expected(*size)).collect(),
    };
    let (bars, bar_hours) = bars_of(trace, first_us, last_us);
    Summary {
        description: trace.description.clone(),
        accesses: accesses.len() as u64,
        files: trace.files().len() as u64,
        file_bytes: trace.files().iter().fold(0, |sum, file| file.size.saturating_add(sum)),
        files_with_sum: trace.files().iter().filter(|file| file.adler32.is_some()).count() as u64,
        bytes_asked: distances.bytes_asked,
        working_set_bytes: working_set,
        first_us,
        last_us,
        partial_reads,
        busiest_minute: busiest_minute(trace),
        bars,
        bar_hours,
        sizes: Quantiles::of(trace.files().iter().map(|file| file.size).collect()),
        uses: Quantiles::of(uses),
        reuse_seconds: Quantiles::of(reuse),
        used_once,
        of_top_percent: top as f64 / accesses.len() as f64,
        sites_total: trace.sites() as u64,
        sites: named(sites, |site| trace.site(site as u16).to_owned()),
        datasets_total: trace.datasets() as u64,
        datasets: named(datasets, |dataset| trace.dataset(dataset as u32).to_owned()),
        popularity: popularity(&ranked),
        caches: expected.iter().map(|expected| CacheRow::of(expected, working_set)).collect(),
    }
}

/// Returns the uses at some ranks, evenly on a logarithmic scale.
fn popularity(ranked: &[u64]) -> Vec<Ranked> {
    let step = (ranked.len() as f64).powf(1.0 / RANKS as f64).max(1.0 + 1e-9);
    let mut points: Vec<Ranked> = Vec::new();
    let mut rank = 1.0_f64;
    while let Some(uses) = ranked.get(rank as usize - 1) {
        if points.last().is_none_or(|last| last.rank < rank as u64) {
            points.push(Ranked { rank: rank as u64, uses: *uses });
        }
        rank = (rank * step).max(rank.floor() + if rank < 2.0 { 1.0 } else { 0.0 });
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::BLOCK_BYTES;
    use crate::trace::AccessRow;

    fn trace(rows: &[(u64, &str, u64, &str)]) -> Trace {
        let mut trace = Trace::new();
        for (time_us, name, size, site) in rows {
            let row = AccessRow { time_us: *time_us, name, size: *size, site, ..AccessRow::default() };
            trace.add(&row).unwrap();
        }
        trace
    }

    #[test]
    fn numbers_of_a_small_trace() {
        let hour = HOUR_US;
        let trace = trace(&[
            (0, "/a", 10, "S"),
            (1, "/b", 30, "T"),
            (2 * hour, "/a", 10, "S"),
            (2 * hour + 5_000_000, "/a", 10, "S"),
        ]);
        let distances = Distances::of(&trace, BLOCK_BYTES);
        let of = summarise(&trace, &distances, &[10, 40]);
        assert_eq!((of.accesses, of.files, of.file_bytes, of.bytes_asked), (4, 2, 40, 60));
        assert_eq!((of.first_us, of.last_us, of.bar_hours), (0, 2 * hour + 5_000_000, 1));
        let bars: Vec<u64> = of.bars.iter().map(|bar| bar.accesses).collect();
        assert_eq!(bars, [2, 0, 2]);
        assert_eq!((of.uses.min, of.uses.max, of.sizes.p50, of.used_once), (1, 3, 30, 0.5));
        assert_eq!((of.reuse_seconds.min, of.reuse_seconds.max), (5, 7200));
        assert_eq!(
            of.sites.iter().map(|site| (site.name.as_str(), site.accesses)).collect::<Vec<_>>(),
            [("S", 3), ("T", 1)]
        );
        assert_eq!(of.popularity.iter().map(|of| (of.rank, of.uses)).collect::<Vec<_>>(), [(1, 3), (2, 1)]);
        let hits: Vec<f64> = of.caches.iter().map(|cache| cache.hit_requests).collect();
        assert_eq!(hits, [0.25, 0.5]);
        assert!((of.busiest_minute - 2.0 / 60.0).abs() < 1e-9);
    }

    #[test]
    fn empty_and_long_traces_are_summarised() {
        let empty = summarise(&Trace::new(), &Distances::of(&Trace::new(), 1), &[]);
        assert_eq!((empty.accesses, empty.bars.len()), (0, 0));
        let long = trace(&[(0, "/a", 1, ""), (5000 * HOUR_US, "/a", 1, "")]);
        let of = summarise(&long, &Distances::of(&long, 1), &[]);
        assert!(of.bars.len() <= BARS_MAX + 1 && of.bar_hours == 6, "{} {}", of.bars.len(), of.bar_hours);
        assert_eq!(of.bars.iter().map(|bar| bar.accesses).sum::<u64>(), 2);
    }
}
