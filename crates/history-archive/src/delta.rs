//! The Delta log: which files of the archive count.
//!
//! Each commit is a file `_delta_log/VERSION.json`, with 20 digits, of one action in JSON on each line. It is
//! written only if there is none of that version, so two writers never make the same commit.
//!
//! After some commits a [checkpoint] has the state so far. Commits stay, for time travel; a reader needs
//! those behind the newest checkpoint.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use exacat_disk::corrupt;
use exacat_history::{ArchiveOwner, ArchivedFile, VisibleFile};
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use serde_json::{Value, json};

use crate::checkpoint::{self, FileAction, TableState};
use crate::owner;
use crate::place::Place;
use crate::schema;
use crate::writer::{day_number, escaped};

/// Folder of the log.
pub(crate) const FOLDER: &str = "_delta_log";
/// Times that a commit is decided anew because another was made meanwhile.
const TRIES: usize = 5;

/// Commits after which a checkpoint is written. Delta's own default.
pub(crate) const CHECKPOINT_EVERY: u64 = 10;
/// Time for which a file stays that no longer counts: readers may have begun before. Delta's own default.
pub const KEEP_REMOVED: Duration = Duration::from_secs(7 * 86_400);
/// Versions of the protocol for readers and writers.
const PROTOCOL: (i32, i32) = (1, 2);
/// Object that names the newest checkpoint.
const LAST_CHECKPOINT: &str = "_delta_log/_last_checkpoint";

/// A file that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveFile {
    pub bytes: u64,
    /// Time since when, in milliseconds.
    added: i64,
    /// Statistics, as JSON.
    stats: Box<str>,
}

/// A file that no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemovedFile {
    bytes: u64,
    /// Time since when, in milliseconds.
    pub since: i64,
}

/// State of the log: the sum of its commits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DeltaLog {
    /// Version of the next commit.
    next: u64,
    /// The action `metaData`; none before the first commit.
    metadata: Option<Value>,
    protocol: (i32, i32),
    /// Files that count.
    pub live: BTreeMap<String, LiveFile>,
    /// Files that no longer count.
    pub removed: BTreeMap<String, RemovedFile>,
    /// Commits that the newest checkpoint has.
    in_checkpoint: u64,
}

/// Returns the identity of the table of a history.
pub(crate) fn table_id(history: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(history));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn commit_path(version: u64) -> String {
    format!("{FOLDER}/{version:020}.json")
}

fn checkpoint_path(version: u64) -> String {
    format!("{FOLDER}/{version:020}.checkpoint.parquet")
}

/// Returns a path as Delta has it: escaped as in an address.
fn address_of(path: &str) -> String {
    path.replace('%', "%25")
}

fn path_of(address: &str) -> String {
    address.replace("%25", "%")
}

