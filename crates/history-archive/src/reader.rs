//! Reads rows back from files of the archive: only the pages that the statistics do not rule out.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use exacat_disk::corrupt;
use exacat_history::columns::{Column, Columns, ElementRows, RowKey, Values};
use exacat_history::row::{ElementNumber, FieldNumber};
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

use crate::block_digests::BlockDigests;
use crate::blocks::{Blocks, FileBytes};
use crate::other_fields::each_field;
use crate::record_columns::RecordColumns;
use crate::schema::{self, ELEMENT_AT, TIME_AT};

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

/// A field and its type.
type FieldOf = (FieldNumber, FieldType);

/// Field of a record, by the measurement of its element and its name.
type FieldKeys = HashMap<(u32, Box<str>), Option<FieldOf>>;

/// An element of a record, its measurement, and the field with the quality of that.
#[derive(Clone, Copy)]
struct ElementOf {
    number: ElementNumber,
    measurement: u32,
    quality: Option<FieldNumber>,
}

/// Adjacent records of one field, each of which is a row.
struct Simple {
    rows: Range<usize>,
    field: FieldOf,
    quality: Option<FieldNumber>,
}

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
    /// Last row that was read and is not pending.
    last: Option<RowKey>,
    is_done: bool,
}

/// Metadata of a file, as it can be kept for further reads.
#[derive(Clone)]
pub(crate) struct FileMetadata {
    arrow: ArrowReaderMetadata,
    /// None for files of version 1.
    digests: Option<Arc<BlockDigests>>,
}

/// A file to read.
pub(crate) struct Source<'a> {
    pub name: String,
    pub bytes: FileBytes,
    /// Digest that the history has of the file: of its end, or of all of it in version 1. None if it is not
    /// known.
    pub digest: Option<[u8; 16]>,
    /// Its metadata, if they are known; room for them if not.
    pub known: Option<&'a Mutex<Option<FileMetadata>>>,
}

/// Returns a value of the metadata of a file.
fn pair<'a>(metadata: &'a ArrowReaderMetadata, key: &str) -> Option<&'a str> {
    let pairs = metadata.metadata().file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

/// Reads the metadata, and compares them with the digest.
fn load(blocks: &Blocks, digest: Option<[u8; 16]>) -> std::result::Result<FileMetadata, ParquetError> {
    let load = || {
        let options = ArrowReaderOptions::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .with_schema(schema::arrow());
        ArrowReaderMetadata::load(blocks, options)
    };
    let mut arrow = load()?;
    match pair(&arrow, schema::METADATA_VERSION) {
        Some(schema::VERSION_1) => Ok(FileMetadata { arrow, digests: None }),
        Some(schema::VERSION) => {
            let lacking = || ParquetError::General("the digests of its blocks are damaged".to_owned());
            let digests_of = |arrow: &ArrowReaderMetadata| {
                pair(arrow, schema::METADATA_BLOCKS).and_then(BlockDigests::parse).ok_or_else(lacking)
            };
            if let Some(digest) = digest {
                blocks.check_end(digests_of(&arrow)?.end, digest)?;
                // These are of bytes that were compared.
                arrow = load()?;
            }
            let digests = Some(Arc::new(digests_of(&arrow)?));
            Ok(FileMetadata { arrow, digests })
        }
        _ => Err(ParquetError::General("the file is of an unknown version: use a newer release".to_owned())),
    }
}

