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
    soon("an HTTP answer", async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let body = text.split_once("\r\n\r\n").unwrap().1.to_owned();
        (status, body)
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
    for (name, expected) in [
        ("exacat_requests_total{operation=\"stat\",outcome=\"ok\"}", 5.0),
        ("exacat_request_items_total{operation=\"stat\"}", 10.0),
        ("exacat_requests_total{operation=\"move\",outcome=\"not-found\"}", 1.0),
        ("exacat_request_seconds_count{operation=\"stat\"}", 5.0),
        ("exacat_held{bound=\"connections-local\"}", 1.0),
        ("exacat_serving", 1.0),
        ("exacat_lane_running{lane=\"heavy\"}", 0.0),
        ("exacat_worker_errors{worker=\"trash-purge\"}", 0.0),
    ] {
        assert_eq!(value(&metrics, name), Some(expected), "{name} in\n{metrics}");
    }
    for above_zero in ["exacat_received_bytes_total", "exacat_sent_bytes_total", "exacat_store_entries"] {
        assert!(value(&metrics, above_zero).unwrap() > 0.0, "{above_zero}");
    }
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
