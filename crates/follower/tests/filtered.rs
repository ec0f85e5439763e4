//! Filtered followers: the directory is that of the source, whatever happens to either.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use exacat_follower::limits::DIRECTORIES_MAX;
use exacat_follower::rows::{ChangesHeard, ChildrenQuery, RowsAnswer, RowsQuery, changes_of, rows_of};
use exacat_follower::{ComparisonPace, FilteredFollow, FilteredSource, FollowState};
use exacat_model::{
    Body, DirId, Entry, EntryId, Error, ErrorKind, Guid, Lfn, Name, Record, RecordKind, Result, Revision,
    SeNumber,
};
use exacat_store::{Clock, Store, UsageOf};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, FilteredRows, FilteredStep, FollowerFiles};
use exacat_testkit::TestClock;
use exacat_testkit::memory::MemoryStore;
use exacat_testkit::random::{Generator, View, model};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

const SOURCE: &str = "https://source:7421";

/// A source that goes on while it is asked, fails at random, and forgets its log.
struct TestSource {
    store: Arc<MemoryStore>,
    identity: u64,
    generator: Generator,
    clock: TestClock,
    random: Random,
    /// Rows and changes in an answer.
    limit: usize,
    /// One request of so many makes a change first; 0 for none.
    goes_on: u64,
    /// One request of so many fails; 0 for none.
    fails: u64,
    /// One request for changes of so many finds them gone; 0 for none.
    forgets: u64,
}

impl TestSource {
    fn new(seed: u64) -> Self {
        let clock = TestClock::new();
        let mut random = Random(seed);
        let limit = 1 + random.next(12) as usize;
        let (store, generator) = (model(&clock), Generator::new(seed));
        TestSource { store, identity: 1, generator, clock, random, limit, goes_on: 0, fails: 0, forgets: 0 }
    }

    async fn begin(&mut self) {
        for request in self.generator.beginning() {
            self.store.apply(request).await.unwrap();
        }
    }

    async fn drive(&mut self, requests: u64) {
        for _ in 0..requests {
            self.clock.turn(200);
            let view = View::of(&*self.store).await;
            let request = self.generator.request(&view, self.clock.now());
            self.store.apply(request).await.unwrap();
        }
    }

    async fn before(&mut self) -> Result<()> {
        while self.goes_on > 0 && self.random.chance(self.goes_on) {
            self.drive(1).await;
        }
        if self.fails > 0 && self.random.chance(self.fails) {
            return Err(Error::new(ErrorKind::Unavailable, "no answer comes"));
        }
        Ok(())
    }
}

impl FilteredSource for &mut TestSource {
    async fn position(&mut self) -> Result<(Revision, u64)> {
        self.before().await?;
        Ok((self.store.revision().await?, self.identity))
    }

    async fn changes(&mut self, after: Revision, _: Duration) -> Result<ChangesHeard> {
        self.before().await?;
        if self.forgets > 0 && self.random.chance(self.forgets) {
            return Err(Error::not_found("changes are not kept any more"));
        }
        let now = self.clock.now();
        let heard = changes_of(&*self.store, (after, Duration::ZERO), self.limit, now).await?;
        Ok(ChangesHeard { source: self.identity, ..heard })
    }

    async fn rows(&mut self, query: &RowsQuery) -> Result<RowsAnswer> {
        self.before().await?;
        rows_of(&*self.store, query, self.limit).await
    }
}

fn open(disk: &SimulatedDisk, under: &Lfn) -> Result<Arc<EmbeddedStore>> {
    let settings = EmbeddedSettings {
        segment_bytes: 8192,
        memtable_rows: 60,
        archive: false,
        mark_idle: Duration::MAX,
        follows: Some(SOURCE.to_owned()),
        under: Some(under.clone()),
        ..EmbeddedSettings::at("/follower")
    };
    let files = FollowerFiles::at_on(disk.shared(), Path::new("/follower"));
    files.prepare()?;
    files.follow(SOURCE, Some(under))?;
    EmbeddedStore::open_on(disk.shared(), settings, TestClock::new().shared())
}

/// Follows until nothing is left to do.
async fn catch_up(store: &Arc<EmbeddedStore>, source: &mut TestSource) -> Result<()> {
    let mut follow = FilteredFollow::new(Arc::clone(store), source, Arc::new(FollowState::new(SOURCE)));
    loop {
        follow.step(Duration::ZERO).await?;
        let mark = store.filtered_mark();
        if !mark.is_walking && follow.source().store.revision().await? == mark.position {
            return Ok(());
        }
    }
}

