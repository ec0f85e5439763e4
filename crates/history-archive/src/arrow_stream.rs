//! Rows of elements as a stream of Arrow: a header, a batch for each page of rows, an end.
//!
//! The columns are `element` (name), `key` (measurement and tags), `time`, and one for each field. They are
//! known before the first row, so a caller passes the fields. Names of elements are dictionaries of their
//! batch: a page of one element has its name once.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, UInt64Builder,
};
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use exacat_model::element::ElementRows;
use exacat_model::{Error, ErrorKind, FieldRef, FieldType, Result};

/// Media type of the stream.
pub const ARROW_STREAM_TYPE: &str = "application/vnd.apache.arrow.stream";

/// Columns before those of the fields.
const HEAD: [&str; 3] = ["element", "key", "time"];

fn internal(error: &ArrowError) -> Error {
    Error::new(ErrorKind::Internal, format!("internal error: a stream of Arrow: {error}"))
}

/// Values of a field's column in a batch.
enum Builder {
    Float(Float64Builder),
    Integer(Int64Builder),
    Unsigned(UInt64Builder),
    Boolean(BooleanBuilder),
    Text(StringBuilder),
}

impl Builder {
    fn of(kind: FieldType) -> Self {
        match kind {
            FieldType::Float => Builder::Float(Float64Builder::new()),
            FieldType::Integer => Builder::Integer(Int64Builder::new()),
            FieldType::Unsigned => Builder::Unsigned(UInt64Builder::new()),
            FieldType::Boolean => Builder::Boolean(BooleanBuilder::new()),
            FieldType::Text => Builder::Text(StringBuilder::new()),
        }
    }

    fn push(&mut self, value: FieldRef<'_>) {
        match (self, value) {
            (Builder::Float(values), FieldRef::Float(value)) => values.append_value(value),
            (Builder::Integer(values), FieldRef::Integer(value)) => values.append_value(value),
            (Builder::Unsigned(values), FieldRef::Unsigned(value)) => values.append_value(value),
            (Builder::Boolean(values), FieldRef::Boolean(value)) => values.append_value(value),
            (Builder::Text(values), FieldRef::Text(value)) => values.append_value(value),
            // A column is found by its type.
            _ => {}
        }
    }

    fn len(&self) -> usize {
        match self {
            Builder::Float(values) => values.len(),
            Builder::Integer(values) => values.len(),
            Builder::Unsigned(values) => values.len(),
            Builder::Boolean(values) => values.len(),
            Builder::Text(values) => values.len(),
        }
    }

    /// Adds nulls up to a number of values.
    fn fill(&mut self, rows: usize) {
        let missing = rows.saturating_sub(self.len());
        match self {
            Builder::Float(values) => values.append_nulls(missing),
            Builder::Integer(values) => values.append_nulls(missing),
            Builder::Unsigned(values) => values.append_nulls(missing),
            Builder::Boolean(values) => values.append_nulls(missing),
            Builder::Text(values) => values.append_nulls(missing),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Builder::Float(mut values) => Arc::new(values.finish()),
            Builder::Integer(mut values) => Arc::new(values.finish()),
            Builder::Unsigned(mut values) => Arc::new(values.finish()),
            Builder::Boolean(mut values) => Arc::new(values.finish()),
            Builder::Text(mut values) => Arc::new(values.finish()),
        }
    }
}

/// A stream of rows. Its memory is that of one batch.
pub struct ArrowStream {
    schema: SchemaRef,
    kinds: Vec<FieldType>,
    /// Column of each field and type.
    places: HashMap<(String, FieldType), usize>,
    writer: StreamWriter<Vec<u8>>,
}

/// Returns the name of each field's column: its own name; with its type, `NAME:TYPE`, if another field or
/// column has that name.
fn column_names(fields: &[(String, FieldType)]) -> Vec<String> {
    let mut uses: HashMap<&str, usize> = HEAD.iter().map(|name| (*name, 1)).collect();
    fields.iter().for_each(|(name, _)| *uses.entry(name).or_default() += 1);
    let name = |(name, kind): &(String, FieldType)| match uses[name.as_str()] {
        1 => name.clone(),
        _ => format!("{name}:{kind}"),
    };
    fields.iter().map(name).collect()
}

