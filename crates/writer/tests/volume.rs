//! Tests of volumes: durable chunks survive crashes, faults and restarts; anything else is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod rig;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, RealDisk};
use exacat_model::{ErrorKind, Lfn, TimeMs};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};
use exacat_wire::writer::limits::BLOCK_BYTES;
use exacat_wire::writer::{
    ByteRange, ChunkRecord, Description, FileId, Frame, Hello, Open, PartOwner, PartShare, Role, ServiceId,
    WriterId,
};
use exacat_writer::sums::{adler32, crc32c};
use exacat_writer::{
    Block, BlockPool, BlockWrite, CertifiedFile, CheckKind, Done, FileStage, Index, Item, PartKey,
    PartOrigin, PartSeal, PartWork, Recovered, SealedBy, Segment, Service, ServiceSettings, StageContent,
    Volume, VolumeInspection, VolumeSettings, Work,
};

use rig::SERVICE;

const NOW: TimeMs = TimeMs(1_790_000_000_000);

fn settings(root: &Path) -> VolumeSettings {
    VolumeSettings { root: root.to_owned(), service: SERVICE, adopt: false, segment_bytes: 64 << 10 }
}

fn open(disk: &Arc<dyn Disk>) -> exacat_model::Result<(Volume, Recovered)> {
    Volume::open(Arc::clone(disk), &settings(Path::new("/volume")), NOW)
}

fn part(file: u8, epoch: u32) -> PartKey {
    PartKey { file: FileId([file; 16]), epoch }
}

fn origin() -> PartOrigin {
    let lfn = Lfn::parse("/data/f").unwrap();
    let description = Description { run: "r".into(), stream: "s".into(), lfn, tags: Vec::new() };
    PartOrigin { writer: WriterId([2; 16]), stream: 3, owner: "daq".to_owned(), begun: 5, description }
}

/// Returns the record of a file that is in one part.
fn certified(part: PartKey) -> CertifiedFile {
    let of = PartOwner { epoch: part.epoch, service: SERVICE };
    let (length, origin) = (70_014, origin());
    CertifiedFile {
        file: part.file,
        writer: origin.writer,
        owner: origin.owner,
        run: origin.description.run,
        stream: origin.description.stream,
        lfn: origin.description.lfn,
        begun: origin.begun,
        length,
        events: 2,
        adler32: 7,
        duplicates: 0,
        shares: vec![PartShare { part: of, bytes: length }],
        segments: vec![Segment { part: of, range: ByteRange { from: 0, to: length } }],
        is_certifier: true,
        epochs: vec![part.epoch],
    }
}

/// Returns the bytes of a place of a file.
fn content(part: PartKey, from: u64, length: usize) -> Vec<u8> {
    (from..from + length as u64).map(|at| (at * 7 + at / 251 + u64::from(part.file.0[0])) as u8).collect()
}

fn chunk(part: PartKey, sequence: u64, offset: u64, length: u32) -> ChunkRecord {
    let bytes = content(part, offset, length as usize);
    ChunkRecord { sequence, offset, length, events: 1, crc32c: crc32c(&bytes), adler32: adler32(&bytes) }
}

/// Writes of a part on its way: as the service does them, in steps.
struct Writing {
    part: PartKey,
    chunks: Vec<ChunkRecord>,
    is_created: bool,
}

impl Writing {
    fn end(&self) -> u64 {
        self.chunks.last().map_or(0, ChunkRecord::end)
    }

    /// Writes a chunk, rewriting the pages around it, and makes it durable. False after a failure.
    fn write(&mut self, volume: &Volume, block: Block, length: u32) -> (bool, Block) {
        let (offset, mut block) = (self.end(), block);
        let start = offset - offset % BLOCK_BYTES as u64;
        let to = (offset - start) as usize + length as usize;
        block.bytes_mut()[..to].copy_from_slice(&content(self.part, start, to));
        let from = (offset - start) as usize / 4096 * 4096;
        let write = BlockWrite { block, offset: start, from, to: to.next_multiple_of(4096) };
        let create = !self.is_created;
        let work = PartWork { part: self.part, number: 1, create, writes: vec![write], seal: None };
        let Done::Part { mut blocks, outcome, .. } = volume.run(Work::Part(work), NOW) else {
            panic!("a part")
        };
        let chunk = chunk(self.part, self.chunks.len() as u64, offset, length);
        let mut items = Vec::new();
        if create {
            items.push(Item::Opened { part: self.part, origin: origin() });
        }
        items.push(Item::Durable { part: self.part, chunks: vec![chunk] });
        let is_durable = outcome.is_ok() && commit(volume, items);
        if is_durable {
            self.is_created = true;
            self.chunks.push(chunk);
        }
        (is_durable, blocks.pop().unwrap())
    }

