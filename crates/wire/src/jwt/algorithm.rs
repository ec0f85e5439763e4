//! Signature algorithms, and the types of their keys.

use super::refusal::Refusal;

/// Signature algorithm that this service accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA (PKCS#1 v1.5) with SHA-256.
    Rs256,
    /// RSA (PKCS#1 v1.5) with SHA-384.
    Rs384,
    /// RSA (PKCS#1 v1.5) with SHA-512.
    Rs512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

/// Type of a key, which restricts its algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Algorithm {
    /// Returns the algorithm with this name in a header or a JWKS.
    pub(super) fn from_name(name: &str) -> Result<Self, Refusal> {
        match name {
            "RS256" => Ok(Algorithm::Rs256),
            "RS384" => Ok(Algorithm::Rs384),
            "RS512" => Ok(Algorithm::Rs512),
            "ES256" => Ok(Algorithm::Es256),
            "ES384" => Ok(Algorithm::Es384),
            "EdDSA" => Ok(Algorithm::EdDsa),
            _ if name.eq_ignore_ascii_case("none") => {
                Err(Refusal::UnsupportedAlgorithm("'none' leaves a token unsigned"))
            }
            _ if name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("HS")) => {
                Err(Refusal::UnsupportedAlgorithm("'HS' algorithms sign with a shared secret"))
            }
            _ => Err(Refusal::UnsupportedAlgorithm("the name is not on the list")),
        }
    }

    /// Returns the type of its keys.
    pub(super) fn family(self) -> Family {
        match self {
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 => Family::Rsa,
            Algorithm::Es256 => Family::P256,
            Algorithm::Es384 => Family::P384,
            Algorithm::EdDsa => Family::Ed25519,
        }
    }
}
