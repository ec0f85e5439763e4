//! Replays the log: lists its segments, and passes its records to a receiver.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, cannot_write, corrupt, read_whole};
use exacat_model::codec::DecodeError;
use exacat_model::{Error, ErrorKind, Revision};

use crate::archive::{self, Archive};
use crate::log_end::{self, LogEnd, LogPosition};
use crate::record::{self, Head};
use crate::segment::{self, CatalogueId, Ending, HEADER_BYTES, Header, Records, UNFINISHED};
use crate::{Form, Segment};

/// Lists the segments in the log's directory, in order. With `clean` it removes two kinds of files:
///
/// - unfinished segments, which never held anything that counts;
/// - archived segments whose plain segment is there, because the plain one counts until it is
///   removed.
pub fn list_segments(disk: &dyn Disk, directory: &Path, clean: bool) -> Result<Vec<Arc<Segment>>, Error> {
    let names =
        disk.list(directory).map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    let plain: BTreeSet<Revision> =
        names.iter().filter_map(|name| segment::parse_file_name(name, segment::ENDING)).collect();
    let mut segments: Vec<Arc<Segment>> =
        plain.iter().map(|first_revision| Arc::new(Segment::new(directory, *first_revision))).collect();
    for name in names {
        let archived = segment::parse_file_name(&name, archive::ENDING);
        if let Some(first_revision) = archived
            && !plain.contains(&first_revision)
        {
            segments.push(Arc::new(Segment::in_form(directory, first_revision, Form::Archived)));
        } else if clean && (archived.is_some() || name.ends_with(UNFINISHED)) {
            let path = directory.join(&name);
            disk.remove(&path).map_err(|error| cannot_write(&path, &error))?;
        }
    }
    segments.sort_by_key(|segment| segment.first_revision);
    Ok(segments)
}

/// Receiver of a log's records.
pub trait Receiver {
    /// Receives the begin of a segment; `digest` is that of the state before it.
    fn segment(&mut self, file: &str, header: &Header) -> Result<(), Error>;

    /// Receives a record: its head, and its whole body. Its last change is beyond the start.
    fn record(&mut self, file: &str, offset: u64, head: Head, body: &[u8]) -> Result<(), Error>;
}

/// Reads the log after a change to its end. That change is the last of a record, or 0.
pub fn replay(
    disk: &dyn Disk,
    catalogue: CatalogueId,
    segments: &[Arc<Segment>],
    after: Revision,
    into: &mut impl Receiver,
) -> Result<Option<LogEnd>, Error> {
    if segments.is_empty() {
        return Ok(None);
    }
    let first = segments
        .partition_point(|segment| segment.first_revision.0 <= after.0.saturating_add(1))
        .checked_sub(1)
        .ok_or_else(|| begins_too_late(segments, after))?;
    let mut pass = Pass { disk, catalogue, after, last: None, into };
    let mut end = None;
    for (at, segment) in segments.iter().enumerate().skip(first) {
        // The state may be at or behind the start of the first segment. Its header describes an
        // earlier state and is skipped.
        let from = (at == first && segment.first_revision <= after).then_some(HEADER_BYTES as u64);
        end = Some(pass.segment(segment, from, segments.get(at + 1).map(|next| next.first_revision))?);
    }
    match (pass.last, end) {
        (Some(last), Some(end)) if last < after => Err(corrupt(
            &segment::file_name(end.position.segment),
            end.position.offset,
            format!(
                "the log ends with change {}, before change {} that the state has: its end is missing or damaged; {}",
                last.0,
                after.0,
                log_end::HELP
            ),
        )),
        _ => Ok(end),
    }
}

/// Returns the error for missing changes between a state and the log.
pub fn begins_too_late(segments: &[Arc<Segment>], revision: Revision) -> Error {
    let first = segments.first().map_or(0, |segment| segment.first_revision.0);
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "the log begins with change {first}, and the kept state ends with change {}: the changes between them are missing, restore the removed segments, or a later backup",
            revision.0
        ),
    )
}

/// One pass over the log.
struct Pass<'a, R> {
    disk: &'a dyn Disk,
    catalogue: CatalogueId,
    /// Last change that the receiver does not get.
    after: Revision,
    /// Last change read.
    last: Option<Revision>,
    into: &'a mut R,
}

