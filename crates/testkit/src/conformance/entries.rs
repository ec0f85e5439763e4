//! The rows `Create` and `Update` of the table of mutations.

use exacat_model::limits::{
    EDITS_PER_UPDATE_MAX, FILE_BYTES_MAX, MEMBER_NAME_BYTES_MAX, REPLICAS_PER_FILE_MAX, TAG_TEXT_BYTES_MAX,
    TAGS_PER_ENTRY_MAX,
};
use exacat_model::{
    Body, Checksum, DirId, Edit, EntryId, Expect, GroupId, Location, Mode, Mutation, NewBody, NewEntry,
    QuotaOf, Replica, ReplicaState, Revision, SeNumber, SeStatus, Tag, TagKey, TagValue, TimeMs, Usage,
    UserId,
};
use exacat_store::{Clock, UsageOf};

use crate::factory::StoreFactory;
use crate::scene::*;

/// Goal: an entry of each kind is made as requested; defaults; directories get the next numbers.
pub async fn create_makes_entries_of_all_kinds(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    assert_eq!(scene.directory(DirId::ROOT, "a").await, DirId(2));
    assert_eq!(scene.directory(DirId(2), "b").await, DirId(3));
    let mut new = new_file(at(DirId(3), "f"), guid(1), Some(7), &[]);
    new.mode = Mode::new(0o600).expect("a mode");
    new.tags = vec![tag("a", 1), tag("b", 2)];
    let NewBody::File(file) = &mut new.body else { panic!("a file") };
    file.replicas = vec![replica(3), replica_at(1, "root://h/x")];
    file.job = Some(9);
    file.checksums.add(checksum(5)).expect("the first");
    scene.clock.turn(10);
    let revision = scene.applied(create(new)).await;
    let entry = scene.at(&at(DirId(3), "f")).await;
    let now = scene.clock.now();
    assert_eq!((entry.created, entry.modified, entry.revision), (now, now, revision));
    assert_eq!((entry.owner, entry.group, entry.mode.bits()), (UserId(1), GroupId(1), 0o600));
    assert_eq!(entry.tags, [tag("a", 1), tag("b", 2)]);
    let Body::File(file) = &entry.body else { panic!("a file") };
    assert_eq!((file.guid, file.size, file.job), (guid(1), Some(7), Some(9)));
    assert_eq!(file.replicas, [replica_at(1, "root://h/x"), replica(3)], "sorted by SE");
    assert_eq!(file.checksums.iter().collect::<Vec<_>>(), [&checksum(5)]);
    let (created, modified, expires) = (Some(TimeMs(1)), Some(TimeMs(2)), Some(TimeMs(3)));
    scene.applied(create(NewEntry { created, modified, expires, ..new_collection(top("c"), guid(2)) })).await;
    let entry = scene.at(&top("c")).await;
    assert_eq!((Some(entry.created), Some(entry.modified), entry.expires), (created, modified, expires));
    assert_eq!(entry.body, Body::Collection { guid: guid(2), members: 0 });
    let members = scene.store().members(guid(2), None, 10).await.expect("members").expect("a collection");
    assert!(members.items.is_empty());
    assert_eq!(scene.store().members(guid(1), None, 10).await.expect("members"), None, "a file has none");
    scene.applied(create(new_link(top("l"), guid(3)))).await;
    let link = Body::Link { guid: guid(3), target: lfn("/some/where") };
    assert_eq!(scene.at(&top("l")).await.body, link);
}

