//! The disk, as narrow as the engine needs it. A test can replace it by one that fails at the Nth
//! write, or forgets what was not synced.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Operations on directories and names. A change is durable only after
/// [`sync_directory`](Disk::sync_directory) of the directory in which it happened.
pub trait Disk: Send + Sync + 'static {
    /// Creates a directory and those above it; an existing one is fine.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns the names of the files and directories in a directory, in no order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Opens an existing file to read only.
    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file to read and write.
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file, and replaces any file of that name.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file for direct I/O: memory, offsets and lengths of reads and writes are
    /// multiples of 4096 bytes. A disk without direct I/O gives an ordinary file, which
    /// [`is_direct`](DiskFile::is_direct) tells.
    fn create_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.create(path)
    }

    /// Renames a file, and replaces any file of the new name; or a directory, and replaces an empty
    /// one. Atomic.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a further name, which must be free. Fails with
    /// [`CrossesDevices`](io::ErrorKind::CrossesDevices) if the name is on another file system.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Returns the number of names of a file.
    fn names_of(&self, path: &Path) -> io::Result<u64>;

    /// Removes a name of a file, and with the last name the file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Locks the directory for this process until the guard is dropped; fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if another process has the lock.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;

    /// Removes all rights of group and others from a file or directory, and on request from
    /// everything in it. Returns how many had any. A missing file has none.
    fn make_private(&self, path: &Path, everything_in_it: bool) -> io::Result<u64> {
        let _nothing_to_do = (path, everything_in_it);
        Ok(0)
    }

    /// Returns the bytes of free space.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// An open file. Writes are durable only after [`sync`](DiskFile::sync).
pub trait DiskFile: Send + Sync {
    /// Reads up to `into.len()` bytes at `offset`; fewer only at the file's end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`. After an error any part of them may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written durable, and the file's length. After an error the state of all
    /// writes since the last successful sync is unknown, and a retry does not reveal it.
    fn sync(&self) -> io::Result<()>;

    /// Reserves space, so that a write below `length` cannot fail for lack of it. Existing bytes
    /// stay, new ones read as zeros.
    fn preallocate(&self, length: u64) -> io::Result<()>;

    /// Cuts the file to `length`, or extends it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Returns the bytes in the file.
    fn length(&self) -> io::Result<u64>;

    /// Says whether reads and writes bypass the page cache of the operating system.
    fn is_direct(&self) -> bool {
        false
    }

    /// Frees the space of a file that has no name any more, little by little where that matters.
    /// While somebody else reads the file it stays whole, until the last reader has closed it.
    fn give_back(&self) {}
}

