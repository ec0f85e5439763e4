//! Bulk load: the result equals that of creating files one by one, and a power cut leaves whole
//! records of it.

use std::sync::Arc;

use exacat_model::{
    AccountName, At, Change, Checksum, ChecksumAlgorithm, Checksums, DirId, EntryId, ErrorKind, File,
    GroupId, Guid, Location, Mode, Mutation, Name, NewBody, NewEntry, Quota, QuotaOf, Record, Replica,
    ReplicaState, Revision, SeNumber, TimeMs, User, UserId,
};
use exacat_store::{Outcome, Store, UsageOf};
use parking_lot::Mutex;

use super::workload::Workload;
use super::{
    apply, assert_sound, guid, history, mkdir, open, operation, remove, request, se, try_open, without_runs,
};
use crate::{EmbeddedStore, LoadSettings};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

/// Settings with small runs and little memory, so that there are several runs and sorted parts.
const SMALL: LoadSettings = LoadSettings { sort_bytes: 8 << 10, run_rows: 70 };

/// Returns a new file of random shape.
fn new_file(random: &mut Random, number: u64, directory: DirId, name: &str) -> NewEntry {
    let mut checksums = Checksums::none();
    if random.chance(2) {
        checksums = Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &[number as u8; 16]).unwrap());
    }
    // A load puts nothing on storage elements with queued deletions.
    let first = if random.chance(5) { 1 } else { 4 };
    let replicas: Vec<Replica> = (0..random.next(4))
        .map(|se| Replica {
            se: SeNumber(first + se as u16),
            state: if random.chance(5) { ReplicaState::Lost } else { ReplicaState::Available },
            location: Location::Derived,
        })
        .collect();
    NewEntry {
        at: At { parent: directory, name: Name::parse(name).unwrap() },
        owner: UserId(random.next(3) as u32),
        group: GroupId(random.next(2) as u32),
        mode: Mode::FILE,
        created: None,
        modified: None,
        expires: None,
        tags: Vec::new(),
        body: NewBody::File(File {
            guid: guid(1_000_000 + number),
            size: Some(random.next(1 << 30)),
            checksums,
            job: Some(number),
            replicas,
        }),
    }
}

/// Returns files, each with its number. Their directories may exist or not, their names may be free
/// or taken, their GUIDs new or not.
fn any_files(random: &mut Random, count: u64) -> Vec<(u64, NewEntry)> {
    let mut files = Vec::new();
    for number in 0..count {
        // Most files go to directories that certainly have entries.
        let directory = if random.chance(2) { DirId::ROOT } else { DirId(2 + random.next(12)) };
        let name = match random.next(6) {
            0 => format!("name-{}", random.next(24)),
            1 => format!("twice-{}", random.next(10)),
            _ => format!("new-{number}"),
        };
        let mut file = new_file(random, number, directory, &name);
        if let (NewBody::File(file), true) = (&mut file.body, random.chance(12)) {
            // The GUID may exist, be in the trash, purged or reserved, or belong to another of
            // these files.
            file.guid =
                if random.chance(2) { guid(random.next(60)) } else { guid(1_000_000 + random.next(count)) };
        }
        files.push((number, file));
    }
    files
}

/// Loads files; returns the numbers that were left, including files that were not taken.
async fn load(
    store: &EmbeddedStore,
    files: &[(u64, NewEntry)],
    settings: LoadSettings,
) -> exacat_model::Result<(u64, Vec<u64>)> {
    let loader = store.loader(settings)?;
    let mut left = Vec::new();
    for part in files.chunks(50) {
        let took = loader.take(part.iter().cloned())?;
        left.extend(part.iter().zip(took).filter(|(_, took)| !took).map(|((number, _), _)| *number));
    }
    let further = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&further);
    let loaded = store.load(loader, UserId(0), move |number| noted.lock().push(number)).await?;
    left.extend(further.lock().iter());
    left.sort_unstable();
    Ok((loaded, left))
}

