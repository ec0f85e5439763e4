//! Samples on disk: each hour of the last 90 days, and each day before that.
//!
//! ```text
//! DATA/contents/START.hourly     START is the time of its first sample, in milliseconds
//! DATA/contents/START.daily      the first samples of days, made of files of hours
//!   8 bytes   EXACACO1
//!   frames
//! ```
//!
//! A file of hours is written by one run of the server. Its last frame may be cut. A crash between a new
//! file of days and the removal of its sources leaves samples twice, which a reader takes once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use exacat_model::TimeMs;
use exacat_model::codec::{Decode, Encode, Reader};

use super::sample::Sample;
use crate::frames::{self, Kept};

/// First bytes of a file: the name and the version of its format.
const MAGIC: &[u8; 8] = b"EXACACO1";
const HOURLY: &str = "hourly";
const DAILY: &str = "daily";
/// Name of a file that is being written.
const PART: &str = "part";
const DAY_MS: u64 = 86_400_000;
/// Age up to which each hour is kept.
pub(crate) const HOURLY_FOR_MS: u64 = 90 * DAY_MS;
/// Length of a file of hours, and age beyond [`HOURLY_FOR_MS`] at which old ones become one of days.
const FILE_MS: u64 = 30 * DAY_MS;
/// Bytes of all files. A sample of 100 storage elements and 500 owners has about 10 kB, so they last for
/// more than ten years.
const BYTES_MAX: u64 = 64 << 20;
/// Files of a directory.
const FILES_MAX: usize = 2048;
/// Most bytes of a sample, compressed or not.
const SAMPLE_BYTES_MAX: usize = 1 << 20;

/// Writes samples to the files of a directory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    bytes_max: u64,
    /// The file in use, its path, and its first sample.
    file: Option<(File, PathBuf, TimeMs)>,
}

impl Files {
    /// Makes the writer of a directory.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Files { directory, bytes_max: BYTES_MAX, file: None }
    }

    /// Appends a sample, thins out old ones, and removes the oldest files if there are too many bytes.
    pub(crate) fn append(&mut self, sample: &Sample) -> io::Result<()> {
        frames::check_room(&self.directory)?;
        // After an error the file has a part of a frame: the next sample begins another one.
        let in_use = self.file.take().filter(|(_, _, start)| sample.at.0.abs_diff(start.0) < FILE_MS);
        let mut bytes = Vec::new();
        let (mut file, path, start) = match in_use {
            Some(in_use) => in_use,
            None => {
                bytes.extend(MAGIC);
                let (file, path) = frames::begin(&self.directory, sample.at, HOURLY)?;
                (file, path, sample.at)
            }
        };
        bytes.extend(frame(sample)?);
        if let Err(error) = file.write_all(&bytes) {
            if bytes.starts_with(MAGIC) {
                // Nothing is in it, and the next sample makes a file of its own.
                let _stays = fs::remove_file(&path);
            }
            return Err(error);
        }
        self.thin_out(&path, sample.at)?;
        frames::remove_oldest(&kept(&self.directory)?, &path, (self.bytes_max, FILES_MAX))?;
        self.file = Some((file, path, start));
        Ok(())
    }

    /// Makes one file of days of all files of hours that are old, once a month of them is.
    fn thin_out(&self, in_use: &Path, now: TimeMs) -> io::Result<()> {
        let before = now.0.saturating_sub(HOURLY_FOR_MS);
        let mut hourly: Vec<Kept> = kept(&self.directory)?;
        hourly.retain(|(_, path, _)| frames::has_extension(path, HOURLY) && path != in_use);
        if hourly.first().is_none_or(|(start, ..)| start.0 > before.saturating_sub(FILE_MS)) {
            return Ok(());
        }
        let (mut old, mut days) = (Vec::new(), std::collections::BTreeMap::new());
        for (_, path, _) in hourly.iter().filter(|(start, ..)| start.0 <= before) {
            let (mut samples, mut is_old) = (Vec::new(), true);
            // What is damaged is not read later either.
            read_file(path, &mut |sample| {
                is_old &= sample.at.0 <= before;
                samples.push(sample);
            })?;
            if is_old {
                old.push(path);
                for sample in samples {
                    days.entry(sample.at.0 / DAY_MS).or_insert(sample);
                }
            }
        }
        if let Some(first) = days.values().next() {
            let part = self.directory.join(format!("{:013}.{PART}", first.at.0));
            let mut bytes = MAGIC.to_vec();
            for sample in days.values() {
                bytes.extend(frame(sample)?);
            }
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&part)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            let names = (first.at.0..).map(|start| self.directory.join(format!("{start:013}.{DAILY}")));
            match names.into_iter().find(|path| !path.exists()) {
                Some(path) => fs::rename(&part, path)?,
                None => return Err(io::Error::other("no name is left for a file")),
            }
        }
        old.into_iter().try_for_each(fs::remove_file)
    }
}

fn frame(sample: &Sample) -> io::Result<Vec<u8>> {
    let (mut bytes, mut frame) = (Vec::new(), Vec::new());
    sample.encode(&mut bytes);
    if bytes.len() > SAMPLE_BYTES_MAX {
        return Err(io::Error::other("a sample has too many bytes"));
    }
    frames::push(&mut frame, &bytes)?;
    Ok(frame)
}

