//! Chain of records with one content each: each record has the next revision, and a digest goes over the
//! contents of all. The history of elements and the index of a writer's volume are such logs.

use exacat_disk::corrupt;
use exacat_model::{Fingerprint, OperationId, Result, Revision, TimeMs, UserId};
use xxhash_rust::xxh3::xxh3_128;

use crate::moment::Moment;
use crate::record::{Head, RecordWriter, Salt};
use crate::segment::{CatalogueId, Header};

/// Place in a chain: the last record, and the digest of all records up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordPlace {
    /// Revision of the last record.
    pub revision: Revision,
    /// Digest of the contents up to it.
    pub digest: u128,
    /// Its time.
    pub time: TimeMs,
}

impl RecordPlace {
    /// Returns the place of a moment.
    pub fn of(moment: &Moment) -> Self {
        RecordPlace { revision: moment.revision, digest: moment.digest, time: moment.time }
    }

    /// Returns the moment at this place of an owner's log.
    pub fn moment(&self, log_of: CatalogueId) -> Moment {
        Moment { revision: self.revision, time: self.time, digest: self.digest, log_of }
    }

    /// Returns the revision of the next record.
    pub fn next_revision(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    /// Returns the place after the next record.
    pub fn after(&self, time: TimeMs, content: &[u8]) -> Self {
        let mut chain = [0; 32];
        chain[..16].copy_from_slice(&self.digest.to_le_bytes());
        chain[16..].copy_from_slice(&xxh3_128(content).to_le_bytes());
        RecordPlace { revision: self.next_revision(), digest: xxh3_128(&chain), time }
    }

    /// Appends the next record to a commit group. Returns the place after it.
    pub fn put(&self, group: &mut Vec<u8>, salt: Salt, time: TimeMs, content: &[u8]) -> Self {
        let head = Head {
            first_revision: self.next_revision(),
            time,
            operation: OperationId([0; 16]),
            fingerprint: Fingerprint::UNKNOWN,
            who: UserId(0),
            count: 1,
        };
        let mut record = RecordWriter::begin(group, head);
        record.add_whole(group, content);
        record.end(group, salt);
        self.after(time, content)
    }

    /// Returns the bytes that the record of a content takes at most, with the padding to the next.
    pub fn bytes_of(content: usize) -> usize {
        RecordWriter::bytes_of(content) + RecordWriter::EMPTY_BYTES
    }

    /// Refuses a segment that does not begin here.
    pub fn check_begin(&self, file: &str, header: &Header) -> Result<()> {
        let next = self.next_revision();
        if header.first_revision != next {
            return Err(corrupt(file, 32, format!("the segment begins with another record than {}", next.0)));
        }
        self.check_digest(file, header)
    }

    /// Refuses a segment that was begun after other records.
    pub fn check_digest(&self, file: &str, header: &Header) -> Result<()> {
        match header.digest == self.digest {
            true => Ok(()),
            false => {
                Err(corrupt(file, 56, "the records before this segment are not those it was begun after"))
            }
        }
    }

    /// Refuses a record that is not the next one.
    pub fn check_next(&self, file: &str, offset: u64, head: &Head) -> Result<()> {
        let next = self.next_revision();
        match head.first_revision == next && head.count == 1 {
            true => Ok(()),
            false => {
                let got = head.first_revision.0;
                Err(corrupt(file, offset, format!("record {got} follows where {} should", next.0)))
            }
        }
    }
}
