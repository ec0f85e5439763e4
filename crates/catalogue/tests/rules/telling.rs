//! Goal: the history of a name reports all changes of its present or last entry, to callers with
//! the right. The history of everything goes to operators. Method: biographies written out, read in
//! pages of every size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fixture::{Fixture, derived, guid, lfn, lfns, mode};
use exacat_catalogue::{Caller, Catalogue, Settings};
use exacat_model::codec::Encode;
use exacat_model::{
    Answer, Change, Cursor, Edit, Effect, EntryId, ErrorKind, NewBody, OnTimeline, Operation, OperationId,
    ReplicaState, Revision, TrashId, UserId,
};
use exacat_store::Store;
use exacat_testkit::{Before, Fronted};

/// Counts the changes that the store returns.
#[derive(Default)]
struct CountedChanges {
    given: AtomicU64,
}

impl Before for CountedChanges {
    fn gave(&self, changes: &[Change]) {
        self.given.fetch_add(changes.len() as u64, Ordering::Relaxed);
    }
}

fn log(path: &str, limit: u32) -> Operation {
    Operation::Log { lfn: lfn(path), cursor: Cursor::default(), limit }
}

/// Returns the names of the changes of a path, and the user of each.
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

/// Returns the kind of error at the end of a log's pages.
async fn log_refusal(f: &Fixture, caller: &Caller, path: &str) -> ErrorKind {
    let mut next = log(path, 0);
    loop {
        match f.ask(caller, next.clone()).await {
            Err(error) => return error.kind,
            Ok(answer) => next = next.resumed(answer.next().expect("a refusal").clone()).unwrap(),
        }
    }
}

async fn live(f: &Fixture) -> OnTimeline<TrashId> {
    f.get(&f.alice, Operation::Mkdir { lfns: lfns(["/alice/d"]), parents: false, mode: None }).await;
    f.plant_file("/alice/f", 1, 0o644, 5, vec![derived(1, ReplicaState::Available)]).await;
    f.get(&f.alice, Operation::Move { from: lfn("/alice/f"), to: lfn("/alice/d") }).await;
    // Moved with its directory: no change of its own.
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
        // Its path before the move, and below a directory that was moved away.
        assert_eq!(told(&f, &f.alice, "/alice/f", 0).await, BIOGRAPHY);
        assert_eq!(told(&f, &f.alice, "/alice/d/f", 0).await, BIOGRAPHY);
        assert_eq!(told(&f, &f.alice, "/alice/d", 1).await, ["created alice", "moved alice"]);
        // In the trash, and purged.
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
        // A new entry with the name has its own history.
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
    // An entry in another's trash, or behind a closed directory, seems never to have existed.
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

/// Goal: the log of an entry costs its own changes, whatever else happened. Method: the store
/// counts the changes it returns.
#[tokio::test]
async fn log_of_an_entry_reads_no_changes_of_others() {
    let f = Fixture::new().await;
    live(&f).await;
    f.plant_file("/alice/gone", 1, 0o644, 5, vec![]).await;
    let item = f.remove(&f.alice, "/alice/gone").await.unwrap();
    f.get(&f.alice, Operation::TrashPurge { id: item, cursor: Cursor::default() }).await;
    for number in 0..200 {
        f.plant_file(&format!("/alice/other{number}"), 1, 0o644, 5, vec![]).await;
    }
    for (path, changes) in [("/alice/e/f", 5), ("/alice/f", 5), ("/alice/d/f", 5), ("/alice/gone", 3)] {
        let store = Arc::new(Fronted::new(CountedChanges::default(), f.store.clone()));
        let other = Catalogue::open(store.clone(), f.clock.shared(), Settings::default()).await.unwrap();
        let answer = other.execute(&f.alice, OperationId([0; 16]), log(path, 0)).await.unwrap();
        let Answer::Changes { items, next: None, .. } = answer else { panic!("{path}: more than one page") };
        assert_eq!(items.len(), changes, "{path}");
        let given = store.before.given.load(Ordering::Relaxed);
        assert!(given <= 40, "{path}: the store gave {given} changes");
    }
    // The store knows without reading the history that a name never existed.
    assert_eq!(log_refusal(&f, &f.alice, "/alice/never").await, ErrorKind::NotFound);
}

/// Goal: the log of an entry with more changes than a page or a cursor has marks for is complete,
/// each change once, oldest first.
#[tokio::test]
async fn log_of_many_changes_is_whole_in_pages_of_any_size() {
    let f = Fixture::with(Settings { find_scan_entries: 2, ..Settings::default() }).await;
    f.plant_file("/alice/f", 1, 0o644, 5, vec![]).await;
    for number in 0..1200u16 {
        f.edit("/alice/f", vec![Edit::Mode(mode(if number % 2 == 0 { 0o600 } else { 0o644 }))]).await;
    }
    for limit in [0, 7, 999, 10_000] {
        let mut revisions = Vec::new();
        f.pages(&f.alice, log("/alice/f", limit), |answer| match answer {
            Answer::Changes { items, .. } => revisions.extend(items.iter().map(|one| one.change.revision.0)),
            answer => panic!("{answer:?}"),
        })
        .await;
        assert_eq!(revisions.len(), 1201, "limit {limit}");
        assert!(revisions.is_sorted_by(|one, next| one < next));
    }
}

/// Goal: a log names no place in a directory that the caller may not read, and shows names in place
/// of numbers.
#[tokio::test]
async fn log_shows_no_names_of_directories_that_the_caller_may_not_read() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/shut", 1, 0o700).await;
    f.plant_file("/alice/shut/secret name", 1, 0o644, 5, vec![derived(1, ReplicaState::Available)]).await;
    f.get(&f.alice, Operation::Move { from: lfn("/alice/shut/secret name"), to: lfn("/alice/open") }).await;
    f.edit("/alice/open", vec![Edit::Owner(UserId(2))]).await;
    let item = f.remove(&f.alice, "/alice/open").await.unwrap();
    f.get(&f.bob, Operation::TrashRestore { id: item, to: Some(lfn("/bob/mine")) }).await;
    let answer = |caller: Caller| {
        let f = &f;
        async move {
            let Answer::Changes { items, .. } = f.get(&caller, log("/bob/mine", 0)).await else { panic!() };
            items
        }
    };
    let told = answer(f.bob.clone()).await;
    assert_eq!(told.len(), 5);
    let text = format!("{told:?}");
    assert!(!text.contains("secret") && !text.contains("shut"), "{text}");
    let Effect::Moved { from, to, .. } = &told[1].change.effect else { panic!("{told:?}") };
    assert!(from.is_withheld() && to.name.as_str() == "open");
    assert!(told[1].directories.iter().any(|(id, path)| *id == to.parent && *path == lfn("/alice")));
    let users: Vec<&str> = told[2].users.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(users, ["alice", "bob"]);
    for caller in [&f.alice, &f.op, &f.admin] {
        let text = format!("{:?}", answer(caller.clone()).await);
        assert!(text.contains("secret name") && text.contains("/alice/shut"), "{text}");
    }
}

