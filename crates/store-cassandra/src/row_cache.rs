//! Row cache: rows exactly as they are at the head of the log that this server has read.
//!
//! Rows enter it by a fetch, and by the after-images of every group, which this server wrote or
//! read. Because every after-image enters, the cache stays exact. A fetched row is added only if
//! the cache has none for its key. The log must have been read before, up to a head requested after
//! the fetch.
//!
//! Eviction changes the *epoch*. Rows fetched before it are discarded, because a later after-image
//! of them may have been evicted. After-images that may not be in the tables yet are never evicted.
//! They are *fresh*, then *frozen* for writing, until the write is known to be complete.
//!
//! The cache keeps the number of an evicted directory as a *guess*. With it a reader fetches all rows
//! of a path at once, and judges them as always. A guess decides which rows are fetched, never the
//! answer.
//!
//! Once a filter has every key of the tables, a key outside of it is known not to exist.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use exacat_model::{At, DirId, EntryId, Record, RecordKey, Revision, SeNumber, UserId};
use exacat_store::Sample;

use crate::filter::Filter;
use crate::limits::{LISTED_ONCE_MAX, LISTED_ROWS_MAX, ROWS_PER_GUESS};
use crate::metric_table;
use crate::rows::{AfterImage, Changed, Key, Row, Totals, member_bounds};

struct CachedRow {
    row: Option<Arc<Row>>,
    /// Last change of the row's group; 0 if the row was fetched.
    revision: Revision,
}

/// Id of a group.
pub(crate) type GroupId = [u8; 16];
/// Predecessor that the first group with one names.
pub(crate) const NO_GROUP: GroupId = [0; 16];

/// Last group of the log that names its predecessor; none if no group did yet.
pub(crate) type Tail = Option<GroupId>;

/// Commit group: consecutive changes of one append, and their row after-images.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub first: Revision,
    pub last: Revision,
    pub id: GroupId,
    /// Group before it; none in a group that was appended before schema version 6.
    pub before: Option<GroupId>,
    /// Server that appended it.
    pub by: u64,
    pub after_images: Vec<AfterImage>,
    /// Bytes of the after-images.
    pub bytes: usize,
}

/// Relation of a group to the log that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    /// Follows the last group, or is in the cache already.
    Yes,
    /// Groups before it are missing.
    Gap,
    /// Follows another group than the last one: a group of another branch of the history.
    OtherBranch,
}

/// After-images that are flushed together, as of the last of their groups.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    pub up_to: Revision,
    /// With the level of the directory, where the row is an entry.
    pub rows: Vec<(Key, Option<Arc<Row>>, u8)>,
}

/// Sizes of the cache, and of partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Approximate number of cached rows.
    pub rows: usize,
    /// Bytes of the filter; 0 for none.
    pub filter_bytes: usize,
    /// Children of a directory per partition.
    pub partition_rows: u64,
}

/// Kinds of rows, as look-ups are counted.
const KINDS: [&str; 3] = ["entries", "places", "other_rows"];

fn kind(key: &Key) -> usize {
    match key {
        Key::Entry(_) => 0,
        Key::Place(_) => 1,
        _ => 2,
    }
}

/// Look-ups of rows of one kind.
#[derive(Default)]
struct LookedUp {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Row cache; see the module.
pub(crate) struct RowCache {
    looked_up: [LookedUp; KINDS.len()],
    rows: BTreeMap<Key, CachedRow>,
    head: Revision,
    /// Tail of the log at the head; none while it is unknown.
    tail: Option<Tail>,
    /// Flushed position: the tables are complete up to here.
    flushed: Revision,
    /// After-images later than the frozen ones, or than the flushed position.
    fresh: Changed,
    /// Last change and bytes of each group that may not be in the tables.
    unflushed: VecDeque<(Revision, usize)>,
    frozen: Option<Arc<Frozen>>,
    epoch: u64,
    queues: BTreeSet<SeNumber>,
    /// Directories whose children are all cached.
    listed: BTreeSet<DirId>,
    /// Directories that were listed whole once since the last eviction.
    listed_once: BTreeSet<DirId>,
    guesses: BTreeMap<At, DirId>,
    filter: Option<Filter>,
    /// True once the filter has every key of the tables.
    filter_whole: bool,
    bounds: Bounds,
}

impl RowCache {
    /// Makes an empty cache at a flushed position.
    pub(crate) fn new(flushed: Revision, bounds: Bounds) -> Self {
        RowCache {
            looked_up: Default::default(),
            rows: BTreeMap::new(),
            head: flushed,
            tail: None,
            flushed,
            fresh: Changed::new(),
            unflushed: VecDeque::new(),
            frozen: None,
            epoch: 0,
            queues: BTreeSet::new(),
            listed: BTreeSet::new(),
            listed_once: BTreeSet::new(),
            guesses: BTreeMap::new(),
            filter: (bounds.filter_bytes > 0).then(|| Filter::new(bounds.filter_bytes)),
            filter_whole: false,
            bounds,
        }
    }

