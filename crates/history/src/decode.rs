//! Reads stored bytes without a history, for fuzz targets: any bytes give a result or an error, never a
//! panic.
//!
//! Contents are those of the small files and of the records, without heads and checksums.

use exacat_model::codec::{Decode, DecodeError, Reader};
use exacat_model::{Error, ErrorKind, Result};

use crate::archive_state::ArchiveState;
use crate::batch::each_checked_row;
use crate::item::Item;
use crate::latest::Latest;
use crate::manifest::Manifest;
use crate::names::Names;

fn undecodable(error: DecodeError) -> Error {
    Error::new(ErrorKind::Corrupt, error.to_string())
}

/// Reads the content of a manifest. Returns the number of its groups.
pub fn read_manifest(content: &[u8]) -> Result<usize> {
    let mut reader = Reader::new(content);
    let manifest = Manifest::decode(&mut reader).map_err(undecodable)?;
    reader.finish().map_err(undecodable)?;
    Ok(manifest.groups.len())
}

/// Reads the items of a file of names, or of a record of the log, and learns the names of one group. Rows
/// must be of these names. Returns the number of rows.
pub fn read_items(content: &[u8], names: &mut Names) -> Result<u64> {
    let (mut reader, mut rows) = (Reader::new(content), 0);
    while !reader.is_empty() {
        let item = Item::decode(&mut reader).map_err(undecodable)?;
        names.learn(&item)?;
        if let Item::Rows { count, bytes, .. } = item {
            let elements = names.counts().elements;
            each_checked_row(bytes, count, names, elements, |_, _| rows += 1).map_err(undecodable)?;
        }
    }
    Ok(rows)
}

/// Reads the latest values of the elements of a group with these names. Returns the number of values.
pub fn read_latest(content: &[u8], names: &Names) -> Result<u64> {
    let elements = names.counts().elements;
    let (latest, mut values) = (Latest::decode(content, names, elements).map_err(undecodable)?, 0);
    for element in 0..elements {
        latest.read(element, names, |_, _, _| values += 1);
    }
    Ok(values)
}

/// Reads the text of the file `ARCHIVE`.
pub fn read_archive_state(text: &str) -> Result<()> {
    let state = ArchiveState::parse(text);
    state.map(|_| ()).map_err(|what| Error::new(ErrorKind::Corrupt, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds of the fuzz target are files of the golden history, and are read.
    #[test]
    fn seeds_of_the_fuzz_target_are_read() {
        let mut names = Names::new(1);
        read_items(&include_bytes!("../../../fuzz/seeds/history_files/items")[1..], &mut names).unwrap();
        assert!(names.element_count() > 0);
        let latest = &include_bytes!("../../../fuzz/seeds/history_files/latest")[1..];
        assert!(read_latest(latest, &names).unwrap() > 0);
        let manifest = &include_bytes!("../../../fuzz/seeds/history_files/manifest")[1..];
        assert!(read_manifest(manifest).unwrap() > 0);
        read_archive_state(include_str!("golden/archive-v1.txt")).unwrap();
    }
}
