//! Random mutations from small pools: mostly such that they apply, often such that they are
//! refused, for every possible reason.

use exacat_model::{
    AccountName, At, Checksum, Checksums, Deletion, DeletionId, DirId, Edit, Entry, Expect, ExpectRecord,
    File, Group, GroupId, Guid, Lfn, Location, Mode, Mutation, Name, NewBody, NewEntry, Pfn, PurgeTarget,
    Quota, QuotaOf, Record, RecordKey, RecordKind, Replica, ReplicaState, Reservation, ReservedReplica,
    Revision, Role, Se, SeName, SeNumber, SeStatus, Tag, TagKey, TagValue, TimeMs, Token, TokenId, TrashId,
    TrashItem, User, UserId,
};
use exacat_store::{Clock, RecordEntry, Request, Store};
use fastrand::Rng;

use super::{Settings, Step, model, request};
use crate::clock::TestClock;
use crate::factory::StoreEnd;

const NAMES: [&str; 6] = ["a", "b", "c", "ż ó", "%2e?;=&", "e"];
const GUIDS: u8 = 24;
const SIZES: [Option<u64>; 6] = [None, Some(0), Some(1), Some(10), Some(100), Some(700)];
/// SEs 1 to 4 are added and removed; this one is never registered.
const SE_NEVER: u16 = 9;

/// Content of a store, as far as a generator needs it.
pub struct View {
    /// Directories in the tree, the root among them.
    pub directories: Vec<DirId>,
    /// Directories in the trash.
    pub dead: Vec<DirId>,
    /// Entries in the tree, without the root.
    pub entries: Vec<Entry>,
    /// Entries below items of the trash.
    pub below: Vec<Entry>,
    /// The trash.
    pub trash: Vec<TrashItem>,
    /// Reservations.
    pub reservations: Vec<Reservation>,
    /// Deletion queues.
    pub deletions: Vec<(SeNumber, Deletion)>,
    /// Records.
    pub records: Vec<RecordEntry>,
}

const ALL: usize = 10_000;

impl View {
    /// Reads a small store.
    pub async fn of(store: &dyn Store) -> View {
        let (directories, entries) = below(store, vec![DirId::ROOT]).await;
        let trash = store.trash(None, ALL).await.expect("trash").items;
        let items = trash.iter().filter_map(|item| item.entry.directory()).collect();
        let (dead, below) = below(store, items).await;
        let mut records = Vec::new();
        for kind in RecordKind::ALL {
            records.extend(store.records(kind, None, ALL).await.expect("records").items);
        }
        let mut deletions = Vec::new();
        for se in (1..=4).map(SeNumber) {
            let queue = store.deletions(se, None, ALL).await.expect("deletions").items;
            deletions.extend(queue.into_iter().map(|deletion| (se, deletion)));
        }
        let reservations = store.reservations(None, ALL).await.expect("reservations").items;
        View { directories, dead, entries, below, trash, reservations, deletions, records }
    }
}

async fn below(store: &dyn Store, from: Vec<DirId>) -> (Vec<DirId>, Vec<Entry>) {
    let (mut directories, mut entries) = (from, Vec::new());
    let mut next = 0;
    while let Some(directory) = directories.get(next) {
        let page = store.list(*directory, None, ALL).await.expect("list").expect("a directory");
        directories.extend(page.items.iter().filter_map(Entry::directory));
        entries.extend(page.items);
        next += 1;
    }
    (directories, entries)
}

