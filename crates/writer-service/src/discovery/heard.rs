//! Judges received datagrams: which are news of a service. Its memory is bounded, whatever comes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use exacat_wire::writer::limits::SERVICES_MAX;
use exacat_wire::writer::{Announcement, AnnouncementError, ServiceId};

use super::{DiscoveryCounters, Found, count};
use crate::limits::{ANNOUNCEMENTS_PER_SENDER, FOUND_AGAIN_AFTER};

/// A service that was heard.
struct HeardService {
    address: SocketAddr,
    incarnation: u64,
    passed_on: Instant,
    heard: Instant,
}

/// Allowance of a sender: a token for each announcement.
struct Allowance {
    tokens: u32,
    filled: Instant,
    heard: Instant,
}

/// The services and senders that were heard last.
#[derive(Default)]
pub(super) struct Heard {
    services: BTreeMap<ServiceId, HeardService>,
    senders: BTreeMap<IpAddr, Allowance>,
    is_twin_told: bool,
}

/// Makes room for one more: removes the item that was heard least recently.
fn make_room<K: Ord + Copy, V>(items: &mut BTreeMap<K, V>, heard: impl Fn(&V) -> Instant) {
    if items.len() >= SERVICES_MAX {
        let oldest = items.iter().min_by_key(|(_, item)| heard(item)).map(|(key, _)| *key);
        oldest.and_then(|oldest| items.remove(&oldest));
    }
}

impl Heard {
    /// Takes a datagram. Returns news of another service.
    pub(super) fn take(
        &mut self,
        datagram: &[u8],
        sender: SocketAddr,
        own: &Announcement,
        now: Instant,
        counters: &DiscoveryCounters,
    ) -> Option<Found> {
        let announcement = match Announcement::decode(datagram) {
            Ok(announcement) if announcement.cluster != own.cluster => {
                count(&counters.other_clusters);
                return None;
            }
            Ok(announcement) => announcement,
            Err(AnnouncementError::Version(_)) => {
                count(&counters.other_versions);
                return None;
            }
            Err(_) => {
                count(&counters.foreign);
                return None;
            }
        };
        if announcement.service == own.service {
            self.take_own(&announcement, own, sender, counters);
            return None;
        }
        if !self.allows(sender.ip(), now) {
            count(&counters.limited);
            return None;
        }
        count(&counters.heard);
        let mut address = announcement.address;
        if address.ip().is_unspecified() {
            address.set_ip(sender.ip());
        }
        let is_news = self.services.get(&announcement.service).is_none_or(|known| {
            known.address != address
                || known.incarnation != announcement.incarnation
                || now.saturating_duration_since(known.passed_on) >= FOUND_AGAIN_AFTER
        });
        match self.services.get_mut(&announcement.service) {
            Some(known) if !is_news => known.heard = now,
            Some(known) => {
                let incarnation = announcement.incarnation;
                *known = HeardService { address, incarnation, passed_on: now, heard: now };
            }
            None => {
                make_room(&mut self.services, |service| service.heard);
                let incarnation = announcement.incarnation;
                let service = HeardService { address, incarnation, passed_on: now, heard: now };
                self.services.insert(announcement.service, service);
            }
        }
        is_news.then_some(Found { address, service: Some(announcement.service) })
    }

    /// Tells this service from a twin. After a change of the address the old one is still on its way, so
    /// only the incarnation counts.
    fn take_own(
        &mut self,
        announcement: &Announcement,
        own: &Announcement,
        sender: SocketAddr,
        counters: &DiscoveryCounters,
    ) {
        if announcement.incarnation == own.incarnation {
            count(&counters.own);
            return;
        }
        count(&counters.twins);
        if announcement.incarnation > own.incarnation && !self.is_twin_told {
            self.is_twin_told = true;
            tracing::error!(
                service = %own.service, address = %announcement.address, %sender,
                "another writer service announces the identity of this one; was a volume copied?"
            );
        }
    }

