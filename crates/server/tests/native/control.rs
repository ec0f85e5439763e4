//! Control of a running server by operators: throttles, and its drain.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use exacat_model::answer::Throttle;
use exacat_model::operation::Owner;
use exacat_model::{Answer, ErrorKind, Lfn, Operation};
use exacat_testkit::waiting::found;
use exacat_wire::native::{Credentials, Frame, Secret};

use crate::client::{Client, eventually, soon, tls};
use crate::metrics::http;
use crate::world::{World, account, lfn};

fn stat(count: usize) -> Operation {
    Operation::Stat { lfns: vec![Lfn::root(); count], follow: true }
}

fn throttle(owner: Option<Owner>, items_per_second: Option<u32>) -> Operation {
    Operation::ThrottleSet { owner, items_per_second }
}

async fn throttles(client: &mut Client) -> Vec<Throttle> {
    match client.call(Operation::ThrottleList).await.unwrap() {
        Answer::Throttles(all) => all,
        other => panic!("{other:?}"),
    }
}

/// Connects over the network, with a token.
async fn from_network(world: &World, token: &str) -> Client {
    let mut client = tls(world, &world.server.addresses.certificate).await.unwrap();
    client.hello().await;
    client.authenticate(Credentials::Token(Secret::new(token))).await.unwrap();
    client
}

/// A throttled user waits in a state of its own, and is refused when the wait would be long. Other users,
/// and operators where everybody is throttled, go on as before.
#[tokio::test(flavor = "multi_thread")]
async fn throttled_user_waits_and_others_do_not() {
    let world = World::new().await;
    let (jane, bob) = (world.new_user("jane").await, world.new_user("bob").await);
    let mut admin = Client::admin(&world).await;
    let (mut jane, mut bob) =
        (Client::with_token(&world, &jane).await, Client::with_token(&world, &bob).await);
    let of_jane = Some(Owner::User(account("jane")));
    for refused in
        [throttle(of_jane.clone(), Some(5)), Operation::ThrottleList, Operation::Drain { resume: true }]
    {
        assert_eq!(jane.call(refused).await.unwrap_err().kind, ErrorKind::Denied);
    }
    for (bad, kind) in [
        (throttle(of_jane.clone(), Some(0)), ErrorKind::Invalid),
        (throttle(Some(Owner::User(account("nobody"))), Some(1)), ErrorKind::NotFound),
        (throttle(None, None), ErrorKind::NotFound),
    ] {
        assert_eq!(admin.call(bad).await.unwrap_err().kind, kind);
    }
    admin.call(throttle(of_jane.clone(), Some(100))).await.unwrap();
    // One second's worth, and the debt of two more.
    jane.call(stat(300)).await.unwrap();
    let began = Instant::now();
    let held = jane.ask(stat(1)).await;
    found("the state of the wait", async || {
        let Answer::Requests(requests) = admin.call(Operation::Sessions).await.unwrap() else { panic!() };
        requests.into_iter().find(|one| one.operation == "stat" && one.state == "throttle")
    })
    .await;
    assert_eq!(throttles(&mut admin).await[0].waiting, 1);
    bob.call(stat(1000)).await.unwrap();
    jane.outcome(held).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let Answer::Activity(periods) = found("a period with the wait", async || {
        let asked = Operation::Activity { from: None, to: None, seconds: 3600, parts: 1 };
        let answer = admin.call(asked).await.unwrap();
        let has = matches!(&answer, Answer::Activity(periods) if periods[0].states.iter().any(|one| one.state == "throttle"));
        has.then_some(answer)
    })
    .await
    else {
        panic!()
    };
    let wait = periods[0].states.iter().find(|one| one.state == "throttle").unwrap();
    assert_eq!((wait.class.as_str(), wait.requests), ("queue", 1));
    admin.call(throttle(of_jane.clone(), Some(1))).await.unwrap();
    jane.call(stat(20)).await.unwrap();
    let refused = jane.call(stat(1)).await.unwrap_err();
    assert!(
        refused.kind == ErrorKind::Busy && refused.message.contains("the user jane to 1 items"),
        "{refused}"
    );
    let shown = throttles(&mut admin).await;
    assert_eq!((shown.len(), shown[0].delayed, shown[0].refused), (1, 1, 1));
    admin.call(throttle(of_jane, None)).await.unwrap();
    jane.call(stat(1000)).await.unwrap();
    admin.call(throttle(None, Some(1))).await.unwrap();
    bob.call(stat(20)).await.unwrap();
    assert_eq!(jane.call(stat(1)).await.unwrap_err().kind, ErrorKind::Busy, "everybody shares the items");
    admin.call(stat(1000)).await.unwrap();
}

/// The rows of pages count as items.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_list_are_throttled() {
    let world = World::new().await;
    world.files("/d", 500).await;
    let token = world.new_user("jane").await;
    let mut jane = Client::with_token(&world, &token).await;
    Client::admin(&world).await.call(throttle(None, Some(10))).await.unwrap();
    let list = || Operation::List { lfn: lfn("/d"), cursor: Default::default(), limit: 500 };
    assert!(matches!(jane.call(list()).await.unwrap(), Answer::Entries { items, .. } if items.len() == 500));
    assert_eq!(jane.call(list()).await.unwrap_err().kind, ErrorKind::Busy);
}

/// A drained server finishes requests in progress, and refuses network clients until it is resumed. The
/// administrator's socket is served all the while.
#[tokio::test(flavor = "multi_thread")]
async fn drained_server_finishes_and_refuses() {
    let world = World::new().await;
    let token = world.token("admin", 3600).await.1;
    let mut client = from_network(&world, &token).await;
    let mut admin = Client::admin(&world).await;
    let before = world.hooks.applies_begun.load(Ordering::SeqCst);
    world.hooks.hold_applies.send_replace(true);
    let write = client.ask(Operation::Mkdir { lfns: vec![lfn("/a")], parents: false, mode: None }).await;
    eventually("the write to be begun", || world.hooks.applies_begun.load(Ordering::SeqCst) > before).await;
    admin.call(Operation::Drain { resume: false }).await.unwrap();
    let (_, frame) = client.expect().await;
    assert!(matches!(&frame, Frame::Goodbye { reason } if reason.contains("drained")), "{frame:?}");
    let late = client.ask(stat(1)).await;
    assert_eq!(client.outcome(late).await.unwrap_err().kind, ErrorKind::Unavailable);
    let mut other = tls(&world, &world.server.addresses.certificate).await.unwrap();
    let refused = other.expect_refusal().await;
    assert!(
        refused.kind == ErrorKind::Unavailable && refused.message.contains("another server"),
        "{refused}"
    );
    assert_eq!(http(&world, "GET", "/readyz").await.0, 503);
    assert_eq!(http(&world, "GET", "/livez").await.0, 200);
    assert_eq!(http(&world, "GET", "/api/v1/whoami").await.0, 503);
    admin.call(stat(1)).await.unwrap();
    Client::admin(&world).await.call(stat(1)).await.unwrap();
    assert_eq!(world.figure("server", "drained").await, 1);

    world.hooks.hold_applies.send_replace(false);
    assert!(matches!(client.outcome(write).await, Ok(Answer::EachDone(items)) if items == [Ok(())]));
    assert_eq!(soon("the end of the connection", client.next()).await, None);
    admin.call(Operation::Drain { resume: true }).await.unwrap();
    from_network(&world, &token).await.call(stat(1)).await.unwrap();
    assert_eq!(http(&world, "GET", "/readyz").await.0, 200);
}
