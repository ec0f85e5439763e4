//! Bytes of a row, as the log and the memtable keep them.
//!
//! ```text
//! element u32 · shape u32 · time i64 · the values of the shape's fields, in their order
//! float, integer, unsigned: 8 bytes · boolean: 1 byte, 0 or 1 · text: length u32, UTF-8
//! ```
//! Integers are little-endian. The shape has the fields and their types, so a row repeats neither.

use std::cmp::Ordering;

use exacat_model::codec::DecodeError;
use exacat_model::{Error, FieldRef, FieldType};

/// Number of an element in its group.
pub type ElementNumber = u32;
/// Number of a field in its group.
pub type FieldNumber = u32;
/// Number of a shape in its group.
pub type ShapeNumber = u32;

/// Bytes of one text value. InfluxDB recommends at most 64 KiB.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes of one row. Bounds the memory of everything that holds one.
pub const ROW_BYTES_MAX: usize = 4 << 20;
/// Bytes before the values.
const HEAD_BYTES: usize = 16;

/// A field of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// Its number.
    pub number: FieldNumber,
    /// Its type.
    pub kind: FieldType,
}

/// Known shapes of a group.
pub trait Shapes {
    /// Returns the fields of a shape in ascending order of their numbers; none if it is unknown.
    fn fields(&self, shape: ShapeNumber) -> Option<&[Field]>;
}

/// A list of shapes by number.
impl<F: AsRef<[Field]>> Shapes for [F] {
    fn fields(&self, shape: ShapeNumber) -> Option<&[Field]> {
        self.get(shape as usize).map(AsRef::as_ref)
    }
}

impl<F: AsRef<[Field]>> Shapes for Vec<F> {
    fn fields(&self, shape: ShapeNumber) -> Option<&[Field]> {
        self.as_slice().fields(shape)
    }
}

/// A row, which borrows its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRef<'a> {
    /// Element.
    pub element: ElementNumber,
    /// Shape.
    pub shape: ShapeNumber,
    /// Nanoseconds since 1970.
    pub time: i64,
    /// Bytes of the values; bytes behind the last value are ignored.
    pub values: &'a [u8],
}

/// Appends the bytes of a row. The caller gives one value for each field of the shape, in its order.
/// A row beyond a limit is refused, and then nothing is appended.
pub fn put_row<'v>(
    out: &mut Vec<u8>,
    element: ElementNumber,
    shape: ShapeNumber,
    time: i64,
    values: impl IntoIterator<Item = FieldRef<'v>>,
) -> Result<(), Error> {
    let start = out.len();
    out.extend_from_slice(&element.to_le_bytes());
    out.extend_from_slice(&shape.to_le_bytes());
    out.extend_from_slice(&time.to_le_bytes());
    if let Err(error) = put_values(out, values) {
        out.truncate(start);
        return Err(error);
    }
    let bytes = out.len() - start;
    if bytes > ROW_BYTES_MAX {
        out.truncate(start);
        return Err(Error::limit("bytes of a row", bytes, ROW_BYTES_MAX));
    }
    Ok(())
}

