//! Head of a chunk: its fields and shapes, and for each column the way it is packed and its pages.
//!
//! Varints are LEB128. The columns are in this order: element numbers, rows of each element, times,
//! shape of each row, then the fields in ascending order.

use exacat_model::FieldType;
use exacat_model::codec::{DecodeError, Reader, put_bytes, put_varint};

use super::index::ChunkEntry;
use crate::row::Field;

/// Columns before those of the fields.
pub(super) const ELEMENT_NUMBERS: usize = 0;
pub(super) const ELEMENT_ROWS: usize = 1;
pub(super) const TIMES: usize = 2;
pub(super) const SHAPES: usize = 3;
pub(super) const FIRST_FIELD: usize = 4;

/// Bytes of the checksum behind each page and block.
pub(super) const SUM_BYTES: usize = 4;
/// Largest power of ten that fits into a time.
pub(super) const TEN_MAX: u8 = 18;

/// Way a column is packed; the number is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// 0: one value for all, as 64 bits; no pages.
    Constant(u64),
    /// 1: pages of pco, which share this table.
    Pco(Vec<u8>),
    /// 2: pages of bits, the first value in the lowest bit.
    Bits,
    /// 3: pages of steps: a number of equal values, a varint, and the value as 64 bits.
    Steps,
    /// 4: pages of 64 bits for each value.
    Words,
}

/// Part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePlace {
    pub at: u64,
    pub bytes: u32,
}

/// Block of distinct texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHead {
    /// Number of texts.
    pub texts: u32,
    /// Bytes before they are packed.
    pub raw: u32,
    /// Packed bytes, with the checksum.
    pub place: FilePlace,
}

/// A column of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ColumnHead {
    pub packing: Packing,
    /// Pages with their checksums, one for each page of the chunk. A page without a value has no bytes.
    pub pages: Vec<FilePlace>,
    /// Blocks of the distinct texts; a column of texts has their numbers.
    pub blocks: Vec<BlockHead>,
}

/// Head of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkHead {
    /// Times are multiples of ten to this power, and are stored divided by it.
    pub ten: u8,
    /// Number of elements in each page.
    pub elements: Vec<u32>,
    pub fields: Vec<Field>,
    /// Places of its fields in `fields`, for each shape.
    pub shapes: Vec<Vec<u32>>,
    pub columns: Vec<ColumnHead>,
}

