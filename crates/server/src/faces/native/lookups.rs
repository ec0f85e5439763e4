//! Look-ups of one wake-up of a connection, answered together.
//!
//! The catalogue looks up many names for little more than the price of one. So the connection
//! gathers pipelined look-ups, single ones and those inside batches, by kind and options. It makes
//! one call of the catalogue for each kind, and splits the result. No look-up waits for others: the
//! call happens as soon as all received bytes are handled.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use exacat_activity::RequestState;
use exacat_catalogue::Caller;
use exacat_model::limits::READ_MEMORY_MAX;
use exacat_model::operation::FileRef;
use exacat_model::{
    AccountName, Answer, Consistency, Error, ErrorKind, Guid, Lfn, Operation, OperationId, Result,
};
use exacat_wire::native::{encode_error, encode_outcome};
use futures::FutureExt;

use super::reply::{Given, Measure, Outbox, Target, Waiting};
use crate::activity::{Facts, Tracking};
use crate::admission::{Room, Share, UNREAD, busy};
use crate::encoded_items::EncodedItems;
use crate::instruments::{Ended, OperationIndex};
use crate::service::{EndedRequests, Requester, Service};

/// Placeholder for operations without an id.
pub(super) const NO_ID: OperationId = OperationId([0; 16]);

/// Items that can be looked up together.
#[derive(Clone)]
enum Items {
    Stat { follow: bool, lfns: Vec<Lfn> },
    Whereis { site: Option<AccountName>, files: Vec<FileRef> },
    Lfns { guids: Vec<Guid> },
}

/// A request's part of a look-up: its target, and the number of items.
struct RequestShare {
    target: Target,
    items: usize,
}

struct Group {
    items: Items,
    consistency: Option<Consistency>,
    parts: Vec<RequestShare>,
    count: usize,
}

/// The gathered look-ups.
#[derive(Default)]
pub(super) struct Lookups {
    groups: Vec<Group>,
}

/// Most groups at once: different kinds, options and consistency levels. Before one more, the
/// connection looks up the gathered ones.
const GROUPS_MAX: usize = 8;

/// Result of gathering: an operation that cannot be gathered is returned.
pub(super) enum Gathered {
    Yes,
    No(Box<(Operation, Target)>),
}

impl Items {
    /// Returns the first path; none for GUIDs.
    fn first(&self) -> Option<&Lfn> {
        match self {
            Items::Stat { lfns, .. } => lfns.first(),
            Items::Whereis { files, .. } => match files.first()? {
                FileRef::Lfn(lfn) => Some(lfn),
                FileRef::Guid(_) => None,
            },
            Items::Lfns { .. } => None,
        }
    }

    fn of(operation: Operation) -> std::result::Result<(Items, usize), Box<Operation>> {
        Ok(match operation {
            Operation::Stat { lfns, follow } => {
                let count = lfns.len();
                (Items::Stat { follow, lfns }, count)
            }
            Operation::Whereis { files, site } => {
                let count = files.len();
                (Items::Whereis { site, files }, count)
            }
            Operation::Lfns { guids } => {
                let count = guids.len();
                (Items::Lfns { guids }, count)
            }
            other => return Err(Box::new(other)),
        })
    }

    /// Adds the other's items, if they are of one kind.
    fn merge(&mut self, other: Items) -> std::result::Result<(), Items> {
        match (self, other) {
            (Items::Stat { follow, lfns }, Items::Stat { follow: other, lfns: mut more })
                if *follow == other =>
            {
                lfns.append(&mut more);
            }
            (Items::Whereis { site, files }, Items::Whereis { site: other, files: mut more })
                if *site == other =>
            {
                files.append(&mut more);
            }
            (Items::Lfns { guids }, Items::Lfns { guids: mut more }) => guids.append(&mut more),
            (_, other) => return Err(other),
        }
        Ok(())
    }

