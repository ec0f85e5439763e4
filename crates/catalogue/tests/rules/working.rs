//! Background work (expiry and purge) step by step, interrupted and concurrent; and the check of
//! the whole catalogue.

use std::sync::Arc;

use crate::fixture::{Fixture, derived, guid, lfn};
use exacat_catalogue::Settings;
use exacat_model::operation::{Existing, NewFile, SeChoice};
use exacat_model::{
    Answer, Checksums, Cursor, DirId, Edit, ErrorKind, Expect, File, FileRef, GroupId, Location, Mutation,
    NewBody, Operation, Replica, ReplicaState, SeNumber, TimeMs, UserId,
};
use exacat_store::{Request, UsageOf};

async fn expire(f: &Fixture, path: &str, at: u64) {
    f.edit(path, vec![Edit::Expires(Some(TimeMs(at)))]).await;
}

async fn trash(f: &Fixture) -> Vec<String> {
    match f.get(&f.admin, Operation::TrashList { cursor: Cursor::default(), limit: 0 }).await {
        Answer::Trash { items, .. } => items.into_iter().map(|(item, _)| item.lfn.to_string()).collect(),
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn entries_expire_into_the_trash() {
    let f = Fixture::new().await;
    let now = exacat_store::Clock::now(&f.clock).0;
    f.plant("/alice/directory", 1, 0o755, NewBody::Directory).await;
    f.plant_file("/alice/directory/below", 1, 0o644, 1, vec![]).await;
    f.plant_file("/alice/file", 1, 0o644, 1, vec![]).await;
    f.plant_file("/alice/later", 1, 0o644, 1, vec![]).await;
    // Below a directory that expires too: it goes with the directory, and is not searched again.
    expire(&f, "/alice/directory/below", now + 11).await;
    expire(&f, "/alice/directory", now + 10).await;
    expire(&f, "/alice/file", now + 12).await;
    expire(&f, "/alice/later", now + 1000).await;
    f.clock.turn(9);
    assert_eq!(f.catalogue.expired_entries_step().await.unwrap().done, 0);
    f.clock.turn(11);
    let report = f.catalogue.expired_entries_step().await.unwrap();
    assert_eq!((report.done, report.more), (2, false));
    assert_eq!(trash(&f).await, ["/alice/directory", "/alice/file"]);
    assert_eq!(f.catalogue.expired_entries_step().await.unwrap().done, 0);
    assert!(f.is_there("/alice/later").await);
    f.audit().await;
}

#[tokio::test]
async fn more_than_one_step_of_entries() {
    let f = Fixture::new().await;
    let now = exacat_store::Clock::now(&f.clock).0;
    let files = (0..1100)
        .map(|number| NewFile {
            expires: Some(TimeMs(now + number)),
            ..NewFile::named(lfn(&format!("/alice/{number}")))
        })
        .collect();
    f.get(&f.alice, Operation::Register { files, parents: false, existing: Existing::Refuse }).await;
    // The root never goes, whatever its expiry, and does not block other entries.
    f.apply(
        0,
        vec![Mutation::Update {
            at: exacat_model::At { parent: DirId::ROOT, name: exacat_model::Name::root() },
            expect: Expect::ANY,
            edits: vec![Edit::Expires(Some(TimeMs(1)))],
        }],
    )
    .await;
    f.clock.turn(10_000);
    let mut done = Vec::new();
    loop {
        let report = f.catalogue.expired_entries_step().await.unwrap();
        done.push(report.done);
        if !report.more {
            break;
        }
        assert!(done.len() < 10, "{done:?}");
    }
    assert_eq!(done.iter().sum::<u64>(), 1100, "{done:?}");
    assert!(f.is_there("/alice").await);
    f.audit().await;
}

#[tokio::test]
async fn old_trash_is_purged_oldest_first_at_a_pace() {
    let settings = Settings {
        trash_seconds: Some(100),
        purge_step_entries: 7,
        purge_entries_per_second: 1000,
        ..Settings::default()
    };
    let f = Fixture::with(settings).await;
    f.plant("/alice/tree", 1, 0o755, NewBody::Directory).await;
    for directory in 0..3 {
        f.plant(&format!("/alice/tree/{directory}"), 1, 0o755, NewBody::Directory).await;
        for file in 0..5 {
            let replicas = vec![derived(1, ReplicaState::Available)];
            f.plant_file(&format!("/alice/tree/{directory}/{file}"), 1, 0o644, 10, replicas).await;
        }
    }
    for number in 0..5 {
        f.plant_file(&format!("/alice/{number}"), 1, 0o644, 10, vec![]).await;
        f.remove(&f.alice, &format!("/alice/{number}")).await.unwrap();
    }
    f.remove(&f.alice, "/alice/tree").await.unwrap();
    f.clock.turn(50_000);
    f.plant_file("/alice/young", 1, 0o644, 10, vec![]).await;
    f.remove(&f.alice, "/alice/young").await.unwrap();
    f.clock.turn(49_999);
    assert_eq!(f.catalogue.trash_purge_step().await.unwrap(), Default::default());
    f.clock.turn(1);
    let mut total = 0;
    let mut steps = 0;
    loop {
        let report = f.catalogue.trash_purge_step().await.unwrap();
        assert!(report.done <= 8, "{report:?}");
        assert_eq!(report.pause_ms, report.done);
        total += report.done;
        steps += 1;
        f.audit().await;
        if !report.more {
            break;
        }
        assert!(steps < 20);
    }
    assert_eq!(total, 5 + 1 + 3 + 15);
    assert!(steps >= 3);
    assert_eq!(trash(&f).await, ["/alice/young"]);
    let store = f.catalogue.store();
    let waiting = store.usage(&[UsageOf::Deletions(SeNumber(1))]).await.unwrap()[0].usage;
    assert_eq!(waiting.replica_bytes, 150);
}

#[tokio::test]
async fn trash_that_is_kept_for_ever_is() {
    let f = Fixture::with(Settings { trash_seconds: None, ..Settings::default() }).await;
    f.plant_file("/alice/file", 1, 0o644, 10, vec![]).await;
    f.remove(&f.alice, "/alice/file").await.unwrap();
    f.clock.turn(i64::MAX / 2);
    assert_eq!(f.catalogue.trash_purge_step().await.unwrap(), Default::default());
    assert_eq!(trash(&f).await.len(), 1);
}

/// Goal: concurrent steps from several tasks, while users continue, do nothing twice and lose
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn steps_at_the_same_time_do_nothing_twice() {
    let settings = Settings { trash_seconds: Some(1), purge_step_entries: 5, ..Settings::default() };
    let f = Arc::new(Fixture::with(settings).await);
    let now = exacat_store::Clock::now(&f.clock).0;
    for number in 0..40 {
        let path = format!("/alice/{number}");
        f.plant(&path, 1, 0o755, NewBody::Directory).await;
        f.plant_file(&format!("{path}/file"), 1, 0o644, 10, vec![derived(1, ReplicaState::Available)]).await;
        expire(&f, &path, now + 1).await;
    }
    f.clock.turn(10);
    let steps = |f: Arc<Fixture>, purge: bool| async move {
        let mut done = 0;
        for _ in 0..1000 {
            let report = match purge {
                true => f.catalogue.trash_purge_step().await.unwrap(),
                false => f.catalogue.expired_entries_step().await.unwrap(),
            };
            done += report.done;
            tokio::task::yield_now().await;
            if !report.more {
                break;
            }
        }
        done
    };
    let tasks: Vec<_> = (0..4).map(|_| tokio::spawn(steps(f.clone(), false))).collect();
    let mut removed = 0;
    for task in tasks {
        removed += task.await.unwrap();
    }
    assert_eq!(removed, 40);
    f.clock.turn(1000);
    let tasks: Vec<_> = (0..4).map(|_| tokio::spawn(steps(f.clone(), true))).collect();
    let mut purged = 0;
    for task in tasks {
        purged += task.await.unwrap();
    }
    purged += steps(f.clone(), true).await;
    assert_eq!(purged, 80);
    let waiting = f.catalogue.store().usage(&[UsageOf::Deletions(SeNumber(1))]).await.unwrap()[0].usage;
    assert_eq!(waiting.replicas, 40);
    f.audit().await;
}

/// Goal: an entry stays if its expiry is extended between the read and the removal.
#[tokio::test]
async fn an_expiry_put_off_in_time_holds() {
    let f = Fixture::new().await;
    let now = exacat_store::Clock::now(&f.clock).0;
    f.plant_file("/alice/file", 1, 0o644, 10, vec![]).await;
    expire(&f, "/alice/file", now + 1).await;
    f.clock.turn(10);
    let due = f.catalogue.store().due(TimeMs(now + 10), 10).await.unwrap().entries;
    expire(&f, "/alice/file", now + 1000).await;
    // The request of a step that read before.
    let stale = Mutation::Remove {
        at: due[0].at.clone(),
        expect: Expect { id: Some(due[0].id()), revision: Some(due[0].revision) },
        only_empty: false,
        lfn: lfn("/alice/file"),
    };
    let request = Request::new(f.operation_id(), UserId::ADMIN, vec![stale]);
    let outcome = f.catalogue.store().apply(request).await.unwrap();
    assert!(matches!(outcome[0], exacat_store::Outcome::Refused(exacat_store::Refusal::Stale)));
    assert_eq!(f.catalogue.expired_entries_step().await.unwrap().done, 0);
    assert!(f.is_there("/alice/file").await);
}

#[tokio::test]
async fn the_check_finds_what_refers_to_nothing() {
    let f = Fixture::new().await;
    let fsck = || async {
        match f.get(&f.op, Operation::Fsck).await {
            Answer::Fsck(audit) => audit,
            answer => panic!("{answer:?}"),
        }
    };
    f.plant("/alice/directory", 1, 0o755, NewBody::Directory).await;
    let archive =
        f.plant_file("/alice/directory/zip", 1, 0o644, 10, vec![derived(1, ReplicaState::Available)]).await;
    let mut member = NewFile::named(lfn("/alice/member"));
    member.member_of = Some((FileRef::Guid(archive), "x".to_owned()));
    f.get(&f.alice, Operation::Register { files: vec![member], parents: false, existing: Existing::Refuse })
        .await;
    f.remove(&f.alice, "/alice/directory").await.unwrap();
    let audit = fsck().await;
    assert_eq!(audit.findings_total, 0, "{audit:?}");
    let checked = |name: &str| {
        let found = audit.checked.iter().find(|(what, _)| what == name);
        found.unwrap_or_else(|| panic!("{name} is not among {:?}", audit.checked)).1
    };
    assert_eq!(checked("archive members"), 1);
    assert_eq!(checked("archive members whose archive is gone"), 0);
    assert_eq!(checked("records: user"), 5);
    assert_eq!(checked("records: SE"), 4);
    // Entries of missing accounts, directly to the store, because no rule allows them.
    let file = |number: u64, owner: u32, group: u32| {
        let file = File {
            guid: guid(number),
            size: None,
            checksums: Checksums::none(),
            job: None,
            replicas: vec![Replica {
                se: SeNumber::NONE,
                state: ReplicaState::Available,
                location: Location::Member { archive: guid(99_999), member: "gone".to_owned() },
            }],
        };
        Mutation::Create(Box::new(exacat_model::NewEntry {
            at: exacat_model::At {
                parent: DirId::ROOT,
                name: exacat_model::Name::parse(&number.to_string()).unwrap(),
            },
            owner: UserId(owner),
            group: GroupId(group),
            mode: exacat_model::Mode::FILE,
            created: None,
            modified: None,
            expires: None,
            tags: Vec::new(),
            body: NewBody::File(file),
        }))
    };
    f.apply(0, vec![file(5001, 77, 1), file(5002, 1, 78)]).await;
    let audit = fsck().await;
    let found: Vec<&str> = audit.findings.iter().map(|finding| finding.what.as_str()).collect();
    assert_eq!(found, ["owner", "group"], "{audit:?}");
    assert!(audit.checked.contains(&("archive members whose archive is gone".to_owned(), 2)), "{audit:?}");
    assert_eq!(f.refusal(&f.alice, Operation::Fsck).await, ErrorKind::Denied);
}

#[tokio::test]
async fn the_status_has_the_figures() {
    let f = Fixture::new().await;
    f.plant_file("/alice/file", 1, 0o644, 10, vec![derived(1, ReplicaState::Available)]).await;
    let Answer::Status(parts) = f.get(&f.op, Operation::Status).await else { panic!() };
    assert_eq!(
        parts.iter().map(|part| part.part.as_str()).collect::<Vec<_>>(),
        ["catalogue", "store", "clock"]
    );
    for (name, value) in [
        ("users", 5),
        ("groups", 6),
        ("storage_elements", 4),
        ("storage_elements_online", 2),
        ("files", 1),
        ("replica_bytes", 10),
    ] {
        assert!(parts[0].metrics.contains(&(name.to_owned(), value)), "{name}: {:?}", parts[0].metrics);
    }
}

/// The sums have no more storage elements than their caller asks for, and each its own.
#[tokio::test]
async fn sums_have_a_bounded_number_of_storage_elements() {
    let f = Fixture::new().await;
    f.plant_file("/alice/file", 1, 0o644, 10, vec![derived(1, ReplicaState::Available)]).await;
    let sums = f.catalogue.sums(3).await.unwrap();
    assert_eq!((sums.tree.files, sums.tree.replicas, sums.ses.len()), (1, 1, 3));
    for one in &sums.ses {
        let expected = u64::from(one.se.number == SeNumber(1));
        assert_eq!((one.replicas.replicas, one.deletions.replicas), (expected, 0), "{}", one.se.name);
    }
    assert_eq!(f.catalogue.sums(100).await.unwrap().ses.len(), 4);
}

/// Goal: a metric that is not counted to its end says so.
#[tokio::test]
async fn the_status_says_where_it_stops_counting() {
    let f = Fixture::new().await;
    let notes = || async {
        let Answer::Status(parts) = f.get(&f.op, Operation::Status).await else { panic!() };
        let count = parts[0].metrics.iter().find(|(name, _)| name == "reservations_to_release").unwrap().1;
        let notes = parts[0].notes.iter().filter(|note| !note.starts_with("timeline "));
        (count, notes.cloned().collect::<Vec<String>>())
    };
    let reserve = |number: u64| Operation::UploadReserve {
        lfn: lfn(&format!("/alice/{number}")),
        guid: None,
        size: 1,
        checksums: Checksums::none(),
        job: None,
        choice: Box::new(SeChoice::default()),
        lifetime_seconds: Some(1),
    };
    for number in 0..999 {
        f.get(&f.alice, reserve(number)).await;
    }
    f.clock.turn(1000);
    assert_eq!(notes().await, (999, Vec::new()));
    for number in 999..1002 {
        f.get(&f.alice, reserve(number)).await;
    }
    f.clock.turn(1000);
    let (count, notes) = notes().await;
    assert_eq!((count, notes.len()), (1000, 1));
    assert!(notes[0].starts_with("reservations_to_release: 1000 or more"), "{notes:?}");
}
