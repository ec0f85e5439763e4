//! A run of an agent: items, settings, and the results that reached the service.

use std::time::Duration;

use exacat_replay::content::Content;
use exacat_replay::run::outcome::{AccessResult, Outcome};
use exacat_replay::run::shapes::ReplayItem;
use exacat_replay_service::agent::{AccessTime, Agent, AgentSettings, AgentSummary, CacheSettings};
use tokio::sync::watch;

use crate::service::Service;

/// Longest time of a test's run.
const RUN_TIME: Duration = Duration::from_secs(60);

/// Returns an item that is due at once.
pub(crate) fn item(number: u64, name: &str, size: u64) -> ReplayItem {
    ReplayItem {
        item: number,
        attempt: 1,
        due_us: 0,
        lease_us: 60_000_000,
        name: name.to_owned(),
        size,
        adler32: Some(Content::default().adler32(name, size)),
        reads: "-".to_owned(),
        site: String::new(),
    }
}

/// Returns settings for a service and a cache. Bytes are compared with those of the files.
pub(crate) fn settings(service: &Service, cache: &str) -> AgentSettings {
    let mut cache = CacheSettings::new(cache);
    cache.verify_content = true;
    let mut settings = AgentSettings::new(service.url(), "run 1", "agent-1", cache);
    settings.access_time = AccessTime { base: Duration::from_secs(20), bytes_per_second: 1_000_000 };
    settings.service_patience = Duration::from_secs(20);
    settings
}

/// Runs an agent to its end.
pub(crate) async fn run(settings: AgentSettings) -> exacat_model::Result<AgentSummary> {
    let (_keep, stop) = watch::channel(false);
    tokio::time::timeout(RUN_TIME, Agent::run(settings, stop)).await.expect("the agent ends")
}

/// Runs an agent with some items. Returns the results in the order of the items.
pub(crate) async fn results_of(
    cache: &str,
    items: Vec<ReplayItem>,
    set: impl FnOnce(&mut AgentSettings),
) -> Vec<AccessResult> {
    let service = Service::start(items).await;
    let mut settings = settings(&service, cache);
    set(&mut settings);
    let summary = run(settings).await.unwrap();
    let results: Vec<AccessResult> = service.book.lock().results.values().cloned().collect();
    assert_eq!(summary.accesses, results.len() as u64, "{summary:?}");
    let failed = results.iter().filter(|result| result.outcome != Outcome::Ok).count();
    assert_eq!((summary.failed(), summary.unreported), (failed as u64, 0));
    results
}

/// Runs an agent with one item.
pub(crate) async fn result_of(
    cache: &str,
    item: ReplayItem,
    set: impl FnOnce(&mut AgentSettings),
) -> AccessResult {
    let mut results = results_of(cache, vec![item], set).await;
    assert_eq!(results.len(), 1);
    results.remove(0)
}
