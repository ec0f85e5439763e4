//! The log at its highest level: secrets are not in it, and the identities of requests are.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exacat_wire::native::{Credentials, Secret};
use parking_lot::Mutex;
use serde_json::json;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::client::Client;
use crate::pages::Person;
use crate::pages_issuers::{self, begin, claims, finish, parameter};
use crate::tokens::{Key, Provider};
use crate::web::Web;

/// Lines of this program, from all its threads, while somebody keeps them.
static KEPT: Mutex<Option<Vec<u8>>> = Mutex::new(None);

struct Keeper;

impl io::Write for Keeper {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(kept) = KEPT.lock().as_mut() {
            kept.extend_from_slice(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to keep lines of all levels, from libraries too.
fn keep() {
    *KEPT.lock() = Some(Vec::new());
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| Keeper);
    let while_kept = dynamic_filter_fn(|_, _| KEPT.lock().is_some());
    tracing_subscriber::registry().with(lines.with_filter(while_kept)).init();
}

fn kept() -> String {
    String::from_utf8(KEPT.lock().take().unwrap()).unwrap()
}

/// Property: whatever clients show as credentials, well or badly formed, is in no line of any level.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_line() {
    keep();
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let world = pages_issuers::world(&provider).await;
    world.files("/d", 1).await;
    let mut secrets: Vec<(&str, String)> = Vec::new();
    let mut secret = |what: &'static str, value: String| {
        assert!(value.len() >= 12, "{what}: {value} may be in a line by chance");
        secrets.push((what, value.clone()));
        value
    };

    // Tokens of the catalogue, over HTTP and natively; good, bad, misplaced and malformed.
    let token = secret("token", world.token("admin", 3600).await.1);
    let mut web = Web { token: Some(token.clone()), ..Web::anonymous(&world).await };
    assert_eq!(web.get("/api/v1/entries/d").await.status, 200);
    assert_eq!(web.ask("PROPFIND", "/dav/d", &[("Depth", "1")], "").await.status, 207);
    let mut stranger = Web::anonymous(&world).await;
    let bad = secret("unknown token", format!("exa_{:016x}_{}", 7, "Q7x".repeat(14)));
    let pair = secret("password", "pa55word-of-a-person".to_owned());
    let basic = secret("basic", STANDARD.encode(format!("alice:{pair}")));
    for value in [format!("Bearer {bad}"), format!("Basic {basic}"), bad.clone(), format!("bearer  {bad}")] {
        let answer = stranger.ask("GET", "/api/v1/entries/d", &[("Authorization", &value)], "").await;
        assert!(matches!(answer.status, 400 | 401), "{value}: {}", answer.status);
    }
    let key_of_a_change = format!("{bad}x");
    let headers = [("Idempotency-Key", key_of_a_change.as_str()), ("Exacat-At-Least", bad.as_str())];
    assert_eq!(web.ask("GET", "/api/v1/entries/d", &headers, "").await.status, 400);
    let envelope = secret("authz in a URL", "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl".to_owned());
    for target in
        ["/api/v1/entries/d", "/dav/d/f000000", "/browse/d", "/nowhere", "/api/v1/nowhere", "/action/x"]
    {
        let target = format!("{target}?authz={envelope}&access_token={envelope}");
        let _any = web.get(&target).await;
        let _any = stranger.get(&target).await;
    }
    let source = format!("https://u:{pair}@127.0.0.1:9/x?authz={envelope}");
    let carried = format!("Bearer {bad}");
    let copy = [("Source", source.as_str()), ("TransferHeaderAuthorization", carried.as_str())];
    let _any = web.ask("COPY", "/dav/d/copied", &copy, "").await;
    let mut client = Client::admin(&world).await;
    client.call(exacat_model::Operation::Whoami).await.unwrap();
    let mut client = Client::connect(&world).await;
    client.hello().await;
    assert!(client.authenticate(Credentials::Token(Secret::new(&bad))).await.is_err());

    // Pages: the cookie, the secret of its forms, a session that is made up.
    let mut person = Person::with_token(&world, &token).await;
    secret("session", person.cookie.split_once('=').unwrap().1.to_owned());
    secret("secret of forms", person.csrf.clone());
    let made_up = secret("made-up session", "B".repeat(43));
    assert_eq!(person.get("/browse/d").await.status, 200);
    let _any = stranger.ask("GET", "/", &[("Cookie", &format!("exacat-plain={made_up}"))], "").await;
    assert_eq!(person.post("/trash/restore", &[("id", bad.as_str())]).await.status, 400);

    // Sign-in at an issuer, refused and completed.
    let begun = begin(&mut stranger, &provider).await;
    secret("cookie of a sign-in", begun.cookie.split_once('=').unwrap().1.to_owned());
    secret("state", parameter(&begun.url, "state"));
    let code = secret("code", "c0de-of-the-issuer".to_owned());
    let good = secret("identity token", key.token(&claims(&world, &provider, &begun)));
    let query = format!("code={code}&state={}", parameter(&begun.url, "state"));
    for token in [format!("{good}x"), good.clone()] {
        *provider.served.tokens.lock() = json!({"access_token": bad, "id_token": token});
        let answer = finish(&mut stranger, &begun, &query).await;
        assert_eq!(answer.status == 303, token == good, "{}", answer.text());
    }
    secret("secret of the client", STANDARD.encode("exacat%20pages:s%3Ae/c%20ret"));
    let redeemed = provider.served.redeemed.lock().clone();
    let body = redeemed.split_once("\r\n\r\n").unwrap().1;
    secret("PKCE", parameter(&format!("?{body}"), "code_verifier"));

    let lines = kept();
    for present in
        ["request ended", "operation=\"stat\"", "signed in to the pages", "TRACE", "user=\"alice\""]
    {
        assert!(lines.contains(present), "{present} is not in a log of {} bytes", lines.len());
    }
    for (what, value) in &secrets {
        if let Some(line) = lines.lines().find(|line| line.contains(value.as_str())) {
            panic!("{what}: {line}");
        }
    }
}
