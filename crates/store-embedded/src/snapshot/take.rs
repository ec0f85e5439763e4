//! Takes snapshots, lists them, drops them.
//!
//! A snapshot is made in a directory of another name, synced, and renamed last: so it exists
//! completely or not at all. Directories whose name begins with a dot are snapshots in the making,
//! or in removal. Opening sweeps their leftovers.

use std::io;
use std::path::{Path, PathBuf};

use exacat_disk::{Disk, cannot_read, cannot_write, exists, list_if_there, remove_tree};
use exacat_log::log_end::LogPosition;
use exacat_log::moment::Moment;
use exacat_log::segment;
use exacat_log::segment::UNFINISHED;
use exacat_model::{Error, ErrorKind, Result, Revision, Snapshot, SnapshotElements, SnapshotName};

use super::backup::Copy;
use super::label::{self, Label};
use super::layout_of;
use crate::companion::COMPANION;
use crate::identity::{Identity, Layout};
use crate::manifest::{self, Manifest};
use crate::settings::{SNAPSHOT_TRIES_MAX, SNAPSHOTS_MAX};
use crate::table::run_file_name;

/// Endings of the names of log files: plain, and archived.
const SEGMENT_ENDINGS: [&str; 2] = [".log", ".logz"];

/// Parts of a snapshot, fixed by links: they never change from now on.
pub(crate) struct Pinned {
    pub label: Label,
    pub identity: Identity,
    pub manifest: Manifest,
    /// End of the log at that moment.
    pub end: LogPosition,
}

/// Part of the log that a snapshot needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPart {
    /// The changes after its runs.
    AfterRuns,
    /// Everything that is kept.
    Whole,
}

/// Lists the files of a log by their first revision, in order. A segment in both forms counts as
/// plain.
pub(crate) fn log_files(disk: &dyn Disk, directory: &Path) -> io::Result<Vec<(Revision, String)>> {
    let mut files: Vec<(Revision, usize, String)> = Vec::new();
    for name in list_if_there(disk, directory)? {
        for (rank, ending) in SEGMENT_ENDINGS.iter().enumerate() {
            if let Some(first) = segment::parse_file_name(&name, ending) {
                files.push((first, rank, name.clone()));
            }
        }
    }
    files.sort();
    files.dedup_by_key(|(first, ..)| *first);
    Ok(files.into_iter().map(|(first, _, name)| (first, name)).collect())
}

/// Links the files of the state at `revision`. Until this returns, no later change may get into the
/// log.
pub(crate) fn link(
    disk: &dyn Disk,
    from: &Layout,
    into: &Layout,
    identity: &Identity,
    revision: Revision,
    part: LogPart,
) -> Result<Manifest> {
    let cannot = |error: io::Error| cannot_link(into.root(), &error);
    for _ in 0..SNAPSHOT_TRIES_MAX {
        let manifest = Manifest::load(disk, &from.runs(), identity.id)?.unwrap_or_default();
        if manifest.revision > revision {
            return Err(Error::new(ErrorKind::Internal, "runs went on while a snapshot was taken"));
        }
        if link_runs(disk, &from.runs(), &into.runs(), &manifest).map_err(cannot)?
            && link_log(disk, &from.log(), &into.log(), &manifest, part).map_err(cannot)?
        {
            return Ok(manifest);
        }
        // A compaction replaced one of the runs, or a segment was archived. The manifest read is
        // outdated, so the links are removed and made again.
        for directory in [into.runs(), into.log()] {
            for name in disk.list(&directory).map_err(cannot)? {
                disk.remove(&directory.join(name)).map_err(cannot)?;
            }
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "the files changed each time they were linked: try again"))
}

/// Links the runs of a manifest; false if one of them is gone.
pub(crate) fn link_runs(disk: &dyn Disk, from: &Path, into: &Path, manifest: &Manifest) -> io::Result<bool> {
    let names = manifest.runs.iter().map(|run| run_file_name(run.number));
    link_all(disk, from, into, names)
}

fn link_log(
    disk: &dyn Disk,
    from: &Path,
    into: &Path,
    manifest: &Manifest,
    part: LogPart,
) -> io::Result<bool> {
    let files = log_files(disk, from)?;
    let next = Revision(manifest.revision.0 + 1);
    let needed = files.partition_point(|(first, _)| *first <= next).saturating_sub(1);
    let from_file = if part == LogPart::Whole { 0 } else { needed };
    link_all(disk, from, into, files[from_file..].iter().map(|(_, name)| name.clone()))
}

