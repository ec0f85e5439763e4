//! Sessions of pages: signing in and out, and attacks on cookies and forms.

use exacat_model::Operation;

use crate::certificates::{authority, issued, send};
use crate::pages::{FORM, Person, encoded, field};
use crate::web::Web;
use crate::world::{World, account};

/// A description of a form, its headers, its body.
type Sent<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

/// Property: the id of a session is new at each sign-in, whatever the browser sent before.
#[tokio::test(flavor = "multi_thread")]
async fn id_of_a_session_is_always_new() {
    let world = World::new().await;
    let token = world.token("admin", 3600).await.1;
    let mut first = Person::with_token(&world, &token).await;
    let page = first.get("/sign-in").await;
    let form = page.cookies[0].split(';').next().unwrap().to_owned();
    let body = format!("form={}&token={token}", field(&page, "form"));
    let planted = format!("{}; {form}", first.cookie);
    let answer = first.web.ask("POST", "/sign-in", &[FORM, ("Cookie", &planted)], &body).await;
    assert_eq!(answer.status, 303);
    let second = answer.cookies[0].split(';').next().unwrap();
    assert_ne!(second, first.cookie);
    assert_eq!(second.len(), "exacat-plain=".len() + 43, "256 bits");
    assert_eq!(first.get("/").await.status, 303, "the session before has ended");
    let made_up = format!("exacat-plain={}", "A".repeat(43));
    assert_eq!(first.web.ask("GET", "/", &[("Cookie", &made_up)], "").await.status, 303);
}

/// Property: a page of another origin cannot sign a browser in, nor send a form with its session.
#[tokio::test(flavor = "multi_thread")]
async fn forged_forms_are_refused() {
    let world = World::with(|settings| {
        settings.http.as_mut().unwrap().origins = vec!["https://portal.example.org".to_owned()];
    })
    .await;
    let token = world.token("admin", 3600).await.1;
    let mut web = Web::anonymous(&world).await;
    let page = web.get("/sign-in").await;
    let cookie = page.cookies[0].split(';').next().unwrap().to_owned();
    let body = format!("form={}&token={token}", field(&page, "form"));
    let other = format!("form={}&token={token}", "A".repeat(43));
    let sent: [Sent; 7] = [
        ("no cookie of the form", &[FORM], &body),
        ("another form", &[FORM, ("Cookie", &cookie)], &other),
        ("no form", &[FORM, ("Cookie", &cookie)], "token=x"),
        ("empty on both sides", &[FORM, ("Cookie", "exacat-plain-form=")], "form=&token=x"),
        ("another origin", &[FORM, ("Cookie", &cookie), ("Origin", "https://evil.example.org")], &body),
        (
            "a configured origin",
            &[FORM, ("Cookie", &cookie), ("Origin", "https://portal.example.org")],
            &body,
        ),
        ("another site", &[FORM, ("Cookie", &cookie), ("Sec-Fetch-Site", "cross-site")], &body),
    ];
    for (what, headers, body) in sent {
        let answer = web.ask("POST", "/sign-in", headers, body).await;
        assert_eq!(answer.status, 403, "{what}: {}", answer.text());
        assert!(!answer.cookies.iter().any(|cookie| cookie.starts_with("exacat-plain=")), "{what}");
    }
    let text = [("Content-Type", "text/plain"), ("Cookie", cookie.as_str())];
    assert_eq!(web.ask("POST", "/sign-in", &text, &body).await.status, 400, "a form without a preflight");

    let mut person = Person::with_token(&world, &token).await;
    let cookie = person.cookie.clone();
    let good = format!("csrf={}", person.csrf);
    let sent: [Sent; 5] = [
        ("no secret", &[FORM, ("Cookie", &cookie)], "id=x"),
        ("an empty secret", &[FORM, ("Cookie", &cookie)], "csrf=&id=x"),
        ("another secret", &[FORM, ("Cookie", &cookie)], &other.replace("form", "csrf")),
        ("another origin", &[FORM, ("Cookie", &cookie), ("Origin", "null")], &good),
        ("another host", &[FORM, ("Cookie", &cookie), ("Origin", "http://localhost:1")], &good),
    ];
    for target in ["/sign-out", "/trash/restore"] {
        for (what, headers, body) in sent {
            let answer = person.web.ask("POST", target, headers, body).await;
            assert_eq!(answer.status, 403, "{target}, {what}: {}", answer.text());
        }
    }
    let mut stranger = Person::with_token(&world, &token).await;
    std::mem::swap(&mut person.csrf, &mut stranger.csrf);
    assert_eq!(person.post("/sign-out", &[]).await.status, 403, "the secret of another session");
    assert_eq!(person.get("/").await.status, 200, "nothing was signed out");
}

