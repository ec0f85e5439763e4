//! The limits of tokens and of the documents about them.

/// Bytes of a token. Front ends limit all headers of a request to 8 or 16 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Bytes of a document with an issuer's keys (JWKS).
pub const JWKS_BYTES_MAX: usize = 64 << 10;
/// Keys in a JWKS, skipped ones included.
pub const JWKS_KEYS_MAX: usize = 32;
/// Bytes of a key's name (`kid`).
pub const KEY_ID_BYTES_MAX: usize = 256;
/// Bits of the shortest RSA modulus that is secure enough.
pub const RSA_BITS_MIN: usize = 2048;
/// Bits of the longest RSA modulus; longer ones cost too much time.
pub const RSA_BITS_MAX: usize = 8192;
/// Largest RSA exponent that the cryptographic library takes.
pub const RSA_EXPONENT_MAX: u64 = (1 << 33) - 1;
/// Scopes in a token, of all kinds.
pub const SCOPES_MAX: usize = 64;
/// Bytes of a subject (`sub`), as OpenID Connect limits it.
pub const SUBJECT_BYTES_MAX: usize = 255;
/// Groups in a token.
pub const GROUPS_MAX: usize = 256;
/// Bytes of a group's name in a token.
pub const GROUP_BYTES_MAX: usize = 255;
/// Bytes of an issuer's URL. With a subject it fits into an outside name of a user.
pub const ISSUER_BYTES_MAX: usize = 512;
/// Bytes of the URL of a JWKS.
pub const URL_BYTES_MAX: usize = 2048;
/// Bytes of an issuer's description of itself (openid-configuration).
pub const DISCOVERY_BYTES_MAX: usize = 64 << 10;
