//! Elements in the REST API: groups and rights, rows that are written, values, rows and aggregates.

use exacat_model::TimeNs;
use exacat_server::ServerSettings;
use serde_json::{Value, json};

use crate::web::{Answer, Web};
use crate::world::World;

const BELOW: &str = "/api/v1/history";

async fn world() -> World {
    World::with(|settings: &mut ServerSettings| settings.elements = true).await
}

/// Text of a time some seconds before the clock of the world.
fn at(world: &World, seconds: i64) -> String {
    let now = i64::try_from(world.clock.shared().trusted().0).unwrap() / 1000;
    TimeNs((now - 1000 + seconds) * 1_000_000_000).to_string()
}

async fn send(web: &mut Web, method: &str, path: &str, body: &Value) -> Answer {
    let kind = [("Content-Type", "application/json")];
    web.ask(method, &format!("{BELOW}{path}"), &kind, &body.to_string()).await
}

fn rows(key: &str, times: &[String], field: &str, values: &Value) -> Value {
    json!({"key": key, "times": times, "columns": [{"field": field, "type": "float", "values": values}]})
}

async fn get(web: &mut Web, path: &str) -> Value {
    let answer = web.get(&format!("{BELOW}{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

/// Property: a group is made, changed and removed by those who may; others learn nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn groups_are_made_changed_and_removed() {
    let world = world().await;
    let (mut admin, mut user) = (Web::admin(&world).await, Web::user(&world, "physicist").await);
    assert_eq!(send(&mut user, "PUT", "/dcs", &json!({})).await.status, 403);
    let settings = json!({"readers": ["user:physicist"], "retention_days": 10});
    assert_eq!(send(&mut admin, "PUT", "/dcs", &settings).await.status, 200);
    let unknown = json!({"readers": ["user:nobody-of-this-name"]});
    assert_eq!(send(&mut admin, "PUT", "/dcs", &unknown).await.status, 404, "a reader without account");
    let shown = get(&mut user, "").await;
    assert_eq!(shown["items"][0]["name"], "dcs");
    assert_eq!(shown["items"][0]["readers"], json!(["user:physicist"]), "the refused change did nothing");
    let body = json!({"rows": [rows("hv,element=a", &[at(&world, 1)], "v", &json!([1.0]))]});
    assert_eq!(send(&mut user, "POST", "/dcs/rows", &body).await.status, 403, "a reader does not write");
    // A change keeps what it does not name.
    assert_eq!(send(&mut admin, "PUT", "/dcs", &json!({"writers": ["user:physicist"]})).await.status, 200);
    assert_eq!(get(&mut admin, "").await["items"][0]["retention_days"], 10);
    let answer = send(&mut user, "POST", "/dcs/rows", &body).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"rows": 1, "refused": 0})));
    assert_eq!(user.ask("DELETE", &format!("{BELOW}/dcs"), &[], "").await.status, 403);
    let closed = json!({"readers": ["group:no-such-group"], "writers": []});
    let refused = send(&mut admin, "PUT", "/dcs", &closed).await.status;
    assert_eq!(refused, 404, "a group of users that is not there");
    assert_eq!(send(&mut admin, "PUT", "/other", &json!({"readers": ["user:admin"]})).await.status, 200);
    assert_eq!(get(&mut user, "").await["items"].as_array().unwrap().len(), 1, "other groups are not listed");
    let answer = user.get(&format!("{BELOW}/other/values")).await;
    assert_eq!(answer.status, 403);
    let answer = admin.ask("DELETE", &format!("{BELOW}/dcs"), &[], "").await;
    assert_eq!(answer.status, 200);
    assert_eq!(admin.get(&format!("{BELOW}/dcs/values")).await.status, 404);
}