/// Goal: a name that was taken again and vacated with its directory leads to the last entry there.
#[tokio::test]
async fn log_of_a_vacated_name_follows_its_directories() {
    let f = Fixture::new().await;
    for path in ["/alice/a", "/alice/a/d"] {
        f.plant_directory(path, 1, 0o755).await;
    }
    f.plant_file("/alice/a/d/f", 1, 0o644, 5, vec![]).await;
    // The entry came to /alice/b/d/f, and left from there, inside its directory.
    f.get(&f.alice, Operation::Move { from: lfn("/alice/a"), to: lfn("/alice/b") }).await;
    f.get(&f.alice, Operation::Move { from: lfn("/alice/b"), to: lfn("/alice/c") }).await;
    for path in ["/alice/a/d/f", "/alice/b/d/f", "/alice/c/d/f"] {
        assert_eq!(told(&f, &f.alice, path, 0).await, ["created alice"], "{path}");
    }
    // Another directory of the name has no such entry.
    f.plant_directory("/alice/b", 1, 0o755).await;
    assert_eq!(told(&f, &f.alice, "/alice/b/d/f", 0).await, ["created alice"]);
    // A purged directory still reports its former entries.
    let item = f.remove(&f.alice, "/alice/c").await.unwrap();
    f.get(&f.alice, Operation::TrashPurge { id: item, cursor: Cursor::default() }).await;
    assert_eq!(told(&f, &f.op, "/alice/c/d/f", 0).await, ["created alice", "purged alice"]);
}

/// Goal: a forged cursor for another's entry is refused like the entry itself.
#[tokio::test]
async fn made_up_cursors_tell_nothing() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/shut", 1, 0o700).await;
    let secret = f.plant_file("/alice/shut/f", 1, 0o644, 5, vec![]).await;
    f.plant_file("/bob/f", 2, 0o644, 5, vec![]).await;
    // Bytes: 10 for a log; the timeline; 6 for telling; the entry; purged by no change, or by the
    // given one; after revision 0; the chain starts with any change.
    let timeline = f.store.timelines().current().whole();
    let made_up = |id: EntryId, purged: Option<Revision>| {
        let mut bytes = vec![10];
        timeline.encode(&mut bytes);
        bytes.push(6);
        id.encode(&mut bytes);
        purged.encode(&mut bytes);
        Revision(0).encode(&mut bytes);
        vec![Revision(9)].encode(&mut bytes);
        1u64.encode(&mut bytes);
        0u64.encode(&mut bytes);
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
        after: Revision(after).into(),
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
    // Entries now below a directory: also their changes elsewhere.
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
    let (timeline, up_to) = (f.store.timelines().current(), Revision(last));
    assert_eq!(answer, Answer::Changes { items: vec![], next: None, up_to, timeline, cut: false });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_with_a_change_or_with_its_time() {
    let f = Arc::new(Fixture::with(Settings { changes_wait_ms: 60_000, ..Settings::default() }).await);
    let last = f.store.revision().await.unwrap();
    let wait = Operation::Changes { after: last.into(), under: None, limit: 0, wait: true };
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
    let answer =
        f.get(&f.op, Operation::Changes { after: after.into(), under: None, limit: 0, wait: true }).await;
    let timeline = f.store.timelines().current();
    assert_eq!(answer, Answer::Changes { items: vec![], next: None, up_to: after, timeline, cut: false });
}
