//! State of a service for people and programs: files, sums, and where the bytes of a file are.

use std::ops::Bound;

use exacat_model::Lfn;
use exacat_wire::writer::{ByteRange, FileId, PartOwner, ServiceId, ServiceState, WriterId};

use super::counters::Counters;
use super::state::{FileEntry, KeptFile, PartRef, Service};
use crate::chunks::range_of;
use crate::item::{FileStage, SealedBy};
use crate::limits::{PAGE_EXAMINED_MAX, PAGE_FILES_MAX};
use crate::origin::PartKey;

/// A part of a file, as a service knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartStatus {
    /// Epoch.
    pub epoch: u32,
    /// The service that has it.
    pub service: ServiceId,
    /// Durable bytes; of a certified file, those that the file takes from it. 0 if they are not known.
    pub bytes: u64,
}

/// A file, as a service knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The file.
    pub file: FileId,
    /// Name in the catalogue; none if no part of the file is here.
    pub lfn: Option<Lfn>,
    /// Run of the data taking.
    pub run: String,
    /// Name of the stream.
    pub stream: String,
    /// Producer.
    pub writer: Option<WriterId>,
    /// Account that owns it, or will.
    pub owner: String,
    /// Stage.
    pub stage: FileStage,
    /// Reason why it is not further, in words.
    pub reason: String,
    /// Number of events: of a certified file all, otherwise those that are durable here.
    pub events: u64,
    /// Bytes: of a certified file all, otherwise those that are durable here.
    pub bytes: u64,
    /// Its parts, here and on other services, in ascending order of their epochs.
    pub parts: Vec<PartStatus>,
    /// Milliseconds since its last part here began.
    pub age_ms: u64,
    /// True if this service certified it. That service stages it, and tells the others of its removal.
    pub is_certifier: bool,
}

/// Some files in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePage {
    /// The files.
    pub files: Vec<FileStatus>,
    /// Last file that was looked at, for the next page; none at the end.
    pub next: Option<FileId>,
}

/// Bytes of a file that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// The part that has them, at the same place as the file.
    pub part: PartOwner,
    /// Volume of the part; none if it is on another service.
    pub volume: Option<usize>,
    /// The bytes.
    pub range: ByteRange,
}

/// The readable bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readable {
    /// Stage of the file. Before it is certified, the rest may come, or the file may fail.
    pub stage: FileStage,
    /// Bytes of the whole file; none before it is closed.
    pub length: Option<u64>,
    /// Adler-32 of the whole file; none before it is closed.
    pub adler32: Option<u32>,
    /// Segments in ascending order, without overlap. Those of a certified file have no gap; there are
    /// none if another service certified it, and bytes of several parts are in it: that service has them.
    pub segments: Vec<ReadSegment>,
}

/// State of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// True if new parts can begin on it.
    pub is_writable: bool,
    /// True if it can only be read, until the service is started again.
    pub is_read_only: bool,
    /// True if it takes no new parts for a while, because several failed one after the other.
    pub is_resting: bool,
    /// Reason of either; empty if neither is so.
    pub reason: String,
    /// Free bytes, as last noted.
    pub free_bytes: u64,
    /// True if a write found no space, and not enough was freed since.
    pub is_full: bool,
    /// Parts that are being written.
    pub open_parts: u64,
    /// Staged files.
    pub staged_files: u64,
}

