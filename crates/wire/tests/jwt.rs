//! Only tokens that one of the issuer's keys signed, in exactly one form, are accepted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use base64::Engine;
use exacat_wire::jwt::limits::{KEY_ID_BYTES_MAX, TOKEN_BYTES_MAX};
use exacat_wire::jwt::{Algorithm, KeySet, Profile, Refusal, peek_issuer};
use rsa::RsaPrivateKey;
use serde_json::{Value, json};

mod jwt_issuer;
mod random;

use jwt_issuer::{
    ISSUER, RSA, Signer, base64, claims, ed25519, header, issuer, jwks, key_set, p256, p384, rsa, rsa_jwk,
    short_rsa, verify_now, with, without,
};
use random::Random;

/// Returns the result for a token of the WLCG profile; of a refusal its kind.
fn outcome(text: &str, keys: &KeySet) -> Result<(), &'static str> {
    verify_now(text, &issuer(Profile::Wlcg), keys).map(drop).map_err(|refusal| match refusal {
        Refusal::Malformed(_) => "malformed",
        Refusal::Limit { .. } => "limit",
        Refusal::WrongIssuer { .. } => "issuer",
        Refusal::UnknownKey => "unknown key",
        Refusal::BadSignature => "signature",
        Refusal::UnsupportedAlgorithm(_) => "algorithm",
        // Without a good signature, no other claim is looked at.
        other => panic!("{other:?}"),
    })
}

fn named(signer: &Signer, kid: &str) -> Value {
    with(signer.jwk(), "kid", kid)
}

/// A key, the set with it, and a token of it.
fn valid() -> (Signer, KeySet, String) {
    let signer = ed25519(1);
    let keys = key_set(&[named(&signer, "one")]);
    let text = signer.token(&header("EdDSA", "one"), &claims().to_string());
    assert_eq!(outcome(&text, &keys), Ok(()));
    (signer, keys, text)
}

#[test]
fn token_of_each_algorithm_is_accepted() {
    let signers = [
        ("EdDSA", ed25519(1)),
        ("ES256", p256().0),
        ("ES384", p384()),
        ("RS256", rsa("RS256")),
        ("RS384", rsa("RS384")),
        ("RS512", rsa("RS512")),
    ];
    let keys: Vec<Value> = signers.iter().map(|(name, signer)| named(signer, name)).collect();
    let keys = key_set(&keys);
    assert_eq!((keys.len(), keys.skipped()), (6, 0));
    for (name, signer) in &signers {
        let text = signer.token(&header(name, name), &claims().to_string());
        let verified = verify_now(&text, &issuer(Profile::Wlcg), &keys).unwrap();
        assert_eq!(verified.subject, "jdoe", "{name}");
        // The issuer may bind a key to its algorithm.
        let bound = key_set(&[with(named(signer, name), "alg", *name)]);
        assert_eq!(outcome(&text, &bound), Ok(()), "{name}");
    }
}

