//! Connections of a client, opened when needed to the first reachable endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use exacat_model::{Error, ErrorKind, Guid, Result};
use exacat_wire::native::Behind;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::time::{Instant, timeout};

use crate::clock::ServerClock;
use crate::connection::Connection;
use crate::handshake::{self, ConnectError};
use crate::settings::ClientSettings;
use crate::target::{Credentials, Target};
use crate::tls;

/// A slot for one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlot {
    current: Mutex<Option<Arc<Connection>>>,
    /// Held while one caller connects for all; has the time and error of the last attempt if it
    /// failed.
    connecting: tokio::sync::Mutex<Option<(Instant, ConnectError)>>,
}

impl ConnectionSlot {
    /// Returns its connection, if that is open.
    pub(crate) fn open(&self) -> Option<Arc<Connection>> {
        self.current.lock().as_ref().filter(|current| current.is_open()).cloned()
    }

    /// Opens another connection for the next call, if it has this one. Calls in flight keep it.
    fn leave(&self, connection: &Arc<Connection>) -> bool {
        self.current.lock().take_if(|one| Arc::ptr_eq(one, connection)).is_some()
    }
}

#[derive(Debug)]
pub(crate) struct Pool {
    target: Target,
    credentials: Credentials,
    pub settings: ClientSettings,
    tls: Option<Arc<ClientConfig>>,
    slots: Vec<ConnectionSlot>,
    turn: AtomicUsize,
    /// Estimate of the time of the server that sent it last.
    pub clock: Arc<ServerClock>,
    /// Index of the endpoint to begin with, modulo their number: the last one that worked.
    endpoint: AtomicUsize,
    /// Catalogue of the first connection. An endpoint with another catalogue is a mistake.
    catalogue: Mutex<Option<Guid>>,
    closed: std::sync::atomic::AtomicBool,
}

impl Pool {
    pub(crate) fn new(target: Target, credentials: Credentials, settings: ClientSettings) -> Result<Self> {
        settings.check()?;
        Ok(Pool {
            tls: tls::client_config(target.trust())?,
            slots: (0..settings.connections).map(|_| ConnectionSlot::default()).collect(),
            target,
            credentials,
            settings,
            turn: AtomicUsize::new(0),
            clock: Arc::new(ServerClock::new()),
            endpoint: AtomicUsize::new(0),
            catalogue: Mutex::new(None),
            closed: false.into(),
        })
    }

    /// Returns the next slot; calls use all connections in turn.
    pub(crate) fn slot(&self) -> &ConnectionSlot {
        match self.slots.as_slice() {
            [slot] => slot,
            slots => &slots[self.turn.fetch_add(1, Ordering::Relaxed) % slots.len()],
        }
    }

    /// Returns an open connection; opens one if there is none.
    pub(crate) async fn connection(&self) -> std::result::Result<Arc<Connection>, ConnectError> {
        self.connection_at(self.slot()).await
    }

