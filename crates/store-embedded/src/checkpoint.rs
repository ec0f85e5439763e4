//! Checkpoints: the whole state in a file, so that opening replays only the log after it. Byte by byte in
//! `docs/internals/checkpoint-format.md`.
//!
//! A checkpoint is never needed: without any, the log gives the state. So a damaged one is passed over, with a
//! warning, for the one before it.

use std::io;
use std::path::{Path, PathBuf};

use exacat_model::codec::{Encode, Reader};
use exacat_model::{Error, ErrorKind, OperationId, Revision, TimeMs};

use crate::disk::{Disk, DiskFile};
use crate::history::cannot_read;
use crate::log::{Position, cannot_write};
use crate::record::part;
use crate::segment::{CatalogueId, corrupt};
use crate::settings::{CHECKPOINT_BLOCK_BYTES, CHECKPOINT_BLOCK_BYTES_MAX, CHECKPOINTS_KEPT};
use crate::state::{Defect, Loader, Operations, Part, State, Summary};

const MAGIC: [u8; 8] = *b"exacatCP";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 128;
const BLOCK_HEADER_BYTES: usize = 16;
/// The part number of the block that ends the file.
const END: u8 = 0;
const UNFINISHED: &str = ".unfinished";

/// The name of the checkpoint of this revision.
fn file_name(revision: Revision) -> String {
    format!("{:020}.checkpoint", revision.0)
}

fn parse_file_name(name: &str) -> Option<Revision> {
    let digits = name.strip_suffix(".checkpoint")?;
    let well_formed = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if well_formed { digits.parse().ok().map(Revision) } else { None }
}

/// The checkpoints there are, the newest first.
pub(crate) fn list(disk: &dyn Disk, directory: &Path) -> Result<Vec<(Revision, PathBuf)>, Error> {
    let names =
        disk.list(directory).map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    let mut found: Vec<(Revision, PathBuf)> =
        names.iter().filter_map(|name| Some((parse_file_name(name)?, directory.join(name)))).collect();
    found.sort_by_key(|(revision, _)| std::cmp::Reverse(*revision));
    Ok(found)
}

/// The revision of the oldest checkpoint that is kept: what comes after it in the log may still be needed. 0 if there is
/// none, or nobody can tell.
pub(crate) fn oldest(disk: &dyn Disk, directory: &Path) -> Revision {
    list(disk, directory)
        .ok()
        .and_then(|found| found.last().map(|(revision, _)| *revision))
        .unwrap_or_default()
}

/// What stands at the start of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    catalogue: CatalogueId,
    position: Position,
    summary: Summary,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.catalogue);
        bytes[32..40].copy_from_slice(&self.summary.revision.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.summary.time.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.position.segment.0.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.position.offset.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.summary.next_directory.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.summary.entries.to_le_bytes());
        bytes[80..96].copy_from_slice(&self.summary.digest.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let number = |at: usize| u64::from_le_bytes(part(bytes, at));
        if bytes.len() < HEADER_BYTES || bytes[0..8] != MAGIC {
            return Err(corrupt(file, 0, "this is no checkpoint, or it is cut off"));
        }
        let version = u16::from_le_bytes(part(bytes, 8));
        if version > VERSION {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{file} has format version {version}, this release reads up to {VERSION}: use a newer one"
                ),
            ));
        }
        let crc = u32::from_le_bytes(part(bytes, HEADER_BYTES - 4));
        if crc != crc32fast::hash(&bytes[..HEADER_BYTES - 4]) {
            return Err(corrupt(file, 0, "the checkpoint's header fails its checksum"));
        }
        let flags = u32::from_le_bytes(part(bytes, 12));
        if usize::from(u16::from_le_bytes(part(bytes, 10))) != HEADER_BYTES || flags != 0 {
            return Err(corrupt(file, 8, "the checkpoint's header is of an unknown shape"));
        }
        Ok(Header {
            catalogue: part(bytes, 16),
            position: Position { segment: Revision(number(48)), offset: number(56) },
            summary: Summary {
                revision: Revision(number(32)),
                time: TimeMs(number(40)),
                next_directory: number(64),
                entries: number(72),
                digest: u128::from_le_bytes(part(bytes, 80)),
            },
        })
    }
}

/// Why a checkpoint was not written.
enum WriteError {
    Disk(io::Error),
    State(Defect),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        WriteError::Disk(error)
    }
}

impl From<Defect> for WriteError {
    fn from(defect: Defect) -> Self {
        WriteError::State(defect)
    }
}

/// Blocks on their way into a file.
struct BlockWriter {
    file: Box<dyn DiskFile>,
    offset: u64,
    block: Vec<u8>,
    part: u8,
    items: u32,
    blocks: u32,
}

impl BlockWriter {
    fn item(&mut self, part: Part, item: &dyn Encode) -> io::Result<()> {
        if self.items > 0 && (part as u8 != self.part || self.block.len() >= CHECKPOINT_BLOCK_BYTES) {
            self.flush()?;
        }
        self.part = part as u8;
        item.encode(&mut self.block);
        self.items += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = self.block.len() - BLOCK_HEADER_BYTES;
        let length = u32::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.block[0..4].copy_from_slice(&length.to_le_bytes());
        self.block[8] = self.part;
        self.block[12..16].copy_from_slice(&self.items.to_le_bytes());
        let crc = block_checksum(&self.block);
        self.block[4..8].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(&self.block, self.offset)?;
        self.offset += self.block.len() as u64;
        self.blocks += 1;
        self.items = 0;
        self.block.truncate(BLOCK_HEADER_BYTES);
        Ok(())
    }
}

fn block_checksum(block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[..4]);
    hasher.update(&block[8..]);
    hasher.finalize()
}

