//! Cookies of pages. Their names say over which scheme they were set: over TLS `__Host-`, which a browser
//! takes only with `Secure`, for this host and every path.

use hyper::HeaderMap;
use hyper::header::COOKIE;

/// A cookie of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    /// Id of a session.
    Session,
    /// Secret of a form before there is a session.
    Form,
    /// Secrets of a sign-in at an issuer, until the browser comes back.
    Flow,
}

impl Cookie {
    fn name(self, is_tls: bool) -> &'static str {
        match (self, is_tls) {
            (Cookie::Session, true) => "__Host-exacat",
            (Cookie::Session, false) => "exacat-plain",
            (Cookie::Form, true) => "__Host-exacat-form",
            (Cookie::Form, false) => "exacat-plain-form",
            (Cookie::Flow, true) => "__Host-exacat-flow",
            (Cookie::Flow, false) => "exacat-plain-flow",
        }
    }

    /// Returns the value of the cookie; none if it is missing, or there twice.
    pub(crate) fn read(self, headers: &HeaderMap, is_tls: bool) -> Option<&str> {
        let name = self.name(is_tls);
        let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (value, None) => value,
            // A second one may be of somebody who could set cookies for this host, and not over TLS.
            _ => None,
        }
    }

    /// Returns the header that sets the cookie. Other sites' pages do not send it with a form.
    pub(crate) fn set(self, value: &str, is_tls: bool) -> String {
        let secure = if is_tls { "; Secure" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Lax{secure}", self.name(is_tls))
    }

    /// Returns the header that removes the cookie.
    pub(crate) fn clear(self, is_tls: bool) -> String {
        format!("{}; Max-Age=0", self.set("", is_tls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    /// Property: the cookie of the other scheme, or one that is there twice, is none.
    #[test]
    fn cookie_of_another_scheme_or_twice_is_none() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=b; exacat-plain=one; exacat-plain-form=two"));
        assert_eq!(Cookie::Session.read(&headers, false), Some("one"));
        assert_eq!(Cookie::Form.read(&headers, false), Some("two"));
        assert_eq!(Cookie::Session.read(&headers, true), None);
        headers.append(COOKIE, HeaderValue::from_static("exacat-plain=three"));
        assert_eq!(Cookie::Session.read(&headers, false), None);
    }

    /// Property: cookies are for this host only, hidden from scripts, and over TLS never sent without it.
    #[test]
    fn cookies_are_bound_to_the_host() {
        let set = Cookie::Session.set("x", true);
        assert_eq!(set, "__Host-exacat=x; Path=/; HttpOnly; SameSite=Lax; Secure");
        assert_eq!(Cookie::Form.set("x", false), "exacat-plain-form=x; Path=/; HttpOnly; SameSite=Lax");
        assert!(Cookie::Session.clear(true).ends_with("Secure; Max-Age=0"));
    }
}
