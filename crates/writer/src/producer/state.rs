//! State of a producer: files on their way, chunks that are not acknowledged, links to services.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use exacat_wire::native::Secret;
use exacat_wire::writer::{
    ByteRange, Certified, ChunkHead, Description, FileId, Frame, PartOwner, ServiceId, Table, WriterId,
};

use super::memory::FileRoom;
use super::packing::{Chunk, FileEnd, Position};
use crate::limits::FILE_PARTS_END;
use crate::table::ServiceTable;

/// Settings of a producer. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct ProducerSettings {
    /// Identity.
    pub writer: WriterId,
    /// Name, for logs.
    pub name: String,
    /// Token of the catalogue.
    pub token: Option<Secret>,
    /// Silence of a service after which its link counts as broken.
    pub silence_ms: u64,
    /// Time for a connection to be made and greeted.
    pub connect_ms: u64,
    /// Pause after a service has failed, before it is tried again.
    pub retry_ms: u64,
    /// Number of the first session; larger than at any earlier start of this writer.
    pub first_session: u64,
}

/// End of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is in the catalogue.
    Certified(Certified),
    /// It will never be.
    Failed(String),
}

/// Events of a stream whose fate is known, from its begin on without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Place behind the last of them.
    pub through: Position,
    /// Those that are lost with files that failed. All others are durable.
    pub lost: Position,
}

/// News for the owner of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a file are durable.
    Durable(FileId, ByteRange),
    /// More events of a stream are durable, or lost.
    Settled(u32, Settled),
    /// A file has ended. It was of this stream.
    File(u32, FileId, Closed),
}

/// Action for the owner of the sockets.
#[derive(Debug)]
pub enum ProducerOutput {
    /// Connect to a service, under this number.
    Connect(u64, ServiceId),
    /// Send a frame.
    Send(u64, Frame),
    /// Send a chunk.
    SendChunk(u64, ChunkHead, Bytes),
    /// End a connection.
    End(u64),
    /// News.
    News(Event),
}

/// A file that is not certified, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncertified {
    /// The file.
    pub file: FileId,
    /// Its stream.
    pub stream: u32,
    /// Its content.
    pub description: Description,
    /// Reason why it is not certified.
    pub reason: String,
    /// True once it has all its bytes.
    pub is_ended: bool,
    /// Bytes that the producer has taken.
    pub length: u64,
    /// Bytes of these that are not durable.
    pub kept_bytes: u64,
}

/// A chunk that is not acknowledged, and its number among those of its stream.
#[derive(Debug)]
pub(super) struct KeptChunk {
    pub chunk: Chunk,
    pub number: u64,
}

/// State of a file at its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// No service has been chosen, or the last one failed.
    Nowhere,
    /// The service is chosen, and its link not ready.
    Chosen,
    /// The open is sent.
    Opening,
    /// The part is open.
    Open,
}

#[derive(Debug)]
pub(super) struct OutFile {
    pub stream: u32,
    pub description: Description,
    pub _room: FileRoom,
    pub place: Place,
    pub service: Option<ServiceId>,
    pub epoch: u32,
    /// True if the epoch was sent to its service: the next part needs another one.
    pub is_epoch_used: bool,
    /// Opens that were sent with the epoch.
    pub opens: u32,
    pub parts: Vec<PartOwner>,
    /// Chunks in ascending order.
    pub kept: VecDeque<KeptChunk>,
    /// Chunks at the front of `kept` that were sent on this link.
    pub sent: usize,
    /// Chunks that were sent with the epoch, repeats included.
    pub part_chunks: usize,
    pub limit: u64,
    /// Bytes so far.
    pub length: u64,
    /// Place up to which a flush is wanted.
    pub flush_to: Option<u64>,
    pub end: Option<FileEnd>,
    pub is_close_sent: bool,
    /// Time before which no service is tried.
    pub retry_at: u64,
    /// Services that failed since one worked.
    pub failures: u32,
    /// Parts that were begun since bytes became durable.
    pub fruitless: u32,
    /// Last refusal, for people.
    pub refusal: String,
}

impl OutFile {
    /// Returns the first byte that is not known to be durable.
    pub(super) fn first_kept(&self) -> u64 {
        self.kept.front().map_or(self.length, |kept| kept.chunk.offset)
    }

    fn describe(&self) -> String {
        let service = self.service.map_or_else(|| "no service".to_owned(), |service| service.to_string());
        let place = match self.place {
            Place::Nowhere => "looks for a service, the last was",
            Place::Chosen => "connects to",
            Place::Opening => "opens at",
            Place::Open if self.is_close_sent => "waits for the certificate of",
            Place::Open => "writes to",
        };
        let (parts, chunks) = (self.parts.len(), self.kept.len());
        let mut text =
            format!("{place} {service}; epoch {}, {parts} parts, {chunks} chunks kept", self.epoch);
        if !self.refusal.is_empty() {
            text.push_str(&format!("; last refusal: {}", self.refusal));
        }
        text
    }
}

/// Fate of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Durable,
    Lost,
}

