//! Requests that run in tasks of their own: single operations, and streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use exacat_activity::{RequestState, on};
use exacat_model::limits::{PAGE_ITEMS_MAX, PAGE_MEMORY_MAX};
use exacat_model::operation::Existing;
use exacat_model::{Answer, Error, ErrorKind, Measured, Operation, Result};
use exacat_wire::native::limits::CREDIT_MAX;
use exacat_wire::native::{encode_end, encode_part};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::reply::{Given, Reply, Waiting};
use crate::admission::{Admission, Class, Held, Room, Step, UNREAD, Unread, busy, items_of, limit_of};
use crate::service::{CANCELLED, OperationTask, Service, cancelled, step_id, too_late};

/// Long reads of one connection that run or whose answer is on its way.
const HEAVY_UNDER_WAY_MAX: usize = 8;
/// Bulk writes of one connection that run or whose answer is on its way.
const BULK_UNDER_WAY_MAX: usize = 64;
/// Parts of all streams of one connection on their way.
pub(super) const PARTS_UNDER_WAY_MAX: usize = 8;
/// Most items of one part of a stream, which yields its slot after each.
const PART_ITEMS_MAX: u32 = 1000;
/// Items of a stream's first part, so that it arrives at once; each further one has up to
/// [`PART_GROWTH`] times as many.
const PART_ITEMS_FIRST: u32 = 50;
const PART_GROWTH: u32 = 4;

/// Items of a page that is requested by itself.
const PAGE_ITEMS: u32 = PAGE_ITEMS_MAX as u32;
/// Room in bytes for each item of a page, before it is made; then its real size counts.
const ITEM_BYTES: usize = 512;
/// Room in bytes for an item of a bulk write.
const DONE_BYTES: usize = 64;
/// Room in bytes for an answer without items.
const OTHER_BYTES: usize = 512 << 10;

fn page_bytes(operation: &Operation) -> usize {
    limit_of(operation).map_or(OTHER_BYTES, |limit| {
        let items = if limit == 0 { PAGE_ITEMS } else { limit.min(PAGE_ITEMS) };
        items as usize * ITEM_BYTES
    })
}

fn bulk_bytes(operation: &Operation) -> usize {
    operation.items().saturating_mul(DONE_BYTES).min(OTHER_BYTES)
}

/// Bounds the long answers that tasks made and the connection has not taken over yet.
#[derive(Clone)]
pub(super) struct Rooms {
    heavy: Arc<Semaphore>,
    bulk: Arc<Semaphore>,
    parts: Arc<Semaphore>,
    /// Room among the bytes that all connections share.
    unread: Unread,
}

impl Rooms {
    pub(crate) fn new(admission: &Admission) -> Self {
        Rooms {
            heavy: Arc::new(Semaphore::new(HEAVY_UNDER_WAY_MAX)),
            bulk: Arc::new(Semaphore::new(BULK_UNDER_WAY_MAX)),
            parts: Arc::new(Semaphore::new(PARTS_UNDER_WAY_MAX)),
            unread: Unread::new(admission),
        }
    }
}

/// An operation for a task.
pub(super) struct Job {
    pub waiting: Waiting,
    pub work: OperationTask,
    pub rooms: Rooms,
    /// Counts it as in flight, of its user and of all.
    pub held: (Held, Held),
    /// Tells the server that work is still running.
    pub alive: mpsc::Sender<()>,
}

/// Waits for a place, and for room for an answer of about so many bytes. Returns none if it was
/// cancelled or the deadline passed first.
async fn enter(
    place: &Arc<Semaphore>,
    unread: &Unread,
    bytes: usize,
    work: &OperationTask,
) -> Option<(OwnedSemaphorePermit, Room)> {
    let entered = async {
        let permit = Arc::clone(place).acquire_owned().await.ok()?;
        Some((permit, unread.room(bytes).await))
    };
    tokio::select! {
        biased;
        entered = entered => entered,
        () = work.cancel.cancelled() => None,
        () = tokio::time::sleep_until(work.deadline.into()) => None,
    }
}