/// Appends the bytes of values. A text beyond its limit is refused, and then some may be appended.
pub(crate) fn put_values<'v>(
    out: &mut Vec<u8>,
    values: impl IntoIterator<Item = FieldRef<'v>>,
) -> Result<(), Error> {
    for value in values {
        match value {
            FieldRef::Float(value) => out.extend_from_slice(&value.to_bits().to_le_bytes()),
            FieldRef::Integer(value) => out.extend_from_slice(&value.to_le_bytes()),
            FieldRef::Unsigned(value) => out.extend_from_slice(&value.to_le_bytes()),
            FieldRef::Boolean(value) => out.push(u8::from(value)),
            FieldRef::Text(text) => {
                if text.len() > TEXT_BYTES_MAX {
                    return Err(Error::limit("bytes of a text value", text.len(), TEXT_BYTES_MAX));
                }
                out.extend_from_slice(&(text.len() as u32).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
    Ok(())
}

/// Splits one value of a type from the start of bytes, and checks it. In line: a value that a call
/// returned through memory would cost more than its decoding.
#[inline(always)]
pub(crate) fn split_value(bytes: &[u8], kind: FieldType) -> Result<(FieldRef<'_>, &[u8]), &'static str> {
    let word = || bytes.split_first_chunk::<8>().map(|(word, rest)| (u64::from_le_bytes(*word), rest));
    let split = match kind {
        FieldType::Float => word().map(|(word, rest)| (FieldRef::Float(f64::from_bits(word)), rest)),
        FieldType::Integer => word().map(|(word, rest)| (FieldRef::Integer(word as i64), rest)),
        FieldType::Unsigned => word().map(|(word, rest)| (FieldRef::Unsigned(word), rest)),
        FieldType::Boolean => match bytes.split_first() {
            Some((byte @ 0..=1, rest)) => Some((FieldRef::Boolean(*byte == 1), rest)),
            Some(_) => return Err("a boolean is 0 or 1"),
            None => None,
        },
        FieldType::Text => return split_text(bytes),
    };
    split.ok_or("bytes end inside a value")
}

fn split_text(bytes: &[u8]) -> Result<(FieldRef<'_>, &[u8]), &'static str> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or("bytes end inside a value")?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > TEXT_BYTES_MAX {
        return Err("a text beyond its limit");
    }
    let (text, rest) = rest.split_at_checked(length).ok_or("bytes end inside a value")?;
    let text = std::str::from_utf8(text).map_err(|_| "text is not UTF-8")?;
    Ok((FieldRef::Text(text), rest))
}

impl<'a> RowRef<'a> {
    /// Returns the row at the start of bytes that this process wrote. None if the bytes are too short
    /// for a row's head. Values are the remaining bytes, and may end with those of further rows.
    #[inline]
    pub fn at(bytes: &'a [u8]) -> Option<Self> {
        let (head, values) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let time = (u64::from(word(8)) | u64::from(word(12)) << 32) as i64;
        Some(RowRef { element: word(0), shape: word(4), time, values })
    }

    /// Reads a row of untrusted bytes, checks all of it, and returns it with the bytes behind it.
    pub fn read(bytes: &'a [u8], shapes: &(impl Shapes + ?Sized)) -> Result<(Self, &'a [u8]), DecodeError> {
        let error = |reason, rest: &[u8]| DecodeError { reason, remaining: rest.len() };
        let Some(mut row) = RowRef::at(bytes) else { return Err(error("bytes end inside a row", bytes)) };
        let Some(fields) = shapes.fields(row.shape) else {
            return Err(error("a row of an unknown shape", bytes));
        };
        let mut rest = row.values;
        for field in fields {
            rest = split_value(rest, field.kind).map_err(|reason| error(reason, rest))?.1;
        }
        if bytes.len() - rest.len() > ROW_BYTES_MAX {
            return Err(error("a row beyond its limit", rest));
        }
        row.values = &row.values[..row.values.len() - rest.len()];
        Ok((row, rest))
    }

    /// Returns the values with their fields. They end early where the bytes are damaged, which checked
    /// bytes never are.
    #[inline]
    pub fn values<'f>(&self, fields: &'f [Field]) -> RowValues<'a, 'f> {
        RowValues { bytes: self.values, fields: fields.iter() }
    }

    /// Compares the identities of two rows: element, then time.
    #[inline]
    pub fn cmp_identity(&self, other: &RowRef<'_>) -> Ordering {
        (self.element, self.time).cmp(&(other.element, other.time))
    }
}

/// Values of a row, each with its field.
#[derive(Clone, Debug)]
pub struct RowValues<'a, 'f> {
    bytes: &'a [u8],
    fields: std::slice::Iter<'f, Field>,
}

impl<'a> Iterator for RowValues<'a, '_> {
    type Item = (Field, FieldRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = *self.fields.next()?;
        let (value, rest) = split_value(self.bytes, field.kind).ok()?;
        self.bytes = rest;
        Some((field, value))
    }
}

/// Values of one row, in ascending order of their fields.
pub type MergedValues<'a> = Vec<(FieldNumber, FieldRef<'a>)>;

/// Merges the values of a later row of the same element and time into those of an earlier one: where
/// both have a field, the later value wins. Both are in ascending order of their fields.
pub fn merge_later<'a>(
    earlier: &mut MergedValues<'a>,
    later: impl IntoIterator<Item = (FieldNumber, FieldRef<'a>)>,
) {
    let mut at = 0;
    for (number, value) in later {
        at += earlier[at..].partition_point(|(earlier, _)| *earlier < number);
        match earlier.get_mut(at) {
            Some((earlier, old)) if *earlier == number => *old = value,
            _ => earlier.insert(at, (number, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [FieldType; 5] = FieldType::ALL;

    fn shapes() -> Vec<Vec<Field>> {
        let fields = KINDS.iter().zip(1..).map(|(kind, number)| Field { number, kind: *kind });
        vec![fields.collect(), Vec::new()]
    }

    fn values() -> [FieldRef<'static>; 5] {
        [
            FieldRef::Float(f64::from_bits(0x7ff4_0000_0000_beef)),
            FieldRef::Integer(i64::MIN),
            FieldRef::Unsigned(u64::MAX),
            FieldRef::Boolean(true),
            FieldRef::Text("Grüße"),
        ]
    }

    /// A row has exactly the drawn bytes, and is read back as it was, together with what follows it.
    #[test]
    fn row_is_read_back_from_its_bytes() {
        let mut bytes = Vec::new();
        put_row(&mut bytes, 7, 0, -2, values()).unwrap();
        let mut expected = vec![7, 0, 0, 0, 0, 0, 0, 0, 0xfe];
        expected.extend([0xff; 7]);
        expected.extend([0xef, 0xbe, 0, 0, 0, 0, 0xf4, 0x7f]);
        expected.extend(i64::MIN.to_le_bytes());
        expected.extend([0xff; 8]);
        expected.extend([1, 7, 0, 0, 0]);
        expected.extend("Grüße".as_bytes());
        assert_eq!(bytes, expected);
        put_row(&mut bytes, 8, 1, i64::MAX, []).unwrap();
        let (row, rest) = RowRef::read(&bytes, &shapes()).unwrap();
        assert_eq!((row.element, row.shape, row.time), (7, 0, -2));
        assert!(row.values(&shapes()[0]).map(|(_, value)| value).eq(values()));
        let (next, rest) = RowRef::read(rest, &shapes()).unwrap();
        assert_eq!((next.element, next.time, next.values, rest.len()), (8, i64::MAX, &[][..], 0));
        assert_eq!(row.cmp_identity(&next), Ordering::Less);
        let trusted = RowRef::at(&bytes).unwrap();
        assert!(trusted.values(&shapes()[0]).eq(row.values(&shapes()[0])));
    }

    /// Truncated or damaged bytes give an error, and never a row with other values unseen.
    #[test]
    fn damaged_row_is_refused() {
        let mut bytes = Vec::new();
        put_row(&mut bytes, 7, 0, 5, values()).unwrap();
        for length in 0..bytes.len() {
            assert!(RowRef::read(&bytes[..length], &shapes()).is_err(), "{length} bytes");
        }
        let mut damaged = bytes.clone();
        damaged[4] = 2;
        assert!(RowRef::read(&damaged, &shapes()).unwrap_err().reason.contains("unknown shape"));
        damaged = bytes.clone();
        damaged[HEAD_BYTES + 24] = 2;
        assert!(RowRef::read(&damaged, &shapes()).unwrap_err().reason.contains("boolean"));
        damaged = bytes.clone();
        *damaged.last_mut().unwrap() = 0xff;
        assert!(RowRef::read(&damaged, &shapes()).unwrap_err().reason.contains("UTF-8"));
        assert_eq!(RowRef::at(&damaged).unwrap().values(&shapes()[0]).count(), 4);
    }

    /// A text and a row at their limits are accepted, and one byte more is refused without a trace.
    #[test]
    fn text_and_row_beyond_their_limits_are_refused() {
        let text = "x".repeat(TEXT_BYTES_MAX + 1);
        let mut bytes = vec![9];
        put_row(&mut bytes, 1, 0, 1, [FieldRef::Text(&text[1..])]).unwrap();
        bytes.truncate(1);
        assert!(put_row(&mut bytes, 1, 0, 1, [FieldRef::Text(&text)]).is_err());
        let part = &text[..TEXT_BYTES_MAX - 8];
        let parts = [FieldRef::Text(part), FieldRef::Text(part), FieldRef::Text(part), FieldRef::Text(part)];
        assert!(put_row(&mut bytes, 1, 0, 1, parts).is_ok());
        assert_eq!(bytes.len(), 1 + ROW_BYTES_MAX);
        bytes.truncate(1);
        let more = parts.into_iter().chain([FieldRef::Boolean(true)]);
        assert!(put_row(&mut bytes, 1, 0, 1, more).is_err());
        assert_eq!(bytes, [9]);
        let field = |number| Field { number, kind: FieldType::Text };
        let shapes = [vec![field(1)]];
        let mut long = Vec::new();
        put_row(&mut long, 1, 0, 1, [FieldRef::Text(&text[1..])]).unwrap();
        assert!(RowRef::read(&long, &shapes[..]).is_ok());
        long[HEAD_BYTES..HEAD_BYTES + 4].copy_from_slice(&(TEXT_BYTES_MAX as u32 + 1).to_le_bytes());
        long.push(b'x');
        assert!(RowRef::read(&long, &shapes[..]).unwrap_err().reason.contains("limit"));
    }

    /// A later row wins field by field, and fields of the earlier row alone stay.
    #[test]
    fn later_row_wins_field_by_field() {
        let value = FieldRef::Integer;
        let mut merged = vec![(2, value(20)), (5, value(50)), (9, value(90))];
        merge_later(&mut merged, [(1, value(1)), (5, value(5)), (7, value(7)), (11, value(11))]);
        let expected = [(1, 1), (2, 20), (5, 5), (7, 7), (9, 90), (11, 11)];
        assert!(merged.into_iter().eq(expected.map(|(number, of)| (number, value(of)))));
    }
}
