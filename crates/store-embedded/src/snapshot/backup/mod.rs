//! Backups: copies of snapshots on another file system, and catalogues restored from there.
//!
//! ```text
//!   DIR/BACKUPS                           identity of the catalogue
//!   DIR/runs/NUMBER-SALT.run              runs, shared by all backups that have them
//!   DIR/log/REVISION-SALT-LAST.log        segments up to their last revision, shared as well
//!   DIR/history/files, DIR/history/log    the same of the companion, under ID-NAME
//!   DIR/backups/NAME/history/             its small files, as in a snapshot
//!   DIR/backups/NAME/                     CATALOGUE · manifest · FILES: the list of files
//!                                         · SNAPSHOT, written last
//! ```
//! Runs and sealed segments never change, so a backup copies only files that are newer than the
//! backup before. Every file is written under another name, synced, read back and checked, and
//! renamed last: a file with its final name is whole. The backup exists once its directory has its
//! name, which is the last step.

mod back;
mod copy;
mod files;
mod run;

pub use back::BackupSource;
pub(crate) use back::{has_backups, list_backups, restore_backup, verify_backups};
pub(super) use copy::Copy;
use files::BackupPart;
pub(crate) use run::Backing;

use std::io;
use std::path::{Path, PathBuf};

use exacat_disk::{
    Disk, cannot_read, cannot_write, exists, list_if_there, read_text, read_whole, replace_small, write_small,
};
use exacat_log::segment::CatalogueId;
use exacat_model::{Error, ErrorKind, Result, Revision, SnapshotName, TimeMs};

use super::label::Label;
use crate::checked_text::{check_checksum, check_version, with_checksum};
use crate::identity::{hex, parse_hex};

const FILE: &str = "BACKUPS";
const VERSION: u32 = 1;
/// Small files of the companion's part of a snapshot.
const PART_FILES: [&str; 3] = ["HISTORY", "manifest", "MOMENT"];
/// Files of a backup in its own directory.
const MANIFEST: &str = "manifest";
const CATALOGUE: &str = crate::identity::FILE;

/// Description of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// Name in the directory of backups.
    pub name: SnapshotName,
    /// Last change in it.
    pub revision: Revision,
    /// Time at which it was taken.
    pub time: TimeMs,
    /// Entries in the tree and the trash, without the root.
    pub entries: u64,
}

/// A directory with backups.
#[derive(Clone, Debug)]
struct Shelter {
    root: PathBuf,
}

impl Shelter {
    fn new(root: &Path) -> Self {
        Shelter { root: root.to_owned() }
    }

    fn backups(&self) -> PathBuf {
        self.root.join("backups")
    }

    fn backup(&self, name: &SnapshotName) -> PathBuf {
        self.backups().join(name.as_str())
    }

    /// Returns the catalogue whose backups are here; none if there are none.
    fn catalogue(&self, disk: &dyn Disk) -> Result<Option<CatalogueId>> {
        let path = self.root.join(FILE);
        let shown = path.display().to_string();
        let Some(text) = read_text(disk, &path).map_err(|error| cannot_read(&shown, &error))? else {
            return Ok(None);
        };
        let parsed = decode(&text).map_err(|error| Error::new(error.kind, format!("{shown}: {error}")))?;
        Ok(Some(parsed))
    }

    /// Prepares the directory for backups of this catalogue, if it is not prepared yet.
    fn make(&self, disk: &dyn Disk, catalogue: CatalogueId, with_part: bool) -> Result<()> {
        let shown = self.root.display();
        match self.catalogue(disk)? {
            Some(there) if there == catalogue => {}
            Some(_) => {
                return Err(Error::invalid(format!(
                    "{shown} has backups of another catalogue: choose another directory"
                )));
            }
            None => {
                let names = list_if_there(disk, &self.root)
                    .map_err(|error| cannot_read(&shown.to_string(), &error))?;
                // An interrupted first backup leaves files that begin so.
                if names.iter().any(|name| !name.starts_with(FILE) && name != LOCK) {
                    return Err(Error::invalid(format!(
                        "{shown} is not empty and has no backups: choose an empty directory"
                    )));
                }
            }
        }
        let made = || {
            for directory in [&self.root, &self.root.join("runs"), &self.root.join("log"), &self.backups()] {
                disk.create_directory(directory)?;
            }
            if with_part {
                disk.create_directory(&self.root.join(BackupPart::Part(0).directory()))?;
                disk.create_directory(&self.root.join(BackupPart::PartLog(0).directory()))?;
            }
            replace_small(disk, &self.root, FILE, encode(catalogue).as_bytes())
        };
        made().map_err(|error| cannot_use(&self.root, &error))
    }