/// Content of a directory, by path: entries without what is each store's own, and members.
type Content = BTreeMap<String, (Entry, Vec<Guid>)>;

async fn content(store: &dyn Store, under: &Lfn) -> Content {
    let mut content = Content::new();
    let root = store.locate(&[EntryId::Directory(DirId::ROOT)]).await.unwrap().remove(0).unwrap();
    let mut waiting = vec![(String::new(), root.entry)];
    while let Some((path, mut entry)) = waiting.pop() {
        entry.revision = Revision(0);
        let mut members = Vec::new();
        if let Body::Collection { guid, .. } = entry.body {
            members = store.members(guid, None, 1000).await.unwrap().unwrap().items;
        }
        if let Some(id) = entry.directory() {
            for child in store.list(id, None, 10_000).await.unwrap().unwrap().items {
                let path = format!("{path}/{}", child.at.name.as_str());
                let lfn = Lfn::parse(&path).unwrap();
                if under.contains(&lfn) || lfn.contains(under) {
                    waiting.push((path, child));
                }
            }
        }
        content.insert(path, (entry, members));
    }
    content
}

async fn records(store: &dyn Store) -> Vec<Record> {
    let mut all = Vec::new();
    for kind in RecordKind::ALL {
        let page = store.records(kind, None, 10_000).await.unwrap();
        all.extend(page.items.into_iter().map(|item| item.record));
    }
    all
}

/// Checks that the follower has exactly the directory, that all its counters are right, and that nothing
/// waits for deletion.
async fn assert_equal(source: &MemoryStore, follower: &EmbeddedStore, under: &Lfn) {
    let wanted = content(source, under).await;
    let has = content(follower, &Lfn::root()).await;
    for (path, entry) in &wanted {
        assert_eq!(has.get(path), Some(entry), "{path}");
    }
    let others: Vec<&String> = has.keys().filter(|path| !wanted.contains_key(*path)).collect();
    assert!(others.is_empty(), "only at the follower: {others:?}");
    assert_eq!(records(source).await, records(follower).await);
    if let Some((entry, _)) = wanted.get(under.as_str())
        && let Some(id) = entry.directory()
    {
        let of = [UsageOf::Directory(id)];
        assert_eq!(source.usage(&of).await.unwrap(), follower.usage(&of).await.unwrap());
    }
    let of: Vec<UsageOf> = (1..5).map(|number| UsageOf::Deletions(SeNumber(number))).collect();
    let queued = follower.usage(&of).await.unwrap();
    assert!(queued.iter().all(|account| account.usage.is_empty()), "deletions are queued: {queued:?}");
    let status = follower.status().await.unwrap();
    assert_eq!(status.named_one("trash_items"), Some(0));
    assert_eq!(status.revision, source.revision().await.unwrap(), "the source's revision is shown");
    let audit = follower.audit().await.unwrap();
    assert_eq!(audit.findings_total, 0, "{:?}", audit.findings);
}

/// Returns this many seeds; or the one in `EXACAT_TEST_SEED`, which a failed test has printed.
fn seeds(usual: u64) -> impl Iterator<Item = Seed> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let all = match number("EXACAT_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..usual * number("EXACAT_TEST_ROUNDS").unwrap_or(1),
    };
    all.map(Seed)
}

/// A seed, which is printed if the test fails while this lives.
struct Seed(u64);

impl Drop for Seed {
    #[allow(clippy::print_stderr, reason = "it is how a failure is told")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to try this again: EXACAT_TEST_SEED={}", self.0);
        }
    }
}

fn directory_of(seed: u64) -> Lfn {
    let path = ["/a", "/a/b", "/b", "/c/a/b"][(seed % 4) as usize];
    Lfn::parse(path).unwrap()
}

