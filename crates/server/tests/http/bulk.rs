//! Bulk requests: a line of the answer for each line of the request.

use std::sync::Arc;

use exacat_model::operation::FileRef;
use exacat_model::{Lfn, Operation};
use exacat_server::LookUpLog;
use parking_lot::Mutex;
use serde_json::json;

use crate::client::Client;
use crate::web::Web;
use crate::world::World;

const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

#[tokio::test(flavor = "multi_thread")]
async fn each_line_has_its_result_in_order() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    let lines: String =
        (0..2500).map(|number| format!("{{\"lfn\": \"/d/f{number}\", \"size\": {number}}}\n")).collect();
    let made = web.ask("POST", "/api/v1/files?parents=true", &[LINES], &lines).await;
    let results = made.lines();
    assert_eq!(results.len(), 2500);
    for (number, result) in results.iter().enumerate() {
        assert_eq!(result["lfn"], format!("/d/f{number}"), "{result}");
        assert_eq!(result["result"], "created");
    }
    let again = web.ask("POST", "/api/v1/files?existing=same", &[LINES], &lines).await.lines();
    assert!(again.iter().all(|result| result["result"] == "unchanged"));
    let refused = web.ask("POST", "/api/v1/files", &[LINES], &lines).await.lines();
    assert!(refused.iter().all(|result| result["error"]["kind"] == "exists"), "{:?}", refused[0]);
    assert_eq!(refused[7]["error"]["subject"], "/d/f7");

    let mixed = "{\"lfn\": \"/d/f1\"}\n\n{\"lfn\": \"/missing\"}\r\nnonsense\n{\"lfn\": \"/d/f2\"}";
    let found = web.ask("POST", "/api/v1/entries", &[LINES], mixed).await.lines();
    assert_eq!(found.len(), 4);
    assert_eq!((found[0]["size"].as_u64(), found[3]["size"].as_u64()), (Some(1), Some(2)));
    assert_eq!(found[1]["error"]["kind"], "not-found");
    assert_eq!(
        (found[2]["error"]["kind"].as_str(), found[2]["error"]["subject"].as_str()),
        (Some("invalid"), Some("line 4"))
    );

    let guid = found[0]["guid"].as_str().unwrap();
    let names = web.ask("POST", "/api/v1/names", &[LINES], &json!({"guid": guid}).to_string()).await.lines();
    assert_eq!(names, [json!({"guid": guid, "lfn": "/d/f1"})]);
    let asked = format!("{{\"guid\":\"{guid}\"}}\n{{\"lfn\":\"/d/f1\"}}\n{{}}\n");
    let places = web.ask("POST", "/api/v1/replicas", &[LINES], &asked).await.lines();
    assert_eq!((places[0]["guid"].as_str(), places[1]["guid"].as_str()), (Some(guid), Some(guid)));
    assert_eq!(places[2]["error"]["kind"], "invalid");
    let usage = web.ask("POST", "/api/v1/usage", &[LINES], "{\"lfn\":\"/d\"}").await.lines();
    assert_eq!(usage[0]["usage"]["files"], 2500);
    let edits = json!({"lfn": "/d/f1", "edits": [{"drop": {"se": "X::Y"}}]}).to_string();
    let edited = web.ask("PATCH", "/api/v1/replicas", &[LINES], &edits).await.lines();
    assert_eq!(edited[0]["error"]["kind"], "not-found", "{edited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_while_the_request_is_sent() {
    let world = World::new().await;
    world.files("/d", 1).await;
    let mut web = Web::admin(&world).await;
    web.begin("POST", "/api/v1/entries", &[LINES, ("Transfer-Encoding", "chunked")]).await;
    let lines = "{\"lfn\": \"/d/f000000\"}\n".repeat(1000);
    web.send(format!("{:x}\r\n{lines}\r\n", lines.len()).as_bytes()).await;
    assert_eq!(web.head().await.status, 200);
    let mut count = 0;
    while count < 1000 {
        count += web.chunk().await.unwrap().iter().filter(|byte| **byte == b'\n').count();
    }
    web.send(b"0\r\n\r\n").await;
    assert!(web.chunk().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_breaks_off_ends_with_an_error_and_keeps_what_was_answered() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    web.begin("POST", "/api/v1/files?parents=true", &[LINES, ("Content-Length", "1000000")]).await;
    let lines: String = (0..1000).map(|number| format!("{{\"lfn\": \"/d/f{number}\"}}\n")).collect();
    web.send(lines.as_bytes()).await;
    assert_eq!(web.head().await.status, 200);
    let answered = web.chunk().await.unwrap().iter().filter(|byte| **byte == b'\n').count();
    drop(web);
    let mut other = Web::admin(&world).await;
    let files = other.get("/api/v1/usage/d").await.json()["usage"]["files"].as_u64().unwrap();
    assert!(files >= answered as u64, "{files} of {answered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn line_beyond_the_limit_ends_the_request() {
    let world = World::new().await;
    world.files("/d", 1).await;
    let mut web = Web::admin(&world).await;
    let long = format!("{{\"lfn\": \"/d/f000000\"}}\n{{\"lfn\": \"/{}", "x".repeat(3 << 20));
    web.begin("POST", "/api/v1/entries", &[LINES, ("Content-Length", &long.len().to_string())]).await;
    // The server may close before it has read everything.
    let _ = tokio::io::AsyncWriteExt::write_all(&mut web.stream, long.as_bytes()).await;
    let answer = web.answer(false).await;
    let lines = answer.lines();
    assert_eq!((lines.len(), lines[0]["size"].is_null()), (2, true), "{lines:?}");
    assert_eq!(lines[1]["error"]["kind"], "limit");
}

/// A stream has one key, and each of its batches an operation id of its own.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_stream_with_its_key_has_one_effect_also_after_a_restart() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    let key = web.get("/api/v1/operation-id").await.json()["id"].as_str().unwrap().to_owned();
    let headers: &[(&str, &str)] = &[LINES, ("Idempotency-Key", &key)];
    let lines = |from: usize| -> String {
        (from..from + 2500).map(|number| format!("{{\"lfn\": \"/d/f{number}\", \"size\": 1}}\n")).collect()
    };
    let target = "/api/v1/files?parents=true";
    let first = web.ask("POST", target, headers, &lines(0)).await.lines();
    assert!(first.len() == 2500 && first.iter().all(|line| line["result"] == "created"), "{:?}", first[0]);
    let again = web.ask("POST", target, headers, &lines(0)).await.lines();
    assert_eq!(again.len(), 2500);
    assert!(again.iter().zip(&first).all(|(again, first)| again["guid"] == first["guid"]), "{:?}", again[0]);
    assert!(again.iter().all(|line| line["error"].is_null()), "{again:?}");
    let world = world.restarted().await;
    let mut web = Web::admin(&world).await;
    let again = web.ask("POST", target, headers, &lines(0)).await.lines();
    assert!(again.iter().zip(&first).all(|(again, first)| again["guid"] == first["guid"]), "{:?}", again[0]);
    // The first batch is the same, the second has other content.
    let changed = lines(0).replace("/d/f1500\"", "/d/g1500\"");
    let refused = web.ask("POST", target, headers, &changed).await.lines();
    assert_eq!(refused.len(), 1001);
    assert_eq!(refused[1000]["error"]["kind"], "conflict", "{}", refused[1000]);
    assert_eq!(web.get("/api/v1/entries/d/g1500").await.status, 404);
    assert_eq!(web.get("/api/v1/usage/d").await.json()["usage"]["files"], 2500);
}

/// Property: each file that a client asked the replicas of is one line of the log of look-ups, whichever
/// protocol it spoke. Missing ones are none, and neither are those given by GUID: they have no name there.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_whereis_are_lines_of_the_look_up_log() {
    let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
    let kept = Arc::clone(&lines);
    let write = Arc::new(move |line: &[u8]| kept.lock().extend_from_slice(line));
    let log = LookUpLog { write, lost: Arc::default() };
    let world = World::with(|settings| settings.look_ups = Some(log)).await;
    world.files("/d", 4).await;
    let mut web = Web::admin(&world).await;
    let guid = web.get("/api/v1/entries/d/f000000").await.json()["guid"].as_str().unwrap().to_owned();
    assert_eq!(web.get("/api/v1/replicas/d/f000001?site=CERN").await.status, 200);
    assert_eq!(web.get("/api/v1/replicas/d/none").await.status, 404);
    let asked = format!("{{\"lfn\":\"/d/f000002\"}}\n{{\"guid\":\"{guid}\"}}\n{{\"lfn\":\"/d/none\"}}\n");
    assert_eq!(web.ask("POST", "/api/v1/replicas", &[LINES], &asked).await.lines().len(), 3);
    let of = |name: &str| FileRef::Lfn(Lfn::parse(name).unwrap());
    let files = ["/d/none", "/d/f000003", "/d/f000000"].map(of).to_vec();
    let whereis = Operation::Whereis { files, site: None };
    Client::admin(&world).await.call(whereis).await.unwrap();
    // Other questions about files send nobody to them.
    web.get("/api/v1/entries/d/f000001").await.json();
    let text = String::from_utf8(lines.lock().clone()).unwrap();
    let rows: Vec<(&str, &str)> = text
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(fields.len(), exacat_server::LOOK_UPS_HEAD.split('\t').count(), "{text}");
            (fields[1], fields[4])
        })
        .collect();
    assert_eq!(rows, [("/d/f000001", "CERN"), ("/d/f000002", ""), ("/d/f000003", ""), ("/d/f000000", "")]);
}
