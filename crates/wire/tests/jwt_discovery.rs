//! Keys are fetched only from where the configured issuer says, over secure connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_model::ErrorKind;
use exacat_wire::jwt::discovery::{check_issuer, discovery_urls, endpoints, jwks_uri};
use exacat_wire::jwt::limits::{DISCOVERY_BYTES_MAX, ISSUER_BYTES_MAX, URL_BYTES_MAX};
use serde_json::json;

const ISSUER: &str = "https://iam.example.org/vo";

#[test]
fn issuer_with_a_path_has_two_discovery_urls() {
    for (issuer, urls) in [
        ("https://w", vec!["https://w/.well-known/openid-configuration"]),
        ("https://w/", vec!["https://w/.well-known/openid-configuration"]),
        (
            "https://w:8443/dteam",
            vec![
                "https://w:8443/.well-known/openid-configuration/dteam",
                "https://w:8443/dteam/.well-known/openid-configuration",
            ],
        ),
        (
            "https://w/realms/vo/",
            vec![
                "https://w/.well-known/openid-configuration/realms/vo",
                "https://w/realms/vo/.well-known/openid-configuration",
            ],
        ),
        ("w/dteam", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(discovery_urls(issuer), urls, "{issuer}");
    }
}

#[test]
fn issuer_is_a_plain_https_url() {
    let good = [ISSUER, "https://h", "https://h/", "https://H.example:8443/a/b", "https://[2001:db8::1]:1/a"];
    for good in good {
        assert_eq!(check_issuer(good, false), Ok(()), "{good}");
        assert_eq!(check_issuer(good, true), Ok(()), "{good}");
    }
    for bad in [
        "",
        "h",
        "https",
        "https:",
        "https://",
        "https:///path",
        "https://:443",
        "https://h:",
        "https://h:0",
        "https://h:65536",
        "https://h:+80",
        "https://h:a",
        "https://h:1:2",
        "HTTPS://h",
        "http://h",
        "http://localhost.example.org",
        "http://127.0.0.1.example.org",
        "http://localhost@example.org",
        "http://[::2]/",
        "ftp://localhost",
        "file:///etc/passwd",
        "https://user@h",
        "https://user:secret@h",
        "https://h/a?b",
        "https://h?",
        "https://h/a#b",
        "https://h#",
        "https://h/a b",
        "https://h\\@example.org",
        "https://h/\n",
        "https://h/\0",
        "https://ż.example.org",
        "https://h%2e.example",
        "https://[::1",
        "https://::1",
        "https://[h]",
        "https://[::1]x",
        "https://h_/",
    ] {
        for loopback_http in [false, true] {
            assert_eq!(
                check_issuer(bad, loopback_http).map_err(|error| error.kind),
                Err(ErrorKind::Invalid),
                "{bad:?}"
            );
        }
    }
    for local in [
        "http://localhost",
        "http://LOCALHOST:1/a",
        "http://127.0.0.1:9/",
        "http://127.9.9.9",
        "http://[::1]:8080/x",
    ] {
        assert_eq!(check_issuer(local, true), Ok(()), "{local}");
        assert!(check_issuer(local, false).is_err(), "{local}");
    }
    let long = |bytes: usize| format!("https://h/{}", "x".repeat(bytes - 10));
    assert_eq!(check_issuer(&long(ISSUER_BYTES_MAX), false), Ok(()));
    assert_eq!(check_issuer(&long(ISSUER_BYTES_MAX + 1), false).unwrap_err().kind, ErrorKind::Limit);
}

#[test]
fn description_must_be_about_the_issuer_and_name_a_secure_url() {
    let read = |issuer: &str, url: &str, loopback_http: bool| {
        let document = json!({"issuer": issuer, "jwks_uri": url, "token_endpoint": "https://x"}).to_string();
        jwks_uri(document.as_bytes(), ISSUER, loopback_http)
    };
    for good in ["https://iam.example.org/jwk", "https://keys.example.org:8443/k?set=1"] {
        assert_eq!(read(ISSUER, good, false), Ok(good.to_owned()));
    }
    for other in ["https://iam.example.org/vo/", "https://iam.example.org", "https://iam.example.org/VO", ""]
    {
        assert!(read(other, "https://iam.example.org/jwk", true).is_err(), "{other}");
    }
    for bad in
        ["", "/jwk", "http://iam.example.org/jwk", "https://u@h/", "https://h/#x", "file:///jwk", "https:///"]
    {
        assert!(read(ISSUER, bad, true).is_err(), "{bad}");
    }
    assert!(read(ISSUER, "http://127.0.0.1:8080/jwk", true).is_ok());
    assert!(read(ISSUER, "http://127.0.0.1:8080/jwk", false).is_err());
    let long = |bytes: usize| format!("https://h/{}", "x".repeat(bytes - 10));
    assert!(read(ISSUER, &long(URL_BYTES_MAX), false).is_ok());
    assert_eq!(read(ISSUER, &long(URL_BYTES_MAX + 1), false).unwrap_err().kind, ErrorKind::Limit);
}

#[test]
fn malformed_description_is_refused() {
    let good = format!(r#"{{"issuer":"{ISSUER}","jwks_uri":"https://h/k"}}"#);
    let padded = format!("{good}{}", " ".repeat(DISCOVERY_BYTES_MAX - good.len()));
    assert_eq!(jwks_uri(padded.as_bytes(), ISSUER, false), Ok("https://h/k".to_owned()));
    let longer = format!("{padded} ");
    assert_eq!(jwks_uri(longer.as_bytes(), ISSUER, false).unwrap_err().kind, ErrorKind::Limit);
    let repeated = good.replacen('{', r#"{"jwks_uri":"https://other/","#, 1);
    let missing = format!(r#"{{"issuer":"{ISSUER}"}}"#);
    let wrong = format!(r#"{{"issuer":"{ISSUER}","jwks_uri":["https://h/k"]}}"#);
    for bad in ["", "{}", "[]", "<html>", "{\"issuer\":1}", &repeated, &missing, &wrong, &format!("{good}x")]
    {
        assert_eq!(jwks_uri(bad.as_bytes(), ISSUER, true).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
    }
    for at in 0..good.len() {
        assert!(jwks_uri(&good.as_bytes()[..at], ISSUER, true).is_err(), "cut at {at}");
    }
}

/// Property: places where people sign in are https, without a fragment, and of exactly this issuer.
#[test]
fn places_of_sign_in_are_checked_as_the_keys_are() {
    let document = |issuer: &str, authorization: &str, token: &str| {
        format!(
            r#"{{"issuer":"{issuer}","authorization_endpoint":"{authorization}","token_endpoint":"{token}"}}"#
        )
    };
    let found = endpoints(document(ISSUER, "https://h/a?x=1", "https://h/t").as_bytes(), ISSUER).unwrap();
    assert_eq!((found.authorization.as_str(), found.token.as_str()), ("https://h/a?x=1", "https://h/t"));
    for bad in [
        document("https://other.example", "https://h/a", "https://h/t"),
        document(ISSUER, "http://h/a", "https://h/t"),
        document(ISSUER, "https://h/a", "http://127.0.0.1/t"),
        document(ISSUER, "javascript:alert(1)", "https://h/t"),
        document(ISSUER, "https://h/a#x", "https://h/t"),
        document(ISSUER, "https://h/a\\r\\nX: y", "https://h/t"),
        format!(r#"{{"issuer":"{ISSUER}","authorization_endpoint":"https://h/a"}}"#),
        "[]".to_owned(),
    ] {
        assert_eq!(endpoints(bad.as_bytes(), ISSUER).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
    }
}
