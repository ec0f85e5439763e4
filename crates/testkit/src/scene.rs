//! A store with a few accounts and storage elements in it, and short helpers for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::{
    AccountName, At, Checksum, Checksums, DirId, Edit, Entry, EntryId, Expect, ExpectRecord, File, Group,
    GroupId, Guid, Lfn, Location, Mode, Mutation, Name, NewBody, NewEntry, OperationId, Pfn, PurgeTarget,
    Quota, QuotaOf, Record, Replica, ReplicaState, Reservation, ReservedReplica, Revision, Se, SeName,
    SeNumber, SeStatus, Tag, TagKey, TagValue, TimeMs, TrashId, Usage, User, UserId,
};
use exacat_store::{Account, Clock, Outcome, Request, Store, UsageOf};

use crate::clock::TestClock;
use crate::dump::Dump;
use crate::factory::{StoreEnd, StoreFactory, UnderTest};
use crate::random::outcome_name;

/// Storage elements of a [`Scene::new`], all online. It also has users and groups 1 and 2.
pub const SES: [u16; 3] = [1, 2, 3];

/// A store under test, its clock, and helpers.
pub struct Scene {
    /// Clock of the store.
    pub clock: TestClock,
    under_test: Box<dyn UnderTest>,
    operations: AtomicU64,
}

impl Scene {
    /// Makes a store without additions.
    pub async fn fresh(factory: &dyn StoreFactory) -> Scene {
        let clock = TestClock::new();
        let under_test = factory.open(&clock).await;
        Scene { clock, under_test, operations: AtomicU64::new(0) }
    }

    /// Makes a store with users, groups and storage elements.
    pub async fn new(factory: &dyn StoreFactory) -> Scene {
        let scene = Scene::fresh(factory).await;
        let mut records = Vec::new();
        for id in [1, 2] {
            records.push(group(id, &format!("group{id}")));
            records.push(user(id, &format!("user{id}")));
        }
        records.extend(SES.map(|number| se(number, SeStatus::Online)));
        let outcomes = scene.apply(records.into_iter().map(set).collect()).await;
        assert!(outcomes.iter().all(|outcome| outcome_name(outcome) == "Applied"), "{outcomes:?}");
        scene
    }

    /// Returns the store.
    pub fn store(&self) -> Arc<dyn Store> {
        self.under_test.store()
    }

    /// Ends the store and opens it again.
    pub async fn reopen(&mut self, end: StoreEnd) {
        self.under_test.reopen(end).await;
    }

    /// Says whether the store knows the fingerprints of requests after it was opened again.
    pub fn keeps_fingerprints(&self) -> bool {
        self.under_test.keeps_fingerprints()
    }

    /// Makes a request with an id of its own.
    pub fn request(&self, mutations: Vec<Mutation>) -> Request {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.operations.fetch_add(1, Ordering::SeqCst).to_le_bytes());
        Request::new(OperationId::new(self.clock.now(), random), UserId::ADMIN, mutations)
    }

    /// Applies mutations in one request.
    pub async fn apply(&self, mutations: Vec<Mutation>) -> Vec<Outcome> {
        let count = mutations.len();
        let outcomes = self.store().apply(self.request(mutations)).await.expect("the request is answered");
        assert_eq!(outcomes.len(), count, "one outcome per mutation (A1)");
        outcomes
    }

    /// Applies one mutation.
    pub async fn one(&self, mutation: Mutation) -> Outcome {
        self.apply(vec![mutation]).await.remove(0)
    }

    /// Applies one that must be applied; returns its revision.
    pub async fn applied(&self, mutation: Mutation) -> Revision {
        match self.one(mutation.clone()).await {
            Outcome::Applied { revision, .. } => revision,
            other => panic!("{other:?} of {mutation:?}"),
        }
    }

    /// Applies one that must be refused with this, and must do nothing.
    pub async fn refused(&self, refusal: &str, mutation: Mutation) {
        let before = self.revision().await;
        let outcome = self.one(mutation.clone()).await;
        assert!(
            matches!(outcome, Outcome::Refused(_)) && outcome_name(&outcome) == refusal,
            "{outcome:?}, expected {refusal}, of {mutation:?}"
        );
        assert_eq!(self.revision().await, before, "a refused mutation has no change");
    }

    /// Applies one that must change nothing.
    pub async fn unchanged(&self, mutation: Mutation) {
        let before = self.revision().await;
        assert_eq!(self.one(mutation.clone()).await, Outcome::Unchanged, "{mutation:?}");
        assert_eq!(self.revision().await, before, "what changes nothing has no change");
    }

    /// Makes a directory.
    pub async fn directory(&self, parent: DirId, name: &str) -> DirId {
        match self.one(create(new_directory(at(parent, name)))).await {
            Outcome::Applied { id: Some(EntryId::Directory(id)), .. } => id,
            other => panic!("{other:?} of a directory {name}"),
        }
    }

    /// Makes a file of 100 bytes with replicas on these SEs, owned by user 1 and group 1.
    pub async fn file(&self, parent: DirId, name: &str, number: u8, ses: &[u16]) -> Revision {
        self.applied(create(new_file(at(parent, name), guid(number), Some(100), ses))).await
    }

    /// Moves an entry to the trash.
    pub async fn trash(&self, at: At) -> TrashId {
        TrashId(self.applied(remove(at)).await)
    }

    /// Returns the entry at a place, if any.
    pub async fn entry(&self, at: &At) -> Option<Entry> {
        let page = self.store().list(at.parent, None, 10_000).await.expect("list")?;
        page.items.into_iter().find(|entry| entry.at.name == at.name)
    }

    /// Returns the entry at a place; panics without one.
    pub async fn at(&self, at: &At) -> Entry {
        self.entry(at).await.unwrap_or_else(|| panic!("nothing at {at:?}"))
    }

    /// Returns one account.
    pub async fn account(&self, of: UsageOf) -> Account {
        self.store().usage(&[of]).await.expect("usage").remove(0)
    }

    /// Returns one usage.
    pub async fn usage(&self, of: UsageOf) -> Usage {
        self.account(of).await.usage
    }

    /// Returns the last revision.
    pub async fn revision(&self) -> Revision {
        self.store().revision().await.expect("revision")
    }

    /// Returns the whole state.
    pub async fn dump(&self) -> Dump {
        Dump::of(&*self.store(), self.clock.now()).await
    }

    /// Returns the time on the clock plus `ms`.
    pub fn later(&self, ms: u64) -> TimeMs {
        self.clock.now().plus_ms(ms)
    }
}

