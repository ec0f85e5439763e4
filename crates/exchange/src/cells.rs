//! Converts an entry to a row of an export: the content of each column, in each format.

use std::collections::HashMap;
use std::fmt::Write as _;

use exacat_model::answer::Stat;
use exacat_model::{Body, Entry, File, FileRef, Kind, Lfn, Location, Replica, ReplicaState, Se, TagValue};
use serde_json::Value;
use smallvec::SmallVec;

use crate::columns::Role;
use crate::days::Days;
use crate::escape;
use crate::json_tags;
use crate::records::{Format, push_csv_field};

/// The SEs by number.
pub(crate) type Ses = HashMap<u16, Se>;

/// Writer of rows.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    pub(crate) columns: Vec<Role>,
    pub(crate) format: Format,
    pub(crate) delimiter: u8,
    /// PFN prefix; a PFN that is this and the LFN is written as `=`.
    pub(crate) pfn_same: Option<String>,
    pub(crate) days: Days,
}

/// Source of a row.
pub(crate) enum Line<'a> {
    /// An entry.
    Entry(&'a Stat),
    /// A member of a collection; by GUID if its path is hidden from the caller.
    Member { collection: &'a Lfn, file: FileRef },
}

impl Cells {
    /// Appends the header row.
    pub(crate) fn header(&self, out: &mut Vec<u8>) {
        for (index, role) in self.columns.iter().enumerate() {
            self.separate(out, index);
            self.field(out, &role.name());
        }
        out.push(b'\n');
    }

    /// Appends a row.
    pub(crate) fn row(&self, out: &mut Vec<u8>, line: &Line<'_>, ses: &Ses) {
        if self.format == Format::JsonLines {
            self.json_row(out, line, ses);
        } else {
            // One buffer for all fields of a row: a field is written in two steps, and an export
            // has billions of them.
            let mut text = String::new();
            for (index, role) in self.columns.iter().enumerate() {
                self.separate(out, index);
                text.clear();
                self.push_text(&mut text, role, line, ses);
                self.field(out, &text);
            }
        }
        out.push(b'\n');
    }

    fn separate(&self, out: &mut Vec<u8>, index: usize) {
        if index > 0 {
            out.push(self.delimiter);
        }
    }

    fn field(&self, out: &mut Vec<u8>, text: &str) {
        match self.format {
            Format::Csv => push_csv_field(out, text, self.delimiter),
            _ => escape::push_field(out, text),
        }
    }

    /// Appends the content of a column; nothing if it is empty.
    fn push_text(&self, out: &mut String, role: &Role, line: &Line<'_>, ses: &Ses) {
        let stat = match line {
            Line::Member { collection, file } => {
                return out.push_str(&member_text(role, collection, file).unwrap_or_default());
            }
            Line::Entry(stat) => stat,
        };
        let file = stat.entry.file();
        match role {
            Role::Replicas => {
                let Some(file) = file else { return };
                join(out, by_name(file, ses), '|', |out, replica| push_replica(out, file, replica, ses));
            }
            Role::Pfns => {
                let Some(file) = file else { return };
                join(out, pfns(file, ses), '|', |out, pfn| out.push_str(&pfn));
            }
            Role::Tags => join(out, &stat.entry.tags, ';', |out, tag| {
                let _infallible = write!(out, "{}={}", tag.key, tag.value);
            }),
            Role::Tag(key) => {
                if let Some(value) = tag(&stat.entry, key.as_str()) {
                    let _infallible = write!(out, "{value}");
                }
            }
            role => {
                let _nothing = self.push_scalar(out, role, stat, ses);
            }
        }
    }

    /// Appends a column with one value; none if it is empty.
    fn push_scalar(&self, out: &mut String, role: &Role, stat: &Stat, ses: &Ses) -> Option<()> {
        let entry = &stat.entry;
        let file = entry.file();
        // An attribute set on a link is set on its target, so an import could not restore a link's
        // own ones.
        if entry.kind() == Kind::Link && !matches!(role, Role::Lfn | Role::Kind | Role::Target) {
            return None;
        }
        match role {
            Role::Lfn => {
                out.push_str(stat.lfn.as_str());
                if entry.kind() == Kind::Directory && !self.columns.contains(&Role::Kind) {
                    out.push('/');
                }
            }
            Role::Kind => out.push_str(entry.kind().name()),
            Role::Guid => file?.guid.push_text(out),
            Role::Size => push(out, file?.size?),
            Role::Checksum => {
                for (index, checksum) in file?.checksums.iter().enumerate() {
                    if index > 0 {
                        out.push('|');
                    }
                    push(out, checksum);
                }
            }
            Role::Owner => out.push_str(stat.owner.as_str()),
            Role::Group => out.push_str(stat.group.as_str()),
            Role::Mode => push(out, entry.mode),
            Role::Mtime => self.days.push(out, entry.modified),
            Role::Expires => self.days.push(out, entry.expires?),
            Role::Job => push(out, file?.job?),
            Role::Pfn => {
                let pfn = pfns(file?, ses).next()?;
                let same = |prefix: &String| pfn.strip_prefix(prefix.as_str()) == Some(stat.lfn.as_str());
                out.push_str(if self.pfn_same.as_ref().is_some_and(same) { "=" } else { &pfn });
            }
            Role::Se => {
                let file = file?;
                let replica = match offered(file, ses).next() {
                    Some(replica) => replica,
                    None => *by_name(file, ses).first()?,
                };
                out.push_str(ses.get(&replica.se.0)?.name.as_str());
            }
            Role::Target => match &entry.body {
                Body::Link { target, .. } => out.push_str(target.as_str()),
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }

    fn json_row(&self, out: &mut Vec<u8>, line: &Line<'_>, ses: &Ses) {
        out.push(b'{');
        let mut first = true;
        for role in &self.columns {
            let Some(value) = self.json(role, line, ses) else { continue };
            if !first {
                out.push(b',');
            }
            first = false;
            // A write to memory cannot fail, and every value here has text keys.
            let _infallible = serde_json::to_writer(&mut *out, &role.name());
            out.push(b':');
            let _infallible = serde_json::to_writer(&mut *out, &value);
        }
        out.push(b'}');
    }

    fn json(&self, role: &Role, line: &Line<'_>, ses: &Ses) -> Option<Value> {
        let stat = match line {
            Line::Member { collection, file } => return member_text(role, collection, file).map(Value::from),
            Line::Entry(stat) => stat,
        };
        let file = stat.entry.file();
        Some(match role {
            Role::Size => Value::from(file?.size?),
            Role::Job => Value::from(file?.job?),
            Role::Replicas => {
                let file = file?;
                let items = by_name(file, ses).into_iter().map(|replica| replica_json(file, replica, ses));
                some_array(items.collect())?
            }
            Role::Pfns => some_array(pfns(file?, ses).map(Value::from).collect())?,
            Role::Tags => {
                let tags =
                    stat.entry.tags.iter().map(|tag| (tag.key.to_string(), json_tags::to_json(&tag.value)));
                let tags: serde_json::Map<String, Value> = tags.collect();
                if tags.is_empty() {
                    return None;
                }
                Value::Object(tags)
            }
            Role::Tag(key) => json_tags::to_json(tag(&stat.entry, key.as_str())?),
            role => {
                let mut text = String::new();
                self.push_scalar(&mut text, role, stat, ses)?;
                Value::from(Some(text).filter(|text| !text.is_empty())?)
            }
        })
    }
}

fn some_array(items: Vec<Value>) -> Option<Value> {
    (!items.is_empty()).then_some(Value::Array(items))
}

fn member_text(role: &Role, collection: &Lfn, file: &FileRef) -> Option<String> {
    match (role, file) {
        (Role::Kind, _) => Some("member".to_owned()),
        (Role::Lfn, _) => Some(collection.as_str().to_owned()),
        (Role::Target, FileRef::Lfn(lfn)) => Some(lfn.as_str().to_owned()),
        (Role::Guid, FileRef::Guid(guid)) => Some(guid.to_string()),
        _ => None,
    }
}

fn tag<'a>(entry: &'a Entry, key: &str) -> Option<&'a TagValue> {
    entry.tag(key)
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    // A write to memory cannot fail.
    let _infallible = write!(out, "{value}");
}

/// Appends the items of a list, escaped; `item` appends each.
fn join<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    separator: char,
    item: impl Fn(&mut String, T),
) {
    let start = out.len();
    for (index, one) in items.into_iter().enumerate() {
        if index > 0 && out.len() > start {
            out.push(separator);
        }
        let begun = out.len();
        item(out, one);
        escape::escape_item(out, begun);
    }
}

