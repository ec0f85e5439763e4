//! The driver of a connection: one task that reads answers, wakes callers, and writes their
//! requests.
//!
//! A turn takes answers to their slots and wakes at most [`WAKES_MAX`] callers. Then the driver
//! yields, so that the callers run and send new requests before it writes. So the requests of many
//! callers share one write, and the server commits them together. Waking all callers of a long read
//! at once would overflow the queue of the runtime's thread, and tasks in the overflow wait long.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use exacat_model::{Error, TimeMs};
use exacat_wire::native::{Frame, FrameDecoder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::settings::limits::{READ_BYTES, WAKES_MAX, WRITE_BYTES};
use crate::shared::{Rest, Shared};
use crate::slots::Effects;

/// Number of woken callers in one turn from which on the driver lets them run before it writes.
const GATHERED_MIN: usize = 2;

/// The driver as a future, which ends with the connection. See the module.
pub(crate) struct Driver<S> {
    shared: Arc<Shared>,
    stream: S,
    decoder: FrameDecoder,
    /// True if whole frames may be waiting in the decoder.
    backlog: bool,
    /// True if there was a read since the last write.
    has_read: bool,
    /// Frames decoded in one pass.
    frames: Vec<(u64, Frame)>,
    effects: Effects,
    /// Bytes taken from the callers, and the number of them that is written.
    writing: Vec<u8>,
    written: usize,
    unflushed: bool,
    /// Total bytes that the stream accepted.
    sent: u64,
    /// Total bytes that it may have accepted; more than `sent` only after a failed write.
    attempted: u64,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    /// Time of the next check for silence and forgotten requests.
    tick_at: Instant,
    tick_every: Duration,
    heard_at: Instant,
    sent_at: Instant,
    pings: u64,
    /// True if the goodbye is in the output.
    says_goodbye: bool,
    ended: bool,
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.fail(self.shared.lost("it was closed"), self.attempted);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let error = ready!(this.turn(context));
        tracing::debug!(endpoint = %this.shared.endpoint, %error, "connection ended");
        this.tell_callers(usize::MAX);
        this.ended = true;
        this.shared.fail(error, this.attempted);
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Makes the driver of a stream after the handshake.
    pub(crate) fn new(shared: Arc<Shared>, stream: S, decoder: FrameDecoder) -> Self {
        let now = Instant::now();
        let tick_every = shared.ping_after / 2;
        let tick_at = now + tick_every;
        Driver {
            shared,
            stream,
            decoder,
            backlog: true,
            has_read: false,
            frames: Vec::new(),
            effects: Effects::default(),
            writing: Vec::new(),
            written: 0,
            unflushed: false,
            sent: 0,
            attempted: 0,
            timer: Box::pin(sleep_until(tick_at)),
            timer_at: tick_at,
            tick_at,
            tick_every,
            heard_at: now,
            sent_at: now,
            pings: 0,
            says_goodbye: false,
            ended: false,
        }
    }

    /// Works until there is nothing to do or other tasks should run. Ready with the reason when the
    /// connection is over.
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        loop {
            if self.backlog
                && let Err(error) = self.deliver()
            {
                return Poll::Ready(error);
            }
            let woken = self.tell_callers(WAKES_MAX);
            if self.backlog || woken >= GATHERED_MIN {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Reads come first: after a goodbye from the server, unsent requests must go to another
            // server.
            if !self.has_read {
                match self.read(context) {
                    Poll::Ready(Ok(())) => {
                        self.has_read = true;
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(error),
                    Poll::Pending => {}
                }
            }
            if let Err(error) = self.write(context) {
                return Poll::Ready(self.shared.lost(error));
            }
            if std::mem::take(&mut self.has_read) {
                continue;
            }
            match self.look_at_time(context) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => return Poll::Ready(error),
            }
            let has_written = self.writing.is_empty();
            match self.shared.rest(context.waker(), self.timer_at, has_written, self.says_goodbye) {
                Rest::No => {}
                Rest::Until(deadline) => {
                    self.timer_at = deadline;
                    self.timer.as_mut().reset(deadline);
                }
                Rest::Goodbye => self.says_goodbye = true,
                Rest::Break(error) => return Poll::Ready(error),
                Rest::Sleep => {
                    if self.says_goodbye && has_written && !self.unflushed {
                        // An error means that the server closed first.
                        let _ = ready!(Pin::new(&mut self.stream).poll_shutdown(context));
                        return Poll::Ready(self.shared.lost("it was closed"));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Wakes at most `most` callers.
    fn tell_callers(&mut self, most: usize) -> usize {
        self.shared.end_requests(std::mem::take(&mut self.effects.ended));
        let wakers = &mut self.effects.wakers;
        let most = most.min(wakers.len());
        wakers.drain(..most).for_each(Waker::wake);
        self.backlog |= !wakers.is_empty();
        most
    }

    /// Takes received answers to their slots, about as many as callers are woken in a turn.
    fn deliver(&mut self) -> Result<(), Error> {
        if self.effects.wakers.len() >= WAKES_MAX {
            return Ok(());
        }
        let room = WAKES_MAX - self.effects.wakers.len();
        let mut broken = Ok(());
        self.backlog = false;
        loop {
            let raw = match self.decoder.next_frame() {
                Ok(Some(raw)) => raw,
                Ok(None) => break,
                Err(error) => {
                    broken = Err(self.broken(error));
                    break;
                }
            };
            let number = raw.request;
            match raw.decode() {
                Ok(frame) if number == 0 => {
                    if let Err(error) = self.take(frame) {
                        broken = Err(error);
                        break;
                    }
                }
                Ok(frame) => self.frames.push((number, frame)),
                Err(error) => {
                    broken = Err(self.broken(error));
                    break;
                }
            }
            if self.frames.len() >= room {
                self.backlog = true;
                break;
            }
        }
        // Answers that arrived count, whatever follows them.
        if !self.frames.is_empty() {
            let (mut frames, effects) = (self.frames.drain(..), &mut self.effects);
            let mut state = self.shared.state();
            let delivered =
                frames.try_for_each(|(number, frame)| state.slots.deliver(number, frame, effects));
            drop((state, frames));
            delivered.map_err(|violation| self.broken(violation.0))?;
        }
        broken
    }

    fn broken(&self, error: impl std::fmt::Display) -> Error {
        tracing::error!(endpoint = %self.shared.endpoint, %error, "the server broke the protocol");
        self.shared.lost(format!("the server broke the protocol: {error}"))
    }

    /// Handles a frame that concerns the connection.
    fn take(&self, frame: Frame) -> Result<(), Error> {
        match frame {
            Frame::Ping(echo) => {
                // A ping of a server carries its time.
                self.shared.greeting.clock.told(TimeMs(echo));
                self.shared.state().pong(echo);
            }
            Frame::Pong(_) => {}
            Frame::Behind(behind) => *self.shared.behind.lock() = Some(behind),
            Frame::Goodbye { reason } => {
                tracing::debug!(endpoint = %self.shared.endpoint, reason, "the server says goodbye");
                self.shared.said_goodbye.store(true, Ordering::Relaxed);
                self.shared.end_by_server(&format!("{} is going down: {reason}", self.shared.endpoint));
            }
            Frame::Error(error) => return Err(error),
            frame => {
                let what = frame.frame_type().name();
                return Err(self.broken(format!("{what} frame for request 0, which is not pending")));
            }
        }
        Ok(())
    }

    /// Writes the waiting bytes, as far as the stream accepts them.
    fn write(&mut self, context: &mut Context<'_>) -> std::io::Result<()> {
        loop {
            if self.writing.is_empty() {
                self.shared.take_output(&mut self.writing, &mut self.effects);
                if self.writing.is_empty() {
                    break;
                }
            }
            // After a failed write, the client cannot know how much the server received. Bounding a
            // write bounds that uncertainty.
            let end = self.writing.len().min(self.written + WRITE_BYTES);
            let bytes = &self.writing[self.written..end];
            self.attempted = self.sent + bytes.len() as u64;
            match Pin::new(&mut self.stream).poll_write(context, bytes) {
                Poll::Ready(Ok(0)) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(taken)) => {
                    self.sent += taken as u64;
                    self.attempted = self.sent;
                    self.written += taken;
                    self.unflushed = true;
                    self.sent_at = Instant::now();
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.attempted = self.sent;
                    break;
                }
            }
            if self.written == self.writing.len() {
                self.written = 0;
                self.writing.clear();
                // The memory of one long batch is released.
                self.writing.shrink_to(2 * WRITE_BYTES);
            }
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Ready(flushed) => {
                    flushed?;
                    self.unflushed = false;
                }
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    /// Reads once. Ready when bytes arrived, or no more will.
    fn read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let buffer = self.decoder.buffer_mut();
        buffer.reserve(READ_BYTES);
        let read = std::pin::pin!(self.stream.read_buf(buffer));
        Poll::Ready(match ready!(read.poll(context)) {
            Ok(0) => Err(match self.decoder.finish() {
                Ok(()) => self.shared.lost("the server closed it"),
                Err(error) => self.shared.lost(error),
            }),
            Ok(_) => {
                self.heard_at = Instant::now();
                self.backlog = true;
                Ok(())
            }
            Err(error) => Err(self.shared.lost(error)),
        })
    }

    /// Handles due timers and sets the timer for the next one. True if callers must be woken or
    /// bytes sent.
    fn look_at_time(&mut self, context: &mut Context<'_>) -> Result<bool, Error> {
        if self.timer.as_mut().poll(context).is_pending() {
            return Ok(false);
        }
        let now = Instant::now();
        let dead_after = self.shared.dead_after;
        if self.heard_at + dead_after <= now {
            return Err(self
                .shared
                .lost(format!("the server sent nothing for {dead_after:?}, no pong either")));
        }
        let mut state = self.shared.state();
        state.expire(now, self.shared.overdue(now), &self.shared.no_answer(), &mut self.effects);
        if self.tick_at <= now {
            if let Some(number) = state.slots.forgotten(now) {
                drop(state);
                return Err(self.shared.lost(format!("the server never ended request {number}")));
            }
            if self.heard_at.min(self.sent_at) + self.shared.ping_after <= now {
                self.pings += 1;
                state.ping(self.pings);
            }
            self.tick_at = now + self.tick_every;
        }
        let next = self.tick_at.min(self.heard_at + dead_after);
        self.timer_at = state.next_deadline.map_or(next, |deadline| deadline.min(next));
        drop(state);
        self.timer.as_mut().reset(self.timer_at);
        Ok(true)
    }
}
