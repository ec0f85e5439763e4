//! Pages of operators: figures, live events, actions and their confirmation, tables as CSV.

use std::time::Duration;

use exacat_model::operation::{NewReplica, ReplicaEdit, SeSettings};
use exacat_model::{
    Answer as Answered, Cursor, FileRef, Operation, Pfn, ReplicaState, Role, SeName, SeStatus,
};
use exacat_testkit::waiting::found;

use crate::client::Client;
use crate::pages::{FORM, Person, field};
use crate::web::Web;
use crate::world::{World, lfn};

const OPERATORS: [&str; 11] = [
    "/overview",
    "/overview/events",
    "/requests",
    "/slow",
    "/waits",
    "/reports",
    "/servers",
    "/contents",
    "/snapshots",
    "/repair",
    "/action/check",
];

async fn storage_element(world: &World) {
    let prefix = Some("https://se.example.org/data".to_owned());
    let se =
        SeSettings { prefix, qos: Some(Vec::new()), only_new: true, ..exacat_testkit::settings::se("S::E") };
    world.admin(Operation::SeSet(se)).await;
}

/// Property: the pages of operators show their figures to operators, and refuse everybody else.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_operators_refuse_others() {
    let world = World::new().await;
    world.files("/d", 3).await;
    storage_element(&world).await;
    let token = world.new_user("jane").await;
    let mut jane = Person::with_token(&world, &token).await;
    for target in &OPERATORS[..10] {
        assert_eq!(jane.get(target).await.status, 403, "{target}");
    }
    let answer = jane.post("/action/check", &[]).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    for target in OPERATORS {
        assert_eq!(Web::anonymous(&world).await.get(target).await.status, 303, "{target}");
    }
    world.user("jane", |user| user.roles = Some(vec![Role::Operator])).await;
    assert_eq!(jane.get("/browse/d").await.status, 200);
    let page = jane.get("/overview").await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains("The service is healthy."));
    assert!(page.text().contains("data-figure=\"files\">3</dd>"), "{}", page.text());
    assert!(page.text().contains("<bdi>stat</bdi>"), "the table of operations");
    // The store of this world has no snapshots, and an operator may know.
    let page = jane.get("/snapshots").await;
    assert!(page.status == 400 && page.text().contains("needs a store with snapshots"), "{}", page.text());
    let mut admin = Person::admin(&world).await;
    for (target, wanted) in [
        ("/storage", "S::E"),
        ("/quotas", "user:jane"),
        ("/users", "<bdi>jane</bdi>"),
        ("/tokens", "<bdi>Revoke</bdi>"),
        ("/account", "May make changes"),
    ] {
        let page = admin.get(target).await;
        assert_eq!(page.status, 200, "{target}: {}", page.text());
        assert!(page.text().contains(wanted), "{target}: {}", page.text());
    }
    assert!(!jane.get("/tokens").await.text().contains("<bdi>admin</bdi>"), "only her own");
}

/// Property: each table that a page offers as CSV has the rows of the page with exact values, and any other
/// name is refused.
#[tokio::test(flavor = "multi_thread")]
async fn tables_are_csv_too() {
    let world = World::new().await;
    world.files("/d", 3).await;
    storage_element(&world).await;
    let mut admin = Person::admin(&world).await;
    for (target, wanted) in [
        ("/storage?csv=storage", "\"S::E\",\"online\",\"0\",\"0\","),
        ("/quotas?csv=quotas", "\"user:admin\",\"3\",\"no limit\""),
        ("/users?csv=groups", "\"admin\","),
        ("/usage/?csv=usage", "\"d\",\"0\",\"3\""),
        ("/overview?csv=operations", "\"se-list\",\"2\",\"0\""),
        ("/overview?csv=metrics", "\"files\",\"catalogue\",\"3\""),
    ] {
        let answer = admin.get(target).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, "text/csv; charset=utf-8"),
            "{target}"
        );
        assert!(answer.header("content-disposition").starts_with("attachment; filename=\""), "{target}");
        assert!(answer.text().contains(wanted), "{target}: {}", answer.text());
        let page = admin.get(target.split('?').next().unwrap()).await;
        assert!(page.text().contains(target.split_once('?').unwrap().1), "{target} has a link");
    }
    assert_eq!(admin.get("/storage?csv=../x").await.status, 404);
}

