//! Sources of intact copies and older states: the catalogue's snapshots, a directory of backups,
//! another data directory.
//!
//! A copy is trusted only after it was read completely.

use std::path::{Path, PathBuf};

use exacat_disk::{Disk, exists};
use exacat_log::segment::{CatalogueId, ENDING, Header, parse_file_name};
use exacat_model::{Error, ErrorKind, Result, Revision, Timelines};

use super::names_in;
use crate::identity::{FILE as CATALOGUE, Identity, Layout};
use crate::manifest::{Manifest, NAME as MANIFEST};
use crate::run::head_of;
use crate::snapshot::header_of_file;
use crate::table::{number_of, run_file_name};

/// A file that may be an intact copy of a run.
#[derive(Clone, Debug)]
pub(super) struct RunCopy {
    pub number: u64,
    pub path: PathBuf,
    /// True if the file is foreign: then it is copied, not linked.
    pub far: bool,
}

/// A file that may be an intact copy of a segment, or of its beginning.
#[derive(Clone, Debug)]
pub(super) struct SegmentCopy {
    pub first: Revision,
    pub path: PathBuf,
}

/// A state that may be whole, at some revision.
#[derive(Clone, Debug)]
pub(super) struct OlderState {
    /// Description for an operator.
    pub what: String,
    pub identity: Identity,
    pub manifest: Manifest,
    /// Files of the manifest's runs, in its order.
    pub runs: Vec<PathBuf>,
    pub far: bool,
    /// Segment that continues the state: its first revision and salt.
    pub goes_on: Option<(Revision, u64)>,
}

/// All sources.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub runs: Vec<RunCopy>,
    pub segments: Vec<SegmentCopy>,
    pub states: Vec<OlderState>,
    identities: Vec<(String, Identity)>,
}

impl Sources {
    /// Returns no sources: only the catalogue's own files count.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Finds all sources and skips damaged ones. Fails if the given directory is none.
    pub(crate) fn find(disk: &dyn Disk, data: &Layout, from: Option<&Path>) -> Result<Self> {
        let mut sources = Sources::default();
        for name in names_in(disk, &data.snapshots())?.iter().filter(|name| !name.starts_with('.')) {
            let layout = Layout::new(&data.snapshots().join(name));
            sources.add_data(disk, &layout, &format!("the snapshot {name}"), false)?;
        }
        if let Some(from) = from {
            let is_there = |name: &str| exists(disk, &from.join(name)).unwrap_or(false);
            if is_there("BACKUPS") || is_there("backups") {
                sources.add_backups(disk, from)?;
            } else if is_there(CATALOGUE) || is_there("log") {
                sources.add_data(disk, &Layout::new(from), &from.display().to_string(), true)?;
            } else if exists(disk, &from.join("store")).unwrap_or(false) {
                let store = from.join("store");
                sources.add_data(disk, &Layout::new(&store), &from.display().to_string(), true)?;
            } else {
                let what = format!("{} has neither backups nor a catalogue", from.display());
                return Err(Error::not_found(what));
            }
        }
        Ok(sources)
    }

    fn add_data(&mut self, disk: &dyn Disk, layout: &Layout, what: &str, far: bool) -> Result<()> {
        for name in names_in(disk, &layout.runs())? {
            if let Some(number) = number_of(&name) {
                self.runs.push(RunCopy { number, path: layout.runs().join(name), far });
            }
        }
        let mut segments = Vec::new();
        for name in names_in(disk, &layout.log())? {
            if let Some(first) = segment_of(&name) {
                segments.push((first, layout.log().join(&name)));
            }
        }
        let Some(identity) = layout.read_identity(disk).ok().flatten() else {
            self.segments.extend(segments.into_iter().map(|(first, path)| SegmentCopy { first, path }));
            return Ok(());
        };
        if let Ok(Some(manifest)) = Manifest::load(disk, &layout.runs(), identity.id) {
            let runs = manifest.runs.iter().map(|run| layout.runs().join(run_file_name(run.number)));
            let runs = runs.collect();
            self.add_state(disk, what, &identity, manifest, runs, far, &segments);
        }
        self.identities.push((what.to_owned(), identity));
        self.segments.extend(segments.into_iter().map(|(first, path)| SegmentCopy { first, path }));
        Ok(())
    }