/// Goal: a new entry counts for owner, group, every directory above and each SE; an archive member
/// as such.
pub async fn create_is_counted(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    let mut lost = replica(3);
    lost.state = ReplicaState::Lost;
    scene.applied(create(new_file_with(at(b, "f"), guid(1), vec![replica(1), replica(2), lost]))).await;
    scene.applied(create(new_file_with(at(b, "m"), guid(2), vec![member(1)]))).await;
    scene.applied(create(NewEntry { owner: UserId(2), ..new_file(at(a, "u"), guid(3), None, &[1]) })).await;
    scene.applied(create(new_link(at(a, "l"), guid(4)))).await;
    let mut below_b = files(1, 100, 2, 200);
    (below_b.members, below_b.member_bytes) = (1, 100);
    assert_eq!(scene.usage(UsageOf::Directory(b)).await, below_b);
    let mut below_a = below_b;
    below_a.add(&files(1, 0, 1, 0));
    below_a.add(&Usage { directories: 1, others: 1, ..Usage::default() });
    assert_eq!(scene.usage(UsageOf::Directory(a)).await, below_a);
    below_a.add(&directories(1));
    assert_eq!(scene.usage(UsageOf::Directory(DirId::ROOT)).await, below_a);
    assert_eq!(scene.usage(UsageOf::Group(GroupId(1))).await, below_a);
    assert_eq!(scene.usage(UsageOf::User(UserId(2))).await, files(1, 0, 1, 0));
    assert_eq!(scene.usage(UsageOf::User(UserId(1))).await, below_a.minus(&files(1, 0, 1, 0)).expect("more"));
    assert_eq!(scene.usage(UsageOf::Se(SeNumber(1))).await, files(2, 100, 2, 100));
    assert_eq!(scene.usage(UsageOf::Se(SeNumber(2))).await, files(1, 100, 1, 100));
    assert_eq!(scene.usage(UsageOf::Se(SeNumber(3))).await, Usage::default(), "what is lost takes no space");
}

/// Goal: ill-formed entries are refused, in the order of the row; limits hold at their edges.
pub async fn create_refuses_what_is_not_well_formed(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let file = |replicas| new_file_with(top("f"), guid(1), replicas);
    let tags =
        |count: usize| -> Vec<Tag> { (0..count).map(|number| tag(&format!("t{number:03}"), 1)).collect() };
    let many = |count: u16| -> Vec<Replica> { (1..=count).map(replica).collect() };
    scene.refused("Invalid", create(NewEntry { at: top("/"), ..file(vec![]) })).await;
    scene.refused("Invalid", create(NewEntry { tags: vec![tag("b", 1), tag("a", 1)], ..file(vec![]) })).await;
    scene.refused("Invalid", create(NewEntry { tags: vec![tag("a", 1), tag("a", 2)], ..file(vec![]) })).await;
    scene.refused("Limit", create(NewEntry { tags: tags(TAGS_PER_ENTRY_MAX + 1), ..file(vec![]) })).await;
    let valued = |value| vec![Tag { key: TagKey::parse("t").expect("a key"), value }];
    let too_long = TagValue::Text("x".repeat(TAG_TEXT_BYTES_MAX + 1));
    scene.refused("Limit", create(NewEntry { tags: valued(too_long), ..file(vec![]) })).await;
    let no_number = valued(TagValue::Real(f64::NAN));
    scene.refused("Invalid", create(NewEntry { tags: no_number, ..file(vec![]) })).await;
    scene.refused("Limit", create(file(many(REPLICAS_PER_FILE_MAX as u16 + 1)))).await;
    scene.refused("Invalid", create(file(vec![replica(1), replica_at(1, "root://h/x")]))).await;
    scene.refused("Invalid", create(file(vec![replica(0)]))).await;
    scene.refused("Invalid", create(file(vec![Replica { se: SeNumber(1), ..member(1) }]))).await;
    let named = |member: String| Location::Member { archive: guid(9), member };
    let part = |name: String| vec![Replica { location: named(name), ..member(1) }];
    scene.refused("Invalid", create(file(part(String::new())))).await;
    scene.refused("Limit", create(file(part("x".repeat(MEMBER_NAME_BYTES_MAX + 1))))).await;
    scene.refused("Invalid", create(file(vec![member(1), replica(1)]))).await;
    scene.refused("Limit", create(new_file(top("f"), guid(1), Some(FILE_BYTES_MAX + 1), &[]))).await;
    // At the edges.
    let text = valued(TagValue::Text("x".repeat(TAG_TEXT_BYTES_MAX)));
    scene.applied(create(NewEntry { tags: text, ..new_directory(top("text")) })).await;
    scene.applied(create(NewEntry { tags: tags(TAGS_PER_ENTRY_MAX), ..new_directory(top("tags")) })).await;
    scene.applied(create(new_file(top("size"), guid(2), Some(FILE_BYTES_MAX), &[]))).await;
    let name = part("x".repeat(MEMBER_NAME_BYTES_MAX));
    scene.applied(create(new_file_with(top("member"), guid(3), name))).await;
    for number in 4..=REPLICAS_PER_FILE_MAX as u16 {
        scene.applied(set(se(number, SeStatus::Online))).await;
    }
    scene.applied(create(file(many(REPLICAS_PER_FILE_MAX as u16)))).await;
    scene.refused("Limit", edit(top("tags"), Edit::SetTag(tag("new", 1)))).await;
    scene.applied(edit(top("tags"), Edit::SetTag(tag("t000", 2)))).await;
    scene.applied(set(se(99, SeStatus::Online))).await;
    scene.refused("Limit", edit(top("f"), Edit::PutReplica(replica(99)))).await;
}

