//! The rows `Reserve`, `Commit`, `Release` and `Dequeue` of the table of mutations.

use exacat_model::limits::{
    DEPTH_MAX, EDITS_PER_UPDATE_MAX, FILE_BYTES_MAX, REPLICAS_PER_FILE_MAX, REPLICAS_PER_RESERVATION_MAX,
    RESERVATIONS_PER_USER_MAX,
};
use exacat_model::{
    Checksums, DeletionId, DirId, Edit, GroupId, Guid, Mode, Mutation, QuotaOf, ReplicaState, Reservation,
    ReservedReplica, Revision, SeNumber, SeStatus, Usage, UserId,
};
use exacat_store::{Account, Clock, UsageOf};

use crate::factory::StoreFactory;
use crate::random::outcome_name;
use crate::scene::*;

fn account(usage: Usage, reserved: Usage) -> Account {
    Account { usage, reserved }
}

/// Goal: an upload reservation is kept as requested, with the store's additions, and reserves for
/// owner and group.
pub async fn reserve_keeps_and_reserves(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.clock.turn(9);
    let wish = Reservation { exists: true, job: Some(3), group: GroupId(2), ..reservation(guid(1), &[2, 1]) };
    scene.applied(reserve(wish.clone())).await;
    let kept = scene.store().reservation(guid(1)).await.expect("reservation").expect("there");
    let mut expected = Reservation { exists: false, created: scene.clock.now(), ..wish };
    expected.pending.reverse();
    assert_eq!(kept, expected, "whether the file is there, when, and by SE");
    let reserved = files(1, 100, 2, 200);
    assert_eq!(scene.account(UsageOf::User(UserId(1))).await, account(Usage::default(), reserved));
    assert_eq!(scene.account(UsageOf::Group(GroupId(2))).await, account(Usage::default(), reserved));
    assert_eq!(scene.account(UsageOf::Group(GroupId(1))).await, Account::default());
    assert_eq!(scene.store().reservation(guid(2)).await.expect("reservation"), None);
    // The owner's again: it replaces the one before.
    let again = Reservation { size: 7, group: GroupId(1), ..reservation(guid(1), &[3]) };
    scene.applied(reserve(again)).await;
    let reserved = files(1, 7, 1, 7);
    assert_eq!(scene.account(UsageOf::User(UserId(1))).await, account(Usage::default(), reserved));
    assert_eq!(scene.account(UsageOf::Group(GroupId(1))).await, account(Usage::default(), reserved));
    assert_eq!(scene.account(UsageOf::Group(GroupId(2))).await, Account::default());
    // For further replicas of a file only these are reserved.
    scene.file(DirId::ROOT, "f", 2, &[1]).await;
    scene.applied(reserve(Reservation { owner: UserId(2), ..reservation(guid(2), &[2, 3]) })).await;
    assert!(scene.store().reservation(guid(2)).await.expect("reservation").expect("there").exists);
    let reserved = files(0, 0, 2, 200);
    assert_eq!(scene.account(UsageOf::User(UserId(2))).await, account(Usage::default(), reserved));
}

