//! Bodies of requests: arguments of operations, under the names that answers use.

use std::collections::BTreeMap;
use std::fmt;

use exacat_model::operation::{
    Attribute, Existing, FileRef, NewFile, NewReplica, Owner, ReplicaEdit, SeChoice, SeSettings, UserSettings,
};
use exacat_model::{
    AccountName, Checksum, Checksums, DeletionId, Error, Guid, Kind, Lfn, Mode, OnTimeline, Pfn,
    ReplicaState, Result, Role, SeName, SeStatus, SnapshotName, Tag, TagKey, TagValue, TimeMs, TrashId,
};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::texts;

/// A value that the model parses from text.
pub trait Parse: Sized {
    /// Parses it.
    fn parse_text(text: &str) -> Result<Self>;
}

macro_rules! parse {
    ($($type:ty),* $(,)?) => {
        $(impl Parse for $type {
            fn parse_text(text: &str) -> Result<Self> {
                <$type>::parse(text)
            }
        })*
    };
}

parse!(
    Lfn,
    Guid,
    AccountName,
    SeName,
    Mode,
    TimeMs,
    Checksum,
    Pfn,
    TagKey,
    SnapshotName,
    ReplicaState,
    SeStatus,
    Kind,
    Role,
);

impl Parse for Owner {
    fn parse_text(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("user", name)) => Ok(Owner::User(AccountName::parse(name)?)),
            Some(("group", name)) => Ok(Owner::Group(AccountName::parse(name)?)),
            _ => Err(Error::invalid(format!("an owner is user:NAME or group:NAME, not {text:.60?}"))),
        }
    }
}

/// Reads the users that a throttle limits: `user:NAME`, `group:NAME` or `everybody`.
pub fn throttled(text: &str) -> Result<Option<Owner>> {
    if text == super::EVERYBODY { Ok(None) } else { Owner::parse_text(text).map(Some) }
}

impl Parse for OnTimeline<TrashId> {
    fn parse_text(text: &str) -> Result<Self> {
        text.parse()
    }
}

impl Parse for OnTimeline<DeletionId> {
    fn parse_text(text: &str) -> Result<Self> {
        text.parse()
    }
}

/// A parsed value.
#[derive(Clone, Debug)]
pub struct Parsed<T>(pub T);

impl<'de, T: Parse> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OfText<T>(std::marker::PhantomData<T>);
        impl<T: Parse> Visitor<'_> for OfText<T> {
            type Value = Parsed<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Parsed<T>, E> {
                T::parse_text(text).map(Parsed).map_err(|error| E::custom(error.message))
            }
        }
        deserializer.deserialize_str(OfText(std::marker::PhantomData))
    }
}

pub(super) fn bare<T>(parsed: Option<Parsed<T>>) -> Option<T> {
    parsed.map(|Parsed(value)| value)
}

pub(super) fn all<T>(parsed: Vec<Parsed<T>>) -> Vec<T> {
    parsed.into_iter().map(|Parsed(value)| value).collect()
}

/// Tells a field that is null from one that is left out.
fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A file, by LFN or by GUID.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FileRef, examples(json!({"lfn": "/demo/data/run1/f1.root"})))]
pub struct FileIn {
    /// Path.
    #[schema(value_type = Option<texts::Lfn>)]
    pub lfn: Option<Parsed<Lfn>>,
    /// Identity.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub guid: Option<Parsed<Guid>>,
}

impl TryFrom<FileIn> for FileRef {
    type Error = Error;

    fn try_from(file: FileIn) -> Result<FileRef> {
        match (file.lfn, file.guid) {
            (Some(Parsed(lfn)), None) => Ok(FileRef::Lfn(lfn)),
            (None, Some(Parsed(guid))) => Ok(FileRef::Guid(guid)),
            _ => Err(Error::invalid("a file is named by one of lfn and guid")),
        }
    }
}

fn files(named: Vec<FileIn>) -> Result<Vec<FileRef>> {
    named.into_iter().map(FileRef::try_from).collect()
}

/// A path.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Path, examples(json!({"lfn": "/demo/data"})))]
pub struct LfnIn {
    /// Path.
    #[schema(value_type = texts::Lfn)]
    pub lfn: Parsed<Lfn>,
}

/// An identity.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Identity, examples(json!({"guid": "01a20b0c-cdad-75f4-af3d-5016166cc5bd"})))]
pub struct GuidIn {
    /// Identity.
    #[schema(value_type = String, format = "uuid")]
    pub guid: Parsed<Guid>,
}

