//! Redirections: the place of a file, from the answer of a server.

use crate::xrootd::limits::PATH_BYTES_MAX;
use crate::xrootd::url::RootUrl;

/// Redirection of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect<'a> {
    /// The same path on another host.
    Host {
        /// The host, with the brackets of an address.
        host: &'a str,
        /// The port.
        port: u16,
        /// Fields for the path there.
        fields: &'a str,
    },
    /// Another URL.
    Url(RootUrl<'a>),
}

impl<'a> Redirect<'a> {
    /// Reads a redirection from its port and the place behind it. None if no client of XRootD can follow.
    pub fn parse(port: i32, place: &'a str) -> Option<Self> {
        if place.len() > PATH_BYTES_MAX {
            return None;
        }
        if port < 0 {
            return RootUrl::parse(place).map(Redirect::Url);
        }
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        // A first `?` precedes the fields of the path, a second one those of the login.
        let mut parts = place.split('?');
        let host = parts.next()?;
        let fields = parts.next().unwrap_or_default();
        let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let is_address = inner.len() < host.len();
        let is_of_host = |byte: u8| {
            byte.is_ascii_alphanumeric() || b".-_".contains(&byte) || (is_address && b":%".contains(&byte))
        };
        let is_plain = !inner.is_empty() && inner.bytes().all(is_of_host);
        let is_clean = fields.bytes().all(|byte| byte > b' ' && byte != 0x7f);
        (is_plain && is_clean).then_some(Redirect::Host { host, port, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: both forms of a redirection are understood, and nothing else.
    #[test]
    fn redirection_is_to_a_host_or_to_a_url() {
        let host = |host, port, fields| Some(Redirect::Host { host, port, fields });
        assert_eq!(Redirect::parse(7, "b.example.org"), host("b.example.org", 7, ""));
        assert_eq!(Redirect::parse(7, "[::1]?y=2&z=3?login"), host("[::1]", 7, "y=2&z=3"));
        let url = RootUrl { secure: true, host: "b", port: 8, path: "/e", fields: "z=3" };
        assert_eq!(Redirect::parse(-1, "roots://b:8//e?z=3"), Some(Redirect::Url(url)));
        for (port, place) in [
            (7, ""),
            (0, "b"),
            (65_536, "b"),
            (7, "a b"),
            (7, "b:9"),
            (7, "::1"),
            (7, "[]"),
            (7, "b/c"),
            (7, "b?x=\r\n"),
            (-1, "https://b/e"),
            (-1, "b"),
            (-1, ""),
        ] {
            assert_eq!(Redirect::parse(port, place), None, "{port} {place}");
        }
        let long = |bytes: usize| format!("b?{}", "x".repeat(bytes - 2));
        assert!(Redirect::parse(7, &long(PATH_BYTES_MAX)).is_some());
        assert!(Redirect::parse(7, &long(PATH_BYTES_MAX + 1)).is_none());
    }
}
