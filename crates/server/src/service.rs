//! Common parts of all faces: catalogue, bounds, metrics, phase of life. Also runs operations:
//! admitted, in the lane of their class, within their deadline, with panics caught.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use exacat_activity::{RequestState, handed, on, tracked};
use exacat_catalogue::{Caller, Catalogue};
use exacat_follower::{FollowState, Followers};
use exacat_model::answer::WhereisRef;
use exacat_model::operation::{Existing, Extent, FileRef, NewFile};
use exacat_model::{
    AccountName, Answer, Consistency, Error, ErrorKind, Guid, Operation, OperationId, Past, Result, TimeMs,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::activity::{Asked, Board, Facts, History, SlowAfter, current_request};
use crate::admission::{Admission, Class, Held, Lane, Share, Step, busy, is_about_the_server, items_of};
use crate::answer_errors::for_each_error;
pub(crate) use crate::cancel::{CANCELLED, Cancel, cancelled};
use crate::completion::Completion;
use crate::contents::Contents;
use crate::elements;
use crate::encoded_items::EncodedItems;
pub(crate) use crate::instruments::EndedRequests;
use crate::instruments::{Ended, Instruments, OperationIndex, count};
use crate::issuers::Issuers;
use crate::paced::Paced;
use crate::past::{About, PastState, PastStates};
pub(crate) use crate::phase::Phase;
pub(crate) use crate::requester::Requester;
use crate::servers::Servers;
use crate::settings::{Limits, LookUpLog};
use crate::workers::WorkerBook;

/// Time of a check of credentials, and the count of changed accounts and tokens at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    at: Instant,
    /// None means that the next request must check again.
    seen: Option<u64>,
}

impl Checked {
    /// Returns a check that is due for repetition.
    pub(crate) fn due() -> Self {
        Checked { at: Instant::now(), seen: None }
    }
}

/// Checks of uploads whose clients report no end.
pub(crate) trait UploadChecks: Send + Sync {
    /// True if an operation needs a check first.
    fn concern(&self, operation: &Operation) -> bool;
    /// Checks the uploads that the answer depends on. Boxed, because a check makes requests.
    fn check_before<'a>(self: Arc<Self>, work: &'a OperationTask) -> BoxFuture<'a, ()>;
}

/// Common parts of all faces.
pub(crate) struct Service {
    pub catalogue: Arc<Catalogue>,
    pub limits: Arc<Limits>,
    pub admission: Arc<Admission>,
    pub instruments: Arc<Instruments>,
    pub board: Arc<Board>,
    pub history: Arc<History>,
    pub workers: Arc<WorkerBook>,
    pub catalogue_id: Guid,
    pub anonymous_reads: bool,
    pub started: Instant,
    phase: watch::Sender<Phase>,
    /// True while an operator drains the server.
    drained: watch::Sender<bool>,
    slow_lines: Paced,
    /// Log lines that could not be written; counted by the log.
    pub log_lines_lost: OnceLock<Arc<AtomicU64>>,
    /// Log of look-ups, if it is kept.
    pub look_ups: OnceLock<LookUpLog>,
    /// The history of elements, if it is on.
    pub elements: OnceLock<Arc<exacat_history::History>>,
    /// Uploads whose clients report no end, which own the service.
    pub uploads: OnceLock<Weak<dyn UploadChecks>>,
    /// Issuers of tokens other than this catalogue.
    pub issuers: OnceLock<Arc<Issuers>>,
    /// Contents of the catalogue over time; none if the server keeps none.
    pub contents: OnceLock<Arc<Contents>>,
    /// This server among the servers of the catalogue.
    pub servers: OnceLock<Servers>,
    pub feeds: OnceLock<Arc<exacat_feed::Feeds>>,
    /// Past states that requests are about.
    pub past: Arc<PastStates>,
    /// Followers of this server.
    pub followers: Arc<Followers>,
    /// Distance of this server to its source, if it follows one.
    pub follow: OnceLock<Arc<FollowState>>,
}

