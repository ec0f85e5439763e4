//! Names of a group: measurements, fields, shapes and elements, each numbered at first sight.
//!
//! Numbers count from 0 without gap, and are never given again. A new name is pending until the
//! committer has taken its definition for the log. The committer writes all pending definitions before
//! the rows of a commit group, so the log has the definition of a name before any row with it.

use std::collections::HashMap;

use exacat_model::{Error, ErrorKind, FieldType, Result};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::item::{GroupId, Item, MeasurementNumber};
use crate::limits::{FIELDS_MAX, MEASUREMENTS_MAX, NAME_BYTES_LEAST, NAME_BYTES_OF_ELEMENT, SHAPES_MAX};
use crate::naming::name_of;
use crate::row::{ElementNumber, Field, FieldNumber, ShapeNumber, Shapes};

/// A field with its name: a column of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedField {
    /// Measurement that it belongs to.
    pub measurement: MeasurementNumber,
    /// Its name, as clients send it.
    pub name: Box<str>,
    /// Type of all its values.
    pub kind: FieldType,
}

/// Bytes of one piece of the keys.
const PIECE_BYTES: usize = 1 << 20;

/// Keys of elements, packed. A piece never moves, so growth copies nothing.
#[derive(Default)]
struct Keys {
    pieces: Vec<Vec<u8>>,
    /// Place of each key: piece, offset, length.
    places: Vec<(u32, u32, u32)>,
}

impl Keys {
    fn get(&self, number: ElementNumber) -> &str {
        // Only whole texts are added.
        std::str::from_utf8(self.bytes(number)).unwrap_or_default()
    }

    fn bytes(&self, number: ElementNumber) -> &[u8] {
        let Some((piece, offset, length)) = self.places.get(number as usize) else { return &[] };
        &self.pieces[*piece as usize][*offset as usize..][..*length as usize]
    }

    fn push(&mut self, key: &str) {
        let fits = |piece: &Vec<u8>| piece.len() + key.len() <= piece.capacity();
        if !self.pieces.last().is_some_and(fits) {
            self.pieces.push(Vec::with_capacity(PIECE_BYTES.max(key.len())));
        }
        let at = self.pieces.len() - 1;
        let piece = &mut self.pieces[at];
        self.places.push((at as u32, piece.len() as u32, key.len() as u32));
        piece.extend_from_slice(key.as_bytes());
    }
}

/// Names of one group.
pub struct Names {
    group: GroupId,
    measurements: Vec<Box<str>>,
    measurement_numbers: HashMap<Box<str>, MeasurementNumber>,
    fields: Vec<NamedField>,
    field_numbers: HashMap<(MeasurementNumber, Box<str>), FieldNumber>,
    shapes: Vec<Box<[Field]>>,
    shape_numbers: HashMap<Box<[FieldNumber]>, ShapeNumber>,
    keys: Keys,
    /// Measurement of each element.
    element_measurements: Vec<MeasurementNumber>,
    element_numbers: Numbers,
    /// Elements with a name that is not their key, by the hash of the name. Several may have one name.
    named: Numbers,
    /// Encoded definitions that the log does not have yet.
    pending: Vec<u8>,
    /// Bytes of all names, and of the numbers in shapes.
    bytes: usize,
}

/// Returns the bytes of names that a group may have, by the elements that it may have.
pub(crate) fn name_bytes_max(elements_max: u32) -> usize {
    NAME_BYTES_LEAST.max(elements_max as usize * NAME_BYTES_OF_ELEMENT)
}

/// Parts of [`Numbers`], each of which grows by itself.
const PARTS: usize = 64;

/// Elements by the hash of a text of theirs. Writers wait while a table grows, so there are many small ones,
/// and an entry keeps its hash: to read a million texts again takes a tenth of a second.
struct Numbers([HashTable<(u32, ElementNumber)>; PARTS]);

impl Default for Numbers {
    fn default() -> Self {
        Numbers(std::array::from_fn(|_| HashTable::new()))
    }
}

impl Numbers {
    /// Returns the part of a text, and its hash there.
    fn place(text: &[u8]) -> (usize, u32) {
        let hash = xxh3_64(text);
        ((hash >> 32) as usize % PARTS, hash as u32)
    }

