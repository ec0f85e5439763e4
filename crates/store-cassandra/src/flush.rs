//! Flushes: writes the changes that are only in the log to the tables. Every write carries its
//! position in the log, so any server can repeat it, even late, without harm.
//!
//! The after-images of many groups are written together, each row once. Rows of one partition go in
//! unlogged batches, which are as atomic and nearly as cheap as one row.

use std::collections::HashMap;

use exacat_model::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use scylla::value::CqlValue;

use crate::cluster::{Cluster, moment};
use crate::limits::{ATTEMPTS_MAX, BATCH_BYTES_MAX, BATCH_ROWS_MAX, FLUSHES_IN_FLIGHT};
use crate::retry::Attempts;
use crate::row_cache::Frozen;
use crate::rows::Key;
use crate::tables::{self, Bound, Partition};

/// Rows of one partition on their way into a batch.
#[derive(Default)]
struct Filling {
    bounds: Vec<Bound>,
    bytes: usize,
}

/// Statements that are sent together.
#[derive(Default)]
struct Batches {
    full: Vec<Vec<Bound>>,
    filling: HashMap<Partition, Filling>,
}

impl Batches {
    fn add(&mut self, partition: Option<Partition>, bound: Bound) {
        let Some(partition) = partition else {
            self.full.push(vec![bound]);
            return;
        };
        let bytes = bytes_of(&bound);
        let filling = self.filling.entry(partition).or_default();
        let many = filling.bounds.len() >= BATCH_ROWS_MAX || filling.bytes + bytes > BATCH_BYTES_MAX;
        if many && !filling.bounds.is_empty() {
            self.full.push(std::mem::take(&mut filling.bounds));
            filling.bytes = 0;
        }
        filling.bounds.push(bound);
        filling.bytes += bytes;
    }

    async fn write(self, cluster: &Cluster, at: i64) -> Result<()> {
        let left = self.filling.into_values().map(|filling| filling.bounds);
        let all: Vec<Vec<Bound>> = self.full.into_iter().chain(left).collect();
        let mut work: Vec<BoxFuture<'_, Result<()>>> = Vec::with_capacity(all.len());
        for bounds in &all {
            work.push(insist(move || cluster.write_together(bounds, at).boxed()).boxed());
        }
        Cluster::some_of(FLUSHES_IN_FLIGHT, work).await.map(drop)
    }
}

/// Approximate bytes of a statement's values.
fn bytes_of(bound: &Bound) -> usize {
    let of = |value: &CqlValue| match value {
        CqlValue::Text(text) => text.len() + 8,
        CqlValue::Blob(bytes) => bytes.len() + 8,
        CqlValue::List(items) => 32 * items.len() + 8,
        _ => 16,
    };
    bound.values.iter().map(of).sum()
}

/// Writes all after-images of some groups.
pub(crate) async fn flush(cluster: &Cluster, frozen: &Frozen) -> Result<()> {
    // Deletions of whole partitions go first. Rows that the same groups put there again have a
    // later timestamp.
    let mut whole = Batches::default();
    let mut first = Batches::default();
    let mut then = Batches::default();
    let mut days = std::collections::BTreeSet::new();
    for (key, row, level) in &frozen.rows {
        for written in tables::write(key, row.as_deref(), *level)? {
            if matches!(key, Key::Members(_)) {
                whole.add(written.partition, written.bound);
            } else if written.first {
                // Days of expiring entries: each once.
                if days.insert(format!("{:?}", written.bound.values)) {
                    first.add(None, written.bound);
                }
            } else {
                then.add(written.partition, written.bound);
            }
        }
    }
    whole.write(cluster, moment(frozen.up_to, true)).await?;
    let at = moment(frozen.up_to, false);
    // An index nobody finds would be missing: so the days are written before the entries in them.
    first.write(cluster, at).await?;
    then.write(cluster, at).await
}

/// Repeats a failed write, at most `ATTEMPTS_MAX` times. A repeated write does no harm.
async fn insist<'a>(work: impl Fn() -> BoxFuture<'a, Result<()>>) -> Result<()> {
    let mut attempts = Attempts::of(ATTEMPTS_MAX);
    loop {
        match work().await {
            Ok(()) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, "a write to the tables failed");
                attempts.after(error).await?;
            }
        }
    }
}
