//! The state machine under one lock, and the distribution of its outputs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use exacat_wire::writer::{Ack, ChunkHead, FileId, Frame, Open, Refusal, RefusalClass, ServiceId, WriterId};
use exacat_writer::sums::{RunningSums, SummedChunk};
use exacat_writer::{Block, Certificate, ConnectionId, Output, Service};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::catalogue::{Catalogue, Credential};
use crate::clock::Clock;
use crate::disks::Disks;
use crate::limits::{BOOKINGS_MAX, COMMITS_MAX, SAMPLE_TIME_MAX};
use crate::measures::{Measures, record_since};
use crate::outgoing::Outgoing;
use crate::peers::Peers;
use crate::shown::ShownCredentials;

/// A connection as the hub sees it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) outgoing: Arc<Outgoing>,
    pub(crate) credential: Credential,
    /// Producer that has shown it.
    writer: Option<WriterId>,
    /// Chunk whose acknowledgement is timed.
    sample: Option<Sample>,
}

/// A chunk whose acknowledgement is timed: the file, its last byte, and the time of its receipt.
#[derive(Clone, Copy, Debug)]
struct Sample {
    file: FileId,
    last: u64,
    since: Instant,
}

impl Peer {
    /// Begins to time the acknowledgement of a chunk, unless another one is timed.
    fn begin_sample(&mut self, head: &ChunkHead) {
        if self.sample.is_none_or(|sample| sample.since.elapsed() > SAMPLE_TIME_MAX) {
            self.sample =
                Some(Sample { file: head.file, last: head.end().saturating_sub(1), since: Instant::now() });
        }
    }

    /// Returns the time of receipt of the timed chunk, if it is in an acknowledgement.
    fn end_sample(&mut self, ack: &Ack) -> Option<Instant> {
        let has = |sample: &Sample| {
            let mut ranges = ack.ranges.iter();
            ack.file == sample.file && ranges.any(|range| (range.from..range.to).contains(&sample.last))
        };
        self.sample.take_if(|sample| has(sample)).map(|sample| sample.since)
    }
}

struct State {
    service: Service,
    connections: HashMap<ConnectionId, Peer>,
    shown: ShownCredentials,
    next_connection: ConnectionId,
}

/// The service, shared by connections, threads of disks and tasks.
pub(crate) struct Hub {
    state: Mutex<State>,
    pub(crate) clock: Clock,
    disks: Disks,
    catalogue: Arc<dyn Catalogue>,
    service: ServiceId,
    measures: Arc<Measures>,
    runtime: Handle,
    bookings: Arc<Semaphore>,
    commits: Arc<Semaphore>,
    /// Links to other services; none for a service that is alone.
    neighbours: std::sync::OnceLock<Peers>,
}

impl Hub {
    pub(crate) fn new(
        (id, service): (ServiceId, Service),
        clock: Clock,
        disks: Disks,
        catalogue: Arc<dyn Catalogue>,
        measures: Arc<Measures>,
    ) -> Self {
        Hub {
            service: id,
            measures,
            state: Mutex::new(State {
                service,
                connections: HashMap::new(),
                shown: ShownCredentials::default(),
                next_connection: 0,
            }),
            clock,
            disks,
            catalogue,
            runtime: Handle::current(),
            bookings: Arc::new(Semaphore::new(BOOKINGS_MAX)),
            commits: Arc::new(Semaphore::new(COMMITS_MAX)),
            neighbours: std::sync::OnceLock::new(),
        }
    }

    pub(crate) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Returns the identity of the service.
    pub(crate) fn service(&self) -> ServiceId {
        self.service
    }

    /// Returns the counters of the service.
    pub(crate) fn measures(&self) -> &Measures {
        &self.measures
    }

    /// Lets the hub speak with other services from now on.
    pub(crate) fn set_neighbours(&self, neighbours: Peers) {
        let _ = self.neighbours.set(neighbours);
    }

    /// Returns the number of messages to other services that were lost on the links that stand.
    pub(crate) fn lost_messages(&self) -> u64 {
        let status = self.neighbours.get().map(Peers::status).unwrap_or_default();
        status.iter().map(|peer| peer.lost).sum()
    }

