//! Segments: the files the log is made of. Byte by byte in `docs/internals/log-format.md`.
//!
//! A segment is a header and records, then zeros: its space is reserved when it is begun. Reading one tells apart
//! what a power cut leaves (the last group torn: cut it, nobody was told) from damage (anything else: refuse).

use exacat_model::{Error, ErrorKind, Revision, TimeMs, TimelineId};

use crate::header;
use crate::record::{self, ALIGNMENT, FRAME_BYTES, Frame, MARK_BYTES, Salt, part, u32_at};
use crate::settings::GROUP_WRITTEN_BYTES_MAX;

/// Bytes before a segment's first record.
pub(crate) const HEADER_BYTES: usize = 96;
const MAGIC: [u8; 8] = *b"exacatLG";
/// The version of the format this release writes. From version 2 on there are marks, and the header
/// has the timeline and the reserved space; version 1 has zeros in their place.
pub(crate) const VERSION: u16 = 2;
/// The first version whose header has the timeline.
const VERSION_WITH_TIMELINE: u16 = 2;
/// The header gives the reserved space in units of so many bytes, rounded down.
pub(crate) const RESERVED_UNIT: u64 = 4096;

/// A catalogue's own number, random.
pub(crate) type CatalogueId = [u8; 16];

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Version of the format that the segment is written in.
    pub version: u16,
    pub catalogue: CatalogueId,
    /// Of its first record.
    pub first_revision: Revision,
    /// When it was begun.
    pub created: TimeMs,
    pub salt: Salt,
    /// Of the state before its first record.
    pub digest: u128,
    /// Bytes that its file has at least until it is sealed, a multiple of [`RESERVED_UNIT`]; 0 in
    /// version 1.
    pub reserved: u64,
    /// The timeline it was begun on.
    pub timeline: TimelineId,
}

/// The catalogue and the timeline that segments are begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BegunFor {
    pub catalogue: CatalogueId,
    pub timeline: TimelineId,
}

/// An error that names the place in a file.
pub(crate) fn corrupt(file: &str, offset: u64, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{file} at byte {offset}: {what}"))
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.catalogue);
        bytes[32..40].copy_from_slice(&self.first_revision.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.created.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.salt.to_le_bytes());
        bytes[56..72].copy_from_slice(&self.digest.to_le_bytes());
        if self.version >= VERSION_WITH_TIMELINE {
            bytes[72..88].copy_from_slice(&self.timeline.0);
        }
        let units = u32::try_from(self.reserved / RESERVED_UNIT).unwrap_or(u32::MAX);
        bytes[88..92].copy_from_slice(&units.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let bytes =
            bytes.get(..HEADER_BYTES).ok_or_else(|| corrupt(file, 0, "the segment's header is cut off"))?;
        if bytes[0..8] != MAGIC {
            return Err(corrupt(file, 0, "this is no log segment"));
        }
        header::check(file, bytes, VERSION)?;
        let flags = u32::from_le_bytes(part(bytes, 12));
        if usize::from(u16::from_le_bytes(part(bytes, 10))) != HEADER_BYTES || flags != 0 {
            return Err(corrupt(file, 8, "the segment's header is of an unknown shape"));
        }
        let catalogue = part(bytes, 16);
        let version = u16::from_le_bytes(part(bytes, 8));
        let timeline = match version {
            VERSION_WITH_TIMELINE.. => TimelineId(part(bytes, 72)),
            _ => TimelineId::of_catalogue(catalogue),
        };
        Ok(Header {
            version,
            catalogue,
            timeline,
            first_revision: Revision(u64::from_le_bytes(part(bytes, 32))),
            created: TimeMs(u64::from_le_bytes(part(bytes, 40))),
            salt: u64::from_le_bytes(part(bytes, 48)),
            digest: u128::from_le_bytes(part(bytes, 56)),
            reserved: u64::from(u32_at(bytes, 88)) * RESERVED_UNIT,
        })
    }
}

/// What comes after the revision in the name of a plain segment.
pub(crate) const ENDING: &str = ".log";

/// The name of the segment whose first record has this revision.
pub(crate) fn file_name(first_revision: Revision) -> String {
    format!("{:020}{ENDING}", first_revision.0)
}

/// The revision a segment is named by before the `ending` of its form; none if it is no such name.
pub(crate) fn parse_file_name(name: &str, ending: &str) -> Option<Revision> {
    let digits = name.strip_suffix(ending)?;
    let well_formed = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if well_formed { digits.parse().ok().map(Revision) } else { None }
}

/// How a segment's records end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With the segment, or in zeros.
    Clean,
    /// In bytes that form no whole commit group, so many up to the last that is not zero. A power
    /// cut leaves them of a group that was never answered; damage to the last group looks the same,
    /// unless a mark follows it.
    Torn(u64),
    /// With a seal: another segment was begun after it.
    Sealed,
}

