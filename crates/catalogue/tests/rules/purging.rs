//! Goal: a purge ends everything of its item and nothing else, in bounded steps, and can be
//! interrupted after any change and continued. Method: trees of every shape, small steps, a store
//! whose requests are refused or forgotten.

use crate::fixture::{Fixture, derived, guid, lfn};
use exacat_catalogue::Settings;
use exacat_model::{
    Answer, Cursor, EntryId, ErrorKind, NewBody, OnTimeline, Operation, ReplicaState, SeNumber, TrashId,
    UserId,
};
use exacat_store::{EntryLocation, Store, UsageOf};

fn purge(id: OnTimeline<TrashId>) -> Operation {
    Operation::TrashPurge { id, cursor: Cursor::default() }
}

async fn small_steps(entries: usize) -> Fixture {
    Fixture::with(Settings { purge_step_entries: entries, ..Settings::default() }).await
}

/// Makes a tree with directories of every kind: empty, deep, wide, of files only, of directories
/// only. Returns the number of its entries.
async fn plant_tree(f: &Fixture) -> u64 {
    let mut count = 1;
    f.plant_directory("/alice/t", 1, 0o755).await;
    for path in ["a", "b", "b/c", "b/c/d", "b/c/d/e", "w", "w/1", "w/2", "w/3", "w/4", "w/2/x", "z"] {
        f.plant_directory(&format!("/alice/t/{path}"), 1, 0o755).await;
        count += 1;
    }
    for (path, files) in [("b/c", 3), ("b/c/d/e", 5), ("w/1", 1), ("w/4", 7), ("", 2), ("b", 1)] {
        for n in 0..files {
            let replicas = vec![derived(1, ReplicaState::Available), derived(2, ReplicaState::Lost)];
            f.plant_file(&format!("/alice/t/{path}/f{n}"), 1, 0o644, 10, replicas).await;
            count += 1;
        }
    }
    f.plant("/alice/t/w/col", 1, 0o644, NewBody::Collection { guid: guid(f.number()) }).await;
    f.plant("/alice/t/w/link", 1, 0o777, NewBody::Link { guid: guid(f.number()), target: lfn("/bob") }).await;
    count + 2
}

/// Goal: the owner of a directory removes it in one step, whatever others keep below. Before the
/// end of the retention a purge ends only entries that the owner might have removed one by one.
#[tokio::test]
async fn purge_by_owner_keeps_what_others_have_in_closed_directories() {
    for step in [1, 2, 1000] {
        let f = small_steps(step).await;
        f.plant_directory("/alice/m", 1, 0o777).await;
        f.plant_directory("/alice/m/own", 1, 0o755).await;
        f.plant_file("/alice/m/own/f", 1, 0o644, 1, vec![]).await;
        f.plant_directory("/alice/m/a-private", 2, 0o700).await;
        let kept = EntryId::Object(f.plant_file("/alice/m/a-private/f", 2, 0o600, 1, vec![]).await);
        f.plant_directory("/alice/m/own/deep", 2, 0o755).await;
        let deep = EntryId::Object(f.plant_file("/alice/m/own/deep/f", 2, 0o644, 1, vec![]).await);
        f.plant_directory("/alice/m/empty", 2, 0o700).await;
        f.plant_directory("/alice/m/shared", 2, 0o777).await;
        f.plant_file("/alice/m/shared/f", 2, 0o600, 1, vec![]).await;
        f.plant_file("/alice/m/z", 2, 0o600, 1, vec![]).await;
        assert_eq!(f.remove(&f.alice, "/alice/m/a-private").await.unwrap_err().kind, ErrorKind::Denied);
        let item = f.remove(&f.alice, "/alice/m").await.unwrap();
        let mut ended = 0;
        let (mut cursor, mut refused) = (Cursor::default(), None);
        while refused.is_none() {
            match f.ask(&f.alice, Operation::TrashPurge { id: item, cursor: cursor.clone() }).await {
                Ok(Answer::Purged { entries, next }) => {
                    ended += entries;
                    cursor = next.expect("the item stays");
                }
                Ok(answer) => panic!("{answer:?}"),
                Err(error) => refused = Some(error),
            }
        }
        assert_eq!(refused.unwrap().kind, ErrorKind::Denied, "step {step}");
        assert_eq!(ended, 5, "own/f, empty, shared, shared/f and z; step {step}");
        let found = f.store.locate(&[kept, deep]).await.unwrap();
        assert!(found.iter().all(
            |found| matches!(&found.as_ref().unwrap().place, EntryLocation::Trash(id) if *id == item.id)
        ));
        // The rest can be restored whole, and an operator purges it.
        f.get(&f.alice, Operation::TrashRestore { id: item, to: None }).await;
        let item = f.remove(&f.alice, "/alice/m").await.unwrap();
        f.pages(&f.op, purge(item), |_| {}).await;
        assert!(f.store.trash_item(item.id).await.unwrap().is_none());
        assert_eq!(f.store.locate(&[kept, deep]).await.unwrap(), [None, None]);
        f.audit().await;
    }
}

#[tokio::test]
async fn a_purge_of_any_step_size_ends_everything_once() {
    for step in [1, 2, 3, 5, 7, 1000] {
        let f = small_steps(step).await;
        let before = f.store.status().await.unwrap().entries;
        let count = plant_tree(&f).await;
        let item = f.remove(&f.alice, "/alice/t").await.unwrap();
        let mut ended = 0;
        f.pages(&f.alice, purge(item), |answer| match answer {
            Answer::Purged { entries, .. } => {
                assert!(entries <= step as u64 + 1, "{entries} in a step of {step}");
                ended += entries;
            }
            answer => panic!("{answer:?}"),
        })
        .await;
        assert_eq!(ended, count, "step {step}");
        assert_eq!(f.store.status().await.unwrap().entries, before);
        assert!(f.store.usage(&[UsageOf::User(UserId(1))]).await.unwrap()[0].usage.files == 0);
        // Each replica that took space waits for its deletion, once.
        assert_eq!(f.store.deletions(SeNumber(1), None, 1000).await.unwrap().items.len(), 19);
        assert!(f.store.deletions(SeNumber(2), None, 1000).await.unwrap().items.is_empty());
        f.audit().await;
    }
}

