//! Generated traces, by the statistics of real ones: datasets whose popularity drifts, tasks of many jobs
//! that read neighbouring files within minutes, files copied as a whole or read in parts.

use std::f64::consts::TAU;

use exacat_exchange::error::{Error, Result};
use fastrand::Rng;
use serde::Serialize;

use crate::content::Content;
use crate::limits::{GENERATED_ACCESSES_MAX, GENERATED_FILES_MAX, SITES_MAX, SIZE_MAX};
use crate::trace::reads::Reads;
use crate::trace::{AccessRow, Trace};

/// Microseconds of a second and of a day.
const SECOND: f64 = 1e6;
const DAY: f64 = 86_400.0 * SECOND;
/// Files of a dataset, at least and at most.
const DATASET_FILES: (f64, f64) = (1.0, 1000.0);
/// Files that a job reads, at most, and jobs of a task.
const JOB_FILES_MAX: u64 = 50;
const TASK_JOBS_MAX: u64 = 20;
/// Bytes of a read of a part, and the shares of a file that are read so.
const PART_BYTES: u64 = 1 << 20;
const PART_STEPS: [u64; 4] = [2, 3, 5, 10];
/// Distance that a dataset moves: the standard deviation of the logarithm of its rank.
const DRIFT_SPREAD: f64 = 0.7;
/// Least bytes of a file.
const SIZE_MIN: f64 = 1000.0;

/// Statistics of a generated trace. The default is that of a regional cache ("like SoCal").
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Seed: the same one makes the same trace.
    pub seed: u64,
    /// Files that exist.
    pub files: u64,
    /// Accesses.
    pub accesses: u64,
    /// Begin, in microseconds since 1970.
    pub begin_us: u64,
    /// Length in days.
    pub days: f64,
    /// Exponent of the popularity of datasets: the share of the one at a rank falls with rank^-exponent.
    pub popularity: f64,
    /// Exponent by which files of less popular datasets are larger: their size grows with rank^exponent.
    pub size_growth: f64,
    /// Median size of a file, in bytes.
    pub size_median: f64,
    /// Spread of sizes: the standard deviation of their logarithm.
    pub size_spread: f64,
    /// Median number of files of a dataset.
    pub dataset_files: f64,
    /// Spread of that number.
    pub dataset_spread: f64,
    /// Share of the ranks that are given anew each day.
    pub drift: f64,
    /// Median number of files that a job reads.
    pub job_files: f64,
    /// Median number of jobs of a task. They read the same files within minutes.
    pub task_jobs: f64,
    /// Share of accesses that read a part of the file.
    pub parts: f64,
    /// Sites, of about the same weight.
    pub sites: u64,
    /// Directory of the files.
    pub below: String,
}

impl Default for Statistics {
    fn default() -> Self {
        Statistics {
            seed: 1,
            files: 50_000,
            accesses: 200_000,
            begin_us: 1_543_622_400_000_000,
            days: 30.0,
            popularity: 1.1,
            size_growth: 0.9,
            size_median: 2e9,
            size_spread: 1.0,
            dataset_files: 60.0,
            dataset_spread: 1.0,
            drift: 0.05,
            job_files: 5.0,
            task_jobs: 1.0,
            parts: 0.3,
            sites: 4,
            below: "/replay".to_owned(),
        }
    }
}

