//! Directories of segments: the six properties of a stream, limits, restores, and control.

use std::sync::Arc;

use exacat_model::{DirId, ErrorKind, FeedAction, FeedSpec, FeedStart, FeedState, Mutation, Revision};
use exacat_store::Store;
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, HistoryKept};
use exacat_testkit::random::request;
use exacat_testkit::scene::{SES, at, create, guid, new_directory, new_file, se, set};
use exacat_testkit::waiting::{eventually, eventually_so, soon};
use exacat_testkit::{MemoryFactory, Scene, TestClock};
use serde_json::{Value, json};

use crate::mirror::{Mirror, check};
use crate::world::{World, name, open, pace};

/// Returns all events of a feed, in order.
pub(crate) fn events(world: &World, feed: &str) -> Vec<Value> {
    let entries = std::fs::read_dir(world.segments(feed)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "ndjson")).collect();
    paths.sort();
    let lines: Vec<String> = paths
        .iter()
        .flat_map(|path| {
            std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Leaves out marks, and the row of the root, which no change made.
fn changes(events: Vec<Value>) -> Vec<Value> {
    let is_change = |event: &Value| event["op"] != json!("mark") && event["op"] != json!("r");
    events.into_iter().filter(is_change).collect()
}

fn start() -> FeedStart {
    FeedStart::After(Revision(0).into())
}

async fn scene() -> (Scene, World) {
    let scene = Scene::new(&MemoryFactory).await;
    let world = World::new(scene.store(), &scene.clock);
    (scene, world)
}

/// Property: events come in the order of revisions, each change once, none is missing, and the last one of
/// each request is marked and no other.
#[tokio::test(flavor = "multi_thread")]
async fn stream_is_ordered_unique_whole_and_atomic() {
    let (scene, world) = scene().await;
    world.create("all", world.spec("all", "/", start())).await;
    let mut requests = Vec::new();
    for round in 0..20u8 {
        let files = (0..5).map(|file| {
            let number = round * 5 + file;
            create(new_file(at(DirId::ROOT, &format!("f{number}")), guid(number), Some(1), &SES))
        });
        let outcomes = scene.apply(files.collect()).await;
        requests.push(outcomes.len());
    }
    world.caught_up("all").await;
    let events: Vec<Value> = changes(events(&world, "all"));
    let revisions: Vec<u64> = events.iter().map(|event| event["revision"].as_u64().unwrap()).collect();
    let head = world.head().await;
    assert_eq!(revisions, (1..=head.0).collect::<Vec<_>>(), "ordered, unique, reliable");
    for pair in events.windows(2) {
        let is_same = pair[0]["operation"] == pair[1]["operation"];
        assert_eq!(pair[0]["last"], json!(!is_same), "{}", pair[0]);
    }
    assert_eq!(events.last().unwrap()["last"], json!(true));
    world.feeds.close().await;
}

/// Property: a filtered feed moves its cursor through changes that do not match, and its sink gets marks.
#[tokio::test(flavor = "multi_thread")]
async fn filtered_feed_passes_other_changes_with_marks() {
    let (scene, world) = scene().await;
    let directory = scene.directory(DirId::ROOT, "in").await;
    world.create("some", world.spec("some", "/in", start())).await;
    world.caught_up("some").await;
    for number in 0..10 {
        scene.file(DirId::ROOT, &format!("out{number}"), number, &[1]).await;
    }
    world.caught_up("some").await;
    let head = world.head().await.0;
    eventually("a mark", || {
        events(&world, "some")
            .iter()
            .any(|event| event["op"] == json!("mark") && event["revision"] == json!(head))
    })
    .await;
    assert!(events(&world, "some").iter().all(|event| event["lfn"].as_str().is_none_or(|lfn| lfn == "/in")));
    scene.file(directory, "one", 99, &[1]).await;
    world.caught_up("some").await;
    let last = events(&world, "some").pop().unwrap();
    assert_eq!((last["op"].clone(), last["lfn"].clone()), (json!("c"), json!("/in/one")));
    world.feeds.close().await;
}

/// Property: a feed that only shows some kinds shows no other.
#[tokio::test(flavor = "multi_thread")]
async fn feed_of_kinds_shows_no_others() {
    let (scene, world) = scene().await;
    let spec = FeedSpec { kinds: vec!["removed".to_owned()], ..world.spec("gone", "/", start()) };
    world.create("gone", spec).await;
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    scene.trash(at(DirId::ROOT, "a")).await;
    world.caught_up("gone").await;
    let shown: Vec<Value> =
        events(&world, "gone").into_iter().filter(|event| event["op"] != json!("mark")).collect();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0]["op"].clone(), shown[0]["effect"].clone()), (json!("d"), json!("removed")));
    world.feeds.close().await;
}

