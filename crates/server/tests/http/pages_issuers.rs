//! Sign-in to the pages at an issuer: the code flow of OpenID Connect, and every answer that is refused.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use exacat_server::issuers::{IssuerClient, IssuerSettings, Profile, save};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::pages::encoded;
use crate::tokens::{Key, Provider};
use crate::web::{Answer, Web};
use crate::world::World;

pub(crate) const CLIENT: &str = "exacat pages";
pub(crate) const SECRET: &str = "s:e/c ret";

/// Starts a world whose people sign in at an issuer.
pub(crate) async fn world(provider: &Provider) -> World {
    let world = World::new().await;
    let settings = IssuerSettings {
        audiences: vec![CLIENT.to_owned()],
        client: Some(IssuerClient { id: CLIENT.to_owned(), secret: Some(SECRET.to_owned()) }),
        ..provider.settings(Profile::Oidc)
    };
    save(&world.data().join("issuers.json"), &[settings]).unwrap();
    let subject = format!("token:{}#alice-1", provider.url);
    world.user("alice", |user| user.subjects = Some(vec![subject])).await;
    world
}

/// Returns a parameter of a URL, decoded.
pub(crate) fn parameter(url: &str, name: &str) -> String {
    let query = url.split_once('?').unwrap().1;
    let value = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).unwrap();
    exacat_wire::percent::decode(value, true).unwrap()
}

/// A sign-in under way: the URL of the issuer, and the cookie that the browser keeps.
pub(crate) struct Begun {
    pub url: String,
    pub cookie: String,
}

pub(crate) async fn begin(web: &mut Web, provider: &Provider) -> Begun {
    let target = format!("/sign-in/issuer?issuer={}&next=/browse/d", encoded(&provider.url));
    let answer = web.get(&target).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let set = &answer.cookies[0];
    assert!(
        set.starts_with("exacat-plain-flow=") && set.contains("HttpOnly; SameSite=Lax; Max-Age=600"),
        "{set}"
    );
    Begun { url: answer.header("location").to_owned(), cookie: set.split(';').next().unwrap().to_owned() }
}

pub(crate) fn claims(world: &World, provider: &Provider, begun: &Begun) -> Value {
    let now = world.server.catalogue().now().0 / 1000;
    json!({
        "iss": provider.url, "sub": "alice-1", "aud": CLIENT, "iat": now - 10, "exp": now + 600,
        "nonce": parameter(&begun.url, "nonce"),
    })
}

pub(crate) async fn finish(web: &mut Web, begun: &Begun, query: &str) -> Answer {
    web.ask("GET", &format!("/sign-in/back?{query}"), &[("Cookie", &begun.cookie)], "").await
}

pub(crate) fn session(answer: &Answer) -> Option<&str> {
    let cookie = answer.cookies.iter().find(|cookie| cookie.starts_with("exacat-plain="))?;
    cookie.split(';').next()
}

