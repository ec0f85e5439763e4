//! One connection, as its callers use it: sending requests and receiving answers.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use exacat_model::codec::Encode;
use exacat_model::{Error, ErrorKind, Operation, OperationId};
use exacat_wire::native::limits::{BATCH_OPERATIONS_MAX, FRAME_BYTES_MAX};
use exacat_wire::native::{BatchWriter, FrameDecoder, RequestOptions, encode_request, features};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::driver::Driver;
use crate::settings::ClientSettings;
use crate::shared::{Greeting, Life, Refusal, Shared, Terms, remaining_ms};
use crate::slots::{Answered, Answers, Opening, Outcome, SLOTS_MAX, StreamItem};
use crate::target::Endpoint;

/// Initial capacity for a batch in bytes.
const BATCH_BYTES: usize = 4 << 10;
/// Bytes of the encoding buffer that a thread keeps.
const SCRATCH_BYTES: usize = 64 << 10;

thread_local! {
    /// Buffer in which a request is encoded before it is appended to the output.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A request that was appended and whose outcome is awaited. Dropping it abandons the request.
struct Ticket<'a> {
    shared: &'a Shared,
    number: u64,
    /// True in the caller's poll that appended it; the slot then has the caller's waker already.
    is_fresh: bool,
    is_over: bool,
}

impl Future for Ticket<'_> {
    type Output = Outcome<Answers>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<Answers>> {
        if std::mem::take(&mut self.is_fresh) {
            return Poll::Pending;
        }
        let polled = self.shared.poll(self.number, context);
        self.is_over = polled.is_ready();
        polled
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.abandon(self.number);
        }
    }
}

/// Result of the first attempt to append a request.
enum Entered {
    Now(u64),
    /// Its bytes must wait for room.
    NoRoom(Vec<u8>),
    Not(Error),
}

/// A stream open on a connection.
#[derive(Debug)]
pub(crate) struct OpenStream {
    connection: Arc<Connection>,
    number: u64,
    items: mpsc::Receiver<StreamItem>,
    ended: bool,
    /// Parts taken since the last credit.
    taken: u32,
    window: u32,
}

impl OpenStream {
    /// Returns the next item.
    pub(crate) async fn next(&mut self) -> StreamItem {
        let item = self.items.recv().await.unwrap_or_else(|| {
            StreamItem::Lost(self.connection.shared.lost("nothing more of the stream will come"))
        });
        match &item {
            // Only the end follows the last page.
            StreamItem::Part(page) if page.next().is_none() => self.ended = true,
            StreamItem::Part(_) => {
                self.taken += 1;
                if self.taken >= self.window.div_ceil(2) {
                    self.connection.shared.grant(self.number, std::mem::take(&mut self.taken));
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
            self.connection.shared.abandon(self.number);
        }
    }
}

/// A connection, as its callers use it. It says goodbye when its last user drops it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub shared: Arc<Shared>,
    in_flight_max: u32,
    batch_operations_max: usize,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.end("the client let go of the connection");
    }
}

