//! Judges a history by the order in which the store itself says it applied the changes.
//!
//! The changes are the effects, each with the operation it was part of. They must match requests
//! and answers: a change for each success, none for a refusal, at most one for a lost answer. Each
//! must be possible on the result of the ones before it. Nothing changes between two changes: every
//! other answer (a read value, a refusal) has a place in one of these gaps. Gap `n` is the one
//! after `n` changes; the change at `n` leads from gap `n` to gap `n + 1`.
//!
//! An operation that was answered before another was requested must come before it. So each answer
//! has a first and a last gap it can be in. Of two answers, one given before the other was
//! requested, the first must not be in a later gap. Giving each answer, in the order of requests,
//! the earliest gap that fits leaves the most to those after it: if that fails, every choice fails.
//! The whole takes about as long as sorting.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Action, Event, FileNumber, Names, Seen, perform};

/// A change, as the store reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Client of the change.
    pub client: usize,
    /// Number of the client's operation.
    pub number: usize,
    /// Action that was done.
    pub action: Action,
    /// File of the action.
    pub file: FileNumber,
}

/// Checks that the order of these changes explains the history, which begins with nothing under any
/// name. An error has the reason.
pub fn check_with_changes(events: &[Event], applied: &[Applied]) -> Result<(), String> {
    let causes = causes(events, applied)?;
    let gaps = Gaps::of(applied)?;

    // Changes among themselves: none was requested after a later one was answered.
    let mut asked: Option<&Event> = None;
    // The latest request among the changes up to each: it rises, so that it can be searched.
    let mut asked_by = Vec::with_capacity(causes.len());
    for event in &causes {
        if let Some(before) = asked.filter(|before| before.asked > event.deadline()) {
            return Err(format!("against real time: applied were, in this order,\n{before:?}\n{event:?}"));
        }
        asked = Some(asked.filter(|before| before.asked > event.asked).unwrap_or(event));
        asked_by.push(asked.map_or(0, |event| event.asked));
    }
    // The earliest answer among the changes from each on: it rises too.
    let mut answered_from: Vec<u64> = causes.iter().map(|event| event.deadline()).collect();
    for at in (1..answered_from.len()).rev() {
        answered_from[at - 1] = answered_from[at - 1].min(answered_from[at]);
    }

    let mut answers: Vec<&Event> =
        events.iter().filter(|event| !matches!(event.seen, Seen::Done(_) | Seen::Lost)).collect();
    answers.sort_by_key(|event| event.asked);
    // The gaps of answers given already, by the times they were given; and the last gap of those
    // answered by now.
    let mut given: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut gap_by_now = 0;
    for event in answers {
        while let Some(Reverse((answered, gap))) = given.peek().copied() {
            if answered >= event.asked {
                break;
            }
            gap_by_now = gap_by_now.max(gap);
            given.pop();
        }
        // After every change answered before this request, and so after those the store has before
        // it.
        let first = answered_from.partition_point(|answered| *answered < event.asked);
        // Before every change requested after this was answered.
        let last = asked_by.partition_point(|asked| *asked < event.answered);
        match gaps.fitting(event, first.max(gap_by_now)) {
            Some(gap) if gap <= last => given.push(Reverse((event.answered, gap))),
            fitting => {
                let place =
                    |at: usize| causes.get(at).map_or("the end".to_owned(), |event| format!("{event:?}"));
                return Err(format!(
                    "nowhere among the {} changes fits\n{event:?}\nbetween gap {} (earlier answers are in {gap_by_now}) \
                     and gap {last}; the next that fits is {fitting:?}. After these gaps come\n{}\n{}",
                    applied.len(),
                    first.max(gap_by_now),
                    place(first.max(gap_by_now)),
                    place(last),
                ));
            }
        }
    }
    Ok(())
}

