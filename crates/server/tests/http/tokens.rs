//! Tokens of another issuer: an OpenID provider over TLS, its keys, their rotation, and every token
//! that must be refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use exacat_server::issuers::{IssuerSettings, Profile, save};
use exacat_testkit::waiting::eventually_so;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::web::Web;
use crate::world::{World, lfn};

const AUDIENCE: &str = "https://catalogue.example.org";

/// A key of the issuer.
pub(crate) struct Key {
    id: String,
    pair: EcdsaKeyPair,
}

impl Key {
    pub(crate) fn new(id: &str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        Key { id: id.to_owned(), pair }
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "x": part(&point[1..33]), "y": part(&point[33..])})
    }

    /// Signs claims under a header.
    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "ES256", "kid": self.id, "typ": "JWT"}), claims)
    }
}

/// An OpenID provider.
pub(crate) struct Provider {
    pub url: String,
    ca: PathBuf,
    pub served: Arc<Served>,
    _place: tempfile::TempDir,
}

/// The documents of a provider, and its state.
#[derive(Default)]
pub(crate) struct Served {
    keys: Mutex<Value>,
    /// In place of its keys' own address.
    jwks_uri: Mutex<Option<String>>,
    /// Its description is elsewhere.
    redirects: AtomicBool,
    is_down: AtomicBool,
    /// Answer to a code.
    pub tokens: Mutex<Value>,
    /// Last request with a code.
    pub redeemed: Mutex<String>,
    /// Requests that arrived.
    requests: AtomicU64,
}

/// Reads a request with its body.
async fn request(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut request = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = stream.read(&mut part).await.unwrap_or(0);
        request.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if read == 0 {
                return text;
            }
            continue;
        };
        let length = head
            .to_ascii_lowercase()
            .split_once("content-length: ")
            .and_then(|(_, rest)| rest.split("\r\n").next().and_then(|length| length.parse::<usize>().ok()));
        if read == 0 || body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}

