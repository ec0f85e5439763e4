//! Any bytes as a manifest give numbers of runs or an error, as they are and with a right checksum. The same
//! holds for a manifest of version 1 with any bytes put into it.
#![no_main]

use exacat_store_embedded::read_manifest;
use libfuzzer_sys::fuzz_target;

const MANIFEST: &[u8] = include_bytes!("../../crates/store-embedded/src/tests/golden/manifest-v1");

fn read(mut bytes: Vec<u8>) {
    let _ = read_manifest(&bytes, *b"golden catalogue");
    if let Some(end) = bytes.len().checked_sub(4) {
        let sum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        let _ = read_manifest(&bytes, *b"golden catalogue");
    }
}

fuzz_target!(|data: &[u8]| match data {
    [0, bytes @ ..] => read(bytes.to_vec()),
    [_, place, bytes @ ..] => {
        let mut manifest = MANIFEST.to_vec();
        let length = manifest.len();
        for (index, byte) in bytes.iter().enumerate() {
            manifest[(usize::from(*place) + index) % length] = *byte;
        }
        read(manifest);
    }
    _ => {}
});
