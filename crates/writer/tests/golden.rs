//! Items of the index, byte for byte as committed: the stored format cannot change unnoticed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::{Lfn, TagKey};
use exacat_wire::writer::{
    ByteRange, ChunkRecord, Close, Description, FileId, PartOwner, PartShare, ServiceId, WriterId,
};
use exacat_writer::{CertifiedFile, FileStage, Index, Item, PartKey, PartOrigin, SealedBy, Segment};

const FILE: FileId = FileId(*b"file-of-a-writer");
const WRITER: WriterId = WriterId(*b"writer-of-a-file");
const SERVICE: ServiceId = ServiceId(*b"a-writer-service");

fn certified(segments: Vec<Segment>) -> CertifiedFile {
    let share = |epoch, bytes| PartShare { part: PartOwner { epoch, service: SERVICE }, bytes };
    CertifiedFile {
        file: FILE,
        writer: WRITER,
        owner: "daq".to_owned(),
        run: "117".to_owned(),
        stream: "tpc".to_owned(),
        lfn: Lfn::parse("/data/117/tpc.0001").unwrap(),
        begun: 300,
        length: 70_004,
        events: 300,
        adler32: 0x1122_3344,
        duplicates: 3,
        shares: if segments.len() == 1 {
            vec![share(2, 70_004)]
        } else {
            vec![share(1, 4), share(2, 70_000)]
        },
        segments,
        is_certifier: true,
        epochs: vec![2],
    }
}

fn items() -> Vec<Item> {
    let part = PartKey { file: FILE, epoch: 2 };
    let description = Description {
        run: "117".to_owned(),
        stream: "tpc".to_owned(),
        lfn: Lfn::parse("/data/117/tpc.0001").unwrap(),
        tags: vec![(TagKey::parse("detector").unwrap(), "tpc".to_owned())],
    };
    let origin = PartOrigin { writer: WRITER, stream: 7, owner: "daq".to_owned(), begun: 300, description };
    let chunk =
        ChunkRecord { sequence: 258, offset: 70_000, length: 4, events: 1, crc32c: 0x0102_0304, adler32: 5 };
    let owner = |epoch| PartOwner { epoch, service: SERVICE };
    let close = Close {
        file: FILE,
        epoch: 2,
        length: 70_004,
        chunks: 259,
        events: 300,
        adler32: 0x1122_3344,
        parts: vec![owner(1), owner(2)],
    };
    let segment = |epoch, from, to| Segment { part: owner(epoch), range: ByteRange { from, to } };
    vec![
        Item::Opened { part, origin },
        Item::Durable { part, chunks: vec![chunk] },
        Item::Sealed { part, by: SealedBy::Order },
        Item::Closed(close),
        Item::Stage { file: FILE, stage: FileStage::Failed, reason: "lost".to_owned() },
        Item::Certified(certified(vec![segment(2, 0, 70_004)]).pack()),
        Item::Certified(certified(vec![segment(1, 0, 4), segment(2, 4, 70_004)]).pack()),
        Item::Forgotten(FILE),
    ]
}

const GOLDENS: [&str; 8] = [
    "0166696c652d6f662d612d777269746572027772697465722d6f662d612d66696c650703646171ac0203313137 \
     03747063122f646174612f3131372f7470632e3030303101086465746563746f7203747063",
    "0266696c652d6f662d612d77726974657202018202f0a20404010403020105000000",
    "0366696c652d6f662d612d7772697465720201",
    "0466696c652d6f662d612d77726974657202f4a2048302ac02443322110201612d7772697465722d7365727669 \
     636502612d7772697465722d73657276696365",
    "0566696c652d6f662d612d77726974657206046c6f7374",
    "0666696c652d6f662d612d7772697465727772697465722d6f662d612d66696c65036461710331313703747063 \
     122f646174612f3131372f7470632e30303031ac02f4a204ac0203443322110102612d7772697465722d736572 \
     76696365f4a20401010200",
    "0666696c652d6f662d612d7772697465727772697465722d6f662d612d66696c65036461710331313703747063 \
     122f646174612f3131372f7470632e30303031ac02f4a204ac0203443322110201612d7772697465722d736572 \
     766963650402612d7772697465722d73657276696365f0a20401010202010402f0a204",
    "0766696c652d6f662d612d777269746572",
];

/// Property: each item has the bytes below, comes back from them, and is refused when they are cut.
#[test]
fn each_item_is_byte_for_byte_as_committed() {
    let mut wrong = Vec::new();
    for (item, golden) in items().into_iter().zip(GOLDENS) {
        let mut bytes = Vec::new();
        item.encode(&mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if hex != golden.split_whitespace().collect::<String>() {
            wrong.push(hex);
        }
        assert_eq!(Item::decode(&mut Reader::new(&bytes)).unwrap(), item);
        for at in 0..bytes.len() {
            assert!(Item::decode(&mut Reader::new(&bytes[..at])).is_err(), "cut at {at}: {item:?}");
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Property: the index comes back from its own items, and a certified file has no other entry. The fuzz
/// target `writer_volume` searches for more.
#[test]
fn index_comes_back_from_its_items() {
    let mut index = Index::default();
    for (at, item) in items().iter().enumerate() {
        index.apply(item).unwrap();
        let mut restored = Index::default();
        index.items().iter().for_each(|item| restored.apply(item).unwrap());
        assert_eq!(restored, index, "after item {at}");
    }
    assert_eq!(index, Index::default(), "the last item forgets the file");
    let items = items();
    index.apply(&items[5]).unwrap();
    assert!(index.apply(&items[0]).is_err(), "a part of a certified file begins");
    index.apply(&items[3]).unwrap();
    assert!(index.files.is_empty());
}
