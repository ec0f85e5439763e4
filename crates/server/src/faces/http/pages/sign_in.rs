//! Signing in and out: by a token in a form, or by the certificate of the connection.

use std::sync::Arc;

use askama::Template;
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::native::Secret;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::super::Conversation;
use super::super::answers::Body;
use super::super::call::{Client, prove};
use super::cookies::Cookie;
use super::frame::{Frame, Link, page, redirect};
use super::secrets::{is_same, key_of, secret};
use super::text::{visible, with};
use super::visit::{Fields, Visit, form, is_safe};
use crate::faces::errors::http_status;
use crate::instruments::count;

/// Path of the page.
pub(super) const PATH: &str = "/sign-in";
/// Path that leads to an issuer.
pub(super) const ISSUER_PATH: &str = "/sign-in/issuer";
/// Most bytes of the place to come back to.
const NEXT_BYTES_MAX: usize = 16 << 10;

/// The page.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    frame: Frame,
    problem: String,
    is_safe: bool,
    form: String,
    next: String,
    has_certificate: bool,
    issuers: Vec<Link>,
}

/// Returns the place to come back to: a path of this server, or `/`.
pub(super) fn place(text: Option<&str>) -> &str {
    let is_ours = |text: &&str| {
        // Browsers take a backslash for a slash, and leave out tabs and line ends.
        text.starts_with('/')
            && !text.starts_with("//")
            && text.len() <= NEXT_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && !text.starts_with(PATH)
    };
    text.filter(is_ours).unwrap_or("/")
}

/// Makes the page. A secret in a cookie and in the form ties the form to this browser.
fn show(
    conversation: &Conversation,
    head: &Parts,
    next: &str,
    problem: Option<Error>,
) -> Result<Response<Body>> {
    let is_tls = conversation.is_tls;
    let known = Cookie::Form.read(&head.headers, is_tls).filter(|known| known.len() >= 32);
    let form = known.map_or_else(secret, |known| Ok(known.to_owned()))?;
    let status = problem.as_ref().map_or(200, |problem| http_status(problem.kind));
    let shown = SignIn {
        frame: Frame { title: "Sign in".to_owned(), ..Frame::default() },
        problem: problem.map_or_else(String::new, |problem| visible(&problem.message)),
        is_safe: is_safe(conversation),
        form: form.clone(),
        next: next.to_owned(),
        has_certificate: conversation.certificate.is_some(),
        issuers: issuers(conversation, next)?,
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = page(status, &shown, None)?;
    add_cookie(&mut response, &Cookie::Form.set(&form, is_tls));
    Ok(response)
}

/// Returns links to the issuers where people sign in.
fn issuers(conversation: &Conversation, next: &str) -> Result<Vec<Link>> {
    let Some(issuers) = conversation.face.service.issuers.get() else { return Ok(Vec::new()) };
    let link = |url: String| {
        let href = with(with(ISSUER_PATH.to_owned(), "issuer", &url), "next", next);
        Link::new(url, href)
    };
    Ok(issuers.sign_in_urls()?.into_iter().map(link).collect())
}

pub(super) fn add_cookie(response: &mut Response<Body>, cookie: &str) {
    if let Ok(mut value) = HeaderValue::from_str(cookie) {
        value.set_sensitive(true);
        response.headers_mut().append(SET_COOKIE, value);
    }
}

/// Answers a request for the page, or the form of it.
pub(super) async fn sign_in(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Result<Response<Body>> {
    if head.method != Method::POST {
        let query = Fields::parse(head.uri.query().unwrap_or_default())?;
        return show(conversation, head, place(query.get("next")), None);
    }
    let fields = form(conversation, head, body).await?;
    let next = place(fields.get("next"));
    let known = Cookie::Form.read(&head.headers, conversation.is_tls).unwrap_or_default();
    if !is_same(known, fields.get("form").unwrap_or_default()) {
        let error = Error::denied("the form is too old, or this browser keeps no cookies: try once more");
        return show(conversation, head, next, Some(error));
    }
    if !is_safe(conversation) {
        return show(conversation, head, next, Some(Error::denied("nobody can sign in without encryption")));
    }
    let needs_certificate = fields.get("certificate").is_some();
    let proved = match needs_certificate {
        true => certificate(conversation).await,
        false => match fields.get("token") {
            Some(token) => prove(conversation, Some(Secret::new(token.trim()))).await,
            None => Err(Error::new(ErrorKind::Unauthenticated, "paste a token")),
        },
    };
    match proved.and_then(|client| open(conversation, head, (client, needs_certificate), next)) {
        Ok(response) => Ok(response),
        Err(error) => failed(conversation, head, next, error),
    }
}

/// Shows why nobody was signed in.
pub(super) fn failed(
    conversation: &Conversation,
    head: &Parts,
    next: &str,
    error: Error,
) -> Result<Response<Body>> {
    if error.kind == ErrorKind::Unauthenticated {
        count(&conversation.face.service.instruments.counts.authentications_refused);
    }
    show(conversation, head, next, Some(error))
}

/// Opens a session, and leads to the page that the person wanted.
pub(super) fn open(
    conversation: &Conversation,
    head: &Parts,
    (client, needs_certificate): (Client, bool),
    next: &str,
) -> Result<Response<Body>> {
    let (face, is_tls) = (&conversation.face, conversation.is_tls);
    let name = client.caller().name().map_or_else(String::new, ToString::to_string);
    let id = face.sessions.open(client, needs_certificate, is_tls, face.service.catalogue.now())?;
    tracing::info!(user = name, peer = %conversation.peer, "signed in to the pages");
    // The session before, if there is one, ends: nothing that a browser sent becomes the new id.
    if let Some(old) = Cookie::Session.read(&head.headers, is_tls) {
        face.sessions.end(&key_of(old));
    }
    let mut response = redirect(next);
    add_cookie(&mut response, &Cookie::Session.set(&id, is_tls));
    add_cookie(&mut response, &Cookie::Form.clear(is_tls));
    Ok(response)
}

async fn certificate(conversation: &Conversation) -> Result<Client> {
    let missing = || Error::new(ErrorKind::Unauthenticated, "your browser showed no certificate");
    let certificate = conversation.certificate.as_ref().ok_or_else(missing)?;
    let service = &conversation.face.service;
    let checked = service.checking();
    let caller = certificate.caller(&service.catalogue).await?;
    Ok(Client::new(service.requester(caller), checked, None))
}

/// Ends the session.
pub(super) async fn sign_out(visit: Visit<'_>, body: &mut Option<Incoming>) -> Result<Response<Body>> {
    visit.form(body).await?;
    if let Some(key) = &visit.key {
        visit.conversation.face.sessions.end(key);
    }
    let mut response = redirect(PATH);
    add_cookie(&mut response, &Cookie::Session.clear(visit.conversation.is_tls));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: the place to come back to is on this server, whatever a link says.
    #[test]
    fn place_elsewhere_is_the_start() {
        for good in ["/", "/browse/a%20b?cursor=x&y=1", "/a//b"] {
            assert_eq!(place(Some(good)), good);
        }
        let long = format!("/{}", "a".repeat(NEXT_BYTES_MAX));
        for bad in [
            "",
            "x",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/\t/evil.example",
            "/a\r\nX: y",
            "javascript:alert(1)",
            "/ż",
            "/sign-in?next=/",
            &long,
        ] {
            assert_eq!(place(Some(bad)), "/", "{bad}");
        }
        assert_eq!(place(Some(&long[..NEXT_BYTES_MAX])), &long[..NEXT_BYTES_MAX]);
        assert_eq!(place(None), "/");
    }
}
