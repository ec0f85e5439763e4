//! Any bytes as an archived segment give changes or an error. The same holds for a segment of version 1 with
//! any bytes in one of its parts and right checksums, and for any records in a right block. The places of the
//! parts follow the description of the format.
#![no_main]

use exacat_model::Change;
use exacat_store_embedded::read_segment;
use libfuzzer_sys::fuzz_target;

const GOLDEN: &[u8] = include_bytes!("../../crates/store-embedded/src/tests/golden/archive-v1.segment");
const HEADER_BYTES: usize = 128;
const BLOCK_HEAD_BYTES: usize = 40;
const ENTRY_BYTES: usize = 44;
const FOOTER_BYTES: usize = 40;
/// Place of the plain segment's salt, in the header of this one.
const SALT: std::ops::Range<usize> = 16 + 48..16 + 56;
const FIRST_REVISION: u64 = 42;
const FIRST_PLACE: u64 = 96;

fn crc(at: u64, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&GOLDEN[SALT]);
    hasher.update(&at.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

fn read(bytes: &[u8]) {
    let mut last = None;
    let _ = read_segment(bytes, |change: Change| {
        assert!(last.is_none_or(|last| last + 1 == change.revision.0), "a gap before {change:?}");
        last = Some(change.revision.0);
    });
}

/// Puts `bytes` somewhere into a part.
fn put(part: &mut [u8], place: u16, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        let at = (usize::from(place) + index) % part.len();
        part[at] = *byte;
    }
}

/// An archived segment with one block, of this frame; its index and footer are right.
fn around(frame: &[u8], plain_bytes: u32, records: u32, last: u64) -> Vec<u8> {
    let mut file = GOLDEN[..HEADER_BYTES].to_vec();
    let mut block = vec![0; 4];
    block.extend_from_slice(&(frame.len() as u32).to_le_bytes());
    block.extend_from_slice(&plain_bytes.to_le_bytes());
    block.extend_from_slice(&records.to_le_bytes());
    block.extend_from_slice(&FIRST_REVISION.to_le_bytes());
    block.extend_from_slice(&last.to_le_bytes());
    block.extend_from_slice(&FIRST_PLACE.to_le_bytes());
    block.extend_from_slice(frame);
    let sum = crc(HEADER_BYTES as u64, &block[4..]);
    block[..4].copy_from_slice(&sum);
    file.extend_from_slice(&block);
    let index_at = file.len() as u64;
    let mut index = (HEADER_BYTES as u64).to_le_bytes().to_vec();
    index.extend_from_slice(&block[4..BLOCK_HEAD_BYTES]);
    assert_eq!(index.len(), ENTRY_BYTES);
    let mut footer = index_at.to_le_bytes().to_vec();
    footer.extend_from_slice(&1u32.to_le_bytes());
    footer.extend_from_slice(&crc(index_at, &index));
    footer.extend_from_slice(&[0; 8]);
    footer.extend_from_slice(b"exacatLE");
    footer.extend_from_slice(&[0; 4]);
    footer.extend_from_slice(&crc(0, &footer));
    assert_eq!(footer.len(), FOOTER_BYTES);
    file.extend_from_slice(&index);
    file.extend_from_slice(&footer);
    file
}

/// A zstd frame that says it has these bytes, and has them as they are.
fn raw_frame(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    frame.extend_from_slice(&((bytes.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    frame.extend_from_slice(bytes);
    frame
}

/// A record with this body, as the plain segment's salt makes it valid.
fn record(body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    if body.len() >= 8 {
        body[..8].copy_from_slice(&FIRST_REVISION.to_le_bytes());
    }
    let length = (body.len() as u32).to_le_bytes();
    let mut rest = 0u32.to_le_bytes().to_vec();
    rest.extend_from_slice(&[1, 0, 0, 0]);
    rest.extend_from_slice(&body);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&GOLDEN[SALT]);
    hasher.update(&length);
    hasher.update(&rest);
    let mut record = length.to_vec();
    record.extend_from_slice(&hasher.finalize().to_le_bytes());
    record.extend_from_slice(&rest);
    record.resize(record.len().next_multiple_of(8), 0);
    record
}

fuzz_target!(|data: &[u8]| {
    let [what, high, low, bytes @ ..] = data else { return };
    let place = u16::from_be_bytes([*high, *low]);
    let mut file = GOLDEN.to_vec();
    let footer = file.len() - FOOTER_BYTES;
    match what % 6 {
        0 => {
            let mut any = GOLDEN[..8].to_vec();
            any.extend_from_slice(bytes);
            read(&any);
        }
        // Damage: found, or of no effect.
        1 => {
            put(&mut file, place, bytes);
            read(&file);
        }
        // The first block.
        2 => {
            let length = u32::from_le_bytes(file[132..136].try_into().expect("four bytes")) as usize;
            let block = &mut file[HEADER_BYTES..HEADER_BYTES + BLOCK_HEAD_BYTES + length];
            put(&mut block[4..], place, bytes);
            let sum = crc(HEADER_BYTES as u64, &block[4..]);
            block[..4].copy_from_slice(&sum);
            read(&file);
        }
        // The index, or the footer.
        3 => {
            let index = footer - 2 * ENTRY_BYTES;
            put(&mut file[index..footer + 28], place, bytes);
            let sum = crc(index as u64, &file[index..footer]);
            file[footer + 12..footer + 16].copy_from_slice(&sum);
            let sum = crc(0, &file[footer..footer + 36]);
            file[footer + 36..].copy_from_slice(&sum);
            read(&file);
        }
        // Any frame, which claims any size.
        4 => read(&around(bytes, u32::from(place) << (*what >> 4), 1, FIRST_REVISION)),
        _ => {
            let record = record(bytes);
            read(&around(&raw_frame(&record), record.len() as u32, 1, FIRST_REVISION + u64::from(place)));
        }
    }
});
