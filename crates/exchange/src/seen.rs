//! Names in the earlier rows of a listing, to find repeated names, and names that are both a file
//! and a directory.
//!
//! They are kept as 128-bit hashes (XXH3), so the number of rows bounds the memory, whatever the
//! length of names: 16 bytes for each row and 16 for each directory, with the tables' slack 20 to
//! 40. Two of 10^9 different names have the same hash with a probability of about 10^-21.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use exacat_model::{FileRef, Lfn};
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

use crate::item::{Item, OtherKind};
use crate::options::Repeats;
use crate::reject::{Complaint, Reason};

/// Hasher whose result is the hash itself.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

type Hashes = HashSet<u128, BuildHasherDefault<Identity>>;

/// Returns the hash of a name.
pub(crate) fn hash(lfn: &str) -> u128 {
    xxh3_128(lfn.as_bytes())
}

/// Names seen so far.
#[derive(Default)]
pub(crate) struct Seen {
    repeats: Repeats,
    /// Rows that are no directories.
    leaves: Hashes,
    /// Directory rows.
    directories: Hashes,
    /// Parents of any row at every level, and directory rows.
    above: Hashes,
    members: Hashes,
    last_parent: String,
}

impl Seen {
    pub(crate) fn new(repeats: Repeats) -> Self {
        Seen { repeats, ..Seen::default() }
    }

    /// Takes a row, or returns why it contradicts earlier ones. Returns the hash of its name, and
    /// whether an earlier row had it.
    pub(crate) fn take(&mut self, item: &Item) -> Result<(u128, bool), Complaint> {
        let (lfn, directory) = match item {
            Item::File(file, _) => (&file.lfn, false),
            Item::Other(other) => (&other.lfn, other.what == OtherKind::Directory),
            Item::Member { collection, file } => return Ok((self.take_member(collection, file)?, false)),
        };
        let name = hash(lfn.as_str());
        if directory {
            self.take_directory(lfn, name)?;
            return Ok((name, false));
        }
        Ok((name, !self.take_leaf(lfn, name)?))
    }

    fn take_directory(&mut self, lfn: &Lfn, name: u128) -> Result<(), Complaint> {
        if self.directories.contains(&name) {
            return Err(repeated(lfn));
        }
        if self.leaves.contains(&name) {
            return Err(is_file(lfn.as_str()));
        }
        self.take_parents(lfn)?;
        self.directories.insert(name);
        self.above.insert(name);
        Ok(())
    }

    /// Takes a row that is no directory; true if its name is new. It makes one access to the
    /// largest table, which misses all caches. A row that does not fit is removed again.
    fn take_leaf(&mut self, lfn: &Lfn, name: u128) -> Result<bool, Complaint> {
        let new = self.leaves.insert(name);
        if !new && self.repeats == Repeats::Reject {
            return Err(repeated(lfn));
        }
        let fits = match self.above.contains(&name) {
            true => Err(Complaint::new(
                Reason::ParentIsFile,
                format!("earlier rows have {:.200} as a directory", lfn.as_str()),
            )),
            false => self.take_parents(lfn),
        };
        if fits.is_err() && new {
            self.leaves.remove(&name);
        }
        fits.map(|()| new)
    }

    /// Takes the parents of a row. Rows of one directory are adjacent, so this checks them only
    /// when the directory changes.
    fn take_parents(&mut self, lfn: &Lfn) -> Result<(), Complaint> {
        let Some((parent, _)) = lfn.split_last() else { return Ok(()) };
        if parent == self.last_parent {
            return Ok(());
        }
        let mut new = Vec::new();
        let mut above = parent;
        while above.len() > 1 {
            let name = hash(above);
            // The parents of a directory that was seen were seen with it.
            if self.above.contains(&name) {
                break;
            }
            if self.leaves.contains(&name) {
                return Err(is_file(above));
            }
            new.push(name);
            above = above.rsplit_once('/').map_or("", |(above, _)| above);
        }
        self.above.extend(new);
        self.last_parent.clear();
        self.last_parent.push_str(parent);
        Ok(())
    }

    fn take_member(&mut self, collection: &Lfn, file: &FileRef) -> Result<u128, Complaint> {
        let seed = hash(collection.as_str()) as u64;
        let name = match file {
            FileRef::Lfn(lfn) => xxh3_128_with_seed(lfn.as_str().as_bytes(), seed),
            FileRef::Guid(guid) => xxh3_128_with_seed(&guid.0, !seed),
        };
        if !self.members.insert(name) && self.repeats == Repeats::Reject {
            return Err(Complaint::new(
                Reason::Duplicate,
                format!("an earlier row has the same member of {:.200}", collection.as_str()),
            ));
        }
        Ok(name)
    }
}

fn repeated(lfn: &Lfn) -> Complaint {
    Complaint::new(Reason::Duplicate, format!("an earlier row has {:.200}", lfn.as_str()))
}

fn is_file(lfn: &str) -> Complaint {
    Complaint::new(Reason::ParentIsFile, format!("an earlier row has {lfn:.200} as a file"))
}

#[cfg(test)]
mod tests {
    use exacat_model::operation::NewFile;

    use super::*;
    use crate::item::Other;

    fn file(lfn: &str) -> Item {
        Item::File(Box::new(NewFile::named(Lfn::parse(lfn).unwrap())), None)
    }

    fn directory(lfn: &str) -> Item {
        Item::Other(Other {
            lfn: Lfn::parse(lfn).unwrap(),
            what: OtherKind::Directory,
            owner: None,
            group: None,
            mode: None,
            modified: None,
            expires: None,
            tags: Vec::new(),
        })
    }

    fn reasons(repeats: Repeats, items: &[Item]) -> Vec<Option<Reason>> {
        let mut seen = Seen::new(repeats);
        items.iter().map(|item| seen.take(item).err().map(|complaint| complaint.reason)).collect()
    }

    #[test]
    fn the_first_row_of_a_name_counts() {
        let items = [file("/a/b"), file("/a/c"), file("/a/b"), directory("/a"), directory("/a"), file("/d")];
        let duplicate = Some(Reason::Duplicate);
        assert_eq!(reasons(Repeats::Reject, &items), [None, None, duplicate, None, duplicate, None]);
        assert_eq!(reasons(Repeats::Keep, &items), [None, None, None, None, duplicate, None]);
    }

    #[test]
    fn a_name_is_a_file_or_a_directory() {
        let bad = Some(Reason::ParentIsFile);
        let items = [
            file("/a/b"),
            file("/a/b/c"),
            file("/a/b/c/d"),
            file("/x/y/z"),
            file("/x/y"),
            file("/x"),
            directory("/a/b"),
            file("/x/y/zz"),
            directory("/q"),
            file("/q"),
        ];
        for repeats in [Repeats::Reject, Repeats::Keep] {
            assert_eq!(
                reasons(repeats, &items),
                [None, bad, bad, None, bad, bad, bad, None, None, bad],
                "{repeats:?}"
            );
        }
    }

    #[test]
    fn members_repeat_within_a_collection_only() {
        let member = |collection: &str, file: &str| Item::Member {
            collection: Lfn::parse(collection).unwrap(),
            file: FileRef::Lfn(Lfn::parse(file).unwrap()),
        };
        let items = [member("/c", "/f"), member("/d", "/f"), member("/c", "/f"), member("/c", "/g")];
        assert_eq!(reasons(Repeats::Reject, &items), [None, None, Some(Reason::Duplicate), None]);
    }
}
