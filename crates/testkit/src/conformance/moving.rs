//! The rows `Move`, `Remove`, `Restore`, `RestoreBelow` and `Purge` of the table of mutations.

use exacat_model::limits::DEPTH_MAX;
use exacat_model::{
    DirId, Edit, EntryId, Expect, GroupId, Mutation, PurgeTarget, Replica, ReplicaState, Revision, SeNumber,
    TrashId, Usage, UserId,
};
use exacat_store::{Clock, Outcome, UsageOf};

use crate::factory::StoreFactory;
use crate::random::outcome_name;
use crate::scene::*;

/// Goal: an entry moves with everything below it, and counts at its new place.
pub async fn move_takes_everything_along(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    let c = scene.directory(DirId::ROOT, "c").await;
    scene.file(b, "f", 1, &[1]).await;
    scene.file(a, "g", 2, &[]).await;
    let owner = scene.usage(UsageOf::User(UserId(1))).await;
    let revision = scene.applied(rename(at(a, "b"), at(c, "x"))).await;
    let entry = scene.at(&at(c, "x")).await;
    assert_eq!((entry.id(), entry.revision), (EntryId::Directory(b), revision));
    assert!(scene.entry(&at(a, "b")).await.is_none());
    assert_eq!(scene.usage(UsageOf::Directory(a)).await, files(1, 100, 0, 0));
    let mut moved = files(1, 100, 1, 100);
    assert_eq!(scene.usage(UsageOf::Directory(b)).await, moved);
    moved.add(&directories(1));
    assert_eq!(scene.usage(UsageOf::Directory(c)).await, moved);
    assert_eq!(scene.usage(UsageOf::User(UserId(1))).await, owner, "whose it is does not change");
    // Renamed in place; up; into the directory beside it.
    scene.applied(rename(at(c, "x"), at(c, "y"))).await;
    scene.applied(rename(at(c, "y"), top("z"))).await;
    assert_eq!(scene.usage(UsageOf::Directory(c)).await, Usage::default());
    scene.applied(rename(top("c"), at(b, "c"))).await;
    scene.applied(rename(at(b, "f"), at(c, "f"))).await;
    let found = scene.store().locate(&[object(1)]).await.expect("locate").remove(0).expect("f");
    assert_eq!(found.place, exacat_store::EntryLocation::Tree(lfn("/z/c/f")));
}

/// Goal: each refusal of `Move`. (In order: `a9_the_first_refusal_of_a_row_is_given`.)
pub async fn move_refuses(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    let gone = scene.directory(DirId::ROOT, "gone").await;
    let revision = scene.file(b, "f", 1, &[]).await;
    scene.file(gone, "g", 2, &[]).await;
    scene.trash(top("gone")).await;
    let expecting = |expect| Mutation::Move { from: at(b, "f"), expect, to: top("f") };
    scene.refused("ParentGone", rename(at(gone, "g"), top("g"))).await;
    scene.refused("ParentGone", rename(at(DirId(99), "g"), top("g"))).await;
    scene.refused("NotFound", rename(at(b, "g"), top("g"))).await;
    scene.refused("Stale", expecting(Expect::entry(object(2)))).await;
    scene.refused("Stale", expecting(Expect::version(Revision(revision.0 + 1)))).await;
    scene.unchanged(rename(at(b, "f"), at(b, "f"))).await;
    scene.unchanged(rename(top("/"), top("/"))).await;
    scene.refused("Invalid", rename(at(b, "f"), at(b, "/"))).await;
    scene.refused("ParentGone", rename(at(b, "f"), at(gone, "f"))).await;
    scene.refused("ParentGone", rename(at(b, "f"), at(DirId(99), "f"))).await;
    for below in [at(a, "x"), at(b, "x")] {
        scene.refused("Loop", rename(top("a"), below)).await;
    }
    scene.refused("Loop", rename(top("/"), at(b, "x"))).await;
    scene.refused("Loop", rename(top("/"), top("x"))).await;
    scene.refused("Exists", rename(at(b, "f"), top("a"))).await;
    scene.refused("Exists", rename(at(a, "b"), top("a"))).await;
    scene.applied(expecting(Expect { id: Some(object(1)), revision: Some(revision) })).await;
}

