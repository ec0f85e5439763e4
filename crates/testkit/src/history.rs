//! What concurrent clients saw, and whether any order explains it.
//!
//! Clients create, remove, move and read a few names on any store, and record when they asked and were answered, by
//! one counter. [`check`] looks for an order of all operations in which each has effect at one instant between asking
//! and answer, and every answer is what the order gives (linearizability; the search of Wing and Gong, with
//! memory). An operation whose answer was lost has effect at any time after it was asked, or never.
//!
//! Names that no move connects are judged one by one: a history is in order if it is for each of them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::{DirId, EntryId, Guid, Lfn, Name, OperationId, UserId};
use exacat_store::{ApplyError, Outcome, Refusal, Request, Store, WalkEnd};
use fastrand::Rng;

use crate::faults::answered;
use crate::scene::{at, create, new_file, remove, rename};

/// A file, by the number its maker gave it; no two are the same.
pub type FileNumber = u32;

/// What a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this file under this name.
    Create(usize, FileNumber),
    /// Remove what has this name.
    Remove(usize),
    /// Move what has the first name to the second.
    Move(usize, usize),
    /// Read what has this name.
    Read(usize),
}

/// What it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was done, to this file.
    Done(FileNumber),
    /// Nothing has the name.
    Nothing,
    /// This has the name that was wanted.
    Taken(FileNumber),
    /// This is read.
    Value(Option<FileNumber>),
    /// The answer was lost.
    Lost,
}

/// One operation of a history.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Whose.
    pub client: usize,
    /// What was asked.
    pub action: Action,
    /// What was answered.
    pub seen: Seen,
    /// When it was asked.
    pub asked: u64,
    /// When it was answered; without meaning if the answer was lost.
    pub answered: u64,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { client, action, seen, asked, answered } = self;
        write!(f, "{asked:5} to {answered:5}, client {client}: {action:?}: {seen:?}")
    }
}

impl Event {
    /// When it must have had its effect by.
    fn deadline(&self) -> u64 {
        if self.seen == Seen::Lost { u64::MAX } else { self.answered }
    }

    fn names(&self) -> [usize; 2] {
        match self.action {
            Action::Create(name, _) | Action::Remove(name) | Action::Read(name) => [name, name],
            Action::Move(from, to) => [from, to],
        }
    }
}

// ---- judging ----

/// What each name has.
type Names = BTreeMap<usize, FileNumber>;

/// What an action does at one instant, and what its client would see.
fn perform(names: &mut Names, action: Action) -> Seen {
    match action {
        Action::Create(name, file) => match names.get(&name) {
            Some(there) => Seen::Taken(*there),
            None => {
                names.insert(name, file);
                Seen::Done(file)
            }
        },
        Action::Remove(name) => names.remove(&name).map_or(Seen::Nothing, Seen::Done),
        Action::Move(from, to) => match (names.get(&from).copied(), names.get(&to)) {
            (None, _) => Seen::Nothing,
            (Some(_), Some(there)) => Seen::Taken(*there),
            (Some(file), None) => {
                names.remove(&from);
                names.insert(to, file);
                Seen::Done(file)
            }
        },
        Action::Read(name) => Seen::Value(names.get(&name).copied()),
    }
}

