//! Webhooks: order and completeness through lost answers, waits, refusals and silence.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{DirId, FeedAction, FeedSpec, FeedStart, FeedState, Revision};
use exacat_testkit::scene::{at, create, guid, new_file};
use exacat_testkit::waiting::{eventually, eventually_so, soon};
use exacat_testkit::{MemoryFactory, Scene};
use ring::hmac;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::hook::{Got, Hook, Reply};
use crate::mirror::{Mirror, check};
use crate::world::World;

async fn scene() -> (Scene, World) {
    let scene = Scene::new(&MemoryFactory).await;
    let world = World::new(scene.store(), &scene.clock);
    (scene, world)
}

fn spec(world: &World, hook: &Hook) -> FeedSpec {
    let start = FeedStart::After(Revision(0).into());
    FeedSpec { sink: hook.url.clone(), allow_private: true, ..world.spec("hook", "/", start) }
}

fn all(got: &[Got]) -> Vec<Value> {
    got.iter().flat_map(Got::events).collect()
}

/// Property: batches are CloudEvents 1.0, signed, in order and without gap through lost answers, errors and
/// waits that the receiver asks for; and each event has an id that only its repetitions share.
#[tokio::test(flavor = "multi_thread")]
async fn batches_are_complete_and_in_order_through_faults() {
    let (scene, world) = scene().await;
    let replies = [
        Reply::Lost,
        Reply::Status(500),
        Reply::Status(204),
        Reply::After(503, 0),
        Reply::Lost,
        Reply::After(429, 0),
        Reply::Status(302),
    ];
    let hook = Hook::start(&replies).await;
    let secret = world.place.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let spec = FeedSpec { secret: Some(secret.to_str().unwrap().to_owned()), ..spec(&world, &hook) };
    world.create("hook", spec).await;
    for round in 0..10u8 {
        let files = (0..10).map(|file| {
            let number = round * 10 + file;
            create(new_file(at(DirId::ROOT, &format!("f{number}")), guid(number), Some(1), &[1]))
        });
        scene.apply(files.collect()).await;
        if round % 3 == 0 {
            world.caught_up("hook").await;
        }
    }
    world.caught_up("hook").await;
    assert!(world.feed("hook").await.failures >= 5);
    let got = hook.got();
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
    for one in &got {
        assert_eq!(one.header("content-type"), Some("application/cloudevents-batch+json"));
        assert!(one.head.starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{}", one.head);
        let signature = one.header("x-exacat-signature").unwrap();
        let (time, hex) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
        let digest: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let signed = [time.as_bytes(), b".", &one.body].concat();
        hmac::verify(&key, &signed, &digest).unwrap();
    }
    // Each first sending is in order and without gap; repetitions have the ids of before.
    let (mut ids, mut mirror, mut last) = (BTreeSet::new(), Mirror::default(), 0);
    for event in all(&got) {
        for field in ["specversion", "id", "source", "type", "time", "datacontenttype"] {
            assert!(event[field].is_string(), "{field} of {event}");
        }
        let data = &event["data"];
        mirror.take(1, data);
        if ids.insert(event["id"].as_str().unwrap().to_owned())
            && data["op"] != json!("mark")
            && data["op"] != json!("r")
        {
            let revision = data["revision"].as_u64().unwrap();
            assert_eq!(revision, last + 1);
            last = revision;
        }
    }
    assert_eq!(last, world.head().await.0);
    assert!(mirror.repeated > 0, "lost answers made events come again");
    check("the mirror", &mirror, &*world.store, "/").await;
    world.feeds.close().await;
}

/// Property: a receiver that answers 410 stops the feed for good, until an operator resumes it.
#[tokio::test(flavor = "multi_thread")]
async fn receiver_that_is_gone_stops_the_feed() {
    let (scene, world) = scene().await;
    let hook = Hook::start(&[Reply::Status(410)]).await;
    world.create("hook", spec(&world, &hook)).await;
    let failed = world.in_state("hook", FeedState::Failed).await;
    assert!(failed.reason.contains("410"), "{}", failed.reason);
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    assert_eq!(hook.got().len(), 1);
    world.control("hook", FeedAction::Resume).await.unwrap();
    world.caught_up("hook").await;
    world.feeds.close().await;
}

/// Property: a receiver that never answers delays neither the stop of the server nor a control.
#[tokio::test(flavor = "multi_thread")]
async fn silent_receiver_delays_neither_stop_nor_control() {
    let (_scene, world) = scene().await;
    let hook = Hook::start(&[Reply::Silence; 100]).await;
    world.create("hook", spec(&world, &hook)).await;
    eventually("a request", || !hook.got().is_empty()).await;
    let began = Instant::now();
    soon("a pause", world.control("hook", FeedAction::Pause)).await.unwrap();
    world.control("hook", FeedAction::Resume).await.unwrap();
    eventually("another request", || hook.got().len() > 1).await;
    soon("the stop", world.feeds.close()).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Property: an address of the machine or the site is refused unless it is permitted, also behind a name.
#[tokio::test(flavor = "multi_thread")]
async fn private_address_needs_permission() {
    let (_scene, world) = scene().await;
    let hook = Hook::start(&[]).await;
    let port = hook.url.split(':').nth(2).unwrap().split('/').next().unwrap().to_owned();
    for (name, host) in [("one", "127.0.0.1"), ("two", "localhost")] {
        let sink = format!("http://{host}:{port}/");
        world.create(name, FeedSpec { sink, allow_private: false, ..spec(&world, &hook) }).await;
        eventually_so("it is refused", async || {
            world.feed(name).await.reason.contains("make the feed again with --allow-private")
        })
        .await;
    }
    assert!(hook.got().is_empty());
    world.feeds.close().await;
}

/// Returns the TLS of a receiver with a new certificate for `localhost`, and that of a client that trusts it.
fn secured() -> (TlsAcceptor, TlsConnector) {
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
}

/// Property: a receiver over TLS gets events if its certificate is trusted. Another one gets none: the
/// feed says why, and waits.
#[tokio::test(flavor = "multi_thread")]
async fn receiver_over_tls_must_have_a_trusted_certificate() {
    let scene = Scene::new(&MemoryFactory).await;
    let ((acceptor, connector), (foreign, _)) = (secured(), secured());
    let world = World::trusting(scene.store(), &scene.clock, connector);
    let (hook, other) = (Hook::start_secured(acceptor).await, Hook::start_secured(foreign).await);
    world.create("hook", spec(&world, &hook)).await;
    world.create("other", spec(&world, &other)).await;
    scene.file(DirId::ROOT, "a", 1, &[1]).await;
    world.caught_up("hook").await;
    assert!(all(&hook.got()).iter().any(|event| event["data"]["lfn"] == json!("/a")));
    eventually_so("the other one is refused", async || {
        world.feed("other").await.reason.contains("certificate")
    })
    .await;
    assert_eq!(world.feed("other").await.state, FeedState::Running);
    assert!(other.got().is_empty());
    world.feeds.close().await;
}