/// Property: a feed that is made again in a directory with older segments begins the next generation, and
/// delivers every change of its own, also those whose revisions the older segments have.
#[tokio::test(flavor = "multi_thread")]
async fn feed_made_again_in_its_directory_skips_nothing() {
    let (scene, world) = scene().await;
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    world.create("again", world.spec("again", "/", start())).await;
    world.caught_up("again").await;
    let before = events(&world, "again").len();
    world.control("again", FeedAction::Drop).await.unwrap();
    scene.file(DirId::ROOT, "b", 2, &[1]).await;
    world.create("again", world.spec("again", "/", start())).await;
    world.caught_up("again").await;
    let head = world.head().await.0 as usize;
    let later = events(&world, "again").split_off(before);
    assert_eq!(changes(later).len(), head, "all changes, in the second generation");
    check("again", &Mirror::of(&world.segments("again")), &*world.store, "/").await;
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(world.segments("again").join("feed.json")).unwrap()).unwrap();
    assert_eq!(manifest["generation"], json!(2));
    world.feeds.close().await;
}

/// Property: a change of a feed whose client went away is carried out to its end, and the feed runs on.
#[tokio::test(flavor = "multi_thread")]
async fn control_whose_client_gave_up_ends_whole() {
    let (scene, world) = scene().await;
    world.create("one", world.spec("one", "/", start())).await;
    for _ in 0..50 {
        // Dropped after its first poll, wherever it was then.
        let rewind = world.control("one", FeedAction::Rewind(start()));
        let _given_up = tokio::time::timeout(std::time::Duration::ZERO, rewind).await;
    }
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    world.caught_up("one").await;
    check("one", &Mirror::of(&world.segments("one")), &*world.store, "/").await;
    world.feeds.close().await;
}

/// Property: a segment that somebody removes before it has its name takes no event with it.
#[tokio::test(flavor = "multi_thread")]
async fn removed_unfinished_segments_take_no_event() {
    let (scene, world) = scene().await;
    world.create("one", world.spec("one", "/", start())).await;
    let mut removed = 0;
    for number in 0..200u8 {
        scene.file(DirId::ROOT, &format!("f{number}"), number, &[1]).await;
        let before = removed;
        // It is there for a moment only, which a busy machine may delay.
        for _ in 0..1000 {
            for entry in std::fs::read_dir(world.segments("one")).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|end| end == "unfinished") {
                    removed += u32::from(std::fs::remove_file(path).is_ok());
                }
            }
            if removed > before {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    world.caught_up("one").await;
    assert!(removed > 0, "no segment was there to be removed");
    assert!(world.feed("one").await.failures > 0);
    check("one", &Mirror::of(&world.segments("one")), &*world.store, "/").await;
    world.feeds.close().await;
}

/// Property: a storage element that is added later has its name in events, also in rows of copies.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_storage_elements_added_later_are_shown() {
    let (scene, world) = scene().await;
    world.create("one", world.spec("one", "/", start())).await;
    world.caught_up("one").await;
    scene.applied(set(se(77, exacat_model::SeStatus::Online))).await;
    scene.file(DirId::ROOT, "a", 1, &[77]).await;
    world.caught_up("one").await;
    world.control("one", FeedAction::Rewind(FeedStart::Copy)).await.unwrap();
    world.caught_up("one").await;
    let of_file: Vec<Value> =
        events(&world, "one").into_iter().filter(|event| event["lfn"] == json!("/a")).collect();
    assert_eq!(of_file.len(), 2, "the creation and the row of the copy");
    for event in of_file {
        let names: Vec<&String> = event["after"]["replicas"].as_object().unwrap().keys().collect();
        assert!(names.iter().all(|name| !name.starts_with('#')), "{names:?}");
    }
    world.feeds.close().await;
}