/// Sums over a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceStatus {
    /// State in the table.
    pub state: ServiceState,
    /// Parts that are being written.
    pub open_parts: u64,
    /// Files that are closed and not certified.
    pub closed_files: u64,
    /// Closed files that are whole, and wait for the catalogue.
    pub waiting_for_catalogue: u64,
    /// Closed files that wait for parts of other services.
    pub waiting_for_parts: u64,
    /// Closed files of which bytes are missing on all services.
    pub waiting_for_bytes: u64,
    /// Files that failed.
    pub failed_files: u64,
    /// Certified files that are neither staged nor removed.
    pub certified_files: u64,
    /// Staged files.
    pub staged_files: u64,
    /// Removed files that are remembered, or being removed.
    pub removed_files: u64,
    /// Bytes in memory that are not durable.
    pub queued_bytes: u64,
    /// Blocks of memory.
    pub blocks: u64,
    /// Blocks with bytes.
    pub blocks_used: u64,
    /// Blocks that open parts have reserved, those with bytes included.
    pub blocks_reserved: u64,
    /// Bytes that producers may send and have not begun.
    pub credit_bytes: u64,
    /// Connections.
    pub connections: u64,
    /// Opens that wait for the catalogue.
    pub authorizing: u64,
    /// Numbers that only grow.
    pub counters: Counters,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
}

/// Returns the next key after one in a map.
fn next_key<V>(map: &std::collections::BTreeMap<FileId, V>, after: Option<FileId>) -> Option<FileId> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    map.range((from, Bound::Unbounded)).next().map(|(file, _)| *file)
}

/// Returns the file of the next part after those of a file.
fn next_file<V>(map: &std::collections::BTreeMap<PartKey, V>, after: Option<FileId>) -> Option<FileId> {
    let from = after.map_or(Bound::Unbounded, |file| Bound::Excluded(PartKey::bounds(file).1));
    map.range((from, Bound::Unbounded)).next().map(|(key, _)| key.file)
}

impl Service {
    /// Returns files in the order of their ids, after one, at a stage or at any. A page is bounded, and
    /// may be short or empty before the end.
    pub fn files_page(
        &self,
        after: Option<FileId>,
        stage: Option<FileStage>,
        limit: usize,
        now: u64,
    ) -> FilePage {
        let (mut files, mut last) = (Vec::new(), after);
        for _ in 0..PAGE_EXAMINED_MAX {
            if files.len() >= limit.clamp(1, PAGE_FILES_MAX) {
                return FilePage { files, next: last };
            }
            let nexts = [
                next_key(&self.certified, last),
                next_key(&self.files, last),
                next_file(&self.open, last),
                next_file(&self.sealed, last),
            ];
            let Some(file) = nexts.into_iter().flatten().min() else {
                return FilePage { files, next: None };
            };
            last = Some(file);
            if stage.is_none_or(|stage| self.stage_of(file) == stage) {
                files.extend(self.file(file, now));
            }
        }
        FilePage { files, next: last }
    }

    fn stage_of(&self, file: FileId) -> FileStage {
        let kept = self.certified.get(&file).map(|kept| kept.stage);
        kept.or_else(|| self.files.get(&file).map(|entry| entry.stage)).unwrap_or(FileStage::Open)
    }

    /// Returns a file; none if nothing of it is here.
    pub fn file(&self, file: FileId, now: u64) -> Option<FileStatus> {
        match self.certified.get(&file) {
            Some(kept) => self.kept_status(kept, now),
            None => self.present_status(file, now),
        }
    }

    fn kept_status(&self, kept: &KeptFile, now: u64) -> Option<FileStatus> {
        let of = kept.record.unpack()?;
        let parts = of.shares.iter().map(|share| PartStatus {
            epoch: share.part.epoch,
            service: share.part.service,
            bytes: share.bytes,
        });
        let reason = match kept.stage {
            FileStage::Removed if self.removals.contains_key(&of.file) => "its bytes are being removed",
            FileStage::Removed => "its bytes here are removed",
            FileStage::Staged => "copied to another storage element",
            _ if !kept.is_durable => "its record is on the way to the disk",
            _ => "in the catalogue",
        };
        Some(FileStatus {
            file: of.file,
            lfn: Some(of.lfn.clone()),
            run: of.run.clone(),
            stream: of.stream.clone(),
            writer: Some(of.writer),
            owner: of.owner.clone(),
            stage: kept.stage,
            reason: reason.to_owned(),
            events: of.events,
            bytes: of.length,
            parts: parts.collect(),
            age_ms: now.saturating_sub(of.begun),
            is_certifier: of.is_certifier,
        })
    }

