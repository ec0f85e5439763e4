//! Clauses H1 to H7, and N1: the history, and a new store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exacat_model::{
    At, Body, Change, DirId, Edit, Effect, Entry, EntryId, FieldChange, GroupId, Lfn, Location, Mode, Name,
    Previous, Record, RecordKey, RecordKind, Revision, Role, SeNumber, TimeMs, Usage, UserId,
};
use exacat_store::{Clock, Outcome, ResolutionEnd, Trace, TrailEnd, UsageOf};

use crate::dump::Dump;
use crate::factory::{StoreFactory, all_changes};
use crate::memory::MemoryStore;
use crate::random::{Generator, View};
use crate::scene::*;

/// Goal: every applied mutation has one change, with time, user, request and effect; nothing else
/// has one.
pub async fn h1_every_applied_mutation_has_one_change(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let store = scene.store();
    let before = scene.revision().await;
    let mut request = scene.request(vec![
        create(new_directory(top("a"))),
        create(new_directory(top("a"))),
        edit(top("a"), Edit::Mode(Mode::DIRECTORY)),
        update(top("a"), vec![Edit::Mode(Mode::FILE), Edit::Owner(UserId(2)), Edit::Owner(UserId(2))]),
    ]);
    request.who = UserId(2);
    scene.clock.turn(5);
    store.apply(request.clone()).await.expect("answered");
    let changes = store.changes(before, 100).await.expect("changes").changes;
    let about: Vec<_> = changes
        .iter()
        .map(|change| (change.revision.0, change.time, change.who, change.operation, change.index))
        .collect();
    let (time, operation) = (scene.clock.now(), request.operation);
    let first = before.0 + 1;
    assert_eq!(about, [(first, time, UserId(2), operation, 0), (first + 1, time, UserId(2), operation, 3)]);
    let entry = scene.at(&top("a")).await;
    let made = Entry { owner: UserId(1), mode: Mode::DIRECTORY, revision: Revision(first), ..entry.clone() };
    assert_eq!(changes[0].effect, Effect::Created { entry: Box::new(made) });
    let fields = vec![
        FieldChange::Mode { before: Mode::DIRECTORY, after: Mode::FILE },
        FieldChange::Owner { before: UserId(1), after: UserId(2) },
    ];
    assert_eq!(
        changes[1].effect,
        Effect::Updated { at: top("a"), id: entry.id(), fields, previous: Some(Revision(first)) }
    );
    assert_eq!(entry.revision, Revision(first + 1));
}

/// Goal: whatever the page size, changes come in order, without gap or repeat; beyond the end there is none.
pub async fn h2_changes_are_read_in_order_whatever_the_pages(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    for number in 0..23 {
        scene.directory(DirId::ROOT, &format!("d{number}")).await;
    }
    let store = scene.store();
    let last = scene.revision().await;
    for limit in [1, 2, 7, last.0 as usize, 1000] {
        let (mut seen, mut after) = (Vec::new(), Revision(0));
        loop {
            let page = store.changes(after, limit).await.expect("changes");
            assert!(page.changes.len() <= limit);
            assert_eq!(page.oldest, Revision(1), "nothing was forgotten");
            assert!(page.up_to <= last, "never beyond the last");
            if page.changes.is_empty() {
                break;
            }
            assert!(page.up_to > after, "a cursor goes on");
            after = page.up_to;
            seen.extend(page.changes.iter().map(|change| change.revision.0));
        }
        assert_eq!(seen, (1..=last.0).collect::<Vec<_>>(), "pages of {limit}");
        assert_eq!(after, last);
    }
    for beyond in [last, Revision(last.0 + 1), Revision(u64::MAX)] {
        let page = store.changes(beyond, 10).await.expect("changes");
        assert!(page.changes.is_empty() && page.up_to <= last);
    }
}

