//! Encodes messages as frames. Each function appends one whole frame to a buffer, so that one write
//! can carry many.
//!
//! A function whose frame can be too long takes the limit in force, the peer's announced
//! [`frame_bytes_max`](super::Limits::frame_bytes_max). It appends the frame wholly or not at all.

use exacat_model::codec::{Encode, put_bytes};
use exacat_model::{Answer, Consistency, Error, Operation, OperationId, Past};

use super::frame::{Batch, Frame, FrameType, RequestOptions, flags};
use super::hello::{Authenticate, Behind, Credentials, Hello, HelloAck, Identity};
use super::limits::{
    BATCH_OPERATIONS_MAX, CREDIT_MAX, HANDSHAKE_FRAME_BYTES_MAX, HEADER_BYTES, REASON_BYTES_MAX,
    SECRET_BYTES_MAX,
};
use crate::bounded::clipped;

/// Bytes of an error's message on the wire. Longer ones are cut, so that an error always fits.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Begins a frame; [`close`] fills in its length.
fn open(out: &mut Vec<u8>, frame_type: FrameType, flags: u8, request: u64) -> usize {
    debug_assert!(frame_type.admits_request(request), "{} with request {request}", frame_type.name());
    let start = out.len();
    let mut header = [0u8; HEADER_BYTES];
    header[4] = frame_type as u8;
    header[5] = flags;
    header[6..].copy_from_slice(&request.to_le_bytes());
    out.extend_from_slice(&header);
    start
}

/// Fills in the length of the frame from `start` to the end.
fn close(out: &mut [u8], start: usize) {
    let counted = (out.len() - start - 4) as u32;
    if let Some(length) = out[start..].first_chunk_mut::<4>() {
        *length = counted.to_le_bytes();
    }
}

/// Closes the frame, or removes it if it is too long.
fn close_within(
    out: &mut Vec<u8>,
    start: usize,
    frame_bytes_max: usize,
    what: &'static str,
) -> Result<(), Error> {
    let bytes = out.len() - start;
    if bytes > frame_bytes_max {
        out.truncate(start);
        return Err(Error::limit(what, bytes, frame_bytes_max));
    }
    close(out, start);
    Ok(())
}

fn whole(out: &mut Vec<u8>, frame_type: FrameType, request: u64, body: impl FnOnce(&mut Vec<u8>)) {
    let start = open(out, frame_type, 0, request);
    body(out);
    close(out, start);
}

/// Appends a [`FrameType::Hello`].
pub fn encode_hello(out: &mut Vec<u8>, hello: &Hello) {
    whole(out, FrameType::Hello, 0, |out| hello.encode(out));
}

/// Appends a [`FrameType::HelloAck`].
pub fn encode_hello_ack(out: &mut Vec<u8>, ack: &HelloAck) {
    whole(out, FrameType::HelloAck, 0, |out| ack.encode(out));
}

/// Appends a [`FrameType::Authenticate`], unless the secret is too long.
pub fn encode_authenticate(out: &mut Vec<u8>, authenticate: &Authenticate) -> Result<(), Error> {
    if let Credentials::Token(secret) = &authenticate.credentials
        && secret.expose().len() > SECRET_BYTES_MAX
    {
        return Err(Error::limit(
            "the length of a token's secret in bytes",
            secret.expose().len(),
            SECRET_BYTES_MAX,
        ));
    }
    let start = open(out, FrameType::Authenticate, 0, 0);
    authenticate.encode(out);
    close_within(out, start, HANDSHAKE_FRAME_BYTES_MAX, "the length of the credentials in bytes")
}

/// Appends a [`FrameType::Authenticated`].
pub fn encode_authenticated(out: &mut Vec<u8>, identity: &Identity) {
    whole(out, FrameType::Authenticated, 0, |out| identity.encode(out));
}

/// Appends a [`FrameType::Request`], unless it is too long.
pub fn encode_request(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request_id: u64,
    options: &RequestOptions,
    operation: &Operation,
) -> Result<(), Error> {
    debug_assert_eq!(options.operation_id.is_some(), operation.writes(), "{}", operation.name());
    request(out, frame_bytes_max, request_id, options, |out| operation.encode(out))
}

