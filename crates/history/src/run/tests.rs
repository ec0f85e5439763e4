//! Compares runs with a plain map of their rows, intact and damaged.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, InMemory, RealDisk};
use exacat_model::{Error, ErrorKind, FieldRef, FieldType, FieldValue};
use fastrand::Rng;

use super::*;
use crate::columns::Columns;
use crate::test_rows::{Arrivals, Model, all_of, to_model, value};

const DAY: i32 = -3;
const HEAD: RunHead = RunHead { group: 7, day: DAY, salt: 0x1234_5678_9abc };

fn rounds() -> usize {
    std::env::var("EXACAT_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

fn start_of_day() -> i64 {
    i64::from(DAY) * DAY_NANOSECONDS
}

/// Returns a time of the day of the test's runs, in milliseconds or more exact.
fn some_time(random: &mut Rng) -> i64 {
    let exact = if random.u8(..20) == 0 { 1 } else { 1_000_000 };
    start_of_day() + random.i64(0..DAY_NANOSECONDS) / exact / 600 * exact
}

fn write(path: &Path, batches: Vec<Columns>, level: usize) -> Result<RunSummary, Error> {
    let file = RealDisk.create(path).unwrap();
    let mut writer = RunWriter::new(path, &*file, HEAD, level)?;
    writer.append_all(&mut batches.into_iter())?;
    writer.finish()
}

fn open(path: &Path) -> Result<Arc<Run>, Error> {
    let file = Arc::from(RealDisk.open_to_read(path).unwrap());
    Run::open("run 17", file, HEAD.group, HEAD.day).map(Arc::new)
}

fn open_bytes(bytes: Vec<u8>) -> Result<Arc<Run>, Error> {
    Run::open("run 17", Arc::new(InMemory::new(bytes)), HEAD.group, HEAD.day).map(Arc::new)
}

fn only(model: &Model, wanted: &Wanted) -> Model {
    let of = model.iter().filter(|((element, time), _)| {
        wanted.elements.next_from(*element) == Some(*element) && wanted.times.contains(time)
    });
    let values = |(key, values): (&_, &std::collections::BTreeMap<u32, FieldValue>)| {
        let values = values.iter().filter(|(field, _)| wanted.fields.has(**field));
        (*key, values.map(|(field, value)| (*field, value.clone())).collect())
    };
    of.map(values).collect()
}

fn some_wanted(random: &mut Rng, elements: u32) -> Wanted {
    let mut wanted = Wanted::all();
    let element = random.u32(..elements + 2);
    match random.u8(..4) {
        0 => {}
        1 => wanted.elements = Elements::one(element),
        2 => wanted.elements = Elements::Range(element..=element + random.u32(..elements)),
        _ => {
            let mut set: Vec<u32> = (0..random.usize(..20)).map(|_| random.u32(..elements + 2)).collect();
            set.sort_unstable();
            set.dedup();
            wanted.elements = Elements::Set(set.into());
        }
    }
    if random.bool() {
        wanted.times = some_time(random)..=some_time(random);
    }
    if random.bool() {
        let fields = [0, 1, 4, 5, 9, 1_000_000].into_iter().filter(|_| random.bool());
        wanted.fields = Fields::Set(fields.collect());
    }
    wanted
}

fn latest_of(model: &Model, element: u32, time: i64, fields: &Fields) -> Option<Model> {
    let mut before = model.range((element, i64::MIN)..=(element, time)).rev();
    let (key, values) = before.find(|(_, values)| match fields {
        Fields::All => true,
        Fields::Set(_) => values.keys().any(|field| fields.has(*field)),
    })?;
    let values = values.iter().filter(|(field, _)| fields.has(**field));
    Some(Model::from([(*key, values.map(|(field, value)| (*field, value.clone())).collect())]))
}

/// Any rows, late, repeated, of several shapes and all types, at times before 1970 too, are read back
/// as a plain map has them: all of them, any part of them, and the latest before any instant.
#[test]
fn run_gives_back_what_a_map_has() {
    for (seed, (count, elements)) in
        (0u64..).zip([(1, 1), (40, 3), (5_000, 1), (9_000, 4_000), (20_000, 30)].repeat(rounds()))
    {
        let (random, mut model, mut arrivals) =
            (&mut Rng::with_seed(seed), Model::new(), Arrivals::default());
        arrivals.add(random, count, elements, some_time, &mut model);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let summary = write(&path, arrivals.columns(), [4, 8][seed as usize % 2]).unwrap();
        let run = open(&path).unwrap();
        assert_eq!((run.summary(), run.head()), (&summary, HEAD));
        assert_eq!(summary.rows, model.len() as u64);
        assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());
        let first = model.first_key_value().unwrap().0.0;
        assert_eq!(summary.element_range, (first, model.last_key_value().unwrap().0.0));
        let times = model.keys().map(|(_, time)| *time);
        assert_eq!(Some(summary.time_range), times.clone().min().zip(times.max()));
        let mut distinct: Vec<u32> = model.keys().map(|(element, _)| *element).collect();
        distinct.dedup();
        assert_eq!(summary.elements, distinct.len() as u32);
        for count in &summary.fields {
            let having = model.values().filter(|values| values.contains_key(&count.field.number));
            assert_eq!(count.values, having.count() as u64);
            assert_eq!(run.kind(count.field.number), Some(count.field.kind));
        }
        assert!(to_model(&all_of(&mut run.scan(Wanted::all())).unwrap()) == model, "seed {seed}");
        run.check().unwrap();
        for _ in 0..60 {
            let wanted = some_wanted(random, elements);
            let found = to_model(&all_of(&mut run.scan(wanted.clone())).unwrap());
            assert!(found == only(&model, &wanted), "seed {seed}: {wanted:?}");
            let (element, time) = (random.u32(..elements), some_time(random));
            let found = run.latest(wanted.fields.clone()).before(element, time).unwrap();
            let expected = latest_of(&model, element, time, &wanted.fields);
            assert!(found.map(|row| to_model(&[row])) == expected, "seed {seed}: {element} {time}");
        }
        let (fields, time) = (Fields::Set([1, 4, 9].into()), some_time(random));
        let mut latest = run.latest(fields.clone());
        for element in (0..elements).chain([0, elements + 5, u32::MAX]) {
            let found = latest.before(element, time).unwrap().map(|row| to_model(&[row]));
            assert!(found == latest_of(&model, element, time, &fields), "seed {seed}: {element} {time}");
        }
    }
}

fn small_run(path: &Path) -> Model {
    let (random, mut model, mut arrivals) = (&mut Rng::with_seed(5), Model::new(), Arrivals::default());
    arrivals.add(random, 120, 6, some_time, &mut model);
    write(path, arrivals.columns(), 8).unwrap();
    model
}

/// A flipped bit anywhere in a run is found by whoever reads that part, and never changes a value.
#[test]
fn flipped_bit_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    small_run(&path);
    let intact = std::fs::read(&path).unwrap();
    for byte in 0..intact.len() {
        for bit in 0..8 {
            let mut damaged = intact.clone();
            damaged[byte] ^= 1 << bit;
            let read = open_bytes(damaged).and_then(|run| all_of(&mut run.scan(Wanted::all())));
            let error = read.err().unwrap_or_else(|| panic!("byte {byte} bit {bit} is not missed"));
            assert!(matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Invalid), "byte {byte}: {error}");
        }
    }
}

