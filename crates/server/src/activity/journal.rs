//! Minutes on disk: files of the data directory. Old ones are thinned, and the oldest are removed.
//!
//! ```text
//! DATA/activity/START.minutes    START is the time of its first minute, in milliseconds
//!   8 bytes   EXACAMI2, or EXACAMT2 if its minutes are thinned
//!   frames    each with a minute
//! DATA/activity/thinned.new      a thinned file before it replaces the whole one
//! ```
//!
//! A file is written by one run of the server. Its last frame may be cut. The files help to explain
//! the past, and the catalogue does not need them: they are not synced, and may be removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use exacat_model::TimeMs;
use exacat_model::codec::{Decode, Encode, Reader};

use super::samples::Minute;
use crate::frames::{self, Kept};

/// First bytes of a file: the name and the version of its format.
const MAGIC: &[u8; 8] = b"EXACAMI2";
/// The same of a file with thinned minutes.
const MAGIC_THINNED: &[u8; 8] = b"EXACAMT2";
const THINNED_NEW: &str = "thinned.new";
const EXTENSION: &str = "minutes";
/// Bytes at which the next file begins.
const FILE_BYTES: u64 = 4 << 20;
/// Files of a directory: a server that is started again and again makes small ones.
const FILES_MAX: usize = 4096;
/// Most bytes of a minute, compressed or not. A minute with all its samples has about 1 MB.
const MINUTE_BYTES_MAX: usize = 32 << 20;

/// Bounds of the files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Bytes of all files but the last minute. Whole minutes take at most half of them.
    pub bytes_max: u64,
    /// Age at which minutes are thinned.
    pub whole_for: Duration,
}

/// Writes minutes to the files of a directory.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    bounds: Bounds,
    /// The file in use, its path and its length.
    file: Option<(File, PathBuf, u64)>,
    /// Time in the name of the last file that is thinned, or too damaged for it.
    thinned_to: Option<TimeMs>,
}

impl Journal {
    /// Makes the journal of a directory.
    pub(crate) fn new(directory: PathBuf, bounds: Bounds) -> Self {
        Journal { directory, bounds, file: None, thinned_to: None }
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
        frames::remove_oldest(&files(&self.directory)?, &path, (self.bounds.bytes_max, FILES_MAX))?;
        self.file = Some((file, path, length + frame.len() as u64));
        Ok(())
    }

