//! InfluxDB's interface: writes and queries as its clients send them, and the answers that they need.

use std::collections::BTreeMap;
use std::io::Write as _;

use exacat_server::ServerSettings;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::web::{Answer, Web};
use crate::world::World;

/// Time of the tests' values: some seconds before the clock of the world, so that none is in the future.
fn at(world: &World, seconds: i64) -> i64 {
    let now = i64::try_from(world.clock.shared().trusted().0).unwrap() / 1000;
    (now - 100 + seconds) * 1_000_000_000
}

async fn world() -> World {
    World::with(|settings: &mut ServerSettings| settings.elements = true).await
}

async fn query(web: &mut Web, text: &str) -> Answer {
    let encoded: String = url_encoded(text);
    web.ask("POST", &format!("/query?db=det&epoch=ms&q={encoded}"), &[], "").await
}

fn url_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Makes the database, as clients do at each start.
async fn made(web: &mut Web) {
    let answer = query(web, "CREATE DATABASE \"det\"").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"results": [{"statement_id": 0}]})));
}

async fn write(web: &mut Web, body: &str) -> Answer {
    web.ask("POST", "/write?db=det", &[("Content-Type", "text/plain; charset=utf-8")], body).await
}

fn error(answer: &Answer) -> String {
    let text = answer.json()["error"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
    assert!(!answer.header("x-influxdb-error").is_empty());
    text
}

/// Returns the seconds of an operation in each state, and in all of them.
async fn states(web: &mut Web, operation: &str) -> (BTreeMap<String, f64>, f64) {
    let text = String::from_utf8(web.get("/metrics").await.body.to_vec()).unwrap();
    let (mut states, mut life) = (BTreeMap::new(), 0.0);
    for line in text.lines().filter(|line| line.contains(&format!("operation=\"{operation}\""))) {
        let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        if line.starts_with("exacat_request_life_seconds_total{") {
            life = value;
        } else if line.starts_with("exacat_request_state_seconds_total{") {
            let state = line.split_once("state=\"").unwrap().1.split('"').next().unwrap();
            states.insert(state.to_owned(), value);
        }
    }
    (states, life)
}

/// Property: writes and queries are requests like others: their states add up to their lives, hardly any
/// time has no name, and a write waits for the log.
#[tokio::test(flavor = "multi_thread")]
async fn time_of_writes_and_queries_has_names() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    made(&mut web).await;
    let lines = |round: i64| -> String {
        (0..2000).map(|row| format!("ev,e=a{row} v={row} {}\n", at(&world, round))).collect()
    };
    let operations = [("element-write", ["decode", "log_sync"]), ("element-rows", ["execute", "execute"])];
    let (mut before, mut least) = ([(0.0, 0.0); 2], [f64::INFINITY; 2]);
    for round in 0..20 {
        assert_eq!(write(&mut web, &lines(round)).await.status, 204);
        assert_eq!(query(&mut web, "SELECT last(v) FROM ev GROUP BY e").await.status, 200);
        for (number, (operation, _)) in operations.into_iter().enumerate() {
            let (states, life) = states(&mut web, operation).await;
            let unnamed = states.get("unaccounted").copied().unwrap_or_default();
            let (unnamed_before, life_before) = std::mem::replace(&mut before[number], (unnamed, life));
            if life > life_before {
                least[number] = least[number].min((unnamed - unnamed_before) / (life - life_before));
            }
        }
    }
    // Of the quietest round: a thread that waits for a processor has no name for that.
    assert!(least.iter().all(|share| *share <= 0.05), "without a name: {least:?}");
    for (operation, wanted) in operations {
        let (states, life) = states(&mut web, operation).await;
        let sum: f64 = states.values().sum();
        assert!(life > 0.0 && (sum - life).abs() <= 0.01 * life, "{operation}: {sum} of {life}");
        let of = |state: &str| states.get(state).copied().unwrap_or_default();
        assert!(wanted.iter().all(|state| of(state) > 0.0), "{operation}: {states:?}");
    }
    let (_, life) = states(&mut web, "mkdir").await;
    assert_eq!(life, 0.0);
}

