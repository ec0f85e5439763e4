//! Envelopes: signed tokens with which clients read or write one file on one storage element, for
//! all faces. Also the public keys that check them.

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

/// Path of the public keys.
pub(crate) const KEYS: &str = "/.well-known/jwks.json";
/// Path of the document that names the keys' URL.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";

/// Issuer and checker of envelopes.
pub(crate) struct Envelopes {
    keys: Keys,
    clock: Arc<dyn Clock>,
    /// Issuer named in envelopes.
    issuer: String,
    seconds: u64,
}

impl Envelopes {
    /// Opens the issuer with the keys in a directory. Envelopes name `address` as their issuer if
    /// the settings have none.
    pub(crate) fn open(
        place: PathBuf,
        clock: Arc<dyn Clock>,
        settings: &EnvelopeSettings,
        address: std::net::SocketAddr,
    ) -> Result<Arc<Self>> {
        let keys = Keys::open(place, Arc::clone(&clock))?;
        let issuer = settings.issuer.clone().unwrap_or_else(|| format!("https://{address}"));
        Ok(Arc::new(Envelopes { keys, clock, issuer, seconds: settings.seconds }))
    }

    /// Seals an envelope for `user`.
    pub(crate) fn seal(&self, user: &str, access: Access, of: &Subject<'_>) -> Result<String> {
        let (issuer, now, seconds) = (self.issuer.as_str(), self.clock.now(), self.seconds);
        seal(&self.keys, Issue { issuer, user, now, seconds }, access, of)
    }

    /// Opens an envelope for writing that this issuer sealed; none for any other.
    pub(crate) fn open_written(&self, text: &str) -> Option<Sealed> {
        open_written(&self.keys, text)
    }

    /// Returns the JSON document at a well-known path; none for other paths.
    pub(crate) fn published(&self, path: &str) -> Option<Result<String>> {
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