/// A run cut or extended anywhere is refused.
#[test]
fn truncated_run_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    small_run(&path);
    let mut intact = std::fs::read(&path).unwrap();
    for length in 0..intact.len() {
        let error = open_bytes(intact[..length].to_vec()).err().map(|error| error.kind);
        assert_eq!(error, Some(ErrorKind::Corrupt), "{length} bytes");
    }
    intact.push(0);
    assert!(open_bytes(intact).is_err());
}

/// Any bytes in a part, with the right checksum, give rows or an error, and no panic.
#[test]
fn fuzzed_parts_give_rows_or_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    let (random, mut model, mut arrivals) = (&mut Rng::with_seed(6), Model::new(), Arrivals::default());
    arrivals.add(random, 900, 6, some_time, &mut model);
    write(&path, arrivals.columns(), 8).unwrap();
    let intact = std::fs::read(&path).unwrap();
    let run = open(&path).unwrap();
    let chunk = run.index().chunks[0];
    let head = &intact[HEADER_BYTES..HEADER_BYTES + chunk.head_bytes as usize - 4];
    let head = chunk::ChunkHead::decode(head, &chunk).unwrap();
    let blocks = head.columns.iter().flat_map(|column| column.blocks.iter().map(|block| block.place));
    let pages = head.columns.iter().flat_map(|column| column.pages.iter().copied());
    let mut parts: Vec<(usize, usize)> = blocks
        .chain(pages)
        .map(|place| (place.at as usize, (place.at + u64::from(place.bytes)) as usize))
        .collect();
    // Half of the rounds change the head.
    parts.extend(vec![(HEADER_BYTES, HEADER_BYTES + chunk.head_bytes as usize); parts.len()]);
    for _ in 0..1500 * rounds() {
        let mut fuzzed = intact.clone();
        let (start, end) = parts[random.usize(..parts.len())];
        for _ in 0..random.usize(1..4) {
            let at = random.usize(start..end - 4);
            fuzzed[at] = if random.bool() { random.u8(..) } else { fuzzed[at] ^ 1 << random.u8(..8) };
        }
        let sum = checksum(HEAD.salt, start as u64, &fuzzed[start..end - 4]);
        fuzzed[end - 4..end].copy_from_slice(&sum.to_le_bytes());
        let _ = open_bytes(fuzzed).and_then(|run| all_of(&mut run.scan(Wanted::all())));
    }
}

