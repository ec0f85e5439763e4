//! A token issuer for tests: real keys, and tokens with any header and any claims.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use exacat_model::Lfn;
use exacat_wire::jwt::{Issuer, KeySet, Profile, Refusal, Verified, verify};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RsaEncoding, RsaKeyPair,
};
use rsa::RsaPrivateKey;
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};
use rsa::traits::PublicKeyParts;
use serde_json::{Value, json};

pub(crate) const ISSUER: &str = "https://iam.example.org/vo";
pub(crate) const AUDIENCE: &str = "https://catalogue.example.org";
pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const SKEW: u64 = 60;

/// A signing key.
pub(crate) enum Signer {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
}

/// Returns the signing key of this number; the same in each run.
pub(crate) fn ed25519(number: u8) -> Signer {
    Signer::Ed25519(Ed25519KeyPair::from_seed_unchecked(&[number; 32]).unwrap())
}

fn ecdsa(with: &'static EcdsaSigningAlgorithm, pkcs8: &[u8]) -> Signer {
    Signer::Ecdsa(EcdsaKeyPair::from_pkcs8(with, pkcs8, &SystemRandom::new()).unwrap())
}

pub(crate) fn p384() -> Signer {
    let with = &ECDSA_P384_SHA384_FIXED_SIGNING;
    ecdsa(with, EcdsaKeyPair::generate_pkcs8(with, &SystemRandom::new()).unwrap().as_ref())
}

/// Returns one key on P-256 twice: with signatures as in tokens, and in DER.
pub(crate) fn p256() -> (Signer, Signer) {
    let with = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(with, &SystemRandom::new()).unwrap();
    (ecdsa(with, pkcs8.as_ref()), ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref()))
}

/// An RSA key of 2048 bits, for tests alone: making one takes up to seconds.
pub(crate) static RSA: LazyLock<RsaPrivateKey> =
    LazyLock::new(|| RsaPrivateKey::from_pkcs1_pem(include_str!("test-rsa-2048.pem")).unwrap());

/// An RSA key of 1024 bits, for tests alone.
pub(crate) fn short_rsa() -> RsaPrivateKey {
    RsaPrivateKey::from_pkcs1_pem(include_str!("test-rsa-1024.pem")).unwrap()
}

pub(crate) fn rsa(algorithm: &str) -> Signer {
    let encoding: &'static dyn RsaEncoding = match algorithm {
        "RS256" => &RSA_PKCS1_SHA256,
        "RS384" => &RSA_PKCS1_SHA384,
        _ => &RSA_PKCS1_SHA512,
    };
    Signer::Rsa(RsaKeyPair::from_der(RSA.to_pkcs1_der().unwrap().as_bytes()).unwrap(), encoding)
}

pub(crate) fn rsa_jwk(key: &RsaPrivateKey) -> Value {
    json!({"kty": "RSA", "n": base64(&key.n().to_bytes_be()), "e": base64(&key.e().to_bytes_be())})
}

impl Signer {
    pub(crate) fn signature(&self, text: &str) -> Vec<u8> {
        match self {
            Signer::Ed25519(pair) => pair.sign(text.as_bytes()).as_ref().to_vec(),
            Signer::Ecdsa(pair) => {
                pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec()
            }
            Signer::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
                signature
            }
        }
    }

    /// Returns a token of these texts, which need not be JSON.
    pub(crate) fn token(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", base64(header.as_bytes()), base64(claims.as_bytes()));
        format!("{signed}.{}", base64(&self.signature(&signed)))
    }

    /// Returns the public key as in a JWKS, without a name.
    pub(crate) fn jwk(&self) -> Value {
        match self {
            Signer::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": base64(pair.public_key().as_ref())})
            }
            Signer::Ecdsa(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "x": base64(x), "y": base64(y)})
            }
            Signer::Rsa(..) => rsa_jwk(&RSA),
        }
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns a JSON object with one more member.
pub(crate) fn with(mut object: Value, name: &str, value: impl Into<Value>) -> Value {
    object[name] = value.into();
    object
}

/// Returns a JSON object with one member less.
pub(crate) fn without(mut object: Value, name: &str) -> Value {
    object.as_object_mut().unwrap().remove(name).unwrap();
    object
}

pub(crate) fn header(algorithm: &str, kid: &str) -> String {
    json!({"alg": algorithm, "kid": kid, "typ": "JWT"}).to_string()
}

pub(crate) fn jwks(keys: &[Value]) -> String {
    json!({"keys": keys}).to_string()
}

pub(crate) fn key_set(keys: &[Value]) -> KeySet {
    KeySet::parse(jwks(keys).as_bytes()).unwrap()
}

pub(crate) fn issuer(profile: Profile) -> Issuer {
    Issuer {
        url: ISSUER.to_owned(),
        audiences: vec![AUDIENCE.to_owned()],
        base_path: Lfn::root(),
        profile,
        skew_seconds: SKEW,
    }
}

/// Returns claims that each profile accepts.
pub(crate) fn claims() -> Value {
    json!({
        "wlcg.ver": "1.0", "ver": "scitoken:2.0", "iss": ISSUER, "sub": "jdoe", "aud": AUDIENCE,
        "iat": NOW - 10, "nbf": NOW - 10, "exp": NOW + 600, "jti": "5d9a8f1e",
        "scope": "openid storage.read:/data",
    })
}

/// Verifies a token now. Checks that a refusal says nothing of the token's content.
pub(crate) fn verify_now(text: &str, issuer: &Issuer, keys: &KeySet) -> Result<Verified, Refusal> {
    let verified = verify(text, issuer, keys, NOW);
    if let Err(refusal) = &verified {
        for message in [refusal.to_string(), format!("{refusal:?}")] {
            let told = text.split('.').find(|part| part.len() > 3 && message.contains(part));
            assert_eq!(told, None, "{message}");
            assert!(!["jdoe", "/data", "5d9a8f1e"].iter().any(|text| message.contains(text)), "{message}");
        }
    }
    verified
}

/// Verifies claims that key 1 of Ed25519 signed.
pub(crate) fn verify_claims(claims: &Value, issuer: &Issuer) -> Result<Verified, Refusal> {
    let signer = ed25519(1);
    let text = signer.token(&header("EdDSA", "one"), &claims.to_string());
    verify_now(&text, issuer, &key_set(&[with(signer.jwk(), "kid", "one")]))
}
