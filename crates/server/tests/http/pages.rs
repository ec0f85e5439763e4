//! Web pages: directories, entries, search, trash, and names that try to break out of a page.

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Answer as Answered, Lfn, Operation};

use crate::web::{Answer, Web};
use crate::world::World;

/// Form of the requests of a form.
pub(crate) const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// Returns a text as a form sends it.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns the value of the first field of this name in a page.
pub(crate) fn field(page: &Answer, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let rest = page.text().split_once(&start).unwrap_or_else(|| panic!("no field {name}: {}", page.text())).1;
    rest.split('"').next().unwrap().to_owned()
}

/// A person with a browser: a connection, and its cookies.
pub(crate) struct Person {
    pub web: Web,
    pub cookie: String,
    pub csrf: String,
}

impl Person {
    /// Signs in with a token.
    pub(crate) async fn with_token(world: &World, token: &str) -> Self {
        let mut web = Web::anonymous(world).await;
        let page = web.get("/sign-in").await;
        let cookie = page.cookies[0].split(';').next().unwrap().to_owned();
        let body = format!("form={}&token={}", field(&page, "form"), encoded(token));
        let answer = web.ask("POST", "/sign-in", &[FORM, ("Cookie", &cookie)], &body).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/"), "{}", answer.text());
        let cookie = answer.cookies[0].split(';').next().unwrap().to_owned();
        let mut person = Person { web, cookie, csrf: String::new() };
        let page = person.get("/search").await;
        person.csrf = field(&page, "csrf");
        person
    }

    pub(crate) async fn admin(world: &World) -> Self {
        let token = world.token("admin", 3600).await.1;
        Self::with_token(world, &token).await
    }

    pub(crate) async fn get(&mut self, target: &str) -> Answer {
        let cookie = self.cookie.clone();
        self.web.ask("GET", target, &[("Cookie", &cookie)], "").await
    }

    /// Sends a form of the session.
    pub(crate) async fn post(&mut self, target: &str, fields: &[(&str, &str)]) -> Answer {
        let mut body = format!("csrf={}", encoded(&self.csrf));
        for (name, value) in fields {
            body.push_str(&format!("&{name}={}", encoded(value)));
        }
        let cookie = self.cookie.clone();
        self.web.ask("POST", target, &[FORM, ("Cookie", &cookie)], &body).await
    }
}

/// Returns the target of the link with this text.
fn link(page: &Answer, text: &str) -> Option<String> {
    let at = page.text().find(&format!("\">{text}</a>"))?;
    let before = &page.text()[..at];
    let href = &before[before.rfind("href=\"")? + 6..];
    Some(href.replace("&#38;", "&").replace("&amp;", "&"))
}

/// Property: nobody sees a page without a session, unless anonymous reads are configured; then pages show
/// what modes give to others.
#[tokio::test(flavor = "multi_thread")]
async fn page_without_session_asks_to_sign_in() {
    let world = World::new().await;
    world.files("/d", 3).await;
    let mut web = Web::anonymous(&world).await;
    for target in ["/", "/browse/d", "/entry/d/f000001", "/search?name=*", "/trash", "/compare", "/usage/d"] {
        let answer = web.get(target).await;
        assert_eq!(answer.status, 303, "{target}");
        assert!(answer.header("location").starts_with("/sign-in?next=/"), "{target}");
        assert!(answer.body.is_empty());
    }
    assert_eq!(
        web.get("/browse/a?b=c%20d").await.header("location"),
        "/sign-in?next=/browse/a%3Fb%3Dc%2520d"
    );
    let public = World::with(|settings| settings.catalogue.anonymous_reads = true).await;
    public.files("/d", 3).await;
    let mut web = Web::anonymous(&public).await;
    let page = web.get("/browse/d").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("f000002") && page.text().contains(">Sign in</a>"));
    assert_eq!(web.get("/trash").await.status, 303, "the trash is for known users");
}

