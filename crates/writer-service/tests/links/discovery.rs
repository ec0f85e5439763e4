//! Discovery by multicast and by seeds.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_testkit::waiting::{eventually, found};
use exacat_wire::writer::{Announcement, ServiceId};
use exacat_writer_service::{Discovery, DiscoverySettings, Found, MulticastSettings};
use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

use crate::node::{LOOPBACK, Node, group, id, plain};

fn of(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Property: services of one cluster are linked in all directions. Those of another cluster in the same
/// group are not, and nobody is linked to itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_a_group_find_their_cluster_only() {
    let multicast = group();
    let trust = plain();
    let one = Node::new(1, &trust).await.in_group("here", multicast);
    let two = Node::new(2, &trust).await.in_group("here", multicast);
    let three = Node::new(3, &trust).await.in_group("here", multicast);
    let stranger = Node::new(4, &trust).await.in_group("there", multicast);
    for (from, to) in [(&one, &two), (&two, &one), (&one, &three), (&three, &one), (&two, &three)] {
        from.reaches(to).await;
    }
    let counters = one.discovery.as_ref().unwrap().counters();
    eventually("announcements of all", || of(&counters.own) > 1 && of(&counters.other_clusters) > 1).await;
    assert_eq!(of(&counters.twins), 0);
    assert_eq!(one.peers.status().len(), 2, "{:?}", one.peers);
    assert_eq!(stranger.peers.status(), []);
    assert!(one.inbox.lock().iter().all(|(from, _)| *from != id(4) && *from != id(1)));
}

/// Property: seeds do without multicast. The own address among them is no peer, and a name is resolved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeds_link_services_and_the_own_address_is_no_peer() {
    let trust = plain();
    let mut nodes = Vec::new();
    for number in 1..=3 {
        nodes.push(Node::new(number, &trust).await);
    }
    let mut seeds: Vec<String> = nodes.iter().map(|node| node.address.to_string()).collect();
    seeds.push("no-such-host.invalid:7430".to_owned());
    seeds.push(format!("localhost:{}", nodes[0].address.port()));
    for node in &mut nodes {
        let settings = DiscoverySettings { seeds: seeds.clone(), ..node.settings("here", 1) };
        node.discover(settings);
    }
    for from in &nodes {
        for to in nodes.iter().filter(|to| to.service != from.service) {
            from.reaches(to).await;
        }
        assert_eq!(from.peers.status().len(), 2);
    }
    let counters = nodes[0].discovery.as_ref().unwrap().counters();
    eventually("a failed resolution", || of(&counters.unresolved) > 0).await;
}

/// Property: a seed that does not answer at first is found once it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seed_that_starts_later_is_found() {
    let trust = plain();
    let free = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut one = Node::new(1, &trust).await;
    let settings = DiscoverySettings { seeds: vec![address.to_string()], ..one.settings("here", 1) };
    one.discover(settings);
    eventually("a reason", || one.peers.unanswered().iter().any(|of| of.address == address)).await;
    let two = Node::at(2, &trust, address).await;
    one.reaches(&two).await;
    assert_eq!(one.peers.unanswered(), []);
}

/// Datagrams of one service that pass to another group, with a loss.
struct Relay {
    is_ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    /// Passes on every `keep`-th announcement of a service.
    fn start(from: MulticastSettings, to: MulticastSettings, of: ServiceId, keep: usize) -> Relay {
        let socket = member(from);
        socket.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_ended);
        let thread = std::thread::spawn(move || {
            let (mut bytes, mut count) = ([0; 2000], 0);
            while !ended.load(Ordering::Relaxed) {
                let Ok((length, _)) = socket.recv_from(&mut bytes) else { continue };
                // The other relay's datagrams come here as well: they would go round for ever.
                let is_of = Announcement::decode(&bytes[..length]).is_ok_and(|heard| heard.service == of);
                count += usize::from(is_of);
                if is_of && count % keep == 0 {
                    socket.send_to(&bytes[..length], to.group).unwrap();
                }
            }
        });
        Relay { is_ended, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Returns a socket in a group.
fn member(settings: MulticastSettings) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::V4(settings.group).into()).unwrap();
    socket.join_multicast_v4(settings.group.ip(), &LOOPBACK).unwrap();
    socket.set_multicast_if_v4(&LOOPBACK).unwrap();
    socket.into()
}

/// Property: two services find each other when most of their datagrams are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_datagrams_only_delay_discovery() {
    let (left, right, trust) = (group(), group(), plain());
    let one = Node::new(1, &trust).await.in_group("here", left);
    let two = Node::new(2, &trust).await.in_group("here", right);
    let _there = Relay::start(left, right, id(1), 3);
    let _back = Relay::start(right, left, id(2), 3);
    one.reaches(&two).await;
    two.reaches(&one).await;
}

