//! How much of the history is kept: which segment goes next, and its going.

use std::io;
use std::sync::Arc;

use exacat_model::{Error, TimeMs};

use crate::history::{Form, History, Segment};
use crate::log::cannot_write;
use crate::segment_reader::SegmentReader;
use crate::settings::HistoryKept;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// The oldest segment, if it is not to be kept and may go: another follows it, and opening needs none of its changes.
/// Plain segments that wait to be archived do not count.
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

/// The time of the last change in a segment, or a later one: that of the next segment's beginning, if only that is known.
fn last_time(history: &History, segment: &Segment, next: &Segment) -> Result<TimeMs, Error> {
    let open = |segment: &Segment| SegmentReader::open(&**history.disk(), segment, history.catalogue());
    // If it cannot be read, its successor can tell.
    let reader = open(segment).ok().flatten();
    if let Some(time) = reader.as_ref().and_then(|reader| reader.archive()?.last_time()) {
        return Ok(time);
    }
    Ok(open(next)?.map_or(TimeMs(u64::MAX), |next| next.header().created))
}

/// Removes the oldest segment. The directory must be synced before the next is removed, so that no later one is ever
/// gone with an earlier one still there.
pub(super) fn remove(history: &History, segment: &Segment) -> Result<(), Error> {
    // Whoever reads it has it open; whoever comes later finds it gone from the history too.
    let mut form = segment.form_to_change();
    for path in [&segment.path, &segment.archived_path()] {
        match history.disk().remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot_write(path, &error)),
            _ => {}
        }
    }
    *form = Form::Gone;
    history.remove_oldest(segment);
    tracing::info!(file = %segment.path.display(), "a segment of the log was not to be kept any longer");
    Ok(())
}
