//! Pages about two moments and past states: comparisons, searches in the past and by values of elements,
//! reports of two periods, and what a snapshot or a repair takes.

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Operation, Role, SnapshotName, TimeNs};
use serde_json::json;

use crate::pages::{Person, encoded};
use crate::web::Web;
use crate::world::{World, lfn};

const HOSTILE: &str = "<script>\u{202e}\"x";

async fn revision(world: &World) -> u64 {
    world.server.catalogue().store().revision().await.unwrap().0
}

async fn snapshot(world: &World, name: &str) {
    world.admin(Operation::SnapshotCreate { name: SnapshotName::parse(name).unwrap() }).await;
}

/// Property: any two of revision, time, snapshot and now are compared, in the files of snapshots or by the
/// history, below a directory; both ways tell the same.
#[tokio::test(flavor = "multi_thread")]
async fn any_two_moments_are_compared() {
    let world = World::embedded().await;
    let files = world.files("/d", 2).await;
    world.files("/other", 1).await;
    snapshot(&world, "first").await;
    let before = revision(&world).await;
    world.admin(Operation::Move { from: files[0].clone(), to: lfn("/d/moved") }).await;
    world.admin(Operation::Remove { lfn: files[1].clone(), recursive: false, directory: false }).await;
    let hostile = NewFile::named(lfn(&format!("/d/{HOSTILE}")));
    world
        .admin(Operation::Register { files: vec![hostile], parents: false, existing: Existing::Refuse })
        .await;
    world.files("/other/more", 1).await;
    let between = revision(&world).await;
    snapshot(&world, "second").await;
    world.files("/d/late", 1).await;
    let mut admin = Person::admin(&world).await;
    let token = world.new_user("jane").await;
    let mut jane = Person::with_token(&world, &token).await;
    let wanted = ["<bdi>/d/moved</bdi>", "from /d/f000000", "<bdi>/d/f000001</bdi>", "removed", "created"];
    for (from, to) in [
        ("first".to_owned(), "second".to_owned()),
        (before.to_string(), between.to_string()),
        ("first".to_owned(), between.to_string()),
        (before.to_string(), "second".to_owned()),
        ("1970-01-02".to_owned(), between.to_string()),
    ] {
        let target = format!("/compare?before={from}&after={to}&under=/d");
        let page = admin.get(&target).await;
        assert_eq!(page.status, 200, "{target}: {}", page.text());
        assert!(!page.text().contains("<script>") && !page.text().contains('\u{202e}'), "{target}");
        assert!(!page.text().contains("/other") && !page.text().contains("/d/late"), "{target}");
        if from != "1970-01-02" {
            for part in wanted {
                assert!(page.text().contains(part), "{target}, {part}: {}", page.text());
            }
        }
        assert!(page.text().contains("&#60;script&#62;\\u{202e}"), "{target}: {}", page.text());
        // She may not know of snapshots, nor read the history of everything.
        let names_one = from == "first" || to == "second";
        assert_eq!(jane.get(&target).await.status, if names_one { 404 } else { 403 }, "{target}");
    }
    // Now is the default, and has the last changes.
    for (from, to) in [("first", ""), ("second", "now"), (before.to_string().as_str(), "")] {
        let page = admin.get(&format!("/compare?before={from}&after={to}")).await;
        assert!(page.text().contains("/d/late"), "{from}: {}", page.text());
    }
    world.user("jane", |user| user.roles = Some(vec![Role::Operator])).await;
    let page = jane.get("/compare?before=first&after=second&under=/d").await;
    assert!(page.status == 200 && page.text().contains("/d/moved"), "by the history: {}", page.text());
    for (bad, status) in [
        (format!("before={}&after={}", between - 1, before + 1), 400),
        (format!("before={}", between + 1000), 400),
        (format!("before=0&after={}", between + 1000), 404),
        ("before=nothing".to_owned(), 404),
        (format!("before={}", encoded(HOSTILE)), 404),
        ("before=0&under=x".to_owned(), 400),
        ("before=first&after=second&cursor=x".to_owned(), 404),
        ("before=0&cursor=x".to_owned(), 404),
    ] {
        let page = admin.get(&format!("/compare?{bad}")).await;
        assert_eq!(page.status, status, "{bad}: {}", page.text());
        assert!(!page.text().contains("<script>"), "{bad}");
    }
}

/// Property: differences by the history have pages, and each is on one of them.
#[tokio::test(flavor = "multi_thread")]
async fn differences_by_the_history_have_pages() {
    let world = World::new().await;
    world.directory("/d").await;
    let before = revision(&world).await;
    world.files("/d", 450).await;
    let mut admin = Person::admin(&world).await;
    let (mut target, mut seen) = (format!("/compare?before={before}"), Vec::new());
    for _ in 0..3 {
        let page = admin.get(&target).await;
        assert!(page.text().contains("differences 450"), "{}", page.text());
        let rows = page.text().split("href=\"/entry/d/f").skip(1);
        seen.extend(rows.map(|row| row.split('"').next().unwrap().to_owned()));
        let Some((link, _)) = page.text().split_once("\">Next page</a>") else { break };
        target = link.rsplit_once("href=\"").unwrap().1.replace("&#38;", "&");
    }
    assert_eq!(seen.len(), 450);
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
}

