//! Rows by column, in memory: sorted by element and time, each identity once.
//!
//! Readers, the merge and the writer of runs hand rows on in this form, because a loop over one column
//! costs a fraction of a loop over rows.

use std::ops::Range;

use exacat_model::{Error, ErrorKind, FieldRef, FieldType};

use crate::distinct_texts::DistinctTexts;
use crate::row::{ElementNumber, FieldNumber};

/// Identity of a row: its element and time.
pub type RowKey = (ElementNumber, i64);

/// Adjacent rows of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementRows {
    /// The element.
    pub element: ElementNumber,
    /// Row behind its last.
    pub end: u32,
}

/// Text values. Each distinct text is kept once.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    distinct: DistinctTexts,
    /// Distinct text of each value.
    indices: Vec<u32>,
}

impl Texts {
    /// Makes the column of these distinct texts and indices. None if an index or end is outside.
    pub(crate) fn from_parts(distinct: String, ends: Vec<u32>, indices: Vec<u32>) -> Option<Self> {
        let distinct = DistinctTexts::from_parts(distinct, ends)?;
        let fits = indices.iter().all(|index| (*index as usize) < distinct.len());
        fits.then_some(Texts { distinct, indices })
    }

    /// Returns the number of distinct texts.
    pub fn distinct(&self) -> usize {
        self.distinct.len()
    }

    /// Returns a distinct text by its number.
    pub fn distinct_text(&self, index: u32) -> &str {
        self.distinct.get(index)
    }

    /// Returns the number of the distinct text of each value.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Appends some values of another column.
    fn append(&mut self, from: &Texts, range: Range<usize>) {
        let indices = &from.indices[range];
        if indices.len() < from.distinct() {
            for index in indices {
                let number = self.distinct.number(from.distinct_text(*index));
                self.indices.push(number);
            }
            return;
        }
        // Each distinct text is looked up once.
        let mut numbers = vec![None; from.distinct()];
        for index in indices {
            let number = &mut numbers[*index as usize];
            let number = *number.get_or_insert_with(|| self.distinct.number(from.distinct_text(*index)));
            self.indices.push(number);
        }
    }
}

/// Values of one field, of one type.
#[derive(Clone, Debug)]
pub enum Values {
    /// Floats; bits are kept.
    Float(Vec<f64>),
    /// Signed integers.
    Integer(Vec<i64>),
    /// Unsigned integers.
    Unsigned(Vec<u64>),
    /// Booleans.
    Boolean(Vec<bool>),
    /// Texts.
    Text(Texts),
}

impl Values {
    /// Makes an empty list of a type.
    pub fn of(kind: FieldType) -> Self {
        match kind {
            FieldType::Float => Values::Float(Vec::new()),
            FieldType::Integer => Values::Integer(Vec::new()),
            FieldType::Unsigned => Values::Unsigned(Vec::new()),
            FieldType::Boolean => Values::Boolean(Vec::new()),
            FieldType::Text => Values::Text(Texts::default()),
        }
    }

