//! Concurrent clients, lost answers and many creators of one name, on the embedded store.

use std::sync::Arc;

use exacat_model::DirId;
use exacat_testkit::faults::{self, LostAnswers};
use exacat_testkit::history::{self, Clients, Tally};
use exacat_testkit::{EmbeddedFactory, StoreFactory, TestClock, rounds, winners};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_explains_what_clients_see() {
    let mut tally = Tally::default();
    for seed in 100..112 + 25 * (rounds() - 1) {
        for (moves, lost, ask_again) in
            [(true, 0, true), (false, 0, true), (true, 30, true), (true, 15, false)]
        {
            let clock = TestClock::new();
            let under_test = EmbeddedFactory::SMALL.open(&clock).await;
            let lossy = Arc::new(LostAnswers::of(under_test.store(), seed, lost));
            let plan = Clients { seed, clients: 4, actions: 12, names: 4, moves, ask_again };
            tally.run(lossy, plan).await;
        }
    }
    tally.assert_decided();
    eprintln!("{tally:?}");
}

/// Goal: histories that no search could judge are in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_changes_explain_what_many_clients_see() {
    for seed in 0..rounds() {
        for (lost, ask_again) in [(0, true), (20, true), (20, false)] {
            let clock = TestClock::new();
            let under_test = EmbeddedFactory::SMALL.open(&clock).await;
            let lossy = Arc::new(LostAnswers::of(under_test.store(), seed, lost));
            let plan = Clients { seed, clients: 64, actions: 200, names: 12, moves: true, ask_again };
            let events = history::run(lossy, plan).await;
            assert_eq!(events.len(), 64 * 200);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_doubled_or_lost_with_an_answer() {
    for seed in 200..203 + 10 * (rounds() - 1) {
        for several in [false, true] {
            if let Err(what) = faults::run(&EmbeddedFactory::SMALL, seed, 250, several).await {
                panic!("{what}");
            }
        }
    }
}

/// Goal: one of many creators gets each name; over 10 000 names in the long form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_creators_wins() {
    let clock = TestClock::new();
    let under_test = EmbeddedFactory::LARGE.open(&clock).await;
    let names = if rounds() > 1 { 10_000 } else { 300 };
    winners::run(under_test.store(), DirId::ROOT, names).await;
}
