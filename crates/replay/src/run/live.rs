//! A run that goes on: its queue, its clock, its state, the sums of its results.
//!
//! Each change appends the entries of the journal that repeat it. An answer counts once these are durable.

use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::entry::{Entry, encode_result};
use super::outcome::AccessResult;
use super::queue::{AgentName, Ask, Queue, Verdict};
use super::settings::{RunMode, RunSettings};
use super::shapes::{
    ItemsAnswer, ItemsRequest, RefusedResult, ReplayItem, ResultsAnswer, ResultsRequest, RunState,
};
use super::time::RunTime;
use crate::limits::{
    AGAIN_MS_LEAST, AGAIN_MS_MOST, AHEAD_US, DURATION_US_MAX, ITEMS_MAX, LABEL_BYTES_MAX, RESULTS_MAX,
};
use crate::report::conditions::{Condition, StopConditions, StopReason};
use crate::report::recent::Recent;
use crate::report::tally::{ItemFacts, Tally};
use crate::report::views::HandingOut;
use crate::trace::Trace;

/// Present time, as the service has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on a clock that only goes forward.
    pub monotonic_us: u64,
    /// The date, in microseconds since 1970.
    pub date_us: u64,
}

/// Command of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunCommand {
    /// Begin to hand out.
    Start,
    /// Hand out nothing more, and let the time of the run stand.
    Pause,
    /// Go on.
    Resume,
    /// End the run.
    Stop,
}

/// See the module.
pub struct LiveRun {
    queue: Queue,
    settings: RunSettings,
    time: RunTime,
    state: RunState,
    reason: String,
    /// Condition that stopped it.
    stop: Option<StopReason>,
    /// Date of the first start.
    began_us: Option<u64>,
    /// Time of its end, on the clock that only goes forward; none if it ended in an earlier process.
    ended_at_us: Option<u64>,
    conditions: StopConditions,
    /// A bit for each item whose file no earlier item has.
    firsts: Vec<u64>,
    tally: Tally,
    recent: Recent,
    /// Bytes of late results.
    late_bytes: u64,
}

/// Returns a result as it counts: the time that an item without a time of its own waits at its agent is no
/// lateness.
fn counted(result: &AccessResult, is_timed: bool) -> AccessResult {
    let late_us = if is_timed { result.late_us } else { 0 };
    AccessResult { late_us, ..result.clone() }
}

fn conflict(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Conflict, what)
}

impl LiveRun {
    /// Makes a run that was not started.
    ///
    /// # Errors
    /// Refuses settings of which nothing could come.
    pub fn new(trace: Arc<Trace>, settings: RunSettings) -> Result<Self> {
        let conditions = StopConditions::parse(&settings.stop_when.join(","))?;
        Condition::list(&settings.fail_when.join(","), Condition::threshold)?;
        let queue = Queue::new(Arc::clone(&trace), settings.clone())?;
        let mut seen = vec![false; trace.files().len()];
        let mut firsts = vec![0_u64; (queue.items() as usize).div_ceil(64)];
        for item in 0..queue.items() {
            let Some(access) = queue.access(item) else { break };
            if !std::mem::replace(&mut seen[access.file as usize], true) {
                firsts[(item / 64) as usize] |= 1 << (item % 64);
            }
        }
        Ok(LiveRun {
            queue,
            settings,
            time: RunTime::default(),
            state: RunState::Planned,
            reason: String::new(),
            stop: None,
            began_us: None,
            ended_at_us: None,
            conditions,
            firsts,
            tally: Tally::new()?,
            recent: Recent::new(),
            late_bytes: 0,
        })
    }

    /// Returns the settings.
    pub fn settings(&self) -> &RunSettings {
        &self.settings
    }

    /// Returns the queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns the state, and the reason for it.
    pub fn state(&self) -> (RunState, &str) {
        (self.state, &self.reason)
    }

    /// Returns the condition that stopped the run.
    pub fn stop(&self) -> Option<&StopReason> {
        self.stop.as_ref()
    }

    /// Returns the date of the first start.
    pub fn began_us(&self) -> Option<u64> {
        self.began_us
    }

    /// Returns when it ended, on the clock that only goes forward; none if an earlier process ended it.
    pub fn ended_at_us(&self) -> Option<u64> {
        self.ended_at_us
    }

