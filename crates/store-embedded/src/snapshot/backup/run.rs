//! Makes a backup in bounded steps, so that the caller sees its progress.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, cannot_write, corrupt, exists, read_whole, remove_tree, write_small};
use exacat_log::archive::is_archived;
use exacat_log::moment::Moment;
use exacat_log::replay::list_segments;
use exacat_log::segment::{HEADER_BYTES, Header, Records};
use exacat_log::{Segment, record};
use exacat_model::{BackupProgress, Error, ErrorKind, Result, Revision, SnapshotName};

use super::copy::Copy;
use super::files::{self, BackupFile, BackupPart};
use super::{LOCK, Shelter, cannot_use, copy_part_files};
use crate::companion::COMPANION;
use crate::identity::Layout;
use crate::run::{Run, head_of};
use crate::settings::{BACKUP_FILES_MAX, BACKUP_STEP_BYTES};
use crate::snapshot::label::Label;
use crate::snapshot::line::header_of;
use crate::snapshot::take::{Pinned, discard, log_files};
use crate::table::run_file_name;

/// A file that the backup will have.
struct Planned {
    part: BackupPart,
    from: PathBuf,
    /// Number of its bytes that belong to the backup.
    bytes: u64,
    name: String,
}

impl Planned {
    /// True if it is an archived segment of the log.
    fn is_archived(&self) -> bool {
        self.name.ends_with(".logz")
    }
}

/// Work on the current file.
enum Stage {
    /// Copy the file, or read it if it exists already.
    Copying(Copy),
    /// Read the copy back.
    ReadingBack(Copy, u128),
    /// Check the content, from this part on.
    Checking(Arc<Run>, usize, u128),
}

/// A backup in the making, from a hidden snapshot.
pub(crate) struct Backing {
    disk: Arc<dyn Disk>,
    shelter: Shelter,
    /// Layout of the snapshot, which is removed in the end.
    from: Layout,
    pinned: Pinned,
    plan: Vec<Planned>,
    at: usize,
    stage: Option<Stage>,
    /// Lengths and checksums of files in earlier backups.
    known: HashMap<String, (u64, u128)>,
    kept: Vec<BackupFile>,
    progress: BackupProgress,
    /// Bytes of finished files.
    bytes_before: u64,
    /// True if such a backup exists already.
    complete: bool,
    _lock: Box<dyn Send + Sync>,
}

impl Drop for Backing {
    fn drop(&mut self) {
        discard(&*self.disk, self.from.root());
    }
}