/// Appends a [`FrameType::Request`] for an operation that is encoded already.
pub fn encode_encoded_request(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request_id: u64,
    options: &RequestOptions,
    operation: &[u8],
) -> Result<(), Error> {
    request(out, frame_bytes_max, request_id, options, |out| out.extend_from_slice(operation))
}

/// Sets the request id of an encoded frame, for callers that learn it only after the encoding.
pub fn set_request(frame: &mut [u8], request: u64) {
    debug_assert!(frame.len() >= HEADER_BYTES);
    if let Some(id) = frame.get_mut(HEADER_BYTES - size_of::<u64>()..HEADER_BYTES) {
        id.copy_from_slice(&request.to_le_bytes());
    }
}

fn request(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request_id: u64,
    options: &RequestOptions,
    operation: impl FnOnce(&mut Vec<u8>),
) -> Result<(), Error> {
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    let flags = flag(options.operation_id.is_some(), flags::OPERATION_ID)
        | flag(options.deadline_ms.is_some(), flags::DEADLINE)
        | flag(options.stream.is_some(), flags::STREAM)
        | flag(options.consistency.is_some(), flags::CONSISTENCY)
        | flag(options.past.is_some(), flags::PAST);
    let start = open(out, FrameType::Request, flags, request_id);
    if let Some(id) = &options.operation_id {
        id.encode(out);
    }
    if let Some(deadline_ms) = &options.deadline_ms {
        deadline_ms.encode(out);
    }
    if let Some(credit) = options.stream {
        credit.min(CREDIT_MAX).encode(out);
    }
    if let Some(consistency) = &options.consistency {
        consistency.encode(out);
    }
    if let Some(past) = &options.past {
        past.encode(out);
    }
    operation(out);
    close_within(out, start, frame_bytes_max, "the length of a request in bytes")
}

/// Appends a [`FrameType::Batch`], operation by operation, without owning them.
#[derive(Debug)]
pub struct BatchWriter<'a> {
    out: &'a mut Vec<u8>,
    frame_bytes_max: usize,
    start: usize,
    operations: usize,
}

impl<'a> BatchWriter<'a> {
    /// Begins a batch.
    pub fn new(
        out: &'a mut Vec<u8>,
        frame_bytes_max: usize,
        request: u64,
        deadline_ms: Option<u32>,
        consistency: Option<Consistency>,
        past: Option<Past>,
    ) -> Self {
        let flag = |there: bool, flag: u8| if there { flag } else { 0 };
        let flags = flag(deadline_ms.is_some(), flags::DEADLINE)
            | flag(consistency.is_some(), flags::CONSISTENCY)
            | flag(past.is_some(), flags::PAST);
        let start = open(out, FrameType::Batch, flags, request);
        if let Some(deadline_ms) = deadline_ms {
            deadline_ms.encode(out);
        }
        if let Some(consistency) = consistency {
            consistency.encode(out);
        }
        if let Some(past) = past {
            past.encode(out);
        }
        BatchWriter { out, frame_bytes_max, start, operations: 0 }
    }

    /// Adds an operation. Refuses one that does not fit, and leaves the batch as it was: finish it
    /// and begin another. In an empty batch, such an operation is too long altogether.
    pub fn push(&mut self, operation_id: Option<OperationId>, operation: &Operation) -> Result<(), Error> {
        debug_assert_eq!(operation_id.is_some(), operation.writes(), "{}", operation.name());
        self.push_with(operation_id, |out| operation.encode(out))
    }

    /// Adds an encoded operation that changes nothing.
    pub fn push_encoded(&mut self, operation: &[u8]) -> Result<(), Error> {
        self.push_with(None, |out| out.extend_from_slice(operation))
    }

    fn push_with(
        &mut self,
        operation_id: Option<OperationId>,
        operation: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        if self.operations == BATCH_OPERATIONS_MAX {
            return Err(Error::limit(
                "the number of operations of a batch",
                self.operations + 1,
                BATCH_OPERATIONS_MAX,
            ));
        }
        let mark = self.out.len();
        operation_id.encode(self.out);
        operation(self.out);
        let bytes = self.out.len() - self.start;
        if bytes > self.frame_bytes_max {
            self.out.truncate(mark);
            return Err(Error::limit("the length of a batch in bytes", bytes, self.frame_bytes_max));
        }
        self.operations += 1;
        Ok(())
    }

