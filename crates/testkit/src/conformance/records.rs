//! The rows `SetRecord` and `DropRecord` of the table of mutations.

use exacat_model::limits::GROUPS_PER_USER_MAX;
use exacat_model::{
    DirId, Edit, ExpectRecord, GroupId, Lfn, Mutation, QuotaOf, Record, RecordKey, ReplicaState, Revision,
    SeNumber, SeStatus, TimeMs, Token, TokenId, UserId,
};

use crate::factory::StoreFactory;
use crate::scene::*;

fn token(id: u64, user: u32) -> Record {
    Record::Token(Token {
        id: TokenId(id),
        hash: [7; 32],
        user: UserId(user),
        issued: TimeMs(1),
        expires: TimeMs(2),
        scope: Lfn::root(),
        write: false,
        note: "a test".to_owned(),
    })
}

fn with_groups(mut record: Record, group: u32, groups: Vec<GroupId>) -> Record {
    if let Record::User(user) = &mut record {
        (user.group, user.groups) = (GroupId(group), groups);
    }
    record
}

/// Goal: a record of each kind is set, read back, changed; the same again changes nothing.
pub async fn set_record_sets_records_of_all_kinds(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let records = [
        group(5, "five"),
        with_groups(user(5, "five"), 5, vec![GroupId(1), GroupId(2)]),
        se(5, SeStatus::Online),
        quota(QuotaOf::User(UserId(5)), [Some(1), None, Some(2)]),
        quota(QuotaOf::Group(GroupId(5)), [None, None, None]),
        token(5, 5),
    ];
    for record in records {
        let revision = scene.applied(set(record.clone())).await;
        let kept = scene.store().record(record.key()).await.expect("record");
        assert_eq!(kept, Some((record.clone(), revision)));
        scene.unchanged(set(record)).await;
    }
    let changed = se(5, SeStatus::Offline);
    let revision = scene.applied(set(changed.clone())).await;
    let kept = scene.store().record(RecordKey::Se(SeNumber(5))).await.expect("record");
    assert_eq!(kept, Some((changed, revision)));
    assert_eq!(scene.store().record(RecordKey::Se(SeNumber(6))).await.expect("record"), None);
}

/// Goal: each refusal of `SetRecord`, in order.
pub async fn set_record_refuses(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let with = |record, expect| Mutation::SetRecord { record: Box::new(record), expect };
    let stale = ExpectRecord::Version(Revision(1_000_000));
    // Not well-formed.
    let mut bad = se(5, SeStatus::Online);
    let Record::Se(storage) = &mut bad else { panic!("an SE") };
    storage.prefix = "root://host/".to_owned();
    scene.refused("Invalid", with(bad, stale)).await;
    scene.refused("Invalid", with(se(0, SeStatus::Online), stale)).await;
    let groups = |count: usize| with_groups(user(1, "user1"), 1, vec![GroupId(2); count]);
    scene.refused("Limit", with(groups(GROUPS_PER_USER_MAX + 1), stale)).await;
    // Not as expected.
    let (record, revision) =
        scene.store().record(RecordKey::Group(GroupId(1))).await.expect("record").expect("there");
    let taken = group(1, "group2");
    scene.refused("Stale", with(taken.clone(), ExpectRecord::Absent)).await;
    scene.refused("Stale", with(taken.clone(), ExpectRecord::Version(Revision(revision.0 - 1)))).await;
    scene.refused("Stale", with(group(9, "nine"), ExpectRecord::Version(revision))).await;
    scene.refused("Stale", with(record.clone(), ExpectRecord::Absent)).await;
    // The name is another's, of the same kind.
    scene.refused("InUse", with(taken, ExpectRecord::Version(revision))).await;
    scene.refused("InUse", with(group(9, "admin"), ExpectRecord::Any)).await;
    scene.refused("InUse", with(with_groups(user(9, "user1"), 99, vec![]), ExpectRecord::Any)).await;
    let mut twin = se(9, SeStatus::Online);
    let Record::Se(storage) = &mut twin else { panic!("an SE") };
    storage.name = exacat_model::SeName::parse("DEMO::Site1::SE").expect("a name");
    scene.refused("InUse", with(twin, ExpectRecord::Any)).await;
    // It refers to a missing record.
    let any = ExpectRecord::Any;
    scene.refused("NotFound", with(with_groups(user(9, "nine"), 99, vec![]), any)).await;
    scene.refused("NotFound", with(with_groups(user(9, "nine"), 1, vec![GroupId(99)]), any)).await;
    scene.refused("NotFound", with(token(1, 99), any)).await;
    scene.refused("NotFound", with(quota(QuotaOf::User(UserId(99)), [None; 3]), any)).await;
    scene.refused("NotFound", with(quota(QuotaOf::Group(GroupId(99)), [None; 3]), any)).await;
    // As expected: done; the same name for another kind is free; a name given up is free.
    scene.unchanged(with(record, ExpectRecord::Version(revision))).await;
    scene.applied(with(groups(GROUPS_PER_USER_MAX), any)).await;
    let changed = scene.applied(with(group(1, "user1"), ExpectRecord::Version(revision))).await;
    assert!(changed > revision);
    scene.applied(with(group(9, "group1"), ExpectRecord::Absent)).await;
}

