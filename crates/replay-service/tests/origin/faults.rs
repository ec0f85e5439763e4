//! Delays, bandwidth, errors, absence and wrong bytes on order.

use std::time::Duration;

use exacat_replay_service::origin::{Faults, OriginSettings};
use exacat_wire::xrootd::numbers::{error, open, request, status};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::client::{Client, LISTED, LISTED_SIZE, content, origin, range, settings};

/// Property: reads that are sent together wait together, each for the delay on order; so do opens.
#[tokio::test]
async fn delays_of_requests_in_flight_overlap() {
    let (open_delay, read_delay) = (Duration::from_millis(300), Duration::from_millis(400));
    let faults = Faults { open_delay, read_delay, ..Faults::default() };
    let origin = origin(OriginSettings { faults, ..settings() }).await;
    let mut client = Client::of(&origin).await;
    let begin = Instant::now();
    let handle = client.open(LISTED).await;
    assert!(begin.elapsed() >= open_delay);
    let begin = Instant::now();
    for number in 0..1000 {
        client.send(request::READ, range(handle, number, 10), &[]).await;
    }
    let ping = client.send(request::PING, [0; 16], &[]).await;
    assert_eq!(client.answer().await.stream, ping, "only the reads wait");
    for number in 0..1000 {
        assert_eq!(client.answer().await.ok(), content(LISTED, number, 10), "in the order of requests");
    }
    let took = begin.elapsed();
    assert!((read_delay..read_delay * 50).contains(&took), "{took:?}");
    origin.set_faults(Faults::default()).unwrap();
    for number in 0..1000 {
        client.read(request::READ, handle, number, 10).await.ok();
    }
    assert!(begin.elapsed() < read_delay * 500);
    origin.stop().await;
}

/// Property: bytes leave at the bandwidth of a connection, and all connections share that of the origin.
#[tokio::test]
async fn bytes_leave_at_the_bandwidth() {
    let rate = 8 << 20;
    let cases = [(None, Some(rate), 3), (Some(3 * rate), None, 3), (Some(rate), Some(4 * rate), 1)];
    for (whole, own, clients) in cases {
        let bandwidths = OriginSettings { bandwidth: whole, bandwidth_of_connection: own, ..settings() };
        let origin = origin(bandwidths).await;
        let mut readers = Vec::new();
        for _ in 0..clients {
            let mut client = Client::of(&origin).await;
            let handle = client.open(LISTED).await;
            readers.push((client, handle));
        }
        let begin = Instant::now();
        let reads = readers.into_iter().map(async |(mut client, handle)| {
            let all = client.read(request::PGREAD, handle, 0, 8 << 20).await.ok();
            assert_eq!(all.len() as u64, LISTED_SIZE);
        });
        futures::future::join_all(reads).await;
        let expected = Duration::from_secs_f64(LISTED_SIZE as f64 / rate as f64);
        let took = begin.elapsed();
        // A sender may make up for a rest before; a busy machine makes it late.
        let bounds = expected - Duration::from_millis(70)..expected * 20;
        assert!(bounds.contains(&took), "{whole:?} {own:?}: {took:?}, {expected:?} expected");
        origin.stop().await;
    }
}

/// Property: errors on order hit their share and are counted; the same seed hits the same requests.
#[tokio::test]
async fn errors_hit_their_share() {
    let faults = Faults { seed: 3, failing_opens: 0.25, failing_reads: 0.25, ..Faults::default() };
    let mut runs = Vec::new();
    for _ in 0..2 {
        let origin = origin(OriginSettings { faults: faults.clone(), ..settings() }).await;
        let mut client = Client::of(&origin).await;
        let mut failed = Vec::new();
        for _ in 0..400 {
            let opened = client.try_open(LISTED, open::READ).await;
            failed.push(opened.status == status::ERROR);
            match opened.status {
                status::ERROR => assert_eq!(opened.error(), error::SERVER_ERROR),
                _ => {
                    let handle: [u8; 4] = opened.ok().try_into().unwrap();
                    let read = client.read(request::READ, handle, 0, 10).await;
                    failed.push(read.status == status::ERROR);
                    if read.status == status::ERROR {
                        assert_eq!(read.error(), error::IO_ERROR);
                    }
                }
            }
        }
        let errors = origin.counters().errors;
        assert!((70..130).contains(&errors.opens_on_order), "{errors:?}");
        assert!((50..110).contains(&errors.reads_on_order), "{errors:?}");
        let hits = failed.iter().filter(|failed| **failed).count() as u64;
        assert_eq!(hits, errors.opens_on_order + errors.reads_on_order);
        runs.push(failed);
        origin.stop().await;
    }
    assert_eq!(runs[0], runs[1]);
}