/// Returns the values of the folders of a path: group and day.
fn folder_values(path: &str) -> Vec<(&'static str, String)> {
    let folder = |name: &str| {
        path.split('/').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    vec![("group", unescaped(folder("group"))), ("day", folder("day").to_owned())]
}

fn partition_values(path: &str) -> Value {
    folder_values(path).into_iter().collect()
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

/// Returns the bytes of a commit: an action on each line.
fn commit_of(actions: &[Value]) -> Vec<u8> {
    actions.iter().map(|action| format!("{action}\n")).collect::<String>().into_bytes()
}

impl DeltaLog {
    /// Reads the log: the newest checkpoint that is whole, and the commits behind it.
    pub(crate) fn read(place: &Place) -> Result<Self> {
        let (mut commits, mut checkpoints): (Vec<u64>, Vec<u64>) = Default::default();
        for object in place.list(FOLDER)? {
            let name = object.path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/'));
            let version = |end: &str| name?.strip_suffix(end)?.parse::<u64>().ok();
            commits.extend(version(".json"));
            checkpoints.extend(version(".checkpoint.parquet"));
        }
        commits.sort_unstable();
        checkpoints.sort_unstable();
        let mut log = DeltaLog::default();
        for version in checkpoints.into_iter().rev() {
            let path = checkpoint_path(version);
            match checkpoint::decode(place.read_all(&path)?) {
                Ok(state) => {
                    log = DeltaLog::of(version, state);
                    break;
                }
                // The commits say the same, if they are still there.
                Err(why) => tracing::warn!("{}: {why}; older ones are read instead", place.name_of(&path)),
            }
        }
        let behind = commits.into_iter().filter(|version| *version >= log.in_checkpoint).collect::<Vec<_>>();
        for version in behind {
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

    /// Returns the state that a checkpoint has.
    fn of(version: u64, state: TableState) -> Self {
        let length = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        let live = |file: FileAction| {
            let stats = file.stats.into();
            (path_of(&file.address), LiveFile { bytes: length(file.bytes), added: file.since, stats })
        };
        let removed = |file: FileAction| {
            (path_of(&file.address), RemovedFile { bytes: length(file.bytes), since: file.since })
        };
        let next = version.saturating_add(1);
        DeltaLog {
            next,
            metadata: Some(state.metadata),
            protocol: state.protocol,
            live: state.live.into_iter().map(live).collect(),
            removed: state.removed.into_iter().map(removed).collect(),
            in_checkpoint: next,
        }
    }

    /// Returns the state for a checkpoint. Removed files that nobody reads any more are left out.
    fn state(&self, now: TimeMs) -> TableState {
        let whole = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let action = |path: &str, bytes: u64, since: i64| FileAction {
            address: address_of(path),
            partition_values: folder_values(path),
            bytes: whole(bytes),
            since,
            stats: String::new(),
        };
        let kept = whole(now.0).saturating_sub(KEEP_REMOVED.as_millis() as i64);
        let live = self.live.iter().map(|(path, file)| FileAction {
            stats: file.stats.to_string(),
            ..action(path, file.bytes, file.added)
        });
        let removed = self.removed.iter().filter(|(_, file)| file.since >= kept);
        TableState {
            metadata: self.metadata.clone().unwrap_or_default(),
            protocol: self.protocol,
            live: live.collect(),
            removed: removed.map(|(path, file)| action(path, file.bytes, file.since)).collect(),
        }
    }

    /// Writes a checkpoint, if there are enough commits behind the last one. The commits count without it, so
    /// a failure is only logged, and the next commit tries again.
    fn put_checkpoint(&mut self, place: &Place, now: TimeMs, every: u64) {
        if self.protocol != PROTOCOL || self.next - self.in_checkpoint < every {
            return;
        }
        let version = self.next - 1;
        let path = checkpoint_path(version);
        let failed = |why: &dyn std::fmt::Display| {
            tracing::warn!("{}: {why}; the next commit tries again", place.name_of(&path));
        };
        let state = self.state(now);
        let (actions, bytes) = match checkpoint::encode(&state) {
            Ok(encoded) => encoded,
            Err(error) => return failed(&error),
        };
        let last = json!({
            "version": version, "size": actions, "sizeInBytes": bytes.len(), "numOfAddFiles": state.live.len(),
        });
        // One of this version has the same state.
        let put = place.put_new(&path, bytes.into());
        match put.and_then(|_| place.put(LAST_CHECKPOINT, last.to_string().into())) {
            Ok(()) => self.in_checkpoint = self.next,
            Err(error) => failed(&error),
        }
    }

    /// Applies a commit.
    fn apply(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        for line in text.lines().filter(|line| !line.is_empty()) {
            let action: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
            let path = |action: &Value| action["path"].as_str().map(path_of).ok_or("a file without a path");
            let time = |value: &Value| value.as_i64().unwrap_or_default();
            if let Some(add) = action.get("add") {
                let path = path(add)?;
                self.removed.remove(&path);
                let (bytes, added) =
                    (add["size"].as_u64().unwrap_or_default(), time(&add["modificationTime"]));
                let stats = add["stats"].as_str().unwrap_or_default().into();
                self.live.insert(path, LiveFile { bytes, added, stats });
            } else if let Some(remove) = action.get("remove") {
                let path = path(remove)?;
                let known = self.live.remove(&path).map(|file| file.bytes);
                let bytes = known.or(remove["size"].as_u64()).unwrap_or_default();
                self.removed.insert(path, RemovedFile { bytes, since: time(&remove["deletionTimestamp"]) });
            } else if let Some(metadata) = action.get("metaData") {
                self.metadata = Some(metadata.clone());
            } else if let Some(protocol) = action.get("protocol") {
                let version = |name: &str| protocol[name].as_i64().and_then(|of| of.try_into().ok());
                let versions = version("minReaderVersion").zip(version("minWriterVersion"));
                self.protocol = versions.ok_or("a protocol without versions")?;
            }
        }
        self.next += 1;
        Ok(())
    }

    /// Returns the identity of the table; none before the first commit.
    fn id(&self) -> Option<&str> {
        self.metadata.as_ref()?["id"].as_str()
    }

    /// Checks that the table is that of a history, or has no commit yet.
    pub(crate) fn check_history(&self, place: &Place, history: [u8; 16]) -> Result<()> {
        match self.id().filter(|id| *id != table_id(history)) {
            None => Ok(()),
            Some(id) => {
                let what =
                    format!("it belongs to another history, {id}: give each history an archive of its own");
                Err(Error::new(ErrorKind::Conflict, format!("{}: {what}", place.name_of(FOLDER))))
            }
        }
    }

    /// Returns the files that count, with their groups and days.
    pub(crate) fn visible(&self, place: &Place) -> Result<Vec<VisibleFile>> {
        let file = |(path, file): (&String, &LiveFile)| {
            let mut values = folder_values(path).into_iter().map(|(_, value)| value);
            let (group, day) = values.next().zip(values.next())?;
            Some(VisibleFile { path: path.clone(), bytes: file.bytes, group, day: day_number(&day)? })
        };
        let known = |of: (&String, &LiveFile)| {
            file(of).ok_or_else(|| corrupt(&place.name_of(of.0), 0, "the folders name no group and day"))
        };
        self.live.iter().map(known).collect()
    }

    /// Returns the actions that begin a table; none if it has a commit.
    fn beginning(&self, history: [u8; 16], now: TimeMs) -> Vec<Value> {
        if self.metadata.is_some() {
            return Vec::new();
        }
        let (reader, writer) = PROTOCOL;
        vec![
            json!({"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}}),
            json!({"metaData": {
                "id": table_id(history),
                "name": "history",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema::delta().to_string(),
                "partitionColumns": ["group", "day"],
                "configuration": {},
                "createdTime": now.0,
            }}),
        ]
    }

    /// Returns the commit after which exactly these files count; none if they do so already.
    fn commit_for(&self, history: [u8; 16], now: TimeMs, files: &[ArchivedFile]) -> Option<Vec<u8>> {
        let wanted: BTreeMap<&str, &ArchivedFile> = files.iter().map(|file| (&*file.path, file)).collect();
        let mut actions = self.beginning(history, now);
        let gone = self.live.iter().filter(|(path, _)| !wanted.contains_key(path.as_str()));
        let new = wanted.values().filter(|file| !self.live.contains_key(&file.path));
        let before = actions.len();
        actions.extend(new.map(|file| add(file, now)));
        let added = actions.len() - before;
        actions.extend(gone.map(|(path, file)| remove(path, file.bytes, now)));
        if actions.len() == before {
            return None;
        }
        actions.insert(0, commit_info(if added > 0 { "WRITE" } else { "DELETE" }, now));
        Some(commit_of(&actions))
    }

    /// Makes a commit that changes no file. A commit that another writer has decided before can no longer be
    /// made: that writer reads the log again, and then the owner.
    pub(crate) fn fence(&mut self, place: &Place, history: [u8; 16], now: TimeMs) -> Result<()> {
        for _ in 0..TRIES {
            self.check_history(place, history)?;
            let mut actions = self.beginning(history, now);
            actions.insert(0, commit_info("ADOPT", now));
            let bytes = commit_of(&actions);
            if place.put_new(&commit_path(self.next), bytes.clone().into())? {
                let path = commit_path(self.next);
                return self.apply(&bytes).map_err(|what| corrupt(&place.name_of(&path), 0, what));
            }
            *self = DeltaLog::read(place)?;
        }
        Err(busy(place))
    }

    /// Makes exactly these files count, by one commit.
    pub(crate) fn publish(
        &mut self,
        place: &Place,
        caller: &ArchiveOwner,
        now: TimeMs,
        files: &[ArchivedFile],
        checkpoint_every: u64,
    ) -> Result<()> {
        for _ in 0..TRIES {
            self.check_history(place, caller.history)?;
            let Some(bytes) = self.commit_for(caller.history, now, files) else { return Ok(()) };
            // After the log was read: a new owner makes a commit of its own, and this one then fails.
            owner::check(place, caller)?;
            let applied = bytes.clone();
            if place.put_new(&commit_path(self.next), Bytes::from(bytes))? {
                let path = commit_path(self.next);
                self.apply(&applied).map_err(|what| corrupt(&place.name_of(&path), 0, what))?;
                self.put_checkpoint(place, now, checkpoint_every);
                return Ok(());
            }
            // Another commit, or this one whose answer was lost.
            *self = DeltaLog::read(place)?;
        }
        Err(busy(place))
    }
}

fn busy(place: &Place) -> Error {
    let what = format!("{}: other writers commit all the time", place.name_of(FOLDER));
    Error::new(ErrorKind::Unavailable, what)
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

    fn place() -> Place {
        match std::env::var("EXACAT_CHECKPOINT_PLACE") {
            Ok(directory) => Place::open(&directory).unwrap(),
            Err(_) => {
                Place::of(std::sync::Arc::new(object_store::memory::InMemory::new()), "", "memory").unwrap()
            }
        }
    }

    /// A checkpoint follows each tenth commit, and has the same state as the commits. It is read when these
    /// are gone; a damaged one is not, while they are there. Files that were removed long ago are left out.
    #[test]
    fn checkpoint_has_the_state_of_the_commits() {
        let place = place();
        let caller = crate::tests::owner(1);
        owner::put_new(&place, &caller).unwrap();
        let (day, mut log) = (86_400_000, DeltaLog::default());
        let exists = |path: &str| place.list(FOLDER).unwrap().iter().any(|object| object.path == path);
        let commit = |log: &mut DeltaLog, number: u64| {
            // The file before counts, too; the others are removed.
            let files = [number.saturating_sub(1), number]
                .map(|number| file(&format!("group=d%C3%A9t/day=2026-01-01/part-{number}.parquet")));
            let files = if number == 0 { &files[1..] } else { &files[..] };
            log.publish(&place, &caller, TimeMs(day * (100 + number)), files, CHECKPOINT_EVERY).unwrap();
        };
        (0..CHECKPOINT_EVERY - 1).for_each(|number| commit(&mut log, number));
        assert!(!exists(&checkpoint_path(CHECKPOINT_EVERY - 2)) && !exists(LAST_CHECKPOINT));
        (CHECKPOINT_EVERY - 1..2 * CHECKPOINT_EVERY + 3).for_each(|number| commit(&mut log, number));
        let (first, newest) = (CHECKPOINT_EVERY - 1, 2 * CHECKPOINT_EVERY - 1);
        assert!(exists(&checkpoint_path(first)) && exists(&checkpoint_path(newest)));
        let last: Value = serde_json::from_slice(&place.read_all(LAST_CHECKPOINT).unwrap()).unwrap();
        let bytes = place.read_all(&checkpoint_path(newest)).unwrap();
        // Protocol, metadata, two files that count, and those removed in the last seven days.
        let expected = json!({"version": newest, "size": 12, "sizeInBytes": bytes.len(), "numOfAddFiles": 2});
        assert_eq!(last, expected);
        let kept = |log: &DeltaLog| {
            let since = day as i64 * (100 + newest as i64 - 7);
            let removed = log.removed.iter().filter(|(_, file)| file.since >= since);
            let removed: Vec<_> = removed.map(|(path, file)| (path.clone(), *file)).collect();
            (log.next, log.metadata.clone(), log.protocol, log.live.clone(), removed)
        };
        let read = DeltaLog::read(&place).unwrap();
        assert_eq!(kept(&read), kept(&log));
        assert_eq!(read.removed.len(), kept(&log).4.len());
        // Damaged: the older one and the commits behind it say the same.
        place.put(&checkpoint_path(newest), bytes.slice(..bytes.len() / 2)).unwrap();
        assert_eq!(kept(&DeltaLog::read(&place).unwrap()), kept(&log));
        place.put(&checkpoint_path(newest), bytes).unwrap();
        (0..=newest).for_each(|version| place.delete(&commit_path(version)).unwrap());
        assert_eq!(kept(&DeltaLog::read(&place).unwrap()), kept(&log));
        place.delete(&commit_path(newest + 1)).unwrap();
        let error = DeltaLog::read(&place).unwrap_err();
        assert!(error.message.contains("the log is not whole"), "{error}");
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