/// Property: operators see for each storage element how many clients were sent there and failed, and the
/// oldest deletion that waits; others see neither.
#[tokio::test(flavor = "multi_thread")]
async fn storage_has_failures_and_oldest_deletions() {
    let world = World::new().await;
    storage_element(&world).await;
    let name = SeName::parse("S::E").unwrap();
    let replica = |pfn: &str| NewReplica {
        se: name.clone(),
        pfn: Some(Pfn::parse(pfn).unwrap()),
        state: ReplicaState::Available,
    };
    let files = world.files("/d", 3).await;
    for (file, pfn) in files.iter().zip(["https://a/<b>", "https://a/second", "https://a/third"]) {
        let edits = vec![(FileRef::Lfn(file.clone()), vec![ReplicaEdit::Put(replica(pfn))])];
        world.admin(Operation::SetReplicas { edits }).await;
    }
    let mut admin = Person::admin(&world).await;
    let empty = admin.get("/storage").await;
    assert!(empty.text().contains("No storage element has anything to delete."), "{}", empty.text());
    let drop = ReplicaEdit::Drop { se: name.clone(), delete: true };
    for file in &files[..2] {
        let edits = vec![(FileRef::Lfn(file.clone()), vec![drop.clone()])];
        world.admin(Operation::SetReplicas { edits }).await;
        world.clock.turn(10);
    }
    assert_eq!(admin.get("/download/d/f000002").await.header("location"), "https://a/third");
    let csv = admin.get("/storage?csv=storage").await;
    let head = csv.text().lines().next().unwrap();
    assert!(head.contains("\"Bytes to delete\",\"Clients sent\",\"Failures\",\"Rank\""), "{head}");
    assert!(csv.text().contains(",\"2\",\"0\",\"1\",\"0\",\"\","), "{}", csv.text());
    let csv = admin.get("/storage?csv=queues").await;
    let row = csv.text().lines().nth(1).unwrap();
    assert!(row.starts_with("\"S::E\",\"2\",\"20") && row.ends_with("\"https://a/<b>\""), "{row}");
    let page = admin.get("/storage").await;
    assert!(
        page.text().contains("https://a/&#60;b&#62;") && !page.text().contains("/<b>"),
        "{}",
        page.text()
    );
    let token = world.new_user("jane").await;
    let page = Person::with_token(&world, &token).await.get("/storage").await;
    assert_eq!(page.status, 200, "{}", page.text());
    for hidden in ["Failures", "Deletion queues", "https://a/"] {
        assert!(!page.text().contains(hidden), "{hidden}: {}", page.text());
    }
}

