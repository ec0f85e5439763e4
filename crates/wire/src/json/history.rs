//! Changes of the history, with names in place of numbers.

use exacat_model::answer::ChangeInfo;
use exacat_model::{Body, DeletionId, Effect, Entry, FieldChange, Location, Record, Replica, TimelineId};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::SeNames;
use super::entries::{checksums, entry_id, tag_value, tags};
use super::registry::token_id;

/// Formats the number of a deletion in the history.
pub fn deletion_id(id: DeletionId) -> String {
    format!("{}.{}", id.revision.0, id.index)
}

/// Converts a change: `revision`, `time`, `who`, `operation`, `index`, `effect`, the present place
/// as `lfn`, and the fields of the effect.
pub fn change(info: &ChangeInfo, timeline: TimelineId, ses: &SeNames) -> Value {
    let change = &info.change;
    let mut out = json!({
        "revision": change.revision.0,
        "timeline": timeline.to_string(),
        "time": change.time.to_string(),
        "who": info.who,
        "operation": format!("{:?}", change.operation),
        "index": change.index,
        "effect": change.effect.name(),
    });
    let mut set = |name: &str, value: Value| {
        out[name] = value;
    };
    if let Some(lfn) = &info.lfn {
        set("lfn", json!(lfn.as_str()));
    }
    if let Some(id) = change.effect.entry_id() {
        set("entry", json!(entry_id(id)));
    }
    match &change.effect {
        Effect::Created { entry } | Effect::Purged { entry, .. } => set("as", bare_entry(entry, info, ses)),
        Effect::Updated { fields, .. } => {
            set("fields", fields.iter().map(|change| field(change, info, ses)).collect());
        }
        Effect::Moved { from, to, .. } => {
            set("from", at(from, info));
            set("to", at(to, info));
        }
        // The root stands for a path that the caller may not see.
        Effect::Removed { lfn, .. } if lfn.is_root() => {}
        Effect::Removed { lfn, .. } => set("removed_from", json!(lfn.as_str())),
        Effect::Restored { trash, to, .. } => {
            set("trash", json!(trash.0.0));
            set("to", at(to, info));
        }
        Effect::Reserved { reservation, .. } => {
            set("reserved", json!({"lfn": reservation.lfn.as_str(), "size": reservation.size}));
        }
        Effect::Committed { replica, created, .. } => {
            set("se", json!(ses.name(replica.se)));
            set("created_file", json!(created.is_some()));
        }
        Effect::Released { reservation, se } => {
            set("reserved", json!({"lfn": reservation.lfn.as_str(), "size": reservation.size}));
            if let Some(se) = se {
                set("se", json!(ses.name(*se)));
            }
        }
        Effect::Dequeued { se, done } => {
            set("se", json!(ses.name(*se)));
            set("deleted", done.iter().map(|id| json!(deletion_id(*id))).collect());
        }
        Effect::Recorded { key, before, after } => {
            set("record", json!(key.kind().name()));
            let name = after.as_ref().or(before.as_ref()).and_then(|record| record_name(record));
            if let Some(name) = name {
                set("name", json!(name));
            }
            set("dropped", json!(after.is_none()));
        }
    }
    out
}

/// Name of a record, or its substitute.
pub fn record_name(record: &Record) -> Option<String> {
    match record {
        Record::Token(token) => Some(token_id(token.id)),
        Record::Quota(quota) => Some(match quota.of {
            exacat_model::QuotaOf::User(id) => format!("user number {}", id.0),
            exacat_model::QuotaOf::Group(id) => format!("group number {}", id.0),
        }),
        named => named.unique_name().map(str::to_owned),
    }
}

/// Converts a place: the name, and the directory's present path, if it is in the tree. Null if the
/// caller may not see it.
fn at(at: &exacat_model::At, info: &ChangeInfo) -> Value {
    if at.is_withheld() {
        return Value::Null;
    }
    let path = info.directories.iter().find(|(id, _)| *id == at.parent);
    json!({"directory": path.map(|(_, path)| path.as_str()), "name": at.name.as_str()})
}

/// Name of an account, among those that came with a change.
fn named<Id: PartialEq>(names: &[(Id, String)], id: Id) -> Option<&str> {
    names.iter().find(|(other, _)| *other == id).map(|(_, name)| name.as_str())
}

/// Converts an entry as a change holds it.
fn bare_entry(entry: &Entry, info: &ChangeInfo, ses: &SeNames) -> Value {
    let mut out = json!({
        "kind": entry.kind().name(),
        "at": at(&entry.at, info),
        "owner": named(&info.users, entry.owner),
        "group": named(&info.groups, entry.group),
        "mode": entry.mode.to_string(),
    });
    if let Some(file) = entry.file() {
        if let Some(size) = file.size {
            out["size"] = json!(size);
        }
        out["checksums"] = json!(checksums(&file.checksums));
        out["replicas"] = file
            .replicas
            .iter()
            .map(|one| json!({"se": ses.name(one.se), "state": one.state.name(), "pfn": ses.pfn(file.guid, one)}))
            .collect();
    }
    if let Body::Link { target, .. } = &entry.body {
        out["target"] = json!(target.as_str());
    }
    if !entry.tags.is_empty() {
        out["tags"] = Value::Object(tags(&entry.tags));
    }
    out
}