/// Runs one operation.
pub(super) async fn run(mut job: Job) {
    let tracking = job.waiting.begin(job.work.facts());
    tracking.track(run_now(job)).await;
}

async fn run_now(job: Job) {
    let Job { mut waiting, work, rooms, held: _held, alive: _alive } = job;
    let service = Arc::clone(waiting.service());
    let place = match Class::of(&work.operation, &service.limits) {
        Class::Heavy | Class::Audit => Some((&rooms.heavy, page_bytes(&work.operation))),
        Class::Bulk => Some((&rooms.bulk, bulk_bytes(&work.operation))),
        Class::Lookup { .. } | Class::Write | Class::ElementWrite | Class::Wait => None,
    };
    if let Some((place, bytes)) = place {
        match on(RequestState::ClientWrite, enter(place, &rooms.unread, bytes, &work)).await {
            Some((permit, room)) if !work.operation.writes() => {
                let outcome = read(&service, work, &rooms.unread, room).await;
                let answer = outcome.map(|(answer, room)| {
                    waiting.keep(permit, room);
                    Given::Answer(answer)
                });
                return waiting.answer(answer);
            }
            Some((permit, room)) => waiting.keep(permit, room),
            None => {
                let error = if work.cancel.is_cancelled() { cancelled() } else { too_late() };
                return waiting.answer(Err(error));
            }
        }
    }
    // A write that outlives its deadline is answered then, and counted until it is over.
    service.run(work, |outcome| waiting.answer(outcome.map(Given::Answer))).await;
}

/// Makes the answer of a long read. A page that is too large for the room left is made again, with
/// fewer items.
async fn read(
    service: &Arc<Service>,
    work: OperationTask,
    unread: &Unread,
    mut room: Room,
) -> Result<(Answer, Room)> {
    let OperationTask {
        requester,
        id,
        operation,
        consistency,
        past,
        deadline,
        cancel,
        step,
        uploads_checked,
    } = work;
    let (mut next, mut items) = (Some(operation), PAGE_ITEMS);
    while let Some(operation) = next.take() {
        next = limit_of(&operation).map(|_| operation.clone());
        let (send, receive) = oneshot::channel();
        let page = OperationTask {
            requester: requester.clone(),
            id,
            operation: unread.paged(operation, items, room.is_small()),
            consistency,
            past,
            deadline,
            cancel: Arc::clone(&cancel),
            step,
            uploads_checked,
        };
        service.run(page, |outcome| drop(send.send(outcome))).await;
        let answer = receive.await.unwrap_or_else(|_| Err(cancelled()))?;
        let Some(fewer) = unread.fewer(&mut room, &answer) else { return Ok((answer, room)) };
        drop((answer, room));
        items = fewer;
        let small_room = async {
            tokio::select! {
                room = unread.small_room() => Ok(room),
                () = cancel.cancelled() => Err(cancelled()),
                () = tokio::time::sleep_until(deadline.into()) => Err(too_late()),
            }
        };
        room = on(RequestState::ClientWrite, small_room).await?;
    }
    Err(busy(UNREAD))
}

/// Most writes that run together.
pub(super) const TOGETHER_MAX: usize = 256;

/// True if the operation can run together with others of its kind.
pub(super) fn goes_together(operation: &Operation) -> bool {
    matches!(operation, Operation::Register { files, .. } if files.len() == 1)
}

/// Runs the gathered writes: those of one kind together.
pub(super) fn start_together(jobs: Vec<Job>) {
    let mut jobs = jobs.into_iter().peekable();
    while let Some(first) = jobs.next() {
        let Some(kind) = kind(&first.work) else {
            tokio::spawn(run(first));
            continue;
        };
        let mut alike = vec![first];
        while let Some(job) = jobs.next_if(|job| self::kind(&job.work) == Some(kind)) {
            alike.push(job);
        }
        match alike.len() {
            1 => drop(alike.pop().map(|job| tokio::spawn(run(job)))),
            _ => drop(tokio::spawn(register_each(alike, kind))),
        }
    }
}

