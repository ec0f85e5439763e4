//! The history, open: groups, commits, flushes, and the threads that do them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exacat_activity::{RequestState, on_from_now, split};
use exacat_disk::{Disk, cannot_write};
use exacat_log::Form;
use exacat_log::replay::list_segments;
use exacat_model::{Error, ErrorKind, GroupName, GroupSettings, Result, Revision, TimeMs};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::archive::{ArchiveMetrics, ArchiveSettings};
use crate::batch::Batch;
use crate::checked_file::HistoryId;
use crate::committer::{Appender, CommitMetrics, Queue, Taken, Work, commit_once};
use crate::flush::{FilePlaces, FlushJob, write_memtable};
use crate::group::Group;
use crate::item::{GroupId, Item};
use crate::limits::{
    ELEMENTS_MAX, FROZEN_MAX, GROUPS_MAX, LATEST_EVERY, LOG_KEPT_BYTES_DEFAULT, MEMTABLE_BYTES,
    NAME_FILES_MAX,
};
use crate::manifest::{GroupEntry, Layout, Manifest};
use crate::names::NameCounts;
use crate::owned_archive::OwnedArchive;
use crate::run::day_of;

/// Settings of a history.
#[derive(Clone)]
pub struct HistorySettings {
    /// Its directory; created if missing.
    pub directory: PathBuf,
    /// Bytes of one segment of its log.
    pub segment_bytes: u64,
    /// Bytes of rows in memory after which they are written to runs.
    pub memtable_bytes: usize,
    /// Bytes of log that are kept although the runs have its rows, to restore a moment.
    pub log_kept_bytes: u64,
    /// Prepares the next segment of the log ahead; false leaves its space to the moment when it begins.
    pub log_ahead: bool,
    /// Trusted time of now.
    pub now: Arc<dyn Fn() -> TimeMs + Send + Sync>,
    /// Archive of old days; none keeps all days in runs.
    pub archive: Option<ArchiveSettings>,
    /// The history is opened to adopt an archive: it archives nothing by itself.
    pub adopts: bool,
    /// Runs threads; false in tests that need disk operations in a fixed order.
    pub in_background: bool,
}

impl HistorySettings {
    /// Returns the defaults for a directory.
    pub fn new(directory: PathBuf, now: Arc<dyn Fn() -> TimeMs + Send + Sync>) -> Self {
        HistorySettings {
            directory,
            segment_bytes: 64 << 20,
            memtable_bytes: MEMTABLE_BYTES,
            log_kept_bytes: LOG_KEPT_BYTES_DEFAULT,
            log_ahead: true,
            now,
            archive: None,
            adopts: false,
            in_background: true,
        }
    }
}

/// Groups by number and by name.
#[derive(Default)]
pub(crate) struct Groups {
    pub by_id: BTreeMap<GroupId, Arc<Group>>,
    pub by_name: BTreeMap<GroupName, GroupId>,
    pub next: GroupId,
}

impl Groups {
    pub(crate) fn insert(&mut self, group: Arc<Group>) {
        self.next = self.next.max(group.id + 1);
        self.by_name.insert(group.settings.read().name.clone(), group.id);
        self.by_id.insert(group.id, group);
    }

    pub(crate) fn remove(&mut self, id: GroupId) {
        if let Some(group) = self.by_id.remove(&id) {
            group.drop_it();
            self.by_name.remove(&group.settings.read().name);
        }
    }
}

/// Files that count, and how far the names of each group are in them.
pub(crate) struct Files {
    pub manifest: Manifest,
    pub names: BTreeMap<GroupId, NameCounts>,
    /// Flushes since the latest values were written.
    pub flushes: u32,
}

/// Flushes that wait; the first one is in work.
#[derive(Default)]
pub(crate) struct Flushes {
    pub waiting: Vec<FlushJob>,
    closing: bool,
    /// Reason why the last flush failed; it is tried again.
    failed: Option<Arc<str>>,
}

