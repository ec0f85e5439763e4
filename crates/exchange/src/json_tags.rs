//! Tags from JSON: the rule by which a record's metadata become typed tags.
//!
//! - A string is a text, a whole number an integer, any other number a real, true and false a
//!   boolean; null is no tag. A whole number beyond 64 bits is a text.
//! - The members of an object get its key, a dot and their own: `{"type":{"primary":"Dataset"}}` is
//!   `type.primary=Dataset`.
//! - A list of one item is that item. A list of several strings, numbers and booleans is one text,
//!   joined by `,`. If an item holds a comma, and for lists of objects or lists, each item gets its
//!   index from 0 as a key: `relations.0.recid`. An empty list or object is no tag.
//! - Characters that a tag's key cannot have become `_`; a key with an invalid first character gets
//!   a `_` before it.
//! - Tags that the catalogue refuses are left out and reported: a key or a text too long, a
//!   repeated key, nesting too deep.

use exacat_model::{Tag, TagKey, TagValue};
use serde_json::Value;

use crate::limits::{JSON_DEPTH_MAX, JSON_KEY_BYTES_MAX};
use crate::reject::{Complaint, Reason};

/// First parts of the keys that describe a record best, the most important first.
const IMPORTANT: [&str; 14] = [
    "title",
    "name",
    "type",
    "experiment",
    "doi",
    "recid",
    "id",
    "collections",
    "collision_information",
    "run_period",
    "date_created",
    "date_published",
    "distribution",
    "license",
];

/// Returns the rank of a tag if there are too many; the lowest ranks are kept. Well-known keys come
/// first, then keys by their depth. Members of lists come last, high indices last of all, because
/// lists make records long.
pub fn importance(key: &TagKey) -> (u64, usize, usize, String) {
    let parts = || key.as_str().split('.');
    let place = parts().skip(1).filter_map(|part| part.parse::<u64>().ok()).max();
    let first = parts().next().unwrap_or_default();
    let known = IMPORTANT.iter().position(|important| *important == first).unwrap_or(IMPORTANT.len());
    (place.map_or(0, |place| place.saturating_add(1)), known, parts().count(), key.as_str().to_owned())
}

/// Adds the tags of `value` under `key`.
pub fn flatten(key: &str, value: &Value, tags: &mut Vec<Tag>, dropped: &mut Vec<Complaint>) {
    flatten_at(key, value, 0, tags, dropped);
}

fn flatten_at(key: &str, value: &Value, depth: usize, tags: &mut Vec<Tag>, dropped: &mut Vec<Complaint>) {
    // A key this long cannot become a tag's, and copying it for each member of a large object would
    // take long.
    if depth > JSON_DEPTH_MAX || key.len() > JSON_KEY_BYTES_MAX {
        dropped.push(Complaint::new(
            Reason::TagDropped,
            format!("{key:.200}: nested too deep, or too long a key"),
        ));
        return;
    }
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (name, member) in members {
                flatten_at(&format!("{key}.{name}"), member, depth + 1, tags, dropped);
            }
        }
        Value::Array(items) => match &items[..] {
            [] => {}
            [item] => flatten_at(key, item, depth + 1, tags, dropped),
            items => match joined(items) {
                Some(text) => push(key, TagValue::Text(text), tags, dropped),
                None => {
                    for (index, item) in items.iter().enumerate() {
                        flatten_at(&format!("{key}.{index}"), item, depth + 1, tags, dropped);
                    }
                }
            },
        },
        scalar => {
            if let Some(value) = scalar_value(scalar) {
                push(key, value, tags, dropped);
            }
        }
    }
}

fn joined(items: &[Value]) -> Option<String> {
    let mut text = String::new();
    for (index, item) in items.iter().enumerate() {
        let part = match item {
            Value::String(part) if !part.contains(',') => part.clone(),
            Value::Number(_) | Value::Bool(_) => item.to_string(),
            _ => return None,
        };
        if index > 0 {
            text.push(',');
        }
        text.push_str(&part);
    }
    Some(text)
}

