//! Topics of Kafka: complete and in order through kills of the broker and lost answers, and the state of the
//! catalogue where they are compacted.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use exacat_model::{DirId, EntryId, ErrorKind, FeedAction, FeedSpec, FeedStart, FeedState, Lfn, Revision};
use exacat_store::{Clock as _, ResolutionEnd, Store};
use exacat_testkit::random::{Generator, View, model};
use exacat_testkit::waiting::{eventually_so, soon};
use exacat_testkit::{MemoryFactory, Scene, TestClock};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::broker::{Broker, Message, Proxy};
use crate::mirror::{Mirror, check};
use crate::mirrors::{has_renamed, some_directory};
use crate::world::{World, name};

fn spec(world: &World, sink: &str, under: &str, start: FeedStart) -> FeedSpec {
    FeedSpec { sink: sink.to_owned(), allow_private: true, ..world.spec("any", under, start) }
}

fn op(event: &Value) -> &str {
    event["op"].as_str().unwrap()
}

fn entry_of(event: &Value) -> &str {
    event["entry"].as_str().unwrap()
}

fn is_change(event: &Value) -> bool {
    ["c", "u", "m", "d", "x"].contains(&op(event))
}

/// Returns the changes among events, as revisions with kinds of events.
fn changes<'a>(events: impl IntoIterator<Item = &'a Value>) -> BTreeSet<(u64, String)> {
    let events = events.into_iter().filter(|event| is_change(event));
    events.map(|event| (event["revision"].as_u64().unwrap(), op(event).to_owned())).collect()
}

