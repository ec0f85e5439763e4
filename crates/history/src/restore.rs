//! Makes a history as it was at a snapshot, or at a later time, from the log that continues it.
//!
//! The result is a directory of its own, complete and durable: links of the snapshot's files, its part of
//! the log, the records up to the time, and an empty segment for the next ones. A segment that is not
//! kept whole is written anew, so nothing that another directory has is ever written to. Opening replays
//! the records.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::{
    Disk, RealDisk, cannot_read, cannot_write, exists, list_if_there, read_whole, write_small,
};
use exacat_log::chain::RecordPlace;
use exacat_log::moment::Moment;
use exacat_log::replay::list_segments;
use exacat_log::segment::{BegunFor, HEADER_BYTES, put_seal};
use exacat_log::{Log, LogSettings, Preparation, Segment, segment};
use exacat_model::{Error, ErrorKind, Result, Revision, TimeMs, TimelineId};

use crate::archive_state::{ArchiveState, Tenure};
use crate::checked_file::HistoryId;
use crate::engine::create_directories;
use crate::log_walk::{Walk, header_of};
use crate::manifest::{Layout, Manifest};
use crate::open::{IDENTITY, read_identity};
use crate::snapshot::link;

/// Bytes of a segment of a restored log.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Moment to which a history is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Moment of the snapshot.
    Taken,
    /// The last record at or before this time.
    Time(TimeMs),
}

/// Source and end of a restore.
pub struct Restore<'r> {
    /// Snapshot of a history.
    pub from: &'r Path,
    /// History whose log may continue the snapshot.
    pub log_of: &'r Path,
    /// History that the result will replace, if there is one: no number of its files is used again.
    pub present: &'r Path,
    /// Directory to make.
    pub into: &'r Path,
    /// End of the restore.
    pub until: Until,
    /// Copies files instead of linking them.
    pub copies: bool,
}

/// Restores a history on the machine's disk; returns the last record in it.
pub fn restore(request: &Restore<'_>) -> Result<Moment> {
    restore_on(&(Arc::new(RealDisk) as Arc<dyn Disk>), request)
}

/// Restores a history on a disk.
pub fn restore_on(disk: &Arc<dyn Disk>, request: &Restore<'_>) -> Result<Moment> {
    let from = Layout { root: request.from.to_owned() };
    let lacks = |what: &str| Error::new(ErrorKind::Corrupt, format!("{}: {what}", from.root.display()));
    let id = read_identity(&**disk, &from)?.ok_or_else(|| lacks("the identity of the history is missing"))?;
    let taken = Moment::read(&**disk, &from.root)?.ok_or_else(|| lacks("the moment is missing"))?;
    if taken.log_of != id {
        return Err(lacks("the moment is another history's"));
    }
    let into = Layout { root: request.into.to_owned() };
    create_directories(&**disk, &into)?;
    let work = Work { disk, request, from: &from, into: &into, id };
    let mut manifest = Manifest::read(&**disk, &from.root, id)?.unwrap_or_default();
    for path in manifest.files(&from) {
        work.put(&path, &into.files())?;
    }
    let end = work.put_log(&manifest, &taken)?;
    manifest.next_file = manifest.next_file.max(work.next_file()?);
    manifest.write(&**disk, &into.root, id)?;
    work.put(&from.root.join(IDENTITY), &into.root)?;
    let copied_up_to = Some(end.revision.0);
    ArchiveState { tenure: Tenure::Copied, copied_up_to, ..ArchiveState::default() }
        .write(&**disk, &into.root)?;
    for directory in [into.files(), into.log(), into.root.clone()] {
        disk.sync_directory(&directory).map_err(|error| cannot_write(&directory, &error))?;
    }
    Ok(end.moment(id))
}

struct Work<'w> {
    disk: &'w Arc<dyn Disk>,
    request: &'w Restore<'w>,
    from: &'w Layout,
    into: &'w Layout,
    id: HistoryId,
}

