//! Files that the server appends to beside the catalogue, of which the oldest are removed.
//!
//! A file is named by the time of its first frame, in milliseconds, and begins with 8 bytes for its format.
//! A frame has the length of its bytes (u32, little-endian), their CRC-32 (u32), and the bytes, compressed
//! by zstd. The last frame of a file may be cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use exacat_model::TimeMs;

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

/// A file: the time in its name, its path, and its bytes.
pub(crate) type Kept = (TimeMs, PathBuf, u64);

/// Makes a file whose first frame is of a time.
pub(crate) fn begin(directory: &Path, first: TimeMs, extension: &str) -> io::Result<(File, PathBuf)> {
    // Another run of the server may have begun a file at the same time by a clock that went back.
    for start in first.0.. {
        let path = directory.join(format!("{start:013}.{extension}"));
        match OpenOptions::new().create_new(true).append(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no name is left for a file"))
}

/// Returns the files of a directory with these extensions, the oldest first.
pub(crate) fn kept(directory: &Path, extensions: &[&str]) -> io::Result<Vec<Kept>> {
    let mut files = Vec::new();
    for item in fs::read_dir(directory)? {
        let path = item?.path();
        let start = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let Some(start) = start
            && extensions.iter().any(|extension| has_extension(&path, extension))
        {
            let bytes = fs::metadata(&path)?.len();
            files.push((TimeMs(start), path, bytes));
        }
    }
    files.sort();
    Ok(files)
}

/// True if a file has an extension.
pub(crate) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own == extension)
}

/// Removes the oldest of these files but the one in use, until all together have few enough bytes and are
/// few enough.
pub(crate) fn remove_oldest(
    files: &[Kept],
    in_use: &Path,
    (bytes_max, files_max): (u64, usize),
) -> io::Result<()> {
    let (mut bytes, mut count) = (files.iter().map(|(.., bytes)| bytes).sum::<u64>(), files.len());
    for (_, path, length) in files.iter().filter(|(_, path, _)| path != in_use) {
        if bytes <= bytes_max && count <= files_max {
            break;
        }
        fs::remove_file(path)?;
        bytes -= length;
        count -= 1;
    }
    Ok(())
}

/// Passes the bytes of each frame of a file to `see`, at most `bytes_max`, until that returns false.
/// Returns false then, and if the file is damaged or of none of the formats. A file that was removed
/// meanwhile has no frame.
pub(crate) fn read(
    path: &Path,
    formats: &[&[u8; 8]],
    bytes_max: usize,
    see: &mut dyn FnMut(&[u8]) -> bool,
) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut first = [0; 8];
    if file.read_exact(&mut first).is_err() || !formats.contains(&&first) {
        return Ok(false);
    }
    loop {
        match next(&mut file, bytes_max) {
            Ok(Some(bytes)) if see(&bytes) => {}
            Ok(None) => return Ok(true),
            Ok(Some(_)) | Err(_) => return Ok(false),
        }
    }
}

/// Reads the bytes of the next frame, at most `bytes_max`, compressed or not; none at the end, which may
/// be inside a frame.
fn next(file: &mut impl Read, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
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
