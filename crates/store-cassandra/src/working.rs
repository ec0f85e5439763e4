//! Deciding: the rules of the contract over rows, some of which are not cached yet.
//!
//! [`CacheView`] shows cached rows to the rules. It notes a missing row as a need, and answers as if the
//! row did not exist. The caller then discards the result, fetches the needed rows and tries again.
//! [`Working`] keeps the rows that a change has changed on top of that.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use exacat_model::{
    At, Deletion, DeletionId, DirId, Entry, EntryId, GroupId, Guid, Location, QuotaOf, Record, RecordKey,
    RecordKind, Reservation, Revision, SeNumber, TrashId, Usage, UserId,
};
use exacat_store::rules::{self, FoundEntry, Misfit, Top, Trashed, View};
use exacat_store::{JudgedEntry, UsageOf};

use crate::row_cache::RowCache;
use crate::rows::{
    Changed, Counted, Key, Remembered, Row, Totals, Where, copy_of, derived_copy, explicit_copy,
    member_bounds,
};

/// Missing row, or rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// One row.
    Row(Key),
    /// All of an SE's deletion queue.
    Queue(SeNumber),
}

/// The row cache, under the changes of a group so far.
pub(crate) struct CacheView<'a> {
    pub cache: &'a RowCache,
    pub group: Option<&'a Changed>,
    pub needs: RefCell<BTreeSet<Need>>,
}

impl<'a> CacheView<'a> {
    pub(crate) fn new(cache: &'a RowCache, group: Option<&'a Changed>) -> Self {
        CacheView { cache, group, needs: RefCell::default() }
    }

    pub(crate) fn needs(self) -> BTreeSet<Need> {
        self.needs.into_inner()
    }

    /// Returns a row; none if it does not exist, or is needed first.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Row>> {
        if let Some(found) = self.group.and_then(|group| group.get(key)) {
            return found.clone();
        }
        // A group that replaced all members wrote no tombstones for the old ones.
        if let Key::Member { collection, .. } = key
            && self.group.is_some_and(|group| group.contains_key(&Key::Members(*collection)))
        {
            return None;
        }
        match self.cache.get(key) {
            Some(found) => found,
            None => {
                // The rules go on as if the row did not exist, so that one attempt finds many needs and
                // one round of the cluster fetches them.
                self.needs.borrow_mut().insert(Need::Row(key.clone()));
                None
            }
        }
    }
}

/// Rows by key.
pub(crate) trait Rows {
    fn row(&self, key: &Key) -> Option<Arc<Row>>;
    /// Calls `then` for every record.
    fn each_record(&self, then: &mut dyn FnMut(RecordKey, &Record));
    /// Returns all deletions of an SE.
    fn queue(&self, se: SeNumber) -> Vec<Deletion>;
}

fn each_record_of(changed: &Changed) -> impl Iterator<Item = (RecordKey, Option<&Record>)> {
    let from = Key::Record(RecordKey::User(UserId(0)));
    changed.range(from..).map_while(|(key, row)| match (key, row.as_deref()) {
        (Key::Record(key), Some(Row::Record { record, .. })) => Some((*key, Some(record))),
        (Key::Record(key), _) => Some((*key, None)),
        _ => None,
    })
}

impl Rows for CacheView<'_> {
    fn row(&self, key: &Key) -> Option<Arc<Row>> {
        self.get(key)
    }

    fn each_record(&self, then: &mut dyn FnMut(RecordKey, &Record)) {
        for (key, record) in self.cache.records() {
            if self.group.is_none_or(|group| !group.contains_key(&Key::Record(key))) {
                then(key, record);
            }
        }
        for (key, record) in self.group.into_iter().flat_map(each_record_of) {
            if let Some(record) = record {
                then(key, record);
            }
        }
    }

    fn queue(&self, se: SeNumber) -> Vec<Deletion> {
        if !self.cache.has_queue(se) {
            self.needs.borrow_mut().insert(Need::Queue(se));
        }
        let (from, until) = queue_bounds(se);
        let cache = self.cache.range(&from, &until);
        let mut all: Changed = cache.map(|(key, row)| (key.clone(), row.cloned())).collect();
        for (key, row) in self.group.into_iter().flat_map(|group| group.range(from.clone()..=until.clone())) {
            all.insert(key.clone(), row.clone());
        }
        deletions_in(all)
    }
}

