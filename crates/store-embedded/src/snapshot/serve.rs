//! Snapshot service of an open store: takes and drops snapshots, compares them, backs them up.
//!
//! The writer thread only makes the links, between two commit groups. Everything else, and every
//! read or sync, runs elsewhere.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use exacat_model::codec::{Encode, Reader};
use exacat_model::limits::{DIRECTORY_PATH_BYTES_MAX, PAGE_ITEMS_MAX};
use exacat_model::{
    BackupProgress, Cursor, Difference, Error, ErrorKind, OperationId, Result, Revision, Snapshot,
    SnapshotCheck, SnapshotName, TimeMs, Timelines,
};
use exacat_store::{Clock, Snapshots};
use parking_lot::Mutex;

use super::backup::Backing;
use super::diff::{Diff, Place};
use super::existing;
use super::label::Label;
use super::take::{self, LogPart, Pinned};
use super::view::{self, View};
use crate::disk::Disk;
use crate::identity::{Identity, Layout};
use crate::log::Position;
use crate::settings::{BACKUP_IDLE_MS, DIFFS_OPEN_MAX, SNAPSHOT_CACHE_BYTES, SNAPSHOT_REQUESTS_REMEMBERED};
use crate::store::{EmbeddedStore, Shared};
use crate::writer::Command;

/// Context of the snapshots of an open store.
pub(crate) struct Keeper {
    data: Layout,
    identity: Identity,
    clock: Arc<dyn Clock>,
    /// Counter that distinguishes directories made at the same time.
    number: AtomicU64,
    /// Lock: one snapshot at a time is taken or dropped.
    gate: tokio::sync::Mutex<()>,
    /// Recent requests and their snapshots, the oldest first.
    done: Mutex<VecDeque<(OperationId, SnapshotName)>>,
    /// Comparisons that may continue, the oldest first.
    diffs: Mutex<Vec<OpenDiff>>,
    backup: tokio::sync::Mutex<Option<Running>>,
}

struct OpenDiff {
    token: u64,
    diff: Arc<Diff>,
}

/// A backup in progress.
struct Running {
    token: u64,
    directory: PathBuf,
    backing: Backing,
    /// Time of its last step.
    last: TimeMs,
}

impl Keeper {
    /// Returns the timelines of the catalogue.
    pub(crate) fn timelines(&self) -> &Timelines {
        &self.identity.timelines
    }

    /// Returns the layout of the catalogue's files.
    pub(crate) fn layout(&self) -> &Layout {
        &self.data
    }

    pub fn new(data: Layout, identity: Identity, clock: Arc<dyn Clock>) -> Self {
        Keeper {
            data,
            identity,
            clock,
            number: AtomicU64::new(1),
            gate: tokio::sync::Mutex::new(()),
            done: Mutex::default(),
            diffs: Mutex::default(),
            backup: tokio::sync::Mutex::new(None),
        }
    }

    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// Says whether this request took or dropped this snapshot before.
    fn was_done(&self, id: OperationId, name: &SnapshotName) -> bool {
        self.done.lock().iter().any(|(done, of)| (*done, of) == (id, name))
    }

    fn note_done(&self, id: OperationId, name: &SnapshotName) {
        let mut done = self.done.lock();
        if done.len() >= SNAPSHOT_REQUESTS_REMEMBERED {
            done.pop_front();
        }
        done.push_back((id, name.clone()));
    }

    /// Links the files of the state. Runs on the writer thread, while everything is durable and
    /// nothing changes.
    fn pin(
        &self,
        shared: &Shared,
        into: &Layout,
        name: &SnapshotName,
        part: LogPart,
        end: Position,
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

/// Runs work that waits for the disk on a blocking thread. Without a runtime it runs here.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime
            .spawn_blocking(work)
            .await
            .map_err(|error| Error::new(ErrorKind::Internal, format!("work on snapshots failed: {error}")))?,
        Err(_) => work(),
    }
}

/// Directory of a snapshot in the making. Dropping this removes it, unless it got another name or
/// owner.
struct Making {
    disk: Arc<dyn Disk>,
    layout: Layout,
    handed_over: bool,
}

impl Making {
    /// Leaves the removal to another owner.
    fn hand_over(mut self) {
        self.handed_over = true;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.handed_over {
            take::discard(&*self.disk, self.layout.root());
        }
    }
}

/// Cursor of a comparison: its token, its revisions, and the key to continue after.
struct DiffCursor {
    token: u64,
    revisions: (Revision, Revision),
    place: Place,
}

impl DiffCursor {
    fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let bad = |_| Error::invalid("this is no cursor of a comparison");
        let mut reader = Reader::new(bytes);
        let token = reader.varint().map_err(bad)?;
        let revisions = (Revision(reader.varint().map_err(bad)?), Revision(reader.varint().map_err(bad)?));
        Ok(Some(DiffCursor { token, revisions, place: Place::parse(reader.rest())? }))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        exacat_model::codec::put_varint(&mut bytes, self.token);
        self.revisions.0.encode(&mut bytes);
        self.revisions.1.encode(&mut bytes);
        bytes.extend_from_slice(&self.place.encode());
        bytes
    }
}

