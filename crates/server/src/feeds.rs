//! The change feeds of this server: opened beside the embedded store, and controlled by operations.

use std::path::PathBuf;
use std::sync::Arc;

use exacat_catalogue::{Caller, Catalogue};
use exacat_feed::limits::Pace;
use exacat_feed::{Feeds, FeedsSettings};
use exacat_model::answer::StatusPart;
use exacat_model::{
    Answer, Error, ErrorKind, Feed, FeedAction, FeedName, FeedSpec, FeedState, Guid, Operation, Result,
};
use exacat_store::Sample;

use crate::metric_table as table;
use crate::settings::{ServerSettings, StoreChoice};

/// An operation on feeds.
pub(crate) enum FeedCall {
    Create { name: FeedName, spec: Box<FeedSpec>, owner: String },
    List { name: Option<FeedName> },
    Control { name: FeedName, action: FeedAction },
}

impl FeedCall {
    /// Returns the call in an operation, if it is one on feeds.
    pub(crate) fn of(operation: &Operation, caller: &Caller) -> Option<Self> {
        Some(match operation {
            Operation::FeedCreate { name, spec } => {
                let owner = caller.name().map_or_else(String::new, ToString::to_string);
                FeedCall::Create { name: name.clone(), spec: spec.clone(), owner }
            }
            Operation::FeedList { name } => FeedCall::List { name: name.clone() },
            Operation::FeedControl { name, action } => {
                FeedCall::Control { name: name.clone(), action: **action }
            }
            _ => return None,
        })
    }

    /// Carries the call out, after the catalogue permitted it with `done`.
    pub(crate) async fn answer(self, feeds: Option<&Arc<Feeds>>, done: Answer) -> Result<Answer> {
        let Some(feeds) = feeds else {
            return match self {
                FeedCall::List { name: None } => Ok(Answer::Feeds(Vec::new())),
                _ => Err(none_here()),
            };
        };
        match self {
            FeedCall::Create { name, spec, owner } => feeds.create(name, *spec, owner).await?,
            FeedCall::Control { name, action } => feeds.control(name, action).await?,
            FeedCall::List { name } => return feeds.list(name.as_ref()).await.map(Answer::Feeds),
        }
        Ok(done)
    }
}

fn none_here() -> Error {
    Error::new(
        ErrorKind::Invalid,
        "a feed needs a server with an embedded store that takes changes: this one shares a cluster, or is a \
         snapshot; on a cluster, read GET /changes of the REST API instead",
    )
}

/// Opens the feeds of a server that has the only store of its catalogue; none on others.
pub(crate) fn open(
    settings: &ServerSettings,
    directory: PathBuf,
    catalogue: &Arc<Catalogue>,
    catalogue_id: Guid,
) -> Result<Option<Arc<Feeds>>> {
    if !matches!(settings.store, StoreChoice::Embedded) || catalogue.store().read_only().is_some() {
        return Ok(None);
    }
    let (clock, ca) = (Arc::clone(&settings.clock), settings.storage_ca.clone());
    let feeds = Feeds::open(FeedsSettings {
        directory,
        forbidden: settings.directory.clone(),
        catalogue: catalogue_id,
        store: Arc::clone(catalogue.store()),
        now: Arc::new(move || clock.trusted()),
        tls: Arc::new(move || crate::tls::connector(ca.as_deref())),
        pace: Pace::default(),
    })?;
    Ok(Some(feeds))
}

/// Returns all feeds; none if they cannot be read now.
async fn all(feeds: Option<&Arc<Feeds>>) -> Vec<Feed> {
    match feeds {
        Some(feeds) => feeds.list(None).await.unwrap_or_default(),
        None => Vec::new(),
    }
}

/// Returns the part of a status; none without feeds.
pub(crate) async fn status_part(feeds: Option<&Arc<Feeds>>) -> Option<StatusPart> {
    let all = all(feeds).await;
    if all.is_empty() {
        return None;
    }
    let in_state = |state| all.iter().filter(|feed| feed.state == state).count() as u64;
    let mut metrics: Vec<(String, u64)> =
        FeedState::ALL.map(|state| (format!("feeds_{}", state.name()), in_state(state))).to_vec();
    let most = |of: fn(&Feed) -> u64| all.iter().map(of).max().unwrap_or(0);
    metrics.push(("lag_changes_max".to_owned(), most(|feed| feed.lag_changes)));
    metrics.push(("lag_ms_max".to_owned(), most(|feed| feed.lag_ms)));
    let notes = all.iter().filter(|feed| !feed.reason.is_empty() || feed.state != FeedState::Running);
    let notes = notes.map(|feed| match feed.reason.as_str() {
        "" => format!("feed {} is {}", feed.name, feed.state.name()),
        reason => format!("feed {} is {}: {reason}", feed.name, feed.state.name()),
    });
    Some(StatusPart { part: "feeds".to_owned(), metrics, notes: notes.collect() })
}

/// Returns the metrics of feeds for Prometheus.
pub(crate) async fn samples(feeds: Option<&Arc<Feeds>>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for feed in all(feeds).await {
        let name = || feed.name.to_string();
        samples.extend([
            table::FEED_LAG_CHANGES.of(name(), feed.lag_changes),
            table::FEED_LAG_TIME.of(name(), feed.lag_ms),
            table::FEED_LAG_BYTES.of(name(), feed.lag_bytes),
            table::FEED_EVENTS.of(name(), feed.events),
            table::FEED_FAILURES.of(name(), feed.failures),
        ]);
        samples.extend(FeedState::ALL.map(|state| {
            table::FEED_STATE.with([name().into(), state.name().into()], u64::from(feed.state == state))
        }));
    }
    samples
}
