//! Requests that are worked on by tasks of their own: single operations, and streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use exacat_model::operation::Existing;
use exacat_model::{Answer, Error, ErrorKind, Operation, Result};
use exacat_wire::native::limits::CREDIT_MAX;
use exacat_wire::native::{encode_end, encode_part};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::reply::{Given, Reply, Waiting};
use crate::admission::{Class, Held, Step};
use crate::service::{Work, step_id};

/// Long reads of one connection that run or have their answer on its way.
const HEAVY_UNDER_WAY_MAX: usize = 8;
/// Bulk writes of one connection that run or have their answer on its way.
const BULK_UNDER_WAY_MAX: usize = 64;
/// Parts of all streams of one connection on their way.
pub(super) const PARTS_UNDER_WAY_MAX: usize = 8;
/// Items of one part of a stream, at most: a stream yields its slot after each.
const PART_ITEMS_MAX: u32 = 1000;
/// Items of a stream's first part, so that it comes at once; each further one has up to [`PART_GROWTH`] times as many.
const PART_ITEMS_FIRST: u32 = 50;
const PART_GROWTH: u32 = 4;

/// Bounds what is made for a connection and not yet taken over by it: answers that may be long.
#[derive(Clone)]
pub(super) struct Rooms {
    heavy: Arc<Semaphore>,
    bulk: Arc<Semaphore>,
    parts: Arc<Semaphore>,
}

impl Rooms {
    pub fn new() -> Self {
        Rooms {
            heavy: Arc::new(Semaphore::new(HEAVY_UNDER_WAY_MAX)),
            bulk: Arc::new(Semaphore::new(BULK_UNDER_WAY_MAX)),
            parts: Arc::new(Semaphore::new(PARTS_UNDER_WAY_MAX)),
        }
    }
}

/// An operation for a task.
pub(super) struct Job {
    pub waiting: Waiting,
    pub work: Work,
    pub rooms: Rooms,
    /// Counts it as in flight, of its user and of all.
    pub held: (Held, Held),
    /// Tells the server that something is still going on.
    pub alive: mpsc::Sender<()>,
}

/// Waits for a place; none when it was cancelled or the deadline passed before there was one.
async fn enter(room: &Arc<Semaphore>, work: &Work) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
        return Some(permit);
    }
    tokio::select! {
        permit = Arc::clone(room).acquire_owned() => permit.ok(),
        () = work.cancel.cancelled() => None,
        () = tokio::time::sleep_until(work.deadline.into()) => None,
    }
}

/// Runs one operation.
pub(super) async fn run(job: Job) {
    let Job { mut waiting, work, rooms, held, alive } = job;
    let service = Arc::clone(waiting.service());
    let room = match Class::of(&work.operation, &service.limits) {
        Class::Heavy | Class::Audit => Some(&rooms.heavy),
        Class::Bulk => Some(&rooms.bulk),
        Class::Lookup { .. } | Class::Write | Class::Wait => None,
    };
    if let Some(room) = room {
        match enter(room, &work).await {
            Some(permit) => waiting.keep(permit),
            None => {
                return waiting.answer(Err(Error::new(
                    ErrorKind::Unavailable,
                    "cancelled, or the deadline passed, before it was begun: nothing was done",
                )));
            }
        }
    }
    // A write that outlives its deadline is answered then, and counted until it is over.
    service.run(work, |outcome| waiting.answer(outcome.map(Given::Answer))).await;
    drop((held, alive));
}

/// Writes that are carried out together, at most.
pub(super) const TOGETHER_MAX: usize = 256;

/// Is it one of those that are carried out together, if they come together?
pub(super) fn goes_together(operation: &Operation) -> bool {
    matches!(operation, Operation::Register { files, .. } if files.len() == 1)
}

/// Carries out writes that came together: those of one kind at once.
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

/// What registrations have in common that are carried out together.
type Kind = ((bool, Existing), Instant);

fn kind(work: &Work) -> Option<Kind> {
    match &work.operation {
        Operation::Register { parents, existing, .. } => Some(((*parents, *existing), work.deadline)),
        _ => None,
    }
}

async fn register_each(jobs: Vec<Job>, (how, deadline): Kind) {
    let Some(first) = jobs.first() else { return };
    let (service, asker) = (Arc::clone(first.waiting.service()), first.work.asker.clone());
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
    service.register_each(&asker, files, how, deadline, deliver).await;
    // Writes that outlive their deadline are answered then, and counted until they are over.
    drop(held);
}

/// Adds to a stream's credit; what goes beyond the protocol's bound is not granted.
pub(super) fn grant(credit: &Semaphore, parts: u32) {
    let room = (CREDIT_MAX as usize).saturating_sub(credit.available_permits());
    credit.add_permits((parts as usize).min(room));
}

/// Streams the pages of an operation, as the client grants credit. With a `deadline` the whole must be over by
/// then; each page has the server's own in any case.
pub(super) async fn stream(
    job: Job,
    request: u64,
    credit: Arc<Semaphore>,
    deadline: Option<Instant>,
    streams: (Held, Held),
) {
    let Job { waiting, work, rooms, held, alive } = job;
    match pages(&waiting, work, &rooms, request, &credit, deadline).await {
        Ok(parts) => {
            let mut bytes = Vec::new();
            encode_end(&mut bytes, request, parts);
            waiting.answer_with(bytes);
        }
        Err(error) => waiting.answer(Err(error)),
    }
    drop((held, streams, alive));
}

