//! Shares of the memory for the open parts, and the age at which their bytes are written.

use exacat_wire::writer::{Ack, ByteRange, Frame};

use super::state::Service;
use crate::limits::{
    BUSY_FLUSH_MS, BUSY_WORKS, GRANTS_PER_TICK, PART_BLOCKS_MAX, PART_BLOCKS_MIN, SHARED_BLOCKS,
};
use crate::origin::PartKey;
use crate::part::Ending;

impl Service {
    /// Returns the blocks that each open part should have.
    fn target_blocks(&self) -> usize {
        // Beside the shares there is room for producers that come, and for their first files.
        let blocks = self.pool.count();
        let shared = (blocks - blocks / 4).min(SHARED_BLOCKS);
        (shared / self.open.len().max(1)).clamp(PART_BLOCKS_MIN, PART_BLOCKS_MAX)
    }

    /// Adapts the share of a part. True if its producer may send more.
    pub(super) fn grant(&mut self, key: PartKey) -> bool {
        let target = self.target_blocks();
        let writer = self.open.get(&key).map(|part| part.origin.writer);
        // A producer that is away gets its share when it opens the part again.
        let is_there = writer.is_some_and(|writer| self.connection_of(writer).is_some());
        let Service { open, pool, hungry, .. } = self;
        let Some(part) = open.get_mut(&key).filter(|part| part.ending == Ending::Open && is_there) else {
            hungry.remove(&key);
            return false;
        };
        // Others without any credit come before the rest of a share.
        let target = if hungry.is_empty() { target.min(part.share()) } else { PART_BLOCKS_MIN };
        let has_more = part.grant(pool, target);
        match part.reserved() < PART_BLOCKS_MIN {
            true => hungry.insert(key),
            false => hungry.remove(&key),
        };
        if part.wants_flush {
            self.changed.insert(key);
        }
        has_more
    }

    /// Adapts the shares of parts without credit, and of some others in turn.
    pub(super) fn share_memory(&mut self) {
        let mut granted = Vec::new();
        while self.pool.unreserved() > 0
            && let Some(key) = self.hungry.first().copied()
        {
            if self.grant(key) {
                granted.push(key);
            }
            if self.hungry.first() == Some(&key) {
                // It has ended, or has all that is left.
                break;
            }
        }
        let behind = match self.adapted {
            Some(last) => (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded),
            None => (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded),
        };
        let turn: Vec<PartKey> = self.open.range(behind).map(|(key, _)| *key).take(GRANTS_PER_TICK).collect();
        // After the last part it begins anew.
        self.adapted = (turn.len() == GRANTS_PER_TICK).then(|| turn.last().copied()).flatten();
        for key in turn {
            if self.grant(key) {
                granted.push(key);
            }
        }
        granted.sort_unstable();
        granted.dedup();
        for key in granted {
            self.acknowledge(key, Vec::new());
        }
    }

    /// Marks the parts whose bytes are old enough to be written.
    pub(super) fn flush_old(&mut self, now: u64) {
        // Many files share the disk: each waits longer, so that the number of small writes is bounded.
        let mut delay = self.settings.flush_ms * (1 + self.open.len() as u64 / 8);
        if self.working >= BUSY_WORKS {
            delay = delay.max(BUSY_FLUSH_MS);
        }
        while let Some((since, key)) = self.dirty.first().copied()
            && now.saturating_sub(since) >= delay
        {
            self.dirty.pop_first();
            if let Some(part) = self.open.get_mut(&key) {
                part.dirty_noted = None;
                part.wants_flush = true;
                self.changed.insert(key);
            }
        }
    }

    /// Notes since when a part has bytes in no write.
    pub(super) fn note_dirty(&mut self, key: PartKey) {
        let Service { open, dirty, .. } = self;
        let Some(part) = open.get_mut(&key) else { return };
        if part.dirty_since.is_none() {
            part.wants_flush = false;
        }
        let wanted = if part.wants_flush { None } else { part.dirty_since };
        if part.dirty_noted != wanted {
            if let Some(before) = part.dirty_noted {
                dirty.remove(&(before, key));
            }
            dirty.extend(wanted.map(|since| (since, key)));
            part.dirty_noted = wanted;
        }
    }

    /// Tells the producer of a part which bytes are durable, and its limit.
    pub(super) fn acknowledge(&mut self, key: PartKey, ranges: Vec<ByteRange>) {
        let Some(part) = self.open.get(&key) else { return };
        let (limit, writer) = (part.limit(), part.origin.writer);
        if let Some(connection) = self.connection_of(writer) {
            self.send(connection, Frame::Ack(Ack { file: key.file, epoch: key.epoch, ranges, limit }));
        }
    }
}
