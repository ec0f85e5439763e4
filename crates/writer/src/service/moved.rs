//! Parts that are on another service than their file says: their volume was adopted. The file and the epoch
//! name a part, because a producer gives each epoch to one service; the service of a part is where it was.

use exacat_wire::writer::{FileId, Frame, PartOwner, PartQuery, ServiceId, ServiceState};

use super::state::{Effect, KeptFile, Service};
use crate::certified::CertifiedRecord;
use crate::item::{FileStage, Item};
use crate::origin::PartKey;

/// Questions about a part to its own service for one to all others.
const SEEK_EVERY: u64 = 4;

/// Says whether it is time to ask all services, at the first question and some later ones.
pub(super) fn is_time_to_seek(asked: u64) -> bool {
    asked % SEEK_EVERY == 1
}

impl KeptFile {
    /// Returns the epochs of the parts here, on all volumes.
    pub(super) fn epochs(&self) -> Vec<u32> {
        self.parts().into_iter().flat_map(|(_, keys)| keys).map(|key| key.epoch).collect()
    }

    /// Adds the record of another volume, which may have been another service's.
    pub(super) fn add(&mut self, mut other: (u16, CertifiedRecord), stage: FileStage, service: ServiceId) {
        let (known, new) = (self.record.unpack(), other.1.unpack());
        let (Some(known), Some(new)) = (known, new) else { return };
        let here = self.epochs();
        self.stage = match (known.is_certifier, new.is_certifier) {
            (true, false) => self.stage,
            (false, true) => stage,
            // Each of them may order the removal.
            (true, true) => self.stage.max(stage),
            (false, false) => {
                let is_earlier = self.stage < stage;
                let has_bytes =
                    if is_earlier { known.has_bytes_of(&here) } else { new.has_bytes_of(&new.epochs) };
                // The parts of an adopted volume are those of another service, or of none.
                let is_own = known.names(service, &here) && new.names(service, &new.epochs);
                // One service may have removed parts that the file does not need, while it needs the others.
                if has_bytes && !is_own { self.stage.min(stage) } else { self.stage.max(stage) }
            }
        };
        // The record of the certificate speaks for the file.
        if new.is_certifier && !known.is_certifier {
            std::mem::swap(&mut self.volume, &mut other.0);
            std::mem::swap(&mut self.record, &mut other.1);
        }
        self.others.push(other);
    }
}

impl Service {
    /// Says whether a service was heard of lately.
    fn is_live(&self, service: ServiceId) -> bool {
        self.table.get(service).is_some_and(|record| record.state != ServiceState::Gone)
    }

    /// Notes that parts of a closed file are here, whatever its close says. The index keeps the close as it
    /// came: each start finds the parts again.
    pub(super) fn own_parts(&mut self, file: FileId) {
        let Service { open, sealed, files, settings, .. } = self;
        let Some(close) = files.get_mut(&file).and_then(|entry| entry.close.as_mut()) else { return };
        let is_here = |epoch| {
            let key = PartKey { file, epoch };
            open.contains_key(&key) || sealed.contains_key(&key)
        };
        for part in close.parts.iter_mut().filter(|part| is_here(part.epoch)) {
            part.service = settings.service;
        }
    }

    /// Asks all services for a part.
    pub(super) fn seek(&mut self, query: PartQuery) {
        let own = self.settings.service;
        let all = self.table.to_table().0.into_iter();
        let live = all.filter(|of| of.service != own && of.state != ServiceState::Gone);
        for record in live.collect::<Vec<_>>() {
            self.tell(record.service, Frame::PartQuery(query));
        }
    }

    /// Asks all services for a part whose own service is gone.
    pub(super) fn seek_of_gone(&mut self, owner: PartOwner, query: PartQuery) {
        if !self.is_live(owner.service) {
            self.seek(query);
        }
    }

    /// Says whether a part of a certified file is here.
    pub(super) fn has_kept_part(&self, file: FileId, epoch: u32) -> bool {
        let key = PartKey { file, epoch };
        let kept = self.certified.get(&file).map(KeptFile::parts).unwrap_or_default();
        kept.iter().any(|(_, keys)| keys.contains(&key)) || self.part(key).is_some()
    }

    /// Notes in the record of a certified file that its parts here are here. The index keeps the record as it
    /// was: each start finds them again.
    pub(super) fn own_kept_parts(&mut self, file: FileId) {
        let service = self.settings.service;
        let Some(kept) = self.certified.get_mut(&file) else { return };
        let Some(mut of) = kept.record.unpack() else { return };
        let here = kept.epochs();
        if of.give(&here, service) {
            kept.record = of.pack();
        }
    }

    /// Notes, durably, that a part of a certified file is on another service now: that one has told so, and
    /// the service of the record is gone. From then on the new one is told of the file.
    pub(super) fn kept_part_moved(&mut self, file: FileId, to: PartOwner) {
        let Some(kept) = self.certified.get(&file) else { return };
        let Some(mut of) = kept.record.unpack().filter(|of| of.is_certifier) else { return };
        let named = of.shares.iter().map(|share| share.part).find(|part| part.epoch == to.epoch);
        let volume = usize::from(kept.volume);
        let cannot_write = self.volumes.get(volume).is_none_or(|volume| volume.read_only.is_some());
        if named.is_none_or(|named| named.service == self.settings.service || self.is_live(named.service))
            || cannot_write
            || !of.give(&[to.epoch], to.service)
        {
            return;
        }
        if let Some(kept) = self.certified.get_mut(&file) {
            kept.record = of.pack();
            kept.is_durable = false;
            let item = Item::Certified(kept.record.clone());
            self.commit(volume, vec![item], Effect::Certified(file));
        }
    }
}
