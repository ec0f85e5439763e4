//! Reasons to refuse a token.

/// Reason to refuse a token. No message contains the token or a part of it, so it may be logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The text is no token, or lacks a part that every token has.
    #[error("malformed token: {0}; request a new token from its issuer")]
    Malformed(&'static str),
    /// A limit is exceeded.
    #[error("{what} is {got}, the limit is {max}; request a smaller token from its issuer")]
    Limit {
        /// The measure and its unit.
        what: &'static str,
        /// Value in the token.
        got: usize,
        /// Maximum value.
        max: usize,
    },
    /// The key set has no such key. The caller may load the issuer's keys again and retry once.
    #[error("the issuer publishes no key for this token; request a new token from its issuer")]
    UnknownKey,
    /// The signature was not made with the issuer's key.
    #[error("the signature of the token does not fit its issuer's key; request a new token")]
    BadSignature,
    /// The time of expiry passed.
    #[error("the token expired {seconds} s ago; request a new token from its issuer")]
    Expired {
        /// Seconds since its expiry.
        seconds: u64,
    },
    /// The token is valid or issued in the future.
    #[error("the token becomes valid in {seconds} s; wait, or correct the clock of issuer or server")]
    NotYetValid {
        /// Seconds until it is valid.
        seconds: u64,
    },
    /// The token is for another service.
    #[error("the token is for another service; request one with the audience {expected}")]
    WrongAudience {
        /// Configured audiences, joined by `or`.
        expected: String,
    },
    /// Another issuer made the token.
    #[error("the token names another issuer; request one from {expected}")]
    WrongIssuer {
        /// URL of the configured issuer.
        expected: String,
    },
    /// A scope is malformed, so none of them counts.
    #[error("bad scope in the token: {0}; request a token with other scopes")]
    BadScope(&'static str),
    /// The signature has an algorithm that is never accepted, or not with this key.
    #[error("refused signature algorithm: {0}; the issuer must sign with RS256, ES256 or EdDSA")]
    UnsupportedAlgorithm(&'static str),
    /// The token follows another version of its profile.
    #[error("the token's {claim} is missing or unsupported; the issuer must set {expected}")]
    Version {
        /// Claim with the version.
        claim: &'static str,
        /// Versions that are accepted.
        expected: &'static str,
    },
}
