//! From a closed file to the catalogue: its parts here and elsewhere.

use exacat_wire::writer::limits::REPORT_CHUNKS_MAX;
use exacat_wire::writer::{
    Certified, ChunkRecord, Close, FileId, Frame, PartOwner, PartQuery, PartReport, PartState, RefusalClass,
    ServiceId,
};

use super::moved::is_time_to_seek;
use super::settings::Output;
use super::state::{Effect, FileEntry, PartRef, Reported, Service};
use super::writing::refused;
use crate::certificate::{NotWhole, assemble};
use crate::certified::CertifiedFile;
use crate::item::{FileStage, Item, SealedBy};
use crate::limits::BACKOFF_MAX;
use crate::origin::PartKey;

/// Time between two questions about a file that was not closed here, as a multiple of that for others.
const ORPHAN_FACTOR: u64 = 16;
/// Longest such time, as a multiple of the shortest.
const ORPHAN_BACKOFF_MAX: u64 = 64;

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
                match self.part(key) {
                    Some(PartRef::Open(_)) => {
                        gathered.is_sealing = true;
                        self.seal(key);
                    }
                    Some(PartRef::Sealed(part)) if part.by != SealedBy::Loss => {
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

    fn try_certify(&mut self, file: FileId, now: u64) {
        let Some(entry) = self.files.get(&file) else { return };
        if entry.certified.is_some() {
            if !self.seal_parts(file) {
                self.keep(file);
            }
            return;
        }
        if entry.stage == FileStage::Open {
            self.ask_about_orphan(file, now);
        }
        let Some(entry) = self.files.get(&file) else { return };
        if entry.stage != FileStage::Closed || !entry.is_close_durable || entry.is_committing {
            return;
        }
        let waited = now.saturating_sub(entry.closed_at);
        self.own_parts(file);
        let Some(entry) = self.files.get(&file) else { return };
        let (Some(close), Some(origin)) = (entry.close.clone(), self.origin_of(file).cloned()) else {
            return;
        };
        let gathered = self.gather(&close);
        self.look_later(file, now);
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
                    let unknown = entry.reports.iter().filter(|(_, of)| of.state == PartState::Unknown);
                    let unknown: Vec<u32> = unknown.map(|(epoch, _)| *epoch).collect();
                    let seeks = is_time_to_seek(entry.asked);
                    entry.reports.clear();
                    // The volume with the part may have gone to another service.
                    for epoch in unknown.into_iter().filter(|_| seeks) {
                        self.seek(PartQuery { file, epoch, from: 0 });
                    }
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
        entry.asked += 1;
        let seeks = is_time_to_seek(entry.asked);
        let query = |owner: &PartOwner| {
            let from = entry.reports.get(&owner.epoch).map_or(0, |reported| reported.chunks.len() as u64);
            (*owner, PartQuery { file, epoch: owner.epoch, from })
        };
        for (owner, query) in waiting.iter().map(query).collect::<Vec<_>>() {
            self.tell(owner.service, Frame::PartQuery(query));
            if seeks {
                self.seek_of_gone(owner, query);
            }
        }
    }

    /// Asks all services about a file that its producer did not close here, now and then: it may be
    /// certified without the part here.
    fn ask_about_orphan(&mut self, file: FileId, now: u64) {
        let (every, service) = (self.settings.ask_every_ms, self.settings.service);
        let Some(epoch) = self.highest_epoch(file) else { return };
        let Some(entry) = self.files.get_mut(&file).filter(|entry| entry.due.is_none()) else { return };
        let at = now + every * ORPHAN_FACTOR * (1 + entry.asked).min(ORPHAN_BACKOFF_MAX);
        entry.due = Some(at);
        entry.asked += 1;
        let is_first = entry.asked == 1;
        self.due.insert((at, file));
        // Usually the producer comes back, or the news does.
        for record in self.table.to_table().0.into_iter().filter(|of| !is_first && of.service != service) {
            self.tell(record.service, Frame::PartQuery(PartQuery { file, epoch, from: 0 }));
        }
    }

    /// Looks at a file again after a while, which grows with the number of questions.
    fn look_later(&mut self, file: FileId, now: u64) {
        let Service { files, due, settings, .. } = self;
        let Some(entry) = files.get_mut(&file) else { return };
        if entry.due.is_none() {
            let at = now + settings.ask_every_ms * (1 + entry.asked / 4).min(BACKOFF_MAX);
            entry.due = Some(at);
            due.insert((at, file));
        }
    }

    /// Looks at files whose time has come.
    pub(super) fn look_again(&mut self, now: u64) {
        while let Some((at, file)) = self.due.first().copied()
            && at <= now
        {
            self.due.pop_first();
            if let Some(entry) = self.files.get_mut(&file) {
                entry.due = None;
                self.pending.insert(file);
            }
        }
    }

    /// Forgets what was known of a file that is not certified.
    pub(super) fn drop_entry(&mut self, file: FileId) -> Option<FileEntry> {
        let entry = self.files.remove(&file)?;
        if let Some(at) = entry.due {
            self.due.remove(&(at, file));
        }
        Some(entry)
    }

    fn file_failed(&mut self, file: FileId, reason: String) {
        let key = PartKey { file, epoch: self.highest_epoch(file).unwrap_or(1) };
        if let Some(connection) = self.producer_of(file) {
            self.send(connection, refused(RefusalClass::Conflict, key, reason.clone()));
        }
        let Some(entry) = self.files.get_mut(&file) else { return };
        entry.stage = FileStage::Failed;
        entry.reason.clone_from(&reason);
        let volume = entry.volume;
        self.counters.failed_files += 1;
        let stage = FileStage::Failed;
        self.commit(volume, vec![Item::Stage { file, stage, reason }], Effect::Nothing);
    }

    /// Takes the answer of the catalogue. A failure that is not final is tried again.
    pub fn catalogue_answered(&mut self, file: FileId, outcome: Result<(), (bool, String)>, now: u64) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        entry.is_committing = false;
        match outcome {
            Ok(()) => {
                if let (Some(certificate), Some(close)) = (&entry.certificate, &entry.close) {
                    let begun = entry.closed_at;
                    let of = CertifiedFile::of_certificate(certificate, close, begun);
                    entry.certified = Some(Box::new(of));
                    self.pending.insert(file);
                }
            }
            Err((true, reason)) => self.file_failed(file, reason),
            Err((false, reason)) => {
                entry.reason = reason;
                self.look_later(file, now);
            }
        }
        self.pump(now);
    }

    /// Takes a message of another service.
    pub fn peer_message(&mut self, service: ServiceId, frame: Frame, now: u64) {
        match frame {
            Frame::Table(table) => self.table.merge(&table, now),
            Frame::PartQuery(query) => {
                let report = self.report(service, &query);
                self.tell(service, Frame::PartReport(report));
            }
            Frame::PartReport(report) => self.take_report(service, report, now),
            Frame::Certified(certified) => self.learn_certified(certified, now),
            Frame::Remove { file } => self.remove_for_peer(file, now),
            _ => {}
        }
        self.pump(now);
    }

    /// Reports a part, and ends its epoch.
    fn report(&mut self, service: ServiceId, query: &PartQuery) -> PartReport {
        let key = PartKey { file: query.file, epoch: query.epoch };
        let (state, chunks, more) = match self.part(key) {
            _ if self.certified.contains_key(&query.file) => {
                (self.report_certified(service, key), Vec::new(), false)
            }
            None => (PartState::Unknown, Vec::new(), false),
            Some(PartRef::Open(_)) => {
                self.seal(key);
                (PartState::Open, Vec::new(), false)
            }
            Some(PartRef::Sealed(part)) if part.by == SealedBy::Loss => {
                (PartState::Failed, Vec::new(), false)
            }
            Some(PartRef::Sealed(part)) => {
                let from = usize::try_from(query.from).unwrap_or(usize::MAX).min(part.chunks.len());
                let to = part.chunks.len().min(from.saturating_add(REPORT_CHUNKS_MAX));
                (PartState::Sealed, part.chunks[from..to].to_vec(), to < part.chunks.len())
            }
        };
        PartReport { file: query.file, epoch: query.epoch, state, from: query.from, chunks, more }
    }

    fn take_report(&mut self, service: ServiceId, report: PartReport, now: u64) {
        let owner = PartOwner { epoch: report.epoch, service };
        if self.certified.contains_key(&report.file) {
            self.told(report.file, owner, report.state, now);
            return;
        }
        let Some(entry) = self.files.get_mut(&report.file) else { return };
        let close = entry.close.as_ref();
        let named = close.and_then(|close| close.parts.iter().find(|part| part.epoch == report.epoch));
        // Another service may have adopted the part. It has nothing to say of a part that it does not have.
        let is_part = named.is_some_and(|named| *named == owner || report.state == PartState::Sealed);
        // A service that knows the file as certified has told so in another message.
        let is_no_answer = matches!(report.state, PartState::Open | PartState::Certified);
        if !is_part || entry.stage != FileStage::Closed || is_no_answer {
            return;
        }
        let state = report.state;
        let new = || Reported { from: service, state, chunks: Vec::new(), is_complete: false };
        let reported = entry.reports.entry(report.epoch).or_insert_with(new);
        if reported.from != service {
            let is_taken = reported.is_complete && reported.state == PartState::Sealed;
            if is_taken || report.from > 0 || report.state != PartState::Sealed {
                return;
            }
            *reported = new();
        }
        if reported.is_complete || report.from != reported.chunks.len() as u64 {
            return;
        }
        reported.state = report.state;
        reported.chunks.extend(report.chunks);
        reported.is_complete = !report.more;
        let parts = entry.close.iter_mut().flat_map(|close| &mut close.parts);
        for part in parts.filter(|part| part.epoch == report.epoch && report.state == PartState::Sealed) {
            part.service = service;
        }
        if report.more {
            entry.asked = 0;
            let query =
                PartQuery { file: report.file, epoch: report.epoch, from: reported.chunks.len() as u64 };
            self.output.push_back(Output::Tell(service, Frame::PartQuery(query)));
        } else {
            self.pending.insert(report.file);
        }
    }

    /// Takes the news that another service certified a file with parts here.
    fn learn_certified(&mut self, news: Certified, now: u64) {
        let file = news.file;
        if self.certified.contains_key(&file) {
            self.add_parts(&news);
            return;
        }
        let Some((_, part)) = self.last_part(file) else { return };
        let (volume, of) = (part.volume(), CertifiedFile::of_news(news, part.origin()));
        let entry = self.files.entry(file).or_insert_with(|| FileEntry::new(volume, now));
        // The answer to a commit of this service has more in it, and is on its way.
        if entry.certified.is_none() && !entry.is_committing {
            entry.certified = Some(Box::new(of));
            self.pending.insert(file);
        }
    }
}
