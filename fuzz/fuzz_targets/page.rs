//! A page of version 1 with any bytes put into it, and any bytes as a page, give rows or an error. Both have
//! a right checksum, whose place follows the description of the format.
#![no_main]

use exacat_store_embedded::read_page;
use libfuzzer_sys::fuzz_target;

const RUN: &[u8] = include_bytes!("../../crates/store-embedded/src/tests/golden/run-v1.run");
const AT: usize = 64;
const SALT: std::ops::Range<usize> = 40..48;

fn read(mut page: Vec<u8>) {
    if page.len() < 8 {
        return;
    }
    let length = page.len() as u32;
    page[4..8].copy_from_slice(&length.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&RUN[SALT]);
    sum.update(&(AT as u64).to_le_bytes());
    sum.update(&page[4..]);
    page[..4].copy_from_slice(&sum.finalize().to_le_bytes());
    let salt = u64::from_le_bytes(RUN[SALT].try_into().expect("eight bytes"));
    let _ = read_page(&page, salt, AT as u64, |_, _, _| {});
}

fuzz_target!(|data: &[u8]| match data {
    [0, bytes @ ..] => read(bytes.to_vec()),
    [_, high, low, bytes @ ..] => {
        let length = u32::from_le_bytes(RUN[AT + 4..AT + 8].try_into().expect("four bytes")) as usize;
        let mut page = RUN[AT..AT + length].to_vec();
        let place = usize::from(u16::from_be_bytes([*high, *low]));
        for (index, byte) in bytes.iter().enumerate() {
            page[(place + index) % length] = *byte;
        }
        read(page);
    }
    _ => {}
});
