//! The REST API: operations, errors, conditions, identity, and pages.

use std::sync::atomic::Ordering;

use exacat_model::Operation;
use exacat_testkit::waiting::{eventually, eventually_so};
use serde_json::json;

use crate::web::Web;
use crate::world::{World, lfn};

#[tokio::test(flavor = "multi_thread")]
async fn file_is_registered_read_changed_moved_removed_and_restored() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    assert_eq!(web.ask("PUT", "/api/v1/directories/d/e?parents=true", &[], "").await.status, 200);
    let se = json!({"prefix": "root://se.example.org:1094//data", "qos": ["disk"]});
    assert_eq!(web.json("PUT", "/api/v1/ses/SITE::SE", se).await.status, 200);
    let file = json!({
        "size": 10, "checksums": ["adler32:0a1af2bf"], "replicas": [{"se": "SITE::SE"}],
        "tags": {"run": 12, "quality": "good", "at": {"time": "2026-01-02T03:04:05Z"}},
    });
    let made = web.json("PUT", "/api/v1/files/d/e/f%20%C3%A9", file).await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(
        (made.json()["lfn"].as_str(), made.json()["result"].as_str()),
        (Some("/d/e/f é"), Some("created"))
    );
    let entry = web.get("/api/v1/entries/d/e/f%20%C3%A9").await;
    let shown = entry.json();
    assert_eq!((shown["kind"].as_str(), shown["size"].as_u64()), (Some("file"), Some(10)));
    assert_eq!(shown["tags"], json!({"run": 12, "quality": "good", "at": "2026-01-02T03:04:05Z"}));
    assert!(shown["replicas"][0]["pfn"].as_str().unwrap().starts_with("root://se.example.org:1094//data"));
    assert_eq!(entry.header("etag"), format!("\"{}\"", shown["revision"]));
    let revision: u64 = entry.header("exacat-revision").parse().unwrap();
    assert!(revision >= shown["revision"].as_u64().unwrap());
    let places = web.get("/api/v1/replicas/d/e/f%20%C3%A9").await.json();
    assert_eq!(
        (places["guid"].clone(), places["replicas"][0]["se"].as_str()),
        (shown["guid"].clone(), Some("SITE::SE"))
    );
    assert_eq!(web.json("PATCH", "/api/v1/entries/d/e/f%20%C3%A9", json!({"mode": "600"})).await.status, 200);
    let moved = web.json("POST", "/api/v1/move", json!({"from": "/d/e/f é", "to": "/d/g"})).await;
    assert_eq!(
        (moved.json()["from"].as_str(), moved.json()["to"].as_str()),
        (Some("/d/e/f é"), Some("/d/g"))
    );
    assert_eq!(web.get("/api/v1/entries/d/g").await.json()["mode"], "600");
    let removed = web.ask("DELETE", "/api/v1/entries/d/g", &[], "").await.json();
    let trash = removed["trash"].as_str().unwrap();
    assert_eq!(web.get("/api/v1/trash").await.json()["items"][0]["id"], trash);
    let restored = web.json("POST", &format!("/api/v1/trash/{trash}/restore"), json!({"to": "/d/h"})).await;
    assert_eq!(restored.json()["item"], trash, "{}", restored.text());
    assert_eq!(web.get("/api/v1/usage/d").await.json()["usage"]["files"], 1);
    let log = web.get("/api/v1/log/d/h").await.json();
    let effects: Vec<&str> =
        log["items"].as_array().unwrap().iter().map(|item| item["effect"].as_str().unwrap()).collect();
    assert_eq!(effects, ["created", "updated", "moved", "removed", "restored"]);
}

