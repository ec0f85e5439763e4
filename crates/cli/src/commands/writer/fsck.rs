//! `writer fsck`: checks volumes that no service has open, and changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::RealDisk;
use exacat_model::{Error, ErrorKind};
use exacat_store_embedded::on_blocking_thread;
use exacat_writer::{CheckFault, CheckKind, CheckReport, FileStage, VolumeInspection};
use exacat_writer_service::shapes::stage_name;
use serde::Serialize;
use utoipa::ToSchema;

use super::offline::lock;
use crate::args::{Global, WriterFsckArgs};
use crate::failure::Failure;
use crate::output::human::{self, plural};
use crate::output::{Align, Out, Style, Table};
use crate::progress::Bar;

/// Part of a file that is wrong on a volume.
#[derive(Serialize, ToSchema)]
#[schema(as = VolumeFault)]
pub(crate) struct FaultView {
    /// `missing-part`, `short-part`, `unreadable-part`, `lost-part`, `missing-chunks`, `damaged-chunks` or
    /// `damaged-bytes`.
    kind: &'static str,
    /// Id of the file.
    file: String,
    /// Epoch of the part.
    part: u32,
    /// Name of the file in the catalogue, now or later.
    #[schema(required)]
    lfn: Option<String>,
    /// Stage of the file.
    stage: &'static str,
    /// The fault, in words.
    what: String,
    /// Next step for the operator.
    next: &'static str,
}

impl FaultView {
    fn of(fault: &CheckFault) -> Self {
        FaultView {
            kind: fault.kind.name(),
            file: fault.part.file.to_string(),
            part: fault.part.epoch,
            lfn: fault.lfn.as_ref().map(ToString::to_string),
            stage: stage_name(fault.stage),
            what: fault.what.clone(),
            next: next(fault.kind, fault.stage),
        }
    }
}

/// Volume of the writer that was checked.
#[derive(Serialize, ToSchema)]
#[schema(as = CheckedVolume)]
pub(crate) struct CheckedVolumeView {
    /// Directory.
    volume: String,
    /// Service that it belongs to.
    service: String,
    /// Parts of files.
    parts: u64,
    /// True if the bytes were read.
    read: bool,
    /// Bytes that were read and agree with their checksums.
    bytes: u64,
    /// Parts whose bytes have only the checksum of the whole file. Not a fault.
    without_sums: u64,
    /// True if the index ends with a torn write, as after a power cut. Not a fault.
    torn: bool,
    /// Files that the index does not name, without acknowledged bytes. Not a fault.
    unknown: Vec<String>,
    /// Number of all such files.
    unknown_total: u64,
    /// The first faults.
    faults: Vec<FaultView>,
    /// Number of all faults.
    faults_total: u64,
}

/// Returns the next step after a fault.
fn next(kind: CheckKind, stage: FileStage) -> &'static str {
    match (stage, kind) {
        (FileStage::Failed, _) => "read the reason: exacat writer files --stage failed",
        (FileStage::Staged, _) => {
            "another storage element has the file (exacat whereis): remove it here (exacat writer rm)"
        }
        (FileStage::Certified, CheckKind::MissingChunks | CheckKind::DamagedChunks) => {
            "read the file whole (exacat writer cat): only its checksum in the catalogue can judge it"
        }
        (FileStage::Certified, _) => {
            "write the file again from its producer, or drop its replica (exacat replica rm)"
        }
        (_, CheckKind::MissingChunks | CheckKind::DamagedChunks) => {
            "keep its bytes in parts/: the next start counts the part as lost"
        }
        (_, CheckKind::DamagedBytes | CheckKind::UnreadablePart) => {
            "ask the producer for the file: it may be certified, but not read"
        }
        _ => "ask the producer for the file: it waits for these bytes (exacat writer files)",
    }
}

/// `exacat writer fsck`
pub(super) async fn fsck(args: WriterFsckArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let mut out = Out::new(style);
    let (mut faults, mut wrong) = (0, 0);
    // A volume that cannot be checked does not keep the others from it.
    let mut failed = None;
    for volume in &args.volume {
        match check(volume, args.read, global).await {
            Ok(view) => {
                show(&mut out, &view)?;
                faults += view.faults_total;
                wrong += u64::from(view.faults_total > 0);
            }
            Err(failure) => {
                if let Some(before) = failed.replace(failure) {
                    before.report();
                }
            }
        }
    }
    out.flush()?;
    match failed {
        Some(failure) => Err(failure),
        None if faults > 0 => {
            let what = format!(
                "{} on {}: nothing was changed; see the next step of each",
                plural(faults, "fault"),
                plural(wrong, "volume")
            );
            Err(Error::new(ErrorKind::Corrupt, what).into())
        }
        None => Ok(0),
    }
}

async fn check(volume: &Path, reads: bool, global: &Global) -> Result<CheckedVolumeView, Failure> {
    let _lock = lock(volume)?;
    let about = |error: Error| Failure::about(volume.display().to_string(), error);
    let mut bar = Bar::new(global, "parts");
    let root: PathBuf = volume.to_owned();
    let checked = on_blocking_thread(move || {
        let inspected = VolumeInspection::read(Arc::new(RealDisk), &root)?;
        let report = inspected.check(reads, &mut |report| {
            bar.show_text(&progress(report, reads));
            true
        });
        bar.end();
        Ok((inspected.service(), inspected.is_torn(), report?))
    });
    let (service, torn, report) = checked.await.map_err(about)?;
    Ok(CheckedVolumeView {
        volume: volume.display().to_string(),
        service: service.to_string(),
        parts: report.parts,
        read: reads,
        bytes: report.bytes,
        without_sums: report.without_sums,
        torn,
        unknown: report.unknown,
        unknown_total: report.unknown_count,
        faults: report.faults.iter().map(FaultView::of).collect(),
        faults_total: report.faults_count,
    })
}

fn progress(report: &CheckReport, reads: bool) -> String {
    let mut text = format!("{} of {} parts", report.checked, report.parts);
    if reads {
        text.push_str(&format!(", {} read", human::size(report.bytes.into())));
    }
    text
}

fn show(out: &mut Out, view: &CheckedVolumeView) -> Result<(), Failure> {
    if out.style.json {
        return out.json(view);
    }
    if !view.faults.is_empty() {
        let columns = ["file", "part", "stage", "fault", "name", "what", "next"];
        let mut table = Table::headed(columns.map(|column| (column, Align::Left)));
        for fault in &view.faults {
            let lfn = fault.lfn.as_deref().unwrap_or(human::UNKNOWN);
            table.row([
                fault.file.clone(),
                fault.part.to_string(),
                fault.stage.to_owned(),
                fault.kind.to_owned(),
                out.name(lfn).to_string(),
                out.name(&fault.what).to_string(),
                fault.next.to_owned(),
            ]);
        }
        out.table(&table)?;
    }
    let more = view.faults_total.saturating_sub(view.faults.len() as u64);
    if more > 0 {
        out.line(format!("and {}", plural(more, "more fault")))?;
    }
    if out.style.quiet {
        return Ok(());
    }
    for name in &view.unknown {
        let line = format!("not in the index: {}; the next start moves it to unknown/", out.name(name));
        out.line(line)?;
    }
    let read = match view.read {
        true => format!("{} read", out.size(view.bytes.into())),
        false => "bytes not read".to_owned(),
    };
    let line = format!(
        "{}: {}, {read}, {}, {} not in the index",
        out.name(&view.volume),
        plural(view.parts, "part"),
        plural(view.faults_total, "fault"),
        plural(view.unknown_total, "file")
    );
    out.line(line)
}
