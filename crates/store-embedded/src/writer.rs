//! The writer: one thread that decides, applies and logs every change. All changes pass here in one
//! order, so none needs a lock against another.
//!
//! ```text
//!  requests ─► queue ─► decide, apply to the shared state, encode   ─┐ as many as wait, up to a bound:
//!              (bounded)         (in steps of a few mutations)       ─┤ a group
//!                                                one write, one sync ◄┘
//!                             answers ◄── durable ──► waiting reads
//! ```
//! The writer reserves log space before it begins a request, so a full disk refuses requests and
//! loses nothing. After a failed write or sync the content of the disk is unknown. The writer then
//! does nothing more until the store is opened again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use exacat_activity::CommitTimes;
use exacat_log::record::{Head, RecordWriter};
use exacat_log::{COMMIT_GROUP_BYTES_MAX, Log, RECORD_SPLIT_BYTES};
use exacat_model::limits::BATCH_MUTATIONS_MAX;
use exacat_model::{Effect, Error, ErrorKind, Fingerprint, Mutation, OperationId, Revision, TimeMs, UserId};
use exacat_store::rules::{self, Context, Declined, Stamp};
use exacat_store::{ApplyError, Clock, Judged, Outcome, Refusal, Request};
use parking_lot::RwLockWriteGuard;
use tokio::sync::{mpsc, oneshot};

use crate::answering::Waiting;
use crate::archive::Archivist;
use crate::changes::encode_effect;
use crate::command::{Answered, Command, Weighed};
use crate::committer::{CommitGroup, Committer};
use crate::compactor::{Compactor, Pending};
use crate::defect::Defect;
use crate::filtered::Filtered;
use crate::metrics::Stall;
use crate::older::{self, OlderRecords};
use crate::run::Held;
use crate::settings::{
    ASK_AGAIN_MAX, COMMIT_GROUP_REQUESTS_MAX, EmbeddedSettings, MEMTABLE_GROWTH_MAX, MUTATIONS_PER_LOCK,
    RESERVE_BYTES_MAX,
};
use crate::shared::Shared;
use crate::state::{Operations, State};

/// State of the writer thread.
pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    pub commands: mpsc::Receiver<Command>,
    pub clock: Arc<dyn Clock>,
    pub settings: EmbeddedSettings,
    pub log: Log,
    pub operations: Operations,
    /// Last change in a frozen memtable.
    pub frozen: Revision,
    pub compactor: Compactor,
    /// Commit group in the making: records not written yet, and their requests.
    pub group: CommitGroup,
    /// Buffer for the bytes of one effect, on their way into the group.
    pub effect: Vec<u8>,
    pub committer: Committer,
    /// Set if the last request was refused for lack of space.
    pub short_of_space: bool,
    /// Archive thread. It ends before the lock is released.
    pub archivist: Option<Archivist>,
    /// Set once the log has failed and readers see only the durable state.
    pub is_standing_by: bool,
    /// State of a filtered follower.
    pub filtered: Option<Filtered>,
    /// Lock of the directory, held while the thread lives.
    pub _lock: Box<dyn Send + Sync>,
}

/// A request in work.
struct RequestWork {
    operation: OperationId,
    fingerprint: Fingerprint,
    who: UserId,
    time: TimeMs,
    mutations: std::vec::IntoIter<Mutation>,
    /// LogPosition of the next mutation in the request.
    position: usize,
    /// Index and effect of a mutation that was decided but did not fit into the reserved space.
    held: Option<(u32, Effect)>,
    /// Outcomes of an earlier attempt with the same id, by mutation.
    remembered: Vec<Option<Outcome>>,
    outcomes: Vec<Outcome>,
    record: Option<RecordWriter>,
    /// Set once part of the request is applied, now or in an earlier attempt.
    applied: bool,
}

impl RequestWork {
    /// Returns the error for a request whose rest cannot be done.
    fn given_up(&self, why: String) -> ApplyError {
        match self.applied {
            true => ApplyError::Unknown(why),
            false => ApplyError::Unavailable(why),
        }
    }
}

/// Reasons why work on a request paused.
enum Pause {
    Done,
    /// Readers get the lock.
    Yield,
    /// The reserved space is too short for these bytes.
    NeedsSpace(usize),
}

/// Reasons why work on a request ended early.
enum Halt {
    /// Rows that decide a mutation are unreadable. Nothing of the mutation was done.
    Undecided(Error),
    /// The state contradicts itself; half a change may have been applied.
    Defect(Defect),
}

const LOG_SPACE: &str = "log space";

/// Shortest wait for compaction that requests are told of.
const STALL_NOTED: Duration = Duration::from_micros(100);

