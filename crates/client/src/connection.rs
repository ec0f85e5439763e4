//! One connection: what callers, its reader and its writer share, and how a request gets onto it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use exacat_model::{Consistency, Error, ErrorKind, Operation, OperationId};
use exacat_wire::native::limits::{BATCH_OPERATIONS_MAX, FRAME_BYTES_MAX};
use exacat_wire::native::{BatchWriter, FrameDecoder, RequestOptions, encode_request, features};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::handshake::Greeting;
use crate::pending::{Answered, Outcome, Pending, Reply, StreamItem, Table};
use crate::settings::ClientSettings;
use crate::settings::limits::{QUEUE_CALLS_MAX, QUEUE_UNIT_BYTES, QUEUE_UNITS_MAX};
use crate::target::Endpoint;
use crate::{reader, writer};

/// Bytes a batch is given room for at first.
const BATCH_BYTES: usize = 4 << 10;

/// How far a connection's life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// Requests may be sent.
    Open,
    /// No more are sent; answers still come.
    Ending,
    /// Over.
    Closed,
}

/// What the writer is asked to send.
#[derive(Debug)]
pub(crate) enum Command {
    /// A look-up small enough to be put into a batch with others.
    Small { operation: Arc<Operation>, deadline: Instant, reply: Reply },
    /// A frame made by the caller.
    Frame {
        request: u64,
        bytes: Vec<u8>,
        pending: Pending,
        /// None for a stream, which may take its time.
        deadline: Option<Instant>,
        queued: OwnedSemaphorePermit,
    },
}

impl Command {
    /// Those who wait for it.
    pub fn pending(self) -> Pending {
        match self {
            Command::Small { reply, .. } => Pending::One(reply),
            Command::Frame { pending, .. } => pending,
        }
    }
}

/// What the writer is told beside the queue, so that it is never held up there. There is at most one of each
/// kind per request in flight.
#[derive(Debug)]
pub(crate) enum Control {
    /// More parts of a stream are wanted.
    Credit { request: u64, parts: u32 },
    /// An answer is not wanted any more.
    Cancel { request: u64 },
    /// Answer a ping.
    Pong { echo: u64 },
}

/// What the tasks and callers of a connection share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub table: Mutex<Table>,
    pub life: watch::Sender<Life>,
    pub greeting: Greeting,
    pub endpoint: Endpoint,
    pub ping_after: Duration,
    pub dead_after: Duration,
    pub coalesced_calls_max: usize,
    pub frame_bytes_max: usize,
    /// What goes with every request; none as well if the server does not know of it.
    pub consistency: Option<Consistency>,
    /// The server said goodbye: another one is to be preferred.
    pub said_goodbye: AtomicBool,
    control: Mutex<Vec<Control>>,
    /// There is something in `control`, or it is time to say goodbye.
    pub control_waits: Notify,
    started: Instant,
    /// Milliseconds after `started` when something last came, and went.
    received_ms: AtomicU64,
    sent_ms: AtomicU64,
    next_request: AtomicU64,
}

