//! Turns lines and named rows into a batch: names to numbers, types checked, times bounded.
//!
//! A client's batch mostly has known names, so the names are read under a shared lock. At the first new
//! name the batch takes the exclusive lock, and keeps it for the next [`EXCLUSIVE_LINES`] lines: a batch
//! of new names would otherwise change the lock for each.

use std::sync::Arc;

use exacat_model::{Error, FieldRef, FieldType, Result};
use exacat_wire::influx::{Lines, Precision, canonical_series, split_series};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::batch::Batch;
use crate::group::Group;
use crate::item::MeasurementNumber;
use crate::limits::{BATCH_BYTES, FUTURE_MAX};
use crate::names::{Names, name_bytes_max};
use crate::retention::oldest_kept;
use crate::row::{ElementNumber, FieldNumber, ShapeNumber};

/// Lines after the last new name for which a batch keeps the exclusive lock of the names.
const EXCLUSIVE_LINES: u32 = 1000;
/// Messages about refused lines that an answer has; further lines are only counted.
const MESSAGES_MAX: usize = 16;
/// Sets of fields that a batch remembers, in their order as sent.
const MEMOS_MAX: usize = 8;

/// Name that neither a tag nor a field may have.
const TIME: &str = "time";

/// Outcome of a request with lines. Rows that are not refused are in the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Messages about lines that are no lines, in InfluxDB's words.
    pub unparsed: Vec<String>,
    /// Number of these lines.
    pub unparsed_count: u64,
    /// The first reason for which a whole line was left out, in InfluxDB's words.
    pub dropped: Option<String>,
    /// Number of lines that were left out for such a reason.
    pub dropped_count: u64,
}

impl Refused {
    fn parse(&mut self, message: String) {
        self.unparsed_count += 1;
        if self.unparsed.len() < MESSAGES_MAX {
            self.unparsed.push(message);
        }
    }

    fn drop_line(&mut self, reason: impl FnOnce() -> String) {
        self.dropped_count += 1;
        self.dropped.get_or_insert_with(reason);
    }

    /// Returns the error text of InfluxDB 1.8; none if every line was taken. `written` is the number of
    /// rows in the batch.
    pub fn message(&self, written: u64) -> Option<String> {
        let mut texts = self.unparsed.clone();
        let more = self.unparsed_count - texts.len() as u64;
        if more > 0 {
            texts.push(format!("and {more} more lines like these"));
        }
        let unparsed = texts.join("\n");
        match (&self.dropped, unparsed.is_empty()) {
            (None, true) => None,
            (None, false) if written == 0 => Some(unparsed),
            (None, false) => Some(format!("partial write: {unparsed} dropped=0")),
            (Some(reason), true) => Some(format!("partial write: {reason} dropped={}", self.dropped_count)),
            (Some(reason), false) => {
                Some(format!("partial write: {unparsed}\n{reason} dropped={}", self.dropped_count))
            }
        }
    }
}

/// Lock of the names, as it is held.
enum Held<'g> {
    Shared(RwLockReadGuard<'g, Names>),
    Exclusive(RwLockWriteGuard<'g, Names>),
}

impl Held<'_> {
    fn names(&self) -> &Names {
        match self {
            Held::Shared(names) => names,
            Held::Exclusive(names) => names,
        }
    }
}

/// Fields of a line in the order as sent, and their shape.
struct Memo {
    measurement: MeasurementNumber,
    names: Vec<Box<str>>,
    kinds: Vec<FieldType>,
    shape: ShapeNumber,
    /// For each field of the shape the place of its value in the line.
    order: Vec<usize>,
}

impl Memo {
    fn fits(&self, measurement: MeasurementNumber, fields: &[(&str, FieldRef<'_>)]) -> bool {
        self.measurement == measurement
            && self.names.len() == fields.len()
            && self
                .names
                .iter()
                .zip(&self.kinds)
                .zip(fields)
                .all(|((name, kind), (sent, value))| **name == **sent && *kind == value.kind())
    }
}

/// Reasons why a row is left out.
enum LeftOut {
    /// A name is new, and the lock is shared.
    NeedsNames,
    Dropped(String),
}

/// Adds rows to a batch.
pub struct Ingest<'g> {
    group: &'g Group,
    batch: Batch,
    held: Option<Held<'g>>,
    /// Lines since the last new name.
    since_new: u32,
    memos: Vec<Memo>,
    key: String,
    /// Nanoseconds of now, the oldest time that is kept, and the latest that is accepted.
    now: i64,
    oldest: i64,
    newest: i64,
    elements_max: u32,
}

impl<'g> Ingest<'g> {
    /// Begins a batch for a group. `now` is in nanoseconds.
    pub fn new(group: &'g Arc<Group>, now: i64) -> Self {
        let (days, elements_max) = {
            let settings = group.settings.read();
            (settings.retention_days, settings.elements_max)
        };
        let lead = i64::try_from(FUTURE_MAX.as_nanos()).unwrap_or(i64::MAX);
        let oldest = oldest_kept(now, days);
        Ingest {
            group,
            batch: Batch::new(Arc::clone(group)),
            held: None,
            since_new: 0,
            memos: Vec::new(),
            key: String::new(),
            now,
            oldest,
            newest: now.saturating_add(lead),
            elements_max,
        }
    }

