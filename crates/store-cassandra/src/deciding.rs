//! Decides a commit group: as many mutations of the waiting requests as fit, each on the rows that
//! those before it left.

use std::collections::{BTreeSet, VecDeque};

use exacat_model::codec::Encode;
use exacat_model::{Change, Fingerprint, Revision, TimeMs};
use exacat_store::rules::{self, Context, Declined, Stamp};
use exacat_store::{ApplyError, Outcome, Refusal, Request};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::derive::derive;
use crate::limits::{CHANGE_BYTES_MAX, COMMIT_GROUP_BYTES_MAX, GROUP_CHANGES_MAX, NEEDS_MAX};
use crate::row_cache::RowCache;
use crate::rows::{AfterImage, Changed, Key, Remembered, Row, Totals};
use crate::spent::Spent;
use crate::working::{CacheView, Need, Working, remembered, totals};

/// Answer to one request.
pub(crate) type Answer = Result<Vec<Outcome>, ApplyError>;
/// The same with the times of the steps.
pub(crate) type Answered = (Answer, Spent);

/// Request that waits for its outcomes.
pub(crate) struct Waiting {
    pub request: Request,
    /// Outcomes of its finished mutations.
    pub outcomes: Vec<Outcome>,
    pub answered: oneshot::Sender<Answered>,
    pub spent: Spent,
    /// True if another server was asked: it may have carried the request out.
    pub forwarded: bool,
    /// Its share of the queue's bytes.
    pub _room: OwnedSemaphorePermit,
}

impl Waiting {
    /// Returns the error for a client whose request this server will not finish.
    pub(crate) fn not_done(&self, why: &str) -> ApplyError {
        if self.outcomes.is_empty() && !self.forwarded {
            ApplyError::Unavailable(why.to_owned())
        } else {
            ApplyError::Unknown(why.to_owned())
        }
    }

    /// Answers it. A client that gave up needs no answer.
    pub(crate) fn answer(self, answer: Answer) {
        let _ = self.answered.send((answer, self.spent));
    }
}

/// A decided group.
#[derive(Default)]
pub(crate) struct Decided {
    pub head: Revision,
    pub epoch: u64,
    pub changes: Vec<Change>,
    pub changed: Changed,
    /// For each visited request, the outcomes of its next mutations. None if its id belongs to
    /// another request.
    pub outcomes: Vec<Option<Vec<Outcome>>>,
    /// Rows that must be fetched first. If there are any, nothing else here counts.
    pub needs: BTreeSet<Need>,
    bytes: usize,
    /// Limit on changes plus skipped mutations, which wait for missing rows.
    most: usize,
    skipped: usize,
}

impl Decided {
    /// Row after-images of the group.
    pub(crate) fn after_images(&self) -> Vec<AfterImage> {
        let after_images = self.changed.iter();
        after_images.map(|(key, row)| AfterImage { key: key.clone(), row: row.as_deref().cloned() }).collect()
    }

    fn full(&self) -> bool {
        self.changes.len() + self.skipped >= self.most
            || self.bytes >= COMMIT_GROUP_BYTES_MAX
            || self.needs.len() >= NEEDS_MAX
    }
}

/// Decides a group on cached rows, of at most `most` changes.
pub(crate) fn decide_group(
    cache: &RowCache,
    waiting: &VecDeque<Waiting>,
    now: TimeMs,
    most: usize,
) -> Result<Decided, String> {
    let mut decided = Decided { head: cache.head(), epoch: cache.epoch(), most, ..Decided::default() };
    for one in waiting {
        if one.outcomes.is_empty() && is_another(cache, &decided, &one.request) {
            decided.outcomes.push(None);
            continue;
        }
        match outdated(cache, &mut decided, one)? {
            Rights::AsJudged => {}
            Rights::NotCached => {
                decided.skipped += 1;
                decided.outcomes.push(Some(Vec::new()));
                if decided.full() {
                    break;
                }
                continue;
            }
            Rights::Outdated(outcomes) => {
                decided.outcomes.push(Some(outcomes));
                continue;
            }
        }
        let mut outcomes = Vec::new();
        for index in one.outcomes.len()..one.request.mutations.len() {
            if decided.full() {
                break;
            }
            match decide_one(cache, &mut decided, &one.request, index, now)? {
                Some(outcome) => outcomes.push(outcome),
                // Not known yet. Continue: later mutations may need rows too, and one round fetches
                // all.
                None => decided.skipped += 1,
            }
        }
        decided.outcomes.push(Some(outcomes));
        if decided.full() {
            break;
        }
    }
    Ok(decided)
}

