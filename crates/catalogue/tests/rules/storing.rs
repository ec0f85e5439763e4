//! Storage elements: their registry, files and deletion queues, and the choice for an upload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use exacat_catalogue::{Catalogue, Settings};
use tokio::sync::Notify;

use crate::fixture::{Fixture, account, derived, guid, lfn, se_name};
use exacat_model::limits::{QOS_PER_SE_MAX, REPLICAS_PER_RESERVATION_MAX};
use exacat_model::operation::{Existing, NewFile, NewReplica, SeChoice, SeSettings};
use exacat_model::{
    Answer, Checksums, Cursor, DeletionId, Edit, ErrorKind, HasRevision, Operation, Record, RecordKey,
    RecordKind, ReplicaState, Result, Revision, SeNumber, SeStatus,
};
use exacat_store::{Page, RecordEntry, Store};
use exacat_testkit::{Before, Fronted, settings};

async fn ses(f: &Fixture) -> Vec<exacat_model::answer::SeUsage> {
    match f.get(&f.alice, Operation::SeList).await {
        Answer::Ses(items) => items,
        answer => panic!("{answer:?}"),
    }
}

async fn se(f: &Fixture, name: &str) -> Option<exacat_model::Se> {
    ses(f).await.into_iter().map(|item| item.se).find(|se| se.name == se_name(name))
}

#[tokio::test]
async fn adding_and_changing() {
    let f = Fixture::new().await;
    let new = SeSettings {
        prefix: Some("root://new//d".to_owned()),
        qos: Some(vec![account("tape"), account("disk"), account("disk")]),
        distances: vec![(account("FNAL"), 2), (account("CERN"), 1)],
        only_new: true,
        ..settings::se("Y::NEW::SE")
    };
    f.get(&f.op, Operation::SeSet(new.clone())).await;
    let made = se(&f, "Y::NEW::SE").await.unwrap();
    assert_eq!((made.number, made.status), (SeNumber(5), SeStatus::Online));
    assert_eq!(made.qos, [account("disk"), account("tape")]);
    assert_eq!(made.distances, [(account("CERN"), 1), (account("FNAL"), 2)]);
    assert_eq!(f.refusal(&f.op, Operation::SeSet(new)).await, ErrorKind::Exists);
    // Omitted fields and sites keep their values.
    let change = SeSettings {
        status: Some(SeStatus::ReadOnly),
        distances: vec![(account("CERN"), 7), (account("KISTI"), 9)],
        ..settings::se("Y::NEW::SE")
    };
    f.get(&f.op, Operation::SeSet(change)).await;
    let changed = se(&f, "Y::NEW::SE").await.unwrap();
    assert_eq!(
        (changed.number, changed.status, changed.prefix.as_str()),
        (SeNumber(5), SeStatus::ReadOnly, "root://new//d")
    );
    assert_eq!(changed.distances, [(account("CERN"), 7), (account("FNAL"), 2), (account("KISTI"), 9)]);
    // An update without changes succeeds.
    let before = f.catalogue.store().revision().await.unwrap();
    f.get(&f.op, Operation::SeSet(SeSettings { number: Some(5), ..settings::se("Y::NEW::SE") })).await;
    assert_eq!(f.catalogue.store().revision().await.unwrap(), before);
    for (bad, kind) in [
        (SeSettings { number: Some(6), ..settings::se("Y::NEW::SE") }, ErrorKind::Invalid),
        (SeSettings { number: Some(1), ..settings::se("Y::OTHER::SE") }, ErrorKind::Exists),
        (SeSettings { number: Some(0), ..settings::se("Y::OTHER::SE") }, ErrorKind::Invalid),
        (
            SeSettings { prefix: Some("root://x/".to_owned()), ..settings::se("Y::OTHER::SE") },
            ErrorKind::Invalid,
        ),
        (
            SeSettings { prefix: Some("root://x y".to_owned()), ..settings::se("Y::OTHER::SE") },
            ErrorKind::Invalid,
        ),
        (
            SeSettings {
                qos: Some((0..=QOS_PER_SE_MAX).map(|number| account(&format!("q{number}"))).collect()),
                ..settings::se("Y::OTHER::SE")
            },
            ErrorKind::Limit,
        ),
        (settings::se("gone-7"), ErrorKind::Invalid),
    ] {
        assert_eq!(f.refusal(&f.op, Operation::SeSet(bad.clone())).await, kind, "{bad:?}");
    }
    f.get(&f.op, Operation::SeSet(SeSettings { number: Some(100), ..settings::se("Y::OTHER::SE") })).await;
    f.get(&f.op, Operation::SeSet(settings::se("Y::THIRD::SE"))).await;
    assert_eq!(se(&f, "Y::THIRD::SE").await.unwrap().number, SeNumber(101));
}

