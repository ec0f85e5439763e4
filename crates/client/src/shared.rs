//! State that the callers of a connection share with its driver: open requests and the bytes to be
//! sent.
//!
//! One lock, held only briefly, guards it. A caller encodes its request first, appends the bytes
//! under the lock, and wakes the driver only if that sleeps. [`OUTPUT_BYTES_MAX`] bounds the
//! waiting bytes; further callers wait in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use exacat_model::{Consistency, Error, ErrorKind, Past};
use exacat_wire::native::{
    BatchWriter, Behind, FrameType, HelloAck, Identity, RequestOptions, encode_cancel, encode_credit,
    encode_encoded_request, encode_goodbye, encode_ping, encode_pong, set_request,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use crate::clock::ServerClock;
use crate::settings::limits::OUTPUT_BYTES_MAX;
use crate::slots::{Answers, Effects, Opening, Outcome, SLOTS_MAX, Slots};
use crate::target::Endpoint;

/// Results of the handshake.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub server: HelloAck,
    pub identity: Identity,
    pub clock: Arc<ServerClock>,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// Requests may be sent.
    Open,
    /// No more requests are sent; answers still arrive.
    Ending,
    /// The connection is over.
    Closed,
}

/// Reason why a request could not be appended.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Too many bytes wait to be sent.
    Full,
    /// The connection takes no more requests.
    Closed(Error),
}

/// A look-up that is in no frame yet; its bytes end at `end`.
#[derive(Debug)]
struct Queued {
    number: u64,
    end: usize,
}

/// The state under the lock. See the module.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub slots: Slots,
    /// Whole frames that the driver has not taken yet. Frames that are no requests belong to
    /// requests and parts in flight, so they are bounded too.
    output: Vec<u8>,
    /// Number of bytes that the driver has taken.
    taken: u64,
    lookups: Vec<Queued>,
    lookup_bytes: Vec<u8>,
    /// Last ping of the server without a reply.
    pong: Option<u64>,
    /// Number of callers that wait for room in the output.
    waiting: usize,
    /// Reason why no further request is accepted.
    closed: Option<Error>,
    /// Reason why the driver must end the connection now.
    broken: Option<Error>,
    /// Waker of the driver, while it sleeps.
    driver: Option<Waker>,
    /// Earliest deadline of a caller, or an earlier time.
    pub next_deadline: Option<Instant>,
}

impl State {
    fn waiting_bytes(&self) -> usize {
        self.output.len() + self.lookup_bytes.len()
    }

    /// Appends a request and opens its slot. The bytes are a whole frame, or only the operation of
    /// a look-up.
    fn append(
        &mut self,
        bytes: &mut [u8],
        opening: &mut Option<Opening>,
        deadline: Option<Instant>,
        overdue: Option<Instant>,
    ) -> Result<u64, Refusal> {
        if let Some(error) = &self.closed {
            return Err(Refusal::Closed(error.clone()));
        }
        let waiting = self.waiting_bytes();
        if waiting > 0 && waiting + bytes.len() > OUTPUT_BYTES_MAX {
            return Err(Refusal::Full);
        }
        let opening = opening.take().ok_or(Refusal::Full)?;
        let is_lookup = matches!(opening, Opening::Lookup(_));
        let position = self.position();
        let Some(number) = self.slots.open(opening, deadline, overdue, position) else {
            let why = Error::limit("the number of answers that are not taken", SLOTS_MAX + 1, SLOTS_MAX);
            return Err(Refusal::Closed(why));
        };
        if let Some(deadline) = deadline {
            self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        }
        if is_lookup {
            self.lookup_bytes.extend_from_slice(bytes);
            self.lookups.push(Queued { number, end: self.lookup_bytes.len() });
        } else {
            set_request(bytes, number);
            self.output.extend_from_slice(bytes);
        }
        Ok(number)
    }

    /// Returns the position of the output's next frame in the bytes of the connection.
    fn position(&self) -> u64 {
        self.taken + self.output.len() as u64
    }

