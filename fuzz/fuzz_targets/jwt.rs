//! Any bytes as a token, as signed claims, as a scope, as a key set, or as an issuer's description:
//! refused, or within the limits and below the base path.
#![no_main]

use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use exacat_model::Lfn;
use exacat_wire::jwt::discovery::{check_issuer, discovery_urls, jwks_uri};
use exacat_wire::jwt::limits::{GROUPS_MAX, JWKS_KEYS_MAX, KEY_ID_BYTES_MAX, SCOPES_MAX, SUBJECT_BYTES_MAX};
use exacat_wire::jwt::{Issuer, KeySet, Profile, peek_issuer, verify};
use libfuzzer_sys::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;

const ISSUER: &str = "https://iam.example.org/vo";
const AUDIENCE: &str = "https://catalogue.example.org";
const NOW: u64 = 1_800_000_000;
const PROFILES: [Profile; 3] = [Profile::Wlcg, Profile::SciTokens, Profile::Oidc];

/// The key that also signed the seeds.
static PAIR: LazyLock<Ed25519KeyPair> =
    LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("32 bytes"));

static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let x = BASE64_URL_SAFE_NO_PAD.encode(PAIR.public_key().as_ref());
    let document = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]});
    KeySet::parse(document.to_string().as_bytes()).expect("a key set")
});

/// Returns a token of any claims.
fn signed(claims: &[u8]) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"one"}"#);
    let text = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims));
    let signature = PAIR.sign(text.as_bytes());
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

/// Verifies a token; says whether it is valid.
fn check(token: &str, profile: Profile) -> bool {
    let base = Lfn::parse("/users/vo").expect("a path");
    let issuer = Issuer {
        url: ISSUER.to_owned(),
        audiences: vec![AUDIENCE.to_owned()],
        base_path: base.clone(),
        profile,
        skew_seconds: 60,
    };
    let Ok(verified) = verify(token, &issuer, &KEYS, NOW) else { return false };
    assert_eq!(peek_issuer(token).map(|peeked| peeked.issuer).as_deref(), Ok(ISSUER));
    assert!((1..=SUBJECT_BYTES_MAX).contains(&verified.subject.len()));
    assert!(verified.groups.len() <= GROUPS_MAX && verified.expires.saturating_add(60) > NOW);
    assert!(verified.grants.is_some() || profile == Profile::Oidc);
    let grants = verified.grants.unwrap_or_default();
    assert!(grants.len() <= 3 * SCOPES_MAX);
    for grant in grants {
        assert!(base.contains(&grant.path), "{grant:?}");
        assert!(grant.covers(&grant.path) && !grant.covers(&Lfn::root()));
        assert!(grant.path.components().all(|name| name != "." && name != ".."));
        assert_eq!(Lfn::parse(grant.path.as_str()).as_ref(), Ok(&grant.path));
    }
    true
}

fuzz_target!(|data: &[u8]| {
    let profile = PROFILES[data.len() % 3];
    if let Ok(keys) = KeySet::parse(data) {
        assert!(keys.len() + keys.skipped() <= JWKS_KEYS_MAX);
    }
    if let Ok(url) = jwks_uri(data, ISSUER, false) {
        assert!(url.starts_with("https://"));
    }
    check(&signed(data), profile);
    let Ok(text) = std::str::from_utf8(data) else { return };
    check(text, profile);
    if check_issuer(text, false).is_ok() {
        let urls = discovery_urls(text);
        assert!(!urls.is_empty() && urls.iter().all(|url| url.starts_with("https://")));
    }
    let claims = json!({
        "wlcg.ver": "1.0", "ver": "scitoken:2.0", "iss": ISSUER, "sub": "jdoe", "aud": AUDIENCE,
        "iat": NOW, "exp": NOW + 600, "scope": text,
    });
    check(&signed(claims.to_string().as_bytes()), profile);
    // The bytes as a header, as a member of a key, and as each claim with rules of its own.
    let claims = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    let header = BASE64_URL_SAFE_NO_PAD.encode(data);
    if let Ok(peeked) = peek_issuer(&format!("{header}.{claims}.AAAA")) {
        assert_eq!(peeked.issuer, ISSUER);
        assert!(peeked.kid.is_none_or(|kid| kid.len() <= KEY_ID_BYTES_MAX));
    }
    for (kty, crv) in [("RSA", None), ("EC", Some("P-256")), ("EC", Some("P-384")), ("OKP", Some("Ed25519"))]
    {
        let number = BASE64_URL_SAFE_NO_PAD.encode(data);
        let key =
            json!({"kty": kty, "crv": crv, "kid": text, "n": number, "e": "AQAB", "x": number, "y": number});
        let keys = KeySet::parse(json!({"keys": [key]}).to_string().as_bytes());
        assert!(keys.is_err() || keys.is_ok_and(|keys| keys.len() + keys.skipped() == 1));
    }
    for claim in ["sub", "aud", "wlcg.ver", "ver", "wlcg.groups", "groups", "exp", "iat", "nbf"] {
        let mut claims = json!({
            "wlcg.ver": "1.0", "ver": "scitoken:2.0", "iss": ISSUER, "sub": "jdoe", "aud": AUDIENCE,
            "iat": NOW, "exp": NOW + 600, "scope": "storage.read:/a",
        });
        claims[claim] = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        check(&signed(claims.to_string().as_bytes()), profile);
    }
});
