//! A mirror of paths made of events alone, by the rules of docs/reference/feed.md; and the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use exacat_model::{DirId, Entry, EntryId, Lfn, Record, RecordKey};
use exacat_store::{ResolutionEnd, Store};
use serde_json::{Map, Value, json};

/// A row of the mirror.
#[derive(Clone, Debug)]
struct Row {
    parent: String,
    name: String,
    version: u64,
    after: Value,
    is_stale: bool,
}

/// A mirror, by the identity of entries.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    rows: BTreeMap<String, Row>,
    /// Generation, revision and index of the last event.
    position: (u64, u64, u64),
    pub events: u64,
    pub repeated: u64,
    pub ops: BTreeMap<String, u64>,
    pub is_exact: bool,
    pub timelines: BTreeSet<String>,
    /// All events, for the message of a failed test.
    told: Vec<(u64, Value)>,
}

fn text(event: &Value, field: &str) -> String {
    event[field].as_str().unwrap_or_else(|| panic!("no {field} in {event}")).to_owned()
}

/// Applies a merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl Mirror {
    /// Makes a mirror of all segments in a directory.
    pub(crate) fn of(directory: &Path) -> Mirror {
        let mut mirror = Mirror::default();
        mirror.read(directory);
        mirror
    }

    /// Reads all segments, in the order of their names.
    pub(crate) fn read(&mut self, directory: &Path) {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut segments: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "ndjson")).collect();
        segments.sort();
        for path in segments {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let generation: u64 = name.split('-').next().unwrap().parse().unwrap();
            let content = std::fs::read_to_string(&path).unwrap();
            assert!(content.ends_with('\n'), "{name} is cut off");
            let mut last = Value::Null;
            for line in content.lines() {
                let event: Value =
                    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                self.take(generation, &event);
                last = event;
            }
            assert_eq!(last["last"], json!(true), "{name} ends in the middle of a request: {last}");
        }
    }

    /// Applies an event, unless it was applied before.
    pub(crate) fn take(&mut self, generation: u64, event: &Value) {
        let (revision, index) = (event["revision"].as_u64().unwrap(), event["index"].as_u64().unwrap());
        let op = text(event, "op");
        self.timelines.insert(text(event, "timeline"));
        self.told.push((generation, event.clone()));
        let position = (generation, revision, index);
        // Notices share the revision of a change; rows of a copy may come again with other versions.
        let is_change = ["c", "u", "m", "d", "x"].contains(&op.as_str());
        if is_change && position <= self.position && self.events > 0 && generation == self.position.0 {
            self.repeated += 1;
            return;
        }
        self.position = self.position.max(position);
        self.events += 1;
        *self.ops.entry(op.clone()).or_default() += 1;
        match op.as_str() {
            "c" | "m" if event["rows"] == json!(true) => {
                // What is there now follows as rows.
                self.is_exact = false;
                if self.rows.get(&text(event, "entry")).is_none_or(|row| row.version < revision) {
                    self.drop(&text(event, "entry"));
                }
            }
            "c" | "r" => {
                self.put(event, if op == "r" { event["version"].as_u64().unwrap() } else { revision })
            }
            "u" => {
                if let Some(row) = self.newer(&text(event, "entry"), revision) {
                    merge(&mut row.after, &event["after"]);
                    row.version = revision;
                }
            }
            "m" => {
                if event["parent"].is_string() {
                    let (parent, name) = (text(event, "parent"), text(event, "name"));
                    if let Some(row) = self.newer(&text(event, "entry"), revision) {
                        (row.parent, row.name, row.version) = (parent, name, revision);
                    }
                }
            }
            "d" if event["all"] == json!(true) => self.rows.clear(),
            "d" => {
                let id = text(event, "entry");
                if self.newer(&id, revision).is_some() {
                    self.drop(&id);
                }
            }
            "copy" => {
                self.is_exact = false;
                self.rows.values_mut().for_each(|row| row.is_stale = true);
            }
            "copied" => self.rows.retain(|_, row| !row.is_stale),
            "mark" => self.is_exact |= event["exact"] == json!(true),
            "x" | "lost" | "parted" | "undone" | "undone_end" => {}
            other => panic!("unknown op {other}"),
        }
    }

    fn put(&mut self, event: &Value, version: u64) {
        let id = text(event, "entry");
        if self.rows.get(&id).is_some_and(|row| row.version > version && !row.is_stale) {
            return;
        }
        let (parent, name, after) = (text(event, "parent"), text(event, "name"), event["after"].clone());
        self.rows.insert(id, Row { parent, name, version, after, is_stale: false });
    }

    /// Returns the row of an entry if a change of this revision is new to it.
    fn newer(&mut self, id: &str, revision: u64) -> Option<&mut Row> {
        self.rows.get_mut(id).filter(|row| row.version < revision)
    }

    fn drop(&mut self, id: &str) {
        self.rows.remove(id);
        let below: Vec<String> =
            self.rows.iter().filter(|(_, row)| row.parent == id).map(|(id, _)| id.clone()).collect();
        for id in below {
            self.drop(&id);
        }
    }

    /// Returns the lines of all entries, by path relative to `under`.
    pub(crate) fn lines(&self) -> BTreeSet<String> {
        self.rows.iter().map(|(id, row)| line(&self.path(id), id, &row.after)).collect()
    }

    /// Returns the path of an entry below the highest directory that the mirror has.
    fn path(&self, id: &str) -> String {
        let row = &self.rows[id];
        if row.parent == id || !self.rows.contains_key(&row.parent) {
            return String::new();
        }
        format!("{}/{}", self.path(&row.parent), row.name)
    }
}

