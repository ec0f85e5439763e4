//! Uploads from reservation to commit: places, choice of storage elements, quota, expiry, repeats,
//! concurrency.

use std::sync::Arc;

use crate::fixture::{Fixture, account, guid, lfn, mode, se_name};
use exacat_catalogue::{Caller, Settings};
use exacat_model::answer::Upload;
use exacat_model::operation::{Owner, SeChoice, SeSettings};
use exacat_model::{
    Answer, Checksum, Checksums, Cursor, ErrorKind, Guid, Operation, OperationId, Result, SeStatus, Usage,
    UserId,
};
use exacat_store::UsageOf;
use exacat_testkit::settings;

const CERN: &str = "X::CERN::DISK";
const FNAL: &str = "X::FNAL::DISK";

fn wanted(names: &[&str]) -> SeChoice {
    SeChoice { wanted: names.iter().map(|name| se_name(name)).collect(), ..SeChoice::default() }
}

fn reserve(path: &str, size: u64, choice: SeChoice) -> Operation {
    reserve_with(path, None, size, Checksums::none(), choice)
}

fn reserve_with(
    path: &str,
    guid: Option<Guid>,
    size: u64,
    checksums: Checksums,
    choice: SeChoice,
) -> Operation {
    Operation::UploadReserve {
        lfn: lfn(path),
        guid,
        size,
        checksums,
        job: None,
        choice: Box::new(choice),
        lifetime_seconds: None,
    }
}

fn commit(guid: Guid, se: &str, size: u64) -> Operation {
    Operation::UploadCommit { guid, se: se_name(se), size, checksums: Checksums::none() }
}

fn upload(answer: Answer) -> Upload {
    match answer {
        Answer::Upload(upload) => *upload,
        answer => panic!("{answer:?}"),
    }
}

async fn reserved(f: &Fixture, caller: &Caller, operation: Operation) -> Upload {
    upload(f.get(caller, operation).await)
}

fn targets(upload: &Upload) -> Vec<&str> {
    upload.targets.iter().map(|target| target.se.as_str()).collect()
}

async fn reserved_usage(f: &Fixture, user: u32) -> Usage {
    f.catalogue.store().usage(&[UsageOf::User(UserId(user))]).await.unwrap()[0].reserved
}

fn sum(text: &str) -> Checksums {
    Checksums::one(Checksum::parse(text).unwrap())
}

#[tokio::test]
async fn from_reservation_to_a_file_with_two_replicas() {
    let f = Fixture::new().await;
    let up = reserved(
        &f,
        &f.alice,
        reserve_with("/alice/new/file", None, 10, sum("adler32:1"), wanted(&[CERN, FNAL])),
    )
    .await;
    let guid = up.reservation.guid;
    assert_eq!(targets(&up), [CERN, FNAL]);
    assert!(
        up.targets[0].pfn.starts_with("root://cern//d/") && up.targets[0].pfn.ends_with(&guid.to_string())
    );
    assert_eq!(reserved_usage(&f, 1).await.replica_bytes, 20);
    // Nothing is visible yet, not even the parent.
    assert!(!f.is_there("/alice/new").await);
    f.get(&f.alice, commit(guid, FNAL, 10)).await;
    let entry = f.entry("/alice/new/file").await.unwrap();
    assert_eq!((entry.owner, entry.mode, entry.size()), (UserId(1), mode(0o644), Some(10)));
    assert_eq!(entry.file().unwrap().checksums, sum("adler32:1"));
    assert_eq!(entry.file().unwrap().replicas.len(), 1);
    assert_eq!(reserved_usage(&f, 1).await.replica_bytes, 10);
    // The file may have been moved before the second commit.
    f.get(&f.alice, Operation::Move { from: lfn("/alice/new/file"), to: lfn("/alice/moved") }).await;
    f.get(&f.alice, commit(guid, CERN, 10)).await;
    assert_eq!(f.entry("/alice/moved").await.unwrap().file().unwrap().replicas.len(), 2);
    assert!(reserved_usage(&f, 1).await.is_empty());
    assert_eq!(f.refusal(&f.alice, commit(guid, CERN, 10)).await, ErrorKind::NotFound);
    f.audit().await;
}

