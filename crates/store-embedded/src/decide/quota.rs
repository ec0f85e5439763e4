//! Quotas: may this user or group come to use that much?

use exacat_model::{GroupId, Quota, QuotaOf, Record, RecordKey, Usage, UserId};
use exacat_store::{Account, Refusal};

use crate::state::State;

/// What an account has, used and reserved.
fn total(account: &Account) -> Usage {
    let mut total = account.usage;
    total.add(&account.reserved);
    total
}

/// Refuses a change of an account from having `before` to having `after` if that makes any limited figure larger than
/// its limit. A figure that does not grow is not refused, even if it is too large already.
fn check(state: &State, of: QuotaOf, before: &Usage, after: &Usage) -> Result<(), Refusal> {
    let Some((Record::Quota(Quota { files, bytes, replica_bytes, .. }), _)) =
        state.record(RecordKey::Quota(of))
    else {
        return Ok(());
    };
    let figures = [
        ("files", u128::from(before.objects()), u128::from(after.objects()), *files),
        ("bytes", before.bytes + before.member_bytes, after.bytes + after.member_bytes, *bytes),
        ("replica bytes", before.replica_bytes, after.replica_bytes, *replica_bytes),
    ];
    for (figure, before, after, limit) in figures {
        if let Some(limit) = limit
            && after > before
            && after > u128::from(limit)
        {
            let owner = state.record(of.owner_key()).map(|(record, _)| record);
            return Err(Refusal::quota(of, owner, figure, limit, after));
        }
    }
    Ok(())
}

/// Would an account that has a quota exceed it, if `more` came?
pub(crate) fn would_exceed(state: &State, of: QuotaOf, more: impl FnOnce() -> Usage) -> bool {
    if state.record(RecordKey::Quota(of)).is_none() {
        return false;
    }
    let before = total(&account(state, of));
    let mut after = before;
    after.add(&more());
    check(state, of, &before, &after).is_err()
}

fn account(state: &State, of: QuotaOf) -> Account {
    match of {
        QuotaOf::User(user) => state.accounts.user(user),
        QuotaOf::Group(group) => state.accounts.group(group),
    }
}

/// `left` without `taken`, as far as it goes; counters are right, so it goes all the way.
fn less(left: Usage, taken: &Usage) -> Usage {
    left.minus(taken).unwrap_or_default()
}

/// May what is counted for `was` (none: nothing) be counted for `is` instead? Who owns what is the first part of
/// each. `start` is what the accounts have counted for it already, by whom: during an update the edits before have
/// moved on from it.
pub(super) struct Counted {
    pub owner: UserId,
    pub group: GroupId,
    pub usage: Usage,
}

pub(super) fn check_change(
    state: &State,
    start: Option<&Counted>,
    was: Option<&Counted>,
    is: &Counted,
) -> Result<(), Refusal> {
    let side = |of: QuotaOf, counted: Option<&Counted>| match (of, counted) {
        (QuotaOf::User(user), Some(counted)) if counted.owner == user => counted.usage,
        (QuotaOf::Group(group), Some(counted)) if counted.group == group => counted.usage,
        _ => Usage::default(),
    };
    for of in [QuotaOf::User(is.owner), QuotaOf::Group(is.group)] {
        if state.record(RecordKey::Quota(of)).is_none() {
            continue;
        }
        let others = less(total(&account(state, of)), &side(of, start));
        let (mut before, mut after) = (others, others);
        before.add(&side(of, was));
        after.add(&side(of, Some(is)));
        check(state, of, &before, &after)?;
    }
    Ok(())
}