/// Counts of the index and footer that are not those of the rows are found by a check, even if all
/// checksums are right.
#[test]
fn wrong_counts_are_found_by_a_check() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    small_run(&path);
    let intact = std::fs::read(&path).unwrap();
    assert!(open_bytes(intact.clone()).unwrap().check().is_ok());
    let footer = intact.len() - FOOTER_BYTES;
    let index = u64::from_le_bytes(*intact[footer + 32..].first_chunk().unwrap()) as usize;
    // Elements, smallest and largest time, values of the last field.
    for at in [footer + 52, footer + 64, footer + 72, footer - 8] {
        let mut wrong = intact.clone();
        wrong[at] ^= 1;
        let sum = checksum(HEAD.salt, index as u64, &wrong[index..footer]);
        wrong[footer + 80..footer + 84].copy_from_slice(&sum.to_le_bytes());
        let end = wrong.len() - 4;
        let sum = checksum(HEAD.salt, footer as u64, &wrong[footer..end]);
        wrong[end..].copy_from_slice(&sum.to_le_bytes());
        let run = open_bytes(wrong).unwrap();
        assert_eq!(run.check().err().map(|error| error.kind), Some(ErrorKind::Corrupt), "byte {at}");
    }
}

/// A run of another group or day is refused, and so is a part of another run at the same place.
#[test]
fn parts_of_another_run_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    small_run(&path);
    let file: Arc<dyn DiskFile> = Arc::from(RealDisk.open_to_read(&path).unwrap());
    assert!(Run::open("run", Arc::clone(&file), HEAD.group + 1, HEAD.day).is_err());
    assert!(Run::open("run", file, HEAD.group, HEAD.day + 1).is_err());
    let mut mixed = std::fs::read(&path).unwrap();
    let other = RunHead { salt: HEAD.salt + 1, ..HEAD };
    mixed[..HEADER_BYTES].copy_from_slice(&other.encode());
    assert_eq!(open_bytes(mixed).err().map(|error| error.kind), Some(ErrorKind::Corrupt));
}

fn one_column(rows: usize, value: impl Fn(usize) -> FieldValue) -> Columns {
    let mut columns = Columns::default();
    for row in 0..rows {
        let time = start_of_day() + row as i64 * 1_000_000;
        columns.push((1, time), [(3, value(row).borrow())]).unwrap();
    }
    columns
}

