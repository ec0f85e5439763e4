//! Claims of a token (RFC 7519), checked against the configuration of its issuer.

use exacat_model::Lfn;
use serde_json::{Map, Value};

use super::keys::KeySet;
use super::limits::{GROUP_BYTES_MAX, GROUPS_MAX, SUBJECT_BYTES_MAX};
use super::refusal::Refusal;
use super::scopes::{Grant, Profile, grants};
use super::token::Token;

/// Configuration of one issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// Its URL, exactly as in its tokens.
    pub url: String,
    /// Names of this service in tokens. Wildcards such as `https://wlcg.cern.ch/jwt/v1/any` and
    /// `ANY` count only if they are listed here.
    pub audiences: Vec<String>,
    /// Directory to which paths in scopes are relative.
    pub base_path: Lfn,
    /// Rules that its tokens follow.
    pub profile: Profile,
    /// Permitted difference of the clocks of issuer and server.
    pub skew_seconds: u64,
}

/// Content of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The user, unique for this issuer: 1 to 255 printable ASCII characters.
    pub subject: String,
    /// Time of expiry, in seconds since 1970. It may have passed within the permitted skew.
    pub expires: u64,
    /// Groups as asserted: `wlcg.groups` of WLCG, `groups` of OpenID Connect. A group implies none
    /// above it. If there are grants, groups give no rights to storage.
    pub groups: Vec<String>,
    /// Bounds on storage: an empty list allows nothing. None: the token has no bounds, and the
    /// user's own rights apply.
    pub grants: Option<Vec<Grant>>,
}

/// Verifies a token of a configured issuer at a time in seconds since 1970.
pub fn verify(text: &str, issuer: &Issuer, keys: &KeySet, now_seconds: u64) -> Result<Verified, Refusal> {
    let token = Token::parse(text)?;
    // Before the key: a token of another issuer is no reason to load this issuer's keys again.
    if token.issuer()? != issuer.url {
        return Err(Refusal::WrongIssuer { expected: issuer.url.clone() });
    }
    keys.check(&token)?;
    let claims = &token.claims;
    check_version(claims, issuer.profile)?;
    let expires = check_times(claims, issuer, now_seconds)?;
    check_audience(claims, issuer)?;
    Ok(Verified {
        subject: subject(claims)?,
        expires,
        groups: groups(claims, issuer.profile)?,
        grants: grants(claims.get("scope"), issuer.profile, &issuer.base_path)?,
    })
}

fn check_version(claims: &Map<String, Value>, profile: Profile) -> Result<(), Refusal> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    match profile {
        Profile::Wlcg => {
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let minor = text("wlcg.ver").and_then(|version| version.strip_prefix("1."));
            match minor.is_some_and(is_number) {
                true => Ok(()),
                false => Err(Refusal::Version { claim: "wlcg.ver", expected: "1.0" }),
            }
        }
        Profile::SciTokens => match text("ver") {
            // Issuers use both spellings of each.
            Some("scitoken:2.0" | "scitokens:2.0" | "scitoken:1.0" | "scitokens:1.0") => Ok(()),
            _ => Err(Refusal::Version { claim: "ver", expected: "scitoken:2.0" }),
        },
        Profile::Oidc => Ok(()),
    }
}

/// Checks the times of a token; returns the time of expiry.
fn check_times(claims: &Map<String, Value>, issuer: &Issuer, now: u64) -> Result<u64, Refusal> {
    let Some(expires) = time(claims, "exp")? else {
        return Err(Refusal::Malformed("it has no 'exp'"));
    };
    if now >= expires.saturating_add(issuer.skew_seconds) {
        return Err(Refusal::Expired { seconds: now.saturating_sub(expires) });
    }
    let issued = time(claims, "iat")?;
    if issued.is_none() && issuer.profile == Profile::Wlcg {
        return Err(Refusal::Malformed("it has no 'iat'"));
    }
    for start in [issued, time(claims, "nbf")?].into_iter().flatten() {
        if start > now.saturating_add(issuer.skew_seconds) {
            return Err(Refusal::NotYetValid { seconds: start.saturating_sub(now) });
        }
    }
    Ok(expires)
}

/// Returns a time in seconds. Some issuers write fractions, which are dropped.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let fraction = || value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as u64);
    match value.as_u64().or_else(fraction) {
        Some(seconds) => Ok(Some(seconds)),
        None => Err(Refusal::Malformed("one of 'exp', 'iat', 'nbf' is no time in seconds")),
    }
}

fn check_audience(claims: &Map<String, Value>, issuer: &Issuer) -> Result<(), Refusal> {
    let is_ours = |named: &Value| {
        let named = named.as_str().ok_or(Refusal::Malformed("its 'aud' is no text and no list of texts"))?;
        Ok(issuer.audiences.iter().any(|ours| ours == named))
    };
    let found = match claims.get("aud") {
        None => false,
        Some(Value::Array(list)) => {
            // Checks the whole list, so that a malformed one is refused in any order.
            list.iter().map(is_ours).collect::<Result<Vec<_>, _>>()?.contains(&true)
        }
        Some(one) => is_ours(one)?,
    };
    match found {
        true => Ok(()),
        false => Err(Refusal::WrongAudience { expected: issuer.audiences.join(" or ") }),
    }
}

fn subject(claims: &Map<String, Value>) -> Result<String, Refusal> {
    match claims.get("sub").and_then(Value::as_str) {
        None | Some("") => Err(Refusal::Malformed("it has no text 'sub'")),
        Some(subject) if subject.len() > SUBJECT_BYTES_MAX => {
            let what = "the length of a token's subject in bytes";
            Err(Refusal::Limit { what, got: subject.len(), max: SUBJECT_BYTES_MAX })
        }
        Some(subject) if subject.bytes().all(|byte| matches!(byte, b' '..=b'~')) => Ok(subject.to_owned()),
        Some(_) => Err(Refusal::Malformed("its 'sub' has other characters than printable ASCII")),
    }
}

fn groups(claims: &Map<String, Value>, profile: Profile) -> Result<Vec<String>, Refusal> {
    let claim = match profile {
        Profile::Wlcg => "wlcg.groups",
        Profile::Oidc => "groups",
        Profile::SciTokens => return Ok(Vec::new()),
    };
    let list = match claims.get(claim) {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Refusal::Malformed("its groups are no list")),
    };
    if list.len() > GROUPS_MAX {
        let what = "the number of groups in a token";
        return Err(Refusal::Limit { what, got: list.len(), max: GROUPS_MAX });
    }
    let group = |group: &Value| {
        let is_name =
            |name: &&str| (1..=GROUP_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
        let name = group.as_str().filter(is_name);
        name.map(str::to_owned).ok_or(Refusal::Malformed("a group is no name of 1 to 255 bytes"))
    };
    list.iter().map(group).collect()
}