/// Makes the sequence of these settings.
pub(super) async fn sequence(settings: Settings) -> Vec<Step> {
    let mut generator = Generator::new(settings.seed);
    let clock = TestClock::new();
    let store = model(&clock);
    let mut steps = Vec::new();
    let mut sent: Vec<Request> = Vec::new();
    for request in generator.beginning() {
        store.apply(request.clone()).await.expect("the reference answers");
        steps.push(Step::Apply(request));
    }
    while steps.len() < settings.steps {
        let rng = &mut generator.rng;
        let reopen = settings.reopen_every > 0 && rng.usize(..settings.reopen_every) == 0;
        let step = if steps.len() % settings.compare_every == 0 {
            Step::Compare
        } else if reopen {
            Step::Reopen(if rng.bool() { StoreEnd::Close } else { StoreEnd::Drop })
        } else if rng.u8(..100) < 12 {
            // Now and then it goes back.
            Step::Turn(if rng.u8(..8) == 0 { -rng.i64(0..4000) } else { rng.i64(0..1500) })
        } else if rng.u8(..100) < 4 && !sent.is_empty() {
            // Repeated, as it was or with more mutations.
            let mut again = sent[rng.usize(..sent.len())].clone();
            if rng.bool() {
                let view = View::of(&*store).await;
                again.mutations.push(generator.mutation(&view, clock.now()));
            }
            Step::Apply(again)
        } else {
            let view = View::of(&*store).await;
            Step::Apply(generator.request(&view, clock.now()))
        };
        match &step {
            Step::Apply(request) => {
                store.apply(request.clone()).await.expect("the reference answers");
                sent.push(request.clone());
            }
            Step::Turn(ms) => clock.turn(*ms),
            Step::Reopen(_) | Step::Compare => {}
        }
        steps.push(step);
    }
    steps
}

/// Makes mutations.
pub struct Generator {
    rng: Rng,
    operations: u64,
}

