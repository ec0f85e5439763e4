//! Converts the fields of a row to a request to the catalogue: the normalising rules, one place for
//! each role.
//!
//! An empty field means "not known". Names are taken byte for byte: no URL decoding, no trimming,
//! no case folding. Only repeated and trailing slashes are folded, as everywhere in the catalogue.

use std::borrow::Cow;
use std::collections::HashSet;

use exacat_model::limits::{FILE_BYTES_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::operation::NewFile;
use exacat_model::{
    AccountName, Checksum, Checksums, ErrorKind, FileRef, Guid, Lfn, Mode, ReplicaState, SeName, Tag, TagKey,
    TagValue, TimeMs,
};
use serde_json::Value;
use smallvec::SmallVec;

use crate::columns::Role;
use crate::days::read_time;
use crate::escape;
use crate::item::{Item, Other, OtherKind};
use crate::json_tags;
use crate::memo::Memo;
use crate::options::{ListingOptions, RowKind};
use crate::placing::{DraftReplica, NewSes, Placed, Placement, Places, place};
use crate::reject::{Checked, Complaint, Reason};

/// A valid row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its request.
    pub item: Item,
    /// Parts left out of it.
    pub dropped: Vec<Complaint>,
    /// SEs that it names and that must be registered.
    pub new_ses: SmallVec<[SeName; 2]>,
}

/// Fields of one row, collected before they are combined.
pub(crate) struct Draft<'a> {
    memo: &'a Memo,
    lfn: Option<Cow<'a, str>>,
    kind: Option<RowKind>,
    size: Option<u64>,
    checksums: Checksums,
    places: Places<'a>,
    guid: Option<Guid>,
    owner: Option<AccountName>,
    group: Option<AccountName>,
    mode: Option<Mode>,
    modified: Option<TimeMs>,
    expires: Option<TimeMs>,
    job: Option<u64>,
    /// Tags from columns with a role.
    tags: Vec<Tag>,
    /// Tags from columns without a role.
    rest_tags: Vec<Tag>,
    collection: Option<Cow<'a, str>>,
    target: Option<Cow<'a, str>>,
    pub(crate) dropped: Vec<Complaint>,
}

impl<'a> Draft<'a> {
    /// Makes an empty draft.
    pub(crate) fn new(memo: &'a Memo) -> Self {
        Draft {
            memo,
            lfn: None,
            kind: None,
            size: None,
            checksums: Checksums::default(),
            places: Places::default(),
            guid: None,
            owner: None,
            group: None,
            mode: None,
            modified: None,
            expires: None,
            job: None,
            tags: Vec::new(),
            rest_tags: Vec::new(),
            collection: None,
            target: None,
            dropped: Vec::new(),
        }
    }

    /// Takes the text of a field that is not empty.
    pub(crate) fn take(&mut self, role: &Role, text: Cow<'a, str>, escapes: bool) -> Checked<()> {
        match role {
            Role::Lfn => self.lfn = Some(text),
            Role::Size => self.size = Some(read_size(&text)?),
            Role::Checksum => self.take_checksums(&text)?,
            Role::Pfn => self.places.pfns.push(text),
            Role::Pfns => match text {
                Cow::Borrowed(list) => self.places.pfns.extend(escape::items(list, &['|'], escapes)),
                Cow::Owned(list) => self.places.pfns.extend(owned_items(&list, &['|'], escapes)),
            },
            Role::Replicas => self.take_replicas(text, escapes)?,
            Role::Se => self.places.se = Some(text),
            Role::Guid => {
                self.guid =
                    Some(Guid::parse(&text).map_err(|error| Complaint::new(Reason::BadGuid, error.message))?);
            }
            Role::Owner => self.owner = Some(self.memo.account(&text, || read_account(&text))?),
            Role::Group => self.group = Some(self.memo.account(&text, || read_account(&text))?),
            Role::Mode => {
                self.mode =
                    Some(Mode::parse(&text).map_err(|error| Complaint::new(Reason::BadMode, error.message))?);
            }
            Role::Mtime => self.modified = Some(read_row_time(&text)?),
            Role::Expires => self.expires = Some(read_row_time(&text)?),
            Role::Job => {
                let job = text
                    .parse()
                    .map_err(|_| Complaint::new(Reason::BadJob, format!("not a job: {text:.100?}")));
                self.job = Some(job?);
            }
            Role::Tag(key) => self.take_tag(key.clone(), &text),
            Role::Tags => {
                for item in escape::items(&text, &[';'], escapes) {
                    match Tag::parse(&item) {
                        Ok(tag) => self.tags.push(tag),
                        Err(error) => self.drop_tag(&item, &error.message),
                    }
                }
            }
            Role::Collection => self.collection = Some(text),
            Role::Kind => self.kind = Some(RowKind::parse(&text)?),
            Role::Target => self.target = Some(text),
            Role::Ignore => {}
        }
        Ok(())
    }

