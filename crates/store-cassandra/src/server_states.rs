//! States of servers, which each server shows to the others for a minute; and the difference of the
//! machine's clock and that of the cluster.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use exacat_model::{Consistency, Result, TimeMs};
use scylla::value::CqlValue;

use crate::cluster::Cluster;
use crate::follower::Follower;
use crate::statement::cql;
use crate::tables::{Bound, Columns, big, blob};

/// Partition of all states.
const ALL: CqlValue = CqlValue::Int(0);

/// States that this server has written. Only it writes its row, so a counter orders the writes.
#[derive(Debug, Default)]
pub(crate) struct OwnState {
    written: AtomicI64,
}

impl OwnState {
    /// Writes the state of this server, and compares the clocks.
    pub(crate) async fn show(&self, follower: &Follower, state: &[u8]) -> Result<()> {
        let bound = Bound {
            text: cql!("INSERT INTO server_states (id, server, state) VALUES (?, ?, ?)"),
            values: vec![ALL, big(follower.peers.id), blob(state.to_vec())],
        };
        follower.cluster.write(&bound, self.written.fetch_add(1, Ordering::Relaxed)).await?;
        compare_clocks(follower).await
    }
}

/// Reads the states of other servers, at most so many.
pub(crate) async fn of_others(follower: &Follower, limit: usize) -> Result<Vec<Vec<u8>>> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1);
    let bound = Bound {
        text: cql!("SELECT server, state FROM server_states WHERE id = ? LIMIT ?"),
        values: vec![ALL, crate::tables::int(limit)],
    };
    let mut states = Vec::new();
    for row in follower.cluster.read(&bound).await? {
        let mut row = Columns::new(row);
        if row.big()? != follower.peers.id {
            states.push(row.blob()?);
        }
    }
    Ok(states)
}

/// Asks a node of the cluster for its time.
async fn node_time(cluster: &Cluster) -> Result<Option<TimeMs>> {
    let bound = Bound { text: cql!("SELECT toTimestamp(now()) FROM system.local"), values: Vec::new() };
    match cluster.read_one_at(&bound, Consistency::One).await? {
        Some(mut row) => row.maybe_time(),
        None => Ok(None),
    }
}

async fn compare_clocks(follower: &Follower) -> Result<()> {
    let (before, began) = (follower.clock.now(), Instant::now());
    let Some(node) = node_time(&follower.cluster).await? else { return Ok(()) };
    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    follower.cluster.metrics.clock_differs(difference(before, took, node));
    Ok(())
}

/// Returns the least difference of two clocks, in milliseconds: the node read its own at some time within
/// `took` milliseconds after `before`.
fn difference(before: TimeMs, took: u64, node: TimeMs) -> u64 {
    let after = before.0.saturating_add(took);
    before.0.saturating_sub(node.0).max(node.0.saturating_sub(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time that an answer takes is no difference of clocks.
    #[test]
    fn only_the_certain_part_of_a_difference_counts() {
        let of = |node| difference(TimeMs(1000), 30, TimeMs(node));
        assert_eq!([of(1000), of(1015), of(1030)], [0, 0, 0]);
        assert_eq!([of(990), of(1031), of(5000)], [10, 1, 3970]);
        assert_eq!(difference(TimeMs(u64::MAX), 30, TimeMs(0)), u64::MAX);
    }
}
