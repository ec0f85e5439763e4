//! Limits of exports as tables: name, value, and reason for each value.

/// Pages of entries that wait for the thread that writes.
pub(crate) const PAGES_WAITING_MAX: usize = 4;
/// Problems that a check reports; more of them have the same cause.
pub(crate) const PROBLEMS_SHOWN_MAX: usize = 20;
