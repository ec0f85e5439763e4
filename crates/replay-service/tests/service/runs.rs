//! Runs from their creation to their end, over restarts.

use exacat_model::ErrorKind;
use exacat_replay::run::outcome::{AccessResult, Outcome};
use exacat_replay::run::settings::{RunMode, RunSettings};
use exacat_replay::run::shapes::{API, ItemsAnswer, RunState};
use exacat_replay_service::service::{ReplayRemote, ReplayServer};
use hyper::Method;

use crate::rig::{Rig, client, good, settings, trace};

/// Property: each item ends once, whatever is sent twice, and the report has all of them.
#[tokio::test]
async fn run_ends_when_every_item_has_its_result() {
    let rig = Rig::new(&[1, 2, 1, 3]).await;
    rig.begin("one", 64).await;
    let answer = rig.items("one", "a", 10).await.unwrap();
    assert_eq!((answer.items.len(), answer.state, answer.in_flight), (4, RunState::Running, Some(64)));
    assert_eq!(answer.items[0].name, "/data/f1");
    let mut results: Vec<_> = answer.items.iter().map(good).collect();
    results[3].outcome = Outcome::NotFound;
    results[3].number = 3011;
    let first = rig.results("one", "a", results[..2].to_vec()).await.unwrap();
    assert_eq!((first.accepted, first.state), (2, Some(RunState::Running)));
    // The answer was lost: all are sent again, with the others.
    let all = rig.results("one", "a", results.clone()).await.unwrap();
    assert_eq!((all.accepted, all.known, all.state), (2, 2, Some(RunState::Done)));
    let again = rig.results("one", "a", results.clone()).await.unwrap();
    assert_eq!((again.accepted, again.known), (0, 4));
    // Another content for the same attempt is no repetition.
    results[0].bytes = 1;
    let other = rig.results("one", "a", results[..1].to_vec()).await.unwrap();
    assert!(other.refused[0].reason.contains("another result"), "{other:?}");
    assert_eq!(rig.items("one", "a", 10).await.unwrap().state, RunState::Done);
    let view = rig.remote.run("one").await.unwrap();
    assert_eq!((view.ended, view.failed, view.state), (4, 1, RunState::Done));
    let report = rig.remote.report("one").await.unwrap();
    assert_eq!((report.totals.accesses, report.totals.errors, report.totals.bytes), (4, 1, 4000));
}

/// Property: a service that ends in the middle goes on with what was answered, and nothing twice.
#[tokio::test]
async fn restarted_service_goes_on_where_it_was() {
    let files: Vec<u32> = (0..300).map(|at| at % 40).collect();
    let mut rig = Rig::new(&files).await;
    rig.begin("one", 50).await;
    let mut open = Vec::new();
    for round in 0.. {
        assert!(round < 500, "the run does not end");
        let agent = ["a", "b", "c"][round % 3];
        let answer = rig.items("one", agent, 20).await.unwrap();
        if answer.state == RunState::Done {
            break;
        }
        open.extend(answer.items.into_iter().map(|item| (agent, item)));
        // Half of what is open ends, in any order.
        for _ in 0..open.len().div_ceil(2) {
            let (agent, item) = open.swap_remove(round % open.len());
            let answer = rig.results("one", agent, vec![good(&item)]).await.unwrap();
            assert_eq!((answer.accepted, answer.refused.len()), (1, 0));
        }
        if round % 4 == 3 {
            rig.restart().await;
        }
    }
    let view = rig.remote.run("one").await.unwrap();
    assert_eq!((view.ended, view.accesses, view.handing_out.leases_expired), (300, 300, 0));
    assert_eq!(view.handing_out.handed_out, 300, "nothing was handed out twice");
    let before = rig.remote.report("one").await.unwrap();
    rig.restart().await;
    let after = rig.remote.report("one").await.unwrap();
    assert_eq!((&before.totals, &before.outcomes), (&after.totals, &after.outcomes));
}

