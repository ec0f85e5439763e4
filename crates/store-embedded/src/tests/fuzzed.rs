//! A small version of the fuzz targets: every decoder on its corpus and on some thousands of inputs
//! made from it. Bytes that were never written give an error, not a panic; decoded values are
//! encoded to the same bytes.

use super::seeds;
use crate::{read_manifest, read_page, read_row, read_run, read_segment, read_text};
use exacat_testkit::simulated::Random;

const LOG: &[u8] = include_bytes!("golden/log-v1.segment");
const ARCHIVED: &[u8] = include_bytes!("golden/archive-v1.segment");
const RUN: &[u8] = include_bytes!("golden/run-v1.run");
const MANIFEST: &[u8] = include_bytes!("golden/manifest-v1");

/// Texts of each kind, as the engine writes them.
const TEXTS: [(&str, &str); 7] = [
    ("SNAPSHOT", include_str!("golden/snapshot-v1.txt")),
    ("SNAPSHOT", include_str!("golden/snapshot-v2.txt")),
    ("RESTORE", include_str!("golden/restore-v1.txt")),
    ("CATALOGUE", include_str!("golden/catalogue-v1.txt")),
    ("CATALOGUE", include_str!("golden/catalogue-v2.txt")),
    ("BACKUPS", include_str!("golden/backups-v1.txt")),
    ("FILES", include_str!("golden/files-v1.txt")),
];

/// Returns a mutation of an input: bits flipped, parts cut, doubled or moved, numbers set to their
/// extremes.
fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.next(4) {
        let length = bytes.len() as u64;
        if length == 0 {
            bytes.push(random.next(256) as u8);
            continue;
        }
        let at = random.next(length) as usize;
        match random.next(6) {
            0 => bytes[at] ^= 1 << random.next(8),
            1 => bytes[at] = random.next(256) as u8,
            2 => bytes.truncate(at),
            3 => {
                let end = at + random.next(length - at as u64 + 1) as usize;
                let part = bytes[at..end].to_vec();
                let to = random.next(length) as usize;
                bytes.splice(to..to, part);
            }
            4 => {
                let end = (at + 8).min(bytes.len());
                bytes[at..end].fill(if random.chance(2) { 0xff } else { 0 });
            }
            _ => {
                let end = at + random.next(length - at as u64 + 1) as usize;
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

/// Tries mutations of a random input of the corpus.
fn each_of(corpus: &[&[u8]], inputs: u64, mut try_it: impl FnMut(&[u8])) {
    for chosen in seeds(1) {
        let mut random = Random(chosen.0);
        for sample in corpus {
            try_it(sample);
            for _ in 0..inputs {
                try_it(&mutated(sample, &mut random));
            }
        }
    }
}

#[test]
fn segments_of_any_bytes() {
    let mut whole = 0;
    each_of(&[LOG, ARCHIVED], 2000, |bytes| {
        let mut last: Option<u64> = None;
        let read = read_segment(bytes, |change| {
            assert!(last.is_none_or(|last| last + 1 == change.revision.0));
            last = Some(change.revision.0);
        });
        whole += u64::from(read.is_ok());
    });
    assert!(whole >= 2);
}

#[test]
fn runs_of_any_bytes() {
    each_of(&[RUN], 1500, |bytes| drop(read_run(bytes, [5; 16], |_, _, _| ())));
    assert!(read_run(RUN, [5; 16], |_, _, _| ()).is_ok());
}

/// Tries pages, also with corrected checksums: the reader must not trust a page's own description.
#[test]
fn pages_of_any_bytes() {
    const HEADER_BYTES: usize = 64;
    let salt = exacat_disk::fixed::u64_at(RUN, 40);
    let length = exacat_disk::fixed::u32_at(RUN, HEADER_BYTES + 4) as usize;
    let page = &RUN[HEADER_BYTES..HEADER_BYTES + length];
    let mut rows = 0;
    read_page(page, salt, HEADER_BYTES as u64, |_, _, _| rows += 1).unwrap();
    assert!(rows > 50);
    let mut read = 0;
    each_of(&[page], 6000, |bytes| {
        let mut bytes = bytes.to_vec();
        if bytes.len() >= 8 {
            let length = bytes.len() as u32;
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
            let mut sum = crc32fast::Hasher::new();
            sum.update(&salt.to_le_bytes());
            sum.update(&(HEADER_BYTES as u64).to_le_bytes());
            sum.update(&bytes[4..]);
            bytes[..4].copy_from_slice(&sum.finalize().to_le_bytes());
        }
        read += u64::from(read_page(&bytes, salt, HEADER_BYTES as u64, |_, _, _| ()).is_ok());
    });
    assert!(read > 0, "none of them is a page");
}

#[test]
fn manifests_of_any_bytes() {
    let mut read = 0;
    each_of(&[MANIFEST], 4000, |bytes| {
        let mut bytes = bytes.to_vec();
        if let Some(end) = bytes.len().checked_sub(4) {
            let sum = crc32fast::hash(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.to_le_bytes());
        }
        read += u64::from(read_manifest(&bytes, *b"golden catalogue").is_ok());
    });
    assert!(read > 0);
}

/// Checks that decoded texts are encoded to the same bytes, so that nothing else passes for them.
#[test]
fn texts_of_any_bytes() {
    for (name, text) in TEXTS {
        assert_eq!(read_text(name, text).as_deref(), Ok(text), "{name}");
        each_of(&[text.as_bytes()], 1500, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let mut texts = vec![text.clone().into_owned()];
            if let Some(at) = text.rfind("checksum ") {
                texts.push(crate::checked_text::with_checksum(text[..at].to_owned()));
            }
            for text in texts {
                if let Ok(again) = read_text(name, &text)
                    && text.contains("\nchecksum ")
                {
                    assert_eq!(read_text(name, &again), Ok(again.clone()), "{name}");
                }
            }
        });
    }
    assert!(read_text("LOCK", "").is_err());
}

#[test]
fn rows_of_any_bytes() {
    let mut room = crate::page::RowRoom::default();
    let root = exacat_store::rules::new_root();
    let row = room.row(&root);
    let numbers = [row.id.to_vec(), vec![0; 40]].concat();
    let (mut entries, mut refused) = (0, 0);
    let mut random = Random(7);
    each_of(&[row.shape], 20_000, |shape| {
        let (numbers, rest) = (mutated(&numbers, &mut random), mutated(row.rest, &mut random));
        let rest = if random.chance(2) { row.rest } else { &rest };
        match read_row(b"name", shape, &numbers, row.checksum, rest) {
            Ok(entry) => entries += u64::from(entry.is_some()),
            Err(_) => refused += 1,
        }
    });
    assert!(refused > 100 && entries > 100, "{refused} refused, {entries} read");
}
