//! Freshness of the row cache: when this server last read the log head, and from how many replicas.
//!
//! A bounded-staleness answer uses the row cache at once, if a strong enough read began a short
//! time ago. The levels differ in that read alone. A weak read at most moves the server forward
//! along the log. The groups up to a head that one replica shows are read at QUORUM, as all rows
//! are. A read at QUORUM follows every fetch, whatever the level. So neither `latest` answers nor
//! decisions rest on a weak read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use exacat_model::Consistency;
use exacat_store::Sample;

use crate::metric_table as table;

const LEVELS: usize = Consistency::ALL.len();

/// See the module.
pub(crate) struct Freshness {
    opened: Instant,
    stale_max: Duration,
    /// By level: begin of the last successful read of the log head, in microseconds since `opened`,
    /// plus one; 0 for never.
    read_at: [AtomicU64; LEVELS],
    /// By level: answers requested.
    requested: [AtomicU64; LEVELS],
    /// Answers of them that needed no read of the log head; reads from fewer replicas than a
    /// quorum.
    without_head_read: AtomicU64,
    weak_head_reads: AtomicU64,
}

fn place(level: Consistency) -> usize {
    level as usize - 1
}

impl Freshness {
    pub(crate) fn new(stale_max: Duration) -> Self {
        let none = || std::array::from_fn(|_| AtomicU64::new(0));
        Freshness {
            opened: Instant::now(),
            stale_max,
            read_at: none(),
            requested: none(),
            without_head_read: AtomicU64::new(0),
            weak_head_reads: AtomicU64::new(0),
        }
    }

    /// Counts a requested answer of this level.
    pub(crate) fn count_requested(&self, level: Consistency) {
        if let Some(count) = self.requested.get(place(level)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts a bounded-staleness answer without a read of the log head.
    pub(crate) fn answered_without_head_read(&self) {
        self.without_head_read.fetch_add(1, Relaxed);
    }

    /// Notes a successful read of the log head at this level, and when it began.
    pub(crate) fn note_head_read(&self, level: Consistency, began: Instant) {
        let micros = began.saturating_duration_since(self.opened).as_micros();
        if let Some(read) = self.read_at.get(place(level)) {
            read.fetch_max(u64::try_from(micros).unwrap_or(u64::MAX - 1) + 1, Relaxed);
        }
        if level < Consistency::Quorum {
            self.weak_head_reads.fetch_add(1, Relaxed);
        }
    }

    /// Age of the last read that suffices for this level; none if there was none. A stronger read
    /// suffices for a weaker level, never the other way round.
    pub(crate) fn age(&self, level: Consistency, now: Instant) -> Option<Duration> {
        let strong_enough = self.read_at.get(place(level)..).unwrap_or_default();
        let last = strong_enough.iter().map(|read| read.load(Relaxed)).max().unwrap_or(0);
        let began = self.opened + Duration::from_micros(last.checked_sub(1)?);
        Some(now.saturating_duration_since(began))
    }

    /// Says whether the row cache suffices for an answer of this level without another read.
    pub(crate) fn is_fresh(&self, level: Consistency, now: Instant) -> bool {
        level != Consistency::Latest && self.age(level, now).is_some_and(|age| age <= self.stale_max)
    }

    /// Metrics for the operator.
    pub(crate) fn metrics(&self, now: Instant) -> Vec<Sample> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let levels = Consistency::ALL.iter().zip(&self.requested);
        let mut metrics: Vec<Sample> = levels
            .map(|(level, count)| table::ANSWERED.of(level.name().replace('-', "_"), count.load(Relaxed)))
            .collect();
        metrics.extend([
            table::WITHOUT_HEAD.is(self.without_head_read.load(Relaxed)),
            table::WEAK_HEAD.is(self.weak_head_reads.load(Relaxed)),
            table::STALE_LIMIT.is(millis(self.stale_max)),
        ]);
        metrics.extend(self.age(Consistency::Quorum, now).map(|age| table::HEAD_AGE.is(millis(age))));
        metrics
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const STALE: Duration = Duration::from_secs(1);

    /// Goal: the bound holds to the edge, and a weak read never counts for a stronger level.
    #[test]
    fn head_read_counts_for_its_time_and_for_weaker_levels() {
        let fresh = Freshness::new(STALE);
        let began = fresh.opened + Duration::from_millis(5);
        for level in Consistency::ALL {
            assert!(!fresh.is_fresh(level, began), "{level}: nothing was read yet");
        }
        fresh.note_head_read(Consistency::LocalQuorum, began);
        let edge = began + STALE;
        for (level, good) in [
            (Consistency::One, true),
            (Consistency::LocalQuorum, true),
            (Consistency::Quorum, false),
            (Consistency::Latest, false),
        ] {
            assert_eq!(fresh.is_fresh(level, edge), good, "{level}");
            assert!(!fresh.is_fresh(level, edge + Duration::from_micros(1)), "{level}");
        }
        assert_eq!(fresh.age(Consistency::Quorum, edge), None);
        fresh.note_head_read(Consistency::Quorum, edge);
        assert!(fresh.is_fresh(Consistency::Quorum, edge) && fresh.is_fresh(Consistency::One, edge + STALE));
        assert!(!fresh.is_fresh(Consistency::Latest, edge), "a later request reads the head again");
        // A read that began earlier adds nothing.
        fresh.note_head_read(Consistency::Quorum, began);
        assert_eq!(fresh.age(Consistency::Quorum, edge), Some(Duration::ZERO));
    }

    #[test]
    fn answers_are_counted_by_level() {
        let fresh = Freshness::new(STALE);
        fresh.count_requested(Consistency::One);
        fresh.count_requested(Consistency::One);
        fresh.count_requested(Consistency::Latest);
        fresh.answered_without_head_read();
        fresh.note_head_read(Consistency::One, fresh.opened);
        let figure = |fresh: &Freshness, name: &str| {
            let metrics = fresh.metrics(fresh.opened + Duration::from_millis(30));
            metrics.iter().flat_map(Sample::shown).find(|(this, _)| this == name).map(|(_, value)| value)
        };
        assert_eq!(figure(&fresh, "answers_one"), Some(2));
        assert_eq!(figure(&fresh, "answers_local_quorum"), Some(0));
        assert_eq!(figure(&fresh, "answers_latest"), Some(1));
        assert_eq!(figure(&fresh, "answers_without_head_read"), Some(1));
        assert_eq!(figure(&fresh, "head_reads_below_quorum"), Some(1));
        assert_eq!(figure(&fresh, "stale_max_ms"), Some(1000));
        assert_eq!(figure(&fresh, "head_age_ms"), None);
        fresh.note_head_read(Consistency::Quorum, fresh.opened + Duration::from_millis(10));
        assert_eq!(figure(&fresh, "head_age_ms"), Some(20));
    }
}