/// Property: absent files are not there for any request, and wrong files have other bytes than their
/// checksum, for each kind of read.
#[tokio::test]
async fn absent_and_wrong_files_are_as_ordered() {
    let set = |name: &str| [name.to_owned()].into_iter().collect();
    let faults = Faults { absent: set("/any/1K"), wrong: set(LISTED), ..Faults::default() };
    let origin = origin(OriginSettings { faults: faults.clone(), ..settings() }).await;
    let mut client = Client::of(&origin).await;
    assert_eq!(client.try_open("/any/1K", open::READ).await.error(), error::NOT_FOUND);
    assert_eq!(client.stat("/any/1K").await.error(), error::NOT_FOUND);
    assert_eq!(client.checksum("/any/1K").await.error(), error::NOT_FOUND);
    assert_eq!(client.ask(request::LOCATE, [0; 16], b"/any/1K").await.error(), error::NOT_FOUND);
    let told = client.checksum(LISTED).await.text();
    let right = simd_adler32::adler32(&content(LISTED, 0, LISTED_SIZE as usize).as_slice());
    assert_eq!(told, format!("adler32 {right:08x}"));
    let handle = client.open(LISTED).await;
    let plain = client.read(request::READ, handle, 0, 8 << 20).await.ok();
    let paged = client.read(request::PGREAD, handle, 0, 8 << 20).await.ok();
    assert!(plain == paged && plain.len() as u64 == LISTED_SIZE);
    assert_ne!(simd_adler32::adler32(&plain.as_slice()), right);
    origin.set_faults(Faults::default()).unwrap();
    client.open("/any/1K").await;
    assert!(origin.set_faults(Faults { failing_opens: -1.0, ..faults }).is_err());
    origin.stop().await;
}

/// Property: an origin that is gone cuts its connections and refuses new ones, and comes back at its address.
#[tokio::test]
async fn a_gone_origin_refuses_connections_until_it_is_back() {
    let origin = origin(settings()).await;
    let mut client = Client::of(&origin).await;
    client.open(LISTED).await;
    for _ in 0..3 {
        origin.set_gone(true).await.unwrap();
        origin.set_gone(true).await.unwrap();
        assert!(TcpStream::connect(origin.address()).await.is_err());
        assert!(client.was_cut().await);
        let counters = origin.counters();
        assert_eq!((counters.connections_open, counters.files_open), (0, 0));
        origin.set_gone(false).await.unwrap();
        client = Client::of(&origin).await;
        client.open(LISTED).await;
    }
    assert_eq!(origin.counters().times_gone, 3);
    let address = origin.address();
    origin.stop().await;
    assert!(client.was_cut().await);
    assert!(TcpStream::connect(address).await.is_err());
}

/// Property: somebody else at the address of an origin that is gone is an error, not the end.
#[tokio::test]
async fn an_origin_whose_address_was_taken_can_try_again() {
    let origin = origin(settings()).await;
    origin.set_gone(true).await.unwrap();
    let other = std::net::TcpListener::bind(origin.address()).unwrap();
    let error = origin.set_gone(false).await.unwrap_err();
    assert!(error.message.contains(&origin.address().to_string()), "{error}");
    drop(other);
    origin.set_gone(false).await.unwrap();
    Client::of(&origin).await;
    origin.stop().await;
}
