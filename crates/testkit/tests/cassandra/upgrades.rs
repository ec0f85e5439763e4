//! Tables of an earlier release are refused, and upgraded.

use exacat_model::ErrorKind;
use exacat_store::{Clock, Store};
use exacat_store_cassandra::{CassandraStore, check_schema, upgrade_schema};
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, ring};
use scylla::client::session_builder::SessionBuilder;
use scylla::value::Row;

/// Goal: a program refuses tables of an earlier version with advice. An upgrade can be repeated,
/// and then the program works on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn tables_of_an_earlier_version_are_brought_up_to_date() {
    let factory = CassandraFactory::on(ring());
    let clock = TestClock::new();
    let mut catalogue = Servers::start(&factory, &clock).await;
    let settings = catalogue.settings().clone();
    let session = SessionBuilder::new().known_nodes(&settings.hosts).build().await.expect("a session");
    session.use_keyspace(&settings.keyspace, false).await.expect("the keyspace");
    let known = check_schema(&settings).await.expect("a status").known;
    let patience = async || {
        let question = "SELECT speculative_retry FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'children'";
        let rows = session.query_unpaged(question, (&settings.keyspace,)).await.expect("rows");
        let row: Row = rows.into_rows_result().expect("rows").single_row().expect("one");
        format!("{:?}", row.columns[0])
    };
    for words in [
        "ALTER TABLE children WITH speculative_retry = '50ms'",
        "UPDATE schema_version SET version = 1 WHERE id = 0",
    ] {
        session.query_unpaged(words, ()).await.expect("as it was before");
    }
    assert!(patience().await.contains("50"));
    let refused = CassandraStore::open(settings.clone(), clock.shared()).await.err().expect("refused");
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert!(refused.message.contains("schema upgrade"), "{refused}");
    assert_eq!(upgrade_schema(&settings).await.expect("upgraded").found, Some(1));
    assert_eq!(upgrade_schema(&settings).await.expect("once more").found, Some(known));
    assert!(patience().await.contains("10"));
    let server = catalogue.one_more().await;
    assert_eq!(server.audit().await.expect("an audit").findings, []);
    assert!(clock.now().0 > 0);
}
