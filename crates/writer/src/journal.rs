//! Journal of a volume: the index of chunks, durable before any acknowledgement.
//!
//! It is a log of `exacat-log`, one record for each commit group, and a checkpoint from time to time.
//! Decision record 0070 has the reasons for one log per volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exacat_disk::{Disk, cannot_write, corrupt, replace_small};
use exacat_log::chain::RecordPlace;
use exacat_log::log_end::{self, LogEnd};
use exacat_log::record::{Head, split_head};
use exacat_log::replay::{Receiver, list_segments, replay, undecodable};
use exacat_log::segment::{BegunFor, Ending, Header};
use exacat_log::{Log, LogSettings, OpenedLog, Preparation, Segment};
use exacat_model::codec::Encode;
use exacat_model::{Error, ErrorKind, Result, Revision, TimeMs, TimelineId};

use crate::index::Index;
use crate::item::{Item, read_items};
use crate::limits::CHECKPOINT_EVERY_BYTES;
use crate::stored::{StoredHead, StoredKind, VolumeId};

/// Name of the checkpoint in the volume's directory.
const CHECKPOINT: &str = "checkpoint";
/// Time between two notes of the log's end without a sync.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// Index and log of a volume, opened to append.
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    volume: VolumeId,
    log: Log,
    last: RecordPlace,
    index: Index,
    /// Bytes of records since the last checkpoint.
    since_checkpoint: u64,
    /// Reason why nothing more is written: the state of the log is unknown.
    failed: Option<String>,
}

/// State of a replay.
struct Replay {
    index: Index,
    last: RecordPlace,
    bytes: u64,
}

impl Receiver for Replay {
    fn segment(&mut self, file: &str, header: &Header) -> Result<()> {
        self.last.check_begin(file, header)
    }

    fn record(&mut self, file: &str, offset: u64, head: Head, body: &[u8]) -> Result<()> {
        let wrong = |error| undecodable(file, offset, &error);
        self.last.check_next(file, offset, &head)?;
        let (_, content) = split_head(body).map_err(wrong)?;
        for item in read_items(content).map_err(wrong)? {
            self.index.apply(&item).map_err(|what| corrupt(file, offset, what))?;
        }
        self.last = self.last.after(head.time, content);
        self.bytes += body.len() as u64;
        Ok(())
    }
}

/// A log that was replayed, and what is needed to append to it.
struct Replayed {
    opening: Replay,
    segments: Vec<Arc<Segment>>,
    end: Option<LogEnd>,
}

