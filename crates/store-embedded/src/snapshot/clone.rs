//! Clones: a catalogue of its own on the runs of a snapshot.
//!
//! The clone has hard links of the snapshot's runs, its own identity, and its own log. The log
//! begins with a copy of the snapshot's part of the log, and continues after it. The two catalogues
//! share no file that is ever written to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, cannot_write, list_if_there, remove_tree, write_small};
use exacat_log::segment::{self, CatalogueId, HEADER_BYTES, Header};
use exacat_log::{Log, LogSettings};
use exacat_model::{Error, ErrorKind, Result, Revision, SnapshotName};
use exacat_store::Clock;

use super::cut::cut;
use super::label::Label;
use super::take::{cannot_link, link_runs};
use super::{existing, layout_of};
use crate::identity::{Identity, Layout};
use crate::manifest::Manifest;
use crate::settings::EmbeddedSettings;

/// Marker file in a directory in which a clone is being made, and which belongs to no catalogue
/// yet.
const UNFINISHED: &str = "UNFINISHED";
const UNFINISHED_TEXT: &[u8] =
    b"a clone was being made here; it is whole if there is a CATALOGUE beside this file\n";

/// Result of making a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloned {
    /// Last change of the snapshot; the clone's own changes follow it.
    pub revision: Revision,
    /// Entries in the tree and the trash, without the root.
    pub entries: u64,
    /// Runs that the clone shares with the snapshot.
    pub runs: u64,
}

/// Returns the directory in which a clone is made, beside its final place.
fn unfinished(into: &Path) -> Result<PathBuf> {
    let name = into.file_name().ok_or_else(|| Error::invalid("a clone needs a directory of its own"))?;
    let mut name: OsString = name.to_owned();
    name.push(".unfinished");
    Ok(into.with_file_name(name))
}

/// Empties the leftovers of an interrupted clone; refuses a directory with other content.
fn clear(disk: &dyn Disk, path: &Path) -> Result<()> {
    let names =
        list_if_there(disk, path).map_err(|error| cannot_read(&path.display().to_string(), &error))?;
    if !names.is_empty() && !names.iter().any(|name| name == UNFINISHED) {
        let shown = path.display();
        return Err(Error::new(
            ErrorKind::Exists,
            format!("{shown} is in the way, and not empty: remove it"),
        ));
    }
    remove_tree(disk, path).map_err(|error| cannot_write(path, &error))
}

pub(crate) fn clone_snapshot(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    name: &SnapshotName,
    into: &Path,
    clock: &dyn Clock,
) -> Result<Cloned> {
    let data = Layout::new(&settings.directory);
    existing(&**disk, &data, name)?;
    let from = layout_of(&data, name);
    let there =
        list_if_there(&**disk, into).map_err(|error| cannot_read(&into.display().to_string(), &error))?;
    if !there.is_empty() {
        let shown = into.display();
        return Err(Error::new(
            ErrorKind::Exists,
            format!("{shown} is not empty: a clone needs a place of its own"),
        ));
    }
    let making = unfinished(into)?;
    clear(&**disk, &making)?;
    let cloned = make(disk, settings, &from, &making, clock);
    let cloned = cloned.and_then(|cloned| {
        disk.sync_directory(&making)
            .and_then(|()| disk.rename(&making, into))
            .and_then(|()| into.parent().map_or(Ok(()), |above| disk.sync_directory(above)))
            .and_then(|()| disk.remove(&into.join(UNFINISHED)))
            .and_then(|()| disk.sync_directory(into))
            .map_err(|error| cannot_write(into, &error))?;
        Ok(cloned)
    });
    if cloned.is_err()
        && let Err(error) = clear(&**disk, &making)
    {
        tracing::warn!(%error, "cannot remove the leftovers of a clone");
    }
    cloned
}

/// Copies a snapshot's part of the log as the log of the clone.
fn copy_log(disk: &dyn Disk, from: &Layout, clone: &Layout, label: &Label, id: CatalogueId) -> Result<()> {
    let segments = exacat_log::replay::list_segments(disk, &from.log(), false)?;
    for (at, segment) in segments.iter().enumerate() {
        if segment.first_revision > label.revision {
            break;
        }
        let up_to = segments.get(at + 1).map_or(u64::MAX, |next| next.first_revision.0 - 1);
        let up_to = Revision(up_to.min(label.revision.0));
        let mut bytes = cut(disk, label.catalogue, &segments[at..], up_to)?;
        let path = clone.log().join(segment::file_name(segment.first_revision));
        let header = Header::decode(&segment.name(), &bytes)?;
        bytes[..HEADER_BYTES].copy_from_slice(&Header { catalogue: id, ..header }.encode());
        segment::put_seal(&mut bytes, header.salt, Revision(up_to.0 + 1));
        write_small(disk, &path, &bytes).map_err(|error| cannot_write(&path, &error))?;
    }
    Ok(())
}

fn make(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    from: &Layout,
    making: &Path,
    clock: &dyn Clock,
) -> Result<Cloned> {
    let label = Label::load(&**disk, from.root())?;
    let origin = from.read_identity(&**disk)?;
    let origin = origin.filter(|origin| origin.id == label.catalogue).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("the snapshot {} does not say whose it is", label.name))
    })?;
    let mut origins = vec![origin.id];
    origins.extend_from_slice(&origin.origins);
    let mut identity = Identity::new(origins)?;
    // The clone inherits the timelines, because requests may name a timeline of the origin.
    identity.timelines = origin.timelines.clone();
    identity.begin_timeline(label.timeline, label.revision)?;
    let clone = Layout::new(making);
    let cannot = |error: std::io::Error| cannot_write(making, &error);
    disk.create_directory(making).map_err(cannot)?;
    write_small(&**disk, &making.join(UNFINISHED), UNFINISHED_TEXT).map_err(cannot)?;
    disk.sync_directory(making).map_err(cannot)?;
    clone.create(&**disk)?;
    let manifest = Manifest::load(&**disk, &from.runs(), origin.id)?.unwrap_or_default();
    let linked = link_runs(&**disk, &from.runs(), &clone.runs(), &manifest);
    if !linked.map_err(|error| cannot_link(making, &error))? {
        let what = format!("a run of the snapshot {} is missing", label.name);
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    manifest.save(&**disk, &clone.runs(), identity.id)?;
    if manifest.revision < label.revision {
        copy_log(&**disk, from, &clone, &label, identity.id)?;
    }
    // The first opening of the clone replays that part, and compares the state with this digest.
    let next = Revision(label.revision.0 + 1);
    let log = LogSettings {
        disk: Arc::clone(disk),
        directory: clone.log(),
        begun_for: identity.begun_for(),
        segment_bytes: settings.segment_bytes,
        preparation: crate::settings::PREPARATION,
    };
    Log::create(log, next, clock.trusted().max(label.time), label.digest)?;
    disk.sync_directory(&clone.runs()).map_err(cannot)?;
    clone.write_identity(&**disk, &identity)?;
    Ok(Cloned { revision: label.revision, entries: label.entries, runs: manifest.runs.len() as u64 })
}
