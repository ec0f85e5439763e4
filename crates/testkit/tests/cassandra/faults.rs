//! Lost statements, or lost answers to them: every one of every mutation. A client that repeats its
//! request under the same operation id gets its outcome, and nothing is lost or done twice.

use std::sync::Arc;

use exacat_store::Clock;
use exacat_store::{ApplyError, Outcome, Request, Store};
use exacat_store_cassandra::{CassandraStore, Fate, Faults, StatementKind};
use exacat_testkit::cassandra::{CassandraFactory, Servers, ring};
use exacat_testkit::random::{self, Generator, View, same_outcome};
use exacat_testkit::{Dump, TestClock, rounds};
use parking_lot::Mutex;

/// Maximum repetitions of a request.
const ASKED_AGAIN_MAX: usize = 60;

/// Loses statements by a seed, or one of a number.
struct Losing {
    rng: Mutex<fastrand::Rng>,
    /// Percentage of lost statements.
    percent: Mutex<u8>,
    /// Numbers of lost statements, by kind and fate.
    lost: Mutex<std::collections::BTreeMap<(String, String), usize>>,
}

impl Faults for Losing {
    fn fate(&self, kind: StatementKind) -> Fate {
        let mut rng = self.rng.lock();
        // Appends are few beside the others.
        let percent = *self.percent.lock() * if kind == StatementKind::Conditional { 5 } else { 1 };
        if rng.u8(..100) >= percent {
            return Fate::Answered;
        }
        let fate = if rng.bool() { Fate::LostBefore } else { Fate::LostAfter };
        *self.lost.lock().entry((format!("{kind:?}"), format!("{fate:?}"))).or_default() += 1;
        fate
    }
}

/// Repeats a request until there is an answer, at most `most` times: also where certainly nothing
/// was done.
pub(crate) async fn answered(store: &dyn Store, request: &Request, most: usize) -> Vec<Outcome> {
    for _ in 0..most {
        match store.apply(request.clone()).await {
            Ok(outcomes) => return outcomes,
            Err(ApplyError::TooLarge(why) | ApplyError::Conflict(why)) => panic!("{why}"),
            Err(ApplyError::Unknown(_) | ApplyError::Unavailable(_)) => {}
        }
    }
    panic!("{most} answers in a row were lost");
}

/// Goal: whatever statement is lost, on either way, outcomes and state are those of the reference.
/// Method: random mutations, one each, over a connection that loses some of a hundred statements.
/// Now and then another server takes over. At the end everything is compared over a connection that
/// loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn whatever_statement_is_lost_nothing_is_lost_or_doubled() {
    let factory = CassandraFactory::on(ring());
    let factory = CassandraFactory { flush_changes: 2, ..factory };
    for seed in 0..2 * rounds() {
        let clock = TestClock::new();
        let mut catalogue = Servers::start(&factory, &clock).await;
        let losing = Arc::new(Losing {
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            percent: Mutex::new(0),
            lost: Mutex::default(),
        });
        let mut lossy = open(&mut catalogue, &clock, &losing).await;
        let model = random::model(&clock);
        let mut generator = Generator::new(9000 + seed);
        let mut requests = generator.beginning();
        *losing.percent.lock() = 3;
        for step in 0..150 {
            let request = match requests.pop() {
                Some(request) => request,
                None => {
                    clock.turn(200);
                    let view = View::of(&*model).await;
                    let mut request = generator.request(&view, clock.now());
                    request.mutations.truncate(1);
                    request
                }
            };
            let expected = model.apply(request.clone()).await.expect("the reference answers");
            let got = answered(&*lossy, &request, ASKED_AGAIN_MAX).await;
            let same = expected.len() == got.len()
                && expected.iter().zip(&got).all(|(one, other)| same_outcome(one, other));
            assert!(same, "seed {seed}, step {step}: {got:?}, expected {expected:?}, of {request:?}");
            if step % 40 == 39 {
                // The server before may still complete its pending writes. They carry an earlier
                // timestamp and do no harm.
                *losing.percent.lock() = 0;
                lossy = open(&mut catalogue, &clock, &losing).await;
                *losing.percent.lock() = 3;
            }
        }
        *losing.percent.lock() = 0;
        let lost = losing.lost.lock().clone();
        assert!(lost.len() == 6, "each kind of statement is lost both ways: {lost:?}");
        let other = catalogue.one_more().await;
        let (expected, got) = (Dump::of(&*model, clock.now()).await, Dump::of(&*other, clock.now()).await);
        let difference = expected.difference("expected", &got, "got     ");
        assert!(difference.is_none(), "seed {seed}: the state differs\n{}", difference.expect("some"));
    }
}

async fn open(catalogue: &mut Servers, clock: &TestClock, losing: &Arc<Losing>) -> Arc<CassandraStore> {
    let faults: Arc<dyn Faults> = losing.clone();
    let settings = catalogue.settings().clone();
    let opened = CassandraStore::open_with(settings, clock.shared(), Some(faults)).await;
    let store = opened.expect("a store opens");
    catalogue.keep(store.clone());
    store
}