    /// Returns the number of operations in the batch.
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// Ends the batch. An empty batch is removed.
    pub fn finish(self) {
        if self.operations == 0 {
            self.out.truncate(self.start);
        } else {
            close(self.out, self.start);
        }
    }
}

/// Appends a [`FrameType::Batch`], unless it is too long, has too many operations, or none.
pub fn encode_batch(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request: u64,
    batch: &Batch,
) -> Result<(), Error> {
    let Batch { deadline_ms, consistency, past, items } = batch;
    if items.is_empty() {
        return Err(Error::invalid("a batch has no operations"));
    }
    let start = out.len();
    let mut batch = BatchWriter::new(out, frame_bytes_max, request, *deadline_ms, *consistency, *past);
    let pushed = items.iter().try_for_each(|item| batch.push(item.operation_id, &item.operation));
    match pushed {
        Ok(()) => batch.finish(),
        Err(_) => out.truncate(start),
    }
    pushed
}

/// Appends a [`FrameType::Answer`], unless it is too long. `answer` is an [`Answer`], or has its
/// canonical bytes.
pub fn encode_answer(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request: u64,
    answer: &impl Encode,
) -> Result<(), Error> {
    let start = open(out, FrameType::Answer, 0, request);
    answer.encode(out);
    close_within(out, start, frame_bytes_max, "the length of the answer in bytes")
}

/// Appends the outcome of a request: an answer, or an error, which also replaces an answer that is
/// too long.
pub fn encode_outcome(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request: u64,
    outcome: &Result<impl Encode, Error>,
) {
    let sent = match outcome {
        Ok(answer) => encode_answer(out, frame_bytes_max, request, answer),
        Err(error) => Err(error.clone()),
    };
    if let Err(error) = sent {
        encode_error(out, request, &error);
    }
}

/// Appends the answers of a batch as [`FrameType::AnswerBatch`] frames, one by one, without keeping
/// them. Starts a further frame when one is full. An answer too long for a frame of its own becomes
/// an error.
#[derive(Debug)]
pub struct AnswerBatchWriter<'a> {
    out: &'a mut Vec<u8>,
    frame_bytes_max: usize,
    request: u64,
    start: usize,
    /// Answers in earlier frames, and in this one.
    before: u32,
    here: u32,
}

impl<'a> AnswerBatchWriter<'a> {
    /// Begins the answers to this batch.
    pub fn new(out: &'a mut Vec<u8>, frame_bytes_max: usize, request: u64) -> Self {
        let start = Self::open_at(out, request, 0);
        AnswerBatchWriter { out, frame_bytes_max, request, start, before: 0, here: 0 }
    }

    fn open_at(out: &mut Vec<u8>, request: u64, first: u32) -> usize {
        let start = open(out, FrameType::AnswerBatch, 0, request);
        first.encode(out);
        start
    }

    /// Appends the answer to the next operation.
    pub fn push(&mut self, outcome: &Result<impl Encode, Error>) {
        let mark = self.out.len();
        encode_result(self.out, outcome);
        if self.out.len() - self.start > self.frame_bytes_max {
            self.out.truncate(mark);
            if self.here > 0 {
                close(self.out, self.start);
                self.before += self.here;
                self.here = 0;
                self.start = Self::open_at(self.out, self.request, self.before);
            }
            let mark = self.out.len();
            encode_result(self.out, outcome);
            let bytes = self.out.len() - self.start;
            if bytes > self.frame_bytes_max {
                self.out.truncate(mark);
                let error = Error::limit("the length of the answer in bytes", bytes, self.frame_bytes_max);
                put_error(self.out, &error);
            }
        }
        self.here += 1;
    }

    /// Ends the answers. The caller must have answered every operation of the batch.
    pub fn finish(self) {
        if self.here == 0 {
            self.out.truncate(self.start);
        } else {
            close(self.out, self.start);
        }
    }
}

/// Appends all answers of a batch; see [`AnswerBatchWriter`].
pub fn encode_answer_batch(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request: u64,
    answers: &[Result<Answer, Error>],
) {
    let mut writer = AnswerBatchWriter::new(out, frame_bytes_max, request);
    for answer in answers {
        writer.push(answer);
    }
    writer.finish();
}

fn encode_result(out: &mut Vec<u8>, outcome: &Result<impl Encode, Error>) {
    match outcome {
        Err(error) => put_error(out, error),
        answered => answered.encode(out),
    }
}

