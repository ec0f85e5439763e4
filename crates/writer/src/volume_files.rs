//! Files with the bytes of a volume: its parts, and the chunks beside the sealed ones.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, corrupt, replace_small};
use exacat_model::{Error, Result};
use exacat_wire::writer::{ByteRange, ChunkRecord};

use crate::item::Item;
use crate::origin::PartKey;
use crate::stored::{StoredHead, StoredKind, VolumeId};

/// Ending of the file with the chunks of a sealed part.
const CHUNKS: &str = ".chunks";
/// File that is locked while a process has the volume open.
pub const LOCK: &str = "LOCK";

/// Files of a volume's parts.
pub(crate) struct VolumeFiles {
    /// Disk of all files.
    pub disk: Arc<dyn Disk>,
    /// Directory of the volume.
    pub root: PathBuf,
    /// The volume.
    pub id: VolumeId,
}

impl VolumeFiles {
    /// Returns the directory of the parts.
    pub(crate) fn parts(&self) -> PathBuf {
        self.root.join("parts")
    }

    /// Returns the path of the bytes of a part.
    pub(crate) fn path(&self, part: PartKey) -> PathBuf {
        self.parts().join(part.file_name())
    }

    fn chunks_name(part: PartKey) -> String {
        format!("{}{CHUNKS}", part.file_name())
    }

    /// Returns the path of the chunks beside a part.
    pub(crate) fn chunks_path(&self, part: PartKey) -> PathBuf {
        self.parts().join(Self::chunks_name(part))
    }

    /// Returns the bytes of the file with the chunks of a part.
    pub(crate) fn packed_chunks(&self, items: &[Item]) -> Vec<u8> {
        StoredHead { volume: self.id, kind: StoredKind::Part, revision: 0, digest: 0 }.pack(items)
    }

    /// Replaces the chunks beside a part, durably.
    pub(crate) fn write_chunks(&self, part: PartKey, items: &[Item]) -> io::Result<()> {
        replace_small(&*self.disk, &self.parts(), &Self::chunks_name(part), &self.packed_chunks(items))
    }

    /// Reads the chunks beside a part; none if the file is missing.
    pub(crate) fn stored_chunks(&self, part: PartKey) -> Result<Option<Vec<ChunkRecord>>> {
        let path = self.chunks_path(part);
        let Some((_, items)) = StoredHead::read(&*self.disk, &path, StoredKind::Part)? else {
            return Ok(None);
        };
        let of_part = items.into_iter().filter_map(|item| match item {
            Item::Durable { part: of, chunks } if of == part => Some(chunks),
            _ => None,
        });
        Ok(Some(of_part.flatten().collect()))
    }

    /// Returns the error for the missing chunks of a part.
    pub(crate) fn chunks_missing(&self, part: PartKey) -> Error {
        corrupt(&self.chunks_path(part).display().to_string(), 0, "the file is missing")
    }

    /// Returns the name of the data file that a file of the directory belongs to.
    pub(crate) fn part_of_name(name: &str) -> &str {
        name.strip_suffix(CHUNKS).unwrap_or(name)
    }

    /// Returns the names in the directory of parts.
    pub(crate) fn part_names(&self) -> Result<Vec<String>> {
        let parts = self.parts();
        self.disk.list(&parts).map_err(|error| cannot_read(&parts.display().to_string(), &error))
    }

    /// Reads bytes of a part.
    pub(crate) fn read(&self, part: PartKey, range: ByteRange) -> Result<Vec<u8>> {
        let path = self.path(part);
        let name = path.display().to_string();
        let length = usize::try_from(range.to - range.from).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        let file = self.disk.open_to_read(&path);
        let read = file.and_then(|file| file.read_at(&mut bytes, range.from));
        match read.map_err(|error| cannot_read(&name, &error))? {
            count if count == length => Ok(bytes),
            count => Err(corrupt(&name, range.from + count as u64, "the part ends before its last chunk")),
        }
    }
}
