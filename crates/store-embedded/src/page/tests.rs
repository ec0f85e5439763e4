//! Compares pages with the rows in them, and tries bytes that are no page.

use std::collections::BTreeMap;

use exacat_model::{
    At, Body, Checksum, ChecksumAlgorithm, Checksums, DirId, Entry, File, GroupId, Guid, Lfn, Location, Mode,
    Name, Pfn, Replica, ReplicaState, Revision, SeNumber, Tag, TimeMs, UserId,
};

use super::{Damaged, FULL_BYTES, PAGE_BYTES_MAX, Page, PageBuilder, ROWS_MAX, Row, RowRoom};

const SALT: u64 = 7;
const PLACE: u64 = 4096;

/// Returns a hash with few values, so that many rows of a page have one mark.
fn hash(directory: u64, name: &[u8]) -> u64 {
    let sum: u64 = name.iter().map(|byte| u64::from(*byte)).sum();
    ((sum ^ directory) % 23) << 24
}

pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.next(bound) == 0
    }

    fn number(&mut self) -> u64 {
        let bits = self.next(64);
        (self.next(1 << 31) << 32 | self.next(1 << 31)) >> bits
    }
}

fn replica(random: &mut Random, name: &str, se: u16) -> Replica {
    let location = match random.next(8) {
        0 => Location::Explicit(Pfn::parse("root://h//elsewhere").unwrap()),
        1..4 => Location::Explicit(Pfn::parse(&format!("root://h//d/{name}")).unwrap()),
        _ => Location::Derived,
    };
    let state = if random.one_in(10) { ReplicaState::Suspect } else { ReplicaState::Available };
    Replica { se: SeNumber(se), state, location }
}

fn body(random: &mut Random, name: &str) -> Body {
    let mut guid = [0; 16];
    guid.iter_mut().for_each(|byte| *byte = random.next(256) as u8);
    let guid = Guid(guid);
    match random.next(12) {
        0 => Body::Directory(DirId(random.number())),
        1 => Body::Collection { guid, members: random.number() },
        2 => Body::Link { guid, target: Lfn::parse("/a/b").unwrap() },
        _ => {
            let mut checksums = Checksums::none();
            for algorithm in ChecksumAlgorithm::ALL {
                if random.one_in(3) {
                    let digest = vec![random.next(256) as u8; algorithm.digest_bytes()];
                    checksums.add(Checksum::new(algorithm, &digest).unwrap()).unwrap();
                }
            }
            let ses = random.next(4) as u16;
            Body::File(File {
                guid,
                size: if random.one_in(5) { None } else { Some(random.number()) },
                checksums,
                job: if random.one_in(2) { None } else { Some(random.number()) },
                replicas: (1..=ses).map(|se| replica(random, name, se * 300)).collect(),
            })
        }
    }
}

pub(crate) fn entry(random: &mut Random, parent: u64, name: &str) -> Entry {
    let created = TimeMs(random.number());
    Entry {
        at: At { parent: DirId(parent), name: Name::parse(name).unwrap() },
        owner: UserId(random.next(3) as u32),
        group: GroupId(random.next(2) as u32),
        mode: if random.one_in(4) { Mode::DIRECTORY } else { Mode::FILE },
        created,
        modified: if random.one_in(2) { created } else { TimeMs(random.number()) },
        revision: Revision(random.number()),
        expires: if random.one_in(9) { Some(TimeMs(random.number())) } else { None },
        tags: if random.one_in(9) { vec![Tag::parse("run=5").unwrap()] } else { Vec::new() },
        body: body(random, name),
    }
}

pub(crate) type Model = BTreeMap<(u64, Vec<u8>), Option<Entry>>;