impl Backing {
    /// Begins a backup of the pinned state at `from`, in a directory for backups.
    pub(crate) fn begin(disk: Arc<dyn Disk>, directory: &Path, from: Layout, pinned: Pinned) -> Result<Self> {
        let shelter = Shelter::new(directory);
        disk.create_directory(directory).map_err(|error| cannot_use(directory, &error))?;
        let lock = disk.lock(&directory.join(LOCK)).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Error::new(
                ErrorKind::Busy,
                format!("another backup is being written to {}: wait for it", directory.display()),
            ),
            _ => cannot_use(directory, &error),
        })?;
        let part = from.root().join(COMPANION);
        let moment = Moment::read(&*disk, &part)?;
        shelter.make(&*disk, pinned.identity.id, moment.is_some())?;
        // The directory itself belongs to the operator. exacat made everything in it, maybe by an
        // older release with other modes.
        for part in ["runs", "log", "backups", COMPANION] {
            let path = shelter.root.join(part);
            if !exists(&*disk, &path).map_err(|error| cannot_write(&path, &error))? {
                continue;
            }
            disk.make_private(&path, true).map_err(|error| cannot_write(&path, &error))?;
        }
        let mut known = HashMap::new();
        let labels = shelter.list(&*disk)?;
        let log = from.log();
        let last = header_of(&*disk, &Segment::new(&log, pinned.end.segment))?;
        let own = format!("{:020}-{:016x}-", last.first_revision.0, last.salt);
        for label in &labels {
            for file in files::load(&*disk, &shelter.backup(&label.name))? {
                if label.revision > pinned.label.revision && file.name.starts_with(&own) {
                    return Err(ends_early(label, &pinned.label, directory));
                }
                known.insert(file.name, (file.bytes, file.hash));
            }
        }
        let (name, complete) = name_for(&pinned.label, &labels, |other| {
            Ok(Moment::read(&*disk, &shelter.backup(&other.name).join(COMPANION))? == moment)
        })?;
        let mut plan = if complete { Vec::new() } else { plan(&*disk, &from, &pinned, &shelter, &known)? };
        if let (Some(moment), false) = (moment, complete) {
            plan_part(&*disk, &part, &moment, &mut plan)?;
        }
        if plan.len() > BACKUP_FILES_MAX {
            return Err(Error::limit("the number of files of a backup", plan.len(), BACKUP_FILES_MAX));
        }
        let progress = BackupProgress {
            name: name.to_string(),
            revision: pinned.label.revision,
            files: plan.len() as u64,
            bytes: plan.iter().map(|file| file.bytes).sum(),
            ..BackupProgress::default()
        };
        Ok(Backing {
            disk,
            shelter,
            from,
            pinned: Pinned { label: Label { name, ..pinned.label }, ..pinned },
            plan,
            at: 0,
            stage: None,
            known,
            kept: Vec::new(),
            progress,
            bytes_before: 0,
            complete,
            _lock: lock,
        })
    }

    /// Returns the progress.
    pub(crate) fn progress(&self) -> &BackupProgress {
        &self.progress
    }

    /// Does one step; true once the backup is complete.
    pub(crate) fn step(&mut self) -> Result<bool> {
        if self.complete {
            return Ok(true);
        }
        let mut budget = BACKUP_STEP_BYTES;
        while budget > 0 {
            if self.at == self.plan.len() {
                self.finish()?;
                self.complete = true;
                return Ok(true);
            }
            budget = budget.saturating_sub(self.go_on(budget)?.max(1));
        }
        Ok(false)
    }

    /// Returns the final path of a file in the backups, and the path at which it is made.
    fn paths(&self, file: &Planned) -> (PathBuf, PathBuf) {
        let directory = self.shelter.root.join(file.part.directory());
        (directory.join(&file.name), directory.join(format!("{}.unfinished", file.name)))
    }

    /// Continues the current file; returns the bytes processed.
    fn go_on(&mut self, budget: u64) -> Result<u64> {
        let file = &self.plan[self.at];
        let (path, unfinished) = self.paths(file);
        let is_there = exists(&*self.disk, &path);
        let is_there = is_there.map_err(|error| cannot_read(&path.display().to_string(), &error))?;
        let being_made = if is_there { &path } else { &unfinished };
        let read_back = || Copy::reading(&*self.disk, being_made.clone(), file.bytes);
        match self.stage.take() {
            None if is_there => match self.known.get(&file.name) {
                Some((bytes, hash)) if *bytes == file.bytes => {
                    let hash = *hash;
                    self.keep(hash, false)?;
                    Ok(1)
                }
                _ => {
                    self.stage = Some(Stage::Copying(read_back()?));
                    Ok(1)
                }
            },
            None => {
                let copy = Copy::new(&*self.disk, file.from.clone(), file.bytes, unfinished)?;
                self.stage = Some(Stage::Copying(copy));
                Ok(1)
            }
            Some(Stage::Copying(mut copy)) => {
                let before = copy.done();
                let hash = copy.step(budget)?;
                let done = copy.done();
                self.stage = Some(match hash {
                    Some(hash) => Stage::ReadingBack(read_back()?, hash),
                    None => Stage::Copying(copy),
                });
                self.progress.bytes_done = self.bytes_before + done;
                Ok(done - before)
            }
            Some(Stage::ReadingBack(mut copy, hash)) => {
                let before = copy.done();
                match copy.step(budget)? {
                    None => {
                        let read = copy.done() - before;
                        self.stage = Some(Stage::ReadingBack(copy, hash));
                        return Ok(read);
                    }
                    Some(read) if read != hash => {
                        let what = format!(
                            "{}: the bytes read back differ from those written",
                            being_made.display()
                        );
                        return Err(Error::new(ErrorKind::Corrupt, what));
                    }
                    Some(_) => {}
                }
                let read = copy.done() - before;
                let name = file.from.display().to_string();
                match file.part {
                    BackupPart::Part(_) => self.keep(hash, !is_there)?,
                    BackupPart::Log(_) | BackupPart::PartLog(_) => {
                        check_segment(&*self.disk, being_made, &name)?;
                        self.keep(hash, !is_there)?;
                    }
                    BackupPart::Run(_) => {
                        let opened =
                            self.disk.open_to_read(being_made).map_err(|error| cannot_read(&name, &error))?;
                        let run = Run::open_of(&name, Arc::from(opened), |_| true)?;
                        self.stage = Some(Stage::Checking(Arc::new(run), 0, hash));
                    }
                }
                Ok(read)
            }
            Some(Stage::Checking(run, mut part, hash)) => {
                let mut read = 0;
                while part < run.parts() {
                    read += run.check_part(part)?;
                    part += 1;
                    if read >= budget {
                        self.stage = Some(Stage::Checking(run, part, hash));
                        return Ok(read);
                    }
                }
                self.keep(hash, !is_there)?;
                Ok(read)
            }
        }
    }

    /// Notes that the current file is whole.
    fn keep(&mut self, hash: u128, copied: bool) -> Result<()> {
        let file = &self.plan[self.at];
        let (path, unfinished) = self.paths(file);
        if copied {
            let directory = self.shelter.root.join(file.part.directory());
            let named =
                self.disk.rename(&unfinished, &path).and_then(|()| self.disk.sync_directory(&directory));
            named.map_err(|error| cannot_write(&path, &error))?;
            self.progress.bytes_copied += file.bytes;
        }
        self.kept.push(BackupFile { part: file.part, name: file.name.clone(), bytes: file.bytes, hash });
        self.bytes_before += file.bytes;
        self.progress.bytes_done = self.bytes_before;
        self.progress.files_done += 1;
        self.at += 1;
        Ok(())
    }

    /// Completes the backup, once all files exist.
    fn finish(&mut self) -> Result<()> {
        let disk = &*self.disk;
        let (label, backups) = (&self.pinned.label, self.shelter.backups());
        let making = backups.join(format!(".{}.unfinished", label.name));
        let place = self.shelter.backup(&label.name);
        let cannot = |error: std::io::Error| cannot_write(&place, &error);
        remove_tree(disk, &making).and_then(|()| disk.create_directory(&making)).map_err(cannot)?;
        Layout::new(&making).write_identity(disk, &self.pinned.identity)?;
        self.pinned.manifest.save(disk, &making, self.pinned.identity.id)?;
        write_small(disk, &making.join(files::NAME), files::encode(&self.kept).as_bytes()).map_err(cannot)?;
        let part = self.from.root().join(COMPANION);
        if Moment::read(disk, &part)?.is_some() {
            let to = making.join(COMPANION);
            disk.create_directory(&to).map_err(cannot)?;
            copy_part_files(disk, &part, &to)?;
            disk.sync_directory(&to).map_err(cannot)?;
        }
        label.write(disk, &making)?;
        disk.sync_directory(&making)
            .and_then(|()| disk.rename(&making, &place))
            .and_then(|()| disk.sync_directory(&backups))
            .and_then(|()| disk.sync_directory(&self.shelter.root))
            .map_err(cannot)
    }
}

