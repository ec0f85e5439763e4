//! An open chunk of a run: reads and decodes its pages.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use exacat_disk::{DiskFile, corrupt};
use exacat_model::codec::Reader;
use exacat_model::{Error, FieldType};
use pco::data_types::Number;

use super::checked;
use super::chunk::{
    ChunkHead, ELEMENT_NUMBERS, ELEMENT_ROWS, FIRST_FIELD, FilePlace, Packing, SHAPES, TIMES,
};
use super::index::{ChunkEntry, PageEntry, read_exactly};
use super::numbers::Unpacker;
use super::texts::Block;
use super::wanted::Fields;
use crate::columns::{Column, Columns, ElementRows, Texts, Values};

/// Bytes that a reader fetches at once of a column whose next pages it needs too. Small, because a range
/// of years has a reader for each day.
const READ_BYTES: u64 = 64 << 10;

/// A run's file, as its chunks are read from it.
pub(super) struct Source<'r> {
    pub name: &'r str,
    pub file: &'r dyn DiskFile,
    pub salt: u64,
}

/// A page's elements, and the times of all its rows or of the first ones.
pub(super) struct Keys {
    pub elements: Vec<ElementRows>,
    pub times: Vec<i64>,
}

/// Tables of packed columns, by column, made when a page is first decoded.
#[derive(Default)]
struct Tables {
    words: HashMap<usize, Unpacker<u32>>,
    integers: HashMap<usize, Unpacker<i64>>,
    unsigned: HashMap<usize, Unpacker<u64>>,
    floats: HashMap<usize, Unpacker<f64>>,
}

/// Number of a page's values, and of those that are wanted from its start.
type Counts = (usize, usize);

/// Values as columns have them.
trait Stored: Copy {
    fn from_word(word: u64) -> Option<Self>;

    /// Decodes a page of a column that pco packed with this table; none if it is damaged.
    fn unpack(tables: &mut Tables, at: (usize, &[u8]), page: &[u8], counts: Counts) -> Option<Vec<Self>>;
}

impl Stored for u32 {
    fn from_word(word: u64) -> Option<Self> {
        u32::try_from(word).ok()
    }
    fn unpack(tables: &mut Tables, at: (usize, &[u8]), page: &[u8], counts: Counts) -> Option<Vec<Self>> {
        unpack(&mut tables.words, at, page, counts)
    }
}

impl Stored for i64 {
    fn from_word(word: u64) -> Option<Self> {
        Some(word as i64)
    }
    fn unpack(tables: &mut Tables, at: (usize, &[u8]), page: &[u8], counts: Counts) -> Option<Vec<Self>> {
        unpack(&mut tables.integers, at, page, counts)
    }
}

impl Stored for u64 {
    fn from_word(word: u64) -> Option<Self> {
        Some(word)
    }
    fn unpack(tables: &mut Tables, at: (usize, &[u8]), page: &[u8], counts: Counts) -> Option<Vec<Self>> {
        unpack(&mut tables.unsigned, at, page, counts)
    }
}

impl Stored for f64 {
    fn from_word(word: u64) -> Option<Self> {
        Some(f64::from_bits(word))
    }
    fn unpack(tables: &mut Tables, at: (usize, &[u8]), page: &[u8], counts: Counts) -> Option<Vec<Self>> {
        unpack(&mut tables.floats, at, page, counts)
    }
}

impl Stored for bool {
    fn from_word(word: u64) -> Option<Self> {
        (word <= 1).then_some(word == 1)
    }
    fn unpack(_: &mut Tables, _: (usize, &[u8]), _: &[u8], _: Counts) -> Option<Vec<Self>> {
        None
    }
}

fn unpack<T: Number>(
    tables: &mut HashMap<usize, Unpacker<T>>,
    (column, table): (usize, &[u8]),
    page: &[u8],
    (count, wanted): Counts,
) -> Option<Vec<T>> {
    let unpacker = match tables.entry(column) {
        Entry::Occupied(made) => made.into_mut(),
        Entry::Vacant(free) => free.insert(Unpacker::new(table)?),
    };
    unpacker.page(page, count, wanted)
}

