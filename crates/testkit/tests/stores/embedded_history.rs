//! Concurrent clients, lost answers and many creators of one name, on the embedded store.

use std::sync::Arc;

use exacat_model::DirId;
use exacat_testkit::faults::{self, LostAnswers};
use exacat_testkit::history::{self, Clients};
use exacat_testkit::{EmbeddedFactory, StoreFactory, TestClock, rounds, winners};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_explains_what_clients_see() {
    // The search for an order has no bound yet, and some histories take it minutes: in the long form only.
    if rounds() == 1 {
        eprintln!("skipped: set EXACAT_TEST_ROUNDS=2 or more to check concurrent histories");
        return;
    }
    for seed in 100..104 + 10 * (rounds() - 1) {
        for (moves, lost, ask_again) in
            [(true, 0, true), (false, 0, true), (true, 30, true), (true, 15, false)]
        {
            let clock = TestClock::new();
            let under_test = EmbeddedFactory::SMALL.open(&clock).await;
            let lossy = Arc::new(LostAnswers::of(under_test.store(), seed, lost));
            // An answer that stays lost may belong anywhere after, and so doubles the orders to search: then few
            // clients, few actions.
            let (clients, actions) = if ask_again { (4, 12) } else { (3, 8) };
            let plan = Clients { seed, clients, actions, names: 4, moves, ask_again };
            history::run(lossy, plan).await;
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

/// Over 10 000 names in the long form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_creators_wins() {
    let clock = TestClock::new();
    let under_test = EmbeddedFactory::LARGE.open(&clock).await;
    let names = if rounds() > 1 { 10_000 } else { 300 };
    winners::run(under_test.store(), DirId::ROOT, names).await;
}
