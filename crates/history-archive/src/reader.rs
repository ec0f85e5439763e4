//! Reads rows back from files of the archive: only the pages that the statistics do not rule out.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use bytes::{Buf, Bytes};
use exacat_disk::corrupt;
use exacat_history::columns::{Columns, RowKey};
use exacat_history::row::FieldNumber;
use exacat_history::run::{Elements, Wanted};
use exacat_history::sorted::{BATCH_ROWS, SortedRows};
use exacat_history::{NamedGroup, Names};
use exacat_model::{Error, FieldType, FieldValue, Result};
use parking_lot::Mutex;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelection,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::other_fields::each_field;
use crate::place::Place;
use crate::schema::{self, ELEMENT_AT, TIME_AT};

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
struct Blocks(Arc<Inner>);

impl Blocks {
    fn new(bytes: FileBytes) -> Self {
        Blocks(Arc::new(Inner { bytes, blocks: Mutex::default(), failed: Mutex::default() }))
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

/// Says whether one of the elements of a range is wanted.
fn has_wanted(elements: &Elements, range: (u32, u32)) -> bool {
    elements.next_from(range.0).is_some_and(|wanted| wanted <= range.1)
}

/// Says whether a file may have wanted rows.
pub(crate) fn may_have(wanted: &Wanted, elements: (u32, u32), times: (i64, i64)) -> bool {
    has_wanted(&wanted.elements, elements)
        && times.0 <= *wanted.times.end()
        && *wanted.times.start() <= times.1
}

/// Returns the numbers of the row groups with wanted rows, and the rows to be read of them.
fn selected(metadata: &ParquetMetaData, wanted: &Wanted) -> (Vec<usize>, RowSelection) {
    let (mut groups, mut ranges, mut total) = (Vec::new(), Vec::new(), 0);
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let rows = group.num_rows() as usize;
        let pages = metadata.page_index_for_row_group(number);
        let index = |column| match pages.column_index(column) {
            Some(ColumnIndexMetaData::INT64(index)) => Some(index),
            _ => None,
        };
        let (elements, times, places) = (index(ELEMENT_AT), index(TIME_AT), pages.offset_index(ELEMENT_AT));
        let before = ranges.len();
        match (elements, places) {
            (Some(elements), Some(places)) => {
                let starts = places.page_locations();
                // Pages of both columns begin at the same rows where the writer is this one.
                let same = pages.offset_index(TIME_AT).is_some_and(|of| {
                    let rows =
                        |page: &parquet::file::page_index::offset_index::PageLocation| page.first_row_index;
                    of.page_locations().iter().map(rows).eq(starts.iter().map(rows))
                });
                for (page, place) in starts.iter().enumerate() {
                    let start = place.first_row_index as usize;
                    let end = starts.get(page + 1).map_or(rows, |next| next.first_row_index as usize);
                    let ends = elements.min_value(page).zip(elements.max_value(page));
                    let of_time = times.filter(|_| same);
                    let of_time = of_time.and_then(|of| of.min_value(page).zip(of.max_value(page)));
                    let number = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
                    let is_wanted = ends.is_none_or(|(first, last)| {
                        has_wanted(&wanted.elements, (number(*first), number(*last)))
                    });
                    let is_in_time = of_time.is_none_or(|(first, last)| {
                        *first <= wanted.times.end().div_euclid(1000)
                            && wanted.times.start().div_euclid(1000) <= *last
                    });
                    if is_wanted && is_in_time {
                        ranges.push(total + start..total + end);
                    }
                }
            }
            _ => ranges.push(total..total + rows),
        }
        if ranges.len() > before {
            groups.push(number);
            total += rows;
        }
    }
    (groups, RowSelection::from_consecutive_ranges(ranges.into_iter(), total))
}

/// Field of a record, by the measurement of its element and its name.
type FieldKeys = HashMap<(u32, Box<str>), Option<(FieldNumber, FieldType)>>;

/// A read of a file.
pub(crate) struct FileScan {
    name: String,
    blocks: Blocks,
    group: Arc<dyn NamedGroup>,
    wanted: Wanted,
    reader: ParquetRecordBatchReader,
    /// Name of the field of quality of each measurement.
    quality_names: BTreeMap<String, String>,
    keys: FieldKeys,
    /// Row whose last record may be still to come.
    pending: Option<(RowKey, Vec<(FieldNumber, FieldValue)>)>,
    is_done: bool,
}

/// Metadata of a file, as it can be kept for further reads.
pub(crate) type FileMetadata = ArrowReaderMetadata;

impl FileScan {
    /// Opens a file. `known` has its metadata, if they are known.
    pub(crate) fn open(
        name: String,
        bytes: FileBytes,
        group: &Arc<dyn NamedGroup>,
        wanted: &Wanted,
        known: Option<&Mutex<Option<FileMetadata>>>,
    ) -> Result<Self> {
        let blocks = Blocks::new(bytes);
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let metadata = match known.and_then(|known| known.lock().clone()) {
                Some(metadata) => metadata,
                None => {
                    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
                    ArrowReaderMetadata::load(&blocks, options)?
                }
            };
            if let Some(known) = known {
                *known.lock() = Some(metadata.clone());
            }
            let is_ours = metadata.schema().fields().iter().map(|field| field.name());
            if !is_ours.eq(schema::arrow().fields().iter().map(|field| field.name())) {
                return Err(ParquetError::General("the columns are not those of an archive".to_owned()));
            }
            let (groups, rows) = selected(metadata.metadata(), wanted);
            let names = [schema::NAME, schema::SERIES];
            let columns = schema::arrow();
            let needed = columns.fields().iter().filter(|field| !names.contains(&field.name().as_str()));
            let mask =
                ProjectionMask::columns(metadata.parquet_schema(), needed.map(|field| field.name().as_str()));
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(blocks.clone(), metadata.clone())
                .with_row_groups(groups)
                .with_row_selection(rows)
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .build()?;
            Ok((metadata, reader))
        }));
        let (metadata, reader) = Self::checked(&name, &blocks, opened)?;
        let pairs = metadata.metadata().file_metadata().key_value_metadata();
        let pair =
            |key: &str| pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == key)?.value.clone());
        if pair(schema::METADATA_VERSION).as_deref() != Some(schema::VERSION) {
            return Err(corrupt(&name, 0, "the file is of an unknown version: use a newer release"));
        }
        let quality = pair(schema::METADATA_QUALITY).unwrap_or_default();
        let quality_names = serde_json::from_str(&quality)
            .map_err(|error| corrupt(&name, 0, format!("the fields of quality: {error}")))?;
        Ok(FileScan {
            name,
            blocks,
            group: Arc::clone(group),
            wanted: wanted.clone(),
            reader,
            quality_names,
            keys: FieldKeys::new(),
            pending: None,
            is_done: false,
        })
    }

    /// Returns what the library has read; errors of the place and damage as they are. A panic of the library
    /// on damaged bytes is damage.
    fn checked<T>(
        name: &str,
        blocks: &Blocks,
        read: std::thread::Result<std::result::Result<T, ParquetError>>,
    ) -> Result<T> {
        let why = match read {
            Ok(Ok(read)) => return Ok(read),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the library stopped at its bytes".to_owned(),
        };
        match blocks.0.failed.lock().take() {
            Some(error) => Err(error),
            None => Err(corrupt(name, 0, why)),
        }
    }

    fn damaged(&self, what: &str) -> Error {
        corrupt(&self.name, 0, what)
    }

    /// Appends the rows of a batch of records.
    fn append(&mut self, batch: &RecordBatch, out: &mut Columns) -> Result<()> {
        let column =
            |name: &str| batch.column_by_name(name).ok_or_else(|| self.damaged("a column is missing"));
        let elements = column(schema::ELEMENT)?.as_primitive_opt::<Int64Type>();
        let times = column(schema::TIME)?.as_primitive_opt::<TimestampMicrosecondType>();
        let times_ns = column(schema::TIME_NS)?.as_primitive_opt::<Int64Type>();
        let fields = column(schema::FIELD)?.as_string_opt::<i32>();
        let values = column(schema::VALUE)?.as_primitive_opt::<Float64Type>();
        let integers = column(schema::INTEGER)?.as_primitive_opt::<Decimal128Type>();
        let texts = column(schema::TEXT)?.as_string_opt::<i32>();
        let qualities = column(schema::QUALITY)?.as_primitive_opt::<Int64Type>();
        let others = column(schema::FIELDS)?.as_string_opt::<i32>();
        let columns = (|| {
            Some((elements?, times?, times_ns?, fields?, values?, integers?, texts?, qualities?, others?))
        })();
        let Some((elements, times, times_ns, fields, values, integers, texts, qualities, others)) = columns
        else {
            return Err(self.damaged("a column has another type"));
        };
        let group = Arc::clone(&self.group);
        let names = group.names();
        // Element, measurement and quality of the record before; its field.
        let mut of_element: Option<(i64, u32, u32, Option<FieldNumber>)> = None;
        let mut of_field: Option<(u32, &str, FieldNumber, FieldType)> = None;
        let mut found: Vec<(FieldNumber, FieldValue)> = Vec::new();
        for row in 0..batch.num_rows() {
            let number = elements.value(row);
            let (_, element, measurement, quality) = match of_element {
                Some(of) if of.0 == number => of,
                _ => {
                    let element =
                        u32::try_from(number).ok().filter(|of| (*of as usize) < names.element_count());
                    let element =
                        element.ok_or_else(|| self.damaged("an element that the group does not have"))?;
                    let measurement = names.measurement_of(element);
                    let quality = self.quality(&names, measurement)?;
                    *of_element.insert((number, element, measurement, quality))
                }
            };
            let time = match times_ns.is_valid(row) {
                true => times_ns.value(row),
                false => {
                    times.value(row).checked_mul(1000).ok_or_else(|| self.damaged("a time out of range"))?
                }
            };
            let key = (element, time);
            if self.wanted.elements.next_from(element) != Some(element) || !self.wanted.times.contains(&time)
            {
                continue;
            }
            if self.pending.as_ref().is_none_or(|(of, _)| *of != key) {
                self.end_row(key, out)?;
            }
            found.clear();
            if fields.is_valid(row) {
                let name = fields.value(row);
                let (field, kind) = match of_field {
                    Some((of, known, field, kind)) if of == measurement && known == name => (field, kind),
                    _ => {
                        let (field, kind) = self.field(&names, measurement, name)?;
                        of_field = Some((measurement, name, field, kind));
                        (field, kind)
                    }
                };
                if self.wanted.fields.has(field) {
                    let value = value_of(kind, row, (values, integers, texts));
                    found.push((field, value.ok_or_else(|| self.damaged("a value is missing"))?));
                }
            }
            if let Some(field) =
                quality.filter(|field| qualities.is_valid(row) && self.wanted.fields.has(*field))
            {
                found.push((field, FieldValue::Integer(qualities.value(row))));
            }
            if others.is_valid(row) {
                self.other_fields(&names, measurement, others.value(row), &mut found)?;
            }
            if let Some((_, known)) = &mut self.pending {
                for (field, value) in found.drain(..) {
                    if let Err(at) = known.binary_search_by_key(&field, |(of, _)| *of) {
                        known.insert(at, (field, value));
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands on the pending row, and begins another.
    fn end_row(&mut self, next: RowKey, out: &mut Columns) -> Result<()> {
        let Some((key, values)) = &mut self.pending else {
            self.pending = Some((next, Vec::new()));
            return Ok(());
        };
        if *key >= next {
            return Err(corrupt(&self.name, 0, "rows are out of order"));
        }
        out.push(*key, values.iter().map(|(field, value)| (*field, value.borrow())))?;
        *key = next;
        values.clear();
        Ok(())
    }

    fn quality(&self, names: &Names, measurement: u32) -> Result<Option<FieldNumber>> {
        let name = names.measurements().get(measurement as usize).map(|name| &**name).unwrap_or_default();
        let Some(field) = self.quality_names.get(name) else { return Ok(None) };
        let number = names.field(measurement, field);
        number.map(Some).ok_or_else(|| self.damaged("a field of quality that the group does not have"))
    }

    fn field(&mut self, names: &Names, measurement: u32, name: &str) -> Result<(FieldNumber, FieldType)> {
        let known =
            self.keys.entry((measurement, name.into())).or_insert_with(|| field_of(names, measurement, name));
        known.ok_or_else(|| corrupt(&self.name, 0, "a field that the group does not have"))
    }

    fn other_fields(
        &self,
        names: &Names,
        measurement: u32,
        text: &str,
        found: &mut Vec<(FieldNumber, FieldValue)>,
    ) -> Result<()> {
        let kind = |name: &str| Some(field_of(names, measurement, name)?.1);
        let read = each_field(text, kind, |name, value| {
            if let Some((field, _)) = field_of(names, measurement, name)
                && self.wanted.fields.has(field)
            {
                found.push((field, value));
            }
        });
        read.ok_or_else(|| self.damaged("the text of further fields is damaged"))
    }
}

fn field_of(names: &Names, measurement: u32, name: &str) -> Option<(FieldNumber, FieldType)> {
    let number = names.field(measurement, name)?;
    Some((number, names.fields().get(number as usize)?.kind))
}

type ValueColumns<'a> =
    (&'a arrow_array::Float64Array, &'a arrow_array::Decimal128Array, &'a arrow_array::StringArray);

/// Returns the value of a record, of a type.
fn value_of(kind: FieldType, row: usize, (values, integers, texts): ValueColumns<'_>) -> Option<FieldValue> {
    if kind == FieldType::Text {
        return texts.is_valid(row).then(|| FieldValue::Text(texts.value(row).into()));
    }
    let number = values.is_valid(row).then(|| values.value(row))?;
    let integer = integers.is_valid(row).then(|| integers.value(row));
    Some(match kind {
        FieldType::Float => FieldValue::Float(number),
        FieldType::Integer => FieldValue::Integer(match integer {
            Some(integer) => i64::try_from(integer).ok()?,
            None => number as i64,
        }),
        FieldType::Unsigned => FieldValue::Unsigned(match integer {
            Some(integer) => u64::try_from(integer).ok()?,
            None => number as u64,
        }),
        FieldType::Boolean => FieldValue::Boolean(number != 0.0),
        FieldType::Text => return None,
    })
}

impl SortedRows for FileScan {
    fn next_rows(&mut self) -> Result<Option<Columns>> {
        let mut out = Columns::default();
        while out.is_empty() && !self.is_done {
            let reader = &mut self.reader;
            let next = catch_unwind(AssertUnwindSafe(|| {
                reader.next().transpose().map_err(|error| ParquetError::General(error.to_string()))
            }));
            match Self::checked(&self.name, &self.blocks, next)? {
                Some(batch) => self.append(&batch, &mut out)?,
                None => {
                    self.is_done = true;
                    if let Some((key, values)) = self.pending.take() {
                        let values = values.iter().map(|(field, value)| (*field, value.borrow()));
                        out.push(key, values)?;
                    }
                }
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }
}
