//! Changes single fields of an entry, both when an update is decided and when it is applied.

use exacat_model::{Body, Entry, FieldChange, File, Replica, SeNumber, Tag};

use super::decision::Misfit;

/// Changes one field of an entry. Of a member only the count changes here.
pub(super) fn change_field(entry: &mut Entry, field: &FieldChange) -> Result<(), Misfit> {
    match field {
        FieldChange::Owner { after, .. } => entry.owner = *after,
        FieldChange::Group { after, .. } => entry.group = *after,
        FieldChange::Mode { after, .. } => entry.mode = *after,
        FieldChange::Modified { after, .. } => entry.modified = *after,
        FieldChange::Expires { after, .. } => entry.expires = *after,
        FieldChange::Job { after, .. } => file_of(entry)?.job = *after,
        FieldChange::Size { after } => file_of(entry)?.size = Some(*after),
        FieldChange::Checksum { after } => {
            file_of(entry)?.checksums.add(*after).map_err(|error| Misfit(error.message))?;
        }
        FieldChange::Replica { before, after, .. } => {
            let Some(se) = after.as_ref().or(before.as_ref()).map(|replica| replica.se) else {
                return Err(Misfit::new("a replica changed from none to none"));
            };
            put_replica(file_of(entry)?, se, after.clone());
        }
        FieldChange::Tag { key, after, .. } => {
            match (entry.tags.binary_search_by(|tag| tag.key.cmp(key)), after) {
                (Ok(index), Some(value)) => entry.tags[index].value = value.clone(),
                (Ok(index), None) => drop(entry.tags.remove(index)),
                (Err(index), Some(value)) => {
                    entry.tags.insert(index, Tag { key: key.clone(), value: value.clone() });
                }
                (Err(_), None) => {}
            }
        }
        FieldChange::Member { added, .. } => {
            let Body::Collection { members, .. } = &mut entry.body else {
                return Err(Misfit::new("a member of an entry that is no collection changed"));
            };
            *members = if *added { *members + 1 } else { members.saturating_sub(1) };
        }
    }
    Ok(())
}

/// Returns the file of an entry.
pub(super) fn file_of(entry: &mut Entry) -> Result<&mut File, Misfit> {
    match &mut entry.body {
        Body::File(file) => Ok(file),
        _ => Err(Misfit::new("a change of a file's field is of an entry that is no file")),
    }
}

/// Puts or removes a file's replica on this SE; replicas are in the order of SEs.
pub(super) fn put_replica(file: &mut File, se: SeNumber, after: Option<Replica>) {
    file.replicas.retain(|replica| replica.se != se);
    if let Some(replica) = after {
        let index = file.replicas.partition_point(|other| other.se < se);
        file.replicas.insert(index, replica);
    }
}
