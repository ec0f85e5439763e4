//! Tables, written and read back: every kind of column, batches of any size, damage.

use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::column::ColumnKind::{Large, Long, Map, Path as PathKind, Text, Time, Word};
use crate::limits::{BATCH_BYTES, BATCH_ROWS, ROW_GROUP_BYTES, ROW_GROUP_ROWS, WORDS_BYTES};
use crate::{ColumnSpec, LARGE_MAX, RowsDigest, TableReader, TableWriter, Written};

const COLUMNS: &[ColumnSpec] = &[
    ColumnSpec::always("path", PathKind),
    ColumnSpec::maybe("word", Word),
    ColumnSpec::maybe("text", Text),
    ColumnSpec::maybe("long", Long),
    ColumnSpec::maybe("time", Time),
    ColumnSpec::always("large", Large),
    ColumnSpec::always("map", Map),
];

/// Writes `count` rows; every third one has no values where that may be.
fn write(path: &Path, count: u64) -> Written {
    let file = std::fs::File::create(path).unwrap();
    let mut table = TableWriter::new(Box::new(file), COLUMNS).unwrap();
    for row in 0..count {
        let is_there = row % 3 != 0;
        table.text(Some(&format!("/a/directory/{row:06}")));
        table.text(is_there.then_some("word"));
        if is_there {
            table.shown(row)
        } else {
            table.text(None)
        }
        table.long(is_there.then_some(row as i64 - 5));
        table.time(is_there.then_some(row as i64 * 1000));
        table.large(u128::from(row) << 64);
        table.map(|pair| (0..row % 3).for_each(|at| pair(&format!("key{at}"), &row)));
        table.end_row().unwrap();
    }
    assert_eq!(table.row_count(), count);
    table.finish(|rows| vec![("rows".to_owned(), rows.rows().to_string())]).unwrap()
}

fn read(path: &Path) -> (u64, String) {
    let mut table = TableReader::open(path, COLUMNS).unwrap();
    let mut row = 0;
    while let Some(rows) = table.next_rows().unwrap() {
        for at in 0..rows.len() {
            let is_there = row % 3 != 0;
            assert_eq!(rows.text(0, at), Some(format!("/a/directory/{row:06}").as_str()));
            assert_eq!(rows.text(1, at), is_there.then_some("word"));
            assert_eq!(rows.text(2, at).map(str::to_owned), is_there.then(|| row.to_string()));
            assert_eq!(rows.long(3, at), is_there.then_some(row as i64 - 5));
            assert_eq!(rows.time(4, at), is_there.then_some(row as i64 * 1000));
            assert_eq!(rows.large(5, at), Some(i128::from(row) << 64));
            let mut pairs = Vec::new();
            rows.map(6, at, |key, value| {
                pairs.push((key.to_owned(), value.to_owned()));
                Ok::<(), ()>(())
            })
            .unwrap();
            let wanted: Vec<_> = (0..row % 3).map(|at| (format!("key{at}"), row.to_string())).collect();
            assert_eq!(pairs, wanted);
            // Neither another kind, nor a column or row beyond the last one.
            assert_eq!((rows.long(0, at), rows.text(7, at), rows.text(0, rows.len())), (None, None, None));
            row += 1;
        }
    }
    assert_eq!(table.metadata("rows"), Some(row.to_string().as_str()));
    (row, table.digest().digest())
}

/// Rows come back as they were, and their digest is the same in batches of another size.
#[test]
fn table_is_read_back_as_it_was_written() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.parquet");
    let mut digests = Vec::new();
    for count in [0, 1, 1024, 1025, BATCH_ROWS as u64, BATCH_ROWS as u64 + 1, 20_000] {
        let written = write(&path, count);
        assert_eq!(written.bytes, std::fs::metadata(&path).unwrap().len());
        assert_eq!((written.rows, written.digest.clone()), read(&path), "{count} rows");
        digests.push(written.digest);
    }
    let all = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), all, "other rows have another digest");
    assert_eq!(RowsDigest::default().rows(), 0);
}

/// A batch of large texts ends before its row count, at the bound of its bytes.
#[test]
fn large_texts_end_a_batch_early() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.parquet");
    let columns = &[ColumnSpec::always("text", Text)];
    let mut table = TableWriter::new(Box::new(std::fs::File::create(&path).unwrap()), columns).unwrap();
    let text = "x".repeat(BATCH_BYTES / 4);
    for _ in 0..10 {
        table.text(Some(&text));
        table.end_row().unwrap();
    }
    assert_eq!(table.finish(|_| Vec::new()).unwrap().rows, 10);
    let mut table = TableReader::open(&path, columns).unwrap();
    let mut rows = 0;
    while let Some(read) = table.next_rows().unwrap() {
        rows += read.len();
        assert!((0..read.len()).all(|row| read.text(0, row) == Some(text.as_str())));
    }
    assert_eq!(rows, 10);
}

/// Writes rows of a word and a text; returns the rows of each row group that was written.
fn row_groups(rows: usize, row: impl Fn(usize) -> (String, String)) -> Vec<usize> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.parquet");
    let columns = &[ColumnSpec::always("word", Word), ColumnSpec::maybe("text", Text)];
    let mut table = TableWriter::new(Box::new(std::fs::File::create(&path).unwrap()), columns).unwrap();
    for (word, text) in (0..rows).map(&row) {
        table.text(Some(&word));
        table.text(Some(&text));
        table.end_row().unwrap();
    }
    let written = table.finish(|_| Vec::new()).unwrap();
    let (mut table, mut count) = (TableReader::open(&path, columns).unwrap(), 0);
    while let Some(read) = table.next_rows().unwrap() {
        for at in 0..read.len() {
            let (word, text) = row(count + at);
            assert_eq!((read.text(0, at), read.text(1, at)), (Some(&*word), Some(&*text)));
        }
        count += read.len();
    }
    assert_eq!((count, table.digest().digest()), (rows, written.digest));
    let file = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    file.metadata().row_groups().iter().map(|group| group.num_rows() as usize).collect()
}

