//! Deciding a group: as many mutations of the waiting requests as fit together, each on what those before it left.

use std::collections::{BTreeSet, VecDeque};

use exacat_model::codec::Encode;
use exacat_model::limits::OPERATIONS_REMEMBERED;
use exacat_model::{Change, Revision, TimeMs};
use exacat_store::{ApplyError, Outcome, Refusal, Request, rules};
use tokio::sync::oneshot;

use crate::derive::derive;
use crate::known::Known;
use crate::limits::{CHANGE_BYTES_MAX, GROUP_BYTES_MAX, GROUP_CHANGES_MAX};
use crate::rows::{Image, Key, Remembered, Row, Totals};
use crate::working::{Changed, Look, Need, Working, remembered, totals};

/// What one request comes to.
pub(crate) type Answer = Result<Vec<Outcome>, ApplyError>;

/// A request that waits for its outcomes.
pub(crate) struct Waiting {
    pub request: Request,
    /// Of the mutations that are done with.
    pub outcomes: Vec<Outcome>,
    pub answer: oneshot::Sender<Answer>,
}

/// A group as decided.
#[derive(Default)]
pub(crate) struct Decided {
    pub head: Revision,
    pub epoch: u64,
    pub changes: Vec<Change>,
    pub changed: Changed,
    /// For each request that was looked at, what its next mutations come to.
    pub outcomes: Vec<Vec<Outcome>>,
    /// What has to be known first; then nothing else here counts.
    pub needs: BTreeSet<Need>,
    bytes: usize,
}

impl Decided {
    /// What the group makes of rows.
    pub fn images(&self) -> Vec<Image> {
        let images = self.changed.iter();
        images.map(|(key, row)| Image { key: key.clone(), row: row.as_deref().cloned() }).collect()
    }

    fn full(&self) -> bool {
        self.changes.len() >= GROUP_CHANGES_MAX || self.bytes >= GROUP_BYTES_MAX
    }
}

/// Decides a group on what is known.
pub(crate) fn decide_group(
    known: &Known,
    waiting: &VecDeque<Waiting>,
    now: TimeMs,
) -> Result<Decided, String> {
    let mut decided = Decided { head: known.head(), epoch: known.epoch(), ..Decided::default() };
    for one in waiting {
        let mut outcomes = Vec::new();
        for index in one.outcomes.len()..one.request.mutations.len() {
            if decided.full() {
                break;
            }
            match decide_one(known, &mut decided, &one.request, index, now)? {
                Some(outcome) => outcomes.push(outcome),
                // Not known yet; what comes after it may need something as well.
                None => continue,
            }
        }
        decided.outcomes.push(outcomes);
        if decided.full() {
            break;
        }
    }
    Ok(decided)
}

/// None if something has to be known first.
fn decide_one(
    known: &Known,
    decided: &mut Decided,
    request: &Request,
    index: usize,
    now: TimeMs,
) -> Result<Option<Outcome>, String> {
    let position = u32::try_from(index).unwrap_or(u32::MAX);
    let look = Look::new(known, Some(&decided.changed));
    let before = totals(&look);
    let time = now.max(before.time);
    let revision = Revision(decided.head.0 + decided.changes.len() as u64 + 1);
    // Only so many requests are remembered.
    let past = remembered(&look, request.operation)
        .filter(|past| before.requests - past.ordinal.min(before.requests) < OPERATIONS_REMEMBERED as u64);
    let found = past.as_ref().and_then(|past| past.outcomes.iter().find(|(at, _)| *at == position));
    if let Some((_, (revision, id))) = found {
        let outcome = Outcome::Applied { revision: *revision, id: *id };
        let needs = look.needs();
        decided.needs.extend(needs.iter().cloned());
        return Ok(needs.is_empty().then_some(outcome));
    }
    let mut working = Working { look, own: Changed::new(), defect: None };
    let effect = rules::decide(&working, &request.mutations[index], revision, time);
    let mut change = None;
    let outcome = match effect {
        Ok(None) => Outcome::Unchanged,
        Err(refusal) => Outcome::Refused(refusal),
        Ok(Some(effect)) => {
            let id = effect.entry_id();
            let made = Change {
                revision,
                time,
                who: request.who,
                operation: request.operation,
                index: position,
                effect,
            };
            if rules::perform(&mut working, &made).is_none() {
                working.defect = Some("what was decided does not fit what is there".to_owned());
            }
            derive(&mut working);
            remember(&mut working, &made, past, id);
            change = Some(made);
            Outcome::Applied { revision, id }
        }
    };
    let Working { look, own, defect } = working;
    let needs = look.needs();
    if !needs.is_empty() {
        decided.needs.extend(needs);
        return Ok(None);
    }
    if let Some(defect) = defect {
        return Err(defect);
    }
    let Some(change) = change else { return Ok(Some(outcome)) };
    let images: usize =
        own.values().map(|row| 32 + row.as_deref().map_or(0, |row| row.to_bytes().len())).sum();
    let bytes = change.to_bytes().len() + images;
    if bytes > CHANGE_BYTES_MAX {
        return Ok(Some(Outcome::Refused(Refusal::Limit(format!(
            "a change needs {bytes} bytes in the log of this store, the limit is {CHANGE_BYTES_MAX}: do it in parts"
        )))));
    }
    decided.bytes += bytes;
    decided.changed.extend(own);
    decided.changes.push(change);
    Ok(Some(outcome))
}

/// Puts into the rows that the request's mutation was applied, and when.
fn remember(
    working: &mut Working<'_>,
    change: &Change,
    past: Option<Remembered>,
    id: Option<exacat_model::EntryId>,
) {
    let before = totals(working);
    let is_new = past.is_none();
    let requests = before.requests + u64::from(is_new);
    let mut now = past.unwrap_or(Remembered { ordinal: requests, outcomes: Vec::new() });
    now.outcomes.push((change.index, (change.revision, id)));
    working.put(Key::Operation(change.operation), Some(Row::Operation(now)));
    working.put(Key::Totals, Some(Row::Totals(Totals { requests, time: change.time, ..before })));
}
