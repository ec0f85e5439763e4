//! Archives one segment in small steps. It writes the blocks beside the plain segment, reads them
//! back, and compares them byte for byte. Only then the file gets its name. At any moment at least
//! one of the two is whole and has its name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, cannot_read, cannot_write, corrupt};
use exacat_log::archive::Archive;
use exacat_log::archive::format::{BLOCK_HEAD_BYTES, Block, encode_end, encode_header};
use exacat_log::segment::{HEADER_BYTES, UNFINISHED, begun_seal_in, seal_in};
use exacat_log::{Form, Segment, SegmentReader};
use exacat_model::{Error, ErrorKind, Revision, TimeMs};

use crate::history::History;

/// Minimum bytes written and synced at once: the log's own sync never waits behind much more.
const SLICE_BYTES: usize = 2 << 20;
/// Bytes searched at once for anything but zeros.
const ZEROS_BYTES: usize = 256 << 10;
/// Compression level. Measured on a million created files: higher levels took up to twice as long,
/// and the files were no smaller. The remaining bytes are mostly GUIDs and checksums, which cannot
/// be compressed.
const LEVEL: i32 = 1;

/// Task of the next step.
enum Stage {
    /// Compress a block of records.
    Packing,
    /// Check that nothing but a seal follows the records.
    Zeros,
    /// Read back what was written; next this block.
    Comparing(Box<Archive>, usize),
    /// Rename the archived file and remove the plain one.
    Swapping,
}

/// A segment being archived.
pub(crate) struct Packer {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    segment: Arc<Segment>,
    /// First revision of the segment after it.
    next: Revision,
    block_bytes: usize,
    unfinished: PathBuf,
    file: Box<dyn DiskFile>,
    plain: SegmentReader,
    /// Offset up to which the plain segment was read; `expected` is the change that must follow.
    offset: u64,
    /// Set once the search for a seal behind the records is over.
    seal_passed: bool,
    expected: Revision,
    last_time: TimeMs,
    blocks: Vec<Block>,
    /// Records of a block, and its zstd frame.
    records: Vec<u8>,
    frame: Vec<u8>,
    /// Bytes not written yet, and their offset in the file.
    out: Vec<u8>,
    out_at: u64,
    compressor: zstd::bulk::Compressor<'static>,
    stage: Stage,
}