/// Converts one changed field: its name, before and after.
pub fn field(change: &FieldChange, info: &ChangeInfo, ses: &SeNames) -> Value {
    let pair =
        |field: &str, before: Value, after: Value| json!({"field": field, "before": before, "after": after});
    let replica = |replica: &Option<Replica>| {
        replica.as_ref().map(|one| {
            let pfn = match &one.location {
                Location::Explicit(pfn) => json!(pfn.as_str()),
                _ => Value::Null,
            };
            json!({"se": ses.name(one.se), "state": one.state.name(), "pfn": pfn})
        })
    };
    match change {
        FieldChange::Owner { before, after } => {
            pair("owner", json!(named(&info.users, *before)), json!(named(&info.users, *after)))
        }
        FieldChange::Group { before, after } => {
            pair("group", json!(named(&info.groups, *before)), json!(named(&info.groups, *after)))
        }
        FieldChange::Mode { before, after } => {
            pair("mode", json!(before.to_string()), json!(after.to_string()))
        }
        FieldChange::Modified { before, after } => {
            pair("modified", json!(before.to_string()), json!(after.to_string()))
        }
        FieldChange::Expires { before, after } => pair(
            "expires",
            json!(before.map(|time| time.to_string())),
            json!(after.map(|time| time.to_string())),
        ),
        FieldChange::Job { before, after } => pair("job", json!(before), json!(after)),
        FieldChange::Size { after } => pair("size", Value::Null, json!(after)),
        FieldChange::Checksum { after } => pair("checksum", Value::Null, json!(after.to_string())),
        FieldChange::Replica { before, after, deletion } => {
            let mut out = pair("replica", json!(replica(before)), json!(replica(after)));
            if let Some(id) = deletion {
                out["deletion"] = json!(deletion_id(*id));
            }
            out
        }
        FieldChange::Tag { key, before, after } => {
            let mut out =
                pair("tag", json!(before.as_ref().map(tag_value)), json!(after.as_ref().map(tag_value)));
            out["key"] = json!(key.as_str());
            out
        }
        FieldChange::Member { guid, added } => {
            json!({"field": "member", "guid": guid.to_string(), "added": added})
        }
    }
}

/// A change, as `exacat log` and `exacat changes` show it. Its fields depend on the effect.
#[derive(Debug, ToSchema)]
#[schema(as = Change)]
pub struct ChangeOut {
    /// Revision that it made.
    pub revision: u64,
    /// Timeline of that revision, in full.
    pub timeline: String,
    /// Time of the change.
    #[schema(format = "date-time")]
    pub time: String,
    /// User that made it.
    pub who: String,
    /// Operation id of the request.
    pub operation: String,
    /// Part of the request.
    pub index: u32,
    /// `created`, `updated`, `moved`, `removed`, `restored`, `purged`, `reserved`, `released`,
    /// `committed`, `dequeued` or `recorded`.
    pub effect: String,
    /// Present path of the entry.
    pub lfn: Option<String>,
    /// GUID of the entry, or `directory:N`.
    pub entry: Option<String>,
    /// `created`, `purged`: the entry, with its place as `at`.
    pub r#as: Option<Value>,
    /// `updated`: of each changed field `field`, `before` and `after`.
    pub fields: Option<Vec<Value>>,
    /// `moved`: former place. `directory` is the present path of the directory, null if it is gone;
    /// `name` is the name in it. The whole is null if the caller may not read the directory.
    pub from: Option<Value>,
    /// `moved`, `restored`: new place, as `from`.
    pub to: Option<Value>,
    /// `removed`: former path; left out if the caller may not see it.
    pub removed_from: Option<String>,
    /// `restored`: revision of the trash item.
    pub trash: Option<u64>,
    /// `reserved`, `released`: `lfn` and `size` of the upload.
    pub reserved: Option<Value>,
    /// `committed`, `dequeued`: storage element; `released`: the one that it was on, if any.
    pub se: Option<String>,
    /// `committed`: true if the commit made the file.
    pub created_file: Option<bool>,
    /// `dequeued`: ids of the completed deletions.
    pub deleted: Option<Vec<String>>,
    /// `recorded`: kind of the record.
    pub record: Option<String>,
    /// `recorded`: name of the record.
    pub name: Option<String>,
    /// `recorded`: true if the record was dropped.
    pub dropped: Option<bool>,
}

/// A place in the history.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Position)]
pub struct PositionOut {
    /// The last change.
    pub revision: u64,
    /// Its timeline.
    pub timeline: String,
    /// Both, for the parameter `after`.
    pub position: String,
}