/// Property: a search at a revision shows what was there then, to known people only, and tells the revision.
#[tokio::test(flavor = "multi_thread")]
async fn search_shows_a_past_state() {
    let world = World::embedded().await;
    let files = world.files("/d", 2).await;
    let then = revision(&world).await;
    world.admin(Operation::Remove { lfn: files[0].clone(), recursive: false, directory: false }).await;
    world.files("/d/late", 1).await;
    let mut admin = Person::admin(&world).await;
    let target = format!("/search?lfn=/d&kind=file&at={then}");
    let page = admin.get(&target).await;
    assert!(page.text().contains("/d/f000000") && !page.text().contains("/d/late"), "{}", page.text());
    assert!(page.text().contains(&format!("As of revision {then};")), "{}", page.text());
    let page = admin.get("/search?lfn=/d&kind=file").await;
    assert!(!page.text().contains("/d/f000000") && page.text().contains("/d/late"), "{}", page.text());
    for (bad, status) in [("yesterday", 400), ("%3Cscript%3E", 400), ("999999", 404), ("2999-01-01", 404)] {
        let page = admin.get(&format!("/search?name=x&at={bad}")).await;
        assert_eq!(page.status, status, "{bad}: {}", page.text());
        assert!(!page.text().contains("<script>"));
    }
    // On a store without past states the reason is told.
    let world = World::new().await;
    let page = Person::admin(&world).await.get("/search?name=x&at=1").await;
    assert!(page.status == 400 && page.text().contains("past states need"), "{}", page.text());
}

/// Property: a search finds entries of the times in which an element had a value, and by the numbers of the
/// runs of those times; only who may read the group can ask, and wrong conditions are told.
#[tokio::test(flavor = "multi_thread")]
async fn search_takes_times_of_an_element() {
    let world = World::with(|settings| settings.elements = true).await;
    let now = i64::try_from(world.clock.shared().trusted().0).unwrap() / 1000;
    let at = |seconds: i64| TimeNs((now + seconds) * 1_000_000_000).to_string();
    let mut web = Web::admin(&world).await;
    let group = json!({"readers": ["user:admin"]});
    assert_eq!(web.json("PUT", "/api/v1/history/dcs", group).await.status, 200);
    let row = |key: &str, seconds: &[i64], kind: &str, values: serde_json::Value| {
        let times: Vec<String> = seconds.iter().map(|seconds| at(*seconds)).collect();
        json!({"key": key, "times": times, "columns": [{"field": "v", "type": kind, "values": values}]})
    };
    let rows = json!({"rows": [
        row("beam", &[-100, 0], "string", json!(["OFF", "ON"])),
        row("run", &[-100, -5], "integer", json!([7, 8])),
    ]});
    let written = web.json("POST", "/api/v1/history/dcs/rows", rows).await;
    assert_eq!((written.status, written.json()["refused"].as_u64()), (200, Some(0)), "{}", written.text());
    let files = world.files("/d", 2).await;
    let tag = exacat_model::Tag {
        key: exacat_model::TagKey::parse("run").unwrap(),
        value: exacat_model::TagValue::parse("8").unwrap(),
    };
    world.admin(Operation::TagSet { lfns: vec![files[1].clone()], set: vec![tag], unset: Vec::new() }).await;
    let mut admin = Person::admin(&world).await;
    for (condition, found) in [
        ("during=dcs:beam%3DON", [true, true]),
        ("during=dcs:beam%3DOFF", [false, false]),
        ("during=dcs:beam!%3DON&during_by=modified", [false, false]),
        ("during=dcs:beam%3DON&during_by=run", [false, true]),
    ] {
        let page = admin.get(&format!("/search?lfn=/d&{condition}")).await;
        assert_eq!(page.status, 200, "{condition}: {}", page.text());
        let shown = files.iter().map(|file| page.text().contains(&format!("<bdi>{file}</bdi>")));
        assert_eq!(shown.collect::<Vec<_>>(), found, "{condition}: {}", page.text());
    }
    for (bad, status) in [
        ("during=beam", 400),
        ("during=dcs:%3Cscript%3E%3D1", 404),
        ("during=none:beam%3DON", 404),
        ("during=dcs:*%3DON", 400),
        ("during=dcs:beam%3C3", 400),
        ("during=dcs:beam%3DON&during_by=x", 400),
    ] {
        let page = admin.get(&format!("/search?lfn=/d&{bad}")).await;
        assert_eq!(page.status, status, "{bad}: {}", page.text());
        assert!(!page.text().contains("<script>"), "{bad}");
    }
    let token = world.new_user("jane").await;
    let mut jane = Person::with_token(&world, &token).await;
    assert_eq!(jane.get("/search?lfn=/d&during=dcs:beam%3DON").await.status, 403);
}

