//! Seeds: HOST:PORT of services, resolved again and again.

use std::sync::Arc;

use tokio::net::lookup_host;
use tokio::time::{sleep, timeout};

use super::{DiscoveryCounters, Finder, Found, count};
use crate::limits::{RESOLUTION_MAX, SEED_ADDRESSES_MAX, SEED_PAUSE_MAX, SEED_PAUSE_MIN};

/// Says whether a text is HOST:PORT.
pub(super) fn is_seed(text: &str) -> bool {
    let host_and_port = text.rsplit_once(':');
    host_and_port.is_some_and(|(host, port)| {
        let is_bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && !is_bare_ipv6 && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// Passes on the addresses of a seed for as long as the task lives. Names move to other addresses, so it
/// never ends.
pub(super) async fn follow(seed: String, finder: Finder, counters: Arc<DiscoveryCounters>) {
    let mut pause = SEED_PAUSE_MIN;
    let mut is_resolved = true;
    loop {
        let outcome = match timeout(RESOLUTION_MAX, lookup_host(&seed)).await {
            Ok(Ok(addresses)) => Ok(addresses.take(SEED_ADDRESSES_MAX).collect::<Vec<_>>()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", RESOLUTION_MAX.as_secs())),
        };
        match outcome {
            Ok(addresses) => {
                is_resolved = true;
                addresses.into_iter().for_each(|address| finder(Found { address, service: None }));
            }
            Err(error) => {
                count(&counters.unresolved);
                // Once for each time that it begins to fail.
                if std::mem::replace(&mut is_resolved, false) {
                    tracing::warn!(seed, error, "a seed does not resolve; it is tried again");
                }
            }
        }
        sleep(pause.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
        pause = (pause * 2).min(SEED_PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_host_and_port() {
        for good in ["node1:7430", "10.0.0.1:1", "[2001:db8::1]:7430", "a.example.org:65535"] {
            assert!(is_seed(good), "{good}");
        }
        for bad in ["", "node1", ":7430", "node1:", "node1:0", "node1:65536", "2001:db8::1:7430", "node1:x"] {
            assert!(!is_seed(bad), "{bad}");
        }
    }
}