impl Drop for Writer {
    fn drop(&mut self) {
        // However the thread ends, no reader may wait for it forever.
        self.shared.close("the store is closed");
    }
}

impl Writer {
    /// Works until the store is closed or every sender is gone. Returns the channel of the caller
    /// that waits for the closing.
    pub(crate) fn run(&mut self) -> Option<oneshot::Sender<()>> {
        while let Some(first) = self.commands.blocking_recv() {
            let mut next = Some(first);
            while let Some(command) = next {
                match command {
                    Command::Apply { requests, reply, permit } => {
                        let taken = Instant::now();
                        self.shared.metrics.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
                        let mut answers = Vec::with_capacity(requests.len());
                        for Weighed { request, bytes } in requests {
                            answers.push(self.process(request, bytes));
                            // Flushing here keeps a commit group within GROUP_WRITTEN_BYTES_MAX.
                            if self.group.bytes.len() >= COMMIT_GROUP_BYTES_MAX {
                                self.flush();
                            }
                        }
                        self.group.requests += answers.len();
                        self.group.waiting.push(Waiting { reply, answers, taken, _permit: permit });
                    }
                    Command::Audit { reply } => {
                        self.wait_until_durable();
                        let audit = self.shared.state.read().audit().map_err(Error::from);
                        // The caller may have given up; then nobody receives the answer.
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
                    Command::WhenDurable { seal, work } => {
                        let durable = self.mark().and_then(|_| match seal {
                            true => self.seal(),
                            false => Ok(()),
                        });
                        work(durable.map(|()| self.log.position()));
                    }
                    Command::TakeOver { changes, reply } => {
                        let taken = self.take_over(&changes);
                        let _gone = reply.send(taken);
                    }
                    Command::Follow { frames, reply } => {
                        let followed = self.follow(&frames);
                        let _gone = reply.send(followed);
                    }
                    Command::FollowAhead { frames, reply } => {
                        let followed = self.follow_ahead(&frames);
                        let _gone = reply.send(followed);
                    }
                    Command::Filtered { step, reply } => {
                        let reached = self.follow_filtered(step);
                        let _gone = reply.send(reached);
                    }
                    Command::Load(work) => self.load(*work),
                    Command::Close { reply } => {
                        self.shared.refuse();
                        if let Err(error) = self.flush_all() {
                            tracing::warn!(%error, "the memtable is not in a sorted run at closing; the next opening takes longer");
                        }
                        if let Err(error) = self.mark() {
                            tracing::warn!(%error, "no end mark was written at closing");
                        }
                        self.refuse_waiting();
                        return Some(reply);
                    }
                }
                let full = self.group.bytes.len() >= COMMIT_GROUP_BYTES_MAX
                    || self.group.requests >= COMMIT_GROUP_REQUESTS_MAX;
                next = if full { None } else { self.commands.try_recv().ok() };
            }
            self.flush();
            self.stand_by();
            self.freeze_if_due();
            // Slows the writer down while compaction lags, so that runs do not pile up.
            self.stalling(Stall::Debt, |writer| writer.compactor.slow_down());
        }
        self.wait_until_durable();
        None
    }

    /// Reason why nothing more can be written, if there is one.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.shared.durability.ended()
    }