impl ChunkHead {
    /// Encodes the head without its checksum. Offsets are not stored: pages and blocks follow each
    /// other.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.ten];
        for count in &self.elements {
            put_varint(&mut out, u64::from(*count));
        }
        put_varint(&mut out, self.fields.len() as u64);
        let mut last = 0;
        for field in &self.fields {
            put_varint(&mut out, u64::from(field.number - last));
            out.push(field.kind.number());
            last = field.number;
        }
        put_varint(&mut out, self.shapes.len() as u64);
        for shape in &self.shapes {
            put_varint(&mut out, shape.len() as u64);
            let mut last = 0;
            for field in shape {
                put_varint(&mut out, u64::from(*field - last));
                last = *field;
            }
        }
        for (number, column) in self.columns.iter().enumerate() {
            match &column.packing {
                Packing::Constant(value) => {
                    out.push(0);
                    out.extend_from_slice(&value.to_le_bytes());
                }
                Packing::Pco(table) => {
                    out.push(1);
                    put_bytes(&mut out, table);
                }
                Packing::Bits => out.push(2),
                Packing::Steps => out.push(3),
                Packing::Words => out.push(4),
            }
            for page in &column.pages {
                put_varint(&mut out, u64::from(page.bytes));
            }
            if self.is_text(number) {
                put_varint(&mut out, column.blocks.len() as u64);
                for block in &column.blocks {
                    for word in [block.texts, block.raw, block.place.bytes] {
                        put_varint(&mut out, u64::from(word));
                    }
                }
            }
        }
        out
    }

    fn is_text(&self, column: usize) -> bool {
        let field = column.checked_sub(FIRST_FIELD).and_then(|field| self.fields.get(field));
        field.is_some_and(|field| field.kind == FieldType::Text)
    }

    /// Decodes the head of a chunk from its bytes without the checksum.
    pub(super) fn decode(bytes: &[u8], chunk: &ChunkEntry) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(bytes);
        let ten = reader.byte()?;
        if ten > TEN_MAX {
            return Err(reader.error("a power of ten beyond the times"));
        }
        let pages = chunk.pages();
        let mut elements = Vec::with_capacity(pages);
        for page in 0..pages {
            let count = word(reader)?;
            if count == 0 || count as usize > chunk.page_rows(page) {
                return Err(reader.error("a page with more elements than rows"));
            }
            elements.push(count);
        }
        let fields = read_fields(reader)?;
        let shapes = read_shapes(reader, fields.len())?;
        let mut head = ChunkHead { ten, elements, fields, shapes, columns: Vec::new() };
        let mut next = chunk.at + u64::from(chunk.head_bytes);
        for column in 0..FIRST_FIELD + head.fields.len() {
            let column = head.read_column(reader, column, pages, &mut next)?;
            head.columns.push(column);
        }
        if next != chunk.at + u64::from(chunk.bytes) {
            return Err(reader.error("pages that end elsewhere than the chunk"));
        }
        if reader.is_empty() { Ok(head) } else { Err(reader.error("bytes behind the head of a chunk")) }
    }

    fn read_column(
        &self,
        reader: &mut Reader<'_>,
        column: usize,
        pages: usize,
        next: &mut u64,
    ) -> Result<ColumnHead, DecodeError> {
        let mut place = |reader: &mut Reader<'_>| {
            let place = FilePlace { at: *next, bytes: word(reader)? };
            *next += u64::from(place.bytes);
            Ok::<_, DecodeError>(place)
        };
        let packing = match reader.byte()? {
            0 => {
                let mut value = [0; 8];
                value.copy_from_slice(reader.take(8)?);
                Packing::Constant(u64::from_le_bytes(value))
            }
            1 => Packing::Pco(reader.bytes()?.to_vec()),
            2 => Packing::Bits,
            3 => Packing::Steps,
            4 => Packing::Words,
            _ => return Err(reader.error("a column packed in an unknown way")),
        };
        let mut head = ColumnHead { packing, pages: Vec::new(), blocks: Vec::new() };
        if !matches!(head.packing, Packing::Constant(_)) {
            for _ in 0..pages {
                head.pages.push(place(reader)?);
            }
        }
        if self.is_text(column) {
            for _ in 0..count(reader)? {
                head.blocks.push(BlockHead {
                    texts: word(reader)?,
                    raw: word(reader)?,
                    place: place(reader)?,
                });
            }
        }
        Ok(head)
    }
}

fn word(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let value = reader.varint()?;
    u32::try_from(value).map_err(|_| reader.error("a number beyond 32 bits"))
}

/// Reads the number of items that follow, each of at least one byte.
fn count(reader: &mut Reader<'_>) -> Result<usize, DecodeError> {
    reader.length()
}

/// Reads a list of ascending numbers, given as differences.
fn ascending(reader: &mut Reader<'_>, last: Option<u32>) -> Result<u32, DecodeError> {
    let step = word(reader)?;
    match last {
        None => Ok(step),
        Some(last) if step > 0 => {
            last.checked_add(step).ok_or_else(|| reader.error("a number beyond 32 bits"))
        }
        Some(_) => Err(reader.error("a number that does not ascend")),
    }
}

fn read_fields(reader: &mut Reader<'_>) -> Result<Vec<Field>, DecodeError> {
    let mut fields: Vec<Field> = Vec::new();
    for _ in 0..count(reader)? {
        let number = ascending(reader, fields.last().map(|last| last.number))?;
        let kind = FieldType::from_number(reader.byte()?);
        let kind = kind.ok_or_else(|| reader.error("a field of an unknown type"))?;
        fields.push(Field { number, kind });
    }
    Ok(fields)
}

fn read_shapes(reader: &mut Reader<'_>, fields: usize) -> Result<Vec<Vec<u32>>, DecodeError> {
    let mut shapes = Vec::new();
    for _ in 0..count(reader)? {
        let mut shape: Vec<u32> = Vec::new();
        for _ in 0..count(reader)? {
            let field = ascending(reader, shape.last().copied())?;
            if field as usize >= fields {
                return Err(reader.error("a shape with an unknown field"));
            }
            shape.push(field);
        }
        shapes.push(shape);
    }
    Ok(shapes)
}
