//! The history of elements as a part of the catalogue's snapshots, restores and checks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use exacat_history::{History, Moment, Restore, Until};
use exacat_model::{Error, ErrorKind, Result};
use exacat_store_embedded::{Companion, CompanionRestore, FinishPart};

/// The history of elements beside a catalogue: open in this process, or only its files.
#[derive(Default)]
pub struct ElementsBeside {
    open: OnceLock<Open>,
}

struct Open {
    history: Arc<History>,
    directory: PathBuf,
}

impl fmt::Debug for ElementsBeside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElementsBeside").field("open", &self.open.get().is_some()).finish()
    }
}

impl ElementsBeside {
    /// Takes the open history: snapshots have it from now on.
    pub(crate) fn opened(&self, history: &Arc<History>, directory: PathBuf) {
        let _first = self.open.set(Open { history: Arc::clone(history), directory });
    }
}

impl Companion for ElementsBeside {
    fn begin_part(&self, into: &Path) -> Result<bool> {
        let Some(open) = self.open.get() else { return Ok(false) };
        open.history.link_ahead(into).map(|()| true)
    }

    fn pin(&self, into: &Path, whole_log: bool) -> Result<FinishPart> {
        let open = self.open.get();
        let open = open.ok_or_else(|| Error::new(ErrorKind::Internal, "the history is not open"))?;
        let (pinned, directory) = (open.history.pin(into, whole_log)?, open.directory.clone());
        Ok(Box::new(move || pinned.finish(&directory)))
    }

    fn check(&self, part: &Path) -> Result<Vec<String>> {
        exacat_history::check(part).map(|checked| checked.problems)
    }

    fn restore(&self, request: &CompanionRestore) -> Result<Moment> {
        let request = Restore {
            from: &request.from,
            log_of: &request.log_of,
            present: &request.present,
            into: &request.into,
            until: request.until.map_or(Until::Taken, Until::Time),
            copies: false,
        };
        exacat_history::restore(&request)
    }
}