    fn present_status(&self, file: FileId, now: u64) -> Option<FileStatus> {
        let entry = self.files.get(&file);
        let mut parts: Vec<PartStatus> = Vec::new();
        let (mut events, mut bytes) = (0, 0);
        for (key, part) in self.parts_of(file) {
            let of_part: u64 = part.durable().iter().map(|chunk| u64::from(chunk.length)).sum();
            events += part.durable().iter().map(|chunk| u64::from(chunk.events)).sum::<u64>();
            bytes += of_part;
            parts.push(PartStatus { epoch: key.epoch, service: self.settings.service, bytes: of_part });
        }
        if entry.is_none() && parts.is_empty() {
            return None;
        }
        for owner in entry.and_then(|entry| entry.close.as_ref()).map_or(&[][..], |close| &close.parts) {
            if !parts.iter().any(|part| part.epoch == owner.epoch && part.service == owner.service) {
                let reported = entry.and_then(|entry| entry.reports.get(&owner.epoch));
                let chunks = reported.map_or(&[][..], |reported| &reported.chunks);
                let of_part = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
                parts.push(PartStatus { epoch: owner.epoch, service: owner.service, bytes: of_part });
            }
        }
        parts.sort_by_key(|part| part.epoch);
        let origin = self.origin_of(file);
        Some(FileStatus {
            file,
            lfn: origin.map(|origin| origin.description.lfn.clone()),
            run: origin.map(|origin| origin.description.run.clone()).unwrap_or_default(),
            stream: origin.map(|origin| origin.description.stream.clone()).unwrap_or_default(),
            writer: origin.map(|origin| origin.writer),
            owner: origin.map(|origin| origin.owner.clone()).unwrap_or_default(),
            stage: self.stage_of(file),
            reason: self.reason_of(file, entry),
            events,
            bytes,
            parts,
            age_ms: origin.map_or(0, |origin| now.saturating_sub(origin.begun)),
            is_certifier: false,
        })
    }

    fn reason_of(&self, file: FileId, entry: Option<&FileEntry>) -> String {
        let text = match (entry, self.last_part(file)) {
            (Some(entry), _) if entry.certified.is_some() => {
                "in the catalogue; its parts here are being ended"
            }
            (Some(entry), _) if entry.is_committing => "whole; the catalogue is asked to take it",
            (Some(entry), _) if !entry.reason.is_empty() => return entry.reason.clone(),
            (Some(entry), _) if entry.stage == FileStage::Closed && !entry.is_close_durable => {
                "closed; its last bytes are on the way to the disk"
            }
            (Some(entry), _) if entry.stage == FileStage::Closed => "closed; its parts are being collected",
            (_, Some((_, PartRef::Open(_)))) => "being written",
            (_, Some((_, PartRef::Sealed(part)))) => match part.by {
                SealedBy::Order => "not closed by its producer: it may go on elsewhere",
                SealedBy::Fault => "ended by a fault of the disk: it may go on elsewhere",
                SealedBy::Loss => "the disk lost bytes of it",
            },
            (_, None) => "no part of it is here",
        };
        text.to_owned()
    }

    /// Returns the volume with a part; none if the part is not here.
    pub fn volume_of(&self, part: PartKey) -> Option<usize> {
        if let Some(kept) = self.certified.get(&part.file) {
            let parts = kept.parts();
            return parts.iter().find(|(_, keys)| keys.contains(&part)).map(|(volume, _)| *volume);
        }
        self.part(part).map(PartRef::volume)
    }

