//! Summary of an agent's work, for its command line.

use std::collections::BTreeMap;
use std::time::Duration;

use exacat_replay::run::outcome::{AccessResult, Outcome};
use hdrhistogram::Histogram;

use super::limits::{EXAMPLE_CHARS_MAX, HISTOGRAM_US_MAX, LATE_FROM};

/// Significant digits of the histograms.
const DIGITS: u8 = 3;

/// Times in microseconds, as a histogram. Times above an hour count as an hour.
#[derive(Clone, Debug)]
pub struct TimesUs(Option<Histogram<u64>>);

impl Default for TimesUs {
    fn default() -> Self {
        // The bounds are constants that the library accepts; without them nothing is recorded.
        TimesUs(Histogram::new_with_bounds(1, HISTOGRAM_US_MAX, DIGITS).ok())
    }
}

impl TimesUs {
    /// Adds a time.
    pub(crate) fn record(&mut self, us: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(us);
        }
    }

    /// Returns the time that a share of all does not exceed; 0 without any.
    pub fn quantile_us(&self, share: f64) -> u64 {
        self.0.as_ref().map_or(0, |histogram| histogram.value_at_quantile(share))
    }

    /// Returns the longest time, to the histogram's precision; 0 without any.
    pub fn max_us(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::max)
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }
}

/// Work of an agent, so far or in all.
#[derive(Clone, Debug, Default)]
pub struct AgentSummary {
    /// Time since the agent began.
    pub elapsed: Duration,
    /// Accesses that ended.
    pub accesses: u64,
    /// Accesses by the class of their end.
    pub by_outcome: BTreeMap<Outcome, u64>,
    /// Text of the last failure of each class.
    pub examples: BTreeMap<Outcome, String>,
    /// Bytes that came.
    pub bytes: u64,
    /// Redirections that were followed.
    pub redirects: u64,
    /// Time from the intended begin to the actual one.
    pub lateness: TimesUs,
    /// Accesses that began 5 ms late, or later.
    pub late: u64,
    /// Time from the actual begin to the first byte.
    pub first_byte: TimesUs,
    /// Time from the actual begin to the end, of accesses without error.
    pub duration: TimesUs,
    /// Items with ranges that were read whole, because the driver can do no other.
    pub read_whole: u64,
    /// Items that were not begun because their lease had ended.
    pub expired: u64,
    /// Accesses that the agent gave up when it was stopped or the run ended, and items not begun.
    pub abandoned: u64,
    /// Results that are the final ones of their items.
    pub accepted: u64,
    /// Results that the service had already.
    pub known: u64,
    /// Results of items that another attempt had ended before.
    pub superseded: u64,
    /// Results that the service refused.
    pub refused: u64,
    /// Results that did not reach the service.
    pub unreported: u64,
    /// Requests to the service that were sent again.
    pub service_retries: u64,
}

impl AgentSummary {
    /// Returns the accesses without error.
    pub fn ok(&self) -> u64 {
        self.by_outcome.get(&Outcome::Ok).copied().unwrap_or_default()
    }

    /// Returns the accesses with errors.
    pub fn failed(&self) -> u64 {
        self.accesses - self.ok()
    }

    /// Returns the accesses of a second.
    pub fn accesses_per_second(&self) -> f64 {
        self.accesses as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns the megabytes of a second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Adds an access that ended.
    pub(crate) fn add(&mut self, result: &AccessResult, why: Option<&str>) {
        self.accesses += 1;
        *self.by_outcome.entry(result.outcome).or_default() += 1;
        if let Some(why) = why {
            self.examples.insert(result.outcome, why.chars().take(EXAMPLE_CHARS_MAX).collect());
        }
        self.bytes += result.bytes;
        self.redirects += u64::from(result.redirects);
        self.lateness.record(result.late_us);
        self.late += u64::from(Duration::from_micros(result.late_us) >= LATE_FROM);
        if let Some(first) = result.first_byte_us {
            self.first_byte.record(first);
        }
        if result.outcome == Outcome::Ok {
            self.duration.record(result.duration_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a summary has the sums of its results; late ones count from 5 ms on.
    #[test]
    fn summary_has_the_sums_of_its_results() {
        let mut summary = AgentSummary { elapsed: Duration::from_secs(2), ..AgentSummary::default() };
        let ok = AccessResult { bytes: 3_000_000, late_us: 4999, duration_us: 70, ..Default::default() };
        summary.add(&AccessResult { first_byte_us: Some(50), redirects: 2, ..ok.clone() }, None);
        let long = "é".repeat(EXAMPLE_CHARS_MAX + 1);
        let missing = AccessResult { outcome: Outcome::NotFound, late_us: 5000, ..Default::default() };
        summary.add(&missing, Some(&long));
        summary.add(&AccessResult { late_us: u64::MAX, ..ok }, None);
        assert_eq!((summary.accesses, summary.ok(), summary.failed(), summary.late), (3, 2, 1, 2));
        assert_eq!((summary.bytes, summary.redirects, summary.first_byte.count()), (6_000_000, 2, 1));
        assert_eq!(summary.examples[&Outcome::NotFound].chars().count(), EXAMPLE_CHARS_MAX);
        assert_eq!((summary.accesses_per_second(), summary.megabytes_per_second()), (1.5, 3.0));
        assert!(summary.lateness.max_us() >= HISTOGRAM_US_MAX, "no time is lost");
        assert_eq!(summary.lateness.quantile_us(0.3), 4999);
        assert_eq!(AgentSummary::default().lateness.quantile_us(0.99), 0);
    }
}
