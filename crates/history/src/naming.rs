//! Conventions of writers: the tag that names an element, and the fields with its value and quality.
//!
//! Line protocol has neither. Controls systems and users agree on names instead, and this file has them.

use std::borrow::Cow;

use exacat_model::element::QUALITY_FIELDS;
use exacat_wire::influx::split_series;

/// Tags that name an element, the first that it has.
const NAME_TAGS: [&str; 2] = ["name", "element"];
/// Fields with the value of an element, the first that its measurement has.
const VALUE_FIELDS: [&str; 2] = ["value", "v"];
/// Begin of the fields with a value in `WinCC OA`, which has a field for each type.
const TYPED_VALUE: &str = "original_value_";

/// Returns the name of an element for people: the value of its tag `name`, else of its tag `element`, else
/// its key.
pub fn name_of(key: &str) -> Cow<'_, str> {
    // Most keys have no escapes, and then a name is a part of the key. This is asked of a million elements.
    if !key.as_bytes().contains(&b'\\') {
        let mut found = [None; NAME_TAGS.len()];
        let mut parts = key.split(',');
        let _measurement = parts.next();
        for part in parts {
            for (tag, found) in NAME_TAGS.iter().zip(&mut found) {
                if found.is_none() {
                    *found = part.strip_prefix(tag).and_then(|value| value.strip_prefix('='));
                }
            }
        }
        return Cow::Borrowed(found.into_iter().flatten().next().unwrap_or(key));
    }
    let Ok((_, tags)) = split_series(key) else { return Cow::Borrowed(key) };
    let tag = |tag: &&str| tags.iter().find(|(name, _)| name == tag).map(|(_, value)| value.clone());
    NAME_TAGS.iter().find_map(tag).unwrap_or(Cow::Borrowed(key))
}

/// Part that a field has in its measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// It has the value.
    Value,
    /// It has the quality of the value.
    Quality,
    /// Another one.
    Other,
}

/// Returns the part of each field of a measurement.
pub fn parts(fields: &[&str]) -> Vec<Part> {
    let first =
        |wanted: &[&str]| wanted.iter().find_map(|name| fields.iter().position(|field| field == name));
    let quality = first(&QUALITY_FIELDS);
    let value = first(&VALUE_FIELDS);
    let typed = value.is_none() && fields.iter().any(|field| field.starts_with(TYPED_VALUE));
    let others = fields.len() - usize::from(quality.is_some());
    let part = |(at, field): (usize, &&str)| {
        if Some(at) == quality {
            Part::Quality
        } else if Some(at) == value || (typed && field.starts_with(TYPED_VALUE)) || others == 1 {
            Part::Value
        } else {
            Part::Other
        }
    };
    fields.iter().enumerate().map(part).collect()
}

/// Says whether a field of this name has a quality.
pub fn is_quality(field: &str) -> bool {
    QUALITY_FIELDS.contains(&field)
}

/// Returns the place of the field with the value of a row, among the names of the row's fields. None if
/// several fields could have it.
pub fn value_field<'a>(fields: impl Iterator<Item = &'a str> + Clone) -> Option<usize> {
    let named = |wanted: &&str| fields.clone().position(|name| name == *wanted);
    let typed = || fields.clone().position(|name| name.starts_with(TYPED_VALUE));
    let only = || {
        let mut others = fields.clone().enumerate().filter(|(_, name)| !is_quality(name));
        let (place, _) = others.next()?;
        others.next().is_none().then_some(place)
    };
    VALUE_FIELDS.iter().find_map(named).or_else(typed).or_else(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name is that of the first naming tag, without escapes; without such a tag it is the key.
    #[test]
    fn names_are_those_of_the_tags() {
        for (key, name) in [
            ("EVENT,name=System1:dcs/hv,variabletype=3", "System1:dcs/hv"),
            ("ev,element=a,name=b", "b"),
            ("ev,element=a", "a"),
            ("ev,host=a", "ev,host=a"),
            ("name=x", "name=x"),
            (r"ev,alias=HV\ crate,name=a\,b\ c", "a,b c"),
            (r"ev,alias=x\,name\=y,element=z", "z"),
        ] {
            assert_eq!(name_of(key), name, "{key}");
        }
    }

    /// Value and quality are found in each convention.
    #[test]
    fn value_and_quality_are_found() {
        let found = |fields: &[&str]| {
            let letter = |part| match part {
                Part::Value => 'v',
                Part::Quality => 'q',
                Part::Other => '-',
            };
            parts(fields).into_iter().map(letter).collect::<String>()
        };
        assert_eq!(found(&["q", "v"]), "qv");
        assert_eq!(found(&["value", "v", "quality", "q"]), "v-q-");
        assert_eq!(
            found(&["_status64", "original_value_float", "original_value_float_special", "_user"]),
            "qvv-"
        );
        assert_eq!(found(&["temperature", "quality"]), "vq");
        assert_eq!(found(&["user", "system", "idle"]), "---");
        assert_eq!(found(&[]), "");
    }

    /// The value is `value`, else `v`, else the first of WinCC OA's, else the only field that is no quality.
    #[test]
    fn value_of_a_row_is_found_by_its_fields() {
        let value = |fields: &[&str]| value_field(fields.iter().copied());
        assert_eq!(value(&["q", "v", "value"]), Some(2));
        assert_eq!(value(&["q", "v", "w"]), Some(1));
        assert_eq!(value(&["_status64", "_user", "original_value_int", "original_value_x"]), Some(2));
        assert_eq!(value(&["quality", "current"]), Some(1));
        assert_eq!(value(&["usage_user", "usage_system"]), None);
        assert_eq!(value(&["q"]), None);
        assert_eq!(value(&[]), None);
    }
}
