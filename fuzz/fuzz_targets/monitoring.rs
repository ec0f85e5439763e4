//! Any datagrams of servers and caches are taken: each counts as garbage or as its kind, and gives no more
//! events than it has lines or records.
#![no_main]

use std::net::SocketAddr;

use exacat_replay::both_sides::events::EventKind;
use exacat_replay::both_sides::figures::CacheAccount;
use exacat_replay::both_sides::intake::Intake;
use exacat_wire::xrdmon::{maps, summary};
use libfuzzer_sys::fuzz_target;

/// Files that an account remembers.
const FILES: usize = 4;

fuzz_target!(|data: &[u8]| {
    let _ = maps::Map::read(data).map(|map| map.field("x"));
    let _ = summary::parse(data);
    let (mut intake, mut account, mut events) = (Intake::default(), CacheAccount::new(FILES), Vec::new());
    // Datagrams are apart by a line with a dot.
    let datagrams: Vec<&[u8]> = split(data).collect();
    for (number, datagram) in datagrams.iter().enumerate() {
        let from = SocketAddr::from(([10, 0, 0, 1], number as u16 % 3));
        intake.take(from, datagram, &mut events);
    }
    let mut records = 0;
    for event in &events {
        if let EventKind::Record(record) = &event.kind {
            records += 1;
            assert!(record.bytes_done() <= record.file_bytes);
            account.add(record);
        }
    }
    let (counts, figures) = (intake.counts(), account.figures());
    assert_eq!(counts.datagrams, datagrams.len() as u64);
    assert_eq!((counts.records, figures.sessions), (records, records));
    assert!(counts.garbage <= counts.datagrams && figures.files <= FILES as u64);
    assert!(events.len() <= data.len() + 2 * datagrams.len());
});

/// Splits at lines that have a dot only.
fn split(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let all = rest?;
        let at = all.windows(3).position(|window| window == b"\n.\n");
        rest = at.map(|at| &all[at + 3..]);
        Some(at.map_or(all, |at| &all[..at]))
    })
}
