//! Goal: every changing operation, repeated under the same operation id, gets the same answer and
//! changes nothing again. So a lost answer costs nothing.

use crate::fixture::{Fixture, lfn};
use crate::operations::{Target, World, operation, outcome};
use exacat_model::limits::{OPERATION_AGE_MAX_MS, OPERATION_AHEAD_MAX_MS};
use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Answer, Error, ErrorKind, Operation, OperationId, Result, TimeMs};
use exacat_store::{Clock, Store};

const TARGET: Target = Target { directory_mode: 0o755, file_mode: 0o644 };

/// Returns a caller with the right to the operation.
fn caller<'a>(world: &'a World, name: &str) -> &'a exacat_catalogue::Caller {
    match name {
        "se-set" | "se-drop" | "se-deleted" | "user-set" | "user-drop" | "group-add" | "group-drop"
        | "quota-set" => &world.fixture.admin,
        _ => &world.fixture.alice,
    }
}

#[tokio::test]
async fn every_write_asked_twice_is_done_once() {
    let mut writes = 0;
    for name in Operation::NAMES {
        let world = World::new(Fixture::new().await, TARGET).await;
        let asked = operation(&world, name);
        // The reference store keeps no snapshots; the embedded one's tests do these.
        if !asked.writes() || name.starts_with("snapshot-") || *name == *"backup" {
            continue;
        }
        writes += 1;
        let f = &world.fixture;
        let who = caller(&world, name);
        let id = f.operation_id();
        let first = f.catalogue.execute(who, id, asked.clone()).await;
        assert!(outcome(&first).starts_with("ok"), "{name}: {first:?}");
        let revision = f.catalogue.store().revision().await.unwrap();
        for _ in 0..3 {
            let again = f.catalogue.execute(who, id, asked.clone()).await;
            match (&first, &again) {
                // The secret is kept nowhere, so a repeat gets a new one.
                (
                    Ok(Answer::TokenIssued { token, secret }),
                    Ok(Answer::TokenIssued { token: same, secret: other }),
                ) => {
                    assert_eq!(token, same);
                    assert_ne!(secret, other);
                    assert!(f.catalogue.authenticate(secret).await.is_err());
                    assert!(f.catalogue.authenticate(other).await.is_ok());
                    continue;
                }
                // The number of purged entries is reported once, the end of the purge each time.
                (Ok(Answer::Purged { .. }), Ok(Answer::Purged { entries: 0, next: None })) => {}
                (Ok(Answer::CollectionEdited { .. }), Ok(Answer::CollectionEdited { refused, .. })) => {
                    assert!(refused.is_empty(), "{name}: {refused:?}");
                }
                _ => assert_eq!(first, again, "{name}"),
            }
            assert_eq!(
                f.catalogue.store().revision().await.unwrap(),
                revision,
                "{name} changed something again"
            );
        }
        f.audit().await;
    }
    assert!(writes > 20, "{writes}");
}

/// Goal: a repeat gets its first answer even after others have changed the world.
#[tokio::test]
async fn a_repeat_gets_its_answer_whatever_happened_since() {
    let world = World::new(Fixture::new().await, TARGET).await;
    let f = &world.fixture;
    for name in ["register", "mkdir", "link", "collection-create"] {
        let asked = operation(&world, name);
        let id = f.operation_id();
        let first = f.catalogue.execute(&f.alice, id, asked.clone()).await;
        assert_eq!(outcome(&first), "ok", "{name}");
        f.remove(&f.alice, "/place/here/new").await.unwrap();
        let again = f.catalogue.execute(&f.alice, id, asked).await;
        assert_eq!(first, again, "{name}");
        assert!(!f.is_there("/place/here/new").await, "{name} was done twice");
    }
    f.audit().await;
}

fn kind(answer: &Result<Answer>) -> ErrorKind {
    match answer {
        Ok(Answer::EachDone(items)) => items[0].as_ref().unwrap_err().kind,
        Ok(Answer::Registered(items)) => items[0].as_ref().unwrap_err().kind,
        other => other.as_ref().unwrap_err().kind,
    }
}

fn mkdir(path: &str) -> Operation {
    Operation::Mkdir { lfns: vec![lfn(path)], parents: false, mode: None }
}

fn register(path: &str) -> Operation {
    let files = vec![NewFile::named(lfn(path))];
    Operation::Register { files, parents: false, existing: Existing::Refuse }
}

fn mkdirs(paths: &[&str], parents: bool) -> Operation {
    Operation::Mkdir { lfns: paths.iter().map(|path| lfn(path)).collect(), parents, mode: None }
}

fn link(path: &str) -> Operation {
    Operation::Link { lfn: lfn(path), target: lfn("/open/c") }
}

fn register_with_parents(path: &str) -> Operation {
    let files = vec![NewFile::named(lfn(path))];
    Operation::Register { files, parents: true, existing: Existing::Refuse }
}

