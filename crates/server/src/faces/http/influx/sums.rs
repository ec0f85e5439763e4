//! Aggregates of the values of one field in one interval.

use exacat_model::{FieldRef, FieldType, FieldValue};
use exacat_wire::influx::query::Function;

/// Sums of the values of an interval.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    kind: FieldType,
    count: i64,
    float: f64,
    integer: i64,
    unsigned: u64,
    smallest: Option<(i64, FieldValue)>,
    largest: Option<(i64, FieldValue)>,
    first: Option<(i64, FieldValue)>,
    last: Option<(i64, FieldValue)>,
    /// Area below the lines between the values, in units of value times nanoseconds.
    area: f64,
}

pub(super) fn number(value: FieldRef<'_>) -> f64 {
    match value {
        FieldRef::Float(value) => value,
        FieldRef::Integer(value) => value as f64,
        FieldRef::Unsigned(value) => value as f64,
        FieldRef::Boolean(_) | FieldRef::Text(_) => 0.0,
    }
}

/// Says whether one number is below another of its type. NaN is below nothing.
fn is_below(one: FieldRef<'_>, other: FieldRef<'_>) -> bool {
    match (one, other) {
        (FieldRef::Float(one), FieldRef::Float(other)) => one < other,
        (FieldRef::Integer(one), FieldRef::Integer(other)) => one < other,
        (FieldRef::Unsigned(one), FieldRef::Unsigned(other)) => one < other,
        _ => false,
    }
}

impl Sums {
    /// Begins with no value of a type.
    pub(super) fn new(kind: FieldType) -> Self {
        Sums {
            kind,
            count: 0,
            float: 0.0,
            integer: 0,
            unsigned: 0,
            smallest: None,
            largest: None,
            first: None,
            last: None,
            area: 0.0,
        }
    }

    /// Adds a value. Those of one element come in the order of time.
    pub(super) fn add(&mut self, time: i64, value: FieldRef<'_>) {
        self.count += 1;
        match value {
            FieldRef::Float(value) => self.float += value,
            // Beyond 64 bits InfluxDB wraps around; so do these.
            FieldRef::Integer(value) => self.integer = self.integer.wrapping_add(value),
            FieldRef::Unsigned(value) => self.unsigned = self.unsigned.wrapping_add(value),
            FieldRef::Boolean(_) | FieldRef::Text(_) => {}
        }
        let is_nan = matches!(value, FieldRef::Float(value) if value.is_nan());
        let better =
            |known: &Option<(i64, FieldValue)>, is_better: bool| !is_nan && (known.is_none() || is_better);
        let below = self.smallest.as_ref().is_some_and(|(_, known)| is_below(value, known.borrow()));
        if better(&self.smallest, below) {
            self.smallest = Some((time, value.to_value()));
        }
        let above = self.largest.as_ref().is_some_and(|(_, known)| is_below(known.borrow(), value));
        if better(&self.largest, above) {
            self.largest = Some((time, value.to_value()));
        }
        if self.first.as_ref().is_none_or(|(known, _)| time < *known) {
            self.first = Some((time, value.to_value()));
        }
        if self.last.as_ref().is_none_or(|(known, _)| time >= *known) {
            self.last = Some((time, value.to_value()));
        }
    }

    /// Adds a part of the area below the values.
    pub(super) fn add_area(&mut self, area: f64) {
        self.area += area;
    }

    /// Says whether it has no value.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn sum(&self) -> f64 {
        match self.kind {
            FieldType::Integer => self.integer as f64,
            FieldType::Unsigned => self.unsigned as f64,
            _ => self.float,
        }
    }

    /// Returns an aggregate.
    pub(super) fn value(&self, function: Function) -> Option<FieldValue> {
        let of = |one: &Option<(i64, FieldValue)>| one.as_ref().map(|(_, value)| value.clone());
        match function {
            Function::Count => Some(FieldValue::Integer(self.count)),
            Function::Sum => Some(match self.kind {
                FieldType::Integer => FieldValue::Integer(self.integer),
                FieldType::Unsigned => FieldValue::Unsigned(self.unsigned),
                _ => FieldValue::Float(self.float),
            }),
            Function::Mean => Some(FieldValue::Float(self.sum() / self.count as f64)),
            Function::Min => of(&self.smallest),
            Function::Max => of(&self.largest),
            Function::First => of(&self.first),
            Function::Last => of(&self.last),
            Function::Spread => match (of(&self.largest)?, of(&self.smallest)?) {
                (FieldValue::Integer(most), FieldValue::Integer(least)) => {
                    Some(FieldValue::Integer(most.wrapping_sub(least)))
                }
                (FieldValue::Unsigned(most), FieldValue::Unsigned(least)) => {
                    Some(FieldValue::Unsigned(most.wrapping_sub(least)))
                }
                (most, least) => Some(FieldValue::Float(number(most.borrow()) - number(least.borrow()))),
            },
            Function::Integral { unit } => Some(FieldValue::Float(self.area / unit.max(1) as f64)),
        }
    }

    /// Returns the time of the value that a selector chooses.
    pub(super) fn time(&self, function: Function) -> Option<i64> {
        let one = match function {
            Function::Min => &self.smallest,
            Function::Max => &self.largest,
            Function::First => &self.first,
            Function::Last => &self.last,
            _ => return None,
        };
        one.as_ref().map(|(time, _)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(i64, f64)]) -> Sums {
        let mut sums = Sums::new(FieldType::Float);
        values.iter().for_each(|(time, value)| sums.add(*time, FieldRef::Float(*value)));
        sums
    }

    /// Each aggregate is that of its definition; the values of several elements may come in any order.
    #[test]
    fn aggregates_are_those_of_their_definitions() {
        let sums = of(&[(10, 1.0), (20, 5.0), (30, 3.0), (5, 2.0)]);
        let float = |function| match sums.value(function) {
            Some(FieldValue::Float(value)) => value,
            other => panic!("{other:?}"),
        };
        assert_eq!(sums.value(Function::Count), Some(FieldValue::Integer(4)));
        assert_eq!([float(Function::Sum), float(Function::Mean)], [11.0, 2.75]);
        assert_eq!([float(Function::Min), float(Function::Max), float(Function::Spread)], [1.0, 5.0, 4.0]);
        assert_eq!([float(Function::First), float(Function::Last)], [2.0, 3.0]);
        assert_eq!([sums.time(Function::Max), sums.time(Function::First)], [Some(20), Some(5)]);
    }

    /// NaN is counted, and is neither smallest nor largest.
    #[test]
    fn nan_is_no_extreme() {
        let sums = of(&[(1, f64::NAN), (2, 7.0)]);
        assert_eq!(sums.value(Function::Min), Some(FieldValue::Float(7.0)));
        assert_eq!(sums.value(Function::Count), Some(FieldValue::Integer(2)));
        assert_eq!(of(&[(1, f64::NAN)]).value(Function::Max), None);
    }
}
