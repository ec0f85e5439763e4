//! Long answers: pages as JSON lines or server-sent events, and bulk requests of JSON lines.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use exacat_feed::Kinds;
use exacat_history::History;
use exacat_model::codec::Decode;
use exacat_model::operation::{Existing, FileRef, NewFile, ReplicaEdit};
use exacat_model::{
    AccountName, Answer, Error, ErrorKind, Guid, Lfn, LogPosition, Operation, Result, Revision,
};
use exacat_wire::json::SeNames;
use exacat_wire::json::requests::{FileIn, GuidIn, LfnIn, NewFileIn, Parsed, ReplicaEditsIn};
use hyper::Response;
use hyper::header::CONTENT_TYPE;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::answers::{Body, BodyPart, CancelOnDrop, empty, in_room, set};
use super::super::call::{BodyRoom, Call, Frames, Pages};
use super::arguments::{Arguments, json};
use super::endpoints::{Lines, View};
use super::render::{Failures, Names, Objects, Renderer};
use super::tables::{Table, TableForm};
use crate::admission::Room;
use crate::elements::apart;
use crate::service::cancelled;

/// Parts of an answer between the work on it and the connection.
const PARTS_AHEAD: usize = 2;
/// Most bytes of a line of a bulk request.
const LINE_BYTES_MAX: usize = 2 << 20;
/// Most items of a bulk request in one operation.
const BATCH_ITEMS_MAX: usize = 1000;
/// Bytes of lines after which a bulk request runs an operation.
const BATCH_BYTES: usize = 1 << 20;
/// Interval of comments in an idle stream of changes, so that both ends find a dead connection.
const ALIVE_TIME: Duration = Duration::from_secs(15);

/// Makes an answer whose parts follow. The work stops if the client goes away.
fn streamed(call: &Call, content_type: &str) -> (Response<Body>, Outlet) {
    let (sender, parts) = mpsc::channel(PARTS_AHEAD);
    let mut response = empty(hyper::StatusCode::OK);
    *response.body_mut() = Body::Parts { parts, _cancel: CancelOnDrop(Arc::clone(&call.cancel)) };
    set(&mut response, CONTENT_TYPE, content_type);
    (response, Outlet { sender })
}

/// Takes the parts of an answer.
struct Outlet {
    sender: mpsc::Sender<BodyPart>,
}

impl Outlet {
    /// Sends a part, after the client has taken most of those before.
    async fn put(&self, bytes: Vec<u8>, room: Option<Room>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes = match room {
            Some(room) => in_room(bytes, room),
            None => bytes.into(),
        };
        self.sender.send(BodyPart::Bytes(bytes)).await.map_err(|_| cancelled())
    }

    /// Ends the answer: with an error, if there was one, as its last object.
    async fn end(self, outcome: Result<()>, mut last: Objects) {
        if let Err(error) = outcome
            && (last.fail(&error, String::new()).is_err() || self.put(last.bytes, None).await.is_err())
        {
            return;
        }
        // The client may be gone.
        let _ = self.sender.send(BodyPart::End).await;
    }
}

/// Streams all pages of an operation as JSON lines. An error of the first page is the error of the
/// request; a later one is the last line.
pub(super) async fn lines(
    call: Call,
    operation: Operation,
    view: View,
    ses: Arc<SeNames>,
    content_type: &str,
) -> Result<Response<Body>> {
    let names = Names::of(&operation);
    let mut pages = call.pages(operation);
    let first = pages.next().await?;
    let (response, outlet) = streamed(&pages.call, content_type);
    tokio::spawn(async move {
        let renderer = Renderer { names: &names, view, failures: Failures::Request, ses: &ses };
        let outcome = put_pages(&mut pages, first, &renderer, &outlet).await;
        outlet.end(outcome, Objects::lines()).await;
    });
    Ok(response)
}

