//! Drops log segments that are past retention. Whole partitions go, so that no read ever
//! has to pass tombstones of rows.

use exacat_model::{Result, Revision, TimeMs};

use crate::cluster::Cluster;
use crate::log;

/// Stretches that are never dropped: the last, and the one before, in which other servers may still look for the end.
const STRETCHES_KEPT: usize = 2;

/// Drops the stretches of the log whose last change was made before some time, the oldest first. What may not be in the tables stays.
pub(crate) async fn drop_stretches(cluster: &Cluster, before: TimeMs, settled: Revision) -> Result<()> {
    let stretches = log::stretches(cluster).await?;
    let old = stretches.len().saturating_sub(STRETCHES_KEPT);
    for pair in stretches.windows(2).take(old) {
        let (Some(stretch), Some(next)) = (pair.first(), pair.get(1)) else { break };
        let in_tables = *next <= settled.0 + 1;
        if !in_tables || log::ended(cluster, *stretch).await?.is_none_or(|ended| ended >= before) {
            break;
        }
        log::drop_stretch(cluster, *stretch).await?;
        tracing::info!(stretch, "changes of the log that are older than is kept were dropped");
    }
    Ok(())
}