/// Property: a sign-in leads back to a page of this server only.
#[tokio::test(flavor = "multi_thread")]
async fn sign_in_leads_to_this_server_only() {
    let world = World::new().await;
    let token = world.token("admin", 3600).await.1;
    let mut web = Web::anonymous(&world).await;
    for (next, wanted) in [
        ("/browse/a%20b?cursor=x", "/browse/a%20b?cursor=x"),
        ("//evil.example.org/", "/"),
        ("https://evil.example.org/", "/"),
        ("/\\evil.example.org", "/"),
        ("/a\r\nX-Evil: 1", "/"),
        ("javascript:alert(1)", "/"),
    ] {
        let page = web.get(&format!("/sign-in?next={}", encoded(next))).await;
        assert_eq!(field(&page, "next"), wanted, "{next}");
        let cookie = page.cookies[0].split(';').next().unwrap().to_owned();
        let body = format!("form={}&token={token}&next={}", field(&page, "form"), encoded(next));
        let answer = web.ask("POST", "/sign-in", &[FORM, ("Cookie", &cookie)], &body).await;
        assert_eq!((answer.status, answer.header("location")), (303, wanted), "{next}");
    }
}

/// Property: a bad token opens no session and shows why; what was sent does not come back in the page.
#[tokio::test(flavor = "multi_thread")]
async fn bad_token_opens_no_session() {
    let world = World::new().await;
    let mut web = Web::anonymous(&world).await;
    let page = web.get("/sign-in").await;
    let cookie = page.cookies[0].split(';').next().unwrap().to_owned();
    for bad in ["exa_bad", "<script>", "", "a.b.c", "\u{1f600}"] {
        let body = format!("form={}&token={}", field(&page, "form"), encoded(bad));
        let answer = web.ask("POST", "/sign-in", &[FORM, ("Cookie", &cookie)], &body).await;
        assert_eq!(answer.status, 401, "{bad}: {}", answer.text());
        assert!(answer.text().contains("role=\"alert\"") && !answer.text().contains("exa_bad"));
        assert!(answer.cookies.iter().all(|cookie| cookie.starts_with("exacat-plain-form=")));
    }
}

/// Property: a session ends with its token, with its account, and by signing out, at the next request.
#[tokio::test(flavor = "multi_thread")]
async fn session_ends_with_its_credentials() {
    let world = World::new().await;
    world.user("jane", |_| {}).await;
    let (id, secret) = world.token("jane", 3600).await;
    let mut person = Person::with_token(&world, &secret).await;
    world.admin(Operation::TokenRevoke { id }).await;
    assert_eq!(person.get("/").await.status, 303, "the token was revoked");
    assert_eq!(person.post("/trash/restore", &[("id", "x")]).await.status, 401);

    let secret = world.token("jane", 3600).await.1;
    let mut person = Person::with_token(&world, &secret).await;
    assert!(person.get("/").await.text().contains("<bdi>jane</bdi>"));
    world.user("jane", |user| user.disabled = Some(true)).await;
    assert_eq!(person.get("/").await.status, 303, "the account is disabled");
    world.user("jane", |user| user.disabled = Some(false)).await;
    assert_eq!(person.get("/").await.status, 303, "an ended session does not come back");

    let secret = world.token("jane", 3600).await.1;
    let mut person = Person::with_token(&world, &secret).await;
    world.admin(Operation::UserDrop { name: account("jane") }).await;
    assert_eq!(person.get("/").await.status, 303, "the account was removed");

    let mut person = Person::admin(&world).await;
    let cookie = person.cookie.clone();
    let answer = person.post("/sign-out", &[]).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/sign-in"));
    assert!(answer.cookies[0].starts_with("exacat-plain=; ") && answer.cookies[0].contains("Max-Age=0"));
    assert_eq!(person.web.ask("GET", "/", &[("Cookie", &cookie)], "").await.status, 303);
}

/// Property: rights of a session are those that the account has now.
#[tokio::test(flavor = "multi_thread")]
async fn session_has_the_present_rights() {
    let world = World::new().await;
    let token = world.new_user("jane").await;
    let mut person = Person::with_token(&world, &token).await;
    assert!(!person.get("/").await.text().contains("href=\"/overview\""));
    world.user("jane", |user| user.roles = Some(vec![exacat_model::Role::Operator])).await;
    assert!(person.get("/").await.text().contains("href=\"/overview\""));
}

/// Property: a session ends after an hour without requests, and after 12 hours with them.
#[tokio::test(flavor = "multi_thread")]
async fn session_ends_with_time() {
    const HOUR: i64 = 3600 * 1000;
    const SECOND: i64 = 1000;
    let world = World::new().await;
    let token = world.token("admin", 30 * 24 * 3600).await.1;
    let mut idle = Person::with_token(&world, &token).await;
    let mut busy = Person::with_token(&world, &token).await;
    world.clock.turn(HOUR - SECOND);
    assert_eq!(busy.get("/").await.status, 200);
    world.clock.turn(SECOND);
    assert_eq!(idle.get("/").await.status, 303, "an hour without a request");
    for _ in 0..21 {
        world.clock.turn(HOUR / 2);
        assert_eq!(busy.get("/").await.status, 200);
    }
    world.clock.turn(HOUR / 2 - SECOND);
    assert_eq!(busy.get("/").await.status, 200);
    world.clock.turn(SECOND);
    assert_eq!(busy.get("/").await.status, 303, "12 hours after the sign-in");
}

