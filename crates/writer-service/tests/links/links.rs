//! Links: reconnection, bounds, false addresses, peers that hang.

use std::sync::atomic::Ordering;

use exacat_testkit::waiting::{eventually, soon};
use exacat_wire::writer::limits::SERVICES_MAX;
use exacat_wire::writer::{Frame, ServiceId, Table};
use exacat_writer_service::Found;

use crate::node::{Node, group, id, plain, question};

fn found(node: &Node, service: ServiceId) -> Found {
    Found { address: node.address, service: Some(service) }
}

/// Property: a service that restarts under its identity, at another port, is linked again by all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_that_restarts_at_another_port_is_linked_again() {
    let (multicast, trust) = (group(), plain());
    let one = Node::new(1, &trust).await.in_group("here", multicast);
    let two = Node::new(2, &trust).await.in_group("here", multicast);
    one.reaches(&two).await;
    let old = two.address;
    two.kill().await;
    eventually("the end of the link", || !one.is_linked(id(2))).await;
    assert!(!one.status_of(id(2)).unwrap().reason.is_empty());
    let mut two = Node::new(2, &trust).await;
    assert_ne!(old, two.address);
    let settings =
        exacat_writer_service::DiscoverySettings { multicast: Some(multicast), ..two.settings("here", 2) };
    two.discover(settings);
    one.reaches(&two).await;
    two.reaches(&one).await;
    let status = one.status_of(id(2)).unwrap();
    assert_eq!((status.connections, status.reason.as_str()), (2, ""));
}

/// Property: a table gives addresses. One that two services learn about a third links them to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_spread_addresses_and_are_sent_on_each_connection() {
    let trust = plain();
    let mut one = Node::new(1, &trust).await;
    let two = Node::new(2, &trust).await;
    let table = Table(vec![one.record(1), two.record(1)]);
    one.peers.gossip(table.clone());
    one.linked(id(2)).await;
    let has_table = |node: &Node, table: &Table| {
        let wanted = (id(1), Frame::Table(table.clone()));
        node.inbox.lock().contains(&wanted)
    };
    eventually("the table", || has_table(&two, &table)).await;
    let received = soon("the table of the other", one.answers.recv()).await;
    assert_eq!(received, Some((id(2), Frame::Table(Table::default()))));
    assert_eq!(one.peers.status().len(), 1, "it has no link to itself");
    let newer = Table(vec![one.record(2), two.record(2)]);
    one.peers.gossip(newer.clone());
    eventually("the newer table", || has_table(&two, &newer)).await;
}

/// Property: false announcements of a service neither break its link nor hide its address afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_addresses_change_nothing() {
    let trust = plain();
    let one = Node::new(1, &trust).await;
    let two = Node::new(2, &trust).await;
    let three = Node::new(3, &trust).await;
    one.peers.found(found(&two, id(2)));
    one.linked(id(2)).await;
    let lie = || {
        one.peers.found(found(&three, id(2)));
        for port in 1..50 {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
            one.peers.found(Found { address, service: Some(id(2)) });
        }
    };
    lie();
    assert_eq!(one.status_of(id(2)).unwrap().connections, 1);
    let address = two.address;
    two.kill().await;
    eventually("the end of the link", || !one.is_linked(id(2))).await;
    lie();
    let two = Node::at(2, &trust, address).await;
    one.reaches(&two).await;
    assert_eq!(one.status_of(id(2)).unwrap().address, Some(address));
}

/// Property: an address with another service than expected counts as that one's, and no frame goes to it
/// under the wrong name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_of_another_service_is_learned_as_such() {
    let trust = plain();
    let one = Node::new(1, &trust).await;
    let two = Node::new(2, &trust).await;
    one.peers.found(found(&two, id(9)));
    one.linked(id(2)).await;
    eventually("a reason", || one.status_of(id(9)).is_some_and(|of| of.reason.contains("is there"))).await;
    one.peers.tell(id(9), &question(id(1), 9));
    one.reaches(&two).await;
    assert!(!one.is_linked(id(9)));
    assert!(!two.inbox.lock().contains(&(id(1), question(id(1), 9))));
    assert_eq!(one.status_of(id(9)).unwrap().lost, 1);
}

/// Property: a peer that takes the connection and then says nothing is no link: it ends after its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_that_hangs_is_left_and_found_again() {
    let trust = plain();
    let one = Node::new(1, &trust).await;
    let two = Node::new(2, &trust).await;
    one.peers.found(found(&two, id(2)));
    one.reaches(&two).await;
    two.is_hung.store(true, Ordering::Relaxed);
    // Frames on their way are no sign of life.
    eventually("the end of the link", || {
        one.peers.tell(id(2), &question(id(1), 2));
        !one.is_linked(id(2))
    })
    .await;
    assert!(one.status_of(id(2)).unwrap().reason.contains("silent"), "{:?}", one.peers);
    two.is_hung.store(false, Ordering::Relaxed);
    eventually("the link again", || one.is_linked(id(2))).await;
}

/// Property: a link stands for longer than the silence of both sides would allow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_link_stays_by_its_pings() {
    let trust = plain();
    let one = Node::new(1, &trust).await;
    let two = Node::new(2, &trust).await;
    one.peers.found(found(&two, id(2)));
    one.linked(id(2)).await;
    let began = std::time::Instant::now();
    let long = exacat_writer_service::limits::LINK_SILENCE_MAX + std::time::Duration::from_secs(1);
    eventually("time without a message", || began.elapsed() > long).await;
    assert_eq!(one.status_of(id(2)).unwrap().connections, 1);
    one.reaches(&two).await;
}

/// Property: invented services reach the bound of links and no more, and give way to confirmed ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_are_bounded_and_confirmed_services_come_first() {
    let trust = plain();
    let one = Node::new(1, &trust).await;
    let two = Node::new(2, &trust).await;
    let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    for invented in 0..1000_u128 {
        let service = ServiceId((invented << 64 | 7).to_be_bytes());
        one.peers.found(Found { address: nowhere, service: Some(service) });
    }
    assert_eq!(one.peers.status().len(), SERVICES_MAX - 1);
    one.peers.gossip(Table(vec![two.record(1)]));
    one.linked(id(2)).await;
    assert_eq!(one.peers.status().len(), SERVICES_MAX - 1);
    for invented in 1000..2000_u128 {
        let service = ServiceId((invented << 64 | 7).to_be_bytes());
        one.peers.found(Found { address: nowhere, service: Some(service) });
    }
    assert!(one.is_linked(id(2)), "invented services do not displace it");
}

/// Property: frames for a service that is not connected are lost and counted, and a stop ends everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_ends_all_links_for_good() {
    let trust = plain();
    let one = Node::new(1, &trust).await;
    let two = Node::new(2, &trust).await;
    one.peers.found(found(&two, id(2)));
    one.reaches(&two).await;
    soon("the stop", one.peers.stop()).await;
    assert_eq!(one.peers.status(), []);
    one.peers.found(found(&two, id(2)));
    one.peers.found(Found { address: two.address, service: None });
    one.peers.gossip(Table(vec![two.record(1)]));
    one.peers.tell(id(2), &question(id(1), 5));
    assert_eq!(one.peers.status(), [], "nothing begins again");
}
