//! Any parts of a row give an entry or an error.
#![no_main]

use exacat_store_embedded::read_row;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [name, shape, checksum, data @ ..] = data else { return };
    let mut rest = data;
    let mut part = |count: usize| {
        let (part, left) = rest.split_at(count.min(rest.len()));
        rest = left;
        part
    };
    let name = part(usize::from(name % 32));
    let shape = part(usize::from(*shape));
    let checksum = part(usize::from(checksum % 80));
    let numbers = part(56);
    let _ = read_row(name, shape, numbers, checksum, rest);
});
