//! State of a service: connections, parts, files, volumes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use exacat_wire::writer::{
    ChunkRecord, Close, FileId, Frame, Open, PartOwner, PartState, ServiceId, ServiceRecord, ServiceState,
    Table, WriterId,
};

use crate::block::BlockPool;
use crate::certificate::Certificate;
use crate::item::{FileStage, Item, PartKey, PartOrigin, SealedBy};
use crate::part::OpenPart;
use crate::table::ServiceTable;
use crate::volume::Recovered;
use crate::work::Work;

/// Connection, by a number that its owner chose and never uses again.
pub type ConnectionId = u64;

/// Settings of a service. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The service.
    pub service: ServiceId,
    /// Name, for logs.
    pub name: String,
    /// Host and port for producers.
    pub address: String,
    /// Blocks of 1 MiB for the bytes of all files.
    pub blocks: usize,
    /// Age of bytes at which a block is written before it is full.
    pub flush_ms: u64,
    /// Silence after which a connection is closed.
    pub idle_ms: u32,
    /// Time without a connection of its producer after which a part is sealed.
    pub orphan_ms: u64,
    /// Longest wait for parts of other services that are not needed for a whole file.
    pub part_wait_ms: u64,
    /// Time between two questions for a part.
    pub ask_every_ms: u64,
    /// Time between two tables.
    pub table_every_ms: u64,
    /// Silence after which a service counts as gone.
    pub gone_ms: u64,
    /// Free bytes of a volume below which it takes no file.
    pub free_bytes_min: u64,
    /// First version of this service's record; larger than at any earlier start.
    pub first_version: u64,
}

/// Message or work that goes out.
#[derive(Debug)]
pub enum Output {
    /// Send a frame.
    Send(ConnectionId, Frame),
    /// End a connection, after the frames before.
    End(ConnectionId),
    /// Send a frame to another service. It may be lost.
    Tell(ServiceId, Frame),
    /// Send the table to all other services. It may be lost.
    Gossip(Table),
    /// Do some work on a volume.
    Work(usize, Work),
    /// Ask the catalogue whether a producer may write a file, and who will own it. The answer is
    /// [`authorized`](Service::authorized).
    Authorize {
        /// Connection of the producer.
        connection: ConnectionId,
        /// Open of the first part of the file here.
        open: Box<Open>,
    },
    /// Commit a file to the catalogue, once, under an operation id that follows from the file's id.
    Certify(Box<Certificate>),
}

/// State of a file for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The file.
    pub file: FileId,
    /// Stage.
    pub stage: FileStage,
    /// Reason why it is not further; empty if there is none.
    pub reason: String,
    /// Bytes that are durable here.
    pub bytes: u64,
}

/// A peer of a connection after its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Unknown,
    Producer(WriterId),
    Service(ServiceId),
}

/// An open that waits for the catalogue's permission.
#[derive(Debug)]
pub(super) struct PendingOpen {
    pub open: Open,
    pub since: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub peer: Peer,
    pub heard: u64,
}

/// A part that is sealed.
#[derive(Debug)]
pub(super) struct SealedPart {
    pub origin: PartOrigin,
    pub volume: usize,
    pub chunks: Vec<ChunkRecord>,
    pub by: SealedBy,
}

#[derive(Debug)]
pub(super) enum PartSlot {
    Open(Box<OpenPart>),
    Sealed(SealedPart),
}

/// Report of another service about its part, as far as it came.
#[derive(Debug)]
pub(super) struct Reported {
    pub state: PartState,
    pub chunks: Vec<ChunkRecord>,
    pub is_complete: bool,
}

/// A file that was closed here, or is more than open.
#[derive(Debug)]
pub(super) struct FileEntry {
    pub stage: FileStage,
    pub reason: String,
    pub close: Option<Close>,
    /// True once the close is durable.
    pub is_close_durable: bool,
    /// Volume with the items of the file.
    pub volume: usize,
    pub closed_at: u64,
    pub asked_at: u64,
    pub reports: BTreeMap<u32, Reported>,
    /// Certificate on its way to the catalogue, or in it.
    pub certificate: Option<Box<Certificate>>,
    pub is_committing: bool,
    /// Services with parts that do not know yet that the file is certified.
    pub to_tell: Vec<PartOwner>,
}

