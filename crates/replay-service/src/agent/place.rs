//! Place of a file: server, path, and the fields behind it; the hosts that a token is shown to.

use exacat_model::{Error, Result};
use exacat_replay::run::outcome::Outcome;
use exacat_wire::xrootd::RootUrl;
use exacat_wire::xrootd::client::Redirect;
use exacat_wire::xrootd::limits::PATH_BYTES_MAX;
use exacat_wire::xrootd::path::escaped;

use super::access::Failure;
use super::settings::{CacheSettings, TokenUse};

/// Server at a port of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// True if the connection must be protected.
    pub secure: bool,
    /// The host, with the brackets of an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// File on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The server.
    pub server: Server,
    /// The path.
    pub path: String,
    /// Fields behind the path, as servers gave them.
    pub fields: String,
}

/// Address of a cache, `root://HOST:PORT` with a path before all names.
#[derive(Clone, Debug)]
pub(crate) struct CacheAddress {
    server: Server,
    prefix: String,
    fields: String,
}

impl CacheAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// It is no address of a server of XRootD.
    pub(crate) fn parse(address: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!(
                "{address:?}: the address of a cache is root://HOST:PORT or roots://HOST:PORT"
            ))
        };
        let (_, rest) = address.split_once("://").ok_or_else(bad)?;
        let whole = if rest.contains('/') { address.to_owned() } else { format!("{address}/") };
        let url = RootUrl::parse(&whole).filter(|url| !url.host.contains('?')).ok_or_else(bad)?;
        let server = Server { secure: url.secure, host: url.host.to_owned(), port: url.port };
        let prefix = url.path.trim_end_matches('/').to_owned();
        Ok(CacheAddress { server, prefix, fields: url.fields.to_owned() })
    }

    /// Returns the server.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the place of a file.
    pub(crate) fn place(&self, name: &str) -> std::result::Result<Place, Failure> {
        // A server takes what stands behind a question mark for fields.
        let is_bad = |byte: u8| byte < b' ' || byte == 0x7f || byte == b'?';
        if name.is_empty() || name.bytes().any(is_bad) {
            let why =
                "the protocol has no way to ask for a name that is empty, or has '?' or control characters";
            return Err(Failure::new(Outcome::Agent, why));
        }
        let slash = if name.starts_with('/') { "" } else { "/" };
        let path = format!("{}{slash}{name}", self.prefix);
        Ok(Place { server: self.server.clone(), path, fields: self.fields.clone() })
    }
}

/// Adds fields to others; a field that is there gets its new value.
fn merged(old: &str, new: &str) -> String {
    let name_of = |field: &str| field.split('=').next().unwrap_or_default().to_owned();
    let replaced: Vec<String> = new.split('&').map(name_of).collect();
    let kept = old.split('&').filter(|field| !field.is_empty() && !replaced.contains(&name_of(field)));
    let all: Vec<&str> = kept.chain(new.split('&').filter(|field| !field.is_empty())).collect();
    all.join("&")
}

impl Place {
    /// Returns the place to which a server redirects. The fields go along, as with the reference client.
    pub(crate) fn redirected(&self, port: i32, to: &str) -> std::result::Result<Place, Failure> {
        let unusable = || {
            let shown: String = to.chars().filter(|one| !one.is_control()).take(100).collect();
            Failure::new(Outcome::Protocol, format!("a redirection to no usable place: {port} {shown:?}"))
        };
        let place = match Redirect::parse(port, to).ok_or_else(unusable)? {
            Redirect::Host { host, port, fields } => Place {
                server: Server { secure: self.server.secure, host: host.to_owned(), port },
                path: self.path.clone(),
                fields: merged(&self.fields, fields),
            },
            Redirect::Url(url) => Place {
                server: Server {
                    // Protection that the client asked for stays.
                    secure: url.secure || self.server.secure,
                    host: url.host.to_owned(),
                    port: url.port,
                },
                path: url.path.to_owned(),
                fields: merged(&self.fields, url.fields),
            },
        };
        if place.path.len() + place.fields.len() >= PATH_BYTES_MAX {
            return Err(unusable());
        }
        Ok(place)
    }

    /// Returns the place with the mark of a host that failed, for the server that had redirected to it.
    pub(crate) fn with_tried(&self, host: &str, reason: &str) -> Place {
        let value = |name: &str| {
            self.fields
                .split('&')
                .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
                .unwrap_or_default()
        };
        let joined =
            |old: &str, new: &str| if old.is_empty() { new.to_owned() } else { format!("{old},{new}") };
        let (tried, reasons) = (joined(value("tried"), host), joined(value("triedrc"), reason));
        let fields = merged(&self.fields, &format!("tried={tried}&triedrc={reasons}"));
        Place { fields, ..self.clone() }
    }
}

/// Token, and the servers that see it.
#[derive(Clone)]
pub(crate) struct TokenPolicy {
    token: Option<String>,
    token_use: TokenUse,
    host: String,
    secure: bool,
    hosts: Vec<String>,
}

impl TokenPolicy {
    /// Makes the policy of a cache on a host.
    pub(crate) fn new(settings: &CacheSettings, host: &str, secure: bool) -> Self {
        TokenPolicy {
            token: settings.token.clone(),
            token_use: settings.token_use,
            host: host.to_ascii_lowercase(),
            secure,
            hosts: settings.token_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        }
    }