impl Statistics {
    /// Checks that a trace can be made of them.
    ///
    /// # Errors
    /// Names the value that is out of its range.
    pub fn check(&self) -> Result<()> {
        let range = |name: &str, value: f64, from: f64, to: f64| {
            let is_within = (from..=to).contains(&value);
            let what = || Error::options(format!("{name} is from {from} to {to}, not {value}"));
            if is_within { Ok(()) } else { Err(what()) }
        };
        range("the number of files", self.files as f64, 1.0, GENERATED_FILES_MAX as f64)?;
        range("the number of accesses", self.accesses as f64, 1.0, GENERATED_ACCESSES_MAX as f64)?;
        range("the number of sites", self.sites as f64, 1.0, (SITES_MAX - 1) as f64)?;
        range("the number of days", self.days, 1e-6, 36_500.0)?;
        range("the exponent of popularity", self.popularity, 0.0, 3.0)?;
        range("the growth of sizes", self.size_growth, 0.0, 3.0)?;
        range("the median size", self.size_median, 1.0, SIZE_MAX as f64)?;
        range("the spread of sizes", self.size_spread, 0.0, 5.0)?;
        range("the median of files of a dataset", self.dataset_files, DATASET_FILES.0, DATASET_FILES.1)?;
        range("the spread of datasets", self.dataset_spread, 0.0, 5.0)?;
        range("the drift", self.drift, 0.0, 1.0)?;
        range("the files of a job", self.job_files, 1.0, JOB_FILES_MAX as f64)?;
        range("the jobs of a task", self.task_jobs, 1.0, TASK_JOBS_MAX as f64)?;
        range("the share of partial reads", self.parts, 0.0, 1.0)?;
        if self.below.starts_with('/') { Ok(()) } else { Err(Error::options("the directory begins with /")) }
    }
}

/// Returns a number with a logarithm of this spread.
fn lognormal(random: &mut Rng, median: f64, spread: f64) -> f64 {
    // Box and Muller.
    let (one, other) = (1.0 - random.f64(), random.f64());
    median * (spread * (-2.0 * one.ln()).sqrt() * (TAU * other).cos()).exp()
}

/// Returns a time until the next of events that come at random.
fn exponential(random: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - random.f64()).ln()
}

/// A dataset: some neighbouring files.
struct Dataset {
    first: u64,
    files: u64,
}

/// Maker of a trace.
struct Maker<'a> {
    of: &'a Statistics,
    random: Rng,
    content: Content,
    datasets: Vec<Dataset>,
    /// Dataset at each rank.
    ranks: Vec<usize>,
    /// Rank at which the sizes of a dataset were drawn.
    born: Vec<usize>,
    /// Sums of the weights of the ranks.
    weights: Vec<f64>,
    sizes: Vec<u64>,
    sums: Vec<Option<u32>>,
}

