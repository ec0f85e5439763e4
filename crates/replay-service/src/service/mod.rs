//! Service of a replay: it hands out the accesses of runs to agents over HTTP, takes their results durably,
//! and reports.
//!
//! - [`ReplayServer`] has the listener, the runs, and what time brings.
//! - `paths` answers requests; `stress_test` has the endpoints of the first replay.
//! - `runs` has the runs of a directory; `held_run` is one of them, with its `journal`.
//! - `both_sides` adds what caches and origins tell; `reports` puts all of it together.
//! - `metrics` has the figures for Prometheus.

mod access;
mod both_sides;
mod clock;
mod held_run;
#[cfg(test)]
mod held_run_tests;
mod journal;
mod metric_table;
mod metrics;
mod paths;
mod remote;
mod reports;
mod runs;
mod server;
mod shapes;
mod stress_test;
mod trace_files;

pub use remote::ReplayRemote;
pub use server::{ORIGIN_TIME, ReplayServer, ReplayServerSettings};
pub use shapes::{ReplayRunView, ReplayRuns, StressTestItem};
