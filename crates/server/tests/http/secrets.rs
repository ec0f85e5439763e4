//! Names that a client may not see: answers, and the work on them, are the same whether they exist.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::web::{Answer, Web};
use crate::world::World;

/// Method, target, headers and body of a request, each with NAME for the name.
type Asked = (&'static str, &'static str, Vec<(&'static str, &'static str)>, String);

/// Returns what a client learns from an answer, with `name` left out.
fn learned(answer: &Answer, name: &str) -> String {
    let mut headers = answer.headers.clone();
    headers.remove("date");
    format!("{} {headers:?} {}", answer.status, answer.text()).replace(name, "NAME")
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_below_a_directory_without_access_is_as_one_that_does_not_exist() {
    const NDJSON: (&str, &str) = ("Content-Type", "application/x-ndjson");
    const CONTENT: (&str, &str) = ("Content-Type", "application/json");
    let world = World::new().await;
    world.files("/closed/there", 2).await;
    world.files("/open", 1).await;
    let mut admin = Web::admin(&world).await;
    assert_eq!(admin.json("PATCH", "/api/v1/entries/closed", json!({"mode": "700"})).await.status, 200);
    let mut alice = Web::user(&world, "alice").await;
    let depth = |depth| [("Depth", depth)];
    let asked: Vec<Asked> = vec![
        ("GET", "/api/v1/entries/closed/NAME", vec![], String::new()),
        ("GET", "/api/v1/entries/closed/NAME", vec![("If-None-Match", "*")], String::new()),
        ("GET", "/api/v1/entries/closed/NAME?follow=true", vec![], String::new()),
        ("HEAD", "/api/v1/entries/closed/NAME", vec![], String::new()),
        ("GET", "/api/v1/entries/closed/NAME/", vec![], String::new()),
        ("GET", "/api/v1/entries/closed/NAME/f000000", vec![], String::new()),
        ("GET", "/api/v1/children/closed/NAME", vec![], String::new()),
        ("GET", "/api/v1/children/closed/NAME", vec![("Accept", "application/x-ndjson")], String::new()),
        ("GET", "/api/v1/replicas/closed/NAME", vec![("If-None-Match", "*")], String::new()),
        ("GET", "/api/v1/replicas/closed/NAME/f000000", vec![], String::new()),
        ("GET", "/api/v1/replicas/closed/NAME/f000000/", vec![], String::new()),
        ("GET", "/api/v1/entries/closed/NAME/f000000/", vec![], String::new()),
        ("GET", "/api/v1/usage/closed/NAME", vec![], String::new()),
        ("GET", "/api/v1/tags/closed/NAME", vec![("If-None-Match", "*")], String::new()),
        ("GET", "/api/v1/log/closed/NAME", vec![], String::new()),
        ("POST", "/api/v1/find", vec![CONTENT], json!({"lfn": "/closed/NAME"}).to_string()),
        ("POST", "/api/v1/entries", vec![NDJSON], "{\"lfn\": \"/closed/NAME\"}\n".into()),
        ("POST", "/api/v1/replicas", vec![NDJSON], "{\"lfn\": \"/closed/NAME/f000000\"}\n".into()),
        ("POST", "/api/v1/usage", vec![NDJSON], "{\"lfn\": \"/closed/NAME\"}\n".into()),
        ("POST", "/api/v1/files", vec![NDJSON], "{\"lfn\": \"/closed/NAME\", \"size\": 1}\n".into()),
        ("PUT", "/api/v1/files/closed/NAME", vec![CONTENT, ("If-None-Match", "*")], "{}".into()),
        ("PUT", "/api/v1/directories/closed/NAME", vec![], String::new()),
        (
            "PATCH",
            "/api/v1/entries/closed/NAME",
            vec![CONTENT, ("If-Match", "\"1\"")],
            "{\"mode\": \"600\"}".into(),
        ),
        ("PATCH", "/api/v1/entries/closed/NAME", vec![CONTENT], "{\"mode\": \"600\"}".into()),
        ("DELETE", "/api/v1/entries/closed/NAME", vec![("If-Match", "\"1\"")], String::new()),
        ("DELETE", "/api/v1/entries/closed/NAME", vec![], String::new()),
        ("POST", "/api/v1/move", vec![CONTENT], json!({"from": "/closed/NAME", "to": "/open/x"}).to_string()),
        (
            "POST",
            "/api/v1/move",
            vec![CONTENT],
            json!({"from": "/open/f000000", "to": "/closed/NAME"}).to_string(),
        ),
        ("PROPFIND", "/dav/closed/NAME", depth("0").into(), String::new()),
        ("PROPFIND", "/dav/closed/NAME", depth("1").into(), String::new()),
        ("PROPFIND", "/dav/closed/NAME", depth("infinity").into(), String::new()),
        ("HEAD", "/dav/closed/NAME/f000000", vec![], String::new()),
        ("GET", "/dav/closed/NAME/f000000", vec![("If-None-Match", "*")], String::new()),
        ("GET", "/dav/closed/NAME", vec![], String::new()),
        ("PUT", "/dav/closed/NAME", vec![("If-None-Match", "*")], "x".into()),
        ("PUT", "/dav/closed/NAME/f000000", vec![], "x".into()),
        ("MKCOL", "/dav/closed/NAME", vec![], String::new()),
        ("DELETE", "/dav/closed/NAME", vec![], String::new()),
        ("COPY", "/dav/closed/NAME", vec![("Destination", "/dav/open/x")], String::new()),
        (
            "MOVE",
            "/dav/open/f000000",
            vec![("Destination", "/dav/closed/NAME"), ("Overwrite", "F")],
            String::new(),
        ),
        (
            "COPY",
            "/dav/open/f000000",
            vec![("Destination", "/dav/closed/NAME"), ("Overwrite", "F")],
            String::new(),
        ),
    ];
    let work =
        || world.hooks.resolutions.load(Ordering::SeqCst) + world.hooks.lists_begun.load(Ordering::SeqCst);
    for (method, target, headers, body) in asked {
        let mut seen = Vec::new();
        for name in ["there", "never"] {
            let named = |text: &str| text.replace("NAME", name);
            let headers: Vec<(&str, String)> =
                headers.iter().map(|(header, value)| (*header, named(value))).collect();
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(header, value)| (*header, value.as_str())).collect();
            let before = work();
            let answer = alice.ask(method, &named(target), &headers, &named(&body)).await;
            seen.push((learned(&answer, name), work() - before));
        }
        assert_eq!(seen[0], seen[1], "{method} {target}");
    }
}
