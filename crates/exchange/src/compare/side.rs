//! Reads the catalogue's side of a comparison: copies, deletions, uploads and changes of one storage
//! element, as records for the sorting thread.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_catalogue::moments::RevisionAt;
use exacat_model::answer::SeUsage;
use exacat_model::{
    Answer, Body, Change, Cursor, Effect, Error as ModelError, ErrorKind, FieldChange, Guid, Location,
    Operation, Record, RecordKey, Replica, ReplicaState, Revision, Se, SeName, SeNumber, TimeMs,
};
use exacat_store::{Store, StoredReplica};
use futures::{StreamExt, pin_mut};
use tokio::sync::mpsc;

use super::paths::path_of;
use super::record::{Batch, CatalogueCopy, Fact, WaitingDeletion};
use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::import::position;
use crate::limits::{CHANGES_PAGE_ITEMS, COMPARE_BATCH_BYTES, COMPARE_STORE_PAGE, EXPORT_PAGE_ITEMS};
use crate::sending::unexpected;

/// Changes of one page.
const PAGE: usize = CHANGES_PAGE_ITEMS as usize;

/// A state of the catalogue that a comparison reads.
pub struct State<'a, C> {
    /// The catalogue, for reads by its rules.
    pub catalogue: &'a C,
    /// The store below it, if it is open in this process; it also has the copies of removed files.
    pub store: Option<Arc<dyn Store>>,
}

/// Sends records to the sorting thread in batches.
pub(crate) struct Records {
    batch: Batch,
    sender: mpsc::Sender<Batch>,
    /// Records sent so far, for progress.
    pub(crate) sent: Arc<AtomicU64>,
}

impl Records {
    pub(crate) fn new(sender: mpsc::Sender<Batch>, sent: Arc<AtomicU64>) -> Self {
        Records { batch: Batch::default(), sender, sent }
    }

    async fn push(&mut self, key: &str, fact: &Fact) -> Result<(), Error> {
        self.batch.push(key, fact);
        if self.batch.bytes() >= COMPARE_BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Sends what is left.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.batch);
        self.sent.fetch_add(batch.records(), Ordering::Relaxed);
        self.sender.send(batch).await.map_err(|_| Error::Broken("sorting"))
    }
}

/// State of the catalogue that a reading is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The state before the dump.
    Before,
    /// The state after it.
    After,
}

/// Counts of a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Copies on the storage element, lost ones too.
    pub(crate) copies: u64,
    /// True if removed directories have copies that could not be listed.
    pub(crate) hidden: bool,
}

/// Findings in the changes of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Changes read.
    pub(crate) changes: u64,
    /// True if the prefix of the storage element changed, and with it all derived paths.
    pub(crate) prefix_changed: bool,
    /// Deletions done in the window whose paths are not known any more.
    pub(crate) unknown_deletions: u64,
}

impl Window {
    /// Joins the findings of two windows.
    pub(crate) fn with(self, other: Window) -> Window {
        Window {
            changes: self.changes + other.changes,
            prefix_changed: self.prefix_changed || other.prefix_changed,
            unknown_deletions: self.unknown_deletions + other.unknown_deletions,
        }
    }
}

/// Returns the storage element of this name, with its usage.
pub async fn storage_element<C: Catalogue>(catalogue: &C, name: &SeName) -> Result<SeUsage, Error> {
    let Answer::Ses(ses) = catalogue.call(Operation::SeList).await? else {
        return Err(unexpected("se-list").into());
    };
    let found = ses.into_iter().find(|usage| usage.se.name == *name);
    found.ok_or_else(|| ModelError::not_found(format!("no such storage element: {name}")).into())
}

fn fact_of(stored: &StoredReplica, when: When) -> Fact {
    let StoredReplica { guid, revision, size, checksums, replica } = stored;
    match when {
        When::Before => Fact::Before(*guid, replica.state),
        When::After => Fact::After(CatalogueCopy {
            guid: *guid,
            state: replica.state,
            revision: *revision,
            size: *size,
            checksums: checksums.clone(),
        }),
    }
}

/// Returns the path of a copy on its storage element.
fn key_of<'r>(guid: Guid, replica: &'r Replica, se: &Se) -> Cow<'r, str> {
    match &replica.location {
        Location::Explicit(pfn) => path_of(pfn.as_str()),
        _ => Cow::Owned(path_of(&replica.pfn(guid, Some(se))).into_owned()),
    }
}

