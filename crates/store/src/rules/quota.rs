//! Quotas: check whether a user or group may use that much.

use exacat_model::{Entry, GroupId, QuotaOf, Record, RecordKey, Reservation, Usage, UserId};

use super::refusals::QUOTA_METRICS;
use super::view::View;
use crate::Refusal;

/// Usage counted for an entry or an upload reservation, with its owner and group.
#[derive(PartialEq)]
pub(super) struct Counted {
    pub owner: UserId,
    pub group: GroupId,
    pub usage: Usage,
}

impl From<&Entry> for Counted {
    fn from(entry: &Entry) -> Self {
        Counted { owner: entry.owner, group: entry.group, usage: Usage::of(entry) }
    }
}

impl From<&Reservation> for Counted {
    fn from(reservation: &Reservation) -> Self {
        Counted { owner: reservation.owner, group: reservation.group, usage: reservation.reserved() }
    }
}

/// Refuses a change of an account from `before` to `after` if that makes any limited metric larger
/// than its limit. A metric that does not grow is never refused, even above its limit.
fn check<V: View>(view: &V, of: QuotaOf, before: &Usage, after: &Usage) -> Result<(), Refusal> {
    let Some((record, _)) = view.record(RecordKey::Quota(of)) else { return Ok(()) };
    let Record::Quota(quota) = &*record else { return Ok(()) };
    let sums = [
        (u128::from(before.objects()), u128::from(after.objects()), quota.files),
        (before.bytes + before.member_bytes, after.bytes + after.member_bytes, quota.bytes),
        (before.replica_bytes, after.replica_bytes, quota.replica_bytes),
    ];
    for (metric, (before, after, limit)) in QUOTA_METRICS.into_iter().zip(sums) {
        if let Some(limit) = limit
            && after > before
            && after > u128::from(limit)
        {
            let owner = view.record(of.owner_key()).map(|(record, _)| record);
            return Err(Refusal::quota(of, owner.as_deref(), metric, limit, after));
        }
    }
    Ok(())
}

/// Says whether an account with a quota would exceed it by `more`.
pub fn would_exceed<V: View>(view: &V, of: QuotaOf, more: impl FnOnce() -> Usage) -> bool {
    if view.record(RecordKey::Quota(of)).is_none() {
        return false;
    }
    let before = view.counted(of);
    let mut after = before;
    after.add(&more());
    check(view, of, &before, &after).is_err()
}

/// Checks that the usage `was` (none: nothing) may become `is` under the quotas of its owner and
/// group. `start` is the usage that the accounts have counted already: earlier edits of an update
/// have moved on from it.
pub(super) fn check_change<V: View>(
    view: &V,
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
        if view.record(RecordKey::Quota(of)).is_none() {
            continue;
        }
        // The counters are exact, so they include `start`.
        let others = view.counted(of).minus(&side(of, start)).unwrap_or_default();
        let (mut before, mut after) = (others, others);
        before.add(&side(of, was));
        after.add(&side(of, Some(is)));
        check(view, of, &before, &after)?;
    }
    Ok(())
}
