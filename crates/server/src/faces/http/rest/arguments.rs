//! Arguments of one request: the variable parts of its path, its query, and its body.

use std::str::FromStr;

use bytes::Bytes;
use exacat_model::{Cursor, Error, Lfn, Result};
use exacat_wire::json::requests::Parse;
use serde::de::DeserializeOwned;

use super::super::query::{cursor_of, pairs};

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
        let query = pairs(query)?;
        if let Some((key, _)) = query.iter().find(|(key, _)| !known(key)) {
            return Err(Error::invalid(format!("there is no parameter {key:.60?} here")));
        }
        Ok(Arguments { endpoint, lfn, name, query, body: Bytes::new() })
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

    /// Returns the cursor of a page.
    pub(crate) fn cursor(&self) -> Result<Cursor> {
        cursor_of(self.endpoint, self.given("cursor")?)
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

/// Reads JSON.
pub(super) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid(format!("the body is not as expected: {error}")))
}