    fn seal(&self, volume: &Volume) -> bool {
        let items = vec![
            Item::Opened { part: self.part, origin: origin() },
            Item::Durable { part: self.part, chunks: self.chunks.clone() },
        ];
        let seal = Some(PartSeal { length: self.end(), items });
        let work = PartWork { part: self.part, number: 2, create: false, writes: Vec::new(), seal };
        let Done::Part { outcome, .. } = volume.run(Work::Part(work), NOW) else { panic!("a part") };
        outcome.is_ok() && commit(volume, vec![Item::Sealed { part: self.part, by: SealedBy::Order }])
    }
}

fn commit(volume: &Volume, items: Vec<Item>) -> bool {
    matches!(volume.run(Work::Commit(items), NOW), Done::Commit { outcome: Ok(()), .. })
}

/// Checks that a volume has these chunks and their bytes, and at most one more of each part.
fn check(volume: &Volume, recovered: &Recovered, durable: &BTreeMap<PartKey, Vec<ChunkRecord>>, seed: u64) {
    assert!(recovered.read_only.is_none() && recovered.damaged.is_empty(), "seed {seed}: {recovered:?}");
    for (part, chunks) in durable.iter().filter(|(_, chunks)| !chunks.is_empty()) {
        let found = &recovered.chunks[part];
        assert_eq!(found.get(..chunks.len()), Some(chunks.as_slice()), "seed {seed}: {part:?}");
        assert!(found.len() <= chunks.len() + 1, "seed {seed}: {part:?}");
        assert_eq!(volume.damaged_chunks(*part, found), [], "seed {seed}: {part:?}");
        let end = found.last().unwrap().end();
        let bytes = volume.read(*part, ByteRange { from: 0, to: end }).unwrap();
        assert_eq!(bytes, content(*part, 0, end as usize), "seed {seed}: {part:?}");
        assert!(recovered.index.parts[part].sealed == Some(SealedBy::Order), "seed {seed}");
    }
}