impl Shared {
    /// A request id not used before on this connection.
    pub fn new_request(&self) -> u64 {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub fn note_received(&self) {
        self.received_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    pub fn note_sent(&self) {
        self.sent_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// When a request of this deadline should long have been ended.
    pub fn overdue(&self, deadline: Instant) -> Instant {
        deadline + self.dead_after
    }

    /// Was it silent, one way or the other, for so long?
    pub fn is_silent(&self) -> bool {
        let last = self.received_ms.load(Ordering::Relaxed).min(self.sent_ms.load(Ordering::Relaxed));
        self.now_ms().saturating_sub(last) >= self.ping_after.as_millis() as u64
    }

    pub fn tell(&self, control: Control) {
        let mut controls = self.control.lock();
        match (&control, controls.last_mut()) {
            // Of pings not answered yet, the last will do.
            (Control::Pong { .. }, Some(last @ Control::Pong { .. })) => *last = control,
            _ => controls.push(control),
        }
        drop(controls);
        self.control_waits.notify_one();
    }

    pub fn take_controls(&self) -> Vec<Control> {
        std::mem::take(&mut *self.control.lock())
    }

    /// No further requests; those in flight go on.
    pub fn end(&self, why: &str) {
        self.table.lock().refuse_further(Error::new(ErrorKind::Unavailable, why));
        self.advance(Life::Ending);
        self.control_waits.notify_one();
    }

    /// Lets the writer say goodbye, if that was waiting for the last answer.
    pub fn note_answered(&self) {
        if *self.life.borrow() == Life::Ending && self.table.lock().is_empty() {
            self.control_waits.notify_one();
        }
    }

    /// The connection is over: tells everyone who waits for an answer, and both tasks.
    pub fn fail(&self, error: Error) {
        let lost = self.table.lock().fail(error.clone());
        for pending in lost {
            pending.lose(true, &error);
        }
        self.advance(Life::Closed);
    }

    fn advance(&self, to: Life) {
        self.life.send_if_modified(|life| {
            let later = to > *life;
            if later {
                *life = to;
            }
            later
        });
    }

    /// An error of this connection as its callers see it.
    pub fn lost(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Unavailable, format!("the connection to {} was lost: {why}", self.endpoint))
    }
}

/// Cancels a request if it is dropped before its answer came.
struct CancelOnDrop<'a> {
    shared: &'a Shared,
    request: u64,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.shared.tell(Control::Cancel { request: self.request });
        }
    }
}

/// One attempt's own view of whether the server can have got it; true from the moment that cannot be excluded.
#[derive(Debug, Default)]
pub(crate) struct Sent(AtomicBool);

impl Sent {
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stream open on a connection.
#[derive(Debug)]
pub(crate) struct OpenStream {
    connection: Arc<Connection>,
    request: u64,
    items: mpsc::Receiver<StreamItem>,
    ended: bool,
    /// Parts taken for which no new credit was given yet.
    taken: u32,
    window: u32,
}

impl OpenStream {
    /// What comes next.
    pub async fn next(&mut self) -> StreamItem {
        let item = self.items.recv().await.unwrap_or_else(|| {
            StreamItem::Lost(self.connection.shared.lost("nothing more of the stream will come"))
        });
        match &item {
            // Nothing but the end follows the last page.
            StreamItem::Part(page) if page.next().is_none() => self.ended = true,
            StreamItem::Part(_) => {
                self.taken += 1;
                if self.taken >= self.window.div_ceil(2) {
                    let parts = std::mem::take(&mut self.taken);
                    let shared = &self.connection.shared;
                    if shared.table.lock().grant(self.request, parts) {
                        shared.tell(Control::Credit { request: self.request, parts });
                    }
                }
            }
            StreamItem::End | StreamItem::Failed(_) | StreamItem::Lost(_) => self.ended = true,
        }
        item
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if !self.ended {
            // First, so that a request still in the queue is seen to be given up, and not sent.
            self.items.close();
            self.connection.shared.tell(Control::Cancel { request: self.request });
        }
    }
}

/// A connection as its callers have it. It says goodbye when the last of them lets go.
#[derive(Debug)]
pub(crate) struct Connection {
    pub shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    /// One permit per request in flight.
    in_flight: Arc<Semaphore>,
    in_flight_max: u32,
    /// One permit per [`QUEUE_UNIT_BYTES`] of frames in the queue.
    queue_units: Arc<Semaphore>,
    batch_operations_max: usize,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.end("the client let go of the connection");
    }
}