/// Returns all events in a directory of segments.
fn events_in(directory: &Path) -> Vec<Value> {
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let segments = paths.filter(|path| path.extension().is_some_and(|end| end == "ndjson"));
    let texts = segments.map(|path| std::fs::read_to_string(path).unwrap());
    texts
        .flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Checks the records of a topic of everything, apart from what is in them.
fn check_records(what: &str, messages: &[Message]) {
    // Keys of the records that must follow.
    let mut wanted: Vec<String> = Vec::new();
    for message in messages {
        let event = match &message.event {
            Some(event) if op(event) != "rows" => event,
            other => {
                assert_eq!(wanted.pop().as_ref(), Some(&message.key), "{what}: follows its event");
                let is_rows = other.as_ref().is_some_and(|event| message.key.ends_with(entry_of(event)));
                assert!(is_rows || other.is_none(), "{what}: {message:?}");
                continue;
            }
        };
        assert_eq!(wanted.pop(), None, "{what}: not before {message:?}");
        match event["entry"].as_str().filter(|_| op(event) != "x") {
            Some(entry) => assert_eq!(message.key, entry, "{what}"),
            None => assert_eq!(message.key, op(event), "{what}"),
        }
        assert_eq!(message.header("ce_type"), format!("exacat.{}", op(event)));
        assert!(message.header("ce_id").contains(&format!(".{}.", event["revision"])), "{message:?}");
        if is_change(event) {
            assert_eq!(message.header("ce_time"), event["time"].as_str().unwrap());
            assert!(message.time_ms >= TestClock::START.0 as i64);
        }
        let rows = message.key.starts_with("directory:").then(|| format!("rows:{}", message.key));
        match op(event) {
            "d" => wanted.extend(rows.into_iter().chain([message.key.clone()])),
            "r" => wanted.extend(rows),
            _ => {}
        }
    }
    assert_eq!(wanted.pop(), None, "{what}: the last one");
    // The first sending of each change is after those of all earlier ones.
    let mut seen = BTreeSet::new();
    for event in messages.iter().filter_map(|message| message.event.as_ref()).filter(|event| is_change(event))
    {
        let revision = event["revision"].as_u64().unwrap();
        if seen.insert(revision) {
            assert_eq!(seen.last(), Some(&revision), "{what}: revision {revision} comes late");
        }
    }
}

/// Returns the entries that a compacted topic shows as live, by the rules of docs/reference/feed.md: their
/// paths below `under` and identities.
fn live_of(messages: &[Message], under: &str) -> BTreeSet<(String, String)> {
    let last: BTreeMap<&str, &Message> =
        messages.iter().map(|message| (message.key.as_str(), message)).collect();
    let offset = |key: &str| last.get(key).map_or(-1, |message| message.offset);
    let copy = if offset("copied") > offset("copy") { offset("copy") } else { -1 };
    let begin = offset("all").max(copy);
    // Rows after the beginning, without entries that were in their directory before it came into sight.
    let rows: BTreeMap<&str, &Value> = last
        .iter()
        .filter_map(|(key, message)| Some((*key, message.offset, message.event.as_ref()?)))
        .filter(|(key, at, event)| event["entry"] == **key && *at > begin)
        .filter(|(key, at, event)| {
            let parent = event["parent"].as_str().unwrap();
            parent == *key || *at > offset(&format!("rows:{parent}"))
        })
        .map(|(key, _, event)| (key, event))
        .collect();
    fn path(rows: &BTreeMap<&str, &Value>, id: &str, under: &str) -> Option<String> {
        let row = rows.get(id)?;
        if row["lfn"] == under {
            return Some(String::new());
        }
        let above = path(rows, row["parent"].as_str()?, under)?;
        Some(format!("{above}/{}", row["name"].as_str()?))
    }
    rows.keys().filter_map(|id| Some((path(&rows, id, under)?, (*id).to_owned()))).collect()
}

/// Returns the same of a store.
async fn live_in(store: &dyn Store, under: &str) -> BTreeSet<(String, String)> {
    let shown = |id: EntryId| match id {
        EntryId::Directory(id) => format!("directory:{}", id.0),
        EntryId::Object(guid) => guid.to_string(),
    };
    let found = store.resolve(&[Lfn::parse(under).unwrap()]).await.unwrap().remove(0);
    let ResolutionEnd::Found(entry) = found.end else { return BTreeSet::new() };
    let mut live = BTreeSet::from([(String::new(), shown(entry.id()))]);
    let mut waiting: Vec<(DirId, String)> =
        entry.directory().map(|id| (id, String::new())).into_iter().collect();
    while let Some((directory, path)) = waiting.pop() {
        let page = store.list(directory, None, 10_000).await.unwrap().unwrap();
        assert!(!page.more);
        for entry in page.items {
            let path = format!("{path}/{}", entry.at.name.as_str());
            live.insert((path.clone(), shown(entry.id())));
            waiting.extend(entry.directory().map(|id| (id, path)));
        }
    }
    live
}

/// Waits until feeds have delivered everything.
async fn all_caught_up(world: &World, feeds: &[&str]) {
    for feed in feeds {
        world.caught_up(feed).await;
    }
}

/// Returns a world whose store has the beginning of a random history.
async fn beginning(clock: &TestClock, generator: &mut Generator) -> World {
    let store: Arc<dyn Store> = model(clock);
    for request in generator.beginning() {
        store.apply(request).await.unwrap();
    }
    World::new(store, clock)
}

/// Settings of topics that are compacted as soon as Kafka permits.
const COMPACTED: [&str; 5] = [
    "cleanup.policy=compact",
    "min.cleanable.dirty.ratio=0.01",
    "segment.ms=200",
    "delete.retention.ms=100",
    "retention.ms=-1",
];

/// Delivers a random history to topics, with faults in its middle.
async fn run(broker: &Broker, proxy: &Proxy, seed: u64) {
    let what = format!("seed {seed}");
    let (clock, mut generator) = (TestClock::new(), Generator::new(seed));
    let mut world = beginning(&clock, &mut generator).await;
    let store = Arc::clone(&world.store);
    let start = FeedStart::After(Revision(0).into());
    world.create("reference", world.spec("reference", "/", start)).await;
    let everything = broker.topic(&format!("everything.{seed}"), 1, &["retention.ms=-1"]);
    world.create("everything", spec(&world, &broker.faulty(&everything), "/", start)).await;
    let whole = broker.topic(&format!("whole.{seed}"), 1, &COMPACTED);
    world.create("whole", spec(&world, &broker.faulty(&whole), "/", FeedStart::Copy)).await;
    let below = broker.topic(&format!("below.{seed}"), 1, &COMPACTED);
    let mut under = None;
    let mut saved = None;
    proxy.set_faults(true);
    for step in 0..400usize {
        clock.turn(50);
        let view = View::of(&*store).await;
        store.apply(generator.request(&view, clock.now())).await.unwrap();
        if under.is_none()
            && step >= 20
            && let Some(lfn) = some_directory(&*store, &view, step).await
        {
            world.create("below", spec(&world, &broker.plain(&below), lfn.as_str(), FeedStart::Copy)).await;
            under = Some(lfn.to_string());
        }
        match step {
            60 => saved = Some(std::fs::read(world.file("everything")).unwrap()),
            // The file of the cursor loses its last moves, as after a crash.
            100 => {
                soon("the feeds stop", world.feeds.close()).await;
                std::fs::write(world.file("everything"), saved.take().unwrap()).unwrap();
                world.reopen().await;
            }
            150 => broker.kill(),
            200 => broker.up(),
            250 => world.control("whole", FeedAction::Rewind(FeedStart::Copy)).await.unwrap(),
            _ => {}
        }
        // So that faults meet few changes each.
        if step % 10 == 9 && !(150..200).contains(&step) {
            world.caught_up("everything").await;
        }
    }
    proxy.set_faults(false);
    let under = under.unwrap();
    all_caught_up(&world, &["reference", "everything", "whole", "below"]).await;
    world.feeds.close().await;

    let messages = broker.read(&everything).await;
    check_records(&what, &messages);
    let events = || messages.iter().filter_map(|message| message.event.as_ref());
    let wanted = changes(&events_in(&world.segments("reference")));
    assert_eq!(changes(events()), wanted, "{what}");
    let mut mirror = Mirror::default();
    events().filter(|event| op(event) != "rows").for_each(|event| mirror.take(1, event));
    assert!(mirror.repeated > 0, "{what}: the cursor lost moves");
    if !has_renamed(&*store).await {
        check(&what, &mirror, &*store, "/").await;
    }
    for (topic, under) in [(&whole, "/"), (&below, under.as_str())] {
        let messages = broker.read(topic).await;
        let end = messages.last().map_or(0, |last| last.offset + 1);
        assert_eq!(live_of(&messages, under), live_in(&*store, under).await, "{what}, {topic} of {under}");
        println!("{what}: {topic} of {under} has {} of {end} records", messages.len());
    }
    println!("{what}: {} records, {} repeated events", messages.len(), mirror.repeated);
}

/// Property: a topic has every event, the first sending of each in order, and a mirror made of it equals the
/// catalogue: through torn requests, lost answers, a broker that is killed, and a cursor that lost its last
/// moves. The last records of a compacted topic are the live entries at their places.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker of Kafka: make test-kafka"]
async fn topics_of_random_histories_are_complete_through_faults() {
    let broker = Broker::of_environment();
    let proxy = Proxy::start(&broker).await;
    for seed in 0..3 * exacat_testkit::rounds() {
        run(&broker, &proxy, seed).await;
    }
    let (torn, lost) = proxy.faults();
    println!("{torn} torn requests, {lost} lost answers");
    assert!(torn > 0 && lost > 0);
}

/// Property: a topic that is missing, has two partitions, or takes only short messages makes the feed wait
/// with the remedy. After the remedy the feed goes on by itself.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker of Kafka: make test-kafka"]
async fn feed_waits_for_a_topic_that_fits() {
    let broker = Broker::of_environment();
    let scene = Scene::new(&MemoryFactory).await;
    let world = World::new(scene.store(), &scene.clock);
    let start = FeedStart::After(Revision(0).into());
    let missing = broker.name("missing");
    let wide = broker.topic("wide", 2, &[]);
    let short = broker.topic("short", 1, &["max.message.bytes=100"]);
    for (feed, topic) in [("missing", &missing), ("wide", &wide), ("short", &short)] {
        world.create(feed, spec(&world, &broker.plain(topic), "/", start)).await;
    }
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    for (feed, remedy) in [
        ("missing", format!("kafka-topics.sh --create --topic {missing} --partitions 1")),
        ("wide", "--partitions 1".to_owned()),
        ("short", "max.message.bytes to 1048576".to_owned()),
    ] {
        eventually_so(&format!("{feed} says {remedy}"), async || {
            world.feed(feed).await.reason.contains(&remedy)
        })
        .await;
        assert_eq!(world.feed(feed).await.state, FeedState::Running);
    }
    broker.topic("missing", 1, &[]);
    world.caught_up("missing").await;
    world.feeds.close().await;
    let messages = broker.read(&missing).await;
    check_records("missing", &messages);
    let events = messages.iter().filter_map(|message| message.event.as_ref());
    assert!(changes(events).iter().any(|(revision, _)| *revision == 1));
}

/// Returns a client's TLS that trusts the certificates in a file, or none.
fn trusting(file: Option<&Path>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        roots.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

fn login(world: &World, file: &str, text: &str) -> Option<String> {
    let path = world.place.path().join(file);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Some(path.to_str().unwrap().to_owned())
}

/// Property: a broker over TLS takes events from a user with the right password, by each mechanism. A wrong
/// password and a certificate of an unknown authority are refused, and the feed says so.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker of Kafka: make test-kafka"]
async fn broker_over_tls_takes_a_login() {
    let broker = Broker::of_environment();
    let scene = Scene::new(&MemoryFactory).await;
    let world = World::trusting(scene.store(), &scene.clock, trusting(Some(&broker.authority())));
    let start = FeedStart::After(Revision(0).into());
    let logins = [
        ("scram", broker.login("scram-sha-512")),
        ("plain", broker.login("plain")),
        ("wrong", "scram-sha-512:exacat:0123456789abcdef\n".to_owned()),
    ];
    let mut topics = BTreeMap::new();
    for (feed, text) in &logins {
        let topic = broker.topic(&format!("secure.{feed}"), 1, &[]);
        let secret = login(&world, feed, text);
        world.create(feed, FeedSpec { secret, ..spec(&world, &broker.secure(&topic), "/", start) }).await;
        topics.insert(*feed, topic);
    }
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    all_caught_up(&world, &["scram", "plain"]).await;
    for feed in ["scram", "plain"] {
        let messages = broker.read(&topics[feed]).await;
        check_records(feed, &messages);
        assert!(!messages.is_empty(), "{feed}");
    }
    eventually_so("the wrong password is refused", async || {
        world.feed("wrong").await.reason.contains("Sasl")
    })
    .await;
    println!("{}", world.feed("wrong").await.reason);
    assert!(broker.read(&topics["wrong"]).await.is_empty());
    let strange = World::trusting(scene.store(), &scene.clock, trusting(None));
    let secret = login(&strange, "login", &logins[0].1);
    strange
        .create(
            "strange",
            FeedSpec { secret, ..spec(&strange, &broker.secure(&topics["wrong"]), "/", start) },
        )
        .await;
    eventually_so("the certificate is refused", async || {
        strange.feed("strange").await.reason.contains("certificate")
    })
    .await;
    println!("{}", strange.feed("strange").await.reason);
    world.feeds.close().await;
    strange.feeds.close().await;
}

/// Property: two feeds of a server never write to one topic, and a file without a login is refused at once.
#[tokio::test(flavor = "multi_thread")]
async fn topic_of_another_feed_and_a_bad_login_are_refused() {
    let scene = Scene::new(&MemoryFactory).await;
    let world = World::new(scene.store(), &scene.clock);
    let create = async |feed: &str, sink: &str, secret: Option<String>| {
        let spec = FeedSpec { secret, ..spec(&world, sink, "/", FeedStart::Now) };
        world.feeds.create(name(feed), spec, "admin".to_owned()).await
    };
    create("one", "kafka://127.0.0.1:1/topic", None).await.unwrap();
    let error = create("two", "kafka://127.0.0.1:2,localhost/topic", None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Exists);
    assert!(error.message.contains("choose another topic"), "{error}");
    create("two", "kafka://127.0.0.1:1/topic2", None).await.unwrap();
    let secret = login(&world, "login", "plain:exacat:0123456789abcdef");
    let error = create("three", "kafka://127.0.0.1:1/topic3", secret).await.unwrap_err();
    assert!(error.message.contains("kafkas://"), "{error}");
    world.feeds.close().await;
}
