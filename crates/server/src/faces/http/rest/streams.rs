//! Long answers: pages as JSON lines or server-sent events, and bulk requests of JSON lines.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
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

use super::super::answers::{Body, BodyPart, CancelOnDrop, empty, in_room, set};
use super::super::call::{Call, Frames, Pages};
use super::arguments::{Arguments, json};
use super::endpoints::{Lines, View};
use super::render::{Failures, Names, Objects, Renderer};
use crate::admission::Room;
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

async fn put_pages(
    pages: &mut Pages,
    mut page: Option<(Answer, Room)>,
    renderer: &Renderer<'_>,
    outlet: &Outlet,
) -> Result<()> {
    while let Some((answer, room)) = page {
        let mut objects = Objects::lines();
        renderer.render(answer, &mut objects)?;
        outlet.put(objects.bytes, Some(room)).await?;
        page = pages.next().await?;
    }
    Ok(())
}

/// A request for changes.
pub(super) struct Changes {
    pub after: LogPosition,
    pub under: Option<Lfn>,
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
}

/// Streams changes. An error of the first page is the error of the request.
pub(super) async fn changes(
    mut call: Call,
    changes: Changes,
    ses: impl Fn() -> Arc<SeNames> + Send + 'static,
    content_type: &str,
) -> Result<Response<Body>> {
    let first = call.ask(changes.operation(changes.after, false)).await?;
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
    mut page: Answer,
    ses: impl Fn() -> Arc<SeNames>,
    outlet: &Outlet,
) -> Result<()> {
    let names = Names::Subject("changes".to_owned());
    loop {
        let Answer::Changes { items, next, up_to, timeline, .. } = &page else {
            return Err(Error::new(ErrorKind::Internal, "an answer that does not fit the request"));
        };
        let last = items.last().map_or(Revision(0), |item| item.change.revision);
        let after = match next {
            Some(next) => LogPosition::from_bytes(&next.0)
                .map_err(|_| Error::new(ErrorKind::Internal, "a cursor that cannot be read"))?,
            None => LogPosition { revision: last.max(*up_to), timeline: Some(timeline.whole()) },
        };
        let at_end = next.is_none();
        let renderer = Renderer { names: &names, view: View::All, failures: Failures::Request, ses: &ses() };
        let room = call.room().await;
        let mut objects = changes.objects();
        renderer.render(page, &mut objects)?;
        outlet.put(objects.bytes, Some(room)).await?;
        if at_end && !changes.wait {
            return Ok(());
        }
        call.prolong();
        page = match call.ask(changes.operation(after, false)).await? {
            Answer::Changes { items, next: None, .. } if items.is_empty() => {
                awaited(call, changes, after, outlet).await?
            }
            page => page,
        };
    }
}

/// Waits for further changes, and keeps the connection alive meanwhile.
async fn awaited(call: &mut Call, changes: &Changes, after: LogPosition, outlet: &Outlet) -> Result<Answer> {
    loop {
        let waiting = call.ask(changes.operation(after, true));
        if let Ok(page) = tokio::time::timeout(ALIVE_TIME, waiting).await {
            return page;
        }
        // Parsers of both forms ignore it. An event without data sets the place to resume at, which
        // changes elsewhere than below `under` have moved on.
        let alive = if changes.events { format!("id: {after}\n: alive\n\n") } else { "\n".to_owned() };
        outlet.put(alive.into_bytes(), None).await?;
        call.prolong();
    }
}

/// Items of a bulk request that wait for their operation.
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
    pub fn new(lines: Lines, arguments: &Arguments) -> Result<Self> {
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
    pub fn name(&self) -> &'static str {
        self.operation(self.empty()).name()
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
        if self.batch.len() >= BATCH_ITEMS_MAX || self.batch_bytes >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Runs an operation for the items that wait.
    async fn flush(&mut self) -> Result<()> {
        if self.batch.len() == 0 {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, self.bulk.empty());
        self.batch_bytes = 0;
        let operation = self.bulk.operation(batch);
        let names = Names::of(&operation);
        let room = self.call.room().await;
        self.call.prolong();
        let answer = self.call.ask(operation).await?;
        let mut objects = Objects::lines();
        let renderer = Renderer { names: &names, view: View::All, failures: Failures::Items, ses: self.ses };
        renderer.render(answer, &mut objects)?;
        self.outlet.put(objects.bytes, Some(room)).await
    }
}

async fn answer_lines(
    call: &mut Call,
    bulk: &Bulk,
    mut body: Frames,
    ses: &SeNames,
    outlet: &Outlet,
) -> Result<()> {
    let mut running = Running { call, bulk, ses, outlet, batch: bulk.empty(), batch_bytes: 0, lines: 0 };
    // The start of a line whose end has not come yet.
    let mut rest = BytesMut::new();
    while let Some(bytes) = body.next().await? {
        let mut bytes: Bytes = bytes;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line = bytes.split_to(end + 1);
            let line = &line[..end];
            if rest.is_empty() {
                running.line(line).await?;
            } else {
                rest.extend_from_slice(line);
                let whole = rest.split();
                running.line(&whole).await?;
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
        rest.extend_from_slice(&bytes);
    }
    if !rest.is_empty() {
        running.line(&rest).await?;
    }
    running.flush().await
}