/// Writes the state, which is at this place of the log, and drops what older checkpoints are not kept. Gives its
/// size.
pub(crate) fn write(
    disk: &dyn Disk,
    directory: &Path,
    catalogue: CatalogueId,
    position: Position,
    state: &State,
    operations: &Operations,
) -> Result<u64, Error> {
    let path = directory.join(file_name(state.revision));
    let unfinished = directory.join(format!("{}{UNFINISHED}", file_name(state.revision)));
    let header = Header { catalogue, position, summary: Summary::of(state) };
    let write = || -> Result<u64, WriteError> {
        let file = disk.create(&unfinished)?;
        file.write_at(&header.encode(), 0)?;
        let block = vec![0; BLOCK_HEADER_BYTES];
        let mut blocks =
            BlockWriter { file, offset: HEADER_BYTES as u64, block, part: END, items: 0, blocks: 0 };
        state.write_items(&mut |part, item| Ok::<(), WriteError>(blocks.item(part, item)?))?;
        for row in operations.iter() {
            blocks.item(Part::Operations, &row)?;
        }
        if blocks.items > 0 {
            blocks.flush()?;
        }
        (blocks.part, blocks.items) = (END, blocks.blocks);
        blocks.flush()?;
        blocks.file.sync()?;
        disk.rename(&unfinished, &path)?;
        disk.sync_directory(directory)?;
        Ok(blocks.offset)
    };
    let written = write().map_err(|why| {
        if let Err(error) = disk.remove(&unfinished) {
            tracing::debug!(file = %unfinished.display(), %error, "cannot remove an unfinished checkpoint");
        }
        match why {
            WriteError::Disk(error) => cannot_write(&path, &error),
            WriteError::State(defect) => defect.into(),
        }
    })?;
    forget_older(disk, directory);
    Ok(written)
}

/// Removes checkpoints beyond those kept, and unfinished ones. What cannot be removed does no harm.
pub(crate) fn forget_older(disk: &dyn Disk, directory: &Path) {
    let older =
        list(disk, directory).unwrap_or_default().into_iter().skip(CHECKPOINTS_KEPT).map(|(_, path)| path);
    let names = disk.list(directory).unwrap_or_default();
    let unfinished = names.iter().filter(|name| name.ends_with(UNFINISHED)).map(|name| directory.join(name));
    for path in older.chain(unfinished) {
        if let Err(error) = disk.remove(&path) {
            tracing::warn!(file = %path.display(), %error, "cannot remove a checkpoint that is not needed");
        }
    }
}

/// A state from a checkpoint.
pub(crate) struct Loaded {
    pub state: State,
    pub operations: Vec<(OperationId, Revision)>,
    pub position: Position,
    pub bytes: u64,
}

/// Reads a checkpoint, and checks that it is whole: every block's checksum, the number of blocks, the digest of the
/// state, the counters.
pub(crate) fn load(disk: &dyn Disk, path: &Path, catalogue: CatalogueId, seed: u64) -> Result<Loaded, Error> {
    let name = path.display().to_string();
    let unreadable = |error: io::Error| cannot_read(&name, &error);
    let file = disk.open_to_read(path).map_err(unreadable)?;
    let mut header = [0; HEADER_BYTES];
    let read = file.read_at(&mut header, 0).map_err(unreadable)?;
    let header = Header::decode(&name, &header[..read])?;
    if header.catalogue != catalogue {
        return Err(corrupt(&name, 16, "the checkpoint is another catalogue's"));
    }
    let mut loader = Loader::new(seed, header.summary.next_directory);
    let mut offset = HEADER_BYTES as u64;
    let mut blocks = 0;
    let mut block = Vec::new();
    loop {
        block.resize(BLOCK_HEADER_BYTES, 0);
        let read = file.read_at(&mut block, offset).map_err(unreadable)?;
        let mut length = [0; 4];
        length.copy_from_slice(&block[..4]);
        let bytes = u32::from_le_bytes(length) as usize;
        if read < BLOCK_HEADER_BYTES || bytes > CHECKPOINT_BLOCK_BYTES_MAX {
            return Err(corrupt(&name, offset, "a block is cut off or damaged"));
        }
        block.resize(BLOCK_HEADER_BYTES + bytes, 0);
        let body = &mut block[BLOCK_HEADER_BYTES..];
        let read = file.read_at(body, offset + BLOCK_HEADER_BYTES as u64).map_err(unreadable)?;
        let mut word = [0; 4];
        word.copy_from_slice(&block[4..8]);
        if read < bytes || u32::from_le_bytes(word) != block_checksum(&block) || block[9..12] != [0; 3] {
            return Err(corrupt(&name, offset, "a block fails its checksum"));
        }
        word.copy_from_slice(&block[12..16]);
        let items = u32::from_le_bytes(word);
        if block[8] == END {
            if items != blocks || bytes != 0 {
                return Err(corrupt(&name, offset, "blocks are missing"));
            }
            break;
        }
        let part = Part::from_number(block[8])
            .ok_or_else(|| corrupt(&name, offset, "a block is of an unknown part"))?;
        let mut reader = Reader::new(&block[BLOCK_HEADER_BYTES..]);
        for _ in 0..items {
            loader.item(part, &mut reader).map_err(|defect| corrupt(&name, offset, defect))?;
        }
        reader.finish().map_err(|error| corrupt(&name, offset, error))?;
        offset += (BLOCK_HEADER_BYTES + bytes) as u64;
        blocks += 1;
    }
    let bytes = offset + BLOCK_HEADER_BYTES as u64;
    let (state, operations) = loader.finish(header.summary).map_err(|defect| corrupt(&name, 0, defect))?;
    Ok(Loaded { state, operations, position: header.position, bytes })
}
