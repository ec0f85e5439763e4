//! Part that is being written: places for bytes in blocks, and what is on its way to the disk.

use std::collections::VecDeque;

use exacat_wire::writer::limits::BLOCK_BYTES;
use exacat_wire::writer::{ByteRange, ChunkHead, ChunkRecord};

use crate::block::{ALIGNMENT, Block, BlockPool};
use crate::chunks::{Chunks, Judgement, record_of};
use crate::item::{Item, SealedBy};
use crate::limits::{PART_BLOCKS_MIN, PART_WORKS_MAX};
use crate::origin::{PartKey, PartOrigin};
use crate::sums::{ChunkMemory, place_in_block};
use crate::work::{BlockWrite, PartSeal, PartWork};

/// Block that is being filled.
#[derive(Debug)]
struct Filling {
    block: Block,
    /// Number of the block in the file.
    number: u64,
    /// First byte that is right in memory; aligned. Pages before it are on disk.
    from: usize,
    /// Place behind the last byte.
    to: usize,
}

impl Filling {
    /// Makes the write of everything in memory; the rest of the last page is zeros.
    fn into_write(mut self) -> BlockWrite {
        let to = self.to.next_multiple_of(ALIGNMENT);
        self.block.bytes_mut()[self.to..to].fill(0);
        BlockWrite { block: self.block, offset: self.number * BLOCK_BYTES as u64, from: self.from, to }
    }
}

/// End of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Chunks are accepted.
    Open,
    /// The last bytes are on their way; then the part is sealed.
    Sealing,
    /// A write failed. The durable chunks stay.
    Fenced(String),
}

/// Work of a part on its way.
#[derive(Debug)]
struct Way {
    number: u64,
    /// Chunks whose bytes are in this work and those before it.
    covered: usize,
    /// True if the next work writes the last page of this one again: it must not pass it.
    is_flush: bool,
    is_done: bool,
}

/// A part that is being written.
#[derive(Debug)]
pub(crate) struct OpenPart {
    pub key: PartKey,
    pub origin: PartOrigin,
    /// Volume that it is on.
    pub volume: usize,
    pub chunks: Chunks,
    pub ending: Ending,
    /// Time of the first byte that is in no write yet.
    pub dirty_since: Option<u64>,
    /// Time of `dirty_since`, as the service has it in its order of parts.
    pub dirty_noted: Option<u64>,
    /// True if the bytes are old enough to be written before their block is full.
    pub wants_flush: bool,
    /// Bytes that are not durable.
    queued: u64,
    filling: Option<Filling>,
    ready: VecDeque<BlockWrite>,
    /// Numbers of its first block, and of the first one that is not begun.
    first_block: u64,
    next_block: u64,
    /// Blocks reserved in the pool, and those of them that are taken.
    reserved: usize,
    held: usize,
    /// Blocks from `next_block` on that the producer may send.
    promised: usize,
    /// Chunks whose bytes are in writes, on their way or done.
    covered: usize,
    /// Works on their way, in their order. They may end in any order.
    working: VecDeque<Way>,
    /// Works so far.
    works: u64,
    /// True if the writes that are ready end in a page that is written again.
    is_flush_ready: bool,
    /// Chunks whose bytes are synced.
    synced: usize,
    /// Chunks in a commit, on its way or done.
    committed: usize,
    is_created: bool,
    /// True once an item says that the part exists.
    is_indexed: bool,
    /// True once the seal is in the work on its way, or done.
    is_seal_sent: bool,
}

impl OpenPart {
    /// Makes a part whose first chunk comes at `from` or later.
    pub(crate) fn new(key: PartKey, origin: PartOrigin, volume: usize, from: u64) -> Self {
        OpenPart {
            key,
            origin,
            volume,
            chunks: Chunks::default(),
            ending: Ending::Open,
            dirty_since: None,
            dirty_noted: None,
            wants_flush: false,
            queued: 0,
            filling: None,
            ready: VecDeque::new(),
            first_block: from / BLOCK_BYTES as u64,
            next_block: from / BLOCK_BYTES as u64,
            reserved: 0,
            held: 0,
            promised: 0,
            covered: 0,
            working: VecDeque::new(),
            works: 0,
            is_flush_ready: false,
            synced: 0,
            committed: 0,
            is_created: false,
            is_indexed: false,
            is_seal_sent: false,
        }
    }

