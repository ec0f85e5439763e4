//! State of one client: its identity, role and directory. Runs its commands one after the other,
//! and turns their output into answers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use exacat_catalogue::{Caller, fingerprint};
use exacat_model::answer::{SeUsage, Stat};
use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::{AccountName, Answer, Error, ErrorKind, Lfn, Operation, OperationId, TimeMs};
use exacat_wire::jalien::limits::PART_BYTES;
use exacat_wire::jalien::{AnswerWriter, Item, Metadata, Request, Style, errno, path};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::certificates::Shown;
use super::messages::{AnswerPart, ShellRequest};
use super::repeats::Standing;
use super::{Face, SES_KEPT};
use crate::admission::{Held, Room, Share, Step, Unread, busy};
use crate::faces::errors;
use crate::instruments::count;
use crate::service::{Cancel, Checked, OperationTask, Requester, step_id};

/// Most entries that a command holds while it reports them.
pub(super) const STATS_AT_ONCE: usize = 500;
/// Items of a page, where there is room for them. A command holds one page while its client reads.
const PAGE_ITEMS: u32 = 500;
/// Estimated bytes of each item, as they come from the catalogue.
const PAGE_ITEM_BYTES: usize = 512;
/// Room in bytes before a part of an answer is made: its buffer doubles as it grows.
const PART_ROOM_BYTES: usize = 2 * PART_BYTES + (4 << 10);
/// Bytes of a part if other clients leave so much unread that there is no room for more.
const SMALL_PART_BYTES: usize = 16 << 10;

/// Reason for the end of a command: error number and detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub number: i32,
    pub detail: String,
}

impl Failure {
    pub(crate) fn new(number: i32, detail: impl Into<String>) -> Self {
        Failure { number, detail: detail.into() }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Failure::new(errno::EINVAL, detail)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { number: errors::errno(error.kind).1, detail: error.message }
    }
}

/// Returns the error for an answer of the catalogue that does not fit the request.
pub(super) fn unexpected() -> Failure {
    Failure::new(errno::EIO, "internal error: the answer is of another operation")
}

pub(super) type Outcome<T = ()> = Result<T, Failure>;

/// The running command.
struct Current {
    id: OperationId,
    steps: u64,
    /// Writes so far, by fingerprint.
    writes: HashMap<u64, u64>,
    /// True if one of its paths is relative to the client's directory.
    is_relative: AtomicBool,
    deadline: Instant,
    writer: AnswerWriter,
    put: Option<mpsc::Sender<AnswerPart>>,
    /// The last error among many paths; the command continues with the others.
    last: Option<Failure>,
    /// Output that a command captures instead of sending it.
    captured: Option<Vec<Item>>,
    /// Room for the writer's bytes among the unread answers.
    room: Option<Room>,
    /// Room for the page that is being reported.
    page: Option<Held>,
}

/// Function that runs a command.
type Run = for<'a> fn(&'a mut Shell, Vec<String>) -> BoxFuture<'a, Outcome>;

/// A command.
pub(super) struct Command {
    /// The command's name.
    pub name: &'static str,
    /// Usage and effect: the text of `-h`.
    pub usage: &'static str,
    /// The function that runs it.
    pub run: Run,
}

impl Command {
    /// Returns the text of `-h`.
    pub(crate) fn help(&self) -> String {
        format!("usage: {} {}", self.name, self.usage)
    }
}

/// Finds a command by its name.
pub(super) type CommandTable = fn(&str) -> Option<&'static Command>;

/// State of one client, which runs its commands.
pub(super) struct Shell {
    pub face: Arc<Face>,
    pub shown: Shown,
    pub peer: SocketAddr,
    commands: CommandTable,
    /// Site of the client's network.
    near: Option<AccountName>,
    requester: Requester,
    /// The caller of the certificate, without a role.
    pub base: Arc<Caller>,
    checked: Checked,
    pub home: Lfn,
    pub timing: bool,
    standing: Arc<Mutex<Standing>>,
    /// True if the client may assume a wrong directory, because its connection was replaced.
    astray: bool,
    cancel: Arc<Cancel>,
    unread: Unread,
    current: Current,
}

