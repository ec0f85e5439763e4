//! Retention of the history: selects the segment to remove next, and removes it.

use std::io;
use std::sync::Arc;

use exacat_disk::cannot_write;
use exacat_log::{Form, Segment, SegmentReader};
use exacat_model::{Error, TimeMs};

use crate::history::History;
use crate::settings::HistoryKept;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Returns the oldest segment if it is beyond the retention and may go. Another must follow it, and
/// opening must need none of its changes. Plain segments that wait to be archived do not count.
pub(super) fn next_to_go(
    history: &History,
    kept: HistoryKept,
    now: TimeMs,
    waits: impl Fn(&Segment) -> bool,
) -> Result<Option<Arc<Segment>>, Error> {
    let mut segments = history.list().into_iter();
    let (Some(oldest), Some(next)) = (segments.next(), segments.next()) else { return Ok(None) };
    if next.first_revision.0 > history.floor().0.saturating_add(1) {
        return Ok(None);
    }
    let goes = match kept {
        HistoryKept::All => false,
        HistoryKept::Days(days) => {
            last_time(history, &oldest, &next)?.plus_ms(u64::from(days) * DAY_MS) < now
        }
        HistoryKept::Bytes(bytes) => {
            let log = history.bytes(|segment| !waits(segment));
            log.plain + log.archived > bytes
        }
    };
    Ok(goes.then_some(oldest))
}

/// Returns the time of the last change in a segment, or a later one: the begin of the next segment,
/// if only that is known.
fn last_time(history: &History, segment: &Segment, next: &Segment) -> Result<TimeMs, Error> {
    let open = |segment: &Segment| SegmentReader::open(&**history.disk(), segment, history.catalogue());
    // If the segment is unreadable, the next one's begin is used.
    let reader = open(segment).ok().flatten();
    if let Some(time) = reader.as_ref().and_then(|reader| reader.archive()?.last_time()) {
        return Ok(time);
    }
    Ok(open(next)?.map_or(TimeMs(u64::MAX), |next| next.header().created))
}

/// Removes the oldest segment. The caller must sync the directory before it removes the next, so
/// that no later segment is ever gone with an earlier one still there.
pub(super) fn remove(history: &History, segment: &Segment) -> Result<(), Error> {
    // Present readers have the file open; later ones find the segment gone from the history too.
    let mut form = segment.form_to_change();
    for path in [&segment.path, &segment.archived_path()] {
        match history.disk().remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot_write(path, &error)),
            _ => {}
        }
    }
    *form = Form::Gone;
    history.remove_oldest(segment);
    tracing::info!(file = %segment.path.display(), "log segment beyond the retention removed");
    Ok(())
}
