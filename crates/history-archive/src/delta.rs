//! The Delta log: which files of the archive count.
//!
//! Each commit is a file `_delta_log/VERSION.json`, with 20 digits, of one action in JSON on each line. It is
//! written only if there is none of that version, so two writers never make the same commit.

use std::collections::BTreeMap;

use bytes::Bytes;
use exacat_disk::corrupt;
use exacat_history::ArchivedFile;
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use serde_json::{Value, json};

use crate::place::Place;
use crate::schema;
use crate::writer::escaped;

/// Folder of the log.
pub(crate) const FOLDER: &str = "_delta_log";
/// Times that a commit is decided anew because another was made meanwhile.
const TRIES: usize = 5;

/// State of the log: the sum of its commits.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeltaLog {
    /// Version of the next commit.
    next: u64,
    /// Identity of the table; none before the first commit.
    id: Option<String>,
    /// Files that count, with their lengths.
    pub live: BTreeMap<String, u64>,
    /// Files that no longer count, with the time since when.
    pub removed: BTreeMap<String, i64>,
}

/// Returns the identity of the table of a history.
fn table_id(history: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(history));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn commit_path(version: u64) -> String {
    format!("{FOLDER}/{version:020}.json")
}

/// Returns a path as Delta has it: escaped as in an address.
fn address_of(path: &str) -> String {
    path.replace('%', "%25")
}

fn path_of(address: &str) -> String {
    address.replace("%25", "%")
}

