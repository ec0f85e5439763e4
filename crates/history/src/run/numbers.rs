//! Columns of numbers, packed with pco: one table for the chunk, and pages that are decoded alone.
//!
//! pco keeps every bit of 64-bit numbers, NaN and the sign of zero included; tests prove it.

use pco::data_types::Number;
use pco::wrapped::{ChunkDecompressor, FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, FULL_BATCH_N, ModeSpec, PagingSpec};

/// A packed column.
pub(super) struct Packed {
    /// Version of pco's format and table of the column.
    pub table: Vec<u8>,
    /// Each page that has a value.
    pub pages: Vec<Vec<u8>>,
}

/// Way to pack a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Ascending or slowly changing whole numbers: their differences.
    Differences,
    /// Small numbers in no order.
    Plain,
    /// pco finds the way itself.
    Any,
}

/// Packs the values of a chunk, `per_page` of them in each page. None if pco refuses them.
pub(super) fn pack<T: Number>(values: &[T], per_page: &[usize], way: Way, level: usize) -> Option<Packed> {
    let pages = per_page.iter().copied().filter(|count| *count > 0).collect();
    let mut config =
        ChunkConfig::default().with_compression_level(level).with_paging_spec(PagingSpec::Exact(pages));
    config = match way {
        Way::Differences => {
            config.with_mode_spec(ModeSpec::Classic).with_delta_spec(DeltaSpec::TryConsecutive(1))
        }
        Way::Plain => config.with_mode_spec(ModeSpec::Classic).with_delta_spec(DeltaSpec::NoOp),
        Way::Any => config,
    };
    let file = FileCompressor::default();
    let mut chunk = file.chunk_compressor(values, &config).ok()?;
    let mut table = file.write_header(Vec::new()).ok()?;
    table = chunk.write_meta(table).ok()?;
    let mut pages = Vec::with_capacity(per_page.len());
    for page in 0..chunk.n_per_page().len() {
        let room = Vec::with_capacity(chunk.page_size_hint(page));
        pages.push(chunk.write_page(page, room).ok()?);
    }
    Some(Packed { table, pages })
}

/// Decoder of the pages of a packed column.
pub(super) struct Unpacker<T: Number>(ChunkDecompressor<T>);

impl<T: Number> Unpacker<T> {
    /// Reads the table of a column; none if it is damaged.
    pub(super) fn new(table: &[u8]) -> Option<Self> {
        let (file, rest) = FileDecompressor::new(table).ok()?;
        let (chunk, rest) = file.chunk_decompressor(rest).ok()?;
        rest.is_empty().then_some(Unpacker(chunk))
    }

    /// Decodes the first `wanted` of a page's `count` values into an empty list; none if the page is
    /// damaged.
    pub(super) fn page(&mut self, page: &[u8], count: usize, wanted: usize) -> Option<Vec<T>> {
        let mut reader = self.0.page_decompressor(page, count).ok()?;
        let decoded = wanted.next_multiple_of(FULL_BATCH_N).min(count);
        let mut values = vec![T::default(); decoded];
        let progress = reader.read(&mut values).ok()?;
        if progress.n_processed != decoded {
            return None;
        }
        if decoded == count && !(progress.finished && reader.into_src().is_empty()) {
            return None;
        }
        values.truncate(wanted);
        Some(values)
    }
}
