//! Makes records of rows: the columns of a file.
//!
//! A row whose fields have a value in the sense of [`exacat_history::naming`] is one record, with its
//! other fields as text. Another row is a record for each of its fields. Either way the quality has a column.
//! Adjacent rows with values of the same fields are added together, column by column.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, StringBuilder};
use arrow_array::{Array, Decimal128Array, Float64Array, Int64Array, TimestampMicrosecondArray};
use arrow_buffer::{NullBuffer, NullBufferBuilder};
use exacat_history::columns::{Column, Columns, Values};
use exacat_history::naming::{is_quality, name_of, value_field};
use exacat_history::row::{ElementNumber, FieldNumber};
use exacat_history::{NamedGroup, Names};
use exacat_model::element::QUALITY_FIELDS;
use exacat_model::{FieldType, Result};

use crate::other_fields::put_field;
use crate::repeated_texts::RepeatedTexts;
use crate::row_groups::StoredColumn;
use crate::schema::{self, internal};
use crate::stretches::{ColumnPlace, each_stretch};

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
    fn of(names: &Names, quality: Option<FieldNumber>, fields: &[FieldNumber]) -> Self {
        let name = |field: &FieldNumber| &*names.fields()[*field as usize].name;
        let quality = fields.iter().position(|field| Some(*field) == quality);
        // A quality of another type is a field like others, and never the value of a row.
        let value = value_field(fields.iter().map(name)).filter(|place| !is_quality(name(&fields[*place])));
        let taken = [value, quality];
        let others = (0..fields.len()).filter(|place| !taken.contains(&Some(*place))).collect();
        Plan { fields: fields.to_vec(), value, quality, others }
    }

    /// Says whether a row is a record for each of its other fields.
    fn is_of_singles(&self) -> bool {
        self.value.is_none() && !self.others.is_empty()
    }
}

/// Values of a column, some of which are null.
#[derive(Default)]
struct Optional<T> {
    values: Vec<T>,
    valid: Option<NullBufferBuilder>,
}

impl<T: Copy + Default> Optional<T> {
    fn valid(&mut self) -> &mut NullBufferBuilder {
        self.valid.get_or_insert_with(|| NullBufferBuilder::new(schema::ROW_GROUP_ROWS))
    }

    fn extend(&mut self, values: impl Iterator<Item = T>) {
        let before = self.values.len();
        self.values.extend(values);
        let added = self.values.len() - before;
        self.valid().append_n_non_nulls(added);
    }

    fn extend_nulls(&mut self, count: usize) {
        self.values.resize(self.values.len() + count, T::default());
        self.valid().append_n_nulls(count);
    }

    fn extend_some(&mut self, values: impl Iterator<Item = Option<T>>) {
        for value in values {
            self.values.push(value.unwrap_or_default());
            self.valid().append(value.is_some());
        }
    }

    fn take(&mut self) -> (Vec<T>, Option<NullBuffer>) {
        let valid = self.valid.take().and_then(|mut valid| valid.finish());
        (std::mem::take(&mut self.values), valid)
    }
}

/// Name and series of an element among the distinct texts.
#[derive(Clone, Copy)]
struct ElementKeys {
    element: ElementNumber,
    name: u32,
    series: Option<u32>,
}

/// Records of some rows.
#[derive(Default)]
pub(crate) struct Records {
    elements: Vec<i64>,
    names: RepeatedTexts,
    series: RepeatedTexts,
    times: Vec<i64>,
    times_ns: Optional<i64>,
    fields: RepeatedTexts,
    values: Optional<f64>,
    integers: Optional<i128>,
    texts: StringBuilder,
    qualities: Optional<i64>,
    others: StringBuilder,
    /// The present element.
    element: Option<ElementKeys>,
    /// Number of the name of each field.
    field_keys: HashMap<FieldNumber, u32>,
    /// Distributions by the fields of rows.
    plans: HashMap<Box<[FieldNumber]>, Arc<Plan>>,
    /// Distribution of the last rows: most rows are like those before.
    last: Option<Arc<Plan>>,
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