/// Returns the replicas in the order of their SEs' names, which is the same in every catalogue.
/// Numbers differ.
fn by_name<'a>(file: &'a File, ses: &Ses) -> SmallVec<[&'a Replica; 4]> {
    let mut replicas: SmallVec<[&Replica; 4]> = file.replicas.iter().collect();
    if replicas.len() > 1 {
        replicas.sort_by_cached_key(|replica| (ses.get(&replica.se.0).map(|se| se.name.clone()), replica.se));
    }
    replicas
}

/// Returns the replicas with readable PFNs, available ones first, then by the names of their SEs. A
/// PFN in a listing is imported as an available replica, so lost ones and those being copied are
/// left out.
pub(crate) fn offered<'a>(file: &'a File, ses: &Ses) -> impl Iterator<Item = &'a Replica> {
    let mut replicas = by_name(file, ses);
    replicas.retain(|replica| {
        matches!(replica.state, ReplicaState::Available | ReplicaState::Suspect)
            && (replica.location != Location::Derived
                || ses.get(&replica.se.0).is_some_and(Se::is_place_known))
    });
    replicas.sort_by_key(|replica| replica.state != ReplicaState::Available);
    replicas.into_iter()
}

fn pfns(file: &File, ses: &Ses) -> impl Iterator<Item = String> {
    offered(file, ses).map(|replica| replica.pfn(file.guid, ses.get(&replica.se.0)))
}