/// Property: the follower has exactly the directory of its source, with every field, member, record and
/// counter. Method: random histories move, remove and restore entries across the border, the directory itself
/// and those above it; the follower follows in pieces while they go on.
#[tokio::test]
async fn follower_has_the_directory_while_the_source_goes_on() {
    // Of the last one, a file was purged in the trash, below a directory whose row was from after its return.
    for seed in seeds(60).chain([Seed(1132)]) {
        let (disk, under) = (SimulatedDisk::new(), directory_of(seed.0));
        let mut source = TestSource::new(seed.0);
        source.begin().await;
        source.drive(40).await;
        let follower = open(&disk, &under).unwrap();
        for round in 0..8 {
            source.goes_on = [0, 2, 3][round % 3];
            let steps = 1 + source.random.next(40);
            {
                let state = Arc::new(FollowState::new(SOURCE));
                let mut follow = FilteredFollow::new(Arc::clone(&follower), &mut source, state);
                for _ in 0..steps {
                    follow.step(Duration::ZERO).await.unwrap();
                }
            }
            source.goes_on = 0;
            let requests = source.random.next(30);
            source.drive(requests).await;
            if round % 2 == 1 {
                catch_up(&follower, &mut source).await.unwrap();
                assert_equal(&source.store, &follower, &under).await;
            }
        }
    }
}

/// Property: after power cuts, requests that fail, a log that is not kept any more and new timelines, at any
/// moment, the follower goes on, and equals its source in the end.
#[tokio::test]
async fn follower_goes_on_after_faults_of_both() {
    for seed in seeds(60) {
        let (mut disk, under) = (SimulatedDisk::new(), directory_of(seed.0));
        let mut source = TestSource::new(seed.0);
        source.begin().await;
        source.drive(60).await;
        for round in 0..8u64 {
            (source.goes_on, source.fails, source.forgets) = (4, 5 + 4 * (round % 3), 20);
            disk.set_fault(Some(Fault::PowerCut(disk.operations() + 1 + source.random.next(300))));
            if let Ok(follower) = open(&disk, &under) {
                let state = Arc::new(FollowState::new(SOURCE));
                let mut follow = FilteredFollow::new(Arc::clone(&follower), &mut source, state);
                for _ in 0..60 {
                    // Interrupted walks go on in the next step.
                    if follow.step(Duration::ZERO).await.is_err() && follower.failure().is_some() {
                        break;
                    }
                }
            }
            source.identity += u64::from(source.random.chance(5));
            source.drive(10).await;
            disk = disk.image(&mut source.random);
        }
        (source.goes_on, source.fails, source.forgets) = (0, 0, 0);
        let follower = open(&disk, &under).unwrap();
        catch_up(&follower, &mut source).await.unwrap();
        assert_equal(&source.store, &follower, &under).await;
        follower.close().await.unwrap();
        drop(follower);
        let follower = open(&disk, &under).unwrap();
        catch_up(&follower, &mut source).await.unwrap();
        assert_equal(&source.store, &follower, &under).await;
    }
}

/// Property: a source whose history is another one, as after a restore, is followed once the rows were
/// compared: whatever has the same directory numbers, GUIDs and names becomes equal.
#[tokio::test]
async fn source_with_another_history_is_compared_row_by_row() {
    for seed in seeds(40) {
        let (disk, under) = (SimulatedDisk::new(), directory_of(seed.0));
        let follower = open(&disk, &under).unwrap();
        for history in 0..3 {
            let mut source = TestSource::new(1000 * (history + 1) + seed.0);
            source.identity = history + 1;
            source.begin().await;
            source.drive(80).await;
            source.goes_on = 3;
            {
                let state = Arc::new(FollowState::new(SOURCE));
                let mut follow = FilteredFollow::new(Arc::clone(&follower), &mut source, state);
                for _ in 0..3 {
                    follow.step(Duration::ZERO).await.unwrap();
                }
            }
            source.goes_on = 0;
            catch_up(&follower, &mut source).await.unwrap();
            assert_equal(&source.store, &follower, &under).await;
        }
    }
}

/// Pages are compared in each step, one comparison after the other.
const ALL_THE_TIME: ComparisonPace =
    ComparisonPace { page_every: Duration::ZERO, whole_every: Duration::ZERO };

