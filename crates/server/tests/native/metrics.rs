//! Metrics and health over HTTP.

use std::net::SocketAddr;

use exacat_model::Operation;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Client, soon};
use crate::world::{World, lfn};

/// Sends a request; returns status and body.
pub(crate) async fn http(world: &World, method: &str, path: &str) -> (u16, String) {
    http_at(world.server.addresses.http.unwrap(), method, path).await
}

/// Sends a request to a server at this address.
pub(crate) async fn http_at(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let (status, _, body) = http_with(address, method, path, "").await;
    (status, body)
}

/// Sends a request with further lines of its head; returns status, head and body.
async fn http_with(address: SocketAddr, method: &str, path: &str, lines: &str) -> (u16, String, String) {
    soon("an HTTP answer", async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (status, head.to_owned(), body.to_owned())
    })
    .await
}

fn value(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_what_was_asked_and_how_it_went() {
    let world = World::new().await;
    world.files("/d", 3).await;
    let mut client = Client::admin(&world).await;
    for _ in 0..5 {
        client.call(Operation::Stat { lfns: vec![lfn("/d"), lfn("/missing")], follow: true }).await.unwrap();
    }
    client.call(Operation::Move { from: lfn("/missing"), to: lfn("/x") }).await.unwrap_err();
    let (status, metrics) = http(&world, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(!metrics.contains("# EOF"), "the text format of Prometheus, not OpenMetrics");
    assert!(
        !metrics.contains("missing") && !metrics.contains("admin"),
        "no name of a file, no user:\n{metrics}"
    );
    for (name, expected) in [
        ("exacat_requests_total{operation=\"stat\",outcome=\"ok\"}", 5.0),
        ("exacat_request_items_total{operation=\"stat\"}", 10.0),
        ("exacat_requests_total{operation=\"move\",outcome=\"not-found\"}", 1.0),
        ("exacat_request_seconds_count{operation=\"stat\"}", 5.0),
        ("exacat_held{bound=\"connections-local\"}", 1.0),
        ("exacat_serving", 1.0),
        ("exacat_lane_running{lane=\"heavy\"}", 0.0),
        ("exacat_worker_errors_total{worker=\"trash-purge\"}", 0.0),
    ] {
        assert_eq!(value(&metrics, name), Some(expected), "{name} in\n{metrics}");
    }
    for above_zero in ["exacat_received_bytes_total", "exacat_sent_bytes_total", "exacat_store_entries"] {
        assert!(value(&metrics, above_zero).unwrap() > 0.0, "{above_zero}");
    }
}

/// A reader that asks for OpenMetrics gets it, and the request of an exemplar is a number of the server.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_in_the_format_that_the_reader_accepts() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    client.call(Operation::Mkdir { lfns: vec![lfn("/d")], parents: false, mode: None }).await.unwrap();
    let address = world.server.addresses.http.unwrap();
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n";
    let (status, head, metrics) = http_with(address, "GET", "/metrics", accept).await;
    assert!(status == 200 && head.contains(open), "{head}");
    assert!(metrics.ends_with("# EOF\n") && metrics.contains("# UNIT exacat_request_seconds seconds\n"));
    let exemplar =
        metrics.lines().find(|line| line.contains("operation=\"mkdir\"") && line.contains(" # {request="));
    let request = exemplar.and_then(|line| line.split('"').nth_back(1)).expect(&metrics);
    assert!(request.parse::<u64>().is_ok(), "{exemplar:?}");
    let (status, head, metrics) = http_with(address, "GET", "/metrics", "Accept: text/plain\r\n").await;
    assert!(status == 200 && head.contains("text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(!metrics.contains("# EOF") && !metrics.contains("# {"));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_told() {
    let world = World::new().await;
    assert_eq!(http(&world, "GET", "/livez").await, (200, "alive\n".to_owned()));
    assert_eq!(http(&world, "GET", "/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(http(&world, "HEAD", "/readyz").await, (200, String::new()));
    assert_eq!(http(&world, "GET", "/nothing").await.0, 404);
    assert_eq!(http(&world, "POST", "/livez").await.0, 405);
    world.server.catalogue().store().close().await.unwrap();
    let (status, body) = http(&world, "GET", "/readyz").await;
    assert_eq!((status, body.as_str()), (503, "not ready: the store refuses\n"));
    assert_eq!(http(&world, "GET", "/livez").await.0, 200);
    assert_eq!(http(&world, "GET", "/metrics").await.0, 200, "metrics without a store");
}