// ---- parts ----

/// Makes a name.
pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

/// Makes a path.
pub fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).expect("an LFN")
}

/// Makes a place; the name `/` is the root's.
pub fn at(parent: DirId, text: &str) -> At {
    At { parent, name: if text == "/" { Name::root() } else { name(text) } }
}

/// Makes a place below the root.
pub fn top(text: &str) -> At {
    at(DirId::ROOT, text)
}

/// Makes the GUID with this number.
pub fn guid(number: u8) -> Guid {
    let mut bytes = [0x11; 16];
    bytes[0] = number;
    Guid(bytes)
}

/// Makes the id of the object with this number.
pub fn object(number: u8) -> EntryId {
    EntryId::Object(guid(number))
}

/// Makes an adler32.
pub fn checksum(number: u8) -> Checksum {
    Checksum::parse(&format!("adler32:{number:x}")).expect("a checksum")
}

/// Makes an available replica at the derived location.
pub fn replica(se: u16) -> Replica {
    Replica { se: SeNumber(se), state: ReplicaState::Available, location: Location::Derived }
}

/// Makes a replica at a PFN.
pub fn replica_at(se: u16, pfn: &str) -> Replica {
    Replica { location: Location::Explicit(Pfn::parse(pfn).expect("a PFN")), ..replica(se) }
}

/// Makes a member of the archive with this number.
pub fn member(archive: u8) -> Replica {
    let location = Location::Member { archive: guid(archive), member: "part.root".to_owned() };
    Replica { se: SeNumber::NONE, state: ReplicaState::Available, location }
}

/// Makes a tag with a whole number.
pub fn tag(key: &str, value: i64) -> Tag {
    Tag { key: TagKey::parse(key).expect("a key"), value: TagValue::Integer(value) }
}

fn new_entry(at: At, body: NewBody) -> NewEntry {
    NewEntry {
        at,
        owner: UserId(1),
        group: GroupId(1),
        mode: Mode::FILE,
        created: None,
        modified: None,
        expires: None,
        tags: Vec::new(),
        body,
    }
}

/// Makes a new directory, owned by user 1.
pub fn new_directory(at: At) -> NewEntry {
    NewEntry { mode: Mode::DIRECTORY, ..new_entry(at, NewBody::Directory) }
}

/// Makes a new file, owned by user 1.
pub fn new_file(at: At, guid: Guid, size: Option<u64>, ses: &[u16]) -> NewEntry {
    let replicas = ses.iter().map(|se| replica(*se)).collect();
    new_entry(at, NewBody::File(File { guid, size, checksums: Checksums::none(), job: None, replicas }))
}

/// Makes a new file with these replicas.
pub fn new_file_with(at: At, guid: Guid, replicas: Vec<Replica>) -> NewEntry {
    let file = File { guid, size: Some(100), checksums: Checksums::none(), job: None, replicas };
    new_entry(at, NewBody::File(file))
}

/// Makes a new collection.
pub fn new_collection(at: At, guid: Guid) -> NewEntry {
    new_entry(at, NewBody::Collection { guid })
}

/// Makes a new link.
pub fn new_link(at: At, guid: Guid) -> NewEntry {
    new_entry(at, NewBody::Link { guid, target: lfn("/some/where") })
}

