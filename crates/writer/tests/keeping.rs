//! Certified files: their stages, their removal, their pages, and the cost of many of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod rig;

use std::path::Path;
use std::time::Instant;

use exacat_model::{Lfn, TimeMs};
use exacat_testkit::simulated::{Fault, SimulatedDisk};
use exacat_wire::writer::{
    ByteRange, ChunkHead, Close, Description, FileId, Frame, Hello, Open, PartOwner, PartShare, Role,
    WriterId,
};
use exacat_writer::limits::PAGE_FILES_MAX;
use exacat_writer::sums::{SummedChunk, adler32, crc32c};
use exacat_writer::{
    CertifiedFile, FileStage, Index, IndexedCertified, Output, PartKey, Recovered, RemovalPolicy, Segment,
    Service, ServiceSettings, Volume, VolumeSettings, Work,
};

use rig::SERVICE;

const WRITER: WriterId = WriterId([7; 16]);
const ROOT: &str = "/volume";

fn settings(removal: RemovalPolicy, blocks: usize) -> ServiceSettings {
    ServiceSettings { idle_ms: 10_000_000, table_every_ms: 500, removal, ..rig::settings_with(blocks) }
}

/// A service that does its works at once.
struct Rig {
    disk: SimulatedDisk,
    running: Option<(Volume, Service)>,
    removal: RemovalPolicy,
    now: u64,
    sent: Vec<Frame>,
}

impl Rig {
    fn new(removal: RemovalPolicy) -> Self {
        let disk = SimulatedDisk::new();
        let mut rig = Rig { disk, running: None, removal, now: 0, sent: Vec::new() };
        rig.start();
        rig
    }

    /// Starts the service, again.
    fn start(&mut self) {
        self.running = None;
        let root = Path::new(ROOT).to_owned();
        let of = VolumeSettings { root, service: SERVICE, adopt: false, segment_bytes: 64 << 10 };
        let (volume, recovered) = Volume::open(self.disk.shared(), &of, TimeMs(5)).unwrap();
        self.running = Some((volume, Service::new(settings(self.removal, 8), vec![recovered], self.now)));
        let role = Role::Producer { writer: WRITER, session: self.now + 1 };
        let hello = Hello::new(role, String::new(), None);
        self.service().connected(1, 0);
        self.tell(Frame::Hello(hello));
    }

    fn service(&mut self) -> &mut Service {
        &mut self.running.as_mut().unwrap().1
    }

    fn tell(&mut self, frame: Frame) {
        let now = self.now;
        self.service().message(1, frame, now);
        self.work(3);
    }

    /// Lets milliseconds pass, and does all works.
    fn work(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now += 1;
            let (volume, service) = self.running.as_mut().unwrap();
            service.tick(self.now);
            while let Some(output) = service.next_output() {
                match output {
                    Output::Send(_, frame) => self.sent.push(frame),
                    Output::Work(at, work) => {
                        let done = volume.run(work, TimeMs(self.now));
                        service.work_done(at, done, self.now);
                    }
                    Output::Authorize { connection, open } => {
                        service.authorized(connection, open.file, Ok("daq".to_owned()), self.now);
                    }
                    Output::Certify(of) => service.catalogue_answered(of.file, Ok(()), self.now),
                    _ => {}
                }
            }
        }
    }

    fn write(&mut self, file: FileId, bytes: &[u8]) {
        self.tell(open(file));
        let head = head(file, 0, bytes);
        let now = self.now;
        self.service().chunk(1, SummedChunk::new(&head, bytes), now);
        self.work(60);
    }

    fn close(&mut self, file: FileId, bytes: &[u8]) {
        let parts = vec![PartOwner { epoch: 1, service: SERVICE }];
        let (length, adler32) = (bytes.len() as u64, adler32(bytes));
        self.tell(Frame::Close(Close { file, epoch: 1, length, chunks: 1, events: 1, adler32, parts }));
        self.work(60);
    }

    fn stage_of(&mut self, file: FileId) -> Option<FileStage> {
        let now = self.now;
        self.service().file(file, now).map(|status| status.stage)
    }

    fn names(&self) -> usize {
        use exacat_disk::Disk as _;
        self.disk.list(&Path::new(ROOT).join("parts")).unwrap().len()
    }
}

fn file(number: u64) -> FileId {
    FileId((u128::from(number) + 1).to_be_bytes())
}

