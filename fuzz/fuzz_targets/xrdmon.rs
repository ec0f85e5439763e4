//! Any datagram or line of XRootD's monitoring gives records or errors, no more of them than its bytes allow.
#![no_main]

use exacat_wire::xrdmon::fstream;
use exacat_wire::xrdmon::gstream::{Line, lines, parse_line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut count = 0;
    for line in lines(data) {
        count += 1;
        if let Ok(Line::FileClose(record)) = parse_line(line) {
            assert!(!record.lfn.is_empty());
            assert!(record.bytes_asked() >= record.b_hit.max(record.b_miss));
        }
    }
    assert!(count <= data.len());
    if let Ok(records) = fstream::records(data) {
        assert!(records.count() <= data.len() / 8);
    }
});
