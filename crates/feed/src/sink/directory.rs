//! A directory of segments: files of whole requests, each under its name only when it is durable.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use exacat_disk::hex_of;
use exacat_model::{Guid, Result, Revision};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::trouble::Trouble;
use crate::batch::Batch;
use crate::cursor::{Cursor, failed, sync_directory, write_durably};
use crate::limits::Pace;

/// End of the names of segments.
const SEGMENT: &str = ".ndjson";
/// Name of the manifest.
const MANIFEST: &str = "feed.json";
/// Mode of what consumers read: theirs may be another account of the feed's group.
const FILE_MODE: u32 = 0o640;
/// Mode of the directory, if the feed makes it.
const DIRECTORY_MODE: u32 = 0o750;
/// Free bytes of the disk below which nothing is written: it may be that of the catalogue.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// The segment being written, under an unfinished name.
struct Segment {
    file: File,
    path: PathBuf,
    last: Revision,
    bytes: u64,
    began: Instant,
    /// Last revision whose request is whole in it.
    whole: Option<Revision>,
}

impl Drop for Segment {
    fn drop(&mut self) {
        // After it got its name there is nothing under this one.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A directory of segments.
pub(crate) struct DirectorySink {
    path: PathBuf,
    pace: Pace,
    room: u64,
    generation: u64,
    /// Number of the last segment that got its name.
    sequence: u64,
    window: Revision,
    manifest: Value,
    segment: Option<Segment>,
}

/// The part of a manifest that the next opening needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Published {
    feed_id: String,
    generation: u64,
    sequence: u64,
    revision: u64,
    window: u64,
}

fn published(path: &Path) -> Option<Published> {
    let text = std::fs::read(path.join(MANIFEST)).ok()?;
    let value: Value = serde_json::from_slice(&text).ok()?;
    let number = |name: &str| value.get(name)?.as_u64();
    Some(Published {
        feed_id: value.get("feed_id")?.as_str()?.to_owned(),
        generation: number("generation")?,
        sequence: number("sequence")?,
        revision: number("revision")?,
        window: number("window")?,
    })
}

/// Position of a sink when it was opened: it may know more than the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The sink has everything up to this revision.
    pub revision: Revision,
    /// Up to this revision a mirror may lack entries that change.
    pub window: Revision,
    pub generation: u64,
}

/// Returns the names and bytes of segments, in order.
fn segments(path: &Path) -> std::io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.ends_with(SEGMENT) {
            // A consumer may remove it meanwhile.
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            found.push((name, bytes));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the generation after all those in a directory.
pub(crate) fn next_generation(path: &Path, own: u64) -> Result<u64> {
    let found = match segments(path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed("read", path, &error)),
    };
    let named = found.iter().filter_map(|(name, _)| name.split('-').next()?.parse().ok()).max();
    let told = published(path).map(|published| published.generation);
    Ok(named.unwrap_or(0).max(told.unwrap_or(0)).max(own) + 1)
}

/// Makes the directory of a new feed, and takes it for the feed.
pub(crate) fn claim(path: &Path, cursor: &Cursor, catalogue: Guid) -> Result<()> {
    make(path)?;
    let manifest = manifest_of(cursor, cursor.generation, catalogue);
    let (revision, window) = (cursor.revision, cursor.window);
    write_manifest(path, &manifest, Told { revision, window, sequence: 0 })
}

fn make(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path);
    made.map_err(|error| failed("make the directory", path, &error))
}

/// Returns the fields of a manifest that do not change.
fn manifest_of(cursor: &Cursor, generation: u64, catalogue: Guid) -> Value {
    json!({
        "format": 1,
        "feed": cursor.name.as_str(),
        "feed_id": hex_of(cursor.id),
        "catalogue": catalogue.to_string(),
        "timeline": cursor.timeline.to_string(),
        "generation": generation,
    })
}

/// Fields of a manifest that change.
#[derive(Clone, Copy)]
struct Told {
    revision: Revision,
    window: Revision,
    sequence: u64,
}

fn write_manifest(path: &Path, manifest: &Value, told: Told) -> Result<()> {
    let found = segments(path).map_err(|error| failed("read", path, &error))?;
    let mut manifest = manifest.clone();
    if let Some(fields) = manifest.as_object_mut() {
        fields.insert("revision".to_owned(), json!(told.revision.0));
        fields.insert("window".to_owned(), json!(told.window.0));
        fields.insert("sequence".to_owned(), json!(told.sequence));
        let listed = found.iter().map(|(name, bytes)| json!({"name": name, "bytes": bytes})).collect();
        fields.insert("segments".to_owned(), Value::Array(listed));
    }
    write_durably(&path.join(MANIFEST), format!("{manifest:#}\n").as_bytes(), FILE_MODE)
}

