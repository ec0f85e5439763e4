//! Certified files: the news of them, their staging, and their removal.

use exacat_wire::writer::limits::PARTS_MAX;
use exacat_wire::writer::{Certified, FileId, Frame, PartOwner, PartQuery, PartShare, PartState, ServiceId};

use super::moved::is_time_to_seek;
use super::settings::Output;
use super::state::{Effect, KeptFile, Removal, Service, Telling};
use crate::certified::CertifiedFile;
use crate::item::{FileStage, Item};
use crate::limits::{BACKOFF_MAX, REMOVALS_AT_ONCE_MAX};
use crate::origin::PartKey;
use crate::work::{Fault, Work};

/// Milliseconds after which a failed removal is tried again; it grows with the failures.
const REMOVAL_RETRY_MS: u64 = 1_000;
/// Milliseconds between two files that are told of after a restart.
const RETELL_EVERY_MS: u64 = 2;

/// Returns the place of a stage in the numbers of certified files.
fn kept_index(stage: FileStage) -> usize {
    match stage {
        FileStage::Staged => 1,
        FileStage::Removed => 2,
        _ => 0,
    }
}

impl Service {
    /// Keeps a file that the catalogue has and whose parts here are sealed: its chunks leave the memory.
    pub(super) fn keep(&mut self, file: FileId) {
        let Some(entry) = self.drop_entry(file) else { return };
        let Some(mut of) = entry.certified else { return };
        let mut volumes: Vec<(usize, Vec<u32>)> = Vec::new();
        let (first, last) = PartKey::bounds(file);
        for (key, part) in self.sealed.range(first..=last) {
            match volumes.iter_mut().find(|(volume, _)| *volume == part.volume) {
                Some((_, epochs)) => epochs.push(key.epoch),
                None => volumes.push((part.volume, vec![key.epoch])),
            }
        }
        if let Some(origin) = self.origin_of(file) {
            of.begun = origin.begun;
        }
        // Parts of an adopted volume are here, whatever the certificate says.
        for (_, epochs) in &volumes {
            of.give(epochs, self.settings.service);
        }
        for (volume, epochs) in &volumes {
            for epoch in epochs {
                self.sealed.remove(&PartKey { file, epoch: *epoch });
            }
            debug_assert!(*volume < self.volumes.len());
        }
        // The record on the volume of the close speaks for the file.
        volumes.sort_by_key(|(volume, _)| *volume != entry.volume);
        if volumes.is_empty() {
            volumes.push((entry.volume, Vec::new()));
        }
        let mut kept: Option<KeptFile> = None;
        for (at, epochs) in volumes {
            of.epochs = epochs;
            let (record, volume) = (of.pack(), u16::try_from(at).unwrap_or(u16::MAX));
            let effect = if kept.is_none() { Effect::Certified(file) } else { Effect::Nothing };
            self.commit(at, vec![Item::Certified(record.clone())], effect);
            match &mut kept {
                Some(kept) => kept.others.push((volume, record)),
                None => {
                    let (stage, is_durable) = (FileStage::Certified, false);
                    let others = Vec::new();
                    kept = Some(KeptFile { record, volume, stage, is_durable, staged_at: 0, others });
                }
            }
        }
        let Some(kept) = kept else { return };
        let is_lost = self.volumes.get(usize::from(kept.volume)).is_none_or(|of| of.read_only.is_some());
        self.certified.insert(file, kept);
        self.kept[0] += 1;
        self.counters.certified_files += 1;
        if is_lost {
            // The catalogue has the file: the producer learns it, whatever the index here says.
            self.tell_producer(&of);
        }
    }

    /// Returns the parts of a file on other services, if this service certified it: otherwise it tells
    /// nobody.
    fn others_of(&self, of: &CertifiedFile) -> Vec<PartOwner> {
        let parts = of.shares.iter().map(|share| share.part).filter(|_| of.is_certifier);
        parts.filter(|part| part.service != self.settings.service).collect()
    }

    fn tell_producer(&mut self, of: &CertifiedFile) {
        if let Some(connection) = self.connection_of(of.writer) {
            self.send(connection, Frame::Certified(of.news()));
        }
    }

