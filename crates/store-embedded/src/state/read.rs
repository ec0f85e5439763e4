//! What readers ask, each answered from the state as it is under one taking of its lock.

use std::collections::HashMap;
use std::ops::Bound;

use exacat_model::codec::{Encode, Reader};
use exacat_model::limits::NAME_BYTES_MAX;
use exacat_model::{
    Booking, Deletion, DeletionId, DirId, Effect, Entry, EntryId, Guid, Lfn, Name, RecordKey, RecordKind,
    Revision, SeNumber, TimeMs, TrashId, TrashItem,
};
use exacat_store::{Account, Gate, Gates, Located, Page, Place, RecordEntry, UsageOf};

use super::packed::{Front, name_of};
use super::{Above, Defect, State, Top};
use crate::settings::SCANNED_PER_PAGE_MAX;

/// Where a listing of a storage element goes on. It has `begun` at a revision.
enum ReplicasCursor {
    /// In the tree (and below the trash): in this directory, after this name.
    Directory { begun: Revision, directory: DirId, name: Vec<u8> },
    /// Among the items of the trash, after this one.
    Trash { begun: Revision, after: TrashId },
    /// Among what moved meanwhile.
    Moved(MovedSince),
}

/// A listing of a storage element that was led through all directories and the trash by now. What moved back behind it
/// meanwhile, to where it had been already, is in the history: in the changes after one revision, up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedSince {
    pub after: Revision,
    pub up_to: Revision,
}

/// A page of such a listing, and where it goes on.
pub(crate) type ReplicasPage = (Page<Entry>, Vec<u8>);

/// Bytes of such a cursor, at most.
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
    /// This, if the cursor is such a one.
    pub fn parse(cursor: &[u8], now: Revision) -> Option<Self> {
        match ReplicasCursor::parse(cursor, now) {
            Some(ReplicasCursor::Moved(since)) => Some(since),
            _ => None,
        }
    }

    /// As a cursor.
    pub fn cursor(self) -> Vec<u8> {
        let mut bytes = vec![3];
        self.after.encode(&mut bytes);
        self.up_to.encode(&mut bytes);
        bytes
    }

    /// The file, if a change moved one from where a listing may not have been yet to where it may have been.
    pub fn moved_back(effect: &Effect) -> Option<EntryId> {
        match effect {
            Effect::Moved { id: id @ EntryId::Object(_), from, to } if to < from => Some(*id),
            Effect::Restored { id: id @ EntryId::Object(_), .. } => Some(*id),
            _ => None,
        }
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

fn on_se(front: Front<'_>, se: SeNumber) -> Result<Option<Entry>, Defect> {
    if !front.is_file() {
        return Ok(None);
    }
    let entry = front.entry()?;
    Ok(entry.file().is_some_and(|file| file.replica(se).is_some()).then_some(entry))
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
    /// of the trash, then - by the history, see [`MovedSince`] - what moved back meanwhile. None if the cursor is not
    /// one of the first two.
    pub fn replicas_on(
        &self,
        se: SeNumber,
        cursor: &[u8],
        limit: usize,
    ) -> Result<Option<ReplicasPage>, Defect> {
        let Some(cursor_given) = ReplicasCursor::parse(cursor, self.revision) else { return Ok(None) };
        let mut items = Vec::new();
        let mut scanned = 0;
        let Some(account) = self.accounts.ses.get(&se) else {
            return Ok(Some((Page { items, more: false }, Vec::new())));
        };
        if limit == 0 {
            return Ok(Some((Page { items, more: true }, cursor.to_vec())));
        }
        let (begun, after_trash) = match cursor_given {
            ReplicasCursor::Moved(_) => return Ok(None),
            ReplicasCursor::Trash { begun, after } => (begun, Some(after)),
            ReplicasCursor::Directory { begun, directory: first, name } => {
                for (id, _) in account.directories.range(first..) {
                    let directory = self
                        .directory(*id)
                        .ok_or_else(|| Defect(format!("there is no directory {}", id.0)))?;
                    let after = (*id == first).then_some(name.as_slice());
                    for handle in directory.children.after(after, |other| name_of(self.arena.get(other))) {
                        let front = self.front(handle)?;
                        let name = front.name;
                        scanned += 1;
                        items.extend(on_se(front, se)?);
                        if items.len() >= limit || scanned >= SCANNED_PER_PAGE_MAX {
                            let next = ReplicasCursor::directory(begun, *id, name);
                            return Ok(Some((Page { items, more: true }, next)));
                        }
                    }
                }
                (begun, None)
            }
        };
        let in_trash = if account.trashed == 0 { None } else { Some(self.trash.range(after(after_trash))) };
        for (id, item) in in_trash.into_iter().flatten() {
            scanned += 1;
            items.extend(on_se(self.front(item.handle)?, se)?);
            if items.len() >= limit || scanned >= SCANNED_PER_PAGE_MAX {
                return Ok(Some((Page { items, more: true }, ReplicasCursor::trash(begun, *id))));
            }
        }
        let since = MovedSince { after: begun, up_to: self.revision };
        let more = since.after < since.up_to;
        Ok(Some((Page { items, more }, if more { since.cursor() } else { Vec::new() })))
    }

    /// The entry, if it is a file with a replica on this storage element.
    pub fn if_on_se(&self, id: EntryId, se: SeNumber) -> Result<Option<Entry>, Defect> {
        match self.find_id(id) {
            Some(handle) => on_se(self.front(handle)?, se),
            None => Ok(None),
        }
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
