//! JSON that the service shows to operators.

use exacat_replay::report::views::HandingOut;
use exacat_replay::run::live::{LiveRun, Now};
use exacat_replay::run::settings::RunSettings;
use exacat_replay::run::shapes::RunState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Run of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayRunView {
    /// Name.
    pub name: String,
    /// State.
    pub state: RunState,
    /// Reason for the state, for a person; empty if there is none.
    pub reason: String,
    /// Exit status of commands that wait for the run: 0, or that of the condition that stopped it.
    pub exit_code: u8,
    /// Settings.
    pub settings: RunSettings,
    /// Accesses of the plan.
    pub accesses: u64,
    /// Those that have their result.
    pub ended: u64,
    /// Those that failed.
    pub failed: u64,
    /// Microseconds for which the run was running.
    pub elapsed_us: u64,
    /// Begin, in microseconds since 1970; none before it.
    pub began_us: Option<u64>,
    /// Counts of what was handed out.
    pub handing_out: HandingOut,
}

impl ReplayRunView {
    /// Describes a run.
    pub(crate) fn of(live: &LiveRun, now: Now) -> Self {
        let (state, reason) = live.state();
        ReplayRunView {
            name: live.settings().name.clone(),
            state,
            reason: reason.to_owned(),
            exit_code: live.stop().map_or(0, |stop| stop.exit_code),
            settings: live.settings().clone(),
            accesses: live.queue().items(),
            ended: live.queue().counters().ended,
            failed: live.tally().errors(),
            elapsed_us: live.elapsed_us(now),
            began_us: live.began_us(),
            handing_out: live.handing_out(),
        }
    }
}

/// Runs of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayRuns {
    /// Runs by their names.
    pub runs: Vec<ReplayRunView>,
}

/// Item as the first replay gave it out: `GET /stress_test`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StressTestItem {
    /// Id, for `GET /stress_result/ID/CODE/SECONDS`.
    pub _id: String,
    /// Last part of the name of the file.
    pub filename: String,
    /// Bytes.
    pub filesize: u64,
    /// Name of the file, to put behind the address of a cache.
    pub path: String,
    /// Adler-32 in hexadecimal; empty if it is not known.
    pub adler32: String,
    /// Always `in queue`.
    pub status: String,
    /// Time of the access in the trace, in milliseconds since 1970.
    pub timestamp: u64,
}
