//! Audit: reads all tables as of one state, derives what follows from the rest, and compares.
//!
//! ```text
//!   tables, in ranges of the ring ──┐                  ┌─► by partition: derive (wanted.rs)
//!                                   ├─► spill to disk ─┤
//!   the log, from the position ─────┘   (spill.rs)     └─► by partition: compare with the
//!   flushed at the start to its head                        stored rows (wanted.rs)
//! ```
//!
//! Changes go on meanwhile. A row that no change touched is the same whenever it was read. For the
//! others the log has the last after-image. The tables as read, and then the after-images since the
//! position flushed at the start, are therefore exactly the state at the head.
//!
//! Memory is bounded by a partition and a sum for each directory. The disk holds some hundred bytes
//! of each row while the audit runs.

mod gathered;
mod scan;
mod spill;
mod wanted;

use exacat_model::{Audit, Error, ErrorKind, Result, Revision};
use tokio::sync::mpsc;

use self::gathered::{Gathered, Misplaced, pass_on};
use self::spill::{Spill, partitions_for};
use crate::follower::Follower;
use crate::limits::{AUDIT_BATCHES_WAITING, AUDIT_ROWS_PER_ENTRY};
use crate::{log, reads};

/// Reads everything, and checks it.
pub(crate) async fn audit(follower: &Follower) -> Result<Audit> {
    follower.catch_up().await?;
    let (flushed, entries) = follower.cache(|cache| (cache.flushed(), cache.totals().entries));
    let rows = entries.saturating_mul(AUDIT_ROWS_PER_ENTRY);
    let settings = &follower.settings;
    let directory = settings.work_directory.clone().unwrap_or_else(std::env::temp_dir);
    let partitions = partitions_for(rows, settings.audit_partition_rows);
    let (state, follows) = (Spill::new(&directory, partitions)?, Spill::new(&directory, partitions)?);
    let (to, gathered) = mpsc::channel(AUDIT_BATCHES_WAITING);
    let comparing = tokio::task::spawn_blocking(move || wanted::compare(gathered, state, follows));
    follower.cluster.metrics.audit_begins();
    let gathering = gather(follower, flushed, rows, &to).await;
    drop(to);
    let internal = |why: String| Error::new(ErrorKind::Internal, why);
    let compared =
        comparing.await.map_err(|error| internal(format!("the comparison ended with an error: {error}")))?;
    match compared? {
        Some(audit) => gathering.map(|()| audit),
        None => Err(gathering.err().unwrap_or_else(|| internal("a check ended before its end".to_owned()))),
    }
}

async fn gather(
    follower: &Follower,
    flushed: Revision,
    rows: u64,
    to: &mpsc::Sender<Gathered>,
) -> Result<()> {
    let suspects = scan::scan(follower, rows, to).await?;
    // Any row read above is of a group up to this head.
    follower.catch_up().await?;
    let (revision, misplaced) = follower.cache(|cache| {
        let level = |one: &Misplaced| cache.level(one.parent);
        (cache.head(), suspects.into_iter().filter(|one| one.is_so(level(one))).collect())
    });
    let mut after = flushed;
    while after < revision {
        let before = after;
        let segments = log::segments(&follower.cluster).await?;
        let segment = reads::segment_of(&segments, after).and_then(|place| segments.get(place));
        if let Some(segment) = segment {
            after = log_of(follower, *segment, (after, revision), to).await?;
        }
        if after == before {
            let change = before.0 + 1;
            let why = format!(
                "change {change} of the log is not kept any more: keep the history for longer than a check takes"
            );
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
    }
    pass_on(to, Gathered::All { revision, misplaced }).await
}

/// Passes on the groups of a log segment after one revision and up to another. Returns the last
/// change that it passed on.
async fn log_of(
    follower: &Follower,
    segment: u64,
    (after, until): (Revision, Revision),
    to: &mpsc::Sender<Gathered>,
) -> Result<Revision> {
    let mut last = after;
    let mut pages = log::Groups::of(segment, after);
    while last < until
        && let Some(groups) = pages.next(&follower.cluster).await?
    {
        for group in groups {
            if group.first.0 != last.0 + 1 || group.last > until {
                return Ok(last);
            }
            last = group.last;
            pass_on(to, Gathered::AfterImages(group.after_images)).await?;
        }
    }
    Ok(last)
}