/// Goal: a parent that does not exist, is in the trash, or is no directory's number, is gone. Names
/// and GUIDs are free or not, including those of the trash and of upload reservations.
pub async fn create_refuses_what_is_taken(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    scene.file(b, "f", 1, &[]).await;
    scene.file(DirId::ROOT, "g", 2, &[]).await;
    scene.applied(reserve(reservation(guid(3), &[1]))).await;
    let trash = scene.trash(top("a")).await;
    for gone in [a, b, DirId(99)] {
        scene.refused("ParentGone", create(new_directory(at(gone, "x")))).await;
    }
    scene.refused("Exists", create(new_directory(top("g")))).await;
    for taken in [1, 2, 3] {
        scene.refused("GuidInUse", create(new_file(top("x"), guid(taken), None, &[]))).await;
        scene.refused("GuidInUse", create(new_collection(top("x"), guid(taken)))).await;
        scene.refused("GuidInUse", create(new_link(top("x"), guid(taken)))).await;
    }
    // Free again: the name at once, the GUID after a purge or a release.
    scene.applied(create(new_directory(top("a")))).await;
    scene.apply(vec![purge_below(at(b, "f")), purge_below(at(a, "b")), purge(trash)]).await;
    scene.applied(release(guid(3), None)).await;
    scene.file(DirId::ROOT, "h", 1, &[]).await;
    scene.file(DirId::ROOT, "i", 3, &[]).await;
}

/// Goal: each SE of a replica is in the registry, whatever its status; an archive member needs
/// none.
pub async fn create_refuses_unknown_storage_elements(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.applied(set(se(1, SeStatus::Offline))).await;
    scene.refused("NoSuchSe", create(new_file(top("f"), guid(1), None, &[1, 9]))).await;
    scene.applied(create(new_file(top("f"), guid(1), None, &[1, 2]))).await;
    scene.applied(create(new_file_with(top("m"), guid(2), vec![member(1)]))).await;
}