/// Property: a power cut at any operation, and another one during the recovery, loses no durable chunk
/// and changes none. Method: a seed chooses the works, the cut and the sectors that survive it.
#[test]
fn durable_chunks_survive_power_cuts() {
    let mut cuts = 0;
    for seed in 0..60 {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new();
        let shared = disk.shared();
        let (volume, _) = open(&shared).unwrap();
        let begun = disk.operations();
        disk.set_fault(Some(Fault::PowerCut(begun + 1 + random.next(120))));
        let mut pool = BlockPool::new(1);
        let mut block = pool.take().unwrap();
        let mut writings: Vec<Writing> = (1..=3)
            .map(|file| Writing { part: part(file, 1), chunks: Vec::new(), is_created: false })
            .collect();
        let mut sealed = Vec::new();
        for _ in 0..40 {
            let at = random.next(3) as usize;
            let writing = &mut writings[at];
            if sealed.contains(&at) {
                continue;
            }
            if random.chance(12) && writing.is_created {
                if !writing.seal(&volume) {
                    break;
                }
                sealed.push(at);
            } else {
                let room = (BLOCK_BYTES as u64 - writing.end() % BLOCK_BYTES as u64) as u32;
                let length = (1 + random.next(200_000) as u32).min(room);
                let (is_durable, back) = writing.write(&volume, block, length);
                block = back;
                if !is_durable {
                    break;
                }
            }
            if random.chance(10) && volume.checkpoint(NOW).is_err() {
                break;
            }
        }
        cuts += u32::from(disk.is_dead());
        let durable: BTreeMap<_, _> = writings.into_iter().map(|of| (of.part, of.chunks)).collect();
        // The recovery itself is cut as well, again and again.
        let mut image = disk.image(&mut random);
        for _ in 0..3 {
            image.set_fault(Some(Fault::PowerCut(1 + random.next(12))));
            drop(open(&image.shared()));
            image = image.image(&mut random);
        }
        let (volume, recovered) =
            open(&image.shared()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        check(&volume, &recovered, &durable, seed);
    }
    assert!(cuts > 30, "the power fails in the middle: {cuts}");
}

/// Property: after a failed sync of the index, the volume takes nothing more, and what was durable is
/// there after the next opening.
#[test]
fn failed_commit_ends_the_writing_of_a_volume() {
    let disk = SimulatedDisk::new();
    let (volume, _) = open(&disk.shared()).unwrap();
    let mut writing = Writing { part: part(1, 1), chunks: Vec::new(), is_created: false };
    let mut pool = BlockPool::new(1);
    let (is_durable, block) = writing.write(&volume, pool.take().unwrap(), 5000);
    assert!(is_durable);
    // A write and its sync, the write of the record, and then its sync.
    disk.set_fault(Some(Fault::Once(disk.operations() + 4, io::ErrorKind::Other)));
    let (is_durable, block) = writing.write(&volume, block, 5000);
    assert!(!is_durable);
    let (is_durable, _) = writing.write(&volume, block, 5000);
    assert!(!is_durable && !commit(&volume, Vec::new()), "it stays so");
    drop(volume);
    let (volume, recovered) = open(&disk.shared()).unwrap();
    check(&volume, &recovered, &BTreeMap::from([(writing.part, writing.chunks)]), 0);
}

/// Property: bytes that the disk lost are told, and never reported as durable chunks.
#[test]
fn lost_bytes_are_told() {
    let disk = SimulatedDisk::new();
    let (volume, _) = open(&disk.shared()).unwrap();
    let mut pool = BlockPool::new(1);
    let mut block = pool.take().unwrap();
    let mut writings = Vec::new();
    for file in 1..=4 {
        let mut writing = Writing { part: part(file, 1), chunks: Vec::new(), is_created: false };
        let (is_durable, back) = writing.write(&volume, block, 9000);
        assert!(is_durable);
        block = back;
        writings.push(writing);
    }
    assert!(writings[2].seal(&volume) && writings[3].seal(&volume));
    let paths: Vec<PathBuf> = writings.iter().map(|of| volume.path(of.part)).collect();
    drop(volume);
    disk.vanish(&paths[0]);
    disk.damage(&paths[1], |bytes| bytes.truncate(8999));
    let chunks = paths[2].with_file_name(format!("{}.chunks", writings[2].part.file_name()));
    disk.damage(&chunks, |bytes| bytes[100] ^= 1);
    disk.damage(&paths[3], |bytes| bytes[100] ^= 1);
    let (volume, recovered) = open(&disk.shared()).unwrap();
    let sealed = |at: usize| recovered.index.parts[&writings[at].part].sealed;
    assert_eq!((sealed(0), sealed(1)), (Some(SealedBy::Loss), Some(SealedBy::Loss)));
    assert_eq!(recovered.damaged.keys().collect::<Vec<_>>(), [&writings[2].part]);
    let whole = &recovered.chunks[&writings[3].part];
    assert_eq!(volume.damaged_chunks(writings[3].part, whole), *whole, "fsck finds the changed byte");
}

/// Property: files that the index does not name are moved aside, none is removed.
#[test]
fn unknown_files_are_moved_aside() {
    let disk = SimulatedDisk::new();
    let (volume, _) = open(&disk.shared()).unwrap();
    let stray = volume.path(part(9, 4));
    exacat_disk::write_small(&disk, &stray, b"bytes of somebody").unwrap();
    drop(volume);
    let (_volume, recovered) = open(&disk.shared()).unwrap();
    assert_eq!(recovered.unknown, [part(9, 4).file_name()]);
    assert_eq!(disk.bytes(&Path::new("/volume/unknown").join(part(9, 4).file_name())), b"bytes of somebody");
}

/// Property: a volume has one owner and one process. Another service must adopt it.
#[test]
fn volume_of_another_service_or_process_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let first = Volume::open(Arc::clone(&disk), &settings(place.path()), NOW).unwrap();
    let error = Volume::open(Arc::clone(&disk), &settings(place.path()), NOW).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    drop(first);
    let other = VolumeSettings { service: ServiceId([7; 16]), ..settings(place.path()) };
    let error = Volume::open(Arc::clone(&disk), &other, NOW).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Conflict);
    drop(Volume::open(Arc::clone(&disk), &VolumeSettings { adopt: true, ..other.clone() }, NOW).unwrap());
    Volume::open(Arc::clone(&disk), &other, NOW).unwrap();
    std::fs::write(place.path().join("VOLUME"), "exacat writer volume, layout 2\n").unwrap();
    assert!(Volume::open(disk, &other, NOW).err().unwrap().to_string().contains("newer release"));
}