/// Streams all pages of an operation on elements as a table. A later error breaks the answer off.
pub(super) async fn table(
    call: Call,
    operation: Operation,
    history: Arc<History>,
    form: TableForm,
) -> Result<Response<Body>> {
    let mut pages = call.pages(operation.clone());
    // The first page judges the client's rights.
    let mut page = pages.next().await?;
    // A pattern is compared with all names.
    let (mut table, mut bytes) = apart(move || Table::begin(&operation, &history, form)).await?;
    let (response, outlet) = streamed(&pages.call, form.content_type());
    tokio::spawn(async move {
        let work = async {
            while let Some((answer, room)) = page {
                table.put(&answer, &mut bytes)?;
                outlet.put(std::mem::take(&mut bytes), Some(room)).await?;
                page = pages.next().await?;
            }
            bytes.extend(table.end()?);
            outlet.put(bytes, None).await
        };
        match work.await {
            Ok(()) => outlet.end(Ok(()), Objects::lines()).await,
            Err(error) => tracing::debug!(%error, "a table broke off"),
        }
    });
    Ok(response)
}

async fn put_pages(
    pages: &mut Pages,
    mut page: Option<(Answer, Room)>,
    renderer: &Renderer<'_>,
    outlet: &Outlet,
) -> Result<()> {
    while let Some((answer, room)) = page {
        let mut objects = Objects::lines();
        renderer.render_page(&pages.call, answer, &mut objects).await?;
        outlet.put(objects.bytes, Some(room)).await?;
        page = pages.next().await?;
    }
    Ok(())
}

/// A request for changes.
pub(super) struct Changes {
    pub after: LogPosition,
    pub under: Option<Lfn>,
    pub kinds: Kinds,
    /// At the end wait for further ones.
    pub wait: bool,
    /// As server-sent events; else as JSON lines.
    pub events: bool,
}

impl Changes {
    fn operation(&self, after: LogPosition, wait: bool) -> Operation {
        Operation::Changes { after, under: self.under.clone(), limit: BATCH_ITEMS_MAX as u32, wait }
    }

    fn objects(&self) -> Objects {
        if self.events { Objects::events() } else { Objects::lines() }
    }

    /// Returns the bytes that keep a connection alive; parsers of both forms ignore them. An event without
    /// data sets the place to resume at, which changes that are not shown have moved on.
    fn alive(&self, after: LogPosition) -> Vec<u8> {
        if self.events { format!("id: {after}\n: alive\n\n").into_bytes() } else { b"\n".to_vec() }
    }
}

/// Streams changes. An error of the first page is the error of the request.
pub(super) async fn changes(
    mut call: Call,
    changes: Changes,
    ses: impl Fn() -> Arc<SeNames> + Send + 'static,
    content_type: &str,
) -> Result<Response<Body>> {
    let first = call.page(changes.operation(changes.after, false), BATCH_ITEMS_MAX as u32).await?;
    let (response, outlet) = streamed(&call, content_type);
    tokio::spawn(async move {
        let outcome = put_changes(&mut call, &changes, first, ses, &outlet).await;
        outlet.end(outcome, changes.objects()).await;
    });
    Ok(response)
}

async fn put_changes(
    call: &mut Call,
    changes: &Changes,
    mut next: (Answer, Room),
    ses: impl Fn() -> Arc<SeNames>,
    outlet: &Outlet,
) -> Result<()> {
    let names = Names::Subject("changes".to_owned());
    let mut alive_at = Instant::now() + ALIVE_TIME;
    loop {
        let (mut page, room) = next;
        let (mut after, at_end) = resumes(&page)?;
        keep(&mut page, changes.kinds);
        let renderer = Renderer { names: &names, view: View::All, failures: Failures::Request, ses: &ses() };
        let mut objects = changes.objects();
        renderer.render(page, &mut objects)?;
        let is_empty = objects.count == 0;
        if !is_empty {
            outlet.put(objects.bytes, Some(room)).await?;
            alive_at = Instant::now() + ALIVE_TIME;
        } else if Instant::now() >= alive_at {
            outlet.put(changes.alive(after), None).await?;
            alive_at = Instant::now() + ALIVE_TIME;
        }
        if at_end && !changes.wait {
            return Ok(());
        }
        call.prolong();
        if at_end && is_empty {
            after = awaited(call, changes, after, &mut alive_at, outlet).await?;
        }
        next = call.page(changes.operation(after, false), BATCH_ITEMS_MAX as u32).await?;
    }
}

