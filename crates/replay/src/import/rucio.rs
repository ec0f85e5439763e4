//! Rucio traces: an object of JSON in each line, as pilots send them and indices of them return them.

use exacat_exchange::error::Result;
use exacat_exchange::reject::{Complaint, Reason};
use md5::{Digest, Md5};
use serde_json::Value;

use super::Taking;
use super::time::parse_time_us;
use crate::trace::AccessRow;
use crate::trace::reads::Reads;

/// Kinds of traces that read a file. The others are uploads.
const READING: [&str; 4] = ["get_sm", "get_sm_a", "get_es", "download"];

/// Reader of Rucio traces.
#[derive(Default)]
pub(super) struct Rucio {
    name: String,
}

/// Returns the first of these fields that is there.
fn field<'a>(of: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| of.get(name)).filter(|value| !value.is_null())
}

fn text<'a>(of: &'a Value, names: &[&str]) -> &'a str {
    field(of, names).and_then(Value::as_str).unwrap_or_default()
}

fn bad(reason: Reason, what: &str) -> Complaint {
    Complaint::new(reason, what)
}

/// Returns the path that Rucio's hash algorithm gives a file below the prefix of a storage element.
fn hashed_path(scope: &str, name: &str) -> String {
    let sum = Md5::digest(format!("{scope}:{name}").as_bytes());
    let is_nested = scope.starts_with("user") || scope.starts_with("group");
    let scope = if is_nested { scope.replace('.', "/") } else { scope.to_owned() };
    format!("{scope}/{:02x}/{:02x}/{name}", sum[0], sum[1])
}

impl Rucio {
    pub(super) fn take(&mut self, taking: &mut Taking<'_>, line: &str, place: (u64, &[u8])) -> Result<()> {
        let value: Value = match serde_json::from_str(line) {
            Ok(value) => value,
            Err(_) => return taking.take(Err(bad(Reason::BadRow, "the row is no JSON")), 1, place),
        };
        // An index wraps its documents.
        let of = field(&value, &["_source", "payload"]).unwrap_or(&value);
        let kind = text(of, &["eventType", "event_type", "event"]);
        if !kind.is_empty() && !READING.contains(&kind) {
            taking.counts.rows += 1;
            taking.counts.other += 1;
            return Ok(());
        }
        let is_hashed = taking.settings.hashed_paths;
        let row = self.row(of, is_hashed);
        taking.take(row, 1, place)
    }

    fn row<'a>(&'a mut self, of: &'a Value, is_hashed: bool) -> super::Row<'a> {
        let (scope, name) = (text(of, &["scope"]), text(of, &["filename", "name"]));
        if name.is_empty() {
            return Err(bad(Reason::NoLfn, "the trace names no file"));
        }
        self.name = match (scope, is_hashed) {
            ("", _) => name.to_owned(),
            (scope, true) => hashed_path(scope, name),
            (scope, false) => format!("{scope}/{name}"),
        };
        let size = field(of, &["filesize", "file_size", "bytes"]);
        let size = match size {
            None => 0,
            Some(size) => size
                .as_u64()
                .or_else(|| size.as_str()?.parse().ok())
                .ok_or_else(|| bad(Reason::BadSize, "the size is no number of bytes"))?,
        };
        let times = ["timeStart", "time_start", "traceTimeentryUnix", "relativeStart", "timestamp"];
        let time =
            field(of, &times).ok_or_else(|| bad(Reason::BadTime, "the trace has no time of its start"))?;
        let time = match time {
            Value::String(text) => parse_time_us(text),
            Value::Number(number) => parse_time_us(&number.to_string()),
            _ => Err("the time cannot be read"),
        };
        let sum = text(of, &["adler32"]);
        let adler32 = match sum {
            "" => None,
            sum => Some(
                u32::from_str_radix(sum, 16)
                    .map_err(|_| bad(Reason::BadChecksum, "the checksum has no 8 hexadecimal digits"))?,
            ),
        };
        Ok(AccessRow {
            time_us: time.map_err(|what| bad(Reason::BadTime, what))?,
            name: &self.name,
            size,
            adler32,
            site: text(of, &["localSite", "local_site", "site"]),
            dataset: text(of, &["dataset"]),
            reads: Reads::Whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of a file at a site of Rucio, as its documents have it for this scope and name.
    #[test]
    fn hashed_paths_are_those_of_rucio() {
        let sum = Md5::digest(b"mc16_13TeV:EVNT.1.root");
        let expected = format!("mc16_13TeV/{:02x}/{:02x}/EVNT.1.root", sum[0], sum[1]);
        assert_eq!(hashed_path("mc16_13TeV", "EVNT.1.root"), expected);
        assert!(hashed_path("user.jdoe", "a").starts_with("user/jdoe/"));
    }
}
