//! Check of a volume: every part against its chunks, and the directory against the index.

use exacat_disk::DiskFile;
use exacat_model::{Lfn, Result};
use exacat_wire::writer::{ChunkRecord, FileId};

use crate::index::Index;
use crate::item::{FileStage, SealedBy};
use crate::limits::CHECK_FAULTS_MAX;
use crate::origin::PartKey;
use crate::sums::crc32c;
use crate::volume_files::VolumeFiles;

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// The file with the bytes of a part is missing.
    MissingPart,
    /// The file with the bytes ends before its last durable byte.
    ShortPart,
    /// The disk refuses to read the file with the bytes.
    UnreadablePart,
    /// The service noted at an opening that the disk lost bytes of the part.
    LostPart,
    /// The file with the chunks of a sealed part is missing.
    MissingChunks,
    /// The file with the chunks is damaged, or the disk refuses to read it.
    DamagedChunks,
    /// Bytes of a part differ from the checksum of their chunk.
    DamagedBytes,
}

impl CheckKind {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            CheckKind::MissingPart => "missing-part",
            CheckKind::ShortPart => "short-part",
            CheckKind::UnreadablePart => "unreadable-part",
            CheckKind::LostPart => "lost-part",
            CheckKind::MissingChunks => "missing-chunks",
            CheckKind::DamagedChunks => "damaged-chunks",
            CheckKind::DamagedBytes => "damaged-bytes",
        }
    }
}

/// Part of a file that is wrong on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFault {
    /// Kind.
    pub kind: CheckKind,
    /// The part.
    pub part: PartKey,
    /// Name of its file in the catalogue; none if its record cannot be read.
    pub lfn: Option<Lfn>,
    /// Stage of its file.
    pub stage: FileStage,
    /// The fault, in words.
    pub what: String,
}

/// Result of a check; also its progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Parts that the index names, apart from removed ones.
    pub parts: u64,
    /// Parts that were looked at.
    pub checked: u64,
    /// Bytes that were read and compared with their checksums.
    pub bytes: u64,
    /// Parts of certified files that ended by a fault: their checksums are in the catalogue only.
    pub without_sums: u64,
    /// Faults, up to [`CHECK_FAULTS_MAX`].
    pub faults: Vec<CheckFault>,
    /// Number of faults.
    pub faults_count: u64,
    /// Names of files that the index does not name, up to [`CHECK_FAULTS_MAX`]. Nobody has an
    /// acknowledgement for their bytes, so they are no fault.
    pub unknown: Vec<String>,
    /// Number of such files.
    pub unknown_count: u64,
}

/// Receiver of the progress. It ends the check by false.
pub(crate) type CheckProgress<'a> = dyn FnMut(&CheckReport) -> bool + 'a;

/// Part to check: its chunks as far as the index has them, and the place behind its last needed byte.
struct Expected {
    part: PartKey,
    lfn: Option<Lfn>,
    stage: FileStage,
    chunks: Vec<ChunkRecord>,
    /// True if its chunks are beside it; false if they may be, for a certified file.
    has_list: bool,
    end: u64,
}

impl Expected {
    fn fault(&self, report: &mut CheckReport, kind: CheckKind, what: impl Into<String>) {
        report.faults_count += 1;
        if report.faults.len() < CHECK_FAULTS_MAX {
            let (part, lfn, stage) = (self.part, self.lfn.clone(), self.stage);
            report.faults.push(CheckFault { kind, part, lfn, stage, what: what.into() });
        }
    }
}

