//! Files of traces, kept by the service under the hash of their bytes: the operator's file may change or go.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use exacat_disk::{Disk, cannot_read, cannot_write, exists};
use exacat_model::Result;
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Kept file of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceFile {
    /// Hash of its bytes.
    pub fingerprint: u64,
}

impl TraceFile {
    /// Returns its path.
    pub(crate) fn path(self, directory: &Path) -> PathBuf {
        directory.join(format!("{:016x}.trace", self.fingerprint))
    }
}

/// Passes the bytes of a file on, piece by piece. Returns their hash.
fn read_all(path: &Path, take: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<u64> {
    let name = path.display().to_string();
    let wrong = |error: std::io::Error| cannot_read(&name, &error);
    let mut file = File::open(path).map_err(wrong)?;
    let (mut hash, mut offset, mut piece) = (Xxh3::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        let count = file.read(&mut piece).map_err(wrong)?;
        if count == 0 {
            return Ok(hash.digest());
        }
        hash.update(&piece[..count]);
        take(&piece[..count], offset)?;
        offset += count as u64;
    }
}

/// Returns the hash of a file's bytes.
pub(crate) fn fingerprint(path: &Path) -> Result<u64> {
    read_all(path, &mut |_, _| Ok(()))
}

/// Copies a trace into a directory, durably, unless it is there.
pub(crate) fn copy_trace(disk: &dyn Disk, from: &Path, directory: &Path) -> Result<TraceFile> {
    let unfinished = directory.join(".new");
    let wrong = |error: std::io::Error| cannot_write(&unfinished, &error);
    let kept = TraceFile { fingerprint: fingerprint(from)? };
    let path = kept.path(directory);
    if exists(disk, &path).map_err(wrong)? {
        return Ok(kept);
    }
    let file = disk.create(&unfinished).map_err(wrong)?;
    // The hash of what was copied: the operator's file may change meanwhile.
    let copied = read_all(from, &mut |piece, offset| file.write_at(piece, offset).map_err(wrong))?;
    file.sync().map_err(wrong)?;
    let kept = TraceFile { fingerprint: copied };
    disk.rename(&unfinished, &kept.path(directory)).map_err(wrong)?;
    disk.sync_directory(directory).map_err(wrong)?;
    Ok(kept)
}
