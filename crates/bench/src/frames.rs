//! Load generator that speaks the frames of the native protocol itself: one blocking thread per
//! connection, no runtime, no retries. It shows the server's limits; `beside` adds the client
//! library.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_model::{Answer, Error, ErrorKind, Operation, OperationId};
use exacat_store::{Clock, SystemClock};
use exacat_wire::native::limits::FRAME_BYTES_MAX;
use exacat_wire::native::{
    Authenticate, Credentials, Frame, FrameDecoder, FrameType, Hello, RawFrame, RequestOptions,
    encode_authenticate, encode_hello, encode_pong, encode_request, set_request,
};
use hdrhistogram::Histogram;

use super::measure::{Load, Sample, histogram, merged, record, sample};
use super::target::Target;

/// Buffer size of a read.
const READ_BYTES: usize = 256 << 10;
/// One of so many answers is decoded whole, and each of its items checked. The others are only
/// checked to be whole frames, answers, and for the right request. A load generator that decodes
/// every answer measures itself.
const CHECKED_OF: u64 = 16;

/// Treatment of answers: one of `decoded_of` is decoded, and `check` sees it.
pub(crate) struct Reading<F> {
    /// Number of answers of which one is decoded.
    pub decoded_of: u64,
    /// Check of a decoded answer.
    pub check: F,
}

impl<F> Reading<F> {
    /// Decodes some answers, to measure the server.
    pub(crate) fn some(check: F) -> Self {
        Reading { decoded_of: CHECKED_OF, check }
    }

    /// Decodes each answer, as a client does.
    pub(crate) fn each(check: F) -> Self {
        Reading { decoded_of: 1, check }
    }
}
/// Time without a byte after which a server is given up.
const SILENCE: Duration = Duration::from_secs(60);

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what} the server: {error}"))
}

/// One connection, after the handshake.
struct Conversation {
    stream: UnixStream,
    decoder: FrameDecoder,
    came: Box<[u8]>,
}

impl Conversation {
    fn open(socket: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket).map_err(|error| failed("connect to", &error))?;
        stream.set_read_timeout(Some(SILENCE)).map_err(|error| failed("connect to", &error))?;
        let mut this =
            Conversation { stream, decoder: FrameDecoder::new(), came: vec![0; READ_BYTES].into() };
        let mut out = Vec::new();
        encode_hello(&mut out, &Hello::new("exacat-bench"));
        encode_authenticate(&mut out, &Authenticate { credentials: Credentials::Local, act_as: None })?;
        this.write(&out)?;
        for _ in 0..2 {
            match this.next()? {
                Frame::HelloAck(_) | Frame::Authenticated(_) => {}
                other => return Err(unexpected(&other)),
            }
        }
        this.decoder.set_frame_bytes_max(FRAME_BYTES_MAX);
        Ok(this)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(|error| failed("write to", &error))
    }

    /// Returns a frame that has arrived already.
    fn ready(&mut self) -> Result<Option<RawFrame>, Error> {
        Ok(self.decoder.next_frame()?)
    }

    fn read(&mut self) -> Result<(), Error> {
        let read = self.stream.read(&mut self.came).map_err(|error| failed("read from", &error))?;
        self.decoder.feed(&self.came[..read]);
        if read == 0 { Err(failed("read from", &"it closed the connection")) } else { Ok(()) }
    }

    fn next(&mut self) -> Result<Frame, Error> {
        loop {
            if let Some(raw) = self.ready()? {
                return Ok(raw.decode()?);
            }
            self.read()?;
        }
    }
}

fn unexpected(frame: &Frame) -> Error {
    match frame {
        Frame::Error(error) => error.clone(),
        other => {
            Error::new(ErrorKind::Internal, format!("a {} frame out of turn", other.frame_type().name()))
        }
    }
}

/// Sends `questions` as [`drive_reading`] does, to measure the server: decodes some answers only, and
/// checks that each of their items is good.
pub(crate) async fn drive(
    target: &Arc<Target>,
    socket: &Path,
    what: &str,
    load: Load,
    questions: &[Operation],
) -> Result<Sample, Error> {
    drive_reading(target, socket, what, load, questions, Reading::some(super::all_good)).await
}

