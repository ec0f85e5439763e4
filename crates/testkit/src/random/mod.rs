//! Random sequences of operations, run on the reference and on a store under test at once.
//!
//! Every outcome is compared, and now and then, and at the end, the whole state. A sequence comes
//! from a seed, which is printed with every failure. A failing sequence is shortened as far as it
//! still fails.

mod generate;
mod history;
mod shrink;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use exacat_model::{Mutation, OperationId, TimeMs};
use exacat_store::{ApplyError, Clock, Outcome, Refusal, Request, Store};

use crate::clock::TestClock;
use crate::dump::Dump;
use crate::factory::{StoreEnd, StoreFactory};
use crate::memory::MemoryStore;

pub use generate::{Generator, View};
pub use history::history;

/// Length and seed of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Seed of the sequence.
    pub seed: u64,
    /// Steps of the sequence.
    pub steps: usize,
    /// Steps between two comparisons of the whole state.
    pub compare_every: usize,
    /// Steps between two reopenings of the store under test, on average; 0 for none.
    pub reopen_every: usize,
}

impl Settings {
    /// Returns the usual length with this seed.
    pub fn seeded(seed: u64) -> Self {
        Settings { seed, steps: 400, compare_every: 50, reopen_every: 60 }
    }
}

/// One step of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Apply this.
    Apply(Request),
    /// Turn the clock.
    Turn(i64),
    /// End the store under test and open it again.
    Reopen(StoreEnd),
    /// Compare the whole state.
    Compare,
}

/// Result of a sequence without failure: the number of times each mutation had each outcome.
#[derive(Clone, Debug, Default)]
pub struct Tally(pub BTreeMap<(&'static str, &'static str), u64>);

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        for (what, count) in &other.0 {
            *self.0.entry(*what).or_default() += count;
        }
    }

    /// Returns the possible outcomes by the contract's table, limits apart, that did not occur.
    pub fn not_met(&self) -> Vec<(&'static str, &'static str)> {
        let all =
            OUTCOMES.iter().flat_map(|(mutation, outcomes)| outcomes.iter().map(|one| (*mutation, *one)));
        all.filter(|what| !self.0.contains_key(what)).collect()
    }
}

/// Possible outcomes of each mutation by the contract's table. Of limits only those that a single
/// number can exceed.
const OUTCOMES: [(&str, &[&str]); 13] = [
    ("create", &["Applied", "Invalid", "Limit", "ParentGone", "Exists", "GuidInUse", "NoSuchSe", "Quota"]),
    (
        "update",
        &[
            "Applied",
            "Unchanged",
            "Limit",
            "ParentGone",
            "NotFound",
            "Stale",
            "WrongKind",
            "Mismatch",
            "Invalid",
            "NoSuchSe",
            "ReplicaExists",
            "Quota",
        ],
    ),
    ("move", &["Applied", "Unchanged", "ParentGone", "NotFound", "Stale", "Invalid", "Loop", "Exists"]),
    ("remove", &["Applied", "ParentGone", "NotFound", "Stale", "Invalid", "WrongKind", "NotEmpty"]),
    ("restore", &["Applied", "NotFound", "Invalid", "ParentGone", "Exists"]),
    ("restore-below", &["Applied", "ParentGone", "NotFound", "Stale", "Invalid", "Exists"]),
    ("purge", &["Applied", "NotFound", "ParentGone", "Stale", "NotEmpty"]),
    (
        "reserve",
        &["Applied", "Invalid", "Limit", "GuidInUse", "Mismatch", "ReplicaExists", "NoSuchSe", "Quota"],
    ),
    (
        "commit",
        &[
            "Applied",
            "NotFound",
            "Expired",
            "Mismatch",
            "Stale",
            "ReplicaExists",
            "Invalid",
            "ParentGone",
            "Exists",
        ],
    ),
    ("release", &["Applied", "NotFound", "Stale"]),
    ("dequeue", &["Applied", "NotFound"]),
    ("set-record", &["Applied", "Unchanged", "Invalid", "Stale", "InUse", "NotFound"]),
    ("drop-record", &["Applied", "NotFound", "Stale", "InUse"]),
];

/// A difference that was found.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Seed of the sequence.
    pub seed: u64,
    /// The shortest sequence found that shows it.
    pub steps: Vec<Step>,
    /// Description of the difference.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        writeln!(f, "the shortest sequence that shows it:")?;
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                Step::Apply(request) => {
                    let (operation, who) = (request.operation, request.who.0);
                    writeln!(f, "{number:4}: apply, operation {operation:?}, by user {who}")?;
                    for mutation in &request.mutations {
                        writeln!(f, "          {mutation:?}")?;
                    }
                }
                other => writeln!(f, "{number:4}: {other:?}")?,
            }
        }
        Ok(())
    }
}

