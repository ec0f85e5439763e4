//! Small files that are written whole: manifest, names, latest values. Compressed, with a checksum.
//!
//! ```text
//! 0 magic 8 · 8 version u16 · 10 kind u16 · 12 group u32 · 16 history 16 · 32 length u64 · 40 zeros 20
//! 60 CRC of bytes 0 to 59
//! 64 content, zstd · CRC of the content as in the file
//! ```
//! The length is that of the content before it was compressed. `history` is the random id of the
//! history, so no file of another one passes for one of this.

use std::path::Path;

use exacat_disk::fixed::{part, u32_at, u64_at};
use exacat_disk::{Disk, cannot_read, cannot_write, corrupt, header, read_whole, write_small};
use exacat_model::Result;

/// Random id of a history.
pub(crate) type HistoryId = [u8; 16];

const MAGIC: [u8; 8] = *b"exacatHF";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 64;
/// Level of compression: names repeat their beginnings, and this finds most of it.
const LEVEL: i32 = 1;
/// Bytes of content: a group's names at their limits take less.
const CONTENT_BYTES_MAX: u64 = 16 << 30;

/// Kind of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Manifest = 1,
    Names = 2,
    Latest = 3,
}

/// Owner and kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHead {
    pub history: HistoryId,
    pub kind: FileKind,
    /// 0 for the manifest.
    pub group: u32,
}

impl FileHead {
    fn encode(&self, length: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.group.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.history);
        bytes[32..40].copy_from_slice(&length.to_le_bytes());
        header::seal(&mut bytes);
        bytes
    }

    /// Returns the bytes of a file with this content.
    pub(crate) fn pack(&self, content: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut bytes = self.encode(content.len() as u64).to_vec();
        let packed = zstd::bulk::compress(content, LEVEL)?;
        bytes.extend_from_slice(&packed);
        bytes.extend_from_slice(&crc32fast::hash(&packed).to_le_bytes());
        Ok(bytes)
    }

    /// Writes a file and makes its bytes durable; the caller syncs the directory.
    pub(crate) fn write(&self, disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<()> {
        let written = self.pack(content).and_then(|bytes| write_small(disk, path, &bytes));
        written.map_err(|error| cannot_write(path, &error))
    }

    /// Checks the bytes of a file, and returns its content.
    pub(crate) fn unpack(&self, file: &str, bytes: &[u8]) -> Result<Vec<u8>> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(corrupt(file, 0, "the file is cut off"));
        };
        if head[..8] != MAGIC {
            return Err(corrupt(file, 0, "this is no file of a history"));
        }
        header::check(file, head, VERSION)?;
        let found = (part::<16>(head, 16), u16::from_le_bytes(part(head, 10)), u32_at(head, 12));
        if found != (self.history, self.kind as u16, self.group) {
            return Err(corrupt(
                file,
                10,
                "the file is another history's, another group's, or of another kind",
            ));
        }
        let length = u64_at(head, 32);
        let Some((packed, sum)) = rest.split_last_chunk::<4>() else {
            return Err(corrupt(file, HEADER_BYTES as u64, "the file is cut off"));
        };
        if crc32fast::hash(packed).to_le_bytes() != *sum || length > CONTENT_BYTES_MAX {
            return Err(corrupt(file, HEADER_BYTES as u64, "the content fails its checksum"));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match zstd::bulk::decompress(packed, length) {
            Ok(content) if content.len() == length => Ok(content),
            Ok(_) => Err(corrupt(file, 32, "the content has another length than the header says")),
            Err(error) => Err(corrupt(file, HEADER_BYTES as u64, error)),
        }
    }

    /// Reads a file, and checks it.
    pub(crate) fn read(&self, disk: &dyn Disk, path: &Path) -> Result<Vec<u8>> {
        let name = path.display().to_string();
        let bytes = disk.open_to_read(path).and_then(|file| read_whole(&*file));
        self.unpack(&name, &bytes.map_err(|error| cannot_read(&name, &error))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: FileHead = FileHead { history: *b"a golden history", kind: FileKind::Names, group: 7 };

    /// A file comes back as written; with any bit changed, or cut anywhere, it is refused.
    #[test]
    fn damaged_file_is_refused() {
        let bytes = HEAD.pack(b"names, names, names").unwrap();
        assert_eq!(HEAD.unpack("f", &bytes).unwrap(), b"names, names, names");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(HEAD.unpack("f", &damaged).is_err(), "bit {bit} of byte {at}");
            }
            assert!(HEAD.unpack("f", &bytes[..at]).is_err(), "cut at {at}");
        }
    }

    /// A file of another history, group or kind is refused.
    #[test]
    fn foreign_file_is_refused() {
        let bytes = HEAD.pack(b"x").unwrap();
        let others = [
            FileHead { history: [1; 16], ..HEAD },
            FileHead { kind: FileKind::Latest, ..HEAD },
            FileHead { group: 8, ..HEAD },
        ];
        assert!(others.iter().all(|other| other.unpack("f", &bytes).is_err()));
    }
}