/// Returns the parts to check, and notes those that are known to be lost.
fn expected_parts(index: &Index, report: &mut CheckReport) -> Vec<Expected> {
    let mut all = Vec::new();
    for (part, known) in &index.parts {
        let stage = index.files.get(&part.file).map_or(FileStage::Open, |file| file.stage);
        let lfn = Some(known.origin.description.lfn.clone());
        let (chunks, has_list) = (known.chunks.clone(), known.sealed == Some(SealedBy::Order));
        let end = chunks.last().map_or(0, ChunkRecord::end);
        let expected = Expected { part: *part, lfn, stage, chunks, has_list, end };
        if known.sealed == Some(SealedBy::Loss) {
            expected.fault(report, CheckKind::LostPart, "the disk lost bytes of it before an earlier start");
            continue;
        }
        all.push(expected);
    }
    for (file, kept) in index.certified.iter().filter(|(_, kept)| kept.stage < FileStage::Removed) {
        let Some(of) = kept.record.unpack() else { continue };
        for epoch in &of.epochs {
            let part = PartKey { file: *file, epoch: *epoch };
            let needed = of.segments.iter().filter(|segment| segment.part.epoch == *epoch);
            let end = needed.map(|segment| segment.range.to).max().unwrap_or(0);
            let (lfn, stage) = (Some(of.lfn.clone()), kept.stage);
            all.push(Expected { part, lfn, stage, chunks: Vec::new(), has_list: false, end });
        }
    }
    all
}

/// Compares the files of a volume with its index; on request also every chunk with its checksum. The report
/// is passed on after each part, and after each chunk that was read. One chunk is in memory at a time, and
/// the list of one part.
pub(crate) fn check(
    stored: &VolumeFiles,
    index: &Index,
    reads: bool,
    progress: &mut CheckProgress<'_>,
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let expected = expected_parts(index, &mut report);
    report.parts = expected.len() as u64;
    for of in expected {
        let goes_on = check_part(stored, of, reads, &mut report, progress);
        report.checked += 1;
        if !goes_on || !progress(&report) {
            return Ok(report);
        }
    }
    let mut names = stored.part_names()?;
    names.sort_unstable();
    for name in names {
        let part = PartKey::parse(VolumeFiles::part_of_name(&name));
        if !part.is_some_and(|part| index.has_part(part)) {
            report.unknown_count += 1;
            if report.unknown.len() < CHECK_FAULTS_MAX {
                report.unknown.push(name);
            }
        }
    }
    Ok(report)
}

/// Checks a part. Returns false if the caller ends the check.
fn check_part(
    stored: &VolumeFiles,
    mut of: Expected,
    reads: bool,
    report: &mut CheckReport,
    progress: &mut CheckProgress<'_>,
) -> bool {
    let is_certified = matches!(of.stage, FileStage::Certified | FileStage::Staged);
    if of.has_list || is_certified {
        match stored.stored_chunks(of.part) {
            Ok(Some(chunks)) => of.chunks = chunks,
            Ok(None) if of.has_list => of.fault(report, CheckKind::MissingChunks, "its .chunks is missing"),
            // Only its length can be judged.
            Ok(None) => report.without_sums += u64::from(of.end > 0),
            Err(error) => of.fault(report, CheckKind::DamagedChunks, error.to_string()),
        }
    }
    let end = of.chunks.last().map_or(0, ChunkRecord::end);
    if !of.chunks.is_empty() && end < of.end {
        let what = format!("its chunks end at {end}, and its file needs it up to {}", of.end);
        of.fault(report, CheckKind::DamagedChunks, what);
    }
    of.end = of.end.max(end);
    if of.end == 0 {
        // A part without a durable byte may have no file.
        return true;
    }
    let opened = stored.disk.open_to_read(&stored.path(of.part));
    let (length, file) = match opened.and_then(|file| Ok((file.length()?, file))) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            of.fault(report, CheckKind::MissingPart, format!("its file of {} bytes is missing", of.end));
            return true;
        }
        Err(error) => {
            of.fault(report, CheckKind::UnreadablePart, error.to_string());
            return true;
        }
    };
    if length < of.end {
        of.fault(report, CheckKind::ShortPart, format!("it has {length} of {} bytes", of.end));
    }
    !reads || read_part(&*file, length, &of, report, progress)
}