/// Panics unless a mirror equals the listing of a store, and shows the first differences.
pub(crate) async fn check(what: &str, mirror: &Mirror, store: &dyn Store, under: &str) {
    let (has, wanted) = (mirror.lines(), truth(store, under).await);
    let missing: Vec<_> = wanted.difference(&has).take(5).collect();
    let wrong: Vec<_> = has.difference(&wanted).take(5).collect();
    if let Some(line) = missing.first().or(wrong.first()) {
        let of_entry = |event: &Value| {
            let id = event["entry"].as_str().unwrap_or("no entry");
            line.contains(&format!(" {id} "))
                || ["copy", "copied", "lost", "parted"].contains(&event["op"].as_str().unwrap())
        };
        for (generation, event) in mirror.told.iter().filter(|(_, event)| of_entry(event)) {
            println!("{generation} {event}");
        }
    }
    assert!(missing.is_empty() && wrong.is_empty(), "{what}: missing {missing:#?}, wrong {wrong:#?}");
    assert_eq!(mirror.rows.len(), wanted.len(), "{what}");
}

/// Returns the line of an entry.
fn line(path: &str, id: &str, after: &Value) -> String {
    let keys = |field: &str| {
        let object = after[field].as_object().cloned().unwrap_or_default();
        let shown = object.iter().map(|(key, value)| match &value["state"] {
            Value::Null => format!("{key}={value}"),
            state => format!("{key}={state}"),
        });
        shown.collect::<BTreeSet<_>>()
    };
    format!(
        "{path} {id} {} {} {} {} {} {} {} {:?} {:?} {:?}",
        after["kind"],
        after["owner"],
        after["group"],
        after["mode"],
        after["size"],
        after["expires"],
        after["modified"],
        keys("checksums"),
        keys("replicas"),
        keys("tags"),
    )
}

/// Returns the lines of all entries of a store below a directory, and of the directory itself.
pub(crate) async fn truth(store: &dyn Store, under: &str) -> BTreeSet<String> {
    let lfn = Lfn::parse(under).unwrap();
    let found = store.resolve(&[lfn]).await.unwrap().remove(0);
    let ResolutionEnd::Found(entry) = found.end else { return BTreeSet::new() };
    let mut lines = BTreeSet::new();
    lines.insert(true_line(store, "", &entry).await);
    let mut waiting: Vec<(DirId, String)> =
        entry.directory().into_iter().map(|id| (id, String::new())).collect();
    while let Some((directory, path)) = waiting.pop() {
        let page = store.list(directory, None, 10_000).await.unwrap().unwrap();
        assert!(!page.more);
        for entry in page.items {
            let path = format!("{path}/{}", entry.at.name.as_str());
            lines.insert(true_line(store, &path, &entry).await);
            waiting.extend(entry.directory().map(|id| (id, path)));
        }
    }
    lines
}

async fn record_name(store: &dyn Store, key: RecordKey) -> String {
    let record: Option<(Record, _)> = store.record(key).await.unwrap();
    let name = record.and_then(|(record, _)| record.unique_name().map(str::to_owned));
    name.unwrap_or_else(|| match key {
        RecordKey::User(id) => format!("#{}", id.0),
        RecordKey::Group(id) => format!("#{}", id.0),
        other => format!("{other:?}"),
    })
}

async fn true_line(store: &dyn Store, path: &str, entry: &Entry) -> String {
    let id = match entry.id() {
        EntryId::Directory(id) => format!("directory:{}", id.0),
        EntryId::Object(guid) => guid.to_string(),
    };
    let mut after = json!({
        "kind": entry.kind().name(),
        "owner": record_name(store, RecordKey::User(entry.owner)).await,
        "group": record_name(store, RecordKey::Group(entry.group)).await,
        "mode": entry.mode.to_string(),
        "modified": entry.modified.to_string(),
    });
    if let Some(expires) = entry.expires {
        after["expires"] = json!(expires.to_string());
    }
    if let Some(file) = entry.file() {
        if let Some(size) = file.size {
            after["size"] = json!(size);
        }
        for checksum in file.checksums.iter() {
            let text = checksum.to_string();
            let (algorithm, hex) = text.split_once(':').unwrap();
            after["checksums"][algorithm] = json!(hex);
        }
        for replica in &file.replicas {
            let se = match replica.is_member() {
                true => String::new(),
                false => record_name(store, RecordKey::Se(replica.se)).await,
            };
            after["replicas"][se] = json!({"state": replica.state.name()});
        }
    }
    for tag in &entry.tags {
        after["tags"][tag.key.as_str()] = tag_value(&tag.value);
    }
    line(path, &id, &after)
}

fn tag_value(value: &exacat_model::TagValue) -> Value {
    use exacat_model::TagValue;
    match value {
        TagValue::Text(text) => json!(text),
        TagValue::Integer(number) => json!(number),
        TagValue::Real(number) if !number.is_finite() => json!(number.to_string()),
        TagValue::Real(number) => json!(number),
        TagValue::Time(time) => json!(time.to_string()),
        TagValue::Boolean(truth) => json!(truth),
    }
}
