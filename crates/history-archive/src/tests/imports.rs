//! Import of Parquet files: those of the archive, those of other programs, bad ones.

use std::path::{Path, PathBuf};

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array,
    LargeStringArray, RecordBatch, StringArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt8Array, UInt64Array,
};
use exacat_model::limits::HISTORY_FIELDS_MAX;
use exacat_testkit::simulated::Random;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::files::{GOLDEN, exact_rows};
use super::*;
use crate::gathered::{IMPORT_BYTES, IMPORT_ROWS, ImportedRows};
use crate::import::{IMPORT_COLUMNS_MAX, ParquetRows};

/// A directory with one file.
struct OneFile {
    directory: tempfile::TempDir,
}

impl OneFile {
    fn new(bytes: &[u8]) -> Self {
        let file = OneFile { directory: tempfile::tempdir().unwrap() };
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("some.parquet")
    }
}

fn parquet(columns: Vec<(&str, ArrayRef)>, compression: Compression) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(700))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn all_of(path: &Path) -> Result<Vec<ImportedRows>> {
    ParquetRows::open(path, "hv")?.collect()
}

/// Returns the values of imported rows.
fn values_of(parts: &[ImportedRows]) -> Values {
    let mut values = Values::new();
    for rows in parts.iter().flat_map(|part| &part.rows) {
        for column in &rows.columns {
            assert_eq!(column.values.len(), rows.times.len());
            for (time, value) in rows.times.iter().zip(&column.values) {
                if let Some(value) = value {
                    values.insert((rows.key.clone(), column.field.clone(), *time), value.clone());
                }
            }
        }
    }
    values
}

fn texts(of: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(of.to_vec()))
}

fn ones(count: usize) -> ArrayRef {
    Arc::new(Float64Array::from(vec![1.0; count]))
}

fn refusal(bytes: &[u8]) -> String {
    let file = OneFile::new(bytes);
    let error = all_of(&file.path()).unwrap_err();
    assert!(error.message.contains("some.parquet"), "{error}");
    error.message
}

/// A file of the archive gives every value back with its key, time, type and bits, without the group.
#[test]
fn archived_file_is_imported_as_it_was() {
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let (group, rows) = exact_rows(&history);
    let wanted = read_source(&group, &mut vec![rows].into_iter()).unwrap();
    let file = OneFile::new(GOLDEN);
    let parts = all_of(&file.path()).unwrap();
    assert!(values_of(&parts) == wanted);
    assert!(parts.iter().all(|part| part.refused == 0));
}

/// A file of another program gives its rows: names or keys of elements, times of any unit, fields of each
/// type. Rows without an element, a time or a value are counted, and the others kept.
#[test]
fn foreign_file_is_imported() {
    let second = 1_700_000_000;
    for (nanoseconds, times) in [
        (1_000_000, Arc::new(TimestampMillisecondArray::from(vec![second, second, 1])) as ArrayRef),
        (
            1_000,
            Arc::new(TimestampMicrosecondArray::from(vec![second, second, 1]).with_timezone("Europe/Zurich")),
        ),
        (1, Arc::new(TimestampNanosecondArray::from(vec![second, second, 1]).with_timezone("UTC"))),
        (1_000_000_000, texts(&["2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "1970-01-01T00:00:01Z"])),
    ] {
        let gzip = Compression::GZIP(Default::default());
        for compression in [Compression::SNAPPY, Compression::UNCOMPRESSED, Compression::LZ4_RAW, gzip] {
            let bytes = parquet(
                vec![
                    ("element", texts(&["a b", "ev,name=x", "a b"])),
                    ("timestamp", Arc::clone(&times)),
                    ("value", Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(f64::NAN)]))),
                    ("f", Arc::new(Float32Array::from(vec![0.1, 0.2, 0.3]))),
                    ("quality", Arc::new(UInt8Array::from(vec![1, 2, 255]))),
                    ("big", Arc::new(UInt64Array::from(vec![None, Some(u64::MAX), None]))),
                    ("on", Arc::new(BooleanArray::from(vec![Some(true), None, None]))),
                    ("t", Arc::new(LargeStringArray::from(vec![None, Some("ä"), None]))),
                ],
                compression,
            );
            let file = OneFile::new(&bytes);
            let mut expected = Values::new();
            let mut add = |key: &str, time: i64, field: &str, value| {
                expected.insert((key.to_owned(), field.to_owned(), time * nanoseconds), value);
            };
            for (key, time, f, quality) in [
                (r"hv,element=a\ b", second, 0.1f32, 1),
                ("ev,name=x", second, 0.2, 2),
                (r"hv,element=a\ b", 1, 0.3, 255),
            ] {
                add(key, time, "f", FieldValue::Float(f.into()));
                add(key, time, "quality", FieldValue::Integer(quality));
            }
            add(r"hv,element=a\ b", second, "value", FieldValue::Float(-0.0));
            add(r"hv,element=a\ b", second, "on", FieldValue::Boolean(true));
            add(r"hv,element=a\ b", 1, "value", FieldValue::Float(f64::NAN));
            add("ev,name=x", second, "big", FieldValue::Unsigned(u64::MAX));
            add("ev,name=x", second, "t", FieldValue::Text("ä".into()));
            assert!(values_of(&all_of(&file.path()).unwrap()) == expected, "{nanoseconds} {compression:?}");
        }
    }
    let bytes = parquet(
        vec![
            (
                "name",
                Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("b"), Some("c"), Some("d")])),
            ),
            ("element", Arc::new(Int64Array::from(vec![1; 6]))),
            (
                "time",
                Arc::new(TimestampMillisecondArray::from(vec![
                    Some(1),
                    Some(1),
                    Some(1),
                    None,
                    Some(i64::MAX),
                    Some(1),
                ])),
            ),
            (
                "v",
                Arc::new(Float64Array::from(vec![
                    Some(1.0),
                    Some(1.0),
                    Some(1.0),
                    Some(1.0),
                    Some(1.0),
                    None,
                ])),
            ),
        ],
        Compression::SNAPPY,
    );
    let file = OneFile::new(&bytes);
    let parts = all_of(&file.path()).unwrap();
    assert_eq!(values_of(&parts).len(), 1);
    let refused: u64 = parts.iter().map(|part| part.refused).sum();
    assert_eq!((refused, parts[0].reason.as_deref()), (5, Some("row 2: a row without an element")));
}