fn open(file: FileId) -> Frame {
    let lfn = Lfn::parse("/data/f").unwrap();
    let description = Description { run: "1".into(), stream: "s".into(), lfn, tags: Vec::new() };
    Frame::Open(Open { file, stream: 7, epoch: 1, from: 0, description })
}

fn head(file: FileId, sequence: u64, bytes: &[u8]) -> ChunkHead {
    ChunkHead {
        writer: WRITER,
        file,
        sequence,
        offset: sequence * bytes.len() as u64,
        stream: 7,
        epoch: 1,
        length: bytes.len() as u32,
        events: 1,
        crc32c: crc32c(bytes),
        adler32: adler32(bytes),
    }
}

/// Property: a file is staged or removed only once it is certified, and by policy only once it is staged.
/// The order survives restarts and faults of the disk. The producer gets `certified` until it is forgotten.
#[test]
fn file_is_removed_only_after_its_staging_or_an_order() {
    let mut rig = Rig::new(RemovalPolicy { after_ms: Some(1_000), free_bytes_low: 0, remember_ms: 5_000 });
    let (staged, ordered, kept) = (file(1), file(2), file(3));
    for of in [staged, ordered, kept] {
        rig.write(of, b"content");
        let now = rig.now;
        assert!(rig.service().staged(of, now).is_err() && rig.service().remove(of, now).is_err());
        rig.close(of, b"content");
        assert_eq!(rig.stage_of(of), Some(FileStage::Certified));
    }
    let now = rig.now;
    rig.service().staged(staged, now).unwrap();
    rig.service().staged(staged, now).unwrap();
    rig.work(900);
    assert_eq!(rig.stage_of(staged), Some(FileStage::Staged));
    rig.start();
    rig.work(900);
    assert_eq!(rig.stage_of(staged), Some(FileStage::Staged), "the time begins anew");
    rig.work(200);
    assert_eq!((rig.stage_of(staged), rig.names()), (Some(FileStage::Removed), 4));
    assert!(rig.service().segments(staged).is_none() && rig.service().segments(kept).is_some());
    // The order is durable before the removal, which fails at first.
    let now = rig.now;
    rig.service().remove(ordered, now).unwrap();
    let operations = rig.disk.operations();
    rig.disk.set_fault(Some(Fault::Once(operations + 4, std::io::ErrorKind::Other)));
    rig.work(5);
    rig.start();
    rig.work(2_000);
    assert_eq!((rig.stage_of(ordered), rig.names()), (Some(FileStage::Removed), 2));
    rig.sent.clear();
    rig.tell(open(ordered));
    assert!(matches!(rig.sent[..], [Frame::Certified(_)]), "{:?}", rig.sent);
    rig.work(6_000);
    assert_eq!((rig.stage_of(ordered), rig.stage_of(staged)), (None, None), "forgotten");
    assert_eq!(rig.stage_of(kept), Some(FileStage::Certified), "nobody asked for its removal");
    rig.start();
    assert_eq!((rig.stage_of(ordered), rig.names()), (None, 2));
}

/// Property: retention counts from the staging, or from a later start, by a clock that goes on evenly. A
/// machine whose clock was wrong by a year, either way, removes no file early, and keeps none for long. Files
/// that were written under the wrong clock are certified.
#[test]
fn clock_that_is_wrong_by_a_year_removes_nothing_early() {
    const YEAR_MS: u64 = 366 * 86_400_000;
    let mut rig = Rig::new(RemovalPolicy { after_ms: Some(1_000), free_bytes_low: 0, remember_ms: YEAR_MS });
    rig.now = 2 * YEAR_MS;
    rig.start();
    for (number, is_ahead) in [(1, true), (2, false), (3, false), (4, true)] {
        let (staged, written) = (file(number), file(number + 10));
        rig.write(staged, b"content");
        rig.close(staged, b"content");
        let now = rig.now;
        rig.service().staged(staged, now).unwrap();
        rig.write(written, b"content");
        rig.work(500);
        rig.now = if is_ahead { rig.now + YEAR_MS } else { rig.now - YEAR_MS };
        rig.start();
        rig.work(900);
        assert_eq!(rig.stage_of(staged), Some(FileStage::Staged), "{number}: the time begins anew");
        rig.work(200);
        assert_eq!(rig.stage_of(staged), Some(FileStage::Removed), "{number}: not a year later");
        rig.close(written, b"content");
        assert_eq!(rig.stage_of(written), Some(FileStage::Certified), "{number}");
        assert!(rig.service().segments(written).is_some(), "{number}");
    }
}

