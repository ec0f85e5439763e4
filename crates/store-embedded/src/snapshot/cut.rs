//! Cuts a segment behind one of its changes: a restore keeps that part, and a clone begins with it.
//!
//! Records stay unchanged, with their salt. A record that goes beyond the change is written again
//! without the later changes.

use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, corrupt, read_whole};
use exacat_log::Segment;
use exacat_log::archive::is_archived;
use exacat_log::record::{self, Head, RecordWriter};
use exacat_log::segment::{CatalogueId, HEADER_BYTES, Header, Records};
use exacat_model::{Change, Error, ErrorKind, Result, Revision};

use super::line::file_of;
use crate::changes::{self, encode_effect};
use crate::replay;
use crate::replay::Replay;

/// Returns the bytes of the first of these segments, plain, up to a change that it has.
pub(crate) fn cut(
    disk: &dyn Disk,
    log_of: CatalogueId,
    segments: &[Arc<Segment>],
    up_to: Revision,
) -> Result<Vec<u8>> {
    let Some(segment) = segments.first() else { return Ok(Vec::new()) };
    let path = file_of(disk, segment)?;
    let name = path.display().to_string();
    let file = disk.open_to_read(&path).map_err(|error| cannot_read(&name, &error))?;
    let mut bytes = read_whole(&*file).map_err(|error| cannot_read(&name, &error))?;
    if is_archived(&bytes) {
        return from_changes(disk, log_of, segments, up_to);
    }
    let header = Header::decode(&name, &bytes)?;
    let mut records = Records::new(&bytes, header.salt, HEADER_BYTES);
    let (mut end, mut last) = (HEADER_BYTES, Vec::new());
    while let Some((offset, body)) = records.next_record() {
        let head = record::read_head(body).map_err(|error| corrupt(&name, offset as u64, error))?;
        if head.first_revision > up_to {
            break;
        }
        if head.last_revision() > up_to {
            last = shortened(&name, offset, (head, body), up_to, header.salt)?;
            break;
        }
        end = records.offset();
    }
    bytes.truncate(end);
    bytes.append(&mut last);
    Ok(bytes)
}

/// Writes a record again without the changes after one of its own.
fn shortened(
    name: &str,
    offset: usize,
    (head, body): (Head, &[u8]),
    up_to: Revision,
    salt: u64,
) -> Result<Vec<u8>> {
    let mut group = Vec::new();
    let mut shorter = RecordWriter::begin(&mut group, head);
    let read = changes::read_changes(body, Revision(0), |change, effect| {
        let is_kept = change.revision <= up_to;
        if is_kept {
            shorter.add(&mut group, change.index, effect);
        }
        Ok::<bool, exacat_model::codec::DecodeError>(is_kept)
    });
    read.map_err(|error| corrupt(name, offset as u64, error))?;
    shorter.end(&mut group, salt);
    Ok(group)
}

/// Returns the bytes of an archived segment up to a change, plain.
fn from_changes(
    disk: &dyn Disk,
    log_of: CatalogueId,
    segments: &[Arc<Segment>],
    up_to: Revision,
) -> Result<Vec<u8>> {
    let before = Revision(segments[0].first_revision.0.saturating_sub(1));
    let mut cut = Cut { up_to, bytes: Vec::new(), group: Vec::new(), salt: 0, record: None, ended: false };
    match replay::replay(disk, log_of, segments, before, &mut cut) {
        Err(_) if cut.ended => {}
        other => drop(other?),
    }
    cut.end_record();
    Ok(cut.bytes)
}

/// A segment that is assembled from its changes.
struct Cut {
    up_to: Revision,
    bytes: Vec<u8>,
    group: Vec<u8>,
    salt: u64,
    record: Option<RecordWriter>,
    ended: bool,
}

impl Cut {
    fn enough(&mut self) -> Error {
        self.ended = true;
        Error::new(ErrorKind::Internal, "enough of the segment was read")
    }

    fn end_record(&mut self) {
        if let Some(record) = self.record.take() {
            record.end(&mut self.group, self.salt);
            self.bytes.append(&mut self.group);
        }
    }
}

impl Replay for Cut {
    fn segment(&mut self, _: &str, header: &Header) -> Result<()> {
        if !self.bytes.is_empty() {
            return Err(self.enough());
        }
        self.bytes.extend_from_slice(&header.encode());
        self.salt = header.salt;
        Ok(())
    }

    fn record(&mut self, _: &str, _: u64, head: Head, _: usize) -> Result<()> {
        self.end_record();
        if head.first_revision > self.up_to {
            return Err(self.enough());
        }
        self.record = Some(RecordWriter::begin(&mut self.group, head));
        Ok(())
    }

    fn change(&mut self, _: &str, _: u64, change: Change) -> Result<()> {
        if change.revision > self.up_to {
            return Err(self.enough());
        }
        let mut effect = Vec::new();
        encode_effect(&change.effect, &mut effect);
        if let Some(record) = &mut self.record {
            record.add(&mut self.group, change.index, &effect);
        }
        Ok(())
    }
}
