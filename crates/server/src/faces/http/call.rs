//! One request: the client's identity, its room among all requests, and its operations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exacat_activity::{RequestState, on};
use exacat_catalogue::Caller;
use exacat_model::limits::{OPERATION_AGE_MAX_MS, OPERATION_AHEAD_MAX_MS, PAGE_MEMORY_MAX};
use exacat_model::{
    AccountName, Answer, Consistency, Error, ErrorKind, Guid, LogPosition, Measured, Operation, OperationId,
    Past, PastPoint, Result, Revision, Se, TimeMs,
};
use exacat_wire::json::SeNames;
use exacat_wire::native::{Authenticate, Credentials, Secret};
use exacat_wire::percent;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::Conversation;
use crate::access::Session;
use crate::admission::{Held, Room, Share, Step, Turn, UNREAD, Unread, busy, items_of, limit_of};
use crate::instruments::count;
use crate::issuers::{Trust, is_foreign};
use crate::look_ups::WhereisLines;
use crate::past::PastState;
use crate::peer::Peer;
use crate::service::{Cancel, Checked, OperationTask, Requester, Service, step_id};

/// Header with the revision of the catalogue that an answer shows at least.
pub(super) const REVISION: HeaderName = HeaderName::from_static("exacat-revision");
/// Header with the revision that an answer must show at least.
const AT_LEAST: HeaderName = HeaderName::from_static("exacat-at-least");
/// Header with the user to act as.
const ACT_AS: HeaderName = HeaderName::from_static("exacat-act-as");
/// Header with the consistency level of a read.
const CONSISTENCY: HeaderName = HeaderName::from_static("exacat-consistency");
/// Header with the operation id of a change, a UUID of version 7.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest wait for a revision.
const AT_LEAST_TIME: Duration = Duration::from_secs(30);
/// Pause between two looks at the revision.
const AT_LEAST_PAUSE: Duration = Duration::from_millis(20);
/// Most bytes of the body of a request that is read whole.
pub(super) const BODY_BYTES_MAX: usize = 8 << 20;
/// Bytes of room that a body takes at a time, however small its parts are.
const BODY_ROOM_BYTES: usize = 64 << 10;
/// Bytes of room for each row of a part of a long answer, before it is made; then its real size counts.
pub(super) const ROW_ROOM_BYTES: usize = 512;
/// Rows that are converted to text before other requests get the thread.
const ROWS_AT_ONCE: usize = 200;
/// Rows that an answer without pages counts for.
const UNPAGED_ROWS: u32 = 500;
/// Items of the first page of a streamed answer; following pages double. Each page costs a change of
/// threads, and the first row must come within milliseconds.
const PAGE_ITEMS_FIRST: u32 = 500;
/// Most items of a page of a streamed answer.
const PAGE_ITEMS_MAX: u32 = 2000;

/// Returns the rows of a page that are converted together: fewer if they have many bytes.
pub(super) fn rows_at_once(rows: usize, bytes: usize) -> usize {
    let row_bytes = ROW_ROOM_BYTES.max(bytes / rows.max(1));
    (ROWS_AT_ONCE * ROW_ROOM_BYTES / row_bytes).max(1)
}

/// Credentials that were judged, and the client that they prove.
pub(super) struct KnownClient {
    credentials: Option<HeaderValue>,
    act_as: Option<HeaderValue>,
    client: Client,
}

/// The client of a request.
#[derive(Clone)]
pub(super) struct Client {
    requester: Requester,
    checked: Checked,
    /// Issuer of its token, if that is another one than this catalogue.
    trust: Option<Trust>,
}

impl Client {
    /// Makes a client from its requester, and the check of its credentials.
    pub(crate) fn new(requester: Requester, checked: Checked, trust: Option<Trust>) -> Self {
        Client { requester, checked, trust }
    }

    /// Returns the caller of its requests.
    pub(crate) fn caller(&self) -> &Caller {
        &self.requester.caller
    }

    /// Checks the credentials again if they may have become invalid.
    pub(crate) async fn check_again(&mut self, service: &Service) -> Result<()> {
        if self.trust.as_ref().is_some_and(|trust| !trusts(service, trust)) {
            let message = "the issuer of the token is no longer configured here";
            return Err(Error::new(ErrorKind::Unauthenticated, message));
        }
        if service.must_check_again(&self.checked) {
            let checked = service.checking();
            self.requester.caller = Arc::new(service.catalogue.revalidate(&self.requester.caller).await?);
            self.checked = checked;
        }
        Ok(())
    }
}