    /// Returns the type.
    pub fn kind(&self) -> FieldType {
        match self {
            Values::Float(_) => FieldType::Float,
            Values::Integer(_) => FieldType::Integer,
            Values::Unsigned(_) => FieldType::Unsigned,
            Values::Boolean(_) => FieldType::Boolean,
            Values::Text(_) => FieldType::Text,
        }
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            Values::Float(values) => values.len(),
            Values::Integer(values) => values.len(),
            Values::Unsigned(values) => values.len(),
            Values::Boolean(values) => values.len(),
            Values::Text(texts) => texts.indices.len(),
        }
    }

    /// Says whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a value by its place.
    pub fn get(&self, at: usize) -> FieldRef<'_> {
        match self {
            Values::Float(values) => FieldRef::Float(values[at]),
            Values::Integer(values) => FieldRef::Integer(values[at]),
            Values::Unsigned(values) => FieldRef::Unsigned(values[at]),
            Values::Boolean(values) => FieldRef::Boolean(values[at]),
            Values::Text(texts) => FieldRef::Text(texts.distinct_text(texts.indices[at])),
        }
    }

    /// Returns the bytes that the values take in memory, about.
    fn bytes(&self) -> usize {
        match self {
            Values::Float(_) | Values::Integer(_) | Values::Unsigned(_) => 8 * self.len(),
            Values::Boolean(_) => self.len(),
            Values::Text(texts) => texts.distinct.bytes() + 4 * texts.indices.len(),
        }
    }

    fn clear(&mut self) {
        match self {
            Values::Float(values) => values.clear(),
            Values::Integer(values) => values.clear(),
            Values::Unsigned(values) => values.clear(),
            Values::Boolean(values) => values.clear(),
            Values::Text(texts) => *texts = Texts::default(),
        }
    }

    /// Appends a value; false if it has another type.
    #[inline(always)]
    fn push(&mut self, value: FieldRef<'_>) -> bool {
        match (self, value) {
            (Values::Float(values), FieldRef::Float(value)) => values.push(value),
            (Values::Integer(values), FieldRef::Integer(value)) => values.push(value),
            (Values::Unsigned(values), FieldRef::Unsigned(value)) => values.push(value),
            (Values::Boolean(values), FieldRef::Boolean(value)) => values.push(value),
            (Values::Text(texts), FieldRef::Text(text)) => {
                let number = texts.distinct.number(text);
                texts.indices.push(number);
            }
            _ => return false,
        }
        true
    }

    /// Appends a range of other values; false if they have another type.
    fn append(&mut self, from: &Values, range: Range<usize>) -> bool {
        match (self, from) {
            (Values::Float(values), Values::Float(from)) => values.extend_from_slice(&from[range]),
            (Values::Integer(values), Values::Integer(from)) => values.extend_from_slice(&from[range]),
            (Values::Unsigned(values), Values::Unsigned(from)) => values.extend_from_slice(&from[range]),
            (Values::Boolean(values), Values::Boolean(from)) => values.extend_from_slice(&from[range]),
            (Values::Text(texts), Values::Text(from)) => texts.append(from, range),
            _ => return false,
        }
        true
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind()
            && self.len() == other.len()
            && (0..self.len()).all(|at| self.get(at) == other.get(at))
    }
}

/// Returns the number of items at the start for which the condition holds, by doubling steps: the answer
/// is mostly near.
#[inline]
pub(crate) fn near<T>(items: &[T], holds: impl Fn(&T) -> bool) -> usize {
    let mut step = 1;
    while items.get(step).is_some_and(&holds) {
        step *= 2;
    }
    let (start, end) = (step / 2, items.len().min(step));
    start + items[start..end].partition_point(holds)
}

/// Values of one field.
#[derive(Clone, Debug)]
pub struct Column {
    /// The field.
    pub field: FieldNumber,
    /// Row of each value, ascending. None: each row has a value.
    pub rows: Option<Vec<u32>>,
    /// The values.
    pub values: Values,
}

impl Column {
    /// Returns the places of the values of a range of rows.
    pub fn places(&self, rows: &Range<usize>) -> Range<usize> {
        match &self.rows {
            None => rows.clone(),
            Some(of) => {
                let start = of.partition_point(|row| (*row as usize) < rows.start);
                start..start + of[start..].partition_point(|row| (*row as usize) < rows.end)
            }
        }
    }

    /// Returns the value of a row, if it has one.
    pub fn value(&self, row: usize) -> Option<FieldRef<'_>> {
        let place = self.places(&(row..row + 1));
        (!place.is_empty()).then(|| self.values.get(place.start))
    }

    /// Notes the rows of the values so far, because a further row has none.
    fn list_rows(&mut self) -> &mut Vec<u32> {
        let values = self.values.len() as u32;
        self.rows.get_or_insert_with(|| (0..values).collect())
    }
}