#[test]
fn peek_names_issuer_and_key_without_a_key_set() {
    let (_, _, text) = valid();
    let peeked = peek_issuer(&text).unwrap();
    assert_eq!((peeked.issuer.as_str(), peeked.kid.as_deref()), (ISSUER, Some("one")));
    assert_eq!(peeked.algorithm, Algorithm::EdDsa);
    assert_eq!(peek_issuer("a.b.c"), Err(Refusal::Malformed("a part is not base64url")));
    let unnamed = ed25519(9).token(r#"{"alg":"EdDSA"}"#, &without(claims(), "iss").to_string());
    assert!(matches!(peek_issuer(&unnamed), Err(Refusal::Malformed(_))));
}

#[test]
fn token_with_any_bit_flipped_is_refused() {
    let claims = claims().to_string();
    let (p256, _) = p256();
    for (algorithm, signer, bits) in
        [("EdDSA", ed25519(1), 0..7), ("ES256", p256, 0..1), ("RS256", rsa("RS256"), 1..2)]
    {
        let keys = key_set(&[named(&signer, "one")]);
        let text = signer.token(&header(algorithm, "one"), &claims);
        assert_eq!(outcome(&text, &keys), Ok(()));
        for at in 0..text.len() {
            for bit in bits.clone() {
                let mut forged = text.clone().into_bytes();
                forged[at] ^= 1 << bit;
                let forged = String::from_utf8(forged).unwrap();
                assert!(outcome(&forged, &keys).is_err(), "{algorithm} {at} {bit}");
            }
        }
    }
}

#[test]
fn token_cut_or_extended_at_any_byte_is_refused() {
    let (_, keys, text) = valid();
    for at in 0..text.len() {
        assert!(outcome(&text[..at], &keys).is_err(), "start to {at}");
        if at > 0 {
            assert!(outcome(&text[at..], &keys).is_err(), "end from {at}");
        }
        for inserted in ["A", ".", "=", " ", "\n", "\0", "é"] {
            let extended = format!("{}{inserted}{}", &text[..at], &text[at..]);
            assert!(outcome(&extended, &keys).is_err(), "{inserted:?} at {at}");
        }
    }
    for inserted in ["A", ".", "=", "==", " ", "\n", "\r\n", "\0", ".AAAA"] {
        assert!(outcome(&format!("{text}{inserted}"), &keys).is_err(), "{inserted:?}");
    }
    assert!(outcome(&format!("Bearer {text}"), &keys).is_err());
}

#[test]
fn random_text_and_random_edits_are_refused() {
    let (_, keys, text) = valid();
    let mut random = Random(17);
    for _ in 0..20_000 {
        let mut forged = text.clone().into_bytes();
        for _ in 0..=random.below(4) {
            let at = random.below(forged.len() as u64) as usize;
            match random.below(3) {
                0 => drop(forged.remove(at)),
                1 => forged.insert(at, b".AQ-_=eyJ"[random.below(9) as usize]),
                _ => forged[at] = random.next() as u8,
            }
        }
        let forged = String::from_utf8_lossy(&forged);
        assert_eq!(outcome(&forged, &keys).is_ok(), forged == text);
        let garbage: Vec<u8> = (0..random.below(100)).map(|_| random.next() as u8).collect();
        assert!(outcome(&String::from_utf8_lossy(&garbage), &keys).is_err());
        assert!(outcome(&format!("{}.{}.", base64(&garbage), base64(&garbage)), &keys).is_err());
    }
}

#[test]
fn algorithm_none_is_refused() {
    let (_, keys, text) = valid();
    let (signed, signature) = text.rsplit_once('.').unwrap();
    let (_, claims) = signed.split_once('.').unwrap();
    for name in ["none", "None", "NONE", "nOnE"] {
        let header = base64(header(name, "one").as_bytes());
        for end in ["", signature] {
            assert_eq!(outcome(&format!("{header}.{claims}.{end}"), &keys), Err("algorithm"), "{name}");
        }
    }
}

/// A reader that takes the algorithm from the header would use the public key as shared secret.
#[test]
fn hmac_with_the_public_key_as_secret_is_refused() {
    let (signer, keys, _) = valid();
    let jwk = named(&signer, "one");
    let raw = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(jwk["x"].as_str().unwrap()).unwrap();
    let secrets = [
        raw,
        jwk["x"].as_str().unwrap().as_bytes().to_vec(),
        jwk.to_string().into_bytes(),
        jwks(&[jwk]).into_bytes(),
    ];
    for (name, with) in [
        ("HS256", ring::hmac::HMAC_SHA256),
        ("HS384", ring::hmac::HMAC_SHA384),
        ("HS512", ring::hmac::HMAC_SHA512),
        ("hs256", ring::hmac::HMAC_SHA256),
    ] {
        for secret in &secrets {
            let signed = format!(
                "{}.{}",
                base64(header(name, "one").as_bytes()),
                base64(claims().to_string().as_bytes())
            );
            let tag = ring::hmac::sign(&ring::hmac::Key::new(with, secret), signed.as_bytes());
            let text = format!("{signed}.{}", base64(tag.as_ref()));
            assert_eq!(outcome(&text, &keys), Err("algorithm"), "{name}");
        }
    }
}

#[test]
fn algorithm_that_is_not_the_keys_is_refused() {
    let (signer, keys, _) = valid();
    let claims = claims().to_string();
    for name in ["ES256", "RS256", "PS256", "ES512", "ES256K", "Ed448", "eddsa", "", "é"] {
        assert_eq!(outcome(&signer.token(&header(name, "one"), &claims), &keys), Err("algorithm"), "{name}");
    }
    // A signature that would fit, were the key not bound to RS256.
    let text = rsa("RS512").token(&header("RS512", "r"), &claims);
    let jwk = named(&rsa("RS512"), "r");
    assert_eq!(outcome(&text, &key_set(std::slice::from_ref(&jwk))), Ok(()));
    assert_eq!(outcome(&text, &key_set(&[with(jwk.clone(), "alg", "RS256")])), Err("algorithm"));
    // The header's algorithm within the family is what verifies, and no other.
    let text = rsa("RS512").token(&header("RS256", "r"), &claims);
    assert_eq!(outcome(&text, &key_set(&[jwk])), Err("signature"));
}

#[test]
fn kid_is_only_compared() {
    let (signer, keys, _) = valid();
    let claims = claims().to_string();
    for kid in [
        "two",
        "One",
        "one ",
        "",
        "../../../../dev/null",
        "/etc/passwd",
        "file:///etc/passwd",
        "https://attacker.example/jwks.json",
        "one' OR '1'='1",
        "one\0",
        "*",
    ] {
        assert_eq!(
            outcome(&signer.token(&header("EdDSA", kid), &claims), &keys),
            Err("unknown key"),
            "{kid:?}"
        );
    }
    let (longest, longer) = ("k".repeat(KEY_ID_BYTES_MAX), "k".repeat(KEY_ID_BYTES_MAX + 1));
    let keys = key_set(&[named(&signer, &longest)]);
    assert_eq!(outcome(&signer.token(&header("EdDSA", &longest), &claims), &keys), Ok(()));
    assert_eq!(outcome(&signer.token(&header("EdDSA", &longer), &claims), &keys), Err("limit"));
    assert!(key_set(&[named(&signer, &longer)]).is_empty());
}

#[test]
fn keys_and_addresses_of_keys_in_the_header_are_ignored() {
    let (_, keys, _) = valid();
    let attacker = ed25519(66);
    for (name, value) in [
        ("jwk", attacker.jwk()),
        ("jku", json!("https://attacker.example/jwks.json")),
        ("x5u", json!("https://attacker.example/cert.pem")),
        ("x5c", json!(["MIIB"])),
    ] {
        let header = with(json!({"alg": "EdDSA", "kid": "one"}), name, value);
        let text = attacker.token(&header.to_string(), &claims().to_string());
        assert_eq!(outcome(&text, &keys), Err("signature"), "{name}");
        let text = attacker.token(&without(header, "kid").to_string(), &claims().to_string());
        assert_eq!(outcome(&text, &keys), Err("signature"), "{name}");
    }
}

#[test]
fn token_without_kid_needs_the_only_key_of_its_family() {
    let (one, two, (p256, _)) = (ed25519(1), ed25519(2), p256());
    let text = one.token(r#"{"alg":"EdDSA"}"#, &claims().to_string());
    assert_eq!(outcome(&text, &key_set(&[one.jwk(), named(&p256, "p")])), Ok(()));
    assert_eq!(outcome(&text, &key_set(&[named(&one, "one")])), Ok(()));
    assert_eq!(outcome(&text, &key_set(&[named(&one, "one"), named(&two, "two")])), Err("malformed"));
    assert_eq!(outcome(&text, &key_set(&[named(&p256, "p")])), Err("unknown key"));
    assert_eq!(outcome(&text, &key_set(&[])), Err("unknown key"));
    // A key without a name has no name that could match.
    let text = one.token(&header("EdDSA", "one"), &claims().to_string());
    assert_eq!(outcome(&text, &key_set(&[one.jwk()])), Err("unknown key"));
}

#[test]
fn keys_of_one_name_are_tried_in_turn() {
    let (one, two, (p256, _)) = (ed25519(1), ed25519(2), p256());
    let keys = key_set(&[named(&p256, "k"), named(&one, "k"), named(&two, "k")]);
    assert_eq!(keys.len(), 3);
    for signer in [&one, &two] {
        let text = signer.token(&header("EdDSA", "k"), &claims().to_string());
        assert_eq!(outcome(&text, &keys), Ok(()));
    }
    assert_eq!(outcome(&p256.token(&header("ES256", "k"), &claims().to_string()), &keys), Ok(()));
    let text = ed25519(3).token(&header("EdDSA", "k"), &claims().to_string());
    assert_eq!(outcome(&text, &keys), Err("signature"));
}

#[test]
fn parts_of_two_tokens_do_not_combine() {
    let (signer, keys, text) = valid();
    let other = signer.token(r#"{"alg":"EdDSA","kid":"one"}"#, &with(claims(), "sub", "root").to_string());
    assert_eq!(outcome(&other, &keys), Ok(()));
    let parts = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let all = [parts(&text), parts(&other)];
    for mix in 1..7 {
        let mixed = [0, 1, 2].map(|part| all[mix >> part & 1][part].as_str()).join(".");
        assert_eq!(outcome(&mixed, &keys), Err("signature"), "{mix}");
    }
}

#[test]
fn elliptic_signature_in_der_is_refused() {
    let (fixed, der) = p256();
    let keys = key_set(&[named(&fixed, "p")]);
    let claims = claims().to_string();
    assert_eq!(outcome(&fixed.token(&header("ES256", "p"), &claims), &keys), Ok(()));
    assert_eq!(outcome(&der.token(&header("ES256", "p"), &claims), &keys), Err("signature"));
    // Two zeros once passed as a signature of anything (CVE-2022-21449).
    let signed = format!("{}.{}", base64(header("ES256", "p").as_bytes()), base64(claims.as_bytes()));
    assert_eq!(outcome(&format!("{signed}.{}", base64(&[0; 64])), &keys), Err("signature"));
}

#[test]
fn rsa_key_of_1024_bits_is_not_used() {
    /// DER of a signature's content before the hash (RFC 8017, section 9.2).
    const SHA256_PREFIX: [u8; 19] =
        [0x30, 0x31, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20];
    let sign = |key: &RsaPrivateKey| {
        let signed = format!(
            "{}.{}",
            base64(header("RS256", "r").as_bytes()),
            base64(claims().to_string().as_bytes())
        );
        let hash = ring::digest::digest(&ring::digest::SHA256, signed.as_bytes());
        let padding = rsa::Pkcs1v15Sign { hash_len: Some(32), prefix: Box::new(SHA256_PREFIX) };
        format!("{signed}.{}", base64(&key.sign(padding, hash.as_ref()).unwrap()))
    };
    let set = |key: &RsaPrivateKey| key_set(&[with(rsa_jwk(key), "kid", "r")]);
    assert_eq!(outcome(&sign(&RSA), &set(&RSA)), Ok(()));
    let short = short_rsa();
    assert_eq!(outcome(&sign(&short), &set(&short)), Err("unknown key"));
    assert_eq!(set(&short).skipped(), 1);
}

#[test]
fn malformed_token_is_refused() {
    let (signer, keys, text) = valid();
    let claims = claims().to_string();
    let (good, repeated) = (header("EdDSA", "one"), claims.replacen('{', r#"{"sub":"root","#, 1));
    let (start, _) = claims.rsplit_once('}').unwrap();
    let deep = format!(r#"{start},"x":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    let texts = [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        "a.b.c".to_owned(),
        "\u{feff}".to_owned(),
        text.replace('.', ""),
        text.replace('.', ".."),
        // Encrypted tokens have five parts.
        format!("{text}.AAAA.AAAA"),
        format!(" {text}"),
        text.to_lowercase(),
        serde_json::to_string(&text).unwrap(),
        signer.token("", &claims),
        signer.token("[]", &claims),
        signer.token("{}", &claims),
        signer.token(r#"{"kid":"one"}"#, &claims),
        signer.token(r#"{"alg":["EdDSA"],"kid":"one"}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":1}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":null}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","kid":"two"}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","alg":"EdDSA"}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","\u0061lg":"none"}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","crit":["exp"],"exp":1}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","crit":[]}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","b64":false}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","b64":true}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","typ":"logout+jwt"}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","typ":""}"#, &claims),
        signer.token(r#"{"alg":"EdDSA","kid":"one","typ":17}"#, &claims),
        signer.token(&format!("{good}{{}}"), &claims),
        signer.token(&good, ""),
        signer.token(&good, "[]"),
        signer.token(&good, "null"),
        signer.token(&good, &text),
        signer.token(&good, start),
        signer.token(&good, &format!("{claims} x")),
        signer.token(&good, &repeated),
        signer.token(&good, &format!(r#"{start},"x":{{"a":1,"a":2}}}}"#)),
        signer.token(&good, &format!(r#"{start},"x":[{{"a":1,"a":2}}]}}"#)),
        signer.token(&good, &format!(r#"{start},"\u0073ub":"root"}}"#)),
        signer.token(&good, &format!(r#"{start},"x":1e400}}"#)),
        signer.token(&good, &format!(r#"{start},"x":"\ud800"}}"#)),
        signer.token(&good, &deep),
        signer.token(&good, &format!("\u{feff}{claims}")),
    ];
    for bad in &texts {
        assert_eq!(outcome(bad, &keys), Err("malformed"), "{bad:.80}");
    }
    let signed = format!("{}.{}", base64(good.as_bytes()), base64(b"{\"sub\":\"\xff\"}"));
    let bad = format!("{signed}.{}", base64(&signer.signature(&signed)));
    assert_eq!(outcome(&bad, &keys), Err("malformed"), "no UTF-8");
    for kind in ["JWT", "jwt", "at+jwt", "AT+JWT"] {
        let header = format!(r#"{{"alg":"EdDSA","kid":"one","typ":"{kind}"}}"#);
        assert_eq!(outcome(&signer.token(&header, &claims), &keys), Ok(()), "{kind}");
    }
}

#[test]
fn token_longer_than_its_limit_is_refused() {
    let signer = ed25519(1);
    let (mut reached, mut exceeded) = (false, false);
    // One more character of claims adds one or two to the token: two key names reach all lengths.
    for kid in ["o", "on"] {
        let keys = key_set(&[named(&signer, kid)]);
        for padding in 11_600..12_200 {
            let claims = with(claims(), "x", "x".repeat(padding)).to_string();
            let text = signer.token(&header("EdDSA", kid), &claims);
            let fits = text.len() <= TOKEN_BYTES_MAX;
            reached |= text.len() == TOKEN_BYTES_MAX;
            exceeded |= text.len() == TOKEN_BYTES_MAX + 1;
            if text.len().abs_diff(TOKEN_BYTES_MAX) < 8 {
                assert_eq!(outcome(&text, &keys), if fits { Ok(()) } else { Err("limit") }, "{}", text.len());
            }
        }
    }
    assert!(reached && exceeded);
    let (_, keys, text) = valid();
    assert_eq!(outcome(&text.repeat(10_000), &keys), Err("limit"));
    assert_eq!(outcome(&".".repeat(TOKEN_BYTES_MAX), &keys), Err("malformed"));
}
