//! Lost answers: the most productive fault there is.
//!
//! [`LostAnswers`] is a store that now and then answers `Unknown`: before anything was done, after
//! everything was, or after a first part of it was. [`answered`] then does what a client does: it
//! repeats the request under the same operation id.

use std::sync::Arc;

use async_trait::async_trait;
use exacat_store::{ApplyError, Clock, Outcome, Request, Store};
use fastrand::Rng;
use parking_lot::Mutex;

use crate::clock::TestClock;
use crate::dump::Dump;
use crate::factory::StoreFactory;
use crate::fronted::{Before, Fronted};
use crate::random::{self, Generator, View};

/// Maximum repetitions of a request: to lose so many answers in a row is a defect of the test.
const ASKED_AGAIN_MAX: usize = 1000;

/// Loses answers, by a seed.
pub struct LostAnswers {
    rng: Mutex<Rng>,
    percent: u8,
}

/// Fate of one request.
enum Fate {
    Answered,
    LostBefore,
    LostAfter,
    LostAfterFirst(usize),
}

impl LostAnswers {
    /// Makes one that loses `percent` of a hundred answers.
    pub fn new(seed: u64, percent: u8) -> Self {
        LostAnswers { rng: Mutex::new(Rng::with_seed(seed)), percent }
    }

    /// Puts one before `store`.
    pub fn of(store: Arc<dyn Store>, seed: u64, percent: u8) -> Fronted<LostAnswers> {
        Fronted::new(LostAnswers::new(seed, percent), store)
    }

    fn fate(&self, mutations: usize) -> Fate {
        let mut rng = self.rng.lock();
        if rng.u8(..100) >= self.percent {
            return Fate::Answered;
        }
        match rng.u8(..3) {
            0 => Fate::LostBefore,
            1 => Fate::LostAfter,
            _ => Fate::LostAfterFirst(rng.usize(..=mutations)),
        }
    }
}

#[async_trait]
impl Before for LostAnswers {
    async fn apply(&self, request: Request, store: &dyn Store) -> Result<Vec<Outcome>, ApplyError> {
        let lost = Err(ApplyError::Unknown("the answer is lost".to_owned()));
        match self.fate(request.mutations.len()) {
            Fate::Answered => store.apply(request).await,
            Fate::LostBefore => lost,
            Fate::LostAfter => store.apply(request).await.and(lost),
            Fate::LostAfterFirst(count) => {
                let mut first = request;
                first.mutations.truncate(count);
                store.apply(first).await.and(lost)
            }
        }
    }
}

/// Repeats a request until there is an answer.
pub async fn answered(store: &dyn Store, request: &Request) -> Result<Vec<Outcome>, ApplyError> {
    for _ in 0..ASKED_AGAIN_MAX {
        match store.apply(request.clone()).await {
            Err(ApplyError::Unknown(_)) => {}
            answer => return answer,
        }
    }
    panic!("{ASKED_AGAIN_MAX} answers in a row were lost");
}

/// Sends random requests through lost answers, repeated until there is one, to a store of
/// `factory`. With one mutation each, all outcomes and the whole state must be as if nothing had
/// been lost.
///
/// With several, refused mutations are decided anew when repeated (A6). They must then match the
/// reference, with the same answers lost. An error describes the difference.
pub async fn run(factory: &dyn StoreFactory, seed: u64, steps: usize, several: bool) -> Result<(), String> {
    const LOST_PERCENT: u8 = 40;
    let clock = TestClock::new();
    let under_test = factory.open(&clock).await;
    let lossy = LostAnswers::of(under_test.store(), seed, LOST_PERCENT);
    let reference: Arc<dyn Store> = random::model(&clock);
    let expected_by: Arc<dyn Store> = if several {
        Arc::new(LostAnswers::of(reference.clone(), seed, LOST_PERCENT))
    } else {
        reference.clone()
    };
    let mut generator = Generator::new(seed);
    let mut requests = generator.beginning();
    for step in 0..steps {
        let request = match requests.pop() {
            Some(request) => request,
            None => {
                clock.turn(200);
                let view = View::of(&*reference).await;
                let mut request = generator.request(&view, clock.now());
                if !several {
                    request.mutations.truncate(1);
                }
                request
            }
        };
        let expected = answered(&*expected_by, &request).await.map_err(|error| error.to_string())?;
        let got = answered(&lossy, &request).await.map_err(|error| error.to_string())?;
        let same = expected.len() == got.len()
            && expected.iter().zip(&got).all(|(one, other)| random::same_outcome(one, other));
        if !same {
            return Err(format!("seed {seed}, step {step}: {got:?}, expected {expected:?}, of {request:?}"));
        }
    }
    let now = clock.now();
    let (expected, got) = (Dump::of(&*reference, now).await, Dump::of(&*under_test.store(), now).await);
    match expected.difference("expected", &got, "got     ") {
        Some(difference) => Err(format!("seed {seed}: the state differs\n{difference}")),
        None => Ok(()),
    }
}
