//! Envelopes: signed tokens with which clients read or write one file on one storage element, whichever face gave them out;
//! and the public keys they are checked with, which anybody may have.

mod keys;
mod seal;

use std::path::PathBuf;
use std::sync::Arc;

use exacat_model::Result;
use exacat_store::Clock;
use serde_json::json;

use crate::settings::EnvelopeSettings;
use keys::Keys;
pub(crate) use seal::{Access, Sealed, Subject, is_own_place, md5_text};
use seal::{Issue, open_written, seal};

/// Where the public keys are.
pub(crate) const KEYS: &str = "/.well-known/jwks.json";
/// Where it is said where they are.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";

/// See the module.
pub(crate) struct Envelopes {
    keys: Keys,
    clock: Arc<dyn Clock>,
    /// What envelopes say of who issued them.
    issuer: String,
    seconds: u64,
}

impl Envelopes {
    /// Those whose keys are in a directory; they say they are from `address` if settings say nothing else.
    pub fn open(
        place: PathBuf,
        clock: Arc<dyn Clock>,
        settings: &EnvelopeSettings,
        address: std::net::SocketAddr,
    ) -> Result<Arc<Self>> {
        let keys = Keys::open(place, Arc::clone(&clock))?;
        let issuer = settings.issuer.clone().unwrap_or_else(|| format!("https://{address}"));
        Ok(Arc::new(Envelopes { keys, clock, issuer, seconds: settings.seconds }))
    }

    /// Seals one for `user`.
    pub fn seal(&self, user: &str, access: Access, of: &Subject<'_>) -> Result<String> {
        let (issuer, now, seconds) = (self.issuer.as_str(), self.clock.now(), self.seconds);
        seal(&self.keys, Issue { issuer, user, now, seconds }, access, of)
    }

    /// Opens one for writing that was sealed here; none of anything else.
    pub fn open_written(&self, text: &str) -> Option<Sealed> {
        open_written(&self.keys, text)
    }

    /// What is told under a path of the well-known ones, as JSON; none under others.
    pub fn told(&self, path: &str) -> Option<Result<String>> {
        match path {
            KEYS => Some(self.keys.public().map(|keys| keys.to_string())),
            CONFIGURATION => {
                let issuer = self.issuer.trim_end_matches('/');
                Some(Ok(json!({"issuer": issuer, "jwks_uri": format!("{issuer}{KEYS}")}).to_string()))
            }
            _ => None,
        }
    }
}