/// Decodes a page of steps.
fn stepped<T: Stored>(page: &[u8], (count, wanted): Counts) -> Option<Vec<T>> {
    let mut reader = Reader::new(page);
    let (mut values, mut known) = (Vec::with_capacity(wanted), 0);
    while known < count {
        let length = usize::try_from(reader.varint().ok()?).ok()?;
        let word = u64::from_le_bytes(*reader.take(8).ok()?.first_chunk()?);
        if length == 0 || length > count - known {
            return None;
        }
        known += length;
        values.resize(known.min(wanted), T::from_word(word)?);
    }
    reader.is_empty().then_some(values)
}

/// Decodes a page of 64 bits for each value.
fn from_words<T: Stored>(page: &[u8], (count, wanted): Counts) -> Option<Vec<T>> {
    let (words, rest) = page.as_chunks::<8>();
    let fits = words.len() == count && rest.is_empty();
    words[..wanted.min(words.len())]
        .iter()
        .map(|word| T::from_word(u64::from_le_bytes(*word)))
        .collect::<Option<_>>()
        .filter(|_| fits)
}

/// Decodes a page of bits.
fn from_bits<T: Stored>(page: &[u8], (count, wanted): Counts) -> Option<Vec<T>> {
    if page.len() != count.div_ceil(8) {
        return None;
    }
    (0..wanted).map(|at| T::from_word(u64::from(page[at / 8] >> (at % 8) & 1))).collect()
}

/// An open chunk.
pub(super) struct OpenChunk {
    pub entry: ChunkEntry,
    head: ChunkHead,
    tables: Tables,
    /// Bytes read of each column: their offset, and the bytes.
    buffers: HashMap<usize, (u64, Vec<u8>)>,
    /// Blocks of texts by column and number.
    blocks: HashMap<(usize, usize), Block>,
    /// Pages that the reader needs, ascending.
    needed: Vec<usize>,
}

impl OpenChunk {
    /// Reads the head of a chunk, of which the reader needs these pages.
    pub(super) fn open(source: &Source<'_>, entry: ChunkEntry, needed: Vec<usize>) -> Result<Self, Error> {
        let bytes = read_exactly(source.name, source.file, entry.at, entry.head_bytes as usize)?;
        let damaged = |what: &dyn std::fmt::Display| corrupt(source.name, entry.at, what);
        let content = checked(source.salt, entry.at, &bytes);
        let content = content.ok_or_else(|| damaged(&"the head of a chunk fails its checksum"))?;
        let head = ChunkHead::decode(content, &entry).map_err(|error| damaged(&error))?;
        let (tables, buffers, blocks) = (Tables::default(), HashMap::new(), HashMap::new());
        Ok(OpenChunk { entry, head, tables, buffers, blocks, needed })
    }

    fn damaged(&self, source: &Source<'_>, column: usize, page: usize) -> Error {
        let part = match column {
            ELEMENT_NUMBERS | ELEMENT_ROWS => "of elements".to_owned(),
            TIMES => "of times".to_owned(),
            SHAPES => "of shapes".to_owned(),
            field => match self.head.fields.get(field - FIRST_FIELD) {
                Some(field) => format!("of field {}", field.number),
                None => "of an unknown field".to_owned(),
            },
        };
        let at = self.head.columns[column].pages.get(page).map_or(self.entry.at, |place| place.at);
        corrupt(source.name, at, format!("a page {part} is damaged"))
    }

    /// Returns the content of a part, checked (none if it is damaged), and the head.
    fn part(
        &mut self,
        source: &Source<'_>,
        column: usize,
        place: FilePlace,
        read_to: u64,
    ) -> Result<(Option<&[u8]>, &ChunkHead), Error> {
        let end = place.at + u64::from(place.bytes);
        let buffer = self.buffers.entry(column).or_default();
        if place.at < buffer.0 || end > buffer.0 + buffer.1.len() as u64 {
            let bytes = (read_to.max(end) - place.at) as usize;
            *buffer = (place.at, read_exactly(source.name, source.file, place.at, bytes)?);
        }
        let start = (place.at - buffer.0) as usize;
        let part = checked(source.salt, place.at, &buffer.1[start..start + place.bytes as usize]);
        Ok((part, &self.head))
    }

