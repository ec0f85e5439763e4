//! Public keys of an issuer, from its JWKS (RFC 7517).

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use exacat_model::{Error, Result};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::{Map, Value};

use super::algorithm::{Algorithm, Family};
use super::json;
use super::limits::{
    JWKS_BYTES_MAX, JWKS_KEYS_MAX, KEY_ID_BYTES_MAX, RSA_BITS_MAX, RSA_BITS_MIN, RSA_EXPONENT_MAX,
};
use super::refusal::Refusal;
use super::token::Token;

/// Public key in the form that the cryptographic library takes.
#[derive(Clone, Debug)]
enum Public {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// A point with its marker byte, or the 32 bytes of Ed25519.
    Curve(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Key {
    kid: Option<String>,
    family: Family,
    /// The one algorithm that the issuer uses it for, if it says so.
    algorithm: Option<Algorithm>,
    public: Public,
}

/// Public keys of one issuer.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<Key>,
    skipped: usize,
}

impl KeySet {
    /// Parses a JWKS. Skips keys that are unusable here: other types, other uses, short ones, secret
    /// ones. A set without any usable key is no error, because an issuer revokes keys that way.
    pub fn parse(document: &[u8]) -> Result<Self> {
        if document.len() > JWKS_BYTES_MAX {
            return Err(Error::limit("the length of a JWKS in bytes", document.len(), JWKS_BYTES_MAX));
        }
        let Some(document) = json::object(document) else {
            return Err(Error::invalid("a JWKS is a JSON object without repeated names; check its URL"));
        };
        let Some(Value::Array(all)) = document.get("keys") else {
            return Err(Error::invalid("a JWKS has an array 'keys'; check its URL"));
        };
        if all.len() > JWKS_KEYS_MAX {
            return Err(Error::limit("the number of keys in a JWKS", all.len(), JWKS_KEYS_MAX));
        }
        let keys: Vec<Key> = all.iter().filter_map(|key| Key::parse(key.as_object()?)).collect();
        Ok(KeySet { skipped: all.len() - keys.len(), keys })
    }

    /// Returns the number of usable keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Says whether no key is usable, so that every token is refused.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the number of keys that were skipped.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Checks the signature of a token. Tries all keys that have the token's key name.
    pub(super) fn check(&self, token: &Token<'_>) -> std::result::Result<(), Refusal> {
        let family = token.algorithm.family();
        let is_meant = |key: &&Key| match &token.kid {
            Some(kid) => key.kid.as_ref() == Some(kid),
            None => key.family == family,
        };
        let meant = || self.keys.iter().filter(is_meant);
        match meant().count() {
            0 => return Err(Refusal::UnknownKey),
            1 => {}
            _ if token.kid.is_some() => {}
            _ => return Err(Refusal::Malformed("its header has no 'kid', and the issuer has several keys")),
        }
        let mut fitting = meant().filter(|key| key.allows(token.algorithm)).peekable();
        if fitting.peek().is_none() {
            return Err(Refusal::UnsupportedAlgorithm("the issuer's key is for another one"));
        }
        match fitting.any(|key| key.verifies(token)) {
            true => Ok(()),
            false => Err(Refusal::BadSignature),
        }
    }
}

/// Members of a JWK with secrets. A key that was published with one of them is no secret any more.
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// Bytes of a coordinate on P-256.
const P256_BYTES: usize = 32;
/// Bytes of a coordinate on P-384.
const P384_BYTES: usize = 48;
/// Bytes of a key of Ed25519.
const ED25519_BYTES: usize = 32;
/// First byte of an elliptic point that has both coordinates.
const UNCOMPRESSED: u8 = 4;

impl Key {
    /// Parses a JWK; none if it is unusable.
    fn parse(jwk: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let sized = |name: &str, size: usize| bytes(name).filter(|bytes| bytes.len() == size);
        let point = |size: usize| {
            let coordinates = [sized("x", size)?, sized("y", size)?].concat();
            Some(Public::Curve([vec![UNCOMPRESSED], coordinates].concat()))
        };
        if PRIVATE.iter().any(|name| jwk.contains_key(*name)) || !is_for_signatures(jwk) {
            return None;
        }
        let (family, public) = match (text("kty")?, text("crv")) {
            ("RSA", _) => (Family::Rsa, Public::Rsa(rsa(&bytes("n")?, &bytes("e")?)?)),
            ("EC", Some("P-256")) => (Family::P256, point(P256_BYTES)?),
            ("EC", Some("P-384")) => (Family::P384, point(P384_BYTES)?),
            ("OKP", Some("Ed25519")) => (Family::Ed25519, Public::Curve(sized("x", ED25519_BYTES)?)),
            _ => return None,
        };
        let algorithm = match jwk.get("alg") {
            None => None,
            Some(name) => {
                Some(Algorithm::from_name(name.as_str()?).ok().filter(|own| own.family() == family)?)
            }
        };
        let kid = match jwk.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_str().filter(|kid| kid.len() <= KEY_ID_BYTES_MAX)?.to_owned()),
        };
        Some(Key { kid, family, algorithm, public })
    }

    fn allows(&self, algorithm: Algorithm) -> bool {
        algorithm.family() == self.family && self.algorithm.is_none_or(|own| own == algorithm)
    }

    fn verifies(&self, token: &Token<'_>) -> bool {
        let (signed, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        let verified = match (&self.public, token.algorithm) {
            (Public::Rsa(key), Algorithm::Rs256) => {
                key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
            }
            (Public::Rsa(key), Algorithm::Rs384) => {
                key.verify(&RSA_PKCS1_2048_8192_SHA384, signed, signature)
            }
            (Public::Rsa(key), Algorithm::Rs512) => {
                key.verify(&RSA_PKCS1_2048_8192_SHA512, signed, signature)
            }
            (Public::Curve(key), Algorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(signed, signature)
            }
            (Public::Curve(key), Algorithm::Es384) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key).verify(signed, signature)
            }
            (Public::Curve(key), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&ED25519, key).verify(signed, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }
}

/// Says whether the issuer publishes a key for signatures, and not for something else.
fn is_for_signatures(jwk: &Map<String, Value>) -> bool {
    let operations = match jwk.get("key_ops") {
        None => true,
        Some(Value::Array(operations)) => operations.iter().any(|operation| operation == "verify"),
        Some(_) => false,
    };
    operations && jwk.get("use").is_none_or(|used| used == "sig")
}

/// Returns the key of these numbers; none if it is too short or too long.
fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<RsaPublicKeyComponents<Vec<u8>>> {
    let (n, e) = (without_zeros(modulus), without_zeros(exponent));
    let unused = usize::try_from(n.first()?.leading_zeros()).ok()?;
    let bits = n.len().checked_mul(8)?.checked_sub(unused)?;
    let value = e.iter().try_fold(0_u64, |value, byte| Some(value.checked_mul(256)? | u64::from(*byte)))?;
    let fits = (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits)
        && (3..=RSA_EXPONENT_MAX).contains(&value)
        && value % 2 == 1;
    fits.then(|| RsaPublicKeyComponents { n: n.to_vec(), e: e.to_vec() })
}

/// Removes zeros at the start of a number, which some issuers publish and the library refuses.
fn without_zeros(mut number: &[u8]) -> &[u8] {
    while let [0, rest @ ..] = number {
        number = rest;
    }
    number
}