/// Whole nanoseconds win over the time, as in a file of the archive.
#[test]
fn nanoseconds_win_over_the_time() {
    let bytes = parquet(
        vec![
            ("name", texts(&["a", "b"])),
            ("time", Arc::new(TimestampMicrosecondArray::from(vec![5, 6]))),
            ("time_ns", Arc::new(Int64Array::from(vec![Some(5007), None]))),
            ("v", ones(2)),
        ],
        Compression::SNAPPY,
    );
    let file = OneFile::new(&bytes);
    let times: Vec<i64> = values_of(&all_of(&file.path()).unwrap()).keys().map(|key| key.2).collect();
    assert_eq!(times, [5007, 6000]);
}

/// A file that cannot be kept exactly is refused, with its name, the column, and what to do.
#[test]
fn bad_files_are_told() {
    let names = || ("name", texts(&["a"]));
    let time = || ("time", Arc::new(TimestampMillisecondArray::from(vec![1])) as ArrayRef);
    let value = || ("v", ones(1));
    let mut list = ListBuilder::new(StringBuilder::new());
    list.values().append_value("x");
    list.append(true);
    let list = Arc::new(list.finish()) as ArrayRef;
    let decimal = Decimal128Array::from(vec![1]).with_precision_and_scale(20, 2).unwrap();
    for (columns, said) in [
        (vec![time(), value()], vec!["\"name\" or \"element\"", "rename"]),
        (vec![names(), value()], vec!["\"time\" or \"timestamp\"", "rename"]),
        (vec![names(), time()], vec!["no column with values"]),
        (
            vec![("element", Arc::new(Int64Array::from(vec![1])) as ArrayRef), time(), value()],
            vec!["\"element\"", "Int64", "a text"],
        ),
        (vec![names(), ("element", texts(&["b"])), time(), value()], vec!["\"element\"", "leave one out"]),
        (
            vec![names(), ("time", Arc::new(Int64Array::from(vec![1]))), value()],
            vec!["\"time\"", "unit", "time_ns"],
        ),
        (vec![names(), time(), ("l", list)], vec!["\"l\"", "list", "leave it out"]),
        (
            vec![names(), time(), ("day", Arc::new(Date32Array::from(vec![1])))],
            vec!["\"day\"", "Date32", "leave it out"],
        ),
        (
            vec![names(), time(), ("price", Arc::new(decimal))],
            vec!["\"price\"", "Decimal128(20, 2)", "write it as"],
        ),
        (
            vec![names(), time(), ("at", Arc::new(TimestampMillisecondArray::from(vec![1])))],
            vec!["\"at\"", "Timestamp"],
        ),
    ] {
        let error = refusal(&parquet(columns, Compression::SNAPPY));
        assert!(said.iter().all(|part| error.contains(part)), "{error:?} has not all of {said:?}");
    }
    let good = parquet(vec![names(), time(), value()], Compression::SNAPPY);
    for bytes in [&b""[..], b"name,time,v\na,1,1\n", &good[..good.len() - 9], &good[..7]] {
        assert!(refusal(bytes).contains("no whole Parquet file"));
    }
    assert!(
        all_of(Path::new("/nowhere/some.parquet")).unwrap_err().message.contains("/nowhere/some.parquet")
    );
    assert!(all_of(Path::new("/")).unwrap_err().message.contains("directory"));
}