/// A request that was admitted.
pub(super) struct Call {
    pub service: Arc<Service>,
    client: Client,
    pub cancel: Arc<Cancel>,
    /// Operation id of the client's request; none if it named none.
    id: Option<OperationId>,
    consistency: Option<Consistency>,
    /// Past state that its reads are about; none for the present one.
    past: Option<(Past, Arc<PastState>)>,
    deadline: Instant,
    unread: Unread,
    /// Version that the entry of a change must have.
    version: Option<Revision>,
    /// Number of changes so far: each has an operation id of its own.
    steps: u64,
    /// Number of the last request; 0 before the first.
    last: u64,
    _held: Arc<(Held, Held)>,
}

/// Operation ids that a part of a request takes which goes on by itself.
const STEPS_APART: u64 = 16;

impl Call {
    /// Judges the credentials of a request, and admits it.
    pub(crate) async fn open(conversation: &Conversation, headers: &HeaderMap) -> Result<Self> {
        Call::open_in(conversation, headers, Share::Catalogue).await
    }

    /// Judges the credentials of a request, and admits it to a share.
    pub(crate) async fn open_in(
        conversation: &Conversation,
        headers: &HeaderMap,
        share: Share,
    ) -> Result<Self> {
        let service = &conversation.face.service;
        let mut call = Call::of(conversation, client(conversation, headers).await?, share)?.traced(headers);
        call.consistency = text_of(headers, &CONSISTENCY)?.map(Consistency::parse).transpose()?;
        call.id = text_of(headers, &IDEMPOTENCY_KEY)?.map(operation_id).transpose()?;
        if let Some(id) = call.id {
            check_age(id, service.catalogue.now())?;
        }
        if let Some(wanted) = text_of(headers, &AT_LEAST)? {
            call.wait_for(wanted).await?;
        }
        Ok(call)
    }

    /// Makes the request a part of the client's trace, if it names one.
    #[cfg(feature = "otel")]
    pub(crate) fn traced(mut self, headers: &HeaderMap) -> Self {
        let named = headers.get("traceparent").and_then(|value| value.to_str().ok());
        self.client.requester.trace = named.and_then(crate::traces::TraceContext::parse);
        self
    }

    /// Returns the same request: this program was built without traces.
    #[cfg(not(feature = "otel"))]
    pub(crate) fn traced(self, _headers: &HeaderMap) -> Self {
        self
    }

    /// Admits a request of a client whose credentials were judged.
    pub(crate) fn of(conversation: &Conversation, mut client: Client, share: Share) -> Result<Self> {
        let service = Arc::clone(&conversation.face.service);
        if let Peer::Network(address) = &conversation.peer {
            client.requester.host = Some(address.ip());
        }
        let held = service.admit(&client.requester, 1, share)?;
        Ok(Call {
            client,
            version: None,
            cancel: Arc::default(),
            id: None,
            consistency: None,
            past: None,
            deadline: Instant::now() + service.limits.deadline_max,
            unread: conversation.unread.clone(),
            steps: 0,
            last: 0,
            service,
            _held: Arc::new(held),
        })
    }

    /// Returns the caller.
    pub(crate) fn caller(&self) -> &Caller {
        self.client.caller()
    }

    /// Returns the number of the last request, for the log.
    pub(crate) fn number(&self) -> u64 {
        self.last
    }

    /// Returns the client's user and host, for the log.
    pub(crate) fn requester(&self) -> &Requester {
        &self.client.requester
    }