/// Property: an action happens by the form of its confirmation only, with the rights of the person, and each
/// of its pages names the subject as text.
#[tokio::test(flavor = "multi_thread")]
async fn actions_are_confirmed_and_judged() {
    let world = World::new().await;
    storage_element(&world).await;
    let token = world.new_user("jane").await;
    let mut jane = Person::with_token(&world, &token).await;
    let mut admin = Person::admin(&world).await;
    let status = || world.server.catalogue().storage_element(&SeName::parse("S::E").unwrap()).unwrap().status;
    let page = admin.get("/action/se-status?of=S::E").await;
    assert!(page.text().contains("<option>read-only</option>") && field(&page, "of") == "S::E");
    let page = admin.get("/action/se-status?of=%3Cscript%3E").await;
    assert!(page.text().contains("use of &#60;script&#62;."), "{}", page.text());
    assert_eq!(status(), SeStatus::Online, "a GET does nothing");
    assert_eq!(jane.post("/action/se-status", &[("of", "S::E"), ("as", "offline")]).await.status, 403);
    assert_eq!(status(), SeStatus::Online);
    let answer = admin.post("/action/se-status", &[("of", "S::E"), ("as", "read-only")]).await;
    assert_eq!((answer.status, status()), (200, SeStatus::ReadOnly), "{}", answer.text());
    for bad in [vec![("of", "S::E"), ("as", "gone")], vec![("of", "S::E")], vec![("as", "online")]] {
        assert_eq!(admin.post("/action/se-status", &bad).await.status, 400, "{bad:?}");
    }
    let answer = admin.post("/action/check", &[]).await;
    assert!(answer.text().contains("; 0 findings."), "{}", answer.text());
    for missing in ["/action/nothing", "/action/", "/action/../check"] {
        assert_eq!(admin.get(missing).await.status, 404, "{missing}");
    }
    assert_eq!(admin.get("/action/snapshot-drop").await.status, 400, "no subject");
    // Her own token, which ends her session; nobody else's.
    let (other, _) = world.token("admin", 3600).await;
    let id = format!("{:016x}", other.0);
    assert!(matches!(jane.post("/action/token-revoke", &[("of", &id)]).await.status, 403 | 404));
    let own = format!(
        "{:016x}",
        match world.admin(Operation::TokenList).await {
            Answered::Tokens(all) => all.iter().find(|token| token.user.as_str() == "jane").unwrap().id.0,
            other => panic!("{other:?}"),
        }
    );
    let answer = jane.post("/action/token-revoke", &[("of", &own)]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(jane.get("/").await.status, 303);
    let cookie = admin.cookie.clone();
    let forged = admin.web.ask("POST", "/action/check", &[FORM, ("Cookie", &cookie)], "csrf=x").await;
    assert_eq!(forged.status, 403);
}

/// Property: live figures go on while the session lasts, and end with it.
#[tokio::test(flavor = "multi_thread")]
async fn live_figures_end_with_the_session() {
    let world = World::new().await;
    let mut reader = Person::admin(&world).await;
    let cookie = reader.cookie.clone();
    let mut live = Web::anonymous(&world).await;
    live.begin("GET", "/overview/events", &[("Cookie", &cookie)]).await;
    let head = live.head().await;
    assert_eq!((head.status, head.header("content-type")), (200, "text/event-stream"));
    assert_eq!(head.header("cache-control"), "no-store");
    let event = String::from_utf8(live.chunk().await.unwrap()).unwrap();
    let data = event.strip_prefix("event: figures\ndata: ").unwrap_or_else(|| panic!("{event}"));
    let figures: serde_json::Value = serde_json::from_str(data.trim()).unwrap();
    assert!(figures["requests"].is_string() && figures["files"] == "0", "{figures}");
    assert_eq!(reader.post("/sign-out", &[]).await.status, 303);
    let mut last = String::new();
    while let Some(chunk) = live.chunk().await {
        last = String::from_utf8(chunk).unwrap();
    }
    assert_eq!(last, "event: end\ndata: {}\n\n");
}

/// Property: an operator sees each request in progress with its states, cancels one by a confirmed form, and
/// finds nothing to cancel afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn operator_sees_and_cancels_a_request() {
    let world = World::new().await;
    world.files("/d", 3).await;
    let token = world.new_user("jane").await;
    let mut jane = Person::with_token(&world, &token).await;
    let mut admin = Person::admin(&world).await;
    let mut waits = Client::with_token(&world, &token).await;
    world.hooks.hold_lists.send_replace(true);
    let list = Operation::List { lfn: lfn("/d"), cursor: Cursor(Vec::new()), limit: 10 };
    let request = waits.ask(list).await;
    let row = found("the request on the page", async || {
        let csv = admin.get("/requests?csv=requests").await.text().to_owned();
        csv.lines().find(|line| line.contains("\"list\"") && line.contains("\"jane\"")).map(str::to_owned)
    })
    .await;
    let number = row.split('"').nth(1).unwrap().to_owned();
    assert!(row.contains("\"127.0.0.1\"") || row.contains("\"\""), "{row}");
    let page = admin.get(&format!("/requests?id={number}")).await;
    assert!(page.status == 200 && page.text().contains("/action/request-kill?of="), "{}", page.text());
    assert!(page.text().contains("<bdi>execute</bdi>"), "its states: {}", page.text());
    let target = format!("/action/request-kill?of={number}");
    let page = admin.get(&target).await;
    assert!(page.text().contains(&format!("Cancel the request {number}?")), "{}", page.text());
    assert_eq!(jane.post("/action/request-kill", &[("of", &number)]).await.status, 403);
    for bad in ["x", "-1", "18446744073709551616"] {
        assert_eq!(admin.post("/action/request-kill", &[("of", bad)]).await.status, 400, "{bad}");
    }
    assert_eq!(admin.post("/action/request-kill", &[("of", &number)]).await.status, 200);
    assert!(waits.outcome(request).await.is_err());
    assert_eq!(admin.post("/action/request-kill", &[("of", &number)]).await.status, 404);
    assert_eq!(admin.get("/requests?id=0").await.status, 404);
    assert_eq!(admin.get("/requests?id=x").await.status, 400);
}

