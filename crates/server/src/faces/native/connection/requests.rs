//! Requests of a connection: gathers look-ups, passes other requests to tasks, or refuses them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{Consistency, Error, ErrorKind, Operation, OperationId, Past};
use exacat_wire::native::{Batch, BatchItem, Request, encode_error};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use super::{Closing, Connection, InFlight, Patience, Stage};
use crate::admission::{Class, Share, Step, UNREAD, busy, limit_of};
use crate::faces::native::lookups::{Gathered, Lookups, NO_ID};
use crate::faces::native::reply::{BatchInProgress, Measure, Target, Waiting};
use crate::faces::native::tasks::{self, Job};
use crate::instruments::{Ended, OperationIndex};
use crate::service::{Cancel, EndedRequests, OperationTask};

/// Estimated bytes of the answer to one item of a look-up.
const LOOKUP_BYTES: usize = 256;

/// An operation with its id, and the state that it is about.
struct OperationRequest {
    operation: Operation,
    id: OperationId,
    consistency: Option<Consistency>,
    past: Option<Past>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Adds a request to those in flight, if there is room.
    fn admit(
        &mut self,
        request: u64,
        (bytes, share): (usize, Share),
        patience: Patience,
        credit: Option<Arc<Semaphore>>,
    ) -> Result<Arc<Cancel>, Error> {
        if self.in_flight.contains_key(&request) {
            return Err(Error::invalid(format!("request {request} is in flight already")));
        }
        if self.closing != Closing::No {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the server stops or is drained: nothing was done",
            ));
        }
        if self.in_flight.len() >= self.service.limits.requests_per_connection_max {
            return Err(busy("requests of one connection that are not answered yet"));
        }
        let own =
            self.request_bytes.take(bytes).ok_or_else(|| busy("bytes of requests of one connection"))?;
        let all = self.service.admission.take_bytes(bytes, share)?;
        let cancel = Arc::new(Cancel::default());
        let in_flight = InFlight { cancel: Arc::clone(&cancel), patience, credit, _bytes: (own, all) };
        self.in_flight.insert(request, in_flight);
        Ok(cancel)
    }

    fn deadline(&self, received: Instant, deadline_ms: Option<u32>) -> Instant {
        let longest = self.service.limits.deadline_max;
        received + deadline_ms.map_or(longest, |ms| Duration::from_millis(ms.into()).min(longest))
    }

    /// True if the caller's requests may have to wait, so that each is a task of its own.
    fn is_throttled(&self) -> bool {
        match &self.stage {
            Stage::Open(session) => self.service.admission.throttles.concern(&session.requester.caller),
            _ => false,
        }
    }

    /// True if the operation can be answered at once, with others of its kind. The code that runs
    /// operations handles a deadline that has passed.
    fn is_quick(&self, operation: &Operation, deadline_ms: Option<u32>) -> bool {
        self.closing == Closing::No
            && !self.is_throttled()
            && deadline_ms != Some(0)
            && matches!(
                operation,
                Operation::Stat { .. } | Operation::Whereis { .. } | Operation::Lfns { .. }
            )
            && matches!(Class::of(operation, &self.service.limits), Class::Lookup { .. })
            && !self.service.must_check_uploads(operation)
    }

    /// True if the answers to look-ups of so many items would exceed the connection's allowance
    /// while the shared one is used up.
    fn answers_too_long(&self, items: u64) -> bool {
        let bytes = usize::try_from(items).unwrap_or(usize::MAX).saturating_mul(LOOKUP_BYTES);
        bytes > self.service.limits.own_unread_bytes_max && self.service.admission.unread_bytes.is_full()
    }

    /// Looks up the gathered look-ups if one more of this size would not fit: those looked up
    /// together must pass the bounds together.
    fn make_room(&mut self, lookups: &mut Lookups, operation: &Operation, received: Instant) {
        let limits = &self.service.limits;
        let items = lookups.items() + operation.items();
        let many = !lookups.is_empty() && items > limits.coalesced_items();
        if many
            || lookups.is_full()
            || self.in_flight.len() + lookups.requests() >= limits.requests_per_connection_max
        {
            self.look_up(lookups, received);
        }
    }

    /// True if there is room for one more look-up, even if all gathered ones turn out to take time.
    fn may_gather(&self, request: u64) -> bool {
        self.in_flight.len() < self.service.limits.requests_per_connection_max
            && !self.in_flight.contains_key(&request)
    }

    pub(super) fn take_request(
        &mut self,
        request: u64,
        asked: Request,
        bytes: usize,
        received: Instant,
        lookups: &mut Lookups,
    ) {
        let Request { options, operation } = asked;
        let mut target = Target::Request(request);
        let mut operation = operation;
        let quick = options.stream.is_none()
            && options.past.is_none()
            && self.is_quick(&operation, options.deadline_ms);
        if quick && self.answers_too_long(operation.items() as u64) {
            let error = busy(UNREAD);
            self.refuse_operation(&operation, received, &error);
            encode_error(&mut self.output, request, &error);
            return;
        }
        if quick {
            self.make_room(lookups, &operation, received);
        }
        if quick && self.may_gather(request) {
            match lookups.gather(operation, options.consistency, target) {
                Gathered::Yes => return,
                Gathered::No(back) => (operation, target) = *back,
            }
        }
        let credit = options.stream.map(|parts| Arc::new(Semaphore::new(parts as usize)));
        let patience = match Class::of(&operation, &self.service.limits) {
            Class::Wait => Patience::ForChanges,
            _ if credit.is_some() => Patience::ForClient,
            _ => Patience::None,
        };
        let bytes = (bytes, Share::of(&operation));
        let admitted = self.admit(request, bytes, patience, credit.clone());
        let cancel = match admitted {
            Ok(cancel) => cancel,
            Err(error) if error.kind == ErrorKind::Invalid => return self.refuse(error),
            Err(error) => {
                self.refuse_operation(&operation, received, &error);
                encode_error(&mut self.output, request, &error);
                return;
            }
        };
        let id = options.operation_id.unwrap_or(NO_ID);
        let deadline = self.deadline(received, options.deadline_ms);
        match credit {
            None => {
                let (consistency, past) = (options.consistency, options.past);
                let asked = OperationRequest { operation, id, consistency, past };
                self.begin(target, asked, deadline, received, cancel);
            }
            Some(credit) => {
                let held = self.streams.take(1).zip(self.service.admission.streams.take(1));
                let Some(held) = held else {
                    self.in_flight.remove(&request);
                    let error = busy("open streams");
                    self.refuse_operation(&operation, received, &error);
                    encode_error(&mut self.output, request, &error);
                    return;
                };
                let deadline = options.deadline_ms.map(|_| deadline);
                let (consistency, past) = (options.consistency, options.past);
                let asked = OperationRequest { operation, id, consistency, past };
                if let Some(job) = self.job(target, asked, received, received, cancel) {
                    tokio::spawn(tasks::stream(job, request, credit, deadline, held));
                }
            }
        }
    }

    pub(super) fn take_batch(
        &mut self,
        request: u64,
        batch: Batch,
        bytes: usize,
        received: Instant,
        lookups: &mut Lookups,
    ) {
        let Batch { deadline_ms, consistency, past, items } = batch;
        let deadline = self.deadline(received, deadline_ms);
        let answered = |item: &BatchItem| match limit_of(&item.operation) {
            Some(limit) => u64::from(limit),
            None => item.operation.items() as u64,
        };
        if self.answers_too_long(items.iter().map(answered).sum()) {
            encode_error(&mut self.output, request, &busy(UNREAD));
            return;
        }
        let in_progress = BatchInProgress::new(request, items.len());
        let is_quick =
            |this: &Self, operation: &Operation| past.is_none() && this.is_quick(operation, deadline_ms);
        let all_quick = items.iter().all(|item| is_quick(self, &item.operation));
        let cancel = if all_quick && self.may_gather(request) {
            None
        } else {
            // A batch with anything else is not one of values.
            let other = items.iter().map(|item| Share::of(&item.operation)).find(|of| *of != Share::Elements);
            let share = other.unwrap_or(Share::Elements);
            match self.admit(request, (bytes, share), Patience::None, None) {
                Ok(cancel) => Some(cancel),
                Err(error) if error.kind == ErrorKind::Invalid => return self.refuse(error),
                Err(error) => {
                    encode_error(&mut self.output, request, &error);
                    return;
                }
            }
        };
        for (place, BatchItem { operation_id, operation }) in items.into_iter().enumerate() {
            let mut target = Target::InBatch(Arc::clone(&in_progress), place);
            let mut operation = operation;
            if is_quick(self, &operation) {
                self.make_room(lookups, &operation, received);
                match lookups.gather(operation, consistency, target) {
                    Gathered::Yes => continue,
                    Gathered::No(back) => (operation, target) = *back,
                }
            }
            let id = operation_id.unwrap_or(NO_ID);
            let cancel = cancel.clone().unwrap_or_default();
            let asked = OperationRequest { operation, id, consistency, past };
            self.begin(target, asked, deadline, received, cancel);
        }
    }

    /// Counts a refused operation.
    fn refuse_operation(&self, operation: &Operation, received: Instant, error: &Error) {
        if let Stage::Open(session) = &self.stage {
            let ended = EndedRequests {
                request: None,
                operation: OperationIndex::of(operation),
                outcome: Ended::Failed(error.kind),
                requests: 1,
                items: 0,
                time: received.elapsed(),
            };
            self.service.ended(&session.requester, ended);
        }
    }

    /// Makes the job of an operation; none if it was refused, and the refusal sent.
    fn job(
        &mut self,
        target: Target,
        asked: OperationRequest,
        deadline: Instant,
        received: Instant,
        cancel: Arc<Cancel>,
    ) -> Option<Job> {
        let OperationRequest { operation, id, consistency, past } = asked;
        let Stage::Open(session) = &self.stage else {
            return None;
        };
        let requester = session.requester.clone();
        let measure = Measure {
            request: None,
            requester: requester.clone(),
            operation: OperationIndex::of(&operation),
            items: operation.items() as u64,
            since: received,
        };
        let waiting = Waiting::new(target, self.outbox.clone(), measure);
        match self.service.admit(&requester, 1, Share::of(&operation)) {
            Ok(held) => Some(Job {
                waiting,
                work: OperationTask {
                    requester,
                    id,
                    operation,
                    consistency,
                    past,
                    deadline,
                    cancel,
                    step: Step::First,
                    uploads_checked: false,
                },
                rooms: self.rooms.clone(),
                held,
                alive: self.alive.clone(),
            }),
            Err(error) => {
                waiting.answer(Err(error));
                None
            }
        }
    }

    fn begin(
        &mut self,
        target: Target,
        asked: OperationRequest,
        deadline: Instant,
        received: Instant,
        cancel: Arc<Cancel>,
    ) {
        let goes_together =
            tasks::goes_together(&asked.operation) && asked.past.is_none() && !self.is_throttled();
        let Some(job) = self.job(target, asked, deadline, received, cancel) else { return };
        if goes_together {
            self.together.push(job);
            if self.together.len() >= tasks::TOGETHER_MAX {
                self.start_together();
            }
        } else {
            tokio::spawn(tasks::run(job));
        }
    }

    /// Starts the gathered writes. Like look-ups they are those of one wake-up, and never wait for
    /// more.
    pub(super) fn start_together(&mut self) {
        tasks::start_together(std::mem::take(&mut self.together));
    }
}
