//! State beside the catalogue that takes part in its snapshots and restores: the values of elements.
//!
//! The store knows neither its files nor its meaning. It calls the companion at the moment of a
//! snapshot, keeps the companion's part in the snapshot's directory, and switches a restored part in
//! with the catalogue.

use std::fmt;
use std::path::{Path, PathBuf};

use exacat_log::moment::Moment;
use exacat_model::{Result, TimeMs};

/// Name of the part in the directory of a snapshot or a replaced copy, and of the present state beside
/// the directory of the catalogue.
pub const COMPANION: &str = "history";

/// Last step of a snapshot: makes the companion's part durable.
pub type FinishPart = Box<dyn FnOnce() -> Result<()> + Send>;

/// Source and end of the restore of a companion.
#[derive(Clone, Debug)]
pub struct CompanionRestore {
    /// Part in the snapshot.
    pub from: PathBuf,
    /// State whose log may continue the snapshot.
    pub log_of: PathBuf,
    /// State that the result will replace.
    pub present: PathBuf,
    /// Directory to make.
    pub into: PathBuf,
    /// End: the last record at or before this time; none for the snapshot itself.
    pub until: Option<TimeMs>,
}

/// State beside the catalogue.
pub trait Companion: fmt::Debug + Send + Sync {
    /// Begins the part of a snapshot in a new directory, with all that can be done before the moment.
    /// False if the state is not open here: then the snapshot has no such part.
    fn begin_part(&self, into: &Path) -> Result<bool>;

    /// Fixes the state at this moment. Runs on the writer thread, while the catalogue answers nothing:
    /// it must be quick. With `whole_log` the part has the whole log that is kept.
    fn pin(&self, into: &Path, whole_log: bool) -> Result<FinishPart>;

    /// Reads a part completely; returns its faults.
    fn check(&self, part: &Path) -> Result<Vec<String>>;

    /// Makes the state as it was at a time; returns its last record.
    fn restore(&self, request: &CompanionRestore) -> Result<Moment>;
}