/// Goal: each refusal of `Reserve`, in order.
pub async fn reserve_refuses(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let b = |number: u8, ses: &[u16]| reservation(guid(number), ses);
    scene.refused("Invalid", reserve(b(1, &[]))).await;
    let many: Vec<u16> = (1..=REPLICAS_PER_RESERVATION_MAX as u16 + 1).collect();
    scene.refused("Limit", reserve(b(1, &many))).await;
    scene.refused("Invalid", reserve(b(1, &[9, 9]))).await;
    scene.refused("Invalid", reserve(b(1, &[0]))).await;
    let mut part = b(1, &[9]);
    part.pending[0].location = member(1).location;
    scene.refused("Invalid", reserve(part)).await;
    scene.refused("Limit", reserve(Reservation { size: FILE_BYTES_MAX + 1, ..b(1, &[9]) })).await;
    // By another user; of an entry that is no file, or in the trash.
    scene.applied(reserve(b(1, &[1]))).await;
    scene.refused("GuidInUse", reserve(Reservation { owner: UserId(2), ..b(1, &[9]) })).await;
    scene.applied(create(new_link(top("l"), guid(2)))).await;
    scene.refused("GuidInUse", reserve(b(2, &[9]))).await;
    scene.file(DirId::ROOT, "gone", 3, &[1]).await;
    let directory = scene.directory(DirId::ROOT, "d").await;
    scene.file(directory, "below", 4, &[1]).await;
    scene.trash(top("gone")).await;
    scene.trash(top("d")).await;
    scene.refused("GuidInUse", reserve(b(3, &[9]))).await;
    scene.refused("GuidInUse", reserve(b(4, &[9]))).await;
    // Of an existing file.
    scene.file(DirId::ROOT, "f", 5, &[1]).await;
    scene.applied(edit(top("f"), Edit::Checksum(checksum(1)))).await;
    scene.applied(create(new_file(top("unknown"), guid(6), None, &[]))).await;
    scene.refused("Mismatch", reserve(Reservation { size: 99, ..b(5, &[1]) })).await;
    scene
        .refused("Mismatch", reserve(Reservation { checksums: Checksums::one(checksum(2)), ..b(5, &[1]) }))
        .await;
    scene.refused("Mismatch", reserve(b(6, &[2]))).await;
    scene.refused("ReplicaExists", reserve(b(5, &[9, 1]))).await;
    scene.applied(edit(top("f"), Edit::ReplicaState { se: SeNumber(1), state: ReplicaState::Lost })).await;
    scene.refused("ReplicaExists", reserve(b(5, &[1]))).await;
    // On storage elements that exist and are online.
    scene.applied(set(se(3, SeStatus::ReadOnly))).await;
    scene.applied(set(quota(QuotaOf::User(UserId(1)), [Some(0), None, None]))).await;
    scene.refused("NoSuchSe", reserve(b(7, &[1, 9]))).await;
    scene.refused("NoSuchSe", reserve(b(7, &[1, 3]))).await;
    scene.applied(set(se(3, SeStatus::Offline))).await;
    scene.refused("NoSuchSe", reserve(b(7, &[3]))).await;
    scene.refused("Quota", reserve(b(7, &[2]))).await;
    scene.applied(reserve(Reservation { checksums: Checksums::one(checksum(1)), ..b(5, &[2]) })).await;
    for number in 4..=REPLICAS_PER_RESERVATION_MAX as u16 + 1 {
        scene.applied(set(se(number, SeStatus::Online))).await;
    }
    let most: Vec<u16> = many.into_iter().filter(|number| *number != 3).collect();
    let other = Reservation { owner: UserId(2), size: FILE_BYTES_MAX, ..b(8, &most) };
    assert_eq!(other.pending.len(), REPLICAS_PER_RESERVATION_MAX);
    scene.applied(reserve(other)).await;
}

