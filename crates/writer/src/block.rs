//! Blocks of memory for the bytes of files: allocated and touched once, aligned for direct I/O.

use exacat_wire::writer::limits::BLOCK_BYTES;

/// Alignment of memory, offsets and lengths of direct I/O.
pub const ALIGNMENT: usize = 4096;

/// Memory for the bytes of one block of a file.
pub struct Block {
    memory: Box<[u8]>,
    /// First aligned byte of the memory.
    start: usize,
}

impl Block {
    pub(crate) fn new() -> Self {
        // Written, not only reserved: the first touch of a page costs as much as its use.
        let memory = vec![0xa5; BLOCK_BYTES + ALIGNMENT].into_boxed_slice();
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Block { memory, start }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + BLOCK_BYTES]
    }

    /// Returns the bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BLOCK_BYTES]
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Block(…)")
    }
}

/// All blocks of a service: the bound of its memory for data. Parts reserve blocks before they take
/// them, and a credit is never given without a reservation.
#[derive(Debug)]
pub struct BlockPool {
    free: Vec<Block>,
    count: usize,
    reserved: usize,
}

impl BlockPool {
    /// Allocates and touches so many blocks.
    pub fn new(count: usize) -> Self {
        BlockPool { free: (0..count).map(|_| Block::new()).collect(), count, reserved: 0 }
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of blocks that nobody reserved.
    pub fn unreserved(&self) -> usize {
        self.count - self.reserved
    }

    /// Reserves blocks; false if there are not so many.
    pub fn reserve(&mut self, blocks: usize) -> bool {
        let fits = blocks <= self.unreserved();
        self.reserved += if fits { blocks } else { 0 };
        fits
    }

    /// Returns reserved blocks that are not taken.
    pub fn release(&mut self, blocks: usize) {
        self.reserved = self.reserved.saturating_sub(blocks);
    }

    /// Takes a block within a reservation.
    pub fn take(&mut self) -> Option<Block> {
        self.free.pop()
    }

    /// Puts a block back. Its reservation stays.
    pub fn put(&mut self, block: Block) {
        self.free.push(block);
    }

    /// Returns the number of blocks that are taken.
    pub fn taken(&self) -> usize {
        self.count - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_is_aligned_and_whole() {
        let mut pool = BlockPool::new(2);
        let mut block = pool.take().unwrap();
        assert_eq!(block.bytes().as_ptr().align_offset(ALIGNMENT), 0);
        assert_eq!(block.bytes_mut().len(), BLOCK_BYTES);
        assert!(pool.take().is_some() && pool.take().is_none());
        pool.put(block);
        assert_eq!(pool.taken(), 1);
    }

    #[test]
    fn reservation_beyond_the_pool_is_refused() {
        let mut pool = BlockPool::new(5);
        assert!(pool.reserve(3) && !pool.reserve(3) && pool.reserve(2) && !pool.reserve(1));
        pool.release(2);
        assert_eq!(pool.unreserved(), 2);
    }
}