/// An operation to run.
pub(crate) struct OperationTask {
    pub requester: Requester,
    pub id: OperationId,
    pub operation: Operation,
    /// Consistency level of the answer; none for the server's default.
    pub consistency: Option<Consistency>,
    /// Past state that it is about; none for the present one.
    pub past: Option<Past>,
    /// Time after which the answer is worthless.
    pub deadline: Instant,
    pub cancel: Arc<Cancel>,
    pub step: Step,
    /// True if its protocol checks uploads itself.
    pub uploads_checked: bool,
}

impl OperationTask {
    /// Returns the facts that an operator sees of it.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            items: self.operation.items() as u64,
            requester: Some(self.requester.clone()),
            subject: self.operation.subject().cloned(),
            is_long: self.operation.extent() != Extent::Items,
            cancel: Some(Arc::clone(&self.cancel)),
        }
    }
}

/// Reason of a server that stops.
const STOPS: &str = "the server stops";
/// Reason of a server that an operator drains.
const DRAINED: &str = "the server is drained: use another server, or try again later";

/// Name of the operation in the log.
const REGISTER: &str = "register";

/// Returns the error of a passed deadline, for a read or a write that had not started.
pub(crate) fn too_late() -> Error {
    Error::new(ErrorKind::Unavailable, "the deadline passed before there was an answer; nothing was changed")
}

/// Returns the error of a write whose deadline passed after it started.
fn unknown() -> Error {
    Error::new(
        ErrorKind::Unknown,
        "the deadline passed before there was an answer; it may or may not be done: ask again with the same \
         operation id",
    )
}

impl Service {
    pub(crate) fn new(
        catalogue: Arc<Catalogue>,
        limits: Arc<Limits>,
        history: Arc<History>,
        workers: Arc<WorkerBook>,
        catalogue_id: Guid,
        anonymous_reads: bool,
    ) -> Arc<Self> {
        let slow_after = SlowAfter { short: limits.slow_request, long: limits.slow_long_request };
        Arc::new(Service {
            catalogue,
            admission: Admission::new(Arc::clone(&limits)),
            limits,
            instruments: Arc::new(Instruments::new()),
            history,
            board: Arc::new(Board::new(slow_after)),
            workers,
            catalogue_id,
            anonymous_reads,
            started: Instant::now(),
            phase: watch::Sender::new(Phase::Serving),
            drained: watch::Sender::new(false),
            slow_lines: Paced::default(),
            log_lines_lost: OnceLock::new(),
            look_ups: OnceLock::new(),
            elements: OnceLock::new(),
            uploads: OnceLock::new(),
            issuers: OnceLock::new(),
            contents: OnceLock::new(),
            servers: OnceLock::new(),
            feeds: OnceLock::new(),
            past: PastStates::new(),
            followers: Arc::default(),
            follow: OnceLock::new(),
        })
    }

    /// Makes the service of a catalogue without faces and workers, with the default limits.
    #[cfg(test)]
    pub(crate) fn alone(catalogue: Arc<Catalogue>) -> Arc<Self> {
        let history = Arc::new(History::new(catalogue.now(), None));
        Service::new(catalogue, Arc::default(), history, WorkerBook::new(), Guid([0; 16]), false)
    }

    /// Returns the phase of life, to read and to wait for.
    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Returns once `phase` is reached.
    pub(crate) fn reached(&self, phase: Phase) -> impl Future<Output = ()> + Send + use<> {
        let mut watch = self.phase();
        async move {
            // The sender is part of the service; without it everything has ended.
            let _ = watch.wait_for(|now| *now >= phase).await;
        }
    }

