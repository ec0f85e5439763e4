//! Builds a state from the readable rows, when no older state and no log lead to the whole one.
//!
//! The entries count: every counter, every index, and the facts about each directory are recomputed
//! from them. Losses of a page are listed by the names that it may have had. If only an older run
//! has a row of such a name, that row is kept, and listed too: the entry may have changed or gone
//! since. If two rows have the same entry, the newest counts. A directory of which only the
//! content is left goes to `/lost+found`, for the admin only, under its number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exacat_disk::{cannot_read, cannot_write, random_u64};
use exacat_log::record::Head;
use exacat_log::segment::Header;
use exacat_model::limits::OPERATIONS_REMEMBERED;
use exacat_model::{
    At, Body, Change, DirId, Effect, Entry, Error, ErrorKind, GroupId, Mode, Name, OperationId, Record,
    RecordKey, Reservation, Result, Revision, TimeMs, UserId,
};

use super::plan::Plan;
use super::runs::Way;
use super::{Losses, ProgressCallback, RepairProgress, segments_in};
use crate::defect::Defect;
use crate::keyspace;
use crate::manifest::Manifest;
use crate::page::{Row, Trashed};
use crate::recovery::{Builder, flush};
use crate::replay;
use crate::replay::Replay;
use crate::run::{Cache, Gap, Reading, Run};
use crate::settings::SNAPSHOT_CACHE_BYTES;
use crate::state::{Above, Directory, Operations, State, decoded, deletion_of};
use crate::table::{From, RunSet, Version, View, run_file_name};

/// Name of the directory in `/` for directories of unknown name.
const LOST_AND_FOUND: &str = "lost+found";
/// Rows between two progress reports.
const PROGRESS_EVERY: u64 = 1 << 16;

/// A run of the manifest: its readable part, and its gaps.
struct Source {
    gaps: Vec<Gap>,
    /// Index among the readable runs.
    place: Option<usize>,
}

/// A directory, as far as its facts are known.
struct FoundDirectory {
    entry: Entry,
    trashed: Option<Trashed>,
}

/// Result of the first pass.
#[derive(Default)]
struct Directories {
    found: BTreeMap<DirId, FoundDirectory>,
    /// Facts about directories beside their entries.
    kept: BTreeMap<DirId, Directory>,
    /// Directories with content.
    used: BTreeSet<DirId>,
    newest: Revision,
}

/// State of the row recovery.
struct Gatherer<'g, 't> {
    plan: &'g Plan<'g>,
    sources: Vec<Source>,
    version: Version,
    cache: Cache,
    into: Builder,
    losses: &'g mut Losses,
    progress: &'g mut ProgressCallback<'t>,
    rows: u64,
    /// Time for entries that have lost theirs.
    time: TimeMs,
}

