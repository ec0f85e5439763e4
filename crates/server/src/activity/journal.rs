//! Minutes on disk: files of the data directory, of which the oldest are removed.
//!
//! ```text
//! DATA/activity/START.minutes    START is the time of its first minute, in milliseconds
//!   8 bytes   EXACAMI2
//!   frames    each with a minute
//! ```
//!
//! A file is written by one run of the server. Its last frame may be cut. The files help to explain
//! the past, and the catalogue does not need them: they are not synced, and may be removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use exacat_model::TimeMs;
use exacat_model::codec::{Decode, Encode, Reader};

use super::samples::Minute;
use crate::frames::{self, Kept};

/// First bytes of a file: the name and the version of its format.
const MAGIC: &[u8; 8] = b"EXACAMI2";
const EXTENSION: &str = "minutes";
/// Bytes at which the next file begins.
const FILE_BYTES: u64 = 4 << 20;
/// Files of a directory: a server that is started again and again makes small ones.
const FILES_MAX: usize = 4096;
/// Most bytes of a minute, compressed or not. A minute with all its samples has about 1 MB.
const MINUTE_BYTES_MAX: usize = 32 << 20;

/// Writes minutes to the files of a directory.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    bytes_max: u64,
    /// The file in use, its path and its length.
    file: Option<(File, PathBuf, u64)>,
}

impl Journal {
    /// Makes the journal of a directory, which has at most `bytes_max` bytes and the last minute.
    pub(crate) fn new(directory: PathBuf, bytes_max: u64) -> Self {
        Journal { directory, bytes_max, file: None }
    }

    /// Appends a minute, and removes the oldest files if there are too many bytes.
    pub(crate) fn append(&mut self, minute: &Minute) -> io::Result<()> {
        frames::check_room(&self.directory)?;
        let mut bytes = Vec::new();
        minute.encode(&mut bytes);
        if bytes.len() > MINUTE_BYTES_MAX {
            return Err(io::Error::other("a minute has too many bytes"));
        }
        let mut frame = Vec::new();
        // After an error the file has a part of a frame: the next minute begins another one.
        let in_use = self.file.take().filter(|(_, _, length)| *length < FILE_BYTES);
        let (mut file, path, length) = match in_use {
            Some(in_use) => in_use,
            None => {
                frame.extend(MAGIC);
                let (file, path) = frames::begin(&self.directory, minute.from, EXTENSION)?;
                (file, path, 0)
            }
        };
        frames::push(&mut frame, &bytes)?;
        if let Err(error) = file.write_all(&frame) {
            if length == 0 {
                // Nothing is in it, and the next minute makes a file of its own.
                let _stays = fs::remove_file(&path);
            }
            return Err(error);
        }
        frames::remove_oldest(&files(&self.directory)?, &path, (self.bytes_max, FILES_MAX))?;
        self.file = Some((file, path, length + frame.len() as u64));
        Ok(())
    }
}

/// Returns the files of a directory, the oldest first.
fn files(directory: &Path) -> io::Result<Vec<Kept>> {
    frames::kept(directory, &[EXTENSION])
}

