//! Checkpoints of the engine's first stage. They are read once, to carry a catalogue over to runs,
//! and then removed. `docs/internals/checkpoint-format.md` has every byte.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::codec::Reader;
use exacat_model::{Error, OperationId, Revision, TimeMs};

use crate::disk::Disk;
use crate::header;
use crate::history::cannot_read;
use crate::record::part;
use crate::run::Cache;
use crate::segment::{CatalogueId, corrupt};
use crate::settings::CHECKPOINT_BLOCK_BYTES_MAX;
use crate::state::{Loader, Part, State, Summary};

const MAGIC: [u8; 8] = *b"exacatCP";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 128;
const BLOCK_HEADER_BYTES: usize = 16;
/// Part number of the block that ends the file.
const END: u8 = 0;
fn parse_file_name(name: &str) -> Option<Revision> {
    let digits = name.strip_suffix(".checkpoint")?;
    let well_formed = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if well_formed { digits.parse().ok().map(Revision) } else { None }
}

/// Lists the checkpoints, the newest first.
pub(crate) fn list(disk: &dyn Disk, directory: &Path) -> Result<Vec<(Revision, PathBuf)>, Error> {
    let names = match disk.list(directory) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot_read(&directory.display().to_string(), &error)),
    };
    let mut found: Vec<(Revision, PathBuf)> =
        names.iter().filter_map(|name| Some((parse_file_name(name)?, directory.join(name)))).collect();
    found.sort_by_key(|(revision, _)| std::cmp::Reverse(*revision));
    Ok(found)
}

/// Header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    catalogue: CatalogueId,
    summary: Summary,
}

impl Header {
    fn decode(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let number = |at: usize| u64::from_le_bytes(part(bytes, at));
        if bytes.len() < HEADER_BYTES || bytes[0..8] != MAGIC {
            return Err(corrupt(file, 0, "this is no checkpoint, or it is cut off"));
        }
        header::check(file, &bytes[..HEADER_BYTES], VERSION)?;
        let flags = u32::from_le_bytes(part(bytes, 12));
        if usize::from(u16::from_le_bytes(part(bytes, 10))) != HEADER_BYTES || flags != 0 {
            return Err(corrupt(file, 8, "the checkpoint's header is of an unknown shape"));
        }
        Ok(Header {
            catalogue: part(bytes, 16),
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

fn block_checksum(block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[..4]);
    hasher.update(&block[8..]);
    hasher.finalize()
}

/// Removes all checkpoints, once the runs have their content.
pub(crate) fn forget(disk: &dyn Disk, directory: &Path) {
    for (_, path) in list(disk, directory).unwrap_or_default() {
        if let Err(error) = disk.remove(&path) {
            tracing::warn!(file = %path.display(), %error, "cannot remove a checkpoint that is not needed any more");
        }
    }
}

/// State from a checkpoint.
pub(crate) struct Loaded {
    pub state: State,
    pub operations: Vec<(OperationId, Revision)>,
}

/// Reads a checkpoint, and checks that it is whole: every block's checksum, the number of blocks,
/// the digest of the state, the counters.
pub(crate) fn load(
    disk: &dyn Disk,
    path: &Path,
    catalogue: CatalogueId,
    seed: u64,
    cache: Arc<Cache>,
) -> Result<Loaded, Error> {
    let name = path.display().to_string();
    let unreadable = |error: io::Error| cannot_read(&name, &error);
    let file = disk.open_to_read(path).map_err(unreadable)?;
    let mut header = [0; HEADER_BYTES];
    let read = file.read_at(&mut header, 0).map_err(unreadable)?;
    let header = Header::decode(&name, &header[..read])?;
    if header.catalogue != catalogue {
        return Err(corrupt(&name, 16, "the checkpoint is another catalogue's"));
    }
    let mut loader = Loader::new(seed, cache, header.summary.next_directory);
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
    let (state, operations) = loader.finish(header.summary).map_err(|defect| corrupt(&name, 0, defect))?;
    Ok(Loaded { state, operations })
}