/// Returns everything that a disk has of a volume: the bytes, and the time of the last change.
fn image(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let (mut image, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = open.pop() {
        let known = std::fs::metadata(&path).unwrap();
        let bytes = match known.is_dir() {
            true => {
                open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            }
            false => std::fs::read(&path).unwrap(),
        };
        image.insert(path, (bytes, known.modified().unwrap()));
    }
    image
}

/// A disk that is mounted read-only.
struct ReadOnlyDisk(RealDisk);

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for ReadOnlyDisk {
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        refused()
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }
    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open_to_read(path)
    }
    fn open_to_write(&self, _path: &Path) -> io::Result<Box<dyn DiskFile>> {
        refused()
    }
    fn create(&self, _path: &Path) -> io::Result<Box<dyn DiskFile>> {
        refused()
    }
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }
    fn hard_link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }
    fn names_of(&self, path: &Path) -> io::Result<u64> {
        self.0.names_of(path)
    }
    fn remove(&self, _path: &Path) -> io::Result<()> {
        refused()
    }
    fn remove_directory(&self, _path: &Path) -> io::Result<()> {
        refused()
    }
    fn sync_directory(&self, _directory: &Path) -> io::Result<()> {
        refused()
    }
    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        refused()
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.0.free_bytes(directory)
    }
}

/// Inspects a volume as if its disk were mounted read-only.
fn inspect(root: &Path) -> VolumeInspection {
    VolumeInspection::read(Arc::new(ReadOnlyDisk(RealDisk)), root).unwrap()
}

/// Property: a check finds each kind of fault under its name and part, reads every byte on request, and finds
/// nothing on a good volume. Its caller can end it. A read-only disk is enough for it.
#[test]
fn check_finds_what_is_wrong() {
    let place = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (volume, _) = Volume::open(Arc::clone(&disk), &settings(place.path()), NOW).unwrap();
    let mut block = BlockPool::new(1).take().unwrap();
    for file in 1..=8 {
        let mut writing = Writing { part: part(file, 1), chunks: Vec::new(), is_created: false };
        let (is_durable, rest) = writing.write(&volume, block, 70_001);
        let (again, rest) = writing.write(&volume, rest, 13);
        assert!(is_durable && again && writing.seal(&volume));
        block = rest;
        if file > 4 {
            assert!(commit(&volume, vec![Item::Certified(certified(part(file, 1)).pack())]));
        }
    }
    let path = |file| volume.path(part(file, 1));
    let good = inspect(place.path()).check(true, &mut |_| true).unwrap();
    assert_eq!((good.parts, good.checked, good.bytes), (8, 8, 8 * 70_014));
    assert_eq!((good.faults_count, good.without_sums, good.unknown_count), (0, 0, 0), "{good:?}");
    let ended = inspect(place.path()).check(false, &mut |report| report.checked < 2).unwrap();
    assert_eq!((ended.checked, ended.bytes), (2, 0));
    let mut bytes = std::fs::read(path(1)).unwrap();
    (bytes[5], bytes[70_005]) = (bytes[5] ^ 1, bytes[70_005] ^ 1);
    std::fs::write(path(1), bytes).unwrap();
    std::fs::OpenOptions::new().write(true).open(path(2)).unwrap().set_len(70_013).unwrap();
    let list = |file| path(file).with_file_name(format!("{}.chunks", part(file, 1).file_name()));
    std::fs::remove_file(list(3)).unwrap();
    std::fs::write(list(4), "no list").unwrap();
    std::fs::write(path(9), "stray").unwrap();
    std::fs::remove_file(list(5)).unwrap();
    std::fs::remove_file(path(6)).unwrap();
    std::fs::remove_file(path(7)).unwrap();
    std::fs::create_dir(path(7)).unwrap();
    let lost = Item::Sealed { part: part(10, 2), by: SealedBy::Loss };
    assert!(commit(&volume, vec![Item::Opened { part: part(10, 2), origin: origin() }, lost]));
    let damaged = (CheckKind::DamagedBytes, 1);
    let expected = [
        (CheckKind::LostPart, 10),
        (CheckKind::ShortPart, 2),
        (CheckKind::MissingChunks, 3),
        (CheckKind::DamagedChunks, 4),
        (CheckKind::MissingPart, 6),
        (CheckKind::ShortPart, 7),
    ];
    for reads in [false, true] {
        let bad = inspect(place.path()).check(reads, &mut |_| true).unwrap();
        let found = bad.faults.iter().map(|fault| (fault.kind, fault.part.file.0[0]));
        // A directory has a length, and no bytes.
        let found: Vec<_> = found.filter(|of| *of != (CheckKind::UnreadablePart, 7)).collect();
        let is_damaged = |of: &&(CheckKind, u8)| **of == damaged;
        assert_eq!(found.iter().filter(is_damaged).count(), usize::from(reads), "{bad:?}");
        let rest: Vec<_> = found.into_iter().filter(|of| *of != damaged).collect();
        assert_eq!(rest, expected, "{bad:?}");
        assert_eq!((bad.without_sums, bad.faults_count), (1, bad.faults.len() as u64), "{bad:?}");
        assert_eq!((bad.unknown, bad.unknown_count), (vec![part(9, 1).file_name()], 1));
        let of_first = bad.faults.iter().find(|fault| fault.kind == CheckKind::DamagedBytes);
        if let Some(fault) = of_first {
            // Wrong chunks side by side are one fault.
            assert!(fault.what.contains("bytes 0 to 70014"), "{fault:?}");
            assert_eq!(fault.lfn, Some(origin().description.lfn));
            assert_eq!(fault.stage, FileStage::Open);
        }
    }
}