/// Property: a directory of segments that is full lets the feed wait, and it goes on when the consumer has
/// removed some.
#[tokio::test(flavor = "multi_thread")]
async fn full_directory_lets_the_feed_wait() {
    let (scene, world) = scene().await;
    let spec = FeedSpec { room: 1, ..world.spec("full", "/", start()) };
    world.create("full", spec).await;
    world.caught_up("full").await;
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    eventually_so("it waits", async || {
        world.feed("full").await.reason.contains("remove those that were read")
    })
    .await;
    assert_eq!(world.feed("full").await.state, FeedState::Running);
    for entry in std::fs::read_dir(world.segments("full")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "ndjson") {
            std::fs::remove_file(path).unwrap();
        }
    }
    world.caught_up("full").await;
    assert_eq!(events(&world, "full").last().unwrap()["lfn"], json!("/a"));
    world.feeds.close().await;
}

/// Property: descriptions that cannot work are refused, each with the remedy, and leave nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn bad_descriptions_are_refused() {
    let (_scene, world) = scene().await;
    let good = world.spec("one", "/", start());
    world.create("one", good.clone()).await;
    std::fs::create_dir(world.place.path().join("store")).unwrap();
    let inside = format!("dir:{}/store/x", world.place.path().display());
    let other = world.spec("two", "/", start());
    for (spec, kind, text) in [
        (good.clone(), ErrorKind::Exists, "choose another directory"),
        (FeedSpec { sink: "ftp://x".to_owned(), ..other.clone() }, ErrorKind::Invalid, "give dir:/PATH"),
        (FeedSpec { sink: inside, ..other.clone() }, ErrorKind::Invalid, "choose another"),
        (
            FeedSpec { sink: "dir:/no/such/place".to_owned(), ..other.clone() },
            ErrorKind::NotFound,
            "make it first",
        ),
        (FeedSpec { kinds: vec!["x".to_owned()], ..other.clone() }, ErrorKind::Invalid, "choose among"),
        (FeedSpec { days: 0, ..other.clone() }, ErrorKind::Invalid, "at least 1"),
        (FeedSpec { secret: Some("/x".to_owned()), ..other.clone() }, ErrorKind::Invalid, "neither a secret"),
        (
            FeedSpec { start: FeedStart::After(Revision(999).into()), ..other.clone() },
            ErrorKind::Invalid,
            "not there yet",
        ),
    ] {
        let error = world.feeds.create(name("two"), spec, String::new()).await.unwrap_err();
        assert!(error.kind == kind && error.message.contains(text), "{error:?}");
    }
    let taken = world.feeds.create(name("one"), other, String::new()).await.unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Exists);
    assert_eq!(world.feeds.list(None).await.unwrap().len(), 1);
    let unknown = world.control("two", FeedAction::Pause).await.unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::NotFound);
    world.feeds.close().await;
}

/// Property: a damaged file of a feed is shown as a failed feed with the remedy, stays as it is, and can be
/// dropped.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_file_is_shown_and_dropped() {
    let (_scene, mut world) = scene().await;
    world.create("one", world.spec("one", "/", start())).await;
    world.feeds.close().await;
    let mut bytes = std::fs::read(world.file("one")).unwrap();
    bytes[40] ^= 1;
    std::fs::write(world.file("one"), &bytes).unwrap();
    world.reopen().await;
    let shown = world.feed("one").await;
    assert_eq!(shown.state, FeedState::Failed);
    assert!(shown.reason.contains("one.feed") && shown.reason.contains("make it again"), "{}", shown.reason);
    assert_eq!(world.control("one", FeedAction::Resume).await.unwrap_err().kind, ErrorKind::Corrupt);
    assert_eq!(std::fs::read(world.file("one")).unwrap(), bytes);
    world.control("one", FeedAction::Drop).await.unwrap();
    assert!(!world.file("one").exists() && world.feeds.list(None).await.unwrap().is_empty());
    world.feeds.close().await;
}

