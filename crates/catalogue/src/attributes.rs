//! Attributes of entries: owner, mode, times, size, checksums, replicas; and links.

use exacat_model::limits::REPLICAS_PER_FILE_MAX;
use exacat_model::operation::{Attribute, NewReplica, ReplicaEdit};
use exacat_model::{
    Answer, Body, Edit, Entry, Error, ErrorKind, File, FileRef, Guid, Lfn, Location, Mode, Mutation, NewBody,
    NewEntry, OperationId, Pfn, Replica, Result, Se, SeName, SeNumber,
};

use crate::Catalogue;
use crate::caller::{Caller, WRITE};
use crate::directories::vacant;
use crate::registry::Names;
use crate::repeat::MUTATION_BYTES;
use crate::resolve::{Resolved, check_parent_writable};

/// Most attributes set by one request: each kind, each checksum, and some to spare.
const ATTRIBUTES_MAX: usize = 32;
/// Most bytes of an encoded attribute.
const ATTRIBUTE_BYTES: usize = 80;
/// Most changes to the replicas of one file in one request: a few for each replica.
const REPLICA_EDITS_MAX: usize = 4 * REPLICAS_PER_FILE_MAX;

/// Mode of a link; never checked, as in POSIX.
const LINK_MODE: u16 = 0o777;

/// Refuses a caller who may not write an entry.
pub(crate) fn check_writable(caller: &Caller, entry: &Entry, lfn: &Lfn) -> Result<()> {
    if caller.has_entry(entry, WRITE) {
        return Ok(());
    }
    Err(Error::denied(format!("you may not change {lfn} (no w)")))
}

/// Returns the location of a replica: the given PFN, or the one derived from the SE. A file may be
/// registered with one form and requested by the other. So if a known replica has the given PFN,
/// its own location is returned.
pub(crate) fn location_on(
    se: &Se,
    guid: Guid,
    pfn: Option<Pfn>,
    known: Option<&Replica>,
) -> Result<Location> {
    match pfn {
        Some(pfn) => match known {
            Some(replica) if replica.pfn(guid, Some(se)) == pfn.as_str() => Ok(replica.location.clone()),
            _ => Ok(Location::Explicit(pfn)),
        },
        None if se.prefix.is_empty() => {
            Err(Error::invalid(format!("{} has no prefix to derive PFNs from: give the PFN", se.name)))
        }
        None => Ok(Location::Derived),
    }
}