    /// Puts the waiting look-ups into as few frames as possible.
    fn frame_lookups(&mut self, shared: &Shared, effects: &mut Effects) {
        if self.lookups.is_empty() {
            return;
        }
        let now = Instant::now();
        let (mut lookups, mut bytes) =
            (std::mem::take(&mut self.lookups), std::mem::take(&mut self.lookup_bytes));
        let mut ready = Vec::with_capacity(lookups.len());
        let mut start = 0;
        for Queued { number, end } in lookups.drain(..) {
            // An abandoned look-up has no slot any more.
            if let Some(deadline) = self.slots.queued(number) {
                ready.push((number, deadline, &bytes[start..end]));
            }
            start = end;
        }
        let mut rest = ready.as_slice();
        while let Some((number, deadline, operation)) = rest.first() {
            let at = self.position();
            let together = rest.len().min(shared.coalesced_calls_max);
            let group = if together > 1 { self.slots.open_group() } else { None };
            let (taken, encoded) = if let Some(group) = group {
                // The latest deadline of the callers counts; the others stop waiting by themselves.
                let deadline = rest[..together].iter().fold(*deadline, |latest, one| latest.max(one.1));
                let mut batch = BatchWriter::new(
                    &mut self.output,
                    shared.frame_bytes_max,
                    group,
                    Some(remaining_ms(deadline, now)),
                    shared.consistency,
                    shared.past,
                );
                let pushed =
                    rest[..together].iter().try_for_each(|(_, _, operation)| batch.push_encoded(operation));
                let taken = batch.operations();
                batch.finish();
                let members = rest[..taken].iter().map(|(number, ..)| *number);
                self.slots.grouped(group, members, shared.overdue(deadline), at);
                // Look-ups that do not fit follow in the next frame; one that fits into none is
                // refused.
                if taken == 0 { (1, pushed) } else { (taken, Ok(())) }
            } else {
                let options = RequestOptions {
                    deadline_ms: Some(remaining_ms(*deadline, now)),
                    consistency: shared.consistency,
                    past: shared.past,
                    ..RequestOptions::default()
                };
                self.slots.framed(*number, shared.overdue(*deadline), at);
                let max = shared.frame_bytes_max;
                (1, encode_encoded_request(&mut self.output, max, *number, &options, operation))
            };
            if let Err(error) = encoded {
                self.slots.refuse(*number, error, effects);
            }
            rest = &rest[taken..];
        }
        drop(ready);
        bytes.clear();
        (self.lookups, self.lookup_bytes) = (lookups, bytes);
    }

    fn has_output(&self) -> bool {
        !(self.output.is_empty() && self.lookups.is_empty()) || self.pong.is_some()
    }

    /// Moves the waiting bytes into `output`, which is empty: a reply to a ping first.
    fn take_output(&mut self, shared: &Shared, output: &mut Vec<u8>, effects: &mut Effects) {
        self.frame_lookups(shared, effects);
        if let Some(echo) = self.pong.take() {
            encode_pong(output, echo);
            self.slots.shift(self.taken, output.len() as u64);
            output.append(&mut self.output);
        } else {
            std::mem::swap(&mut self.output, output);
        }
        self.taken += output.len() as u64;
    }

    /// Removes the requests that the driver has not taken; they are never sent.
    fn retract(&mut self, error: &Error, effects: &mut Effects) {
        self.slots.retract(self.taken, error, effects);
        self.lookups.clear();
        self.lookup_bytes.clear();
        // Frames for earlier requests stay.
        let mut start = 0;
        let mut kept = Vec::new();
        while let Some(counted) = self.output[start..].first_chunk::<4>() {
            let end = start + 4 + u32::from_le_bytes(*counted) as usize;
            let Some(frame) = self.output.get(start..end) else { break };
            if ![FrameType::Request as u8, FrameType::Batch as u8].contains(&frame[4]) {
                kept.extend_from_slice(frame);
            }
            start = end;
        }
        self.output = kept;
    }
}

/// Next step of a driver without work.
pub(crate) enum Rest {
    /// There are bytes to send after all.
    No,
    /// Sleep at most until this deadline.
    Until(Instant),
    /// Sleep.
    Sleep,
    /// Say goodbye: nothing is in flight any more and no request is accepted.
    Goodbye,
    /// End the connection now.
    Break(Error),
}

/// The shared part of a connection. See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub life: watch::Sender<Life>,
    is_open: AtomicBool,
    pub greeting: Greeting,
    pub endpoint: Endpoint,
    pub ping_after: Duration,
    pub dead_after: Duration,
    pub coalesced_calls_max: usize,
    pub frame_bytes_max: usize,
    /// Consistency of every request; none also if the server lacks the feature.
    pub consistency: Option<Consistency>,
    /// Past state that every request is about.
    pub past: Option<Past>,
    /// True if the server said goodbye: prefer another one.
    pub said_goodbye: AtomicBool,
    /// Distance of the server to its source, if it is a follower that says so.
    pub behind: Mutex<Option<Behind>>,
    /// One permit per request in flight, returned when the request ends.
    pub in_flight: Semaphore,
    /// Held by the first caller that waits for room in the output; the others wait for the lock, in
    /// order.
    first: tokio::sync::Mutex<()>,
    /// Signals that the driver took the output, or the connection is over.
    room: Notify,
}