impl FileEntry {
    pub(super) fn new(volume: usize, now: u64) -> Self {
        FileEntry {
            stage: FileStage::Open,
            reason: String::new(),
            close: None,
            is_close_durable: false,
            volume,
            closed_at: now,
            asked_at: 0,
            reports: BTreeMap::new(),
            certificate: None,
            is_committing: false,
            to_tell: Vec::new(),
        }
    }
}

/// Consequence of a commit.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Durable(PartKey, usize),
    Sealed(PartKey, SealedBy),
    Closed(FileId),
    Stage(FileId),
}

#[derive(Debug, Default)]
pub(super) struct VolumeState {
    pub items: Vec<Item>,
    pub effects: Vec<Effect>,
    /// Effects of the commit on its way.
    pub committing: Option<Vec<Effect>>,
    pub read_only: Option<String>,
    pub is_full: bool,
    pub free_bytes: u64,
}

/// The service.
pub struct Service {
    pub(super) settings: ServiceSettings,
    pub(super) pool: BlockPool,
    pub(super) volumes: Vec<VolumeState>,
    pub(super) parts: BTreeMap<PartKey, PartSlot>,
    pub(super) files: BTreeMap<FileId, FileEntry>,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    /// Opens that the catalogue has not answered.
    pub(super) authorizing: BTreeMap<(ConnectionId, FileId), PendingOpen>,
    /// Latest session of each producer, and its connection.
    pub(super) writers: BTreeMap<WriterId, (u64, Option<ConnectionId>)>,
    /// Time at which the producer of an open part was last connected.
    pub(super) attended: BTreeMap<WriterId, u64>,
    pub(super) table: ServiceTable,
    pub(super) version: u64,
    pub(super) table_at: u64,
    pub(super) is_draining: bool,
    pub(super) output: VecDeque<Output>,
    /// Parts that may have work.
    pub(super) changed: BTreeSet<PartKey>,
    /// Files to be looked at.
    pub(super) pending: BTreeSet<FileId>,
    pub(super) durable_bytes: u64,
}

impl Service {
    /// Makes a service of volumes that were opened.
    pub fn new(settings: ServiceSettings, recovered: Vec<Recovered>, now: u64) -> Self {
        let mut service = Service {
            pool: BlockPool::new(settings.blocks),
            version: settings.first_version,
            settings,
            volumes: Vec::new(),
            parts: BTreeMap::new(),
            files: BTreeMap::new(),
            connections: BTreeMap::new(),
            authorizing: BTreeMap::new(),
            writers: BTreeMap::new(),
            attended: BTreeMap::new(),
            table: ServiceTable::default(),
            table_at: now,
            is_draining: false,
            output: VecDeque::new(),
            changed: BTreeSet::new(),
            pending: BTreeSet::new(),
            durable_bytes: 0,
        };
        for (volume, recovered) in recovered.into_iter().enumerate() {
            service.take_in(volume, recovered, now);
        }
        service.note_self(now);
        service
    }

    fn take_in(&mut self, volume: usize, mut recovered: Recovered, now: u64) {
        for (key, part) in recovered.index.parts {
            let chunks = recovered.chunks.remove(&key).unwrap_or_default();
            let by = match recovered.damaged.contains_key(&key) {
                true => SealedBy::Loss,
                false => part.sealed.unwrap_or(SealedBy::Fault),
            };
            self.parts.insert(key, PartSlot::Sealed(SealedPart { origin: part.origin, volume, chunks, by }));
        }
        for (file, indexed) in recovered.index.files {
            let mut entry = FileEntry::new(volume, now);
            entry.is_close_durable = indexed.close.is_some();
            (entry.stage, entry.reason, entry.close) = (indexed.stage, indexed.reason, indexed.close);
            self.files.insert(file, entry);
            self.pending.insert(file);
        }
        let (read_only, free_bytes) = (recovered.read_only, recovered.free_bytes);
        self.volumes.push(VolumeState { read_only, free_bytes, ..VolumeState::default() });
    }

