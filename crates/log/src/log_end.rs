//! Evidence, outside of the log, of how far the log goes; and the cutting of an end that forms no
//! whole commit group.
//!
//! A log whose tail was cut off, or overwritten by zeros, looks like one that ended there. The file
//! END beside the segments therefore notes how far the log was durable at some moment:
//!
//! ```text
//! 0 first slot, 512 bytes · 4096 second slot, 512 bytes · 8192 end of the file
//! slot: 0 magic · 8 version u16 · 10 zeros · 16 catalogue 16 · 32 sequence u64
//!       40 first revision of the segment u64 · 48 salt of the segment u64
//!       56 end of the records u64 · 64 last revision u64 · 72 zeros · 92 checksum u32
//! ```
//! The two slots are written in turn, so one is always whole. They are written and synced with each
//! end mark, at the begin of a segment, and before a snapshot. Under load they are written now and
//! then without a sync, which survives the end of the process. The noted position was durable
//! before the slot was written.
//!
//! Snapshots and complete sorted runs prove a revision too, also runs that no manifest names yet or
//! any more. Each segment header has the length of its file.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use exacat_disk::fixed::{part, u64_at};
use exacat_disk::{Disk, DiskFile, cannot_read, cannot_write, corrupt, header, write_small};
use exacat_model::{Error, ErrorKind, Result, Revision};
use parking_lot::Mutex;

use crate::limits::{COPY_PIECE_BYTES, CUTS_KEPT_MAX};
use crate::record::Salt;
use crate::segment::{self, CatalogueId, Ending, Header, UNFINISHED};
use crate::segment_file::Segment;

/// Name of the file in the log's directory.
pub const FILE: &str = "END";
const MAGIC: [u8; 8] = *b"exacatEN";
const VERSION: u16 = 1;
/// Bytes of a slot that have a meaning. A slot takes a sector, which the disk writes completely or
/// not at all.
const HEAD_BYTES: usize = 96;
const SLOT_BYTES: usize = 512;
const SLOTS_AT: [u64; 2] = [0, 4096];
const FILE_BYTES: u64 = 8192;
/// Prefix of the name of a file with bytes that were cut off.
const CUT: &str = "cut-";

/// Commands that help where the log ends too early.
pub const HELP: &str = "nothing was changed. Put the damaged file back if there is a copy, or see what can be recovered with \
                    'exacat fsck --offline --repair' (with --from DIR from a backup), or restore a snapshot or a backup with \
                    'exacat restore'";

/// Position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// First revision of the segment, which names it.
    pub segment: Revision,
    /// Bytes from the start of the segment.
    pub offset: u64,
}

/// End of the log, as a replay found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// End of the last whole record.
    pub position: LogPosition,
    /// Judgement of the bytes behind it.
    pub ending: Ending,
    /// Header of the last segment.
    pub header: Header,
    /// True if an end mark follows the last record, or there is no record.
    pub is_marked: bool,
    /// Length of the last segment's file.
    pub bytes: u64,
}

/// Evidence of how far the log was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Segment of the last change, by its first revision.
    pub segment: Revision,
    /// Salt of that segment.
    pub salt: Salt,
    /// End of the segment's records.
    pub offset: u64,
    /// Revision of the last change.
    pub revision: Revision,
}

