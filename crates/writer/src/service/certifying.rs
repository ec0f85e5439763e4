//! From a closed file to the catalogue: its parts here and elsewhere, and the news of it.

use exacat_wire::writer::limits::REPORT_CHUNKS_MAX;
use exacat_wire::writer::{
    Certified, ChunkRecord, Close, FileId, Frame, PartOwner, PartQuery, PartReport, PartState, RefusalClass,
    ServiceId,
};

use super::state::{Effect, FileEntry, Output, PartSlot, Reported, Service};
use super::writing::{first_of, last_of, refused};
use crate::certificate::{NotWhole, assemble};
use crate::item::{FileStage, Item, PartKey, PartOrigin, SealedBy};

/// Chunks of the parts of a file, as far as they are known.
struct Gathered {
    parts: Vec<(PartOwner, Vec<ChunkRecord>)>,
    /// Parts on other services that have not reported.
    waiting: Vec<PartOwner>,
    /// True if a part here is still being sealed.
    is_sealing: bool,
}

impl Service {
    /// Tries to certify the files that something has happened to.
    pub(super) fn certify_pending(&mut self, now: u64) {
        for file in std::mem::take(&mut self.pending) {
            self.try_certify(file, now);
        }
    }

    fn gather(&mut self, close: &Close) -> Gathered {
        let mut gathered = Gathered { parts: Vec::new(), waiting: Vec::new(), is_sealing: false };
        for owner in &close.parts {
            let key = PartKey { file: close.file, epoch: owner.epoch };
            if owner.service == self.settings.service {
                match self.parts.get(&key) {
                    Some(PartSlot::Open(_)) => {
                        gathered.is_sealing = true;
                        self.seal(key);
                    }
                    Some(PartSlot::Sealed(part)) if part.by != SealedBy::Loss => {
                        gathered.parts.push((*owner, part.chunks.clone()));
                    }
                    _ => {}
                }
                continue;
            }
            let reports = self.files.get(&close.file).map(|entry| &entry.reports);
            match reports.and_then(|reports| reports.get(&owner.epoch)) {
                Some(reported) if reported.is_complete => {
                    gathered.parts.push((*owner, reported.chunks.clone()))
                }
                _ => gathered.waiting.push(*owner),
            }
        }
        gathered
    }

    pub(super) fn origin_of(&self, file: FileId) -> Option<&PartOrigin> {
        let (_, slot) = self.parts.range(first_of(file)..=last_of(file)).next_back()?;
        Some(match slot {
            PartSlot::Open(part) => &part.origin,
            PartSlot::Sealed(part) => &part.origin,
        })
    }

    fn try_certify(&mut self, file: FileId, now: u64) {
        let Some(entry) = self.files.get(&file) else { return };
        if entry.stage != FileStage::Closed || !entry.is_close_durable || entry.is_committing {
            return;
        }
        let waited = now.saturating_sub(entry.closed_at);
        let (Some(close), Some(origin)) = (entry.close.clone(), self.origin_of(file).cloned()) else {
            return;
        };
        let gathered = self.gather(&close);
        if gathered.is_sealing {
            return;
        }
        self.ask(file, &gathered.waiting, now);
        if !gathered.waiting.is_empty() && waited < self.settings.part_wait_ms {
            return;
        }
        let parts: Vec<_> =
            gathered.parts.iter().map(|(owner, chunks)| (*owner, chunks.as_slice())).collect();
        let outcome = assemble(&close, &origin, &parts);
        let Some(entry) = self.files.get_mut(&file) else { return };
        match outcome {
            Ok(certificate) => {
                entry.is_committing = true;
                entry.reason.clear();
                entry.certificate = Some(Box::new(certificate.clone()));
                self.output.push_back(Output::Certify(Box::new(certificate)));
            }
            // The parts with these bytes may come back, with their service or their disk.
            Err(NotWhole::Missing(range)) => {
                entry.reason = NotWhole::Missing(range).to_string();
                for owner in &gathered.waiting {
                    entry.reason.push_str(&format!("; part {} is on {}", owner.epoch, owner.service));
                }
                if gathered.waiting.is_empty() {
                    entry.reports.clear();
                }
            }
            Err(error) => self.file_failed(file, error.to_string()),
        }
    }