impl Maker<'_> {
    fn new(of: &Statistics) -> Maker<'_> {
        let mut random = Rng::with_seed(of.seed);
        let (mut datasets, mut first) = (Vec::new(), 0);
        while first < of.files {
            let files = lognormal(&mut random, of.dataset_files, of.dataset_spread);
            let files = (files.clamp(DATASET_FILES.0, DATASET_FILES.1) as u64).min(of.files - first);
            datasets.push(Dataset { first, files });
            first += files;
        }
        let mut ranks: Vec<usize> = (0..datasets.len()).collect();
        random.shuffle(&mut ranks);
        let mut sum = 0.0;
        let weights = (1..=ranks.len()).map(|rank| {
            sum += (rank as f64).powf(-of.popularity);
            sum
        });
        let weights = weights.collect();
        let mut born = vec![0; datasets.len()];
        for (rank, dataset) in ranks.iter().enumerate() {
            born[*dataset] = rank;
        }
        let mut maker = Maker {
            of,
            random,
            content: Content::default(),
            datasets,
            ranks,
            born,
            weights,
            sizes: vec![0; of.files as usize],
            sums: vec![None; of.files as usize],
        };
        maker.draw_sizes();
        maker
    }

    fn draw_sizes(&mut self) {
        let (of, Maker { random, datasets, born, sizes, .. }) = (self.of, self);
        for (number, dataset) in datasets.iter().enumerate() {
            // Datasets in the middle of the ranks have the median.
            let rank = (born[number] + 1) as f64 / (0.5 * (datasets.len() + 1) as f64);
            let median = of.size_median * rank.powf(of.size_growth);
            // Files of one dataset are more alike than those of two.
            let own = lognormal(random, median, of.size_spread * 0.8);
            for file in dataset.first..dataset.first + dataset.files {
                let size = lognormal(random, own, of.size_spread * 0.6);
                sizes[file as usize] = size.clamp(SIZE_MIN, SIZE_MAX as f64) as u64;
            }
        }
    }

    fn dataset(&mut self) -> usize {
        let place = self.random.f64() * self.weights.last().copied().unwrap_or(0.0);
        let rank = self.weights.partition_point(|sum| *sum <= place).min(self.ranks.len() - 1);
        self.ranks[rank]
    }

    /// Gives some ranks anew: two datasets of neighbouring ranks change places. So large files, which are of
    /// little popularity, stay so on the whole.
    fn drift(&mut self) {
        let count = self.ranks.len();
        let swaps = (count as f64 * self.of.drift / 2.0).round() as usize;
        for _ in 0..swaps {
            let one = self.random.usize(..count);
            let other = lognormal(&mut self.random, (one + 1) as f64, DRIFT_SPREAD).round() as usize;
            self.ranks.swap(one, other.clamp(1, count) - 1);
        }
    }

    /// Returns how busy the day is at a time, on average 1.
    fn busy(time: f64) -> f64 {
        1.0 + 0.5 * (TAU * time / DAY).sin()
    }

    /// Adds the accesses of a task that begins at a time.
    fn task(&mut self, trace: &mut Trace, time: f64) {
        let at = self.dataset();
        let (first, files) = (self.datasets[at].first, self.datasets[at].files);
        let of = self.of;
        let count = lognormal(&mut self.random, of.job_files, 0.8).round().clamp(1.0, JOB_FILES_MAX as f64);
        let count = (count as u64).min(files);
        let begin = first + self.random.u64(..=files - count);
        let jobs =
            lognormal(&mut self.random, of.task_jobs, 0.6).round().clamp(1.0, TASK_JOBS_MAX as f64) as u64;
        let site = format!("SITE-{:02}", self.random.u64(..of.sites) + 1);
        let reads = match self.random.f64() < of.parts {
            true => {
                let step = PART_STEPS[self.random.usize(..PART_STEPS.len())];
                Reads::Strided { length: PART_BYTES, step: step * PART_BYTES }
            }
            false => Reads::Whole,
        };
        let dataset = format!("dataset-{at:06}");
        for _ in 0..jobs {
            // Jobs of one task start within minutes of each other.
            let mut now = time + exponential(&mut self.random, 120.0 * SECOND);
            for file in begin..begin + count {
                if trace.accesses().len() as u64 >= of.accesses {
                    return;
                }
                let size = self.sizes[file as usize];
                let name = format!("{}/{dataset}/file-{file:08}.root", of.below.trim_end_matches('/'));
                let content = &self.content;
                let sum = *self.sums[file as usize].get_or_insert_with(|| content.adler32(&name, size));
                let row = AccessRow {
                    time_us: now as u64,
                    name: &name,
                    size,
                    adler32: Some(sum),
                    site: &site,
                    dataset: &dataset,
                    reads: reads.clone(),
                };
                // All of it was checked before.
                let _ = trace.add(&row);
                // A file is read at 10 to 50 MB/s, and then the job computes.
                let seconds = size as f64 / (1e7 + 4e7 * self.random.f64());
                now += (seconds + exponential(&mut self.random, 60.0)) * SECOND;
            }
        }
    }
}

