//! Rows of a Parquet file of another program.
//!
//! | column | types |
//! |---|---|
//! | `key`, else `name` or `element` | text: the key of an element; with the others its name, or its key |
//! | `time`, else `timestamp` | a timestamp of any unit, in UTC if it has no zone; a text |
//! | `time_ns` | whole nanoseconds since 1970, which win over `time` |
//! | any other | float, integer, boolean, text; a row without a value leaves it out |
//!
//! The name of a field may end in its type, `NAME:TYPE`, as in the tables that a server answers.
//! Other types are refused: none would come back as it was.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use exacat_model::{Error, FieldType, FieldValue, Result, TimeNs};
use exacat_wire::influx::series_of;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Type as PhysicalType;

use crate::gathered::Gathered;

/// Names of the column with the element, the better first.
const ELEMENT_COLUMNS: [&str; 2] = ["name", "element"];
/// Name of a column with keys, which wins over names.
const KEY_COLUMN: &str = "key";
/// Names of the column with the time, the better first.
const TIME_COLUMNS: [&str; 2] = ["time", "timestamp"];
/// Name of the column with whole nanoseconds.
const TIME_NS_COLUMN: &str = "time_ns";

/// Meaning of the columns of a file.
pub(crate) struct ForeignRows {
    measurement: String,
    element: usize,
    is_key: bool,
    time: Option<usize>,
    time_ns: Option<usize>,
    fields: Vec<(usize, String)>,
    /// Text and key of the last row's element.
    last: Option<(String, String)>,
}