/// Returns the place after a page of changes, and whether it is the end of the history.
fn resumes(page: &Answer) -> Result<(LogPosition, bool)> {
    let Answer::Changes { items, next, up_to, timeline, .. } = page else {
        return Err(Error::new(ErrorKind::Internal, "an answer that does not fit the request"));
    };
    let last = items.last().map_or(Revision(0), |item| item.change.revision);
    let after = match next {
        Some(next) => LogPosition::from_bytes(&next.0)
            .map_err(|_| Error::new(ErrorKind::Internal, "a cursor that cannot be read"))?,
        None => LogPosition { revision: last.max(*up_to), timeline: Some(timeline.whole()) },
    };
    Ok((after, next.is_none()))
}

/// Leaves out changes of other kinds.
pub(super) fn keep(page: &mut Answer, kinds: Kinds) {
    if let Answer::Changes { items, .. } = page {
        items.retain(|item| kinds.show(&item.change.effect));
    }
}

/// Waits for a further change, and keeps the connection alive meanwhile. Returns the place to go on at.
async fn awaited(
    call: &mut Call,
    changes: &Changes,
    after: LogPosition,
    alive_at: &mut Instant,
    outlet: &Outlet,
) -> Result<LogPosition> {
    loop {
        let waiting = Operation::Changes { after, under: changes.under.clone(), limit: 1, wait: true };
        if let Ok(page) = tokio::time::timeout_at(*alive_at, call.ask(waiting)).await {
            let page = page?;
            let is_wanted = matches!(&page, Answer::Changes { items, .. } if !items.is_empty());
            return if is_wanted { Ok(after) } else { Ok(resumes(&page)?.0) };
        }
        outlet.put(changes.alive(after), None).await?;
        *alive_at = Instant::now() + ALIVE_TIME;
        call.prolong();
    }
}

/// Items of a bulk request that wait for their operation.
#[derive(Clone)]
enum Batch {
    Lfns(Vec<Lfn>),
    Files(Vec<FileRef>),
    Guids(Vec<Guid>),
    New(Vec<NewFile>),
    Edits(Vec<(FileRef, Vec<ReplicaEdit>)>),
}

/// A bulk request.
pub(super) struct Bulk {
    lines: Lines,
    follow: bool,
    parents: bool,
    existing: Existing,
    site: Option<AccountName>,
}

impl Bulk {
    /// Reads the arguments.
    pub(crate) fn new(lines: Lines, arguments: &Arguments) -> Result<Self> {
        let existing = arguments.given("existing")?.unwrap_or("refuse");
        Ok(Bulk {
            lines,
            follow: arguments.flag("follow")?,
            parents: arguments.flag("parents")?,
            existing: exacat_wire::json::requests::existing(existing)?,
            site: arguments.parsed("site")?,
        })
    }

    /// Returns the name of its operation.
    #[cfg(test)]
    pub(crate) fn name(&self) -> &'static str {
        self.operation(self.empty()).name()
    }

    fn writes(&self) -> bool {
        matches!(self.lines, Lines::Register | Lines::Replicas)
    }

    fn empty(&self) -> Batch {
        match self.lines {
            Lines::Stat | Lines::Usage => Batch::Lfns(Vec::new()),
            Lines::Whereis => Batch::Files(Vec::new()),
            Lines::Names => Batch::Guids(Vec::new()),
            Lines::Register => Batch::New(Vec::new()),
            Lines::Replicas => Batch::Edits(Vec::new()),
        }
    }

    fn operation(&self, batch: Batch) -> Operation {
        match batch {
            Batch::Lfns(lfns) if self.lines == Lines::Usage => Operation::Du { lfns },
            Batch::Lfns(lfns) => Operation::Stat { lfns, follow: self.follow },
            Batch::Files(files) => Operation::Whereis { files, site: self.site.clone() },
            Batch::Guids(guids) => Operation::Lfns { guids },
            Batch::New(files) => {
                Operation::Register { files, parents: self.parents, existing: self.existing }
            }
            Batch::Edits(edits) => Operation::SetReplicas { edits },
        }
    }
}

