//! Signing keys of envelopes: makes and rotates them, and publishes them to storage elements as a
//! JWKS.
//!
//! A key is published for a day before its first use, so that readers who cache the list for some
//! hours have it by then. It stays published for a while after its last use, so that its signatures
//! can be checked.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use exacat_store::Clock;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};

use crate::directory::{failed, read, remove, write_private};

const DAY_MS: u64 = 24 * 3_600_000;
/// Time that a key is published before its first use.
const PUBLISHED_BEFORE_MS: u64 = DAY_MS;
/// Age of the newest key at which the next one is made.
const NEW_EACH_MS: u64 = 30 * DAY_MS;
/// Age at which a key is no longer published. Upload reservations last at most 30 days, and their
/// envelopes must be valid at the commit.
const KEPT_MS: u64 = 3 * NEW_EACH_MS;
/// Bytes of each of the two numbers of a public key.
const COORDINATE_BYTES: usize = 32;
/// Ending of the names of key files.
const ENDING: &str = ".envelope.key";

/// A signing key.
struct Key {
    /// The time it was made, which is its name.
    made: TimeMs,
    pair: EcdsaKeyPair,
}

impl Key {
    fn name(&self) -> String {
        self.made.0.to_string()
    }

    fn read(text: &str, made: TimeMs, path: &std::path::Path) -> Result<Self> {
        let bad = |why: String| Error::new(ErrorKind::Corrupt, format!("{}: {why}", path.display()));
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim()).map_err(|error| bad(error.to_string()))?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, &SystemRandom::new())
            .map_err(|error| bad(error.to_string()))?;
        Ok(Key { made, pair })
    }
}

/// All signing keys.
pub(super) struct Keys {
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    random: SystemRandom,
    /// The oldest first; at least one.
    keys: Mutex<Vec<Arc<Key>>>,
}

