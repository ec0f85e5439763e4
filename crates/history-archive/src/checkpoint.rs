//! Checkpoints of the Delta log: its state at a version, as a Parquet file, so that nobody reads all commits.
//!
//! `VERSION.checkpoint.parquet` has one row for each action that still counts: the protocol, the metadata,
//! files that count, and removed files for as long as they may be read. `_last_checkpoint` names the newest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray,
    StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

/// A file that counts, or that does no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileAction {
    /// Path as Delta has it.
    pub address: String,
    /// Values of the folders; not read back.
    pub partition_values: Vec<(&'static str, String)>,
    pub bytes: i64,
    /// Time since when, in milliseconds.
    pub since: i64,
    /// Statistics of a file that counts, as JSON.
    pub stats: String,
}

/// State of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TableState {
    /// The action `metaData`.
    pub metadata: Value,
    /// Versions of the protocol for readers and writers.
    pub protocol: (i32, i32),
    pub live: Vec<FileAction>,
    pub removed: Vec<FileAction>,
}

/// Column of a struct: its name and values.
type Child = (&'static str, ArrayRef);

/// Rows of one action among all rows of a checkpoint.
struct Rows {
    from: usize,
    count: usize,
    total: usize,
}

impl Rows {
    /// Puts values to their rows, and nulls to the others.
    fn spread<T: Clone>(&self, values: impl Iterator<Item = T>) -> Vec<Option<T>> {
        let mut all = vec![None; self.from];
        all.extend(values.map(Some));
        all.resize(self.total, None);
        all
    }

    fn texts<'t>(&self, values: impl Iterator<Item = &'t str>) -> ArrayRef {
        Arc::new(StringArray::from(self.spread(values)))
    }

    fn longs(&self, values: impl Iterator<Item = i64>) -> ArrayRef {
        Arc::new(Int64Array::from(self.spread(values)))
    }

    fn ints(&self, value: i32) -> ArrayRef {
        Arc::new(Int32Array::from(self.spread(std::iter::repeat_n(value, self.count))))
    }

    fn booleans(&self, value: bool) -> ArrayRef {
        Arc::new(BooleanArray::from(self.spread(std::iter::repeat_n(value, self.count))))
    }

    fn valid(&self) -> NullBuffer {
        (0..self.total).map(|row| (self.from..self.from + self.count).contains(&row)).collect()
    }

    fn offsets(&self, lengths: impl Iterator<Item = usize>) -> OffsetBuffer<i32> {
        let lengths = std::iter::repeat_n(0, self.from).chain(lengths);
        let rest = self.total - self.from - self.count;
        OffsetBuffer::from_lengths(lengths.chain(std::iter::repeat_n(0, rest)))
    }

    /// Makes a column of maps from text to text.
    fn maps<'t>(&self, maps: &[Vec<(&'t str, &'t str)>]) -> Result<ArrayRef, ArrowError> {
        let entries = || maps.iter().flatten();
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values(entries().map(|entry| entry.0)));
        let values: ArrayRef = Arc::new(StringArray::from_iter_values(entries().map(|entry| entry.1)));
        let fields = Fields::from(vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Utf8, true),
        ]);
        let entries = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
        let field = Arc::new(Field::new("key_value", DataType::Struct(fields), false));
        let offsets = self.offsets(maps.iter().map(Vec::len));
        Ok(Arc::new(MapArray::try_new(field, offsets, entries, Some(self.valid()), false)?))
    }

    /// Makes a column of structs, which are null in the rows of other actions.
    fn structs(&self, children: Vec<Child>) -> Result<ArrayRef, ArrowError> {
        let fields: Fields = children
            .iter()
            .map(|(name, values)| Field::new(*name, values.data_type().clone(), true))
            .collect();
        let children = children.into_iter().map(|child| child.1).collect();
        Ok(Arc::new(StructArray::try_new(fields, children, Some(self.valid()))?))
    }
}