impl FileScan {
    /// Opens a file.
    pub(crate) fn open(source: Source<'_>, group: &Arc<dyn NamedGroup>, wanted: &Wanted) -> Result<Self> {
        let Source { name, bytes, digest, known } = source;
        let blocks = Blocks::new(name.clone(), bytes);
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let metadata = match known.and_then(|known| known.lock().clone()) {
                Some(metadata) => metadata,
                None => load(&blocks, digest)?,
            };
            if let Some(known) = known {
                *known.lock() = Some(metadata.clone());
            }
            let FileMetadata { arrow: metadata, digests } = metadata;
            match (digests, digest) {
                (Some(digests), _) => blocks.check_blocks(digests)?,
                (None, Some(digest)) => blocks.check_all(digest)?,
                (None, None) => {}
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
        let quality = pair(&metadata, schema::METADATA_QUALITY).unwrap_or_default();
        let quality_names = serde_json::from_str(quality)
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
            last: None,
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
        match blocks.failed() {
            Some(error) => Err(error),
            None => Err(corrupt(name, 0, why)),
        }
    }

    fn damaged(&self, what: &str) -> Error {
        corrupt(&self.name, 0, what)
    }

    /// Appends the rows of a batch of records.
    fn append(&mut self, batch: &RecordBatch, out: &mut Columns) -> Result<()> {
        let records = RecordColumns::of(batch).ok_or_else(|| self.damaged("a column has another type"))?;
        let times = records.all_times().ok_or_else(|| self.damaged("a time out of range"))?;
        let group = Arc::clone(&self.group);
        let names = group.names();
        let mut found: Vec<(FieldNumber, FieldValue)> = Vec::new();
        let (mut row, mut of_element, mut of_field) = (0, None, None);
        while row < times.len() {
            let of = self.element(&names, records.elements.value(row), &mut of_element)?;
            let key = (of.number, times[row]);
            let field = self.field_of_record(&names, (&records, row), of.measurement, &mut of_field)?;
            if let Some((field, kind)) = field.filter(|(_, kind)| *kind != FieldType::Text)
                && self.pending.as_ref().is_none_or(|(pending, _)| *pending != key)
            {
                let end = records.end_of_simple(row, &times, |element| {
                    names.measurement_of(element) == of.measurement
                        && (element as usize) < names.element_count()
                });
                if end > row {
                    let simple = Simple { rows: row..end, field: (field, kind), quality: of.quality };
                    self.append_simple(&records, &times, &simple, out)?;
                    row = end;
                    continue;
                }
            }
            if self.wanted.elements.next_from(key.0) == Some(key.0) && self.wanted.times.contains(&key.1) {
                found.clear();
                if let Some((field, kind)) = field.filter(|(field, _)| self.wanted.fields.has(*field)) {
                    let value = records.value(kind, row).ok_or_else(|| self.damaged("a value is missing"))?;
                    found.push((field, value));
                }
                let quality = of.quality.filter(|field| self.wanted.fields.has(*field));
                if let Some(field) = quality.filter(|_| records.qualities.is_valid(row)) {
                    found.push((field, FieldValue::Integer(records.qualities.value(row))));
                }
                if records.others.is_valid(row) {
                    self.other_fields(&names, of.measurement, records.others.value(row), &mut found)?;
                }
                self.add_record(key, &mut found, out)?;
            }
            row += 1;
        }
        Ok(())
    }

    /// Returns the element of a record; that of the record before is mostly the same.
    fn element(&self, names: &Names, number: i64, last: &mut Option<ElementOf>) -> Result<ElementOf> {
        if let Some(of) = last
            && i64::from(of.number) == number
        {
            return Ok(*of);
        }
        let element = u32::try_from(number).ok().filter(|of| (*of as usize) < names.element_count());
        let element = element.ok_or_else(|| self.damaged("an element that the group does not have"))?;
        let measurement = names.measurement_of(element);
        let quality = match last {
            Some(of) if of.measurement == measurement => of.quality,
            _ => self.quality(names, measurement)?,
        };
        Ok(*last.insert(ElementOf { number: element, measurement, quality }))
    }

    /// Returns the field of a record, if it has one; that of the record before is mostly the same.
    fn field_of_record(
        &mut self,
        names: &Names,
        (records, row): (&RecordColumns<'_>, usize),
        measurement: u32,
        last: &mut Option<(u32, i32, FieldOf)>,
    ) -> Result<Option<FieldOf>> {
        if records.fields.is_null(row) {
            return Ok(None);
        }
        let key = records.fields.keys().value(row);
        if let Some((of, known, field)) = last
            && (*of, *known) == (measurement, key)
        {
            return Ok(Some(*field));
        }
        let text = usize::try_from(key).ok().filter(|key| *key < records.field_names.len());
        let text = text.ok_or_else(|| self.damaged("a field without a name"))?;
        let field = self.field(names, measurement, records.field_names.value(text))?;
        *last = Some((measurement, key, field));
        Ok(Some(field))
    }

    /// Appends records of one field, each of which is a row.
    fn append_simple(
        &mut self,
        records: &RecordColumns<'_>,
        times: &[i64],
        simple: &Simple,
        out: &mut Columns,
    ) -> Result<()> {
        let Simple { rows, field: (field, kind), quality } = simple;
        let mut elements: Vec<ElementRows> = Vec::new();
        for (number, end) in records.elements.values()[rows.clone()].iter().zip(1..) {
            // The caller has checked that it is the number of an element.
            let element = *number as u32;
            match elements.last_mut() {
                Some(last) if last.element == element => last.end = end,
                _ => elements.push(ElementRows { element, end }),
            }
        }
        let times = times[rows.clone()].to_vec();
        let mut columns: Vec<Column> = Vec::new();
        if self.wanted.fields.has(*field) {
            let values = records.values_of(*kind, rows.clone());
            let values = values.ok_or_else(|| self.damaged("a value is missing"))?;
            columns.push(Column { field: *field, rows: None, values });
        }
        let quality = quality.filter(|quality| self.wanted.fields.has(*quality));
        if let Some(field) = quality.filter(|_| records.qualities.is_valid(rows.start)) {
            let values = Values::Integer(records.qualities.values()[rows.clone()].to_vec());
            let at = columns.partition_point(|column| column.field < field);
            columns.insert(at, Column { field, rows: None, values });
        }
        let columns = Columns::from_parts(elements, times, columns);
        let ends = columns.first().zip(columns.last());
        let (first, last) = ends.ok_or_else(|| self.damaged("no row"))?;
        self.hand_on(first, out)?;
        for range in self.wanted.rows(columns.elements(), columns.times()) {
            out.append(&columns, range)?;
        }
        self.last = Some(last);
        Ok(())
    }

    /// Hands on the pending row before a row, and checks the order of rows.
    fn hand_on(&mut self, next: RowKey, out: &mut Columns) -> Result<()> {
        if let Some((key, values)) = self.pending.take() {
            out.push(key, values.iter().map(|(field, value)| (*field, value.borrow())))?;
            self.last = Some(key);
        }
        if self.last.is_some_and(|last| last >= next) {
            return Err(corrupt(&self.name, 0, "rows are out of order"));
        }
        Ok(())
    }

    /// Adds a record, with its values, to the pending row, which it may begin.
    fn add_record(
        &mut self,
        key: RowKey,
        found: &mut Vec<(FieldNumber, FieldValue)>,
        out: &mut Columns,
    ) -> Result<()> {
        if self.pending.as_ref().is_none_or(|(of, _)| *of != key) {
            self.hand_on(key, out)?;
            self.pending = Some((key, Vec::new()));
        }
        let Some((_, known)) = &mut self.pending else { return Ok(()) };
        for (field, value) in found.drain(..) {
            if let Err(at) = known.binary_search_by_key(&field, |(of, _)| *of) {
                known.insert(at, (field, value));
            }
        }
        Ok(())
    }

    fn quality(&self, names: &Names, measurement: u32) -> Result<Option<FieldNumber>> {
        let name = names.measurements().get(measurement as usize).map(|name| &**name).unwrap_or_default();
        let Some(field) = self.quality_names.get(name) else { return Ok(None) };
        let number = names.field(measurement, field);
        number.map(Some).ok_or_else(|| self.damaged("a field of quality that the group does not have"))
    }

    fn field(&mut self, names: &Names, measurement: u32, name: &str) -> Result<FieldOf> {
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

fn field_of(names: &Names, measurement: u32, name: &str) -> Option<FieldOf> {
    let number = names.field(measurement, name)?;
    Some((number, names.fields().get(number as usize)?.kind))
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
                        out.push(key, values.iter().map(|(field, value)| (*field, value.borrow())))?;
                    }
                }
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }
}