/// A replica to register.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewReplica, examples(json!({"se": "DEMO::DISK::SE1"})))]
pub struct ReplicaIn {
    /// Storage element.
    #[schema(value_type = texts::SeName)]
    pub se: Parsed<SeName>,
    /// URL; left out if it follows from the prefix of the storage element.
    #[schema(value_type = Option<texts::Pfn>)]
    pub pfn: Option<Parsed<Pfn>>,
    /// `available` (default), `copying`, `suspect` or `lost`.
    #[schema(value_type = Option<texts::ReplicaState>)]
    pub state: Option<Parsed<ReplicaState>>,
}

impl From<ReplicaIn> for NewReplica {
    fn from(replica: ReplicaIn) -> Self {
        let state = bare(replica.state).unwrap_or(ReplicaState::Available);
        NewReplica { se: replica.se.0, pfn: bare(replica.pfn), state }
    }
}

/// The archive that has a file as a member.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ArchiveMember)]
pub struct MemberOfIn {
    /// Path of the archive.
    #[schema(value_type = Option<texts::Lfn>)]
    pub lfn: Option<Parsed<Lfn>>,
    /// GUID of the archive.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub guid: Option<Parsed<Guid>>,
    /// Path of the member in the archive.
    pub path: String,
}

/// A file to register.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewFile, examples(json!({
    "lfn": "/demo/data/run2/f1.root", "size": 1024, "checksums": ["adler32:0a1af2bf"],
    "replicas": [{"se": "DEMO::DISK::SE1"}]
})))]
pub struct NewFileIn {
    /// Path; in a bulk registration only.
    #[schema(value_type = Option<texts::Lfn>)]
    pub lfn: Option<Parsed<Lfn>>,
    /// Identity; left out for a new one.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub guid: Option<Parsed<Guid>>,
    /// Bytes; left out if unknown.
    pub size: Option<u64>,
    /// Checksums, `algorithm:hex`.
    #[schema(value_type = Vec<texts::Checksum>)]
    #[serde(default)]
    pub checksums: Vec<Parsed<Checksum>>,
    /// Owner; left out for the caller.
    #[schema(value_type = Option<texts::Account>)]
    pub owner: Option<Parsed<AccountName>>,
    /// Group; left out for the caller's group.
    #[schema(value_type = Option<texts::Account>)]
    pub group: Option<Parsed<AccountName>>,
    /// Octal permissions.
    #[schema(value_type = Option<texts::Mode>)]
    pub mode: Option<Parsed<Mode>>,
    /// Time its content was made.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub modified: Option<Parsed<TimeMs>>,
    /// Time from which on it goes to the trash by itself.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires: Option<Parsed<TimeMs>>,
    /// Job that made it.
    pub job: Option<u64>,
    /// Tags.
    #[schema(value_type = texts::Tags)]
    #[serde(default)]
    pub tags: Map<String, Value>,
    /// Replicas.
    #[serde(default)]
    pub replicas: Vec<ReplicaIn>,
    /// The archive that it is a member of.
    pub member_of: Option<MemberOfIn>,
}

impl NewFileIn {
    /// Returns the file, named by its own path or else by `lfn`.
    pub fn file(self, lfn: Option<Lfn>) -> Result<NewFile> {
        let lfn = match (bare(self.lfn), lfn) {
            (Some(lfn), None) | (None, Some(lfn)) => lfn,
            (Some(own), Some(lfn)) if own == lfn => lfn,
            (Some(own), Some(lfn)) => {
                return Err(Error::invalid(format!("the body names {own}, the URL {lfn}")));
            }
            (None, None) => return Err(Error::invalid("a file without lfn")),
        };
        let member_of = match self.member_of {
            None => None,
            Some(MemberOfIn { lfn, guid, path }) => Some((FileRef::try_from(FileIn { lfn, guid })?, path)),
        };
        Ok(NewFile {
            lfn,
            guid: bare(self.guid),
            size: self.size,
            checksums: checksums_of(self.checksums)?,
            owner: bare(self.owner),
            group: bare(self.group),
            mode: bare(self.mode),
            modified: bare(self.modified),
            expires: bare(self.expires),
            job: self.job,
            tags: tags_of(self.tags)?,
            replicas: self.replicas.into_iter().map(NewReplica::from).collect(),
            member_of,
        })
    }
}

