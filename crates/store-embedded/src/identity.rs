//! Which catalogue a data directory holds: the file `CATALOGUE`, and the lock that lets one process in.
//!
//! The file is text, for a person who wonders what is in the directory:
//! ```text
//! exacat catalogue
//! version 1
//! id 0123456789abcdef0123456789abcdef
//! ```

use std::io;
use std::path::{Path, PathBuf};

use exacat_model::{Error, ErrorKind};

use crate::disk::{Disk, read_whole};
use crate::history::cannot_read;
use crate::log::{cannot_write, random_u64};
use crate::segment::CatalogueId;

/// The version of the directory's layout this release makes.
const VERSION: u32 = 1;
const FILE: &str = "CATALOGUE";
const LOCK: &str = "LOCK";

/// Where things lie in a data directory.
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub fn new(root: &Path) -> Self {
        Layout { root: root.to_owned() }
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Where the runs lie.
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Where the engine's first stage kept checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// Makes the directories.
    pub fn create(&self, disk: &dyn Disk) -> Result<(), Error> {
        for directory in [&self.root, &self.log(), &self.runs()] {
            disk.create_directory(directory).map_err(|error| cannot_write(directory, &error))?;
        }
        disk.sync_directory(&self.root).map_err(|error| cannot_write(&self.root, &error))
    }

    /// Takes the directory for this process.
    pub fn lock(&self, disk: &dyn Disk) -> Result<Box<dyn Send + Sync>, Error> {
        let path = self.root.join(LOCK);
        disk.lock(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{} is in use by another process: stop it, or choose another directory",
                    self.root.display()
                ),
            ),
            _ => cannot_write(&path, &error),
        })
    }

    /// The number of the catalogue here; none if there is no catalogue yet.
    pub fn read_id(&self, disk: &dyn Disk) -> Result<Option<CatalogueId>, Error> {
        let path = self.root.join(FILE);
        let file = match disk.open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot_read(&path.display().to_string(), &error)),
        };
        let bytes = read_whole(&*file).map_err(|error| cannot_read(&path.display().to_string(), &error))?;
        parse(&String::from_utf8_lossy(&bytes))
            .map(Some)
            .map_err(|(kind, what)| Error::new(kind, format!("{}: {what}", path.display())))
    }

    /// Gives a new catalogue its number.
    pub fn create_id(&self, disk: &dyn Disk) -> Result<CatalogueId, Error> {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random_u64()?.to_le_bytes());
        id[8..].copy_from_slice(&random_u64()?.to_le_bytes());
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("exacat catalogue\nversion {VERSION}\nid {hex}\n");
        let path = self.root.join(FILE);
        let unfinished = self.root.join(format!("{FILE}.unfinished"));
        let write = || -> io::Result<()> {
            let file = disk.create(&unfinished)?;
            file.write_at(text.as_bytes(), 0)?;
            file.sync()?;
            disk.rename(&unfinished, &path)?;
            disk.sync_directory(&self.root)
        };
        write().map_err(|error| cannot_write(&path, &error))?;
        Ok(id)
    }
}

fn parse(text: &str) -> Result<CatalogueId, (ErrorKind, String)> {
    let damaged = |what: &str| (ErrorKind::Corrupt, format!("{what} is missing or damaged"));
    let mut lines = text.lines();
    if lines.next() != Some("exacat catalogue") {
        return Err(damaged("the line that says what this is"));
    }
    let version = lines.next().and_then(|line| line.strip_prefix("version ")?.parse::<u32>().ok());
    let version = version.ok_or_else(|| damaged("the version"))?;
    if version > VERSION {
        let what = format!("has version {version}, this release reads up to {VERSION}: use a newer one");
        return Err((ErrorKind::Invalid, what));
    }
    let hex = lines.next().and_then(|line| line.strip_prefix("id ")).ok_or_else(|| damaged("the id"))?;
    if hex.len() != 32 || !hex.is_ascii() {
        return Err(damaged("the id"));
    }
    let mut id = [0; 16];
    for (index, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).map_err(|_| damaged("the id"))?;
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_is_refused_and_damage_is_seen() {
        let good = "exacat catalogue\nversion 1\nid 00112233445566778899aabbccddeeff\n";
        assert_eq!(parse(good).unwrap()[1], 0x11);
        assert_eq!(parse(&good.replace("version 1", "version 2")).unwrap_err().0, ErrorKind::Invalid);
        for bad in ["", "exacat", &good[..40], &good.replace("00", "zz"), &good.replace("ff\n", "\n")] {
            assert_eq!(parse(bad).unwrap_err().0, ErrorKind::Corrupt, "{bad:?}");
        }
    }
}