/// Property: a volume with little space gets as much of it as it lacks from staged files, the oldest
/// first, and no other file goes.
#[test]
fn staged_files_make_room_in_their_order() {
    let policy = RemovalPolicy { after_ms: None, free_bytes_low: 1_000, remember_ms: 1 << 40 };
    let mut rig = Rig::new(policy);
    let content = [5; 100];
    for number in [5, 1, 4, 2, 3] {
        rig.write(file(number), &content);
        rig.close(file(number), &content);
        if number != 4 {
            let now = rig.now;
            rig.service().staged(file(number), now).unwrap();
            rig.work(5);
        }
    }
    let removed = |rig: &mut Rig| -> Vec<u64> {
        (1..6).filter(|number| rig.stage_of(file(*number)) == Some(FileStage::Removed)).collect()
    };
    rig.service().free_bytes(0, 1_000);
    rig.work(50);
    assert!(removed(&mut rig).is_empty());
    rig.service().free_bytes(0, 850);
    rig.work(50);
    assert_eq!(removed(&mut rig), [1, 5], "150 bytes are missing, and two files have them");
    rig.service().free_bytes(0, 0);
    rig.work(50);
    assert_eq!(removed(&mut rig), [1, 2, 3, 5], "the other one is not staged");
}

/// Property: bytes of an open file can be read once they are durable, and its status says where it stands.
#[test]
fn durable_bytes_of_an_open_file_can_be_read() {
    let mut rig = Rig::new(RemovalPolicy::default());
    let of = file(1);
    assert!(rig.service().segments(of).is_none());
    rig.tell(open(of));
    assert_eq!(rig.service().segments(of), None, "nothing is durable");
    rig.write(of, b"content");
    let readable = rig.service().segments(of).unwrap();
    assert_eq!((readable.stage, readable.length), (FileStage::Open, None));
    let [segment] = &readable.segments[..] else { panic!("{readable:?}") };
    assert_eq!((segment.volume, segment.range), (Some(0), ByteRange { from: 0, to: 7 }));
    let key = PartKey { file: of, epoch: segment.part.epoch };
    assert_eq!(rig.running.as_ref().unwrap().0.read(key, segment.range).unwrap(), b"content");
    let now = rig.now;
    let status = rig.service().file(of, now).unwrap();
    assert_eq!((status.reason.as_str(), status.owner.as_str()), ("being written", "daq"));
    assert_eq!((status.events, status.bytes, status.writer), (1, 7, Some(WRITER)));
    rig.close(of, b"content");
    let readable = rig.service().segments(of).unwrap();
    assert_eq!((readable.length, readable.adler32), (Some(7), Some(adler32(b"content"))));
    let status = rig.service().status();
    assert_eq!((status.certified_files, status.open_parts, status.queued_bytes), (1, 0, 0));
    assert_eq!(
        (status.blocks_used, status.blocks_reserved, status.credit_bytes),
        (0, 1, 0),
        "of the connection"
    );
    let counters = status.counters;
    assert_eq!((counters.chunks, counters.chunk_bytes, counters.durable_bytes), (1, 7, 7));
    assert_eq!((counters.certified_files, counters.parts), (1, 1));
}

/// Makes a service with so many certified files, as if its volume had been opened.
fn with_certified(count: u64, blocks: usize) -> Service {
    let part = PartOwner { epoch: 1, service: SERVICE };
    let mut index = Index::default();
    for number in 0..count {
        let of = CertifiedFile {
            file: file(number),
            writer: WRITER,
            owner: "daq".to_owned(),
            run: "117".to_owned(),
            stream: "physics".to_owned(),
            lfn: Lfn::parse(&format!("/alice/data/2026/117/raw/117.physics.{number:08}.raw")).unwrap(),
            begun: 0,
            length: 5 << 30,
            events: 100_000,
            adler32: 7,
            duplicates: 0,
            shares: vec![PartShare { part, bytes: 5 << 30 }],
            segments: vec![Segment { part, range: ByteRange { from: 0, to: 5 << 30 } }],
            is_certifier: true,
            epochs: vec![1],
        };
        let certified = IndexedCertified { record: of.pack(), stage: FileStage::Certified };
        index.certified.insert(of.file, certified);
    }
    let recovered = Recovered { index, free_bytes: 1 << 40, ..Recovered::default() };
    Service::new(settings(RemovalPolicy::default(), blocks), vec![recovered], 0)
}

