//! Bytes of a file as the Parquet library reads them: by blocks of an object, or from memory.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use exacat_model::{Error, Result};
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::place::Place;

/// Bytes that are fetched at once.
const BLOCK_BYTES: u64 = 256 << 10;
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

/// Blocks of a file, and the error of the place if one of them cannot be had.
struct Inner {
    bytes: FileBytes,
    blocks: Mutex<Vec<(u64, Bytes)>>,
    failed: Mutex<Option<Error>>,
}

/// A file as the Parquet library reads it.
#[derive(Clone)]
pub(crate) struct Blocks(Arc<Inner>);

impl Blocks {
    pub(crate) fn new(bytes: FileBytes) -> Self {
        Blocks(Arc::new(Inner { bytes, blocks: Mutex::default(), failed: Mutex::default() }))
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
        let bytes = self.0.bytes.read(start..end).map_err(|error| {
            let shown = ParquetError::General(error.to_string());
            *self.0.failed.lock() = Some(error);
            shown
        })?;
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