/// Goal: each refusal of `DropRecord`, in order; unused records can be dropped.
pub async fn drop_record_refuses_what_is_used(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let (user1, group1) = (RecordKey::User(UserId(1)), RecordKey::Group(GroupId(1)));
    let se1 = RecordKey::Se(SeNumber(1));
    let expecting = |key, expect| Mutation::DropRecord { key, expect };
    let stale = ExpectRecord::Version(Revision(0));
    scene.refused("NotFound", expecting(RecordKey::Se(SeNumber(9)), stale)).await;
    scene.refused("Stale", expecting(user1, stale)).await;
    scene.refused("Stale", expecting(user1, ExpectRecord::Absent)).await;
    scene.refused("InUse", unset(RecordKey::User(UserId::ADMIN))).await;
    scene.refused("InUse", unset(RecordKey::Group(GroupId::ADMIN))).await;
    // A user and a group: entries in the tree and the trash, directories too; upload reservations;
    // a group: users.
    scene.applied(edit(top("/"), Edit::Owner(UserId(1)))).await;
    scene.refused("InUse", unset(user1)).await;
    scene.applied(edit(top("/"), Edit::Owner(UserId(0)))).await;
    scene.file(DirId::ROOT, "f", 1, &[]).await;
    scene.refused("InUse", unset(user1)).await;
    let item = scene.trash(top("f")).await;
    scene.refused("InUse", unset(user1)).await;
    scene.refused("InUse", unset(group1)).await;
    scene.applied(purge(item)).await;
    scene.applied(reserve(reservation(guid(1), &[1]))).await;
    scene.refused("InUse", unset(user1)).await;
    // A storage element: upload reservations, deletions, replicas of any state.
    scene.refused("InUse", unset(se1)).await;
    scene.applied(commit(guid(1), 1, top("f"))).await;
    scene.refused("InUse", unset(se1)).await;
    let lost = Edit::ReplicaState { se: SeNumber(1), state: ReplicaState::Lost };
    scene.applied(edit(top("f"), lost)).await;
    scene.refused("InUse", unset(se1)).await;
    let item = scene.trash(top("f")).await;
    scene.refused("InUse", unset(se1)).await;
    scene.applied(purge(item)).await;
    scene.applied(reserve(reservation(guid(1), &[1]))).await;
    let revision = scene.applied(release(guid(1), None)).await;
    scene.refused("InUse", unset(se1)).await;
    let done = vec![exacat_model::DeletionId { revision, index: 0 }];
    scene.applied(Mutation::Dequeue { se: SeNumber(1), done }).await;
    let (_, version) = scene.store().record(se1).await.expect("record").expect("there");
    scene.applied(expecting(se1, ExpectRecord::Version(version))).await;
    scene.refused("NoSuchSe", create(new_file(top("f"), guid(1), None, &[1]))).await;
    // The group has its user, as its own or as a further one.
    scene.refused("InUse", unset(group1)).await;
    scene.applied(set(with_groups(user(1, "user1"), 2, vec![GroupId(1)]))).await;
    scene.refused("InUse", unset(group1)).await;
    scene.applied(unset(user1)).await;
    scene.applied(unset(group1)).await;
    scene.refused("NotFound", unset(group1)).await;
}

/// Goal: a user is dropped with its tokens and its quota, a group with its quota; nothing else's
/// is.
pub async fn drop_record_takes_along_what_belongs_to_it(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.applied(set(token(1, 1))).await;
    scene.applied(set(token(2, 1))).await;
    scene.applied(set(token(3, 2))).await;
    let quotas = [
        QuotaOf::User(UserId(1)),
        QuotaOf::User(UserId(2)),
        QuotaOf::Group(GroupId(1)),
        QuotaOf::Group(GroupId(2)),
    ];
    for of in quotas {
        scene.applied(set(quota(of, [Some(1), None, None]))).await;
    }
    let before = scene.revision().await;
    scene.applied(unset(RecordKey::User(UserId(1)))).await;
    scene.applied(unset(RecordKey::Group(GroupId(1)))).await;
    assert_eq!(scene.revision().await.0, before.0 + 2, "one change each");
    let keys = [RecordKey::Token(TokenId(1)), RecordKey::Token(TokenId(2)), RecordKey::Token(TokenId(3))];
    let keys = keys.into_iter().chain(quotas.map(RecordKey::Quota));
    let mut left = Vec::new();
    for key in keys {
        left.push(scene.store().record(key).await.expect("record").is_some());
    }
    assert_eq!(left, [false, false, true, false, true, false, true]);
    scene.applied(unset(RecordKey::Token(TokenId(3)))).await;
    scene.applied(unset(RecordKey::Quota(QuotaOf::User(UserId(2))))).await;
}
