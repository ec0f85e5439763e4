//! Any bytes as the label of a snapshot, or the marker of a restore, as they are and with a right checksum. A
//! text that is read is written again as the same text.
#![no_main]

use exacat_store_embedded::read_text;
use libfuzzer_sys::fuzz_target;

const NAMES: &[&str] = &["SNAPSHOT", "RESTORE"];

fn read(name: &str, text: &str) {
    if let Ok(again) = read_text(name, text) {
        assert_eq!(read_text(name, &again).expect("it was written by us"), again);
    }
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let body = text.rfind("checksum ").map_or(&*text, |at| &text[..at]);
    let sum = crc32fast::hash(body.as_bytes());
    for name in NAMES {
        read(name, &text);
        read(name, &format!("{body}checksum {sum:08x}\n"));
    }
});
