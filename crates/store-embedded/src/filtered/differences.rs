//! The fields in which two entries of one identity differ.

use exacat_model::{Body, DirId, Entry, FieldChange, File, Tag};

/// Returns the changes that make `old` equal to `new`, apart from place, revision and members; none if no
/// changes of fields do that.
pub(super) fn differences(old: &Entry, new: &Entry) -> Option<Vec<FieldChange>> {
    let mut fields = Vec::new();
    if old.created != new.created && old.directory() != Some(DirId::ROOT) {
        return None;
    }
    match (&old.body, &new.body) {
        (Body::File(old), Body::File(new)) => of_files(old, new, &mut fields)?,
        (Body::Collection { .. }, Body::Collection { .. }) => {}
        (old, new) if old == new => {}
        _ => return None,
    }
    if old.owner != new.owner {
        fields.push(FieldChange::Owner { before: old.owner, after: new.owner });
    }
    if old.group != new.group {
        fields.push(FieldChange::Group { before: old.group, after: new.group });
    }
    if old.mode != new.mode {
        fields.push(FieldChange::Mode { before: old.mode, after: new.mode });
    }
    if old.modified != new.modified {
        fields.push(FieldChange::Modified { before: old.modified, after: new.modified });
    }
    if old.expires != new.expires {
        fields.push(FieldChange::Expires { before: old.expires, after: new.expires });
    }
    let of_key = |tags: &[Tag], tag: &Tag| tags.iter().find(|other| other.key == tag.key).cloned();
    for tag in old.tags.iter().filter(|tag| of_key(&new.tags, tag).is_none()) {
        let (key, before) = (tag.key.clone(), Some(tag.value.clone()));
        fields.push(FieldChange::Tag { key, before, after: None });
    }
    for tag in new.tags.iter().filter(|tag| !old.tags.contains(tag)) {
        let before = of_key(&old.tags, tag).map(|before| before.value);
        fields.push(FieldChange::Tag { key: tag.key.clone(), before, after: Some(tag.value.clone()) });
    }
    Some(fields)
}

fn of_files(old: &File, new: &File, fields: &mut Vec<FieldChange>) -> Option<()> {
    if old.checksums.iter().any(|checksum| new.checksums.get(checksum.algorithm()) != Some(checksum)) {
        return None;
    }
    if old.size != new.size {
        fields.push(FieldChange::Size { after: new.size.filter(|_| old.size.is_none())? });
    }
    if old.job != new.job {
        fields.push(FieldChange::Job { before: old.job, after: new.job });
    }
    for checksum in new.checksums.iter().filter(|checksum| old.checksums.get(checksum.algorithm()).is_none())
    {
        fields.push(FieldChange::Checksum { after: *checksum });
    }
    for replica in old.replicas.iter().filter(|replica| new.replica(replica.se).is_none()) {
        fields.push(FieldChange::Replica { before: Some(replica.clone()), after: None, deletion: None });
    }
    for replica in new.replicas.iter().filter(|replica| old.replica(replica.se) != Some(replica)) {
        let before = old.replica(replica.se).cloned();
        fields.push(FieldChange::Replica { before, after: Some(replica.clone()), deletion: None });
    }
    Some(())
}
