//! Requests of every wrong form: each gets an error or ends its connection, and others go on.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{LONG, OPERATOR, Rig, raw, request};

/// Property: an unknown path, method, field or id gets a problem document with the right status.
#[tokio::test]
async fn wrong_requests_get_problem_documents() {
    let rig = Rig::start().await;
    for (method, path, token, status) in [
        ("GET", "/", "", 404),
        ("GET", "/api/v1/writer/", "", 404),
        ("GET", "/api/v1/writer/status/x", "", 404),
        ("GET", "/api/v1/writer/../../metrics", "", 404),
        ("POST", "/metrics", "", 405),
        ("DELETE", "/api/v1/writer/status", "", 405),
        ("GET", "/api/v1/writer/drain", OPERATOR, 405),
        ("GET", "/api/v1/writer/status?x=1", "", 400),
        ("GET", "/api/v1/writer/files?limit=x", OPERATOR, 400),
        ("GET", "/api/v1/writer/files?after=zz", OPERATOR, 400),
        ("GET", "/api/v1/writer/files?limit=1&limit=2", OPERATOR, 400),
        ("GET", "/api/v1/writer/files?after=%ff", OPERATOR, 400),
        ("GET", "/api/v1/writer/files", "", 401),
        ("GET", "/api/v1/writer/files", "a b", 401),
    ] {
        let answer = raw(rig.http(), &request(method, path, token)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {answer}");
        assert!(answer.contains("content-type: application/problem+json"), "{method} {path}: {answer}");
    }
    let long = "t".repeat(5000);
    let answer = raw(rig.http(), &request("GET", "/api/v1/writer/files", &long)).await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains(&long), "a token is never shown");
}

/// Property: headers and bodies beyond their limits are refused, and the service goes on.
#[tokio::test]
async fn large_headers_and_bodies_are_refused() {
    let rig = Rig::start().await;
    let head = "POST /api/v1/writer/drain HTTP/1.1\r\nHost: x\r\n";
    let huge = format!("{head}X: {}\r\n\r\n", "x".repeat(64 << 10));
    let answer = raw(rig.http(), huge.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    let many = format!("{head}{}\r\n", "A: b\r\n".repeat(100));
    let answer = raw(rig.http(), many.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    let body = format!("{head}Content-Length: {}\r\n\r\n{}", 65 << 10, "x".repeat(65 << 10));
    let answer = raw(rig.http(), body.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    let garbage = raw(rig.http(), b"\x00\x01\x02\r\n\r\n").await;
    assert!(garbage.is_empty() || garbage.starts_with("HTTP/1.1 400"), "{garbage}");
    assert_eq!(rig.remote("").status().await.unwrap().state, "up");
}

/// Property: connections that say nothing, or little by little, take no place from others on the machine
/// for longer than the time for headers.
#[tokio::test]
async fn slow_clients_are_cut_off() {
    let rig = Rig::start().await;
    let mut slow = Vec::new();
    for at in 0..exacat_writer_service::limits::HTTP_CONNECTIONS_PER_ADDRESS_MAX {
        let mut stream = TcpStream::connect(rig.http()).await.unwrap();
        if at % 2 == 0 {
            stream.write_all(b"GET /livez HTTP/1.1\r\nHo").await.unwrap();
        }
        slow.push(stream);
    }
    // Every slow connection ends by itself, and then others are served again.
    for stream in &mut slow {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(LONG, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "a slow connection stays");
    }
    assert_eq!(rig.remote("").status().await.unwrap().state, "up");
}
