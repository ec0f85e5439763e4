//! Keys of elements: the name of a measurement with its tags.
//!
//! In a key, a backslash stands before each comma and blank of a name, and before each `=` of a tag. Every
//! other backslash is itself. So a name has one spelling, apart from a `=` that begins a tag's value.

use std::borrow::Cow;

use exacat_model::limits::{HISTORY_KEY_BYTES_MAX, HISTORY_TAGS_MAX};

use super::reason::Reason;

/// Characters that a backslash precedes in the name of a measurement.
const IN_MEASUREMENT: &[u8] = b", ";
/// Characters that a backslash precedes in the key or value of a tag.
const IN_TAG: &[u8] = b", =";

/// Returns the place of the first of `wanted` at or after `at` that no backslash precedes.
fn unescaped(bytes: &[u8], mut at: usize, wanted: &[u8]) -> Option<usize> {
    while let Some(byte) = bytes.get(at) {
        if wanted.contains(byte) && (at == 0 || bytes[at - 1] != b'\\') {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Removes the backslashes before `wanted` characters.
pub(super) fn without_escapes<'a>(text: &'a str, wanted: &[u8]) -> Cow<'a, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    push_without_escapes(text, wanted, &mut out);
    Cow::Owned(out)
}

/// Adds a text to `out`, without the backslashes before `wanted` characters.
pub(super) fn push_without_escapes(text: &str, wanted: &[u8], out: &mut String) {
    let bytes = text.as_bytes();
    let (mut from, mut at) = (0, 0);
    while let Some(place) = memchr::memchr(b'\\', &bytes[at..]) {
        let place = at + place;
        at = place + 1;
        if bytes.get(at).is_some_and(|next| wanted.contains(next)) {
            out.push_str(&text[from..place]);
            // The character itself may be a backslash, which begins nothing then.
            from = at;
            at += 1;
        }
    }
    out.push_str(&text[from..]);
}

/// Adds a text to `out`, with a backslash before `wanted` characters.
fn push_with_escapes(text: &str, wanted: &[u8], out: &mut String) {
    for piece in text.split_inclusive(|char: char| char.is_ascii() && wanted.contains(&(char as u8))) {
        let split =
            piece.len() - usize::from(piece.as_bytes().last().is_some_and(|last| wanted.contains(last)));
        out.push_str(&piece[..split]);
        if split < piece.len() {
            out.push('\\');
            out.push_str(&piece[split..]);
        }
    }
}

/// Adds a tag to a key.
pub(super) fn push_tag(name: &str, value: &str, key: &mut String) {
    key.push(',');
    push_with_escapes(name, IN_TAG, key);
    key.push('=');
    push_with_escapes(value, IN_TAG, key);
}

/// Keys and values of tags, as a key has them.
type Spelled<'a> = Vec<(&'a str, &'a str)>;

/// Splits a key into the measurement and the tags, as they are spelled. Refuses what InfluxDB refuses.
fn parts(key: &str) -> Result<(&str, Spelled<'_>), Reason> {
    let bytes = key.as_bytes();
    if matches!(bytes.first(), None | Some(b',')) {
        return Err(Reason::MissingMeasurement);
    }
    let mut tags = Vec::new();
    let Some(comma) = unescaped(bytes, 0, b",") else { return Ok((key, tags)) };
    let mut at = comma + 1;
    loop {
        if matches!(bytes.get(at), None | Some(b' ' | b',' | b'=')) {
            return Err(Reason::MissingTagKey);
        }
        let equals = unescaped(bytes, at, b"=, ").filter(|place| bytes[*place] == b'=');
        let value = equals.ok_or(Reason::MissingTagValue)? + 1;
        if matches!(bytes.get(value), None | Some(b' ' | b',')) {
            return Err(Reason::MissingTagValue);
        }
        if tags.len() == HISTORY_TAGS_MAX {
            return Err(Reason::TooManyTags);
        }
        // A `=` may begin a value.
        let end = unescaped(bytes, value + 1, IN_TAG);
        if end.is_some_and(|end| bytes[end] == b'=') {
            return Err(Reason::InvalidTagFormat);
        }
        tags.push((&key[at..value - 1], &key[value..end.unwrap_or(key.len())]));
        match end {
            Some(end) if bytes[end] == b',' => at = end + 1,
            _ => return Ok((&key[..comma], tags)),
        }
    }
}

/// Adds the canonical key of an element to `out`: tags in the order of their keys, one spelling. `raw` is
/// the key as a line has it ([`Line::series`](super::Line::series)).
pub fn canonical_series(raw: &str, out: &mut String) -> Result<(), Reason> {
    if raw.len() > HISTORY_KEY_BYTES_MAX {
        return Err(Reason::KeyTooLong(raw.len()));
    }
    let (measurement, mut tags) = parts(raw)?;
    let name = |tag: &(&str, &str)| without_escapes(tag.0, IN_TAG).into_owned();
    if !tags.is_sorted_by_key(name) {
        tags.sort_by_cached_key(name);
    }
    // A key has one spelling.
    if tags.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Reason::DuplicateTags);
    }
    // A `=` that begins a value gets its backslash here, which may make the key too long.
    let added = tags.iter().filter(|(_, value)| value.starts_with('=')).count();
    if raw.len() + added > HISTORY_KEY_BYTES_MAX {
        return Err(Reason::KeyTooLong(raw.len() + added));
    }
    out.push_str(measurement);
    for (key, value) in tags {
        let escape = if value.starts_with('=') { "\\" } else { "" };
        for piece in [",", key, "=", escape, value] {
            out.push_str(piece);
        }
    }
    Ok(())
}

