//! Origin: serves files that exist by name and size only, with delays and errors on order.
//!
//! It speaks the protocol of XRootD as a server with files does, for clients and caches: opens, stats, reads
//! of all kinds, checksums. The content of a file follows from its name
//! ([`Content`](exacat_replay::content::Content)), so it needs no disk. Nothing is written, and nobody has to
//! log in by a token.
//!
//! - `connection` serves one client, `client` answers its requests.
//! - `answer` makes the bytes of files when they are sent; `batch` and `templates` send them without a
//!   copy.
//! - `faults` and `pace` are what goes wrong on order.

mod answer;
mod batch;
mod client;
mod connection;
mod counts;
mod faults;
mod files;
mod handles;
pub mod limits;
mod pace;
mod settings;
mod shared;
mod templates;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::both_sides::origin::{OriginCounters, OriginFiles};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

pub use faults::Faults;
pub use files::{FilePattern, OriginFile, OriginFileList};
pub use settings::{OriginSettings, OriginTimes};

use counts::count;
use limits::{ACCEPT_PAUSE, BACKLOG};
use shared::Shared;

/// Order to the listener: to be gone or back. It is done when the answer comes.
type Order = (bool, oneshot::Sender<Result<()>>);

/// An origin that runs.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
    task: JoinHandle<()>,
}

impl Origin {
    /// Starts an origin.
    ///
    /// # Errors
    /// A setting is none, or the address cannot be used.
    pub async fn start(settings: OriginSettings) -> Result<Origin> {
        settings.check()?;
        let listener = listen(settings.listen)?;
        let address = listener.local_addr().map_err(|error| of_address(settings.listen, &error))?;
        let connections_max = settings.connections_max;
        let shared = Arc::new(Shared::new(settings));
        let (orders, received) = mpsc::channel(1);
        let listening =
            Listening { shared: Arc::clone(&shared), address, connections_max, tasks: JoinSet::new() };
        let task = tokio::spawn(listening.run(listener, received));
        Ok(Origin { address, shared, orders, task })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters.
    pub fn counters(&self) -> OriginCounters {
        self.shared.counts.snapshot()
    }

    /// Returns the bytes by file; none unless the settings ask for them.
    pub fn files(&self) -> Option<OriginFiles> {
        self.shared.by_file.as_ref().map(counts::ByFile::snapshot)
    }

    /// Sets the faults of requests from now on.
    ///
    /// # Errors
    /// A setting is none.
    pub fn set_faults(&self, faults: Faults) -> Result<()> {
        faults.check()?;
        self.shared.set_faults(faults);
        Ok(())
    }

    /// Lets the origin go away: it cuts all connections and refuses new ones. Or lets it come back. It is
    /// done when this returns.
    ///
    /// # Errors
    /// Somebody else listens at its address; it can be tried again.
    pub async fn set_gone(&self, is_gone: bool) -> Result<()> {
        let stopped = || Error::new(ErrorKind::Unavailable, "the origin has stopped: start another one");
        let (done, wait) = oneshot::channel();
        self.orders.send((is_gone, done)).await.map_err(|_| stopped())?;
        wait.await.map_err(|_| stopped())?
    }

    /// Stops it: all connections are cut.
    pub async fn stop(self) {
        let Origin { orders, task, .. } = self;
        drop(orders);
        let _ = task.await;
    }
}

fn of_address(address: SocketAddr, error: &std::io::Error) -> Error {
    let kind = ErrorKind::Unavailable;
    Error::new(kind, format!("the origin cannot listen at {address}: {error}; choose another address"))
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let make = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // An origin that comes back has its address, whatever its old connections do.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    make().map_err(|error| of_address(address, &error))
}

/// Listener and connections.
struct Listening {
    shared: Arc<Shared>,
    address: SocketAddr,
    connections_max: usize,
    tasks: JoinSet<()>,
}

/// Event of the listener.
enum Event {
    Connected(std::io::Result<(TcpStream, SocketAddr)>),
    Ordered(Option<Order>),
    Ended,
}

impl Listening {
    async fn run(mut self, listener: TcpListener, mut orders: mpsc::Receiver<Order>) {
        let mut listener = Some(listener);
        loop {
            let event = tokio::select! {
                biased;
                order = orders.recv() => Event::Ordered(order),
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => Event::Ended,
                connected = accept(listener.as_ref()) => Event::Connected(connected),
            };
            match event {
                Event::Connected(Ok((stream, peer))) => self.connected(stream, peer),
                Event::Connected(Err(error)) => {
                    tracing::warn!(%error, "the origin cannot accept a connection: is the limit of open files low?");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                Event::Ended => {}
                Event::Ordered(None) => break,
                Event::Ordered(Some((is_gone, done))) => {
                    let outcome = self.order(is_gone, &mut listener).await;
                    // Nobody waits for an order that was given up.
                    let _ = done.send(outcome);
                }
            }
        }
        drop(listener);
        self.tasks.shutdown().await;
    }

    fn connected(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.tasks.len() >= self.connections_max {
            count(&self.shared.counts.connections_refused);
            return;
        }
        count(&self.shared.counts.connections);
        self.tasks.spawn(connection::serve(Arc::clone(&self.shared), stream, peer));
    }

    async fn order(&mut self, is_gone: bool, listener: &mut Option<TcpListener>) -> Result<()> {
        match (is_gone, &listener) {
            (true, Some(_)) => {
                *listener = None;
                self.shared.counts.times_gone.fetch_add(1, Ordering::Relaxed);
                self.tasks.shutdown().await;
            }
            (false, None) => *listener = Some(listen(self.address)?),
            _ => {}
        }
        Ok(())
    }
}

/// Accepts a connection; waits for ever while the origin is gone.
async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}