/// Reads how a registration treats a file that exists already: `refuse`, `same` or `merge`.
pub fn existing(text: &str) -> Result<Existing> {
    match text {
        "refuse" => Ok(Existing::Refuse),
        "same" => Ok(Existing::Same),
        "merge" => Ok(Existing::Merge),
        other => Err(Error::invalid(format!("existing is refuse, same or merge, not {other:.60?}"))),
    }
}

fn checksums_of(list: Vec<Parsed<Checksum>>) -> Result<Checksums> {
    let mut checksums = Checksums::none();
    for Parsed(checksum) in list {
        checksums.add(checksum)?;
    }
    Ok(checksums)
}

/// Reads tags: JSON's own types, and `{"time": "2026-…"}` for a time.
pub fn tags_of(tags: Map<String, Value>) -> Result<Vec<Tag>> {
    tags.into_iter()
        .map(|(key, value)| Ok(Tag { key: TagKey::parse(&key)?, value: value_of(value)? }))
        .collect()
}

fn value_of(value: Value) -> Result<TagValue> {
    let bad = || Error::invalid("the value of a tag is text, a number, true, false, or {\"time\": \"…\"}");
    let value = match value {
        Value::String(text) => TagValue::Text(text),
        Value::Bool(truth) => TagValue::Boolean(truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => TagValue::Integer(whole),
            None => TagValue::Real(number.as_f64().ok_or_else(bad)?),
        },
        Value::Object(fields) if fields.len() == 1 => {
            let time = fields.get("time").and_then(Value::as_str).ok_or_else(bad)?;
            TagValue::Time(TimeMs::parse(time)?)
        }
        _ => return Err(bad()),
    };
    value.check()?;
    Ok(value)
}

/// New values of attributes; those left out stay.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Attributes, examples(json!({"mode": "640"})))]
pub struct AttributesIn {
    /// Owner.
    #[schema(value_type = Option<texts::Account>)]
    pub owner: Option<Parsed<AccountName>>,
    /// Group.
    #[schema(value_type = Option<texts::Account>)]
    pub group: Option<Parsed<AccountName>>,
    /// Octal permissions.
    #[schema(value_type = Option<texts::Mode>)]
    pub mode: Option<Parsed<Mode>>,
    /// Time the content was made.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub modified: Option<Parsed<TimeMs>>,
    /// Time from which on the entry goes to the trash by itself; null for never.
    #[schema(value_type = Option<String>, format = "date-time")]
    #[serde(default, deserialize_with = "nullable")]
    pub expires: Option<Option<Parsed<TimeMs>>>,
    /// Job that made it; null for none.
    #[schema(value_type = Option<u64>)]
    #[serde(default, deserialize_with = "nullable")]
    pub job: Option<Option<u64>>,
    /// Bytes, of a file whose size is unknown.
    pub size: Option<u64>,
    /// Further checksums, `algorithm:hex`.
    #[schema(value_type = Vec<texts::Checksum>)]
    #[serde(default)]
    pub checksums: Vec<Parsed<Checksum>>,
}

impl AttributesIn {
    /// Returns the attributes to set.
    pub fn attributes(self) -> Result<Vec<Attribute>> {
        let mut set = Vec::new();
        set.extend(bare(self.owner).map(Attribute::Owner));
        set.extend(bare(self.group).map(Attribute::Group));
        set.extend(bare(self.mode).map(Attribute::Mode));
        set.extend(bare(self.modified).map(Attribute::Modified));
        set.extend(self.expires.map(|expires| Attribute::Expires(bare(expires))));
        set.extend(self.job.map(Attribute::Job));
        set.extend(self.size.map(Attribute::Size));
        set.extend(all(self.checksums).into_iter().map(Attribute::Checksum));
        if set.is_empty() { Err(Error::invalid("no attribute to set")) } else { Ok(set) }
    }
}

/// One change of the replicas of a file.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schema(as = ReplicaEdit, examples(json!({"put": {"se": "DEMO::DISK::SE2"}})))]
pub enum ReplicaEditIn {
    /// Adds or replaces a replica.
    Put(ReplicaIn),
    /// Sets the state of a replica.
    State(ReplicaStateIn),
    /// Drops a replica.
    Drop(ReplicaDropIn),
}

/// A new state of a replica.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplicaStateEdit)]
pub struct ReplicaStateIn {
    /// Storage element.
    #[schema(value_type = texts::SeName)]
    pub se: Parsed<SeName>,
    /// `available`, `copying`, `suspect` or `lost`.
    #[schema(value_type = texts::ReplicaState)]
    pub state: Parsed<ReplicaState>,
}

