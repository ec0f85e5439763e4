//! Repairs a history that nobody has open: replaces damaged files by intact copies, or by what the log has.
//!
//! - A damaged file is replaced by the same file of a snapshot, a replaced copy or another directory, if that
//!   passes the check.
//! - A run without a copy is written anew from the rows of its day in the log. Rows from before the oldest
//!   record that is kept are lost, unless other runs have them: that is told, and done only if the operator
//!   accepts it.
//! - Latest values are taken from the runs again, by the next opening.
//!
//! Damaged files stay in `damaged/`. Nothing is written in place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{
    Disk, RealDisk, cannot_read, cannot_write, corrupt, exists, list_if_there, read_whole, write_small,
};
use exacat_log::Segment;
use exacat_log::replay::list_segments;
use exacat_model::codec::Reader;
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use parking_lot::RwLock;

use crate::batch::each_checked_row;
use crate::check::{check_run, group_of};
use crate::checked_file::{FileKind, HistoryId};
use crate::flush::{FilePlaces, write_memtable};
use crate::group::Group;
use crate::item::Item;
use crate::log_walk::{Walk, header_of};
use crate::manifest::{Layout, Manifest, RunEntry};
use crate::memtable::Memtable;
use crate::open::{lock, read_identity};
use crate::run::day_of;

/// Directory of damaged files, in that of the history.
const DAMAGED: &str = "damaged";

/// Result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Faults that were found, each with its file.
    pub problems: Vec<String>,
    /// Repairs that were done.
    pub repairs: Vec<String>,
    /// Values that are lost, or would be: group, day, and time before which they were written.
    pub losses: Vec<String>,
    /// Faults that only a restore can mend.
    pub remaining: Vec<String>,
}

/// Repairs the history in a directory of the machine's disk. `sources` are histories, or snapshots of them,
/// that may have intact copies.
pub fn repair(directory: &Path, sources: &[PathBuf], accept_loss: bool) -> Result<Repaired> {
    repair_on(&(Arc::new(RealDisk) as Arc<dyn Disk>), directory, sources, accept_loss)
}

/// Repairs a history on a disk.
pub(crate) fn repair_on(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    sources: &[PathBuf],
    accept_loss: bool,
) -> Result<Repaired> {
    let layout = Layout { root: directory.to_owned() };
    let shown = directory.display();
    let _lock = lock(&**disk, &layout)?;
    let restore = |what: &str| Error::new(ErrorKind::Corrupt, format!("{shown}: {what}: restore a snapshot"));
    let id = read_identity(&**disk, &layout)?.ok_or_else(|| restore("the identity is missing"))?;
    let manifest = Manifest::read(&**disk, directory, id);
    let manifest = manifest.map_err(|error| restore(&error.message))?.unwrap_or_default();
    let sources = sources.iter().map(|source| Layout { root: source.clone() }).collect();
    let mut work = Work { disk, layout: &layout, id, sources, manifest, done: Repaired::default() };
    work.log()?;
    let mut lost_runs = Vec::new();
    for place in 0..work.manifest.groups.len() {
        work.group(place, &mut lost_runs)?;
    }
    work.lost_runs(&lost_runs, accept_loss)?;
    Ok(work.done)
}

/// A damaged run without a copy, and its group.
struct LostRun {
    group: Arc<Group>,
    entry: RunEntry,
}

struct Work<'w> {
    disk: &'w Arc<dyn Disk>,
    layout: &'w Layout,
    id: HistoryId,
    sources: Vec<Layout>,
    manifest: Manifest,
    done: Repaired,
}

