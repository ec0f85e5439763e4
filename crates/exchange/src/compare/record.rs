//! Records of a comparison: facts about a path, each from one source.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::{Checksum, Checksums, Guid, ReplicaState, Revision, TimeMs};

/// Source of a record; the first byte of its rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Source {
    /// A line of the dump.
    Dump = 1,
    /// A copy in the later state of the catalogue.
    After = 2,
    /// A copy in the earlier state.
    Before = 3,
    /// A change between both states.
    Touched = 4,
    /// A deletion that waits in the later state.
    Deletion = 5,
    /// A deletion that waited in the earlier state.
    DeletionBefore = 6,
    /// An upload that was in progress in either state.
    Upload = 7,
}

/// A copy of a file, as the catalogue has it.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueCopy {
    /// The file.
    pub guid: Guid,
    /// State of the copy.
    pub state: ReplicaState,
    /// Version of the file's entry.
    pub revision: Revision,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Known checksums.
    pub checksums: Checksums,
}

exacat_model::canonical_struct!(CatalogueCopy { guid, state, revision, size, checksums });

/// A physical copy that waits for its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingDeletion {
    /// Id, as `se deleted` takes it.
    pub id: String,
    /// Time at which it entered the queue.
    pub queued: TimeMs,
    /// Bytes, if known.
    pub size: Option<u64>,
}

exacat_model::canonical_struct!(WaitingDeletion { id, queued, size });

/// A file on the storage, as the dump has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Bytes, if the dump has them.
    pub size: Option<u64>,
    /// Checksum, if the dump has one.
    pub checksum: Option<Checksum>,
}

exacat_model::canonical_struct!(StoredFile { size, checksum });

/// A decoded record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fact {
    /// Line of the dump.
    Dump(StoredFile),
    /// Copy in the later state.
    After(CatalogueCopy),
    /// Copy in the earlier state: its file, and its own state.
    Before(Guid, ReplicaState),
    /// Change between both states.
    Touched,
    /// Deletion that waits in the later state.
    Deletion(WaitingDeletion),
    /// Deletion that waited in the earlier state.
    DeletionBefore,
    /// Upload that was in progress in either state.
    Upload,
}

impl Fact {
    /// Appends the rest of a record.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Fact::Dump(file) => {
                out.push(Source::Dump as u8);
                file.encode(out);
            }
            Fact::After(copy) => {
                out.push(Source::After as u8);
                copy.encode(out);
            }
            Fact::Before(guid, state) => {
                out.push(Source::Before as u8);
                guid.encode(out);
                state.encode(out);
            }
            Fact::Touched => out.push(Source::Touched as u8),
            Fact::Deletion(deletion) => {
                out.push(Source::Deletion as u8);
                deletion.encode(out);
            }
            Fact::DeletionBefore => out.push(Source::DeletionBefore as u8),
            Fact::Upload => out.push(Source::Upload as u8),
        }
    }

    /// Decodes the rest of a record.
    pub(crate) fn read(rest: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(rest);
        Ok(match reader.byte()? {
            1 => Fact::Dump(Decode::decode(&mut reader)?),
            2 => Fact::After(Decode::decode(&mut reader)?),
            3 => Fact::Before(Decode::decode(&mut reader)?, Decode::decode(&mut reader)?),
            4 => Fact::Touched,
            5 => Fact::Deletion(Decode::decode(&mut reader)?),
            6 => Fact::DeletionBefore,
            7 => Fact::Upload,
            _ => return Err(reader.error("a record of an unknown source")),
        })
    }
}

/// Records on their way to the sorting thread: for each one the length of its key, its key, the length
/// of its rest, its rest.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    rest: Vec<u8>,
    records: u64,
}

impl Batch {
    /// Adds a record.
    pub(crate) fn push(&mut self, key: &str, fact: &Fact) {
        self.rest.clear();
        fact.put(&mut self.rest);
        exacat_model::codec::put_bytes(&mut self.bytes, key.as_bytes());
        exacat_model::codec::put_bytes(&mut self.bytes, &self.rest);
        self.records += 1;
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of records.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Passes each key and rest to `take`.
    pub(crate) fn each<E: From<DecodeError>>(
        &self,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = Reader::new(&self.bytes);
        while !reader.is_empty() {
            let key = reader.bytes()?;
            take(key, reader.bytes()?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::ChecksumAlgorithm;

    use super::*;

    /// A record reads back as written, alone and in a batch.
    #[test]
    fn facts_read_back() {
        let checksum = Checksum::new(ChecksumAlgorithm::Adler32, &[1, 2, 3, 4]).unwrap();
        let facts = [
            Fact::Dump(StoredFile { size: Some(7), checksum: Some(checksum) }),
            Fact::Dump(StoredFile { size: None, checksum: None }),
            Fact::After(CatalogueCopy {
                guid: Guid([9; 16]),
                state: ReplicaState::Suspect,
                revision: Revision(300),
                size: Some(u64::MAX),
                checksums: Checksums::one(checksum),
            }),
            Fact::Before(Guid([1; 16]), ReplicaState::Lost),
            Fact::Touched,
            Fact::Deletion(WaitingDeletion { id: "1.2.ab".to_owned(), queued: TimeMs(5), size: None }),
            Fact::DeletionBefore,
            Fact::Upload,
        ];
        let mut batch = Batch::default();
        for fact in &facts {
            let mut bytes = Vec::new();
            fact.put(&mut bytes);
            assert_eq!(Fact::read(&bytes).unwrap(), *fact);
            batch.push("/k", fact);
        }
        let mut found = Vec::new();
        batch
            .each(|key, rest| -> Result<(), DecodeError> {
                assert_eq!(key, b"/k");
                found.push(Fact::read(rest)?);
                Ok(())
            })
            .unwrap();
        assert_eq!(found, facts);
        assert_eq!(batch.records(), 8);
        assert!(Fact::read(&[]).is_err() && Fact::read(&[9]).is_err());
    }
}