    /// Takes a field of a JSON row.
    pub(crate) fn take_json(&mut self, role: &Role, value: &'a Value) -> Checked<()> {
        match (role, value) {
            (Role::Ignore, _) | (_, Value::Null) => Ok(()),
            (Role::Tag(key), value) => {
                match json_tags::from_json(value) {
                    Ok(value) => self.tags.push(Tag { key: key.clone(), value }),
                    Err(why) => self.drop_tag(key.as_str(), &why),
                }
                Ok(())
            }
            (Role::Tags, Value::Object(members)) => {
                for (key, value) in members {
                    let tag = TagKey::parse(key)
                        .map_err(|error| error.message)
                        .and_then(|key| json_tags::from_json(value).map(|value| Tag { key, value }));
                    match tag {
                        Ok(tag) => self.tags.push(tag),
                        Err(why) => self.drop_tag(key, &why),
                    }
                }
                Ok(())
            }
            (Role::Pfn | Role::Pfns | Role::Checksum | Role::Replicas, Value::Array(items)) => {
                items.iter().try_for_each(|item| self.take_json_item(role, item))
            }
            (_, Value::String(text)) if text.is_empty() => Ok(()),
            (role, Value::String(text)) => self.take(role, Cow::Borrowed(text), false),
            (role, Value::Number(number)) => self.take(role, Cow::Owned(number.to_string()), false),
            (role, _) => Err(Complaint::new(
                Reason::BadRow,
                format!("the {} is neither a text nor a number", role.name()),
            )),
        }
    }

    fn take_json_item(&mut self, role: &Role, item: &'a Value) -> Checked<()> {
        match (role, item) {
            (Role::Pfn | Role::Pfns, Value::String(pfn)) => self.places.pfns.push(Cow::Borrowed(pfn)),
            (Role::Checksum, Value::String(checksum)) => self.take_checksums(checksum)?,
            (Role::Replicas, Value::String(replica)) => self.take_replica(Cow::Borrowed(replica))?,
            (Role::Replicas, Value::Object(members)) => {
                let text =
                    |name: &str| members.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
                let pfn = text("pfn").map(Cow::Borrowed);
                let state = text("state").map_or(Ok(ReplicaState::Available), read_state)?;
                match (text("se"), pfn) {
                    (Some(se), pfn) => {
                        self.places.replicas.push(DraftReplica { location: Cow::Borrowed(se), pfn, state });
                    }
                    (None, Some(pfn)) => self.places.pfns.push(pfn),
                    (None, None) => {
                        return Err(Complaint::new(
                            Reason::BadReplica,
                            "a replica has neither an SE nor a PFN",
                        ));
                    }
                }
            }
            _ => {
                return Err(Complaint::new(
                    Reason::BadRow,
                    format!("an item of the {} is no text", role.name()),
                ));
            }
        }
        Ok(())
    }

    fn take_checksums(&mut self, text: &str) -> Checked<()> {
        let bad = |error: exacat_model::Error| Complaint::new(Reason::BadChecksum, error.message);
        if memchr::memchr3(b'|', b',', b';', text.as_bytes()).is_none() && !text.trim().is_empty() {
            return self.checksums.add(Checksum::parse(text).map_err(bad)?).map_err(bad);
        }
        for part in text.split(['|', ',', ';']).filter(|part| !part.trim().is_empty()) {
            self.checksums.add(Checksum::parse(part).map_err(bad)?).map_err(bad)?;
        }
        Ok(())
    }

    fn take_replicas(&mut self, text: Cow<'a, str>, escapes: bool) -> Checked<()> {
        // A comma is a separator only without PFNs, because PFNs contain commas.
        let separators: &[char] = if escapes || text.contains("://") { &['|'] } else { &['|', ','] };
        match text {
            Cow::Borrowed(list) => escape::items(list, separators, escapes)
                .into_iter()
                .try_for_each(|item| self.take_replica(item)),
            Cow::Owned(list) => owned_items(&list, separators, escapes)
                .into_iter()
                .try_for_each(|item| self.take_replica(item)),
        }
    }

