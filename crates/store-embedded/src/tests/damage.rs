//! Damaged files: found, named, never returned as data.

use std::path::{Path, PathBuf};

use exacat_log::record;
use exacat_log::segment::{HEADER_BYTES, Header, Records};
use exacat_model::{Change, DirId, ErrorKind};
use exacat_store::Store;

use super::workload::Workload;
use super::{apply, assert_sound, file, history, mkdir, open, open_without_runs, try_open};
use crate::inspect::inspect;
use exacat_testkit::simulated::SimulatedDisk;

/// Returns the start and the end of each record in a segment.
fn records_of(disk: &SimulatedDisk, path: &Path) -> Vec<(usize, usize)> {
    let bytes = disk.bytes(path);
    let header = Header::decode("test", &bytes).unwrap();
    let mut records = Records::new(&bytes, header.salt, HEADER_BYTES);
    let mut found = Vec::new();
    while let Some((at, _)) = records.next_record() {
        found.push((at, records.offset()));
    }
    found
}

/// Returns a disk with five requests, each synced by itself, in one segment.
async fn small_log() -> (SimulatedDisk, PathBuf, Vec<Change>) {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    for number in 2..6 {
        apply(&store, number, vec![file(DirId(2), &format!("file-{number}"), number)]).await;
    }
    let changes = history(&store, 100).await;
    drop(store);
    let path = disk.files(".log").remove(0);
    (disk, path, changes)
}

/// Goal: the torn-tail rule. Method: the last record cut at each of its bytes, the rest zeros, or
/// noise.
#[tokio::test]
async fn a_last_record_torn_at_any_byte_is_cut_off() {
    let (disk, path, changes) = small_log().await;
    let records = records_of(&disk, &path);
    assert_eq!(records.len(), 5);
    let (start, end) = records[4];
    for cut in start..end {
        for noise in [0u8, 0xa5] {
            let torn = disk.copy();
            torn.damage(&path, |bytes| bytes[cut..end].fill(noise));
            // Padding that became zeros is no loss.
            let whole = torn.bytes(&path) == disk.bytes(&path);
            let store = open(&torn);
            let left = if whole { 5 } else { 4 };
            assert_eq!(history(&store, 100).await, changes[..left], "cut at {cut}");
            assert_sound(&store).await;
            let warned = store.status().await.unwrap().warnings;
            assert_eq!(warned.is_empty(), whole || (noise == 0 && cut == start), "cut at {cut}: {warned:?}");
            apply(&store, 9, vec![mkdir(DirId::ROOT, "b")]).await;
            drop(store);
            let again = open(&torn);
            assert_eq!(history(&again, 100).await.len(), left + 1, "cut at {cut}");
        }
    }
}

