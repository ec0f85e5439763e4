//! Reads an archived segment: checks and unpacks each block when a reader needs it.
//!
//! The index at the end has the positions of the blocks. If it is damaged the reader goes from
//! block to block, because each has its length. Intact blocks stay readable, and an inspection
//! reports the damage.

use exacat_disk::{DiskFile, cannot_read, corrupt};
use exacat_model::{Error, Revision, TimeMs};

use super::format::{
    BLOCK_HEAD_BYTES, Block, FOOTER_BYTES, Footer, HEADER_BYTES, decode_header, decode_index,
};
use crate::record::read_head;
use crate::segment::{self, Header, Records};

/// An open archived segment.
pub struct Archive {
    file: Box<dyn DiskFile>,
    name: String,
    header: Header,
    blocks: Vec<Block>,
    /// Time of the last record, if the footer has it.
    last_time: Option<TimeMs>,
    index_damage: Option<Error>,
    /// A block as in the file, and its unpacked records.
    packed: Vec<u8>,
    plain: Vec<u8>,
    unpacker: zstd::bulk::Decompressor<'static>,
}

impl Archive {
    /// Opens an archived segment: two small reads, and its index.
    pub fn open(file: Box<dyn DiskFile>, name: String) -> Result<Self, Error> {
        let unreadable = |error: std::io::Error| cannot_read(&name, &error);
        let mut head = [0; HEADER_BYTES];
        let read = file.read_at(&mut head, 0).map_err(unreadable)?;
        let header = decode_header(&name, &head[..read])?;
        let length = file.length().map_err(unreadable)?;
        let (blocks, last_time, index_damage) = match read_index(&*file, &header, length)
            .map_err(unreadable)?
        {
            Some((blocks, last_time)) => (blocks, Some(last_time), None),
            None => {
                let blocks = walk(&*file, &header, length).map_err(unreadable)?;
                let end = blocks.last().map_or(HEADER_BYTES as u64, Block::end);
                let count = blocks.len();
                let what = format!(
                    "the index of blocks after this place, or a block, is damaged; {count} blocks were found without it"
                );
                (blocks, None, Some(corrupt(&name, end, what)))
            }
        };
        let unpacker = zstd::bulk::Decompressor::new().map_err(unreadable)?;
        let (packed, plain) = (Vec::new(), Vec::new());
        Ok(Archive { file, name, header, blocks, last_time, index_damage, packed, plain, unpacker })
    }

    /// Returns the name for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the plain segment's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns its blocks, in order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the time of the last record; none if only reading the records could tell.
    pub fn last_time(&self) -> Option<TimeMs> {
        self.last_time
    }

    /// Returns the damage of the index, if there is any.
    pub fn index_damage(&self) -> Option<&Error> {
        self.index_damage.as_ref()
    }

    /// Returns the block with the record at this offset of the plain segment, or the first one
    /// after it. The number of blocks if the offset is behind all.
    pub fn block_at(&self, offset: u64) -> usize {
        self.blocks.partition_point(|block| block.offset_end() <= offset)
    }

    /// Returns the block with this change, or the first one after it. The number of blocks if the
    /// change is behind all.
    pub fn block_of(&self, revision: Revision) -> usize {
        self.blocks.partition_point(|block| block.last_revision < revision)
    }

    /// Returns the end of the records in the plain segment.
    pub fn offset_end(&self) -> u64 {
        self.blocks.last().map_or(segment::HEADER_BYTES as u64, Block::offset_end)
    }

    /// Checks that no blocks are missing at the end: the segment has all changes before `next`.
    pub fn check_reaches(&self, next: Revision) -> Result<(), Error> {
        if self.blocks.last().is_some_and(|last| last.last_revision.0.checked_add(1) == Some(next.0)) {
            return Ok(());
        }
        Err(self.index_damage.clone().unwrap_or_else(|| {
            let last = self.blocks.last().map_or(0, |block| block.last_revision.0);
            let what = format!("the segment ends with change {last}, the next begins with {}", next.0);
            corrupt(&self.name, self.blocks.last().map_or(0, Block::end), what)
        }))
    }

