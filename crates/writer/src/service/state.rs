//! State of a service: connections, parts, files, volumes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use exacat_wire::writer::limits::{BLOCK_BYTES, PARTS_MAX};
use exacat_wire::writer::{
    ChunkRecord, Close, FileId, Frame, Open, PartOwner, PartState, ServiceId, ServiceRecord, ServiceState,
    Table, WriterId,
};

use super::counters::Counters;
use super::settings::{ConnectionId, Output, ServiceSettings};
use crate::block::BlockPool;
use crate::certificate::Certificate;
use crate::certified::{CertifiedFile, CertifiedRecord};
use crate::item::{FileStage, Item, SealedBy};
use crate::limits::{PART_FAULTS_MAX, VOLUME_REST_MS};
use crate::origin::{PartKey, PartOrigin};
use crate::part::OpenPart;
use crate::table::ServiceTable;
use crate::volume::Recovered;
use crate::work::Fault;

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
    /// True while a block is reserved for what it receives, and not lent.
    pub has_room: bool,
}

/// A part that is sealed, of a file that is not certified.
#[derive(Debug)]
pub(super) struct SealedPart {
    pub origin: PartOrigin,
    pub volume: usize,
    pub chunks: Vec<ChunkRecord>,
    pub by: SealedBy,
}

/// A part of a file that is not certified.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartRef<'a> {
    Open(&'a OpenPart),
    Sealed(&'a SealedPart),
}

impl<'a> PartRef<'a> {
    pub(super) fn origin(self) -> &'a PartOrigin {
        match self {
            PartRef::Open(part) => &part.origin,
            PartRef::Sealed(part) => &part.origin,
        }
    }

    pub(super) fn volume(self) -> usize {
        match self {
            PartRef::Open(part) => part.volume,
            PartRef::Sealed(part) => part.volume,
        }
    }

    /// Returns the chunks that are on disk.
    pub(super) fn durable(self) -> &'a [ChunkRecord] {
        match self {
            PartRef::Open(part) => part.chunks.durable(),
            PartRef::Sealed(part) if part.by == SealedBy::Loss => &[],
            PartRef::Sealed(part) => &part.chunks,
        }
    }
}

/// Report of another service about its part, as far as it came.
#[derive(Debug)]
pub(super) struct Reported {
    /// The service that has the part.
    pub from: ServiceId,
    pub state: PartState,
    pub chunks: Vec<ChunkRecord>,
    pub is_complete: bool,
}

/// A file that was closed here, failed, or is about to be certified.
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
    /// Questions so far, for the back-off.
    pub asked: u64,
    /// Time in the queue of files to look at again.
    pub due: Option<u64>,
    pub reports: BTreeMap<u32, Reported>,
    /// Certificate on its way to the catalogue.
    pub certificate: Option<Box<Certificate>>,
    pub is_committing: bool,
    /// The file, once the catalogue has it. It waits for its parts here to be sealed.
    pub certified: Option<Box<CertifiedFile>>,
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
            asked: 0,
            due: None,
            reports: BTreeMap::new(),
            certificate: None,
            is_committing: false,
            certified: None,
        }
    }
}

/// A certified file. There may be very many.
#[derive(Debug)]
pub(super) struct KeptFile {
    pub record: CertifiedRecord,
    /// Volume of the record.
    pub volume: u16,
    pub stage: FileStage,
    /// True once the index has the stage.
    pub is_durable: bool,
    /// Time at which it was staged, for the order of removal.
    pub staged_at: u64,
    /// Records on further volumes, each with the parts there.
    pub others: Vec<(u16, CertifiedRecord)>,
}

impl KeptFile {
    /// Says whether a service is told of the file's removal, as far as this service tells any.
    pub(super) fn knows(&self, service: ServiceId) -> bool {
        self.record.unpack().is_none_or(|of| {
            let is_full = of.shares.len() >= PARTS_MAX;
            !of.is_certifier || is_full || of.shares.iter().any(|share| share.part.service == service)
        })
    }

    /// Returns the volumes with parts of the file, and these.
    pub(super) fn parts(&self) -> Vec<(usize, Vec<PartKey>)> {
        let records = std::iter::once((self.volume, &self.record));
        let all = records.chain(self.others.iter().map(|(volume, record)| (*volume, record)));
        let of_record = |(volume, record): (u16, &CertifiedRecord)| {
            let file = record.unpack()?;
            let keys = file.epochs.iter().map(|epoch| PartKey { file: file.file, epoch: *epoch });
            Some((usize::from(volume), keys.collect()))
        };
        all.filter_map(of_record).collect()
    }
}

