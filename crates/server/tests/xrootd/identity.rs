//! Admission of clients, and their identity.

use std::time::Duration;

use exacat_wire::xrootd::numbers::{ability, error, request, role, status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::root::{Root, world, world_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_shown_over_tls() {
    let world = world_with(|settings| settings.catalogue.anonymous_reads = false).await;
    let token = world.new_user("jdoe").await;
    world.directory("/d").await;
    // A client with TLS must use it, because nothing is allowed without a token here.
    let mut able = Root::raw(&world).await;
    let roles = able.greet(ability::TLS).await;
    assert_eq!(roles, role::MANAGER | role::HAS_TLS | role::GO_TO_TLS | role::TLS_LOGIN);
    let mut able = able.secure(&world).await;
    assert_eq!(Root::protocols(&able.login().await), "&P=ztn,0:4096:");
    assert_eq!(able.fails(request::STAT, [0; 16], "/d").await, error::INVALID_REQUEST);
    assert_eq!(able.show(b"ztn\0", &Root::ztn("exa_nope")).await.error().0, error::AUTH_FAILED);
    assert_eq!(able.show(b"gsi\0", b"gsi\0").await.error().0, error::AUTH_FAILED);
    assert_eq!(able.show(b"host", b"host\0").await.error().0, error::AUTH_FAILED);
    assert_eq!(able.show(b"ztn\0", &Root::ztn(&token)).await.status, status::OK);
    able.done(request::MKDIR, [0; 16], "/d/mine").await;
    assert!(able.stat("/d/mine").await.text().ends_with(" jdoe jdoe"));
    // A client without TLS gets an error.
    let mut plain = Root::raw(&world).await;
    assert_eq!(plain.greet(0).await & role::GO_TO_TLS, 0);
    assert_eq!(plain.login().await.error().0, error::TLS_REQUIRED);
    assert!(plain.is_over().await);
    // A client with too many wrong tokens is disconnected.
    let mut guessing = Root::private(&world).await;
    guessing.login().await;
    for _ in 0..4 {
        assert_eq!(guessing.show(b"ztn\0", &Root::ztn("exa_guess")).await.error().0, error::AUTH_FAILED);
    }
    assert!(guessing.is_over().await);
    assert!(world.figure("server", "authentications_refused").await >= 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_anybody_may_read_nothing_has_to_be_shown_but_may_be() {
    let world = world().await;
    let token = world.new_user("jdoe").await;
    world.directory("/d").await;
    let mut plain = Root::raw(&world).await;
    assert_eq!(plain.greet(ability::TLS).await & role::GO_TO_TLS, 0, "it is not asked for");
    plain.login().await;
    plain.stat("/d").await.text();
    let mut private = Root::private(&world).await;
    assert_eq!(Root::protocols(&private.login().await), "&P=ztn,0:4096:&P=host");
    assert_eq!(private.show(b"host", b"host\0").await.status, status::OK);
    assert_eq!(private.fails(request::MKDIR, [0; 16], "/d/x").await, error::NOT_AUTHORIZED);
    // A token with one request, for clients that cannot log in with it.
    let path = format!("/d/x?authz=Bearer%20{token}");
    private.done(request::MKDIR, [0; 16], &path).await;
    assert!(private.stat("/d/x").await.text().ends_with(" jdoe jdoe"));
    assert_eq!(private.fails(request::STAT, [0; 16], "/d?authz=exa_nope").await, error::NOT_AUTHORIZED);
    private.done(request::STAT, [0; 16], "/d?authz=Bearer%20eyJ.of.somebody").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_and_addresses_are_believed_only_where_that_is_set() {
    let world = world_with(|settings| settings.catalogue.anonymous_reads = false).await;
    world.user("jdoe", |user| user.subjects = Some(vec!["unix:jd".to_owned()])).await;
    let mut root = Root::raw(&world).await;
    root.greet(0).await;
    assert_eq!(root.login().await.error().0, error::TLS_REQUIRED);
    let mut root = Root::private(&world).await;
    root.login().await;
    assert_eq!(root.show(b"unix", b"unix\0jd users\0").await.error().0, error::AUTH_FAILED);
    // An address that stands for an account.
    world.user("cache", |user| user.subjects = Some(vec!["host:127.0.0.1".to_owned()])).await;
    world.directory("/d").await;
    let mut cache = Root::raw(&world).await;
    assert_eq!(cache.greet(ability::TLS).await & role::GO_TO_TLS, 0);
    assert_eq!(Root::protocols(&cache.login().await), "");
    cache.done(request::MKDIR, [0; 16], "/d/c").await;
    assert!(cache.stat("/d/c").await.text().ends_with(" cache cache"));

    let world = world_with(|settings| {
        settings.catalogue.anonymous_reads = false;
        settings.xrootd.as_mut().unwrap().trusted = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    world.user("jdoe", |user| user.subjects = Some(vec!["unix:jd".to_owned()])).await;
    world.directory("/d").await;
    let mut root = Root::raw(&world).await;
    root.greet(0).await;
    assert_eq!(Root::protocols(&root.login().await), "&P=unix");
    assert_eq!(root.show(b"unix", b"unix\0admin users\0").await.error().0, error::AUTH_FAILED, "no subject");
    assert_eq!(root.show(b"unix", b"unix\0jd users\0").await.status, status::OK);
    root.done(request::MKDIR, [0; 16], "/d/x").await;
    assert!(root.stat("/d/x").await.text().ends_with(" jdoe jdoe"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_shown_ends_with_the_account() {
    let world = world_with(|settings| {
        settings.catalogue.anonymous_reads = false;
        settings.limits.revalidate = Duration::ZERO;
    })
    .await;
    let token = world.new_user("jdoe").await;
    let mut root = Root::token(&world, &token).await;
    root.done(request::STAT, [0; 16], "/").await;
    world.user("jdoe", |user| user.disabled = Some(true)).await;
    assert_eq!(root.fails(request::STAT, [0; 16], "/").await, error::NOT_AUTHORIZED);
    assert!(root.is_over().await);
    assert_eq!(world.figure("server", "revalidations_refused").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_taken_from_before_tls_into_it() {
    let world = world_with(|settings| settings.catalogue.anonymous_reads = false).await;
    let mut root = Root::raw(&world).await;
    let mut bytes = exacat_wire::xrootd::HANDSHAKE.to_vec();
    let mut body = [0; 16];
    body[4] = ability::WANT_TLS;
    exacat_wire::xrootd::write_request(&mut bytes, Default::default(), request::PROTOCOL, body, b"");
    // Bytes added by an attacker on the way.
    exacat_wire::xrootd::write_request(&mut bytes, Default::default(), request::PING, [0; 16], b"");
    root.stream.write_all(&bytes).await.unwrap();
    assert!(root.answer().await.is_some() && root.answer().await.is_some());
    assert!(root.is_over().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_envelopes_are_told_on_the_same_port() {
    let world =
        world_with(|settings| settings.envelopes.issuer = Some("https://c.example:1094/".into())).await;
    let ask = async |path: &str| {
        let mut root = Root::raw(&world).await.secure(&world).await;
        let asked = format!("GET {path} HTTP/1.1\r\nhost: c\r\nconnection: close\r\n\r\n");
        root.stream.write_all(asked.as_bytes()).await.unwrap();
        let mut told = String::new();
        crate::client::soon("keys", root.stream.read_to_string(&mut told)).await.unwrap();
        told
    };
    let told = ask("/.well-known/openid-configuration").await;
    assert!(told.contains(r#""jwks_uri":"https://c.example:1094/.well-known/jwks.json""#), "{told}");
    let told = ask("/.well-known/jwks.json").await;
    assert!(told.starts_with("HTTP/1.1 200") && told.contains(r#""crv":"P-256""#), "{told}");
    assert!(ask("/").await.starts_with("HTTP/1.1 404"));
}
