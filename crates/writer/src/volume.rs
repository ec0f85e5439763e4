//! Volume: a directory with parts of files and their index, on one file system.
//!
//! ```text
//! VOLUME              identity, and the service that it belongs to
//! LOCK                locked by the process that has the volume open
//! index/, checkpoint  the journal
//! parts/FILE-EPOCH    bytes of a part, each at its place in the file; FILE-EPOCH.chunks once it is sealed
//! unknown/            files that the index does not name, moved here by an opening
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{
    Disk, DiskFile, cannot_read, cannot_write, corrupt, exists, random_u64, read_text, replace_small,
    write_small,
};
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use exacat_wire::writer::{ByteRange, ChunkRecord, ServiceId};
use parking_lot::Mutex;

use crate::index::Index;
use crate::item::{Item, SealedBy};
use crate::journal::Journal;
use crate::origin::PartKey;
use crate::shared_sync::SharedSync;
use crate::stored::{StoredHead, StoredKind, VolumeId};
use crate::sums::crc32c;
use crate::work::{Done, Fault, PartSeal, PartWork, Work};

/// File with the identity of a volume.
const IDENTITY: &str = "VOLUME";
/// First line of that file, without its version.
const IDENTITY_TITLE: &str = "exacat writer volume";
/// Version of the layout of a volume's directory.
const LAYOUT_VERSION: u32 = 1;
/// Ending of the file with the chunks of a sealed part.
const CHUNKS: &str = ".chunks";

/// Place and owner of a volume.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// Directory.
    pub root: PathBuf,
    /// Service that the volume belongs to.
    pub service: ServiceId,
    /// True to take over the volume of another service.
    pub adopt: bool,
    /// Bytes of a segment of the index's log.
    pub segment_bytes: u64,
}

/// File of a part that is being written.
struct PartFile {
    file: Box<dyn DiskFile>,
    /// A failed sync is reported to one caller only: works of the part that sync at once share the outcome.
    sync: SharedSync,
}

/// An open volume. Its works may run on several threads.
pub struct Volume {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    id: VolumeId,
    journal: Mutex<Journal>,
    /// Taken while a checkpoint is written: one at a time.
    checkpoint: Mutex<()>,
    files: Mutex<BTreeMap<PartKey, Arc<PartFile>>>,
    /// Sync of the directory of parts.
    names: SharedSync,
    _lock: Box<dyn Send + Sync>,
}

/// Contents of a volume at its opening. All parts are sealed.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The index.
    pub index: Index,
    /// Chunks of parts whose files are not certified yet.
    pub chunks: BTreeMap<PartKey, Vec<ChunkRecord>>,
    /// Parts that were sealed, and whose chunks cannot be read any more, with the reason.
    pub damaged: BTreeMap<PartKey, String>,
    /// Files that the index did not name.
    pub unknown: Vec<String>,
    /// Reason why the volume can only be read; none if it can be written.
    pub read_only: Option<String>,
    /// Free bytes.
    pub free_bytes: u64,
}

fn identity_text(id: VolumeId, service: ServiceId) -> String {
    let id = u128::from_be_bytes(id);
    let body = format!("{IDENTITY_TITLE}, layout {LAYOUT_VERSION}\nid {id:032x}\nservice {service}\n");
    format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes()))
}

fn parse_identity(text: &str) -> std::result::Result<(VolumeId, ServiceId), &'static str> {
    let (first, rest) = text.split_once('\n').ok_or("the file is cut off")?;
    let version = first.strip_prefix(IDENTITY_TITLE).and_then(|rest| rest.strip_prefix(", layout "));
    let version: u32 = version.and_then(|text| text.parse().ok()).ok_or("this is no volume of a writer")?;
    if version > LAYOUT_VERSION {
        return Err("the layout is that of a newer release: use it");
    }
    let mut lines = rest.lines();
    let mut number = |name: &str| {
        let digits = lines.next()?.strip_prefix(name)?;
        u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
    };
    let id = number("id ").ok_or("the id is missing")?;
    let service = ServiceId(number("service ").ok_or("the service is missing")?);
    // Compared as a whole: no byte may change unnoticed.
    if identity_text(id, service) == text { Ok((id, service)) } else { Err("the content fails its checksum") }
}

