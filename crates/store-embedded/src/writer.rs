//! The writer: one thread that decides, applies, logs and answers. Everything that changes the catalogue passes here,
//! in one order, and needs no lock against another.
//!
//! ```text
//!  requests ─► queue ─► decide, apply to the shared state, encode   ─┐ as many as wait, up to a bound:
//!              (bounded)         (in steps of a few mutations)       ─┤ a group
//!                                                one write, one sync ◄┘
//!                             answers ◄── durable ──► waiting reads
//! ```
//! Space in the log is reserved before a request is begun, so a full disk refuses requests and loses nothing. After a
//! failed write or sync nobody can say what the disk has: nothing more is done until the store is opened again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_model::limits::BATCH_MUTATIONS_MAX;
use exacat_model::{
    Audit, Change, Effect, Error, ErrorKind, Fingerprint, Mutation, OperationId, Revision, TimeMs, UserId,
};
use exacat_store::{ApplyError, Clock, Judged, Outcome, Refusal, Request};
use parking_lot::RwLockWriteGuard;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::archive::Archivist;
use crate::committer::{Answered, Committer, Group, Waiting};
use crate::decide::{Context, Declined, bytes_at_most, decide, judged_the_same};
use crate::defect::Defect;
use crate::load::LoadWork;
use crate::log::{Log, Position};
use crate::merger::{Merger, Pending};
use crate::older::{self, Found};
use crate::record::{Head, RecordWriter, encode_effect};
use crate::run::Held;
use crate::settings::{
    ASK_AGAIN_MAX, EmbeddedSettings, GROUP_BYTES_MAX, GROUP_REQUESTS_MAX, MEMTABLE_STRETCH,
    MUTATIONS_PER_LOCK, RECORD_SPLIT_BYTES, RESERVE_BYTES_MAX,
};
use crate::state::{Operations, Stamp, State};
use crate::store::Shared;

/// A request, and the bytes of its canonical form.
pub(crate) struct Weighed {
    pub request: Request,
    pub bytes: usize,
}

/// What the writer is asked to do.
pub(crate) enum Command {
    /// Decide and commit requests that came together.
    Apply {
        requests: Vec<Weighed>,
        reply: oneshot::Sender<Vec<Answered>>,
        /// Their share of the bytes in work; given back when they are answered.
        permit: OwnedSemaphorePermit,
    },
    /// Check the state between two groups: where what is in memory only cannot be put into runs.
    Audit { reply: oneshot::Sender<Result<Audit, Error>> },
    /// End the memtable, and say what waits until it is a run.
    Freeze { reply: oneshot::Sender<Result<Pending, Error>> },
    /// Write what is in memory only into a run.
    Flush { reply: oneshot::Sender<Result<(), Error>> },
    /// Mark the end of the log, if no mark is there; says whether one was written.
    Mark { reply: Option<oneshot::Sender<Result<bool, Error>>> },
    /// Do something while all that was done is durable and marked, up to this place of the log, and
    /// nothing more is being done.
    Settled {
        /// Begin a segment first, so that what is there is not written to any more.
        seal: bool,
        work: Box<dyn FnOnce(Result<Position, Error>) + Send>,
    },
    /// Take over changes that were made elsewhere.
    TakeOver { changes: Vec<Change>, reply: oneshot::Sender<Result<(), Error>> },
    /// Load files that were gathered.
    Load(Box<LoadWork>),
    /// Finish.
    Close { reply: oneshot::Sender<()> },
}

/// What the thread works with.
pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    pub commands: mpsc::Receiver<Command>,
    pub clock: Arc<dyn Clock>,
    pub settings: EmbeddedSettings,
    pub log: Log,
    pub operations: Operations,
    /// The last change that is frozen.
    pub frozen: Revision,
    pub merger: Merger,
    /// Records not written yet; what they are of.
    pub group: Group,
    /// An effect's bytes, on their way into the group.
    pub effect: Vec<u8>,
    pub committer: Committer,
    /// The last request was refused for lack of it.
    pub short_of_space: bool,
    /// Ends before the lock is given back.
    pub archivist: Option<Archivist>,
    /// The log failed, and readers are shown what is durable.
    pub is_standing_by: bool,
    /// Held while the thread lives.
    pub _lock: Box<dyn Send + Sync>,
}

