//! The writer of a follower: appends pieces of the source's log and applies their changes.

use exacat_log::record::{self, Head};
use exacat_log::segment::{HEADER_BYTES, Header};
use exacat_model::codec::DecodeError;
use exacat_model::{Change, Effect, Error, ErrorKind, Result, Revision};
use exacat_store::LogOffset;
use exacat_store::rules::Stamp;
use parking_lot::RwLockWriteGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::frames::{self, LogFrame};
use super::piece::offset_of;
use crate::changes::read_changes;
use crate::defect::Defect;
use crate::writer::Writer;

/// Reasons why a change was not applied.
enum Misfit {
    Undecodable(DecodeError),
    Defect(Defect),
}

impl From<DecodeError> for Misfit {
    fn from(error: DecodeError) -> Self {
        Misfit::Undecodable(error)
    }
}

/// Returns the error for a piece that does not continue the log here.
fn another(what: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("the source's log does not continue the log here: {what}"))
}

impl Writer {
    /// Appends frames and applies their changes; returns the end of the log. All of it is durable then.
    /// After an error, the frames before it may be.
    pub(crate) fn follow(&mut self, frames: &[u8]) -> Result<LogOffset> {
        let appended = self.follow_frames(frames);
        self.wait_until_durable();
        self.check_followed(appended)?;
        let revision = self.shared.state.read().revision;
        let reader = exacat_log::SegmentReader::open(
            &*self.shared.disk,
            self.log.segment(),
            self.shared.history.catalogue(),
        )?;
        let reader = reader.ok_or_else(|| Error::new(ErrorKind::Internal, "the last segment is gone"))?;
        Ok(offset_of(reader.header(), self.log.position().offset, revision))
    }

    /// Appends frames and applies their changes. They become durable while the next ones are applied.
    pub(crate) fn follow_ahead(&mut self, frames: &[u8]) -> Result<()> {
        let appended = self.follow_frames(frames);
        self.check_followed(appended)
    }

    fn check_followed(&self, appended: Result<()>) -> Result<()> {
        match self.failure() {
            Some(why) => Err(Error::new(ErrorKind::Unavailable, why.to_string())),
            None => appended,
        }
    }

    fn follow_frames(&mut self, mut frames: &[u8]) -> Result<()> {
        while let Some((frame, rest)) = frames::next(frames)? {
            if self.settings.follows.is_none() {
                return Err(Error::new(ErrorKind::Internal, "this store follows no other"));
            }
            match frame {
                LogFrame::Segment(header) => self.follow_segment(header)?,
                LogFrame::Records(records) => self.follow_records(records)?,
            }
            frames = rest;
        }
        Ok(())
    }

    fn follow_segment(&mut self, header: &[u8]) -> Result<()> {
        if header.len() != HEADER_BYTES {
            return Err(another("a header of a segment has another length"));
        }
        let header = Header::decode("a segment of the source", header)?;
        self.wait_until_durable();
        let (next, digest) = {
            let state = self.shared.state.read();
            (Revision(state.revision.0 + 1), state.digest())
        };
        if header.catalogue != self.shared.history.catalogue() {
            return Err(another("it is another catalogue's"));
        }
        if header.first_revision != next {
            let got = header.first_revision.0;
            return Err(another(&format!("a segment begins with change {got} instead of {}", next.0)));
        }
        if header.digest != digest {
            let last = next.0 - 1;
            return Err(another(&format!("the states of both differ after change {last}")));
        }
        self.log.begin_as(header)?;
        self.shared.history.push(Arc::clone(self.log.segment()));
        Ok(())
    }

    fn follow_records(&mut self, records: &[u8]) -> Result<()> {
        let first = Revision(self.shared.state.read().revision.0 + 1);
        let heads = self.checked(records, first)?;
        let rows = self.shared.state.read().table.active().rows();
        self.bound_memtable(rows).map_err(|why| Error::new(ErrorKind::Unavailable, why))?;
        self.group.first_revision = first;
        for (head, body) in heads {
            self.operations.remember(head.operation, head.first_revision, head.time);
            let mut state = self.shared.state.write();
            let mut recorded = 0;
            let applied = read_changes(body, Revision(0), |change, effect| {
                recorded += u64::from(matches!(change.effect, Effect::Recorded { .. }));
                // The source decided it on this state: segments, and pieces at the end, compare the digests.
                let Change { revision, time, who, .. } = change;
                let stamp = Stamp { revision, time, who };
                state.apply(stamp, &change.effect, Some(effect)).map_err(Misfit::Defect)?;
                Ok(true)
            });
            // Lets waiting readers in first.
            RwLockWriteGuard::unlock_fair(state);
            self.shared.records_followed.fetch_add(recorded, Ordering::Release);
            if let Err(misfit) = applied {
                return Err(self.misfits(head, &misfit));
            }
        }
        self.group.bytes.extend_from_slice(records);
        self.flush();
        Ok(())
    }

    /// Checks every record, and that they follow one another; returns their heads and bodies.
    fn checked<'r>(&self, records: &'r [u8], first: Revision) -> Result<Vec<(Head, &'r [u8])>> {
        let (salt, mut next, mut at) = (self.log.salt(), first.0, 0);
        let mut heads = Vec::new();
        while at < records.len() {
            let rest = records.get(at..).unwrap_or_default();
            let (frame, body) = record::read(salt, rest).ok_or_else(|| another("a record is damaged"))?;
            if !frame.is_mark {
                let head = record::read_head(body).map_err(|_| another("a record has no head"))?;
                if head.first_revision.0 != next || head.count == 0 {
                    let got = head.first_revision.0;
                    return Err(another(&format!("change {got} follows where {next} should")));
                }
                next = head.last_revision().0 + 1;
                heads.push((head, body));
            }
            at += frame.stride();
        }
        Ok(heads)
    }

    /// Stops the store after a change that does not fit: half of its record may have been applied, and no
    /// reader may see that.
    fn misfits(&self, head: Head, misfit: &Misfit) -> Error {
        let what = match misfit {
            Misfit::Undecodable(error) => error.to_string(),
            Misfit::Defect(defect) => defect.to_string(),
        };
        let why = format!("the changes from {} on do not fit the state: {what}", head.first_revision.0);
        self.shared.fail(&why);
        self.shared.close(&why);
        another(&why)
    }
}