/// Goal: each limit of owner's and group's quota, at its edge, with reservations. A mutation that
/// does not increase a usage is not refused for it.
pub async fn create_refuses_what_exceeds_a_quota(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let file = |number: u8, size: Option<u64>, ses: &[u16]| {
        create(new_file(top(&format!("f{number}")), guid(number), size, ses))
    };
    for of in [QuotaOf::User(UserId(1)), QuotaOf::Group(GroupId(1))] {
        // Files: everything but directories; reservations count.
        scene.applied(set(quota(of, [Some(2), None, None]))).await;
        scene.applied(reserve(reservation(guid(50), &[1]))).await;
        scene.applied(file(1, None, &[])).await;
        scene.refused("Quota", file(2, None, &[])).await;
        scene.refused("Quota", create(new_link(top("l"), guid(2)))).await;
        scene.refused("Quota", create(new_collection(top("c"), guid(2)))).await;
        scene.refused("Quota", create(new_file_with(top("m"), guid(2), vec![member(1)]))).await;
        let directory = scene.directory(DirId::ROOT, "d").await;
        scene.applied(release(guid(50), None)).await;
        scene.applied(file(2, None, &[])).await;
        // Bytes: logical, archive members too.
        scene.applied(set(quota(of, [None, Some(150), None]))).await;
        scene.applied(file(3, Some(50), &[1, 2, 3])).await;
        scene.refused("Quota", file(4, Some(101), &[])).await;
        scene
            .refused(
                "Quota",
                create(NewEntry {
                    at: at(directory, "x"),
                    ..new_file_with(top("m"), guid(4), vec![member(1)])
                })
                .with_size(101),
            )
            .await;
        scene.applied(file(4, Some(100), &[])).await;
        scene.refused("Quota", file(5, Some(1), &[])).await;
        scene.applied(file(5, Some(0), &[])).await;
        scene.applied(file(6, None, &[])).await;
        // Bytes of replicas: 150 by now; only those that take space.
        scene.applied(set(quota(of, [None, None, Some(170)]))).await;
        scene.refused("Quota", file(7, Some(7), &[1, 2, 3])).await;
        scene.applied(file(7, Some(10), &[1, 2])).await;
        scene.applied(file(8, Some(10_000), &[])).await;
        scene.refused("Quota", file(9, Some(1), &[1])).await;
        // Over the limit already: mutations that do not add to the usage pass.
        scene.applied(set(quota(of, [Some(0), Some(0), Some(0)]))).await;
        scene.refused("Quota", file(9, None, &[])).await;
        scene.directory(directory, "more").await;
        scene
            .applied(create(NewEntry { owner: UserId(2), group: GroupId(2), ..new_link(top("l"), guid(9)) }))
            .await;
        for name in ["f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "l"] {
            let item = scene.trash(top(name)).await;
            scene.applied(purge(item)).await;
        }
        scene.trash(top("d")).await;
        scene.applied(unset(exacat_model::RecordKey::Quota(of))).await;
    }
}

trait WithSize {
    fn with_size(self, size: u64) -> Mutation;
}

impl WithSize for Mutation {
    fn with_size(mut self, size: u64) -> Mutation {
        if let Mutation::Create(new) = &mut self
            && let NewBody::File(file) = &mut new.body
        {
            file.size = Some(size);
        }
        self
    }
}

/// Goal: all edits of the common fields move usage and set the revision; an edit without a
/// difference changes nothing.
pub async fn update_edits_what_all_entries_have(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.directory(DirId::ROOT, "d").await;
    scene.file(DirId::ROOT, "f", 1, &[1]).await;
    let edits = vec![
        Edit::Owner(UserId(2)),
        Edit::Group(GroupId(2)),
        Edit::Mode(Mode::new(0o700).expect("a mode")),
        Edit::Modified(TimeMs(5)),
        Edit::Expires(Some(TimeMs(6))),
        Edit::SetTag(tag("b", 1)),
        Edit::SetTag(tag("a", 2)),
        Edit::SetTag(tag("c", 3)),
        Edit::UnsetTag(tag("b", 1).key),
        Edit::UnsetTag(tag("x", 1).key),
    ];
    for place in [top("d"), top("f"), top("/")] {
        let before = scene.revision().await;
        let revision = scene.applied(update(place.clone(), edits.clone())).await;
        assert_eq!(revision.0, before.0 + 1);
        let ids: &[EntryId] = &[match place.name.as_str() {
            "d" => EntryId::Directory(DirId(2)),
            "f" => object(1),
            _ => EntryId::Directory(DirId::ROOT),
        }];
        let entry = scene.store().locate(ids).await.expect("locate").remove(0).expect("there").entry;
        assert_eq!((entry.owner, entry.group, entry.mode.bits()), (UserId(2), GroupId(2), 0o700));
        assert_eq!((entry.modified, entry.expires, entry.revision), (TimeMs(5), Some(TimeMs(6)), revision));
        assert_eq!(entry.tags, [tag("a", 2), tag("c", 3)]);
        let mut again = edits.clone();
        again.retain(|edit| !matches!(edit, Edit::SetTag(set) if set.key.as_str() == "b"));
        scene.unchanged(update(place.clone(), again)).await;
        scene.unchanged(update(place, vec![])).await;
    }
    let mut all = files(1, 100, 1, 100);
    all.add(&directories(2));
    assert_eq!(scene.usage(UsageOf::User(UserId(2))).await, all);
    assert_eq!(scene.usage(UsageOf::Group(GroupId(2))).await, all);
    assert_eq!(scene.usage(UsageOf::User(UserId(1))).await, Usage::default());
    // Forward and back is two changes of a field, not none.
    let back = vec![Edit::Mode(Mode::FILE), Edit::Mode(Mode::new(0o700).expect("a mode"))];
    scene.applied(update(top("f"), back)).await;
}