/// First and last possible key of an SE's queue.
pub(crate) fn queue_bounds(se: SeNumber) -> (Key, Key) {
    let id = |revision, index| DeletionId { revision: Revision(revision), index };
    (Key::Deletion { se, id: id(0, 0) }, Key::Deletion { se, id: id(u64::MAX, u32::MAX) })
}

fn deletions_in(rows: Changed) -> Vec<Deletion> {
    let deletions = rows.into_values().filter_map(|row| match row.as_deref() {
        Some(Row::Deletion(deletion)) => Some(deletion.clone()),
        _ => None,
    });
    deletions.collect()
}

/// A change in the making: the rows that it has changed so far.
pub(crate) struct Working<'a> {
    pub view: CacheView<'a>,
    pub own: Changed,
    /// Reason why the rows do not fit together, if they do not.
    pub defect: Option<String>,
}

impl Rows for Working<'_> {
    fn row(&self, key: &Key) -> Option<Arc<Row>> {
        if let Some(found) = self.own.get(key) {
            return found.clone();
        }
        if let Key::Member { collection, .. } = key
            && self.own.contains_key(&Key::Members(*collection))
        {
            return None;
        }
        self.view.get(key)
    }

    fn each_record(&self, then: &mut dyn FnMut(RecordKey, &Record)) {
        self.view.each_record(&mut |key, record| {
            if !self.own.contains_key(&Key::Record(key)) {
                then(key, record);
            }
        });
        for (key, record) in each_record_of(&self.own) {
            if let Some(record) = record {
                then(key, record);
            }
        }
    }

    fn queue(&self, se: SeNumber) -> Vec<Deletion> {
        let (from, until) = queue_bounds(se);
        let mut all = Changed::new();
        for deletion in self.view.queue(se) {
            all.insert(Key::Deletion { se, id: deletion.id }, Some(Arc::new(Row::Deletion(deletion))));
        }
        for (key, row) in self.own.range(from..=until) {
            all.insert(key.clone(), row.clone());
        }
        deletions_in(all)
    }
}

pub(crate) fn totals(rows: &dyn Rows) -> Totals {
    match rows.row(&Key::Totals).as_deref() {
        Some(Row::Totals(totals)) => *totals,
        _ => Totals::default(),
    }
}

pub(crate) fn entry_at(rows: &dyn Rows, at: &At) -> Option<Entry> {
    match rows.row(&Key::Entry(at.clone())).as_deref() {
        Some(Row::Entry(entry)) => Some(entry.clone()),
        _ => None,
    }
}

pub(crate) fn place_of(rows: &dyn Rows, id: EntryId) -> Option<Where> {
    match rows.row(&Key::Place(id)).as_deref() {
        Some(Row::Place(place)) => Some(place.clone()),
        _ => None,
    }
}

pub(crate) fn item(rows: &dyn Rows, trash: TrashId) -> Option<Trashed> {
    match rows.row(&Key::Trash(trash)).as_deref() {
        Some(Row::Trash(item)) => Some(item.clone()),
        _ => None,
    }
}

pub(crate) fn counted(rows: &dyn Rows, of: UsageOf) -> Counted {
    match rows.row(&Key::Account(of)).as_deref() {
        Some(Row::Account(counted)) => *counted,
        _ => Counted::default(),
    }
}

pub(crate) fn reservation(rows: &dyn Rows, guid: Guid) -> Option<Reservation> {
    match rows.row(&Key::Reservation(guid)).as_deref() {
        Some(Row::Reservation(reservation)) => Some(reservation.clone()),
        _ => None,
    }
}