impl Shell {
    /// Admits a client, if its certificate stands for an account.
    pub(crate) async fn open(
        face: Arc<Face>,
        shown: Shown,
        peer: SocketAddr,
        commands: CommandTable,
    ) -> exacat_model::Result<Self> {
        let service = Arc::clone(&face.service);
        let caller = face.certificates.caller(&service.catalogue, &shown).await?;
        let requester = service.requester(caller).at(peer.ip());
        let mut shell = Shell {
            commands,
            base: Arc::clone(&requester.caller),
            requester,
            shown,
            near: face.places.site_of(peer.ip()),
            peer,
            checked: Checked::due(),
            home: Lfn::root(),
            timing: false,
            standing: Arc::new(Mutex::new(Standing { directory: Lfn::root(), role: None, site: None })),
            astray: false,
            cancel: Arc::new(Cancel::default()),
            current: Current {
                id: OperationId([0; 16]),
                steps: 0,
                writes: HashMap::new(),
                is_relative: AtomicBool::new(false),
                deadline: Instant::now() + service.limits.deadline_max,
                writer: AnswerWriter::new(Style::default()),
                put: None,
                last: None,
                captured: None,
                room: None,
                page: None,
            },
            unread: Unread::new(&service.admission),
            face,
        };
        shell.home = shell.find_home().await?;
        shell.standing.lock().directory = shell.home.clone();
        Ok(shell)
    }

    /// Returns the home of the account that the client acts as.
    async fn find_home(&mut self) -> exacat_model::Result<Lfn> {
        let whoami = self.ask(Operation::Whoami).await.map_err(|failure| Error::invalid(failure.detail))?;
        if let Answer::Whoami { user: Some(user), .. } = whoami
            && let Some(home) = user.home
        {
            return Ok(home);
        }
        match self.requester.caller.name() {
            Some(name) => self.face.home_of(name),
            None => Ok(Lfn::root()),
        }
    }

    pub(crate) fn user(&self) -> &str {
        self.requester.caller.name().map_or("", |name| name.as_str())
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.requester.caller
    }

    pub(crate) fn subject(&self) -> &str {
        &self.shown.subject
    }

    /// Returns the remaining validity of its certificate.
    pub(crate) fn valid_for(&self) -> Duration {
        let now = self.face.clock.now();
        Duration::from_millis(self.shown.expires.0.saturating_sub(now.0))
    }

    pub(crate) fn standing_shared(&self) -> Arc<Mutex<Standing>> {
        Arc::clone(&self.standing)
    }

    pub(crate) fn cancel(&self) -> Arc<Cancel> {
        Arc::clone(&self.cancel)
    }

    pub(crate) fn now(&self) -> TimeMs {
        self.face.clock.now()
    }

    pub(crate) fn directory(&self) -> Lfn {
        self.standing.lock().directory.clone()
    }

    pub(crate) fn set_directory(&mut self, directory: Lfn) {
        self.standing.lock().directory = directory;
        if !self.current.is_relative.load(Relaxed) {
            self.astray = false;
        }
    }

    /// Returns the site that the client named, or else that of its network.
    pub(crate) fn site(&self) -> Option<AccountName> {
        self.standing.lock().site.clone().or_else(|| self.near.clone())
    }

    pub(crate) fn set_site(&mut self, site: Option<AccountName>) {
        self.standing.lock().site = site;
    }

    /// Acts as another account from now on; none for the client's own.
    pub(crate) async fn act_as(&mut self, role: Option<AccountName>) -> Outcome {
        let service = Arc::clone(&self.face.service);
        let caller = match &role {
            None => (*self.base).clone(),
            Some(name) => service.catalogue.become_user(&self.base, name).await?,
        };
        self.requester = service.requester(caller).at(self.peer.ip());
        self.home = self.find_home().await?;
        self.standing.lock().role = role;
        Ok(())
    }

    /// Runs requests until the connection has no more.
    pub(crate) async fn work(
        &mut self,
        mut asked: mpsc::Receiver<ShellRequest>,
        put: mpsc::Sender<AnswerPart>,
    ) {
        while let Some(asked) = asked.recv().await {
            // The connection is gone. Requests that have not started do not run; the client repeats
            // them when it reconnects.
            if self.cancel.is_cancelled() {
                break;
            }
            self.current.put = Some(put.clone());
            self.answer(asked).await;
        }
        self.current.put = None;
    }