/// Property: a throttle of a user counts rows.
#[tokio::test(flavor = "multi_thread")]
async fn throttle_counts_rows() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    made(&mut web).await;
    let mut user = Web::user(&world, "detector").await;
    let writers = [("Content-Type", "application/json")];
    let settings = "{\"writers\": [\"user:detector\"]}";
    assert_eq!(web.ask("PUT", "/api/v1/history/det", &writers, settings).await.status, 200);
    let limit =
        web.ask("PUT", "/api/v1/throttles/user:detector", &writers, "{\"items_per_second\": 10}").await;
    assert_eq!(limit.status, 200, "{limit:?}");
    let lines: String = (0..1000).map(|row| format!("ev,e=a{row} v=1 {}\n", at(&world, 1))).collect();
    assert_eq!(
        write(&mut user, &lines).await.status,
        204,
        "what goes beyond the rate is paid for afterwards"
    );
    let refused = write(&mut user, &lines).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{refused:?}");
    assert_eq!(write(&mut web, &lines).await.status, 204, "others go on");
}

/// Property: ping and health need no credentials, and tell the version that clients look for.
#[tokio::test(flavor = "multi_thread")]
async fn ping_and_health_are_those_of_influxdb() {
    let world = world().await;
    let mut web = Web::anonymous(&world).await;
    let answer = web.get("/ping").await;
    assert_eq!((answer.status, answer.header("x-influxdb-version")), (204, "1.8.10"));
    assert_eq!(web.get("/ping?verbose=true").await.json(), json!({"version": "1.8.10"}));
    assert_eq!(web.get("/health").await.json()["status"], "pass");
    assert_eq!(web.get("/api/v2/buckets?name=b").await.status, 404);
    let plain = World::new().await;
    let answer = Web::anonymous(&plain).await.get("/ping").await;
    assert_eq!(answer.status, 404, "a server without history");
}

/// Property: lines are durable and readable once they are answered with 204, in each form that clients
/// send: plain, chunked and compressed, version 1 and 2, each kind of credentials.
#[tokio::test(flavor = "multi_thread")]
async fn lines_are_written_and_read_back() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    made(&mut web).await;
    let (one, two, three) = (at(&world, 1), at(&world, 2), at(&world, 3));
    let answer = write(&mut web, &format!("ev,e=a v=1,q=0i {one}")).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0), "{answer:?}");
    // Telegraf: chunked and compressed, without a length.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(format!("ev,e=a v=2 {two}\nev,e=b v=5 {two}\n").as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let headers = [("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")];
    web.begin("POST", "/api/v2/write?org=o&bucket=det/autogen&precision=ns", &headers).await;
    web.send(format!("{:x}\r\n", gzip.len()).as_bytes()).await;
    web.send(&gzip).await;
    web.send(b"\r\n0\r\n\r\n").await;
    let answer = web.answer(false).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let token = web.token.take().unwrap();
    for scheme in [format!("Token any:{token}"), format!("Token {token}")] {
        let body = format!("ev,e=c v=7 {}", three / 1_000_000);
        let headers = [("Authorization", scheme.as_str())];
        let answer = web.ask("POST", "/write?db=det&precision=ms", &headers, &body).await;
        assert_eq!(answer.status, 204, "{scheme}: {answer:?}");
    }
    web.token = Some(token);
    let ms = |time: i64| time / 1_000_000;
    let answer = query(&mut web, "SELECT v, q FROM ev").await;
    let values = json!([[ms(one), 1, 0], [ms(two), 2, null], [ms(two), 5, null], [ms(three), 7, null]]);
    let series = &answer.json()["results"][0]["series"][0];
    assert_eq!(
        (&series["name"], &series["columns"], &series["values"]),
        (&json!("ev"), &json!(["time", "v", "q"]), &values)
    );
    let answer = query(&mut web, &format!(
        "SELECT mean(\"v\") FROM \"ev\" WHERE time >= {one} AND time < {three} GROUP BY time(1s), \"e\"::tag fill(null)"
    )).await;
    let json = answer.json();
    let all = json["results"][0]["series"].as_array().unwrap_or_else(|| panic!("{json}"));
    assert_eq!(all.len(), 2, "{json}");
    assert_eq!((&all[0]["tags"], &all[0]["values"][0][1]), (&json!({"e": "a"}), &json!(1)));
    let answer = query(&mut web, "SHOW TAG VALUES FROM ev WITH KEY = e").await;
    assert_eq!(
        answer.json()["results"][0]["series"][0]["values"],
        json!([["e", "a"], ["e", "b"], ["e", "c"]])
    );
    let answer = query(&mut web, "SHOW FIELD KEYS FROM ev").await;
    assert_eq!(answer.json()["results"][0]["series"][0]["values"], json!([["q", "integer"], ["v", "float"]]));
    let answer = query(&mut web, "SHOW RETENTION POLICIES ON det").await;
    assert_eq!(
        answer.json()["results"][0]["series"][0]["values"],
        json!([["autogen", "0s", "168h0m0s", 1, true]])
    );
    let answer = query(&mut web, "SELECT last(v) FROM ev WHERE e = 'a'").await;
    assert_eq!(answer.json()["results"][0]["series"][0]["values"], json!([[ms(two), 2]]));
    let answer = query(&mut web, "SELECT count(v), sum(v), mean(v) FROM ev WHERE e = 'c'").await;
    assert_eq!(answer.json()["results"][0]["series"][0]["values"][0], json!([0, 1, 7, 7]));
    let answer = query(&mut web, "SELECT v FROM ev WHERE v = 'text'").await;
    assert_eq!(
        answer.json()["results"][0]["error"],
        "v is a field: conditions on fields are not answered here"
    );
    let parameters = url_encoded("{\"of\": \"b\"}");
    let target =
        format!("/query?db=det&params={parameters}&q={}", url_encoded("SELECT v FROM ev WHERE e = $of"));
    let answer = web.ask("POST", &target, &[], "").await;
    assert_eq!(answer.json()["results"][0]["series"][0]["values"][0][1], 5, "{answer:?}");
    let answer = query(&mut web, "SELECT v FROM ev WHERE e = 'nothing'").await;
    assert_eq!(answer.json(), json!({"results": [{"statement_id": 0}]}));
    let headers = [("Accept", "application/csv")];
    let answer = web
        .ask("GET", "/query?db=det&q=SELECT%20v%20FROM%20ev%20WHERE%20e%20%3D%20%27b%27", &headers, "")
        .await;
    assert_eq!(answer.text(), format!("name,tags,time,v\nev,,{two},5\n"));
}