/// Counts a caller that waits for room, until it is dropped.
struct Waiting<'a>(&'a Shared);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// Arguments of [`Shared::new`].
pub(crate) struct Terms {
    pub greeting: Greeting,
    pub endpoint: Endpoint,
    pub ping_after: Duration,
    pub dead_after: Duration,
    pub coalesced_calls_max: usize,
    pub frame_bytes_max: usize,
    pub consistency: Option<Consistency>,
    pub past: Option<Past>,
    pub in_flight_max: usize,
}

impl Shared {
    pub(crate) fn new(terms: Terms) -> Self {
        Shared {
            state: Mutex::default(),
            life: watch::Sender::new(Life::Open),
            is_open: AtomicBool::new(true),
            greeting: terms.greeting,
            endpoint: terms.endpoint,
            ping_after: terms.ping_after,
            dead_after: terms.dead_after,
            coalesced_calls_max: terms.coalesced_calls_max,
            frame_bytes_max: terms.frame_bytes_max,
            consistency: terms.consistency,
            past: terms.past,
            said_goodbye: AtomicBool::new(false),
            behind: Mutex::default(),
            in_flight: Semaphore::new(terms.in_flight_max),
            first: tokio::sync::Mutex::new(()),
            room: Notify::new(),
        }
    }

    /// Says whether requests may be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Returns the time by which a request of this deadline should long have ended.
    pub(crate) fn overdue(&self, deadline: Instant) -> Instant {
        deadline + self.dead_after
    }

