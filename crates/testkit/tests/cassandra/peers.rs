//! Servers that forward their requests to one of them: they do it, and a server that ends is not
//! missed. `servers` tests their clients' view.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use exacat_model::{Consistency, UserId};
use exacat_store::Store;
use exacat_store_cassandra::CassandraStore;
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, figure, ring};
use exacat_testkit::random::{outcome_name, request};
use exacat_testkit::scene::{create, lfn, new_directory, top};
use exacat_testkit::waiting::eventually_so;

use crate::consistency::is_there;

/// Waits until these metrics of these servers are as large as that.
async fn come_to<const N: usize>(wanted: [(&CassandraStore, &str, u64); N], or_else: &str) {
    for (store, name, least) in wanted {
        eventually_so(or_else, async || figure(store, name).await >= least).await;
    }
}

/// Makes directories at a server, one after the other, until told to end, and checks each answer.
/// Returns their number.
async fn make(store: Arc<CassandraStore>, operations: u64, until: &AtomicU64) -> u64 {
    // The weakest level: a server shows its own answers, whichever server made the change.
    let weakest = store.with_bounded_staleness(Consistency::One).expect("this store has levels");
    let mut number = 0;
    while until.load(SeqCst) == 0 {
        let name = format!("d{operations}-{number}");
        let operation = operations << 32 | number;
        let made =
            store.apply(request(operation, UserId::ADMIN, vec![create(new_directory(top(&name)))])).await;
        let made = made.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(outcome_name(&made[0]), "Applied", "{name}");
        let seen = is_there(&*weakest, &lfn(&format!("/{name}"))).await;
        assert!(seen, "{name} was answered, and is not seen");
        number += 1;
    }
    number
}

async fn all_there(store: &CassandraStore, operations: u64, count: u64) {
    for number in 0..count {
        assert!(is_there(store, &lfn(&format!("/d{operations}-{number}"))).await, "{operations}-{number}");
    }
}

/// Goal: of servers that write at the same time the later opened ones forward their requests to the
/// first. When that ends the next one takes over; no client notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn one_server_writes_for_all() {
    let factory = CassandraFactory::together(ring());
    let clock = TestClock::new();
    let mut catalogue = Servers::start(&factory, &clock).await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        clock.turn(1);
        servers.push(catalogue.one_more().await);
    }
    let ends: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
    let tasks: Vec<_> = (0..3u64)
        .map(|server| {
            let (store, end) = (servers[server as usize].clone(), ends[server as usize].clone());
            tokio::spawn(async move { make(store, server, &end).await })
        })
        .collect();
    let handed = "requests_forwarded_out";
    // At first the third may find the second.
    let all =
        [(&*servers[1], handed, 20), (&*servers[2], handed, 20), (&*servers[0], "requests_forwarded_in", 40)];
    come_to(all, "they go on to write each for itself").await;
    assert_eq!(figure(&*servers[0], "requests_forwarded_out").await, 0);
    // The first has nothing to do any more, and ends: with requests of the others in it.
    ends[0].store(1, SeqCst);
    let mut tasks = tasks.into_iter();
    let made = tasks.next().expect("a task").await.expect("the first client");
    servers[0].close().await.expect("closed");
    let second = &*servers[1];
    let changes = figure(second, "changes").await + 20;
    let taken = figure(second, "requests_forwarded_in").await + 20;
    let more = [(second, "changes", changes), (second, "requests_forwarded_in", taken)];
    come_to(more, "the second does not write for the third").await;
    ends.iter().for_each(|end| end.store(1, SeqCst));
    all_there(&servers[2], 0, made).await;
    for (server, task) in (1..).zip(tasks) {
        let made = task.await.expect("a client");
        all_there(&servers[1], server, made).await;
    }
    let audit = servers[2].audit().await.expect("audit");
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
}
