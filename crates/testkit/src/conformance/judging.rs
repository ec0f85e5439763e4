//! Clause A11: the facts behind a permission still hold when a request is committed.

use std::sync::Arc;

use exacat_model::{
    AccountName, DirId, Edit, EntryId, ExpectRecord, Group, GroupId, Mode, Mutation, Record, RecordKey,
    Revision, User, UserId,
};
use exacat_store::{Judged, JudgedEntry, Outcome, Refusal};

use crate::factory::StoreFactory;
use crate::random::outcome_name;
use crate::scene::*;

/// Returns the facts by which a caller without all rights is judged, for changes in these
/// directories and at these places.
async fn judged(scene: &Scene, directories: &[&str], places: &[&str]) -> Judged {
    let store = scene.store();
    let since = store.seen_revision();
    let paths: Vec<_> = directories.iter().chain(places).map(|path| lfn(path)).collect();
    let mut entries: Vec<JudgedEntry> = Vec::new();
    for walk in store.resolve(&paths).await.expect("paths are followed") {
        entries.extend(walk.ancestors.iter().map(JudgedEntry::from));
        if let exacat_store::ResolutionEnd::Found(entry) = walk.end {
            entries.push(JudgedEntry::from(&*entry));
        }
    }
    entries.sort_by_key(|entry| entry.id);
    entries.dedup_by_key(|entry| entry.id);
    Judged { since, records: Vec::new(), entries: Some(entries) }
}

async fn send(scene: &Scene, judged: &Judged, mutations: Vec<Mutation>) -> Vec<Outcome> {
    let request = scene.request(mutations).judged(Some(judged.clone()));
    scene.store().apply(request).await.expect("the request is answered")
}

fn outdated(count: usize) -> Vec<Outcome> {
    vec![Outcome::Refused(Refusal::Outdated); count]
}

async fn tree(scene: &Scene) -> (DirId, DirId) {
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    scene.directory(DirId::ROOT, "other").await;
    scene.file(b, "f", 1, &[]).await;
    (a, b)
}

/// Goal: a change of owner, group or mode of the place, or above it, refuses the whole request and
/// changes nothing. Other changes do not.
pub async fn a11_a_request_judged_by_other_rights_is_refused(factory: &dyn StoreFactory) {
    type Change = fn(DirId, DirId) -> Mutation;
    let changes: [(&str, Change, bool); 9] = [
        ("mode above", |_, _| edit(top("a"), Edit::Mode(Mode::FILE)), true),
        ("owner above", |_, _| edit(top("a"), Edit::Owner(UserId(3))), true),
        ("group of the parent", |a, _| edit(at(a, "b"), Edit::Group(GroupId(3))), true),
        ("mode of the entry", |_, b| edit(at(b, "f"), Edit::Mode(Mode::DIRECTORY)), true),
        ("parent moved elsewhere", |a, _| rename(at(a, "b"), at(DirId(4), "b")), true),
        ("parent renamed", |a, _| rename(at(a, "b"), at(a, "c")), false),
        ("another directory", |_, _| edit(top("other"), Edit::Mode(Mode::FILE)), false),
        ("tag above", |_, _| edit(top("a"), Edit::SetTag(tag("run", 1))), false),
        ("new directory beside", |a, _| create(new_directory(at(a, "new"))), false),
    ];
    for (what, change, refuses) in changes {
        let scene = Scene::new(factory).await;
        let (a, b) = tree(&scene).await;
        let judged = judged(&scene, &["/a/b"], &["/a/b/f"]).await;
        scene.applied(change(a, b)).await;
        let before = scene.revision().await;
        let mutations = vec![
            create(new_directory(at(b, "new"))),
            edit(at(b, "f"), Edit::SetTag(tag("run", 1))),
            remove(at(b, "f")),
        ];
        let outcomes = send(&scene, &judged, mutations.clone()).await;
        if refuses {
            assert_eq!(outcomes, outdated(3), "{what}");
            assert_eq!(scene.revision().await, before, "{what}: nothing was done");
        } else {
            let names: Vec<_> = outcomes.iter().map(outcome_name).collect();
            assert_eq!(names, ["Applied"; 3], "{what}");
        }
    }
}

/// Goal: both places of a move are compared, and the place of a restored item.
pub async fn a11_all_places_of_a_mutation_are_compared(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let (a, b) = tree(&scene).await;
    let trash = scene.trash(at(b, "f")).await;
    let judged = judged(&scene, &["/a/b", "/other"], &[]).await;
    scene.applied(edit(top("other"), Edit::Mode(Mode::FILE))).await;
    let other = DirId(4);
    let moved = send(&scene, &judged, vec![rename(at(a, "b"), at(other, "b"))]).await;
    assert_eq!(moved, outdated(1));
    let restored = send(&scene, &judged, vec![Mutation::Restore { trash, to: at(other, "f") }]).await;
    assert_eq!(restored, outdated(1));
    let restored = send(&scene, &judged, vec![Mutation::Restore { trash, to: at(b, "f") }]).await;
    assert!(matches!(restored[0], Outcome::Applied { .. }), "{restored:?}");
    // A place whose directory is gone needs no rights: the mutation's refusal explains.
    let nowhere = send(&scene, &judged, vec![create(new_directory(at(DirId(99), "x")))]).await;
    assert_eq!(nowhere, [Outcome::Refused(Refusal::ParentGone)]);
}

