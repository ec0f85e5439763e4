//! Sign-in of people at an issuer: the code flow of OpenID Connect with PKCE (RFC 7636). It ends with an ID
//! token, which is judged as every other token of the issuer.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use exacat_wire::jwt::discovery::Endpoints;
use exacat_wire::percent;
use hyper::header::HeaderValue;
use ring::digest::{SHA256, digest};
use serde_json::Value;

use super::configured::IssuerClient;
use super::{Issuer, Issuers, fetch, refused};

/// One sign-in: secrets that the server makes, and that the browser keeps meanwhile.
pub(crate) struct CodeFlow {
    /// URL of the issuer.
    pub issuer: String,
    /// Ties the answer to the browser.
    pub state: String,
    /// Proves that the server which redeems the code is the one that asked for it.
    pub verifier: String,
    /// Ties the ID token to this sign-in.
    pub nonce: String,
    /// URL of this server that the browser comes back to.
    pub back: String,
}

/// Appends a parameter.
fn push(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() && !out.ends_with(['?', '&']) {
        out.push('&');
    }
    out.push_str(name);
    out.push('=');
    out.push_str(&encoded(value));
}

/// Returns a text as a form has it.
fn encoded(text: &str) -> String {
    let mut encoded = Vec::with_capacity(text.len());
    percent::push_encoded(&mut encoded, text);
    String::from_utf8_lossy(&encoded).into_owned()
}

impl Issuers {
    /// Returns the URLs of the issuers where people sign in.
    pub(crate) fn sign_in_urls(&self) -> Result<Vec<String>> {
        let all = self.configured()?;
        let with_client = all.iter().filter(|issuer| issuer.settings.client.is_some());
        Ok(with_client.map(|issuer| issuer.settings.url.clone()).collect())
    }

    /// Returns an issuer with its client, and the places where people sign in.
    async fn place(&self, url: &str, now: TimeMs) -> Result<(Arc<Issuer>, IssuerClient, Endpoints)> {
        let all = self.configured()?;
        let issuer = all.into_iter().find(|issuer| issuer.settings.url == url);
        let found = issuer.and_then(|issuer| {
            let client = issuer.settings.client.clone()?;
            Some((issuer, client))
        });
        let (issuer, client) = found.ok_or_else(|| refused("nobody signs in here at this issuer"))?;
        issuer.keys(now).await?;
        let endpoints = issuer.keys.lock().endpoints.clone();
        let endpoints = endpoints.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "the issuer does not say where people sign in")
        })?;
        Ok((issuer, client, endpoints))
    }

    /// Returns the URL where the browser goes to.
    pub(crate) async fn begin(&self, flow: &CodeFlow, now: TimeMs) -> Result<String> {
        let (_, client, endpoints) = self.place(&flow.issuer, now).await?;
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, flow.verifier.as_bytes()));
        let mut url = endpoints.authorization;
        url.push(if url.contains('?') { '&' } else { '?' });
        for (name, value) in [
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", &flow.back),
            ("scope", "openid"),
            ("state", &flow.state),
            ("nonce", &flow.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ] {
            push(&mut url, name, value);
        }
        Ok(url)
    }

    /// Exchanges the code that the browser came back with for an ID token.
    pub(crate) async fn redeem(&self, flow: &CodeFlow, code: &str, now: TimeMs) -> Result<String> {
        let (issuer, client, endpoints) = self.place(&flow.issuer, now).await?;
        let mut form = String::new();
        for (name, value) in [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &flow.back),
            ("client_id", &client.id),
            ("code_verifier", &flow.verifier),
        ] {
            push(&mut form, name, value);
        }
        let authorization = match &client.secret {
            Some(secret) => {
                let pair = STANDARD.encode(format!("{}:{}", encoded(&client.id), encoded(secret)));
                let mut value = HeaderValue::from_str(&format!("Basic {pair}"))
                    .map_err(|_| Error::invalid("the client's secret cannot be sent"))?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let answer =
            fetch::exchange(&endpoints.token, issuer.settings.ca.as_deref(), form, authorization).await;
        let answer = answer.map_err(|error| {
            tracing::warn!(%error, issuer = flow.issuer, "a sign-in was not completed");
            refused("the issuer did not complete the sign-in: the server's log has the reason")
        })?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|_| refused("the issuer's answer to the sign-in is no JSON"))?;
        let token = answer["id_token"].as_str().ok_or_else(|| refused("the issuer gave no ID token"))?;
        // The signature is checked when the token is judged.
        if nonce(token).as_deref() != Some(&flow.nonce) {
            return Err(refused("the ID token is of another sign-in"));
        }
        Ok(token.to_owned())
    }
}

/// Returns the nonce in a token.
fn nonce(token: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Some(claims["nonce"].as_str()?.to_owned())
}
