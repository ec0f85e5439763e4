//! The latest value of each field of each element, in memory.
//!
//! Latest is the largest time, not the last arrival. Almost every element always has the same fields,
//! so its latest row is kept as it is. An element whose rows have different fields keeps the latest
//! value of each field.
//!
//! ```text
//! for each element with values: number varint
//!   of a row:    1 · shape varint · time i64 · length and bytes of the values
//!   of fields:   2 · count varint · for each: field varint · time i64 · type u8 · length and bytes
//! ```

use exacat_model::codec::{Decode, DecodeError, Reader, put_bytes, put_varint};
use exacat_model::{FieldRef, FieldValue, Result};
use smallvec::SmallVec;

use crate::columns::Columns;
use crate::limits::LATEST_PIECE;
use crate::names::Names;
use crate::pieces::Pieces;
use crate::row::{ElementNumber, Field, FieldNumber, RowRef, ShapeNumber, Shapes, put_values, split_value};

/// Bytes of values kept without an allocation: two numbers, and one more.
const INLINE_BYTES: usize = 24;

/// Latest value of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestValue {
    /// Its field.
    pub field: Field,
    /// Nanoseconds since 1970.
    pub time: i64,
    /// Its value.
    pub value: FieldValue,
}

#[derive(Clone, Default)]
enum Slot {
    #[default]
    Empty,
    Row {
        shape: ShapeNumber,
        time: i64,
        values: SmallVec<[u8; INLINE_BYTES]>,
    },
    Fields(Vec<LatestValue>),
}

impl Slot {
    /// Divides a row into the latest value of each field.
    fn into_fields(self, element: ElementNumber, shapes: &impl Shapes) -> Vec<LatestValue> {
        match self {
            Slot::Empty => Vec::new(),
            Slot::Fields(fields) => fields,
            Slot::Row { shape, time, values } => {
                let mut fields = Vec::new();
                let row = RowRef { element, shape, time, values: &values };
                merge(&mut fields, &row, shapes.fields(shape).unwrap_or_default());
                fields
            }
        }
    }
}

/// Latest values of the elements of a group.
#[derive(Default)]
pub(crate) struct Latest {
    slots: Pieces<Slot>,
}

fn merge(fields: &mut Vec<LatestValue>, row: &RowRef<'_>, of: &[Field]) {
    for (field, value) in row.values(of) {
        put_latest(fields, LatestValue { field, time: row.time, value: value.to_value() });
    }
}

/// Keeps a value if none of its field is later.
fn put_latest(fields: &mut Vec<LatestValue>, value: LatestValue) {
    match fields.binary_search_by_key(&value.field.number, |known| known.field.number) {
        Ok(at) if fields[at].time > value.time => {}
        Ok(at) => fields[at] = value,
        Err(at) => fields.insert(at, value),
    }
}

impl Latest {
    /// Takes a row in. Of two rows of the same time the later arrival counts.
    pub(crate) fn apply(&mut self, row: &RowRef<'_>, shapes: &impl Shapes) {
        let slot = self.slot(row.element);
        match slot {
            Slot::Empty => *slot = Slot::Row { shape: row.shape, time: row.time, values: row.values.into() },
            Slot::Row { shape, time, values } if *shape == row.shape => {
                if row.time >= *time {
                    *time = row.time;
                    values.clear();
                    values.extend_from_slice(row.values);
                }
            }
            other => {
                let mut fields = std::mem::take(other).into_fields(row.element, shapes);
                merge(&mut fields, row, shapes.fields(row.shape).unwrap_or_default());
                *other = Slot::Fields(fields);
            }
        }
    }

