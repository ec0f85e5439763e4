//! Any bytes as the content of a small file of the history, or of a record of its log, give a result or an
//! error. The first byte chooses the file.
#![no_main]

use exacat_history::{Names, decode};
use libfuzzer_sys::fuzz_target;

const ITEMS: &[u8] = include_bytes!("../seeds/history_files/items");

fuzz_target!(|data: &[u8]| {
    let [kind, content @ ..] = data else { return };
    let mut names = Names::new(1);
    match kind % 5 {
        0 => drop(decode::read_manifest(content)),
        1 => drop(decode::read_items(content, &mut names)),
        // Names that are there already.
        2 => {
            decode::read_items(&ITEMS[1..], &mut names).expect("the seed is good");
            drop(decode::read_items(content, &mut names));
        }
        3 => {
            decode::read_items(&ITEMS[1..], &mut names).expect("the seed is good");
            drop(decode::read_latest(content, &names));
        }
        _ => drop(std::str::from_utf8(content).map(decode::read_archive_state)),
    }
});
