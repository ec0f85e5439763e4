//! One request for a page: the session, the caller, the arguments.

use std::sync::Arc;

use exacat_model::answer::Stat;
use exacat_model::{Answer, Cursor, Error, ErrorKind, Lfn, Operation, Result};
use exacat_wire::json::requests::Parse;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;

use super::super::Conversation;
use super::super::call::{Call, Client, prove, whole};
use super::super::origins;
use super::super::query::{cursor_of, pairs};
use super::cookies::Cookie;
use super::frame::Frame;
use super::secrets::{Key, is_same};
use super::sessions::Session;
use crate::instruments::count;
use crate::peer::Peer;

/// Most bytes of a form.
pub(super) const FORM_BYTES_MAX: usize = 64 << 10;
/// Content type of forms.
const FORM: &str = "application/x-www-form-urlencoded";

/// The fields of a query or of a form.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads the fields of a text.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        pairs(text).map(Fields)
    }

    /// Returns a field; none if it is missing or blank, as browsers send fields that nobody filled in.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        value.filter(|value| !value.trim().is_empty())
    }

    /// Returns the values of a field that may be there several times, without blank ones.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str());
        values.filter(|value| !value.trim().is_empty())
    }

    /// Returns a field that the model parses.
    pub(crate) fn parsed<T: Parse>(&self, name: &str) -> Result<Option<T>> {
        self.get(name).map(T::parse_text).transpose()
    }

    /// Returns a field that must be there.
    pub(crate) fn required<T: Parse>(&self, name: &str) -> Result<T> {
        self.parsed(name)?.ok_or_else(|| Error::invalid(format!("the field {name} is missing")))
    }

    /// Returns the cursor of a page of a list.
    pub(crate) fn cursor(&self, list: (&str, &str)) -> Result<Cursor> {
        cursor_of(list.0, self.get(list.1))
    }
}

/// A request for a page.
pub(super) struct Visit<'a> {
    pub conversation: &'a Arc<Conversation>,
    pub head: &'a Parts,
    pub query: Fields,
    pub call: Call,
    /// Frame of its pages.
    pub frame: Frame,
    /// Key of the session; none without one.
    pub key: Option<Key>,
}

impl<'a> Visit<'a> {
    /// Finds the session of a request, and admits it. Without a session it is anonymous, if the server
    /// serves anonymous readers.
    pub(crate) async fn open(conversation: &'a Arc<Conversation>, head: &'a Parts) -> Result<Self> {
        let query = Fields::parse(head.uri.query().unwrap_or_default())?;
        let session = session(conversation, head).await?;
        let (key, client, csrf) = match session {
            Some((key, session)) => (Some(key), session.client, session.csrf),
            None => (None, prove(conversation, None).await?, String::new()),
        };
        let caller = client.caller();
        let frame = Frame {
            user: caller.name().map(ToString::to_string),
            csrf,
            can_read: true,
            is_operator: caller.is_operator(),
            here: here(head),
            ..Frame::default()
        };
        let call = Call::of(conversation, client, crate::admission::Share::Catalogue)?.traced(&head.headers);
        Ok(Visit { conversation, head, query, call, frame, key })
    }

    /// Reads a form of the session's own pages.
    pub(crate) async fn form(&self, body: &mut Option<Incoming>) -> Result<Fields> {
        let fields = form(self.conversation, self.head, body).await?;
        if !is_same(&self.frame.csrf, fields.get("csrf").unwrap_or_default()) {
            return Err(Error::denied("the form is not of your session: load the page again"));
        }
        Ok(fields)
    }

    /// Returns an entry.
    pub(crate) async fn stat(&mut self, lfn: &Lfn, follow: bool) -> Result<Stat> {
        match self.call.ask(Operation::Stat { lfns: vec![lfn.clone()], follow }).await? {
            Answer::Stats(mut found) => found.pop().unwrap_or_else(|| Err(unfitting())),
            _ => Err(unfitting()),
        }
    }
}

/// Returns the error of an answer that cannot be.
pub(super) fn unfitting() -> Error {
    Error::new(ErrorKind::Internal, "an answer that does not fit the request")
}

/// Returns the path and query of a request.
pub(super) fn here(head: &Parts) -> String {
    head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned()
}

/// True if a person may sign in over the connection: nobody else can read it.
pub(super) fn is_safe(conversation: &Conversation) -> bool {
    let is_here = match conversation.peer {
        Peer::Network(peer) => peer.ip().to_canonical().is_loopback(),
        Peer::Local { .. } => true,
    };
    conversation.is_tls || is_here
}

/// Returns the session of a request. Its caller is checked again when an account or a token has changed,
/// as for every other request; a session whose credentials ended is over.
async fn session(conversation: &Conversation, head: &Parts) -> Result<Option<(Key, Session)>> {
    let face = &conversation.face;
    let Some(id) = Cookie::Session.read(&head.headers, conversation.is_tls) else { return Ok(None) };
    let now = face.service.catalogue.now();
    let found = face.sessions.find(id, conversation.is_tls, now).filter(|_| is_safe(conversation));
    let Some((key, mut session)) = found else { return Ok(None) };
    let checked = match session.needs_certificate {
        true => of_certificate(conversation, &session).await,
        false => session.client.check_again(&face.service).await.map(|()| session.client),
    };
    match checked {
        Ok(client) => {
            face.sessions.renew(&key, &client);
            session.client = client;
        }
        Err(error) if error.kind == ErrorKind::Unauthenticated => {
            face.sessions.end(&key);
            count(&face.service.instruments.counts.revalidations_refused);
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    if let Some(slot) = &conversation.slot {
        slot.lock().known();
    }
    Ok(Some((key, session)))
}

/// Judges the certificate of the connection again. It must be of the session's user.
async fn of_certificate(conversation: &Conversation, session: &Session) -> Result<Client> {
    let other = || Error::new(ErrorKind::Unauthenticated, "the certificate of the session is missing");
    let certificate = conversation.certificate.as_ref().ok_or_else(other)?;
    let service = &conversation.face.service;
    let checked = service.checking();
    let caller = certificate.caller(&service.catalogue).await?;
    if caller.user() != session.client.caller().user() {
        return Err(other());
    }
    Ok(Client::new(service.requester(caller), checked, None))
}

/// Reads a form that a page of this server sent.
pub(super) async fn form(
    conversation: &Conversation,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Result<Fields> {
    if origins::judge(&conversation.face.origins, head)?.is_some() {
        return Err(Error::denied("a form of a page of another origin"));
    }
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM) {
        return Err(Error::invalid(format!("a form is sent as {FORM}")));
    }
    let body = body.take().ok_or_else(|| Error::invalid("the form was read before"))?;
    let (bytes, _room) = whole(&conversation.face.service, body, FORM_BYTES_MAX).await?;
    let text = std::str::from_utf8(&bytes).map_err(|_| Error::invalid("a form that is not UTF-8"))?;
    Fields::parse(text)
}