/// An embedded store that keeps as little history as possible.
fn forgetful(place: &std::path::Path, clock: &TestClock) -> Arc<EmbeddedStore> {
    let settings = EmbeddedSettings {
        segment_bytes: 16 << 10,
        memtable_rows: 100,
        history: HistoryKept::Bytes(32 << 10),
        ..EmbeddedSettings::at(place)
    };
    EmbeddedStore::open(settings, clock.shared()).unwrap()
}

/// Makes files until the store no longer keeps the change after a revision.
async fn outlive(store: &dyn Store, after: Revision, round: u64) {
    for step in 0..100_000u64 {
        let directory = create(new_directory(at(DirId::ROOT, &format!("d{round}-{step}"))));
        let many: Vec<Mutation> = vec![directory];
        store.apply(request(round * 1_000_000 + step + 1, exacat_model::UserId::ADMIN, many)).await.unwrap();
        if step % 500 == 0 && store.changes(Revision(0), 1).await.unwrap().oldest.0 > after.0 + 1 {
            return;
        }
    }
    panic!("the history keeps everything");
}

/// Property: a feed whose changes the history no longer keeps is lost: it says so to its owner and its
/// sink, holds nothing back, refuses to go on, and names the oldest revision. Rewound to a copy, its mirror
/// is exact. With `copy_when_lost` another one gets there by itself.
#[tokio::test(flavor = "multi_thread")]
async fn feed_behind_the_history_is_lost_and_starts_again_from_a_copy() {
    let clock = TestClock::new();
    let place = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = forgetful(&place.path().join("data"), &clock);
    let world = World::new(Arc::clone(&store), &clock);
    world.create("stops", world.spec("stops", "/", start())).await;
    let again = FeedSpec { copy_when_lost: true, ..world.spec("copies", "/", start()) };
    world.create("copies", again).await;
    outlive_paused(&world, &*store).await;
    world.control("stops", FeedAction::Resume).await.unwrap();
    world.control("copies", FeedAction::Resume).await.unwrap();
    let lost = world.in_state("stops", FeedState::Lost).await;
    let oldest = store.changes(Revision(0), 1).await.unwrap().oldest.0;
    assert!(lost.reason.contains("are not kept any more: rewind"), "{}", lost.reason);
    let told = events(&world, "stops").into_iter().find(|event| event["op"] == json!("lost")).unwrap();
    assert!(told["oldest"].as_u64().unwrap() > 1);
    let refused = world.control("stops", FeedAction::Resume).await.unwrap_err();
    assert!(refused.message.contains("rewind"), "{refused}");
    let refused = world.control("stops", FeedAction::Rewind(start())).await.unwrap_err();
    assert!(
        refused.kind == ErrorKind::NotFound && refused.message.contains(&oldest.to_string()),
        "{refused}"
    );
    world.control("stops", FeedAction::Rewind(FeedStart::Copy)).await.unwrap();
    for feed in ["stops", "copies"] {
        world.caught_up(feed).await;
        check(feed, &Mirror::of(&world.segments(feed)), &*store, "/").await;
    }
    soon("the feeds stop", world.feeds.close()).await;
    store.close().await.unwrap();
}

async fn outlive_paused(world: &World, store: &dyn Store) {
    for feed in ["stops", "copies"] {
        world.caught_up(feed).await;
        world.control(feed, FeedAction::Pause).await.unwrap();
    }
    let after = world.feed("stops").await.revision;
    outlive(store, after, 1).await;
}