fn guid(number: u8) -> Guid {
    let mut bytes = [0; 16];
    bytes[0] = number / 4;
    bytes[15] = number;
    Guid(bytes)
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn account(text: &str) -> AccountName {
    AccountName::parse(text).expect("an account name")
}

impl Generator {
    /// Makes a generator. Its mutations follow from the seed and from the views.
    pub fn new(seed: u64) -> Self {
        Generator { rng: Rng::with_seed(seed), operations: 0 }
    }

    fn percent(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    fn one_of<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { Some(&items[self.rng.usize(..items.len())]) }
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.rng.usize(..items.len())].clone()
    }

    /// Makes users, groups, storage elements and limits to begin with.
    pub fn beginning(&mut self) -> Vec<Request> {
        let groups = (1..=3).map(|id| self.group(id)).collect::<Vec<_>>();
        let users = (1..=3).map(|id| self.user(id, id)).collect::<Vec<_>>();
        let ses = (1..=4).map(|number| self.se(number, SeStatus::Online)).collect::<Vec<_>>();
        let records = groups.into_iter().chain(users).chain(ses);
        let set = |record| Mutation::SetRecord { record: Box::new(record), expect: ExpectRecord::Any };
        let mutations = records.map(set).collect();
        vec![self.named(UserId::ADMIN, mutations)]
    }

    fn named(&mut self, who: UserId, mutations: Vec<Mutation>) -> Request {
        self.operations += 1;
        request(self.operations, who, mutations)
    }

    /// Makes a request of one mutation, sometimes of a few.
    pub fn request(&mut self, view: &View, now: TimeMs) -> Request {
        let count = if self.percent(70) { 1 } else { self.rng.usize(1..6) };
        let mutations = (0..count).map(|_| self.mutation(view, now)).collect();
        let who = self.owner();
        self.named(who, mutations)
    }

    /// Makes one mutation.
    pub fn mutation(&mut self, view: &View, now: TimeMs) -> Mutation {
        // The more entries, the more removals: states stay small enough for collisions.
        let crowded = view.entries.len() + view.below.len() > 40;
        match self.rng.u8(..100) {
            0..26 if !crowded => self.create(view, now),
            0..30 => self.update(view, now),
            30..46 => self.update(view, now),
            46..56 => self.move_entry(view),
            56..66 => self.remove(view),
            66..69 => self.restore(view),
            69..72 => self.restore_below(view),
            72..78 => self.purge(view),
            78..84 => self.reserve(view, now),
            84..89 => self.commit(view),
            89..92 => self.release(view),
            92..94 => self.dequeue(view),
            94..98 => self.set_record(view),
            _ => self.drop_record(view),
        }
    }

    // ---- parts ----

    fn owner(&mut self) -> UserId {
        UserId(self.rng.u32(..4))
    }

    fn group_id(&mut self) -> GroupId {
        GroupId(self.rng.u32(..4))
    }

    fn some_guid(&mut self) -> Guid {
        guid(self.rng.u8(..GUIDS))
    }

    fn some_name(&mut self) -> Name {
        if self.percent(2) {
            return Name::root();
        }
        name(NAMES[self.rng.usize(..NAMES.len())])
    }

    fn some_place(&mut self, view: &View) -> At {
        let parent = match self.rng.u8(..100) {
            0..88 => self.pick(&view.directories),
            88..96 => self.one_of(&view.dead).copied().unwrap_or(DirId(77)),
            _ => DirId(1000 + self.rng.u64(..3)),
        };
        At { parent, name: self.some_name() }
    }

    /// Chooses a place, mostly with an entry; returns that too.
    fn target(&mut self, view: &View) -> (At, Option<Entry>) {
        match self.one_of(&view.entries).cloned() {
            Some(entry) if self.percent(88) => (entry.at.clone(), Some(entry)),
            _ if self.percent(20) => (At { parent: DirId::ROOT, name: Name::root() }, None),
            _ => (self.some_place(view), None),
        }
    }

    fn expect(&mut self, entry: Option<&Entry>) -> Expect {
        let revision = entry.map_or(Revision(3), |entry| entry.revision);
        match (self.rng.u8(..100), entry) {
            (0..60, _) | (60..90, None) => Expect::ANY,
            (60..75, Some(entry)) => Expect::entry(entry.id()),
            (75..90, Some(_)) => Expect::version(revision),
            (90..95, _) => Expect::version(Revision(revision.0.saturating_sub(1))),
            _ => Expect::entry(exacat_model::EntryId::Object(self.some_guid())),
        }
    }

    fn expires(&mut self, now: TimeMs) -> Option<TimeMs> {
        self.percent(25).then(|| TimeMs(now.0.saturating_add_signed(self.rng.i64(-2000..4000))))
    }

    fn checksum(&mut self) -> Checksum {
        let text = self.pick(&["adler32:1", "adler32:2", "crc32c:1", "md5:d41d8cd98f00b204e9800998ecf8427e"]);
        Checksum::parse(text).expect("a checksum")
    }

    fn checksums(&mut self) -> Checksums {
        let mut sums = Checksums::none();
        for _ in 0..self.rng.u8(..3) {
            // Two of one algorithm: the first stays.
            let _ = sums.add(self.checksum());
        }
        sums
    }

    fn se_number(&mut self) -> SeNumber {
        if self.percent(3) { SeNumber(SE_NEVER) } else { SeNumber(self.rng.u16(1..5)) }
    }

    fn location(&mut self) -> Location {
        match self.rng.u8(..10) {
            0..7 => Location::Derived,
            7 => self.derived_in_words(),
            number => Location::Explicit(Pfn::parse(&format!("root://host/{number}")).expect("a PFN")),
        }
    }

    /// Makes the PFN that a file has by itself as an explicit one, maybe of another file.
    fn derived_in_words(&mut self) -> Location {
        let mut pfn = "root://host".to_owned();
        pfn.push_str(self.some_guid().storage_path().as_str());
        Location::Explicit(Pfn::parse(&pfn).expect("a PFN"))
    }

    fn state(&mut self) -> ReplicaState {
        if self.percent(60) { ReplicaState::Available } else { self.pick(&ReplicaState::ALL) }
    }

    fn replica(&mut self) -> Replica {
        if self.percent(12) {
            let se = if self.percent(90) { SeNumber::NONE } else { self.se_number() };
            let member = if self.percent(90) { "part.root" } else { "" };
            let location = Location::Member { archive: self.some_guid(), member: member.to_owned() };
            return Replica { se, state: self.state(), location };
        }
        let se = if self.percent(97) { self.se_number() } else { SeNumber::NONE };
        Replica { se, state: self.state(), location: self.location() }
    }

    fn tag(&mut self) -> Tag {
        let key = self.pick(&["run", "pass", "type"]);
        let value = match self.rng.u8(..20) {
            0..8 => TagValue::Integer(self.rng.i64(-2..3)),
            8..14 => TagValue::Text(self.pick(&["x", "y"]).to_owned()),
            14..16 => TagValue::Real(0.5),
            16..18 => TagValue::Boolean(self.rng.bool()),
            18 => TagValue::Time(TimeMs(5)),
            _ => TagValue::Real(f64::NAN),
        };
        Tag { key: TagKey::parse(key).expect("a key"), value }
    }

    fn file(&mut self) -> File {
        let mut replicas: Vec<Replica> = (0..self.rng.u8(..4)).map(|_| self.replica()).collect();
        if self.percent(80) {
            // Well-formed, mostly: one per SE, a member alone.
            replicas.retain(|replica| replica.check().is_ok());
            let mut seen = Vec::new();
            replicas.retain(|replica| {
                !seen.contains(&replica.se) && {
                    seen.push(replica.se);
                    true
                }
            });
            if replicas.iter().any(Replica::is_member) {
                replicas.retain(Replica::is_member);
            }
        }
        let size = if self.percent(1) { Some(u64::MAX) } else { self.pick(&SIZES) };
        let job = self.percent(30).then(|| self.rng.u64(..3));
        File { guid: self.some_guid(), size, checksums: self.checksums(), job, replicas }
    }

    // ---- mutations of entries ----

    fn create(&mut self, view: &View, now: TimeMs) -> Mutation {
        let body = match self.rng.u8(..100) {
            0..30 => NewBody::Directory,
            30..80 => NewBody::File(self.file()),
            80..92 => NewBody::Collection { guid: self.some_guid() },
            _ => NewBody::Link {
                guid: self.some_guid(),
                target: Lfn::parse("/somewhere/else").expect("an LFN"),
            },
        };
        let mut tags: Vec<Tag> = (0..self.rng.u8(..3)).map(|_| self.tag()).collect();
        if self.percent(90) {
            tags.sort_by(|one, other| one.key.cmp(&other.key));
            tags.dedup_by(|one, other| one.key == other.key);
        }
        Mutation::Create(Box::new(NewEntry {
            at: self.some_place(view),
            owner: self.owner(),
            group: self.group_id(),
            mode: Mode::FILE,
            created: self.percent(20).then_some(TimeMs(1000)),
            modified: self.percent(20).then_some(TimeMs(2000)),
            expires: self.expires(now),
            tags,
            body,
        }))
    }

    fn update(&mut self, view: &View, now: TimeMs) -> Mutation {
        if self.percent(4)
            && let Some(mutation) = self.overtake_a_reservation(view)
        {
            return mutation;
        }
        if self.percent(6)
            && let Some(mutation) = self.want_back(view)
        {
            return mutation;
        }
        let (at, entry) = self.target(view);
        let count = if self.percent(60) { 1 } else { self.rng.usize(0..5) };
        let edits = (0..count).map(|_| self.edit(entry.as_ref(), now)).collect();
        Mutation::Update { at, expect: self.expect(entry.as_ref()), edits }
    }

    /// Puts a replica where an upload is in flight, or makes the file a member.
    fn overtake_a_reservation(&mut self, view: &View) -> Option<Mutation> {
        let there = |reservation: &&Reservation| {
            view.entries.iter().any(|entry| entry.guid() == Some(reservation.guid))
        };
        let reservation = view.reservations.iter().find(there)?;
        let entry = view.entries.iter().find(|entry| entry.guid() == Some(reservation.guid))?;
        let pending = self.one_of(&reservation.pending)?;
        let replica = Replica { se: pending.se, ..self.replica() };
        Some(Mutation::Update {
            at: entry.at.clone(),
            expect: Expect::ANY,
            edits: vec![Edit::PutReplica(replica)],
        })
    }

    /// Gives a copy that waits for deletion to a file again: its own, or another.
    fn want_back(&mut self, view: &View) -> Option<Mutation> {
        let (se, deletion) = self.one_of(&view.deletions)?.clone();
        let files: Vec<&Entry> = view.entries.iter().filter(|entry| entry.file().is_some()).collect();
        let its = files.iter().find(|entry| entry.guid() == Some(deletion.guid)).copied();
        let entry = its.or_else(|| self.one_of(&files).copied())?;
        let mut edits =
            vec![Edit::PutReplica(Replica { se, state: self.state(), location: deletion.location })];
        if self.percent(30) {
            edits.push(Edit::DropReplica { se, delete: self.rng.bool() });
        }
        Some(Mutation::Update { at: entry.at.clone(), expect: Expect::ANY, edits })
    }

    fn edit(&mut self, entry: Option<&Entry>, now: TimeMs) -> Edit {
        let file = entry.and_then(Entry::file);
        let on = |file: &File| file.replicas.iter().map(|replica| replica.se).collect::<Vec<_>>();
        let ses = file.map(on).unwrap_or_default();
        let is_collection = entry.is_some_and(|entry| entry.kind() == exacat_model::Kind::Collection);
        let number = self.rng.u8(..100);
        if is_collection && number < 70 {
            let guid = self.some_guid();
            return if number < 45 { Edit::AddMember(guid) } else { Edit::RemoveMember(guid) };
        }
        if file.is_some() && number < 60 {
            let known = if self.percent(85) { self.one_of(&ses).copied() } else { None };
            let se = known.unwrap_or_else(|| self.se_number());
            return match number {
                0..6 => Edit::Job(self.percent(70).then(|| self.rng.u64(..3))),
                6..14 => Edit::Size(if self.percent(3) { u64::MAX } else { self.rng.u64(..2) * 100 }),
                14..20 => Edit::Checksum(self.checksum()),
                20..34 => Edit::PutReplica(self.replica()),
                34..46 => Edit::DropReplica { se, delete: self.rng.bool() },
                _ => Edit::ReplicaState { se, state: self.pick(&ReplicaState::ALL) },
            };
        }
        match self.rng.u8(..16) {
            0 | 1 => Edit::Owner(self.owner()),
            2 | 3 => Edit::Group(self.group_id()),
            4 => Edit::Mode(self.pick(&[Mode::FILE, Mode::DIRECTORY])),
            5 => Edit::Modified(TimeMs(self.rng.u64(..3))),
            6 | 7 => Edit::Expires(self.expires(now)),
            8 => Edit::Job(None),
            9 => Edit::Size(10),
            10 => Edit::PutReplica(self.replica()),
            11..14 => Edit::SetTag(self.tag()),
            14 => Edit::UnsetTag(self.tag().key),
            _ => Edit::AddMember(self.some_guid()),
        }
    }

    fn move_entry(&mut self, view: &View) -> Mutation {
        let (from, entry) = self.target(view);
        let to = if self.percent(5) { from.clone() } else { self.some_place(view) };
        Mutation::Move { from, expect: self.expect(entry.as_ref()), to }
    }

    fn remove(&mut self, view: &View) -> Mutation {
        let (at, entry) = self.target(view);
        let is_directory = entry.as_ref().is_some_and(|entry| entry.directory().is_some());
        Mutation::Remove {
            at,
            expect: self.expect(entry.as_ref()),
            only_empty: if is_directory { self.percent(50) } else { self.percent(5) },
            lfn: Lfn::parse("/as/it/was").expect("an LFN"),
        }
    }

    fn trash_id(&mut self, view: &View) -> TrashId {
        match self.one_of(&view.trash) {
            Some(item) if item.id.0.0 > 0 => item.id,
            _ => TrashId(Revision(self.rng.u64(..9))),
        }
    }

    fn restore(&mut self, view: &View) -> Mutation {
        Mutation::Restore { trash: self.trash_id(view), to: self.some_place(view) }
    }

    fn restore_below(&mut self, view: &View) -> Mutation {
        let (from, entry) = match self.one_of(&view.below).cloned() {
            Some(entry) if self.percent(85) => (entry.at.clone(), Some(entry)),
            Some(entry) if self.percent(50) => (At { name: self.some_name(), ..entry.at }, None),
            _ => (self.some_place(view), None),
        };
        Mutation::RestoreBelow { from, expect: self.expect(entry.as_ref()), to: self.some_place(view) }
    }

    fn purge(&mut self, view: &View) -> Mutation {
        let target = match self.one_of(&view.below).cloned() {
            Some(entry) if self.percent(40) => {
                PurgeTarget::Below { at: entry.at.clone(), expect: self.expect(Some(&entry)) }
            }
            _ if self.percent(10) => PurgeTarget::Below { at: self.some_place(view), expect: Expect::ANY },
            _ => PurgeTarget::Item(self.trash_id(view)),
        };
        Mutation::Purge(target)
    }

    // ---- uploads ----

    fn reserve(&mut self, view: &View, now: TimeMs) -> Mutation {
        let files: Vec<&Entry> = view.entries.iter().filter(|entry| entry.file().is_some()).collect();
        let there = if self.percent(35) { self.one_of(&files).copied() } else { None };
        let file = there.and_then(Entry::file);
        let mut pending: Vec<ReservedReplica> = (0..self.rng.u8(..4))
            .map(|_| ReservedReplica { se: self.se_number(), location: self.location() })
            .collect();
        if self.percent(90) {
            pending.sort_by_key(|pending| pending.se);
            pending.dedup_by_key(|pending| pending.se);
        }
        if self.percent(3) {
            let location = Location::Member { archive: guid(1), member: "m".to_owned() };
            pending.push(ReservedReplica { se: SeNumber::NONE, location });
        }
        let size = match file.and_then(|file| file.size) {
            Some(size) if self.percent(85) => size,
            _ if self.percent(2) => u64::MAX,
            _ => self.rng.u64(..3) * 50,
        };
        // Often one in place of another.
        let earlier = if self.percent(25) { self.one_of(&view.reservations) } else { None };
        let known = earlier.map(|earlier| earlier.guid).or(file.map(|file| file.guid));
        Mutation::Reserve(Box::new(Reservation {
            guid: known.unwrap_or_else(|| self.some_guid()),
            lfn: Lfn::parse("/to/be").expect("an LFN"),
            owner: earlier.map_or_else(|| self.owner(), |earlier| earlier.owner),
            group: self.group_id(),
            mode: Mode::FILE,
            size,
            checksums: if self.percent(60) { Checksums::none() } else { self.checksums() },
            job: self.percent(30).then_some(7),
            created: TimeMs(0),
            expires: TimeMs(now.0.saturating_add_signed(self.rng.i64(-500..9000))),
            pending,
            exists: self.rng.bool(),
        }))
    }

    fn commit(&mut self, view: &View) -> Mutation {
        let reservation = self.one_of(&view.reservations).cloned();
        let guid = reservation.as_ref().map_or_else(|| self.some_guid(), |reservation| reservation.guid);
        let pending =
            reservation.as_ref().and_then(|reservation| self.one_of(&reservation.pending)).map(|one| one.se);
        let se = pending.filter(|_| self.percent(92)).unwrap_or_else(|| self.se_number());
        let stands = view.entries.iter().find(|entry| entry.guid() == Some(guid));
        let at = match stands {
            Some(entry) if self.percent(85) => entry.at.clone(),
            _ => self.some_place(view),
        };
        let size = reservation.filter(|_| self.percent(93)).map_or(1, |reservation| reservation.size);
        let checksums = if self.percent(60) { Checksums::none() } else { self.checksums() };
        Mutation::Commit { guid, se, at, size, checksums }
    }

    fn release(&mut self, view: &View) -> Mutation {
        let reservation = self.one_of(&view.reservations).cloned();
        let guid = reservation.as_ref().map_or_else(|| self.some_guid(), |reservation| reservation.guid);
        let pending =
            reservation.as_ref().and_then(|reservation| self.one_of(&reservation.pending)).map(|one| one.se);
        let se = if self.percent(40) { pending.or(Some(SeNumber(2))) } else { None };
        let se = if self.percent(5) { Some(self.se_number()) } else { se };
        Mutation::Release { guid, se, only_expired: self.percent(40) }
    }

    fn dequeue(&mut self, view: &View) -> Mutation {
        let mut done = Vec::new();
        let mut se = self.se_number();
        for _ in 0..self.rng.u8(1..4) {
            match self.one_of(&view.deletions) {
                Some((on, deletion)) => {
                    se = if done.is_empty() { *on } else { se };
                    done.push(deletion.id);
                }
                None => done.push(DeletionId { revision: Revision(self.rng.u64(..9)), index: 0 }),
            }
        }
        if self.percent(20) {
            done.extend(done.first().copied());
        }
        Mutation::Dequeue { se, done }
    }

    // ---- records ----

    fn group(&mut self, id: u32) -> Record {
        let number = if self.percent(90) { id } else { self.rng.u32(..4) };
        Record::Group(Group { id: GroupId(id), name: account(&format!("group{number}")) })
    }

    fn user(&mut self, id: u32, group: u32) -> Record {
        let number = if self.percent(90) { id } else { self.rng.u32(..4) };
        Record::User(User {
            id: UserId(id),
            name: account(&format!("user{number}")),
            group: GroupId(group),
            groups: if self.percent(30) { vec![self.group_id()] } else { Vec::new() },
            roles: if self.percent(20) { vec![Role::Operator] } else { Vec::new() },
            may_become: Vec::new(),
            subjects: Vec::new(),
            home: None,
            disabled: self.percent(10),
        })
    }

    fn se(&mut self, number: u16, status: SeStatus) -> Record {
        let named = if self.percent(92) { number } else { self.rng.u16(1..5) };
        Record::Se(Se {
            number: SeNumber(number),
            name: SeName::parse(&format!("DEMO::Site{named}::SE")).expect("an SE's name"),
            prefix: if self.percent(95) { "root://host".to_owned() } else { "root://host/".to_owned() },
            qos: Vec::new(),
            status,
            distances: Vec::new(),
            https: String::new(),
        })
    }

    fn subject(&mut self) -> QuotaOf {
        if self.rng.bool() {
            QuotaOf::User(UserId(self.rng.u32(..5)))
        } else {
            QuotaOf::Group(self.group_id())
        }
    }

    fn record(&mut self, view: &View) -> Record {
        if self.percent(10)
            && let Some(there) = self.one_of(&view.records)
        {
            return there.record.clone();
        }
        match self.rng.u8(..10) {
            0 => {
                let id = self.rng.u32(1..5);
                self.group(id)
            }
            1..3 => {
                let (id, group) = (self.rng.u32(1..5), self.rng.u32(..5));
                self.user(id, group)
            }
            3..5 => {
                let number = self.rng.u16(..5);
                let status = if self.percent(75) { SeStatus::Online } else { SeStatus::ReadOnly };
                self.se(number, status)
            }
            5..8 => Record::Quota(Quota {
                of: self.subject(),
                files: self.percent(40).then(|| self.rng.u64(..8)),
                bytes: self.percent(40).then(|| self.rng.u64(..500)),
                replica_bytes: self.percent(40).then(|| self.rng.u64(..500)),
            }),
            _ => Record::Token(Token {
                id: TokenId(self.rng.u64(..4)),
                hash: [self.rng.u8(..3); 32],
                user: UserId(self.rng.u32(..5)),
                issued: TimeMs(0),
                expires: TimeMs(1),
                scope: Lfn::root(),
                write: true,
                note: String::new(),
            }),
        }
    }

    fn record_expect(&mut self, there: Option<&RecordEntry>) -> ExpectRecord {
        match self.rng.u8(..10) {
            0..7 => ExpectRecord::Any,
            7 => ExpectRecord::Absent,
            8 => ExpectRecord::Version(there.map_or(Revision(1), |there| there.revision)),
            _ => ExpectRecord::Version(Revision(self.rng.u64(..5))),
        }
    }

    fn set_record(&mut self, view: &View) -> Mutation {
        let record = self.record(view);
        let there = view.records.iter().find(|there| there.key == record.key());
        Mutation::SetRecord { expect: self.record_expect(there), record: Box::new(record) }
    }

    fn drop_record(&mut self, view: &View) -> Mutation {
        let there = self.one_of(&view.records).cloned();
        let key = match &there {
            Some(there) if self.percent(90) => there.key,
            _ => RecordKey::Se(SeNumber(SE_NEVER)),
        };
        Mutation::DropRecord { key, expect: self.record_expect(there.as_ref()) }
    }
}
