//! Opens a listing: its compression, its identity, and the number of bytes read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::Error;
use crate::limits::HEAD_BYTES;

/// Compression of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    Plain,
    /// gzip; several members in sequence are one listing.
    Gzip,
    /// Zstandard; several frames in sequence are one listing.
    Zstd,
    /// bzip2, as many sites compress storage dumps; several streams in sequence are one listing.
    Bzip2,
}

impl Compression {
    /// All of them.
    pub const ALL: [Compression; 4] =
        [Compression::Plain, Compression::Gzip, Compression::Zstd, Compression::Bzip2];
    /// Ends of names of compressed files.
    pub const NAME_ENDS: [&str; 3] = [".gz", ".zst", ".bz2"];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Plain => "plain",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
        }
    }

    /// Returns the compression of that name.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|compression| compression.name() == text).ok_or_else(|| {
            Error::options(format!("not a compression (plain, gzip, zstd, bzip2): {text:.100?}"))
        })
    }

    /// Detects the compression by the first bytes: gzip's `1f 8b`, Zstandard's `28 b5 2f fd` or a
    /// skippable frame's magic number, bzip2's `BZh`, a digit and the mark of a block or of the end.
    pub fn detect(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Compression::Bzip2,
            _ => Compression::Plain,
        }
    }

    /// Returns the compression for a new file, by the end of its name.
    pub fn of_name(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst") => Compression::Zstd,
            Some("bz2") => Compression::Bzip2,
            _ => Compression::Plain,
        }
    }
}

