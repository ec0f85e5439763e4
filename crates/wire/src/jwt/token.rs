//! Compact form of a signed token (RFC 7515): header, claims and signature.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::json;
use super::limits::{ISSUER_BYTES_MAX, KEY_ID_BYTES_MAX, TOKEN_BYTES_MAX};
use super::refusal::Refusal;

/// Parts of a token that nobody checked yet. They serve only to choose a configured issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unverified {
    /// URL of the issuer, as the token names it.
    pub issuer: String,
    /// Name of the key, as the token names it.
    pub kid: Option<String>,
    /// Algorithm, as the token names it.
    pub algorithm: Algorithm,
}

/// Reads the issuer that a token names. Checks the form of the token, and not its signature.
pub fn peek_issuer(text: &str) -> Result<Unverified, Refusal> {
    let token = Token::parse(text)?;
    Ok(Unverified { issuer: token.issuer()?.to_owned(), algorithm: token.algorithm, kid: token.kid })
}

/// A decoded token. Its signature is not checked.
pub(super) struct Token<'a> {
    pub algorithm: Algorithm,
    pub kid: Option<String>,
    pub claims: Map<String, Value>,
    /// Text that the signature covers.
    pub signed: &'a str,
    pub signature: Vec<u8>,
}

impl<'a> Token<'a> {
    /// Splits and decodes a token.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Refusal> {
        if text.len() > TOKEN_BYTES_MAX {
            let what = "the length of a token in bytes";
            return Err(Refusal::Limit { what, got: text.len(), max: TOKEN_BYTES_MAX });
        }
        let parts = text.rsplit_once('.').and_then(|(signed, signature)| {
            let (header, claims) = signed.split_once('.')?;
            Some((signed, header, claims, signature))
        });
        let Some((signed, header, claims, signature)) = parts else {
            return Err(Refusal::Malformed("it has not three parts that points separate"));
        };
        let decoded = |part: &str| {
            // The decoder also refuses padding, and bits behind the last byte: one token has one text.
            BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| Refusal::Malformed("a part is not base64url"))
        };
        let (header, claims, signature) = (decoded(header)?, decoded(claims)?, decoded(signature)?);
        let (algorithm, kid) = read_header(&header)?;
        let Some(claims) = json::object(&claims) else {
            return Err(Refusal::Malformed("its claims are no JSON object, or repeat a name"));
        };
        Ok(Token { algorithm, kid, claims, signed, signature })
    }

    /// Returns the issuer's URL.
    pub(crate) fn issuer(&self) -> Result<&str, Refusal> {
        match self.claims.get("iss").and_then(Value::as_str) {
            None | Some("") => Err(Refusal::Malformed("it has no text 'iss'")),
            Some(issuer) if issuer.len() > ISSUER_BYTES_MAX => {
                let what = "the length of a token's issuer in bytes";
                Err(Refusal::Limit { what, got: issuer.len(), max: ISSUER_BYTES_MAX })
            }
            Some(issuer) => Ok(issuer),
        }
    }
}

/// Reads algorithm and key name. Ignores keys and addresses of keys in the header, because only the
/// issuer's own list counts.
fn read_header(header: &[u8]) -> Result<(Algorithm, Option<String>), Refusal> {
    let Some(header) = json::object(header) else {
        return Err(Refusal::Malformed("its header is no JSON object, or repeats a name"));
    };
    if header.contains_key("crit") || header.contains_key("b64") {
        return Err(Refusal::Malformed("its header has 'crit' or 'b64', and no extension is supported"));
    }
    let Some(algorithm) = header.get("alg").and_then(Value::as_str) else {
        return Err(Refusal::Malformed("its header has no text 'alg'"));
    };
    let algorithm = Algorithm::from_name(algorithm)?;
    // The type keeps out signed texts of another purpose, such as logout tokens.
    let is_token = |kind: &str| kind.eq_ignore_ascii_case("JWT") || kind.eq_ignore_ascii_case("at+jwt");
    if !header.get("typ").is_none_or(|kind| kind.as_str().is_some_and(is_token)) {
        return Err(Refusal::Malformed("its header's 'typ' is neither JWT nor at+jwt"));
    }
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) if kid.len() > KEY_ID_BYTES_MAX => {
            let what = "the length of a token's key name in bytes";
            return Err(Refusal::Limit { what, got: kid.len(), max: KEY_ID_BYTES_MAX });
        }
        Some(Value::String(kid)) => Some(kid.clone()),
        Some(_) => return Err(Refusal::Malformed("its header's 'kid' is no text")),
    };
    Ok((algorithm, kid))
}