/// Every operation of the catalogue is reachable: no name of an endpoint is missing in this list,
/// and the answer of each is as its document says.
#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_answers_as_its_document_says() {
    let world = World::with(|settings| settings.elements = true).await;
    let mut web = Web::admin(&world).await;
    let document = web.get("/api/v1/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut known = std::collections::BTreeMap::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            known.insert(
                operation["operationId"].as_str().unwrap().to_owned(),
                (method.to_uppercase(), path.clone(), operation.clone()),
            );
        }
    }
    let steps: Vec<(&str, &str, &str, serde_json::Value)> = vec![
        ("makeDirectory", "/d", "", json!(null)),
        ("setStorageElement", "S::E", "", json!({"prefix": "root://h:1//p", "qos": ["disk"]})),
        ("registerFile", "d/f", "?parents=true", json!({"size": 4, "replicas": [{"se": "S::E"}]})),
        ("getEntry", "d/f", "?follow=true", json!(null)),
        ("setAttributes", "d/f", "", json!({"mode": "640", "expires": null})),
        ("makeLink", "d/l", "", json!({"target": "/d/f"})),
        ("listDirectory", "d", "?limit=1", json!(null)),
        ("find", "", "?limit=5", json!({"lfn": "/", "kinds": ["file"], "owner": "admin", "se": "S::E"})),
        ("getUsage", "d", "", json!(null)),
        ("setTags", "d/f", "", json!({"set": {"a": true}})),
        ("getTags", "d/f", "", json!(null)),
        ("locateFile", "d/f", "", json!(null)),
        ("setReplicas", "d/f", "", json!({"edits": [{"state": {"se": "S::E", "state": "suspect"}}]})),
        ("makeCollection", "d/c", "", json!(null)),
        ("editCollection", "d/c", "", json!({"add": [{"lfn": "/d/f"}]})),
        ("listCollection", "d/c", "", json!(null)),
        ("listArchive", "d/f", "", json!(null)),
        ("reserveUpload", "", "", json!({"lfn": "/d/u", "size": 3, "ses": ["S::E"]})),
        ("listUploads", "", "", json!(null)),
        ("move", "", "", json!({"from": "/d/l", "to": "/d/m"})),
        ("getLog", "d/m", "", json!(null)),
        ("removeEntry", "d/m", "", json!(null)),
        ("listTrash", "", "", json!(null)),
        ("listTrashInside", "", "", json!(null)),
        ("listStorageElements", "", "", json!(null)),
        ("listStorageElementFiles", "S::E", "", json!(null)),
        ("listDeletions", "S::E", "", json!(null)),
        ("reportDeletions", "S::E", "", json!({"done": []})),
        ("addGroup", "g", "", json!(null)),
        ("listGroups", "", "", json!(null)),
        ("setUser", "u", "", json!({"group": "g"})),
        ("listUsers", "", "", json!(null)),
        ("setQuota", "user:u", "", json!({"files": 5})),
        ("getQuotas", "", "?owner=user:u&owner=group:g", json!(null)),
        ("issueToken", "", "", json!({"lifetime_seconds": 60, "user": "u"})),
        ("listTokens", "", "", json!(null)),
        ("dropUser", "nobody-yet", "", json!(null)),
        ("whoami", "", "", json!(null)),
        ("getChanges", "", "?limit=2", json!(null)),
        ("getPosition", "", "", json!(null)),
        ("getStatus", "", "", json!(null)),
        ("listRequests", "", "", json!(null)),
        ("cancelRequest", "1099511627776", "", json!(null)),
        ("listSlowRequests", "", "", json!(null)),
        ("getActivity", "", "?seconds=60&parts=2", json!(null)),
        ("setThrottle", "user:u", "", json!({"items_per_second": 5})),
        ("listThrottles", "", "", json!(null)),
        ("endThrottle", "user:u", "", json!(null)),
        ("listFeeds", "", "", json!(null)),
        ("drainServer", "", "", json!(null)),
        ("resumeServer", "", "", json!(null)),
        ("checkCatalogue", "", "", json!(null)),
        ("confirmClock", "", "", json!(null)),
        ("newOperationId", "", "", json!(null)),
        ("listSnapshots", "", "", json!(null)),
        ("setElementGroup", "dcs", "", json!({"retention_days": 0})),
        ("listElementGroups", "", "", json!(null)),
        (
            "writeElementRows",
            "dcs",
            "",
            json!({"rows": [{"key": "hv,element=a", "times": ["2025-11-26T03:14:07Z"],
                "columns": [{"field": "v", "type": "float", "values": [1.5]}]}]}),
        ),
        ("listElements", "dcs", "?element=a", json!(null)),
        ("getElementValues", "dcs", "?at=2025-11-27", json!(null)),
        ("getElementRows", "dcs", "?from=2025-11-26&field=v", json!(null)),
        ("getElementAggregates", "dcs", "?from=2025-11-26&to=2025-11-27&every=1h", json!(null)),
        ("dropElementGroup", "dcs", "", json!(null)),
    ];
    let elsewhere = [
        // Bulk requests: see bulk.rs. Others need an id of an answer, or a store with snapshots.
        "getEntries",
        "getUsages",
        "registerFiles",
        "locateFiles",
        "setReplicasOfFiles",
        "findNames",
        "commitUpload",
        "releaseUpload",
        "restoreTrash",
        "purgeTrash",
        "dropStorageElement",
        "dropGroup",
        "revokeToken",
        "takeSnapshot",
        "dropSnapshot",
        "verifySnapshot",
        "compareSnapshot",
        "makeBackup",
        // They need a server with an embedded store: see the tests of the program.
        "getFeed",
        "makeFeed",
        "dropFeed",
        "pauseFeed",
        "resumeFeed",
        "rewindFeed",
        "getDocument",
    ];
    for (name, value, query, body) in steps {
        let (method, path, operation) =
            known.remove(name).unwrap_or_else(|| panic!("{name} is not in the document"));
        let mut target = path.clone();
        if let Some(start) = target.find('{') {
            let end = target.find('}').unwrap();
            target.replace_range(start..=end, value.trim_start_matches('/'));
        }
        let target = format!("{target}{query}");
        let answer = if body.is_null() {
            web.ask(&method, &target, &[], "").await
        } else {
            web.json(&method, &target, body).await
        };
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key(&answer.status.to_string()), "{name}: {}", answer.text());
        match name {
            "dropUser" | "reportDeletions" | "cancelRequest" => assert_eq!(answer.kind(), "not-found"),
            "listSnapshots" => {}
            "listArchive" => {}
            "confirmClock" => {}
            _ => assert_eq!(answer.status, 200, "{name}: {}", answer.text()),
        }
    }
    for name in elsewhere {
        assert!(known.remove(name).is_some(), "{name}");
    }
    assert!(known.is_empty(), "{known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn error_is_a_problem_document_with_the_status_of_its_kind() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    world.files("/d", 1).await;
    for (method, target, body, status, kind) in [
        ("GET", "/api/v1/entries/missing", "", 404, "not-found"),
        ("GET", "/api/v1/nothing", "", 404, "not-found"),
        ("GET", "/api/v1/entries/a/../b", "", 400, "invalid"),
        ("GET", "/api/v1/entries/%ff", "", 400, "invalid"),
        ("GET", "/api/v1/entries/d?what=1", "", 400, "invalid"),
        ("GET", "/api/v1/children/d?limit=0", "", 400, "invalid"),
        ("GET", "/api/v1/children/d?limit=10001", "", 400, "invalid"),
        ("GET", "/api/v1/children/d?cursor=!", "", 404, "not-found"),
        ("GET", "/api/v1/children/d?limit=1&limit=2", "", 400, "invalid"),
        ("PUT", "/api/v1/files/d/f000000", "{}", 409, "exists"),
        ("PUT", "/api/v1/files/d/x", "{\"sise\": 1}", 400, "invalid"),
        ("PUT", "/api/v1/files/d/x", "{\"lfn\": \"/d/y\"}", 400, "invalid"),
        ("PUT", "/api/v1/files/d/x", "{", 400, "invalid"),
        ("PATCH", "/api/v1/entries/d", "{}", 400, "invalid"),
        ("DELETE", "/api/v1/entries/d", "", 409, "not-empty"),
        ("GET", "/api/v1/whoami", "{}", 400, "invalid"),
        ("DELETE", "/api/v1/tokens/zz", "", 400, "invalid"),
        ("POST", "/api/v1/find", "{\"lfn\": \"/\", \"regex\": \"(\"}", 400, "invalid"),
    ] {
        let answer = web.ask(method, target, &[("Content-Type", "application/json")], body).await;
        assert_eq!((answer.status, answer.kind().as_str()), (status, kind), "{method} {target}");
    }
    let refused = web.ask("TRACE", "/api/v1/entries/d", &[], "").await;
    assert_eq!((refused.status, refused.header("allow")), (405, "DELETE, GET, PATCH"));
    let refused = web.ask("PUT", "/api/v1/files/d/x", &[("Content-Type", "text/csv")], "a,b").await;
    assert_eq!(refused.status, 415);
    assert_eq!(web.get("/api/v1/entries/d").await.status, 200, "the connection goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_is_that_of_the_token_and_of_the_header_act_as() {
    let world = World::new().await;
    let mut nobody = Web::anonymous(&world).await;
    let refused = nobody.get("/api/v1/whoami").await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer realm=\"exacat\""));
    for wrong in ["Bearer exa_nothing", "Bearer", "Basic YTpi"] {
        let refused = nobody.ask("GET", "/api/v1/whoami", &[("Authorization", wrong)], "").await;
        assert_eq!((refused.status, refused.kind().as_str()), (401, "unauthenticated"), "{wrong}");
        assert!(!refused.text().contains("exa_nothing"), "a token is not repeated");
    }
    let mut alice = Web::user(&world, "alice").await;
    assert_eq!(alice.get("/api/v1/whoami").await.json()["user"], "alice");
    let refused = alice.ask("GET", "/api/v1/whoami", &[("Exacat-Act-As", "admin")], "").await;
    assert_eq!(refused.kind(), "denied");
    let mut admin = Web::admin(&world).await;
    let as_alice = admin.ask("GET", "/api/v1/whoami", &[("Exacat-Act-As", "alice")], "").await;
    assert_eq!(as_alice.json()["user"], "alice");
    assert_eq!(admin.get("/api/v1/whoami").await.json()["user"], "admin", "the header is of one request");
    // A revoked token ends with the next request of an open connection.
    let (id, secret) = world.token("alice", 3600).await;
    let mut revoked = Web { token: Some(secret), ..Web::anonymous(&world).await };
    assert_eq!(revoked.get("/api/v1/whoami").await.status, 200);
    world.admin(Operation::TokenRevoke { id }).await;
    assert_eq!(revoked.get("/api/v1/whoami").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_with_its_key_has_one_effect_and_another_one_is_a_conflict() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    world.files("/d", 1).await;
    let key = web.get("/api/v1/operation-id").await.json()["id"].as_str().unwrap().to_owned();
    let headers: &[(&str, &str)] = &[("Idempotency-Key", &key), ("Content-Type", "application/json")];
    let body = json!({"from": "/d/f000000", "to": "/d/g"}).to_string();
    let first = web.ask("POST", "/api/v1/move", headers, &body).await;
    assert_eq!(first.status, 200);
    let again = web.ask("POST", "/api/v1/move", headers, &body).await;
    assert_eq!(again.json(), first.json());
    let other = json!({"from": "/d/g", "to": "/d/h"}).to_string();
    let refused = web.ask("POST", "/api/v1/move", headers, &other).await;
    assert_eq!((refused.status, refused.kind().as_str()), (409, "conflict"));
    assert_eq!(web.get("/api/v1/entries/d/g").await.status, 200, "a conflict changes nothing");
    for wrong in ["7", "8e03978e-40d5-43e8-bc93-6894a57f9324"] {
        assert_eq!(
            web.ask("POST", "/api/v1/move", &[("Idempotency-Key", wrong)], &other).await.kind(),
            "invalid"
        );
    }
    let made = web.get("/api/v1/operation-id").await.json()["id"].as_str().unwrap().to_owned();
    let moved = web.ask("POST", "/api/v1/move", &[("Idempotency-Key", &made)], &other).await;
    assert_eq!(moved.status, 200, "{}", moved.text());
}