    fn add_backups(&mut self, disk: &dyn Disk, from: &Path) -> Result<()> {
        let (runs, log) = (from.join("runs"), from.join("log"));
        let run_names = names_in(disk, &runs)?;
        for name in &run_names {
            if let Some(number) = name.split('-').next().and_then(|number| number.parse().ok())
                && name.ends_with(".run")
            {
                self.runs.push(RunCopy { number, path: runs.join(name), far: true });
            }
        }
        let mut segments = Vec::new();
        for name in names_in(disk, &log)? {
            let first = name.split('-').next().and_then(|first| first.parse().ok()).map(Revision);
            if let Some(first) = first
                && (name.ends_with(".log") || name.ends_with(".logz"))
            {
                segments.push((first, log.join(&name)));
            }
        }
        for name in names_in(disk, &from.join("backups"))?.iter().filter(|name| !name.starts_with('.')) {
            let layout = Layout::new(&from.join("backups").join(name));
            let Some(identity) = layout.read_identity(disk).ok().flatten() else { continue };
            let what = format!("the backup {name}");
            if let Ok(Some(manifest)) = Manifest::load(disk, layout.root(), identity.id)
                && let Some(files) = crate::snapshot::files_of_backup(disk, layout.root())
            {
                let of = |number: u64| {
                    let file = files.runs.iter().find(|(other, _)| *other == number);
                    file.map(|(_, name)| runs.join(name)).unwrap_or_default()
                };
                let files_of_runs = manifest.runs.iter().map(|run| of(run.number)).collect();
                let own: Vec<(Revision, PathBuf)> =
                    files.log.iter().map(|(first, name)| (Revision(*first), log.join(name))).collect();
                self.add_state(disk, &what, &identity, manifest, files_of_runs, true, &own);
            }
            self.identities.push((what, identity));
        }
        self.segments.extend(segments.into_iter().map(|(first, path)| SegmentCopy { first, path }));
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "all of them make up a state")]
    fn add_state(
        &mut self,
        disk: &dyn Disk,
        what: &str,
        identity: &Identity,
        manifest: Manifest,
        runs: Vec<PathBuf>,
        far: bool,
        log: &[(Revision, PathBuf)],
    ) {
        let next = Revision(manifest.revision.0.saturating_add(1));
        let covering = log.iter().filter(|(first, _)| *first <= next).max_by_key(|(first, _)| *first);
        let goes_on = covering
            .and_then(|(first, path)| header_of_file(disk, path).ok().map(|header| (*first, header.salt)));
        let (what, identity) = (what.to_owned(), identity.clone());
        self.states.push(OlderState { what, identity, manifest, runs, far, goes_on });
    }

    /// Keeps the older states of this catalogue, the newest first.
    pub(crate) fn keep_of(&mut self, identity: &Identity) {
        self.states.retain(|state| state.identity.id == identity.id);
        self.states.sort_by_key(|state| std::cmp::Reverse(state.manifest.revision));
    }

    /// Finds out which catalogue the directory has, when its own file is unreadable: from its log,
    /// and for a clone from the catalogue of its runs. Also returns the reasoning.
    pub(crate) fn identity(&self, disk: &dyn Disk, data: &Layout) -> Result<(Identity, String)> {
        let mut ids: Vec<CatalogueId> = Vec::new();
        let mut headers: Vec<Header> = Vec::new();
        for name in names_in(disk, &data.log())? {
            if segment_of(&name).is_some()
                && let Ok(header) = header_of_file(disk, &data.log().join(&name))
            {
                headers.push(header);
                if !ids.contains(&header.catalogue) {
                    ids.push(header.catalogue);
                }
            }
        }
        let unclear = |why: &str| {
            Error::new(
                ErrorKind::Corrupt,
                format!("nobody can say which catalogue this is: {why}; restore a backup"),
            )
        };
        let id = match ids[..] {
            [id] => id,
            [] => return Err(unclear("no segment of the log has a header that can be read")),
            _ => return Err(unclear("its log has segments of several")),
        };
        if let Some((what, identity)) = self.identities.iter().find(|(_, identity)| identity.id == id) {
            let mut identity = identity.clone();
            add_timelines(&mut identity.timelines, &headers);
            return Ok((identity, format!("taken from {what}")));
        }
        let mut origins: Vec<CatalogueId> = Vec::new();
        for name in names_in(disk, &data.runs())?.iter().filter(|name| number_of(name).is_some()) {
            let path = data.runs().join(name);
            if let Ok(file) = disk.open_to_read(&path)
                && let Ok(head) = head_of(name, &*file)
                && head.catalogue != id
                && !origins.contains(&head.catalogue)
            {
                origins.push(head.catalogue);
            }
        }
        if origins.len() > 1 {
            // A clone writes all its runs under the first catalogue of its ancestry.
            return Err(unclear("its runs are of several"));
        }
        let how = "made anew from its log and its runs".to_owned();
        let mut identity = Identity { origins, ..Identity::from(id) };
        if let Some(first) = headers.first() {
            identity.timelines = Timelines::new(first.timeline);
        }
        add_timelines(&mut identity.timelines, &headers);
        Ok((identity, how))
    }
}

/// Adds the timelines in the headers of a log's segments, which are in order.
fn add_timelines(timelines: &mut Timelines, headers: &[Header]) {
    for header in headers {
        if timelines.all().iter().all(|known| known.id != header.timeline) {
            let after = Revision(header.first_revision.0.saturating_sub(1));
            timelines.begin(header.timeline, timelines.current(), after);
        }
    }
}

/// Returns the first revision in the name of a segment's file, plain or archived.
pub(super) fn segment_of(name: &str) -> Option<Revision> {
    parse_file_name(name, ENDING).or_else(|| parse_file_name(name, exacat_log::archive::ENDING))
}

/// Says whether only the version of CATALOGUE is damaged. A file of a later release has other lines
/// as well.
pub(super) fn is_version_flipped(disk: &dyn Disk, data: &Layout) -> bool {
    let text = exacat_disk::read_text(disk, &data.root().join(CATALOGUE)).ok().flatten();
    text.is_some_and(|text| crate::identity::is_of_a_known_version_but_for_its_number(&text))
}

/// Says whether this directory of runs has a manifest.
pub(super) fn has_manifest(disk: &dyn Disk, runs: &Path) -> bool {
    exists(disk, &runs.join(MANIFEST)).unwrap_or(false)
}