/// Makes an upload reservation by user 1 of 100 bytes a replica, for the next minute from
/// [`TestClock::START`] on.
pub fn reservation(guid: Guid, ses: &[u16]) -> Reservation {
    Reservation {
        guid,
        lfn: lfn("/to/be"),
        owner: UserId(1),
        group: GroupId(1),
        mode: Mode::FILE,
        size: 100,
        checksums: Checksums::none(),
        job: None,
        created: TimeMs(0),
        expires: TestClock::START.plus_ms(60_000),
        pending: ses
            .iter()
            .map(|se| ReservedReplica { se: SeNumber(*se), location: Location::Derived })
            .collect(),
        exists: false,
    }
}

/// Makes a group.
pub fn group(id: u32, name: &str) -> Record {
    Record::Group(Group { id: GroupId(id), name: AccountName::parse(name).expect("a name") })
}

/// Makes a user in the group of the same number.
pub fn user(id: u32, name: &str) -> Record {
    Record::User(User {
        id: UserId(id),
        name: AccountName::parse(name).expect("a name"),
        group: GroupId(id),
        groups: Vec::new(),
        roles: Vec::new(),
        may_become: Vec::new(),
        subjects: Vec::new(),
        home: None,
        disabled: false,
    })
}

/// Makes a storage element.
pub fn se(number: u16, status: SeStatus) -> Record {
    Record::Se(Se {
        number: SeNumber(number),
        name: SeName::parse(&format!("DEMO::Site{number}::SE")).expect("an SE's name"),
        prefix: "root://host//data".to_owned(),
        qos: Vec::new(),
        status,
        distances: Vec::new(),
        https: String::new(),
    })
}

/// Makes limits: files, bytes, bytes of replicas.
pub fn quota(of: QuotaOf, limits: [Option<u64>; 3]) -> Record {
    let [files, bytes, replica_bytes] = limits;
    Record::Quota(Quota { of, files, bytes, replica_bytes })
}

/// Makes the usage of files that are in no archive.
pub fn files(files: u64, bytes: u128, replicas: u64, replica_bytes: u128) -> Usage {
    Usage { files, bytes, replicas, replica_bytes, ..Usage::default() }
}

/// Makes the usage of directories.
pub fn directories(directories: u64) -> Usage {
    Usage { directories, ..Usage::default() }
}

// ---- mutations ----

/// Makes the creation of an entry.
pub fn create(new: NewEntry) -> Mutation {
    Mutation::Create(Box::new(new))
}

/// Makes an update of the entry at a place.
pub fn update(at: At, edits: Vec<Edit>) -> Mutation {
    Mutation::Update { at, expect: Expect::ANY, edits }
}

/// Makes an update with one edit.
pub fn edit(at: At, edit: Edit) -> Mutation {
    update(at, vec![edit])
}

/// Makes a move.
pub fn rename(from: At, to: At) -> Mutation {
    Mutation::Move { from, expect: Expect::ANY, to }
}

/// Makes a removal of an entry with everything below.
pub fn remove(at: At) -> Mutation {
    Mutation::Remove { at, expect: Expect::ANY, only_empty: false, lfn: lfn("/as/it/was") }
}

/// Makes a removal of an empty directory.
pub fn remove_empty(at: At) -> Mutation {
    Mutation::Remove { at, expect: Expect::ANY, only_empty: true, lfn: lfn("/as/it/was") }
}

/// Makes a restore of an item.
pub fn restore(trash: TrashId, to: At) -> Mutation {
    Mutation::Restore { trash, to }
}

/// Makes a restore of a part of an item.
pub fn restore_below(from: At, to: At) -> Mutation {
    Mutation::RestoreBelow { from, expect: Expect::ANY, to }
}

/// Makes a purge of an item.
pub fn purge(trash: TrashId) -> Mutation {
    Mutation::Purge(PurgeTarget::Item(trash))
}

/// Makes a purge of an entry below an item.
pub fn purge_below(at: At) -> Mutation {
    Mutation::Purge(PurgeTarget::Below { at, expect: Expect::ANY })
}

/// Makes an upload reservation's mutation.
pub fn reserve(reservation: Reservation) -> Mutation {
    Mutation::Reserve(Box::new(reservation))
}

/// Makes a commit of 100 bytes.
pub fn commit(guid: Guid, se: u16, at: At) -> Mutation {
    Mutation::Commit { guid, se: SeNumber(se), at, size: 100, checksums: Checksums::none() }
}

/// Makes a release of an upload reservation, or of one replica of it.
pub fn release(guid: Guid, se: Option<u16>) -> Mutation {
    Mutation::Release { guid, se: se.map(SeNumber), only_expired: false }
}

/// Makes the setting of a record, whatever was there.
pub fn set(record: Record) -> Mutation {
    Mutation::SetRecord { record: Box::new(record), expect: ExpectRecord::Any }
}

/// Makes the dropping of a record.
pub fn unset(key: exacat_model::RecordKey) -> Mutation {
    Mutation::DropRecord { key, expect: ExpectRecord::Any }
}
