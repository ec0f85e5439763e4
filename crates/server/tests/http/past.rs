//! The parameter `at` of the REST API: reads of past states.

use exacat_model::operation::Attribute;
use exacat_model::{Mode, Operation};
use serde_json::json;

use crate::web::Web;
use crate::world::{World, lfn};

/// Every endpoint with `at` answers of the past state, with the names and the revision of that time; pages
/// and streams go on in it.
#[tokio::test(flavor = "multi_thread")]
async fn endpoints_answer_of_the_past_state() {
    let world = World::embedded().await;
    let mut web = Web::admin(&world).await;
    let se = |host: &str| json!({"prefix": format!("root://{host}//data"), "qos": ["disk"]});
    assert_eq!(web.json("PUT", "/api/v1/ses/SITE::SE", se("first.example")).await.status, 200);
    assert_eq!(web.ask("PUT", "/api/v1/directories/d", &[], "").await.status, 200);
    let file = json!({"size": 10, "replicas": [{"se": "SITE::SE"}]});
    for name in ["f", "g", "h"] {
        assert_eq!(web.json("PUT", &format!("/api/v1/files/d/{name}"), file.clone()).await.status, 200);
    }
    let then = world.server.catalogue().store().revision().await.unwrap().0;
    let asked = [
        ("GET", "/api/v1/entries/d/f", String::new()),
        ("GET", "/api/v1/children/d", String::new()),
        ("GET", "/api/v1/usage/d", String::new()),
        ("GET", "/api/v1/replicas/d/f", String::new()),
        ("POST", "/api/v1/find", json!({"lfn": "/", "se": "SITE::SE"}).to_string()),
        ("POST", "/api/v1/entries", json!({"lfn": "/d/f"}).to_string()),
        ("POST", "/api/v1/usage", json!({"lfn": "/d/f"}).to_string()),
        ("POST", "/api/v1/replicas", json!({"lfn": "/d/f"}).to_string()),
    ];
    let mut wanted = Vec::new();
    for (method, path, body) in &asked {
        let answer = web.ask(method, path, &[], body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        wanted.push(answer.text().to_owned());
    }
    assert_eq!(web.json("PUT", "/api/v1/ses/SITE::SE", se("second.example")).await.status, 200);
    assert_eq!(web.json("POST", "/api/v1/move", json!({"from": "/d", "to": "/e"})).await.status, 200);
    for ((method, path, body), wanted) in asked.iter().zip(&wanted) {
        let answer = web.ask(method, &format!("{path}?at={then}"), &[], body).await;
        assert_eq!(answer.text(), wanted, "{method} {path}");
        assert_eq!(answer.header("exacat-revision"), then.to_string(), "{method} {path}");
    }
    // The link to the next page names the same point.
    let page = web.get(&format!("/api/v1/children/d?limit=2&at={then}")).await;
    let link = page.header("link").to_owned();
    let next = link.trim_start_matches('<').split('>').next().unwrap();
    let rest = web.get(next).await.json();
    assert_eq!(rest["items"][0]["lfn"], "/d/h", "{next}");
    assert!(web.ask("GET", "/api/v1/entries/d/f", &[], "").await.status == 404);
}

/// Wrong points, anonymous clients and other endpoints are refused.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_points_and_other_endpoints_are_refused() {
    let world = World::embedded().await;
    world.directory("/d").await;
    let then = world.server.catalogue().store().revision().await.unwrap().0;
    let mut web = Web::admin(&world).await;
    for (target, status) in [
        ("/api/v1/entries/d?at=yesterday".to_owned(), 400),
        (format!("/api/v1/entries/d?at={}", then + 1000), 404),
        ("/api/v1/entries/d?at=2999-01-01".to_owned(), 404),
        (format!("/api/v1/entries/d?at={then}.00000000"), 409),
        (format!("/api/v1/entries/d?at={then}&at={then}"), 400),
        (format!("/api/v1/tags/d?at={then}"), 400),
        (format!("/api/v1/whoami?at={then}"), 400),
        (format!("/api/v1/entries/d?at={then}"), 200),
    ] {
        let answer = web.get(&target).await;
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
    }
    let changed = web.ask("PUT", &format!("/api/v1/directories/e?at={then}"), &[], "").await;
    assert_eq!(changed.status, 400);
    let mut anonymous = Web::anonymous(&world).await;
    assert_eq!(anonymous.get(&format!("/api/v1/entries/d?at={then}")).await.status, 401);
}

/// The entries of then say who may read, and the user is who it is now: in a group that it joined since, and
/// without a role that it lost.
#[tokio::test(flavor = "multi_thread")]
async fn user_of_now_reads_entries_of_then() {
    let world = World::embedded().await;
    world.admin(Operation::GroupAdd { name: crate::world::account("physics") }).await;
    let mode = Some(Mode::new(0o750).unwrap());
    world.admin(Operation::Mkdir { lfns: vec![lfn("/group")], parents: false, mode }).await;
    let attributes = vec![Attribute::Group(crate::world::account("physics"))];
    world.admin(Operation::SetAttributes { lfns: vec![lfn("/group")], attributes }).await;
    world.directory("/group/inside").await;
    let then = world.server.catalogue().store().revision().await.unwrap().0;
    let mut web = Web::user(&world, "bob").await;
    let target = format!("/api/v1/children/group?at={then}");
    assert_eq!(web.get(&target).await.status, 403, "the user is in another group");
    world.user("bob", |settings| settings.groups = Some(vec![crate::world::account("physics")])).await;
    let listed = web.get(&target).await;
    assert_eq!((listed.status, &listed.json()["items"][0]["lfn"]), (200, &json!("/group/inside")));
    let close = vec![Attribute::Mode(Mode::new(0o700).unwrap())];
    world.admin(Operation::SetAttributes { lfns: vec![lfn("/group")], attributes: close }).await;
    assert_eq!(web.get("/api/v1/children/group").await.status, 403, "closed by now");
    assert_eq!(web.get(&target).await.status, 200, "open then");
}