    /// Thins the oldest file with whole minutes, if it is old enough, or such files take too much. One at a
    /// time, so that a call takes little: a file has a few minutes at least, and a call comes each minute.
    pub(crate) fn thin(&mut self, now: TimeMs) -> io::Result<()> {
        let files = files(&self.directory)?;
        let is_whole = |start: TimeMs, thinned_to: Option<TimeMs>| thinned_to.is_none_or(|to| start > to);
        let whole = files.iter().filter(|(start, ..)| is_whole(*start, self.thinned_to));
        let mut bytes: u64 = whole.map(|(.., bytes)| bytes).sum();
        let whole_ms = u64::try_from(self.bounds.whole_for.as_millis()).unwrap_or(u64::MAX);
        // The minutes of a file end where the next one begins.
        for ((start, path, length), (end, ..)) in files.iter().zip(files.iter().skip(1)) {
            if !is_whole(*start, self.thinned_to) {
                continue;
            }
            let is_in_use = self.file.as_ref().is_some_and(|(_, in_use, _)| in_use == path);
            let is_old = end.0.saturating_add(whole_ms) <= now.0;
            if is_in_use || !(is_old || bytes > self.bounds.bytes_max / 2) {
                return Ok(());
            }
            let is_done = thin_file(&self.directory, path)?;
            self.thinned_to = Some(*start);
            bytes -= length;
            if is_done {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Thins the minutes of a file. Returns false, and leaves it as it is, if it is thinned or damaged.
fn thin_file(directory: &Path, path: &Path) -> io::Result<bool> {
    let (mut thinned, mut failure) = (MAGIC_THINNED.to_vec(), None);
    let is_whole = frames::read(path, &[MAGIC], MINUTE_BYTES_MAX, &mut |bytes| {
        let Ok(minute) = Minute::decode(&mut Reader::new(bytes)) else { return false };
        let mut bytes = Vec::new();
        minute.thinned().encode(&mut bytes);
        failure = frames::push(&mut thinned, &bytes).err();
        failure.is_none()
    })?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    if !is_whole {
        return Ok(false);
    }
    let new = directory.join(THINNED_NEW);
    // One that a crash left may be anybody's.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&thinned)?;
    // The whole file is gone after this, so the new one must be on the disk before.
    file.sync_data()?;
    fs::rename(&new, path)?;
    Ok(true)
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
        is_whole &= frames::read(path, &[MAGIC, MAGIC_THINNED], MINUTE_BYTES_MAX, &mut |bytes| {
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
    use crate::activity::samples::SampledRequest;
    use std::sync::Arc;

    fn minute(from: u64) -> Minute {
        let end = Arc::new(Moment { at: TimeMs(from + 60_000), ..Moment::start(Run(1)) });
        // Names that do not compress, so that the sizes of files are known.
        let name = (0..2000).map(|at: u64| (from * 31 + at * at * 7).to_string()).collect();
        Minute { from: TimeMs(from), end, names: vec![name], ..Minute::default() }
    }

    fn journal(directory: &Path, bytes_max: u64) -> Journal {
        Journal::new(directory.to_owned(), Bounds { bytes_max, whole_for: Duration::MAX })
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
            let mut journal = journal(directory.path(), 1 << 30);
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
            let mut journal = journal(directory.path(), 1 << 30);
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
            let mut journal = journal(directory.path(), 20_000);
            journal.append(&minute(run * 60_000)).unwrap();
        }
        let files = files(directory.path()).unwrap();
        let bytes: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
        assert!(bytes <= 20_000 && files.len() > 1, "{files:?}");
        assert_eq!(files.last().unwrap().0, TimeMs(19 * 60_000));
        assert!(directory.path().join("note.txt").exists());
        // A clock that was ahead at an earlier run: the file in use is not the last one.
        fs::write(directory.path().join("9999999999999.minutes"), vec![0; 30_000]).unwrap();
        let mut journal = journal(directory.path(), 0);
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
        let mut journal = journal(directory.path(), 1 << 30);
        journal.append(&minute(1 << 40)).unwrap();
        assert_eq!(files(directory.path()).unwrap().len(), FILES_MAX);
        assert_eq!(starts(directory.path(), 0, u64::MAX).0, [1 << 40]);
    }

    /// A minute with twenty samples of one user.
    fn sampled(from: u64) -> Minute {
        let request = |at: u32| SampledRequest { after_ms: at * 997, weight: 1, ..SampledRequest::default() };
        Minute { requests: (0..20).map(request).collect(), ..minute(from) }
    }

    /// Numbers of samples and weights of each minute on the disk.
    fn samples(directory: &Path) -> Vec<(usize, u32)> {
        let mut samples = Vec::new();
        let whole = read(directory, (TimeMs(0), TimeMs(u64::MAX)), &mut |one| {
            samples.push((one.requests.len(), one.requests.iter().map(|one| one.weight).sum()));
        });
        assert!(whole.unwrap());
        samples
    }

    /// A file is thinned once the last of its minutes has the age, not a millisecond before, and once only,
    /// also by another run of the server. The weights stay.
    #[test]
    fn minutes_are_thinned_at_their_age() {
        let directory = tempfile::tempdir().unwrap();
        let bounds = Bounds { bytes_max: 1 << 30, whole_for: Duration::from_secs(3600) };
        for run in 0..3 {
            let mut journal = Journal::new(directory.path().to_owned(), bounds);
            (0..2).for_each(|at| journal.append(&sampled((run * 2 + at) * 60_000)).unwrap());
        }
        let (whole, thinned) = ((20, 20), (2, 20));
        let mut journal = Journal::new(directory.path().to_owned(), bounds);
        journal.append(&sampled(6 * 60_000)).unwrap();
        // The first file ends where the second begins, at 2 minutes.
        journal.thin(TimeMs(62 * 60_000 - 1)).unwrap();
        assert_eq!(samples(directory.path()), [whole; 7]);
        journal.thin(TimeMs(62 * 60_000)).unwrap();
        let expected = [thinned, thinned, whole, whole, whole, whole, whole];
        assert_eq!(samples(directory.path()), expected);
        journal.thin(TimeMs(62 * 60_000)).unwrap();
        assert_eq!(samples(directory.path()), expected);
        let mut later = Journal::new(directory.path().to_owned(), bounds);
        later.append(&sampled(7 * 60_000)).unwrap();
        // The clock is far ahead: one file a call, never the one in use, and each once.
        for expected in [4, 6, 7, 7] {
            later.thin(TimeMs(1 << 50)).unwrap();
            let samples = samples(directory.path());
            assert_eq!(samples.iter().filter(|one| **one == thinned).count(), expected, "{samples:?}");
            assert_eq!(samples.last(), Some(&whole));
        }
        assert!(!directory.path().join(THINNED_NEW).exists());
        // The clock is at the beginning of time: nothing is old.
        let mut early = Journal::new(directory.path().to_owned(), bounds);
        early.thin(TimeMs(0)).unwrap();
        early.thin(TimeMs(u64::MAX)).unwrap();
    }

    /// Whole minutes take at most half of the bytes, however young they are. A damaged file stays as it is,
    /// a torn new file does no harm, and the others are thinned.
    #[test]
    fn whole_minutes_take_half_of_the_bytes() {
        let directory = tempfile::tempdir().unwrap();
        for run in 0..4 {
            journal(directory.path(), 1 << 30).append(&sampled(run * 60_000)).unwrap();
        }
        let all = files(directory.path()).unwrap();
        let bytes: u64 = all.iter().map(|(.., bytes)| bytes).sum();
        let (damaged, length) = (all[0].1.clone(), all[0].2);
        let mut bad = fs::read(&damaged).unwrap();
        bad[40] ^= 1;
        fs::write(&damaged, &bad).unwrap();
        fs::write(directory.path().join(THINNED_NEW), vec![1; 100_000]).unwrap();
        // Exactly half may stay whole.
        let mut enough = journal(directory.path(), 2 * bytes);
        enough.thin(TimeMs(0)).unwrap();
        assert_eq!(files(directory.path()).unwrap(), all);
        let mut journal = journal(directory.path(), 2 * (bytes - length) - 1);
        journal.thin(TimeMs(0)).unwrap();
        assert_eq!(fs::read(&damaged).unwrap(), bad);
        let left = files(directory.path()).unwrap();
        assert!(left[1].2 < all[1].2 && left[2..] == all[2..], "{left:?}");
        journal.thin(TimeMs(0)).unwrap();
        assert_eq!(files(directory.path()).unwrap(), left, "the rest takes less than half");
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&left[1].1).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