/// Goal: an upload reservation needs room in the quotas of owner and group, after the replaced
/// one's is given back.
pub async fn reserve_refuses_what_exceeds_a_quota(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    for of in [QuotaOf::User(UserId(1)), QuotaOf::Group(GroupId(1))] {
        let wish = |number: u8, size: u64, ses: &[u16]| {
            reserve(Reservation { size, ..reservation(guid(number), ses) })
        };
        scene.applied(set(quota(of, [Some(1), None, None]))).await;
        scene.applied(wish(1, 100, &[1])).await;
        scene.refused("Quota", wish(2, 1, &[1])).await;
        scene.applied(wish(1, 50, &[1, 2])).await;
        scene.applied(set(quota(of, [None, Some(60), None]))).await;
        scene.refused("Quota", wish(1, 61, &[1])).await;
        scene.refused("Quota", wish(2, 11, &[1])).await;
        scene.applied(wish(2, 10, &[1])).await;
        scene.applied(set(quota(of, [None, None, Some(120)]))).await;
        scene.refused("Quota", wish(3, 11, &[1])).await;
        scene.refused("Quota", wish(1, 37, &[1, 2, 3])).await;
        scene.applied(wish(1, 36, &[1, 2, 3])).await;
        // Over the limit by now: less is allowed, more is not.
        scene.applied(set(quota(of, [Some(0), Some(0), Some(0)]))).await;
        scene.applied(wish(1, 36, &[1, 2])).await;
        scene.refused("Quota", wish(1, 36, &[1, 2, 3])).await;
        scene.apply(vec![release(guid(1), None), release(guid(2), None)]).await;
        scene.applied(unset(exacat_model::RecordKey::Quota(of))).await;
    }
    // A group that is new to the upload reservation gets all of it.
    scene.applied(reserve(reservation(guid(1), &[1]))).await;
    scene.applied(set(quota(QuotaOf::Group(GroupId(2)), [None, Some(99), None]))).await;
    scene.refused("Quota", reserve(Reservation { group: GroupId(2), ..reservation(guid(1), &[1]) })).await;
}

/// Goal: a user has at most so many unfinished uploads; a replaced one does not count. A hundred
/// thousand: only in the long form of the tests.
pub async fn reserve_has_at_most_so_many_of_a_user(factory: &dyn StoreFactory) {
    if crate::rounds() == 1 {
        return;
    }
    let scene = Scene::new(factory).await;
    let wide = |number: usize| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
        Guid(bytes)
    };
    for first in (0..RESERVATIONS_PER_USER_MAX).step_by(5000) {
        let wishes = (first..(first + 5000).min(RESERVATIONS_PER_USER_MAX))
            .map(|number| reserve(reservation(wide(number), &[1])));
        let outcomes = scene.apply(wishes.collect()).await;
        assert!(outcomes.iter().all(|outcome| outcome_name(outcome) == "Applied"));
    }
    scene.refused("Limit", reserve(reservation(wide(RESERVATIONS_PER_USER_MAX), &[1]))).await;
    scene.applied(reserve(reservation(wide(0), &[2]))).await;
    let other = Reservation { owner: UserId(2), ..reservation(wide(RESERVATIONS_PER_USER_MAX), &[1]) };
    scene.applied(reserve(other)).await;
    scene.applied(release(wide(1), None)).await;
    scene.applied(reserve(reservation(wide(1), &[1]))).await;
}

