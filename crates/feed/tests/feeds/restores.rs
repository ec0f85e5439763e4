//! Restores: the sink is told where the timelines part, and gets the changes that were undone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use exacat_model::{AfterRestore, FeedAction, FeedSpec, FeedStart, OperationId, Revision, SnapshotName};
use exacat_store::{Clock as _, Store as _};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, RestorePoint};
use exacat_testkit::TestClock;
use exacat_testkit::random::{Generator, View};
use exacat_testkit::waiting::{eventually, eventually_so};
use serde_json::{Value, json};

use crate::directory::events;
use crate::hook::Hook;
use crate::mirror::{Mirror, check};
use crate::mirrors::{has_renamed, some_directory};
use crate::world::World;

/// A catalogue with feeds that is restored.
struct Site {
    data: PathBuf,
    world: World,
    generator: Generator,
    clock: TestClock,
    _place: tempfile::TempDir,
}

fn settings(data: &Path) -> EmbeddedSettings {
    EmbeddedSettings { memtable_rows: 300, segment_bytes: 16 << 10, ..EmbeddedSettings::at(data) }
}

fn of(name: &str) -> SnapshotName {
    SnapshotName::parse(name).unwrap()
}

impl Site {
    async fn new(seed: u64) -> Self {
        let place = tempfile::tempdir().unwrap();
        let (data, clock) = (place.path().join("data"), TestClock::new());
        let store = EmbeddedStore::open(settings(&data), clock.shared()).unwrap();
        let mut generator = Generator::new(seed);
        for request in generator.beginning() {
            store.apply(request).await.unwrap();
        }
        Site { data, world: World::new(store, &clock), generator, clock, _place: place }
    }

    async fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.clock.turn(50);
            let view = View::of(&*self.world.store).await;
            self.world.store.apply(self.generator.request(&view, self.clock.now())).await.unwrap();
        }
    }

    async fn snapshot(&self, name: &str) -> Revision {
        let id = OperationId((u128::from(self.clock.now().0) << 80 | 1).to_be_bytes());
        let snapshots = self.world.store.as_snapshots().unwrap();
        snapshots.snapshot(id, &of(name)).await.unwrap().revision
    }

    /// Makes a feed that gets undone changes, and a copy after them.
    async fn feed(&self, name: &str, under: &str) {
        let start = FeedStart::After(Revision(0).into());
        let spec =
            FeedSpec { after_restore: AfterRestore::UndoneAndCopy, ..self.world.spec(name, under, start) };
        self.world.create(name, spec).await;
    }

    /// Waits until a feed is on the present timeline, and has delivered everything.
    async fn caught_up(&self, feed: &str) {
        let current = self.world.store.timelines().current();
        eventually_so("the feed is on the timeline", async || {
            self.world.feed(feed).await.timeline == current
        })
        .await;
        self.world.caught_up(feed).await;
    }

    /// Restores the catalogue while no feed runs. `between` changes files before the feeds run again.
    async fn restore(&mut self, snapshot: &str, point: RestorePoint, between: impl FnOnce(&Path)) {
        self.world.feeds.close().await;
        self.world.store.close().await.unwrap();
        let settings = settings(&self.data);
        EmbeddedStore::restore(&settings, &of(snapshot), point, None, &self.clock, &mut |_| ()).unwrap();
        between(&self.data);
        self.world.store = EmbeddedStore::open(settings, self.clock.shared()).unwrap();
        self.world.reopen().await;
    }
}

fn number(event: &Value, name: &str) -> u64 {
    event[name].as_u64().unwrap()
}

/// Returns the events of changes after a revision, without what they say of events that follow.
fn changes_after(events: &[Value], after: Revision) -> Vec<Value> {
    let is_change = |event: &&Value| "cumdx".contains(event["op"].as_str().unwrap());
    let later = events.iter().filter(is_change).filter(|event| number(event, "revision") > after.0);
    later
        .map(|event| {
            let mut event = event.clone();
            let fields = event.as_object_mut().unwrap();
            fields.remove("rows");
            fields.remove("last");
            event
        })
        .collect()
}

/// Returns the undone changes in the form that they had when they were made.
fn undone(events: &[Value], at: Revision) -> Vec<Value> {
    let undone = events.iter().filter(|event| event["op"] == json!("undone"));
    undone
        .map(|event| {
            let mut event = event.clone();
            let revision = number(&event, "undone_revision");
            assert_eq!(number(&event, "revision"), at.0);
            assert_eq!(number(&event, "index"), revision - at.0);
            let fields = event.as_object_mut().unwrap();
            let was = fields.remove("was").unwrap();
            fields.remove("undone_revision");
            fields.remove("last");
            fields.extend([
                ("op".to_owned(), was),
                ("revision".to_owned(), json!(revision)),
                ("index".to_owned(), json!(0)),
            ]);
            event
        })
        .collect()
}