/// Goal: a name that a move left is free, also within one request; two entries can be swapped.
pub async fn move_frees_the_name(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.file(DirId::ROOT, "a", 1, &[]).await;
    scene.file(DirId::ROOT, "b", 2, &[]).await;
    let swap = vec![rename(top("a"), top("x")), rename(top("b"), top("a")), rename(top("x"), top("b"))];
    let outcomes = scene.apply(swap).await;
    assert!(outcomes.iter().all(|outcome| outcome_name(outcome) == "Applied"));
    assert_eq!((scene.at(&top("a")).await.id(), scene.at(&top("b")).await.id()), (object(2), object(1)));
    assert!(scene.entry(&top("x")).await.is_none());
}

/// Goal: paths have at most `DEPTH_MAX` names. Entries below a moved or restored one are not
/// checked.
pub async fn move_and_restore_keep_to_the_depth(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    // Directories 2, 3, … one below the other, one less than the depth allows.
    let mut parent = DirId::ROOT;
    let mut path = Vec::new();
    for number in 2..2 + DEPTH_MAX as u64 - 1 {
        path.push(create(new_directory(at(parent, "d"))));
        parent = DirId(number);
    }
    let outcomes = scene.apply(path).await;
    assert!(outcomes.iter().all(|outcome| outcome_name(outcome) == "Applied"));
    let deepest = scene.directory(parent, "last").await;
    scene.refused("Limit", create(new_directory(at(deepest, "x")))).await;
    scene.file(DirId::ROOT, "f", 1, &[]).await;
    scene.refused("Limit", rename(top("f"), at(deepest, "f"))).await;
    let trash = scene.trash(top("f")).await;
    scene.refused("Limit", restore(trash, at(deepest, "f"))).await;
    scene.applied(restore(trash, at(parent, "f"))).await;
    let other = scene.directory(DirId::ROOT, "other").await;
    let below = scene.directory(other, "below").await;
    scene.file(below, "f", 2, &[]).await;
    scene.applied(rename(top("other"), at(parent, "other"))).await;
    scene.refused("Limit", create(new_directory(at(below, "x")))).await;
    assert_eq!(scene.at(&at(below, "f")).await.id(), object(2), "it is listed, deep as it is");
    assert!(scene.store().locate(&[object(2)]).await.expect("locate")[0].is_some());
    scene.applied(rename(at(below, "f"), top("f"))).await;
}

/// Goal: a removed entry is an item of the trash with everything below it. It counts for owner,
/// group and SE, not for the directories above.
pub async fn remove_moves_to_the_trash(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    scene.file(b, "f", 1, &[1]).await;
    let of = [
        UsageOf::User(UserId(1)),
        UsageOf::Group(GroupId(1)),
        UsageOf::Se(SeNumber(1)),
        UsageOf::Directory(b),
    ];
    let before = scene.store().usage(&of).await.expect("usage");
    scene.clock.turn(7);
    let mut request = scene.request(vec![remove(at(a, "b"))]);
    request.who = UserId(2);
    let outcomes = scene.store().apply(request).await.expect("answered");
    let Outcome::Applied { revision, id } = outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(id, Some(EntryId::Directory(b)));
    let item = scene.store().trash_item(TrashId(revision)).await.expect("trash item").expect("there");
    assert_eq!((item.id.0, &item.lfn, item.removed_by), (revision, &lfn("/as/it/was"), UserId(2)));
    assert_eq!((item.removed, item.entry.revision), (scene.clock.now(), revision));
    assert_eq!((&item.entry.at, item.entry.directory()), (&at(a, "b"), Some(b)));
    let mut counts = files(1, 100, 1, 100);
    counts.add(&directories(1));
    assert_eq!(item.usage, counts, "with itself and all that is below it");
    assert_eq!(scene.store().usage(&of).await.expect("usage"), before, "still counted for these");
    assert_eq!(scene.usage(UsageOf::Directory(a)).await, Usage::default());
    assert_eq!(scene.usage(UsageOf::Directory(DirId::ROOT)).await, directories(1));
    assert!(scene.entry(&at(a, "b")).await.is_none());
    assert_eq!(scene.at(&at(b, "f")).await.id(), object(1));
    // Its former parent can be removed too, before or after.
    scene.trash(top("a")).await;
    assert_eq!(scene.store().trash(None, 10).await.expect("trash").items.len(), 2);
}

