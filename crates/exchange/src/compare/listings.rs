//! Listings of a comparison: a file for each class, in the form that the command for it takes.

use std::io::{BufWriter, Write};
use std::path::Path;

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::{Guid, SeName};

use super::classes::{Class, Outcome};
use super::paths::PathRules;
use super::record::{CatalogueCopy, StoredFile, WaitingDeletion};
use super::sorter::{Order, Sorted, Sorter, split};
use crate::error::Error;
use crate::limits::COMPARE_LISTING_MEMORY;
use crate::output::OutputFile;

/// Classes that have a listing.
pub const LISTED: [Class; 8] = [
    Class::Lost,
    Class::Dark,
    Class::WrongSize,
    Class::WrongChecksum,
    Class::Found,
    Class::Deleted,
    Class::OnTheWay,
    Class::Undecided,
];

/// Header of the listing of dark files: roles of columns, as an import takes them.
const DARK_HEADER: &[u8] = b"lfn\tsize\tchecksum\tpfn\tse\tguid\n";

/// Path of one class with its facts.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedPath {
    /// The path on the storage.
    pub path: String,
    /// Copy of the catalogue, if it has one.
    pub copy: Option<CatalogueCopy>,
    /// File of the dump, if it has one.
    pub stored: Option<StoredFile>,
    /// Deletion that waits, if one does.
    pub deletion: Option<WaitingDeletion>,
}

impl ListedPath {
    fn of_record(record: &[u8]) -> Result<Self, DecodeError> {
        let (key, rest) = split(record);
        let mut reader = Reader::new(rest);
        Ok(ListedPath {
            path: String::from_utf8_lossy(key).into_owned(),
            copy: Decode::decode(&mut reader)?,
            stored: Decode::decode(&mut reader)?,
            deletion: Decode::decode(&mut reader)?,
        })
    }

    /// Returns the identity of a dark file: that of its derived path, or one that follows from its PFN,
    /// so that a repeated adoption finds it.
    pub fn guid(&self, rules: &PathRules, se: &SeName) -> Guid {
        if let Some(guid) = self.derived(rules) {
            return guid;
        }
        let text = format!("{se} {}", rules.pfn(&self.path));
        let mut bytes = xxhash_rust::xxh3::xxh3_128(text.as_bytes()).to_be_bytes();
        // Version 8 of a UUID: made by an application.
        bytes[6] = 0x80 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        Guid(bytes)
    }

    /// Returns the identity of a file whose path follows from it.
    pub fn derived(&self, rules: &PathRules) -> Option<Guid> {
        rules.below_prefix(&self.path).and_then(Guid::of_storage_path)
    }
}

/// Paths of one class, in the order of their bytes.
pub struct ClassPaths(Sorted);

impl ClassPaths {
    /// Returns the next path; none at the end.
    pub fn next_path(&mut self) -> Result<Option<ListedPath>, Error> {
        let mut found = None;
        self.0.next(|record| {
            found = Some(ListedPath::of_record(record).map_err(|_| Error::Broken("sorting"))?);
            Ok(())
        })?;
        Ok(found)
    }
}

/// Collector of the paths of one class.
pub(crate) struct Collector {
    sorter: Sorter,
    rest: Vec<u8>,
}

impl Collector {
    pub(crate) fn new(temporary: &Path) -> Self {
        Collector { sorter: Sorter::new(Order::Key, COMPARE_LISTING_MEMORY, temporary), rest: Vec::new() }
    }

    pub(crate) fn push(&mut self, path: &[u8], outcome: &Outcome<'_>) -> Result<(), Error> {
        self.rest.clear();
        outcome.copy.cloned().encode(&mut self.rest);
        outcome.stored.copied().encode(&mut self.rest);
        outcome.deletion.cloned().encode(&mut self.rest);
        self.sorter.push(path, (&self.rest, &[]))
    }

    pub(crate) fn paths(self) -> Result<ClassPaths, Error> {
        self.sorter.sorted().map(ClassPaths)
    }
}

/// Writes the listing of a class. The file appears under its name when it is whole.
pub fn write_listing(
    class: Class,
    mut paths: ClassPaths,
    (rules, se): (&PathRules, &SeName),
    path: &Path,
) -> Result<u64, Error> {
    let output = OutputFile::create(path)?;
    let cannot = |error| Error::file("write", path, error);
    let mut out = BufWriter::with_capacity(1 << 18, output.writer()?);
    if class == Class::Dark {
        out.write_all(DARK_HEADER).map_err(cannot)?;
    }
    let mut rows = 0;
    while let Some(listed) = paths.next_path()? {
        out.write_all(row(class, &listed, rules, se).as_bytes()).map_err(cannot)?;
        rows += 1;
    }
    out.flush().map_err(cannot)?;
    drop(out);
    output.finish()?;
    Ok(rows)
}

fn number(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| bytes.to_string())
}

fn row(class: Class, listed: &ListedPath, rules: &PathRules, se: &SeName) -> String {
    let path = &listed.path;
    let stored = listed.stored.as_ref();
    let stored_size = number(stored.and_then(|stored| stored.size));
    let stored_checksum =
        stored.and_then(|stored| stored.checksum).map_or_else(String::new, |checksum| checksum.to_string());
    let copy = listed.copy.as_ref();
    let guid = copy.map_or_else(String::new, |copy| copy.guid.to_string());
    let size = number(copy.and_then(|copy| copy.size));
    match class {
        Class::Dark => {
            let derived = listed.derived(rules).map_or_else(String::new, |guid| guid.to_string());
            format!("{path}\t{stored_size}\t{stored_checksum}\t{}\t{se}\t{derived}\n", rules.pfn(path))
        }
        Class::WrongSize => format!("{guid}\t{path}\t{size}\t{stored_size}\n"),
        Class::WrongChecksum => {
            let found = stored.and_then(|stored| stored.checksum);
            let known = copy.zip(found).and_then(|(copy, found)| copy.checksums.get(found.algorithm()));
            let known = known.map_or_else(String::new, |checksum| checksum.to_string());
            format!("{guid}\t{path}\t{known}\t{stored_checksum}\n")
        }
        Class::Deleted => {
            let waiting = listed.deletion.as_ref();
            let id = waiting.map_or("", |waiting| waiting.id.as_str());
            format!("{id}\t{path}\t{}\n", number(waiting.and_then(|waiting| waiting.size)))
        }
        Class::OnTheWay | Class::Undecided => {
            let place = match (stored, copy) {
                (Some(_), Some(_)) => "both",
                (Some(_), None) => "storage",
                _ => "catalogue",
            };
            let bytes = if stored_size.is_empty() { size } else { stored_size };
            format!("{guid}\t{path}\t{bytes}\t{place}\n")
        }
        _ => format!("{guid}\t{path}\t{size}\n"),
    }
}
