//! Traces from outside: the spans that a collector gets, and a collector that gets none.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[allow(dead_code, reason = "shared with the tests of the native protocol")]
#[path = "../native/client.rs"]
mod client;
#[allow(dead_code, reason = "shared with the tests of HTTP")]
#[path = "../http/web.rs"]
mod web;
#[allow(dead_code, reason = "shared with the tests of the native protocol")]
#[path = "../native/world.rs"]
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_model::Operation;
use exacat_server::TraceSettings;
use exacat_testkit::waiting::{eventually_so, found};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use client::Client;
use web::Web;
use world::{World, lfn};

/// A collector of spans.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Value>>>,
    /// True if it answers with an error.
    is_full: Arc<AtomicBool>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let collector = Collector { url, spans: Arc::default(), is_full: Arc::default() };
        let (spans, is_full) = (Arc::clone(&collector.spans), Arc::clone(&collector.is_full));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                let (head, body) = loop {
                    let mut part = [0; 16 << 10];
                    let read = stream.read(&mut part).await.unwrap();
                    assert!(read > 0, "a whole request");
                    request.extend_from_slice(&part[..read]);
                    let text = String::from_utf8(request.clone()).unwrap();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head.to_ascii_lowercase();
                    let length =
                        length.split_once("content-length: ").unwrap().1.split("\r\n").next().unwrap();
                    if body.len() >= length.parse().unwrap() {
                        break (head.to_owned(), body.to_owned());
                    }
                };
                assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
                assert!(head.contains("content-type: application/json"), "{head}");
                let is_full = is_full.load(Ordering::SeqCst);
                if !is_full {
                    let document: Value = serde_json::from_str(&body).unwrap();
                    let resource = &document["resourceSpans"][0];
                    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "exacat");
                    let more = resource["scopeSpans"][0]["spans"].as_array().unwrap();
                    spans.lock().extend(more.iter().cloned());
                }
                let status = if is_full { "503 Service Unavailable" } else { "200 OK" };
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        collector
    }

    async fn world(&self, ratio: f64) -> World {
        let traces = TraceSettings { url: self.url.clone(), ratio };
        World::with(|settings| settings.traces = Some(traces)).await
    }

    /// Waits for a span that fits.
    async fn span(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        found(what, async || self.spans.lock().iter().find(|span| fits(span)).cloned()).await
    }
}

/// Returns an attribute of a span.
fn attribute(span: &Value, name: &str) -> Option<String> {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|attribute| attribute["key"] == name)?;
    found["value"].as_object().unwrap().values().next().unwrap().as_str().map(str::to_owned)
}

fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

/// Property: each sampled request is one span with its number, user, client and outcome; its states add up to
/// its duration.
#[tokio::test(flavor = "multi_thread")]
async fn request_is_a_span_with_its_states() {
    let collector = Collector::start().await;
    let world = collector.world(1.0).await;
    world.files("/d", 1).await;
    let mut web = Web::user(&world, "alice").await;
    assert_eq!(web.get("/api/v1/children/nowhere").await.status, 404);
    let failed = collector.span("a failed request", |span| span["status"]["code"] == 2).await;
    assert_eq!((&failed["name"], &failed["kind"]), (&"list".into(), &2.into()), "{failed}");
    assert_eq!(attribute(&failed, "enduser.id").as_deref(), Some("alice"));
    assert_eq!(attribute(&failed, "client.address").as_deref(), Some("127.0.0.1"));
    assert_eq!(attribute(&failed, "exacat.outcome").as_deref(), Some("not-found"), "{failed}");
    assert!(attribute(&failed, "exacat.request").unwrap().parse::<u64>().unwrap() > 0);
    assert!(failed.get("parentSpanId").is_none());

    let mut client = Client::admin(&world).await;
    client.call(Operation::Mkdir { lfns: vec![lfn("/e")], parents: false, mode: None }).await.unwrap();
    client.call(Operation::Stat { lfns: vec![lfn("/e")], follow: false }).await.unwrap();
    for name in ["mkdir", "stat"] {
        let is_it =
            |span: &Value| span["name"] == name && attribute(span, "enduser.id").as_deref() == Some("admin");
        let span = collector.span(name, is_it).await;
        assert_eq!(attribute(&span, "exacat.outcome").as_deref(), Some("ok"), "{span}");
        let states = span["attributes"].as_array().unwrap().iter();
        let states = states.filter(|one| one["key"].as_str().unwrap().starts_with("exacat.state."));
        let sum: u64 = states.map(|one| number(&one["value"]["intValue"])).sum();
        assert_eq!(sum, number(&span["endTimeUnixNano"]) - number(&span["startTimeUnixNano"]), "{span}");
    }
}

/// Property: a client that names a trace decides whether its request is a part of it, whatever the ratio; a
/// malformed name is as none.
#[tokio::test(flavor = "multi_thread")]
async fn trace_of_the_client_goes_on() {
    let collector = Collector::start().await;
    let world = collector.world(0.0).await;
    let mut web = Web::admin(&world).await;
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let named = |flags: &str| format!("00-{trace}-{parent}-{flags}");
    for (target, header) in [
        ("/api/v1/entries/", named("00")),
        ("/api/v1/entries/", "00-x".into()),
        ("/api/v1/usage/", named("01")),
    ] {
        assert_eq!(web.ask("GET", target, &[("traceparent", &header)], "").await.status, 200);
    }
    let span = collector.span("the sampled request", |_| true).await;
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&trace.into(), &parent.into()), "{span}");
    assert_ne!(span["spanId"], parent);
    assert_eq!(span["name"], "du");
    world.server.shutdown();
    world.server.wait().await.unwrap();
    let others = collector.spans.lock().iter().filter(|span| span["name"] != "du").count();
    assert_eq!(others, 0, "{:?}", collector.spans.lock());
}

/// Property: a collector that is down or refuses changes no answer, and costs counted spans.
#[tokio::test(flavor = "multi_thread")]
async fn collector_that_is_down_changes_nothing() {
    let collector = Collector::start().await;
    collector.is_full.store(true, Ordering::SeqCst);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for url in [format!("http://{closed}/v1/traces"), collector.url.clone()] {
        let traces = TraceSettings { url, ratio: 1.0 };
        let world = World::with(|settings| settings.traces = Some(traces)).await;
        let mut web = Web::admin(&world).await;
        assert_eq!(web.get("/api/v1/entries/").await.status, 200);
        eventually_so("a lost span", async || world.figure("server", "trace_spans_lost").await > 0).await;
        assert_eq!(web.get("/api/v1/entries/").await.status, 200);
        world.server.shutdown();
        world.server.wait().await.unwrap();
    }
    collector.is_full.store(false, Ordering::SeqCst);
    let world = collector.world(1.0).await;
    assert_eq!(Web::admin(&world).await.get("/api/v1/entries/").await.status, 200);
    // The last spans are sent while the server stops.
    world.server.shutdown();
    world.server.wait().await.unwrap();
    assert!(collector.spans.lock().iter().any(|span| span["name"] == "stat"));
}