/// Common properties of registrations that run together.
type Kind = ((bool, Existing), Instant);

fn kind(work: &OperationTask) -> Option<Kind> {
    match &work.operation {
        Operation::Register { parents, existing, .. } => Some(((*parents, *existing), work.deadline)),
        _ => None,
    }
}

async fn register_each(mut jobs: Vec<Job>, kind: Kind) {
    let Some(tracking) = jobs.first_mut().map(|job| job.waiting.begin(job.work.facts())) else { return };
    jobs.iter_mut().for_each(|job| job.waiting.is_of(&tracking));
    tracking.track(register_each_now(jobs, kind)).await;
}

async fn register_each_now(jobs: Vec<Job>, (how, deadline): Kind) {
    let Some(first) = jobs.first() else { return };
    let (service, requester) = (Arc::clone(first.waiting.service()), first.work.requester.clone());
    let together = jobs.len() as u64;
    service.instruments.counts.coalesced.fetch_add(together, Ordering::Relaxed);
    let (mut files, mut waiting, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for Job { waiting: who, work, held: its, alive, .. } in jobs {
        let Operation::Register { files: mut one, .. } = work.operation else { continue };
        let Some(file) = one.pop() else { continue };
        files.push((work.id, file));
        waiting.push(who);
        held.push((its, alive));
    }
    let deliver = |outcomes: Vec<Result<Answer>>| {
        for (waiting, outcome) in waiting.into_iter().zip(outcomes) {
            waiting.answer(outcome.map(Given::Answer));
        }
    };
    service.register_each(&requester, files, how, deadline, deliver).await;
    // Writes that outlive their deadline are answered then, and counted until they are over.
    drop(held);
}

/// Adds to a stream's credit, up to the protocol's bound.
pub(super) fn grant(credit: &Semaphore, parts: u32) {
    let room = (CREDIT_MAX as usize).saturating_sub(credit.available_permits());
    credit.add_permits((parts as usize).min(room));
}

/// Streams the pages of an operation, as the client grants credit. A `deadline` applies to the
/// whole; the server's own applies to each page in any case.
pub(super) async fn stream(
    job: Job,
    request: u64,
    credit: Arc<Semaphore>,
    deadline: Option<Instant>,
    streams: (Held, Held),
) {
    let Job { mut waiting, work, rooms, held, alive } = job;
    let tracking = waiting.begin(work.facts());
    let answered = async {
        match pages(&waiting, work, &rooms, request, &credit, deadline).await {
            Ok(parts) => {
                let mut bytes = Vec::new();
                encode_end(&mut bytes, request, parts);
                waiting.answer_with(bytes);
            }
            Err(error) => waiting.answer(Err(error)),
        }
    };
    tracking.track(answered).await;
    drop(tracking);
    drop((held, streams, alive));
}

async fn pages(
    waiting: &Waiting,
    work: OperationTask,
    rooms: &Rooms,
    request: u64,
    credit: &Semaphore,
    deadline: Option<Instant>,
) -> Result<u64> {
    let service = waiting.service();
    let too_late =
        || Error::new(ErrorKind::Unavailable, "the deadline passed before the stream was at its end");
    let stopped =
        || Error::new(ErrorKind::Unavailable, format!("{CANCELLED} before the stream was at its end"));
    let OperationTask { mut requester, id, operation, consistency, past, cancel, mut step, .. } = work;
    let mut checked = service.checking();
    // As requested: the parts do not exceed the requested limit.
    let mut asked = operation;
    let (mut items, mut items_max) = (PART_ITEMS_FIRST, PART_ITEMS_MAX);
    let (mut item_bytes, mut shrunk) = (ITEM_BYTES, false);
    let mut parts = 0u64;
    loop {
        let granted = async {
            tokio::select! {
                granted = credit.acquire() => Ok(granted),
                () = cancel.cancelled() => Err(stopped()),
                () = until(deadline) => Err(too_late()),
            }
        };
        match on(RequestState::ClientWrite, granted).await? {
            Ok(granted) => granted.forget(),
            // No more credit can come. Parts that it was granted for are still sent.
            Err(_) if credit.forget_permits(1) == 1 => {}
            Err(_) => return Err(stopped()),
        }
        let entered = async {
            let place = Arc::clone(&rooms.parts).acquire_owned().await.ok();
            let bytes = (items as usize * item_bytes).min(PAGE_MEMORY_MAX);
            let room = if shrunk { rooms.unread.small_room().await } else { rooms.unread.room(bytes).await };
            (place, room)
        };
        let entered = async {
            tokio::select! {
                entered = entered => Ok(entered),
                () = cancel.cancelled() => Err(stopped()),
                () = until(deadline) => Err(too_late()),
            }
        };
        let (room, mut unread) = on(RequestState::ClientWrite, entered).await?;
        if service.must_check_again(&checked) {
            let checking = service.checking();
            requester.caller = Arc::new(service.catalogue.revalidate(&requester.caller).await?);
            checked = checking;
        }
        let page_deadline = Instant::now() + service.limits.deadline_max;
        let page_deadline = deadline.map_or(page_deadline, |deadline| deadline.min(page_deadline));
        if unread.is_small() {
            items = rooms.unread.small_items(items, item_bytes);
        }
        let (send, receive) = oneshot::channel();
        let page = OperationTask {
            requester: requester.clone(),
            id: step_id(id, parts),
            operation: rooms.unread.paged(asked.clone(), items, unread.is_small()),
            consistency,
            past,
            deadline: page_deadline,
            cancel: Arc::clone(&cancel),
            step,
            uploads_checked: false,
        };
        service.run(page, |outcome| drop(send.send(outcome))).await;
        let answer = receive.await.unwrap_or_else(|_| Err(stopped()))?;
        if items_of(&answer) > 0 {
            item_bytes = ITEM_BYTES.max(answer.bytes() / items_of(&answer) as usize);
        }
        // A write is done, and cannot be repeated with another size.
        let fewer = rooms.unread.fewer(&mut unread, &answer).filter(|_| !asked.writes());
        shrunk = fewer.is_some();
        if let Some(fewer) = fewer {
            items = fewer;
            credit.add_permits(1);
            continue;
        }
        let mut bytes = Vec::new();
        if let Err(error) = encode_part(&mut bytes, waiting.frame_bytes_max(), request, &answer) {
            // Fewer items may fit.
            let fewer = items_of(&answer) / 2;
            if fewer == 0 || asked.writes() {
                return Err(error);
            }
            (items, items_max) = (fewer, fewer);
            credit.add_permits(1);
            continue;
        }
        parts += 1;
        unread.turned_out(bytes.capacity());
        waiting.put(Reply { bytes, ended: None, _room: room, _unread: Some(unread) });
        let Some(next) = answer.next().cloned() else {
            return Ok(parts);
        };
        asked = asked.resumed(next).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "internal error: an answer has pages, and its operation has none")
        })?;
        step = Step::Next;
        items = (items * PART_GROWTH).min(items_max);
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::OperationId;

    #[test]
    fn every_page_of_a_write_has_its_own_id_and_keeps_it() {
        let id = OperationId([7; 16]);
        let ids: std::collections::BTreeSet<OperationId> = (0..1000).map(|page| step_id(id, page)).collect();
        assert_eq!(ids.len(), 1000);
        assert_eq!(step_id(id, 0), id);
        assert_eq!(step_id(id, 5), step_id(id, 5));
    }

    #[test]
    fn credit_is_bounded() {
        let credit = Semaphore::new(0);
        grant(&credit, CREDIT_MAX);
        grant(&credit, CREDIT_MAX);
        assert_eq!(credit.available_permits(), CREDIT_MAX as usize);
    }
}