    /// Takes `SE`, `SE/state`, either with `=PFN` after it, or a PFN alone.
    fn take_replica(&mut self, item: Cow<'a, str>) -> Checked<()> {
        let (name, pfn) = match item.split_once('=') {
            Some((name, _)) if name.contains("://") => ("", None),
            Some((name, pfn)) => (name, Some(pfn)),
            None if item.contains("://") => ("", None),
            None => (&*item, None),
        };
        if name.is_empty() {
            self.places.pfns.push(item);
            return Ok(());
        }
        let (location, state) = match name.split_once('/') {
            Some((location, state)) => (location, read_state(state)?),
            None => (name, ReplicaState::Available),
        };
        let pfn = pfn.filter(|pfn| !pfn.is_empty()).map(|pfn| Cow::Owned(pfn.to_owned()));
        self.places.replicas.push(DraftReplica { location: Cow::Owned(location.to_owned()), pfn, state });
        Ok(())
    }

    fn take_tag(&mut self, key: TagKey, text: &str) {
        match TagValue::parse(text) {
            Ok(value) => self.tags.push(Tag { key, value }),
            Err(error) => self.drop_tag(key.as_str(), &error.message),
        }
    }

    /// Takes a column without a role as a tag.
    pub(crate) fn take_rest(&mut self, name: &str, value: &Value) {
        json_tags::flatten(name, value, &mut self.rest_tags, &mut self.dropped);
    }

    /// Takes the text of a column without a role as a tag.
    pub(crate) fn take_rest_text(&mut self, name: &str, text: &str) {
        match TagKey::parse(name.trim()).and_then(|key| Ok(Tag { key, value: TagValue::parse(text)? })) {
            Ok(tag) => self.rest_tags.push(tag),
            Err(error) => self.drop_tag(name, &error.message),
        }
    }

    /// Says whether it has a field that only files have.
    fn says_of_a_file(&self) -> bool {
        self.size.is_some()
            || !self.checksums.is_empty()
            || !self.places.pfns.is_empty()
            || !self.places.replicas.is_empty()
            || self.places.se.is_some()
            || self.job.is_some()
            || self.collection.is_some()
    }

    fn drop_tag(&mut self, what: &str, why: &str) {
        self.dropped.push(Complaint::new(Reason::TagDropped, format!("{what:.200}: {why}")));
    }
}

fn owned_items<'a>(list: &str, separators: &[char], escapes: bool) -> Vec<Cow<'a, str>> {
    escape::items(list, separators, escapes).into_iter().map(|item| Cow::Owned(item.into_owned())).collect()
}

fn read_size(text: &str) -> Checked<u64> {
    match text.trim().parse() {
        Ok(size) if size <= FILE_BYTES_MAX => Ok(size),
        Ok(size) => {
            Err(Complaint::new(Reason::BadSize, format!("the size is {size}, the limit is {FILE_BYTES_MAX}")))
        }
        Err(_) => Err(Complaint::new(Reason::BadSize, format!("not a whole number of bytes: {text:.100?}"))),
    }
}

fn read_account(text: &str) -> Checked<AccountName> {
    AccountName::parse(text).map_err(|error| Complaint::new(Reason::BadAccount, error.message))
}

fn read_state(text: &str) -> Checked<ReplicaState> {
    ReplicaState::parse(text).map_err(|error| Complaint::new(Reason::BadReplica, error.message))
}

fn read_row_time(text: &str) -> Checked<TimeMs> {
    read_time(text).map_err(|why| Complaint::new(Reason::BadTime, why))
}

/// Says whether a text has control characters of ASCII or of Unicode's first block (C0, DEL, C1).
fn has_control(text: &str) -> bool {
    // No early exit, so that the compiler can check many bytes at a time.
    let ascii = text.bytes().fold(false, |found, byte| found | (byte < b' ') | (byte == 0x7f));
    ascii || (!text.is_ascii() && text.chars().any(char::is_control))
}

/// Builder of rows by a listing's options.
#[derive(Clone, Debug)]
pub(crate) struct Assembler {
    prefix: Option<String>,
    collection_prefix: Option<String>,
    allow_control: bool,
    kind: RowKind,
    placement: Placement,
}

