//! WebDAV with storage elements of HTTP: redirected and relayed uploads, and third-party copies.

use exacat_model::operation::SeSettings;
use exacat_model::{Operation, SeStatus};

use crate::store::{Manner, Stores, place};
use crate::web::{Answer, Web};
use crate::world::World;
use exacat_testkit::waiting::eventually_so;

/// Most bytes of a body that the server relays.
const RELAY_BYTES_MAX: usize = 16 << 20;
const SES: [&str; 2] = ["A::WEB::SE", "B::WEB::SE"];

/// Makes two storage elements, of which the first gets uploads.
async fn stores(world: &World) -> Stores {
    let stores = Stores::start().await;
    for (name, port) in SES.iter().zip(stores.ports) {
        let prefix = format!("http://127.0.0.1:{port}/data");
        let se = SeSettings { prefix: Some(prefix), ..exacat_testkit::settings::se(name) };
        world.admin(Operation::SeSet(se)).await;
    }
    only(world, 0).await;
    world.directory("/d").await;
    stores
}

/// Lets one of the storage elements get uploads.
async fn only(world: &World, chosen: usize) {
    for (number, name) in SES.iter().enumerate() {
        let status = if number == chosen { SeStatus::Online } else { SeStatus::ReadOnly };
        let se = SeSettings { status: Some(status), ..exacat_testkit::settings::se(name) };
        world.admin(Operation::SeSet(se)).await;
    }
}

async fn both(world: &World) {
    for name in SES {
        let se = SeSettings { status: Some(SeStatus::Online), ..exacat_testkit::settings::se(name) };
        world.admin(Operation::SeSet(se)).await;
    }
}

/// Returns the URLs of a file's replicas.
async fn replicas(web: &mut Web, lfn: &str) -> Vec<String> {
    let found = web.get(&format!("/api/v1/replicas{lfn}")).await;
    assert_eq!(found.status, 200, "{}", found.text());
    let found = found.json();
    let replicas = found["replicas"].as_array().unwrap();
    replicas.iter().map(|replica| replica["pfn"].as_str().unwrap().to_owned()).collect()
}

async fn nothing_reserved(web: &mut Web) {
    let reserved = web.get("/api/v1/uploads").await.json();
    assert_eq!(reserved["items"], serde_json::json!([]), "nothing is reserved");
}

async fn until_nothing_reserved(web: &mut Web) {
    let none = async || web.get("/api/v1/uploads").await.json()["items"] == serde_json::json!([]);
    eventually_so("the end of the reservation", none).await;
}

async fn copy(web: &mut Web, target: &str, headers: &[(&str, &str)]) -> Answer {
    let mut headers = headers.to_vec();
    headers.push(("Credential", "none"));
    web.ask("COPY", target, &headers, "").await
}

/// A client that waits for `100 Continue` is redirected before it sends a byte. The file is there once
/// the storage element has it.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_client_is_redirected_and_its_upload_is_committed_when_confirmed() {
    let world = World::new().await;
    let stores = stores(&world).await;
    let mut web = Web::admin(&world).await;
    let expects = [("Expect", "100-continue"), ("Content-Length", "5")];
    web.begin("PUT", "/dav/d/f", &expects).await;
    let sent_on = web.answer(false).await;
    assert_eq!(sent_on.status, 307, "no 100 before: {}", sent_on.text());
    let location = sent_on.header("location").to_owned();
    assert!(location.contains("?authz=Bearer%20"), "{location}");
    // hyper closes a connection whose body it did not ask for.
    let mut web = Web { token: web.token.clone(), ..Web::anonymous(&world).await };
    assert_eq!(web.ask("HEAD", "/dav/d/f", &[], "").await.status, 404, "nothing is there yet");
    stores.hold(&location, b"hell");
    assert_eq!(web.ask("HEAD", "/dav/d/f", &[], "").await.status, 404, "half of it is there");
    stores.hold(&location, b"hello");
    let there = web.ask("HEAD", "/dav/d/f", &[("Want-Digest", "adler32")], "").await;
    assert_eq!((there.status, there.header("digest")), (200, "adler32=062c0215"));
    nothing_reserved(&mut web).await;
    let get = web.get("/dav/d/f").await;
    assert_eq!(get.status, 307);
    assert_eq!(place(get.header("location")), place(&location));
    // A client that gives an upload up leaves nothing, and what others wrote meanwhile stays.
    web.begin("PUT", "/dav/d/g", &expects).await;
    assert_eq!(web.answer(false).await.status, 307);
    let mut web = Web { token: web.token.clone(), ..Web::anonymous(&world).await };
    assert_eq!(web.ask("DELETE", "/dav/d/g", &[], "").await.status, 204);
    nothing_reserved(&mut web).await;
    assert_eq!(web.ask("DELETE", "/dav/d/g", &[], "").await.status, 404);
}

