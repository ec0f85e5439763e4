//! Secrets that browsers keep: ids of sessions, and tokens against forged forms.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use exacat_model::Result;
use ring::digest::{SHA256, digest};

use crate::randomness;

/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// Digest of a secret.
pub(super) type Key = [u8; 32];

/// Makes a secret.
pub(super) fn secret() -> Result<String> {
    Ok(URL_SAFE_NO_PAD.encode(randomness::bytes::<SECRET_BYTES>()?))
}

/// Returns the digest of a secret. The server keeps only that of an id.
pub(super) fn key_of(secret: &str) -> Key {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    key
}

/// Compares secrets by their digests, so that the time tells nothing about them.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    !one.is_empty() && key_of(one) == key_of(other)
}
