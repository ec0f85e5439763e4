//! Checks a history that nobody has open: reads every file and every record, and changes nothing.
//!
//! 1. Each file that the manifest names: its checksums, the order and the counts of its rows, types of
//!    fields, names without gaps.
//! 2. Each segment of the log, and that it continues the one before.
//! 3. The state that opening would give: its latest values are those of the rows of all runs and records.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, RealDisk, cannot_read, corrupt, list_if_there};
use exacat_log::chain::RecordPlace;
use exacat_log::log_end;
use exacat_log::moment::Moment;
use exacat_log::replay::{list_segments, replay};
use exacat_log::segment::Ending;
use exacat_model::{Error, ErrorKind, FieldValue, Result, Revision, TimeMs};

use crate::checked_file::HistoryId;
use crate::engine::History;
use crate::flush::FilePlaces;
use crate::group::Group;
use crate::latest::Latest;
use crate::log_walk::Walk;
use crate::manifest::{GroupEntry, Layout, Manifest, RunEntry};
use crate::open::{Opening, lock, read_identity};
use crate::run::Run;

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Last record of the log.
    pub revision: Revision,
    /// Time of that record.
    pub time: TimeMs,
    /// Groups.
    pub groups: u64,
    /// Elements of all groups.
    pub elements: u64,
    /// Sorted runs.
    pub runs: u64,
    /// Rows in them.
    pub rows: u64,
    /// Segments of the log.
    pub segments: u64,
    /// Valid records in them.
    pub records: u64,
    /// Files that no manifest names, left by an interrupted flush. Opening removes them. Not a problem.
    pub leftovers: u64,
    /// True if the log ends within a commit group, as after a power cut. Not a problem.
    pub torn: bool,
    /// Faults, each with file and place; empty if there are none.
    pub problems: Vec<String>,
}

/// Checks the history in a directory of the machine's disk, which no process may have open; or a snapshot
/// of one.
pub fn check(directory: &Path) -> Result<Checked> {
    check_on(&(Arc::new(RealDisk) as Arc<dyn Disk>), directory)
}

/// Checks a history on a disk.
pub(crate) fn check_on(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Checked> {
    let layout = Layout { root: directory.to_owned() };
    let moment = Moment::read(&**disk, directory)?;
    // A snapshot is never opened, so nobody has it locked.
    let _lock = match moment {
        None => Some(lock(&**disk, &layout)?),
        Some(_) => None,
    };
    let Some(id) = read_identity(&**disk, &layout)? else {
        return Err(Error::not_found(format!("there is no history of elements in {}", directory.display())));
    };
    let mut check = Check { disk, layout: &layout, id, found: Checked::default() };
    match Manifest::read(&**disk, directory, id) {
        Ok(manifest) => check.all(&manifest.unwrap_or_default(), moment.as_ref()),
        Err(error) => check.found.problems.push(error.message),
    }
    Ok(check.found)
}

/// Reads the names of a group from its files, each of which must continue the one before.
pub(crate) fn group_of(places: &FilePlaces<'_>, entry: &GroupEntry) -> Result<Group> {
    let group = Group::new(entry.id, entry.settings.clone());
    places.load_names(&group, &entry.names)?;
    Ok(group)
}

/// Reads a whole run, and compares it with the manifest and with the names of its group. Returns its rows.
pub(crate) fn check_run(places: &FilePlaces<'_>, group: &Group, entry: &RunEntry) -> Result<u64> {
    let path = places.layout.run(entry.number).display().to_string();
    let run = places.open_run(entry.number, group.id, entry.day())?.run;
    if run.head().salt != entry.salt {
        return Err(corrupt(&path, 24, "this is another run than the manifest names"));
    }
    check_rows(&path, group, &run)?;
    Ok(run.summary().rows)
}

/// Reads a whole run, and compares it with the names of its group.
fn check_rows(path: &str, group: &Group, run: &Arc<Run>) -> Result<()> {
    run.check()?;
    let (summary, names) = (run.summary(), group.names.read());
    for count in &summary.fields {
        let known = names.fields().get(count.field.number as usize).map(|field| field.kind);
        if known != Some(count.field.kind) {
            let what =
                format!("it has values of field {}, whose type or name is another", count.field.number);
            return Err(corrupt(path, summary.bytes, what));
        }
    }
    if summary.element_range.1 as usize >= names.element_count() {
        return Err(corrupt(path, summary.bytes, "it has rows of an element without a name"));
    }
    Ok(())
}

impl History {
    /// Reads all runs of the open history: checksums, order, counts, types of fields and names of elements.
    /// Rows that come meanwhile are not in them. The log and the files of names are read by [`check`].
    pub fn check_runs(&self) -> Checked {
        let mut found = Checked::default();
        for group in self.shared.all_groups() {
            let runs = Arc::clone(&group.rows.read().runs);
            found.groups += 1;
            found.elements += group.names.read().element_count() as u64;
            for run in runs.days().values().flatten() {
                let path = self.shared.layout.run(run.number).display().to_string();
                found.runs += 1;
                found.rows += run.run.summary().rows;
                found.problems.extend(check_rows(&path, &group, &run.run).err().map(|error| error.message));
            }
        }
        found
    }
}

struct Check<'c> {
    disk: &'c Arc<dyn Disk>,
    layout: &'c Layout,
    id: HistoryId,
    found: Checked,
}

