//! Only public keys for signatures, of sufficient length, count among an issuer's keys.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_model::ErrorKind;
use exacat_wire::jwt::KeySet;
use exacat_wire::jwt::limits::{JWKS_BYTES_MAX, JWKS_KEYS_MAX, RSA_BITS_MAX, RSA_BITS_MIN};
use serde_json::{Value, json};

mod jwt_issuer;

use jwt_issuer::{RSA, base64, ed25519, jwks, key_set, p256, p384, rsa_jwk, with, without};

#[test]
fn unusable_keys_are_skipped() {
    let (one, (p256, _)) = (ed25519(1).jwk(), p256());
    let (p256, p384, rsa) = (p256.jwk(), p384().jwk(), rsa_jwk(&RSA));
    let modulus = |bits: usize| {
        let mut number = vec![0xff_u8; bits.div_ceil(8)];
        number[0] >>= (8 - bits % 8) % 8;
        with(rsa.clone(), "n", base64(&number))
    };
    let exponent = |bytes: &[u8]| with(rsa.clone(), "e", base64(bytes));
    let mut padded = vec![0, 0];
    padded.extend_from_slice(&[0xff; 256]);
    let used = [
        one.clone(),
        p256.clone(),
        p384.clone(),
        rsa.clone(),
        with(one.clone(), "use", "sig"),
        with(one.clone(), "key_ops", json!(["verify"])),
        with(one.clone(), "x5t", "unknown members are ignored"),
        with(rsa.clone(), "alg", "RS384"),
        modulus(RSA_BITS_MIN),
        modulus(RSA_BITS_MAX),
        with(rsa.clone(), "n", base64(&padded)),
        exponent(&[3]),
        exponent(&[1, 0xff, 0xff, 0xff, 0xff]),
    ];
    for key in used {
        assert_eq!(key_set(std::slice::from_ref(&key)).len(), 1, "{key}");
    }
    let mut skipped = vec![
        json!({}),
        json!(17),
        json!("key"),
        json!({"kty": "oct", "k": base64(b"secret"), "alg": "HS256"}),
        json!({"kty": "oct", "crv": "Ed25519", "x": one["x"]}),
        json!({"kty": "OKP", "crv": "X25519", "x": one["x"]}),
        json!({"kty": "OKP", "crv": "Ed448", "x": one["x"]}),
        json!({"kty": "OKP", "crv": "Ed25519"}),
        with(one.clone(), "kty", "okp"),
        with(one.clone(), "use", "enc"),
        with(one.clone(), "use", json!(["sig"])),
        with(one.clone(), "key_ops", json!(["encrypt"])),
        with(one.clone(), "key_ops", "verify"),
        with(one.clone(), "alg", "RS256"),
        with(one.clone(), "alg", "none"),
        with(one.clone(), "alg", Value::Null),
        with(one.clone(), "kid", 17),
        with(one.clone(), "x", base64(&[1; 31])),
        with(one.clone(), "x", format!("{}=", one["x"].as_str().unwrap())),
        with(p256.clone(), "crv", "P-521"),
        with(p256.clone(), "crv", "secp256k1"),
        with(p256.clone(), "crv", "P-384"),
        with(p256.clone(), "alg", "ES384"),
        with(p256.clone(), "y", base64(&[1; 33])),
        without(p256.clone(), "y"),
        with(rsa.clone(), "alg", "RSA-OAEP"),
        with(rsa.clone(), "alg", "PS256"),
        with(rsa.clone(), "alg", "HS256"),
        modulus(RSA_BITS_MIN - 1),
        modulus(RSA_BITS_MAX + 1),
        with(rsa.clone(), "n", ""),
        exponent(&[]),
        exponent(&[1]),
        exponent(&[4]),
        exponent(&[2, 0, 0, 0, 1]),
        exponent(&[1; 20]),
    ];
    for private in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
        skipped.extend([&one, &p256, &rsa].map(|key| with(key.clone(), private, "AQAB")));
    }
    for key in skipped {
        let set = key_set(std::slice::from_ref(&key));
        assert_eq!((set.len(), set.skipped(), set.is_empty()), (0, 1, true), "{key}");
    }
}

#[test]
fn jwks_is_bounded_and_strict() {
    let key = ed25519(1).jwk();
    assert_eq!(key_set(&vec![key.clone(); JWKS_KEYS_MAX]).len(), JWKS_KEYS_MAX);
    let kind = |document: &str| KeySet::parse(document.as_bytes()).unwrap_err().kind;
    assert_eq!(kind(&jwks(&vec![key.clone(); JWKS_KEYS_MAX + 1])), ErrorKind::Limit);
    let text = jwks(&[key]);
    let longest = format!("{text}{}", " ".repeat(JWKS_BYTES_MAX - text.len()));
    assert_eq!(KeySet::parse(longest.as_bytes()).unwrap().len(), 1);
    assert_eq!(kind(&format!("{longest} ")), ErrorKind::Limit);
    let deep = format!("{{\"keys\":{}", "[".repeat(10_000));
    for bad in [
        "",
        "[]",
        "{}",
        "keys",
        r#"{"keys":{}}"#,
        r#"{"keys":[],"keys":[]}"#,
        r#"{"keys":[]}}"#,
        "<html>",
        &deep,
    ] {
        assert_eq!(kind(bad), ErrorKind::Invalid, "{bad:.40}");
    }
    assert_eq!(KeySet::parse(b"{\"keys\":[\"\xff\"]}").unwrap_err().kind, ErrorKind::Invalid);
    // Two keys in one object.
    assert_eq!(kind(r#"{"keys":[{"kty":"OKP","x":"a","x":"b"}]}"#), ErrorKind::Invalid);
}
