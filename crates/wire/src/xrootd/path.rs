//! Paths as clients send them: after one slash or two, with `?` and fields behind.

use std::borrow::Cow;

use exacat_model::Lfn;
use exacat_model::{Error, Result};

use super::limits::{PATH_BYTES_MAX, VALUES_MAX};

/// A path, and the fields after its `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPath<'a> {
    /// The path.
    pub path: &'a str,
    /// Fields after the `?`.
    pub fields: Fields<'a>,
}

/// Fields `name=value`, joined by `&`, as the client sent them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a>(pub &'a str);

impl<'a> RawPath<'a> {
    /// Parses a path. Drops one NUL at its end, which C programs send.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        if bytes.len() > PATH_BYTES_MAX {
            return Err(Error::limit(
                "the length of a path and its fields in bytes",
                bytes.len(),
                PATH_BYTES_MAX,
            ));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::invalid("a path is UTF-8"))?;
        let (path, fields) = text.split_once('?').unwrap_or((text, ""));
        Ok(RawPath { path, fields: Fields(fields) })
    }

    /// Returns the path in the catalogue.
    pub fn lfn(&self) -> Result<Lfn> {
        Lfn::parse(self.path)
    }
}

impl<'a> Fields<'a> {
    /// Returns the value of a field as sent; the first of several.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    }

    /// Iterates over the values of a field. A redirected client that comes back joins its old
    /// values and those of the redirection by commas.
    pub fn values(&self, name: &str) -> impl Iterator<Item = Cow<'a, str>> {
        self.get(name).into_iter().flat_map(|value| value.split(',')).take(VALUES_MAX).filter_map(unescaped)
    }

    /// Iterates over the tokens after `authz=Bearer%20`, which clients send if they cannot log in
    /// with them.
    pub fn bearers(&self) -> impl Iterator<Item = String> {
        let token = |text: Cow<'a, str>| text.strip_prefix("Bearer ").unwrap_or(&text).to_owned();
        self.values("authz").map(token)
    }

    /// Iterates over the hosts that failed for the client.
    pub fn tried(&self) -> impl Iterator<Item = &'a str> {
        self.get("tried").unwrap_or_default().split(',').filter(|host| !host.is_empty()).take(VALUES_MAX)
    }
}

/// Says whether a byte is unescaped in the value of a field.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~:".contains(&byte)
}

/// Escapes a text as the value of a field.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match is_plain(byte) {
            true => out.push(char::from(byte)),
            false => {
                out.push('%');
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    out
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Unescapes a value; none if it is malformed.
pub fn unescaped(value: &str) -> Option<Cow<'_, str>> {
    if !value.contains('%') {
        return Some(Cow::Borrowed(value));
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = behind;
            continue;
        }
        let [high, low, behind @ ..] = behind else { return None };
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(high)? << 4 | digit(low)?);
        rest = behind;
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}