    /// Adds rows.
    pub(crate) fn add(&mut self, names: &Names, columns: &Columns) -> Result<()> {
        let mut fields = Vec::new();
        // Place of the element of a stretch's first row.
        let mut at = 0;
        each_stretch(columns, |rows, present| {
            fields.clear();
            fields.extend(present.iter().map(|(column, _)| columns.columns()[*column].field));
            let elements = columns.elements();
            while elements[at].end as usize <= rows.start {
                at += 1;
            }
            let plan = self.plan(names, elements[at].element, &fields);
            let each = if plan.is_of_singles() { plan.others.len() } else { 1 };
            let mut start = rows.start;
            for of in &elements[at..] {
                let end = rows.end.min(of.end as usize);
                self.add_element(names, of.element, (end - start) * each);
                start = end;
                if start == rows.end {
                    break;
                }
            }
            self.add_times(&columns.times()[rows.clone()], each);
            let quality = plan.quality.map(|place| present[place]);
            self.add_qualities(columns, quality, (rows.len(), each));
            match plan.is_of_singles() {
                true => {
                    for row in 0..rows.len() {
                        for (column, first) in plan.others.iter().map(|place| present[*place]) {
                            self.add_values(names, &columns.columns()[column], first + row..first + row + 1);
                        }
                    }
                    self.others.append_nulls(rows.len() * each);
                }
                false => {
                    match plan.value.map(|place| present[place]) {
                        Some((column, first)) => {
                            self.add_values(names, &columns.columns()[column], first..first + rows.len());
                        }
                        None => self.add_no_values(rows.len()),
                    }
                    let others: Vec<ColumnPlace> = plan.others.iter().map(|place| present[*place]).collect();
                    self.add_others(names, columns, &others, rows.len());
                }
            }
            self.last = Some(plan);
            Ok(())
        })
    }

    fn add_element(&mut self, names: &Names, element: ElementNumber, count: usize) {
        let keys = match self.element {
            Some(keys) if keys.element == element => keys,
            _ => {
                let key = names.key(element);
                let name = name_of(key);
                self.bytes += key.len();
                // No two elements have one key. Elements of several measurements may have one name.
                let (name, series) = match name == key {
                    true => (self.names.add(key), None),
                    false => (self.names.number(&name), Some(self.series.add(key))),
                };
                *self.element.insert(ElementKeys { element, name, series })
            }
        };
        self.elements.resize(self.elements.len() + count, i64::from(element));
        self.names.extend(Some(keys.name), count);
        self.series.extend(keys.series, count);
    }

    /// Adds the times of rows, each so many times.
    fn add_times(&mut self, times: &[i64], each: usize) {
        let repeated = || times.iter().flat_map(|time| std::iter::repeat_n(*time, each));
        match each {
            1 => self.times.extend(times.iter().map(|time| time.div_euclid(1000))),
            _ => self.times.extend(repeated().map(|time| time.div_euclid(1000))),
        }
        match times.iter().all(|time| time % 1000 == 0) {
            true => self.times_ns.extend_nulls(times.len() * each),
            false => self.times_ns.extend_some(repeated().map(|time| (time % 1000 != 0).then_some(time))),
        }
    }

    /// Adds the quality of rows, each so many times.
    fn add_qualities(
        &mut self,
        columns: &Columns,
        quality: Option<ColumnPlace>,
        (rows, each): (usize, usize),
    ) {
        match quality.map(|(column, first)| (&columns.columns()[column].values, first)) {
            Some((Values::Integer(values), first)) => {
                let values = values[first..first + rows].iter();
                self.qualities.extend(values.flat_map(|value| std::iter::repeat_n(*value, each)));
            }
            _ => self.qualities.extend_nulls(rows * each),
        }
    }

    fn plan(&mut self, names: &Names, element: ElementNumber, fields: &[FieldNumber]) -> Arc<Plan> {
        if let Some(plan) = self.last.take()
            && plan.fields == fields
        {
            return plan;
        }
        if let Some(plan) = self.plans.get(fields) {
            return Arc::clone(plan);
        }
        let measurement = names.measurement_of(element);
        let quality = *self.qualities_of.entry(measurement).or_insert_with(|| quality_of(names, measurement));
        let plan = Arc::new(Plan::of(names, quality, fields));
        self.known_fields.extend(fields.iter().map(|field| (*field, ())));
        self.plans.insert(fields.into(), Arc::clone(&plan));
        plan
    }