/// Reads the minutes that end after `from` and begin before `to`, and the one before them. Returns
/// false if a file is damaged; what follows in it is left out.
pub(crate) fn read(
    directory: &Path,
    (from, to): (TimeMs, TimeMs),
    see: &mut dyn FnMut(Minute),
) -> io::Result<bool> {
    let files = files(directory)?;
    let first = files.partition_point(|(start, ..)| *start <= from).saturating_sub(1);
    let (mut is_whole, mut before) = (true, None);
    for (start, path, _) in files.iter().skip(first) {
        if *start >= to {
            break;
        }
        is_whole &= frames::read(path, MAGIC, MINUTE_BYTES_MAX, &mut |bytes| {
            match Minute::decode(&mut Reader::new(bytes)) {
                Ok(minute) if minute.end.at <= from => before = Some(minute),
                Ok(minute) if minute.from < to => {
                    if let Some(before) = before.take() {
                        see(before);
                    }
                    see(minute);
                }
                Ok(_) => {}
                Err(_) => return false,
            }
            true
        })?;
    }
    Ok(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::moment::{Moment, Run};
    use std::sync::Arc;

    fn minute(from: u64) -> Minute {
        let end = Arc::new(Moment { at: TimeMs(from + 60_000), ..Moment::start(Run(1)) });
        // Names that do not compress, so that the sizes of files are known.
        let name = (0..2000).map(|at: u64| (from * 31 + at * at * 7).to_string()).collect();
        Minute { from: TimeMs(from), end, names: vec![name], ..Minute::default() }
    }

    fn starts(directory: &Path, from: u64, to: u64) -> (Vec<u64>, bool) {
        let mut starts = Vec::new();
        let whole = read(directory, (TimeMs(from), TimeMs(to)), &mut |one| starts.push(one.from.0)).unwrap();
        (starts, whole)
    }

    /// Minutes of several runs of the server are read in order, with the one before the period.
    #[test]
    fn minutes_are_read_back() {
        let directory = tempfile::tempdir().unwrap();
        for run in 0..3 {
            let mut journal = Journal::new(directory.path().to_owned(), 1 << 30);
            (0..3).for_each(|at| journal.append(&minute((run * 3 + at) * 60_000)).unwrap());
        }
        let all: Vec<u64> = (0..9).map(|at| at * 60_000).collect();
        assert_eq!(starts(directory.path(), 0, u64::MAX), (all.clone(), true));
        assert_eq!(starts(directory.path(), 4 * 60_000 + 1, 6 * 60_000 + 1), (all[3..7].to_vec(), true));
        assert_eq!(starts(directory.path(), 100 * 60_000, u64::MAX), (Vec::new(), true));
    }

    /// A cut end loses the last minute only, and a damaged one is told; other files are read.
    #[test]
    fn damage_costs_the_rest_of_one_file() {
        let directory = tempfile::tempdir().unwrap();
        for run in 0..2 {
            let mut journal = Journal::new(directory.path().to_owned(), 1 << 30);
            (0..3).for_each(|at| journal.append(&minute((run * 3 + at) * 60_000)).unwrap());
        }
        let first = files(directory.path()).unwrap()[0].1.clone();
        let bytes = fs::read(&first).unwrap();
        fs::write(&first, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(starts(directory.path(), 0, u64::MAX), (vec![0, 60_000, 180_000, 240_000, 300_000], true));
        for at in [0, 8, 9, 12, 20, bytes.len() / 2] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x80;
            fs::write(&first, bad).unwrap();
            let (starts, _) = starts(directory.path(), 0, u64::MAX);
            assert!(starts.ends_with(&[180_000, 240_000, 300_000]), "{at}: {starts:?}");
            assert!(starts.len() < 6, "{at}");
        }
    }

    /// The oldest files go, the one in use stays, and files of others are left alone.
    #[test]
    fn files_have_a_bounded_size() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("note.txt"), "keep").unwrap();
        for run in 0..20 {
            let mut journal = Journal::new(directory.path().to_owned(), 20_000);
            journal.append(&minute(run * 60_000)).unwrap();
        }
        let files = files(directory.path()).unwrap();
        let bytes: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
        assert!(bytes <= 20_000 && files.len() > 1, "{files:?}");
        assert_eq!(files.last().unwrap().0, TimeMs(19 * 60_000));
        assert!(directory.path().join("note.txt").exists());
        // A clock that was ahead at an earlier run: the file in use is not the last one.
        fs::write(directory.path().join("9999999999999.minutes"), vec![0; 30_000]).unwrap();
        let mut journal = Journal::new(directory.path().to_owned(), 0);
        journal.append(&minute(20 * 60_000)).unwrap();
        assert_eq!(starts(directory.path(), 0, u64::MAX).0, [20 * 60_000]);
    }

    /// Files are few, however often a server is started, and a minute that finds no room leaves no file.
    #[test]
    fn files_have_a_bounded_number() {
        let directory = tempfile::tempdir().unwrap();
        for start in 0..=FILES_MAX + 10 {
            fs::write(directory.path().join(format!("{start:013}.minutes")), "").unwrap();
        }
        let mut journal = Journal::new(directory.path().to_owned(), 1 << 30);
        journal.append(&minute(1 << 40)).unwrap();
        assert_eq!(files(directory.path()).unwrap().len(), FILES_MAX);
        assert_eq!(starts(directory.path(), 0, u64::MAX).0, [1 << 40]);
    }
}
