//! The data directory: its files, their permissions, and the lock that admits only one server.
//!
//! ```text
//! DATA/server.lock    held while a server runs
//! DATA/catalogue.id   id of the catalogue, sent to every client
//! DATA/store/         the embedded store
//! DATA/history/       the history of elements
//! DATA/feeds/         positions of the feeds, one file each
//! DATA/clock          the trusted time, for the next start
//! DATA/cluster        address of the cluster that has the catalogue
//! DATA/server.crt     the certificate that clients trust        (made at the first start)
//! DATA/server.key     its key, for the owner only               (made at the first start)
//! DATA/admin.token    an admin's token, for the owner only      (made at the first start)
//! DATA/jalien/        JAliEn's protocol: authority of tokens, keys of envelopes, an admin's token
//! DATA/uploads/       uploads in progress over XRootD's protocol, for the owner only
//! DATA/activity/      activity of the server, minute by minute, for the owner only
//! DATA/exacat.sock    the local socket                          (while a server runs)
//! DATA/server.json    the addresses a server listens on         (while a server runs)
//! DATA/views/NAME/    lock, socket and addresses of a server of the snapshot NAME
//! ```

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind as IoErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Guid, Result, SnapshotName};
use exacat_store::Clock;

use crate::beside::ElementsBeside;
use crate::randomness;

/// A data directory, locked by this process.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    /// Directory of the store, the certificate and the admin's token. Equal to `path`, unless a
    /// snapshot is served.
    data: PathBuf,
    /// Lock on the directory. The kernel releases it when the file is closed, also if the process
    /// is killed.
    _lock: File,
    /// Its history of elements, for snapshots.
    pub beside: Arc<ElementsBeside>,
}

/// Mode of files for the owner only.
const PRIVATE: u32 = 0o600;
/// Mode of files that everybody may read.
const PUBLIC: u32 = 0o644;