    /// Takes a token of a sender, if it has one.
    fn allows(&mut self, sender: IpAddr, now: Instant) -> bool {
        if !self.senders.contains_key(&sender) {
            make_room(&mut self.senders, |allowance| allowance.heard);
            let allowance = Allowance { tokens: ANNOUNCEMENTS_PER_SENDER, filled: now, heard: now };
            self.senders.insert(sender, allowance);
        }
        let Some(allowance) = self.senders.get_mut(&sender) else { return false };
        allowance.heard = now;
        if now.saturating_duration_since(allowance.filled) >= Duration::from_secs(1) {
            (allowance.tokens, allowance.filled) = (ANNOUNCEMENTS_PER_SENDER, now);
        }
        let has_token = allowance.tokens > 0;
        allowance.tokens = allowance.tokens.saturating_sub(1);
        has_token
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn announcement(service: u128, incarnation: u64, address: &str) -> Announcement {
        Announcement {
            cluster: "here".to_owned(),
            service: ServiceId(service.to_be_bytes()),
            incarnation,
            address: address.parse().unwrap(),
        }
    }

    struct Ear {
        heard: Heard,
        counters: DiscoveryCounters,
        own: Announcement,
        start: Instant,
    }

    impl Ear {
        fn new() -> Self {
            let own = announcement(0, 5, "10.0.0.1:7430");
            Ear {
                heard: Heard::default(),
                counters: DiscoveryCounters::default(),
                own,
                start: Instant::now(),
            }
        }

        fn take(&mut self, of: &Announcement, sender: &str, seconds: u64) -> Option<Found> {
            self.take_bytes(&of.encode(), sender, seconds)
        }

        fn take_bytes(&mut self, datagram: &[u8], sender: &str, seconds: u64) -> Option<Found> {
            let now = self.start + Duration::from_secs(seconds);
            let sender = SocketAddr::new(sender.parse().unwrap(), 7431);
            self.heard.take(datagram, sender, &self.own, now, &self.counters)
        }
    }

    /// Property: a service is passed on when it is new, moves or restarts, and now and then; not each time.
    #[test]
    fn services_are_passed_on_when_something_changes() {
        let mut ear = Ear::new();
        let found = |address: &str| {
            let service = Some(ServiceId(1_u128.to_be_bytes()));
            Some(Found { address: address.parse().unwrap(), service })
        };
        let first = announcement(1, 1, "10.0.0.2:7430");
        assert_eq!(ear.take(&first, "10.0.0.2", 0), found("10.0.0.2:7430"));
        assert_eq!(ear.take(&first, "10.0.0.2", 1), None);
        let moved = announcement(1, 1, "10.0.0.2:7999");
        assert_eq!(ear.take(&moved, "10.0.0.2", 2), found("10.0.0.2:7999"));
        let restarted = announcement(1, 2, "10.0.0.2:7999");
        assert_eq!(ear.take(&restarted, "10.0.0.2", 3), found("10.0.0.2:7999"));
        assert_eq!(ear.take(&restarted, "10.0.0.2", 12), None);
        assert_eq!(ear.take(&restarted, "10.0.0.2", 13), found("10.0.0.2:7999"));
        let anywhere = announcement(1, 3, "0.0.0.0:7430");
        assert_eq!(ear.take(&anywhere, "10.0.0.9", 14), found("10.0.0.9:7430"), "the sender's address");
    }

    #[test]
    fn own_announcements_and_those_of_others_are_counted_and_ignored() {
        let mut ear = Ear::new();
        let own = ear.own.clone();
        assert_eq!(ear.take(&own, "10.0.0.1", 0), None);
        assert_eq!(ear.take(&announcement(0, 6, "10.0.0.7:7430"), "10.0.0.7", 0), None);
        let other = Announcement { cluster: "there".to_owned(), ..announcement(1, 1, "10.0.0.2:7430") };
        assert_eq!(ear.take(&other, "10.0.0.2", 0), None);
        let mut later = announcement(1, 1, "10.0.0.2:7430").encode();
        later[8] += 1;
        assert_eq!(ear.take_bytes(&later, "10.0.0.2", 0), None);
        assert_eq!(ear.take_bytes(b"NOTIFY * HTTP/1.1", "10.0.0.2", 0), None);
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &ear.counters;
        assert_eq!([of(&counters.own), of(&counters.twins)], [1, 1]);
        assert_eq!(
            [of(&counters.other_clusters), of(&counters.other_versions), of(&counters.foreign)],
            [1; 3]
        );
        assert_eq!(of(&counters.heard), 0);
        assert!(ear.heard.services.is_empty() && ear.heard.senders.is_empty(), "they cost no memory");
    }

    /// Property: a sender that invents services reaches its rate and no memory beyond the bound, and hides
    /// none of the others.
    #[test]
    fn flood_of_invented_services_is_bounded_and_hides_nobody() {
        let mut ear = Ear::new();
        for second in 0..20 {
            let passed = (0..1000).filter(|at| {
                let invented = announcement(1000 * u128::from(second + 1) + at, 1, "10.9.9.9:1");
                ear.take(&invented, "10.9.9.9", second).is_some()
            });
            assert_eq!(passed.count(), ANNOUNCEMENTS_PER_SENDER as usize);
            let good = announcement(1, 1, "10.0.0.2:7430");
            let is_due = second % FOUND_AGAIN_AFTER.as_secs() == 0;
            assert_eq!(
                ear.take(&good, "10.0.0.2", second).is_some(),
                is_due,
                "known all the while: {second}"
            );
        }
        for sender in 0..1000_u32 {
            let sender = std::net::Ipv4Addr::from_bits(0x0a80_0000 + sender).to_string();
            ear.take(&announcement(1_000_000, 1, "10.9.9.9:1"), &sender, 20);
        }
        assert_eq!((ear.heard.services.len(), ear.heard.senders.len()), (SERVICES_MAX, SERVICES_MAX));
    }
}