/// Goal: each refusal of `Remove`, in order.
pub async fn remove_refuses(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    scene.file(a, "f", 1, &[]).await;
    let with = |at, expect, only_empty| Mutation::Remove { at, expect, only_empty, lfn: lfn("/x") };
    let other = Expect::entry(object(9));
    scene.refused("ParentGone", with(at(DirId(99), "x"), other, true)).await;
    scene.refused("NotFound", with(top("x"), other, true)).await;
    scene.refused("Stale", with(top("/"), other, true)).await;
    scene.refused("Stale", with(at(a, "f"), other, true)).await;
    scene.refused("Invalid", with(top("/"), Expect::ANY, true)).await;
    scene.refused("Invalid", with(top("/"), Expect::ANY, false)).await;
    scene.refused("WrongKind", with(at(a, "f"), Expect::ANY, true)).await;
    scene.refused("NotEmpty", with(top("a"), Expect::ANY, true)).await;
    scene.trash(at(a, "f")).await;
    scene.applied(remove_empty(top("a"))).await;
    scene.refused("ParentGone", with(at(a, "f"), Expect::ANY, false)).await;
}

/// Goal: a restored item is back with everything below it, at its new place, and counts there.
pub async fn restore_brings_everything_back(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    let c = scene.directory(DirId::ROOT, "c").await;
    scene.file(b, "f", 1, &[1]).await;
    scene.applied(edit(at(b, "f"), Edit::SetTag(tag("run", 1)))).await;
    let file = scene.at(&at(b, "f")).await;
    let trash = scene.trash(at(a, "b")).await;
    // A part of it is removed, from a directory in the trash: that is not alive.
    scene.refused("ParentGone", remove(at(b, "f"))).await;
    let revision = scene.applied(restore(trash, at(c, "x"))).await;
    let entry = scene.at(&at(c, "x")).await;
    assert_eq!((entry.id(), entry.revision), (EntryId::Directory(b), revision));
    assert_eq!(scene.at(&at(b, "f")).await, file, "what is below is as it was");
    let mut counts = files(1, 100, 1, 100);
    assert_eq!(scene.usage(UsageOf::Directory(b)).await, counts);
    counts.add(&directories(1));
    assert_eq!(scene.usage(UsageOf::Directory(c)).await, counts);
    assert_eq!(scene.usage(UsageOf::Directory(a)).await, Usage::default());
    assert_eq!(scene.store().trash_item(trash).await.expect("trash item"), None);
    scene.refused("NotFound", restore(trash, at(c, "y"))).await;
}

/// Goal: each refusal of `Restore`, in order.
pub async fn restore_refuses(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    scene.file(DirId::ROOT, "f", 1, &[]).await;
    let file = scene.trash(top("f")).await;
    let trash = scene.trash(top("a")).await;
    scene.file(DirId::ROOT, "g", 2, &[]).await;
    scene.refused("NotFound", restore(TrashId(Revision(1)), at(DirId(99), "/"))).await;
    scene.refused("Invalid", restore(trash, at(DirId(99), "/"))).await;
    scene.refused("ParentGone", restore(trash, at(DirId(99), "g"))).await;
    scene.refused("ParentGone", restore(file, at(b, "f"))).await;
    // Not into itself either: it is not alive.
    scene.refused("ParentGone", restore(trash, at(a, "a"))).await;
    scene.refused("Exists", restore(trash, top("g"))).await;
    scene.applied(restore(trash, top("f"))).await;
    scene.refused("Exists", restore(file, top("f"))).await;
    scene.applied(restore(file, at(b, "f"))).await;
}