/// Goal: the preconditions before the edits.
pub async fn update_refuses_what_is_not_as_expected(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let directory = scene.directory(DirId::ROOT, "d").await;
    let revision = scene.file(directory, "f", 1, &[]).await;
    let with = |at, expect| Mutation::Update { at, expect, edits: vec![Edit::SetTag(tag("run", 1))] };
    let place = at(directory, "f");
    scene.refused("ParentGone", with(at(DirId(99), "f"), Expect::ANY)).await;
    scene.refused("NotFound", with(at(directory, "g"), Expect::ANY)).await;
    scene.refused("NotFound", with(at(directory, "/"), Expect::ANY)).await;
    scene.refused("Stale", with(place.clone(), Expect::entry(object(2)))).await;
    scene.refused("Stale", with(place.clone(), Expect::version(Revision(revision.0 - 1)))).await;
    let both = Expect { id: Some(object(1)), revision: Some(Revision(revision.0 + 1)) };
    scene.refused("Stale", with(place.clone(), both)).await;
    let both = Expect { id: Some(object(1)), revision: Some(revision) };
    scene.applied(with(place.clone(), both)).await;
    scene.refused("Stale", with(place.clone(), both)).await;
    scene.trash(top("d")).await;
    scene.refused("ParentGone", with(place, Expect::ANY)).await;
}

/// Goal: an update has at most so many edits, all of them done.
pub async fn update_has_at_most_so_many_edits(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.directory(DirId::ROOT, "d").await;
    let edits = |count: usize| (0..count).map(|number| Edit::Modified(TimeMs(number as u64))).collect();
    scene.refused("Limit", update(at(DirId(99), "x"), edits(EDITS_PER_UPDATE_MAX + 1))).await;
    scene.applied(update(top("d"), edits(EDITS_PER_UPDATE_MAX))).await;
    assert_eq!(scene.at(&top("d")).await.modified, TimeMs(EDITS_PER_UPDATE_MAX as u64 - 1));
}

/// Goal: a file's edits are for files, a collection's for collections.
pub async fn update_refuses_edits_of_another_kind(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.directory(DirId::ROOT, "d").await;
    scene.file(DirId::ROOT, "f", 1, &[1]).await;
    scene.applied(create(new_collection(top("c"), guid(2)))).await;
    scene.applied(create(new_link(top("l"), guid(3)))).await;
    let of_files = [
        Edit::Job(Some(1)),
        Edit::Size(FILE_BYTES_MAX + 1),
        Edit::Checksum(checksum(1)),
        Edit::PutReplica(replica(0)),
        Edit::DropReplica { se: SeNumber(1), delete: false },
        Edit::ReplicaState { se: SeNumber(1), state: ReplicaState::Lost },
    ];
    for place in ["d", "c", "l", "/"] {
        for wrong in &of_files {
            scene.refused("WrongKind", edit(top(place), wrong.clone())).await;
        }
    }
    for place in ["d", "f", "l", "/"] {
        scene.refused("WrongKind", edit(top(place), Edit::AddMember(guid(9)))).await;
        scene.refused("WrongKind", edit(top(place), Edit::RemoveMember(guid(9)))).await;
    }
}