/// Returns the name of a replica's SE. For an SE no longer registered it is a name that belongs to
/// none, with the number.
fn se_name(replica: &Replica, ses: &Ses) -> String {
    ses.get(&replica.se.0).map_or_else(|| format!("se-number-{}", replica.se.0), |se| se.name.to_string())
}

fn push_replica(out: &mut String, file: &File, replica: &Replica, ses: &Ses) {
    if replica.is_member() {
        return out.push_str(&replica.pfn(file.guid, None));
    }
    match ses.get(&replica.se.0) {
        Some(se) => out.push_str(se.name.as_str()),
        None => out.push_str(&se_name(replica, ses)),
    }
    if replica.state != ReplicaState::Available {
        out.push('/');
        out.push_str(replica.state.name());
    }
    if let Location::Explicit(pfn) = &replica.location {
        out.push('=');
        out.push_str(pfn.as_str());
    }
}

fn replica_json(file: &File, replica: &Replica, ses: &Ses) -> Value {
    if replica.is_member() {
        return Value::from(replica.pfn(file.guid, None));
    }
    let mut object = serde_json::Map::new();
    object.insert("se".to_owned(), Value::from(se_name(replica, ses)));
    if let Location::Explicit(pfn) = &replica.location {
        object.insert("pfn".to_owned(), Value::from(pfn.as_str()));
    }
    if replica.state != ReplicaState::Available {
        object.insert("state".to_owned(), Value::from(replica.state.name()));
    }
    Value::Object(object)
}

/// Returns the columns of an export that restores everything.
pub(crate) fn full_columns() -> Vec<Role> {
    vec![
        Role::Kind,
        Role::Lfn,
        Role::Guid,
        Role::Size,
        Role::Checksum,
        Role::Owner,
        Role::Group,
        Role::Mode,
        Role::Mtime,
        Role::Expires,
        Role::Job,
        Role::Replicas,
        Role::Tags,
        Role::Target,
    ]
}