/// Property: pages have every file once, in order, at any limit and stage; none is longer than it may be.
#[test]
fn pages_have_every_file_once() {
    let count = PAGE_FILES_MAX as u64 + 7;
    let service = with_certified(count, 1);
    for limit in [0, 1, 100, PAGE_FILES_MAX, PAGE_FILES_MAX + 1] {
        for (stage, expected) in
            [(None, count), (Some(FileStage::Certified), count), (Some(FileStage::Open), 0)]
        {
            let (mut after, mut found) = (None, Vec::new());
            loop {
                let page = service.files_page(after, stage, limit, 0);
                assert!(page.files.len() <= limit.clamp(1, PAGE_FILES_MAX));
                found.extend(page.files.iter().map(|status| status.file));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found.len() as u64, expected, "limit {limit}");
            assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Measures a service with 256 open and 100 000 certified files: microseconds for each chunk and tick, and
/// bytes for each certified file. `cargo test -p exacat-writer --test keeping -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_many_files() {
    for certified in [0, 100_000] {
        let before = resident_bytes();
        let mut service = with_certified(certified, 1024);
        let kept = resident_bytes().saturating_sub(before).saturating_sub(1024 << 20);
        let role = Role::Producer { writer: WRITER, session: 1 };
        let hello = Hello::new(role, String::new(), None);
        service.connected(1, 0);
        service.message(1, Frame::Hello(hello), 0);
        let mut works: Vec<(usize, Work)> = Vec::new();
        let mut now = 0;
        let drain = |service: &mut Service, works: &mut Vec<(usize, Work)>, now: u64| {
            while let Some(output) = service.next_output() {
                match output {
                    Output::Work(volume, work) => works.push((volume, work)),
                    Output::Authorize { connection, open } => {
                        service.authorized(connection, open.file, Ok("daq".to_owned()), now);
                    }
                    _ => {}
                }
            }
        };
        let files: Vec<FileId> = (0..256).map(|number| file((1 << 40) + number)).collect();
        for of in &files {
            service.message(1, open(*of), now);
            drain(&mut service, &mut works, now);
        }
        let bytes = vec![9; 4096];
        let (mut chunks, mut ticks) = ((0, 0.0), (0, 0.0));
        for round in 0..200 {
            let heads: Vec<ChunkHead> = files.iter().map(|of| head(*of, round, &bytes)).collect();
            let begun = Instant::now();
            for head in &heads {
                service.chunk(1, SummedChunk::new(head, &bytes), now);
            }
            chunks = (chunks.0 + heads.len(), chunks.1 + begun.elapsed().as_secs_f64());
            drain(&mut service, &mut works, now);
            for _ in 0..5 {
                now += 2;
                let begun = Instant::now();
                service.tick(now);
                ticks = (ticks.0 + 1, ticks.1 + begun.elapsed().as_secs_f64());
                drain(&mut service, &mut works, now);
                for (volume, work) in std::mem::take(&mut works) {
                    let done = done_at_once(work);
                    service.work_done(volume, done, now);
                }
                drain(&mut service, &mut works, now);
            }
        }
        let of = |(count, seconds): (usize, f64)| seconds * 1e6 / count as f64;
        println!("{certified} certified: {:.2} us a chunk, {:.2} us a tick", of(chunks), of(ticks));
        println!("  {} bytes a certified file", kept / certified.max(1));
    }
}

/// Says that a work succeeded, without a disk.
fn done_at_once(work: Work) -> exacat_writer::Done {
    use exacat_writer::Done;
    match work {
        Work::Part(work) => {
            let blocks = work.writes.into_iter().map(|write| write.block).collect();
            Done::Part { part: work.part, number: work.number, blocks, outcome: Ok(()) }
        }
        Work::Commit(_) => Done::Commit { outcome: Ok(()), wants_checkpoint: false },
        Work::Checkpoint => Done::Checkpoint(Ok(())),
        Work::Remove { file, .. } => Done::Remove { file, outcome: Ok(()) },
    }
}
