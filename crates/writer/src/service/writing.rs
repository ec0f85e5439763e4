//! Chunks into parts, works to the volumes, and their outcomes.

use exacat_wire::writer::{Ack, ChunkHead, FileId, Frame, Refusal, RefusalClass};

use super::settings::Output;
use super::state::{Effect, FileEntry, SealedPart, Service};
use crate::block::Block;
use crate::chunks::{Judgement, range_of, record_of};
use crate::item::{FileStage, Item, SealedBy};
use crate::limits::COMMIT_BYTES_MAX;
use crate::origin::PartKey;
use crate::part::Ending;
use crate::sums::ChunkMemory;
use crate::work::{Done, Fault, Work};

/// Items in one commit: the largest has the chunks of one block of each part.
const COMMIT_ITEMS_MAX: usize = COMMIT_BYTES_MAX / 4096;

/// Refusal of something that concerns a part.
pub(super) fn refused(class: RefusalClass, part: PartKey, reason: impl Into<String>) -> Frame {
    Frame::Refusal(Refusal { class, part: Some((part.file, part.epoch)), reason: reason.into() })
}

impl Service {
    /// Takes a chunk of a producer whose sums are right. Returns the answer, if there is one now.
    pub(super) fn take_chunk(
        &mut self,
        head: &ChunkHead,
        memory: ChunkMemory<'_>,
        now: u64,
    ) -> Option<Frame> {
        let key = PartKey { file: head.file, epoch: head.epoch };
        let refusal = |class, reason: &str| Some(refused(class, key, reason));
        if let Some(certified) = self.certified_frame(head.file) {
            return Some(certified);
        }
        self.counters.chunks += 1;
        self.counters.chunk_bytes += u64::from(head.length);
        self.counters.events += u64::from(head.events);
        if self.highest_epoch(head.file).is_some_and(|highest| highest > head.epoch) {
            return refusal(RefusalClass::Conflict, "a later part of the file has begun: this epoch is over");
        }
        match self.judge_by_sealed(head) {
            Some(Judgement::Same { .. }) => {
                self.counters.duplicates += 1;
                let limit = self.open.get(&key).map_or(0, |part| part.limit());
                let ranges = vec![range_of(&record_of(head))];
                return Some(Frame::Ack(Ack { file: head.file, epoch: head.epoch, ranges, limit }));
            }
            Some(_) => {
                self.counters.conflicts += 1;
                return refusal(RefusalClass::Conflict, "other bytes are durable at this place");
            }
            None => {}
        }
        let Service { open, pool, .. } = self;
        let Some(part) = open.get_mut(&key) else {
            return refusal(RefusalClass::RetryElsewhere, "the part is not open: begin the next one");
        };
        if part.origin.writer != head.writer || part.origin.stream != head.stream {
            return refusal(
                RefusalClass::BadRequest,
                "the chunk is of another producer or stream than its file",
            );
        }
        if part.ending != Ending::Open {
            return refusal(RefusalClass::RetryElsewhere, "the part has ended: begin the next one");
        }
        let limit = part.limit();
        let judgement = part.take(pool, head, memory, now);
        self.changed.insert(key);
        self.counters.duplicates += u64::from(matches!(judgement, Some(Judgement::Same { .. })));
        self.counters.conflicts += u64::from(judgement == Some(Judgement::Conflict));
        match judgement {
            Some(Judgement::New | Judgement::Same { is_durable: false }) => None,
            Some(Judgement::Same { is_durable: true }) => {
                let ranges = vec![range_of(&record_of(head))];
                Some(Frame::Ack(Ack { file: head.file, epoch: head.epoch, ranges, limit }))
            }
            Some(Judgement::Conflict) => refusal(RefusalClass::Conflict, "another chunk is at this place"),
            Some(Judgement::Behind) => {
                refusal(RefusalClass::RetryElsewhere, "the chunk comes after later ones: begin the next part")
            }
            Some(Judgement::Full) => {
                refusal(RefusalClass::RetryElsewhere, "the part has too many chunks: begin the next one")
            }
            None => refusal(RefusalClass::BadRequest, "the chunk is beyond the limit of its part"),
        }
    }

    /// Judges a chunk by the sealed parts of its file; none if they have nothing there.
    fn judge_by_sealed(&self, head: &ChunkHead) -> Option<Judgement> {
        let chunk = record_of(head);
        let (first, last) = PartKey::bounds(head.file);
        let sealed = self.sealed.range(first..=last).map(|(_, part)| part);
        let sealed = sealed.filter(|part| part.by != SealedBy::Loss).map(|part| &part.chunks);
        for chunks in sealed {
            let at = chunks.partition_point(|other| other.end() <= chunk.offset);
            match chunks.get(at) {
                Some(other) if *other == chunk => return Some(Judgement::Same { is_durable: true }),
                Some(other) if other.offset < chunk.end() => return Some(Judgement::Conflict),
                _ => {}
            }
        }
        None
    }

