//! Durable chunks and names for those who read files, and the files that are to be copied elsewhere.

use exacat_model::Lfn;
use exacat_wire::writer::{ChunkRecord, FileId};

use super::state::{KeptFile, Service};
use crate::item::FileStage;
use crate::origin::PartKey;

/// Numbers of closed files that are not certified, by the kind of reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingFiles {
    /// The catalogue is asked, or has refused for now.
    pub commit: u64,
    /// Parts on other services are not known yet.
    pub parts: u64,
    /// No known part has some bytes.
    pub missing: u64,
    /// Other reasons, such as parts here that are being ended.
    pub other: u64,
}

impl Service {
    /// Returns the numbers of files that wait for their certificate.
    pub fn waiting(&self) -> WaitingFiles {
        let mut waiting = WaitingFiles::default();
        let closed = self.files.values().filter(|entry| entry.stage == FileStage::Closed);
        for entry in closed {
            let kind = match entry.reason.as_str() {
                _ if entry.is_committing => &mut waiting.commit,
                "" => &mut waiting.other,
                reason if reason.contains("; part ") => &mut waiting.parts,
                reason if reason.contains(" are missing") => &mut waiting.missing,
                _ => &mut waiting.commit,
            };
            *kind += 1;
        }
        waiting
    }

    /// Returns the durable chunks of a part of a file that is not certified. Those of a certified file are
    /// beside its bytes.
    pub fn durable_chunks(&self, part: PartKey) -> Option<Vec<ChunkRecord>> {
        self.part(part).map(|part| part.durable().to_vec())
    }

    /// Returns the file of this name that is not certified; one of them, if there are several.
    pub fn uncertified_file_of(&self, lfn: &Lfn) -> Option<FileId> {
        let open = self.open.iter().map(|(key, part)| (key, &part.origin));
        let mut parts = open.chain(self.sealed.iter().map(|(key, part)| (key, &part.origin)));
        parts.find(|(_, origin)| origin.description.lfn == *lfn).map(|(key, _)| key.file)
    }

    /// Returns at most so many certified files that are not copied elsewhere, the oldest first, and the
    /// number of all of them. A file is the matter of the service that certified it.
    pub fn stage_candidates(&self, most: usize) -> (Vec<FileId>, usize) {
        // Few services have any most of the time, and very many others.
        if self.kept[0] == 0 {
            return (Vec::new(), 0);
        }
        let is_ready = |kept: &&KeptFile| kept.stage == FileStage::Certified && kept.is_durable;
        let ready = self.certified.values().filter(is_ready).filter_map(|kept| kept.record.unpack());
        let mut found: Vec<(u64, FileId)> =
            ready.filter(|of| of.is_certifier).map(|of| (of.begun, of.file)).collect();
        found.sort_unstable();
        (found.iter().take(most).map(|(_, file)| *file).collect(), found.len())
    }
}
