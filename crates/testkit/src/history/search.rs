//! Looks for an order that explains a history, by what the clients saw alone.
//!
//! The search of Wing and Gong, with memory. What it costs grows with how many operations were open at once, and
//! above all with answers that were lost; so it is given up after a number of steps, and then has not judged.
//!
//! Names that no move connects are judged one by one: a history is in order if it is for each of them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use super::{Action, Event, FileNumber, Names, Seen, lines, perform};

/// Steps of one search, for one group of names; a step orders one operation after those before it. Ten times
/// what the worst of a thousand histories of the tests takes.
pub const STEPS_MAX: usize = 100_000;

/// Why a history is not said to be in order.
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

/// Looks for an order that explains the history, which begins with nothing under any name, in at most this many steps
/// for each group of names; says how many it took. A group for which there certainly is no order goes before one that
/// is undecided.
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

/// The events by groups of names that moves connect, each in the order of asking.
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

/// The events that can matter: a file whose making was lost and that nobody ever saw need not have been made. While it
/// had its name, only operations whose answers were lost could have met it - but for a move that was refused because
/// of what has its second name: what has its first one that does not show. Where there is such a move all matter.
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

/// The search for an order of one group.
struct Search {
    events: Vec<Event>,
    /// Where the search was and found nothing: what had been ordered, and what the names had.
    dead_ends: HashSet<(Vec<bool>, Names)>,
    steps_left: usize,
}

impl Search {
    fn new(events: &[Event], steps_max: usize) -> Self {
        Search { events: that_matter(events), dead_ends: HashSet::new(), steps_left: steps_max }
    }

    /// Is there one? None if the steps were used up before that was known. Depth first, without recursion: histories
    /// are long.
    fn explains(&mut self) -> Option<bool> {
        let mut ordered = vec![false; self.events.len()];
        let mut names = Names::new();
        // What was ordered, what the names had before, and what else could come next there.
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

    /// What can come next: asked before anything that is not ordered yet was answered, and seen as it would be. The
    /// last is tried first: the one with the nearest deadline.
    ///
    /// What changes nothing and can come now need not come later: then it is the only one. Of operations of one kind
    /// whose answers were lost the first asked can stand for the others; one that would change nothing did not happen.
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
