//! A group of elements: its settings, names, and rows in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use exacat_model::GroupSettings;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::archive::NamedGroup;
use crate::archived_days::ArchivedDays;
use crate::item::GroupId;
use crate::latest::Latest;
use crate::limits::NEARLY_FULL_PERCENT;
use crate::memtable::Memtable;
use crate::names::Names;
use crate::run_list::RunList;

/// Rows of a group: in memory and in runs.
#[derive(Default)]
pub(crate) struct Rows {
    /// Takes new rows. A reader that began before it is frozen goes on to read it.
    pub active: Arc<RwLock<Memtable>>,
    /// Memtables that are being written to runs, the oldest first.
    pub frozen: Vec<Arc<RwLock<Memtable>>>,
    /// Runs of each day.
    pub runs: Arc<RunList>,
    /// Days in the archive. Runs of such a day have later rows.
    pub archived: Arc<ArchivedDays>,
    /// Latest values.
    pub latest: Latest,
}

/// Warning about a group that soon takes no new names.
const NEARLY_FULL: &str = "the group has nearly as many names of elements as it may have; new ones will be \
     refused: raise its limit with exacat history set --max-elements, or find the client that makes names";

/// A group of elements.
pub struct Group {
    pub(crate) id: GroupId,
    pub(crate) settings: RwLock<GroupSettings>,
    pub(crate) names: RwLock<Names>,
    pub(crate) rows: RwLock<Rows>,
    /// Oldest time that the retention keeps, in nanoseconds.
    oldest: AtomicI64,
    dropped: AtomicBool,
}

impl Group {
    pub(crate) fn new(id: GroupId, settings: GroupSettings) -> Self {
        Group {
            id,
            settings: RwLock::new(settings),
            names: RwLock::new(Names::new(id)),
            rows: RwLock::default(),
            oldest: AtomicI64::new(i64::MIN),
            dropped: AtomicBool::new(false),
        }
    }

    /// Returns its settings.
    pub fn settings(&self) -> GroupSettings {
        self.settings.read().clone()
    }

    /// Locks its names to read them. New names wait meanwhile.
    pub fn names(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read()
    }

    /// Warns once its names become nearly full: a client that makes new names by mistake is found before the
    /// values of others are refused. The caller has the names locked.
    pub(crate) fn warn_if_nearly_full(&self, before: u64, now: u64) {
        if before < NEARLY_FULL_PERCENT && now >= NEARLY_FULL_PERCENT {
            let group = self.settings.read().name.clone();
            tracing::warn!(%group, percent = now, "{NEARLY_FULL}");
        }
    }

    /// Returns a note if its names are nearly full.
    pub(crate) fn nearly_full(&self) -> Option<String> {
        let settings = self.settings();
        let percent = self.names.read().fullness(settings.elements_max);
        (percent >= NEARLY_FULL_PERCENT)
            .then(|| format!("group {}: {NEARLY_FULL}: {percent} %", settings.name))
    }

    /// Returns the oldest time that its retention keeps, in nanoseconds.
    pub(crate) fn oldest_kept(&self) -> i64 {
        self.oldest.load(Ordering::Relaxed)
    }

    pub(crate) fn set_oldest_kept(&self, oldest: i64) {
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    /// Says whether it was dropped. Rows that are still on their way to it are lost with it.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Removes the runs and archived files of the days before one. Rows of these days in memory stay until
    /// they are flushed; readers leave them out by the retention.
    pub(crate) fn drop_days(&self, first_kept: i32) {
        let mut rows = self.rows.write();
        let mut list = (*rows.runs).clone();
        list.remove_before(first_kept);
        rows.runs = Arc::new(list);
        if rows.archived.days.range(..first_kept).next().is_some() {
            let mut archived = (*rows.archived).clone();
            archived.days = archived.days.split_off(&first_kept);
            rows.archived = Arc::new(archived);
        }
    }

    pub(crate) fn drop_it(&self) {
        self.dropped.store(true, Ordering::Release);
    }
}

impl NamedGroup for Group {
    fn settings(&self) -> GroupSettings {
        Group::settings(self)
    }

    fn names(&self) -> RwLockReadGuard<'_, Names> {
        Group::names(self)
    }
}