    /// Returns the bytes of a file that can be read: of a certified file all, of another one those that
    /// are durable here. None if nothing of it is here, or its bytes are removed.
    pub fn segments(&self, file: FileId) -> Option<Readable> {
        if let Some(kept) = self.certified.get(&file) {
            let of = kept.record.unpack().filter(|_| kept.stage != FileStage::Removed)?;
            let segments = of.segments.iter().map(|segment| {
                let is_here = segment.part.service == self.settings.service;
                let part = PartKey { file, epoch: segment.part.epoch };
                let volume = if is_here { self.volume_of(part) } else { None };
                ReadSegment { part: segment.part, volume, range: segment.range }
            });
            return Some(Readable {
                stage: kept.stage,
                length: Some(of.length),
                adler32: Some(of.adler32),
                segments: segments.collect(),
            });
        }
        let mut found: Vec<(ByteRange, PartKey, usize)> = Vec::new();
        for (key, part) in self.parts_of(file) {
            for range in part.durable().iter().map(range_of) {
                match found.last_mut() {
                    Some((last, of, _)) if *of == key && last.to == range.from => last.to = range.to,
                    _ => found.push((range, key, part.volume())),
                }
            }
        }
        let entry = self.files.get(&file);
        if found.is_empty() && entry.is_none() {
            return None;
        }
        found.sort_by_key(|(range, key, _)| (range.from, key.epoch));
        let (mut segments, mut end) = (Vec::new(), 0);
        for (range, key, volume) in found {
            let range = ByteRange { from: range.from.max(end), to: range.to };
            if range.from < range.to {
                let part = PartOwner { epoch: key.epoch, service: self.settings.service };
                segments.push(ReadSegment { part, volume: Some(volume), range });
                end = range.to;
            }
        }
        let close = entry.and_then(|entry| entry.close.as_ref());
        Some(Readable {
            stage: self.stage_of(file),
            length: close.map(|close| close.length),
            adler32: close.map(|close| close.adler32),
            segments,
        })
    }

    /// Returns sums over the service.
    pub fn status(&self) -> ServiceStatus {
        let count_of =
            |stage: FileStage| self.files.values().filter(|file| file.stage == stage).count() as u64;
        let volumes = self.volumes.iter().enumerate().map(|(at, volume)| VolumeStatus {
            is_writable: self.is_writable(volume),
            is_read_only: volume.read_only.is_some(),
            is_resting: volume.is_resting(),
            reason: match &volume.read_only {
                Some(reason) => reason.clone(),
                None if volume.is_resting() => volume.part_fault.clone(),
                None => String::new(),
            },
            free_bytes: volume.free_bytes,
            is_full: volume.is_full,
            open_parts: self.open.values().filter(|part| part.volume == at).count() as u64,
            staged_files: volume.staged.len() as u64,
        });
        let closed = || self.files.values().filter(|file| file.stage == FileStage::Closed);
        let is_whole = |file: &&FileEntry| file.is_committing || file.certified.is_some();
        let lacks = |file: &&FileEntry| !is_whole(file) && !file.reason.is_empty();
        let has_waiting = |file: &&FileEntry| file.reason.contains("; part ");
        ServiceStatus {
            state: self.state(),
            open_parts: self.open.len() as u64,
            closed_files: count_of(FileStage::Closed),
            waiting_for_catalogue: closed().filter(is_whole).count() as u64,
            waiting_for_parts: closed().filter(lacks).filter(has_waiting).count() as u64,
            waiting_for_bytes: closed().filter(lacks).filter(|file| !has_waiting(file)).count() as u64,
            failed_files: count_of(FileStage::Failed),
            certified_files: self.kept[0],
            staged_files: self.kept[1],
            removed_files: self.kept[2],
            queued_bytes: self.queued_bytes(),
            blocks: self.pool.count() as u64,
            blocks_used: self.pool.taken() as u64,
            blocks_reserved: (self.pool.count() - self.pool.unreserved()) as u64,
            credit_bytes: self.credit_bytes(),
            connections: self.connections.len() as u64,
            authorizing: self.authorizing.len() as u64,
            counters: self.counters,
            volumes: volumes.collect(),
        }
    }
}
