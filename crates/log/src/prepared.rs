//! Prepares the next log segment while the current one fills: a separate thread writes zeros to its
//! end and makes them durable.
//!
//! This has two benefits:
//!
//! - The beginning of a segment does not wait for disk space.
//! - A sync into the segment only overwrites zeros. Space that is only reserved must be converted
//!   by the first sync that writes there. The file system does that in its own commit, together
//!   with everything that compaction is writing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use exacat_disk::{Disk, DiskFile};

use crate::segment::UNFINISHED;

/// Zeros that are written and synced at once. A commit group in flight waits for no more than
/// these.
const STEP_BYTES: usize = 4 << 20;

/// An empty segment: its open file, and the unfinished name of that.
pub(crate) struct Blank {
    pub(crate) file: Box<dyn DiskFile>,
    pub(crate) path: PathBuf,
}

enum Stage {
    /// No segment is being prepared.
    Idle,
    Making(JoinHandle<io::Result<Box<dyn DiskFile>>>),
    Ready(Box<dyn DiskFile>),
    /// The segment could not be made, most likely for lack of space. The preparer tries again after
    /// the next segment was begun.
    Refused,
}

/// Preparation of the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// On a thread of its own, while the present segment fills.
    Ahead,
    /// By the thread that appends. For tests that count disk operations, and need them in a fixed order.
    InPlace,
    /// None: the thread that appends reserves the space when the segment begins.
    Never,
}

/// Prepares the next segment.
pub(crate) struct Preparer {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    segment_bytes: u64,
    preparation: Preparation,
    stage: Stage,
}

impl Preparer {
    /// Creates a preparer for segments of this length.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        directory: &Path,
        segment_bytes: u64,
        preparation: Preparation,
    ) -> Self {
        Preparer {
            disk,
            path: directory.join(format!("next{UNFINISHED}")),
            segment_bytes,
            preparation,
            stage: Stage::Idle,
        }
    }

    /// Begins to prepare the segment, unless that is under way.
    pub(crate) fn begin(&mut self) {
        if self.preparation == Preparation::Never || !matches!(self.stage, Stage::Idle) {
            return;
        }
        let (disk, path, bytes) = (Arc::clone(&self.disk), self.path.clone(), self.segment_bytes);
        let making = std::thread::Builder::new()
            .name("exacat-segment".to_owned())
            .spawn(move || write_zeros(&*disk, &path, bytes));
        self.stage = match making {
            Ok(making) => Stage::Making(making),
            Err(error) => self.refused(&error),
        };
        if self.preparation == Preparation::InPlace {
            self.wait();
        }
    }

    fn refused(&self, error: &io::Error) -> Stage {
        tracing::debug!(file = %self.path.display(), %error, "cannot prepare the log's next segment");
        // The partial file takes up space. At the latest the next opening removes it.
        let _opening_does = self.disk.remove(&self.path);
        Stage::Refused
    }

    fn wait(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Making(making) => {
                let broken = |_| Err(io::Error::other("internal error: its thread ended"));
                match making.join().unwrap_or_else(broken) {
                    Ok(file) => Stage::Ready(file),
                    Err(error) => self.refused(&error),
                }
            }
            other => other,
        };
    }

    /// Takes the prepared segment, if there is one with room for `length`. Afterwards the next one
    /// may be prepared.
    pub(crate) fn take(&mut self, length: u64) -> Option<Blank> {
        if matches!(&self.stage, Stage::Making(making) if making.is_finished()) {
            self.wait();
        }
        // A request larger than a segment gets one of its own size, which is not prepared.
        if length > self.segment_bytes {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Ready(file) => Some(Blank { file, path: self.path.clone() }),
            Stage::Idle | Stage::Refused => None,
            making @ Stage::Making(_) => {
                self.stage = making;
                None
            }
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.wait();
        if let Stage::Ready(_) = self.stage {
            let _opening_does = self.disk.remove(&self.path);
        }
    }
}

fn write_zeros(disk: &dyn Disk, path: &Path, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
    let file = disk.create(path)?;
    // One request for all of it keeps the file contiguous, and shows a lack of space now.
    file.preallocate(bytes)?;
    let zeros = vec![0; STEP_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let step = usize::try_from(bytes - offset).map_or(STEP_BYTES, |rest| rest.min(STEP_BYTES));
        // Synced step by step, so that a commit group waits for one step at most.
        file.write_at(&zeros[..step], offset)?;
        file.sync()?;
        offset += step as u64;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_disk::{RealDisk, exists, read_whole};

    #[test]
    fn a_segment_is_made_once_for_each_that_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let bytes = STEP_BYTES as u64 + 4096;
        let mut preparer = Preparer::new(Arc::clone(&disk), place.path(), bytes, Preparation::InPlace);
        assert!(preparer.take(1).is_none(), "none was asked for");
        for _ in 0..2 {
            preparer.begin();
            preparer.begin();
            assert!(preparer.take(bytes + 1).is_none(), "a longer one is wanted");
            let blank = preparer.take(bytes).unwrap();
            let content = read_whole(&*blank.file).unwrap();
            assert!(content.len() as u64 == bytes && content.iter().all(|byte| *byte == 0));
            disk.rename(&blank.path, &place.path().join("taken")).unwrap();
            assert!(preparer.take(bytes).is_none(), "it is taken");
        }
        preparer.begin();
        let path = preparer.path.clone();
        assert!(exists(&*disk, &path).unwrap());
        drop(preparer);
        assert!(!exists(&*disk, &path).unwrap(), "nobody needs it any more");
    }

    #[test]
    fn one_that_cannot_be_made_is_tried_again_with_the_next() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing");
        let mut preparer = Preparer::new(Arc::new(RealDisk), &missing, 4096, Preparation::InPlace);
        preparer.begin();
        std::fs::create_dir(&missing).unwrap();
        preparer.begin();
        assert!(preparer.take(4096).is_none(), "the first trial failed, and there was no second");
        preparer.begin();
        assert!(preparer.take(4096).is_some());
    }
    /// Without preparation nothing is made, in however many segments.
    #[test]
    fn no_segment_is_made_without_preparation() {
        let place = tempfile::tempdir().unwrap();
        let mut preparer = Preparer::new(Arc::new(RealDisk), place.path(), 4096, Preparation::Never);
        for _ in 0..2 {
            preparer.begin();
            assert!(preparer.take(4096).is_none());
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