impl Provider {
    pub(crate) async fn start(keys: &[&Key]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let ca = place.path().join("ca.pem");
        std::fs::write(&ca, certificate.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let shared: Arc<Served> = Arc::default();
        let (issuer, served) = (url.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if served.is_down.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                served.requests.fetch_add(1, Ordering::SeqCst);
                let request = request(&mut stream).await;
                let body = match request.split(' ').nth(1) {
                    Some("/.well-known/openid-configuration") => {
                        let uri = served.jwks_uri.lock().clone().unwrap_or_else(|| format!("{issuer}/jwks"));
                        json!({
                            "issuer": issuer, "jwks_uri": uri, "token_endpoint": format!("{issuer}/token"),
                            "authorization_endpoint": format!("{issuer}/authorize"),
                        })
                        .to_string()
                    }
                    Some("/token") => {
                        served.redeemed.lock().clone_from(&request);
                        served.tokens.lock().to_string()
                    }
                    Some("/jwks") => served.keys.lock().to_string(),
                    _ => String::new(),
                };
                let status = match (served.redirects.load(Ordering::SeqCst), body.is_empty()) {
                    (true, _) => "302 Found\r\nLocation: /jwks",
                    (_, true) => "404 Not Found",
                    _ => "200 OK",
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        let provider = Provider { url, ca, served: shared, _place: place };
        provider.publish(keys);
        provider
    }

    fn publish(&self, keys: &[&Key]) {
        *self.served.keys.lock() = json!({"keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>()});
    }

    pub(crate) fn settings(&self, profile: Profile) -> IssuerSettings {
        IssuerSettings {
            url: self.url.clone(),
            audiences: vec![AUDIENCE.to_owned()],
            base_path: "/vo".to_owned(),
            profile,
            user: None,
            ca: Some(self.ca.clone()),
            client: None,
        }
    }

    fn claims(&self, world: &World, scope: &str) -> Value {
        let now = world.server.catalogue().now().0 / 1000;
        json!({
            "iss": self.url, "sub": "alice-1", "aud": AUDIENCE, "wlcg.ver": "1.0", "iat": now - 10, "nbf": now - 10,
            "exp": now + 3600, "jti": "j", "scope": scope,
        })
    }
}

/// Starts a world with the machine's clock, and with the issuer.
async fn world(provider: &Provider, profile: Profile) -> World {
    let world = World::new().await;
    save(&world.data().join("issuers.json"), &[provider.settings(profile)]).unwrap();
    let subject = format!("token:{}#alice-1", provider.url);
    world.user("alice", |user| user.subjects = Some(vec![subject])).await;
    for name in ["/vo/john", "/vo/johnathan", "/vo/new", "/elsewhere"] {
        world.directory(name).await;
    }
    world.files("/vo/john", 1).await;
    world.files("/vo/johnathan", 1).await;
    world
}

async fn with(world: &World, token: &str) -> Web {
    Web { token: Some(token.to_owned()), ..Web::anonymous(world).await }
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_limit_the_rights_of_the_account() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let world = world(&provider, Profile::Wlcg).await;
    let token = key.token(&provider.claims(&world, "storage.read:/john storage.create:/new openid"));
    let mut web = with(&world, &token).await;
    assert_eq!(web.get("/api/v1/whoami").await.json()["user"], "alice");
    for (method, target, status) in [
        ("GET", "/api/v1/entries/vo/john/f000000", 200),
        ("GET", "/api/v1/replicas/vo/john/f000000", 200),
        ("GET", "/api/v1/children/vo/john", 200),
        ("GET", "/api/v1/entries/vo/johnathan/f000000", 403),
        ("GET", "/api/v1/children/vo", 403),
        ("GET", "/api/v1/entries/elsewhere", 403),
        ("PUT", "/api/v1/directories/vo/new/d", 200),
        ("GET", "/api/v1/entries/vo/new/d", 200),
        ("GET", "/api/v1/replicas/vo/new/d", 403),
        ("PUT", "/api/v1/directories/vo/john/d", 403),
        ("DELETE", "/api/v1/entries/vo/new/d", 403),
        ("GET", "/api/v1/tokens", 403),
        ("GET", "/api/v1/trash", 403),
        ("GET", "/api/v1/changes", 403),
        ("POST", "/api/v1/fsck", 403),
    ] {
        let answer = web.ask(method, target, &[], "").await;
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
    }
    let escaped = web.json("POST", "/api/v1/tokens", json!({"lifetime_seconds": 60})).await;
    assert_eq!(escaped.status, 403, "a token of this catalogue would have no scopes");
    // A link does not lead out of the scopes.
    let link = json!({"target": "/vo/johnathan"});
    assert_eq!(web.json("PUT", "/api/v1/links/vo/new/l", link).await.status, 200);
    assert_eq!(web.get("/api/v1/entries/vo/new/l/f000000").await.status, 403);
    assert_eq!(web.ask("PUT", "/api/v1/directories/vo/new/l/x", &[], "").await.status, 403);
    // Scopes never widen: the account itself may not.
    world
        .admin(exacat_model::Operation::SetAttributes {
            lfns: vec![lfn("/vo/john")],
            attributes: vec![exacat_model::operation::Attribute::Mode(
                exacat_model::Mode::new(0o700).unwrap(),
            )],
        })
        .await;
    assert_eq!(web.get("/api/v1/entries/vo/john/f000000").await.status, 403);
    // WebDAV takes the same tokens.
    assert_eq!(web.ask("MKCOL", "/dav/vo/new/e", &[], "").await.status, 201);
    assert_eq!(web.ask("DELETE", "/dav/vo/new/e", &[], "").await.status, 403);
}

/// Signs with HMAC, as a careless verifier would accept with the public key as the secret.
fn confused(key: &Key, claims: &Value, secret: &[u8]) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&json!({"alg": "HS256", "kid": key.id})), part(claims));
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(ring::hmac::sign(&secret, text.as_bytes()).as_ref()))
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_tokens_are_refused_with_a_reason() {
    let (key, stranger) = (Key::new("k1"), Key::new("k1"));
    let provider = Provider::start(&[&key]).await;
    let evil = Provider::start(&[&stranger]).await;
    let world = world(&provider, Profile::Wlcg).await;
    let good = provider.claims(&world, "storage.read:/john");
    let change = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let scoped = |scope: &str| key.token(&change("scope", json!(scope)));
    let now = good["iat"].as_u64().unwrap();
    let header = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    let unsigned = |header: &Value| {
        let token = key.sign(header, &good);
        format!("{}.", token.rsplit_once('.').unwrap().0)
    };
    let with_header = |name: &str, value: &Value, by: &Key| {
        let mut header = header("ES256", "k1");
        header[name] = value.clone();
        by.sign(&header, &good)
    };
    let point = key.pair.public_key().as_ref();
    let mut padded = key.token(&good);
    padded.push_str("==");
    let mut flipped = key.token(&good).into_bytes();
    let at = flipped.len() - 20;
    flipped[at] = if flipped[at] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    let long = key.token(&change("note", json!("x".repeat(20 << 10))));
    let many = "storage.read:/john ".repeat(65);
    for (name, token, status, reason) in [
        ("expired", key.token(&change("exp", json!(now - 600))), 401, "expired"),
        ("expired beyond the skew", key.token(&change("exp", json!(now - 60))), 401, "expired"),
        ("no expiry", key.token(&without("exp")), 401, "exp"),
        ("expiry in text", key.token(&change("exp", json!("9999999999"))), 401, "exp"),
        ("not yet valid", key.token(&change("nbf", json!(now + 600))), 401, "valid in"),
        ("issued in the future", key.token(&change("iat", json!(now + 600))), 401, "valid in"),
        ("no time of issue", key.token(&without("iat")), 401, "iat"),
        (
            "other audience",
            key.token(&change("aud", json!("https://other.example.org"))),
            401,
            "another service",
        ),
        (
            "longer audience",
            key.token(&change("aud", json!(format!("{AUDIENCE}.evil.org")))),
            401,
            "another service",
        ),
        (
            "audience with a slash",
            key.token(&change("aud", json!(format!("{AUDIENCE}/")))),
            401,
            "another service",
        ),
        ("audience of all, not configured", key.token(&change("aud", json!("ANY"))), 401, "another service"),
        ("no audience", key.token(&change("aud", json!([]))), 401, "another service"),
        ("audience missing", key.token(&without("aud")), 401, "another service"),
        (
            "other issuer",
            key.token(&change("iss", json!("https://other.example.org"))),
            401,
            "not configured",
        ),
        (
            "issuer with a slash",
            key.token(&change("iss", json!(format!("{}/", provider.url)))),
            401,
            "not configured",
        ),
        ("no subject", key.token(&without("sub")), 401, "sub"),
        ("unknown subject", key.token(&change("sub", json!("bob-2"))), 401, "no user"),
        ("other major version", key.token(&change("wlcg.ver", json!("2.0"))), 401, "wlcg.ver"),
        ("no version", key.token(&without("wlcg.ver")), 401, "wlcg.ver"),
        ("scope without path", scoped("storage.read"), 401, "path"),
        ("one scope without path", scoped("storage.read:/john storage.modify"), 401, "path"),
        ("scope with an empty path", scoped("storage.read:"), 401, "path"),
        ("relative scope", scoped("storage.read:john"), 401, "path"),
        ("scope that climbs", scoped("storage.read:/john/.."), 401, ".."),
        ("scope that climbs first", scoped("storage.read:/../elsewhere"), 401, ".."),
        ("scope that climbs, encoded", scoped("storage.read:/john/%2e%2e"), 401, "scope"),
        ("scope with a point", scoped("storage.read:/./john"), 401, "scope"),
        ("scope encoded twice", scoped("storage.read:/john/%252e%252e"), 401, "scope"),
        ("scope with an encoded slash", scoped("storage.read:/john%2f..%2fjohnathan"), 401, "scope"),
        ("scope with an empty component", scoped("storage.read://john"), 401, "scope"),
        ("scope with a bad escape", scoped("storage.read:/john%zz"), 401, "scope"),
        ("too many scopes", scoped(many.trim_end()), 401, "scopes"),
        ("scope of a sibling", scoped("storage.read:/johnathan"), 403, "scopes"),
        ("scope of the start of a name", scoped("storage.read:/joh"), 403, "scopes"),
        ("scope of another activity's path", scoped("storage.poll:/john"), 403, "scopes"),
        ("no scope", scoped("openid"), 403, "scopes"),
        ("alg none", unsigned(&header("none", "k1")), 401, "none"),
        ("alg None", unsigned(&header("None", "k1")), 401, "none"),
        ("hs256 with the public key", confused(&key, &good, point), 401, "shared secret"),
        (
            "hs256 with the key's document",
            confused(&key, &good, key.public().to_string().as_bytes()),
            401,
            "shared secret",
        ),
        ("rs256 with a curve's key", key.sign(&header("RS256", "k1"), &good), 401, "another one"),
        ("es384 with a shorter curve", key.sign(&header("ES384", "k1"), &good), 401, "another one"),
        ("unknown alg", key.sign(&header("XS1", "k1"), &good), 401, "not on the list"),
        ("unknown kid", key.sign(&header("ES256", "k9"), &good), 401, "no key"),
        ("kid that is a path", key.sign(&header("ES256", "../../etc/passwd"), &good), 401, "no key"),
        ("kid that is a device", key.sign(&header("ES256", "/dev/null"), &good), 401, "no key"),
        (
            "kid that is a URL",
            key.sign(&header("ES256", &format!("{}/jwks", evil.url)), &good),
            401,
            "no key",
        ),
        ("kid that is a statement", key.sign(&header("ES256", "k1' OR '1'='1"), &good), 401, "no key"),
        ("kid that is a number", key.sign(&json!({"alg": "ES256", "kid": 1}), &good), 401, "kid"),
        (
            "jku of a stranger",
            with_header("jku", &json!(format!("{}/jwks", evil.url)), &stranger),
            401,
            "signature",
        ),
        (
            "x5u of a stranger",
            with_header("x5u", &json!(format!("{}/jwks", evil.url)), &stranger),
            401,
            "signature",
        ),
        ("jwk in the header", with_header("jwk", &stranger.public(), &stranger), 401, "signature"),
        ("crit", with_header("crit", &json!(["exp"]), &key), 401, "crit"),
        ("typ of a logout token", with_header("typ", &json!("logout+jwt"), &key), 401, "typ"),
        ("key of a stranger", stranger.token(&good), 401, "signature"),
        ("changed signature", flipped, 401, "signature"),
        ("no signature", unsigned(&header("ES256", "k1")), 401, "signature"),
        ("padded", padded, 401, "base64url"),
        ("too long", long, 401, "length"),
        ("garbage", "a.b.c".to_owned(), 401, "malformed"),
        ("empty parts", "..".to_owned(), 401, "malformed"),
        ("encrypted token", "a.b.c.d.e".to_owned(), 401, ""),
    ] {
        let mut web = with(&world, &token).await;
        let refused = web.get("/api/v1/entries/vo/john/f000000").await;
        assert_eq!(refused.status, status, "{name}: {}", refused.text());
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(reason), "{name}: {detail}");
        if status == 401 {
            assert!(refused.header("www-authenticate").starts_with("Bearer"), "{name}");
        }
        assert!(!refused.text().contains(&token), "{name}: a token is not repeated");
    }
    assert_eq!(evil.served.requests.load(Ordering::SeqCst), 0, "no address in a token is asked");
    for good in [
        key.token(&good),
        key.token(&change("aud", json!(["https://other.example.org", AUDIENCE]))),
        key.token(&change("wlcg.ver", json!("1.7"))),
        key.token(&change("exp", json!(now - 30))),
        key.token(&change("nbf", json!(now + 50))),
        scoped("storage.read:/john openid storage.future:/x"),
        scoped("storage.modify:/john"),
        scoped("storage.read:/"),
    ] {
        let mut web = with(&world, &good).await;
        let accepted = web.get("/api/v1/entries/vo/john/f000000").await;
        assert_eq!(accepted.status, 200, "{}", accepted.text());
    }
}

/// Asks until the answer has this status.
async fn until(web: &mut Web, status: u16) {
    eventually_so(&format!("status {status}"), async || web.get("/api/v1/whoami").await.status == status)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_key_is_fetched_at_most_once_a_minute_and_the_removed_one_is_refused() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let provider = Provider::start(&[&old]).await;
    let world = world(&provider, Profile::Oidc).await;
    let claims = provider.claims(&world, "openid");
    let mut first = with(&world, &old.token(&claims)).await;
    let own = first.get("/api/v1/entries/vo/johnathan/f000000").await;
    assert_eq!(own.status, 200, "a user's token has the account's rights: {}", own.text());
    let requests = || provider.served.requests.load(Ordering::SeqCst);
    let fetched = requests();
    provider.publish(&[&new]);
    // Strangers cannot make the server ask more often.
    for _ in 0..5 {
        assert_eq!(with(&world, &new.token(&claims)).await.get("/api/v1/whoami").await.status, 401);
    }
    assert_eq!(requests(), fetched);
    world.clock.turn(61_000);
    let mut other = with(&world, &new.token(&claims)).await;
    assert_eq!(other.get("/api/v1/whoami").await.json()["user"], "alice");
    assert_eq!(requests(), fetched + 2, "the description and the keys");
    // The old key is gone for tokens that were verified before, too.
    assert_eq!(with(&world, &old.token(&claims)).await.get("/api/v1/whoami").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_outlive_an_issuer_that_is_down_for_a_day_and_not_longer() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let world = world(&provider, Profile::Oidc).await;
    let mut claims = provider.claims(&world, "openid");
    claims["exp"] = json!(claims["exp"].as_u64().unwrap() + 100 * 3600);
    let fresh = |number: u64| {
        let mut claims = claims.clone();
        claims["jti"] = json!(number);
        key.token(&claims)
    };
    provider.served.is_down.store(true, Ordering::SeqCst);
    let refused = with(&world, &fresh(0)).await.get("/api/v1/whoami").await;
    assert_eq!((refused.status, refused.kind().as_str()), (503, "unavailable"));
    assert!(!refused.text().contains("localhost"), "where keys are is no matter of a stranger");
    provider.served.is_down.store(false, Ordering::SeqCst);
    world.clock.turn(6_000);
    let mut web = with(&world, &fresh(1)).await;
    assert_eq!(web.get("/api/v1/whoami").await.status, 200, "asked again soon while there are no keys");
    provider.served.is_down.store(true, Ordering::SeqCst);
    for number in 2..24 {
        world.clock.turn(3_600_000);
        let mut web = with(&world, &fresh(number)).await;
        assert_eq!(web.get("/api/v1/whoami").await.status, 200, "hour {number}");
    }
    world.clock.turn(3 * 3_600_000);
    let refused = with(&world, &fresh(30)).await.get("/api/v1/whoami").await;
    assert_eq!((refused.status, refused.kind().as_str()), (503, "unavailable"));
    provider.served.is_down.store(false, Ordering::SeqCst);
    world.clock.turn(61_000);
    until(&mut with(&world, &fresh(31)).await, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_follows_no_redirection_and_takes_no_plain_or_long_document() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let world = world(&provider, Profile::Oidc).await;
    let token = key.token(&provider.claims(&world, "openid"));
    let refused = async || {
        world.clock.turn(6_000);
        let answer = with(&world, &token).await.get("/api/v1/whoami").await;
        assert_eq!(answer.status, 503, "{}", answer.text());
    };
    provider.served.redirects.store(true, Ordering::SeqCst);
    refused().await;
    provider.served.redirects.store(false, Ordering::SeqCst);
    for uri in [
        provider.url.replace("https:", "http:") + "/jwks",
        "file:///etc/passwd".to_owned(),
        provider.url.replace("localhost", "localhost@evil.example.org") + "/jwks",
        // The certificate is for another name.
        provider.url.replace("localhost", "127.0.0.1") + "/jwks",
    ] {
        *provider.served.jwks_uri.lock() = Some(uri);
        refused().await;
    }
    *provider.served.jwks_uri.lock() = None;
    *provider.served.keys.lock() = json!({"keys": [key.public()], "more": "x".repeat(70 << 10)});
    refused().await;
    provider.publish(&[&key]);
    world.clock.turn(6_000);
    assert_eq!(with(&world, &token).await.get("/api/v1/whoami").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_issuer_disabled_user_and_expiry_end_an_open_connection() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let world = world(&provider, Profile::Oidc).await;
    let file = world.data().join("issuers.json");
    let claims = provider.claims(&world, "openid");
    let mut web = with(&world, &key.token(&claims)).await;
    assert_eq!(web.get("/api/v1/whoami").await.status, 200);
    save(&file, &[]).unwrap();
    until(&mut web, 401).await;
    save(&file, &[provider.settings(Profile::Oidc)]).unwrap();
    until(&mut web, 200).await;
    world.user("alice", |user| user.disabled = Some(true)).await;
    let refused = web.get("/api/v1/whoami").await;
    assert!(matches!(refused.status, 401 | 403), "{}", refused.text());
    world.user("alice", |user| user.disabled = Some(false)).await;
    assert_eq!(web.get("/api/v1/whoami").await.status, 200);
    let refused = web.ask("GET", "/api/v1/whoami", &[("Exacat-Act-As", "admin")], "").await;
    assert_eq!(refused.kind(), "denied", "{}", refused.text());
    world.clock.turn(3_700_000);
    let refused = web.get("/api/v1/whoami").await;
    assert_eq!((refused.status, refused.kind().as_str()), (401, "unauthenticated"));
}
