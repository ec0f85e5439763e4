//! Taking snapshots, listing them, dropping them.
//!
//! A snapshot is made in a directory of another name, synced, and gets its own name last, by one rename: so it is there
//! whole or not at all. Names that begin with a dot are such directories, and ones that are being removed; opening sweeps
//! what is left of them.

use std::io;
use std::path::{Path, PathBuf};

use exacat_model::{Error, ErrorKind, Result, Revision, Snapshot, SnapshotName};

use super::backup::Copy;
use super::label::{self, Label};
use super::layout_of;
use crate::disk::{Disk, exists, list_if_there, remove_tree};
use crate::history::cannot_read;
use crate::identity::{Identity, Layout};
use crate::log::{Position, UNFINISHED, cannot_write};
use crate::manifest::{self, Manifest};
use crate::segment;
use crate::settings::{SNAPSHOT_TRIES_MAX, SNAPSHOTS_MAX};
use crate::table::run_file_name;

/// How names of files of the log end: plain, and archived.
const SEGMENT_ENDINGS: [&str; 2] = [".log", ".logz"];

/// What a snapshot is made of, fixed by links: it stays as it is from now on.
pub(super) struct Pinned {
    pub label: Label,
    pub identity: Identity,
    pub manifest: Manifest,
    /// End of the log at that moment.
    pub end: Position,
}

/// Which part of the log a snapshot needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogPart {
    /// What came after its runs.
    AfterRuns,
    /// All that is kept.
    Whole,
}

/// The files of a log, by their first revision, in order. Of a segment that is there in both forms the plain one.
pub(super) fn log_files(disk: &dyn Disk, directory: &Path) -> io::Result<Vec<(Revision, String)>> {
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

/// Gives the files that a state at `revision` is made of further names. Until this returns nothing may come into
/// the log after that revision.
pub(super) fn link(
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
        // A merge put another run in the place of one of them, or a segment was archived, and the manifest read is not
        // the newest any more.
        for directory in [into.runs(), into.log()] {
            for name in disk.list(&directory).map_err(cannot)? {
                disk.remove(&directory.join(name)).map_err(cannot)?;
            }
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "the files changed each time they were linked: try again"))
}

