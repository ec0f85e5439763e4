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
    first: Revision,
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
    manifest: Value,
    segment: Option<Segment>,
}

/// The part of a manifest that the next opening needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Published {
    feed_id: String,
    generation: u64,
    revision: u64,
}

fn manifest(path: &Path) -> Option<Published> {
    let text = std::fs::read(path.join(MANIFEST)).ok()?;
    let value: Value = serde_json::from_slice(&text).ok()?;
    Some(Published {
        feed_id: value.get("feed_id")?.as_str()?.to_owned(),
        generation: value.get("generation")?.as_u64()?,
        revision: value.get("revision")?.as_u64()?,
    })
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
    let told = manifest(path).map(|published| published.generation);
    Ok(named.unwrap_or(0).max(told.unwrap_or(0)).max(own) + 1)
}

impl DirectorySink {
    /// Opens the directory for a feed. Returns the revision up to which it has everything.
    pub(crate) fn open(
        path: &Path,
        cursor: &Cursor,
        catalogue: Guid,
        pace: Pace,
    ) -> std::result::Result<(Self, Revision), Trouble> {
        if !path.is_dir() {
            let made = std::fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path);
            made.map_err(|error| failed("make the directory", path, &error))?;
        }
        let feed_id = hex_of(cursor.id);
        let published = manifest(path).unwrap_or_default();
        let is_own = published.feed_id == feed_id;
        if !is_own && published.generation >= cursor.generation {
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
        let manifest = json!({
            "format": 1,
            "feed": cursor.name.as_str(),
            "feed_id": feed_id,
            "catalogue": catalogue.to_string(),
            "timeline": cursor.timeline.to_string(),
            "generation": cursor.generation,
        });
        let (room, generation) = (cursor.spec.room, cursor.generation);
        let sink = DirectorySink { path: path.to_owned(), pace, room, generation, manifest, segment: None };
        let mut revision = cursor.revision;
        // The manifest may know of segments that the cursor does not: it was written first.
        if is_own && published.generation == generation && !cursor.must_copy {
            revision = revision.max(Revision(published.revision));
        }
        sink.tell(revision)?;
        Ok((sink, revision))
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
                segment.whole = Some(whole);
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
        let (first, last) = (segment.first.0, segment.last.0);
        let name = self.path.join(format!("{:06}-{first:020}-{last:020}{SEGMENT}", self.generation));
        let publish = || {
            segment.file.sync_all()?;
            std::fs::rename(&segment.path, &name)?;
            sync_directory(&name)
        };
        publish().map_err(|error| failed("write", &name, &error))?;
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
        Ok(Segment { file, path, first, last: first, bytes: 0, began, whole: None })
    }

    /// Writes the manifest.
    fn tell(&self, revision: Revision) -> Result<()> {
        let found = segments(&self.path).map_err(|error| failed("read", &self.path, &error))?;
        let mut manifest = self.manifest.clone();
        if let Some(fields) = manifest.as_object_mut() {
            fields.insert("revision".to_owned(), json!(revision.0));
            let listed = found.iter().map(|(name, bytes)| json!({"name": name, "bytes": bytes})).collect();
            fields.insert("segments".to_owned(), Value::Array(listed));
        }
        write_durably(&self.path.join(MANIFEST), format!("{manifest:#}\n").as_bytes(), FILE_MODE)
    }
}