impl Batch {
    /// Adds the item of a line.
    fn push(&mut self, line: &[u8]) -> Result<()> {
        match self {
            Batch::Lfns(all) => {
                let LfnIn { lfn: Parsed(lfn) } = json(line)?;
                all.push(lfn);
            }
            Batch::Files(all) => all.push(json::<FileIn>(line)?.try_into()?),
            Batch::Guids(all) => {
                let GuidIn { guid: Parsed(guid) } = json(line)?;
                all.push(guid);
            }
            Batch::New(all) => all.push(json::<NewFileIn>(line)?.file(None)?),
            Batch::Edits(all) => all.push(json::<ReplicaEditsIn>(line)?.edits(None)?),
        }
        Ok(())
    }

    /// Returns the items after the first so many, and keeps those.
    fn split_off(&mut self, at: usize) -> Batch {
        let at = at.min(self.len());
        match self {
            Batch::Lfns(all) => Batch::Lfns(all.split_off(at)),
            Batch::Files(all) => Batch::Files(all.split_off(at)),
            Batch::Guids(all) => Batch::Guids(all.split_off(at)),
            Batch::New(all) => Batch::New(all.split_off(at)),
            Batch::Edits(all) => Batch::Edits(all.split_off(at)),
        }
    }

    /// Puts the items of a batch of the same kind after those of this one.
    fn with(mut self, rest: Batch) -> Batch {
        match (&mut self, rest) {
            (Batch::Lfns(all), Batch::Lfns(mut rest)) => all.append(&mut rest),
            (Batch::Files(all), Batch::Files(mut rest)) => all.append(&mut rest),
            (Batch::Guids(all), Batch::Guids(mut rest)) => all.append(&mut rest),
            (Batch::New(all), Batch::New(mut rest)) => all.append(&mut rest),
            (Batch::Edits(all), Batch::Edits(mut rest)) => all.append(&mut rest),
            // A request has items of one kind.
            _ => {}
        }
        self
    }

    fn len(&self) -> usize {
        match self {
            Batch::Lfns(all) => all.len(),
            Batch::Files(all) => all.len(),
            Batch::Guids(all) => all.len(),
            Batch::New(all) => all.len(),
            Batch::Edits(all) => all.len(),
        }
    }
}

/// Answers a bulk request while it comes in.
pub(super) fn bulk(
    mut call: Call,
    bulk: Bulk,
    body: Frames,
    ses: Arc<SeNames>,
    content_type: &str,
) -> Response<Body> {
    let (response, outlet) = streamed(&call, content_type);
    tokio::spawn(async move {
        let outcome = answer_lines(&mut call, &bulk, body, &ses, &outlet).await;
        outlet.end(outcome, Objects::lines()).await;
    });
    response
}

/// A bulk request under way.
struct Running<'a> {
    call: &'a mut Call,
    bulk: &'a Bulk,
    ses: &'a SeNames,
    outlet: &'a Outlet,
    batch: Batch,
    batch_bytes: usize,
    /// Room for the lines that wait.
    room: BodyRoom,
    /// Number of lines so far.
    lines: u64,
}