/// A stream, and its chunks whose fate is not known, or known while that of an earlier one is not.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Service of its last file.
    pub service: Option<ServiceId>,
    chunks: VecDeque<(Position, Fate)>,
    /// Number of the first of these.
    first: u64,
    settled: Settled,
}

impl Stream {
    /// Takes note of a chunk, and returns its number.
    pub(super) fn add(&mut self, chunk: &Chunk, fate: Fate) -> u64 {
        let size = Position { bytes: chunk.bytes.len() as u64, events: u64::from(chunk.events) };
        self.chunks.push_back((size, fate));
        self.first + self.chunks.len() as u64 - 1
    }

    /// Notes the fate of a chunk.
    pub(super) fn note(&mut self, number: u64, fate: Fate) {
        if let Some(chunk) = self.chunks.get_mut(number.wrapping_sub(self.first) as usize) {
            chunk.1 = fate;
        }
    }

    /// Returns how far the fates are known, if that is farther than before.
    pub(super) fn settle(&mut self) -> Option<Settled> {
        let before = self.first;
        while let Some((size, fate)) = self.chunks.pop_front_if(|(_, fate)| *fate != Fate::Kept) {
            self.first += 1;
            let positions =
                [Some(&mut self.settled.through), (fate == Fate::Lost).then_some(&mut self.settled.lost)];
            for position in positions.into_iter().flatten() {
                position.bytes += size.bytes;
                position.events += size.events;
            }
        }
        (self.first > before).then_some(self.settled)
    }
}

/// State of a link to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Connecting,
    Ready,
}

#[derive(Debug)]
pub(super) struct Link {
    pub connection: u64,
    pub state: LinkState,
    /// Time of the last message, or of the begin.
    pub heard: u64,
    pub pinged: u64,
}

/// The producer. It takes what packers pack, and gives it to services.
pub struct Producer {
    pub(super) settings: ProducerSettings,
    pub(super) random: fastrand::Rng,
    pub(super) table: ServiceTable,
    pub(super) streams: BTreeMap<u32, Stream>,
    pub(super) files: BTreeMap<FileId, OutFile>,
    /// Files that something has happened to.
    pub(super) changed: BTreeSet<FileId>,
    /// Files without a service.
    pub(super) homeless: BTreeSet<FileId>,
    pub(super) links: BTreeMap<ServiceId, Link>,
    /// Services that failed, and the time from which on they are tried again.
    pub(super) resting: BTreeMap<ServiceId, u64>,
    pub(super) session: u64,
    pub(super) output: VecDeque<ProducerOutput>,
}

impl Producer {
    /// Makes a producer that knows some services. The seed gives its random numbers.
    pub fn new(settings: ProducerSettings, table: ServiceTable, seed: u64) -> Self {
        Producer {
            session: settings.first_session,
            settings,
            random: fastrand::Rng::with_seed(seed),
            table,
            streams: BTreeMap::new(),
            files: BTreeMap::new(),
            changed: BTreeSet::new(),
            homeless: BTreeSet::new(),
            links: BTreeMap::new(),
            resting: BTreeMap::new(),
            output: VecDeque::new(),
        }
    }

    /// Returns the next output.
    pub fn next_output(&mut self) -> Option<ProducerOutput> {
        self.output.pop_front()
    }

    /// Returns the number of files that are not certified.
    pub fn uncertified_files(&self) -> usize {
        self.files.len()
    }

    /// Describes the files that are not certified, for people.
    pub fn uncertified(&self) -> Vec<Uncertified> {
        let of = |(id, file): (&FileId, &OutFile)| Uncertified {
            file: *id,
            stream: file.stream,
            description: file.description.clone(),
            reason: file.describe(),
            is_ended: file.end.is_some(),
            length: file.length,
            kept_bytes: file.kept.iter().map(|kept| kept.chunk.bytes.len() as u64).sum(),
        };
        self.files.iter().map(of).collect()
    }

    /// Says whether a file should end before it has as many parts as it may have.
    pub fn has_few_parts_left(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|file| file.parts.len() >= FILE_PARTS_END)
    }

    /// Returns the services that the producer knows.
    pub fn table(&self) -> Table {
        self.table.to_table()
    }

    /// Returns the address of a service.
    pub fn address(&self, service: ServiceId) -> Option<String> {
        self.table.get(service).map(|record| record.address.clone())
    }

    /// Returns the services with a connection that was greeted.
    pub fn linked(&self) -> Vec<ServiceId> {
        let ready = self.links.iter().filter(|(_, link)| link.state == LinkState::Ready);
        ready.map(|(service, _)| *service).collect()
    }

    pub(super) fn send(&mut self, connection: u64, frame: Frame) {
        self.output.push_back(ProducerOutput::Send(connection, frame));
    }

    pub(super) fn news(&mut self, event: Event) {
        self.output.push_back(ProducerOutput::News(event));
    }

    /// Tells how far the fates of the events of a stream are known.
    pub(super) fn settle(&mut self, stream: u32) {
        if let Some(settled) = self.streams.get_mut(&stream).and_then(Stream::settle) {
            self.news(Event::Settled(stream, settled));
        }
    }
}
