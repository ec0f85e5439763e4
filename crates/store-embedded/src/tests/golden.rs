//! The log's format is final: a segment written once must be read for ever, to the same changes.
//!
//! The first release wrote `golden/log-v1.segment`. If this test fails, the format changed: that
//! needs a new version, and a lasting reader of this one. `golden/archive-v1.segment` is the same
//! segment, archived: it must be read for ever too, but its bytes may change, because the
//! compression may get better. `golden/mark-v2.segment` is the header of version 2, with the
//! reserved space, and an end mark.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::Disk;
use exacat_log::Segment;
use exacat_log::record::{Head, RecordWriter, read_head};
use exacat_log::segment::{Ending, HEADER_BYTES, Header, Records};
use exacat_model::codec::Encode;
use exacat_model::{
    At, Body, Change, Checksum, Checksums, DirId, Effect, Entry, EntryId, FieldChange, File, Fingerprint,
    GroupId, Guid, Lfn, Location, Mode, Name, OperationId, Pfn, Replica, ReplicaState, Revision, SeNumber,
    Tag, TimeMs, TimelineId, UserId,
};

use crate::archive::Packer;
use crate::changes::{encode_effect, read_changes};
use crate::history::History;
use exacat_testkit::simulated::SimulatedDisk;

const GOLDEN_V1: &[u8] = include_bytes!("golden/log-v1.segment");
const GOLDEN: &[u8] = include_bytes!("golden/log-v2.segment");
/// The same segment with a fingerprint in each record.
const FINGERPRINTED: &[u8] = include_bytes!("golden/log-fingerprinted.segment");
const FINGERPRINT: Fingerprint = Fingerprint(0xfedc_ba98_7654_3210);
const MARKED: &[u8] = include_bytes!("golden/mark-v2.segment");
const ARCHIVED: &[u8] = include_bytes!("golden/archive-v1.segment");

fn header() -> Header {
    Header { timeline: TimelineId(*b"golden timeline!"), version: 2, ..header_v1() }
}

fn header_v1() -> Header {
    Header {
        version: 1,
        catalogue: *b"golden catalogue",
        first_revision: Revision(42),
        created: TimeMs(1_790_000_000_000),
        salt: 0x0123_4567_89ab_cdef,
        digest: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
        reserved: 0,
        timeline: TimelineId::of_catalogue(*b"golden catalogue"),
    }
}

fn changes() -> Vec<Vec<Change>> {
    let at = At { parent: DirId(7), name: Name::parse("AOD żółć.root").unwrap() };
    let guid = Guid(*b"0123456789abcdef");
    let derived = Replica { se: SeNumber(300), state: ReplicaState::Available, location: Location::Derived };
    let pfn = Pfn::parse("root://host//path/file").unwrap();
    let explicit =
        Replica { se: SeNumber(5), state: ReplicaState::Suspect, location: Location::Explicit(pfn) };
    let entry = Entry {
        at: at.clone(),
        owner: UserId(10),
        group: GroupId(20),
        mode: Mode::FILE,
        created: TimeMs(1_790_000_000_123),
        modified: TimeMs(1_414_153_225_000),
        revision: Revision(42),
        expires: Some(TimeMs(1_800_000_000_000)),
        tags: vec![Tag::parse("run=600123").unwrap()],
        body: Body::File(File {
            guid,
            size: Some(1 << 40),
            checksums: Checksums::one(Checksum::parse("adler32:67b54f3").unwrap()),
            job: Some(9),
            replicas: vec![explicit, derived],
        }),
    };
    let change = |revision: u64, operation: u8, index: u32, effect: Effect| Change {
        revision: Revision(revision),
        time: TimeMs(1_790_000_000_123 + revision),
        who: UserId(3),
        operation: OperationId([operation; 16]),
        index,
        effect,
    };
    let fields = vec![FieldChange::Mode { before: Mode::FILE, after: Mode::new(0o600).unwrap() }];
    let id = EntryId::Object(guid);
    let lfn = Lfn::parse("/a/AOD żółć.root").unwrap();
    let mut first = vec![
        change(42, 1, 0, Effect::Created { entry: Box::new(entry) }),
        change(43, 1, 5, Effect::Updated { at: at.clone(), id, fields, previous: None }),
    ];
    // One record has one time.
    first[1].time = first[0].time;
    vec![first, vec![change(44, 2, 0, Effect::Removed { id, at, lfn, previous: None })]]
}

/// Returns the golden segment as this release writes it, each record with this fingerprint.
fn written(fingerprint: Fingerprint) -> Vec<u8> {
    let mut group = Vec::new();
    let mut effect = Vec::new();
    for changes in changes() {
        let first = &changes[0];
        let head = Head {
            first_revision: first.revision,
            time: first.time,
            operation: first.operation,
            fingerprint,
            who: first.who,
            count: 0,
        };
        let mut record = RecordWriter::begin(&mut group, head);
        for change in &changes {
            encode_effect(&change.effect, &mut effect);
            record.add(&mut group, change.index, &effect);
        }
        record.end(&mut group, header().salt);
    }
    let mut segment = header().encode().to_vec();
    segment.extend(group);
    segment.resize(1024, 0);
    segment
}