impl DataDirectory {
    /// Makes the directory if it is missing, and locks it for this process. `socket_mode` is the
    /// mode of its local socket: users whom it admits may pass through the directory, and nobody
    /// else.
    pub(crate) fn open(path: &Path, socket_mode: u32) -> Result<Self> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(|error| failed("make the data directory", path, &error))?;
        let path = path.canonicalize().map_err(|error| failed("find the data directory", path, &error))?;
        check_own(&path)?;
        make_private(&path, passage(socket_mode))?;
        let lock_path = path.join("server.lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(PRIVATE)
            .open(&lock_path)
            .map_err(|error| failed("open", &lock_path, &error))?;
        match exacat_disk::lock_exclusively(&lock) {
            Ok(()) => {
                let directory =
                    DataDirectory { data: path.clone(), path, _lock: lock, beside: Arc::default() };
                directory.make_secrets_private()?;
                Ok(directory)
            }
            Err(std::fs::TryLockError::WouldBlock) => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{}: another server uses this data directory; stop it, or give another",
                    path.display()
                ),
            )),
            Err(std::fs::TryLockError::Error(error)) => Err(failed("lock", &lock_path, &error)),
        }
    }

    /// Locks the directory of a server for one snapshot of the catalogue in `data`. Another server
    /// may use `data` itself.
    pub(crate) fn open_view(data: &Path, name: &SnapshotName, socket_mode: u32) -> Result<Self> {
        let there = data.canonicalize().map_err(|error| failed("find the data directory", data, &error))?;
        Ok(DataDirectory { data: there, ..Self::open(&data.join("views").join(name.as_str()), socket_mode)? })
    }

    /// Removes all rights of group and others to the owner's secrets.
    fn make_secrets_private(&self) -> Result<()> {
        for path in [self.key(), self.admin_token(), self.path.join("server.lock")] {
            make_private(&path, 0)?;
        }
        // The store protects its own files.
        for name in ["jalien", "uploads", "activity", "contents"] {
            make_tree_private(&self.path.join(name))?;
        }
        Ok(())
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.data.join("store")
    }

    pub(crate) fn clock(&self) -> PathBuf {
        self.path.join("clock")
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.data.join("server.crt")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.data.join("server.key")
    }

    pub(crate) fn admin_token(&self) -> PathBuf {
        self.data.join("admin.token")
    }

    /// Returns the directory of the JAliEn face; makes it if it is missing.
    pub(crate) fn jalien(&self) -> Result<PathBuf> {
        self.private("jalien")
    }

    /// Returns the directory of XRootD uploads in progress; makes it if it is missing.
    pub(crate) fn uploads(&self) -> Result<PathBuf> {
        self.private("uploads")
    }

    /// Returns the directory of the history of elements, which its engine makes.
    pub(crate) fn elements(&self) -> PathBuf {
        self.data.join("history")
    }

    /// Returns the directory of the feeds' files, which the feeds make.
    pub(crate) fn feeds(&self) -> PathBuf {
        self.data.join("feeds")
    }

    /// Returns the directory of the server's activity; makes it if it is missing. A server of a snapshot
    /// has its own.
    pub(crate) fn activity(&self) -> Result<PathBuf> {
        private(self.path.join("activity"))
    }

    /// Returns the directory of the catalogue's contents over time; makes it if it is missing.
    pub(crate) fn contents(&self) -> Result<PathBuf> {
        self.private("contents")
    }

    /// Returns a subdirectory for the owner only; makes it if it is missing.
    fn private(&self, name: &str) -> Result<PathBuf> {
        private(self.data.join(name))
    }

    /// Returns the file of the issuers of other tokens.
    pub(crate) fn issuers(&self) -> PathBuf {
        self.path.join("issuers.json")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("exacat.sock")
    }

    pub(crate) fn addresses(&self) -> PathBuf {
        self.path.join("server.json")
    }

    /// True if a server was started here before.
    pub(crate) fn is_started(&self) -> Result<bool> {
        Ok(read(&self.data.join("catalogue.id"))?.is_some())
    }

    /// Returns the id of the catalogue in this directory; chooses it at the first call.
    pub(crate) fn catalogue_id(&self, clock: &dyn Clock) -> Result<Guid> {
        let path = self.data.join("catalogue.id");
        if let Some(text) = read(&path)? {
            return Guid::parse(text.trim())
                .map_err(|error| Error::new(ErrorKind::Corrupt, format!("{}: {error}", path.display())));
        }
        let guid = new_guid(clock)?;
        write(&path, format!("{guid}\n").as_bytes(), PUBLIC)?;
        Ok(guid)
    }

    /// Records the id and address of the catalogue on a cluster that this directory belongs to.
    /// Refuses if the directory belongs to another catalogue.
    pub(crate) fn keep_cluster(&self, id: Guid, address: &str) -> Result<Guid> {
        let path = self.data.join("catalogue.id");
        match read(&path)? {
            Some(text) if text.trim() == id.to_string() => {}
            Some(text) => {
                let (path, other) = (path.display(), text.trim().to_owned());
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "{path}: this directory is of catalogue {other}, not {id}: give another with --data"
                    ),
                ));
            }
            None => {}
        }
        write(&self.data.join("cluster"), format!("{address}\n").as_bytes(), PUBLIC)?;
        // Written last: it marks the end of the first start.
        write(&path, format!("{id}\n").as_bytes(), PUBLIC)?;
        Ok(id)
    }

    /// Refuses an embedded store in a directory whose catalogue is on a cluster: it would be a new
    /// catalogue under the old id.
    pub(crate) fn not_of_a_cluster(&self) -> Result<()> {
        match read(&self.data.join("cluster"))? {
            None => Ok(()),
            Some(address) => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "{}: the catalogue of this directory is on a cluster: serve it with --store {}, or give another \
                     directory with --data",
                    self.data.display(),
                    address.trim()
                ),
            )),
        }
    }
}

/// Makes a directory for the owner only, if it is missing.
fn private(path: PathBuf) -> Result<PathBuf> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&path).map_err(|error| failed("make the directory", &path, &error))?;
    make_private(&path, 0)?;
    Ok(path)
}

/// Refuses to change the rights of a directory that has contents other than a server's.
fn check_own(path: &Path) -> Result<()> {
    let unreadable = |error: std::io::Error| failed("list", path, &error);
    let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
    let is_own =
        ["server.lock", "catalogue.id", "store", "CATALOGUE"].iter().any(|name| path.join(name).exists());
    if mode & 0o077 == 0 || is_own || std::fs::read_dir(path).map_err(unreadable)?.next().is_none() {
        return Ok(());
    }
    let shown = path.display();
    let what = format!(
        "{shown} has other files in it, and others may read it: choose an empty directory with --data, or run: chmod 700 {shown}"
    );
    Err(Error::new(ErrorKind::Invalid, what))
}

/// Returns the rights to pass through a directory, for users whom a socket of this mode admits.
fn passage(socket_mode: u32) -> u32 {
    [0o070, 0o007].into_iter().filter(|class| socket_mode & *class != 0).map(|class| class & 0o011).sum()
}

