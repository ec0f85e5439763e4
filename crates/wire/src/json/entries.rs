//! Entries, their places and their usage.

use std::borrow::Cow;
use std::fmt::Display;

use exacat_model::answer::{Member, ReplicaAt, Stat, TagInForce, Whereis};
use exacat_model::operation::FileRef;
use exacat_model::{Body, Checksums, Entry, EntryId, Guid, Lfn, Mode, Replica, Tag, TagValue, TimeMs, Usage};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::SeNames;

/// A value whose text form is its JSON form.
#[derive(Clone, Copy, Debug)]
pub struct Shown<T>(pub T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An entry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Entry)]
pub struct EntryOut<'a> {
    /// Path.
    #[schema(examples("/demo/data/run1/f1.root"))]
    pub lfn: &'a str,
    /// `directory`, `file`, `collection` or `link`.
    pub kind: &'static str,
    /// Owner.
    pub owner: &'a str,
    /// Group.
    pub group: &'a str,
    /// Octal permissions.
    #[schema(value_type = String, examples("755"))]
    pub mode: Shown<Mode>,
    /// Time it came into the catalogue.
    #[schema(value_type = String, format = "date-time")]
    pub created: Shown<TimeMs>,
    /// Time its content was made.
    #[schema(value_type = String, format = "date-time")]
    pub modified: Shown<TimeMs>,
    /// The change that last touched it.
    pub revision: u64,
    /// Time from which on it goes to the trash by itself.
    #[schema(value_type = Option<String>, format = "date-time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Shown<TimeMs>>,
    /// Number of a directory, in place of `guid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<u64>,
    /// Identity of every entry that is no directory.
    #[schema(value_type = Option<String>, format = "uuid")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guid: Option<Shown<Guid>>,
    /// Bytes of a file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Known checksums of a file, `algorithm:hex`.
    #[schema(value_type = Option<Vec<String>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksums: Option<ChecksumsOut<'a>>,
    /// Job that made a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// Replicas of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Vec<ReplicaOut<'a>>>,
    /// Number of members of a collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<u64>,
    /// Target of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<&'a str>,
    /// Own tags by key; times are text.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub tags: Map<String, Value>,
}

/// A replica.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Replica)]
pub struct ReplicaOut<'a> {
    /// Name of the storage element; left out for an archive member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se: Option<Cow<'a, str>>,
    /// `available`, `copying`, `suspect` or `lost`.
    pub state: &'static str,
    /// URL; left out if the storage element's place is unknown to the caller.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub pfn: Cow<'a, str>,
}

/// Checksums as a list of texts.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumsOut<'a>(pub &'a Checksums);

impl Serialize for ChecksumsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Shown))
    }
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
pub fn replica<'a>(entry: &Entry, replica: &Replica, ses: &'a SeNames) -> ReplicaOut<'a> {
    ReplicaOut {
        se: (!replica.is_member()).then(|| ses.name(replica.se)),
        state: replica.state.name(),
        pfn: Cow::Owned(entry.guid().map_or_else(String::new, |guid| ses.pfn(guid, replica))),
    }
}

/// Converts an entry with its path.
pub fn entry<'a>(stat: &'a Stat, ses: &'a SeNames) -> EntryOut<'a> {
    let entry = &stat.entry;
    let mut out = EntryOut {
        lfn: stat.lfn.as_str(),
        kind: entry.kind().name(),
        owner: stat.owner.as_str(),
        group: stat.group.as_str(),
        mode: Shown(entry.mode),
        created: Shown(entry.created),
        modified: Shown(entry.modified),
        revision: entry.revision.0,
        expires: entry.expires.map(Shown),
        directory: None,
        guid: entry.guid().map(Shown),
        size: None,
        checksums: None,
        job: None,
        replicas: None,
        members: None,
        target: None,
        tags: tags(&entry.tags),
    };
    match &entry.body {
        Body::Directory(id) => out.directory = Some(id.0),
        Body::File(file) => {
            out.size = file.size;
            out.checksums = Some(ChecksumsOut(&file.checksums));
            out.job = file.job;
            out.replicas = Some(file.replicas.iter().map(|one| replica(entry, one, ses)).collect());
        }
        Body::Collection { members, .. } => out.members = Some(*members),
        Body::Link { target, .. } => out.target = Some(target.as_str()),
    }
    out
}