impl ArrowStream {
    /// Begins a stream of rows with these fields, and returns its header. A field that is given twice has one
    /// column.
    pub fn new(fields: &[(String, FieldType)]) -> Result<(Self, Vec<u8>)> {
        let mut places: HashMap<(String, FieldType), usize> = HashMap::new();
        let mut distinct = Vec::new();
        for field in fields {
            if !places.contains_key(field) {
                places.insert(field.clone(), distinct.len());
                distinct.push(field.clone());
            }
        }
        let text = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let mut columns = vec![
            Field::new(HEAD[0], text(), false),
            Field::new(HEAD[1], text(), false),
            Field::new(HEAD[2], DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), false),
        ];
        for (name, (_, kind)) in column_names(&distinct).into_iter().zip(&distinct) {
            let kind = match kind {
                FieldType::Float => DataType::Float64,
                FieldType::Integer => DataType::Int64,
                FieldType::Unsigned => DataType::UInt64,
                FieldType::Boolean => DataType::Boolean,
                FieldType::Text => DataType::Utf8,
            };
            columns.push(Field::new(name, kind, true));
        }
        let schema = Arc::new(Schema::new(columns));
        let writer = StreamWriter::try_new(Vec::new(), &schema).map_err(|error| internal(&error))?;
        let kinds = distinct.iter().map(|(_, kind)| *kind).collect();
        let mut stream = ArrowStream { schema, kinds, places, writer };
        let header = stream.take();
        Ok((stream, header))
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.writer.get_mut())
    }

    /// Returns the bytes of a page of rows; none if it has no row. Values of other fields than those of the
    /// stream are left out, and rows that have only such values: a field may be new since it began.
    pub fn batch(&mut self, page: &[ElementRows]) -> Result<Vec<u8>> {
        let mut builders: Vec<Builder> = self.kinds.iter().map(|kind| Builder::of(*kind)).collect();
        let (mut names, mut keys, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let mut elements: Vec<i32> = Vec::new();
        for of in page {
            // Its columns, each with its place in the stream.
            let columns = of.columns.iter().filter_map(|column| {
                let kind = column.values.iter().flatten().next()?.borrow().kind();
                Some((*self.places.get(&(column.field.clone(), kind))?, &column.values))
            });
            let columns: Vec<_> = columns.collect();
            let before = times.len();
            for (row, time) in of.times.iter().enumerate() {
                let mut has_value = false;
                for (place, values) in &columns {
                    if let Some(value) = values.get(row).and_then(Option::as_ref) {
                        builders[*place].fill(times.len());
                        builders[*place].push(value.borrow());
                        has_value = true;
                    }
                }
                if has_value {
                    times.push(*time);
                }
            }
            elements.resize(times.len(), i32::try_from(names.len()).unwrap_or(i32::MAX));
            if times.len() > before {
                names.push(of.name.as_str());
                keys.push(of.key.as_str());
            }
        }
        if times.is_empty() {
            return Ok(Vec::new());
        }
        let text = |texts: Vec<&str>| -> Result<ArrayRef> {
            let keys = Int32Array::from(elements.clone());
            let array = DictionaryArray::try_new(keys, Arc::new(StringArray::from(texts)));
            Ok(Arc::new(array.map_err(|error| internal(&error))?))
        };
        let rows = times.len();
        let mut columns = vec![
            text(names)?,
            text(keys)?,
            Arc::new(TimestampNanosecondArray::from(times).with_timezone("UTC")) as ArrayRef,
        ];
        columns.extend(builders.into_iter().map(|mut builder| {
            builder.fill(rows);
            builder.finish()
        }));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let written = batch.and_then(|batch| self.writer.write(&batch));
        written.map_err(|error| internal(&error))?;
        Ok(self.take())
    }

    /// Returns the bytes of the end.
    pub fn end(mut self) -> Result<Vec<u8>> {
        self.writer.finish().map_err(|error| internal(&error))?;
        Ok(self.take())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt64Type};
    use arrow_ipc::reader::StreamReader;
    use exacat_model::FieldValue;
    use exacat_model::element::ElementColumn;

    use super::*;

    fn rows(key: &str, times: &[i64], columns: &[(&str, Vec<Option<FieldValue>>)]) -> ElementRows {
        let column = |(field, values): &(&str, Vec<Option<FieldValue>>)| ElementColumn {
            field: (*field).to_owned(),
            values: values.clone(),
        };
        ElementRows {
            key: key.to_owned(),
            name: key.rsplit('=').next().unwrap().to_owned(),
            times: times.to_vec(),
            columns: columns.iter().map(column).collect(),
        }
    }

    fn fields(of: &[(&str, FieldType)]) -> Vec<(String, FieldType)> {
        of.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
    }

    fn read(bytes: Vec<u8>) -> (SchemaRef, Vec<RecordBatch>) {
        let reader = StreamReader::try_new(Cursor::new(bytes), None).unwrap();
        (reader.schema(), reader.map(|batch| batch.unwrap()).collect())
    }

    fn text(batch: &RecordBatch, column: usize, row: usize) -> String {
        let column = batch.column(column).as_dictionary::<Int32Type>();
        column.values().as_string::<i32>().value(column.keys().value(row) as usize).to_owned()
    }

    /// Every value is read back with its type and bits, page after page, and no other ones.
    #[test]
    fn values_of_all_types_are_read_back() {
        use FieldValue::{Boolean, Float, Integer, Text, Unsigned};
        let of = fields(&[
            ("v", FieldType::Float),
            ("_status64", FieldType::Integer),
            ("u", FieldType::Unsigned),
            ("on", FieldType::Boolean),
            ("t", FieldType::Text),
        ]);
        let (mut stream, mut bytes) = ArrowStream::new(&of).unwrap();
        let nan = f64::from_bits(0xfff8_0000_dead_beef);
        let pages = [
            vec![
                rows(
                    "ev,name=a",
                    &[i64::MIN, -1, i64::MAX],
                    &[
                        ("v", vec![Some(Float(-0.0)), None, Some(Float(nan))]),
                        ("_status64", vec![Some(Integer(i64::MIN)), Some(Integer(3)), None]),
                    ],
                ),
                rows("ev,name=b", &[5], &[("t", vec![Some(Text("ä\"\n".into()))])]),
            ],
            vec![],
            vec![rows(
                "ev,name=c",
                &[7],
                &[("u", vec![Some(Unsigned(u64::MAX))]), ("on", vec![Some(Boolean(true))])],
            )],
        ];
        for page in &pages {
            bytes.extend(stream.batch(page).unwrap());
        }
        bytes.extend(stream.end().unwrap());
        let (schema, batches) = read(bytes);
        let shown: Vec<String> =
            schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect();
        assert_eq!(
            shown,
            [
                "element Dictionary(Int32, Utf8)",
                "key Dictionary(Int32, Utf8)",
                "time Timestamp(ns, \"UTC\")",
                "v Float64",
                "_status64 Int64",
                "u UInt64",
                "on Boolean",
                "t Utf8"
            ]
        );
        let [first, second] = &batches[..] else { panic!("{} batches", batches.len()) };
        let times = first.column(2).as_primitive::<TimestampNanosecondType>();
        assert_eq!(times.values(), &[i64::MIN, -1, i64::MAX, 5]);
        assert_eq!([text(first, 0, 2), text(first, 0, 3)], ["a", "b"]);
        assert_eq!([text(first, 1, 0), text(second, 1, 0)], ["ev,name=a", "ev,name=c"]);
        let values = first.column(3).as_primitive::<Float64Type>();
        assert_eq!(
            (values.value(0).to_bits(), values.value(2).to_bits()),
            ((-0.0f64).to_bits(), nan.to_bits())
        );
        assert!(values.is_null(1) && values.is_null(3));
        let quality = first.column(4).as_primitive::<Int64Type>();
        assert_eq!((quality.value(0), quality.value(1), quality.null_count()), (i64::MIN, 3, 2));
        assert_eq!(first.column(7).as_string::<i32>().value(3), "ä\"\n");
        assert_eq!(second.column(5).as_primitive::<UInt64Type>().value(0), u64::MAX);
        assert!(second.column(6).as_boolean().value(0));
        assert_eq!((second.num_rows(), second.column(3).null_count()), (1, 1));
    }

    /// Fields of one name and several types, or of the name of a column, have a column each. A field that is
    /// not of the stream is left out, with the rows that have no other.
    #[test]
    fn fields_of_one_name_have_a_column_each() {
        let of = fields(&[
            ("v", FieldType::Float),
            ("v", FieldType::Integer),
            ("time", FieldType::Text),
            ("v", FieldType::Float),
        ]);
        let (mut stream, mut bytes) = ArrowStream::new(&of).unwrap();
        let page = [
            rows(
                "a",
                &[1, 2],
                &[
                    ("v", vec![Some(FieldValue::Integer(1)), None]),
                    ("new", vec![None, Some(FieldValue::Float(1.0))]),
                ],
            ),
            rows("b", &[3], &[("new", vec![Some(FieldValue::Float(1.0))])]),
            rows("c", &[4], &[("v", vec![Some(FieldValue::Float(4.0))])]),
        ];
        bytes.extend(stream.batch(&page).unwrap());
        assert!(stream.batch(&page[1..2]).unwrap().is_empty());
        bytes.extend(stream.end().unwrap());
        let (schema, batches) = read(bytes);
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["element", "key", "time", "v:float", "v:integer", "time:string"]);
        assert_eq!(batches[0].column(2).as_primitive::<TimestampNanosecondType>().values(), &[1, 4]);
        assert_eq!([text(&batches[0], 0, 0), text(&batches[0], 0, 1)], ["a", "c"]);
    }

    /// A page of a long key takes the bytes of that key once.
    #[test]
    fn page_has_a_key_once() {
        let (mut stream, _) = ArrowStream::new(&fields(&[("v", FieldType::Float)])).unwrap();
        let key = format!("ev,name={}", "x".repeat(60_000));
        let times: Vec<i64> = (0..10_000).collect();
        let page = [rows(&key, &times, &[("v", vec![Some(FieldValue::Float(1.0)); 10_000])])];
        let bytes = stream.batch(&page).unwrap().len();
        assert!(bytes < 2 * 60_000 + 10_000 * 26 + 4096, "{bytes} B");
    }
}
