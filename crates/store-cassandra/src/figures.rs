//! Figures for an operator: statements by kind, and what became of appends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since this server was started.
#[derive(Default)]
pub(crate) struct Figures {
    reads: AtomicU64,
    reads_again: AtomicU64,
    rounds: AtomicU64,
    writes: AtomicU64,
    conditional: AtomicU64,
    lost: AtomicU64,
    unknown: AtomicU64,
    groups: AtomicU64,
    changes: AtomicU64,
    settled: AtomicU64,
    waited: AtomicU64,
    audited: AtomicU64,
    gave_way: AtomicU64,
    handed: AtomicU64,
    taken: AtomicU64,
    diverged: AtomicU64,
}

impl Figures {
    /// A read was sent.
    pub fn read(&self) {
        self.reads.fetch_add(1, Relaxed);
    }

    /// Rows were fetched, all that was needed at once.
    pub fn round(&self) {
        self.rounds.fetch_add(1, Relaxed);
    }

    /// A read failed, and was done again.
    pub fn read_again(&self) {
        self.reads_again.fetch_add(1, Relaxed);
    }

    /// A plain write was sent.
    pub fn write(&self) {
        self.writes.fetch_add(1, Relaxed);
    }

    /// A conditional batch was sent.
    pub fn conditional(&self) {
        self.conditional.fetch_add(1, Relaxed);
    }

    /// Another server's append came first.
    pub fn lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// It was not known what became of an append, and had to be found out.
    pub fn unknown(&self) {
        self.unknown.fetch_add(1, Relaxed);
    }

    /// A group of so many changes is in the log.
    pub fn group(&self, changes: usize) {
        self.groups.fetch_add(1, Relaxed);
        self.changes.fetch_add(changes as u64, Relaxed);
    }

    /// What was in the log alone is in the tables.
    pub fn settled(&self) {
        self.settled.fetch_add(1, Relaxed);
    }

    /// An append had to wait until there was less in the log alone.
    pub fn waited_for_tables(&self) {
        self.waited.fetch_add(1, Relaxed);
    }

    /// Another server was let go first.
    pub fn gave_way(&self) {
        self.gave_way.fetch_add(1, Relaxed);
    }

    /// Another server carried out a request of this one's client.
    pub fn handed_over(&self) {
        self.handed.fetch_add(1, Relaxed);
    }

    /// A request of another server's client.
    pub fn taken(&self) {
        self.taken.fetch_add(1, Relaxed);
    }

    /// The log turned out to be another branch of the history.
    pub fn diverged(&self) {
        self.diverged.fetch_add(1, Relaxed);
    }

    /// A check of everything begins.
    pub fn audit_begins(&self) {
        self.audited.store(0, Relaxed);
    }

    /// It read so many more rows.
    pub fn audited(&self, rows: usize) {
        self.audited.fetch_add(rows as u64, Relaxed);
    }

    /// All of them by name.
    pub fn list(&self) -> Vec<(String, u64)> {
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
            ("tables_written", &self.settled),
            ("appends_waited_for_tables", &self.waited),
            ("appends_gave_way", &self.gave_way),
            ("requests_handed_over", &self.handed),
            ("requests_taken_over", &self.taken),
            ("log_diverged", &self.diverged),
            ("fsck_rows_read", &self.audited),
        ]
        .map(|(name, counter)| (name.to_owned(), counter.load(Relaxed)))
        .to_vec()
    }
}