    /// Returns the token for a server: the cache's host or one that the operator named, and never less
    /// protected than the cache.
    pub(crate) fn token_for(&self, host: &str, secure: bool) -> Option<&str> {
        let host = host.to_ascii_lowercase();
        let is_named = |known: &String| match known.starts_with('.') {
            true => host.ends_with(known.as_str()) && host.len() > known.len(),
            false => host == *known,
        };
        let is_trusted = host == self.host || self.hosts.iter().any(is_named);
        self.token.as_deref().filter(|_| is_trusted && (secure || !self.secure))
    }

    /// Returns the token for the login on a protected connection to a server.
    pub(crate) fn for_login(&self, server: &Server) -> Option<&str> {
        self.token_for(&server.host, server.secure).filter(|_| self.token_use == TokenUse::Login)
    }

    /// Returns the path and the fields of a place, and the token if it is shown there.
    pub(crate) fn path(&self, place: &Place) -> String {
        let shown = self.token_for(&place.server.host, place.server.secure);
        let fields = match shown.filter(|_| self.token_use == TokenUse::Path) {
            Some(token) => merged(&place.fields, &format!("authz=Bearer%20{}", escaped(token))),
            None => place.fields.clone(),
        };
        let mark = if fields.is_empty() { "" } else { "?" };
        format!("{}{mark}{fields}", place.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: &str, name: &str) -> Place {
        CacheAddress::parse(address).unwrap().place(name).unwrap()
    }

    /// Property: the name stands behind the address as it is, whatever the form of both.
    #[test]
    fn names_stand_behind_the_address() {
        for (address, name, path) in [
            ("root://c:1", "/a/b", "/a/b"),
            ("root://c:1/", "a", "/a"),
            ("root://c:1//pre/", "/a b#c", "/pre/a b#c"),
            ("roots://c:1//root://o:2/", "/a", "/root://o:2/a"),
        ] {
            let place = place(address, name);
            assert_eq!((place.path.as_str(), place.server.host.as_str()), (path, "c"), "{address}");
        }
        assert_eq!(place("root://[::1]", "/a").server.host, "[::1]");
        let cache = CacheAddress::parse("root://c:1//?x=1").unwrap();
        assert_eq!(cache.place("/a").unwrap().fields, "x=1");
        for bad in ["", "/a?b", "/a\nb", "/a\0"] {
            assert_eq!(cache.place(bad).unwrap_err().outcome, Outcome::Agent);
        }
        for bad in ["c:1", "http://c:1", "root://", "root://c:0", "root://c:99999", "root://c?x=1", ""] {
            assert!(CacheAddress::parse(bad).is_err(), "{bad}");
        }
    }

    /// Property: a redirection keeps the fields and the protection; the same field comes once.
    #[test]
    fn redirection_keeps_fields_and_protection() {
        let from = place("roots://c:1//?x=1&y=2", "/a");
        let host = from.redirected(7, "d?y=3&z=4?login").unwrap();
        assert_eq!((host.path.as_str(), host.fields.as_str()), ("/a", "x=1&y=3&z=4"));
        assert_eq!(host.server, Server { secure: true, host: "d".to_owned(), port: 7 });
        let url = host.redirected(-1, "root://e:8//b?z=5").unwrap();
        assert_eq!((url.path.as_str(), url.fields.as_str(), url.server.secure), ("/b", "x=1&y=3&z=5", true));
        let tried = url.with_tried("d", "enoent").with_tried("e", "ioerr");
        assert_eq!(tried.fields, "x=1&y=3&z=5&tried=d,e&triedrc=enoent,ioerr");
        for (port, to) in [(0, "d"), (7, ""), (-1, "http://d/a")] {
            assert_eq!(from.redirected(port, to).unwrap_err().outcome, Outcome::Protocol);
        }
        let long = format!("d?{}", "x".repeat(PATH_BYTES_MAX - 2));
        assert!(from.redirected(7, &long).is_err());
    }

    /// Property: a token is shown to the host of the cache and to named ones, and never with less
    /// protection.
    #[test]
    fn token_is_shown_to_trusted_hosts_only() {
        let mut settings = CacheSettings::new("");
        settings.token = Some("a+b".to_owned());
        settings.token_hosts = vec![".Example.org".to_owned(), "d".to_owned()];
        let policy = TokenPolicy::new(&settings, "C", false);
        for host in ["c", "d", "x.example.org", "a.B.example.ORG"] {
            assert_eq!(policy.token_for(host, false), Some("a+b"), "{host}");
        }
        for host in ["e", "example.org", ".example.org", "cc", "xexample.org", "d.x"] {
            assert_eq!(policy.token_for(host, true), None, "{host}");
        }
        let protected = TokenPolicy::new(&settings, "c", true);
        assert_eq!((protected.token_for("c", false), protected.token_for("c", true)), (None, Some("a+b")));
        let place = place("root://c:1", "/a");
        assert_eq!((policy.path(&place).as_str(), policy.for_login(&place.server)), ("/a", Some("a+b")));
        settings.token_use = TokenUse::Path;
        let policy = TokenPolicy::new(&settings, "c", false);
        assert_eq!(policy.path(&place), "/a?authz=Bearer%20a%2Bb");
        assert_eq!(policy.for_login(&place.server), None);
        assert_eq!(policy.path(&place.redirected(7, "evil").unwrap()), "/a");
    }
}