#[tokio::test]
async fn numbers_run_out_and_are_not_given_twice() {
    let f = Fixture::new().await;
    f.get(&f.op, Operation::SeSet(settings::se("Y::A::SE"))).await;
    f.get(&f.op, Operation::SeDrop { name: se_name("Y::A::SE") }).await;
    assert!(se(&f, "Y::A::SE").await.is_none());
    assert!(ses(&f).await.iter().all(|item| !item.se.name.as_str().starts_with("gone-")));
    assert_eq!(f.refusal(&f.op, Operation::SeDrop { name: se_name("Y::A::SE") }).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.op, Operation::SeDrop { name: se_name("gone-5") }).await, ErrorKind::Invalid);
    f.get(&f.op, Operation::SeSet(settings::se("Y::A::SE"))).await;
    assert_eq!(se(&f, "Y::A::SE").await.unwrap().number, SeNumber(6));
    // An operator may choose a used number again, and knows what is on the tapes.
    f.get(&f.op, Operation::SeSet(SeSettings { number: Some(5), ..settings::se("Y::B::SE") })).await;
    assert_eq!(se(&f, "Y::B::SE").await.unwrap().number, SeNumber(5));
    f.get(&f.op, Operation::SeSet(SeSettings { number: Some(u16::MAX), ..settings::se("Y::LAST::SE") }))
        .await;
    assert_eq!(f.refusal(&f.op, Operation::SeSet(settings::se("Y::OVER::SE"))).await, ErrorKind::Limit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_added_at_once_get_numbers_of_their_own() {
    let f = Arc::new(Fixture::new().await);
    let mut tasks = Vec::new();
    for number in 0..12 {
        let f = f.clone();
        let add =
            Operation::SeSet(SeSettings { only_new: true, ..settings::se(&format!("Y::{number}::SE")) });
        tasks.push(tokio::spawn(async move { f.ask(&f.op, add).await }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let numbers: BTreeMap<SeNumber, _> =
        ses(&f).await.into_iter().map(|item| (item.se.number, item.se.name)).collect();
    assert_eq!(numbers.len(), 16);
}

/// Storage elements that are added at once.
const FIRST: &str = "Y::A::SE";
const SECOND: &str = "Y::B::SE";

/// Front that keeps back the first page of records with the first storage element, after it was read.
struct Held(Arc<Signals>);

#[derive(Default)]
struct Signals {
    is_armed: AtomicBool,
    read: Notify,
    go_on: Notify,
}

#[async_trait]
impl Before for Held {
    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Page<RecordEntry>> {
        let page = store.records(kind, after, limit).await?;
        let is_first =
            |item: &RecordEntry| matches!(&item.record, Record::Se(se) if se.name == se_name(FIRST));
        if page.items.iter().any(is_first) && self.0.is_armed.swap(false, Ordering::SeqCst) {
            self.0.read.notify_one();
            self.0.go_on.notified().await;
        }
        Ok(page)
    }
}

/// Property: names that were read earlier do not replace later ones, if that read ends last.
#[tokio::test]
async fn slow_read_of_names_forgets_nothing() {
    let f = Arc::new(Fixture::new().await);
    let signals = Arc::new(Signals::default());
    let store = Arc::new(Fronted::new(Held(Arc::clone(&signals)), f.store.clone()));
    let catalogue = Catalogue::open(store, f.clock.shared(), Settings::default()).await.unwrap();
    let add = |name: &str| {
        let (f, catalogue, operation) =
            (Arc::clone(&f), catalogue.clone(), Operation::SeSet(settings::se(name)));
        async move { catalogue.execute(&f.op, f.operation_id(), operation).await.unwrap() }
    };
    signals.is_armed.store(true, Ordering::SeqCst);
    let slow = tokio::spawn(add(FIRST));
    signals.read.notified().await;
    tokio::time::timeout(Duration::from_secs(60), add(SECOND)).await.expect("the other one waits for none");
    signals.go_on.notify_one();
    slow.await.unwrap();
    let Answer::Ses(found) = catalogue.execute(&f.op, f.operation_id(), Operation::SeList).await.unwrap()
    else {
        panic!("another answer");
    };
    for name in [FIRST, SECOND] {
        assert!(found.iter().any(|item| item.se.name == se_name(name)), "{name} is forgotten");
    }
}

#[tokio::test]
async fn one_that_holds_anything_is_not_dropped() {
    let f = Fixture::new().await;
    f.plant_file("/alice/file", 1, 0o644, 10, vec![derived(1, ReplicaState::Available)]).await;
    let drop_it = || Operation::SeDrop { name: se_name("X::CERN::DISK") };
    assert_eq!(f.refusal(&f.op, drop_it()).await, ErrorKind::Exists);
    f.edit("/alice/file", vec![Edit::DropReplica { se: SeNumber(1), delete: true }]).await;
    assert_eq!(f.refusal(&f.op, drop_it()).await, ErrorKind::Exists);
    let items = deletions(&f, "X::CERN::DISK").await;
    f.get(&f.op, Operation::SeDeleted { name: se_name("X::CERN::DISK"), done: vec![items[0].id] }).await;
    f.get(&f.op, drop_it()).await;
    f.audit().await;
}

async fn deletions(f: &Fixture, name: &str) -> Vec<exacat_model::answer::DeletionAt> {
    let mut all = Vec::new();
    let operation = Operation::SeDeletions { name: se_name(name), cursor: Cursor::default(), limit: 3 };
    f.pages(&f.op, operation, |answer| match answer {
        Answer::Deletions { items, .. } => all.extend(items),
        answer => panic!("{answer:?}"),
    })
    .await;
    all
}

#[tokio::test]
async fn files_and_deletions_are_listed_in_pages() {
    let f = Fixture::new().await;
    for number in 0..10 {
        let replicas = vec![derived(1, ReplicaState::Available), derived(2, ReplicaState::Available)];
        f.plant_file(&format!("/alice/{number}"), 1, 0o600, 10, replicas).await;
    }
    f.remove(&f.alice, "/alice/9").await.unwrap();
    for limit in [1, 3, 0] {
        let mut seen = Vec::new();
        let operation =
            Operation::SeFiles { name: se_name("X::CERN::DISK"), cursor: Cursor::default(), limit };
        f.pages(&f.op, operation, |answer| match answer {
            Answer::Entries { items, ses, .. } => {
                if !items.is_empty() {
                    assert_eq!(ses.len(), 2);
                }
                seen.extend(items.into_iter().map(|item| item.lfn.to_string()));
            }
            answer => panic!("{answer:?}"),
        })
        .await;
        seen.sort();
        // A file in the trash has no path; the usage still counts it.
        assert_eq!(seen, (0..9).map(|number| format!("/alice/{number}")).collect::<Vec<_>>());
    }
    assert_eq!(ses(&f).await[0].used.files, 10);
    for number in 0..7 {
        f.edit(&format!("/alice/{number}"), vec![Edit::DropReplica { se: SeNumber(1), delete: true }]).await;
    }
    let items = deletions(&f, "X::CERN::DISK").await;
    assert_eq!(items.len(), 7);
    assert!(items.iter().all(|item| item.pfn.starts_with("root://cern//d/") && item.size == Some(10)));
    assert_eq!(ses(&f).await[0].deletions.replica_bytes, 70);
    let done: Vec<_> = items.iter().take(6).map(|item| item.id).collect();
    let name = || se_name("X::CERN::DISK");
    f.get(&f.op, Operation::SeDeleted { name: name(), done: done.clone() }).await;
    assert_eq!(deletions(&f, "X::CERN::DISK").await.len(), 1);
    assert_eq!(f.refusal(&f.op, Operation::SeDeleted { name: name(), done }).await, ErrorKind::NotFound);
    let unknown = DeletionId { revision: Revision(1), index: 9 };
    let unknown = vec![f.store.timelines().name(unknown)];
    assert_eq!(
        f.refusal(&f.op, Operation::SeDeleted { name: name(), done: unknown }).await,
        ErrorKind::NotFound
    );
    // An id of a replaced timeline may now belong to another deletion.
    let replaced = vec![items[6].id.id.on(exacat_model::TimelineId([9; 16]).tag())];
    let done = Operation::SeDeleted { name: name(), done: replaced };
    assert_eq!(f.refusal(&f.op, done).await, ErrorKind::Conflict);
    assert_eq!(deletions(&f, "X::CERN::DISK").await.len(), 1);
    let foreign = Operation::SeDeletions { name: name(), cursor: Cursor(vec![1, 2, 3]), limit: 1 };
    assert_eq!(f.refusal(&f.op, foreign).await, ErrorKind::Invalid);
    f.audit().await;
}

/// Goal: a queued copy that is in use again must not be deleted, because that would lose data. Its
/// registration says that it exists and is wanted. So it leaves the queue, whichever file it was
/// of.
#[tokio::test]
async fn a_copy_in_use_again_is_not_deleted() {
    let f = Fixture::new().await;
    f.plant_file("/alice/file", 1, 0o644, 10, vec![derived(1, ReplicaState::Available)]).await;
    let drop = || f.edit("/alice/file", vec![Edit::DropReplica { se: SeNumber(1), delete: true }]);
    drop().await;
    let waiting = deletions(&f, "X::CERN::DISK").await.remove(0);
    let register = |path: &str, pfn: Option<&str>| {
        let pfn = pfn.map(|pfn| exacat_model::Pfn::parse(pfn).unwrap());
        let replica = NewReplica { se: se_name("X::CERN::DISK"), pfn, state: ReplicaState::Available };
        let files = vec![NewFile { replicas: vec![replica], ..NewFile::named(lfn(path)) }];
        Operation::Register { files, parents: false, existing: Existing::Merge }
    };
    f.get(&f.alice, register("/alice/file", None)).await;
    assert!(deletions(&f, "X::CERN::DISK").await.is_empty());
    let done = Operation::SeDeleted { name: se_name("X::CERN::DISK"), done: vec![waiting.id] };
    assert_eq!(f.refusal(&f.op, done).await, ErrorKind::NotFound, "the deleter is told that it was wanted");
    drop().await;
    assert_eq!(deletions(&f, "X::CERN::DISK").await.len(), 1);
    f.get(&f.alice, register("/alice/other", Some(&waiting.pfn))).await;
    assert!(deletions(&f, "X::CERN::DISK").await.is_empty());
    assert_eq!(ses(&f).await[0].deletions.replicas, 0);
    let Answer::Fsck(audit) = f.get(&f.op, Operation::Fsck).await else { panic!() };
    assert_eq!(audit.findings_total, 0, "{audit:?}");
}

/// Requests, and the storage elements chosen: exactly, or one of a set, or the kind of error.
#[tokio::test]
async fn the_choice_of_storage_elements() {
    let f = Fixture::new().await;
    // CERN::DISK (1) and FNAL::DISK (2) are online, CERN::TAPE (3) is read-only, GONE::DISK (4)
    // offline.
    for (name, qos) in [
        ("X::CERN::DISK", "disk"),
        ("X::FNAL::DISK", "disk"),
        ("X::CERN::TAPE", "tape"),
        ("X::GONE::DISK", "disk"),
    ] {
        f.get(&f.op, Operation::SeSet(SeSettings { qos: Some(vec![account(qos)]), ..settings::se(name) }))
            .await;
    }
    let far = SeSettings {
        prefix: Some("root://far//d".to_owned()),
        qos: Some(vec![account("disk"), account("ssd")]),
        distances: vec![(account("CERN"), 50)],
        ..settings::se("X::FAR::DISK")
    };
    f.get(&f.op, Operation::SeSet(far)).await;
    let bare = SeSettings { qos: Some(vec![account("bare")]), ..settings::se("X::BARE::DISK") };
    f.get(&f.op, Operation::SeSet(bare)).await;
    let parse = |text: &str| {
        let mut choice = SeChoice::default();
        for part in text.split_whitespace() {
            if let Some(site) = part.strip_prefix('@') {
                choice.site = Some(account(site));
            } else if let Some(name) = part.strip_prefix('!') {
                choice.excluded.push(se_name(&format!("X::{name}")));
            } else if let Some((qos, count)) = part.split_once('=') {
                choice.qos.push((account(qos), count.parse().unwrap()));
            } else {
                choice.wanted.push(se_name(&format!("X::{part}")));
            }
        }
        choice
    };
    let cases = [
        ("@CERN", Ok("CERN::DISK")),
        ("@FNAL", Ok("FNAL::DISK")),
        ("@CERN !CERN::DISK", Ok("FNAL::DISK")),
        ("@CERN !CERN::DISK !FNAL::DISK", Ok("FAR::DISK")),
        ("!CERN::DISK !FNAL::DISK !FAR::DISK", Err(ErrorKind::Unavailable)),
        ("@CERN disk=2", Ok("CERN::DISK FNAL::DISK")),
        ("@CERN disk=3", Ok("CERN::DISK FNAL::DISK FAR::DISK")),
        ("@CERN disk=4", Err(ErrorKind::Unavailable)),
        ("@CERN disk=0", Ok("CERN::DISK")),
        ("@CERN ssd=1 disk=1", Ok("FAR::DISK CERN::DISK")),
        ("@CERN FAR::DISK disk=1", Ok("FAR::DISK CERN::DISK")),
        ("@CERN CERN::DISK disk=1", Ok("CERN::DISK FNAL::DISK")),
        ("FNAL::DISK FNAL::DISK", Ok("FNAL::DISK")),
        ("FNAL::DISK !FNAL::DISK", Err(ErrorKind::Invalid)),
        ("!NO::SE FNAL::DISK", Ok("FNAL::DISK")),
        ("NO::SE", Err(ErrorKind::NotFound)),
        ("CERN::TAPE", Err(ErrorKind::Unavailable)),
        ("GONE::DISK", Err(ErrorKind::Unavailable)),
        ("tape=1", Err(ErrorKind::Unavailable)),
        ("glass=1", Err(ErrorKind::NotFound)),
        ("BARE::DISK", Err(ErrorKind::Invalid)),
        ("bare=1", Err(ErrorKind::Unavailable)),
        ("disk=4000000000", Err(ErrorKind::Limit)),
    ];
    for (index, (text, expected)) in cases.into_iter().enumerate() {
        let operation = Operation::UploadReserve {
            lfn: lfn(&format!("/alice/{index}")),
            guid: None,
            size: 1,
            checksums: Checksums::none(),
            job: None,
            choice: Box::new(parse(text)),
            lifetime_seconds: None,
        };
        match (f.ask(&f.alice, operation).await, expected) {
            (Ok(Answer::Upload(upload)), Ok(names)) => {
                let chosen: std::collections::BTreeSet<String> =
                    upload.targets.iter().map(|target| target.se.to_string()).collect();
                let names = names.split(' ').map(|name| format!("X::{name}")).collect();
                assert_eq!(chosen, names, "{text}");
            }
            (Err(error), Err(kind)) => assert_eq!(error.kind, kind, "{text}: {error}"),
            (answer, expected) => panic!("{text}: {answer:?}, not {expected:?}"),
        }
    }
    f.audit().await;
}

#[tokio::test]
async fn without_a_site_uploads_spread_evenly() {
    let f = Fixture::new().await;
    let mut chosen: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..400 {
        let operation = Operation::UploadReserve {
            lfn: lfn(&format!("/alice/{number}")),
            guid: Some(guid(10_000 + number)),
            size: 1,
            checksums: Checksums::none(),
            job: None,
            choice: Box::new(SeChoice::default()),
            lifetime_seconds: None,
        };
        let Answer::Upload(upload) = f.get(&f.alice, operation).await else { panic!() };
        *chosen.entry(upload.targets[0].se.to_string()).or_default() += 1;
    }
    // The GUIDs are fixed, so the choice is the same on every run.
    assert_eq!(chosen.len(), 2);
    assert!(chosen.values().all(|count| (150..=250).contains(count)), "{chosen:?}");
}

#[tokio::test]
async fn replicas_of_one_reservation_have_a_limit() {
    let f = Fixture::new().await;
    let mut names = Vec::new();
    for number in 0..=REPLICAS_PER_RESERVATION_MAX {
        let name = format!("Y::{number}::SE");
        f.get(
            &f.op,
            Operation::SeSet(SeSettings { prefix: Some("root://y//d".to_owned()), ..settings::se(&name) }),
        )
        .await;
        names.push(se_name(&name));
    }
    let reserve = |wanted: &[exacat_model::SeName]| Operation::UploadReserve {
        lfn: lfn("/alice/file"),
        guid: None,
        size: 1,
        checksums: Checksums::none(),
        job: None,
        choice: Box::new(SeChoice { wanted: wanted.to_vec(), ..SeChoice::default() }),
        lifetime_seconds: None,
    };
    f.get(&f.alice, reserve(&names[..REPLICAS_PER_RESERVATION_MAX])).await;
    assert_eq!(f.refusal(&f.alice, reserve(&names)).await, ErrorKind::Limit);
}

/// Goal: the record that keeps a dropped number taken has no rights and no use.
#[tokio::test]
async fn what_keeps_a_number_taken_is_inert() {
    let f = Fixture::new().await;
    f.get(&f.op, Operation::SeSet(settings::se("Y::A::SE"))).await;
    f.get(&f.op, Operation::SeDrop { name: se_name("Y::A::SE") }).await;
    match f.catalogue.store().record(RecordKey::Se(SeNumber(5))).await.unwrap() {
        Some((Record::Se(se), _)) => assert_eq!((se.name.as_str(), se.status), ("gone-5", SeStatus::Offline)),
        record => panic!("{record:?}"),
    }
    // A lower number leaves no record, because new numbers follow the highest.
    f.get(&f.op, Operation::SeDrop { name: se_name("X::GONE::DISK") }).await;
    assert!(f.catalogue.store().record(RecordKey::Se(SeNumber(4))).await.unwrap().is_none());
}