    /// Returns the complete backups, the oldest first.
    fn list(&self, disk: &dyn Disk) -> Result<Vec<Label>> {
        let directory = self.backups();
        let names = list_if_there(disk, &directory)
            .map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
        let names = names.iter().filter_map(|name| SnapshotName::parse(name).ok());
        let labels: Result<Vec<Label>> = names.map(|name| Label::load(disk, &self.backup(&name))).collect();
        let mut labels = labels?;
        labels.sort_by_key(|label| (label.time, label.revision));
        Ok(labels)
    }
}

/// Returns the error for a directory that cannot hold backups. A lasting cause gives an error
/// without retry.
fn cannot_use(directory: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::InvalidFilename
        | io::ErrorKind::InvalidInput => Error::invalid(format!(
            "{} cannot have backups: {error}: choose a directory that the server's user may write to",
            directory.display()
        )),
        _ => cannot_write(directory, error),
    }
}

/// Parses one of this module's text files and prints it again; none if no file has this name.
pub(super) fn read_again(name: &str, text: &str) -> Option<Result<String>> {
    match name {
        FILE => Some(decode(text).map(encode)),
        files::NAME => Some(files::decode(text).map(|files| files::encode(&files))),
        _ => None,
    }
}

/// Files of a backup by their names: runs by number, segments by first revision.
pub(crate) struct BackupFiles {
    pub runs: Vec<(u64, String)>,
    pub log: Vec<(u64, String)>,
}

/// Returns the files of the backup in this directory; none if the list is unreadable.
pub(crate) fn files_of_backup(disk: &dyn Disk, directory: &Path) -> Option<BackupFiles> {
    let mut of = BackupFiles { runs: Vec::new(), log: Vec::new() };
    for file in files::load(disk, directory).ok()? {
        match file.part {
            BackupPart::Run(number) => of.runs.push((number, file.name)),
            BackupPart::Log(first) => of.log.push((first, file.name)),
            BackupPart::Part(_) | BackupPart::PartLog(_) => {}
        }
    }
    Some(of)
}

fn copy_small(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    let shown = from.display().to_string();
    let file = disk.open_to_read(from).map_err(|error| cannot_read(&shown, &error))?;
    let bytes = read_whole(&*file).map_err(|error| cannot_read(&shown, &error))?;
    write_small(disk, to, &bytes).map_err(|error| cannot_write(to, &error))
}

/// Copies the small files of a companion's part, as far as they are there: one that never wrote a run has
/// no manifest.
fn copy_part_files(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    for name in PART_FILES {
        let path = from.join(name);
        if exists(disk, &path).map_err(|error| cannot_read(&path.display().to_string(), &error))? {
            copy_small(disk, &path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Lock file of a process that writes into a directory of backups.
const LOCK: &str = "LOCK";

fn encode(catalogue: CatalogueId) -> String {
    with_checksum(format!("exacat backups\nversion {VERSION}\ncatalogue {}\n", hex(catalogue)))
}

fn decode(text: &str) -> Result<CatalogueId> {
    let damaged = || Error::new(ErrorKind::Corrupt, "it is damaged");
    let mut lines = text.lines();
    if lines.next() != Some("exacat backups") {
        return Err(damaged());
    }
    check_version(lines.next(), VERSION)?;
    check_checksum(text)?;
    lines.next().and_then(|line| parse_hex(line.strip_prefix("catalogue ")?)).ok_or_else(damaged)
}
