//! The state in memory: entries and everything that is kept about them, exact after every change.
//!
//! [`apply`](State::apply) (in `apply.rs`) is the only way in: one change of the log, which was decided before. What is
//! found in it is in `read.rs`, for readers, and in the look-ups below, for deciding.
//!
//! ```text
//!            (directory, name) ──► names ─┐                       directories: parent, gate, usage below,
//!                        GUID ──► guids ──┼──► handle ──► arena    children in the order of their names
//!   directory ─► children in order ───────┘    (32 bits)  (packed entries)
//! ```
//! An entry is in the arena once; the indices hold its handle and compare with the bytes there.

mod accounts;
mod apply;
mod arena;
mod audit;
mod children;
mod deletions;
mod digest;
mod load;
mod operations;
mod packed;
mod read;
mod table;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use exacat_model::codec::DecodeError;
use exacat_model::{
    AccountName, At, Body, Booking, DirId, Entry, EntryId, Group, GroupId, Guid, Lfn, Mode, Name, Record,
    RecordKey, RecordKind, Revision, Role, SeNumber, TimeMs, TrashId, Usage, User, UserId,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use accounts::Accounts;
pub(crate) use apply::Stamp;
pub(crate) use arena::{Arena, Handle};
pub(crate) use children::Children;
pub(crate) use digest::Digest;
use digest::Item;
pub(crate) use load::{Loader, Part, Summary};
pub(crate) use operations::Operations;
use packed::Front;
pub(crate) use read::{MovedSince, REPLICAS_CURSOR_BYTES_MAX, ReplicasPage};
pub(crate) use table::HandleTable;
pub(crate) use walk::Hints;

/// The state contradicts itself, or a change does not apply to it: a defect of the engine, or a log that is not
/// this catalogue's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defect(String);

impl Defect {
    pub fn new(what: impl Into<String>) -> Self {
        Defect(what.into())
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<DecodeError> for Defect {
    fn from(error: DecodeError) -> Self {
        Defect(format!("a packed entry is damaged: {error}"))
    }
}

impl From<Defect> for exacat_model::Error {
    fn from(defect: Defect) -> Self {
        exacat_model::Error::new(exacat_model::ErrorKind::Internal, defect.0)
    }
}

/// What is above a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Above {
    /// Nothing: it is the root.
    Nothing,
    /// The directory it is in.
    Directory(DirId),
    /// It is itself an item of the trash.
    Trash(TrashId),
}

/// Where the way up from a directory ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    /// At the root: it is alive.
    Root,
    /// At an item of the trash.
    Trash(TrashId),
}

/// What is kept of a directory beside its entry. The gate's fields stand here too: a walk needs nothing else.
pub(crate) struct Directory {
    pub handle: Handle,
    pub above: Above,
    pub owner: UserId,
    pub group: GroupId,
    pub mode: Mode,
    children: Children,
    /// All that is below it.
    pub usage: Usage,
}

/// What is kept of an item of the trash beside its entry.
pub(crate) struct Trashed {
    pub handle: Handle,
    pub lfn: Lfn,
    pub removed_by: UserId,
    pub removed: TimeMs,
}

/// Everything the catalogue holds at one revision.
pub(crate) struct State {
    /// The last change's.
    pub revision: Revision,
    /// The last change's.
    pub time: TimeMs,
    /// What the next directory gets.
    pub next_directory: u64,
    /// Entries, in the tree and the trash, the root not counted.
    pub entries: u64,
    pub accounts: Accounts,
    arena: Arena,
    names: HandleTable,
    guids: HandleTable,
    /// By number. Numbers are given in sequence; those of purged directories stay empty.
    directories: Vec<Option<Box<Directory>>>,
    directories_present: u64,
    trash: BTreeMap<TrashId, Trashed>,
    members: BTreeMap<Guid, BTreeSet<Guid>>,
    bookings: BTreeMap<Guid, Booking>,
    booking_expiry: BTreeSet<(TimeMs, Guid)>,
    /// Entries that expire, except items of the trash. Those below an item are here, and passed over.
    expiry: BTreeSet<(TimeMs, EntryId)>,
    records: BTreeMap<RecordKey, (Record, Revision)>,
    record_names: BTreeMap<(RecordKind, String), RecordKey>,
    digest: Digest,
    /// Random per process: nobody can choose names that fall together.
    seed: u64,
    scratch: Vec<u8>,
}

fn hash_name(seed: u64, parent: DirId, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed ^ parent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn hash_guid(seed: u64, guid: Guid) -> u64 {
    xxh3_64_with_seed(&guid.0, seed)
}

impl State {
    /// A state with nothing in it, not even the root: for a checkpoint to be loaded into.
    fn empty(seed: u64) -> Self {
        State {
            revision: Revision(0),
            time: TimeMs(0),
            next_directory: DirId::ROOT.0 + 1,
            entries: 0,
            accounts: Accounts::default(),
            arena: Arena::default(),
            names: HandleTable::default(),
            guids: HandleTable::default(),
            directories: Vec::new(),
            directories_present: 0,
            trash: BTreeMap::new(),
            members: BTreeMap::new(),
            bookings: BTreeMap::new(),
            booking_expiry: BTreeSet::new(),
            expiry: BTreeSet::new(),
            records: BTreeMap::new(),
            record_names: BTreeMap::new(),
            digest: Digest::default(),
            seed,
            scratch: Vec::new(),
        }
    }

    /// The state of a new catalogue (clause N1).
    pub fn new(seed: u64) -> Result<Self, Defect> {
        let mut state = Self::empty(seed);
        let root = Entry {
            at: At { parent: DirId::ROOT, name: Name::root() },
            owner: UserId::ADMIN,
            group: GroupId::ADMIN,
            mode: Mode::DIRECTORY,
            created: TimeMs(0),
            modified: TimeMs(0),
            revision: Revision(0),
            expires: None,
            tags: Vec::new(),
            body: Body::Directory(DirId::ROOT),
        };
        state.insert_entry(&root, false, None)?;
        let name = AccountName::parse("admin").map_err(|error| Defect(error.message))?;
        let user = User {
            id: UserId::ADMIN,
            name: name.clone(),
            group: GroupId::ADMIN,
            groups: Vec::new(),
            roles: vec![Role::Admin],
            may_become: Vec::new(),
            subjects: Vec::new(),
            home: None,
            disabled: false,
        };
        state.set_record(Record::User(user), Revision(0));
        state.set_record(Record::Group(Group { id: GroupId::ADMIN, name }), Revision(0));
        Ok(state)
    }

    /// Equal for equal states.
    pub fn digest(&self) -> u128 {
        self.digest.value()
    }

    /// Is there memory for what a request of so many bytes may add?
    pub fn has_room(&self, bytes: usize, bytes_max: u64) -> bool {
        self.arena.has_room(bytes, bytes_max)
    }

    // ---- look-ups ----

    fn name_hash(&self, parent: DirId, name: &[u8]) -> u64 {
        hash_name(self.seed, parent, name)
    }

    fn guid_hash(&self, guid: Guid) -> u64 {
        hash_guid(self.seed, guid)
    }

    fn front(&self, handle: Handle) -> Result<Front<'_>, Defect> {
        Ok(Front::read(self.arena.get(handle))?)
    }

    /// The name of this name in this directory.
    pub fn find_name(&self, parent: DirId, name: &[u8]) -> Option<Handle> {
        self.find_hashed(self.name_hash(parent, name), parent, name)
    }

    /// The same, if the hash is known.
    fn find_hashed(&self, hash: u64, parent: DirId, name: &[u8]) -> Option<Handle> {
        self.names.find(hash, |handle| packed::stands_at(self.arena.get(*handle), parent, name))
    }

    /// What stands there, in the tree or below an item of the trash.
    pub fn find(&self, at: &At) -> Option<Handle> {
        self.find_name(at.parent, at.name.as_str().as_bytes())
    }

    /// The file, collection or link of this identity, wherever it is.
    pub fn find_guid(&self, guid: Guid) -> Option<Handle> {
        self.guids.find(self.guid_hash(guid), |handle| {
            Front::read(self.arena.get(*handle)).is_ok_and(|front| front.guid() == Some(guid))
        })
    }

    /// The entry of this identity, wherever it is.
    pub fn find_id(&self, id: EntryId) -> Option<Handle> {
        match id {
            EntryId::Directory(directory) => self.directory(directory).map(|directory| directory.handle),
            EntryId::Object(guid) => self.find_guid(guid),
        }
    }

    /// The entry at this handle.
    pub fn entry(&self, handle: Handle) -> Result<Entry, Defect> {
        Ok(self.front(handle)?.entry()?)
    }

    /// Bytes of the entry at this handle.
    pub fn packed_bytes(&self, handle: Handle) -> usize {
        self.arena.get(handle).len()
    }

    /// Is this a file?
    pub fn is_file(&self, handle: Handle) -> Result<bool, Defect> {
        Ok(self.front(handle)?.is_file())
    }

    /// The directory of this number.
    pub fn directory(&self, id: DirId) -> Option<&Directory> {
        self.directories.get(usize::try_from(id.0).ok()?)?.as_deref()
    }

    fn directory_mut(&mut self, id: DirId) -> Result<&mut Directory, Defect> {
        usize::try_from(id.0)
            .ok()
            .and_then(|index| self.directories.get_mut(index)?.as_deref_mut())
            .ok_or_else(|| Defect(format!("there is no directory {}", id.0)))
    }

    /// This directory and those above it, nearest first.
    pub fn way_up(&self, from: DirId) -> impl Iterator<Item = (DirId, &Directory)> {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let id = next?;
            let directory = self.directory(id)?;
            next = match directory.above {
                Above::Directory(above) => Some(above),
                Above::Nothing | Above::Trash(_) => None,
            };
            Some((id, directory))
        })
    }

    /// Where the way up from this directory ends; none if there is no such directory.
    pub fn top(&self, from: DirId) -> Option<Top> {
        match self.way_up(from).last()?.1.above {
            Above::Nothing => Some(Top::Root),
            Above::Trash(trash) => Some(Top::Trash(trash)),
            Above::Directory(_) => None,
        }
    }

    /// Does the way up from this directory lead to the root?
    pub fn is_alive(&self, directory: DirId) -> bool {
        self.top(directory) == Some(Top::Root)
    }

    /// How many components the path of this directory has.
    pub fn depth(&self, directory: DirId) -> usize {
        self.way_up(directory).count().saturating_sub(1)
    }

    /// Is the directory empty? One that is not there is.
    pub fn is_empty_directory(&self, directory: DirId) -> bool {
        self.directory(directory).is_none_or(|directory| directory.children.is_empty())
    }

    /// The entry of an item of the trash.
    pub fn trashed(&self, id: TrashId) -> Option<&Trashed> {
        self.trash.get(&id)
    }

    /// Is this file in the tree, that is not in the trash nor below an item of it?
    pub fn is_in_tree(&self, handle: Handle) -> Result<bool, Defect> {
        let front = self.front(handle)?;
        Ok(!front.is_trashed() && self.is_alive(front.parent))
    }

    pub fn has_member(&self, collection: Guid, member: Guid) -> bool {
        self.members.get(&collection).is_some_and(|members| members.contains(&member))
    }

    pub fn booking(&self, guid: Guid) -> Option<&Booking> {
        self.bookings.get(&guid)
    }

    pub fn record(&self, key: RecordKey) -> Option<&(Record, Revision)> {
        self.records.get(&key)
    }

    /// The records of one kind.
    pub fn records_of(&self, kind: RecordKind) -> impl Iterator<Item = &Record> {
        self.records.values().map(|(record, _)| record).filter(move |record| record.key().kind() == kind)
    }

    /// Which record of the kind has this name.
    pub fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey> {
        self.record_names.get(&(kind, name.to_owned())).copied()
    }

    /// The storage element of this number.
    pub fn se(&self, number: SeNumber) -> Option<&exacat_model::Se> {
        match self.record(RecordKey::Se(number)) {
            Some((Record::Se(se), _)) => Some(se),
            _ => None,
        }
    }

    /// The path of a directory in the tree; of one in the trash, from the item downwards.
    pub fn path_of(&self, directory: DirId) -> Result<Vec<String>, Defect> {
        let mut names = Vec::new();
        for (id, directory) in self.way_up(directory) {
            if id != DirId::ROOT {
                let name = self.front(directory.handle)?.name;
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        names.reverse();
        Ok(names)
    }

    // ---- figures ----

    /// Memory taken, by part; what is small is not looked at.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let (arena, free) = self.arena.bytes();
        let mut directories = (self.directories.capacity() * size_of::<Option<Box<Directory>>>()) as u64;
        directories += self.directories_present * size_of::<Directory>() as u64;
        let pairs: usize = self.accounts.ses.values().map(|se| se.directories.len()).sum();
        let expiring = self.expiry.len() * (size_of::<(TimeMs, EntryId)>() * 3 / 2);
        let members: usize = self.members.values().map(BTreeSet::len).sum();
        vec![
            ("memory_entries_bytes", arena),
            ("memory_entries_free_bytes", free),
            ("memory_names_bytes", self.names.bytes()),
            ("memory_guids_bytes", self.guids.bytes()),
            ("memory_directories_bytes", directories),
            // Four bytes each, and a third more where lists have room to grow; to sum it up would take long.
            ("memory_children_bytes", self.entries * 16 / 3),
            ("memory_se_directories_bytes", (pairs * 24) as u64),
            ("memory_expiry_bytes", expiring as u64),
            ("memory_members_bytes", (members * size_of::<Guid>() * 3 / 2) as u64),
        ]
    }

    /// Counts for a status.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("directories", self.directories_present.saturating_sub(1)),
            ("trash_items", self.trash.len() as u64),
            ("bookings", self.bookings.len() as u64),
            ("records", self.records.len() as u64),
        ]
    }
}