/// Goal: the first commit makes the file, the others add replicas; the upload reservation ends with
/// its last.
pub async fn commit_makes_the_file_and_adds_replicas(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let directory = scene.directory(DirId::ROOT, "d").await;
    let place = at(directory, "f");
    let mut wish = reservation(guid(1), &[1, 2]);
    wish.mode = Mode::new(0o640).expect("a mode");
    wish.group = GroupId(2);
    wish.job = Some(4);
    wish.checksums = Checksums::one(checksum(1));
    wish.pending[1] = ReservedReplica { se: SeNumber(2), location: replica_at(2, "root://h/x").location };
    scene.applied(reserve(wish)).await;
    scene.clock.turn(5);
    let md5 = exacat_model::Checksum::parse("d41d8cd98f00b204e9800998ecf8427e").expect("an md5");
    let with = |se: u16, checksums| Mutation::Commit {
        guid: guid(1),
        se: SeNumber(se),
        at: place.clone(),
        size: 100,
        checksums,
    };
    let revision = scene.applied(with(2, Checksums::none())).await;
    let entry = scene.at(&place).await;
    let now = scene.clock.now();
    assert_eq!((entry.created, entry.modified, entry.revision, entry.expires), (now, now, revision, None));
    assert_eq!((entry.owner, entry.group, entry.mode.bits()), (UserId(1), GroupId(2), 0o640));
    let file = entry.file().expect("a file");
    assert_eq!((file.guid, file.size, file.job), (guid(1), Some(100), Some(4)));
    assert_eq!(file.replicas, [replica_at(2, "root://h/x")]);
    assert_eq!(file.checksums, Checksums::one(checksum(1)), "what was reserved is known");
    let left = scene.store().reservation(guid(1)).await.expect("reservation").expect("one is pending");
    assert!(left.exists && left.pending.len() == 1 && left.pending[0].se == SeNumber(1));
    let mut user = files(1, 100, 1, 100);
    user.add(&directories(1));
    assert_eq!(scene.account(UsageOf::User(UserId(1))).await, account(user, files(0, 0, 1, 100)));
    let revision = scene.applied(with(1, Checksums::one(md5))).await;
    let entry = scene.at(&place).await;
    let file = entry.file().expect("a file");
    assert_eq!(entry.revision, revision);
    assert_eq!(file.replicas, [replica(1), replica_at(2, "root://h/x")], "by SE");
    let mut both = Checksums::one(checksum(1));
    both.add(md5).expect("another algorithm");
    assert_eq!(file.checksums, both, "what is known by now is added");
    assert_eq!(scene.store().reservation(guid(1)).await.expect("reservation"), None);
    assert_eq!(
        scene.account(UsageOf::Group(GroupId(2))).await,
        account(files(1, 100, 2, 200), Usage::default())
    );
    scene.refused("NotFound", with(1, Checksums::none())).await;
}

/// Goal: a commit is not refused for a quota: it was reserved.
pub async fn commit_needs_no_room_in_a_quota(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.applied(reserve(reservation(guid(1), &[1, 2]))).await;
    scene.applied(set(quota(QuotaOf::User(UserId(1)), [Some(0), Some(0), Some(0)]))).await;
    scene.applied(commit(guid(1), 1, top("f"))).await;
    scene.applied(commit(guid(1), 2, top("f"))).await;
    assert_eq!(
        scene.account(UsageOf::User(UserId(1))).await,
        account(files(1, 100, 2, 200), Usage::default())
    );
}

/// Goal: each refusal of a commit that makes the file, in order.
pub async fn commit_refuses_to_make_a_file(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let gone = scene.directory(DirId::ROOT, "gone").await;
    let there = scene.directory(DirId::ROOT, "there").await;
    scene.trash(top("gone")).await;
    let mut deep = there;
    let mut path = Vec::new();
    for number in there.0 + 1..there.0 + DEPTH_MAX as u64 {
        path.push(create(new_directory(at(deep, "d"))));
        deep = DirId(number);
    }
    let made = scene.apply(path).await;
    assert!(made.iter().all(|outcome| outcome_name(outcome) == "Applied"));
    let with = |number: u8, se: u16, place, size, sum| Mutation::Commit {
        guid: guid(number),
        se: SeNumber(se),
        at: place,
        size,
        checksums: Checksums::one(checksum(sum)),
    };
    let wish = Reservation { checksums: Checksums::one(checksum(1)), ..reservation(guid(1), &[1]) };
    let expired = Reservation { expires: scene.clock.now(), ..reservation(guid(2), &[1]) };
    scene.applied(reserve(wish)).await;
    scene.applied(reserve(expired)).await;
    scene.refused("NotFound", with(9, 1, at(gone, "/"), 1, 2)).await;
    scene.refused("NotFound", with(1, 2, at(gone, "/"), 1, 2)).await;
    scene.refused("NotFound", with(2, 2, at(gone, "/"), 1, 2)).await;
    scene.refused("Expired", with(2, 1, at(gone, "/"), 1, 2)).await;
    scene.refused("Mismatch", with(1, 1, at(gone, "/"), 1, 1)).await;
    scene.refused("Mismatch", with(1, 1, at(gone, "/"), 100, 2)).await;
    scene.refused("Invalid", with(1, 1, at(gone, "/"), 100, 1)).await;
    scene.refused("ParentGone", with(1, 1, at(gone, "there"), 100, 1)).await;
    scene.refused("Limit", with(1, 1, at(deep, "there"), 100, 1)).await;
    scene.refused("Exists", with(1, 1, top("there"), 100, 1)).await;
    scene.clock.turn(59_999);
    scene.applied(with(1, 1, top("f"), 100, 1)).await;
}