/// Reduces the rights of group and others to `keep`, and warns if they had more. Accepts a missing
/// path.
fn make_private(path: &Path, keep: u32) -> Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| failed("look at", path, &error))?,
    };
    let mode = found.permissions().mode() & 0o7777;
    if found.is_symlink() || mode & 0o077 == keep {
        return Ok(());
    }
    let wanted = (mode & 0o700) | keep;
    let shown = path.display();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(wanted)).map_err(|error| {
        let what = format!(
            "{shown} has mode {mode:o}, and it cannot be set: {error}; as its owner, run: chmod {wanted:o} {shown}"
        );
        Error::new(ErrorKind::Unavailable, what)
    })?;
    if mode & 0o077 & !keep != 0 {
        let (was, now) = (format!("{mode:o}"), format!("{wanted:o}"));
        tracing::warn!(path = %shown, was, now, "others had rights here, and have them no more");
    }
    Ok(())
}

/// Makes a directory and everything in it private.
fn make_tree_private(directory: &Path) -> Result<()> {
    make_private(directory, 0)?;
    let items = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| failed("list", directory, &error))?,
    };
    for item in items {
        let item = item.map_err(|error| failed("list", directory, &error))?;
        match item.file_type() {
            Ok(kind) if kind.is_dir() => make_tree_private(&item.path())?,
            _ => make_private(&item.path(), 0)?,
        }
    }
    Ok(())
}

/// Makes a new GUID from the current time.
pub(crate) fn new_guid(clock: &dyn Clock) -> Result<Guid> {
    Ok(Guid::v7(clock.now(), randomness::bytes()?))
}

/// Reads a small file; none if it is missing.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, &error)),
    }
}

/// Writes a file for its owner only, atomically.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, PRIVATE)
}

/// Writes a file that everybody may read, atomically.
pub(crate) fn write_public(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, PUBLIC)
}

/// Writes a file atomically. Sets the mode when it creates the file, so that others can never open
/// it. Renames the file once it is complete and on disk.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    remove(&temporary)?;
    let written = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| {
            File::open(path.parent().unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all())
        });
    written.map_err(|error| failed("write", path, &error))
}

/// Removes a file, which may be missing.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != IoErrorKind::NotFound => Err(failed("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Returns the error of a failed action on a file.
pub(crate) fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_one_server_uses_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let first = DataDirectory::open(&directory.path().join("a/b"), 0).unwrap();
        let second = DataDirectory::open(&directory.path().join("a/b"), 0).unwrap_err();
        assert_eq!(second.kind, ErrorKind::Unavailable);
        drop(first);
        DataDirectory::open(&directory.path().join("a/b"), 0).unwrap();
    }

    #[test]
    fn private_files_are_private_also_when_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, b"new").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("new"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing left beside it");
    }

    #[test]
    fn a_catalogue_keeps_its_id() {
        let path = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(path.path(), 0).unwrap();
        let id = directory.catalogue_id(&exacat_store::SystemClock).unwrap();
        assert_eq!(directory.catalogue_id(&exacat_store::SystemClock).unwrap(), id);
        std::fs::write(path.path().join("catalogue.id"), "nonsense").unwrap();
        let error = directory.catalogue_id(&exacat_store::SystemClock).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Goal: others have no rights in a data directory, however it was made; users whom the socket
    /// admits may pass. Method: a directory of mode 755 with files of mode 644, opened for sockets
    /// of several modes.
    #[test]
    fn existing_data_directory_that_others_can_read_is_made_private() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        for (socket_mode, wanted) in [(0, 0o700), (0o600, 0o700), (0o660, 0o710), (0o666, 0o711)] {
            let _new = std::fs::create_dir_all(data.join("jalien/deep"));
            for name in ["server.key", "admin.token", "jalien/deep/authority.key", "server.lock"] {
                std::fs::write(data.join(name), "secret").unwrap();
                std::fs::set_permissions(data.join(name), std::fs::Permissions::from_mode(0o644)).unwrap();
            }
            for name in ["", "jalien", "jalien/deep"] {
                std::fs::set_permissions(data.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            drop(DataDirectory::open(&data, socket_mode).unwrap());
            assert_eq!(mode_of(&data), wanted, "socket of mode {socket_mode:o}");
            for name in ["server.key", "admin.token", "jalien/deep/authority.key", "server.lock"] {
                assert_eq!(mode_of(&data.join(name)), 0o600, "{name}");
            }
            assert_eq!((mode_of(&data.join("jalien")), mode_of(&data.join("jalien/deep"))), (0o700, 0o700));
        }
    }

    #[test]
    fn directory_of_somebody_else_is_refused_and_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("letter.txt"), "dear").unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = DataDirectory::open(place.path(), 0).unwrap_err();
        assert!(error.message.contains("chmod 700"), "{error}");
        assert_eq!(mode_of(place.path()), 0o755);
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        DataDirectory::open(place.path(), 0).unwrap();
    }
}
