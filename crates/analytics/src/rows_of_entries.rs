//! Rows of entries, replicas and members.

use std::io;

use exacat_columnar::TableWriter;
use exacat_exchange::walk::SesByNumber;
use exacat_model::answer::{Member, Stat};
use exacat_model::{Body, Location, TimeMs};
use serde_json::{Map, Value, json};

/// Microseconds of a millisecond.
const MICROS: u64 = 1000;

/// Returns a moment in microseconds; none if it has more than 63 bits.
pub(crate) fn micros(time: TimeMs) -> Option<i64> {
    time.0.checked_mul(MICROS).and_then(|micros| i64::try_from(micros).ok())
}

/// Numbers of an entry that no column can hold.
#[derive(Default)]
struct Beyond(Option<Map<String, Value>>);

impl Beyond {
    fn note(&mut self, name: &str, value: u64) {
        self.0.get_or_insert_default().insert(name.to_owned(), json!(value));
    }

    fn long(&mut self, name: &str, value: Option<u64>) -> Option<i64> {
        let value = value?;
        let fits = i64::try_from(value).ok();
        if fits.is_none() {
            self.note(name, value);
        }
        fits
    }

    fn time(&mut self, name: &str, value: Option<TimeMs>) -> Option<i64> {
        let value = value?;
        let fits = micros(value);
        if fits.is_none() {
            self.note(name, value.0);
        }
        fits
    }
}

/// Adds the row of an entry.
pub(crate) fn entry(out: &mut TableWriter, stat: &Stat) -> io::Result<()> {
    let (entry, mut beyond) = (&stat.entry, Beyond::default());
    let file = entry.file();
    out.text(Some(stat.lfn.as_str()));
    out.text(Some(stat.lfn.split_last().map_or("/", |(parent, _)| parent)));
    out.text(Some(entry.kind().name()));
    match entry.guid() {
        Some(guid) => out.filled(|text| guid.push_text(text)),
        None => out.text(None),
    }
    out.long(entry.directory().and_then(|directory| i64::try_from(directory.0).ok()));
    out.long(beyond.long("size", entry.size()));
    out.text(Some(stat.owner.as_str()));
    out.text(Some(stat.group.as_str()));
    out.shown(entry.mode);
    out.time(beyond.time("created", Some(entry.created)));
    out.time(beyond.time("modified", Some(entry.modified)));
    out.time(beyond.time("expires", entry.expires));
    out.long(Some(i64::try_from(entry.revision.0).unwrap_or(i64::MAX)));
    out.long(beyond.long("job", file.and_then(|file| file.job)));
    out.long(file.map(|file| file.replicas.iter().filter(|replica| replica.takes_space()).count() as i64));
    out.map(|pair| {
        for checksum in file.into_iter().flat_map(|file| file.checksums.iter()) {
            pair(checksum.algorithm().name(), &Hex(checksum.digest()));
        }
    });
    out.map(|pair| entry.tags.iter().for_each(|tag| pair(tag.key.as_str(), &tag.value)));
    match &entry.body {
        Body::Link { target, .. } => out.text(Some(target.as_str())),
        _ => out.text(None),
    }
    out.long(match &entry.body {
        Body::Collection { members, .. } => i64::try_from(*members).ok(),
        _ => None,
    });
    match beyond.0 {
        Some(numbers) => out.shown(Value::Object(numbers)),
        None => out.text(None),
    }
    out.end_row()
}

/// A digest that prints as hex digits.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    /// Prints all digits at once: an export has one or two digests for each file.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        f.write_str(std::str::from_utf8(&text[..2 * self.0.len().min(32)]).unwrap_or_default())
    }
}

/// Adds the rows of an entry's replicas.
pub(crate) fn replicas(out: &mut TableWriter, stat: &Stat, ses: &SesByNumber) -> io::Result<()> {
    let Some(file) = stat.entry.file() else { return Ok(()) };
    for replica in &file.replicas {
        let se = ses.get(&replica.se.0);
        out.filled(|text| file.guid.push_text(text));
        out.text(se.map(|se| se.name.as_str()));
        out.text(se.and_then(|se| se.name.site()));
        out.text(Some(replica.state.name()));
        out.text(Some(location_name(&replica.location)));
        match &replica.location {
            Location::Explicit(pfn) => out.text(Some(pfn.as_str())),
            _ => out.text(Some(&replica.pfn(file.guid, se))),
        }
        out.long(file.size.and_then(|size| i64::try_from(size).ok()));
        out.time(micros(stat.entry.created));
        out.end_row()?;
    }
    Ok(())
}

/// Names of the ways in which a replica's place is known.
pub(crate) const DERIVED: &str = "derived";
pub(crate) const EXPLICIT: &str = "explicit";
pub(crate) const MEMBER: &str = "member";

fn location_name(location: &Location) -> &'static str {
    match location {
        Location::Derived => DERIVED,
        Location::Explicit(_) => EXPLICIT,
        Location::Member { .. } => MEMBER,
    }
}

/// Adds the rows of some members of a collection.
pub(crate) fn members(out: &mut TableWriter, collection: &Stat, items: &[Member]) -> io::Result<()> {
    for member in items {
        out.text(Some(collection.lfn.as_str()));
        match collection.entry.guid() {
            Some(guid) => out.filled(|text| guid.push_text(text)),
            None => out.text(Some("")),
        }
        out.filled(|text| member.guid.push_text(text));
        out.text(member.stat.as_ref().map(|stat| stat.lfn.as_str()));
        out.end_row()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that a column cannot hold is noted, and one bit less is not.
    #[test]
    fn number_at_the_edge_of_a_column_is_kept() {
        let mut beyond = Beyond::default();
        assert_eq!(beyond.long("size", Some(i64::MAX as u64)), Some(i64::MAX));
        assert_eq!(beyond.long("job", None), None);
        let last = TimeMs(i64::MAX as u64 / MICROS);
        assert_eq!(beyond.time("created", Some(last)), Some(i64::MAX / 1000 * 1000));
        assert!(beyond.0.is_none());
        assert_eq!(beyond.long("size", Some(i64::MAX as u64 + 1)), None);
        assert_eq!(beyond.time("expires", Some(last.plus_ms(1))), None);
        assert_eq!(beyond.time("modified", Some(TimeMs(u64::MAX))), None);
        let noted = Value::Object(beyond.0.unwrap()).to_string();
        let wanted =
            "{\"expires\":9223372036854776,\"modified\":18446744073709551615,\"size\":9223372036854775808}";
        assert_eq!(noted, wanted);
    }

    /// Digests print as they do in checksums.
    #[test]
    fn hex_has_two_digits_for_each_byte() {
        assert_eq!(Hex(&[0, 10, 255]).to_string(), "000aff");
    }
}
