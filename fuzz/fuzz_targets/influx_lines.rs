//! Any body in line protocol gives lines or errors, one for each line at most, and every key that is
//! accepted is canonical. A line that InfluxDB 3's own parser reads too means the same to both.
#![no_main]

use exacat_model::FieldRef;
use exacat_wire::influx::{Lines, Precision, canonical_series, series_of, split_series};
use influxdb_line_protocol::{FieldValue, ParsedLine, parse_lines};
use libfuzzer_sys::fuzz_target;

/// Says whether the two parsers differ on purpose:
///
/// - A backslash before anything but a comma, a blank or a `=`. In names the other parser resolves two
///   backslashes to one; InfluxDB 1.8 keeps both.
/// - A quote in a name, or a second text in a value.
/// - A `=` that begins the value of a tag: InfluxDB 1.8 keeps it.
/// - Blanks other than spaces, and carriage returns.
/// - Times in the range that InfluxDB 1.8 keeps for itself: refused here, read there.
fn differ(line: &str) -> bool {
    let mut escaped = line.split('\\').skip(1);
    escaped.any(|rest| !rest.starts_with([',', ' ', '=']))
        || line.contains(['\t', '\r', '\0'])
        || line.contains("==")
        || line.matches('"').count() % 2 == 1
        || line.contains("\"\"\"")
}

/// Compares a line of the other parser with one of ours.
fn compare(line: &exacat_wire::influx::Line<'_, '_>, key: &str, other: &ParsedLine<'_>) {
    let (measurement, tags) = split_series(key).expect("a canonical key is split");
    assert_eq!(measurement, other.series.measurement.as_str());
    let mut others: Vec<(String, String)> = other
        .series
        .tag_set
        .iter()
        .flatten()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    others.sort();
    let tags: Vec<_> =
        tags.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    assert_eq!(tags, others);
    assert_eq!(line.time, other.timestamp);
    assert_eq!(line.fields().len(), other.field_set.len());
    for ((name, value), (other_name, other_value)) in line.fields().zip(&other.field_set) {
        assert_eq!(name, other_name.as_str());
        let other_value = match other_value {
            FieldValue::I64(value) => FieldRef::Integer(*value),
            FieldValue::U64(value) => FieldRef::Unsigned(*value),
            FieldValue::F64(value) => FieldRef::Float(*value),
            FieldValue::Boolean(value) => FieldRef::Boolean(*value),
            FieldValue::String(value) => FieldRef::Text(value.as_str()),
        };
        assert_eq!(value, other_value);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut count = 0;
    let mut lines = Lines::new(data, Precision::Nanoseconds);
    while let Some(line) = lines.next_line() {
        count += 1;
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                assert!(error.to_string().starts_with("unable to parse '"));
                continue;
            }
        };
        assert!(line.fields().len() > 0);
        let mut key = String::new();
        if canonical_series(line.series, &mut key).is_err() {
            continue;
        }
        let (measurement, tags) = split_series(&key).expect("a canonical key is split");
        assert_eq!(series_of(&measurement, &tags).as_deref(), Ok(key.as_str()));
    }
    assert!(count <= 1 + data.iter().filter(|byte| **byte == b'\n').count());

    // One line by itself, for the other parser.
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(text) = text.lines().next() else { return };
    if differ(text) {
        return;
    }
    let mut lines = Lines::new(text.as_bytes(), Precision::Nanoseconds);
    let (Some(Ok(line)), Some(Ok(other))) = (lines.next_line(), parse_lines(text).next()) else { return };
    let mut key = String::new();
    if canonical_series(line.series, &mut key).is_ok() {
        compare(&line, &key, &other);
    }
});