/// News of a certified file for other services that do not know it yet.
#[derive(Debug)]
pub(super) struct Telling {
    pub to: Vec<PartOwner>,
    pub due: u64,
    pub told: u64,
}

/// A removal that is not done.
#[derive(Debug)]
pub(super) struct Removal {
    /// Volumes with parts that are not removed.
    pub volumes: Vec<usize>,
    pub failures: u64,
}

/// Consequence of a commit.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Durable(PartKey, usize),
    Sealed(PartKey, SealedBy),
    Closed(FileId),
    Certified(FileId),
    Stage(FileId, FileStage),
    /// The index of the volume has the order to remove a file.
    Removable(FileId),
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct VolumeState {
    pub items: Vec<Item>,
    pub effects: Vec<Effect>,
    /// Effects of the commit on its way.
    pub committing: Option<Vec<Effect>>,
    pub is_checkpointing: bool,
    pub read_only: Option<String>,
    pub is_full: bool,
    /// Parts that failed since one was sealed in order, and the reason of the last one.
    pub part_faults: u32,
    pub part_fault: String,
    /// Time until which no new part begins, after too many of them failed.
    pub rests_until: Option<u64>,
    pub free_bytes: u64,
    /// Staged files, the oldest first.
    pub staged: BTreeSet<(u64, FileId)>,
    /// Bytes of files whose removal was ordered since the free bytes were noted.
    pub freeing: u64,
}

impl VolumeState {
    /// True if it takes no new parts for a while.
    pub(super) fn is_resting(&self) -> bool {
        self.read_only.is_none() && self.rests_until.is_some()
    }

    /// Counts a part that failed. After a few in a row the volume rests; one more makes it rest again.
    pub(super) fn part_failed(&mut self, fault: &Fault, now: u64) {
        if fault.is_full {
            return;
        }
        self.part_faults += 1;
        self.part_fault.clone_from(&fault.reason);
        if self.part_faults >= PART_FAULTS_MAX {
            self.rests_until = Some(now + VOLUME_REST_MS);
        }
    }
}

/// The service.
pub struct Service {
    pub(super) settings: ServiceSettings,
    pub(super) pool: BlockPool,
    /// Works of parts on their way.
    pub(super) working: usize,
    /// Blocks reserved for what connections receive.
    pub(super) rooms: usize,
    pub(super) volumes: Vec<VolumeState>,
    /// Parts that are being written.
    pub(super) open: BTreeMap<PartKey, Box<OpenPart>>,
    /// Other parts of files that are not certified.
    pub(super) sealed: BTreeMap<PartKey, SealedPart>,
    /// Files that are closed and not certified, or failed.
    pub(super) files: BTreeMap<FileId, FileEntry>,
    pub(super) certified: BTreeMap<FileId, KeptFile>,
    /// Number of certified files by their stage: certified, staged, removed.
    pub(super) kept: [u64; 3],
    pub(super) telling: BTreeMap<FileId, Telling>,
    pub(super) removals: BTreeMap<FileId, Removal>,
    /// Removals to hand out, by the time.
    pub(super) removal_due: BTreeSet<(u64, FileId, usize)>,
    /// Number of removals on their way.
    pub(super) removing: usize,
    /// Removed files, and when they are forgotten.
    pub(super) removed: VecDeque<(u64, FileId)>,
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
    pub(super) silence_checked_at: u64,
    pub(super) is_draining: bool,
    pub(super) output: VecDeque<Output>,
    /// Parts that may have work.
    pub(super) changed: BTreeSet<PartKey>,
    /// Parts with bytes in no write yet, by the time of the first of them.
    pub(super) dirty: BTreeSet<(u64, PartKey)>,
    /// Parts with less than the smallest share of the memory.
    pub(super) hungry: BTreeSet<PartKey>,
    /// Part whose share was adapted last.
    pub(super) adapted: Option<PartKey>,
    /// Files to be looked at.
    pub(super) pending: BTreeSet<FileId>,
    /// Files to be looked at again, by the time.
    pub(super) due: BTreeSet<(u64, FileId)>,
    /// Files to tell other services about, by the time.
    pub(super) tell_due: BTreeSet<(u64, FileId)>,
    pub(super) durable_bytes: u64,
    pub(super) counters: Counters,
}

