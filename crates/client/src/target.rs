//! Targets: the servers of a catalogue, the certificates to trust, and the caller's credentials.

use std::fmt;
use std::path::PathBuf;

use exacat_model::{AccountName, Error, Result};
use exacat_wire::native::{self, Authenticate, Secret};

use crate::settings::limits::ENDPOINTS_MAX;

/// Address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// A host and port with TLS.
    Tls {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

impl Endpoint {
    /// Reads `unix:/path` or `exacat://host:port`.
    pub fn parse(text: &str) -> Result<Self> {
        let bad =
            || Error::invalid(format!("not an endpoint (unix:/path or exacat://host:port): {text:.200?}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(bad()) } else { Ok(Endpoint::Unix(PathBuf::from(path))) };
        }
        let place = text.strip_prefix("exacat://").ok_or_else(bad)?;
        let place = place.strip_suffix('/').unwrap_or(place);
        let (host, port) = place.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().map_err(|_| bad())?;
        let host = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.strip_suffix(']').ok_or_else(bad)?,
            None if host.contains(':') => return Err(bad()),
            None => host,
        };
        if host.is_empty() || host.contains(['/', '@', ' ']) {
            return Err(bad());
        }
        Ok(Endpoint::Tls { host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Tls { host, port } if host.contains(':') => write!(f, "exacat://[{host}]:{port}"),
            Endpoint::Tls { host, port } => write!(f, "exacat://{host}:{port}"),
        }
    }
}

/// Servers that the client trusts over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// None: only Unix sockets can be used.
    #[default]
    Nothing,
    /// Servers whose certificate is in this PEM file, or signed for their name by one in it.
    CertificateFile(PathBuf),
    /// Like `CertificateFile`, with the PEM itself.
    Certificates(Vec<u8>),
    /// The server whose certificate, in DER, has this SHA-256.
    Fingerprint([u8; 32]),
}

impl Trust {
    /// Reads a fingerprint: 64 hex digits, with or without colons between bytes and `sha256:`
    /// before them.
    pub fn fingerprint(text: &str) -> Result<Self> {
        let bad = || Error::invalid(format!("not a SHA-256 fingerprint (64 hex digits): {text:.200?}"));
        let lower = text.trim().to_ascii_lowercase();
        let digits: Vec<u32> = lower
            .strip_prefix("sha256:")
            .unwrap_or(&lower)
            .chars()
            .filter(|character| *character != ':')
            .map(|character| character.to_digit(16))
            .collect::<Option<_>>()
            .ok_or_else(bad)?;
        let mut fingerprint = [0u8; 32];
        if digits.len() != 2 * fingerprint.len() {
            return Err(bad());
        }
        for (byte, pair) in fingerprint.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
        Ok(Trust::Fingerprint(fingerprint))
    }
}

/// Address of a catalogue: one or more servers of the same catalogue, and the certificates to
/// trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    endpoints: Vec<Endpoint>,
    trust: Trust,
}

impl Target {
    /// Makes a target of the servers of one catalogue; the client uses the first reachable one.
    pub fn new(endpoints: Vec<Endpoint>) -> Result<Self> {
        if endpoints.is_empty() {
            return Err(Error::invalid("a target has no endpoint"));
        }
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(Error::limit("the number of endpoints", endpoints.len(), ENDPOINTS_MAX));
        }
        Ok(Target { endpoints, trust: Trust::Nothing })
    }

    /// Reads endpoints separated by commas: `unix:/path`, `exacat://host:port,exacat://other:port`.
    pub fn parse(text: &str) -> Result<Self> {
        Target::new(text.split(',').map(|part| Endpoint::parse(part.trim())).collect::<Result<_>>()?)
    }

    /// Sets the trust.
    #[must_use]
    pub fn trusting(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Returns the endpoints.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Returns the trust.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }
}

/// Credentials of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials(pub(crate) Authenticate);

impl Credentials {
    /// Makes credentials of no user. A server accepts them, for reading, if it is configured to.
    pub fn anonymous() -> Self {
        Credentials::showing(native::Credentials::Anonymous)
    }

    /// Makes credentials of the user that runs this program on this machine, over a Unix socket.
    pub fn local() -> Self {
        Credentials::showing(native::Credentials::Local)
    }

    /// Makes credentials of the holder of this bearer token.
    pub fn token(secret: impl Into<String>) -> Self {
        Credentials::showing(native::Credentials::Token(Secret::new(secret)))
    }

    fn showing(credentials: native::Credentials) -> Self {
        Credentials(Authenticate { credentials, act_as: None })
    }

    /// Acts as another account, which the user must be permitted to.
    #[must_use]
    pub fn acting_as(mut self, account: AccountName) -> Self {
        self.0.act_as = Some(account);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_printed_alike() {
        for text in ["unix:/run/exacat.sock", "unix:relative", "exacat://host:1", "exacat://[::1]:65535"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Endpoint::parse("exacat://h:7/").unwrap().to_string(), "exacat://h:7");
        for bad in [
            "",
            "unix:",
            "host:1",
            "exacat://",
            "exacat://host",
            "exacat://:1",
            "exacat://h:65536",
            "exacat://h:x",
            "exacat://::1:7",
            "exacat://[::1:7",
            "exacat://u@h:7",
            "https://h:7",
        ] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
        let target = Target::parse("exacat://a:1, exacat://b:2").unwrap();
        assert_eq!(target.endpoints().len(), 2);
        assert!(Target::parse("exacat://a:1,").is_err());
        let many = vec!["unix:/s"; ENDPOINTS_MAX].join(",");
        assert!(Target::parse(&many).is_ok());
        assert!(Target::parse(&format!("{many},unix:/s")).is_err());
    }

    #[test]
    fn fingerprints_are_read_in_the_usual_forms() {
        let plain = "ab".repeat(32);
        let trust = Trust::Fingerprint([0xab; 32]);
        assert_eq!(Trust::fingerprint(&plain).unwrap(), trust);
        assert_eq!(Trust::fingerprint(&format!("sha256:{plain}")).unwrap(), trust);
        assert_eq!(Trust::fingerprint(&vec!["AB"; 32].join(":")).unwrap(), trust);
        for bad in ["", "ab", &"zz".repeat(32), &"ab".repeat(33), &"a".repeat(63)] {
            assert!(Trust::fingerprint(bad).is_err(), "{bad}");
        }
    }
}