/// Returns the values of the folders of a path: group and day.
fn partition_values(path: &str) -> Value {
    let folder = |name: &str| {
        path.split('/').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    json!({"group": unescaped(folder("group")), "day": folder("day")})
}

/// Returns the name that was [`escaped`].
fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let code = || u8::from_str_radix(std::str::from_utf8(behind.get(..2)?).ok()?, 16).ok();
        match (*first == b'%').then(code).flatten() {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    let name = String::from_utf8_lossy(&bytes).into_owned();
    debug_assert_eq!(escaped(&name), text);
    name
}

fn time_text(micros: i64) -> String {
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    // Statistics of Delta have milliseconds.
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn add(file: &ArchivedFile, now: TimeMs) -> Value {
    let (first, last) =
        (file.times.0.div_euclid(1_000_000) * 1000, file.times.1.div_euclid(1_000_000) * 1000);
    let stats = json!({
        "numRecords": file.records,
        "minValues": {"element": file.elements.0, "time": time_text(first)},
        // Cut to milliseconds, so the next one bounds it.
        "maxValues": {"element": file.elements.1, "time": time_text(last + 1000)},
    });
    json!({"add": {
        "path": address_of(&file.path),
        "partitionValues": partition_values(&file.path),
        "size": file.bytes,
        "modificationTime": now.0,
        "dataChange": true,
        "stats": stats.to_string(),
    }})
}

fn remove(path: &str, bytes: u64, now: TimeMs) -> Value {
    json!({"remove": {
        "path": address_of(path),
        "deletionTimestamp": now.0,
        "dataChange": true,
        "extendedFileMetadata": true,
        "partitionValues": partition_values(path),
        "size": bytes,
    }})
}

fn commit_info(operation: &str, now: TimeMs) -> Value {
    let engine = concat!("exacat/", env!("CARGO_PKG_VERSION"));
    json!({"commitInfo": {"timestamp": now.0, "operation": operation, "operationParameters": {}, "engineInfo": engine}})
}

impl DeltaLog {
    /// Reads the log.
    pub(crate) fn read(place: &Place) -> Result<Self> {
        let mut log = DeltaLog::default();
        let mut versions: Vec<u64> = Vec::new();
        for object in place.list(FOLDER)? {
            let name = object.path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/'));
            versions.extend(name.and_then(|name| name.strip_suffix(".json")?.parse::<u64>().ok()));
        }
        versions.sort_unstable();
        for version in versions {
            let path = commit_path(version);
            if version != log.next {
                let what =
                    format!("commit {version} follows where {} should: the log is not whole", log.next);
                return Err(corrupt(&place.name_of(&path), 0, what));
            }
            let bytes = place.read_all(&path)?;
            log.apply(&bytes).map_err(|what| corrupt(&place.name_of(&path), 0, what))?;
        }
        Ok(log)
    }

    /// Applies a commit.
    fn apply(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        for line in text.lines().filter(|line| !line.is_empty()) {
            let action: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
            let path = |action: &Value| action["path"].as_str().map(path_of).ok_or("a file without a path");
            if let Some(add) = action.get("add") {
                let path = path(add)?;
                self.removed.remove(&path);
                self.live.insert(path, add["size"].as_u64().unwrap_or_default());
            } else if let Some(remove) = action.get("remove") {
                let path = path(remove)?;
                self.live.remove(&path);
                self.removed.insert(path, remove["deletionTimestamp"].as_i64().unwrap_or_default());
            } else if let Some(metadata) = action.get("metaData") {
                self.id = metadata["id"].as_str().map(str::to_owned);
            }
        }
        self.next += 1;
        Ok(())
    }

    /// Returns the commit after which exactly these files count; none if they do so already.
    fn commit_for(&self, history: [u8; 16], now: TimeMs, files: &[ArchivedFile]) -> Option<Vec<u8>> {
        let wanted: BTreeMap<&str, &ArchivedFile> = files.iter().map(|file| (&*file.path, file)).collect();
        let mut actions = Vec::new();
        if self.id.is_none() {
            actions.push(json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}));
            actions.push(json!({"metaData": {
                "id": table_id(history),
                "name": "history",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema::delta().to_string(),
                "partitionColumns": ["group", "day"],
                "configuration": {},
                "createdTime": now.0,
            }}));
        }
        let gone = self.live.iter().filter(|(path, _)| !wanted.contains_key(path.as_str()));
        let new = wanted.values().filter(|file| !self.live.contains_key(&file.path));
        let before = actions.len();
        actions.extend(new.map(|file| add(file, now)));
        let added = actions.len() - before;
        actions.extend(gone.map(|(path, bytes)| remove(path, *bytes, now)));
        if actions.len() == before {
            return None;
        }
        actions.insert(0, commit_info(if added > 0 { "WRITE" } else { "DELETE" }, now));
        let lines = actions.iter().map(|action| format!("{action}\n"));
        Some(lines.collect::<String>().into_bytes())
    }

    /// Makes exactly these files count, by one commit.
    pub(crate) fn publish(
        &mut self,
        place: &Place,
        history: [u8; 16],
        now: TimeMs,
        files: &[ArchivedFile],
    ) -> Result<()> {
        for _ in 0..TRIES {
            if let Some(id) = self.id.as_ref().filter(|id| **id != table_id(history)) {
                let what =
                    format!("it belongs to another history, {id}: give each history an archive of its own");
                return Err(Error::new(ErrorKind::Conflict, format!("{}: {what}", place.name_of(FOLDER))));
            }
            let Some(bytes) = self.commit_for(history, now, files) else { return Ok(()) };
            let applied = bytes.clone();
            if place.put_new(&commit_path(self.next), Bytes::from(bytes))? {
                let path = commit_path(self.next);
                return self.apply(&applied).map_err(|what| corrupt(&place.name_of(&path), 0, what));
            }
            // Another commit, or this one whose answer was lost.
            *self = DeltaLog::read(place)?;
        }
        let what = format!("{}: other writers commit all the time", place.name_of(FOLDER));
        Err(Error::new(ErrorKind::Unavailable, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ArchivedFile {
        ArchivedFile {
            path: path.to_owned(),
            bytes: 1000,
            rows: 7,
            records: 9,
            digest: [1; 16],
            elements: (3, 5),
            times: (1_700_000_000_123_456_789, 1_700_000_001_000_000_000),
        }
    }

    /// The commits have exactly these actions: programs of others read them.
    #[test]
    fn commits_are_the_golden_ones() {
        let mut log = DeltaLog::default();
        let one = file("group=d%C3%A9t/day=2023-11-14/part-1.parquet");
        let bytes = log.commit_for([0xab; 16], TimeMs(5), std::slice::from_ref(&one)).unwrap();
        log.apply(&bytes).unwrap();
        let second = log.commit_for([0xab; 16], TimeMs(6), &[file("group=g/day=2023-11-15/part-2.parquet")]);
        let text = String::from_utf8([bytes, second.unwrap()].concat()).unwrap();
        let golden = include_str!("tests/golden_commits.txt");
        let actions = |text: &str| -> Vec<Value> {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!(actions(&text), actions(golden), "{text}");
        assert_eq!(log.commit_for([0xab; 16], TimeMs(6), &[one]), None);
    }

    /// A damaged commit is refused.
    #[test]
    fn damaged_commit_is_refused() {
        let mut log = DeltaLog::default();
        assert!(log.apply(b"{\"add\":{}}\n").is_err());
        assert!(log.apply(b"{\"add\":").is_err());
        assert!(log.apply(&[0xff]).is_err());
    }
}
