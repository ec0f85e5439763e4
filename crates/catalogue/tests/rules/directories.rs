//! Goal: directories are made exactly as requested, for callers with the right, whatever others do
//! meanwhile and however often the request is repeated. Method: each rule and its refusals, then
//! many makers of overlapping paths at once.

use std::sync::Arc;

use crate::fixture::{Fixture, guid, lfn, lfns, mode};
use exacat_catalogue::Caller;
use exacat_model::limits::{DEPTH_MAX, READ_BATCH_MAX};
use exacat_model::{Answer, ErrorKind, GroupId, Mode, NewBody, Operation, OperationId, UserId};
use exacat_store::{Clock, Store};

fn mkdir<const N: usize>(paths: [&str; N], parents: bool) -> Operation {
    Operation::Mkdir { lfns: lfns(paths), parents, mode: None }
}

async fn kinds(f: &Fixture, caller: &Caller, operation: Operation) -> Vec<Option<ErrorKind>> {
    kinds_of(f.get(caller, operation).await)
}

fn kinds_of(answer: Answer) -> Vec<Option<ErrorKind>> {
    match answer {
        Answer::EachDone(items) => items.into_iter().map(|item| item.err().map(|error| error.kind)).collect(),
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn one_directory() {
    let f = Fixture::new().await;
    let exists = Some(ErrorKind::Exists);
    assert_eq!(kinds(&f, &f.alice, mkdir(["/alice/d"], false)).await, [None]);
    let entry = f.entry("/alice/d").await.unwrap();
    assert_eq!((entry.owner, entry.group, entry.mode), (UserId(1), GroupId(1), Mode::DIRECTORY));
    assert_eq!(kinds(&f, &f.alice, mkdir(["/alice/d"], false)).await, [exists]);
    assert_eq!(kinds(&f, &f.alice, mkdir(["/alice/x/y"], false)).await, [Some(ErrorKind::NotFound)]);
    assert_eq!(kinds(&f, &f.alice, mkdir(["/"], false)).await, [exists]);
    assert_eq!(kinds(&f, &f.bob, mkdir(["/alice/e"], false)).await, [Some(ErrorKind::Denied)]);
    let with_mode = Operation::Mkdir { lfns: lfns(["/alice/m"]), parents: false, mode: Some(mode(0o2)) };
    assert_eq!(kinds(&f, &f.alice, with_mode).await, [None]);
    assert_eq!(f.entry("/alice/m").await.unwrap().mode, mode(0o2));
    // The group is the maker's, also in a directory of another group.
    assert_eq!(kinds(&f, &f.carol, mkdir(["/open/c"], false)).await, [None]);
    assert_eq!(f.entry("/open/c").await.unwrap().group, GroupId(4));
    f.plant_file("/alice/f", 1, 0o644, 1, vec![]).await;
    assert_eq!(
        kinds(&f, &f.alice, mkdir(["/alice/f", "/alice/f/g"], false)).await,
        [exists, Some(ErrorKind::NotDirectory)]
    );
    f.audit().await;
}

#[tokio::test]
async fn without_parents_one_may_be_the_parent_of_another() {
    let f = Fixture::new().await;
    let operation = mkdir(["/alice/a/b/c", "/alice/a", "/alice/z/y", "/alice/a/b", "/alice/a"], false);
    let expected = [None, None, Some(ErrorKind::NotFound), None, Some(ErrorKind::Exists)];
    assert_eq!(kinds(&f, &f.alice, operation).await, expected);
    assert!(f.is_there("/alice/a/b/c").await);
}

#[tokio::test]
async fn with_parents() {
    let f = Fixture::new().await;
    let operation = Operation::Mkdir {
        lfns: lfns(["/alice/a/b/c", "/alice/a/b", "/alice", "/", "/alice/a/x/y", "/bob/a/b", "/alice/a/b/c"]),
        parents: true,
        mode: Some(mode(0o700)),
    };
    let expected = [None, None, None, None, None, Some(ErrorKind::Denied), None];
    assert_eq!(kinds(&f, &f.alice, operation).await, expected);
    let mode_of = async |path: &str| f.entry(path).await.unwrap().mode.bits();
    // Requested directories have the requested mode, their parents the default.
    assert_eq!(mode_of("/alice/a").await, 0o755);
    assert_eq!(mode_of("/alice/a/b").await, 0o700);
    assert_eq!(mode_of("/alice/a/b/c").await, 0o700);
    assert_eq!(mode_of("/alice/a/x").await, 0o755);
    assert!(!f.is_there("/bob/a").await);
    // Existing directories do not change.
    assert_eq!(mode_of("/alice").await, 0o755);
    let before = f.store.revision().await.unwrap();
    assert_eq!(kinds(&f, &f.bob, mkdir(["/alice/a", "/bob"], true)).await, [None, None]);
    assert_eq!(f.store.revision().await.unwrap(), before, "nothing was to be done");

    f.plant_file("/alice/f", 1, 0o644, 1, vec![]).await;
    assert_eq!(
        kinds(&f, &f.alice, mkdir(["/alice/f", "/alice/f/g/h"], true)).await,
        [Some(ErrorKind::Exists), Some(ErrorKind::NotDirectory)]
    );
    f.plant_directory("/alice/closed", 1, 0o700).await;
    let denied = Some(ErrorKind::Denied);
    assert_eq!(
        kinds(&f, &f.bob, mkdir(["/alice/closed/a", "/alice/closed/a/b"], true)).await,
        [denied, denied]
    );
    // A caller who makes a directory that it may not enter makes nothing in it.
    let locked =
        Operation::Mkdir { lfns: lfns(["/alice/l", "/alice/l/m"]), parents: true, mode: Some(mode(0o400)) };
    assert_eq!(kinds(&f, &f.alice, locked).await, [None, denied]);
    f.audit().await;
}

#[tokio::test]
async fn links_on_the_way() {
    let f = Fixture::new().await;
    let link = |target: &str| NewBody::Link { guid: guid(f.number()), target: lfn(target) };
    f.plant_directory("/alice/real", 1, 0o755).await;
    f.plant("/alice/link", 1, 0o777, link("/alice/real")).await;
    f.plant("/alice/nowhere", 1, 0o777, link("/alice/not/there")).await;
    let operation = mkdir(["/alice/link/a/b", "/alice/real/a/c", "/alice/link"], true);
    assert_eq!(kinds(&f, &f.alice, operation).await, [None, None, None]);
    assert!(f.is_there("/alice/real/a/b").await && f.is_there("/alice/real/a/c").await);
    // The target of a dangling link is not ours to make.
    let not_found = Some(ErrorKind::NotFound);
    let operation = mkdir(["/alice/nowhere", "/alice/nowhere/x"], true);
    assert_eq!(kinds(&f, &f.alice, operation).await, [not_found, not_found]);
    assert!(!f.is_there("/alice/not").await);
    assert_eq!(kinds(&f, &f.alice, mkdir(["/alice/nowhere"], false)).await, [Some(ErrorKind::Exists)]);
    assert_eq!(kinds(&f, &f.alice, mkdir(["/alice/link/q"], false)).await, [None]);
    assert!(f.is_there("/alice/real/q").await);
}

#[tokio::test]
async fn a_repeat_gets_the_first_outcomes_and_makes_nothing_anew() {
    let f = Fixture::new().await;
    for parents in [false, true] {
        let id = f.operation_id();
        let top = format!("/alice/{parents}");
        let operation = Operation::Mkdir {
            lfns: vec![lfn(&top), lfn(&format!("{top}/a")), lfn(&format!("{top}/a/b")), lfn("/bob/no")],
            parents,
            mode: None,
        };
        let first = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
        assert_eq!(kinds_of(first.clone()), [None, None, None, Some(ErrorKind::Denied)]);
        let after = f.store.revision().await.unwrap();
        assert_eq!(f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap(), first);
        assert_eq!(f.store.revision().await.unwrap(), after, "the repeat changed nothing");
        // Even if the new directories were removed: the operation was done, once.
        f.remove(&f.alice, &format!("{top}/a/b")).await.unwrap();
        let removed = f.store.revision().await.unwrap();
        assert_eq!(f.catalogue.execute(&f.alice, id, operation).await.unwrap(), first);
        assert_eq!(f.store.revision().await.unwrap(), removed);
    }
}

#[tokio::test]
async fn many_at_once_and_their_limits() {
    let f = Fixture::new().await;
    let many = |count: usize| (0..count).map(|n| lfn(&format!("/alice/{}/{}/{n}", n % 7, n % 11))).collect();
    let operation = |count| Operation::Mkdir { lfns: many(count), parents: true, mode: None };
    assert!(kinds(&f, &f.alice, operation(500)).await.iter().all(Option::is_none));
    assert_eq!(f.store.audit().await.unwrap().findings_total, 0);
    assert_eq!(f.refusal(&f.alice, operation(READ_BATCH_MAX + 1)).await, ErrorKind::Limit);
    let without = Operation::Mkdir { lfns: many(READ_BATCH_MAX + 1), parents: false, mode: None };
    assert_eq!(f.refusal(&f.alice, without).await, ErrorKind::Limit);
    assert!(
        kinds(&f, &f.alice, Operation::Mkdir { lfns: vec![], parents: true, mode: None }).await.is_empty()
    );
    let deepest = format!("/alice{}", "/x".repeat(DEPTH_MAX - 1));
    assert_eq!(kinds(&f, &f.alice, mkdir([&deepest], true)).await, [None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn makers_of_overlapping_paths_all_succeed() {
    let f = Arc::new(Fixture::new().await);
    let mut tasks = Vec::new();
    for n in 0..16u8 {
        let f = f.clone();
        tasks.push(tokio::spawn(async move {
            let paths = (0..20).map(|k| lfn(&format!("/open/a/{}/{}/{k}", k % 3, k % 5))).collect();
            let operation = Operation::Mkdir { lfns: paths, parents: true, mode: Some(mode(0o777)) };
            // Intermediate directories belong to their maker, so one user makes all.
            let answer = f
                .catalogue
                .execute(&f.alice, OperationId::new(f.clock.now(), [n; 10]), operation)
                .await
                .unwrap();
            assert!(kinds_of(answer).iter().all(Option::is_none));
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let filter = Default::default();
    assert_eq!(f.found(&f.alice, "/open", filter, 0).await.len(), 1 + 3 + 15 + 20);
    f.audit().await;
}

#[tokio::test]
async fn a_token_makes_directories_in_its_subtree_only() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/in", 1, 0o755).await;
    let scoped = f.scoped("alice", "/alice/in", true);
    let denied = Some(ErrorKind::Denied);
    for parents in [false, true] {
        let operation = mkdir([&format!("/alice/in/{parents}"), "/alice/out", "/alice/inn"], parents);
        assert_eq!(kinds(&f, &scoped, operation).await, [None, denied, denied]);
    }
    let reader = f.scoped("alice", "/", false);
    assert_eq!(f.refusal(&reader, mkdir(["/alice/x"], true)).await, ErrorKind::Denied);
}
