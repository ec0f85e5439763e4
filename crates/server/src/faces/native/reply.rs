//! Delivery of outcomes to waiting requests and to operations of batches.
//!
//! A [`Waiting`] is answered exactly once: dropped unanswered, it reports an internal error. The
//! thread that did the work encodes the answer, and the connection gets bytes.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exacat_activity::{RequestState, phase};
use exacat_model::answer::WhereisBytes;
use exacat_model::codec::Encode;
use exacat_model::limits::FRAME_BYTES_MAX;
use exacat_model::{Answer, Error, ErrorKind, Measured, Result};
use exacat_wire::native::{AnswerBatchWriter, encode_error, encode_outcome};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::activity::{Facts, Tracking};
use crate::admission::{Room, UNREAD, busy};
use crate::instruments::{Ended, OperationIndex};
use crate::service::{EndedRequests, Requester, Service};

/// An answer, or its canonical bytes.
pub(super) enum Given {
    Answer(Answer),
    /// An [`Answer::Whereis`] of so many items.
    Whereis {
        count: usize,
        items: Bytes,
    },
}

impl Given {
    /// Returns the approximate memory of the answer in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Given::Answer(answer) => answer.bytes(),
            Given::Whereis { items, .. } => items.len(),
        }
    }
}

impl Encode for Given {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Given::Answer(answer) => answer.encode(out),
            Given::Whereis { count, items } => WhereisBytes { count: *count, items }.encode(out),
        }
    }
}

/// Encoded frames for the client, from a task to the connection.
pub(super) struct Reply {
    pub bytes: Vec<u8>,
    /// The request whose answer this completes.
    pub ended: Option<u64>,
    /// Room that the answer holds until the connection has taken it over.
    pub _room: Option<OwnedSemaphorePermit>,
    /// Room among the bytes of unread answers, held equally long.
    pub _unread: Option<Room>,
}

/// Channel for the replies of a connection's tasks. It has room for one reply of every request in
/// flight and for the parts of streams under way, so sending never waits.
#[derive(Clone)]
pub(super) struct Outbox {
    pub sender: mpsc::Sender<Reply>,
    pub service: Arc<Service>,
    pub frame_bytes_max: usize,
}

impl Outbox {
    pub(crate) fn put(&self, reply: Reply) {
        // If the channel is closed, the connection is gone, and nobody waits.
        if let Err(mpsc::error::TrySendError::Full(reply)) = self.sender.try_send(reply) {
            tracing::error!(frame = reply.ended, "a reply did not fit: the connection's bounds are wrong");
        }
    }
}

/// Measures one operation from its receipt to its outcome.
#[derive(Clone)]
pub(super) struct Measure {
    pub requester: Requester,
    pub operation: OperationIndex,
    pub items: u64,
    pub since: Instant,
    /// Number of the request; none before it is on the board.
    pub request: Option<u64>,
}

impl Measure {
    pub(crate) fn ended(&self, service: &Service, outcome: Ended) {
        let Measure { operation, items, request, .. } = *self;
        let time = self.since.elapsed();
        service
            .ended(&self.requester, EndedRequests { request, operation, outcome, requests: 1, items, time });
    }
}

/// Recipient of an outcome.
pub(super) struct Waiting {
    target: Option<Target>,
    outbox: Outbox,
    measure: Measure,
    room: Option<OwnedSemaphorePermit>,
    unread: Option<Room>,
}

/// Target of an outcome.
pub(super) enum Target {
    /// A request.
    Request(u64),
    /// An operation of a batch.
    InBatch(Arc<BatchInProgress>, usize),
}

impl Waiting {
    pub(crate) fn new(target: Target, outbox: Outbox, measure: Measure) -> Self {
        Waiting { target: Some(target), outbox, measure, room: None, unread: None }
    }

    /// Holds both until the connection has the answer.
    pub(crate) fn keep(&mut self, room: OwnedSemaphorePermit, unread: Room) {
        self.room = Some(room);
        self.unread = Some(unread);
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.outbox.service
    }

    /// Begins the record of the request's states.
    pub(crate) fn begin(&mut self, facts: Facts) -> Tracking {
        let tracking = self.outbox.service.board.begin(self.measure.operation, self.measure.since, facts);
        self.is_of(&tracking);
        tracking
    }

