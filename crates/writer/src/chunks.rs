//! Index of the chunks of a part: which are there, and which are durable.

use exacat_wire::writer::{ByteRange, ChunkHead, ChunkRecord};

use crate::limits::PART_CHUNKS_MAX;

/// Judgement of a chunk that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It comes behind all others.
    New,
    /// It is there, and durable or not.
    Same {
        /// True once it is durable.
        is_durable: bool,
    },
    /// Another chunk has its sequence, or some of its bytes.
    Conflict,
    /// It lies before the last chunk, and the part does not have it.
    Behind,
    /// The part has as many chunks as it may have.
    Full,
}

/// Returns the record of a chunk.
pub fn record_of(head: &ChunkHead) -> ChunkRecord {
    ChunkRecord {
        sequence: head.sequence,
        offset: head.offset,
        length: head.length,
        events: head.events,
        crc32c: head.crc32c,
        adler32: head.adler32,
    }
}

/// Says whether two chunks share a place, in the sequence or in the file.
pub(crate) fn share_a_place(one: &ChunkRecord, other: &ChunkRecord) -> bool {
    one.sequence == other.sequence || (one.offset < other.end() && other.offset < one.end())
}

/// Chunks in ascending order of sequence and offset. The first ones are durable.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    list: Vec<ChunkRecord>,
    durable: usize,
}

impl Chunks {
    /// Makes an index of durable chunks; none if they are not in order.
    pub fn of_durable(list: Vec<ChunkRecord>) -> Option<Self> {
        let in_order = |pair: &[ChunkRecord]| follows(&pair[0], &pair[1]);
        let durable = list.len();
        (durable <= PART_CHUNKS_MAX && list.windows(2).all(in_order)).then_some(Chunks { list, durable })
    }

    /// Judges a chunk.
    pub fn judge(&self, chunk: &ChunkRecord) -> Judgement {
        if self.list.last().is_none_or(|last| follows(last, chunk)) {
            return if self.list.len() < PART_CHUNKS_MAX { Judgement::New } else { Judgement::Full };
        }
        // A chunk before the last one can share places with few: those around it in either order.
        let by_sequence = self.list.partition_point(|other| other.sequence < chunk.sequence);
        let by_offset = self.list.partition_point(|other| other.end() <= chunk.offset);
        if self.list.get(by_sequence) == Some(chunk) {
            return Judgement::Same { is_durable: by_sequence < self.durable };
        }
        let is_taken = |at: usize| self.list.get(at).is_some_and(|other| share_a_place(other, chunk));
        if is_taken(by_sequence) || is_taken(by_offset) { Judgement::Conflict } else { Judgement::Behind }
    }

    /// Adds a chunk that was judged as new.
    pub fn add(&mut self, chunk: ChunkRecord) {
        debug_assert_eq!(self.judge(&chunk), Judgement::New, "chunks are in order");
        self.list.push(chunk);
    }

    /// Notes that the first `count` chunks are durable.
    pub fn set_durable(&mut self, count: usize) {
        self.durable = self.durable.max(count.min(self.list.len()));
    }

    /// Forgets the chunks behind the first `count`, apart from durable ones.
    pub fn keep(&mut self, count: usize) {
        self.list.truncate(count.max(self.durable));
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of durable chunks.
    pub fn durable_count(&self) -> usize {
        self.durable
    }

    /// Returns all chunks.
    pub fn all(&self) -> &[ChunkRecord] {
        &self.list
    }

    /// Returns the durable chunks.
    pub fn durable(&self) -> &[ChunkRecord] {
        &self.list[..self.durable]
    }

    /// Returns the durable chunks, and drops the others.
    pub fn into_durable(mut self) -> Vec<ChunkRecord> {
        self.list.truncate(self.durable);
        self.list.shrink_to_fit();
        self.list
    }

    /// Returns the place behind the last chunk.
    pub fn end(&self) -> u64 {
        self.list.last().map_or(0, ChunkRecord::end)
    }
}

fn follows(last: &ChunkRecord, next: &ChunkRecord) -> bool {
    next.sequence > last.sequence && next.offset >= last.end()
}

/// Returns the bytes of a chunk in its file.
pub fn range_of(chunk: &ChunkRecord) -> ByteRange {
    ByteRange { from: chunk.offset, to: chunk.end() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(sequence: u64, offset: u64, length: u32) -> ChunkRecord {
        ChunkRecord { sequence, offset, length, events: 0, crc32c: 1, adler32: 1 }
    }

    #[test]
    fn repeated_chunk_is_told_from_a_conflict_and_a_late_one() {
        let mut chunks = Chunks::default();
        for (sequence, offset) in [(2, 100), (3, 110), (7, 200)] {
            assert_eq!(chunks.judge(&chunk(sequence, offset, 10)), Judgement::New);
            chunks.add(chunk(sequence, offset, 10));
        }
        chunks.set_durable(1);
        let same = |is_durable| Judgement::Same { is_durable };
        for (sequence, offset, length, expected) in [
            (2, 100, 10, same(true)),
            (3, 110, 10, same(false)),
            (7, 200, 10, same(false)),
            (7, 210, 10, Judgement::Conflict),
            (8, 209, 1, Judgement::Conflict),
            (2, 100, 9, Judgement::Conflict),
            (4, 119, 2, Judgement::Conflict),
            (5, 195, 6, Judgement::Conflict),
            (5, 120, 80, Judgement::Behind),
            (0, 0, 100, Judgement::Behind),
            (0, 0, 101, Judgement::Conflict),
            (8, 210, 1, Judgement::New),
        ] {
            assert_eq!(chunks.judge(&chunk(sequence, offset, length)), expected, "{sequence} at {offset}");
        }
        let other_bytes = ChunkRecord { crc32c: 2, ..chunk(2, 100, 10) };
        assert_eq!(chunks.judge(&other_bytes), Judgement::Conflict);
        chunks.keep(0);
        assert_eq!((chunks.count(), chunks.end()), (1, 110));
    }

    #[test]
    fn part_with_all_its_chunks_is_full() {
        let list = |count: usize| (0..count as u64).map(|at| chunk(at, at, 1)).collect::<Vec<_>>();
        let chunks = Chunks::of_durable(list(PART_CHUNKS_MAX)).unwrap();
        let next = PART_CHUNKS_MAX as u64;
        assert_eq!(chunks.judge(&chunk(next, next, 1)), Judgement::Full);
        assert!(Chunks::of_durable(list(PART_CHUNKS_MAX + 1)).is_none());
        let chunks = Chunks::of_durable(list(PART_CHUNKS_MAX - 1)).unwrap();
        assert_eq!(chunks.judge(&chunk(next, next, 1)), Judgement::New);
        assert!(Chunks::of_durable(vec![chunk(1, 0, 2), chunk(2, 1, 1)]).is_none());
    }
}
