//! The keyspace: the keys of all rows in the one table.
//!
//! A key is a directory's number and a name. Rows beside the tree have numbers that no directory
//! has: these are tables. Their keys are big-endian, so that keys and values have the same order.
//!
//! ```text
//! directory        name                               row
//! 0                "/"                                the root's entry
//! 1 … 2^63 - 2     name                               entry: file, directory, collection, link
//! TRACES           directory u64 · name               - (row's revision: change that removed the entry)
//! TRACES           0 u64 · entry                      - (row's revision: change that purged it)
//! TRASH            item u64                           entry, with its former place, remover and time
//! EXPIRY           time u64 · entry                   -
//! MEMBERS          collection 16 · member 16          -
//! DELETIONS        SE u16 · revision u64 · index u32  deletion
//! DELETION_PLACES  SE u16 · hash u64 · revision · index  -
//! PURGED           GUID 16                            purged: older rows of the GUID do not count
//! RECORDS          the record's key                   (record, revision)
//! RESERVATIONS         GUID 16                            upload reservation
//! DIRECTORIES      number u64                         parent, name, ancestor, usage, files of each SE
//! ACCOUNTS         the account's key                  usage and reservation, counts
//! OPERATIONS       first revision u64                 the operation's id
//! SUMMARY          ""                                 facts about the state
//! ```
//! Memory also has the last six tables as a whole. Of them, records and upload reservations become
//! rows as soon as they change; the others are written when a memtable is frozen.

use exacat_model::codec::Encode;
use exacat_model::{At, DeletionId, DirId, EntryId, Guid, Name, Revision, SeNumber, TimeMs, TrashId};
use exacat_store::Trace;

/// Number above all directories.
const TABLES: u64 = 1 << 63;

/// Table of traces, before all others: tables behind `DELETION_PLACES` are written with a memtable
/// or read at opening.
pub(crate) const TRACES: DirId = DirId(TABLES - 1);
pub(crate) const TRASH: DirId = DirId(TABLES);
pub(crate) const EXPIRY: DirId = DirId(TABLES + 1);
pub(crate) const MEMBERS: DirId = DirId(TABLES + 2);
pub(crate) const DELETIONS: DirId = DirId(TABLES + 3);
pub(crate) const DELETION_PLACES: DirId = DirId(TABLES + 4);
pub(crate) const PURGED: DirId = DirId(TABLES + 5);
pub(crate) const RECORDS: DirId = DirId(TABLES + 6);
pub(crate) const RESERVATIONS: DirId = DirId(TABLES + 7);
pub(crate) const DIRECTORIES: DirId = DirId(TABLES + 8);
pub(crate) const ACCOUNTS: DirId = DirId(TABLES + 9);
pub(crate) const OPERATIONS: DirId = DirId(TABLES + 10);
pub(crate) const SUMMARY: DirId = DirId(TABLES + 11);

/// Directory number of the root's entry, which is in no directory.
pub(crate) const ROOT_IN: DirId = DirId(0);

/// Says whether a directory can have this number.
pub(crate) fn is_directory(number: DirId) -> bool {
    number.0 != 0 && number.0 < TRACES.0
}

/// Returns the directory part of the key of an entry at this place; the name part is the name.
pub(crate) fn directory_of(at: &At) -> DirId {
    if at.parent == DirId::ROOT && at.name == Name::root() { ROOT_IN } else { at.parent }
}

/// Returns the key of an item of the trash.
pub(crate) fn trash_key(id: TrashId) -> [u8; 8] {
    id.0.0.to_be_bytes()
}

/// Returns the item of the trash with this key.
pub(crate) fn trash_id(key: &[u8]) -> Option<TrashId> {
    Some(TrashId(Revision(number(key)?)))
}

/// Returns the number at the start of a key.
pub(crate) fn number(key: &[u8]) -> Option<u64> {
    key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Returns the key of an entry that expires.
pub(crate) fn expiry_key(expires: TimeMs, id: EntryId) -> Vec<u8> {
    let mut key = expires.0.to_be_bytes().to_vec();
    match id {
        EntryId::Directory(directory) => {
            key.push(0);
            key.extend_from_slice(&directory.0.to_be_bytes());
        }
        EntryId::Object(guid) => {
            key.push(1);
            key.extend_from_slice(&guid.0);
        }
    }
    key
}

/// Returns the time and the entry of such a key.
pub(crate) fn expiring(key: &[u8]) -> Option<(TimeMs, EntryId)> {
    let expires = TimeMs(number(key)?);
    let (kind, id) = key.get(8..)?.split_first()?;
    let id = match kind {
        0 => EntryId::Directory(DirId(number(id)?)),
        _ => EntryId::Object(Guid(*id.first_chunk()?)),
    };
    Some((expires, id))
}

/// Maximum bytes of a row's key.
const KEY_BYTES_MAX: usize = 255;

/// Returns the key of a trace. A digest replaces the end of a name that is too long for a key.
pub(crate) fn trace_key(trace: &Trace) -> Vec<u8> {
    match trace {
        Trace::Left(at) => {
            let mut key = at.parent.0.to_be_bytes().to_vec();
            let name = at.name.as_str().as_bytes();
            // The key is shorter than the longest one, which always has a digest. So the two kinds
            // never collide.
            if key.len() + name.len() < KEY_BYTES_MAX {
                key.extend_from_slice(name);
            } else {
                let digest = xxhash_rust::xxh3::xxh3_128(name).to_be_bytes();
                let kept = KEY_BYTES_MAX - key.len() - digest.len();
                key.extend_from_slice(name.get(..kept).unwrap_or(name));
                key.extend_from_slice(&digest);
            }
            key
        }
        // No directory has the number 0.
        Trace::Ended(EntryId::Directory(directory)) => [0u64, directory.0].map(u64::to_be_bytes).concat(),
        Trace::Ended(EntryId::Object(guid)) => [&0u64.to_be_bytes()[..], &guid.0].concat(),
    }
}

/// Returns the key of a member of a collection.
pub(crate) fn member_key(collection: Guid, member: Guid) -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&collection.0);
    key[16..].copy_from_slice(&member.0);
    key
}

