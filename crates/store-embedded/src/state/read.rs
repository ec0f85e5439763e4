//! What readers ask, each answered from the state as it is under one taking of its lock.

use std::collections::HashMap;
use std::ops::Bound;

use exacat_model::codec::{Encode, Reader};
use exacat_model::limits::NAME_BYTES_MAX;
use exacat_model::{
    Booking, Deletion, DeletionId, DirId, Entry, EntryId, Guid, Lfn, Name, RecordKey, RecordKind, Revision,
    SeNumber, TimeMs, TrashId, TrashItem,
};
use exacat_store::{Account, Gate, Gates, Located, Page, Place, RecordEntry, UsageOf};

use super::packed::{Front, name_of};
use super::{Above, Defect, State, Top};
use crate::settings::SCANNED_PER_PAGE_MAX;

/// Where a listing of a storage element goes on.
enum ReplicasCursor {
    /// In the tree (and below the trash): in this directory, after this name.
    Directory(DirId, Vec<u8>),
    /// Among the items of the trash, after this one.
    Trash(TrashId),
}

/// A page of such a listing, and where it goes on.
type ReplicasPage = (Page<Entry>, Vec<u8>);

/// Bytes of such a cursor, at most.
pub(crate) const REPLICAS_CURSOR_BYTES_MAX: usize = 1 + 10 + NAME_BYTES_MAX;

impl ReplicasCursor {
    fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(ReplicasCursor::Directory(DirId(0), Vec::new()));
        }
        let mut reader = Reader::new(bytes);
        let kind = reader.byte().ok()?;
        let number = reader.varint().ok()?;
        match kind {
            1 if reader.remaining() <= NAME_BYTES_MAX => {
                Some(ReplicasCursor::Directory(DirId(number), reader.rest().to_vec()))
            }
            2 if reader.remaining() == 0 => Some(ReplicasCursor::Trash(TrashId(Revision(number)))),
            _ => None,
        }
    }

    fn directory(id: DirId, name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1];
        id.encode(&mut bytes);
        bytes.extend_from_slice(name);
        bytes
    }

    fn trash(id: TrashId) -> Vec<u8> {
        let mut bytes = vec![2];
        id.encode(&mut bytes);
        bytes
    }
}

/// At most `limit` of `items`, and whether there is another.
fn page<T>(mut items: impl Iterator<Item = T>, limit: usize) -> Page<T> {
    let taken: Vec<T> = items.by_ref().take(limit).collect();
    Page { items: taken, more: items.next().is_some() }
}