impl EmbeddedStore {
    fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.shared().disk)
    }

    /// Fixes the files of the present state in a hidden directory. A lasting snapshot begins a
    /// segment first, so it shares no file that is still written to.
    async fn pin(
        &self,
        name: &SnapshotName,
        part: LogPart,
        what: &'static str,
        seal: bool,
    ) -> Result<(Making, Pinned)> {
        let (keeper, disk) = (Arc::clone(self.keeper()), self.disk());
        let root = take::hidden(&keeper.data, name.as_str(), keeper.next(), what);
        let making = Making { disk: Arc::clone(&disk), layout: Layout::new(&root), handed_over: false };
        let layout = making.layout.clone();
        aside(move || take::make_empty(&*disk, &layout)).await?;
        let (shared, layout, name) = (Arc::clone(self.shared()), making.layout.clone(), name.clone());
        let pinned = self.ask(move |reply| Command::Settled {
            seal,
            work: Box::new(move |settled| {
                let pinned = settled.and_then(|end| keeper.pin(&shared, &layout, &name, part, end));
                // The caller may have given up; then a later sweep removes the links.
                let _gone = reply.send(pinned);
            }),
        });
        Ok((making, pinned.await??))
    }

    /// Opens the present state for reading of any length.
    async fn view_now(&self) -> Result<View> {
        let name = SnapshotName::parse("now")?;
        let (making, pinned) = self.pin(&name, LogPart::AfterRuns, "pinned", false).await?;
        aside(move || {
            let disk = Arc::clone(&making.disk);
            take::finish(&*disk, &making.layout, &pinned)?;
            // The files stay as long as they are open.
            view::open(&disk, &making.layout, SNAPSHOT_CACHE_BYTES)
        })
        .await
    }

    async fn view_of(&self, name: &SnapshotName) -> Result<View> {
        let (keeper, disk, name) = (Arc::clone(self.keeper()), self.disk(), name.clone());
        aside(move || view::open(&disk, &existing(&*disk, &keeper.data, &name)?, SNAPSHOT_CACHE_BYTES)).await
    }

    async fn open_diff(&self, before: &SnapshotName, after: Option<&SnapshotName>) -> Result<OpenDiff> {
        let before = self.view_of(before).await?;
        let after = match after {
            Some(name) => self.view_of(name).await?,
            None => self.view_now().await?,
        };
        let open = OpenDiff { token: self.keeper().next(), diff: Arc::new(Diff::new(before, after)) };
        let mut diffs = self.keeper().diffs.lock();
        while diffs.len() >= DIFFS_OPEN_MAX {
            diffs.remove(0);
        }
        diffs.push(OpenDiff { token: open.token, diff: Arc::clone(&open.diff) });
        Ok(open)
    }

    /// Returns the comparison of a cursor.
    async fn diff_of(
        &self,
        cursor: &DiffCursor,
        before: &SnapshotName,
        after: Option<&SnapshotName>,
    ) -> Result<OpenDiff> {
        let over = || {
            let what = "the comparison was not gone on with for long, and one of the states is not there any more: begin again";
            Error::new(ErrorKind::Conflict, what)
        };
        {
            let diffs = self.keeper().diffs.lock();
            let open = diffs.iter().find(|open| open.token == cursor.token);
            if let Some(open) = open.filter(|open| open.diff.revisions() == cursor.revisions) {
                return Ok(OpenDiff { token: open.token, diff: Arc::clone(&open.diff) });
            }
        }
        if after.is_none() {
            return Err(over());
        }
        let open = self.open_diff(before, after).await?;
        if open.diff.revisions() == cursor.revisions { Ok(open) } else { Err(over()) }
    }

    async fn begin_backup(&self, directory: &Path) -> Result<(BackupProgress, Option<Cursor>)> {
        let mut running = self.keeper().backup.lock().await;
        let now = self.keeper().clock.trusted();
        if let Some(other) = &*running
            && now.0 < other.last.0.saturating_add(BACKUP_IDLE_MS)
        {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("a backup to {} is under way: wait until it is done", other.directory.display()),
            ));
        }
        *running = None;
        let name = SnapshotName::parse("backup")?;
        let (making, pinned) = self.pin(&name, LogPart::Whole, "pinned", false).await?;
        let to = directory.to_owned();
        let backing = aside(move || {
            let (disk, layout) = (Arc::clone(&making.disk), making.layout.clone());
            let backing = Backing::begin(disk, &to, layout, pinned)?;
            // From now on the backup removes the directory.
            making.hand_over();
            Ok(backing)
        })
        .await?;
        let (token, progress) = (self.keeper().next(), backing.progress().clone());
        *running = Some(Running { token, directory: directory.to_owned(), backing, last: now });
        Ok((progress, Some(cursor_of(token))))
    }

    async fn go_on_with_backup(&self, token: u64) -> Result<(BackupProgress, Option<Cursor>)> {
        let mut running = self.keeper().backup.lock().await;
        let Some(mut one) = running.take_if(|running| running.token == token) else {
            let what =
                "this backup is not under way any more: begin again, what was copied is not copied again";
            return Err(Error::new(ErrorKind::Conflict, what));
        };
        let (one, done) = aside(move || {
            let done = one.backing.step()?;
            Ok((one, done))
        })
        .await?;
        let progress = one.backing.progress().clone();
        if done {
            return Ok((progress, None));
        }
        *running = Some(Running { last: self.keeper().clock.trusted(), ..one });
        Ok((progress, Some(cursor_of(token))))
    }
}

