//! Decides `Create` of the contract's table.

use exacat_model::limits::{REPLICAS_PER_FILE_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::{Body, Effect, Entry, File, NewBody, NewEntry, Replica, Tag};

use super::checks::{
    check_free, check_limit, check_not_root, check_parent, check_se, check_size, has_duplicate,
};
use super::decision::{Context, Decision};
use super::quota::{Counted, check_change};
use super::refusals;
use super::view::View;
use crate::Refusal;

pub(super) fn create<V: View>(view: &V, context: Context, new: NewEntry) -> Decision<V::Error> {
    check_well_formed(&new)?;
    check_parent(view, new.at.parent, None)?;
    check_free(view, &new.at)?;
    let guid = match &new.body {
        NewBody::Directory => None,
        NewBody::File(file) => Some(file.guid),
        NewBody::Collection { guid } | NewBody::Link { guid, .. } => Some(*guid),
    };
    if let Some(guid) = guid
        && (view.reservation(guid).is_some() || view.has_guid(guid)?)
    {
        return Err(Refusal::GuidInUse.into());
    }
    let body = match new.body {
        NewBody::Directory => Body::Directory(view.next_directory()),
        NewBody::File(mut file) => {
            file.replicas.iter().try_for_each(|replica| check_se(view, replica))?;
            file.replicas.sort_by_key(|replica| replica.se);
            Body::File(file)
        }
        NewBody::Collection { guid } => Body::Collection { guid, members: 0 },
        NewBody::Link { guid, target } => Body::Link { guid, target },
    };
    let entry = Entry {
        at: new.at,
        owner: new.owner,
        group: new.group,
        mode: new.mode,
        created: new.created.unwrap_or(context.time),
        modified: new.modified.unwrap_or(context.time),
        revision: context.revision,
        expires: new.expires,
        tags: new.tags,
        body,
    };
    check_change(view, None, None, &Counted::from(&entry))?;
    Ok(Effect::Created { entry: Box::new(entry) })
}

/// Refuses an entry that is valid in no state.
pub fn check_well_formed(new: &NewEntry) -> Result<(), Refusal> {
    check_not_root(&new.at.name)?;
    check_tags(&new.tags)?;
    if let NewBody::File(file) = &new.body {
        check_replicas(file)?;
        check_size(file.size.unwrap_or(0))?;
    }
    Ok(())
}

fn check_tags(tags: &[Tag]) -> Result<(), Refusal> {
    if !tags.windows(2).all(|pair| pair[0].key < pair[1].key) {
        return Err(refusals::unsorted_tags());
    }
    check_limit(tags.len(), TAGS_PER_ENTRY_MAX, refusals::too_many_tags)?;
    tags.iter().try_for_each(|tag| tag.value.check().map_err(refusals::invalid))
}

fn check_replicas(file: &File) -> Result<(), Refusal> {
    let replicas = &file.replicas;
    check_limit(replicas.len(), REPLICAS_PER_FILE_MAX, refusals::too_many_replicas)?;
    // Most files have at most two, and need no sorting.
    let twice = match replicas.as_slice() {
        [] | [_] => false,
        [one, other] => one.se == other.se,
        _ => has_duplicate(replicas.iter().map(|replica| replica.se)),
    };
    if twice {
        return Err(refusals::two_replicas_on_one_se());
    }
    replicas.iter().try_for_each(|replica| replica.check().map_err(refusals::invalid))?;
    if replicas.len() > 1 && replicas.iter().any(Replica::is_member) {
        return Err(refusals::replica_beside_member());
    }
    Ok(())
}