fn put_error(out: &mut Vec<u8>, error: &Error) {
    out.push(error.kind as u8);
    put_bytes(out, clipped(&error.message, MESSAGE_BYTES_MAX).as_bytes());
}

/// Appends a [`FrameType::Part`], unless it is too long.
pub fn encode_part(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request: u64,
    page: &Answer,
) -> Result<(), Error> {
    let start = open(out, FrameType::Part, 0, request);
    page.encode(out);
    close_within(out, start, frame_bytes_max, "the length of a page in bytes")
}

/// Appends a [`FrameType::End`].
pub fn encode_end(out: &mut Vec<u8>, request: u64, parts: u64) {
    whole(out, FrameType::End, request, |out| parts.encode(out));
}

/// Appends a [`FrameType::Credit`].
pub fn encode_credit(out: &mut Vec<u8>, request: u64, parts: u32) {
    whole(out, FrameType::Credit, request, |out| parts.min(CREDIT_MAX).encode(out));
}

/// Appends a [`FrameType::Cancel`].
pub fn encode_cancel(out: &mut Vec<u8>, request: u64) {
    whole(out, FrameType::Cancel, request, |_| ());
}

/// Appends a [`FrameType::Error`]; request 0 for the connection, which the sender then closes.
pub fn encode_error(out: &mut Vec<u8>, request: u64, error: &Error) {
    whole(out, FrameType::Error, request, |out| put_error(out, error));
}

/// Appends a [`FrameType::Ping`].
pub fn encode_ping(out: &mut Vec<u8>, echo: u64) {
    whole(out, FrameType::Ping, 0, |out| out.extend_from_slice(&echo.to_le_bytes()));
}

/// Appends a [`FrameType::Pong`].
pub fn encode_pong(out: &mut Vec<u8>, echo: u64) {
    whole(out, FrameType::Pong, 0, |out| out.extend_from_slice(&echo.to_le_bytes()));
}

/// Appends a [`FrameType::Goodbye`]; a reason too long is cut.
pub fn encode_goodbye(out: &mut Vec<u8>, reason: &str) {
    whole(out, FrameType::Goodbye, 0, |out| {
        put_bytes(out, clipped(reason, REASON_BYTES_MAX).as_bytes());
    });
}

/// Appends a [`FrameType::Behind`].
pub fn encode_behind(out: &mut Vec<u8>, behind: &Behind) {
    whole(out, FrameType::Behind, 0, |out| behind.encode(out));
}

/// Appends any frame.
pub fn encode_frame(
    out: &mut Vec<u8>,
    frame_bytes_max: usize,
    request: u64,
    frame: &Frame,
) -> Result<(), Error> {
    match frame {
        Frame::Hello(hello) => encode_hello(out, hello),
        Frame::HelloAck(ack) => encode_hello_ack(out, ack),
        Frame::Authenticate(authenticate) => encode_authenticate(out, authenticate)?,
        Frame::Authenticated(identity) => encode_authenticated(out, identity),
        Frame::Request(asked) => {
            encode_request(out, frame_bytes_max, request, &asked.options, &asked.operation)?;
        }
        Frame::Batch(batch) => encode_batch(out, frame_bytes_max, request, batch)?,
        Frame::Answer(answer) => encode_answer(out, frame_bytes_max, request, answer)?,
        Frame::AnswerBatch(batch) => {
            let start = open(out, FrameType::AnswerBatch, 0, request);
            batch.first.encode(out);
            for answer in &batch.answers {
                encode_result(out, answer);
            }
            close_within(out, start, frame_bytes_max, "the length of answers in bytes")?;
        }
        Frame::Part(page) => encode_part(out, frame_bytes_max, request, page)?,
        Frame::End { parts } => encode_end(out, request, *parts),
        Frame::Credit { parts } => encode_credit(out, request, *parts),
        Frame::Cancel => encode_cancel(out, request),
        Frame::Error(error) => encode_error(out, request, error),
        Frame::Ping(echo) => encode_ping(out, *echo),
        Frame::Pong(echo) => encode_pong(out, *echo),
        Frame::Goodbye { reason } => encode_goodbye(out, reason),
        Frame::Behind(behind) => encode_behind(out, behind),
    }
    Ok(())
}