/// Panics unless the last undone change of each request is marked, and no other.
fn check_requests(events: &[Value]) {
    let undone: Vec<&Value> = events.iter().filter(|event| event["op"] == json!("undone")).collect();
    for pair in undone.windows(2) {
        assert_eq!(pair[0]["last"], json!(pair[0]["operation"] != pair[1]["operation"]), "{}", pair[0]);
    }
    assert!(undone.last().is_none_or(|last| last["last"] == json!(true)));
}

/// Returns the ops of notices about restores and copies, in order.
fn notices(events: &[Value]) -> Vec<&str> {
    let ops = events.iter().map(|event| event["op"].as_str().unwrap());
    let mut ops: Vec<&str> = ops.filter(|op| !"cumdx".contains(op) && !["r", "mark"].contains(op)).collect();
    ops.dedup();
    ops
}

async fn run(seed: u64) {
    let mut site = Site::new(seed).await;
    site.steps(60).await;
    let taken = site.snapshot("s").await;
    let view = View::of(&*site.world.store).await;
    let under = some_directory(&*site.world.store, &view, seed as usize).await;
    let under = under.map_or_else(|| "/".to_owned(), |lfn| lfn.to_string());
    let feeds = [("all", "/"), ("some", under.as_str())];
    for (name, under) in feeds {
        site.feed(name, under).await;
    }
    site.steps(100).await;
    for (name, _) in feeds {
        site.caught_up(name).await;
    }
    let renamed = has_renamed(&*site.world.store).await;
    let before: Vec<Vec<Value>> = feeds.map(|(name, _)| events(&site.world, name)).into();
    let (old, head) = (site.world.feed("all").await.timeline, site.world.head().await);
    let at = Revision(taken.0 + seed % (head.0 - taken.0));
    site.restore("s", RestorePoint::Revision(at), |_| ()).await;
    site.steps(40).await;
    for ((name, under), before) in feeds.into_iter().zip(before) {
        let what = format!("seed {seed}, {name} of {under}");
        site.caught_up(name).await;
        let after = events(&site.world, name).split_off(before.len());
        let wanted = changes_after(&before, at);
        let told = ["parted", "undone", "undone_end", "copy", "copied"];
        let told = told.into_iter().filter(|op| *op != "undone" || !wanted.is_empty());
        assert_eq!(notices(&after), told.collect::<Vec<_>>(), "{what}");
        let end = after.iter().find(|event| event["op"] == json!("undone_end")).unwrap();
        assert_eq!(end["complete"], json!(true), "{what}: {end}");
        if !renamed {
            let found = undone(&after, at);
            assert_eq!(found.len(), wanted.len(), "{what}");
            assert!(found.iter().all(|event| event["timeline"] == json!(old.to_string())), "{what}");
            check_requests(&after);
            for (found, wanted) in found.iter().zip(&wanted) {
                // A name that the feed did not know then may be known now.
                if !wanted.to_string().contains("\"#") {
                    assert_eq!(found, wanted, "{what}");
                }
                assert_eq!(
                    (&found["revision"], &found["op"]),
                    (&wanted["revision"], &wanted["op"]),
                    "{what}"
                );
            }
            if !has_renamed(&*site.world.store).await {
                let mirror = Mirror::of(&site.world.segments(name));
                check(&what, &mirror, &*site.world.store, under).await;
            }
        }
    }
    site.world.feeds.close().await;
}

/// Property: after a restore a feed that asks for it gets each change that was undone, as it was sent before,
/// and a mirror that ignores them is exact.
#[tokio::test(flavor = "multi_thread")]
async fn undone_changes_are_those_that_were_sent() {
    for seed in 0..6 * exacat_testkit::rounds() {
        run(seed).await;
    }
}

/// Property: if the replaced copy is gone or damaged, the sink is told that undone changes are missing, and
/// the feed goes on.
#[tokio::test(flavor = "multi_thread")]
async fn missing_copy_is_told_and_stops_no_feed() {
    let gone = |data: &Path| std::fs::remove_dir_all(data.join("replaced")).unwrap();
    let damaged = |data: &Path| {
        let log = data.join("replaced/1/log");
        for entry in std::fs::read_dir(log).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            // The header stays as it is.
            bytes[200..].iter_mut().for_each(|byte| *byte ^= 0x55);
            std::fs::write(&path, bytes).unwrap();
        }
    };
    let half_gone = |data: &Path| std::fs::remove_dir_all(data.join("replaced/1/log")).unwrap();
    let harms: [&dyn Fn(&Path); 3] = [&gone, &half_gone, &damaged];
    for harm in harms {
        let mut site = Site::new(7).await;
        site.snapshot("s").await;
        site.feed("one", "/").await;
        site.steps(50).await;
        site.caught_up("one").await;
        site.restore("s", RestorePoint::AsTaken, harm).await;
        site.caught_up("one").await;
        let all = events(&site.world, "one");
        let end = all.iter().find(|event| event["op"] == json!("undone_end")).unwrap();
        assert_eq!(end["complete"], json!(false), "{end}");
        let mirror = Mirror::of(&site.world.segments("one"));
        assert!(mirror.ops.contains_key("copied"));
        check("one", &mirror, &*site.world.store, "/").await;
        site.world.feeds.close().await;
    }
}

