//! Goal: the history of a name tells all that was done to what stands there, or stood there last, to who may know it;
//! the history of everything goes to operators. Method: biographies written out, read in pages of every size.

use std::sync::Arc;

use crate::fixture::{Fixture, derived, guid, lfn, lfns, mode};
use exacat_catalogue::{Caller, Settings};
use exacat_model::codec::Encode;
use exacat_model::{
    Answer, Cursor, Edit, EntryId, ErrorKind, NewBody, Operation, ReplicaState, Revision, TrashId,
};
use exacat_store::Store;

fn log(path: &str, limit: u32) -> Operation {
    Operation::Log { lfn: lfn(path), cursor: Cursor::default(), limit }
}

/// The names of the changes of a name, and who made each.
async fn told(f: &Fixture, caller: &Caller, path: &str, limit: u32) -> Vec<String> {
    let mut names = Vec::new();
    f.pages(caller, log(path, limit), |answer| match answer {
        Answer::Changes { items, .. } => {
            assert!(limit == 0 || items.len() <= limit as usize);
            names.extend(items.into_iter().map(|one| format!("{} {}", one.change.effect.name(), one.who)));
        }
        answer => panic!("{answer:?}"),
    })
    .await;
    names
}

/// The kind of error the pages of a log come to.
async fn log_refusal(f: &Fixture, caller: &Caller, path: &str) -> ErrorKind {
    let mut next = log(path, 0);
    loop {
        match f.ask(caller, next.clone()).await {
            Err(error) => return error.kind,
            Ok(answer) => next = next.resumed(answer.next().expect("a refusal").clone()).unwrap(),
        }
    }
}

async fn live(f: &Fixture) -> TrashId {
    f.get(&f.alice, Operation::Mkdir { lfns: lfns(["/alice/d"]), parents: false, mode: None }).await;
    f.plant_file("/alice/f", 1, 0o644, 5, vec![derived(1, ReplicaState::Available)]).await;
    f.get(&f.alice, Operation::Move { from: lfn("/alice/f"), to: lfn("/alice/d") }).await;
    // Moved with its directory: nothing was done to itself.
    f.get(&f.alice, Operation::Move { from: lfn("/alice/d"), to: lfn("/alice/e") }).await;
    f.edit("/alice/e/f", vec![Edit::Mode(mode(0o640))]).await;
    let item = f.remove(&f.alice, "/alice/e/f").await.unwrap();
    f.get(&f.alice, Operation::TrashRestore { id: item, to: None }).await;
    item
}

const BIOGRAPHY: [&str; 5] =
    ["created alice", "moved alice", "updated admin", "removed alice", "restored alice"];

#[tokio::test]
async fn a_name_tells_its_biography_in_pages_of_any_size() {
    for scan in [1, 2, 50_000] {
        let f = Fixture::with(Settings { find_scan_entries: scan, ..Settings::default() }).await;
        live(&f).await;
        for limit in [0, 1, 2, 3] {
            assert_eq!(told(&f, &f.alice, "/alice/e/f", limit).await, BIOGRAPHY, "scan {scan} limit {limit}");
            assert_eq!(told(&f, &f.alice, "/alice/e", limit).await, ["created alice", "moved alice"]);
        }
    }
}