/// Returns rows of a few directories, some of them removals. Names share starts and ends as real
/// ones do.
fn some_rows(random: &mut Random) -> Model {
    let mut rows = Model::new();
    let count = 1 + random.next(ROWS_MAX as u64) as usize;
    let directories = 1 + random.next(4);
    let end = if random.one_in(2) { ".root" } else { "" };
    while rows.len() < count {
        let parent = [3, 70_000, u64::MAX, 70_001][random.next(directories) as usize];
        let mut name = format!("AliAOD.{}{end}", random.number() % 5000);
        if random.one_in(50) {
            name = "x".repeat(1 + random.next(255) as usize);
        }
        let entry = entry(random, parent, &name);
        rows.insert((parent, name.into_bytes()), if random.one_in(6) { None } else { Some(entry) });
    }
    rows
}

/// Builds the pages of rows; returns each with its rows.
fn pages_of(rows: &Model) -> Vec<(Vec<u8>, Model)> {
    let (mut builder, mut room, mut pages, mut within) =
        (PageBuilder::default(), RowRoom::default(), Vec::new(), Model::new());
    for ((parent, name), entry) in rows {
        let row = match entry {
            Some(entry) => room.row(entry),
            None => Row::gone(DirId(*parent), name, Revision(*parent)),
        };
        if builder.is_full(&row) {
            let mut page = Vec::new();
            builder.finish(SALT, PLACE, &mut page);
            pages.push((page, std::mem::take(&mut within)));
        }
        builder.push(&row, hash(*parent, name));
        within.insert((*parent, name.clone()), entry.clone());
    }
    let mut page = Vec::new();
    assert_eq!(
        builder.first_key().map(|(parent, name)| (parent.0, name.to_vec())),
        within.keys().next().cloned()
    );
    assert_eq!(
        builder.last_key().map(|(parent, name)| (parent.0, name.to_vec())),
        within.keys().last().cloned()
    );
    builder.finish(SALT, PLACE, &mut page);
    assert_eq!(builder.rows(), 0);
    pages.push((page, within));
    pages
}

pub(crate) fn check_row(row: &Row<'_>, key: &(u64, Vec<u8>), entry: &Option<Entry>) {
    assert_eq!((row.parent.0, row.name), (key.0, key.1.as_slice()));
    assert_eq!(row.is_gone(), entry.is_none());
    assert_eq!(&row.entry().unwrap(), entry);
    assert_eq!(row.guid(), entry.as_ref().and_then(Entry::guid));
    if entry.is_none() {
        assert_eq!(row.revision, key.0);
    }
    let found = row.found_file(3).unwrap();
    assert_eq!(found.as_ref().map(|found| &found.file), entry.as_ref().and_then(Entry::file));
    if let (Some(found), Some(entry)) = (found, entry) {
        assert_eq!(
            (found.way, found.owner, found.group, found.mode),
            (3, entry.owner, entry.group, entry.mode)
        );
    }
}

/// Goal: every row is read unchanged, by its key, in order, and from any key on; other keys are not
/// found. Method: random pages of every kind of row, compared with the map that they were made of.
#[test]
fn rows_come_back_as_they_went_in() {
    for seed in 0..300 {
        let random = &mut Random(seed);
        let rows = some_rows(random);
        let mut seen = 0;
        for (bytes, within) in pages_of(&rows) {
            assert!(bytes.len().is_multiple_of(8) && bytes.len() <= PAGE_BYTES_MAX);
            let page = Page::open(&bytes, SALT, PLACE).unwrap();
            assert_eq!(page.rows(), within.len());
            seen += within.len();
            let mut all = page.all();
            for (key, entry) in &within {
                check_row(&all.next(&page).unwrap().unwrap(), key, entry);
                let row = page.find(DirId(key.0), &key.1, hash(key.0, &key.1)).unwrap().unwrap();
                check_row(&page.row(row, DirId(key.0), &key.1).unwrap(), key, entry);
                let mut longer = key.1.clone();
                longer.push(b'0');
                for (parent, name) in
                    [(key.0, &longer[..]), (key.0, &key.1[..key.1.len() - 1]), (key.0 ^ 1, &key.1)]
                {
                    let there = within.contains_key(&(parent, name.to_vec()));
                    assert_eq!(
                        page.find(DirId(parent), name, hash(parent, name)).unwrap().is_some(),
                        there,
                        "seed {seed}"
                    );
                    for after in [false, true] {
                        let wanted = within.iter().find(|((other, other_name), _)| {
                            let (other, key) = ((*other, other_name.as_slice()), (parent, name));
                            if after { other > key } else { other >= key }
                        });
                        let mut from = page.from(DirId(parent), name, after).unwrap();
                        match (from.next(&page).unwrap(), wanted) {
                            (None, None) => {}
                            (Some(row), Some((key, entry))) => check_row(&row, key, entry),
                            (row, wanted) => panic!("seed {seed}: {row:?} instead of {wanted:?}"),
                        }
                    }
                }
            }
            assert_eq!(all.next(&page).unwrap(), None);
        }
        assert_eq!(seen, rows.len());
    }
}

