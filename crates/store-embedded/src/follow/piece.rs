//! Reads pieces of a log for followers: whole records, byte for byte, up to the last durable change.

use std::sync::Arc;

use exacat_log::segment::{HEADER_BYTES, Header};
use exacat_log::{Segment, SegmentReader};
use exacat_model::{Error, ErrorKind, Result, Revision, TimeMs};
use exacat_store::LogOffset;
use xxhash_rust::xxh3::xxh3_64;

use super::frames::{self, LogFrame};
use crate::history::History;

/// Frames of a piece, its last change, and the time of that; no time if there is no record in it.
pub(crate) struct Piece {
    pub frames: Vec<u8>,
    pub up_to: Revision,
    pub time: Option<TimeMs>,
}

/// Returns the place in a segment behind a change.
pub(crate) fn offset_of(header: &Header, offset: u64, revision: Revision) -> LogOffset {
    LogOffset { segment: header.first_revision, header: xxh3_64(&header.encode()), offset, revision }
}

/// Returns the place behind the frames of a piece that begins at `place` and ends with change `up_to`.
pub fn offset_after(mut frames: &[u8], place: LogOffset, up_to: Revision) -> Result<LogOffset> {
    let mut after = place;
    while let Some((frame, rest)) = frames::next(frames)? {
        match frame {
            LogFrame::Segment(header) => {
                after = offset_of(
                    &Header::decode("a segment of the source", header)?,
                    HEADER_BYTES as u64,
                    up_to,
                );
            }
            LogFrame::Records(records) => after.offset += records.len() as u64,
        }
        frames = rest;
    }
    Ok(LogOffset { revision: up_to, ..after })
}

/// Returns the error for a place that retention has removed.
fn not_kept(place: LogOffset, oldest: Revision) -> Error {
    let (after, oldest) = (place.revision.0, oldest.0);
    Error::new(
        ErrorKind::NotFound,
        format!("changes after {after} are not kept any more, the oldest is {oldest}: copy the catalogue"),
    )
}

/// Returns the error for a place of another log.
fn another(place: LogOffset) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!("the log here does not go on from change {}: copy the catalogue", place.revision.0),
    )
}

/// Returns the log after a place up to the last durable change, and about `bytes_max` bytes at most.
pub(crate) fn piece(
    history: &History,
    place: LogOffset,
    durable: Revision,
    bytes_max: usize,
) -> Result<Piece> {
    // Read before the records: a segment that has another one after it is durable as a whole.
    let segments = history.list();
    let first = segments.iter().position(|segment| segment.first_revision == place.segment);
    let first = first.ok_or_else(|| match history.oldest() {
        oldest if oldest > place.segment => not_kept(place, oldest),
        _ => another(place),
    })?;
    if place.revision > durable {
        return Err(another(place));
    }
    let mut reading = Reading {
        durable,
        bytes_max,
        offset: place.offset,
        piece: Piece { frames: Vec::new(), up_to: place.revision, time: None },
    };
    for (number, segment) in segments.iter().enumerate().skip(first) {
        let reader = SegmentReader::open(&**history.disk(), segment, history.catalogue())?;
        let Some(mut reader) = reader else {
            match number == first {
                true => return Err(not_kept(place, history.oldest())),
                false => break,
            }
        };
        let header = *reader.header();
        if number == first {
            if offset_of(&header, 0, place.revision).header != place.header {
                return Err(another(place));
            }
        } else {
            // A restore of this log may have replaced the changes before the place.
            if reading.piece.time.is_none() && segment.first_revision.0 != place.revision.0 + 1 {
                return Err(another(place));
            }
            frames::put(&mut reading.piece.frames, LogFrame::Segment(&header.encode()))?;
            reading.offset = HEADER_BYTES as u64;
        }
        let is_last = number + 1 == segments.len();
        let goes_on = reading.records(&mut reader, segment, is_last).map_err(|error| {
            // A place inside of a record looks like damage.
            let is_begin = reading.piece.time.is_none() && number == first;
            if is_begin && error.kind == ErrorKind::Corrupt { another(place) } else { error }
        })?;
        if !goes_on {
            break;
        }
    }
    if reading.piece.frames.is_empty() && place.revision < durable {
        return Err(another(place));
    }
    Ok(reading.piece)
}

/// A piece in the making.
struct Reading {
    durable: Revision,
    bytes_max: usize,
    /// Offset of the next record.
    offset: u64,
    piece: Piece,
}

impl Reading {
    /// Adds the records of a segment; false if the piece ends there.
    fn records(&mut self, reader: &mut SegmentReader, segment: &Arc<Segment>, is_last: bool) -> Result<bool> {
        let mut records = Vec::new();
        let mut goes_on = !is_last;
        loop {
            if is_last && self.piece.up_to >= self.durable {
                // Behind the last durable record there may be one that is being written.
                break;
            }
            // A mark counts once something durable follows it.
            let (mut marks, mut at) = (Vec::new(), self.offset);
            while let Some(mark) = reader.mark(at)? {
                marks.extend_from_slice(mark);
                at += mark.len() as u64;
            }
            let Some((at, head)) = reader.next_head(at)? else {
                if !is_last {
                    records.append(&mut marks);
                }
                break;
            };
            let wanted = self.piece.up_to.0 + 1;
            if head.first_revision.0 != wanted || head.count == 0 {
                let what = format!("{}: change {wanted} is missing", reader.name());
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            if head.last_revision() > self.durable {
                goes_on = false;
                break;
            }
            if reader.archive().is_none() {
                segment.note(head.first_revision, self.offset);
            }
            let record = reader.record(at)?;
            records.append(&mut marks);
            records.extend_from_slice(record);
            self.offset = at + record.len() as u64;
            (self.piece.up_to, self.piece.time) = (head.last_revision(), Some(head.time));
            if self.piece.frames.len() + records.len() >= self.bytes_max {
                goes_on = false;
                break;
            }
        }
        if !records.is_empty() {
            frames::put(&mut self.piece.frames, LogFrame::Records(&records))?;
        }
        Ok(goes_on)
    }
}
