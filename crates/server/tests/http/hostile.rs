//! Hostile clients, and more of them than there is room for.

use std::time::Duration;

use exacat_testkit::waiting::{eventually_so, found};

use crate::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PING, RST_STREAM, SETTINGS, frame, header,
};
use crate::web::Web;
use crate::world::World;

const LINES: (&str, &str) = ("Accept", "application/x-ndjson");

/// Waits until unread answers hold so many bytes; returns their number.
async fn is_held(world: &World, bytes: u64) -> u64 {
    found("unread answers to hold room", async || {
        let held = world.figure("server", "held_unread-bytes").await;
        (held >= bytes).then_some(held)
    })
    .await
}

/// Waits until no answer that nobody reads holds room, while another client is served.
async fn is_given_back(world: &World) {
    let mut other = Web::admin(world).await;
    eventually_so("the room of unread answers to be given back", async || {
        assert_eq!(other.get("/api/v1/whoami").await.status, 200);
        world.figure("server", "held_unread-bytes").await == 0
    })
    .await;
}

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
    // Clients that hold the places of monitoring and ask for nothing keep nobody out.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(Web::anonymous(&world).await);
        let mut web = Web::anonymous(&world).await;
        assert_eq!(web.get("/healthz").await.status, 200);
        assert_eq!(web.get("/metrics").await.status, 200);
    }
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
    world.files("/d", 3000).await;
    let mut lazy = Web::admin(&world).await;
    for _ in 0..50 {
        lazy.begin("GET", "/api/v1/children/d", &[LINES]).await;
    }
    is_held(&world, 1).await;
    is_given_back(&world).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_wait_until_answers_before_are_read() {
    const REQUESTS: usize = 40;
    let world = World::new().await;
    world.files("/d", 5000).await;
    let lists = || world.hooks.lists.load(std::sync::atomic::Ordering::SeqCst);
    let (before, mut lazy) = (lists(), Web::admin(&world).await);
    for _ in 0..REQUESTS {
        lazy.begin("GET", "/api/v1/children/d?limit=5000", &[]).await;
    }
    let unread = is_held(&world, 1 << 20).await;
    // Many requests of another client are served while these wait.
    let mut other = Web::admin(&world).await;
    for _ in 0..200 {
        assert_eq!(other.get("/api/v1/whoami").await.status, 200);
    }
    let made = lists() - before;
    for _ in 0..REQUESTS {
        assert_eq!(lazy.answer(false).await.json()["items"].as_array().unwrap().len(), 5000);
    }
    let all = lists() - before;
    assert!(unread < 16 << 20 && made < all / 2, "{unread} bytes, {made} of {all} lists before one was read");
    is_given_back(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_small_while_unread_answers_use_up_the_room() {
    let world = World::with_limits(|limits| {
        limits.unread_bytes_max = 1 << 20;
        limits.small_part_items_max = 7;
    })
    .await;
    world.files("/d", 2000).await;
    let mut lazy = Vec::new();
    for _ in 0..8 {
        let mut web = Web::lazy(&world).await;
        for _ in 0..20 {
            web.begin("GET", "/api/v1/children/d?limit=1000", &[]).await;
        }
        lazy.push(web);
    }
    is_held(&world, 1 << 19).await;
    let mut web = Web::admin(&world).await;
    tokio::time::timeout(crate::web::PATIENCE, async {
        loop {
            let page = web.get("/api/v1/children/d?limit=1000").await.json();
            assert!(page["next"].is_string());
            match page["items"].as_array().unwrap().len() {
                7 => return,
                length => assert_eq!(length, 1000),
            }
        }
    })
    .await
    .expect("a small page");
    drop(lazy);
    is_given_back(&world).await;
}

/// Returns the requests in the lane of heavy reads.
async fn heavy(world: &World) -> u64 {
    world.figure("server", "lane_running_heavy").await + world.figure("server", "lane_waiting_heavy").await
}

/// Begins listings of `/d` by clients that read nothing, half of them as lines. Returns once all are in
/// the lane of heavy reads.
async fn lazy_listers(world: &World, clients: u64, limit: u32) -> Vec<Web> {
    let mut lazy = Vec::new();
    for number in 0..clients {
        let mut web = Web::lazy(world).await;
        let headers = if number % 2 == 0 { [LINES].as_slice() } else { &[] };
        web.begin("GET", &format!("/api/v1/children/d?limit={limit}"), headers).await;
        lazy.push(web);
    }
    eventually_so("all pages to be asked for", async || heavy(world).await == clients).await;
    lazy
}

/// Room is taken before a page is made, so pages that are made at once fit as well.
#[tokio::test(flavor = "multi_thread")]
async fn unread_pages_of_many_clients_stay_within_the_bound() {
    const UNREAD_MAX: u64 = 8 << 20;
    const CLIENTS: u64 = 16;
    let world = World::with_limits(|limits| limits.unread_bytes_max = UNREAD_MAX as usize).await;
    world.files("/d", 10_000).await;
    let held = async |name: &str| world.figure("server", name).await;
    world.hooks.hold_lists.send_replace(true);
    let mut lazy = lazy_listers(&world, CLIENTS, 10_000).await;
    world.hooks.hold_lists.send_replace(false);
    eventually_so("all first pages to be made", async || heavy(&world).await == 0).await;
    for _ in 0..50 {
        let unread = held("held_unread-bytes").await;
        assert!(unread <= UNREAD_MAX, "{unread} bytes of answers that nobody reads");
    }
    // Whoever reads gets all of it.
    for web in &mut lazy {
        let answer = web.answer(false).await;
        assert_eq!(answer.status, 200);
        let items = match answer.header("content-type") {
            "application/json" => answer.json()["items"].as_array().unwrap().len(),
            _ => answer.lines().len(),
        };
        assert!(items > 0);
    }
    is_given_back(&world).await;
}

/// Pages turn out to have many more bytes than their rows let expect. Their real bytes count, too.
#[tokio::test(flavor = "multi_thread")]
async fn unread_pages_of_large_entries_stay_within_the_bound() {
    const UNREAD_MAX: u64 = 24 << 20;
    const CLIENTS: u64 = 12;
    let world = World::with_limits(|limits| limits.unread_bytes_max = UNREAD_MAX as usize).await;
    let files = world.large_files("/d", 24).await;
    let held = async |name: &str| world.figure("server", name).await;
    world.hooks.hold_lists.send_replace(true);
    let mut lazy = lazy_listers(&world, CLIENTS, 1000).await;
    world.hooks.hold_lists.send_replace(false);
    is_held(&world, 8 << 20).await;
    for _ in 0..50 {
        let unread = held("held_unread-bytes").await;
        // The text of a page is longer than its entries.
        assert!(unread <= UNREAD_MAX + (2 << 20), "{unread} bytes of answers that nobody reads");
    }
    for web in &mut lazy {
        let answer = web.answer(false).await;
        assert_eq!(answer.status, 200);
        match answer.header("content-type") {
            "application/json" => assert!(!answer.json()["items"].as_array().unwrap().is_empty()),
            _ => assert_eq!(answer.lines().len(), files.len()),
        }
    }
    is_given_back(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_bulk_lines_are_bounded_over_all_connections() {
    let world = World::with_limits(|limits| limits.request_bytes_max = 1 << 20).await;
    let kind = ("Content-Type", "application/x-ndjson");
    let long = format!("{{\"lfn\": \"/{}", "x".repeat(700 << 10));
    let mut webs = [Web::admin(&world).await, Web::admin(&world).await];
    for web in &mut webs {
        web.begin("POST", "/api/v1/entries", &[kind, ("Content-Length", "1500000")]).await;
        web.send(long.as_bytes()).await;
        assert_eq!(web.head().await.status, 200);
    }
    // One of them does not fit.
    let [one, two] = &mut webs;
    let refused = tokio::select! { chunk = one.chunk() => chunk, chunk = two.chunk() => chunk };
    let refused: serde_json::Value = serde_json::from_slice(&refused.unwrap()).unwrap();
    assert_eq!(refused["error"]["kind"], "busy", "{refused}");
    drop(webs);
    eventually_so("the bytes to be given back", async || {
        world.figure("server", "held_request-bytes").await < 1 << 16
    })
    .await;
}

/// A client that reads only after it has sent everything gets the refusal of its body.
#[tokio::test(flavor = "multi_thread")]
async fn client_that_still_sends_a_refused_body_receives_the_answer() {
    const BODY_BYTES: usize = 24 << 20;
    let world = World::new().await;
    world.directory("/d").await;
    let mut web = Web::admin(&world).await;
    web.begin("PUT", "/dav/d/f", &[("Content-Length", &BODY_BYTES.to_string())]).await;
    let part = vec![b'x'; 1 << 20];
    for _ in 0..BODY_BYTES / part.len() {
        web.send(&part).await;
    }
    let refused = web.answer(false).await;
    assert_eq!((refused.status, refused.header("connection")), (413, "close"));
    assert!(web.is_closed().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_expects_to_continue_gets_a_refusal_at_once() {
    let world = World::new().await;
    let mut web = Web { token: Some("exa_nonsense".to_owned()), ..Web::anonymous(&world).await };
    web.begin("POST", "/api/v1/find", &[("Content-Length", "100"), ("Expect", "100-continue")]).await;
    assert_eq!(web.answer(false).await.status, 401);
    let mut web = Web::admin(&world).await;
    web.begin("POST", "/api/v1/find", &[("Content-Length", "12"), ("Expect", "100-continue")]).await;
    assert_eq!(web.head().await.status, 100);
    web.send(b"{\"lfn\": \"/\"}").await;
    assert_eq!(web.answer(false).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_comes_too_slowly_is_given_up() {
    let world = World::with_limits(|limits| limits.output_stall = Duration::from_millis(500)).await;
    let mut web = Web::admin(&world).await;
    web.begin("POST", "/api/v1/find", &[("Transfer-Encoding", "chunked")]).await;
    let began = std::time::Instant::now();
    while began.elapsed() < crate::web::PATIENCE {
        if tokio::io::AsyncWriteExt::write_all(&mut web.stream, b"1\r\n \r\n").await.is_err() {
            break;
        }
        if let Ok(readable) = tokio::time::timeout(Duration::from_millis(100), web.stream.readable()).await {
            readable.unwrap();
            assert_eq!(web.answer(false).await.kind(), "unavailable");
            return;
        }
    }
    panic!("a byte in 100 ms is waited for");
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_request_is_answered() {
    let world = World::new().await;
    world.files("/d", 5000).await;
    let mut http2 = Http2::admin(&world, 1 << 30).await;
    http2.get(1, "/api/v1/whoami", "*/*").await;
    let me: serde_json::Value = serde_json::from_slice(&http2.body(1).await).unwrap();
    assert_eq!(me["user"], "admin");
    // The window of the connection is as small as it is at first.
    http2.send(&frame(8, 0, 0, &(1u32 << 30).to_be_bytes())).await.unwrap();
    http2.get(3, "/api/v1/children/d", LINES.1).await;
    let lines = http2.body(3).await;
    assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http2_connection_is_closed() {
    let world = World::with_limits(|limits| limits.idle_time = Duration::from_secs(2)).await;
    let mut http2 = Http2::admin(&world, 1 << 20).await;
    http2.get(1, "/api/v1/whoami", "*/*").await;
    http2.body(1).await;
    assert!(http2.is_closed().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_client_that_keeps_its_windows_closed_is_disconnected() {
    let world = World::with_limits(|limits| limits.output_stall = Duration::from_millis(500)).await;
    world.files("/d", 3000).await;
    let mut http2 = Http2::admin(&world, 0).await;
    for number in 0..50 {
        http2.get(2 * number + 1, "/api/v1/children/d", LINES.1).await;
    }
    http2.get(101, "/api/v1/children/d?limit=10000", "*/*").await;
    assert!(http2.is_closed().await);
    is_given_back(&world).await;
}

/// Returns the memory of this process, and of the server in it, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Runs a test of this program in a process of its own: the memory of this one is that of all tests in it.
fn passes_alone(test: &str) {
    let program = std::env::current_exe().unwrap();
    let run = std::process::Command::new(program).args(["--exact", test, "--ignored"]).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[test]
fn floods_of_http2_frames_are_bounded_and_harm_nobody() {
    passes_alone("hostile::floods_of_http2_frames_alone");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures memory: floods_of_http2_frames_are_bounded_and_harm_nobody runs it in a process of its own"]
async fn floods_of_http2_frames_alone() {
    const MEMORY_MAX: usize = 64 << 20;
    let world = World::with_limits(|limits| limits.output_stall = Duration::from_secs(2)).await;
    world.files("/d", 1).await;
    let big = vec![0; 16 << 10];
    let many: Vec<u8> = (0..2000).flat_map(|number| header(&format!("x-{number}"), "0123456789")).collect();
    // The name, how many of them, and whether the server must end the connection before.
    for (name, count, must_end) in [
        ("resets", 10_000, false),
        ("continuations", 10_000, true),
        ("long headers", 300, false),
        ("settings", 10_000, true),
        ("pings", 10_000, true),
        ("empty data", 10_000, false),
    ] {
        let mut http2 = Http2::admin(&world, 1 << 20).await;
        let head = http2.head("/api/v1/whoami", "*/*");
        let before = memory();
        let flood = async {
            for number in 0..count {
                let stream = 2 * number + 1;
                let bytes = match (name, number) {
                    ("resets", _) => [
                        frame(HEADERS, END_HEADERS | END_STREAM, stream, &head),
                        frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
                    ]
                    .concat(),
                    ("continuations", 0) => frame(HEADERS, END_STREAM, 1, &head),
                    ("continuations", _) => frame(CONTINUATION, 0, 1, &big),
                    ("long headers", _) => {
                        let mut bytes = frame(HEADERS, END_STREAM, stream, &head);
                        for part in many.chunks(16 << 10) {
                            bytes.extend(frame(CONTINUATION, 0, stream, part));
                        }
                        bytes.extend(frame(CONTINUATION, END_HEADERS, stream, &[]));
                        bytes
                    }
                    ("settings", _) => frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]).repeat(100),
                    ("pings", _) => frame(PING, 0, 0, &[0; 8]).repeat(100),
                    (_, 0) => frame(HEADERS, END_HEADERS, 1, &head),
                    (_, _) => frame(DATA, 0, 1, &[]).repeat(100),
                };
                if http2.send(&bytes).await.is_err() {
                    return true;
                }
            }
            false
        };
        let ended = tokio::time::timeout(crate::web::PATIENCE, flood).await;
        let ended = ended.unwrap_or_else(|_| panic!("a flood of {name} is neither taken nor ended"));
        let more = memory().saturating_sub(before);
        assert!(ended || !must_end, "the connection stays open in a flood of {name}");
        assert!(more < MEMORY_MAX, "{more} bytes of memory for a flood of {name}");
        assert_eq!(Web::admin(&world).await.get("/api/v1/whoami").await.status, 200);
    }
    is_given_back(&world).await;
}

/// Returns a name as a URL has it.
fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_any_characters_stay_what_they_are() {
    let world = World::new().await;
    world.directory("/d").await;
    let mut web = Web::admin(&world).await;
    let long = "x".repeat(255);
    let names = [
        "a\nb",
        "a\tb",
        "a\r\nSet-Cookie: x",
        "\u{1b}[31m",
        "\u{1}",
        "<script>&\"'<b>",
        "]]>",
        "\u{202e}gnp",
        "...",
        " a ",
        "é",
        "%2e%2e",
        "a%2Fb",
        "a?b#c",
        "a+b",
        "\u{10ffff}",
        &long,
    ];
    for name in names {
        let url = encoded(name);
        let made = web.json("PUT", &format!("/api/v1/files/d/{url}"), serde_json::json!({"size": 1})).await;
        assert_eq!(made.status, 200, "{name:?}: {}", made.text());
        let entry = web.get(&format!("/api/v1/entries/d/{url}")).await.json();
        assert_eq!(entry["lfn"], format!("/d/{name}"));
        let found = web.ask("PROPFIND", &format!("/dav/d/{url}"), &[("Depth", "0")], "").await;
        assert_eq!(found.status, 207, "{name:?}");
        let head = web.ask("HEAD", &format!("/dav/d/{url}"), &[], "").await;
        assert_eq!((head.status, head.headers.contains_key("set-cookie")), (200, false), "{name:?}");
    }
    let listed = web.ask("GET", "/api/v1/children/d", &[LINES], "").await.lines();
    assert_eq!(listed.len(), names.len());
    let rows = web.ask("PROPFIND", "/dav/d", &[("Depth", "1")], "").await;
    assert_eq!(rows.text().matches("<D:href>").count(), names.len() + 1);
    assert!(
        !rows.text().contains("<script>")
            && !rows.text().contains('\u{1b}')
            && !rows.text().contains('\u{1}')
    );
    let too_long = "x".repeat(256);
    for bad in ["%FF", "%C3", "%00", "a%00b", ".", "..", "%2E%2E", "a/../b", "%", "%4", "%zz", &too_long] {
        for target in [format!("/api/v1/entries/d/{bad}"), format!("/dav/d/{bad}")] {
            let refused = web.get(&target).await;
            assert!(matches!(refused.status, 400 | 413), "{target}: {}", refused.status);
        }
    }
}