/// Goal: bytes beside the tree are read unchanged, are no entry, and need no room for an identity.
#[test]
fn what_is_beside_the_tree_is_no_entry() {
    let (mut builder, mut page) = (PageBuilder::default(), Vec::new());
    let values: Vec<String> = (0..50).map(|number| "v".repeat(number)).collect();
    let name = |number: usize| format!("{number:08}").into_bytes();
    for (number, value) in values.iter().enumerate() {
        builder.push(&Row::side(DirId(1 << 63), &name(number), value.as_bytes(), Revision(9)), 7);
    }
    builder.finish(SALT, PLACE, &mut page);
    let opened = Page::open(&page, SALT, PLACE).unwrap();
    let bytes: usize = values.iter().map(String::len).sum();
    assert!(page.len() < bytes + 50 * 16, "{} bytes for {bytes}", page.len());
    for (number, value) in values.iter().enumerate() {
        let key = name(number);
        let row = opened.find(DirId(1 << 63), &key, 7).unwrap().unwrap();
        let row = opened.row(row, DirId(1 << 63), &key).unwrap();
        assert_eq!((row.rest, row.revision, row.is_gone()), (value.as_bytes(), 9, false));
        assert_eq!((row.entry().unwrap(), row.found_file(0).unwrap(), row.guid()), (None, None, None));
    }
}

/// Goal: the size of a typical file in a real catalogue, on which the size of the whole rests.
#[test]
fn a_typical_file_takes_less_than_70_bytes() {
    let random = &mut Random(1);
    let (mut builder, mut room, mut page) = (PageBuilder::default(), RowRoom::default(), Vec::new());
    for number in 0..ROWS_MAX as u64 {
        let name =
            format!("26000{number:09}{:03}.{:012x}.AO2D.root", number % 997, random.number() % (1 << 48));
        let mut guid = [0; 16];
        guid.iter_mut().for_each(|byte| *byte = random.next(256) as u8);
        let digest: Vec<u8> = (0..16).map(|_| random.next(256) as u8).collect();
        let entry = Entry {
            at: At { parent: DirId(70_000), name: Name::parse(&name).unwrap() },
            owner: UserId(7),
            group: GroupId(3),
            mode: Mode::FILE,
            created: TimeMs(1_790_000_000_000),
            modified: TimeMs(1_790_000_000_000),
            revision: Revision(1_000_000 + number),
            expires: None,
            tags: Vec::new(),
            body: Body::File(File {
                guid: Guid(guid),
                size: Some(1_000_000_000 + random.next(1 << 31)),
                checksums: Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &digest).unwrap()),
                job: None,
                replicas: [300, 412]
                    .map(|se| Replica {
                        se: SeNumber(se),
                        state: ReplicaState::Available,
                        location: Location::Derived,
                    })
                    .to_vec(),
            }),
        };
        builder.push(&room.row(&entry), number);
    }
    builder.finish(SALT, PLACE, &mut page);
    assert!(page.len() <= 70 * ROWS_MAX, "{} bytes a row", page.len() as f64 / ROWS_MAX as f64);
}