    /// Takes the first so many items.
    fn split_first(&mut self, count: usize) -> Items {
        match self {
            Items::Stat { follow, lfns } => {
                Items::Stat { follow: *follow, lfns: lfns.drain(..count).collect() }
            }
            Items::Whereis { site, files } => {
                Items::Whereis { site: site.clone(), files: files.drain(..count).collect() }
            }
            Items::Lfns { guids } => Items::Lfns { guids: guids.drain(..count).collect() },
        }
    }

    /// Looks up the items.
    async fn look_up(
        self,
        service: &Arc<Service>,
        caller: &Arc<Caller>,
        consistency: Option<Consistency>,
    ) -> Result<LookupOutcome> {
        let operation = match self {
            Items::Whereis { site, files } => {
                let found = service.whereis(caller, files, site.as_ref(), consistency).await;
                return found.map(LookupOutcome::Whereis);
            }
            Items::Stat { follow, lfns } => Operation::Stat { lfns, follow },
            Items::Lfns { guids } => Operation::Lfns { guids },
        };
        service.execute(caller, NO_ID, operation, consistency).await.map(LookupOutcome::Answer)
    }

    fn name(&self) -> OperationIndex {
        OperationIndex::of(&match self {
            Items::Stat { .. } => Operation::Stat { lfns: Vec::new(), follow: false },
            Items::Whereis { .. } => Operation::Whereis { files: Vec::new(), site: None },
            Items::Lfns { .. } => Operation::Lfns { guids: Vec::new() },
        })
    }
}

impl Lookups {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the number of gathered items; a look-up of nothing counts as one.
    pub(crate) fn items(&self) -> usize {
        self.groups.iter().map(|group| group.count.max(group.parts.len())).sum()
    }

    /// Returns the number of gathered requests; operations of batches count one by one.
    pub(crate) fn requests(&self) -> usize {
        self.groups.iter().map(|group| group.parts.len()).sum()
    }

    /// True if there is no room for another kind.
    pub(crate) fn is_full(&self) -> bool {
        self.groups.len() >= GROUPS_MAX
    }

    /// Gathers an operation, if its kind allows that.
    pub(crate) fn gather(
        &mut self,
        operation: Operation,
        consistency: Option<Consistency>,
        target: Target,
    ) -> Gathered {
        let (mut items, count) = match Items::of(operation) {
            Ok(items) => items,
            Err(operation) => return Gathered::No(Box::new((*operation, target))),
        };
        for group in self.groups.iter_mut().filter(|group| group.consistency == consistency) {
            match group.items.merge(items) {
                Ok(()) => {
                    group.parts.push(RequestShare { target, items: count });
                    group.count += count;
                    return Gathered::Yes;
                }
                Err(back) => items = back,
            }
        }
        let parts = vec![RequestShare { target, items: count }];
        self.groups.push(Group { items, consistency, parts, count });
        Gathered::Yes
    }

