//! Shapes of the output of `--json`: scripts may rely on the names of the fields.
//!
//! One document per item, one item per line. An unknown field, or one that does not apply, is left
//! out. Sizes, counts and revisions are numbers (sums of bytes may exceed 64 bits), times RFC 3339
//! in UTC, modes octal text, GUIDs and checksums (`algorithm:hex`) text. New fields may come;
//! present ones stay.

use std::collections::BTreeMap;

use exacat_model::answer::{
    ChangeInfo, DeletionAt, Member, QuotaInfo, ReplicaAt, SeUsage, Stat, StatusPart, TokenInfo, Upload,
    UserInfo, Whereis,
};
use exacat_model::operation::{FileRef, Owner};
use exacat_model::{
    Body, Checksums, DeletionId, Effect, Entry, FieldChange, HasRevision, Location, Record, Replica, Tag,
    TagValue, TimelineId, TimelineTag, TokenId, TrashItem, Usage,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::names_of_ses::SeNames;

/// An entry.
#[derive(Debug, Default, Serialize)]
pub struct EntryOut {
    /// Path.
    pub lfn: String,
    /// `directory`, `file`, `collection` or `link`.
    pub kind: &'static str,
    /// Owner.
    pub owner: String,
    /// Group.
    pub group: String,
    /// Octal permissions.
    pub mode: String,
    /// Time it came into the catalogue.
    pub created: String,
    /// Time its content was made.
    pub modified: String,
    /// The change that last touched it.
    pub revision: u64,
    /// Time from which on it goes to the trash by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Number of a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<u64>,
    /// Identity of any other entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guid: Option<String>,
    /// Bytes of a file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Known checksums of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksums: Option<Vec<String>>,
    /// Job that made a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// Replicas of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Vec<ReplicaOut>>,
    /// Number of members of a collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<u64>,
    /// Target of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Own tags.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub tags: Map<String, Value>,
}

/// A replica.
#[derive(Debug, Serialize)]
pub struct ReplicaOut {
    /// Name of the SE; none for an archive member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se: Option<String>,
    /// `available`, `copying`, `suspect` or `lost`.
    pub state: &'static str,
    /// URL; left out if it follows from a prefix that the caller may not see.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pfn: String,
}

/// Formats checksums.
pub fn checksums(checksums: &Checksums) -> Vec<String> {
    checksums.iter().map(ToString::to_string).collect()
}

/// Converts a tag's value to JSON's own types; times become text.
pub fn tag_value(value: &TagValue) -> Value {
    match value {
        TagValue::Text(text) => json!(text),
        TagValue::Integer(number) => json!(number),
        // JSON has no infinity.
        TagValue::Real(number) if !number.is_finite() => json!(number.to_string()),
        TagValue::Real(number) => json!(number),
        TagValue::Time(time) => json!(time.to_string()),
        TagValue::Boolean(truth) => json!(truth),
    }
}

/// Converts tags to one object.
pub fn tags(tags: &[Tag]) -> Map<String, Value> {
    tags.iter().map(|tag| (tag.key.to_string(), tag_value(&tag.value))).collect()
}

/// Converts a replica as it stands in an entry.
pub fn replica(entry: &Entry, replica: &Replica, ses: &SeNames) -> ReplicaOut {
    ReplicaOut {
        se: (!replica.is_member()).then(|| ses.name(replica.se)),
        state: replica.state.name(),
        pfn: entry.guid().map_or_else(String::new, |guid| ses.pfn(guid, replica)),
    }
}

/// Converts an entry with its path.
pub fn entry(stat: &Stat, ses: &SeNames) -> EntryOut {
    let entry = &stat.entry;
    let mut out = EntryOut {
        lfn: stat.lfn.to_string(),
        kind: entry.kind().name(),
        owner: stat.owner.to_string(),
        group: stat.group.to_string(),
        mode: entry.mode.to_string(),
        created: entry.created.to_string(),
        modified: entry.modified.to_string(),
        revision: entry.revision.0,
        expires: entry.expires.map(|time| time.to_string()),
        guid: entry.guid().map(|guid| guid.to_string()),
        tags: tags(&entry.tags),
        ..EntryOut::default()
    };
    match &entry.body {
        Body::Directory(id) => out.directory = Some(id.0),
        Body::File(file) => {
            out.size = file.size;
            out.checksums = Some(checksums(&file.checksums));
            out.job = file.job;
            out.replicas = Some(file.replicas.iter().map(|one| replica(entry, one, ses)).collect());
        }
        Body::Collection { members, .. } => out.members = Some(*members),
        Body::Link { target, .. } => out.target = Some(target.to_string()),
    }
    out
}

/// Places of a file.
#[derive(Debug, Serialize)]
pub struct WhereisOut<'a> {
    /// LFN of the request, if it was by LFN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lfn: Option<&'a str>,
    /// Identity.
    pub guid: String,
    /// Bytes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Known checksums.
    pub checksums: Vec<String>,
    /// Replicas, best first.
    pub replicas: Vec<ReplicaOut>,
}

