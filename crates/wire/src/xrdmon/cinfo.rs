//! State of a cached file (`.cinfo`), as XCache of release 5 keeps it: size, blocks on disk, accesses.
//!
//! All numbers are little-endian. Two CRC-32C protect a file: one of its fixed part, one of blocks and
//! accesses. The cache writes over a file without cutting it, so bytes behind the second mean nothing.

/// Bytes of a file that a reader has to take: 16 TiB in blocks of 256 KiB need 8 MiB.
pub const CINFO_BYTES_MAX: usize = 16 << 20;

/// Version that is read.
const VERSION: i32 = 4;
/// Bytes of the version, and of the fixed part behind it.
const VERSION_BYTES: usize = 4;
const FIXED_BYTES: usize = 48;
/// Bytes of an access.
const ACCESS_BYTES: usize = 56;

/// Access to a cached file. Old ones are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CinfoAccess {
    /// Begin, in seconds since 1970.
    pub attached: u64,
    /// End, in seconds since 1970; none while the file is open, or if the cache died.
    pub detached: Option<u64>,
    /// Opens that were one access.
    pub opens: u32,
    /// Seconds of all these opens together.
    pub seconds: u32,
    /// Earlier accesses that were merged into this one.
    pub merged: u32,
    /// Bytes that clients got from the cache.
    pub bytes_hit: u64,
    /// Bytes that clients got, and the cache did not have.
    pub bytes_miss: u64,
    /// Bytes that went by the cache.
    pub bytes_bypass: u64,
}

/// State of a cached file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cinfo {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Time when the cache first saw the file, in seconds since 1970.
    pub created: u64,
    /// Time of the first block without a checksum from the origin, in seconds since 1970.
    pub unchecked_since: Option<u64>,
    /// Accesses of all time.
    pub accesses: u64,
    /// Accesses in detail: the last ones, and older ones merged.
    pub records: Vec<CinfoAccess>,
    /// A bit for each block.
    bits: Vec<u8>,
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*first)
}

fn count(from: &mut &[u8]) -> Option<u64> {
    u64::try_from(i64::from_le_bytes(take(from)?)).ok()
}

fn small(from: &mut &[u8]) -> Option<u32> {
    u32::try_from(i32::from_le_bytes(take(from)?)).ok()
}

/// Returns a time; none for 0.
fn time(from: &mut &[u8]) -> Option<Option<u64>> {
    count(from).map(|time| Some(time).filter(|time| *time > 0))
}

/// Takes a checksum, and compares it with that of bytes.
fn is_right(from: &mut &[u8], bytes: &[u8]) -> Option<bool> {
    take(from).map(|sum| u32::from_le_bytes(sum) == crc32c::crc32c(bytes))
}

fn access(mut from: &[u8]) -> Option<CinfoAccess> {
    let from = &mut from;
    let (attached, detached) = (count(from)?, time(from)?);
    let (opens, seconds, merged) = (small(from)?, small(from)?, small(from)?);
    let _reserved: [u8; 4] = take(from)?;
    let (bytes_hit, bytes_miss, bytes_bypass) = (count(from)?, count(from)?, count(from)?);
    Some(CinfoAccess { attached, detached, opens, seconds, merged, bytes_hit, bytes_miss, bytes_bypass })
}

const NEGATIVE: &str = "a number of the cinfo file is negative";
const CUT: &str = "the cinfo file is cut off";