/// What a sealed segment ends with:
///
/// ```text
/// 0 magic · 8 first revision of the next segment u64 · 16 checksum u32 of the salt and bytes 0 to 15 · 20 zeros
/// ```
/// It is written when the next segment has its name, durably, and before anything is written to that: so if the next
/// were lost, with all that was answered from it, this one would tell.
const SEAL_MAGIC: [u8; 8] = *b"exacatSL";
const SEAL_BYTES: usize = 24;
/// Of a sector; what is in one is written or not.
const SECTOR_BYTES: usize = 512;
/// Bytes that a seal takes at most, with the zeros before it.
pub(crate) const SEAL_ROOM: usize = 2 * SEAL_BYTES;

/// Bytes kept free behind each group: those of a mark and of a seal.
pub(crate) const TAIL_ROOM: usize = MARK_BYTES + SEAL_ROOM;

/// Where the seal of a segment stands whose records end there: behind them, within one sector.
pub(crate) fn seal_at(records_end: usize) -> usize {
    let in_sector = records_end % SECTOR_BYTES;
    if in_sector + SEAL_BYTES > SECTOR_BYTES {
        records_end.next_multiple_of(SECTOR_BYTES)
    } else {
        records_end
    }
}

/// The seal of a segment of this salt, after which one begins with `next`.
pub(crate) fn seal(salt: Salt, next: Revision) -> [u8; SEAL_BYTES] {
    let mut bytes = [0; SEAL_BYTES];
    bytes[..8].copy_from_slice(&SEAL_MAGIC);
    bytes[8..16].copy_from_slice(&next.0.to_le_bytes());
    let sum = seal_checksum(salt, &bytes);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn seal_checksum(salt: Salt, seal: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&seal[..16]);
    hasher.finalize()
}

/// Do these bytes, which stand at `offset` of a segment, behind its last record, begin with its seal? Then where that ends,
/// in them.
pub(crate) fn seal_in(salt: Salt, offset: usize, bytes: &[u8]) -> Option<usize> {
    let begin = seal_at(offset) - offset;
    let seal = bytes.get(begin..begin + SEAL_BYTES)?;
    let is_one = seal[..8] == SEAL_MAGIC
        && seal[16..20] == seal_checksum(salt, seal).to_le_bytes()
        && seal[20..] == [0; 4]
        && bytes[..begin].iter().all(|byte| *byte == 0);
    is_one.then_some(begin + SEAL_BYTES)
}

/// The same of a seal that was begun, and not wholly written: a write that failed may leave any beginning of it. It says
/// nothing where no segment follows, for then these may be bytes that somebody sent, of a group that was torn.
pub(crate) fn begun_seal_in(offset: usize, bytes: &[u8]) -> Option<usize> {
    let begin = seal_at(offset) - offset;
    let (before, seal) = bytes.split_at_checked(begin)?;
    let seal = &seal[..seal.len().min(SEAL_BYTES)];
    let written = seal.iter().rposition(|byte| *byte != 0)? + 1;
    let known = written.min(SEAL_MAGIC.len());
    let is_one = before.iter().all(|byte| *byte == 0) && seal[..known] == SEAL_MAGIC[..known];
    is_one.then_some(begin + seal.len())
}

/// Ends the bytes of a segment, which end with its last record, with a seal.
pub(crate) fn put_seal(bytes: &mut Vec<u8>, salt: Salt, next: Revision) {
    bytes.resize(seal_at(bytes.len()), 0);
    bytes.extend_from_slice(&seal(salt, next));
}

/// The records of a segment, one after the other.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    salt: Salt,
    at: usize,
    /// A mark was read last.
    is_marked: bool,
}

impl<'a> Records<'a> {
    /// Reads from `offset` of a segment's bytes.
    pub fn new(bytes: &'a [u8], salt: Salt, offset: usize) -> Self {
        Records { bytes, salt, at: offset, is_marked: false }
    }

    /// Where the next record begins, or the records end.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Did reading end with a mark?
    pub fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// The next valid record of changes: its offset and its body. None at the end, or at damage.
    /// Marks are passed over.
    pub fn next_record(&mut self) -> Option<(usize, &'a [u8])> {
        loop {
            let at = self.at;
            let (frame, body) = record::read(self.salt, self.bytes.get(at..)?)?;
            self.at = at + frame.stride();
            self.is_marked = frame.is_mark;
            if !frame.is_mark {
                return Some((at, body));
            }
        }
    }

