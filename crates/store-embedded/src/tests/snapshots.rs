//! Snapshots: their content while the store continues, their state after a power cut, and
//! differences of two.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use exacat_model::{
    Change, Cursor, Difference, DirId, Entry, EntryAt, EntryId, ErrorKind, Revision, SnapshotName,
};
use exacat_store::{ApplyError, EntryLocation, ResolutionEnd, Snapshots, Store};

use super::workload::Workload;
use super::{TestClock, apply, assert_sound, history, mkdir, open, request, settings};
use crate::EmbeddedStore;
use crate::settings::SNAPSHOTS_MAX;
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

pub(crate) fn name(text: &str) -> SnapshotName {
    SnapshotName::parse(text).unwrap()
}

/// Returns the id of a new request.
pub(crate) fn new_id() -> exacat_model::OperationId {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    super::operation(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

pub(crate) fn open_snapshot(disk: &SimulatedDisk, text: &str) -> exacat_model::Result<Arc<EmbeddedStore>> {
    let clock = Arc::new(TestClock::default());
    EmbeddedStore::open_snapshot_on(disk.shared(), settings(), &name(text), clock)
}

/// Sends requests; some are refused, which is part of the workload.
pub(crate) async fn drive(store: &EmbeddedStore, workload: &mut Workload, requests: u64) {
    drive_as(store, workload, requests, 0).await;
}

/// Sends requests with other operation ids for each `series`.
pub(crate) async fn drive_as(store: &EmbeddedStore, workload: &mut Workload, requests: u64, series: u8) {
    for number in 0..requests {
        let mut request = workload.request();
        request.operation.0[15] = series;
        store.apply(request).await.unwrap();
        if number % 9 == 4 {
            store.flush().await.unwrap();
        }
    }
}

/// Number of directories to look into: those that workloads make, and a few more.
const DIRECTORIES: u64 = 200;

/// Returns every entry by its place, in the tree and below the trash.
pub(crate) async fn entries(store: &EmbeddedStore) -> BTreeMap<(u64, Vec<u8>), Entry> {
    let mut all = BTreeMap::new();
    let root = store.resolve(&[exacat_model::Lfn::root()]).await.unwrap().remove(0);
    let ResolutionEnd::Found(root) = root.end else { panic!("there is a root") };
    all.insert((0, b"/".to_vec()), *root);
    for number in 1..DIRECTORIES {
        if let Some(page) = store.list(DirId(number), None, 1000).await.unwrap() {
            assert!(!page.more);
            for entry in page.items {
                all.insert((number, entry.at.name.as_str().as_bytes().to_vec()), entry);
            }
        }
    }
    all
}

/// Everything about a state, to be compared later.
#[derive(Debug, PartialEq)]
pub(crate) struct Whole {
    pub revision: Revision,
    pub digest: u128,
    entries: BTreeMap<(u64, Vec<u8>), Entry>,
    trash: Vec<exacat_model::TrashItem>,
}

pub(crate) async fn whole(store: &EmbeddedStore) -> Whole {
    Whole {
        revision: store.revision().await.unwrap(),
        digest: store.digest().await.unwrap(),
        entries: entries(store).await,
        trash: store.trash(None, 1000).await.unwrap().items,
    }
}

fn hidden_files(disk: &SimulatedDisk) -> Vec<std::path::PathBuf> {
    let files = disk.files("").into_iter();
    files.filter(|path| path.to_string_lossy().contains("/snapshots/.")).collect()
}

/// Goal: a snapshot is the state at its revision, through all later changes, compactions, archiving
/// and retention. Method: random workloads; snapshots at several points of each, compared at its
/// end, and after the catalogue's own files are gone.
#[tokio::test]
async fn a_snapshot_stays_as_it_was() {
    for seed in 0..12 {
        let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(seed));
        let store = open(&disk);
        let mut wanted = Vec::new();
        for number in 0..5 {
            drive(&store, &mut workload, (seed + 7 * number) % 40).await;
            let text = format!("s{number}");
            let taken = store.snapshot(new_id(), &name(&text)).await.unwrap();
            let state = whole(&store).await;
            assert_eq!((taken.revision, taken.digest), (state.revision, state.digest.to_be_bytes()));
            assert_eq!(taken.problem, None);
            wanted.push((text, state));
        }
        drive(&store, &mut workload, 80).await;
        store.flush().await.unwrap();
        let changes = history(&store, 1000).await;
        let listed = store.snapshots().await.unwrap();
        assert_eq!(listed.len(), wanted.len());
        assert!(hidden_files(&disk).is_empty());
        if seed % 3 == 0 {
            store.close().await.unwrap();
        }
        if seed % 2 == 0 {
            // This has the effect of long compaction, archiving and retention.
            for path in disk.files("") {
                if path.starts_with("/data/log") || path.starts_with("/data/runs") {
                    disk.vanish(&path);
                }
            }
        }
        for (text, state) in wanted {
            let snapshot = open_snapshot(&disk, &text).unwrap();
            assert_eq!(whole(&snapshot).await, state, "seed {seed} {text}");
            assert_sound(&snapshot).await;
            let page = snapshot.changes(Revision(0), 1000).await.unwrap();
            let from = page.oldest.0 as usize - 1;
            assert_eq!(page.changes, changes[from.min(state.revision.0 as usize)..state.revision.0 as usize]);
            let refused =
                snapshot.apply(request(1 << 40, vec![mkdir(DirId::ROOT, "new")])).await.unwrap_err();
            assert!(
                matches!(&refused, ApplyError::Unavailable(why) if why.contains("snapshot")),
                "{refused:?}"
            );
            assert!(snapshot.flush().await.unwrap_err().message.contains("snapshot"));
            assert!(snapshot.as_snapshots().is_none());
            snapshot.close().await.unwrap();
            assert_eq!(snapshot.revision().await.unwrap_err().kind, ErrorKind::Unavailable);
        }
    }
}

/// Goal: a check reads everything: a damaged byte of any file is found and named, and the other
/// snapshots stay good.
#[tokio::test]
async fn a_check_finds_damage_in_any_file_of_a_snapshot() {
    let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(3));
    let store = open(&disk);
    drive(&store, &mut workload, 30).await;
    store.snapshot(new_id(), &name("one")).await.unwrap();
    let check = store.verify_snapshot(&name("one")).await.unwrap();
    assert_eq!(check.problems, Vec::<String>::new());
    assert!(check.runs > 0 && check.rows > 0 && check.changes > 0);
    drop(store);
    let ours: Vec<_> =
        disk.files("").into_iter().filter(|path| path.starts_with("/data/snapshots/one")).collect();
    assert!(ours.len() > 4, "{ours:?}");
    for path in ours {
        let bytes = disk.bytes(&path);
        // Zeros, and changes after the snapshot, follow the used part of a segment.
        let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
        for at in (0..used).step_by(used / 7 + 1) {
            let damaged = disk.copy();
            damaged.damage(&path, |bytes| bytes[at] ^= 16);
            let layout = crate::identity::Layout::new(Path::new("/data/snapshots/one"));
            let found = crate::snapshot::verify_at(&damaged.shared(), &layout);
            let found = found.map(|check| check.problems);
            assert!(!matches!(&found, Ok(problems) if problems.is_empty()), "{path:?} byte {at}");
            if path.ends_with("SNAPSHOT") {
                let listed = crate::snapshot::list_at(&damaged.shared(), Path::new("/data")).unwrap();
                assert!(listed[0].problem.is_some());
            }
        }
    }
}