async fn pages(
    waiting: &Waiting,
    work: Work,
    rooms: &Rooms,
    request: u64,
    credit: &Semaphore,
    deadline: Option<Instant>,
) -> Result<u64> {
    let service = waiting.service();
    let too_late =
        || Error::new(ErrorKind::Unavailable, "the deadline passed before the stream was at its end");
    let stopped = || Error::new(ErrorKind::Unavailable, "cancelled before the stream was at its end");
    let Work { mut asker, id, operation, consistency, cancel, mut step, .. } = work;
    let mut checked = Instant::now();
    // As it was asked: its parts are no larger than that either.
    let mut asked = operation;
    let (mut items, mut items_max) = (PART_ITEMS_FIRST, PART_ITEMS_MAX);
    let mut parts = 0u64;
    loop {
        let granted = tokio::select! {
            granted = credit.acquire() => granted,
            () = cancel.cancelled() => return Err(stopped()),
            () = until(deadline) => return Err(too_late()),
        };
        if let Ok(granted) = granted {
            granted.forget();
        }
        let room = tokio::select! {
            room = Arc::clone(&rooms.parts).acquire_owned() => room.ok(),
            () = cancel.cancelled() => return Err(stopped()),
            () = until(deadline) => return Err(too_late()),
        };
        if checked.elapsed() >= service.limits.revalidate {
            asker.caller = Arc::new(service.catalogue.revalidate(&asker.caller).await?);
            checked = Instant::now();
        }
        let page_deadline = Instant::now() + service.limits.deadline_max;
        let page_deadline = deadline.map_or(page_deadline, |deadline| deadline.min(page_deadline));
        let (send, receive) = oneshot::channel();
        let page = Work {
            asker: asker.clone(),
            id: step_id(id, parts),
            operation: with_limit(asked.clone(), items),
            consistency,
            deadline: page_deadline,
            cancel: Arc::clone(&cancel),
            step,
        };
        service.run(page, |outcome| drop(send.send(outcome))).await;
        let answer = receive.await.unwrap_or_else(|_| Err(stopped()))?;
        let mut bytes = Vec::new();
        if let Err(error) = encode_part(&mut bytes, waiting.frame_bytes_max(), request, &answer) {
            // Fewer items may fit; a write has been done and cannot be asked again with another size.
            let fewer = page_items(&answer) / 2;
            if fewer == 0 || asked.writes() {
                return Err(error);
            }
            (items, items_max) = (fewer, fewer);
            credit.add_permits(1);
            continue;
        }
        parts += 1;
        waiting.put(Reply { bytes, ended: None, _room: room });
        let Some(next) = answer.next().cloned() else {
            return Ok(parts);
        };
        asked = asked.resumed(next).ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "a defect of exacat: the answer goes on where the operation cannot",
            )
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

/// The operation, with pages of at most `most` items.
fn with_limit(mut operation: Operation, most: u32) -> Operation {
    match &mut operation {
        Operation::List { limit, .. }
        | Operation::Find { limit, .. }
        | Operation::TrashList { limit, .. }
        | Operation::CollectionMembers { limit, .. }
        | Operation::ArchiveMembers { limit, .. }
        | Operation::UploadList { limit, .. }
        | Operation::SeFiles { limit, .. }
        | Operation::SeDeletions { limit, .. }
        | Operation::Log { limit, .. }
        | Operation::Changes { limit, .. } => {
            // 0 stands for the largest.
            *limit = if *limit == 0 { most } else { most.min(*limit) };
        }
        _ => {}
    }
    operation
}

/// How many items a page has.
fn page_items(answer: &Answer) -> u32 {
    let items = match answer {
        Answer::Entries { items, .. } => items.len(),
        Answer::Trash { items, .. } => items.len(),
        Answer::Members { items, .. } => items.len(),
        Answer::Uploads { items, .. } => items.len(),
        Answer::Deletions { items, .. } => items.len(),
        Answer::Changes { items, .. } => items.len(),
        _ => 0,
    };
    u32::try_from(items).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::{Cursor, Lfn, OperationId};

    #[test]
    fn every_page_of_a_write_has_its_own_id_and_keeps_it() {
        let id = OperationId([7; 16]);
        let ids: std::collections::BTreeSet<OperationId> = (0..1000).map(|page| step_id(id, page)).collect();
        assert_eq!(ids.len(), 1000);
        assert_eq!(step_id(id, 0), id);
        assert_eq!(step_id(id, 5), step_id(id, 5));
    }

    #[test]
    fn parts_are_no_larger_than_asked_for_nor_than_the_bound() {
        for (asked, got) in [(0, PART_ITEMS_MAX), (10, 10), (PART_ITEMS_MAX + 1, PART_ITEMS_MAX)] {
            let list = Operation::List { lfn: Lfn::root(), cursor: Cursor::default(), limit: asked };
            match with_limit(list, PART_ITEMS_MAX) {
                Operation::List { limit, .. } => assert_eq!(limit, got),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn credit_is_bounded() {
        let credit = Semaphore::new(0);
        grant(&credit, CREDIT_MAX);
        grant(&credit, CREDIT_MAX);
        assert_eq!(credit.available_permits(), CREDIT_MAX as usize);
    }
}
