//! Streams of an HTTP/2 connection: finds idle connections, and clients that do not take their answers.
//! HTTP/2 has no limits of its own for either, because a client holds back an answer by its windows.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::answers::Body;

/// Most bytes of an answer that go to the connection at a time.
const PART_BYTES: usize = 64 << 10;

/// The streams of a connection.
pub(super) struct Streams {
    state: Mutex<State>,
}

struct State {
    /// Streams so far, which number the next one.
    started: u64,
    open: usize,
    /// Time at which the last stream ended.
    since: Instant,
    /// Streams whose clients hold the next part, and since when.
    offered: BTreeMap<u64, Instant>,
}

impl Streams {
    /// Starts without a stream.
    pub(crate) fn new() -> Arc<Self> {
        let since = Instant::now();
        let state = State { started: 0, open: 0, since, offered: BTreeMap::new() };
        Arc::new(Streams { state: Mutex::new(state) })
    }

    /// Notes a new stream, which lasts as long as the result.
    pub(crate) fn open(self: &Arc<Self>) -> Stream {
        let mut state = self.state.lock();
        state.started += 1;
        state.open += 1;
        Stream { of: Arc::clone(self), number: state.started }
    }

    /// Returns the time for which there has been no stream.
    pub(crate) fn idle(&self) -> Duration {
        let state = self.state.lock();
        if state.open > 0 { Duration::ZERO } else { state.since.elapsed() }
    }

    /// Returns the longest time for which a client has held back a part of an answer.
    pub(crate) fn stalled(&self) -> Duration {
        self.state.lock().offered.values().min().map_or(Duration::ZERO, Instant::elapsed)
    }
}

/// One stream; dropping it ends it.
pub(super) struct Stream {
    of: Arc<Streams>,
    number: u64,
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.open -= 1;
        state.since = Instant::now();
        state.offered.remove(&self.number);
    }
}

/// The answer on a stream, in small parts.
pub(super) struct Watched {
    pub body: Body,
    /// The rest of a part.
    rest: Bytes,
    /// None over HTTP/1, where the connection itself stalls.
    stream: Option<Stream>,
}

impl Watched {
    /// Watches an answer if it is on a stream.
    pub(crate) fn new(body: Body, stream: Option<Stream>) -> Self {
        Watched { body, rest: Bytes::new(), stream }
    }
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let watched = &mut *self;
        let Some(stream) = &watched.stream else { return Pin::new(&mut watched.body).poll_frame(context) };
        if watched.rest.is_empty() {
            match Pin::new(&mut watched.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => watched.rest = frame.into_data().unwrap_or_default(),
                other => {
                    stream.of.state.lock().offered.remove(&stream.number);
                    return other;
                }
            }
        }
        let part = watched.rest.split_to(watched.rest.len().min(PART_BYTES));
        // The connection asks again once the client has taken this part.
        stream.of.state.lock().offered.insert(stream.number, Instant::now());
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper::body::Body as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answer_comes_in_small_parts_and_stalls_if_the_next_one_is_not_taken() {
        let streams = Streams::new();
        let whole: Vec<u8> = (0..PART_BYTES as u32 * 2 + 1).map(|number| number as u8).collect();
        let mut watched = Watched::new(Body::Whole(Some(whole.clone().into())), Some(streams.open()));
        let mut taken = Vec::new();
        while let Some(frame) = poll_fn(|context| Pin::new(&mut watched).poll_frame(context)).await {
            assert_eq!(streams.stalled(), Duration::ZERO);
            let part = frame.unwrap().into_data().unwrap();
            assert!(!part.is_empty() && part.len() <= PART_BYTES);
            taken.extend_from_slice(&part);
            assert_eq!(watched.is_end_stream(), taken.len() == whole.len());
            tokio::time::advance(Duration::from_secs(7)).await;
            assert_eq!(streams.stalled(), Duration::from_secs(7));
        }
        assert_eq!(taken, whole);
        assert_eq!((streams.stalled(), streams.idle()), (Duration::ZERO, Duration::ZERO));
        drop(watched);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(streams.idle(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn stream_that_waits_for_the_server_does_not_stall() {
        let streams = Streams::new();
        let (sender, parts) = tokio::sync::mpsc::channel(1);
        let cancel = super::super::answers::CancelOnDrop(Arc::default());
        let mut watched = Watched::new(Body::Parts { parts, _cancel: cancel }, Some(streams.open()));
        sender.send(super::super::answers::BodyPart::Bytes("a".into())).await.unwrap();
        let mut poll = || {
            let mut context = Context::from_waker(std::task::Waker::noop());
            Pin::new(&mut watched).poll_frame(&mut context).is_ready()
        };
        assert!(poll());
        assert!(!poll(), "there is no further part yet");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((streams.stalled(), streams.idle()), (Duration::ZERO, Duration::ZERO));
    }
}