    /// Acts once the index has a certified file.
    pub(super) fn certified_durably(&mut self, file: FileId, now: u64) {
        let Some(kept) = self.certified.get_mut(&file) else { return };
        kept.is_durable = true;
        if let Some(of) = kept.record.unpack() {
            self.tell_producer(&of);
            // Not before: a service that forgets it would learn it from those that it told, and tell nobody
            // of its removal.
            self.tell_others(file, self.others_of(&of), now);
            self.remove_unneeded(&of, now);
        }
        self.send_news(file, now);
    }

    /// Orders the removal of parts that a file does not have: it is whole without them, and no one will ask
    /// for them.
    fn remove_unneeded(&mut self, of: &CertifiedFile, now: u64) {
        let Some(kept) = self.certified.get(&of.file) else { return };
        let here = kept.epochs();
        // By their epochs: the record may name the service that had the volume before.
        let is_needed = of.shares.iter().any(|share| here.contains(&share.part.epoch));
        if !is_needed
            && kept.stage < FileStage::Removed
            && !of.is_certifier
            && let Err(reason) = self.remove(of.file, now)
        {
            tracing::debug!(file = %of.file, reason, "parts that a file does not need are not removed yet");
        }
    }

    /// Adds parts to a file that this service certified: another one certified it as well, with later
    /// parts. Both tell all services of its removal.
    pub(super) fn add_parts(&mut self, news: &Certified) {
        let Some(kept) = self.certified.get_mut(&news.file) else { return };
        let Some(mut of) = kept.record.unpack().filter(|of| of.is_certifier) else { return };
        // By their epochs: the other service may not know that a part has moved.
        let is_new = |share: &&PartShare| !of.shares.iter().any(|known| known.part.epoch == share.part.epoch);
        let new: Vec<PartShare> = news.parts.iter().filter(is_new).copied().collect();
        let volume = usize::from(kept.volume);
        let cannot_write = self.volumes.get(volume).is_none_or(|volume| volume.read_only.is_some());
        if new.is_empty() || cannot_write || of.shares.len() + new.len() > PARTS_MAX {
            return;
        }
        of.shares.extend(new.into_iter().map(|share| PartShare { bytes: 0, ..share }));
        of.shares.sort_by_key(|share| share.part.epoch);
        kept.record = of.pack();
        kept.is_durable = false;
        let item = Item::Certified(kept.record.clone());
        self.commit(volume, vec![item], Effect::Certified(news.file));
    }

    /// Tells the producers of files whose record the index cannot take any more.
    pub(super) fn kept_failed(&mut self, volume: usize) {
        let is_lost = |kept: &&KeptFile| usize::from(kept.volume) == volume && !kept.is_durable;
        let lost: Vec<CertifiedFile> =
            self.certified.values().filter(is_lost).filter_map(|kept| kept.record.unpack()).collect();
        lost.iter().for_each(|of| self.tell_producer(of));
    }

    /// Returns the news that a file is certified, if it is.
    pub(super) fn certified_frame(&self, file: FileId) -> Option<Frame> {
        Some(Frame::Certified(self.certified.get(&file)?.record.unpack()?.news()))
    }

    /// Continues with the certified files of the volumes that were opened.
    pub(super) fn resume_certified(&mut self, now: u64) {
        let files: Vec<FileId> = self.certified.keys().copied().collect();
        let mut due = now;
        for file in files {
            self.adopt_parts(file);
            self.own_kept_parts(file);
            let Some(kept) = self.certified.get(&file) else { continue };
            self.kept[kept_index(kept.stage)] += 1;
            match kept.stage {
                FileStage::Removed => {
                    // One of its volumes has the order.
                    self.order_removal(file, None);
                }
                FileStage::Staged => self.note_staged(file, now),
                _ => {}
            }
            let of = self.certified.get(&file).and_then(|kept| kept.record.unpack());
            let to = of.as_ref().map(|of| self.others_of(of)).unwrap_or_default();
            if let Some(of) = of {
                self.remove_unneeded(&of, now);
            }
            if !to.is_empty() {
                due += RETELL_EVERY_MS;
                self.tell_others(file, to, due);
            }
        }
    }