#[tokio::test]
async fn who_may_purge() {
    let f = Fixture::new().await;
    for (n, caller) in [&f.alice, &f.admin, &f.op].into_iter().enumerate() {
        f.plant_file(&format!("/open/{n}"), 1, 0o644, 1, vec![]).await;
        let item = f.remove(&f.bob, &format!("/open/{n}")).await.unwrap();
        // The remover may restore the item, not purge it; to others it seems not to exist.
        assert_eq!(f.refusal(&f.bob, purge(item)).await, ErrorKind::NotFound);
        assert_eq!(f.refusal(&f.carol, purge(item)).await, ErrorKind::NotFound);
        assert_eq!(f.get(caller, purge(item)).await, Answer::Purged { entries: 1, next: None });
        assert_eq!(f.refusal(caller, purge(item)).await, ErrorKind::NotFound);
    }
    let scoped = f.scoped("alice", "/alice", true);
    f.plant_file("/open/s", 1, 0o644, 1, vec![]).await;
    let item = f.remove(&f.alice, "/open/s").await.unwrap();
    assert_eq!(f.refusal(&scoped, purge(item)).await, ErrorKind::Denied);
}

/// Goal: the answer to any step may be lost and the step repeated under the same operation id. A
/// face that streams all pages of one operation does so.
#[tokio::test]
async fn steps_asked_again_end_nothing_twice() {
    let f = small_steps(4).await;
    let before = f.store.status().await.unwrap().entries;
    let count = plant_tree(&f).await;
    let item = f.remove(&f.alice, "/alice/t").await.unwrap();
    let id = f.operation_id();
    let mut next = Some(purge(item));
    let mut ended = 0;
    while let Some(operation) = next.take() {
        for _ in 0..2 {
            let answer = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
            let Answer::Purged { entries, .. } = &answer else { panic!("{answer:?}") };
            ended += entries;
            next = answer.next().map(|cursor| operation.resumed(cursor.clone()).unwrap());
        }
    }
    assert_eq!(ended, count);
    assert_eq!(f.store.status().await.unwrap().entries, before);
    f.audit().await;
}

#[tokio::test]
async fn the_last_step_asked_again_from_the_start_is_no_error() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 1, vec![]).await;
    let item = f.remove(&f.alice, "/alice/f").await.unwrap();
    let id = f.operation_id();
    let first = f.catalogue.execute(&f.alice, id, purge(item)).await.unwrap();
    assert_eq!(first, Answer::Purged { entries: 1, next: None });
    let again = f.catalogue.execute(&f.alice, id, purge(item)).await.unwrap();
    assert_eq!(again, Answer::Purged { entries: 0, next: None });
    assert_eq!(
        f.refusal(&f.alice, purge(item)).await,
        ErrorKind::NotFound,
        "another operation did not end it"
    );
}

/// Goal: a half-purged item can be restored with its remaining entries, and purged again.
#[tokio::test]
async fn a_purge_left_in_the_middle_can_be_undone_or_gone_on_with() {
    let f = small_steps(5).await;
    plant_tree(&f).await;
    let item = f.remove(&f.alice, "/alice/t").await.unwrap();
    let Answer::Purged { next: Some(cursor), .. } = f.get(&f.alice, purge(item)).await else { panic!() };
    f.audit().await;
    f.get(&f.alice, Operation::TrashRestore { id: item, to: None }).await;
    let left = f.found(&f.alice, "/alice/t", Default::default(), 0).await;
    assert!(!left.is_empty() && left.len() < 33, "{left:?}");
    f.audit().await;
    // The item is gone, so the purge changes nothing, and ends no restored entry.
    let operation = purge(item).resumed(cursor).unwrap();
    assert_eq!(f.get(&f.alice, operation).await, Answer::Purged { entries: 0, next: None });
    assert_eq!(f.found(&f.alice, "/alice/t", Default::default(), 0).await, left);
    let item = f.remove(&f.alice, "/alice/t").await.unwrap();
    f.pages(&f.alice, purge(item), |_| {}).await;
    f.audit().await;
}

/// Method: two purges of the same item at once, in alternating steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn purges_at_once_do_not_get_in_each_others_way() {
    let f = std::sync::Arc::new(small_steps(2).await);
    let before = f.store.status().await.unwrap().entries;
    let count = plant_tree(&f).await;
    let item = f.remove(&f.alice, "/alice/t").await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let f = f.clone();
        tasks.push(tokio::spawn(async move {
            let mut ended = 0;
            let mut cursor = Cursor::default();
            loop {
                match f.ask(&f.alice, Operation::TrashPurge { id: item, cursor }).await {
                    Ok(Answer::Purged { entries, next }) => {
                        ended += entries;
                        let Some(next) = next else { return ended };
                        cursor = next;
                    }
                    Err(error) if error.kind == ErrorKind::NotFound => return ended,
                    other => panic!("{other:?}"),
                }
            }
        }));
    }
    let mut ended = 0;
    for task in tasks {
        ended += task.await.unwrap();
    }
    assert_eq!(ended, count);
    assert_eq!(f.store.status().await.unwrap().entries, before);
    f.audit().await;
}
