//! A column of repeated texts, such as names: the distinct texts, and runs of their numbers.
//!
//! The library makes such a column from the text of each record, and looks each up by its hash. That takes
//! longer than the rest of a file. Here texts have numbers already, and a run is stored as it is.

use std::ops::Range;

use bytes::Bytes;
use exacat_history::distinct_texts::DistinctTexts;
use exacat_model::Result;
use exacat_model::codec::put_varint;
use parquet::basic::{Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use crate::schema::{PAGE_ROWS, ZSTD_LEVEL, compression, internal};

/// Number of a distinct text that no record so far has.
const UNUSED: u32 = u32::MAX;

/// Texts of records.
#[derive(Default)]
pub(crate) struct RepeatedTexts {
    distinct: DistinctTexts,
    /// Number of a distinct text, or none, and the adjacent records that have it.
    runs: Vec<(Option<u32>, usize)>,
}

/// A column chunk as Parquet has it.
pub(crate) struct Chunk {
    pub bytes: Bytes,
    pub close: ColumnCloseResult,
}

impl RepeatedTexts {
    /// Returns the number of a text, and adds it if it is new.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        self.distinct.number(text)
    }

    /// Adds a text that is new, and returns its number.
    pub(crate) fn add(&mut self, text: &str) -> u32 {
        self.distinct.add(text)
    }

    /// Adds records with one text, or with none.
    pub(crate) fn extend(&mut self, number: Option<u32>, count: usize) {
        match self.runs.last_mut() {
            Some((last, records)) if *last == number => *records += count,
            _ => self.runs.push((number, count)),
        }
    }

    /// Removes all texts and records, and keeps the memory for further ones.
    pub(crate) fn clear(&mut self) {
        self.distinct.clear();
        self.runs.clear();
    }

    /// Returns the runs of some records.
    fn runs_of(&self, records: Range<usize>) -> impl Iterator<Item = (Option<u32>, usize)> {
        let mut next = 0;
        self.runs.iter().filter_map(move |(number, count)| {
            let (start, end) = (next.max(records.start), (next + count).min(records.end));
            next += count;
            (start < end).then(|| (*number, end - start))
        })
    }

    /// Returns the column of some records: a dictionary of their texts, and pages.
    pub(crate) fn chunk(
        &self,
        column: &ColumnDescPtr,
        properties: &WriterProperties,
        records: Range<usize>,
    ) -> Result<Chunk> {
        // Only the texts of these records, in the order in which they appear.
        let (mut numbers, mut used) = (vec![UNUSED; self.distinct.len()], Vec::new());
        for number in self.runs_of(records.clone()).filter_map(|(number, _)| number) {
            let own = &mut numbers[number as usize];
            if *own == UNUSED {
                *own = used.len() as u32;
                used.push(number);
            }
        }
        let mut chunk = ChunkWriter::new(column, used.len())?;
        chunk.dictionary(used.iter().map(|number| self.distinct.get(*number)))?;
        let mut page = OpenPage::default();
        for (number, mut count) in self.runs_of(records) {
            let length = number.map_or(0, |number| self.distinct.get(number).len());
            let number = number.map(|number| numbers[number as usize]);
            while count > 0 {
                let fits = count.min(PAGE_ROWS - page.rows);
                page.add(number, fits, chunk.bits);
                page.text_bytes += length * fits;
                count -= fits;
                if page.rows == PAGE_ROWS {
                    chunk.page(std::mem::take(&mut page))?;
                }
            }
        }
        if page.rows > 0 {
            chunk.page(page)?;
        }
        let has_ends = properties.statistics_enabled(column.path()) != EnabledStatistics::None;
        let texts = || used.iter().map(|number| self.distinct.get(*number).as_bytes());
        let owned = |text: Option<&[u8]>| text.map(|text| ByteArray::from(text.to_vec()));
        let (nulls, ends) = (Some(chunk.nulls as u64), || (owned(texts().min()), owned(texts().max())));
        let statistics =
            has_ends.then(ends).map(|(min, max)| ValueStatistics::new(min, max, None, nulls, false));
        chunk.finish(statistics)
    }
}

/// A page in progress.
#[derive(Default)]
struct OpenPage {
    rows: usize,
    nulls: usize,
    /// Whether the last records have a text, and how many of them.
    level: (bool, usize),
    levels: Vec<u8>,
    numbers: Vec<u8>,
    /// Bytes of the texts of all records.
    text_bytes: usize,
}

/// Appends a run of a number to a list, as Parquet's hybrid of runs and packed numbers has it.
fn put_run(out: &mut Vec<u8>, number: u32, count: usize, bits: u32) {
    put_varint(out, (count as u64) << 1);
    out.extend_from_slice(&number.to_le_bytes()[..bits.div_ceil(8) as usize]);
}

