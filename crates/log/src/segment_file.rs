//! A segment on the disk, plain or archived, with the facts that its readers need.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_disk::{Disk, cannot_write};
use exacat_model::{Result, Revision};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::archive;
use crate::limits::INDEX_EVERY_BYTES;
use crate::segment::{self, HEADER_BYTES};

/// Form of a segment on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Plain, as the writer wrote it.
    Plain,
    /// Compressed.
    Archived,
    /// Removed.
    Gone,
}

/// Value of [`Segment::bytes`] before the file's length is read.
const UNKNOWN: u64 = u64::MAX;

/// One segment, with the facts that readers need.
pub struct Segment {
    /// Revision of its first record, which names it.
    pub first_revision: Revision,
    /// Path of the plain file, which may be gone.
    pub path: PathBuf,
    form: RwLock<Form>,
    /// Sparse index of a plain segment: first revision and offset of some records, in order.
    index: Mutex<Vec<(Revision, u64)>>,
    /// Length of its file, once sealed and read.
    bytes: AtomicU64,
}

impl Segment {
    /// Creates a plain segment.
    pub fn new(log_directory: &Path, first_revision: Revision) -> Self {
        Self::in_form(log_directory, first_revision, Form::Plain)
    }

    /// Creates a segment in a form.
    pub fn in_form(log_directory: &Path, first_revision: Revision, form: Form) -> Self {
        Segment {
            first_revision,
            path: log_directory.join(segment::file_name(first_revision)),
            form: RwLock::new(form),
            index: Mutex::new(Vec::new()),
            bytes: AtomicU64::new(UNKNOWN),
        }
    }

    /// Locks and returns the form on the disk, which stays the same while the guard is held.
    pub fn form(&self) -> RwLockReadGuard<'_, Form> {
        self.form.read()
    }

    /// Locks the form to change it: no reader opens the segment meanwhile.
    pub fn form_to_change(&self) -> RwLockWriteGuard<'_, Form> {
        let form = self.form.write();
        // Another form has another length.
        self.bytes.store(UNKNOWN, Ordering::Relaxed);
        form
    }

    /// Syncs the segment. A killed process may have left bytes that are readable and not durable; they
    /// must be durable before anything else has them.
    pub fn make_durable(&self, disk: &dyn Disk) -> Result<()> {
        let wrong = |error: std::io::Error| cannot_write(&self.path, &error);
        match disk.open_to_write(&self.path) {
            Ok(file) => file.sync().map_err(wrong),
            // The segment is archived and thus durable; otherwise the replay reports what is missing.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(wrong(error)),
        }
    }

    /// Returns the path of the archived file, whether it exists or not.
    pub fn archived_path(&self) -> PathBuf {
        self.path.with_extension(&archive::ENDING[1..])
    }

    /// Returns the name for errors.
    pub fn name(&self) -> String {
        self.name_in(*self.form())
    }

    /// Returns the name for errors of a form.
    pub fn name_in(&self, form: Form) -> String {
        match form {
            Form::Plain | Form::Gone => self.path.display().to_string(),
            Form::Archived => self.archived_path().display().to_string(),
        }
    }

    /// Adds a record to the index, unless it has one nearby.
    pub fn note(&self, first_revision: Revision, offset: u64) {
        let mut index = self.index.lock();
        if index.last().is_none_or(|(_, last)| *last + INDEX_EVERY_BYTES <= offset) {
            index.push((first_revision, offset));
        }
    }

    /// Drops the index, which an archived segment does not need.
    pub fn forget_notes(&self) {
        *self.index.lock() = Vec::new();
    }

    /// Returns the offset from which to search for the change of this revision.
    pub fn start_for(&self, revision: Revision) -> u64 {
        let index = self.index.lock();
        let before = index.partition_point(|(first, _)| *first <= revision);
        before.checked_sub(1).map_or(HEADER_BYTES as u64, |at| index[at].1)
    }

    /// Returns the length of its file; 0 if unknown. The length of a sealed file is read once.
    pub fn bytes(&self, disk: &dyn Disk, is_sealed: bool) -> u64 {
        let known = self.bytes.load(Ordering::Relaxed);
        if is_sealed && known != UNKNOWN {
            return known;
        }
        let form = self.form();
        let file = match *form {
            Form::Plain => disk.open_to_read(&self.path),
            Form::Archived => disk.open_to_read(&self.archived_path()),
            Form::Gone => return 0,
        };
        let Ok(bytes) = file.and_then(|file| file.length()) else { return 0 };
        if is_sealed {
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        bytes
    }
}