    /// Makes the error of a lost connection for its callers.
    pub(crate) fn lost(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Unavailable, format!("the connection to {} was lost: {why}", self.endpoint))
    }

    /// Makes the error of a request that was not answered before its deadline.
    pub(crate) fn no_answer(&self) -> Error {
        Error::new(ErrorKind::Unavailable, format!("{} gave no answer in time", self.endpoint))
    }

    /// Returns the reason why nothing more is sent.
    pub(crate) fn closed(&self) -> Error {
        self.state.lock().closed.clone().unwrap_or_else(|| self.lost("it was closed"))
    }

    /// Changes the state, then wakes the driver if it sleeps, and the callers in `effects`.
    fn change<T>(&self, change: impl FnOnce(&mut State, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        let value = change(&mut state, &mut effects);
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().chain(effects.wakers).for_each(Waker::wake);
        self.end_requests(effects.ended);
        value
    }

    /// Returns the permits of ended requests.
    pub(crate) fn end_requests(&self, ended: usize) {
        if ended > 0 {
            self.in_flight.add_permits(ended);
        }
    }

    /// Appends a request unless others wait for room; leaves `opening` in place if there is none.
    pub(crate) fn enter(
        &self,
        bytes: &mut [u8],
        opening: &mut Option<Opening>,
        deadline: Option<Instant>,
    ) -> Result<u64, Refusal> {
        self.enter_as(bytes, opening, deadline, false)
    }

    fn enter_as(
        &self,
        bytes: &mut [u8],
        opening: &mut Option<Opening>,
        deadline: Option<Instant>,
        is_first: bool,
    ) -> Result<u64, Refusal> {
        let overdue = deadline.map(|deadline| self.overdue(deadline));
        let mut state = self.state.lock();
        if state.waiting > 0 && !is_first {
            return Err(Refusal::Full);
        }
        let entered = state.append(bytes, opening, deadline, overdue);
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        entered
    }

    /// Appends a request when there is room, after those that wait already.
    pub(crate) async fn enter_in_turn(
        &self,
        bytes: &mut [u8],
        opening: &mut Option<Opening>,
        deadline: Option<Instant>,
    ) -> Result<u64, Refusal> {
        self.state.lock().waiting += 1;
        let _waiting = Waiting(self);
        let _first = self.first.lock().await;
        loop {
            // A notification that arrives before the wait is kept.
            match self.enter_as(bytes, opening, deadline, true) {
                Err(Refusal::Full) => self.room.notified().await,
                entered => return entered,
            }
        }
    }

    /// Polls the outcome of a request.
    pub(crate) fn poll(&self, number: u64, context: &Context<'_>) -> Poll<Outcome<Answers>> {
        let polled = self.state.lock().slots.poll(number, context.waker());
        polled.map(|outcome| {
            outcome.unwrap_or_else(|| Outcome::Lost { sent: true, error: self.lost("no answer will come") })
        })
    }

    /// Abandons a request whose caller, or a stream whose reader, is gone.
    pub(crate) fn abandon(&self, number: u64) {
        let overdue = self.overdue(Instant::now());
        self.change(|state, effects| {
            if state.slots.abandon(number, overdue, effects) {
                encode_cancel(&mut state.output, number);
            }
        });
    }

    /// Grants the server more parts of a stream, unless that has ended.
    pub(crate) fn grant(&self, number: u64, parts: u32) {
        self.change(|state, _| {
            if state.slots.grant(number, parts) {
                encode_credit(&mut state.output, number, parts);
            }
        });
    }

    /// Refuses further requests; those in flight continue.
    pub(crate) fn end(&self, why: &str) {
        self.is_open.store(false, Ordering::Relaxed);
        self.change(|state, _| {
            state.closed.get_or_insert_with(|| Error::new(ErrorKind::Unavailable, why));
        });
        self.advance(Life::Ending);
    }

    /// Handles the server's goodbye: refuses further requests, and returns unsent ones for another
    /// server.
    pub(crate) fn end_by_server(&self, why: &str) {
        let error = Error::new(ErrorKind::Unavailable, why);
        self.change(|state, effects| state.retract(&error, effects));
        self.end(why);
    }

    /// Makes the driver end the connection.
    pub(crate) fn break_off(&self, error: Error) {
        self.change(|state, _| state.broken = Some(error));
    }

    fn advance(&self, to: Life) {
        self.life.send_if_modified(|life| {
            let later = to > *life;
            *life = to.max(*life);
            later
        });
        // Callers that wait for room must see that the connection is over.
        self.room.notify_one();
    }

    /// Ends the connection and tells all callers. Frames that begin before `attempted` may have
    /// been sent.
    pub(crate) fn fail(&self, error: Error, attempted: u64) {
        self.is_open.store(false, Ordering::Relaxed);
        self.change(|state, effects| {
            state.slots.fail(attempted, &error, effects);
            state.closed.get_or_insert(error);
            state.output = Vec::new();
            state.lookups = Vec::new();
            state.lookup_bytes = Vec::new();
        });
        self.advance(Life::Closed);
    }

    // Functions for the driver.

    /// Moves the waiting bytes into `output`, which is empty.
    pub(crate) fn take_output(&self, output: &mut Vec<u8>, effects: &mut Effects) {
        let mut state = self.state.lock();
        state.take_output(self, output, effects);
        let wait = state.waiting > 0;
        drop(state);
        if wait && !output.is_empty() {
            self.room.notify_one();
        }
    }

    /// Locks the state for the driver, which needs no waking.
    pub(crate) fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the next step of a driver without work. A sleeping driver is woken when there is
    /// work; it has a timer for `timer_at`.
    pub(crate) fn rest(
        &self,
        waker: &Waker,
        timer_at: Instant,
        has_written: bool,
        says_goodbye: bool,
    ) -> Rest {
        let mut state = self.state.lock();
        if let Some(error) = state.broken.take() {
            return Rest::Break(error);
        }
        if let Some(deadline) = state.next_deadline.filter(|deadline| *deadline < timer_at) {
            return Rest::Until(deadline);
        }
        if has_written && state.has_output() {
            return Rest::No;
        }
        let is_idle = has_written && state.slots.is_idle();
        if is_idle && state.closed.is_some() && !says_goodbye {
            encode_goodbye(&mut state.output, "the client has nothing more to ask");
            return Rest::Goodbye;
        }
        state.driver = Some(waker.clone());
        Rest::Sleep
    }
}

impl State {
    /// Queues the reply to a ping; of several waiting replies the last suffices.
    pub(crate) fn pong(&mut self, echo: u64) {
        self.pong = Some(echo);
    }

    pub(crate) fn ping(&mut self, count: u64) {
        encode_ping(&mut self.output, count);
    }

