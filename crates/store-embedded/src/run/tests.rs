//! Compares runs with the rows in them, on a disk, intact and damaged.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, RealDisk};
use exacat_model::{DirId, ErrorKind, Guid, Revision};

use super::reader::RowAt;
use super::{Cache, Reading, Run, RunHead, RunWriter};
use crate::defect::Defect;
use crate::page::tests::{Model, Random, check_row, entry};
use crate::page::{Row, RowRoom};

const HEAD: RunHead = RunHead { catalogue: [5; 16], number: 17, salt: 0x1234_5678_9abc };

fn file(path: &Path) -> Arc<dyn DiskFile> {
    Arc::from(RealDisk.create(path).unwrap())
}

fn some_rows(random: &mut Random, count: usize) -> Model {
    let mut rows = Model::new();
    while rows.len() < count {
        let parent = match random.next(3) {
            0 => 5,
            1 => 6 + random.next(100),
            _ => 1_000_000 + random.next(5),
        };
        let name = format!("run{:06}.AOD.root", random.next(1 << 20));
        let entry = entry(random, parent, &name);
        rows.insert((parent, name.into_bytes()), if random.next(6) == 0 { None } else { Some(entry) });
    }
    rows
}

fn write(directory: &Path, rows: &Model) -> u64 {
    let scratch = file(&directory.join("scratch"));
    // Few GUIDs in memory, so that the scratch file is used.
    let mut writer =
        RunWriter::new(file(&directory.join("run")), scratch, HEAD, rows.len() as u64, 700).unwrap();
    let mut room = RowRoom::default();
    for ((parent, name), entry) in rows {
        match entry {
            Some(entry) => writer.push(&room.row(entry)).unwrap(),
            None => writer.push(&Row::gone(DirId(*parent), name, Revision(*parent))).unwrap(),
        }
    }
    assert_eq!(writer.rows(), rows.len() as u64);
    writer.finish().unwrap()
}

fn open(directory: &Path) -> exacat_model::Result<Arc<Run>> {
    let file = Arc::from(RealDisk.open_to_read(&directory.join("run")).unwrap());
    Run::open("run 17", file, HEAD.catalogue).map(Arc::new)
}

/// Looks a name up like a table does.
fn find<'p>(
    run: &'p Arc<Run>,
    reading: Reading<'_>,
    directory: DirId,
    name: &[u8],
) -> Result<Option<RowAt<'p>>, Defect> {
    let hash = run.hashes().name(directory, name);
    if run.may_have(hash) { run.find(reading, directory, name, hash) } else { Ok(None) }
}

fn find_guid(run: &Arc<Run>, reading: Reading<'_>, guid: Guid) -> Result<Option<(DirId, Vec<u8>)>, Defect> {
    let found = run.may_have_guid(run.hashes().guid(guid)).then(|| run.find_guid(reading, guid));
    Ok(found.transpose()?.flatten().map(|(directory, name, _)| (directory, name)))
}

fn check_all(run: &Arc<Run>, cache: &Cache, rows: &Model) {
    let reading = Reading::waiting(cache);
    let mut all = run.from(reading, DirId(0), b"", false).unwrap();
    for (key, entry) in rows {
        assert_eq!(all.key(), Some((DirId(key.0), key.1.as_slice())));
        check_row(&all.row(run).unwrap().unwrap(), key, entry);
        all.advance(run, reading).unwrap();
        let found = find(run, reading, DirId(key.0), &key.1).unwrap().unwrap();
        check_row(&found.row(DirId(key.0), &key.1).unwrap(), key, entry);
        if let Some(guid) = entry.as_ref().and_then(exacat_model::Entry::guid) {
            let (directory, name, found) = run.find_guid(reading, guid).unwrap().unwrap();
            assert_eq!((directory.0, &name), (key.0, &key.1));
            check_row(&found.row(directory, &name).unwrap(), key, entry);
        }
    }
    assert!(!all.advance(run, reading).unwrap());
    assert!(all.key().is_none() && all.row(run).unwrap().is_none());
}

