//! Frames of files that the server appends to beside the catalogue: the length of the bytes (u32,
//! little-endian), their CRC-32 (u32), and the bytes, compressed by zstd.

use std::io::{self, Read};
use std::path::Path;

const ZSTD_LEVEL: i32 = 3;
/// Free space of the disk that such files leave to the catalogue, in bytes.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Appends a frame.
pub(crate) fn push(out: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    let packed = zstd::encode_all(bytes, ZSTD_LEVEL)?;
    let length = u32::try_from(packed.len()).map_err(io::Error::other)?;
    out.extend(length.to_le_bytes());
    out.extend(crc32fast::hash(&packed).to_le_bytes());
    out.extend(packed);
    Ok(())
}

/// Reads the bytes of the next frame, at most `bytes_max`, compressed or not; none at the end, which may
/// be inside a frame.
pub(crate) fn next(file: &mut impl Read, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 8];
    let read = |file: &mut dyn Read, bytes: &mut [u8]| match file.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    };
    if !read(file, &mut head)? {
        return Ok(None);
    }
    let [a, b, c, d, crc @ ..] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > bytes_max {
        return Err(io::Error::other("the length of a frame is wrong"));
    }
    let mut packed = vec![0; length];
    if !read(file, &mut packed)? {
        return Ok(None);
    }
    if crc32fast::hash(&packed) != u32::from_le_bytes(crc) {
        return Err(io::Error::other("the checksum of a frame is wrong"));
    }
    zstd::bulk::decompress(&packed, bytes_max).map(Some)
}

/// Refuses to write where the catalogue needs the space.
pub(crate) fn check_room(directory: &Path) -> io::Result<()> {
    let space = rustix::fs::statvfs(directory)?;
    if space.f_bavail.saturating_mul(space.f_frsize) >= FREE_BYTES_MIN {
        return Ok(());
    }
    let least = FREE_BYTES_MIN >> 20;
    let why = format!("the disk has less than {least} MiB free, which the catalogue needs");
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}