/// Property: every page forbids contents of other hosts, scripts in the page, frames, and caches.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_has_the_headers_that_protect_it() {
    let world = World::new().await;
    world.files("/d", 3).await;
    let mut person = Person::admin(&world).await;
    for target in [
        "/",
        "/browse/d",
        "/entry/d/f000001",
        "/usage/d",
        "/search",
        "/trash",
        "/compare",
        "/sign-in",
        "/browse/nothing",
        "/browse/a/../b",
        "/download/d",
        "/static/none.css",
    ] {
        let page = person.get(target).await;
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self';"), "{target}");
        for part in ["form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(part), "{target}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        assert_eq!(page.header("referrer-policy"), "same-origin");
        assert_eq!(page.header("cache-control"), "no-store", "{target}");
        let html = page.text();
        assert!(
            !html.contains(" style=") && !html.contains("<style") && !html.contains(" onclick"),
            "{target}"
        );
        assert!(html.is_empty() || html.starts_with("<!doctype html>\n<html lang=\"en\">"), "{html:.100}");
    }
    let page = person.get("/").await;
    let style =
        page.text().split_once("rel=\"stylesheet\" href=\"").unwrap().1.split('"').next().unwrap().to_owned();
    let mut stranger = Web::anonymous(&world).await;
    let sheet = stranger.get(&style).await;
    assert_eq!((sheet.status, sheet.header("content-type")), (200, "text/css; charset=utf-8"));
    assert!(sheet.header("cache-control").contains("immutable"));
    assert_eq!(stranger.get("/static/../exacat.css").await.status, 404);
    assert_eq!(stranger.ask("POST", "/browse/", &[], "").await.status, 405);
    assert_eq!(person.web.ask("HEAD", "/browse/d", &[("Cookie", &person.cookie)], "").await.status, 200);
}

/// Property: the pages of a large directory show each name once, and each has the same bound.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_directory_show_each_name_once() {
    let world = World::new().await;
    let all = world.files("/d", 450).await;
    let mut person = Person::admin(&world).await;
    let (mut target, mut pages, mut seen) = ("/browse/d".to_owned(), 0, Vec::new());
    loop {
        let page = person.get(&target).await;
        assert_eq!(page.status, 200, "{}", page.text());
        pages += 1;
        let rows = page.text().split("href=\"/entry/d/f").skip(1);
        let before = seen.len();
        seen.extend(rows.map(|row| row.split('"').next().unwrap().to_owned()));
        assert!(seen.len() - before <= 200);
        assert_eq!(link(&page, "First page").is_some(), pages > 1);
        match link(&page, "Next page") {
            Some(next) => target = next,
            None => break,
        }
    }
    assert_eq!((pages, seen.len()), (3, all.len()));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all.len());
    for bad in ["/browse/d?cursor=AAAA", "/browse/d?cursor=%3Cscript%3E", "/trash?cursor=x"] {
        assert_eq!(person.get(bad).await.status, 404, "{bad}");
    }
    let foreign = target.split_once('?').unwrap().1;
    assert_eq!(person.get(&format!("/trash?{foreign}")).await.status, 404, "a cursor of another list");
}

/// Names that try to leave their place.
fn hostile_names() -> Vec<String> {
    vec![
        "<script>alert(1)</script>".replace('/', "\\"),
        "\"><img src=x onerror=alert(1)>".to_owned(),
        "'onmouseover='alert(1)".to_owned(),
        "&lt;b&gt;{{7*7}}".to_owned(),
        "\u{202e}gpj.exe".to_owned(),
        "שלום עולם".to_owned(),
        "a\r\nSet-Cookie: x=y".to_owned(),
        "\u{1b}[31mred".to_owned(),
        "%2e%2e%2f?#".to_owned(),
        "x".repeat(255),
        "ż".repeat(127),
        "javascript:alert(1)".to_owned(),
    ]
}