pub(crate) fn remembered(rows: &dyn Rows, id: exacat_model::OperationId) -> Option<Remembered> {
    match rows.row(&Key::Operation(id)).as_deref() {
        Some(Row::Operation(remembered)) => Some(remembered.clone()),
        _ => None,
    }
}

/// Passes this directory and those above it to `pass`, nearest first, by their places alone. Returns
/// their upper end.
pub(crate) fn climb(rows: &dyn Rows, directory: DirId, pass: &mut dyn FnMut(DirId)) -> Top {
    let mut next = directory;
    while next != DirId::ROOT {
        let Some(place) = place_of(rows, EntryId::Directory(next)) else { return Top::Nowhere };
        pass(next);
        match place {
            Where::At(at) => next = at.parent,
            Where::Trash(trash) => return Top::Trash(trash),
        }
    }
    pass(next);
    Top::Root
}

/// Lists this directory and all above it.
pub(crate) fn directories_up(rows: &dyn Rows, directory: DirId) -> Vec<DirId> {
    let mut way = Vec::new();
    climb(rows, directory, &mut |above| way.push(above));
    way
}

pub(crate) fn record(rows: &dyn Rows, key: RecordKey) -> Option<(Record, Revision)> {
    match rows.row(&Key::Record(key)).as_deref() {
        Some(Row::Record { record, revision }) => Some((record.clone(), *revision)),
        _ => None,
    }
}

/// Finds an entry by identity, wherever it is.
pub(crate) fn find(rows: &dyn Rows, id: EntryId) -> Option<FoundEntry> {
    match place_of(rows, id)? {
        Where::At(at) => Some(FoundEntry { entry: entry_at(rows, &at)?, trash: None }),
        Where::Trash(trash) => Some(FoundEntry { entry: item(rows, trash)?.entry, trash: Some(trash) }),
    }
}

impl View for Working<'_> {
    type Error = Misfit;

    fn next_directory(&self) -> DirId {
        DirId(totals(self).next_directory)
    }

    fn at(&self, at: &At) -> Result<Option<Entry>, Misfit> {
        Ok(entry_at(self, at))
    }

    fn find(&self, id: EntryId) -> Result<Option<FoundEntry>, Misfit> {
        Ok(find(self, id))
    }

    fn has_guid(&self, guid: Guid) -> Result<bool, Misfit> {
        Ok(place_of(self, EntryId::Object(guid)).is_some())
    }

    fn climb(&self, directory: DirId, mut pass: impl FnMut(DirId)) -> Top {
        climb(self, directory, &mut pass)
    }

    fn rights(&self, directory: DirId) -> Result<Option<JudgedEntry>, Misfit> {
        let found = find(self, EntryId::Directory(directory));
        Ok(found.map(|found| JudgedEntry::from(&found.entry)))
    }

    fn is_empty(&self, directory: DirId) -> bool {
        counted(self, UsageOf::Directory(directory)).usage.is_empty()
    }

    fn trashed(&self, trash: TrashId) -> Result<Option<Trashed>, Misfit> {
        Ok(item(self, trash))
    }

    fn is_member(&self, collection: Guid, guid: Guid) -> Result<bool, Misfit> {
        Ok(self.row(&Key::Member { collection, guid }).is_some())
    }

    fn reservation(&self, guid: Guid) -> Option<Cow<'_, Reservation>> {
        reservation(self, guid).map(Cow::Owned)
    }

    fn reservations_of(&self, user: UserId) -> usize {
        usize::try_from(counted(self, UsageOf::User(user)).reservations).unwrap_or(usize::MAX)
    }

    fn record(&self, key: RecordKey) -> Option<(Cow<'_, Record>, Revision)> {
        record(self, key).map(|(record, revision)| (Cow::Owned(record), revision))
    }

    fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey> {
        let mut found = None;
        self.each_record(&mut |key, record| {
            if key.kind() == kind && record.unique_name() == Some(name) {
                found = Some(key);
            }
        });
        found
    }

    fn has_users(&self, group: GroupId) -> bool {
        let mut found = false;
        self.each_record(&mut |_, record| {
            if let Record::User(user) = record {
                found |= user.group == group || user.groups.contains(&group);
            }
        });
        found
    }

    fn counted(&self, of: QuotaOf) -> Usage {
        let of = match of {
            QuotaOf::User(user) => UsageOf::User(user),
            QuotaOf::Group(group) => UsageOf::Group(group),
        };
        let counted = counted(self, of);
        let mut sum = counted.usage;
        sum.add(&counted.reserved);
        sum
    }

    fn has_deletion(&self, se: SeNumber, id: DeletionId) -> Result<bool, Misfit> {
        Ok(self.row(&Key::Deletion { se, id }).is_some())
    }

    fn is_se_in_use(&self, se: SeNumber) -> bool {
        let counted = counted(self, UsageOf::Se(se));
        counted.replicas > 0 || counted.deletions.files > 0 || counted.reservations > 0
    }
}