/// Property: refusals have the statuses and words that clients act on, and good lines among bad ones are
/// written.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_those_of_influxdb() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    made(&mut web).await;
    let time = at(&world, 1);
    let answer = write(&mut web, &format!("ev v=1 {time}\nbad line here x\nev v=2 {}", time + 1)).await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        error(&answer),
        "partial write: unable to parse 'bad line here x': invalid field format dropped=0"
    );
    let answer = query(&mut web, "SELECT count(v) FROM ev").await;
    assert_eq!(answer.json()["results"][0]["series"][0]["values"][0][1], 2);
    let answer = write(&mut web, &format!("ev v=\"text\" {time}")).await;
    assert!(error(&answer).starts_with("partial write: field type conflict: "), "{answer:?}");
    for (target, status, text) in [
        ("/write", 400, "database is required"),
        ("/write?db=nope", 404, "database not found: \"nope\""),
        ("/api/v2/write?org=o&bucket=nope", 404, "database not found: \"nope\""),
        ("/write?db=det&precision=x", 400, "invalid precision \"x\" (use n, u, ms, s, m or h)"),
    ] {
        let answer = web.ask("POST", target, &[], "ev v=1").await;
        assert_eq!((answer.status, error(&answer).as_str()), (status, text), "{target}");
    }
    let answer = query(&mut web, "SELECT FROM").await;
    assert_eq!(answer.status, 400);
    assert!(error(&answer).starts_with("error parsing query: "), "{answer:?}");
    let answer = web.ask("POST", "/query?db=nope&q=SELECT%20v%20FROM%20ev", &[], "").await;
    assert_eq!(answer.json()["results"][0]["error"], "database not found: nope");
    let large = "x".repeat(26_000_000);
    let answer = write(&mut web, &large).await;
    assert_eq!(answer.status, 413);
    let mut web = Web::admin(&world).await;
    let answer = web.ask("POST", "/write?db=det", &[("Content-Encoding", "gzip")], "no gzip").await;
    assert_eq!(answer.status, 400, "{answer:?}");
}

/// Property: readers, writers and owners have the rights that a group gives them, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn rights_of_groups_are_judged() {
    let world = world().await;
    let mut admin = Web::admin(&world).await;
    made(&mut admin).await;
    let time = at(&world, 1);
    assert_eq!(write(&mut admin, &format!("ev v=1 {time}")).await.status, 204);
    let mut nobody = Web::anonymous(&world).await;
    let answer = write(&mut nobody, &format!("ev v=2 {time}")).await;
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, "Basic realm=\"InfluxDB\""));
    let answer = query(&mut nobody, "SELECT v FROM ev").await;
    assert_eq!(answer.status, 401, "{answer:?}");
    let mut user = Web::user(&world, "physicist").await;
    let answer = write(&mut user, &format!("ev v=3 {time}")).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    let answer = query(&mut user, "SELECT v FROM ev").await;
    assert_eq!(
        answer.json()["results"][0]["series"][0]["values"][0][1],
        1,
        "a group without readers is open"
    );
    let answer = query(&mut user, "CREATE DATABASE mine; DROP DATABASE det").await;
    let results: Value = answer.json()["results"].clone();
    assert!(results[0]["error"].is_string() && results[1]["error"].is_string(), "{results}");
    let answer = query(&mut admin, "SHOW DATABASES").await;
    assert_eq!(answer.json()["results"][0]["series"][0]["values"], json!([["det"]]));
}