/// Goal: each refusal of a commit to an existing file, in order.
pub async fn commit_refuses_to_add_a_replica(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.file(DirId::ROOT, "f", 1, &[]).await;
    scene.applied(reserve(reservation(guid(1), &[1, 2, 3]))).await;
    let with = |se: u16, place, sum| Mutation::Commit {
        guid: guid(1),
        se: SeNumber(se),
        at: place,
        size: 100,
        checksums: Checksums::one(checksum(sum)),
    };
    // Elsewhere, or in the trash.
    scene.refused("Stale", with(1, top("g"), 1)).await;
    let trash = scene.trash(top("f")).await;
    scene.refused("Stale", with(1, top("f"), 1)).await;
    scene.applied(restore(trash, top("f"))).await;
    // Its checksum became known, and is another.
    scene.applied(edit(top("f"), Edit::Checksum(checksum(1)))).await;
    scene.refused("Mismatch", with(1, top("f"), 2)).await;
    // It became an archive member.
    scene.applied(edit(top("f"), Edit::PutReplica(member(9)))).await;
    scene.refused("Invalid", with(1, top("f"), 1)).await;
    scene.applied(edit(top("f"), Edit::DropReplica { se: SeNumber(0), delete: false })).await;
    // The replica was registered meanwhile: at another place, or at the same and lost.
    let mut lost = replica(2);
    lost.state = ReplicaState::Lost;
    scene
        .applied(update(
            top("f"),
            vec![Edit::PutReplica(replica_at(1, "root://h/x")), Edit::PutReplica(lost)],
        ))
        .await;
    scene.refused("ReplicaExists", with(1, top("f"), 1)).await;
    scene.applied(with(2, top("f"), 1)).await;
    let entry = scene.at(&top("f")).await;
    assert_eq!(entry.file().expect("a file").replicas, [replica_at(1, "root://h/x"), replica(2)]);
    // It is full by now.
    for number in 4..=REPLICAS_PER_FILE_MAX as u16 + 1 {
        scene.applied(set(se(number, SeStatus::Online))).await;
        scene.applied(edit(top("f"), Edit::PutReplica(replica(number)))).await;
    }
    scene.refused("Limit", with(3, top("f"), 1)).await;
    scene.applied(edit(top("f"), Edit::DropReplica { se: SeNumber(4), delete: false })).await;
    scene.applied(with(3, top("f"), 1)).await;
}