/// Property: conditions that no entry can meet are refused with their field, at the edge.
#[tokio::test(flavor = "multi_thread")]
async fn search_refuses_empty_ranges() {
    let world = World::new().await;
    world.files("/d", 1).await;
    let mut admin = Person::admin(&world).await;
    for (conditions, status, told) in [
        ("size_min=5&size_max=5", 200, ""),
        ("size_min=6&size_max=5", 400, "Bytes: nothing is in this range"),
        ("size_unknown=yes&size_min=1", 400, "unknown and in a range"),
        ("modified_from=2026-01-02&modified_before=2026-01-02", 400, "Modified: nothing"),
        ("created_from=2026-01-01&created_before=2026-01-02", 200, ""),
        ("created_from=2026-01-03&created_before=2026-01-02", 400, "Created: nothing"),
        ("depth_max=0", 400, "level 1"),
        ("depth_max=1", 200, ""),
        ("size_min=-1", 400, "no number that fits"),
        ("job=18446744073709551616", 400, "no number that fits"),
    ] {
        let page = admin.get(&format!("/search?lfn=/d&{conditions}")).await;
        assert_eq!(page.status, status, "{conditions}: {}", page.text());
        assert!(page.text().contains(told), "{conditions}: {}", page.text());
    }
}

/// Property: a report compares two periods by the tables of `exacat report A B`; a period that is none is
/// refused.
#[tokio::test(flavor = "multi_thread")]
async fn report_compares_two_periods() {
    let world = World::new().await;
    let mut admin = Person::admin(&world).await;
    let page = admin.get("/reports").await;
    assert!(page.text().contains("name=\"other_from\"") && !page.text().contains(">B/A<"), "{}", page.text());
    let time = |ago: u64| {
        let now = world.clock.shared().trusted().0;
        encoded(&exacat_model::TimeMs(now.saturating_sub(ago * 1000)).to_string())
    };
    for target in [
        format!("/reports?from={}&to={}&other_from={}", time(600), time(300), time(300)),
        format!("/reports?other_to={}", time(60)),
    ] {
        let page = admin.get(&target).await;
        assert_eq!(page.status, 200, "{target}: {}", page.text());
        assert!(page.text().contains(">B/A<") && page.text().contains(". B: "), "{}", page.text());
        let csv = admin.get(&format!("{target}&csv=Load")).await;
        assert!(csv.text().starts_with("\"FIGURE\",\"A\",\"B\",\"B/A\"\r\n"), "{}", csv.text());
    }
    for bad in ["other_from=x", "other_from=2026-01-02&other_to=2026-01-01", "from=x&other_from=2026-01-01"] {
        assert_eq!(admin.get(&format!("/reports?{bad}")).await.status, 400, "{bad}");
    }
}

/// Property: operators learn the commands that repair the catalogue and clone a snapshot, which no page can
/// do; others learn nothing, and a snapshot that is not there has no clone.
#[tokio::test(flavor = "multi_thread")]
async fn repair_and_clone_name_their_commands() {
    let world = World::embedded().await;
    snapshot(&world, "weekly").await;
    let mut admin = Person::admin(&world).await;
    assert!(admin.get("/overview").await.text().contains("href=\"/repair\""));
    let page = admin.get("/repair").await;
    assert!(page.text().contains("exacat --data DIR fsck --offline --repair<"), "{}", page.text());
    assert!(!page.text().contains("nodetool"), "{}", page.text());
    assert!(admin.get("/snapshots").await.text().contains("href=\"/clone?of=weekly\""));
    let page = admin.get("/clone?of=weekly").await;
    assert!(page.text().contains("exacat --data DIR clone weekly NEW"), "{}", page.text());
    for (bad, status) in [("", 400), ("?of=none", 404), ("?of=%3Cscript%3E", 400)] {
        let page = admin.get(&format!("/clone{bad}")).await;
        assert!(page.status == status && !page.text().contains("<script>"), "{bad}: {}", page.text());
    }
    assert_eq!(admin.post("/repair", &[]).await.status, 405);
    let token = world.new_user("jane").await;
    let mut jane = Person::with_token(&world, &token).await;
    for refused in ["/repair", "/clone?of=weekly", "/clone?of=none"] {
        assert_eq!(jane.get(refused).await.status, 403, "{refused}");
    }
    // A drained server keeps the way to repair it.
    assert_eq!(admin.post("/action/drain", &[]).await.status, 200);
    assert_eq!(admin.get("/repair").await.status, 200);
    // Without snapshots there are no files to repair.
    let page = Person::admin(&World::new().await).await.get("/repair").await;
    assert!(page.text().contains("does not change") && !page.text().contains("--repair"), "{}", page.text());
}
