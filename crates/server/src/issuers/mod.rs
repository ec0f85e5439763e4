//! Issuers of tokens that the operator trusts, beside this catalogue: verifies their tokens, and
//! maps them to accounts. Nothing is trusted that was not configured.
//!
//! The issuers are in a file of the data directory, which the server reads again when it changes.
//! Keys are fetched from the issuer when a token needs them, and kept while the issuer is away.

mod configured;
mod fetch;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use exacat_catalogue::{Activity, Caller, Catalogue, Grant};
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use exacat_wire::jwt::{self, KeySet, Refusal, Verified};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

pub use configured::{IssuerSettings, Profile, check, list, save};

/// Interval at which the file of issuers is looked at.
const FILE_LOOKED_EVERY: Duration = Duration::from_secs(1);
/// Age of keys at which they are fetched again.
const KEYS_AGE_MAX: Duration = Duration::from_secs(3600);
/// Shortest time between two fetches of the keys of one issuer: strangers can cause fetches.
const FETCHES_APART_MIN: Duration = Duration::from_secs(60);
/// Verified tokens that are remembered.
const VERIFIED_MAX: usize = 10_000;
/// Longest time that a verified token is remembered: removed keys and issuers end it.
const VERIFIED_TIME: Duration = Duration::from_secs(300);
/// Clock difference to an issuer that is tolerated, in seconds.
const SKEW_SECONDS: u64 = 60;
/// Start of the subject of an account that stands for a token's subject: `token:ISSUER#SUBJECT`.
const SUBJECT_PREFIX: &str = "token:";

/// An issuer and its keys.
struct Issuer {
    settings: IssuerSettings,
    rules: jwt::Issuer,
    keys: tokio::sync::Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    set: Option<Arc<KeySet>>,
    fetched: Option<Instant>,
    tried: Option<Instant>,
}

/// The configured issuers.
#[derive(Default)]
struct Configured {
    looked: Option<Instant>,
    /// Change time and length of the file.
    seen: Option<(SystemTime, u64)>,
    all: Vec<Arc<Issuer>>,
}

/// A verified token.
#[derive(Clone)]
struct Proof {
    issuer: Arc<Issuer>,
    verified: Arc<Verified>,
    at: Instant,
}

/// All issuers, and the tokens that were verified.
pub(crate) struct Issuers {
    path: PathBuf,
    configured: Mutex<Configured>,
    proofs: Mutex<HashMap<[u8; 32], Proof>>,
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unauthenticated, message)
}

