//! Rights of clients: the token of operators opens everything, that of agents what they need.

use std::net::IpAddr;

use exacat_model::{Error, ErrorKind, Result};
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

/// See the module.
pub(crate) struct Access {
    token: Option<String>,
    /// Token that is for agents only.
    agents: Option<String>,
    has_tls: bool,
}

/// Right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Agents: items, results, and the states of caches.
    Agent,
    /// Everything: runs and reports.
    Operator,
}

impl Access {
    /// Makes the judge of tokens: that of operators, and one for agents only. Without the first everybody is
    /// let in.
    pub(crate) fn new(token: Option<String>, agents: Option<String>, has_tls: bool) -> Self {
        Access { token, agents, has_tls }
    }

    /// Says whether a client may speak plain HTTP: where the service has no certificate, and on the machine.
    pub(crate) fn speaks_plain(&self, from: IpAddr) -> bool {
        !self.has_tls || from.to_canonical().is_loopback()
    }

    /// Refuses requests without a token of the right: `Bearer TOKEN`, or the password of `Basic`.
    pub(crate) fn check(&self, headers: &HeaderMap, right: Right) -> Result<()> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (scheme, value) = given.split_once(' ').unwrap_or_default();
        let secret = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Some(value.trim().to_owned()),
            "basic" => password(value.trim()),
            _ => None,
        };
        let is =
            |token: &str| secret.as_ref().is_some_and(|secret| is_same(secret.as_bytes(), token.as_bytes()));
        if is(token) {
            return Ok(());
        }
        match (self.agents.as_deref().is_some_and(is), right) {
            (true, Right::Agent) => Ok(()),
            (true, Right::Operator) => {
                let what =
                    "this token is for agents: runs and reports need the one of the service's --token-file";
                Err(Error::new(ErrorKind::Denied, what))
            }
            (false, _) => {
                let what = "send Authorization: Bearer TOKEN, with the token of the service's --token-file";
                Err(Error::new(ErrorKind::Unauthenticated, what))
            }
        }
    }
}

fn password(value: &str) -> Option<String> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(value).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

/// Compares in a time that does not depend on where the bytes differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(access: &Access, value: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
        }
        access.check(&headers, Right::Operator).is_ok()
    }

    #[test]
    fn token_is_taken_as_bearer_or_password_and_nothing_else_is() {
        let access = Access::new(Some("secret".to_owned()), None, false);
        // "x:secret" and "x:other".
        for good in ["Bearer secret", "bearer secret", "Basic eDpzZWNyZXQ="] {
            assert!(check(&access, Some(good)), "{good}");
        }
        for bad in ["", "Bearer", "Bearer secre", "Bearer secret1", "Basic eDpvdGhlcg==", "Basic !", "secret"]
        {
            assert!(!check(&access, Some(bad)), "{bad}");
        }
        assert!(!check(&access, None) && check(&Access::new(None, None, false), None));
    }

    #[test]
    fn plain_http_is_for_the_machine_where_there_is_tls() {
        let [here, there] = [[127, 0, 0, 1], [10, 0, 0, 1]].map(IpAddr::from);
        let (with, without) = (Access::new(None, None, true), Access::new(None, None, false));
        assert!(with.speaks_plain(here) && !with.speaks_plain(there) && without.speaks_plain(there));
    }
}
