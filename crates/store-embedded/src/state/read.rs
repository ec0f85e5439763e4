//! Answers the reads of the contract, each from the state of one moment.

use std::collections::HashMap;
use std::ops::Bound;

use exacat_model::codec::{Encode, Reader};
use exacat_model::limits::NAME_BYTES_MAX;
use exacat_model::{
    At, Body, Deletion, DeletionId, DirId, Effect, Entry, EntryId, Guid, Lfn, Measured, Name, RecordKey,
    RecordKind, Reservation, Revision, SeNumber, TimeMs, TrashId, TrashItem,
};
use exacat_store::{
    Account, Ancestor, Ancestors, EntryLocation, Located, Page, PageInProgress, ReadBytes, RecordEntry,
    ReplicasPage, StoredReplica, Trace, Traces, UsageOf,
};

use super::deletions::deletion_of;
use super::lookup::{AllOrNote, AsOf};
use super::{Lookup, State, Top};
use crate::defect::Defect;
use crate::keyspace;
use crate::page::Row;
use crate::settings::SCANNED_PER_PAGE_MAX;

/// Cursor of a listing of a storage element, which began at the revision `begun`.
enum ReplicasCursor {
    /// In the tree (and below the trash): in this directory, after this name.
    Directory { begun: Revision, directory: DirId, name: Vec<u8> },
    /// Among the items of the trash, after this one.
    Trash { begun: Revision, after: TrashId },
    /// Among the files that moved meanwhile.
    Moved(MovedSince),
}

/// Last phase of a listing of a storage element, after all directories and the trash. Files may
/// have moved back behind the listing meanwhile. The history has them, in the changes after one
/// revision, up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedSince {
    pub after: Revision,
    pub up_to: Revision,
}

/// Maximum bytes of such a cursor.
pub(crate) const REPLICAS_CURSOR_BYTES_MAX: usize = 1 + 10 + 10 + NAME_BYTES_MAX;

impl ReplicasCursor {
    fn parse(bytes: &[u8], now: Revision) -> Option<Self> {
        if bytes.is_empty() {
            return Some(ReplicasCursor::Directory { begun: now, directory: DirId(0), name: Vec::new() });
        }
        let mut reader = Reader::new(bytes);
        let kind = reader.byte().ok()?;
        let begun = Revision(reader.varint().ok()?);
        let number = reader.varint().ok()?;
        match kind {
            1 if reader.remaining() <= NAME_BYTES_MAX => {
                let (directory, name) = (DirId(number), reader.rest().to_vec());
                Some(ReplicasCursor::Directory { begun, directory, name })
            }
            2 if reader.remaining() == 0 => {
                Some(ReplicasCursor::Trash { begun, after: TrashId(Revision(number)) })
            }
            3 if reader.remaining() == 0 => {
                Some(ReplicasCursor::Moved(MovedSince { after: begun, up_to: Revision(number).min(now) }))
            }
            _ => None,
        }
    }

    fn directory(begun: Revision, id: DirId, name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1];
        begun.encode(&mut bytes);
        id.encode(&mut bytes);
        bytes.extend_from_slice(name);
        bytes
    }

    fn trash(begun: Revision, after: TrashId) -> Vec<u8> {
        let mut bytes = vec![2];
        begun.encode(&mut bytes);
        after.encode(&mut bytes);
        bytes
    }
}

impl MovedSince {
    /// Parses a cursor of this phase; none if it is of another.
    pub(crate) fn parse(cursor: &[u8], now: Revision) -> Option<Self> {
        match ReplicasCursor::parse(cursor, now) {
            Some(ReplicasCursor::Moved(since)) => Some(since),
            _ => None,
        }
    }

    /// Encodes the cursor.
    pub(crate) fn cursor(self) -> Vec<u8> {
        let mut bytes = vec![3];
        self.after.encode(&mut bytes);
        self.up_to.encode(&mut bytes);
        bytes
    }