/// Result of checking that the facts behind a request's permission still hold (clause A11).
enum Rights {
    AsJudged,
    /// Rows are missing.
    NotCached,
    /// Outcomes of the remaining mutations.
    Outdated(Vec<Outcome>),
}

fn outdated(cache: &RowCache, decided: &mut Decided, one: &Waiting) -> Result<Rights, String> {
    let request = &one.request;
    let Some(judged) = &request.judged else { return Ok(Rights::AsJudged) };
    let view = CacheView::new(cache, Some(&decided.changed));
    let past = remembered(&view, request.operation);
    let own = |revision: Revision| {
        past.as_ref().is_some_and(|past| past.outcomes.iter().any(|(_, (made, _))| *made == revision))
    };
    let left = one.outcomes.len()..request.mutations.len();
    let working = Working { view, own: Changed::new(), defect: None };
    let same = rules::judged_the_same(&working, judged, &request.mutations[left.clone()], own);
    let Working { view, .. } = working;
    let needs = view.needs();
    if !needs.is_empty() {
        decided.needs.extend(needs);
        return Ok(Rights::NotCached);
    }
    if same.map_err(|misfit| misfit.0)? {
        return Ok(Rights::AsJudged);
    }
    let outcomes = left.map(|index| {
        let applied = past.as_ref().and_then(|past| {
            let found = past.outcomes.iter().find(|(at, _)| usize::try_from(*at) == Ok(index))?;
            let (revision, id) = found.1;
            Some(Outcome::Applied { revision, id })
        });
        applied.unwrap_or(Outcome::Refused(Refusal::Outdated))
    });
    Ok(Rights::Outdated(outcomes.collect()))
}