/// Goal: a snapshot exists completely or not at all, and nothing else suffers. Method: the power
/// fails at every operation of taking one, and of dropping one.
#[tokio::test]
async fn taking_and_dropping_may_be_cut_at_every_step() {
    let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(8));
    let store = open(&disk);
    drive(&store, &mut workload, 40).await;
    store.snapshot(new_id(), &name("kept")).await.unwrap();
    drive(&store, &mut workload, 8).await;
    let state = whole(&store).await;
    let changes = history(&store, 1000).await;
    drop(store);
    for dropping in [false, true] {
        let start = disk.copy();
        if dropping {
            open(&start).snapshot(new_id(), &name("new")).await.unwrap();
        }
        for step in 1.. {
            let disk = start.copy();
            let store = open(&disk);
            disk.set_fault(Some(Fault::PowerCut(disk.operations() + step)));
            let done = match dropping {
                false => store.snapshot(new_id(), &name("new")).await.map(drop),
                true => store.drop_snapshot(new_id(), &name("new")).await,
            };
            let died = disk.is_dead();
            drop(store);
            let mut seen = Vec::new();
            for seed in 0..5 {
                let image = disk.image(&mut Random(seed));
                let store = open(&image);
                assert!(hidden_files(&image).is_empty(), "step {step}: {:?}", hidden_files(&image));
                assert_eq!(history(&store, 1000).await, changes, "step {step}");
                let names: Vec<String> =
                    store.snapshots().await.unwrap().into_iter().map(|one| one.name.to_string()).collect();
                assert!(names[0] == "kept" && (names.len() == 1 || names[1..] == ["new"]), "{names:?}");
                for name in &names {
                    let check = store.verify_snapshot(&super::snapshots::name(name)).await.unwrap();
                    assert_eq!(check.problems, Vec::<String>::new(), "step {step}");
                }
                if names.len() == 2 {
                    assert_eq!(whole(&open_snapshot(&image, "new").unwrap()).await, state);
                }
                seen.push(names.len());
            }
            if done.is_ok() {
                assert!(seen.iter().all(|count| *count == if dropping { 1 } else { 2 }), "{seen:?}");
            }
            if !died {
                assert!(step > 8, "it has more steps than {step}");
                break;
            }
        }
    }
}