#[tokio::test]
async fn runs_are_apart_and_obey_their_operator() {
    let mut rig = Rig::new(&[1, 2, 3]).await;
    rig.begin("one", 8).await;
    rig.begin("two", 8).await;
    let one = rig.items("one", "a", 10).await.unwrap();
    let two = rig.items("two", "a", 10).await.unwrap();
    assert_eq!(one.items.len(), two.items.len());
    rig.remote.command("one", "pause").await.unwrap();
    assert_eq!(rig.items("one", "b", 10).await.unwrap().state, RunState::Paused);
    let taken = rig.results("one", "a", vec![good(&one.items[0])]).await.unwrap();
    assert_eq!(taken.accepted, 1, "what was handed out is taken");
    rig.restart().await;
    assert_eq!(rig.remote.run("one").await.unwrap().state, RunState::Paused);
    assert_eq!(rig.remote.run("two").await.unwrap().state, RunState::Running);
    assert_eq!(rig.remote.command("one", "start").await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(rig.remote.command("one", "resume").await.unwrap().state, RunState::Running);
    assert_eq!(rig.remote.command("one", "stop").await.unwrap().state, RunState::Stopped);
    assert_eq!(rig.remote.command("one", "stop").await.unwrap().state, RunState::Stopped, "again");
    assert_eq!(rig.remote.command("one", "resume").await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(rig.remote.run("three").await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(rig.remote.runs().await.unwrap().runs.len(), 2);
    // The same settings again return the run; other ones are another run.
    let settings = RunSettings::new("two", RunMode::InFlight { accesses: 8 });
    assert_eq!(rig.remote.create(&settings).await.unwrap().state, RunState::Running);
    let other = RunSettings::new("two", RunMode::InFlight { accesses: 9 });
    assert_eq!(rig.remote.create(&other).await.unwrap_err().kind, ErrorKind::Exists);
}

/// Property: a condition stops the run, and its reason and exit status survive a restart.
#[tokio::test]
async fn run_is_stopped_by_its_condition() {
    let files: Vec<u32> = (0..60_000).collect();
    let mut rig = Rig::new(&files).await;
    let mut settings = RunSettings::new("one", RunMode::InFlight { accesses: 64 });
    settings.stop_when = vec!["errors>50%:1s".to_owned()];
    rig.remote.create(&settings).await.unwrap();
    rig.remote.command("one", "start").await.unwrap();
    // Errors without an end, until the service stops the run.
    loop {
        let answer = rig.items("one", "a", 8).await.unwrap();
        if answer.state != RunState::Running {
            break;
        }
        let failed = answer.items.iter().map(|item| {
            let mut result = good(item);
            (result.outcome, result.number) = (Outcome::Server, 3007);
            result
        });
        rig.results("one", "a", failed.collect()).await.unwrap();
    }
    let view = rig.remote.run("one").await.unwrap();
    assert_eq!(view.state, RunState::Stopped, "{view:?}");
    assert!(view.exit_code != 0 && view.reason.contains("errors"), "{view:?}");
    rig.restart().await;
    let after = rig.remote.run("one").await.unwrap();
    assert_eq!((after.state, after.exit_code, &after.reason), (view.state, view.exit_code, &view.reason));
}

#[tokio::test]
async fn bad_requests_get_clear_errors_and_change_nothing() {
    let rig = Rig::new(&[1, 2]).await;
    rig.begin("one", 8).await;
    let items = rig.items("one", "a", 1).await.unwrap().items;
    let stranger = rig.results("one", "nobody", vec![good(&items[0])]).await.unwrap_err();
    assert!(stranger.message.contains("never asked"), "{stranger}");
    let mut never = good(&items[0]);
    never.item = 1;
    let refused = rig.results("one", "a", vec![never.clone()]).await.unwrap();
    assert!(refused.refused[0].reason.contains("never handed out"), "{refused:?}");
    never.item = 0;
    never.duration_us = u64::MAX;
    let refused = rig.results("one", "a", vec![never]).await.unwrap();
    assert!(refused.refused[0].reason.contains("longer than a day"), "{refused:?}");
    let post = |path: &'static str, body: serde_json::Value| {
        let client = rig.client.clone();
        async move {
            client
                .send_json::<serde_json::Value>(Method::POST, &format!("{API}{path}"), &body)
                .await
                .unwrap_err()
        }
    };
    for (path, body, kind) in [
        ("runs", serde_json::json!({"name": "x"}), ErrorKind::Invalid),
        (
            "runs",
            serde_json::json!({"name": "../x", "mode": {"kind": "in_flight", "accesses": 1}}),
            ErrorKind::Invalid,
        ),
        ("runs", serde_json::json!([]), ErrorKind::Invalid),
        (
            "runs/one/items",
            serde_json::json!({"agent": "", "cache": "", "driver": "", "count": 1}),
            ErrorKind::Invalid,
        ),
        ("runs/one/items", serde_json::json!({"agent": "a"}), ErrorKind::Invalid),
        (
            "runs/one/results",
            serde_json::json!({"agent": "a", "results": [{"item": -1}]}),
            ErrorKind::Invalid,
        ),
        ("runs/one/fly", serde_json::json!({}), ErrorKind::NotFound),
        ("runs/two/items", serde_json::json!({}), ErrorKind::NotFound),
        ("elsewhere", serde_json::json!({}), ErrorKind::NotFound),
    ] {
        let error = post(path, body).await;
        assert_eq!(error.kind, kind, "{path}: {error}");
    }
    let huge = serde_json::json!({ "agent": "a".repeat(5 << 20) });
    assert_eq!(post("runs/one/items", huge).await.kind, ErrorKind::Limit);
    let view = rig.remote.run("one").await.unwrap();
    assert_eq!((view.ended, view.handing_out.in_flight, view.handing_out.refused_results), (0, 1, 1));
}

/// Property: items whose answer was lost come again to the agent that asked for them, once, with the same
/// attempt, also after a restart of the service. Another process of that name gets others.
#[tokio::test]
async fn items_of_a_lost_answer_come_again() {
    let mut rig = Rig::new(&(0..9).collect::<Vec<_>>()).await;
    rig.begin("one", 8).await;
    let numbers =
        |of: &ItemsAnswer| of.items.iter().map(|item| (item.item, item.attempt)).collect::<Vec<_>>();
    let first = rig.items_after("one", "a", 2, None).await.unwrap();
    assert_eq!((numbers(&first), first.number), (vec![(0, 1), (1, 1)], 1));
    let lost = rig.items_after("one", "a", 2, Some(1)).await.unwrap();
    assert_eq!((numbers(&lost), lost.number), (vec![(2, 1), (3, 1)], 2));
    let again = rig.items_after("one", "a", 5, Some(1)).await.unwrap();
    assert_eq!((numbers(&again), again.number), (numbers(&lost), 2));
    rig.restart().await;
    let again = rig.items_after("one", "a", 5, Some(1)).await.unwrap();
    assert_eq!((numbers(&again), again.number), (numbers(&lost), 2));
    // One of them has ended meanwhile.
    rig.results("one", "a", vec![AccessResult { item: 2, attempt: 1, ..AccessResult::default() }])
        .await
        .unwrap();
    assert_eq!(numbers(&rig.items_after("one", "a", 5, Some(1)).await.unwrap()), [(3, 1)]);
    let next = rig.items_after("one", "a", 1, Some(2)).await.unwrap();
    assert_eq!((numbers(&next), next.number), (vec![(4, 1)], 3));
    assert_eq!(numbers(&rig.items_after("one", "a", 1, None).await.unwrap()), [(5, 1)]);
    let view = rig.remote.run("one").await.unwrap();
    assert_eq!((view.handing_out.handed_out, view.handing_out.leases_expired), (6, 0));
}

#[tokio::test]
async fn token_opens_everything_but_the_look_whether_it_lives() {
    let directory = tempfile::tempdir().unwrap();
    trace(directory.path(), &[1]);
    let server = ReplayServer::start(settings(directory.path(), Some("secret"))).await.unwrap();
    let (with, without) = (client(&server, Some("secret")), client(&server, None));
    ReplayRemote::new(with.clone()).runs().await.unwrap();
    assert!(
        String::from_utf8(with.bytes(Method::GET, "/").await.unwrap().to_vec()).unwrap().contains("Runs")
    );
    for path in ["/", "/runs/x", "/stress_test", "/api/v1/runs", "/elsewhere"] {
        let refused = without.bytes(Method::GET, path).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unauthenticated, "{path}");
    }
    assert_eq!(&*without.bytes(Method::GET, "/livez").await.unwrap(), b"alive\n");
    // The token of agents makes accesses, and stops no run.
    let agents = client(&server, Some("secret-agents"));
    let settings = RunSettings::new("one", RunMode::InFlight { accesses: 1 });
    assert_eq!(
        ReplayRemote::new(agents.clone()).create(&settings).await.unwrap_err().kind,
        ErrorKind::Denied
    );
    ReplayRemote::new(with).create(&settings).await.unwrap();
    let ask = serde_json::json!({"agent": "a", "cache": "c", "driver": "d", "count": 1});
    agents.send_json::<serde_json::Value>(Method::POST, "/api/v1/runs/one/items", &ask).await.unwrap();
    for path in ["/", "/metrics", "/api/v1/runs", "/api/v1/runs/one", "/api/v1/runs/one/report"] {
        let refused = agents.bytes(Method::GET, path).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Denied, "{path}");
    }
    let stop = ReplayRemote::new(agents).command("one", "stop").await.unwrap_err();
    assert_eq!(stop.kind, ErrorKind::Denied);
}