/// Sends `questions` in turn, `load.calls` in all, and begins again if there are fewer. Keeps
/// `load.depth` requests in flight on each of `load.lanes` connections, each request a frame of its
/// own. The first error ends it.
pub(crate) async fn drive_reading(
    target: &Arc<Target>,
    socket: &Path,
    what: &str,
    load: Load,
    questions: &[Operation],
    reading: Reading<impl Fn(&Answer) -> Result<(), Error> + Send + Sync + 'static>,
) -> Result<Sample, Error> {
    let next = Arc::new(AtomicU64::new(0));
    let questions = questions.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
    let (questions, reading) = (Arc::new(questions), Arc::new(reading));
    let (cpu, start) = (target.cpu_s(), Instant::now());
    let mut threads = tokio::task::JoinSet::new();
    for _ in 0..load.lanes {
        let conversation = Conversation::open(socket)?;
        let (next, questions, reading) = (next.clone(), questions.clone(), reading.clone());
        threads.spawn_blocking(move || converse(conversation, load, &next, &questions, &reading));
    }
    let latency = merged(threads).await?;
    Ok(sample(
        target,
        what,
        load.calls * load.items_per_call,
        start.elapsed(),
        target.cpu_s() - cpu,
        &latency,
    ))
}

/// Encodes a request without its number beforehand: a load generator that encodes measures itself.
fn encoded(question: &Operation) -> Result<Vec<u8>, Error> {
    let mut options = RequestOptions::default();
    if question.writes() {
        let mut random = [0; 10];
        getrandom::fill(&mut random).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        options.operation_id = Some(OperationId::new(SystemClock.now(), random));
    }
    let mut frame = Vec::new();
    encode_request(&mut frame, FRAME_BYTES_MAX, 1, &options, question)?;
    frame.shrink_to_fit();
    Ok(frame)
}

/// Appends a request, or an answer, under this number.
pub(crate) fn push_numbered(out: &mut Vec<u8>, frame: &[u8], request: u64) {
    let start = out.len();
    out.extend_from_slice(frame);
    set_request(&mut out[start..], request);
}

fn converse(
    mut conversation: Conversation,
    load: Load,
    next: &AtomicU64,
    questions: &[Vec<u8>],
    reading: &Reading<impl Fn(&Answer) -> Result<(), Error>>,
) -> Result<Histogram<u64>, Error> {
    let mut latency = histogram()?;
    let mut out = Vec::new();
    // The requests in flight and when each was sent, by their numbers, which count up. There are
    // more places than requests in flight. So only a very late request stands where the next would
    // go; then the next one waits.
    let mut open: Vec<Option<(u64, Instant)>> = vec![None; load.depth.next_power_of_two() * 2];
    let places = open.len() as u64;
    let place = |request: u64| (request % places) as usize;
    let (mut asked, mut in_flight, mut done) = (0u64, 0usize, false);
    loop {
        out.clear();
        let now = Instant::now();
        while in_flight < load.depth && open[place(asked + 1)].is_none() && !done {
            let call = next.fetch_add(1, Ordering::Relaxed);
            if call >= load.calls {
                done = true;
                break;
            }
            asked += 1;
            push_numbered(&mut out, &questions[call as usize % questions.len()], asked);
            open[place(asked)] = Some((asked, now));
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(latency);
        }
        conversation.write(&out)?;
        conversation.read()?;
        let now = Instant::now();
        while let Some(raw) = conversation.ready()? {
            let request = raw.request;
            if raw.frame_type == FrameType::Answer {
                let Some((_, sent)) = open[place(request)].take_if(|(open, _)| *open == request) else {
                    return Err(Error::new(
                        ErrorKind::Internal,
                        format!("an answer to request {request}, which is not open"),
                    ));
                };
                record(&mut latency, now - sent);
                in_flight -= 1;
                if !request.is_multiple_of(reading.decoded_of) {
                    continue;
                }
            }
            match raw.decode()? {
                Frame::Answer(answer) => (reading.check)(&answer)?,
                Frame::Ping(echo) => {
                    let mut pong = Vec::new();
                    encode_pong(&mut pong, echo);
                    conversation.write(&pong)?;
                }
                other => return Err(unexpected(&other)),
            }
        }
    }
}