/// Property: the comparison with the source, which goes on while both change, never finds a difference where
/// there is none. An entry, a member or a record that is wrong is found and mended.
#[tokio::test]
async fn comparison_finds_what_is_wrong_and_nothing_else() {
    let (mut mended, mut wholes) = (BTreeMap::<&str, u64>::new(), 0);
    for seed in seeds(40) {
        let (disk, under) = (SimulatedDisk::new(), directory_of(seed.0));
        let mut source = TestSource::new(seed.0);
        source.begin().await;
        source.drive(60).await;
        let follower = open(&disk, &under).unwrap();
        catch_up(&follower, &mut source).await.unwrap();
        let state = Arc::new(FollowState::new(SOURCE));
        (source.goes_on, source.fails) = (2, 9);
        {
            let follow = FilteredFollow::new(Arc::clone(&follower), &mut source, Arc::clone(&state));
            let mut follow = follow.compared_at(ALL_THE_TIME);
            for _ in 0..150 {
                let _ = follow.step(Duration::ZERO).await;
            }
        }
        let compared = state.comparisons();
        wholes += compared.wholes;
        assert_eq!(compared.differences, 0, "the follower was right");
        (source.goes_on, source.fails) = (0, 0);
        catch_up(&follower, &mut source).await.unwrap();
        let what = ["lost", "added", "other", "member", "record"][(seed.0 % 5) as usize];
        let mut tries = 0;
        while !spoil(&follower, &under, what, &mut source.random).await && tries < 100 {
            tries += 1;
            source.drive(10).await;
            catch_up(&follower, &mut source).await.unwrap();
        }
        (source.goes_on, source.fails) = (4, 9);
        {
            let follow = FilteredFollow::new(Arc::clone(&follower), &mut source, Arc::clone(&state));
            let mut follow = follow.compared_at(ALL_THE_TIME);
            // Changes of the source may mend it before it is found.
            for _ in 0..300 {
                let _ = follow.step(Duration::ZERO).await;
            }
        }
        *mended.entry(what).or_default() += u64::from(state.comparisons().differences > 0);
        (source.goes_on, source.fails) = (0, 0);
        catch_up(&follower, &mut source).await.unwrap();
        assert_equal(&source.store, &follower, &under).await;
    }
    assert!(wholes > 40, "{wholes}");
    assert_eq!(mended.len(), 5, "{mended:?}");
    assert!(mended.values().all(|count| *count > 0), "{mended:?}");
}

/// Makes something at the follower another thing than at the source; false if there is no such thing.
async fn spoil(follower: &EmbeddedStore, under: &Lfn, what: &str, random: &mut Random) -> bool {
    let all = content(follower, under).await;
    let below = format!("{}/", under.as_str());
    let mut inside: Vec<&(Entry, Vec<Guid>)> =
        all.iter().filter(|(path, _)| path.starts_with(&below)).map(|(_, entry)| entry).collect();
    if what == "member" {
        inside.retain(|(_, members)| !members.is_empty());
    }
    let one = random.next(inside.len().max(1) as u64) as usize;
    let Some((entry, members)) = inside.get(one) else { return false };
    let (directory, name) = (entry.at.parent, entry.at.name.clone());
    let page = |entries| FilteredRows::Children { directory, after: None, only: None, entries, more: false };
    let mut siblings = follower.list(directory, None, 10_000).await.unwrap().unwrap().items;
    let rows = match what {
        "lost" => {
            siblings.retain(|entry| entry.at.name != name);
            page(siblings)
        }
        "added" => {
            let mut added = entry.clone();
            added.at.name = Name::parse("added").unwrap();
            added.body = Body::Link { guid: Guid([77; 16]), target: Lfn::root() };
            siblings.push(added);
            page(siblings)
        }
        "other" => {
            let mut other = entry.clone();
            other.modified.0 += 1;
            FilteredRows::Entry(Box::new(other))
        }
        "member" => FilteredRows::Members {
            collection: entry.id().object().unwrap(),
            after: None,
            members: members[1..].to_vec(),
            more: false,
        },
        _ => FilteredRows::Records { kind: RecordKind::User, after: None, records: Vec::new(), more: false },
    };
    follower.follow_filtered(FilteredStep::Rows(vec![rows])).await.unwrap();
    follower.follow_filtered(FilteredStep::Walked { whole: None }).await.unwrap();
    true
}

/// Limit: rows of [`DIRECTORIES_MAX`] directories are asked for at once, not of one more, and not of none.
#[tokio::test]
async fn rows_of_many_directories_are_asked_for_at_once() {
    let mut source = TestSource::new(1);
    source.begin().await;
    let ask = async |count: usize| {
        let one = ChildrenQuery { directory: DirId::ROOT, after: None, only: None };
        rows_of(&*source.store, &RowsQuery::Children(vec![one; count]), 100_000).await
    };
    let RowsAnswer::Children(pages) = ask(DIRECTORIES_MAX).await.unwrap() else { panic!("no children") };
    assert_eq!(pages.len(), DIRECTORIES_MAX);
    for count in [0, DIRECTORIES_MAX + 1] {
        assert_eq!(ask(count).await.unwrap_err().kind, ErrorKind::Limit);
    }
}
