//! Reads the differences between two moments from the history of a catalogue.

use exacat_catalogue::moments::{HistoryBounds, HistoryDiff, HistoryReading};
use exacat_model::{Lfn, LogPosition};

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::limits::{CHANGES_PAGE_ITEMS, HISTORY_DIFF_ENTRIES_MAX, HISTORY_DIFF_LOOKUPS_MAX};
use crate::walk::end_of_history;

/// Bounds of a comparison.
const BOUNDS: HistoryBounds = HistoryBounds {
    entries_max: HISTORY_DIFF_ENTRIES_MAX,
    lookups_max: HISTORY_DIFF_LOOKUPS_MAX,
    page: CHANGES_PAGE_ITEMS,
};

/// Returns the differences below a directory between two moments.
pub async fn history_diff<C: Catalogue>(
    catalogue: &C,
    moments: (LogPosition, LogPosition),
    under: &Lfn,
) -> Result<HistoryDiff, Error> {
    let end = end_of_history(catalogue).await?;
    let mut reading = HistoryReading::new(moments, end.revision, BOUNDS)?;
    while let Some(operation) = reading.wanted() {
        reading.take(catalogue.call(operation).await)?;
    }
    Ok(reading.differences(under))
}
