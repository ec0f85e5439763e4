//! Context of a running request: its caller, its operations, and its response.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use exacat_model::{AccountName, Answer, Error, Lfn, Operation, OperationId, SeNumber};
use exacat_wire::xrootd::limits::PART_BYTES;
use exacat_wire::xrootd::numbers::error;
use exacat_wire::xrootd::{Fields, RawPath, StreamId};
use tokio::sync::mpsc;

use super::Face;
use super::client::by_token;
use crate::admission::{Bounded, Room, Step, Unread};
use crate::faces::errors;
use crate::service::{Cancel, OperationTask, Requester};
use crate::uploads::Uploads;

/// Prefix of our tokens; envelopes and foreign tokens lack it.
const TOKEN_PREFIX: &str = "exa_";
/// Names requested from the catalogue at once.
const PAGE_ITEMS: u32 = 1000;
/// Room in bytes before a part is made: the gathered part, and one more page of names of 100 bytes
/// with their metadata.
const PART_ROOM_BYTES: usize = PART_BYTES + 200 * PAGE_ITEMS as usize;

/// A part of an answer on its way to the client.
pub(super) struct ResponsePart {
    pub bytes: Vec<u8>,
    pub last: bool,
    /// Room among the unread answers; none for a short one.
    pub room: Option<Room>,
}

/// The common state of a connection's requests.
#[derive(Clone)]
pub(super) struct Conversation {
    pub face: Arc<Face>,
    pub requester: Requester,
    pub peer: IpAddr,
    /// The server address that the client connected to.
    pub local: SocketAddr,
    /// Site of the client.
    pub site: Option<AccountName>,
    /// The one storage element that the client reads from on this connection.
    pub source: Option<SeNumber>,
    /// True if nobody else can read the client's bytes, so that it may show a token with a request.
    pub is_private: bool,
    pub cancel: Arc<Cancel>,
    pub listings: Arc<Bounded>,
    pub unread: Unread,
    pub put: mpsc::Sender<ResponsePart>,
}

/// Reason for a refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not now; the client repeats it a little later.
    Wait(String),
    /// Not on a server that is drained; the client repeats it, and meanwhile loses the server if it stops.
    Drained(String),
    /// An error number and a text.
    Error(u32, String),
}

impl Refusal {
    pub(crate) fn new(number: u32, sentence: impl Into<String>) -> Self {
        Refusal::Error(number, sentence.into())
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match errors::xrootd(error.kind) {
            Some(number) => Refusal::Error(number, error.message),
            None => Refusal::Wait(error.message),
        }
    }
}

/// Returns the error for an answer of the catalogue that does not fit the request.
pub(super) fn unexpected() -> Refusal {
    Refusal::new(error::SERVER_ERROR, "internal error: the answer is of another operation")
}

/// A response.
pub(super) enum Response {
    /// Success, without content.
    Done,
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// The end of an answer, with its header and room; the parts before it were sent.
    Written(Vec<u8>, Room),
    /// A redirection under the same path: host, port, and fields for it.
    Host(String, u16, String),
    /// A redirection to another URL.
    Url(String),
}

pub(super) type Outcome<T = Response> = Result<T, Refusal>;

/// One running request.
pub(super) struct RequestContext {
    pub with: Arc<Conversation>,
    pub stream: StreamId,
    pub requester: Requester,
    pub deadline: Instant,
}

impl RequestContext {
    /// Returns the requested path, and switches to the caller of a token in the request.
    pub(crate) async fn path(&mut self, asked: &RawPath<'_>) -> Outcome<Lfn> {
        let lfn = asked.lfn()?;
        self.whose(asked.fields).await?;
        Ok(lfn)
    }

    /// Switches to the caller of a token in the request.
    pub(crate) async fn whose(&mut self, fields: Fields<'_>) -> Outcome<()> {
        if fields.0.is_empty() {
            return Ok(());
        }
        let Some(token) = fields.bearers().find(|token| token.starts_with(TOKEN_PREFIX)) else {
            return Ok(());
        };
        if !self.with.is_private {
            return Err(Refusal::new(
                error::TLS_REQUIRED,
                "a token was sent for anybody to read: revoke it, and use roots:// with the new one",
            ));
        }
        self.requester = by_token(&self.with.face.service, &token).await?;
        Ok(())
    }

    /// Returns the client's caller.
    pub(crate) fn requester(&self) -> &Requester {
        &self.requester
    }

    /// Returns the files being written; none on a read-only server.
    pub(crate) fn uploads(&self) -> Option<&Arc<Uploads>> {
        self.with.face.uploads.as_ref()
    }

    /// Checks whether an upload of this name is complete, so that the next answer includes it.
    pub(crate) async fn written(&self, lfn: &Lfn) {
        if let Some(uploads) = self.uploads() {
            uploads.check(uploads.named(lfn)).await;
        }
    }

    /// Returns the caller's name.
    pub(crate) fn user(&self) -> &str {
        self.requester.caller.name().map_or("", |name| name.as_str())
    }

    /// True unless the caller is anonymous.
    pub(crate) fn is_somebody(&self) -> bool {
        self.requester.caller.user().is_some()
    }

    /// Sends an operation to the catalogue.
    pub(crate) async fn ask(&self, operation: Operation) -> exacat_model::Result<Answer> {
        self.run_step(operation, Step::First).await
    }

    async fn run_step(&self, operation: Operation, step: Step) -> exacat_model::Result<Answer> {
        let catalogue = &self.with.face.service.catalogue;
        let id = if operation.writes() { catalogue.new_operation_id()? } else { OperationId([0; 16]) };
        let work = OperationTask {
            requester: self.requester.clone(),
            id,
            operation,
            consistency: None,
            past: None,
            deadline: self.deadline,
            cancel: Arc::clone(&self.with.cancel),
            step,
            uploads_checked: true,
        };
        self.with.face.service.ask(work).await
    }

    /// Returns the next page of a long answer; none at its end. `next` holds the operation for the
    /// following page.
    pub(crate) async fn page(
        &self,
        next: &mut Option<Operation>,
        first: bool,
        room: &Room,
    ) -> Outcome<Option<Answer>> {
        let Some(operation) = next.take() else { return Ok(None) };
        let step = if first { Step::First } else { Step::Next };
        let page = self.with.unread.paged(operation.clone(), PAGE_ITEMS, room.is_small());
        let answer = self.run_step(page, step).await?;
        if let Some(cursor) = answer.next() {
            *next = operation.resumed(cursor.clone());
        }
        Ok(Some(answer))
    }

    /// Returns room for a part of a long answer.
    pub(crate) async fn room(&self) -> Room {
        self.with.unread.room(PART_ROOM_BYTES).await
    }

    /// Sends a part of an answer; waits while the client has too many to read.
    pub(crate) async fn put(&self, bytes: Vec<u8>, mut room: Room) -> Outcome<()> {
        let gone = |_| Refusal::new(error::CANCELLED, "the connection is gone");
        room.turned_out(bytes.len());
        self.with.put.send(ResponsePart { bytes, last: false, room: Some(room) }).await.map_err(gone)
    }
}