impl Working<'_> {
    pub(crate) fn put(&mut self, key: Key, row: Option<Row>) {
        self.own.insert(key, row.map(Arc::new));
    }

    fn change_copies(&mut self, se: SeNumber, copy: String, change: impl FnOnce(&mut Vec<DeletionId>)) {
        let key = Key::Copy { se, copy };
        let mut ids = match self.row(&key).as_deref() {
            Some(Row::Copies(ids)) => ids.clone(),
            _ => Vec::new(),
        };
        change(&mut ids);
        let row = (!ids.is_empty()).then_some(Row::Copies(ids));
        self.put(key, row);
    }

    fn put_entry(&mut self, entry: Entry) {
        self.put(Key::Place(entry.id()), Some(Row::Place(Where::At(entry.at.clone()))));
        self.put(Key::Entry(entry.at.clone()), Some(Row::Entry(entry)));
    }
}

impl rules::State for Working<'_> {
    fn insert(&mut self, entry: &Entry, _encoded: Option<&[u8]>) -> Result<(), Misfit> {
        if entry_at(self, &entry.at).is_some() {
            let at = &entry.at;
            return Err(Misfit::new(format!("{:?} is taken in directory {}", at.name, at.parent.0)));
        }
        if let Some(directory) = entry.directory() {
            let totals = Totals { next_directory: directory.0 + 1, ..totals(self) };
            self.put(Key::Totals, Some(Row::Totals(totals)));
        }
        self.put_entry(entry.clone());
        Ok(())
    }

    fn replace(&mut self, _old: &Entry, new: Entry) -> Result<(), Misfit> {
        self.put_entry(new);
        Ok(())
    }

    fn relocate(&mut self, old: &Entry, new: Entry) -> Result<(), Misfit> {
        self.put(Key::Entry(old.at.clone()), None);
        self.put_entry(new);
        Ok(())
    }

    fn put_trashed(&mut self, trash: TrashId, old: &Entry, item: Trashed) -> Result<(), Misfit> {
        self.put(Key::Entry(old.at.clone()), None);
        self.put(Key::Place(old.id()), Some(Row::Place(Where::Trash(trash))));
        self.put(Key::Trash(trash), Some(Row::Trash(item)));
        Ok(())
    }

    fn restore(&mut self, trash: TrashId, _item: &Trashed, new: Entry) -> Result<(), Misfit> {
        self.put(Key::Trash(trash), None);
        self.put_entry(new);
        Ok(())
    }

    fn purge_trashed(&mut self, trash: TrashId, item: &Trashed) -> Result<(), Misfit> {
        self.put(Key::Place(item.entry.id()), None);
        self.put(Key::Trash(trash), None);
        Ok(())
    }

    fn purge(&mut self, entry: &Entry) -> Result<(), Misfit> {
        self.put(Key::Place(entry.id()), None);
        self.put(Key::Entry(entry.at.clone()), None);
        Ok(())
    }

    fn set_member(&mut self, collection: Guid, guid: Guid, is: bool) -> Result<(), Misfit> {
        self.put(Key::Member { collection, guid }, is.then_some(Row::There));
        Ok(())
    }

    fn forget_members(&mut self, collection: Guid) -> Result<(), Misfit> {
        let bounds = member_bounds(collection);
        let range = (Bound::Included(bounds.0), Bound::Included(bounds.1));
        let in_group = self.view.group.into_iter().flat_map(|group| group.range(range.clone()));
        let members: Vec<Key> = in_group
            .map(|(key, _)| key)
            .chain(self.own.range(range.clone()).map(|(key, _)| key))
            .cloned()
            .collect();
        for key in members {
            self.own.insert(key, None);
        }
        self.own.insert(Key::Members(collection), None);
        Ok(())
    }

    fn set_reservation(&mut self, guid: Guid, after: Option<Reservation>) -> Result<(), Misfit> {
        self.put(Key::Reservation(guid), after.map(Row::Reservation));
        Ok(())
    }

    fn put_record(&mut self, record: Record, revision: Revision) -> Result<(), Misfit> {
        self.put(Key::Record(record.key()), Some(Row::Record { record, revision }));
        Ok(())
    }

    fn drop_record(&mut self, key: RecordKey) -> Result<(), Misfit> {
        // Dropping a missing record changes no row.
        if record(self, key).is_some() {
            self.put(Key::Record(key), None);
        }
        Ok(())
    }

    fn tokens_of(&self, user: UserId) -> Vec<RecordKey> {
        let mut tokens = Vec::new();
        self.each_record(&mut |key, record| {
            if matches!(record, Record::Token(token) if token.user == user) {
                tokens.push(key);
            }
        });
        tokens
    }

    fn put_deletion(&mut self, se: SeNumber, deletion: Deletion) -> Result<(), Misfit> {
        if let Some(copy) = copy_of(&deletion) {
            self.change_copies(se, copy, |ids| ids.push(deletion.id));
        }
        self.put(Key::Deletion { se, id: deletion.id }, Some(Row::Deletion(deletion)));
        Ok(())
    }

    fn take_deletion(&mut self, se: SeNumber, id: DeletionId) -> Result<(), Misfit> {
        let row = self.row(&Key::Deletion { se, id });
        let Some(Row::Deletion(deletion)) = row.as_deref() else {
            return Err(Misfit::new(format!("{id:?} is not in the queue")));
        };
        if let Some(copy) = copy_of(deletion) {
            self.change_copies(se, copy, |ids| ids.retain(|other| *other != id));
        }
        self.put(Key::Deletion { se, id }, None);
        Ok(())
    }

    fn deletions_of(&self, se: SeNumber, guid: Guid, location: &Location) -> Result<Vec<DeletionId>, Misfit> {
        // Two copies can be at this PFN: an explicit one, and the derived one of the file with this
        // storage path.
        let pfn = rules::pfn(self, se, guid, location);
        let mut copies = vec![explicit_copy(&pfn)];
        let prefix = match record(self, RecordKey::Se(se)) {
            Some((Record::Se(se), _)) => se.prefix.as_str().to_owned(),
            _ => String::new(),
        };
        if let Some(guid) = pfn.strip_prefix(prefix.as_str()).and_then(Guid::of_storage_path) {
            copies.push(derived_copy(guid));
        }
        let mut found = Vec::new();
        for copy in copies {
            if let Some(Row::Copies(ids)) = self.row(&Key::Copy { se, copy }).as_deref() {
                found.extend(ids);
            }
        }
        Ok(found)
    }

    fn each_deletion(
        &self,
        se: SeNumber,
        each: impl FnMut(Deletion) -> Result<(), Misfit>,
    ) -> Result<(), Misfit> {
        self.queue(se).into_iter().try_for_each(each)
    }
}
