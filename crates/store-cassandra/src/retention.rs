//! Drops log segments past retention, as whole partitions, so that no read ever has to pass
//! tombstones of rows.

use exacat_model::{Result, Revision, TimeMs};

use crate::cluster::Cluster;
use crate::log;

/// Segments that are never dropped: the last, and the one before, where other servers may still
/// look for the end.
const STRETCHES_KEPT: usize = 2;

/// Drops log segments whose last change was made before some time, the oldest first. Segments that
/// may not be in the tables stay.
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