#[tokio::test]
async fn where_an_upload_may_go() {
    let f = Fixture::new().await;
    f.plant_file("/alice/there", 1, 0o644, 10, vec![]).await;
    let elsewhere = f.plant_file("/alice/other", 1, 0o644, 10, vec![]).await;
    f.plant_file("/alice/thrown", 1, 0o644, 10, vec![]).await;
    let thrown = f.entry("/alice/thrown").await.unwrap().guid().unwrap();
    f.remove(&f.alice, "/alice/thrown").await.unwrap();
    let one = || wanted(&[CERN]);
    for (path, guid, kind) in [
        ("/", None, ErrorKind::Invalid),
        ("/alice/there", None, ErrorKind::Exists),
        ("/alice/there", Some(guid(1000)), ErrorKind::Exists),
        ("/alice", None, ErrorKind::Exists),
        ("/alice/there/below", None, ErrorKind::NotDirectory),
        ("/bob/new", None, ErrorKind::Denied),
        ("/bob/new/below", None, ErrorKind::Denied),
        ("/alice/new", Some(elsewhere), ErrorKind::Exists),
        ("/alice/new", Some(thrown), ErrorKind::Exists),
    ] {
        let operation = reserve_with(path, guid, 10, Checksums::none(), one());
        assert_eq!(f.refusal(&f.alice, operation).await, kind, "{path} {guid:?}");
    }
    // A caller's own GUID is kept; another user's reservation of it fails.
    let up =
        reserved(&f, &f.alice, reserve_with("/alice/new", Some(guid(7000)), 10, Checksums::none(), one()))
            .await;
    assert_eq!(up.reservation.guid, guid(7000));
    let theft = reserve_with("/bob/new", Some(guid(7000)), 10, Checksums::none(), one());
    assert_eq!(f.refusal(&f.bob, theft).await, ErrorKind::Exists);
    f.audit().await;
}

#[tokio::test]
async fn further_replicas_of_a_file_that_is_there() {
    let f = Fixture::new().await;
    let up = reserved(&f, &f.alice, reserve_with("/alice/file", None, 10, sum("adler32:1"), wanted(&[CERN])))
        .await;
    let guid = up.reservation.guid;
    f.get(&f.alice, commit(guid, CERN, 10)).await;
    let more = |size: u64, sums: Checksums, choice: SeChoice| {
        reserve_with("/alice/file", Some(guid), size, sums, choice)
    };
    for (operation, kind) in [
        (more(11, Checksums::none(), wanted(&[FNAL])), ErrorKind::Conflict),
        (more(10, sum("adler32:2"), wanted(&[FNAL])), ErrorKind::Conflict),
        (more(10, Checksums::none(), wanted(&[CERN])), ErrorKind::Exists),
    ] {
        assert_eq!(f.refusal(&f.alice, operation.clone()).await, kind, "{operation:?}");
    }
    assert_eq!(f.refusal(&f.bob, more(10, Checksums::none(), wanted(&[FNAL]))).await, ErrorKind::Denied);
    // Without a choice, the reservation skips an SE that has the file already.
    let up = reserved(&f, &f.alice, more(10, sum("adler32:1"), SeChoice::default())).await;
    assert_eq!((targets(&up), up.reservation.exists), (vec![FNAL], true));
    assert_eq!((reserved_usage(&f, 1).await.bytes, reserved_usage(&f, 1).await.replica_bytes), (0, 10));
    f.get(&f.alice, commit(guid, FNAL, 10)).await;
    assert_eq!(f.entry("/alice/file").await.unwrap().file().unwrap().replicas.len(), 2);
    f.audit().await;
}

#[tokio::test]
async fn what_was_written_must_be_what_was_reserved() {
    let f = Fixture::new().await;
    let up = reserved(&f, &f.alice, reserve_with("/alice/file", None, 10, sum("adler32:1"), wanted(&[CERN])))
        .await;
    let guid = up.reservation.guid;
    assert_eq!(f.refusal(&f.alice, commit(guid, CERN, 9)).await, ErrorKind::Conflict);
    let other = Operation::UploadCommit { guid, se: se_name(CERN), size: 10, checksums: sum("adler32:2") };
    assert_eq!(f.refusal(&f.alice, other).await, ErrorKind::Conflict);
    assert_eq!(f.refusal(&f.alice, commit(guid, FNAL, 10)).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.alice, commit(guid, "X::NO::SE", 10)).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.bob, commit(guid, CERN, 10)).await, ErrorKind::Denied);
    let scoped = f.scoped("alice", "/open", true);
    assert_eq!(f.refusal(&scoped, commit(guid, CERN, 10)).await, ErrorKind::Denied);
    assert!(!f.is_there("/alice/file").await);
    // An admin may commit for the owner, and the parents are the owner's.
    let up = reserved(&f, &f.alice, reserve("/alice/a/b", 10, wanted(&[CERN]))).await;
    f.get(&f.admin, commit(up.reservation.guid, CERN, 10)).await;
    assert_eq!(f.entry("/alice/a").await.unwrap().owner, UserId(1));
    assert_eq!(f.entry("/alice/a/b").await.unwrap().owner, UserId(1));
    f.audit().await;
}

