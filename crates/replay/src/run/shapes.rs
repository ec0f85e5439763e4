//! JSON between the replay service, its agents and its operators.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::outcome::AccessResult;
use crate::both_sides::cinfo::CinfoSums;

/// Prefix of the paths.
pub const API: &str = "/api/v1/";

/// Access that an agent has to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayItem {
    /// Number in the run.
    pub item: u64,
    /// Number of the attempt.
    pub attempt: u32,
    /// Microseconds from the answer to the intended begin; negative if it has passed.
    pub due_us: i64,
    /// Microseconds from the answer until the item is handed to another agent.
    pub lease_us: u64,
    /// Name of the file.
    pub name: String,
    /// Bytes of the file.
    pub size: u64,
    /// Adler-32 of the file, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adler32: Option<u32>,
    /// Bytes to read, as in a trace: `-`, `LENGTH/STEP`, or `OFFSET+LENGTH,…`.
    pub reads: String,
    /// Place of the client in the trace; empty if it is not known.
    pub site: String,
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Nothing was handed out yet.
    Planned,
    /// Items are handed out.
    Running,
    /// Nothing is handed out until it is resumed.
    Paused,
    /// Every item has its result.
    Done,
    /// The operator ended it, or a stop condition did.
    Stopped,
}

impl RunState {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            RunState::Planned => "planned",
            RunState::Running => "running",
            RunState::Paused => "paused",
            RunState::Done => "done",
            RunState::Stopped => "stopped",
        }
    }
}

/// States of the files of a cache, from its own disk: `POST runs/{run}/cinfo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CinfoRequest {
    /// Name of the cache, as agents have it.
    pub cache: String,
    /// Sums over its files.
    pub sums: CinfoSums,
}

/// Request for items: `POST runs/{run}/items`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemsRequest {
    /// Name of the agent, unique among all of the run.
    pub agent: String,
    /// Address of the cache that it reads from.
    pub cache: String,
    /// Way in which it reads: `xrootd`, `xrdcp`, `http`.
    pub driver: String,
    /// Most items to hand out.
    pub count: u32,
    /// Number of the last answer with items that this process got; none before the first. If a later one was
    /// lost, its items come again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// Answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemsAnswer {
    /// State of the run. After `done` and `stopped` no item will come.
    pub state: RunState,
    /// Items, in the order in which they begin.
    pub items: Vec<ReplayItem>,
    /// Milliseconds after which the agent asks again if it can take more.
    pub again_ms: u64,
    /// Accesses that the agent may have in flight at once; none for no bound but its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Number of the answer among those to this agent that had items.
    #[serde(default)]
    pub number: u64,
}

/// Results of an agent: `POST runs/{run}/results`. The answer comes after they are durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultsRequest {
    /// Name of the agent.
    pub agent: String,
    /// Results, at most `RESULTS_MAX`.
    pub results: Vec<AccessResult>,
}

/// Answer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultsAnswer {
    /// Results that are the final ones of their items.
    pub accepted: u64,
    /// Results that the service had already.
    pub known: u64,
    /// Results of items that another attempt had ended before.
    pub late: u64,
    /// Results that are none of this run.
    pub refused: Vec<RefusedResult>,
    /// State of the run after them.
    pub state: Option<RunState>,
}

/// Result that the service does not take. Sent again it is refused again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedResult {
    /// Number of the item.
    pub item: u64,
    /// Number of the attempt.
    pub attempt: u32,
    /// Reason.
    pub reason: String,
}