/// Decides one mutation; none if rows are missing.
fn decide_one(
    cache: &RowCache,
    decided: &mut Decided,
    request: &Request,
    index: usize,
    now: TimeMs,
) -> Result<Option<Outcome>, String> {
    let position = u32::try_from(index).unwrap_or(u32::MAX);
    let view = CacheView::new(cache, Some(&decided.changed));
    let before = totals(&view);
    let time = now.max(before.time);
    let revision = Revision(decided.head.0 + decided.changes.len() as u64 + 1);
    let past = remembered(&view, request.operation);
    let found = past.as_ref().and_then(|past| past.outcomes.iter().find(|(at, _)| *at == position));
    if let Some((_, (revision, id))) = found {
        let outcome = Outcome::Applied { revision: *revision, id: *id };
        let needs = view.needs();
        decided.needs.extend(needs.iter().cloned());
        return Ok(needs.is_empty().then_some(outcome));
    }
    let mut working = Working { view, own: Changed::new(), defect: None };
    let context = Context { revision, time };
    let decision = rules::decide(&working, context, request.mutations[index].clone());
    let mut change = None;
    let outcome = match decision {
        Err(Declined::Unchanged) => Outcome::Unchanged,
        Err(Declined::Refused(refusal)) => Outcome::Refused(refusal),
        Err(Declined::Failed(misfit)) => {
            working.defect = Some(misfit.0);
            Outcome::Unchanged
        }
        Ok(effect) => {
            let id = effect.entry_id();
            let made = Change {
                revision,
                time,
                who: request.who,
                operation: request.operation,
                index: position,
                effect,
            };
            perform(&mut working, &made);
            remember(&mut working, &made, request.fingerprint, past, id);
            change = Some(made);
            Outcome::Applied { revision, id }
        }
    };
    let Working { view, own, defect } = working;
    let needs = view.needs();
    if !needs.is_empty() {
        decided.needs.extend(needs);
        return Ok(None);
    }
    if let Some(defect) = defect {
        return Err(defect);
    }
    let Some(change) = change else { return Ok(Some(outcome)) };
    let bytes = bytes_of(&change, &own);
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

/// Says whether another request with this id was applied, as far as cached rows show. Missing rows
/// are fetched when the request is decided.
fn is_another(cache: &RowCache, decided: &Decided, request: &Request) -> bool {
    let view = CacheView::new(cache, Some(&decided.changed));
    let past = remembered(&view, request.operation);
    past.is_some_and(|past| past.fingerprint.differs(request.fingerprint))
}

/// Applies changes that were made elsewhere: as many as fit into one group.
pub(crate) fn replay_group(cache: &RowCache, changes: &[Change], most: usize) -> Result<Decided, String> {
    let mut decided = Decided { head: cache.head(), epoch: cache.epoch(), most, ..Decided::default() };
    for change in changes {
        if decided.full() {
            break;
        }
        let next = decided.head.0 + decided.changes.len() as u64 + 1;
        if change.revision.0 != next {
            return Err(format!("change {} does not follow change {}", change.revision.0, next - 1));
        }
        let view = CacheView::new(cache, Some(&decided.changed));
        let past = remembered(&view, change.operation);
        let mut working = Working { view, own: Changed::new(), defect: None };
        perform(&mut working, change);
        remember(&mut working, change, Fingerprint::UNKNOWN, past, change.effect.entry_id());
        let Working { view, own, defect } = working;
        let needs = view.needs();
        if !needs.is_empty() {
            // Continue: later changes may need rows too, and one round fetches all.
            decided.needs.extend(needs);
            decided.changes.push(change.clone());
            decided.changed.extend(own);
            continue;
        }
        // A defect after a missing row means nothing: it may follow from that row.
        if let Some(defect) = defect.filter(|_| decided.needs.is_empty()) {
            return Err(defect);
        }
        let bytes = bytes_of(change, &own);
        if bytes > CHANGE_BYTES_MAX {
            return Err(format!(
                "change {} needs {bytes} bytes in the log of this store, the limit is {CHANGE_BYTES_MAX}",
                change.revision.0
            ));
        }
        decided.bytes += bytes;
        decided.changed.extend(own);
        decided.changes.push(change.clone());
    }
    Ok(decided)
}

/// Applies a change, and derives the rows that follow from it.
fn perform(working: &mut Working<'_>, change: &Change) {
    let stamp = Stamp { revision: change.revision, time: change.time, who: change.who };
    let performed = rules::perform(working, stamp, &change.effect, None);
    derive(working);
    if let Err(misfit) = performed {
        let defect = format!("change {} does not fit the state: {misfit}", change.revision.0);
        working.defect.get_or_insert(defect);
    }
}

/// Approximate bytes of a change in the log.
fn bytes_of(change: &Change, own: &Changed) -> usize {
    let after_images: usize =
        own.values().map(|row| 32 + row.as_deref().map_or(0, |row| row.to_bytes().len())).sum();
    change.to_bytes().len() + after_images
}

/// Records the outcome of an applied mutation under its operation id, and the time of the change.
fn remember(
    working: &mut Working<'_>,
    change: &Change,
    fingerprint: Fingerprint,
    past: Option<Remembered>,
    id: Option<exacat_model::EntryId>,
) {
    let before = totals(working);
    let is_new = past.is_none();
    let requests = before.requests + u64::from(is_new);
    let mut now = past.unwrap_or(Remembered { fingerprint, outcomes: Vec::new() });
    now.outcomes.push((change.index, (change.revision, id)));
    working.put(Key::Operation(change.operation), Some(Row::Operation(now)));
    working.put(Key::Totals, Some(Row::Totals(Totals { requests, time: change.time, ..before })));
}

/// Returns the revision of the change that a mutation made.
pub(crate) fn revision_of(outcome: &Outcome) -> Option<Revision> {
    match outcome {
        Outcome::Applied { revision, .. } => Some(*revision),
        Outcome::Unchanged | Outcome::Refused(_) => None,
    }
}

/// Takes waiting requests, as many as fit into a group.
pub(crate) fn take_waiting(requests: &mut mpsc::Receiver<Waiting>, waiting: &mut VecDeque<Waiting>) {
    while waiting.len() < GROUP_CHANGES_MAX
        && let Ok(request) = requests.try_recv()
    {
        waiting.push_back(request);
    }
}

/// Answers the requests whose mutations are all done.
pub(crate) fn answer_done(waiting: &mut VecDeque<Waiting>, outcomes: Vec<Option<Vec<Outcome>>>) {
    let mut unfinished = VecDeque::new();
    for outcomes in outcomes {
        let Some(mut one) = waiting.pop_front() else { break };
        let Some(outcomes) = outcomes else {
            let conflict = ApplyError::conflict(one.request.operation);
            one.answer(Err(conflict));
            continue;
        };
        one.outcomes.extend(outcomes);
        if one.outcomes.len() >= one.request.mutations.len() {
            let outcomes = std::mem::take(&mut one.outcomes);
            one.answer(Ok(outcomes));
        } else {
            unfinished.push_back(one);
        }
    }
    // Only the last request of the group can be unfinished.
    while let Some(one) = unfinished.pop_back() {
        waiting.push_front(one);
    }
}
