//! The log's next segment, made ready while the present one is being filled: a thread of its own writes zeros to its end
//! and makes them durable.
//!
//! Two things are won. Beginning the segment does not wait for its space. And space that was merely reserved has to
//! be turned into written space by each sync that first writes there, which the file system does in a commit of its
//! own, with all that merging is writing at the time; zeros that are there are just overwritten.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::disk::{Disk, DiskFile};
use crate::log::UNFINISHED;

/// Zeros written and made durable at once: a group of changes that is on its way meanwhile waits for no more than these.
const STEP_BYTES: usize = 4 << 20;

/// A segment with nothing in it: its file, and the unfinished name that has.
pub(crate) struct Blank {
    pub file: Box<dyn DiskFile>,
    pub path: PathBuf,
}

enum Stage {
    /// None is asked for.
    Idle,
    Making(JoinHandle<io::Result<Box<dyn DiskFile>>>),
    Ready(Box<dyn DiskFile>),
    /// It could not be made, most likely for lack of space: the next is tried after the next segment was begun.
    Refused,
}

/// Makes the next segment ready.
pub(crate) struct Preparer {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    segment_bytes: u64,
    stage: Stage,
}

impl Preparer {
    /// One for segments of so many bytes.
    pub fn new(disk: Arc<dyn Disk>, directory: &Path, segment_bytes: u64) -> Self {
        Preparer {
            disk,
            path: directory.join(format!("next{UNFINISHED}")),
            segment_bytes,
            stage: Stage::Idle,
        }
    }

    /// Begins to make it ready, if that is not under way.
    pub fn begin(&mut self) {
        if !matches!(self.stage, Stage::Idle) {
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
        // Tests that count what is done to a disk need it done in an order.
        if cfg!(test) {
            self.wait();
        }
    }

    fn refused(&self, error: &io::Error) -> Stage {
        tracing::debug!(file = %self.path.display(), %error, "cannot prepare the log's next segment");
        // What there is of it takes up space; opening removes it at the latest.
        let _opening_does = self.disk.remove(&self.path);
        Stage::Refused
    }

    fn wait(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Making(making) => {
                let broken = |_| Err(io::Error::other("its thread ended by a defect"));
                match making.join().unwrap_or_else(broken) {
                    Ok(file) => Stage::Ready(file),
                    Err(error) => self.refused(&error),
                }
            }
            other => other,
        };
    }

    /// The segment, if one is ready that has room for `length`. A segment is begun, so the one after it may be prepared.
    pub fn take(&mut self, length: u64) -> Option<Blank> {
        if matches!(&self.stage, Stage::Making(making) if making.is_finished()) {
            self.wait();
        }
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
    // All of it at once, so that it lies together; and if there is no space for it that shows now.
    file.preallocate(bytes)?;
    let zeros = vec![0; STEP_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let step = usize::try_from(bytes - offset).map_or(STEP_BYTES, |rest| rest.min(STEP_BYTES));
        file.write_at(&zeros[..step], offset)?;
        file.sync()?;
        offset += step as u64;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{RealDisk, exists, read_whole};

    #[test]
    fn a_segment_is_made_once_for_each_that_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let bytes = STEP_BYTES as u64 + 4096;
        let mut preparer = Preparer::new(Arc::clone(&disk), place.path(), bytes);
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
        let mut preparer = Preparer::new(Arc::new(RealDisk), &missing, 4096);
        preparer.begin();
        std::fs::create_dir(&missing).unwrap();
        preparer.begin();
        assert!(preparer.take(4096).is_none(), "the first trial failed, and there was no second");
        preparer.begin();
        assert!(preparer.take(4096).is_some());
    }
}