/// Key, time and values of a row.
type ForeignRow<'r> = (&'r str, i64, Vec<(&'r str, FieldValue)>);

/// Returns the key of an element that a file names: the text itself if it has the form of a key, else that of
/// the name.
pub fn key_of_element(measurement: &str, text: &str) -> std::result::Result<String, String> {
    match text {
        "" => Err("a row without an element".to_owned()),
        key if key.contains(',') => Ok(key.to_owned()),
        name => series_of(measurement, &[("element", name)]).map_err(|error| error.to_string()),
    }
}

/// Returns the field of a column: its name without the type that a table of a server has there.
fn field_of(column: &str) -> &str {
    match column.rsplit_once(':') {
        Some((field, kind)) if FieldType::ALL.iter().any(|one| one.name() == kind) => field,
        _ => column,
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8)
}

/// Says whether a field can keep the values of a type.
fn is_kept(kind: &DataType) -> bool {
    use DataType::{Boolean, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    is_text(kind)
        || matches!(
            kind,
            Boolean | Float32 | Float64 | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64
        )
}

impl ForeignRows {
    /// Finds the meaning of the columns.
    pub(crate) fn of(name: &str, metadata: &ArrowReaderMetadata, measurement: &str) -> Result<Self> {
        let columns = metadata.schema().fields();
        let invalid =
            |column: &str, what: String| Err(Error::invalid(format!("{name}: the column {column:?} {what}")));
        let place = |wanted: &str| columns.iter().position(|column| column.name() == wanted);
        let missing = |names: [&str; 2], has: &str| {
            Error::invalid(format!(
                "{name}: there is no column {:?} or {:?} with {has}: rename the column that has it",
                names[0], names[1]
            ))
        };
        // The archive has numbers of elements beside their names.
        let named = ELEMENT_COLUMNS.map(|name| place(name).filter(|at| is_text(columns[*at].data_type())));
        let key = place(KEY_COLUMN).filter(|at| is_text(columns[*at].data_type()));
        let element = match named {
            _ if key.is_some() => key.unwrap_or_default(),
            [Some(_), Some(_)] => {
                return invalid(
                    ELEMENT_COLUMNS[1],
                    "names an element, and so does \"name\": leave one out".to_owned(),
                );
            }
            [Some(at), None] | [None, Some(at)] => at,
            [None, None] => match ELEMENT_COLUMNS.into_iter().find_map(place) {
                Some(at) => {
                    let what =
                        format!("has the type {}: the name of an element is a text", columns[at].data_type());
                    return invalid(columns[at].name(), what);
                }
                None => return Err(missing(ELEMENT_COLUMNS, "names of elements")),
            },
        };
        let time = TIME_COLUMNS.into_iter().find_map(place);
        let time_ns = place(TIME_NS_COLUMN).filter(|at| *columns[*at].data_type() == DataType::Int64);
        if time.is_none() && time_ns.is_none() {
            return Err(missing(TIME_COLUMNS, "times"));
        }
        if let Some(at) = time {
            let column = &columns[at];
            if metadata.parquet_schema().column(at).physical_type() == PhysicalType::INT96 {
                let what = "is a time of 96 bits, whose range is not checked: write it as a timestamp in \
                            microseconds (Spark: spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS)";
                return invalid(column.name(), what.to_owned());
            }
            match column.data_type() {
                DataType::Timestamp(..) => {}
                kind if is_text(kind) => {}
                kind => {
                    let what = format!(
                        "has the type {kind}, which has no unit of time: write it as a timestamp, or name it \
                         \"time_ns\" if it is whole nanoseconds since 1970"
                    );
                    return invalid(column.name(), what);
                }
            }
        }
        let names = if key.is_some() { place(ELEMENT_COLUMNS[0]) } else { None };
        let used = [Some(element), time, time_ns, place(ELEMENT_COLUMNS[1]), names];
        let mut fields = Vec::new();
        for (at, column) in columns.iter().enumerate().filter(|(at, _)| !used.contains(&Some(*at))) {
            if !is_kept(column.data_type()) {
                let what = format!(
                    "has the type {}, which no field keeps exactly: write it as float, integer, boolean or text, \
                     or leave it out",
                    column.data_type()
                );
                return invalid(column.name(), what);
            }
            fields.push((at, field_of(column.name()).to_owned()));
        }
        if fields.is_empty() {
            return Err(Error::invalid(format!(
                "{name}: there is no column with values beside elements and times"
            )));
        }
        let (measurement, is_key) = (measurement.to_owned(), key.is_some());
        Ok(ForeignRows { measurement, element, is_key, time, time_ns, fields, last: None })
    }

    /// Adds the rows of a batch from one on, until they are full. Returns the number of rows.
    pub(crate) fn add(
        &mut self,
        batch: &RecordBatch,
        from: usize,
        number: u64,
        rows: &mut Gathered,
    ) -> Result<usize> {
        for row in from..batch.num_rows() {
            let number = number + (row - from) as u64;
            let found = self.find_key(batch, row).and_then(|()| self.row(batch, row));
            match found {
                Ok((key, time, values)) => rows.add(key, time, values.into_iter()),
                Err(reason) => rows.refuse(number, reason),
            }
            if rows.is_full() {
                return Ok(row + 1 - from);
            }
        }
        Ok(batch.num_rows() - from)
    }

    /// Finds the key of a row's element, which is mostly that of the row before.
    fn find_key(&mut self, batch: &RecordBatch, row: usize) -> std::result::Result<(), String> {
        let element = text(batch.column(self.element), row).unwrap_or_default();
        if self.last.as_ref().is_none_or(|(last, _)| last != element) {
            let key = match self.is_key && !element.is_empty() {
                true => element.to_owned(),
                false => key_of_element(&self.measurement, element)?,
            };
            self.last = Some((element.to_owned(), key));
        }
        Ok(())
    }

    /// Returns the key that was found last, and the time and values of a row.
    fn row(&self, batch: &RecordBatch, row: usize) -> std::result::Result<ForeignRow<'_>, String> {
        let Some((_, key)) = &self.last else { return Err("a row without an element".to_owned()) };
        let of_ns = self.time_ns.map(|at| batch.column(at)).filter(|column| column.is_valid(row));
        let time = match (of_ns, self.time.map(|at| batch.column(at))) {
            (Some(column), _) => column.as_primitive::<Int64Type>().value(row),
            (None, Some(column)) => time(column, row)?,
            (None, None) => return Err("a row without a time".to_owned()),
        };
        let mut values = Vec::new();
        for (at, name) in &self.fields {
            let column = batch.column(*at);
            if column.is_valid(row)
                && let Some(value) = value(column, row)
            {
                values.push((name.as_str(), value));
            }
        }
        if values.is_empty() { Err("a row without a value".to_owned()) } else { Ok((key, time, values)) }
    }
}

fn text(column: &ArrayRef, row: usize) -> Option<&str> {
    match column.data_type() {
        _ if column.is_null(row) => None,
        DataType::Utf8 => Some(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value(row)),
        _ => None,
    }
}

fn time(column: &ArrayRef, row: usize) -> std::result::Result<i64, String> {
    if column.is_null(row) {
        return Err("a row without a time".to_owned());
    }
    let (count, nanoseconds) = match column.data_type() {
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            (column.as_primitive::<TimestampMillisecondType>().value(row), 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            (column.as_primitive::<TimestampMicrosecondType>().value(row), 1000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            (column.as_primitive::<TimestampNanosecondType>().value(row), 1)
        }
        _ => {
            let text = text(column, row).ok_or("a time of an unknown type")?;
            return TimeNs::parse(text).map(|TimeNs(time)| time).map_err(|error| error.message);
        }
    };
    count.checked_mul(nanoseconds).ok_or_else(|| {
        format!(
            "the time {count} (units of {nanoseconds} ns since 1970) is not between the years 1677 and 2262"
        )
    })
}

fn value(column: &ArrayRef, row: usize) -> Option<FieldValue> {
    Some(match column.data_type() {
        DataType::Float64 => FieldValue::Float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => FieldValue::Float(column.as_primitive::<Float32Type>().value(row).into()),
        DataType::Int8 => FieldValue::Integer(column.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => FieldValue::Integer(column.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => FieldValue::Integer(column.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => FieldValue::Integer(column.as_primitive::<Int64Type>().value(row)),
        // Smaller ones fit into an integer with a sign, as qualities are.
        DataType::UInt8 => FieldValue::Integer(column.as_primitive::<UInt8Type>().value(row).into()),
        DataType::UInt16 => FieldValue::Integer(column.as_primitive::<UInt16Type>().value(row).into()),
        DataType::UInt32 => FieldValue::Integer(column.as_primitive::<UInt32Type>().value(row).into()),
        DataType::UInt64 => FieldValue::Unsigned(column.as_primitive::<UInt64Type>().value(row)),
        DataType::Boolean => FieldValue::Boolean(column.as_boolean().value(row)),
        _ => FieldValue::Text(text(column, row)?.into()),
    })
}