#[tokio::test]
async fn the_name_goes_to_whoever_commits_first() {
    let f = Fixture::new().await;
    let first = reserved(&f, &f.alice, reserve("/open/name", 10, wanted(&[CERN]))).await.reservation.guid;
    let second = reserved(&f, &f.bob, reserve("/open/name", 20, wanted(&[CERN]))).await.reservation.guid;
    f.get(&f.bob, commit(second, CERN, 20)).await;
    assert_eq!(f.refusal(&f.alice, commit(first, CERN, 10)).await, ErrorKind::Exists);
    // The loser's copy is aborted, and queued for deletion.
    f.get(&f.alice, Operation::UploadAbort { guid: first, se: None }).await;
    assert!(reserved_usage(&f, 1).await.is_empty());
    let deletions = Operation::SeDeletions { name: se_name(CERN), cursor: Cursor::default(), limit: 0 };
    let Answer::Deletions { items, .. } = f.get(&f.op, deletions).await else { panic!() };
    assert_eq!(items.iter().map(|item| item.guid).collect::<Vec<_>>(), [first]);
    f.audit().await;
}

#[tokio::test]
async fn a_reservation_ends_in_time() {
    let f = Fixture::with(Settings {
        reservation_seconds: 100,
        reservation_seconds_max: 1000,
        ..Settings::default()
    })
    .await;
    let lasting = |seconds: Option<u64>| Operation::UploadReserve {
        lfn: lfn("/alice/file"),
        guid: None,
        size: 10,
        checksums: Checksums::none(),
        job: None,
        choice: Box::new(wanted(&[CERN])),
        lifetime_seconds: seconds,
    };
    assert_eq!(f.refusal(&f.alice, lasting(Some(0))).await, ErrorKind::Invalid);
    assert_eq!(f.refusal(&f.alice, lasting(Some(1001))).await, ErrorKind::Limit);
    let long = reserved(&f, &f.alice, lasting(Some(1000))).await.reservation;
    let short = reserved(&f, &f.alice, lasting(None)).await.reservation;
    assert_eq!(short.expires, short.created.plus_ms(100_000));
    f.clock.turn(99_999);
    assert_eq!(f.catalogue.expired_reservations_step().await.unwrap().done, 0);
    f.clock.turn(1);
    assert_eq!(f.refusal(&f.alice, commit(short.guid, CERN, 10)).await, ErrorKind::NotFound);
    let report = f.catalogue.expired_reservations_step().await.unwrap();
    assert_eq!((report.done, report.more), (1, false));
    assert_eq!(f.catalogue.expired_reservations_step().await.unwrap().done, 0);
    assert_eq!(reserved_usage(&f, 1).await.files, 1);
    f.get(&f.alice, commit(long.guid, CERN, 10)).await;
    f.audit().await;
}

#[tokio::test]
async fn quota_is_reserved_and_given_back_exactly() {
    let f = Fixture::new().await;
    let quota = |files, bytes, replica_bytes| Operation::QuotaSet {
        owner: Owner::User(account("alice")),
        files,
        bytes,
        replica_bytes,
    };
    f.get(&f.op, quota(None, Some(100), None)).await;
    let first = reserved(&f, &f.alice, reserve("/alice/1", 60, wanted(&[CERN]))).await.reservation.guid;
    assert_eq!(f.refusal(&f.alice, reserve("/alice/2", 41, wanted(&[CERN]))).await, ErrorKind::Quota);
    let second = reserved(&f, &f.alice, reserve("/alice/2", 40, wanted(&[CERN]))).await.reservation.guid;
    assert_eq!(f.refusal(&f.alice, reserve("/alice/3", 1, wanted(&[CERN]))).await, ErrorKind::Quota);
    f.get(&f.alice, commit(first, CERN, 60)).await;
    assert_eq!(f.refusal(&f.alice, reserve("/alice/3", 1, wanted(&[CERN]))).await, ErrorKind::Quota);
    f.get(&f.alice, Operation::UploadAbort { guid: second, se: None }).await;
    f.get(&f.op, quota(Some(2), Some(100), Some(80))).await;
    // One more file fits; of replica bytes, one replica of 20.
    assert_eq!(f.refusal(&f.alice, reserve("/alice/3", 20, wanted(&[CERN, FNAL]))).await, ErrorKind::Quota);
    reserved(&f, &f.alice, reserve("/alice/3", 20, wanted(&[FNAL]))).await;
    assert_eq!(f.refusal(&f.alice, reserve("/alice/4", 0, wanted(&[CERN]))).await, ErrorKind::Quota);
    f.audit().await;
}