fn pairs(file: &FileAction) -> Vec<(&str, &str)> {
    file.partition_values.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// Returns the pairs of an object of texts.
fn object(value: &Value) -> Vec<(&str, &str)> {
    let pairs = value.as_object().into_iter().flatten();
    pairs.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect()
}

/// Returns the number of actions, and the bytes of a checkpoint.
pub(crate) fn encode(state: &TableState) -> Result<(usize, Vec<u8>), ParquetError> {
    let TableState { metadata, protocol, live, removed } = state;
    let total = 2 + live.len() + removed.len();
    let rows = |from, count| Rows { from, count, total };
    let (of_protocol, of_metadata) = (rows(0, 1), rows(1, 1));
    let (of_live, of_removed) = (rows(2, live.len()), rows(2 + live.len(), removed.len()));
    let text = |name: &str| std::iter::once(metadata[name].as_str().unwrap_or_default());
    let partitions: Vec<&str> =
        metadata["partitionColumns"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let partitions = ListArray::try_new(
        Arc::new(Field::new("element", DataType::Utf8, true)),
        of_metadata.offsets(std::iter::once(partitions.len())),
        Arc::new(StringArray::from(partitions)),
        Some(of_metadata.valid()),
    )?;
    let format = &metadata["format"];
    let format = of_metadata.structs(vec![
        ("provider", of_metadata.texts(std::iter::once(format["provider"].as_str().unwrap_or_default()))),
        ("options", of_metadata.maps(&[object(&format["options"])])?),
    ])?;
    let live_pairs: Vec<_> = live.iter().map(pairs).collect();
    let removed_pairs: Vec<_> = removed.iter().map(pairs).collect();
    let batch = RecordBatch::try_from_iter([
        (
            "protocol",
            of_protocol.structs(vec![
                ("minReaderVersion", of_protocol.ints(protocol.0)),
                ("minWriterVersion", of_protocol.ints(protocol.1)),
            ])?,
        ),
        (
            "metaData",
            of_metadata.structs(vec![
                ("id", of_metadata.texts(text("id"))),
                ("name", of_metadata.texts(text("name"))),
                ("format", format),
                ("schemaString", of_metadata.texts(text("schemaString"))),
                ("partitionColumns", Arc::new(partitions)),
                ("configuration", of_metadata.maps(&[object(&metadata["configuration"])])?),
                (
                    "createdTime",
                    of_metadata.longs(std::iter::once(metadata["createdTime"].as_i64().unwrap_or_default())),
                ),
            ])?,
        ),
        (
            "add",
            of_live.structs(vec![
                ("path", of_live.texts(live.iter().map(|file| file.address.as_str()))),
                ("partitionValues", of_live.maps(&live_pairs)?),
                ("size", of_live.longs(live.iter().map(|file| file.bytes))),
                ("modificationTime", of_live.longs(live.iter().map(|file| file.since))),
                // The files were there before: a checkpoint changes nothing.
                ("dataChange", of_live.booleans(false)),
                ("stats", of_live.texts(live.iter().map(|file| file.stats.as_str()))),
            ])?,
        ),
        (
            "remove",
            of_removed.structs(vec![
                ("path", of_removed.texts(removed.iter().map(|file| file.address.as_str()))),
                ("deletionTimestamp", of_removed.longs(removed.iter().map(|file| file.since))),
                ("dataChange", of_removed.booleans(false)),
                ("extendedFileMetadata", of_removed.booleans(true)),
                ("partitionValues", of_removed.maps(&removed_pairs)?),
                ("size", of_removed.longs(removed.iter().map(|file| file.bytes))),
            ])?,
        ),
    ])?;
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    Ok((total, writer.into_inner()?))
}

/// Columns of the rows of one action in a batch.
struct Action<'b>(&'b StructArray);

impl<'b> Action<'b> {
    fn of(batch: &'b RecordBatch, name: &str) -> Option<Self> {
        batch.column_by_name(name)?.as_struct_opt().map(Action)
    }

    fn text(&self, name: &str, row: usize) -> Option<String> {
        let texts = self.0.column_by_name(name)?.as_string_opt::<i32>()?;
        texts.is_valid(row).then(|| texts.value(row).to_owned())
    }

    fn long(&self, name: &str, row: usize) -> Option<i64> {
        let longs = self.0.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
        longs.is_valid(row).then(|| longs.value(row))
    }

    fn int(&self, name: &str, row: usize) -> Option<i32> {
        let ints = self.0.column_by_name(name)?.as_primitive_opt::<Int32Type>()?;
        ints.is_valid(row).then(|| ints.value(row))
    }

    fn pairs(&self, name: &str, row: usize) -> Option<Value> {
        let map = self.0.column_by_name(name)?.as_map_opt()?;
        if map.is_null(row) {
            return None;
        }
        let entries = map.value(row);
        let (keys, values) =
            (entries.column(0).as_string_opt::<i32>()?, entries.column(1).as_string_opt::<i32>()?);
        let pair = |at| (keys.value(at).to_owned(), Value::from(values.value(at)));
        Some(Value::Object((0..entries.len()).map(pair).collect()))
    }

    fn file(&self, since: &str, row: usize) -> Option<FileAction> {
        Some(FileAction {
            address: self.text("path", row)?,
            bytes: self.long("size", row).unwrap_or_default(),
            since: self.long(since, row).unwrap_or_default(),
            stats: self.text("stats", row).unwrap_or_default(),
            ..FileAction::default()
        })
    }

    fn metadata(&self, row: usize) -> Option<Value> {
        let format = Action(self.0.column_by_name("format")?.as_struct_opt()?);
        let partitions = self.0.column_by_name("partitionColumns")?.as_list_opt::<i32>()?.value(row);
        let partitions: Vec<&str> = partitions.as_string_opt::<i32>()?.iter().flatten().collect();
        Some(json!({
            "id": self.text("id", row)?,
            "name": self.text("name", row),
            "format": {"provider": format.text("provider", row), "options": format.pairs("options", row)},
            "schemaString": self.text("schemaString", row)?,
            "partitionColumns": partitions,
            "configuration": self.pairs("configuration", row),
            "createdTime": self.long("createdTime", row),
        }))
    }

    fn rows(&self) -> impl Iterator<Item = usize> + use<'b> {
        let of = self.0;
        (0..of.len()).filter(|row| of.is_valid(*row))
    }
}