/// A file with as many columns as a row may have is read, and one with one more is refused.
#[test]
fn columns_beyond_the_limit_are_refused() {
    let of = |fields: usize| {
        let field_names: Vec<String> = (0..fields).map(|field| format!("f{field}")).collect();
        let mut columns = vec![
            ("name", texts(&["a"])),
            ("time", Arc::new(TimestampMillisecondArray::from(vec![1])) as ArrayRef),
            ("time_ns", Arc::new(Int64Array::from(vec![1]))),
        ];
        columns.extend(field_names.iter().map(|name| (name.as_str(), ones(1))));
        parquet(columns, Compression::SNAPPY)
    };
    let file = OneFile::new(&of(HISTORY_FIELDS_MAX));
    assert_eq!(values_of(&all_of(&file.path()).unwrap()).len(), HISTORY_FIELDS_MAX);
    let error = refusal(&of(HISTORY_FIELDS_MAX + 1));
    assert!(error.contains(&IMPORT_COLUMNS_MAX.to_string()), "{error}");
}

/// No part has more rows or bytes than a request takes, whatever the row groups are.
#[test]
fn parts_are_as_large_as_a_request() {
    let count = 2 * IMPORT_ROWS + 500;
    let elements: Vec<String> = (0..count).map(|row| format!("e{}", row % 300)).collect();
    let times: Vec<i64> = (0..count as i64).collect();
    let mut columns = vec![
        ("name", Arc::new(StringArray::from(elements)) as ArrayRef),
        ("time", Arc::new(TimestampMillisecondArray::from(times))),
        ("v", ones(count)),
    ];
    let rows_of = |columns: Vec<(&str, ArrayRef)>| -> Vec<(usize, usize)> {
        let file = OneFile::new(&parquet(columns, Compression::SNAPPY));
        let parts = all_of(&file.path()).unwrap();
        let sizes = |part: &ImportedRows| {
            let values = part.rows.iter().flat_map(|rows| &rows.columns).flat_map(|column| &column.values);
            let text = |value: &Option<FieldValue>| match value {
                Some(FieldValue::Text(text)) => text.len(),
                _ => 0,
            };
            (part.rows.iter().map(|rows| rows.times.len()).sum(), values.map(text).sum())
        };
        parts.iter().map(sizes).collect()
    };
    let counts: Vec<usize> = rows_of(columns.clone()).iter().map(|part| part.0).collect();
    assert_eq!(counts, [IMPORT_ROWS, IMPORT_ROWS, 500]);
    let text = "x".repeat(10_000);
    columns.push(("t", Arc::new(StringArray::from(vec![text.as_str(); count]))));
    let parts = rows_of(columns);
    assert_eq!(parts.iter().map(|part| part.0).sum::<usize>(), count);
    assert!(parts.iter().all(|part| part.1 < IMPORT_BYTES + text.len()), "{:?}", parts.first());
}

/// Damaged files give an error or rows, and never a panic or an endless loop.
#[test]
fn damaged_file_of_another_program_never_panics() {
    let count = 60;
    let elements: Vec<String> = (0..count).map(|row| format!("e{}", row % 7)).collect();
    let foreign = parquet(
        vec![
            ("name", Arc::new(StringArray::from(elements)) as ArrayRef),
            ("time", Arc::new(TimestampMillisecondArray::from((0..count).collect::<Vec<i64>>()))),
            ("v", ones(count as usize)),
            ("t", texts(&vec!["x"; count as usize])),
        ],
        Compression::SNAPPY,
    );
    let mut random = Random(11);
    let mut refused = 0;
    for good in [&foreign[..], GOLDEN] {
        for round in 0..600 * exacat_testkit::rounds() {
            let mut bytes = good.to_vec();
            for _ in 0..1 + random.next(3) {
                // Half of the mutations are in the metadata at the end.
                let from = if round % 2 == 0 { 0 } else { bytes.len() as u64 / 2 };
                let at = (from + random.next(bytes.len() as u64 - from)) as usize;
                bytes[at] = random.next(256) as u8;
            }
            if random.chance(8) {
                bytes.truncate(random.next(bytes.len() as u64) as usize);
            }
            let file = OneFile::new(&bytes);
            let Ok(rows) = ParquetRows::open(&file.path(), "hv") else {
                refused += 1;
                continue;
            };
            let (mut parts, mut failed) = (0, 0);
            for part in rows {
                failed += u32::from(part.is_err());
                parts += 1;
            }
            assert!(parts <= 4 && failed <= 1);
        }
    }
    assert!(refused > 100, "{refused}");
}