impl Catalogue {
    /// Sets attributes of entries, following links: for each entry all of them or none.
    pub(crate) async fn set_attributes(
        &self,
        caller: &Caller,
        id: OperationId,
        lfns: &[Lfn],
        attributes: &[Attribute],
    ) -> Result<Answer> {
        if attributes.len() > ATTRIBUTES_MAX {
            return Err(Error::limit("the number of attributes to set", attributes.len(), ATTRIBUTES_MAX));
        }
        let names = self.registry.names();
        let mut edits = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            edits.push(edit_of(&names, attribute)?);
        }
        let found = self.resolve_all(caller, lfns, true).await?;
        let items = found.into_iter().map(|resolved| {
            let resolved = resolved?;
            for edit in &edits {
                check_may_set(caller, &resolved, edit)?;
            }
            let Entry { at, .. } = &resolved.entry;
            let expect = caller.expect(resolved.entry.id());
            Ok(Mutation::Update { at: at.clone(), expect, edits: edits.clone() })
        });
        let bytes = MUTATION_BYTES + ATTRIBUTE_BYTES * attributes.len();
        let done = self.apply_each_done(caller, id, items, bytes, |index| lfns[index].clone()).await?;
        Ok(Answer::EachDone(done))
    }

    /// Changes the replicas of files: for each file all edits or none. Takes w on the file.
    pub(crate) async fn set_replicas(
        &self,
        caller: &Caller,
        id: OperationId,
        edits: &[(FileRef, Vec<ReplicaEdit>)],
    ) -> Result<Answer> {
        let names = self.registry.names();
        let files: Vec<FileRef> = edits.iter().map(|(file, _)| file.clone()).collect();
        let found = self.resolve_files(caller, &files).await?;
        let mut bytes = 0;
        let mut items = Vec::with_capacity(edits.len());
        for (resolved, (_, asked)) in found.into_iter().zip(edits) {
            bytes = bytes.max(asked.iter().map(bytes_of).sum::<usize>() + MUTATION_BYTES);
            items.push(resolved.and_then(|resolved| plan_replicas(&names, caller, resolved, asked)));
        }
        let what = |index: usize| named(&files[index]);
        let done = self.apply_each_done(caller, id, items, bytes, what).await?;
        Ok(Answer::EachDone(done))
    }

    /// Returns entries by LFN (following links) or GUID, one answer each.
    pub(crate) async fn resolve_files(
        &self,
        caller: &Caller,
        files: &[FileRef],
    ) -> Result<Vec<Result<Resolved>>> {
        let lfns: Vec<Lfn> = files.iter().filter_map(FileRef::lfn).cloned().collect();
        let guids: Vec<Guid> = files.iter().filter_map(FileRef::guid).collect();
        let mut by_lfn = self.resolve_all(caller, &lfns, true).await?.into_iter();
        let mut by_guid = self.resolve_guids(caller, &guids).await?.into_iter();
        let found = files.iter().map(|file| match file {
            FileRef::Lfn(_) => by_lfn.next(),
            FileRef::Guid(_) => by_guid.next(),
        });
        let short = || Error::new(ErrorKind::Internal, "the store gave too few answers");
        found.map(|found| found.ok_or_else(short)).collect()
    }

    /// Creates a link; its target need not exist. Takes w and x on the directory of the link.
    pub(crate) async fn link(
        &self,
        caller: &Caller,
        id: OperationId,
        lfn: Lfn,
        target: Lfn,
    ) -> Result<Answer> {
        let planned = self.plan_link(caller, &lfn, target).await;
        let outcome = self.apply_planned(caller, id, &lfn, planned).await?;
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    async fn plan_link(&self, caller: &Caller, lfn: &Lfn, target: Lfn) -> Result<Mutation> {
        let (vacancy, at) = vacant(self.spot(caller, lfn, false).await?, lfn)?;
        check_parent_writable(caller, vacancy.ancestors.last(), lfn)?;
        let body = NewBody::Link { guid: self.new_guid()?, target };
        Ok(Mutation::Create(Box::new(NewEntry {
            at,
            owner: caller.acting_user(),
            group: caller.group(),
            mode: Mode::new(LINK_MODE)?,
            created: None,
            modified: None,
            expires: None,
            tags: Vec::new(),
            body,
        })))
    }
}

/// Returns a file as the request named it, for an error.
pub(crate) fn named(file: &FileRef) -> String {
    match file {
        FileRef::Lfn(lfn) => lfn.to_string(),
        FileRef::Guid(guid) => guid.to_string(),
    }
}

fn edit_of(names: &Names, attribute: &Attribute) -> Result<Edit> {
    Ok(match attribute {
        Attribute::Owner(name) => Edit::Owner(names.user(name)?.id),
        Attribute::Group(name) => Edit::Group(names.group(name)?.id),
        Attribute::Mode(mode) => Edit::Mode(*mode),
        Attribute::Modified(time) => Edit::Modified(*time),
        Attribute::Expires(time) => Edit::Expires(*time),
        Attribute::Job(job) => Edit::Job(*job),
        Attribute::Size(size) => Edit::Size(*size),
        Attribute::Checksum(checksum) => Edit::Checksum(*checksum),
    })
}