    /// Asks other services for their parts, not too often.
    fn ask(&mut self, file: FileId, waiting: &[PartOwner], now: u64) {
        let every = self.settings.ask_every_ms;
        let Some(entry) = self.files.get_mut(&file) else { return };
        if now.saturating_sub(entry.asked_at) < every && entry.asked_at > 0 {
            return;
        }
        entry.asked_at = now.max(1);
        for owner in waiting {
            let from = entry.reports.get(&owner.epoch).map_or(0, |reported| reported.chunks.len() as u64);
            let query = PartQuery { file, epoch: owner.epoch, from };
            self.output.push_back(Output::Tell(owner.service, Frame::PartQuery(query)));
        }
    }

    fn file_failed(&mut self, file: FileId, reason: String) {
        let key = PartKey { file, epoch: self.highest_epoch(file).unwrap_or(1) };
        if let Some(connection) = self.producer_of(file) {
            self.send(connection, refused(RefusalClass::Conflict, key, reason.clone()));
        }
        self.set_stage(file, FileStage::Failed, reason);
    }

    /// Notes the stage of a file, here and in the index.
    fn set_stage(&mut self, file: FileId, stage: FileStage, reason: String) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        entry.stage = stage;
        entry.reason.clone_from(&reason);
        let volume = entry.volume;
        if self.volumes[volume].read_only.is_some() {
            // The catalogue has the file: the producer learns it, whatever the index here says.
            self.stage_reached(file);
        } else {
            self.commit(volume, vec![Item::Stage { file, stage, reason }], Effect::Stage(file));
        }
    }

    /// Returns the connection of the producer of a file.
    pub(super) fn producer_of(&self, file: FileId) -> Option<u64> {
        self.connection_of(self.origin_of(file)?.writer)
    }

    /// Takes the answer of the catalogue. A failure that is not final is tried again.
    pub fn catalogue_answered(&mut self, file: FileId, outcome: Result<(), (bool, String)>, now: u64) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        entry.is_committing = false;
        match outcome {
            Ok(()) => self.file_certified(file),
            Err((true, reason)) => self.file_failed(file, reason),
            Err((false, reason)) => {
                entry.reason = reason;
                entry.asked_at = now.max(1);
            }
        }
        self.pump(now);
    }

    fn file_certified(&mut self, file: FileId) {
        let service = self.settings.service;
        if let Some(entry) = self.files.get_mut(&file)
            && let Some(close) = &entry.close
        {
            entry.to_tell = close.parts.iter().filter(|owner| owner.service != service).copied().collect();
        }
        self.set_stage(file, FileStage::Certified, String::new());
    }

    /// Returns the news that a file is certified.
    pub(super) fn certified_frame(&self, file: FileId) -> Option<Frame> {
        let entry = self.files.get(&file).filter(|entry| is_certified(entry))?;
        let close = entry.close.as_ref()?;
        let certificate = entry.certificate.as_ref();
        Some(Frame::Certified(Certified {
            file,
            length: close.length,
            events: close.events,
            adler32: close.adler32,
            duplicates: certificate.map_or(0, |certificate| certificate.duplicates),
            parts: certificate.map_or_else(Vec::new, |certificate| certificate.shares()),
        }))
    }

    /// Tells the producer and the other services that a file is certified.
    pub(super) fn tell_certified(&mut self, file: FileId) {
        let Some(frame) = self.certified_frame(file) else { return };
        if let Some(connection) = self.producer_of(file) {
            self.send(connection, frame);
        }
        self.tell_services(file);
    }

    fn tell_services(&mut self, file: FileId) {
        let Some(frame) = self.certified_frame(file) else { return };
        let Some(entry) = self.files.get(&file) else { return };
        for owner in entry.to_tell.clone() {
            self.output.push_back(Output::Tell(owner.service, frame.clone()));
            // The report says whether the news arrived.
            let query = PartQuery { file, epoch: owner.epoch, from: 0 };
            self.output.push_back(Output::Tell(owner.service, Frame::PartQuery(query)));
        }
    }

    /// Looks again at files that wait for something elsewhere.
    pub(super) fn ask_again(&mut self, now: u64) {
        let every = self.settings.ask_every_ms;
        let is_due = |entry: &FileEntry| now.saturating_sub(entry.asked_at) >= every;
        let waiting =
            self.files.iter().filter(|(_, entry)| entry.stage == FileStage::Closed && is_due(entry));
        self.pending.extend(waiting.map(|(file, _)| *file));
        let untold = self.files.iter_mut().filter(|(_, entry)| !entry.to_tell.is_empty() && is_due(entry));
        let mut told = Vec::new();
        for (file, entry) in untold {
            entry.asked_at = now.max(1);
            told.push(*file);
        }
        told.into_iter().for_each(|file| self.tell_services(file));
    }

    /// Takes a message of another service.
    pub fn peer_message(&mut self, service: ServiceId, frame: Frame, now: u64) {
        match frame {
            Frame::Table(table) => self.table.merge(&table, now),
            Frame::PartQuery(query) => {
                let report = self.report(&query);
                self.output.push_back(Output::Tell(service, Frame::PartReport(report)));
            }
            Frame::PartReport(report) => self.take_report(service, report),
            Frame::Certified(certified) => self.learn_certified(certified.file, now),
            _ => {}
        }
        self.pump(now);
    }

    /// Reports a part, and ends its epoch.
    fn report(&mut self, query: &PartQuery) -> PartReport {
        let key = PartKey { file: query.file, epoch: query.epoch };
        let is_certified = self.files.get(&query.file).is_some_and(is_certified);
        let (state, chunks, more) = match self.parts.get(&key) {
            _ if is_certified => (PartState::Certified, Vec::new(), false),
            None => (PartState::Unknown, Vec::new(), false),
            Some(PartSlot::Open(_)) => {
                self.seal(key);
                (PartState::Open, Vec::new(), false)
            }
            Some(PartSlot::Sealed(part)) if part.by == SealedBy::Loss => {
                (PartState::Failed, Vec::new(), false)
            }
            Some(PartSlot::Sealed(part)) => {
                let from = usize::try_from(query.from).unwrap_or(usize::MAX).min(part.chunks.len());
                let to = part.chunks.len().min(from.saturating_add(REPORT_CHUNKS_MAX));
                (PartState::Sealed, part.chunks[from..to].to_vec(), to < part.chunks.len())
            }
        };
        PartReport { file: query.file, epoch: query.epoch, state, from: query.from, chunks, more }
    }

    fn take_report(&mut self, service: ServiceId, report: PartReport) {
        let Some(entry) = self.files.get_mut(&report.file) else { return };
        let owner = PartOwner { epoch: report.epoch, service };
        if report.state != PartState::Open && is_certified(entry) {
            entry.to_tell.retain(|other| *other != owner || report.state == PartState::Sealed);
            return;
        }
        let is_part = entry.close.as_ref().is_some_and(|close| close.parts.contains(&owner));
        if !is_part || entry.stage != FileStage::Closed || report.state == PartState::Open {
            return;
        }
        if report.state == PartState::Certified {
            // The other service has the catalogue's answer for this very file.
            if !entry.is_committing {
                self.file_certified(report.file);
            }
            return;
        }
        let reported = entry.reports.entry(report.epoch).or_insert_with(|| Reported {
            state: report.state,
            chunks: Vec::new(),
            is_complete: false,
        });
        if reported.is_complete || report.from != reported.chunks.len() as u64 {
            return;
        }
        reported.state = report.state;
        reported.chunks.extend(report.chunks);
        reported.is_complete = !report.more;
        if report.more {
            let query =
                PartQuery { file: report.file, epoch: report.epoch, from: reported.chunks.len() as u64 };
            self.output.push_back(Output::Tell(service, Frame::PartQuery(query)));
        } else {
            self.pending.insert(report.file);
        }
    }

    fn learn_certified(&mut self, file: FileId, now: u64) {
        let Some((key, slot)) = self.parts.range(first_of(file)..=last_of(file)).next_back() else { return };
        let (key, volume) = match slot {
            PartSlot::Open(part) => (*key, part.volume),
            PartSlot::Sealed(part) => (*key, part.volume),
        };
        self.seal(key);
        let entry = self.files.entry(file).or_insert_with(|| FileEntry::new(volume, now));
        if !is_certified(entry) && !entry.is_committing {
            self.set_stage(file, FileStage::Certified, String::new());
        }
    }
}

/// Says whether a file is in the catalogue.
pub(super) fn is_certified(entry: &FileEntry) -> bool {
    matches!(entry.stage, FileStage::Certified | FileStage::Staged | FileStage::Removed)
}