/// A row group ends at the bound of its rows.
#[test]
fn row_group_ends_at_its_rows() {
    let full = ROW_GROUP_ROWS;
    for (rows, wanted) in [(full - 1, vec![full - 1]), (full, vec![full]), (full + 1, vec![full, 1])] {
        let words = |row: usize| (["raw", "reconstructed"][row / 1000 % 2].to_owned(), String::new());
        assert_eq!(row_groups(rows, words), wanted);
    }
}

/// A row group ends with the batch in which the bytes of its distinct words reach their bound. Few words do
/// not end it, however often they come.
#[test]
fn row_group_ends_at_the_bytes_of_its_words() {
    let long = "w".repeat(1 << 20);
    let at_bound = WORDS_BYTES / long.len();
    let all = row_groups(3 * at_bound, |row| (format!("{row:06}{long}"), String::new()));
    let bound = at_bound.max(BATCH_BYTES / long.len() + 1);
    assert!(all.len() > 1 && all.iter().all(|rows| *rows <= bound), "{all:?}");
    let few = row_groups(3 * at_bound, |row| (format!("{}{long}", row / at_bound % 2), String::new()));
    assert_eq!(few, [3 * at_bound]);
}

/// A row group ends with the batch in which its bytes reach their bound.
#[test]
fn row_group_ends_at_its_bytes() {
    let mut random = fastrand::Rng::with_seed(1);
    // Text that does not become much smaller.
    let noise: String =
        std::iter::repeat_with(|| char::from(random.u8(..128))).take(BATCH_BYTES / 2).collect();
    let rows = 3 * ROW_GROUP_BYTES / BATCH_BYTES;
    let all = row_groups(rows, |row| (String::new(), format!("{row}{noise}")));
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0] * noise.len() < ROW_GROUP_BYTES * 5 / 4, "{all:?}");
}

/// A number beyond the column's digits is the largest one that the column holds.
#[test]
fn large_number_is_bounded_by_its_digits() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.parquet");
    let columns = &[ColumnSpec::always("large", Large)];
    let mut table = TableWriter::new(Box::new(std::fs::File::create(&path).unwrap()), columns).unwrap();
    for number in [LARGE_MAX as u128, LARGE_MAX as u128 + 1, u128::MAX] {
        table.large(number);
        table.end_row().unwrap();
    }
    table.finish(|_| Vec::new()).unwrap();
    let rows = TableReader::open(&path, columns).unwrap().next_rows().unwrap().unwrap();
    assert!((0..3).all(|row| rows.large(0, row) == Some(LARGE_MAX)));
}

/// A value of the wrong kind, or a missing one, is a defect that ends in an error, not in a panic.
#[test]
fn row_with_a_wrong_value_is_an_error() {
    for values in 0..3 {
        let columns = &[ColumnSpec::always("one", Text), ColumnSpec::maybe("two", Long)];
        let mut table = TableWriter::new(Box::new(Vec::new()), columns).unwrap();
        match values {
            0 => table.text(Some("missing the second")),
            1 => (table.long(Some(1)), table.long(Some(2))).1,
            _ => (table.text(None), table.long(None)).1,
        }
        table.end_row().unwrap();
        let error = table.finish(|_| Vec::new()).unwrap_err().to_string();
        assert!(error.contains("internal error"), "{error}");
    }
}

/// An error of the system keeps its kind: a full disk is told as such.
#[test]
fn full_disk_is_told_as_such() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let table = TableWriter::new(Box::new(full), &COLUMNS[..1]);
    let error = table.and_then(|mut table| {
        table.text(Some("x"));
        table.end_row()?;
        table.finish(|_| Vec::new())
    });
    assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

/// Files that are cut off or damaged, and other files, are errors that name the file.
#[test]
fn damaged_table_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.parquet");
    write(&path, 3000);
    let bytes = std::fs::read(&path).unwrap();
    let whole = read(&path).1;
    let outcome = |bytes: &[u8]| {
        let damaged = place.path().join("damaged.parquet");
        std::fs::write(&damaged, bytes).unwrap();
        let mut table = TableReader::open(&damaged, COLUMNS)?;
        while table.next_rows()?.is_some() {}
        Ok::<String, exacat_model::Error>(table.digest().digest())
    };
    assert_eq!(outcome(&bytes).unwrap(), whole);
    for cut in (0..bytes.len()).step_by(997) {
        let error = outcome(&bytes[..cut]).unwrap_err().message;
        assert!(error.contains("damaged.parquet") && error.contains("write it again"), "{error}");
    }
    for at in (0..bytes.len()).step_by(101) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0xff;
        if let Err(error) = outcome(&flipped) {
            assert!(error.message.contains("damaged.parquet"), "{error}");
        }
    }
    assert!(outcome(b"lfn\tsize\n").unwrap_err().message.contains("no whole Parquet file"));
    let other = TableReader::open(&path, &COLUMNS[1..]).err().unwrap().message;
    assert!(other.contains("columns are not those"), "{other}");
    assert!(TableReader::open(place.path(), COLUMNS).err().unwrap().message.contains("no regular file"));
    assert!(TableReader::open(&place.path().join("none"), COLUMNS).is_err());
}
