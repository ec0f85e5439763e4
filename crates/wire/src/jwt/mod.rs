//! Bearer tokens of other issuers: signed JWTs in the WLCG, SciTokens and OpenID Connect profiles.
//! The caller supplies the time, fetches the documents and configures the issuers; a token never
//! chooses an issuer, a key's address or an algorithm.
//!
//! 1. [`discovery::discovery_urls`] and [`discovery::jwks_uri`] lead to an issuer's public keys.
//! 2. [`KeySet::parse`] reads the keys.
//! 3. [`peek_issuer`] chooses among the configured issuers, and [`verify`] decides.

mod algorithm;
mod claims;
pub mod discovery;
mod json;
mod keys;
pub mod limits;
mod refusal;
mod scopes;
mod token;

pub use algorithm::Algorithm;
pub use claims::{Issuer, Verified, verify};
pub use keys::KeySet;
pub use refusal::Refusal;
pub use scopes::{Activity, Grant, Profile};
pub use token::{Unverified, peek_issuer};
