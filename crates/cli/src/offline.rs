//! Catalogue of a data directory, opened in this process while no server uses it.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, SnapshotName};
use exacat_store::{CLOCK_JUMP, Clock, SystemClock, WatchedClock};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};

use crate::args::Connection;
use crate::connect::data_directory;
use crate::failure::{Failure, say};

/// Takes the lock that a server holds: two processes must not replay the log. `instead` is the
/// advice if a server holds it.
pub(crate) fn lock(directory: &Path, instead: &str) -> Result<File, Failure> {
    let file = lock_file(&directory.join("server.lock"))?;
    locked(file, directory, &format!("a server uses this data directory: {instead}"))
}

/// Opens a file that is there to be locked.
pub(crate) fn lock_file(path: &Path) -> Result<File, Failure> {
    let file = File::options().mode(0o600).create(true).truncate(false).write(true).open(path);
    file.map_err(|error| Failure::local(format!("cannot open {}: {error}", path.display())))
}

/// Locks a file of a directory. `busy` says who may have the lock, and what to do.
pub(crate) fn locked(file: File, directory: &Path, busy: &str) -> Result<File, Failure> {
    match exacat_disk::lock_exclusively(&file) {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Failure::about(directory.display().to_string(), Error::new(ErrorKind::Unavailable, busy)))
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(Failure::local(format!("cannot lock {}: {error}", directory.display())))
        }
    }
}

/// Bytes of page cache of a command that reads the catalogue once, in order. A larger one would not be used
/// again: it would only be new memory, which the kernel clears first.
const READ_CACHE_BYTES: u64 = 64 << 20;

/// Returns the settings of a store that is read once, in order.
fn read_once(directory: &Path) -> EmbeddedSettings {
    EmbeddedSettings { cache_bytes: READ_CACHE_BYTES, ..EmbeddedSettings::at(directory.join("store")) }
}

/// Open store, and the lock that keeps servers out.
pub(crate) struct Offline {
    /// The store.
    pub store: Arc<EmbeddedStore>,
    /// Clock of the store.
    pub clock: Arc<dyn Clock>,
    /// Data directory, with the server's files.
    directory: PathBuf,
    /// None for a snapshot, which never changes.
    _lock: Option<File>,
}

impl Offline {
    /// Opens the store in the data directory. `instead` is the advice if a server uses it.
    pub(crate) async fn open(connection: &Connection, instead: &str) -> Result<Self, Failure> {
        Self::open_at(data_directory(connection)?, instead, false).await
    }

    /// Opens the store in the data directory to be read once.
    pub(crate) async fn open_to_read(connection: &Connection, instead: &str) -> Result<Self, Failure> {
        let directory = data_directory(connection)?;
        Self::open_with(read_once(&directory), directory, instead, false).await
    }

    /// Opens the store in `directory`; makes a new catalogue there if `make`, and if there is none.
    pub(crate) async fn open_at(directory: PathBuf, instead: &str, make: bool) -> Result<Self, Failure> {
        Self::open_with(EmbeddedSettings::at(directory.join("store")), directory, instead, make).await
    }

    async fn open_with(
        settings: EmbeddedSettings,
        directory: PathBuf,
        instead: &str,
        make: bool,
    ) -> Result<Self, Failure> {
        let about = |error: Error| Failure::about(directory.display().to_string(), error);
        if make {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .map_err(|error| Failure::local(format!("cannot make {}: {error}", directory.display())))?;
        } else if !settings.directory.is_dir() {
            return Err(about(Error::not_found("no catalogue is here")));
        }
        let lock = lock(&directory, instead)?;
        // Archiving and removing log files is left to the server.
        let settings = EmbeddedSettings { archive: false, ..settings };
        let clock = Arc::new(WatchedClock::of_system(CLOCK_JUMP));
        clock.keep_in(&directory.join("clock"));
        let of_opening = clock.clone();
        let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(settings, of_opening));
        let store = opened
            .await
            .map_err(|error| Failure::local(format!("opening the store failed: {error}")))?
            .map_err(about)?;
        if let Some(jump) = clock.jump() {
            say(&format!("exacat: {jump}"));
        }
        Ok(Offline { store, clock, directory, _lock: Some(lock) })
    }

    /// Id of the catalogue, if a server was started on it.
    pub(crate) fn catalogue_id(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.directory.join("catalogue.id")).ok()?;
        Some(text.trim().to_owned())
    }

    /// Opens a snapshot for reading; a server may use the directory meanwhile.
    pub(crate) async fn snapshot(connection: &Connection, name: &str) -> Result<Self, Failure> {
        let directory = data_directory(connection)?;
        let about = |error: Error| Failure::about(directory.display().to_string(), error);
        let name = SnapshotName::parse(name)?;
        let settings = read_once(&directory);
        let opened = tokio::task::spawn_blocking(move || {
            EmbeddedStore::open_snapshot(settings, &name, Arc::new(SystemClock))
        });
        let store = opened
            .await
            .map_err(|error| Failure::local(format!("opening the snapshot failed: {error}")))?
            .map_err(about)?;
        Ok(Offline { store, clock: Arc::new(SystemClock), directory, _lock: None })
    }

    /// Makes an error about the directory.
    pub(crate) fn about(&self, error: Error) -> Failure {
        Failure::about(self.directory.display().to_string(), error)
    }
}
