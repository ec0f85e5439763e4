//! Segments: the files of the log. `docs/internals/log-format.md` has every byte.
//!
//! A segment is a header, records, then zeros: its space is reserved when it begins. Reading
//! distinguishes two kinds of bad ends. A power cut leaves the last group torn; no caller has its
//! answer, so it is cut off. Everything else is damage, and is refused.

use exacat_disk::fixed::{part, u32_at};
use exacat_disk::{corrupt, header};
use exacat_model::{Error, Revision, TimeMs, TimelineId};

use crate::limits::GROUP_WRITTEN_BYTES_MAX;
use crate::record::{self, ALIGNMENT, FRAME_BYTES, Frame, MARK_BYTES, Salt};

/// Bytes before a segment's first record.
pub const HEADER_BYTES: usize = 96;
const MAGIC: [u8; 8] = *b"exacatLG";
/// Version of the format that this release writes. From version 2 on there are end marks, and the
/// header has the timeline and the reserved space; version 1 has zeros in their place.
pub const VERSION: u16 = 2;
/// First version whose header has the timeline.
const VERSION_WITH_TIMELINE: u16 = 2;
/// Ending of the unfinished name that a segment has until its beginning, or archiving, is durable.
pub const UNFINISHED: &str = ".unfinished";
/// Unit in bytes of the reserved space in the header, which is rounded down.
pub const RESERVED_UNIT: u64 = 4096;

/// Random number that identifies a catalogue.
pub type CatalogueId = [u8; 16];

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the segment's format.
    pub version: u16,
    /// Catalogue that it belongs to.
    pub catalogue: CatalogueId,
    /// Revision of its first record.
    pub first_revision: Revision,
    /// Time at which it was begun.
    pub created: TimeMs,
    /// Salt of its records.
    pub salt: Salt,
    /// Digest of the state before its first record.
    pub digest: u128,
    /// Minimum length of its file until it is sealed, a multiple of [`RESERVED_UNIT`]; 0 in version
    /// 1.
    pub reserved: u64,
    /// Timeline on which it was begun.
    pub timeline: TimelineId,
}

/// Catalogue and timeline of new segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunFor {
    /// Catalogue that they belong to.
    pub catalogue: CatalogueId,
    /// Timeline that they are begun on.
    pub timeline: TimelineId,
}

impl Header {
    /// Encodes the header.
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
        // Version 1 has zeros here, and must encode to the same bytes again.
        if self.version >= VERSION_WITH_TIMELINE {
            bytes[72..88].copy_from_slice(&self.timeline.0);
        }
        // A reservation beyond the field is rounded down: the field is a lower bound.
        let units = u32::try_from(self.reserved / RESERVED_UNIT).unwrap_or(u32::MAX);
        bytes[88..92].copy_from_slice(&units.to_le_bytes());
        header::seal(&mut bytes);
        bytes
    }

    /// Decodes and checks the header of a file.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let bytes =
            bytes.get(..HEADER_BYTES).ok_or_else(|| corrupt(file, 0, "the segment's header is cut off"))?;
        // The magic comes before the version: a foreign file is not the segment of a newer release.
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

/// Ending of the name of a plain segment, after the revision.
pub const ENDING: &str = ".log";

/// Returns the name of the segment whose first record has this revision.
pub fn file_name(first_revision: Revision) -> String {
    format!("{:020}{ENDING}", first_revision.0)
}

/// Returns the revision in a segment's name, before the `ending` of its form; none if the name has
/// another form.
pub fn parse_file_name(name: &str, ending: &str) -> Option<Revision> {
    let digits = name.strip_suffix(ending)?;
    // Exactly 20 digits, so that the order of the names is the order of the revisions.
    let well_formed = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if well_formed { digits.parse().ok().map(Revision) } else { None }
}

/// End of a segment's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Records up to the end of the segment, or zeros behind them.
    Clean,
    /// Bytes that form no whole commit group; their number up to the last that is not zero. A power
    /// cut leaves them of a group that was never answered. Damage to the last group looks the same,
    /// unless an end mark follows it.
    Torn(u64),
    /// A seal: another segment was begun after it.
    Sealed,
}

/// Magic number of the seal that ends a sealed segment:
///
/// ```text
/// 0 magic · 8 first revision of the next segment u64
/// 16 checksum u32 of the salt and bytes 0 to 15 · 20 zeros
/// ```
/// The seal is written after the next segment has its name, durably, and before anything is written
/// to that. If the next segment is lost with all its answered changes, this seal reveals it.
const SEAL_MAGIC: [u8; 8] = *b"exacatSL";
const SEAL_BYTES: usize = 24;
/// Bytes of a sector, which the disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;
/// Maximum bytes of a seal, with the zeros before it.
pub const SEAL_ROOM: usize = 2 * SEAL_BYTES;

/// Bytes kept free behind each group, for an end mark and a seal.
pub const TAIL_ROOM: usize = MARK_BYTES + SEAL_ROOM;

/// Returns the offset of the seal of a segment whose records end at `records_end`: behind them,
/// within one sector.
pub fn seal_at(records_end: usize) -> usize {
    let in_sector = records_end % SECTOR_BYTES;
    if in_sector + SEAL_BYTES > SECTOR_BYTES {
        records_end.next_multiple_of(SECTOR_BYTES)
    } else {
        records_end
    }
}

