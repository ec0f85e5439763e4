//! Requests from web pages: other origins are refused unless they are configured.

use crate::web::Web;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn request_of_another_origin_is_refused_unless_it_is_configured() {
    let world = World::with(|settings| {
        settings.http.as_mut().unwrap().origins = vec!["https://portal.example.org".to_owned()];
    })
    .await;
    let mut web = Web::admin(&world).await;
    for (header, value, status) in [
        ("Origin", "https://evil.example.org", 403),
        ("Origin", "null", 403),
        ("Origin", "https://localhost.evil.example.org", 403),
        ("Origin", "https://portal.example.org.evil.example.org", 403),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Sec-Fetch-Site", "same-site", 403),
        ("Origin", "http://localhost", 200),
        ("Origin", "https://portal.example.org", 200),
        ("Sec-Fetch-Site", "same-origin", 200),
        ("Sec-Fetch-Site", "none", 200),
    ] {
        let answer = web.ask("GET", "/api/v1/whoami", &[(header, value)], "").await;
        assert_eq!(answer.status, status, "{header}: {value}: {}", answer.text());
        let permitted = answer.header("access-control-allow-origin");
        assert_eq!(permitted, if value.contains("portal") && status == 200 { value } else { "" });
        let propfind = web.ask("PROPFIND", "/dav/", &[(header, value), ("Depth", "0")], "").await;
        assert_eq!(propfind.status == 403, status == 403, "{header}: {value}");
    }
    let refused = web.ask("DELETE", "/api/v1/entries/x", &[("Origin", "https://evil.example.org")], "").await;
    assert_eq!(refused.kind(), "denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_that_asks_first_gets_the_permissions_of_a_configured_page_only() {
    let world = World::with(|settings| {
        settings.http.as_mut().unwrap().origins = vec!["https://portal.example.org".to_owned()];
    })
    .await;
    let mut web = Web::anonymous(&world).await;
    let asked = |origin| [("Origin", origin), ("Access-Control-Request-Method", "PUT")];
    let permitted = web.ask("OPTIONS", "/api/v1/files/x", &asked("https://portal.example.org"), "").await;
    assert_eq!(permitted.status, 204);
    assert_eq!(permitted.header("access-control-allow-origin"), "https://portal.example.org");
    assert!(permitted.header("access-control-allow-methods").contains("PUT"));
    assert!(permitted.header("access-control-allow-headers").contains("Authorization"));
    assert!(permitted.header("access-control-allow-credentials").is_empty(), "certificates stay out");
    let refused = web.ask("OPTIONS", "/api/v1/files/x", &asked("https://evil.example.org"), "").await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, ""));
}
