//! State of a producer: streams, files, chunks that are not acknowledged, links to services.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use exacat_wire::writer::limits::BLOCK_BYTES;
use exacat_wire::writer::{
    ByteRange, Certified, ChunkHead, Description, FileId, Frame, PartOwner, ServiceId, WriterId,
};

use crate::limits::PRODUCER_FILES_MAX;
use crate::sums::{ADLER32_OF_NOTHING, adler32, adler32_of_both, crc32c};
use crate::table::ServiceTable;

/// Settings of a producer. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct ProducerSettings {
    /// Identity.
    pub writer: WriterId,
    /// Name, for logs.
    pub name: String,
    /// Bytes of events that are kept at most.
    pub memory_bytes: usize,
    /// Age at which events are sent that fill no chunk.
    pub linger_ms: u64,
    /// Silence of a service after which its link counts as broken.
    pub silence_ms: u64,
    /// Time for a connection to be made and greeted.
    pub connect_ms: u64,
    /// Pause after a service has failed, before it is tried again.
    pub retry_ms: u64,
    /// Number of the first session; larger than at any earlier start of this writer.
    pub first_session: u64,
}

/// Settings of a stream.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Content of its files; the name of a file gets a number behind it.
    pub description: Description,
    /// Bytes after which a file ends.
    pub file_bytes_max: u64,
    /// Events after which a file ends.
    pub file_events_max: u64,
    /// Age in milliseconds at which a file ends.
    pub file_ms_max: u64,
}

/// Outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The event is kept. It is in this file.
    Kept(FileId),
    /// There is no memory for it now: block, or shed it.
    Full,
}

/// End of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is in the catalogue.
    Certified(Certified),
    /// It will never be.
    Failed(String),
}

/// News for the owner of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a file are durable.
    Durable(FileId, ByteRange),
    /// A file has ended.
    File(FileId, Closed),
}

/// Action for the owner of the sockets.
#[derive(Debug)]
pub enum ProducerOutput {
    /// Connect to a service, under this number.
    Connect(u64, ServiceId),
    /// Send a frame.
    Send(u64, Frame),
    /// Send a chunk.
    SendChunk(u64, ChunkHead, Arc<[u8]>),
    /// End a connection.
    End(u64),
    /// News.
    News(Event),
}

/// A chunk that is not acknowledged.
#[derive(Debug)]
pub(super) struct KeptChunk {
    pub sequence: u64,
    pub offset: u64,
    pub events: u32,
    pub crc32c: u32,
    pub adler32: u32,
    pub bytes: Arc<[u8]>,
}

