//! Chunks into parts, works to the volumes, and their outcomes.

use exacat_wire::writer::{Ack, ByteRange, ChunkHead, FileId, Frame, Refusal, RefusalClass};

use super::state::{Effect, Output, PartSlot, SealedPart, Service};
use crate::chunks::{Judgement, range_of, record_of};
use crate::item::{FileStage, Item, PartKey, SealedBy};
use crate::limits::{COMMIT_BYTES_MAX, PART_BLOCKS_MAX, PART_BLOCKS_MIN};
use crate::part::{Ending, OpenPart};
use crate::work::{Done, Fault, Work};

/// Items in one commit: the largest has the chunks of one block of each part.
const COMMIT_ITEMS_MAX: usize = COMMIT_BYTES_MAX / 4096;

/// Refusal of something that concerns a part.
pub(super) fn refused(class: RefusalClass, part: PartKey, reason: impl Into<String>) -> Frame {
    Frame::Refusal(Refusal { class, part: Some((part.file, part.epoch)), reason: reason.into() })
}

impl Service {
    /// Returns the open part of this name.
    pub(super) fn open_part(&mut self, key: PartKey) -> Option<&mut OpenPart> {
        match self.parts.get_mut(&key) {
            Some(PartSlot::Open(part)) => Some(part),
            _ => None,
        }
    }