/// Goal: known size, checksums and job cannot become others.
pub async fn update_makes_content_known_once(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.applied(create(new_file(top("f"), guid(1), None, &[1, 2]))).await;
    scene.refused("Limit", edit(top("f"), Edit::Size(FILE_BYTES_MAX + 1))).await;
    scene.applied(edit(top("f"), Edit::Size(70))).await;
    assert_eq!(scene.usage(UsageOf::Directory(DirId::ROOT)).await, files(1, 70, 2, 140));
    assert_eq!(scene.usage(UsageOf::Se(SeNumber(2))).await, files(1, 70, 1, 70));
    scene.unchanged(edit(top("f"), Edit::Size(70))).await;
    scene.refused("Limit", edit(top("f"), Edit::Size(FILE_BYTES_MAX + 1))).await;
    scene.refused("Mismatch", edit(top("f"), Edit::Size(71))).await;
    let sha = Checksum::parse(&"a".repeat(64)).expect("a sha256");
    scene.applied(update(top("f"), vec![Edit::Checksum(sha), Edit::Checksum(checksum(1))])).await;
    scene.unchanged(edit(top("f"), Edit::Checksum(checksum(1)))).await;
    scene.refused("Mismatch", edit(top("f"), Edit::Checksum(checksum(2)))).await;
    let entry = scene.at(&top("f")).await;
    assert_eq!(entry.file().expect("a file").checksums.iter().collect::<Vec<_>>(), [&checksum(1), &sha]);
    scene.applied(edit(top("f"), Edit::Job(Some(1)))).await;
    scene.applied(edit(top("f"), Edit::Job(None))).await;
    scene.unchanged(edit(top("f"), Edit::Job(None))).await;
}

/// Goal: each refusal of `PutReplica`, in order; added, or its state set.
pub async fn update_puts_replicas(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.file(DirId::ROOT, "f", 1, &[2]).await;
    scene.applied(create(new_file_with(top("m"), guid(2), vec![member(9)]))).await;
    let put = |place: &str, replica| edit(top(place), Edit::PutReplica(replica));
    scene.refused("Invalid", put("f", replica(0))).await;
    scene.refused("Invalid", put("f", Replica { se: SeNumber(1), ..member(9) })).await;
    scene.refused("Invalid", put("f", member(9))).await;
    scene.refused("Invalid", put("m", replica(9))).await;
    scene.refused("NoSuchSe", put("f", replica(9))).await;
    scene.refused("ReplicaExists", put("f", replica_at(2, "root://h/x"))).await;
    scene.refused("ReplicaExists", put("m", member(8))).await;
    scene.unchanged(put("f", replica(2))).await;
    scene.unchanged(put("m", member(9))).await;
    scene.applied(put("f", replica_at(3, "root://h/x"))).await;
    let mut suspect = replica(2);
    suspect.state = ReplicaState::Suspect;
    scene
        .applied(update(top("f"), vec![Edit::PutReplica(replica(1)), Edit::PutReplica(suspect.clone())]))
        .await;
    let entry = scene.at(&top("f")).await;
    let replicas = [replica(1), suspect, replica_at(3, "root://h/x")];
    assert_eq!(entry.file().expect("a file").replicas, replicas, "by SE");
    // A file without replicas can become an archive member: it counts as one from then on.
    scene.applied(create(new_file(top("n"), guid(3), Some(10), &[]))).await;
    scene.applied(put("n", member(9))).await;
    let usage = scene.usage(UsageOf::User(UserId(1))).await;
    assert_eq!((usage.files, usage.members, usage.bytes, usage.member_bytes), (1, 2, 100, 110));
    scene.applied(edit(top("n"), Edit::DropReplica { se: SeNumber::NONE, delete: true })).await;
    let usage = scene.usage(UsageOf::User(UserId(1))).await;
    assert_eq!((usage.files, usage.members, usage.bytes, usage.member_bytes), (2, 1, 110, 100));
}

