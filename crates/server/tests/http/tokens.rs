//! Tokens of another issuer: an OpenID provider over TLS, its keys, their rotation, and every token
//! that must be refused.

use std::path::PathBuf;
use std::sync::Arc;

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
struct Key {
    id: String,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: &str) -> Self {
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

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "ES256", "kid": self.id, "typ": "JWT"}), claims)
    }
}

/// An OpenID provider.
struct Provider {
    url: String,
    ca: PathBuf,
    keys: Arc<Mutex<Value>>,
    _place: tempfile::TempDir,
}

impl Provider {
    async fn start(keys: &[&Key]) -> Self {
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
        let shared: Arc<Mutex<Value>> = Arc::default();
        let (issuer, served) = (url.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                let body = match request.split(' ').nth(1) {
                    Some("/.well-known/openid-configuration") => {
                        json!({"issuer": issuer, "jwks_uri": format!("{issuer}/jwks")}).to_string()
                    }
                    Some("/jwks") => served.lock().to_string(),
                    _ => String::new(),
                };
                let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        let provider = Provider { url, ca, keys: shared, _place: place };
        provider.publish(keys);
        provider
    }

    fn publish(&self, keys: &[&Key]) {
        *self.keys.lock() = json!({"keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>()});
    }

    fn settings(&self, profile: Profile) -> IssuerSettings {
        IssuerSettings {
            url: self.url.clone(),
            audiences: vec![AUDIENCE.to_owned()],
            base_path: "/vo".to_owned(),
            profile,
            user: None,
            ca: Some(self.ca.clone()),
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

#[tokio::test(flavor = "multi_thread")]
async fn bad_tokens_are_refused_with_a_reason() {
    let (key, stranger) = (Key::new("k1"), Key::new("k1"));
    let provider = Provider::start(&[&key]).await;
    let world = world(&provider, Profile::Wlcg).await;
    let good = provider.claims(&world, "storage.read:/john");
    let change = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let now = good["iat"].as_u64().unwrap();
    let header = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    let unsigned = |header: &Value| {
        let token = key.sign(header, &good);
        format!("{}.", token.rsplit_once('.').unwrap().0)
    };
    for (name, token) in [
        ("expired", key.token(&change("exp", json!(now - 600)))),
        ("not yet valid", key.token(&change("nbf", json!(now + 600)))),
        ("other audience", key.token(&change("aud", json!("https://other.example.org")))),
        ("no audience", key.token(&change("aud", json!([])))),
        ("other issuer", key.token(&change("iss", json!("https://other.example.org")))),
        ("scope without path", key.token(&change("scope", json!("storage.read")))),
        ("scope that climbs", key.token(&change("scope", json!("storage.read:/john/..")))),
        ("scope that climbs, encoded", key.token(&change("scope", json!("storage.read:/john/%2e%2e")))),
        ("relative scope", key.token(&change("scope", json!("storage.read:john")))),
        ("unknown subject", key.token(&change("sub", json!("bob-2")))),
        ("other major version", key.token(&change("wlcg.ver", json!("2.0")))),
        ("alg none", unsigned(&header("none", "k1"))),
        ("hs256", key.sign(&header("HS256", "k1"), &good)),
        ("rs256", key.sign(&header("RS256", "k1"), &good)),
        ("unknown kid", key.sign(&header("ES256", "k9"), &good)),
        ("kid that is a path", key.sign(&header("ES256", "../../etc/passwd"), &good)),
        ("kid that is a URL", key.sign(&header("ES256", "https://evil.example.org/jwks"), &good)),
        ("key of a stranger", stranger.token(&good)),
        ("no signature", unsigned(&header("ES256", "k1"))),
        ("garbage", "a.b.c".to_owned()),
        ("empty parts", "..".to_owned()),
    ] {
        let mut web = with(&world, &token).await;
        let refused = web.get("/api/v1/entries/vo/john/f000000").await;
        assert_eq!(
            (refused.status, refused.kind().as_str()),
            (401, "unauthenticated"),
            "{name}: {}",
            refused.text()
        );
        assert!(!refused.text().contains(&token), "{name}: a token is not repeated");
    }
    let mut web = with(&world, &key.token(&good)).await;
    assert_eq!(web.get("/api/v1/entries/vo/john/f000000").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_key_is_fetched_and_removed_issuer_is_refused() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let provider = Provider::start(&[&old, &new]).await;
    let world = world(&provider, Profile::Oidc).await;
    let claims = provider.claims(&world, "openid");
    let mut web = with(&world, &old.token(&claims)).await;
    let own = web.get("/api/v1/entries/vo/johnathan/f000000").await;
    assert_eq!(own.status, 200, "a user's token has the account's rights: {}", own.text());
    provider.publish(&[&new]);
    let mut other = with(&world, &new.token(&claims)).await;
    assert_eq!(other.get("/api/v1/whoami").await.json()["user"], "alice");
    // Verified tokens end with the issuer.
    save(&world.data().join("issuers.json"), &[]).unwrap();
    eventually_so("the token to end", async || {
        with(&world, &old.token(&claims)).await.get("/api/v1/whoami").await.status == 401
    })
    .await;
}
