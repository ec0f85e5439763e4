//! Output files: the one place that decides how a file named on the command line is written.
//!
//! A regular file, or a name that is free, gets a temporary file beside it, which takes the name
//! when it is complete and on disk. A symbolic link is followed to its target. Anything else (a
//! device, a FIFO, `/dev/stdout`) is opened and written in place: replacing it would take it away
//! from other programs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::limits::{PARTIAL_NAME_BYTES_MAX, SYMLINKS_MAX};

/// Mode of a new output file, before the umask.
const OUTPUT_MODE: u32 = 0o666;
/// Mode of a new file with a secret.
const SECRET_MODE: u32 = 0o600;

/// Destination of the bytes of an output file.
#[derive(Debug)]
enum Destination {
    /// A temporary file that takes the name of the target at the end. Dropping it removes it.
    Replaced { partial: tempfile::TempPath, target: PathBuf },
    /// A new file under its own name; removed unless it is finished.
    Created { path: PathBuf, finished: bool },
    /// A device, a FIFO or an open file of this process.
    InPlace,
}

/// A file being written. Without [`finish`](OutputFile::finish) nothing of it remains, except bytes
/// that went into a device or a FIFO.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    path: PathBuf,
    destination: Destination,
}

impl OutputFile {
    /// Says whether opening waits for another program: a FIFO opens when its reader comes.
    pub fn waits_for_a_reader(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
    }

    /// Opens an output file. The old content remains until [`finish`](OutputFile::finish). Opening
    /// a FIFO waits for its reader.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let cannot = |error| Error::file("write", path, error);
        let existing = existing(path).map_err(cannot)?;
        if let Some(file) = open_special(path, existing.as_ref()).map_err(cannot)? {
            return Ok(OutputFile { file, path: path.to_owned(), destination: Destination::InPlace });
        }
        let target = resolved(path).map_err(cannot)?;
        let directory = directory_of(&target);
        let mode = existing.as_ref().map_or(OUTPUT_MODE, |found| found.permissions().mode() & 0o7777);
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let name = &name[..name.floor_char_boundary(PARTIAL_NAME_BYTES_MAX)];
        let partial = tempfile::Builder::new()
            .prefix(&format!("{name}."))
            .suffix(".partial")
            .permissions(fs::Permissions::from_mode(mode))
            .tempfile_in(directory)
            .map_err(cannot)?;
        if let Some(found) = &existing {
            keep_access(partial.as_file(), found).map_err(cannot)?;
        }
        let (file, partial) = partial.into_parts();
        let destination = Destination::Replaced { partial, target };
        Ok(OutputFile { file, path: path.to_owned(), destination })
    }

    /// Opens a new file that only its owner may read. Refuses an existing regular file.
    pub fn create_secret(path: &Path) -> Result<Self, Error> {
        let cannot = |error| Error::file("make", path, error);
        let existing = existing(path).map_err(cannot)?;
        if let Some(file) = open_special(path, existing.as_ref()).map_err(cannot)? {
            return Ok(OutputFile { file, path: path.to_owned(), destination: Destination::InPlace });
        }
        let target = resolved(path).map_err(cannot)?;
        let opened = OpenOptions::new().write(true).create_new(true).mode(SECRET_MODE).open(&target);
        let file = opened.map_err(cannot)?;
        let destination = Destination::Created { path: target, finished: false };
        Ok(OutputFile { file, path: path.to_owned(), destination })
    }

    /// Returns a handle for writing.
    pub fn writer(&self) -> Result<File, Error> {
        self.file.try_clone().map_err(|error| Error::file("write", &self.path, error))
    }

    /// Makes the written bytes durable, and gives the file its name.
    pub fn finish(mut self) -> Result<(), Error> {
        let cannot = |error| Error::file("write", &self.path, error);
        sync(&self.file).map_err(cannot)?;
        match &mut self.destination {
            Destination::InPlace => return Ok(()),
            Destination::Created { finished, .. } => *finished = true,
            Destination::Replaced { partial, target } => {
                fs::rename(&*partial, &*target)
                    .map_err(|error| Error::file("rename to", &self.path, error))?;
            }
        }
        if let Destination::Replaced { target: path, .. } | Destination::Created { path, .. } =
            &self.destination
        {
            // The name is durable once its directory is synced. Some file systems cannot sync one.
            let _not_everywhere = File::open(directory_of(path)).and_then(|directory| directory.sync_all());
        }
        Ok(())
    }

    /// Returns, for a person, what an interruption leaves under the name.
    pub fn if_interrupted(&self) -> String {
        let path = self.path.display();
        match &self.destination {
            Destination::Replaced { target, .. } if target.exists() => {
                format!("{path} is as it was before; nothing else is left")
            }
            Destination::Replaced { .. } | Destination::Created { .. } => {
                format!("{path} was not written; nothing is left")
            }
            Destination::InPlace => format!("{path} got a part of the output"),
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Destination::Created { path, finished: false } = &self.destination {
            // The file is incomplete. The original error matters more than one of the removal.
            let _stays = fs::remove_file(path);
        }
    }
}

