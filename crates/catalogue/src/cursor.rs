//! Cursors: where a long answer goes on, as opaque bytes. The first says which operation a cursor belongs to, so
//! that one of another is refused rather than misread.

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::{Cursor, Error, Result};

/// Which operation a cursor belongs to. Values are never used again for another.
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

/// The cursor of an operation at a position.
pub(crate) fn write(of: CursorOf, position: &impl Encode) -> Cursor {
    let mut bytes = vec![of as u8];
    position.encode(&mut bytes);
    Cursor(bytes)
}

/// The position a cursor says; none at the start. Anything this operation did not give is refused.
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