/// Returns the error for a log that lost its end: an earlier backup has more of the log's last
/// segment than the log itself. A restore begins another segment, so this is no other timeline.
fn ends_early(earlier: &Label, now: &Label, directory: &Path) -> Error {
    let what = format!(
        "the backup {} in {} has change {}, but the log of the catalogue ends with change {}: the end of the log was lost; \
         stop the server, move its data away, and restore that backup with 'exacat restore'",
        earlier.name,
        directory.display(),
        earlier.revision.0,
        now.revision.0
    );
    Error::new(ErrorKind::Corrupt, what)
}

/// Returns the name of a backup, from its revision. Says whether a backup of this very state
/// exists.
fn name_for(
    label: &Label,
    there: &[Label],
    has_part: impl Fn(&Label) -> Result<bool>,
) -> Result<(SnapshotName, bool)> {
    let mut name = format!("r{}", label.revision.0);
    for further in 2..=u32::MAX {
        match there.iter().find(|other| other.name.as_str() == name) {
            None => return Ok((SnapshotName::parse(&name)?, false)),
            Some(same)
                if (same.revision, same.digest) == (label.revision, label.digest) && has_part(same)? =>
            {
                return Ok((same.name.clone(), true));
            }
            // The catalogue was restored since, and reached the same revision on another timeline; or
            // only the state beside it changed.
            Some(_) => name = format!("r{}-{further}", label.revision.0),
        }
    }
    Err(Error::invalid("there is no further name for a backup of this revision"))
}