/// Opens a file that grows under its own name, such as a reject file. It is empty at first. Refuses
/// a second writer of one file.
pub fn create_growing(path: &Path) -> Result<File, Error> {
    let cannot = |error| Error::file("create", path, error);
    let existing = existing(path).map_err(cannot)?;
    if let Some(file) = open_special(path, existing.as_ref()).map_err(cannot)? {
        return Ok(file);
    }
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = opened.map_err(cannot)?;
    lock(&file, path)?;
    file.set_len(0).map_err(cannot)?;
    Ok(file)
}

/// Reopens such a file to continue after `bytes`. Cuts off the bytes after that. A device or a FIFO
/// keeps nothing and is only opened.
pub fn resume_growing(path: &Path, bytes: u64) -> Result<File, Error> {
    let cannot = |error| Error::file("go on with", path, error);
    let existing = existing(path).map_err(cannot)?;
    if let Some(file) = open_special(path, existing.as_ref()).map_err(cannot)? {
        return Ok(file);
    }
    let mut file = OpenOptions::new().write(true).open(path).map_err(cannot)?;
    lock(&file, path)?;
    let size = file.metadata().map_err(cannot)?.len();
    if size < bytes {
        return Err(cannot(io::Error::other("it is shorter than the interrupted import left it")));
    }
    file.set_len(bytes).map_err(cannot)?;
    io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(cannot)?;
    Ok(file)
}

/// Makes a file durable. Devices and FIFOs that cannot be synced count as durable.
pub fn sync(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

fn lock(file: &File, path: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(Error::options(format!(
            "{} is being written by another program: wait for it, or name another file",
            path.display()
        ))),
        // A file system without locks.
        Err(fs::TryLockError::Error(_)) => Ok(()),
    }
}

