//! The moment at which a restore takes effect.
//!
//! A restore prepares the new log and the new runs in `restore.prepared`, beside the old ones. Once
//! they are whole and durable, the restore writes the file RESTORE. From then on it is done except
//! for renames, which the next opening completes. Before that moment it is not done, and the next
//! opening removes what was prepared.
//!
//! The old files move to `set-replaced_copy/NUMBER`, laid out as a data directory. The engine never removes
//! this replaced copy by itself.
//!
//! ```text
//!   RESTORE written ► log ► replaced/N/log ► restore.prepared/log ► log
//!     ► the same for runs, for the companion's directory beside the catalogue's if it is restored
//!     (and for CATALOGUE, if it comes from elsewhere) ► RESTORE removed
//! ```
//! RESTORE is text:
//! ```text
//! exacat restore
//! version 1
//! set-aside 3
//! checksum 01234567
//! ```

use std::io;
use std::path::{Path, PathBuf};

use exacat_disk::{
    Disk, cannot_read, cannot_write, exists, list_if_there, read_text, remove_tree, replace_small,
};
use exacat_model::{Error, ErrorKind, Result};

use crate::checked_text::{check_checksum, check_version, with_checksum};
use crate::companion::COMPANION;
use crate::identity::{FILE as CATALOGUE, Identity, Layout};

pub(super) const FILE: &str = "RESTORE";
const VERSION: u32 = 1;

pub(super) fn encode(number: u64) -> String {
    with_checksum(format!("exacat restore\nversion {VERSION}\nset-aside {number}\n"))
}

pub(super) fn decode(text: &str) -> Result<u64> {
    let damaged = || Error::new(ErrorKind::Corrupt, "it is damaged");
    let mut lines = text.lines();
    if lines.next() != Some("exacat restore") {
        return Err(damaged());
    }
    check_version(lines.next(), VERSION)?;
    check_checksum(text)?;
    lines.next().and_then(|line| line.strip_prefix("set-aside ")?.parse().ok()).ok_or_else(damaged)
}

/// Returns the number of the restore that only lacks renames; none if there is none.
fn marked(disk: &dyn Disk, data: &Layout) -> Result<Option<u64>> {
    let path = data.root().join(FILE);
    let shown = path.display().to_string();
    let text = read_text(disk, &path).map_err(|error| cannot_read(&shown, &error))?;
    let number = text.map(|text| decode(&text)).transpose();
    number.map_err(|error| Error::new(error.kind, format!("{shown}: {error}")))
}

/// Fails if a restore is unfinished: only opening, or another restore, ends it.
pub(crate) fn check_finished(disk: &dyn Disk, data: &Layout) -> Result<()> {
    match marked(disk, data)? {
        None => Ok(()),
        Some(_) => Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "a restore of {} was interrupted: opening it, as a server does, completes it",
                data.root().display()
            ),
        )),
    }
}

/// Returns the number of the next replaced copy.
pub(crate) fn next_replaced(disk: &dyn Disk, data: &Layout) -> Result<u64> {
    let directory = data.replaced();
    let names = list_if_there(disk, &directory)
        .map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    Ok(names.iter().filter_map(|name| name.parse::<u64>().ok()).max().unwrap_or(0) + 1)
}

/// Returns the path of a replaced copy.
pub(crate) fn replaced_copy(data: &Layout, number: u64) -> PathBuf {
    data.replaced().join(number.to_string())
}

/// Makes the prepared state count, and moves the old one to the replaced copy. After an error
/// either may count.
pub(crate) fn switch(disk: &dyn Disk, data: &Layout, number: u64, was: Option<&Identity>) -> Result<()> {
    let replaced_copy = Layout::new(&replaced_copy(data, number));
    let cannot = |error: io::Error| cannot_write(data.root(), &error);
    disk.create_directory(replaced_copy.root()).map_err(cannot)?;
    if let Some(identity) = was {
        replaced_copy.write_identity(disk, identity)?;
    }
    disk.sync_directory(replaced_copy.root())
        .and_then(|()| disk.sync_directory(&data.replaced()))
        .and_then(|()| disk.sync_directory(&data.prepared()))
        .and_then(|()| disk.sync_directory(data.root()))
        .and_then(|()| replace_small(disk, data.root(), FILE, encode(number).as_bytes()))
        .map_err(cannot)?;
    finish_or_undo(disk, data)
}

/// Completes a restore that only lacks renames, and removes the leftovers of one that was not done.
/// The caller must hold the lock of the directory, and call this before it reads or writes anything
/// there.
pub(crate) fn finish_or_undo(disk: &dyn Disk, data: &Layout) -> Result<()> {
    let cannot = |error: io::Error| cannot_write(data.root(), &error);
    if let Some(number) = marked(disk, data)? {
        let replaced_copy = replaced_copy(data, number);
        for part in ["log", "runs", COMPANION, CATALOGUE] {
            take_place(disk, data, &replaced_copy, part).map_err(cannot)?;
        }
        disk.remove(&data.root().join(FILE))
            .and_then(|()| disk.sync_directory(data.root()))
            .map_err(cannot)?;
        tracing::info!(replaced = %replaced_copy.display(), "the catalogue was restored; the earlier catalogue is kept as a replaced copy");
        // The directory was empty before, so the copy is empty too.
        if list_if_there(disk, &replaced_copy).is_ok_and(|names| names.is_empty()) {
            disk.remove_directory(&replaced_copy).map_err(cannot)?;
        }
    } else if data.read_identity(disk)?.is_none() && exists(disk, &data.prepared()).map_err(cannot)? {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "a restore into {} was interrupted before it was done: run it again, or remove {}",
                data.root().display(),
                data.prepared().display()
            ),
        ));
    }
    remove_tree(disk, &data.prepared()).map_err(cannot)
}

/// Returns the place of a part: in the directory of the catalogue, or beside it.
pub(super) fn place_of(data: &Layout, part: &str) -> PathBuf {
    match part {
        COMPANION => data.root().with_file_name(COMPANION),
        part => data.root().join(part),
    }
}

fn sync_names_beside(disk: &dyn Disk, place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), |directory| disk.sync_directory(directory))
}

fn take_place(disk: &dyn Disk, data: &Layout, replaced_copy: &Path, part: &str) -> io::Result<()> {
    let (prepared, place) = (data.prepared().join(part), place_of(data, part));
    if !exists(disk, &prepared)? {
        return Ok(());
    }
    if exists(disk, &place)? {
        disk.rename(&place, &replaced_copy.join(part))?;
        disk.sync_directory(replaced_copy)?;
        sync_names_beside(disk, &place)?;
    }
    disk.rename(&prepared, &place)?;
    sync_names_beside(disk, &place)?;
    disk.sync_directory(&data.prepared())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_read_as_written_or_not_at_all() {
        let text = encode(3);
        assert_eq!(text, include_str!("../tests/golden/restore-v1.txt"));
        assert_eq!(decode(&text).unwrap(), 3);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(decode(&String::from_utf8_lossy(&bytes)).is_err(), "byte {at}");
            assert!(decode(&text[..at]).is_err(), "cut at {at}");
        }
    }
}