impl Work<'_> {
    fn places<'p>(&'p self, layout: &'p Layout) -> FilePlaces<'p> {
        FilePlaces { disk: self.disk, layout, history: self.id }
    }

    /// Moves a damaged file to the others.
    fn set_aside(&self, path: &Path) -> Result<()> {
        let (disk, aside) = (&**self.disk, self.layout.root.join(DAMAGED));
        let cannot = |error: std::io::Error| cannot_write(path, &error);
        disk.create_directory(&aside).map_err(cannot)?;
        if !exists(disk, path).map_err(cannot)? {
            return Ok(());
        }
        let names = list_if_there(disk, &aside).map_err(cannot)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        disk.rename(path, &aside.join(format!("{}-{name}", names.len()))).map_err(cannot)?;
        disk.sync_directory(&aside).and_then(|()| disk.sync_directory(&self.layout.root)).map_err(cannot)
    }

    /// Puts a copy of an intact file in the place of a damaged one.
    fn replace(&mut self, good: &Path, bad: &Path) -> Result<()> {
        let disk = &**self.disk;
        let bytes = disk.open_to_read(good).and_then(|file| read_whole(&*file));
        let bytes = bytes.map_err(|error| cannot_read(&good.display().to_string(), &error))?;
        let mut unfinished = bad.to_owned();
        unfinished.as_mut_os_string().push(".unfinished");
        write_small(disk, &unfinished, &bytes).map_err(|error| cannot_write(bad, &error))?;
        self.set_aside(bad)?;
        let renamed = disk
            .rename(&unfinished, bad)
            .and_then(|()| bad.parent().map_or(Ok(()), |directory| disk.sync_directory(directory)));
        renamed.map_err(|error| cannot_write(bad, &error))?;
        self.done.repairs.push(format!("{}: replaced by {}", bad.display(), good.display()));
        Ok(())
    }

    /// Checks the segments of the log, and replaces damaged ones.
    fn log(&mut self) -> Result<()> {
        let segments = list_segments(&**self.disk, &self.layout.log(), false)?;
        for (at, segment) in segments.iter().enumerate() {
            let next = segments.get(at + 1);
            let Err(error) = self.walk(segment, next.is_none()) else { continue };
            self.done.problems.push(error.message.clone());
            let next = next.map(|next| header_of(&**self.disk, next)).transpose().ok().flatten();
            let copy = self.sources.iter().find_map(|source| {
                let copy = Segment::new(&source.log(), segment.first_revision);
                let place = self.walk(&copy, false).ok()?;
                // The next segment says what this one ends with.
                let follows = next.as_ref().is_some_and(|next| {
                    (next.first_revision.0, next.digest) == (place.revision.0 + 1, place.digest)
                });
                follows.then_some(copy.path)
            });
            let is_in_runs =
                next.as_ref().is_some_and(|next| next.first_revision.0 <= self.manifest.revision + 1);
            match copy {
                Some(copy) => self.replace(&copy, &segment.path)?,
                None if is_in_runs => {
                    self.set_aside(&segment.path)?;
                    let what = "set aside: runs have its values; a restore to a time cannot pass it";
                    self.done.repairs.push(format!("{}: {what}", segment.path.display()));
                }
                None => self.done.remaining.push(error.message),
            }
        }
        Ok(())
    }

    fn walk(&self, segment: &Segment, is_last: bool) -> Result<exacat_log::chain::RecordPlace> {
        let mut walk = Walk { disk: &**self.disk, history: self.id, place: None };
        walk.segment(segment, is_last, &mut |_, _| Ok(true))?;
        Ok(walk.place.unwrap_or_default())
    }

    /// Checks the files of a group; replaces damaged ones.
    fn group(&mut self, place: usize, lost_runs: &mut Vec<LostRun>) -> Result<()> {
        let entry = self.manifest.groups[place].clone();
        for number in &entry.names {
            let read = |layout: &Layout| {
                let places = self.places(layout);
                places.head(FileKind::Names, entry.id).read(&**self.disk, &layout.names(*number))
            };
            let Err(error) = read(self.layout) else { continue };
            let copy =
                self.sources.iter().find(|source| read(source).is_ok()).map(|source| source.names(*number));
            self.done.problems.push(error.message.clone());
            match copy {
                Some(copy) => self.replace(&copy, &self.layout.names(*number))?,
                None => self.done.remaining.push(error.message),
            }
        }
        let group = match group_of(&self.places(self.layout), &entry) {
            Ok(group) => Arc::new(group),
            // Its names are damaged: told above, and nothing can be read without them.
            Err(error) => {
                if !self.done.remaining.contains(&error.message) {
                    self.done.remaining.push(error.message);
                }
                return Ok(());
            }
        };
        for run in entry.runs {
            let Err(error) = check_run(&self.places(self.layout), &group, &run) else { continue };
            let is_whole = |source: &&Layout| check_run(&self.places(source), &group, &run).is_ok();
            let copy = self.sources.iter().find(is_whole).map(|source| source.run(run.number));
            self.done.problems.push(error.message);
            match copy {
                Some(copy) => self.replace(&copy, &self.layout.run(run.number))?,
                None => lost_runs.push(LostRun { group: Arc::clone(&group), entry: run }),
            }
        }
        if let Some(number) = entry.latest
            && let Err(error) = self.places(self.layout).load_latest(number, &group)
        {
            self.done.problems.push(error.message);
            self.manifest.groups[place].latest = None;
            self.write_manifest()?;
            let path = self.layout.latest(number);
            self.set_aside(&path)?;
            self.done
                .repairs
                .push(format!("{}: the next opening takes latest values from the runs", path.display()));
        }
        Ok(())
    }

    fn write_manifest(&self) -> Result<()> {
        self.manifest.write(&**self.disk, &self.layout.root, self.id)
    }

    /// Writes runs without a copy anew, from the log.
    fn lost_runs(&mut self, lost: &[LostRun], accept_loss: bool) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let memtables: Vec<_> = lost.iter().map(|_| RwLock::new(Memtable::default())).collect();
        let begin = self.gather(lost, &memtables)?;
        for (run, memtable) in lost.iter().zip(&memtables) {
            if begin == Some(TimeMs(0)) {
                continue;
            }
            let (name, day) = (run.group.settings.read().name.clone(), TimeMs(day_ms(run.entry.day())));
            let day = day.to_string();
            let (day, rows) = (day.split('T').next().unwrap_or_default(), memtable.read().rows());
            let before = match begin {
                Some(time) => format!("that were written before {time}, where the kept log begins"),
                None => "that are not in other runs: the log has none of them".to_owned(),
            };
            self.done
                .losses
                .push(format!("group {name}, day {day}: values {before}; {rows} rows are in the log"));
        }
        if !self.done.losses.is_empty() && !accept_loss {
            self.done.remaining.extend(lost.iter().map(|run| {
                format!("{}: no intact copy is there", self.layout.run(run.entry.number).display())
            }));
            return Ok(());
        }
        for (run, memtable) in lost.iter().zip(&memtables) {
            let path = self.layout.run(run.entry.number);
            let mut next = self.manifest.next_file;
            let mut take = || {
                next += 1;
                next - 1
            };
            let written = write_memtable(&self.places(self.layout), &run.group, memtable, &mut take)?;
            self.places(self.layout).sync()?;
            self.manifest.next_file = next;
            for entry in &mut self.manifest.groups {
                entry.runs.retain(|one| one.number != run.entry.number);
                if entry.id == run.group.id {
                    entry.runs.extend(written.iter().map(|(written, _)| written.clone()));
                }
            }
            self.write_manifest()?;
            self.set_aside(&path)?;
            let rows = memtable.read().rows();
            self.done
                .repairs
                .push(format!("{}: {rows} rows of its day were written anew from the log", path.display()));
        }
        Ok(())
    }

    /// Collects the rows of the days of these runs from the log, up to the manifest's place. Returns the time
    /// of the oldest record, 0 if it is the first of all; none if the log has no record.
    fn gather(&self, lost: &[LostRun], memtables: &[RwLock<Memtable>]) -> Result<Option<TimeMs>> {
        let segments = list_segments(&**self.disk, &self.layout.log(), false)?;
        let (mut begin, mut place) = (None, None);
        for (at, segment) in segments.iter().enumerate() {
            let mut walk = Walk { disk: &**self.disk, history: self.id, place };
            let name = segment.path.display().to_string();
            let walked = walk.segment(segment, at + 1 == segments.len(), &mut |head, content| {
                begin.get_or_insert(if head.first_revision.0 == 1 { TimeMs(0) } else { head.time });
                if head.first_revision.0 > self.manifest.revision {
                    return Ok(false);
                }
                let mut reader = Reader::new(content);
                while !reader.is_empty() {
                    let item = Item::decode(&mut reader).map_err(|error| corrupt(&name, 0, error))?;
                    take_rows(&item, lost, memtables).map_err(|error| corrupt(&name, 0, error))?;
                }
                Ok(true)
            });
            match walked {
                Ok(walked) if !walked.is_whole => break,
                Ok(_) => place = walk.place,
                // What is before the damage is not known any more.
                Err(_) => (begin, place) = (None, None),
            }
        }
        Ok(begin)
    }
}

/// Takes the rows of an item that are of the days of lost runs.
fn take_rows(
    item: &Item<'_>,
    lost: &[LostRun],
    memtables: &[RwLock<Memtable>],
) -> std::result::Result<(), exacat_model::codec::DecodeError> {
    let Item::Rows { group, count, bytes } = item else { return Ok(()) };
    for (run, memtable) in lost.iter().zip(memtables).filter(|(run, _)| run.group.id == *group) {
        let names = run.group.names.read();
        let mut memtable = memtable.write();
        each_checked_row(bytes, *count, &*names, names.counts().elements, |row, bytes| {
            if day_of(row.time) == run.entry.day() {
                memtable.push(&row, bytes);
            }
        })?;
    }
    Ok(())
}

fn day_ms(day: i32) -> u64 {
    u64::try_from(i64::from(day) * 86_400_000).unwrap_or_default()
}