/// Goal: users who may do everything are not judged by entries; all users are by the account's
/// version.
pub async fn a11_versions_of_records_are_compared(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let (_, b) = tree(&scene).await;
    let name = |text: &str| AccountName::parse(text).expect("a name");
    let user = User {
        id: UserId(7),
        name: name("seven"),
        group: GroupId(7),
        groups: Vec::new(),
        roles: Vec::new(),
        may_become: Vec::new(),
        subjects: Vec::new(),
        home: None,
        disabled: false,
    };
    let set = |record: Record| Mutation::SetRecord { record: Box::new(record), expect: ExpectRecord::Any };
    scene.applied(set(Record::Group(Group { id: GroupId(7), name: name("seven") }))).await;
    let version = scene.applied(set(Record::User(user.clone()))).await;
    let since = scene.store().seen_revision();
    let records = |revision: Revision| vec![(RecordKey::User(UserId(7)), revision)];
    let by = |revision: Revision| Judged { since, records: records(revision), entries: None };
    scene.applied(edit(top("a"), Edit::Mode(Mode::FILE))).await;
    let made = send(&scene, &by(version), vec![create(new_directory(at(b, "one")))]).await;
    assert!(matches!(made[0], Outcome::Applied { .. }), "entries do not matter: {made:?}");
    let seen = scene.store().credentials_seen();
    let disabled = scene.applied(set(Record::User(User { disabled: true, ..user }))).await;
    assert!(scene.store().credentials_seen() > seen, "it is known without a look");
    assert_eq!(send(&scene, &by(version), vec![create(new_directory(at(b, "two")))]).await, outdated(1));
    let made = send(&scene, &by(disabled), vec![create(new_directory(at(b, "two")))]).await;
    assert!(matches!(made[0], Outcome::Applied { .. }), "{made:?}");
    let gone = Mutation::DropRecord { key: RecordKey::User(UserId(7)), expect: ExpectRecord::Any };
    scene.applied(gone).await;
    assert_eq!(send(&scene, &by(disabled), vec![create(new_directory(at(b, "three")))]).await, outdated(1));
}

/// Goal: a request's own changes are no reason to refuse it. Its earlier outcomes answer a
/// repetition, whatever has changed since.
pub async fn a11_a_request_does_not_outdate_itself(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let (_, b) = tree(&scene).await;
    let judged = judged(&scene, &["/a/b"], &["/a/b/f"]).await;
    let request = scene
        .request(vec![
            edit(top("a"), Edit::Mode(Mode::FILE)),
            edit(at(b, "f"), Edit::Mode(Mode::DIRECTORY)),
            create(new_directory(at(b, "new"))),
            edit(at(b, "gone"), Edit::Mode(Mode::FILE)),
        ])
        .judged(Some(judged));
    let first = scene.store().apply(request.clone()).await.expect("it is answered");
    let names: Vec<_> = first.iter().map(outcome_name).collect();
    assert_eq!(names, ["Applied", "Applied", "Applied", "NotFound"]);
    assert_eq!(scene.store().apply(request.clone()).await.expect("it is answered"), first);
    scene.applied(edit(top("a"), Edit::Owner(UserId(3)))).await;
    let again = scene.store().apply(request).await.expect("it is answered");
    assert_eq!(again[..3], first[..3], "what was applied stays applied");
    assert_eq!(again[3], Outcome::Refused(Refusal::Outdated));
}

/// Goal: of writers that judge by their reads, and one that closes the directory, no writer
/// succeeds after it was closed.
pub async fn a11_nothing_is_made_after_the_directory_was_closed(factory: &dyn StoreFactory) {
    const ROUNDS: usize = 10;
    const WRITERS: u8 = 3;
    let open = Mode::new(0o777).expect("a mode");
    let closed = Mode::new(0o700).expect("a mode");
    for round in 0..ROUNDS {
        let scene = Arc::new(Scene::new(factory).await);
        let d = scene.directory(DirId::ROOT, "d").await;
        scene.applied(edit(top("d"), Edit::Mode(open))).await;
        let start = Arc::new(tokio::sync::Barrier::new(usize::from(WRITERS) + 1));
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (scene, start) = (Arc::clone(&scene), Arc::clone(&start));
            writers.spawn(async move {
                start.wait().await;
                let mut made = Vec::new();
                for number in 0.. {
                    let judged = judged(&scene, &["/d"], &[]).await;
                    let d_entry = judged.entry(EntryId::Directory(d)).expect("it was looked at");
                    if d_entry.mode != open {
                        break;
                    }
                    let new = new_directory(at(d, &format!("{writer}-{number}")));
                    let outcomes = send(&scene, &judged, vec![create(new)]).await;
                    if let Outcome::Applied { revision, .. } = outcomes[0] {
                        made.push(revision);
                    }
                }
                made
            });
        }
        start.wait().await;
        while scene.revision().await.0 < 20 {
            tokio::task::yield_now().await;
        }
        let closing = scene.applied(edit(top("d"), Edit::Mode(closed))).await;
        while let Some(made) = writers.join_next().await {
            let made = made.expect("the writer ends");
            assert!(
                made.iter().all(|revision| *revision < closing),
                "round {round}: {made:?} after {closing:?}"
            );
        }
    }
}
