//! Random sequences on a ring and on the reference: all outcomes, all state, and the state after it
//! was opened again. One server has many rows cached; another evicts all the time, with many log
//! segments.

use exacat_testkit::cassandra::{CassandraFactory, ring};
use exacat_testkit::random::{self, Settings, Tally};
use exacat_testkit::rounds;

/// Shorter than elsewhere: every comparison reads everything over the network.
fn settings(seed: u64) -> Settings {
    Settings { steps: 200, compare_every: 50, ..Settings::seeded(seed) }
}

async fn run(factory: &CassandraFactory, seeds: std::ops::Range<u64>) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        match random::run(factory, settings(seed)).await {
            Ok(one) => tally.add(&one),
            Err(failure) => panic!("{failure}"),
        }
    }
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn it_does_what_the_reference_does() {
    let factory = CassandraFactory::on(ring());
    let tally = run(&factory, 3000..3000 + 4 * rounds()).await;
    assert!(tally.0.len() > 50, "not much was tried: {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn it_does_so_when_it_forgets_all_the_time() {
    let forgetful = CassandraFactory::forgetful(ring());
    run(&forgetful, 3500..3500 + 2 * rounds()).await;
}