/// pco and the other encodings keep every bit of every number: NaN payloads, signs of zero, infinities,
/// the smallest and the largest.
#[test]
fn every_bit_of_a_value_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    for kind in FieldType::ALL {
        for seed in 0..30 {
            let random = &mut Rng::with_seed(seed);
            let level = [0, 4, 8, 12][seed as usize % 4];
            let base: f64 = [0.01, 0.1, 1e-9, 1e300, 3.0, 2.0f64.powi(-1070)][seed as usize % 6];
            let odd = random.usize(1..200);
            let values: Vec<FieldValue> = (0..3000)
                .map(|row| match kind {
                    FieldType::Float if !random.usize(..odd).is_multiple_of(7) => {
                        FieldValue::Float((row as f64 + random.f64().round()) * base)
                    }
                    FieldType::Integer if seed % 3 == 0 => FieldValue::Integer(i64::MIN + row * 1000),
                    FieldType::Unsigned if seed % 3 == 0 => {
                        FieldValue::Unsigned(u64::MAX - row as u64 * 1000)
                    }
                    _ => value(random, kind),
                })
                .collect();
            write(&path, vec![one_column(values.len(), |row| values[row].clone())], level).unwrap();
            let read = all_of(&mut open(&path).unwrap().scan(Wanted::all())).unwrap();
            let read =
                read.iter().flat_map(|rows| (0..rows.rows()).map(|row| rows.row(row).next().unwrap().1));
            assert!(read.eq(values.iter().map(FieldValue::borrow)), "{kind} with seed {seed}");
        }
    }
}

/// Columns that rarely change are stored as steps, at any place of a change; others are not.
#[test]
fn rare_changes_are_read_back() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    for kind in FieldType::ALL {
        for seed in 0..12 {
            let random = &mut Rng::with_seed(seed);
            let (mut held, rows) = (value(random, kind), PAGE_ROWS * 2 + 77);
            // From some changes of a page to one in the whole, and at the edge of the packing.
            let odd = [5, 50, 63, 64, 65, 70, 200, 2000, 4096, 8000][seed as usize % 10];
            let values: Vec<FieldValue> = (0..rows)
                .map(|row| {
                    if if seed < 10 { row % odd == 0 } else { random.usize(..odd) == 0 } {
                        held = value(random, kind);
                    }
                    held.clone()
                })
                .collect();
            write(&path, vec![one_column(rows, |row| values[row].clone())], 4).unwrap();
            let read = all_of(&mut open(&path).unwrap().scan(Wanted::all())).unwrap();
            let read =
                read.iter().flat_map(|rows| (0..rows.rows()).map(|row| rows.row(row).next().unwrap().1));
            assert!(read.eq(values.iter().map(FieldValue::borrow)), "{kind} with seed {seed}");
        }
    }
}

/// A chunk whose numbers are stored as they are is read back as well as a packed one. A chunk with a
/// fault is noticed before it is written.
#[test]
fn chunk_is_read_back_before_it_is_written() {
    let (random, mut model, mut arrivals) = (&mut Rng::with_seed(8), Model::new(), Arrivals::default());
    arrivals.add(random, 6000, 40, some_time, &mut model);
    let mut rows = Columns::default();
    for batch in arrivals.columns() {
        rows.append(&batch, 0..batch.rows()).unwrap();
    }
    for level in [None, Some(4)] {
        let packed = encode::pack(&rows, 5, 64, 0, level).unwrap();
        assert!(verify::is_read_back(&rows, &packed, 5), "{level:?}");
        assert!(!verify::is_read_back(&rows, &packed, 6));
        for change in 0..3 {
            let mut other = Columns::default();
            for row in 0..rows.rows() {
                let (element, time) = rows.key(row);
                let key = (element, time + i64::from(change == 0 && row == 5000));
                let mut values: Vec<_> = rows.row(row).collect();
                match change {
                    1 if row == 4999 => values.push((u32::MAX - 1, FieldRef::Boolean(false))),
                    2 if row == 4500 => values.clear(),
                    _ => {}
                }
                other.push(key, values).unwrap();
            }
            assert!(!verify::is_read_back(&other, &packed, 5), "{level:?} {change}");
        }
    }
}

