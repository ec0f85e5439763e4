//! Journal of a volume: the index of chunks, durable before any acknowledgement.
//!
//! It is a log of `exacat-log`, one record for each commit group, and a checkpoint from time to time.
//! Decision record 0070 has the reasons for one log per volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_write, corrupt, replace_small};
use exacat_log::chain::RecordPlace;
use exacat_log::content_log::{ContentLog, ContentLogSettings, ReadContents, read_contents, remove_before};
use exacat_log::replay::undecodable;
use exacat_model::codec::Encode;
use exacat_model::{Error, ErrorKind, Result, Revision, TimeMs};

use crate::index::Index;
use crate::item::{Item, read_items};
use crate::limits::CHECKPOINT_EVERY_BYTES;
use crate::stored::{StoredHead, StoredKind, VolumeId};

/// Name of the checkpoint in the volume's directory.
const CHECKPOINT: &str = "checkpoint";
/// Index and log of a volume, opened to append.
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    volume: VolumeId,
    log: ContentLog,
    index: Index,
    /// Bytes of records since the last checkpoint.
    since_checkpoint: u64,
}

/// Replays the journal of a volume. It writes to the disk only if it opens the log.
fn replayed(log: &ContentLogSettings, root: &Path, opens: bool) -> Result<(Index, ReadContents)> {
    let checkpoint = StoredHead::read(&*log.disk, &root.join(CHECKPOINT), StoredKind::Checkpoint)?;
    let (mut index, mut last) = (Index::default(), RecordPlace::default());
    if let Some((head, items)) = checkpoint {
        let name = root.join(CHECKPOINT).display().to_string();
        if head.volume != log.owner {
            return Err(corrupt(&name, 16, "the checkpoint is another volume's"));
        }
        for item in &items {
            index.apply(item).map_err(|what| corrupt(&name, 0, what))?;
        }
        last = RecordPlace { revision: Revision(head.revision), digest: head.digest, time: TimeMs(0) };
    }
    let read = read_contents(log, last, opens, &mut |file, offset, content| {
        let items = read_items(content).map_err(|error| undecodable(file, offset, &error))?;
        items.iter().try_for_each(|item| index.apply(item).map_err(|what| corrupt(file, offset, what)))
    })?;
    Ok((index, read))
}

fn log_of(disk: Arc<dyn Disk>, root: &Path, volume: VolumeId, segment_bytes: u64) -> ContentLogSettings {
    ContentLogSettings { disk, directory: Journal::directory(root), owner: volume, segment_bytes }
}

/// Reads the index of a volume without changing anything. The second value says whether its log ends with a
/// torn write, which the next opening cuts off.
pub(crate) fn read_index(disk: &Arc<dyn Disk>, root: &Path, volume: VolumeId) -> Result<(Index, bool)> {
    // Nothing is begun, so the size of segments does not matter.
    let (index, read) = replayed(&log_of(Arc::clone(disk), root, volume, 0), root, false)?;
    Ok((index, read.is_torn()))
}

impl Journal {
    /// Returns the directory of the log of a volume.
    pub(crate) fn directory(root: &Path) -> PathBuf {
        root.join("index")
    }

    /// Opens the journal of a volume; a new one if there is none.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        root: &Path,
        volume: VolumeId,
        segment_bytes: u64,
        now: TimeMs,
    ) -> Result<Self> {
        let settings = log_of(Arc::clone(&disk), root, volume, segment_bytes);
        let (index, read) = replayed(&settings, root, true)?;
        let since_checkpoint = read.bytes;
        let log = ContentLog::open(&settings, read, now)?;
        Ok(Journal { disk, root: root.to_owned(), volume, log, index, since_checkpoint })
    }

    /// Returns the index of everything durable.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Makes items durable, all or none. After a failure nobody knows which, and nothing more is
    /// written.
    pub(crate) fn commit(&mut self, items: &[Item], now: TimeMs) -> Result<()> {
        let mut content = Vec::new();
        items.iter().for_each(|item| item.encode(&mut content));
        self.since_checkpoint += self.log.append(&content, now)?;
        for item in items {
            self.index.apply(item).map_err(|what| Error::new(ErrorKind::Internal, what))?;
        }
        Ok(())
    }

    /// Says whether a checkpoint would shorten the next start.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.since_checkpoint >= CHECKPOINT_EVERY_BYTES && !self.log.has_failed()
    }

    /// Begins a segment of the log, and returns the index up to it. The caller writes it without the
    /// journal, whose commits go on.
    pub(crate) fn begin_checkpoint(&mut self, now: TimeMs) -> Result<Checkpoint> {
        let next = self.log.begin_segment(now)?;
        self.since_checkpoint = 0;
        let (revision, digest) = (self.log.last().revision.0, self.log.last().digest);
        let head = StoredHead { volume: self.volume, kind: StoredKind::Checkpoint, revision, digest };
        Ok(Checkpoint {
            disk: Arc::clone(&self.disk),
            root: self.root.clone(),
            index: self.index.clone(),
            head,
            next,
        })
    }
}

/// A checkpoint of the index on its way to the disk.
pub(crate) struct Checkpoint {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    index: Index,
    head: StoredHead,
    /// First revision of the log that is not in it.
    next: Revision,
}

impl Checkpoint {
    /// Writes the index to a file, and removes the log before it. A failure loses nothing: the log
    /// stays.
    pub(crate) fn write(self) -> Result<()> {
        let bytes = self.head.pack(&self.index.items());
        replace_small(&*self.disk, &self.root, CHECKPOINT, &bytes)
            .map_err(|error| cannot_write(&self.root.join(CHECKPOINT), &error))?;
        remove_before(&*self.disk, &Journal::directory(&self.root), self.next)
    }
}