pub(crate) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub layout: Layout,
    pub id: HistoryId,
    pub settings: HistorySettings,
    pub groups: RwLock<Groups>,
    /// Held while a group is made, changed or dropped.
    pub group_changes: tokio::sync::Mutex<()>,
    pub queue: Queue,
    pub appender: Mutex<Appender>,
    pub metrics: CommitMetrics,
    /// Bytes of rows in the active memtables.
    pub active_bytes: AtomicUsize,
    pub files: Mutex<Files>,
    pub flushes: Mutex<Flushes>,
    pub flushed: Condvar,
    pub flush_count: AtomicU64,
    /// Number of the first file of the last flush that wrote runs; `u64::MAX` once nothing was flushed for a
    /// while.
    pub newest_flush: AtomicU64,
    pub closed: AtomicBool,
    /// The archive; none without one.
    pub archive: Option<Arc<OwnedArchive>>,
    /// Days that are on their way to the archive.
    pub archiving: Mutex<BTreeSet<(GroupId, i32)>>,
    /// Held while days are archived: each attempt begins with what the one before has done.
    pub archive_turn: Mutex<()>,
    pub archive_metrics: ArchiveMetrics,
}

impl Shared {
    pub(crate) fn places(&self) -> FilePlaces<'_> {
        FilePlaces { disk: &self.disk, layout: &self.layout, history: self.id }
    }

    /// Returns all groups, so that no lock is held while they are worked on.
    pub(crate) fn all_groups(&self) -> Vec<Arc<Group>> {
        self.groups.read().by_id.values().cloned().collect()
    }

    /// Freezes the active memtables if they are large, or if `always`. The caller holds the lock of the
    /// log, so the memtables have exactly the rows up to its end.
    fn freeze(&self, appender: &Appender, always: bool) {
        if !always && self.active_bytes.load(Ordering::Relaxed) < self.settings.memtable_bytes {
            return;
        }
        let mut memtables = Vec::new();
        for group in self.all_groups() {
            let mut rows = group.rows.write();
            if rows.active.read().rows() > 0 {
                let frozen = std::mem::take(&mut rows.active);
                rows.frozen.push(Arc::clone(&frozen));
                drop(rows);
                memtables.push((group, frozen));
            }
        }
        self.active_bytes.store(0, Ordering::Relaxed);
        let mut flushes = self.flushes.lock();
        flushes.waiting.push(FlushJob { place: appender.end, memtables });
        drop(flushes);
        self.flushed.notify_all();
    }

    /// Waits while as many memtables as may wait for a flush do so. While the history is closed there is no
    /// bound: a disk without space for runs must not hold up the end, and few batches are left. Returns the
    /// end of a wait, and its duration.
    fn wait_for_flush(&self) -> Option<(Instant, Duration)> {
        let mut flushes = self.flushes.lock();
        let mut begun = None;
        while flushes.waiting.len() >= FROZEN_MAX && !self.closed.load(Ordering::Acquire) {
            begun.get_or_insert_with(Instant::now);
            self.flushed.wait(&mut flushes);
        }
        drop(flushes);
        let took = begun?.elapsed();
        self.metrics
            .stall_us
            .fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        Some((Instant::now(), took))
    }

    /// Writes all rows in memory to runs, and waits until that is done.
    pub(crate) fn flush_all(&self) -> Result<()> {
        {
            let appender = self.appender.lock();
            self.freeze(&appender, true);
        }
        let mut flushes = self.flushes.lock();
        while !flushes.waiting.is_empty() {
            if let Some(why) = &flushes.failed {
                return Err(Error::new(ErrorKind::Unavailable, why.to_string()));
            }
            self.flushed.wait(&mut flushes);
        }
        Ok(())
    }

    /// Does one flush. What the disk refuses is tried again by the next call.
    fn flush(&self, job: &FlushJob) -> Result<()> {
        let places = self.places();
        let mut written = Vec::new();
        let mut files = self.files.lock();
        let mut manifest = files.manifest.clone();
        let first_file = manifest.next_file;
        for (group, memtable) in &job.memtables {
            if group.is_dropped() {
                continue;
            }
            let mut next = || manifest.take_number();
            written.push((group, write_memtable(&places, group, memtable, &mut next)?));
        }
        let groups = self.all_groups();
        let with_latest = files.flushes + 1 >= LATEST_EVERY || self.closed.load(Ordering::Acquire);
        let mut entries = Vec::with_capacity(groups.len());
        let mut names = BTreeMap::new();
        for group in &groups {
            let old = manifest.groups.iter().find(|entry| entry.id == group.id);
            let mut entry = old.cloned().unwrap_or_else(|| GroupEntry {
                id: group.id,
                settings: group.settings(),
                names: Vec::new(),
                latest: None,
                runs: Vec::new(),
            });
            entry.settings = group.settings();
            // Before the names: values that arrive meanwhile may have new ones.
            if with_latest {
                let number = manifest.take_number();
                places.write_latest(number, group)?;
                entry.latest = Some(number);
            }
            let mut from = files.names.get(&group.id).copied().unwrap_or_default();
            if from != group.names.read().counts() {
                if entry.names.len() >= NAME_FILES_MAX {
                    entry.names.clear();
                    from = NameCounts::default();
                }
                let number = manifest.take_number();
                from = places.write_names(number, group, &from)?;
                entry.names.push(number);
            }
            names.insert(group.id, from);
            entries.push(entry);
        }
        for (group, runs) in &written {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.id == group.id) {
                entry.runs.extend(runs.iter().map(|(run, _)| run.clone()));
            }
        }
        manifest.groups = entries;
        manifest.next_group = self.groups.read().next;
        manifest.set_place(job.place);
        places.sync()?;
        manifest.write(&*self.disk, &self.layout.root, self.id)?;
        for (group, runs) in written {
            let mut rows = group.rows.write();
            let mut list = (*rows.runs).clone();
            for (entry, run) in runs {
                list.add(entry.day(), run);
            }
            rows.runs = Arc::new(list);
            rows.frozen.retain(|frozen| !job.memtables.iter().any(|(_, done)| Arc::ptr_eq(frozen, done)));
        }
        let old = std::mem::replace(&mut files.manifest, manifest);
        self.newest_flush.store(first_file, Ordering::Release);
        files.names = names;
        files.flushes = if with_latest { 0 } else { files.flushes + 1 };
        self.remove_unnamed(&old, &files.manifest);
        drop(files);
        self.trim_log(job.place.revision);
        Ok(())
    }

    /// Removes the files that the old manifest names and the new one does not. An open run stays
    /// readable until its last reader has closed it.
    pub(crate) fn remove_unnamed(&self, old: &Manifest, new: &Manifest) {
        let kept = new.files(&self.layout);
        for path in old.files(&self.layout).difference(&kept) {
            if let Err(error) = self.disk.remove(path) {
                // The next opening removes it.
                tracing::warn!(file = %path.display(), %error, "cannot remove a replaced file of the history");
            }
        }
    }

    /// Removes log segments whose rows are in the runs, beyond the space that is kept.
    fn trim_log(&self, flushed: Revision) {
        if self.settings.adopts {
            // An adoption that is repeated needs the same records again.
            return;
        }
        let segments = match list_segments(&*self.disk, &self.layout.log(), false) {
            Ok(segments) => segments,
            Err(error) => {
                tracing::warn!(%error, "cannot list the log of the history");
                return;
            }
        };
        let mut kept = 0;
        // From the newest: a segment ends where the next one begins.
        let mut begin_of_next = None::<Revision>;
        for segment in segments.iter().rev() {
            let is_flushed = begin_of_next.is_some_and(|next| next.0 <= flushed.0 + 1);
            begin_of_next = Some(segment.first_revision);
            kept += segment.bytes(&*self.disk, is_flushed);
            if !is_flushed || kept <= self.settings.log_kept_bytes {
                continue;
            }
            if let Err(error) = self.disk.remove(&segment.path) {
                tracing::warn!(file = %segment.path.display(), %error, "cannot remove a log segment of the history");
                return;
            }
            *segment.form_to_change() = Form::Gone;
        }
    }

    /// Body of the thread that flushes.
    fn flush_loop(&self) {
        loop {
            let job = {
                let mut flushes = self.flushes.lock();
                loop {
                    if !flushes.waiting.is_empty() {
                        break;
                    }
                    if flushes.closing {
                        return;
                    }
                    self.flushed.wait(&mut flushes);
                }
                flushes.waiting[0].clone()
            };
            let done = self.flush(&job);
            let mut flushes = self.flushes.lock();
            match done {
                Ok(()) => {
                    self.flush_count.fetch_add(1, Ordering::Release);
                    flushes.waiting.remove(0);
                    flushes.failed = None;
                    self.flushed.notify_all();
                }
                Err(error) => {
                    tracing::error!(%error, "the history cannot write its runs; it tries again");
                    flushes.failed = Some(error.message.as_str().into());
                    self.flushed.notify_all();
                    if flushes.closing {
                        return;
                    }
                    self.flushed.wait_for(&mut flushes, FLUSH_RETRY);
                }
            }
        }
    }

    /// Body of the thread that archives days.
    fn archive_loop(&self) {
        let mut looked = None;
        // An opening has other work first.
        let mut wait = ARCHIVE_FIRST;
        loop {
            let begun = Instant::now();
            let mut flushes = self.flushes.lock();
            while begun.elapsed() < wait {
                if self.closed.load(Ordering::Acquire) {
                    return;
                }
                self.flushed.wait_for(&mut flushes, wait);
            }
            drop(flushes);
            wait = ARCHIVE_LOOK;
            // A few late rows of an archived day wait for the next day: its files are written anew.
            let today = day_of(self.now_ns());
            match self.archive_days(looked.replace(today) != Some(today)) {
                Err(error) if !self.closed.load(Ordering::Acquire) => {
                    tracing::warn!(%error, "the history cannot archive days yet; their runs stay, and it tries again");
                    looked = None;
                }
                _ => {}
            }
        }
    }

    /// Body of the thread that merges runs.
    fn merge_loop(&self) {
        loop {
            let seen = self.flush_count.load(Ordering::Acquire);
            if let Err(error) = self.retain() {
                tracing::warn!(%error, "days beyond the retention cannot be removed yet");
            }
            if let Err(error) = self.merge_all()
                && !self.closed.load(Ordering::Acquire)
            {
                tracing::warn!(%error, "the history cannot merge runs; it tries again after the next flush");
            }
            let mut flushes = self.flushes.lock();
            while self.flush_count.load(Ordering::Acquire) == seen {
                if self.closed.load(Ordering::Acquire) {
                    return;
                }
                // A day may be past by now, or no longer filled.
                if self.flushed.wait_for(&mut flushes, MERGE_LOOK).timed_out() {
                    self.newest_flush.store(u64::MAX, Ordering::Release);
                    break;
                }
            }
        }
    }
}