impl Connection {
    /// Starts the driver of a connection after the handshake.
    pub(crate) fn start<S>(
        stream: S,
        decoder: FrameDecoder,
        endpoint: &Endpoint,
        greeting: Greeting,
        settings: &ClientSettings,
    ) -> Arc<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limits = greeting.server.limits;
        // The server closes the connection after its idle time; half of it gives a ping time to
        // arrive.
        let idle = Duration::from_millis(u64::from(limits.idle_ms_max) / 2);
        let ping_after = if idle.is_zero() { settings.ping_after } else { settings.ping_after.min(idle) };
        let batch_operations_max = (limits.batch_operations_max as usize).min(BATCH_OPERATIONS_MAX);
        let in_flight_max =
            settings.requests_in_flight_max.min(limits.requests_in_flight_max as usize).min(SLOTS_MAX);
        let knows_consistency = greeting.server.features & features::CONSISTENCY != 0;
        let shared = Arc::new(Shared::new(Terms {
            endpoint: endpoint.clone(),
            ping_after,
            dead_after: settings.dead_after,
            coalesced_calls_max: settings.coalesced_calls_max.min(batch_operations_max),
            frame_bytes_max: (limits.frame_bytes_max as usize).min(FRAME_BYTES_MAX),
            consistency: settings.consistency.filter(|_| knows_consistency),
            past: settings.past,
            in_flight_max,
            greeting,
        }));
        tokio::spawn(Driver::new(shared.clone(), stream, decoder));
        Arc::new(Connection { shared, in_flight_max: in_flight_max as u32, batch_operations_max })
    }

    /// Says whether requests may be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    /// Says whether the server follows another one, and takes no changes.
    pub(crate) fn is_of_a_follower(&self) -> bool {
        self.shared.greeting.server.features & features::FOLLOWER != 0
    }

    /// Refuses calls about the past that the server would take to be about the present.
    fn check_past(&self) -> Result<(), Error> {
        let knows_past = self.shared.greeting.server.features & features::PAST != 0;
        match self.shared.past {
            Some(_) if !knows_past => Err(Error::invalid(
                "the server cannot answer about the past: it is of an older release, update it",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the maximum operations of one batch.
    pub(crate) fn batch_operations_max(&self) -> usize {
        self.batch_operations_max
    }

    /// Waits for a permit among the requests in flight; an error at the deadline.
    async fn permit(&self, deadline: Option<Instant>) -> Result<SemaphorePermit<'_>, Error> {
        if let Ok(permit) = self.shared.in_flight.try_acquire() {
            return Ok(permit);
        }
        let acquired = within(deadline, self.shared.in_flight.acquire()).await;
        // The semaphore is never closed. If it were, nothing would be sent.
        acquired.ok_or_else(|| self.shared.no_answer())?.map_err(|_| self.shared.closed())
    }

    /// Appends the bytes that `encode` makes and awaits the outcome. An encoding error is the
    /// answer.
    async fn ask(
        &self,
        permit: SemaphorePermit<'_>,
        deadline: Instant,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
        opening: impl FnOnce(std::task::Waker) -> Opening,
    ) -> Outcome<Answers> {
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        let mut opening = Some(opening(waker));
        let entered = SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.shrink_to(SCRATCH_BYTES);
            encode(scratch)?;
            Ok::<_, Error>(match self.shared.enter(scratch, &mut opening, Some(deadline)) {
                Ok(number) => Entered::Now(number),
                Err(Refusal::Full) => Entered::NoRoom(std::mem::take(scratch)),
                Err(Refusal::Closed(error)) => Entered::Not(error),
            })
        });
        let entered = match entered {
            Ok(entered) => entered,
            Err(error) => return Outcome::Answered(Answers::One(Err(error))),
        };
        let (number, is_fresh) = match entered {
            Entered::Now(number) => (number, true),
            Entered::NoRoom(bytes) => match self.enter_in_turn(bytes, &mut opening, Some(deadline)).await {
                Ok(number) => (number, false),
                Err(error) => return not_sent(error),
            },
            Entered::Not(error) => return not_sent(error),
        };
        // The permit is returned when the request ends.
        permit.forget();
        Ticket { shared: &self.shared, number, is_fresh, is_over: false }.await
    }

    /// Appends a request when there is room. Boxed, because it is rare and would make every call
    /// larger.
    fn enter_in_turn<'a>(
        &'a self,
        mut bytes: Vec<u8>,
        opening: &'a mut Option<Opening>,
        deadline: Option<Instant>,
    ) -> futures::future::BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let entered = within(deadline, self.shared.enter_in_turn(&mut bytes, opening, deadline)).await;
            match entered {
                Some(Ok(number)) => Ok(number),
                Some(Err(Refusal::Closed(error))) => Err(error),
                Some(Err(Refusal::Full)) | None => Err(self.shared.no_answer()),
            }
        })
    }

    /// Calls one operation.
    pub(crate) async fn call(
        &self,
        operation: &Operation,
        operation_id: Option<OperationId>,
        deadline: Instant,
    ) -> Outcome<Answered> {
        if let Err(error) = self.check_past() {
            return Outcome::Answered(Err(error));
        }
        let permit = match self.permit(Some(deadline)).await {
            Ok(permit) => permit,
            Err(error) => return not_sent(error),
        };
        let shared = &*self.shared;
        let asked = if shared.coalesced_calls_max > 1 && is_small(operation) {
            let encode = |out: &mut Vec<u8>| {
                operation.encode(out);
                Ok(())
            };
            self.ask(permit, deadline, encode, Opening::Lookup).await
        } else {
            let encode = |out: &mut Vec<u8>| {
                let deadline_ms = Some(remaining_ms(deadline, Instant::now()));
                let options = RequestOptions {
                    operation_id,
                    deadline_ms,
                    stream: None,
                    consistency: shared.consistency,
                    past: shared.past,
                };
                // The real number is set when the request is appended.
                encode_request(out, shared.frame_bytes_max, 1, &options, operation)
            };
            self.ask(permit, deadline, encode, Opening::Single).await
        };
        match asked {
            Outcome::Lost { sent, error } => Outcome::Lost { sent, error },
            Outcome::Answered(Answers::One(answered)) => Outcome::Answered(answered),
            Outcome::Answered(Answers::Many(_)) => Outcome::Answered(Err(mixed_up())),
        }
    }

    /// Calls as many of the operations as fit into one batch, from the first on; answers those.
    pub(crate) async fn call_batch(
        &self,
        operations: impl Iterator<Item = (&Operation, Option<OperationId>)>,
        deadline: Instant,
    ) -> Outcome<Vec<Answered>> {
        if let Err(error) = self.check_past() {
            return Outcome::Answered(operations.map(|_| Err(error.clone())).collect());
        }
        let permit = match self.permit(Some(deadline)).await {
            Ok(permit) => permit,
            Err(error) => return not_sent(error),
        };
        let mut bytes = Vec::with_capacity(BATCH_BYTES);
        let deadline_ms = Some(remaining_ms(deadline, Instant::now()));
        let (frame_bytes_max, consistency) = (self.shared.frame_bytes_max, self.shared.consistency);
        let past = self.shared.past;
        // The real number is set when the batch is appended.
        let mut batch = BatchWriter::new(&mut bytes, frame_bytes_max, 1, deadline_ms, consistency, past);
        for (operation, operation_id) in operations.take(self.batch_operations_max) {
            match batch.push(operation_id, operation) {
                Ok(()) => {}
                Err(error) if batch.operations() == 0 => return Outcome::Answered(vec![Err(error)]),
                Err(_) => break,
            }
        }
        let expected = batch.operations();
        batch.finish();
        let encode = |out: &mut Vec<u8>| {
            *out = bytes;
            Ok(())
        };
        match self.ask(permit, deadline, encode, |waker| Opening::Batch(waker, expected)).await {
            Outcome::Lost { sent, error } => Outcome::Lost { sent, error },
            Outcome::Answered(Answers::Many(answers)) => Outcome::Answered(answers),
            Outcome::Answered(Answers::One(_)) => Outcome::Answered(vec![Err(mixed_up())]),
        }
    }

    /// Opens a stream; an error gives the reason why the request was not sent. The caller bounds
    /// the time.
    pub(crate) async fn stream(
        self: &Arc<Self>,
        operation: &Operation,
        operation_id: Option<OperationId>,
        window: u32,
    ) -> Outcome<Result<OpenStream, Error>> {
        if let Err(error) = self.check_past() {
            return Outcome::Answered(Err(error));
        }
        let permit = match self.permit(None).await {
            Ok(permit) => permit,
            Err(error) => return not_sent(error),
        };
        let (consistency, past) = (self.shared.consistency, self.shared.past);
        let options =
            RequestOptions { operation_id, deadline_ms: None, stream: Some(window), consistency, past };
        let mut bytes = Vec::new();
        if let Err(error) = encode_request(&mut bytes, self.shared.frame_bytes_max, 1, &options, operation) {
            return Outcome::Answered(Err(error));
        }
        // Room for all parts that the credit permits, and for the end.
        let (to, items) = mpsc::channel(window as usize + 1);
        let mut opening = Some(Opening::Stream(to, window));
        let entered = match self.shared.enter(&mut bytes, &mut opening, None) {
            Ok(number) => Ok(number),
            Err(Refusal::Closed(error)) => Err(error),
            Err(Refusal::Full) => self.enter_in_turn(bytes, &mut opening, None).await,
        };
        let number = match entered {
            Ok(number) => number,
            Err(error) => return not_sent(error),
        };
        permit.forget();
        let connection = self.clone();
        Outcome::Answered(Ok(OpenStream { connection, number, items, ended: false, taken: 0, window }))
    }

    /// Waits for requests in flight, within the bound, then says goodbye and waits for the end.
    pub(crate) async fn close(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let idle = timeout_at(deadline, self.shared.in_flight.acquire_many(self.in_flight_max)).await;
        self.shared.end("the client was closed");
        let mut life = self.shared.life.subscribe();
        let closed = timeout_at(deadline, life.wait_for(|life| *life == Life::Closed)).await;
        if idle.is_err() || closed.is_err() {
            self.shared.break_off(Error::new(
                ErrorKind::Unavailable,
                format!("client closed before {} finished its requests", self.shared.endpoint),
            ));
        }
    }
}

/// Awaits a future until the deadline, if there is one; none if it passes.
async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

fn not_sent<T>(error: Error) -> Outcome<T> {
    Outcome::Lost { sent: false, error }
}

fn mixed_up() -> Error {
    Error::new(ErrorKind::Internal, "internal error: the type of an answer does not fit its request")
}

/// Says whether the operation looks up one item, and so may share a frame with others.
fn is_small(operation: &Operation) -> bool {
    match operation {
        Operation::Stat { lfns, .. } => lfns.len() == 1,
        Operation::Whereis { files, .. } => files.len() == 1,
        Operation::Lfns { guids } => guids.len() == 1,
        _ => false,
    }
}
