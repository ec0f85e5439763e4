//! Collector: receives the records of caches and servers over UDP, and reads the disks of caches.
//!
//! One address takes every kind of XRootD's monitoring, of any number of servers: the first byte tells the
//! kind. [`Collector`] hands [`CollectedEvent`]s to a consumer. [`sum_up`] reads `.cinfo` files.

mod cinfo_files;
pub mod limits;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::both_sides::events::CacheEvent;
use exacat_replay::both_sides::intake::{Intake, IntakeCounts, ServerInfo};
use exacat_wire::xrdmon::DATAGRAM_BYTES_MAX;
use parking_lot::Mutex;
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio::time::sleep;

pub use cinfo_files::sum_up;

use limits::{ADDRESSES_MAX, DATAGRAMS_PER_TURN, ERROR_PAUSE, EVENTS_WAITING_MAX, RECEIVE_BUFFER_BYTES};

/// Settings of a collector.
#[derive(Clone, Debug)]
pub struct CollectorSettings {
    /// Addresses to listen at; port 0 for any free one.
    pub listen: Vec<SocketAddr>,
    /// Bytes of datagrams that the kernel keeps, if it may.
    pub receive_buffer_bytes: usize,
    /// Events that wait for the consumer.
    pub events_waiting_max: usize,
}

impl CollectorSettings {
    /// Makes settings for one address.
    pub fn new(listen: SocketAddr) -> Self {
        CollectorSettings {
            listen: vec![listen],
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            events_waiting_max: EVENTS_WAITING_MAX,
        }
    }
}

/// Event of a server or cache, and the time at which it came.
#[derive(Clone, Debug)]
pub struct CollectedEvent {
    /// Time of its datagram.
    pub received: Instant,
    /// Event.
    pub event: CacheEvent,
}

/// Counters of a collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CollectorCounters {
    /// Counts of the datagrams.
    pub intake: IntakeCounts,
    /// Events that were dropped because the consumer was late.
    pub events_dropped: u64,
    /// Errors of the sockets.
    pub socket_errors: u64,
    /// Bytes that the kernel keeps for each address: less than was asked for where it may not.
    pub receive_buffer_bytes: u64,
}

/// State that the sockets share.
struct Shared {
    intake: Mutex<Intake>,
    events: mpsc::Sender<CollectedEvent>,
    dropped: AtomicU64,
    errors: AtomicU64,
}

/// A collector that runs.
pub struct Collector {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    receive_buffer_bytes: u64,
    tasks: JoinSet<()>,
}

fn of_address(address: SocketAddr, error: &std::io::Error) -> Error {
    let kind = ErrorKind::Unavailable;
    Error::new(kind, format!("the collector cannot listen at {address}: {error}; choose another address"))
}

/// Makes a socket, and returns the bytes that the kernel keeps for it.
fn listen(address: SocketAddr, buffer_bytes: usize) -> Result<(UdpSocket, usize)> {
    let make = || {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // The kernel keeps fewer where its limit is lower.
        let _ = socket.set_recv_buffer_size(buffer_bytes);
        let kept = socket.recv_buffer_size()?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok((UdpSocket::from_std(socket.into())?, kept))
    };
    make().map_err(|error| of_address(address, &error))
}

impl Collector {
    /// Starts a collector. The consumer takes its events from the receiver; if it takes none any more, they
    /// are dropped.
    ///
    /// # Errors
    /// A setting is none, or an address cannot be used.
    pub async fn start(settings: CollectorSettings) -> Result<(Collector, mpsc::Receiver<CollectedEvent>)> {
        if settings.listen.is_empty() || settings.listen.len() > ADDRESSES_MAX {
            let count = settings.listen.len();
            return Err(Error::invalid(format!("{count} addresses: 1 to {ADDRESSES_MAX} are possible")));
        }
        let most = settings.events_waiting_max;
        if most == 0 || most > EVENTS_WAITING_MAX {
            return Err(Error::invalid(format!(
                "{most} events may wait: 1 to {EVENTS_WAITING_MAX} are possible"
            )));
        }
        let (events, receiver) = mpsc::channel(most);
        let shared = Arc::new(Shared {
            intake: Mutex::default(),
            events,
            dropped: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        });
        let (mut addresses, mut tasks, mut least) = (Vec::new(), JoinSet::new(), usize::MAX);
        for address in settings.listen {
            let (socket, kept) = listen(address, settings.receive_buffer_bytes)?;
            addresses.push(socket.local_addr().map_err(|error| of_address(address, &error))?);
            least = least.min(kept);
            tasks.spawn(receive(socket, Arc::clone(&shared)));
        }
        if least < settings.receive_buffer_bytes {
            tracing::info!(
                kept = least,
                wanted = settings.receive_buffer_bytes,
                "the kernel keeps fewer bytes of datagrams than wanted: raise net.core.rmem_max if datagrams are lost"
            );
        }
        Ok((Collector { addresses, shared, receive_buffer_bytes: least as u64, tasks }, receiver))
    }

    /// Returns the addresses at which it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the counters.
    pub fn counters(&self) -> CollectorCounters {
        CollectorCounters {
            intake: self.shared.intake.lock().counts(),
            events_dropped: self.shared.dropped.load(Ordering::Relaxed),
            socket_errors: self.shared.errors.load(Ordering::Relaxed),
            receive_buffer_bytes: self.receive_buffer_bytes,
        }
    }

    /// Returns the servers that have sent something.
    pub fn servers(&self) -> Vec<ServerInfo> {
        self.shared.intake.lock().servers()
    }

    /// Stops it.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Receives datagrams until the collector ends.
async fn receive(socket: UdpSocket, shared: Arc<Shared>) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    let mut events = Vec::new();
    loop {
        let mut received = socket.recv_from(&mut datagram).await;
        for _ in 0..DATAGRAMS_PER_TURN {
            match received {
                Ok((bytes, from)) => {
                    let now = Instant::now();
                    shared.intake.lock().take(from, &datagram[..bytes], &mut events);
                    hand_over(&shared, now, &mut events);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    shared.errors.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%error, "no datagram was received");
                    sleep(ERROR_PAUSE).await;
                    break;
                }
            }
            received = socket.try_recv_from(&mut datagram);
        }
        tokio::task::yield_now().await;
    }
}

/// Hands events to the consumer, or drops them.
fn hand_over(shared: &Shared, received: Instant, events: &mut Vec<CacheEvent>) {
    for event in events.drain(..) {
        match shared.events.try_send(CollectedEvent { received, event }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => {
                shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