    /// Waits until the catalogue has a revision, and checks its timeline if one is named.
    async fn wait_for(&mut self, wanted: &str) -> Result<()> {
        let bad =
            |_| Error::invalid(format!("{AT_LEAST} is REVISION or REVISION.TIMELINE, not {wanted:.60?}"));
        let position: LogPosition = wanted.parse().map_err(bad)?;
        let until = Instant::now() + AT_LEAST_TIME;
        loop {
            let now = self.service.catalogue.store().revision().await?;
            if now >= position.revision {
                break;
            }
            if Instant::now() >= until {
                let (now, wanted) = (now.0, position.revision.0);
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "the catalogue is at revision {now}, and did not reach {wanted} in {AT_LEAST_TIME:?}"
                    ),
                ));
            }
            tokio::time::sleep(AT_LEAST_PAUSE).await;
        }
        if position.timeline.is_some() {
            self.ask(Operation::Position { after: position }).await?;
        }
        Ok(())
    }

    /// Requires a version of the entry that the following change is about.
    pub(crate) fn require(&mut self, version: Revision) {
        self.version = Some(version);
    }

    /// Makes the reads of the request be about a past state, and opens that. `operation` is one of them.
    pub(crate) async fn enter_past(&mut self, point: PastPoint, operation: &Operation) -> Result<()> {
        let past = Past::at(point);
        let within = (self.deadline, &*self.cancel);
        let state = self.service.past_state(self.client.caller(), operation, past, within).await?;
        self.past = Some((past, state));
        Ok(())
    }

    /// Returns the storage elements that the request is about.
    pub(crate) fn storage_elements(&self) -> Vec<Arc<Se>> {
        match &self.past {
            Some((_, state)) => state.catalogue.storage_elements(),
            None => self.service.catalogue.storage_elements(),
        }
    }

    /// Returns the names of the storage elements, if they are those of a past state.
    pub(crate) fn past_ses(&self) -> Option<Arc<SeNames>> {
        self.past.as_ref().map(|(_, state)| Arc::clone(&state.ses))
    }

    /// Returns the revision of the catalogue that the request is about.
    pub(crate) async fn revision(&self) -> Result<Revision> {
        if let Some((_, state)) = &self.past {
            return Ok(state.revision);
        }
        self.service.catalogue.store().revision().await
    }

    /// Runs an operation.
    pub(crate) async fn ask(&mut self, operation: Operation) -> Result<Answer> {
        self.asked(operation, Step::First).await
    }

    /// Begins the lines of the log of look-ups for an operation of a client that goes to the files itself.
    pub(crate) fn look_up_lines(&self, operation: &Operation) -> WhereisLines {
        match operation {
            Operation::Whereis { files, site } if self.past.is_none() => {
                self.service.whereis_lines(files, site.as_ref())
            }
            _ => WhereisLines::default(),
        }
    }

    async fn asked(&mut self, operation: Operation, step: Step) -> Result<Answer> {
        self.client.check_again(&self.service).await?;
        let writes = operation.writes();
        let id = match (writes, self.id) {
            (false, _) => OperationId([0; 16]),
            (true, None) => self.service.catalogue.new_operation_id()?,
            (true, Some(id)) => {
                self.steps += 1;
                step_id(id, self.steps - 1)
            }
        };
        let mut requester = self.client.requester.clone();
        if writes && self.version.is_some() {
            requester.caller = Arc::new(requester.caller.requiring(self.version));
        }
        let work = OperationTask {
            requester,
            id,
            operation,
            consistency: self.consistency,
            past: self.past.as_ref().map(|(past, _)| *past),
            deadline: self.deadline,
            cancel: Arc::clone(&self.cancel),
            step,
            uploads_checked: false,
        };
        if !writes {
            let (number, outcome) = self.service.ask_numbered(work).await;
            self.last = number;
            return outcome;
        }
        // A task of its own: a change must not be dropped in the middle because the client has gone.
        let service = Arc::clone(&self.service);
        match tokio::spawn(async move { service.ask_numbered(work).await }).await {
            Ok((number, outcome)) => {
                self.last = number;
                outcome
            }
            Err(error) => Err(Error::new(ErrorKind::Unknown, format!("the work on it was lost: {error}"))),
        }
    }

    /// Returns a page of at most `limit` items, and the room for it. The page is small if unread
    /// answers use up the room of all.
    pub(crate) async fn page(&mut self, operation: Operation, limit: u32) -> Result<(Answer, Room)> {
        let rows = limit_of(&operation).map_or(UNPAGED_ROWS, |asked| match asked {
            0 => limit,
            asked => limit.min(asked),
        });
        let (mut room, mut most) = (self.room(rows).await, limit);
        loop {
            let page = self.unread.paged(operation.clone(), most, room.is_small());
            let answer = self.ask(page).await?;
            match self.unread.fewer(&mut room, &answer) {
                Some(fewer) if limit_of(&operation).is_some() => {
                    drop((answer, room));
                    (room, most) = (self.unread.small_room().await, fewer);
                }
                _ => return Ok((answer, room)),
            }
        }
    }

    /// Corrects the room of a part: see [`Unread::fewer`].
    pub(crate) fn fewer(&self, room: &mut Room, answer: &Answer) -> Option<usize> {
        self.unread.fewer(room, answer).map(|items| items as usize)
    }

    /// Waits for room for a small part of a long answer.
    pub(crate) async fn small_room(&self) -> Room {
        self.unread.small_room().await
    }

    /// Takes room for a whole answer of so many bytes, unless it is short.
    pub(crate) fn room_of_whole(&self, bytes: usize) -> Result<Option<Room>> {
        if bytes <= self.service.limits.own_unread_bytes_max {
            return Ok(None);
        }
        match Room::of_made(&self.service.admission, bytes) {
            Some(room) => Ok(Some(room)),
            None => Err(busy(UNREAD)),
        }
    }

    /// Returns the parts of the request's body.
    pub(crate) fn frames(&self, body: Incoming) -> Frames {
        Frames { body, stall: self.service.limits.output_stall, until: self.deadline }
    }

    /// Streams the pages of an answer: see [`Pages`].
    pub(crate) fn pages(self, operation: Operation) -> Pages {
        let row_bytes = ROW_ROOM_BYTES;
        Pages { call: self, next: Some(operation), items: PAGE_ITEMS_FIRST, row_bytes, step: Step::First }
    }

    /// Waits until the throttles of the client let so many items through.
    pub(crate) async fn throttled(&self, items: u64) -> Result<()> {
        match self.service.admission.throttles.concern(self.caller()) {
            true => self.service.items_throttled(self.caller(), items, self.deadline, &self.cancel).await,
            false => Ok(()),
        }
    }

    /// Returns a part of the same request, for work that goes on if the client goes away. Its changes
    /// have operation ids of their own.
    pub(crate) fn again(&mut self) -> Self {
        let steps = self.steps;
        self.steps += STEPS_APART;
        Call {
            service: Arc::clone(&self.service),
            client: self.client.clone(),
            cancel: Arc::default(),
            id: self.id,
            consistency: self.consistency,
            past: self.past.clone(),
            deadline: self.deadline,
            unread: self.unread.clone(),
            version: self.version,
            steps,
            last: 0,
            _held: Arc::clone(&self._held),
        }
    }

    /// Starts the deadline anew, for an answer that goes on for ever.
    pub(crate) fn prolong(&mut self) {
        self.deadline = Instant::now() + self.service.limits.deadline_max;
    }

    /// Takes a turn among long reads to convert rows to text, unless they are converted at once.
    /// Look-ups share their threads with that work, so it must not pile up.
    pub(super) async fn turn(&self, rows: usize, at_once: usize) -> Option<Turn> {
        if rows <= at_once {
            return None;
        }
        let share = &self.client.requester.share;
        Some(self.service.admission.heavy.enter(share.user, share.weight, Step::Next)?.await)
    }

    /// Takes a turn among long reads. Refuses the request if too many wait.
    pub(super) async fn long_read(&self) -> Result<Turn> {
        let share = &self.client.requester.share;
        let entered = self.service.admission.heavy.enter(share.user, share.weight, Step::First);
        let entered = entered.ok_or_else(|| busy("long reads that wait their turn"))?;
        let turn = tokio::time::timeout_at(self.deadline.into(), on(RequestState::Admission, entered)).await;
        turn.map_err(|_| crate::service::too_late())
    }

    /// Waits for room for a part of a long answer with so many rows.
    pub(crate) async fn room(&self, rows: u32) -> Room {
        self.unread.room(rows as usize * ROW_ROOM_BYTES).await
    }
}

