//! Protection of connections, and credentials: who sees the token, and who does not.

use std::sync::Arc;

use exacat_replay::run::outcome::{AccessResult, Outcome};
use exacat_replay_service::agent::{AgentSettings, CacheSettings, DriverKind, TokenUse};
use exacat_wire::xrootd::numbers::{error, request, role};
use exacat_wire::xrootd::response::{write_error, write_redirect_host};

use crate::server::{Server, ServerOf, answer};
use crate::service::Service;
use crate::trust::{Trust, trust};
use crate::world::{item, result_of, run, settings};

const NAME: &str = "/a";
const SIZE: u64 = 5000;
const TOKEN: &str = "secret.token";

const PROTECTED: u32 = role::SERVER | role::HAS_TLS | role::GO_TO_TLS | role::TLS_LOGIN;

async fn protected(trust: &Trust, methods: &'static str) -> Server {
    let tls = Some(trust.acceptor.clone());
    Server::start(ServerOf { roles: PROTECTED, methods, tls, ..ServerOf::default() }).await
}

async fn read(url: &str, set: impl FnOnce(&mut CacheSettings)) -> AccessResult {
    result_of(url, item(1, NAME, SIZE), |settings: &mut AgentSettings| set(&mut settings.cache)).await
}

/// Returns the bytes of all requests that a server saw.
fn all_bytes(server: &Server) -> String {
    let all: Vec<u8> = server.seen().into_iter().flat_map(|seen| seen.carried).collect();
    String::from_utf8_lossy(&all).into_owned()
}

/// Property: everything behind the agreement goes over TLS if the server or the address asks for it, and the
/// token with it.
#[tokio::test]
async fn connection_is_protected_where_the_server_asks_for_it() {
    let trust = trust();
    for scheme in ["root", "roots"] {
        let server = protected(&trust, "&P=gsi,x&P=unix&P=ztn,0:4096:").await;
        let url = format!("{scheme}://localhost:{}", server.address.port());
        let result = read(&url, |cache| {
            cache.tls = Some(Arc::clone(&trust.client));
            cache.token = Some(TOKEN.to_owned());
        })
        .await;
        assert_eq!((result.outcome, result.bytes), (Outcome::Ok, SIZE));
        let is_open = |kind| kind == request::PROTOCOL;
        assert!(server.seen().iter().all(|seen| seen.is_protected != is_open(seen.kind)));
        let shown = server.seen().into_iter().find(|seen| seen.kind == request::AUTH).unwrap().carried;
        assert_eq!(shown, [b"ztn\0\0T\0\0\0\x0d", TOKEN.as_bytes(), b"\0"].concat());
    }
}

/// Property: nothing is said to a server whose certificate is of another host or authority, or that has no
/// TLS though the address asks for it.
#[tokio::test]
async fn server_that_proves_nothing_hears_nothing() {
    let (known, other) = (trust(), trust());
    let server = protected(&other, "").await;
    let by_address = format!("roots://127.0.0.1:{}", server.address.port());
    for (url, trust) in [(server.url(), &known), (by_address, &other)] {
        let result = read(&url, |cache| cache.tls = Some(Arc::clone(&trust.client))).await;
        assert_eq!(result.outcome, Outcome::Handshake, "{url}");
    }
    let result = read(&server.url(), |_| {}).await;
    assert_eq!(result.outcome, Outcome::Handshake, "no trust");
    assert_eq!(server.count(request::LOGIN), 0);
    let plain = Server::start(ServerOf::default()).await;
    let url = format!("roots://localhost:{}", plain.address.port());
    for tls in [None, Some(Arc::clone(&known.client))] {
        let result = read(&url, |cache| cache.tls = tls).await;
        assert_eq!((result.outcome, plain.count(request::LOGIN)), (Outcome::Handshake, 0));
    }
}

/// Property: a token is never shown without TLS, unless the operator puts it into the path.
#[tokio::test]
async fn token_is_not_shown_without_tls() {
    for (methods, outcome) in [("&P=ztn,0:4096:", Outcome::Handshake), ("&P=ztn,0:4096:&P=unix", Outcome::Ok)]
    {
        let server = Server::start(ServerOf { methods, ..ServerOf::default() }).await;
        let result = read(&server.url(), |cache| cache.token = Some(TOKEN.to_owned())).await;
        assert_eq!(result.outcome, outcome);
        assert!(!all_bytes(&server).contains(TOKEN));
    }
    let server = Server::start(ServerOf::default()).await;
    let result = read(&server.url(), |cache| {
        cache.token = Some(TOKEN.to_owned());
        cache.token_use = TokenUse::Path;
    })
    .await;
    assert_eq!(result.outcome, Outcome::Ok);
    assert!(all_bytes(&server).contains("/a?authz=Bearer%20secret.token"));
}