/// Returns the content that does not depend on times: entries, accounts, counters.
async fn content(store: &EmbeddedStore) -> Vec<String> {
    let mut found = Vec::new();
    for directory in 0..40 {
        let Some(page) = store.list(DirId(directory), None, 1000).await.unwrap() else { continue };
        for mut entry in page.items {
            let located = store.locate(&[entry.id()]).await.unwrap().remove(0).unwrap();
            assert_eq!(located.entry, entry, "found by what it is as by its name");
            (entry.revision, entry.created, entry.modified) = (Revision(0), TimeMs(0), TimeMs(0));
            found.push(format!("{entry:?}"));
        }
        found.push(format!("{directory} {:?}", store.usage(&[UsageOf::Directory(DirId(directory))]).await));
    }
    for number in 0..8 {
        let of = [
            UsageOf::User(UserId(number)),
            UsageOf::Group(GroupId(number)),
            UsageOf::Se(SeNumber(number as u16)),
        ];
        found.push(format!("{number} {:?}", store.usage(&of).await));
        let (mut on, mut cursor): (Vec<Guid>, Vec<u8>) = (Vec::new(), Vec::new());
        loop {
            let (page, next) = store.replicas_on(SeNumber(number as u16), &cursor, 1000).await.unwrap();
            on.extend(page.items.iter().map(|replica| replica.guid));
            if !page.more {
                break;
            }
            cursor = next;
        }
        on.sort_unstable();
        found.push(format!("{on:?}"));
    }
    found
}

/// Returns a store whose history has every kind of change.
async fn lived_in(disk: &SimulatedDisk, seed: u64) -> Arc<EmbeddedStore> {
    let store = open(disk);
    apply(&store, 2_000_000, (4..8).map(se).collect()).await;
    let mut workload = Workload::new(seed);
    for _ in 0..60 {
        store.apply(workload.request()).await.unwrap();
    }
    store
}

async fn create(store: &EmbeddedStore, number: u64, file: NewEntry) -> Outcome {
    let id = 1_000_000 + number;
    store.apply(request(id, vec![Mutation::Create(Box::new(file))])).await.unwrap().remove(0)
}

/// Goal: the same result. Method: stores with a history, hostile files. One loads and then creates
/// the files that were left, the other creates all in the order of keys. All of their content is
/// compared, and each with itself opened from the log alone.
#[tokio::test]
async fn a_load_leaves_what_creating_one_by_one_leaves() {
    for seed in 0..25 {
        let (disk, mut random) = (SimulatedDisk::new(), Random(seed));
        drop(lived_in(&disk, seed).await);
        let files = any_files(&mut random, 50 + 40 * (seed % 8));
        let one_by_one = disk.copy();
        let store = open(&disk);
        let settings = if seed % 3 == 0 { LoadSettings::default() } else { SMALL };
        let before = store.revision().await.unwrap();
        let (loaded, left) = load(&store, &files, settings).await.unwrap();
        assert!(loaded > 10, "seed {seed}: {loaded} were loaded");
        assert_eq!(loaded + left.len() as u64, files.len() as u64, "seed {seed}");
        assert_eq!(store.revision().await.unwrap().0, before.0 + loaded, "seed {seed}: all of it is durable");
        assert_sound(&store).await;
        let mut refused = Vec::new();
        for number in &left {
            let outcome = create(&store, *number, files[*number as usize].1.clone()).await;
            refused.extend(matches!(outcome, Outcome::Refused(_)).then_some(*number));
        }
        let other = open(&one_by_one);
        let mut other_refused = Vec::new();
        // Files that were left may depend on others, so they come last in the other store too.
        let taken = files.iter().filter(|(number, _)| left.binary_search(number).is_err());
        let last = left.iter().map(|number| &files[*number as usize]);
        for (number, file) in taken.chain(last) {
            match create(&other, *number, file.clone()).await {
                Outcome::Applied { .. } => {}
                Outcome::Refused(_) => other_refused.push(*number),
                Outcome::Unchanged => panic!("nothing is made twice"),
            }
        }
        assert_eq!(refused, other_refused, "seed {seed}");
        assert_eq!(content(&store).await, content(&other).await, "seed {seed}");
        assert_sound(&store).await;
        let wanted = (history(&store, 33).await, store.digest().await.unwrap(), content(&store).await);
        drop(store);
        assert!(disk.files("").iter().all(|path| !path.starts_with("/data/load")), "nothing temporary stays");
        without_runs(&disk);
        let store = open(&disk);
        assert_eq!(wanted, (history(&store, 33).await, store.digest().await.unwrap(), content(&store).await));
    }
}