/// Returns the service that the volume in a directory belongs to; none if there is no volume yet.
pub fn owner_of(disk: &dyn Disk, root: &Path) -> Result<Option<ServiceId>> {
    let path = root.join(IDENTITY);
    let name = path.display().to_string();
    let text = read_text(disk, &path).map_err(|error| cannot_read(&name, &error))?;
    let parsed = text.map(|text| parse_identity(&text).map_err(|what| corrupt(&name, 0, what)));
    Ok(parsed.transpose()?.map(|(_, service)| service))
}

/// Returns the identity of a volume; a new one for an empty directory.
fn identify(disk: &dyn Disk, settings: &VolumeSettings) -> Result<VolumeId> {
    let path = settings.root.join(IDENTITY);
    let name = path.display().to_string();
    let write = |id| {
        let text = identity_text(id, settings.service);
        replace_small(disk, &settings.root, IDENTITY, text.as_bytes())
            .map_err(|error| cannot_write(&path, &error))
    };
    if let Some(text) = read_text(disk, &path).map_err(|error| cannot_read(&name, &error))? {
        let (id, service) = parse_identity(&text).map_err(|what| corrupt(&name, 0, what))?;
        if service != settings.service {
            if !settings.adopt {
                let what = format!(
                    "{name}: the volume belongs to service {service}; adopt it, or start that service"
                );
                return Err(Error::new(ErrorKind::Conflict, what));
            }
            write(id)?;
        }
        return Ok(id);
    }
    for directory in [Journal::directory(&settings.root), settings.root.join("parts")] {
        let names = disk.list(&directory).map_err(|error| cannot_read(&name, &error))?;
        if !names.is_empty() {
            let what = format!("{name} is missing, but there are files of a volume: restore it");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random_u64()?.to_le_bytes());
    id[8..].copy_from_slice(&random_u64()?.to_le_bytes());
    write(id)?;
    Ok(id)
}

fn fault(error: &io::Error) -> Fault {
    Fault { is_full: error.kind() == io::ErrorKind::StorageFull, reason: error.to_string() }
}

impl Volume {
    /// Opens a volume; a new one if the directory is empty. Parts that were being written are sealed
    /// with the chunks that are durable.
    pub fn open(disk: Arc<dyn Disk>, settings: &VolumeSettings, now: TimeMs) -> Result<(Self, Recovered)> {
        let root = settings.root.clone();
        for directory in [root.clone(), Journal::directory(&root), root.join("parts"), root.join("unknown")] {
            disk.create_directory(&directory).map_err(|error| cannot_write(&directory, &error))?;
        }
        disk.sync_directory(&root).map_err(|error| cannot_write(&root, &error))?;
        let lock_path = root.join("LOCK");
        let lock = disk.lock(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::new(
                ErrorKind::Unavailable,
                format!("{}: another process has this volume open", root.display()),
            ),
            _ => cannot_write(&lock_path, &error),
        })?;
        disk.make_private(&root, true).map_err(|error| cannot_write(&root, &error))?;
        let id = identify(&*disk, settings)?;
        let journal = Journal::open(Arc::clone(&disk), &root, id, settings.segment_bytes, now)?;
        let volume = Volume {
            disk,
            root,
            id,
            journal: Mutex::new(journal),
            checkpoint: Mutex::default(),
            files: Mutex::default(),
            names: SharedSync::default(),
            _lock: lock,
        };
        let recovered = volume.recover(now)?;
        Ok((volume, recovered))
    }

    fn parts(&self) -> PathBuf {
        self.root.join("parts")
    }

    /// Returns the path of the bytes of a part.
    pub fn path(&self, part: PartKey) -> PathBuf {
        self.parts().join(part.file_name())
    }

    fn chunks_name(part: PartKey) -> String {
        format!("{}{CHUNKS}", part.file_name())
    }

    fn part_head(&self) -> StoredHead {
        StoredHead { volume: self.id, kind: StoredKind::Part, revision: 0, digest: 0 }
    }

    fn recover(&self, now: TimeMs) -> Result<Recovered> {
        let mut recovered = Recovered { index: self.journal.lock().index().clone(), ..Recovered::default() };
        let open: Vec<PartKey> = recovered
            .index
            .parts
            .iter()
            .filter(|(_, part)| part.sealed.is_none())
            .map(|(key, _)| *key)
            .collect();
        let mut items = Vec::new();
        for part in open {
            let by = match self.seal_recovered(part, &recovered.index) {
                Ok(by) => by,
                Err(error) => {
                    let path = self.path(part);
                    recovered.read_only = Some(format!("{} cannot be sealed: {error}", path.display()));
                    SealedBy::Fault
                }
            };
            items.push(Item::Sealed { part, by });
        }
        // A volume that cannot be written keeps its open parts for the next opening.
        if recovered.read_only.is_none() && !items.is_empty() {
            self.journal.lock().commit(&items, now)?;
        }
        for (part, known) in &recovered.index.parts {
            // Only those that were sealed in order before have their chunks elsewhere.
            if known.sealed != Some(SealedBy::Order) {
                recovered.chunks.insert(*part, known.chunks.clone());
            } else {
                match self.chunks_of(*part) {
                    Ok(chunks) => recovered.chunks.insert(*part, chunks).map(|_| ()),
                    // One damaged file does not stop the others.
                    Err(error) => recovered.damaged.insert(*part, error.to_string()).map(|_| ()),
                };
            }
        }
        for item in &items {
            recovered.index.apply(item).map_err(|what| Error::new(ErrorKind::Internal, what))?;
        }
        recovered.unknown = self.move_unknown(&recovered.index)?;
        recovered.free_bytes = self.free_bytes().map_err(|error| cannot_read("the volume", &error))?;
        Ok(recovered)
    }

    /// Seals a part that was being written. Its file may have more bytes than the index, which nobody
    /// has an acknowledgement for; it never has less, unless the disk lost some.
    fn seal_recovered(&self, part: PartKey, index: &Index) -> io::Result<SealedBy> {
        let Some(known) = index.parts.get(&part) else { return Ok(SealedBy::Loss) };
        let length = known.chunks.last().map_or(0, ChunkRecord::end);
        if length > 0 {
            let file = match self.disk.open_to_write(&self.path(part)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SealedBy::Loss),
                other => other?,
            };
            if file.length()? < length {
                return Ok(SealedBy::Loss);
            }
            file.set_length(length)?;
            file.sync()?;
        }
        let origin = known.origin.clone();
        let items = vec![Item::Opened { part, origin }, Item::Durable { part, chunks: known.chunks.clone() }];
        self.write_chunks(part, &items)?;
        Ok(SealedBy::Order)
    }

    fn write_chunks(&self, part: PartKey, items: &[Item]) -> io::Result<()> {
        replace_small(&*self.disk, &self.parts(), &Self::chunks_name(part), &self.part_head().pack(items))
    }

    /// Reads the chunks of a sealed part: those beside its bytes, or those of the index, which has them until
    /// the file of a part with a fault is certified. A volume whose index has failed stays in that state.
    pub fn chunks_of(&self, part: PartKey) -> Result<Vec<ChunkRecord>> {
        let path = self.parts().join(Self::chunks_name(part));
        let Some((_, items)) = StoredHead::read(&*self.disk, &path, StoredKind::Part)? else {
            let journal = self.journal.lock();
            let known = journal.index().parts.get(&part).filter(|of| of.sealed != Some(SealedBy::Order));
            let missing = || corrupt(&path.display().to_string(), 0, "the file is missing");
            return known.map(|of| of.chunks.clone()).ok_or_else(missing);
        };
        let of_part = items.into_iter().filter_map(|item| match item {
            Item::Durable { part: of, chunks } if of == part => Some(chunks),
            _ => None,
        });
        Ok(of_part.flatten().collect())
    }

    /// Returns the index of everything durable.
    pub(crate) fn index(&self) -> Index {
        self.journal.lock().index().clone()
    }

    /// Says whether there is a file with the chunks of a part.
    pub(crate) fn has_chunks_file(&self, part: PartKey) -> bool {
        exists(&*self.disk, &self.parts().join(Self::chunks_name(part))).unwrap_or(true)
    }

    /// Returns the name of the data file that a file of the directory belongs to.
    pub(crate) fn part_of_name(name: &str) -> &str {
        name.strip_suffix(CHUNKS).unwrap_or(name)
    }

    /// Returns the names in the directory of parts.
    pub(crate) fn part_names(&self) -> Result<Vec<String>> {
        let parts = self.parts();
        self.disk.list(&parts).map_err(|error| cannot_read(&parts.display().to_string(), &error))
    }

    /// Moves files aside that the index does not name: those of a part without a durable chunk, or
    /// those of another volume. None is removed.
    fn move_unknown(&self, index: &Index) -> Result<Vec<String>> {
        let (parts, unknown) = (self.parts(), self.root.join("unknown"));
        let mut moved = Vec::new();
        for name in self.part_names()? {
            let of = Self::part_of_name(&name);
            if !PartKey::parse(of).is_some_and(|part| index.has_part(part)) {
                let from = parts.join(&name);
                // Kept for a person to judge, and not able to stop the service.
                if let Err(error) = self.disk.rename(&from, &unknown.join(&name)) {
                    tracing::warn!(file = %from.display(), %error, "cannot move a file that the index does not name");
                    continue;
                }
                moved.push(name);
            }
        }
        if !moved.is_empty() {
            // Before anything is made under the old name: the move of a lost file must not take the new
            // one along after a power cut.
            for directory in [&unknown, &parts] {
                self.disk.sync_directory(directory).map_err(|error| cannot_write(directory, &error))?;
            }
        }
        Ok(moved)
    }

    /// Returns the free bytes of the file system.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes(&self.root)
    }

    /// Reads bytes of a part.
    pub fn read(&self, part: PartKey, range: ByteRange) -> Result<Vec<u8>> {
        let path = self.path(part);
        let name = path.display().to_string();
        let length = usize::try_from(range.to - range.from).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        let file = self.disk.open_to_read(&path);
        let read = file.and_then(|file| file.read_at(&mut bytes, range.from));
        match read.map_err(|error| cannot_read(&name, &error))? {
            count if count == length => Ok(bytes),
            count => Err(corrupt(&name, range.from + count as u64, "the part ends before its last chunk")),
        }
    }

    /// Compares the bytes of a part with the checksums of its chunks. Returns the chunks that differ.
    pub fn damaged_chunks(&self, part: PartKey, chunks: &[ChunkRecord]) -> Vec<ChunkRecord> {
        let is_damaged = |chunk: &&ChunkRecord| {
            let range = ByteRange { from: chunk.offset, to: chunk.end() };
            self.read(part, range).map_or(true, |bytes| crc32c(&bytes) != chunk.crc32c)
        };
        chunks.iter().filter(is_damaged).copied().collect()
    }

    /// Does some work, and returns once it is durable or has failed.
    pub fn run(&self, work: Work, now: TimeMs) -> Done {
        match work {
            Work::Part(mut work) => {
                let outcome = self.write_part(&work).map_err(|error| fault(&error));
                if outcome.is_err() {
                    // The part is never written again.
                    self.files.lock().remove(&work.part);
                }
                let blocks = work.writes.drain(..).map(|write| write.block).collect();
                Done::Part { part: work.part, number: work.number, blocks, outcome }
            }
            Work::Commit(items) => {
                let mut journal = self.journal.lock();
                self.keep_chunks(journal.index(), &items);
                let outcome = journal
                    .commit(&items, now)
                    .map_err(|error| Fault { is_full: false, reason: error.to_string() });
                Done::Commit { outcome, wants_checkpoint: journal.wants_checkpoint() }
            }
            Work::Checkpoint => {
                let outcome = self.checkpoint(now);
                if let Err(error) = &outcome {
                    tracing::warn!(%error, "no checkpoint of the index; its log stays longer");
                }
                Done::Checkpoint(outcome.map_err(|error| Fault { is_full: false, reason: error.to_string() }))
            }
            Work::Remove { file, parts } => {
                let outcome = self.remove(&parts).map_err(|error| fault(&error));
                Done::Remove { file, outcome }
            }
        }
    }

    /// Writes the chunks of parts beside them that a fault has sealed, once their file is certified: the
    /// index drops them then, and readers need their sums.
    fn keep_chunks(&self, index: &Index, items: &[Item]) {
        let certified = items.iter().filter_map(|item| match item {
            Item::Certified(record) => record.unpack().map(|of| of.file),
            _ => None,
        });
        for file in certified {
            let parts = PartKey { file, epoch: 0 }..=PartKey { file, epoch: u32::MAX };
            for (part, known) in index.parts.range(parts).filter(|(_, known)| !known.chunks.is_empty()) {
                let (origin, chunks) = (known.origin.clone(), known.chunks.clone());
                let items = [Item::Opened { part: *part, origin }, Item::Durable { part: *part, chunks }];
                if let Err(error) = self.write_chunks(*part, &items) {
                    tracing::warn!(part = %part.file_name(), %error,
                        "the sums of a part are lost: its file can only be read whole");
                }
            }
        }
    }

    fn write_part(&self, work: &PartWork) -> io::Result<()> {
        // Not in the `match`, where the lock would be kept.
        let open = self.files.lock().get(&work.part).cloned();
        let file = match open {
            Some(file) => Some(file),
            None if work.create => {
                let file = self.disk.create_direct(&self.path(work.part))?;
                let file = Arc::new(PartFile { file, sync: SharedSync::default() });
                self.files.lock().insert(work.part, Arc::clone(&file));
                Some(file)
            }
            None if work.writes.is_empty() => None,
            None => return Err(io::Error::other("an earlier write of the part has failed")),
        };
        if let Some(PartFile { file, sync }) = file.as_deref() {
            for write in &work.writes {
                file.write_at(&write.block.bytes()[write.from..write.to], write.offset + write.from as u64)?;
            }
            let length = work.seal.as_ref().map(|seal| seal.length);
            let is_cut = length.is_some() && Some(file.length()?) != length;
            if let (true, Some(length)) = (is_cut, length) {
                file.set_length(length)?;
            }
            // Without either, the works before have synced everything.
            if is_cut || !work.writes.is_empty() {
                sync.run(|| file.sync())?;
            }
        }
        if let Some(PartSeal { items, .. }) = &work.seal {
            self.files.lock().remove(&work.part);
            let path = self.parts().join(Self::chunks_name(work.part));
            write_small(&*self.disk, &path, &self.part_head().pack(items))?;
        }
        if work.create || work.seal.is_some() {
            self.names.run(|| self.disk.sync_directory(&self.parts()))?;
        }
        Ok(())
    }

    fn remove(&self, parts: &[PartKey]) -> io::Result<()> {
        for part in parts {
            self.files.lock().remove(part);
            for path in [self.path(*part), self.parts().join(Self::chunks_name(*part))] {
                if exists(&*self.disk, &path)? {
                    self.disk.remove(&path)?;
                }
            }
        }
        self.names.run(|| self.disk.sync_directory(&self.parts()))
    }

    /// Writes a checkpoint of the index.
    pub fn checkpoint(&self, now: TimeMs) -> Result<()> {
        let _one = self.checkpoint.lock();
        let checkpoint = self.journal.lock().begin_checkpoint(now)?;
        checkpoint.write()
    }
}
