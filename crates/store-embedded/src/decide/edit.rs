//! Decides `Update` and its edits of the contract's table.
//!
//! Edits are decided on a working copy, each on the result of the ones before it. Nothing is done
//! unless all are possible.

use std::collections::HashMap;

use exacat_model::limits::{EDITS_PER_UPDATE_MAX, REPLICAS_PER_FILE_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::{
    At, Body, Checksum, DeletionId, Edit, Effect, Entry, Expect, FieldChange, File, Guid, Replica, SeNumber,
    Tag, TagKey, Usage,
};
use exacat_store::Refusal;
use exacat_store::rules::refusals;

use super::create::check_size;
use super::quota::{Counted, check_change};
use super::{Context, Decision, Declined, found_in_tree};
use crate::state::State;

pub(super) fn update(state: &State, context: Context, at: At, expect: Expect, edits: Vec<Edit>) -> Decision {
    if edits.len() > EDITS_PER_UPDATE_MAX {
        return Err(refusals::too_many_edits(edits.len()).into());
    }
    let entry = found_in_tree(state, &at, expect)?;
    let (id, previous) = (entry.id(), Some(entry.revision));
    let start = counted(&entry);
    let mut work = UpdateWork { state, context, start, entry, members: HashMap::new(), deletions: 0 };
    let mut fields = Vec::with_capacity(edits.len());
    for edit in edits {
        fields.extend(work.edit(edit)?);
    }
    if fields.is_empty() {
        return Err(Declined::Unchanged);
    }
    Ok(Effect::Updated { at, id, fields, previous })
}

fn counted(entry: &Entry) -> Counted {
    Counted { owner: entry.owner, group: entry.group, usage: Usage::of(entry) }
}

/// An update in progress.
struct UpdateWork<'a> {
    state: &'a State,
    context: Context,
    /// Usage that the accounts have counted for the entry.
    start: Counted,
    /// Entry after the edits so far.
    entry: Entry,
    /// Members that edits added or removed.
    members: HashMap<Guid, bool>,
    deletions: u32,
}