    /// Returns the next output.
    pub fn next_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    pub(super) fn send(&mut self, connection: ConnectionId, frame: Frame) {
        self.output.push_back(Output::Send(connection, frame));
    }

    /// Returns the connection of a producer.
    pub(super) fn connection_of(&self, writer: WriterId) -> Option<ConnectionId> {
        self.writers.get(&writer).and_then(|(_, connection)| *connection)
    }

    /// Returns the number of files being written.
    pub fn open_parts(&self) -> usize {
        self.parts.values().filter(|slot| matches!(slot, PartSlot::Open(_))).count()
    }

    pub(super) fn is_writable(&self, volume: &VolumeState) -> bool {
        volume.read_only.is_none() && !volume.is_full && volume.free_bytes >= self.settings.free_bytes_min
    }

    /// Returns the volume for a new part: the one with the most free space.
    pub(super) fn volume_for_part(&self) -> Option<usize> {
        let writable = self.volumes.iter().enumerate().filter(|(_, volume)| self.is_writable(volume));
        writable.max_by_key(|(_, volume)| volume.free_bytes).map(|(at, _)| at)
    }

    /// Updates this service's record in its own table.
    pub(super) fn note_self(&mut self, now: u64) {
        self.version += 1;
        let writable: Vec<u64> = self
            .volumes
            .iter()
            .filter(|volume| self.is_writable(volume))
            .map(|volume| volume.free_bytes)
            .collect();
        let state = match (self.is_draining, writable.is_empty()) {
            (true, _) => ServiceState::Draining,
            (false, true) => ServiceState::ReadOnly,
            (false, false) => ServiceState::Up,
        };
        let queued = self.parts.values().map(|slot| match slot {
            PartSlot::Open(part) => part.queued_bytes(),
            PartSlot::Sealed(_) => 0,
        });
        let elapsed = now.saturating_sub(self.table_at).max(1);
        let record = ServiceRecord {
            service: self.settings.service,
            version: self.version,
            address: self.settings.address.clone(),
            state,
            volumes: u16::try_from(writable.len()).unwrap_or(u16::MAX),
            free_bytes: writable.iter().sum(),
            queued_bytes: queued.sum(),
            bytes_per_second: self.durable_bytes.saturating_mul(1000) / elapsed,
            open_files: u32::try_from(self.open_parts()).unwrap_or(u32::MAX),
        };
        self.durable_bytes = 0;
        self.table_at = now;
        self.table.merge(&Table(vec![record]), now);
    }

    /// Returns the table of services.
    pub fn table(&self) -> Table {
        self.table.to_table()
    }

    /// Returns the files that are not certified, with the reasons, and those that are.
    pub fn files(&self) -> Vec<FileStatus> {
        let mut all: BTreeMap<FileId, FileStatus> = BTreeMap::new();
        for (key, slot) in &self.parts {
            let (chunks, what) = match slot {
                PartSlot::Open(part) => (part.chunks.durable(), "being written"),
                PartSlot::Sealed(part) => (part.chunks.as_slice(), "not closed by its producer"),
            };
            let bytes: u64 = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
            let status = all.entry(key.file).or_insert_with(|| FileStatus {
                file: key.file,
                stage: FileStage::Open,
                reason: String::new(),
                bytes: 0,
            });
            status.bytes += bytes;
            what.clone_into(&mut status.reason);
        }
        for (file, entry) in &self.files {
            let bytes = all.get(file).map_or(0, |status| status.bytes);
            let (stage, reason) = (entry.stage, entry.reason.clone());
            if stage > FileStage::Open {
                all.insert(*file, FileStatus { file: *file, stage, reason, bytes });
            }
        }
        all.into_values().collect()
    }
}
