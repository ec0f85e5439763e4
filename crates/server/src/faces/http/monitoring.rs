//! Places of monitoring: connections beyond the slots of all clients may read metrics and health there.
//!
//! A new connection always gets a place. If its address has used up its share, or all places are taken,
//! the oldest one ends. So clients that hold places and ask for nothing keep nobody out for long.

use std::collections::VecDeque;
use std::net::IpAddr;

use tokio::task::AbortHandle;

use crate::admission::network_of;

/// One of so many places is kept from a single address: a quarter.
const KEPT_FROM_ONE: usize = 4;

/// The connections in the places, the oldest one first.
pub(super) struct Monitoring {
    most: usize,
    of_one: usize,
    taken: VecDeque<(IpAddr, AbortHandle)>,
}

impl Monitoring {
    /// Makes so many places.
    pub(crate) fn new(most: usize) -> Self {
        Monitoring { most, of_one: most - most / KEPT_FROM_ONE, taken: VecDeque::new() }
    }

    /// Gives a place to a connection of this address, which `begin` starts. Ends the oldest one if
    /// there is none left.
    pub(crate) fn admit(&mut self, address: IpAddr, begin: impl FnOnce() -> AbortHandle) {
        let address = network_of(address);
        self.taken.retain(|(_, connection)| !connection.is_finished());
        let own = |(of, _): &(IpAddr, AbortHandle)| *of == address;
        let oldest = if self.taken.iter().filter(|taken| own(taken)).count() >= self.of_one {
            self.taken.iter().position(own)
        } else {
            (self.taken.len() >= self.most).then_some(0)
        };
        if let Some((_, connection)) = oldest.and_then(|oldest| self.taken.remove(oldest)) {
            connection.abort();
        }
        self.taken.push_back((address, begin()));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::JoinHandle;

    use super::*;

    fn admit(places: &mut Monitoring, address: &str) -> JoinHandle<()> {
        let task = tokio::spawn(pending());
        places.admit(address.parse().unwrap(), || task.abort_handle());
        task
    }

    async fn ended(task: JoinHandle<()>) -> bool {
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, task)
            .await
            .is_ok_and(|ended| ended.is_err_and(|error| error.is_cancelled()))
    }

    #[tokio::test]
    async fn newcomer_takes_the_place_of_the_oldest_of_its_address() {
        let mut places = Monitoring::new(4);
        let other = admit(&mut places, "192.0.2.1");
        let mut own: VecDeque<_> = (0..3).map(|_| admit(&mut places, "192.0.2.2")).collect();
        own.push_back(admit(&mut places, "192.0.2.2"));
        assert!(ended(own.pop_front().unwrap()).await);
        assert!(!other.is_finished() && own.iter().all(|task| !task.is_finished()));
        assert_eq!(places.taken.len(), 4);
    }

    #[tokio::test]
    async fn newcomer_takes_the_oldest_place_if_all_are_taken() {
        let mut places = Monitoring::new(4);
        let mut tasks: VecDeque<_> =
            (0..4).map(|host| admit(&mut places, &format!("192.0.2.{host}"))).collect();
        tasks.push_back(admit(&mut places, "198.51.100.1"));
        assert!(ended(tasks.pop_front().unwrap()).await);
        assert!(tasks.iter().all(|task| !task.is_finished()));
        assert_eq!(places.taken.len(), 4);
    }

    #[tokio::test]
    async fn places_of_ended_connections_are_free() {
        let mut places = Monitoring::new(4);
        let task = admit(&mut places, "192.0.2.1");
        task.abort();
        assert!(ended(task).await);
        let tasks: Vec<_> = (2..6).map(|host| admit(&mut places, &format!("192.0.2.{host}"))).collect();
        assert!(tasks.iter().all(|task| !task.is_finished()));
    }
}