#[tokio::test]
async fn reservation_again_moves_what_is_pending() {
    let f = Fixture::new().await;
    let again =
        |choice: SeChoice| reserve_with("/alice/file", Some(guid(7000)), 10, Checksums::none(), choice);
    let first = reserved(&f, &f.alice, again(wanted(&[CERN]))).await;
    f.clock.turn(1000);
    // The same place: the reservation is extended, the PFN stays.
    let second = reserved(&f, &f.alice, again(wanted(&[CERN]))).await;
    assert_eq!(first.targets, second.targets);
    assert!(second.reservation.expires > first.reservation.expires);
    // Another place: the possibly written copy at the first is queued for deletion.
    let third =
        reserved(&f, &f.alice, again(SeChoice { excluded: vec![se_name(CERN)], ..SeChoice::default() }))
            .await;
    assert_eq!(targets(&third), [FNAL]);
    assert_eq!(reserved_usage(&f, 1).await.replica_bytes, 10);
    let deletions =
        |se: &str| Operation::SeDeletions { name: se_name(se), cursor: Cursor::default(), limit: 0 };
    let Answer::Deletions { items, .. } = f.get(&f.op, deletions(CERN)).await else { panic!() };
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].pfn, first.targets[0].pfn);
    // Back to the first: not to the PFN that waits for deletion.
    let fourth = reserved(&f, &f.alice, again(wanted(&[CERN]))).await;
    assert_ne!(fourth.targets[0].pfn, first.targets[0].pfn);
    f.get(&f.alice, commit(guid(7000), CERN, 10)).await;
    let Answer::Deletions { items, .. } = f.get(&f.op, deletions(CERN)).await else { panic!() };
    assert_eq!(items[0].pfn, first.targets[0].pfn);
    // Once it is deleted, the PFN can be used again.
    f.get(&f.op, Operation::SeDeleted { name: se_name(CERN), done: vec![items[0].id] }).await;
    f.audit().await;
}

/// Goal: a refused second reservation changes nothing of the first. Method: elsewhere, and over
/// quota.
#[tokio::test]
async fn reservation_again_in_vain_leaves_the_reservation_as_it_was() {
    let f = Fixture::new().await;
    let again = |size: u64, choice: SeChoice| {
        reserve_with("/alice/file", Some(guid(7000)), size, Checksums::none(), choice)
    };
    let first = reserved(&f, &f.alice, again(10, wanted(&[CERN]))).await;
    let owner = Owner::User(account("alice"));
    f.get(&f.op, Operation::QuotaSet { owner, files: None, bytes: Some(10), replica_bytes: None }).await;
    assert_eq!(f.refusal(&f.alice, again(11, wanted(&[FNAL]))).await, ErrorKind::Quota);
    let Answer::Uploads { items, .. } =
        f.get(&f.alice, Operation::UploadList { cursor: Cursor::default(), limit: 0 }).await
    else {
        panic!()
    };
    assert_eq!(items, [first]);
    let deletions = Operation::SeDeletions { name: se_name(CERN), cursor: Cursor::default(), limit: 0 };
    let Answer::Deletions { items, .. } = f.get(&f.op, deletions).await else { panic!() };
    assert_eq!(items, []);
    f.get(&f.alice, commit(guid(7000), CERN, 10)).await;
    f.audit().await;
}

