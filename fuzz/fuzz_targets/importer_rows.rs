//! Any bytes as a listing: each row is accepted or rejected, none is lost, and nothing panics.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use exacat_exchange::listing::Listing;
use exacat_exchange::options::{Repeats, Rest};
use exacat_exchange::{ListingOptions, PRESETS};
use exacat_model::Lfn;
use libfuzzer_sys::fuzz_target;

/// The first bytes choose the options, so that all of them are met.
fn options(choice: u8, more: u8) -> ListingOptions {
    let preset = &PRESETS[usize::from(choice) % PRESETS.len()];
    let mut options = preset.options().expect("a preset is valid").listing;
    if more & 1 != 0 {
        options.prefix = Some(Lfn::root());
    }
    if more & 2 != 0 {
        options.rest = Rest::Tags;
    }
    if more & 4 != 0 {
        options.repeats = Repeats::Keep;
    }
    if more & 8 != 0 {
        options.columns = None;
        options.auto_columns = true;
    }
    if more & 16 != 0 {
        options.escapes = Some(true);
    }
    if more & 32 != 0 {
        options.se_auto = !options.se_auto;
    }
    options.format = None;
    options
}

fuzz_target!(|input: (u8, u8, u8, &[u8])| {
    let (choice, more, name, bytes) = input;
    let name = ["listing", "a.csv", "a.tsv", "a.jsonl"][usize::from(name) % 4];
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    let Ok(listing) = Listing::of_reader(Path::new(name), reader, options(choice, more)) else { return };
    // Compressed bytes that are damaged end with an error.
    let Ok(examined) = listing.examine() else { return };
    assert!(examined.accepted <= examined.rows);
    let rejected: u64 =
        examined.rejects.iter().filter(|(reason, _)| !reason.is_partial()).map(|(_, count)| count).sum();
    assert_eq!(examined.accepted + rejected, examined.rows);
});