#[tokio::test]
async fn what_stood_there_last_is_told_where_nothing_stands() {
    for scan in [1, 3, 50_000] {
        let f = Fixture::with(Settings { find_scan_entries: scan, ..Settings::default() }).await;
        live(&f).await;
        // Where it was before it was moved, and under a directory that was moved away.
        assert_eq!(told(&f, &f.alice, "/alice/f", 0).await, BIOGRAPHY);
        assert_eq!(told(&f, &f.alice, "/alice/d/f", 0).await, BIOGRAPHY);
        assert_eq!(told(&f, &f.alice, "/alice/d", 1).await, ["created alice", "moved alice"]);
        // In the trash, and ended.
        let item = f.remove(&f.alice, "/alice/e/f").await.unwrap();
        let mut so_far = BIOGRAPHY.to_vec();
        so_far.push("removed alice");
        assert_eq!(told(&f, &f.alice, "/alice/e/f", 2).await, so_far);
        assert_eq!(told(&f, &f.op, "/alice/e/f", 0).await, so_far);
        f.get(&f.alice, Operation::TrashPurge { id: item, cursor: Cursor::default() }).await;
        so_far.push("purged alice");
        for caller in [&f.alice, &f.op, &f.admin] {
            assert_eq!(told(&f, caller, "/alice/e/f", 2).await, so_far);
        }
        // Another that stands there now has its own history.
        f.plant_file("/alice/e/f", 1, 0o644, 1, vec![]).await;
        assert_eq!(told(&f, &f.alice, "/alice/e/f", 0).await, ["created alice"]);
        // With the whole directory gone.
        f.remove(&f.alice, "/alice/e").await.unwrap();
        assert_eq!(
            told(&f, &f.alice, "/alice/e", 0).await,
            ["created alice", "moved alice", "removed alice"]
        );
        assert_eq!(log_refusal(&f, &f.alice, "/alice/never").await, ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn histories_are_for_who_may_read() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/shut", 1, 0o700).await;
    f.plant_file("/alice/shut/f", 1, 0o644, 5, vec![]).await;
    f.plant_file("/alice/own", 1, 0o600, 5, vec![]).await;
    f.plant_file("/alice/gone", 1, 0o644, 5, vec![]).await;
    f.plant_file("/alice/moved", 1, 0o644, 5, vec![]).await;
    f.get(&f.alice, Operation::Move { from: lfn("/alice/moved"), to: lfn("/alice/shut/m") }).await;
    let item = f.remove(&f.alice, "/alice/gone").await.unwrap();
    for path in ["/alice/shut/f", "/alice/shut/none", "/alice/own"] {
        assert_eq!(log_refusal(&f, &f.bob, path).await, ErrorKind::Denied, "{path}");
    }
    // What is in another's trash, or was moved behind a closed directory, is as what never was.
    for path in ["/alice/gone", "/alice/moved", "/alice/none"] {
        assert_eq!(log_refusal(&f, &f.bob, path).await, ErrorKind::NotFound, "{path}");
    }
    f.get(&f.alice, Operation::TrashPurge { id: item, cursor: Cursor::default() }).await;
    assert_eq!(log_refusal(&f, &f.bob, "/alice/gone").await, ErrorKind::NotFound);
    assert_eq!(told(&f, &f.alice, "/alice/moved", 0).await.len(), 2);
    assert_eq!(
        log_refusal(&f, &f.scoped("alice", "/alice/shut", false), "/alice/own").await,
        ErrorKind::Denied
    );
}

/// A cursor comes from outside: one made up for another's entry is refused as the entry itself.
#[tokio::test]
async fn made_up_cursors_tell_nothing() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/shut", 1, 0o700).await;
    let secret = f.plant_file("/alice/shut/f", 1, 0o644, 5, vec![]).await;
    f.plant_file("/bob/f", 2, 0o644, 5, vec![]).await;
    // 10: of a log; 2: telling; up to revision 0; the entry; ended by no change, or by that.
    let made_up = |id: EntryId, purged: Option<Revision>| {
        let mut bytes = vec![10, 2];
        Revision(0).encode(&mut bytes);
        id.encode(&mut bytes);
        purged.encode(&mut bytes);
        Cursor(bytes)
    };
    let ask = |cursor| Operation::Log { lfn: lfn("/bob/f"), cursor, limit: 0 };
    let mine = f.entry("/bob/f").await.unwrap().id();
    f.get(&f.bob, ask(made_up(mine, None))).await;
    let secret = EntryId::Object(secret);
    assert_eq!(f.refusal(&f.bob, ask(made_up(secret, None))).await, ErrorKind::NotFound);
    let item = f.remove(&f.alice, "/alice/shut/f").await.unwrap();
    assert_eq!(f.refusal(&f.bob, ask(made_up(secret, None))).await, ErrorKind::NotFound);
    f.get(&f.alice, Operation::TrashPurge { id: item, cursor: Cursor::default() }).await;
    let own = f.remove(&f.bob, "/bob/f").await.unwrap();
    f.get(&f.bob, Operation::TrashPurge { id: own, cursor: Cursor::default() }).await;
    let last = f.store.revision().await.unwrap();
    for revision in 0..=last.0 + 1 {
        assert_eq!(
            f.refusal(&f.bob, ask(made_up(secret, Some(Revision(revision))))).await,
            ErrorKind::NotFound
        );
    }
}

#[tokio::test]
async fn the_history_of_everything_is_complete_and_for_operators() {
    let f = Fixture::new().await;
    live(&f).await;
    let changes = |after, under: Option<&str>, limit| Operation::Changes {
        after: Revision(after),
        under: under.map(lfn),
        limit,
        wait: false,
    };
    for caller in [&f.alice, &f.bob, &f.carol] {
        assert_eq!(f.refusal(caller, changes(0, None, 0)).await, ErrorKind::Denied);
    }
    assert_eq!(f.refusal(&f.scoped("op", "/alice", false), changes(0, None, 0)).await, ErrorKind::Denied);
    let last = f.store.revision().await.unwrap().0;
    for limit in [0, 1, 3] {
        for caller in [&f.op, &f.admin] {
            let mut revisions = Vec::new();
            f.pages(caller, changes(0, None, limit), |answer| match answer {
                Answer::Changes { items, .. } => {
                    revisions.extend(items.iter().map(|one| one.change.revision.0))
                }
                answer => panic!("{answer:?}"),
            })
            .await;
            assert_eq!(revisions, (1..=last).collect::<Vec<_>>());
        }
    }
    // What stands below a directory now: also what was done to it elsewhere.
    let mut below = Vec::new();
    f.pages(&f.op, changes(0, Some("/alice/e"), 2), |answer| match answer {
        Answer::Changes { items, .. } => {
            below.extend(
                items.into_iter().map(|one| (one.change.effect.name(), one.lfn.unwrap().to_string())),
            );
        }
        answer => panic!("{answer:?}"),
    })
    .await;
    assert_eq!(below.len(), 2 + BIOGRAPHY.len());
    assert!(below.iter().all(|(_, path)| path == "/alice/e" || path == "/alice/e/f"));
    let answer = f.get(&f.op, changes(last, None, 0)).await;
    assert_eq!(answer, Answer::Changes { items: vec![], next: None, up_to: Revision(last) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_with_a_change_or_with_its_time() {
    let f = Arc::new(Fixture::with(Settings { changes_wait_ms: 60_000, ..Settings::default() }).await);
    let last = f.store.revision().await.unwrap();
    let wait = Operation::Changes { after: last, under: None, limit: 0, wait: true };
    let waiting = tokio::spawn({
        let (f, wait) = (f.clone(), wait.clone());
        async move { f.get(&f.op, wait).await }
    });
    f.plant("/alice/l", 1, 0o777, NewBody::Link { guid: guid(800), target: lfn("/x") }).await;
    let answer = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await.unwrap().unwrap();
    let Answer::Changes { items, .. } = answer else { panic!() };
    assert_eq!(items.len(), 1);
    let f = Fixture::with(Settings { changes_wait_ms: 1, ..Settings::default() }).await;
    let after = f.store.revision().await.unwrap();
    let answer = f.get(&f.op, Operation::Changes { after, under: None, limit: 0, wait: true }).await;
    assert_eq!(answer, Answer::Changes { items: vec![], next: None, up_to: after });
}