    async fn answer(&mut self, asked: ShellRequest) {
        let began = Instant::now();
        let counts = &Arc::clone(&self.face.service).instruments.counts;
        count(&counts.commands);
        self.astray |= asked.astray;
        if let Some(standing) = asked.standing.clone() {
            self.stand(standing).await;
        }
        let before = self.standing.lock().clone();
        let (style, outcome) = match Request::parse(&asked.text) {
            Err(error) => (Style::default(), Err(Failure::invalid(error.to_string()))),
            Ok(request) => {
                self.current.writer = AnswerWriter::new(request.style);
                self.current.id = asked.id;
                self.current.steps = 0;
                self.current.writes.clear();
                self.current.is_relative = AtomicBool::new(false);
                self.current.deadline = began + self.face.service.limits.deadline_max;
                self.current.last = None;
                self.current.captured = None;
                let style = request.style;
                (style, self.admitted(request, asked.held.is_some()).await)
            }
        };
        let stranger = matches!(&outcome, Err(failure) if failure.number == STRANGER);
        let failure = match outcome {
            Ok(()) => self.current.last.take(),
            Err(failure) => Some(failure),
        };
        let mut metadata = Metadata {
            user: self.user().to_owned(),
            currentdir: path::directory_text(&self.directory()),
            timing_ms: self.timing.then(|| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)),
            ..Metadata::default()
        };
        if let Some(failure) = failure {
            count(&counts.commands_failed);
            let number = if failure.number == STRANGER { errno::EPERM } else { failure.number };
            metadata = metadata.failed(number, &failure.detail);
        }
        let writer = std::mem::replace(&mut self.current.writer, AnswerWriter::new(style));
        let first = !writer.streams();
        let bytes = writer.finish(&metadata);
        self.current.page = None;
        let mut room = self.current.room.take();
        if let Some(room) = &mut room {
            room.turned_out(bytes.capacity());
        }
        let part = AnswerPart { bytes, first, last: true, room, before: Some(before), closes: stranger };
        if let Some(put) = &self.current.put {
            // If nobody takes it, the connection is gone.
            let _ = put.send(part).await;
        }
    }

    /// Restores the state of a client that reconnected.
    async fn stand(&mut self, standing: Standing) {
        if self.act_as(standing.role.clone()).await.is_ok() {
            *self.standing.lock() = standing;
        }
    }

    async fn admitted(&mut self, request: Request, within_bytes: bool) -> Outcome {
        let service = Arc::clone(&self.face.service);
        if !within_bytes {
            return Err(busy("bytes of requests").into());
        }
        let held = service.admit(&self.requester, 1, Share::Catalogue)?;
        if service.must_check_again(&self.checked) {
            self.check_again().await?;
        }
        let done = self.carry_out(request).await;
        drop(held);
        done
    }

    /// Checks the certificate again, because its rights may have changed or ended.
    async fn check_again(&mut self) -> Outcome {
        let service = Arc::clone(&self.face.service);
        let gone = |error: Error| match error.kind {
            ErrorKind::Unauthenticated | ErrorKind::Denied => Failure::new(STRANGER, error.message),
            _ => error.into(),
        };
        let checked = service.checking();
        let base = self.face.certificates.caller(&service.catalogue, &self.shown).await.map_err(gone)?;
        let role = self.standing.lock().role.clone();
        let caller = match &role {
            None => base.clone(),
            Some(name) => service.catalogue.become_user(&base, name).await.map_err(gone)?,
        };
        self.base = Arc::new(base);
        if caller != *self.requester.caller {
            self.requester = service.requester(caller).at(self.peer.ip());
        }
        self.checked = checked;
        Ok(())
    }

    async fn carry_out(&mut self, request: Request) -> Outcome {
        if let Some(directory) = &request.directory {
            self.change_directory(directory).await?;
        }
        let Some(command) = (self.commands)(&request.command) else {
            let shown = request.shown_command();
            return Err(Failure::new(errno::ENOENT, format!("Command [{shown}] not found!")));
        };
        if request.help {
            return self.say(Item::text(command.help())).await;
        }
        self.run(command, request.options).await
    }

    /// Changes the current directory.
    pub(crate) async fn change_directory(&mut self, text: &str) -> Outcome {
        let lfn = self.path(text)?;
        // The home directory is always allowed, even before it is made.
        if lfn == self.home {
            self.set_directory(lfn);
            return Ok(());
        }
        let stat = self.stat(&lfn, true).await?;
        if stat.entry.directory().is_none() {
            return Err(Failure::new(errno::ENOTDIR, text));
        }
        self.set_directory(lfn);
        Ok(())
    }

    /// Runs one command.
    pub(crate) async fn run(&mut self, command: &'static Command, options: Vec<String>) -> Outcome {
        (command.run)(self, options).await
    }

    /// Sends a result.
    pub(crate) async fn say(&mut self, item: Item) -> Outcome {
        if let Some(captured) = &mut self.current.captured {
            captured.push(item);
            return Ok(());
        }
        let room = match self.current.room.take() {
            Some(room) => room,
            None => self.unread.room(PART_ROOM_BYTES).await,
        };
        let room = self.current.room.insert(room);
        self.current.writer.push(&item);
        if self.current.writer.waiting() < if room.is_small() { SMALL_PART_BYTES } else { PART_BYTES } {
            return Ok(());
        }
        let first = !self.current.writer.streams();
        let bytes = self.current.writer.take_part();
        let mut room = self.current.room.take();
        if let Some(room) = &mut room {
            room.turned_out(bytes.capacity());
        }
        let part = AnswerPart { bytes, first, last: false, room, before: None, closes: false };
        let gone = || Failure::new(errno::EIO, "the connection is gone");
        match &self.current.put {
            Some(put) => put.send(part).await.map_err(|_| gone()),
            None => Err(gone()),
        }
    }

    /// Runs a command and returns its output instead of sending it.
    pub(crate) async fn capture(
        &mut self,
        command: &'static Command,
        options: Vec<String>,
    ) -> Outcome<Vec<Item>> {
        let before = self.current.captured.replace(Vec::new());
        let done = self.run(command, options).await;
        let items = std::mem::replace(&mut self.current.captured, before).unwrap_or_default();
        done.map(|()| items)
    }

    /// Notes the failure of one among many, so that the command continues.
    pub(crate) fn fail_later(&mut self, failure: impl Into<Failure>) {
        self.current.last = Some(failure.into());
    }

    /// Notes the failure, if there is one.
    pub(crate) fn note<T>(&mut self, outcome: Result<T, impl Into<Failure>>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(failure) => {
                self.fail_later(failure);
                None
            }
        }
    }

    /// Sends an operation to the catalogue, as the client's request or a step of it.
    pub(crate) async fn ask(&mut self, operation: Operation) -> Outcome<Answer> {
        Ok(self.run_step(operation, Step::First).await?)
    }

    /// Returns the id of a command's write. It follows from the operation, not from the number of
    /// earlier steps: a repeated command may match fewer files with its wildcards.
    fn id_of_write(&mut self, operation: &Operation) -> exacat_model::Result<OperationId> {
        if self.astray && self.current.is_relative.load(Relaxed) {
            let here = path::directory_text(&self.directory());
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "nothing was done: the connection was renewed and is in {here} now, where a relative path may mean \
                     another file; say cd and the full path of the directory first, or give full paths"
                ),
            ));
        }
        let fingerprint = fingerprint(&self.requester.caller, operation);
        let before = self.current.writes.entry(fingerprint.0).or_insert(0);
        let mut hash = Sha256::new();
        hash.update(self.current.id.0);
        hash.update(fingerprint.0.to_le_bytes());
        hash.update(before.to_le_bytes());
        *before += 1;
        let mut bytes = [0; 10];
        bytes.copy_from_slice(&hash.finalize()[..10]);
        Ok(self.current.id.derived(bytes))
    }

    async fn run_step(&mut self, operation: Operation, step: Step) -> exacat_model::Result<Answer> {
        let id = match operation.writes() {
            true => self.id_of_write(&operation)?,
            false => step_id(self.current.id, self.current.steps),
        };
        self.current.steps += 1;
        let work = OperationTask {
            requester: self.requester.clone(),
            id,
            operation,
            consistency: None,
            past: None,
            deadline: self.current.deadline,
            cancel: Arc::clone(&self.cancel),
            step,
            uploads_checked: false,
        };
        let service = Arc::clone(&self.face.service);
        service.ask(work).await
    }

    /// Returns the next page of a long answer, with as many items as there is room for; none at its
    /// end. `next` holds the operation for the following page.
    pub(crate) async fn page(&mut self, next: &mut Option<Operation>) -> Outcome<Option<Answer>> {
        // Release first, so that its bytes are free again.
        self.current.page = None;
        let Some(operation) = next.take() else { return Ok(None) };
        let mut held = self.unread.shared(PAGE_ITEMS as usize * PAGE_ITEM_BYTES);
        let mut items = PAGE_ITEMS;
        loop {
            let page = self.unread.paged(operation.clone(), items, held.is_none());
            *next = None;
            let answer = self.turn(next, operation.clone(), page).await?;
            match answer.as_ref().and_then(|answer| self.unread.fewer_in(held.as_mut(), answer)) {
                Some(fewer) => (items, held) = (fewer, None),
                None => {
                    self.current.page = held;
                    return Ok(answer);
                }
            }
        }
    }

    /// Returns the next page with the requested limit. A command that writes page by page needs the
    /// same pages when it is repeated.
    pub(crate) async fn exact_page(&mut self, next: &mut Option<Operation>) -> Outcome<Option<Answer>> {
        match next.take() {
            Some(operation) => self.turn(next, operation.clone(), operation).await,
            None => Ok(None),
        }
    }

    async fn turn(
        &mut self,
        next: &mut Option<Operation>,
        operation: Operation,
        page: Operation,
    ) -> Outcome<Option<Answer>> {
        let step = if self.current.steps == 0 { Step::First } else { Step::Next };
        let answer = self.run_step(page, step).await?;
        if let Some(cursor) = answer.next() {
            *next = operation.resumed(cursor.clone());
        }
        Ok(Some(answer))
    }

    /// Resolves a path against the client's directory and home.
    pub(crate) fn path(&self, text: &str) -> Outcome<Lfn> {
        self.current.is_relative.fetch_or(path::is_relative(text), Relaxed);
        Ok(path::resolve(text, &self.directory(), &self.home)?)
    }

    /// Returns the entry of each path.
    pub(crate) async fn stats(
        &mut self,
        lfns: Vec<Lfn>,
        follow: bool,
    ) -> Outcome<Vec<exacat_model::Result<Stat>>> {
        let mut found = Vec::with_capacity(lfns.len());
        for some in lfns.chunks(READ_BATCH_MAX) {
            match self.ask(Operation::Stat { lfns: some.to_vec(), follow }).await? {
                Answer::Stats(mut stats) => found.append(&mut stats),
                _ => return Err(unexpected()),
            }
        }
        Ok(found)
    }

    /// Returns the entry of a path.
    pub(crate) async fn stat(&mut self, lfn: &Lfn, follow: bool) -> Outcome<Stat> {
        match self.stats(vec![lfn.clone()], follow).await?.pop() {
            Some(stat) => Ok(stat?),
            None => Err(unexpected()),
        }
    }

    /// Returns the entry of a path, or none.
    pub(crate) async fn stat_if_there(&mut self, lfn: &Lfn) -> Outcome<Option<Stat>> {
        match self.stats(vec![lfn.clone()], true).await?.pop() {
            Some(Ok(stat)) => Ok(Some(stat)),
            Some(Err(error)) if error.kind == ErrorKind::NotFound => Ok(None),
            Some(Err(error)) => Err(error.into()),
            None => Err(unexpected()),
        }
    }

    /// Returns all storage elements, as of a moment ago.
    pub(crate) async fn ses(&mut self) -> Outcome<Arc<Vec<SeUsage>>> {
        if let Some((when, ses)) = &*self.face.ses.lock()
            && when.elapsed() < SES_KEPT
        {
            return Ok(Arc::clone(ses));
        }
        let when = Instant::now();
        let Answer::Ses(ses) = self.ask(Operation::SeList).await? else { return Err(unexpected()) };
        let ses = Arc::new(ses);
        *self.face.ses.lock() = Some((when, Arc::clone(&ses)));
        Ok(ses)
    }

    /// Returns all storage elements, read now.
    pub(crate) async fn ses_now(&mut self) -> Outcome<Arc<Vec<SeUsage>>> {
        *self.face.ses.lock() = None;
        self.ses().await
    }
}

/// Not an error number of the protocol: the client has lost its identity, and gets EPERM.
const STRANGER: i32 = -1;