impl Running<'_> {
    /// Takes a line.
    async fn line(&mut self, line: &[u8]) -> Result<()> {
        self.lines += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        if let Err(error) = self.batch.push(line) {
            // The answers stay in the order of the lines.
            self.flush().await?;
            let mut objects = Objects::lines();
            objects.fail(&error, format!("line {}", self.lines))?;
            return self.outlet.put(objects.bytes, None).await;
        }
        self.batch_bytes += line.len();
        self.room.fit(&self.call.service, self.batch_bytes)?;
        if self.batch.len() >= BATCH_ITEMS_MAX || self.batch_bytes >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Runs an operation for the items that wait.
    async fn flush(&mut self) -> Result<()> {
        let mut batch = std::mem::replace(&mut self.batch, self.bulk.empty());
        let _room = std::mem::take(&mut self.room);
        self.batch_bytes = 0;
        // A repeated request must have the same changes, so those are never divided.
        let divides = !self.bulk.writes();
        let (mut most, mut room) = (BATCH_ITEMS_MAX, None);
        while batch.len() > 0 {
            let mut taken = match room.take() {
                Some(room) => room,
                None => self.call.room(batch.len().min(most) as u32).await,
            };
            let rest = if divides {
                let small = self.call.service.limits.small_part_items_max as usize;
                batch.split_off(if taken.is_small() { small.min(most) } else { most })
            } else {
                self.bulk.empty()
            };
            let part = std::mem::replace(&mut batch, rest);
            let count = part.len();
            let again = (divides && count > 1).then(|| part.clone());
            let operation = self.bulk.operation(part);
            let names = Names::of(&operation);
            let mut look_ups = self.call.look_up_lines(&operation);
            self.call.prolong();
            let outcome = self.call.ask(operation).await;
            let fewer = match &outcome {
                // Together the entries have too many bytes; half of them have fewer.
                Err(error) if error.kind == ErrorKind::Limit => Some(most.min(count) / 2),
                Err(_) => None,
                Ok(answer) => self.call.fewer(&mut taken, answer),
            };
            if let (Some(fewer), Some(again)) = (fewer, again) {
                let refused = outcome.is_err();
                drop((outcome, taken));
                (most, batch) = (fewer.max(1), again.with(batch));
                room = if refused { None } else { Some(self.call.small_room().await) };
                continue;
            }
            let answer = outcome?;
            look_ups.all(&answer);
            look_ups.write();
            let mut objects = Objects::lines();
            let renderer =
                Renderer { names: &names, view: View::All, failures: Failures::Items, ses: self.ses };
            renderer.render(answer, &mut objects)?;
            self.outlet.put(objects.bytes, Some(taken)).await?;
        }
        Ok(())
    }
}

async fn answer_lines(
    call: &mut Call,
    bulk: &Bulk,
    mut body: Frames,
    ses: &SeNames,
    outlet: &Outlet,
) -> Result<()> {
    let service = Arc::clone(&call.service);
    let (batch, room) = (bulk.empty(), BodyRoom::default());
    let mut running = Running { call, bulk, ses, outlet, batch, batch_bytes: 0, room, lines: 0 };
    // The start of a line whose end has not come yet, and its room.
    let (mut rest, mut room) = (BytesMut::new(), BodyRoom::default());
    while let Some(bytes) = body.next().await? {
        let mut bytes: Bytes = bytes;
        while let Some(end) = memchr::memchr(b'\n', &bytes) {
            let line = bytes.split_to(end + 1);
            let line = &line[..end];
            if rest.is_empty() {
                running.line(line).await?;
            } else {
                rest.extend_from_slice(line);
                let whole = rest.split();
                running.line(&whole).await?;
                room = BodyRoom::default();
            }
        }
        if rest.len() + bytes.len() > LINE_BYTES_MAX {
            running.flush().await?;
            return Err(Error::limit(
                "the length of a line in bytes",
                rest.len() + bytes.len(),
                LINE_BYTES_MAX,
            ));
        }
        room.fit(&service, rest.len() + bytes.len())?;
        rest.extend_from_slice(&bytes);
    }
    if !rest.is_empty() {
        running.line(&rest).await?;
    }
    running.flush().await
}
