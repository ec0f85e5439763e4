//! Bounded-staleness answers: their age, their cost, and that they are exact all the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use exacat_model::{Consistency, DirId, Lfn, UserId};
use exacat_store::{Outcome, ResolutionEnd, Store};
use exacat_store_cassandra::{CassandraSettings, CassandraStore};
use exacat_testkit::cassandra::{CassandraFactory, Servers, figure, ring};
use exacat_testkit::factory::{StoreEnd, StoreFactory, UnderTest};
use exacat_testkit::random::{self, outcome_name, request};
use exacat_testkit::scene::{at, create, guid, lfn, new_directory, new_file, rename, top};
use exacat_testkit::{TestClock, rounds};

const BELOW_LATEST: [Consistency; 3] = [Consistency::One, Consistency::LocalQuorum, Consistency::Quorum];
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(24 * 3600);

async fn apply(store: &CassandraStore, number: u64, mutation: exacat_model::Mutation) -> Outcome {
    let done = store.apply(request(number, UserId::ADMIN, vec![mutation])).await;
    let outcome = done.expect("answered").remove(0);
    assert_eq!(outcome_name(&outcome), "Applied", "{outcome:?}");
    outcome
}

async fn make_directory(store: &CassandraStore, number: u64, parent: DirId, name: &str) -> DirId {
    match apply(store, number, create(new_directory(at(parent, name)))).await {
        Outcome::Applied { id: Some(exacat_model::EntryId::Directory(id)), .. } => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn is_there(store: &dyn Store, path: &Lfn) -> bool {
    let walk = store.resolve(std::slice::from_ref(path)).await.expect("walk").remove(0);
    matches!(walk.end, ResolutionEnd::Found(_))
}

/// Opens one more server of the catalogue, whose row cache suffices for so long.
async fn one_more(catalogue: &mut Servers, clock: &TestClock, stale_max: Duration) -> Arc<CassandraStore> {
    let settings = CassandraSettings { stale_max, ..catalogue.settings().clone() };
    let store = CassandraStore::open(settings, clock.shared()).await.expect("a store opens");
    catalogue.keep(store.clone());
    store
}

fn bounded(store: &CassandraStore, level: Consistency) -> Arc<dyn Store> {
    store.with_bounded_staleness(level).expect("servers share it")
}

/// Goal: stale caches are bounded by the stated seconds, and `latest` is never stale. After one
/// server answered a move, the other shows it at once at `latest`. At every other level it shows
/// the move at the end of the bound at the latest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn latest_is_never_stale_and_others_no_longer_than_stated() {
    let hosts = ring();
    // With several replicas the one that is read may lack rows that most have.
    let one_is_exact = !hosts.contains(',');
    let clock = TestClock::new();
    let mut catalogue = Servers::start(&CassandraFactory::on(hosts), &clock).await;
    let stale_max = catalogue.settings().stale_max;
    let writer = catalogue.one_more().await;
    let reader = catalogue.one_more().await;
    make_directory(&writer, 0, DirId::ROOT, "d0").await;
    let (mut turn, mut stale) = (0, 0);
    let mut step = async || {
        // Back and forth: the reader has both names cached, so nothing has to be fetched.
        let (old, new) = (format!("d{}", turn % 2), format!("d{}", (turn + 1) % 2));
        turn += 1;
        apply(&writer, turn, rename(top(&old), top(&new))).await;
        (lfn(&format!("/{old}")), lfn(&format!("/{new}")), Instant::now())
    };
    for _ in 0..10 {
        let (old, new, _) = step().await;
        assert!(is_there(&*reader, &new).await && !is_there(&*reader, &old).await);
    }
    for level in BELOW_LATEST.into_iter().cycle().take(6) {
        let view = bounded(&reader, level);
        // Its read of the log head is of now, so that an answer can be stale.
        reader.revision().await.expect("a look");
        let (old, new, moved) = step().await;
        let mut revision = exacat_model::Revision(0);
        loop {
            let began = Instant::now();
            let walks = view.resolve(&[old.clone(), new.clone()]).await.expect("walk");
            let found = walks.iter().map(|walk| matches!(walk.end, ResolutionEnd::Found(_)));
            let found: Vec<bool> = found.collect();
            let now = view.revision().await.expect("revision");
            assert!(now >= revision, "it goes back");
            revision = now;
            match found[..] {
                [false, true] => break,
                // One state, of before.
                [true, false] => stale += 1,
                _ => panic!("an answer of no state: {found:?}"),
            }
            let exact = level != Consistency::One || one_is_exact;
            assert!(!exact || began <= moved + stale_max, "{level}: staler than {stale_max:?}");
            tokio::task::yield_now().await;
        }
    }
    assert!(stale > 0, "bounded-staleness answers read the log head every time");
    assert!(figure(&*reader, "answers_without_head_read").await > 0);
}

/// Goal: within the bound a cached path costs no statement. Beyond it it costs one read of the log
/// head at the level; at `latest` one each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn a_known_path_costs_nothing_within_the_bound() {
    let factory = CassandraFactory::on(ring());
    // A filter would be filled meanwhile.
    let factory = CassandraFactory { filter_bytes: 0, ..factory };
    let clock = TestClock::new();
    let mut catalogue = Servers::start(&factory, &clock).await;
    let writer = catalogue.one_more().await;
    let directory = make_directory(&writer, 0, DirId::ROOT, "d").await;
    apply(&writer, 1, create(new_file(at(directory, "f"), guid(1), Some(1), &[]))).await;
    let path = lfn("/d/f");
    for (stale_max, reads) in [(LONG, 0), (Duration::ZERO, 20)] {
        let reader = one_more(&mut catalogue, &clock, stale_max).await;
        assert!(is_there(&*reader, &path).await);
        for level in BELOW_LATEST {
            let view = bounded(&reader, level);
            let weak = figure(&*reader, "head_reads_below_quorum").await;
            let before = figure(&*reader, "statements_reads").await;
            for _ in 0..20 {
                assert!(is_there(&*view, &path).await);
            }
            // The request for metrics reads the log head itself.
            assert_eq!(figure(&*reader, "statements_reads").await - before - 1, reads, "{level}");
            let weak = figure(&*reader, "head_reads_below_quorum").await - weak;
            assert_eq!(weak, if level < Consistency::Quorum { reads } else { 0 }, "{level}");
            let name = format!("answers_{}", level.name().replace('-', "_"));
            assert_eq!(figure(&*reader, &name).await, 20);
        }
        let before = figure(&*reader, "statements_reads").await;
        for _ in 0..20 {
            assert!(is_there(&*reader, &path).await);
        }
        assert_eq!(figure(&*reader, "statements_reads").await - before - 1, 20, "latest");
    }
}

