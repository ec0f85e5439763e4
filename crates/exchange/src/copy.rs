//! Copies a whole catalogue into another store: its history, change by change. The copy has the
//! same numbers, revisions, times, trash, upload reservations, queues, tokens and outcomes of
//! requests.
//!
//! An interrupted copy resumes at its end, because the target's last change shows its progress. A
//! target with another history is never changed. Afterwards [`compare`] proves that both hold the
//! same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{
    Change, Deletion, Error as ModelError, ErrorKind, Lfn, RecordKey, RecordKind, Reservation, Revision,
    TrashItem,
};
use exacat_store::{Page, RecordEntry, Store};

use crate::digest::{Digest, digest};
use crate::error::Error;
use crate::limits::CHANGES_OF_A_PIECE;
use crate::local::StoreCatalogue;
use crate::progress::Progress;

/// Result of a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyReport {
    /// Changes from an earlier, interrupted attempt.
    pub before: u64,
    /// Changes copied by this run.
    pub changes: u64,
    /// Last revision.
    pub revision: Revision,
    /// Duration of the run.
    pub elapsed: Duration,
}

/// Content of both catalogues, which are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Same {
    /// Digest of the whole tree.
    pub digest: Digest,
    /// Entries in the tree.
    pub entries: u64,
    /// Records, items of the trash and of deletion queues, upload reservations.
    pub others: u64,
}

fn conflict(what: String) -> Error {
    Error::Catalogue(ModelError::new(ErrorKind::Conflict, what))
}

/// Copies the changes after the last one of `target`, in pieces, with `take`. Nobody may change
/// `target` meanwhile. Changes that `source` makes after the beginning wait for another run.
pub async fn copy(
    source: &dyn Store,
    target: &dyn Store,
    mut take: impl AsyncFnMut(Vec<Change>) -> Result<(), ModelError>,
    mut progress: impl FnMut(&Progress),
) -> Result<CopyReport, Error> {
    let started = Instant::now();
    let (end, before) = (source.revision().await?, target.revision().await?);
    is_continued(source, target, end, before).await?;
    let mut done = before;
    while done < end {
        let left = usize::try_from(end.0 - done.0).unwrap_or(usize::MAX);
        let page = source.changes(done, CHANGES_OF_A_PIECE.min(left)).await?;
        match page.changes.first() {
            Some(first) if first.revision.0 == done.0 + 1 => {}
            _ => {
                return Err(conflict(format!(
                    "the source has its history from change {1} on, not from {0}: a copy needs all of it",
                    done.0 + 1,
                    page.oldest.0
                )));
            }
        }
        let last = page.changes.last().map_or(done, |last| last.revision);
        take(page.changes).await?;
        done = last;
        progress(&Progress {
            rows: done.0,
            rows_now: done.0 - before.0,
            rows_total: Some(end.0),
            elapsed: started.elapsed(),
            ..Progress::default()
        });
    }
    Ok(CopyReport {
        before: before.0,
        changes: done.0 - before.0,
        revision: done,
        elapsed: started.elapsed(),
    })
}

/// Checks that the target's history is the beginning of the source's. Its last change suffices: two
/// catalogues never have the same one by chance, because each has the id of its request.
async fn is_continued(
    source: &dyn Store,
    target: &dyn Store,
    end: Revision,
    before: Revision,
) -> Result<(), Error> {
    if before == Revision(0) {
        return Ok(());
    }
    let last = async |store: &dyn Store| store.changes(Revision(before.0 - 1), 1).await;
    let there = last(target).await?.changes;
    if before <= end && !there.is_empty() && last(source).await?.changes == there {
        return Ok(());
    }
    Err(conflict(format!(
        "the catalogue to copy into has {} changes that are not those of the source: give a new catalogue, or one with an interrupted copy from this source",
        before.0
    )))
}

/// Proves that two catalogues hold the same: the tree by its digest, the rest item by item. Nobody
/// may change them meanwhile.
pub async fn compare(
    source: &Arc<dyn Store>,
    target: &Arc<dyn Store>,
    mut progress: impl FnMut(&Progress) + Send,
) -> Result<Same, Error> {
    let (here, there) = (source.revision().await?, target.revision().await?);
    if here != there {
        return Err(conflict(format!("the last change of one is {}, that of the other {}", here.0, there.0)));
    }
    let mut others = 0;
    for kind in RecordKind::ALL {
        let page = async |store: &Arc<dyn Store>, after| store.records(kind, after, PAGE_ITEMS_MAX).await;
        others += same("records", source, target, page, |entry: &RecordEntry| entry.key).await?;
    }
    let page = async |store: &Arc<dyn Store>, after| store.trash(after, PAGE_ITEMS_MAX).await;
    others += same("items of the trash", source, target, page, |item: &TrashItem| item.id).await?;
    let page = async |store: &Arc<dyn Store>, after| store.reservations(after, PAGE_ITEMS_MAX).await;
    others +=
        same("reservations", source, target, page, |reservation: &Reservation| reservation.guid).await?;
    let mut after = None;
    loop {
        let ses = source.records(RecordKind::Se, after, PAGE_ITEMS_MAX).await?;
        for entry in &ses.items {
            let RecordKey::Se(se) = entry.key else { continue };
            let page = async |store: &Arc<dyn Store>, after| store.deletions(se, after, PAGE_ITEMS_MAX).await;
            others += same("deletions", source, target, page, |deletion: &Deletion| deletion.id).await?;
        }
        after = ses.items.last().map(|entry: &RecordEntry| entry.key);
        if !ses.more {
            break;
        }
    }
    let here =
        digest(&*StoreCatalogue::open(source).await?, &Lfn::root(), |_| Ok(()), &mut progress).await?.root;
    let there =
        digest(&*StoreCatalogue::open(target).await?, &Lfn::root(), |_| Ok(()), &mut progress).await?.root;
    if here != there {
        return Err(conflict(format!(
            "the digest of one is {}, that of the other {}",
            here.whole, there.whole
        )));
    }
    Ok(Same { digest: here.whole, entries: here.entries, others })
}

/// Compares two listings page by page; returns their number of items.
async fn same<T: PartialEq, K: Copy>(
    what: &str,
    source: &Arc<dyn Store>,
    target: &Arc<dyn Store>,
    page: impl AsyncFn(&Arc<dyn Store>, Option<K>) -> Result<Page<T>, ModelError>,
    key: impl Fn(&T) -> K,
) -> Result<u64, Error> {
    let (mut after, mut count) = (None, 0);
    loop {
        let (here, there) = (page(source, after).await?, page(target, after).await?);
        if here != there {
            return Err(conflict(format!("{what} differ, after the first {count}")));
        }
        count += here.items.len() as u64;
        after = here.items.last().map(&key);
        if !here.more {
            return Ok(count);
        }
    }
}
