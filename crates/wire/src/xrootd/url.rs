//! URLs of files on servers of XRootD: taken apart, and put together.

use exacat_model::Lfn;

/// Default port of XRootD servers.
const PORT: u16 = 1094;

/// URL of a file that clients of XRootD can open: `root://`, `roots://`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootUrl<'a> {
    /// True if it requires TLS.
    pub secure: bool,
    /// The host, with the brackets of an address.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The path, as in the URL.
    pub path: &'a str,
    /// The fields after its `?`.
    pub fields: &'a str,
}

impl<'a> RootUrl<'a> {
    /// Parses a URL; none if it is of another protocol.
    pub fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
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
        Some(RootUrl { secure, host, port, path, fields })
    }

    /// True if the file has the same name there as here, so that any client can follow.
    pub fn is_at(&self, lfn: &Lfn) -> bool {
        !self.secure && Lfn::parse(self.path).is_ok_and(|path| path == *lfn)
    }

    /// Returns `HOST:PORT`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the URL, with these fields after its `?`.
    pub fn url(&self, fields: &str) -> String {
        let scheme = if self.secure { "roots" } else { "root" };
        let RootUrl { host, port, path, .. } = self;
        let fields = self.with(fields);
        let mark = if fields.is_empty() { "" } else { "?" };
        format!("{scheme}://{host}:{port}/{path}{mark}{fields}")
    }

    /// Returns the fields of the URL and these.
    pub fn with(&self, fields: &str) -> String {
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
    fn url_is_taken_apart_and_put_together_again() {
        for (pfn, host, port, path, url) in [
            ("root://se1:1095//data/a", "se1", 1095, "/data/a", "root://se1:1095//data/a?x=1"),
            ("root://se1/data/a", "se1", 1094, "/data/a", "root://se1:1094//data/a?x=1"),
            ("xroot://u@se1//a?b=c", "se1", 1094, "/a", "root://se1:1094//a?b=c&x=1"),
            ("root://[::1]:7//a", "[::1]", 7, "/a", "root://[::1]:7//a?x=1"),
            ("root://[::1]//a", "[::1]", 1094, "/a", "root://[::1]:1094//a?x=1"),
            ("roots://se1:9//a#m", "se1", 9, "/a", "roots://se1:9//a?x=1"),
        ] {
            let target = RootUrl::parse(pfn).unwrap();
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
            assert_eq!(RootUrl::parse(other), None, "{other}");
        }
        let plain = RootUrl::parse("root://h//a/b").unwrap();
        assert_eq!((plain.url("").as_str(), plain.address().as_str()), ("root://h:1094//a/b", "h:1094"));
        assert!(plain.is_at(&Lfn::parse("/a/b").unwrap()) && !plain.is_at(&Lfn::parse("/a").unwrap()));
        assert!(!RootUrl::parse("roots://h//a").unwrap().is_at(&Lfn::parse("/a").unwrap()));
    }
}
