//! Writes of values beyond what the history can take: clients are told to wait, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use exacat_server::ServerSettings;
use exacat_testkit::simulated::SimulatedDisk;
use exacat_testkit::waiting::{eventually, eventually_so};
use serde_json::json;

use crate::web::{Answer, Web};
use crate::world::World;

/// Paths of the write requests of both versions.
const WRITES: [&str; 2] = ["/write?db=det&precision=ms", "/api/v2/write?org=o&bucket=det&precision=ms"];
/// Lines of a body that makes one batch of almost 4 MiB.
const LINES: usize = 66;

async fn world(disk: &SimulatedDisk, set: impl FnOnce(&mut ServerSettings)) -> World {
    let disk = disk.shared();
    World::with(|settings: &mut ServerSettings| {
        settings.elements = true;
        settings.elements_disk = disk;
        // Room for the log is made when a segment begins, so that a full disk is met soon.
        settings.elements_log_ahead = false;
        set(settings);
    })
    .await
}

/// Makes the database that all tests here write to.
async fn made(world: &World) -> Web {
    let mut web = Web::admin(world).await;
    let answer = web.ask("POST", "/query?q=CREATE%20DATABASE%20det", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    web
}

/// Returns lines of long texts of one element.
fn body(world: &World, element: usize) -> String {
    let now = i64::try_from(world.clock.shared().trusted().0).unwrap();
    let text = "x".repeat(60_000);
    (0..LINES).map(|row| format!("ev,e=n{element} t=\"{text}\" {}\n", now - row as i64)).collect()
}

/// Requires the refusal that makes each client keep its values and send them again later.
fn is_told_to_wait(answer: &Answer) {
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{answer:?}");
    assert!(!answer.header("x-influxdb-error").is_empty(), "{answer:?}");
}

async fn count(web: &mut Web) -> u64 {
    let answer = web.get("/query?db=det&q=SELECT%20count(t)%20FROM%20ev%20GROUP%20BY%20e").await;
    let json = answer.json();
    let series = json["results"][0]["series"].as_array().unwrap_or_else(|| panic!("{json}"));
    series.iter().map(|one| one["values"][0][1].as_u64().unwrap()).sum()
}

/// Property: beyond the bytes that may wait for the log a write of either version gets 503 with Retry-After.
/// The writes before it are carried out, and the refused ones once they are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn full_queue_of_the_log_tells_writers_to_wait() {
    const WRITERS: usize = 20;
    let disk = SimulatedDisk::new();
    let world = Arc::new(world(&disk, |_| {}).await);
    let mut web = made(&world).await;
    disk.hold_syncs(true);
    let refused = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (world, refused) = (Arc::clone(&world), Arc::clone(&refused));
            tokio::spawn(async move {
                let (mut web, body) = (Web::admin(&world).await, body(&world, number));
                let answer = web.ask("POST", WRITES[number % 2], &[], &body).await;
                if answer.status == 204 {
                    return None;
                }
                is_told_to_wait(&answer);
                refused.fetch_add(1, Ordering::Relaxed);
                Some(number)
            })
        })
        .collect();
    eventually("writers are told to wait", || refused.load(Ordering::Relaxed) >= 2).await;
    assert!(world.figure("history", "refused").await >= 2, "the queue of the log refused them");
    disk.hold_syncs(false);
    let mut again = Vec::new();
    for writer in writers {
        again.extend(writer.await.unwrap());
    }
    for number in again {
        let answer = web.ask("POST", WRITES[number % 2], &[], &body(&world, number)).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }
    assert_eq!(count(&mut web).await, (WRITERS * LINES) as u64);
}

/// Property: on a full disk a write of either version gets 503 with Retry-After. What was answered before is
/// there, and writes go on as soon as there is space.
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_tells_writers_to_wait() {
    let disk = SimulatedDisk::new();
    let world = world(&disk, |_| {}).await;
    let mut web = made(&world).await;
    disk.set_full(true);
    let (mut written, mut refused) = (0, Vec::new());
    for number in 0..40 {
        let answer = web.ask("POST", WRITES[number % 2], &[], &body(&world, number)).await;
        match answer.status {
            204 => written += LINES as u64,
            _ => {
                is_told_to_wait(&answer);
                refused.push(number);
            }
        }
        if refused.len() == 2 {
            break;
        }
    }
    assert_eq!(refused.len(), 2, "the disk was never full");
    assert_eq!(count(&mut web).await, written, "what was answered is there");
    // The REST API tells it, too.
    let times: Vec<String> = (0..LINES as i64).map(|row| exacat_model::TimeNs(row).to_string()).collect();
    let values = vec!["x".repeat(60_000); LINES];
    let texts = json!([{"key": "ev,e=rest", "times": times,
        "columns": [{"field": "t", "type": "string", "values": values}]}]);
    let kind = [("Content-Type", "application/json")];
    let rows = json!({"rows": texts}).to_string();
    let answer = web.ask("POST", "/api/v1/history/det/rows", &kind, &rows).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
    disk.set_full(false);
    for number in refused {
        let answer = web.ask("POST", WRITES[number % 2], &[], &body(&world, number)).await;
        assert_eq!(answer.status, 204, "{answer:?}");
        written += LINES as u64;
    }
    assert_eq!(count(&mut web).await, written);
}

/// Property: writes of values that are not answered use up bounds of their own: changes of the catalogue go
/// on, and values go on while changes use up theirs.
#[tokio::test(flavor = "multi_thread")]
async fn values_and_changes_do_not_starve_each_other() {
    let disk = SimulatedDisk::new();
    let world = world(&disk, |settings| {
        settings.limits.requests_max = 2;
        settings.limits.element_writes_max = 2;
    })
    .await;
    let mut web = made(&world).await;
    let value = |number: u32| format!("ev v={number} {number}");
    let mkdir = |number: u32| format!("/api/v1/directories/d{number}");
    // The history has two writes that wait for the disk.
    disk.hold_syncs(true);
    let mut held = Vec::new();
    for number in 0..2 {
        let mut web = Web::admin(&world).await;
        held.push(tokio::spawn(async move { web.ask("POST", WRITES[0], &[], &value(number)).await }));
    }
    eventually_so("two writes are held", async || world.figure("server", "held_element-writes").await == 2)
        .await;
    is_told_to_wait(&web.ask("POST", WRITES[1], &[], &value(3)).await);
    assert_eq!(web.ask("PUT", &mkdir(1), &[], "").await.status, 200, "a change goes on");
    disk.hold_syncs(false);
    for held in held {
        assert_eq!(held.await.unwrap().status, 204);
    }
    // The catalogue has two changes that wait for its store.
    let webs = [Web::admin(&world).await, Web::admin(&world).await];
    world.hooks.hold_applies.send_replace(true);
    let begun = world.hooks.applies_begun.load(Ordering::SeqCst);
    let mut held = Vec::new();
    for (number, mut web) in (2..4).zip(webs) {
        let path = mkdir(number);
        held.push(tokio::spawn(async move { web.ask("PUT", &path, &[], "").await }));
    }
    eventually("two changes are held", || world.hooks.applies_begun.load(Ordering::SeqCst) >= begun + 2)
        .await;
    assert_eq!(web.ask("PUT", &mkdir(5), &[], "").await.status, 429);
    for number in 4..8 {
        let answer = web.ask("POST", WRITES[number % 2], &[], &value(number as u32)).await;
        assert_eq!(answer.status, 204, "a value goes on: {answer:?}");
    }
    world.hooks.hold_applies.send_replace(false);
    for held in held {
        assert_eq!(held.await.unwrap().status, 200);
    }
}