    /// Returns the end of the pages of a column that are needed from `page` on without a gap.
    fn needed_to(&self, column: usize, page: usize) -> u64 {
        let pages = &self.head.columns[column].pages;
        let end = |page: usize| pages[page].at + u64::from(pages[page].bytes);
        let from = self.needed.partition_point(|needed| *needed < page);
        let adjacent = self.needed[from..].iter().zip(page..).take_while(|(needed, page)| *needed == page);
        let within =
            adjacent.map(|(page, _)| end(*page)).take_while(|end| *end <= pages[page].at + READ_BYTES);
        within.last().unwrap_or_else(|| end(page))
    }

    /// Decodes the first `wanted` of the `count` values that a page of a column has.
    fn numbers<T: Stored>(
        &mut self,
        source: &Source<'_>,
        column: usize,
        page: usize,
        counts: Counts,
    ) -> Result<Vec<T>, Error> {
        if counts.0 == 0 {
            return Ok(Vec::new());
        }
        let head = &self.head.columns[column];
        if let Packing::Constant(word) = head.packing {
            let value = T::from_word(word).ok_or_else(|| self.damaged(source, column, page))?;
            return Ok(vec![value; counts.1]);
        }
        let (place, read_to) = (head.pages[page], self.needed_to(column, page));
        let mut tables = std::mem::take(&mut self.tables);
        let read = self.part(source, column, place, read_to);
        let values = read.map(|(part, head)| match &head.columns[column].packing {
            Packing::Pco(table) => T::unpack(&mut tables, (column, table), part?, counts),
            Packing::Steps => stepped(part?, counts),
            Packing::Words => from_words(part?, counts),
            Packing::Bits => from_bits(part?, counts),
            Packing::Constant(_) => None,
        });
        self.tables = tables;
        values?.ok_or_else(|| self.damaged(source, column, page))
    }

    /// Decodes the elements and times of a page, and checks them against the index.
    pub(super) fn keys(
        &mut self,
        source: &Source<'_>,
        page: usize,
        index: &PageEntry,
    ) -> Result<Keys, Error> {
        let elements = self.elements(source, page, index)?;
        let times = self.times(source, (page, index), &elements, self.entry.page_rows(page))?;
        Ok(Keys { elements, times })
    }

    /// Decodes the elements of a page, and checks them against the index.
    pub(super) fn elements(
        &mut self,
        source: &Source<'_>,
        page: usize,
        index: &PageEntry,
    ) -> Result<Vec<ElementRows>, Error> {
        let count = self.head.elements[page] as usize;
        let numbers = self.numbers::<u32>(source, ELEMENT_NUMBERS, page, (count, count))?;
        let counts = self.numbers::<u32>(source, ELEMENT_ROWS, page, (count, count))?;
        let mut elements: Vec<ElementRows> = Vec::with_capacity(count);
        let mut end = 0u32;
        for (element, count) in numbers.into_iter().zip(counts) {
            let ascends = elements.last().is_none_or(|last| last.element < element);
            let next = end.checked_add(count).filter(|next| ascends && *next > end);
            end = next.ok_or_else(|| self.damaged(source, ELEMENT_NUMBERS, page))?;
            elements.push(ElementRows { element, end });
        }
        if end as usize != self.entry.page_rows(page) {
            return Err(self.damaged(source, ELEMENT_ROWS, page));
        }
        let ends = elements.first().zip(elements.last()).map(|(first, last)| (first.element, last.element));
        if ends != Some((index.first.0, index.last.0)) {
            return Err(self.damaged(source, ELEMENT_NUMBERS, page));
        }
        Ok(elements)
    }