    /// Takes the rows of a run in, which are in the order of time.
    pub(crate) fn apply_columns(&mut self, rows: &Columns, names: &Names) -> Result<()> {
        let (mut start, mut bytes, mut fields) = (0, Vec::new(), Vec::new());
        for element in rows.elements() {
            let of = start..element.end as usize;
            start = of.end;
            // The last value of each field: mostly all are in the last row.
            let mut last: Vec<(usize, FieldNumber, FieldRef<'_>)> = Vec::with_capacity(rows.columns().len());
            for column in rows.columns() {
                if let Some(place) = column.places(&of).next_back() {
                    let row = column.rows.as_ref().map_or(place, |rows| rows[place] as usize);
                    last.push((row, column.field, column.values.get(place)));
                }
            }
            last.sort_by_key(|(row, field, _)| (*row, *field));
            for one in last.chunk_by(|one, other| one.0 == other.0) {
                fields.clear();
                fields.extend(one.iter().map(|(_, field, _)| *field));
                let Some(shape) = names.shape(&fields) else {
                    // Fields of several rows can meet in one by a merge. Their shape has no number then.
                    for (row, field, value) in one {
                        let kind = value.kind();
                        let latest = LatestValue {
                            field: Field { number: *field, kind },
                            time: rows.times()[*row],
                            value: value.to_value(),
                        };
                        self.apply_value(element.element, latest, names);
                    }
                    continue;
                };
                bytes.clear();
                put_values(&mut bytes, one.iter().map(|(_, _, value)| *value))?;
                let time = rows.times()[one[0].0];
                self.apply(&RowRef { element: element.element, shape, time, values: &bytes }, names);
            }
        }
        Ok(())
    }

    fn apply_value(&mut self, element: ElementNumber, value: LatestValue, shapes: &impl Shapes) {
        let slot = self.slot(element);
        let mut fields = std::mem::take(slot).into_fields(element, shapes);
        put_latest(&mut fields, value);
        *slot = Slot::Fields(fields);
    }

    fn slot(&mut self, element: ElementNumber) -> &mut Slot {
        self.slots.reach(element as usize)
    }

    /// Passes the latest values of an element to `give`, in the order of their fields.
    pub(crate) fn read<S: Shapes>(
        &self,
        element: ElementNumber,
        shapes: &S,
        mut give: impl FnMut(FieldNumber, i64, FieldRef<'_>),
    ) {
        match self.slots.get(element as usize) {
            None | Some(Slot::Empty) => {}
            Some(Slot::Row { shape, time, values }) => {
                let row = RowRef { element, shape: *shape, time: *time, values };
                let fields = shapes.fields(*shape).unwrap_or_default();
                row.values(fields).for_each(|(field, value)| give(field.number, *time, value));
            }
            Some(Slot::Fields(fields)) => {
                fields.iter().for_each(|one| give(one.field.number, one.time, one.value.borrow()));
            }
        }
    }

    /// Appends the elements from `from` on, up to [`LATEST_PIECE`] of them. Returns the next one.
    pub(crate) fn encode_piece(&self, from: usize, out: &mut Vec<u8>) -> Option<usize> {
        let next = from + LATEST_PIECE;
        for number in from..next.min(self.slots.len()) {
            let Some(slot) = self.slots.get(number) else { break };
            match slot {
                Slot::Empty => {}
                Slot::Row { shape, time, values } => {
                    put_varint(out, number as u64);
                    out.push(1);
                    put_varint(out, u64::from(*shape));
                    out.extend_from_slice(&time.to_le_bytes());
                    put_bytes(out, values);
                }
                Slot::Fields(fields) => {
                    put_varint(out, number as u64);
                    out.push(2);
                    put_varint(out, fields.len() as u64);
                    for one in fields.iter() {
                        put_varint(out, u64::from(one.field.number));
                        out.extend_from_slice(&one.time.to_le_bytes());
                        out.push(one.field.kind.number());
                        let mut value = Vec::new();
                        // Its length was checked when its row was written.
                        let _within = put_values(&mut value, [one.value.borrow()]);
                        put_bytes(out, &value);
                    }
                }
            }
        }
        (next < self.slots.len()).then_some(next)
    }

    /// Reads what [`encode_piece`](Latest::encode_piece) wrote, and checks it against the names, of which
    /// `elements` are elements.
    pub(crate) fn decode(
        bytes: &[u8],
        shapes: &impl Shapes,
        elements: u32,
    ) -> std::result::Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut latest = Latest::default();
        while !reader.is_empty() {
            let element = u32::decode(&mut reader)?;
            if (element as usize) < latest.slots.len() {
                return Err(reader.error("elements are not in order"));
            }
            if element >= elements {
                return Err(reader.error("an element without a name"));
            }
            let slot = match reader.byte()? {
                1 => {
                    let shape = u32::decode(&mut reader)?;
                    let time = i64::from_le_bytes(<[u8; 8]>::decode(&mut reader)?);
                    let values = reader.bytes()?;
                    let fields =
                        shapes.fields(shape).ok_or_else(|| reader.error("a row of an unknown shape"))?;
                    let row = RowRef { element, shape, time, values };
                    if row.values(fields).count() != fields.len() {
                        return Err(reader.error("a row without all its values"));
                    }
                    Slot::Row { shape, time, values: values.into() }
                }
                2 => {
                    let count = reader.length()?;
                    let mut fields = Vec::with_capacity(count);
                    for _ in 0..count {
                        let number = u32::decode(&mut reader)?;
                        let time = i64::from_le_bytes(<[u8; 8]>::decode(&mut reader)?);
                        let kind = exacat_model::FieldType::from_number(reader.byte()?);
                        let kind = kind.ok_or_else(|| reader.error("unknown type of a field"))?;
                        let value = split_value(reader.bytes()?, kind)
                            .map_err(|reason| reader.error(reason))?
                            .0
                            .to_value();
                        fields.push(LatestValue { field: Field { number, kind }, time, value });
                    }
                    if !fields.is_sorted_by_key(|one| one.field.number) {
                        return Err(reader.error("fields are not in order"));
                    }
                    Slot::Fields(fields)
                }
                _ => return Err(reader.error("unknown form of latest values")),
            };
            *latest.slots.reach(element as usize) = slot;
        }
        Ok(latest)
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::FieldType;

    use super::*;
    use crate::row::put_row;

    fn shapes() -> Vec<Vec<Field>> {
        let field = |number| Field { number, kind: FieldType::Integer };
        vec![vec![field(0), field(1)], vec![field(1)], vec![field(2)]]
    }

    fn apply(latest: &mut Latest, element: u32, shape: u32, time: i64, values: &[i64]) {
        let mut bytes = Vec::new();
        put_row(&mut bytes, element, shape, time, values.iter().map(|value| FieldRef::Integer(*value)))
            .unwrap();
        latest.apply(&RowRef::at(&bytes).unwrap(), &shapes());
    }

    fn read(latest: &Latest, element: u32) -> Vec<(u32, i64, i64)> {
        let mut found = Vec::new();
        latest.read(element, &shapes(), |field, time, value| {
            let FieldRef::Integer(value) = value else { panic!("{value:?}") };
            found.push((field, time, value));
        });
        found
    }

    /// The largest time counts, of equal times the later arrival, and each field by itself.
    #[test]
    fn latest_value_is_that_of_the_largest_time() {
        let mut latest = Latest::default();
        assert_eq!(read(&latest, 4), []);
        apply(&mut latest, 4, 0, 10, &[1, 2]);
        apply(&mut latest, 4, 0, 9, &[8, 9]);
        assert_eq!(read(&latest, 4), [(0, 10, 1), (1, 10, 2)]);
        apply(&mut latest, 4, 0, 10, &[3, 4]);
        assert_eq!(read(&latest, 4), [(0, 10, 3), (1, 10, 4)]);
        apply(&mut latest, 4, 1, 12, &[5]);
        apply(&mut latest, 4, 2, -1, &[6]);
        apply(&mut latest, 4, 0, 11, &[7, 8]);
        assert_eq!(read(&latest, 4), [(0, 11, 7), (1, 12, 5), (2, -1, 6)]);
    }

    /// Latest values come back from their bytes, and bytes cut anywhere are refused or end early at an
    /// element.
    #[test]
    fn latest_values_come_back_from_their_bytes() {
        let mut latest = Latest::default();
        apply(&mut latest, 1, 0, 10, &[1, 2]);
        apply(&mut latest, 300, 1, i64::MIN, &[i64::MAX]);
        apply(&mut latest, 300, 2, i64::MAX, &[i64::MIN]);
        let mut bytes = Vec::new();
        assert_eq!(latest.encode_piece(0, &mut bytes), None);
        let again = Latest::decode(&bytes, &shapes(), 301).unwrap();
        for element in 0..302 {
            assert_eq!(read(&again, element), read(&latest, element));
        }
        assert!(Latest::decode(&bytes, &shapes(), 300).is_err(), "an element without a name");
        let whole =
            (1..bytes.len()).filter(|length| Latest::decode(&bytes[..*length], &shapes(), 301).is_ok());
        assert_eq!(whole.count(), 1, "behind the first element only");
    }
}