impl Assembler {
    pub(crate) fn new(options: &ListingOptions, allow_control: bool, places: bool) -> Self {
        let text = |lfn: &Option<Lfn>| {
            lfn.as_ref().map(|lfn| if lfn.is_root() { String::new() } else { lfn.as_str().to_owned() })
        };
        Assembler {
            prefix: text(&options.prefix),
            collection_prefix: text(&options.collection_prefix),
            allow_control,
            kind: options.kind,
            placement: Placement::new(options, places),
        }
    }

    /// Adds the registered SEs.
    pub(crate) fn know(&mut self, ses: impl IntoIterator<Item = SeName>) {
        self.placement.registered.extend(ses.into_iter().map(|se| (se.as_str().to_owned(), se)));
    }

    /// Combines the fields of a row.
    pub(crate) fn finish(&self, draft: &mut Draft<'_>) -> Checked<Row> {
        let given = draft.lfn.take().ok_or_else(|| Complaint::new(Reason::NoLfn, "the LFN is empty"))?;
        let lfn = self.lfn(&given, self.prefix.as_deref(), "--prefix")?;
        if lfn.is_root() {
            return Err(Complaint::new(Reason::BadLfn, "the root is no entry to import"));
        }
        let kind = self.kind(draft, &given)?;
        let tags = finish_tags(draft);
        let (item, new_ses) = match kind {
            RowKind::File => self.file(draft, &given, lfn, tags)?,
            RowKind::Member => (self.member(draft, lfn)?, NewSes::new()),
            RowKind::Directory | RowKind::Collection | RowKind::Link => {
                (Item::Other(self.other(draft, kind, lfn, tags)?), NewSes::new())
            }
        };
        Ok(Row { item, dropped: std::mem::take(&mut draft.dropped), new_ses })
    }

    /// Returns the kind of the row. A slash at the end of the LFN means a directory, as in exports
    /// without a column for the kind and in the tables of AliEn.
    fn kind(&self, draft: &Draft<'_>, given: &str) -> Checked<RowKind> {
        let kind = draft.kind.unwrap_or(self.kind);
        if kind != RowKind::File || !given.ends_with('/') {
            return Ok(kind);
        }
        if draft.kind.is_none() && !draft.says_of_a_file() {
            return Ok(RowKind::Directory);
        }
        Err(Complaint::new(Reason::BadKind, format!("the slash at the end means a directory: {given:.200?}")))
    }

    fn lfn(&self, given: &str, prefix: Option<&str>, option: &str) -> Checked<Lfn> {
        if !self.allow_control && has_control(given) {
            return Err(Complaint::new(Reason::ControlCharacters, format!("{given:.200?}")));
        }
        let parsed = match prefix {
            None if !given.starts_with('/') => {
                return Err(Complaint::new(
                    Reason::BadLfn,
                    format!("no slash at its start, and no {option} to put before it: {given:.200?}"),
                ));
            }
            None => Lfn::parse(given),
            Some(prefix) => {
                let slash = if given.starts_with('/') { "" } else { "/" };
                Lfn::parse(&format!("{prefix}{slash}{given}"))
            }
        };
        parsed.map_err(|error| {
            let reason = if error.kind == ErrorKind::Limit { Reason::LfnTooLong } else { Reason::BadLfn };
            Complaint::new(reason, format!("{}: {given:.200?}", error.message))
        })
    }

    fn collection(&self, text: &str) -> Checked<Lfn> {
        self.lfn(text, self.collection_prefix.as_deref(), "--collection-prefix")
            .map_err(|complaint| Complaint::new(Reason::BadCollection, complaint.detail))
    }

    fn file(&self, draft: &mut Draft<'_>, given: &str, lfn: Lfn, tags: Vec<Tag>) -> Checked<(Item, NewSes)> {
        if draft.target.is_some() {
            return Err(Complaint::new(Reason::BadKind, "a file has no target"));
        }
        let collection = draft.collection.take().map(|text| self.collection(&text)).transpose()?;
        let placed = place(&self.placement, draft.memo, given, &mut draft.places)?;
        draft.dropped.extend(placed.complaint());
        let Placed { replicas, member_of, new_ses, .. } = placed;
        let file = NewFile {
            lfn,
            guid: draft.guid,
            size: draft.size,
            checksums: std::mem::take(&mut draft.checksums),
            owner: draft.owner.take(),
            group: draft.group.take(),
            mode: draft.mode,
            modified: draft.modified,
            expires: draft.expires,
            job: draft.job,
            tags,
            replicas,
            member_of,
        };
        Ok((Item::File(Box::new(file), collection), new_ses))
    }

