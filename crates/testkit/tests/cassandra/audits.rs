//! Audits of tables that are damaged and of tables that change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use exacat_model::{DirId, UserId};
use exacat_store::Store;
use exacat_store_cassandra::TakeOver;
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, ring};
use exacat_testkit::random::{history, outcome_name, request};
use exacat_testkit::scene::{at, create, new_directory, remove, rename};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::value::Row;
use serde_json::{Map, Value};

/// Tables, and the columns of their keys.
const TABLES: [(&str, &[&str]); 12] = [
    ("children", &["parent", "bucket", "name"]),
    ("objects", &["shard", "guid"]),
    ("directories", &["run", "directory"]),
    ("trash", &["bucket", "trash"]),
    ("reservations", &["shard", "guid"]),
    ("members", &["collection", "guid"]),
    ("deletions", &["se", "bucket", "revision", "position"]),
    ("copies", &["se", "copy"]),
    ("accounts", &["kind", "run", "id"]),
    ("on_se", &["se", "shard", "guid"]),
    ("due", &["kind", "day", "expires", "id"]),
    ("totals", &["id"]),
];

/// Direct access to the tables, past the store.
struct Tables(Session);

impl Tables {
    async fn of(catalogue: &Servers) -> Tables {
        let settings = catalogue.settings();
        let session = SessionBuilder::new().known_nodes(&settings.hosts).build().await.expect("a session");
        session.use_keyspace(&settings.keyspace, false).await.expect("the keyspace");
        Tables(session)
    }

    async fn rows(&self, table: &str, most: usize) -> Vec<Map<String, Value>> {
        let question = format!("SELECT JSON * FROM {table} LIMIT {most}");
        let rows = self.0.query_unpaged(question, ()).await.expect("rows").into_rows_result().expect("rows");
        let text = |row: Row| match row.columns.into_iter().next().flatten() {
            Some(scylla::value::CqlValue::Text(text)) => text,
            other => panic!("{other:?}"),
        };
        let rows = rows.rows::<Row>().expect("rows").map(|row| text(row.expect("a row")));
        rows.map(|text| serde_json::from_str(&text).expect("JSON")).collect()
    }

    async fn put(&self, table: &str, row: &Map<String, Value>) {
        let text = Value::Object(row.clone()).to_string();
        self.0.query_unpaged(format!("INSERT INTO {table} JSON ?"), (text,)).await.expect("put");
    }

    async fn take(&self, table: &str, keys: &[&str], row: &Map<String, Value>) {
        let wanted: Vec<String> = keys.iter().map(|key| format!("{key} = fromJson(?)")).collect();
        let values: Vec<String> = keys.iter().map(|key| row[*key].to_string()).collect();
        let statement = format!("DELETE FROM {table} WHERE {}", wanted.join(" AND "));
        self.0.query_unpaged(statement, values).await.expect("taken");
    }
}

async fn findings(catalogue: &mut Servers) -> Vec<String> {
    let server = catalogue.one_more().await;
    let audit = server.audit().await.expect("an audit");
    server.close().await.expect("closed");
    audit.findings.into_iter().map(|finding| format!("{}: {}", finding.what, finding.which)).collect()
}

/// Goal: any row that is missing in the tables, or is where no read looks, is found. Once it is as
/// before, nothing is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn whatever_is_missing_in_the_tables_is_found() {
    let factory = CassandraFactory::on(ring());
    let clock = TestClock::new();
    let (_, changes) = history(7300, 400, &clock).await;
    let mut catalogue = Servers::start(&factory, &clock).await;
    let mut taking = TakeOver::open(catalogue.settings(), clock.shared()).await.expect("it opens");
    taking.take(&changes).await.expect("taken over");
    taking.finish().await.expect("it ends");
    let tables = Tables::of(&catalogue).await;
    assert_eq!(findings(&mut catalogue).await, [""; 0]);
    let mut tried = BTreeSet::new();
    for (table, keys) in TABLES {
        for row in tables.rows(table, 2).await {
            tried.insert(table);
            tables.take(table, keys, &row).await;
            assert!(!findings(&mut catalogue).await.is_empty(), "{table}: {row:?} is missing");
            tables.put(table, &row).await;
            assert_eq!(findings(&mut catalogue).await, [""; 0], "{table}: {row:?} is back");
        }
    }
    assert!(tried.len() > 8, "of {tried:?} there are rows");
    // In a partition that the directory does not have, and in one that it has as well.
    let row = tables.rows("children", 1).await.remove(0);
    for bucket in [4000, 1_000_000] {
        let mut elsewhere = row.clone();
        elsewhere.insert("bucket".to_owned(), bucket.into());
        tables.put("children", &elsewhere).await;
        let found = findings(&mut catalogue).await;
        assert!(found.iter().any(|one| one.starts_with("partition")), "{found:?}");
        tables.take("children", TABLES[0].1, &elsewhere).await;
    }
    assert_eq!(findings(&mut catalogue).await, [""; 0]);
}

/// Goal: a slow audit of a catalogue that two servers change meanwhile finds nothing wrong. It is
/// of a revision between its beginning and its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn changes_go_on_during_an_audit() {
    let factory = CassandraFactory::on(ring());
    let factory = CassandraFactory { audit_rows_per_second: 400, flush_changes: 10, ..factory };
    let clock = TestClock::new();
    let mut catalogue = Servers::start(&factory, &clock).await;
    let (one, other, auditor) =
        (catalogue.one_more().await, catalogue.one_more().await, catalogue.one_more().await);
    let over = Arc::new(AtomicBool::new(false));
    let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let changing = [one, other].into_iter().enumerate().map(|(number, server)| {
        let (over, done) = (Arc::clone(&over), Arc::clone(&done));
        tokio::spawn(async move {
            let place = |step: u64, what: char| at(DirId::ROOT, &format!("{what}{number}-{step}"));
            let mut step = 0;
            while !over.load(Ordering::SeqCst) {
                step += 1;
                let mut work = vec![create(new_directory(place(step, 'a')))];
                if step > 10 {
                    work.push(rename(place(step - 10, 'a'), place(step - 10, 'b')));
                }
                if step > 60 {
                    work.push(remove(place(step - 60, 'b')));
                }
                let id = 1_000_000 * (number as u64 + 1) + step;
                for outcome in server.apply(request(id, UserId::ADMIN, work)).await.expect("an answer") {
                    assert_eq!(outcome_name(&outcome), "Applied");
                }
                done[number].store(step, Ordering::SeqCst);
            }
        })
    });
    let changing: Vec<_> = changing.collect();
    let mut last = 0;
    // Until both have made, moved and removed some.
    while done.iter().any(|steps| steps.load(Ordering::SeqCst) < 70) {
        let before = auditor.revision().await.expect("a revision");
        let audit = auditor.audit().await.expect("an audit");
        let after = auditor.revision().await.expect("a revision");
        assert_eq!(audit.findings, [], "at revision {}", audit.revision.0);
        assert!(before <= audit.revision && audit.revision <= after);
        last = audit.revision.0;
    }
    over.store(true, Ordering::SeqCst);
    for one in changing {
        one.await.expect("it ends well");
    }
    assert!(auditor.revision().await.expect("a revision").0 >= last);
}
