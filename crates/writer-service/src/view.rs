//! State of the service in the shapes of its HTTP paths.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use exacat_model::TimeMs;
use exacat_wire::writer::{FileId, ServiceId};
use exacat_writer::{FileStage, FileStatus, PartStatus, VolumeStatus};

use parking_lot::Mutex;

use crate::hub::Hub;
use crate::measures::{Calls, DiskMeasures, RefusedLinks};
use crate::shapes::{
    WriterCalls, WriterFile, WriterFileCounts, WriterFiles, WriterPart, WriterRefusals, WriterRefusedLinks,
    WriterService, WriterStageOut, WriterStatus, WriterTable, WriterTakeover, WriterVolume, WriterWaiting,
    stage_name, state_name,
};

/// Facts about the service that do not change.
pub(crate) struct Nameplate {
    pub name: String,
    pub volumes: Vec<String>,
    pub begun: Instant,
    /// Storage element that files are copied to.
    pub stage_out: Option<String>,
    /// Services of other machines that run here.
    pub takeovers: Takeovers,
}

/// Services that this one runs beside itself.
#[derive(Clone, Default)]
pub(crate) struct Takeovers(pub Arc<Mutex<BTreeMap<ServiceId, WriterTakeover>>>);

impl Takeovers {
    /// Returns them.
    pub(crate) fn all(&self) -> Vec<WriterTakeover> {
        self.0.lock().values().cloned().collect()
    }
}

/// Views of a service.
#[derive(Clone)]
pub(crate) struct View {
    pub hub: Arc<Hub>,
    pub plate: Arc<Nameplate>,
}

fn calls(of: &Calls) -> WriterCalls {
    WriterCalls {
        done: of.done.get(),
        failed: of.failed.get(),
        running: of.running.get(),
        p99_ms: of.times.now().quantile_us(0.99) / 1000,
        last_failure: of.last_failure.lock().clone(),
    }
}

fn refused_links(of: &RefusedLinks) -> WriterRefusedLinks {
    let (last_address, last_reason) = match &*of.last.lock() {
        Some((address, reason)) => (address.to_string(), reason.clone()),
        None => Default::default(),
    };
    WriterRefusedLinks { count: of.count.get(), last_address, last_reason }
}

fn file(status: &FileStatus, now: u64) -> WriterFile {
    WriterFile {
        file: status.file.to_string(),
        stage: stage_name(status.stage).to_owned(),
        reason: status.reason.clone(),
        lfn: status.lfn.as_ref().map(|lfn| lfn.as_str().to_owned()),
        run: status.run.clone(),
        stream: status.stream.clone(),
        writer: status.writer.map(|writer| writer.to_string()),
        owner: status.owner.clone(),
        events: status.events,
        bytes: status.bytes,
        begun: TimeMs(now.saturating_sub(status.age_ms)).to_string(),
        is_certifier: status.is_certifier,
        parts: status.parts.iter().map(part).collect(),
    }
}

fn part(status: &PartStatus) -> WriterPart {
    WriterPart { epoch: status.epoch, service: status.service.to_string(), bytes: status.bytes }
}

fn volume(path: &str, status: &VolumeStatus, disk: &DiskMeasures) -> WriterVolume {
    let state = match status.is_writable {
        _ if status.is_read_only => "read-only",
        _ if status.is_resting => "resting",
        true => "writable",
        false => "full",
    };
    let full = "too little free space for new files";
    let reason = if state == "full" { full.to_owned() } else { status.reason.clone() };
    WriterVolume {
        path: path.to_owned(),
        state: state.to_owned(),
        reason,
        free_bytes: status.free_bytes,
        open_parts: status.open_parts,
        staged_files: status.staged_files,
        buffered_parts: disk
            .buffered
            .lock()
            .iter()
            .filter(|(directory, _)| directory.starts_with(path))
            .map(|(_, count)| count)
            .sum(),
    }
}

