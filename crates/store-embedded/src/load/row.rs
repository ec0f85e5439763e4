//! Files of a bulk load, packed once with everything that log, page and counters need. After the
//! sorting, bytes are only copied together.
//!
//! ```text
//! 0 bytes of the row u32 · 4 shape u32 · 8 rest u32 · 12 after u32 · 16 directory u64
//! 24 number u64 · 32 GUID 16 · 48 size u64 · 56 job u64 · 64 created u64 · 72 modified u64
//! 80 owner u32 · 84 group u32 · 88 flags u8 · 89 name u8 · 90 before u8 · 91 digest u8
//! 92 places u8 · 93 zeros · 96 name · before · after · shape · rest · digest · places
//! ```
//! *Before* are an entry's canonical bytes between its name and its times, *after* those behind its
//! revision. A place is an SE's number u16 and whether the replica takes space u8. The format lives
//! only as long as a load, so it has no version.

use exacat_disk::fixed::{part, u32_at, u64_at};
use exacat_model::codec::{put_bytes, put_varint};
use exacat_model::{DirId, GroupId, Guid, Revision, SeNumber, TimeMs, Usage, UserId};

use crate::page::Row;

pub(super) const HEAD_BYTES: usize = 96;
const PLACE_BYTES: usize = 3;
pub(super) const SIZE_KNOWN: u8 = 1;
pub(super) const CREATED_GIVEN: u8 = 2;
pub(super) const MODIFIED_GIVEN: u8 = 4;
/// Number of the effect, before the entry's canonical bytes.
const CREATED_EFFECT: u8 = 1;

/// A packed file with borrowed parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    /// Bytes of the whole.
    pub bytes: &'a [u8],
    pub name: &'a [u8],
    before: &'a [u8],
    after: &'a [u8],
    shape: &'a [u8],
    rest: &'a [u8],
    digest: &'a [u8],
    places: &'a [u8],
}

/// Cuts `count` bytes off the front.
fn cut<'a>(left: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = left.split_at_checked(count)?;
    *left = tail;
    Some(head)
}

/// Returns the name and the number of the packed file at the start of `bytes`, the only parts that
/// sorting reads.
pub(super) fn name_and_number(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let length = usize::from(*bytes.get(89)?);
    Some((bytes.get(HEAD_BYTES..HEAD_BYTES + length)?, u64_at(bytes, 24)))
}

impl<'a> Placed<'a> {
    /// Reads the packed file at the start of `bytes`; none if it is incomplete.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let bytes = bytes.get(..length)?;
        let mut left = bytes;
        let head = cut(&mut left, HEAD_BYTES)?;
        let long = |at: usize| u32_at(head, at) as usize;
        let name = cut(&mut left, usize::from(head[89]))?;
        let before = cut(&mut left, usize::from(head[90]))?;
        let after = cut(&mut left, long(12))?;
        let shape = cut(&mut left, long(4))?;
        let rest = cut(&mut left, long(8))?;
        let digest = cut(&mut left, usize::from(head[91]))?;
        let places = cut(&mut left, usize::from(head[92]) * PLACE_BYTES)?;
        left.is_empty().then_some(Placed { bytes, name, before, after, shape, rest, digest, places })
    }

    pub(crate) fn parent(&self) -> DirId {
        DirId(u64_at(self.bytes, 16))
    }

    /// Returns the number that identifies it.
    pub(crate) fn number(&self) -> u64 {
        u64_at(self.bytes, 24)
    }

    pub(crate) fn guid(&self) -> Guid {
        Guid(part(self.bytes, 32))
    }

    pub(crate) fn owner(&self) -> UserId {
        UserId(u32_at(self.bytes, 80))
    }

    pub(crate) fn group(&self) -> GroupId {
        GroupId(u32_at(self.bytes, 84))
    }

    fn flag(&self, flag: u8) -> bool {
        self.bytes[88] & flag != 0
    }

    /// Returns its SEs, each with whether the replica takes space there.
    pub(crate) fn places(&self) -> impl Iterator<Item = (SeNumber, bool)> + use<'a> {
        let places = self.places.chunks_exact(PLACE_BYTES);
        places.map(|place| (SeNumber(u16::from_le_bytes([place[0], place[1]])), place[2] != 0))
    }

    /// Returns its usage.
    pub(crate) fn usage(&self) -> Usage {
        let bytes = u128::from(self.size());
        let replicas = self.places().filter(|(_, takes_space)| *takes_space).count() as u64;
        let replica_bytes = bytes * u128::from(replicas);
        Usage { files: 1, bytes, replicas, replica_bytes, ..Usage::default() }
    }

    /// Returns its size in bytes; 0 if unknown.
    pub(crate) fn size(&self) -> u64 {
        if self.flag(SIZE_KNOWN) { u64_at(self.bytes, 48) } else { 0 }
    }

    fn times(&self, now: TimeMs) -> (u64, u64) {
        let given = |flag, at| if self.flag(flag) { u64_at(self.bytes, at) } else { now.0 };
        (given(CREATED_GIVEN, 64), given(MODIFIED_GIVEN, 72))
    }

    /// Writes the canonical bytes of the effect that creates it into `out`, which is cleared first.
    /// The first byte is the effect's number, the others are the entry's.
    pub(crate) fn effect(&self, revision: Revision, now: TimeMs, out: &mut Vec<u8>) {
        let (created, modified) = self.times(now);
        out.clear();
        out.push(CREATED_EFFECT);
        put_varint(out, u64_at(self.bytes, 16));
        put_bytes(out, self.name);
        out.extend_from_slice(self.before);
        put_varint(out, created);
        put_varint(out, modified);
        put_varint(out, revision.0);
        out.extend_from_slice(self.after);
    }

    /// Returns its row.
    pub(crate) fn row(&self, revision: Revision, now: TimeMs) -> Row<'a> {
        let (created, modified) = self.times(now);
        Row {
            parent: self.parent(),
            name: self.name,
            shape: self.shape,
            id: part(self.bytes, 32),
            size: u64_at(self.bytes, 48),
            job: u64_at(self.bytes, 56),
            created,
            modified,
            revision: revision.0,
            checksum: self.digest,
            rest: self.rest,
        }
    }
}
