//! What a server knows: rows exactly as they are at the head of the log.
//!
//! Rows get in by being fetched, and by the images of every group of the log, which this server wrote or read. As every image
//! gets in, what is known stays exact. So a row that was fetched counts only if nothing about it is known already, and only once
//! the log was read up to a head that was asked for after the row was fetched. When rows are forgotten, to bound memory, the *epoch*
//! changes: what was fetched before is thrown away, for an image of it may have been among them. What groups made of rows that may not be in the
//! tables yet is never forgotten: it is *fresh*, until it is *frozen* to be written, and until it is known to be written.
//!
//! Of directories that are forgotten the number is remembered as a *guess*. With it all of a path can be asked for at once, and what comes is
//! looked at as ever: a guess decides what is fetched, never what is answered.
//!
//! Once a filter has every key of the tables in it, what is not in the filter is known not to be there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use exacat_model::{At, DirId, EntryId, Record, RecordKey, Revision, SeNumber, UserId};

use crate::filter::Filter;
use crate::limits::{LISTED_ONCE_MAX, LISTED_ROWS_MAX, ROWS_PER_GUESS};
use crate::rows::{Image, Key, Row, Totals};
use crate::working::{Changed, member_bounds};

struct Slot {
    row: Option<Arc<Row>>,
    /// The last change of the group that it is of; 0 if it was fetched.
    revision: Revision,
}

/// The id of a group.
pub(crate) type GroupId = [u8; 16];
/// The predecessor that the first group with one names.
pub(crate) const NO_GROUP: GroupId = [0; 16];

/// The last group of the log that names its predecessor; none if no group did yet.
pub(crate) type Tail = Option<GroupId>;

/// Consecutive changes that went into the log together, and what they did to rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub first: Revision,
    pub last: Revision,
    pub id: GroupId,
    /// The group before it; none in a group that was appended before schema version 4.
    pub before: Option<GroupId>,
    /// The server that put it into the log.
    pub by: u64,
    pub images: Vec<Image>,
    /// Bytes of the images.
    pub bytes: usize,
}

/// Relation of a group to the known log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    /// It follows, or was known.
    Yes,
    /// Groups before it are missing.
    Gap,
    /// It follows another group than the last one that is known: it is of another branch of the history.
    OtherBranch,
}

/// What is written to the tables together: what groups made of rows, as of the last of them.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    pub up_to: Revision,
    /// With the level of the directory, where it is an entry.
    pub rows: Vec<(Key, Option<Arc<Row>>, u8)>,
}

/// What is kept of a server's size and of what it decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Rows known, about.
    pub rows: usize,
    /// Bytes of the filter; 0 for none.
    pub filter_bytes: usize,
    /// Children of a directory that one partition should have.
    pub partition_rows: u64,
}

/// Rows as they are at the head.
pub(crate) struct Known {
    rows: BTreeMap<Key, Slot>,
    head: Revision,
    /// The tail of the log at the head; none as long as that is not known.
    tail: Option<Tail>,
    /// Everything up to here is in the tables.
    settled: Revision,
    /// What came after what is frozen, or after what is settled.
    fresh: Changed,
    /// The last change and the bytes of each group that may not be in the tables.
    unsettled: VecDeque<(Revision, usize)>,
    frozen: Option<Arc<Frozen>>,
    epoch: u64,
    queues: BTreeSet<SeNumber>,
    /// Directories of which all children are known.
    listed: BTreeSet<DirId>,
    /// Directories that were listed whole once since rows were forgotten.
    listed_once: BTreeSet<DirId>,
    guesses: BTreeMap<At, DirId>,
    filter: Option<Filter>,
    /// Does the filter have every key of the tables?
    filter_whole: bool,
    bounds: Bounds,
}