/// Time after an opening before days are archived.
const ARCHIVE_FIRST: Duration = Duration::from_secs(10);

/// Time after which days are looked at that may be due for the archive, or that failed before.
const ARCHIVE_LOOK: Duration = Duration::from_secs(300);

/// State of a history, and its work since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFigures {
    /// Rows made durable.
    pub rows: u64,
    /// Batches made durable.
    pub batches: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Microseconds in writes and syncs of the log.
    pub sync_us: u64,
    /// Microseconds in which batches waited for a flush.
    pub stall_us: u64,
    /// Batches refused because too much waited.
    pub refused: u64,
    /// Bytes of batches that wait for the log.
    pub queued_bytes: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Memtables that wait for a flush.
    pub flushes_waiting: u64,
    /// Groups.
    pub groups: u64,
    /// Elements of all groups.
    pub elements: u64,
    /// Rows in memory and in the log only.
    pub rows_in_memory: u64,
    /// Runs.
    pub runs: u64,
    /// Rows in runs.
    pub run_rows: u64,
    /// Bytes of runs.
    pub run_bytes: u64,
    /// Days of groups that were archived.
    pub archived_days: u64,
    /// Rows of these days.
    pub archived_rows: u64,
    /// Attempts to archive that failed.
    pub archive_failures: u64,
    /// Reasons why it cannot do its work now.
    pub problems: Vec<String>,
    /// Groups that soon take no new names.
    pub nearly_full: Vec<String>,
}