/// A replica to drop.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplicaDrop)]
pub struct ReplicaDropIn {
    /// Storage element.
    #[schema(value_type = texts::SeName)]
    pub se: Parsed<SeName>,
    /// Queue the physical copy for deletion.
    #[serde(default)]
    pub delete: bool,
}

impl From<ReplicaEditIn> for ReplicaEdit {
    fn from(edit: ReplicaEditIn) -> Self {
        match edit {
            ReplicaEditIn::Put(replica) => ReplicaEdit::Put(replica.into()),
            ReplicaEditIn::State(edit) => ReplicaEdit::State(edit.se.0, edit.state.0),
            ReplicaEditIn::Drop(edit) => ReplicaEdit::Drop { se: edit.se.0, delete: edit.delete },
        }
    }
}

/// Changes of the replicas of one file.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplicaEdits)]
pub struct ReplicaEditsIn {
    /// Path; in a bulk request only.
    #[schema(value_type = Option<texts::Lfn>)]
    pub lfn: Option<Parsed<Lfn>>,
    /// GUID in place of the path; in a bulk request only.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub guid: Option<Parsed<Guid>>,
    /// The changes, in order.
    pub edits: Vec<ReplicaEditIn>,
}

impl ReplicaEditsIn {
    /// Returns the file and its edits; the file is `named` if the URL has it.
    pub fn edits(self, named: Option<Lfn>) -> Result<(FileRef, Vec<ReplicaEdit>)> {
        let file = match named {
            Some(_) if self.lfn.is_some() || self.guid.is_some() => {
                return Err(Error::invalid("the URL names the file; leave lfn and guid out"));
            }
            Some(lfn) => FileRef::Lfn(lfn),
            None => FileRef::try_from(FileIn { lfn: self.lfn, guid: self.guid })?,
        };
        Ok((file, self.edits.into_iter().map(ReplicaEdit::from).collect()))
    }
}

/// Tags to set and to remove.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TagEdits, examples(json!({"set": {"run": 12}, "unset": ["draft"]})))]
pub struct TagEditsIn {
    /// Tags to set: text, number, true, false, or `{"time": "2026-…"}`.
    #[schema(value_type = texts::Tags)]
    #[serde(default)]
    pub set: Map<String, Value>,
    /// Keys of tags to remove.
    #[schema(value_type = Vec<texts::TagKey>)]
    #[serde(default)]
    pub unset: Vec<Parsed<TagKey>>,
}

impl TagEditsIn {
    /// Returns the tags to set, and the keys to remove.
    pub fn edits(self) -> Result<(Vec<Tag>, Vec<TagKey>)> {
        Ok((tags_of(self.set)?, all(self.unset)))
    }
}

/// A new collection.
#[derive(Debug, Default, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewCollection, examples(json!({"tags": {"campaign": "mc26"}})))]
pub struct CollectionIn {
    /// Its tags.
    #[schema(value_type = texts::Tags)]
    #[serde(default)]
    pub tags: Map<String, Value>,
}

/// Files to add to a collection and to remove from it.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CollectionEdits, examples(json!({"add": [{"lfn": "/demo/data/run1/f1.root"}]})))]
pub struct CollectionEditsIn {
    /// Files to add.
    #[serde(default)]
    pub add: Vec<FileIn>,
    /// Files to remove.
    #[serde(default)]
    pub remove: Vec<FileIn>,
}

impl CollectionEditsIn {
    /// Returns the files to add, and those to remove.
    pub fn edits(self) -> Result<(Vec<FileRef>, Vec<FileRef>)> {
        Ok((files(self.add)?, files(self.remove)?))
    }
}

/// A link.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewLink, examples(json!({"target": "/demo/data"})))]
pub struct LinkIn {
    /// Target path.
    #[schema(value_type = texts::Lfn)]
    pub target: Parsed<Lfn>,
}

/// A move.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Move, examples(json!({"from": "/demo/data/run1", "to": "/demo/data/run-1"})))]
pub struct MoveIn {
    /// Path of the entry.
    #[schema(value_type = texts::Lfn)]
    pub from: Parsed<Lfn>,
    /// Destination path.
    #[schema(value_type = texts::Lfn)]
    pub to: Parsed<Lfn>,
}

