//! Connections by the address of their clients, bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Most connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// All together.
    pub all: usize,
    /// From one address.
    pub per_address: usize,
}

/// Connections that are open.
pub(crate) struct Visitors {
    limits: ConnectionLimits,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection; dropping it ends it.
pub(crate) struct Visit {
    of: Arc<Visitors>,
    from: IpAddr,
}

impl Visitors {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Visitors { limits, counts: Mutex::default() }
    }

    /// Takes a place for a connection; none if all are taken.
    pub(crate) fn enter(self: &Arc<Self>, from: IpAddr) -> Option<Visit> {
        let mut counts = self.counts.lock();
        let is_full = counts.values().sum::<usize>() >= self.limits.all;
        let count = counts.get(&from).copied().unwrap_or(0);
        if is_full || count >= self.limits.per_address {
            return None;
        }
        counts.insert(from, count + 1);
        Some(Visit { of: Arc::clone(self), from })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut counts = self.of.counts.lock();
        if let Some(count) = counts.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_at_their_limits_are_refused_until_one_ends() {
        let visitors = Arc::new(Visitors::new(ConnectionLimits { all: 3, per_address: 2 }));
        let [one, two, three] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
        let first = visitors.enter(one);
        let _second = visitors.enter(one).unwrap();
        assert!(first.is_some() && visitors.enter(one).is_none(), "two of one address");
        let _third = visitors.enter(two).unwrap();
        assert!(visitors.enter(three).is_none(), "three of all");
        drop(first);
        assert!(visitors.enter(one).is_some());
        drop((_second, _third));
        assert!(visitors.counts.lock().is_empty(), "nothing is kept of clients that left");
    }
}