/// Property: no name of an entry, a tag or a note of the trash becomes markup, a header or a URL elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_shown_harmlessly() {
    let world = World::new().await;
    let mut person = Person::admin(&world).await;
    for name in hostile_names() {
        let directory = Lfn::parse(&format!("/d/{name}")).unwrap();
        let file = Lfn::parse(&format!("/d/{name}/{name}")).unwrap();
        let files = vec![NewFile::named(file.clone())];
        world.admin(Operation::Register { files, parents: true, existing: Existing::Refuse }).await;
        let path = |lfn: &Lfn| lfn.as_str().split('/').map(encoded).collect::<Vec<_>>().join("/");
        let mut targets = vec![
            "/browse/d".to_owned(),
            "/usage/d".to_owned(),
            "/usage/d?csv=usage".to_owned(),
            format!("/browse{}", path(&directory)),
            format!("/entry{}", path(&directory)),
            format!("/entry{}", path(&file)),
            format!("/entry{}", path(&Lfn::parse(&format!("/no/{name}")).unwrap())),
            format!("/search?lfn={}&kind=file", encoded(directory.as_str())),
            format!("/search?name={0}&regex=&tags=&owner=&se=", encoded(&name)),
            format!("/search?tags={}", encoded(&name)),
            format!("/compare?revision=0&under={}", encoded(directory.as_str())),
            format!("/compare?revision={}", encoded(&name)),
            format!("/compare?before={}", encoded(&name)),
            format!("/compare?before=0&under={}", encoded(directory.as_str())),
            format!("/compare?before=0&after={0}&under={0}", encoded(&name)),
            format!("/search?during={0}&at={0}", encoded(&name)),
            format!("/search?during={0}:{0}%3D{0}&during_by={0}", encoded(&name)),
            format!("/entry{}?find=members&under={}", path(&file), encoded(directory.as_str())),
            format!("/entry{0}?find={1}&under={1}", path(&file), encoded(&name)),
            format!("/reports?other_from={0}&other_to={0}", encoded(&name)),
            format!("/clone?of={}", encoded(&name)),
            format!("/sign-in?next={}", encoded(&name)),
            format!("/download{}", path(&file)),
        ];
        let removed = Lfn::parse(&format!("/d/{name}/{name}")).unwrap();
        let browsed = person.get(&format!("/browse{}", path(&file))).await;
        assert_eq!(browsed.status, 303);
        assert_eq!(browsed.header("set-cookie"), "", "{name:?}");
        for target in &targets {
            let page = person.get(target).await;
            check_harmless(&page, &name, target);
        }
        let page = person.get("/browse/d").await;
        let told = page.text().contains(&format!("href=\"/browse{}", exacat_path(&directory)));
        assert!(told, "{name:?}: {}", page.text());
        world.admin(Operation::Remove { lfn: removed, recursive: false, directory: false }).await;
        targets = vec!["/trash".to_owned()];
        for target in &targets {
            let page = person.get(target).await;
            check_harmless(&page, &name, target);
        }
    }
}

/// Returns a path as links have it.
fn exacat_path(lfn: &Lfn) -> String {
    let mut out = Vec::new();
    exacat_wire::percent::push_encoded(&mut out, lfn.as_str());
    String::from_utf8(out).unwrap()
}

