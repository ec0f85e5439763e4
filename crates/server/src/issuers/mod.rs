//! Issuers of tokens that the operator trusts, beside this catalogue: verifies their tokens, and
//! maps them to accounts. Nothing is trusted that was not configured.
//!
//! The issuers are in a file of the data directory, which the server reads again when it changes.
//! Keys are fetched from the issuer when a token needs them, and kept while the issuer is away.

mod configured;
mod fetch;
mod sign_in;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use exacat_catalogue::{Activity, Caller, Catalogue, Grant};
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use exacat_wire::jwt::discovery::Endpoints;
use exacat_wire::jwt::{self, KeySet, Refusal, Verified};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

pub use configured::{IssuerClient, IssuerSettings, Profile, check, list, save};
pub(crate) use sign_in::CodeFlow;

/// Interval at which the file of issuers is looked at.
const FILE_LOOKED_EVERY: Duration = Duration::from_secs(1);
/// Age of keys at which they are fetched again, in the background.
const KEYS_AGE_MS: u64 = 3600 * 1000;
/// Age of keys at which they are no longer trusted, although the issuer could not be asked.
const KEYS_AGE_MAX_MS: u64 = 24 * 3600 * 1000;
/// Shortest time between two fetches of the keys of one issuer: strangers can cause fetches.
const FETCHES_APART_MS: u64 = 60 * 1000;
/// Shortest such time while there are no keys.
const FIRST_FETCHES_APART_MS: u64 = 5 * 1000;
/// Verified tokens that are remembered.
const VERIFIED_MAX: usize = 10_000;
/// Clock difference to an issuer that is tolerated, in seconds.
const SKEW_SECONDS: u64 = 60;
/// Start of the subject of an account that stands for a token's subject: `token:ISSUER#SUBJECT`.
const SUBJECT_PREFIX: &str = "token:";

/// An issuer and its keys.
struct Issuer {
    settings: IssuerSettings,
    rules: jwt::Issuer,
    keys: Mutex<Keys>,
    /// Held by the task that fetches keys.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Keys {
    set: Option<Arc<KeySet>>,
    /// Places where people sign in, fetched with the keys.
    endpoints: Option<Endpoints>,
    fetched: TimeMs,
    tried: Option<TimeMs>,
}

/// The configured issuers.
#[derive(Default)]
struct Configured {
    looked: Option<Instant>,
    /// Change time, length and inode of the file.
    seen: Option<(SystemTime, u64, u64)>,
    all: Vec<Arc<Issuer>>,
}

/// A verified token.
#[derive(Clone)]
struct Proof {
    issuer: Arc<Issuer>,
    /// The keys that verified it.
    keys: Arc<KeySet>,
    verified: Arc<Verified>,
}