impl Connection {
    /// Starts the tasks of a connection that is through the handshake.
    pub fn start<R, W>(
        reader: R,
        writer: W,
        decoder: FrameDecoder,
        endpoint: &Endpoint,
        greeting: Greeting,
        settings: &ClientSettings,
    ) -> Arc<Connection>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let limits = greeting.server.limits;
        // The server hangs up after its idle time: half of it leaves a ping time to arrive.
        let idle = Duration::from_millis(u64::from(limits.idle_ms_max) / 2);
        let ping_after = if idle.is_zero() { settings.ping_after } else { settings.ping_after.min(idle) };
        let batch_operations_max = (limits.batch_operations_max as usize).min(BATCH_OPERATIONS_MAX);
        let in_flight_max = settings.requests_in_flight_max.min(limits.requests_in_flight_max as usize);
        let knows_consistency = greeting.server.features & features::CONSISTENCY != 0;
        let (commands, queue) = mpsc::channel(QUEUE_CALLS_MAX);
        let shared = Arc::new(Shared {
            table: Mutex::default(),
            life: watch::Sender::new(Life::Open),
            endpoint: endpoint.clone(),
            ping_after,
            dead_after: settings.dead_after,
            coalesced_calls_max: settings.coalesced_calls_max.min(batch_operations_max),
            frame_bytes_max: (limits.frame_bytes_max as usize).min(FRAME_BYTES_MAX),
            consistency: settings.consistency.filter(|_| knows_consistency),
            said_goodbye: AtomicBool::new(false),
            control: Mutex::default(),
            control_waits: Notify::new(),
            started: Instant::now(),
            received_ms: AtomicU64::new(0),
            sent_ms: AtomicU64::new(0),
            next_request: AtomicU64::new(1),
            greeting,
        });
        tokio::spawn(reader::run(shared.clone(), reader, decoder));
        tokio::spawn(writer::run(shared.clone(), writer, queue));
        Arc::new(Connection {
            shared,
            commands,
            in_flight: Arc::new(Semaphore::new(in_flight_max)),
            in_flight_max: in_flight_max as u32,
            queue_units: Arc::new(Semaphore::new(QUEUE_UNITS_MAX)),
            batch_operations_max,
        })
    }

    /// May requests be sent on it?
    pub fn is_open(&self) -> bool {
        *self.shared.life.borrow() == Life::Open
    }

    /// Operations of one batch, at most.
    pub fn batch_operations_max(&self) -> usize {
        self.batch_operations_max
    }

    fn not_sent<T>(&self) -> Outcome<T> {
        let error = match self.shared.table.lock().closed() {
            Some(error) => error.clone(),
            None => self.shared.lost("it was closed"),
        };
        Outcome::Lost { sent: false, error }
    }

    fn never_answered<T>(&self) -> Outcome<T> {
        Outcome::Lost { sent: true, error: self.shared.lost("no answer will come") }
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed; if it were, nothing would be sent.
        self.in_flight.clone().acquire_owned().await.ok()
    }

    /// Asks one operation. `sent` is set before the server can get it.
    pub async fn call(
        &self,
        operation: &Arc<Operation>,
        operation_id: Option<OperationId>,
        deadline: Instant,
        sent: &Sent,
    ) -> Outcome<Answered> {
        let Some(permit) = self.permit().await else { return self.not_sent() };
        let (to, answer) = oneshot::channel();
        let reply = Reply { to, permit };
        if self.shared.coalesced_calls_max > 1 && is_small(operation) {
            let command = Command::Small { operation: operation.clone(), deadline, reply };
            let Ok(place) = self.commands.reserve().await else { return self.not_sent() };
            sent.set();
            place.send(command);
            return answer.await.unwrap_or_else(|_| self.never_answered());
        }
        let request = self.shared.new_request();
        let deadline_ms = Some(remaining_ms(deadline));
        let consistency = self.shared.consistency;
        let options = RequestOptions { operation_id, deadline_ms, stream: None, consistency };
        let mut bytes = Vec::new();
        if let Err(error) =
            encode_request(&mut bytes, self.shared.frame_bytes_max, request, &options, operation)
        {
            return Outcome::Answered(Err(error));
        }
        let mut cancel = CancelOnDrop { shared: &self.shared, request, armed: false };
        if !self.enqueue(request, bytes, Pending::One(reply), Some(deadline), sent).await {
            return self.not_sent();
        }
        cancel.armed = true;
        let outcome = answer.await.unwrap_or_else(|_| self.never_answered());
        cancel.armed = false;
        outcome
    }

    /// Asks as many of the operations as fit into one batch, from the first on; answers those.
    pub async fn call_batch(
        &self,
        operations: impl Iterator<Item = (&Operation, Option<OperationId>)>,
        deadline: Instant,
        sent: &Sent,
    ) -> Outcome<Vec<Answered>> {
        let Some(permit) = self.permit().await else { return self.not_sent() };
        let request = self.shared.new_request();
        let mut bytes = Vec::with_capacity(BATCH_BYTES);
        let (frame_bytes_max, deadline_ms) = (self.shared.frame_bytes_max, Some(remaining_ms(deadline)));
        let mut batch =
            BatchWriter::new(&mut bytes, frame_bytes_max, request, deadline_ms, self.shared.consistency);
        for (operation, operation_id) in operations.take(self.batch_operations_max) {
            match batch.push(operation_id, operation) {
                Ok(()) => {}
                Err(error) if batch.operations() == 0 => return Outcome::Answered(vec![Err(error)]),
                Err(_) => break,
            }
        }
        let expected = batch.operations();
        batch.finish();
        let (to, answer) = oneshot::channel();
        let pending = Pending::Batch { to, expected, answers: Vec::new(), permit };
        let mut cancel = CancelOnDrop { shared: &self.shared, request, armed: false };
        if !self.enqueue(request, bytes, pending, Some(deadline), sent).await {
            return self.not_sent();
        }
        cancel.armed = true;
        let outcome = answer.await.unwrap_or_else(|_| self.never_answered());
        cancel.armed = false;
        outcome
    }

    /// Opens a stream; an error says why the request was not sent.
    pub async fn stream(
        self: &Arc<Self>,
        operation: &Operation,
        operation_id: Option<OperationId>,
        window: u32,
    ) -> Outcome<Result<OpenStream, Error>> {
        let Some(permit) = self.permit().await else { return self.not_sent() };
        let request = self.shared.new_request();
        let consistency = self.shared.consistency;
        let options = RequestOptions { operation_id, deadline_ms: None, stream: Some(window), consistency };
        let mut bytes = Vec::new();
        if let Err(error) =
            encode_request(&mut bytes, self.shared.frame_bytes_max, request, &options, operation)
        {
            return Outcome::Answered(Err(error));
        }
        // All that the credit allows, and how it ends.
        let (to, items) = mpsc::channel(window as usize + 1);
        let pending = Pending::Stream { to, parts: 0, credit: window, permit };
        if !self.enqueue(request, bytes, pending, None, &Sent::default()).await {
            return self.not_sent();
        }
        Outcome::Answered(Ok(OpenStream {
            connection: self.clone(),
            request,
            items,
            ended: false,
            taken: 0,
            window,
        }))
    }

    /// Puts a frame into the writer's queue when there is room for it; false if the connection is over.
    async fn enqueue(
        &self,
        request: u64,
        bytes: Vec<u8>,
        pending: Pending,
        deadline: Option<Instant>,
        sent: &Sent,
    ) -> bool {
        let units = bytes.len().div_ceil(QUEUE_UNIT_BYTES).min(QUEUE_UNITS_MAX) as u32;
        let Ok(queued) = self.queue_units.clone().acquire_many_owned(units).await else { return false };
        let Ok(place) = self.commands.reserve().await else { return false };
        sent.set();
        place.send(Command::Frame { request, bytes, pending, deadline, queued });
        true
    }

    /// Waits, within the bound, for what is in flight, then says goodbye and waits for the end.
    pub async fn close(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let idle = tokio::time::timeout_at(deadline, self.in_flight.acquire_many(self.in_flight_max)).await;
        self.shared.end("the client was closed");
        let mut life = self.shared.life.subscribe();
        let closed = tokio::time::timeout_at(deadline, life.wait_for(|life| *life == Life::Closed)).await;
        if idle.is_err() || closed.is_err() {
            self.shared.fail(Error::new(
                ErrorKind::Unavailable,
                format!("the client was closed, and {} was not done in time", self.shared.endpoint),
            ));
        }
    }
}

/// Is it a look-up of one thing, which may share a frame with others?
fn is_small(operation: &Operation) -> bool {
    match operation {
        Operation::Stat { lfns, .. } => lfns.len() == 1,
        Operation::Whereis { files, .. } => files.len() == 1,
        Operation::Lfns { guids } => guids.len() == 1,
        _ => false,
    }
}

/// What is left until the deadline, as a request says it.
pub(crate) fn remaining_ms(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}
