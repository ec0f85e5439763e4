//! Concurrent clients, lost answers and many creators of one name, on the memory store: these tests' own proof.

use std::sync::Arc;

use exacat_model::DirId;
use exacat_store::memory::MemoryStore;
use exacat_testkit::faults::{self, LostAnswers};
use exacat_testkit::history::{self, Clients, Seen};
use exacat_testkit::{MemoryFactory, TestClock, rounds, winners};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_explains_what_clients_see() {
    // The search for an order has no bound yet, and some histories take it minutes: in the long form only.
    if rounds() == 1 {
        eprintln!("skipped: set EXACAT_TEST_ROUNDS=2 or more to check concurrent histories");
        return;
    }
    for seed in 0..5 * rounds() {
        for (moves, lost, ask_again) in
            [(true, 0, true), (false, 30, true), (true, 30, true), (true, 15, false)]
        {
            let store = Arc::new(MemoryStore::new(TestClock::new().shared()));
            let lossy = Arc::new(LostAnswers::of(store, seed, lost));
            // An answer that stays lost may belong anywhere after, and so doubles the orders to search: then few
            // clients, few actions.
            let (clients, actions) = if ask_again { (4, 12) } else { (3, 8) };
            let plan = Clients { seed, clients, actions, names: 4, moves, ask_again };
            let events = history::run(lossy, plan).await;
            let not_known = events.iter().filter(|event| event.seen == Seen::Lost).count();
            assert!(not_known == 0 || !ask_again, "an answer that is asked for again comes");
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
