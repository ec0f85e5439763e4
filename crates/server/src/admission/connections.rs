//! Slots for connections: bounded in total, and more tightly for clients without credentials
//! (strangers).
//!
//! A network connection starts as a stranger. It takes one of all slots, one of the strangers'
//! slots and one of its address. It gives the last two back once the client has shown credentials.
//! The local socket has slots of its own. So one silent host cannot fill the slots of other hosts,
//! of authenticated clients, or of the administrator's socket. Anonymous clients stay strangers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Bounded, Held};
use crate::settings::Limits;

/// Most excess connections that get a `busy` answer at once; the server just closes further ones.
const REFUSALS_MAX: usize = 64;
/// Most such connections of one address.
const REFUSALS_PER_ADDRESS_MAX: usize = 4;
/// One of so many slots is kept from strangers: a quarter.
const KEPT_FROM_STRANGERS: usize = 4;

/// Counts connections by address: IPv4 addresses one by one, IPv6 addresses by /64, because one
/// host can have a whole /64.
#[derive(Debug)]
pub struct ByAddress {
    max: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// Returns the address that counts as one host: for IPv6 that of its /64 network.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

impl ByAddress {
    /// Makes a count of at most `max` of one address.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(ByAddress { max, counts: Mutex::new(HashMap::new()) })
    }

    /// Takes one for this address; none if its share is used up.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<HeldByAddress> {
        // Without this, a host with a /64 network would be as many hosts as it likes.
        let address = network_of(address);
        let mut counts = self.counts.lock();
        let count = counts.entry(address).or_insert(0);
        if *count >= self.max {
            // The entry was made for this look: refused addresses must not fill the table.
            if *count == 0 {
                counts.remove(&address);
            }
            return None;
        }
        *count += 1;
        Some(HeldByAddress { of: Arc::clone(self), address })
    }
}

/// One connection of an address; dropping it gives it back.
#[derive(Debug)]
pub struct HeldByAddress {
    of: Arc<ByAddress>,
    address: IpAddr,
}

