//! Open requests of one connection: a slab of slots, each with its caller and the state of its
//! answer.
//!
//! The number of a request on the wire combines the index of its slot with the slot's generation. A
//! reused slot has the next generation. So a connection never uses a number twice, and a late or
//! invented answer never reaches another caller.

use std::task::{Poll, Waker};

use exacat_model::{Answer, Error};
use exacat_wire::native::Frame;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Bits of a request's number for the slot's index, plus one; the others are the generation.
const INDEX_BITS: u32 = 24;
/// Maximum slots of one connection; answers that callers have not taken yet occupy slots too.
pub(crate) const SLOTS_MAX: usize = (1 << INDEX_BITS) - 1;
/// Last generation: such a slot is not reused.
const GENERATION_MAX: u64 = (1 << (u64::BITS - INDEX_BITS)) - 1;
/// Position of a request that is in no frame yet.
const NOWHERE: u64 = u64::MAX;

/// Result of one attempt.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// The server answered.
    Answered(T),
    /// No answer will arrive.
    Lost {
        /// True if the server may have received the request.
        sent: bool,
        /// The reason.
        error: Error,
    },
}

pub(crate) type Answered = Result<Answer, Error>;

/// Answer to a request: one, or one per operation of a batch.
#[derive(Debug)]
pub(crate) enum Answers {
    One(Answered),
    Many(Vec<Answered>),
}

/// Next item of a stream.
#[derive(Debug)]
pub(crate) enum StreamItem {
    Part(Answer),
    End,
    /// The server ended it with an error.
    Failed(Error),
    /// The connection ended.
    Lost(Error),
}

/// A breach of the protocol by the server; the connection must end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub String);

/// Wake-ups and permits that follow from a change of slots; applied after the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub wakers: Vec<Waker>,
    /// Number of requests that ended, and so of permits to return.
    pub ended: usize,
}

/// Caller of a slot.
#[derive(Debug)]
enum Caller {
    Waiting(Waker),
    /// The outcome is present and not taken yet.
    Told(Outcome<Answers>),
    Gone,
}

/// Progress of a request on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A look-up that is in no frame yet.
    Queued,
    /// In a batch with look-ups of other callers; the server knows only the number of the batch.
    Grouped,
    /// In a frame of its own.
    Framed,
    /// Ended by the server, or never to be sent.
    Ended,
}

#[derive(Debug)]
enum Wanted {
    One,
    Many { expected: usize, answers: Vec<Answered> },
}

#[derive(Debug)]
enum Content {
    Free,
    Call {
        caller: Caller,
        stage: Stage,
        wanted: Wanted,
    },
    /// Look-ups of several callers in one batch, in order, without the answered ones.
    Group {
        members: std::vec::IntoIter<u32>,
        answered: u32,
    },
    /// A stream; its channel has room for one item more than the largest credit.
    Stream {
        to: mpsc::Sender<StreamItem>,
        parts: u64,
        credit: u32,
    },
}

#[derive(Debug)]
struct RequestSlot {
    generation: u64,
    content: Content,
    /// Time at which the caller stops waiting.
    deadline: Option<Instant>,
    /// Time by which the server should long have ended it: some time after its deadline, or after a
    /// cancellation.
    overdue: Option<Instant>,
    /// Position of its frame in the bytes of the connection.
    position: u64,
}

/// A request to open.
#[derive(Debug)]
pub(crate) enum Opening {
    /// A look-up that may share a frame with others.
    Lookup(Waker),
    /// One operation in a frame of its own.
    Single(Waker),
    /// A batch of so many operations.
    Batch(Waker, usize),
    /// A stream with its first credit.
    Stream(mpsc::Sender<StreamItem>, u32),
}

/// The slots of a connection. See the module.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<RequestSlot>,
    free: Vec<u32>,
    /// Number of requests that have not ended.
    open: usize,
}

