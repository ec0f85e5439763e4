//! Sign-in at an issuer: sends the browser there, and takes it back.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::native::Secret;
use hyper::Response;
use hyper::header::HOST;
use hyper::http::request::Parts;

use super::super::Conversation;
use super::super::answers::Body;
use super::super::call::prove;
use super::cookies::Cookie;
use super::frame::redirect;
use super::secrets::{is_same, secret};
use super::sign_in::{add_cookie, failed, open, place};
use super::visit::{Fields, is_safe};
use crate::issuers::{CodeFlow, Issuers};

/// Path that the browser comes back to.
pub(super) const BACK: &str = "/sign-in/back";
/// Seconds in which a person must sign in at the issuer.
const FLOW_SECONDS: u64 = 600;

fn issuers(conversation: &Conversation) -> Result<&Arc<Issuers>> {
    conversation.face.service.issuers.get().ok_or_else(|| Error::not_found("no issuer is configured"))
}

/// Returns the URL of this server that the browser comes back to, under the name that it used.
fn back(conversation: &Conversation, head: &Parts) -> Result<String> {
    let named = head.uri.authority().map(|authority| authority.as_str());
    let host = named.or_else(|| head.headers.get(HOST)?.to_str().ok()).unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_plain) {
        return Err(Error::invalid("the request names no host"));
    }
    Ok(format!("{}://{host}{BACK}", if conversation.is_tls { "https" } else { "http" }))
}

/// Sends the browser to an issuer. Its secrets lie in a cookie meanwhile, so that the server keeps nothing
/// for people who never come back.
pub(super) async fn start(conversation: &Arc<Conversation>, head: &Parts) -> Result<Response<Body>> {
    if !is_safe(conversation) {
        return Err(Error::denied("nobody can sign in without encryption"));
    }
    let query = Fields::parse(head.uri.query().unwrap_or_default())?;
    let next = place(query.get("next"));
    let flow = CodeFlow {
        issuer: query.get("issuer").unwrap_or_default().to_owned(),
        state: secret()?,
        verifier: secret()?,
        nonce: secret()?,
        back: back(conversation, head)?,
    };
    let now = conversation.face.service.catalogue.now();
    let url = match issuers(conversation)?.begin(&flow, now).await {
        Ok(url) => url,
        Err(error) => return failed(conversation, head, next, error),
    };
    let mut response = redirect(&url);
    let value = cookie_value(&flow, next);
    let cookie = Cookie::Flow.set(&value, conversation.is_tls);
    add_cookie(&mut response, &format!("{cookie}; Max-Age={FLOW_SECONDS}"));
    Ok(response)
}

fn cookie_value(flow: &CodeFlow, next: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    [&flow.state, &flow.verifier, &flow.nonce, &part(&flow.issuer), &part(next)].map(String::as_str).join(".")
}

/// Reads the cookie of a sign-in: its secrets, and the page that the person wanted.
fn flow_in(value: &str, back: String) -> Option<(CodeFlow, String)> {
    let text = |part: &str| String::from_utf8(URL_SAFE_NO_PAD.decode(part).ok()?).ok();
    let parts: Vec<&str> = value.split('.').collect();
    let [state, verifier, nonce, issuer, next] = parts[..] else { return None };
    let [state, verifier, nonce] = [state, verifier, nonce].map(str::to_owned);
    Some((CodeFlow { issuer: text(issuer)?, state, verifier, nonce, back }, text(next)?))
}

/// Takes a browser that comes back with a code, and signs its person in.
pub(super) async fn finish(conversation: &Arc<Conversation>, head: &Parts) -> Result<Response<Body>> {
    let query = Fields::parse(head.uri.query().unwrap_or_default())?;
    let is_tls = conversation.is_tls;
    let kept = Cookie::Flow.read(&head.headers, is_tls).filter(|_| is_safe(conversation));
    let kept = kept.and_then(|value| flow_in(value, back(conversation, head).ok()?));
    let late = || Error::denied("the sign-in took too long, or did not begin in this browser: try once more");
    let Some((flow, next)) = kept else { return failed(conversation, head, "/", late()) };
    let next = place(Some(&next));
    let answered = async {
        let issuer = query.get("iss");
        if !is_same(&flow.state, query.get("state").unwrap_or_default())
            || issuer.is_some_and(|issuer| issuer != flow.issuer)
        {
            return Err(late());
        }
        let code = query.get("code").ok_or_else(|| {
            let why = query.get("error").unwrap_or("no code");
            Error::new(ErrorKind::Unauthenticated, format!("the issuer refused the sign-in: {why:.60}"))
        })?;
        let now = conversation.face.service.catalogue.now();
        let token = issuers(conversation)?.redeem(&flow, code, now).await?;
        prove(conversation, Some(Secret::new(&token))).await
    };
    let opened = answered.await.and_then(|client| open(conversation, head, (client, false), next));
    let mut response = match opened {
        Ok(response) => response,
        Err(error) => failed(conversation, head, next, error)?,
    };
    // A code and its secrets serve once.
    add_cookie(&mut response, &Cookie::Flow.clear(is_tls));
    Ok(response)
}