impl Check<'_> {
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.found.problems.push(error.message)).ok()
    }

    fn all(&mut self, manifest: &Manifest, moment: Option<&Moment>) {
        for entry in &manifest.groups {
            self.group(entry);
        }
        let strangers = self.strangers(manifest);
        self.note(strangers);
        let log = self.log(manifest, moment);
        self.note(log);
        // The state can be judged once its files are whole.
        if self.found.problems.is_empty() {
            let state = self.state(manifest, moment);
            self.note(state);
        }
    }

    fn group(&mut self, entry: &GroupEntry) {
        let places = FilePlaces { disk: self.disk, layout: self.layout, history: self.id };
        self.found.groups += 1;
        self.found.runs += entry.runs.len() as u64;
        let group = group_of(&places, entry);
        let Some(group) = self.note(group) else {
            // Without names the runs are still checked for damage.
            for run in &entry.runs {
                let opened = places.open_run(run.number, entry.id, run.day()).and_then(|run| run.run.check());
                self.note(opened);
            }
            return;
        };
        self.found.elements += group.names.read().element_count() as u64;
        for run in &entry.runs {
            let checked = check_run(&places, &group, run);
            self.found.rows += self.note(checked).unwrap_or_default();
        }
        let latest = entry.latest.map(|number| places.load_latest(number, &group));
        if let Some(latest) = latest {
            self.note(latest);
        }
    }

    /// Looks for files that are not the history's.
    fn strangers(&mut self, manifest: &Manifest) -> Result<()> {
        let (files, kept) = (self.layout.files(), manifest.files(self.layout));
        let names = list_if_there(&**self.disk, &files);
        for name in names.map_err(|error| cannot_read(&files.display().to_string(), &error))? {
            let path = files.join(&name);
            if kept.contains(&path) {
                continue;
            }
            let is_ours = name.split_once('.').is_some_and(|(number, ending)| {
                number.parse::<u64>().is_ok()
                    && ["run", "names", "latest"].iter().any(|kind| ending.starts_with(kind))
            });
            match is_ours {
                true => self.found.leftovers += 1,
                false => {
                    self.found.problems.push(format!("{}: this is no file of a history", path.display()))
                }
            }
        }
        Ok(())
    }

    /// Reads the whole log, from the oldest record that is kept.
    fn log(&mut self, manifest: &Manifest, moment: Option<&Moment>) -> Result<()> {
        let segments = list_segments(&**self.disk, &self.layout.log(), false)?;
        self.found.segments = segments.len() as u64;
        if moment.is_none() && segments.is_empty() && manifest.revision > 0 {
            // An opening refuses it, too. A snapshot of flushed rows needs no log.
            let what = format!("{}: there are runs, but no log", self.layout.log().display());
            self.found.problems.push(what);
        }
        let mut walk = Walk { disk: &**self.disk, history: self.id, place: None };
        for (at, segment) in segments.iter().enumerate() {
            let is_last = moment.is_none() && at + 1 == segments.len();
            let mut records = 0;
            let walked = walk.segment(segment, is_last, &mut |_, _| {
                records += 1;
                Ok(true)
            });
            self.found.records += records;
            match walked {
                Ok(walked) => self.found.torn |= matches!(walked.ending, Ending::Torn(_)),
                Err(error) => {
                    self.found.problems.push(error.message);
                    // The next segment says itself where it begins.
                    walk.place = None;
                }
            }
        }
        let end = walk.place.unwrap_or_else(|| manifest.place());
        (self.found.revision, self.found.time) = (end.revision, end.time);
        match moment {
            Some(moment) if self.found.problems.is_empty() && end != RecordPlace::of(moment) => {
                let name = self.layout.root.display().to_string();
                Err(Error::new(ErrorKind::Corrupt, format!("{name}: its log does not lead to its moment")))
            }
            _ => Ok(()),
        }
    }

    /// Compares the latest values that opening would give with those of all rows.
    fn state(&mut self, manifest: &Manifest, moment: Option<&Moment>) -> Result<()> {
        let disk = &**self.disk;
        let segments = list_segments(disk, &self.layout.log(), false)?;
        let open = |manifest: Manifest| -> Result<Opening<'_>> {
            let mut opening = Opening::new(self.disk, self.layout, self.id, manifest);
            opening.load()?;
            let end = replay(disk, self.id, &segments, opening.place.revision, &mut opening)?;
            if moment.is_none() {
                let at = opening.place.revision;
                log_end::check_followed(end.as_ref(), at)?;
                log_end::check_witness(disk, &self.layout.log(), self.id, end.as_ref(), at)?;
                log_end::check_length(&self.layout.log(), end.as_ref())?;
            }
            Ok(opening)
        };
        let opened = open(manifest.clone())?;
        // Without the files of latest values an opening takes them from the runs.
        let mut bare = manifest.clone();
        bare.groups.iter_mut().for_each(|group| group.latest = None);
        let by_rows = open(bare)?;
        for (id, group) in &by_rows.groups.by_id {
            let Some(is) = opened.groups.by_id.get(id) else { continue };
            if let Some(what) = first_difference(is, group) {
                let name = group.settings.read().name.clone();
                self.found.problems.push(format!("{}: group {name}: {what}", self.layout.root.display()));
            }
        }
        Ok(())
    }
}

