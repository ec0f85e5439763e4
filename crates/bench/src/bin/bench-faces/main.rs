//! `make bench-faces`: speed of the faces of JAliEn and XRootD ([`xroot`]). JAliEn sessions run
//! like those of `alien.py`: TLS, a websocket, one request after the other, and requests sent
//! ahead. Server and clients share the machine. The store is the embedded one, in a temporary
//! directory.
//!
//! `bench-faces [SECONDS] [FILES]`: seconds for each measurement, files in the listed directory.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for those who work on this, which tells figures"
)]

mod xroot;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::operation::{Existing, NewFile, NewReplica, SeSettings};
use exacat_model::{AccountName, Lfn, Operation, ReplicaState, SeName};
use exacat_server::{JalienSettings, RunningServer, Server, ServerSettings, XrootdSettings};
use futures::{SinkExt, StreamExt};
use hdrhistogram::Histogram;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

type Client = WebSocketStream<TlsStream<TcpStream>>;

/// Requests sent ahead of the first answer.
const AHEAD: usize = 64;
/// Sessions at once, in measurements with many.
const SESSIONS: usize = 32;

async fn connect(server: &RunningServer, data: &std::path::Path) -> Client {
    let read = |path: std::path::PathBuf| std::fs::read(path).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&read(server.addresses.certificate.clone())) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let chain = read(data.join("jalien/admin.crt"));
    let chain = CertificateDer::pem_slice_iter(&chain).map(|one| one.unwrap()).collect();
    let key = PrivateKeyDer::from_pem_slice(&read(data.join("jalien/admin.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let stream = TcpStream::connect(server.addresses.jalien.unwrap()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    tokio_tungstenite::client_async("wss://localhost/websocket/json", stream).await.unwrap().0
}

async fn answer(client: &mut Client) -> usize {
    loop {
        if let Message::Text(text) = client.next().await.unwrap().unwrap() {
            // The first answer of each kind was checked; here the length proves that it is
            // complete.
            return text.len();
        }
    }
}

/// Sends one request after the other, for some time.
async fn one_by_one(client: &mut Client, request: &str, time: Duration) -> Histogram<u64> {
    let mut times = Histogram::new_with_bounds(1, 60_000_000, 2).unwrap();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let began = Instant::now();
        client.send(Message::text(request)).await.unwrap();
        answer(client).await;
        times.saturating_record(u64::try_from(began.elapsed().as_micros()).unwrap());
    }
    times
}

/// Sends requests ahead; returns the answers per second.
async fn ahead(client: &mut Client, request: &str, time: Duration) -> f64 {
    let began = Instant::now();
    let mut answered = 0usize;
    while began.elapsed() < time {
        for _ in 0..AHEAD {
            client.feed(Message::text(request)).await.unwrap();
        }
        client.flush().await.unwrap();
        for _ in 0..AHEAD {
            answer(client).await;
            answered += 1;
        }
    }
    answered as f64 / began.elapsed().as_secs_f64()
}

async fn fill(server: &RunningServer, files: usize) {
    let catalogue = server.catalogue();
    let admin = catalogue.caller_named(&AccountName::parse("admin").unwrap()).await.unwrap();
    let se = SeName::parse("VO::SITE::DISK").unwrap();
    let set = SeSettings {
        name: se.clone(),
        number: Some(1),
        prefix: Some("root://se.example:1094//data".to_owned()),
        qos: Some(vec![AccountName::parse("disk").unwrap()]),
        status: None,
        distances: Vec::new(),
        https: None,
        only_new: true,
    };
    let id = || catalogue.new_operation_id().unwrap();
    catalogue.execute(&admin, id(), Operation::SeSet(set)).await.unwrap();
    let file = |number: usize| NewFile {
        size: Some(1_000_000),
        replicas: vec![NewReplica { se: se.clone(), pfn: None, state: ReplicaState::Available }],
        ..NewFile::named(Lfn::parse(&format!("/bench/file{number:06}.root")).unwrap())
    };
    let files = (0..files).map(file).collect();
    let register = Operation::Register { files, parents: true, existing: Existing::Refuse };
    catalogue.execute(&admin, id(), register).await.unwrap();
}

#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let seconds: u64 = words.next().map_or(5, |text| text.parse().unwrap());
    let files: usize = words.next().map_or(1000, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut settings = ServerSettings::new(&data);
    settings.jalien = Some(JalienSettings::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    settings.xrootd = Some(XrootdSettings::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    settings.catalogue.anonymous_reads = true;
    let server = Arc::new(Server::start(settings).await.unwrap());
    fill(&server, files).await;
    let requests = [
        ("pwd", r#"{"command": "pwd", "options": ["-nokeys"]}"#),
        ("stat", r#"{"command": "stat", "options": ["-nomsg", "/bench/file000000.root"]}"#),
        ("whereis", r#"{"command": "whereis", "options": ["-nomsg", "/bench/file000000.root"]}"#),
        ("ls", r#"{"command": "ls", "options": ["-nokeys", "-F", "-l", "/bench"]}"#),
        ("access", r#"{"command": "access", "options": ["-nomsg", "read", "/bench/file000000.root"]}"#),
    ];
    println!("{seconds} s each; ls of {files}; {SESSIONS} sessions where there are many");
    println!(
        "{:<8} {:>10} {:>8} {:>8} {:>12} {:>12} {:>8}",
        "", "one by one", "p50 us", "p99 us", "64 ahead", "sessions", "p99 us"
    );
    let mut client = connect(&server, &data).await;
    for (name, request) in requests {
        client.send(Message::text(request)).await.unwrap();
        assert!(answer(&mut client).await > 0);
        let began = Instant::now();
        let times = one_by_one(&mut client, request, time).await;
        let rate = times.len() as f64 / began.elapsed().as_secs_f64();
        let piped = ahead(&mut client, request, time).await;
        let began = Instant::now();
        let mut sessions = tokio::task::JoinSet::new();
        for _ in 0..SESSIONS {
            let (server, data) = (Arc::clone(&server), data.clone());
            sessions.spawn(async move {
                let mut client = connect(&server, &data).await;
                one_by_one(&mut client, request, time).await
            });
        }
        let mut all = Histogram::<u64>::new_with_bounds(1, 60_000_000, 2).unwrap();
        while let Some(times) = sessions.join_next().await {
            all.add(times.unwrap()).unwrap();
        }
        let many = all.len() as f64 / began.elapsed().as_secs_f64();
        line(name, rate, &times, piped, many, &all);
    }
    drop(client);
    xroot::run(server.addresses.xrootd.unwrap(), "/bench/file000000.root", time).await;
}

/// Prints the results in a line.
fn line(name: &str, rate: f64, times: &Histogram<u64>, piped: f64, many: f64, all: &Histogram<u64>) {
    println!(
        "{name:<8} {rate:>8.0}/s {:>8} {:>8} {piped:>10.0}/s {many:>10.0}/s {:>8}",
        times.value_at_quantile(0.5),
        times.value_at_quantile(0.99),
        all.value_at_quantile(0.99)
    );
}