/// Property: a slow request is shown with its states in words, as a bar, as a table and as CSV; its path is
/// text, whatever is in it.
#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_have_their_states() {
    let world = World::with_limits(|limits| {
        (limits.slow_request, limits.slow_long_request) = (Duration::from_nanos(1), Duration::from_nanos(1));
    })
    .await;
    let mut admin = Person::admin(&world).await;
    world.directory("/<script>").await;
    assert_eq!(admin.get("/browse/%3Cscript%3E").await.status, 200);
    let page = admin.get("/slow").await;
    let text = page.text();
    assert!(
        page.status == 200 && text.contains("/&#60;script&#62;") && !text.contains("<bdi>/<script"),
        "{text}"
    );
    assert!(text.contains("<rect class=\"of-cpu\"") && text.contains("execute\u{a0}"), "{text}");
    let csv = admin.get("/slow?csv=slow").await;
    let row = csv.text().lines().find(|line| line.contains("\"/<script>\"")).unwrap();
    assert!(row.contains("execute="), "{row}");
    let number = row.split('"').nth(1).unwrap();
    let page = admin.get(&format!("/slow?id={number}")).await;
    assert!(
        page.text().contains("<bdi>execute</bdi>") && !page.text().contains("request-kill"),
        "{}",
        page.text()
    );
    let csv = admin.get(&format!("/slow?id={number}&csv=states")).await;
    assert!(csv.text().starts_with("\"State\",\"Class\",\"Time\",\"Share\""), "{}", csv.text());
}

/// Property: waits over time and reports are pages, tables and CSV; a time that is none is refused.
#[tokio::test(flavor = "multi_thread")]
async fn activity_is_shown_over_time() {
    let world = World::new().await;
    world.files("/d", 3).await;
    let mut admin = Person::admin(&world).await;
    assert_eq!(admin.get("/browse/d").await.status, 200);
    for (target, wanted) in [
        ("/waits", "role=\"img\""),
        ("/waits?span=86400", "value=\"86400\" selected"),
        ("/waits?span=7", "value=\"600\" selected"),
        ("/waits?csv=waits", "\"From (UTC)\",\"Requests\",\"cpu\",\"commit\""),
        ("/reports", "<h2>Load</h2>"),
        ("/reports?csv=Load", "\"FIGURE\",\"VALUE\""),
    ] {
        let page = admin.get(target).await;
        assert!(page.status == 200 && page.text().contains(wanted), "{target}: {}", page.text());
    }
    for bad in
        ["/waits?to=soon", "/reports?from=x", "/reports?from=2026-01-02&to=2026-01-01", "/reports?csv=x"]
    {
        assert!(matches!(admin.get(bad).await.status, 400 | 404), "{bad}");
    }
}

/// Property: a server has a row with its rates and its machine, then a total and an average; the numbers are
/// those of its requests.
#[tokio::test(flavor = "multi_thread")]
async fn servers_have_rows_with_their_machines() {
    let world = World::new().await;
    world.files("/d", 3).await;
    let mut admin = Person::admin(&world).await;
    let row = found("rates of the requests on the page", async || {
        assert_eq!(admin.get("/browse/d").await.status, 200);
        world.clock.turn(20);
        let csv = admin.get("/servers?csv=rates").await.text().to_owned();
        let rows: Vec<&str> = csv.lines().collect();
        assert_eq!(rows.len(), 4, "{csv}");
        assert!(rows[2].starts_with("\"Total\",\"\",\"\",") && rows[3].starts_with("\"Average\","), "{csv}");
        let cells: Vec<String> = rows[1].trim_matches('"').split("\",\"").map(str::to_owned).collect();
        let rate = |cell: &str| cell.parse::<f64>().unwrap() > 0.0;
        (rate(&cells[3]) && rate(&cells[4]) && cells[6] != "0").then_some(cells)
    })
    .await;
    assert_eq!((row[1].as_str(), row[9].as_str()), ("serving", env!("CARGO_PKG_VERSION")), "{row:?}");
    let page = admin.get("/servers").await;
    let own = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(page.text().contains(own.trim()), "the kernel: {}", page.text());
    let csv = admin.get("/servers?csv=memory").await;
    let size = csv.text().lines().nth(1).unwrap().split("\",\"").nth(1).unwrap().parse::<u64>().unwrap();
    assert!(size > 1 << 20, "{}", csv.text());
}

