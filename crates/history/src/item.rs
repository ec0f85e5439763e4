//! Items of a log record: definitions of names, settings of groups, and rows.
//!
//! ```text
//! 1 group settings    group u32 · settings
//! 2 group dropped     group u32
//! 3 measurement       group · number · name
//! 4 field             group · number · measurement · type u8 · name
//! 5 shape             group · number · count · field numbers
//! 6 element           group · number · measurement · key
//! 7 rows              group · count · length · row bytes
//! 8 days dropped      group · first day that stays: size varint, then 1 if it is before 1970, else 0
//! ```
//! Numbers are varints, texts have their length before them. An item is one byte for its kind, then
//! its content. Names are numbered from 0 without gap, so a reader checks that nothing is missing.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader, put_bytes, put_varint};
use exacat_model::{FieldType, GroupSettings};

use crate::row::{ElementNumber, FieldNumber, ShapeNumber};

/// Number of a group.
pub(crate) type GroupId = u32;
/// Number of a measurement in its group.
pub(crate) type MeasurementNumber = u32;

/// One item of a log record, or of a file of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Settings {
        group: GroupId,
        settings: Box<GroupSettings>,
    },
    Dropped {
        group: GroupId,
    },
    Measurement {
        group: GroupId,
        number: MeasurementNumber,
        name: &'a str,
    },
    Field {
        group: GroupId,
        number: FieldNumber,
        measurement: MeasurementNumber,
        kind: FieldType,
        name: &'a str,
    },
    Shape {
        group: GroupId,
        number: ShapeNumber,
        fields: Vec<FieldNumber>,
    },
    Element {
        group: GroupId,
        number: ElementNumber,
        measurement: MeasurementNumber,
        key: &'a str,
    },
    Rows {
        group: GroupId,
        count: u32,
        bytes: &'a [u8],
    },
    DaysDropped {
        group: GroupId,
        first_kept: i32,
    },
}

impl Item<'_> {
    /// Returns the group that it is about.
    pub(crate) fn group(&self) -> GroupId {
        match self {
            Item::Settings { group, .. }
            | Item::Dropped { group }
            | Item::Measurement { group, .. }
            | Item::Field { group, .. }
            | Item::Shape { group, .. }
            | Item::Element { group, .. }
            | Item::Rows { group, .. }
            | Item::DaysDropped { group, .. } => *group,
        }
    }

    /// Appends the item.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8, numbers: &[u32]| {
            out.push(kind);
            numbers.iter().for_each(|number| put_varint(out, u64::from(*number)));
        };
        match self {
            Item::Settings { group, settings } => {
                head(out, 1, &[*group]);
                settings.encode(out);
            }
            Item::Dropped { group } => head(out, 2, &[*group]),
            Item::Measurement { group, number, name } => {
                head(out, 3, &[*group, *number]);
                put_bytes(out, name.as_bytes());
            }
            Item::Field { group, number, measurement, kind, name } => {
                head(out, 4, &[*group, *number, *measurement]);
                out.push(kind.number());
                put_bytes(out, name.as_bytes());
            }
            Item::Shape { group, number, fields } => {
                head(out, 5, &[*group, *number, fields.len() as u32]);
                fields.iter().for_each(|field| put_varint(out, u64::from(*field)));
            }
            Item::Element { group, number, measurement, key } => {
                head(out, 6, &[*group, *number, *measurement]);
                put_bytes(out, key.as_bytes());
            }
            Item::Rows { group, count, bytes } => {
                head(out, 7, &[*group, *count]);
                put_bytes(out, bytes);
            }
            Item::DaysDropped { group, first_kept } => {
                head(out, 8, &[*group]);
                first_kept.unsigned_abs().encode(out);
                out.push(u8::from(*first_kept < 0));
            }
        }
    }

    /// Decodes the next item.
    pub(crate) fn decode<'a>(reader: &mut Reader<'a>) -> Result<Item<'a>, DecodeError> {
        let kind = reader.byte()?;
        let group = u32::decode(reader)?;
        Ok(match kind {
            1 => Item::Settings { group, settings: Box::new(GroupSettings::decode(reader)?) },
            2 => Item::Dropped { group },
            3 => Item::Measurement { group, number: u32::decode(reader)?, name: reader.text()? },
            4 => Item::Field {
                group,
                number: u32::decode(reader)?,
                measurement: u32::decode(reader)?,
                kind: FieldType::from_number(reader.byte()?)
                    .ok_or_else(|| reader.error("unknown type of a field"))?,
                name: reader.text()?,
            },
            5 => {
                let number = u32::decode(reader)?;
                let count = reader.length()?;
                let fields = (0..count).map(|_| u32::decode(reader)).collect::<Result<Vec<_>, _>>()?;
                Item::Shape { group, number, fields }
            }
            6 => Item::Element {
                group,
                number: u32::decode(reader)?,
                measurement: u32::decode(reader)?,
                key: reader.text()?,
            },
            7 => Item::Rows { group, count: u32::decode(reader)?, bytes: reader.bytes()? },
            8 => {
                let size = u32::decode(reader)?;
                let sign = reader.byte()?;
                let day = i32::try_from(size).ok().filter(|_| sign < 2);
                let day = day.ok_or_else(|| reader.error("a day out of range"))?;
                Item::DaysDropped { group, first_kept: if sign == 1 { -day } else { day } }
            }
            _ => return Err(reader.error("unknown kind of an item")),
        })
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::{GroupName, TimeMs};

    use super::*;

    /// An item is decoded as it was encoded, and a cut one is refused.
    #[test]
    fn items_come_back_as_written() {
        let settings = GroupSettings {
            name: GroupName::parse("det2").unwrap(),
            owner: None,
            readers: Vec::new(),
            writers: Vec::new(),
            retention_days: 30,
            elements_max: 7,
            created: TimeMs(5),
        };
        let items = [
            Item::Settings { group: 3, settings: Box::new(settings) },
            Item::Dropped { group: u32::MAX },
            Item::Measurement { group: 1, number: 2, name: "ev" },
            Item::Field { group: 1, number: 300, measurement: 2, kind: FieldType::Text, name: "unit" },
            Item::Shape { group: 1, number: 0, fields: vec![0, 7, 300] },
            Item::Element { group: 1, number: 9, measurement: 2, key: "ev,e=a" },
            Item::Rows { group: 1, count: 2, bytes: b"rows" },
            Item::DaysDropped { group: 1, first_kept: -20_000 },
            Item::DaysDropped { group: 1, first_kept: 20_000 },
        ];
        let mut bytes = Vec::new();
        items.iter().for_each(|item| item.encode(&mut bytes));
        let mut reader = Reader::new(&bytes);
        for item in &items {
            assert_eq!(Item::decode(&mut reader).as_ref(), Ok(item));
        }
        assert!(reader.is_empty());
        for item in &items {
            let mut bytes = Vec::new();
            item.encode(&mut bytes);
            for length in 0..bytes.len() {
                assert!(
                    Item::decode(&mut Reader::new(&bytes[..length])).is_err(),
                    "{item:?} cut at {length}"
                );
            }
        }
    }
}
