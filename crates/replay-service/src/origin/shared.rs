//! State of the origin that all its connections share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::counts::{ByFile, Counts};
use super::faults::Faults;
use super::files::OriginFileList;
use super::pace::Pace;
use super::settings::{OriginSettings, OriginTimes};
use super::templates::Templates;

/// The shared state.
pub(super) struct Shared {
    pub files: OriginFileList,
    pub templates: Templates,
    pub counts: Counts,
    pub by_file: Option<ByFile>,
    pub bandwidth_of_connection: Option<u64>,
    pub times: OriginTimes,
    /// Bandwidth of all connections.
    pub pace: Option<Mutex<Pace>>,
    /// Numbers of opens and reads, which their lots are drawn for.
    pub open_number: AtomicU64,
    pub read_number: AtomicU64,
    faults: RwLock<Arc<Faults>>,
}

impl Shared {
    pub(super) fn new(settings: OriginSettings) -> Self {
        let pace = |rate| Mutex::new(Pace::new(rate, Instant::now()));
        Shared {
            files: settings.files,
            templates: Templates::new(),
            counts: Counts::new(),
            by_file: settings.counts_files.then(ByFile::default),
            bandwidth_of_connection: settings.bandwidth_of_connection,
            times: settings.times,
            pace: settings.bandwidth.map(pace),
            open_number: AtomicU64::new(0),
            read_number: AtomicU64::new(0),
            faults: RwLock::new(Arc::new(settings.faults)),
        }
    }

    /// Returns the faults on order now.
    pub(super) fn faults(&self) -> Arc<Faults> {
        Arc::clone(&self.faults.read())
    }

    /// Sets the faults of requests from now on.
    pub(super) fn set_faults(&self, faults: Faults) {
        *self.faults.write() = Arc::new(faults);
    }
}