/// Property: the contents over time are those of the whole, of a storage element, and of an owner with a
/// quota, as pictures, tables and CSV.
#[tokio::test(flavor = "multi_thread")]
async fn contents_are_shown_over_time() {
    let world = World::new().await;
    world.files("/d", 3).await;
    storage_element(&world).await;
    let owner = exacat_model::operation::Owner::User(exacat_model::AccountName::parse("admin").unwrap());
    let quota = Operation::QuotaSet { owner, files: Some(10), bytes: None, replica_bytes: None };
    world.admin(quota).await;
    let mut admin = Person::admin(&world).await;
    for (target, wanted) in [
        ("/contents", "role=\"img\""),
        ("/contents", "<option value=\"se:S::E\">S::E</option>"),
        ("/contents?of=user:admin&span=365", "Usage of user:admin"),
        ("/contents?of=se:S::E", "Replicas on S::E"),
        ("/contents?span=4", "value=\"7\" selected"),
        ("/contents?csv=contents", "\",\"4\",\"1\",\"3\",\"0\",\"0\",\"0\""),
        ("/contents?of=user:admin&csv=contents", "\",\"\",\"2\",\"3\",\"0\",\"0\",\"0\""),
    ] {
        let page = admin.get(target).await;
        assert!(page.status == 200 && page.text().contains(wanted), "{target}: {}", page.text());
    }
    for bad in ["/contents?of=se:X", "/contents?of=user:jane", "/contents?of=%3Cscript%3E"] {
        let page = admin.get(bad).await;
        assert!(page.status == 404 && !page.text().contains("<script>"), "{bad}: {}", page.text());
    }
    // The sample of the start is kept.
    let contents = world.directory.path().join("data/contents");
    found("a file of samples", async || std::fs::read_dir(&contents).ok()?.next().map(drop)).await;
}

/// Property: an operator throttles a user and drains the server by confirmed forms; a drained server has the
/// pages that resume it, and refuses the others with a time to come back.
#[tokio::test(flavor = "multi_thread")]
async fn operator_throttles_and_drains_by_forms() {
    let world = World::new().await;
    let token = world.new_user("jane").await;
    let mut jane = Person::with_token(&world, &token).await;
    let mut admin = Person::admin(&world).await;
    let set = [("of", "user:jane"), ("number", "20")];
    assert_eq!(jane.post("/action/throttle-set", &set).await.status, 403);
    assert!(admin.get("/action/throttle-set").await.text().contains("name=\"number\""));
    assert_eq!(admin.post("/action/throttle-set", &set).await.status, 200);
    for bad in [
        [("of", "user:jane"), ("number", "x")],
        [("of", "jane"), ("number", "1")],
        [("of", ""), ("number", "1")],
    ] {
        assert_eq!(admin.post("/action/throttle-set", &bad).await.status, 400, "{bad:?}");
    }
    assert_eq!(admin.post("/action/throttle-set", &[("of", "user:x"), ("number", "1")]).await.status, 404);
    let csv = admin.get("/throttles?csv=throttles").await;
    assert!(csv.text().contains("\"user:jane\",\"20\",\"0\",\"0\",\"0\""), "{}", csv.text());
    let page = admin.get("/throttles").await;
    assert!(page.text().contains("/action/throttle-clear?of=user%3Ajane"), "{}", page.text());
    assert_eq!(jane.get("/throttles").await.status, 403);
    assert_eq!(admin.post("/action/throttle-clear", &[("of", "user:jane")]).await.status, 200);
    assert_eq!(admin.post("/action/throttle-clear", &[("of", "user:jane")]).await.status, 404);

    assert!(admin.get("/overview").await.text().contains("/action/drain\""));
    assert_eq!(jane.post("/action/drain", &[]).await.status, 403);
    assert_eq!(admin.get("/browse/").await.status, 200);
    assert_eq!(admin.post("/action/drain", &[]).await.status, 200);
    let mut web = Web::anonymous(&world).await;
    for refused in ["/browse/", "/api/v1/whoami", "/dav/", "/search"] {
        let mut web = Web::anonymous(&world).await;
        let answer = web.get(refused).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{refused}: {}", answer.text());
        assert!(answer.text().contains("drained"), "{refused}: {}", answer.text());
    }
    assert_eq!(web.get("/readyz").await.status, 503);
    let page = admin.get("/overview").await;
    assert!(page.status == 200 && page.text().contains("/action/drain-resume"), "{}", page.text());
    assert!(admin.get("/servers?csv=rates").await.text().contains("\"drained\""));
    assert_eq!(admin.post("/action/drain-resume", &[]).await.status, 200);
    assert_eq!(admin.get("/browse/").await.status, 200);
    // The same by the REST API, which a drained server has for that alone.
    let mut api = Web::admin(&world).await;
    assert_eq!(api.ask("PUT", "/api/v1/drain", &[], "").await.status, 200);
    let mut api = Web::admin(&world).await;
    assert_eq!(api.ask("DELETE", "/api/v1/drain", &[], "").await.status, 200);
    assert_eq!(api.get("/api/v1/whoami").await.status, 200);
}