    /// Takes parts of a certified file that the index of their volume does not know as such.
    fn adopt_parts(&mut self, file: FileId) {
        let (first, last) = PartKey::bounds(file);
        let found: Vec<(PartKey, usize)> =
            self.sealed.range(first..=last).map(|(key, part)| (*key, part.volume)).collect();
        let service = self.settings.service;
        let Some(kept) = self.certified.get_mut(&file) else { return };
        let Some(mut of) = kept.record.unpack() else { return };
        let epochs: Vec<u32> = found.iter().map(|(key, _)| key.epoch).collect();
        // The service removed parts that the file does not need, before it adopted one that it needs.
        if kept.stage == FileStage::Removed
            && !of.is_certifier
            && !of.names(service, &kept.epochs())
            && of.has_bytes_of(&epochs)
        {
            kept.stage = FileStage::Certified;
        }
        for (key, _) in &found {
            self.sealed.remove(key);
        }
        self.drop_entry(file);
        for at in 0..self.volumes.len() {
            of.epochs = found.iter().filter(|(_, volume)| *volume == at).map(|(key, _)| key.epoch).collect();
            if of.epochs.is_empty() {
                continue;
            }
            let record = of.pack();
            self.commit(at, vec![Item::Certified(record.clone())], Effect::Nothing);
            if let Some(kept) = self.certified.get_mut(&file) {
                kept.others.push((u16::try_from(at).unwrap_or(u16::MAX), record));
            }
        }
    }

    /// Tells other services about a certified file until they know it.
    fn tell_others(&mut self, file: FileId, to: Vec<PartOwner>, due: u64) {
        if let Some(before) = self.telling.remove(&file) {
            self.tell_due.remove(&(before.due, file));
        }
        if !to.is_empty() {
            self.tell_due.insert((due, file));
            self.telling.insert(file, Telling { to, due, told: 0 });
        }
    }

    /// Sends the stage of a file to the services that do not know it. Their reports say who does.
    fn send_news(&mut self, file: FileId, now: u64) {
        let Some(telling) = self.telling.get_mut(&file) else { return };
        self.tell_due.remove(&(telling.due, file));
        telling.told += 1;
        telling.due = now + (self.settings.ask_every_ms * telling.told.min(BACKOFF_MAX)).max(1);
        self.tell_due.insert((telling.due, file));
        let (to, seeks) = (telling.to.clone(), is_time_to_seek(telling.told));
        let Some(kept) = self.certified.get(&file) else { return };
        let (stage, is_durable) = (kept.stage, kept.is_durable);
        let Some(news) = kept.record.unpack().map(|of| of.news()) else { return };
        for owner in to {
            self.tell(owner.service, Frame::Certified(news.clone()));
            if stage == FileStage::Removed && is_durable {
                self.tell(owner.service, Frame::Remove { file });
            }
            let query = PartQuery { file, epoch: owner.epoch, from: 0 };
            self.tell(owner.service, Frame::PartQuery(query));
            if seeks {
                self.seek_of_gone(owner, query);
            }
        }
    }

    /// Returns the state of a part of a certified file, and tells the service that asks of the file.
    pub(super) fn report_certified(&mut self, service: ServiceId, part: PartKey) -> PartState {
        let file = part.file;
        let is_durable = self.certified.get(&file).is_some_and(|kept| kept.is_durable);
        if let Some(frame) = self.certified_frame(file).filter(|_| is_durable) {
            self.tell(service, frame);
        }
        match self.certified.get(&file) {
            // A kill may take it back.
            Some(kept) if !kept.is_durable => PartState::Open,
            // The service that asks certified the file as well: its news has parts that are not known here.
            Some(kept) if !kept.knows(service) => PartState::Open,
            Some(kept) if kept.stage == FileStage::Removed => PartState::Unknown,
            _ if !self.has_kept_part(file, part.epoch) => PartState::Unknown,
            _ => PartState::Certified,
        }
    }

