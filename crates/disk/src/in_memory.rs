//! Bytes in memory that readers take for a file, or for a part of one.

use std::io;

use crate::disk::DiskFile;

/// Bytes that begin at a place of a file. Nothing can be written, and nothing is before them.
pub struct InMemory<B> {
    at: u64,
    bytes: B,
}

impl<B: AsRef<[u8]>> InMemory<B> {
    /// Makes a file of bytes.
    pub fn new(bytes: B) -> Self {
        InMemory::from(0, bytes)
    }

    /// Makes the end of a file, which begins at a place.
    pub fn from(at: u64, bytes: B) -> Self {
        InMemory { at, bytes }
    }
}

fn refused() -> io::Result<()> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl<B: AsRef<[u8]> + Send + Sync> DiskFile for InMemory<B> {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = offset.checked_sub(self.at).and_then(|from| usize::try_from(from).ok());
        let from = from.and_then(|from| self.bytes.as_ref().get(from..)).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn preallocate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.at + self.bytes.as_ref().len() as u64)
    }
}