    /// Tells callers that came too late that nothing was done.
    fn refuse_waiting(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Apply { requests, reply, permit } = command {
                let closed = || Err(ApplyError::Unavailable("the store is closed".to_owned()));
                drop(permit);
                let times = CommitTimes::at(Instant::now());
                let _gone = reply.send((requests.iter().map(|_| closed()).collect(), times));
            }
        }
    }

    // ---- one request ----

    fn process(&mut self, request: Request, request_bytes: usize) -> Answered {
        if let Some(why) = self.failure() {
            // It is unknown whether an earlier attempt with this id is durable.
            return Err(match self.operations.records_of(request.operation).is_empty() {
                true => ApplyError::Unavailable(why.to_string()),
                false => ApplyError::Unknown(why.to_string()),
            });
        }
        let count = request.mutations.len();
        let remembered = self.remembered(&request, count)?;
        let unless_applied = |error: String| {
            // An earlier attempt may have done part of it, so "nothing was done" would be wrong.
            match remembered.iter().any(Option::is_some) {
                true => ApplyError::Unknown(error),
                false => ApplyError::Unavailable(error),
            }
        };
        // A repeated request gets its first answer, and is not decided again (clause A6).
        if count > 0 && remembered.iter().all(Option::is_some) {
            return Ok(remembered.into_iter().flatten().collect());
        }
        if count > 0 {
            self.reserve(&request.mutations, request_bytes).map_err(unless_applied)?;
        }
        // Permission was judged on an earlier state, and a change since may have revoked it
        // (decision 0054).
        if let Some(judged) = &request.judged
            && !self.judged_the_same(judged, &request.mutations, &remembered).map_err(unless_applied)?
        {
            let outdated = || Outcome::Refused(Refusal::Outdated);
            return Ok(remembered.into_iter().map(|outcome| outcome.unwrap_or_else(outdated)).collect());
        }
        let mut work = RequestWork {
            operation: request.operation,
            fingerprint: request.fingerprint,
            who: request.who,
            // Times of changes never go back, even if the clock does.
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
                // Lets waiting readers in first: otherwise this thread takes the lock again before
                // they wake.
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
                    // Half a change may have been applied, and no reader may see it.
                    self.shared.close(&why);
                    return Err(ApplyError::Unknown(defect.to_string()));
                }
            }
        }
        self.end_record(&mut work);
        Ok(work.outcomes)
    }

    /// Says whether the permission of a request is the same on the state that decides it.
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
        // Most requests end at this one comparison.
        if state.rights_changed() <= judged.since {
            return Ok(true);
        }
        let same = rules::judged_the_same(&*state, judged, mutations, |revision| own.contains(&revision));
        same.map_err(|defect| defect.to_string())
    }

    /// Reads the pages that deciding will need, so that no disk access happens under the write
    /// lock.
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

    /// Returns the outcomes that mutations of this request had in an earlier attempt (clause A6).
    fn remembered(&mut self, request: &Request, count: usize) -> Result<Vec<Option<Outcome>>, ApplyError> {
        let mut outcomes = vec![None; count];
        let operation = request.operation;
        let mut records = self.operations.records_of(operation);
        if operation.made() < self.operations.forgotten() {
            records = self.records_in_log(operation)?;
        }
        if records.iter().any(|first| *first > self.shared.durability.written()) {
            // These records are in this group or the one before, and not in the log yet.
            self.wait_until_durable();
        }
        for (number, first_revision) in records.into_iter().enumerate() {
            if number == 0 && self.is_another(request, first_revision)? {
                return Err(ApplyError::conflict(operation));
            }
            let changes = self.shared.history.record(first_revision).map_err(|error| {
                ApplyError::Unknown(format!("the earlier changes of the request cannot be read: {error}"))
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

    /// Returns the first revisions of the records of a request that memory may have forgotten.
    fn records_in_log(&mut self, operation: OperationId) -> Result<Vec<Revision>, ApplyError> {
        // After this every applied change is in the log.
        self.wait_until_durable();
        if let Some(why) = self.failure() {
            return Err(ApplyError::Unknown(why.to_string()));
        }
        let durable = self.shared.durability.written();
        let found = self.shared.older.lock().find(&self.shared.history, operation, durable);
        match found {
            Ok(OlderRecords::Records(records)) => Ok(records),
            Ok(OlderRecords::NotKept) => Err(ApplyError::Unknown(older::not_kept(operation).message)),
            Err(error) => Err(ApplyError::Unknown(format!(
                "whether operation id {operation:?} was applied before cannot be read from the log: {error}"
            ))),
        }
    }

    /// Says whether this record has the request's id but belongs to another request.
    fn is_another(&self, request: &Request, first_revision: Revision) -> Result<bool, ApplyError> {
        let mut differs = false;
        let read = self.shared.history.heads(first_revision, first_revision, |head| {
            differs = head.fingerprint.differs(request.fingerprint);
            false
        });
        let is_kept = read.map_err(|error| {
            ApplyError::Unknown(format!("the earlier changes of the request cannot be read: {error}"))
        })?;
        if is_kept { Ok(differs) } else { Err(not_kept(first_revision)) }
    }

    /// Makes sure that log and memory have room for a request before any of it is done.
    fn reserve(&mut self, mutations: &[Mutation], request_bytes: usize) -> Result<(), String> {
        mutations.chunks(MUTATIONS_PER_LOCK).try_for_each(|soon| self.rehearse(soon))?;
        let (needed, rows) = {
            let state = self.shared.state.read();
            let (look, mut named) = (state.look(), 0);
            for mutation in mutations {
                named += look.bytes_at_most(mutation).map_err(|defect| defect.to_string())?;
            }
            // A record may have the bytes of the request twice, because a value can return as a
            // before. The entries that the mutations name come on top.
            let needed = 2 * request_bytes + named + RecordWriter::EMPTY_BYTES;
            (needed.min(RESERVE_BYTES_MAX), state.table.active().rows() + mutations.len())
        };
        self.bound_memtable(rows)?;
        if !self.log.fits(self.group.bytes.len() + needed) {
            self.make_space(needed)?;
        }
        if std::mem::take(&mut self.short_of_space) {
            self.shared.metrics.clear(LOG_SPACE);
        }
        Ok(())
    }

    /// Waits for room if the memtable has, or would have, too many rows. It outgrows its size only while the
    /// disk has no room for runs. This bound keeps memory finite.
    pub(crate) fn bound_memtable(&mut self, rows: usize) -> Result<(), String> {
        let most = self.settings.memtable_rows.saturating_mul(MEMTABLE_GROWTH_MAX);
        if rows <= most.max(2 * BATCH_MUTATIONS_MAX) {
            return Ok(());
        }
        let room = self.stalling(Stall::Memtables, |writer| writer.compactor.wait_for_room());
        room.map_err(|error| format!("changes cannot be put into runs, free some space: {error}"))
    }

    /// Commits the current group, and begins a segment if `bytes` do not fit into this one.
    pub(crate) fn make_space(&mut self, bytes: usize) -> Result<(), String> {
        self.wait_until_durable();
        if let Some(why) = self.failure() {
            return Err(why.to_string());
        }
        if self.log.fits(bytes) { Ok(()) } else { self.roll(bytes) }
    }

    /// Seals the segment. Skips an empty segment, which is as good as a new one.
    fn seal(&mut self) -> Result<(), Error> {
        if self.log.is_empty() {
            return Ok(());
        }
        self.roll(0).map_err(|why| Error::new(ErrorKind::Unavailable, why))
    }

    /// Begins a segment with room for `bytes`. Everything done so far must be durable.
    fn roll(&mut self, bytes: usize) -> Result<(), String> {
        let (next, digest, time) = {
            let state = self.shared.state.read();
            (Revision(state.revision.0 + 1), state.digest(), state.time)
        };
        let before = self.log.segment().first_revision;
        // The header gets the digest of the state, so that a replay can compare its own with it.
        match self.log.roll(next, self.clock.trusted().max(time), digest, bytes) {
            Ok(()) => {
                if self.log.segment().first_revision != before {
                    self.shared.history.push(Arc::clone(self.log.segment()));
                }
                Ok(())
            }
            Err(error) => {
                self.short_of_space = true;
                self.shared.metrics.warn(LOG_SPACE, &error.message);
                Err(format!("no space for the log, free some: {error}"))
            }
        }
    }

    fn end_record(&mut self, work: &mut RequestWork) {
        if let Some(record) = work.record.take() {
            record.end(&mut self.group.bytes, self.log.salt());
        }
    }

    // ---- one group ----

    /// Sends the group to the committer, which makes it durable and answers it.
    pub(crate) fn flush(&mut self) {
        if self.group.bytes.is_empty() && self.group.waiting.is_empty() {
            return;
        }
        self.group.last_revision = self.shared.state.read().revision;
        let bytes = self.group.bytes.len();
        let (count, memory) = (self.operations.len() as u64, self.operations.bytes());
        self.shared.metrics.operations.store(count, Ordering::Relaxed);
        self.shared.metrics.operations_bytes.store(memory, Ordering::Relaxed);
        self.shared.set_forgotten(self.operations.forgotten());
        let place = self.log.place(bytes);
        self.group = self.committer.commit(std::mem::take(&mut self.group), place);
    }

    /// Waits until everything done is durable, or the log has failed.
    pub(crate) fn wait_until_durable(&mut self) {
        self.flush();
        self.committer.wait_until_durable();
    }

    /// Writes an end mark behind the last group, unless there is one.
    fn mark(&mut self) -> Result<bool, Error> {
        self.wait_until_durable();
        let unavailable = |why: &str| Error::new(ErrorKind::Unavailable, why.to_owned());
        if let Some(why) = self.failure() {
            return Err(unavailable(&why));
        }
        if self.settings.repeats_log() {
            // The log of a follower has the marks of its source, and no others.
            self.committer.set_marked(true);
            return Ok(false);
        }
        // An end mark proves that everything before it is durable: nothing may be in flight here.
        let last = self.shared.durability.written();
        let marked = self.log.mark(last);
        self.committer.set_marked(true);
        marked.map_err(|error| {
            // The content behind the last group is unknown now, so nothing may be appended.
            let why = format!("the log could not be written: {error}");
            self.shared.fail(&why);
            unavailable(&why)
        })
    }

    /// Begins a segment of the current format if the last one is of an older format, which takes no
    /// more records.
    pub(crate) fn renew_log(&mut self) {
        if self.log.is_old()
            && !self.settings.repeats_log()
            && let Err(why) = self.make_space(0)
        {
            tracing::warn!(why, "cannot begin a segment of the current format; the first change retries");
        }
    }

    // ---- memtables ----

    /// Waits for compaction, and notes that for the requests that wait meanwhile.
    pub(crate) fn stalling<T>(&mut self, why: Stall, wait: impl FnOnce(&mut Self) -> T) -> T {
        let began = Instant::now();
        let waited = wait(self);
        let ended = Instant::now();
        // Passing through takes microseconds, and is no wait.
        if ended - began >= STALL_NOTED {
            self.group.stalled = Some((ended, ended - began));
            self.shared.metrics.stalled(why, ended - began);
        }
        waited
    }

    /// Freezes the memtable once it is large enough, and starts writing it into a run.
    pub(crate) fn freeze_if_due(&mut self) {
        let due = {
            let state = self.shared.state.read();
            let rows = state.table.active().rows();
            // The run also gets the changed directories.
            rows > 0 && rows + state.resident_changed() >= self.settings.memtable_rows
        };
        // Without room on the disk the memtable grows on, up to the bound at which requests are
        // refused.
        if due && self.stalling(Stall::Memtables, |writer| writer.compactor.wait_for_room()).is_ok() {
            self.freeze();
        }
    }

    /// Freezes the memtable. Its rows are durable in the log before any run can have them.
    fn freeze(&mut self) {
        self.wait_until_durable();
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
        self.shared.metrics.set_operations_from(frozen.operations_from);
        self.compactor.submit(frozen);
    }

    /// Freezes the memtable, unless it is empty.
    fn freeze_now(&mut self) -> Result<Pending, Error> {
        self.wait_until_durable();
        if let Some(why) = self.failure() {
            return Err(Error::new(ErrorKind::Unavailable, why.to_string()));
        }
        self.compactor.wait_for_room().map_err(|why| Error::new(ErrorKind::Unavailable, why))?;
        self.freeze();
        Ok(self.compactor.pending())
    }

    /// Writes the whole memtable into runs, and waits for that.
    pub(crate) fn flush_all(&mut self) -> Result<(), Error> {
        self.freeze_now()?;
        self.compactor.wait_until_written().map_err(|why| Error::new(ErrorKind::Unavailable, why))
    }
}

/// Returns the error for a repeated request whose earlier changes, from `revision` on, are no
/// longer in the history.
fn not_kept(revision: Revision) -> ApplyError {
    ApplyError::Unknown(format!(
        "the request was applied before, from revision {} on; its outcomes are not kept any more, and it is not done \
         again: check its entries, and send the rest under a new operation id",
        revision.0
    ))
}

/// Decides and applies a few mutations under the write lock.
fn step(
    state: &mut State,
    group: &mut CommitGroup,
    encoded: &mut Vec<u8>,
    operations: &mut Operations,
    log: &Log,
    work: &mut RequestWork,
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
                match rules::decide(state, context, mutation) {
                    Ok(effect) => (u32::try_from(position).unwrap_or(u32::MAX), effect),
                    Err(Declined::Unchanged) => {
                        work.outcomes.push(Outcome::Unchanged);
                        continue;
                    }
                    Err(Declined::Refused(refusal)) => {
                        work.outcomes.push(Outcome::Refused(refusal));
                        continue;
                    }
                    Err(Declined::Failed(Defect::Unreadable(error))) => return Err(Halt::Undecided(error)),
                    Err(Declined::Failed(defect)) => return Err(Halt::Defect(defect)),
                }
            }
        };
        encode_effect(&effect, encoded);
        let bytes = RecordWriter::EMPTY_BYTES + RecordWriter::bytes_of(encoded.len());
        // The decided effect is held, and stays valid: no other thread changes the state meanwhile.
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
                // Remembered before it is durable, so that a repetition in the same group is found.
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
        // Applied before it is durable, because later requests are decided on it. Answers to
        // readers wait until it is durable (decision 0006).
        state.apply(stamp, &effect, Some(encoded)).map_err(Halt::Defect)?;
        work.applied = true;
        work.outcomes.push(Outcome::Applied { revision: stamp.revision, id: effect.entry_id() });
        let long = record.bytes(&group.bytes) >= RECORD_SPLIT_BYTES;
        work.record = Some(record);
        if long {
            // The rest of the request begins another record.
            return Ok(Pause::NeedsSpace(RecordWriter::EMPTY_BYTES));
        }
    }
    Ok(Pause::Yield)
}