/// Property: an inspection of a volume as a kill left it changes no byte and no time of a change, finds what
/// was durable, and the next start finds the same. A volume that is handed over opens for its new service
/// only.
#[test]
fn inspection_changes_nothing_before_a_volume_is_handed_over() {
    let place = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (volume, _) = Volume::open(Arc::clone(&disk), &settings(place.path()), NOW).unwrap();
    let mut writing = Writing { part: part(1, 1), chunks: Vec::new(), is_created: false };
    let (is_durable, _) = writing.write(&volume, BlockPool::new(1).take().unwrap(), 70_001);
    assert!(is_durable);
    let path = volume.path(writing.part);
    std::fs::write(volume.path(part(2, 1)), "nobody has an acknowledgement").unwrap();
    drop(volume);
    let unacknowledged = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    io::Write::write_all(&mut &unacknowledged, b"more").unwrap();
    let before = image(place.path());
    let inspected = inspect(place.path());
    let found = inspected.check(true, &mut |_| true).unwrap();
    assert_eq!((found.faults_count, found.unknown_count, found.bytes), (0, 1, 70_001), "{found:?}");
    let open = StageContent { files: 1, bytes: 70_001 };
    assert_eq!((inspected.content().at(FileStage::Open), inspected.service()), (open, SERVICE));
    assert!(before == image(place.path()), "the volume is as it was");
    let other = ServiceId([7; 16]);
    let error = inspected.hand_over(other).unwrap_err();
    assert!(before == image(place.path()), "a read-only disk hands nothing over: {error}");
    assert!(error.message.contains("VOLUME"), "{error}");
    let writable = VolumeInspection::read(Arc::new(RealDisk), place.path()).unwrap();
    writable.hand_over(other).unwrap();
    let mut after = image(place.path());
    let name = place.path().join("VOLUME");
    after.insert(name.clone(), before[&name].clone());
    after.insert(place.path().to_owned(), before[place.path()].clone());
    assert!(before == after, "only its identity is another");
    let error = Volume::open(Arc::clone(&disk), &settings(place.path()), NOW).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Conflict);
    let to = VolumeSettings { service: other, ..settings(place.path()) };
    let (_volume, recovered) = Volume::open(disk, &to, NOW).unwrap();
    assert_eq!(recovered.chunks[&writing.part], writing.chunks);
    let nowhere = place.path().join("nowhere");
    let error = VolumeInspection::read(Arc::new(RealDisk), &nowhere).err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotFound);
}

