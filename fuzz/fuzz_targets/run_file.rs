//! Any bytes as a run or a manifest give rows or an error. The same holds for a run of version 1 with any
//! bytes in one of its parts and right checksums. The places of the parts follow the description of the
//! format.
#![no_main]

use exacat_store_embedded::{read_manifest, read_run};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const GOLDEN: &[u8] = include_bytes!("../../crates/store-embedded/src/tests/golden/run-v1.run");
const MANIFEST: &[u8] = include_bytes!("../../crates/store-embedded/src/tests/golden/manifest-v1");
const CATALOGUE: [u8; 16] = [5; 16];
const HEADER_BYTES: usize = 64;
const SALT_AT: usize = 40;
const FOOTER_BYTES: usize = 192;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn crc(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_le_bytes()
}

/// Puts `bytes` somewhere into a part, behind its first `kept`.
fn put(part: &mut [u8], kept: usize, place: u16, bytes: &[u8]) {
    let room = part.len() - kept;
    for (index, byte) in bytes.iter().enumerate() {
        part[kept + (usize::from(place) + index) % room] = *byte;
    }
}

fn read(bytes: &[u8]) {
    let _ = read_run(bytes, CATALOGUE, |_, _, _| {});
}

fuzz_target!(|data: &[u8]| {
    let [what, high, low, bytes @ ..] = data else { return };
    let place = u16::from_be_bytes([*high, *low]);
    let mut run = GOLDEN.to_vec();
    let salt = GOLDEN[SALT_AT..SALT_AT + 8].to_vec();
    let footer = run.len() - FOOTER_BYTES;
    match what % 6 {
        // The first page.
        0 => {
            let length = u32::from_le_bytes(run[HEADER_BYTES + 4..HEADER_BYTES + 8].try_into().expect("four bytes"));
            let page = &mut run[HEADER_BYTES..HEADER_BYTES + length as usize];
            put(page, 8, place, bytes);
            let sum = crc(&[&salt, &(HEADER_BYTES as u64).to_le_bytes(), &page[4..]]);
            page[..4].copy_from_slice(&sum);
            read(&run);
        }
        // The first block of the GUID index.
        1 => {
            let at = word(&run, footer + 144) as usize;
            let ends = word(&run, footer + 48 + 2 * 24) as usize;
            let mut end = [0; 8];
            end[..5].copy_from_slice(&run[ends..ends + 5]);
            let block = &mut run[at..at + u64::from_le_bytes(end) as usize];
            put(block, 4, place, bytes);
            let sum = crc(&[&salt, &0u32.to_le_bytes(), &block[4..]]);
            block[..4].copy_from_slice(&sum);
            read(&run);
        }
        // One of the four parts that are read whole.
        2..=3 => {
            let which = usize::from(place) % 4;
            let entry = footer + 48 + which * 24;
            let (at, length) = (word(&run, entry) as usize, word(&run, entry + 8) as usize);
            put(&mut run[at..at + length], 0, place / 4, bytes);
            let sum = xxh3_64_with_seed(&run[at..at + length], word(&run, SALT_AT));
            run[entry + 16..entry + 24].copy_from_slice(&sum.to_le_bytes());
            let sum = crc(&[&salt, &run[footer..footer + FOOTER_BYTES - 4]]);
            run[footer + FOOTER_BYTES - 4..].copy_from_slice(&sum);
            read(&run);
        }
        // The footer itself.
        4 => {
            put(&mut run[footer..footer + FOOTER_BYTES - 4], 8, place, bytes);
            let sum = crc(&[&salt, &run[footer..footer + FOOTER_BYTES - 4]]);
            run[footer + FOOTER_BYTES - 4..].copy_from_slice(&sum);
            read(&run);
        }
        _ => {
            read(bytes);
            let mut manifest = MANIFEST.to_vec();
            let end = manifest.len() - 4;
            put(&mut manifest[..end], 8, place, bytes);
            let sum = crc(&[&manifest[..end]]);
            manifest[end..].copy_from_slice(&sum);
            let _ = read_manifest(&manifest, *b"golden catalogue");
            let _ = read_manifest(bytes, CATALOGUE);
        }
    }
});
