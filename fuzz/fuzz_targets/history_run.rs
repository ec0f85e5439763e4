//! Any bytes as a run of the history give rows or an error. The same holds for a run of version 1 with any
//! bytes in one of its parts and right checksums. The places of the parts follow the description of the
//! format.
#![no_main]

use std::sync::Arc;

use exacat_disk::InMemory;
use exacat_history::run::{Fields, Run, Wanted};
use exacat_history::sorted::SortedRows;
use libfuzzer_sys::fuzz_target;

const GOLDEN: &[u8] = include_bytes!("../../crates/history/src/golden/run-v1.run");
const GROUP: u32 = 7;
const DAY: i32 = -3;
const HEADER_BYTES: usize = 64;
const FOOTER_BYTES: usize = 128;

fn read(bytes: Vec<u8>) {
    let Ok(run) = Run::open("run", Arc::new(InMemory::new(bytes)), GROUP, DAY) else { return };
    let run = Arc::new(run);
    let mut scan = run.scan(Wanted::all());
    while let Ok(Some(rows)) = scan.next_rows() {
        for row in 0..rows.rows() {
            rows.row(row).for_each(drop);
        }
        let _ = run.latest(Fields::Set([1].into())).before(rows.key(0).0, i64::MAX);
    }
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

/// Puts bytes somewhere into a part, and returns its checksum.
fn put(run: &mut [u8], (start, end): (usize, usize), place: u16, bytes: &[u8]) -> [u8; 4] {
    for (index, byte) in bytes.iter().enumerate() {
        run[start + (usize::from(place) + index) % (end - start)] = *byte;
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&GOLDEN[24..32]);
    hasher.update(&(start as u64).to_le_bytes());
    hasher.update(&run[start..end]);
    hasher.finalize().to_le_bytes()
}

/// Returns the parts of the chunk behind its head, without their checksums: a part ends where the four
/// bytes that follow are its checksum.
fn parts(start: usize, end: usize) -> Vec<(usize, usize)> {
    let (mut parts, mut at) = (Vec::new(), start);
    while at < end {
        let is_end = |to: &usize| put(&mut GOLDEN.to_vec(), (at, *to), 0, &[]) == GOLDEN[*to..*to + 4];
        let Some(to) = (at + 1..end - 3).find(is_end) else { break };
        parts.push((at, to));
        at = to + 4;
    }
    parts
}

fuzz_target!(|data: &[u8]| {
    static PARTS: std::sync::OnceLock<Vec<(usize, usize)>> = std::sync::OnceLock::new();
    let [what, high, low, bytes @ ..] = data else { return };
    let place = u16::from_be_bytes([*high, *low]);
    let mut run = GOLDEN.to_vec();
    let footer = run.len() - FOOTER_BYTES;
    let index = u64_at(&run, footer + 32);
    match what % 5 {
        // The head of the chunk.
        0 => {
            let head = HEADER_BYTES + u32_at(&run, index + 12) - 4;
            let sum = put(&mut run, (HEADER_BYTES, head), place, bytes);
            run[head..head + 4].copy_from_slice(&sum);
        }
        // A page or block.
        1 => {
            let behind = HEADER_BYTES + u32_at(&run, index + 12);
            let parts = PARTS.get_or_init(|| parts(behind, index));
            let (start, end) = parts[usize::from(place >> 8) % parts.len()];
            let sum = put(&mut run, (start, end), place & 0xff, bytes);
            run[end..end + 4].copy_from_slice(&sum);
        }
        // The index, and with it the footer.
        2 => {
            let sum = put(&mut run, (index, footer), place, bytes);
            run[footer + 80..footer + 84].copy_from_slice(&sum);
            let sum = put(&mut run, (footer, footer + FOOTER_BYTES - 4), 0, &[]);
            run[footer + FOOTER_BYTES - 4..].copy_from_slice(&sum);
        }
        // The footer itself.
        3 => {
            let sum = put(&mut run, (footer, footer + FOOTER_BYTES - 4), place, bytes);
            run[footer + FOOTER_BYTES - 4..].copy_from_slice(&sum);
        }
        _ => run = bytes.to_vec(),
    }
    read(run);
});