/// True if a bearer token has the form of a token of another issuer.
pub(crate) fn is_foreign(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl Issuers {
    /// Makes the issuers of a file, which may be missing.
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Issuers { path, configured: Mutex::default(), proofs: Mutex::default() })
    }

    /// Returns the caller that a token proves: an account, bounded by the token's grants.
    pub async fn caller(&self, catalogue: &Catalogue, token: &str) -> Result<Caller> {
        let now = catalogue.now();
        let Proof { issuer, verified, .. } = self.proof(token, now.0 / 1000).await?;
        let subject = format!("{SUBJECT_PREFIX}{}#{}", issuer.rules.url, verified.subject);
        let caller = match (catalogue.caller_of_subject(&subject).await, issuer.settings.account()?) {
            (Ok(caller), _) => caller,
            (Err(error), Some(user)) if error.kind == ErrorKind::Unauthenticated => {
                catalogue.caller_named(&user).await?
            }
            (Err(error), _) => return Err(error),
        };
        let grants = verified.grants.as_ref().map(|grants| grants.iter().map(grant).collect());
        let expires = verified.expires.saturating_add(SKEW_SECONDS).saturating_mul(1000);
        Ok(caller.granted(grants, TimeMs(expires)))
    }

    async fn proof(&self, token: &str, now_seconds: u64) -> Result<Proof> {
        let all = self.configured()?;
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some(proof) = self.proofs.lock().get(&key)
            && proof.at.elapsed() < VERIFIED_TIME
            && proof.verified.expires.saturating_add(SKEW_SECONDS) > now_seconds
            && all.iter().any(|issuer| Arc::ptr_eq(issuer, &proof.issuer))
        {
            return Ok(proof.clone());
        }
        let unverified = jwt::peek_issuer(token).map_err(|refusal| refused(refusal.to_string()))?;
        let issuer =
            all.into_iter().find(|issuer| issuer.rules.url == unverified.issuer).ok_or_else(|| {
                refused(
                    "the issuer of the token is not configured here: 'exacat issuer ls' lists those that are",
                )
            })?;
        let keys = issuer.keys(false).await?;
        let verified = match jwt::verify(token, &issuer.rules, &keys, now_seconds) {
            // The issuer may have a new key.
            Err(Refusal::UnknownKey) => {
                let keys = issuer.keys(true).await?;
                jwt::verify(token, &issuer.rules, &keys, now_seconds)
            }
            verified => verified,
        };
        let verified = Arc::new(verified.map_err(|refusal| refused(refusal.to_string()))?);
        let proof = Proof { issuer, verified, at: Instant::now() };
        let mut proofs = self.proofs.lock();
        if proofs.len() >= VERIFIED_MAX {
            proofs.retain(|_, proof| proof.at.elapsed() < VERIFIED_TIME);
        }
        if proofs.len() >= VERIFIED_MAX {
            proofs.clear();
        }
        proofs.insert(key, proof.clone());
        Ok(proof)
    }

    /// Returns the configured issuers; reads the file again if it has changed. An issuer whose
    /// settings stay keeps its keys.
    fn configured(&self) -> Result<Vec<Arc<Issuer>>> {
        let mut configured = self.configured.lock();
        if configured.looked.is_some_and(|looked| looked.elapsed() < FILE_LOOKED_EVERY) {
            return Ok(configured.all.clone());
        }
        let seen =
            std::fs::metadata(&self.path).ok().and_then(|found| Some((found.modified().ok()?, found.len())));
        if seen != configured.seen || configured.looked.is_none() {
            let old = std::mem::take(&mut configured.all);
            let read = list(&self.path);
            configured.seen = seen;
            match read {
                Ok(all) => {
                    let same =
                        |settings: &IssuerSettings| old.iter().find(|one| one.settings == *settings).cloned();
                    let issuers = all.into_iter().map(|settings| match same(&settings) {
                        Some(issuer) => Ok(issuer),
                        None => Issuer::new(settings).map(Arc::new),
                    });
                    configured.all = issuers.collect::<Result<_>>()?;
                }
                // Nobody is let in by a file that cannot be read.
                Err(error) => tracing::error!(%error, "the file of issuers cannot be read"),
            }
        }
        configured.looked = Some(Instant::now());
        Ok(configured.all.clone())
    }
}

impl Issuer {
    fn new(settings: IssuerSettings) -> Result<Self> {
        let rules = settings.rules(SKEW_SECONDS)?;
        Ok(Issuer { settings, rules, keys: tokio::sync::Mutex::default() })
    }

    /// Returns the keys; fetches them if there are none, if they are old, or if `anew`, but not too
    /// often. The last good ones stay while the issuer is away.
    async fn keys(&self, anew: bool) -> Result<Arc<KeySet>> {
        let mut keys = self.keys.lock().await;
        let is_old = keys.fetched.is_none_or(|fetched| fetched.elapsed() >= KEYS_AGE_MAX);
        let may_try = keys.tried.is_none_or(|tried| tried.elapsed() >= FETCHES_APART_MIN);
        // A first token after the start must not wait for a failed fetch to be a minute old.
        if (is_old || anew) && (may_try || (anew && keys.fetched == keys.tried && keys.fetched.is_none())) {
            keys.tried = Some(Instant::now());
            match fetch::keys(&self.rules.url, self.settings.ca.as_deref()).await {
                Ok(set) => {
                    keys.set = Some(Arc::new(set));
                    keys.fetched = keys.tried;
                }
                Err(error) => tracing::warn!(%error, issuer = self.rules.url, "no keys of an issuer"),
            }
        }
        keys.set.clone().ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "the keys of the token's issuer cannot be fetched now")
        })
    }
}

fn grant(grant: &jwt::Grant) -> Grant {
    let activity = match grant.activity {
        jwt::Activity::Read => Activity::Read,
        jwt::Activity::Create => Activity::Create,
        jwt::Activity::Modify => Activity::Modify,
        jwt::Activity::Stage => Activity::Stage,
    };
    Grant { activity, path: grant.path.clone().of_anything() }
}
