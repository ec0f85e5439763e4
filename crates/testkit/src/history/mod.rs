//! Histories of concurrent clients, and the check that some order explains them.
//!
//! Clients create, remove, move and read a few names on any store, and record the times of requests
//! and answers, by one counter. A history is in order if each operation has effect at one instant
//! between request and answer, and the order of these instants gives every answer
//! (linearizability). An operation whose answer was lost has effect at any time after its request,
//! or never.
//!
//! Two checks, independent of each other. [`check`] searches for any such order from the clients'
//! view alone, and so is for short histories. [`check_with_changes`] takes the order of changes
//! that the store reports, and so demands more of a store, and judges histories of any length.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::{Change, DirId, Effect, EntryId, Guid, Lfn, Name, OperationId, UserId};
use exacat_store::{ApplyError, Outcome, Refusal, Request, ResolutionEnd, Store};
use fastrand::Rng;

use crate::factory::all_changes;
use crate::faults::answered;
use crate::scene::{at, create, new_file, remove, rename};

mod changes;
mod search;

pub use changes::{Applied, check_with_changes};
pub use search::{NotExplained, STEPS_MAX, check};

/// A file, by the number its maker gave it; no two are the same.
pub type FileNumber = u32;

/// Action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this file under this name.
    Create(usize, FileNumber),
    /// Remove the file of this name.
    Remove(usize),
    /// Move the file of the first name to the second.
    Move(usize, usize),
    /// Read the file of this name.
    Read(usize),
}

impl Action {
    /// Returns both names of a move, otherwise the name twice.
    fn names(self) -> [usize; 2] {
        match self {
            Action::Create(name, _) | Action::Remove(name) | Action::Read(name) => [name, name],
            Action::Move(from, to) => [from, to],
        }
    }
}

/// Answer that a client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Done, to this file.
    Done(FileNumber),
    /// Nothing has the name.
    Nothing,
    /// This file has the wanted name.
    Taken(FileNumber),
    /// The name has this file.
    Value(Option<FileNumber>),
    /// The answer was lost.
    Lost,
}

/// One operation of a history.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Client.
    pub client: usize,
    /// Number of the client's operation.
    pub number: usize,
    /// Request.
    pub action: Action,
    /// Answer.
    pub seen: Seen,
    /// Time of the request.
    pub asked: u64,
    /// Time of the answer; without meaning if the answer was lost.
    pub answered: u64,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { client, number, action, seen, asked, answered } = self;
        write!(f, "{asked:5} to {answered:5}, client {client}, action {number}: {action:?}: {seen:?}")
    }
}

impl Event {
    /// Latest time of its effect.
    fn deadline(&self) -> u64 {
        if self.seen == Seen::Lost { u64::MAX } else { self.answered }
    }

    fn names(&self) -> [usize; 2] {
        self.action.names()
    }
}

// ---- judging ----

/// Files of the names.
type Names = BTreeMap<usize, FileNumber>;

/// Performs an action at one instant, and returns the answer its client would see.
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

// ---- recording ----

/// Plan of clients that run at once.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// Seed of their actions; they follow from it, up to the order in which they are served.
    pub seed: u64,
    /// Number of clients.
    pub clients: usize,
    /// Actions of each.
    pub actions: usize,
    /// Number of names; few, so that clients meet.
    pub names: usize,
    /// True if they move entries. Then names are not independent of each other.
    pub moves: bool,
    /// True if they repeat a request with a lost answer, otherwise they continue without knowing.
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

fn name_number(name: &Name) -> Option<usize> {
    name.as_str().strip_prefix("name")?.parse().ok()
}

/// Returns the id of the client's `number`th operation.
fn operation(seed: u64, client: usize, number: usize) -> OperationId {
    let mut id = [0xee; 16];
    id[..8].copy_from_slice(&seed.to_be_bytes());
    id[8..12].copy_from_slice(&(client as u32).to_be_bytes());
    id[12..].copy_from_slice(&(number as u32).to_be_bytes());
    OperationId(id)
}

