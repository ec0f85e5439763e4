//! Histories copied into the embedded store: the result is as in the reference, also after it was
//! opened again.

use std::sync::Arc;

use exacat_model::{ErrorKind, Revision};
use exacat_store::{Clock, Store};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::random::history;
use exacat_testkit::{Dump, TestClock, rounds};

fn open(settings: &EmbeddedSettings, clock: &TestClock) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(settings.clone(), clock.shared()).expect("a store opens")
}

/// Goal: a history copied in pieces, with the store ended in between, gives the state of its
/// source. It also gives the history itself, and the answers to repeated requests. Small segments
/// and memtables, so that there are many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_taken_over_gives_the_same_state() {
    for seed in 0..2 * rounds() {
        let clock = TestClock::new();
        let (model, changes) = history(7000 + seed, 400, &clock).await;
        let directory = tempfile::TempDir::with_prefix("exacat-test-").expect("a temporary directory");
        let settings = EmbeddedSettings {
            segment_bytes: 16 << 10,
            memtable_rows: 200,
            ..EmbeddedSettings::at(directory.path())
        };
        let mut store = open(&settings, &clock);
        for (number, piece) in changes.chunks(97).enumerate() {
            store.take_over(piece.to_vec()).await.expect("taken over");
            assert_eq!(store.revision().await.expect("a revision"), piece.last().expect("some").revision);
            if number % 3 == 2 {
                // Half of the times without being closed.
                if number % 2 == 0 {
                    store.close().await.expect("it closes");
                }
                drop(Arc::into_inner(store).expect("nobody else has it"));
                store = open(&settings, &clock);
            }
        }
        let (expected, got) = (Dump::of(&*model, clock.now()).await, Dump::of(&*store, clock.now()).await);
        let difference = expected.difference("expected", &got, "got     ");
        assert!(difference.is_none(), "seed {seed}: {}", difference.expect("some"));
    }
}

/// Goal: changes that do not follow the last one are refused, and change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_with_a_hole_is_refused() {
    let clock = TestClock::new();
    let (_, changes) = history(7100, 60, &clock).await;
    let directory = tempfile::TempDir::with_prefix("exacat-test-").expect("a temporary directory");
    let settings = EmbeddedSettings::at(directory.path());
    let store = open(&settings, &clock);
    store.take_over(changes[..10].to_vec()).await.expect("taken over");
    for wrong in [&changes[..10], &changes[11..20]] {
        let error = store.take_over(wrong.to_vec()).await.expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert_eq!(store.revision().await.expect("a revision"), Revision(10));
    }
    store.take_over(changes[10..].to_vec()).await.expect("taken over");
    let audit = store.audit().await.expect("an audit");
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
}