/// Builds a state from the readable rows and the recoverable log after them, with all of it in
/// runs.
pub(super) fn recover_rows(
    plan: &Plan<'_>,
    losses: &mut Losses,
    progress: &mut ProgressCallback<'_>,
) -> Result<Builder> {
    let disk = plan.context.disk;
    let (sources, version, mut next_run) = read_what_is_left(plan)?;
    let said = State::said_in(&version.runs);
    let (seed, cache) = (random_u64()?, Arc::new(Cache::new(SNAPSHOT_CACHE_BYTES)));
    next_run = next_run.max(plan.next_run()?);
    let place = plan.runs_place();
    Manifest { next_run, ..Manifest::default() }.save(&**disk, &place, plan.context.identity.id)?;
    let run_set = RunSet::look_at(Arc::clone(disk), &place, plan.context.identity.clone())?;
    let operations = Operations::new(OPERATIONS_REMEMBERED);
    let rows_max = plan.context.settings.memtable_rows;
    let into = Builder { state: State::bare(seed, cache), operations, run_set, rows_max };
    let manifest = &plan.runs.manifest;
    let (revision, time) = (manifest.revision, manifest.time);
    let cache = Cache::new(SNAPSHOT_CACHE_BYTES);
    let mut work = Gatherer { plan, sources, version, cache, into, losses, progress, rows: 0, time };
    let mut directories = work.find_directories()?;
    let revision = revision.max(directories.newest).max(said.map(|said| said.revision).unwrap_or_default());
    work.time = time.max(said.map(|said| said.time).unwrap_or_default());
    (work.into.state.revision, work.into.state.time) = (revision, work.time);
    work.name_gaps(&directories);
    let changes = work.changes_after(revision)?;
    let numbers = directories.found.keys().chain(directories.kept.keys()).chain(&directories.used);
    let highest = numbers.max().map_or(DirId::ROOT.0, |id| id.0);
    let next = (highest + 1).max(said.map_or(0, |said| said.next_directory));
    // The log's own new directories have their numbers already.
    let lost_and_found = DirId(next.max(changes.next_directory));
    work.into.state.next_directory = lost_and_found.0 + 1;
    work.put_directories(&mut directories, lost_and_found)?;
    let used = work.into.state.directory(lost_and_found).is_some();
    work.put_rest(said.map(|said| said.operations_from))?;
    work.into.state.next_directory = next;
    work.replay(revision)?;
    let state = &mut work.into.state;
    state.next_directory = state.next_directory.max(if used { lost_and_found.0 + 1 } else { 0 });
    // This revision is the repair itself, which no history has.
    state.revision = Revision(state.revision.0 + 1);
    // Changes that were skipped left no traces, and traces in damaged runs are not gathered.
    state.traces_since = state.revision;
    let mut into = work.into;
    flush(&mut into.state, &into.operations, &mut into.run_set)?;
    into.run_set.sweep()?;
    let gathered = gathered_place(plan);
    exacat_disk::remove_tree(&**disk, &gathered).map_err(|error| cannot_write(&gathered, &error))?;
    Ok(into)
}

fn gathered_place(plan: &Plan<'_>) -> std::path::PathBuf {
    plan.context.data.prepared().join("gathered")
}

/// Opens intact runs, and writes the readable rows of the others into new runs, beside them.
fn read_what_is_left(plan: &Plan<'_>) -> Result<(Vec<Source>, Version, u64)> {
    let disk = &**plan.context.disk;
    let (mut sources, mut runs) = (Vec::new(), Vec::new());
    let mut next_run = plan.next_run()?;
    for run in &plan.runs.runs {
        let (path, gaps) = match &run.way {
            Way::File { path, .. } => (Some(path.clone()), Vec::new()),
            Way::Anew(scanned) | Way::InPart(scanned) => {
                let number = next_run;
                next_run += 1;
                plan.write_anew(number, scanned.rows, |writer| scanned.copy_into(writer))?;
                let is_whole = matches!(run.way, Way::Anew(_));
                let gaps = if is_whole { Vec::new() } else { scanned.gaps.clone() };
                (Some(plan.runs_place().join(run_file_name(number))), gaps)
            }
            Way::Not => (None, vec![Gap { at: 0, bytes: 0, after: None, before: None }]),
        };
        let place = match path {
            Some(path) => {
                let name = path.display().to_string();
                let file = disk.open_to_read(&path).map_err(|error| cannot_read(&name, &error))?;
                runs.push(Arc::new(Run::open_of(&name, Arc::from(file), |_| true)?));
                Some(runs.len() - 1)
            }
            None => None,
        };
        sources.push(Source { gaps, place });
    }
    Ok((sources, Version { runs }, next_run))
}

/// Says whether newer sources have a gap at this key, which the readable run at `place` has.
fn is_doubtful(sources: &[Source], place: Option<usize>, key: (DirId, &[u8])) -> bool {
    let newer = sources.iter().take_while(|source| source.place.is_none() || source.place != place);
    newer.flat_map(|source| &source.gaps).any(|gap| gap.may_have_had(key))
}

