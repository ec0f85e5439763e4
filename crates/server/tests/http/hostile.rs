//! Hostile clients, and more of them than there is room for.

use std::time::Duration;

use exacat_testkit::waiting::eventually_so;

use crate::web::Web;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn health_answers_when_no_connection_is_left_for_others() {
    let world = World::with_limits(|limits| {
        limits.connections_unauthenticated_max = 2;
        limits.metrics_connections_max = 4;
    })
    .await;
    let _holding = [Web::anonymous(&world).await, Web::anonymous(&world).await];
    tokio::time::timeout(crate::web::PATIENCE, async {
        loop {
            let mut web = Web::anonymous(&world).await;
            let refused = web.get("/api/v1/whoami").await;
            if refused.status == 503 {
                assert_eq!((refused.kind().as_str(), refused.header("retry-after")), ("busy", "1"));
                assert!(web.is_closed().await);
                return;
            }
        }
    })
    .await
    .unwrap();
    let mut web = Web::anonymous(&world).await;
    assert_eq!(web.get("/healthz").await.status, 200);
    assert_eq!(web.get("/metrics").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_outside_of_its_networks_is_refused() {
    let world = World::with(|settings| settings.http.as_mut().unwrap().plain.clear()).await;
    let mut web = Web::anonymous(&world).await;
    let refused = web.get("/healthz").await;
    assert_eq!((refused.status, refused.text()), (400, "this is HTTPS: use an https:// URL"));
    assert!(web.is_closed().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_and_harm_nobody() {
    let world = World::new().await;
    let many_headers = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(200));
    let long_header = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(100 << 10));
    let long_path = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(100 << 10));
    for bad in [
        "nonsense\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /api/v1/find HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET / HTTP/1.1\r\n: x\r\n\r\n",
        &many_headers,
        &long_header,
        &long_path,
    ] {
        let mut web = Web::anonymous(&world).await;
        let _ = tokio::io::AsyncWriteExt::write_all(&mut web.stream, bad.as_bytes()).await;
        // Some are answered, others just closed.
        assert!(web.is_closed().await);
        let said = String::from_utf8_lossy(&web.rest);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}: {bad:.40}");
    }
    assert_eq!(Web::admin(&world).await.get("/api/v1/whoami").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_beyond_the_limit_is_refused() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    let body = format!("{{\"lfn\": \"/{}\"}}", "x".repeat(9 << 20));
    web.begin("POST", "/api/v1/find", &[("Content-Length", &body.len().to_string())]).await;
    let _ = tokio::io::AsyncWriteExt::write_all(&mut web.stream, body.as_bytes()).await;
    let refused = web.answer(false).await;
    assert_eq!((refused.status, refused.kind().as_str()), (413, "limit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_stops_sending_a_body_is_given_up() {
    let world = World::with_limits(|limits| limits.output_stall = Duration::from_millis(200)).await;
    let mut web = Web::admin(&world).await;
    web.begin("POST", "/api/v1/find", &[("Content-Length", "100")]).await;
    web.send(b"{").await;
    assert_eq!(web.answer(false).await.kind(), "unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_read_is_disconnected_and_others_go_on() {
    let world = World::with_limits(|limits| limits.output_stall = Duration::from_millis(500)).await;
    world.files("/d", 20_000).await;
    let mut lazy = Web::admin(&world).await;
    for _ in 0..50 {
        lazy.begin("GET", "/api/v1/children/d", &[("Accept", "application/x-ndjson")]).await;
    }
    let mut other = Web::admin(&world).await;
    eventually_so("the room of unread answers to be given back", async || {
        assert_eq!(other.get("/api/v1/whoami").await.status, 200);
        world.figure("server", "held_unread-bytes").await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::new().await;
    world.files("/d", 20).await;
    let mut web = Web::admin(&world).await;
    for number in 0..20 {
        web.begin("GET", &format!("/api/v1/entries/d/f{number:06}"), &[]).await;
    }
    for number in 0..20 {
        assert_eq!(web.answer(false).await.json()["lfn"], format!("/d/f{number:06}"));
    }
}