/// Returns the metadata of the file behind a name, with links followed; none if there is no file.
fn existing(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens files that must not be replaced: anything but a regular file, and open files of this
/// process (`/dev/fd/1`), whose names lead nowhere. Appends to the latter, because the program that
/// opened them may have written before.
fn open_special(path: &Path, existing: Option<&fs::Metadata>) -> io::Result<Option<File>> {
    let Some(existing) = existing else { return Ok(None) };
    if existing.is_file() && !is_descriptor(path) {
        return Ok(None);
    }
    OpenOptions::new().append(true).open(path).map(Some)
}

/// Says whether a name means an open file of this process.
fn is_descriptor(path: &Path) -> bool {
    let (mut path, mut left) = (path.to_owned(), SYMLINKS_MAX);
    loop {
        if path.starts_with("/dev/fd") || path.starts_with("/proc") {
            return true;
        }
        match fs::read_link(&path) {
            Ok(link) if left > 0 => path = directory_of(&path).join(link),
            _ => return false,
        }
        left -= 1;
    }
}

/// Returns the name at the end of symbolic links, which may be free.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..=SYMLINKS_MAX {
        match fs::read_link(&path) {
            Ok(link) => path = directory_of(&path).join(link),
            // The path is no link, or does not exist.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("more than {SYMLINKS_MAX} symbolic links")))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives a replacing file the mode of the replaced one, and its owner if that is permitted.
fn keep_access(file: &File, replaced: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (replaced.uid(), replaced.gid()) {
        let _not_allowed = fchown(file, Some(replaced.uid()), Some(replaced.gid()));
    }
    file.set_permissions(fs::Permissions::from_mode(replaced.permissions().mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    fn write(path: &Path, text: &str) -> Result<(), Error> {
        let output = OutputFile::create(path)?;
        output.writer()?.write_all(text.as_bytes()).map_err(|error| Error::file("write", path, error))?;
        output.finish()
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn regular_file_is_replaced_whole_or_not_at_all_and_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.tsv");
        write(&path, "first").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let output = OutputFile::create(&path).unwrap();
        output.writer().unwrap().write_all(b"half").unwrap();
        assert_eq!(names(directory.path()).len(), 2);
        assert!(output.if_interrupted().contains("as it was"), "{}", output.if_interrupted());
        drop(output);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        write(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(directory.path()), ["out.tsv"]);
        assert!(write(directory.path(), "x").is_err());
    }

    #[test]
    fn symbolic_links_are_followed_also_dangling_ones() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("elsewhere")).unwrap();
        let link = directory.path().join("link");
        symlink("elsewhere/target", directory.path().join("second")).unwrap();
        symlink("second", &link).unwrap();
        for text in ["new", "again"] {
            write(&link, text).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(directory.path().join("elsewhere/target")).unwrap(), text);
        }
        symlink("loop", directory.path().join("loop")).unwrap();
        assert!(write(&directory.path().join("loop"), "x").is_err());
        assert_eq!(names(directory.path()), ["elsewhere", "link", "loop", "second"]);
    }

    #[test]
    fn devices_and_fifos_are_written_and_stay_what_they_are() {
        let error = write(Path::new("/dev/full"), "x").unwrap_err().to_string();
        assert!(error.contains("/dev/full") && error.contains("space"), "{error}");
        write(Path::new("/dev/null"), "x").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        fifo(&path);
        let reader = path.clone();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            File::open(reader).unwrap().read_to_string(&mut text).unwrap();
            text
        });
        write(&path, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
        assert_eq!(names(directory.path()), ["fifo"]);
    }

    #[test]
    fn secret_is_new_private_and_gone_unless_finished() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        drop(OutputFile::create_secret(&path).unwrap());
        assert!(!path.exists());
        let output = OutputFile::create_secret(&path).unwrap();
        output.finish().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(OutputFile::create_secret(&path).unwrap_err().to_string().contains("exists"));
        let link = directory.path().join("link");
        symlink("linked", &link).unwrap();
        OutputFile::create_secret(&link).unwrap().finish().unwrap();
        assert!(directory.path().join("linked").is_file());
        OutputFile::create_secret(Path::new("/dev/null")).unwrap().finish().unwrap();
    }

    #[test]
    fn growing_file_has_one_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rejects");
        let mut first = create_growing(&path).unwrap();
        first.write_all(b"12345").unwrap();
        let error = create_growing(&path).unwrap_err().to_string();
        assert!(error.contains("another program"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "12345");
        drop(first);
        drop(resume_growing(&path, 3).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "123");
        assert!(resume_growing(&path, 4).is_err());
        sync(&create_growing(Path::new("/dev/null")).unwrap()).unwrap();
        drop(resume_growing(Path::new("/dev/null"), 7).unwrap());
    }
}