/// Name of a measurement, and the keys and values of its tags in the order of the keys.
pub type Series<'a> = (Cow<'a, str>, Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// Splits a canonical key into the name of the measurement and the tags, without escapes.
pub fn split_series(canonical: &str) -> Result<Series<'_>, Reason> {
    let (measurement, tags) = parts(canonical)?;
    let tag = |(key, value)| (without_escapes(key, IN_TAG), without_escapes(value, IN_TAG));
    Ok((without_escapes(measurement, IN_MEASUREMENT), tags.into_iter().map(tag).collect()))
}

/// Says whether a line can carry a name.
fn is_expressible(name: &str) -> bool {
    !name.is_empty() && !name.ends_with('\\') && !name.contains('\n')
}

/// Returns the canonical key of an element. The tags may have any order; a tag without a value is left out,
/// as InfluxDB does. Refuses a name that no line can carry, so that every key can be sent as a line.
pub fn series_of<K: AsRef<str>, V: AsRef<str>>(measurement: &str, tags: &[(K, V)]) -> Result<String, Reason> {
    let refuse = |name: &str| Err(Reason::NotExpressible(name.chars().take(100).collect()));
    // At the start of a line, these would make it a comment or be left out.
    if !is_expressible(measurement) || measurement.starts_with(['#', '\t', '\0']) {
        return refuse(measurement);
    }
    let mut key = String::new();
    push_with_escapes(measurement, IN_MEASUREMENT, &mut key);
    let tags = tags.iter().map(|(key, value)| (key.as_ref(), value.as_ref()));
    let mut tags: Vec<(&str, &str)> = tags.filter(|(_, value)| !value.is_empty()).collect();
    if tags.len() > HISTORY_TAGS_MAX {
        return Err(Reason::TooManyTags);
    }
    tags.sort_unstable();
    if tags.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Reason::DuplicateTags);
    }
    for (name, value) in tags {
        if let Some(bad) = [name, value].into_iter().find(|text| !is_expressible(text)) {
            return refuse(bad);
        }
        push_tag(name, value, &mut key);
    }
    if key.len() > HISTORY_KEY_BYTES_MAX {
        return Err(Reason::KeyTooLong(key.len()));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(raw: &str) -> Result<String, Reason> {
        let mut out = String::new();
        canonical_series(raw, &mut out)?;
        let mut again = String::new();
        canonical_series(&out, &mut again).unwrap();
        assert_eq!(again, out, "not canonical");
        Ok(out)
    }

    /// One element has one key, whatever the order of its tags.
    #[test]
    fn canonical_key_has_its_tags_in_order() {
        for (raw, key) in [
            ("cpu", "cpu"),
            ("cpu,b=1,a=2", "cpu,a=2,b=1"),
            (r"EVENT,name=System1:dcs/x,alias=HV\ crate", r"EVENT,alias=HV\ crate,name=System1:dcs/x"),
            ("cpu,a==b", r"cpu,a=\=b"),
            (r"cpu,a=\=b", r"cpu,a=\=b"),
            (r"a\,b,c\ d=1,c!=2", r"a\,b,c\ d=1,c!=2"),
            (r"cpu,c!=2,c\ d=1", r"cpu,c\ d=1,c!=2"),
            (r"cpu\=load,region=east", r"cpu\=load,region=east"),
            (r"cpu,reg\\=ion=east", r"cpu,reg\\=ion=east"),
            (r"cpu,\ =east", r"cpu,\ =east"),
            (r"cpu,r=\\,\,\=east", r"cpu,r=\\,\,\=east"),
        ] {
            assert_eq!(canonical(raw).as_deref(), Ok(key), "{raw}");
        }
    }

    /// Tags that InfluxDB's own tests refuse are refused with its reason.
    #[test]
    fn tags_that_influxdb_refuses_are_refused() {
        for (raw, reason) in [
            ("", Reason::MissingMeasurement),
            (",a=1", Reason::MissingMeasurement),
            ("cpu,", Reason::MissingTagKey),
            ("cpu,,,", Reason::MissingTagKey),
            ("cpu,host=serverA,=us-east", Reason::MissingTagKey),
            (r"cpu,host=serverAa\,,=us-east", Reason::MissingTagKey),
            ("cpu,host", Reason::MissingTagValue),
            ("cpu,host,", Reason::MissingTagValue),
            ("cpu,host=", Reason::MissingTagValue),
            ("cpu,host=serverA,region", Reason::MissingTagValue),
            ("cpu,host=serverA,region=,zone=us-west", Reason::MissingTagValue),
            ("cpu,host=f=o,", Reason::InvalidTagFormat),
            (r"cpu,host=f\==o,", Reason::InvalidTagFormat),
            ("cpu,host=serverA,host=serverB", Reason::DuplicateTags),
            ("cpu,b=2,b=1,c=3", Reason::DuplicateTags),
            ("cpu,b=2,c=3,b=1", Reason::DuplicateTags),
        ] {
            assert_eq!(canonical(raw), Err(reason), "{raw}");
        }
    }

    /// Names without escapes are those of InfluxDB's own tests.
    #[test]
    fn key_is_split_into_names_without_escapes() {
        for (key, measurement, tags) in [
            (r"foo\,bar", "foo,bar", vec![]),
            (r"cpu\ load,region=east", "cpu load", vec![("region", "east")]),
            (r"cpu\=load,region=east", r"cpu\=load", vec![("region", "east")]),
            (r"cpu,region\,zone=east", "cpu", vec![("region,zone", "east")]),
            (r"cpu,reg\\=ion=east", "cpu", vec![(r"reg\=ion", "east")]),
            (r"cpu,regions=\\ east", "cpu", vec![("regions", r"\ east")]),
            (r"cpu,regions=eas\t", "cpu", vec![("regions", r"eas\t")]),
            (r"cpu,regions=\\,\,\=east", "cpu", vec![("regions", r"\,,=east")]),
            (r"cpu=load,equals\=foo=tag\=value", "cpu=load", vec![("equals=foo", "tag=value")]),
        ] {
            let (found, found_tags) = split_series(key).unwrap();
            let found_tags: Vec<_> = found_tags.iter().map(|(key, value)| (&**key, &**value)).collect();
            assert_eq!((&*found, &found_tags), (measurement, &tags), "{key}");
            assert_eq!(series_of(measurement, &tags).as_deref(), Ok(key));
        }
    }

    /// A name that no line can carry is refused, and a tag without a value left out.
    #[test]
    fn names_that_no_line_can_carry_are_refused() {
        let tag = |key, value| series_of("m", &[(key, value)]);
        assert_eq!(tag("a", "").as_deref(), Ok("m"));
        for (key, value) in [("", "x"), ("a\\", "x"), ("a", "x\\"), ("a\nb", "x"), ("a", "\n")] {
            assert!(matches!(tag(key, value), Err(Reason::NotExpressible(_))), "{key:?} {value:?}");
        }
        for measurement in ["", "#m", "\tm", "\0m", "m\\", "a\nb"] {
            let refused = series_of::<&str, &str>(measurement, &[]);
            assert!(matches!(refused, Err(Reason::NotExpressible(_))), "{measurement:?}");
        }
        assert_eq!(series_of("m", &[("b", "1"), ("a", "2"), ("b", "3")]), Err(Reason::DuplicateTags));
        assert_eq!(series_of("m", &[("b", "1"), ("a", "2")]).as_deref(), Ok("m,a=2,b=1"));
    }

    /// A key of the largest length or number of tags is accepted, and one more is refused.
    #[test]
    fn keys_are_bounded() {
        let exact = format!("m,a={}", "x".repeat(HISTORY_KEY_BYTES_MAX - 4));
        assert!(canonical(&exact).is_ok());
        assert_eq!(canonical(&format!("{exact}x")), Err(Reason::KeyTooLong(HISTORY_KEY_BYTES_MAX + 1)));
        let spelled = format!("m,a=={}", "x".repeat(HISTORY_KEY_BYTES_MAX - 5));
        assert_eq!(canonical(&spelled), Err(Reason::KeyTooLong(HISTORY_KEY_BYTES_MAX + 1)));
        let value = "x".repeat(HISTORY_KEY_BYTES_MAX - 4);
        assert!(series_of("m", &[("a", &value)]).is_ok());
        assert_eq!(series_of("mm", &[("a", &value)]), Err(Reason::KeyTooLong(HISTORY_KEY_BYTES_MAX + 1)));
        let names: Vec<_> = (0..=HISTORY_TAGS_MAX).map(|n| (format!("t{n:03}"), "v")).collect();
        let raw = |count| {
            names[..count]
                .iter()
                .fold(String::from("m"), |key, (name, value)| format!("{key},{name}={value}"))
        };
        assert_eq!(canonical(&raw(HISTORY_TAGS_MAX)), Ok(raw(HISTORY_TAGS_MAX)));
        assert_eq!(canonical(&raw(HISTORY_TAGS_MAX + 1)), Err(Reason::TooManyTags));
        assert!(series_of("m", &names[1..]).is_ok());
        assert_eq!(series_of("m", &names), Err(Reason::TooManyTags));
    }
}