    /// Decodes the times of the first `wanted` rows of a page of these elements, and checks them.
    pub(super) fn times(
        &mut self,
        source: &Source<'_>,
        (page, index): (usize, &PageEntry),
        elements: &[ElementRows],
        wanted: usize,
    ) -> Result<Vec<i64>, Error> {
        let rows = self.entry.page_rows(page);
        let mut times = self.numbers::<i64>(source, TIMES, page, (rows, wanted))?;
        let factor = 10i64.pow(u32::from(self.head.ten));
        let mut overflows = false;
        if factor != 1 {
            for time in &mut times {
                let (product, beyond) = time.overflowing_mul(factor);
                (*time, overflows) = (product, overflows | beyond);
            }
        }
        let mut start = 0;
        let ascend = elements.iter().take_while(|element| element.end as usize <= wanted).all(|element| {
            let of = &times[start..element.end as usize];
            start = element.end as usize;
            of.is_sorted_by(|one, other| one < other)
        });
        let first = times.first().is_none_or(|first| *first == index.first.1);
        let last = wanted < rows || times.last() == Some(&index.last.1);
        if overflows || !ascend || !first || !last {
            return Err(self.damaged(source, TIMES, page));
        }
        Ok(times)
    }

    /// Returns some rows of a page with the wanted fields. `wanted` are ascending ranges of rows.
    pub(super) fn columns(
        &mut self,
        source: &Source<'_>,
        page: usize,
        keys: Keys,
        wanted: &[Range<usize>],
        fields: &Fields,
    ) -> Result<Columns, Error> {
        let rows = self.entry.page_rows(page);
        let mut columns = Vec::new();
        for (at, of) in self.rows_with(source, page, fields)? {
            let (listed, places) = chosen(of.as_deref(), wanted);
            let count = of.as_ref().map_or(rows, Vec::len);
            let last = places.last().map_or(0, |last| last.end);
            if last == 0 {
                continue;
            }
            let values = self.values(source, FIRST_FIELD + at, page, (count, last), &places)?;
            columns.push(Column { field: self.head.fields[at].number, rows: listed, values });
        }
        let [range] = wanted else {
            return Ok(select(keys, wanted, columns));
        };
        if *range == (0..rows) {
            return Ok(Columns::from_parts(keys.elements, keys.times, columns));
        }
        Ok(select(keys, wanted, columns))
    }

    /// Returns the wanted fields that a row of the page has, by their places in the head, with these rows
    /// (none: all). The work is that for the values of the page, however many fields the chunk has.
    fn rows_with(
        &mut self,
        source: &Source<'_>,
        page: usize,
        fields: &Fields,
    ) -> Result<BTreeMap<usize, Option<Vec<u32>>>, Error> {
        let rows = self.entry.page_rows(page);
        let mut of_shape: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        if self.head.shapes.len() == 1 {
            of_shape.insert(0, Vec::new());
        } else {
            let shape_of = self.numbers::<u32>(source, SHAPES, page, (rows, rows))?;
            for (shape, row) in shape_of.into_iter().zip(0u32..) {
                of_shape.entry(shape).or_default().push(row);
            }
        }
        let is_one = of_shape.len() == 1;
        let mut found: BTreeMap<usize, Option<Vec<u32>>> = BTreeMap::new();
        for (shape, of) in of_shape {
            let shape = self.head.shapes.get(shape as usize);
            for field in shape.ok_or_else(|| self.damaged(source, SHAPES, page))? {
                let field = *field as usize;
                if !fields.has(self.head.fields[field].number) {
                    continue;
                }
                match is_one {
                    true => _ = found.insert(field, None),
                    false => found.entry(field).or_default().get_or_insert_default().extend(&of),
                }
            }
        }
        for of in found.values_mut() {
            if let Some(listed) = of {
                match listed.len() == rows {
                    true => *of = None,
                    false => listed.sort_unstable(),
                }
            }
        }
        Ok(found)
    }

    /// Decodes the values at some places of a page, `last` of whose `count` values are decoded.
    fn values(
        &mut self,
        source: &Source<'_>,
        column: usize,
        page: usize,
        counts: Counts,
        places: &[Range<usize>],
    ) -> Result<Values, Error> {
        Ok(match self.head.fields[column - FIRST_FIELD].kind {
            FieldType::Float => Values::Float(picked(self.numbers(source, column, page, counts)?, places)),
            FieldType::Integer => {
                Values::Integer(picked(self.numbers(source, column, page, counts)?, places))
            }
            FieldType::Unsigned => {
                Values::Unsigned(picked(self.numbers(source, column, page, counts)?, places))
            }
            FieldType::Boolean => {
                Values::Boolean(picked(self.numbers(source, column, page, counts)?, places))
            }
            FieldType::Text => {
                let indices = picked(self.numbers(source, column, page, counts)?, places);
                Values::Text(self.texts(source, column, page, indices)?)
            }
        })
    }