/// Returns the collection and the member of such a key.
pub(crate) fn member(key: &[u8]) -> Option<(Guid, Guid)> {
    Some((Guid(*key.first_chunk()?), Guid(*key.get(16..)?.first_chunk()?)))
}

fn put_id(id: DeletionId, key: &mut Vec<u8>) {
    key.extend_from_slice(&id.revision.0.to_be_bytes());
    key.extend_from_slice(&id.index.to_be_bytes());
}

fn deletion_id(key: &[u8]) -> Option<DeletionId> {
    let revision = Revision(number(key)?);
    let index = key.get(8..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))?;
    Some(DeletionId { revision, index })
}

/// Returns the key of a deletion in an SE's queue.
pub(crate) fn deletion_key(se: SeNumber, id: DeletionId) -> Vec<u8> {
    let mut key = se.0.to_be_bytes().to_vec();
    put_id(id, &mut key);
    key
}

/// Returns the prefix of the keys of all deletions of an SE, and of their places.
pub(crate) fn of_se(se: SeNumber) -> [u8; 2] {
    se.0.to_be_bytes()
}

/// Returns the SE with which a key begins.
pub(crate) fn se_of(key: &[u8]) -> Option<SeNumber> {
    key.first_chunk().map(|bytes| SeNumber(u16::from_be_bytes(*bytes)))
}

/// Returns the key of a deletion's place, by its hash.
pub(crate) fn place_key(se: SeNumber, hash: u64, id: DeletionId) -> Vec<u8> {
    let mut key = places_of(se, hash);
    put_id(id, &mut key);
    key
}

/// Returns the prefix of the keys of all deletions with one hash.
pub(crate) fn places_of(se: SeNumber, hash: u64) -> Vec<u8> {
    let mut key = se.0.to_be_bytes().to_vec();
    key.extend_from_slice(&hash.to_be_bytes());
    key
}

/// Returns the deletion in the key of a place.
pub(crate) fn placed(key: &[u8]) -> Option<DeletionId> {
    deletion_id(key.get(10..)?)
}

/// Returns the canonical bytes as a key, for items without an order of their own.
pub(crate) fn encoded_key(item: &impl Encode) -> Vec<u8> {
    item.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: keys return their items, and have the items' order.
    #[test]
    fn keys_give_back_what_they_are_of_in_its_order() {
        let ids = [
            EntryId::Directory(DirId(1)),
            EntryId::Directory(DirId(300)),
            EntryId::Object(Guid([0; 16])),
            EntryId::Object(Guid([9; 16])),
        ];
        let mut last = Vec::new();
        for time in [0, 1, 255, 256, u64::MAX] {
            for id in ids {
                let key = expiry_key(TimeMs(time), id);
                assert_eq!(expiring(&key), Some((TimeMs(time), id)));
                assert!(last < key);
                last = key;
            }
        }
        let id = |revision, index| DeletionId { revision: Revision(revision), index };
        let deletions = [id(0, 0), id(0, 256), id(1, 0), id(256, 3), id(u64::MAX, u32::MAX)];
        for se in [SeNumber(1), SeNumber(700)] {
            let keys: Vec<Vec<u8>> = deletions.iter().map(|id| deletion_key(se, *id)).collect();
            assert!(keys.is_sorted() && keys.iter().all(|key| se_of(key) == Some(se)));
            for id in deletions {
                let place = place_key(se, 5 << 40, id);
                assert!(place.starts_with(&places_of(se, 5 << 40)) && place.starts_with(&of_se(se)));
                assert_eq!(placed(&place), Some(id));
            }
        }
        assert_eq!(trash_id(&trash_key(TrashId(Revision(1 << 40)))), Some(TrashId(Revision(1 << 40))));
        let (one, two) = (Guid([1; 16]), Guid([2; 16]));
        assert_eq!(member(&member_key(one, two)), Some((one, two)));
        assert!(expiring(&[0; 8]).is_none() && placed(&[0; 21]).is_none() && number(&[1]).is_none());
        assert!(!is_directory(ROOT_IN) && is_directory(DirId::ROOT) && !is_directory(TRASH));
        assert!(!is_directory(TRACES) && TRACES < TRASH);
    }

    /// Goal: every name has its own trace, and every key fits into a row.
    #[test]
    fn traces_of_names_of_any_length_have_keys_of_their_own() {
        let mut keys = std::collections::BTreeSet::new();
        for length in [1, 2, 245, 246, 247, 248, 254, 255] {
            for end in ["a", "b"] {
                let name = Name::parse(&format!("{}{end}", "n".repeat(length - 1))).unwrap();
                for parent in [DirId(1), DirId(2)] {
                    let key = trace_key(&Trace::Left(At { parent, name: name.clone() }));
                    assert!(key.len() <= KEY_BYTES_MAX && key.starts_with(&parent.0.to_be_bytes()));
                    assert!(keys.insert(key), "{length} {end}");
                }
            }
        }
        for id in [EntryId::Directory(DirId(7)), EntryId::Object(Guid([7; 16]))] {
            assert!(keys.insert(trace_key(&Trace::Ended(id))));
        }
    }
}