impl KeptChunk {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
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
    pub place: Place,
    pub service: Option<ServiceId>,
    pub epoch: u32,
    /// True if the epoch was sent to its service: the next part needs another one.
    pub is_epoch_used: bool,
    /// Opens that were sent with the epoch.
    pub opens: u32,
    pub parts: Vec<PartOwner>,
    pub kept: VecDeque<KeptChunk>,
    /// Chunks at the front of `kept` that were sent on this link.
    pub sent: usize,
    pub limit: u64,
    /// Events that fill no chunk yet.
    pub filling: Vec<u8>,
    pub filling_events: u32,
    pub filling_since: Option<u64>,
    pub next_sequence: u64,
    pub length: u64,
    pub events: u64,
    pub adler32: u32,
    pub begun: u64,
    pub is_closed: bool,
    pub is_close_sent: bool,
    /// Time before which no service is tried.
    pub retry_at: u64,
    /// Services that failed since one worked.
    pub failures: u32,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub settings: StreamSettings,
    pub file: Option<FileId>,
    pub files: u64,
    pub service: Option<ServiceId>,
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

/// The producer.
pub struct Producer {
    pub(super) settings: ProducerSettings,
    pub(super) random: fastrand::Rng,
    pub(super) table: ServiceTable,
    pub(super) streams: BTreeMap<u32, Stream>,
    pub(super) files: BTreeMap<FileId, OutFile>,
    pub(super) links: BTreeMap<ServiceId, Link>,
    /// Services that failed, and the time from which on they are tried again.
    pub(super) resting: BTreeMap<ServiceId, u64>,
    pub(super) session: u64,
    pub(super) memory: usize,
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
            links: BTreeMap::new(),
            resting: BTreeMap::new(),
            memory: 0,
            output: VecDeque::new(),
        }
    }

    /// Begins a stream under a number.
    pub fn open_stream(&mut self, stream: u32, settings: StreamSettings) {
        self.streams.insert(stream, Stream { settings, file: None, files: 0, service: None });
    }

    /// Returns the next output.
    pub fn next_output(&mut self) -> Option<ProducerOutput> {
        self.output.pop_front()
    }

    /// Returns the bytes of events that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.memory
    }

    /// Returns the number of files that are not certified.
    pub fn uncertified_files(&self) -> usize {
        self.files.len()
    }

    /// Describes the files that are not certified, for people.
    pub fn uncertified(&self) -> Vec<(FileId, String)> {
        let of = |(id, file): (&FileId, &OutFile)| {
            let service = file.service.map_or_else(|| "no service".to_owned(), |service| service.to_string());
            let place = match file.place {
                Place::Nowhere => "looks for a service, the last was",
                Place::Chosen => "connects to",
                Place::Opening => "opens at",
                Place::Open if file.is_close_sent => "waits for the certificate of",
                Place::Open => "writes to",
            };
            let (parts, chunks) = (file.parts.len(), file.kept.len());
            (*id, format!("{place} {service}; epoch {}, {parts} parts, {chunks} chunks kept", file.epoch))
        };
        self.files.iter().map(of).collect()
    }

    /// Appends an event to a stream; all of it or nothing.
    pub fn append(&mut self, stream: u32, event: &[u8], now: u64) -> Appended {
        let Some(of) = self.streams.get(&stream) else { return Appended::Full };
        if self.memory + event.len() > self.settings.memory_bytes {
            return Appended::Full;
        }
        if let Some(file) = of.file.and_then(|id| self.files.get(&id)) {
            let settings = &of.settings;
            let is_full = file.length + event.len() as u64 > settings.file_bytes_max && file.length > 0;
            if is_full || file.events >= settings.file_events_max {
                self.end_file(stream, now);
            }
        }
        let Some(id) = self.file_of(stream, now) else { return Appended::Full };
        let Some(file) = self.files.get_mut(&id) else { return Appended::Full };
        self.memory += event.len();
        file.events += 1;
        let mut rest = event;
        while !rest.is_empty() {
            // A chunk ends with its block, also within an event.
            let room = BLOCK_BYTES - (file.length % BLOCK_BYTES as u64) as usize;
            let (piece, behind) = rest.split_at(room.min(rest.len()));
            file.filling.extend_from_slice(piece);
            file.length += piece.len() as u64;
            file.filling_since.get_or_insert(now);
            rest = behind;
            if rest.is_empty() {
                file.filling_events += 1;
            }
            if file.length % BLOCK_BYTES as u64 == 0 {
                file.end_chunk();
            }
        }
        self.pump(now);
        Appended::Kept(id)
    }

    /// Returns the file that a stream writes to; none if there are too many.
    fn file_of(&mut self, stream: u32, now: u64) -> Option<FileId> {
        let of = self.streams.get_mut(&stream)?;
        if let Some(id) = of.file {
            return Some(id);
        }
        if self.files.len() >= PRODUCER_FILES_MAX {
            return None;
        }
        of.files += 1;
        let mut description = of.settings.description.clone();
        let name = format!("{}.{:06}", description.lfn, of.files);
        description.lfn = exacat_model::Lfn::parse(&name).ok()?;
        let id = FileId(self.random.u128(..).to_be_bytes());
        of.file = Some(id);
        let file = OutFile {
            stream,
            description,
            place: Place::Nowhere,
            service: None,
            epoch: 1,
            is_epoch_used: false,
            opens: 0,
            parts: Vec::new(),
            kept: VecDeque::new(),
            sent: 0,
            limit: 0,
            filling: Vec::new(),
            filling_events: 0,
            filling_since: None,
            next_sequence: 0,
            length: 0,
            events: 0,
            adler32: ADLER32_OF_NOTHING,
            begun: now,
            is_closed: false,
            is_close_sent: false,
            retry_at: 0,
            failures: 0,
        };
        self.files.insert(id, file);
        Some(id)
    }

    /// Ends the file of a stream; the next event begins another.
    pub fn end_file(&mut self, stream: u32, now: u64) {
        let Some(id) = self.streams.get_mut(&stream).and_then(|of| of.file.take()) else { return };
        if let Some(file) = self.files.get_mut(&id) {
            file.end_chunk();
            file.is_closed = true;
        }
        self.pump(now);
    }

    pub(super) fn send(&mut self, connection: u64, frame: Frame) {
        self.output.push_back(ProducerOutput::Send(connection, frame));
    }

    pub(super) fn news(&mut self, event: Event) {
        self.output.push_back(ProducerOutput::News(event));
    }
}

impl OutFile {
    /// Ends the chunk that is being filled.
    pub(super) fn end_chunk(&mut self) {
        if self.filling.is_empty() {
            return;
        }
        let bytes: Arc<[u8]> = std::mem::take(&mut self.filling).into();
        let chunk = KeptChunk {
            sequence: self.next_sequence,
            offset: self.length - bytes.len() as u64,
            events: std::mem::take(&mut self.filling_events),
            crc32c: crc32c(&bytes),
            adler32: adler32(&bytes),
            bytes,
        };
        self.adler32 = adler32_of_both(self.adler32, chunk.adler32, chunk.bytes.len() as u64);
        self.next_sequence += 1;
        self.filling_since = None;
        self.kept.push_back(chunk);
    }

    /// Returns the first byte that is not known to be durable.
    pub(super) fn first_kept(&self) -> u64 {
        self.kept.front().map_or(self.length - self.filling.len() as u64, |chunk| chunk.offset)
    }
}
