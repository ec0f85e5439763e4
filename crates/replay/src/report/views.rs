//! Facts about a run from outside of its results: settings, handing out, caches, origins.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::conditions::StopReason;
use super::series::RateView;
use crate::both_sides::cinfo::CinfoSums;
use crate::distance::Distances;
use crate::run::shapes::RunState;

/// Facts about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayRun)]
pub struct RunFacts {
    /// Name.
    pub name: String,
    /// Mode in words, such as `as recorded, time x 10`.
    pub mode: String,
    /// State.
    pub state: RunState,
    /// Begin, in microseconds since 1970; none before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_us: Option<u64>,
    /// Microseconds from the begin to the end, or to this report.
    pub elapsed_us: u64,
    /// Accesses of the plan.
    pub planned_accesses: u64,
    /// Bytes that these ask for.
    pub planned_bytes: u64,
    /// Reason why it was stopped by a condition; none if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// Seconds for which records of caches may still come after the end; 0 if none are awaited.
    #[serde(default)]
    pub records_may_come_s: u64,
    /// Settings by their names: trace, speed, bound of accesses in flight, conditions, and others.
    pub settings: BTreeMap<String, String>,
}

/// Counts of the service that handed out the items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayHandingOut)]
pub struct HandingOut {
    /// Items that were handed out, each attempt counted.
    pub handed_out: u64,
    /// Items that are handed out now and have no result yet.
    pub in_flight: u64,
    /// Leases that ended without a result: their items were handed out again.
    pub leases_expired: u64,
    /// Results that came after another attempt of their item had ended.
    pub late_results: u64,
    /// Bytes of these: caches have moved them, the sums of accesses do not have them.
    pub late_result_bytes: u64,
    /// Results that were sent again, and that the service had already.
    pub known_results: u64,
    /// Results that were refused: none of this run.
    pub refused_results: u64,
    /// Agents that asked for items.
    pub agents: u64,
}

/// Files of a cache by the states on its own disk, as `exacat replay cinfo` sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayCacheFiles)]
pub struct CacheFilesView {
    /// Name of the cache.
    pub name: String,
    /// Sums when they came first: what the cache had before.
    pub first: CinfoSums,
    /// Sums when they came last.
    pub last: CinfoSums,
    /// Time of the last ones, in microseconds since the begin of the run.
    pub last_us: u64,
}

impl CacheFilesView {
    /// Returns the growth of a figure. It is less than what happened if files were removed meanwhile.
    pub fn grown(&self, of: fn(&CinfoSums) -> u64) -> u64 {
        of(&self.last).saturating_sub(of(&self.first))
    }
}

/// Figures of a cache during the run, from its own records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayCache)]
pub struct CacheView {
    /// Name that agents have; that of its records if no agent names it.
    pub name: String,
    /// Name that its records have, where it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Place in a chain: 0 if clients read from it, 1 if caches of place 0 read from it, and so on.
    #[serde(default)]
    pub place: u32,
    /// Version of its software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Bytes of its space for files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_bytes: Option<u64>,
    /// Bytes of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Files that clients opened, as the server counted (f-stream or summary); none if it did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Connections of clients, as the server counted; none if it did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Files that are open at the end of the run: their records are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Records of closed files. Clients that have a file open at the same time share one.
    pub records: u64,
    /// Records without a byte missed or passed by, and with a byte read.
    pub records_hit: u64,
    /// Records without a byte read.
    pub records_empty: u64,
    /// Accesses that these records count, by the growth of each file's number.
    pub access_count: u64,
    /// Bytes that clients read, and that the cache had.
    pub bytes_hit: u64,
    /// Bytes that clients read, and that it fetched for them.
    pub bytes_miss: u64,
    /// Bytes that clients read from the origin past the cache, which was busy.
    pub bytes_bypass: u64,
    /// Bytes that it fetched from the origin, bypassed ones included; none if its version does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_fetched: Option<u64>,
    /// Bytes that it fetched ahead of its clients; none if its version does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_prefetched: Option<u64>,
    /// Says whether `bytes_fetched` was computed from blocks, because the cache does not tell it.
    #[serde(default)]
    pub is_fetched_from_blocks: bool,
    /// Errors of checksums of pages.
    pub checksum_errors: u64,
    /// Datagrams of records that came.
    pub datagrams: u64,
    /// Datagrams that did not come, by the gaps in their numbers.
    pub lost_datagrams: u64,
    /// Datagrams or lines that could not be read.
    pub bad_datagrams: u64,
    /// Starts of the cache during the run, after the first.
    pub restarts: u64,
    /// Bytes that clients read, over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_over_time: Option<RateView>,
    /// Bytes that were fetched, over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_over_time: Option<RateView>,
}

impl CacheView {
    /// Returns the bytes that clients asked for.
    pub fn bytes_asked(&self) -> u64 {
        self.bytes_hit.saturating_add(self.bytes_miss).saturating_add(self.bytes_bypass)
    }
}

/// Figures of an origin during the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayOrigin)]
pub struct OriginView {
    /// Name.
    pub name: String,
    /// Files that were opened.
    pub opens: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Bytes that were sent.
    pub bytes_out: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Says whether `bytes_out` has the bytes of the protocol, too, as counters of a network link do.
    #[serde(default)]
    pub has_protocol_bytes: bool,
    /// Bytes that were sent, over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_over_time: Option<RateView>,
}

/// Hits that a cache of some size must reach with the whole trace, if it removes the file that was used
/// longest ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayExpected)]
pub struct ExpectedView {
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Bytes of the blocks that are touched: a cache of this size never removes a file.
    pub working_set_bytes: u64,
    /// Accesses of the trace.
    pub accesses: u64,
    /// Those of them whose file the cache has.
    pub hits: u64,
    /// Bytes that the accesses ask for.
    pub bytes_asked: u64,
    /// Those of them that are asked of files that the cache has.
    pub hit_bytes: u64,
}

impl ExpectedView {
    /// Returns the hits of a cache of some size.
    pub fn of(distances: &Distances, cache_bytes: u64) -> ExpectedView {
        let expected = distances.expected(cache_bytes);
        ExpectedView {
            cache_bytes,
            working_set_bytes: distances.bytes_touched,
            accesses: distances.accesses,
            hits: expected.hits,
            bytes_asked: distances.bytes_asked,
            hit_bytes: expected.hit_bytes,
        }
    }
}