impl DirectorySink {
    /// Opens the directory for a feed.
    pub(crate) fn open(
        path: &Path,
        cursor: &Cursor,
        catalogue: Guid,
        pace: Pace,
    ) -> std::result::Result<(Self, Opened), Trouble> {
        make(path)?;
        let found = published(path);
        let is_own = found.as_ref().is_some_and(|found| found.feed_id == hex_of(cursor.id));
        let told = found.as_ref().map_or(0, |found| found.generation);
        if !is_own && found.is_some() && told >= cursor.generation {
            return Err(Trouble::Refused(format!(
                "another feed writes to {}: give each feed a directory of its own",
                path.display()
            )));
        }
        // Leftovers of a server that was killed.
        let entries = std::fs::read_dir(path).map_err(|error| failed("read", path, &error))?;
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().ends_with(".unfinished") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let mut opened =
            Opened { revision: cursor.revision, window: cursor.window, generation: cursor.generation };
        let mut sequence = 0;
        match found {
            // It may know of segments that the cursor does not: it was written first.
            Some(found) if is_own && told == cursor.generation => {
                sequence = found.sequence;
                if !cursor.must_copy {
                    opened.revision = opened.revision.max(Revision(found.revision));
                    opened.window = opened.window.max(Revision(found.window));
                }
            }
            Some(_) if told < cursor.generation => {}
            // The manifest is gone, or the cursor is an older one put back: consumers may have read
            // segments of this generation that nobody here knows.
            _ => opened.generation = next_generation(path, cursor.generation)?,
        }
        let sink = DirectorySink {
            path: path.to_owned(),
            pace,
            room: cursor.spec.room,
            generation: opened.generation,
            sequence,
            window: opened.window,
            manifest: manifest_of(cursor, opened.generation, catalogue),
            segment: None,
        };
        sink.tell(opened.revision)?;
        Ok((sink, opened))
    }

    /// Notes up to which revision a mirror may lack entries that change.
    pub(crate) fn note_window(&mut self, window: Revision) {
        self.window = window;
    }

    /// Adds events. `whole` is the last revision whose request ends in or before them.
    pub(crate) fn put(
        &mut self,
        batch: &Batch,
        whole: Option<Revision>,
    ) -> std::result::Result<Option<Revision>, Trouble> {
        let (Some(first), Some(last)) = (batch.heads.first(), batch.heads.last()) else {
            return Ok(None);
        };
        if self.segment.is_none() {
            self.segment = Some(self.begin(first.revision)?);
        }
        let Some(segment) = &mut self.segment else { return Ok(None) };
        segment.file.write_all(&batch.bytes).map_err(|error| failed("write", &segment.path, &error))?;
        segment.bytes += batch.bytes.len() as u64;
        segment.last = last.revision;
        segment.whole = whole;
        if whole.is_some() && segment.bytes >= self.pace.segment_bytes {
            return self.publish();
        }
        Ok(None)
    }

    /// Says that everything up to a revision is in what was put.
    pub(crate) fn pass(&mut self, whole: Revision) -> bool {
        match &mut self.segment {
            Some(segment) => {
                // The beginning of a request is no place to end.
                segment.whole = segment.whole.map(|before| before.max(whole));
                false
            }
            None => true,
        }
    }

    /// Returns the time at which the segment ends by its age.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.segment.as_ref().filter(|one| one.whole.is_some()).map(|one| one.began + self.pace.segment_age)
    }

    /// Ends the segment and gives it its name. Returns the revision up to which it has everything.
    pub(crate) fn publish(&mut self) -> std::result::Result<Option<Revision>, Trouble> {
        let Some(segment) = self.segment.take() else { return Ok(None) };
        let Some(whole) = segment.whole else {
            self.segment = Some(segment);
            return Ok(None);
        };
        let (sequence, last) = (self.sequence + 1, segment.last.0);
        let name = self.path.join(format!("{:06}-{sequence:010}-{last:020}{SEGMENT}", self.generation));
        let publish = || {
            segment.file.sync_all()?;
            std::fs::rename(&segment.path, &name)?;
            sync_directory(&name)
        };
        publish().map_err(|error| failed("write", &name, &error))?;
        self.sequence = sequence;
        self.tell(whole)?;
        Ok(Some(whole))
    }

    fn begin(&self, first: Revision) -> std::result::Result<Segment, Trouble> {
        let found = segments(&self.path).map_err(|error| failed("read", &self.path, &error))?;
        let bytes: u64 = found.iter().map(|(_, bytes)| bytes).sum();
        let shown = self.path.display();
        if bytes >= self.room {
            return Err(Trouble::later(format!(
                "{shown} holds {bytes} bytes of segments, the feed's room is {}: remove those that were read",
                self.room
            )));
        }
        let free = rustix::fs::statvfs(&self.path).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        if free.is_ok_and(|free| free < FREE_BYTES_MIN) {
            return Err(Trouble::later(format!("the disk of {shown} is nearly full: free some space")));
        }
        let path = self.path.join(format!("{:06}-{:020}.unfinished", self.generation, first.0));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(&path);
        let file = file.map_err(|error| failed("write", &path, &error))?;
        let began = Instant::now();
        Ok(Segment { file, path, last: first, bytes: 0, began, whole: None })
    }

    /// Writes the manifest.
    fn tell(&self, revision: Revision) -> Result<()> {
        let told = Told { revision, window: self.window, sequence: self.sequence };
        write_manifest(&self.path, &self.manifest, told)
    }
}