    /// Takes a chunk of a producer whose sums are right. Returns the answer, if there is one now.
    pub(super) fn take_chunk(&mut self, head: &ChunkHead, bytes: &[u8], now: u64) -> Option<Frame> {
        let key = PartKey { file: head.file, epoch: head.epoch };
        let refusal = |class, reason: &str| Some(refused(class, key, reason));
        if self.highest_epoch(head.file).is_some_and(|highest| highest > head.epoch) {
            return refusal(RefusalClass::Conflict, "a later part of the file has begun: this epoch is over");
        }
        match self.judge_by_sealed(head) {
            Some(Judgement::Same { .. }) => {
                let limit = self.open_part(key).map_or(0, |part| part.limit());
                let ranges = vec![range_of(&record_of(head))];
                return Some(Frame::Ack(Ack { file: head.file, epoch: head.epoch, ranges, limit }));
            }
            Some(_) => return refusal(RefusalClass::Conflict, "other bytes are durable at this place"),
            None => {}
        }
        let Service { parts, pool, .. } = self;
        let Some(PartSlot::Open(part)) = parts.get_mut(&key) else {
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
        let judgement = part.take(pool, head, bytes, now);
        self.changed.insert(key);
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
        let parts = self.parts.range(first_of(head.file)..=last_of(head.file));
        let sealed = parts.filter_map(|(_, slot)| match slot {
            PartSlot::Sealed(part) if part.by != SealedBy::Loss => Some(&part.chunks),
            _ => None,
        });
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

    /// Returns the highest epoch of a file here.
    pub(super) fn highest_epoch(&self, file: FileId) -> Option<u32> {
        self.parts.range(first_of(file)..=last_of(file)).next_back().map(|(key, _)| key.epoch)
    }

    /// Begins to seal a part, if it is open.
    pub(super) fn seal(&mut self, key: PartKey) {
        let Service { parts, pool, .. } = self;
        if let Some(PartSlot::Open(part)) = parts.get_mut(&key) {
            part.begin_seal(pool);
            self.changed.insert(key);
        }
    }

    /// Writes blocks that are old enough, and shares the memory between the parts.
    pub(super) fn flush_and_grant(&mut self, now: u64) {
        let target = self.target_blocks();
        let (flush_ms, open) = (self.settings.flush_ms, self.open_parts() as u64);
        // Many files share the disk: each waits longer, so that the number of small writes is bounded.
        let delay = flush_ms * (1 + open / 8);
        let mut granted = Vec::new();
        let Service { parts, pool, .. } = self;
        // Parts without any credit come first.
        for is_first_turn in [true, false] {
            for slot in parts.values_mut() {
                let PartSlot::Open(part) = slot else { continue };
                let target = if is_first_turn { PART_BLOCKS_MIN.min(target) } else { target };
                if part.grant(pool, target) {
                    granted.push(part.key);
                }
            }
        }
        for slot in parts.values_mut() {
            let PartSlot::Open(part) = slot else { continue };
            if part.dirty_since.is_some_and(|since| now.saturating_sub(since) >= delay) {
                part.flush(pool);
                self.changed.insert(part.key);
            }
        }
        granted.dedup();
        for key in granted {
            self.acknowledge(key, Vec::new());
        }
    }

    fn target_blocks(&self) -> usize {
        let share = self.pool.count() / self.open_parts().max(1);
        share.clamp(PART_BLOCKS_MIN, PART_BLOCKS_MAX)
    }

    /// Tells the producer of a part which bytes are durable, and its limit.
    fn acknowledge(&mut self, key: PartKey, ranges: Vec<ByteRange>) {
        let Some(PartSlot::Open(part)) = self.parts.get(&key) else { return };
        let (limit, writer) = (part.limit(), part.origin.writer);
        if let Some(connection) = self.connection_of(writer) {
            self.send(connection, Frame::Ack(Ack { file: key.file, epoch: key.epoch, ranges, limit }));
        }
    }

    /// Hands out all work that can begin.
    pub(super) fn hand_out(&mut self) {
        while let Some(key) = self.changed.pop_first() {
            let Some(PartSlot::Open(part)) = self.parts.get_mut(&key) else { continue };
            let volume = part.volume;
            if let Some(work) = part.next_work() {
                self.output.push_back(Output::Work(volume, Work::Part(work)));
            }
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

    /// Adds items to the next commit of a volume.
    pub(super) fn commit(&mut self, volume: usize, items: Vec<Item>, effect: Effect) {
        let state = &mut self.volumes[volume];
        if state.read_only.is_none() {
            state.items.extend(items);
            state.effects.push(effect);
        }
    }

    /// Takes the outcome of a work.
    pub fn work_done(&mut self, volume: usize, done: Done, now: u64) {
        match done {
            Done::Part { part, blocks, outcome } => {
                let Service { parts, pool, .. } = self;
                let Some(PartSlot::Open(open)) = parts.get_mut(&part) else {
                    blocks.into_iter().for_each(|block| pool.put(block));
                    return;
                };
                match outcome {
                    Ok(()) if !matches!(open.ending, Ending::Fenced(_)) => {
                        let items = open.work_done(pool, blocks);
                        let is_sealed = matches!(items.last(), Some(Item::Sealed { .. }));
                        let effect = match is_sealed {
                            true => Effect::Sealed(part, SealedBy::Order),
                            false => Effect::Durable(part, open.committed_count()),
                        };
                        self.commit(volume, items, effect);
                        self.changed.insert(part);
                    }
                    outcome => self.part_failed(volume, part, blocks, outcome.err()),
                }
            }
            Done::Commit(outcome) => self.commit_done(volume, outcome, now),
            Done::Remove { .. } => {}
        }
        self.pump(now);
    }

    fn part_failed(
        &mut self,
        volume: usize,
        key: PartKey,
        blocks: Vec<crate::block::Block>,
        fault: Option<Fault>,
    ) {
        let fault = fault.unwrap_or(Fault { is_full: false, reason: "the volume failed".to_owned() });
        self.volumes[volume].is_full |= fault.is_full;
        let Service { parts, pool, .. } = self;
        let Some(PartSlot::Open(part)) = parts.get_mut(&key) else { return };
        let item = part.fail(pool, blocks, fault.reason.clone());
        let writer = part.origin.writer;
        if self.volumes[volume].read_only.is_some() {
            self.slot_sealed(key, SealedBy::Fault);
        } else {
            self.commit(volume, item.into_iter().collect(), Effect::Sealed(key, SealedBy::Fault));
        }
        if let Some(connection) = self.connection_of(writer) {
            let reason = format!("the disk failed: {}", fault.reason);
            self.send(connection, refused(RefusalClass::RetryElsewhere, key, reason));
        }
    }

    fn commit_done(&mut self, volume: usize, outcome: Result<(), Fault>, now: u64) {
        let effects = self.volumes[volume].committing.take().unwrap_or_default();
        if let Err(fault) = outcome {
            self.volume_failed(volume, &fault.reason);
            return;
        }
        for effect in effects {
            match effect {
                Effect::Durable(key, count) => {
                    let Some(part) = self.open_part(key) else { continue };
                    let ranges = part.commit_done(count);
                    self.durable_bytes += ranges.iter().map(|range| range.to - range.from).sum::<u64>();
                    let target = self.target_blocks();
                    let Service { parts, pool, .. } = self;
                    if let Some(PartSlot::Open(part)) = parts.get_mut(&key) {
                        part.grant(pool, target);
                    }
                    self.acknowledge(key, ranges);
                    self.changed.insert(key);
                }
                Effect::Sealed(key, by) => self.slot_sealed(key, by),
                Effect::Closed(file) => {
                    if let Some(entry) = self.files.get_mut(&file) {
                        entry.is_close_durable = true;
                    }
                    self.pending.insert(file);
                }
                Effect::Stage(file) => self.stage_reached(file),
            }
        }
        self.certify_pending(now);
    }

    /// Ends all writing to a volume: its index cannot be written, so nothing more is acknowledged.
    fn volume_failed(&mut self, volume: usize, reason: &str) {
        let state = &mut self.volumes[volume];
        state.read_only = Some(reason.to_owned());
        state.items.clear();
        state.effects.clear();
        self.closes_failed(volume, reason);
        let of_volume = |(key, slot): (&PartKey, &PartSlot)| {
            matches!(slot, PartSlot::Open(part) if part.volume == volume).then_some(*key)
        };
        let open: Vec<PartKey> = self.parts.iter().filter_map(of_volume).collect();
        for key in open {
            let Service { parts, pool, .. } = self;
            let Some(PartSlot::Open(part)) = parts.get_mut(&key) else { continue };
            part.fence(pool, reason.to_owned());
            let (writer, is_working) = (part.origin.writer, part.is_working());
            if !is_working {
                self.slot_sealed(key, SealedBy::Fault);
            }
            if let Some(connection) = self.connection_of(writer) {
                self.send(connection, refused(RefusalClass::RetryElsewhere, key, reason));
            }
        }
    }

    /// Tells producers that their closes are lost with the index of a volume, and who is certified.
    fn closes_failed(&mut self, volume: usize, reason: &str) {
        let of_volume = self.files.iter().filter(|(_, entry)| entry.volume == volume);
        let files: Vec<(FileId, FileStage, bool)> =
            of_volume.map(|(file, entry)| (*file, entry.stage, entry.is_close_durable)).collect();
        for (file, stage, is_close_durable) in files {
            if stage == FileStage::Closed && !is_close_durable {
                let epoch = self.highest_epoch(file).unwrap_or(1);
                if let Some(connection) = self.producer_of(file) {
                    let key = PartKey { file, epoch };
                    self.send(connection, refused(RefusalClass::RetryElsewhere, key, reason));
                }
                self.files.remove(&file);
            } else {
                self.stage_reached(file);
            }
        }
    }

    /// Replaces an open part by a sealed one.
    fn slot_sealed(&mut self, key: PartKey, by: SealedBy) {
        let Service { parts, pool, .. } = self;
        let Some(PartSlot::Open(part)) = parts.get_mut(&key) else { return };
        part.give_up_blocks(pool);
        let (origin, volume, chunks) = (part.origin.clone(), part.volume, part.chunks.durable().to_vec());
        self.parts.insert(key, PartSlot::Sealed(SealedPart { origin, volume, chunks, by }));
        self.pending.insert(key.file);
    }

    /// Notes the free bytes of a volume. A full volume is written again once it has enough.
    pub fn free_bytes(&mut self, volume: usize, bytes: u64) {
        let enough = self.settings.free_bytes_min.saturating_mul(2);
        if let Some(state) = self.volumes.get_mut(volume) {
            state.free_bytes = bytes;
            state.is_full &= bytes < enough;
        }
    }

    /// Acts on the stage of a file once the index has it.
    pub(super) fn stage_reached(&mut self, file: FileId) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        if entry.stage == FileStage::Certified {
            self.tell_certified(file);
        }
    }
}

/// Returns the bounds of the parts of a file.
pub(super) fn first_of(file: FileId) -> PartKey {
    PartKey { file, epoch: 0 }
}

/// Returns the upper bound of the parts of a file.
pub(super) fn last_of(file: FileId) -> PartKey {
    PartKey { file, epoch: u32::MAX }
}