impl Service {
    /// Makes a service of volumes that were opened.
    pub fn new(settings: ServiceSettings, recovered: Vec<Recovered>, now: u64) -> Self {
        let mut service = Service {
            pool: BlockPool::new(settings.blocks),
            working: 0,
            rooms: 0,
            version: settings.first_version,
            settings,
            volumes: Vec::new(),
            open: BTreeMap::new(),
            sealed: BTreeMap::new(),
            files: BTreeMap::new(),
            certified: BTreeMap::new(),
            kept: [0; 3],
            telling: BTreeMap::new(),
            removals: BTreeMap::new(),
            removal_due: BTreeSet::new(),
            removing: 0,
            removed: VecDeque::new(),
            connections: BTreeMap::new(),
            authorizing: BTreeMap::new(),
            writers: BTreeMap::new(),
            attended: BTreeMap::new(),
            table: ServiceTable::default(),
            table_at: now,
            silence_checked_at: now,
            is_draining: false,
            output: VecDeque::new(),
            changed: BTreeSet::new(),
            dirty: BTreeSet::new(),
            hungry: BTreeSet::new(),
            adapted: None,
            pending: BTreeSet::new(),
            due: BTreeSet::new(),
            tell_due: BTreeSet::new(),
            durable_bytes: 0,
            counters: Counters::default(),
        };
        for (volume, recovered) in recovered.into_iter().enumerate() {
            service.take_in(volume, recovered, now);
        }
        service.resume_certified(now);
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
            self.sealed.insert(key, SealedPart { origin: part.origin, volume, chunks, by });
            self.files.entry(key.file).or_insert_with(|| FileEntry::new(volume, now));
            self.pending.insert(key.file);
        }
        for (file, indexed) in recovered.index.files {
            let mut entry = FileEntry::new(volume, now);
            entry.is_close_durable = indexed.close.is_some();
            (entry.stage, entry.reason, entry.close) = (indexed.stage, indexed.reason, indexed.close);
            // Closes on several volumes are of one file: the last one knows all parts.
            let epoch_of = |entry: &FileEntry| entry.close.as_ref().map(|close| close.epoch);
            if self
                .files
                .get(&file)
                .is_none_or(|known| known.close.is_none() || epoch_of(known) < epoch_of(&entry))
            {
                self.files.insert(file, entry);
            }
            self.pending.insert(file);
        }
        for (file, indexed) in recovered.index.certified {
            let volume = u16::try_from(volume).unwrap_or(u16::MAX);
            match self.certified.get_mut(&file) {
                Some(kept) => kept.add((volume, indexed.record), indexed.stage, self.settings.service),
                None => {
                    let kept = KeptFile {
                        record: indexed.record,
                        volume,
                        stage: indexed.stage,
                        is_durable: true,
                        staged_at: now,
                        others: Vec::new(),
                    };
                    self.certified.insert(file, kept);
                }
            }
        }
        let (read_only, free_bytes) = (recovered.read_only, recovered.free_bytes);
        self.volumes.push(VolumeState { read_only, free_bytes, ..VolumeState::default() });
    }

    /// Returns the next output.
    pub fn next_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    pub(super) fn send(&mut self, connection: ConnectionId, frame: Frame) {
        self.counters.note(&frame);
        self.output.push_back(Output::Send(connection, frame));
    }

    pub(super) fn tell(&mut self, service: ServiceId, frame: Frame) {
        self.output.push_back(Output::Tell(service, frame));
    }

    /// Returns the connection of a producer.
    pub(super) fn connection_of(&self, writer: WriterId) -> Option<ConnectionId> {
        self.writers.get(&writer).and_then(|(_, connection)| *connection)
    }

    /// Returns the number of files being written.
    pub fn open_parts(&self) -> usize {
        self.open.len()
    }

    /// Returns the parts of a file that is not certified: the open ones, then the others.
    pub(super) fn parts_of(&self, file: FileId) -> impl Iterator<Item = (PartKey, PartRef<'_>)> {
        let (first, last) = PartKey::bounds(file);
        let open = self.open.range(first..=last).map(|(key, part)| (*key, PartRef::Open(part)));
        open.chain(self.sealed.range(first..=last).map(|(key, part)| (*key, PartRef::Sealed(part))))
    }

    /// Returns the part of a file that began last.
    pub(super) fn last_part(&self, file: FileId) -> Option<(PartKey, PartRef<'_>)> {
        self.parts_of(file).max_by_key(|(key, _)| key.epoch)
    }

    /// Returns a part of a file that is not certified.
    pub(super) fn part(&self, key: PartKey) -> Option<PartRef<'_>> {
        let open = self.open.get(&key).map(|part| PartRef::Open(part));
        open.or_else(|| self.sealed.get(&key).map(PartRef::Sealed))
    }

    pub(super) fn origin_of(&self, file: FileId) -> Option<&PartOrigin> {
        self.last_part(file).map(|(_, part)| part.origin())
    }

    /// Returns the connection of the producer of a file.
    pub(super) fn producer_of(&self, file: FileId) -> Option<ConnectionId> {
        self.connection_of(self.origin_of(file)?.writer)
    }

    /// Returns the highest epoch of a file here.
    pub(super) fn highest_epoch(&self, file: FileId) -> Option<u32> {
        let (first, last) = PartKey::bounds(file);
        let open = self.open.range(first..=last).next_back().map(|(key, _)| key.epoch);
        let sealed = self.sealed.range(first..=last).next_back().map(|(key, _)| key.epoch);
        open.max(sealed)
    }

    pub(super) fn is_writable(&self, volume: &VolumeState) -> bool {
        let has_room = !volume.is_full && volume.free_bytes >= self.settings.free_bytes_min;
        has_room && volume.read_only.is_none() && volume.rests_until.is_none()
    }

    /// Lets volumes take parts again that have rested.
    pub(super) fn end_rests(&mut self, now: u64) {
        for volume in &mut self.volumes {
            volume.rests_until = volume.rests_until.filter(|until| now < *until);
        }
    }

    /// Returns the volume for a new part: the one with the least to write, so that all disks work at once. Of
    /// equal ones it is the one with the most free space.
    pub(super) fn volume_for_part(&self) -> Option<usize> {
        let mut loads = vec![0; self.volumes.len()];
        for part in self.open.values() {
            loads[part.volume] += part.queued_bytes() + BLOCK_BYTES as u64;
        }
        let writable = self.volumes.iter().enumerate().filter(|(_, volume)| self.is_writable(volume));
        writable.min_by_key(|(at, volume)| (loads[*at], Reverse(volume.free_bytes))).map(|(at, _)| at)
    }

    /// Adds items to the next commit of a volume. Nothing comes of them if the volume cannot be written.
    pub(super) fn commit(&mut self, volume: usize, items: Vec<Item>, effect: Effect) {
        if let Some(state) = self.volumes.get_mut(volume)
            && state.read_only.is_none()
        {
            state.items.extend(items);
            state.effects.push(effect);
        }
    }

    /// Returns the bytes that are in memory and not durable.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.open.values().map(|part| part.queued_bytes()).sum()
    }

    /// Returns the bytes that producers may send and have not begun.
    pub(super) fn credit_bytes(&self) -> u64 {
        let promised: usize = self.open.values().map(|part| part.promised()).sum();
        (promised * BLOCK_BYTES) as u64
    }

    /// Returns the state for the table.
    pub(super) fn state(&self) -> ServiceState {
        let is_writable = self.volumes.iter().any(|volume| self.is_writable(volume));
        match self.volumes.iter().any(VolumeState::is_resting) {
            _ if self.is_draining => ServiceState::Draining,
            _ if is_writable => ServiceState::Up,
            // Parts go on while a volume rests: only new ones begin elsewhere.
            true => ServiceState::Draining,
            false => ServiceState::ReadOnly,
        }
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
        let state = self.state();
        let elapsed = now.saturating_sub(self.table_at).max(1);
        let record = ServiceRecord {
            service: self.settings.service,
            version: self.version,
            address: self.settings.address.clone(),
            state,
            volumes: u16::try_from(writable.len()).unwrap_or(u16::MAX),
            free_bytes: writable.iter().sum(),
            queued_bytes: self.queued_bytes(),
            credit_bytes: self.credit_bytes(),
            bytes_per_second: self.durable_bytes.saturating_mul(1000) / elapsed,
            http: self.settings.http.clone(),
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
}
