//! Prepares the replacement of a damaged catalogue's log and runs: made beside it, audited, and
//! only then used.
//!
//! Several ways may lead to it; the first that gives the whole state counts. Ways that lose
//! something come last.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result, Revision, TimeMs};

use super::history::{Bytes, RecoveredSegment};
use super::plan::Plan;
use super::recover_rows;
use super::runs::{Way, check};
use super::sources::OlderState;
use super::{Losses, ProgressCallback, RepairProgress, segments_in};
use crate::identity::Identity;
use crate::manifest::{Manifest, RunNamed};
use crate::recovery::Builder;
use crate::settings::SNAPSHOT_CACHE_BYTES;
use crate::snapshot::cut::cut;
use crate::snapshot::view::{BuildMemory, ReadEnd, build, flush_built};
use crate::state::State;
use crate::table::{RunSet, begin_run, next_number, run_file_name, scratch_name};
use exacat_disk::{cannot_read, cannot_write};
use exacat_disk::{remove_tree, write_small};
use exacat_log::archive::ENDING as ARCHIVED;
use exacat_log::segment::{self, put_seal};
use exacat_log::{Log, LogSettings};

/// Bytes per read while copying.
const COPY_BYTES: usize = 1 << 20;

/// Key facts of a state.
pub(super) struct Described {
    pub revision: Revision,
    pub time: TimeMs,
    pub entries: u64,
    pub digest: u128,
}

impl Described {
    pub(crate) fn of(state: &State) -> Self {
        Described {
            revision: state.revision,
            time: state.time,
            entries: state.entries,
            digest: state.digest(),
        }
    }
}

/// A prepared replacement.
pub(super) struct Made {
    pub state: Described,
    /// Identity of the catalogue after the repair: on a new timeline if something is lost.
    pub identity: Identity,
    /// Oldest change in its history.
    pub oldest: Revision,
    pub how: Vec<String>,
    pub losses: Losses,
}

/// A state to continue from.
enum Base<'b> {
    /// This many of the oldest runs of the manifest.
    Oldest(usize),
    Older(&'b OlderState),
    Nothing,
}

