//! Copies one file in steps, with a checksum of its bytes, and reads it back.

use std::path::PathBuf;
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, cannot_read, cannot_write};
use exacat_model::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::Xxh3;

/// Bytes per read and write.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes written between two syncs: syncing whole files beside a log would delay the log.
const SYNC_BYTES: u64 = 8 << 20;

/// A file that is copied, or only read.
pub(in crate::snapshot) struct Copy {
    from: Box<dyn DiskFile>,
    from_name: String,
    /// Target; none if the file exists already and is only read.
    to: Option<(Arc<dyn DiskFile>, PathBuf)>,
    bytes: u64,
    done: u64,
    unsynced: u64,
    hash: Xxh3,
    buffer: Vec<u8>,
}

impl Copy {
    /// Begins to copy the first `bytes` of a file.
    pub(crate) fn new(disk: &dyn Disk, from: PathBuf, bytes: u64, to: PathBuf) -> Result<Self> {
        let mut copy = Self::reading(disk, from, bytes)?;
        let file = disk.create(&to).map_err(|error| cannot_write(&to, &error))?;
        copy.to = Some((Arc::from(file), to));
        Ok(copy)
    }

    /// Begins to read the first `bytes` of a file.
    pub(crate) fn reading(disk: &dyn Disk, from: PathBuf, bytes: u64) -> Result<Self> {
        let from_name = from.display().to_string();
        let file = disk.open_to_read(&from).map_err(|error| cannot_read(&from_name, &error))?;
        let (hash, buffer) = (Xxh3::new(), Vec::new());
        Ok(Copy { from: file, from_name, to: None, bytes, done: 0, unsynced: 0, hash, buffer })
    }

    /// Continues by up to `bytes_max`; returns the checksum at the end. The copy is durable then,
    /// except for its name.
    pub(crate) fn step(&mut self, bytes_max: u64) -> Result<Option<u128>> {
        let until = self.done.saturating_add(bytes_max).min(self.bytes);
        while self.done < until {
            let wanted = usize::try_from(until - self.done).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            self.buffer.resize(wanted, 0);
            let read = self.from.read_at(&mut self.buffer, self.done);
            let read = read.map_err(|error| cannot_read(&self.from_name, &error))?;
            if read == 0 {
                let what = format!("{} ends {} bytes too early", self.from_name, self.bytes - self.done);
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            let piece = &self.buffer[..read];
            self.hash.update(piece);
            if let Some((to, path)) = &self.to {
                to.write_at(piece, self.done).map_err(|error| cannot_write(path, &error))?;
                self.unsynced += read as u64;
            }
            self.done += read as u64;
            if self.unsynced >= SYNC_BYTES {
                self.sync()?;
            }
        }
        if self.done < self.bytes {
            return Ok(None);
        }
        if self.to.is_some() {
            self.sync()?;
        }
        Ok(Some(self.hash.digest128()))
    }

    /// Returns the bytes read so far.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    fn sync(&mut self) -> Result<()> {
        self.unsynced = 0;
        match &self.to {
            Some((to, path)) => to.sync().map_err(|error| cannot_write(path, &error)),
            None => Ok(()),
        }
    }
}
