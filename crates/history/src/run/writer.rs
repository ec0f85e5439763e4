//! Writes a run: collects sorted rows to chunks, packs them, and appends the index.

use std::path::Path;

use exacat_disk::{DiskFile, cannot_write};
use exacat_model::{Error, ErrorKind};

use super::index::{Footer, Index, RunHead, RunSummary};
use super::{CHUNK_BYTES, CHUNK_ROWS_MAX, FOOTER_BYTES, HEADER_BYTES, PAGE_ROWS, checksum, day_of};
use super::{encode, verify};
use crate::columns::{Columns, RowKey};
use crate::row::Field;
use crate::sorted::SortedRows;

/// Level of pco for runs that a flush writes: about 70 ns a row.
pub const FLUSH_LEVEL: usize = 4;
/// Level of pco for runs that a compaction writes, which stay for long.
pub const COMPACTION_LEVEL: usize = 8;

/// Bytes after which a run is synced while it is written. A sync of gigabytes at once would hold up those of
/// the log.
const SYNC_BYTES: u64 = 8 << 20;

/// Writer of a run. Memory is bounded by one chunk.
pub struct RunWriter<'f> {
    /// Path for errors.
    path: &'f Path,
    file: &'f dyn DiskFile,
    head: RunHead,
    level: usize,
    /// Rows of the next chunk.
    rows: Columns,
    /// End of the written bytes.
    at: u64,
    /// End of the synced bytes.
    synced: u64,
    index: Index,
    last: Option<RowKey>,
    written: u64,
    elements: u32,
    times: Option<(i64, i64)>,
}

impl<'f> RunWriter<'f> {
    /// Begins a run in an empty file. Rows come in ascending order of element and time, each once.
    pub fn new(path: &'f Path, file: &'f dyn DiskFile, head: RunHead, level: usize) -> Result<Self, Error> {
        let mut writer = RunWriter {
            path,
            file,
            head,
            level,
            rows: Columns::default(),
            at: 0,
            synced: 0,
            index: Index::default(),
            last: None,
            written: 0,
            elements: 0,
            times: None,
        };
        writer.write(&head.encode())?;
        debug_assert_eq!(writer.at, HEADER_BYTES as u64);
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_at(bytes, self.at).map_err(|error| cannot_write(self.path, &error))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.synced = self.at;
        self.file.sync().map_err(|error| cannot_write(self.path, &error))
    }

    /// Appends all rows of a source.
    pub fn append_all(&mut self, source: &mut dyn SortedRows) -> Result<(), Error> {
        while let Some(rows) = source.next_rows()? {
            self.append(&rows)?;
        }
        Ok(())
    }

    /// Appends rows. Fails if they are out of order or of another day; then the run is useless.
    pub fn append(&mut self, rows: &Columns) -> Result<(), Error> {
        self.check(rows)?;
        let mut start = 0;
        while start < rows.rows() {
            let room = CHUNK_ROWS_MAX - self.rows.rows();
            let end = rows.rows().min(start + room.min(PAGE_ROWS));
            self.rows.append(rows, start..end)?;
            start = end;
            if self.rows.rows() == CHUNK_ROWS_MAX || self.rows.bytes() >= CHUNK_BYTES {
                self.end_chunk()?;
            }
        }
        Ok(())
    }

    fn check(&mut self, rows: &Columns) -> Result<(), Error> {
        let (mut start, mut last) = (0, self.last);
        for element in rows.elements() {
            let times = &rows.times()[start..element.end as usize];
            let (Some(first), Some(end)) = (times.first(), times.last()) else { continue };
            let ascends = last.is_none_or(|last| last < (element.element, *first))
                && times.is_sorted_by(|one, other| one < other);
            if !ascends {
                return Err(internal("rows of a history are out of order"));
            }
            if day_of(*first) != self.head.day || day_of(*end) != self.head.day {
                return Err(internal("a row of a history is not of its run's day"));
            }
            self.elements += u32::from(last.is_none_or(|last| last.0 != element.element));
            let (smallest, largest) = self.times.unwrap_or((*first, *end));
            self.times = Some((smallest.min(*first), largest.max(*end)));
            last = Some((element.element, *end));
            start = element.end as usize;
        }
        self.last = last;
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<(), Error> {
        let mut rows = std::mem::take(&mut self.rows);
        rows.drop_empty_columns();
        if rows.is_empty() {
            return Ok(());
        }
        let (salt, at, page) = (self.head.salt, self.at, self.index.pages.len());
        let mut packed = encode::pack(&rows, salt, at, page, Some(self.level));
        if !packed.as_ref().is_ok_and(|packed| verify::is_read_back(&rows, packed, salt)) {
            // A defect of the packer, or a fault of the memory. Rows are worth more than space.
            packed = encode::pack(&rows, salt, at, page, None);
        }
        let packed = packed?;
        if !verify::is_read_back(&rows, &packed, salt) {
            return Err(internal("a chunk of a history is not read back as it was written"));
        }
        self.write(&packed.bytes)?;
        if self.at - self.synced >= SYNC_BYTES {
            self.sync()?;
        }
        self.index.chunks.push(packed.entry);
        self.index.pages.extend(packed.pages);
        self.written += rows.rows() as u64;
        for column in rows.columns() {
            let field = Field { number: column.field, kind: column.values.kind() };
            self.index.count(field, column.values.len() as u64);
        }
        rows.clear();
        self.rows = rows;
        Ok(())
    }

    /// Completes the run and makes its bytes durable. The caller syncs the directory. Fails if there
    /// was no row.
    pub fn finish(mut self) -> Result<RunSummary, Error> {
        self.end_chunk()?;
        let ends = self.index.pages.first().zip(self.index.pages.last());
        let ends = ends.map(|(first, last)| (first.first.0, last.last.0)).zip(self.times);
        let Some((element_range, time_range)) = ends else {
            return Err(internal("a run of a history has no row"));
        };
        let index = self.index.encode();
        let footer = Footer {
            head: self.head,
            rows: self.written,
            index_at: self.at,
            chunks: self.index.chunks.len() as u32,
            pages: self.index.pages.len() as u32,
            fields: self.index.fields.len() as u32,
            elements: self.elements,
            element_range,
            time_range,
            index_checksum: checksum(self.head.salt, self.at, &index),
        };
        self.write(&index)?;
        let footer = footer.encode(self.at);
        debug_assert_eq!(footer.len(), FOOTER_BYTES);
        self.write(&footer)?;
        self.sync()?;
        Ok(RunSummary {
            rows: self.written,
            bytes: self.at,
            elements: self.elements,
            element_range,
            time_range,
            fields: self.index.fields,
        })
    }
}

fn internal(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("internal error: {what}"))
}
