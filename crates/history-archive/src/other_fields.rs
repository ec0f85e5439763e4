//! Text of the fields that have no column: a flat JSON object that keeps every bit.
//!
//! A finite float is its shortest decimal form, which gives the same bits back. Other floats are texts:
//! `"NaN"`, `"+Inf"`, `"-Inf"`, or `"0x…"` with the bits of another NaN. The type of a field is known by its
//! name, so a text of a float and a text field cannot be mixed up.

use exacat_model::{FieldRef, FieldType, FieldValue};

/// Appends a text in quotes.
fn put_text(out: &mut String, text: &str) {
    // A text always has a JSON form.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// Appends a field. The caller closes the object.
pub(crate) fn put_field(out: &mut String, name: &str, value: FieldRef<'_>) {
    out.push(if out.is_empty() { '{' } else { ',' });
    put_text(out, name);
    out.push(':');
    match value {
        FieldRef::Float(value) if value.is_finite() => out.push_str(&format!("{value:?}")),
        FieldRef::Float(value) if value.to_bits() == f64::NAN.to_bits() => out.push_str("\"NaN\""),
        FieldRef::Float(value) if value.is_nan() => out.push_str(&format!("\"0x{:016x}\"", value.to_bits())),
        FieldRef::Float(value) => out.push_str(if value > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" }),
        FieldRef::Integer(value) => out.push_str(&value.to_string()),
        FieldRef::Unsigned(value) => out.push_str(&value.to_string()),
        FieldRef::Boolean(value) => out.push_str(if value { "true" } else { "false" }),
        FieldRef::Text(text) => put_text(out, text),
    }
}

/// Splits a text in quotes from the start; returns it without them, and the rest.
fn split_text(text: &str) -> Option<(String, &str)> {
    let mut is_escaped = false;
    let inside = text.strip_prefix('"')?;
    let end = inside.find(|letter| {
        let ends = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        ends
    })?;
    let (quoted, rest) = text.split_at(end + 2);
    Some((serde_json::from_str(quoted).ok()?, rest))
}

/// Passes each field with its value to `take`. The caller knows the type of a field by its name. None if the
/// text is damaged.
pub(crate) fn each_field(
    text: &str,
    kind: impl Fn(&str) -> Option<FieldType>,
    mut take: impl FnMut(&str, FieldValue),
) -> Option<()> {
    let mut rest = text.strip_prefix('{')?;
    loop {
        let (name, behind) = split_text(rest)?;
        let behind = behind.strip_prefix(':')?;
        let (value, behind) = split_value(behind, kind(&name)?)?;
        take(&name, value);
        match behind.strip_prefix(',') {
            Some(behind) => rest = behind,
            None => return (behind == "}").then_some(()),
        }
    }
}

fn split_value(text: &str, kind: FieldType) -> Option<(FieldValue, &str)> {
    if text.starts_with('"') {
        let (inside, rest) = split_text(text)?;
        let value = match (kind, inside.as_str()) {
            (FieldType::Text, _) => FieldValue::Text(inside.into()),
            (FieldType::Float, "NaN") => FieldValue::Float(f64::NAN),
            (FieldType::Float, "+Inf") => FieldValue::Float(f64::INFINITY),
            (FieldType::Float, "-Inf") => FieldValue::Float(f64::NEG_INFINITY),
            (FieldType::Float, bits) => {
                FieldValue::Float(f64::from_bits(u64::from_str_radix(bits.strip_prefix("0x")?, 16).ok()?))
            }
            _ => return None,
        };
        return Some((value, rest));
    }
    let (word, rest) = text.split_at(text.find([',', '}'])?);
    let value = match kind {
        FieldType::Float => FieldValue::Float(word.parse().ok()?),
        FieldType::Integer => FieldValue::Integer(word.parse().ok()?),
        FieldType::Unsigned => FieldValue::Unsigned(word.parse().ok()?),
        FieldType::Boolean => FieldValue::Boolean(word.parse().ok()?),
        FieldType::Text => return None,
    };
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value comes back with its type and every bit, whatever its name and text have in them.
    #[test]
    fn values_come_back_with_every_bit() {
        let values = [
            ("a", FieldValue::Float(0.1)),
            ("b", FieldValue::Float(-0.0)),
            ("c", FieldValue::Float(5e-324)),
            ("d", FieldValue::Float(f64::MAX)),
            ("e", FieldValue::Float(f64::NAN)),
            ("f", FieldValue::Float(f64::from_bits(0xfff8_0000_dead_beef))),
            ("g", FieldValue::Float(f64::NEG_INFINITY)),
            ("h", FieldValue::Float(f64::INFINITY)),
            ("i", FieldValue::Integer(i64::MIN)),
            ("j", FieldValue::Unsigned(u64::MAX)),
            ("k", FieldValue::Boolean(true)),
            ("l", FieldValue::Boolean(false)),
            ("m \"x\\\",}\n", FieldValue::Text("\"},{\\\\\" ä\u{1}\u{202e}".into())),
            ("n", FieldValue::Text("".into())),
            ("o", FieldValue::Text("NaN".into())),
        ];
        let mut text = String::new();
        for (name, value) in &values {
            put_field(&mut text, name, value.borrow());
        }
        text.push('}');
        let kind =
            |name: &str| values.iter().find(|(of, _)| *of == name).map(|(_, value)| value.borrow().kind());
        let mut found = Vec::new();
        each_field(&text, kind, |name, value| found.push((name.to_owned(), value))).unwrap();
        assert!(values.iter().map(|(name, value)| (name.to_string(), value.clone())).eq(found));
        let is_json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(is_json["j"], u64::MAX);
        for length in 0..text.len() {
            if text.is_char_boundary(length) {
                assert_eq!(each_field(&text[..length], kind, |_, _| {}), None, "cut at {length}");
            }
        }
    }
}
