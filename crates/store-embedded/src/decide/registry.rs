//! Decides `Dequeue`, `SetRecord` and `DropRecord` of the contract's table.

use std::collections::HashSet;

use exacat_model::limits::{EDITS_PER_UPDATE_MAX, GROUPS_PER_USER_MAX};
use exacat_model::{
    DeletionId, Effect, ExpectRecord, GroupId, QuotaOf, Record, RecordKey, RecordKind, Revision, SeNumber,
    UserId,
};
use exacat_store::rules::refusals::{self, RecordUse, in_use};
use exacat_store::{Account, Refusal};

use super::{Decision, Declined};
use crate::state::State;

pub(super) fn dequeue(state: &State, se: SeNumber, done: &[DeletionId]) -> Decision {
    if done.len() > EDITS_PER_UPDATE_MAX {
        return Err(refusals::too_many_deletions(done.len()).into());
    }
    let (mut seen, mut there) = (HashSet::new(), Vec::new());
    for id in done {
        if state.deletion(se, *id)?.is_some() && seen.insert(*id) {
            there.push(*id);
        }
    }
    if there.is_empty() {
        return Err(Refusal::NotFound.into());
    }
    Ok(Effect::Dequeued { se, done: there })
}

fn check_expected(before: Option<&(Record, Revision)>, expect: ExpectRecord) -> Result<(), Refusal> {
    let as_expected = match (expect, before) {
        (ExpectRecord::Any, _) | (ExpectRecord::Absent, None) => true,
        (ExpectRecord::Version(expected), Some((_, revision))) => expected == *revision,
        (ExpectRecord::Absent, Some(_)) | (ExpectRecord::Version(_), None) => false,
    };
    if as_expected { Ok(()) } else { Err(Refusal::Stale) }
}

pub(super) fn set(state: &State, record: Box<Record>, expect: ExpectRecord) -> Decision {
    match &*record {
        Record::Se(se) => se.check().map_err(refusals::invalid)?,
        Record::User(user) if user.groups.len() > GROUPS_PER_USER_MAX => {
            return Err(refusals::too_many_groups(user.groups.len()).into());
        }
        _ => {}
    }
    let key = record.key();
    let before = state.record(key);
    check_expected(before, expect)?;
    if let Some(name) = record.unique_name()
        && state.record_named(key.kind(), name).is_some_and(|other| other != key)
    {
        return Err(refusals::name_in_use(key.kind(), name).into());
    }
    let user_known = |user: UserId| state.record(RecordKey::User(user)).is_some();
    let group_known = |group: GroupId| state.record(RecordKey::Group(group)).is_some();
    let all_known = match &*record {
        Record::User(user) => group_known(user.group) && user.groups.iter().copied().all(group_known),
        Record::Token(token) => user_known(token.user),
        Record::Quota(quota) => match quota.of {
            QuotaOf::User(user) => user_known(user),
            QuotaOf::Group(group) => group_known(group),
        },
        Record::Group(_) | Record::Se(_) => true,
    };
    if !all_known {
        return Err(Refusal::NotFound.into());
    }
    if before.is_some_and(|(before, _)| *before == *record) {
        return Err(Declined::Unchanged);
    }
    let before = before.map(|(before, _)| Box::new(before.clone()));
    Ok(Effect::Recorded { key, before, after: Some(record) })
}

pub(super) fn drop(state: &State, key: RecordKey, expect: ExpectRecord) -> Decision {
    let before = state.record(key).ok_or(Refusal::NotFound)?;
    check_expected(Some(before), expect)?;
    match key {
        RecordKey::User(UserId::ADMIN) => return Err(in_use(RecordUse::AdminUser).into()),
        RecordKey::Group(GroupId::ADMIN) => return Err(in_use(RecordUse::AdminGroup).into()),
        RecordKey::User(user) if state.accounts.user(user) != Account::default() => {
            return Err(in_use(RecordUse::Owner).into());
        }
        RecordKey::Group(group) => {
            if state.accounts.group(group) != Account::default() {
                return Err(in_use(RecordUse::OwningGroup).into());
            }
            let has_it = |record: &Record| match record {
                Record::User(user) => user.group == group || user.groups.contains(&group),
                _ => false,
            };
            if state.records_of(RecordKind::User).any(has_it) {
                return Err(in_use(RecordUse::GroupOfUsers).into());
            }
        }
        RecordKey::Se(se) if state.accounts.ses.get(&se).is_some_and(|account| !account.is_unused()) => {
            return Err(in_use(RecordUse::StorageElement).into());
        }
        RecordKey::User(_) | RecordKey::Se(_) | RecordKey::Quota(_) | RecordKey::Token(_) => {}
    }
    Ok(Effect::Recorded { key, before: Some(Box::new(before.0.clone())), after: None })
}
