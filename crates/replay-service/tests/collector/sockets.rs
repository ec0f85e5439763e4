//! Datagrams of several senders over several addresses.

use std::net::SocketAddr;

use exacat_replay::both_sides::events::EventKind;
use exacat_replay_service::collector::limits::{ADDRESSES_MAX, EVENTS_WAITING_MAX};
use exacat_replay_service::collector::{Collector, CollectorSettings};
use tokio::net::UdpSocket;

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn datagram(pseq: usize, records: usize) -> Vec<u8> {
    let line = "{\"event\":\"file_close\",\"lfn\":\"/a\",\"b_hit\":1}\n".repeat(records);
    let src = "\"src\":{\"host\":\"cache\",\"port\":1094}";
    format!("{{\"code\":\"g\",\"pseq\":{},\"stod\":5,\"sid\":7,{src}}}\n{line}\0", pseq % 1000).into_bytes()
}

/// Property: every record of every datagram comes out, from any address, beside garbage.
#[tokio::test]
async fn records_come_out_of_any_address() {
    let settings = CollectorSettings { listen: vec![any(); 2], ..CollectorSettings::new(any()) };
    let (collector, mut events) = Collector::start(settings).await.unwrap();
    let sender = UdpSocket::bind(any()).await.unwrap();
    let (first, second) = (collector.addresses()[0], collector.addresses()[1]);
    assert_ne!(first, second);
    for number in 0..100 {
        sender.send_to(&datagram(number, 30), first).await.unwrap();
        sender.send_to(b"garbage", second).await.unwrap();
        for _ in 0..30 {
            let event = events.recv().await.unwrap().event;
            assert!(matches!(event.kind, EventKind::Record(_)) && &*event.server == "cache:1094");
        }
    }
    let summary = b"<statistics src=\"cache:1094\" tos=\"900\"></statistics>";
    sender.send_to(summary, second).await.unwrap();
    assert!(matches!(events.recv().await.unwrap().event.kind, EventKind::Restarted { started: 900 }));
    assert!(matches!(events.recv().await.unwrap().event.kind, EventKind::Sample(_)));
    let counters = collector.counters();
    assert_eq!((counters.intake.records, counters.intake.lost, counters.events_dropped), (3000, 0, 0));
    assert_eq!((counters.intake.garbage, counters.intake.restarts), (100, 1));
    assert!(counters.receive_buffer_bytes > 0);
    assert_eq!(collector.servers().len(), 1);
    collector.stop().await;
    assert!(events.recv().await.is_none());
}

/// Property: a consumer that is late, or gone, loses events, which are counted; the collector goes on.
#[tokio::test]
async fn events_without_a_consumer_are_dropped_and_counted() {
    let settings = CollectorSettings { events_waiting_max: 10, ..CollectorSettings::new(any()) };
    let (collector, mut events) = Collector::start(settings).await.unwrap();
    let sender = UdpSocket::bind(any()).await.unwrap();
    sender.send_to(&datagram(1, 25), collector.addresses()[0]).await.unwrap();
    while collector.counters().events_dropped < 15 {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        events.recv().await.unwrap();
    }
    drop(events);
    sender.send_to(&datagram(2, 5), collector.addresses()[0]).await.unwrap();
    while collector.counters().events_dropped < 20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(collector.counters().intake.records, 30);
    collector.stop().await;
}

#[tokio::test]
async fn settings_that_are_none_are_refused() {
    let good = || CollectorSettings::new(any());
    for listen in [Vec::new(), vec![any(); ADDRESSES_MAX + 1]] {
        assert!(Collector::start(CollectorSettings { listen, ..good() }).await.is_err());
    }
    for events_waiting_max in [0, EVENTS_WAITING_MAX + 1] {
        assert!(Collector::start(CollectorSettings { events_waiting_max, ..good() }).await.is_err());
    }
    let (collector, _events) = Collector::start(good()).await.unwrap();
    let taken = CollectorSettings { listen: collector.addresses().to_vec(), ..good() };
    let error = Collector::start(taken).await.err().unwrap();
    assert!(error.message.contains("choose another address"), "{error}");
}