/// Property: a redirection takes the token to no other host, unless the operator named it.
#[tokio::test]
async fn token_stays_with_its_hosts() {
    for (hosts, is_shown) in [(vec![], false), (vec!["127.0.0.1".to_owned()], true)] {
        let server = Server::start(ServerOf::default()).await;
        let port = server.address.port();
        let first = Server::scripted(move |asked| {
            (asked.kind() == request::OPEN)
                .then(|| answer(|out| write_redirect_host(out, asked.stream(), "127.0.0.1", port, "x=1")))?
        })
        .await;
        let result = read(&first.url(), |cache| {
            cache.token = Some(TOKEN.to_owned());
            cache.token_use = TokenUse::Path;
            cache.token_hosts = hosts;
        })
        .await;
        assert_eq!((result.outcome, all_bytes(&server).contains(TOKEN)), (Outcome::Ok, is_shown));
        assert!(all_bytes(&first).contains(TOKEN) && all_bytes(&server).contains("x=1"));
    }
}

/// Property: credentials without proof are shown; a server that wants others is refused; a token that the
/// server refuses or that has expired has its class.
#[tokio::test]
async fn credentials_that_the_server_refuses_have_their_class() {
    for (methods, shown) in [("&P=unix", "unix"), ("&P=gsi,v&P=host", "host")] {
        let server = Server::start(ServerOf { methods, ..ServerOf::default() }).await;
        assert_eq!(read(&server.url(), |_| {}).await.outcome, Outcome::Ok);
        assert!(all_bytes(&server).contains(shown));
    }
    let server = Server::start(ServerOf { methods: "&P=gsi,v:1", ..ServerOf::default() }).await;
    assert_eq!(read(&server.url(), |_| {}).await.outcome, Outcome::Handshake);
    let trust = trust();
    for (number, text, outcome) in [
        (error::AUTH_FAILED, "Token expired", Outcome::Expired),
        (error::NOT_AUTHORIZED, "no", Outcome::Denied),
        (error::SERVER_ERROR, "no", Outcome::Handshake),
    ] {
        let server = Server::start(ServerOf {
            roles: PROTECTED,
            methods: "&P=ztn,0:4096:",
            tls: Some(trust.acceptor.clone()),
            script: Arc::new(move |asked| {
                (asked.kind() == request::AUTH)
                    .then(|| answer(|out| write_error(out, asked.stream(), number, text)))?
            }),
            ..ServerOf::default()
        })
        .await;
        let result = read(&server.url(), |cache| {
            cache.tls = Some(Arc::clone(&trust.client));
            cache.token = Some(TOKEN.to_owned());
        })
        .await;
        assert_eq!((result.outcome, result.number), (outcome, number), "{text}");
    }
}

/// Property: the service is asked over TLS, if it proves to be the one.
#[tokio::test]
async fn service_is_asked_over_tls() {
    let (known, other) = (trust(), trust());
    let server = Server::start(ServerOf::default()).await;
    for (trust, is_known) in [(&known, true), (&other, false)] {
        let service = Service::start_over(vec![item(1, NAME, SIZE)], Some(known.acceptor.clone())).await;
        let mut settings = settings(&service, &server.url());
        settings.service = format!("https://localhost:{}", service.address.port());
        settings.tls = Some(Arc::clone(&trust.client));
        settings.service_patience = std::time::Duration::from_millis(300);
        match run(settings).await {
            Ok(summary) => assert!(is_known && summary.accepted == 1),
            Err(error) => assert!(!is_known && error.message.contains("did not answer"), "{error}"),
        }
    }
}

/// Property: a cache is read over HTTPS, if it proves to be the one.
#[tokio::test]
async fn cache_is_read_over_https() {
    let (known, other) = (trust(), trust());
    // Any server of HTTPS shows it: the service knows no such file.
    let web = Service::start_over(Vec::new(), Some(known.acceptor.clone())).await;
    let url = format!("https://localhost:{}/files", web.address.port());
    for (trust, outcome, number) in [(&known, Outcome::NotFound, 404), (&other, Outcome::Handshake, 0)] {
        let result = result_of(&url, item(1, NAME, SIZE), |settings| {
            settings.driver = DriverKind::Http;
            settings.cache.tls = Some(Arc::clone(&trust.client));
        })
        .await;
        assert_eq!((result.outcome, result.number), (outcome, number));
    }
}