/// Requires that a page has the tags of its templates only, and no hidden letter.
fn check_harmless(page: &Answer, name: &str, target: &str) {
    let about = format!("{name:?} at {target}: {}", page.text());
    assert_eq!(page.header("x"), "", "{about}");
    if !page.header("content-type").starts_with("text/html") {
        return;
    }
    let html = page.text();
    assert!(html.matches("<script").count() <= 1 && !html.contains("<script>"), "{about}");
    assert!(!html.contains("<img"), "{about}");
    // The values of fields go back as they are.
    let shown: String =
        html.split(" value=\"").map(|part| part.split_once('"').map_or(part, |two| two.1)).collect();
    for letter in ['\u{202e}', '\u{1b}', '\r'] {
        assert!(!shown.contains(letter), "{letter:?} {about}");
    }
    for part in html.split('<').skip(1) {
        let tag = part.split('>').next().unwrap();
        let attributes = tag.to_ascii_lowercase();
        let bare: String = attributes.split('"').step_by(2).collect();
        assert!(!bare.contains(" on") && attributes.matches('"').count() % 2 == 0, "{tag}: {about}");
        if let Some(href) = attributes.split_once("href=\"") {
            assert!(href.1.starts_with(['/', '#']), "{tag}: {about}");
            assert!(!href.1.starts_with("//"), "{tag}: {about}");
        }
    }
}

/// Property: a path cannot climb above the root, nor hide a slash in a name.
#[tokio::test(flavor = "multi_thread")]
async fn paths_that_climb_are_refused() {
    let world = World::new().await;
    world.files("/d", 1).await;
    let mut person = Person::admin(&world).await;
    for bad in [
        "/browse/../d",
        "/browse/d/%2e%2e/d",
        "/entry/d%2ff000000",
        "/browse/%00",
        "/download/%ff",
        "/usage/%",
    ] {
        assert_eq!(person.get(bad).await.status, 400, "{bad}");
    }
    assert_eq!(person.get("/browse//d//").await.status, 200);
}

/// Property: a removed entry comes back by the form of the trash, at its former place or elsewhere, and a
/// GET restores nothing.
#[tokio::test(flavor = "multi_thread")]
async fn removed_entry_is_restored_by_a_form() {
    let world = World::new().await;
    let files = world.files("/d", 2).await;
    for lfn in &files {
        let remove = Operation::Remove { lfn: lfn.clone(), recursive: false, directory: false };
        assert!(matches!(world.admin(remove).await, Answered::Removed { .. }));
    }
    let mut person = Person::admin(&world).await;
    let page = person.get("/trash").await;
    assert!(page.text().contains("/d/f000000") && page.text().contains("/d/f000001"));
    let (id, to) = (field(&page, "id"), field(&page, "to"));
    assert_eq!(person.get(&format!("/trash/restore?id={id}")).await.status, 405);
    let elsewhere = "/d/back again";
    let answer = person.post("/trash/restore", &[("id", &id), ("to", elsewhere)]).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, "/entry/d/back%20again"),
        "{}",
        answer.text()
    );
    assert_eq!(person.get("/entry/d/back%20again").await.status, 200);
    let answer = person.post("/trash/restore", &[("id", &id), ("to", &to)]).await;
    assert_eq!(answer.status, 404, "it is no longer there");
    let page = person.get("/trash").await;
    let (id, to) = (field(&page, "id"), field(&page, "to"));
    let answer = person.post("/trash/restore", &[("id", &id), ("to", &to)]).await;
    assert_eq!(answer.status, 303);
    assert!(person.get("/trash").await.text().contains("Nothing is here"));
    for bad in [vec![], vec![("id", "x")], vec![("id", ""), ("to", "/x")]] {
        assert_eq!(person.post("/trash/restore", &bad).await.status, 400, "{bad:?}");
    }
}

