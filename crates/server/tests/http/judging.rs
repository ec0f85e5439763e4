//! Conditions and rights are judged when a change is committed, not when its request arrives.

use std::sync::atomic::Ordering;

use exacat_testkit::waiting::eventually;
use serde_json::json;

use crate::web::Web;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn of_two_changes_of_the_same_version_exactly_one_is_made() {
    let world = World::new().await;
    world.files("/d", 1).await;
    let mut first = Web::admin(&world).await;
    let mut second = Web::admin(&world).await;
    let target = "/api/v1/entries/d/f000000";
    let tag = first.get(target).await.header("etag").to_owned();
    world.hooks.hold_applies.send_replace(true);
    let begun = world.hooks.applies_begun.load(Ordering::SeqCst);
    let headers = [("If-Match", tag.as_str()), ("Content-Type", "application/json")];
    let asks = async {
        let (a, b) = (json!({"mode": "600"}).to_string(), json!({"mode": "640"}).to_string());
        tokio::join!(first.ask("PATCH", target, &headers, &a), second.ask("PATCH", target, &headers, &b))
    };
    let release = async {
        // Both have read the entry by then.
        eventually("both arrive", || world.hooks.applies_begun.load(Ordering::SeqCst) >= begun + 2).await;
        world.hooks.hold_applies.send_replace(false);
    };
    let ((a, b), ()) = tokio::join!(asks, release);
    let mut statuses = [a.status, b.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412], "{} {}", a.text(), b.text());
    let made = if a.status == 200 { "600" } else { "640" };
    assert_eq!(first.get(target).await.json()["mode"], made);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_who_is_disabled_before_the_commit_changes_nothing() {
    let world = World::new().await;
    world.directory("/d").await;
    let mut alice = Web::user(&world, "alice").await;
    assert_eq!(alice.get("/api/v1/whoami").await.status, 200);
    world.hooks.hold_applies.send_replace(true);
    let begun = world.hooks.applies_begun.load(Ordering::SeqCst);
    let asked = async { alice.ask("PUT", "/api/v1/directories/d/new", &[], "").await };
    let meanwhile = async {
        eventually("it arrives", || world.hooks.applies_begun.load(Ordering::SeqCst) > begun).await;
        // This change waits as well; the first to go on is either.
        let disable = world.user("alice", |user| user.disabled = Some(true));
        let release = async {
            eventually("both wait", || world.hooks.applies_begun.load(Ordering::SeqCst) > begun + 1).await;
            world.hooks.hold_applies.send_replace(false);
        };
        tokio::join!(disable, release);
    };
    let (answer, ()) = tokio::join!(asked, meanwhile);
    let mut admin = Web::admin(&world).await;
    let is_made = admin.get("/api/v1/entries/d/new").await.status == 200;
    assert_eq!(answer.status == 200, is_made, "the answer is true: {}", answer.text());
    let again = alice.ask("PUT", "/api/v1/directories/d/other", &[], "").await;
    assert!(matches!(again.status, 401 | 403), "{}", again.text());
    assert_eq!(admin.get("/api/v1/entries/d/other").await.status, 404);
}