/// Goal: every fault of a name, and the limit on the number of snapshots, at its edge.
#[tokio::test]
async fn names_are_taken_once_and_there_are_so_many() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    let missing = store.drop_snapshot(new_id(), &name("none")).await.unwrap_err();
    assert_eq!((missing.kind, missing.message.contains("there are none")), (ErrorKind::NotFound, true));
    for number in 0..SNAPSHOTS_MAX {
        store.snapshot(new_id(), &name(&format!("s{number:03}"))).await.unwrap();
    }
    assert_eq!(store.snapshot(new_id(), &name("s000")).await.unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(store.snapshot(new_id(), &name("more")).await.unwrap_err().kind, ErrorKind::Limit);
    store.drop_snapshot(new_id(), &name("s007")).await.unwrap();
    store.snapshot(new_id(), &name("more")).await.unwrap();
    assert_eq!(store.snapshots().await.unwrap().len(), SNAPSHOTS_MAX);
    assert_eq!(store.verify_snapshot(&name("s007")).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(open_snapshot(&disk, "s007").err().map(|error| error.kind), Some(ErrorKind::NotFound));
}

/// Goal: a caller that missed the answer repeats the request and gets it; no other caller does.
#[tokio::test]
async fn a_lost_answer_can_be_asked_for_again() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    let (one, other) = (new_id(), new_id());
    let taken = store.snapshot(one, &name("a")).await.unwrap();
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    assert_eq!(store.snapshot(one, &name("a")).await.unwrap(), taken);
    assert_eq!(store.snapshot(other, &name("a")).await.unwrap_err().kind, ErrorKind::Exists);
    store.drop_snapshot(other, &name("a")).await.unwrap();
    store.drop_snapshot(other, &name("a")).await.unwrap();
    assert_eq!(store.drop_snapshot(one, &name("b")).await.unwrap_err().kind, ErrorKind::NotFound);
    for _ in 0..crate::settings::SNAPSHOT_REQUESTS_REMEMBERED {
        store.snapshot(new_id(), &name("a")).await.unwrap();
        store.drop_snapshot(new_id(), &name("a")).await.unwrap();
    }
    // That request was long ago.
    assert_eq!(store.drop_snapshot(other, &name("a")).await.unwrap_err().kind, ErrorKind::NotFound);
}