    /// Reads a membership. In an export, the collection is the row's LFN, the file its target or
    /// GUID. In a listing of files with their collections it is the other way round.
    fn member(&self, draft: &Draft<'_>, lfn: Lfn) -> Checked<Item> {
        if let Some(text) = &draft.collection {
            return Ok(Item::Member { collection: self.collection(text)?, file: FileRef::Lfn(lfn) });
        }
        let file = match (&draft.target, draft.guid) {
            (Some(target), _) => FileRef::Lfn(self.target(target)?),
            (None, Some(guid)) => FileRef::Guid(guid),
            (None, None) => {
                return Err(Complaint::new(
                    Reason::BadTarget,
                    "a member names neither its collection nor its file",
                ));
            }
        };
        Ok(Item::Member { collection: lfn, file })
    }

    fn target(&self, text: &str) -> Checked<Lfn> {
        self.lfn(text, self.prefix.as_deref(), "--prefix")
            .map_err(|complaint| Complaint::new(Reason::BadTarget, complaint.detail))
    }

    fn other(&self, draft: &Draft<'_>, kind: RowKind, lfn: Lfn, tags: Vec<Tag>) -> Checked<Other> {
        if draft.says_of_a_file() {
            return Err(Complaint::new(
                Reason::BadKind,
                format!("a {} has no size, checksum, replica, job or collection", kind.name()),
            ));
        }
        let attributes = draft.owner.is_some()
            || draft.group.is_some()
            || draft.mode.is_some()
            || draft.modified.is_some()
            || draft.expires.is_some()
            || !tags.is_empty();
        // An attribute set on a link is set on its target.
        if kind == RowKind::Link && attributes {
            return Err(Complaint::new(
                Reason::BadKind,
                "a link has a target, and nothing else can be set on it",
            ));
        }
        let what = match (kind, &draft.target) {
            (RowKind::Link, Some(target)) => OtherKind::Link(self.target(target)?),
            (RowKind::Link, None) => {
                return Err(Complaint::new(Reason::BadTarget, "a link without a target"));
            }
            (_, Some(_)) => {
                return Err(Complaint::new(Reason::BadKind, format!("a {} has no target", kind.name())));
            }
            (RowKind::Collection, None) => OtherKind::Collection,
            (_, None) => OtherKind::Directory,
        };
        Ok(Other {
            lfn,
            what,
            owner: draft.owner.clone(),
            group: draft.group.clone(),
            mode: draft.mode,
            modified: draft.modified,
            expires: draft.expires,
            tags,
        })
    }
}

/// Sorts the tags; reports duplicates and excess ones. If there are too many, tags from columns
/// with a role are kept, then the most important others.
fn finish_tags(draft: &mut Draft<'_>) -> Vec<Tag> {
    let mut tags = std::mem::take(&mut draft.tags);
    let rest = std::mem::take(&mut draft.rest_tags);
    let named: Vec<TagKey> = match tags.len() + rest.len() > TAGS_PER_ENTRY_MAX {
        true => tags.iter().map(|tag| tag.key.clone()).collect(),
        false => Vec::new(),
    };
    tags.extend(rest);
    if tags.len() > 1 {
        tags.sort_by(|a, b| a.key.cmp(&b.key));
        tags.dedup_by(|later, earlier| {
            let twice = later.key == earlier.key;
            if twice && later.value != earlier.value {
                draft.drop_tag(later.key.as_str(), "the key is there already");
            }
            twice
        });
    }
    if tags.len() > TAGS_PER_ENTRY_MAX {
        let named: HashSet<&TagKey> = named.iter().collect();
        tags.sort_by_cached_key(|tag| (!named.contains(&tag.key), json_tags::importance(&tag.key)));
        let left: Vec<&str> = tags[TAGS_PER_ENTRY_MAX..].iter().map(|tag| tag.key.as_str()).collect();
        let detail =
            format!("{} tags, the limit is {TAGS_PER_ENTRY_MAX}; left out: {}", tags.len(), left.join(" "));
        draft.dropped.push(Complaint::new(Reason::TooManyTags, detail));
        tags.truncate(TAGS_PER_ENTRY_MAX);
        tags.sort_by(|a, b| a.key.cmp(&b.key));
    }
    tags
}