/// Reads a whole file.
pub fn read_whole(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.length()?).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Says whether a file or directory exists.
pub fn exists(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match disk.open_to_read(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // Not every operating system opens a directory as a file.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns the names in a directory; none if the directory does not exist.
pub fn list_if_there(disk: &dyn Disk, directory: &Path) -> io::Result<Vec<String>> {
    match disk.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// Removes a file, or a directory with everything in it; a missing one is fine.
pub fn remove_tree(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.list(path) {
        Ok(names) => {
            for name in names {
                remove_tree(disk, &path.join(name))?;
            }
            disk.remove_directory(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => disk.remove(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes a small file and makes its bytes durable. Its name is durable once the caller has synced
/// the directory.
pub fn write_small(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = disk.create(path)?;
    file.write_at(bytes, 0)?;
    file.sync()
}

/// Replaces a small file, atomically and durably.
pub fn replace_small(disk: &dyn Disk, directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = directory.join(format!("{name}.unfinished"));
    write_small(disk, &unfinished, bytes)?;
    disk.rename(&unfinished, &directory.join(name))?;
    disk.sync_directory(directory)
}

/// Returns the text of a small file; none if the file does not exist.
pub fn read_text(disk: &dyn Disk, path: &Path) -> io::Result<Option<String>> {
    match disk.open_to_read(path) {
        Ok(file) => Ok(Some(String::from_utf8_lossy(&read_whole(&*file)?).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Disk of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for item in std::fs::read_dir(directory)? {
            if let Ok(name) = item?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile::in_use(File::open(path)?)))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile::in_use(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(PRIVATE_FILE);
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn create_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(PRIVATE_FILE);
        options.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        match options.open(path) {
            Ok(file) => Ok(Box::new(RealFile(file))),
            // The file system has no direct I/O.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.create(path),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn names_of(&self, path: &Path) -> io::Result<u64> {
        Ok(std::fs::symlink_metadata(path)?.nlink())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE).open(path)?;
        match lock_exclusively(&file) {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn make_private(&self, path: &Path, everything_in_it: bool) -> io::Result<u64> {
        let found = match std::fs::symlink_metadata(path) {
            // Another thread may be removing the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            other => other?,
        };
        let mode = found.permissions().mode();
        // A symbolic link has no rights of its own.
        if found.is_symlink() {
            return Ok(0);
        }
        let mut changed = 0;
        if mode & OTHERS != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o7700))?;
            changed += 1;
        }
        if everything_in_it && found.is_dir() {
            for item in std::fs::read_dir(path)? {
                changed += self.make_private(&item?.path(), true)?;
            }
        }
        Ok(changed)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let metrics = rustix::fs::statvfs(directory)?;
        Ok(metrics.f_bavail.saturating_mul(metrics.f_frsize))
    }
}

/// Time that a lock may belong to a child of this process, and the pause between two attempts. A child
/// has all files of its parent until its program begins, and with them a lock that the parent left.
const LOCK_OF_CHILD_MS: u64 = 500;
const LOCK_PAUSE_MS: u64 = 5;

/// Locks a file, for all processes, until it is closed. Fails if another process has it.
#[expect(clippy::disallowed_methods, reason = "nobody tells that the program of a child began")]
pub fn lock_exclusively(file: &File) -> Result<(), TryLockError> {
    let until = Instant::now() + Duration::from_millis(LOCK_OF_CHILD_MS);
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(LOCK_PAUSE_MS));
            }
            tried => return tried,
        }
    }
}

/// Modes of the engine's files and directories: only the owner may read names, modes and token
/// hashes.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Rights of group and others.
const OTHERS: u32 = 0o077;

/// A file on the machine's disk.
struct RealFile(File);

impl RealFile {
    /// Marks the file as in use, for all processes. On a file system without such locks files are
    /// never freed in parts.
    fn in_use(file: File) -> Self {
        if let Err(error) = file.try_lock_shared() {
            tracing::debug!(%error, "cannot mark a file as in use");
        }
        RealFile(file)
    }
}

/// Bytes freed at once. A file system that discards free blocks does so in its commit. Each new log
/// segment waits for that commit, for seconds after a large compaction.
const GIVEN_BACK_BYTES: u64 = 16 << 20;

/// Shortens a file without a name from its end, part by part, each committed before the next. One
/// file at a time.
fn give_back_in_parts(file: &File) -> io::Result<()> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let mut length = file.metadata()?.len();
    while length > 0 {
        length = length.saturating_sub(GIVEN_BACK_BYTES);
        file.set_len(length)?;
        file.sync_data()?;
    }
    Ok(())
}

/// Bytes of zeros per write where the file system cannot reserve space.
const ZEROS_BYTES: usize = 1 << 20;

impl DiskFile for RealFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            // Not every file system reserves space. Writing zeros does the same, only slower.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                let zeros = vec![0; ZEROS_BYTES];
                let mut offset = self.0.metadata()?.len();
                while offset < length {
                    let count =
                        usize::try_from(length - offset).map_or(ZEROS_BYTES, |rest| rest.min(ZEROS_BYTES));
                    self.0.write_all_at(&zeros[..count], offset)?;
                    offset += count as u64;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn is_direct(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.0).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::DIRECT))
    }

    fn give_back(&self) {
        let worth_it = |file: std::fs::Metadata| file.nlink() == 0 && file.len() > GIVEN_BACK_BYTES;
        // A process that reads a snapshot may have the file open, even after the snapshot was
        // dropped.
        if !self.0.metadata().is_ok_and(worth_it) || self.0.try_lock().is_err() {
            return;
        }
        let Ok(file) = self.0.try_clone() else { return };
        let begun = std::thread::Builder::new().name("exacat-remover".to_owned()).spawn(move || {
            if let Err(error) = give_back_in_parts(&file) {
                tracing::debug!(%error, "the space of a removed file is freed at once");
            }
        });
        if let Err(error) = begun {
            tracing::debug!(%error, "the space of a removed file is freed at once");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a lock that only a child between fork and exec has left is waited for; that of
    /// another holder is refused.
    #[test]
    fn lock_of_a_child_is_waited_for_and_that_of_another_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("LOCK");
        let held = File::create(&path).unwrap();
        lock_exclusively(&held).unwrap();
        // As in a child, the lock belongs to each copy of the descriptor.
        let of_child = held.try_clone().unwrap();
        drop(held);
        let child = std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(LOCK_OF_CHILD_MS / 5));
            drop(of_child);
        });
        let own = RealDisk.lock(&path).unwrap();
        child.join().unwrap();
        let refused = RealDisk.lock(&path).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(own);
        RealDisk.lock(&path).unwrap();
    }

    /// Goal: a removed file stays whole while somebody reads it, and is freed once nobody does.
    #[test]
    fn a_removed_file_is_given_back_once_nobody_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("large");
        let length = 3 * GIVEN_BACK_BYTES + 5;
        RealDisk.create(&path).unwrap().set_length(length).unwrap();
        let (reader, removed) =
            (RealDisk.open_to_read(&path).unwrap(), RealDisk.open_to_write(&path).unwrap());
        let seen = File::open(&path).unwrap();
        removed.give_back();
        RealDisk.hard_link(&path, &place.path().join("snapshot")).unwrap();
        RealDisk.remove(&path).unwrap();
        removed.give_back();
        RealDisk.remove(&place.path().join("snapshot")).unwrap();
        removed.give_back();
        assert_eq!(reader.length().unwrap(), length);
        drop(reader);
        removed.give_back();
        let begun = Instant::now();
        while seen.metadata().unwrap().len() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not given back");
            std::thread::yield_now();
        }
    }
}