impl Packer {
    /// Begins to archive a sealed segment; none if it is gone by now.
    pub(crate) fn begin(
        history: &History,
        directory: &Path,
        segment: Arc<Segment>,
        next: Revision,
        block_bytes: usize,
    ) -> Result<Option<Self>, Error> {
        let disk = Arc::clone(history.disk());
        let Some(mut plain) = SegmentReader::open(&*disk, &segment, history.catalogue())? else {
            return Ok(None);
        };
        let header = header_of(&mut plain)?;
        let path = segment.archived_path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = directory.join(format!("{name}{UNFINISHED}"));
        let wrong = |error: std::io::Error| cannot_write(&unfinished, &error);
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(wrong)?;
        let file = disk.create(&unfinished).map_err(wrong)?;
        Ok(Some(Packer {
            disk,
            directory: directory.to_owned(),
            expected: segment.first_revision,
            segment,
            next,
            block_bytes,
            unfinished,
            file,
            plain,
            offset: HEADER_BYTES as u64,
            seal_passed: false,
            last_time: TimeMs(0),
            blocks: Vec::new(),
            records: Vec::new(),
            frame: Vec::new(),
            out: encode_header(&header).to_vec(),
            out_at: 0,
            compressor,
            stage: Stage::Packing,
        }))
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Does one step; true once the segment is archived. After an error the segment is unchanged,
    /// and this packer is of no more use. [`ErrorKind::Corrupt`] means that the plain segment
    /// itself is damaged.
    pub(crate) fn step(&mut self) -> Result<bool, Error> {
        match self.stage {
            Stage::Packing => self.pack()?,
            Stage::Zeros => self.look_for_zeros()?,
            Stage::Comparing(..) => self.compare().map_err(|error| match error.kind {
                ErrorKind::Corrupt => self.not_the_same(&error.message),
                _ => error,
            })?,
            Stage::Swapping => {
                self.swap()?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn pack(&mut self) -> Result<(), Error> {
        self.records.clear();
        let (first_revision, offset) = (self.expected, self.offset);
        let mut records = 0;
        while self.records.len() < self.block_bytes {
            let Some((offset, head)) = self.plain.next_head(self.offset)? else {
                self.stage = Stage::Zeros;
                break;
            };
            if head.first_revision != self.expected || head.count == 0 {
                let (got, expected) = (head.first_revision.0, self.expected.0);
                let what = format!("change {got} follows where {expected} should");
                return Err(corrupt(self.plain.name(), self.offset, what));
            }
            if offset != self.offset {
                // A mark is behind a record, and was packed with it.
                return Err(corrupt(self.plain.name(), self.offset, "a mark stands before all records"));
            }
            let record = self.plain.record(self.offset)?;
            self.records.extend_from_slice(record);
            self.offset += record.len() as u64;
            while let Some(mark) = self.plain.mark(self.offset)? {
                self.records.extend_from_slice(mark);
                self.offset += mark.len() as u64;
            }
            self.expected = Revision(head.last_revision().0.saturating_add(1));
            self.last_time = self.last_time.max(head.time);
            records += 1;
        }
        if records == 0 {
            return Ok(());
        }
        self.frame.clear();
        self.frame.reserve(zstd::zstd_safe::compress_bound(self.records.len()));
        let packed = self.compressor.compress_to_buffer(&self.records, &mut self.frame);
        packed.map_err(|error| cannot_write(&self.unfinished, &error))?;
        let at = self.out_at + self.out.len() as u64;
        let block = Block {
            at,
            // Both fit into 32 bits: a block ends with the record that fills it.
            packed_bytes: self.frame.len() as u32,
            plain_bytes: self.records.len() as u32,
            records,
            first_revision,
            last_revision: Revision(self.expected.0.saturating_sub(1)),
            offset,
        };
        let start = self.out.len();
        self.out.extend_from_slice(&[0; BLOCK_HEAD_BYTES]);
        self.out.extend_from_slice(&self.frame);
        block.encode_head(self.plain.salt(), &mut self.out[start..]);
        self.blocks.push(block);
        if self.out.len() >= SLICE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let written = self.file.write_at(&self.out, self.out_at).and_then(|()| self.file.sync());
        written.map_err(|error| cannot_write(&self.unfinished, &error))?;
        self.out_at += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    fn look_for_zeros(&mut self) -> Result<(), Error> {
        let (salt, offset) = (self.plain.salt(), self.offset);
        let bytes = self.plain.bytes(offset, ZEROS_BYTES)?;
        if !std::mem::replace(&mut self.seal_passed, true)
            && let at = usize::try_from(offset).unwrap_or(usize::MAX)
            && let Some(end) = seal_in(salt, at, bytes).or_else(|| begun_seal_in(at, bytes))
        {
            self.offset += end as u64;
            return Ok(());
        }
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            let at = self.offset + at as u64;
            return Err(corrupt(self.plain.name(), at, "a log record is damaged"));
        }
        if !bytes.is_empty() {
            self.offset += bytes.len() as u64;
            return Ok(());
        }
        if self.expected != self.next {
            let (last, next) = (self.expected.0.saturating_sub(1), self.next.0);
            let what = format!("the segment ends with change {last}, the next begins with {next}");
            return Err(corrupt(self.plain.name(), self.offset, what));
        }
        encode_end(self.plain.salt(), &self.blocks, self.last_time, &mut self.out);
        self.flush()?;
        let name = self.unfinished.display().to_string();
        let file = self.disk.open_to_read(&self.unfinished).map_err(|error| cannot_read(&name, &error))?;
        let archive = Archive::open(file, name).map_err(|error| self.not_the_same(&error.message))?;
        if let Some(damage) = archive.index_damage() {
            return Err(self.not_the_same(&damage.message));
        }
        let header = encode_header(&archive.header().encode());
        if header != encode_header(&header_of(&mut self.plain)?) || archive.blocks() != self.blocks {
            return Err(self.not_the_same("the header or the index is another one"));
        }
        self.stage = Stage::Comparing(Box::new(archive), 0);
        Ok(())
    }

    fn compare(&mut self) -> Result<(), Error> {
        let Stage::Comparing(archive, number) = &mut self.stage else { return Ok(()) };
        let Some(block) = archive.blocks().get(*number).copied() else {
            self.stage = Stage::Swapping;
            return Ok(());
        };
        archive.unpack(*number, &mut self.records)?;
        if self.plain.bytes(block.offset, self.records.len())? != self.records {
            return Err(archive.damaged(*number, "differs from the plain segment"));
        }
        *number += 1;
        Ok(())
    }

    /// Returns the error for bytes that differ when read back. The plain segment stays, whatever
    /// the cause.
    fn not_the_same(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "{} was not archived, the archived form could not be read back: {what}",
                self.plain.name()
            ),
        )
    }

    fn swap(&mut self) -> Result<(), Error> {
        let archived = self.segment.archived_path();
        let named = self
            .disk
            .rename(&self.unfinished, &archived)
            .and_then(|()| self.disk.sync_directory(&self.directory));
        if let Err(error) = named {
            // A leftover archived file does no harm while the plain one is there.
            discard(&*self.disk, &archived);
            return Err(cannot_write(&archived, &error));
        }
        *self.segment.form_to_change() = Form::Archived;
        self.segment.forget_notes();
        // The segment counts as archived now. A plain file that stays counts again at the next
        // opening, and is archived anew.
        let removed =
            self.disk.remove(&self.segment.path).and_then(|()| self.disk.sync_directory(&self.directory));
        if let Err(error) = removed {
            let file = self.segment.path.display();
            tracing::warn!(%file, %error, "cannot remove a segment that was archived");
        }
        Ok(())
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        if *self.segment.form() == Form::Plain {
            discard(&*self.disk, &self.unfinished);
        }
    }
}

/// Returns a plain segment's header, unchanged.
fn header_of(plain: &mut SegmentReader) -> Result<[u8; HEADER_BYTES], Error> {
    let bytes = plain.bytes(0, HEADER_BYTES)?.first_chunk().copied();
    bytes.ok_or_else(|| corrupt(plain.name(), 0, "the segment's header is cut off"))
}

/// Removes a useless file. The next opening removes it if this fails.
fn discard(disk: &dyn Disk, path: &Path) {
    if let Err(error) = disk.remove(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::debug!(file = %path.display(), %error, "cannot remove an unfinished file");
    }
}
