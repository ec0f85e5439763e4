//! Makes records of rows: the columns of a file.
//!
//! A row whose fields have a value in the sense of [`exacat_history::naming`] is one record, with its
//! other fields as text. Another row is a record for each of its fields. Either way the quality has a column.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Decimal128Array, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use exacat_history::columns::RowKey;
use exacat_history::naming::{is_quality, name_of, value_field};
use exacat_history::row::{ElementNumber, FieldNumber};
use exacat_history::{NamedGroup, Names};
use exacat_model::element::QUALITY_FIELDS;
use exacat_model::{Error, ErrorKind, FieldRef, FieldType, Result};

use crate::other_fields::put_field;
use crate::schema;
use crate::sum::Values;

/// Largest integer up to which a float has each integer.
const EXACT_MAX: u64 = 1 << 53;

/// Returns the field of quality of a measurement: the first by convention that is a signed integer.
pub(crate) fn quality_of(names: &Names, measurement: u32) -> Option<FieldNumber> {
    QUALITY_FIELDS.iter().find_map(|name| {
        let number = names.field(measurement, name)?;
        (names.fields()[number as usize].kind == FieldType::Integer).then_some(number)
    })
}

/// Distribution of a row's fields to columns, by the places of the fields in the row.
#[derive(Clone)]
struct Plan {
    fields: Vec<FieldNumber>,
    value: Option<usize>,
    quality: Option<usize>,
    others: Vec<usize>,
}

impl Plan {
    fn of(names: &Names, quality: Option<FieldNumber>, values: &Values<'_>) -> Self {
        let name = |(field, _): &(FieldNumber, FieldRef<'_>)| &*names.fields()[*field as usize].name;
        let quality = values.iter().position(|(field, _)| Some(*field) == quality);
        // A quality of another type is a field like others, and never the value of a row.
        let value = value_field(values.iter().map(name)).filter(|place| !is_quality(name(&values[*place])));
        let taken = [value, quality];
        let others = (0..values.len()).filter(|place| !taken.contains(&Some(*place))).collect();
        let fields = values.iter().map(|(field, _)| *field).collect();
        Plan { fields, value, quality, others }
    }
}

/// Distinct texts of a column, by number.
#[derive(Default)]
struct Texts {
    keys: Vec<Option<i32>>,
    distinct: Vec<Box<str>>,
}

impl Texts {
    fn define(&mut self, text: &str) -> i32 {
        self.distinct.push(text.into());
        self.distinct.len() as i32 - 1
    }

    fn array(&mut self) -> Result<ArrayRef> {
        let (keys, distinct) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.distinct));
        let distinct: StringArray = distinct.iter().map(|text| Some(&**text)).collect();
        let array = DictionaryArray::try_new(Int32Array::from(keys), Arc::new(distinct));
        Ok(Arc::new(array.map_err(|error| internal(&error))?))
    }
}

fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("internal error: records of the archive: {error}"))
}