    /// Last change of the log that was read.
    pub(crate) fn head(&self) -> Revision {
        self.head
    }

    /// Last change of the log that was read, and the tail there if that is known.
    pub(crate) fn end(&self) -> (Revision, Option<Tail>) {
        (self.head, self.tail)
    }

    /// Sets the tail of the log at the head, if none is known and `at` is the head.
    pub(crate) fn take_tail(&mut self, at: Revision, tail: Tail) {
        if at == self.head {
            self.tail.get_or_insert(tail);
        }
    }

    /// Flushed position: the tables are complete up to here.
    pub(crate) fn flushed(&self) -> Revision {
        self.flushed
    }

    /// Bytes of after-images that may not be in the tables.
    pub(crate) fn unflushed_bytes(&self) -> usize {
        self.unflushed.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Looks a key up: none if the cache does not know it; otherwise its row, or none if it has
    /// none.
    pub(crate) fn get(&self, key: &Key) -> Option<Option<Arc<Row>>> {
        let found = self.look_up(key);
        let looked_up = &self.looked_up[kind(key)];
        let count = if found.is_some() { &looked_up.hits } else { &looked_up.misses };
        count.fetch_add(1, Relaxed);
        found
    }

    fn look_up(&self, key: &Key) -> Option<Option<Arc<Row>>> {
        if let Some(slot) = self.rows.get(key) {
            return Some(slot.row.clone());
        }
        let absent = match key {
            // All of them are always cached.
            Key::Record(_) | Key::Layout(_) => true,
            Key::Member { collection, .. } => self.rows.contains_key(&Key::Members(*collection)),
            Key::Entry(at) if self.listed.contains(&at.parent) && *key != Key::root() => true,
            _ => self.filter_whole && filtered(key) && !self.may_have(key),
        };
        absent.then_some(None)
    }

    fn may_have(&self, key: &Key) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_have(key))
    }

    /// Level of this directory's partitions.
    pub(crate) fn level(&self, directory: DirId) -> u8 {
        match self.rows.get(&Key::Layout(directory)).and_then(|slot| slot.row.as_deref()) {
            Some(Row::Layout(level)) => *level,
            _ => 0,
        }
    }

    /// Totals of the catalogue, which are always cached.
    pub(crate) fn totals(&self) -> Totals {
        match self.rows.get(&Key::Totals).and_then(|slot| slot.row.as_deref()) {
            Some(Row::Totals(totals)) => *totals,
            _ => Totals::default(),
        }
    }

