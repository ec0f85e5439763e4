//! Addresses of webhooks, and which of them a feed refuses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use exacat_model::{Error, Result};
use hyper::Uri;

/// Address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookUrl {
    pub is_tls: bool,
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub target: String,
}

impl WebhookUrl {
    /// Reads an `http://` or `https://` URL.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::invalid(format!(
                "{text:.100?} is no address of a webhook ({why}): give http(s)://HOST/PATH"
            ))
        };
        let uri: Uri = text.parse().map_err(|_| bad("it cannot be read"))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad("its scheme is neither http nor https")),
        };
        let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("a password would be seen by all who list feeds; use a secret file"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        if authority.port_u16().is_none() && authority.as_str() != authority.host() {
            return Err(bad("its port is no number"));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        Ok(WebhookUrl { is_tls, host, port, target })
    }

    /// Returns the value of the header `Host`.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// True if an address is not on the public internet, so that a request to it could reach services that
/// trust their neighbours.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(inner) => is_private_v4(inner),
            None => {
                let first = address.segments()[0];
                address.is_loopback()
                    || address.is_unspecified()
                    || address.is_multicast()
                    // Unique local, link-local and site-local addresses.
                    || first & 0xfe00 == 0xfc00
                    || first & 0xffc0 == 0xfe80
                    || first & 0xffc0 == 0xfec0
            }
        },
    }
}

/// Returns the IPv4 address inside of an IPv6 address that is translated to it.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let of = |high: u16, low: u16| {
        let ([one, two], [three, four]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(one, two, three, four)
    };
    match (a, b, c, d, e, f) {
        // Mapped addresses, and those of NAT64.
        (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => Some(of(high, low)),
        // Of 6to4.
        (0x2002, high, low, ..) => Some(of(high, low)),
        _ => None,
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_multicast()
        || first == 0
        // Of carriers, of protocols, and for benchmarks.
        || first == 100 && second & 0xc0 == 64
        || first == 192 && second == 0 && third == 0
        || first == 198 && second & 0xfe == 18
        || first >= 240
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: no spelling of an address of the machine, the site or the cloud's metadata passes.
    #[test]
    fn private_addresses_are_known_in_each_form() {
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
        for text in ["8.8.8.8", "172.32.0.1", "2001:db8::1", "::ffff:8.8.8.8", "2002:808:808::"] {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn urls_are_read_and_bad_ones_are_refused() {
        let url = WebhookUrl::parse("https://[::1]/a?b=c").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.target.as_str()), ("::1", 443, "/a?b=c"));
        assert_eq!(url.authority(), "[::1]:443");
        assert_eq!(WebhookUrl::parse("http://h:81").unwrap().authority(), "h:81");
        for bad in
            ["", "h", "ftp://h/", "http://", "http:///a", "http://user:pw@h/", "http://h:x/", "file:///etc"]
        {
            assert!(WebhookUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