/// Finds the event of each change: one each, and as the client saw it.
fn causes<'a>(events: &'a [Event], applied: &[Applied]) -> Result<Vec<&'a Event>, String> {
    let mut open: BTreeMap<(usize, usize), &Event> = BTreeMap::new();
    for event in events {
        if open.insert((event.client, event.number), event).is_some() {
            return Err(format!("two events of one number: {event:?}"));
        }
    }
    let mut causes = Vec::with_capacity(applied.len());
    for change in applied {
        let Some(event) = open.remove(&(change.client, change.number)) else {
            return Err(format!("applied twice, or never asked for: {change:?}"));
        };
        let as_seen = event.seen == Seen::Lost || event.seen == Seen::Done(change.file);
        if event.action != change.action || !as_seen {
            return Err(format!("applied was {change:?}, of\n{event:?}"));
        }
        causes.push(event);
    }
    match open.values().find(|event| matches!(event.seen, Seen::Done(_))) {
        Some(event) => Err(format!("a change is missing, of\n{event:?}")),
        None => Ok(causes),
    }
}

/// For a name and its file, the spans of time: from the first gap of a span to before the second.
type Holding = BTreeMap<(usize, Option<FileNumber>), Vec<(usize, usize)>>;

/// Files of the names in each gap.
struct Gaps {
    /// Spans, in order.
    holding: Holding,
    /// Number of gaps.
    count: usize,
}

impl Gaps {
    fn of(applied: &[Applied]) -> Result<Gaps, String> {
        let count = applied.len() + 1;
        let mut names = Names::new();
        // The gap since which a name has its file; a name that is missing here has nothing since
        // the first.
        let mut since: BTreeMap<usize, usize> = BTreeMap::new();
        let mut holding = Holding::new();
        for (gap, change) in applied.iter().enumerate() {
            let touched = change.action.names();
            let before = touched.map(|name| names.get(&name).copied());
            let seen = perform(&mut names, change.action);
            if seen != Seen::Done(change.file) {
                return Err(format!(
                    "the change at {gap}, {change:?}, is not possible on what those before it left: {seen:?}"
                ));
            }
            for (name, had) in touched.into_iter().zip(before) {
                let from = since.insert(name, gap + 1).unwrap_or(0);
                if from <= gap {
                    holding.entry((name, had)).or_default().push((from, gap + 1));
                }
            }
        }
        for (name, from) in since {
            holding.entry((name, names.get(&name).copied())).or_default().push((from, count));
        }
        Ok(Gaps { holding, count })
    }

    /// Returns the first gap, not before `from`, in which the name has this.
    fn next(&self, name: usize, has: Option<FileNumber>, from: usize) -> Option<usize> {
        let Some(spans) = self.holding.get(&(name, has)) else {
            // A name that no change touches has nothing all the time.
            let untouched = has.is_none() && from < self.count && !self.is_touched(name);
            return untouched.then_some(from);
        };
        let (begin, _) = *spans.get(spans.partition_point(|(_, end)| *end <= from))?;
        Some(begin.max(from))
    }

    fn is_touched(&self, name: usize) -> bool {
        self.holding.range((name, None)..=(name, Some(FileNumber::MAX))).next().is_some()
    }

    /// Returns the first gap, not before `from`, in which the event's client would have seen its
    /// answer.
    fn fitting(&self, event: &Event, from: usize) -> Option<usize> {
        match (event.action, event.seen) {
            (Action::Read(name), Seen::Value(has)) => self.next(name, has, from),
            (Action::Remove(name) | Action::Move(name, _), Seen::Nothing) => self.next(name, None, from),
            (Action::Create(name, _), Seen::Taken(there)) => self.next(name, Some(there), from),
            (Action::Move(name, to), Seen::Taken(there)) => {
                // Both: this file at the one, and any file at the other.
                let mut gap = self.next(to, Some(there), from)?;
                while self.next(name, None, gap) == Some(gap) {
                    let spans = self.holding.get(&(name, None))?;
                    let (_, end) = *spans.get(spans.partition_point(|(_, end)| *end <= gap))?;
                    gap = self.next(to, Some(there), end)?;
                }
                Some(gap)
            }
            _ => None,
        }
    }
}
