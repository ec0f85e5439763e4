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
    let lifetime = async || {
        let question = "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'operations'";
        let rows = session.query_unpaged(question, (&settings.keyspace,)).await.expect("rows");
        let row: Row = rows.into_rows_result().expect("rows").single_row().expect("one");
        format!("{:?}", row.columns[0])
    };
    for words in [
        "ALTER TABLE operations WITH default_time_to_live = 7200",
        "UPDATE schema_version SET version = 5 WHERE id = 0",
    ] {
        session.query_unpaged(words, ()).await.expect("as it was before");
    }
    assert!(lifetime().await.contains("7200"));
    let open = async || CassandraStore::open(settings.clone(), clock.shared()).await.err().expect("refused");
    let refused = open().await;
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert!(refused.message.contains("schema upgrade"), "{refused}");
    assert_eq!(upgrade_schema(&settings).await.expect("upgraded").found, Some(5));
    assert_eq!(upgrade_schema(&settings).await.expect("once more").found, Some(known));
    assert!(lifetime().await.contains("3600"));
    let unreleased = "UPDATE schema_version SET version = 4 WHERE id = 0";
    session.query_unpaged(unreleased, ()).await.expect("as it never was");
    assert_eq!(open().await.kind, ErrorKind::Invalid);
    assert_eq!(upgrade_schema(&settings).await.expect_err("refused").kind, ErrorKind::Invalid);
    let back = format!("UPDATE schema_version SET version = {known} WHERE id = 0");
    session.query_unpaged(back, ()).await.expect("as it was before");
    let server = catalogue.one_more().await;
    assert_eq!(server.audit().await.expect("an audit").findings, []);
    assert!(clock.now().0 > 0);
}