/// Links what a manifest names; false if something of it is gone.
pub(super) fn link_runs(disk: &dyn Disk, from: &Path, into: &Path, manifest: &Manifest) -> io::Result<bool> {
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

/// Why files could not get names there.
pub(super) fn cannot_link(directory: &Path, error: &io::Error) -> Error {
    let shown = directory.display();
    match error.kind() {
        io::ErrorKind::CrossesDevices => Error::invalid(format!(
            "{shown} is on another file system, where files cannot be shared: use 'exacat backup' and 'exacat restore', \
             which copy them"
        )),
        _ => cannot_write(directory, error),
    }
}

/// A directory in which a snapshot is made, or removed. The number keeps two at a time apart.
pub(super) fn hidden(data: &Layout, name: &str, number: u64, what: &str) -> PathBuf {
    data.snapshots().join(format!(".{name}.{number}.{what}"))
}

/// Makes the directories of what is laid out as a data directory, empty.
pub(super) fn make_empty(disk: &dyn Disk, layout: &Layout) -> Result<()> {
    let made = remove_tree(disk, layout.root())
        .and_then(|()| disk.create_directory(&layout.runs()))
        .and_then(|()| disk.create_directory(&layout.log()));
    made.map_err(|error| cannot_write(layout.root(), &error))
}

/// Writes what is still to be written beside the links, and makes all of it durable, but for the directory's own name.
pub(super) fn finish(disk: &dyn Disk, into: &Layout, pinned: &Pinned) -> Result<()> {
    let synced =
        |directory: &Path| disk.sync_directory(directory).map_err(|error| cannot_write(directory, &error));
    pinned.manifest.save(disk, &into.runs(), pinned.identity.id)?;
    synced(&into.log())?;
    into.write_identity(disk, &pinned.identity)?;
    pinned.label.write(disk, into.root())?;
    synced(into.root())
}

/// Puts a copy of what the last segment had, durably, in the place of the link to it: the catalogue
/// goes on writing to that. It is a header, for taking a snapshot began the segment.
pub(super) fn copy_last_segment(disk: &dyn Disk, into: &Layout, end: Position) -> Result<()> {
    let name = segment::file_name(end.segment);
    let (path, unfinished) = (into.log().join(&name), into.log().join(format!("{name}{UNFINISHED}")));
    let mut copy = Copy::new(disk, path.clone(), end.offset, unfinished.clone())?;
    while copy.step(u64::MAX)?.is_none() {}
    disk.rename(&unfinished, &path).map_err(|error| cannot_write(&path, &error))
}

/// Gives what was made its name.
pub(super) fn name_it(disk: &dyn Disk, data: &Layout, made: &Layout, name: &SnapshotName) -> Result<()> {
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

/// May a snapshot of this name be taken?
pub(super) fn check_room(disk: &dyn Disk, data: &Layout, name: &SnapshotName) -> Result<()> {
    let names = names(disk, data)?;
    if names.contains(name) {
        return Err(taken(name));
    }
    if names.len() >= SNAPSHOTS_MAX {
        return Err(Error::limit("the number of snapshots", names.len() + 1, SNAPSHOTS_MAX));
    }
    Ok(())
}

pub(super) fn is_there(disk: &dyn Disk, directory: &Path) -> Result<bool> {
    let path = directory.join(label::FILE);
    exists(disk, &path).map_err(|error| cannot_read(&path.display().to_string(), &error))
}

/// The names of all snapshots, in order.
pub(super) fn names(disk: &dyn Disk, data: &Layout) -> Result<Vec<SnapshotName>> {
    let directory = data.snapshots();
    let names = list_if_there(disk, &directory)
        .map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    // What else lies there is nobody's, and left alone.
    let mut names: Vec<SnapshotName> =
        names.iter().filter_map(|name| SnapshotName::parse(name).ok()).collect();
    names.sort();
    Ok(names)
}

/// All snapshots, the oldest state first.
pub(super) fn list(disk: &dyn Disk, data: &Layout) -> Result<Vec<Snapshot>> {
    let mut all = Vec::new();
    for name in names(disk, data)? {
        // It may be dropped meanwhile.
        all.extend(describe(disk, data, &name)?);
    }
    all.sort_by(|one, other| (one.revision, &one.name).cmp(&(other.revision, &other.name)));
    Ok(all)
}

/// What is known of a snapshot; none if it is not there.
pub(super) fn describe(disk: &dyn Disk, data: &Layout, name: &SnapshotName) -> Result<Option<Snapshot>> {
    let layout = layout_of(data, name);
    let (label, mut problem) = match Label::load(disk, layout.root()) {
        Ok(label) if label.name == *name => (Some(label), None),
        Ok(label) => {
            let other = format!("it is the snapshot {}, under another name", label.name);
            (Some(label), Some(other))
        }
        Err(error) if !exists(disk, layout.root()).unwrap_or(true) => {
            tracing::debug!(%name, %error, "a snapshot went while it was looked at");
            return Ok(None);
        }
        Err(error) => (None, Some(error.message)),
    };
    let (mut bytes, mut own_bytes) = (0, 0);
    for directory in [layout.runs(), layout.log()] {
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
    }))
}

/// Bytes of the files in a directory, and of those that have no other name.
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

/// Takes a snapshot's name away, durably, then what it is made of.
pub(super) fn remove(disk: &dyn Disk, data: &Layout, name: &SnapshotName, number: u64) -> Result<()> {
    let layout = super::existing(disk, data, name)?;
    let gone = hidden(data, name.as_str(), number, "dropped");
    let removed = remove_tree(disk, &gone)
        .and_then(|()| disk.rename(layout.root(), &gone))
        .and_then(|()| disk.sync_directory(&data.snapshots()));
    removed.map_err(|error| cannot_write(layout.root(), &error))?;
    discard(disk, &gone);
    Ok(())
}

/// Removes what has no name any more, or none yet. What stays, because the disk refuses, is swept at the next opening.
pub(super) fn discard(disk: &dyn Disk, path: &Path) {
    if let Err(error) = remove_tree(disk, path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove what is left of a snapshot");
    }
}

/// Removes what interrupted work left.
pub(crate) fn sweep(disk: &dyn Disk, data: &Layout) {
    let directory = data.snapshots();
    for name in list_if_there(disk, &directory).unwrap_or_default() {
        if name.starts_with('.') {
            discard(disk, &directory.join(name));
        }
    }
}