impl Slots {
    /// Says whether all requests have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.open == 0
    }

    /// Returns the number of slots in use: open requests, and answers that are not taken yet.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn number(&self, index: u32) -> u64 {
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.generation);
        generation << INDEX_BITS | u64::from(index + 1)
    }

    /// Finds the slot of a number, if the generation matches.
    fn find(&mut self, number: u64) -> Option<(u32, &mut RequestSlot)> {
        let index = ((number & SLOTS_MAX as u64) as u32).checked_sub(1)?;
        let slot = self.slots.get_mut(index as usize)?;
        (slot.generation == number >> INDEX_BITS).then_some((index, slot))
    }

    fn fill(
        &mut self,
        content: Content,
        deadline: Option<Instant>,
        overdue: Option<Instant>,
        position: u64,
    ) -> Option<u64> {
        let index = match self.free.pop() {
            Some(index) => {
                let slot = self.slots.get_mut(index as usize)?;
                *slot = RequestSlot { generation: slot.generation, content, deadline, overdue, position };
                index
            }
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(RequestSlot { generation: 0, content, deadline, overdue, position });
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        Some(self.number(index))
    }

    fn free(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.content = Content::Free;
            if slot.generation < GENERATION_MAX {
                slot.generation += 1;
                self.free.push(index);
            }
        }
    }

    /// Opens a request; `position` is that of its frame, if it has one already. None if all slots
    /// are in use.
    pub(crate) fn open(
        &mut self,
        opening: Opening,
        deadline: Option<Instant>,
        overdue: Option<Instant>,
        position: u64,
    ) -> Option<u64> {
        let call = |waker, stage, wanted| Content::Call { caller: Caller::Waiting(waker), stage, wanted };
        let (content, position) = match opening {
            Opening::Lookup(waker) => (call(waker, Stage::Queued, Wanted::One), NOWHERE),
            Opening::Single(waker) => (call(waker, Stage::Framed, Wanted::One), position),
            Opening::Batch(waker, expected) => {
                (call(waker, Stage::Framed, Wanted::Many { expected, answers: Vec::new() }), position)
            }
            Opening::Stream(to, credit) => (Content::Stream { to, parts: 0, credit }, position),
        };
        let number = self.fill(content, deadline, overdue, position)?;
        self.open += 1;
        Some(number)
    }

    /// Returns the deadline of a look-up that is in no frame yet; none if it has ended or was
    /// abandoned.
    pub(crate) fn queued(&mut self, number: u64) -> Option<Instant> {
        match self.find(number)?.1 {
            RequestSlot { content: Content::Call { stage: Stage::Queued, .. }, deadline, .. } => *deadline,
            _ => None,
        }
    }

    /// Records that a look-up is now in a frame of its own.
    pub(crate) fn framed(&mut self, number: u64, overdue: Instant, at: u64) {
        if let Some((_, slot)) = self.find(number)
            && let Content::Call { stage, .. } = &mut slot.content
        {
            *stage = Stage::Framed;
            slot.overdue = Some(overdue);
            slot.position = at;
        }
    }

    /// Opens a batch for look-ups of several callers, still empty, and returns its number.
    pub(crate) fn open_group(&mut self) -> Option<u64> {
        let content = Content::Group { members: Vec::new().into_iter(), answered: 0 };
        self.fill(content, None, None, NOWHERE)
    }

    /// Records that look-ups are now in one batch; a batch without any is not sent.
    pub(crate) fn grouped(
        &mut self,
        group: u64,
        numbers: impl Iterator<Item = u64>,
        overdue: Instant,
        at: u64,
    ) {
        let mut indices = Vec::with_capacity(numbers.size_hint().0);
        for number in numbers {
            if let Some((index, slot)) = self.find(number)
                && let Content::Call { stage, .. } = &mut slot.content
            {
                *stage = Stage::Grouped;
                slot.position = at;
                indices.push(index);
            }
        }
        let Some((index, slot)) = self.find(group) else { return };
        if indices.is_empty() {
            return self.free(index);
        }
        slot.content = Content::Group { members: indices.into_iter(), answered: 0 };
        slot.overdue = Some(overdue);
        slot.position = at;
    }

    /// Ends a look-up that cannot be sent.
    pub(crate) fn refuse(&mut self, number: u64, error: Error, effects: &mut Effects) {
        if let Some((index, _)) = self.find(number) {
            self.end(index, Outcome::Answered(Answers::One(Err(error))), effects);
        }
    }

    /// Delivers the outcome to the caller of a request. The slot is free when the caller has taken
    /// it, or is gone.
    fn end(&mut self, index: u32, outcome: Outcome<Answers>, effects: &mut Effects) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        let Content::Call { caller, stage, .. } = &mut slot.content else { return };
        if *stage != Stage::Ended {
            *stage = Stage::Ended;
            self.open -= 1;
            effects.ended += 1;
        }
        match std::mem::replace(caller, Caller::Told(outcome)) {
            Caller::Waiting(waker) => effects.wakers.push(waker),
            Caller::Told(_) => {}
            Caller::Gone => self.free(index),
        }
    }

    /// Returns the outcome of a request, once. Until then, it keeps `waker` to wake the caller.
    pub(crate) fn poll(&mut self, number: u64, waker: &Waker) -> Poll<Option<Outcome<Answers>>> {
        let Some((index, slot)) = self.find(number) else { return Poll::Ready(None) };
        let Content::Call { caller, stage, .. } = &mut slot.content else { return Poll::Ready(None) };
        match caller {
            Caller::Waiting(waiting) => {
                waiting.clone_from(waker);
                Poll::Pending
            }
            caller => {
                let told = std::mem::replace(caller, Caller::Gone);
                if *stage == Stage::Ended {
                    self.free(index);
                }
                match told {
                    Caller::Told(outcome) => Poll::Ready(Some(outcome)),
                    _ => Poll::Ready(None),
                }
            }
        }
    }

    /// Abandons a request. True if the server must be told: it has until `overdue` to end it.
    pub(crate) fn abandon(&mut self, number: u64, overdue: Instant, effects: &mut Effects) -> bool {
        let Some((index, slot)) = self.find(number) else { return false };
        match &mut slot.content {
            Content::Call { caller, stage, .. } => {
                let was_waiting = matches!(caller, Caller::Waiting(_));
                *caller = Caller::Gone;
                match stage {
                    Stage::Framed if was_waiting => {
                        slot.overdue = Some(overdue);
                        true
                    }
                    Stage::Framed | Stage::Grouped => false,
                    Stage::Queued => {
                        self.open -= 1;
                        effects.ended += 1;
                        self.free(index);
                        false
                    }
                    Stage::Ended => {
                        self.free(index);
                        false
                    }
                }
            }
            Content::Stream { .. } => {
                slot.overdue = Some(overdue);
                true
            }
            Content::Free | Content::Group { .. } => false,
        }
    }

    /// Fails the calls whose deadline has passed. Returns the requests to cancel, and the next
    /// deadline.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        overdue: Instant,
        error: &Error,
        effects: &mut Effects,
    ) -> (Vec<u64>, Option<Instant>) {
        let (mut cancels, mut next) = (Vec::new(), None::<Instant>);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Content::Call { caller, stage, .. } = &mut slot.content else { continue };
            let (Caller::Waiting(_), Some(deadline)) = (&*caller, slot.deadline) else { continue };
            if deadline > now {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
                continue;
            }
            let told = Outcome::Lost { sent: slot.position != NOWHERE, error: error.clone() };
            if let Caller::Waiting(waker) = std::mem::replace(caller, Caller::Told(told)) {
                effects.wakers.push(waker);
            }
            match stage {
                Stage::Queued => {
                    *stage = Stage::Ended;
                    self.open -= 1;
                    effects.ended += 1;
                }
                Stage::Framed => {
                    slot.overdue = Some(overdue);
                    cancels.push(slot.generation << INDEX_BITS | (index as u64 + 1));
                }
                Stage::Grouped | Stage::Ended => {}
            }
        }
        (cancels, next)
    }

    /// Returns a request that the server forgot; without its end its permit would never return.
    pub(crate) fn forgotten(&self, now: Instant) -> Option<u64> {
        let is_open = |content: &Content| match content {
            Content::Call { stage, .. } => *stage == Stage::Framed,
            Content::Group { .. } | Content::Stream { .. } => true,
            Content::Free => false,
        };
        let forgotten =
            |slot: &RequestSlot| is_open(&slot.content) && slot.overdue.is_some_and(|overdue| overdue < now);
        self.slots.iter().position(forgotten).map(|index| self.number(index as u32))
    }

    /// Ends all requests. Those whose frames begin before `attempted` may have reached the server.
    pub(crate) fn fail(&mut self, attempted: u64, error: &Error, effects: &mut Effects) {
        for index in 0..self.slots.len() as u32 {
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            let sent = slot.position < attempted;
            match &slot.content {
                Content::Call { stage: Stage::Ended, .. } | Content::Free => {}
                Content::Call { .. } => {
                    self.end(index, Outcome::Lost { sent, error: error.clone() }, effects);
                }
                Content::Group { .. } => self.free(index),
                Content::Stream { to, .. } => {
                    let _ = to.try_send(StreamItem::Lost(error.clone()));
                    self.end_stream(index, effects);
                }
            }
        }
    }

    /// Ends the requests whose frames begin at `from` or later, or that are in none; they are never
    /// sent.
    pub(crate) fn retract(&mut self, from: u64, error: &Error, effects: &mut Effects) {
        for index in 0..self.slots.len() as u32 {
            let Some(slot) = self.slots.get(index as usize).filter(|slot| slot.position >= from) else {
                continue;
            };
            match &slot.content {
                Content::Call { stage: Stage::Queued | Stage::Framed, .. } => {
                    self.end(index, Outcome::Lost { sent: false, error: error.clone() }, effects);
                }
                Content::Stream { to, .. } => {
                    let _ = to.try_send(StreamItem::Lost(error.clone()));
                    self.end_stream(index, effects);
                }
                _ => {}
            }
        }
    }

    /// Moves the positions at `from` or later by `by` bytes.
    pub(crate) fn shift(&mut self, from: u64, by: u64) {
        for slot in self.slots.iter_mut().filter(|slot| (from..NOWHERE).contains(&slot.position)) {
            slot.position += by;
        }
    }

    fn end_stream(&mut self, index: u32, effects: &mut Effects) {
        self.open -= 1;
        effects.ended += 1;
        self.free(index);
    }

    /// Grants more parts; false if the stream has ended.
    pub(crate) fn grant(&mut self, number: u64, more: u32) -> bool {
        match self.find(number) {
            Some((_, RequestSlot { content: Content::Stream { credit, .. }, .. })) => {
                *credit += more;
                true
            }
            _ => false,
        }
    }

    /// Delivers a frame of the server to its request.
    pub(crate) fn deliver(
        &mut self,
        number: u64,
        frame: Frame,
        effects: &mut Effects,
    ) -> Result<(), Violation> {
        let not_waited_for = |frame: &Frame| {
            let what = frame.frame_type().name();
            Violation(format!("{what} frame for request {number}, which is not pending"))
        };
        let not_its = || Violation(format!("more answers than request {number} has operations"));
        let Some((index, slot)) = self.find(number) else { return Err(not_waited_for(&frame)) };
        match (&mut slot.content, frame) {
            (Content::Call { stage: Stage::Queued | Stage::Grouped | Stage::Ended, .. }, frame) => {
                return Err(not_waited_for(&frame));
            }
            (Content::Call { wanted: Wanted::One, .. }, Frame::Answer(answer)) => {
                self.end(index, Outcome::Answered(Answers::One(Ok(answer))), effects);
            }
            (Content::Call { wanted: Wanted::One, .. }, Frame::Error(error)) => {
                self.end(index, Outcome::Answered(Answers::One(Err(error))), effects);
            }
            (Content::Call { wanted: Wanted::Many { expected, answers }, .. }, Frame::AnswerBatch(batch)) => {
                if batch.first as usize != answers.len() || answers.len() + batch.answers.len() > *expected {
                    return Err(not_its());
                }
                if answers.is_empty() {
                    *answers = batch.answers;
                } else {
                    answers.extend(batch.answers);
                }
                if answers.len() == *expected {
                    let answers = Answers::Many(std::mem::take(answers));
                    self.end(index, Outcome::Answered(answers), effects);
                }
            }
            (Content::Call { wanted: Wanted::Many { expected, answers }, .. }, Frame::Error(error)) => {
                let mut answers = std::mem::take(answers);
                answers.resize(*expected, Err(error));
                self.end(index, Outcome::Answered(Answers::Many(answers)), effects);
            }
            (Content::Group { members, answered }, Frame::AnswerBatch(batch)) => {
                if batch.first != *answered || batch.answers.len() > members.len() {
                    return Err(not_its());
                }
                *answered += batch.answers.len() as u32;
                let mut members = std::mem::take(members);
                for (answer, member) in batch.answers.into_iter().zip(&mut members) {
                    self.end(member, Outcome::Answered(Answers::One(answer)), effects);
                }
                if members.len() == 0 {
                    self.free(index);
                } else if let Some((_, RequestSlot { content: Content::Group { members: rest, .. }, .. })) =
                    self.find(number)
                {
                    *rest = members;
                }
            }
            (Content::Group { members, .. }, Frame::Error(error)) => {
                for member in std::mem::take(members) {
                    self.end(member, Outcome::Answered(Answers::One(Err(error.clone()))), effects);
                }
                self.free(index);
            }
            (Content::Stream { to, parts, credit }, Frame::Part(part)) => {
                *credit = credit.checked_sub(1).ok_or_else(|| {
                    Violation(format!("more parts for request {number} than it has credit for"))
                })?;
                *parts += 1;
                // A cancelled stream has no reader, but parts may still be on their way.
                let _ = to.try_send(StreamItem::Part(part));
            }
            (Content::Stream { to, parts, .. }, Frame::End { parts: said }) => {
                if *parts != said {
                    return Err(Violation(format!(
                        "request {number} has {parts} parts, its last frame counts {said}"
                    )));
                }
                let _ = to.try_send(StreamItem::End);
                self.end_stream(index, effects);
            }
            (Content::Stream { to, .. }, Frame::Error(error)) => {
                let _ = to.try_send(StreamItem::Failed(error));
                self.end_stream(index, effects);
            }
            (_, frame) => {
                let what = frame.frame_type().name();
                return Err(Violation(format!(
                    "{what} frame for request {number}, which is of another type"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use exacat_model::{ErrorKind, Revision};
    use exacat_wire::native::AnswerBatch;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn answer(revision: u64) -> Frame {
        Frame::Answer(Answer::Done { revision: Revision(revision) })
    }

    fn batch(first: u32, revisions: &[u64]) -> Frame {
        let answers =
            revisions.iter().map(|revision| Ok(Answer::Done { revision: Revision(*revision) })).collect();
        Frame::AnswerBatch(AnswerBatch { first, answers })
    }

    fn open(slots: &mut Slots, position: u64) -> u64 {
        slots.open(Opening::Single(Waker::noop().clone()), None, None, position).unwrap()
    }

    /// Returns the revision that a caller receives.
    fn told(slots: &mut Slots, number: u64) -> Option<u64> {
        match slots.poll(number, Waker::noop()) {
            Poll::Ready(Some(Outcome::Answered(Answers::One(Ok(Answer::Done { revision }))))) => {
                Some(revision.0)
            }
            Poll::Pending => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answer_to_a_former_request_of_a_slot_reaches_nobody() {
        let (mut slots, mut effects) = (Slots::default(), Effects::default());
        let first = open(&mut slots, 0);
        slots.deliver(first, answer(1), &mut effects).unwrap();
        assert_eq!(told(&mut slots, first), Some(1));
        let mut numbers = std::collections::BTreeSet::from([first]);
        for revision in 2..100 {
            let next = open(&mut slots, 0);
            assert_eq!(slots.slots.len(), 1, "the slot is used again");
            assert!(numbers.insert(next), "the number is not");
            let refused = slots.deliver(first, answer(1), &mut effects).unwrap_err();
            assert!(refused.0.contains("not pending"), "{refused:?}");
            assert_eq!(told(&mut slots, next), None);
            slots.deliver(next, answer(revision), &mut effects).unwrap();
            assert_eq!(told(&mut slots, next), Some(revision));
            // A second answer is a breach of the protocol.
            assert!(slots.deliver(next, answer(revision), &mut effects).is_err());
        }
        assert_eq!(effects.ended, 99);
    }

    #[test]
    fn slot_of_the_last_generation_is_not_used_again() {
        let (mut slots, mut effects) = (Slots::default(), Effects::default());
        open(&mut slots, 0);
        slots.slots[0].generation = GENERATION_MAX;
        let last = slots.number(0);
        slots.deliver(last, answer(1), &mut effects).unwrap();
        assert_eq!(told(&mut slots, last), Some(1));
        let next = open(&mut slots, 0);
        assert_eq!((next, slots.slots.len()), (2, 2));
        assert!(slots.deliver(last, answer(1), &mut effects).is_err());
    }

    #[test]
    fn abandoned_requests_free_their_slots_when_the_server_ends_them() {
        let (mut slots, mut effects) = (Slots::default(), Effects::default());
        let overdue = Instant::now();
        for _ in 0..3 {
            let single = open(&mut slots, 0);
            let lookups: Vec<u64> = (0..3)
                .map(|_| slots.open(Opening::Lookup(Waker::noop().clone()), None, None, 0).unwrap())
                .collect();
            let group = slots.open_group().unwrap();
            slots.grouped(group, lookups[..2].iter().copied(), overdue, 0);
            assert!(slots.abandon(single, overdue, &mut effects), "the server is told");
            assert!(!slots.abandon(lookups[0], overdue, &mut effects), "others wait for that frame");
            assert_eq!(effects.ended, 0, "until then they count as in flight");
            assert!(!slots.abandon(lookups[2], overdue, &mut effects), "it is in no frame");
            assert_eq!(effects.ended, 1);
            slots.deliver(single, answer(1), &mut effects).unwrap();
            slots.deliver(group, batch(0, &[1]), &mut effects).unwrap();
            slots.deliver(group, batch(1, &[2]), &mut effects).unwrap();
            assert_eq!(told(&mut slots, lookups[1]), Some(2));
            assert_eq!((slots.used(), std::mem::take(&mut effects.ended)), (0, 4));
            assert!(slots.is_idle());
        }
        assert_eq!(slots.slots.len(), 5, "the slots were used again");
        // An answer that its caller will not take any more.
        let single = open(&mut slots, 0);
        slots.deliver(single, answer(1), &mut effects).unwrap();
        assert!(!slots.abandon(single, overdue, &mut effects));
        assert_eq!(slots.used(), 0);
    }

    #[test]
    fn deadlines_pass_one_by_one_and_each_caller_is_woken_once() {
        let (mut slots, mut effects) = (Slots::default(), Effects::default());
        let (now, count) = (Instant::now(), Arc::new(Count::default()));
        let after = |ms: u64| now + std::time::Duration::from_millis(ms);
        let numbers: Vec<u64> = (1..=1000)
            .map(|ms| {
                let opening = Opening::Single(Waker::from(count.clone()));
                slots.open(opening, Some(after(ms)), None, 0).unwrap()
            })
            .collect();
        let late = Error::new(ErrorKind::Unavailable, "late");
        for ms in [0, 1, 2, 500, 1000] {
            let (cancels, next) = slots.expire(after(ms), after(ms), &late, &mut effects);
            effects.wakers.drain(..).for_each(Waker::wake);
            assert_eq!(count.0.load(Ordering::SeqCst) as u64, ms);
            assert_eq!(next, (ms < 1000).then(|| after(ms + 1)));
            assert!(cancels.iter().all(|number| numbers.contains(number)));
        }
        for number in &numbers {
            let polled = slots.poll(*number, Waker::noop());
            assert!(matches!(polled, Poll::Ready(Some(Outcome::Lost { sent: true, .. }))), "{polled:?}");
        }
        assert_eq!((effects.ended, slots.used()), (0, 1000), "the server has not ended them");
        numbers.iter().for_each(|number| slots.deliver(*number, answer(1), &mut effects).unwrap());
        assert_eq!((effects.ended, slots.used()), (1000, 0));
    }
}