/// Looks for an order that explains the history, which begins with nothing under any name. If there is none, gives
/// the events of the names for which there is none.
pub fn check(events: &[Event]) -> Result<(), Vec<Event>> {
    for group in groups(events) {
        if !Search::new(&group).explains() {
            return Err(group);
        }
    }
    Ok(())
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

/// The events that can matter: a file whose making was lost and that nobody ever saw need not have been made. (While it
/// had its name, only operations whose answers were lost could have met it.)
fn that_matter(events: &[Event]) -> Vec<Event> {
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
}

impl Search {
    fn new(events: &[Event]) -> Self {
        Search { events: that_matter(events), dead_ends: HashSet::new() }
    }

    /// Depth first, without recursion: histories are long.
    fn explains(&mut self) -> bool {
        let mut ordered = vec![false; self.events.len()];
        let mut names = Names::new();
        // What was ordered, what the names had before, and what else could come next there.
        let mut path: Vec<(usize, Names, Vec<usize>)> = Vec::new();
        let mut next = self.candidates(&ordered, &names);
        loop {
            let must = (0..self.events.len()).any(|at| !ordered[at] && self.events[at].seen != Seen::Lost);
            if !must {
                return true;
            }
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
                    let Some((at, before, others)) = path.pop() else { return false };
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

// ---- recording ----

/// Clients to run at once.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// What they do follows from it, up to the order in which they are served.
    pub seed: u64,
    /// How many.
    pub clients: usize,
    /// What each does.
    pub actions: usize,
    /// Over how many names; few, so that they meet.
    pub names: usize,
    /// Do they move things? Then names are not independent of each other.
    pub moves: bool,
    /// What they do when an answer is lost: ask again, or go on not knowing.
    pub ask_again: bool,
}

fn file_guid(seed: u64, number: FileNumber) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    Guid(bytes)
}

fn file_number(id: EntryId) -> FileNumber {
    match id {
        EntryId::Object(Guid(bytes)) => u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
        EntryId::Directory(_) => panic!("there are no directories under these names"),
    }
}

fn name_text(number: usize) -> String {
    format!("name{number}")
}

struct Client {
    store: Arc<dyn Store>,
    clock: Arc<AtomicU64>,
    plan: Clients,
    client: usize,
    rng: Rng,
}

impl Client {
    fn action(&mut self, number: usize) -> Action {
        let name = self.rng.usize(..self.plan.names);
        let file = (self.client * self.plan.actions + number) as FileNumber;
        match self.rng.u8(..10) {
            0..3 => Action::Create(name, file),
            3..5 => Action::Remove(name),
            5..7 if self.plan.moves && self.plan.names > 1 => {
                let other = (name + 1 + self.rng.usize(..self.plan.names - 1)) % self.plan.names;
                Action::Move(name, other)
            }
            5 => Action::Create(name, file),
            _ => Action::Read(name),
        }
    }

    async fn read(&self, name: usize) -> Seen {
        let path = Lfn::root().join(&Name::parse(&name_text(name)).expect("a name"));
        match self.store.walk(&[path]).await.expect("walk").remove(0).end {
            WalkEnd::Found(entry) => Seen::Value(Some(file_number(entry.id()))),
            WalkEnd::Missing { .. } => Seen::Value(None),
            WalkEnd::Stopped { .. } => panic!("a name in the root cannot be passed through"),
        }
    }

    async fn change(&self, action: Action, number: usize) -> Seen {
        let place = |name: usize| at(DirId::ROOT, &name_text(name));
        let mutation = match action {
            Action::Create(name, file) => {
                create(new_file(place(name), file_guid(self.plan.seed, file), Some(1), &[]))
            }
            Action::Remove(name) => remove(place(name)),
            Action::Move(from, to) => rename(place(from), place(to)),
            Action::Read(_) => panic!("reading changes nothing"),
        };
        let mut operation = [0xee; 16];
        operation[..8].copy_from_slice(&self.plan.seed.to_be_bytes());
        operation[8..12].copy_from_slice(&(self.client as u32).to_be_bytes());
        operation[12..].copy_from_slice(&(number as u32).to_be_bytes());
        let request =
            Request { operation: OperationId(operation), who: UserId::ADMIN, mutations: vec![mutation] };
        let answer = if self.plan.ask_again {
            answered(&*self.store, &request).await
        } else {
            self.store.apply(request).await
        };
        match answer.map(|mut outcomes| outcomes.remove(0)) {
            Ok(Outcome::Applied { id: Some(id), .. }) => Seen::Done(file_number(id)),
            Ok(Outcome::Refused(Refusal::NotFound)) => Seen::Nothing,
            Ok(Outcome::Refused(Refusal::Exists(id))) => Seen::Taken(file_number(id)),
            Err(ApplyError::Unknown(_)) => Seen::Lost,
            other => panic!("{other:?} of {action:?}"),
        }
    }

    async fn run(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for number in 0..self.plan.actions {
            let action = self.action(number);
            let asked = self.clock.fetch_add(1, Ordering::SeqCst);
            let seen = match action {
                Action::Read(name) => self.read(name).await,
                other => self.change(other, number).await,
            };
            let answered = self.clock.fetch_add(1, Ordering::SeqCst);
            events.push(Event { client: self.client, action, seen, asked, answered });
            if self.rng.bool() {
                tokio::task::yield_now().await;
            }
        }
        events
    }
}

/// Runs the clients on a store that has nothing under these names; gives what they saw.
pub async fn record(store: Arc<dyn Store>, plan: Clients) -> Vec<Event> {
    let clock = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..plan.clients)
        .map(|client| {
            let rng = Rng::with_seed(plan.seed.wrapping_mul(1_000_003).wrapping_add(client as u64));
            let (store, clock) = (store.clone(), clock.clone());
            tokio::spawn(Client { store, clock, plan, client, rng }.run())
        })
        .collect();
    let mut events = Vec::new();
    for task in tasks {
        events.extend(task.await.expect("a client"));
    }
    events
}

/// Runs the clients and judges what they saw; panics with the seed and the events if no order explains it.
pub async fn run(store: Arc<dyn Store>, plan: Clients) -> Vec<Event> {
    let events = record(store, plan).await;
    if let Err(group) = check(&events) {
        let names: BTreeSet<_> = group.iter().flat_map(Event::names).collect();
        let lines: Vec<String> = group.iter().map(|event| format!("{event:?}")).collect();
        panic!("{plan:?}: no order explains what was seen of names {names:?}:\n{}", lines.join("\n"));
    }
    events
}
