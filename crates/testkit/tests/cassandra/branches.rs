//! A log that becomes another branch of the history under running servers: they close, and never
//! adopt it.

use exacat_model::{ErrorKind, Mutation, UserId};
use exacat_store::{ApplyError, Store};
use exacat_store_cassandra::{CassandraStore, check_schema};
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, figure, ring};
use exacat_testkit::random::request;
use exacat_testkit::scene::{create, new_directory, top};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

fn directory(name: &str) -> Mutation {
    create(new_directory(top(name)))
}

async fn make(store: &CassandraStore, number: u64, name: &str) -> Result<(), ApplyError> {
    store.apply(request(number, UserId::ADMIN, vec![directory(name)])).await.map(drop)
}

async fn session(catalogue: &Servers) -> Session {
    let settings = catalogue.settings();
    let session = SessionBuilder::new().known_nodes(&settings.hosts).build().await.expect("a session");
    session.use_keyspace(&settings.keyspace, false).await.expect("the keyspace");
    session
}

/// Checks that the store reports the reason, and does nothing any more.
async fn assert_closed(store: &CassandraStore, number: u64) {
    let error = store.revision().await.expect_err("it goes on");
    assert!(error.message.contains("another branch of the history"), "{error}");
    let refused = make(store, number, "more").await.expect_err("it appends");
    assert!(
        matches!(&refused, ApplyError::Unavailable(why) if why.contains("another branch")),
        "{refused:?}"
    );
}

/// Goal: a group that is replaced under a running server, and followed by others, is noticed before
/// any of it is installed. Method: the last group gets another id, as if another server had
/// appended another one there; a further server appends to that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn group_replaced_under_a_running_server_closes_it() {
    let factory = CassandraFactory::on(ring());
    let mut catalogue = Servers::start(&factory, &TestClock::new()).await;
    let (follows, reads) = (catalogue.one_more().await, catalogue.one_more().await);
    for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
        make(&follows, number, name).await.expect("made");
    }
    let seen = reads.revision().await.expect("a revision");
    assert_eq!(figure(&*reads, "log_diverged").await, 0);
    let session = session(&catalogue).await;
    let last = seen.0;
    for words in [
        format!("UPDATE log SET append = 0x{} WHERE segment = 1 AND last = {last}", "ee".repeat(16)),
        format!(
            "UPDATE log SET tail = 0x{} WHERE segment = 1 IF head = {last} AND next = null",
            "ee".repeat(16)
        ),
    ] {
        session.query_unpaged(words, ()).await.expect("another branch");
    }
    // At the same head, and after others followed there.
    assert_closed(&reads, 10).await;
    let other = catalogue.one_more().await;
    make(&other, 20, "d").await.expect("it knows no other");
    assert_closed(&follows, 30).await;
    assert!(other.revision().await.expect("a revision") > seen);
}

/// Goal: a head that goes back, as after a restore of nodes, is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn head_that_went_back_closes_a_running_server() {
    let factory = CassandraFactory::on(ring());
    let mut catalogue = Servers::start(&factory, &TestClock::new()).await;
    let store = catalogue.one_more().await;
    for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
        make(&store, number, name).await.expect("made");
    }
    let last = store.revision().await.expect("a revision").0;
    let back = format!("UPDATE log SET head = {} WHERE segment = 1 IF head = {last}", last - 1);
    session(&catalogue).await.query_unpaged(back, ()).await.expect("it goes back");
    assert_closed(&store, 10).await;
}

/// Goal: a log of before schema version 6, without names of groups, continues after the upgrade.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn log_without_predecessors_goes_on_after_the_upgrade() {
    let factory = CassandraFactory::on(ring());
    let mut catalogue = Servers::start(&factory, &TestClock::new()).await;
    let store = catalogue.one_more().await;
    make(&store, 1, "a").await.expect("made");
    let last = store.revision().await.expect("a revision").0;
    catalogue.end().await;
    let session = session(&catalogue).await;
    for words in [
        "ALTER TABLE log DROP tail".to_owned(),
        "ALTER TABLE log DROP before".to_owned(),
        "UPDATE schema_version SET version = 5 WHERE id = 0".to_owned(),
    ] {
        session.query_unpaged(words, ()).await.expect("as it was before");
    }
    let settings = catalogue.settings().clone();
    let refused = CassandraStore::open(settings.clone(), TestClock::new().shared()).await.err();
    assert_eq!(refused.expect("refused").kind, ErrorKind::Invalid);
    exacat_store_cassandra::upgrade_schema(&settings).await.expect("upgraded");
    let status = check_schema(&settings).await.expect("a status");
    assert_eq!(status.found, Some(status.known));
    let (one, other) = (catalogue.one_more().await, catalogue.one_more().await);
    for number in 0..4 {
        let store = if number % 2 == 0 { &one } else { &other };
        make(store, 100 + number, &format!("after{number}")).await.expect("made");
    }
    assert_eq!(one.revision().await.expect("a revision").0, last + 4);
    assert_eq!(other.audit().await.expect("an audit").findings, []);
}
