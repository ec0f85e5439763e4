//! Queue of a run: hands out its items under leases, and takes one final result of each.
//!
//! An item is the access of a trace with the same number. It is *new*, *waiting* for an agent that has
//! earlier accesses to its file, *leased*, *returned* after its lease ran out, or *ended*. Nothing here asks
//! a clock: leases run by the `now_us` of the caller, and items are due by the run's own time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result};
use hashbrown::{HashMap, HashSet};

use super::outcome::AccessResult;
use super::settings::{RunMode, RunOrder, RunSettings};
use crate::limits::{
    AGENT_ACTIVE_US, AGENTS_MAX, AHEAD_ITEMS_MAX, AHEAD_ITEMS_MIN, AHEAD_SHARE_MAX, LABEL_BYTES_MAX,
    LOOKED_AT_MAX, PACE_US, SLICE_US, WAITING_ITEMS_MAX,
};
use crate::trace::{Access, Trace};

/// Item under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedItem {
    /// Number of the access in the run.
    pub item: u64,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Intended begin, in the time of the run.
    pub due_us: u64,
    /// End of the lease.
    pub deadline_us: u64,
}

/// Agent that asks, as it names itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentName {
    /// Name, unique in the run.
    pub name: String,
    /// Cache that it reads from.
    pub cache: String,
    /// Way in which it reads.
    pub driver: String,
}

/// Request of an agent for items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Number of the agent.
    pub agent: u32,
    /// Most items.
    pub count: usize,
    /// Time before an item is due for which it is handed out already.
    pub ahead_us: u64,
    /// Time of the run.
    pub elapsed_us: u64,
    /// Time of the leases.
    pub now_us: u64,
}

/// Lease of an item.
#[derive(Clone, Copy, Debug)]
struct Lease {
    agent: u32,
    attempt: u32,
    due_us: u64,
    deadline_us: u64,
}

/// Agent of a run.
#[derive(Debug, Default)]
struct Agent {
    name: AgentName,
    /// Items under a lease.
    leases: u64,
    /// Time of its last request.
    asked_us: u64,
    /// Accesses that it ends.
    pace: Pace,
    /// Items whose file it has earlier accesses of.
    waiting: BTreeSet<u64>,
    /// When the items are due that it got before that time, in about this order.
    ahead: VecDeque<u64>,
    /// Items and attempts that it was given last, and how many times it was given some.
    last: Vec<(u64, u32)>,
    number: u64,
}

/// Accesses that an agent ends in a time.
#[derive(Debug, Default)]
struct Pace {
    /// When the present time began, and what ended since.
    since_us: u64,
    ended: u64,
    /// Accesses that ended in the time before, as if it had been [`PACE_US`] long.
    before: u64,
}

impl Pace {
    /// Returns the accesses that the agent ends in [`PACE_US`].
    fn ended_in_pace(&mut self, now_us: u64) -> u64 {
        let passed_us = now_us.saturating_sub(self.since_us);
        if passed_us >= PACE_US {
            self.before = self.ended.saturating_mul(PACE_US) / passed_us;
            (self.since_us, self.ended) = (now_us, 0);
        }
        self.before.max(self.ended)
    }
}

/// Bounds of one request in a run with times, where several agents ask: one alone must not take all that is
/// due in the next seconds.
#[derive(Clone, Copy)]
struct Portion {
    /// Time up to which items are handed out.
    until_us: u64,
    /// Items that the agent has before they are due.
    ahead_items: usize,
}

/// Accesses to a file that one agent has.
#[derive(Clone, Copy, Debug)]
struct FileHolder {
    agent: u32,
    /// Items under a lease, or waiting for the agent.
    items: u32,
}

/// Verdict on a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the final one of its item.
    Final {
        /// Intended begin, in the time of the run.
        due_us: u64,
    },
    /// It came before.
    Known,
    /// Another attempt had ended the item. It counts, once.
    Late,
    /// A late one that came before.
    LateKnown,
    /// It is none of this run, or contradicts a stored one.
    Refused(String),
}

/// Counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Leases given.
    pub handed: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Items with their final result.
    pub ended: u64,
    /// Results of items that another attempt had ended.
    pub late: u64,
    /// Results that were sent again.
    pub known: u64,
    /// Results that were refused.
    pub refused: u64,
}

/// See the module.
pub struct Queue {
    trace: Arc<Trace>,
    settings: RunSettings,
    /// Accesses of the trace before the first item.
    skip: u64,
    items: u64,
    /// Number of the next new item.
    next: u64,
    /// Fingerprint of the final result of each item up to `next`, 0 for none.
    results: Vec<u32>,
    leases: HashMap<u64, Lease>,
    deadlines: BTreeSet<(u64, u64)>,
    returned: BTreeSet<u64>,
    /// Last attempt of items that had more than one, or whose lease ran out.
    attempts: HashMap<u64, u32>,
    /// Attempt of final results, where it is not the first.
    finals: HashMap<u64, u32>,
    /// Late results.
    late: HashSet<(u64, u32)>,
    agents: Vec<Agent>,
    numbers: HashMap<String, u32>,
    holders: HashMap<u32, FileHolder>,
    waiting: usize,
    counters: QueueCounters,
}

impl Queue {
    /// Makes the queue of a run over a sorted trace.
    ///
    /// # Errors
    /// Refuses settings of which nothing could come, and a run without an item.
    pub fn new(trace: Arc<Trace>, settings: RunSettings) -> Result<Self> {
        settings.check()?;
        let skip = settings.skip;
        let left = (trace.accesses().len() as u64).saturating_sub(skip);
        let items = settings.accesses.map_or(left, |most| left.min(most));
        if items == 0 {
            return Err(Error::invalid("the run has no access: the trace is empty, or all are skipped"));
        }
        Ok(Queue {
            trace,
            settings,
            skip,
            items,
            next: 0,
            results: Vec::new(),
            leases: HashMap::new(),
            deadlines: BTreeSet::new(),
            returned: BTreeSet::new(),
            attempts: HashMap::new(),
            finals: HashMap::new(),
            late: HashSet::new(),
            agents: Vec::new(),
            numbers: HashMap::new(),
            holders: HashMap::new(),
            waiting: 0,
            counters: QueueCounters::default(),
        })
    }

    /// Returns the number of items.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the counters.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Returns the number of items under a lease.
    pub fn leased(&self) -> u64 {
        self.leases.len() as u64
    }

    /// Says whether every item has its result.
    pub fn is_done(&self) -> bool {
        self.counters.ended == self.items
    }

    /// Returns the access of an item.
    pub fn access(&self, item: u64) -> Option<&Access> {
        let at = usize::try_from(item.checked_add(self.skip)?).ok()?;
        self.trace.accesses().get(at).filter(|_| item < self.items)
    }

    /// Returns the trace.
    pub fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// Returns the agents: name, items under a lease, and time of the last request.
    pub fn agents(&self) -> impl Iterator<Item = (&AgentName, u64, u64)> {
        self.agents.iter().map(|agent| (&agent.name, agent.leases, agent.asked_us))
    }

    /// Returns an agent by its number.
    pub fn agent(&self, number: u32) -> Option<&AgentName> {
        self.agents.get(number as usize).map(|agent| &agent.name)
    }