    /// Reads the texts of these numbers.
    fn texts(
        &mut self,
        source: &Source<'_>,
        column: usize,
        page: usize,
        mut indices: Vec<u32>,
    ) -> Result<Texts, Error> {
        let mut used = indices.clone();
        used.sort_unstable();
        used.dedup();
        let (mut distinct, mut ends) = (String::new(), Vec::with_capacity(used.len()));
        let (mut block, mut first) = (0, 0u64);
        let blocks = self.head.columns[column].blocks.clone();
        for index in &used {
            while blocks.get(block).is_some_and(|head| first + u64::from(head.texts) <= u64::from(*index)) {
                first += u64::from(blocks[block].texts);
                block += 1;
            }
            let Some(head) = blocks.get(block) else { return Err(self.damaged(source, column, page)) };
            if !self.blocks.contains_key(&(column, block)) {
                let read_to = head.place.at + u64::from(head.place.bytes);
                // Blocks are between the pages of their column and those of the next.
                let (content, _) = self.part(source, usize::MAX, head.place, read_to)?;
                let unpacked = content.and_then(|content| Block::unpack(content, head.texts, head.raw));
                let Some(unpacked) = unpacked else {
                    return Err(corrupt(source.name, head.place.at, "a block of texts is damaged"));
                };
                self.blocks.insert((column, block), unpacked);
            }
            let text = self.blocks.get(&(column, block));
            let text = text.and_then(|block| block.get((u64::from(*index) - first) as usize));
            let Some(text) = text else { return Err(self.damaged(source, column, page)) };
            distinct.push_str(text);
            ends.push(distinct.len() as u32);
        }
        for index in &mut indices {
            *index = used.partition_point(|used| used < index) as u32;
        }
        let texts = Texts::from_parts(distinct, ends, indices);
        texts.ok_or_else(|| self.damaged(source, column, page))
    }
}

/// Returns the chosen rows among those that have a value, numbered as they are chosen (none: all chosen
/// rows have one), and the places of their values.
fn chosen(of: Option<&[u32]>, wanted: &[Range<usize>]) -> (Option<Vec<u32>>, Vec<Range<usize>>) {
    let Some(of) = of else { return (None, wanted.to_vec()) };
    let (mut listed, mut places, mut before) = (Vec::new(), Vec::new(), 0);
    for range in wanted {
        let start = of.partition_point(|row| (*row as usize) < range.start);
        let end = start + of[start..].partition_point(|row| (*row as usize) < range.end);
        listed.extend(of[start..end].iter().map(|row| (*row as usize - range.start + before) as u32));
        places.push(start..end);
        before += range.len();
    }
    places.retain(|places| !places.is_empty());
    ((listed.len() < before).then_some(listed), places)
}

/// Keeps the values at some ascending places.
fn picked<T: Copy>(mut values: Vec<T>, places: &[Range<usize>]) -> Vec<T> {
    let mut kept = 0;
    for range in places {
        if kept != range.start {
            values.copy_within(range.clone(), kept);
        }
        kept += range.len();
    }
    values.truncate(kept);
    values
}

/// Keeps some rows of a page.
fn select(keys: Keys, wanted: &[Range<usize>], columns: Vec<Column>) -> Columns {
    let mut elements: Vec<ElementRows> = Vec::new();
    let mut before = 0;
    for range in wanted {
        let first = keys.elements.partition_point(|element| element.end as usize <= range.start);
        for element in &keys.elements[first..] {
            let end = (element.end as usize).min(range.end);
            let kept = (end - range.start + before) as u32;
            match elements.last_mut() {
                Some(last) if last.element == element.element => last.end = kept,
                _ => elements.push(ElementRows { element: element.element, end: kept }),
            }
            if end == range.end {
                break;
            }
        }
        before += range.len();
    }
    Columns::from_parts(elements, picked(keys.times, wanted), columns)
}
