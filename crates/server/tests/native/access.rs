//! Authentication: good and bad tokens, the local user, anonymous callers, acting as another.

use std::time::Duration;

use exacat_model::{Answer, ErrorKind, Operation, Role, SeName};
use exacat_wire::native::{Authenticate, Credentials, Frame, Secret};

use crate::client::{Client, tls};
use crate::world::{World, account, lfn};

fn token(secret: &str) -> Credentials {
    Credentials::Token(Secret::new(secret))
}

fn se(name: &str) -> SeName {
    SeName::parse(name).unwrap()
}

async fn refused(world: &World, shown: Authenticate) -> ErrorKind {
    let mut client = Client::connect(world).await;
    client.hello().await;
    client.authenticate_as(shown).await.unwrap_err().kind
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_wrong_expired_or_revoked_are_refused() {
    let world = World::new().await;
    world.user("alice", |_| {}).await;
    let (revoked, revoked_secret) = world.token("alice", 3600).await;
    let (_, short) = world.token("alice", 60).await;
    let (_, good) = world.token("alice", 3600).await;
    world.admin(Operation::TokenRevoke { id: revoked }).await;
    world.clock.turn(61_000);
    let half = good[..good.len() - 1].to_owned();
    let mut other = good.clone();
    let last = if other.pop() == Some('0') { '1' } else { '0' };
    other.push(last);
    let secrets = ["", "nonsense", &half, &other, &revoked_secret, &short];
    for secret in secrets {
        let shown = Authenticate { credentials: token(secret), act_as: None };
        assert_eq!(refused(&world, shown).await, ErrorKind::Unauthenticated, "{secret}");
    }
    let mut client = Client::with_token(&world, &good).await;
    match client.call(Operation::Whoami).await.unwrap() {
        Answer::Whoami { user, .. } => assert_eq!(user.unwrap().name.as_str(), "alice"),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.figure("server", "authentications_refused").await, secrets.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_user_is_believed_only_on_the_local_socket() {
    let world = World::new().await;
    let mut client = tls(&world, &world.server.addresses.certificate).await.unwrap();
    client.hello().await;
    let refused = client.authenticate(Credentials::Local).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unauthenticated);
    let mut client = Client::connect(&world).await;
    client.hello().await;
    let identity = client.authenticate(Credentials::Local).await.unwrap();
    assert_eq!(identity.user.unwrap().as_str(), "admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_callers_read_only_where_that_is_configured() {
    let world = World::new().await;
    let shown = Authenticate { credentials: Credentials::Anonymous, act_as: None };
    assert_eq!(refused(&world, shown).await, ErrorKind::Unauthenticated);

    let world = World::with(|settings| settings.catalogue.anonymous_reads = true).await;
    world.directory("/open").await;
    let mut client = Client::connect(&world).await;
    assert!(!client.hello().await.authentication_required);
    let identity = client.authenticate(Credentials::Anonymous).await.unwrap();
    assert_eq!((identity.user, identity.write), (None, false));
    client.call(Operation::Stat { lfns: vec![lfn("/open")], follow: true }).await.unwrap();
    let write = Operation::Mkdir { lfns: vec![lfn("/open/a")], parents: false, mode: None };
    assert_eq!(client.call(write).await.unwrap_err().kind, ErrorKind::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_acts_as_another_only_if_one_may() {
    let world = World::new().await;
    let secret = world.new_user("alice").await;
    world.new_user("bob").await;
    let as_bob = || Authenticate { credentials: token(&secret), act_as: Some(account("bob")) };
    assert_eq!(refused(&world, as_bob()).await, ErrorKind::Denied);
    let as_nobody = Authenticate { credentials: token(&secret), act_as: Some(account("nobody")) };
    assert_eq!(refused(&world, as_nobody).await, ErrorKind::NotFound);
    world.user("alice", |user| user.may_become = Some(vec![account("bob")])).await;
    let mut client = Client::connect(&world).await;
    client.hello().await;
    let identity = client.authenticate_as(as_bob()).await.unwrap();
    assert_eq!(identity.user.unwrap().as_str(), "bob");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_revoked_ends_open_connections_within_the_time_set() {
    let world = World::with_limits(|limits| limits.revalidate = Duration::ZERO).await;
    world.user("alice", |_| {}).await;
    let (id, secret) = world.token("alice", 3600).await;
    let (_, second) = world.token("alice", 60).await;
    let (_, third) = world.token("alice", 3600).await;
    let mut revoked = Client::with_token(&world, &secret).await;
    let mut expired = Client::with_token(&world, &second).await;
    let mut disabled = Client::with_token(&world, &third).await;
    for client in [&mut revoked, &mut expired, &mut disabled] {
        client.call(Operation::Whoami).await.unwrap();
    }
    world.admin(Operation::TokenRevoke { id }).await;
    revoked.ask(Operation::Whoami).await;
    assert_eq!(revoked.expect_refusal().await.kind, ErrorKind::Unauthenticated);
    world.clock.turn(61_000);
    expired.ask(Operation::Whoami).await;
    assert_eq!(expired.expect_refusal().await.kind, ErrorKind::Unauthenticated);
    disabled.call(Operation::Whoami).await.unwrap();
    world.user("alice", |user| user.disabled = Some(true)).await;
    disabled.ask(Operation::Whoami).await;
    assert_eq!(disabled.expect_refusal().await.kind, ErrorKind::Unauthenticated);
    assert_eq!(world.figure("server", "revalidations_refused").await, 3);
}

/// Goal: changes by this server apply at once; the configured time is for changes by other servers
/// of a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn revoked_token_disabled_user_and_changed_role_act_at_once_on_open_connections() {
    let world = World::with_limits(|limits| limits.revalidate = Duration::from_secs(3600)).await;
    world.user("alice", |user| user.roles = Some(vec![Role::Operator])).await;
    world.user("bob", |_| {}).await;
    let (id, secret) = world.token("alice", 3600).await;
    let (_, second) = world.token("alice", 3600).await;
    let (_, third) = world.token("bob", 3600).await;
    let mut revoked = Client::with_token(&world, &secret).await;
    let mut demoted = Client::with_token(&world, &second).await;
    let mut disabled = Client::with_token(&world, &third).await;
    for client in [&mut revoked, &mut demoted, &mut disabled] {
        client.call(Operation::Whoami).await.unwrap();
    }
    let snapshots = Operation::SeDeletions { name: se("X::Y::Z"), cursor: Default::default(), limit: 1 };
    assert_eq!(demoted.call(snapshots.clone()).await.unwrap_err().kind, ErrorKind::NotFound);
    world.admin(Operation::TokenRevoke { id }).await;
    revoked.ask(Operation::Whoami).await;
    assert_eq!(revoked.expect_refusal().await.kind, ErrorKind::Unauthenticated);
    world.user("bob", |user| user.disabled = Some(true)).await;
    disabled.ask(Operation::Stat { lfns: vec![lfn("/")], follow: true }).await;
    assert_eq!(disabled.expect_refusal().await.kind, ErrorKind::Unauthenticated);
    world.user("alice", |user| user.roles = Some(Vec::new())).await;
    assert_eq!(demoted.call(snapshots).await.unwrap_err().kind, ErrorKind::Denied);
    demoted.call(Operation::Whoami).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_token_is_revoked() {
    let world = World::with_limits(|limits| limits.revalidate = Duration::ZERO).await;
    world.user("alice", |_| {}).await;
    world.directory("/d").await;
    world.files("/d", 3000).await;
    let (id, secret) = world.token("alice", 3600).await;
    let mut client = Client::with_token(&world, &secret).await;
    let list = Operation::List { lfn: lfn("/d"), cursor: Default::default(), limit: 10 };
    let options = exacat_wire::native::RequestOptions { stream: Some(1), ..Default::default() };
    let request = client.ask_with(options, list).await;
    assert!(matches!(client.expect().await, (id, Frame::Part(_)) if id == request));
    world.admin(Operation::TokenRevoke { id }).await;
    client.send(request, Frame::Credit { parts: 100 }).await;
    loop {
        match client.next().await {
            Some((0, Frame::Error(error))) => {
                assert_eq!(error.kind, ErrorKind::Unauthenticated);
                break;
            }
            Some((_, Frame::Error(error))) => assert_eq!(error.kind, ErrorKind::Unavailable),
            other => panic!("{other:?}"),
        }
    }
}