    /// Returns the file that a change moved back: from a place that a listing may not have reached
    /// to one that it may have passed.
    pub(crate) fn moved_back(effect: &Effect) -> Option<EntryId> {
        match effect {
            Effect::Moved { id: id @ EntryId::Object(_), from, to, .. } if to < from => Some(*id),
            Effect::Restored { id: id @ EntryId::Object(_), .. } => Some(*id),
            _ => None,
        }
    }
}

fn after<K>(key: Option<K>) -> (Bound<K>, Bound<K>) {
    (key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

/// Position of a listing of due entries: it continues after this one.
pub(crate) type DueAfter = (TimeMs, EntryId);

/// Due entries, and the position to continue from.
pub(crate) type DuePage = (Vec<Entry>, Option<DueAfter>);

fn no_entry() -> Defect {
    Defect::new("a row of an entry is none")
}

/// Number of directories whose pages are requested together, when one is not in memory.
const DIRECTORIES_AHEAD: usize = 64;

/// Maximum number of items for which space is allocated at once.
const ITEMS_ABOUT: usize = 1024;

impl Lookup<'_> {
    /// Returns an entry by its identity, with its place.
    pub(crate) fn locate(&self, id: EntryId) -> Result<Option<Located>, Defect> {
        let Some(found) = self.find_id(id)? else { return Ok(None) };
        let (entry, state) = (found.entry, self.state);
        if id == EntryId::Directory(DirId::ROOT) {
            return Ok(Some(Located {
                entry,
                place: EntryLocation::Tree(Lfn::root()),
                ancestors: Ancestors::new(),
            }));
        }
        if let Some(trash) = found.trash {
            return Ok(Some(Located {
                entry,
                place: EntryLocation::Trash(trash),
                ancestors: Ancestors::new(),
            }));
        }
        let mut ancestors: Ancestors = state
            .way_up(entry.at.parent)
            .map(|(id, directory)| Ancestor {
                id,
                owner: directory.owner,
                group: directory.group,
                mode: directory.mode,
            })
            .collect();
        ancestors.reverse();
        let place = match state.top(entry.at.parent) {
            Top::Root => {
                let mut names = state.directories.path_of(entry.at.parent);
                names.push(entry.at.name.as_str());
                EntryLocation::Tree(Lfn::from_names(names))
            }
            Top::Trash(trash) => EntryLocation::Trash(trash),
            Top::Nowhere => return Err(Defect::new(format!("{id:?} is in no directory"))),
        };
        Ok(Some(Located { entry, place, ancestors }))
    }

    /// Returns many entries by their identities, with their places.
    pub(crate) fn locate_all(&self, ids: &[EntryId]) -> Result<AsOf<Vec<Option<Located>>>, Defect> {
        let (mut located, mut bytes) = (AllOrNote::with_room(ids.len()), ReadBytes::default());
        let mut as_of = self.state.directories.shape;
        ids.iter().try_for_each(|id| {
            located.take(self.locate(*id).and_then(|found| {
                bytes.add(found.as_ref().map(|one| &one.entry))?;
                let found_as_of = found.as_ref().map_or(self.state.revision, |one| one.entry.revision);
                as_of = as_of.max(found_as_of);
                Ok(found)
            }))
        })?;
        Ok((located.end()?, as_of))
    }

    /// Returns the children of a directory after a name; none if there is no such directory.
    pub(crate) fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<AsOf<Option<Page<Entry>>>, Defect> {
        let Some(there) = self.state.directory(directory) else { return Ok((None, self.state.revision)) };
        // The list is never longer than the number of entries below.
        let below = usize::try_from(there.usage.objects() + there.usage.directories).unwrap_or(usize::MAX);
        let (mut page, mut more) = (PageInProgress::new(limit, below.min(ITEMS_ABOUT)), false);
        self.scan(directory, b"", after.map(|name| name.as_str().as_bytes()), |row| {
            more = page.is_full();
            if !more {
                page.push(row.entry()?.ok_or_else(no_entry)?);
            }
            Ok(!more)
        })?;
        Ok((Some(page.end(more)), there.content))
    }

    /// Returns a page of a table's rows with keys that begin with `prefix`, each as `take` converts
    /// it.
    fn table_page<T: Measured>(
        &self,
        table: DirId,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        take: impl Fn(&Row<'_>) -> Result<T, Defect>,
    ) -> Result<Page<T>, Defect> {
        let (mut page, mut more) = (PageInProgress::new(limit, 0), false);
        self.scan(table, prefix, after, |row| {
            more = page.is_full();
            if !more {
                page.push(take(row)?);
            }
            Ok(!more)
        })?;
        Ok(page.end(more))
    }

    /// Returns the replicas on a storage element, in three phases:
    ///
    /// - directory by directory, in the order of their numbers;
    /// - items of the trash;
    /// - by the history, files that moved back meanwhile (see [`MovedSince`]).
    ///
    /// None if the cursor is not in one of the first two.
    pub(crate) fn replicas_on(
        &self,
        se: SeNumber,
        cursor: &[u8],
        limit: usize,
    ) -> Result<Option<ReplicasPage>, Defect> {
        let state = self.state;
        let Some(cursor_given) = ReplicasCursor::parse(cursor, state.revision) else { return Ok(None) };
        let mut page = PageInProgress::new(limit, 0);
        let mut scanned = 0;
        let Some(account) = state.accounts.ses.get(&se) else {
            return Ok(Some((page.end(false), Vec::new())));
        };
        if limit == 0 {
            return Ok(Some((page.end(true), cursor.to_vec())));
        }
        let (begun, after_trash) = match cursor_given {
            ReplicasCursor::Moved(_) => return Ok(None),
            ReplicasCursor::Trash { begun, after } => (begun, Some(after)),
            ReplicasCursor::Directory { begun, directory: first, name } => {
                let mut last = Vec::new();
                for id in account.directories.range(first..) {
                    last.clear();
                    let after = (*id == first && !name.is_empty()).then_some(name.as_slice());
                    let mut next = None;
                    let done = self.scan(*id, b"", after, |row| {
                        scanned += 1;
                        if let Some(replica) = row.replica_on(se)? {
                            page.push(replica);
                        }
                        last.clear();
                        last.extend_from_slice(row.name);
                        if page.is_full() || scanned >= SCANNED_PER_PAGE_MAX {
                            next = Some(ReplicasCursor::directory(begun, *id, row.name));
                        }
                        Ok(next.is_none())
                    });
                    if done == Err(Defect::NotInMemory) {
                        if !page.items().is_empty() {
                            // The rows so far need not be read again: the next page begins with those that
                            // the disk has.
                            let name = if last.is_empty() { after.unwrap_or_default() } else { &last };
                            return Ok(Some((page.end(true), ReplicasCursor::directory(begun, *id, name))));
                        }
                        self.note_ahead(account.directories.range(*id..).skip(1).copied());
                    }
                    done?;
                    if let Some(next) = next {
                        return Ok(Some((page.end(true), next)));
                    }
                }
                (begun, None)
            }
        };
        let mut next = None;
        if account.trashed > 0 {
            let after = after_trash.map(keyspace::trash_key);
            self.scan(keyspace::TRASH, b"", after.as_ref().map(|key| &key[..]), |row| {
                scanned += 1;
                if let Some(replica) = row.replica_on(se)? {
                    page.push(replica);
                }
                if page.is_full() || scanned >= SCANNED_PER_PAGE_MAX {
                    next = keyspace::trash_id(row.name).map(|id| ReplicasCursor::trash(begun, id));
                }
                Ok(next.is_none())
            })?;
        }
        if let Some(next) = next {
            return Ok(Some((page.end(true), next)));
        }
        let since = MovedSince { after: begun, up_to: state.revision };
        let more = since.after < since.up_to;
        Ok(Some((page.end(more), if more { since.cursor() } else { Vec::new() })))
    }

    /// Notes the first pages of the next directories.
    fn note_ahead(&self, directories: impl Iterator<Item = DirId>) {
        for directory in directories.take(DIRECTORIES_AHEAD) {
            // Pages in memory are skipped. An error shows up again when the page is needed.
            let _noted = self.scan(directory, b"", None, |_| Ok(false));
        }
    }

    /// Returns the replica of an entry on this storage element.
    pub(crate) fn if_on_se(&self, id: EntryId, se: SeNumber) -> Result<Option<StoredReplica>, Defect> {
        Ok(self.find_id(id)?.and_then(|found| StoredReplica::of(found.entry, se)))
    }

    /// Returns the members of a collection; none if there is no such collection.
    pub(crate) fn members(
        &self,
        collection: Guid,
        cursor: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>, Defect> {
        match self.find_guid(collection)? {
            Some(found) if matches!(found.entry.body, Body::Collection { .. }) => {}
            _ => return Ok(None),
        }
        let after = cursor.map(|member| keyspace::member_key(collection, member));
        let after = after.as_ref().map(|key| &key[..]);
        let member = |row: &Row<'_>| {
            keyspace::member(row.name)
                .map(|(_, member)| member)
                .ok_or_else(|| Defect::new("a member's key is none"))
        };
        self.table_page(keyspace::MEMBERS, &collection.0, after, limit, member).map(Some)
    }

    fn item_of(&self, row: &Row<'_>) -> Result<TrashItem, Defect> {
        let id = keyspace::trash_id(row.name).ok_or_else(no_entry)?;
        let (entry, item) = row.entry()?.zip(row.trashed()?).ok_or_else(no_entry)?;
        let usage = self.state.usage_with_below(&entry)?;
        let (lfn, removed_by, removed) = (item.lfn, item.removed_by, item.removed);
        Ok(TrashItem { id, lfn, entry, removed_by, removed, usage })
    }

    /// Returns the entries at these places.
    pub(crate) fn standing(&self, places: &[At]) -> Result<Vec<Option<Entry>>, Defect> {
        let (mut found, mut bytes) = (AllOrNote::with_room(places.len()), ReadBytes::default());
        places.iter().try_for_each(|at| {
            found.take(self.find(at).and_then(|entry| {
                bytes.add(entry.as_ref())?;
                Ok(entry)
            }))
        })?;
        found.end()
    }

    /// Returns the changes of these traces, as far as the rows have them, and the revision after
    /// which the rows have all of them.
    pub(crate) fn traces(&self, of: &[Trace]) -> Result<Traces, Defect> {
        let (mut found, mut missing) = (Vec::with_capacity(of.len()), false);
        for trace in of {
            match self.view.find(keyspace::TRACES, &keyspace::trace_key(trace), |row| {
                row.map(|row| Revision(row.revision))
            }) {
                // The pages of the other traces are noted too.
                Err(Defect::NotInMemory) => missing = true,
                leads_to => found.push(leads_to?),
            }
        }
        if missing { Err(Defect::NotInMemory) } else { Ok(Traces { found, since: self.state.traces_since }) }
    }

    /// Returns items of the trash, oldest first.
    pub(crate) fn trash_page(
        &self,
        cursor: Option<TrashId>,
        limit: usize,
    ) -> Result<Page<TrashItem>, Defect> {
        let after = cursor.map(keyspace::trash_key);
        let after = after.as_ref().map(|key| &key[..]);
        self.table_page(keyspace::TRASH, b"", after, limit, |row| self.item_of(row))
    }

    /// Returns one item of the trash.
    pub(crate) fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>, Defect> {
        self.view.find(keyspace::TRASH, &keyspace::trash_key(id), |row| {
            row.map(|row| self.item_of(row)).transpose()
        })?
    }

    /// Returns the deletion queue of a storage element, oldest first.
    pub(crate) fn deletions(
        &self,
        se: SeNumber,
        cursor: Option<DeletionId>,
        limit: usize,
    ) -> Result<Page<Deletion>, Defect> {
        let after = cursor.map(|id| keyspace::deletion_key(se, id));
        let of = keyspace::of_se(se);
        self.table_page(keyspace::DELETIONS, &of, after.as_deref(), limit, |row| deletion_of(row.rest))
    }

    /// Returns entries in the tree that have expired by `now`, longest ago first, after `cursor`,
    /// at most `limit`. Also returns the position to continue from if it stopped early because it
    /// skipped many entries below the trash.
    pub(crate) fn due_entries(
        &self,
        now: TimeMs,
        limit: usize,
        cursor: Option<DueAfter>,
    ) -> Result<DuePage, Defect> {
        let mut due = PageInProgress::new(limit, 0);
        let (mut last, mut scanned, mut missing) = (cursor, 0, 0);
        let mut alive: HashMap<DirId, bool> = HashMap::new();
        let after = cursor.map(|(expires, id)| keyspace::expiry_key(expires, id));
        let mut full = false;
        self.scan(keyspace::EXPIRY, b"", after.as_deref(), |row| {
            let key = keyspace::expiring(row.name).ok_or_else(|| Defect::new("a key of no expiry"))?;
            full = due.is_full() || due.items().len() + missing >= limit;
            if full || key.0 > now {
                return Ok(false);
            }
            if scanned >= SCANNED_PER_PAGE_MAX {
                return Ok(false);
            }
            scanned += 1;
            last = Some(key);
            let entry = match self.find_id(key.1) {
                // The pages of the other entries are noted too.
                Err(Defect::NotInMemory) => {
                    missing += 1;
                    return Ok(true);
                }
                found => found?.ok_or_else(|| Defect::new(format!("{:?} is due but gone", key.1)))?.entry,
            };
            let parent = entry.at.parent;
            if *alive.entry(parent).or_insert_with(|| self.state.is_alive(parent)) {
                due.push(entry);
            }
            Ok(true)
        })?;
        let go_on = if scanned >= SCANNED_PER_PAGE_MAX && !full { last } else { None };
        if missing > 0 { Err(Defect::NotInMemory) } else { Ok((due.end(full).items, go_on)) }
    }
}

impl State {
    /// Returns usage and reservation.
    pub(crate) fn usage(&self, of: UsageOf) -> Account {
        let used = |usage| Account { usage, ..Account::default() };
        match of {
            UsageOf::Directory(id) => {
                used(self.directory(id).map_or_else(Default::default, |directory| directory.usage))
            }
            UsageOf::User(user) => self.accounts.user(user),
            UsageOf::Group(group) => self.accounts.group(group),
            UsageOf::Se(se) => used(self.accounts.ses.get(&se).map_or_else(Default::default, |se| se.usage)),
            UsageOf::Deletions(se) => {
                used(self.accounts.ses.get(&se).map_or_else(Default::default, |se| se.deletions_usage))
            }
        }
    }

    /// Returns upload reservations in the order of their GUIDs.
    pub(crate) fn reservations_page(&self, cursor: Option<Guid>, limit: usize) -> Page<Reservation> {
        Page::of(self.reservations.range(after(cursor)).map(|(_, reservation)| reservation.clone()), limit)
    }

    /// Returns records of one kind in the order of their keys.
    pub(crate) fn records_page(
        &self,
        kind: RecordKind,
        cursor: Option<RecordKey>,
        limit: usize,
    ) -> Page<RecordEntry> {
        let of_kind = self.records.range(after(cursor)).filter(|(key, _)| key.kind() == kind);
        Page::of(
            of_kind.map(|(key, (record, revision))| RecordEntry {
                key: *key,
                record: record.clone(),
                revision: *revision,
            }),
            limit,
        )
    }

    /// Returns upload reservations that have expired by `now`, longest ago first.
    pub(crate) fn due_reservations(&self, now: TimeMs, limit: usize) -> Vec<Reservation> {
        let due = self.reservation_expiry.iter().take_while(|(expires, _)| *expires <= now);
        Page::of(due.filter_map(|(_, guid)| self.reservations.get(guid).cloned()), limit).items
    }
}
