//! `exacat issuer`: the issuers that a running server trusts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::service::Service;

/// Longest wait for the server to read the file of issuers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Issuer of the token, where nobody listens.
const ISSUER: &str = "https://localhost:1";
/// Token with that issuer, `{"iss":"https://localhost:1"}`, and no valid signature.
const TOKEN: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2xvY2FsaG9zdDoxIn0.c2lnbmF0dXJl";

/// Asks with the token; the status and the problem.
fn ask(service: &Service) -> (u16, Value) {
    let address = service.addresses["http"].as_str().unwrap();
    let mut stream = TcpStream::connect(address.rsplit_once('/').map_or(address, |(_, at)| at)).unwrap();
    write!(
        stream,
        "GET /api/v1/whoami HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

/// Asks until the answer has this status; returns its detail.
fn asked_until(service: &Service, status: u16) -> String {
    let began = Instant::now();
    loop {
        let (got, problem) = ask(service);
        if got == status {
            return problem["detail"].as_str().unwrap().to_owned();
        }
        assert!(began.elapsed() < PATIENCE, "{status} did not come: {got} {problem}");
    }
}

#[test]
fn issuer_is_added_listed_and_removed_while_the_server_runs() {
    let service = Service::start_with(&["--http", "127.0.0.1:0", "--http-plain"]);
    assert_eq!((service.ok("issuer ls"), service.json("issuer ls")), (String::new(), Vec::new()));
    assert!(asked_until(&service, 401).contains("is not configured here"));

    let added = service.json(&format!(
        "issuer add {ISSUER} --audience https://catalogue.example.org --audience any --base /demo --user admin"
    ));
    assert_eq!(added, [json!({"item": ISSUER, "done": true})]);
    service.ok("issuer add https://login.example.org --profile oidc --audience exacat --client-id pages");
    assert_eq!(
        service.json("issuer ls"),
        [
            json!({
                "issuer": ISSUER, "profile": "wlcg", "base": "/demo", "user": "admin", "ca": null,
                "audiences": ["https://catalogue.example.org", "any"],
            }),
            json!({
                "issuer": "https://login.example.org", "profile": "oidc", "base": "/", "user": null, "ca": null,
                "audiences": ["exacat", "pages"], "client": "pages",
            }),
        ]
    );
    let table = service.ok("issuer ls");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["ISSUER", "PROFILE", "BASE", "USER", "AUDIENCES"]);
    assert_eq!(rows[1], [ISSUER, "wlcg", "/demo", "admin", "https://catalogue.example.org", "any"]);
    assert_eq!(rows[2], ["https://login.example.org", "oidc", "/", "-", "exacat", "pages"]);
    let mode = std::fs::metadata(service.data().join("issuers.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The server asks the new issuer for its keys, in vain.
    assert!(asked_until(&service, 503).contains("keys of the token's issuer"));

    for (line, why) in [
        (format!("issuer add {ISSUER} --audience x"), "it is configured: remove it first"),
        ("issuer add http://plain.example.org --audience x".into(), "use https"),
        ("issuer add https://a.example.org?x --audience x".into(), "query"),
        ("issuer add https://a.example.org --audience x --base demo".into(), "demo"),
        ("issuer add https://a.example.org --audience x --client-id y".into(), "profile oidc"),
        ("issuer add https://a.example.org --audience x --client-secret-file y".into(), "--client-id"),
        ("issuer rm https://never.example.org".into(), "no such issuer"),
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let refused = service.run(&words);
        assert_ne!(refused.status, Some(0), "{line}");
        assert!(refused.err.contains(why), "{line}: {}", refused.err);
    }
    assert_eq!(service.json("issuer ls").len(), 2, "refusals change nothing");

    assert_eq!(service.json1(&format!("issuer rm {ISSUER}")), json!({"item": ISSUER, "done": true}));
    assert_eq!(service.json1("issuer ls")["issuer"], "https://login.example.org");
    assert!(asked_until(&service, 401).contains("is not configured here"));
}