/// Time after which runs are looked at, although nothing was flushed.
const MERGE_LOOK: Duration = Duration::from_secs(600);

/// Delay before a flush that failed is tried again.
const FLUSH_RETRY: Duration = Duration::from_millis(500);

/// A history, open.
pub struct History {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _lock: Box<dyn Send + Sync>,
}

impl History {
    /// Starts the threads of an open history.
    pub(crate) fn start(shared: Arc<Shared>, is_marked: bool, lock: Box<dyn Send + Sync>) -> Result<Self> {
        let history = History { shared, threads: Mutex::default(), _lock: lock };
        if history.shared.settings.in_background {
            history.spawn("exacat-history", move |shared| {
                let now = Arc::clone(&shared.settings.now);
                let mut taken = Taken::new(is_marked);
                loop {
                    if let Some(stall) = shared.wait_for_flush() {
                        taken.stalled = Some(stall);
                    }
                    let applied = |appender: &Appender, bytes: usize| {
                        shared.active_bytes.fetch_add(bytes, Ordering::Relaxed);
                        shared.freeze(appender, false);
                    };
                    if !commit_once(
                        &shared.queue,
                        &shared.appender,
                        &shared.metrics,
                        &*now,
                        &mut taken,
                        &applied,
                    ) {
                        return;
                    }
                }
            })?;
            history.spawn("exacat-hist-run", Shared::flush_loop)?;
            history.spawn("exacat-hist-mrg", Shared::merge_loop)?;
            if history.shared.archive.is_some() && !history.shared.settings.adopts {
                history.spawn("exacat-hist-arc", Shared::archive_loop)?;
            }
        }
        Ok(history)
    }

