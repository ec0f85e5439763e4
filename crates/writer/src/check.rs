//! Check of a volume: every part against its chunks, and the directory against the index.

use exacat_model::Result;
use exacat_wire::writer::{ByteRange, ChunkRecord};

use crate::item::{FileStage, SealedBy};
use crate::limits::CHECK_FAULTS_MAX;
use crate::origin::PartKey;
use crate::sums::crc32c;
use crate::volume::Volume;

/// Something that is wrong on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFault {
    /// Name of the part's data file.
    pub name: String,
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
}

impl CheckReport {
    fn fault(&mut self, name: String, what: impl Into<String>) {
        self.faults_count += 1;
        if self.faults.len() < CHECK_FAULTS_MAX {
            self.faults.push(CheckFault { name, what: what.into() });
        }
    }
}

/// A part to check: its chunks as far as the index has them, and the place behind its last needed byte.
struct Expected {
    part: PartKey,
    chunks: Vec<ChunkRecord>,
    has_list: bool,
    end: u64,
}

impl Volume {
    /// Compares all parts with their checksums. `progress` is called after each part, and ends the check
    /// by false. One chunk is in memory at a time, and the list of one part.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn check(&self, progress: &mut dyn FnMut(&CheckReport) -> bool) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let index = self.index();
        let mut expected = Vec::new();
        for (part, known) in &index.parts {
            if known.sealed == Some(SealedBy::Loss) {
                report.fault(part.file_name(), "the disk lost bytes of it");
                continue;
            }
            let (chunks, has_list) = (known.chunks.clone(), known.sealed == Some(SealedBy::Order));
            let end = chunks.last().map_or(0, ChunkRecord::end);
            expected.push(Expected { part: *part, chunks, has_list, end });
        }
        for kept in index.certified.values().filter(|kept| kept.stage < FileStage::Removed) {
            let Some(of) = kept.record.unpack() else { continue };
            for epoch in &of.epochs {
                let part = PartKey { file: of.file, epoch: *epoch };
                let needed = of.segments.iter().filter(|segment| segment.part.epoch == *epoch);
                let end = needed.map(|segment| segment.range.to).max().unwrap_or(0);
                let has_list = self.has_chunks_file(part);
                expected.push(Expected { part, chunks: Vec::new(), has_list, end });
            }
        }
        report.parts = expected.len() as u64;
        for of in expected {
            self.check_part(of, &mut report);
            report.checked += 1;
            if !progress(&report) {
                return Ok(report);
            }
        }
        for name in self.part_names()? {
            let part = PartKey::parse(Volume::part_of_name(&name));
            if !part.is_some_and(|part| index.has_part(part)) {
                report.fault(name, "the index does not name it");
            }
        }
        Ok(report)
    }

    fn check_part(&self, of: Expected, report: &mut CheckReport) {
        let name = of.part.file_name();
        let chunks = match of.has_list {
            true => match self.chunks_of(of.part) {
                Ok(chunks) => chunks,
                Err(error) => return report.fault(name, error.to_string()),
            },
            false => of.chunks,
        };
        if chunks.is_empty() && of.end > 0 {
            // Only its length can be judged.
            report.without_sums += 1;
            let last = ByteRange { from: of.end - 1, to: of.end };
            if let Err(error) = self.read(of.part, last) {
                report.fault(name, error.to_string());
            }
            return;
        }
        let end = chunks.last().map_or(0, ChunkRecord::end);
        if end < of.end {
            report.fault(name.clone(), format!("it ends at {end}, and the file needs it up to {}", of.end));
        }
        for chunk in chunks {
            let range = ByteRange { from: chunk.offset, to: chunk.end() };
            let place = || format!("bytes {} to {}", range.from, range.to);
            match self.read(of.part, range) {
                Ok(bytes) if crc32c(&bytes) == chunk.crc32c => report.bytes += bytes.len() as u64,
                Ok(_) => report.fault(name.clone(), format!("{} differ from their checksum", place())),
                Err(error) => report.fault(name.clone(), format!("{}: {error}", place())),
            }
        }
    }
}