/// Property: a person who signs in at the issuer gets a session of its account, and the server proves with
/// PKCE and its secret that it began the sign-in.
#[tokio::test(flavor = "multi_thread")]
async fn person_signs_in_at_an_issuer() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let world = world(&provider).await;
    let mut web = Web::anonymous(&world).await;
    let page = web.get("/sign-in?next=/browse/d").await;
    assert!(page.text().contains("href=\"/sign-in/issuer?issuer=https%3A//localhost"), "{}", page.text());
    let begun = begin(&mut web, &provider).await;
    assert!(begun.url.starts_with(&format!("{}/authorize?", provider.url)), "{}", begun.url);
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", "http://localhost/sign-in/back"),
        ("scope", "openid"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(parameter(&begun.url, name), value);
    }
    let token = key.token(&claims(&world, &provider, &begun));
    *provider.served.tokens.lock() = json!({"access_token": "x", "token_type": "Bearer", "id_token": token});
    let query =
        format!("code=the+code&state={}&iss={}", parameter(&begun.url, "state"), encoded(&provider.url));
    let answer = finish(&mut web, &begun, &query).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/browse/d"), "{}", answer.text());
    assert!(
        answer.cookies.iter().any(|one| one.starts_with("exacat-plain-flow=;") && one.contains("Max-Age=0"))
    );
    let cookie = session(&answer).unwrap();
    let page = web.ask("GET", "/account", &[("Cookie", cookie)], "").await;
    assert!(page.text().contains("<bdi>alice</bdi>"), "{}", page.text());

    let redeemed = provider.served.redeemed.lock().clone();
    let (head, body) = redeemed.split_once("\r\n\r\n").unwrap();
    let sent = format!("?{body}");
    assert_eq!(parameter(&sent, "code"), "the code");
    assert_eq!(parameter(&sent, "grant_type"), "authorization_code");
    assert_eq!(parameter(&sent, "redirect_uri"), "http://localhost/sign-in/back");
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, parameter(&sent, "code_verifier").as_bytes()));
    assert_eq!(challenge, parameter(&begun.url, "code_challenge"));
    let pair = STANDARD.encode("exacat%20pages:s%3Ae/c%20ret");
    assert!(head.to_ascii_lowercase().contains("authorization: basic") && head.contains(&pair), "{head}");
}

/// Property: an answer of another browser, another sign-in, another issuer or with a bad token opens no
/// session.
#[tokio::test(flavor = "multi_thread")]
async fn forged_answers_of_issuers_are_refused() {
    let (key, other) = (Key::new("k1"), Key::new("k1"));
    let provider = Provider::start(&[&key]).await;
    let world = world(&provider).await;
    let mut web = Web::anonymous(&world).await;
    let begun = begin(&mut web, &provider).await;
    let good = claims(&world, &provider, &begun);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let state = parameter(&begun.url, "state");
    let query = format!("code=c&state={state}");
    let is_refused = |answer: &Answer, what: &str| {
        assert!(matches!(answer.status, 400..=403), "{what}: {} {}", answer.status, answer.text());
        assert!(session(answer).is_none(), "{what}");
        assert!(answer.text().contains("role=\"alert\""), "{what}");
    };
    for (what, token) in [
        ("another nonce", key.token(&with("nonce", json!("x")))),
        ("no nonce", key.token(&with("nonce", Value::Null))),
        ("another audience", key.token(&with("aud", json!("other")))),
        ("another issuer", key.token(&with("iss", json!("https://evil.example.org")))),
        ("an unknown person", key.token(&with("sub", json!("mallory")))),
        ("expired", key.token(&with("exp", json!(1000)))),
        ("another key", other.token(&good)),
        ("no token", "x".to_owned()),
    ] {
        *provider.served.tokens.lock() = json!({"id_token": token});
        is_refused(&finish(&mut web, &begun, &query).await, what);
    }
    *provider.served.tokens.lock() = json!({"id_token": key.token(&good)});
    for (what, query) in [
        ("another state", format!("code=c&state={}", "A".repeat(43))),
        ("no state", "code=c".to_owned()),
        ("an empty state", "code=c&state=".to_owned()),
        ("another issuer in the answer", format!("{query}&iss=https%3A//evil.example.org")),
        ("a refusal", format!("error=access_denied&state={state}")),
    ] {
        is_refused(&finish(&mut web, &begun, &query).await, what);
    }
    let stranger = Begun { url: String::new(), cookie: "a=b".to_owned() };
    is_refused(&finish(&mut web, &stranger, &query).await, "a browser without the cookie");
    let cut = Begun { url: String::new(), cookie: begun.cookie.rsplit_once('.').unwrap().0.to_owned() };
    is_refused(&finish(&mut web, &cut, &query).await, "a cut cookie");
    let target = "/sign-in/issuer?issuer=https%3A//evil.example.org";
    is_refused(&web.get(target).await, "an issuer that is not configured");
    assert_eq!(finish(&mut web, &begun, &query).await.status, 303, "the good answer");
}
