//! Decides `Dequeue`, `SetRecord` and `DropRecord` of the contract's table.

use std::collections::HashSet;

use exacat_model::limits::{EDITS_PER_UPDATE_MAX, GROUPS_PER_USER_MAX};
use exacat_model::{
    DeletionId, Effect, ExpectRecord, GroupId, QuotaOf, Record, RecordKey, Revision, SeNumber, UserId,
};

use super::checks::check_limit;
use super::decision::{Decision, Declined};
use super::refusals::{self, RecordUse, in_use};
use super::view::View;
use crate::Refusal;

pub(super) fn dequeue<V: View>(view: &V, se: SeNumber, done: &[DeletionId]) -> Decision<V::Error> {
    check_limit(done.len(), EDITS_PER_UPDATE_MAX, refusals::too_many_deletions)?;
    let (mut seen, mut there) = (HashSet::new(), Vec::new());
    for id in done {
        if seen.insert(*id) && view.has_deletion(se, *id)? {
            there.push(*id);
        }
    }
    if there.is_empty() {
        return Err(Refusal::NotFound.into());
    }
    Ok(Effect::Dequeued { se, done: there })
}

fn check_expected(before: Option<Revision>, expect: ExpectRecord) -> Result<(), Refusal> {
    let as_expected = match expect {
        ExpectRecord::Any => true,
        ExpectRecord::Absent => before.is_none(),
        ExpectRecord::Version(expected) => before == Some(expected),
    };
    if as_expected { Ok(()) } else { Err(Refusal::Stale) }
}

pub(super) fn set<V: View>(view: &V, record: Box<Record>, expect: ExpectRecord) -> Decision<V::Error> {
    match &*record {
        Record::Se(se) => se.check().map_err(refusals::invalid)?,
        Record::User(user) => {
            check_limit(user.groups.len(), GROUPS_PER_USER_MAX, refusals::too_many_groups)?;
        }
        Record::Group(_) | Record::Quota(_) | Record::Token(_) => {}
    }
    let key = record.key();
    let before = view.record(key);
    check_expected(before.as_ref().map(|(_, revision)| *revision), expect)?;
    if let Some(name) = record.unique_name()
        && view.record_named(key.kind(), name).is_some_and(|other| other != key)
    {
        return Err(refusals::name_in_use(key.kind(), name).into());
    }
    let user_exists = |user: UserId| view.record(RecordKey::User(user)).is_some();
    let group_exists = |group: GroupId| view.record(RecordKey::Group(group)).is_some();
    let all_exist = match &*record {
        Record::User(user) => group_exists(user.group) && user.groups.iter().copied().all(group_exists),
        Record::Token(token) => user_exists(token.user),
        Record::Quota(quota) => match quota.of {
            QuotaOf::User(user) => user_exists(user),
            QuotaOf::Group(group) => group_exists(group),
        },
        Record::Group(_) | Record::Se(_) => true,
    };
    if !all_exist {
        return Err(Refusal::NotFound.into());
    }
    if before.as_ref().is_some_and(|(before, _)| **before == *record) {
        return Err(Declined::Unchanged);
    }
    let before = before.map(|(before, _)| Box::new(before.into_owned()));
    Ok(Effect::Recorded { key, before, after: Some(record) })
}

pub(super) fn drop<V: View>(view: &V, key: RecordKey, expect: ExpectRecord) -> Decision<V::Error> {
    let (before, revision) = view.record(key).ok_or(Refusal::NotFound)?;
    check_expected(Some(revision), expect)?;
    let owns = |of: QuotaOf| !view.counted(of).is_empty();
    let reason = match key {
        RecordKey::User(UserId::ADMIN) => Some(RecordUse::AdminUser),
        RecordKey::Group(GroupId::ADMIN) => Some(RecordUse::AdminGroup),
        RecordKey::User(user) => owns(QuotaOf::User(user)).then_some(RecordUse::Owner),
        RecordKey::Group(group) if owns(QuotaOf::Group(group)) => Some(RecordUse::OwningGroup),
        RecordKey::Group(group) => view.has_users(group).then_some(RecordUse::GroupOfUsers),
        RecordKey::Se(se) => view.is_se_in_use(se).then_some(RecordUse::StorageElement),
        RecordKey::Quota(_) | RecordKey::Token(_) => None,
    };
    match reason {
        Some(reason) => Err(in_use(reason).into()),
        None => Ok(Effect::Recorded { key, before: Some(Box::new(before.into_owned())), after: None }),
    }
}
