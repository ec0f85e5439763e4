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

use exacat_disk::{Disk, DiskFile, cannot_read, cannot_write, exists, random_id, write_small};
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use exacat_wire::writer::{ByteRange, ChunkRecord, ServiceId};
use parking_lot::Mutex;

use crate::identity::{IDENTITY, VolumeIdentity};
use crate::index::Index;
use crate::item::{Item, SealedBy};
use crate::journal::Journal;
use crate::origin::PartKey;
use crate::shared_sync::SharedSync;
use crate::stored::VolumeId;
use crate::sums::crc32c;
use crate::volume_files::{LOCK, VolumeFiles};
use crate::work::{Done, Fault, PartSeal, PartWork, Work};

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
    stored: VolumeFiles,
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

/// Returns the identity of a volume; a new one for an empty directory.
fn identify(disk: &dyn Disk, settings: &VolumeSettings) -> Result<VolumeId> {
    let name = settings.root.join(IDENTITY).display().to_string();
    let write = |id| VolumeIdentity { id, service: settings.service }.write(disk, &settings.root);
    if let Some(VolumeIdentity { id, service }) = VolumeIdentity::read(disk, &settings.root)? {
        if service != settings.service {
            if !settings.adopt {
                let what = format!(
                    "{name}: the volume belongs to service {service}; adopt it (exacat writer adopt), or \
                     start that service"
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
    let id = random_id()?;
    write(id)?;
    Ok(id)
}

/// Returns the error for a volume that another process has open.
fn in_use(root: &Path) -> Error {
    let what = format!("{}: another process has this volume open", root.display());
    Error::new(ErrorKind::Unavailable, what)
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
        let lock_path = root.join(LOCK);
        let lock = disk.lock(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => in_use(&root),
            _ => cannot_write(&lock_path, &error),
        })?;
        disk.make_private(&root, true).map_err(|error| cannot_write(&root, &error))?;
        let id = identify(&*disk, settings)?;
        let journal = Journal::open(Arc::clone(&disk), &root, id, settings.segment_bytes, now)?;
        let volume = Volume {
            stored: VolumeFiles { disk, root, id },
            journal: Mutex::new(journal),
            checkpoint: Mutex::default(),
            files: Mutex::default(),
            names: SharedSync::default(),
            _lock: lock,
        };
        let recovered = volume.recover(now)?;
        Ok((volume, recovered))
    }

    /// Returns the path of the bytes of a part.
    pub fn path(&self, part: PartKey) -> PathBuf {
        self.stored.path(part)
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
            let file = match self.stored.disk.open_to_write(&self.path(part)) {
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
        self.stored.write_chunks(part, &items)?;
        Ok(SealedBy::Order)
    }

    /// Reads the chunks of a sealed part: those beside its bytes, or those of the index, which has them until
    /// the file of a part with a fault is certified. A volume whose index has failed stays in that state.
    pub fn chunks_of(&self, part: PartKey) -> Result<Vec<ChunkRecord>> {
        if let Some(chunks) = self.stored.stored_chunks(part)? {
            return Ok(chunks);
        }
        let journal = self.journal.lock();
        let known = journal.index().parts.get(&part).filter(|of| of.sealed != Some(SealedBy::Order));
        known.map(|of| of.chunks.clone()).ok_or_else(|| self.stored.chunks_missing(part))
    }

    /// Moves files aside that the index does not name: those of a part without a durable chunk, or
    /// those of another volume. None is removed.
    fn move_unknown(&self, index: &Index) -> Result<Vec<String>> {
        let (parts, unknown) = (self.stored.parts(), self.stored.root.join("unknown"));
        let mut moved = Vec::new();
        for name in self.stored.part_names()? {
            let of = VolumeFiles::part_of_name(&name);
            if !PartKey::parse(of).is_some_and(|part| index.has_part(part)) {
                let from = parts.join(&name);
                // Kept for a person to judge, and not able to stop the service.
                if let Err(error) = self.stored.disk.rename(&from, &unknown.join(&name)) {
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
                self.stored
                    .disk
                    .sync_directory(directory)
                    .map_err(|error| cannot_write(directory, &error))?;
            }
        }
        Ok(moved)
    }

    /// Returns the free bytes of the file system.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.stored.disk.free_bytes(&self.stored.root)
    }

    /// Reads bytes of a part.
    pub fn read(&self, part: PartKey, range: ByteRange) -> Result<Vec<u8>> {
        self.stored.read(part, range)
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
                if let Err(error) = self.stored.write_chunks(*part, &items) {
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
                let file = self.stored.disk.create_direct(&self.path(work.part))?;
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
            let path = self.stored.chunks_path(work.part);
            write_small(&*self.stored.disk, &path, &self.stored.packed_chunks(items))?;
        }
        if work.create || work.seal.is_some() {
            self.names.run(|| self.stored.disk.sync_directory(&self.stored.parts()))?;
        }
        Ok(())
    }

    fn remove(&self, parts: &[PartKey]) -> io::Result<()> {
        for part in parts {
            self.files.lock().remove(part);
            for path in [self.path(*part), self.stored.chunks_path(*part)] {
                if exists(&*self.stored.disk, &path)? {
                    self.stored.disk.remove(&path)?;
                }
            }
        }
        self.names.run(|| self.stored.disk.sync_directory(&self.stored.parts()))
    }

    /// Writes a checkpoint of the index.
    pub fn checkpoint(&self, now: TimeMs) -> Result<()> {
        let _one = self.checkpoint.lock();
        let checkpoint = self.journal.lock().begin_checkpoint(now)?;
        checkpoint.write()
    }
}