impl View {
    /// Returns the state of the service.
    pub(crate) fn status(&self) -> WriterStatus {
        let measures = self.hub.measures();
        let (table, of, waiting) =
            self.hub.with(|service, _| (service.table(), service.status(), service.waiting()));
        let own = table.0.into_iter().find(|record| record.service == self.hub.service());
        let volumes = self.plate.volumes.iter().zip(&of.volumes);
        let volumes = volumes.map(|(path, status)| volume(path, status, &measures.disk));
        let (counted, copies) = (of.counters, &measures.stage_out);
        WriterStatus {
            service: self.hub.service().to_string(),
            name: self.plate.name.clone(),
            address: own.map(|own| own.address).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: state_name(of.state).to_owned(),
            time: TimeMs(self.hub.clock.now()).to_string(),
            up_seconds: self.plate.begun.elapsed().as_secs(),
            connections: of.connections,
            open_files: of.open_parts,
            authorizing: of.authorizing,
            blocks: of.blocks,
            blocks_reserved: of.blocks_reserved,
            blocks_used: of.blocks_used,
            queued_bytes: of.queued_bytes,
            credit_bytes: of.credit_bytes,
            received_bytes: counted.chunk_bytes,
            durable_bytes: counted.durable_bytes,
            chunks: counted.chunks,
            events: counted.events,
            index_commits: counted.commits,
            part_faults: counted.part_faults,
            duplicates: counted.duplicates,
            conflicts: counted.refused_conflict,
            refusals: WriterRefusals {
                retry_elsewhere: counted.refused_retry,
                conflict: counted.refused_conflict,
                bad_request: counted.refused_bad,
            },
            files: WriterFileCounts {
                open: of.open_parts,
                closed: of.closed_files,
                certified: of.certified_files,
                staged: of.staged_files,
                removed: of.removed_files,
                failed: of.failed_files,
            },
            waiting: WriterWaiting {
                commit: waiting.commit,
                parts: waiting.parts,
                missing: waiting.missing,
                other: waiting.other,
            },
            lost_messages: self.hub.lost_messages(),
            refused_links: refused_links(&measures.refused_links),
            bookings: calls(&measures.bookings),
            commits: calls(&measures.commits),
            volumes: volumes.collect(),
            stage_out: self.plate.stage_out.as_ref().map(|se| WriterStageOut {
                se: se.clone(),
                files: copies.copies.done.get(),
                bytes: copies.bytes.get(),
                failures: copies.copies.failed.get(),
                running: copies.copies.running.get(),
                waiting: copies.waiting.get(),
                last_failure: copies.copies.last_failure.lock().clone(),
            }),
            takeovers: self.plate.takeovers.all(),
        }
    }

    /// Returns a file; none if the service knows nothing of it.
    pub(crate) fn file(&self, of: FileId) -> Option<WriterFile> {
        self.hub.with(|service, now| service.file(of, now).map(|status| file(&status, now)))
    }

    /// Returns the state of the service.
    pub(crate) fn table_state(&self) -> &'static str {
        let table = self.hub.with(|service, _| service.table());
        let own = table.0.iter().find(|record| record.service == self.hub.service());
        own.map_or("gone", |own| state_name(own.state))
    }

    /// Returns the table of services.
    pub(crate) fn table(&self) -> WriterTable {
        let table = self.hub.with(|service, _| service.table());
        let services = table.0.into_iter().map(|record| WriterService {
            service: record.service.to_string(),
            version: record.version,
            address: record.address,
            http: record.http,
            state: state_name(record.state).to_owned(),
            volumes: u64::from(record.volumes),
            free_bytes: record.free_bytes,
            queued_bytes: record.queued_bytes,
            credit_bytes: record.credit_bytes,
            bytes_per_second: record.bytes_per_second,
            open_files: u64::from(record.open_files),
        });
        WriterTable { service: self.hub.service().to_string(), services: services.collect() }
    }

    /// Returns a page of files.
    pub(crate) fn files(&self, stage: Option<FileStage>, after: Option<FileId>, limit: usize) -> WriterFiles {
        self.hub.with(|service, now| {
            let page = service.files_page(after, stage, limit, now);
            let files = page.files.iter().map(|status| file(status, now)).collect();
            WriterFiles { files, next: page.next.map(|next| next.to_string()) }
        })
    }
}