/// Returns the name of an outcome, without the texts, which are each store's own.
pub fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied { .. } => "Applied",
        Outcome::Unchanged => "Unchanged",
        Outcome::Refused(refusal) => match refusal {
            Refusal::Invalid(_) => "Invalid",
            Refusal::Limit(_) => "Limit",
            Refusal::ParentGone => "ParentGone",
            Refusal::NotFound => "NotFound",
            Refusal::Stale => "Stale",
            Refusal::Exists(_) => "Exists",
            Refusal::GuidInUse => "GuidInUse",
            Refusal::WrongKind => "WrongKind",
            Refusal::NotEmpty => "NotEmpty",
            Refusal::Loop => "Loop",
            Refusal::NoSuchSe => "NoSuchSe",
            Refusal::ReplicaExists => "ReplicaExists",
            Refusal::Mismatch(_) => "Mismatch",
            Refusal::Quota(_) => "Quota",
            Refusal::Expired => "Expired",
            Refusal::InUse(_) => "InUse",
            Refusal::Outdated => "Outdated",
        },
    }
}

/// Says whether two outcomes are the same but for the texts.
pub fn same_outcome(one: &Outcome, other: &Outcome) -> bool {
    let detail = |outcome: &Outcome| match outcome {
        Outcome::Applied { revision, id } => (Some(*revision), *id),
        Outcome::Refused(Refusal::Exists(id)) => (None, Some(*id)),
        _ => (None, None),
    };
    outcome_name(one) == outcome_name(other) && detail(one) == detail(other)
}

/// Runs the sequence of `settings` on a store of `factory`. A failure is shortened.
pub async fn run(factory: &dyn StoreFactory, settings: Settings) -> Result<Tally, Box<Failure>> {
    let steps = generate::sequence(settings).await;
    match execute(factory, &steps).await {
        Ok(tally) => Ok(tally),
        Err(what) => {
            let (steps, what) = shrink::shrink(factory, steps, what).await;
            Err(Box::new(Failure { seed: settings.seed, steps, what }))
        }
    }
}

/// Runs a sequence. An error describes the difference.
pub async fn execute(factory: &dyn StoreFactory, steps: &[Step]) -> Result<Tally, String> {
    let clock = TestClock::new();
    let model = MemoryStore::new(clock.shared());
    let mut under_test = factory.open(&clock).await;
    let mut tally = Tally::default();
    for (number, step) in steps.iter().chain([&Step::Compare]).enumerate() {
        match step {
            Step::Apply(request) => {
                let expected = model.apply(request.clone()).await;
                let got = under_test.store().apply(request.clone()).await;
                compare_outcomes(request, &expected, &got, &mut tally)
                    .map_err(|what| format!("step {number}: {what}"))?;
            }
            Step::Turn(ms) => clock.turn(*ms),
            Step::Reopen(end) => under_test.reopen(*end).await,
            Step::Compare => compare_states(&model, &*under_test.store(), clock.now())
                .await
                .map_err(|what| format!("step {number}: the state differs\n{what}"))?,
        }
    }
    Ok(tally)
}

type Answer = Result<Vec<Outcome>, ApplyError>;

fn compare_outcomes(
    request: &Request,
    expected: &Answer,
    got: &Answer,
    tally: &mut Tally,
) -> Result<(), String> {
    match (expected, got) {
        (Ok(expected), Ok(got)) => {
            if expected.len() != got.len() {
                return Err(format!("{} outcomes, expected {}", got.len(), expected.len()));
            }
            for ((expected, got), mutation) in expected.iter().zip(got).zip(&request.mutations) {
                if !same_outcome(expected, got) {
                    return Err(format!("{got:?}, expected {expected:?}, of {mutation:?}"));
                }
                *tally.0.entry((mutation.name(), outcome_name(got))).or_default() += 1;
            }
            Ok(())
        }
        (Err(expected), Err(got)) if std::mem::discriminant(expected) == std::mem::discriminant(got) => {
            Ok(())
        }
        _ => Err(format!("{got:?}, expected {expected:?}")),
    }
}

async fn compare_states(model: &dyn Store, store: &dyn Store, now: TimeMs) -> Result<(), String> {
    // Some entries are due only later: read from a while ahead too.
    for ahead in [0, 10_000] {
        let now = now.plus_ms(ahead);
        let (expected, got) = (Dump::of(model, now).await, Dump::of(store, now).await);
        if let Some(difference) = expected.difference("expected", &got, "got     ") {
            return Err(difference.to_string());
        }
    }
    Ok(())
}

/// Makes a request of one mutation or more, under an operation id of its own.
pub fn request(operation: u64, who: exacat_model::UserId, mutations: Vec<Mutation>) -> Request {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&operation.to_be_bytes());
    Request::new(OperationId(id), who, mutations)
}

/// Makes a memory store on its own clock, for generators.
pub fn model(clock: &TestClock) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(clock.shared()))
}