/// Chunks and pages are full at their limits, and one row more begins the next.
#[test]
fn chunks_and_pages_end_at_their_limits() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    let number = |row: usize| FieldValue::Integer(row as i64 % 5);
    for (rows, chunks, pages) in [
        (PAGE_ROWS, 1, 1),
        (PAGE_ROWS + 1, 1, 2),
        (CHUNK_ROWS_MAX, 1, CHUNK_ROWS_MAX / PAGE_ROWS),
        (CHUNK_ROWS_MAX + 1, 2, CHUNK_ROWS_MAX / PAGE_ROWS + 1),
    ] {
        let written = one_column(rows, number);
        write(&path, vec![written.clone()], 4).unwrap();
        let run = open(&path).unwrap();
        assert_eq!((run.index().chunks.len(), run.index().pages.len()), (chunks, pages));
        assert!(run.memory_bytes() < 400 + 64 * pages, "{} bytes", run.memory_bytes());
        let mut read = Columns::default();
        for batch in all_of(&mut run.scan(Wanted::all())).unwrap() {
            assert!(batch.rows() <= PAGE_ROWS);
            read.append(&batch, 0..batch.rows()).unwrap();
        }
        assert_eq!((read.times(), read.elements()), (written.times(), written.elements()));
        assert_eq!(read.columns()[0].values, written.columns()[0].values);
    }
}

/// Large texts that all differ end a chunk early, so that memory stays bounded, and a page reads only
/// the blocks with its texts.
#[test]
fn large_distinct_texts_end_a_chunk() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    let text = |row: usize| format!("{row:06}").repeat(1000);
    let rows = CHUNK_BYTES / 6000 + PAGE_ROWS;
    let written = one_column(rows, |row| FieldValue::Text(text(row).into()));
    write(&path, vec![written], 4).unwrap();
    let run = open(&path).unwrap();
    assert_eq!(run.index().chunks.len(), 2);
    for row in [0, PAGE_ROWS - 1, rows - 1] {
        let time = start_of_day() + row as i64 * 1_000_000;
        let found = run.latest(Fields::All).before(1, time).unwrap().unwrap();
        assert_eq!(found.row(0).next(), Some((3, FieldRef::Text(&text(row)))));
    }
}

/// A text at the limit of a row is stored and read back.
#[test]
fn largest_text_is_read_back() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    let text = |row: usize| "ab".repeat(crate::row::TEXT_BYTES_MAX / 2 - row);
    let written = one_column(3, |row| FieldValue::Text(text(row).into()));
    write(&path, vec![written], 4).unwrap();
    let read = all_of(&mut open(&path).unwrap().scan(Wanted::all())).unwrap();
    assert!((0..3).all(|row| read[0].row(row).next() == Some((3, FieldRef::Text(&text(row))))));
}

/// The smallest and largest element and time are numbers like others.
#[test]
fn smallest_and_largest_identities_are_read_back() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    for time in [i64::MIN, i64::MAX] {
        let head = RunHead { day: day_of(time), ..HEAD };
        let other = if time < 0 { time + 1 } else { time - 1 };
        let mut rows = Columns::default();
        for element in [0, 1, u32::MAX - 1, u32::MAX] {
            for time in [time.min(other), time.max(other)] {
                rows.push((element, time), [(u32::MAX, FieldRef::Boolean(true))]).unwrap();
            }
        }
        let file = RealDisk.create(&path).unwrap();
        let mut writer = RunWriter::new(&path, &*file, head, 4).unwrap();
        writer.append(&rows).unwrap();
        writer.finish().unwrap();
        let file = Arc::from(RealDisk.open_to_read(&path).unwrap());
        let run = Arc::new(Run::open("run", file, head.group, head.day).unwrap());
        let model = to_model(&[rows]);
        for times in [i64::MIN..=i64::MAX, time..=time, other..=other, i64::MIN..=0, 0..=i64::MAX] {
            for elements in [Elements::All, Elements::one(u32::MAX), Elements::Set([0, u32::MAX].into())] {
                let wanted = Wanted { elements, times: times.clone(), fields: Fields::All };
                let found = to_model(&all_of(&mut run.scan(wanted.clone())).unwrap());
                assert!(found == only(&model, &wanted), "{wanted:?}");
            }
        }
        for (element, before) in [(u32::MAX, i64::MAX), (u32::MAX, time), (0, other), (0, i64::MIN)] {
            let found = run.latest(Fields::All).before(element, before).unwrap();
            assert!(found.map(|row| to_model(&[row])) == latest_of(&model, element, before, &Fields::All));
        }
    }
}

