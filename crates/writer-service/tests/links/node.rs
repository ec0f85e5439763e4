//! A service as its links see it: a listener that greets other services, links, and discovery.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_model::TimeMs;
use exacat_testkit::waiting::eventually;
use exacat_wire::writer::{
    Frame, FrameDecoder, HelloAck, PROTOCOL_VERSION, PartQuery, Received, Refusal, RefusalClass, Role,
    ServiceId, ServiceRecord, ServiceState, Table, encode,
};
use exacat_writer_service::{
    Discovery, DiscoverySettings, MulticastSettings, PeerStatus, Peers, PeersSettings, Trust,
};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Interface of all tests.
pub(crate) const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Returns a trust in all services, without certificates.
pub(crate) fn plain() -> Trust {
    Trust::load(None, Arc::new(|_: IpAddr| true)).unwrap()
}

pub(crate) fn id(number: u8) -> ServiceId {
    ServiceId([number; 16])
}

/// Returns a group of this test only: its port is free.
pub(crate) fn group() -> MulticastSettings {
    let port = std::net::UdpSocket::bind((LOOPBACK, 0)).unwrap().local_addr().unwrap().port();
    MulticastSettings {
        group: SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 1), port),
        interface: Some(LOOPBACK),
    }
}

/// Returns a question, which names the asking service.
pub(crate) fn question(from: ServiceId, number: u32) -> Frame {
    let file = exacat_wire::writer::FileId(from.0);
    Frame::PartQuery(PartQuery { file, epoch: number, from: 0 })
}

/// Frames from other services on accepted connections.
type Inbox = Arc<Mutex<Vec<(ServiceId, Frame)>>>;

pub(crate) struct Node {
    pub service: ServiceId,
    pub address: SocketAddr,
    pub peers: Peers,
    pub discovery: Option<Discovery>,
    pub inbox: Inbox,
    /// Frames from others on connections that this node made.
    pub answers: mpsc::Receiver<(ServiceId, Frame)>,
    /// The node accepts, and says nothing.
    pub is_hung: Arc<AtomicBool>,
    listening: tokio::task::JoinHandle<()>,
}

impl Node {
    /// Starts a node without discovery.
    pub(crate) async fn new(number: u8, trust: &Trust) -> Node {
        Node::at(number, trust, SocketAddr::from((LOOPBACK, 0))).await
    }

    /// Starts a node at an address.
    pub(crate) async fn at(number: u8, trust: &Trust, address: SocketAddr) -> Node {
        let (service, listener) = (id(number), TcpListener::bind(address).await.unwrap());
        let (address, inbox) = (listener.local_addr().unwrap(), Inbox::default());
        let (is_hung, (sink, answers)) = (Arc::new(AtomicBool::new(false)), mpsc::channel(64));
        let settings = PeersSettings { service, name: format!("node{number}"), trust: trust.clone() };
        let peers = Peers::start(settings, sink);
        let entrance =
            Entrance { service, trust: trust.clone(), inbox: inbox.clone(), is_hung: is_hung.clone() };
        let listening = tokio::spawn(listen(listener, entrance));
        Node { service, address, peers, discovery: None, inbox, answers, is_hung, listening }
    }

    pub(crate) fn settings(&self, cluster: &str, incarnation: u64) -> DiscoverySettings {
        DiscoverySettings {
            service: self.service,
            cluster: cluster.to_owned(),
            incarnation,
            address: self.address,
            multicast: None,
            seeds: Vec::new(),
        }
    }

    pub(crate) fn discover(&mut self, settings: DiscoverySettings) {
        let peers = self.peers.clone();
        self.discovery = Some(Discovery::start(settings, move |found| peers.found(found)).unwrap());
    }

    pub(crate) fn in_group(mut self, cluster: &str, multicast: MulticastSettings) -> Node {
        let settings = DiscoverySettings { multicast: Some(multicast), ..self.settings(cluster, 1) };
        self.discover(settings);
        self
    }

