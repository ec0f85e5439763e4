//! Snapshot service of an open store: the facts that requests about snapshots share.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_log::log_end::LogPosition;
use exacat_model::{OperationId, Result, SnapshotName, TimeMs, Timelines};
use exacat_store::Clock;
use parking_lot::Mutex;

use super::backup::Backing;
use super::diff::Diff;
use super::label::Label;
use super::take::{self, LogPart, Pinned};
use crate::companion::Companion;
use crate::identity::{Identity, Layout};
use crate::settings::SNAPSHOT_REQUESTS_REMEMBERED;
use crate::shared::Shared;

/// Snapshots, comparisons and backups of an open store.
pub(crate) struct SnapshotService {
    pub data: Layout,
    identity: Identity,
    pub clock: Arc<dyn Clock>,
    /// Counter that distinguishes directories made at the same time.
    number: AtomicU64,
    /// Lock: one snapshot at a time is taken or dropped.
    pub ancestor: tokio::sync::Mutex<()>,
    /// Recent requests and their snapshots, the oldest first.
    done: Mutex<VecDeque<(OperationId, SnapshotName)>>,
    /// Comparisons that may continue, the oldest first.
    pub diffs: Mutex<Vec<OpenDiff>>,
    pub backup: tokio::sync::Mutex<Option<RunningBackup>>,
    /// State beside the catalogue.
    pub companion: Option<Arc<dyn Companion>>,
}

/// An open comparison.
pub(crate) struct OpenDiff {
    pub token: u64,
    pub diff: Arc<Diff>,
}

/// A backup in progress.
pub(crate) struct RunningBackup {
    pub token: u64,
    pub directory: PathBuf,
    pub backing: Backing,
    /// Time of its last step.
    pub last: TimeMs,
}

impl SnapshotService {
    /// Returns the timelines of the catalogue.
    pub(crate) fn timelines(&self) -> &Timelines {
        &self.identity.timelines
    }

    /// Returns the catalogue's identity.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the text of the catalogue's identity.
    pub(crate) fn identity_text(&self) -> String {
        self.identity.encode()
    }

    /// Returns the layout of the catalogue's files.
    pub(crate) fn layout(&self) -> &Layout {
        &self.data
    }

    /// Returns the id of the catalogue, then those of its origins, the nearest first.
    pub(crate) fn ancestry(&self) -> Vec<[u8; 16]> {
        [&[self.identity.id], self.identity.origins.as_slice()].concat()
    }

    pub(crate) fn new(data: Layout, identity: Identity, clock: Arc<dyn Clock>) -> Self {
        SnapshotService {
            data,
            identity,
            clock,
            number: AtomicU64::new(1),
            ancestor: tokio::sync::Mutex::new(()),
            done: Mutex::default(),
            diffs: Mutex::default(),
            backup: tokio::sync::Mutex::new(None),
            companion: None,
        }
    }

    /// Takes the state beside the catalogue into its snapshots.
    pub(crate) fn with(self, companion: Option<Arc<dyn Companion>>) -> Self {
        SnapshotService { companion, ..self }
    }

    pub(crate) fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// Says whether this request took or dropped this snapshot before.
    pub(crate) fn was_done(&self, id: OperationId, name: &SnapshotName) -> bool {
        self.done.lock().iter().any(|(done, of)| (*done, of) == (id, name))
    }

    pub(crate) fn note_done(&self, id: OperationId, name: &SnapshotName) {
        let mut done = self.done.lock();
        if done.len() >= SNAPSHOT_REQUESTS_REMEMBERED {
            done.pop_front();
        }
        done.push_back((id, name.clone()));
    }

    /// Links the files of the state. Runs on the writer thread, while everything is durable and
    /// nothing changes.
    pub(crate) fn pin(
        &self,
        shared: &Shared,
        into: &Layout,
        name: &SnapshotName,
        part: LogPart,
        end: LogPosition,
    ) -> Result<Pinned> {
        let (revision, last, entries, digest) = {
            let state = shared.state.read();
            (state.revision, state.time, state.entries, state.digest())
        };
        let manifest = take::link(&*shared.disk, &self.data, into, &self.identity, revision, part)?;
        // A snapshot is never older than its last change, whatever happened to the clock.
        let (name, time, catalogue) = (name.clone(), self.clock.trusted().max(last), self.identity.id);
        let timeline = self.identity.timelines.at(revision);
        let label = Label { name, revision, time, entries, digest, catalogue, timeline };
        Ok(Pinned { label, identity: self.identity.clone(), manifest, end })
    }
}
