//! Any bytes of a writer's volume give items or an error. Items encode to the bytes that they came from, and
//! applied in any order give an index or an error. The index comes back from its own items.
#![no_main]

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_writer::{Index, Item};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new(bytes);
    let mut index = Index::default();
    while !reader.is_empty() {
        let before = bytes.len() - reader.remaining();
        let Ok(item) = Item::decode(&mut reader) else { return };
        let mut again = Vec::new();
        item.encode(&mut again);
        // A record of a certified file is normalized: its only piece is not written.
        if !matches!(item, Item::Certified(_)) {
            assert_eq!(again, bytes[before..bytes.len() - reader.remaining()]);
        }
        assert_eq!(Item::decode(&mut Reader::new(&again)).expect("its own bytes"), item);
        if index.apply(&item).is_err() {
            return;
        }
    }
    let mut restored = Index::default();
    for item in index.items() {
        restored.apply(&item).expect("items of an index");
    }
    assert_eq!(restored, index);
});
