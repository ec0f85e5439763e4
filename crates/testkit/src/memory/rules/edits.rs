//! Decides updates: each edit on the state after the edits before it, all or none.

use std::collections::BTreeMap;

use exacat_model::limits::{EDITS_PER_UPDATE_MAX, REPLICAS_PER_FILE_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::{
    At, Body, DeletionId, Edit, Effect, Entry, EntryId, Expect, FieldChange, Guid, QuotaOf, Replica,
    Revision, Usage,
};
use exacat_store::Refusal;
use exacat_store::rules::refusals;

use super::Decided;
use super::checks::{counted_without, limit, quota_allows, quota_of, se_registered, size_limit, target};
use crate::memory::state::State;

/// An entry after the edits so far.
pub(super) struct Edited {
    pub(crate) entry: Entry,
    /// For a collection: added (true) and removed (false) members.
    pub(crate) members: BTreeMap<Guid, bool>,
}

impl Edited {
    pub(crate) fn new(entry: Entry) -> Self {
        Edited { entry, members: BTreeMap::new() }
    }

    fn is_member(&self, state: &State, guid: Guid) -> bool {
        let collection = self.entry.guid();
        let was = || collection.is_some_and(|collection| state.is_member(collection, guid));
        self.members.get(&guid).copied().unwrap_or_else(was)
    }

    fn file(&self) -> Result<&exacat_model::File, Refusal> {
        self.entry.file().ok_or(Refusal::WrongKind)
    }

    /// Sets one field as the change says, both when deciding and when applying.
    pub(crate) fn change(&mut self, change: &FieldChange) {
        let Edited { entry, members } = self;
        match (change, &mut entry.body) {
            (FieldChange::Owner { after, .. }, _) => entry.owner = *after,
            (FieldChange::Group { after, .. }, _) => entry.group = *after,
            (FieldChange::Mode { after, .. }, _) => entry.mode = *after,
            (FieldChange::Modified { after, .. }, _) => entry.modified = *after,
            (FieldChange::Expires { after, .. }, _) => entry.expires = *after,
            (FieldChange::Tag { key, after, .. }, _) => {
                entry.tags.retain(|tag| tag.key != *key);
                if let Some(value) = after {
                    entry.tags.push(exacat_model::Tag { key: key.clone(), value: value.clone() });
                    entry.tags.sort_by(|one, other| one.key.cmp(&other.key));
                }
            }
            (FieldChange::Job { after, .. }, Body::File(file)) => file.job = *after,
            (FieldChange::Size { after }, Body::File(file)) => file.size = Some(*after),
            (FieldChange::Checksum { after }, Body::File(file)) => {
                file.checksums.remove(after.algorithm());
                // There is room, because the old checksum of the algorithm is removed.
                let _ = file.checksums.add(*after);
            }
            (FieldChange::Replica { before, after, .. }, Body::File(file)) => {
                let gone = before.as_ref().map(|replica| replica.se);
                file.replicas.retain(|replica| Some(replica.se) != gone);
                file.replicas.extend(after.clone());
                file.replicas.sort_by_key(|replica| replica.se);
            }
            (FieldChange::Member { guid, added }, Body::Collection { members: count, .. }) => {
                members.insert(*guid, *added);
                *count = if *added { *count + 1 } else { count.saturating_sub(1) };
            }
            // Edits of a file's or collection's fields are refused for other kinds.
            _ => {}
        }
    }
}

/// Decides an `Update`.
pub(super) fn update(state: &State, at: &At, expect: Expect, edits: &[Edit], revision: Revision) -> Decided {
    limit(edits.len(), EDITS_PER_UPDATE_MAX, refusals::too_many_edits)?;
    let entry = target(state, at, expect)?;
    let mut edited = Edited::new(entry.clone());
    let mut fields = Vec::new();
    let mut deletions = 0;
    for edit in edits {
        let Some(mut field) = decide_edit(state, &edited, edit)? else {
            continue;
        };
        if let FieldChange::Replica { deletion: Some(deletion), .. } = &mut field {
            *deletion = DeletionId { revision, index: deletions };
            deletions += 1;
        }
        let before = edited.entry.clone();
        edited.change(&field);
        check_quotas(state, &before, &edited.entry)?;
        fields.push(field);
    }
    if fields.is_empty() {
        return Ok(None);
    }
    let previous = Some(entry.revision);
    Ok(Some(Effect::Updated { at: at.clone(), id: entry.id(), fields, previous }))
}

/// Checks that the quotas of the resulting owner and group allow the entry's resulting usage.
fn check_quotas(state: &State, before: &Entry, after: &Entry) -> Result<(), Refusal> {
    let user = (QuotaOf::User(after.owner), before.owner == after.owner);
    let group = (QuotaOf::Group(after.group), before.group == after.group);
    for (of, had_it) in [user, group] {
        let Some(quota) = quota_of(state, of) else { continue };
        let rest = counted_without(state, of, Some(after.id()), None);
        let (mut was, mut will_be) = (rest, rest);
        if had_it {
            was.add(&Usage::of(before));
        }
        will_be.add(&Usage::of(after));
        quota_allows(state, quota, &was, &will_be)?;
    }
    Ok(())
}

/// Returns the field change of one edit; none if nothing changes. The caller checks quotas last, as
/// in every row, and numbers deletions.
fn decide_edit(state: &State, edited: &Edited, edit: &Edit) -> Result<Option<FieldChange>, Refusal> {
    let entry = &edited.entry;
    Ok(match edit {
        Edit::Owner(owner) => {
            (entry.owner != *owner).then_some(FieldChange::Owner { before: entry.owner, after: *owner })
        }
        Edit::Group(group) => {
            (entry.group != *group).then_some(FieldChange::Group { before: entry.group, after: *group })
        }
        Edit::Mode(mode) => {
            (entry.mode != *mode).then_some(FieldChange::Mode { before: entry.mode, after: *mode })
        }
        Edit::Modified(time) => (entry.modified != *time)
            .then_some(FieldChange::Modified { before: entry.modified, after: *time }),
        Edit::Expires(time) => {
            (entry.expires != *time).then_some(FieldChange::Expires { before: entry.expires, after: *time })
        }
        Edit::Job(job) => {
            let before = edited.file()?.job;
            (before != *job).then_some(FieldChange::Job { before, after: *job })
        }
        Edit::Size(size) => {
            let file = edited.file()?;
            size_limit(*size)?;
            match file.size {
                None => Some(FieldChange::Size { after: *size }),
                Some(known) if known == *size => None,
                Some(known) => return Err(refusals::known_size(known, *size)),
            }
        }
        Edit::Checksum(checksum) => {
            let file = edited.file()?;
            match file.checksums.get(checksum.algorithm()) {
                Some(known) if known == checksum => None,
                _ => {
                    let mut more = file.checksums.clone();
                    more.add(*checksum).map_err(refusals::checksum)?;
                    Some(FieldChange::Checksum { after: *checksum })
                }
            }
        }
        Edit::PutReplica(replica) => put_replica(state, edited.file()?, replica)?,
        Edit::DropReplica { se, delete } => {
            let before = edited.file()?.replica(*se).ok_or(Refusal::NotFound)?;
            let unnumbered = DeletionId { revision: Revision(0), index: 0 };
            let deletion = (*delete && before.takes_space()).then_some(unnumbered);
            Some(FieldChange::Replica { before: Some(before.clone()), after: None, deletion })
        }
        Edit::ReplicaState { se, state } => {
            let before = edited.file()?.replica(*se).ok_or(Refusal::NotFound)?;
            (before.state != *state).then(|| FieldChange::Replica {
                before: Some(before.clone()),
                after: Some(Replica { state: *state, ..before.clone() }),
                deletion: None,
            })
        }
        Edit::SetTag(tag) => {
            tag.value.check().map_err(refusals::invalid)?;
            let before = entry.tag(tag.key.as_str());
            if before.is_none() {
                limit(entry.tags.len() + 1, TAGS_PER_ENTRY_MAX, refusals::too_many_tags)?;
            }
            (before != Some(&tag.value)).then(|| FieldChange::Tag {
                key: tag.key.clone(),
                before: before.cloned(),
                after: Some(tag.value.clone()),
            })
        }
        Edit::UnsetTag(key) => entry.tag(key.as_str()).map(|before| FieldChange::Tag {
            key: key.clone(),
            before: Some(before.clone()),
            after: None,
        }),
        Edit::AddMember(guid) => {
            a_collection(entry)?;
            let found = state.find(EntryId::Object(*guid));
            if found.is_none_or(|entry| entry.file().is_none()) {
                return Err(Refusal::NotFound);
            }
            (!edited.is_member(state, *guid)).then_some(FieldChange::Member { guid: *guid, added: true })
        }
        Edit::RemoveMember(guid) => {
            a_collection(entry)?;
            edited.is_member(state, *guid).then_some(FieldChange::Member { guid: *guid, added: false })
        }
    })
}

fn a_collection(entry: &Entry) -> Result<(), Refusal> {
    if matches!(entry.body, Body::Collection { .. }) { Ok(()) } else { Err(Refusal::WrongKind) }
}

fn put_replica(
    state: &State,
    file: &exacat_model::File,
    replica: &Replica,
) -> Result<Option<FieldChange>, Refusal> {
    replica.check().map_err(refusals::invalid)?;
    let mut beside = file.replicas.iter().filter(|other| other.se != replica.se);
    if beside.any(|other| other.is_member() || replica.is_member()) {
        return Err(refusals::replica_beside_member());
    }
    se_registered(state, replica)?;
    let before = file.replica(replica.se);
    match before {
        Some(there) if there.location != replica.location => return Err(Refusal::ReplicaExists),
        Some(there) if there.state == replica.state => return Ok(None),
        Some(_) => {}
        None => {
            limit(file.replicas.len() + 1, REPLICAS_PER_FILE_MAX, refusals::too_many_replicas)?;
        }
    }
    Ok(Some(FieldChange::Replica { before: before.cloned(), after: Some(replica.clone()), deletion: None }))
}