/// Goal: dropping a snapshot frees the bytes that only it has.
#[tokio::test]
async fn a_snapshot_says_what_it_alone_holds() {
    let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(1));
    let store = open(&disk);
    drive(&store, &mut workload, 30).await;
    store.snapshot(new_id(), &name("a")).await.unwrap();
    let fresh = store.snapshots().await.unwrap().remove(0);
    // It alone has the header of the segment that began with it.
    let header = exacat_log::segment::HEADER_BYTES as u64;
    assert!(fresh.bytes > header && fresh.own_bytes == header, "{fresh:?}");
    for path in disk.files("") {
        if path.starts_with("/data/log") || path.starts_with("/data/runs") {
            disk.vanish(&path);
        }
    }
    let alone = store.snapshots().await.unwrap().remove(0);
    assert!(alone.own_bytes > 0 && alone.bytes == alone.own_bytes, "{alone:?}");
}

// ---- differences ----

/// A state with the data that a comparison needs.
struct State<'s> {
    store: &'s EmbeddedStore,
    entries: BTreeMap<(u64, Vec<u8>), Entry>,
}

impl State<'_> {
    async fn of(store: &EmbeddedStore) -> State<'_> {
        State { store, entries: entries(store).await }
    }

    async fn in_tree(&self, id: EntryId) -> Option<EntryAt> {
        match self.store.locate(&[id]).await.unwrap().remove(0)? {
            exacat_store::Located { entry, place: EntryLocation::Tree(lfn), .. } => {
                let lfn = if id == EntryId::Directory(DirId::ROOT) { exacat_model::Lfn::root() } else { lfn };
                Some(EntryAt { lfn, entry })
            }
            _ => None,
        }
    }

    async fn is_alive(&self, directory: u64) -> bool {
        directory == 0 || self.in_tree(EntryId::Directory(DirId(directory))).await.is_some()
    }
}

/// Returns the same differences as the engine, by comparing two full walks.
async fn compared(before: &State<'_>, after: &State<'_>) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut keys: Vec<_> = before.entries.keys().chain(after.entries.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let (was, is) = (before.entries.get(&key), after.entries.get(&key));
        if was == is {
            continue;
        }
        let was = if before.is_alive(key.0).await { was } else { None };
        let is = if after.is_alive(key.0).await { is } else { None };
        if was == is {
            continue;
        }
        if let Some(was) = was
            && after.in_tree(was.id()).await.is_none()
            && after.is_alive(key.0).await
        {
            differences.push(Difference { before: before.in_tree(was.id()).await, after: None });
        }
        if let Some(is) = is {
            let (before, after) = (before.in_tree(is.id()).await, after.in_tree(is.id()).await);
            differences.push(Difference { before, after });
        }
    }
    differences
}

async fn differences(
    store: &EmbeddedStore,
    before: &str,
    after: Option<&str>,
    limit: usize,
) -> Vec<Difference> {
    let (mut all, mut cursor) = (Vec::new(), Cursor::default());
    let (before, after) = (name(before), after.map(name));
    loop {
        let (page, next) = store.diff(&before, after.as_ref(), &cursor, limit).await.unwrap();
        assert!(page.len() <= limit + 1);
        all.extend(page);
        match next {
            Some(next) => cursor = next,
            None => return all,
        }
    }
}

