//! Packs rows into the bytes of a chunk.

use std::collections::HashMap;

use exacat_model::codec::put_varint;
use exacat_model::{Error, ErrorKind};

use super::chunk::{BlockHead, ChunkHead, ColumnHead, FIRST_FIELD, FilePlace, Packing, SUM_BYTES, TEN_MAX};
use super::index::{ChunkEntry, PageEntry};
use super::numbers::{self, Way};
use super::{PAGE_ROWS, checksum, texts};
use crate::columns::{Column, Columns, Values};
use crate::row::Field;

/// Values that one change of a column stands for, on average, where it is stored as steps: then steps
/// are smaller than what pco makes of them, and cost next to nothing.
const STEP_ROWS_MIN: usize = 64;

/// A packed chunk.
pub(super) struct PackedChunk {
    pub bytes: Vec<u8>,
    pub entry: ChunkEntry,
    pub pages: Vec<PageEntry>,
}

/// Column in preparation: its head without places, its pages, and its blocks of texts.
struct Prepared {
    packing: Packing,
    /// One for each page of the chunk; none where it has no value. None at all for a constant.
    pages: Vec<Option<Vec<u8>>>,
    blocks: Vec<texts::PackedBlock>,
}

/// Packs rows into a chunk of the run with this salt, whose first byte is at `at`. The level is that of
/// pco; without one, numbers are stored as they are.
pub(super) fn pack(
    rows: &Columns,
    salt: u64,
    at: u64,
    first_page: usize,
    level: Option<usize>,
) -> Result<PackedChunk, Error> {
    let prepared = prepare(rows, level).ok_or_else(|| {
        Error::new(ErrorKind::Internal, "internal error: a column of a history cannot be packed")
    })?;
    let (mut head, columns) = prepared;
    for column in &columns {
        let pages = column.pages.iter().map(|page| place(page.as_deref())).collect();
        let blocks = column.blocks.iter();
        let blocks = blocks.map(|block| BlockHead {
            texts: block.texts,
            raw: block.raw,
            place: place(Some(&block.bytes)),
        });
        head.columns.push(ColumnHead { packing: column.packing.clone(), pages, blocks: blocks.collect() });
    }
    let mut bytes = Vec::new();
    let mut put = |part: &[u8]| {
        let sum = checksum(salt, at + bytes.len() as u64, part);
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.len()
    };
    let head_bytes = put(&head.encode());
    for column in &columns {
        for page in column.pages.iter().flatten() {
            put(page);
        }
        for block in &column.blocks {
            put(&block.bytes);
        }
    }
    let pages =
        pages_of(rows).map(|page| PageEntry { first: rows.key(page.start), last: rows.key(page.end - 1) });
    let pages = pages.collect();
    let entry = ChunkEntry {
        at,
        bytes: bytes.len() as u32,
        head_bytes: head_bytes as u32,
        rows: rows.rows() as u32,
        first_page: first_page as u32,
    };
    Ok(PackedChunk { bytes, entry, pages })
}

/// Returns the stored length of a part; its offset follows from the parts before it.
fn place(part: Option<&[u8]>) -> FilePlace {
    FilePlace { at: 0, bytes: part.map_or(0, |part| part.len() + SUM_BYTES) as u32 }
}

/// Returns the rows of each page.
fn pages_of(rows: &Columns) -> impl Iterator<Item = std::ops::Range<usize>> + Clone {
    let count = rows.rows();
    (0..count).step_by(PAGE_ROWS).map(move |start| start..(start + PAGE_ROWS).min(count))
}

fn prepare(rows: &Columns, level: Option<usize>) -> Option<(ChunkHead, Vec<Prepared>)> {
    let (numbers, counts, elements) = elements_of(rows);
    let (ten, times) = divided(rows.times());
    let per_page: Vec<usize> = pages_of(rows).map(|page| page.len()).collect();
    let elements_per_page: Vec<usize> = elements.iter().map(|count| *count as usize).collect();
    let (shapes, shape_of) = shapes_of(rows);
    let mut columns = Vec::with_capacity(FIRST_FIELD + rows.columns().len());
    columns.push(packed(&numbers, &elements_per_page, Way::Differences, level)?);
    columns.push(packed(&counts, &elements_per_page, Way::Plain, level)?);
    columns.push(packed(&times, &per_page, Way::Differences, level)?);
    columns.push(packed(&shape_of, &per_page, Way::Plain, level)?);
    for column in rows.columns() {
        columns.push(field(rows, column, level)?);
    }
    let fields = rows.columns().iter();
    let fields = fields.map(|column| Field { number: column.field, kind: column.values.kind() }).collect();
    Some((ChunkHead { ten, elements, fields, shapes, columns: Vec::new() }, columns))
}

