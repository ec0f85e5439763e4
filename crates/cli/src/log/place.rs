//! Target of log lines: standard error, or a file that rotations replace.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Mode of a new log file: its lines have names of the catalogue.
const MODE: u32 = 0o600;

/// Target of log lines. A line that cannot be written is counted, and delays nothing.
pub(super) struct LogPlace {
    path: PathBuf,
    /// First line of a new file.
    head: &'static str,
    open: Mutex<Open>,
    /// Lines that could not be written.
    pub lines_lost: Arc<AtomicU64>,
}

struct Open {
    /// None for standard error.
    file: Option<File>,
    /// True if the last line was written in part.
    is_torn: bool,
}

impl LogPlace {
    /// Writes to standard error.
    pub(super) fn standard_error() -> Self {
        LogPlace {
            path: PathBuf::new(),
            head: "",
            open: Mutex::new(Open { file: None, is_torn: false }),
            lines_lost: Arc::default(),
        }
    }

    /// Appends to a file, which is made with this first line if it is missing or empty.
    pub(super) fn file(path: &Path, head: &'static str) -> io::Result<Self> {
        let file = Some(open(path, head)?);
        let (path, open) = (path.to_owned(), Mutex::new(Open { file, is_torn: false }));
        Ok(LogPlace { path, head, open, lines_lost: Arc::default() })
    }

    /// Says whether it is a file.
    pub(super) fn is_file(&self) -> bool {
        !self.path.as_os_str().is_empty()
    }

    /// Opens the file at the path again. On an error lines go to the file of before.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let file = Some(open(&self.path, self.head)?);
        *self.open.lock() = Open { file, is_torn: false };
        Ok(())
    }
}

/// Opens a file to append to. No pipe: its reader could stop the server.
fn open(path: &Path, head: &str) -> io::Result<File> {
    // Without the flag, opening a pipe waits for a reader. It means nothing to a file.
    let flags = libc::O_NONBLOCK;
    let mut file = OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe; give a file"));
    }
    if file.metadata()?.len() == 0 {
        file.write_all(head.as_bytes())?;
    }
    Ok(file)
}

impl Write for &LogPlace {
    /// Takes whole lines: one from the subscriber, several from a look-up of several files.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut open = self.open.lock();
        let end_of_last: &[u8] = if open.is_torn { b"\n" } else { b"" };
        let ended = put(&mut open, end_of_last).and_then(|()| put(&mut open, lines));
        if ended.is_err() {
            // The first ones may have been written.
            let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.lines_lost.fetch_add(count.max(1), Ordering::Relaxed);
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a text whole, and notes if only a part of it was written.
fn put(open: &mut Open, text: &[u8]) -> io::Result<()> {
    let mut rest = text;
    while !rest.is_empty() {
        let written = match &mut open.file {
            Some(file) => file.write(rest),
            None => io::stderr().write(rest),
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => {
                rest = &rest[bytes..];
                open.is_torn = !rest.is_empty();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn lost(place: &LogPlace) -> u64 {
        place.lines_lost.load(Ordering::Relaxed)
    }

    /// Property: each line is in exactly one file, also around a rotation, and only the owner reads it.
    #[test]
    fn lines_after_a_rotation_are_in_the_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
        let place = LogPlace::file(&path, "").unwrap();
        let write = |line: &str| (&place).write_all(line.as_bytes()).unwrap();
        write("one\n");
        std::fs::rename(&path, &old).unwrap();
        write("two\n");
        place.reopen().unwrap();
        write("three\n");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(place.reopen().is_err());
        write("four\n");
        assert_eq!(lost(&place), 0, "the old file goes on");
    }

    /// Property: a line that cannot be written is counted, and is no error.
    #[test]
    fn lines_on_a_full_disk_are_counted() {
        let place = LogPlace::file(Path::new("/dev/full"), "").unwrap();
        for line in 1..=3 {
            (&place).write_all(b"line\n").unwrap();
            assert_eq!(lost(&place), line);
        }
    }

    #[test]
    fn rest_of_a_cut_line_does_not_spoil_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let place = LogPlace::file(&path, "").unwrap();
        (&place).write_all(b"cut").unwrap();
        place.open.lock().is_torn = true;
        (&place).write_all(b"whole\n").unwrap();
        (&place).write_all(b"next\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "cut\nwhole\nnext\n");
    }

    #[test]
    fn pipe_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(LogPlace::file(&path, "").is_err(), "no reader");
        let _reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        assert!(LogPlace::file(&path, "").is_err(), "a reader");
    }
}