/// Makes a trace. `progress` is called with the number of accesses so far.
///
/// # Errors
/// A value is out of its range.
pub fn generate(of: &Statistics, progress: &mut dyn FnMut(u64)) -> Result<Trace> {
    of.check()?;
    let mut maker = Maker::new(of);
    let mut trace = Trace::new();
    let begin = of.begin_us as f64;
    // Tasks come at random, so that the accesses fill the days.
    let per_task = mean(of.job_files, 0.8) * mean(of.task_jobs, 0.6);
    let tasks = (of.accesses as f64 / per_task).max(1.0);
    let gap = of.days * DAY / tasks;
    let (mut time, mut day) = (begin, begin + DAY);
    while (trace.accesses().len() as u64) < of.accesses {
        let busy = Maker::busy(time - begin);
        time += exponential(&mut maker.random, gap / busy);
        while time >= day {
            maker.drift();
            day += DAY;
        }
        let before = trace.accesses().len();
        maker.task(&mut trace, time);
        let after = trace.accesses().len();
        if after / PROGRESS_ROWS > before / PROGRESS_ROWS {
            progress(after as u64);
        }
        if after == before {
            return Err(Error::options("the trace has as many files or accesses as it may have"));
        }
    }
    trace.sort();
    trace.out_of_order = 0;
    trace.description = serde_json::json!({ "made": "generated", "statistics": of });
    Ok(trace)
}

/// Accesses between two calls of the progress.
const PROGRESS_ROWS: usize = 8192;

/// Returns the mean of a rounded number with this median and spread, about.
fn mean(median: f64, spread: f64) -> f64 {
    (median * (spread * spread / 2.0).exp()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::{BLOCK_BYTES, Distances};

    fn small() -> Statistics {
        Statistics { files: 3000, accesses: 10_000, days: 3.0, size_median: 1e7, ..Statistics::default() }
    }

    /// Property: a seed makes the same trace each time; the trace has so many accesses, and is in the order
    /// of time.
    #[test]
    fn seeds_decide_the_trace() {
        let make = |of: &Statistics| generate(of, &mut |_| {}).unwrap();
        let (one, same, other) = (make(&small()), make(&small()), make(&Statistics { seed: 2, ..small() }));
        assert_eq!(one.accesses(), same.accesses());
        assert_eq!(one.files(), same.files());
        assert_ne!(one.accesses(), other.accesses());
        assert_eq!(one.accesses().len(), 10_000);
        assert!(one.accesses().windows(2).all(|pair| pair[0].time_us <= pair[1].time_us));
        assert!(one.files().len() > 500 && one.datasets() > 10 && one.sites() == 4);
        let parts = one.accesses().iter().filter(|access| *one.reads(access) != Reads::Whole).count();
        assert!((1500..4500).contains(&parts), "{parts}");
        let first = one.row(&one.accesses()[0]);
        assert_eq!(first.adler32, Some(Content::default().adler32(first.name, first.size)));
    }

    /// Property: the default resembles the cache of SoCal, which found 67.6 % of the files and 35.4 % of
    /// the bytes.
    #[test]
    fn default_is_like_a_regional_cache() {
        for seed in [1, 2] {
            let trace = generate(&Statistics { seed, ..Statistics::default() }, &mut |_| {}).unwrap();
            let distances = Distances::of(&trace, BLOCK_BYTES);
            let five = distances.curve(&[0.05])[0];
            assert!((five.of_requests - 0.676).abs() < 0.04, "{five:?}");
            assert!((five.of_bytes - 0.354).abs() < 0.06, "{five:?}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for bad in [
            Statistics { files: 0, ..small() },
            Statistics { files: GENERATED_FILES_MAX + 1, ..small() },
            Statistics { accesses: 0, ..small() },
            Statistics { popularity: f64::NAN, ..small() },
            Statistics { parts: 1.1, ..small() },
            Statistics { days: 0.0, ..small() },
            Statistics { below: "x".to_owned(), ..small() },
        ] {
            assert!(generate(&bad, &mut |_| {}).is_err(), "{bad:?}");
        }
        let least = Statistics { files: 1, accesses: 1, sites: 1, ..small() };
        assert_eq!(generate(&least, &mut |_| {}).unwrap().accesses().len(), 1);
    }
}