/// Goal: every file that is not plain is left, and every plain one is loaded. Method: one file for
/// each reason, and a plain one beside it.
#[tokio::test]
async fn what_is_not_plain_is_left() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, vec![se(1), se(2), mkdir(DirId::ROOT, "in"), mkdir(DirId::ROOT, "gone")]).await;
    let (inside, gone) = (DirId(2), DirId(3));
    let mut random = Random(3);
    let plain = |random: &mut Random, number: u64, name: &str| NewEntry {
        owner: UserId(7),
        group: GroupId(8),
        body: NewBody::File(File {
            guid: guid(number),
            size: Some(10),
            checksums: Checksums::none(),
            job: None,
            replicas: Vec::new(),
        }),
        ..new_file(random, number, inside, name)
    };
    let on = |mut file: NewEntry, se: u16| {
        if let NewBody::File(file) = &mut file.body {
            let (state, location) = (ReplicaState::Available, Location::Derived);
            file.replicas = vec![Replica { se: SeNumber(se), state, location }];
        }
        file
    };
    let mut there = on(plain(&mut random, 1, "there"), 1);
    there.owner = UserId(0);
    apply(&store, 2, vec![Mutation::Create(Box::new(there)), mkdir(inside, "sub")]).await;
    // This queues a deletion on SE 2.
    let deleted = on(plain(&mut random, 2, "deleted"), 2);
    apply(&store, 3, vec![Mutation::Create(Box::new(deleted)), remove(inside, "deleted")]).await;
    apply(&store, 4, vec![remove(DirId::ROOT, "gone")]).await;
    let trash = store.trash(None, 10).await.unwrap().items;
    let item = trash.iter().find(|item| item.entry.directory().is_none()).unwrap();
    apply(&store, 5, vec![Mutation::Purge(exacat_model::PurgeTarget::Item(item.id))]).await;
    let quota = Quota { of: QuotaOf::User(UserId(9)), files: Some(2), bytes: None, replica_bytes: None };
    let record = Mutation::SetRecord {
        record: Box::new(Record::Quota(quota)),
        expect: exacat_model::ExpectRecord::Any,
    };
    let user = User {
        id: UserId(9),
        name: AccountName::parse("limited").unwrap(),
        group: GroupId(0),
        groups: Vec::new(),
        roles: Vec::new(),
        may_become: Vec::new(),
        subjects: Vec::new(),
        home: None,
        disabled: false,
    };
    let user =
        Mutation::SetRecord { record: Box::new(Record::User(user)), expect: exacat_model::ExpectRecord::Any };
    apply(&store, 6, vec![user, record]).await;
    let whose = |mut file: NewEntry| {
        file.owner = UserId(9);
        file
    };
    let mut files = vec![
        (true, plain(&mut random, 10, "a")),
        (false, plain(&mut random, 11, "there")),
        (false, plain(&mut random, 12, "sub")),
        (false, plain(&mut random, 1, "guid in use")),
        (true, plain(&mut random, 13, "same name")),
        (false, plain(&mut random, 14, "same name")),
        (false, plain(&mut random, 15, "guid twice")),
        (false, plain(&mut random, 15, "guid twice as well")),
        (false, on(plain(&mut random, 16, "no such SE"), 77)),
        (false, on(plain(&mut random, 17, "perhaps to be deleted"), 2)),
        (true, on(plain(&mut random, 18, "on an SE"), 1)),
        (true, plain(&mut random, 2, "the GUID of what was purged")),
    ];
    files.extend([(
        false,
        NewEntry { at: At { parent: gone, name: Name::parse("x").unwrap() }, ..plain(&mut random, 20, "x") },
    )]);
    files.extend([(
        false,
        NewEntry {
            at: At { parent: DirId(99), name: Name::parse("x").unwrap() },
            ..plain(&mut random, 21, "x")
        },
    )]);
    for number in 0..3 {
        files.push((false, whose(plain(&mut random, 30 + number, &format!("over quota {number}")))));
    }
    let numbered: Vec<(u64, NewEntry)> = (0..).zip(files.iter().map(|(_, file)| file.clone())).collect();
    let (loaded, left) = load(&store, &numbered, LoadSettings::default()).await.unwrap();
    let wanted: Vec<u64> =
        (0..).zip(&files).filter(|(_, (loads, _))| !loads).map(|(number, _)| number).collect();
    assert_eq!((loaded, left), (4, wanted));
    assert_sound(&store).await;
    // Two files are within the quota, so their order does not matter.
    let within: Vec<(u64, NewEntry)> = numbered[14..16].to_vec();
    assert_eq!(load(&store, &within, LoadSettings::default()).await.unwrap(), (2, Vec::new()));
    assert_sound(&store).await;
}