#[test]
fn segment_of_each_version_is_read() {
    read_golden(GOLDEN_V1, header_v1());
    read_golden(GOLDEN, header());
    assert_eq!(header_v1().encode(), GOLDEN_V1[..HEADER_BYTES]);
}

fn read_golden(golden: &[u8], header: Header) {
    assert_eq!(Header::decode("golden", golden).unwrap(), header);
    let mut records = Records::new(golden, header.salt, HEADER_BYTES);
    let mut read = Vec::new();
    while let Some((_, body)) = records.next_record() {
        let mut changes = Vec::new();
        read_changes(body, Revision(0), |change, _| {
            changes.push(change);
            Ok::<bool, exacat_model::codec::DecodeError>(true)
        })
        .unwrap();
        assert_eq!(read_head(body).unwrap().count as usize, changes.len());
        read.push(changes);
    }
    assert_eq!(read, changes());
    assert_eq!(records.ending("golden", false).unwrap(), Ending::Clean);
}

#[test]
fn mark_and_header_of_version_2_are_read_and_written_as_they_were() {
    let header = Header { version: 2, reserved: 64 << 20, ..header() };
    assert_eq!(Header::decode("golden", MARKED).unwrap(), header);
    let mut written = header.encode().to_vec();
    written.extend(exacat_log::record::mark(header.salt, Revision(41)));
    written.resize(MARKED.len(), 0);
    assert_eq!(written, MARKED);
    let mut records = Records::new(MARKED, header.salt, HEADER_BYTES);
    assert!(records.next_record().is_none(), "a mark has no changes");
    assert!(records.is_marked());
    assert_eq!(records.ending("golden", true).unwrap(), Ending::Clean);
    assert_eq!(MARKED[88..92], 16384u32.to_le_bytes(), "reserved space in units of 4 KiB");
    assert_eq!((MARKED[96], MARKED[108], MARKED[112]), (8, 2, 41), "length, type, last revision");
}

/// Reads as tools do: the same changes; nothing of a torn group; an error for damage.
#[test]
fn a_segment_is_read_without_its_store() {
    let mut read = Vec::new();
    crate::read_segment(GOLDEN, |change| read.push(change)).unwrap();
    assert_eq!(read, changes().concat());
    let mut torn = GOLDEN.to_vec();
    torn[100] ^= 1;
    crate::read_segment(&torn, |change| panic!("{change:?} was never answered")).unwrap();
    let mut damaged = GOLDEN.to_vec();
    damaged[20] ^= 1;
    let error = crate::read_segment(&damaged, |_| ()).unwrap_err();
    assert_eq!(error.kind, exacat_model::ErrorKind::Corrupt);
    assert!(crate::read_segment(&GOLDEN[..50], |_| ()).is_err());
}

#[test]
fn this_release_writes_the_same_bytes() {
    for (fingerprint, golden) in [(Fingerprint::UNKNOWN, GOLDEN), (FINGERPRINT, FINGERPRINTED)] {
        let written = written(fingerprint);
        assert_eq!(written.len(), golden.len());
        if let Some(at) = written.iter().zip(golden).position(|(one, other)| one != other) {
            panic!("byte {at} is {} now, and was {}", written[at], golden[at]);
        }
    }
}

/// A record with a fingerprint is read for ever too, with otherwise the same content.
#[test]
fn fingerprinted_records_are_read() {
    let mut records = Records::new(FINGERPRINTED, header().salt, HEADER_BYTES);
    let mut counts = Vec::new();
    while let Some((_, body)) = records.next_record() {
        let head = read_head(body).unwrap();
        assert_eq!(head.fingerprint, FINGERPRINT);
        counts.push(head.count);
    }
    assert_eq!(counts, [2, 1]);
    let mut read = Vec::new();
    crate::read_segment(FINGERPRINTED, |change| read.push(change)).unwrap();
    assert_eq!(read, changes().concat());
    let record = &FINGERPRINTED[96..];
    assert_eq!(record[52..56], (2u32 | 1 << 31).to_le_bytes());
    assert_eq!(record[56..64], FINGERPRINT.0.to_le_bytes());
    assert_eq!(record[64], 0, "the first change is of mutation 0");
}

#[test]
fn the_archived_segment_of_the_first_release_is_read() {
    let mut read = Vec::new();
    crate::read_segment(ARCHIVED, |change| read.push(change)).unwrap();
    assert_eq!(read, changes().concat());
    let mut damaged = ARCHIVED.to_vec();
    damaged[200] ^= 1;
    let error = crate::read_segment(&damaged, |_| ()).unwrap_err();
    assert!(error.message.contains("block 0, changes 42 to 43, fails its checksum"), "{error}");
}