    /// Adds lines of a body from a place on, until the batch is full. Returns the place of the next line:
    /// the end of the body, if all are added.
    pub fn lines(&mut self, body: &[u8], place: usize, precision: Precision, refused: &mut Refused) -> usize {
        let mut lines = Lines::from(body, place, precision);
        self.batch.rows.reserve((body.len() - place.min(body.len())).min(BATCH_BYTES) / 3);
        while !self.is_full()
            && let Some(line) = lines.next_line()
        {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    refused.parse(error.to_string());
                    continue;
                }
            };
            // As in InfluxDB: a field of this name is passed over.
            let fields: SmallVec<[_; 8]> = line.fields().filter(|(name, _)| *name != TIME).collect();
            if fields.is_empty() {
                refused.drop_line(|| format!("input field \"{TIME}\" on {} is invalid", line.series));
                continue;
            }
            let time = line.time.unwrap_or(self.now);
            let done = self.row(line.series, &fields, time, |names, key| {
                canonical_series(line.series, key).map_err(|reason| line.error(reason).to_string())?;
                Ok(names.element(key.as_bytes()))
            });
            match done {
                Ok(()) => {}
                Err(Unable::Parse(message)) => refused.parse(message),
                Err(Unable::Take(reason)) => refused.drop_line(|| reason),
            }
        }
        self.held = None;
        lines.place()
    }

    /// Says whether the batch is full: further rows take another one.
    pub fn is_full(&self) -> bool {
        self.batch.rows.len() >= BATCH_BYTES
    }

    /// Adds one row of an element with a canonical key.
    pub fn named(&mut self, key: &str, fields: &[(&str, FieldRef<'_>)], time: i64) -> Result<()> {
        let canonical = |names: &Names, out: &mut String| {
            out.push_str(key);
            Ok(names.element(key.as_bytes()))
        };
        self.row(key, fields, time, canonical).map_err(|unable| match unable {
            Unable::Parse(message) | Unable::Take(message) => Error::invalid(message),
        })
    }

    /// Returns the batch.
    pub fn finish(mut self) -> Batch {
        self.held = None;
        self.batch
    }

    /// Adds a row. `canonical` writes the canonical key of `raw`, and looks its element up.
    fn row(
        &mut self,
        raw: &str,
        fields: &[(&str, FieldRef<'_>)],
        time: i64,
        canonical: impl Fn(&Names, &mut String) -> std::result::Result<Option<ElementNumber>, String>,
    ) -> std::result::Result<(), Unable> {
        if time > self.newest || time < self.oldest {
            return Err(Unable::Take("points beyond retention policy".to_owned()));
        }
        let group = self.group;
        loop {
            if self.since_new > EXCLUSIVE_LINES && matches!(self.held, Some(Held::Exclusive(_))) {
                self.held = None;
            }
            let held = self.held.get_or_insert_with(|| Held::Shared(group.names.read()));
            self.since_new += 1;
            let names = held.names();
            let mut element = names.element(raw.as_bytes());
            if element.is_none() {
                self.key.clear();
                element = canonical(names, &mut self.key).map_err(Unable::Parse)?;
            }
            let element = match (element, &mut *held) {
                (Some(element), _) => Ok(element),
                (None, Held::Shared(_)) => Err(LeftOut::NeedsNames),
                (None, Held::Exclusive(names)) => {
                    let before = names.fullness(self.elements_max);
                    let defined = define_element(names, &self.key, self.elements_max);
                    group.warn_if_nearly_full(before, names.fullness(self.elements_max));
                    defined
                }
            };
            let bytes_max = name_bytes_max(self.elements_max);
            let found = element.and_then(|element| {
                shape_of(held, &mut self.memos, (element, fields), bytes_max).map(|memo| (element, memo))
            });
            match found {
                Ok((element, memo)) => {
                    let memo = &self.memos[memo];
                    let values = memo.order.iter().map(|at| fields[*at].1);
                    let pushed = self.batch.push(element, memo.shape, time, values);
                    return pushed.map_err(|error| Unable::Take(error.message));
                }
                Err(LeftOut::NeedsNames) => {
                    self.held = None;
                    self.held = Some(Held::Exclusive(group.names.write()));
                    self.since_new = 0;
                }
                Err(LeftOut::Dropped(reason)) => return Err(Unable::Take(reason)),
            }
        }
    }
}

/// Reasons why a row is refused.
enum Unable {
    /// It is no row.
    Parse(String),
    /// It is one, and the group cannot take it.
    Take(String),
}

fn define_element(names: &mut Names, key: &str, max: u32) -> std::result::Result<ElementNumber, LeftOut> {
    let split = split_series(key).map_err(|reason| LeftOut::Dropped(reason.to_string()))?;
    let dropped = |error: Error| LeftOut::Dropped(error.message);
    if names.element_count() >= max as usize {
        return Err(LeftOut::Dropped(format!("max-series-per-database limit exceeded: ({max})")));
    }
    fits(names, key.len() + split.0.len(), name_bytes_max(max))?;
    if split.1.iter().any(|(tag, _)| tag == TIME) {
        let of = &split.0;
        return Err(LeftOut::Dropped(format!(
            "invalid tag key: input tag \"{TIME}\" on measurement \"{of}\" is invalid"
        )));
    }
    let measurement = names.define_measurement(&split.0).map_err(dropped)?;
    names.define_element(measurement, key, max).map_err(dropped)
}

/// Refuses a new name that the group has no bytes for.
fn fits(names: &Names, bytes: usize, max: usize) -> std::result::Result<(), LeftOut> {
    match names.bytes() + bytes > max {
        true => {
            Err(LeftOut::Dropped(format!("max-series-per-database limit exceeded: ({max} bytes of names)")))
        }
        false => Ok(()),
    }
}

/// Returns the place of the memo for the fields of a line. Defines new fields and shapes if the lock is
/// exclusive and the names have room.
fn shape_of(
    held: &mut Held<'_>,
    memos: &mut Vec<Memo>,
    (element, fields): (ElementNumber, &[(&str, FieldRef<'_>)]),
    bytes_max: usize,
) -> std::result::Result<usize, LeftOut> {
    let measurement = held.names().measurement_of(element);
    if let Some(at) = memos.iter().position(|memo| memo.fits(measurement, fields)) {
        return Ok(at);
    }
    let mut numbered: Vec<(FieldNumber, usize)> = Vec::with_capacity(fields.len());
    for (at, (name, value)) in fields.iter().enumerate() {
        let number = match (held.names().field(measurement, name), &mut *held) {
            (Some(number), _) => number,
            (None, Held::Shared(_)) => return Err(LeftOut::NeedsNames),
            (None, Held::Exclusive(names)) => {
                fits(names, name.len(), bytes_max)?;
                let defined = names.define_field(measurement, name, value.kind());
                defined.map_err(|error| LeftOut::Dropped(error.message))?
            }
        };
        let known = held.names().fields()[number as usize].kind;
        if known != value.kind() {
            let of = &held.names().measurements()[measurement as usize];
            return Err(LeftOut::Dropped(format!(
                "field type conflict: input field \"{name}\" on measurement \"{of}\" is type {}, already exists as type {known}",
                value.kind()
            )));
        }
        numbered.push((number, at));
    }
    numbered.sort_unstable();
    // Of a field that a line has twice, the later value counts.
    numbered.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 = later.1;
        }
        same
    });
    let of: Vec<FieldNumber> = numbered.iter().map(|(number, _)| *number).collect();
    let shape = match (held.names().shape(&of), &mut *held) {
        (Some(shape), _) => shape,
        (None, Held::Shared(_)) => return Err(LeftOut::NeedsNames),
        (None, Held::Exclusive(names)) => {
            fits(names, size_of_val(&*of), bytes_max)?;
            names.define_shape(&of).map_err(|error| LeftOut::Dropped(error.message))?
        }
    };
    if memos.len() >= MEMOS_MAX {
        memos.remove(0);
    }
    memos.push(Memo {
        measurement,
        names: fields.iter().map(|(name, _)| (*name).into()).collect(),
        kinds: fields.iter().map(|(_, value)| value.kind()).collect(),
        shape,
        order: numbered.iter().map(|(_, at)| *at).collect(),
    });
    Ok(memos.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{NAME_BYTES_LEAST, NAME_BYTES_OF_ELEMENT};

    /// The last byte of names fits, and no further one.
    #[test]
    fn names_fit_to_the_last_byte() {
        let mut names = Names::new(1);
        names.define_measurement("ev").unwrap();
        assert!(fits(&names, 8, 10).is_ok() && fits(&names, 9, 10).is_err());
        assert_eq!(name_bytes_max(10), NAME_BYTES_LEAST);
        assert_eq!(name_bytes_max(50_000_000), 50_000_000 * NAME_BYTES_OF_ELEMENT);
    }
}