/// Lists the files of a backup of a snapshot. Files in `known` need no second copy.
fn plan(
    disk: &dyn Disk,
    from: &Layout,
    pinned: &Pinned,
    shelter: &Shelter,
    known: &HashMap<String, (u64, u128)>,
) -> Result<Vec<Planned>> {
    let mut plan = Vec::new();
    for run in &pinned.manifest.runs {
        let path = from.runs().join(run_file_name(run.number));
        let name = path.display().to_string();
        let file = disk.open_to_read(&path).map_err(|error| cannot_read(&name, &error))?;
        let (head, bytes) = (head_of(&name, &*file)?, file.length());
        let bytes = bytes.map_err(|error| cannot_read(&name, &error))?;
        let kept_as = format!("{:010}-{:016x}.run", run.number, head.salt);
        plan.push(Planned { part: BackupPart::Run(run.number), from: path, bytes, name: kept_as });
    }
    let log = from.log();
    let all = log_files(disk, &log).map_err(|error| cannot_read(&log.display().to_string(), &error))?;
    let end = pinned.label.revision;
    for (at, (first, name)) in all.iter().enumerate() {
        // A segment that begins after the snapshot is kept only behind an archived one, and without
        // its changes: the next segment proves where an archived one ends.
        if *first > end && !plan.last().is_some_and(Planned::is_archived) {
            break;
        }
        let path = log.join(name);
        let ending = if name.ends_with(".logz") { "logz" } else { "log" };
        let (last, bytes) = match all.get(at + 1).filter(|_| *first <= end) {
            Some((next, _)) => (Revision(next.0 - 1), length(disk, &path)?),
            None => (end, length_up_to(disk, &path, end)?),
        };
        let salt = header_of(disk, &Segment::new(&log, *first))?.salt;
        let stem = format!("{:020}-{salt:016x}-{:020}", first.0, last.0);
        // The segment may have been copied before it was archived. That copy is as good.
        let plain = format!("{stem}.log");
        let there = shelter.root.join("log").join(&plain);
        let (kept_as, bytes) = match known.get(&plain) {
            Some((there_bytes, _)) if length(disk, &there).is_ok_and(|bytes| bytes == *there_bytes) => {
                (plain, *there_bytes)
            }
            _ => (format!("{stem}.{ending}"), bytes),
        };
        plan.push(Planned { part: BackupPart::Log(first.0), from: path, bytes, name: kept_as });
    }
    Ok(plan)
}

/// Adds the files of the companion's part.
fn plan_part(disk: &dyn Disk, part: &Path, moment: &Moment, plan: &mut Vec<Planned>) -> Result<()> {
    // A history that was made anew has the same numbers again, and another id.
    let id: String = moment.log_of[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let list = |directory: &Path| {
        disk.list(directory).map_err(|error| cannot_read(&directory.display().to_string(), &error))
    };
    let (files, log) = (part.join("files"), part.join("log"));
    for (number, name) in list(&files)?.into_iter().enumerate() {
        let from = files.join(&name);
        let (bytes, name) = (length(disk, &from)?, format!("{id}-{name}"));
        plan.push(Planned { part: BackupPart::Part(number as u64), from, bytes, name });
    }
    for segment in list_segments(disk, &log, false)? {
        let (from, first) = (segment.path.clone(), segment.first_revision.0);
        // A restore may have cut a segment: then it has the same salt, and another length.
        let (bytes, salt) = (length(disk, &from)?, header_of(disk, &segment)?.salt);
        let name = format!("{id}-{first:020}-{salt:016x}-{bytes}.log");
        plan.push(Planned { part: BackupPart::PartLog(first), from, bytes, name });
    }
    Ok(())
}

fn length(disk: &dyn Disk, path: &Path) -> Result<u64> {
    let length = disk.open_to_read(path).and_then(|file| file.length());
    length.map_err(|error| cannot_read(&path.display().to_string(), &error))
}

/// Returns the bytes of a plain segment up to the end of the record with this change.
fn length_up_to(disk: &dyn Disk, path: &Path, end: Revision) -> Result<u64> {
    let name = path.display().to_string();
    let file = disk.open_to_read(path).map_err(|error| cannot_read(&name, &error))?;
    let bytes = read_whole(&*file).map_err(|error| cannot_read(&name, &error))?;
    let header = Header::decode(&name, &bytes)?;
    let mut records = Records::new(&bytes, header.salt, HEADER_BYTES);
    let mut at = HEADER_BYTES;
    while let Some((offset, body)) = records.next_record() {
        let head = record::read_head(body).map_err(|error| corrupt(&name, offset as u64, error))?;
        if head.first_revision > end {
            break;
        }
        at = records.offset();
    }
    Ok(at as u64)
}

/// Checks a copied segment; `name` is that of the original.
fn check_segment(disk: &dyn Disk, path: &Path, name: &str) -> Result<()> {
    let unreadable = |error: std::io::Error| cannot_read(name, &error);
    let file = disk.open_to_read(path).map_err(unreadable)?;
    let bytes = read_whole(&*file).map_err(unreadable)?;
    if is_archived(&bytes) {
        let read = crate::decode::read_segment(&bytes, |_| ());
        return read.map_err(|error| Error::new(error.kind, format!("{name}: {error}")));
    }
    let header = Header::decode(name, &bytes)?;
    let mut records = Records::new(&bytes, header.salt, HEADER_BYTES);
    while records.next_record().is_some() {}
    records.ending(name, false).map(|_| ())
}