fn after<K>(key: Option<K>) -> (Bound<K>, Bound<K>) {
    (key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl State {
    /// An entry by what stays the same, and where it is.
    pub fn locate(&self, id: EntryId) -> Result<Option<Located>, Defect> {
        let Some(handle) = self.find_id(id) else { return Ok(None) };
        let front = self.front(handle)?;
        let trashed = front.is_trashed();
        let entry = front.entry()?;
        if id == EntryId::Directory(DirId::ROOT) {
            return Ok(Some(Located { entry, place: Place::Tree(Lfn::root()), gates: Gates::new() }));
        }
        if trashed {
            let place = Place::Trash(TrashId(entry.revision));
            return Ok(Some(Located { entry, place, gates: Gates::new() }));
        }
        let mut gates: Gates = self
            .way_up(entry.at.parent)
            .map(|(id, directory)| Gate {
                id,
                owner: directory.owner,
                group: directory.group,
                mode: directory.mode,
            })
            .collect();
        gates.reverse();
        let place = match self.top(entry.at.parent) {
            Some(Top::Root) => {
                let mut names = self.path_of(entry.at.parent)?;
                names.push(entry.at.name.as_str().to_owned());
                Place::Tree(Lfn::from_names(names.iter().map(String::as_str)))
            }
            Some(Top::Trash(trash)) => Place::Trash(trash),
            None => return Err(Defect(format!("{id:?} is in no directory"))),
        };
        Ok(Some(Located { entry, place, gates }))
    }

    /// Children of a directory after a name; none if there is no such directory.
    pub fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Option<Page<Entry>>, Defect> {
        let Some(directory) = self.directory(directory) else { return Ok(None) };
        let after = after.map(|name| name.as_str().as_bytes());
        let handles = page(directory.children.after(after, |other| name_of(self.arena.get(other))), limit);
        let items: Result<Vec<Entry>, Defect> =
            handles.items.into_iter().map(|handle| self.entry(handle)).collect();
        Ok(Some(Page { items: items?, more: handles.more }))
    }

    /// What is used and reserved.
    pub fn usage(&self, of: UsageOf) -> Account {
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

    /// Files with a replica on a storage element: directory by directory in the order of their numbers, then items
    /// of the trash. None if the cursor is not one of these.
    pub fn replicas_on(
        &self,
        se: SeNumber,
        cursor: &[u8],
        limit: usize,
    ) -> Result<Option<ReplicasPage>, Defect> {
        let Some(cursor_given) = ReplicasCursor::parse(cursor) else { return Ok(None) };
        let mut items = Vec::new();
        let mut scanned = 0;
        let end = |items| Ok(Some((Page { items, more: false }, Vec::new())));
        let Some(account) = self.accounts.ses.get(&se) else { return end(items) };
        if limit == 0 {
            return Ok(Some((Page { items, more: true }, cursor.to_vec())));
        }
        let on_se = |front: Front<'_>| -> Result<Option<Entry>, Defect> {
            if !front.is_file() {
                return Ok(None);
            }
            let entry = front.entry()?;
            Ok(entry.file().is_some_and(|file| file.replica(se).is_some()).then_some(entry))
        };
        let after_trash = match cursor_given {
            ReplicasCursor::Trash(after) => Some(after),
            ReplicasCursor::Directory(first, name) => {
                for (id, _) in account.directories.range(first..) {
                    let directory = self
                        .directory(*id)
                        .ok_or_else(|| Defect(format!("there is no directory {}", id.0)))?;
                    let after = (*id == first).then_some(name.as_slice());
                    for handle in directory.children.after(after, |other| name_of(self.arena.get(other))) {
                        let front = self.front(handle)?;
                        let name = front.name;
                        scanned += 1;
                        items.extend(on_se(front)?);
                        if items.len() >= limit || scanned >= SCANNED_PER_PAGE_MAX {
                            let next = ReplicasCursor::directory(*id, name);
                            return Ok(Some((Page { items, more: true }, next)));
                        }
                    }
                }
                None
            }
        };
        if account.trashed == 0 {
            return end(items);
        }
        for (id, item) in self.trash.range(after(after_trash)) {
            scanned += 1;
            items.extend(on_se(self.front(item.handle)?)?);
            if items.len() >= limit || scanned >= SCANNED_PER_PAGE_MAX {
                return Ok(Some((Page { items, more: true }, ReplicasCursor::trash(*id))));
            }
        }
        end(items)
    }

    /// Members of a collection; none if there is no such collection.
    pub fn members(
        &self,
        collection: Guid,
        cursor: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>, Defect> {
        let Some(handle) = self.find_guid(collection) else { return Ok(None) };
        if !self.front(handle)?.is_collection() {
            return Ok(None);
        }
        let members = self.members.get(&collection).into_iter();
        Ok(Some(page(members.flat_map(|members| members.range(after(cursor))).copied(), limit)))
    }

    /// Items of the trash, oldest first.
    pub fn trash_page(&self, cursor: Option<TrashId>, limit: usize) -> Result<Page<TrashItem>, Defect> {
        let ids = page(self.trash.range(after(cursor)).map(|(id, _)| *id), limit);
        let mut items = Vec::with_capacity(ids.items.len());
        for id in ids.items {
            items.extend(self.trash_item(id)?);
        }
        Ok(Page { items, more: ids.more })
    }

    /// One item of the trash.
    pub fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>, Defect> {
        let Some(item) = self.trash.get(&id) else { return Ok(None) };
        let entry = self.entry(item.handle)?;
        let usage = self.usage_with_below(&entry)?;
        let (lfn, removed_by, removed) = (item.lfn.clone(), item.removed_by, item.removed);
        Ok(Some(TrashItem { id, lfn, entry, removed_by, removed, usage }))
    }

    /// The deletion queue of a storage element, oldest first.
    pub fn deletions(&self, se: SeNumber, cursor: Option<DeletionId>, limit: usize) -> Page<Deletion> {
        let account = self.accounts.ses.get(&se).into_iter();
        page(account.flat_map(|se| se.deletions.range(after(cursor))).map(|(_, item)| item.clone()), limit)
    }

    /// Bookings in the order of their GUIDs.
    pub fn bookings_page(&self, cursor: Option<Guid>, limit: usize) -> Page<Booking> {
        page(self.bookings.range(after(cursor)).map(|(_, booking)| booking.clone()), limit)
    }

    /// Records of one kind in the order of their keys.
    pub fn records_page(
        &self,
        kind: RecordKind,
        cursor: Option<RecordKey>,
        limit: usize,
    ) -> Page<RecordEntry> {
        let of_kind = self.records.range(after(cursor)).filter(|(key, _)| key.kind() == kind);
        page(
            of_kind.map(|(key, (record, revision))| RecordEntry {
                key: *key,
                record: record.clone(),
                revision: *revision,
            }),
            limit,
        )
    }

    /// Bookings that have expired by `now`, longest ago first.
    pub fn due_bookings(&self, now: TimeMs, limit: usize) -> Vec<Booking> {
        let due = self.booking_expiry.iter().take_while(|(expires, _)| *expires <= now);
        due.take(limit).filter_map(|(_, guid)| self.bookings.get(guid).cloned()).collect()
    }

    /// Adds to `found` entries in the tree that have expired by `now`, longest ago first, after `cursor`, up to
    /// `limit` in all. Gives where to go on if it stopped because many below the trash had to be passed over.
    pub fn due_entries(
        &self,
        now: TimeMs,
        limit: usize,
        cursor: Option<(TimeMs, EntryId)>,
        found: &mut Vec<Entry>,
    ) -> Result<Option<(TimeMs, EntryId)>, Defect> {
        let mut alive: HashMap<DirId, bool> = HashMap::new();
        let due = self.expiry.range(after(cursor)).take_while(|(expires, _)| *expires <= now);
        let mut last = cursor;
        for (scanned, key) in due.enumerate() {
            if found.len() >= limit {
                return Ok(None);
            }
            if scanned >= SCANNED_PER_PAGE_MAX {
                return Ok(last);
            }
            last = Some(*key);
            let handle = self.find_id(key.1).ok_or_else(|| Defect(format!("{:?} is due but gone", key.1)))?;
            let front = self.front(handle)?;
            let parent = front.parent;
            if *alive.entry(parent).or_insert_with(|| self.is_alive(parent)) {
                found.push(front.entry()?);
            }
        }
        Ok(None)
    }

    /// Is it an item of the trash itself? For the audit.
    pub(super) fn is_trash_top(&self, directory: DirId) -> Option<TrashId> {
        match self.directory(directory)?.above {
            Above::Trash(trash) => Some(trash),
            Above::Nothing | Above::Directory(_) => None,
        }
    }
}