/// Refuses a file of an unsupported form, and names commands that convert it.
fn refuse_foreign(path: &Path, head: &[u8]) -> Result<(), Error> {
    let (what, command, piped) = match head {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => ("compressed with xz", "unxz --keep FILE", "xz -dc FILE"),
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => ("a zip archive", "unzip FILE", "unzip -p FILE"),
        [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => ("a 7z archive", "7z x FILE", "7z x -so FILE"),
        [4, 0x22, 0x4d, 0x18, ..] => ("compressed with lz4", "lz4 -dk FILE", "lz4 -dc FILE"),
        _ => return Ok(()),
    };
    let word = shell_word(path);
    let named = |command: &str| command.replace("FILE", &word);
    Err(Error::options(format!(
        "{} is {what}, which exacat does not read: unpack it first with '{}', and give the result, or pipe it: '{} | \
         exacat … -' (gzip, Zstandard and bzip2 are read as they are)",
        path.display(),
        named(command),
        named(piped)
    )))
}

/// Refuses text in UTF-16: any of its byte order marks, and ASCII whose every other byte is zero.
pub(crate) fn refuse_utf16(path: &Path, head: &[u8]) -> Result<(), Error> {
    let marked = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
    let zeros = |parity: usize| {
        let some = head.len() >= UTF16_BYTES_LEAST;
        let looked = head.iter().take(UTF16_BYTES_LEAST).enumerate();
        some && looked.clone().all(|(at, byte)| (*byte == 0) == (at % 2 == parity))
    };
    if !marked && !zeros(0) && !zeros(1) {
        return Ok(());
    }
    let word = shell_word(path);
    Err(Error::options(format!(
        "{} is in UTF-16, listings are in UTF-8: convert it first with 'iconv -f UTF-16 -t UTF-8 {word} -o \
         listing.utf8', and give the result",
        path.display()
    )))
}

/// Bytes needed to recognise UTF-16 without a byte order mark.
const UTF16_BYTES_LEAST: usize = 8;

/// Quotes a path for a shell.
fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+:@%,=".contains(character);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Bytes of a file read so far, readable from another thread.
#[derive(Clone, Debug, Default)]
pub struct BytesRead(Arc<AtomicU64>);

impl BytesRead {
    /// Returns the number of bytes.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Counting<R> {
    inner: R,
    count: BytesRead,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Identity of a file. Resuming an import with another file than it began with would lose rows.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// Bytes.
    pub size: u64,
    /// Time of its last modification, in nanoseconds since 1970.
    pub modified_ns: u64,
    /// XXH3-128 of its first 64 KiB, in hex.
    pub head: String,
}

/// A listing on disk.
#[derive(Clone)]
pub struct Input {
    path: PathBuf,
    compression: Compression,
    /// Identity of a regular file; none for a pipe.
    identity: Option<Identity>,
    /// For a pipe: the bytes already read and the rest; its only reader takes it.
    pipe: Arc<Mutex<Option<Pipe>>>,
}

/// Bytes read from a pipe so far, and the rest of it.
type Pipe = (Vec<u8>, Box<dyn Read + Send>);

impl Input {
    /// Opens a file (`-` is the standard input); `compression` overrides the detected one.
    pub fn open(path: &Path, compression: Option<Compression>) -> Result<Self, Error> {
        let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
        let cannot = |error| Error::file("open", path, error);
        let mut file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.is_dir() {
            return Err(Error::options(format!("{} is a directory, not a listing", path.display())));
        }
        let mut head = Vec::with_capacity(HEAD_BYTES);
        (&mut file).take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(cannot)?;
        if compression.is_none() {
            refuse_foreign(path, &head)?;
        }
        let compression = compression.unwrap_or_else(|| Compression::detect(&head));
        let mut input =
            Input { path: path.to_owned(), compression, identity: None, pipe: Arc::new(Mutex::new(None)) };
        if metadata.is_file() {
            let modified_ns = metadata
                .modified()
                .ok()
                .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
                .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
            let head = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&head));
            input.identity = Some(Identity { size: metadata.len(), modified_ns, head });
        } else {
            *input.pipe.lock() = Some((head, Box::new(file)));
        }
        Ok(input)
    }

    /// Makes an input of a reader, as of a pipe; errors show `name`, which may determine the
    /// format.
    pub fn of_reader(
        name: &Path,
        mut reader: Box<dyn Read + Send>,
        compression: Option<Compression>,
    ) -> Result<Self, Error> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        (&mut reader)
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(|error| Error::file("read", name, error))?;
        if compression.is_none() {
            refuse_foreign(name, &head)?;
        }
        let compression = compression.unwrap_or_else(|| Compression::detect(&head));
        let pipe = Arc::new(Mutex::new(Some((head, reader))));
        Ok(Input { path: name.to_owned(), compression, identity: None, pipe })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the compression.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the identity; none for a pipe.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Returns the size in bytes, if it is a file.
    pub fn size(&self) -> Option<u64> {
        self.identity.as_ref().map(|identity| identity.size)
    }

    /// Reads its content from the start, decompressed. `count` counts the bytes of the file, not of
    /// the content. A pipe can be read once.
    pub fn reader(&self, count: &BytesRead) -> Result<Box<dyn Read + Send>, Error> {
        count.0.store(0, Ordering::Relaxed);
        let cannot = |error| Error::file("read", &self.path, error);
        let raw: Box<dyn Read + Send> = if self.identity.is_some() {
            Box::new(File::open(&self.path).map_err(cannot)?)
        } else {
            let (head, rest) = self
                .pipe
                .lock()
                .take()
                .ok_or_else(|| cannot(io::Error::other("it is a pipe and was read already")))?;
            Box::new(io::Cursor::new(head).chain(rest))
        };
        self.decompressed(Counting { inner: raw, count: count.clone() }).map_err(cannot)
    }

    fn decompressed<R: Read + Send + 'static>(&self, raw: R) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self.compression {
            Compression::Plain => Box::new(raw),
            Compression::Gzip => {
                Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, raw)))
            }
            Compression::Zstd => Box::new(zstd_reader(BufReader::with_capacity(READ_BYTES, raw))?),
            Compression::Bzip2 => {
                Box::new(bzip2::bufread::MultiBzDecoder::new(BufReader::with_capacity(READ_BYTES, raw)))
            }
        })
    }

    /// Returns the first part of its content, which determines the format.
    pub fn content_head(&self) -> Result<Vec<u8>, Error> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let pipe = self.pipe.lock();
        if let Some((raw, _)) = &*pipe {
            // The bytes read from a compressed pipe end at any point; the content before it
            // suffices.
            if let Ok(reader) = self.decompressed(io::Cursor::new(raw.clone())) {
                let _ends_anywhere = reader.take(HEAD_BYTES as u64).read_to_end(&mut head);
            }
            return Ok(head);
        }
        drop(pipe);
        self.reader(&BytesRead::default())?
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(|error| Error::file("read", &self.path, error))?;
        Ok(head)
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Input { path, compression, identity, .. } = self;
        f.debug_struct("Input")
            .field("path", path)
            .field("compression", compression)
            .field("identity", identity)
            .finish_non_exhaustive()
    }
}

/// Bytes of one read from a compressed file.
const READ_BYTES: usize = 128 << 10;

fn zstd_reader<R: BufRead>(raw: R) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(raw)?;
    // Accepts listings compressed with long windows, which take up to 128 MiB of memory.
    decoder.window_log_max(27)?;
    Ok(decoder)
}