/// Property: the position of a feed survives an end of the process at any time, and a server that opens
/// the feeds again goes on from it without gap.
#[tokio::test(flavor = "multi_thread")]
async fn feeds_go_on_after_each_of_many_restarts() {
    let (scene, mut world) = scene().await;
    world.create("one", world.spec("one", "/", start())).await;
    for number in 0..30 {
        scene.file(DirId::ROOT, &format!("f{number}"), number, &[1]).await;
        if number % 3 == 0 {
            world.reopen().await;
        }
    }
    world.caught_up("one").await;
    let mirror = Mirror::of(&world.segments("one"));
    check("one", &mirror, &*world.store, "/").await;
    world.feeds.close().await;
    // Without its manifest and with a cursor of the past the feed repeats, and skips nothing.
    let feeds = open(&world.store, &world.clock, world.place.path(), pace());
    feeds.close().await;
}

/// Puts another timeline into the file of a feed.
fn replace_timeline(path: &std::path::Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("crc "));
    let changed: String = lines
        .map(|line| match line.starts_with("timeline ") {
            true => format!("timeline {}\n", "ab".repeat(16)),
            false => format!("{line}\n"),
        })
        .collect();
    let sum = crc32fast::hash(changed.as_bytes());
    std::fs::write(path, format!("{changed}crc {sum:08x}\n")).unwrap();
}

/// Property: after a restore the sink is told where the histories part, in the next generation, and a copy
/// makes the mirror right again.
#[tokio::test(flavor = "multi_thread")]
async fn parted_timeline_is_told_and_a_copy_follows() {
    let (scene, mut world) = scene().await;
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    world.create("one", world.spec("one", "/", start())).await;
    world.caught_up("one").await;
    let before = world.feed("one").await;
    world.feeds.close().await;
    replace_timeline(&world.file("one"));
    scene.file(DirId::ROOT, "b", 2, &[1]).await;
    world.reopen().await;
    eventually_so("the feed is on the new timeline", async || {
        world.feed("one").await.timeline == before.timeline
    })
    .await;
    world.caught_up("one").await;
    let told = events(&world, "one").into_iter().find(|event| event["op"] == json!("parted")).unwrap();
    assert_eq!(told["old_timeline"], json!("ab".repeat(16)));
    assert_eq!(told["undone_up_to"], json!(before.revision.0));
    let mirror = Mirror::of(&world.segments("one"));
    assert!(mirror.ops.contains_key("copied"), "{:?}", mirror.ops);
    check("one", &mirror, &*world.store, "/").await;
    world.feeds.close().await;
}

/// Property: a feed that does not run shows how old the first change is that its sink lacks, and after a
/// close nothing starts one again.
#[tokio::test(flavor = "multi_thread")]
async fn paused_feed_shows_its_delay_and_closed_feeds_stay_closed() {
    let (scene, world) = scene().await;
    world.create("one", world.spec("one", "/", start())).await;
    world.caught_up("one").await;
    world.control("one", FeedAction::Pause).await.unwrap();
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    scene.clock.turn(5000);
    let shown = world.feed("one").await;
    assert_eq!((shown.lag_changes, shown.lag_ms), (1, 5000));
    world.feeds.close().await;
    let refused = world.control("one", FeedAction::Resume).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
}

/// Property: a directory whose manifest was lost begins the next generation, so that no consumer takes a new
/// segment for one that it has read.
#[tokio::test(flavor = "multi_thread")]
async fn lost_manifest_begins_the_next_generation() {
    let (scene, mut world) = scene().await;
    world.create("one", world.spec("one", "/", start())).await;
    world.caught_up("one").await;
    world.feeds.close().await;
    for entry in std::fs::read_dir(world.segments("one")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    world.reopen().await;
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    world.caught_up("one").await;
    let last = events(&world, "one").pop().unwrap();
    assert_eq!(last["lfn"], json!("/a"));
    let names: Vec<_> =
        std::fs::read_dir(world.segments("one")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert!(names.iter().any(|name| name.to_str().unwrap().starts_with("000002-")), "{names:?}");
    world.feeds.close().await;
}