/// Property: a removed file leaves neither bytes nor index, also after a restart. On the machine's disk,
/// with direct I/O where it has it.
#[test]
fn removed_file_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (volume, _) = Volume::open(Arc::clone(&disk), &settings(place.path()), NOW).unwrap();
    let mut writing = Writing { part: part(1, 1), chunks: Vec::new(), is_created: false };
    let mut pool = BlockPool::new(1);
    let (is_durable, block) = writing.write(&volume, pool.take().unwrap(), 70_001);
    let (again, _) = writing.write(&volume, block, 13);
    assert!(is_durable && again && writing.seal(&volume));
    let all = ByteRange { from: 0, to: 70_014 };
    assert_eq!(volume.read(writing.part, all).unwrap(), content(writing.part, 0, 70_014));
    let of = certified(writing.part);
    let (file, stage) = (of.file, FileStage::Removed);
    assert!(commit(&volume, vec![Item::Certified(of.pack())]));
    assert!(commit(&volume, vec![Item::Stage { file, stage, reason: String::new() }]));
    drop(volume);
    // The order survives a restart, also in a checkpoint, and the files stay until it is carried out.
    for _ in 0..2 {
        let (volume, recovered) = Volume::open(Arc::clone(&disk), &settings(place.path()), NOW).unwrap();
        let kept = &recovered.index.certified[&file];
        assert_eq!((kept.record.unpack(), kept.stage), (Some(of.clone()), stage));
        assert!(recovered.index.parts.is_empty() && recovered.unknown.is_empty());
        assert!(matches!(volume.run(Work::Checkpoint, NOW), Done::Checkpoint(Ok(()))));
    }
    let (volume, _) = Volume::open(Arc::clone(&disk), &settings(place.path()), NOW).unwrap();
    for _ in 0..2 {
        let work = Work::Remove { file, parts: vec![writing.part] };
        assert!(matches!(volume.run(work, NOW), Done::Remove { outcome: Ok(()), .. }), "again is fine");
    }
    assert!(commit(&volume, vec![Item::Forgotten(file)]));
    drop(volume);
    let (_volume, recovered) = Volume::open(disk, &settings(place.path()), NOW).unwrap();
    assert_eq!(recovered.index, Index::default());
    assert_eq!(std::fs::read_dir(place.path().join("parts")).unwrap().count(), 0);
}

/// Property: the sums of a part that a fault has sealed can be read before and after its file is certified.
#[test]
fn sums_of_a_part_that_a_fault_sealed_stay() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::default());
    let (volume, _) = open(&disk).unwrap();
    let part = part(7, 1);
    let chunks = vec![chunk(part, 0, 0, 100), chunk(part, 1, 100, 50)];
    let durable = Item::Durable { part, chunks: chunks.clone() };
    let sealed = Item::Sealed { part, by: SealedBy::Fault };
    assert!(commit(&volume, vec![Item::Opened { part, origin: origin() }, durable, sealed]));
    assert_eq!(volume.chunks_of(part).unwrap(), chunks, "the index has them");
    assert!(commit(&volume, vec![Item::Certified(certified(part).pack())]));
    assert_eq!(volume.chunks_of(part).unwrap(), chunks);
}

/// Property: files that are open at once spread over all volumes, so that all disks work. The first one gets
/// the volume with the most free space. A volume that cannot be written gets none.
#[test]
fn open_files_spread_over_all_volumes() {
    let settings = ServiceSettings { free_bytes_min: 1 << 30, ..rig::settings_with(64) };
    let volumes = [3 << 30, 50 << 30, 5 << 30, 1 << 20];
    let volumes = volumes.map(|free_bytes| Recovered { free_bytes, ..Recovered::default() });
    let mut service = Service::new(settings, volumes.into(), 0);
    service.connected(1, 0);
    let role = Role::Producer { writer: WriterId([2; 16]), session: 1 };
    let hello = Hello::new(role, String::new(), None);
    service.message(1, Frame::Hello(hello), 0);
    let mut open = |number: u8| -> Vec<u64> {
        let file = FileId([number; 16]);
        let description = origin().description;
        service.message(1, Frame::Open(Open { file, stream: 1, epoch: 1, from: 0, description }), 0);
        service.authorized(1, file, Ok("daq".to_owned()), 0);
        service.status().volumes.iter().map(|volume| volume.open_parts).collect()
    };
    assert_eq!(open(1), [0, 1, 0, 0]);
    assert_eq!(open(2), [0, 1, 1, 0]);
    assert_eq!(open(3), [1, 1, 1, 0]);
    let last = (4..=9).map(open).last();
    assert_eq!(last.as_deref(), Some(&[3, 3, 3, 0][..]));
}
