//! Serves requests about snapshots: takes and drops snapshots, compares them, backs them up.
//!
//! The writer thread only makes the links, between two commit groups. Everything else, and every
//! read or sync, runs elsewhere.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use exacat_activity::{RequestState, on};
use exacat_disk::Disk;
use exacat_model::codec::{Encode, Reader};
use exacat_model::limits::{DIRECTORY_PATH_BYTES_MAX, PAGE_ITEMS_MAX};
use exacat_model::{
    BackupProgress, Cursor, Difference, Error, ErrorKind, OperationId, Result, Revision, Snapshot,
    SnapshotCheck, SnapshotName,
};
use exacat_store::Snapshots;

use super::EmbeddedStore;
use crate::blocking::on_blocking_thread;
use crate::command::Command;
use crate::companion::{COMPANION, FinishPart};
use crate::identity::Layout;
use crate::settings::{BACKUP_IDLE_MS, DIFFS_OPEN_MAX, SNAPSHOT_CACHE_BYTES};
use crate::snapshot::backup::Backing;
use crate::snapshot::diff::{Diff, DiffPosition};
use crate::snapshot::existing;
use crate::snapshot::service::{OpenDiff, RunningBackup};
use crate::snapshot::take::{self, LogPart, Pinned};
use crate::snapshot::view::{self, View};

/// Directory of a snapshot in the making. Dropping this removes it, unless it got another name or
/// owner.
pub(super) struct Making {
    pub disk: Arc<dyn Disk>,
    pub layout: Layout,
    handed_over: bool,
}

impl Making {
    pub(super) fn new(disk: Arc<dyn Disk>, layout: Layout) -> Self {
        Making { disk, layout, handed_over: false }
    }

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
    place: DiffPosition,
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
        Ok(Some(DiffCursor { token, revisions, place: DiffPosition::parse(reader.rest())? }))
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
    pub(super) async fn pin(
        &self,
        name: &SnapshotName,
        part: LogPart,
        what: &'static str,
        seal: bool,
    ) -> Result<(Making, Pinned, Option<FinishPart>)> {
        let (service, disk) = (Arc::clone(self.service()), self.disk());
        let root = take::hidden(&service.data, name.as_str(), service.next(), what);
        let making = Making::new(Arc::clone(&disk), Layout::new(&root));
        let layout = making.layout.clone();
        // A lasting snapshot has the state beside the catalogue too, and so has a backup.
        let whole_log = part == LogPart::Whole;
        let companion = service.companion.clone().filter(|_| seal || whole_log);
        let making_part = on_blocking_thread(move || {
            take::make_empty(&*disk, &layout)?;
            let Some(companion) = companion else { return Ok(None) };
            Ok(companion.begin_part(&layout.root().join(COMPANION))?.then_some(companion))
        });
        let companion = on(RequestState::Snapshot, making_part).await?;
        let (shared, layout, name) = (Arc::clone(self.shared()), making.layout.clone(), name.clone());
        let pinned = self.ask(move |reply| Command::WhenDurable {
            seal,
            work: Box::new(move |durable| {
                // One moment for both: the catalogue answers nothing until this is done, and the companion
                // nothing while it is pinned.
                let pinned = durable.and_then(|end| {
                    let pinned = service.pin(&shared, &layout, &name, part, end)?;
                    let place = layout.root().join(COMPANION);
                    let beside = companion.map(|one| one.pin(&place, whole_log)).transpose()?;
                    Ok((pinned, beside))
                });
                // The caller may have given up; then a later sweep removes the links.
                let _gone = reply.send(pinned);
            }),
        });
        let (pinned, beside) = on(RequestState::Snapshot, pinned).await??;
        Ok((making, pinned, beside))
    }

    /// Opens the present state for reading of any length.
    async fn view_now(&self) -> Result<View> {
        let name = SnapshotName::parse("now")?;
        let (making, pinned, _) = self.pin(&name, LogPart::AfterRuns, "pinned", false).await?;
        on(
            RequestState::Snapshot,
            on_blocking_thread(move || {
                let disk = Arc::clone(&making.disk);
                take::finish(&*disk, &making.layout, &pinned)?;
                // The files stay as long as they are open.
                view::open(&disk, &making.layout, SNAPSHOT_CACHE_BYTES)
            }),
        )
        .await
    }

    async fn view_of(&self, name: &SnapshotName) -> Result<View> {
        let (service, disk, name) = (Arc::clone(self.service()), self.disk(), name.clone());
        on(
            RequestState::Snapshot,
            on_blocking_thread(move || {
                view::open(&disk, &existing(&*disk, &service.data, &name)?, SNAPSHOT_CACHE_BYTES)
            }),
        )
        .await
    }

