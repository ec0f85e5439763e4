//! Targets of redirections: parses PFNs, and builds the URLs that clients follow.

use exacat_model::Lfn;

/// Default port of XRootD servers.
const PORT: u16 = 1094;

/// A PFN that XRootD clients can open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// True if it requires TLS.
    pub secure: bool,
    /// The host, with the brackets of an address.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The path, as in the PFN.
    pub path: &'a str,
    /// The fields after its `?`.
    pub fields: &'a str,
}

impl<'a> Target<'a> {
    /// Parses a PFN; none if it is of another protocol.
    pub(crate) fn parse(pfn: &'a str) -> Option<Self> {
        let (scheme, rest) = pfn.split_once("://")?;
        let secure = match scheme {
            "root" | "xroot" => false,
            "roots" | "xroots" => true,
            _ => return None,
        };
        let rest = rest.split('#').next()?;
        let (authority, path) = rest.split_at(rest.find('/')?);
        // The first slash after the authority is not part of the path.
        let path = path.strip_prefix('/').filter(|path| path.starts_with('/')).unwrap_or(path);
        let (path, fields) = path.split_once('?').unwrap_or((path, ""));
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let bracket = authority.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match authority[bracket..].split_once(':') {
            Some((end, port)) => (&authority[..bracket + end.len()], port.parse().ok()?),
            None => (authority, PORT),
        };
        let bad = |byte: u8| byte <= b' ' || byte == 0x7f;
        if host.is_empty() || port == 0 || rest.bytes().any(bad) {
            return None;
        }
        Some(Target { secure, host, port, path, fields })
    }

    /// True if the file has the same name there as here, so that any client can follow.
    pub(crate) fn is_at(&self, lfn: &Lfn) -> bool {
        !self.secure && Lfn::parse(self.path).is_ok_and(|path| path == *lfn)
    }

    /// Returns `HOST:PORT`.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the URL, with these fields after its `?`.
    pub(crate) fn url(&self, fields: &str) -> String {
        let scheme = if self.secure { "roots" } else { "root" };
        let Target { host, port, path, .. } = self;
        let fields = self.with(fields);
        let mark = if fields.is_empty() { "" } else { "?" };
        format!("{scheme}://{host}:{port}/{path}{mark}{fields}")
    }

    /// Returns the fields of the PFN and these.
    pub(crate) fn with(&self, fields: &str) -> String {
        match (self.fields.is_empty(), fields.is_empty()) {
            (true, _) => fields.to_owned(),
            (false, true) => self.fields.to_owned(),
            (false, false) => format!("{}&{fields}", self.fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pfn_is_taken_apart_and_put_together_again() {
        for (pfn, host, port, path, url) in [
            ("root://se1:1095//data/a", "se1", 1095, "/data/a", "root://se1:1095//data/a?x=1"),
            ("root://se1/data/a", "se1", 1094, "/data/a", "root://se1:1094//data/a?x=1"),
            ("xroot://u@se1//a?b=c", "se1", 1094, "/a", "root://se1:1094//a?b=c&x=1"),
            ("root://[::1]:7//a", "[::1]", 7, "/a", "root://[::1]:7//a?x=1"),
            ("root://[::1]//a", "[::1]", 1094, "/a", "root://[::1]:1094//a?x=1"),
            ("roots://se1:9//a#m", "se1", 9, "/a", "roots://se1:9//a?x=1"),
        ] {
            let target = Target::parse(pfn).unwrap();
            assert_eq!((target.host, target.port, target.path), (host, port, path), "{pfn}");
            assert_eq!(target.url("x=1"), url);
        }
        for other in [
            "https://h/a",
            "a",
            "root://",
            "root:///a",
            "root://h",
            "root://h:0//a",
            "root://h:x//a",
            "root://h//a b",
        ] {
            assert_eq!(Target::parse(other), None, "{other}");
        }
        let plain = Target::parse("root://h//a/b").unwrap();
        assert_eq!((plain.url("").as_str(), plain.address().as_str()), ("root://h:1094//a/b", "h:1094"));
        assert!(plain.is_at(&Lfn::parse("/a/b").unwrap()) && !plain.is_at(&Lfn::parse("/a").unwrap()));
        assert!(!Target::parse("roots://h//a").unwrap().is_at(&Lfn::parse("/a").unwrap()));
    }
}
