//! Costs of answers and changes: numbers of statements, and of fetches that wait for one another.

use std::sync::Arc;

use exacat_model::{DirId, Guid, UserId};
use exacat_store::{Outcome, ResolutionEnd, Store};
use exacat_store_cassandra::CassandraStore;
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, figure_of, ring};
use exacat_testkit::random::{outcome_name, request};
use exacat_testkit::scene::{at, create, lfn, new_directory, new_file};

/// Directories above the file that is looked up.
const DEPTH: u64 = 9;
/// Entries of the directory that is listed.
const ENTRIES: u32 = 2500;

/// Reads so far, rounds of fetching so far, cached rows. The request itself costs a read of the log
/// head.
async fn metrics(store: &dyn Store) -> (u64, u64, u64) {
    let status = store.status().await.expect("status");
    let figure = |name: &str| figure_of(&status, name);
    (figure("statements_reads"), figure("rounds_fetched"), figure("rows_cached"))
}

/// Reads and rounds of fetching that something takes.
async fn cost<T>(store: &Arc<CassandraStore>, work: impl Future<Output = T>) -> (T, u64, u64) {
    // Once more, so that the server has everything for this request cached.
    metrics(&**store).await;
    let before = metrics(&**store).await;
    let done = work.await;
    let after = metrics(&**store).await;
    (done, after.0 - before.0 - 1, after.1 - before.1)
}

async fn make_directory(store: &CassandraStore, number: u64, parent: DirId, name: &str) -> DirId {
    let make = create(new_directory(at(parent, name)));
    match store.apply(request(number, UserId::ADMIN, vec![make])).await.expect("made")[0] {
        Outcome::Applied { id: Some(exacat_model::EntryId::Directory(id)), .. } => id,
        ref other => panic!("{other:?}"),
    }
}

fn numbered(number: u32, what: u8) -> Guid {
    let mut guid = [what; 16];
    guid[..4].copy_from_slice(&number.to_be_bytes());
    Guid(guid)
}

/// Goal: a look-up of a cached path is one read, that of the log head. A path that was never seen
/// takes one read after the other, each with a read of the log head. An evicted path takes one
/// round of reads, all at once, and at most one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn a_look_up_costs_one_read_or_one_round() {
    let factory = CassandraFactory::on(ring());
    let forgetful = CassandraFactory { cache_rows: 120, flush_changes: 1, filter_bytes: 0, ..factory };
    let mut catalogue = Servers::start(&forgetful, &TestClock::new()).await;
    let writer = catalogue.one_more().await;
    let (mut parent, mut path) = (DirId::ROOT, String::new());
    for depth in 0..DEPTH {
        parent = make_directory(&writer, depth, parent, &format!("d{depth}")).await;
        path += &format!("/d{depth}");
    }
    let make = create(new_file(at(parent, "f"), Guid([1; 16]), Some(1), &[]));
    writer.apply(request(100, UserId::ADMIN, vec![make])).await.expect("made");
    let crowd = make_directory(&writer, 101, DirId::ROOT, "crowd").await;
    // A server that opens has the last group cached: this one is of another directory.
    make_directory(&writer, 102, crowd, "last").await;
    let path = lfn(&format!("{path}/f"));
    let look_up = async |store: &CassandraStore| {
        let walk = store.resolve(std::slice::from_ref(&path)).await.expect("walk");
        assert!(matches!(walk[0].end, ResolutionEnd::Found(_)));
    };
    let reader = catalogue.one_more().await;
    let ((), reads, rounds) = cost(&reader, look_up(&reader)).await;
    eprintln!("a path of {DEPTH} directories that was never seen: {rounds} rounds, {reads} reads");
    assert!(rounds <= DEPTH + 1, "{rounds} rounds");
    assert!(reads <= 2 * (DEPTH + 1), "{reads} reads");
    for _ in 0..3 {
        let ((), reads, rounds) = cost(&reader, look_up(&reader)).await;
        assert_eq!((reads, rounds), (1, 0), "reads and rounds of a path that is known");
    }
    // Many other look-ups do not fit into the cache.
    let many: Vec<_> = (0..400).map(|number| lfn(&format!("/crowd/{number}"))).collect();
    let (mut forgot, mut before) = (false, 0);
    for some in many.chunks(50).cycle().take(40) {
        reader.resolve(some).await.expect("walk");
        let known = metrics(&*reader).await.2;
        forgot = known < before;
        if forgot {
            break;
        }
        before = known;
    }
    assert!(forgot, "it knows more than it may");
    let ((), reads, rounds) = cost(&reader, look_up(&reader)).await;
    eprintln!("the same path once it was forgotten: {rounds} rounds, {reads} reads");
    assert!((1..=2).contains(&rounds), "{rounds} rounds");
    assert!(reads <= DEPTH + 5, "{reads} reads");
}

/// Goal: a page of a listing is one read of one partition, and one read of the log head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn a_page_of_a_listing_is_one_read() {
    let factory = CassandraFactory::on(ring());
    let factory = CassandraFactory { partition_rows: u64::from(ENTRIES), filter_bytes: 0, ..factory };
    let mut catalogue = Servers::start(&factory, &TestClock::new()).await;
    let writer = catalogue.one_more().await;
    let directory = make_directory(&writer, 1, DirId::ROOT, "d").await;
    let names: Vec<u32> = (0..ENTRIES).collect();
    for (turn, some) in names.chunks(500).enumerate() {
        let make = |number: &u32| {
            create(new_file(at(directory, &format!("f{number:05}")), numbered(*number, 7), Some(1), &[]))
        };
        let made = request(10 + turn as u64, UserId::ADMIN, some.iter().map(make).collect());
        let outcomes = writer.apply(made).await.expect("made");
        assert!(outcomes.iter().all(|one| outcome_name(one) == "Applied"));
    }
    make_directory(&writer, 2, DirId::ROOT, "last").await;
    let reader = catalogue.one_more().await;
    let (mut after, mut seen) = (None, 0);
    for turn in 0.. {
        let listing = reader.list(directory, after.as_ref(), 1000);
        let (page, reads, _) = cost(&reader, listing).await;
        let page = page.expect("list").expect("there");
        seen += page.items.len();
        // The first page also reads the place of the directory.
        let most = if turn == 0 { 4 } else { 2 };
        assert!(reads <= most, "page {turn}: {reads} reads");
        if !page.more {
            break;
        }
        after = page.items.last().map(|entry| entry.at.name.clone());
    }
    assert_eq!(seen, ENTRIES as usize);
}