/// Property: while strangers flood the group with all kinds of datagrams, two services find each other, and
/// the memory for what is heard is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_strangers_delays_nobody_for_long() {
    let (multicast, trust) = (group(), plain());
    let is_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&is_ended);
    let flood = std::thread::spawn(move || {
        let socket = member(multicast);
        let mut sent = 0_u64;
        while !ended.load(Ordering::Relaxed) {
            sent += 1;
            let invented = Announcement {
                // A few of this cluster: as many as one address may send.
                cluster: if sent.is_multiple_of(1000) { "here" } else { "there" }.to_owned(),
                service: ServiceId(u128::from(sent | 1 << 60).to_be_bytes()),
                incarnation: sent,
                // Nobody listens there.
                address: "127.0.0.1:1".parse().unwrap(),
            };
            let datagram =
                if sent.is_multiple_of(2) { invented.encode() } else { vec![b'x'; (sent % 1500) as usize] };
            // A full buffer is no fault of the test.
            let _ = socket.send_to(&datagram, multicast.group);
            // Ten thousand a second: more would fill the buffers of the system, which nobody here bounds.
            if sent.is_multiple_of(50) {
                std::thread::park_timeout(std::time::Duration::from_millis(5));
            }
        }
        sent
    });
    let one = Node::new(1, &trust).await.in_group("here", multicast);
    let counters = one.discovery.as_ref().unwrap().counters();
    eventually("the flood", || of(&counters.foreign) > 1000 && of(&counters.other_clusters) > 1000).await;
    let two = Node::new(2, &trust).await.in_group("here", multicast);
    one.reaches(&two).await;
    two.reaches(&one).await;
    assert!(one.peers.status().len() < exacat_wire::writer::limits::SERVICES_MAX);
    is_ended.store(true, Ordering::Relaxed);
    assert!(flood.join().unwrap() > 2000);
}

/// Property: a change of the address is announced at once, and passed on.
#[tokio::test]
async fn change_of_address_is_announced_at_once() {
    let multicast = group();
    let settings = |service: u8, port: u16| DiscoverySettings {
        service: id(service),
        cluster: "here".to_owned(),
        incarnation: 1,
        address: SocketAddr::from(([0, 0, 0, 0], port)),
        multicast: Some(multicast),
        seeds: Vec::new(),
    };
    let heard: Arc<Mutex<Vec<Found>>> = Arc::default();
    let sink = Arc::clone(&heard);
    let _one = Discovery::start(settings(1, 1), move |found| sink.lock().push(found)).unwrap();
    let two = Discovery::start(settings(2, 2), |_| {}).unwrap();
    let port_heard = async |port| {
        found("an announcement", async || heard.lock().iter().find(|of| of.address.port() == port).cloned())
            .await
    };
    let first = port_heard(2).await;
    assert_eq!(first, Found { address: "127.0.0.1:2".parse().unwrap(), service: Some(id(2)) });
    let before = of(&two.counters().sent);
    for port in 3..9 {
        two.announce(SocketAddr::from(([0, 0, 0, 0], port)));
        port_heard(port).await;
    }
    assert!(of(&two.counters().sent) >= before + 6);
}

#[tokio::test]
async fn wrong_settings_are_refused_with_the_reason() {
    let settings = || DiscoverySettings {
        service: id(1),
        cluster: "here".to_owned(),
        incarnation: 1,
        address: "127.0.0.1:1".parse().unwrap(),
        multicast: None,
        seeds: Vec::new(),
    };
    let refused = |settings: DiscoverySettings, reason: &str| {
        let error = Discovery::start(settings, |_| {}).err().expect("refused").to_string();
        assert!(error.contains(reason), "{error}");
    };
    let many = exacat_writer_service::limits::SEEDS_MAX;
    let seeds = |count| vec!["node1:7430".to_owned(); count];
    assert!(Discovery::start(DiscoverySettings { seeds: seeds(many), ..settings() }, |_| {}).is_ok());
    refused(DiscoverySettings { seeds: seeds(many + 1), ..settings() }, "at most 64");
    refused(DiscoverySettings { seeds: vec!["node1".to_owned()], ..settings() }, "HOST:PORT");
    refused(DiscoverySettings { cluster: String::new(), ..settings() }, "1 to 64 bytes");
    refused(DiscoverySettings { cluster: "x".repeat(65), ..settings() }, "1 to 64 bytes");
    let no_group = MulticastSettings { group: "10.0.0.1:7430".parse().unwrap(), interface: None };
    refused(DiscoverySettings { multicast: Some(no_group), ..settings() }, "no multicast address");
    let no_interface = MulticastSettings { interface: Some("192.0.2.77".parse().unwrap()), ..group() };
    refused(DiscoverySettings { multicast: Some(no_interface), ..settings() }, "address 192.0.2.77");
}
