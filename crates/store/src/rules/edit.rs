//! Decides `Update` and its edits of the contract's table.
//!
//! Edits are decided on a working copy, each on the result of the ones before it. Nothing is done
//! unless all are possible.

use std::collections::HashMap;

use exacat_model::limits::{EDITS_PER_UPDATE_MAX, REPLICAS_PER_FILE_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::{
    At, Body, DeletionId, Edit, Effect, Entry, Expect, FieldChange, File, Guid, Replica, Revision, SeNumber,
};

use super::checks::{check_limit, check_se, check_size, found_in_tree};
use super::decision::{Context, Decision, Declined};
use super::fields::change_field;
use super::quota::{Counted, check_change};
use super::refusals;
use super::view::View;
use crate::Refusal;

pub(super) fn update<V: View>(
    view: &V,
    context: Context,
    at: At,
    expect: Expect,
    edits: Vec<Edit>,
) -> Decision<V::Error> {
    check_limit(edits.len(), EDITS_PER_UPDATE_MAX, refusals::too_many_edits)?;
    let mut entry = found_in_tree(view, &at, expect)?;
    let (id, previous) = (entry.id(), Some(entry.revision));
    let start = Counted::from(&entry);
    let mut members = HashMap::new();
    let mut fields = Vec::with_capacity(edits.len());
    let mut deletions = 0;
    for edit in edits {
        let Some(mut field) = decide_edit(view, &entry, &mut members, edit)? else { continue };
        if let FieldChange::Replica { deletion: Some(deletion), .. } = &mut field {
            *deletion = DeletionId { revision: context.revision, index: deletions };
            deletions += 1;
        }
        let before = Counted::from(&entry);
        change_field(&mut entry, &field).map_err(|misfit| Declined::Failed(misfit.into()))?;
        let after = Counted::from(&entry);
        if before != after {
            check_change(view, Some(&start), Some(&before), &after)?;
        }
        fields.push(field);
    }
    if fields.is_empty() {
        return Err(Declined::Unchanged);
    }
    Ok(Effect::Updated { at, id, fields, previous })
}

fn file_of(entry: &Entry) -> Result<&File, Refusal> {
    entry.file().ok_or(Refusal::WrongKind)
}

/// Decides one edit of an entry after the edits before it; none if it changes nothing. The caller
/// numbers deletions and checks quotas.
fn decide_edit<V: View>(
    view: &V,
    entry: &Entry,
    members: &mut HashMap<Guid, bool>,
    edit: Edit,
) -> Result<Option<FieldChange>, Declined<V::Error>> {
    Ok(match edit {
        Edit::Owner(after) => {
            let before = entry.owner;
            (before != after).then_some(FieldChange::Owner { before, after })
        }
        Edit::Group(after) => {
            let before = entry.group;
            (before != after).then_some(FieldChange::Group { before, after })
        }
        Edit::Mode(after) => {
            let before = entry.mode;
            (before != after).then_some(FieldChange::Mode { before, after })
        }
        Edit::Modified(after) => {
            let before = entry.modified;
            (before != after).then_some(FieldChange::Modified { before, after })
        }
        Edit::Expires(after) => {
            let before = entry.expires;
            (before != after).then_some(FieldChange::Expires { before, after })
        }
        Edit::Job(after) => {
            let before = file_of(entry)?.job;
            (before != after).then_some(FieldChange::Job { before, after })
        }
        Edit::Size(after) => {
            let before = file_of(entry)?.size;
            check_size(after)?;
            match before {
                None => Some(FieldChange::Size { after }),
                Some(before) if before == after => None,
                Some(before) => return Err(refusals::known_size(before, after).into()),
            }
        }
        Edit::Checksum(after) => {
            let checksums = &file_of(entry)?.checksums;
            if checksums.get(after.algorithm()) == Some(&after) {
                return Ok(None);
            }
            checksums.clone().add(after).map_err(refusals::checksum)?;
            Some(FieldChange::Checksum { after })
        }
        Edit::PutReplica(replica) => put_replica(view, file_of(entry)?, replica)?,
        Edit::DropReplica { se, delete } => {
            let before = replica_on(entry, se)?.clone();
            let unnumbered = DeletionId { revision: Revision(0), index: 0 };
            let deletion = (delete && before.takes_space()).then_some(unnumbered);
            Some(FieldChange::Replica { before: Some(before), after: None, deletion })
        }
        Edit::ReplicaState { se, state } => {
            let before = replica_on(entry, se)?.clone();
            let after = Replica { state, ..before.clone() };
            changed_replica(Some(before), after)
        }
        Edit::SetTag(tag) => {
            tag.value.check().map_err(refusals::invalid)?;
            let before = entry.tag(tag.key.as_str());
            if before == Some(&tag.value) {
                return Ok(None);
            }
            if before.is_none() {
                check_limit(entry.tags.len() + 1, TAGS_PER_ENTRY_MAX, refusals::too_many_tags)?;
            }
            Some(FieldChange::Tag { key: tag.key, before: before.cloned(), after: Some(tag.value) })
        }
        Edit::UnsetTag(key) => {
            let before = entry.tag(key.as_str()).cloned();
            before.map(|before| FieldChange::Tag { key, before: Some(before), after: None })
        }
        Edit::AddMember(guid) => change_member(view, entry, members, guid, true)?,
        Edit::RemoveMember(guid) => change_member(view, entry, members, guid, false)?,
    })
}

fn replica_on(entry: &Entry, se: SeNumber) -> Result<&Replica, Refusal> {
    file_of(entry)?.replica(se).ok_or(Refusal::NotFound)
}

fn changed_replica(before: Option<Replica>, after: Replica) -> Option<FieldChange> {
    if before.as_ref() == Some(&after) {
        return None;
    }
    Some(FieldChange::Replica { before, after: Some(after), deletion: None })
}

fn put_replica<V: View>(view: &V, file: &File, replica: Replica) -> Result<Option<FieldChange>, Refusal> {
    replica.check().map_err(refusals::invalid)?;
    let mut others = file.replicas.iter().filter(|other| other.se != replica.se);
    if others.any(|other| other.is_member() || replica.is_member()) {
        return Err(refusals::replica_beside_member());
    }
    check_se(view, &replica)?;
    let before = file.replica(replica.se).cloned();
    match &before {
        Some(before) if before.location != replica.location => return Err(Refusal::ReplicaExists),
        Some(_) => {}
        None => check_limit(file.replicas.len() + 1, REPLICAS_PER_FILE_MAX, refusals::too_many_replicas)?,
    }
    Ok(changed_replica(before, replica))
}

/// Decides a change of a collection's members. `members` are those that earlier edits changed.
fn change_member<V: View>(
    view: &V,
    entry: &Entry,
    members: &mut HashMap<Guid, bool>,
    guid: Guid,
    added: bool,
) -> Result<Option<FieldChange>, Declined<V::Error>> {
    let Body::Collection { guid: collection, .. } = entry.body else {
        return Err(Refusal::WrongKind.into());
    };
    if added && !view.is_file(guid)? {
        return Err(Refusal::NotFound.into());
    }
    let is_member = match members.get(&guid) {
        Some(edited) => *edited,
        None => view.is_member(collection, guid)?,
    };
    if is_member == added {
        return Ok(None);
    }
    members.insert(guid, added);
    Ok(Some(FieldChange::Member { guid, added }))
}
