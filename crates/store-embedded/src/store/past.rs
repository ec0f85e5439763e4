//! Serves past states: each is a store of its own, over links of the files that lead to it.

use std::sync::Arc;

use async_trait::async_trait;
use exacat_activity::{RequestState, on};
use exacat_disk::Disk;
use exacat_log::Segment;
use exacat_model::{Error, ErrorKind, PastPoint, Result, Revision, SnapshotName, TimelineId};
use exacat_store::{PastRoute, PastStates, Replaced, Store};

use super::EmbeddedStore;
use super::snapshots::Making;
use crate::blocking::on_blocking_thread;
use crate::history::History;
use crate::identity::{Identity, Layout};
use crate::older::Older;
use crate::settings::{EmbeddedSettings, PAST_TRIES_MAX};
use crate::shared::Shared;
use crate::snapshot::SnapshotService;
use crate::snapshot::past::PastFiles;
use crate::snapshot::replaced;
use crate::snapshot::take::{self, LogPart};
use crate::state::State;

/// Word in the name of a hidden directory.
const PAST: &str = "past";

impl EmbeddedStore {
    /// Returns the files that lead to past states, up to the last durable change.
    async fn past_files(&self) -> Result<PastFiles> {
        // A change before now may still be on its way to the disk. Later ones have later times.
        self.read(|_| Ok(())).await?;
        let service = self.service();
        Ok(PastFiles {
            disk: Arc::clone(&self.shared().disk),
            data: service.data.clone(),
            identity: service.identity().clone(),
            history: Arc::clone(&self.shared().history),
            present: self.shared().durability.revision(),
            now: service.clock.trusted(),
        })
    }

    /// Fixes the files that lead to a state, in a hidden directory. None if they changed meanwhile.
    async fn fix_past(&self, files: &Arc<PastFiles>, revision: Revision) -> Result<Option<Making>> {
        let service = self.service();
        let root = take::hidden(&service.data, PAST, service.next(), PAST);
        let (making, fixing) = (Making::new(Arc::clone(&files.disk), Layout::new(&root)), Arc::clone(files));
        let (making, is_fixed) = on_blocking_thread(move || {
            let is_fixed = fixing.fix(revision, &making.layout)?;
            Ok((making, is_fixed))
        })
        .await?;
        if is_fixed {
            return Ok(Some(making));
        }
        let (making, pinned, _) =
            self.pin(&SnapshotName::parse(PAST)?, LogPart::AfterRuns, PAST, false).await?;
        if pinned.manifest.revision > revision {
            return Ok(None);
        }
        let disk = Arc::clone(&files.disk);
        on_blocking_thread(move || {
            pinned.manifest.save(&*disk, &making.layout.runs(), pinned.identity.id)?;
            Ok(Some(making))
        })
        .await
    }

    /// Makes a store of a state and its history that takes no changes.
    fn of_past(
        &self,
        state: State,
        (identity, segments): (Identity, Vec<Arc<Segment>>),
        disk: Arc<dyn Disk>,
    ) -> Arc<EmbeddedStore> {
        let service = self.service();
        let history = History::new(Arc::clone(&disk), identity.id, segments);
        let older = Older::new(Arc::clone(&disk), service.data.operations());
        let shared = Arc::new(Shared::new(state, history, older, disk));
        let settings = EmbeddedSettings { follows: None, companion: None, ..self.settings.clone() };
        let service = SnapshotService::new(service.data.clone(), identity, Arc::clone(&service.clock));
        Arc::new(EmbeddedStore::of_snapshot(shared, settings, service))
    }

    /// Makes the state after a change.
    pub(crate) async fn open_past(&self, revision: Revision) -> Result<Arc<EmbeddedStore>> {
        let files = Arc::new(self.past_files().await?);
        let mut last =
            Error::new(ErrorKind::Unavailable, "the runs changed each time they were linked: try again");
        for _ in 0..PAST_TRIES_MAX {
            let making = match on(RequestState::HistoryRead, self.fix_past(&files, revision)).await {
                Ok(Some(making)) => making,
                Ok(None) => continue,
                // There is no way to the state, and there will be none.
                Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Limit) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot fix the files of a past state now");
                    last = error;
                    continue;
                }
            };
            let (building, shared) = (Arc::clone(&files), Arc::clone(self.shared()));
            let rows_max = self.settings.memtable_rows;
            // The links go with the work, so that they are removed even if nobody waits for it.
            let built = on_blocking_thread(move || {
                let making = making;
                // A store that closes does not wait for it.
                building.build(revision, &making.layout, rows_max, &|| shared.check_open())
            });
            let state = on(RequestState::HistoryRead, built).await?;
            let of = (files.identity.clone(), Vec::new());
            return Ok(self.of_past(state, of, Arc::clone(&files.disk)));
        }
        Err(last)
    }
}

#[async_trait]
impl PastStates for EmbeddedStore {
    async fn route(&self, point: PastPoint) -> Result<PastRoute> {
        let files = self.past_files().await?;
        on(RequestState::HistoryRead, on_blocking_thread(move || files.route(point))).await
    }

    async fn open(&self, revision: Revision) -> Result<Arc<dyn Store>> {
        let store: Arc<dyn Store> = self.open_past(revision).await?;
        Ok(store)
    }

    async fn replaced(&self, timeline: TimelineId) -> Result<Option<Replaced>> {
        let (service, shared) = (Arc::clone(self.service()), Arc::clone(self.shared()));
        let read = on_blocking_thread(move || {
            let copy = replaced::find(&*shared.disk, &service.data, service.identity(), timeline)?;
            let Some(copy) = copy else { return Ok(None) };
            let (state, segments) = copy.open(&shared.disk, &|| shared.check_open())?;
            Ok(Some((copy, state, segments)))
        });
        let Some((copy, state, segments)) = on(RequestState::HistoryRead, read).await? else {
            return Ok(None);
        };
        let up_to = copy.up_to.min(state.revision);
        let store = self.of_past(state, (copy.identity, segments), Arc::clone(&self.shared().disk));
        Ok(Some(Replaced { store, up_to }))
    }
}
