//! Restores a catalogue from a backup into an empty data directory, and checks backups.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, cannot_write, exists, list_if_there};
use exacat_log::segment;
use exacat_model::{Error, ErrorKind, Result, SnapshotName};
use exacat_store::Clock;

use super::copy::Copy;
use super::files::{self, BackupFile, BackupPart};
use super::{BackupInfo, CATALOGUE, MANIFEST, Shelter, copy_part_files, copy_small};
use crate::companion::COMPANION;
use crate::identity::Layout;
use crate::settings::EmbeddedSettings;
use crate::snapshot::label::Label;
use crate::snapshot::restore::{RestorePoint, RestoreProgress, RestoreWork, Restored};
use crate::snapshot::{switch, take};
use crate::table::run_file_name;

/// Bytes copied between two progress reports.
const REPORT_BYTES: u64 = 16 << 20;

/// A backup to restore from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSource {
    /// Directory with backups.
    pub directory: PathBuf,
    /// Name of the backup; none for the newest.
    pub name: Option<SnapshotName>,
}

/// Says whether a directory has backups.
pub(crate) fn has_backups(disk: &dyn Disk, directory: &Path) -> Result<bool> {
    Ok(Shelter::new(directory).catalogue(disk)?.is_some())
}

pub(crate) fn list_backups(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Vec<BackupInfo>> {
    let shelter = Shelter::new(directory);
    there_are_some(&**disk, &shelter)?;
    Ok(shelter.list(&**disk)?.into_iter().map(described).collect())
}

fn described(label: Label) -> BackupInfo {
    BackupInfo { name: label.name, revision: label.revision, time: label.time, entries: label.entries }
}

fn there_are_some(disk: &dyn Disk, shelter: &Shelter) -> Result<()> {
    match shelter.catalogue(disk)? {
        Some(_) => Ok(()),
        None => {
            let what = format!("there are no backups in {}", shelter.root.display());
            Err(Error::new(ErrorKind::NotFound, what))
        }
    }
}

/// Chooses the backup with the runs, and the backup with the log after them.
fn choose(
    disk: &dyn Disk,
    shelter: &Shelter,
    name: Option<&SnapshotName>,
    point: RestorePoint,
) -> Result<(Label, Label)> {
    let labels = shelter.list(disk)?;
    let shown = shelter.root.display();
    let none = |what: String| Error::new(ErrorKind::NotFound, what);
    let last = match name {
        None => labels.last().cloned(),
        Some(name) => labels.iter().find(|label| label.name == *name).cloned(),
    };
    let last = last.ok_or_else(|| match name {
        None => none(format!("there is no complete backup in {shown}")),
        Some(name) => {
            let names: Vec<&str> = labels.iter().map(|label| label.name.as_str()).collect();
            none(format!("there is no backup {name} in {shown}: there are {}", names.join(", ")))
        }
    })?;
    let is_before = |label: &Label| match point {
        RestorePoint::AsTaken => label.name == last.name,
        RestorePoint::Revision(revision) => label.revision <= revision,
        // A backup's last change is never after the time at which it was taken.
        RestorePoint::Time(time) => label.time <= time,
    };
    let of_last = files::load(disk, &shelter.backup(&last.name))?;
    for label in labels.iter().rev().filter(|label| label.time <= last.time && is_before(label)) {
        let own = files::load(disk, &shelter.backup(&label.name))?;
        if label.name == last.name || goes_on(&own, &of_last) {
            return Ok((label.clone(), last));
        }
    }
    let oldest = labels.first().map_or(String::new(), |label| {
        format!("; the oldest is {}, of revision {}, taken {}", label.name, label.revision.0, label.time)
    });
    Err(Error::invalid(format!("no backup in {shown} was taken before that point{oldest}")))
}

/// Returns the segment in a file's name: first revision and salt, and its last revision.
fn told(file: &BackupFile) -> Option<(&str, u64)> {
    let (segment, last) = file.name.split_once('.')?.0.rsplit_once('-')?;
    matches!(file.part, BackupPart::Log(_)).then_some((segment, last.parse().ok()?))
}

/// Says whether the log in the one backup is the beginning of the log in the other.
fn goes_on(one: &[BackupFile], other: &[BackupFile]) -> bool {
    let Some((segment, last)) = one.iter().filter_map(told).next_back() else { return true };
    other.iter().filter_map(told).any(|(same, up_to)| same == segment && up_to >= last)
}

pub(crate) fn restore_backup(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    source: &BackupSource,
    point: RestorePoint,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(&RestoreProgress),
) -> Result<Restored> {
    let data = Layout::new(&settings.directory);
    let shelter = Shelter::new(&source.directory);
    there_are_some(&**disk, &shelter)?;
    let (base, last) = choose(&**disk, &shelter, source.name.as_ref(), point)?;
    disk.create_directory(data.root()).map_err(|error| cannot_write(data.root(), &error))?;
    let _lock = data.lock(&**disk)?;
    check_empty(&**disk, &data)?;
    let restored = prepare(disk, settings, &data, &shelter, (&base, &last), point, clock, progress);
    let restored = restored.inspect_err(|_| take::discard(&**disk, &data.prepared()))?;
    let number = switch::next_replaced(&**disk, &data)?;
    switch::switch(&**disk, &data, number, None)?;
    Ok(restored)
}

/// Checks that the directory has no catalogue; removes the leftovers of an interrupted restore.
fn check_empty(disk: &dyn Disk, data: &Layout) -> Result<()> {
    let shown = data.root().display();
    if data.read_identity(disk)?.is_some() {
        switch::finish_or_undo(disk, data)?;
        return Err(Error::new(
            ErrorKind::Exists,
            format!(
                "there is a catalogue in {shown}: restore into an empty directory, or move that one away"
            ),
        ));
    }
    if switch::check_finished(disk, data).is_err() {
        // The restore was done except for the renames.
        switch::finish_or_undo(disk, data)?;
        return check_empty(disk, data);
    }
    for directory in [data.log(), data.runs()] {
        let names =
            list_if_there(disk, &directory).map_err(|error| cannot_read(&shown.to_string(), &error))?;
        if !names.is_empty() {
            let what = format!(
                "there is a part of a catalogue in {}: restore into an empty directory",
                directory.display()
            );
            return Err(Error::new(ErrorKind::Exists, what));
        }
    }
    exacat_disk::remove_tree(disk, &data.prepared()).map_err(|error| cannot_write(data.root(), &error))
}

#[allow(clippy::too_many_arguments, reason = "all of them are what a restore is about")]
fn prepare(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    data: &Layout,
    shelter: &Shelter,
    (base, last): (&Label, &Label),
    point: RestorePoint,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(&RestoreProgress),
) -> Result<Restored> {
    let from = Layout::new(&data.prepared().join("source"));
    let on = Layout::new(&data.prepared().join("line"));
    let own = files::load(&**disk, &shelter.backup(&base.name))?;
    let has_part = own.iter().any(|file| matches!(file.part, BackupPart::Part(_) | BackupPart::PartLog(_)))
        || exists(&**disk, &shelter.backup(&base.name).join(COMPANION))
            .map_err(|error| cannot_read(&shelter.root.display().to_string(), &error))?;
    let mut directories = vec![from.runs(), from.log(), on.log()];
    if has_part {
        for layout in [&from, &on] {
            directories.push(layout.root().join(BackupPart::Part(0).directory()));
            directories.push(layout.root().join(BackupPart::PartLog(0).directory()));
        }
    }
    for directory in directories {
        disk.create_directory(&directory).map_err(|error| cannot_write(&directory, &error))?;
    }
    let of_base = shelter.backup(&base.name);
    for (name, into) in [(CATALOGUE, from.root().to_owned()), (MANIFEST, from.runs())] {
        copy_small(&**disk, &of_base.join(name), &into.join(name))?;
    }
    base.write(&**disk, from.root())?;
    if has_part {
        copy_part_files(&**disk, &of_base.join(COMPANION), &from.root().join(COMPANION))?;
    }
    let further =
        if base.name == last.name { Vec::new() } else { files::load(&**disk, &shelter.backup(&last.name))? };
    let further: Vec<BackupFile> = further
        .into_iter()
        .filter(|file| match file.part {
            BackupPart::Log(_) => !own.contains(file),
            BackupPart::PartLog(_) => has_part && !own.contains(file),
            BackupPart::Run(_) | BackupPart::Part(_) => false,
        })
        .collect();
    let bytes = own.iter().chain(&further).map(|file| file.bytes).sum();
    let mut bytes_done = 0;
    for (file, layout) in own.iter().map(|file| (file, &from)).chain(further.iter().map(|file| (file, &on))) {
        let to = layout.root().join(file.part.directory()).join(name_of(file));
        let path = shelter.root.join(file.part.directory()).join(&file.name);
        let mut copy = Copy::new(&**disk, path, file.bytes, to)?;
        read_through(&mut copy, file, shelter, &mut |done| {
            progress(&RestoreProgress::Copying { bytes_done: bytes_done + done, bytes });
        })?;
        bytes_done += file.bytes;
    }
    // Both backups have the same files of the common part, so together they are the whole timeline.
    for file in own.iter().filter(|file| matches!(file.part, BackupPart::Log(_)) && base.name != last.name) {
        let to = on.log().join(name_of(file));
        if !exists(&**disk, &to).map_err(|error| cannot_read(&to.display().to_string(), &error))? {
            let from = from.log().join(name_of(file));
            disk.hard_link(&from, &to).map_err(|error| cannot_write(&to, &error))?;
        }
    }
    copy_small(&**disk, &shelter.backup(&last.name).join(CATALOGUE), &on.root().join(CATALOGUE))?;
    let identity = from.read_identity(&**disk)?.filter(|identity| identity.id == base.catalogue);
    let identity = identity.ok_or_else(|| {
        let what = format!("the backup {} does not say whose it is", of_base.display());
        Error::new(ErrorKind::Corrupt, what)
    })?;
    let work = RestoreWork { disk, settings, data, identity: &identity, from: &from, label: base, on: &on };
    let restored = work.prepare(point, clock, progress)?;
    let elements = work.prepare_companion(point, restored.time)?;
    Ok(Restored { elements, ..restored })
}

/// Returns the name of a backup's file in a data directory.
fn name_of(file: &BackupFile) -> String {
    match file.part {
        BackupPart::Run(number) => run_file_name(number),
        BackupPart::Part(_) => {
            file.name.split_once('-').map_or_else(String::new, |(_, name)| name.to_owned())
        }
        BackupPart::PartLog(first) => segment::file_name(exacat_model::Revision(first)),
        BackupPart::Log(first) => {
            let plain = segment::file_name(exacat_model::Revision(first));
            if file.name.ends_with(".logz") { format!("{plain}z") } else { plain }
        }
    }
}

/// Copies, or only reads, a file of a backup, and checks that it is unchanged.
fn read_through(
    copy: &mut Copy,
    file: &BackupFile,
    shelter: &Shelter,
    told: &mut dyn FnMut(u64),
) -> Result<()> {
    let hash = loop {
        let hash = copy.step(REPORT_BYTES)?;
        told(copy.done());
        if let Some(hash) = hash {
            break hash;
        }
    };
    if hash != file.hash {
        let path = shelter.root.join(file.part.directory()).join(&file.name);
        let what = format!("{} is damaged: its checksum is another than when it was written", path.display());
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    Ok(())
}

pub(crate) fn verify_backups(
    disk: &dyn Disk,
    directory: &Path,
    progress: &mut dyn FnMut(&RestoreProgress),
) -> Result<Vec<String>> {
    let shelter = Shelter::new(directory);
    there_are_some(disk, &shelter)?;
    let mut all: BTreeMap<String, BackupFile> = BTreeMap::new();
    for label in shelter.list(disk)? {
        for file in files::load(disk, &shelter.backup(&label.name))? {
            all.insert(file.name.clone(), file);
        }
    }
    let bytes = all.values().map(|file| file.bytes).sum();
    let (mut bytes_done, mut problems) = (0, Vec::new());
    for file in all.values() {
        let path = shelter.root.join(file.part.directory()).join(&file.name);
        let read = Copy::reading(disk, path, file.bytes).and_then(|mut copy| {
            read_through(&mut copy, file, &shelter, &mut |done| {
                progress(&RestoreProgress::Copying { bytes_done: bytes_done + done, bytes });
            })
        });
        problems.extend(read.err().map(|error| error.message));
        bytes_done += file.bytes;
    }
    Ok(problems)
}