/// Goal: every row is found by name, by GUID and in order, whatever the size of run and cache;
/// nothing else is found.
#[test]
fn a_run_gives_back_what_went_into_it() {
    for (count, cache_bytes) in [(0, 1 << 20), (1, 1 << 20), (1000, 1 << 30), (6000, 64 << 10)] {
        let directory = tempfile::tempdir().unwrap();
        let random = &mut Random(count as u64);
        let rows = some_rows(random, count);
        let length = write(directory.path(), &rows);
        assert_eq!(length, std::fs::metadata(directory.path().join("run")).unwrap().len());
        let (run, cache) = (open(directory.path()).unwrap(), Cache::new(cache_bytes));
        let gone = rows.values().filter(|entry| entry.is_none()).count();
        let newest =
            rows.iter().map(|((parent, _), entry)| entry.as_ref().map_or(*parent, |entry| entry.revision.0));
        assert_eq!(run.rows(), (count as u64, gone as u64, newest.max().unwrap_or(0)));
        assert_eq!(run.number(), HEAD.number);
        check_all(&run, &cache, &rows);
        check_all(&run, &cache, &rows);
        assert!(cache.bytes() <= cache_bytes, "{} bytes in a cache of {cache_bytes}", cache.bytes());
        assert!(run.memory_bytes() <= 16_000 + 4 * count, "{} bytes", run.memory_bytes());
        for number in 0..2000u64 {
            let mut guid = [9; 16];
            guid[..8].copy_from_slice(&number.to_le_bytes());
            assert!(find_guid(&run, Reading::waiting(&cache), Guid(guid)).unwrap().is_none());
            let (parent, name) = (random.next(1_000_010), format!("run{:06}.AOD.root", random.next(1 << 20)));
            let key = (parent, name.clone().into_bytes());
            let found = find(&run, Reading::waiting(&cache), DirId(parent), name.as_bytes()).unwrap();
            assert_eq!(found.is_some(), rows.contains_key(&key));
            for after in [false, true] {
                let wanted =
                    rows.iter().find(|(other, _)| if after { **other > key } else { **other >= key });
                let from = run.from(Reading::waiting(&cache), DirId(parent), name.as_bytes(), after).unwrap();
                match (from.row(&run).unwrap(), wanted) {
                    (None, None) => {}
                    (Some(row), Some((key, entry))) => check_row(&row, key, entry),
                    (row, wanted) => panic!("{row:?} instead of {wanted:?}"),
                }
            }
        }
    }
}

/// The format is final: a run written once must be read for ever. If this fails, the format
/// changed: that needs a new version, and a lasting reader of this one.
#[test]
fn a_run_of_version_1_is_read_as_it_was_written() {
    const GOLDEN: &[u8] = include_bytes!("../tests/golden/run-v1.run");
    let directory = tempfile::tempdir().unwrap();
    let rows = some_rows(&mut Random(1), 200);
    write(directory.path(), &rows);
    let written = std::fs::read(directory.path().join("run")).unwrap();
    assert!(written == GOLDEN, "a run is written in other bytes than version 1 wrote");
    let mut all = rows.iter();
    crate::read_run(GOLDEN, HEAD.catalogue, |parent, name, found| {
        let ((wanted_parent, wanted_name), entry) = all.next().unwrap();
        assert_eq!((parent.0, name, &found), (*wanted_parent, wanted_name.as_slice(), entry));
    })
    .unwrap();
    assert!(all.next().is_none());
}

/// Goal: a damaged byte anywhere gives an error that names the run, and never another answer.
#[test]
fn every_damage_is_seen_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let rows = some_rows(&mut Random(3), 900);
    write(directory.path(), &rows);
    let path = directory.path().join("run");
    let bytes = std::fs::read(&path).unwrap();
    let whole = |run: &Arc<Run>| -> Result<(), Defect> {
        let cache = Cache::new(1 << 30);
        let mut all = run.from(Reading::waiting(&cache), DirId(0), b"", false)?;
        while all.advance(run, Reading::waiting(&cache))? {}
        for entry in rows.values().flatten() {
            entry.guid().map_or(Ok(None), |guid| find_guid(run, Reading::waiting(&cache), guid))?;
        }
        Ok(())
    };
    for at in (0..bytes.len()).step_by(bytes.len() / 400) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        let error = open(directory.path()).and_then(|run| Ok(whole(&run)?)).expect_err(&format!("byte {at}"));
        let future = at == 8 || at == 9;
        assert_eq!(
            error.kind,
            if future { ErrorKind::Invalid } else { ErrorKind::Corrupt },
            "byte {at}: {error}"
        );
        assert!(error.message.contains("run 17"), "{error}");
    }
    for length in [0, 10, 64, 300, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        assert_eq!(
            open(directory.path()).err().map(|error| error.kind),
            Some(ErrorKind::Corrupt),
            "{length}"
        );
    }
    std::fs::write(&path, &bytes).unwrap();
    let other: Arc<dyn DiskFile> = Arc::from(RealDisk.open_to_read(&path).unwrap());
    assert_eq!(Run::open("run 17", other, [6; 16]).err().map(|error| error.kind), Some(ErrorKind::Corrupt));
    check_all(&open(directory.path()).unwrap(), &Cache::new(1 << 20), &rows);
}

/// Goal: the error of a damaged page lists the names at risk, and the other pages are still read.
#[test]
fn a_damaged_page_leaves_the_others_readable() {
    let directory = tempfile::tempdir().unwrap();
    let rows = some_rows(&mut Random(4), 2000);
    write(directory.path(), &rows);
    let path = directory.path().join("run");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (run, cache) = (open(directory.path()).unwrap(), Cache::new(1 << 20));
    let (mut lost, mut read) = (0, 0);
    for ((parent, name), entry) in &rows {
        match find(&run, Reading::waiting(&cache), DirId(*parent), name) {
            Ok(found) => {
                read += 1;
                assert_eq!(&found.unwrap().row(DirId(*parent), name).unwrap().entry().unwrap(), entry);
            }
            Err(error) => {
                lost += 1;
                assert!(error.to_string().contains("are at risk"), "{error}");
            }
        }
    }
    assert!((1..=128).contains(&lost) && read == rows.len() - lost, "{lost} lost, {read} read");
}
