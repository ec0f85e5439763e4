//! Runs: sorted files of pages that never change once they are whole, each with its own indices.
//!
//! ```text
//! header 64 bytes · pages · name filter · GUID filter · blocks of the GUID index · their ends
//!                 · index of the pages · footer 192 bytes
//! ```
//! A run contains its own indices. They cannot get out of step with its pages, and a run is either
//! whole or no run. Filters, the index of the pages and the ends of the GUID index's blocks are in
//! memory. Pages and blocks are read on demand, through a cache, and checked then.

mod cache;
mod file;
mod filter;
mod guids;
mod index;
mod reader;
mod reading;
mod scan;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use cache::Cache;
pub(crate) use file::{Run, head_of, newest_in};
pub(crate) use reader::{Cursor, PageAt};
pub(crate) use reading::{Held, Reading};
pub(crate) use scan::{Gap, Scanned};
pub(crate) use writer::{RunHead, RunWriter};

use exacat_disk::fixed::u64_at;
use exacat_model::{DirId, Guid};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes before the pages.
const HEADER_BYTES: usize = 64;
/// Bytes at the end.
const FOOTER_BYTES: usize = 192;
const MAGIC: [u8; 8] = *b"exacatRN";
const FOOTER_MAGIC: [u8; 8] = *b"exacatRE";
/// Version of the format that this release writes.
const VERSION: u16 = 1;

/// Hash function of keys in the filters and pages of all runs of a catalogue, so that one hash
/// serves any number of runs. A client that knew the seed could only make keys of its own slow to
/// distinguish. Blocks of the GUID index can fill up, so they use a hash with the run's own salt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashes {
    seed: u64,
}

impl Hashes {
    fn of(catalogue: [u8; 16]) -> Self {
        Hashes { seed: xxh3_64(&catalogue) }
    }

    /// Returns the hash of a name.
    #[inline]
    pub(crate) fn name(self, directory: DirId, name: &[u8]) -> u64 {
        xxh3_64_with_seed(name, self.seed ^ directory.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the hash by which filters note that a run has rows of a directory. It is that of a
    /// name which almost no entry has.
    #[inline]
    pub(crate) fn directory(self, directory: DirId) -> u64 {
        self.name(directory, b"")
    }

    /// Returns the hash of a GUID.
    #[inline]
    pub(crate) fn guid(self, guid: Guid) -> u64 {
        xxh3_64_with_seed(&guid.0, self.seed)
    }
}

/// A part of the file that is read as a whole, with its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Section {
    at: u64,
    bytes: u64,
    checksum: u64,
}

/// End of a run, from which it is opened.
///
/// ```text
/// 0 magic · 8 rows u64 · 16 rows of what is gone u64 · 24 GUIDs u64 · 32 newest revision u64
/// 40 pages end u64 · 48 four sections of 24 bytes (at, bytes, checksum): name filter, GUID filter,
/// ends of blocks, index of the pages
/// 144 blocks at u64 · 152 blocks u32 · 156 catalogue 16 · 172 number u64 · 180 salt u64 · 188 checksum u32
/// ```
/// The footer repeats the header's fields. So a run with a damaged header can still be
/// identified, and read page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Footer {
    head: RunHead,
    rows: u64,
    gone: u64,
    guids: u64,
    revision: u64,
    pages_end: u64,
    sections: [Section; 4],
    blocks_at: u64,
    blocks: u32,
}

impl Footer {
    /// Returns the footer of an empty run.
    fn of(head: RunHead) -> Self {
        Footer {
            head,
            rows: 0,
            gone: 0,
            guids: 0,
            revision: 0,
            pages_end: 0,
            sections: [Section::default(); 4],
            blocks_at: 0,
            blocks: 0,
        }
    }

    fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[..8].copy_from_slice(&FOOTER_MAGIC);
        let mut words = vec![self.rows, self.gone, self.guids, self.revision, self.pages_end];
        for section in self.sections {
            words.extend([section.at, section.bytes, section.checksum]);
        }
        words.push(self.blocks_at);
        for (at, word) in (8..).step_by(8).zip(words) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[152..156].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[156..172].copy_from_slice(&self.head.catalogue);
        bytes[172..180].copy_from_slice(&self.head.number.to_le_bytes());
        bytes[180..188].copy_from_slice(&self.head.salt.to_le_bytes());
        let sum = footer_checksum(self.head.salt, &bytes);
        bytes[FOOTER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a footer; none if the bytes fail their checksum.
    fn decode(bytes: &[u8; FOOTER_BYTES]) -> Option<Self> {
        let word = |at: usize| u64_at(bytes, at);
        let salt = word(180);
        let sum = footer_checksum(salt, bytes);
        if bytes[..8] != FOOTER_MAGIC || bytes[FOOTER_BYTES - 4..] != sum.to_le_bytes() {
            return None;
        }
        let mut sections = [Section::default(); 4];
        for (section, at) in sections.iter_mut().zip((48..).step_by(24)) {
            *section = Section { at: word(at), bytes: word(at + 8), checksum: word(at + 16) };
        }
        let mut catalogue = [0; 16];
        catalogue.copy_from_slice(&bytes[156..172]);
        Some(Footer {
            head: RunHead { catalogue, number: word(172), salt },
            rows: word(8),
            gone: word(16),
            guids: word(24),
            revision: word(32),
            pages_end: word(40),
            sections,
            blocks_at: word(144),
            blocks: word(152) as u32,
        })
    }
}

fn footer_checksum(salt: u64, bytes: &[u8; FOOTER_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&bytes[..FOOTER_BYTES - 4]);
    hasher.finalize()
}