impl Drop for HeldByAddress {
    fn drop(&mut self) {
        let mut counts = self.of.counts.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            // The table has an entry per connected address only, so connections bound it.
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// The slots of all listeners.
#[derive(Debug)]
pub struct ConnectionSlots {
    /// Slots of network connections.
    pub network: Arc<Bounded>,
    /// Slots of the local socket.
    pub local: Arc<Bounded>,
    /// Slots of network clients that have shown no credentials.
    pub strangers: Arc<Bounded>,
    by_address: Arc<ByAddress>,
    refusals: Arc<Bounded>,
    refusals_by_address: Arc<ByAddress>,
}

/// Outcome of an accepted connection. Without one, the server closes the connection at once.
#[derive(Debug)]
pub enum Entrance {
    /// The connection has a slot.
    Taken(ConnectionSlot),
    /// The connection gets `busy` and is closed.
    Refused(RefusalSlot),
}

/// The slot of a connection; dropping it gives it back.
#[derive(Debug)]
pub struct ConnectionSlot {
    _slot: Held,
    stranger: Option<(Held, HeldByAddress)>,
}

impl ConnectionSlot {
    /// Notes that the client has shown credentials, and frees the stranger's slots.
    pub fn known(&mut self) {
        self.stranger = None;
    }
}

/// Held while a connection gets the answer that there is no slot.
#[derive(Debug)]
pub struct RefusalSlot {
    _slots: (Held, Option<HeldByAddress>),
}

impl ConnectionSlots {
    /// Makes the slots with the bounds in `limits`.
    pub fn new(limits: &Limits) -> Self {
        let network = limits.connections_max;
        // However an operator sets the bounds, a quarter of the slots is out of reach of strangers.
        let strangers = (network - network / KEPT_FROM_STRANGERS).min(limits.connections_unauthenticated_max);
        ConnectionSlots {
            network: Bounded::new(network),
            local: Bounded::new(limits.connections_local_max),
            strangers: Bounded::new(strangers),
            by_address: ByAddress::new(limits.connections_unauthenticated_per_address_max),
            refusals: Bounded::new(REFUSALS_MAX),
            refusals_by_address: ByAddress::new(REFUSALS_PER_ADDRESS_MAX),
        }
    }

    /// Returns the number of connections of all listeners.
    pub fn now(&self) -> usize {
        self.network.now() + self.local.now()
    }

    /// Takes a slot for a connection from this address.
    pub fn enter(&self, peer: SocketAddr) -> Option<Entrance> {
        let taken = || {
            // The narrowest bound is first: one host that is refused takes nothing from others, not
            // even for a moment.
            let address = self.by_address.take(peer.ip())?;
            let stranger = self.strangers.take(1)?;
            let slot = self.network.take(1)?;
            Some(ConnectionSlot { _slot: slot, stranger: Some((stranger, address)) })
        };
        taken().map(Entrance::Taken).or_else(|| {
            // An answer costs a task and a handshake, so refusals are bounded as well, by address too.
            let address = self.refusals_by_address.take(peer.ip())?;
            let refusal = self.refusals.take(1)?;
            Some(Entrance::Refused(RefusalSlot { _slots: (refusal, Some(address)) }))
        })
    }

    /// Takes a slot for a connection of the local socket.
    pub fn enter_locally(&self) -> Option<Entrance> {
        if let Some(slot) = self.local.take(1) {
            // The file mode of the socket has judged this client: it is no stranger.
            return Some(Entrance::Taken(ConnectionSlot { _slot: slot, stranger: None }));
        }
        let refusal = self.refusals.take(1)?;
        Some(Entrance::Refused(RefusalSlot { _slots: (refusal, None) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            connections_max: 8,
            connections_local_max: 1,
            connections_unauthenticated_max: 5,
            connections_unauthenticated_per_address_max: 2,
            ..Limits::default()
        }
    }

    fn peer(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    fn taken(entrance: Option<Entrance>) -> Option<ConnectionSlot> {
        match entrance {
            Some(Entrance::Taken(slot)) => Some(slot),
            _ => None,
        }
    }

    #[test]
    fn stranger_takes_slots_of_its_address_until_it_is_known() {
        let slots = ConnectionSlots::new(&limits());
        let mut one = taken(slots.enter(peer("10.0.0.1"))).unwrap();
        let two = taken(slots.enter(peer("::ffff:10.0.0.1"))).unwrap();
        assert!(taken(slots.enter(peer("10.0.0.1"))).is_none(), "both forms are one address");
        assert!(taken(slots.enter(peer("10.0.0.2"))).is_some(), "another address has its own");
        one.known();
        let three = taken(slots.enter(peer("10.0.0.1"))).unwrap();
        assert_eq!((slots.network.now(), slots.strangers.now()), (3, 2));
        drop((one, two, three));
        assert_eq!((slots.now(), slots.strangers.now()), (0, 0));
        assert!(slots.by_address.counts.lock().is_empty(), "nothing is kept of who went");
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let slots = ConnectionSlots::new(&limits());
        let held = (slots.enter(peer("2001:db8::1")), slots.enter(peer("2001:db8::ffff:2")));
        assert!(taken(slots.enter(peer("2001:db8::3"))).is_none());
        assert!(taken(slots.enter(peer("2001:db8:0:1::3"))).is_some());
        drop(held);
    }

    #[test]
    fn strangers_leave_slots_for_the_known_and_for_the_local_socket() {
        let slots = ConnectionSlots::new(&limits());
        let mut known: Vec<ConnectionSlot> = Vec::new();
        let fill = |slots: &ConnectionSlots| -> Vec<ConnectionSlot> {
            (1..9).filter_map(|host| taken(slots.enter(peer(&format!("10.0.1.{host}"))))).collect()
        };
        let strangers = fill(&slots);
        assert_eq!(strangers.len(), 5);
        drop(strangers);
        for host in 1..4 {
            let mut slot = taken(slots.enter(peer(&format!("10.0.0.{host}")))).unwrap();
            slot.known();
            known.push(slot);
        }
        let strangers = fill(&slots);
        assert_eq!(strangers.len(), 5, "all slots are taken now");
        let local = taken(slots.enter_locally()).unwrap();
        assert!(taken(slots.enter_locally()).is_none());
        drop((strangers, known, local));
        // However few slots there are, a part is kept.
        let few = Limits { connections_max: 4, connections_unauthenticated_max: 100, ..limits() };
        assert_eq!(fill(&ConnectionSlots::new(&few)).len(), 3);
    }

    #[test]
    fn refusals_are_bounded_in_all_and_by_address() {
        let none = Limits { connections_unauthenticated_per_address_max: 0, ..limits() };
        let slots = ConnectionSlots::new(&none);
        let refused: Vec<Entrance> = (0..10).filter_map(|_| slots.enter(peer("10.0.0.1"))).collect();
        assert_eq!(refused.len(), REFUSALS_PER_ADDRESS_MAX);
        assert!(refused.iter().all(|entrance| matches!(entrance, Entrance::Refused(_))));
        let others: Vec<Entrance> =
            (0..255).filter_map(|host| slots.enter(peer(&format!("10.0.1.{host}")))).collect();
        assert_eq!(others.len(), REFUSALS_MAX - REFUSALS_PER_ADDRESS_MAX);
    }
}