impl Keys {
    /// Loads the keys in a directory; makes the first one.
    pub(crate) fn open(directory: PathBuf, clock: Arc<dyn Clock>) -> Result<Self> {
        let unreadable = |error: std::io::Error| failed("read", &directory, &error);
        let mut keys = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(made) = name.strip_suffix(ENDING).and_then(|made| made.parse().ok()) else { continue };
            if let Some(text) = read(&path)? {
                keys.push(Arc::new(Key::read(&text, TimeMs(made), &path)?));
            }
        }
        keys.sort_by_key(|key| key.made);
        let keys = Keys { directory, clock, random: SystemRandom::new(), keys: Mutex::new(keys) };
        keys.take_turns()?;
        Ok(keys)
    }

    /// Makes a key when one is due, and deletes expired keys.
    fn take_turns(&self) -> Result<()> {
        let now = self.clock.now();
        let mut keys = self.keys.lock();
        let due = keys.last().is_none_or(|newest| newest.made.plus_ms(NEW_EACH_MS) <= now);
        if due {
            let broken = |_| Error::new(ErrorKind::Unavailable, "the system gives no random bytes");
            let bytes = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &self.random)
                .map_err(broken)?;
            let text = BASE64_URL_SAFE_NO_PAD.encode(bytes.as_ref());
            let path = self.directory.join(format!("{}{ENDING}", now.0));
            write_private(&path, text.as_bytes())?;
            keys.push(Arc::new(Key::read(&text, now, &path)?));
        }
        let is_over = |key: &Arc<Key>| key.made.plus_ms(KEPT_MS) <= now;
        // At least one key stays: the code above made one if there was none.
        for gone in keys.extract_if(.., |key| is_over(key)) {
            remove(&self.directory.join(format!("{}{ENDING}", gone.made.0)))?;
        }
        Ok(())
    }

    /// Returns the key to sign with: the newest that was published for long enough, or the first
    /// one.
    fn current(&self) -> Result<Arc<Key>> {
        self.take_turns()?;
        let now = self.clock.now();
        let keys = self.keys.lock();
        let usable = keys.iter().rev().find(|key| key.made.plus_ms(PUBLISHED_BEFORE_MS) <= now);
        usable
            .or(keys.first())
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "there is no key for envelopes"))
    }

    /// Returns a signed token of these claims, in the format of RFC 7515.
    pub(crate) fn sign(&self, claims: &Value) -> Result<String> {
        let key = self.current()?;
        let header = json!({"alg": "ES256", "kid": key.name(), "typ": "JWT"});
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let mut text = format!("{}.{}", encode(&header), encode(claims));
        let broken = |_| Error::new(ErrorKind::Unavailable, "the system gives no random bytes");
        let signature = key.pair.sign(&self.random, text.as_bytes()).map_err(broken)?;
        text.push('.');
        BASE64_URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut text);
        Ok(text)
    }

    /// Returns the claims of a token that we signed; none for any other.
    pub(crate) fn check(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header.get("alg")?.as_str()? != "ES256" {
            return None;
        }
        let name = header.get("kid")?.as_str()?;
        let key = self.keys.lock().iter().find(|key| key.name() == name).cloned()?;
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.pair.public_key().as_ref());
        public.verify(signed.as_bytes(), &decode(signature)?).ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }

    /// Returns the public keys, in the format of RFC 7517.
    pub(crate) fn public(&self) -> Result<Value> {
        self.take_turns()?;
        let keys = self.keys.lock();
        let one = |key: &Arc<Key>| {
            // The first byte says that both numbers follow.
            let numbers = key.pair.public_key().as_ref().get(1..).unwrap_or_default();
            let (x, y) = numbers.split_at(COORDINATE_BYTES.min(numbers.len()));
            json!({
                "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": key.name(),
                "x": BASE64_URL_SAFE_NO_PAD.encode(x), "y": BASE64_URL_SAFE_NO_PAD.encode(y),
            })
        };
        Ok(json!({"keys": keys.iter().map(one).collect::<Vec<_>>()}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_testkit::TestClock;

    fn names(keys: &Keys) -> Vec<String> {
        let public = keys.public().unwrap();
        public["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    }

    fn signer(keys: &Keys) -> String {
        let token = keys.sign(&json!({"a": 1})).unwrap();
        let header = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
        serde_json::from_slice::<Value>(&header).unwrap()["kid"].as_str().unwrap().to_owned()
    }

    #[test]
    fn what_was_signed_is_known_again_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let clock = TestClock::new();
        let open = || Keys::open(directory.path().to_owned(), clock.shared()).unwrap();
        let keys = open();
        let claims = json!({"sub": "jdoe", "exp": 17});
        let token = keys.sign(&claims).unwrap();
        assert_eq!(keys.check(&token), Some(claims.clone()));
        assert_eq!(open().check(&token), Some(claims), "after a restart");
        assert_eq!(token.matches('.').count(), 2);
        for at in 0..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            // The last character has unused bits.
            if at + 1 < token.len() {
                assert_eq!(keys.check(&forged), None, "{at}");
            }
        }
        let (signed, _) = token.rsplit_once('.').unwrap();
        for other in ["", ".", "..", signed, &format!("{signed}."), "a.b.c"] {
            assert_eq!(keys.check(other), None, "{other}");
        }
        let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
        assert_eq!(keys.check(&format!("{none}.{}.", token.split('.').nth(1).unwrap())), None);
        let elsewhere = tempfile::tempdir().unwrap();
        let other = Keys::open(elsewhere.path().to_owned(), clock.shared()).unwrap();
        assert_eq!(other.check(&token), None, "the key of another catalogue");
    }

    #[test]
    fn keys_are_told_before_they_are_used_and_after() {
        let directory = tempfile::tempdir().unwrap();
        let clock = TestClock::new();
        let keys = Keys::open(directory.path().to_owned(), clock.shared()).unwrap();
        let first = signer(&keys);
        let token = keys.sign(&json!({})).unwrap();
        assert_eq!(names(&keys), std::slice::from_ref(&first));
        clock.turn(i64::try_from(NEW_EACH_MS).unwrap());
        assert_eq!(names(&keys).len(), 2);
        assert_eq!(signer(&keys), first, "the new one is published, and not used yet");
        clock.turn(i64::try_from(PUBLISHED_BEFORE_MS).unwrap());
        let second = signer(&keys);
        assert_ne!(second, first);
        assert!(keys.check(&token).is_some());
        clock.turn(i64::try_from(KEPT_MS - NEW_EACH_MS - PUBLISHED_BEFORE_MS).unwrap());
        assert!(!names(&keys).contains(&first));
        assert!(keys.check(&token).is_none());
        assert!(!std::fs::exists(directory.path().join(format!("{first}{ENDING}"))).unwrap());
    }
}
