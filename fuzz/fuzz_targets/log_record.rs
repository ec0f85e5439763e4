//! Any bytes as a log segment give changes or an error, and so do any bytes as the body of a record in a
//! right frame. A record that decodes has one encoding. The frame follows the description of the format, not
//! the code that writes it.
#![no_main]

use exacat_model::codec::{Decode, Encode};
use exacat_model::{Change, Effect};
use exacat_store_embedded::read_segment;
use libfuzzer_sys::fuzz_target;

/// A segment as version 1 wrote it, for its header.
const GOLDEN: &[u8] = include_bytes!("../../crates/store-embedded/src/tests/golden/log-v1.segment");
const HEADER_BYTES: usize = 96;
const FIRST_REVISION: std::ops::Range<usize> = 32..40;
const SALT: std::ops::Range<usize> = 48..56;

fn read(bytes: &[u8]) {
    let mut last = None;
    let _ = read_segment(bytes, |change: Change| {
        assert!(last.is_none_or(|last| last + 1 == change.revision.0), "a gap before {change:?}");
        last = Some(change.revision.0);
        let encoded = change.effect.to_bytes();
        assert_eq!(Effect::from_bytes(&encoded).expect("it was decoded once"), change.effect);
    });
}

/// One record with this body after a whole header.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = GOLDEN[..HEADER_BYTES].to_vec();
    let mut body = body.to_vec();
    if body.len() >= 8 {
        // Otherwise nothing but a record of another place is ever tried.
        body[..8].copy_from_slice(&GOLDEN[FIRST_REVISION]);
    }
    let mut frame = Vec::new();
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let mut rest = 0u32.to_le_bytes().to_vec();
    rest.extend_from_slice(&[1, 0, 0, 0]);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&GOLDEN[SALT]);
    crc.update(&frame);
    crc.update(&rest);
    crc.update(&body);
    frame.extend_from_slice(&crc.finalize().to_le_bytes());
    frame.extend_from_slice(&rest);
    bytes.extend_from_slice(&frame);
    bytes.extend_from_slice(&body);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fuzz_target!(|data: &[u8]| match data {
    [0, bytes @ ..] => read(bytes),
    // The golden segment, damaged at one place.
    [1, high, low, mask, ..] => {
        let mut bytes = GOLDEN.to_vec();
        let at = usize::from(u16::from_be_bytes([*high, *low])) % bytes.len();
        bytes[at] ^= mask;
        read(&bytes);
    }
    [_, body @ ..] => read(&framed(body)),
    [] => {}
});
