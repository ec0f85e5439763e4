//! What an operator may set about the rules.

use exacat_model::Consistency;

/// Settings of the catalogue's rules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// May someone without credentials read what mode bits give to others?
    pub anonymous_reads: bool,
    /// How long a booking lasts if not said, in seconds.
    pub booking_seconds: u64,
    /// How long a booking may last, in seconds.
    pub booking_seconds_max: u64,
    /// How long a token may last, in seconds.
    pub token_seconds_max: u64,
    /// How long an item stays in the trash before it is purged by itself, in seconds; none for ever.
    pub trash_seconds: Option<u64>,
    /// Entries purged in one request to the store.
    pub purge_step_entries: usize,
    /// Entries purged in a second by the worker, at most, so that users are not slowed.
    pub purge_entries_per_second: u64,
    /// Entries looked at for one page of a find, at most, so that a page takes a bounded time.
    pub find_scan_entries: usize,
    /// How long a wait for changes lasts at most, in milliseconds.
    pub changes_wait_ms: u64,
    /// How old the state may be that an answer is of, where who asks does not say.
    pub consistency: Consistency,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            anonymous_reads: false,
            booking_seconds: 24 * 3600,
            booking_seconds_max: 30 * 24 * 3600,
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
