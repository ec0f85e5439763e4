//! Searches for an order that explains a history, from the clients' view alone.
//!
//! The search of Wing and Gong, with memory. Its cost grows with the number of operations open at
//! once, and above all with lost answers. So it is given up after a number of steps, and then has
//! not judged.
//!
//! Names that no move connects are judged one by one: a history is in order if it is for each of
//! them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use super::{Action, Event, FileNumber, Names, Seen, lines, perform};

/// Steps of one search, for one group of names; a step orders one operation after those before it.
/// Ten times the steps of the worst of a thousand histories of the tests.
pub const STEPS_MAX: usize = 100_000;

/// Reason why a history is not known to be in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotExplained {
    /// No order explains these: the events of names that moves connect.
    NoOrder(Vec<Event>),
    /// The search for an order of these was given up.
    Undecided(Vec<Event>),
}

impl fmt::Display for NotExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, events) = match self {
            NotExplained::NoOrder(events) => ("no order explains", events),
            NotExplained::Undecided(events) => ("the search was given up for an order of", events),
        };
        let names: BTreeSet<_> = events.iter().flat_map(Event::names).collect();
        write!(f, "{what} what was seen of names {names:?}:\n{}", lines(events))
    }
}

/// Searches for an order that explains the history, which begins with nothing under any name, in at
/// most `steps_max` steps for each group of names. Returns the number of steps. An error for a
/// group that certainly has no order precedes one for an undecided group.
pub fn check(events: &[Event], steps_max: usize) -> Result<usize, NotExplained> {
    let mut taken = 0;
    let mut undecided = None;
    for group in groups(events) {
        let mut search = Search::new(&group, steps_max);
        match search.explains() {
            Some(true) => taken += steps_max - search.steps_left,
            Some(false) => return Err(NotExplained::NoOrder(group)),
            None => undecided = Some(group),
        }
    }
    undecided.map_or(Ok(taken), |group| Err(NotExplained::Undecided(group)))
}

/// Splits the events by groups of names that moves connect, each in the order of requests.
fn groups(events: &[Event]) -> Vec<Vec<Event>> {
    let mut leader: BTreeMap<usize, usize> = BTreeMap::new();
    fn find(leader: &BTreeMap<usize, usize>, name: usize) -> usize {
        match leader.get(&name) {
            Some(above) if *above != name => find(leader, *above),
            _ => name,
        }
    }
    for event in events {
        let [one, other] = event.names().map(|name| find(&leader, name));
        leader.insert(one.max(other), one.min(other));
    }
    let mut groups: BTreeMap<usize, Vec<Event>> = BTreeMap::new();
    for event in events {
        groups.entry(find(&leader, event.names()[0])).or_default().push(*event);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.iter_mut().for_each(|group| group.sort_by_key(|event| event.asked));
    groups
}

/// Returns the events that can matter. A file whose creation lost its answer, and that no client
/// ever saw, need not exist. While it had its name, only operations with lost answers could have
/// met it. The exception is a move that was refused because of its second name: it does not show
/// the file of its first one. With such a move all events matter.
fn that_matter(events: &[Event]) -> Vec<Event> {
    if events.iter().any(|event| matches!((event.action, event.seen), (Action::Move(..), Seen::Taken(_)))) {
        return events.to_vec();
    }
    let seen: BTreeSet<FileNumber> = events
        .iter()
        .filter_map(|event| match event.seen {
            Seen::Done(file) | Seen::Taken(file) | Seen::Value(Some(file)) => Some(file),
            Seen::Nothing | Seen::Value(None) | Seen::Lost => None,
        })
        .collect();
    let never_met = |event: &Event| match event.action {
        Action::Create(_, file) => event.seen == Seen::Lost && !seen.contains(&file),
        _ => false,
    };
    events.iter().filter(|event| !never_met(event)).copied().collect()
}

/// Search for an order of one group.
struct Search {
    events: Vec<Event>,
    /// States from which the search found nothing: the ordered operations, and the files of the
    /// names.
    dead_ends: HashSet<(Vec<bool>, Names)>,
    steps_left: usize,
}

impl Search {
    fn new(events: &[Event], steps_max: usize) -> Self {
        Search { events: that_matter(events), dead_ends: HashSet::new(), steps_left: steps_max }
    }

    /// Says whether there is an order; none if the steps were used up before. Depth first, without
    /// recursion: histories are long.
    fn explains(&mut self) -> Option<bool> {
        let mut ordered = vec![false; self.events.len()];
        let mut names = Names::new();
        // The ordered operation, the names before it, and the other candidates there.
        let mut path: Vec<(usize, Names, Vec<usize>)> = Vec::new();
        let mut next = self.candidates(&ordered, &names);
        loop {
            let must = (0..self.events.len()).any(|at| !ordered[at] && self.events[at].seen != Seen::Lost);
            if !must {
                return Some(true);
            }
            if self.steps_left == 0 {
                return None;
            }
            self.steps_left -= 1;
            let step = loop {
                let Some(at) = next.pop() else { break None };
                let mut then = names.clone();
                perform(&mut then, self.events[at].action);
                ordered[at] = true;
                if self.dead_ends.insert((ordered.clone(), then.clone())) {
                    break Some((at, then));
                }
                ordered[at] = false;
            };
            match step {
                Some((at, then)) => {
                    path.push((at, std::mem::replace(&mut names, then), next));
                    next = self.candidates(&ordered, &names);
                }
                None => {
                    let Some((at, before, others)) = path.pop() else { return Some(false) };
                    ordered[at] = false;
                    names = before;
                    next = others;
                }
            }
        }
    }

    /// Returns the operations that can come next: requested before any unordered one was answered,
    /// and with the answer that was seen. The last is tried first: the one with the nearest
    /// deadline.
    ///
    /// An operation that changes nothing and can come now need not come later: then it is the only
    /// one. Of operations of one kind with lost answers the first requested can stand for the
    /// others. One that would change nothing did not happen.
    fn candidates(&self, ordered: &[bool], names: &Names) -> Vec<usize> {
        let open = || (0..self.events.len()).filter(|at| !ordered[*at]);
        let first_deadline = open().map(|at| self.events[at].deadline()).min().unwrap_or(u64::MAX);
        let mut found = Vec::new();
        let mut lost: Vec<Action> = Vec::new();
        for at in open().take_while(|at| self.events[*at].asked <= first_deadline) {
            let event = &self.events[at];
            let mut then = names.clone();
            let would_see = perform(&mut then, event.action);
            let changes = then != *names;
            if event.seen == Seen::Lost {
                if changes && !lost.contains(&event.action) {
                    lost.push(event.action);
                    found.push(at);
                }
            } else if would_see == event.seen {
                if !changes {
                    return vec![at];
                }
                found.push(at);
            }
        }
        found.sort_by_key(|at| std::cmp::Reverse(self.events[*at].deadline()));
        found
    }
}