/// Goal: a repeat is answered as the first request was, although its own effect made the condition
/// false. A new request with that condition is refused, and so is a key with another request.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_is_not_refused_by_the_condition_that_it_made_false() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    world.files("/d", 1).await;
    let target = "/api/v1/entries/d/f000000";
    for (method, body) in [("PATCH", json!({"mode": "600"}).to_string()), ("DELETE", String::new())] {
        let tag = web.get(target).await.header("etag").to_owned();
        let key = web.get("/api/v1/operation-id").await.json()["id"].as_str().unwrap().to_owned();
        let with_key = [("If-Match", tag.as_str()), ("Idempotency-Key", key.as_str())];
        let first = web.ask(method, target, &with_key, &body).await;
        assert_eq!(first.status, 200, "{method}: {}", first.text());
        let again = web.ask(method, target, &with_key, &body).await;
        assert_eq!((again.status, again.text()), (200, first.text()), "{method}");
        assert_eq!(web.ask(method, target, &[("If-Match", &tag)], &body).await.status, 412, "{method}");
        let other = web.ask("PATCH", target, &with_key, &json!({"mode": "640"}).to_string()).await;
        assert!([409, 412].contains(&other.status), "{method}: {}", other.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_compare_the_revision_of_the_entry() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    world.files("/d", 1).await;
    let target = "/api/v1/entries/d/f000000";
    let tag = web.get(target).await.header("etag").to_owned();
    assert_eq!(web.ask("GET", target, &[("If-None-Match", &tag)], "").await.status, 304);
    assert_eq!(web.ask("GET", target, &[("If-None-Match", "\"1\"")], "").await.status, 200);
    let change = json!({"mode": "600"}).to_string();
    assert_eq!(web.ask("PATCH", target, &[("If-Match", &tag)], &change).await.status, 200);
    let refused = web.ask("PATCH", target, &[("If-Match", &tag)], &json!({"mode": "644"}).to_string()).await;
    assert_eq!(refused.status, 412);
    assert_eq!(web.get(target).await.json()["mode"], "600", "a condition that fails changes nothing");
    assert_eq!(web.ask("DELETE", target, &[("If-Match", &tag)], "").await.status, 412);
    let file = "/api/v1/files/d/f000000?existing=same";
    assert_eq!(web.ask("PUT", file, &[("If-None-Match", "*")], "{}").await.status, 412);
    for (method, target, headers, status) in [
        ("PUT", "/api/v1/directories/d", &[("If-None-Match", "*")], 412),
        ("PUT", "/api/v1/directories/d?parents=true", &[("If-None-Match", "*")], 400),
        ("PUT", "/api/v1/directories/new", &[("If-None-Match", "*")], 200),
        ("DELETE", "/api/v1/entries/new", &[("If-None-Match", "*")], 400),
        ("PUT", "/api/v1/directories/x", &[("If-Match", "\"1\"")], 400),
        ("DELETE", "/api/v1/entries/new", &[("If-Match", "\"1\"")], 412),
        ("DELETE", "/api/v1/entries/new", &[("If-Match", "W/\"1\"")], 412),
        ("DELETE", "/api/v1/entries/new", &[("If-Match", "\"nonsense\"")], 412),
        ("DELETE", "/api/v1/entries/new", &[("If-Match", "\"1\", W/\"2\"")], 412),
        ("DELETE", "/api/v1/entries/new", &[("If-Match", "nonsense")], 400),
        ("DELETE", "/api/v1/entries/new", &[("If-Match", "\"1\",")], 400),
        ("DELETE", "/api/v1/entries/new", &[("If-Match", "*")], 200),
        ("POST", "/api/v1/files", &[("If-Match", "\"1\"")], 400),
    ] {
        let answer = web.ask(method, target, headers, "").await;
        assert_eq!(answer.status, status, "{method} {target} {headers:?}: {}", answer.text());
        assert!(answer.header("exacat-revision").parse::<u64>().is_ok(), "{method} {target}");
    }
    let at_least = web.ask("GET", target, &[("Exacat-At-Least", "1")], "").await;
    assert_eq!(at_least.status, 200);
    assert_eq!(web.ask("GET", target, &[("Exacat-At-Least", "x")], "").await.kind(), "invalid");
}

/// Directories, tags and replicas have tags too, which name the version of their entry.
#[tokio::test(flavor = "multi_thread")]
async fn tag_of_each_view_of_an_entry_serves_as_a_condition_of_its_change() {
    let world = World::new().await;
    world.files("/d", 1).await;
    let mut web = Web::admin(&world).await;
    let se = json!({"prefix": "root://h:1//p", "qos": ["disk"]});
    assert_eq!(web.json("PUT", "/api/v1/ses/S::E", se).await.status, 200);
    let (tags, replicas) = (json!({"set": {"a": 1}}), json!({"edits": [{"put": {"se": "S::E"}}]}));
    for (day, (view, target, change)) in [
        ("/api/v1/entries/d", "/api/v1/entries/d", json!({"mode": "750"})),
        ("/api/v1/tags/d", "/api/v1/tags/d", tags.clone()),
        ("/api/v1/tags/d/f000000?own=true", "/api/v1/tags/d/f000000", tags),
        ("/api/v1/replicas/d/f000000", "/api/v1/replicas/d/f000000", replicas),
    ]
    .into_iter()
    .enumerate()
    {
        let seen = web.get(view).await;
        let tag = seen.header("etag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{view}: {tag}");
        assert_eq!(web.ask("GET", view, &[("If-None-Match", &tag)], "").await.status, 304, "{view}");
        let entry = target.replace("/tags/", "/entries/").replace("/replicas/", "/entries/");
        let other = web.json("PATCH", &entry, json!({"modified": format!("2026-01-0{}", day + 1)})).await;
        assert_eq!(other.status, 200, "{}", other.text());
        let headers = [("If-Match", tag.as_str()), ("Content-Type", "application/json")];
        let stale = web.ask("PATCH", target, &headers, &change.to_string()).await;
        assert_eq!(stale.status, 412, "{view}: {}", stale.text());
        let tag = web.get(view).await.header("etag").to_owned();
        let headers = [("If-Match", tag.as_str()), ("Content-Type", "application/json")];
        let done = web.ask("PATCH", target, &headers, &change.to_string()).await;
        assert_eq!(done.status, 200, "{view}: {}", done.text());
        let seen = web.ask("GET", view, &[("If-None-Match", &tag)], "").await;
        assert_eq!(seen.status, 200, "{view}: it has changed");
    }
    // An inherited tag changes the view of tags, though not the entry.
    let tag = web.get("/api/v1/tags/d/f000000").await.header("etag").to_owned();
    assert_eq!(web.json("PATCH", "/api/v1/tags/d", json!({"set": {"b": 2}})).await.status, 200);
    let seen = web.ask("GET", "/api/v1/tags/d/f000000", &[("If-None-Match", &tag)], "").await;
    assert_eq!(seen.status, 200);
}

/// A change whose answer was lost is repeated with its condition: it stays done.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_change_with_key_and_condition_has_its_first_answer_also_after_a_restart() {
    let world = World::new().await;
    world.files("/d", 2).await;
    let mut web = Web::admin(&world).await;
    let target = "/api/v1/entries/d/f000000";
    let tag = web.get(target).await.header("etag").to_owned();
    let key = web.get("/api/v1/operation-id").await.json()["id"].as_str().unwrap().to_owned();
    let headers: &[(&str, &str)] =
        &[("Idempotency-Key", &key), ("If-Match", &tag), ("Content-Type", "application/json")];
    let change = json!({"mode": "600"}).to_string();
    let first = web.ask("PATCH", target, headers, &change).await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_ne!(web.get(target).await.header("etag"), tag);
    let again = web.ask("PATCH", target, headers, &change).await;
    assert_eq!((again.status, again.json()), (200, first.json()));
    let other = web.ask("PATCH", target, headers, &json!({"mode": "640"}).to_string()).await;
    assert_eq!((other.status, other.kind().as_str()), (409, "conflict"), "{}", other.text());
    let mut alice = Web::user(&world, "alice").await;
    let foreign = alice.ask("PATCH", target, headers, &change).await;
    assert!(matches!(foreign.status, 403 | 409), "another user: {}", foreign.text());
    let world = world.restarted().await;
    let mut web = Web::admin(&world).await;
    let again = web.ask("PATCH", target, headers, &change).await;
    assert_eq!((again.status, again.json()), (200, first.json()));
    let other = web.ask("PATCH", target, headers, &json!({"mode": "640"}).to_string()).await;
    assert_eq!((other.status, other.kind().as_str()), (409, "conflict"), "{}", other.text());
    assert_eq!(web.get(target).await.json()["mode"], "600");
}