impl Gatherer<'_, '_> {
    /// Walks over all rows, the newest of each key; `take` learns whether a row is doubtful.
    fn walk(&mut self, mut take: impl FnMut(&mut Self, &Row<'_>, bool) -> Result<()>) -> Result<()> {
        let version = self.version.clone();
        let view = View { active: None, frozen: &[], version: &version, reading: Reading::in_passing() };
        let mut rows = view.from(From::START).map_err(Error::from)?;
        loop {
            // Borrowed parts of the row are copied, because `take` may read the same runs.
            let (row, place) = match rows.next_there().map_err(Error::from)? {
                Some(row) => (OwnRow::of(&row), None::<usize>),
                None => return Ok(()),
            };
            let place = place.or(rows.source());
            self.rows += 1;
            if self.rows.is_multiple_of(PROGRESS_EVERY) {
                (self.progress)(&RepairProgress::Gathering { rows: self.rows });
            }
            let doubtful = is_doubtful(&self.sources, place, (row.parent, &row.name));
            take(self, &row.row(), doubtful)?;
        }
    }

    /// Collects all directories; they are few compared with files.
    fn find_directories(&mut self) -> Result<Directories> {
        let mut all = Directories::default();
        self.walk(|work, row, doubtful| {
            if row.parent != keyspace::SUMMARY {
                all.newest = all.newest.max(Revision(row.revision));
            }
            if row.parent == keyspace::DIRECTORIES {
                let number = keyspace::number(row.name).map(DirId);
                match number.map(|number| (number, decoded::<Directory>(row.rest))) {
                    Some((number, Ok(kept))) => drop(all.kept.insert(number, kept)),
                    _ => work.losses.add("directory", format!("{number:?}"), "its row is unreadable"),
                }
                return Ok(());
            }
            let in_tree = keyspace::is_directory(row.parent);
            if in_tree {
                all.used.insert(row.parent);
            }
            if !(in_tree || row.parent == keyspace::TRASH || row.parent == keyspace::ROOT_IN) {
                return Ok(());
            }
            let Some(entry) = row.entry().map_err(unreadable)? else { return Ok(()) };
            let Some(id) = entry.directory() else { return Ok(()) };
            let trashed = row.trashed().map_err(unreadable)?;
            if doubtful {
                let which =
                    format!("directory {} ({} in directory {})", id.0, entry.at.name, entry.at.parent.0);
                work.losses.add("directory as it was", which, older(&entry));
            }
            match all.found.get(&id) {
                Some(other) if other.entry.revision >= entry.revision => {}
                _ => drop(all.found.insert(id, FoundDirectory { entry, trashed })),
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Lists the names that the gaps may have had.
    fn name_gaps(&mut self, directories: &Directories) {
        for (run, source) in self.plan.runs.runs.iter().zip(&self.sources) {
            let file = run_file_name(run.named.number);
            let Some(place) = source.place else {
                let what = format!(
                    "all {} rows: everything that changed before change {} may be missing, or be as it was before",
                    run.named.rows, self.into.state.revision.0
                );
                self.losses.add("run", file, what);
                continue;
            };
            if source.gaps.is_empty() {
                continue;
            }
            let read = self.version.runs[place].rows().0;
            let missing = run.named.rows.saturating_sub(read);
            self.losses.add("run", &file, format!("{missing} of {} rows cannot be read", run.named.rows));
            for gap in &source.gaps {
                let key = |key: &Option<(DirId, Vec<u8>)>, end: &str| match key {
                    Some((directory, name)) => in_words(*directory, name, directories),
                    None => end.to_owned(),
                };
                let (after, before) = (key(&gap.after, "the start"), key(&gap.before, "the end"));
                let which = format!("{file}, bytes {} to {}", gap.at, gap.at + gap.bytes);
                self.losses.add("names at risk", which, format!("the rows between {after} and {before}"));
            }
        }
    }

    /// Puts all directories, from the root down.
    fn put_directories(&mut self, all: &mut Directories, lost_and_found: DirId) -> Result<()> {
        let root = match all.found.remove(&DirId::ROOT) {
            Some(found) => found.entry,
            None => {
                self.losses.add("directory", "/", "its owner, mode and tags: it is as in a new catalogue");
                exacat_store::rules::new_root()
            }
        };
        self.put(&root, None)?;
        self.complete(all);
        let mut below: BTreeMap<DirId, Vec<DirId>> = BTreeMap::new();
        let mut begin: Vec<DirId> = Vec::new();
        for (id, found) in &all.found {
            match found.trashed {
                Some(_) => begin.push(*id),
                None => below.entry(found.entry.at.parent).or_default().push(*id),
            }
        }
        let mut next: Vec<DirId> = below.remove(&DirId::ROOT).unwrap_or_default();
        next.extend(begin);
        loop {
            while let Some(id) = next.pop() {
                let Some(FoundDirectory { entry, trashed }) = all.found.remove(&id) else { continue };
                if self.put(&entry, trashed.as_ref()).is_err() {
                    // Another entry has its name.
                    self.put_in_lost_and_found(&entry, lost_and_found)?;
                }
                next.extend(below.remove(&id).unwrap_or_default());
            }
            // The remaining directories lead to a missing directory, or form a ring.
            let Some((id, found)) = all.found.pop_first() else { return Ok(()) };
            self.put_in_lost_and_found(&found.entry, lost_and_found)?;
            next.extend(below.remove(&id).unwrap_or_default());
        }
    }

    /// Invents entries for lost directories, as far as possible.
    fn complete(&mut self, all: &mut Directories) {
        for (id, kept) in std::mem::take(&mut all.kept) {
            if id == DirId::ROOT || all.found.contains_key(&id) {
                continue;
            }
            let (Above::Directory(parent), Ok(name)) = (kept.above, Name::parse(&kept.name)) else {
                continue;
            };
            let which = format!("directory {} ({} in directory {})", id.0, kept.name, parent.0);
            self.losses.add("directory", which, "its times and tags");
            let entry = self.directory(At { parent, name }, id, kept.owner, kept.group, kept.mode);
            all.found.insert(id, FoundDirectory { entry, trashed: None });
            all.used.insert(parent);
        }
        for id in std::mem::take(&mut all.used) {
            if id != DirId::ROOT && !all.found.contains_key(&id) {
                // Its parent is itself, so its place does not exist: it goes to /lost+found.
                let at = At { parent: id, name: nameless(id) };
                let entry = self.directory(at, id, UserId::ADMIN, GroupId::ADMIN, private());
                all.found.insert(id, FoundDirectory { entry, trashed: None });
            }
        }
    }

    fn directory(&self, at: At, id: DirId, owner: UserId, group: GroupId, mode: Mode) -> Entry {
        Entry {
            at,
            owner,
            group,
            mode,
            created: self.time,
            modified: self.time,
            revision: self.into.state.revision,
            expires: None,
            tags: Vec::new(),
            body: Body::Directory(id),
        }
    }

    fn put_in_lost_and_found(&mut self, entry: &Entry, lost_and_found: DirId) -> Result<()> {
        let Some(id) = entry.directory() else { return Ok(()) };
        if self.into.state.directory(lost_and_found).is_none() {
            for further in 1.. {
                let name = if further == 1 {
                    LOST_AND_FOUND.to_owned()
                } else {
                    format!("{LOST_AND_FOUND}-{further}")
                };
                let at = At { parent: DirId::ROOT, name: Name::parse(&name)? };
                // A file that is put later may have this name.
                if self.has(&at)? {
                    continue;
                }
                let made = self.directory(at, lost_and_found, UserId::ADMIN, GroupId::ADMIN, private());
                self.put(&made, None)?;
                break;
            }
        }
        self.losses.add(
            "directory",
            format!("directory {} ({} in directory {})", id.0, entry.at.name, entry.at.parent.0),
            format!("its place: it is in /{LOST_AND_FOUND} now, as {}", nameless(id)),
        );
        let at = At { parent: lost_and_found, name: nameless(id) };
        self.put(&Entry { at, revision: self.into.state.revision, ..entry.clone() }, None)
    }

    /// Says whether an entry has this place, among those put and those left.
    fn has(&self, at: &At) -> Result<bool> {
        let reading = Reading::waiting(&self.cache);
        let view = View { active: None, frozen: &[], version: &self.version, reading };
        let left = view.has(at.parent, at.name.as_str().as_bytes()).map_err(Error::from)?;
        Ok(left || self.into.state.look().has(at).map_err(Error::from)?)
    }

    fn put(&mut self, entry: &Entry, trashed: Option<&Trashed>) -> Result<()> {
        let state = &mut self.into.state;
        if state.table.active().rows() + state.resident_changed() >= self.into.rows_max {
            flush(state, &self.into.operations, &mut self.into.run_set)?;
        }
        state.insert_entry(entry, trashed, None).map_err(Error::from)
    }

    /// Puts everything except directories.
    fn put_rest(&mut self, operations_from: Option<Revision>) -> Result<()> {
        self.walk(|work, row, doubtful| {
            if work.into.state.table.active().rows() >= work.into.rows_max {
                flush(&mut work.into.state, &work.into.operations, &mut work.into.run_set)?;
            }
            let put = match row.parent {
                keyspace::RECORDS => {
                    decoded::<(Record, Revision)>(row.rest).and_then(|(record, revision)| {
                        let is_token = matches!(record, Record::Token(_));
                        if doubtful {
                            let what = if is_token {
                                "it may have been revoked, and is left out"
                            } else {
                                "it may have changed"
                            };
                            work.losses.add("record as it was", format!("{:?}", record.key()), what);
                        }
                        if doubtful && is_token {
                            Ok(())
                        } else {
                            work.into.state.set_record(record, revision)
                        }
                    })
                }
                keyspace::RESERVATIONS => decoded::<Reservation>(row.rest).and_then(|reservation| {
                    work.into.state.set_reservation(reservation.guid, Some(reservation))
                }),
                // The copy may have been taken off the queue since, so it may be in use.
                keyspace::DELETIONS if doubtful => {
                    work.losses.add(
                        "deletion",
                        format!("{:02x?}", row.name),
                        "the copy is not deleted, and stays",
                    );
                    Ok(())
                }
                keyspace::DELETIONS => match keyspace::se_of(row.name) {
                    Some(se) => {
                        deletion_of(row.rest).and_then(|deletion| work.into.state.put_deletion(se, deletion))
                    }
                    None => Err(Defect::new("a deletion of no SE")),
                },
                keyspace::OPERATIONS => match keyspace::number(row.name).map(Revision) {
                    Some(first) if operations_from.is_none_or(|from| first >= from) => {
                        let time = work.into.state.time;
                        decoded(row.rest)
                            .map(|id| work.into.operations.remember(OperationId(id), first, time))
                    }
                    _ => Ok(()),
                },
                parent if keyspace::is_directory(parent) || parent == keyspace::TRASH => {
                    return work.put_object(row, doubtful);
                }
                // Members follow after all collections; other rows follow from those that are put.
                _ => Ok(()),
            };
            if let Err(defect) = put {
                work.losses.add("row", format!("of table {:x}", row.parent.0), defect);
            }
            Ok(())
        })?;
        self.put_members()?;
        let state = &mut self.into.state;
        let (user, group) = (RecordKey::User(UserId::ADMIN), RecordKey::Group(GroupId::ADMIN));
        if state.record(user).is_none() || state.record(group).is_none() {
            self.losses.add("record", "admin", "the admin is as in a new catalogue");
            state.add_admin()?;
        }
        Ok(())
    }

    /// Puts a file, a collection or a link, unless a newer row has it elsewhere.
    fn put_object(&mut self, row: &Row<'_>, doubtful: bool) -> Result<()> {
        let (entry, trashed) = match (row.entry(), row.trashed()) {
            (Ok(Some(entry)), Ok(trashed)) => (entry, trashed),
            _ => {
                self.losses.add("entry", format!("in directory {}", row.parent.0), "its row cannot be read");
                return Ok(());
            }
        };
        let Some(guid) = entry.guid() else { return Ok(()) };
        let which = || format!("{} in directory {}", entry.at.name, entry.at.parent.0);
        if doubtful {
            let reading = Reading::waiting(&self.cache);
            let view = View { active: None, frozen: &[], version: &self.version, reading };
            let here = |found: Option<&Row<'_>>| {
                found.is_some_and(|found| (found.parent, found.name) == (row.parent, row.name))
            };
            if !view.find_guid(guid, here).map_err(Error::from)? {
                // A newer row has the entry elsewhere, or it was purged since.
                return Ok(());
            }
            self.losses.add("entry as it was", which(), older(&entry));
        }
        let mut entry = entry;
        if let Body::Collection { members, .. } = &mut entry.body {
            let count = count_members(&self.version, &self.cache, guid)?;
            if *members != count {
                let (had, name) = (*members, format!("{} in directory {}", entry.at.name, entry.at.parent.0));
                self.losses.add("members", name, format!("{} of {had} are left", count.min(had)));
                *members = count;
            }
        }
        if trashed.is_none() && self.into.state.directory(entry.at.parent).is_none() {
            self.losses.add("entry", guid, format!("directory {} is not there", entry.at.parent.0));
            return Ok(());
        }
        if let Err(error) = self.put(&entry, trashed.as_ref()) {
            match error.kind {
                ErrorKind::Internal => self.losses.add("entry", guid, error.message),
                _ => return Err(error),
            }
        }
        Ok(())
    }

    fn put_members(&mut self) -> Result<()> {
        self.walk(|work, row, _| {
            let Some((collection, member)) =
                keyspace::member(row.name).filter(|_| row.parent == keyspace::MEMBERS)
            else {
                return Ok(());
            };
            let found = work.into.state.look().find_guid(collection).map_err(Error::from)?;
            if !found.is_some_and(|found| matches!(found.entry.body, Body::Collection { .. })) {
                work.losses.add("member", member, format!("the collection {collection} is not there"));
                return Ok(());
            }
            if work.into.state.table.active().rows() >= work.into.rows_max {
                flush(&mut work.into.state, &work.into.operations, &mut work.into.run_set)?;
            }
            work.into.state.set_member(collection, member, true).map_err(Error::from)
        })
    }

    // ---- the log ----

    /// Collects what the log after a revision creates, without applying it. Puts its segments
    /// beside.
    fn changes_after(&mut self, revision: Revision) -> Result<PutDirectories> {
        let disk = &**self.plan.context.disk;
        let place = gathered_place(self.plan);
        disk.create_directory(&place).map_err(|error| cannot_write(&place, &error))?;
        let mut made = PutDirectories::default();
        if let Some((parts, _)) = self.plan.log.after(revision) {
            for part in parts {
                self.plan.put_part(part, &place)?;
            }
            replay::replay(
                disk,
                self.plan.context.identity.id,
                &segments_in(disk, &place)?,
                revision,
                &mut made,
            )?;
        }
        Ok(made)
    }

    /// Applies the log after a revision, except changes that need something lost.
    fn replay(&mut self, revision: Revision) -> Result<()> {
        let disk = &**self.plan.context.disk;
        let segments = segments_in(disk, &gathered_place(self.plan))?;
        let mut lenient = Lenient { into: &mut self.into, losses: self.losses };
        replay::replay(disk, self.plan.context.identity.id, &segments, revision, &mut lenient).map(|_| ())
    }
}

/// Objects that a log creates.
#[derive(Default)]
struct PutDirectories {
    next_directory: u64,
}

impl Replay for PutDirectories {
    fn segment(&mut self, _: &str, _: &Header) -> Result<()> {
        Ok(())
    }

    fn record(&mut self, _: &str, _: u64, _: Head, _: usize) -> Result<()> {
        Ok(())
    }

    fn change(&mut self, _: &str, _: u64, change: Change) -> Result<()> {
        if let Some(id) = made_directory(&change) {
            self.next_directory = self.next_directory.max(id.0 + 1);
        }
        Ok(())
    }
}

fn made_directory(change: &Change) -> Option<DirId> {
    match &change.effect {
        Effect::Created { entry } => entry.directory(),
        _ => None,
    }
}

/// Receiver that applies as many changes as possible.
struct Lenient<'l> {
    into: &'l mut Builder,
    losses: &'l mut Losses,
}

impl Lenient<'_> {
    /// Says whether everything that the change needs exists. Then the change cannot fail halfway.
    fn can_be(&self, change: &Change) -> bool {
        let there = |at: &At| self.into.state.directory(at.parent).is_some();
        match &change.effect {
            Effect::Created { entry } => there(&entry.at),
            Effect::Moved { to, .. } | Effect::Restored { to, .. } => there(to),
            Effect::Committed { at, .. } => there(at),
            _ => true,
        }
    }
}

impl Replay for Lenient<'_> {
    fn segment(&mut self, _: &str, _: &Header) -> Result<()> {
        Ok(())
    }

    fn record(&mut self, _: &str, _: u64, head: Head, _: usize) -> Result<()> {
        let state = &mut self.into.state;
        if state.table.active().rows() + state.resident_changed() >= self.into.rows_max {
            flush(state, &self.into.operations, &mut self.into.run_set)?;
        }
        self.into.operations.remember(head.operation, head.first_revision, head.time);
        Ok(())
    }

    fn change(&mut self, _: &str, _: u64, change: Change) -> Result<()> {
        let can_be = self.can_be(&change);
        let state = &mut self.into.state;
        // Skipped changes count as well.
        state.revision = Revision(change.revision.0 - 1);
        if let Some(id) = made_directory(&change) {
            state.next_directory = id.0;
        }
        let applied = match can_be {
            true => state.apply_change(&change).map_err(|defect| defect.to_string()),
            false => Err("the directory that it is about is not there".to_owned()),
        };
        if let Err(why) = applied {
            (state.revision, state.time) = (change.revision, state.time.max(change.time));
            self.losses.add(
                "change",
                change.revision.0,
                format!("it is about something that is lost: {why}"),
            );
        }
        Ok(())
    }
}

/// A row that owns its parts.
struct OwnRow {
    parent: DirId,
    name: Vec<u8>,
    shape: Vec<u8>,
    checksum: Vec<u8>,
    rest: Vec<u8>,
    id: [u8; 16],
    numbers: [u64; 5],
}

impl OwnRow {
    fn of(row: &Row<'_>) -> Self {
        OwnRow {
            parent: row.parent,
            name: row.name.to_vec(),
            shape: row.shape.to_vec(),
            checksum: row.checksum.to_vec(),
            rest: row.rest.to_vec(),
            id: row.id,
            numbers: [row.size, row.job, row.created, row.modified, row.revision],
        }
    }