    async fn open_diff(&self, before: &SnapshotName, after: Option<&SnapshotName>) -> Result<OpenDiff> {
        let before = self.view_of(before).await?;
        let after = match after {
            Some(name) => self.view_of(name).await?,
            None => self.view_now().await?,
        };
        let open = OpenDiff { token: self.service().next(), diff: Arc::new(Diff::new(before, after)) };
        let mut diffs = self.service().diffs.lock();
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
            let diffs = self.service().diffs.lock();
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
        let mut running = on(RequestState::Snapshot, self.service().backup.lock()).await;
        let now = self.service().clock.trusted();
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
        let (making, pinned, beside) = self.pin(&name, LogPart::Whole, "pinned", false).await?;
        let to = directory.to_owned();
        let backing = on(
            RequestState::Snapshot,
            on_blocking_thread(move || {
                beside.map_or(Ok(()), |finish| finish())?;
                let (disk, layout) = (Arc::clone(&making.disk), making.layout.clone());
                let backing = Backing::begin(disk, &to, layout, pinned)?;
                // From now on the backup removes the directory.
                making.hand_over();
                Ok(backing)
            }),
        )
        .await?;
        let (token, progress) = (self.service().next(), backing.progress().clone());
        *running = Some(RunningBackup { token, directory: directory.to_owned(), backing, last: now });
        Ok((progress, Some(cursor_of(token))))
    }

    async fn go_on_with_backup(&self, token: u64) -> Result<(BackupProgress, Option<Cursor>)> {
        let mut running = on(RequestState::Snapshot, self.service().backup.lock()).await;
        let Some(mut one) = running.take_if(|running| running.token == token) else {
            let what =
                "this backup is not under way any more: begin again, copied files are not copied again";
            return Err(Error::new(ErrorKind::Conflict, what));
        };
        let (one, done) = on(
            RequestState::Snapshot,
            on_blocking_thread(move || {
                let done = one.backing.step()?;
                Ok((one, done))
            }),
        )
        .await?;
        let progress = one.backing.progress().clone();
        if done {
            return Ok((progress, None));
        }
        *running = Some(RunningBackup { last: self.service().clock.trusted(), ..one });
        Ok((progress, Some(cursor_of(token))))
    }
}

fn cursor_of(token: u64) -> Cursor {
    Cursor(token.to_le_bytes().to_vec())
}

#[async_trait]
impl Snapshots for EmbeddedStore {
    fn ancestry(&self) -> Vec<[u8; 16]> {
        self.service().ancestry()
    }

    async fn snapshot(&self, id: OperationId, name: &SnapshotName) -> Result<Snapshot> {
        let (service, disk) = (Arc::clone(self.service()), self.disk());
        let _alone = on(RequestState::Snapshot, service.ancestor.lock()).await;
        if service.was_done(id, name)
            && let Some(snapshot) = take::describe(&*disk, &service.data, name)?
        {
            return Ok(snapshot);
        }
        take::check_room(&*disk, &service.data, name)?;
        let (making, pinned, beside) = self.pin(name, LogPart::AfterRuns, "unfinished", true).await?;
        let (its_service, name) = (Arc::clone(&service), name.clone());
        on(
            RequestState::Snapshot,
            on_blocking_thread(move || {
                let data = &its_service.data;
                beside.map_or(Ok(()), |finish| finish())?;
                take::copy_last_segment(&*disk, &making.layout, pinned.end)?;
                take::finish(&*disk, &making.layout, &pinned)?;
                take::name_it(&*disk, data, &making.layout, &name)?;
                its_service.note_done(id, &name);
                take::describe(&*disk, data, &name)?.ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, format!("the snapshot {name} went at once"))
                })
            }),
        )
        .await
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let (service, disk) = (Arc::clone(self.service()), self.disk());
        on(RequestState::Snapshot, on_blocking_thread(move || take::list(&*disk, &service.data))).await
    }

    async fn drop_snapshot(&self, id: OperationId, name: &SnapshotName) -> Result<()> {
        let (service, disk, name) = (Arc::clone(self.service()), self.disk(), name.clone());
        let _alone = on(RequestState::Snapshot, self.service().ancestor.lock()).await;
        if service.was_done(id, &name) {
            return Ok(());
        }
        on(
            RequestState::Snapshot,
            on_blocking_thread(move || {
                take::remove(&*disk, &service.data, &name, service.next())?;
                service.note_done(id, &name);
                Ok(())
            }),
        )
        .await
    }

    async fn verify_snapshot(&self, name: &SnapshotName) -> Result<SnapshotCheck> {
        let (service, disk, name) = (Arc::clone(self.service()), self.disk(), name.clone());
        on(
            RequestState::Snapshot,
            on_blocking_thread(move || {
                let layout = existing(&*disk, &service.data, &name)?;
                let mut check = view::verify(&disk, &layout)?;
                let part = layout.root().join(COMPANION);
                if let Some(companion) = &service.companion
                    && !take::part_names(&*disk, &part)?.is_empty()
                {
                    check.problems.extend(companion.check(&part)?);
                }
                Ok(check)
            }),
        )
        .await
    }

    async fn diff(
        &self,
        before: &SnapshotName,
        after: Option<&SnapshotName>,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<(Vec<Difference>, Option<Cursor>)> {
        let (open, place) = match DiffCursor::parse(&cursor.0)? {
            None => (self.open_diff(before, after).await?, DiffPosition::default()),
            Some(cursor) => (self.diff_of(&cursor, before, after).await?, cursor.place),
        };
        let (diff, limit) = (Arc::clone(&open.diff), limit.min(PAGE_ITEMS_MAX));
        let (differences, place) =
            on(RequestState::Snapshot, on_blocking_thread(move || diff.page(&place, limit))).await?;
        let token = open.token;
        match place {
            Some(place) => {
                let next = DiffCursor { token, revisions: open.diff.revisions(), place };
                Ok((differences, Some(Cursor(next.encode()))))
            }
            None => {
                self.service().diffs.lock().retain(|open| open.token != token);
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
