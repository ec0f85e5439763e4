//! Writes a run: takes rows in the order of their keys, and makes a file.
//!
//! Writes are synced in slices, so that the log's own sync never waits behind much of them.

use std::io;
use std::sync::Arc;

use exacat_disk::{DiskFile, header};
use exacat_model::DirId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::filter::Filter;
use super::guids::{self, Blocks, RowPlace, Sorter};
use super::index::PageIndex;
use super::{FOOTER_BYTES, Footer, HEADER_BYTES, Hashes, MAGIC, Section, VERSION};
use crate::page::{PageBuilder, Row};

/// Bytes written and synced at once.
const SLICE_BYTES: usize = 2 << 20;

/// Identity of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunHead {
    /// Catalogue of the run.
    pub catalogue: [u8; 16],
    /// Number among the catalogue's runs.
    pub number: u64,
    /// Random salt that distinguishes its pages from others.
    pub salt: u64,
}

impl RunHead {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.catalogue);
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.salt.to_le_bytes());
        header::seal(&mut bytes);
        bytes
    }
}

/// A file written from start to end.
struct Out {
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Offset of the buffer in the file.
    at: u64,
}

impl Out {
    fn position(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_at(&self.buffer, self.at)?;
            self.file.sync()?;
            self.at += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= SLICE_BYTES { self.flush() } else { Ok(()) }
    }

    fn section(&mut self, salt: u64, bytes: &[u8]) -> io::Result<Section> {
        let section = Section {
            at: self.position(),
            bytes: bytes.len() as u64,
            checksum: xxh3_64_with_seed(bytes, salt),
        };
        bytes.chunks(SLICE_BYTES).try_for_each(|part| self.put(part))?;
        Ok(section)
    }
}

/// A run being written.
pub(crate) struct RunWriter {
    head: RunHead,
    out: Out,
    page: PageBuilder,
    index: PageIndex,
    /// Last key of the page before.
    last: Option<(DirId, Vec<u8>)>,
    hashes: Hashes,
    names: Filter,
    /// Directory of the row before.
    directory: Option<DirId>,
    guids: Filter,
    sorter: Sorter,
    footer: Footer,
}

impl RunWriter {
    /// Begins a run of at most `rows_max` rows in an empty file. Sorts at most `sorted_in_memory`
    /// GUIDs in memory at once, the others in `scratch`.
    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        scratch: Arc<dyn DiskFile>,
        head: RunHead,
        rows_max: u64,
        sorted_in_memory: usize,
    ) -> io::Result<Self> {
        let mut out = Out { file, buffer: Vec::with_capacity(SLICE_BYTES + SLICE_BYTES / 8), at: 0 };
        out.put(&head.encode())?;
        Ok(RunWriter {
            head,
            out,
            page: PageBuilder::default(),
            index: PageIndex::default(),
            last: None,
            hashes: Hashes::of(head.catalogue),
            names: Filter::for_keys(rows_max),
            directory: None,
            guids: Filter::for_keys(rows_max),
            sorter: Sorter::new(scratch, sorted_in_memory),
            footer: Footer::of(head),
        })
    }

    /// Adds a row, whose key must follow all earlier ones.
    pub(crate) fn push(&mut self, row: &Row<'_>) -> io::Result<()> {
        if self.page.is_full(row) {
            self.end_page()?;
        }
        if let Some(guid) = row.guid() {
            let place = RowPlace::new(self.index.pages() as u32, self.page.rows());
            self.sorter.push(guids::hash(self.head.salt, guid), place)?;
            self.guids.add(self.hashes.guid(guid));
            self.footer.guids += 1;
        }
        let hash = self.hashes.name(row.parent, row.name);
        self.names.add(hash);
        if self.directory.replace(row.parent) != Some(row.parent) {
            self.names.add(self.hashes.directory(row.parent));
        }
        self.footer.rows += 1;
        self.footer.gone += u64::from(row.is_gone());
        self.footer.revision = self.footer.revision.max(row.revision);
        self.page.push(row, hash);
        Ok(())
    }

    /// Returns the number of rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.footer.rows
    }

    fn end_page(&mut self) -> io::Result<()> {
        let at = self.out.position();
        let (Some(first), Some(last)) = (self.page.first_key(), self.page.last_key()) else { return Ok(()) };
        if self.index.is_full(at) {
            return Err(io::Error::other("the run has as many rows as a run can have"));
        }
        let before = self.last.as_ref().map(|(directory, name)| (*directory, name.as_slice()));
        self.index.push(at, first, before);
        self.last = Some((last.0, last.1.to_vec()));
        self.page.finish(self.head.salt, at, &mut self.out.buffer);
        if self.out.buffer.len() >= SLICE_BYTES { self.out.flush() } else { Ok(()) }
    }

    /// Completes the run and makes its bytes durable. The caller makes its name durable.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.end_page()?;
        let (salt, out, footer) = (self.head.salt, &mut self.out, &mut self.footer);
        footer.pages_end = out.position();
        self.index.end(footer.pages_end);
        let mut bytes = Vec::new();
        self.names.encode(&mut bytes);
        drop(self.names);
        footer.sections[0] = out.section(salt, &bytes)?;

        bytes.clear();
        self.guids.encode(&mut bytes);
        drop(self.guids);
        footer.sections[1] = out.section(salt, &bytes)?;

        // GUIDs are written in the order of their hashes.
        footer.blocks_at = out.position();
        let mut ends = Vec::new();
        let mut blocks = Blocks::new(footer.guids);
        let mut put = |block: Vec<u8>| {
            out.put(&block)?;
            ends.extend_from_slice(&(out.position() - footer.blocks_at).to_le_bytes()[..5]);
            Ok(())
        };
        self.sorter.sorted(|hash, place| blocks.push(hash, place, &mut put, salt))?;
        blocks.finish(&mut put, salt)?;
        footer.blocks = guids::blocks_for(footer.guids);
        footer.sections[2] = out.section(salt, &ends)?;
        bytes.clear();
        self.index.encode(&mut bytes);
        footer.sections[3] = out.section(salt, &bytes)?;
        out.put(&footer.encode())?;
        out.flush()?;
        debug_assert!(out.at >= FOOTER_BYTES as u64);
        Ok(out.at)
    }
}