    /// Returns the error for a damaged block.
    pub fn damaged(&self, number: usize, what: impl std::fmt::Display) -> Error {
        let Some(block) = self.blocks.get(number) else {
            return corrupt(&self.name, 0, format!("block {number} is missing"));
        };
        let (first, last) = (block.first_revision.0, block.last_revision.0);
        corrupt(&self.name, block.at, format!("block {number}, changes {first} to {last}, {what}"))
    }

    /// Unpacks a block's records.
    pub fn unpack(&mut self, number: usize, into: &mut Vec<u8>) -> Result<(), Error> {
        into.clear();
        let Some(block) = self.blocks.get(number).copied() else {
            return Err(self.damaged(number, "is missing"));
        };
        let bytes = BLOCK_HEAD_BYTES + block.packed_bytes as usize;
        self.packed.resize(bytes, 0);
        let read = self.file.read_at(&mut self.packed, block.at);
        let read = read.map_err(|error| cannot_read(&self.name, &error))?;
        if read < bytes {
            return Err(self.damaged(number, "is cut off"));
        }
        if !block.is(self.header.salt, &self.packed) {
            return Err(self.damaged(number, "fails its checksum"));
        }
        let plain_bytes = block.plain_bytes as usize;
        // The limit stops a block that claims to unpack to more.
        into.shrink_to(plain_bytes);
        into.reserve_exact(plain_bytes);
        let unpacked = self.unpacker.decompress_to_buffer(&self.packed[BLOCK_HEAD_BYTES..], into);
        match unpacked {
            Ok(bytes) if bytes == plain_bytes => Ok(()),
            Ok(bytes) => Err(self.damaged(number, format!("unpacks to {bytes} bytes, not {plain_bytes}"))),
            Err(error) => Err(self.damaged(number, format!("cannot be unpacked: {error}"))),
        }
    }
}

impl Archive {
    /// Passes the bodies of a block's records to `give`, each with its offset in the plain segment.
    /// Begins with the record at `from`, or with the block's first.
    pub fn records(
        &mut self,
        number: usize,
        from: u64,
        mut give: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut bytes = std::mem::take(&mut self.plain);
        self.unpack(number, &mut bytes)?;
        let Some(block) = self.blocks.get(number) else { return Err(self.damaged(number, "is missing")) };
        let skip = usize::try_from(from.saturating_sub(block.offset)).unwrap_or(usize::MAX);
        let mut records = Records::new(&bytes, self.header.salt, skip);
        let mut last = None;
        while let Some((at, body)) = records.next_record() {
            last = read_head(body).ok().map(|head| head.last_revision());
            give(block.offset + at as u64, body)?;
        }
        if records.offset() != bytes.len() || last.is_some_and(|last| last != block.last_revision) {
            return Err(self.damaged(number, "does not hold the records that it should"));
        }
        self.plain = bytes;
        Ok(())
    }
}

/// Reads the blocks from the index, and the time of the last record; none if the end of the file is
/// damaged.
fn read_index(
    file: &dyn DiskFile,
    header: &Header,
    length: u64,
) -> std::io::Result<Option<(Vec<Block>, TimeMs)>> {
    let mut bytes = [0; FOOTER_BYTES];
    let Some(footer_at) = length.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
    let read = file.read_at(&mut bytes, footer_at)?;
    let Some(footer) = Footer::decode(header.salt, &bytes).filter(|_| read == FOOTER_BYTES) else {
        return Ok(None);
    };
    if footer.index_at.checked_add(footer.index_bytes() as u64) != Some(footer_at) {
        return Ok(None);
    }
    let mut index = vec![0; footer.index_bytes()];
    let read = file.read_at(&mut index, footer.index_at)?;
    Ok(decode_index(&footer, header, &index[..read]).map(|blocks| (blocks, footer.last_time)))
}

/// Reads the blocks from the first one on, as far as their heads lead. Unpacking finds out whether
/// each is intact.
fn walk(file: &dyn DiskFile, header: &Header, length: u64) -> std::io::Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut at = HEADER_BYTES as u64;
    loop {
        let mut head = [0; BLOCK_HEAD_BYTES];
        let read = file.read_at(&mut head, at)?;
        let block = Block::decode_head(at, &head);
        if read < BLOCK_HEAD_BYTES || !block.follows(blocks.last(), header) || block.end() > length {
            return Ok(blocks);
        }
        at = block.end();
        blocks.push(block);
    }
}
