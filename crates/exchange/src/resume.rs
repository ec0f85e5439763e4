//! The state file of an import, with which an interrupted import resumes.
//!
//! It records the listing, its options, and two rows:
//!
//! - `durable`: everything before it is done. A resumed run skips to it.
//! - `ceiling`: rows before it may have been sent. The importer writes the file before it sends
//!   anything beyond the ceiling. So the interrupted run may have put these rows into the
//!   catalogue; finding them there is no conflict under any policy.
//!
//! It also records the revision and timeline at which the catalogue had everything before
//! `durable`. A catalogue without that revision is another one, or was restored since.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::batches::Pass;
use crate::error::Error;
use crate::input::Identity;

/// Place of the state file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateAt {
    /// Beside the listing, with `.exacat-import` after its name; none if that is not writable, or
    /// the listing is a pipe.
    #[default]
    Beside,
    /// At this path.
    At(PathBuf),
    /// None: an interrupted import starts again from the first row.
    Nowhere,
}

/// Suffix of the default state file.
pub const STATE_SUFFIX: &str = ".exacat-import";

/// Returns the default path of a listing's state file.
pub fn state_beside(listing: &Path) -> PathBuf {
    let mut name = listing.as_os_str().to_owned();
    name.push(STATE_SUFFIX);
    PathBuf::from(name)
}

/// Content of a state file.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct State {
    pub(crate) version: u32,
    /// Place in the catalogue's history after all rows before `durable` (`2315.3f9a1c…`). Version 1
    /// had none.
    #[serde(default)]
    pub(crate) position: Option<String>,
    pub(crate) listing: Identity,
    /// Hash of the options, which shows that rows mean the same as before.
    pub(crate) options: String,
    pub(crate) pass: Pass,
    pub(crate) durable: u64,
    pub(crate) ceiling: u64,
    /// Bytes of the reject file that belong to the rows before `durable`.
    pub(crate) reject_bytes: u64,
    pub(crate) rejects: Vec<(String, u64)>,
    pub(crate) counts: crate::counts::Counts,
}

pub(crate) const STATE_VERSION: u32 = 2;
/// Version without a position in the history.
const STATE_VERSION_WITHOUT_POSITION: u32 = 1;

impl State {
    /// Reads the state file; none if there is none.
    pub(crate) fn load(path: &Path) -> Result<Option<State>, Error> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("read", path, error)),
        };
        match serde_json::from_slice::<State>(&text) {
            Ok(state)
                if state.version == STATE_VERSION && state.position.is_some()
                    || state.version == STATE_VERSION_WITHOUT_POSITION =>
            {
                Ok(Some(state))
            }
            Ok(state) => Err(Error::options(format!(
                "{} is of version {}, this program knows {STATE_VERSION}: start anew, or use the program that wrote it",
                path.display(),
                state.version
            ))),
            Err(error) => Err(Error::options(format!(
                "{} is no state file of an import ({error}): start anew, or remove it",
                path.display()
            ))),
        }
    }

    /// Checks that it belongs to this listing, read with the same options.
    pub(crate) fn check(&self, path: &Path, listing: &Identity, options: &str) -> Result<(), Error> {
        if self.listing != *listing {
            return Err(Error::options(format!(
                "an import of this listing was interrupted, and the listing changed since: start anew, or remove {}",
                path.display()
            )));
        }
        if self.options != options {
            return Err(Error::options(format!(
                "an import of this listing was interrupted that had other options: give the same ones, start anew, or remove {}",
                path.display()
            )));
        }
        Ok(())
    }

    /// Writes the file completely or not at all, and durably.
    pub(crate) fn save(&self, path: &Path) -> Result<(), Error> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        let cannot = |error| Error::file("write", path, error);
        let text = serde_json::to_vec_pretty(self).map_err(|error| cannot(std::io::Error::other(error)))?;
        let mut file = File::create(&fresh).map_err(cannot)?;
        file.write_all(&text).and_then(|()| file.sync_data()).map_err(cannot)?;
        std::fs::rename(&fresh, path).map_err(cannot)
    }

    /// Removes the file.
    pub(crate) fn remove(path: &Path) -> Result<(), Error> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file("remove", path, error))
            }
            _ => Ok(()),
        }
    }
}

/// Attempts to recreate a lock file that another import removed meanwhile.
const LOCK_ATTEMPTS_MAX: usize = 100;

/// Lock on a state file: of two imports with one state file the second is refused. It is a separate
/// file, because the state gets a new inode at each write.
#[derive(Debug)]
pub(crate) struct StateLock {
    path: PathBuf,
    _file: File,
}

impl StateLock {
    /// Takes the lock, and holds it until it is dropped.
    pub(crate) fn take(state: &Path) -> Result<StateLock, Error> {
        let mut name = state.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let cannot = |error| Error::file("write", &path, error);
        for _ in 0..LOCK_ATTEMPTS_MAX {
            let opened = File::options().write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(cannot)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::options(format!(
                        "another import is using {}: wait for its end, or name another state file with --state",
                        state.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
            // The last holder may have removed the file between the opening and the lock.
            let same = |named: std::fs::Metadata| {
                file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (named.dev(), named.ino()))
            };
            if std::fs::metadata(&path).is_ok_and(same) {
                return Ok(StateLock { path, _file: file });
            }
        }
        Err(cannot(std::io::Error::other("others take and remove it again and again")))
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // Removed while the lock is held. The next import takes a file that remains.
        let _stays = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_written_and_fits_its_listing_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = state_beside(&directory.path().join("listing.tsv.zst"));
        assert!(path.to_str().unwrap().ends_with("listing.tsv.zst.exacat-import"));
        assert!(State::load(&path).unwrap().is_none());
        let listing = Identity { size: 3, modified_ns: 4, head: "5".into() };
        let state = State {
            version: STATE_VERSION,
            position: Some("7.3f9a1c".into()),
            listing: listing.clone(),
            options: "o".into(),
            pass: Pass::Second,
            durable: 7,
            ceiling: 9,
            reject_bytes: 11,
            rejects: vec![("bad-size".into(), 2)],
            counts: crate::counts::Counts { created: 1, ..Default::default() },
        };
        state.save(&path).unwrap();
        assert_eq!(State::load(&path).unwrap().unwrap(), state);
        state.check(&path, &listing, "o").unwrap();
        assert!(state.check(&path, &Identity { size: 4, ..listing.clone() }, "o").is_err());
        assert!(state.check(&path, &listing, "p").is_err());
        let first = State { version: 1, position: None, ..state.clone() };
        first.save(&path).unwrap();
        assert_eq!(State::load(&path).unwrap().unwrap(), first, "a version without a position");
        State { position: None, ..state.clone() }.save(&path).unwrap();
        assert!(State::load(&path).is_err());
        State { version: 99, ..state }.save(&path).unwrap();
        assert!(State::load(&path).unwrap_err().to_string().contains("version 99"));
        std::fs::write(&path, "{").unwrap();
        assert!(State::load(&path).is_err());
        State::remove(&path).unwrap();
        State::remove(&path).unwrap();
    }
}
