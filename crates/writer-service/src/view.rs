//! State of the service in the shapes of its HTTP paths.

use std::sync::Arc;
use std::time::Instant;

use exacat_model::TimeMs;
use exacat_wire::writer::FileId;
use exacat_writer::{FileStage, FileStatus};

use crate::core::Core;
use crate::measures::{Calls, Measures};
use crate::shapes::{
    WriterCalls, WriterFile, WriterFileCounts, WriterFiles, WriterRefusals, WriterService, WriterStageOut,
    WriterStatus, WriterTable, WriterVolume, WriterWaiting, stage_name, state_name,
};

/// Facts about the service that do not change.
pub(crate) struct Nameplate {
    pub name: String,
    pub volumes: Vec<String>,
    pub begun: Instant,
    /// Storage element that files are copied to.
    pub stage_out: Option<String>,
}

/// Views of a service.
#[derive(Clone)]
pub(crate) struct View {
    pub core: Arc<Core>,
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

fn refusals(measures: &Measures) -> WriterRefusals {
    let [retry_elsewhere, conflict, bad_request] = &measures.refusals;
    WriterRefusals {
        retry_elsewhere: retry_elsewhere.get(),
        conflict: conflict.get(),
        bad_request: bad_request.get(),
    }
}

fn file(status: &FileStatus) -> WriterFile {
    WriterFile {
        file: status.file.to_string(),
        stage: stage_name(status.stage).to_owned(),
        reason: status.reason.clone(),
        bytes: status.bytes,
    }
}

impl View {
    /// Returns the state of the service.
    pub(crate) fn status(&self) -> WriterStatus {
        let measures = self.core.measures();
        let connections = self.core.connections();
        let (table, open_files, files) =
            self.core.with(|service, _| (service.table(), service.open_parts(), service.files()));
        let own = table.0.into_iter().find(|record| record.service == self.core.service());
        let mut counts = WriterFileCounts::default();
        let mut waiting = WriterWaiting::default();
        for file in &files {
            match file.stage {
                FileStage::Open => counts.open += 1,
                FileStage::Closed => counts.closed += 1,
                FileStage::Certified => counts.certified += 1,
                FileStage::Staged => counts.staged += 1,
                FileStage::Failed => counts.failed += 1,
                FileStage::Removed => {}
            }
            if file.stage == FileStage::Closed {
                let kind = match file.reason.as_str() {
                    "" => &mut waiting.commit,
                    reason if reason.contains("; part ") => &mut waiting.parts,
                    reason if reason.ends_with(" are missing") => &mut waiting.missing,
                    _ => &mut waiting.other,
                };
                *kind += 1;
            }
        }
        let volumes = self.plate.volumes.iter().map(|path| WriterVolume {
            path: path.clone(),
            state: "writable".to_owned(),
            reason: String::new(),
            free_bytes: 0,
        });
        let copies = &measures.stage_out;
        WriterStatus {
            service: self.core.service().to_string(),
            name: self.plate.name.clone(),
            address: own.as_ref().map(|own| own.address.clone()).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: own.as_ref().map(|own| state_name(own.state)).unwrap_or_default().to_owned(),
            time: TimeMs(self.core.clock.now()).to_string(),
            up_seconds: self.plate.begun.elapsed().as_secs(),
            connections,
            open_files: open_files as u64,
            queued_bytes: own.as_ref().map_or(0, |own| own.queued_bytes),
            received_bytes: measures.received_bytes.get(),
            chunks: measures.chunks.get(),
            events: measures.events.get(),
            refusals: refusals(measures),
            files: counts,
            waiting,
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
            ..WriterStatus::default()
        }
    }

    /// Returns the state of the service.
    pub(crate) fn table_state(&self) -> &'static str {
        let table = self.core.with(|service, _| service.table());
        let own = table.0.iter().find(|record| record.service == self.core.service());
        own.map_or("gone", |own| state_name(own.state))
    }

    /// Returns the table of services.
    pub(crate) fn table(&self) -> WriterTable {
        let table = self.core.with(|service, _| service.table());
        let services = table.0.into_iter().map(|record| WriterService {
            service: record.service.to_string(),
            version: record.version,
            address: record.address,
            state: state_name(record.state).to_owned(),
            volumes: u64::from(record.volumes),
            free_bytes: record.free_bytes,
            queued_bytes: record.queued_bytes,
            bytes_per_second: record.bytes_per_second,
            open_files: u64::from(record.open_files),
        });
        WriterTable { service: self.core.service().to_string(), services: services.collect() }
    }

    /// Returns a page of files.
    pub(crate) fn files(&self, stage: Option<FileStage>, after: Option<FileId>, limit: usize) -> WriterFiles {
        let all = self.core.with(|service, _| service.files());
        let is_wanted = |status: &&FileStatus| {
            stage.is_none_or(|stage| status.stage == stage) && after.is_none_or(|after| status.file > after)
        };
        let mut wanted = all.iter().filter(is_wanted);
        let files: Vec<WriterFile> = wanted.by_ref().take(limit).map(file).collect();
        let next = wanted.next().and_then(|_| files.last()).map(|last| last.file.clone());
        WriterFiles { files, next }
    }
}