    /// Returns the time of the run.
    pub fn elapsed_us(&self, now: Now) -> u64 {
        self.time.elapsed_us(now.monotonic_us)
    }

    /// Returns the sums of the results.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the window of the stop conditions, to add what caches and origins say.
    pub fn recent(&mut self) -> &mut Recent {
        &mut self.recent
    }

    /// Returns the counts of what was handed out.
    pub fn handing_out(&self) -> HandingOut {
        let counters = self.queue.counters();
        HandingOut {
            handed_out: counters.handed,
            in_flight: self.queue.leased(),
            leases_expired: counters.expired,
            late_results: counters.late,
            late_result_bytes: self.late_bytes,
            known_results: counters.known,
            refused_results: counters.refused,
            agents: self.queue.agents().count() as u64,
        }
    }

    /// Applies an entry of the journal. The entry of its creation made it.
    ///
    /// # Errors
    /// Says why it cannot be one of this run.
    pub fn apply(&mut self, entry: Entry) -> std::result::Result<(), &'static str> {
        match entry {
            Entry::Created { .. } => return Err("a run is created once"),
            Entry::Agent { number, name } => match self.queue.meet(&name) {
                Ok((known, _)) if known == number => {}
                _ => return Err("an agent with another number than it had"),
            },
            Entry::Handed { agent, elapsed_us, items } => {
                self.stand_at(elapsed_us);
                self.queue.note_handed(agent, items.iter().copied());
                for (item, attempt) in items {
                    let due_us = self.queue.due_us(item).unwrap_or(elapsed_us);
                    self.queue.restore_lease(item, attempt, agent, due_us)?;
                }
            }
            Entry::Results { agent, elapsed_us, results } => {
                self.stand_at(elapsed_us);
                for result in &results {
                    if let Verdict::Refused(_) = self.judge(agent, result) {
                        return Err("a result of an item that was not handed out");
                    }
                }
            }
            Entry::State { state, elapsed_us, date_us, reason } => {
                self.stand_at(elapsed_us);
                if state == RunState::Running {
                    self.began_us.get_or_insert(date_us);
                }
                self.stop = None;
                if let Ok(stop) = serde_json::from_str::<StopReason>(&reason) {
                    self.reason = stop.text.clone();
                    self.stop = Some(stop);
                } else {
                    self.reason = reason;
                }
                self.state = state;
            }
        }
        Ok(())
    }

    fn stand_at(&mut self, elapsed_us: u64) {
        self.time = RunTime::standing(elapsed_us);
    }

    /// Goes on after the last entry: the time of a running run passes again, and leases begin anew.
    pub fn resume_after_replay(&mut self, now: Now) {
        let elapsed_us = self.elapsed_us(now);
        self.queue.renew_leases(elapsed_us, now.monotonic_us);
        if self.state == RunState::Running {
            self.time.start(now.monotonic_us);
            self.recent.begin(now.monotonic_us);
        }
    }

    fn set_state(&mut self, state: RunState, reason: &str, now: Now, journal: &mut Vec<u8>) {
        if state == RunState::Running {
            self.time.start(now.monotonic_us);
            self.recent.begin(now.monotonic_us);
            self.began_us.get_or_insert(now.date_us);
        } else {
            self.time.stop(now.monotonic_us);
            let has_ended = matches!(state, RunState::Done | RunState::Stopped);
            self.ended_at_us = has_ended.then_some(now.monotonic_us);
        }
        let elapsed_us = self.elapsed_us(now);
        (self.state, self.reason) = (state, reason.to_owned());
        let reason = self.stop.as_ref().and_then(|stop| serde_json::to_string(stop).ok());
        let reason = reason.unwrap_or_else(|| self.reason.clone());
        Entry::State { state, elapsed_us, date_us: now.date_us, reason }.encode(journal);
    }

    /// Carries out a command. One that is carried out already changes nothing.
    ///
    /// # Errors
    /// Refuses a command that the state does not allow.
    pub fn command(&mut self, command: RunCommand, now: Now, journal: &mut Vec<u8>) -> Result<()> {
        use RunState::{Done, Paused, Planned, Running, Stopped};
        let name = &self.settings.name;
        let state = match (command, self.state) {
            (RunCommand::Start | RunCommand::Resume, Running)
            | (RunCommand::Pause, Paused)
            | (RunCommand::Stop, Stopped) => return Ok(()),
            (RunCommand::Start, Planned) | (RunCommand::Resume, Paused) => Running,
            (RunCommand::Pause, Running) => Paused,
            (RunCommand::Stop, Planned | Running | Paused) => Stopped,
            (RunCommand::Resume | RunCommand::Pause, Planned) => {
                return Err(conflict(format!("the run {name} was not started: start it")));
            }
            (RunCommand::Start, Paused) => {
                return Err(conflict(format!("the run {name} is paused: resume it")));
            }
            (_, Done | Stopped) => {
                return Err(conflict(format!("the run {name} has ended: create another one")));
            }
        };
        let reason = if state == Stopped { "stopped by the operator" } else { "" };
        self.set_state(state, reason, now, journal);
        Ok(())
    }

    /// Hands out items.
    ///
    /// # Errors
    /// Refuses agents without a name, and too many of them.
    pub fn hand_out(
        &mut self,
        request: &ItemsRequest,
        is_due_only: bool,
        now: Now,
        journal: &mut Vec<u8>,
    ) -> Result<ItemsAnswer> {
        let name = AgentName {
            name: request.agent.clone(),
            cache: request.cache.clone(),
            driver: request.driver.clone(),
        };
        let (agent, is_new) = self.queue.meet(&name)?;
        if is_new {
            Entry::Agent { number: agent, name }.encode(journal);
        }
        let mut answer = ItemsAnswer {
            state: self.state,
            items: Vec::new(),
            again_ms: AGAIN_MS_MOST,
            in_flight: None,
            number: self.queue.number(agent),
        };
        if self.state != RunState::Running {
            if matches!(self.state, RunState::Planned | RunState::Paused) {
                // The first item is due as soon as the run goes on.
                answer.again_ms = AGAIN_MS_LEAST * 10;
            }
            return Ok(answer);
        }
        let elapsed_us = self.elapsed_us(now);
        let ask = Ask {
            agent,
            count: request.count.min(ITEMS_MAX) as usize,
            ahead_us: if is_due_only { 0 } else { AHEAD_US },
            elapsed_us,
            now_us: now.monotonic_us,
        };
        // An answer that was lost comes again, in place of further items.
        let lost = request.number.map(|got| self.queue.lost(agent, got)).unwrap_or_default();
        let is_again = !lost.is_empty();
        let count = if is_again { 0 } else { ask.count };
        let (handed, in_flight) = self.queue.hand_out(&Ask { count, ..ask });
        let handed = if is_again { lost } else { handed };
        answer.in_flight = in_flight;
        answer.number = self.queue.number(agent);
        let trace = self.queue.trace();
        for of in &handed {
            let Some(access) = self.queue.access(of.item) else { continue };
            let file = trace.file(access.file);
            answer.items.push(ReplayItem {
                item: of.item,
                attempt: of.attempt,
                due_us: of.due_us as i64 - elapsed_us as i64,
                lease_us: of.deadline_us.saturating_sub(now.monotonic_us),
                name: trace.name(access.file).to_owned(),
                size: file.size,
                adler32: file.adler32,
                reads: trace.reads(access).to_string(),
                site: trace.site(access.site).to_owned(),
            });
        }
        answer.again_ms = self.again_ms(handed.len() >= ask.count, elapsed_us);
        if !handed.is_empty() && !is_again {
            Entry::handed(agent, elapsed_us, &handed).encode(journal);
        }
        Ok(answer)
    }

    /// Returns after how many milliseconds an agent asks again if it can take more.
    fn again_ms(&self, is_full: bool, elapsed_us: u64) -> u64 {
        let next_due = self.queue.next_due_us();
        match next_due {
            _ if is_full => AGAIN_MS_LEAST,
            // When the next item comes within the time for which items are handed out beforehand.
            Some(due) => {
                let until = due.saturating_sub(elapsed_us.saturating_add(AHEAD_US));
                (until / 1000).clamp(AGAIN_MS_LEAST * 10, AGAIN_MS_MOST)
            }
            None => AGAIN_MS_LEAST * 10,
        }
    }

    fn is_first(&self, item: u64) -> bool {
        self.firsts.get((item / 64) as usize).is_some_and(|bits| bits >> (item % 64) & 1 == 1)
    }

    /// Judges a result, and adds it to the sums.
    fn judge(&mut self, agent: u32, result: &AccessResult) -> Verdict {
        let mut bytes = Vec::with_capacity(64);
        encode_result(result, &mut bytes);
        let verdict = self.queue.judge(result, xxh3_64(&bytes) as u32);
        match &verdict {
            Verdict::Final { due_us } => {
                let was_read_before = !self.is_first(result.item);
                let Some(access) = self.queue.access(result.item) else { return verdict };
                let (trace, reads) = (self.queue.trace(), self.queue.trace().reads(access));
                let file = trace.file(access.file);
                let nobody = AgentName::default();
                let agent = self.queue.agent(agent).unwrap_or(&nobody);
                // Without times of its own an item is intended when its agent begins it.
                let is_timed = matches!(self.settings.mode, RunMode::Recorded { .. });
                let counted = counted(result, is_timed);
                let facts = ItemFacts {
                    intended_us: due_us.saturating_add(result.late_us - counted.late_us),
                    bytes_asked: reads.bytes(file.size),
                    bytes_in_blocks: self
                        .settings
                        .block_bytes
                        .map_or(0, |block| reads.block_bytes(file.size, block)),
                    size: file.size,
                    site: trace.site(access.site),
                    dataset: trace.dataset(file.dataset),
                    cache: &agent.cache,
                    agent: &agent.name,
                    driver: &agent.driver,
                    was_read_before,
                };
                self.tally.add(&facts, &counted);
            }
            Verdict::Late => self.late_bytes = self.late_bytes.saturating_add(result.bytes),
            _ => {}
        }
        verdict
    }

    /// Takes results of an agent.
    ///
    /// # Errors
    /// Refuses agents that never asked, and more results than one request may have.
    pub fn take_results(
        &mut self,
        request: ResultsRequest,
        now: Now,
        journal: &mut Vec<u8>,
    ) -> Result<ResultsAnswer> {
        if request.results.len() > RESULTS_MAX {
            return Err(Error::limit(
                "the number of results of a request",
                request.results.len(),
                RESULTS_MAX,
            ));
        }
        let Some(agent) = self.queue.number_of(&request.agent) else {
            let what = format!("the agent {:.64?} never asked for items of this run", request.agent);
            return Err(Error::invalid(what));
        };
        let elapsed_us = self.elapsed_us(now);
        let mut answer = ResultsAnswer::default();
        let mut results = Vec::with_capacity(request.results.len());
        for result in request.results {
            let too_long = |us: u64| us > DURATION_US_MAX;
            let verdict = match too_long(result.late_us) || too_long(result.duration_us) {
                true => Verdict::Refused("its times are longer than a day".to_owned()),
                false => self.judge(agent, &result),
            };
            match verdict {
                Verdict::Final { .. } => {
                    let is_timed = matches!(self.settings.mode, RunMode::Recorded { .. });
                    self.recent.add(now.monotonic_us, &counted(&result, is_timed));
                    answer.accepted += 1;
                    results.push(result);
                }
                Verdict::Late => {
                    answer.late += 1;
                    results.push(result);
                }
                Verdict::Known | Verdict::LateKnown => answer.known += 1,
                Verdict::Refused(reason) => {
                    let AccessResult { item, attempt, .. } = result;
                    answer.refused.push(RefusedResult { item, attempt, reason });
                }
            }
        }
        if !results.is_empty() {
            Entry::Results { agent, elapsed_us, results }.encode(journal);
        }
        if self.queue.is_done() && matches!(self.state, RunState::Running | RunState::Paused) {
            self.set_state(RunState::Done, "every access has its result", now, journal);
        }
        answer.state = Some(self.state);
        Ok(answer)
    }

    /// Ends leases that ran out, and judges the stop conditions. Called about once a second.
    pub fn tick(&mut self, now: Now, journal: &mut Vec<u8>) {
        if self.state != RunState::Running {
            return;
        }
        self.queue.expire(now.monotonic_us);
        let elapsed_us = self.elapsed_us(now);
        let load = match self.settings.mode {
            RunMode::Recorded { .. } => self.queue.leased(),
            _ => self.settings.in_flight(elapsed_us).unwrap_or(0).into(),
        };
        self.recent.set_load(now.monotonic_us, load);
        if let Some(stop) = self.conditions.judge(&mut self.recent, now.monotonic_us, elapsed_us) {
            let text: String = stop.text.chars().take(LABEL_BYTES_MAX).collect();
            self.stop = Some(stop);
            self.set_state(RunState::Stopped, &text, now, journal);
        }
    }
}
