//! Metrics for the operator: statements by kind, and outcomes of appends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since this server was started.
#[derive(Default)]
pub(crate) struct Metrics {
    reads: AtomicU64,
    reads_again: AtomicU64,
    rounds: AtomicU64,
    writes: AtomicU64,
    conditional: AtomicU64,
    lost: AtomicU64,
    unknown: AtomicU64,
    groups: AtomicU64,
    changes: AtomicU64,
    flushed: AtomicU64,
    waited: AtomicU64,
    audited: AtomicU64,
    backed_off: AtomicU64,
    out: AtomicU64,
    inward: AtomicU64,
    diverged: AtomicU64,
}

impl Metrics {
    /// Counts a read that was sent.
    pub(crate) fn read(&self) {
        self.reads.fetch_add(1, Relaxed);
    }

    /// Counts a round of fetches: all needed rows at once.
    pub(crate) fn round(&self) {
        self.rounds.fetch_add(1, Relaxed);
    }

    /// Counts a read that failed and was repeated.
    pub(crate) fn read_again(&self) {
        self.reads_again.fetch_add(1, Relaxed);
    }

    /// Counts a plain write that was sent.
    pub(crate) fn write(&self) {
        self.writes.fetch_add(1, Relaxed);
    }

    /// Counts a conditional batch that was sent.
    pub(crate) fn conditional(&self) {
        self.conditional.fetch_add(1, Relaxed);
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

    /// Lists all metrics by name.
    pub(crate) fn list(&self) -> Vec<(String, u64)> {
        [
            ("reads", &self.reads),
            ("reads_repeated", &self.reads_again),
            ("rounds_fetched", &self.rounds),
            ("writes", &self.writes),
            ("conditional_batches", &self.conditional),
            ("appends_lost", &self.lost),
            ("appends_unknown", &self.unknown),
            ("groups", &self.groups),
            ("changes", &self.changes),
            ("flushes", &self.flushed),
            ("appends_waited_for_flush", &self.waited),
            ("appends_backed_off", &self.backed_off),
            ("requests_forwarded_out", &self.out),
            ("requests_forwarded_in", &self.inward),
            ("log_diverged", &self.diverged),
            ("fsck_rows_read", &self.audited),
        ]
        .map(|(name, counter)| (name.to_owned(), counter.load(Relaxed)))
        .to_vec()
    }
}