/// Replays the journal of a volume. It writes to the disk only if it opens the log.
fn replayed(disk: &dyn Disk, root: &Path, volume: VolumeId, opens: bool) -> Result<Replayed> {
    let directory = Journal::directory(root);
    let checkpoint = StoredHead::read(disk, &root.join(CHECKPOINT), StoredKind::Checkpoint)?;
    let mut opening = Replay { index: Index::default(), last: RecordPlace::default(), bytes: 0 };
    if let Some((head, items)) = checkpoint {
        let name = root.join(CHECKPOINT).display().to_string();
        if head.volume != volume {
            return Err(corrupt(&name, 16, "the checkpoint is another volume's"));
        }
        for item in &items {
            opening.index.apply(item).map_err(|what| corrupt(&name, 0, what))?;
        }
        opening.last =
            RecordPlace { revision: Revision(head.revision), digest: head.digest, time: TimeMs(0) };
    }
    let segments = list_segments(disk, &directory, opens)?;
    if segments.is_empty() && opening.last.revision.0 > 0 {
        let what = format!("{}: there is a checkpoint, but no log: restore it", root.display());
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    // A replay that opens the log goes on from its end.
    if let Some(last) = segments.last().filter(|_| opens) {
        last.make_durable(disk)?;
    }
    let after = opening.last.revision;
    let end = replay(disk, volume, &segments, after, &mut opening)?;
    let at = opening.last.revision;
    log_end::check_followed(end.as_ref(), at)?;
    log_end::check_witness(disk, &directory, volume, end.as_ref(), at)?;
    log_end::check_length(&directory, end.as_ref())?;
    Ok(Replayed { opening, segments, end })
}

/// Reads the index of a volume without changing anything. The second value says whether its log ends with a
/// torn write, which the next opening cuts off.
pub(crate) fn read_index(disk: &dyn Disk, root: &Path, volume: VolumeId) -> Result<(Index, bool)> {
    let Replayed { opening, end, .. } = replayed(disk, root, volume, false)?;
    Ok((opening.index, end.is_some_and(|end| matches!(end.ending, Ending::Torn(_)))))
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
        let directory = Self::directory(root);
        let Replayed { opening, segments, end } = replayed(&*disk, root, volume, true)?;
        let settings = LogSettings {
            disk: Arc::clone(&disk),
            directory,
            begun_for: BegunFor { catalogue: volume, timeline: TimelineId::of_catalogue(volume) },
            segment_bytes,
            // A segment is small, and begins rarely.
            preparation: Preparation::Never,
        };
        let OpenedLog { log, kept_as, .. } =
            Log::open_or_create(settings, &opening.last, end, &segments, now)?;
        if let Some(kept_as) = kept_as {
            tracing::warn!(
                file = kept_as,
                "the index of the volume ended with a torn write; its bytes were kept"
            );
        }
        let Replay { index, last, bytes } = opening;
        let root = root.to_owned();
        let since_checkpoint = bytes;
        Ok(Journal { disk, root, volume, log, last, index, since_checkpoint, failed: None })
    }

    /// Returns the index of everything durable.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Makes items durable, all or none. After a failure nobody knows which, and nothing more is
    /// written.
    pub(crate) fn commit(&mut self, items: &[Item], now: TimeMs) -> Result<()> {
        if let Some(reason) = &self.failed {
            return Err(Error::new(ErrorKind::Unavailable, reason.clone()));
        }
        let mut content = Vec::new();
        items.iter().for_each(|item| item.encode(&mut content));
        // Judged on a copy of nothing: the items come from the service, which knows this index.
        let outcome = self.append(&content, now);
        if let Err(error) = &outcome {
            self.failed = Some(format!("the index of the volume cannot be written: {error}"));
        } else {
            for item in items {
                self.index.apply(item).map_err(|what| Error::new(ErrorKind::Internal, what))?;
            }
        }
        outcome
    }

    fn append(&mut self, content: &[u8], now: TimeMs) -> Result<()> {
        let time = now.max(self.last.time);
        let next = self.last.next_revision();
        let needed = RecordPlace::bytes_of(content.len());
        if !self.log.fits(needed) {
            self.log.roll(next, time, self.last.digest, needed)?;
        }
        let mut group = Vec::with_capacity(needed);
        let last = self.last.put(&mut group, self.log.salt(), time, content);
        let place = self.log.place(group.len());
        place.write(&group, next).map_err(|error| cannot_write(&self.log.segment().path, &error))?;
        self.last = last;
        place.note_durable(group.len(), next, NOTE_EVERY);
        self.since_checkpoint += group.len() as u64;
        Ok(())
    }

    /// Says whether a checkpoint would shorten the next start.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.since_checkpoint >= CHECKPOINT_EVERY_BYTES && self.failed.is_none()
    }

    /// Begins a segment of the log, and returns the index up to it. The caller writes it without the
    /// journal, whose commits go on.
    pub(crate) fn begin_checkpoint(&mut self, now: TimeMs) -> Result<Checkpoint> {
        let next = self.last.next_revision();
        if !self.log.is_empty() {
            self.log.roll(next, now.max(self.last.time), self.last.digest, 0)?;
        }
        self.since_checkpoint = 0;
        let (revision, digest) = (self.last.revision.0, self.last.digest);
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
        let directory = Journal::directory(&self.root);
        for segment in list_segments(&*self.disk, &directory, false)? {
            if segment.first_revision < self.next {
                self.disk.remove(&segment.path).map_err(|error| cannot_write(&segment.path, &error))?;
            }
        }
        self.disk.sync_directory(&directory).map_err(|error| cannot_write(&directory, &error))
    }
}