/// Converts the places of a file.
pub fn whereis<'a>(asked: &'a FileRef, found: &Whereis) -> WhereisOut<'a> {
    WhereisOut {
        lfn: match asked {
            FileRef::Lfn(lfn) => Some(lfn.as_str()),
            FileRef::Guid(_) => None,
        },
        guid: found.guid.to_string(),
        size: found.size,
        checksums: checksums(&found.checksums),
        replicas: found.replicas.iter().map(replica_at).collect(),
    }
}

fn replica_at(replica: &ReplicaAt) -> ReplicaOut {
    ReplicaOut {
        se: replica.se.as_ref().map(ToString::to_string),
        state: replica.state.name(),
        pfn: replica.pfn.clone(),
    }
}

/// Usage.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "named as in the model's Usage")]
pub struct UsageOut {
    pub directories: u64,
    pub files: u64,
    pub members: u64,
    pub others: u64,
    pub replicas: u64,
    pub bytes: u128,
    pub member_bytes: u128,
    pub replica_bytes: u128,
}

/// Converts usage.
pub fn usage(usage: &Usage) -> UsageOut {
    UsageOut {
        directories: usage.directories,
        files: usage.files,
        members: usage.members,
        others: usage.others,
        replicas: usage.replicas,
        bytes: usage.bytes,
        member_bytes: usage.member_bytes,
        replica_bytes: usage.replica_bytes,
    }
}

/// Usage of one LFN.
#[derive(Debug, Serialize)]
pub struct DuOut<'a> {
    /// LFN.
    pub lfn: &'a str,
    /// Usage, with everything below.
    pub usage: UsageOut,
}

/// An item of the trash.
#[derive(Debug, Serialize)]
pub struct TrashOut {
    /// Id for restore and purge: its revision and the timeline.
    pub id: String,
    /// Former path.
    pub lfn: String,
    /// Kind of entry.
    pub kind: &'static str,
    /// Identity.
    pub entry: String,
    /// User that removed it.
    pub removed_by: String,
    /// Time of removal.
    pub removed: String,
    /// Usage.
    pub usage: UsageOut,
}

/// Converts an item of the trash.
pub fn trash(item: &TrashItem, who: &str, timeline: TimelineTag) -> TrashOut {
    TrashOut {
        id: item.id.on(timeline).to_string(),
        lfn: item.lfn.to_string(),
        kind: item.entry.kind().name(),
        entry: super::human::entry_id(item.entry.id()),
        removed_by: who.to_owned(),
        removed: item.removed.to_string(),
        usage: usage(&item.usage),
    }
}

/// Converts an upload.
pub fn upload(upload: &Upload) -> Value {
    let booking = &upload.booking;
    let targets: Vec<Value> =
        upload.targets.iter().map(|target| json!({"se": target.se.as_str(), "pfn": target.pfn})).collect();
    let mut out = json!({
        "guid": booking.guid.to_string(),
        "lfn": booking.lfn.as_str(),
        "owner": upload.owner.as_str(),
        "size": booking.size,
        "checksums": checksums(&booking.checksums),
        "created": booking.created.to_string(),
        "expires": booking.expires.to_string(),
        "exists": booking.exists,
        "targets": targets,
    });
    if let Some(job) = booking.job {
        out["job"] = json!(job);
    }
    out
}

/// A storage element and its usage.
#[derive(Debug, Serialize)]
pub struct SeOut {
    /// Name.
    pub name: String,
    /// Number.
    pub number: u16,
    /// Beginning of derived PFNs.
    pub prefix: String,
    /// Quality-of-service labels.
    pub qos: Vec<String>,
    /// `online`, `read-only` or `offline`.
    pub status: &'static str,
    /// Distances by site.
    pub distances: BTreeMap<String, u32>,
    /// Usage.
    pub used: UsageOut,
    /// Pending deletions.
    pub deletions: UsageOut,
}

/// Converts a storage element.
pub fn se(item: &SeUsage) -> SeOut {
    SeOut {
        name: item.se.name.to_string(),
        number: item.se.number.0,
        prefix: item.se.prefix.clone(),
        qos: item.se.qos.iter().map(ToString::to_string).collect(),
        status: item.se.status.name(),
        distances: item.se.distances.iter().map(|(site, distance)| (site.to_string(), *distance)).collect(),
        used: usage(&item.used),
        deletions: usage(&item.deletions),
    }
}