/// Chunks side by side that are wrong in the same way.
struct WrongRun {
    kind: CheckKind,
    from: u64,
    to: u64,
    reason: String,
}

impl WrongRun {
    fn note(self, of: &Expected, report: &mut CheckReport) {
        let what = format!("bytes {} to {} {}", self.from, self.to, self.reason);
        of.fault(report, self.kind, what);
    }
}

/// Reads the chunks of a part that its file has. Returns false if the caller ends the check.
fn read_part(
    file: &dyn DiskFile,
    length: u64,
    of: &Expected,
    report: &mut CheckReport,
    progress: &mut CheckProgress<'_>,
) -> bool {
    let mut buffer = Vec::new();
    let mut run: Option<WrongRun> = None;
    for chunk in of.chunks.iter().take_while(|chunk| chunk.end() <= length) {
        buffer.resize(chunk.length as usize, 0);
        let (from, to) = (chunk.offset, chunk.end());
        let wrong = |kind, reason: &str| Some(WrongRun { kind, from, to, reason: reason.to_owned() });
        let found = match file.read_at(&mut buffer, chunk.offset) {
            Ok(count) if count == buffer.len() && crc32c(&buffer) == chunk.crc32c => None,
            Ok(_) => wrong(CheckKind::DamagedBytes, "differ from their checksum"),
            Err(error) => wrong(CheckKind::UnreadablePart, &format!("cannot be read: {error}")),
        };
        if found.is_none() {
            report.bytes += u64::from(chunk.length);
        }
        run = match (run, found) {
            (Some(before), Some(next)) if before.to == next.from && before.kind == next.kind => {
                Some(WrongRun { to: next.to, ..before })
            }
            (before, next) => {
                if let Some(before) = before {
                    before.note(of, report);
                }
                next
            }
        };
        if !progress(report) {
            return false;
        }
    }
    if let Some(run) = run {
        run.note(of, report);
    }
    true
}

/// Files and bytes of a volume at one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageContent {
    /// Files with a part on the volume.
    pub files: u64,
    /// Their bytes on the volume.
    pub bytes: u64,
}

/// Content of a volume, by the stages of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeContent {
    stages: std::collections::BTreeMap<FileStage, StageContent>,
}

impl VolumeContent {
    /// Returns the files at a stage.
    pub fn at(&self, stage: FileStage) -> StageContent {
        self.stages.get(&stage).copied().unwrap_or_default()
    }

    fn add(&mut self, stage: FileStage, file: Option<FileId>, bytes: u64) {
        let content = self.stages.entry(stage).or_default();
        content.files += u64::from(file.is_some());
        content.bytes += bytes;
    }
}

/// Returns the content of a volume. Parts whose chunks cannot be read count without bytes: a check names
/// them.
pub(crate) fn content(stored: &VolumeFiles, index: &Index) -> VolumeContent {
    let mut content = VolumeContent::default();
    let mut last = None;
    for (part, known) in &index.parts {
        let stage = index.files.get(&part.file).map_or(FileStage::Open, |file| file.stage);
        let listed = match known.sealed {
            Some(SealedBy::Order) => stored.stored_chunks(part.to_owned()).ok().flatten().unwrap_or_default(),
            _ => Vec::new(),
        };
        let chunks = if listed.is_empty() { &known.chunks } else { &listed };
        let bytes = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
        content.add(stage, Some(part.file).filter(|file| last != Some(*file)), bytes);
        last = Some(part.file);
    }
    for (file, kept) in &index.certified {
        let Some(of) = kept.record.unpack() else { continue };
        let here = of.shares.iter().filter(|share| of.epochs.contains(&share.part.epoch));
        let bytes = if kept.stage < FileStage::Removed { here.map(|share| share.bytes).sum() } else { 0 };
        content.add(kept.stage, Some(*file), bytes);
    }
    content
}
