//! Small stored files of a volume, with their checksums: the checkpoint of the index, and the chunks
//! beside a sealed part.

use std::path::Path;

use exacat_disk::fixed::{part, u64_at};
use exacat_disk::{Disk, cannot_read, corrupt, header, read_whole};
use exacat_model::Result;
use exacat_model::codec::Encode;

use crate::item::{Item, read_items};

const MAGIC: [u8; 8] = *b"exacatWV";
/// Version of these files that this release writes.
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 80;

/// Identity of a volume; also the owner of its log.
pub(crate) type VolumeId = [u8; 16];

/// Kind of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum StoredKind {
    /// The index up to a revision of the log.
    Checkpoint = 1,
    /// One sealed part and all its chunks.
    Part = 2,
}

/// Head of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredHead {
    /// The volume.
    pub volume: VolumeId,
    /// The kind.
    pub kind: StoredKind,
    /// Last revision that a checkpoint has; 0 for a part.
    pub revision: u64,
    /// Digest of the records up to it.
    pub digest: u128,
}

impl StoredHead {
    /// Returns the bytes of a file with these items.
    pub(crate) fn pack(&self, items: &[Item]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        items.iter().for_each(|item| item.encode(&mut bytes));
        let length = (bytes.len() - HEADER_BYTES) as u64;
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.volume);
        bytes[32..40].copy_from_slice(&length.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.revision.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.digest.to_le_bytes());
        header::seal(&mut bytes[..HEADER_BYTES]);
        let sum = crc32fast::hash(&bytes[HEADER_BYTES..]);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a file of a kind. Another volume is accepted only where the caller has none to name: parts
    /// are adopted with their disk.
    pub(crate) fn unpack(file: &str, bytes: &[u8], kind: StoredKind) -> Result<(Self, Vec<Item>)> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(corrupt(file, 0, "the file is cut off"));
        };
        if head[..8] != MAGIC {
            return Err(corrupt(file, 0, "this is no file of a writer's volume"));
        }
        header::check(file, head, VERSION)?;
        if u16::from_le_bytes(part(head, 10)) != kind as u16 {
            return Err(corrupt(file, 10, "the file is of another kind"));
        }
        let Some((content, sum)) = rest.split_last_chunk::<4>() else {
            return Err(corrupt(file, HEADER_BYTES as u64, "the file is cut off"));
        };
        if content.len() as u64 != u64_at(head, 32) || crc32fast::hash(content).to_le_bytes() != *sum {
            return Err(corrupt(file, HEADER_BYTES as u64, "the content fails its checksum"));
        }
        let items = read_items(content)
            .map_err(|error| corrupt(file, (HEADER_BYTES + content.len() - error.remaining) as u64, error))?;
        let digest = u128::from_le_bytes(part(head, 48));
        Ok((StoredHead { volume: part(head, 16), kind, revision: u64_at(head, 40), digest }, items))
    }

    /// Reads a file; none if it does not exist.
    pub(crate) fn read(disk: &dyn Disk, path: &Path, kind: StoredKind) -> Result<Option<(Self, Vec<Item>)>> {
        let name = path.display().to_string();
        match disk.open_to_read(path).and_then(|file| read_whole(&*file)) {
            Ok(bytes) => Self::unpack(&name, &bytes, kind).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot_read(&name, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use exacat_wire::writer::FileId;

    use super::*;
    use crate::item::FileStage;

    /// Property: a file comes back as written; with any bit changed, or cut anywhere, it is refused.
    #[test]
    fn damaged_stored_file_is_refused() {
        let head =
            StoredHead { volume: [3; 16], kind: StoredKind::Checkpoint, revision: 9, digest: 1 << 100 };
        let stage = FileStage::Failed;
        let items = vec![Item::Stage { file: FileId([5; 16]), stage, reason: "lost".to_owned() }];
        let bytes = head.pack(&items);
        assert_eq!(StoredHead::unpack("f", &bytes, head.kind).unwrap(), (head, items));
        assert!(StoredHead::unpack("f", &bytes, StoredKind::Part).is_err());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(StoredHead::unpack("f", &damaged, head.kind).is_err(), "bit {bit} of byte {at}");
            }
            assert!(StoredHead::unpack("f", &bytes[..at], head.kind).is_err(), "cut at {at}");
        }
    }
}