impl Known {
    /// What is known when everything up to a change is in the tables, and nothing was looked at yet.
    pub fn new(settled: Revision, bounds: Bounds) -> Self {
        Known {
            rows: BTreeMap::new(),
            head: settled,
            tail: None,
            settled,
            fresh: Changed::new(),
            unsettled: VecDeque::new(),
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

    /// The last change of the log that is known.
    pub fn head(&self) -> Revision {
        self.head
    }

    /// The last change of the log that is known, and the tail there if that is known.
    pub fn end(&self) -> (Revision, Option<Tail>) {
        (self.head, self.tail)
    }

    /// Takes in the tail of the log at a change, if that is the head and nothing is known of the tail.
    pub fn take_tail(&mut self, at: Revision, tail: Tail) {
        if at == self.head {
            self.tail.get_or_insert(tail);
        }
    }

    /// Everything up to here is in the tables.
    pub fn settled(&self) -> Revision {
        self.settled
    }

    /// Bytes of what may not be in the tables.
    pub fn unsettled_bytes(&self) -> usize {
        self.unsettled.iter().map(|(_, bytes)| bytes).sum()
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// None if nothing is known of it; otherwise what it is, if it is.
    pub fn get(&self, key: &Key) -> Option<Option<Arc<Row>>> {
        if let Some(slot) = self.rows.get(key) {
            return Some(slot.row.clone());
        }
        let absent = match key {
            // All of them are known.
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

    /// How often the partitions of this directory's children were multiplied.
    pub fn level(&self, directory: DirId) -> u8 {
        match self.rows.get(&Key::Layout(directory)).and_then(|slot| slot.row.as_deref()) {
            Some(Row::Layout(level)) => *level,
            _ => 0,
        }
    }

    /// What all of the catalogue adds up to, which is always known.
    pub fn totals(&self) -> Totals {
        match self.rows.get(&Key::Totals).and_then(|slot| slot.row.as_deref()) {
            Some(Row::Totals(totals)) => *totals,
            _ => Totals::default(),
        }
    }

    /// The directory that stood there when that was last known.
    pub fn guess(&self, at: &At) -> Option<DirId> {
        self.guesses.get(at).copied()
    }

    pub fn records(&self) -> impl Iterator<Item = (RecordKey, &Record)> {
        let from = Key::Record(RecordKey::User(UserId(0)));
        let records = self.rows.range(from..).take_while(|(key, _)| matches!(key, Key::Record(_)));
        records.filter_map(|(key, slot)| match (key, slot.row.as_deref()) {
            (Key::Record(key), Some(Row::Record { record, .. })) => Some((*key, record)),
            _ => None,
        })
    }

    pub fn has_queue(&self, se: SeNumber) -> bool {
        self.queues.contains(&se)
    }

    /// Are all children of this directory known?
    pub fn is_listed(&self, directory: DirId) -> bool {
        self.listed.contains(&directory)
    }

    /// What is known of the keys from the one to the other, in order.
    pub fn range<'a>(
        &'a self,
        from: &Key,
        until: &Key,
    ) -> impl Iterator<Item = (&'a Key, Option<&'a Arc<Row>>)> + use<'a> {
        let range = (from <= until).then(|| self.rows.range(from.clone()..=until.clone()));
        range.into_iter().flatten().map(|(key, slot)| (key, slot.row.as_ref()))
    }

    /// Takes in rows that were fetched since `epoch`, after which the log was read up to what the head was then. False if they count no more.
    pub fn fetched(&mut self, epoch: u64, rows: Vec<(Key, Option<Row>)>) -> bool {
        if epoch != self.epoch {
            return false;
        }
        // Before, not after: what an answer needs must stay until it is given.
        if self.is_full() {
            self.shrink();
            return false;
        }
        for (key, row) in rows {
            if self.get(&key).is_none() {
                self.rows.insert(key, Slot { row: row.map(Arc::new), revision: Revision(0) });
            }
        }
        true
    }

    /// The same, all of an SE's queue.
    pub fn fetched_queue(&mut self, epoch: u64, se: SeNumber, rows: Vec<(Key, Option<Row>)>) {
        if self.fetched(epoch, rows) {
            self.queues.insert(se);
        }
    }

    /// All children of a directory were read since `epoch`, as the table has them. Once that was done before they are taken in, if they fit: what is
    /// listed once need not be.
    pub fn listed(&mut self, epoch: u64, directory: DirId, rows: &[(Key, Arc<Row>)]) {
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
                self.rows.insert(key.clone(), Slot { row: Some(row.clone()), revision: Revision(0) });
            }
        }
        self.listed.insert(directory);
    }

    /// Rows that are always known - records, layouts, the totals - as they were fetched at the beginning.
    pub fn insert_always(&mut self, key: Key, row: Row) {
        self.rows.entry(key).or_insert(Slot { row: Some(Arc::new(row)), revision: Revision(0) });
    }

    /// Takes in keys of the tables.
    pub fn filter_has(&mut self, keys: &[Key]) {
        if let Some(filter) = &mut self.filter {
            keys.iter().for_each(|key| filter.put(key));
        }
    }

    /// Keys the filter has room for; none if there is no filter.
    pub fn filter_room(&self) -> Option<u64> {
        self.filter.as_ref().map(Filter::room)
    }

    /// Figures for an operator.
    pub fn figures(&self) -> Vec<(String, u64)> {
        let (keys, room) = self.filter.as_ref().map_or((0, 0), |filter| (filter.keys(), filter.room()));
        let layouts = self.rows.range(Key::Layout(DirId(0))..=Key::Layout(DirId(u64::MAX)));
        let spread = layouts.filter(|(_, slot)| slot.row.is_some()).count() as u64;
        [
            ("changes_not_in_tables", self.head.0.saturating_sub(self.settled.0)),
            ("filter_keys", keys),
            ("filter_keys_max", room),
            ("filter_in_use", u64::from(self.filter_whole)),
            ("directories_spread", spread),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// Every key of the tables was taken in.
    pub fn filter_is_whole(&mut self) {
        self.filter_whole = self.filter.is_some();
    }

    /// The catalogue is larger than what the filter can be used for.
    pub fn drop_filter(&mut self) {
        (self.filter, self.filter_whole) = (None, false);
    }

    /// Takes in the next group of the log; one that is known already changes nothing.
    pub fn install(&mut self, group: &Group) -> Installed {
        if group.last <= self.head {
            return Installed::Yes;
        }
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
        for image in &group.images {
            if let Key::Members(collection) = image.key {
                let (from, until) = member_bounds(collection);
                let members: Vec<Key> =
                    self.rows.range(from.clone()..=until.clone()).map(|(key, _)| key.clone()).collect();
                for key in members {
                    self.rows.insert(key, Slot { row: None, revision: group.last });
                }
                // They go with the whole partition.
                let fresh: Vec<Key> = self.fresh.range(from..=until).map(|(key, _)| key.clone()).collect();
                fresh.iter().for_each(|key| drop(self.fresh.remove(key)));
            }
        }
        for Image { key, row } in &group.images {
            let row = row.clone().map(Arc::new);
            if row.is_some()
                && filtered(key)
                && let Some(filter) = &mut self.filter
            {
                filter.put(key);
            }
            self.fresh.insert(key.clone(), row.clone());
            self.rows.insert(key.clone(), Slot { row, revision: group.last });
        }
        self.unsettled.push_back((group.last, group.bytes));
        self.head = group.last;
        self.shrink();
        Installed::Yes
    }

    /// What is to be written to the tables: all that may not be there, as it is at the head. None if there is nothing.
    pub fn freeze(&mut self) -> Option<Arc<Frozen>> {
        let mut rows = Changed::new();
        // What was frozen before is still here: so it may not have been written.
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

    /// Everything up to this change is in the tables, whoever wrote it.
    pub fn settle(&mut self, up_to: Revision) {
        if up_to <= self.settled {
            return;
        }
        self.settled = up_to;
        self.frozen = self.frozen.take().filter(|frozen| frozen.up_to > up_to);
        while self.unsettled.front().is_some_and(|(last, _)| *last <= up_to) {
            self.unsettled.pop_front();
        }
        let rows = &self.rows;
        self.fresh.retain(|key, _| rows.get(key).is_some_and(|slot| slot.revision > up_to));
    }

    /// Is more known than should be? What may not be in the tables has bounds of its own.
    fn is_full(&self) -> bool {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.rows.len());
        self.rows.len() > self.bounds.rows + self.fresh.len() + frozen
    }

    /// Forgets, if there is too much, what is not always known and is in the tables.
    fn shrink(&mut self) {
        if !self.is_full() {
            return;
        }
        let settled = self.settled;
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
            Key::Record(_) | Key::Layout(_) | Key::Totals => slot.row.is_some() || slot.revision > settled,
            _ => slot.revision > settled,
        });
        self.queues.clear();
        self.listed.clear();
        self.listed_once.clear();
        self.epoch += 1;
    }
}

/// Kinds of keys that are asked for before they are made: the filter has those of the tables.
pub(crate) fn filtered(key: &Key) -> bool {
    matches!(
        key,
        Key::Entry(_)
            | Key::Place(EntryId::Object(_))
            | Key::Operation(_)
            | Key::Booking(_)
            | Key::Copy { .. }
            | Key::Account(_)
    )
}