/// Bodies are relayed up to the bound, of known and unknown length, and are confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn body_is_relayed_up_to_the_bound_and_refused_beyond() {
    let world = World::new().await;
    let stores = stores(&world).await;
    let mut web = Web::admin(&world).await;
    let at_the_edge = "x".repeat(RELAY_BYTES_MAX);
    assert_eq!(web.ask("PUT", "/dav/d/edge", &[], &at_the_edge).await.status, 201);
    let url = replicas(&mut web, "/d/edge").await.remove(0);
    assert_eq!(stores.content(&url).unwrap(), at_the_edge.as_bytes());
    let chunked = [("Transfer-Encoding", "chunked")];
    web.begin("PUT", "/dav/d/chunked", &chunked).await;
    web.send(b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n").await;
    assert_eq!(web.answer(false).await.status, 201);
    let url = replicas(&mut web, "/d/chunked").await.remove(0);
    assert_eq!(stores.content(&url).unwrap(), b"abcdefg");
    assert!(stores.last("PUT").headers["authorization"].to_str().unwrap().starts_with("Bearer "));
    // A body that breaks off is no file.
    let mut broken = Web { token: web.token.clone(), ..Web::anonymous(&world).await };
    broken.begin("PUT", "/dav/d/broken", &chunked).await;
    broken.send(b"3\r\nabc\r\n4\r\nde").await;
    drop(broken);
    let length = (RELAY_BYTES_MAX + 1).to_string();
    web.begin("PUT", "/dav/d/large", &[("Content-Length", &length)]).await;
    let refused = web.answer(false).await;
    assert_eq!(
        (refused.status, refused.header("connection"), refused.kind().as_str()),
        (413, "close", "limit")
    );
    let mut web = Web { token: web.token.clone(), ..Web::anonymous(&world).await };
    web.begin("PUT", "/dav/d/large", &chunked).await;
    let part = [b"100000\r\n".as_slice(), &[b'x'; 1 << 20], b"\r\n"].concat();
    for _ in 0..16 {
        web.send(&part).await;
    }
    web.send(b"1\r\nx\r\n").await;
    assert_eq!(web.answer(false).await.status, 413);
    let mut web = Web { token: web.token.clone(), ..Web::anonymous(&world).await };
    // A checksum that the client announces must be that of the body.
    let wrong = [("Digest", "adler32=00000001")];
    assert_eq!(web.ask("PUT", "/dav/d/wrong", &wrong, "hello").await.status, 400);
    let right = [("Repr-Digest", "adler=:BiwCFQ==:"), ("Content-MD5", "XUFAKrxLKna5cZ2REBfFkg==")];
    assert_eq!(web.ask("PUT", "/dav/d/right", &right, "hello").await.status, 201);
    for manner in [Manner::Full, Manner::Half] {
        stores.behave(manner);
        let failed = web.ask("PUT", "/dav/d/failed", &[], "hello").await;
        assert_eq!((failed.status, failed.kind().as_str()), (502, "unavailable"), "{manner:?}");
        assert!(!failed.text().contains("eyJ"), "no token in an error");
    }
    for name in ["broken", "large", "wrong", "failed"] {
        assert_eq!(web.ask("HEAD", &format!("/dav/d/{name}"), &[], "").await.status, 404, "{name}");
    }
    until_nothing_reserved(&mut web).await;
}