/// Returns the elements of each page, with the rows that they have there, and their number in each page.
fn elements_of(rows: &Columns) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let (mut numbers, mut counts, mut per_page) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    for page in pages_of(rows) {
        let (before, mut row) = (numbers.len(), page.start);
        while row < page.end {
            let element = rows.elements()[at];
            let end = (element.end as usize).min(page.end);
            numbers.push(element.element);
            counts.push((end - row) as u32);
            row = end;
            at += usize::from(end == element.end as usize);
        }
        per_page.push((numbers.len() - before) as u32);
    }
    (numbers, counts, per_page)
}

/// Divides times by the largest power of ten that divides all of them.
fn divided(times: &[i64]) -> (u8, Vec<i64>) {
    let (mut ten, mut at) = (TEN_MAX, 0);
    let mut quotients = Vec::new();
    while let Some(time) = times.get(at) {
        while time % 10i64.pow(u32::from(ten)) != 0 {
            ten -= 1;
        }
        // Most clocks are in seconds, milliseconds or microseconds, and a constant divides faster.
        let divided = match ten {
            9 => divided_by::<1_000_000_000>(times, &mut quotients),
            6 => divided_by::<1_000_000>(times, &mut quotients),
            3 => divided_by::<1_000>(times, &mut quotients),
            _ => divide(times, 10i64.pow(u32::from(ten)), &mut quotients),
        };
        match divided {
            Ok(()) => break,
            Err(indivisible) => at = indivisible,
        }
    }
    (ten, quotients)
}

fn divided_by<const DIVISOR: i64>(times: &[i64], quotients: &mut Vec<i64>) -> Result<(), usize> {
    divide(times, DIVISOR, quotients)
}

/// Divides times; fails with the first one that cannot be divided.
#[inline(always)]
fn divide(times: &[i64], divisor: i64, quotients: &mut Vec<i64>) -> Result<(), usize> {
    quotients.clear();
    quotients.extend(times.iter().map(|time| time / divisor));
    let exact = times.iter().zip(&*quotients).position(|(time, quotient)| quotient * divisor != *time);
    exact.map_or(Ok(()), Err)
}