    /// Looks up everything and appends the answers to `out`. If the catalogue must wait for its
    /// store, a task does so, and the answers arrive as replies.
    pub(crate) fn look_up(
        &mut self,
        requester: &Requester,
        outbox: &Outbox,
        since: Instant,
        (out, entry): (&mut Vec<u8>, &mut Option<Tracking>),
    ) -> Taken {
        let mut taken = Taken::default();
        for group in self.groups.drain(..) {
            let service = Arc::clone(&outbox.service);
            let operation = group.items.name();
            let held = service.admit(requester, group.parts.len(), Share::Catalogue).and_then(|held| {
                let items = service.admission.lookup_items.take(group.count);
                Ok((held, items.ok_or_else(|| busy("items looked up at once"))?))
            });
            let mut hand_out = HandOut { outbox, requester, request: None, operation, since, out };
            let held = match held {
                Ok(held) => held,
                Err(error) => {
                    let outcomes = group.parts.iter().map(|_| Err(error.clone())).collect();
                    hand_out.all(group.parts, outcomes, &mut taken, Instant::now());
                    continue;
                }
            };
            if group.parts.len() > 1 {
                let parts = group.parts.len() as u64;
                service.instruments.counts.coalesced.fetch_add(parts, Ordering::Relaxed);
            }
            let shape: Vec<usize> = group.parts.iter().map(|part| part.items).collect();
            let caller = Arc::clone(&requester.caller);
            let again = (shape.len() > 1).then(|| group.items.clone());
            let mut tracking = entry.take().unwrap_or_else(|| {
                let facts = Facts { requester: Some(requester.clone()), ..Facts::default() };
                outbox.service.board.entry(facts)
            });
            tracking.begin_look_up(operation, since, group.items.first());
            hand_out.request = Some(tracking.number());
            let mut work = Box::pin(tracking.track(async move {
                let outcome = group.items.look_up(&service, &caller, group.consistency).await;
                match (&outcome, again) {
                    (Err(error), Some(items)) if error.kind == ErrorKind::Limit => {
                        one_by_one((&service, &caller, group.consistency), items, &shape).await
                    }
                    _ => take_apart(outcome, &shape),
                }
            }));
            match work.as_mut().now_or_never() {
                Some(outcomes) => {
                    drop(held);
                    let now = Instant::now();
                    tracking.activity().enter_at(RequestState::Encode, now);
                    if let Some(outcome) = hand_out.all(group.parts, outcomes, &mut taken, now) {
                        tracking.note(outcome);
                    }
                    tracking.end(Instant::now());
                    *entry = Some(tracking);
                }
                None => {
                    let waiting = hand_out.as_waiting(group.parts, &mut taken);
                    tokio::spawn(async move {
                        let outcomes = work.await;
                        drop(held);
                        tracking.activity().enter(RequestState::Encode);
                        for (waiting, outcome) in waiting.into_iter().zip(outcomes) {
                            waiting.answer(outcome);
                        }
                    });
                }
            }
        }
        taken
    }
}

/// Requests that the connection must track: those that tasks continue, and those in flight that
/// were answered.
#[derive(Default)]
pub(super) struct Taken {
    pub begun: Vec<u64>,
    pub ended: Vec<u64>,
}

/// The result of a whole look-up.
enum LookupOutcome {
    Answer(Answer),
    Whereis(EncodedItems),
}

/// Looks up the parts of a group by themselves: together their entries have too many bytes. The
/// client repeats those that are too many for now.
async fn one_by_one(
    (service, caller, consistency): (&Arc<Service>, &Arc<Caller>, Option<Consistency>),
    mut items: Items,
    shape: &[usize],
) -> Vec<Result<Given>> {
    let (mut outcomes, mut bytes) = (Vec::with_capacity(shape.len()), 0);
    for count in shape {
        let part = items.split_first(*count);
        if bytes > READ_MEMORY_MAX {
            outcomes.push(Err(busy(UNREAD)));
            continue;
        }
        let found = take_apart(part.look_up(service, caller, consistency).await, &[*count]);
        bytes += found.iter().flatten().map(Given::bytes).sum::<usize>();
        outcomes.extend(found);
    }
    outcomes
}

/// Splits the outcome of one look-up into those of its parts. If it failed as a whole, each part
/// failed.
fn take_apart(outcome: Result<LookupOutcome>, shape: &[usize]) -> Vec<Result<Given>> {
    fn all(shape: &[usize], error: Error) -> Vec<Result<Given>> {
        shape.iter().map(|_| Err(error.clone())).collect()
    }
    fn defect(what: &str) -> Error {
        Error::new(ErrorKind::Internal, format!("internal error: {what}"))
    }
    fn split<T>(items: Vec<T>, shape: &[usize], answer: fn(Vec<T>) -> Answer) -> Vec<Result<Given>> {
        if shape.len() == 1 {
            return vec![Ok(Given::Answer(answer(items)))];
        }
        let mut items = items.into_iter();
        shape.iter().map(|count| Ok(Given::Answer(answer(items.by_ref().take(*count).collect())))).collect()
    }
    let wanted: usize = shape.iter().sum();
    match outcome {
        Ok(LookupOutcome::Whereis(EncodedItems { bytes, ends })) if ends.len() == wanted => {
            let bytes = Bytes::from(bytes);
            let (mut begin, mut done) = (0, 0);
            let part = |count: &usize| {
                done += count;
                let end = if done == 0 { 0 } else { ends[done - 1] };
                let items = bytes.slice(std::mem::replace(&mut begin, end)..end);
                Ok(Given::Whereis { count: *count, items })
            };
            shape.iter().map(part).collect()
        }
        Ok(LookupOutcome::Answer(Answer::Stats(items))) if items.len() == wanted => {
            split(items, shape, Answer::Stats)
        }
        Ok(LookupOutcome::Answer(Answer::Lfns(items))) if items.len() == wanted => {
            split(items, shape, Answer::Lfns)
        }
        Ok(_) => all(shape, defect("not one answer to each question of a look-up")),
        Err(error) => all(shape, error),
    }
}

