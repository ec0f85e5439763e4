//! Rows in memory: one sequence of bytes per row, self-contained, read without decoding a copy.
//!
//! ```text
//! directory · name length u8, name · which fields follow u8 · shape length, shape
//! [identity 16] · [size] · [job] · [created] · [modified - created] · revision
//! [digest length u8, digest] · [rest]
//! ```
//! Integers without a width are varints; the rest goes to the end. Compared fields come first.

use exacat_model::DirId;
use exacat_model::codec::{Decode, DecodeError, Encode, Reader, put_bytes, put_varint};

use crate::page::Row;

const ID: u8 = 1;
const SIZE: u8 = 2;
const JOB: u8 = 4;
const CREATED: u8 = 8;
const MODIFIED: u8 = 16;
const DIGEST: u8 = 32;
const REST: u8 = 64;

/// Encodes a row into `out`, which is cleared first.
pub(crate) fn put(row: &Row<'_>, out: &mut Vec<u8>) {
    out.clear();
    put_varint(out, row.parent.0);
    out.push(row.name.len() as u8);
    out.extend_from_slice(row.name);
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    let fields = flag(row.id != [0; 16], ID)
        | flag(row.size != 0, SIZE)
        | flag(row.job != 0, JOB)
        | flag(row.created != 0, CREATED)
        | flag(row.modified != row.created, MODIFIED)
        | flag(!row.checksum.is_empty(), DIGEST)
        | flag(!row.rest.is_empty(), REST);
    out.push(fields);
    put_bytes(out, row.shape);
    if fields & ID != 0 {
        out.extend_from_slice(&row.id);
    }
    for (field, value) in [(SIZE, row.size), (JOB, row.job), (CREATED, row.created)] {
        if fields & field != 0 {
            put_varint(out, value);
        }
    }
    if fields & MODIFIED != 0 {
        (row.modified.wrapping_sub(row.created) as i64).encode(out);
    }
    put_varint(out, row.revision);
    if fields & DIGEST != 0 {
        out.push(row.checksum.len() as u8);
        out.extend_from_slice(row.checksum);
    }
    out.extend_from_slice(row.rest);
}

/// Reads a row.
pub(crate) fn row(bytes: &[u8]) -> Result<Row<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let parent = DirId::decode(&mut reader)?;
    let length = usize::from(reader.byte()?);
    let name = reader.take(length)?;
    let fields = reader.byte()?;
    let shape = reader.bytes()?;
    let mut id = [0; 16];
    if fields & ID != 0 {
        id.copy_from_slice(reader.take(16)?);
    }
    let mut number = |field: u8| if fields & field != 0 { reader.varint() } else { Ok(0) };
    let (size, job, created) = (number(SIZE)?, number(JOB)?, number(CREATED)?);
    let modified = match fields & MODIFIED {
        0 => created,
        _ => created.wrapping_add(i64::decode(&mut reader)? as u64),
    };
    let revision = reader.varint()?;
    let checksum = match fields & DIGEST {
        0 => &[][..],
        _ => {
            let length = usize::from(reader.byte()?);
            reader.take(length)?
        }
    };
    Ok(Row { parent, name, shape, id, size, job, created, modified, revision, checksum, rest: reader.rest() })
}

/// Returns the varint of the directory's number, and the name; none if the bytes are no row.
fn place_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    while *bytes.get(at)? & 0x80 != 0 {
        at += 1;
    }
    let length = usize::from(*bytes.get(at + 1)?);
    Some((&bytes[..=at], bytes.get(at + 2..at + 2 + length)?))
}

/// Returns the name of a row.
pub(crate) fn name_of(bytes: &[u8]) -> &[u8] {
    place_of(bytes).map_or(&[], |(_, name)| name)
}

/// Says whether a row has this key.
pub(crate) fn stands_at(bytes: &[u8], parent: DirId, name: &[u8]) -> bool {
    place_of(bytes).is_some_and(|(varint, other)| {
        let number = varint.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
        other == name && number == parent.0
    })
}