    /// Enters a later phase; never goes back.
    pub(crate) fn enter_phase(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            if later {
                *now = phase;
            }
            later
        });
    }

    /// True until the server stops.
    pub(crate) fn is_serving(&self) -> bool {
        *self.phase.borrow() == Phase::Serving
    }

    /// Returns the reason if the server accepts no requests of network clients.
    pub(crate) fn closed_to_network(&self) -> Option<Error> {
        let why = match (self.is_serving(), *self.drained.borrow()) {
            (true, false) => return None,
            (true, true) => DRAINED,
            (false, _) => STOPS,
        };
        Some(Error::new(ErrorKind::Unavailable, why))
    }

    /// True while an operator drains the server.
    pub(crate) fn is_drained(&self) -> bool {
        *self.drained.borrow()
    }

    /// Returns once the server accepts no requests of network clients.
    pub(crate) fn closing_to_network(&self) -> impl Future<Output = ()> + Send + use<> {
        let (stopping, mut drained) = (self.reached(Phase::Stopping), self.drained.subscribe());
        async move {
            tokio::select! {
                () = stopping => {}
                _ = drained.wait_for(|drained| *drained) => {}
            }
        }
    }

    /// Counts `count` requests as in flight, of the server and of the user.
    pub(crate) fn admit(&self, requester: &Requester, count: usize, share: Share) -> Result<(Held, Held)> {
        self.admission.admit(&requester.share, count, share)
    }

    /// Starts a check of credentials.
    pub(crate) fn checking(&self) -> Checked {
        Checked { at: Instant::now(), seen: Some(self.catalogue.store().credentials_seen()) }
    }

    /// True if credentials may have become invalid since that check.
    pub(crate) fn must_check_again(&self, checked: &Checked) -> bool {
        checked.seen != Some(self.catalogue.store().credentials_seen())
            || checked.at.elapsed() >= self.limits.revalidate
    }

    /// Returns a caller with its share of the server.
    pub(crate) fn requester(&self, caller: Caller) -> Requester {
        let share = self.admission.user(caller.user(), caller.name());
        Requester {
            share,
            caller: Arc::new(caller),
            host: None,
            #[cfg(feature = "otel")]
            trace: None,
        }
    }

    /// Carries out an operation at once, without queue or deadline. A panic becomes an error. The
    /// log has the detail of an internal error, the answer does not.
    pub(crate) async fn execute(
        &self,
        caller: &Caller,
        id: OperationId,
        operation: Operation,
        about: impl Into<About>,
    ) -> Result<Answer> {
        let name = operation.name();
        let completion = Completion::of(&operation, caller);
        let about = about.into();
        let catalogue = match &about {
            About::Present(level) => self.catalogue.at(*level, &operation),
            About::Past(state) => &*state.catalogue,
        };
        let work = async {
            match self.elements.get() {
                Some(history) if operation.is_about_elements() => {
                    elements::execute(&self.catalogue, history, caller, operation).await
                }
                _ => catalogue.execute(caller, id, operation).await,
            }
        };
        let outcome = AssertUnwindSafe(work).catch_unwind().await;
        let outcome = match outcome {
            Ok(outcome) => self.completed(completion, outcome).await,
            Err(panic) => Err(self.panicked(&panic)),
        };
        self.shown(caller, name, outcome)
    }

    /// Completes an answer by what only the server knows, if the catalogue permitted the operation.
    async fn completed(&self, completion: Option<Completion>, outcome: Result<Answer>) -> Result<Answer> {
        let now = || self.catalogue.now();
        match (completion, outcome) {
            (Some(Completion::Status), Ok(Answer::Status(mut parts))) => {
                parts.extend(self.status_parts().await);
                Ok(Answer::Status(parts))
            }
            (_, Ok(Answer::Fsck(mut audit))) => {
                if let Some(history) = self.elements.get() {
                    elements::check(Arc::clone(history), &mut audit).await?;
                }
                Ok(Answer::Fsck(audit))
            }
            (Some(Completion::Sessions), Ok(_)) => Ok(Answer::Requests(self.board.sessions(now()))),
            (Some(Completion::Activity { from, to, seconds, parts }), Ok(_)) => {
                let to = to.unwrap_or_else(now);
                let from = from.unwrap_or(TimeMs(to.0.saturating_sub(u64::from(seconds) * 1000)));
                let periods = self.history.periods(Asked { from, to, parts }, &self.board, now());
                Ok(Answer::Activity(on(RequestState::HistoryRead, periods).await?))
            }
            (Some(Completion::Slow), Ok(_)) => Ok(Answer::Requests(self.board.slow(now()))),
            // The catalogue has no requests, so that is its answer to a permitted caller.
            (Some(Completion::Kill(id)), Err(error)) if error.kind == ErrorKind::NotFound => {
                self.board.cancel(id)?;
                tracing::info!(cancelled = id, "cancelled a request");
                Ok(Answer::Done { revision: self.catalogue.store().seen_revision() })
            }
            (Some(Completion::Throttles), Ok(_)) => Ok(Answer::Throttles(self.admission.throttles.list())),
            (Some(Completion::ThrottleSet { owner, items_per_second }), Ok(done)) => {
                // Ending one needs no account: it may be gone.
                let account = owner.as_ref().and_then(|owner| self.catalogue.account_of(owner).ok());
                tracing::info!(
                    owner = exacat_wire::json::throttled(owner.as_ref()),
                    items_per_second,
                    "throttle set"
                );
                self.admission.throttles.set(owner, account, items_per_second)?;
                Ok(done)
            }
            (Some(Completion::Drain { resume }), Ok(done)) => {
                self.drained.send_replace(!resume);
                tracing::info!(resume, requests = self.admission.requests.now(), "drained or resumed");
                Ok(done)
            }
            (Some(Completion::Feed(call)), Ok(done)) => call.answer(self.feeds.get(), done).await,
            (_, outcome) => outcome,
        }
    }

    /// Opens the past state that an operation of a caller is about, within a deadline. What the caller may
    /// not ask of the past is refused before any work.
    pub(crate) async fn past_state(
        &self,
        caller: &Caller,
        operation: &Operation,
        past: Past,
        (deadline, cancel): (Instant, &Cancel),
    ) -> Result<Arc<PastState>> {
        let opened = async {
            self.catalogue.admit_to_past(caller, operation)?;
            tokio::select! {
                biased;
                opened = self.past.open(&self.catalogue, past) => opened,
                () = cancel.cancelled() => Err(cancelled()),
                () = tokio::time::sleep_until(deadline.into()) => Err(too_late()),
            }
        };
        opened.await.map_err(|error| self.shown_error(caller, operation.name(), error))
    }

    /// Waits for the turn of a request of a user that an operator throttles.
    async fn throttled(&self, work: &OperationTask) -> Result<()> {
        let operation = &work.operation;
        if is_about_the_server(operation) || operation.extent() == Extent::Wait {
            return Ok(());
        }
        let items = operation.items().max(1) as u64;
        self.items_throttled(&work.requester.caller, items, work.deadline, &work.cancel).await
    }

    /// Waits until the throttles of the caller let so many items through.
    pub(crate) async fn items_throttled(
        &self,
        caller: &Caller,
        items: u64,
        deadline: Instant,
        cancel: &Cancel,
    ) -> Result<()> {
        let Some(waiting) = self.admission.throttles.enter(caller, items, deadline)? else {
            return Ok(());
        };
        let turn = async {
            tokio::select! {
                () = tokio::time::sleep_until(waiting.until.into()) => Ok(()),
                () = cancel.cancelled() => Err(cancelled()),
            }
        };
        on(RequestState::Throttle, turn).await
    }

    /// Looks up file locations at once, like [`Service::execute`], and encodes each answer at once.
    pub(crate) async fn whereis(
        &self,
        caller: &Caller,
        files: Vec<FileRef>,
        site: Option<&AccountName>,
        consistency: Option<Consistency>,
    ) -> Result<EncodedItems> {
        const NAME: &str = "whereis";
        let mut items = EncodedItems::default();
        let mut lines = self.whereis_lines(&files, site);
        let mut push = |found: Result<&WhereisRef<'_>>| {
            lines.next(found.as_ref().ok().map(|of| (of.size, of.checksums)));
            items.push(&found.map_err(|error| self.shown_error(caller, NAME, error)));
        };
        let catalogue = self.catalogue.bounded_to(consistency);
        let work = catalogue.whereis_each(caller, files, site, &mut push);
        let outcome = AssertUnwindSafe(work).catch_unwind().await;
        let outcome = outcome.unwrap_or_else(|panic| Err(self.panicked(&panic)));
        outcome.map_err(|error| self.shown_error(caller, NAME, error))?;
        lines.write();
        Ok(items)
    }

    /// Carries out writes that each register one file, together, like [`Service::run`].
    pub(crate) async fn register_each(
        &self,
        requester: &Requester,
        files: Vec<(OperationId, NewFile)>,
        (parents, existing): (bool, Existing),
        deadline: Instant,
        deliver: impl FnOnce(Vec<Result<Answer>>) + Send,
    ) {
        let count = files.len();
        let all = |error: &Error| (0..count).map(|_| Err(error.clone())).collect();
        if Instant::now() >= deadline {
            return deliver(all(&too_late()));
        }
        let work = self.catalogue.register_each(&requester.caller, files, parents, existing);
        let work = async {
            let outcomes = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(outcomes) => outcomes,
                Err(panic) => all(&self.panicked(&panic)),
            };
            let shown = |outcome| self.shown(&requester.caller, REGISTER, outcome);
            outcomes.into_iter().map(shown).collect()
        };
        tokio::pin!(work);
        tokio::select! {
            biased;
            outcomes = &mut work => return deliver(outcomes),
            () = tokio::time::sleep_until(deadline.into()) => {}
        }
        deliver(all(&unknown()));
        let _: Vec<Result<Answer>> = work.await;
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> Error {
        count(&self.instruments.counts.panics);
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Error::new(ErrorKind::Internal, format!("a panic: {text}"))
    }

    /// Returns an outcome as the client may see it, without the details of defects.
    fn shown(&self, caller: &Caller, operation: &str, mut outcome: Result<Answer>) -> Result<Answer> {
        let mut hide = |error: &mut Error| self.hide(caller, operation, error);
        match &mut outcome {
            Err(error) => hide(error),
            Ok(Answer::Fsck(audit)) => self.instruments.fsck(audit.findings_total),
            Ok(answer) => for_each_error(answer, &mut hide),
        }
        outcome
    }

    fn shown_error(&self, caller: &Caller, operation: &str, mut error: Error) -> Error {
        self.hide(caller, operation, &mut error);
        error
    }

    fn hide(&self, caller: &Caller, operation: &str, error: &mut Error) {
        if error.kind != ErrorKind::Internal && error.kind != ErrorKind::Corrupt {
            return;
        }
        let request = match current_request() {
            Some(current) => current.number(),
            None => self.board.next_number(),
        };
        let user = caller.name().map_or("", |name| name.as_str());
        let client = current_request().and_then(|current| current.client()).map(tracing::field::display);
        tracing::error!(
            request,
            user,
            client,
            operation,
            kind = error.kind.name(),
            detail = %error,
            "request failed"
        );
        if error.kind == ErrorKind::Internal {
            error.message = format!("internal error: report it, with request {request} of the server's log");
        }
    }

    fn uploads(&self) -> Option<Arc<dyn UploadChecks>> {
        self.uploads.get().and_then(Weak::upgrade)
    }

    /// True if an operation needs a check of uploads first.
    pub(crate) fn must_check_uploads(&self, operation: &Operation) -> bool {
        self.uploads.get().is_some() && self.uploads().is_some_and(|uploads| uploads.concern(operation))
    }

    /// Runs an operation in the lane of its class. Calls `deliver` exactly once, at the latest at
    /// the deadline. Returns when the work is over; for a write this may be later.
    pub(crate) async fn run(
        self: &Arc<Self>,
        work: OperationTask,
        deliver: impl FnOnce(Result<Answer>) + Send,
    ) {
        if Instant::now() >= work.deadline {
            return deliver(Err(too_late()));
        }
        if !work.uploads_checked
            && work.past.is_none()
            && let Some(uploads) = self.uploads()
            && uploads.concern(&work.operation)
        {
            // A check that is not over at the deadline goes on without the request.
            let check = tokio::time::timeout_at(work.deadline.into(), uploads.check_before(&work));
            let _ = on(RequestState::StorageElement, check).await;
        }
        let is_throttled = self.admission.throttles.concern(&work.requester.caller);
        if is_throttled && let Err(error) = self.throttled(&work).await {
            return deliver(Err(error));
        }
        let caller = Arc::clone(&work.requester.caller);
        let deliver = |outcome: Result<Answer>| {
            // The rows of a page count too.
            if is_throttled && let Ok(answer) = &outcome {
                let rows = u64::from(items_of(answer)).saturating_sub(1);
                self.admission.throttles.charge(&caller, rows);
            }
            deliver(outcome);
        };
        let OperationTask { requester, id, operation, consistency, past, deadline, cancel, step, .. } = work;
        let writes = operation.writes();
        let mut class = Class::of(&operation, &self.limits);
        let mut about = About::Present(consistency);
        if let Some(past) = past {
            let opened = self.past_state(&requester.caller, &operation, past, (deadline, &cancel)).await;
            match opened {
                Ok(state) => about = About::Past(state),
                Err(error) => return deliver(Err(error)),
            }
            // Its pages are read from the disk.
            class = Class::Heavy;
        }
        match class {
            Class::Lookup { items } => match self.admission.lookup_items.take(items) {
                // Refuse rather than queue: a look-up never waits behind another.
                None => deliver(Err(busy("items looked up at once"))),
                Some(held) => {
                    let work = self.execute(&requester.caller, id, operation, about);
                    self.finish(work, writes, deadline, &cancel, deliver).await;
                    drop(held);
                }
            },
            // No lane: small writes mostly wait for the store's next commit, not for a processor.
            Class::Write | Class::ElementWrite => {
                let work = self.execute(&requester.caller, id, operation, about);
                self.finish(work, writes, deadline, &cancel, deliver).await;
            }
            Class::Wait => match self.admission.waits.take(1) {
                None => deliver(Err(busy("requests that wait for a change"))),
                Some(held) => {
                    let work = self.execute(&requester.caller, id, operation, about);
                    self.finish(work, writes, deadline, &cancel, deliver).await;
                    drop(held);
                }
            },
            Class::Audit => match self.admission.audits.take(1) {
                None => deliver(Err(busy("checks of the whole catalogue at once"))),
                Some(held) => {
                    let operation = (id, operation, about);
                    let work = self.on_blocking_thread(requester, operation, Arc::clone(&cancel), held);
                    self.finish(work, writes, deadline, &cancel, deliver).await;
                }
            },
            class @ (Class::Heavy | Class::Bulk) => {
                let (lane, what): (&Arc<Lane>, _) = match class {
                    Class::Heavy => (&self.admission.heavy, "long reads that wait their turn"),
                    _ => (&self.admission.bulk, "bulk writes that wait their turn"),
                };
                let Some(entered) = lane.enter(requester.share.user, requester.share.weight, step) else {
                    return deliver(Err(busy(what)));
                };
                let entered = async {
                    tokio::select! {
                        turn = entered => Ok(turn),
                        () = cancel.cancelled() => Err(cancelled()),
                        () = tokio::time::sleep_until(deadline.into()) => Err(too_late()),
                    }
                };
                let turn = match on(RequestState::Admission, entered).await {
                    Ok(turn) => turn,
                    Err(error) => return deliver(Err(error)),
                };
                // The slot goes with the work: it is free when the work ends, not at the deadline.
                let work =
                    self.on_blocking_thread(requester, (id, operation, about), Arc::clone(&cancel), turn);
                self.finish(work, writes, deadline, &cancel, deliver).await;
            }
        }
    }

    /// Carries out an operation on a thread where long work delays no look-ups, then drops `held`.
    async fn on_blocking_thread(
        self: &Arc<Self>,
        requester: Requester,
        (id, operation, about): (OperationId, Operation, About),
        cancel: Arc<Cancel>,
        held: impl Send + 'static,
    ) -> Result<Answer> {
        let service = Arc::clone(self);
        let name = operation.name();
        let caller = Arc::clone(&requester.caller);
        let runtime = tokio::runtime::Handle::current();
        let writes = operation.writes();
        let task = handed(|activity| {
            tokio::task::spawn_blocking(move || {
                let work = async {
                    let work = service.execute(&requester.caller, id, operation, about);
                    // Dropped in the middle, a write would leave its outcome unknown.
                    if writes {
                        return work.await;
                    }
                    tokio::select! {
                        outcome = work => outcome,
                        () = cancel.cancelled() => Err(cancelled()),
                    }
                };
                let outcome = match activity {
                    Some(activity) => {
                        activity.enter(RequestState::Execute);
                        let outcome = runtime.block_on(tracked(Arc::clone(&activity), work));
                        activity.enter(RequestState::Scheduler);
                        outcome
                    }
                    None => runtime.block_on(work),
                };
                drop(held);
                outcome
            })
        });
        match task.await {
            Ok(outcome) => outcome,
            // The catalogue catches its own panics. This is one of the code around it, or the
            // runtime ends.
            Err(error) if error.is_panic() => {
                let error = self.panicked(&*error.into_panic());
                self.shown(&caller, name, Err(error))
            }
            Err(_) if writes => Err(unknown()),
            Err(_) => Err(cancelled()),
        }
    }

    /// Waits for `work`, the deadline, and (for a read) the cancellation, whichever comes first. A
    /// write that started is awaited to its end, even if nobody waits for the answer.
    async fn finish(
        &self,
        work: impl Future<Output = Result<Answer>> + Send,
        writes: bool,
        deadline: Instant,
        cancel: &Cancel,
        deliver: impl FnOnce(Result<Answer>) + Send,
    ) {
        tokio::pin!(work);
        tokio::select! {
            // A finished result wins over a deadline that passes at the same moment.
            biased;
            outcome = &mut work => return deliver(outcome),
            () = cancel.cancelled(), if !writes => return deliver(Err(cancelled())),
            () = tokio::time::sleep_until(deadline.into()) => {}
        }
        if !writes {
            // Ask a read on its own thread to stop where it can.
            cancel.cancel();
            return deliver(Err(too_late()));
        }
        deliver(Err(unknown()));
        let _ = work.await;
    }

    /// Runs an operation like [`Service::run`], counts it, and returns its outcome when the work is over.
    pub(crate) async fn ask(self: &Arc<Self>, work: OperationTask) -> Result<Answer> {
        self.ask_numbered(work).await.1
    }

    /// Runs an operation like [`Service::ask`]. Returns the number of the request too.
    pub(crate) async fn ask_numbered(self: &Arc<Self>, work: OperationTask) -> (u64, Result<Answer>) {
        let (index, items) = (OperationIndex::of(&work.operation), work.operation.items() as u64);
        let (requester, facts) = (work.requester.clone(), work.facts());
        let answered = async {
            let mut told = None;
            self.run(work, |outcome| told = Some(outcome)).await;
            let outcome = told.unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, "the server stops")));
            (items, Ended::of(&outcome), outcome)
        };
        self.counted(&requester, index, facts, answered).await
    }

    /// Tracks `work` as a request for an operation, and counts it with its items and its outcome.
    /// Returns the number of the request, and the result.
    pub(crate) async fn counted<T>(
        &self,
        requester: &Requester,
        operation: OperationIndex,
        facts: Facts,
        work: impl Future<Output = (u64, Ended, T)>,
    ) -> (u64, T) {
        let began = Instant::now();
        let tracking = self.board.begin(operation, began, facts);
        let (items, outcome, result) = tracking.track(work).await;
        let request = tracking.number();
        tracking.note(outcome);
        drop(tracking);
        let ended = EndedRequests {
            request: Some(request),
            operation,
            outcome,
            requests: 1,
            items,
            time: began.elapsed(),
        };
        self.ended(requester, ended);
        (request, result)
    }

    /// Boxed [`Service::ask`]: a check of uploads makes requests, and a request may wait for a check.
    pub(crate) fn ask_boxed(self: &Arc<Self>, work: OperationTask) -> BoxFuture<'_, Result<Answer>> {
        Box::pin(self.ask(work))
    }

    /// Records ended requests, and logs slow ones.
    pub(crate) fn ended(&self, requester: &Requester, ended: EndedRequests) {
        self.instruments.record(&ended);
        ended.log(requester);
        self.board.note_current(ended.outcome);
        if ended.time >= self.limits.slow_request {
            count(&self.instruments.counts.slow);
            // One stall delays many requests; their lines must not fill the log.
            let Some(unwritten) = self.slow_lines.line(Instant::now()) else { return };
            ended.log_as_slow(requester, unwritten);
        }
    }
}

/// Returns the operation id of one step of a request with several operations or pages. Each step
/// has another id, and the same one when the request is repeated.
pub(crate) fn step_id(id: OperationId, step: u64) -> OperationId {
    /// Odd, so that no two steps have the same id.
    const STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let mut random = [0; 10];
    random.copy_from_slice(&id.0[6..]);
    let mut number = [0; 16];
    number[..10].copy_from_slice(&random);
    let number = u128::from_le_bytes(number).wrapping_add(STEP.wrapping_mul(u128::from(step)));
    random.copy_from_slice(&number.to_le_bytes()[..10]);
    id.derived(random)
}