    /// Directory that stood there when it was last cached.
    pub(crate) fn guess(&self, at: &At) -> Option<DirId> {
        self.guesses.get(at).copied()
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (RecordKey, &Record)> {
        let from = Key::Record(RecordKey::User(UserId(0)));
        let records = self.rows.range(from..).take_while(|(key, _)| matches!(key, Key::Record(_)));
        records.filter_map(|(key, slot)| match (key, slot.row.as_deref()) {
            (Key::Record(key), Some(Row::Record { record, .. })) => Some((*key, record)),
            _ => None,
        })
    }

    pub(crate) fn has_queue(&self, se: SeNumber) -> bool {
        self.queues.contains(&se)
    }

    /// Says whether all children of this directory are cached.
    pub(crate) fn is_listed(&self, directory: DirId) -> bool {
        self.listed.contains(&directory)
    }

    /// Iterates over cached keys of a range, in order.
    pub(crate) fn range<'a>(
        &'a self,
        from: &Key,
        until: &Key,
    ) -> impl Iterator<Item = (&'a Key, Option<&'a Arc<Row>>)> + use<'a> {
        let range = (from <= until).then(|| self.rows.range(from.clone()..=until.clone()));
        range.into_iter().flatten().map(|(key, slot)| (key, slot.row.as_ref()))
    }

    /// Caches rows that were fetched since `epoch`. The log must have been read up to a head
    /// requested after the fetch. False if the rows are outdated.
    pub(crate) fn fetched(&mut self, epoch: u64, rows: Vec<(Key, Option<Row>)>) -> bool {
        if epoch != self.epoch {
            return false;
        }
        // Evict before, not after: rows that an answer needs must stay until it is given.
        if self.is_full() {
            self.shrink();
            return false;
        }
        for (key, row) in rows {
            if self.get(&key).is_none() {
                self.rows.insert(key, CachedRow { row: row.map(Arc::new), revision: Revision(0) });
            }
        }
        true
    }

    /// Caches all of an SE's deletion queue; see [`Self::fetched`].
    pub(crate) fn fetched_queue(&mut self, epoch: u64, se: SeNumber, rows: Vec<(Key, Option<Row>)>) {
        if self.fetched(epoch, rows) {
            self.queues.insert(se);
        }
    }

    /// Caches all children of a directory as the table has them, read since `epoch`. It does so
    /// from the second listing on, and if they fit: most directories are listed only once.
    pub(crate) fn listed(&mut self, epoch: u64, directory: DirId, rows: &[(Key, Arc<Row>)]) {
        if epoch != self.epoch
            || rows.len() > LISTED_ROWS_MAX
            || self.rows.len() + rows.len() > self.bounds.rows
        {
            return;
        }
        if self.listed_once.len() >= LISTED_ONCE_MAX {
            self.listed_once.clear();
        }
        if self.listed_once.insert(directory) {
            return;
        }
        for (key, row) in rows {
            if !self.rows.contains_key(key) {
                self.rows.insert(key.clone(), CachedRow { row: Some(row.clone()), revision: Revision(0) });
            }
        }
        self.listed.insert(directory);
    }

    /// Caches rows that are never evicted (records, layouts, the totals), when the store opens.
    pub(crate) fn insert_permanent(&mut self, key: Key, row: Row) {
        self.rows.entry(key).or_insert(CachedRow { row: Some(Arc::new(row)), revision: Revision(0) });
    }

    /// Adds keys of the tables to the filter.
    pub(crate) fn filter_has(&mut self, keys: &[Key]) {
        if let Some(filter) = &mut self.filter {
            keys.iter().for_each(|key| filter.put(key));
        }
    }

    /// Number of keys the filter has room for; none without a filter.
    pub(crate) fn filter_room(&self) -> Option<u64> {
        self.filter.as_ref().map(Filter::room)
    }

    /// Metrics for the operator.
    pub(crate) fn metrics(&self) -> Vec<Sample> {
        let (keys, room) = self.filter.as_ref().map_or((0, 0), |filter| (filter.keys(), filter.room()));
        let layouts = self.rows.range(Key::Layout(DirId(0))..=Key::Layout(DirId(u64::MAX)));
        let spread = layouts.filter(|(_, slot)| slot.row.is_some()).count() as u64;
        let mut list = vec![
            metric_table::NOT_FLUSHED.is(self.head.0.saturating_sub(self.flushed.0)),
            metric_table::FILTER_KEYS.is(keys),
            metric_table::FILTER_LIMIT.is(room),
            metric_table::FILTER_IN_USE.is(u64::from(self.filter_whole)),
            metric_table::SPREAD.is(spread),
        ];
        for (kind, looked_up) in KINDS.iter().zip(&self.looked_up) {
            list.push(metric_table::CACHE_HITS.of(*kind, looked_up.hits.load(Relaxed)));
            list.push(metric_table::CACHE_MISSES.of(*kind, looked_up.misses.load(Relaxed)));
        }
        list
    }

    /// Marks the filter as complete: it has every key of the tables.
    pub(crate) fn filter_is_whole(&mut self) {
        self.filter_whole = self.filter.is_some();
    }

    /// Drops the filter: the catalogue is too large for it.
    pub(crate) fn drop_filter(&mut self) {
        (self.filter, self.filter_whole) = (None, false);
    }

    /// Applies the next group of the log. A group that was applied changes nothing.
    pub(crate) fn install(&mut self, group: &Group) -> Installed {
        if group.last <= self.head {
            return Installed::Yes;
        }
        // A group of the same log never begins within the known part and ends behind it.
        if group.first <= self.head {
            return Installed::OtherBranch;
        }
        if group.first.0 != self.head.0 + 1 {
            return Installed::Gap;
        }
        if let Some(before) = group.before {
            if self.tail.is_some_and(|tail| tail.unwrap_or(NO_GROUP) != before) {
                return Installed::OtherBranch;
            }
            self.tail = Some(Some(group.id));
        }
        for after_image in &group.after_images {
            if let Key::Members(collection) = after_image.key {
                let (from, until) = member_bounds(collection);
                let members: Vec<Key> =
                    self.rows.range(from.clone()..=until.clone()).map(|(key, _)| key.clone()).collect();
                for key in members {
                    self.rows.insert(key, CachedRow { row: None, revision: group.last });
                }
                // Pending writes of members end: the deletion of the partition covers them.
                let fresh: Vec<Key> = self.fresh.range(from..=until).map(|(key, _)| key.clone()).collect();
                fresh.iter().for_each(|key| drop(self.fresh.remove(key)));
            }
        }
        for AfterImage { key, row } in &group.after_images {
            let row = row.clone().map(Arc::new);
            if row.is_some()
                && filtered(key)
                && let Some(filter) = &mut self.filter
            {
                filter.put(key);
            }
            self.fresh.insert(key.clone(), row.clone());
            self.rows.insert(key.clone(), CachedRow { row, revision: group.last });
        }
        self.unflushed.push_back((group.last, group.bytes));
        self.head = group.last;
        self.shrink();
        Installed::Yes
    }

    /// Freezes all rows that may not be in the tables, as they are at the head. None if there are
    /// none.
    pub(crate) fn freeze(&mut self) -> Option<Arc<Frozen>> {
        let mut rows = Changed::new();
        // An earlier frozen set is still here: its write may have failed, so write it again.
        if let Some(before) = &self.frozen {
            rows.extend(before.rows.iter().map(|(key, row, _)| (key.clone(), row.clone())));
        }
        for (key, row) in std::mem::take(&mut self.fresh) {
            if let Key::Members(collection) = key {
                let (from, until) = member_bounds(collection);
                let gone: Vec<Key> = rows.range(from..=until).map(|(key, _)| key.clone()).collect();
                gone.iter().for_each(|key| drop(rows.remove(key)));
            }
            rows.insert(key, row);
        }
        if rows.is_empty() {
            return None;
        }
        let level = |key: &Key| match key {
            Key::Entry(at) => self.level(at.parent),
            _ => 0,
        };
        let rows = rows.into_iter().map(|(key, row)| {
            let level = level(&key);
            (key, row, level)
        });
        let frozen = Arc::new(Frozen { up_to: self.head, rows: rows.collect() });
        self.frozen = Some(frozen.clone());
        Some(frozen)
    }

    /// Moves the flushed position, whichever server wrote the tables.
    pub(crate) fn flush(&mut self, up_to: Revision) {
        if up_to <= self.flushed {
            return;
        }
        self.flushed = up_to;
        self.frozen = self.frozen.take().filter(|frozen| frozen.up_to > up_to);
        while self.unflushed.front().is_some_and(|(last, _)| *last <= up_to) {
            self.unflushed.pop_front();
        }
        let rows = &self.rows;
        self.fresh.retain(|key, _| rows.get(key).is_some_and(|slot| slot.revision > up_to));
    }

    /// Says whether the cache is too large. Rows that may not be in the tables have bounds of their
    /// own.
    fn is_full(&self) -> bool {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.rows.len());
        self.rows.len() > self.bounds.rows + self.fresh.len() + frozen
    }

    /// Evicts all rows, if there are too many. Rows that are always cached or not yet flushed stay.
    fn shrink(&mut self) {
        if !self.is_full() {
            return;
        }
        let flushed = self.flushed;
        let guesses_max = self.bounds.rows / ROWS_PER_GUESS;
        let directory = |row: &Row| match row {
            Row::Entry(entry) => entry.directory().map(|id| (entry.at.clone(), id)),
            _ => None,
        };
        let forgotten = self.rows.values().filter_map(|slot| directory(slot.row.as_deref()?));
        let forgotten: BTreeMap<At, DirId> = forgotten.take(guesses_max).collect();
        if self.guesses.len() + forgotten.len() > guesses_max {
            self.guesses.clear();
        }
        self.guesses.extend(forgotten);
        self.rows.retain(|key, slot| match key {
            Key::Record(_) | Key::Layout(_) | Key::Totals => slot.row.is_some() || slot.revision > flushed,
            _ => slot.revision > flushed,
        });
        self.queues.clear();
        self.listed.clear();
        self.listed_once.clear();
        self.epoch += 1;
    }
}

/// Says whether the filter holds keys of this kind: keys that are checked before they are made.
pub(crate) fn filtered(key: &Key) -> bool {
    matches!(
        key,
        Key::Entry(_)
            | Key::Place(EntryId::Object(_))
            | Key::Operation(_)
            | Key::Reservation(_)
            | Key::Copy { .. }
            | Key::Account(_)
    )
}