/// Returns the files of a directory, the oldest first.
fn kept(directory: &Path) -> io::Result<Vec<Kept>> {
    frames::kept(directory, &[HOURLY, DAILY])
}

/// Returns the time of the last sample of the last file; none without one.
pub(crate) fn last(directory: &Path) -> io::Result<Option<TimeMs>> {
    let mut last = None;
    if let Some((_, path, _)) = kept(directory)?.last() {
        read_file(path, &mut |sample| last = last.max(Some(sample.at)))?;
    }
    Ok(last)
}

/// Reads the samples from `from` on and before `to`, and others near to them. Returns false if a file is
/// damaged; what follows in it is left out.
pub(crate) fn read(
    directory: &Path,
    (from, to): (TimeMs, TimeMs),
    see: &mut dyn FnMut(Sample),
) -> io::Result<bool> {
    let files = kept(directory)?;
    let first = files.partition_point(|(start, ..)| *start <= from).saturating_sub(1);
    let mut is_whole = true;
    for (_, path, _) in files.iter().skip(first).take_while(|(start, ..)| *start < to) {
        is_whole &= read_file(path, see)?;
    }
    Ok(is_whole)
}

/// Reads a file. Returns false if it is damaged.
fn read_file(path: &Path, see: &mut dyn FnMut(Sample)) -> io::Result<bool> {
    frames::read(path, &[MAGIC], SAMPLE_BYTES_MAX, &mut |bytes| match Sample::decode(&mut Reader::new(bytes))
    {
        Ok(sample) => {
            see(sample);
            true
        }
        Err(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    fn sample(hour: u64) -> Sample {
        // Names that do not compress, so that files have a size.
        let name = (0..40).map(|at: u64| (hour * 31 + at * at * 7).to_string()).collect();
        Sample {
            at: TimeMs(hour * HOUR_MS),
            entries: hour,
            ses: vec![(name, Default::default())],
            ..Sample::default()
        }
    }

    fn hours(directory: &Path) -> Vec<u64> {
        let mut hours = Vec::new();
        assert!(read(directory, (TimeMs(0), TimeMs(u64::MAX)), &mut |one| hours.push(one.entries)).unwrap());
        hours.sort();
        hours
    }

    /// Years of samples are kept by day, the last 90 days by hour, and all of them in few files.
    #[test]
    fn old_samples_are_thinned_out() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::new(directory.path().to_owned());
        let days = 400;
        (0..days * 24).for_each(|hour| files.append(&sample(hour)).unwrap());
        let hours = hours(directory.path());
        assert!(hours.windows(2).all(|pair| pair[0] < pair[1]), "each sample once");
        let of_day = |day: u64| hours.iter().filter(|hour| **hour / 24 == day).count();
        assert!((0..days).all(|day| of_day(day) >= 1), "no day is missing");
        assert!((days - 90..days).all(|day| of_day(day) == 24), "each hour of 90 days");
        assert!((0..days - 90 - 61).all(|day| of_day(day) == 1), "one sample of each day before that");
        assert!(kept(directory.path()).unwrap().len() < 20);
        assert_eq!(last(directory.path()).unwrap(), Some(TimeMs((days * 24 - 1) * HOUR_MS)));
        let mut lately = Vec::new();
        let from = TimeMs((days - 1) * DAY_MS);
        read(directory.path(), (from, TimeMs(u64::MAX)), &mut |one| lately.push(one.at)).unwrap();
        assert!(lately.iter().filter(|at| **at >= from).count() == 24 && lately.len() <= 31 * 24);
    }

    /// A server that is started often, a cut end, and a damaged file cost what is damaged.
    #[test]
    fn damage_costs_the_rest_of_one_file() {
        let directory = tempfile::tempdir().unwrap();
        for run in 0..3 {
            let mut files = Files::new(directory.path().to_owned());
            (0..3).for_each(|hour| files.append(&sample(run * 3 + hour)).unwrap());
        }
        assert_eq!(hours(directory.path()), (0..9).collect::<Vec<_>>());
        let path = kept(directory.path()).unwrap()[1].1.clone();
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(hours(directory.path()), [0, 1, 2, 3, 4, 6, 7, 8]);
        for at in [0, 9, 13, bytes.len() / 2] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x80;
            fs::write(&path, bad).unwrap();
            let mut hours = Vec::new();
            read(directory.path(), (TimeMs(0), TimeMs(u64::MAX)), &mut |one| hours.push(one.entries))
                .unwrap();
            assert!(hours.starts_with(&[0, 1, 2]) && hours.ends_with(&[6, 7, 8]) && hours.len() < 9, "{at}");
        }
    }

    /// The oldest files go, the one in use stays, and files of others are left alone.
    #[test]
    fn files_have_a_bounded_size() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("note.txt"), "keep").unwrap();
        for run in 0..20 {
            let mut files = Files { bytes_max: 2000, ..Files::new(directory.path().to_owned()) };
            files.append(&sample(run)).unwrap();
        }
        let files = kept(directory.path()).unwrap();
        assert!(files.iter().map(|(.., bytes)| bytes).sum::<u64>() <= 2000 && files.len() > 1, "{files:?}");
        assert_eq!(hours(directory.path()).last(), Some(&19));
        assert!(directory.path().join("note.txt").exists());
    }
}