/// Delivers the outcomes of one look-up to their requests.
struct HandOut<'a> {
    outbox: &'a Outbox,
    requester: &'a Requester,
    /// Number of the look-up; none if it was refused.
    request: Option<u64>,
    operation: OperationIndex,
    since: Instant,
    out: &'a mut Vec<u8>,
}

impl HandOut<'_> {
    /// Delivers all outcomes now, and returns the last one.
    fn all(
        &mut self,
        parts: Vec<RequestShare>,
        outcomes: Vec<Result<Given>>,
        taken: &mut Taken,
        now: Instant,
    ) -> Option<Ended> {
        let service = &self.outbox.service;
        let (time, operation) = (now.saturating_duration_since(self.since), self.operation);
        let request = self.request;
        let ended =
            |outcome, requests, items| EndedRequests { request, operation, outcome, requests, items, time };
        // Record requests with the same outcome together.
        let mut alike: Option<(Ended, u64, u64)> = None;
        for (part, outcome) in parts.into_iter().zip(outcomes) {
            let kind = Ended::of(&outcome);
            match &mut alike {
                Some((same, requests, items)) if *same == kind => {
                    *requests += 1;
                    *items += part.items as u64;
                }
                other => {
                    if let Some((kind, requests, items)) = other.replace((kind, 1, part.items as u64)) {
                        service.ended(self.requester, ended(kind, requests, items));
                    }
                }
            }
            let (begin, frame_bytes_max) = (self.out.len(), self.outbox.frame_bytes_max);
            let request = match part.target {
                Target::Request(request) => {
                    encode_outcome(self.out, frame_bytes_max, request, &outcome);
                    request
                }
                Target::InBatch(batch, place) => {
                    taken.ended.extend(batch.fill(place, outcome, &mut None, self.out, frame_bytes_max));
                    batch.request()
                }
            };
            // Without room for a long answer among those that are not read, the client repeats the
            // request later.
            let bytes = self.out.len() - begin;
            if bytes > service.limits.own_unread_bytes_max
                && Room::of_made(&service.admission, bytes).is_none()
            {
                self.out.truncate(begin);
                self.out.shrink_to(2 * begin);
                encode_error(self.out, request, &busy(UNREAD));
            }
        }
        let (kind, requests, items) = alike?;
        service.ended(self.requester, ended(kind, requests, items));
        Some(kind)
    }

    /// Prepares delivery later, by a task.
    fn as_waiting(&self, parts: Vec<RequestShare>, taken: &mut Taken) -> Vec<Waiting> {
        let waiting = |part: RequestShare| {
            taken.begun.push(match &part.target {
                Target::Request(request) => *request,
                Target::InBatch(batch, _) => batch.request(),
            });
            let measure = Measure {
                requester: self.requester.clone(),
                operation: self.operation,
                items: part.items as u64,
                since: self.since,
                request: self.request,
            };
            Waiting::new(part.target, self.outbox.clone(), measure)
        };
        parts.into_iter().map(waiting).collect()
    }
}