    /// Returns the open connection of a slot; opens one if there is none.
    pub(crate) async fn connection_at(
        &self,
        slot: &ConnectionSlot,
    ) -> std::result::Result<Arc<Connection>, ConnectError> {
        if let Some(connection) = slot.open() {
            return Ok(connection);
        }
        let came = Instant::now();
        let mut last_failure = slot.connecting.lock().await;
        if let Some(connection) = slot.open() {
            return Ok(connection);
        }
        // A caller that waited for a failed attempt of another gains nothing from an immediate
        // retry.
        if let Some((when, error)) = &*last_failure
            && *when >= came
        {
            return Err(error.clone());
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(ConnectError { error: closed(), is_final: true });
        }
        let left = slot.current.lock().take();
        if left.is_some_and(|left| left.shared.said_goodbye.load(Ordering::Relaxed)) {
            // The server may still accept new connections that it would close at once.
            self.endpoint.fetch_add(1, Ordering::Relaxed);
        }
        match self.connect().await {
            Ok(connection) => {
                *last_failure = None;
                *slot.current.lock() = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                *last_failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Holds a change back from a follower if other servers are known: one of them may be the source. The
    /// next call opens another connection. Returns the reason.
    pub(crate) fn hold_back(&self, connection: &Arc<Connection>) -> Option<Error> {
        if !connection.is_of_a_follower() || self.target.endpoints().len() == 1 {
            return None;
        }
        self.take_out(connection);
        let what = format!(
            "{} follows another server and takes no changes, and no other server answers",
            connection.shared.endpoint
        );
        Some(Error::new(ErrorKind::Unavailable, what))
    }

    /// Takes a connection out of its slot, so that the next call opens another one; false if it is in none.
    fn take_out(&self, connection: &Arc<Connection>) -> bool {
        self.slots.iter().any(|slot| slot.leave(connection))
    }

    /// Leaves a server that cannot do something now, if others are known: the next call goes to another one.
    pub(crate) fn leave_for(&self, error: &Error, connection: &Arc<Connection>) {
        let is_worth_it = error.kind == ErrorKind::Unavailable && self.target.endpoints().len() > 1;
        if is_worth_it && self.take_out(connection) {
            self.endpoint.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the distance to the source of the connection that is farthest behind.
    pub(crate) fn behind(&self) -> Option<Behind> {
        let told = |slot: &ConnectionSlot| *slot.open()?.shared.behind.lock();
        self.slots.iter().filter_map(told).max_by_key(|behind| (behind.ms, behind.changes))
    }

    /// Tries the endpoints one after the other, once each. Prefers a server that takes changes to a
    /// follower.
    async fn connect(&self) -> std::result::Result<Arc<Connection>, ConnectError> {
        let endpoints = self.target.endpoints();
        let first = self.endpoint.load(Ordering::Relaxed) % endpoints.len();
        let mut failure: Option<ConnectError> = None;
        let mut follower: Option<(usize, Arc<Connection>)> = None;
        for offset in 0..endpoints.len() {
            let index = (first + offset) % endpoints.len();
            let endpoint = &endpoints[index];
            let within = self.settings.connect_timeout;
            let opened = timeout(
                within,
                handshake::open(endpoint, &self.credentials, &self.settings, self.tls.as_ref(), &self.clock),
            )
            .await
            .unwrap_or_else(|_| {
                Err(ConnectError::passing(format!("{endpoint} did not answer within {within:?}")))
            })
            .and_then(|connection| self.check_catalogue(connection));
            match opened {
                Ok(connection) if connection.is_of_a_follower() && endpoints.len() > 1 => {
                    follower.get_or_insert((index, connection));
                }
                Ok(connection) => {
                    self.endpoint.store(index, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) => {
                    tracing::debug!(%endpoint, error = %error.error, "cannot connect");
                    // Retries help if they would help at any endpoint.
                    if failure.as_ref().is_none_or(|failure| failure.is_final) {
                        failure = Some(error);
                    }
                }
            }
        }
        if let Some((index, connection)) = follower {
            self.endpoint.store(index, Ordering::Relaxed);
            return Ok(connection);
        }
        Err(failure.unwrap_or_else(|| ConnectError::passing("there is no endpoint")))
    }

    fn check_catalogue(
        &self,
        connection: Arc<Connection>,
    ) -> std::result::Result<Arc<Connection>, ConnectError> {
        let found = connection.shared.greeting.server.catalogue;
        let known = *self.catalogue.lock().get_or_insert(found);
        if known == found {
            return Ok(connection);
        }
        let error = Error::new(
            ErrorKind::Conflict,
            format!("{} serves the catalogue {found}, not {known}", connection.shared.endpoint),
        );
        Err(ConnectError { error, is_final: true })
    }

    /// Closes all connections after the requests in flight.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let open = self.slots.iter().filter_map(|slot| slot.current.lock().take()).collect::<Vec<_>>();
        let within = self.settings.close_timeout;
        futures::future::join_all(open.iter().map(|connection| connection.close(within))).await;
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the client was closed")
}
