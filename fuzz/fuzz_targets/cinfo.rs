//! Any bytes of a `.cinfo` file give a state or an error. A state has no more blocks than bits.
#![no_main]

use exacat_wire::xrdmon::cinfo::Cinfo;
use libfuzzer_sys::fuzz_target;

/// Place of the checksum of the fixed part.
const FIXED: usize = 52;

/// Makes the checksums right, so that the rest is read too.
fn sealed(data: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = data.to_vec();
    let sum = crc32c::crc32c(bytes.get(4..FIXED)?).to_le_bytes();
    bytes.get_mut(FIXED..FIXED + 4)?.copy_from_slice(&sum);
    let end = bytes.len().checked_sub(4).filter(|end| *end >= FIXED + 4)?;
    let sum = crc32c::crc32c(&bytes[FIXED + 4..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&sum);
    Some(bytes)
}

fuzz_target!(|data: &[u8]| {
    for bytes in [Some(data.to_vec()), sealed(data)].into_iter().flatten() {
        let Ok(cinfo) = Cinfo::read(&bytes) else { continue };
        assert!(cinfo.blocks_done() <= cinfo.blocks() && cinfo.blocks() / 8 <= bytes.len() as u64);
        assert!(cinfo.bytes_done() <= cinfo.file_bytes);
        assert_eq!(cinfo.is_complete(), cinfo.bytes_done() == cinfo.file_bytes);
        assert!(cinfo.records.len() * 56 <= bytes.len());
        assert!(!cinfo.has(cinfo.blocks()));
    }
});
