//! A column of repeated texts, such as names: the distinct texts, and runs of their numbers.
//!
//! The library makes such a column from the text of each row, and looks each up by its hash. That takes
//! longer than most other columns. Here texts have numbers already, and a run is stored as it is.

use std::ops::Range;

use bytes::Bytes;
use exacat_model::codec::put_varint;
use parquet::basic::{Compression, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

/// Number of a distinct text that no row so far has.
const UNUSED: u32 = u32::MAX;
/// Numbers that are packed together.
const GROUP: usize = 8;

/// Adjacent rows: the number of their text, if they have one, and how many they are.
pub(crate) type Run = (Option<u32>, usize);

/// Rows of a column, by the numbers of their texts.
#[derive(Default)]
pub struct TextRuns {
    runs: Vec<Run>,
}

/// A column chunk as Parquet has it.
pub struct Chunk {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its metadata, for the row group.
    pub close: ColumnCloseResult,
}

impl TextRuns {
    /// Adds rows with one text, or with none.
    pub fn extend(&mut self, number: Option<u32>, count: usize) {
        match self.runs.last_mut() {
            Some((last, rows)) if *last == number => *rows += count,
            _ => self.runs.push((number, count)),
        }
    }

    /// Returns the runs. Adjacent ones have other texts.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Removes all rows, and keeps the memory for further ones.
    pub fn clear(&mut self) {
        self.runs.clear();
    }

    /// Returns the runs of some rows.
    fn runs_of(&self, rows: Range<usize>) -> impl Iterator<Item = Run> {
        let mut next = 0;
        self.runs.iter().filter_map(move |(number, count)| {
            let (start, end) = (next.max(rows.start), (next + count).min(rows.end));
            next += count;
            (start < end).then(|| (*number, end - start))
        })
    }

    /// Returns the column of some rows: a dictionary of their texts, and pages. `text` returns a text by its
    /// number, which is below `distinct`. The column has no other compression than Zstandard.
    pub fn chunk<'t>(
        &self,
        (text, distinct): (impl Fn(u32) -> &'t str, usize),
        column: &ColumnDescPtr,
        properties: &WriterProperties,
        rows: Range<usize>,
    ) -> Result<Chunk> {
        // Only the texts of these rows, in the order in which they appear.
        let (mut numbers, mut used) = (vec![UNUSED; distinct], Vec::new());
        for number in self.runs_of(rows.clone()).filter_map(|(number, _)| number) {
            let own = &mut numbers[number as usize];
            if *own == UNUSED {
                *own = used.len() as u32;
                used.push(number);
            }
        }
        let mut chunk = ChunkWriter::new(column, properties.compression(column.path()))?;
        chunk.dictionary(used.iter().map(|number| text(*number)))?;
        let bits = usize::BITS - used.len().saturating_sub(1).leading_zeros();
        let (page_rows, mut page) = (properties.data_page_row_count_limit(), OpenPage::new(bits));
        for (number, mut count) in self.runs_of(rows) {
            let length = number.map_or(0, |number| text(number).len());
            let number = number.map(|number| numbers[number as usize]);
            while count > 0 {
                let fits = count.min(page_rows - page.rows);
                page.add(number, fits);
                page.text_bytes += length * fits;
                count -= fits;
                if page.rows == page_rows {
                    chunk.page(std::mem::replace(&mut page, OpenPage::new(bits)))?;
                }
            }
        }
        if page.rows > 0 {
            chunk.page(page)?;
        }
        let has_ends = properties.statistics_enabled(column.path()) != EnabledStatistics::None;
        let texts = || used.iter().map(|number| text(*number).as_bytes());
        let owned = |text: Option<&[u8]>| text.map(|text| ByteArray::from(text.to_vec()));
        let (nulls, ends) = (Some(chunk.nulls as u64), || (owned(texts().min()), owned(texts().max())));
        let statistics =
            has_ends.then(ends).map(|(min, max)| ValueStatistics::new(min, max, None, nulls, false));
        chunk.finish(statistics)
    }
}

/// Numbers as Parquet's hybrid has them: long runs of one number, and groups of packed numbers.
struct Hybrid {
    bits: u32,
    out: Vec<u8>,
    /// Numbers to be packed: whole groups, and the one in progress.
    packed: Vec<u32>,
}

impl Hybrid {
    fn new(bits: u32) -> Self {
        Hybrid { bits, out: Vec::new(), packed: Vec::new() }
    }

    fn add(&mut self, number: u32, mut count: usize) {
        // A run begins behind a whole group only.
        let open = self.packed.len() % GROUP;
        let missing = if open == 0 { 0 } else { count.min(GROUP - open) };
        self.packed.extend(std::iter::repeat_n(number, missing));
        count -= missing;
        // Numbers without bits are not packed: there would be nothing to read.
        if count >= GROUP || (count > 0 && self.bits == 0) {
            self.end_packed();
            put_varint(&mut self.out, (count as u64) << 1);
            self.out.extend_from_slice(&number.to_le_bytes()[..self.bits.div_ceil(8) as usize]);
        } else {
            self.packed.extend(std::iter::repeat_n(number, count));
        }
    }

    /// Packs the numbers, the lowest bits first. Those missing in the last group are zeros that no reader
    /// takes.
    fn end_packed(&mut self) {
        if self.packed.is_empty() {
            return;
        }
        let groups = self.packed.len().div_ceil(GROUP);
        put_varint(&mut self.out, (groups as u64) << 1 | 1);
        self.packed.resize(groups * GROUP, 0);
        let (mut word, mut filled) = (0u64, 0);
        for number in self.packed.drain(..) {
            word |= u64::from(number) << filled;
            filled += self.bits;
            while filled >= 8 {
                self.out.push(word as u8);
                word >>= 8;
                filled -= 8;
            }
        }
    }

    /// Returns the bytes.
    fn end(mut self) -> Vec<u8> {
        self.end_packed();
        self.out
    }
}

/// A page in progress.
struct OpenPage {
    rows: usize,
    nulls: usize,
    /// Whether the last rows have a text, and how many of them.
    level: (bool, usize),
    levels: Hybrid,
    numbers: Hybrid,
    /// Bytes of the texts of all rows.
    text_bytes: usize,
}

impl OpenPage {
    fn new(bits: u32) -> Self {
        let (levels, numbers) = (Hybrid::new(1), Hybrid::new(bits));
        OpenPage { rows: 0, nulls: 0, level: (false, 0), levels, numbers, text_bytes: 0 }
    }

    fn add(&mut self, number: Option<u32>, count: usize) {
        self.rows += count;
        if self.level.0 != number.is_some() {
            self.end_level();
            self.level.0 = number.is_some();
        }
        self.level.1 += count;
        match number {
            Some(number) => self.numbers.add(number, count),
            None => self.nulls += count,
        }
    }

    fn end_level(&mut self) {
        let (has_text, count) = std::mem::take(&mut self.level);
        if count > 0 {
            self.levels.add(u32::from(has_text), count);
        }
    }
}

/// Writer of a column chunk.
struct ChunkWriter<'c> {
    column: &'c ColumnDescPtr,
    compression: Compression,
    out: TrackedWrite<Vec<u8>>,
    compressor: zstd::bulk::Compressor<'static>,
    index: OffsetIndexBuilder,
    data_offset: Option<u64>,
    pages: i32,
    rows: usize,
    nulls: usize,
    text_bytes: usize,
    uncompressed: usize,
    compressed: usize,
}