impl Plan<'_> {
    /// Makes the replacement in the way that loses least.
    pub(crate) fn make(&self, progress: &mut ProgressCallback<'_>) -> Result<Made> {
        let mut why_not = Vec::new();
        // First choice: the whole state and the whole kept history.
        for base in self.bases()? {
            let revision = self.revision_of(&base)?;
            if !self.log.is_whole_after(revision, self.runs.manifest.revision) {
                why_not.push(format!("{}: the log after it is not whole", self.name(&base)));
                continue;
            }
            match self.made_from(&base, progress) {
                Ok(made) => return Ok(made),
                Err(error) if is_about_files(&error) => {
                    why_not.push(format!("{}: {}", self.name(&base), error.message));
                }
                Err(error) => return Err(error),
            }
        }
        why_not.iter().for_each(|why| tracing::info!(why, "one way to repair does not work"));
        // Second choice: intact runs. Changes after them are lost, but the state once existed.
        if self.runs.runs.iter().all(super::runs::RunSeen::is_whole) {
            match self.made_from(&Base::Oldest(self.runs.runs.len()), progress) {
                Err(error) if is_about_files(&error) => why_not.push(error.message),
                made => return made,
            }
        }
        // Third choice: the readable rows.
        if self.runs.runs.iter().any(|run| !matches!(run.way, Way::Not)) {
            match self.recovered_rows(progress) {
                Err(error) if is_about_files(&error) => why_not.push(error.message),
                made => return made,
            }
        }
        // Last choice: nothing of the runs is readable. The newest other state is taken, with the
        // changes after it. An empty base counts only if the log begins with the first change.
        let is_state = |base: &Base<'_>| {
            let begins = self.log.parts.first().is_some_and(|part| part.first == Revision(1));
            !matches!(base, Base::Oldest(0) | Base::Nothing) || begins
        };
        for base in self.bases()?.into_iter().filter(is_state) {
            match self.made_from(&base, progress) {
                Err(error) if is_about_files(&error) => why_not.push(error.message),
                made => return made,
            }
        }
        let why = why_not.last().map_or_else(String::new, |why| format!(": {why}"));
        let what = format!(
            "it cannot be repaired from its own files; restore a backup, or give one with --from{why}"
        );
        Err(Error::new(ErrorKind::Corrupt, what))
    }

    /// Returns the states to continue from, the newest first.
    fn bases(&self) -> Result<Vec<Base<'_>>> {
        let mut bases = Vec::new();
        let whole = self.runs.whole_from_the_oldest();
        if whole == self.runs.runs.len() {
            bases.push(Base::Oldest(whole));
        }
        let mut older: Vec<Base<'_>> = self.sources.states.iter().map(Base::Older).collect();
        older.extend((1..=whole.min(self.runs.runs.len().saturating_sub(1))).map(Base::Oldest));
        let mut dated = Vec::new();
        for base in older {
            // A state without a readable revision is unusable.
            if let Ok(revision) = self.revision_of(&base) {
                dated.push((std::cmp::Reverse(revision), base));
            }
        }
        dated.sort_by_key(|(revision, _)| *revision);
        bases.extend(dated.into_iter().map(|(_, base)| base));
        bases.push(Base::Nothing);
        Ok(bases)
    }

    fn name(&self, base: &Base<'_>) -> String {
        match base {
            Base::Oldest(count) if *count == self.runs.runs.len() => "the runs".to_owned(),
            Base::Oldest(count) => format!("the {count} oldest runs"),
            Base::Older(state) => state.what.clone(),
            Base::Nothing => "the log alone".to_owned(),
        }
    }

    /// Returns the last change in a state.
    fn revision_of(&self, base: &Base<'_>) -> Result<Revision> {
        match base {
            Base::Oldest(count) if *count == self.runs.runs.len() => Ok(self.runs.manifest.revision),
            Base::Oldest(count) => {
                let disk = self.context.disk;
                let newest = &self.runs.runs[self.runs.runs.len() - count];
                let unknown = || Error::new(ErrorKind::Corrupt, "a run does not say of when it is");
                let Way::File { path, .. } = &newest.way else { return Err(unknown()) };
                let name = path.display().to_string();
                let file = disk.open_to_read(path).map_err(|error| cannot_read(&name, &error))?;
                let run = crate::run::Run::open_of(&name, Arc::from(file), |_| true)?;
                State::revision_in(&[Arc::new(run)]).ok_or_else(unknown)
            }
            Base::Older(state) => Ok(state.manifest.revision),
            Base::Nothing => Ok(Revision(0)),
        }
    }

    /// Prepares a state and the log after it. Missing parts of the log are lost.
    fn made_from(&self, base: &Base<'_>, progress: &mut ProgressCallback<'_>) -> Result<Made> {
        let disk = &**self.context.disk;
        self.begin()?;
        let mut how = Vec::new();
        let manifest = match base {
            Base::Oldest(count) => {
                how.extend(self.runs.repairs.iter().cloned());
                self.put_runs(*count)?
            }
            Base::Older(state) => self.put_older(state)?,
            Base::Nothing => Manifest { next_run: self.next_run()?, ..Manifest::default() },
        };
        let is_all = matches!(base, Base::Oldest(count) if *count == self.runs.runs.len());
        if !is_all {
            // Notes about runs that are not used do not matter.
            how.clear();
            how.push(format!("the runs: made anew of {} and the log after it", self.name(base)));
        }
        manifest.save(disk, &self.runs_place(), self.context.catalogue())?;
        let revision = manifest.revision;
        let (parts, end) = match self.log.after(revision) {
            Some((parts, end)) => (parts, end),
            None => (&[][..], revision),
        };
        let log = self.log_place();
        for part in parts {
            self.put_part(part, &log)?;
        }
        if let Base::Older(state) = base {
            check_line(state, parts)?;
        }
        let run_set =
            RunSet::open(Arc::clone(self.context.disk), &self.runs_place(), self.context.identity.clone())?;
        let segments = segments_in(disk, &log)?;
        let memory = BuildMemory::of(SNAPSHOT_CACHE_BYTES, self.context.settings.memtable_rows);
        let mut report = |revision: Revision| {
            progress(&RepairProgress::Reading { revision });
            Ok(())
        };
        let id = self.context.catalogue();
        let end = ReadEnd::Revision(end.max(revision));
        let mut built = build(disk, run_set, (id, &segments), end, memory, &mut report)?;
        if end != ReadEnd::Revision(built.state.revision) {
            let what = format!("its log ends with change {}", built.state.revision.0);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        if built.run_set.revision().0 < built.state.revision {
            flush_built(&mut built)?;
        }
        self.audit(&built)?;
        let mut losses = Losses::default();
        self.lost_changes(built.state.revision, parts, &mut losses);
        let identity = self.repaired_identity(&losses, built.state.revision)?;
        let oldest = self.end_log(&built.state, parts, &identity)?;
        Ok(Made { state: Described::of(&built.state), identity, oldest, how, losses })
    }

    /// Begins a timeline if something is lost: the history after `kept` is replaced.
    fn repaired_identity(&self, losses: &Losses, kept: Revision) -> Result<Identity> {
        let mut identity = self.context.identity.clone();
        if losses.total > 0 {
            identity.begin_timeline(identity.timelines.at(kept), kept)?;
        }
        Ok(identity)
    }

    /// Prepares the readable rows of the runs, and the log after them.
    fn recovered_rows(&self, progress: &mut ProgressCallback<'_>) -> Result<Made> {
        self.begin()?;
        let mut losses = Losses::default();
        let built = recover_rows::recover_rows(self, &mut losses, progress)?;
        self.audit(&built)?;
        self.lost_changes(built.state.revision, &[], &mut losses);
        // The state follows from no history. So none leads up to it, and readers of the changes
        // notice that. No revision of the old timelines describes this state.
        let identity = self.repaired_identity(&losses, Revision(0))?;
        let oldest = self.end_log(&built.state, &[], &identity)?;
        let how = vec!["the runs: their readable rows, every counter and index made anew".to_owned()];
        Ok(Made { state: Described::of(&built.state), identity, oldest, how, losses })
    }

    /// Lists the lost changes: those of the history before the state, and those after it.
    fn lost_changes(&self, revision: Revision, kept: &[RecoveredSegment], losses: &mut Losses) {
        for hole in &self.log.holes {
            match hole.to {
                Some(to) if to <= revision => losses.add(
                    "history",
                    format!("changes {} to {}", hole.from.0, to.0),
                    format!("their results are in the catalogue, but no longer in the history: {}", hole.why),
                ),
                Some(to) => losses.add(
                    "changes",
                    format!("{} to {}", hole.from.0.max(revision.0 + 1), to.0),
                    format!("they are undone: {}", hole.why),
                ),
                None => losses.add(
                    "changes",
                    format!("from {} on", hole.from.0.max(revision.0 + 1)),
                    format!("they are undone, if there were any: {}", hole.why),
                ),
            }
        }
        let oldest = kept.first().map_or(revision.0 + 1, |part| part.first.0);
        let before = self.log.parts.iter().filter(|part| part.first.0 < oldest);
        let (first, last) = before
            .fold((u64::MAX, 0), |(first, last), part| (first.min(part.first.0), last.max(part.last.0)));
        if first < oldest && first <= last {
            let last = last.min(oldest - 1).min(revision.0);
            losses.add(
                "history",
                format!("changes {first} to {last}"),
                "their results are in the catalogue, but no longer in the history: the history begins behind the missing part",
            );
        }
        let after = self.log.parts.iter().filter(|part| part.last > revision);
        let end = after.map(|part| part.last.0).max();
        let is_named = self.log.holes.iter().any(|hole| hole.to.is_none_or(|to| to > revision));
        if let Some(end) = end.filter(|_| !kept.iter().any(|part| part.last > revision)) {
            let from = revision.0 + 1;
            let why =
                if is_named { "they follow the missing part" } else { "they do not follow from the rest" };
            losses.add("changes", format!("{from} to {end}"), format!("they are undone: {why}"));
        }
    }

    /// Checks that nothing in the prepared files contradicts anything else.
    fn audit(&self, built: &Builder) -> Result<()> {
        for run in &built.state.table.version().runs {
            if let Some(problem) = run.check().into_iter().next() {
                return Err(Error::new(ErrorKind::Corrupt, problem));
            }
        }
        let audit = built.state.audit().map_err(Error::from)?;
        match audit.findings.first() {
            None => Ok(()),
            Some(item) => {
                let what =
                    format!("its state contradicts itself: {}: {}: {}", item.what, item.which, item.detail);
                Err(Error::new(ErrorKind::Corrupt, what))
            }
        }
    }

    // ---- files ----

    pub(crate) fn runs_place(&self) -> PathBuf {
        self.context.data.prepared().join("runs")
    }

    fn log_place(&self) -> PathBuf {
        self.context.data.prepared().join("log")
    }

    /// Empties the directory of prepared files.
    fn begin(&self) -> Result<()> {
        let disk = &**self.context.disk;
        let prepared = self.context.data.prepared();
        let begun = remove_tree(disk, &prepared)
            .and_then(|()| disk.create_directory(&self.runs_place()))
            .and_then(|()| disk.create_directory(&self.log_place()));
        begun.map_err(|error| cannot_write(&prepared, &error))
    }

    /// Returns a run number that no run has, here or in any snapshot.
    pub(crate) fn next_run(&self) -> Result<u64> {
        let of_copies = self.sources.runs.iter().map(|copy| copy.number + 1).max().unwrap_or(0);
        let of_states = self.sources.states.iter().map(|state| state.manifest.next_run).max().unwrap_or(0);
        let of_files = next_number(&**self.context.disk, &self.context.data.runs())?;
        Ok(of_copies.max(of_states).max(of_files).max(self.runs.manifest.next_run))
    }

    /// Puts some of the oldest runs of the manifest into their new place.
    fn put_runs(&self, count: usize) -> Result<Manifest> {
        let skipped = self.runs.runs.len() - count;
        let mut manifest =
            Manifest { next_run: self.next_run()?, runs: Vec::new(), ..self.runs.manifest.clone() };
        for run in &self.runs.runs[skipped..] {
            let named = match &run.way {
                Way::File { path, far } => {
                    self.put_file(path, &self.runs_place().join(run_file_name(run.named.number)), *far)?;
                    run.named
                }
                Way::Anew(scanned) => {
                    let number = manifest.next_run;
                    manifest.next_run += 1;
                    let rows = self.write_anew(number, run.named.rows, |writer| scanned.copy_into(writer))?;
                    RunNamed { number, rows }
                }
                Way::InPart(_) | Way::Not => {
                    return Err(Error::new(ErrorKind::Internal, "a run that is not whole was taken"));
                }
            };
            manifest.runs.push(named);
        }
        if skipped > 0 {
            self.date(&mut manifest)?;
        }
        Ok(manifest)
    }

    /// Writes a run.
    pub(crate) fn write_anew(
        &self,
        number: u64,
        rows_max: u64,
        rows: impl FnOnce(&mut crate::run::RunWriter) -> Result<()>,
    ) -> Result<u64> {
        let disk = &**self.context.disk;
        let place = self.runs_place();
        let catalogue = self.context.identity.writes_runs_of();
        let mut writer = begin_run(disk, &place, catalogue, number, rows_max)?;
        rows(&mut writer)?;
        let count = writer.rows();
        writer.finish().map_err(|error| crate::table::cannot_write_run(&error))?;
        let scratch = place.join(scratch_name(number));
        disk.remove(&scratch).map_err(|error| cannot_write(&scratch, &error))?;
        Ok(count)
    }

    /// Sets the revision and time of the manifest to those of the runs in their new place.
    fn date(&self, manifest: &mut Manifest) -> Result<()> {
        let mut runs = Vec::new();
        for named in &manifest.runs {
            let path = self.runs_place().join(run_file_name(named.number));
            let name = path.display().to_string();
            let file = self.context.disk.open_to_read(&path).map_err(|error| cannot_read(&name, &error))?;
            runs.push(Arc::new(crate::run::Run::open_of(&name, Arc::from(file), |_| true)?));
        }
        let moment = State::moment_in(&runs);
        (manifest.revision, manifest.time) =
            moment.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the runs do not say of when they are"))?;
        Ok(())
    }

    /// Puts the runs of an older state into their new place. A run that is damaged there may be
    /// intact here.
    fn put_older(&self, state: &OlderState) -> Result<Manifest> {
        let disk = &**self.context.disk;
        for (named, path) in state.manifest.runs.iter().zip(&state.runs) {
            let to = self.runs_place().join(run_file_name(named.number));
            if let Err(problems) = check(disk, path, &state.identity, *named, None)? {
                let own = self.runs.runs.iter().find(|run| run.named == *named);
                let Some(Way::File { path, far }) = own.map(|run| &run.way) else {
                    return Err(Error::new(ErrorKind::Corrupt, problems.join("; ")));
                };
                self.put_file(path, &to, *far)?;
            } else {
                self.put_file(path, &to, state.far)?;
            }
        }
        Ok(Manifest { next_run: self.next_run()?.max(state.manifest.next_run), ..state.manifest.clone() })
    }

    /// Links a file, or copies it if it is foreign (`far`).
    fn put_file(&self, from: &Path, to: &Path, far: bool) -> Result<()> {
        let disk = &**self.context.disk;
        if !far {
            match disk.hard_link(from, to) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {}
                Err(error) => return Err(cannot_write(to, &error)),
            }
        }
        let unreadable = |error: std::io::Error| cannot_read(&from.display().to_string(), &error);
        let unwritable = |error: std::io::Error| cannot_write(to, &error);
        let source = disk.open_to_read(from).map_err(unreadable)?;
        let file = disk.create(to).map_err(unwritable)?;
        let (mut buffer, mut at) = (vec![0; COPY_BYTES], 0);
        loop {
            let read = source.read_at(&mut buffer, at).map_err(unreadable)?;
            if read == 0 {
                break;
            }
            file.write_at(&buffer[..read], at).map_err(unwritable)?;
            at += read as u64;
        }
        file.sync().map_err(unwritable)
    }

    /// Puts a segment into its new place.
    pub(crate) fn put_part(&self, part: &RecoveredSegment, log: &Path) -> Result<()> {
        let disk = &**self.context.disk;
        let mut to = log.join(segment::file_name(part.first));
        if part.archived {
            to.set_extension(&ARCHIVED[1..]);
        }
        match &part.bytes {
            Bytes::File { path, own } => self.put_file(path, &to, !own),
            Bytes::Made(bytes) => write_small(disk, &to, bytes).map_err(|error| cannot_write(&to, &error)),
        }
    }

    /// Ends the prepared log, and begins a segment with the next change. The last segment is cut
    /// behind the last change, in a new file, because the old file stays unchanged. Returns the
    /// oldest change.
    fn end_log(&self, state: &State, parts: &[RecoveredSegment], identity: &Identity) -> Result<Revision> {
        let disk = &**self.context.disk;
        let (log, id) = (self.log_place(), self.context.catalogue());
        let next = Revision(state.revision.0 + 1);
        if let Some(last) = parts.last() {
            let path = log.join(segment::file_name(last.first));
            if last.last < last.first {
                // The segment is empty; a new one replaces it.
                disk.remove(&path).map_err(|error| cannot_write(&path, &error))?;
            } else if !last.archived {
                let segments = segments_in(disk, &log)?;
                let from = segments.len().saturating_sub(1);
                let mut bytes = cut(disk, id, &segments[from..], state.revision)?;
                put_seal(&mut bytes, last.salt, next);
                disk.remove(&path).map_err(|error| cannot_write(&path, &error))?;
                write_small(disk, &path, &bytes).map_err(|error| cannot_write(&path, &error))?;
            }
        }
        let settings = LogSettings {
            disk: Arc::clone(self.context.disk),
            directory: log.clone(),
            begun_for: identity.begun_for(),
            segment_bytes: self.context.settings.segment_bytes,
            preparation: crate::settings::PREPARATION,
        };
        Log::create(settings, next, self.clock.trusted().max(state.time), state.digest())?;
        for directory in [&self.runs_place(), &log] {
            disk.sync_directory(directory).map_err(|error| cannot_write(directory, &error))?;
        }
        let oldest = parts.first().filter(|part| part.last >= part.first);
        Ok(oldest.map_or(next, |part| part.first))
    }
}

/// Checks that the log continues this state. If not, it is on another timeline: the catalogue was
/// restored since.
fn check_line(state: &OlderState, parts: &[RecoveredSegment]) -> Result<()> {
    let Some((first, salt)) = state.goes_on else {
        return Err(Error::new(ErrorKind::Corrupt, "the place where the log continues after it is unknown"));
    };
    match parts.iter().find(|part| part.first == first) {
        Some(part) if part.salt == salt => Ok(()),
        _ => Err(Error::new(ErrorKind::Corrupt, "the log does not go on from it")),
    }
}

/// Says whether the files caused the error, not the machine.
fn is_about_files(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Internal)
}