#[test]
fn a_page_is_full_at_its_limits_and_holds_the_longest_row() {
    let random = &mut Random(5);
    let (mut builder, mut room) = (PageBuilder::default(), RowRoom::default());
    let mut long = entry(random, 3, "long");
    let value = "v".repeat(8000);
    long.tags = (0..128).map(|number| Tag::parse(&format!("k{number:03}={value}")).unwrap()).collect();
    let row = room.row(&long);
    assert!(!builder.is_full(&row), "one row always fits");
    builder.push(&row, 1);
    let mut other = RowRoom::default();
    let next = entry(random, 3, "n");
    assert!(builder.is_full(&other.row(&next)));
    let mut page = Vec::new();
    builder.finish(SALT, PLACE, &mut page);
    assert!(page.len() > FULL_BYTES && page.len() < PAGE_BYTES_MAX);
    let opened = Page::open(&page, SALT, PLACE).unwrap();
    assert_eq!(opened.row(0, DirId(3), b"long").unwrap().entry().unwrap().unwrap(), long);
    assert!(opened.row(1, DirId(3), b"long").is_err());
    for number in 0..ROWS_MAX {
        let row = entry(random, 4, &format!("{number:03}"));
        assert!(!builder.is_full(&other.row(&row)), "{number}");
        builder.push(&RowRoom::default().row(&row), 1);
    }
    assert!(builder.is_full(&other.row(&next)));
}

/// Goal: every changed bit of a page is detected, and no page passes for one of another place or
/// file.
#[test]
fn every_flipped_bit_is_seen() {
    let rows = some_rows(&mut Random(9));
    let (page, _) = &pages_of(&rows)[0];
    assert!(Page::open(page, SALT + 1, PLACE).is_err());
    assert!(Page::open(page, SALT, PLACE + 1).is_err());
    assert!(Page::open(&page[..page.len() - 8], SALT, PLACE).is_err());
    for at in 0..page.len() {
        let mut damaged = page.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(Page::open(&damaged, SALT, PLACE).is_err(), "byte {at}");
    }
}

/// Goal: bytes that were never a page give an error or rows, never a panic or an endless loop.
/// Method: pages with changed bytes and a corrected checksum.
#[test]
fn what_only_looks_like_a_page_does_no_harm() {
    let (mut refused, mut read) = (0, 0);
    for seed in 0..60 {
        let random = &mut Random(seed);
        let rows = some_rows(random);
        let (page, within) = &pages_of(&rows)[0];
        for _ in 0..200 {
            let mut other = page.clone();
            for _ in 0..=random.next(3) {
                let bound = if random.one_in(2) { 200.min(other.len()) } else { other.len() };
                let at = 8 + random.next(bound as u64 - 8) as usize;
                other[at] = random.next(256) as u8;
            }
            let sum = super::checksum(SALT, PLACE, &other);
            other[..4].copy_from_slice(&sum.to_le_bytes());
            match Page::open(&other, SALT, PLACE) {
                Err(Damaged(_)) => refused += 1,
                Ok(page) => {
                    read += 1;
                    let mut all = page.all();
                    while let Ok(Some(row)) = all.next(&page) {
                        let _ = (row.entry(), row.found_file(0));
                    }
                    for (parent, name) in within.keys() {
                        if let Ok(Some(row)) = page.find(DirId(*parent), name, hash(*parent, name)) {
                            let _ = page.row(row, DirId(*parent), name).map(|row| row.entry().is_ok());
                        }
                        let _ =
                            page.from(DirId(*parent), name, true).map(|mut rows| rows.next(&page).is_ok());
                    }
                }
            }
        }
    }
    assert!(refused > 100 && read > 100, "{refused} refused, {read} read");
}
