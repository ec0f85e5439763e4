//! Cursors: positions in long answers, as opaque bytes. The first byte names the operation, so that
//! a cursor of another operation is refused rather than misread.

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::{Cursor, Error, Result};

/// The operation that a cursor belongs to. Values are never reused for another operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CursorOf {
    List = 1,
    Find = 2,
    Trash = 3,
    Purge = 4,
    CollectionMembers = 5,
    ArchiveMembers = 6,
    Uploads = 7,
    SeFiles = 8,
    SeDeletions = 9,
    Log = 10,
    TrashParts = 11,
}

/// Makes the cursor of an operation at a position.
pub(crate) fn write(of: CursorOf, position: &impl Encode) -> Cursor {
    let mut bytes = vec![of as u8];
    position.encode(&mut bytes);
    Cursor(bytes)
}

/// Reads the position from a cursor; none at the start. Refuses any cursor that this operation did
/// not make.
pub(crate) fn read<T: Decode>(of: CursorOf, cursor: &Cursor) -> Result<Option<T>> {
    let Some((first, rest)) = cursor.0.split_first() else { return Ok(None) };
    let foreign = || Error::invalid("the cursor is not one that this operation gave: start again without");
    if *first != of as u8 {
        return Err(foreign());
    }
    let mut reader = Reader::new(rest);
    let position = T::decode(&mut reader).map_err(|_| foreign())?;
    reader.finish().map_err(|_| foreign())?;
    Ok(Some(position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::Name;

    #[test]
    fn a_cursor_is_worth_nothing_to_another_operation() {
        let name = Name::parse("x").unwrap();
        let cursor = write(CursorOf::List, &name);
        assert_eq!(read::<Name>(CursorOf::List, &cursor).unwrap(), Some(name));
        assert_eq!(read::<Name>(CursorOf::List, &Cursor::default()).unwrap(), None);
        assert!(read::<Name>(CursorOf::Find, &cursor).is_err());
        for cut in 1..cursor.0.len() {
            assert!(read::<Name>(CursorOf::List, &Cursor(cursor.0[..cut].to_vec())).is_err(), "{cut}");
        }
        let mut longer = cursor.0;
        longer.push(0);
        assert!(read::<Name>(CursorOf::List, &Cursor(longer)).is_err());
    }
}