/// The issuer that a client's token is from.
#[derive(Clone)]
pub(crate) struct Trust(Arc<Issuer>);

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
    pub(crate) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Issuers { path, configured: Mutex::default(), proofs: Mutex::default() })
    }

    /// Returns the caller that a token proves: an account, bounded by the token's grants.
    pub(crate) async fn caller(&self, catalogue: &Catalogue, token: &str) -> Result<(Caller, Trust)> {
        let Proof { issuer, verified, .. } = self.proof(token, catalogue.now()).await?;
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
        Ok((caller.granted(grants, TimeMs(expires)), Trust(issuer)))
    }

    /// Says whether the issuer of a token is still configured, with the same settings.
    pub(crate) fn trusts(&self, trust: &Trust) -> bool {
        self.configured().is_ok_and(|all| all.iter().any(|issuer| Arc::ptr_eq(issuer, &trust.0)))
    }

    /// Returns the age of the oldest keys of a configured issuer, in milliseconds; none without keys.
    pub(crate) fn keys_age_ms(&self, now: TimeMs) -> Option<u64> {
        let configured = self.configured.lock();
        let age = |issuer: &Arc<Issuer>| {
            let keys = issuer.keys.lock();
            keys.set.as_ref().map(|_| now.0.saturating_sub(keys.fetched.0))
        };
        configured.all.iter().filter_map(age).max()
    }

    async fn proof(&self, token: &str, now: TimeMs) -> Result<Proof> {
        let all = self.configured()?;
        let now_seconds = now.0 / 1000;
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let is_good = |proof: &Proof| {
            proof.verified.expires.saturating_add(SKEW_SECONDS) > now_seconds
                && all.iter().any(|issuer| Arc::ptr_eq(issuer, &proof.issuer))
                && proof.issuer.kept(now).is_some_and(|(keys, _)| Arc::ptr_eq(&keys, &proof.keys))
        };
        let known = self.proofs.lock().get(&key).cloned();
        if let Some(proof) = known
            && is_good(&proof)
        {
            // Fetches keys in the background if they are old.
            proof.issuer.keys(now).await?;
            return Ok(proof);
        }
        let unverified = jwt::peek_issuer(token).map_err(|refusal| refused(refusal.to_string()))?;
        let issuer = all.iter().find(|issuer| issuer.rules.url == unverified.issuer).ok_or_else(|| {
            refused("the issuer of the token is not configured here: 'exacat issuer ls' lists those that are")
        })?;
        let mut keys = issuer.keys(now).await?;
        let verified = match jwt::verify(token, &issuer.rules, &keys, now_seconds) {
            // The issuer may have a new key.
            Err(Refusal::UnknownKey) => {
                keys = issuer.keys_after(&keys, now).await?;
                jwt::verify(token, &issuer.rules, &keys, now_seconds)
            }
            verified => verified,
        };
        let verified = Arc::new(verified.map_err(|refusal| refused(refusal.to_string()))?);
        let proof = Proof { issuer: Arc::clone(issuer), keys, verified };
        let mut proofs = self.proofs.lock();
        if proofs.len() >= VERIFIED_MAX {
            proofs.retain(|_, proof| is_good(proof));
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
        let seen = std::fs::metadata(&self.path)
            .ok()
            .and_then(|found| Some((found.modified().ok()?, found.len(), found.ino())));
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
        Ok(Issuer { settings, rules, keys: Mutex::default(), fetching: tokio::sync::Mutex::default() })
    }

    /// Returns the present keys and their age; none if they are too old.
    fn kept(&self, now: TimeMs) -> Option<(Arc<KeySet>, u64)> {
        let keys = self.keys.lock();
        // A clock that was set back makes keys old: their age is unknown.
        let age = now.0.checked_sub(keys.fetched.0).unwrap_or(KEYS_AGE_MS);
        keys.set.clone().filter(|_| age < KEYS_AGE_MAX_MS).map(|set| (set, age))
    }

    /// Returns the keys. Fetches them first if there are none; in the background if they are old.
    async fn keys(self: &Arc<Self>, now: TimeMs) -> Result<Arc<KeySet>> {
        match self.kept(now) {
            Some((set, age)) if age < KEYS_AGE_MS => Ok(set),
            Some((set, _)) => {
                if self.may_fetch(now, FETCHES_APART_MS) {
                    let issuer = Arc::clone(self);
                    tokio::spawn(async move {
                        let _only = issuer.fetching.lock().await;
                        issuer.fetch(now).await;
                    });
                }
                Ok(set)
            }
            None => {
                let _only = self.fetching.lock().await;
                if self.kept(now).is_none() && self.may_fetch(now, FIRST_FETCHES_APART_MS) {
                    self.fetch(now).await;
                }
                self.kept(now).map(|(set, _)| set).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Unavailable,
                        "the keys of the token's issuer cannot be fetched now: the server's log has the reason",
                    )
                })
            }
        }
    }

    /// Returns newer keys than `old`, which lack the key of a token; fetches them if they were not
    /// fetched a moment ago. Returns the same ones while the issuer cannot be asked.
    async fn keys_after(self: &Arc<Self>, old: &Arc<KeySet>, now: TimeMs) -> Result<Arc<KeySet>> {
        let _only = self.fetching.lock().await;
        let is_old = self.kept(now).is_none_or(|(set, _)| Arc::ptr_eq(&set, old));
        if is_old && self.may_fetch(now, FETCHES_APART_MS) {
            self.fetch(now).await;
        }
        Ok(self.kept(now).map_or_else(|| Arc::clone(old), |(set, _)| set))
    }

    /// Says whether the last fetch was long enough ago, and notes a new one.
    fn may_fetch(&self, now: TimeMs, apart_ms: u64) -> bool {
        let mut keys = self.keys.lock();
        let is_due =
            keys.tried.is_none_or(|tried| now.0.checked_sub(tried.0).is_none_or(|since| since >= apart_ms));
        if is_due {
            keys.tried = Some(now);
        }
        is_due
    }

    /// Fetches the keys. The last good ones stay while the issuer is away.
    async fn fetch(&self, now: TimeMs) {
        match fetch::keys(&self.rules.url, self.settings.ca.as_deref()).await {
            Ok((set, endpoints)) => {
                let mut keys = self.keys.lock();
                keys.set = Some(Arc::new(set));
                keys.endpoints = endpoints;
                keys.fetched = now;
            }
            Err(error) => tracing::warn!(%error, issuer = self.rules.url, "no keys of an issuer"),
        }
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
