//! Concurrent clients, lost answers and many creators of one name, on a ring.

use std::sync::Arc;

use exacat_model::DirId;
use exacat_testkit::cassandra::{CassandraFactory, ring};
use exacat_testkit::faults::{self, LostAnswers};
use exacat_testkit::history::{self, Clients, Tally};
use exacat_testkit::{StoreFactory, TestClock, rounds, winners};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn an_order_explains_what_clients_see() {
    let factory = CassandraFactory::on(ring());
    let mut tally = Tally::default();
    for seed in 100..102 + 5 * (rounds() - 1) {
        for (moves, lost, ask_again) in [(true, 0, true), (true, 30, true), (true, 15, false)] {
            let clock = TestClock::new();
            let under_test = factory.open(&clock).await;
            let lossy = Arc::new(LostAnswers::of(under_test.store(), seed, lost));
            let plan = Clients { seed, clients: 4, actions: 12, names: 4, moves, ask_again };
            tally.run(lossy, plan).await;
        }
    }
    tally.assert_decided();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn the_changes_explain_what_many_clients_see() {
    let factory = CassandraFactory::on(ring());
    for (lost, ask_again) in [(0, true), (20, false)] {
        let clock = TestClock::new();
        let under_test = factory.open(&clock).await;
        let lossy = Arc::new(LostAnswers::of(under_test.store(), 7, lost));
        let plan = Clients { seed: 7, clients: 32, actions: 50, names: 12, moves: true, ask_again };
        let events = history::run(lossy, plan).await;
        assert_eq!(events.len(), 32 * 50);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn nothing_is_doubled_or_lost_with_an_answer() {
    let factory = CassandraFactory::on(ring());
    for (seed, several) in [(200, false), (201, true)] {
        if let Err(what) = faults::run(&factory, seed, 120, several).await {
            panic!("{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn one_of_many_creators_wins() {
    let factory = CassandraFactory::on(ring());
    let clock = TestClock::new();
    let under_test = factory.open(&clock).await;
    winners::run(under_test.store(), DirId::ROOT, 60).await;
}