fn link_all(
    disk: &dyn Disk,
    from: &Path,
    into: &Path,
    names: impl Iterator<Item = String>,
) -> io::Result<bool> {
    for name in names {
        match disk.hard_link(&from.join(&name), &into.join(&name)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Returns the error for files that could not be linked.
pub(crate) fn cannot_link(directory: &Path, error: &io::Error) -> Error {
    let shown = directory.display();
    match error.kind() {
        io::ErrorKind::CrossesDevices => Error::invalid(format!(
            "{shown} is on another file system, where files cannot be shared: use 'exacat backup' and 'exacat restore', \
             which copy them"
        )),
        _ => cannot_write(directory, error),
    }
}

/// Returns the path of a directory in which a snapshot is made, or removed. The number
/// distinguishes two at a time.
pub(crate) fn hidden(data: &Layout, name: &str, number: u64, what: &str) -> PathBuf {
    data.snapshots().join(format!(".{name}.{number}.{what}"))
}

/// Creates the directories of a data directory, empty.
pub(crate) fn make_empty(disk: &dyn Disk, layout: &Layout) -> Result<()> {
    let made = remove_tree(disk, layout.root())
        .and_then(|()| disk.create_directory(&layout.runs()))
        .and_then(|()| disk.create_directory(&layout.log()));
    made.map_err(|error| cannot_write(layout.root(), &error))
}

/// Writes the remaining files beside the links, and makes everything durable except the directory's
/// own name.
pub(crate) fn finish(disk: &dyn Disk, into: &Layout, pinned: &Pinned) -> Result<()> {
    let synced =
        |directory: &Path| disk.sync_directory(directory).map_err(|error| cannot_write(directory, &error));
    pinned.manifest.save(disk, &into.runs(), pinned.identity.id)?;
    synced(&into.log())?;
    into.write_identity(disk, &pinned.identity)?;
    pinned.label.write(disk, into.root())?;
    synced(into.root())
}

/// Replaces the link to the last segment by a copy of its bytes, durably, because the catalogue
/// continues to write to that segment. The copy is only a header: taking a snapshot began the
/// segment.
pub(crate) fn copy_last_segment(disk: &dyn Disk, into: &Layout, end: LogPosition) -> Result<()> {
    let name = segment::file_name(end.segment);
    let (path, unfinished) = (into.log().join(&name), into.log().join(format!("{name}{UNFINISHED}")));
    let mut copy = Copy::new(disk, path.clone(), end.offset, unfinished.clone())?;
    while copy.step(u64::MAX)?.is_none() {}
    disk.rename(&unfinished, &path).map_err(|error| cannot_write(&path, &error))
}

/// Renames a finished snapshot to its name.
pub(crate) fn name_it(disk: &dyn Disk, data: &Layout, made: &Layout, name: &SnapshotName) -> Result<()> {
    let (snapshots, to) = (data.snapshots(), layout_of(data, name));
    let named = disk
        .rename(made.root(), to.root())
        .and_then(|()| disk.sync_directory(&snapshots))
        .and_then(|()| disk.sync_directory(data.root()));
    named.map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => taken(name),
        _ => cannot_write(to.root(), &error),
    })
}

fn taken(name: &SnapshotName) -> Error {
    Error::new(
        ErrorKind::Exists,
        format!("there is a snapshot {name} already: choose another name, or drop it"),
    )
}

/// Checks that a snapshot of this name may be taken.
pub(crate) fn check_room(disk: &dyn Disk, data: &Layout, name: &SnapshotName) -> Result<()> {
    let names = names(disk, data)?;
    if names.contains(name) {
        return Err(taken(name));
    }
    if names.len() >= SNAPSHOTS_MAX {
        return Err(Error::limit("the number of snapshots", names.len() + 1, SNAPSHOTS_MAX));
    }
    Ok(())
}

pub(crate) fn is_there(disk: &dyn Disk, directory: &Path) -> Result<bool> {
    let path = directory.join(label::FILE);
    exists(disk, &path).map_err(|error| cannot_read(&path.display().to_string(), &error))
}

/// Returns the names of all snapshots, in order.
pub(crate) fn names(disk: &dyn Disk, data: &Layout) -> Result<Vec<SnapshotName>> {
    let directory = data.snapshots();
    let names = list_if_there(disk, &directory)
        .map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    // Other files in the directory belong to nobody and are left alone.
    let mut names: Vec<SnapshotName> =
        names.iter().filter_map(|name| SnapshotName::parse(name).ok()).collect();
    names.sort();
    Ok(names)
}

/// Returns all snapshots, the oldest state first.
pub(crate) fn list(disk: &dyn Disk, data: &Layout) -> Result<Vec<Snapshot>> {
    let mut all = Vec::new();
    for name in names(disk, data)? {
        // The snapshot may be dropped meanwhile.
        all.extend(describe(disk, data, &name)?);
    }
    all.sort_by(|one, other| (one.revision, &one.name).cmp(&(other.revision, &other.name)));
    Ok(all)
}

/// Describes a snapshot; none if there is no such snapshot.
pub(crate) fn describe(disk: &dyn Disk, data: &Layout, name: &SnapshotName) -> Result<Option<Snapshot>> {
    let layout = layout_of(data, name);
    let (label, mut problem) = match Label::load(disk, layout.root()) {
        Ok(label) if label.name == *name => (Some(label), None),
        Ok(label) => {
            let other = format!("it is the snapshot {}, under another name", label.name);
            (Some(label), Some(other))
        }
        Err(error) if !exists(disk, layout.root()).unwrap_or(true) => {
            tracing::debug!(%name, %error, "a snapshot was removed while it was listed");
            return Ok(None);
        }
        Err(error) => (None, Some(error.message)),
    };
    let (mut bytes, mut own_bytes) = (0, 0);
    let part = layout.root().join(COMPANION);
    let mut directories = vec![layout.runs(), layout.log()];
    if !part_names(disk, &part)?.is_empty() {
        directories.extend([part.join("files"), part.join("log")]);
    }
    let elements = Moment::read(disk, &part).unwrap_or_else(|error| {
        problem.get_or_insert(error.message);
        None
    });
    for directory in directories {
        let held =
            held(disk, &directory).map_err(|error| cannot_read(&directory.display().to_string(), &error));
        match held {
            Ok((all, own)) => (bytes, own_bytes) = (bytes + all, own_bytes + own),
            Err(error) => problem = problem.or(Some(error.message)),
        }
    }
    Ok(Some(Snapshot {
        name: name.clone(),
        revision: label.as_ref().map(|label| label.revision).unwrap_or_default(),
        timeline: label.as_ref().map(|label| label.timeline),
        time: label.as_ref().map(|label| label.time).unwrap_or_default(),
        entries: label.as_ref().map_or(0, |label| label.entries),
        digest: label.map_or(0, |label| label.digest).to_be_bytes(),
        bytes,
        own_bytes,
        problem,
        elements: elements.map(|moment| SnapshotElements { revision: moment.revision, time: moment.time }),
    }))
}

/// Lists the companion's part of a snapshot; empty if the snapshot has none.
pub(crate) fn part_names(disk: &dyn Disk, part: &Path) -> Result<Vec<String>> {
    list_if_there(disk, part).map_err(|error| cannot_read(&part.display().to_string(), &error))
}

/// Returns the bytes of the files in a directory, and of those without another name.
fn held(disk: &dyn Disk, directory: &Path) -> io::Result<(u64, u64)> {
    let (mut all, mut own) = (0, 0);
    for name in disk.list(directory)? {
        if name == manifest::NAME {
            continue;
        }
        let path = directory.join(name);
        let bytes = disk.open_to_read(&path)?.length()?;
        all += bytes;
        own += if disk.names_of(&path)? == 1 { bytes } else { 0 };
    }
    Ok((all, own))
}

/// Removes a snapshot's name, durably, then its files.
pub(crate) fn remove(disk: &dyn Disk, data: &Layout, name: &SnapshotName, number: u64) -> Result<()> {
    let layout = super::existing(disk, data, name)?;
    let gone = hidden(data, name.as_str(), number, "dropped");
    let removed = remove_tree(disk, &gone)
        .and_then(|()| disk.rename(layout.root(), &gone))
        .and_then(|()| disk.sync_directory(&data.snapshots()));
    removed.map_err(|error| cannot_write(layout.root(), &error))?;
    discard(disk, &gone);
    Ok(())
}

/// Removes a directory that has lost its name, or has none yet. If the disk refuses, the next
/// opening sweeps the rest.
pub(crate) fn discard(disk: &dyn Disk, path: &Path) {
    if let Err(error) = remove_tree(disk, path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove the leftovers of a snapshot");
    }
}

/// Removes the leftovers of interrupted work.
pub(crate) fn sweep(disk: &dyn Disk, data: &Layout) {
    let directory = data.snapshots();
    for name in list_if_there(disk, &directory).unwrap_or_default() {
        if name.starts_with('.') {
            discard(disk, &directory.join(name));
        }
    }
}