/// Returns the changes that the store made for these clients, in its order. Any other change is a
/// defect.
async fn applied(store: &dyn Store, plan: &Clients) -> Vec<Applied> {
    let mut operations = BTreeMap::new();
    for client in 0..plan.clients {
        for number in 0..plan.actions {
            operations.insert(operation(plan.seed, client, number), (client, number));
        }
    }
    let told = |change: Change| {
        let (client, number) = *operations.get(&change.operation)?;
        let (action, id) = match &change.effect {
            Effect::Created { entry } => {
                (Action::Create(name_number(&entry.at.name)?, file_number(entry.id())), entry.id())
            }
            Effect::Removed { id, at, .. } => (Action::Remove(name_number(&at.name)?), *id),
            Effect::Moved { id, from, to, .. } => {
                (Action::Move(name_number(&from.name)?, name_number(&to.name)?), *id)
            }
            _ => return None,
        };
        Some(Applied { client, number, action, file: file_number(id) })
    };
    let changes = all_changes(store).await;
    changes
        .into_iter()
        .map(|change| told(change.clone()).unwrap_or_else(|| panic!("nobody asked for {change:?}")))
        .collect()
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
        match self.store.resolve(&[path]).await.expect("resolution").remove(0).end {
            ResolutionEnd::Found(entry) => Seen::Value(Some(file_number(entry.id()))),
            ResolutionEnd::Missing { .. } => Seen::Value(None),
            end => panic!("a name in the root ends otherwise: {end:?}"),
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
        let id = operation(self.plan.seed, self.client, number);
        let request = Request::new(id, UserId::ADMIN, vec![mutation]);
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

    /// Lets other clients go first now and then: a store that answers at once would otherwise meet
    /// one client at a time.
    async fn others_first(&mut self) {
        while self.rng.u8(..3) == 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn run(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for number in 0..self.plan.actions {
            let action = self.action(number);
            let asked = self.clock.fetch_add(1, Ordering::SeqCst);
            self.others_first().await;
            let seen = match action {
                Action::Read(name) => self.read(name).await,
                other => self.change(other, number).await,
            };
            self.others_first().await;
            let answered = self.clock.fetch_add(1, Ordering::SeqCst);
            events.push(Event { client: self.client, number, action, seen, asked, answered });
            self.others_first().await;
        }
        events
    }
}

/// Runs the clients on a store without any changes yet. Returns what they saw, and the store's
/// changes.
pub async fn record(store: Arc<dyn Store>, plan: Clients) -> (Vec<Event>, Vec<Applied>) {
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
    let applied = applied(&*store, &plan).await;
    (events, applied)
}

/// Runs the clients and judges their answers by the store's changes. Panics with the plan and the
/// reason if they are not in order.
pub async fn run(store: Arc<dyn Store>, plan: Clients) -> Vec<Event> {
    let (events, applied) = record(store, plan).await;
    if let Err(why) = check_with_changes(&events, &applied) {
        panic!("{plan:?}: {why}");
    }
    events
}

/// Result of many short histories, each judged in both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Histories judged by the store's changes.
    pub histories: usize,
    /// Those of them for which the search did not end within [`STEPS_MAX`].
    pub undecided: usize,
    /// Answers that stayed lost.
    pub not_known: usize,
    /// Most steps of a search that ended.
    pub steps: usize,
}

impl Tally {
    /// Runs the clients, and judges their answers by the search too. Panics if no order explains
    /// them.
    pub async fn run(&mut self, store: Arc<dyn Store>, plan: Clients) {
        let events = run(store, plan).await;
        self.histories += 1;
        self.not_known += events.iter().filter(|event| event.seen == Seen::Lost).count();
        match check(&events, STEPS_MAX) {
            Ok(steps) => self.steps = self.steps.max(steps),
            Err(NotExplained::Undecided(_)) => self.undecided += 1,
            Err(why) => panic!("{plan:?}: {why}"),
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.histories += other.histories;
        self.undecided += other.undecided;
        self.not_known += other.not_known;
        self.steps = self.steps.max(other.steps);
    }

    /// Panics if too many searches were given up to conclude anything.
    pub fn assert_decided(&self) {
        assert!(self.histories > 0 && self.undecided * 50 <= self.histories, "too many undecided: {self:?}");
    }
}

/// Formats events as lines, in the order of requests.
fn lines(events: &[Event]) -> String {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.asked);
    let lines: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
    lines.join("\n")
}