/// A request being worked on.
struct Work {
    operation: OperationId,
    fingerprint: Fingerprint,
    who: UserId,
    time: TimeMs,
    mutations: std::vec::IntoIter<Mutation>,
    /// Of the next of them in the request.
    position: usize,
    /// Decided, but there was no space for it.
    held: Option<(u32, Effect)>,
    /// Outcomes of an earlier asking, by mutation.
    remembered: Vec<Option<Outcome>>,
    outcomes: Vec<Outcome>,
    record: Option<RecordWriter>,
    /// Some of it is done.
    applied: bool,
}

impl Work {
    /// What is answered if the rest of it cannot be done.
    fn given_up(&self, why: String) -> ApplyError {
        match self.applied {
            true => ApplyError::Unknown(why),
            false => ApplyError::Unavailable(why),
        }
    }
}

/// Why work on a request stopped for a moment.
enum Pause {
    Done,
    /// To let readers in.
    Yield,
    /// So many bytes do not fit into what is reserved.
    NeedsSpace(usize),
}

/// Why work on a request ended before it was done.
enum Halt {
    /// What a mutation is decided by cannot be read. Nothing of it was done.
    Undecided(Error),
    /// Half a change may have been applied.
    Defect(Defect),
}

const LOG_SPACE: &str = "log space";

impl Drop for Writer {
    fn drop(&mut self) {
        // However the thread ends, nobody may wait for it.
        self.shared.close("the store is closed");
    }
}

impl Writer {
    /// Works until it is closed or nobody is left to ask; gives who waits for the closing.
    pub fn run(&mut self) -> Option<oneshot::Sender<()>> {
        while let Some(first) = self.commands.blocking_recv() {
            let mut next = Some(first);
            while let Some(command) = next {
                match command {
                    Command::Apply { requests, reply, permit } => {
                        self.shared.figures.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
                        let mut answers = Vec::with_capacity(requests.len());
                        for Weighed { request, bytes } in requests {
                            answers.push(self.process(request, bytes));
                            // One commit group never has more than GROUP_WRITTEN_BYTES_MAX.
                            if self.group.bytes.len() >= GROUP_BYTES_MAX {
                                self.flush();
                            }
                        }
                        self.group.requests += answers.len();
                        self.group.waiting.push(Waiting { reply, answers, _permit: permit });
                    }
                    Command::Audit { reply } => {
                        self.settle();
                        let audit = self.shared.state.read().audit().map_err(Error::from);
                        // Whoever asked may have gone; then there is nobody to tell.
                        let _gone = reply.send(audit);
                    }
                    Command::Freeze { reply } => {
                        let pending = self.freeze_now();
                        let _gone = reply.send(pending);
                    }
                    Command::Flush { reply } => {
                        let written = self.flush_all();
                        let _gone = reply.send(written);
                    }
                    Command::Mark { reply } => {
                        let marked = self.mark();
                        if let Some(reply) = reply {
                            let _gone = reply.send(marked);
                        }
                    }
                    Command::Settled { seal, work } => {
                        let settled = self.mark().and_then(|_| match seal {
                            true => self.seal(),
                            false => Ok(()),
                        });
                        work(settled.map(|()| self.log.position()));
                    }
                    Command::TakeOver { changes, reply } => {
                        let taken = self.take_over(&changes);
                        let _gone = reply.send(taken);
                    }
                    Command::Load(work) => self.load(*work),
                    Command::Close { reply } => {
                        self.shared.refuse();
                        if let Err(error) = self.flush_all() {
                            tracing::warn!(%error, "not all is in runs at closing, the next opening takes longer");
                        }
                        if let Err(error) = self.mark() {
                            tracing::warn!(%error, "the end of the log is not marked at closing");
                        }
                        self.refuse_waiting();
                        return Some(reply);
                    }
                }
                let full =
                    self.group.bytes.len() >= GROUP_BYTES_MAX || self.group.requests >= GROUP_REQUESTS_MAX;
                next = if full { None } else { self.commands.try_recv().ok() };
            }
            self.flush();
            self.stand_by();
            self.freeze_if_due();
            self.merger.pace();
        }
        self.settle();
        None
    }