async fn hold(disk: &SimulatedDisk) -> (Vec<Change>, u128) {
    let store = try_open(disk).unwrap_or_else(|error| panic!("a crash image is refused: {error}"));
    assert_sound(&store).await;
    (history(&store, 50).await, store.digest().await.unwrap())
}

/// Goal: a power cut leaves the first files of a load, whole, and everything before; loading again
/// completes it. Method: the power fails at every operation of a load. Images of the rest are
/// opened and audited. They are compared with the expected history, and with themselves without
/// runs.
#[tokio::test]
async fn a_load_may_be_cut_at_every_step() {
    let disk = SimulatedDisk::new();
    drop(lived_in(&disk, 9).await);
    let files = any_files(&mut Random(9), 200);
    let before = hold(&disk).await.0.len();
    let start = disk.copy();
    let whole = disk.copy();
    let store = open(&whole);
    let (loaded, _) = load(&store, &files, SMALL).await.unwrap();
    let wanted: Vec<_> = history(&store, 100).await.into_iter().map(|change| change.effect).collect();
    let content_wanted = content(&store).await;
    drop(store);
    assert!(loaded > 2 * SMALL.run_rows);
    let (mut partial, mut ended) = (0, false);
    for step in 1.. {
        let disk = start.copy();
        let store = open(&disk);
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + step)));
        let outcome = load(&store, &files, SMALL).await;
        if let Err(error) = &outcome {
            assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        }
        drop(store);
        for seed in 0..3 {
            let image = disk.image(&mut Random(seed));
            let (changes, digest) = hold(&image).await;
            assert!(
                image.files("").iter().all(|path| !path.starts_with("/data/load")),
                "nothing temporary stays"
            );
            if outcome.is_ok() {
                assert_eq!(changes.len(), wanted.len(), "step {step}: what was answered is there");
            }
            let bare = image.copy();
            without_runs(&bare);
            assert_eq!(hold(&bare).await, (changes.clone(), digest), "step {step}: runs matter");
            let count = changes.len();
            partial += u64::from(count > before && count < wanted.len());
            let effects = changes.into_iter().map(|change| without_times(change.effect));
            assert!(effects.eq(wanted.iter().take(count).cloned().map(without_times)), "step {step}");
            if step % 7 == 0 && seed == 0 {
                let store = open(&image);
                load(&store, &files, SMALL).await.unwrap();
                assert_eq!(content(&store).await, content_wanted, "step {step}: loading again completes it");
                assert_sound(&store).await;
            }
        }
        ended = outcome.is_ok();
        if ended {
            assert!(step > 30, "a load has more steps than {step}");
            break;
        }
    }
    assert!(ended && partial > 10, "{partial} images had a part of it");
}