    fn spawn(&self, name: &str, work: impl FnOnce(&Shared) + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared));
        let thread = spawned.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("no thread for the history: {error}"))
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Returns the group of this name.
    pub fn group(&self, name: &GroupName) -> Result<Arc<Group>> {
        let groups = self.shared.groups.read();
        let found = groups.by_name.get(name).and_then(|id| groups.by_id.get(id)).cloned();
        found.ok_or_else(|| Error::not_found(format!("group {name}: there is no such group of elements")))
    }

    /// Returns the groups, by name.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        let groups = self.shared.groups.read();
        groups.by_name.values().filter_map(|id| groups.by_id.get(id)).cloned().collect()
    }

    /// Creates a group, or changes the settings of the one of this name.
    pub async fn set_group(&self, settings: GroupSettings) -> Result<Arc<Group>> {
        let name = settings.name.clone();
        self.change_group(&name, |_| Ok(settings)).await
    }

    /// Creates a group, or changes the settings of the one of this name. `change` makes the settings of the
    /// present ones, if there are any. No other change comes in between.
    pub async fn change_group(
        &self,
        name: &GroupName,
        change: impl FnOnce(Option<GroupSettings>) -> Result<GroupSettings>,
    ) -> Result<Arc<Group>> {
        // One change of groups at a time, and visible only once it is durable: the log has the settings of
        // a group before any of its rows.
        let _one = self.shared.group_changes.lock().await;
        let settings = change(self.group(name).ok().map(|group| group.settings()))?;
        if settings.elements_max > ELEMENTS_MAX {
            let (asked, max) = (settings.elements_max as usize, ELEMENTS_MAX as usize);
            return Err(Error::limit("the number of elements of a group", asked, max));
        }
        let known = {
            let mut groups = self.shared.groups.write();
            match groups.by_name.get(&settings.name).and_then(|id| groups.by_id.get(id)).cloned() {
                Some(group) => Ok(group),
                None if groups.by_id.len() >= GROUPS_MAX => {
                    return Err(Error::limit("the number of groups of elements", GROUPS_MAX + 1, GROUPS_MAX));
                }
                None => {
                    groups.next += 1;
                    Err(groups.next - 1)
                }
            }
        };
        let id = known.as_ref().map_or_else(|id| *id, |group| group.id);
        let mut items = Vec::new();
        Item::Settings { group: id, settings: Box::new(settings.clone()) }.encode(&mut items);
        self.commit_work(Work::Items(items)).await?;
        let group = match known {
            Ok(group) => {
                *group.settings.write() = settings;
                group
            }
            Err(id) => {
                let group = Arc::new(Group::new(id, settings));
                self.shared.groups.write().insert(Arc::clone(&group));
                group
            }
        };
        group.apply_retention(self.shared.now_ns());
        Ok(group)
    }

    /// Removes a group with all its values.
    pub async fn drop_group(&self, name: &GroupName) -> Result<()> {
        let _one = self.shared.group_changes.lock().await;
        let group = self.group(name)?;
        let mut items = Vec::new();
        Item::Dropped { group: group.id }.encode(&mut items);
        self.commit_work(Work::Items(items)).await?;
        self.shared.groups.write().remove(group.id);
        Ok(())
    }

    /// Makes the rows of a batch durable and visible. An unknown outcome may be repeated: the same
    /// values at the same times change nothing.
    pub async fn commit(&self, batch: Batch) -> Result<()> {
        if batch.count() == 0 {
            return Ok(());
        }
        self.commit_work(Work::Rows(batch)).await
    }

    async fn commit_work(&self, work: Work) -> Result<()> {
        let sent = Instant::now();
        let lost = |_| {
            let what = "internal error: the committer of the history ended; the outcome is unknown";
            Error::new(ErrorKind::Unknown, what)
        };
        let answered = async { self.shared.queue.add(work, &self.shared.metrics)?.await.map_err(lost) };
        let (outcome, times) = on_from_now(RequestState::CommitQueue, answered).await?;
        split(RequestState::CommitQueue, &times.parts(sent));
        outcome
    }

    /// Writes all rows in memory to runs, and waits until that is done.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush_all()
    }

    /// Returns the bytes of batches that wait for the log.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queue.bytes()
    }

    /// Returns the counters of the committer.
    pub fn metrics(&self) -> &CommitMetrics {
        &self.shared.metrics
    }

    /// Moves the days to the archive that are due, as a thread does every few minutes.
    pub fn archive_days(&self) -> Result<()> {
        self.shared.archive_days(true)
    }

    /// Removes the days that the retention of groups has ended, as a thread does every few minutes.
    pub fn remove_ended_days(&self) -> Result<()> {
        self.shared.retain()
    }

    /// Returns the counters of the archive; none if there is no archive.
    pub fn archive_metrics(&self) -> Option<&ArchiveMetrics> {
        self.shared.settings.archive.as_ref().map(|_| &self.shared.archive_metrics)
    }

    /// Returns its state and its work so far in numbers.
    pub fn figures(&self) -> HistoryFigures {
        let shared = &self.shared;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut figures = HistoryFigures {
            rows: count(&shared.metrics.rows),
            batches: count(&shared.metrics.batches),
            syncs: count(&shared.metrics.groups),
            log_bytes: count(&shared.metrics.log_bytes),
            sync_us: count(&shared.metrics.sync_us),
            stall_us: count(&shared.metrics.stall_us),
            refused: count(&shared.metrics.refused),
            queued_bytes: shared.queue.bytes() as u64,
            flushes: shared.flush_count.load(Ordering::Relaxed),
            ..HistoryFigures::default()
        };
        {
            let flushes = shared.flushes.lock();
            figures.flushes_waiting = flushes.waiting.len() as u64;
            figures
                .problems
                .extend(flushes.failed.as_ref().map(|why| format!("rows cannot be written to runs: {why}")));
        }
        figures.problems.extend(shared.queue.failed().map(|why| format!("its log failed: {why}")));
        if let Some(archive) = self.archive_metrics() {
            figures.archived_days = count(&archive.days);
            figures.archived_rows = count(&archive.rows);
            figures.archive_failures = count(&archive.failures);
            let failed = archive.failed();
            figures.problems.extend(failed.map(|why| format!("old days cannot be archived: {why}")));
        }
        for group in self.groups() {
            let counts = group.counts();
            figures.groups += 1;
            figures.elements += counts.elements;
            figures.rows_in_memory += counts.rows_in_memory;
            figures.runs += counts.files;
            figures.run_rows += counts.rows;
            figures.run_bytes += counts.bytes;
            figures.nearly_full.extend(group.nearly_full());
        }
        figures
    }

    /// Returns trusted time of now.
    pub fn now(&self) -> TimeMs {
        (self.shared.settings.now)()
    }

    /// Returns it in nanoseconds, as rows have it.
    pub fn now_ns(&self) -> i64 {
        self.shared.now_ns()
    }

    /// Writes what waits, then all rows in memory to runs, and ends the threads.
    pub fn close(&self) {
        let shared = &self.shared;
        shared.queue.close();
        {
            // Under the lock, so that no thread looks at the flag and then misses the notice.
            let _flushes = shared.flushes.lock();
            shared.closed.store(true, Ordering::Release);
        }
        shared.flushed.notify_all();
        let mut threads = std::mem::take(&mut *self.threads.lock()).into_iter();
        let join = |thread: Option<JoinHandle<()>>| {
            if thread.is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("a thread of the history panicked");
            }
        };
        // The committer first: it may still freeze memtables.
        join(threads.next());
        // Without threads nobody flushes: the log has the rows.
        if shared.settings.in_background
            && let Err(error) = self.flush()
        {
            tracing::warn!(%error, "the history is closed with rows in its log only");
        }
        shared.flushes.lock().closing = true;
        shared.flushed.notify_all();
        threads.for_each(|thread| join(Some(thread)));
        if shared.queue.failed().is_some() {
            return;
        }
        let mut appender = shared.appender.lock();
        let last = appender.end.revision;
        if let Err(error) = appender.log.mark(last) {
            tracing::warn!(%error, "the end of the history's log cannot be marked");
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        if !self.shared.closed.load(Ordering::Acquire) {
            self.close();
        }
    }
}

/// Creates the directories of a history.
pub(crate) fn create_directories(disk: &dyn Disk, layout: &Layout) -> Result<()> {
    for directory in [layout.root.clone(), layout.log(), layout.files()] {
        disk.create_directory(&directory).map_err(|error| cannot_write(&directory, &error))?;
    }
    disk.sync_directory(&layout.root).map_err(|error| cannot_write(&layout.root, &error))
}