/// Property: what was answered is there after the server was started again.
#[tokio::test(flavor = "multi_thread")]
async fn values_are_there_after_a_restart() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    made(&mut web).await;
    let time = at(&world, 1);
    assert_eq!(write(&mut web, &format!("ev,e=a v=1 {time}")).await.status, 204);
    drop(web);
    let world = world.restarted().await;
    let mut web = Web::admin(&world).await;
    let answer = query(&mut web, "SELECT v FROM ev").await;
    assert_eq!(answer.json()["results"][0]["series"][0]["values"], json!([[time / 1_000_000, 1]]));
}

/// Property: each answer has the id of its request, in both headers that clients of InfluxDB know: the
/// client's own one, else a new one.
#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_id_of_their_request() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    let mut seen = std::collections::BTreeSet::new();
    for target in ["/ping", "/health", "/query?q=SHOW%20DATABASES", "/write", "/api/v2/nothing"] {
        let answer = web.get(target).await;
        let id = answer.header("request-id").to_owned();
        assert_eq!((id.len(), answer.header("x-request-id")), (36, id.as_str()), "{target}: {answer:?}");
        assert!(seen.insert(id), "{target}: the id of another request");
    }
    for (headers, id) in [
        (vec![("Request-Id", "mine")], "mine"),
        (vec![("Request-Id", "second"), ("X-Request-Id", "first")], "first"),
    ] {
        let answer = web.ask("GET", "/ping", &headers, "").await;
        assert_eq!((answer.header("request-id"), answer.header("x-request-id")), (id, id));
    }
    let long = "x".repeat(300);
    let answer = web.ask("GET", "/ping", &[("X-Request-Id", long.as_str())], "").await;
    assert_eq!(answer.header("request-id").len(), 36, "an id that is too long is replaced");
}

/// Property: the request of Rucio's hermes, which writes lines itself, is answered as it needs: 204 and
/// nothing else. Its counts are numbers with a fraction, and its activities have spaces.
#[tokio::test(flavor = "multi_thread")]
async fn request_of_hermes_is_taken() {
    let world = world().await;
    let mut web = Web::admin(&world).await;
    made(&mut web).await;
    // The form of aggregate_to_influx in lib/rucio/daemons/hermes/hermes.py: a minute, and some nanoseconds.
    let minute = at(&world, 0) / 60_000_000_000 * 60_000_000_000 + 123_456;
    let body = format!(
        "transfer,activity=Production\\ Input,src_rse=CERN-PROD_DATADISK,dst_rse=DESY-HH_DATADISK \
         nb_transfer_done=3,bytes_transfer_done=30000000000,nb_transfer_failed=1,bytes_transfer_failed=7 {minute}\n\
         deletion,rse=CERN-PROD_SCRATCHDISK \
         nb_deletion_done=2,bytes_deletion_done=20,nb_deletion_failed=0,bytes_deletion_failed=0 {minute}\n"
    );
    // Python's requests, which hermes posts with.
    let token = format!("Token {}", web.token.take().unwrap());
    let headers = [
        ("User-Agent", "python-requests/2.32.3"),
        ("Accept-Encoding", "gzip, deflate"),
        ("Accept", "*/*"),
        ("Connection", "keep-alive"),
        ("Authorization", token.as_str()),
    ];
    for target in ["/api/v2/write?org=rucio&bucket=det", "/write?db=det"] {
        let answer = web.ask("POST", target, &headers, &body).await;
        assert_eq!((answer.status, answer.text()), (204, ""), "{target}: {answer:?}");
    }
    web.token = Some(token.trim_start_matches("Token ").to_owned());
    let answer =
        query(&mut web, "SELECT bytes_transfer_done FROM transfer WHERE activity = 'Production Input'").await;
    let values = &answer.json()["results"][0]["series"][0]["values"];
    assert_eq!(
        *values,
        json!([[minute / 1_000_000, 30_000_000_000u64]]),
        "the repeated request changes nothing"
    );
}