/// A chunk with thousands of fields, each in a few rows, costs readers the values of a page, not its
/// fields times its rows.
#[test]
fn many_fields_of_few_rows_are_read_back() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    let mut rows = Columns::default();
    for row in 0..20_000u32 {
        let values = [(row % 3000, FieldRef::Integer(7)), (5000 + row % 7, FieldRef::Text("on"))];
        rows.push((row / 100, start_of_day() + i64::from(row)), values).unwrap();
    }
    let model = to_model(std::slice::from_ref(&rows));
    write(&path, vec![rows], 4).unwrap();
    let run = open(&path).unwrap();
    assert!(to_model(&all_of(&mut run.scan(Wanted::all())).unwrap()) == model);
    let wanted = Wanted { fields: Fields::Set([17, 5003].into()), ..Wanted::all() };
    assert!(to_model(&all_of(&mut run.scan(wanted.clone())).unwrap()) == only(&model, &wanted));
}

/// Rows out of order, repeated, or of another day are refused, and so is a run without a row.
#[test]
fn rows_that_no_run_may_have_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    let row = |element: u32, time: i64| {
        let mut row = Columns::default();
        row.push((element, start_of_day() + time), [(1, FieldRef::Integer(1))]).unwrap();
        row
    };
    assert!(write(&path, vec![row(1, 0), row(1, DAY_NANOSECONDS - 1), row(2, 0)], 4).is_ok());
    for wrong in [
        vec![],
        vec![row(1, 5), row(1, 5)],
        vec![row(1, 5), row(1, 4)],
        vec![row(2, 5), row(1, 6)],
        vec![row(1, -1)],
        vec![row(1, DAY_NANOSECONDS)],
    ] {
        assert_eq!(write(&path, wrong, 4).unwrap_err().kind, ErrorKind::Internal);
    }
    for (time, day) in [
        (0, 0),
        (-1, -1),
        (DAY_NANOSECONDS - 1, 0),
        (DAY_NANOSECONDS, 1),
        (i64::MIN, -106_752),
        (i64::MAX, 106_751),
    ] {
        assert_eq!(day_of(time), day);
    }
}

/// Rows with all types and several shapes, from plain arithmetic, so that they never change.
fn golden_rows() -> Model {
    let mut model = Model::new();
    for (element, exact) in [(0, 1_000_000_000), (3, 1), (4_000_000_000u32, 1_000_000)] {
        for row in 0..40i64 {
            let values = [
                (1, FieldValue::Float(row as f64 / 100.0)),
                (2, FieldValue::Integer(-row * row)),
                (5, FieldValue::Unsigned(u64::MAX - row as u64)),
                (8, FieldValue::Boolean(row % 3 == 0)),
                (9, FieldValue::Integer(if element == 0 { 281_474_976_710_913 } else { 1 })),
                (1_000_000, FieldValue::Text(["on", "off", "Störung"][row as usize % 3].into())),
                (u32::MAX, FieldValue::Float(if row == 7 { f64::NAN } else { -0.0 })),
            ];
            let has = |field: u32| field == 1 || field == 9 || (row + i64::from(field % 7)) % 4 == 0;
            let values = values.into_iter().filter(|(field, _)| has(*field)).collect();
            model.insert((element, start_of_day() + row * exact), values);
        }
    }
    model
}

/// The golden run of version 1 is read by every later release as the rows that it was made of. The
/// packer may find other bytes for the same rows, so this release's bytes are not compared.
#[test]
fn golden_run_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden/run-v1.run");
    let model = golden_rows();
    if std::env::var_os("EXACAT_MAKE_GOLDEN").is_some() {
        let mut rows = Columns::default();
        for (key, values) in &model {
            rows.push(*key, values.iter().map(|(field, value)| (*field, value.borrow()))).unwrap();
        }
        write(&path, vec![rows], 8).unwrap();
    }
    assert!(to_model(&all_of(&mut open(&path).unwrap().scan(Wanted::all())).unwrap()) == model);
    let hash = crc32fast::hash(&std::fs::read(&path).unwrap());
    assert_eq!(hash, GOLDEN_CRC, "{hash:#x}: a golden file never changes");
}

const GOLDEN_CRC: u32 = 0xedd4_b2cd;
