//! Drops log segments past retention, as whole partitions, so that no read ever has to pass
//! tombstones of rows.

use exacat_model::{Result, Revision, TimeMs};

use crate::cluster::Cluster;
use crate::log;

/// Segments that are never dropped: the last, and the one before, where other servers may still
/// look for the end.
const SEGMENTS_KEPT: usize = 2;

/// Drops log segments whose last change was made before some time, the oldest first. Segments that
/// may not be in the tables stay.
pub(crate) async fn drop_segments(cluster: &Cluster, before: TimeMs, flushed: Revision) -> Result<()> {
    let segments = log::segments(cluster).await?;
    let old = segments.len().saturating_sub(SEGMENTS_KEPT);
    for pair in segments.windows(2).take(old) {
        let (Some(segment), Some(next)) = (pair.first(), pair.get(1)) else { break };
        let in_tables = *next <= flushed.0 + 1;
        if !in_tables || log::ended(cluster, *segment).await?.is_none_or(|ended| ended >= before) {
            break;
        }
        log::drop_segment(cluster, *segment).await?;
        tracing::info!(segment, "dropped a log segment past retention");
    }
    Ok(())
}