    /// Does something with the service, and distributes what comes out.
    pub(crate) fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut Service, u64) -> T) -> T {
        let mut state = self.state.lock();
        let result = act(&mut state.service, self.clock.now());
        self.distribute(&mut state);
        result
    }

    /// Takes a chunk of a connection, whose bytes are in a block at their place.
    pub(crate) fn chunk(
        self: &Arc<Self>,
        connection: ConnectionId,
        head: &ChunkHead,
        (block, sums): (&mut Block, &RunningSums),
    ) {
        let chunk = SummedChunk::in_block(head, block, sums);
        let mut state = self.state.lock();
        if let Some(peer) = state.connections.get_mut(&connection) {
            peer.begin_sample(head);
        }
        state.service.chunk(connection, chunk, self.clock.now());
        self.distribute(&mut state);
    }

    /// Takes a connection. Returns its number.
    pub(crate) fn connect(self: &Arc<Self>, outgoing: Arc<Outgoing>) -> ConnectionId {
        let mut state = self.state.lock();
        state.next_connection += 1;
        let connection = state.next_connection;
        let peer = Peer { outgoing, credential: Credential::None, writer: None, sample: None };
        state.connections.insert(connection, peer);
        state.service.connected(connection, self.clock.now());
        self.distribute(&mut state);
        connection
    }

    /// Notes what a producer shows. False if another one showed something else under this identity.
    pub(crate) fn identify(
        &self,
        connection: ConnectionId,
        writer: WriterId,
        credential: Credential,
    ) -> bool {
        let mut state = self.state.lock();
        let State { connections, shown, .. } = &mut *state;
        // A connection has one identity: with a second hello it ends, or has ended.
        if connections.get(&connection).is_none_or(|peer| peer.writer.is_some()) {
            return true;
        }
        let connected = || connections.values().filter_map(|peer| peer.writer).collect::<HashSet<_>>();
        if !shown.admit(writer, &credential, connected) {
            return false;
        }
        if let Some(peer) = connections.get_mut(&connection) {
            (peer.credential, peer.writer) = (credential, Some(writer));
        }
        true
    }

    /// Takes the end of a connection.
    pub(crate) fn disconnect(self: &Arc<Self>, connection: ConnectionId) {
        let mut state = self.state.lock();
        if state.connections.remove(&connection).is_some() {
            state.service.disconnected(connection, self.clock.now());
            self.distribute(&mut state);
        }
    }

    /// Tells a peer that its bytes are wrong, and ends the connection.
    pub(crate) fn refuse(self: &Arc<Self>, connection: ConnectionId, reason: String) {
        let refusal = Refusal { class: RefusalClass::BadRequest, part: None, reason };
        let mut state = self.state.lock();
        if let Some(peer) = state.connections.remove(&connection) {
            peer.outgoing.push(&Frame::Refusal(refusal));
            peer.outgoing.end();
            state.service.disconnected(connection, self.clock.now());
            self.distribute(&mut state);
        }
    }

    /// Ends all connections.
    pub(crate) fn disconnect_all(&self) {
        self.state.lock().connections.drain().for_each(|(_, peer)| peer.outgoing.end());
    }

    fn distribute(self: &Arc<Self>, state: &mut State) {
        while let Some(output) = state.service.next_output() {
            match output {
                Output::Send(connection, frame) => {
                    let Some(peer) = state.connections.get_mut(&connection) else { continue };
                    if let Frame::Ack(ack) = &frame
                        && let Some(since) = peer.end_sample(ack)
                    {
                        record_since(&self.measures.acknowledgements, since);
                    }
                    if !peer.outgoing.push(&frame) {
                        tracing::warn!(connection, "a peer takes no bytes: its connection ends");
                        peer.outgoing.end();
                        state.connections.remove(&connection);
                        state.service.disconnected(connection, self.clock.now());
                    }
                }
                Output::End(connection) => {
                    if let Some(peer) = state.connections.remove(&connection) {
                        peer.outgoing.end();
                    }
                }
                Output::Tell(service, frame) => {
                    if let Some(neighbours) = self.neighbours.get() {
                        neighbours.tell(service, &frame);
                    }
                }
                Output::Gossip(table) => {
                    if let Some(neighbours) = self.neighbours.get() {
                        neighbours.gossip(table);
                    }
                }
                Output::Work(volume, work) => self.disks.push(volume, work),
                Output::Authorize { connection, open } => {
                    let credential = state.connections.get(&connection).map(|peer| peer.credential.clone());
                    self.book(connection, credential.unwrap_or(Credential::None), open);
                }
                Output::Certify(certificate) => self.commit(certificate),
            }
        }
    }

    fn book(self: &Arc<Self>, connection: ConnectionId, credential: Credential, open: Box<Open>) {
        let hub = Arc::clone(self);
        self.runtime.spawn(async move {
            let Ok(_permit) = hub.bookings.acquire().await else { return };
            let call = hub.measures.bookings.begin();
            let outcome = hub.catalogue.book(&credential, &open).await;
            call.end(outcome.as_ref().err().map(|(_, reason)| reason.as_str()));
            hub.with(|service, now| service.authorized(connection, open.file, outcome, now));
        });
    }

    fn commit(self: &Arc<Self>, certificate: Box<Certificate>) {
        let hub = Arc::clone(self);
        self.runtime.spawn(async move {
            let Ok(_permit) = hub.commits.acquire().await else { return };
            let file: FileId = certificate.file;
            let call = hub.measures.commits.begin();
            let outcome = hub.catalogue.commit(&certificate).await;
            call.end(outcome.as_ref().err().map(|failure| failure.reason.as_str()));
            if let Err(failure) = &outcome {
                tracing::warn!(%file, lfn = %certificate.description.lfn, reason = failure.reason,
                    "a whole file is not in the catalogue yet");
            }
            let outcome = outcome.map_err(|failure| (failure.is_final, failure.reason));
            hub.with(|service, now| service.catalogue_answered(file, outcome, now));
        });
    }
}