    pub(crate) fn status_of(&self, other: ServiceId) -> Option<PeerStatus> {
        self.peers.status().into_iter().find(|status| status.service == other)
    }

    pub(crate) fn is_linked(&self, other: ServiceId) -> bool {
        self.status_of(other).is_some_and(|status| status.is_connected)
    }

    pub(crate) async fn linked(&self, other: ServiceId) {
        eventually("a link", || self.is_linked(other)).await;
    }

    /// Tells another node something until it has arrived: a frame may be lost.
    pub(crate) async fn reaches(&self, other: &Node) {
        let question = question(self.service, 1);
        eventually("a frame at another service", || {
            self.peers.tell(other.service, &question);
            other.inbox.lock().contains(&(self.service, question.clone()))
        })
        .await;
    }

    pub(crate) fn record(&self, version: u64) -> ServiceRecord {
        ServiceRecord {
            service: self.service,
            version,
            address: self.address.to_string(),
            state: ServiceState::Up,
            volumes: 1,
            free_bytes: 1 << 40,
            queued_bytes: 0,
            credit_bytes: 0,
            bytes_per_second: 0,
            open_files: 0,
            http: String::new(),
        }
    }

    /// Ends the node as a kill does.
    pub(crate) async fn kill(self) {
        self.listening.abort();
        let _ = self.listening.await;
        drop(self.discovery);
        self.peers.stop().await;
    }
}

#[derive(Clone)]
struct Entrance {
    service: ServiceId,
    trust: Trust,
    inbox: Inbox,
    is_hung: Arc<AtomicBool>,
}

async fn listen(listener: TcpListener, entrance: Entrance) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, from) = listener.accept().await.unwrap();
        connections.spawn(accept(stream, from, entrance.clone()));
    }
}

async fn accept(stream: TcpStream, from: SocketAddr, entrance: Entrance) {
    match entrance.trust.accepting() {
        None => serve(stream, None, from, entrance).await,
        Some(config) => {
            let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
            let shown = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
            serve(stream, shown, from, entrance).await;
        }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), frame: &Frame) {
    let mut bytes = Vec::new();
    encode(&mut bytes, frame);
    let _ = stream.write_all(&bytes).await;
    let _ = stream.flush().await;
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    shown: Option<Vec<rustls::pki_types::CertificateDer<'static>>>,
    from: SocketAddr,
    entrance: Entrance,
) {
    let mut decoder = FrameDecoder::of_accepted();
    let mut peer = None;
    loop {
        while let Ok(Some(message)) = decoder.next_message() {
            if entrance.is_hung.load(Ordering::Relaxed) {
                continue;
            }
            let Received::Frame(frame) = message else { return };
            match (peer, frame) {
                (None, Frame::Hello(hello)) => {
                    let Role::Service(service) = hello.role else { return };
                    if let Err(reason) = entrance.trust.judge_service(&hello, shown.as_deref(), from.ip()) {
                        let class = RefusalClass::BadRequest;
                        let refusal = Refusal { class, part: None, reason };
                        send(&mut stream, &Frame::Refusal(refusal)).await;
                        return;
                    }
                    peer = Some(service);
                    let ack = HelloAck {
                        version: PROTOCOL_VERSION,
                        service: entrance.service,
                        name: String::new(),
                        idle_ms_max: 3000,
                        time: TimeMs(0),
                    };
                    send(&mut stream, &Frame::HelloAck(ack)).await;
                    send(&mut stream, &Frame::Table(Table::default())).await;
                }
                (Some(_), Frame::Ping(number)) => send(&mut stream, &Frame::Pong(number)).await,
                (Some(peer), frame) => entrance.inbox.lock().push((peer, frame)),
                (None, _) => return,
            }
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(count) => decoder.feed(&bytes[..count]),
        }
    }
}