/// Goal: replicas are dropped and change their states. A copy that takes space and must be deleted
/// is queued, nothing else.
pub async fn update_drops_replicas_and_sets_their_states(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.file(DirId::ROOT, "f", 1, &[1, 2, 3]).await;
    let state = |se: u16, state| edit(top("f"), Edit::ReplicaState { se: SeNumber(se), state });
    let drop = |se: u16, delete| edit(top("f"), Edit::DropReplica { se: SeNumber(se), delete });
    scene.refused("NotFound", state(9, ReplicaState::Lost)).await;
    scene.refused("NotFound", drop(9, true)).await;
    scene.unchanged(state(1, ReplicaState::Available)).await;
    for (to, takes) in [(ReplicaState::Suspect, 1), (ReplicaState::Copying, 1), (ReplicaState::Lost, 0)] {
        scene.applied(state(1, to)).await;
        assert_eq!(scene.usage(UsageOf::Se(SeNumber(1))).await.replicas, takes, "{to:?}");
    }
    assert_eq!(scene.usage(UsageOf::Directory(DirId::ROOT)).await, files(1, 100, 2, 200));
    scene.applied(drop(1, true)).await;
    scene.applied(drop(2, false)).await;
    let revision = scene.applied(drop(3, true)).await;
    let queue = |se: u16| {
        let store = scene.store();
        async move { store.deletions(SeNumber(se), None, 10).await.expect("deletions").items }
    };
    assert!(queue(1).await.is_empty(), "it was lost: nothing is there to delete");
    assert!(queue(2).await.is_empty(), "it was only to be forgotten");
    let found = queue(3).await;
    assert_eq!((found.len(), found[0].id.revision, found[0].id.index), (1, revision, 0));
    assert_eq!(scene.usage(UsageOf::Deletions(SeNumber(3))).await, files(1, 100, 1, 100));
    assert_eq!(scene.usage(UsageOf::Directory(DirId::ROOT)).await, files(1, 100, 0, 0));
    scene.refused("NotFound", drop(3, true)).await;
    // Edits see the results of those before them.
    let edits = vec![
        Edit::PutReplica(replica(1)),
        Edit::ReplicaState { se: SeNumber(1), state: ReplicaState::Lost },
        Edit::DropReplica { se: SeNumber(1), delete: true },
    ];
    scene.applied(update(top("f"), edits)).await;
    assert!(queue(1).await.is_empty());
}

/// Goal: every edit that can increase a usage is refused where the owner's or group's quota has no
/// room.
pub async fn update_refuses_what_exceeds_a_quota(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let lost = Replica { state: ReplicaState::Lost, ..replica(2) };
    scene.applied(create(new_file_with(top("f"), guid(1), vec![replica(1), lost]))).await;
    scene.applied(create(new_file(top("unknown"), guid(2), None, &[1, 3]))).await;
    scene.directory(DirId::ROOT, "d").await;
    // Giving it away: the new owner needs room, for the entry alone.
    scene.applied(set(quota(QuotaOf::User(UserId(2)), [Some(0), None, None]))).await;
    scene.applied(set(quota(QuotaOf::Group(GroupId(2)), [None, Some(99), None]))).await;
    scene.refused("Quota", edit(top("f"), Edit::Owner(UserId(2)))).await;
    scene.refused("Quota", edit(top("f"), Edit::Group(GroupId(2)))).await;
    scene.applied(update(top("d"), vec![Edit::Owner(UserId(2)), Edit::Group(GroupId(2))])).await;
    scene.applied(set(quota(QuotaOf::User(UserId(2)), [Some(1), None, Some(100)]))).await;
    scene.applied(set(quota(QuotaOf::Group(GroupId(2)), [None, Some(100), None]))).await;
    scene.applied(update(top("f"), vec![Edit::Owner(UserId(2)), Edit::Group(GroupId(2))])).await;
    scene.refused("Quota", edit(top("unknown"), Edit::Owner(UserId(2)))).await;
    // More replicas, or one that takes space again.
    scene.refused("Quota", edit(top("f"), Edit::PutReplica(replica(3)))).await;
    scene.refused("Quota", edit(top("f"), Edit::PutReplica(replica(2)))).await;
    let again = Edit::ReplicaState { se: SeNumber(2), state: ReplicaState::Suspect };
    scene.refused("Quota", edit(top("f"), again.clone())).await;
    // Earlier edits made room: all of it is one mutation.
    let moved = vec![Edit::DropReplica { se: SeNumber(1), delete: true }, again];
    scene.applied(update(top("f"), moved)).await;
    let before_it = vec![Edit::PutReplica(replica(3)), Edit::DropReplica { se: SeNumber(2), delete: true }];
    scene.refused("Quota", update(top("f"), before_it)).await;
    // A size that becomes known counts for the file and for each replica.
    scene.applied(set(quota(QuotaOf::User(UserId(1)), [None, Some(10), Some(19)]))).await;
    scene.refused("Quota", edit(top("unknown"), Edit::Size(11))).await;
    scene.refused("Quota", edit(top("unknown"), Edit::Size(10))).await;
    scene.applied(edit(top("unknown"), Edit::Size(9))).await;
    // Over the limit: edits that free space or keep the usage pass.
    scene.applied(set(quota(QuotaOf::User(UserId(1)), [Some(0), Some(0), Some(0)]))).await;
    scene.applied(edit(top("unknown"), Edit::SetTag(tag("run", 1)))).await;
    scene.applied(edit(top("unknown"), Edit::DropReplica { se: SeNumber(1), delete: true })).await;
    scene.refused("Quota", edit(top("unknown"), Edit::PutReplica(replica(1)))).await;
}