fn cursor_of(token: u64) -> Cursor {
    Cursor(token.to_le_bytes().to_vec())
}

#[async_trait]
impl Snapshots for EmbeddedStore {
    async fn snapshot(&self, id: OperationId, name: &SnapshotName) -> Result<Snapshot> {
        let (keeper, disk) = (Arc::clone(self.keeper()), self.disk());
        let _alone = keeper.gate.lock().await;
        if keeper.was_done(id, name)
            && let Some(snapshot) = take::describe(&*disk, &keeper.data, name)?
        {
            return Ok(snapshot);
        }
        take::check_room(&*disk, &keeper.data, name)?;
        let (making, pinned) = self.pin(name, LogPart::AfterRuns, "unfinished", true).await?;
        let (its_keeper, name) = (Arc::clone(&keeper), name.clone());
        aside(move || {
            let data = &its_keeper.data;
            take::copy_last_segment(&*disk, &making.layout, pinned.end)?;
            take::finish(&*disk, &making.layout, &pinned)?;
            take::name_it(&*disk, data, &making.layout, &name)?;
            its_keeper.note_done(id, &name);
            take::describe(&*disk, data, &name)?
                .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("the snapshot {name} went at once")))
        })
        .await
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let (keeper, disk) = (Arc::clone(self.keeper()), self.disk());
        aside(move || take::list(&*disk, &keeper.data)).await
    }

    async fn drop_snapshot(&self, id: OperationId, name: &SnapshotName) -> Result<()> {
        let (keeper, disk, name) = (Arc::clone(self.keeper()), self.disk(), name.clone());
        let _alone = self.keeper().gate.lock().await;
        if keeper.was_done(id, &name) {
            return Ok(());
        }
        aside(move || {
            take::remove(&*disk, &keeper.data, &name, keeper.next())?;
            keeper.note_done(id, &name);
            Ok(())
        })
        .await
    }

    async fn verify_snapshot(&self, name: &SnapshotName) -> Result<SnapshotCheck> {
        let (keeper, disk, name) = (Arc::clone(self.keeper()), self.disk(), name.clone());
        aside(move || view::verify(&disk, &existing(&*disk, &keeper.data, &name)?)).await
    }

    async fn diff(
        &self,
        before: &SnapshotName,
        after: Option<&SnapshotName>,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<(Vec<Difference>, Option<Cursor>)> {
        let (open, place) = match DiffCursor::parse(&cursor.0)? {
            None => (self.open_diff(before, after).await?, Place::default()),
            Some(cursor) => (self.diff_of(&cursor, before, after).await?, cursor.place),
        };
        let (diff, limit) = (Arc::clone(&open.diff), limit.min(PAGE_ITEMS_MAX));
        let (differences, place) = aside(move || diff.page(&place, limit)).await?;
        let token = open.token;
        match place {
            Some(place) => {
                let next = DiffCursor { token, revisions: open.diff.revisions(), place };
                Ok((differences, Some(Cursor(next.encode()))))
            }
            None => {
                self.keeper().diffs.lock().retain(|open| open.token != token);
                Ok((differences, None))
            }
        }
    }

    async fn backup(&self, directory: &str, cursor: &Cursor) -> Result<(BackupProgress, Option<Cursor>)> {
        if directory.len() > DIRECTORY_PATH_BYTES_MAX {
            let what = "the length of a directory's path in bytes";
            return Err(Error::limit(what, directory.len(), DIRECTORY_PATH_BYTES_MAX));
        }
        let path = Path::new(directory);
        if !path.is_absolute() {
            return Err(Error::invalid(
                "a backup needs the whole path of a directory on the server's machine",
            ));
        }
        match cursor.0.as_slice() {
            [] => self.begin_backup(path).await,
            token => {
                let token = token.try_into().map_err(|_| Error::invalid("this is no cursor of a backup"))?;
                self.go_on_with_backup(u64::from_le_bytes(token)).await
            }
        }
    }
}