/// A consumer from before a restore learns of it, instead of missing changes.
#[tokio::test(flavor = "multi_thread")]
async fn place_on_another_timeline_is_a_conflict() {
    let world = World::new().await;
    world.files("/d", 5).await;
    let mut web = Web::admin(&world).await;
    let position = web.get("/api/v1/position").await.json()["position"].as_str().unwrap().to_owned();
    let (revision, timeline) = position.split_once('.').unwrap();
    let first = if timeline.starts_with('0') { '1' } else { '0' };
    let other = format!("{revision}.{first}{}", &timeline[1..]);
    let events = ("Accept", "text/event-stream");
    for headers in [&[("Last-Event-ID", other.as_str()), events][..], &[("Exacat-At-Least", other.as_str())]]
    {
        let answer = web.ask("GET", "/api/v1/changes", headers, "").await;
        assert_eq!((answer.status, answer.kind().as_str()), (409, "conflict"), "{headers:?}");
    }
    for target in ["/api/v1/changes?after=", "/api/v1/position?after="] {
        let answer = web.get(&format!("{target}{other}")).await;
        assert_eq!((answer.status, answer.kind().as_str()), (409, "conflict"), "{target}");
        assert_eq!(web.get(&format!("{target}{position}")).await.status, 200, "{target}");
    }
    let answer = web.ask("GET", "/api/v1/whoami", &[("Exacat-At-Least", position.as_str())], "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A cursor is the property of its list.
#[tokio::test(flavor = "multi_thread")]
async fn cursor_of_another_list_is_refused() {
    let world = World::new().await;
    world.files("/d", 3).await;
    let mut web = Web::admin(&world).await;
    let next = web.get("/api/v1/children/d?limit=1").await.json()["next"].as_str().unwrap().to_owned();
    assert_eq!(web.get(&format!("/api/v1/children/d?cursor={next}")).await.status, 200);
    for target in ["/api/v1/trash", "/api/v1/log/d", "/api/v1/uploads"] {
        let refused = web.get(&format!("{target}?cursor={next}")).await;
        assert_eq!((refused.status, refused.kind().as_str()), (404, "not-found"), "{target}");
    }
    let groups = web.ask("GET", "/api/v1/groups", &[("Accept", "application/x-ndjson")], "").await;
    assert_eq!(groups.lines()[0]["group"], "admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_lines_have_the_same_entries() {
    let world = World::new().await;
    world.files("/d", 2500).await;
    let mut web = Web::admin(&world).await;
    let (mut paged, mut target) = (Vec::new(), "/api/v1/children/d?limit=700".to_owned());
    loop {
        let page = web.get(&target).await;
        let body = page.json();
        paged.extend(body["items"].as_array().unwrap().clone());
        let Some(next) = body["next"].as_str() else {
            assert!(page.header("link").is_empty());
            break;
        };
        assert_eq!(body["items"].as_array().unwrap().len(), 700);
        target = format!("/api/v1/children/d?limit=700&cursor={next}");
        assert_eq!(page.header("link"), format!("<{target}>; rel=\"next\""));
    }
    assert_eq!(paged.len(), 2500);
    for kind in ["application/x-ndjson", "application/x-json-stream"] {
        let streamed = web.ask("GET", "/api/v1/children/d", &[("Accept", kind)], "").await;
        assert_eq!(streamed.header("content-type"), kind);
        assert_eq!(streamed.lines(), paged);
    }
    let missing = web.ask("GET", "/api/v1/children/x", &[("Accept", "application/x-ndjson")], "").await;
    assert_eq!((missing.status, missing.kind().as_str()), (404, "not-found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_that_fails_in_the_middle_ends_with_the_problem() {
    let world = World::new().await;
    world.files("/d", 5000).await;
    let mut web = Web::admin(&world).await;
    let lists = || world.hooks.lists_begun.load(Ordering::SeqCst);
    world.hooks.lists_until_held.store(lists() + 1, Ordering::SeqCst);
    web.begin("GET", "/api/v1/children/d", &[("Accept", "application/x-ndjson")]).await;
    let first = web.head().await;
    assert_eq!(first.status, 200);
    let mut body = web.chunk().await.unwrap();
    let held = world.hooks.hold_lists.subscribe();
    eventually("the second page to wait", || *held.borrow()).await;
    world.server.catalogue().store().close().await.unwrap();
    world.hooks.lists_until_held.store(u64::MAX, Ordering::SeqCst);
    world.hooks.hold_lists.send_replace(false);
    while let Some(chunk) = web.chunk().await {
        body.extend(chunk);
    }
    let last = String::from_utf8(body).unwrap();
    let last: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["kind"], "unavailable", "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_paged_streamed_and_resumed() {
    let world = World::new().await;
    world.files("/d", 5).await;
    let mut web = Web::admin(&world).await;
    let all = web.get("/api/v1/changes").await.json();
    let items = all["items"].as_array().unwrap().clone();
    let page = web.get("/api/v1/changes?limit=2").await.json();
    let rest = web.get(&format!("/api/v1/changes?after={}", page["next"].as_str().unwrap())).await.json();
    assert_eq!(
        page["items"].as_array().unwrap().len() + rest["items"].as_array().unwrap().len(),
        items.len()
    );
    let streamed = web.ask("GET", "/api/v1/changes", &[("Accept", "application/x-ndjson")], "").await;
    assert_eq!(streamed.lines(), items);
    // Of some kinds only: the place after a page is behind the changes that are not shown.
    world.admin(Operation::Remove { lfn: lfn("/d/f000001"), recursive: false, directory: false }).await;
    let removed = web.get("/api/v1/changes?kinds=removed,restored").await.json();
    let shown = removed["items"].as_array().unwrap();
    assert_eq!((shown.len(), shown[0]["effect"].as_str()), (1, Some("removed")), "{removed}");
    let none = web.get("/api/v1/changes?kinds=moved&limit=2").await.json();
    assert_eq!((none["items"].as_array().unwrap().len(), none["next"].is_string()), (0, true), "{none}");
    let lines =
        web.ask("GET", "/api/v1/changes?kinds=removed", &[("Accept", "application/x-ndjson")], "").await;
    assert_eq!(lines.lines(), *shown);
    let refused = web.get("/api/v1/changes?kinds=made").await;
    assert_eq!(refused.status, 400);
    let all = web.get("/api/v1/changes").await.json();
    // Events go on with later changes.
    let position = all["position"].as_str().unwrap();
    web.begin("GET", &format!("/api/v1/changes?after={position}"), &[("Accept", "text/event-stream")]).await;
    assert_eq!(web.head().await.header("content-type"), "text/event-stream");
    world.files("/e", 1).await;
    let event = String::from_utf8(web.chunk().await.unwrap()).unwrap();
    let (id, data) = event.split_once("\nevent: change\ndata: ").unwrap();
    let id = id.strip_prefix("id: ").unwrap();
    let change: serde_json::Value = serde_json::from_str(data.lines().next().unwrap()).unwrap();
    assert_eq!(
        id,
        format!(
            "{}.{}",
            change["revision"],
            &change["timeline"].as_str().unwrap()[..id.split_once('.').unwrap().1.len()]
        )
    );
    let mut again = Web::admin(&world).await;
    again
        .begin("GET", "/api/v1/changes", &[("Accept", "text/event-stream"), ("Last-Event-ID", position)])
        .await;
    again.head().await;
    assert_eq!(String::from_utf8(again.chunk().await.unwrap()).unwrap().lines().next(), event.lines().next());
    drop((web, again));
    // A stream that waits ends with its client, although nothing changes.
    eventually_so("the waits to end", async || world.figure("server", "held_waits").await == 0).await;
    let mut last = Web::admin(&world).await;
    last.begin("GET", "/api/v1/changes", &[("Accept", "text/event-stream")]).await;
    last.head().await;
    // The server stops although a stream is open.
    world.server.shutdown();
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_is_that_of_the_catalogue() {
    let world = World::new().await;
    world.files("/d", 1).await;
    world
        .admin(Operation::SetAttributes {
            lfns: vec![lfn("/d")],
            attributes: vec![exacat_model::operation::Attribute::Mode(
                exacat_model::Mode::new(0o700).unwrap(),
            )],
        })
        .await;
    let mut alice = Web::user(&world, "alice").await;
    for (method, target) in [
        ("GET", "/api/v1/entries/d/f000000"),
        ("GET", "/api/v1/children/d"),
        ("DELETE", "/api/v1/entries/d/f000000"),
        ("GET", "/api/v1/status"),
        ("PUT", "/api/v1/groups/g"),
    ] {
        let refused = alice.ask(method, target, &[], "").await;
        assert_eq!((refused.status, refused.kind().as_str()), (403, "denied"), "{method} {target}");
    }
}