    /// Begins to seal a part, if it is open.
    pub(super) fn seal(&mut self, key: PartKey) {
        let Service { open, pool, .. } = self;
        if let Some(part) = open.get_mut(&key) {
            part.begin_seal(pool);
            self.hungry.remove(&key);
            self.changed.insert(key);
        }
    }

    /// Begins to seal all open parts of a file. Returns whether there are any.
    pub(super) fn seal_parts(&mut self, file: FileId) -> bool {
        let (first, last) = PartKey::bounds(file);
        let keys: Vec<PartKey> = self.open.range(first..=last).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| self.seal(*key));
        !keys.is_empty()
    }

    /// Hands out all work that can begin.
    pub(super) fn hand_out(&mut self) {
        while let Some(key) = self.changed.pop_first() {
            let Service { open, pool, output, .. } = self;
            let Some(part) = open.get_mut(&key) else { continue };
            if part.wants_flush {
                part.flush(pool);
            }
            if let Some(work) = part.next_work() {
                self.working += 1;
                output.push_back(Output::Work(part.volume, Work::Part(work)));
            }
            self.note_dirty(key);
        }
        for (at, volume) in self.volumes.iter_mut().enumerate() {
            let is_idle = volume.items.is_empty() && volume.effects.is_empty();
            if volume.committing.is_none() && !is_idle {
                let items = volume.items.drain(..volume.items.len().min(COMMIT_ITEMS_MAX)).collect();
                // Effects follow the items: all of a first part of them may wait for the rest.
                let effects =
                    if volume.items.is_empty() { std::mem::take(&mut volume.effects) } else { Vec::new() };
                volume.committing = Some(effects);
                self.output.push_back(Output::Work(at, Work::Commit(items)));
            }
        }
    }

    /// Takes the outcome of a work.
    pub fn work_done(&mut self, volume: usize, done: Done, now: u64) {
        match done {
            Done::Part { part, number, blocks, outcome } => {
                self.part_done((volume, part), (number, blocks), outcome, now);
            }
            Done::Commit { outcome, wants_checkpoint } => {
                let state = self.volumes.get_mut(volume);
                if let Some(state) = state.filter(|state| wants_checkpoint && !state.is_checkpointing) {
                    state.is_checkpointing = true;
                    self.output.push_back(Output::Work(volume, Work::Checkpoint));
                }
                self.commit_done(volume, outcome, now);
            }
            Done::Checkpoint(_) => {
                if let Some(state) = self.volumes.get_mut(volume) {
                    state.is_checkpointing = false;
                }
            }
            Done::Remove { file, outcome } => self.remove_done(volume, file, &outcome, now),
        }
        self.pump(now);
    }

    fn part_done(
        &mut self,
        (volume, part): (usize, PartKey),
        (number, blocks): (u64, Vec<Block>),
        outcome: Result<(), Fault>,
        now: u64,
    ) {
        self.working = self.working.saturating_sub(1);
        let Service { open, pool, counters, .. } = self;
        let Some(of) = open.get_mut(&part) else {
            blocks.into_iter().for_each(|block| pool.put(block));
            return;
        };
        counters.syncs += 1;
        match outcome {
            Ok(()) if !matches!(of.ending, Ending::Fenced(_)) => {
                let items = of.work_done(pool, number, blocks);
                let is_sealed = matches!(items.last(), Some(Item::Sealed { .. }));
                if let Some(state) = self.volumes.get_mut(volume).filter(|_| is_sealed) {
                    state.part_faults = 0;
                }
                let effect = match is_sealed {
                    true => Effect::Sealed(part, SealedBy::Order),
                    false => Effect::Durable(part, of.committed_count()),
                };
                if !items.is_empty() {
                    self.commit(volume, items, effect);
                }
                self.changed.insert(part);
            }
            outcome => self.part_failed((volume, part), (number, blocks), outcome.err(), now),
        }
    }

    fn part_failed(
        &mut self,
        (volume, key): (usize, PartKey),
        (number, blocks): (u64, Vec<Block>),
        fault: Option<Fault>,
        now: u64,
    ) {
        let fault = fault.unwrap_or(Fault { is_full: false, reason: "the volume failed".to_owned() });
        self.volumes[volume].is_full |= fault.is_full;
        let Service { open, pool, .. } = self;
        let Some(part) = open.get_mut(&key) else { return };
        let is_first = !matches!(part.ending, Ending::Fenced(_));
        let item = part.fail(pool, (number, blocks), &fault.reason);
        let (writer, is_working) = (part.origin.writer, part.is_working());
        self.hungry.remove(&key);
        if is_first {
            self.counters.part_faults += 1;
            self.volumes[volume].part_failed(&fault, now);
            if let Some(connection) = self.connection_of(writer) {
                let reason = format!("the disk failed: {}", fault.reason);
                self.send(connection, refused(RefusalClass::RetryElsewhere, key, reason));
            }
        }
        match self.volumes[volume].read_only {
            _ if is_working => {}
            Some(_) => self.slot_sealed(key, SealedBy::Fault, now),
            None => self.commit(volume, item.into_iter().collect(), Effect::Sealed(key, SealedBy::Fault)),
        }
    }

    fn commit_done(&mut self, volume: usize, outcome: Result<(), Fault>, now: u64) {
        let effects = self.volumes[volume].committing.take().unwrap_or_default();
        self.counters.commits += 1;
        if let Err(fault) = outcome {
            self.volume_failed(volume, &fault.reason, now);
            return;
        }
        for effect in effects {
            match effect {
                Effect::Durable(key, count) => {
                    let Some(part) = self.open.get_mut(&key) else { continue };
                    let ranges = part.commit_done(count);
                    let bytes = ranges.iter().map(|range| range.to - range.from).sum::<u64>();
                    self.durable_bytes += bytes;
                    self.counters.durable_bytes += bytes;
                    self.grant(key);
                    self.acknowledge(key, ranges);
                    self.changed.insert(key);
                }
                Effect::Sealed(key, by) => self.slot_sealed(key, by, now),
                Effect::Closed(file) => {
                    if let Some(entry) = self.files.get_mut(&file) {
                        entry.is_close_durable = true;
                    }
                    self.pending.insert(file);
                }
                Effect::Certified(file) => self.certified_durably(file, now),
                Effect::Stage(file, stage) => self.stage_reached(file, stage, now),
                Effect::Removable(file) => {
                    self.removal_due.insert((now, file, volume));
                }
                Effect::Nothing => {}
            }
        }
        self.certify_pending(now);
    }

    /// Ends all writing: another process has the volumes. What is on its way is not acknowledged.
    pub fn fence(&mut self, reason: &str, now: u64) {
        for volume in 0..self.volumes.len() {
            if let Some(effects) = &mut self.volumes[volume].committing {
                effects.clear();
            }
            if self.volumes[volume].read_only.is_none() {
                self.volume_failed(volume, reason, now);
            }
        }
        self.note_self(now);
        self.pump(now);
    }

    /// Ends all writing to a volume: its index cannot be written, so nothing more is acknowledged.
    fn volume_failed(&mut self, volume: usize, reason: &str, now: u64) {
        let state = &mut self.volumes[volume];
        state.read_only = Some(reason.to_owned());
        state.items.clear();
        state.effects.clear();
        self.closes_failed(volume, reason);
        self.kept_failed(volume);
        let of_volume = self.open.iter().filter(|(_, part)| part.volume == volume);
        let keys: Vec<PartKey> = of_volume.map(|(key, _)| *key).collect();
        for key in keys {
            let Service { open, pool, .. } = self;
            let Some(part) = open.get_mut(&key) else { continue };
            part.fence(pool, reason);
            let (writer, is_working) = (part.origin.writer, part.is_working());
            self.hungry.remove(&key);
            self.note_dirty(key);
            if !is_working {
                self.slot_sealed(key, SealedBy::Fault, now);
            }
            if let Some(connection) = self.connection_of(writer) {
                self.send(connection, refused(RefusalClass::RetryElsewhere, key, reason));
            }
        }
    }

    /// Tells producers that their closes are lost with the index of a volume.
    fn closes_failed(&mut self, volume: usize, reason: &str) {
        let is_lost = |entry: &&FileEntry| {
            entry.volume == volume && entry.stage == FileStage::Closed && !entry.is_close_durable
        };
        let lost = self.files.iter().filter(|(_, entry)| is_lost(entry));
        let files: Vec<FileId> =
            lost.filter(|(_, entry)| entry.certified.is_none()).map(|(file, _)| *file).collect();
        for file in files {
            let epoch = self.highest_epoch(file).unwrap_or(1);
            if let Some(connection) = self.producer_of(file) {
                let key = PartKey { file, epoch };
                self.send(connection, refused(RefusalClass::RetryElsewhere, key, reason));
            }
            self.drop_entry(file);
        }
    }

    /// Replaces an open part by a sealed one.
    fn slot_sealed(&mut self, key: PartKey, by: SealedBy, now: u64) {
        let Some(mut part) = self.open.remove(&key) else { return };
        part.give_up_blocks(&mut self.pool);
        self.hungry.remove(&key);
        if let Some(since) = part.dirty_noted {
            self.dirty.remove(&(since, key));
        }
        let part = *part;
        let (volume, chunks) = (part.volume, part.chunks.into_durable());
        self.sealed.insert(key, SealedPart { origin: part.origin, volume, chunks, by });
        self.files.entry(key.file).or_insert_with(|| FileEntry::new(volume, now));
        self.pending.insert(key.file);
    }

    /// Notes the free bytes of a volume. A full volume is written again once it has enough.
    pub fn free_bytes(&mut self, volume: usize, bytes: u64) {
        let enough = self.settings.free_bytes_min.saturating_mul(2);
        if let Some(state) = self.volumes.get_mut(volume) {
            state.free_bytes = bytes;
            state.freeing = 0;
            state.is_full &= bytes < enough;
        }
    }
}