    /// Takes the report of a service that was told about a file.
    pub(super) fn told(&mut self, file: FileId, owner: PartOwner, state: PartState, now: u64) {
        let is_removed = self.certified.get(&file).is_some_and(|kept| kept.stage == FileStage::Removed);
        let knows = match state {
            PartState::Certified => !is_removed,
            PartState::Unknown | PartState::Failed => true,
            PartState::Open | PartState::Sealed => false,
        };
        if state == PartState::Certified {
            self.kept_part_moved(file, owner);
        }
        let Some(telling) = self.telling.get_mut(&file).filter(|_| knows) else { return };
        telling.to.retain(|other| *other != owner);
        if telling.to.is_empty() {
            self.tell_due.remove(&(telling.due, file));
            self.telling.remove(&file);
            self.finish_removal(file, now);
        }
    }

    /// Notes, durably, that a certified file was copied to another storage element, and that the
    /// catalogue knows it. The policy may remove it from then on.
    ///
    /// # Errors
    /// Says why not: the file is not certified here, or its volume cannot be written.
    pub fn staged(&mut self, file: FileId, now: u64) -> Result<(), &'static str> {
        self.reach(file, FileStage::Staged, now)
    }

    /// Orders the removal of a certified file, staged or not: it is an operator's word. The index has
    /// the order before any byte goes.
    ///
    /// # Errors
    /// Says why not: the file is not certified here, or its volume cannot be written.
    pub fn remove(&mut self, file: FileId, now: u64) -> Result<(), &'static str> {
        self.reach(file, FileStage::Removed, now)
    }

    fn reach(&mut self, file: FileId, stage: FileStage, now: u64) -> Result<(), &'static str> {
        let kept = self.certified.get_mut(&file).ok_or("the file is not certified here")?;
        if kept.stage >= stage {
            return Ok(());
        }
        if !kept.is_durable {
            return Err("the index does not have the file's last stage yet: try again");
        }
        let volume = usize::from(kept.volume);
        if self.volumes.get(volume).is_none_or(|of| of.read_only.is_some()) {
            return Err("the volume of the file cannot be written");
        }
        let (before, staged_at) = (kept.stage, kept.staged_at);
        kept.stage = stage;
        kept.is_durable = false;
        self.kept[kept_index(before)] -= 1;
        self.kept[kept_index(stage)] += 1;
        self.volumes[volume].staged.remove(&(staged_at, file));
        let item = Item::Stage { file, stage, reason: String::new() };
        self.commit(volume, vec![item], Effect::Stage(file, stage));
        if stage == FileStage::Removed {
            self.order_removal(file, Some(volume));
        }
        self.pump(now);
        Ok(())
    }

    /// Removes a file by order of the service that certified it.
    pub(super) fn remove_for_peer(&mut self, file: FileId, now: u64) {
        if let Err(reason) = self.remove(file, now) {
            tracing::debug!(%file, reason, "another service ordered the removal of a file");
        }
    }

    /// Acts on a stage of a file once the index has it.
    pub(super) fn stage_reached(&mut self, file: FileId, stage: FileStage, now: u64) {
        if let Some(kept) = self.certified.get_mut(&file) {
            kept.is_durable = true;
        }
        match stage {
            FileStage::Staged => self.note_staged(file, now),
            FileStage::Removed => {
                self.counters.removed_files += 1;
                let kept = self.certified.get(&file);
                self.removal_due.extend(kept.map(|kept| (now, file, usize::from(kept.volume))));
                let of = self.certified.get(&file).and_then(|kept| kept.record.unpack());
                let to = of.map(|of| self.others_of(&of)).unwrap_or_default();
                self.tell_others(file, to, now);
                self.send_news(file, now);
            }
            _ => {}
        }
    }

    fn note_staged(&mut self, file: FileId, now: u64) {
        if let Some(kept) = self.certified.get_mut(&file) {
            kept.staged_at = now;
            if let Some(volume) = self.volumes.get_mut(usize::from(kept.volume)) {
                volume.staged.insert((now, file));
            }
        }
    }

    /// Orders the removal on all volumes with parts, apart from one whose index has the order. Each volume
    /// removes a part once its own index has the order: otherwise a kill would leave a part that is lost.
    fn order_removal(&mut self, file: FileId, ordered: Option<usize>) {
        let Some(kept) = self.certified.get(&file) else { return };
        let volumes: Vec<usize> = kept.parts().into_iter().map(|(volume, _)| volume).collect();
        for volume in volumes.iter().filter(|volume| Some(**volume) != ordered) {
            let item = Item::Stage { file, stage: FileStage::Removed, reason: String::new() };
            self.commit(*volume, vec![item], Effect::Removable(file));
        }
        self.removals.insert(file, Removal { volumes, failures: 0 });
    }

    /// Hands out the removals whose time has come.
    fn hand_out_removals(&mut self, now: u64) {
        while self.removing < REMOVALS_AT_ONCE_MAX
            && let Some((due, file, volume)) = self.removal_due.first().copied()
            && due <= now
        {
            self.removal_due.pop_first();
            self.removing += 1;
            let parts = self.certified.get(&file).map(KeptFile::parts).unwrap_or_default();
            let parts = parts.into_iter().filter(|(of, _)| *of == volume).flat_map(|(_, keys)| keys);
            self.output.push_back(Output::Work(volume, Work::Remove { file, parts: parts.collect() }));
        }
    }

    /// Takes the outcome of a removal. A failure is tried again.
    pub(super) fn remove_done(&mut self, volume: usize, file: FileId, outcome: &Result<(), Fault>, now: u64) {
        self.removing = self.removing.saturating_sub(1);
        let Some(removal) = self.removals.get_mut(&file) else { return };
        match outcome {
            Ok(()) => removal.volumes.retain(|of| *of != volume),
            Err(fault) => {
                removal.failures += 1;
                let later = now + REMOVAL_RETRY_MS * removal.failures.min(BACKOFF_MAX);
                self.removal_due.insert((later, file, volume));
                tracing::warn!(%file, reason = fault.reason, "a file cannot be removed; it is tried again");
            }
        }
        self.finish_removal(file, now);
    }

    /// Ends a removal that is done everywhere. The file is remembered for a while.
    fn finish_removal(&mut self, file: FileId, now: u64) {
        let is_done = self.removals.get(&file).is_some_and(|removal| removal.volumes.is_empty());
        if is_done && !self.telling.contains_key(&file) {
            self.removals.remove(&file);
            self.removed.push_back((now + self.settings.removal.remember_ms, file));
        }
    }

    /// Lets time pass for the certified files.
    pub(super) fn tick_kept(&mut self, now: u64) {
        while let Some((due, file)) = self.tell_due.first().copied()
            && due <= now
        {
            self.send_news(file, now);
            // It has no more to be told.
            self.tell_due.remove(&(due, file));
        }
        self.remove_by_policy(now);
        self.hand_out_removals(now);
        while let Some((due, file)) = self.removed.front().copied()
            && due <= now
        {
            self.removed.pop_front();
            if let Some(kept) = self.certified.remove(&file) {
                self.kept[kept_index(kept.stage)] -= 1;
                let others = kept.others.iter().map(|(volume, _)| *volume);
                for volume in std::iter::once(kept.volume).chain(others) {
                    self.commit(usize::from(volume), vec![Item::Forgotten(file)], Effect::Nothing);
                }
            }
        }
    }

    /// Removes staged files that are old enough, and as many more as a volume needs, the oldest first.
    fn remove_by_policy(&mut self, now: u64) {
        let policy = self.settings.removal;
        let mut chosen = Vec::new();
        for volume in self.volumes.iter_mut().filter(|volume| volume.read_only.is_none()) {
            let mut free = volume.free_bytes.saturating_add(volume.freeing);
            for (staged_at, file) in &volume.staged {
                let age = now.saturating_sub(*staged_at);
                let is_old = policy.after_ms.is_some_and(|after| age >= after);
                if !is_old && free >= policy.free_bytes_low {
                    break;
                }
                let of = self.certified.get(file).and_then(|kept| kept.record.unpack());
                free = free.saturating_add(of.map_or(0, |of| of.length));
                chosen.push(*file);
            }
            volume.freeing = free.saturating_sub(volume.free_bytes);
        }
        for file in chosen {
            if let Err(reason) = self.remove(file, now) {
                tracing::debug!(%file, reason, "a staged file is not removed yet");
            }
        }
    }
}