/// Goal: a part of an item comes back with everything below it, and counts at its new place. The
/// rest of the item stays, and counts what is left.
pub async fn restore_below_takes_a_part_out_of_an_item(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    let c = scene.directory(DirId::ROOT, "c").await;
    let expires = Edit::Expires(Some(scene.clock.now().plus_ms(1000)));
    scene.file(b, "f", 1, &[1]).await;
    scene.file(b, "g", 2, &[2]).await;
    scene.file(a, "h", 3, &[1]).await;
    scene.applied(edit(at(b, "f"), expires)).await;
    scene.applied(edit(at(b, "g"), Edit::SetTag(tag("run", 1)))).await;
    let below = scene.at(&at(b, "g")).await;
    let of = [UsageOf::User(UserId(1)), UsageOf::Group(GroupId(1)), UsageOf::Se(SeNumber(1))];
    let before = scene.store().usage(&of).await.expect("usage");
    let trash = scene.trash(top("a")).await;

    let revision = scene.applied(restore_below(at(a, "b"), at(c, "x"))).await;
    let entry = scene.at(&at(c, "x")).await;
    assert_eq!((entry.id(), entry.revision), (EntryId::Directory(b), revision));
    assert_eq!(scene.at(&at(b, "g")).await, below, "what is below is as it was");
    assert!(scene.entry(&at(a, "b")).await.is_none());
    let mut counts = files(2, 200, 2, 200);
    counts.add(&directories(1));
    assert_eq!(scene.usage(UsageOf::Directory(c)).await, counts);
    let mut left = files(1, 100, 1, 100);
    assert_eq!(scene.usage(UsageOf::Directory(a)).await, left);
    left.add(&directories(1));
    let item = scene.store().trash_item(trash).await.expect("trash item").expect("there");
    assert_eq!(item.usage, left, "the item counts what is left of it");
    assert_eq!(scene.store().usage(&of).await.expect("usage"), before, "still counted for these");
    let found = scene.store().locate(&[object(1)]).await.expect("locate").remove(0).expect("f");
    assert_eq!(found.place, exacat_store::EntryLocation::Tree(lfn("/c/x/f")));
    // It is due again; and a file alone comes back.
    scene.clock.turn(2000);
    let due = scene.store().due(scene.clock.now(), 10).await.expect("due");
    assert_eq!(due.entries.iter().map(exacat_model::Entry::id).collect::<Vec<_>>(), [object(1)]);
    scene.applied(restore_below(at(a, "h"), top("h"))).await;
    assert_eq!(scene.usage(UsageOf::Directory(DirId::ROOT)).await.files, 3);
    // The rest is restored, or purged, as any item.
    scene.applied(restore(trash, top("a"))).await;
    assert_eq!(scene.usage(UsageOf::Directory(a)).await, Usage::default());
}

/// Goal: each refusal of `RestoreBelow`, in order.
pub async fn restore_below_refuses(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    let revision = scene.file(b, "f", 1, &[]).await;
    let alive = scene.directory(DirId::ROOT, "alive").await;
    scene.file(alive, "g", 2, &[]).await;
    let to = |name| Mutation::RestoreBelow { from: at(b, "f"), expect: Expect::entry(object(9)), to: name };
    scene.refused("ParentGone", restore_below(at(b, "f"), top("f"))).await;
    scene.trash(top("a")).await;
    scene.refused("ParentGone", restore_below(at(alive, "g"), top("g"))).await;
    scene.refused("ParentGone", restore_below(at(DirId(99), "g"), top("/"))).await;
    scene.refused("NotFound", restore_below(at(b, "x"), top("/"))).await;
    scene.refused("Stale", to(top("/"))).await;
    scene.refused("Invalid", restore_below(at(b, "f"), at(DirId(99), "/"))).await;
    scene.refused("ParentGone", restore_below(at(b, "f"), at(DirId(99), "g"))).await;
    // Nothing comes into a directory in the trash, itself included.
    scene.refused("ParentGone", restore_below(at(b, "f"), at(a, "f"))).await;
    scene.refused("ParentGone", restore_below(at(a, "b"), at(b, "b"))).await;
    scene.refused("Exists", restore_below(at(b, "f"), at(alive, "g"))).await;
    let expect = Expect { id: Some(object(1)), revision: Some(revision) };
    let mutation = Mutation::RestoreBelow { from: at(b, "f"), expect, to: at(alive, "f") };
    scene.applied(mutation.clone()).await;
    scene.refused("NotFound", mutation).await;
}