    /// Returns the place in the file beyond which the producer must not send.
    pub(crate) fn limit(&self) -> u64 {
        (self.next_block + self.promised as u64) * BLOCK_BYTES as u64
    }

    /// Returns the bytes that are not durable.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued
    }

    /// Returns the blocks that it may have: twice as many as it has used. A promise cannot be taken back,
    /// and a producer that waits for one of its files may use none of the others.
    pub(crate) fn share(&self) -> usize {
        let used = usize::try_from(self.next_block - self.first_block).unwrap_or(usize::MAX);
        used.saturating_mul(2).max(PART_BLOCKS_MIN)
    }

    /// Adapts the reservation to `target` blocks, as far as the pool and earlier promises allow, and
    /// promises the rest. True if the limit has grown.
    pub(crate) fn grant(&mut self, pool: &mut BlockPool, target: usize) -> bool {
        if self.ending != Ending::Open {
            return false;
        }
        while self.reserved < target && pool.reserve(1) {
            self.reserved += 1;
        }
        // One block is spare: a flush fills it while the block before it is written.
        let needed = |part: &OpenPart| part.held + part.promised + 1;
        while self.reserved > target && needed(self) < self.reserved {
            self.reserved -= 1;
            pool.release(1);
        }
        let before = self.promised;
        while needed(self) < self.reserved {
            self.promised += 1;
        }
        self.promised > before
    }

    /// Takes the promises back: the producer that had them is away, and gets others when it opens the part
    /// again. Blocks without bytes are free for other parts.
    pub(crate) fn withdraw(&mut self, pool: &mut BlockPool) {
        self.promised = 0;
        self.grant(pool, 0);
    }

    /// Judges a chunk, and takes it if it is new. None if it lies beyond the limit.
    pub(crate) fn take(
        &mut self,
        pool: &mut BlockPool,
        head: &ChunkHead,
        memory: ChunkMemory<'_>,
        now: u64,
    ) -> Option<Judgement> {
        let chunk = record_of(head);
        let judgement = self.chunks.judge(&chunk);
        if judgement != Judgement::New {
            return Some(judgement);
        }
        if head.end() > self.limit() {
            return None;
        }
        self.put(pool, head, memory)?;
        self.chunks.add(chunk);
        self.queued += u64::from(chunk.length);
        self.dirty_since.get_or_insert(now);
        if self.filling.as_ref().is_some_and(|filling| filling.to == BLOCK_BYTES) {
            self.end_block(pool);
        }
        Some(Judgement::New)
    }

    fn put(&mut self, pool: &mut BlockPool, head: &ChunkHead, memory: ChunkMemory<'_>) -> Option<()> {
        let place = place_in_block(head)?;
        let number = head.block();
        if self.filling.as_ref().is_some_and(|filling| filling.number != number) {
            self.end_block(pool);
        }
        let is_first = self.filling.is_none();
        if is_first {
            let skipped = usize::try_from(number.checked_sub(self.next_block)?).ok()?;
            self.promised = self.promised.checked_sub(skipped + 1)?;
            self.next_block = number + 1;
            self.held += 1;
            let from = place.start / ALIGNMENT * ALIGNMENT;
            self.filling = Some(Filling { block: pool.take()?, number, from, to: from });
        }
        let filling = self.filling.as_mut()?;
        match memory {
            // The first chunk of a block brings the block.
            ChunkMemory::Block(block) if is_first => std::mem::swap(&mut filling.block, block),
            ChunkMemory::Block(block) => {
                filling.block.bytes_mut()[place.clone()].copy_from_slice(&block.bytes()[place.clone()]);
            }
            ChunkMemory::Bytes(bytes) => filling.block.bytes_mut()[place.clone()].copy_from_slice(bytes),
        }
        filling.block.bytes_mut()[filling.to..place.start].fill(0);
        filling.to = place.end;
        Some(())
    }

    /// Hands the block that is being filled to the next work, unless all its bytes were in an earlier one.
    fn end_block(&mut self, pool: &mut BlockPool) {
        if let Some(filling) = self.filling.take() {
            if self.covered < self.chunks.count() {
                self.ready.push_back(filling.into_write());
            } else {
                self.held = self.held.saturating_sub(1);
                pool.put(filling.block);
            }
        }
        self.covered = self.chunks.count();
        self.dirty_since = None;
    }

    /// Hands the bytes so far to the next work, and goes on with a copy of their last page: the page is
    /// written again with what follows.
    pub(crate) fn flush(&mut self, pool: &mut BlockPool) {
        let is_free = self.working.is_empty() && self.ready.is_empty();
        if self.covered == self.chunks.count() || !is_free || self.held + 1 > self.reserved {
            return;
        }
        let Some(filling) = self.filling.take() else { return };
        let Some(mut block) = pool.take() else {
            self.filling = Some(filling);
            return;
        };
        self.held += 1;
        let (number, to) = (filling.number, filling.to);
        let from = to / ALIGNMENT * ALIGNMENT;
        block.bytes_mut()[from..to].copy_from_slice(&filling.block.bytes()[from..to]);
        self.ready.push_back(filling.into_write());
        self.is_flush_ready = true;
        self.filling = Some(Filling { block, number, from, to });
        self.covered = self.chunks.count();
        self.dirty_since = None;
    }

    /// Accepts nothing more, and hands all bytes to the next work.
    pub(crate) fn begin_seal(&mut self, pool: &mut BlockPool) {
        if self.ending == Ending::Open {
            self.ending = Ending::Sealing;
            self.end_block(pool);
        }
    }

    /// Returns the next work; none while too many are on their way, or nothing is to be done.
    pub(crate) fn next_work(&mut self) -> Option<PartWork> {
        let may_begin = match self.working.back() {
            None => true,
            Some(last) => self.is_created && !last.is_flush && self.working.len() < PART_WORKS_MAX,
        };
        if !may_begin || matches!(self.ending, Ending::Fenced(_)) {
            return None;
        }
        let is_durable = self.working.is_empty() && self.chunks.durable_count() == self.chunks.count();
        let seal =
            (self.ending == Ending::Sealing && self.ready.is_empty() && is_durable && !self.is_seal_sent)
                .then(|| PartSeal { length: self.chunks.end(), items: self.all_items() });
        if self.ready.is_empty() && seal.is_none() {
            return None;
        }
        self.is_seal_sent |= seal.is_some();
        self.works += 1;
        let (number, is_flush) = (self.works, std::mem::take(&mut self.is_flush_ready));
        self.working.push_back(Way { number, covered: self.covered, is_flush, is_done: false });
        let create = !self.is_created && seal.is_none();
        Some(PartWork { part: self.key, number, create, writes: self.ready.drain(..).collect(), seal })
    }

    /// Returns the item that says that the part exists, for the next commit; none if it has been there.
    pub(crate) fn begin_item(&mut self) -> Option<Item> {
        let is_new = !std::mem::replace(&mut self.is_indexed, true);
        is_new.then(|| self.opened_item())
    }

    fn opened_item(&self) -> Item {
        Item::Opened { part: self.key, origin: self.origin.clone() }
    }

    fn all_items(&self) -> Vec<Item> {
        vec![self.opened_item(), Item::Durable { part: self.key, chunks: self.chunks.all().to_vec() }]
    }

    /// Takes the end of a work, and returns items for the next commit; none while an earlier work is on its
    /// way.
    pub(crate) fn work_done(&mut self, pool: &mut BlockPool, number: u64, blocks: Vec<Block>) -> Vec<Item> {
        self.is_created = true;
        self.held = self.held.saturating_sub(blocks.len());
        blocks.into_iter().for_each(|block| pool.put(block));
        if let Some(way) = self.working.iter_mut().find(|way| way.number == number) {
            way.is_done = true;
        }
        while let Some(way) = self.working.pop_front_if(|way| way.is_done) {
            self.synced = way.covered;
        }
        let mut items = Vec::new();
        let chunks = self.chunks.all().get(self.committed..self.synced).unwrap_or_default().to_vec();
        if !chunks.is_empty() || self.is_seal_sent {
            items.extend(self.begin_item());
        }
        if !chunks.is_empty() {
            self.committed = self.synced;
            items.push(Item::Durable { part: self.key, chunks });
        }
        if self.is_seal_sent {
            items.push(Item::Sealed { part: self.key, by: SealedBy::Order });
        }
        items
    }

    /// Takes the failure of a work, or the end of one after a failure: the bytes that are not synced are
    /// lost. The last work on its way gives the item that ends the part.
    pub(crate) fn fail(
        &mut self,
        pool: &mut BlockPool,
        (number, blocks): (u64, Vec<Block>),
        reason: &str,
    ) -> Option<Item> {
        // Those that are done have given their blocks back.
        self.working.retain(|way| way.number != number && !way.is_done);
        blocks.into_iter().for_each(|block| pool.put(block));
        self.fence(pool, reason);
        let is_last = self.working.is_empty() && self.is_indexed;
        is_last.then_some(Item::Sealed { part: self.key, by: SealedBy::Fault })
    }

    /// Ends the part with the chunks that are in a commit.
    pub(crate) fn fence(&mut self, pool: &mut BlockPool, reason: &str) {
        if !matches!(self.ending, Ending::Fenced(_)) {
            self.ending = Ending::Fenced(reason.to_owned());
        }
        self.chunks.keep(self.committed);
        let waiting = self.chunks.all().get(self.chunks.durable_count()..).unwrap_or_default();
        self.queued = waiting.iter().map(|chunk| u64::from(chunk.length)).sum();
        let filling = self.filling.take().map(|filling| filling.block);
        let ready = self.ready.drain(..).map(|write| write.block);
        filling.into_iter().chain(ready).for_each(|block| pool.put(block));
        self.dirty_since = None;
        if self.working.is_empty() {
            self.give_up_blocks(pool);
        }
    }

    /// Returns the reservation of an ended part to the pool.
    pub(crate) fn give_up_blocks(&mut self, pool: &mut BlockPool) {
        pool.release(self.reserved);
        (self.reserved, self.held, self.promised) = (0, 0, 0);
    }

    /// Notes that chunks are in a durable commit. Returns their bytes.
    pub(crate) fn commit_done(&mut self, count: usize) -> Vec<ByteRange> {
        let before = self.chunks.durable_count();
        self.chunks.set_durable(count);
        let new: Vec<ChunkRecord> = self.chunks.durable().get(before..).unwrap_or_default().to_vec();
        let mut ranges: Vec<ByteRange> = Vec::new();
        for chunk in new {
            self.queued = self.queued.saturating_sub(u64::from(chunk.length));
            match ranges.last_mut() {
                Some(last) if last.to == chunk.offset => last.to = chunk.end(),
                _ => ranges.push(ByteRange { from: chunk.offset, to: chunk.end() }),
            }
        }
        ranges
    }

    /// Returns the number of chunks that are in a commit, on its way or done.
    pub(crate) fn committed_count(&self) -> usize {
        self.committed
    }

    /// Returns the blocks that the producer may send and has not begun.
    pub(crate) fn promised(&self) -> usize {
        self.promised
    }

    /// Returns the blocks that are reserved for the part.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Says whether work is on its way.
    pub(crate) fn is_working(&self) -> bool {
        !self.working.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::Lfn;
    use exacat_wire::writer::{Description, FileId, WriterId};

    use super::*;
    use crate::sums::{adler32, crc32c};

    fn part(from: u64) -> OpenPart {
        let lfn = Lfn::parse("/f").unwrap();
        let description = Description { run: String::new(), stream: String::new(), lfn, tags: Vec::new() };
        let origin =
            PartOrigin { writer: WriterId([1; 16]), stream: 0, owner: String::new(), begun: 0, description };
        OpenPart::new(PartKey { file: FileId([2; 16]), epoch: 1 }, origin, 0, from)
    }

    fn head(sequence: u64, offset: u64, bytes: &[u8]) -> ChunkHead {
        ChunkHead {
            writer: WriterId([1; 16]),
            file: FileId([2; 16]),
            sequence,
            offset,
            stream: 0,
            epoch: 1,
            length: bytes.len() as u32,
            events: 0,
            crc32c: crc32c(bytes),
            adler32: adler32(bytes),
        }
    }

    /// Property: whatever is flushed and when, the writes give the bytes that were put, the pool gets all
    /// its blocks back, and the part never takes more than it has reserved.
    #[test]
    fn writes_give_the_bytes_of_the_chunks() {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut pool, reserved) = (BlockPool::new(4), random.usize(2..=4));
            let mut part = part(0);
            let content: Vec<u8> = (0..2_700_000 + random.usize(..500_000)).map(|_| random.u8(..)).collect();
            let (mut disk, mut at, mut sequence) = (vec![0; content.len() + BLOCK_BYTES], 0, 0);
            let mut works: Vec<PartWork> = Vec::new();
            let mut received = Block::new();
            let mut rounds = 0;
            while at < content.len() || part.chunks.durable_count() < part.chunks.count() {
                rounds += 1;
                assert!(rounds < 100_000, "seed {seed}: it stands still");
                part.grant(&mut pool, reserved);
                assert!(pool.taken() <= reserved, "seed {seed}");
                let room = BLOCK_BYTES - at % BLOCK_BYTES;
                let length = (1 + random.usize(..300_000)).min(room).min(content.len() - at);
                if random.bool() && length > 0 && (at + length) as u64 <= part.limit() {
                    let bytes = &content[at..at + length];
                    let head = head(sequence, at as u64, bytes);
                    let memory = match random.bool() {
                        true => ChunkMemory::Bytes(bytes),
                        false => {
                            received.bytes_mut()[place_in_block(&head).unwrap()].copy_from_slice(bytes);
                            ChunkMemory::Block(&mut received)
                        }
                    };
                    let taken = part.take(&mut pool, &head, memory, 0);
                    assert_eq!(taken, Some(Judgement::New), "seed {seed}");
                    (at, sequence) = (at + length, sequence + 1);
                }
                if random.u8(..4) == 0 || at == content.len() {
                    part.flush(&mut pool);
                }
                works.extend(part.next_work());
                if random.bool() && !works.is_empty() {
                    let work = works.swap_remove(random.usize(..works.len()));
                    for write in &work.writes {
                        assert!(write.from % ALIGNMENT == 0 && write.to % ALIGNMENT == 0);
                        let start = write.offset as usize;
                        disk[start + write.from..start + write.to]
                            .copy_from_slice(&write.block.bytes()[write.from..write.to]);
                    }
                    let items = part.work_done(&mut pool, work.number, blocks_of(work));
                    let committed = part.committed;
                    assert!(!items.is_empty() || committed == part.chunks.durable_count());
                    let from = part.chunks.durable().last().map_or(0, ChunkRecord::end);
                    let ranges = part.commit_done(committed);
                    assert!(ranges.len() <= 1 && ranges.iter().all(|range| range.from == from));
                    let end = part.chunks.durable().last().map_or(0, ChunkRecord::end) as usize;
                    assert!(disk[..end] == content[..end], "seed {seed}");
                }
            }
            part.begin_seal(&mut pool);
            let seal = part.next_work().unwrap();
            assert_eq!(seal.seal.as_ref().map(|seal| seal.length), Some(content.len() as u64));
            assert!(matches!(
                part.work_done(&mut pool, seal.number, blocks_of(seal))[..],
                [Item::Sealed { .. }]
            ));
            part.give_up_blocks(&mut pool);
            assert_eq!((pool.unreserved(), pool.taken()), (4, 0), "seed {seed}");
        }
    }

    /// Property: a chunk beyond the limit is not taken, and one that ends at it is.
    #[test]
    fn chunk_beyond_the_limit_is_not_taken() {
        let mut pool = BlockPool::new(2);
        let mut part = part(0);
        assert!(part.grant(&mut pool, 2));
        assert_eq!(part.limit(), BLOCK_BYTES as u64);
        let last = head(0, BLOCK_BYTES as u64 - 1, b"x");
        let beyond = head(1, BLOCK_BYTES as u64, b"y");
        assert_eq!(part.take(&mut pool, &beyond, ChunkMemory::Bytes(b"y"), 0), None);
        assert_eq!(part.take(&mut pool, &last, ChunkMemory::Bytes(b"x"), 0), Some(Judgement::New));
        assert_eq!(part.take(&mut pool, &beyond, ChunkMemory::Bytes(b"y"), 0), None);
    }

    /// Property: a failed work loses what was not committed, and returns all memory.
    #[test]
    fn failed_work_keeps_what_is_committed() {
        let mut pool = BlockPool::new(4);
        let mut part = part(0);
        part.grant(&mut pool, 4);
        part.take(&mut pool, &head(0, 0, b"one"), ChunkMemory::Bytes(b"one"), 0);
        part.flush(&mut pool);
        let work = part.next_work().unwrap();
        assert_eq!(part.work_done(&mut pool, work.number, blocks_of(work)).len(), 2);
        part.take(&mut pool, &head(1, 3, b"two"), ChunkMemory::Bytes(b"two"), 0);
        part.flush(&mut pool);
        let work = part.next_work().unwrap();
        part.take(&mut pool, &head(2, 6, b"six"), ChunkMemory::Bytes(b"six"), 0);
        assert!(part.fail(&mut pool, (work.number, blocks_of(work)), "EIO").is_some());
        part.commit_done(1);
        assert_eq!((part.chunks.count(), part.chunks.durable_count()), (1, 1));
        assert_eq!((pool.unreserved(), pool.taken()), (4, 0));
        assert!(part.next_work().is_none());
    }

    /// Gives a part a chunk that fills the block of its number.
    fn take_block(part: &mut OpenPart, pool: &mut BlockPool, number: u64) {
        let bytes = vec![7; BLOCK_BYTES];
        let head = head(number, number * BLOCK_BYTES as u64, &bytes);
        assert_eq!(part.take(pool, &head, ChunkMemory::Bytes(&bytes), 0), Some(Judgement::New));
    }

    fn blocks_of(work: PartWork) -> Vec<Block> {
        work.writes.into_iter().map(|write| write.block).collect()
    }

    /// Property: bytes count as synced once all works before theirs are; a failure of an earlier work loses
    /// them; and the part ends with its last work.
    #[test]
    fn later_work_waits_for_the_earlier_one() {
        for fails in [false, true] {
            let mut pool = BlockPool::new(8);
            let mut part = part(0);
            part.grant(&mut pool, 8);
            let mut works = Vec::new();
            for sequence in 0..4 {
                take_block(&mut part, &mut pool, sequence);
                works.extend(part.next_work());
                if sequence == 0 {
                    assert!(part.next_work().is_none(), "the file is not there yet");
                    let work = works.remove(0);
                    assert_eq!(part.work_done(&mut pool, work.number, blocks_of(work)).len(), 2);
                    part.commit_done(1);
                }
            }
            assert_eq!(works.len(), PART_WORKS_MAX);
            let (second, first) = (works.pop().unwrap(), works.pop().unwrap());
            assert!(part.work_done(&mut pool, second.number, blocks_of(second)).is_empty());
            let number = first.number;
            if fails {
                let next = part.next_work();
                assert!(next.is_none(), "two are still on their way");
                let item = part.fail(&mut pool, (number, blocks_of(first)), "EIO");
                assert_eq!(item, Some(Item::Sealed { part: part.key, by: SealedBy::Fault }));
                assert_eq!((part.chunks.count(), pool.unreserved(), pool.taken()), (1, 8, 0));
            } else {
                let items = part.work_done(&mut pool, number, blocks_of(first));
                assert!(matches!(&items[..], [Item::Durable { chunks, .. }] if chunks.len() == 2));
                assert_eq!(part.next_work().map(|work| work.writes.len()), Some(1));
            }
        }
    }

    /// Property: after a failure the part keeps its memory until all its works have ended.
    #[test]
    fn fenced_part_ends_with_its_last_work() {
        let mut pool = BlockPool::new(8);
        let mut part = part(0);
        part.grant(&mut pool, 8);
        let mut works = VecDeque::new();
        for sequence in 0..3 {
            take_block(&mut part, &mut pool, sequence);
            works.extend(part.next_work());
            if sequence == 0 {
                let work: PartWork = works.pop_front().unwrap();
                part.work_done(&mut pool, work.number, blocks_of(work));
            }
        }
        let (first, second) = (works.pop_front().unwrap(), works.pop_front().unwrap());
        assert_eq!(part.fail(&mut pool, (first.number, blocks_of(first)), "EIO"), None);
        assert!(part.is_working() && pool.unreserved() == 0);
        assert!(part.fail(&mut pool, (second.number, blocks_of(second)), "later").is_some());
        assert_eq!(part.ending, Ending::Fenced("EIO".to_owned()));
        assert_eq!((pool.unreserved(), pool.taken()), (8, 0));
    }
}