/// Reads a checkpoint. A panic of the library on damaged bytes is an error like others.
pub(crate) fn decode(bytes: Bytes) -> Result<TableState, String> {
    let read = catch_unwind(AssertUnwindSafe(|| {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options)?.build()?;
        reader.collect::<Result<Vec<_>, _>>().map_err(ParquetError::from)
    }));
    let batches = match read {
        Ok(read) => read.map_err(|error| error.to_string())?,
        Err(_) => return Err("the library stopped at its bytes".to_owned()),
    };
    let (mut state, mut protocol) = (TableState::default(), None);
    for batch in &batches {
        let of = |name: &str| Action::of(batch, name).ok_or_else(|| format!("it has no column {name}"));
        let (versions, metadata, add, remove) = (of("protocol")?, of("metaData")?, of("add")?, of("remove")?);
        let missing = || "a part of an action is missing".to_owned();
        for row in versions.rows() {
            protocol = versions.int("minReaderVersion", row).zip(versions.int("minWriterVersion", row));
        }
        for row in metadata.rows() {
            state.metadata = metadata.metadata(row).ok_or_else(missing)?;
        }
        for row in add.rows() {
            state.live.push(add.file("modificationTime", row).ok_or_else(missing)?);
        }
        for row in remove.rows() {
            state.removed.push(remove.file("deletionTimestamp", row).ok_or_else(missing)?);
        }
    }
    state.protocol =
        protocol.filter(|_| !state.metadata.is_null()).ok_or("it has no protocol or metadata")?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: i64, stats: &str) -> FileAction {
        FileAction {
            address: format!("group=d%25C3/day=2026-01-0{number}/part.parquet"),
            partition_values: vec![("group", "dé".to_owned()), ("day", format!("2026-01-0{number}"))],
            bytes: number * 1000,
            since: number,
            stats: stats.to_owned(),
        }
    }

    /// A checkpoint is read back as the state that it was made of, also without a file that counts.
    #[test]
    fn checkpoint_is_read_back() {
        let metadata = json!({
            "id": "abababab-abab-abab-abab-abababababab", "name": "history",
            "format": {"provider": "parquet", "options": {}}, "schemaString": "{\"type\":\"struct\"}",
            "partitionColumns": ["group", "day"], "configuration": {"delta.appendOnly": "false"}, "createdTime": 5,
        });
        for count in [0, 1, 5] {
            let state = TableState {
                metadata: metadata.clone(),
                protocol: (1, 2),
                live: (1..=count).map(|number| file(number, "{\"numRecords\":1}")).collect(),
                removed: (0..3 - count % 3).map(|number| file(number, "")).collect(),
            };
            let (actions, bytes) = encode(&state).unwrap();
            assert_eq!(actions, 2 + state.live.len() + state.removed.len());
            let mut found = decode(bytes.into()).unwrap();
            for of in
                found.live.iter_mut().zip(&state.live).chain(found.removed.iter_mut().zip(&state.removed))
            {
                of.0.partition_values.clone_from(&of.1.partition_values);
            }
            assert_eq!(found, state);
        }
    }

    /// Damaged bytes give an error or a state, and never a panic.
    #[test]
    fn damaged_checkpoint_never_panics() {
        let state = TableState {
            metadata: json!({"id": "a", "schemaString": "", "partitionColumns": []}),
            protocol: (1, 2),
            live: vec![file(1, "{}")],
            removed: vec![file(2, "")],
        };
        let (_, bytes) = encode(&state).unwrap();
        let mut refused = 0;
        for at in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            refused += usize::from(decode(damaged.into()).is_err());
            refused += usize::from(decode(bytes[..at].to_vec().into()).is_err());
        }
        assert!(refused > bytes.len() / 7, "{refused}");
    }
}