    /// Why nothing more can be done, if so.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.shared.durability.ended()
    }

    /// Tells those who asked too late that nothing was done.
    fn refuse_waiting(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Apply { requests, reply, .. } = command {
                let closed = || Err(ApplyError::Unavailable("the store is closed".to_owned()));
                let _gone = reply.send(requests.iter().map(|_| closed()).collect());
            }
        }
    }

    // ---- one request ----

    fn process(&mut self, request: Request, request_bytes: usize) -> Answered {
        if let Some(why) = self.failure() {
            // Of an earlier asking nobody knows whether it is durable.
            return Err(match self.operations.records_of(request.operation).is_empty() {
                true => ApplyError::Unavailable(why.to_string()),
                false => ApplyError::Unknown(why.to_string()),
            });
        }
        let count = request.mutations.len();
        let remembered = self.remembered(&request, count)?;
        let unless_applied = |error: String| {
            // An earlier asking may have done some of it: then it cannot be said that nothing was done.
            match remembered.iter().any(Option::is_some) {
                true => ApplyError::Unknown(error),
                false => ApplyError::Unavailable(error),
            }
        };
        if count > 0 && remembered.iter().all(Option::is_some) {
            return Ok(remembered.into_iter().flatten().collect());
        }
        if count > 0 {
            self.reserve(&request.mutations, request_bytes).map_err(unless_applied)?;
        }
        if let Some(judged) = &request.judged
            && !self.judged_the_same(judged, &request.mutations, &remembered).map_err(unless_applied)?
        {
            let outdated = || Outcome::Refused(Refusal::Outdated);
            return Ok(remembered.into_iter().map(|outcome| outcome.unwrap_or_else(outdated)).collect());
        }
        let mut work = Work {
            operation: request.operation,
            fingerprint: request.fingerprint,
            who: request.who,
            time: self.clock.trusted().max(self.shared.state.read().time),
            mutations: request.mutations.into_iter(),
            position: 0,
            held: None,
            applied: remembered.iter().any(Option::is_some),
            remembered,
            outcomes: Vec::with_capacity(count),
            record: None,
        };
        loop {
            let pause = {
                let mut state = self.shared.state.write();
                let pause = step(
                    &mut state,
                    &mut self.group,
                    &mut self.effect,
                    &mut self.operations,
                    &self.log,
                    &mut work,
                );
                // Readers that wait go first; otherwise this thread would have the lock again before they wake.
                RwLockWriteGuard::unlock_fair(state);
                pause
            };
            match pause {
                Ok(Pause::Done) => break,
                Ok(Pause::Yield) => {}
                Ok(Pause::NeedsSpace(bytes)) => {
                    self.end_record(&mut work);
                    if let Err(error) = self.make_space(bytes) {
                        return Err(work.given_up(error));
                    }
                }
                Err(Halt::Undecided(error)) => {
                    self.end_record(&mut work);
                    return Err(work.given_up(error.message));
                }
                Err(Halt::Defect(defect)) => {
                    let why = format!("the state contradicts itself: {defect}");
                    self.shared.fail(&why);
                    // Half a change may have been applied: nobody may see it.
                    self.shared.close(&why);
                    return Err(ApplyError::Unknown(defect.to_string()));
                }
            }
        }
        self.end_record(&mut work);
        Ok(work.outcomes)
    }

    /// Would the permission of a request be judged the same on the state it is decided on?
    fn judged_the_same(
        &self,
        judged: &Judged,
        mutations: &[Mutation],
        remembered: &[Option<Outcome>],
    ) -> Result<bool, String> {
        let own: Vec<Revision> = remembered
            .iter()
            .filter_map(|outcome| match outcome {
                Some(Outcome::Applied { revision, .. }) => Some(*revision),
                _ => None,
            })
            .collect();
        let state = self.shared.state.read();
        judged_the_same(&state, judged, mutations, &own).map_err(|defect| defect.to_string())
    }

    /// Has the pages that deciding will need read, so that the disk is not waited for under the lock that keeps readers
    /// out.
    fn rehearse(&self, soon: &[Mutation]) -> Result<(), String> {
        if soon.iter().all(|mutation| matches!(mutation, Mutation::Create(_))) {
            return Ok(());
        }
        let held = Held::default();
        for _ in 0..ASK_AGAIN_MAX {
            {
                let state = self.shared.state.read();
                let look = state.look_with(Some(&held));
                let seen = soon.iter().try_for_each(|mutation| look.rehearse(mutation));
                seen.map_err(|defect| defect.to_string())?;
            }
            if held.is_content() {
                return Ok(());
            }
            held.read(&self.shared.cache).map_err(|error| error.message)?;
        }
        Ok(())
    }

    /// The outcomes that mutations of this request had when it was asked before (clause A6).
    fn remembered(&mut self, request: &Request, count: usize) -> Result<Vec<Option<Outcome>>, ApplyError> {
        let mut outcomes = vec![None; count];
        let operation = request.operation;
        let mut records = self.operations.records_of(operation);
        if operation.made() < self.operations.forgotten() {
            records = self.records_in_log(operation)?;
        }
        if records.iter().any(|first| *first > self.shared.durability.revision()) {
            // They are in this very group or the one before, and not in the log yet.
            self.settle();
        }
        for (number, first_revision) in records.into_iter().enumerate() {
            if number == 0 && self.is_another(request, first_revision)? {
                return Err(ApplyError::conflict(operation));
            }
            let changes = self.shared.history.record(first_revision).map_err(|error| {
                ApplyError::Unknown(format!("what the request did before cannot be read: {error}"))
            })?;
            let changes = changes.ok_or_else(|| not_kept(first_revision))?;
            for change in changes {
                if let Some(place) = outcomes.get_mut(change.index as usize) {
                    let (revision, id) = (change.revision, change.effect.entry_id());
                    *place = Some(Outcome::Applied { revision, id });
                }
            }
        }
        Ok(outcomes)
    }

    /// The first revisions of the records of a request that memory may have forgotten.
    fn records_in_log(&mut self, operation: OperationId) -> Result<Vec<Revision>, ApplyError> {
        // Whatever was applied is in the log then.
        self.settle();
        if let Some(why) = self.failure() {
            return Err(ApplyError::Unknown(why.to_string()));
        }
        let durable = self.shared.durability.revision();
        let found = self.shared.older.lock().find(&self.shared.history, operation, durable);
        match found {
            Ok(Found::Records(records)) => Ok(records),
            Ok(Found::NotKept) => Err(ApplyError::Unknown(older::not_kept(operation).message)),
            Err(error) => Err(ApplyError::Unknown(format!(
                "whether operation id {operation:?} was applied before cannot be read from the log: {error}"
            ))),
        }
    }

    /// Is this record, which has the request's id, that of another request?
    fn is_another(&self, request: &Request, first_revision: Revision) -> Result<bool, ApplyError> {
        let mut differs = false;
        let read = self.shared.history.heads(first_revision, first_revision, |head| {
            differs = head.fingerprint.differs(request.fingerprint);
            false
        });
        let is_kept = read.map_err(|error| {
            ApplyError::Unknown(format!("what the request did before cannot be read: {error}"))
        })?;
        if is_kept { Ok(differs) } else { Err(not_kept(first_revision)) }
    }

    /// Makes sure that log and memory have room for what a request may need, before any of it is done.
    fn reserve(&mut self, mutations: &[Mutation], request_bytes: usize) -> Result<(), String> {
        mutations.chunks(MUTATIONS_PER_LOCK).try_for_each(|soon| self.rehearse(soon))?;
        let (needed, rows) = {
            let state = self.shared.state.read();
            let mut named = 0;
            for mutation in mutations {
                named += bytes_at_most(&state, mutation).map_err(|defect| defect.to_string())?;
            }
            let needed = 2 * request_bytes + named + RecordWriter::EMPTY_BYTES;
            (needed.min(RESERVE_BYTES_MAX), state.table.active().rows() + mutations.len())
        };
        if rows > self.settings.memtable_rows.saturating_mul(MEMTABLE_STRETCH).max(2 * BATCH_MUTATIONS_MAX)
            && let Err(error) = self.merger.wait_for_room()
        {
            return Err(format!("changes cannot be put into runs, free some space: {error}"));
        }
        if !self.log.fits(self.group.bytes.len() + needed) {
            self.make_space(needed)?;
        }
        if std::mem::take(&mut self.short_of_space) {
            self.shared.figures.clear(LOG_SPACE);
        }
        Ok(())
    }

    /// Writes what there is, and begins a segment if so many bytes do not fit into this one.
    pub(crate) fn make_space(&mut self, bytes: usize) -> Result<(), String> {
        self.settle();
        if let Some(why) = self.failure() {
            return Err(why.to_string());
        }
        if self.log.fits(bytes) { Ok(()) } else { self.roll(bytes) }
    }

    /// Seals the segment, unless nothing is in it: then it is as good as a new one.
    fn seal(&mut self) -> Result<(), Error> {
        if self.log.is_empty() {
            return Ok(());
        }
        self.roll(0).map_err(|why| Error::new(ErrorKind::Unavailable, why))
    }

    /// Begins a segment with room for so many bytes. All that was done must be durable.
    fn roll(&mut self, bytes: usize) -> Result<(), String> {
        let (next, digest, time) = {
            let state = self.shared.state.read();
            (Revision(state.revision.0 + 1), state.digest(), state.time)
        };
        let before = self.log.segment().first_revision;
        match self.log.roll(next, self.clock.trusted().max(time), digest, bytes) {
            Ok(()) => {
                if self.log.segment().first_revision != before {
                    self.shared.history.push(Arc::clone(self.log.segment()));
                }
                Ok(())
            }
            Err(error) => {
                self.short_of_space = true;
                self.shared.figures.warn(LOG_SPACE, &error.message);
                Err(format!("no space for the log, free some: {error}"))
            }
        }
    }

    fn end_record(&mut self, work: &mut Work) {
        if let Some(record) = work.record.take() {
            record.end(&mut self.group.bytes, self.log.salt());
        }
    }

    // ---- one group ----

    /// Hands the group over, to be made durable and answered.
    pub(crate) fn flush(&mut self) {
        if self.group.bytes.is_empty() && self.group.waiting.is_empty() {
            return;
        }
        self.group.last_revision = self.shared.state.read().revision;
        let bytes = self.group.bytes.len();
        let (count, memory) = (self.operations.len() as u64, self.operations.bytes());
        self.shared.figures.operations.store(count, Ordering::Relaxed);
        self.shared.figures.operations_bytes.store(memory, Ordering::Relaxed);
        self.shared.set_forgotten(self.operations.forgotten());
        let place = self.log.place(bytes);
        self.group = self.committer.commit(std::mem::take(&mut self.group), place);
    }

    /// Makes all that was done durable, or finds out that it cannot be.
    pub(crate) fn settle(&mut self) {
        self.flush();
        self.committer.settle();
    }

    /// Writes a mark behind the last group, unless there is one.
    fn mark(&mut self) -> Result<bool, Error> {
        self.settle();
        let unavailable = |why: &str| Error::new(ErrorKind::Unavailable, why.to_owned());
        if let Some(why) = self.failure() {
            return Err(unavailable(&why));
        }
        let last = self.shared.durability.revision();
        let marked = self.log.mark(last);
        self.committer.set_marked(true);
        marked.map_err(|error| {
            // What is there now nobody knows, so nothing may be appended.
            let why = format!("the log could not be written: {error}");
            self.shared.fail(&why);
            unavailable(&why)
        })
    }

    /// Begins a segment of this release's format, if the last one is of an older: nothing is
    /// appended to that.
    pub(crate) fn renew_log(&mut self) {
        if self.log.is_old()
            && let Err(why) = self.make_space(0)
        {
            tracing::warn!(
                why,
                "no segment of the current format could be begun; the first change tries again"
            );
        }
    }

    // ---- memtables ----

    /// Begins a new memtable if this one has grown enough, and has it written into a run.
    fn freeze_if_due(&mut self) {
        let due = {
            let state = self.shared.state.read();
            let rows = state.table.active().rows();
            // Directories that changed are written with it.
            rows > 0 && rows + state.resident_changed() >= self.settings.memtable_rows
        };
        // If there is no room because of the disk the memtable grows on, up to a bound at which requests are refused.
        if due && self.merger.wait_for_room().is_ok() {
            self.freeze();
        }
    }

    /// Ends the memtable. Whatever is in it is durable in the log, before any run can have it.
    fn freeze(&mut self) {
        self.settle();
        if self.failure().is_some() {
            return;
        }
        let frozen = {
            let mut state = self.shared.state.write();
            if state.revision == self.frozen {
                return;
            }
            state.freeze(&self.operations, self.frozen)
        };
        self.frozen = frozen.revision;
        self.shared.figures.set_operations_from(frozen.operations_from);
        self.merger.hand(frozen);
    }

    /// Ends the memtable, if there is anything in it.
    fn freeze_now(&mut self) -> Result<Pending, Error> {
        self.settle();
        if let Some(why) = self.failure() {
            return Err(Error::new(ErrorKind::Unavailable, why.to_string()));
        }
        self.merger.wait_for_room().map_err(|why| Error::new(ErrorKind::Unavailable, why))?;
        self.freeze();
        Ok(self.merger.pending())
    }

    /// Has all that is in memory only written into runs.
    pub(crate) fn flush_all(&mut self) -> Result<(), Error> {
        self.freeze_now()?;
        self.merger.settle().map_err(|why| Error::new(ErrorKind::Unavailable, why))
    }
}

