//! Settings of the rules that an operator may change.

use exacat_model::Consistency;

/// Settings of the catalogue's rules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// True if callers without credentials may read what mode bits give to others.
    pub anonymous_reads: bool,
    /// Lifetime of an upload reservation without one of its own, in seconds.
    pub reservation_seconds: u64,
    /// Longest lifetime of an upload reservation, in seconds.
    pub reservation_seconds_max: u64,
    /// Longest lifetime of a token, in seconds.
    pub token_seconds_max: u64,
    /// Time that an item stays in the trash before the worker purges it, in seconds; none means for
    /// ever.
    pub trash_seconds: Option<u64>,
    /// Entries purged in one request to the store.
    pub purge_step_entries: usize,
    /// Most entries that the worker purges per second, so that it does not slow users.
    pub purge_entries_per_second: u64,
    /// Most entries that one page of a find reads, so that a page takes a bounded time.
    pub find_scan_entries: usize,
    /// Longest wait for changes, in milliseconds.
    pub changes_wait_ms: u64,
    /// Consistency level of requests that do not name one.
    pub consistency: Consistency,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            anonymous_reads: false,
            reservation_seconds: 24 * 3600,
            reservation_seconds_max: 30 * 24 * 3600,
            token_seconds_max: 366 * 24 * 3600,
            trash_seconds: Some(30 * 24 * 3600),
            purge_step_entries: 1000,
            purge_entries_per_second: 20_000,
            find_scan_entries: 50_000,
            changes_wait_ms: 10_000,
            consistency: Consistency::Latest,
        }
    }
}