/// Returns the first element whose latest values are not those of its rows. Values of dropped days stay
/// latest: they are not compared.
fn first_difference(is: &Group, by_rows: &Group) -> Option<String> {
    let values = |group: &Group, latest: &Latest, element: u32| {
        let mut values: BTreeMap<u32, (i64, FieldValue)> = BTreeMap::new();
        let names = group.names.read();
        latest.read(element, &*names, |field, time, value| {
            values.insert(field, (time, value.to_value()));
        });
        values
    };
    let (is_rows, by_rows_rows) = (is.rows.read(), by_rows.rows.read());
    let has_archive = !is_rows.archived.days.is_empty();
    let count = by_rows.names.read().element_count() as u32;
    (0..count).find_map(|element| {
        let found = values(is, &is_rows.latest, element);
        let wanted = values(by_rows, &by_rows_rows.latest, element);
        let same = |field: &u32, value: &(i64, FieldValue)| {
            found.get(field).is_some_and(|found| {
                // A later value may be in the archive, which is not read here.
                found == value || has_archive && found.0 > value.0
            })
        };
        if wanted.iter().all(|(field, value)| same(field, value)) {
            return None;
        }
        let key = by_rows.names.read().key(element).to_owned();
        Some(format!("the latest values of {key} are not those of its rows"))
    })
}
