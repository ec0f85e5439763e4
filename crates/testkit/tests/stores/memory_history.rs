//! Concurrent clients, lost answers and many creators of one name, on the memory store: these
//! tests' own proof.

use std::sync::Arc;

use exacat_model::DirId;
use exacat_testkit::faults::{self, LostAnswers};
use exacat_testkit::history::{self, Clients, Tally};
use exacat_testkit::memory::MemoryStore;
use exacat_testkit::{MemoryFactory, TestClock, rounds, winners};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_explains_what_clients_see() {
    let mut tally = Tally::default();
    for (moves, lost, ask_again) in [
        (true, 0, true),
        (false, 30, true),
        (true, 30, true),
        (false, 15, false),
        (true, 15, false),
        (true, 40, false),
    ] {
        let mut of_plan = Tally::default();
        for seed in 0..25 * rounds() {
            let store = Arc::new(MemoryStore::new(TestClock::new().shared()));
            let lossy = Arc::new(LostAnswers::of(store, seed, lost));
            let plan = Clients { seed, clients: 4, actions: 12, names: 4, moves, ask_again };
            of_plan.run(lossy, plan).await;
        }
        let some_stay_lost = of_plan.not_known > 0;
        assert_eq!(some_stay_lost, !ask_again, "an answer that is asked for again comes: {of_plan:?}");
        tally.add(&of_plan);
    }
    tally.assert_decided();
    eprintln!("{tally:?}");
}

/// Goal: histories that no search could judge are in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_changes_explain_what_many_clients_see() {
    for seed in 0..2 * rounds() {
        for (moves, lost, ask_again) in [(true, 0, true), (true, 20, true), (true, 20, false)] {
            let store = Arc::new(MemoryStore::new(TestClock::new().shared()));
            let lossy = Arc::new(LostAnswers::of(store, seed, lost));
            let plan = Clients { seed, clients: 64, actions: 200, names: 12, moves, ask_again };
            let events = history::run(lossy, plan).await;
            assert_eq!(events.len(), 64 * 200);
        }
    }
}

#[tokio::test]
async fn nothing_is_doubled_or_lost_with_an_answer() {
    for seed in 0..6 * rounds() {
        for several in [false, true] {
            if let Err(what) = faults::run(&MemoryFactory, seed, 300, several).await {
                panic!("{what}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_creators_wins() {
    let store = Arc::new(MemoryStore::new(TestClock::new().shared()));
    winners::run(store, DirId::ROOT, 60).await;
}