    /// Gives the request its number.
    pub(crate) fn is_of(&mut self, tracking: &Tracking) {
        self.measure.request = Some(tracking.number());
    }

    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.outbox.frame_bytes_max
    }

    /// Sends a part of the answer.
    pub(crate) fn put(&self, reply: Reply) {
        self.outbox.put(reply);
    }

    /// Ends a request whose answer was sent in parts, with this last frame.
    pub(crate) fn answer_with(mut self, last: Vec<u8>) {
        let Some(Target::Request(request)) = self.target.take() else {
            return;
        };
        self.measure.ended(&self.outbox.service, Ended::Well);
        self.outbox.put(Reply { bytes: last, ended: Some(request), _room: None, _unread: None });
    }

    /// Sends the answer.
    pub(crate) fn answer(mut self, outcome: Result<Given>) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Result<Given>) {
        let Some(target) = self.target.take() else {
            return;
        };
        self.measure.ended(&self.outbox.service, Ended::of(&outcome));
        phase(RequestState::Encode);
        let mut bytes = Vec::new();
        let ended = match target {
            Target::Request(request) => {
                encode_outcome(&mut bytes, self.outbox.frame_bytes_max, request, &outcome);
                Some(request)
            }
            Target::InBatch(batch, index) => {
                batch.fill(index, outcome, &mut self.unread, &mut bytes, self.outbox.frame_bytes_max)
            }
        };
        if let Some(request) = ended {
            // A look-up has no room from before. Its answer is short, or takes room now.
            let (service, len) = (&self.outbox.service, bytes.len());
            if self.unread.is_none() && len > service.limits.own_unread_bytes_max {
                self.unread = Room::of_made(&service.admission, len);
                if self.unread.is_none() {
                    bytes = Vec::new();
                    encode_error(&mut bytes, request, &busy(UNREAD));
                }
            }
            let mut unread = self.unread.take();
            if let Some(unread) = &mut unread {
                unread.turned_out(bytes.capacity());
            }
            self.outbox.put(Reply { bytes, ended, _room: self.room.take(), _unread: unread });
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.target.is_some() {
            let service = &self.outbox.service;
            let request = self.measure.request.unwrap_or_else(|| service.board.next_number());
            let requester = &self.measure.requester;
            tracing::error!(
                request,
                user = requester.user(),
                client = requester.client(),
                operation = self.measure.operation.name(),
                "request lost its task"
            );
            self.send(Err(Error::new(
                ErrorKind::Internal,
                format!("internal error: report it, with request {request} of the server's log"),
            )));
        }
    }
}

/// Bytes of the answers of one batch that are kept until all are there; several frames.
const BATCH_ANSWER_BYTES_MAX: usize = 4 * FRAME_BYTES_MAX;

/// A batch with unanswered operations. The one that fills the last place encodes them all.
pub(super) struct BatchInProgress {
    request: u64,
    state: Mutex<Places>,
}

struct Places {
    outcomes: Vec<Option<Result<Given>>>,
    open: usize,
    /// Bytes of the outcomes that have no room among the bytes of all connections.
    bytes: usize,
    /// Rooms of long outcomes, until all are encoded. The room for a small part would block the
    /// next one.
    rooms: Vec<Room>,
}

impl BatchInProgress {
    pub(crate) fn new(request: u64, operations: usize) -> Arc<Self> {
        let outcomes = (0..operations).map(|_| None).collect();
        Arc::new(BatchInProgress {
            request,
            state: Mutex::new(Places { outcomes, open: operations, bytes: 0, rooms: Vec::new() }),
        })
    }

    /// Stores one outcome, with its room. If it is the last, appends all answers to `out` and
    /// returns the request; `room` then stays for the whole answer.
    pub(crate) fn fill(
        &self,
        index: usize,
        outcome: Result<Given>,
        room: &mut Option<Room>,
        out: &mut Vec<u8>,
        frame_bytes_max: usize,
    ) -> Option<u64> {
        let mut places = self.state.lock();
        let mut outcome = outcome;
        if room.as_ref().is_none_or(Room::is_small) {
            let bytes = places.bytes + outcome.as_ref().map_or(0, Given::bytes);
            if bytes > BATCH_ANSWER_BYTES_MAX {
                outcome =
                    Err(Error::limit("the bytes of the answers of one batch", bytes, BATCH_ANSWER_BYTES_MAX));
            } else {
                places.bytes = bytes;
            }
        }
        let place = places.outcomes.get_mut(index).filter(|place| place.is_none())?;
        *place = Some(outcome);
        places.open -= 1;
        if places.open > 0 {
            places.rooms.extend(room.take().filter(|room| !room.is_small()));
            return None;
        }
        let outcomes = std::mem::take(&mut places.outcomes);
        let rooms = std::mem::take(&mut places.rooms);
        drop(places);
        let mut writer = AnswerBatchWriter::new(out, frame_bytes_max, self.request);
        for outcome in outcomes.into_iter().flatten() {
            writer.push(&outcome);
        }
        writer.finish();
        drop(rooms);
        Some(self.request)
    }

    /// Returns the batch's request.
    pub(crate) fn request(&self) -> u64 {
        self.request
    }
}