/// Goal: missing rows are fetched and checked as for `latest`. So a server that is far behind
/// answers of one state, and `latest` on it stays exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn what_is_not_known_is_of_the_last_state() {
    let factory = CassandraFactory::on(ring());
    let clock = TestClock::new();
    // Without a filter, missing rows must be read.
    let factory = CassandraFactory { segment_changes: 5, filter_bytes: 0, ..factory };
    let mut catalogue = Servers::start(&factory, &clock).await;
    let writer = catalogue.one_more().await;
    let a = make_directory(&writer, 0, DirId::ROOT, "a").await;
    for level in BELOW_LATEST {
        let reader = one_more(&mut catalogue, &clock, LONG).await;
        let view = bounded(&reader, level);
        let number = 100 * (level as u64 + 1);
        let name = |what: &str| format!("{what}-{level}");
        assert!(is_there(&*reader, &lfn("/a")).await);
        // Unknown to the reader a directory is made below one that it has cached, which moves; over
        // several log segments.
        let below = make_directory(&writer, number, a, &name("below")).await;
        for file in 0..12u8 {
            let place = at(below, &format!("f{file}"));
            let guid = guid(20 * level as u8 + file);
            apply(&writer, number + 1 + u64::from(file), create(new_file(place, guid, Some(1), &[]))).await;
        }
        let path = lfn(&format!("/a/{}/f3", name("below")));
        assert!(is_there(&*view, &path).await, "{level}");
        assert_eq!(view.revision().await.expect("known"), writer.revision().await.expect("the head"));
        let page = view.list(below, None, 100).await.expect("list").expect("there");
        assert_eq!(page.items.len(), 12);
        // Far behind again: `latest` is not.
        apply(&writer, number + 50, rename(at(a, &name("below")), top(&name("moved")))).await;
        assert!(is_there(&*view, &path).await, "as it was, within the bound");
        assert!(!is_there(&*reader, &path).await);
        assert!(
            is_there(&*view, &lfn(&format!("/{}/f3", name("moved")))).await,
            "the look was good for it too"
        );
        apply(&reader, number + 60, create(new_directory(top(&name("mine"))))).await;
        assert!(is_there(&*view, &lfn(&format!("/{}", name("mine")))).await, "what it answered itself");
        view.changed(exacat_model::Revision(0)).await.expect("there are changes");
        assert!(view.audit().await.expect("audit").findings.is_empty());
    }
}

/// One server, with reads at a level.
struct ViewAtLevel {
    servers: Box<dyn UnderTest>,
    level: Consistency,
}

struct AskedFactory(CassandraFactory, Consistency);

#[async_trait]
impl StoreFactory for AskedFactory {
    async fn open(&self, clock: &TestClock) -> Box<dyn UnderTest> {
        Box::new(ViewAtLevel { servers: self.0.open(clock).await, level: self.1 })
    }
}

#[async_trait]
impl UnderTest for ViewAtLevel {
    fn store(&self) -> Arc<dyn Store> {
        self.servers.store().with_bounded_staleness(self.level).expect("servers share it")
    }

    async fn reopen(&mut self, end: StoreEnd) {
        self.servers.reopen(end).await;
    }
}

/// Goal: on the server that changed something, bounded-staleness answers are those of the
/// reference, also when it evicts all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn on_one_server_bounded_staleness_answers_are_those_of_the_reference() {
    let factory = CassandraFactory::on(ring());
    let forgetful = CassandraFactory { cache_rows: 60, segment_changes: 7, ..factory };
    for (seed, level) in (3800..3800 + rounds()).zip(BELOW_LATEST.into_iter().cycle()) {
        let settings = random::Settings { steps: 120, compare_every: 60, ..random::Settings::seeded(seed) };
        if let Err(failure) = random::run(&AskedFactory(forgetful.clone(), level), settings).await {
            panic!("{level}: {failure}");
        }
    }
}