/// Property: a feed that was not asked for undone changes sends none.
#[tokio::test(flavor = "multi_thread")]
async fn undone_changes_are_only_sent_on_request() {
    let mut site = Site::new(8).await;
    site.snapshot("s").await;
    let spec = site.world.spec("plain", "/", FeedStart::After(Revision(0).into()));
    site.world.create("plain", spec).await;
    site.steps(20).await;
    site.caught_up("plain").await;
    site.restore("s", RestorePoint::AsTaken, |_| ()).await;
    site.caught_up("plain").await;
    assert_eq!(notices(&events(&site.world, "plain")), ["parted", "copy", "copied"]);
    site.world.feeds.close().await;
}

/// Returns the events that a receiver took, without repetitions.
fn taken(hook: &Hook) -> Vec<Value> {
    let mut ids = HashSet::new();
    let events = hook.got().into_iter().filter(|got| got.is_taken).flat_map(|got| got.events());
    events
        .filter(|event| ids.insert(event["id"].as_str().unwrap().to_owned()))
        .map(|event| event["data"].clone())
        .collect()
}

/// Property: undone changes that a sink does not take yet stay to be sent through further restores and
/// restarts, those of one timeline after the other. A rewind drops them.
#[tokio::test(flavor = "multi_thread")]
async fn undone_changes_wait_for_the_sink_through_further_restores() {
    const UNDONE: &str = r#""op":"undone""#;
    let mut site = Site::new(9).await;
    let early = site.snapshot("early").await;
    let hooks = [Hook::start(&[]).await, Hook::start(&[]).await];
    for (name, hook) in ["waits", "rewound"].into_iter().zip(&hooks) {
        let spec = site.world.spec(name, "/", FeedStart::After(Revision(0).into()));
        let (sink, after_restore) = (hook.url.clone(), AfterRestore::Undone);
        site.world.create(name, FeedSpec { sink, after_restore, allow_private: true, ..spec }).await;
    }
    let mut timelines = Vec::new();
    let mut ends = Vec::new();
    site.steps(20).await;
    let late = site.snapshot("late").await;
    for (snapshot, partings) in [("late", 1), ("early", 2)] {
        site.steps(20).await;
        if partings == 1 {
            site.caught_up("waits").await;
            site.caught_up("rewound").await;
        }
        ends.push(site.world.head().await);
        hooks.iter().for_each(|hook| hook.refuse(Some(UNDONE)));
        timelines.push(site.world.feed("waits").await.timeline.to_string());
        site.restore(snapshot, RestorePoint::AsTaken, |_| ()).await;
        for hook in &hooks {
            eventually("the sink is told, and undone changes wait", || {
                let told = taken(hook).iter().filter(|event| event["op"] == json!("parted")).count();
                told == partings && hook.got().last().is_some_and(|got| !got.is_taken)
            })
            .await;
        }
    }
    site.world.control("rewound", FeedAction::Rewind(FeedStart::Copy)).await.unwrap();
    hooks.iter().for_each(|hook| hook.refuse(None));
    site.steps(5).await;
    for name in ["waits", "rewound"] {
        site.caught_up(name).await;
    }
    let undone_of = |timeline: &str| -> Vec<u64> {
        let all = taken(&hooks[0]);
        let undone = all.iter().filter(|event| event["op"] == json!("undone"));
        undone
            .filter(|event| event["timeline"] == json!(timeline))
            .map(|event| number(event, "undone_revision"))
            .collect()
    };
    let revisions = |after: Revision, end: Revision| (after.0 + 1..=end.0).collect::<Vec<_>>();
    assert_eq!(undone_of(&timelines[0]), revisions(late, ends[0]));
    assert_eq!(undone_of(&timelines[1]), revisions(early, ends[1]));
    let all = taken(&hooks[0]);
    let of_restores: Vec<&str> = notices(&all);
    assert_eq!(of_restores, ["parted", "undone", "undone_end", "undone", "undone_end"]);
    let last = all.iter().rposition(|event| event["op"] == json!("undone_end")).unwrap();
    assert!(!changes_after(&all[last..], early).is_empty(), "the feed goes on");
    assert!(!notices(&taken(&hooks[1])).contains(&"undone"));
    site.world.feeds.close().await;
}
