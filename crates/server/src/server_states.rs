//! The servers of a catalogue: each shows its state to the others, through the store.

use std::sync::Arc;
use std::time::Duration;

use exacat_activity::Recorded;
use exacat_model::Operation;

use crate::servers::{STATE_BYTES_MAX, ServerState, Servers};
use crate::service::{Phase, Service};

/// Interval at which a server shows its state, and length of the time that its rates are of.
const SHOWN_EVERY: Duration = Duration::from_secs(10);
/// Time in which the store must take a state, or give those of others.
const STORE_TIME: Duration = Duration::from_secs(5);
/// Most servers that are shown.
const SERVERS_MAX: usize = 256;

/// Shows the state of this server at intervals, until it stops.
pub(crate) async fn show_state(service: Arc<Service>) {
    let Some(servers) = service.servers.get() else { return };
    loop {
        let state = service.state(servers);
        let bytes = serde_json::to_vec(&state).unwrap_or_default();
        if bytes.len() <= STATE_BYTES_MAX {
            let showing = service.catalogue.store().show_state(&bytes);
            match tokio::time::timeout(STORE_TIME, showing).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "this server could not show its state to others"),
                Err(_) => tracing::debug!("the store took no state of this server in time"),
            }
        }
        tokio::select! {
            () = service.reached(Phase::Stopping) => return,
            () = tokio::time::sleep(SHOWN_EVERY) => servers.tick(),
        }
    }
}

impl Service {
    /// Returns the states of all servers of the catalogue that are shown, this one first.
    pub(crate) async fn states(&self) -> Vec<ServerState> {
        let Some(servers) = self.servers.get() else { return Vec::new() };
        let mut states = vec![self.state(servers)];
        let others = self.catalogue.store().states_of_others(SERVERS_MAX - 1);
        match tokio::time::timeout(STORE_TIME, others).await {
            Ok(Ok(others)) => {
                let mut others: Vec<ServerState> =
                    others.iter().filter_map(|bytes| ServerState::read(bytes)).collect();
                others.sort_by(|one, other| one.name.cmp(&other.name));
                states.extend(others);
            }
            Ok(Err(error)) => tracing::warn!(%error, "the states of other servers could not be read"),
            Err(_) => tracing::warn!("the store gave no states of other servers in time"),
        }
        states
    }

    fn state(&self, servers: &Servers) -> ServerState {
        let store = self.catalogue.store();
        let is = if store.failure().is_some() {
            "log failed"
        } else if self.is_serving() && self.is_drained() {
            "drained"
        } else if self.is_serving() {
            "serving"
        } else {
            "stopping"
        };
        let mut state = ServerState {
            is: is.to_owned(),
            up_seconds: self.started.elapsed().as_secs(),
            revision: store.seen_revision().0,
            ..servers.of_machine()
        };
        let Some((from, lately)) = self.history.lately(SHOWN_EVERY) else { return state };
        let milliseconds = lately.at.0.saturating_sub(from.0).max(1);
        let rate = |number: u64| number.saturating_mul(1_000_000) / milliseconds;
        let mut times = Recorded::default();
        for one in &lately.operations {
            state.requests_milli += rate(one.requests);
            match changes(&one.name) {
                true => state.changes_milli += rate(one.items),
                false => state.reads_milli += rate(one.items),
            }
            times.add(&one.times.0);
        }
        state.p99_us = times.quantile_us(0.99);
        let age = lately.metrics.iter().find(|(name, _)| name == "head_age_ms");
        state.revision_age_ms = age.map_or(0, |(_, age)| *age);
        state
    }
}

/// True if an operation changes anything.
fn changes(name: &str) -> bool {
    Operation::NAMES.iter().zip(Operation::CHANGING).any(|(known, changes)| *known == name && changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_reads_or_changes() {
        assert!(changes("register") && !changes("stat") && !changes("nothing"));
    }
}