/// The destination of a restore.
#[derive(Debug, Default, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Restore, examples(json!({"to": "/demo/restored"})))]
pub struct RestoreIn {
    /// Path inside a removed directory; left out for the whole item.
    #[schema(value_type = Option<texts::Lfn>)]
    pub lfn: Option<Parsed<Lfn>>,
    /// Destination; left out for the former place.
    #[schema(value_type = Option<texts::Lfn>)]
    pub to: Option<Parsed<Lfn>>,
}

/// An upload to reserve.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewUpload, examples(json!({"lfn": "/demo/data/run2/f2.root", "size": 1024})))]
pub struct UploadIn {
    /// Path of the file; its parents may be missing.
    #[schema(value_type = texts::Lfn)]
    pub lfn: Parsed<Lfn>,
    /// Identity; left out for a new one.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub guid: Option<Parsed<Guid>>,
    /// Bytes to be written.
    pub size: u64,
    /// Checksums that the content will have.
    #[schema(value_type = Vec<texts::Checksum>)]
    #[serde(default)]
    pub checksums: Vec<Parsed<Checksum>>,
    /// Job that makes it.
    pub job: Option<u64>,
    /// Storage elements to write to.
    #[schema(value_type = Vec<texts::SeName>)]
    #[serde(default)]
    pub ses: Vec<Parsed<SeName>>,
    /// Numbers of replicas by quality of service.
    #[schema(value_type = texts::Counts)]
    #[serde(default)]
    pub qos: BTreeMap<String, u32>,
    /// Storage elements to avoid.
    #[schema(value_type = Vec<texts::SeName>)]
    #[serde(default)]
    pub exclude: Vec<Parsed<SeName>>,
    /// Site; near storage elements come first.
    #[schema(value_type = Option<texts::Account>)]
    pub site: Option<Parsed<AccountName>>,
    /// Lifetime of the reservation in seconds.
    pub lifetime_seconds: Option<u64>,
}

impl UploadIn {
    /// Returns the operation.
    pub fn operation(self) -> Result<exacat_model::Operation> {
        let qos = self.qos.into_iter().map(|(name, count)| Ok((AccountName::parse(&name)?, count)));
        let choice = SeChoice {
            wanted: all(self.ses),
            qos: qos.collect::<Result<_>>()?,
            excluded: all(self.exclude),
            site: bare(self.site),
        };
        Ok(exacat_model::Operation::UploadReserve {
            lfn: self.lfn.0,
            guid: bare(self.guid),
            size: self.size,
            checksums: checksums_of(self.checksums)?,
            job: self.job,
            choice: Box::new(choice),
            lifetime_seconds: self.lifetime_seconds,
        })
    }
}

/// A written replica of an upload.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Commit, examples(json!({"se": "DEMO::DISK::SE1", "size": 1024, "checksums": ["adler32:0a1af2bf"]})))]
pub struct CommitIn {
    /// Storage element.
    #[schema(value_type = texts::SeName)]
    pub se: Parsed<SeName>,
    /// Bytes written.
    pub size: u64,
    /// Checksums of the written content.
    #[schema(value_type = Vec<texts::Checksum>)]
    #[serde(default)]
    pub checksums: Vec<Parsed<Checksum>>,
}

impl CommitIn {
    /// Returns the operation for the reservation `guid`.
    pub fn operation(self, guid: Guid) -> Result<exacat_model::Operation> {
        let checksums = checksums_of(self.checksums)?;
        Ok(exacat_model::Operation::UploadCommit { guid, se: self.se.0, size: self.size, checksums })
    }
}

/// Settings of a storage element; those left out stay.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = StorageElementSettings, examples(json!({"prefix": "root://se3.example.org:1094//data", "qos": ["disk"]})))]
pub struct SeIn {
    /// Number; left out for a free one.
    pub number: Option<u16>,
    /// Beginning of derived PFNs.
    pub prefix: Option<String>,
    /// Beginning of the URLs for HTTPS clients; empty for none.
    pub https: Option<String>,
    /// Quality-of-service labels.
    #[schema(value_type = Option<Vec<texts::Account>>)]
    pub qos: Option<Vec<Parsed<AccountName>>>,
    /// `online`, `read-only` or `offline`.
    #[schema(value_type = Option<texts::SeStatus>)]
    pub status: Option<Parsed<SeStatus>>,
    /// Distances by site.
    #[schema(value_type = texts::Counts)]
    #[serde(default)]
    pub distances: BTreeMap<String, u32>,
    /// Refuse a name that exists.
    #[serde(default)]
    pub only_new: bool,
}