    /// Fails the calls whose deadline has passed, and cancels their requests at the server.
    pub(crate) fn expire(&mut self, now: Instant, overdue: Instant, error: &Error, effects: &mut Effects) {
        let (cancels, next) = self.slots.expire(now, overdue, error, effects);
        self.next_deadline = next;
        cancels.into_iter().for_each(|number| encode_cancel(&mut self.output, number));
    }
}

/// Returns the time until the deadline, as a request encodes it.
pub(crate) fn remaining_ms(deadline: Instant, now: Instant) -> u32 {
    let left = deadline.saturating_duration_since(now).as_millis();
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use exacat_model::{Guid, Lfn, Operation, TimeMs, TimelineId};
    use exacat_wire::native::{
        Frame, FrameDecoder, HelloAck, Identity, Limits, PROTOCOL_VERSION, encode_request,
    };
    use tokio::sync::mpsc;

    use super::*;
    use crate::clock::ServerClock;

    /// Returns what a server with these limits says at the handshake.
    pub(crate) fn greeting(limits: Limits) -> Greeting {
        let server = HelloAck {
            version: PROTOCOL_VERSION,
            features: 0,
            limits,
            server: "none".to_owned(),
            catalogue: Guid([0; 16]),
            timeline: TimelineId([0; 16]),
            authentication_required: false,
            time: TimeMs(0),
        };
        let identity = Identity { user: None, scope: Lfn::root(), write: true };
        Greeting { server, identity, clock: Arc::new(ServerClock::new()) }
    }

    fn shared() -> Arc<Shared> {
        let limits = Limits {
            frame_bytes_max: 1 << 20,
            requests_in_flight_max: 100,
            batch_operations_max: 50,
            idle_ms_max: 0,
        };
        Arc::new(Shared::new(Terms {
            greeting: greeting(limits),
            endpoint: Endpoint::Unix("/nowhere".into()),
            ping_after: Duration::from_secs(10),
            dead_after: Duration::from_secs(30),
            coalesced_calls_max: 50,
            frame_bytes_max: 1 << 20,
            consistency: None,
            past: None,
            in_flight_max: 100,
        }))
    }

    fn request() -> Vec<u8> {
        let mut bytes = Vec::new();
        let operation = Operation::Du { lfns: vec![Lfn::root()] };
        encode_request(&mut bytes, 1 << 20, 1, &RequestOptions::default(), &operation).unwrap();
        bytes
    }

    fn single() -> Option<Opening> {
        Some(Opening::Single(Waker::noop().clone()))
    }

    fn frames(bytes: &[u8]) -> Vec<(u64, FrameType)> {
        let mut decoder = FrameDecoder::new();
        decoder.set_frame_bytes_max(1 << 20);
        decoder.feed(bytes);
        std::iter::from_fn(|| decoder.next_frame().unwrap())
            .map(|raw| (raw.request, raw.frame_type))
            .collect()
    }

    fn outcome(shared: &Shared, number: u64) -> Poll<Outcome<Answers>> {
        shared.poll(number, &Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn output_is_bounded_and_callers_beyond_it_wait_in_order() {
        let shared = shared();
        let piece = OUTPUT_BYTES_MAX / 4;
        for _ in 0..4 {
            shared.enter(&mut vec![0; piece], &mut single(), None).unwrap();
        }
        let mut opening = single();
        assert!(matches!(shared.enter(&mut [0; 14], &mut opening, None), Err(Refusal::Full)));
        assert!(opening.is_some(), "it is there for the next attempt");
        assert_eq!(shared.state().waiting_bytes(), OUTPUT_BYTES_MAX);

        let (entered, mut order) = mpsc::channel(8);
        let mut tasks = Vec::new();
        for caller in 0..8 {
            let (to_wait, entered) = (shared.clone(), entered.clone());
            tasks.push(tokio::spawn(async move {
                to_wait.enter_in_turn(&mut vec![0; piece], &mut single(), None).await.unwrap();
                entered.send(caller).await.unwrap();
            }));
            while shared.state().waiting <= caller {
                tokio::task::yield_now().await;
            }
        }
        let (mut output, mut effects) = (Vec::new(), Effects::default());
        for taken in [0, 4] {
            assert!(
                matches!(shared.enter(&mut [0; 14], &mut single(), None), Err(Refusal::Full)),
                "others wait"
            );
            shared.take_output(&mut output, &mut effects);
            assert_eq!(output.len(), OUTPUT_BYTES_MAX);
            output.clear();
            for caller in taken..taken + 4 {
                assert_eq!(order.recv().await, Some(caller));
            }
            assert_eq!(shared.state().waiting_bytes(), OUTPUT_BYTES_MAX);
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(shared.state().waiting, 0);
    }

    #[tokio::test]
    async fn callers_that_wait_for_room_are_refused_when_the_connection_ends() {
        let shared = shared();
        shared.enter(&mut vec![0; OUTPUT_BYTES_MAX], &mut single(), None).unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let shared = shared.clone();
                tokio::spawn(async move { shared.enter_in_turn(&mut [0; 20], &mut single(), None).await })
            })
            .collect();
        while shared.state().waiting < 3 {
            tokio::task::yield_now().await;
        }
        shared.fail(shared.lost("the test says so"), 0);
        for waiting in waiting {
            assert!(matches!(waiting.await.unwrap(), Err(Refusal::Closed(_))));
        }
    }

    #[test]
    fn goodbye_of_the_server_takes_back_what_was_not_sent() {
        let shared = shared();
        let (mut output, mut effects) = (Vec::new(), Effects::default());
        let sent = shared.enter(&mut request(), &mut single(), None).unwrap();
        shared.take_output(&mut output, &mut effects);
        assert_eq!(frames(&output), [(sent, FrameType::Request)]);
        let unsent = shared.enter(&mut request(), &mut single(), None).unwrap();
        let lookup = &mut Some(Opening::Lookup(Waker::noop().clone()));
        let queued = shared.enter(&mut [0; 8], lookup, Some(Instant::now())).unwrap();
        shared.abandon(sent);
        shared.end_by_server("the server stops");
        for number in [unsent, queued] {
            assert!(matches!(outcome(&shared, number), Poll::Ready(Outcome::Lost { sent: false, .. })));
        }
        output.clear();
        shared.take_output(&mut output, &mut effects);
        assert_eq!(frames(&output), [(sent, FrameType::Cancel)]);
        assert!(matches!(shared.enter(&mut request(), &mut single(), None), Err(Refusal::Closed(_))));
    }

    #[test]
    fn pong_in_front_of_requests_does_not_make_them_sent() {
        let shared = shared();
        let (mut output, mut effects) = (Vec::new(), Effects::default());
        let first = shared.enter(&mut request(), &mut single(), None).unwrap();
        let second = shared.enter(&mut request(), &mut single(), None).unwrap();
        shared.state().pong(7);
        shared.take_output(&mut output, &mut effects);
        let expected = [(0, FrameType::Pong), (first, FrameType::Request), (second, FrameType::Request)];
        assert_eq!(frames(&output), expected);
        let third = shared.enter(&mut request(), &mut single(), None).unwrap();
        // The stream got one byte of the second request.
        shared.fail(shared.lost("the test says so"), (output.len() - request().len() + 1) as u64);
        for (number, was_sent) in [(first, true), (second, true), (third, false)] {
            match outcome(&shared, number) {
                Poll::Ready(Outcome::Lost { sent, .. }) => assert_eq!(sent, was_sent),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn look_ups_share_frames_and_those_given_up_are_not_sent() {
        let shared = shared();
        let (mut output, mut effects) = (Vec::new(), Effects::default());
        let mut operation = Vec::new();
        exacat_model::codec::Encode::encode(
            &Operation::Stat { lfns: vec![Lfn::root()], follow: false },
            &mut operation,
        );
        let deadline = Some(Instant::now());
        let numbers: Vec<u64> = (0..53)
            .map(|_| {
                let lookup = &mut Some(Opening::Lookup(Waker::noop().clone()));
                shared.enter(&mut operation.clone(), lookup, deadline).unwrap()
            })
            .collect();
        // Without these two, 53 look-ups are a batch of 50 and a single one.
        shared.abandon(numbers[0]);
        shared.abandon(numbers[52]);
        shared.take_output(&mut output, &mut effects);
        let mut decoder = FrameDecoder::new();
        decoder.set_frame_bytes_max(1 << 20);
        decoder.feed(&output);
        let Frame::Batch(batch) = decoder.next_frame().unwrap().unwrap().decode().unwrap() else {
            panic!("not a batch")
        };
        assert_eq!(batch.items.len(), 50);
        let single = decoder.next_frame().unwrap().unwrap();
        assert_eq!((single.frame_type, single.request), (FrameType::Request, numbers[51]));
        assert_eq!(decoder.next_frame().unwrap(), None);
    }
}
