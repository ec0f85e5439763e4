//! Quotas: check whether a user or group may use that much.

use exacat_model::{GroupId, Quota, QuotaOf, Record, RecordKey, Usage, UserId};
use exacat_store::rules::refusals::QUOTA_METRICS;
use exacat_store::{Account, Refusal};

use crate::state::State;

/// Returns the sum of an account's usage and reservation.
fn total(account: &Account) -> Usage {
    let mut total = account.usage;
    total.add(&account.reserved);
    total
}

/// Refuses a change of an account from `before` to `after` if that makes any limited metric larger
/// than its limit. A metric that does not grow is never refused, even above its limit.
fn check(state: &State, of: QuotaOf, before: &Usage, after: &Usage) -> Result<(), Refusal> {
    let Some((Record::Quota(Quota { files, bytes, replica_bytes, .. }), _)) =
        state.record(RecordKey::Quota(of))
    else {
        return Ok(());
    };
    let sums = [
        (u128::from(before.objects()), u128::from(after.objects()), *files),
        (before.bytes + before.member_bytes, after.bytes + after.member_bytes, *bytes),
        (before.replica_bytes, after.replica_bytes, *replica_bytes),
    ];
    for (metric, (before, after, limit)) in QUOTA_METRICS.into_iter().zip(sums) {
        if let Some(limit) = limit
            && after > before
            && after > u128::from(limit)
        {
            let owner = state.record(of.owner_key()).map(|(record, _)| record);
            return Err(Refusal::quota(of, owner, metric, limit, after));
        }
    }
    Ok(())
}

/// Says whether an account with a quota would exceed it by `more`.
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

/// Returns `left` without `taken`. The counters are right, so the result never goes below zero.
fn less(left: Usage, taken: &Usage) -> Usage {
    left.minus(taken).unwrap_or_default()
}

/// Usage counted for an entry, with its owner and group.
pub(super) struct Counted {
    pub owner: UserId,
    pub group: GroupId,
    pub usage: Usage,
}

/// Checks that the usage `was` (none: nothing) may become `is` under the quotas of its owner and
/// group. `start` is the usage that the accounts have counted already: earlier edits of an update
/// have moved on from it.
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
