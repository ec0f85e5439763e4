//! Sends and receives announcements in a multicast group.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use exacat_wire::writer::Announcement;
use exacat_wire::writer::limits::ANNOUNCEMENT_BYTES_MAX;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::heard::Heard;
use super::{DiscoveryCounters, Finder, MulticastSettings, count};
use crate::limits::{
    ANNOUNCE_EVERY, DATAGRAM_BUFFER_BYTES, DATAGRAMS_PER_TURN, DATAGRAMS_REST, REJOIN_AFTER,
};

/// Makes the socket of a group.
pub(super) fn join(settings: MulticastSettings) -> io::Result<UdpSocket> {
    let group = *settings.group.ip();
    if !group.is_multicast() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no multicast address"));
    }
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Several services of one host share the port.
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(DATAGRAM_BUFFER_BYTES)?;
    socket.set_nonblocking(true)?;
    // Bound to the group: datagrams to the host, and to other groups of the port, do not arrive.
    socket.bind(&SocketAddr::V4(settings.group).into())?;
    let interface = settings.interface.unwrap_or(Ipv4Addr::UNSPECIFIED);
    socket.join_multicast_v4(&group, &interface)?;
    if let Some(interface) = settings.interface {
        // Without this the datagrams leave by the default route.
        socket.set_multicast_if_v4(&interface)?;
    }
    socket.set_multicast_ttl_v4(1)?;
    // Services of one host hear each other, and this one hears that the group works.
    socket.set_multicast_loop_v4(true)?;
    UdpSocket::from_std(socket.into())
}

/// Returns the error of a join with its remedy.
pub(super) fn explained(settings: MulticastSettings, error: &io::Error) -> io::Error {
    let of = match settings.interface {
        Some(interface) => format!("on the interface with the address {interface}"),
        None => "by the default route; name the address of an interface if there is none".to_owned(),
    };
    io::Error::new(error.kind(), format!("cannot join the multicast group {} {of}: {error}", settings.group))
}

/// Announces this service, and passes on the others.
pub(super) async fn run(
    settings: MulticastSettings,
    socket: UdpSocket,
    mut announcement: watch::Receiver<Announcement>,
    finder: Finder,
    counters: Arc<DiscoveryCounters>,
) {
    let mut socket = socket;
    let mut heard = Heard::default();
    let own = announcement.clone();
    loop {
        tokio::select! {
            () = send(&socket, settings, &mut announcement, &counters) => return,
            () = receive(&socket, &mut heard, &own, &finder, &counters) => {}
        }
        // An interface that went away takes the membership with it.
        count(&counters.rejoined);
        match join(settings) {
            Ok(joined) => socket = joined,
            Err(error) => {
                tracing::warn!(error = %explained(settings, &error), "discovery by multicast is interrupted");
                sleep(ANNOUNCE_EVERY).await;
            }
        }
    }
}

/// Sends announcements until the discovery ends.
async fn send(
    socket: &UdpSocket,
    settings: MulticastSettings,
    announcement: &mut watch::Receiver<Announcement>,
    counters: &DiscoveryCounters,
) {
    let mut ticks = interval(ANNOUNCE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            changed = announcement.changed() => if changed.is_err() {
                return;
            }
        }
        let datagram = announcement.borrow_and_update().encode();
        // A full buffer or a link that is down: the next one comes soon.
        match socket.send_to(&datagram, settings.group).await {
            Ok(_) => count(&counters.sent),
            Err(error) => {
                count(&counters.unsent);
                tracing::debug!(%error, group = %settings.group, "an announcement was not sent");
            }
        }
    }
}

/// Receives datagrams until no announcement has come for long, not even an own one.
async fn receive(
    socket: &UdpSocket,
    heard: &mut Heard,
    own: &watch::Receiver<Announcement>,
    finder: &Finder,
    counters: &DiscoveryCounters,
) {
    // One byte more shows a datagram that is too long.
    let mut datagram = [0; ANNOUNCEMENT_BYTES_MAX + 1];
    let mut left = DATAGRAMS_PER_TURN;
    let mut turn_ends = Instant::now() + DATAGRAMS_REST;
    let mut last_good = Instant::now();
    loop {
        let received = tokio::time::timeout(REJOIN_AFTER, socket.recv_from(&mut datagram)).await;
        let now = Instant::now();
        if let Ok(Ok((bytes, sender))) = received {
            let own = own.borrow().clone();
            let before = good(counters);
            if let Some(found) = heard.take(&datagram[..bytes], sender, &own, now, counters) {
                finder(found);
            }
            if good(counters) != before {
                last_good = now;
            }
        } else if let Ok(Err(error)) = received {
            tracing::debug!(%error, "no datagram was received");
            sleep(DATAGRAMS_REST).await;
        }
        if now.saturating_duration_since(last_good) >= REJOIN_AFTER {
            return;
        }
        if now >= turn_ends {
            (left, turn_ends) = (DATAGRAMS_PER_TURN, now + DATAGRAMS_REST);
        }
        left -= 1;
        if left == 0 {
            sleep(DATAGRAMS_REST).await;
            (left, turn_ends) = (DATAGRAMS_PER_TURN, Instant::now() + DATAGRAMS_REST);
        }
    }
}

/// Returns the number of announcements that show that the group works.
fn good(counters: &DiscoveryCounters) -> u64 {
    use std::sync::atomic::Ordering::Relaxed;
    counters.heard.load(Relaxed) + counters.own.load(Relaxed)
}