impl<C: Catalogue> State<'_, C> {
    /// Sends the copies on a storage element.
    pub(crate) async fn copies(&self, se: &Se, when: When, out: &mut Records) -> Result<Listed, Error> {
        let mut listed = Listed::default();
        let Some(store) = &self.store else {
            // Entries may move between tree and trash meanwhile: what both readings of the trash
            // have, or the tree, is complete.
            let mut guids = BTreeSet::new();
            self.removed(se, when, out, &mut listed, &mut guids).await?;
            let files = Operation::SeFiles {
                name: se.name.clone(),
                cursor: Cursor::default(),
                limit: EXPORT_PAGE_ITEMS,
            };
            let pages = self.catalogue.stream(files);
            pin_mut!(pages);
            while let Some(answer) = pages.next().await {
                let Answer::Entries { items, .. } = answer? else {
                    return Err(unexpected("se-files").into());
                };
                for stored in items.into_iter().filter_map(|stat| StoredReplica::of(stat.entry, se.number)) {
                    copy(&stored, se, when, out, &mut listed).await?;
                }
            }
            self.removed(se, when, out, &mut listed, &mut guids).await?;
            return Ok(listed);
        };
        let mut cursor = Vec::new();
        loop {
            let (page, next) = store.replicas_on(se.number, &cursor, COMPARE_STORE_PAGE).await?;
            for stored in page.items {
                copy(&stored, se, when, out, &mut listed).await?;
            }
            if !page.more {
                return Ok(listed);
            }
            cursor = next;
        }
    }

    /// Sends the copies of removed files, as far as a server lists them.
    async fn removed(
        &self,
        se: &Se,
        when: When,
        out: &mut Records,
        listed: &mut Listed,
        guids: &mut BTreeSet<Guid>,
    ) -> Result<(), Error> {
        let list = Operation::TrashList { cursor: Cursor::default(), limit: EXPORT_PAGE_ITEMS };
        let pages = self.catalogue.stream(list);
        pin_mut!(pages);
        while let Some(answer) = pages.next().await {
            let Answer::Trash { items, .. } = answer? else { return Err(unexpected("trash-list").into()) };
            for (item, _) in items {
                match &item.entry.body {
                    Body::Directory(_) => listed.hidden |= item.usage.replicas > 0,
                    Body::File(file) if guids.insert(file.guid) => {
                        if let Some(stored) = StoredReplica::of(item.entry, se.number) {
                            copy(&stored, se, when, out, listed).await?;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sends the deletions that wait, and the uploads in progress.
    pub(crate) async fn in_flight(&self, se: &Se, when: When, out: &mut Records) -> Result<(), Error> {
        let (cursor, limit) = (Cursor::default(), EXPORT_PAGE_ITEMS);
        let queue = Operation::SeDeletions { name: se.name.clone(), cursor: cursor.clone(), limit };
        let pages = self.catalogue.stream(queue);
        pin_mut!(pages);
        while let Some(answer) = pages.next().await {
            let Answer::Deletions { items, .. } = answer? else {
                return Err(unexpected("se-deletions").into());
            };
            for item in items {
                let fact = match when {
                    When::Before => Fact::DeletionBefore,
                    When::After => Fact::Deletion(WaitingDeletion {
                        id: item.id.to_string(),
                        queued: item.queued,
                        size: item.size,
                    }),
                };
                out.push(&path_of(&item.pfn), &fact).await?;
            }
        }
        let uploads = self.catalogue.stream(Operation::UploadList { cursor, limit });
        pin_mut!(uploads);
        while let Some(answer) = uploads.next().await {
            let Answer::Uploads { items, .. } = answer? else {
                return Err(unexpected("upload-list").into());
            };
            for target in items.iter().flat_map(|upload| &upload.targets) {
                if target.se == se.name {
                    out.push(&path_of(&target.pfn), &Fact::Upload).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns the last change of the state.
    pub(crate) async fn revision(&self) -> Result<Revision, Error> {
        match &self.store {
            Some(store) => Ok(store.revision().await?),
            None => Ok(position(self.catalogue, Revision(0).into()).await?.revision),
        }
    }

    /// Returns a page of changes after a revision, and the last revision that it covers.
    async fn changes(&self, after: Revision, limit: usize) -> Result<(Vec<Change>, Revision), ModelError> {
        if let Some(store) = &self.store {
            let page = store.changes(after, limit).await?;
            if after.0.saturating_add(1) < page.oldest.0 {
                let message = format!("changes before {} are not kept any more", page.oldest.0);
                return Err(ModelError::new(ErrorKind::NotFound, message));
            }
            return Ok((page.changes, page.up_to));
        }
        let limit = u32::try_from(limit).unwrap_or(CHANGES_PAGE_ITEMS);
        let ask = Operation::Changes { after: after.into(), under: None, limit, wait: false };
        match self.catalogue.call(ask).await? {
            Answer::Changes { items, up_to, .. } => {
                Ok((items.into_iter().map(|info| info.change).collect(), up_to))
            }
            _ => Err(unexpected("changes")),
        }
    }

    /// Returns the last revision at or before a time, among those up to `last`; none if the history
    /// does not reach back so far.
    pub(crate) async fn revision_at(&self, time: TimeMs, last: Revision) -> Result<Option<Revision>, Error> {
        let mut search = RevisionAt::new(time, last);
        while let Some(after) = search.wanted() {
            let found = self.changes(after, 1).await;
            search.look(found.map(|(changes, _)| changes.first().map(|change| change.time)))?;
        }
        Ok(search.found())
    }

    /// Passes the path of each copy that changed after `from`, up to `to`, to `take`; none if the
    /// history does not reach back so far.
    pub(crate) async fn touched(
        &self,
        se: &Se,
        from: Revision,
        to: Revision,
        mut take: impl AsyncFnMut(Guid, &str) -> Result<(), Error>,
    ) -> Result<Option<Window>, Error> {
        let mut window = Window::default();
        let mut after = from;
        let mut deletions: BTreeSet<u64> = BTreeSet::new();
        while after < to {
            let (changes, up_to) = match self.changes(after, PAGE).await {
                Ok(page) => page,
                Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            for change in changes.iter().filter(|change| change.revision <= to) {
                window.changes += 1;
                for (guid, key) in touched_keys(&change.effect, se) {
                    take(guid, &key).await?;
                }
                match &change.effect {
                    Effect::Dequeued { se: number, done } if *number == se.number => {
                        deletions.extend(done.iter().map(|id| id.revision.0));
                    }
                    Effect::Recorded { key: RecordKey::Se(number), before, after }
                        if *number == se.number =>
                    {
                        let prefix = |record: &Option<Box<Record>>| match record.as_deref() {
                            Some(Record::Se(se)) => Some(se.prefix.clone()),
                            _ => None,
                        };
                        window.prefix_changed |= before.is_some() && prefix(before) != prefix(after);
                    }
                    _ => {}
                }
            }
            if up_to <= after {
                break;
            }
            after = up_to;
        }
        // The change that queued a deletion has its path.
        for revision in deletions {
            match self.changes(Revision(revision.saturating_sub(1)), 1).await {
                Ok((changes, _)) => match changes.first().filter(|change| change.revision.0 == revision) {
                    Some(change) => {
                        for (guid, key) in touched_keys(&change.effect, se) {
                            take(guid, &key).await?;
                        }
                    }
                    None => window.unknown_deletions += 1,
                },
                Err(error) if error.kind == ErrorKind::NotFound => window.unknown_deletions += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(window))
    }

    /// Sends the paths of copies that changed after `from`, up to `to`.
    pub(crate) async fn send_touched(
        &self,
        se: &Se,
        (from, to): (Revision, Revision),
        out: &mut Records,
    ) -> Result<Option<Window>, Error> {
        self.touched(se, from, to, async |_, key| out.push(key, &Fact::Touched).await).await
    }
}

async fn copy(
    stored: &StoredReplica,
    se: &Se,
    when: When,
    out: &mut Records,
    listed: &mut Listed,
) -> Result<(), Error> {
    listed.copies += 1;
    out.push(&key_of(stored.guid, &stored.replica, se), &fact_of(stored, when)).await
}

/// Returns the files and paths on a storage element whose copies an effect concerns.
pub(crate) fn touched_keys(effect: &Effect, se: &Se) -> Vec<(Guid, String)> {
    let mut keys = Vec::new();
    let mut add = |guid: Guid, number: SeNumber, location: &Location| {
        if number == se.number {
            let replica = Replica { se: number, state: ReplicaState::Available, location: location.clone() };
            keys.push((guid, key_of(guid, &replica, se).into_owned()));
        }
    };
    match effect {
        Effect::Created { entry } | Effect::Purged { entry, .. } => {
            let file = entry.file();
            for (guid, replica) in
                file.into_iter().flat_map(|file| file.replicas.iter().map(|r| (file.guid, r)))
            {
                add(guid, replica.se, &replica.location);
            }
        }
        Effect::Updated { id, fields, .. } => {
            for field in fields {
                let (Some(guid), FieldChange::Replica { before, after, .. }) = (id.object(), field) else {
                    continue;
                };
                for replica in before.iter().chain(after) {
                    add(guid, replica.se, &replica.location);
                }
            }
        }
        Effect::Committed { guid, replica, .. } => add(*guid, replica.se, &replica.location),
        Effect::Reserved { reservation, before } => {
            for reservation in std::iter::once(reservation).chain(before) {
                for pending in &reservation.pending {
                    add(reservation.guid, pending.se, &pending.location);
                }
            }
        }
        Effect::Released { reservation, .. } => {
            for pending in &reservation.pending {
                add(reservation.guid, pending.se, &pending.location);
            }
        }
        Effect::Moved { .. }
        | Effect::Removed { .. }
        | Effect::Restored { .. }
        | Effect::Dequeued { .. }
        | Effect::Recorded { .. } => {}
    }
    keys
}

/// Returns the last revision at or before a time; none if the history does not reach back so far.
pub async fn revision_at_time<C: Catalogue>(catalogue: &C, time: TimeMs) -> Result<Option<Revision>, Error> {
    let state = State { catalogue, store: None };
    let last = state.revision().await?;
    state.revision_at(time, last).await
}