/// Formats the number of a deletion in the history.
pub fn deletion_id(id: DeletionId) -> String {
    format!("{}.{}", id.revision.0, id.index)
}

/// Converts a physical copy to delete.
pub fn deletion(item: &DeletionAt) -> Value {
    let mut out = json!({
        "id": item.id.to_string(),
        "guid": item.guid.to_string(),
        "pfn": item.pfn,
        "queued": item.queued.to_string(),
    });
    if let Some(size) = item.size {
        out["size"] = json!(size);
    }
    out
}

/// Converts a user.
pub fn user(user: &UserInfo) -> Value {
    let names = |names: &[exacat_model::AccountName]| -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    };
    let mut out = json!({
        "user": user.name.as_str(),
        "id": user.id,
        "group": user.group.as_str(),
        "groups": names(&user.groups),
        "roles": user.roles.iter().map(|role| role.name()).collect::<Vec<_>>(),
        "may_become": names(&user.may_become),
        "subjects": user.subjects,
        "disabled": user.disabled,
    });
    if let Some(home) = &user.home {
        out["home"] = json!(home.as_str());
    }
    out
}

/// Converts a token, without its secret.
pub fn token(token: &TokenInfo) -> Value {
    json!({
        "id": token_id(token.id),
        "user": token.user.as_str(),
        "issued": token.issued.to_string(),
        "expires": token.expires.to_string(),
        "scope": token.scope.as_str(),
        "write": token.write,
        "note": token.note,
    })
}

/// Formats the id of a token, as it stands in its secret.
pub fn token_id(id: TokenId) -> String {
    format!("{:016x}", id.0)
}

/// Limits and usage.
#[derive(Debug, Serialize)]
pub struct QuotaOut {
    /// `user:NAME` or `group:NAME`.
    pub owner: String,
    /// Limits; one that is left out does not limit.
    pub limits: LimitsOut,
    /// Usage.
    pub used: UsageOut,
    /// Usage that upload reservations reserve.
    pub reserved: UsageOut,
}

/// Limits.
#[derive(Debug, Serialize)]
pub struct LimitsOut {
    /// Files, links and collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Logical bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_bytes: Option<u64>,
}

/// Formats `user:NAME` or `group:NAME`.
pub fn owner(owner: &Owner) -> String {
    match owner {
        Owner::User(name) => format!("user:{name}"),
        Owner::Group(name) => format!("group:{name}"),
    }
}

/// Converts limits and usage.
pub fn quota(info: &QuotaInfo) -> QuotaOut {
    QuotaOut {
        owner: owner(&info.owner),
        limits: LimitsOut { files: info.files, bytes: info.bytes, replica_bytes: info.replica_bytes },
        used: usage(&info.used),
        reserved: usage(&info.reserved),
    }
}

/// A member of a collection.
#[derive(Debug, Serialize)]
pub struct MemberOut {
    /// GUID of the file.
    pub guid: String,
    /// The present entry; left out if it does not exist or may not be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryOut>,
}

/// Converts a member of a collection.
pub fn member(member: &Member, ses: &SeNames) -> MemberOut {
    MemberOut { guid: member.guid.to_string(), entry: member.stat.as_ref().map(|stat| entry(stat, ses)) }
}

/// Converts a group of metrics.
pub fn status(part: &StatusPart) -> Value {
    let figures: Map<String, Value> =
        part.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({"part": part.part, "figures": figures, "notes": part.notes})
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
        set("entry", json!(super::human::entry_id(id)));
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
        Effect::Booked { booking, .. } => {
            set("booked", json!({"lfn": booking.lfn.as_str(), "size": booking.size}));
        }
        Effect::Committed { replica, created, .. } => {
            set("se", json!(ses.name(replica.se)));
            set("created_file", json!(created.is_some()));
        }
        Effect::Released { booking, se } => {
            set("booked", json!({"lfn": booking.lfn.as_str(), "size": booking.size}));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_beyond_64_bits_are_numbers() {
        let mut sum = Usage { bytes: u128::from(u64::MAX), ..Usage::default() };
        sum.bytes *= 4;
        let text = serde_json::to_string(&DuOut { lfn: "/", usage: usage(&sum) }).unwrap();
        assert!(text.contains("\"bytes\":73786976294838206460"), "{text}");
    }

    #[test]
    fn tag_values_keep_their_json_type() {
        assert_eq!(tag_value(&TagValue::Integer(-1)), json!(-1));
        assert_eq!(tag_value(&TagValue::Boolean(true)), json!(true));
        assert_eq!(tag_value(&TagValue::Text("7".into())), json!("7"));
        assert_eq!(tag_value(&TagValue::Real(f64::INFINITY)), json!("inf"));
    }
}