/// Property: rows that were answered are read back as rows, as latest values, as values at an instant and
/// as aggregates, in pages as well; refused rows are counted and leave the others alone.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_written_and_read_in_each_form() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    send(&mut web, "PUT", "/dcs", &json!({})).await;
    let times: Vec<String> = [0, 10, 20].map(|seconds| at(&world, seconds)).into();
    let late = [at(&world, 100_000)];
    let body = json!({"rows": [
        rows("hv,element=crate1", &times, "v", &json!([1.0, "NaN", 3.0])),
        rows("hv,element=crate2", &times[..1], "v", &json!([7.5])),
        rows("hv,element=crate2", &late, "v", &json!([8.0])),
        rows("no key,=", &times[..1], "v", &json!([8.0])),
    ]});
    let answer = send(&mut web, "POST", "/dcs/rows", &body).await.json();
    assert_eq!((&answer["rows"], &answer["refused"]), (&json!(4), &json!(2)));
    assert!(answer["reason"].as_str().unwrap().contains("beyond retention policy"), "{answer}");
    let found = get(&mut web, "/dcs/rows?element=crate1").await;
    let values: Vec<_> =
        found["items"].as_array().unwrap().iter().map(|row| row["values"]["v"].clone()).collect();
    assert_eq!(values, [json!(1.0), json!("NaN"), json!(3.0)]);
    // Pages of one row.
    let (mut count, mut path) = (0, "/dcs/rows?element=crate*&limit=1".to_owned());
    loop {
        let page = get(&mut web, &path).await;
        count += page["items"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/dcs/rows?element=crate*&limit=1&cursor={next}");
    }
    assert_eq!(count, 4);
    let latest = get(&mut web, "/dcs/values?element=crate1").await;
    assert_eq!(latest["items"][0]["values"]["v"], json!({"time": times[2], "value": 3.0}));
    let state = get(&mut web, &format!("/dcs/values?at={}", at(&world, 5))).await;
    assert_eq!(state["items"][0]["values"]["v"]["value"], 1.0);
    assert_eq!(state["items"][1]["values"]["v"]["value"], 7.5);
    let elements = get(&mut web, "/dcs/elements?element=crate2").await;
    assert_eq!(elements["items"][0]["fields"], json!({"v": "float"}));
    let (from, to) = (at(&world, 0), at(&world, 29));
    let sums = get(&mut web, &format!("/dcs/aggregates?element=crate2&from={from}&to={to}&every=30s")).await;
    let covered: f64 =
        sums["items"].as_array().unwrap().iter().map(|one| one["covered_seconds"].as_f64().unwrap()).sum();
    assert!((covered - 29.0).abs() < 0.001, "the value holds to the end: {sums}");
    // JSON lines have the same rows.
    let lines = web.ask("GET", &format!("{BELOW}/dcs/rows"), &[("Accept", "application/x-ndjson")], "").await;
    assert_eq!(String::from_utf8(lines.body.to_vec()).unwrap().lines().count(), 4);
    for (path, status) in [
        ("/dcs/rows?element=crate9", 404),
        ("/dcs/rows?from=2026-01-02&to=2026-01-01", 400),
        ("/dcs/rows?cursor=AAAA", 404),
        ("/dcs/aggregates?every=0s", 400),
        ("/dcs/aggregates?every=1s", 413),
        ("/dcs/aggregates?course=up", 400),
        ("/none/values", 404),
    ] {
        assert_eq!(web.get(&format!("{BELOW}{path}")).await.status, status, "{path}");
    }
    let uneven = json!({"rows": [{"key": "m", "times": [], "columns": [{"field": "v", "type": "float", "values": [1]}]}]});
    assert_eq!(send(&mut web, "POST", "/dcs/rows", &uneven).await.status, 400, "a value without time");
}