impl Witness {
    fn encode(&self, catalogue: CatalogueId, sequence: u64) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&catalogue);
        let words = [sequence, self.segment.0, self.salt, self.offset, self.revision.0];
        for (word, at) in words.iter().zip((32..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        header::seal(&mut bytes[..HEAD_BYTES]);
        bytes
    }

    /// Reads a slot: its sequence number and the witness. None if it is empty or damaged.
    fn decode(name: &str, slot: &[u8], catalogue: CatalogueId) -> Result<Option<(u64, Self)>> {
        // An empty or torn slot is no evidence and no error, because the other slot is whole.
        let Some(head) = slot.get(..HEAD_BYTES).filter(|head| head[..8] == MAGIC) else { return Ok(None) };
        if part::<4>(head, HEAD_BYTES - 4) != crc32fast::hash(&head[..HEAD_BYTES - 4]).to_le_bytes() {
            return Ok(None);
        }
        let version = u16::from_le_bytes(part(head, 8));
        // Passing over the evidence of a newer release could accept a log that lost its end.
        if version > VERSION {
            let what = format!(
                "{name} has format version {version}, this release reads up to {VERSION}: use a newer one"
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        if part::<16>(head, 16) != catalogue {
            return Err(corrupt(name, 16, "the file is another catalogue's"));
        }
        let word = |at: usize| u64_at(head, at);
        let (segment, revision) = (Revision(word(40)), Revision(word(64)));
        Ok(Some((word(32), Witness { segment, salt: word(48), offset: word(56), revision })))
    }
}

/// Returns the newest slot of END in a directory; none if the file is missing or no slot is
/// readable.
fn newest(disk: &dyn Disk, directory: &Path, catalogue: CatalogueId) -> Result<Option<(u64, Witness)>> {
    let path = directory.join(FILE);
    let name = path.display().to_string();
    let unreadable = |error: io::Error| cannot_read(&name, &error);
    let file = match disk.open_to_read(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut newest: Option<(u64, Witness)> = None;
    for at in SLOTS_AT {
        let mut slot = [0; SLOT_BYTES];
        let read = file.read_at(&mut slot, at).map_err(unreadable)?;
        let found = Witness::decode(&name, &slot[..read], catalogue)?;
        if let Some((sequence, witness)) = found
            // The slots are written in turn, so the higher sequence is the later evidence.
            && newest.is_none_or(|(other, _)| other < sequence)
        {
            newest = Some((sequence, witness));
        }
    }
    Ok(newest)
}

/// Reads from END how far the log in this directory was durable.
pub fn read(disk: &dyn Disk, directory: &Path, catalogue: CatalogueId) -> Result<Option<Witness>> {
    Ok(newest(disk, directory, catalogue)?.map(|(_, witness)| witness))
}

/// Returns the error of a log that ends before a change which a witness knows.
pub fn ends_early(
    directory: &Path,
    end: Option<&LogEnd>,
    revision: Revision,
    witness: &str,
    known: Revision,
) -> Error {
    let (place, last, known) = (place_of(directory, end), revision.0, known.0);
    let what = format!(
        "{place}: the log ends with change {last}, but {witness} says that change {known} was durable: the end of the log is \
         missing or damaged; {HELP}"
    );
    Error::new(ErrorKind::Corrupt, what)
}

fn place_of(directory: &Path, end: Option<&LogEnd>) -> String {
    match end {
        None => directory.display().to_string(),
        Some(end) => {
            let file = directory.join(segment::file_name(end.position.segment));
            format!("{} at byte {}", file.display(), end.position.offset)
        }
    }
}

/// Refuses a log that ends before the change that END notes.
pub fn check_witness(
    disk: &dyn Disk,
    directory: &Path,
    catalogue: CatalogueId,
    end: Option<&LogEnd>,
    revision: Revision,
) -> Result<()> {
    match read(disk, directory, catalogue)? {
        Some(witness) if witness.revision > revision => {
            let name = directory.join(FILE).display().to_string();
            Err(ends_early(directory, end, revision, &name, witness.revision))
        }
        _ => Ok(()),
    }
}

/// Refuses a last segment that is sealed: the one after it is missing.
pub fn check_followed(end: Option<&LogEnd>, revision: Revision) -> Result<()> {
    match end {
        Some(end) if end.ending == Ending::Sealed => {
            let next = revision.0 + 1;
            Err(corrupt(
                &segment::file_name(end.position.segment),
                end.position.offset,
                format!(
                    "the segment is sealed, but the one after it, which begins with change {next}, is missing"
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Refuses a last segment that is shorter than its reserved length, which it keeps until it is sealed.
pub fn check_length(directory: &Path, end: Option<&LogEnd>) -> Result<()> {
    match end {
        Some(end) if end.bytes < end.header.reserved => {
            let (place, bytes, reserved) = (place_of(directory, Some(end)), end.bytes, end.header.reserved);
            let what = format!(
                "{place}: the file has {bytes} bytes, but {reserved} were reserved: its end was cut off; {HELP}"
            );
            Err(Error::new(ErrorKind::Corrupt, what))
        }
        _ => Ok(()),
    }
}

/// The file END, open for writing. END is a witness, not the log: if it cannot be written the log
/// goes on without it.
pub struct EndFile {
    catalogue: CatalogueId,
    inner: Mutex<Inner>,
}

struct Inner {
    /// None if the file could not be made, or written.
    file: Option<Box<dyn DiskFile>>,
    sequence: u64,
    written: Option<Instant>,
}

impl EndFile {
    /// Opens or creates the file.
    pub fn open(disk: &dyn Disk, directory: &Path, catalogue: CatalogueId) -> Self {
        let path = directory.join(FILE);
        // An unreadable file begins anew: opening has judged its content before (`log_end_check`).
        let sequence = newest(disk, directory, catalogue).ok().flatten().map_or(0, |(sequence, _)| sequence);
        let make = || -> io::Result<Box<dyn DiskFile>> {
            let file = disk.create(&path)?;
            file.preallocate(FILE_BYTES)?;
            file.sync()?;
            disk.sync_directory(directory)?;
            Ok(file)
        };
        let opened = match disk.open_to_write(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(),
            other => other,
        };
        let file = opened.inspect_err(|error| warn(&path.display().to_string(), error)).ok();
        EndFile { catalogue, inner: Mutex::new(Inner { file, sequence, written: None }) }
    }

    /// Writes how far the log is durable, and syncs the file.
    pub fn write(&self, witness: Witness) {
        self.put(&mut self.inner.lock(), witness, true);
    }

    /// Writes the same without a sync, at most once per `every`.
    pub fn note(&self, witness: Witness, every: Duration) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let is_due = match inner.written {
            None => true,
            Some(written) => now.saturating_duration_since(written) >= every,
        };
        // `Duration::MAX` switches these notes off.
        if is_due && every != Duration::MAX {
            // The time counts even if the write fails, so that a bad disk is not asked at each
            // group.
            inner.written = Some(now);
            self.put(&mut inner, witness, false);
        }
    }

    fn put(&self, inner: &mut Inner, witness: Witness, is_synced: bool) {
        let Some(file) = &inner.file else { return };
        inner.sequence += 1;
        // Odd and even sequences alternate between the slots, so that one is whole at any moment.
        let at = SLOTS_AT[usize::from(inner.sequence % 2 == 1)];
        let written = file.write_at(&witness.encode(self.catalogue, inner.sequence), at);
        let written = written.and_then(|()| if is_synced { file.sync() } else { Ok(()) });
        if let Err(error) = written {
            // The state of the slots is unknown now; the next opening writes the file anew.
            warn(FILE, &error);
            inner.file = None;
        }
    }
}

fn warn(file: &str, error: &io::Error) {
    tracing::warn!(file, %error, "cannot write how far the log is durable; a later loss of its end may pass unnoticed");
}

/// Result of cutting off an end that forms no whole commit group.
pub struct CutOff {
    /// Segment, open for writing.
    pub file: Box<dyn DiskFile>,
    /// Name of the file with the bytes that were cut off.
    pub kept_as: String,
}

/// Cuts off an end that forms no whole commit group, before anything is appended. It copies the
/// bytes to a file of their own, then overwrites them with zeros, durably. A whole record left
/// behind new ones might one day pass for one of theirs. A segment with a second name, such as a
/// snapshot's, is not written to: a copy replaces it.
pub fn cut_off(disk: &dyn Disk, directory: &Path, segment: &Segment, end: &LogEnd) -> Result<Option<CutOff>> {
    let Ending::Torn(bytes) = end.ending else { return Ok(None) };
    let offset = end.position.offset;
    let name = segment.path.display().to_string();
    let unreadable = |error: io::Error| cannot_read(&name, &error);
    let unwritable = |error: io::Error| cannot_write(&segment.path, &error);
    let file = disk.open_to_write(&segment.path).map_err(unwritable)?;
    let mut cut = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let read = file.read_at(&mut cut, offset).map_err(unreadable)?;
    cut.truncate(read);
    // The bytes are durable elsewhere before they are overwritten.
    let kept_as = keep(disk, directory, segment.first_revision, offset, &cut)?;
    // A file with one name belongs to this catalogue alone, and may be changed in place.
    if disk.names_of(&segment.path).map_err(unreadable)? <= 1 {
        cut.fill(0);
        file.write_at(&cut, offset).and_then(|()| file.sync()).map_err(unwritable)?;
        return Ok(Some(CutOff { file, kept_as }));
    }
    let unfinished = directory.join(format!("{}{UNFINISHED}", segment::file_name(segment.first_revision)));
    let copy = || -> io::Result<Box<dyn DiskFile>> {
        let copy = disk.create(&unfinished)?;
        let mut buffer = vec![0; COPY_PIECE_BYTES];
        let mut at = 0;
        while at < offset {
            let wanted =
                usize::try_from(offset - at).map_or(COPY_PIECE_BYTES, |rest| rest.min(COPY_PIECE_BYTES));
            let read = file.read_at(&mut buffer[..wanted], at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            copy.write_at(&buffer[..read], at)?;
            at += read as u64;
        }
        // A segment shorter than its reserved length would count as cut off at the next opening.
        copy.preallocate(end.bytes.max(end.header.reserved))?;
        copy.sync()?;
        disk.rename(&unfinished, &segment.path)?;
        disk.sync_directory(directory)?;
        Ok(copy)
    };
    Ok(Some(CutOff { file: copy().map_err(unwritable)?, kept_as }))
}

/// Writes bytes that are cut off to a file of their own, durably; returns its name.
fn keep(disk: &dyn Disk, directory: &Path, segment: Revision, offset: u64, cut: &[u8]) -> Result<String> {
    let names =
        disk.list(directory).map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    let mut kept: Vec<(u64, String)> =
        names.into_iter().filter_map(|name| Some((number_of(&name)?, name))).collect();
    kept.sort();
    // Numbers only go up, so the smallest belongs to the oldest file.
    let number = kept.last().map_or(1, |(number, _)| number.saturating_add(1));
    let name = format!("{CUT}{number:06}-{:020}-{offset}", segment.0);
    let path = directory.join(&name);
    let written = write_small(disk, &path, cut).and_then(|()| disk.sync_directory(directory));
    written.map_err(|error| cannot_write(&path, &error))?;
    while kept.len() >= CUTS_KEPT_MAX {
        let (_, oldest) = kept.remove(0);
        tracing::warn!(
            file = oldest,
            "the oldest of the cut-off ends of the log is removed, {CUTS_KEPT_MAX} are kept"
        );
        disk.remove(&directory.join(&oldest))
            .map_err(|error| cannot_write(&directory.join(&oldest), &error))?;
    }
    Ok(name)
}

/// Returns the number in the name of a file with an end that was cut off.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(CUT)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOGUE: CatalogueId = *b"golden catalogue";

    fn witness() -> Witness {
        Witness { segment: Revision(42), salt: 0x0123_4567_89ab_cdef, offset: 4096, revision: Revision(77) }
    }

    #[test]
    fn slot_of_version_1_is_read_as_it_was_written() {
        const GOLDEN: &[u8] = include_bytes!("golden/end-v1.slot");
        assert_eq!(witness().encode(CATALOGUE, 9), GOLDEN);
        assert_eq!(Witness::decode("END", GOLDEN, CATALOGUE).unwrap(), Some((9, witness())));
    }

    #[test]
    fn damaged_slot_is_passed_over_and_foreign_one_refused() {
        let slot = witness().encode(CATALOGUE, 9);
        for at in 0..HEAD_BYTES {
            let mut damaged = slot;
            damaged[at] ^= 1;
            assert_eq!(Witness::decode("END", &damaged, CATALOGUE).unwrap(), None, "byte {at}");
        }
        assert_eq!(Witness::decode("END", &slot[..HEAD_BYTES - 1], CATALOGUE).unwrap(), None);
        assert_eq!(Witness::decode("END", &slot, [0; 16]).unwrap_err().kind, ErrorKind::Corrupt);
    }
}
