//! WebDAV: names, properties, and the content of small files.

use exacat_model::Operation;
use exacat_model::operation::SeSettings;

use crate::element::{Element, Manner};
use crate::web::Web;
use crate::world::World;

/// Makes a storage element that the server reaches by root://.
async fn element(world: &World) -> Element {
    let element = Element::start().await;
    let prefix = Some(format!("root://127.0.0.1:{}//data", element.port));
    let se = SeSettings {
        prefix,
        qos: Some(Vec::new()),
        only_new: true,
        ..exacat_testkit::settings::se("SITE::SE")
    };
    world.admin(Operation::SeSet(se)).await;
    element
}

async fn ask(web: &mut Web, method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
    web.ask(method, target, headers, "").await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_made_moved_copied_and_removed() {
    let world = World::new().await;
    let _element = element(&world).await;
    let mut web = Web::admin(&world).await;
    let options = web.ask("OPTIONS", "/dav/", &[], "").await;
    assert_eq!((options.status, options.header("dav")), (200, "1"));
    assert!(!options.header("allow").contains("LOCK"));
    assert_eq!(ask(&mut web, "MKCOL", "/dav/d/", &[]).await, 201);
    assert_eq!(ask(&mut web, "MKCOL", "/dav/d", &[]).await, 405);
    assert_eq!(ask(&mut web, "MKCOL", "/dav/x/y", &[]).await, 409);
    assert_eq!(web.ask("MKCOL", "/dav/z", &[], "<x/>").await.status, 415);
    assert_eq!(web.ask("PUT", "/dav/d/f", &[], "hello world").await.status, 201);
    assert_eq!(web.get("/dav/d/f").await.text(), "hello world");
    let head = web.ask("HEAD", "/dav/d/f", &[], "").await;
    assert_eq!(
        (head.header("content-length"), head.header("accept-ranges")),
        ("11", ""),
        "a relayed file comes whole"
    );
    assert_eq!(web.ask("PUT", "/dav/d/f", &[], "other").await.status, 409, "nothing is written over");
    assert_eq!(web.ask("PUT", "/dav/d/f", &[("If-None-Match", "*")], "other").await.status, 412);
    assert_eq!(web.ask("PUT", "/dav/x/f", &[], "other").await.status, 409);
    assert_eq!(web.ask("PUT", "/dav/d", &[], "other").await.status, 405);
    assert_eq!(
        ask(&mut web, "COPY", "/dav/d/", &[("Destination", "/dav/e/"), ("Overwrite", "F")]).await,
        201
    );
    assert_eq!(web.get("/dav/e/f").await.text(), "hello world");
    assert_eq!(
        ask(&mut web, "COPY", "/dav/d/", &[("Destination", "/dav/e/"), ("Overwrite", "F")]).await,
        412
    );
    assert_eq!(ask(&mut web, "COPY", "/dav/d/f", &[("Destination", "/dav/e/f")]).await, 204);
    assert_eq!(ask(&mut web, "COPY", "/dav/d/", &[("Destination", "/dav/d/below")]).await, 403);
    assert_eq!(ask(&mut web, "COPY", "/dav/d/f", &[("Destination", "/dav/no/f")]).await, 409);
    assert_eq!(ask(&mut web, "MOVE", "/dav/d/f", &[("Destination", "http://localhost/dav/d/g")]).await, 201);
    assert_eq!(ask(&mut web, "MOVE", "/dav/d/g", &[("Destination", "http://elsewhere/dav/d/h")]).await, 502);
    assert_eq!(ask(&mut web, "MOVE", "/dav/d/g", &[]).await, 400);
    assert_eq!(ask(&mut web, "MOVE", "/dav/d/nothing", &[("Destination", "/dav/d/h")]).await, 404);
    assert_eq!(ask(&mut web, "DELETE", "/dav/d", &[]).await, 409, "a PUT of it failed before");
    assert_eq!(ask(&mut web, "DELETE", "/dav/d", &[]).await, 204);
    assert_eq!(ask(&mut web, "DELETE", "/dav/d", &[]).await, 404);
    assert_eq!(web.get("/dav/e/f").await.status, 200);
    assert_eq!(
        web.get("/api/v1/trash").await.json()["items"].as_array().unwrap().len(),
        2,
        "the copied over one too"
    );
    for bad in ["/dav/a/../b", "/dav/a//b", "/dav/%ff", "/dav/%zz"] {
        assert_eq!(web.get(bad).await.kind(), "invalid", "{bad}");
    }
    assert_eq!(ask(&mut web, "LOCK", "/dav/e/f", &[]).await, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_have_a_row_for_each_entry() {
    let world = World::new().await;
    world.files("/d/é <&>", 2500).await;
    let mut web = Web::admin(&world).await;
    let listed = web.ask("PROPFIND", "/dav/d/%C3%A9%20%3C&%3E", &[("Depth", "1")], "").await;
    assert_eq!(listed.status, 207, "{}", listed.text());
    assert_eq!(listed.text().matches("<D:response>").count(), 2501);
    assert!(
        listed.text().contains("<D:href>/dav/d/%C3%A9%20%3C%26%3E/f000007</D:href>"),
        "{:.2000}",
        listed.text()
    );
    assert!(listed.text().ends_with("</D:multistatus>\n"));
    let one = web.ask("PROPFIND", "/dav/d", &[("Depth", "0")], "").await;
    assert_eq!(one.text().matches("<D:response>").count(), 1);
    let deep = web.ask("PROPFIND", "/dav/d", &[("Depth", "infinity")], "").await;
    assert_eq!(deep.text().matches("<D:response>").count(), 2502);
    let none = web.ask("PROPFIND", "/dav/d", &[], "").await;
    assert_eq!(none.status, 403);
    assert!(none.text().contains("propfind-finite-depth"));
    let file = web.ask("PROPFIND", "/dav/d/%C3%A9%20%3C&%3E/f000001", &[], "").await;
    assert_eq!((file.status, file.text().matches("<D:response>").count()), (207, 1));
    let quota = "<propfind xmlns=\"DAV:\"><prop><quota-used-bytes/><getetag/></prop></propfind>";
    let quota = web.ask("PROPFIND", "/dav/d", &[("Depth", "0")], quota).await;
    assert!(quota.text().contains("quota-used-bytes>0</"), "{}", quota.text());
    for bad in ["<propfind", "<x/>", "<!DOCTYPE a [<!ENTITY b \"c\">]><a/>"] {
        assert_eq!(web.ask("PROPFIND", "/dav/d", &[("Depth", "0")], bad).await.status, 400, "{bad}");
    }
    assert_eq!(web.ask("PROPFIND", "/dav/nothing", &[("Depth", "1")], "").await.status, 404);
    world.files("/many", 10_001).await;
    assert_eq!(web.ask("PROPFIND", "/dav/many", &[("Depth", "infinity")], "").await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_are_tags() {
    let world = World::new().await;
    world.files("/d", 1).await;
    let mut web = Web::admin(&world).await;
    let update = "<propertyupdate xmlns=\"DAV:\" xmlns:a=\"urn:a\"><set><prop><a:colour>red &amp; blue</a:colour></prop></set>\
        <remove><prop><a:size/></prop></remove></propertyupdate>";
    let set = web.ask("PROPPATCH", "/dav/d/f000000", &[], update).await;
    assert_eq!(set.status, 207);
    assert!(!set.text().contains("424"), "{}", set.text());
    let asked = "<propfind xmlns=\"DAV:\"><prop><colour xmlns=\"urn:a\"/></prop></propfind>";
    let found = web.ask("PROPFIND", "/dav/d/f000000", &[("Depth", "0")], asked).await;
    assert!(found.text().contains(">red &amp; blue</"), "{}", found.text());
    let tags = web.get("/api/v1/tags/d/f000000").await.json();
    assert_eq!(tags["items"][0]["value"], "red & blue");
    let refused = "<propertyupdate xmlns=\"DAV:\"><set><prop><getetag>1</getetag><b xmlns=\"urn:b\">2</b></prop></set>\
        </propertyupdate>";
    let refused = web.ask("PROPPATCH", "/dav/d/f000000", &[], refused).await;
    assert!(refused.text().contains("403") && refused.text().contains("424"), "{}", refused.text());
    assert_eq!(web.get("/api/v1/tags/d/f000000").await.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_has_size_checksum_and_tag_and_get_redirects_to_a_web_replica() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    let se = serde_json::json!({"prefix": "https://se.example.org:1094/data"});
    assert_eq!(web.json("PUT", "/api/v1/ses/SITE::WEB", se).await.status, 200);
    let file = serde_json::json!({
        "size": 11, "checksums": ["adler32:1a0b045d", "md5:5eb63bbbe01eeed093cb22bb8f5acdc3"],
        "replicas": [{"se": "SITE::WEB"}],
    });
    assert_eq!(web.json("PUT", "/api/v1/files/d/f?parents=true", file).await.status, 200);
    let wants = [("Want-Digest", "ADLER32;q=1, sha-512"), ("Want-Repr-Digest", "adler=5")];
    let head = web.ask("HEAD", "/dav/d/f", &wants, "").await;
    assert_eq!(
        (head.status, head.header("content-length"), head.header("accept-ranges")),
        (200, "11", "bytes")
    );
    assert_eq!(head.header("digest"), "adler32=1a0b045d");
    assert_eq!(head.header("repr-digest"), "adler=:GgsEXQ==:");
    assert!(head.header("link").starts_with("</dav/d/f?metalink>; rel=describedby"));
    let get = web.get("/dav/d/f").await;
    assert_eq!(get.status, 307);
    let location = get.header("location");
    assert!(location.starts_with("https://se.example.org:1094/data"), "{location}");
    assert!(location.contains("?authz=Bearer%20"), "a proof for the storage element: {location}");
    assert_eq!(get.header("etag"), head.header("etag"));
    let same = web.ask("GET", "/dav/d/f", &[("If-None-Match", head.header("etag"))], "").await;
    assert_eq!(same.status, 304);
    let metalink = web.get("/dav/d/f?metalink").await;
    assert_eq!(metalink.header("content-type"), "application/metalink4+xml");
    assert!(
        metalink.text().contains("<size>11</size>") && metalink.text().contains("https://se.example.org")
    );
    assert_eq!(web.get("/dav/d").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_that_the_storage_element_does_not_confirm_leaves_nothing() {
    let world = World::new().await;
    let element = element(&world).await;
    world.directory("/d").await;
    let mut web = Web::admin(&world).await;
    for manner in [Manner::Gone, Manner::Nonsense] {
        element.behave(manner);
        let failed = web.ask("PUT", "/dav/d/f", &[], "hello").await;
        assert_eq!((failed.status, failed.kind().as_str()), (502, "unavailable"), "{}", failed.text());
        assert_eq!(web.get("/dav/d/f").await.status, 404);
        assert_eq!(
            web.get("/api/v1/uploads").await.json()["items"],
            serde_json::json!([]),
            "nothing is reserved"
        );
        assert_eq!(
            ask(&mut web, "DELETE", "/dav/d/f", &[]).await,
            404,
            "a client that cleans up harms nothing"
        );
    }
    element.behave(Manner::Good);
    assert_eq!(web.ask("PUT", "/dav/d/f", &[], "hello").await.status, 201);
    // A replica that was changed behind the catalogue's back is not handed out.
    let paths: Vec<String> = element.state.lock().contents.keys().cloned().collect();
    for path in paths {
        element.hold(&path, b"HELLO");
    }
    assert_eq!(web.get("/dav/d/f").await.status, 502);
    let large = web.ask("PUT", "/dav/d/g", &[("Content-Length", "99999999")], "").await;
    assert_eq!(large.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_is_that_of_the_catalogue() {
    let world = World::new().await;
    let _element = element(&world).await;
    world.files("/d", 1).await;
    let mut alice = Web::user(&world, "alice").await;
    for (method, headers) in
        [("DELETE", vec![]), ("MOVE", vec![("Destination", "/dav/d/x")]), ("PROPPATCH", vec![])]
    {
        let body = if method == "PROPPATCH" {
            "<propertyupdate xmlns=\"DAV:\"><set><prop><a xmlns=\"urn:a\">1</a></prop></set></propertyupdate>"
        } else {
            ""
        };
        let refused = alice.ask(method, "/dav/d/f000000", &headers, body).await;
        assert_eq!((refused.status, refused.kind().as_str()), (403, "denied"), "{method}");
    }
    assert_eq!(alice.ask("PUT", "/dav/d/new", &[], "x").await.kind(), "denied");
    assert_eq!(alice.ask("MKCOL", "/dav/d/new", &[], "").await.kind(), "denied");
    let mut nobody = Web::anonymous(&world).await;
    assert_eq!(nobody.ask("PROPFIND", "/dav/", &[("Depth", "1")], "").await.status, 401);
    assert_eq!(nobody.ask("OPTIONS", "/dav/", &[], "").await.status, 200);
}

/// Names of every kind come back as they were given, in documents that are well formed.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_are_escaped_or_refused() {
    let world = World::new().await;
    world.directory("/d").await;
    let mut web = Web::admin(&world).await;
    let long = "x".repeat(255);
    let good = [
        "%0A%09",
        "%1B%5B2J",
        "%3Cscript%3E%26%22%27",
        "%E2%80%AEgpj.exe",
        "%20",
        "a%2520b",
        "%25",
        "...",
        "%EF%BF%BF",
        "a%3Fb%23c%3Bd",
        "-rf",
        "%5C..%5C",
        &long,
    ];
    for name in good {
        let path = format!("/dav/d/{name}");
        assert_eq!(ask(&mut web, "MKCOL", &path, &[]).await, 201, "{name}");
        let listed = web.ask("PROPFIND", &path, &[("Depth", "0")], "").await;
        let text = listed.text();
        assert!(
            !text.contains('\u{1b}') && !text.contains("<script") && !text.contains('\u{ffff}'),
            "{text}"
        );
        let href = text.split("<D:href>").nth(1).unwrap().split("</D:href>").next().unwrap().to_owned();
        assert!(href.is_ascii(), "{href}");
        assert_eq!(ask(&mut web, "DELETE", &href, &[]).await, 204, "the URL that is listed names it: {href}");
    }
    let too_long = "x".repeat(256);
    for name in [
        "%FF",
        "%C0%AF",
        "%ED%A0%80",
        ".",
        "..",
        "%2E%2E",
        "a/%2e%2e/b",
        "%00",
        "a%00b",
        "a//b",
        "%",
        "%4",
        "%zz",
        "a%2F%2E%2E%2Fb",
        &too_long,
    ] {
        let refused = web.ask("MKCOL", &format!("/dav/d/{name}"), &[], "").await;
        assert!((400..=409).contains(&refused.status) || refused.status == 413, "{name}: {}", refused.status);
        assert!(!refused.text().contains('\0'));
    }
    let left = web.ask("PROPFIND", "/dav/d", &[("Depth", "1")], "").await;
    assert_eq!(left.text().matches("<D:response>").count(), 1, "{}", left.text());
    for (header, value) in [("Depth", "2"), ("Depth", "-1"), ("Depth", "18446744073709551616"), ("Depth", "")]
    {
        assert_eq!(web.ask("PROPFIND", "/dav/d", &[(header, value)], "").await.status, 400, "{value}");
    }
    assert_eq!(
        ask(&mut web, "MOVE", "/dav/d", &[("Destination", "/dav/e"), ("Overwrite", "maybe")]).await,
        400
    );
    for destination in ["/dav/../e", "/dav//e", "https://u@localhost/dav/e", "/dav/e#f", "e", "", "/dav/%zz"]
    {
        let refused = ask(&mut web, "MOVE", "/dav/d", &[("Destination", destination)]).await;
        assert!((400..500).contains(&refused), "{destination}: {refused}");
    }
    assert_eq!(web.ask("PROPFIND", "/dav/d", &[("Depth", "0")], "").await.status, 207, "nothing has moved");
}

/// Sizes, names and existence of what a user may not see are not told by any method.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_entries_are_told_by_no_method() {
    let world = World::new().await;
    world.files("/hidden/secretdir", 1).await;
    world.directory("/open").await;
    let mut web = Web::admin(&world).await;
    let mode = serde_json::json!({"mode": "0700"});
    let hidden = web.json("PATCH", "/api/v1/entries/hidden", mode).await;
    assert!(hidden.status < 300, "{}", hidden.text());
    let mut alice = Web::user(&world, "alice").await;
    for (method, headers) in [
        ("HEAD", vec![("Want-Digest", "adler32")]),
        ("GET", vec![]),
        ("PROPFIND", vec![("Depth", "0")]),
        ("DELETE", vec![]),
        ("PUT", vec![("Expect", "100-continue"), ("Content-Length", "5")]),
        ("MKCOL", vec![]),
        ("COPY", vec![("Destination", "/dav/open/x")]),
        ("COPY", vec![("Destination", "https://elsewhere.example/x")]),
        ("MOVE", vec![("Destination", "/dav/open/x")]),
    ] {
        let mut answers = Vec::new();
        for name in ["f000000", "missing"] {
            let mut alice = Web { token: alice.token.clone(), ..Web::anonymous(&world).await };
            alice.begin(method, &format!("/dav/hidden/secretdir/{name}"), &headers).await;
            let answer = alice.answer(method == "HEAD").await;
            let told = if method == "HEAD" { String::new() } else { answer.text().replace(name, "NAME") };
            answers.push((answer.status, told));
        }
        assert_eq!(answers[0], answers[1], "{method}");
        assert!(answers[0].0 == 403 || answers[0].0 == 404, "{method}: {answers:?}");
    }
    let listed = alice.ask("PROPFIND", "/dav/hidden", &[("Depth", "1")], "").await;
    assert!(!listed.text().contains("secretdir"), "{}", listed.text());
    let pulled = alice.ask("COPY", "/dav/open/x", &[("Source", "/dav/hidden/secretdir/f000000")], "").await;
    assert!(pulled.status == 403 || pulled.status == 404, "{}", pulled.status);
}

/// The same operation id with other content is a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn operation_id_is_for_one_change() {
    let world = World::new().await;
    let mut web = Web::admin(&world).await;
    let id = web.get("/api/v1/operation-id").await.json();
    let id = id["id"].as_str().or(id.as_str()).unwrap().to_owned();
    let key = [("Idempotency-Key", id.as_str())];
    assert_eq!(ask(&mut web, "MKCOL", "/dav/a", &key).await, 201);
    assert_eq!(ask(&mut web, "MKCOL", "/dav/a", &key).await, 201, "a repeat has the first outcome");
    assert_eq!(ask(&mut web, "MKCOL", "/dav/b", &key).await, 409);
    assert_eq!(web.ask("PROPFIND", "/dav/b", &[("Depth", "0")], "").await.status, 404);
}
