//! Metrics for the operator: statements by kind, and outcomes of appends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use exacat_activity::Distribution;
use exacat_store::{Buckets, Sample};

use crate::metric_table as table;

/// Kinds of statements.
#[derive(Clone, Copy)]
pub(crate) enum Sent {
    /// A read.
    Read,
    /// A plain write.
    Write,
    /// A conditional batch.
    Conditional,
}

const KINDS: [(Sent, &str); 3] =
    [(Sent::Read, "reads"), (Sent::Write, "writes"), (Sent::Conditional, "conditional_batches")];

/// Statements of one kind.
#[derive(Default)]
struct Statements {
    sent: AtomicU64,
    times: Distribution,
}

/// Counters since this server was started.
#[derive(Default)]
pub(crate) struct Metrics {
    statements: [Statements; KINDS.len()],
    reads_again: AtomicU64,
    rounds: AtomicU64,
    lost: AtomicU64,
    unknown: AtomicU64,
    groups: AtomicU64,
    group_changes: Distribution,
    changes: AtomicU64,
    flushed: AtomicU64,
    waited: AtomicU64,
    audited: AtomicU64,
    backed_off: AtomicU64,
    out: AtomicU64,
    inward: AtomicU64,
    diverged: AtomicU64,
    /// Difference of clocks in milliseconds, plus one; 0 before it is known.
    clock: AtomicU64,
}

impl Metrics {
    /// Counts a statement that was sent.
    pub(crate) fn sent(&self, kind: Sent) {
        self.statements[kind as usize].sent.fetch_add(1, Relaxed);
    }

    /// Counts the time of a statement, answered or not.
    pub(crate) fn took(&self, kind: Sent, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.statements[kind as usize].times.record(us, 1);
    }

    /// Counts a round of fetches: all needed rows at once.
    pub(crate) fn round(&self) {
        self.rounds.fetch_add(1, Relaxed);
    }

    /// Counts a read that failed and was repeated.
    pub(crate) fn read_again(&self) {
        self.reads_again.fetch_add(1, Relaxed);
    }

    /// Counts an append that lost against another server's.
    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// Counts an append of unknown outcome, which a read must resolve.
    pub(crate) fn unknown(&self) {
        self.unknown.fetch_add(1, Relaxed);
    }

    /// Counts a group of `changes` changes that is in the log.
    pub(crate) fn group(&self, changes: usize) {
        self.groups.fetch_add(1, Relaxed);
        self.group_changes.record(changes as u64, 1);
        self.changes.fetch_add(changes as u64, Relaxed);
    }

    /// Counts a flush to the tables.
    pub(crate) fn flushed(&self) {
        self.flushed.fetch_add(1, Relaxed);
    }

    /// Counts an append that waited because too much was in the log alone.
    pub(crate) fn waited_for_tables(&self) {
        self.waited.fetch_add(1, Relaxed);
    }

    /// Counts a back-off in favour of another server.
    pub(crate) fn backed_off(&self) {
        self.backed_off.fetch_add(1, Relaxed);
    }

    /// Counts a request that another server carried out for this server's client.
    pub(crate) fn forwarded_out(&self) {
        self.out.fetch_add(1, Relaxed);
    }

    /// Counts a request of another server's client.
    pub(crate) fn forwarded_in(&self) {
        self.inward.fetch_add(1, Relaxed);
    }

    /// Counts a log that turned out to be another branch of the history.
    pub(crate) fn diverged(&self) {
        self.diverged.fetch_add(1, Relaxed);
    }

    /// Resets the row count at the begin of an audit.
    pub(crate) fn audit_begins(&self) {
        self.audited.store(0, Relaxed);
    }

    /// Counts rows that an audit read.
    pub(crate) fn audited(&self, rows: usize) {
        self.audited.fetch_add(rows as u64, Relaxed);
    }

    /// Notes the difference of the machine's clock and that of a node, in milliseconds.
    pub(crate) fn clock_differs(&self, by_ms: u64) {
        self.clock.store(by_ms.saturating_add(1), Relaxed);
    }

    /// Lists all metrics.
    pub(crate) fn list(&self) -> Vec<Sample> {
        let load = |value: &AtomicU64| value.load(Relaxed);
        let mut list = Vec::new();
        for ((_, name), statements) in KINDS.iter().zip(&self.statements) {
            list.push(table::STATEMENTS_SENT.of(*name, load(&statements.sent)));
            let times = Buckets::of_times(&statements.times.now());
            list.push(table::STATEMENT_TIME.in_buckets(Some((*name).into()), times));
        }
        list.extend([
            table::READS_REPEATED.is(load(&self.reads_again)),
            table::ROUNDS.is(load(&self.rounds)),
            table::APPENDS.of("lost", load(&self.lost)),
            table::APPENDS.of("unknown", load(&self.unknown)),
            table::GROUPS.is(load(&self.groups)),
            table::CHANGES.is(load(&self.changes)),
            table::GROUP.in_buckets(None, Buckets::of_sizes(&self.group_changes.now())),
            table::FLUSHES.is(load(&self.flushed)),
            table::APPENDS.of("waited_for_flush", load(&self.waited)),
            table::APPENDS.of("backed_off", load(&self.backed_off)),
            table::FORWARDED.of("out", load(&self.out)),
            table::FORWARDED.of("in", load(&self.inward)),
            table::DIVERGED.is(load(&self.diverged)),
            table::FSCK_ROWS.is(load(&self.audited)),
        ]);
        list.extend(load(&self.clock).checked_sub(1).map(|ms| table::CLOCK_DIFFERENCE.is(ms)));
        list
    }
}