    /// Returns the number of an agent, and whether it is new. An agent that reads from another cache than
    /// before counts there from now on.
    ///
    /// # Errors
    /// Refuses names that are empty or too long, and too many agents.
    pub fn meet(&mut self, name: &AgentName) -> Result<(u32, bool)> {
        let texts = [&name.name, &name.cache, &name.driver];
        let is_bad = |text: &&String| text.len() > LABEL_BYTES_MAX || text.chars().any(char::is_control);
        if name.name.is_empty() || texts.into_iter().any(|text| is_bad(&text)) {
            let what = format!("agent, cache and driver have at most {LABEL_BYTES_MAX} bytes of text");
            return Err(Error::invalid(what));
        }
        if let Some(number) = self.numbers.get(&name.name) {
            let known = &mut self.agents[*number as usize];
            let is_new = known.name != *name;
            if is_new {
                known.name = name.clone();
            }
            return Ok((*number, is_new));
        }
        if self.agents.len() >= AGENTS_MAX {
            let what = format!("the run has {AGENTS_MAX} agents already: give agents names that stay");
            return Err(Error::new(ErrorKind::Limit, what));
        }
        let number = self.agents.len() as u32;
        self.agents.push(Agent { name: name.clone(), ..Agent::default() });
        self.numbers.insert(name.name.clone(), number);
        Ok((number, true))
    }