/// The pages of a long answer.
pub(super) struct Pages {
    pub call: Call,
    next: Option<Operation>,
    items: u32,
    /// Bytes of a row of the last page.
    row_bytes: usize,
    step: Step,
}

impl Pages {
    /// Returns the next page and the room for it; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<(Answer, Room)>> {
        let Some(operation) = self.next.take() else { return Ok(None) };
        let unread = self.call.unread.clone();
        let bytes = (self.items as usize * self.row_bytes).min(PAGE_MEMORY_MAX);
        let mut room = self.unless_cancelled(unread.room(bytes)).await?;
        let answer = loop {
            if room.is_small() {
                self.items = unread.small_items(self.items, self.row_bytes);
            }
            // The client decides how long the whole takes.
            self.call.prolong();
            let page = unread.paged(operation.clone(), self.items, room.is_small());
            let answer = self.call.asked(page, self.step).await?;
            if items_of(&answer) > 0 {
                self.row_bytes = ROW_ROOM_BYTES.max(answer.bytes() / items_of(&answer) as usize);
            }
            let Some(fewer) = unread.fewer(&mut room, &answer) else { break answer };
            drop((answer, room));
            self.items = fewer;
            room = self.unless_cancelled(unread.small_room()).await?;
        };
        self.next = answer.next().and_then(|cursor| operation.resumed(cursor.clone()));
        self.items = (self.items * 2).min(PAGE_ITEMS_MAX);
        self.step = Step::Next;
        Ok(Some((answer, room)))
    }

    /// Waits for room, unless the client goes away before.
    async fn unless_cancelled(&self, room: impl Future<Output = Room>) -> Result<Room> {
        tokio::select! {
            room = room => Ok(room),
            () = self.call.cancel.cancelled() => Err(crate::service::cancelled()),
        }
    }
}