/// Property: search takes the conditions of a find, shows what it finds with whole paths, and refuses bad
/// conditions.
#[tokio::test(flavor = "multi_thread")]
async fn search_finds_by_conditions() {
    let world = World::new().await;
    world.files("/d/a", 3).await;
    world.files("/d/b", 1).await;
    let mut person = Person::admin(&world).await;
    for (query, wanted) in [
        ("name=f*1", vec!["/d/a/f000001"]),
        ("lfn=/d/b&name=f*", vec!["/d/b/f000000"]),
        ("regex=a/f0*$", vec!["/d/a/f000000"]),
        ("kind=directory&lfn=/d", vec!["/d/a", "/d/b"]),
        ("lfn=/d&owner=admin&kind=file&depth_max=1", vec![]),
        ("lfn=/d/b&kind=file&kind=directory&kind=", vec!["/d/b/f000000"]),
        ("lfn=/d&kind=link&kind=directory", vec!["/d/a", "/d/b"]),
        ("name=f000000&size_unknown=yes", vec!["/d/a/f000000", "/d/b/f000000"]),
        ("name=f000000&size_min=1", vec![]),
        ("modified_before=1999-01-01", vec![]),
    ] {
        let page = person.get(&format!("/search?{query}")).await;
        assert_eq!(page.status, 200, "{query}: {}", page.text());
        let rows = page.text().split("<th scope=\"row\"").skip(1);
        let paths = rows.map(|row| row.split("<bdi>").nth(1).unwrap().split('<').next().unwrap());
        let paths: Vec<&str> = paths.collect();
        assert_eq!(paths, wanted, "{query}");
    }
    for bad in [
        "size_min=x",
        "tags=%3D%3D",
        "name=a&regex=b",
        "modified_from=soon",
        "owner=nobody",
        "lfn=x&name=y",
        "kind=file&kind=x",
    ] {
        let status = person.get(&format!("/search?{bad}")).await.status;
        assert!(matches!(status, 400 | 404), "{bad}: {status}");
    }
}

/// Property: pages give a user the rights that every other protocol gives.
#[tokio::test(flavor = "multi_thread")]
async fn permission_is_that_of_the_catalogue() {
    let world = World::new().await;
    world.files("/secret", 1).await;
    let mode = exacat_model::operation::Attribute::Mode(exacat_model::Mode::new(0o700).unwrap());
    let lfns = vec![Lfn::parse("/secret").unwrap()];
    world.admin(Operation::SetAttributes { lfns, attributes: vec![mode] }).await;
    let token = world.new_user("jane").await;
    let mut person = Person::with_token(&world, &token).await;
    for target in ["/browse/secret", "/entry/secret/f000000", "/download/secret/f000000", "/usage/secret"] {
        let page = person.get(target).await;
        assert_eq!(page.status, 403, "{target}: {}", page.text());
        assert!(page.text().contains("Permission denied") && !page.text().contains("f000000"), "{target}");
    }
    assert!(!person.get("/search?name=f*").await.text().contains("f000000"));
    assert!(!person.get("/").await.text().contains("href=\"/overview\""));
}

/// Property: a download leads to a replica with a proof, as a GET of WebDAV does, and only for readers.
#[tokio::test(flavor = "multi_thread")]
async fn download_leads_to_a_replica() {
    let world = World::new().await;
    let mut admin = Web::admin(&world).await;
    let se = serde_json::json!({"prefix": "https://se.example.org:1094/data"});
    assert_eq!(admin.json("PUT", "/api/v1/ses/S::E", se).await.status, 200);
    let file = serde_json::json!({
        "size": 11, "checksums": ["adler32:1a0b045d"], "replicas": [{"se": "S::E"}],
    });
    let answer = admin.json("PUT", "/api/v1/files/d/f%0D%0AX:%20y?parents=true", file).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut person = Person::admin(&world).await;
    let page = person.get("/entry/d/f%0D%0AX:%20y").await;
    assert!(page.text().contains("S::E") && page.text().contains("https://se.example.org:1094/data"));
    assert!(page.text().contains("adler32:1a0b045d"));
    let answer = person.get("/download/d/f%0D%0AX:%20y").await;
    assert_eq!(answer.status, 307, "{}", answer.text());
    let location = answer.header("location");
    assert!(
        location.starts_with("https://se.example.org:1094/data") && location.contains("authz="),
        "{location}"
    );
    assert_eq!(answer.header("x"), "");
    assert_eq!(person.get("/download/d").await.status, 409, "a directory");
    assert_eq!(Web::anonymous(&world).await.get("/download/d/f").await.status, 303);
}