/// Returns the golden segment, archived by this release, each record in a block of its own.
fn archived() -> Vec<u8> {
    let disk = SimulatedDisk::new();
    let directory = Path::new("/log");
    let segment = Arc::new(Segment::new(directory, Revision(42)));
    disk.create_directory(directory).unwrap();
    disk.create(&segment.path).unwrap().write_at(GOLDEN_V1, 0).unwrap();
    let history = History::new(disk.shared(), header().catalogue, vec![Arc::clone(&segment)]);
    let begun = Packer::begin(&history, directory, Arc::clone(&segment), Revision(45), 1);
    let mut packer = begun.unwrap().unwrap();
    while !packer.step().unwrap() {}
    disk.bytes(&segment.archived_path())
}

#[test]
fn this_release_archives_the_same_records() {
    let written = archived();
    let mut read = Vec::new();
    crate::read_segment(&written, |change| read.push(change)).unwrap();
    assert_eq!(read, changes().concat());
    assert_eq!(written[..128], ARCHIVED[..128]);
    let (ours, golden) = (&written[128..], &ARCHIVED[128..]);
    assert_eq!(ours[8..40], golden[8..40], "but for the compressed bytes the blocks say the same");
}

/// Checks the offsets in the document's description of an archived segment.
#[test]
fn the_archived_bytes_are_where_the_document_says() {
    let word = |at: usize| u64::from_le_bytes(*ARCHIVED[at..].first_chunk().unwrap());
    let half = |at: usize| u32::from_le_bytes(*ARCHIVED[at..].first_chunk().unwrap());
    assert_eq!(&ARCHIVED[0..8], b"exacatLZ");
    assert_eq!(ARCHIVED[8..16], [1, 0, 128, 0, 0, 0, 0, 0]);
    assert_eq!(ARCHIVED[16..112], GOLDEN_V1[..96], "the plain segment's header");
    let first = &ARCHIVED[128..];
    let second = 128 + 40 + half(128 + 4) as usize;
    assert_eq!(first[40..44], [0x28, 0xb5, 0x2f, 0xfd], "a zstd frame");
    assert_eq!((half(128 + 12), word(128 + 16), word(128 + 24), word(128 + 32)), (1, 42, 43, 96));
    let plain_bytes = half(128 + 8);
    assert_eq!(half(second + 12), 1);
    assert_eq!((word(second + 16), word(second + 24)), (44, 44));
    assert_eq!(word(second + 32), 96 + u64::from(plain_bytes));
    let index = second + 40 + half(second + 4) as usize;
    let footer = index + 2 * 44;
    assert_eq!(footer + 40, ARCHIVED.len());
    assert_eq!((word(index), word(index + 44)), (128, second as u64));
    assert_eq!(ARCHIVED[index + 8..index + 44], first[4..40]);
    assert_eq!((word(footer), half(footer + 8)), (index as u64, 2));
    assert_eq!(word(footer + 16), changes()[1][0].time.0);
    assert_eq!(&ARCHIVED[footer + 24..footer + 32], b"exacatLE");
    // The document gives three checksums of parts.
    let crc = |parts: &[&[u8]]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header().salt.to_le_bytes());
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finalize()
    };
    assert_eq!(half(128), crc(&[&128u64.to_le_bytes(), &ARCHIVED[132..second]]));
    assert_eq!(half(footer + 12), crc(&[&(index as u64).to_le_bytes(), &ARCHIVED[index..footer]]));
    assert_eq!(half(footer + 36), crc(&[&[0; 8], &ARCHIVED[footer..footer + 36]]));
}

/// Checks the offsets in the document's description of a segment.
#[test]
fn the_bytes_are_where_the_document_says() {
    assert_eq!(&GOLDEN[0..8], b"exacatLG");
    assert_eq!(GOLDEN[8..12], [2, 0, 96, 0]);
    assert_eq!(&GOLDEN[16..32], b"golden catalogue");
    assert_eq!(GOLDEN[32..40], 42u64.to_le_bytes());
    assert_eq!(GOLDEN[48..56], 0x0123_4567_89ab_cdefu64.to_le_bytes());
    assert_eq!(&GOLDEN[72..88], b"golden timeline!");
    let record = &GOLDEN[96..];
    assert_eq!(record[8..16], [0, 0, 0, 0, 1, 0, 0, 0], "the first of its group; changes; no flags");
    assert_eq!(record[16..24], 42u64.to_le_bytes());
    assert_eq!(record[32..48], [1; 16]);
    assert_eq!(record[48..52], 3u32.to_le_bytes());
    assert_eq!(record[52..56], 2u32.to_le_bytes());
    assert_eq!(record[56], 0, "the first change is of mutation 0");
    let length = changes()[0][0].effect.to_bytes().len();
    assert_eq!(usize::from(record[57]), length);
    assert_eq!(record[58], 1, "an effect `Created`");
}