impl UpdateWork<'_> {
    /// Decides one edit and applies it to the working copy; none if it changes nothing.
    fn edit(&mut self, edit: Edit) -> Result<Option<FieldChange>, Declined> {
        match edit {
            Edit::Owner(after) => {
                let before = self.entry.owner;
                self.change(before != after, |entry| entry.owner = after)?;
                Ok((before != after).then_some(FieldChange::Owner { before, after }))
            }
            Edit::Group(after) => {
                let before = self.entry.group;
                self.change(before != after, |entry| entry.group = after)?;
                Ok((before != after).then_some(FieldChange::Group { before, after }))
            }
            Edit::Mode(after) => {
                let before = std::mem::replace(&mut self.entry.mode, after);
                Ok((before != after).then_some(FieldChange::Mode { before, after }))
            }
            Edit::Modified(after) => {
                let before = std::mem::replace(&mut self.entry.modified, after);
                Ok((before != after).then_some(FieldChange::Modified { before, after }))
            }
            Edit::Expires(after) => {
                let before = std::mem::replace(&mut self.entry.expires, after);
                Ok((before != after).then_some(FieldChange::Expires { before, after }))
            }
            Edit::Job(after) => {
                let before = std::mem::replace(&mut self.file()?.job, after);
                Ok((before != after).then_some(FieldChange::Job { before, after }))
            }
            Edit::Size(after) => self.size(after),
            Edit::Checksum(after) => self.checksum(after),
            Edit::PutReplica(replica) => self.put_replica(replica),
            Edit::DropReplica { se, delete } => self.drop_replica(se, delete),
            Edit::ReplicaState { se, state } => {
                let before = self.replica_on(se)?;
                let after = Replica { state, ..before.clone() };
                self.set_replica(Some(before), Some(after))
            }
            Edit::SetTag(tag) => self.set_tag(tag),
            Edit::UnsetTag(key) => Ok(self.unset_tag(key)),
            Edit::AddMember(guid) => self.member(guid, true),
            Edit::RemoveMember(guid) => self.member(guid, false),
        }
    }

    /// Makes a change that may move usage, if the quotas of the entry's owner afterwards have room.
    fn change(&mut self, changes: bool, change: impl FnOnce(&mut Entry)) -> Result<(), Declined> {
        if !changes {
            return Ok(());
        }
        let before = counted(&self.entry);
        change(&mut self.entry);
        check_change(self.state, Some(&self.start), Some(&before), &counted(&self.entry))?;
        Ok(())
    }

    fn file(&mut self) -> Result<&mut File, Refusal> {
        match &mut self.entry.body {
            Body::File(file) => Ok(file),
            _ => Err(Refusal::WrongKind),
        }
    }

    fn change_file(&mut self, change: impl FnOnce(&mut File)) -> Result<(), Declined> {
        self.change(true, |entry| {
            if let Body::File(file) = &mut entry.body {
                change(file);
            }
        })
    }

    fn size(&mut self, after: u64) -> Result<Option<FieldChange>, Declined> {
        let known = self.file()?.size;
        check_size(Some(after))?;
        match known {
            Some(before) if before == after => Ok(None),
            Some(before) => Err(refusals::known_size(before, after).into()),
            None => {
                self.change_file(|file| file.size = Some(after))?;
                Ok(Some(FieldChange::Size { after }))
            }
        }
    }

    fn checksum(&mut self, after: Checksum) -> Result<Option<FieldChange>, Declined> {
        let file = self.file()?;
        if file.checksums.get(after.algorithm()) == Some(&after) {
            return Ok(None);
        }
        file.checksums.add(after).map_err(refusals::checksum)?;
        Ok(Some(FieldChange::Checksum { after }))
    }

    fn put_replica(&mut self, replica: Replica) -> Result<Option<FieldChange>, Declined> {
        let state = self.state;
        let file = self.file()?;
        replica.check().map_err(refusals::invalid)?;
        let member_beside = file
            .replicas
            .iter()
            .any(|other| other.se != replica.se && (other.is_member() || replica.is_member()));
        if member_beside {
            return Err(refusals::replica_beside_member().into());
        }
        if !replica.is_member() && state.se(replica.se).is_none() {
            return Err(Refusal::NoSuchSe.into());
        }
        let before = file.replica(replica.se).cloned();
        match &before {
            Some(there) if there.location != replica.location => return Err(Refusal::ReplicaExists.into()),
            None if file.replicas.len() >= REPLICAS_PER_FILE_MAX => {
                return Err(refusals::too_many_replicas(file.replicas.len() + 1).into());
            }
            _ => {}
        }
        self.set_replica(before, Some(replica))
    }

    fn replica_on(&mut self, se: SeNumber) -> Result<Replica, Refusal> {
        self.file()?.replica(se).cloned().ok_or(Refusal::NotFound)
    }

    fn drop_replica(&mut self, se: SeNumber, delete: bool) -> Result<Option<FieldChange>, Declined> {
        let before = self.replica_on(se)?;
        let delete = delete && before.takes_space();
        let changed = self.set_replica(Some(before), None)?;
        let Some(FieldChange::Replica { before, after, .. }) = changed else { return Ok(changed) };
        let deletion = delete.then(|| {
            let id = DeletionId { revision: self.context.revision, index: self.deletions };
            self.deletions += 1;
            id
        });
        Ok(Some(FieldChange::Replica { before, after, deletion }))
    }

    fn set_replica(
        &mut self,
        before: Option<Replica>,
        after: Option<Replica>,
    ) -> Result<Option<FieldChange>, Declined> {
        if before == after {
            return Ok(None);
        }
        self.change_file(|file| {
            if let Some(before) = &before {
                file.replicas.retain(|replica| replica.se != before.se);
            }
            if let Some(after) = &after {
                let index = file.replicas.partition_point(|other| other.se < after.se);
                file.replicas.insert(index, after.clone());
            }
        })?;
        Ok(Some(FieldChange::Replica { before, after, deletion: None }))
    }

    fn set_tag(&mut self, tag: Tag) -> Result<Option<FieldChange>, Declined> {
        tag.value.check().map_err(refusals::invalid)?;
        let tags = &mut self.entry.tags;
        let (key, after) = (tag.key.clone(), Some(tag.value.clone()));
        match tags.binary_search_by(|other| other.key.cmp(&tag.key)) {
            Ok(index) if tags[index].value == tag.value => Ok(None),
            Ok(index) => {
                let before = Some(std::mem::replace(&mut tags[index].value, tag.value));
                Ok(Some(FieldChange::Tag { key, before, after }))
            }
            Err(_) if tags.len() >= TAGS_PER_ENTRY_MAX => Err(refusals::too_many_tags(tags.len() + 1).into()),
            Err(index) => {
                tags.insert(index, tag);
                Ok(Some(FieldChange::Tag { key, before: None, after }))
            }
        }
    }

    fn unset_tag(&mut self, key: TagKey) -> Option<FieldChange> {
        let index = self.entry.tags.binary_search_by(|other| other.key.cmp(&key)).ok()?;
        let before = Some(self.entry.tags.remove(index).value);
        Some(FieldChange::Tag { key, before, after: None })
    }

    fn member(&mut self, guid: Guid, added: bool) -> Result<Option<FieldChange>, Declined> {
        let Body::Collection { guid: collection, .. } = &self.entry.body else {
            return Err(Refusal::WrongKind.into());
        };
        if added {
            let is_file =
                self.state.look().view.find_guid(guid, |row| row.is_some_and(crate::page::Row::is_file))?;
            if !is_file {
                return Err(Refusal::NotFound.into());
            }
        }
        let edited = self.members.get(&guid).copied();
        let is_member = match edited {
            Some(edited) => edited,
            None => self.state.look().has_member(*collection, guid)?,
        };
        if is_member == added {
            return Ok(None);
        }
        self.members.insert(guid, added);
        Ok(Some(FieldChange::Member { guid, added }))
    }
}