/// Property: booleans and texts have the aggregates that they can have: count, first and last of each
/// interval with a value. A number of the same element comes first if no field is named.
#[tokio::test(flavor = "multi_thread")]
async fn states_are_counted_by_interval() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    send(&mut web, "PUT", "/dcs", &json!({})).await;
    let times: Vec<String> = [0, 10, 20, 70].map(|seconds| at(&world, seconds)).into();
    let column =
        |field: &str, kind: &str, values: Value| json!({"field": field, "type": kind, "values": values});
    let states = json!({"key": "hv,element=state", "times": times, "columns": [
        column("v", "string", json!(["OFF", "RAMPING", "ON", "OFF"]))]});
    let switches = json!({"key": "lv,element=switch", "times": [times[0], times[2], times[3]], "columns": [
        column("v", "boolean", json!([true, false, true]))]});
    let both = json!({"key": "gas,element=both", "times": times, "columns": [
        column("original_value_float", "float", json!([1.0, 2.0, 3.0, 4.0])),
        column("original_value_string", "string", json!(["a", "b", "c", "d"]))]});
    let answer = send(&mut web, "POST", "/dcs/rows", &json!({"rows": [states, switches, both]})).await;
    assert_eq!(answer.json()["refused"], 0, "{answer:?}");
    let range = format!("from={}&to={}&every=30s", times[0], at(&world, 89));
    let mut counted = async |element: &str, more: &str| -> Vec<Value> {
        let path = format!("/dcs/aggregates?element={element}&{range}{more}");
        get(&mut web, &path).await["items"].as_array().unwrap().clone()
    };
    for course in ["", "&course=samples", "&course=line"] {
        let found = counted("state", course).await;
        let count: u64 = found.iter().map(|one| one["count"].as_u64().unwrap()).sum();
        assert_eq!(count, 4, "{found:?}");
        assert_eq!(
            (&found[0]["first"]["value"], &found[0]["first"]["time"]),
            (&json!("OFF"), &json!(times[0]))
        );
        let last = &found[found.len() - 1];
        assert_eq!((&last["last"]["value"], &last["last"]["time"]), (&json!("OFF"), &json!(times[3])));
        assert!(last.get("min").is_none_or(Value::is_null), "a text has no least value: {last}");
    }
    let found = counted("switch", "").await;
    assert_eq!(found.iter().map(|one| one["count"].as_u64().unwrap()).sum::<u64>(), 3);
    assert_eq!(counted("both", "").await[0]["field"], "original_value_float");
    let found = counted("both", "&field=original_value_string").await;
    assert_eq!(found[0]["first"]["value"], "a");
    // Pages of one interval have the same intervals.
    let found_of_state = counted("state", "").await.len();
    let (mut pages, mut path) = (0, format!("/dcs/aggregates?element=state&{range}&limit=1"));
    loop {
        let page = get(&mut web, &path).await;
        pages += page["items"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/dcs/aggregates?element=state&{range}&limit=1&cursor={next}");
    }
    assert_eq!(pages, found_of_state);
}

async fn csv(web: &mut Web, path: &str) -> Answer {
    web.ask("GET", &format!("{BELOW}{path}"), &[("Accept", "text/csv")], "").await
}

