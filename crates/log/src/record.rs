//! Log records: encode and decode the request that a record belongs to, and its frame.
//! `docs/internals/log-format.md` has every byte.
//!
//! These are pure functions. `segment.rs` knows the positions of records.

use exacat_disk::fixed::u32_at;
use exacat_model::codec::{Decode, DecodeError, Reader, put_bytes, put_varint};
use exacat_model::{Fingerprint, OperationId, Revision, TimeMs, UserId};

use crate::limits::RECORD_BYTES_MAX;

/// Records begin at multiples of this, so that a search in damaged bytes is quick.
pub const ALIGNMENT: usize = 8;
/// Bytes before a record's body.
pub const FRAME_BYTES: usize = 16;
/// Bytes before the changes in a body of changes, without a fingerprint.
const HEAD_BYTES: usize = 40;
/// Offset of the operation id in a body of changes: it follows the first revision and the time.
const OPERATION_OFFSET: usize = 16;
/// Maximum bytes before the changes in a body of changes.
pub const HEAD_BYTES_MAX: usize = HEAD_BYTES + size_of::<u64>();
/// Flag in the number of changes: a fingerprint follows it.
const FINGERPRINTED: u32 = 1 << 31;
/// A record of changes.
const TYPE_CHANGES: u8 = 1;
/// Type of an end mark: everything before it in its segment was durable when it was written.
/// Segments have marks from version 2 on.
const TYPE_MARK: u8 = 2;
/// Bytes of an end mark's body: the revision of the last change before it.
const MARK_BODY_BYTES: usize = 8;
/// Bytes of an end mark.
pub const MARK_BYTES: usize = FRAME_BYTES + MARK_BODY_BYTES;

/// Salt of a segment, mixed into every checksum of its records. Each segment has a random one. So a
/// client cannot send bytes that pass for a record, and no record of another file passes for one of
/// this.
pub type Salt = u64;

/// The request that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Revision of the first change; the others follow without gap.
    pub first_revision: Revision,
    /// Time of the commit.
    pub time: TimeMs,
    /// Id that recognises a repeated request.
    pub operation: OperationId,
    /// Unknown for a request without one, and in logs of the first format.
    pub fingerprint: Fingerprint,
    /// User of the request.
    pub who: UserId,
    /// Number of changes.
    pub count: u32,
}

impl Head {
    /// Returns the revision of the last change.
    pub fn last_revision(&self) -> Revision {
        Revision(self.first_revision.0.saturating_add(u64::from(self.count).saturating_sub(1)))
    }
}

/// Position of a record, as its frame has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of the body.
    pub body_bytes: usize,
    /// Bytes from the start of the group that the record was written with.
    pub group_bytes: u32,
    /// True for an end mark, which has no changes.
    pub is_mark: bool,
}

impl Frame {
    /// Returns the bytes from this record's start to the next one's.
    pub fn stride(&self) -> usize {
        (FRAME_BYTES + self.body_bytes).next_multiple_of(ALIGNMENT)
    }
}

fn checksum(salt: Salt, record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&record[..4]);
    // Bytes 4 to 7 hold the checksum itself.
    hasher.update(&record[8..]);
    hasher.finalize()
}

/// Reads the frame at the start of `bytes`; none if no record can begin with it.
pub fn read_frame(bytes: &[u8]) -> Option<Frame> {
    let frame = bytes.get(..FRAME_BYTES)?;
    let body_bytes = u32_at(frame, 0) as usize;
    let is_mark = frame[12] == TYPE_MARK;
    // Cheap checks come first: a search in damaged bytes tries every multiple of `ALIGNMENT`.
    let plausible = match frame[12] {
        TYPE_CHANGES => (HEAD_BYTES..=RECORD_BYTES_MAX).contains(&body_bytes),
        TYPE_MARK => body_bytes == MARK_BODY_BYTES,
        _ => false,
    };
    (plausible && frame[13..16] == [0; 3]).then(|| Frame {
        body_bytes,
        group_bytes: u32_at(frame, 8),
        is_mark,
    })
}

/// Returns an end mark behind the change of this revision.
pub fn mark(salt: Salt, last: Revision) -> [u8; MARK_BYTES] {
    let mut record = [0; MARK_BYTES];
    record[0..4].copy_from_slice(&(MARK_BODY_BYTES as u32).to_le_bytes());
    record[12] = TYPE_MARK;
    record[FRAME_BYTES..].copy_from_slice(&last.0.to_le_bytes());
    let crc = checksum(salt, &record);
    record[4..8].copy_from_slice(&crc.to_le_bytes());
    record
}

/// Reads and checks the record at the start of `bytes`: its frame and its body. None if there is no
/// valid one.
pub fn read(salt: Salt, bytes: &[u8]) -> Option<(Frame, &[u8])> {
    let frame = read_frame(bytes)?;
    let record = bytes.get(..FRAME_BYTES + frame.body_bytes)?;
    let padding = bytes.get(record.len()..frame.stride())?;
    // The checksum does not cover the padding, which must be zeros: no byte may change unnoticed.
    let valid = u32_at(record, 4) == checksum(salt, record) && padding.iter().all(|byte| *byte == 0);
    valid.then(|| (frame, &record[FRAME_BYTES..]))
}

