//! Histories copied into a catalogue on a ring, and back.

use exacat_model::{Change, Revision};
use exacat_store::{Clock, Store};
use exacat_store_cassandra::TakeOver;
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::cassandra::{CassandraFactory, Servers, ring};
use exacat_testkit::random::history;
use exacat_testkit::{Dump, TestClock, rounds};

async fn same(expected: &dyn Store, got: &dyn Store, clock: &TestClock, what: &str) {
    let (expected, got) = (Dump::of(expected, clock.now()).await, Dump::of(got, clock.now()).await);
    let difference = expected.difference("expected", &got, "got     ");
    assert!(difference.is_none(), "{what}: {}", difference.expect("some"));
}

/// Goal: a history copied in pieces, by one process after the other, gives the state of its source.
/// Copied back from the cluster into an embedded store it does so again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn a_history_comes_to_the_ring_and_back() {
    let hosts = ring();
    let factory = CassandraFactory { segment_changes: 60, ..CassandraFactory::on(hosts.clone()) };
    let forgetful = CassandraFactory::forgetful(hosts);
    for (seed, forgets) in (0..2 * rounds()).zip([false, true].into_iter().cycle()) {
        let clock = TestClock::new();
        let (model, changes) = history(7200 + seed, 250, &clock).await;
        // One that evicts, and a log of many segments.
        let factory = if forgets { forgetful.clone() } else { factory.clone() };
        let mut catalogue = Servers::start(&factory, &clock).await;
        for (number, piece) in changes.chunks(150).enumerate() {
            let mut taking = TakeOver::open(catalogue.settings(), clock.shared()).await.expect("it opens");
            assert_eq!(taking.head().0 + 1, piece[0].revision.0);
            taking.take(piece).await.expect("taken over");
            assert!(taking.take(piece).await.is_err(), "these are there already");
            // One is cut off before all is in the tables.
            if number % 2 == 0 {
                taking.finish().await.expect("it ends");
            }
        }
        let other = catalogue.one_more().await;
        same(&*model, &*other, &clock, "on the ring").await;
        let directory = tempfile::TempDir::with_prefix("exacat-test-").expect("a temporary directory");
        let back =
            EmbeddedStore::open(EmbeddedSettings::at(directory.path()), clock.shared()).expect("it opens");
        let mut after = Revision(0);
        loop {
            let page: Vec<Change> = other.changes(after, 70).await.expect("changes").changes;
            let Some(last) = page.last() else { break };
            after = last.revision;
            back.take_over(page).await.expect("taken over");
        }
        same(&*model, &*back, &clock, "back again").await;
    }
}