/// Rows by column.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    elements: Vec<ElementRows>,
    times: Vec<i64>,
    /// In ascending order of their fields.
    columns: Vec<Column>,
    /// Number of columns that have a value in each row.
    full: usize,
}

impl Columns {
    /// Makes rows of these columns, which the caller has checked: elements and times are sorted, the
    /// last end of an element is the number of rows, and fields ascend.
    pub fn from_parts(elements: Vec<ElementRows>, times: Vec<i64>, columns: Vec<Column>) -> Self {
        let full = columns.iter().filter(|column| column.rows.is_none()).count();
        Columns { elements, times, columns, full }
    }

    /// Removes the columns of fields that are not wanted. Rows stay, also those without a value.
    pub(crate) fn keep_fields(&mut self, is_wanted: impl Fn(FieldNumber) -> bool) {
        self.columns.retain(|column| is_wanted(column.field));
    }

    /// Returns the number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.times.len()
    }

    /// Says whether there is no row.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns the elements, with the ends of their rows.
    pub fn elements(&self) -> &[ElementRows] {
        &self.elements
    }

    /// Returns the times of all rows.
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// Returns the columns, in ascending order of their fields.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the column of a field, if a row has it.
    pub fn column(&self, field: FieldNumber) -> Option<&Column> {
        let at = self.columns.binary_search_by_key(&field, |column| column.field).ok()?;
        self.columns.get(at)
    }

    /// Returns the bytes that the rows take in memory, about.
    pub fn bytes(&self) -> usize {
        let columns = self
            .columns
            .iter()
            .map(|column| column.values.bytes() + column.rows.as_ref().map_or(0, |rows| 4 * rows.len()));
        8 * self.elements.len() + 8 * self.times.len() + columns.sum::<usize>()
    }

    /// Returns the identity of a row.
    pub fn key(&self, row: usize) -> RowKey {
        let element = self.elements.partition_point(|element| element.end as usize <= row);
        (self.elements[element].element, self.times[row])
    }

    /// Returns the identity of the first row.
    pub fn first(&self) -> Option<RowKey> {
        Some((self.elements.first()?.element, *self.times.first()?))
    }

    /// Returns the identity of the last row.
    pub fn last(&self) -> Option<RowKey> {
        Some((self.elements.last()?.element, *self.times.last()?))
    }

    /// Returns the first row from `from` on whose identity is not below `key`.
    pub fn find(&self, from: usize, key: RowKey) -> usize {
        self.find_behind(0, key).max(from)
    }

    /// Returns the first row whose identity is not below `key`. The search begins with an element that is
    /// not behind the key's, by its place.
    pub(crate) fn find_behind(&self, element: usize, key: RowKey) -> usize {
        let element = element + near(&self.elements[element..], |rows| rows.element < key.0);
        let start = if element == 0 { 0 } else { self.elements[element - 1].end as usize };
        match self.elements.get(element) {
            Some(rows) if rows.element == key.0 => {
                start + near(&self.times[start..rows.end as usize], |time| *time < key.1)
            }
            _ => start,
        }
    }

    /// Returns the values of a row, in ascending order of their fields.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (FieldNumber, FieldRef<'_>)> {
        self.columns.iter().filter_map(move |column| Some((column.field, column.value(row)?)))
    }

    /// Returns the place of a field's column for further values. A new column has no value of earlier
    /// rows. The column is mostly the one behind that of the field before, `next`.
    #[inline]
    fn column_for(&mut self, field: FieldNumber, kind: FieldType, next: usize) -> usize {
        match self.columns.get(next) {
            Some(column) if column.field == field => next,
            _ => self.search_column_for(field, kind),
        }
    }

    fn search_column_for(&mut self, field: FieldNumber, kind: FieldType) -> usize {
        self.columns.binary_search_by_key(&field, |column| column.field).unwrap_or_else(|at| {
            let rows = (!self.times.is_empty()).then(Vec::new);
            self.full += usize::from(rows.is_none());
            self.columns.insert(at, Column { field, rows, values: Values::of(kind) });
            at
        })
    }

    fn extend_element(&mut self, element: ElementNumber, end: u32) {
        match self.elements.last_mut() {
            Some(last) if last.element == element => last.end = end,
            _ => self.elements.push(ElementRows { element, end }),
        }
    }

    /// Appends a row, which the caller has in order. Fails if a field has another type than before;
    /// then the rows are no longer usable.
    pub fn push<'v>(
        &mut self,
        (element, time): RowKey,
        values: impl IntoIterator<Item = (FieldNumber, FieldRef<'v>)>,
    ) -> Result<(), Error> {
        let (row, mut full, mut next) = (self.times.len() as u32, 0, 0);
        for (field, value) in values {
            let at = self.column_for(field, value.kind(), next);
            next = at + 1;
            let column = &mut self.columns[at];
            match &mut column.rows {
                Some(rows) => rows.push(row),
                None => full += 1,
            }
            if !column.values.push(value) {
                return Err(conflict(field, column.values.kind(), value.kind()));
            }
        }
        self.times.push(time);
        self.extend_element(element, row + 1);
        self.note_absent(full);
        Ok(())
    }

    /// Appends a range of other rows, which the caller has in order. Fails if a field has another type
    /// than before; then the rows are no longer usable.
    pub fn append(&mut self, from: &Columns, rows: Range<usize>) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let (base, mut full, mut next) = (self.times.len(), 0, 0);
        for column in &from.columns {
            let places = column.places(&rows);
            if places.is_empty() {
                continue;
            }
            let at = self.column_for(column.field, column.values.kind(), next);
            next = at + 1;
            let own = &mut self.columns[at];
            if own.rows.is_none() && places.len() == rows.len() {
                full += 1;
            } else {
                let listed = own.list_rows();
                match &column.rows {
                    None => listed.extend((base..base + rows.len()).map(|row| row as u32)),
                    Some(of) => {
                        let of = &of[places.clone()];
                        listed.extend(of.iter().map(|row| (*row as usize - rows.start + base) as u32));
                    }
                }
            }
            if !own.values.append(&column.values, places) {
                return Err(conflict(column.field, own.values.kind(), column.values.kind()));
            }
        }
        self.times.extend_from_slice(&from.times[rows.clone()]);
        let first = from.elements.partition_point(|element| element.end as usize <= rows.start);
        for element in &from.elements[first..] {
            let end = (element.end as usize).min(rows.end);
            self.extend_element(element.element, (end - rows.start + base) as u32);
            if end == rows.end {
                break;
            }
        }
        self.note_absent(full);
        Ok(())
    }

    /// Lists the rows of columns that had a value in each earlier row, and lack one in the new rows.
    /// `full` columns still have a value in each row.
    fn note_absent(&mut self, full: usize) {
        if full == self.full {
            return;
        }
        for column in &mut self.columns {
            if column.rows.is_none() && column.values.len() < self.times.len() {
                column.list_rows();
            }
        }
        self.full = full;
    }

    /// Removes all rows, and keeps the memory for further ones.
    pub fn clear(&mut self) {
        self.elements.clear();
        self.times.clear();
        for column in &mut self.columns {
            column.rows = None;
            column.values.clear();
        }
        self.full = self.columns.len();
    }

    /// Removes columns without a value, as a use of the same memory before may have left them.
    pub(crate) fn drop_empty_columns(&mut self) {
        self.columns.retain(|column| !column.values.is_empty());
        self.full = self.columns.iter().filter(|column| column.rows.is_none()).count();
    }
}

/// Equal in every row and value, however the columns are laid out.
impl PartialEq for Columns {
    fn eq(&self, other: &Self) -> bool {
        self.elements == other.elements
            && self.times == other.times
            && (0..self.rows()).all(|row| self.row(row).eq(other.row(row)))
    }
}

fn conflict(field: FieldNumber, one: FieldType, other: FieldType) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("field {field} has values of two types, {one} and {other}: check the group with fsck"),
    )
}