fn without_times(effect: exacat_model::Effect) -> exacat_model::Effect {
    match effect {
        exacat_model::Effect::Created { mut entry } => {
            (entry.created, entry.modified) = (TimeMs(0), TimeMs(0));
            exacat_model::Effect::Created { entry }
        }
        other => other,
    }
}

/// Goal: an error of the disk in the middle loses nothing, and no reader sees half a state. Method:
/// each operation of a load fails once. The store answers correctly or not at all, and has
/// everything in the log after reopening.
#[tokio::test]
async fn an_error_in_the_middle_stops_the_store_or_nothing() {
    let start = SimulatedDisk::new();
    drop(lived_in(&start, 4).await);
    let files = any_files(&mut Random(4), 120);
    for step in (1..).step_by(3) {
        let disk = start.copy();
        let store = open(&disk);
        let before = store.digest().await.unwrap();
        let number = disk.operations() + step;
        disk.set_fault(Some(Fault::Once(number, std::io::ErrorKind::StorageFull)));
        let outcome = load(&store, &files, SMALL).await;
        match (outcome, store.digest().await) {
            (Err(_), Ok(digest)) => assert_eq!(digest, before, "step {step}: nothing was done"),
            (Err(_), Err(error)) => assert_eq!(error.kind, ErrorKind::Unavailable),
            (Ok(_), found) => assert_ne!(found.unwrap(), before, "step {step}"),
        }
        drop(store);
        disk.set_fault(None);
        let held = hold(&disk).await;
        without_runs(&disk);
        assert_eq!(hold(&disk).await, held, "step {step}");
        // The fault never came: every operation of a load had its turn.
        if disk.operations() < number {
            assert!(step > 30, "a load has more steps than {step}");
            break;
        }
    }
}

/// Goal: a load leaves an ordinary history in the log: a remembered request, and a restart of a
/// store that changed after it.
#[tokio::test]
async fn the_history_goes_on_after_a_load() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, (1..8).map(se).collect()).await;
    apply(&store, 3, vec![mkdir(DirId::ROOT, "in")]).await;
    let files: Vec<(u64, NewEntry)> = (0..300)
        .map(|number| {
            (number, new_file(&mut Random(number), number, DirId(2), &format!("f{:05}", 300 - number)))
        })
        .collect();
    assert_eq!(load(&store, &files, SMALL).await.unwrap(), (300, Vec::new()));
    let changes = history(&store, 40).await;
    assert_eq!(changes.len(), 308);
    let revisions: Vec<u64> = changes.iter().map(|change| change.revision.0).collect();
    assert!(revisions.iter().copied().eq(1..=308), "without gap");
    apply(&store, 2, vec![mkdir(DirId::ROOT, "after")]).await;
    let again = store.apply(request(2, vec![mkdir(DirId::ROOT, "after")])).await.unwrap();
    assert!(matches!(again[0], Outcome::Applied { revision: Revision(309), .. }), "{again:?}");
    let found = store.locate(&[EntryId::Object(guid(1_000_017))]).await.unwrap().remove(0).unwrap();
    assert_eq!(found.entry.at.name.as_str(), "f00283");
    let digest = store.digest().await.unwrap();
    drop(store);
    let store = open(&disk);
    assert_eq!(store.digest().await.unwrap(), digest);
    let again = store.apply(request(2, vec![mkdir(DirId::ROOT, "after")])).await.unwrap();
    assert!(matches!(again[0], Outcome::Applied { revision: Revision(309), .. }), "{again:?}");
    let id = changes.last().unwrap().operation;
    assert_ne!(id, operation(2));
    assert_sound(&store).await;
    assert_eq!(load(&store, &[], SMALL).await.unwrap(), (0, Vec::new()), "nothing is loaded of nothing");
    let empty = LoadSettings { run_rows: 0, ..SMALL };
    assert_eq!(store.loader(empty).err().unwrap().kind, ErrorKind::Invalid);
}
