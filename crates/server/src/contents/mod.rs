//! Contents of the catalogue over time: a sample each hour, kept for years.

mod files;
mod sample;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Error, ErrorKind, Result, TimeMs};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use files::Files;
pub(crate) use sample::{Point, Sample, Subject};

/// Interval of samples.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(3600);

/// Samples of a server.
pub(crate) struct Contents {
    directory: PathBuf,
    files: Mutex<Files>,
    /// One reader of the disk at a time.
    reader: Arc<Semaphore>,
}

impl Contents {
    /// Makes the samples of a directory.
    pub(crate) fn new(directory: PathBuf) -> Self {
        let files = Mutex::new(Files::new(directory.clone()));
        Contents { directory, files, reader: Arc::new(Semaphore::new(1)) }
    }

    /// Returns the time until the next sample is due. It is `now`.
    pub(crate) fn due_in(&self, now: TimeMs) -> Duration {
        let last = files::last(&self.directory).ok().flatten();
        // A sample of a clock that was ahead must not hold up the next one.
        let age = last.map_or(u64::MAX, |last| last.0.abs_diff(now.0));
        SAMPLE_EVERY.saturating_sub(Duration::from_millis(age))
    }

    /// Writes a sample.
    pub(crate) fn write(&self, sample: &Sample) -> io::Result<()> {
        self.files.lock().append(sample)
    }

    /// Returns the last sample of a subject in each of so many equal parts of a stretch of time.
    pub(crate) async fn points(
        &self,
        subject: Subject,
        (from, to): (TimeMs, TimeMs),
        parts: u64,
    ) -> Result<Vec<Point>> {
        let reader = Arc::clone(&self.reader).try_acquire_owned().map_err(|_| {
            Error::new(ErrorKind::Busy, "another client reads the samples of the contents: try again later")
        })?;
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _reader = reader;
            let mut thin = ThinPoints::new((from, to), parts);
            let read = files::read(&directory, (from, to), &mut |sample| thin.add(sample.of(&subject)));
            read.map(|is_whole| (is_whole, thin))
        });
        match read.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))? {
            Ok((is_whole, thin)) => {
                if !is_whole {
                    tracing::warn!(
                        "a file of samples of the contents is damaged: what follows in it is left out"
                    );
                }
                Ok(thin.points())
            }
            Err(error) => {
                let why = format!("cannot read the samples of the contents: {error}");
                Err(Error::new(ErrorKind::Unavailable, why))
            }
        }
    }
}

/// The last point of each part of a stretch of time.
struct ThinPoints {
    from: TimeMs,
    to: TimeMs,
    parts: u64,
    last: BTreeMap<u64, Point>,
}

impl ThinPoints {
    fn new((from, to): (TimeMs, TimeMs), parts: u64) -> Self {
        ThinPoints { from, to, parts, last: BTreeMap::new() }
    }

    fn add(&mut self, point: Option<Point>) {
        let Some(point) = point.filter(|point| (self.from..self.to).contains(&point.at)) else { return };
        let (age, length) = (u128::from(point.at.0 - self.from.0), u128::from(self.to.0 - self.from.0));
        let part = (age * u128::from(self.parts) / length) as u64;
        let last = self.last.entry(part).or_insert(point);
        if last.at <= point.at {
            *last = point;
        }
    }

    fn points(self) -> Vec<Point> {
        self.last.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::Usage;

    fn sample(at: u64, files: u64) -> Sample {
        let usage = Usage { files, ..Usage::default() };
        let ses = vec![("S::E".to_owned(), usage)];
        Sample { at: TimeMs(at), entries: files + 1, whole: usage, ses, ..Sample::default() }
    }

    /// Each part has its last sample, in whatever order they are read, and samples outside have none.
    #[tokio::test]
    async fn parts_have_their_last_samples() {
        let directory = tempfile::tempdir().unwrap();
        let contents = Contents::new(directory.path().to_owned());
        assert_eq!(contents.due_in(TimeMs(5)), Duration::ZERO);
        for (at, files) in [(1000, 1), (1400, 2), (1600, 4), (1500, 3), (1999, 5), (2000, 6)] {
            contents.write(&sample(at, files)).unwrap();
        }
        assert_eq!(contents.due_in(TimeMs(12_000)), SAMPLE_EVERY - Duration::from_secs(10));
        let of = async |subject: Subject, parts| {
            let points = contents.points(subject, (TimeMs(1000), TimeMs(2000)), parts).await.unwrap();
            points.iter().map(|point| (point.at.0, point.usage.files)).collect::<Vec<_>>()
        };
        assert_eq!(of(Subject::Whole, 2).await, [(1400, 2), (1999, 5)]);
        assert_eq!(of(Subject::Se("S::E".to_owned()), 1).await, [(1999, 5)]);
        assert_eq!(of(Subject::Owner("user:x".to_owned()), 1).await, []);
        assert_eq!(of(Subject::Whole, 1000).await.len(), 5);
    }
}