/// Some clients send DELETE after a PUT that failed. Another user's DELETE is not theirs.
#[tokio::test(flavor = "multi_thread")]
async fn delete_after_a_failed_put_removes_nothing_that_was_there_before() {
    let world = World::new().await;
    let _stores = stores(&world).await;
    let mut web = Web::admin(&world).await;
    assert_eq!(web.ask("PUT", "/dav/d/f", &[], "first").await.status, 201);
    assert_eq!(web.ask("PUT", "/dav/d/f", &[], "second").await.status, 409);
    let spared = web.ask("DELETE", "/dav/d/f", &[], "").await;
    assert_eq!((spared.status, spared.kind().as_str()), (409, "invalid"));
    assert_eq!(web.ask("HEAD", "/dav/d/f", &[], "").await.header("content-length"), "5");
    assert_eq!(web.ask("DELETE", "/dav/d/f", &[], "").await.status, 204, "the second one means it");
    let length = (RELAY_BYTES_MAX + 1).to_string();
    web.begin("PUT", "/dav/d/g", &[("Content-Length", &length)]).await;
    assert_eq!(web.answer(false).await.status, 413);
    let mut web = Web { token: web.token.clone(), ..Web::anonymous(&world).await };
    assert_eq!(web.ask("DELETE", "/dav/d/g", &[], "").await.status, 404);
    assert_eq!(web.ask("PUT", "/dav/d/g", &[], "now").await.status, 201);
    assert_eq!(web.ask("DELETE", "/dav/d/g", &[], "").await.status, 204, "nothing was there before");
}