/// Goal: `changed` returns at once where there is a change, and once there is one where not.
pub async fn h2_changed_returns_once_there_is_a_change(factory: &dyn StoreFactory) {
    let scene = Arc::new(Scene::new(factory).await);
    let store = scene.store();
    let last = scene.revision().await;
    store.changed(Revision(0)).await.expect("there are changes");
    for turn in 0..20 {
        let after = Revision(last.0 + turn);
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let store = scene.store();
                tokio::spawn(async move {
                    // It may return early: then wait again.
                    while store.revision().await.expect("revision") <= after {
                        store.changed(after).await.expect("changed");
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        scene.directory(DirId::ROOT, &format!("d{turn}")).await;
        for task in waiting {
            let bounded = tokio::time::timeout(std::time::Duration::from_secs(20), task);
            bounded.await.expect("a change is told of").expect("the task");
        }
    }
    let waits = {
        let store = scene.store();
        tokio::spawn(async move { store.changed(Revision(u64::MAX)).await })
    };
    tokio::task::yield_now().await;
    store.close().await.expect("close");
    let bounded = tokio::time::timeout(std::time::Duration::from_secs(20), waits);
    bounded
        .await
        .expect("who waits is told that the store is closed")
        .expect("the task")
        .expect_err("closed");
}

/// Goal: the changes, applied to an empty store, give the state. Method: random mutations; the
/// reference is replayed from the changes and everything is compared.
pub async fn h3_the_changes_give_the_state(factory: &dyn StoreFactory) {
    for seed in 100..100 + 3 * crate::rounds() {
        let scene = Scene::new(factory).await;
        let store = scene.store();
        let mut generator = Generator::new(seed);
        for _ in 0..200 {
            scene.clock.turn(100);
            let view = View::of(&*store).await;
            let request = generator.request(&view, scene.clock.now());
            store.apply(request).await.expect("answered");
        }
        let changes = all_changes(&*store).await;
        let replayed = MemoryStore::replay(changes, scene.clock.shared()).expect("they are a history");
        let now = scene.clock.now();
        let (ours, theirs) = (Dump::of(&*store, now).await, Dump::of(&replayed, now).await);
        let difference = ours.difference("state  ", &theirs, "changes");
        assert!(difference.is_none(), "seed {seed}\n{}", difference.expect("some"));
    }
}

/// Goal: a clock that goes back does no harm: times of changes never go back, and expired entries
/// stay expired.
pub async fn h4_times_never_go_back(factory: &dyn StoreFactory) {
    let mut scene = Scene::new(factory).await;
    let start = scene.clock.now();
    let mut times = Vec::new();
    for (turn, ms) in [0, 100, -5000, 50, 5000, -1].into_iter().enumerate() {
        scene.clock.turn(ms);
        scene.directory(DirId::ROOT, &format!("d{turn}")).await;
        times.push(scene.at(&top(&format!("d{turn}"))).await.created.0 - start.0);
    }
    assert_eq!(times, [0, 100, 100, 100, 150, 150]);
    scene.reopen(crate::StoreEnd::Drop).await;
    scene.clock.set(TimeMs(1));
    scene.directory(DirId::ROOT, "last").await;
    assert_eq!(scene.at(&top("last")).await.modified.0 - start.0, 150, "also when it is opened again");
    // An upload reservation that has expired by the last change's time has expired.
    let mut reserved = reservation(guid(1), &[1]);
    reserved.expires = start.plus_ms(150);
    scene.applied(reserve(reserved)).await;
    scene.refused("Expired", commit(guid(1), 1, top("f"))).await;
    let changes = all_changes(&*scene.store()).await;
    assert!(changes.is_sorted_by_key(|change| change.time));
}

/// Goal: as long as nothing is lost, a revision is of one timeline, also when the store is opened
/// again.
pub async fn h5_timeline_of_a_revision_stays_the_same(factory: &dyn StoreFactory) {
    let mut scene = Scene::new(factory).await;
    let timelines = scene.store().timelines();
    let revision = scene.revision().await;
    let named = timelines.name(revision);
    for end in [crate::StoreEnd::Close, crate::StoreEnd::Drop] {
        scene.directory(DirId::ROOT, &format!("{end:?}")).await;
        scene.reopen(end).await;
        assert_eq!(scene.store().timelines(), timelines, "{end:?}");
    }
    assert_eq!(scene.store().timelines().resolve("it", named), Ok(revision));
}

/// Goal: the changes of each existing entry, newest first, whatever the page size. Method: random
/// mutations; the trail is compared with all changes of the entry.
pub async fn h6_a_trail_has_the_changes_of_one_entry(factory: &dyn StoreFactory) {
    for seed in 500..500 + crate::rounds() {
        let scene = Scene::new(factory).await;
        let store = scene.store();
        let mut generator = Generator::new(seed);
        for _ in 0..200 {
            scene.clock.turn(100);
            let view = View::of(&*store).await;
            store.apply(generator.request(&view, scene.clock.now())).await.expect("answered");
        }
        let changes = all_changes(&*store).await;
        let ids: BTreeSet<EntryId> = changes.iter().filter_map(|one| one.effect.changed_entry()).collect();
        for id in ids {
            let own: Vec<&Change> =
                changes.iter().filter(|one| one.effect.changed_entry() == Some(id)).collect();
            for (number, last) in own.iter().enumerate() {
                let begins = own[..=number].iter().rposition(|one| one.effect.previous() == Previous::None);
                let first = begins.unwrap_or(0);
                let expected: Vec<Revision> =
                    own[first..=number].iter().rev().map(|one| one.revision).collect();
                for limit in [1, 2, 1000] {
                    let (mut got, mut from) = (Vec::new(), last.revision);
                    let end = loop {
                        let trail = store.trail(id, from, limit).await.expect("trail");
                        assert!(trail.changes.len() <= limit);
                        got.extend(trail.changes.into_iter().map(|one| one.revision));
                        match trail.end {
                            TrailEnd::More(earlier) => from = earlier,
                            end => break end,
                        }
                    };
                    assert_eq!((&got, end), (&expected, TrailEnd::Beginning), "seed {seed} {id:?} {limit}");
                }
            }
        }
        // A change of another entry, and one that does not exist.
        let trail = store.trail(object(99), Revision(1), 10).await.expect("trail");
        assert_eq!((trail.changes, trail.end), (Vec::new(), TrailEnd::NotKept));
        let trail = store.trail(object(99), Revision(u64::MAX), 10).await.expect("trail");
        assert_eq!((trail.changes, trail.end), (Vec::new(), TrailEnd::NotKept));
    }
}

/// Goal: traces lead to the last change that took an entry from a name, and to the last that ended
/// an identity. They do so also when the store is opened again. Method: random mutations, compared
/// with all changes.
pub async fn h7_traces_lead_to_what_left_a_name(factory: &dyn StoreFactory) {
    for seed in 600..600 + crate::rounds() {
        let mut scene = Scene::new(factory).await;
        let mut generator = Generator::new(seed);
        for _ in 0..200 {
            scene.clock.turn(100);
            let store = scene.store();
            let view = View::of(&*store).await;
            store.apply(generator.request(&view, scene.clock.now())).await.expect("answered");
        }
        let changes = all_changes(&*scene.store()).await;
        let mut left: BTreeMap<At, Revision> = BTreeMap::new();
        let mut ended: BTreeMap<EntryId, Revision> = BTreeMap::new();
        for change in &changes {
            if let Some(at) = change.effect.vacated() {
                left.insert(at.clone(), change.revision);
            }
            if let Effect::Purged { entry, .. } = &change.effect {
                ended.insert(entry.id(), change.revision);
            }
        }
        assert!(!left.is_empty() && !ended.is_empty(), "seed {seed} shows nothing");
        for opened in ["before", "after"] {
            let store = scene.store();
            let compared = async |trace: Trace, expected: Option<Revision>| {
                let traces = store.traces(std::slice::from_ref(&trace)).await.expect("traces");
                let known = expected.is_none_or(|revision| revision > traces.since);
                let expected = if known { expected } else { traces.found[0].and(expected) };
                assert_eq!(traces.found, [expected], "seed {seed}, {opened}: {trace:?}");
            };
            for (at, revision) in &left {
                compared(Trace::Left(at.clone()), Some(*revision)).await;
            }
            for (id, revision) in &ended {
                compared(Trace::Ended(*id), Some(*revision)).await;
            }
            compared(Trace::Left(top("nothing was here")), None).await;
            drop(store);
            scene.reopen(crate::StoreEnd::Drop).await;
        }
    }
}

/// Goal: the content of a new store, and that it has nothing else.
pub async fn n1_a_new_store_has_a_root_and_an_admin(factory: &dyn StoreFactory) {
    let mut scene = Scene::fresh(factory).await;
    for opened in ["new", "opened again"] {
        let store = scene.store();
        let resolution = store.resolve(&[Lfn::root()]).await.expect("resolution").remove(0);
        let ResolutionEnd::Found(root) = resolution.end else { panic!("{opened}: no root") };
        assert_eq!((root.at.parent, &root.at.name), (DirId::ROOT, &Name::root()));
        assert_eq!((root.owner, root.group, root.mode), (UserId(0), GroupId(0), Mode::DIRECTORY));
        assert_eq!((root.revision, root.expires, root.tags.len()), (Revision(0), None, 0));
        assert_eq!(root.body, Body::Directory(DirId(1)));
        let page = store.list(DirId::ROOT, None, 10).await.expect("list").expect("the root");
        assert!(page.items.is_empty() && !page.more, "{opened}: something is in the root");
        let Some((Record::User(user), Revision(0))) =
            store.record(RecordKey::User(UserId::ADMIN)).await.expect("record")
        else {
            panic!("{opened}: no admin")
        };
        assert_eq!(
            (user.name.as_str(), user.group, &user.roles[..]),
            ("admin", GroupId(0), &[Role::Admin][..])
        );
        assert!(!user.disabled && user.groups.is_empty() && user.subjects.is_empty());
        let Some((Record::Group(group), Revision(0))) =
            store.record(RecordKey::Group(GroupId::ADMIN)).await.expect("record")
        else {
            panic!("{opened}: no admin group")
        };
        assert_eq!(group.name.as_str(), "admin");
        let mut records = 0;
        for kind in RecordKind::ALL {
            records += store.records(kind, None, 10).await.expect("records").items.len();
        }
        assert_eq!(records, 2);
        assert!(store.trash(None, 10).await.expect("trash").items.is_empty());
        assert!(store.reservations(None, 10).await.expect("reservations").items.is_empty());
        assert_eq!(store.revision().await.expect("revision"), Revision(0));
        let page = store.changes(Revision(0), 10).await.expect("changes");
        assert_eq!((page.changes.len(), page.up_to, page.oldest), (0, Revision(0), Revision(1)));
        let of = [UsageOf::Directory(DirId::ROOT), UsageOf::User(UserId(0)), UsageOf::Group(GroupId(0))];
        let sums: Vec<Usage> =
            store.usage(&of).await.expect("usage").iter().map(|account| account.usage).collect();
        assert_eq!(sums, [Usage::default(), directories(1), directories(1)]);
        let status = store.status().await.expect("status");
        assert_eq!((status.entries, status.revision), (0, Revision(0)));
        assert!(store.audit().await.expect("audit").findings.is_empty());
        drop(store);
        scene.reopen(crate::StoreEnd::Close).await;
    }
    // The root can be given to another user, and counts there.
    let root = top("/");
    let Outcome::Applied { revision, id } = scene.one(edit(root, Edit::Owner(UserId(7)))).await else {
        panic!("the root cannot be updated")
    };
    assert_eq!((revision, id), (Revision(1), Some(EntryId::Directory(DirId::ROOT))));
    assert_eq!(scene.usage(UsageOf::User(UserId(0))).await, Usage::default());
    assert_eq!(scene.usage(UsageOf::User(UserId(7))).await, directories(1));
}

/// Goal: a change of each kind has enough detail: before, after, and the place of each queued
/// deletion.
pub async fn h1_changes_say_before_and_after(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.file(DirId::ROOT, "f", 1, &[1, 2]).await;
    let of = |revision: Revision| {
        let store = scene.store();
        async move {
            let page = store.changes(Revision(revision.0 - 1), 1).await.expect("changes");
            page.changes.into_iter().next().expect("a change").effect
        }
    };
    let edits = vec![
        Edit::DropReplica { se: SeNumber(2), delete: true },
        Edit::SetTag(tag("run", 1)),
        Edit::DropReplica { se: SeNumber(1), delete: true },
    ];
    let revision = scene.applied(update(top("f"), edits)).await;
    let Effect::Updated { fields, .. } = of(revision).await else { panic!("not updated") };
    let deletion = |index| Some(exacat_model::DeletionId { revision, index });
    let gone = |se: u16, index| FieldChange::Replica {
        before: Some(replica(se)),
        after: None,
        deletion: deletion(index),
    };
    let tagged = FieldChange::Tag { key: tag("run", 1).key, before: None, after: Some(tag("run", 1).value) };
    assert_eq!(fields, [gone(2, 0), tagged, gone(1, 1)]);
    for (se, index) in [(1, 1), (2, 0)] {
        let queue = scene.store().deletions(SeNumber(se), None, 10).await.expect("deletions").items;
        let found: Vec<_> =
            queue.iter().map(|one| (Some(one.id), one.guid, one.size, &one.location)).collect();
        assert_eq!(found, [(deletion(index), guid(1), Some(100), &Location::Derived)]);
        assert_eq!(queue[0].queued, scene.clock.now());
    }
    let previous = Some(revision);
    let revision = scene.applied(rename(top("f"), top("g"))).await;
    assert_eq!(of(revision).await, Effect::Moved { id: object(1), from: top("f"), to: top("g"), previous });
    let previous = Some(revision);
    let trash = scene.trash(top("g")).await;
    let removed = Effect::Removed { id: object(1), at: top("g"), lfn: lfn("/as/it/was"), previous };
    assert_eq!(of(trash.0).await, removed);
    let previous = Some(trash.0);
    let revision = scene.applied(restore(trash, top("h"))).await;
    assert_eq!(of(revision).await, Effect::Restored { trash, id: object(1), to: top("h"), previous });
    let reserved = reservation(guid(2), &[1, 2]);
    scene.applied(reserve(reserved.clone())).await;
    let revision = scene.applied(reserve(exacat_model::Reservation { size: 7, ..reserved })).await;
    let Effect::Reserved { reservation: now, before } = of(revision).await else { panic!("not reserved") };
    assert_eq!((now.size, before.map(|before| before.size)), (7, Some(100)));
    let revision = scene.applied(release(guid(2), Some(2))).await;
    assert_eq!(of(revision).await, Effect::Released { reservation: now, se: Some(SeNumber(2)) });
    let revision = scene.applied(set(group(1, "renamed"))).await;
    let (before, after) = (Some(Box::new(group(1, "group1"))), Some(Box::new(group(1, "renamed"))));
    assert_eq!(of(revision).await, Effect::Recorded { key: RecordKey::Group(GroupId(1)), before, after });
}
