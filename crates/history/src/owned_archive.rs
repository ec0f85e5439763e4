//! The archive with its owner: a history reads and writes the archive only while it owns it.
//!
//! The archive has an object that names the owner; the history has its incarnation in the file `ARCHIVE`.
//! Both must agree. The check for writers comes before each attempt, and again at each commit. The check for
//! readers comes once, because files never change.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_disk::Disk;
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use parking_lot::Mutex;

use crate::archive::{Archive, ArchiveOwner, ArchivedFile};
use crate::archive_state::{ArchiveState, Tenure};
use crate::checked_file::HistoryId;

/// File of Linux with the name of the machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The archive of a history.
pub(crate) struct OwnedArchive {
    archive: Arc<dyn Archive>,
    disk: Arc<dyn Disk>,
    /// Directory of the history.
    root: PathBuf,
    id: HistoryId,
    state: Mutex<ArchiveState>,
    /// The archive was seen to be this history's.
    readable: AtomicBool,
}

fn hex(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

impl OwnedArchive {
    /// Reads the state of a history towards its archive. The archive itself may be away.
    pub(crate) fn open(
        archive: Arc<dyn Archive>,
        disk: Arc<dyn Disk>,
        root: PathBuf,
        id: HistoryId,
    ) -> Result<Self> {
        let state = Mutex::new(ArchiveState::read(&*disk, &root)?);
        Ok(OwnedArchive { archive, disk, root, id, state, readable: AtomicBool::new(false) })
    }

    /// Returns the archive, whoever owns it.
    pub(crate) fn files(&self) -> &dyn Archive {
        &*self.archive
    }

    /// Returns the state towards the archive.
    pub(crate) fn state(&self) -> ArchiveState {
        *self.state.lock()
    }

    /// Replaces the state, on disk first.
    pub(crate) fn set_state(&self, state: ArchiveState) -> Result<()> {
        state.write(&*self.disk, &self.root)?;
        *self.state.lock() = state;
        Ok(())
    }

    /// Lets readers pass from now on, or has them checked again.
    pub(crate) fn set_readable(&self, readable: bool) {
        self.readable.store(readable, Ordering::Release);
    }

    /// Returns this history as an owner.
    pub(crate) fn this(&self, incarnation: [u8; 16], since: TimeMs) -> ArchiveOwner {
        let host = std::fs::read_to_string(HOST_NAME).unwrap_or_default().trim().to_owned();
        let root = std::path::absolute(&self.root).unwrap_or_else(|_| self.root.clone());
        let directory = root.display().to_string();
        ArchiveOwner { history: self.id, incarnation, since, directory, host }
    }

    fn refused(&self, why: &str) -> Error {
        Error::new(ErrorKind::Conflict, format!("the archive {}: {why}", self.archive.name()))
    }

    /// Tells who owns the archive, and what the operator can do.
    pub(crate) fn owned_by(&self, owner: &ArchiveOwner) -> Error {
        let ArchiveOwner { directory, host, since, .. } = owner;
        let at = format!("{directory} on {host}, since {since}");
        self.refused(&match owner.history == self.id {
            true => format!(
                "it belongs to another copy of this history, {at}. Stop the server of that copy for good, then \
                 stop this one and run exacat history adopt; or give this history an archive of its own"
            ),
            false => format!(
                "it belongs to another history, {} in {at}: give each history an archive of its own",
                hex(owner.history)
            ),
        })
    }

    /// Tells why the state of this history permits no use of the archive.
    fn check_state(&self, state: &ArchiveState) -> Result<()> {
        match state.tenure {
            Tenure::None | Tenure::Held => Ok(()),
            Tenure::Copied => Err(self.refused(
                "this history was restored or cloned, and another server may still use the archive. Stop that \
                 server for good, then stop this one and run exacat history adopt",
            )),
            Tenure::Adopting => Err(self.refused(
                "its adoption by this history was interrupted. Stop the server and run exacat history adopt again",
            )),
        }
    }

    /// Checks that the archived days of this history may be read.
    pub(crate) fn may_read(&self) -> Result<()> {
        if self.readable.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.state();
        match self.archive.owner()? {
            // An archive of an earlier release, which the next attempt to archive takes.
            None => self.check_state(&state),
            Some(owner) => {
                self.check_owner(&owner, &state)?;
                self.set_readable(true);
                Ok(())
            }
        }
    }

    /// Checks that this history is the owner, and that no adoption is to be repeated.
    fn check_owner(&self, owner: &ArchiveOwner, state: &ArchiveState) -> Result<()> {
        match owner.is(&self.this(state.incarnation, owner.since)) {
            true => self.check_state(state),
            false => Err(self.owned_by(owner)),
        }
    }

    /// Checks that this history owns the archive. It takes an archive that has no owner, if the files in it
    /// are `files`, those of the manifest. Returns the history as the owner.
    pub(crate) fn hold(&self, now: TimeMs, files: &[ArchivedFile]) -> Result<ArchiveOwner> {
        let held = self.try_hold(now, files);
        match &held {
            Ok(_) => self.set_readable(true),
            // A place that is away has not changed hands.
            Err(error) if error.kind == ErrorKind::Conflict => self.set_readable(false),
            Err(_) => {}
        }
        held
    }

    fn try_hold(&self, now: TimeMs, files: &[ArchivedFile]) -> Result<ArchiveOwner> {
        let mut state = self.state();
        if let Some(owner) = self.archive.owner()? {
            self.check_owner(&owner, &state)?;
            return Ok(self.this(state.incarnation, owner.since));
        }
        // A copy takes an archive only if neither has a day.
        let is_copy = matches!(state.tenure, Tenure::Copied | Tenure::Adopting);
        if is_copy && (!files.is_empty() || !self.archive.visible(self.id)?.is_empty()) {
            self.check_state(&state)?;
        }
        // On disk before the archive has it: after a crash the history knows its own object.
        if state.tenure != Tenure::Held {
            state = ArchiveState { tenure: Tenure::Held, incarnation: exacat_disk::random_id()?, ..state };
            self.set_state(state)?;
        }
        let this = self.this(state.incarnation, now);
        self.archive.claim(&this, files)?;
        Ok(this)
    }
}