/// Returns the seal of a segment of this salt; the segment after it begins with `next`.
pub fn seal(salt: Salt, next: Revision) -> [u8; SEAL_BYTES] {
    let mut bytes = [0; SEAL_BYTES];
    bytes[..8].copy_from_slice(&SEAL_MAGIC);
    bytes[8..16].copy_from_slice(&next.0.to_le_bytes());
    let sum = seal_checksum(salt, &bytes);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn seal_checksum(salt: Salt, seal: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    // The salt keeps bytes that a client sent from passing for a seal.
    hasher.update(&salt.to_le_bytes());
    hasher.update(&seal[..16]);
    hasher.finalize()
}

/// Looks for a whole seal in the bytes behind the last record, which is at `offset` of the segment.
/// Returns the end of the seal in them.
pub fn seal_in(salt: Salt, offset: usize, bytes: &[u8]) -> Option<usize> {
    let begin = seal_at(offset) - offset;
    let seal = bytes.get(begin..begin + SEAL_BYTES)?;
    let is_one = seal[..8] == SEAL_MAGIC
        && seal[16..20] == seal_checksum(salt, seal).to_le_bytes()
        && seal[20..] == [0; 4]
        && bytes[..begin].iter().all(|byte| *byte == 0);
    is_one.then_some(begin + SEAL_BYTES)
}

/// Looks for the beginning of a seal that was not wholly written: a failed write may leave any
/// beginning of it. The result counts only if another segment follows. Otherwise the bytes may be a
/// client's, from a torn group.
pub fn begun_seal_in(offset: usize, bytes: &[u8]) -> Option<usize> {
    let begin = seal_at(offset) - offset;
    let (before, seal) = bytes.split_at_checked(begin)?;
    let seal = &seal[..seal.len().min(SEAL_BYTES)];
    let written = seal.iter().rposition(|byte| *byte != 0)? + 1;
    let known = written.min(SEAL_MAGIC.len());
    let is_one = before.iter().all(|byte| *byte == 0) && seal[..known] == SEAL_MAGIC[..known];
    is_one.then_some(begin + seal.len())
}

/// Appends the seal to the bytes of a segment, which end with its last record.
pub fn put_seal(bytes: &mut Vec<u8>, salt: Salt, next: Revision) {
    bytes.resize(seal_at(bytes.len()), 0);
    bytes.extend_from_slice(&seal(salt, next));
}

/// Iterator over the records of a segment.
pub struct Records<'a> {
    bytes: &'a [u8],
    salt: Salt,
    at: usize,
    /// Set if the last record read was an end mark.
    is_marked: bool,
}

impl<'a> Records<'a> {
    /// Reads from `offset` of a segment's bytes.
    pub fn new(bytes: &'a [u8], salt: Salt, offset: usize) -> Self {
        Records { bytes, salt, at: offset, is_marked: false }
    }

    /// Returns the offset of the next record, or of the end of the records.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Says whether the records ended with an end mark.
    pub fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Returns the next valid record of changes: its offset and its body. None at the end, or at
    /// damage. Passes over end marks.
    pub fn next_record(&mut self) -> Option<(usize, &'a [u8])> {
        loop {
            let at = self.at;
            let (frame, body) = record::read(self.salt, self.bytes.get(at..)?)?;
            self.at = at + frame.stride();
            // An end mark has no changes. It proves that everything before it was durable.
            self.is_marked = frame.is_mark;
            if !frame.is_mark {
                return Some((at, body));
            }
        }
    }

    /// Classifies the bytes after the last valid record.
    ///
    /// - Zeros to the end are a clean end, and so is a seal.
    /// - In the last segment, a power cut may have left any part of the last group. Then no valid
    ///   record follows, or only records of that group, which one call wrote and no answer
    ///   confirmed.
    /// - A valid record of a *later* group, or an end mark, proves that the bytes here were synced
    ///   once, and are damaged now.
    /// - In an earlier segment all bytes were synced, so any other end is damage.
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
        // The next segment began only after everything here was durable. A failed write may have
        // left the beginning of a seal, which is no damage.
        if !is_last {
            return match begun_seal_in(self.at, rest) {
                Some(end) if rest[end..].iter().all(|byte| *byte == 0) => Ok(Ending::Clean),
                _ => Err(corrupt(file, self.at as u64, "a log record is damaged")),
            };
        }
        let mut from = ALIGNMENT;
        while let Some((distance, frame)) = self.next_valid(rest, from) {
            // A group that starts behind the bad bytes was written after they were synced. A group
            // that starts at or before them is the torn one itself.
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
        // A power cut tears at most one group, because only one is in flight (decision 0017).
        if torn > GROUP_WRITTEN_BYTES_MAX {
            let what = format!(
                "{torn} bytes form no whole commit group, and one has {GROUP_WRITTEN_BYTES_MAX} at most: they are damaged"
            );
            return Err(corrupt(file, self.at as u64, what));
        }
        Ok(Ending::Torn(torn as u64))
    }

    /// Returns the first valid record in `rest` at or after `from`, with its distance from the
    /// start.
    fn next_valid(&self, rest: &[u8], from: usize) -> Option<(usize, Frame)> {
        let mut at = from;
        while at + FRAME_BYTES <= rest.len() {
            // Reserved space is zeros, which are cheaper to compare than to check.
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
    use exacat_model::ErrorKind;

    use super::*;

    /// Goal: a torn write is never longer than one commit group. Method: the limit, and a byte
    /// more.
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

    /// Goal: a seal is read as written. Where another segment follows, any beginning of it is no
    /// damage; where none does, it is no seal. Method: records that end anywhere in a sector; each
    /// beginning of the seal behind them, each bit of it changed.
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
            // The last four bytes of a seal are zeros anyway.
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