/// Reads the request that a record belongs to.
pub fn read_head(body: &[u8]) -> Result<Head, DecodeError> {
    split_head(body).map(|(head, _)| head)
}

/// Reads the request that a record belongs to, and returns the bytes behind it: the changes.
pub fn split_head(body: &[u8]) -> Result<(Head, &[u8]), DecodeError> {
    let mut reader = Reader::new(body);
    let head = head_of(&mut reader)?;
    Ok((head, reader.rest()))
}

fn fixed_u64(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    Ok(u64::from_le_bytes(<[u8; 8]>::decode(reader)?))
}

fn fixed_u32(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    Ok(u32::from_le_bytes(<[u8; 4]>::decode(reader)?))
}

fn head_of(reader: &mut Reader<'_>) -> Result<Head, DecodeError> {
    let first_revision = Revision(fixed_u64(reader)?);
    let time = TimeMs(fixed_u64(reader)?);
    let operation = OperationId::decode(reader)?;
    let who = UserId(fixed_u32(reader)?);
    let count = fixed_u32(reader)?;
    let fingerprint = match count & FINGERPRINTED {
        0 => Fingerprint::UNKNOWN,
        _ => Fingerprint(fixed_u64(reader)?),
    };
    Ok(Head { first_revision, time, operation, fingerprint, who, count: count & !FINGERPRINTED })
}

/// A record being written at the end of a group's bytes.
pub struct RecordWriter {
    /// Offset in the group's bytes at which the record begins.
    start: usize,
    /// Number of changes so far.
    count: u32,
    /// Flags for the number of changes.
    flags: u32,
}

impl RecordWriter {
    /// Begins a record at the end of `group`, whose bytes begin with a record too.
    pub fn begin(group: &mut Vec<u8>, head: Head) -> Self {
        let start = group.len();
        group.extend_from_slice(&[0; FRAME_BYTES]);
        group.extend_from_slice(&head.first_revision.0.to_le_bytes());
        group.extend_from_slice(&head.time.0.to_le_bytes());
        group.extend_from_slice(&head.operation.0);
        group.extend_from_slice(&head.who.0.to_le_bytes());
        // `end` fills the number of changes in, once it is known.
        group.extend_from_slice(&[0; 4]);
        let flags = match head.fingerprint {
            Fingerprint::UNKNOWN => 0,
            Fingerprint(fingerprint) => {
                group.extend_from_slice(&fingerprint.to_le_bytes());
                FINGERPRINTED
            }
        };
        RecordWriter { start, count: 0, flags }
    }

    /// Adds a change: the index of its mutation in the request, and its encoded effect.
    pub fn add(&mut self, group: &mut Vec<u8>, index: u32, effect: &[u8]) {
        put_varint(group, u64::from(index));
        put_bytes(group, effect);
        self.count += 1;
    }

    /// Adds a change that needs no index and no length: the only one of its record.
    pub fn add_whole(&mut self, group: &mut Vec<u8>, content: &[u8]) {
        group.extend_from_slice(content);
        self.count += 1;
    }

    /// Replaces the operation id of the record.
    pub fn set_operation(&self, group: &mut [u8], operation: OperationId) {
        let at = self.start + FRAME_BYTES + OPERATION_OFFSET;
        group[at..at + operation.0.len()].copy_from_slice(&operation.0);
    }

    /// Returns the bytes of the record so far.
    pub fn bytes(&self, group: &[u8]) -> usize {
        group.len() - self.start
    }

    /// Completes the record: count, length, checksum, padding.
    pub fn end(self, group: &mut Vec<u8>, salt: Salt) {
        let body_bytes = group.len() - self.start - FRAME_BYTES;
        let record = &mut group[self.start..];
        // Both fit into 32 bits: a group has COMMIT_GROUP_BYTES_MAX and one request, a record
        // RECORD_BYTES_MAX.
        record[0..4].copy_from_slice(&(body_bytes as u32).to_le_bytes());
        record[8..12].copy_from_slice(&(self.start as u32).to_le_bytes());
        record[12] = TYPE_CHANGES;
        let count = self.count | self.flags;
        record[FRAME_BYTES + 36..FRAME_BYTES + 40].copy_from_slice(&count.to_le_bytes());
        // The checksum comes last, because it covers all fields above.
        let crc = checksum(salt, record);
        record[4..8].copy_from_slice(&crc.to_le_bytes());
        group.resize(group.len().next_multiple_of(ALIGNMENT), 0);
    }

    /// Returns the maximum number of bytes that an effect of this length adds to a record, with
    /// padding.
    pub fn bytes_of(effect_bytes: usize) -> usize {
        // A varint of 32 bits takes up to 5 bytes: the index, and the length of the effect.
        effect_bytes + 5 + 5 + ALIGNMENT
    }

    /// Bytes of an empty record.
    pub const EMPTY_BYTES: usize = FRAME_BYTES + HEAD_BYTES_MAX;
}