    /// Returns the number of a known agent.
    pub fn number_of(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns when an item is due, in the time of the run; none if it has no time of its own.
    pub fn due_us(&self, item: u64) -> Option<u64> {
        self.due_of(self.access(item)?)
    }

    fn due_of(&self, access: &Access) -> Option<u64> {
        let RunMode::Recorded { speed } = self.settings.mode else { return None };
        let after = access.time_us.saturating_sub(self.access(0)?.time_us);
        Some((after as f64 / speed).round() as u64)
    }

    /// Returns the number of items that are due up to a time.
    fn due_until(&self, time_us: u64) -> usize {
        let first = usize::try_from(self.skip).unwrap_or(usize::MAX);
        let all = self.trace.accesses().get(first..).unwrap_or_default();
        let items = usize::try_from(self.items).unwrap_or(usize::MAX).min(all.len());
        all[..items].partition_point(|access| self.due_of(access).is_some_and(|due| due <= time_us))
    }

    /// Returns the part of the next seconds that an agent may take; none where all of it is its own.
    fn portion(&self, ask: &Ask) -> Option<Portion> {
        let Ask { agent, ahead_us, elapsed_us, now_us, .. } = *ask;
        let head_us = self.next_due_us()?;
        let active = self.active(agent, now_us).0 as usize;
        if active < 2 {
            return None;
        }
        let soon = self.due_until(elapsed_us.saturating_add(ahead_us)) - self.due_until(elapsed_us);
        let until_us = head_us.max(elapsed_us).saturating_add(SLICE_US);
        Some(Portion { until_us, ahead_items: soon.div_ceil(active).max(1) })
    }

    /// Returns the number of agents that ask for items, and of those that have a lower number than one.
    fn active(&self, agent: u32, now_us: u64) -> (u32, u32) {
        let is_active = |of: &Agent| now_us.saturating_sub(of.asked_us) <= AGENT_ACTIVE_US;
        let (mut active, mut before) = (0, 0);
        for (number, of) in self.agents.iter().enumerate() {
            if number == agent as usize || is_active(of) {
                active += 1;
                before += u32::from(number < agent as usize);
            }
        }
        (active, before)
    }

    /// Returns the accesses that an agent may have in flight; none for no bound.
    fn share(&self, agent: u32, elapsed_us: u64, now_us: u64) -> Option<u32> {
        let all = self.settings.in_flight(elapsed_us)?;
        let (active, before) = self.active(agent, now_us);
        Some(all / active + u32::from(before < all % active))
    }

    /// Returns when the next item is due that is new or returned; none if there is none, or it has no time.
    pub fn next_due_us(&self) -> Option<u64> {
        let new = (self.next < self.items).then_some(self.next);
        let item = self.returned.first().copied().into_iter().chain(new).min()?;
        self.due_us(item)
    }

    /// Notes that items were handed to an agent together.
    pub fn note_handed(&mut self, agent: u32, items: impl Iterator<Item = (u64, u32)>) {
        if let Some(of) = self.agents.get_mut(agent as usize) {
            of.last = items.collect();
            of.number += 1;
        }
    }

    /// Returns how many times an agent was given items.
    pub fn number(&self, agent: u32) -> u64 {
        self.agents.get(agent as usize).map_or(0, |of| of.number)
    }

    /// Returns the items that an agent was given last, as far as it has them still, if it has got the answer
    /// before that one only: the last one was lost.
    pub fn lost(&self, agent: u32, got: u64) -> Vec<HandedItem> {
        let Some(of) = self.agents.get(agent as usize).filter(|of| of.number == got.saturating_add(1)) else {
            return Vec::new();
        };
        let still = |(item, attempt): &(u64, u32)| {
            let lease = self.leases.get(item).filter(|of| of.agent == agent && of.attempt == *attempt)?;
            let Lease { due_us, deadline_us, .. } = *lease;
            Some(HandedItem { item: *item, attempt: *attempt, due_us, deadline_us })
        };
        of.last.iter().filter_map(still).collect()
    }

    /// Hands out items to an agent, in their order. The second value is the number of accesses that it may
    /// have in flight; none for no bound.
    pub fn hand_out(&mut self, ask: &Ask) -> (Vec<HandedItem>, Option<u32>) {
        let Ask { agent, count, ahead_us, elapsed_us, now_us } = *ask;
        let Some(of) = self.agents.get_mut(agent as usize) else { return (Vec::new(), None) };
        of.asked_us = now_us;
        while of.ahead.front().is_some_and(|due| *due <= elapsed_us) {
            of.ahead.pop_front();
        }
        // Beside those in flight, so that the agent never waits for the service: what it ends meanwhile.
        let ended = of.pace.ended_in_pace(now_us).min(AHEAD_ITEMS_MAX.into());
        let share = self.share(agent, elapsed_us, now_us);
        let most = share
            .map(|share| u64::from(share) + ended.max(share.clamp(AHEAD_ITEMS_MIN, AHEAD_SHARE_MAX).into()));
        let portion = self.portion(ask);
        let mut handed = Vec::new();
        let mut looked_at = 0;
        while handed.len() < count && looked_at < LOOKED_AT_MAX {
            let of = &self.agents[agent as usize];
            if most.is_some_and(|most| of.leases >= most || share == Some(0)) {
                break;
            }
            let waiting = of.waiting.first().copied();
            let returned = self.returned.first().copied();
            let new = (self.next < self.items).then_some(self.next);
            let Some(item) = [waiting, returned, new].into_iter().flatten().min() else { break };
            let due_us = self.due_us(item);
            if due_us.is_some_and(|due| due > elapsed_us.saturating_add(ahead_us)) {
                break;
            }
            let is_enough = |portion: Portion, due: u64| {
                due > portion.until_us || (due > elapsed_us && of.ahead.len() >= portion.ahead_items)
            };
            if portion.zip(due_us).is_some_and(|(portion, due)| is_enough(portion, due)) {
                break;
            }
            let Some(file) = self.access(item).map(|access| access.file) else { break };
            looked_at += 1;
            let holder = self.holders.get(&file).map_or(agent, |holder| holder.agent);
            if holder != agent && self.waiting >= WAITING_ITEMS_MAX {
                break;
            }
            if waiting == Some(item) {
                self.agents[agent as usize].waiting.remove(&item);
                self.waiting -= 1;
                self.release_file(file);
            } else if !self.returned.remove(&item) {
                self.next += 1;
                self.results.push(0);
            }
            self.hold_file(file, holder);
            if holder != agent {
                self.agents[holder as usize].waiting.insert(item);
                self.waiting += 1;
                continue;
            }
            if let Some(due) = due_us.filter(|due| *due > elapsed_us) {
                self.agents[agent as usize].ahead.push_back(due);
            }
            let due_us = due_us.unwrap_or(elapsed_us);
            handed.push(self.lease(item, agent, due_us, elapsed_us, now_us));
        }
        if !handed.is_empty() {
            self.note_handed(agent, handed.iter().map(|of| (of.item, of.attempt)));
        }
        (handed, share)
    }

    fn lease(&mut self, item: u64, agent: u32, due_us: u64, elapsed_us: u64, now_us: u64) -> HandedItem {
        let attempt = self.attempts.get(&item).map_or(1, |last| last.saturating_add(1));
        if attempt > 1 {
            self.attempts.insert(item, attempt);
        }
        let size = self.access(item).map_or(0, |access| self.trace.file(access.file).size);
        let until_due = due_us.saturating_sub(elapsed_us);
        let deadline_us = now_us.saturating_add(until_due).saturating_add(self.settings.lease_us(size));
        self.leases.insert(item, Lease { agent, attempt, due_us, deadline_us });
        self.deadlines.insert((deadline_us, item));
        self.agents[agent as usize].leases += 1;
        self.counters.handed += 1;
        HandedItem { item, attempt, due_us, deadline_us }
    }

    fn hold_file(&mut self, file: u32, agent: u32) {
        if self.settings.order == RunOrder::File {
            self.holders.entry(file).or_insert(FileHolder { agent, items: 0 }).items += 1;
        }
    }

    fn release_file(&mut self, file: u32) {
        if let Some(holder) = self.holders.get_mut(&file) {
            holder.items -= 1;
            if holder.items == 0 {
                self.holders.remove(&file);
            }
        }
    }

    fn end_lease(&mut self, item: u64, lease: Lease) {
        self.leases.remove(&item);
        self.deadlines.remove(&(lease.deadline_us, item));
        self.agents[lease.agent as usize].leases -= 1;
        if let Some(file) = self.access(item).map(|access| access.file) {
            self.release_file(file);
        }
    }

    /// Takes an item from those that wait for an agent.
    fn stop_waiting(&mut self, item: u64) {
        let Some(file) = self.access(item).map(|access| access.file) else { return };
        if let Some(holder) = self.holders.get(&file).copied()
            && self.agents[holder.agent as usize].waiting.remove(&item)
        {
            self.waiting -= 1;
            self.release_file(file);
        }
    }

    /// Returns the items whose leases ran out to the queue. Items that wait for an agent that is gone are
    /// free then. Returns the number of those leases.
    pub fn expire(&mut self, now_us: u64) -> u64 {
        let mut expired = 0;
        while let Some((deadline_us, item)) = self.deadlines.first().copied() {
            if deadline_us > now_us {
                break;
            }
            let Some(lease) = self.leases.get(&item).copied() else { break };
            self.end_lease(item, lease);
            self.attempts.insert(item, lease.attempt);
            self.returned.insert(item);
            expired += 1;
        }
        self.counters.expired += expired;
        for number in 0..self.agents.len() {
            let agent = &self.agents[number];
            let is_gone = now_us.saturating_sub(agent.asked_us) > AGENT_ACTIVE_US;
            if agent.waiting.is_empty() || agent.leases > 0 || !is_gone {
                continue;
            }
            for item in std::mem::take(&mut self.agents[number].waiting) {
                self.waiting -= 1;
                self.returned.insert(item);
                if let Some(file) = self.access(item).map(|access| access.file) {
                    self.release_file(file);
                }
            }
        }
        expired
    }

    /// Judges a result, and ends its item if it is the final one. `fingerprint` is that of its content.
    pub fn judge(&mut self, result: &AccessResult, fingerprint: u32) -> Verdict {
        let verdict = self.judged(result, fingerprint.max(1));
        match &verdict {
            Verdict::Final { .. } => self.counters.ended += 1,
            Verdict::Known | Verdict::LateKnown => self.counters.known += 1,
            Verdict::Late => self.counters.late += 1,
            Verdict::Refused(_) => self.counters.refused += 1,
        }
        verdict
    }

    fn judged(&mut self, result: &AccessResult, fingerprint: u32) -> Verdict {
        let AccessResult { item, attempt, .. } = *result;
        let refused = |what: &str| Verdict::Refused(what.to_owned());
        if item >= self.items {
            return refused("the run has no such item");
        }
        let never = "the item was never handed out";
        let Some(known) = usize::try_from(item).ok().and_then(|at| self.results.get(at)).copied() else {
            return refused(never);
        };
        let lease = self.leases.get(&item).copied();
        let last = match (&lease, self.attempts.get(&item)) {
            (Some(lease), _) => lease.attempt,
            (None, Some(last)) => *last,
            (None, None) if known != 0 => 1,
            (None, None) => return refused(never),
        };
        if attempt == 0 || attempt > last {
            return refused("the item had no such attempt");
        }
        if known != 0 {
            let of_final = self.finals.get(&item).copied().unwrap_or(1);
            return match (attempt == of_final, known == fingerprint) {
                (true, true) => Verdict::Known,
                (true, false) => refused("another result of this attempt is stored"),
                (false, _) if self.late.insert((item, attempt)) => Verdict::Late,
                (false, _) => Verdict::LateKnown,
            };
        }
        let due_us = lease.map(|lease| lease.due_us).or_else(|| self.due_us(item)).unwrap_or(0);
        match lease {
            // Another agent may be at it: its result will be late.
            Some(lease) => {
                self.end_lease(item, lease);
                self.agents[lease.agent as usize].pace.ended += 1;
            }
            None if self.returned.remove(&item) => {}
            None => self.stop_waiting(item),
        }
        if last > 1 {
            self.attempts.insert(item, last);
        }
        if attempt > 1 {
            self.finals.insert(item, attempt);
        }
        self.results[item as usize] = fingerprint;
        Verdict::Final { due_us }
    }

    /// Takes in a lease of an earlier process: its item was handed out durably.
    ///
    /// # Errors
    /// Says why it cannot have been.
    pub fn restore_lease(
        &mut self,
        item: u64,
        attempt: u32,
        agent: u32,
        due_us: u64,
    ) -> std::result::Result<(), &'static str> {
        if item >= self.items || self.agents.len() <= agent as usize || attempt == 0 {
            return Err("a lease of an item or agent that the run does not have");
        }
        while self.next <= item {
            self.returned.insert(self.next);
            self.results.push(0);
            self.next += 1;
        }
        if self.results[item as usize] != 0 {
            return Err("a lease of an item that has ended");
        }
        if let Some(earlier) = self.leases.get(&item).copied() {
            self.end_lease(item, earlier);
            self.counters.expired += 1;
        } else if !self.returned.remove(&item) {
            return Err("a lease of an item that is not in the queue");
        }
        if attempt > 1 {
            self.attempts.insert(item, attempt);
        }
        let Some(file) = self.access(item).map(|access| access.file) else {
            return Err("a lease of an access that the trace does not have");
        };
        self.hold_file(file, agent);
        // Renewed when the last record is read.
        self.leases.insert(item, Lease { agent, attempt, due_us, deadline_us: u64::MAX });
        self.deadlines.insert((u64::MAX, item));
        self.agents[agent as usize].leases += 1;
        self.counters.handed += 1;
        Ok(())
    }

    /// Begins all leases anew: time did not pass for agents while the service was away.
    pub fn renew_leases(&mut self, elapsed_us: u64, now_us: u64) {
        self.deadlines.clear();
        for (item, lease) in &mut self.leases {
            let at = usize::try_from(item + self.skip).unwrap_or(usize::MAX);
            let file = self.trace.accesses().get(at).map_or(0, |access| access.file);
            let until_due = lease.due_us.saturating_sub(elapsed_us);
            let length = self.settings.lease_us(self.trace.file(file).size);
            lease.deadline_us = now_us.saturating_add(until_due).saturating_add(length);
            self.deadlines.insert((lease.deadline_us, *item));
        }
        for agent in &mut self.agents {
            agent.asked_us = now_us;
        }
    }
}