impl<'c> ChunkWriter<'c> {
    fn new(column: &'c ColumnDescPtr, compression: Compression) -> Result<Self> {
        let Compression::ZSTD(level) = compression else {
            return Err(ParquetError::General(format!("repeated texts with {compression}")));
        };
        Ok(ChunkWriter {
            column,
            compression,
            out: TrackedWrite::new(Vec::new()),
            compressor: zstd::bulk::Compressor::new(level.compression_level())?,
            index: OffsetIndexBuilder::new(),
            data_offset: None,
            pages: 0,
            rows: 0,
            nulls: 0,
            text_bytes: 0,
            uncompressed: 0,
            compressed: 0,
        })
    }

    /// Compresses a page and writes it. Returns its offset, and its length with its header.
    fn write(&mut self, bytes: &[u8], page: impl FnOnce(Bytes) -> Page) -> Result<(u64, usize)> {
        let compressed = self.compressor.compress(bytes)?;
        let page = CompressedPage::new(page(compressed.into()), bytes.len());
        let written = SerializedPageWriter::new(&mut self.out).write_page(page)?;
        self.uncompressed += written.uncompressed_size;
        self.compressed += written.compressed_size;
        Ok((written.offset, written.compressed_size))
    }

    fn dictionary<'t>(&mut self, texts: impl ExactSizeIterator<Item = &'t str>) -> Result<()> {
        let (mut bytes, num_values) = (Vec::new(), texts.len() as u32);
        for text in texts {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        let encoding = Encoding::PLAIN;
        self.write(&bytes, |buf| Page::DictionaryPage { buf, num_values, encoding, is_sorted: false })?;
        Ok(())
    }

    fn page(&mut self, mut page: OpenPage) -> Result<()> {
        page.end_level();
        let OpenPage { rows, nulls, levels, numbers, text_bytes, .. } = page;
        let (bits, levels, numbers) = (numbers.bits, levels.end(), numbers.end());
        let mut bytes = Vec::with_capacity(5 + levels.len() + numbers.len());
        // A column without nulls has no levels.
        if self.column.max_def_level() > 0 {
            bytes.extend_from_slice(&(levels.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&levels);
        }
        bytes.push(bits as u8);
        bytes.extend_from_slice(&numbers);
        let (offset, length) = self.write(&bytes, |buf| Page::DataPage {
            buf,
            num_values: rows as u32,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })?;
        self.data_offset.get_or_insert(offset);
        self.index.append_row_count(rows as i64);
        self.index.append_offset_and_size(offset as i64, length as i32);
        self.index.append_unencoded_byte_array_data_bytes(Some(text_bytes as i64));
        self.pages += 1;
        self.rows += rows;
        self.nulls += nulls;
        self.text_bytes += text_bytes;
        Ok(())
    }

    /// Ends the chunk. The statistics have the smallest and largest text, where a reader is to know them.
    fn finish(self, statistics: Option<ValueStatistics<ByteArray>>) -> Result<Chunk> {
        let used = |page_type: PageType, encoding: Encoding, count: i32| PageEncodingStats {
            page_type,
            encoding,
            count,
        };
        let mut metadata = ColumnChunkMetaData::builder(self.column.clone())
            .set_compression(self.compression)
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
            .set_page_encoding_stats(vec![
                used(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1),
                used(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY, self.pages),
            ])
            .set_total_compressed_size(self.compressed as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(self.rows as i64)
            .set_dictionary_page_offset(Some(0))
            .set_data_page_offset(self.data_offset.unwrap_or_default() as i64)
            .set_unencoded_byte_array_data_bytes(Some(self.text_bytes as i64));
        if let Some(statistics) = statistics {
            metadata = metadata.set_statistics(Statistics::ByteArray(statistics));
        }
        let close = ColumnCloseResult {
            bytes_written: self.compressed as u64,
            rows_written: self.rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(self.index.build()),
        };
        Ok(Chunk { bytes: self.out.into_inner()?.into(), close })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use parquet::arrow::arrow_reader::{
        ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
    };
    use parquet::basic::ZstdLevel;
    use parquet::file::metadata::PageIndexPolicy;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    const PAGE_ROWS: usize = 8192;

    /// Returns a file of one column, with a row group for each range of records.
    fn file_of(runs: &TextRuns, texts: &[String], is_optional: bool, groups: &[Range<usize>]) -> Bytes {
        let repetition = if is_optional { "OPTIONAL" } else { "REQUIRED" };
        let schema =
            parse_message_type(&format!("message rows {{ {repetition} BINARY t (UTF8); }}")).unwrap();
        let properties = WriterProperties::builder()
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_data_page_row_count_limit(PAGE_ROWS);
        let properties = Arc::new(properties.build());
        let mut file =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::clone(&properties)).unwrap();
        let column = file.schema_descr().column(0);
        for records in groups {
            let mut group = file.next_row_group().unwrap();
            let text = |number| texts[number as usize].as_str();
            let chunk = runs.chunk((text, texts.len()), &column, &properties, records.clone()).unwrap();
            group.append_column(&chunk.bytes, chunk.close).unwrap();
            group.close().unwrap();
        }
        file.into_inner().unwrap().into()
    }

    /// Reads a file: all its rows, or those of a selection, which the index of pages finds.
    fn read(file: &Bytes, selection: Option<RowSelection>) -> Vec<Option<String>> {
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        let mut reader =
            ParquetRecordBatchReaderBuilder::try_new_with_options(file.clone(), options).unwrap();
        if let Some(selection) = selection {
            reader = reader.with_row_selection(selection);
        }
        let mut rows = Vec::new();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            rows.extend(batch.column(0).as_string::<i32>().iter().map(|text| text.map(str::to_owned)));
        }
        rows
    }

    /// The library reads back what was written: runs of any length, any number of distinct texts, with and
    /// without records that have none, over the ends of pages and row groups, whole and in part.
    #[test]
    fn texts_are_read_back_by_the_library() {
        for seed in 0..120 {
            let random = &mut fastrand::Rng::with_seed(seed);
            let (mut runs, mut wanted) = (TextRuns::default(), Vec::new());
            let mut known: Vec<String> = Vec::new();
            let (is_optional, longest) = (random.bool(), [1, 3, 12, 500, 3 * PAGE_ROWS][random.usize(..5)]);
            let distinct = [1, 2, 3, 256, 257, 70_000][random.usize(..6)];
            for _ in 0..random.usize(1..3000) {
                let count = random.usize(1..=longest);
                let number = match is_optional && random.u8(..4) == 0 {
                    true => None,
                    false if known.len() < distinct && random.bool() => {
                        known.push(format!("{}{}", "é".repeat(random.usize(..40)), known.len()));
                        Some(known.len() as u32 - 1)
                    }
                    false if known.is_empty() => continue,
                    false => Some(random.usize(..known.len()) as u32),
                };
                runs.extend(number, count);
                wanted
                    .extend(std::iter::repeat_n(number.map(|number| known[number as usize].clone()), count));
                if wanted.len() > 100_000 {
                    break;
                }
            }
            if wanted.is_empty() {
                continue;
            }
            let cut = random.usize(..wanted.len());
            let groups = [0..cut, cut..wanted.len()];
            let groups: Vec<Range<usize>> = groups.into_iter().filter(|group| !group.is_empty()).collect();
            let file = file_of(&runs, &known, is_optional, &groups);
            assert_eq!(read(&file, None), wanted, "seed {seed}");
            let (skip, take) = (random.usize(..wanted.len()), random.usize(1..200).min(wanted.len()));
            let take = take.min(wanted.len() - skip);
            let part = RowSelection::from(vec![RowSelector::skip(skip), RowSelector::select(take)]);
            assert_eq!(read(&file, Some(part)), wanted[skip..skip + take], "seed {seed}");
            let metadata = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().metadata().clone();
            for (group, records) in metadata.row_groups().iter().zip(&groups) {
                let statistics = group.column(0).statistics().unwrap();
                let of_group = || wanted[records.clone()].iter().flatten().map(String::as_bytes);
                assert_eq!(statistics.min_bytes_opt(), of_group().min(), "seed {seed}");
                assert_eq!(statistics.max_bytes_opt(), of_group().max(), "seed {seed}");
                let nulls = wanted[records.clone()].iter().filter(|text| text.is_none()).count();
                assert_eq!(statistics.null_count_opt(), Some(nulls as u64), "seed {seed}");
            }
        }
    }
}
