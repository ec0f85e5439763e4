//! Retention of the history: old log segments are dropped as a whole, and nothing else is lost.

use exacat_model::{DirId, Revision, UserId};
use exacat_store::Store;
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, ring};
use exacat_testkit::random::{outcome_name, request};
use exacat_testkit::scene::{at, create, new_directory};

/// A day.
const KEPT_MS: u64 = 86_400_000;

/// Goal: changes past retention are gone from the changefeed, all younger ones are there. The
/// catalogue is complete, for open servers and for new ones. A repeated request still gets its
/// answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn what_is_older_than_is_kept_goes() {
    let factory = CassandraFactory::on(ring());
    let factory =
        CassandraFactory { segment_changes: 10, flush_changes: 4, history_kept_ms: Some(KEPT_MS), ..factory };
    let clock = TestClock::new();
    let mut catalogue = Servers::start(&factory, &clock).await;
    let server = catalogue.one_more().await;
    let (mut head, mut kept_from) = (Revision(0), Revision(0));
    for number in 0..120u64 {
        if number == 60 {
            kept_from = head;
            clock.turn(2 * KEPT_MS as i64);
        }
        let make = create(new_directory(at(DirId::ROOT, &format!("d{number:03}"))));
        let made = server.apply(request(number, UserId::ADMIN, vec![make])).await.expect("made");
        let exacat_store::Outcome::Applied { revision, .. } = made[0] else { panic!("{made:?}") };
        head = revision;
    }
    let page = server.changes(Revision(0), 1000).await.expect("changes");
    let first = page.changes.first().expect("some").revision;
    assert!(page.oldest > Revision(1) && first >= page.oldest, "the oldest is {:?}", page.oldest);
    assert!(first.0 <= kept_from.0 + 1, "{first:?} is the first, all after {kept_from:?} were to be kept");
    let told: Vec<u64> = page.changes.iter().map(|change| change.revision.0).collect();
    assert!(told.iter().copied().eq(first.0..=head.0), "all that is kept, in order");
    let other = catalogue.one_more().await;
    for server in [&server, &other] {
        let listed = server.list(DirId::ROOT, None, 1000).await.expect("list").expect("there");
        assert_eq!(listed.items.len(), 120);
        let audit = server.audit().await.expect("audit");
        assert!(audit.findings.is_empty(), "{:?}", audit.findings);
        let again = create(new_directory(at(DirId::ROOT, "d003")));
        let made = server.apply(request(3, UserId::ADMIN, vec![again])).await.expect("answered");
        assert_eq!(outcome_name(&made[0]), "Applied");
    }
}