/// Goal: an id repeated with another operation is a conflict, never "done", and changes nothing.
/// Method: pairs of operations under one id, and the same operation from another user.
#[tokio::test]
async fn id_of_another_operation_is_a_conflict() {
    let f = Fixture::new().await;
    let pairs = [
        (mkdir("/open/a"), mkdir("/open/b")),
        (register("/open/c"), register("/open/b")),
        (register("/open/d"), Operation::Link { lfn: lfn("/open/b"), target: lfn("/open/c") }),
        (
            Operation::Move { from: lfn("/open/a"), to: lfn("/open/e") },
            Operation::Move { from: lfn("/open/c"), to: lfn("/open/b") },
        ),
        (
            Operation::Remove { lfn: lfn("/open/e"), recursive: true, directory: false },
            Operation::Remove { lfn: lfn("/open/c"), recursive: true, directory: false },
        ),
        // Operations of several steps, and others.
        (link("/open/g"), mkdir("/open/b")),
        (mkdir("/open/h"), link("/open/b")),
        (link("/open/i"), mkdirs(&["/open/b/b/b"], true)),
        (link("/open/m"), mkdirs(&["/open/b", "/open/b/n"], false)),
        (mkdirs(&["/open/o", "/open/o/p"], false), register("/open/b")),
        (mkdir("/open/q"), register_with_parents("/open/b/b/b")),
        (register_with_parents("/open/r/s"), mkdir("/open/b")),
    ];
    for (first, other) in pairs {
        let id = f.operation_id();
        let answer = f.catalogue.execute(&f.alice, id, first.clone()).await;
        let all_done = match &answer {
            Ok(Answer::EachDone(items)) => items.iter().all(Result::is_ok),
            one => outcome(one) == "ok",
        };
        assert!(all_done, "{first:?}: {answer:?}");
        let revision = f.store.revision().await.unwrap();
        for (caller, operation) in [(&f.alice, &other), (&f.admin, &first), (&f.admin, &other)] {
            let answer = f.catalogue.execute(caller, id, operation.clone()).await;
            assert_eq!(kind(&answer), ErrorKind::Conflict, "{operation:?}: {answer:?}");
        }
        assert_eq!(f.catalogue.execute(&f.alice, id, first.clone()).await, answer, "{first:?}");
        assert_eq!(f.store.revision().await.unwrap(), revision, "nothing was done");
        assert!(!f.is_there("/open/b").await, "{other:?}");
    }
    // Its repeat by another user finds everything made, so it changes nothing.
    let id = f.operation_id();
    let made = f.catalogue.execute(&f.alice, id, mkdirs(&["/open/j/k/l"], true)).await;
    assert_eq!(outcome(&made), "ok");
    assert_eq!(kind(&f.catalogue.execute(&f.alice, id, link("/open/b")).await), ErrorKind::Conflict);
    // Registrations that run together.
    let id = f.operation_id();
    let together = async |path: &str| {
        let files = vec![(id, NewFile::named(lfn(path)))];
        f.catalogue.register_each(&f.alice, files, false, Existing::Refuse).await.remove(0)
    };
    let first = together("/open/x").await;
    assert_eq!(outcome(&first), "ok");
    assert_eq!(kind(&together("/open/y").await), ErrorKind::Conflict);
    assert_eq!(together("/open/x").await, first);
    // The same operation is the same on both paths.
    assert_eq!(f.catalogue.execute(&f.alice, id, register("/open/x")).await, first);
    assert!(!f.is_there("/open/y").await);
    f.audit().await;
}

/// Goal: an id is accepted as long as a store remembers it, and no longer; an id from the future is
/// refused. Method: each limit, and one millisecond more.
#[tokio::test]
async fn ids_are_taken_up_to_their_age_and_the_clocks_difference() {
    let f = Fixture::new().await;
    let mut number = 0;
    let ids = |made: u64| OperationId::new(TimeMs(made), [7; 10]);
    for (ahead, refusal) in [
        (OPERATION_AHEAD_MAX_MS as i64, None),
        (OPERATION_AHEAD_MAX_MS as i64 + 1, Some((ErrorKind::Invalid, "server's time"))),
        (-(OPERATION_AGE_MAX_MS as i64), None),
        (-(OPERATION_AGE_MAX_MS as i64) - 1, Some((ErrorKind::Unknown, "too old"))),
    ] {
        let made = f.clock.now().0.checked_add_signed(ahead).unwrap();
        let check = |answer: Result<Answer>, path: String| {
            match &refusal {
                None => assert_eq!(outcome(&answer), "ok", "{path}"),
                Some((kind, text)) => {
                    let Error { kind: got, message, .. } = answer.unwrap_err();
                    assert_eq!(got, *kind, "{message}");
                    assert!(message.contains(text), "{message}");
                }
            }
            (path, refusal.is_none())
        };
        number += 1;
        let path = format!("/open/a{number}");
        let answer = f.catalogue.execute(&f.alice, ids(made), register(&path)).await;
        let (path, is_there) = check(answer, path);
        assert_eq!(f.is_there(&path).await, is_there);
        f.clock.turn(1_000_000);
        let path = format!("/open/b{number}");
        let id = ids(made + 1_000_000);
        let files = vec![(id, NewFile::named(lfn(&path)))];
        let answer = f.catalogue.register_each(&f.alice, files, false, Existing::Refuse).await.remove(0);
        let (path, is_there) = check(answer, path);
        assert_eq!(f.is_there(&path).await, is_there);
        f.clock.turn(1_000_000);
    }
}
