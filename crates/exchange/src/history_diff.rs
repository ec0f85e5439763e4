//! Reads the differences between two moments from the history of a catalogue.

use exacat_catalogue::moments::{HistoryDiff, HistoryFold, check_order};
use exacat_model::answer::ChangeInfo;
use exacat_model::{Answer, Cursor, Error as ModelError, ErrorKind, Lfn, LogPosition, Operation, Revision};

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::limits::{CHANGES_PAGE_ITEMS, HISTORY_DIFF_ENTRIES_MAX, HISTORY_DIFF_LOOKUPS_MAX};
use crate::sending::unexpected;
use crate::walk::end_of_history;

/// Reads the changes after `from`, up to `to`.
async fn read<C: Catalogue>(
    catalogue: &C,
    (mut after, to): (LogPosition, Revision),
    mut each: impl FnMut(&ChangeInfo) -> Result<(), ModelError>,
) -> Result<(), Error> {
    while after.revision < to {
        let ask = Operation::Changes { after, under: None, limit: CHANGES_PAGE_ITEMS, wait: false };
        let Answer::Changes { items, up_to, timeline, .. } = catalogue.call(ask).await? else {
            return Err(unexpected("changes").into());
        };
        items.iter().filter(|info| info.change.revision <= to).try_for_each(&mut each)?;
        let last = items.last().map_or(Revision(0), |info| info.change.revision).max(up_to);
        if last <= after.revision {
            break;
        }
        after = LogPosition { revision: last, timeline: Some(timeline.whole()) };
    }
    Ok(())
}

/// Returns the differences below a directory between two moments.
pub async fn history_diff<C: Catalogue>(
    catalogue: &C,
    (from, to): (LogPosition, LogPosition),
    under: &Lfn,
) -> Result<HistoryDiff, Error> {
    let end = end_of_history(catalogue).await?;
    check_order(from, to, end.revision)?;
    // Both must be of this history.
    catalogue.call(Operation::Position { after: to }).await?;
    let mut fold = HistoryFold::new(HISTORY_DIFF_ENTRIES_MAX);
    read(catalogue, (from, to.revision), |info| fold.change(info)).await?;
    // Removals since then have the paths of what is not in the tree any more.
    let place = |info: &ChangeInfo| {
        fold.place(info);
        Ok(())
    };
    read(catalogue, (to, end.revision), place).await?;
    let mut last = None;
    for _ in 0..HISTORY_DIFF_LOOKUPS_MAX {
        let Some((id, lfn)) = fold.unknown_origin(last) else { break };
        last = Some(id);
        learn(catalogue, &lfn, &mut fold).await?;
    }
    Ok(fold.differences(under))
}

/// Learns the present paths of the directories that an entry's own history names.
async fn learn<C: Catalogue>(catalogue: &C, lfn: &Lfn, fold: &mut HistoryFold) -> Result<(), Error> {
    let ask = Operation::Log { lfn: lfn.clone(), cursor: Cursor::default(), limit: CHANGES_PAGE_ITEMS };
    match catalogue.call(ask).await {
        Ok(Answer::Changes { items, .. }) => {
            fold.learn(items.into_iter().flat_map(|info| info.directories));
            Ok(())
        }
        Ok(_) => Err(unexpected("log").into()),
        // It may have gone meanwhile.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