/// Returns the client that the credentials of a request prove. The connection keeps the last ones.
async fn client(conversation: &Conversation, headers: &HeaderMap) -> Result<Client> {
    let service = &conversation.face.service;
    let (credentials, act_as) = (headers.get(AUTHORIZATION), headers.get(&ACT_AS));
    if let Some(known) = &*conversation.known.lock()
        && known.credentials.as_ref() == credentials
        && known.act_as.as_ref() == act_as
        && !service.must_check_again(&known.client.checked)
        && known.client.trust.as_ref().is_none_or(|trust| trusts(service, trust))
    {
        return Ok(known.client.clone());
    }
    let client = judged(conversation, headers, credentials).await.inspect_err(|error| {
        if error.kind == ErrorKind::Unauthenticated {
            count(&service.instruments.counts.authentications_refused);
        }
    })?;
    if (credentials.is_some() || conversation.certificate.is_some())
        && let Some(slot) = &conversation.slot
    {
        slot.lock().known();
    }
    let known =
        KnownClient { credentials: credentials.cloned(), act_as: act_as.cloned(), client: client.clone() };
    *conversation.known.lock() = Some(known);
    Ok(client)
}

fn trusts(service: &Service, trust: &Trust) -> bool {
    service.issuers.get().is_some_and(|issuers| issuers.trusts(trust))
}

/// Judges credentials: a token, or the certificate of the connection. Without any, the client is
/// anonymous.
async fn judged(
    conversation: &Conversation,
    headers: &HeaderMap,
    credentials: Option<&HeaderValue>,
) -> Result<Client> {
    let service = &conversation.face.service;
    let act_as = text_of(headers, &ACT_AS)?.map(AccountName::parse).transpose()?;
    let client = match (credentials.map(bearer).transpose()?, &conversation.certificate) {
        (None, Some(certificate)) => {
            let checked = service.checking();
            Client::new(service.requester(certificate.caller(&service.catalogue).await?), checked, None)
        }
        (token, _) => prove(conversation, token).await?,
    };
    let Some(name) = act_as else { return Ok(client) };
    let caller = service.catalogue.become_user(client.caller(), &name).await?;
    Ok(Client { requester: service.requester(caller), ..client })
}

/// Judges a token of another issuer or of this catalogue. Without one, the client is anonymous.
pub(super) async fn prove(conversation: &Conversation, token: Option<Secret>) -> Result<Client> {
    let service = &conversation.face.service;
    if let (Some(token), Some(issuers)) = (&token, service.issuers.get())
        && is_foreign(token.expose())
    {
        let checked = service.checking();
        let (caller, trust) = issuers.caller(&service.catalogue, token.expose()).await?;
        return Ok(Client::new(service.requester(caller), checked, Some(trust)));
    }
    let credentials = token.map_or(Credentials::Anonymous, Credentials::Token);
    let session =
        Session::open(service, &conversation.peer, Authenticate { credentials, act_as: None }).await?;
    Ok(Client::new(session.requester.clone(), session.checked, None))
}

fn bearer(value: &HeaderValue) -> Result<Secret> {
    let bad = || {
        Error::new(ErrorKind::Unauthenticated, "the header Authorization is not of the form 'Bearer TOKEN'")
    };
    let text = value.to_str().map_err(|_| bad())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(bad)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(bad());
    }
    Ok(Secret::new(token.trim()))
}

/// Returns the text of a header.
pub(super) fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Error::invalid(format!("the header {name} is not plain text")))
}