/// Converts a JSON string, number or boolean to a tag value; none for anything else.
pub fn scalar_value(value: &Value) -> Option<TagValue> {
    Some(match value {
        Value::String(text) => TagValue::Text(text.clone()),
        Value::Bool(truth) => TagValue::Boolean(*truth),
        Value::Number(number) => match (number.as_i64(), number.is_f64(), number.as_f64()) {
            (Some(whole), _, _) => TagValue::Integer(whole),
            (None, true, Some(real)) => TagValue::Real(real),
            _ => TagValue::Text(number.to_string()),
        },
        _ => return None,
    })
}

fn push(key: &str, value: TagValue, tags: &mut Vec<Tag>, dropped: &mut Vec<Complaint>) {
    let good = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    let mut clean: String =
        key.chars().map(|character| if good(character) { character } else { '_' }).collect();
    if !clean.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        clean.insert(0, '_');
    }
    let added =
        TagKey::parse(&clean).and_then(|key| value.check().map(|()| key)).map_err(|error| error.message);
    match added {
        Ok(key) if tags.iter().any(|tag| tag.key == key) => {
            dropped.push(Complaint::new(Reason::TagDropped, format!("{clean}: the key is there already")));
        }
        Ok(key) => tags.push(Tag { key, value }),
        Err(why) => dropped.push(Complaint::new(Reason::TagDropped, format!("{clean:.200}: {why}"))),
    }
}

/// Converts a tag's value to the JSON of an export: a bare value if JSON has the type, else an
/// object that names the type.
pub fn to_json(value: &TagValue) -> Value {
    match value {
        TagValue::Text(text) => Value::String(text.clone()),
        TagValue::Integer(number) => Value::from(*number),
        TagValue::Boolean(truth) => Value::Bool(*truth),
        TagValue::Real(number) if number.is_finite() => Value::from(*number),
        TagValue::Real(number) => serde_json::json!({ "real": number.to_string() }),
        TagValue::Time(time) => serde_json::json!({ "time": time.to_string() }),
    }
}

/// Reads the output of [`to_json`]; the reason if it is no tag's value.
pub fn from_json(value: &Value) -> Result<TagValue, String> {
    if let Some(read) = scalar_value(value) {
        return read.check().map(|()| read).map_err(|error| error.message);
    }
    let members = value.as_object().filter(|members| members.len() == 1);
    let Some((kind, Value::String(text))) = members.and_then(|members| members.iter().next()) else {
        return Err("neither a text, a number nor a boolean".to_owned());
    };
    match kind.as_str() {
        "real" => text.parse().map(TagValue::Real).map_err(|_| format!("not a number: {text:.100?}")),
        "time" => crate::days::read_time(text).map(TagValue::Time),
        _ => Err(format!("not the type of a tag: {kind:.100?}")),
    }
    .and_then(|read| read.check().map(|()| read).map_err(|error| error.message))
}

#[cfg(test)]
mod tests {
    use exacat_model::TimeMs;
    use exacat_model::limits::{TAG_KEY_BYTES_MAX, TAG_TEXT_BYTES_MAX};
    use serde_json::json;

    use super::*;

    fn flat(value: Value) -> (Vec<String>, Vec<String>) {
        let (mut tags, mut dropped) = (Vec::new(), Vec::new());
        for (key, value) in value.as_object().unwrap() {
            flatten(key, value, &mut tags, &mut dropped);
        }
        (
            tags.iter().map(|tag| format!("{}={}", tag.key, tag.value)).collect(),
            dropped.into_iter().map(|complaint| complaint.detail).collect(),
        )
    }