impl OpenPage {
    fn add(&mut self, number: Option<u32>, count: usize, bits: u32) {
        self.rows += count;
        if self.level.0 != number.is_some() {
            self.end_level();
            self.level.0 = number.is_some();
        }
        self.level.1 += count;
        match number {
            Some(number) => put_run(&mut self.numbers, number, count, bits),
            None => self.nulls += count,
        }
    }

    fn end_level(&mut self) {
        let (has_text, count) = std::mem::take(&mut self.level);
        if count > 0 {
            put_run(&mut self.levels, u32::from(has_text), count, 1);
        }
    }
}

/// Writer of a column chunk.
struct ChunkWriter<'c> {
    column: &'c ColumnDescPtr,
    out: TrackedWrite<Vec<u8>>,
    compressor: zstd::bulk::Compressor<'static>,
    /// Bits of a number.
    bits: u32,
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
    fn new(column: &'c ColumnDescPtr, distinct: usize) -> Result<Self> {
        Ok(ChunkWriter {
            column,
            out: TrackedWrite::new(Vec::new()),
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|error| internal(&error))?,
            bits: usize::BITS - distinct.saturating_sub(1).leading_zeros(),
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
        let compressed = self.compressor.compress(bytes).map_err(|error| internal(&error))?;
        let page = CompressedPage::new(page(compressed.into()), bytes.len());
        let written = SerializedPageWriter::new(&mut self.out).write_page(page);
        let written = written.map_err(|error| internal(&error))?;
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
        let mut bytes = Vec::with_capacity(5 + page.levels.len() + page.numbers.len());
        // A column without nulls has no levels.
        if self.column.max_def_level() > 0 {
            bytes.extend_from_slice(&(page.levels.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&page.levels);
        }
        bytes.push(self.bits as u8);
        bytes.extend_from_slice(&page.numbers);
        let (offset, length) = self.write(&bytes, |buf| Page::DataPage {
            buf,
            num_values: page.rows as u32,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })?;
        self.data_offset.get_or_insert(offset);
        self.index.append_row_count(page.rows as i64);
        self.index.append_offset_and_size(offset as i64, length as i32);
        self.index.append_unencoded_byte_array_data_bytes(Some(page.text_bytes as i64));
        self.pages += 1;
        self.rows += page.rows;
        self.nulls += page.nulls;
        self.text_bytes += page.text_bytes;
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
            .set_compression(compression())
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
            metadata: metadata.build().map_err(|error| internal(&error))?,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(self.index.build()),
        };
        let bytes = self.out.into_inner().map_err(|error| internal(&error))?;
        Ok(Chunk { bytes: bytes.into(), close })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use parquet::arrow::arrow_reader::{
        ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
    };
    use parquet::file::metadata::PageIndexPolicy;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Returns a file of one column, with a row group for each range of records.
    fn file_of(texts: &RepeatedTexts, is_optional: bool, groups: &[Range<usize>]) -> Bytes {
        let repetition = if is_optional { "OPTIONAL" } else { "REQUIRED" };
        let schema =
            parse_message_type(&format!("message rows {{ {repetition} BINARY t (UTF8); }}")).unwrap();
        let properties = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::Chunk).build();
        let properties = Arc::new(properties);
        let mut file =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::clone(&properties)).unwrap();
        let column = file.schema_descr().column(0);
        for records in groups {
            let mut group = file.next_row_group().unwrap();
            let chunk = texts.chunk(&column, &properties, records.clone()).unwrap();
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
            let (mut texts, mut wanted) = (RepeatedTexts::default(), Vec::new());
            let mut known: Vec<String> = Vec::new();
            let (is_optional, longest) = (random.bool(), [1, 3, 500, 3 * PAGE_ROWS][random.usize(..4)]);
            let distinct = [1, 2, 3, 256, 257, 70_000][random.usize(..6)];
            for _ in 0..random.usize(1..3000) {
                let count = random.usize(1..=longest);
                let number = match is_optional && random.u8(..4) == 0 {
                    true => None,
                    false if known.len() < distinct && random.bool() => {
                        // Texts that come again have one number.
                        let text = match known.is_empty() || random.u8(..5) > 0 {
                            true => format!("{}{}", "é".repeat(random.usize(..40)), known.len()),
                            false => known[random.usize(..known.len())].clone(),
                        };
                        let number = texts.number(&text);
                        assert_eq!(
                            known.iter().position(|one| *one == text).unwrap_or(known.len()),
                            number as usize
                        );
                        if number as usize == known.len() {
                            known.push(text);
                        }
                        Some(number)
                    }
                    false if known.is_empty() => continue,
                    false => Some(random.usize(..known.len()) as u32),
                };
                texts.extend(number, count);
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
            let file = file_of(&texts, is_optional, &groups);
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