/// Goal: a damaged record is never returned, and damage before the last group is never taken for a
/// torn tail. Method: each byte of each record changed.
#[tokio::test]
async fn a_changed_byte_in_any_record_is_found() {
    let (disk, path, changes) = small_log().await;
    for (number, (start, end)) in records_of(&disk, &path).into_iter().enumerate() {
        for at in start..end {
            let damaged = disk.copy();
            damaged.damage(&path, |bytes| bytes[at] ^= 1 << (at % 8));
            match try_open(&damaged) {
                Ok(store) => {
                    assert_eq!(number, 4, "damage at byte {at} of an earlier record was passed over");
                    assert_eq!(history(&store, 100).await, changes[..4], "byte {at}");
                }
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
                    assert!(error.message.contains(".log at byte"), "names the place: {error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_changed_byte_in_a_header_is_found() {
    let (disk, path, _) = small_log().await;
    for at in 0..HEADER_BYTES {
        let damaged = disk.copy();
        damaged.damage(&path, |bytes| bytes[at] ^= 0x10);
        let error = try_open(&damaged).err().unwrap();
        assert!(matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Invalid), "byte {at}: {error}");
    }
}

/// Goal: an earlier segment has no torn tail: every fault there is damage. So is a missing segment.
#[tokio::test]
async fn damage_in_an_earlier_segment_is_refused() {
    let disk = SimulatedDisk::new();
    let store = open_without_runs(&disk);
    let mut workload = Workload::new(3);
    for _ in 0..40 {
        store.apply(workload.request()).await.unwrap();
    }
    let changes = history(&store, 1000).await;
    drop(store);
    let segments = disk.files(".log");
    assert!(segments.len() > 3);
    let second = records_of(&disk, &segments[1]);
    let (start, end) = *second.last().unwrap();
    for change in [
        |bytes: &mut Vec<u8>, start: usize, end: usize| bytes[start..end].fill(0),
        |bytes: &mut Vec<u8>, start: usize, _: usize| bytes[start + 20] ^= 1,
        |bytes: &mut Vec<u8>, start: usize, _: usize| bytes.truncate(start + 30),
    ] {
        let damaged = disk.copy();
        damaged.damage(&segments[1], |bytes| change(bytes, start, end));
        assert_eq!(try_open(&damaged).err().unwrap().kind, ErrorKind::Corrupt);
    }
    let gone = disk.copy();
    gone.vanish(&segments[1]);
    assert_eq!(try_open(&gone).err().unwrap().kind, ErrorKind::Corrupt);

    // Opening does not read a segment before the runs' revision. A read of the history finds the
    // damage.
    let store = open(&disk);
    store.close().await.unwrap();
    drop(store);
    disk.damage(&segments[1], |bytes| bytes[start + 60] ^= 1);
    let store = open(&disk);
    let mut after = exacat_model::Revision(0);
    let error = loop {
        match store.changes(after, 10).await {
            Ok(page) => {
                for change in &page.changes {
                    assert_eq!(*change, changes[change.revision.0 as usize - 1]);
                }
                assert!(!page.changes.is_empty(), "the damage was passed over");
                after = page.up_to;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
}

/// Goal: a read finds and names a damaged run, and other runs stay readable. Opening refuses a run
/// with damaged memory-only state. Method: bytes all over a run changed.
#[tokio::test]
async fn a_damaged_run_is_found_and_named() {
    let disk = SimulatedDisk::new();
    let store = open_without_runs(&disk);
    let mut workload = Workload::new(8);
    for number in 0..40 {
        store.apply(workload.request()).await.unwrap();
        let files =
            (0..40).map(|item| file(DirId::ROOT, &format!("f{number}-{item}"), (number + 1) << 20 | item));
        apply(&store, 1 << 40 | number, files.collect()).await;
    }
    store.close().await.unwrap();
    drop(store);
    let runs = disk.files(".run");
    let path = runs.last().unwrap();
    let length = disk.bytes(path).len();
    let (mut refused, mut found) = (0, 0);
    for at in (0..length).step_by(53) {
        let damaged = disk.copy();
        damaged.damage(path, |bytes| bytes[at] ^= 4);
        match try_open(&damaged) {
            Ok(store) => {
                let error = store.audit().await.err();
                let Some(error) = error else { continue };
                assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
                assert!(error.message.contains(".run"), "{error}");
                // The root is in memory.
                assert_eq!(
                    store.resolve(&[exacat_model::Lfn::parse("/x/y").unwrap()]).await.unwrap().len(),
                    1
                );
                found += 1;
            }
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Invalid), "{error}");
                assert!(error.message.contains(".run"), "{error}");
                refused += 1;
            }
        }
        let inspected = inspect(&damaged.shared(), Path::new("/data"));
        assert!(inspected.map_or(true, |found| !found.problems.is_empty()), "byte {at}");
    }
    assert!(refused > 10 && found > 10, "{refused} refused, {found} found");
}

/// Goal: an inspection finds all damage, and changes nothing. Method: a sound directory; then a run
/// and two segments damaged.
#[tokio::test]
async fn an_inspection_finds_every_damage() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    let mut workload = Workload::new(21);
    for _ in 0..60 {
        store.apply(workload.request()).await.unwrap();
    }
    let revision = store.revision().await.unwrap();
    let directory = Path::new("/data");
    assert_eq!(inspect(&disk.shared(), directory).err().unwrap().kind, ErrorKind::Unavailable, "it is open");
    store.close().await.unwrap();
    drop(store);
    let operations = disk.operations();
    let sound = inspect(&disk.shared(), directory).unwrap();
    assert_eq!(
        (sound.problems.as_slice(), sound.audit.findings_total, sound.revision),
        (&[][..], 0, revision)
    );
    assert_eq!((sound.runs, sound.replayed, sound.torn), (disk.files(".run").len() as u64, true, false));
    assert_eq!((sound.segments, disk.operations()), (disk.files(".log").len() as u64, operations));
    let segments = disk.files(".log");
    for path in [&disk.files(".run")[0], &segments[1], &segments[2]] {
        disk.damage(path, |bytes| bytes[150] ^= 1);
    }
    let damaged = inspect(&disk.shared(), directory).unwrap();
    assert!(damaged.problems.len() >= 3, "{:?}", damaged.problems);
    assert!(!damaged.replayed && damaged.revision <= revision);
    assert_eq!(inspect(&disk.shared(), Path::new("/none")).err().unwrap().kind, ErrorKind::NotFound);
}

/// Goal: no client can send bytes that a recovery takes for a record. Method: a valid record of
/// this very log is refused under another salt, and a client does not know a segment's salt.
#[tokio::test]
async fn a_record_is_valid_in_its_own_segment_only() {
    let (disk, path, _) = small_log().await;
    let bytes = disk.bytes(&path);
    let header = Header::decode("test", &bytes).unwrap();
    let (start, _) = records_of(&disk, &path)[0];
    assert!(record::read(header.salt, &bytes[start..]).is_some());
    assert!(record::read(header.salt ^ 1, &bytes[start..]).is_none());
}