/// A storage element that pulls or pushes a file makes a new file, registered after its checksum.
#[tokio::test(flavor = "multi_thread")]
async fn file_is_copied_between_storage_elements_in_both_modes() {
    let world = World::new().await;
    let stores = stores(&world).await;
    let mut web = Web::admin(&world).await;
    assert_eq!(web.ask("PUT", "/dav/d/f", &[], "hello").await.status, 201);
    only(&world, 1).await;
    let pulled = copy(&mut web, "/dav/d/pulled", &[("Source", "http://localhost/dav/d/f")]).await;
    assert_eq!((pulled.status, pulled.header("content-type")), (202, "text/perf-marker-stream"));
    assert!(pulled.text().starts_with("Perf Marker\n") && pulled.text().ends_with("\nsuccess: Created\n"));
    let asked = stores.last("COPY");
    assert_eq!(asked.port, stores.ports[1], "the new copy's storage element pulls");
    assert_eq!(asked.headers["credential"], "none");
    assert_eq!(asked.headers["overwrite"], "F");
    let [own, other] = ["authorization", "transferheaderauthorization"]
        .map(|name| asked.headers[name].to_str().unwrap().to_owned());
    assert!(own.starts_with("Bearer eyJ") && other.starts_with("Bearer eyJ") && own != other);
    let pushed = copy(&mut web, "/dav/d/f", &[("Destination", "/dav/d/pushed")]).await;
    assert!(pushed.text().ends_with("success: Created\n"), "{}", pushed.text());
    assert_eq!(stores.last("COPY").port, stores.ports[0], "the old copy's storage element pushes");
    for name in ["pulled", "pushed"] {
        let url = replicas(&mut web, &format!("/d/{name}")).await;
        assert_eq!((url.len(), place(&url[0]).0), (1, stores.ports[1]));
        assert_eq!(stores.content(&url[0]).unwrap(), b"hello");
    }
    // Another replica of the same file, on a storage element that the client names.
    both(&world).await;
    let target = format!("/dav/d/f?se={}", SES[1]);
    let more = web.ask("COPY", "/dav/d/f", &[("Destination", &target)], "").await;
    assert_eq!(more.status, 201, "no markers for a client that knows none: {}", more.text());
    assert_eq!(replicas(&mut web, "/d/f").await.len(), 2);
    assert_ne!(copy(&mut web, &target, &[("Source", "/dav/d/f")]).await.status, 202, "it has one there");
    assert_eq!(replicas(&mut web, "/d/f").await.len(), 2);
    nothing_reserved(&mut web).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_that_is_not_confirmed_leaves_nothing() {
    let world = World::new().await;
    let stores = stores(&world).await;
    let mut web = Web::admin(&world).await;
    assert_eq!(web.ask("PUT", "/dav/d/f", &[], "hello").await.status, 201);
    for manner in [Manner::Full, Manner::Failure, Manner::BrokenOff, Manner::WrongChecksum, Manner::Half] {
        stores.behave(manner);
        let failed = copy(&mut web, "/dav/d/g", &[("Source", "/dav/d/f")]).await;
        let last = failed.text().lines().last().unwrap_or_default().to_owned();
        assert!(failed.status == 202 && last.starts_with("failure: "), "{manner:?}: {}", failed.text());
        assert!(!failed.text().contains("eyJ") && !failed.text().contains("and no more"));
        let silent = web.ask("COPY", "/dav/d/f", &[("Destination", "/dav/d/f?se=B::WEB::SE")], "").await;
        assert!(silent.status >= 400, "{manner:?}");
        assert_eq!(web.ask("HEAD", "/dav/d/g", &[], "").await.status, 404, "{manner:?}");
        nothing_reserved(&mut web).await;
    }
    // A client that goes away ends the copy.
    stores.behave(Manner::Endless);
    let mut gone = Web { token: web.token.clone(), ..Web::anonymous(&world).await };
    gone.begin("COPY", "/dav/d/g", &[("Source", "/dav/d/f"), ("Credential", "none")]).await;
    assert_eq!(gone.head().await.status, 202);
    assert!(!gone.chunk().await.unwrap().is_empty());
    assert_ne!(web.get("/api/v1/uploads").await.json()["items"], serde_json::json!([]));
    drop(gone);
    until_nothing_reserved(&mut web).await;
    assert_eq!(web.ask("HEAD", "/dav/d/g", &[], "").await.status, 404);
    for (headers, status) in [
        (vec![("Source", "/dav/d/none")], 404),
        (vec![("Source", "/dav/d")], 409),
        (vec![("Source", "http://127.0.0.1:1/x")], 400),
        (vec![("Source", "https://127.0.0.1:1/x")], 502),
        (vec![("Source", "/dav/d/f"), ("Destination", "/dav/d/h")], 400),
        (vec![("Source", "x")], 400),
    ] {
        assert_eq!(copy(&mut web, "/dav/d/g", &headers).await.status, status, "{headers:?}");
    }
    let mut stranger = Web::anonymous(&world).await;
    assert_eq!(copy(&mut stranger, "/dav/d/g", &[("Source", "https://127.0.0.1:1/x")]).await.status, 401);
    let mut alice = Web::user(&world, "alice").await;
    stores.behave(Manner::Good);
    assert_eq!(copy(&mut alice, "/dav/g", &[("Source", "/dav/d/f")]).await.status, 403);
    // A push to another server is sent on to the storage element with the file.
    let sent_on = copy(&mut web, "/dav/d/f", &[("Destination", "https://elsewhere.example/x")]).await;
    assert_eq!(sent_on.status, 307);
    assert_eq!(place(sent_on.header("location")), place(&replicas(&mut web, "/d/f").await[0]));
}

/// Clients without means for tokens send one as the password.
#[tokio::test(flavor = "multi_thread")]
async fn token_is_taken_as_the_password_of_basic_authentication_below_dav_only() {
    use base64::Engine;
    let world = World::new().await;
    world.directory("/d").await;
    let token = world.token("admin", 3600).await.1;
    let mut web = Web::anonymous(&world).await;
    let refused = web.get("/dav/d").await;
    assert_eq!(refused.status, 401);
    let basic = |text: String| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text));
    let good = basic(format!("anyone:{token}"));
    let good = [("Authorization", good.as_str())];
    assert_eq!(web.ask("MKCOL", "/dav/d/e", &good, "").await.status, 201);
    assert_eq!(web.ask("GET", "/api/v1/entries/d", &good, "").await.status, 401);
    for bad in [basic(token.clone()), basic("a:b".to_owned()), "Basic !".to_owned(), basic(":\n".to_owned())]
    {
        let refused = web.ask("MKCOL", "/dav/d/f", &[("Authorization", &bad)], "").await;
        assert_eq!(refused.status, 401, "{bad}");
    }
}