    #[test]
    fn records_become_tags_by_the_rule() {
        let (tags, dropped) = flat(json!({
            "title": "A title", "year": "2010", "n": 12, "x": 1.5, "whole": 2.0, "yes": true, "no": null,
            "type": { "primary": "Dataset", "secondary": ["Collision"] },
            "run": ["Run2010A", "Run2010B"], "mixed": [1, "b", false], "empty": [], "nothing": {},
            "commas": ["a,b", "c"], "relations": [{ "id": 1 }, { "id": 2, "of": ["x", "y"] }],
            "odd key/é": 1, "7th": 1, "big": 18446744073709551615u64, "list in list": [[1, 2], 3],
        }));
        assert_eq!(dropped, Vec::<String>::new());
        let mut tags = tags;
        tags.sort();
        let mut wanted = [
            "title=A title",
            "year=text:2010",
            "n=12",
            "x=1.5",
            "whole=real:2",
            "yes=true",
            "type.primary=Dataset",
            "type.secondary=Collision",
            "run=Run2010A,Run2010B",
            "mixed=1,b,false",
            "commas.0=a,b",
            "commas.1=c",
            "relations.0.id=1",
            "relations.1.id=2",
            "relations.1.of=x,y",
            "odd_key__=1",
            "_7th=1",
            "big=text:18446744073709551615",
            "list_in_list.0=1,2",
            "list_in_list.1=3",
        ];
        wanted.sort_unstable();
        assert_eq!(tags, wanted);
    }

    #[test]
    fn titles_and_types_come_before_other_keys_and_members_of_lists_last() {
        let mut keys: Vec<TagKey> = [
            "relations.10.id",
            "relations.2.id",
            "abstract",
            "type.secondary",
            "a.b",
            "keywords.0",
            "title",
            "7th",
            "type.primary",
            "zeta",
        ]
        .iter()
        .map(|key| TagKey::parse(key).or_else(|_| TagKey::parse(&format!("_{key}"))).unwrap())
        .collect();
        keys.sort_by_cached_key(importance);
        let keys: Vec<&str> = keys.iter().map(TagKey::as_str).collect();
        assert_eq!(
            keys,
            [
                "title",
                "type.primary",
                "type.secondary",
                "_7th",
                "abstract",
                "zeta",
                "a.b",
                "keywords.0",
                "relations.2.id",
                "relations.10.id"
            ]
        );
    }

    #[test]
    fn what_the_catalogue_does_not_take_is_reported() {
        let (tags, dropped) = flat(json!({ "a": "x".repeat(TAG_TEXT_BYTES_MAX) }));
        assert_eq!((tags.len(), dropped.len()), (1, 0));
        let (tags, dropped) = flat(json!({ "a": "x".repeat(TAG_TEXT_BYTES_MAX + 1), "b": 1 }));
        assert_eq!((tags.len(), dropped.len()), (1, 1));
        assert!(dropped[0].starts_with("a: "));
        let (tags, dropped) =
            flat(json!({ "k".repeat(TAG_KEY_BYTES_MAX): 1, "k".repeat(TAG_KEY_BYTES_MAX + 1): 1 }));
        assert_eq!((tags.len(), dropped.len()), (1, 1));
        let (tags, dropped) = flat(json!({ "a b": 1, "a_b": 2 }));
        assert_eq!((tags.len(), dropped.len()), (1, 1));
        let mut deep = json!(1);
        for _ in 0..JSON_DEPTH_MAX + 1 {
            deep = json!([deep]);
        }
        assert_eq!(flat(json!({ "a": deep })).1.len(), 1);
    }

    #[test]
    fn values_of_an_export_read_back() {
        for value in [
            TagValue::Text("2010".into()),
            TagValue::Text(String::new()),
            TagValue::Integer(i64::MIN),
            TagValue::Real(2.0),
            TagValue::Real(f64::INFINITY),
            TagValue::Real(0.1),
            TagValue::Boolean(false),
            TagValue::Time(TimeMs(1_414_153_225_001)),
            TagValue::Time(TimeMs(u64::MAX)),
        ] {
            let text = to_json(&value).to_string();
            assert_eq!(from_json(&serde_json::from_str(&text).unwrap()).unwrap(), value, "{text}");
        }
        for bad in [json!(null), json!([]), json!({}), json!({ "real": "NaN" }), json!({ "odd": "x" })] {
            assert!(from_json(&bad).is_err(), "{bad}");
        }
    }
}
