//! Random sequences on the embedded store and the reference, over many small segments, memtables
//! and sorted runs. Compares all outcomes, all state, and the state after it was opened again.

use exacat_testkit::random::{self, Settings, Tally};
use exacat_testkit::{EmbeddedFactory, rounds};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_what_the_reference_does() {
    let mut tally = Tally::default();
    for seed in 1000..1000 + 12 * rounds() {
        match random::run(&EmbeddedFactory::SMALL, Settings::seeded(seed)).await {
            Ok(one) => tally.add(&one),
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(tally.0.len() > 60, "not much was tried: {tally:?}");
}