#[tokio::test]
async fn a_repeat_of_a_reservation_is_that_reservation() {
    let f = Fixture::new().await;
    let id = f.operation_id();
    let operation = reserve("/alice/file", 10, wanted(&[CERN, FNAL]));
    let ask = |id: OperationId, operation: Operation| {
        let f = &f;
        async move { f.catalogue.execute(&f.alice, id, operation).await }
    };
    let first = ask(id, operation.clone()).await.unwrap();
    assert_eq!(ask(id, operation.clone()).await.unwrap(), first);
    let guid = upload(first).reservation.guid;
    f.get(&f.alice, commit(guid, CERN, 10)).await;
    // This same upload has taken the name by now.
    let again = upload(ask(id, operation.clone()).await.unwrap());
    assert_eq!((again.reservation.guid, targets(&again)), (guid, vec![FNAL]));
    // Another user must not learn of it by the id.
    let theft: Result<Answer> = f.catalogue.execute(&f.bob, id, operation.clone()).await;
    assert!(theft.is_err());
    // A storage element that went offline does not change the reservation.
    let settings = SeSettings { status: Some(SeStatus::Offline), ..settings::se(FNAL) };
    f.get(&f.op, Operation::SeSet(settings)).await;
    assert_eq!(upload(ask(id, operation.clone()).await.unwrap()).reservation.guid, guid);
    // Commits of the last replica too.
    let last = f.operation_id();
    let first = ask(last, commit(guid, FNAL, 10)).await.unwrap();
    assert_eq!(ask(last, commit(guid, FNAL, 10)).await.unwrap(), first);
    assert_eq!(ask(id, operation).await.unwrap_err().kind, ErrorKind::NotFound);
    f.audit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_commits_at_once_make_one_file() {
    let f = Arc::new(Fixture::new().await);
    for number in 0..20 {
        let path = format!("/alice/deep/{number}/file");
        let up = reserved(&f, &f.alice, reserve(&path, 10, wanted(&[CERN, FNAL]))).await;
        let mut tasks = Vec::new();
        for se in [CERN, FNAL, CERN, FNAL] {
            let f = f.clone();
            tasks.push(tokio::spawn(
                async move { f.ask(&f.alice, commit(up.reservation.guid, se, 10)).await },
            ));
        }
        let mut done = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => done += 1,
                Err(error) => assert_eq!(error.kind, ErrorKind::NotFound, "{error}"),
            }
        }
        assert_eq!(done, 2);
        assert_eq!(f.entry(&path).await.unwrap().file().unwrap().replicas.len(), 2);
    }
    f.audit().await;
}

#[tokio::test]
async fn giving_up_whole_or_in_part() {
    let f = Fixture::new().await;
    let guid =
        reserved(&f, &f.alice, reserve("/alice/file", 10, wanted(&[CERN, FNAL]))).await.reservation.guid;
    let abort = |se: Option<&str>| Operation::UploadAbort { guid, se: se.map(se_name) };
    assert_eq!(f.refusal(&f.bob, abort(None)).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.alice, abort(Some("X::CERN::TAPE"))).await, ErrorKind::NotFound);
    f.get(&f.alice, abort(Some(CERN))).await;
    assert_eq!(reserved_usage(&f, 1).await.replicas, 1);
    assert_eq!(f.refusal(&f.alice, abort(Some(CERN))).await, ErrorKind::NotFound);
    f.get(&f.op, abort(None)).await;
    assert!(reserved_usage(&f, 1).await.is_empty());
    assert_eq!(f.refusal(&f.alice, abort(None)).await, ErrorKind::NotFound);
    f.audit().await;
}

#[tokio::test]
async fn reservations_are_listed_to_their_owners_in_pages() {
    let f = Fixture::new().await;
    let mut mine = Vec::new();
    for number in 0..7 {
        mine.push(
            reserved(&f, &f.alice, reserve(&format!("/open/{number}"), 1, wanted(&[CERN])))
                .await
                .reservation
                .guid,
        );
        reserved(&f, &f.bob, reserve(&format!("/open/b{number}"), 1, wanted(&[CERN]))).await;
    }
    mine.sort();
    let list = |limit: u32| Operation::UploadList { cursor: Cursor::default(), limit };
    for limit in [1, 2, 3, 7, 8, 0] {
        let mut seen = Vec::new();
        f.pages(&f.alice, list(limit), |answer| match answer {
            Answer::Uploads { items, .. } => seen.extend(items.into_iter().map(|item| item.reservation.guid)),
            answer => panic!("{answer:?}"),
        })
        .await;
        assert_eq!(seen, mine, "{limit}");
    }
    let mut all = 0;
    f.pages(&f.op, list(5), |answer| match answer {
        Answer::Uploads { items, .. } => all += items.len(),
        answer => panic!("{answer:?}"),
    })
    .await;
    assert_eq!(all, 14);
}
