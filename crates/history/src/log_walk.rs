//! Reads the log segment by segment, beside an open history: for checks and restores.

use exacat_disk::{Disk, cannot_read, corrupt, read_whole};
use exacat_log::Segment;
use exacat_log::chain::RecordPlace;
use exacat_log::record::{Head, split_head};
use exacat_log::replay::undecodable;
use exacat_log::segment::{Ending, HEADER_BYTES, Header, Records};
use exacat_model::{Result, Revision};

use crate::checked_file::HistoryId;

/// Walk over the segments of a log, each of which must continue the one before.
pub(crate) struct Walk<'w> {
    pub disk: &'w dyn Disk,
    pub history: HistoryId,
    /// Last record so far; none before the first segment, whose header has it.
    pub place: Option<RecordPlace>,
}

/// A segment that was read.
pub(crate) struct Walked {
    pub bytes: Vec<u8>,
    pub header: Header,
    /// End of the records that were taken.
    pub end: usize,
    /// True if all records were taken.
    pub is_whole: bool,
    pub ending: Ending,
}

/// Reads the header of a segment.
pub(crate) fn header_of(disk: &dyn Disk, segment: &Segment) -> Result<Header> {
    let name = segment.path.display().to_string();
    let file = disk.open_to_read(&segment.path).map_err(|error| cannot_read(&name, &error))?;
    let mut bytes = [0; HEADER_BYTES];
    let read = file.read_at(&mut bytes, 0).map_err(|error| cannot_read(&name, &error))?;
    Header::decode(&name, &bytes[..read])
}

impl Walk<'_> {
    /// Passes the records of a segment to `take`, until it declines one.
    pub(crate) fn segment(
        &mut self,
        segment: &Segment,
        is_last: bool,
        take: &mut dyn FnMut(&Head, &[u8]) -> Result<bool>,
    ) -> Result<Walked> {
        let name = segment.path.display().to_string();
        let bytes = self.disk.open_to_read(&segment.path).and_then(|file| read_whole(&*file));
        let bytes = bytes.map_err(|error| cannot_read(&name, &error))?;
        let header = Header::decode(&name, &bytes)?;
        if header.catalogue != self.history || header.first_revision != segment.first_revision {
            return Err(corrupt(&name, 16, "the segment is another history's, or has another's name"));
        }
        let before = Revision(header.first_revision.0.saturating_sub(1));
        let begin = RecordPlace { revision: before, digest: header.digest, time: header.created };
        let mut place = self.place.unwrap_or(begin);
        if place.revision != before {
            let what = format!("records {} to {} are missing before it", place.revision.0 + 1, before.0);
            return Err(corrupt(&name, 32, what));
        }
        place.check_digest(&name, &header)?;
        let mut records = Records::new(&bytes, header.salt, HEADER_BYTES);
        let (mut end, mut is_whole) = (HEADER_BYTES, true);
        while let Some((at, body)) = records.next_record() {
            let (head, content) = split_head(body).map_err(|error| undecodable(&name, at as u64, &error))?;
            place.check_next(&name, at as u64, &head)?;
            if !take(&head, content)? {
                (end, is_whole) = (at, false);
                break;
            }
            place = place.after(head.time, content);
            end = records.offset();
        }
        let ending = if is_whole { records.ending(&name, is_last)? } else { Ending::Clean };
        self.place = Some(place);
        Ok(Walked { bytes, header, end, is_whole, ending })
    }
}