/// Goal: ill-formed tags are refused; a tag is set whatever it was.
pub async fn update_sets_tags(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.directory(DirId::ROOT, "d").await;
    let set = |value| edit(top("d"), Edit::SetTag(Tag { key: TagKey::parse("t").expect("a key"), value }));
    scene.refused("Invalid", set(TagValue::Real(f64::NAN))).await;
    scene.refused("Limit", set(TagValue::Text("x".repeat(TAG_TEXT_BYTES_MAX + 1)))).await;
    for value in [
        TagValue::Text("x".repeat(TAG_TEXT_BYTES_MAX)),
        TagValue::Integer(1),
        TagValue::Real(1.0),
        TagValue::Time(TimeMs(1)),
        TagValue::Boolean(true),
        TagValue::Text(String::new()),
    ] {
        scene.applied(set(value.clone())).await;
        assert_eq!(scene.at(&top("d")).await.tag("t"), Some(&value), "another type is another value");
        scene.unchanged(set(value)).await;
    }
}

/// Goal: members are added and removed; they are files, in the tree or the trash; they stay when
/// their file is purged.
pub async fn update_adds_and_removes_members(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    for number in [1, 2, 3] {
        scene.file(DirId::ROOT, &format!("f{number}"), number, &[]).await;
    }
    scene.applied(create(new_link(top("l"), guid(4)))).await;
    scene.applied(create(new_collection(top("c"), guid(9)))).await;
    let trash = scene.trash(top("f3")).await;
    for nothing in [4, 5, 9] {
        scene.refused("NotFound", edit(top("c"), Edit::AddMember(guid(nothing)))).await;
    }
    let edits = vec![
        Edit::AddMember(guid(2)),
        Edit::AddMember(guid(3)),
        Edit::AddMember(guid(1)),
        Edit::AddMember(guid(1)),
    ];
    let revision = scene.applied(update(top("c"), edits)).await;
    let entry = scene.at(&top("c")).await;
    assert_eq!((entry.body, entry.revision), (Body::Collection { guid: guid(9), members: 3 }, revision));
    scene.unchanged(edit(top("c"), Edit::AddMember(guid(2)))).await;
    scene.unchanged(edit(top("c"), Edit::RemoveMember(guid(5)))).await;
    scene.applied(edit(top("c"), Edit::RemoveMember(guid(2)))).await;
    scene.applied(purge(trash)).await;
    let members = scene.store().members(guid(9), None, 10).await.expect("members").expect("a collection");
    assert_eq!(members.items, [guid(1), guid(3)]);
    scene.refused("NotFound", edit(top("c"), Edit::AddMember(guid(3)))).await;
    scene.applied(edit(top("c"), Edit::RemoveMember(guid(3)))).await;
    // Its members move with it.
    scene.applied(rename(top("c"), top("d"))).await;
    let trash = scene.trash(top("d")).await;
    let members = scene.store().members(guid(9), None, 10).await.expect("members").expect("in the trash");
    assert_eq!(members.items, [guid(1)]);
    scene.applied(purge(trash)).await;
    assert_eq!(scene.store().members(guid(9), None, 10).await.expect("members"), None);
    scene.applied(create(new_collection(top("c"), guid(9)))).await;
    let members = scene.store().members(guid(9), None, 10).await.expect("members").expect("a new one");
    assert!(members.items.is_empty(), "and do not come back");
}