/// Records of some rows.
#[derive(Default)]
pub(crate) struct Records {
    elements: Vec<i64>,
    names: Texts,
    series: Texts,
    times: Vec<i64>,
    times_ns: Vec<Option<i64>>,
    fields: Texts,
    values: Vec<Option<f64>>,
    integers: Vec<Option<i128>>,
    texts: Vec<Option<Box<str>>>,
    qualities: Vec<Option<i64>>,
    others: Vec<Option<Box<str>>>,
    /// Numbers of the present element's name and series.
    element: Option<(ElementNumber, i32, Option<i32>)>,
    /// Number of the name of each field.
    field_keys: HashMap<FieldNumber, i32>,
    /// Distributions by the fields of rows.
    plans: HashMap<Box<[FieldNumber]>, Plan>,
    /// Distribution of the last row: most rows are like the one before.
    last: Option<Plan>,
    /// Field of quality of each measurement: what the file says of it is true of all its rows.
    pub qualities_of: BTreeMap<u32, Option<FieldNumber>>,
    /// Fields of all rows of the file.
    pub known_fields: BTreeMap<FieldNumber, ()>,
    bytes: usize,
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.elements.len()
    }

    /// Returns the bytes of texts so far.
    pub(crate) fn text_bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, names: &Names, (element, time): RowKey, values: &Values<'_>) {
        let (name, series) = match self.element {
            Some((of, name, series)) if of == element => (name, series),
            _ => self.begin_element(names, element),
        };
        let plan = self.plan(names, element, values);
        let quality = plan.quality.and_then(|place| match values[place].1 {
            FieldRef::Integer(value) => Some(value),
            _ => None,
        });
        let is_one = plan.value.is_some() || plan.others.is_empty();
        let singles: &[usize] = if is_one { &[] } else { &plan.others };
        let places = plan.value.into_iter().chain(singles.iter().copied());
        let mut count = 0;
        for place in places {
            self.push_value(names, values[place]);
            count += 1;
        }
        if count == 0 {
            self.fields.keys.push(None);
            self.values.push(None);
            self.integers.push(None);
            self.texts.push(None);
            count = 1;
        }
        let others = (plan.value.is_some() && !plan.others.is_empty()).then(|| {
            let mut text = String::new();
            for place in &plan.others {
                let (field, value) = values[*place];
                put_field(&mut text, &names.fields()[field as usize].name, value);
            }
            text.push('}');
            self.bytes += text.len();
            text.into_boxed_str()
        });
        let (micros, rest) = (time.div_euclid(1000), time.rem_euclid(1000));
        for _ in 0..count {
            self.elements.push(i64::from(element));
            self.names.keys.push(Some(name));
            self.series.keys.push(series);
            self.times.push(micros);
            self.times_ns.push((rest != 0).then_some(time));
            self.qualities.push(quality);
        }
        self.others.resize(self.others.len() + count, others);
        self.last = Some(plan);
    }

    fn begin_element(&mut self, names: &Names, element: ElementNumber) -> (i32, Option<i32>) {
        let key = names.key(element);
        let name = name_of(key);
        let number = self.names.define(&name);
        let series = (name != key).then(|| self.series.define(key));
        self.element = Some((element, number, series));
        self.bytes += key.len();
        (number, series)
    }

    fn plan(&mut self, names: &Names, element: ElementNumber, values: &Values<'_>) -> Plan {
        if let Some(plan) = self.last.take()
            && plan.fields.iter().eq(values.iter().map(|(field, _)| field))
        {
            return plan;
        }
        let fields: Box<[FieldNumber]> = values.iter().map(|(field, _)| *field).collect();
        if let Some(plan) = self.plans.get(&fields) {
            return plan.clone();
        }
        let measurement = names.measurement_of(element);
        let quality = *self.qualities_of.entry(measurement).or_insert_with(|| quality_of(names, measurement));
        let plan = Plan::of(names, quality, values);
        self.known_fields.extend(fields.iter().map(|field| (*field, ())));
        self.plans.insert(fields, plan.clone());
        plan
    }

    fn push_value(&mut self, names: &Names, (field, value): (FieldNumber, FieldRef<'_>)) {
        let key = match self.field_keys.get(&field) {
            Some(key) => *key,
            None => {
                let key = self.fields.define(&names.fields()[field as usize].name);
                self.field_keys.insert(field, key);
                key
            }
        };
        self.fields.keys.push(Some(key));
        let (mut number, mut integer, mut text) = (None, None, None);
        match value {
            FieldRef::Float(value) => number = Some(value),
            FieldRef::Integer(value) => {
                number = Some(value as f64);
                integer = (value.unsigned_abs() > EXACT_MAX).then_some(i128::from(value));
            }
            FieldRef::Unsigned(value) => {
                number = Some(value as f64);
                integer = (value > EXACT_MAX).then_some(i128::from(value));
            }
            FieldRef::Boolean(value) => number = Some(f64::from(u8::from(value))),
            FieldRef::Text(value) => {
                self.bytes += value.len();
                text = Some(value.into());
            }
        }
        self.values.push(number);
        self.integers.push(integer);
        self.texts.push(text);
    }

    /// Takes the records.
    pub(crate) fn take(&mut self) -> Result<RecordBatch> {
        (self.element, self.bytes) = (None, 0);
        self.field_keys.clear();
        let integers = Decimal128Array::from(std::mem::take(&mut self.integers))
            .with_precision_and_scale(schema::INTEGER_DIGITS, 0)
            .map_err(|error| internal(&error))?;
        let strings =
            |texts: Vec<Option<Box<str>>>| -> StringArray { texts.iter().map(Option::as_deref).collect() };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(std::mem::take(&mut self.elements))),
            self.names.array()?,
            self.series.array()?,
            Arc::new(TimestampMicrosecondArray::from(std::mem::take(&mut self.times)).with_timezone("UTC")),
            Arc::new(Int64Array::from(std::mem::take(&mut self.times_ns))),
            self.fields.array()?,
            Arc::new(Float64Array::from(std::mem::take(&mut self.values))),
            Arc::new(integers),
            Arc::new(strings(std::mem::take(&mut self.texts))),
            Arc::new(Int64Array::from(std::mem::take(&mut self.qualities))),
            Arc::new(strings(std::mem::take(&mut self.others))),
        ];
        RecordBatch::try_new(schema::arrow(), columns).map_err(|error| internal(&error))
    }

    /// Returns the names and types of the fields, and the field of quality of each measurement, as JSON.
    pub(crate) fn metadata(&self, group: &dyn NamedGroup) -> [(&'static str, String); 3] {
        let names = group.names();
        let field = |number: &FieldNumber| {
            let of = &names.fields()[*number as usize];
            let measurement = &*names.measurements()[of.measurement as usize];
            serde_json::json!({"measurement": measurement, "name": of.name, "type": of.kind.to_string()})
        };
        let fields: Vec<serde_json::Value> = self.known_fields.keys().map(field).collect();
        let quality = self.qualities_of.iter().filter_map(|(measurement, field)| {
            let name = names.measurements()[*measurement as usize].to_string();
            Some((name, serde_json::Value::from(&*names.fields()[(*field)? as usize].name)))
        });
        let quality: serde_json::Map<String, serde_json::Value> = quality.collect();
        [
            (schema::METADATA_VERSION, schema::VERSION.to_owned()),
            (schema::METADATA_FIELDS, serde_json::Value::from(fields).to_string()),
            (schema::METADATA_QUALITY, serde_json::Value::from(quality).to_string()),
        ]
    }
}