    fn row(&self) -> Row<'_> {
        let [size, job, created, modified, revision] = self.numbers;
        Row {
            parent: self.parent,
            name: &self.name,
            shape: &self.shape,
            id: self.id,
            size,
            job,
            created,
            modified,
            revision,
            checksum: &self.checksum,
            rest: &self.rest,
        }
    }
}

/// Counts the remaining members of a collection.
fn count_members(version: &Version, cache: &Cache, collection: exacat_model::Guid) -> Result<u64> {
    let view = View { active: None, frozen: &[], version, reading: Reading::waiting(cache) };
    let from = From { directory: keyspace::MEMBERS, name: &collection.0, after: false };
    let mut rows = view.within(from).map_err(Error::from)?;
    let mut count = 0;
    while let Some(row) = rows.next_there().map_err(Error::from)? {
        if !row.name.starts_with(&collection.0) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

fn unreadable(error: exacat_model::codec::DecodeError) -> Error {
    Error::new(ErrorKind::Corrupt, format!("a row cannot be read: {error}"))
}

fn older(entry: &Entry) -> String {
    format!("of revision {}: it may have changed, moved or gone since", entry.revision.0)
}

fn nameless(id: DirId) -> Name {
    // A name of digits is always valid.
    Name::parse(&format!("directory-{}", id.0)).unwrap_or_else(|_| Name::root())
}

fn private() -> Mode {
    Mode::new(0o700).unwrap_or(Mode::DIRECTORY)
}

/// Describes a key for an operator.
fn in_words(directory: DirId, name: &[u8], all: &Directories) -> String {
    let what = match directory {
        keyspace::ROOT_IN => return "the root".to_owned(),
        keyspace::TRACES => "traces of entries that left their names",
        keyspace::TRASH => "items of the trash",
        keyspace::EXPIRY => "the index of expiring entries",
        keyspace::MEMBERS => "members of collections",
        keyspace::DELETIONS => "deletions",
        keyspace::DELETION_PLACES => "the index of deletions",
        keyspace::PURGED => "traces of purged entries",
        keyspace::RECORDS => "users, groups, storage elements, quotas and tokens",
        keyspace::RESERVATIONS => "reservations",
        keyspace::DIRECTORIES => "the rows of directories",
        keyspace::ACCOUNTS => "usage",
        keyspace::OPERATIONS => "requests that are remembered",
        keyspace::SUMMARY => "the summary of the state",
        _ => {
            let mut path = String::from_utf8_lossy(name).into_owned();
            let (mut at, mut steps) = (directory, 0);
            while at != DirId::ROOT && steps < 1000 {
                let Some(found) = all.found.get(&at).filter(|found| found.trashed.is_none()) else {
                    return format!("{path:?} of directory {}", at.0);
                };
                path = format!("{}/{path}", found.entry.at.name);
                at = found.entry.at.parent;
                steps += 1;
            }
            return format!("/{path}");
        }
    };
    what.to_owned()
}
