//! Bytes of a file as the Parquet library reads them: by blocks of an object, or from memory. Each block is
//! compared with its digest.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::{Buf, Bytes};
use exacat_disk::corrupt;
use exacat_model::{Error, Result};
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use xxhash_rust::xxh3::xxh3_128;

use crate::block_digests::{BLOCK_BYTES, BlockDigests};
use crate::place::Place;

/// Blocks that an open file keeps: one for each column, about.
const BLOCKS_MAX: usize = 16;

/// Source of a file's bytes.
#[derive(Clone)]
pub(crate) enum FileBytes {
    Memory(Bytes),
    Object { place: Arc<Place>, path: String, length: u64 },
}

impl FileBytes {
    fn length(&self) -> u64 {
        match self {
            FileBytes::Memory(bytes) => bytes.len() as u64,
            FileBytes::Object { length, .. } => *length,
        }
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        match self {
            FileBytes::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            FileBytes::Object { place, path, .. } => place.read(path, range),
        }
    }
}

/// Blocks of a file, and the error of the place if one of them cannot be had, or is damaged.
struct Inner {
    /// Name of the file, for errors.
    name: String,
    bytes: FileBytes,
    /// None before they are known, and for files of version 1.
    digests: OnceLock<Arc<BlockDigests>>,
    /// End of the file, as it was compared with its digest.
    end: OnceLock<Bytes>,
    blocks: Mutex<Vec<(u64, Bytes)>>,
    failed: Mutex<Option<Error>>,
}

/// A file as the Parquet library reads it.
#[derive(Clone)]
pub(crate) struct Blocks(Arc<Inner>);

impl Blocks {
    pub(crate) fn new(name: String, bytes: FileBytes) -> Self {
        Blocks(Arc::new(Inner {
            name,
            bytes,
            digests: OnceLock::new(),
            end: OnceLock::new(),
            blocks: Mutex::default(),
            failed: Mutex::default(),
        }))
    }

    fn fail(&self, error: Error) -> ParquetError {
        let shown = ParquetError::General(error.to_string());
        *self.0.failed.lock() = Some(error);
        shown
    }

    fn damaged(&self, at: u64) -> ParquetError {
        self.fail(corrupt(&self.0.name, at, "the file is not as it was written: copy it back from elsewhere"))
    }

    /// Compares all bytes with the digest of a file of version 1, if they are in memory: a read of a part
    /// cannot be compared.
    pub(crate) fn check_all(&self, digest: [u8; 16]) -> std::result::Result<(), ParquetError> {
        match &self.0.bytes {
            FileBytes::Memory(bytes) if xxh3_128(bytes).to_le_bytes() != digest => Err(self.damaged(0)),
            _ => Ok(()),
        }
    }

    /// Compares the end with its digest. What is read of the end after this is what was compared.
    pub(crate) fn check_end(&self, end: u64, digest: [u8; 16]) -> std::result::Result<(), ParquetError> {
        let length = self.0.bytes.length();
        if end > length {
            return Err(self.damaged(end));
        }
        let bytes = self.0.bytes.read(end..length).map_err(|error| self.fail(error))?;
        if xxh3_128(&bytes).to_le_bytes() != digest {
            return Err(self.damaged(end));
        }
        let _first = self.0.end.set(bytes);
        Ok(())
    }

    /// Compares each block from now on: one of an object when it is read, all of those in memory at once.
    pub(crate) fn check_blocks(&self, digests: Arc<BlockDigests>) -> std::result::Result<(), ParquetError> {
        // Those that were read so far were not compared.
        self.0.blocks.lock().clear();
        if let FileBytes::Memory(bytes) = &self.0.bytes {
            digests.damaged_block(bytes).map_or(Ok(()), |number| Err(self.damaged(number * BLOCK_BYTES)))?;
        }
        let _first = self.0.digests.set(digests);
        Ok(())
    }

    /// Takes the error of the place, if a block could not be had.
    pub(crate) fn failed(&self) -> Option<Error> {
        self.0.failed.lock().take()
    }

    fn block(&self, number: u64) -> std::result::Result<Bytes, ParquetError> {
        let mut blocks = self.0.blocks.lock();
        if let Some(at) = blocks.iter().position(|(of, _)| *of == number) {
            let block = blocks.remove(at);
            let bytes = block.1.clone();
            blocks.push(block);
            return Ok(bytes);
        }
        let start = number * BLOCK_BYTES;
        let end = self.0.bytes.length().min(start + BLOCK_BYTES);
        let bytes = self.0.bytes.read(start..end).map_err(|error| self.fail(error))?;
        if self.0.digests.get().is_some_and(|digests| !digests.has(number, &bytes)) {
            return Err(self.damaged(start));
        }
        if blocks.len() >= BLOCKS_MAX {
            blocks.remove(0);
        }
        blocks.push((number, bytes.clone()));
        Ok(bytes)
    }

    fn range(&self, start: u64, length: u64) -> std::result::Result<Bytes, ParquetError> {
        let eof = || ParquetError::EOF("a part beyond the end of the file".to_owned());
        let end = start.checked_add(length).filter(|end| *end <= self.0.bytes.length()).ok_or_else(eof)?;
        if let FileBytes::Memory(bytes) = &self.0.bytes {
            return Ok(bytes.slice(start as usize..end as usize));
        }
        if let Some(of_end) = self.0.end.get()
            && let Some(from) = start.checked_sub(self.0.bytes.length() - of_end.len() as u64)
        {
            return Ok(of_end.slice(from as usize..(from + length) as usize));
        }
        let (first, last) = (start / BLOCK_BYTES, end.saturating_sub(1).max(start) / BLOCK_BYTES);
        let part = |number: u64, block: &Bytes| {
            let from = start.saturating_sub(number * BLOCK_BYTES) as usize;
            let to = (end - number * BLOCK_BYTES).min(block.len() as u64) as usize;
            if from <= to { Ok(block.slice(from..to)) } else { Err(eof()) }
        };
        if first == last {
            return part(first, &self.block(first)?);
        }
        let mut whole = Vec::with_capacity(length as usize);
        for number in first..=last {
            whole.extend_from_slice(&part(number, &self.block(number)?)?);
        }
        Ok(whole.into())
    }
}

impl Length for Blocks {
    fn len(&self) -> u64 {
        self.0.bytes.length()
    }
}

impl ChunkReader for Blocks {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> std::result::Result<Self::T, ParquetError> {
        // A reader of a page's head takes a few bytes; a block has them, or the file ends.
        let length = self.len().saturating_sub(start).min(BLOCK_BYTES);
        Ok(self.range(start, length)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> std::result::Result<Bytes, ParquetError> {
        self.range(start, length as u64)
    }
}