    /// Says how the records end, after the last valid one.
    ///
    /// Zeros to the end are a clean end, and so is a seal. Otherwise, in the last segment, a power
    /// cut may have left any part of the last group: then no valid record follows, or only ones of
    /// that same group, which was written by one call and never answered. A valid record of a
    /// *later* group, or a mark, proves that the bytes here were synced once, and are damaged now.
    /// So they are in an earlier segment in any case.
    pub fn ending(&self, file: &str, is_last: bool) -> Result<Ending, Error> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.iter().all(|byte| *byte == 0) {
            return Ok(Ending::Clean);
        }
        if let Some(end) = seal_in(self.salt, self.at, rest)
            && rest[end..].iter().all(|byte| *byte == 0)
        {
            return Ok(Ending::Sealed);
        }
        if !is_last {
            return match begun_seal_in(self.at, rest) {
                Some(end) if rest[end..].iter().all(|byte| *byte == 0) => Ok(Ending::Clean),
                _ => Err(corrupt(file, self.at as u64, "a log record is damaged")),
            };
        }
        let mut from = ALIGNMENT;
        while let Some((distance, frame)) = self.next_valid(rest, from) {
            let group_start = distance.checked_sub(frame.group_bytes as usize);
            if group_start.is_some_and(|start| start > 0) {
                let found = self.at + distance;
                return Err(corrupt(
                    file,
                    self.at as u64,
                    format!("a log record is damaged: a later one, at byte {found}, is whole"),
                ));
            }
            from = distance + frame.stride();
        }
        let torn = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if torn > GROUP_WRITTEN_BYTES_MAX {
            let what = format!(
                "{torn} bytes form no whole commit group, and one has {GROUP_WRITTEN_BYTES_MAX} at most: they are damaged"
            );
            return Err(corrupt(file, self.at as u64, what));
        }
        Ok(Ending::Torn(torn as u64))
    }

    /// The first valid record in `rest` at or after `from`: its distance from the start.
    fn next_valid(&self, rest: &[u8], from: usize) -> Option<(usize, Frame)> {
        let mut at = from;
        while at + FRAME_BYTES <= rest.len() {
            if rest[at..at + FRAME_BYTES] != [0; FRAME_BYTES]
                && let Some((frame, _)) = record::read(self.salt, &rest[at..])
            {
                return Some((at, frame));
            }
            at += ALIGNMENT;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no more is taken for a torn write than one commit group can be. Method: the limit, and
    /// a byte more.
    #[test]
    fn torn_end_longer_than_a_group_is_corrupt() {
        let mut bytes = vec![0; HEADER_BYTES + GROUP_WRITTEN_BYTES_MAX + ALIGNMENT];
        bytes[HEADER_BYTES] = 1;
        let last = HEADER_BYTES + GROUP_WRITTEN_BYTES_MAX - 1;
        bytes[last] = 1;
        let ending = |bytes: &[u8]| Records::new(bytes, 7, HEADER_BYTES).ending("test", true);
        assert_eq!(ending(&bytes), Ok(Ending::Torn(GROUP_WRITTEN_BYTES_MAX as u64)));
        bytes[last + 1] = 1;
        assert_eq!(ending(&bytes).unwrap_err().kind, ErrorKind::Corrupt);
    }

    /// Goal: a seal is read as written, any beginning of it is no damage where another segment follows, and no seal where none
    /// does. Method: records that end anywhere in a sector; each beginning of the seal behind them, each bit of it changed.
    #[test]
    fn a_seal_that_was_begun_is_no_damage_and_no_seal() {
        const SALT: Salt = 77;
        for end in (HEADER_BYTES..HEADER_BYTES + SECTOR_BYTES).step_by(ALIGNMENT) {
            let mut sealed = vec![0; end];
            put_seal(&mut sealed, SALT, Revision(0x0102_0304_0506_0708));
            let begin = seal_at(end);
            assert_eq!(begin / SECTOR_BYTES, (begin + SEAL_BYTES - 1) / SECTOR_BYTES, "in one sector");
            assert!(sealed.len() - end <= SEAL_ROOM);
            let ending = |bytes: &[u8], salt: Salt, is_last: bool| {
                Records::new(bytes, salt, end).ending("test", is_last)
            };
            for is_last in [false, true] {
                assert_eq!(ending(&sealed, SALT, is_last), Ok(Ending::Sealed));
            }
            assert_ne!(ending(&sealed, SALT ^ 1, true), Ok(Ending::Sealed), "it is this segment's only");
            // Its last four bytes are zeros anyway.
            for length in begin + 1..sealed.len() - 4 {
                let mut begun = sealed[..length].to_vec();
                begun.resize(sealed.len() + 100, 0);
                assert_eq!(ending(&begun, SALT, false), Ok(Ending::Clean), "{length}");
                assert!(matches!(ending(&begun, SALT, true), Ok(Ending::Torn(_))), "{length}");
                *begun.last_mut().unwrap() = 1;
                assert!(ending(&begun, SALT, false).is_err(), "something lies behind it");
            }
            let mut other = sealed.clone();
            other[begin] ^= 1;
            assert!(ending(&other, SALT, false).is_err());
        }
    }
}
