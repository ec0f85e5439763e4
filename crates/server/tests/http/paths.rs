//! Paths in URLs, names that are awkward, and numbers at their edges.

use serde_json::json;

use crate::web::Web;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn path_is_decoded_by_components_and_once() {
    let world = World::new().await;
    world.files("/d", 1).await;
    let mut web = Web::admin(&world).await;
    for (path, status) in [
        ("d/f000000", 200),
        ("d/%66000000", 200),
        ("d//f000000", 200),
        ("d/", 200),
        ("", 200),
        ("d/f000000/", 409),
        ("d%2Ff000000", 400),
        ("d%2ff000000", 400),
        ("d/../d/f000000", 400),
        ("d/%2e%2e/d", 400),
        ("d/%2E/f000000", 400),
        ("d/%252e%252e/d", 404),
        ("%", 400),
        ("%f", 400),
        ("d%00", 400),
        ("%ff%fe", 400),
        ("%ed%a0%80", 400),
        ("%c0%af", 400),
    ] {
        let answer = web.get(&format!("/api/v1/entries/{path}")).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn awkward_name_is_kept_and_stays_one_line_of_json() {
    let world = World::new().await;
    world.directory("/d").await;
    let mut web = Web::admin(&world).await;
    let long = "x".repeat(255);
    let names = [
        "new\nline",
        "tab\tand \u{1b}[31m",
        "<script>alert(1)",
        "\u{202e}gnp.exe",
        "...",
        "a b+c%20",
        "?#&=;",
        "\"quoted\"\\",
        "\u{2028}",
        long.as_str(),
    ];
    for name in names {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let made = web.json("PUT", &format!("/api/v1/files/d/{encoded}"), json!({"size": 1})).await;
        assert_eq!(made.status, 200, "{name:?}: {}", made.text());
        let found = web.get(&format!("/api/v1/entries/d/{encoded}")).await.json();
        assert_eq!(found["lfn"], format!("/d/{name}"));
    }
    let listed = web.ask("GET", "/api/v1/children/d", &[("Accept", "application/x-ndjson")], "").await;
    assert_eq!(listed.lines().len(), names.len());
    let too_long = web.json("PUT", &format!("/api/v1/files/d/{long}x"), json!({})).await;
    assert_eq!((too_long.status, too_long.kind().as_str()), (413, "limit"));
}

/// Numbers beyond a range are refused by name, and never wrap.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_at_their_edges_are_kept_or_refused() {
    let world = World::new().await;
    world.directory("/d").await;
    let mut web = Web::admin(&world).await;
    for (index, (size, status)) in [
        ("0", 200),
        ("1152921504606846976", 200),
        ("1152921504606846977", 413),
        ("9223372036854775807", 413),
        ("9223372036854775808", 413),
        ("18446744073709551615", 413),
        ("18446744073709551616", 400),
        ("-1", 400),
        ("1.5", 400),
        ("1e3", 400),
        ("NaN", 400),
        ("\"1\"", 400),
        ("null", 200),
    ]
    .into_iter()
    .enumerate()
    {
        let body = format!("{{\"size\": {size}}}");
        let headers = [("Content-Type", "application/json")];
        let target = format!("/api/v1/files/d/f{index}");
        let answer = web.ask("PUT", &target, &headers, &body).await;
        assert_eq!(answer.status, status, "{size}: {}", answer.text());
        if status == 200 && size != "null" {
            let text = web.get(&format!("/api/v1/entries/d/f{index}")).await.text().to_owned();
            assert!(text.contains(&format!("\"size\":{size},")), "{size}: {text}");
        }
    }
    for (time, status) in [
        ("1970-01-01T00:00:00Z", 200),
        ("1969-12-31T23:59:59Z", 400),
        ("2106-02-07T06:28:16Z", 200),
        ("9999-12-30T00:00:00Z", 200),
        ("10000-01-01T00:00:00Z", 400),
        ("2026-02-30T00:00:00Z", 400),
    ] {
        let answer = web.json("PATCH", "/api/v1/entries/d/f0", json!({"modified": time})).await;
        assert_eq!(answer.status, status, "{time}: {}", answer.text());
    }
    for (target, status) in [
        ("/api/v1/changes?after=18446744073709551615", 200..=409),
        ("/api/v1/changes?after=18446744073709551616", 400..=400),
        ("/api/v1/changes?after=-1", 400..=400),
        ("/api/v1/children/d?limit=4294967296", 400..=400),
        ("/api/v1/children/d?limit=-1", 400..=400),
        ("/api/v1/entries/d?follow=yes", 400..=400),
    ] {
        let answer = web.get(target).await;
        assert!(status.contains(&answer.status), "{target}: {}", answer.text());
    }
    // Empty lists change nothing.
    assert_eq!(web.json("PATCH", "/api/v1/entries/d/f0", json!({})).await.status, 400);
    let empty = web.ask("POST", "/api/v1/files", &[("Content-Type", "application/x-ndjson")], "\n\n").await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
}

/// Bodies of wrong forms are refused, and the connection goes on.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_body_is_refused_and_the_connection_goes_on() {
    let world = World::new().await;
    world.directory("/d").await;
    let mut web = Web::admin(&world).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{{\"tags\": {{\"a\": {deep}}}}}");
    for body in [
        "",
        "{",
        "[]",
        "null",
        "1",
        "\"x\"",
        "{\"size\": 1, \"size\": 2}",
        "\u{feff}{}",
        "{}{}",
        &deep,
        &nested,
    ] {
        let headers = [("Content-Type", "application/json")];
        let answer = web.ask("PUT", "/api/v1/files/d/f", &headers, body).await;
        assert_eq!((answer.status, answer.kind().as_str()), (400, "invalid"), "{body:.40}");
    }
    assert_eq!(web.get("/api/v1/entries/d/f").await.status, 404, "nothing was made");
    let compressed = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
    let answer = web.ask("PUT", "/api/v1/files/d/f", &compressed, "{}").await;
    assert_eq!(answer.status, 415, "a body that is compressed is not read as if it were not");
}