/// Refuses attributes that the caller may not set.
///
/// - A new owner takes an admin, a new group an owner who is in it.
/// - Mode and times take the owner.
/// - Attributes of the content take write permission.
///
/// The owner may set owner and group to their current values.
fn check_may_set(caller: &Caller, resolved: &Resolved, edit: &Edit) -> Result<()> {
    let Resolved { lfn, entry, .. } = resolved;
    let owned = || match caller.owns(entry) {
        true => Ok(()),
        false => Err(Error::denied(format!("{lfn}: only its owner or an admin may do this"))),
    };
    match edit {
        Edit::Owner(_) if caller.is_admin() => Ok(()),
        Edit::Owner(owner) if *owner == entry.owner => owned(),
        Edit::Owner(_) => Err(Error::denied(format!("{lfn}: only an admin may give it to another owner"))),
        Edit::Group(group) => {
            owned()?;
            match caller.is_admin() || *group == entry.group || caller.is_in(*group) {
                true => Ok(()),
                false => Err(Error::denied(format!("{lfn}: you may only give it to a group you are in"))),
            }
        }
        Edit::Expires(Some(_)) if lfn.is_root() => Err(Error::invalid("the root cannot expire")),
        Edit::Mode(_) | Edit::Modified(_) | Edit::Expires(_) => owned(),
        Edit::Job(_) | Edit::Size(_) | Edit::Checksum(_) => {
            check_writable(caller, entry, lfn)?;
            file_of(entry, lfn).map(|_| ())
        }
        _ => Err(Error::new(ErrorKind::Internal, "an edit that is no attribute")),
    }
}

/// Returns the file of an entry.
pub(crate) fn file_of<'a>(entry: &'a Entry, lfn: &Lfn) -> Result<&'a File> {
    match &entry.body {
        Body::File(file) => Ok(file),
        _ => Err(Error::new(ErrorKind::NotFile, format!("{lfn} is a {}, not a file", entry.kind().name()))),
    }
}

fn plan_replicas(
    names: &Names,
    caller: &Caller,
    resolved: Resolved,
    asked: &[ReplicaEdit],
) -> Result<Mutation> {
    let Resolved { lfn, entry, .. } = resolved;
    check_writable(caller, &entry, &lfn)?;
    let file = file_of(&entry, &lfn)?;
    if asked.len() > REPLICA_EDITS_MAX {
        let what = "the number of changes to the replicas of one file";
        return Err(Error::limit(what, asked.len(), REPLICA_EDITS_MAX));
    }
    let mut edits = Vec::with_capacity(asked.len());
    let mut expect = caller.expect(entry.id());
    for edit in asked {
        edits.push(match edit {
            ReplicaEdit::Unchanged(revision) => {
                if expect.revision.is_some_and(|known| known != *revision) {
                    return Err(Error::invalid(format!("{lfn}: two versions of it are required")));
                }
                expect.revision = Some(*revision);
                continue;
            }
            ReplicaEdit::Put(NewReplica { se, pfn, state }) => {
                let se = names.se(se)?;
                let location = location_on(se, file.guid, pfn.clone(), file.replica(se.number))?;
                Edit::PutReplica(Replica { se: se.number, state: *state, location })
            }
            ReplicaEdit::State(se, state) => {
                let number = names.se(se)?.number;
                check_held(file, &edits, number, &lfn, se)?;
                Edit::ReplicaState { se: number, state: *state }
            }
            ReplicaEdit::Drop { se, delete } => {
                let number = names.se(se)?.number;
                check_held(file, &edits, number, &lfn, se)?;
                Edit::DropReplica { se: number, delete: *delete }
            }
        });
    }
    Ok(Mutation::Update { at: entry.at, expect, edits })
}

/// Refuses an edit of a replica that the file lacks and that no earlier edit adds. The store checks
/// this again at the commit, but its refusal cannot name the storage element.
fn check_held(file: &File, edits: &[Edit], number: SeNumber, lfn: &Lfn, se: &SeName) -> Result<()> {
    let is_put = |edit: &Edit| matches!(edit, Edit::PutReplica(replica) if replica.se == number);
    if file.replica(number).is_some() || edits.iter().any(is_put) {
        return Ok(());
    }
    Err(Error::not_found(format!("{lfn}: the file has no replica on {se}")))
}

/// Returns the most bytes that an encoded edit takes.
fn bytes_of(edit: &ReplicaEdit) -> usize {
    match edit {
        ReplicaEdit::Put(NewReplica { pfn: Some(pfn), .. }) => pfn.as_str().len() + 32,
        _ => 32,
    }
}