/// Goal: a released reservation is given back; copies that may have been written are queued; each
/// refusal.
pub async fn release_gives_back_and_queues(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let mut wish = reservation(guid(1), &[1, 2, 3]);
    wish.pending[1].location = replica_at(2, "root://h/x").location;
    wish.expires = scene.later(50);
    scene.applied(reserve(wish)).await;
    scene.refused("NotFound", release(guid(2), None)).await;
    scene.refused("NotFound", release(guid(1), Some(9))).await;
    let only_expired = |se| Mutation::Release { guid: guid(1), se, only_expired: true };
    scene.refused("NotFound", only_expired(Some(SeNumber(9)))).await;
    scene.clock.turn(49);
    scene.refused("Stale", only_expired(None)).await;
    scene.refused("Stale", only_expired(Some(SeNumber(1)))).await;
    let one = scene.applied(release(guid(1), Some(2))).await;
    let reserved = files(1, 100, 2, 200);
    assert_eq!(scene.account(UsageOf::User(UserId(1))).await, account(Usage::default(), reserved));
    scene.clock.turn(1);
    let all = scene.applied(only_expired(None)).await;
    assert_eq!(scene.account(UsageOf::User(UserId(1))).await, Account::default());
    assert_eq!(scene.store().reservation(guid(1)).await.expect("reservation"), None);
    let derived = || replica(1).location;
    for (se, revision, index, location) in
        [(1, all, 0, derived()), (2, one, 0, replica_at(2, "root://h/x").location), (3, all, 1, derived())]
    {
        let queue = scene.store().deletions(SeNumber(se), None, 10).await.expect("deletions").items;
        let [deletion] = &queue[..] else { panic!("one deletion on {se}") };
        assert_eq!((deletion.id, deletion.guid), (DeletionId { revision, index }, guid(1)));
        assert_eq!((deletion.size, &deletion.location), (Some(100), &location));
    }
    // The release of the last one by itself ends the upload reservation too.
    scene.applied(reserve(reservation(guid(2), &[1]))).await;
    scene.applied(release(guid(2), Some(1))).await;
    assert_eq!(scene.store().reservation(guid(2)).await.expect("reservation"), None);
    // After a commit only pending replicas are released.
    scene.applied(reserve(reservation(guid(3), &[1, 2]))).await;
    scene.applied(commit(guid(3), 1, top("f"))).await;
    scene.applied(release(guid(3), None)).await;
    assert_eq!(scene.at(&top("f")).await.file().expect("a file").replicas, [replica(1)]);
    assert_eq!(scene.usage(UsageOf::Deletions(SeNumber(1))).await.replicas, 2);
    assert_eq!(scene.usage(UsageOf::Deletions(SeNumber(2))).await.replicas, 2);
}

/// Goal: done deletions are removed from the queue of their SE; each refusal.
pub async fn dequeue_takes_off_the_queue(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let mut ids = Vec::new();
    for number in 0..4 {
        let se = if number == 3 { 2 } else { 1 };
        scene.applied(reserve(reservation(guid(number), &[se]))).await;
        ids.push(DeletionId { revision: scene.applied(release(guid(number), None)).await, index: 0 });
    }
    let dequeue = |se: u16, done: Vec<DeletionId>| Mutation::Dequeue { se: SeNumber(se), done };
    let nothing = DeletionId { revision: Revision(1), index: 0 };
    scene.refused("Limit", dequeue(1, vec![nothing; EDITS_PER_UPDATE_MAX + 1])).await;
    scene.refused("NotFound", dequeue(1, vec![nothing; EDITS_PER_UPDATE_MAX])).await;
    scene.refused("NotFound", dequeue(1, vec![])).await;
    scene.refused("NotFound", dequeue(1, vec![ids[3]])).await;
    scene.refused("NotFound", dequeue(9, vec![ids[0]])).await;
    let done = vec![ids[2], nothing, ids[0], ids[2], ids[3]];
    let revision = scene.applied(dequeue(1, done.clone())).await;
    let page = scene.store().changes(Revision(revision.0 - 1), 1).await.expect("changes");
    let effect = exacat_model::Effect::Dequeued { se: SeNumber(1), done: vec![ids[2], ids[0]] };
    assert_eq!(page.changes[0].effect, effect, "those that were there, once, in the order given");
    let left = scene.store().deletions(SeNumber(1), None, 10).await.expect("deletions").items;
    assert_eq!(left.iter().map(|one| one.id).collect::<Vec<_>>(), [ids[1]]);
    assert_eq!(scene.usage(UsageOf::Deletions(SeNumber(1))).await, files(1, 100, 1, 100));
    assert_eq!(scene.usage(UsageOf::Deletions(SeNumber(2))).await, files(1, 100, 1, 100));
    scene.refused("NotFound", dequeue(1, done)).await;
}