    /// Fills the bits of a table's hash, of which the upper ones count as well.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn add(&mut self, text: &[u8], number: ElementNumber) {
        let (part, hash) = Self::place(text);
        self.0[part].insert_unique(Self::spread(hash), (hash, number), |(hash, _)| Self::spread(*hash));
    }

    /// Returns the elements whose text may be this one.
    fn of(&self, text: &[u8]) -> impl Iterator<Item = ElementNumber> {
        let (part, hash) = Self::place(text);
        let found = self.0[part].iter_hash(Self::spread(hash));
        found.filter(move |(of, _)| *of == hash).map(|(_, number)| *number)
    }
}

/// Refusal of a new name, because the group has as many as it may.
fn full(what: &str, max: usize) -> Error {
    Error::limit(what, max + 1, max)
}

fn gap(what: &str, number: u32, next: usize) -> Error {
    let what = format!("{what} {number} is defined where number {next} should be: a definition is missing");
    Error::new(ErrorKind::Corrupt, what)
}

impl Names {
    /// Creates the names of a new group.
    pub fn new(group: GroupId) -> Self {
        Names {
            group,
            measurements: Vec::new(),
            measurement_numbers: HashMap::new(),
            fields: Vec::new(),
            field_numbers: HashMap::new(),
            shapes: Vec::new(),
            shape_numbers: HashMap::new(),
            keys: Keys::default(),
            element_measurements: Vec::new(),
            element_numbers: Numbers::default(),
            named: Numbers::default(),
            pending: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the number of elements.
    pub fn element_count(&self) -> usize {
        self.element_measurements.len()
    }

    /// Returns the bytes of all names, and of the numbers in sets of fields.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how full the names of a group are, in percent of the elements and bytes that it may have.
    pub(crate) fn fullness(&self, elements_max: u32) -> u64 {
        let percent = |is: usize, max: usize| is as u64 * 100 / max.max(1) as u64;
        let bytes = percent(self.bytes, name_bytes_max(elements_max));
        bytes.max(percent(self.element_count(), elements_max as usize))
    }

    /// Returns the key of an element.
    pub fn key(&self, number: ElementNumber) -> &str {
        self.keys.get(number)
    }

    /// Returns the measurement of an element.
    pub fn measurement_of(&self, number: ElementNumber) -> MeasurementNumber {
        self.element_measurements.get(number as usize).copied().unwrap_or_default()
    }

    /// Returns the elements of a measurement.
    pub fn elements_of(&self, measurement: MeasurementNumber) -> impl Iterator<Item = ElementNumber> {
        let of = self.element_measurements.iter().enumerate();
        of.filter(move |(_, number)| **number == measurement).map(|(element, _)| element as u32)
    }

    /// Returns the element of a key.
    pub fn element(&self, key: &[u8]) -> Option<ElementNumber> {
        self.element_numbers.of(key).find(|number| self.keys.bytes(*number) == key)
    }

    /// Returns the elements of a name or key, ascending.
    pub fn named(&self, name: &str) -> Vec<ElementNumber> {
        let is_named = |number: &ElementNumber| name_of(self.keys.get(*number)) == name;
        let mut found: Vec<ElementNumber> = self.named.of(name.as_bytes()).filter(is_named).collect();
        found.extend(self.element(name.as_bytes()));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the fields of a shape.
    pub(crate) fn fields_of(&self, shape: ShapeNumber) -> &[Field] {
        Shapes::fields(self, shape).unwrap_or_default()
    }

    /// Returns the names of the measurements, by their number.
    pub fn measurements(&self) -> &[Box<str>] {
        &self.measurements
    }

    /// Returns the number of a measurement.
    pub fn measurement(&self, name: &str) -> Option<MeasurementNumber> {
        self.measurement_numbers.get(name).copied()
    }

    /// Returns the fields, by their number.
    pub fn fields(&self) -> &[NamedField] {
        &self.fields
    }

    /// Returns the number of a field.
    pub fn field(&self, measurement: MeasurementNumber, name: &str) -> Option<FieldNumber> {
        // The map owns its keys, and looking up a pair needs one.
        self.field_numbers.get(&(measurement, Box::from(name))).copied()
    }

    /// Returns the fields of all shapes.
    pub(crate) fn all_shapes(&self) -> Vec<Box<[Field]>> {
        self.shapes.clone()
    }

    /// Returns the number of the shape of these fields, which are in order.
    pub fn shape(&self, fields: &[FieldNumber]) -> Option<ShapeNumber> {
        self.shape_numbers.get(fields).copied()
    }

    /// Returns the number of a measurement; a new one if it is unknown.
    pub fn define_measurement(&mut self, name: &str) -> Result<MeasurementNumber> {
        if let Some(number) = self.measurement(name) {
            return Ok(number);
        }
        if self.measurements.len() >= MEASUREMENTS_MAX {
            return Err(full("the number of measurements of a group", MEASUREMENTS_MAX));
        }
        let number = self.measurements.len() as u32;
        Item::Measurement { group: self.group, number, name }.encode(&mut self.pending);
        self.add_measurement(name);
        Ok(number)
    }

    /// Returns the number of a field; a new one if it is unknown. The type of a known one is not
    /// looked at.
    pub fn define_field(
        &mut self,
        measurement: MeasurementNumber,
        name: &str,
        kind: FieldType,
    ) -> Result<FieldNumber> {
        if let Some(number) = self.field(measurement, name) {
            return Ok(number);
        }
        if self.fields.len() >= FIELDS_MAX {
            return Err(full("the number of fields of a group", FIELDS_MAX));
        }
        let number = self.fields.len() as u32;
        Item::Field { group: self.group, number, measurement, kind, name }.encode(&mut self.pending);
        self.add_field(measurement, name, kind);
        Ok(number)
    }

    /// Returns the number of the shape of these fields, which are in order; a new one if it is
    /// unknown.
    pub fn define_shape(&mut self, fields: &[FieldNumber]) -> Result<ShapeNumber> {
        if let Some(number) = self.shape(fields) {
            return Ok(number);
        }
        if self.shapes.len() >= SHAPES_MAX {
            return Err(full("the number of sets of fields of a group", SHAPES_MAX));
        }
        let number = self.shapes.len() as u32;
        Item::Shape { group: self.group, number, fields: fields.to_vec() }.encode(&mut self.pending);
        self.add_shape(fields);
        Ok(number)
    }

    /// Returns the number of the element with this key; a new one if it is unknown and the group may
    /// have `max` elements.
    pub fn define_element(
        &mut self,
        measurement: MeasurementNumber,
        key: &str,
        max: u32,
    ) -> Result<ElementNumber> {
        if let Some(number) = self.element(key.as_bytes()) {
            return Ok(number);
        }
        let number = self.element_count() as u32;
        if number >= max {
            return Err(full("the number of elements of the group", max as usize));
        }
        Item::Element { group: self.group, number, measurement, key }.encode(&mut self.pending);
        self.add_element(measurement, key);
        Ok(number)
    }

    fn add_measurement(&mut self, name: &str) {
        self.bytes += name.len();
        self.measurement_numbers.insert(name.into(), self.measurements.len() as u32);
        self.measurements.push(name.into());
    }

    fn add_field(&mut self, measurement: MeasurementNumber, name: &str, kind: FieldType) {
        self.bytes += name.len();
        self.field_numbers.insert((measurement, name.into()), self.fields.len() as u32);
        self.fields.push(NamedField { measurement, name: name.into(), kind });
    }

    fn add_shape(&mut self, fields: &[FieldNumber]) {
        let named =
            |number: &FieldNumber| Field { number: *number, kind: self.fields[*number as usize].kind };
        self.bytes += size_of_val(fields);
        self.shape_numbers.insert(fields.into(), self.shapes.len() as u32);
        self.shapes.push(fields.iter().map(named).collect());
    }

    fn add_element(&mut self, measurement: MeasurementNumber, key: &str) {
        let number = self.element_count() as u32;
        self.bytes += key.len();
        self.keys.push(key);
        self.element_measurements.push(measurement);
        self.element_numbers.add(key.as_bytes(), number);
        let name = name_of(key);
        if name != key {
            self.named.add(name.as_bytes(), number);
        }
    }

    /// Says whether there are definitions that the log does not have yet.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes the encoded definitions that the log does not have yet.
    pub(crate) fn take_pending(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.pending);
    }

    /// Makes definitions pending again that the log could not take.
    pub(crate) fn give_back(&mut self, definitions: &[u8]) {
        self.pending.splice(..0, definitions.iter().copied());
    }

    /// Adds a definition that a file or the log has. A definition that is known already, with the same
    /// content, changes nothing: the log may repeat those of the files.
    pub(crate) fn learn(&mut self, item: &Item<'_>) -> Result<()> {
        let known = |what, number: u32, next: usize, same: bool| match (number as usize).cmp(&next) {
            std::cmp::Ordering::Less if same => Ok(true),
            std::cmp::Ordering::Less => {
                let what = format!("{what} {number} is defined twice, differently");
                Err(Error::new(ErrorKind::Corrupt, what))
            }
            std::cmp::Ordering::Equal => Ok(false),
            std::cmp::Ordering::Greater => Err(gap(what, number, next)),
        };
        match item {
            Item::Measurement { number, name, .. } => {
                let same = self.measurements.get(*number as usize).is_some_and(|known| **known == **name);
                if !known("measurement", *number, self.measurements.len(), same)? {
                    self.add_measurement(name);
                }
            }
            Item::Field { number, measurement, kind, name, .. } => {
                let field = NamedField { measurement: *measurement, name: (*name).into(), kind: *kind };
                let same = self.fields.get(*number as usize) == Some(&field);
                if !known("field", *number, self.fields.len(), same)? {
                    if *measurement as usize >= self.measurements.len() {
                        return Err(gap("measurement", *measurement, self.measurements.len()));
                    }
                    self.add_field(*measurement, name, *kind);
                }
            }
            Item::Shape { number, fields, .. } => {
                let same = self
                    .shapes
                    .get(*number as usize)
                    .is_some_and(|known| known.iter().map(|field| field.number).eq(fields.iter().copied()));
                if !known("shape", *number, self.shapes.len(), same)? {
                    if let Some(unknown) = fields.iter().find(|field| **field as usize >= self.fields.len()) {
                        return Err(gap("field", *unknown, self.fields.len()));
                    }
                    self.add_shape(fields);
                }
            }
            Item::Element { number, measurement, key, .. } => {
                let same = (*number as usize) < self.element_count() && self.key(*number) == *key;
                if !known("element", *number, self.element_count(), same)? {
                    if *measurement as usize >= self.measurements.len() {
                        return Err(gap("measurement", *measurement, self.measurements.len()));
                    }
                    self.add_element(*measurement, key);
                }
            }
            Item::Settings { .. } | Item::Dropped { .. } | Item::Rows { .. } | Item::DaysDropped { .. } => {}
        }
        Ok(())
    }

    /// Encodes the definitions after `from`, in an order that [`learn`](Names::learn) accepts.
    pub(crate) fn encode_after(&self, from: &NameCounts, out: &mut Vec<u8>) {
        let group = self.group;
        for (number, name) in self.measurements.iter().enumerate().skip(from.measurements as usize) {
            Item::Measurement { group, number: number as u32, name }.encode(out);
        }
        for (number, field) in self.fields.iter().enumerate().skip(from.fields as usize) {
            let NamedField { measurement, name, kind } = field;
            let number = number as u32;
            Item::Field { group, number, measurement: *measurement, kind: *kind, name }.encode(out);
        }
        for (number, shape) in self.shapes.iter().enumerate().skip(from.shapes as usize) {
            let fields = shape.iter().map(|field| field.number).collect();
            Item::Shape { group, number: number as u32, fields }.encode(out);
        }
        for number in from.elements..self.element_count() as u32 {
            let measurement = self.measurement_of(number);
            Item::Element { group, number, measurement, key: self.key(number) }.encode(out);
        }
    }

    /// Returns the numbers of names so far.
    pub(crate) fn counts(&self) -> NameCounts {
        NameCounts {
            measurements: self.measurements.len() as u32,
            fields: self.fields.len() as u32,
            shapes: self.shapes.len() as u32,
            elements: self.element_count() as u32,
        }
    }
}

impl Shapes for Names {
    fn fields(&self, shape: ShapeNumber) -> Option<&[Field]> {
        self.shapes.get(shape as usize).map(AsRef::as_ref)
    }
}

/// Numbers of the names of a group at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameCounts {
    pub measurements: u32,
    pub fields: u32,
    pub shapes: u32,
    pub elements: u32,
}
