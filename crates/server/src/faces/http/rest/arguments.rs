//! Arguments of one request: the variable parts of its path, its query, and its body.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use exacat_model::{Cursor, Error, Lfn, Result};
use exacat_wire::json::requests::Parse;
use ring::digest::{SHA256, digest};
use serde::de::DeserializeOwned;

use super::super::call::decoded;

/// Bytes in the text of a cursor that tell whether it is one.
const CHECK_BYTES: usize = 4;
/// Most parameters in a query.
const PARAMETERS_MAX: usize = 64;

/// The arguments.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// Name of the endpoint, which cursors are bound to.
    endpoint: &'static str,
    /// The rest of the path, an LFN.
    lfn: Option<Lfn>,
    /// The one other variable part of the path.
    name: Option<String>,
    query: Vec<(String, String)>,
    /// The body; empty if there is none.
    pub body: Bytes,
}

impl Arguments {
    /// Reads the query; the parameters must be among `known`.
    pub(crate) fn new(
        endpoint: &'static str,
        lfn: Option<Lfn>,
        name: Option<String>,
        query: &str,
        known: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut all: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decoded(key, true)?, decoded(value, true)?);
            if !known(&key) {
                return Err(Error::invalid(format!("there is no parameter {key:.60?} here")));
            }
            if all.len() >= PARAMETERS_MAX {
                return Err(Error::limit("the number of parameters", all.len() + 1, PARAMETERS_MAX));
            }
            all.push((key, value));
        }
        Ok(Arguments { endpoint, lfn, name, query: all, body: Bytes::new() })
    }

    /// Returns the LFN in the path.
    pub(crate) fn lfn(&self) -> Result<Lfn> {
        self.lfn.clone().ok_or_else(|| Error::invalid("the path names no LFN"))
    }

    /// Returns the other variable part of the path.
    pub(crate) fn text(&self) -> Result<&str> {
        self.name.as_deref().ok_or_else(|| Error::invalid("the path names nothing"))
    }

    /// Returns the other variable part of the path, parsed.
    pub(crate) fn name<T: Parse>(&self) -> Result<T> {
        T::parse_text(self.text()?)
    }

    /// Returns a parameter as it stands.
    pub(crate) fn given(&self, name: &str) -> Result<Option<&str>> {
        let mut values = self.query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Error::invalid(format!("the parameter {name} is there twice"))),
            (value, None) => Ok(value),
        }
    }

    /// Returns all values of a parameter.
    pub(crate) fn each<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns a parameter that the model parses.
    pub(crate) fn parsed<T: Parse>(&self, name: &str) -> Result<Option<T>> {
        self.given(name)?.map(T::parse_text).transpose()
    }

    /// Returns a parameter that is a number or the like.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let bad = |text: &str| Error::invalid(format!("the parameter {name} cannot be {text:.60?}"));
        self.given(name)?.map(|text| text.parse().map_err(|_| bad(text))).transpose()
    }

    /// Returns a parameter that is true or false; false if it is left out.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        Ok(self.number(name)?.unwrap_or(false))
    }

    /// Returns the cursor of a page. Only a text that [`cursor_text`] made is one.
    pub(crate) fn cursor(&self) -> Result<Cursor> {
        let Some(text) = self.given("cursor")? else { return Ok(Cursor::default()) };
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let cursor = bytes.and_then(|bytes| {
            let (check, cursor) = bytes.split_first_chunk::<CHECK_BYTES>()?;
            (*check == check_of(self.endpoint, cursor)).then(|| Cursor(cursor.to_vec()))
        });
        cursor.ok_or_else(|| Error::not_found("no page has this cursor: take the next of a page as it is"))
    }

    /// Reads the body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        json(&self.body)
    }

    /// Reads the body as JSON; an empty one has the defaults.
    pub(crate) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T> {
        if self.body.is_empty() { Ok(T::default()) } else { json(&self.body) }
    }
}

/// Returns the text of a cursor of an endpoint.
pub(super) fn cursor_text(endpoint: &str, cursor: &Cursor) -> String {
    URL_SAFE_NO_PAD.encode([check_of(endpoint, &cursor.0).as_slice(), &cursor.0].concat())
}

/// Returns the check of a cursor: it finds mistakes, and is no secret.
fn check_of(endpoint: &str, cursor: &[u8]) -> [u8; CHECK_BYTES] {
    let whole = digest(&SHA256, &[endpoint.as_bytes(), b"\0", cursor].concat());
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&whole.as_ref()[..CHECK_BYTES]);
    check
}

/// Reads JSON.
pub(super) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid(format!("the body is not as expected: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_of_another_endpoint_or_changed_is_refused() {
        let text = cursor_text("a", &Cursor(vec![1, 2, 3]));
        let given = |endpoint, text: &str| {
            Arguments::new(endpoint, None, None, &format!("cursor={text}"), |_| true).unwrap().cursor()
        };
        assert_eq!(given("a", &text).unwrap().0, [1, 2, 3]);
        let changed = format!("{}A", &text[..text.len() - 1]);
        for (endpoint, text) in [("b", text.as_str()), ("a", &changed), ("a", ""), ("a", "AAAA"), ("a", "!")]
        {
            assert_eq!(given(endpoint, text).unwrap_err().kind, exacat_model::ErrorKind::NotFound, "{text}");
        }
    }
}