/// Returns the shapes of a chunk in the order of their first rows, and the shape of each row.
fn shapes_of(rows: &Columns) -> (Vec<Vec<u32>>, Vec<u32>) {
    // Rows are split by one column after the other: those of one shape that have a value get a new one.
    let (mut shape_of, mut next) = (vec![0u32; rows.rows()], 1u32);
    for of in rows.columns().iter().filter_map(|column| column.rows.as_ref()) {
        let mut moved = HashMap::new();
        for row in of {
            let shape = &mut shape_of[*row as usize];
            *shape = *moved.entry(*shape).or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
    }
    let (mut numbers, mut first_rows) = (vec![u32::MAX; next as usize], Vec::new());
    for (row, shape) in (0u32..).zip(&mut shape_of) {
        let number = &mut numbers[*shape as usize];
        if *number == u32::MAX {
            *number = first_rows.len() as u32;
            first_rows.push(row);
        }
        *shape = *number;
    }
    let mut shapes = vec![Vec::new(); first_rows.len()];
    for (column, place) in rows.columns().iter().zip(0u32..) {
        match &column.rows {
            None => shapes.iter_mut().for_each(|shape| shape.push(place)),
            Some(of) => {
                for row in of {
                    let shape = shape_of[*row as usize] as usize;
                    if first_rows[shape] == *row {
                        shapes[shape].push(place);
                    }
                }
            }
        }
    }
    (shapes, shape_of)
}

/// Numbers that columns are made of.
trait Word: pco::data_types::Number {
    fn word(self) -> u64;
}

impl Word for u32 {
    fn word(self) -> u64 {
        u64::from(self)
    }
}

impl Word for u64 {
    fn word(self) -> u64 {
        self
    }
}

impl Word for i64 {
    fn word(self) -> u64 {
        self as u64
    }
}

impl Word for f64 {
    fn word(self) -> u64 {
        self.to_bits()
    }
}

/// Packs a column of numbers in the way that suits it.
fn packed<T: Word>(values: &[T], per_page: &[usize], way: Way, level: Option<usize>) -> Option<Prepared> {
    let words = values.iter().map(|value| value.word());
    if let Some(prepared) = rarely_changing(words.clone(), per_page) {
        return Some(prepared);
    }
    let Some(level) = level else { return Some(as_words(words, per_page)) };
    let packed = numbers::pack(values, per_page, way, level)?;
    let mut with_values = packed.pages.into_iter();
    let page = |count: &usize| if *count > 0 { with_values.next() } else { None };
    let pages = per_page.iter().map(page).collect();
    Some(Prepared { packing: Packing::Pco(packed.table), pages, blocks: Vec::new() })
}

/// Packs a column of one value, or of values that stay the same for long, as qualities do; none if it
/// is another column.
fn rarely_changing(words: impl Iterator<Item = u64> + Clone, per_page: &[usize]) -> Option<Prepared> {
    let first = words.clone().next()?;
    let changes = words.clone().skip(1).zip(words.clone()).filter(|(next, word)| next != word).count();
    if changes == 0 {
        return Some(Prepared { packing: Packing::Constant(first), pages: Vec::new(), blocks: Vec::new() });
    }
    if changes * STEP_ROWS_MIN > per_page.iter().sum() {
        return None;
    }
    let pages = paged(words, per_page, |words, out| {
        let (mut last, mut length) = (None, 0);
        let mut put = |last: Option<u64>, length: u64| {
            if let Some(word) = last {
                put_varint(out, length);
                out.extend_from_slice(&word.to_le_bytes());
            }
        };
        for word in words {
            if last != Some(word) {
                put(last, length);
                (last, length) = (Some(word), 0);
            }
            length += 1;
        }
        put(last, length);
    });
    Some(Prepared { packing: Packing::Steps, pages, blocks: Vec::new() })
}

fn as_words(words: impl Iterator<Item = u64>, per_page: &[usize]) -> Prepared {
    let pages = paged(words, per_page, |words, out| {
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    });
    Prepared { packing: Packing::Words, pages, blocks: Vec::new() }
}

/// Makes the pages that have a value.
fn paged<I: Iterator<Item = u64>>(
    mut words: I,
    per_page: &[usize],
    encode: impl Fn(&mut dyn Iterator<Item = u64>, &mut Vec<u8>),
) -> Vec<Option<Vec<u8>>> {
    let mut page = |count: &usize| {
        let mut out = Vec::new();
        encode(&mut words.by_ref().take(*count), &mut out);
        (*count > 0).then_some(out)
    };
    per_page.iter().map(&mut page).collect()
}

fn field(rows: &Columns, column: &Column, level: Option<usize>) -> Option<Prepared> {
    let per_page: Vec<usize> = pages_of(rows).map(|page| column.places(&page).len()).collect();
    match &column.values {
        Values::Float(values) => packed(values, &per_page, Way::Any, level),
        Values::Integer(values) => packed(values, &per_page, Way::Any, level),
        Values::Unsigned(values) => packed(values, &per_page, Way::Any, level),
        Values::Boolean(values) => Some(bits(values, &per_page)),
        Values::Text(texts) => {
            // Numbers of texts in the order of their first use here, whatever their order so far.
            let (mut order, mut numbers) = (Vec::new(), vec![u32::MAX; texts.distinct()]);
            let mut renumbered = Vec::with_capacity(texts.indices().len());
            for index in texts.indices() {
                let number = &mut numbers[*index as usize];
                if *number == u32::MAX {
                    *number = order.len() as u32;
                    order.push(*index);
                }
                renumbered.push(*number);
            }
            let blocks = texts::pack(order.iter().map(|index| texts.distinct_text(*index)))?;
            let prepared = packed(&renumbered, &per_page, Way::Any, level)?;
            Some(Prepared { blocks, ..prepared })
        }
    }
}

fn bits(values: &[bool], per_page: &[usize]) -> Prepared {
    let words = values.iter().map(|value| u64::from(*value));
    if let Some(prepared) = rarely_changing(words.clone(), per_page) {
        return prepared;
    }
    let pages = paged(words, per_page, |words, out| {
        for (at, bit) in words.enumerate() {
            if at % 8 == 0 {
                out.push(0);
            }
            if let Some(byte) = out.last_mut() {
                *byte |= (bit as u8) << (at % 8);
            }
        }
    });
    Prepared { packing: Packing::Bits, pages, blocks: Vec::new() }
}