/// Property: a session counts only over the scheme that it was opened over, and its cookie over TLS has the
/// prefix that binds it to the host.
#[tokio::test(flavor = "multi_thread")]
async fn session_of_another_scheme_is_none() {
    let world = World::new().await;
    let mut person = Person::admin(&world).await;
    let id = person.cookie.split_once('=').unwrap().1.to_owned();
    for name in ["__Host-exacat", "exacat-plain"] {
        let answer = send(&world, None, "GET /", &format!("Cookie: {name}={id}\r\n"), "").await;
        assert!(answer.starts_with("HTTP/1.1 303 "), "{name}: {answer}");
    }
    let twice = format!("{0}; exacat-plain=x", person.cookie);
    assert_eq!(person.web.ask("GET", "/", &[("Cookie", &twice)], "").await.status, 303, "two cookies");
    assert_eq!(person.get("/").await.status, 200);
    let page = send(&world, None, "GET /sign-in", "", "").await;
    assert!(page.contains("__Host-exacat-form=") && page.contains("; Secure"), "{page}");
}

/// Property: a certificate signs in only when the person asks for it, and its session needs the same
/// certificate with every request.
#[tokio::test(flavor = "multi_thread")]
async fn certificate_signs_in_when_asked() {
    let place = tempfile::tempdir().unwrap();
    let grid = authority();
    let ca = place.path().join("grid.pem");
    std::fs::write(&ca, grid.pem()).unwrap();
    let world = World::with(|settings| settings.http.as_mut().unwrap().authorities = Some(ca.clone())).await;
    world.user("jdoe", |user| user.subjects = Some(vec!["/O=Grid/CN=Jane Doe".to_owned()])).await;
    world.user("other", |user| user.subjects = Some(vec!["/O=Grid/CN=Other".to_owned()])).await;
    let (jane, other) = (issued(&grid, "Jane Doe"), issued(&grid, "Other"));
    assert!(send(&world, Some(&jane), "GET /", "", "").await.starts_with("HTTP/1.1 303 "));
    let page = send(&world, Some(&jane), "GET /sign-in", "", "").await;
    assert!(page.contains("Sign in with the certificate"), "{page}");
    let form = page.split_once("__Host-exacat-form=").unwrap().1.split(';').next().unwrap().to_owned();
    let body = format!("certificate=yes&form={form}");
    let headers = format!(
        "Cookie: __Host-exacat-form={form}\r\nContent-Type: {}\r\nContent-Length: {}\r\n",
        FORM.1,
        body.len()
    );
    let answer = send(&world, Some(&jane), "POST /sign-in", &headers, &body).await;
    let id = answer.split_once("__Host-exacat=").unwrap_or_else(|| panic!("{answer}")).1;
    let cookie = format!("Cookie: __Host-exacat={}\r\n", id.split(';').next().unwrap());
    let page = send(&world, Some(&jane), "GET /", &cookie, "").await;
    assert!(page.contains("<bdi>jdoe</bdi>"), "{page}");
    let without = send(&world, None, "POST /sign-in", &headers, &body).await;
    assert!(without.starts_with("HTTP/1.1 401 "), "{without}");
    // Whoever copies the cookie has no certificate, or another one; the session is over then.
    let page = send(&world, Some(&other), "GET /", &cookie, "").await;
    assert!(page.starts_with("HTTP/1.1 303 "), "{page}");
    let page = send(&world, Some(&jane), "GET /", &cookie, "").await;
    assert!(page.starts_with("HTTP/1.1 303 "), "{page}");
}

/// Property: a form has at most 64 KiB, and 64 fields.
#[tokio::test(flavor = "multi_thread")]
async fn forms_are_bounded() {
    let world = World::new().await;
    let mut person = Person::admin(&world).await;
    let used = format!("csrf={}&x=", encoded(&person.csrf)).len();
    let full = "a".repeat((64 << 10) - used);
    assert_eq!(person.post("/trash/restore", &[("x", "")]).await.status, 400, "no id");
    let body = |rest: &str| format!("csrf={}&x={rest}", encoded(&person.csrf));
    let (fits, too_long) = (body(&full), body(&format!("{full}a")));
    let cookie = person.cookie.clone();
    let headers = [FORM, ("Cookie", cookie.as_str())];
    assert_eq!(person.web.ask("POST", "/trash/restore", &headers, &fits).await.status, 400, "no id");
    assert_eq!(person.web.ask("POST", "/trash/restore", &headers, &too_long).await.status, 413);
    let many = format!("csrf={}{}", encoded(&person.csrf), "&x=".repeat(64));
    let mut person = Person::admin(&world).await;
    assert_eq!(person.web.ask("POST", "/trash/restore", &headers, &many).await.status, 413);
}