/// Property: rows, values and aggregates come as CSV, all pages of them, with a column for each field and
/// type; rows come back by an import as they were. What has no columns says so.
#[tokio::test(flavor = "multi_thread")]
async fn elements_come_as_csv() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    send(&mut web, "PUT", "/dcs", &json!({})).await;
    let times: Vec<String> = (0..1500).map(|number| at(&world, number / 10)).collect();
    let distinct: Vec<String> = times.iter().step_by(10).cloned().collect();
    let values: Vec<f64> = (0..distinct.len()).map(|number| number as f64 + 0.5).collect();
    let keys: Vec<String> = (0..20).map(|number| format!("hv,element=crate{number}")).collect();
    let all: Vec<Value> = keys.iter().map(|key| rows(key, &distinct, "v", &json!(values))).collect();
    let state = json!({"key": "hv,element=crate0", "times": [times[0]],
        "columns": [{"field": "state", "type": "string", "values": ["on, \"almost\""]}]});
    let other = json!({"key": "lv,element=x", "times": [times[0]],
        "columns": [{"field": "v", "type": "integer", "values": [-7]}]});
    let body = json!({"rows": all.into_iter().chain([state, other]).collect::<Vec<_>>()});
    assert_eq!(send(&mut web, "POST", "/dcs/rows", &body).await.json()["refused"], 0);
    let answer = csv(&mut web, "/dcs/rows").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/csv"));
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("element,key,time,v:float,v:integer"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 20 * distinct.len() + 1);
    assert!(lines.contains(&format!("crate19,\"hv,element=crate19\",{},149.5,", distinct[149]).as_str()));
    assert!(lines.contains(&format!("x,\"lv,element=x\",{},,-7", times[0]).as_str()), "{lines:?}");
    let answer = csv(&mut web, "/dcs/rows?element=crate0&field=*&limit=1").await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let quoted = format!("crate0,\"hv,element=crate0\",{},0.5,\"on, \"\"almost\"\"\"", times[0]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("element,key,time,v:float,state:string"));
    assert_eq!(lines.next(), Some(quoted.as_str()));
    let answer = csv(&mut web, "/dcs/values?element=x").await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert_eq!(text, format!("element,key,field,time,value\nx,\"lv,element=x\",v,{},-7\n", times[0]));
    let path = format!("/dcs/aggregates?element=crate1&from={}&to={}&every=1h", times[0], times[1499]);
    let answer = csv(&mut web, &path).await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(text.starts_with("element,key,field,start,count,first,last,min,max,mean,"), "{text}");
    assert!(text.contains(",v,"), "{text}");
    assert_eq!(csv(&mut web, "").await.status, 400, "the list of groups has no columns");
    // A stream of Arrow begins with a schema of these columns, and ends with its mark.
    let arrow = [("Accept", "application/vnd.apache.arrow.stream")];
    let answer = web.ask("GET", &format!("{BELOW}/dcs/rows"), &arrow, "").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, arrow[0].1));
    assert!(
        answer.body.starts_with(&[0xff; 4]) && answer.body.ends_with(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0])
    );
    for column in ["element", "key", "time", "v:float", "v:integer", "crate19"] {
        let is_in = answer.body.windows(column.len()).any(|part| part == column.as_bytes());
        assert!(is_in, "{column} is not in the stream");
    }
    let refused = web.ask("GET", &format!("{BELOW}/dcs/values"), &arrow, "").await;
    assert_eq!(refused.status, 400, "values have no columns of their own");
    assert_eq!(csv(&mut web, "/none/rows").await.status, 404);
    let mut stranger = Web::user(&world, "stranger").await;
    send(&mut web, "PUT", "/dcs", &json!({"readers": ["user:admin"]})).await;
    let refused = csv(&mut stranger, "/dcs/rows").await;
    assert_eq!((refused.status, refused.header("content-type")), (403, "application/problem+json"));
}

/// Property: a check of the whole catalogue reads the runs of elements as well.
#[tokio::test(flavor = "multi_thread")]
async fn check_reads_the_elements_too() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    send(&mut web, "PUT", "/dcs", &json!({})).await;
    let body = json!({"rows": [rows("hv,element=a", &[at(&world, 1)], "v", &json!([1.0]))]});
    send(&mut web, "POST", "/dcs/rows", &body).await;
    let audit = web.ask("POST", "/api/v1/fsck", &[], "").await.json();
    assert_eq!(audit["checked"]["elements"], 1, "{audit}");
    assert_eq!(audit["checked"]["runs of elements"], 0, "the row is in memory and in the log");
}

/// Property: a server without a history says so, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn server_without_history_says_so() {
    let world = World::new().await;
    let answer = Web::admin(&world).await.get(BELOW).await;
    assert_eq!(answer.status, 503);
    assert!(answer.json()["detail"].as_str().unwrap().contains("exacat serve --history"), "{answer:?}");
}