impl SeIn {
    /// Returns the settings of the storage element `name`.
    pub fn settings(self, name: SeName) -> Result<SeSettings> {
        let distances = self.distances.into_iter().map(|(site, far)| Ok((AccountName::parse(&site)?, far)));
        Ok(SeSettings {
            name,
            number: self.number,
            prefix: self.prefix,
            https: self.https,
            qos: self.qos.map(all),
            status: bare(self.status),
            distances: distances.collect::<Result<_>>()?,
            only_new: self.only_new,
        })
    }
}

/// Ids of deletions that are done.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DoneDeletions, examples(json!({"done": ["2266.0.3f9a1c"]})))]
pub struct DeletedIn {
    /// Ids.
    #[schema(value_type = Vec<texts::DeletionId>)]
    pub done: Vec<Parsed<OnTimeline<DeletionId>>>,
}

impl DeletedIn {
    /// Returns the ids.
    pub fn ids(self) -> Vec<OnTimeline<DeletionId>> {
        all(self.done)
    }
}

/// Settings of a user; those left out stay.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UserSettings, examples(json!({"group": "demo"})))]
pub struct UserIn {
    /// Primary group.
    #[schema(value_type = Option<texts::Account>)]
    pub group: Option<Parsed<AccountName>>,
    /// Further groups.
    #[schema(value_type = Option<Vec<texts::Account>>)]
    pub groups: Option<Vec<Parsed<AccountName>>>,
    /// Roles: `operator`, `admin`.
    #[schema(value_type = Option<Vec<texts::Role>>)]
    pub roles: Option<Vec<Parsed<Role>>>,
    /// Users that it may act as.
    #[schema(value_type = Option<Vec<texts::Account>>)]
    pub may_become: Option<Vec<Parsed<AccountName>>>,
    /// Identities that log in as it.
    pub subjects: Option<Vec<String>>,
    /// Home directory.
    #[schema(value_type = Option<texts::Lfn>)]
    pub home: Option<Parsed<Lfn>>,
    /// True if it may not log in.
    pub disabled: Option<bool>,
    /// Refuse a name that exists.
    #[serde(default)]
    pub only_new: bool,
}

impl UserIn {
    /// Returns the settings of the user `name`.
    pub fn settings(self, name: AccountName) -> UserSettings {
        UserSettings {
            name,
            group: bare(self.group),
            groups: self.groups.map(all),
            roles: self.roles.map(all),
            may_become: self.may_become.map(all),
            subjects: self.subjects,
            home: bare(self.home),
            disabled: self.disabled,
            only_new: self.only_new,
        }
    }
}

/// A token to issue.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewToken, examples(json!({"scope": "/demo", "write": false, "lifetime_seconds": 3600})))]
pub struct TokenIn {
    /// User; left out for the caller.
    #[schema(value_type = Option<texts::Account>)]
    pub user: Option<Parsed<AccountName>>,
    /// Subtree that it is valid for; left out for everything.
    #[schema(value_type = Option<texts::Lfn>)]
    pub scope: Option<Parsed<Lfn>>,
    /// True if it may make changes.
    #[serde(default)]
    pub write: bool,
    /// Lifetime in seconds.
    pub lifetime_seconds: u64,
    /// Purpose, as free text.
    #[serde(default)]
    pub note: String,
}

impl TokenIn {
    /// Returns the operation.
    pub fn operation(self) -> exacat_model::Operation {
        exacat_model::Operation::TokenIssue {
            user: bare(self.user),
            scope: bare(self.scope).unwrap_or_else(Lfn::root),
            write: self.write,
            lifetime_seconds: self.lifetime_seconds,
            note: self.note,
        }
    }
}

/// Limits of a user or group; those left out do not limit.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewLimits, examples(json!({"files": 1000000})))]
pub struct QuotaIn {
    /// Files, links and collections.
    pub files: Option<u64>,
    /// Logical bytes.
    pub bytes: Option<u64>,
    /// Bytes of replicas.
    pub replica_bytes: Option<u64>,
}

/// Limit of a throttle.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewThrottle, examples(json!({"items_per_second": 100})))]
pub struct ThrottleIn {
    /// Maximum items per second, at least 1.
    #[schema(minimum = 1)]
    pub items_per_second: u32,
}

/// A directory of backups.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBackup, examples(json!({"directory": "/var/backups/exacat"})))]
pub struct BackupIn {
    /// Absolute path on the server's machine.
    #[schema(value_type = texts::ServerPath)]
    pub directory: String,
}