impl<R: Receiver> Pass<'_, R> {
    /// Reads a segment from an offset, or from its start. `next` is the first revision of the
    /// segment after it.
    fn segment(
        &mut self,
        segment: &Segment,
        from: Option<u64>,
        next: Option<Revision>,
    ) -> Result<LogEnd, Error> {
        let form = *segment.form();
        match form {
            Form::Plain | Form::Gone => self.plain(segment, from, next.is_none()),
            Form::Archived => self.archived(segment, from, next),
        }
    }

    fn begin(
        &mut self,
        name: &str,
        segment: &Segment,
        header: &Header,
        from: Option<u64>,
    ) -> Result<u64, Error> {
        if header.catalogue != self.catalogue || header.first_revision != segment.first_revision {
            return Err(corrupt(name, 16, "the segment is another catalogue's, or has another's name"));
        }
        self.last = self.last.max(Some(Revision(header.first_revision.0.saturating_sub(1))));
        match from {
            Some(offset) => Ok(offset),
            None => {
                self.into.segment(name, header)?;
                Ok(HEADER_BYTES as u64)
            }
        }
    }

    fn plain(&mut self, segment: &Segment, from: Option<u64>, is_last: bool) -> Result<LogEnd, Error> {
        let name = segment.path.display().to_string();
        let file = self.disk.open_to_read(&segment.path).map_err(|error| cannot_read(&name, &error))?;
        let bytes = read_whole(&*file).map_err(|error| cannot_read(&name, &error))?;
        let header = Header::decode(&name, &bytes)?;
        let start = self.begin(&name, segment, &header, from)?;
        let start = usize::try_from(start).ok().filter(|start| *start <= bytes.len());
        let start = start.ok_or_else(|| ends_before(&name, bytes.len() as u64))?;
        let mut records = Records::new(&bytes, header.salt, start);
        while let Some((offset, body)) = records.next_record() {
            let first_revision = self.record(&name, offset as u64, body)?;
            segment.note(first_revision, offset as u64);
        }
        let ending = records.ending(&name, is_last)?;
        let position = LogPosition { segment: segment.first_revision, offset: records.offset() as u64 };
        let is_marked = records.is_marked() || position.offset == HEADER_BYTES as u64;
        Ok(LogEnd { position, ending, header, is_marked, bytes: bytes.len() as u64 })
    }

    fn archived(
        &mut self,
        segment: &Segment,
        from: Option<u64>,
        next: Option<Revision>,
    ) -> Result<LogEnd, Error> {
        let path = segment.archived_path();
        let name = path.display().to_string();
        let file = self.disk.open_to_read(&path).map_err(|error| cannot_read(&name, &error))?;
        let mut archive = Archive::open(file, name.clone())?;
        let header = *archive.header();
        let start = self.begin(&name, segment, &header, from)?;
        let Some(next) = next else {
            return Err(corrupt(
                &name,
                0,
                "the log ends with an archived segment: the one after it is missing",
            ));
        };
        archive.check_reaches(next)?;
        let end = archive.offset_end();
        if start > end {
            return Err(ends_before(&name, end));
        }
        let first = archive.block_at(start).max(archive.block_of(self.first_told()));
        for number in first..archive.blocks().len() {
            archive.records(number, start, |offset, body| self.record(&name, offset, body).map(|_| ()))?;
        }
        self.last = self.last.max(Some(Revision(next.0 - 1)));
        let position = LogPosition { segment: segment.first_revision, offset: end };
        Ok(LogEnd { position, ending: Ending::Clean, header, is_marked: true, bytes: 0 })
    }

    fn first_told(&self) -> Revision {
        Revision(self.after.0.saturating_add(1))
    }

    /// Passes a record on, except changes before the start. Returns its first revision.
    fn record(&mut self, name: &str, offset: u64, body: &[u8]) -> Result<Revision, Error> {
        let head = record::read_head(body).map_err(|error| undecodable(name, offset, &error))?;
        self.last = self.last.max(Some(head.last_revision()));
        if head.last_revision() > self.after {
            self.into.record(name, offset, head, body)?;
        }
        Ok(head.first_revision)
    }
}

/// Returns the error for a record that is valid, but whose body is not what it must be.
pub fn undecodable(file: &str, offset: u64, error: &DecodeError) -> Error {
    corrupt(file, offset, format!("a valid record has something other than changes: {error}"))
}

fn ends_before(name: &str, offset: u64) -> Error {
    corrupt(name, offset, "the segment ends before the place that the state was complete up to")
}