impl Work<'_> {
    /// Links a file into a directory, or copies it.
    fn put(&self, path: &Path, into: &Path) -> Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        let (disk, to, shown) = (&**self.disk, into.join(name), path.display().to_string());
        if self.request.copies {
            let bytes = disk.open_to_read(path).and_then(|file| read_whole(&*file));
            let bytes = bytes.map_err(|error| cannot_read(&shown, &error))?;
            return write_small(disk, &to, &bytes).map_err(|error| cannot_write(&to, &error));
        }
        if link(disk, path, &to).map_err(|error| cannot_write(&to, &error))? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, format!("{shown} is missing")))
    }

    /// Puts the log together, up to the wanted time, and begins a segment behind it.
    fn put_log(&self, manifest: &Manifest, taken: &Moment) -> Result<RecordPlace> {
        let disk = &**self.disk;
        let mut walk = Walk { disk, history: self.id, place: None };
        let own = list_segments(disk, &self.from.log(), false)?;
        let mut joined = manifest.revision == 0;
        for segment in &own {
            let walked = walk.segment(segment, false, &mut |_, _| Ok(true))?;
            joined |= walked.header.first_revision.0 <= manifest.revision + 1;
            self.put(&segment.path, &self.into.log())?;
        }
        let end = walk
            .place
            .unwrap_or_else(|| if own.is_empty() { manifest.place() } else { RecordPlace::of(taken) });
        if (end.revision, end.digest) != (taken.revision, taken.digest) || (!own.is_empty() && !joined) {
            let what = format!("{}: its log does not lead to its moment", self.from.root.display());
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        let mut end = RecordPlace::of(taken);
        if let Until::Time(until) = self.request.until {
            if until < taken.time {
                return Err(Error::invalid(format!(
                    "{until} is before the last values in the snapshot, of {}: restore an earlier snapshot",
                    taken.time
                )));
            }
            end = self.follow(end, until)?;
        }
        let settings = LogSettings {
            disk: Arc::clone(self.disk),
            directory: self.into.log(),
            begun_for: BegunFor { catalogue: self.id, timeline: TimelineId::of_catalogue(self.id) },
            segment_bytes: SEGMENT_BYTES,
            preparation: Preparation::InPlace,
        };
        Log::create(settings, Revision(end.revision.0 + 1), end.time, end.digest)?;
        Ok(end)
    }

    /// Adds the records up to a time that continue a place.
    fn follow(&self, from: RecordPlace, until: TimeMs) -> Result<RecordPlace> {
        let disk = &**self.disk;
        let log = Layout { root: self.request.log_of.to_owned() }.log();
        if !exists(disk, &log).map_err(|error| cannot_read(&log.display().to_string(), &error))? {
            return Err(self.ends_at(from, "there is no log"));
        }
        let segments: Vec<Arc<Segment>> = list_segments(disk, &log, false)?
            .into_iter()
            .filter(|segment| segment.first_revision > from.revision)
            .collect();
        let Some(first) = segments.first() else { return Err(self.ends_at(from, "the log ends before")) };
        let header = header_of(disk, first)?;
        if header.first_revision.0 != from.revision.0 + 1 {
            return Err(self.ends_at(from, "the log behind the snapshot is no longer kept"));
        }
        if header.digest != from.digest || header.catalogue != self.id {
            let why = "the history was restored to a moment before the snapshot since: give the log of the replaced copy";
            return Err(self.ends_at(from, why));
        }
        let mut walk = Walk { disk, history: self.id, place: Some(from) };
        for (at, segment) in segments.iter().enumerate() {
            let is_last = at + 1 == segments.len();
            let mut walked = walk.segment(segment, is_last, &mut |head, _| Ok(head.time <= until))?;
            let end = walk.place.unwrap_or(from);
            if walked.is_whole && !is_last {
                self.put(&segment.path, &self.into.log())?;
                continue;
            }
            if walked.end > HEADER_BYTES {
                let path = self.into.log().join(segment::file_name(segment.first_revision));
                walked.bytes.truncate(walked.end);
                put_seal(&mut walked.bytes, walked.header.salt, Revision(end.revision.0 + 1));
                write_small(disk, &path, &walked.bytes).map_err(|error| cannot_write(&path, &error))?;
            }
            return Ok(end);
        }
        Ok(walk.place.unwrap_or(from))
    }

    fn ends_at(&self, place: RecordPlace, why: &str) -> Error {
        Error::invalid(format!(
            "{}: {why}, so values after {} are unknown: restore the snapshot itself, without --until",
            self.request.log_of.display(),
            place.time
        ))
    }

    /// Returns a number that no file of the present history has or had.
    fn next_file(&self) -> Result<u64> {
        let (disk, present) = (&**self.disk, Layout { root: self.request.present.to_owned() });
        // A damaged manifest has no number; the names of the files make up for it.
        let manifest = Manifest::read(disk, &present.root, self.id).ok().flatten().unwrap_or_default();
        let files = present.files();
        let names = list_if_there(disk, &files);
        let names = names.map_err(|error| cannot_read(&files.display().to_string(), &error))?;
        let numbers = names.iter().filter_map(|name| name.split('.').next()?.parse::<u64>().ok());
        Ok(manifest.next_file.max(numbers.max().map_or(0, |number| number.saturating_add(1))))
    }
}