    /// Adds records without a value.
    fn add_no_values(&mut self, count: usize) {
        self.fields.extend(None, count);
        self.values.extend_nulls(count);
        self.integers.extend_nulls(count);
        self.texts.append_nulls(count);
    }

    /// Adds some values of a field.
    fn add_values(&mut self, names: &Names, column: &Column, places: Range<usize>) {
        let key = match self.field_keys.get(&column.field) {
            Some(key) => *key,
            None => {
                let key = self.fields.number(&names.fields()[column.field as usize].name);
                self.field_keys.insert(column.field, key);
                key
            }
        };
        let count = places.len();
        self.fields.extend(Some(key), count);
        let is_large = |size: u64| size > EXACT_MAX;
        match &column.values {
            Values::Float(values) => self.values.extend(values[places].iter().copied()),
            Values::Integer(values) => {
                let values = &values[places];
                self.values.extend(values.iter().map(|value| *value as f64));
                if values.iter().any(|value| is_large(value.unsigned_abs())) {
                    let large = |value: &i64| is_large(value.unsigned_abs()).then_some(i128::from(*value));
                    self.integers.extend_some(values.iter().map(large));
                }
            }
            Values::Unsigned(values) => {
                let values = &values[places];
                self.values.extend(values.iter().map(|value| *value as f64));
                if values.iter().any(|value| is_large(*value)) {
                    let large = |value: &u64| is_large(*value).then_some(i128::from(*value));
                    self.integers.extend_some(values.iter().map(large));
                }
            }
            Values::Boolean(values) => {
                self.values.extend(values[places].iter().map(|value| f64::from(u8::from(*value))));
            }
            Values::Text(texts) => {
                self.values.extend_nulls(count);
                for index in &texts.indices()[places] {
                    let text = texts.distinct_text(*index);
                    self.bytes += text.len();
                    self.texts.append_value(text);
                }
            }
        }
        let rows = self.values.values.len();
        self.integers.extend_nulls(rows - self.integers.values.len());
        self.texts.append_nulls(rows - self.texts.len());
    }

    /// Adds the other fields of rows as texts.
    fn add_others(&mut self, names: &Names, columns: &Columns, others: &[ColumnPlace], rows: usize) {
        if others.is_empty() {
            self.others.append_nulls(rows);
            return;
        }
        let mut text = String::new();
        for row in 0..rows {
            text.clear();
            for (column, first) in others {
                let column = &columns.columns()[*column];
                let name = &names.fields()[column.field as usize].name;
                put_field(&mut text, name, column.values.get(first + row));
            }
            text.push('}');
            self.bytes += text.len();
            self.others.append_value(&text);
        }
    }

    /// Passes the columns of the records to `write`, in the order of the schema, and removes the records.
    pub(crate) fn take(&mut self, write: impl FnOnce(&[StoredColumn<'_>]) -> Result<()>) -> Result<()> {
        let (times_ns, ns_valid) = self.times_ns.take();
        let (values, values_valid) = self.values.take();
        let (integers, integers_valid) = self.integers.take();
        let (qualities, qualities_valid) = self.qualities.take();
        let times = TimestampMicrosecondArray::from(std::mem::take(&mut self.times)).with_timezone("UTC");
        let integers = Decimal128Array::new(integers.into(), integers_valid)
            .with_precision_and_scale(schema::INTEGER_DIGITS, 0)
            .map_err(|error| internal(&error))?;
        fn values_of<'t>(array: impl Array + 'static) -> StoredColumn<'t> {
            StoredColumn::Values(Arc::new(array))
        }
        write(&[
            values_of(Int64Array::from(std::mem::take(&mut self.elements))),
            StoredColumn::Texts(&self.names),
            StoredColumn::Texts(&self.series),
            values_of(times),
            values_of(Int64Array::new(times_ns.into(), ns_valid)),
            StoredColumn::Texts(&self.fields),
            values_of(Float64Array::new(values.into(), values_valid)),
            values_of(integers),
            values_of(self.texts.finish()),
            values_of(Int64Array::new(qualities.into(), qualities_valid)),
            values_of(self.others.finish()),
        ])?;
        for texts in [&mut self.names, &mut self.series, &mut self.fields] {
            texts.clear();
        }
        (self.element, self.bytes) = (None, 0);
        self.field_keys.clear();
        Ok(())
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
