//! Any bytes of a client with open files give requests or errors; the ranges of reads are not negative, and
//! there are no more of them than the bytes allow.
#![no_main]

use exacat_wire::xrootd::limits::{REQUEST_HEADER_BYTES, SEGMENT_HEADER_BYTES, SEGMENTS_MAX};
use exacat_wire::xrootd::{FileRange, FileRequest, RequestHeader, pages};
use libfuzzer_sys::fuzz_target;

/// Checks that a range is one that a server can count with.
fn check(range: &FileRange) {
    assert!(range.offset <= i64::MAX as u64 && range.length <= i32::MAX as u32);
    let paged = pages::paged_bytes(range.offset, range.length.into());
    assert!(paged >= range.length.into());
    assert!(paged <= u64::from(range.length) + 4 * (u64::from(range.length) / 4096 + 2));
}

fuzz_target!(|data: &[u8]| {
    let Some((header, carried)) = data.split_first_chunk::<REQUEST_HEADER_BYTES>() else { return };
    let header = RequestHeader::read(header);
    match FileRequest::parse(&header, carried) {
        Ok(Some(FileRequest::Read(range) | FileRequest::PageRead(range))) => check(&range),
        Ok(Some(FileRequest::VectorRead(chunks))) => {
            assert!((1..=SEGMENTS_MAX).contains(&chunks.count()));
            assert_eq!(chunks.count() * SEGMENT_HEADER_BYTES, carried.len());
            for at in 0..chunks.count() {
                check(&chunks.get(at).unwrap());
            }
            assert_eq!(chunks.get(chunks.count()), None);
        }
        _ => {}
    }
});