/// Reads an operation id: a UUID of version 7, with or without quotes.
fn operation_id(text: &str) -> Result<OperationId> {
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let bad = || {
        Error::invalid(format!(
            "{IDEMPOTENCY_KEY} is a UUID of version 7, which has the time in it, not {bare:.60?}; GET \
             /api/v1/operation-id makes one"
        ))
    };
    let guid = Guid::parse(bare).map_err(|_| bad())?;
    if guid.version() != Some(7) {
        return Err(bad());
    }
    Ok(OperationId(guid.0))
}

/// Refuses an operation id that is too old to be known, or of a clock far ahead.
fn check_age(id: OperationId, now: TimeMs) -> Result<()> {
    let made = id.made().0;
    let is_good = made.saturating_add(OPERATION_AGE_MAX_MS) >= now.0
        && made <= now.0.saturating_add(OPERATION_AHEAD_MAX_MS);
    if is_good {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!(
            "{IDEMPOTENCY_KEY} is too old or of a clock that is ahead: GET /api/v1/operation-id makes a new one"
        ),
    ))
}

/// Reads a whole body of at most `most` bytes. The client must send as many bytes in a time as it
/// must read of answers.
pub(super) async fn whole(service: &Service, body: Incoming, most: usize) -> Result<(Bytes, BodyRoom)> {
    whole_in(service, Share::Catalogue, body, most).await
}

/// Reads a whole body whose bytes count towards a share.
pub(super) async fn whole_in(
    service: &Service,
    share: Share,
    body: Incoming,
    most: usize,
) -> Result<(Bytes, BodyRoom)> {
    let limits = &service.limits;
    let stall = limits.output_stall;
    let mut frames = Frames { body, stall, until: Instant::now() + limits.deadline_max };
    let (mut bytes, mut room) = (Vec::new(), BodyRoom { share, ..BodyRoom::default() });
    let (mut since, mut seen) = (Instant::now(), 0);
    while let Some(part) = frames.next().await? {
        let length = bytes.len() + part.len();
        if length > most {
            return Err(Error::limit("the length of the body in bytes", length, most));
        }
        room.fit(service, length)?;
        bytes.extend_from_slice(&part);
        if bytes.len() - seen >= limits.output_progress_bytes {
            (since, seen) = (Instant::now(), bytes.len());
        } else if since.elapsed() >= stall {
            return Err(stalled());
        }
    }
    Ok((bytes.into(), room))
}

/// Room for a body among the bytes of all requests; dropping it gives it back.
#[derive(Default)]
pub(super) struct BodyRoom {
    share: Share,
    held: Vec<Held>,
    bytes: usize,
}

impl BodyRoom {
    /// Makes room for a body that has so many bytes now.
    pub(crate) fn fit(&mut self, service: &Service, bytes: usize) -> Result<()> {
        if bytes > self.bytes {
            let more = (bytes - self.bytes).max(BODY_ROOM_BYTES);
            self.held.push(service.admission.take_bytes(more, self.share)?);
            self.bytes += more;
        }
        Ok(())
    }
}

/// The body of a request, part by part.
pub(super) struct Frames {
    body: Incoming,
    /// Longest wait for a part.
    stall: Duration,
    /// Time at which the body must have ended.
    until: Instant,
}

fn stalled() -> Error {
    Error::new(ErrorKind::Unavailable, "the body of the request did not come in time")
}

impl Frames {
    /// Returns the next part; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let until = self.until.min(Instant::now() + self.stall);
            let frame = tokio::time::timeout_at(until.into(), self.body.frame());
            let frame = on(RequestState::ClientRead, frame).await;
            match frame.map_err(|_| stalled())? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    return Err(Error::invalid(format!("the body of the request broke off: {error}")));
                }
            }
        }
    }
}

/// Decodes a percent-encoded text, once.
pub(super) fn decoded(text: &str, plus_is_blank: bool) -> Result<String> {
    percent::decode(text, plus_is_blank).map_err(|why| Error::invalid(format!("the text {text:.100?} {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_id_is_a_uuid_of_version_7() {
        let text = "01a20b0c-cdad-75f4-af3d-5016166cc5bd";
        assert_eq!(operation_id(text).unwrap(), operation_id(&format!("\"{text}\"")).unwrap());
        for bad in ["", "x", "8e03978e-40d5-43e8-bc93-6894a57f9324", "\"01a20b0c-cdad-75f4-af3d-5016166cc5bd"]
        {
            assert!(operation_id(bad).is_err(), "{bad}");
        }
    }
}