/// Places of a file.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Places)]
pub struct WhereisOut<'a> {
    /// LFN of the request, if it was by LFN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lfn: Option<&'a str>,
    /// Identity.
    #[schema(value_type = String, format = "uuid")]
    pub guid: Shown<Guid>,
    /// Bytes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Known checksums, `algorithm:hex`.
    #[schema(value_type = Vec<String>)]
    pub checksums: ChecksumsOut<'a>,
    /// Replicas, best first.
    pub replicas: Vec<ReplicaOut<'a>>,
}

/// Converts the places of a file.
pub fn whereis<'a>(asked: &'a FileRef, found: &'a Whereis) -> WhereisOut<'a> {
    WhereisOut {
        lfn: match asked {
            FileRef::Lfn(lfn) => Some(lfn.as_str()),
            FileRef::Guid(_) => None,
        },
        guid: Shown(found.guid),
        size: found.size,
        checksums: ChecksumsOut(&found.checksums),
        replicas: found.replicas.iter().map(replica_at).collect(),
    }
}

fn replica_at(replica: &ReplicaAt) -> ReplicaOut<'_> {
    ReplicaOut {
        se: replica.se.as_ref().map(|se| Cow::Borrowed(se.as_str())),
        state: replica.state.name(),
        pfn: Cow::Borrowed(&replica.pfn),
    }
}

/// Number and size of entries, of a directory with everything below.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageOut {
    /// Directories.
    pub directories: u64,
    /// Files outside of archives.
    pub files: u64,
    /// Files inside archives.
    pub members: u64,
    /// Collections and links.
    pub others: u64,
    /// Replicas.
    pub replicas: u64,
    /// Bytes of `files`.
    pub bytes: u128,
    /// Bytes of `members`.
    pub member_bytes: u128,
    /// Bytes of all replicas.
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
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DirectoryUsage)]
pub struct DuOut<'a> {
    /// LFN.
    pub lfn: &'a str,
    /// Usage, with everything below.
    pub usage: UsageOut,
}

/// Formats the identity of an entry, which a move keeps: `directory:7`, or the GUID.
pub fn entry_id(id: EntryId) -> String {
    match id {
        EntryId::Directory(id) => format!("directory:{}", id.0),
        EntryId::Object(guid) => guid.to_string(),
    }
}

/// A member of a collection.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Member)]
pub struct MemberOut<'a> {
    /// GUID of the file.
    pub guid: String,
    /// The present entry; left out if it does not exist or may not be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryOut<'a>>,
}

/// Converts a member of a collection.
pub fn member<'a>(member: &'a Member, ses: &'a SeNames) -> MemberOut<'a> {
    MemberOut { guid: member.guid.to_string(), entry: member.stat.as_ref().map(|stat| entry(stat, ses)) }
}

/// A tag in force on an entry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tag)]
pub struct TagOut<'a> {
    /// LFN of the request.
    pub lfn: &'a str,
    /// Key.
    pub key: &'a str,
    /// `text`, `int`, `real`, `time` or `bool`.
    pub r#type: &'static str,
    /// Value; times are text.
    pub value: Value,
    /// The entry that it is set on.
    pub from: &'a str,
}

/// Converts a tag in force on the entry of a request.
pub fn tag<'a>(asked: &'a Lfn, found: &'a TagInForce) -> TagOut<'a> {
    TagOut {
        lfn: asked.as_str(),
        key: found.tag.key.as_str(),
        r#type: found.tag.value.type_name(),
        value: tag_value(&found.tag.value),
        from: found.from.as_str(),
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