impl Cinfo {
    /// Reads a file.
    ///
    /// # Errors
    /// It is of another version, cut off, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Cinfo, &'static str> {
        let mut rest = bytes;
        let version = take(&mut rest).map(i32::from_le_bytes).ok_or(CUT)?;
        match version {
            VERSION => {}
            2 | 3 => return Err("the cinfo file is of release 4 of XRootD: version 4 of the format is read"),
            _ => return Err("this is no cinfo file, or one of an unknown version"),
        }
        let fixed = bytes.get(VERSION_BYTES..VERSION_BYTES + FIXED_BYTES).ok_or(CUT)?;
        let behind = &mut bytes.get(VERSION_BYTES + FIXED_BYTES..).ok_or(CUT)?;
        if !is_right(behind, fixed).ok_or(CUT)? {
            return Err("the head of the cinfo file is damaged");
        }
        let (mut cinfo, records) = Cinfo::of_head(fixed).ok_or(NEGATIVE)?;
        if cinfo.block_bytes == 0 {
            return Err("the blocks of the cinfo file have no bytes");
        }
        let bit_bytes = usize::try_from(cinfo.bit_count().div_ceil(8)).map_err(|_| CUT)?;
        let record_bytes =
            usize::try_from(records).ok().and_then(|records| records.checked_mul(ACCESS_BYTES));
        let sizes = record_bytes.and_then(|records| Some((records, bit_bytes.checked_add(records)?)));
        let (record_bytes, all_bytes) = sizes.ok_or(CUT)?;
        let (of_blocks, mut behind) = behind.split_at_checked(all_bytes).ok_or(CUT)?;
        if !is_right(&mut behind, of_blocks).ok_or(CUT)? {
            return Err("the blocks or accesses of the cinfo file are damaged");
        }
        let (bits, accesses) = of_blocks.split_at(all_bytes - record_bytes);
        cinfo.bits = bits.to_vec();
        cinfo.records = accesses.chunks(ACCESS_BYTES).map(access).collect::<Option<_>>().ok_or(NEGATIVE)?;
        Ok(cinfo)
    }

    /// Reads the fixed part, and the number of accesses behind it.
    fn of_head(mut from: &[u8]) -> Option<(Cinfo, u32)> {
        let from = &mut from;
        let (block_bytes, file_bytes, created) = (count(from)?, count(from)?, count(from)?);
        let (unchecked_since, accesses) = (time(from)?, count(from)?);
        let _checks: [u8; 4] = take(from)?;
        let records = small(from)?;
        let cinfo = Cinfo { block_bytes, file_bytes, created, unchecked_since, accesses, ..Cinfo::default() };
        Some((cinfo, records))
    }

    /// Returns the number of bits: an empty file has one.
    fn bit_count(&self) -> u64 {
        self.blocks().max(1)
    }

    /// Returns the number of blocks of the file.
    pub fn blocks(&self) -> u64 {
        self.file_bytes
            .checked_div(self.block_bytes)
            .map_or(0, |_| self.file_bytes.div_ceil(self.block_bytes))
    }

    /// Says whether a block is on disk.
    pub fn has(&self, block: u64) -> bool {
        let byte = usize::try_from(block / 8).ok().and_then(|at| self.bits.get(at));
        block < self.blocks() && byte.is_some_and(|byte| byte >> (block % 8) & 1 == 1)
    }

    /// Returns the number of blocks on disk.
    pub fn blocks_done(&self) -> u64 {
        let blocks = self.blocks();
        let whole = usize::try_from(blocks / 8).unwrap_or(usize::MAX).min(self.bits.len());
        let of_whole: u64 = self.bits[..whole].iter().map(|byte| u64::from(byte.count_ones())).sum();
        // Bits behind the last block may be set.
        of_whole + (blocks / 8 * 8..blocks).filter(|block| self.has(*block)).count() as u64
    }

    /// Says whether all blocks are on disk.
    pub fn is_complete(&self) -> bool {
        self.blocks_done() == self.blocks()
    }

    /// Returns the bytes on disk. The last block may be shorter than the others.
    pub fn bytes_done(&self) -> u64 {
        let all = self.blocks_done().saturating_mul(self.block_bytes);
        let missing = self.blocks().saturating_mul(self.block_bytes).saturating_sub(self.file_bytes);
        match self.blocks().checked_sub(1) {
            Some(last) if self.has(last) => all.saturating_sub(missing),
            _ => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a file: its numbers, bits and accesses.
    fn file(head: [i64; 5], records: &[[i64; 8]], bits: &[u8]) -> Vec<u8> {
        let mut fixed = head.map(i64::to_le_bytes).concat();
        fixed.extend_from_slice(&2_u32.to_le_bytes());
        fixed.extend_from_slice(&(records.len() as i32).to_le_bytes());
        let mut behind = bits.to_vec();
        for [attached, detached, opens, seconds, merged, hit, miss, bypass] in records {
            behind.extend([attached, detached].map(|time| time.to_le_bytes()).concat());
            behind.extend([opens, seconds, merged, &0].map(|number| (*number as i32).to_le_bytes()).concat());
            behind.extend([hit, miss, bypass].map(|bytes| bytes.to_le_bytes()).concat());
        }
        let sum = |bytes: &[u8]| crc32c::crc32c(bytes).to_le_bytes();
        [&4_i32.to_le_bytes()[..], &fixed, &sum(&fixed), &behind, &sum(&behind)].concat()
    }

    const RECORD: [i64; 8] = [100, 105, 3, 7, 1, 10, 20, 30];

    fn sample() -> Vec<u8> {
        // 10 blocks, the last one a byte; bits behind the last are set.
        file(
            [4096, 9 * 4096 + 1, 1000, 0, 5],
            &[RECORD, [110, 0, 1, 0, 0, 0, 0, 0]],
            &[0b0000_0101, 0b1111_1110],
        )
    }

    #[test]
    fn numbers_blocks_and_accesses_are_read() {
        let cinfo = Cinfo::read(&sample()).unwrap();
        assert_eq!(
            (cinfo.block_bytes, cinfo.file_bytes, cinfo.created, cinfo.accesses),
            (4096, 36_865, 1000, 5)
        );
        assert_eq!((cinfo.unchecked_since, cinfo.blocks(), cinfo.blocks_done()), (None, 10, 3));
        assert!(
            cinfo.has(0)
                && !cinfo.has(1)
                && cinfo.has(2)
                && cinfo.has(9)
                && !cinfo.has(10)
                && !cinfo.has(u64::MAX)
        );
        assert_eq!((cinfo.bytes_done(), cinfo.is_complete()), (2 * 4096 + 1, false));
        let record = CinfoAccess {
            attached: 100,
            detached: Some(105),
            opens: 3,
            seconds: 7,
            merged: 1,
            bytes_hit: 10,
            bytes_miss: 20,
            bytes_bypass: 30,
        };
        assert_eq!(cinfo.records[0], record);
        assert_eq!((cinfo.records.len(), cinfo.records[1].detached), (2, None));
    }

    #[test]
    fn edges_of_sizes_are_read() {
        let whole = Cinfo::read(&file([4096, 8 * 4096, 1, 9, 1], &[], &[0xff])).unwrap();
        assert_eq!((whole.blocks_done(), whole.bytes_done(), whole.is_complete()), (8, 8 * 4096, true));
        assert_eq!(whole.unchecked_since, Some(9));
        let empty = Cinfo::read(&file([4096, 0, 1, 0, 0], &[], &[1])).unwrap();
        assert_eq!((empty.blocks(), empty.blocks_done(), empty.bytes_done()), (0, 0, 0));
        // The cache wrote a shorter file over a longer one.
        let behind = [sample(), vec![7; 100]].concat();
        assert_eq!(Cinfo::read(&behind), Cinfo::read(&sample()));
    }

    /// Property: a damaged or cut file is an error, whatever the byte.
    #[test]
    fn damaged_files_are_refused() {
        let whole = sample();
        for at in 0..whole.len() {
            assert!(Cinfo::read(&whole[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                assert!(Cinfo::read(&bytes).is_err(), "bit {bit} of byte {at}");
            }
        }
        let lies: [Vec<u8>; 6] = [
            file([0, 1, 1, 1, 1], &[], &[1]),
            file([-4096, 1, 1, 1, 1], &[], &[1]),
            file([4096, -1, 1, 1, 1], &[], &[1]),
            file([1, i64::MAX, 1, 1, 1], &[], &[1]),
            file([4096, 1, -1, 1, 1], &[], &[1]),
            file([4096, 1, 1, 1, 1], &[[-1, 0, 0, 0, 0, 0, 0, 0]], &[1]),
        ];
        for bytes in &lies {
            assert!(Cinfo::read(bytes).is_err());
        }
        for version in [2_i32, 3, 5, -1] {
            let bytes = [&version.to_le_bytes()[..], &whole[4..]].concat();
            assert!(Cinfo::read(&bytes).is_err());
        }
    }
}