/// A request was done before, but the change with this revision, and others of it, is not in the history any more.
fn not_kept(revision: Revision) -> ApplyError {
    ApplyError::Unknown(format!(
        "the request was applied before, from revision {} on; its outcomes are not kept any more, and it is not done \
         again: look at what it was about, and send what is left under a new operation id",
        revision.0
    ))
}

/// Decides and applies a few mutations, under the lock that keeps readers out.
fn step(
    state: &mut State,
    group: &mut Group,
    encoded: &mut Vec<u8>,
    operations: &mut Operations,
    log: &Log,
    work: &mut Work,
) -> Result<Pause, Halt> {
    for _ in 0..MUTATIONS_PER_LOCK {
        let (index, effect) = match work.held.take() {
            Some(held) => held,
            None => {
                let Some(mutation) = work.mutations.next() else { return Ok(Pause::Done) };
                let position = work.position;
                work.position += 1;
                if let Some(outcome) = work.remembered.get_mut(position).and_then(Option::take) {
                    work.outcomes.push(outcome);
                    continue;
                }
                let context = Context { revision: Revision(state.revision.0 + 1), time: work.time };
                match decide(state, context, mutation) {
                    Ok(effect) => (u32::try_from(position).unwrap_or(u32::MAX), effect),
                    Err(Declined::Unchanged) => {
                        work.outcomes.push(Outcome::Unchanged);
                        continue;
                    }
                    Err(Declined::Refused(refusal)) => {
                        work.outcomes.push(Outcome::Refused(refusal));
                        continue;
                    }
                    Err(Declined::Defect(Defect::Unreadable(error))) => return Err(Halt::Undecided(error)),
                    Err(Declined::Defect(defect)) => return Err(Halt::Defect(defect)),
                }
            }
        };
        encode_effect(&effect, encoded);
        let bytes = RecordWriter::EMPTY_BYTES + RecordWriter::bytes_of(encoded.len());
        if !log.fits(group.bytes.len() + bytes) {
            work.held = Some((index, effect));
            return Ok(Pause::NeedsSpace(bytes));
        }
        let stamp = Stamp { revision: Revision(state.revision.0 + 1), time: work.time, who: work.who };
        let mut record = match work.record.take() {
            Some(record) => record,
            None => {
                if group.bytes.is_empty() {
                    group.first_revision = stamp.revision;
                }
                operations.remember(work.operation, stamp.revision, work.time);
                let head = Head {
                    first_revision: stamp.revision,
                    time: work.time,
                    operation: work.operation,
                    fingerprint: work.fingerprint,
                    who: work.who,
                    count: 0,
                };
                RecordWriter::begin(&mut group.bytes, head)
            }
        };
        record.add(&mut group.bytes, index, encoded);
        state.apply(stamp, &effect, Some(encoded)).map_err(Halt::Defect)?;
        work.applied = true;
        work.outcomes.push(Outcome::Applied { revision: stamp.revision, id: effect.entry_id() });
        let long = record.bytes(&group.bytes) >= RECORD_SPLIT_BYTES;
        work.record = Some(record);
        if long {
            // The rest goes into a record of its own.
            return Ok(Pause::NeedsSpace(RecordWriter::EMPTY_BYTES));
        }
    }
    Ok(Pause::Yield)
}
