//! Decides `Create` of the contract's table.

use exacat_model::limits::{FILE_BYTES_MAX, REPLICAS_PER_FILE_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::{Body, DirId, Effect, Entry, File, NewBody, NewEntry, Replica, SeNumber, Tag, Usage};
use exacat_store::Refusal;
use exacat_store::rules::refusals;

use super::quota::{Counted, check_change};
use super::{Context, Decision, check_depth, check_free, check_not_root, check_parent};
use crate::state::State;

pub(super) fn create(state: &State, context: Context, new: NewEntry) -> Decision {
    check_well_formed(&new)?;
    check_parent(state, new.at.parent)?;
    check_depth(state, new.at.parent)?;
    check_free(state, &new.at)?;
    let guid = match &new.body {
        NewBody::Directory => None,
        NewBody::File(file) => Some(file.guid),
        NewBody::Collection { guid } | NewBody::Link { guid, .. } => Some(*guid),
    };
    if let Some(guid) = guid
        && (state.reservation(guid).is_some() || state.look().has_guid(guid)?)
    {
        return Err(Refusal::GuidInUse.into());
    }
    let body = match new.body {
        NewBody::Directory => Body::Directory(DirId(state.next_directory)),
        NewBody::File(mut file) => {
            check_ses(state, &file.replicas)?;
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
    let counted = Counted { owner: entry.owner, group: entry.group, usage: Usage::of(&entry) };
    check_change(state, None, None, &counted)?;
    Ok(Effect::Created { entry: Box::new(entry) })
}

/// Refuses an entry that is valid in no state.
pub(crate) fn check_well_formed(new: &NewEntry) -> Result<(), Refusal> {
    check_not_root(&new.at.name)?;
    check_tags(&new.tags)?;
    if let NewBody::File(file) = &new.body {
        check_replicas(file)?;
        check_size(file.size)?;
    }
    Ok(())
}

fn check_tags(tags: &[Tag]) -> Result<(), Refusal> {
    if !tags.windows(2).all(|pair| pair[0].key < pair[1].key) {
        return Err(refusals::unsorted_tags());
    }
    if tags.len() > TAGS_PER_ENTRY_MAX {
        return Err(refusals::too_many_tags(tags.len()));
    }
    tags.iter().try_for_each(|tag| tag.value.check().map_err(refusals::invalid))
}

fn check_replicas(file: &File) -> Result<(), Refusal> {
    let replicas = &file.replicas;
    if replicas.len() > REPLICAS_PER_FILE_MAX {
        return Err(refusals::too_many_replicas(replicas.len()));
    }
    let twice = match replicas.as_slice() {
        [] | [_] => false,
        [one, other] => one.se == other.se,
        _ => {
            let mut ses: Vec<SeNumber> = replicas.iter().map(|replica| replica.se).collect();
            ses.sort_unstable();
            ses.windows(2).any(|pair| pair[0] == pair[1])
        }
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

pub(super) fn check_size(size: Option<u64>) -> Result<(), Refusal> {
    match size {
        Some(size) if size > FILE_BYTES_MAX => Err(refusals::too_large(size)),
        _ => Ok(()),
    }
}

fn check_ses(state: &State, replicas: &[Replica]) -> Result<(), Refusal> {
    let known = |replica: &Replica| replica.is_member() || state.se(replica.se).is_some();
    if replicas.iter().all(known) { Ok(()) } else { Err(Refusal::NoSuchSe) }
}