/// Goal: differences of two states are exact, although only unshared files are read. Method:
/// snapshots of random workloads are compared in both directions, and with the present state. The
/// results must equal those of two full walks.
#[tokio::test]
async fn differences_are_those_of_two_full_walks() {
    let mut count = 0;
    for seed in 0..10 {
        let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(100 + seed));
        let store = open(&disk);
        for number in 0..4 {
            drive(&store, &mut workload, 10 + 13 * (seed % 4)).await;
            store.snapshot(new_id(), &name(&format!("s{number}"))).await.unwrap();
        }
        drive(&store, &mut workload, 5).await;
        let opened: Vec<_> =
            (0..4).map(|number| open_snapshot(&disk, &format!("s{number}")).unwrap()).collect();
        let mut states = Vec::new();
        for store in &opened {
            states.push(State::of(store).await);
        }
        for (before, after) in [(0, 1), (1, 3), (3, 1), (0, 3), (2, 2)] {
            let wanted = compared(&states[before], &states[after]).await;
            let (one, other) = (format!("s{before}"), format!("s{after}"));
            for limit in [1, 3, 1000] {
                let found = differences(&store, &one, Some(&other), limit).await;
                let missing: Vec<_> = wanted.iter().filter(|item| !found.contains(item)).collect();
                let surplus: Vec<_> = found.iter().filter(|item| !wanted.contains(item)).collect();
                assert_eq!((missing, surplus), (vec![], vec![]), "seed {seed}: {one} {other}");
                assert_eq!(found, wanted, "seed {seed}: {one} {other}");
            }
            count += wanted.len();
        }
        let wanted = compared(&states[2], &State::of(&store).await).await;
        assert_eq!(differences(&store, "s2", None, 7).await, wanted, "seed {seed}");
        assert!(hidden_files(&disk).is_empty());
    }
    assert!(count > 1000, "only {count} differences were compared");
}

/// Goal: a comparison with the present state continues with its first state, or reports that it
/// cannot.
#[tokio::test]
async fn a_comparison_goes_on_with_the_state_it_began_with() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    store.snapshot(new_id(), &name("s")).await.unwrap();
    apply(&store, 2, vec![mkdir(DirId::ROOT, "b"), mkdir(DirId::ROOT, "c")]).await;
    let (first, next) = store.diff(&name("s"), None, &Cursor::default(), 1).await.unwrap();
    apply(&store, 3, vec![mkdir(DirId::ROOT, "d")]).await;
    let next = next.unwrap();
    let (rest, _) = store.diff(&name("s"), None, &next, 100).await.unwrap();
    let names = |page: &[Difference]| -> Vec<String> {
        page.iter().map(|one| one.after.as_ref().unwrap().lfn.to_string()).collect()
    };
    // The root's entry does not change with its content.
    assert_eq!((names(&first), names(&rest)), (vec!["/b".to_owned()], vec!["/c".to_owned()]));
    // The comparison ended: it cannot continue with a state that exists nowhere else.
    let over = store.diff(&name("s"), None, &next, 100).await.unwrap_err();
    assert_eq!(over.kind, ErrorKind::Conflict, "{over}");
    for bad in [vec![1], vec![0xff; 20], vec![1; 600]] {
        assert!(store.diff(&name("s"), None, &Cursor(bad), 100).await.is_err());
    }
    // A comparison of two named states can continue, even after others.
    store.snapshot(new_id(), &name("t")).await.unwrap();
    let (_, next) = store.diff(&name("s"), Some(&name("t")), &Cursor::default(), 1).await.unwrap();
    for _ in 0..crate::settings::DIFFS_OPEN_MAX {
        store.diff(&name("s"), None, &Cursor::default(), 1).await.unwrap();
    }
    let (rest, _) = store.diff(&name("s"), Some(&name("t")), &next.unwrap(), 100).await.unwrap();
    assert_eq!(names(&rest), ["/c", "/d"]);
}

/// Returns the digest after each change, by replaying the changes.
pub(crate) fn digests(changes: &[Change]) -> Vec<u128> {
    let mut state = crate::state::State::new(1, Arc::new(crate::run::Cache::new(0))).unwrap();
    let mut digests = vec![state.digest()];
    for change in changes {
        state.apply_change(change).unwrap();
        digests.push(state.digest());
    }
    digests
}