/// Goal: a purged entry is gone from everything, and its copies that take space are queued.
pub async fn purge_ends_for_good(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    let lost = Replica { state: ReplicaState::Lost, ..replica(1) };
    let replicas = vec![lost, replica_at(2, "root://h/x"), replica(3)];
    scene.applied(create(new_file_with(at(b, "f"), guid(1), replicas))).await;
    scene.applied(create(new_file_with(at(a, "m"), guid(2), vec![member(1)]))).await;
    let trash = scene.trash(top("a")).await;
    scene.refused("NotEmpty", purge(trash)).await;
    scene.refused("NotEmpty", purge_below(at(a, "b"))).await;
    scene.clock.turn(3);
    let revision = scene.applied(purge_below(at(b, "f"))).await;
    let queue = |se: u16| {
        let store = scene.store();
        async move { store.deletions(SeNumber(se), None, 10).await.expect("deletions").items }
    };
    assert!(queue(1).await.is_empty());
    for (se, index, location) in [(2, 0, replica_at(2, "root://h/x").location), (3, 1, replica(3).location)] {
        let [deletion] = &queue(se).await[..] else { panic!("one deletion on {se}") };
        assert_eq!((deletion.id.revision, deletion.id.index, deletion.guid), (revision, index, guid(1)));
        assert_eq!((deletion.size, &deletion.location), (Some(100), &location));
        assert_eq!(deletion.queued, scene.clock.now());
        assert_eq!(scene.usage(UsageOf::Deletions(SeNumber(se))).await, files(1, 100, 1, 100));
        assert_eq!(scene.usage(UsageOf::Se(SeNumber(se))).await, Usage::default());
    }
    let mut left = directories(1);
    (left.members, left.member_bytes) = (1, 100);
    assert_eq!(scene.usage(UsageOf::Directory(a)).await, left);
    left.add(&directories(1));
    let item = scene.store().trash_item(trash).await.expect("trash item").expect("there");
    assert_eq!(item.usage, left, "the item counts what is left of it");
    assert_eq!(scene.usage(UsageOf::User(UserId(1))).await, left);
    assert_eq!(scene.store().locate(&[object(1)]).await.expect("locate"), [None]);
    // An archive member has no copy of its own.
    scene.applied(purge_below(at(a, "m"))).await;
    assert_eq!(queue(2).await.len() + queue(3).await.len(), 2);
    scene.applied(purge_below(at(a, "b"))).await;
    scene.applied(purge(trash)).await;
    assert_eq!(scene.usage(UsageOf::User(UserId(1))).await, Usage::default());
    assert!(scene.store().trash(None, 10).await.expect("trash").items.is_empty());
    assert_eq!(scene.store().list(a, None, 10).await.expect("list"), None);
    scene.refused("NotFound", restore(trash, top("a"))).await;
}

/// Goal: each refusal of `Purge`, in order: only entries in the trash can be purged.
pub async fn purge_refuses(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(DirId::ROOT, "b").await;
    let revision = scene.file(b, "f", 1, &[1]).await;
    let below = |at, expect| Mutation::Purge(PurgeTarget::Below { at, expect });
    scene.refused("NotFound", purge(TrashId(Revision(1)))).await;
    for alive in [at(b, "f"), at(b, "x"), at(DirId(99), "f"), top("a"), top("/")] {
        scene.refused("ParentGone", below(alive, Expect::entry(object(9)))).await;
    }
    scene.trash(top("b")).await;
    scene.refused("NotFound", below(at(b, "x"), Expect::entry(object(9)))).await;
    scene.refused("Stale", below(at(b, "f"), Expect::entry(object(9)))).await;
    scene.refused("Stale", below(at(b, "f"), Expect::version(Revision(revision.0 + 1)))).await;
    scene.applied(below(at(b, "f"), Expect { id: Some(object(1)), revision: Some(revision) })).await;
    scene.trash(top("a")).await;
    scene.refused("NotFound", below(at(a, "x"), Expect::ANY)).await;
}
