//! The data directory of a follower while no store has it open: its source, the copy that it receives,
//! and the switch to that copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{
    Disk, DiskFile, RealDisk, cannot_read, cannot_write, exists, list_if_there, read_whole, remove_tree,
    write_small,
};
use exacat_log::segment::{self, Header};
use exacat_model::{Error, ErrorKind, Lfn, Result, Revision, TimelineId};
use exacat_store::FixedFile;
use parking_lot::Mutex;

use super::fixed::ends_of;
use super::marker::{FILE, Following, PROMOTED, SUPERSEDED, is_superseded_by, note, noted};
use crate::identity::{FILE as CATALOGUE, Identity, Layout};
use crate::manifest;
use crate::snapshot::switch;

/// End of the name of a file that is not whole.
const PART: &str = ".part";
/// File in a replaced copy that nobody needs: it was the copy of a source that went on.
const FOLLOWED: &str = "FOLLOWED";
/// Bytes written between two syncs.
const SYNC_BYTES: u64 = 8 << 20;

/// The files of a follower.
pub struct FollowerFiles {
    disk: Arc<dyn Disk>,
    data: Layout,
}

/// Returns the ending of a name with digits before it.
fn ending_of(name: &str, digits: usize) -> Option<&str> {
    let (number, ending) = name.split_at_checked(digits)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(ending)
}

/// Says whether a file may be in a copy. The name becomes part of a path.
fn is_known(name: &str) -> bool {
    match name.split_once('/') {
        None => name == CATALOGUE,
        Some(("runs", name)) => name == manifest::NAME || ending_of(name, 10) == Some(".run"),
        Some(("log", name)) => matches!(ending_of(name, 20), Some(".log" | ".logz")),
        Some(_) => false,
    }
}

impl FollowerFiles {
    /// Returns the files of a follower in a directory of a store.
    pub fn at(directory: &Path) -> Self {
        Self::at_on(Arc::new(RealDisk), directory)
    }

    /// Returns the files of a follower on another disk.
    pub fn at_on(disk: Arc<dyn Disk>, directory: &Path) -> Self {
        FollowerFiles { disk, data: Layout::new(directory) }
    }

    fn unwritable(&self, error: &std::io::Error) -> Error {
        cannot_write(self.data.root(), error)
    }

    /// Makes the directory, and completes or removes what an earlier process left.
    pub fn prepare(&self) -> Result<()> {
        let (disk, data) = (&*self.disk, &self.data);
        data.create_root(disk)?;
        let _lock = data.lock(disk)?;
        data.make_private(disk)?;
        if Following::read(disk, data)?.is_some() && switch::check_finished(disk, data).is_ok() {
            // The files of a copy that was whole, but did not count yet.
            remove_tree(disk, &data.prepared()).map_err(|error| self.unwritable(&error))?;
        }
        switch::finish_or_undo(disk, data)?;
        self.remove_followed()
    }

    /// Removes replaced copies that were copies of the source.
    fn remove_followed(&self) -> Result<()> {
        let replaced = self.data.replaced();
        let names = list_if_there(&*self.disk, &replaced).map_err(|error| self.unwritable(&error))?;
        for name in names {
            let copy = replaced.join(name);
            if exists(&*self.disk, &copy.join(FOLLOWED)).map_err(|error| self.unwritable(&error))? {
                remove_tree(&*self.disk, &copy).map_err(|error| self.unwritable(&error))?;
            }
        }
        Ok(())
    }

    /// Returns the source of this follower; none if it is no follower.
    pub fn following(&self) -> Result<Option<Following>> {
        Following::read(&*self.disk, &self.data)
    }

    /// Makes the directory a follower's of this source, limited to one directory if `under` names it. A
    /// follower keeps its id.
    pub fn follow(&self, source: &str, under: Option<&Lfn>) -> Result<Following> {
        let mut following = Following::new(source, under)?;
        match self.following()? {
            Some(before) => {
                before.check_under(under, &self.data)?;
                (following.id, following.own_changes) = (before.id, before.own_changes);
            }
            None => following.own_changes = self.catalogue()?.is_some(),
        }
        if following.own_changes && under.is_some() {
            let shown = self.data.root().display();
            let what = format!("{shown} has a catalogue: follow one directory into an empty directory");
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        following.write(&*self.disk, &self.data)?;
        // A source that was replaced follows the other one from now on.
        self.remove(SUPERSEDED)?;
        self.remove(PROMOTED)?;
        Ok(following)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let removed = self.disk.remove(&self.data.root().join(name));
        match removed.and_then(|()| self.disk.sync_directory(self.data.root())) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.unwritable(&error)),
            _ => Ok(()),
        }
    }

    /// Returns the source before, if this follower was promoted.
    pub fn promoted(&self) -> Result<Option<String>> {
        match self.following()? {
            Some(_) => Ok(None),
            None => noted(&*self.disk, &self.data, PROMOTED),
        }
    }

    /// Makes this follower, whose log ends with change `last`, the source of a new timeline. Returns that
    /// timeline. No store may have the directory open.
    pub fn promote(&self, last: Revision) -> Result<TimelineId> {
        let (disk, data) = (&*self.disk, &self.data);
        let _lock = data.lock(disk)?;
        let none = || Error::not_found(format!("{} is no follower", data.root().display()));
        let following = self.following()?.ok_or_else(none)?;
        following.check_promotable()?;
        let mut identity = data.read_identity(disk)?.ok_or_else(none)?;
        let before = identity.timelines.at(last);
        identity.begin_timeline(before, last)?;
        // Until the file is gone, the directory is a follower's, and the source's timelines replace these.
        data.write_identity(disk, &identity)?;
        note(disk, data, PROMOTED, &following.source)?;
        self.remove(FILE)?;
        Ok(identity.timelines.current())
    }

    /// Removes the store of a filtered follower, whose files are damaged: its source has the rest. No store
    /// may have the directory open.
    pub fn discard(&self) -> Result<()> {
        let (disk, data) = (&*self.disk, &self.data);
        let _lock = data.lock(disk)?;
        if self.following()?.is_none_or(|following| following.under.is_none()) {
            return Err(Error::new(ErrorKind::Internal, "this is no filtered follower"));
        }
        for path in [data.runs(), data.log()] {
            remove_tree(disk, &path).map_err(|error| self.unwritable(&error))?;
        }
        self.remove(CATALOGUE)
    }

    /// Returns the id of the catalogue here; none if there is none.
    pub fn catalogue(&self) -> Result<Option<[u8; 16]>> {
        Ok(self.data.read_identity(&*self.disk)?.map(|identity| identity.id))
    }

    /// Refuses a source of another catalogue than the one here.
    pub fn check_source(&self, identity: &str) -> Result<()> {
        self.check_same(&Identity::decode(identity)?)?;
        let Some(own) = self.data.read_identity(&*self.disk)? else { return Ok(()) };
        // A follower's timelines are those of a source; those of another directory may be its own.
        if self.following()?.is_some()
            || own.encode() == identity
            || is_superseded_by(&own.encode(), identity)?
        {
            return Ok(());
        }
        let what = format!(
            "{} is newer than the source: it was promoted or restored, and has changes that the source has not; \
             follow into an empty directory instead",
            self.data.root().display()
        );
        Err(Error::new(ErrorKind::Conflict, what))
    }

    /// Takes over the timelines of the source. The log here must be the beginning of the source's.
    pub fn adopt(&self, identity: &str) -> Result<()> {
        let _lock = self.data.lock(&*self.disk)?;
        let identity = Identity::decode(identity)?;
        self.check_same(&identity)?;
        self.data.write_identity(&*self.disk, &identity)
    }

    /// Refuses another catalogue than the one here.
    fn check_same(&self, identity: &Identity) -> Result<()> {
        match self.data.read_identity(&*self.disk)? {
            Some(own) if own.id != identity.id => Err(Error::new(
                ErrorKind::Conflict,
                format!("{} has another catalogue than the source", self.data.root().display()),
            )),
            _ => Ok(()),
        }
    }

    fn place(&self, file: &FixedFile) -> Result<PathBuf> {
        match is_known(&file.name) {
            true => Ok(self.data.copying().join(&file.name)),
            false => Err(Error::invalid(format!("a copy has no file {:.200?}", file.name))),
        }
    }

    /// Says whether this file of a copy was received before.
    pub fn has(&self, file: &FixedFile) -> Result<bool> {
        let path = self.place(file)?;
        let unreadable = |error: std::io::Error| cannot_read(&path.display().to_string(), &error);
        match self.disk.open_to_read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(unreadable(error)),
            Ok(own) => {
                let bytes = own.length().map_err(unreadable)?;
                Ok(bytes == file.bytes && ends_of(&*own, bytes).map_err(unreadable)? == file.ends)
            }
        }
    }

    /// Begins to receive a file of a copy.
    pub fn receive(&self, file: &FixedFile) -> Result<FileInTransit> {
        let place = self.place(file)?;
        for directory in ["runs", "log"] {
            let path = self.data.copying().join(directory);
            self.disk.create_directory(&path).map_err(|error| cannot_write(&path, &error))?;
        }
        let mut part = place.clone().into_os_string();
        part.push(PART);
        let part = PathBuf::from(part);
        let opened = self.disk.create(&part).map_err(|error| cannot_write(&part, &error))?;
        let (disk, progress) = (Arc::clone(&self.disk), Mutex::new((0, 0)));
        Ok(FileInTransit { disk, file: opened, part, place, wanted: file.clone(), progress })
    }

    /// Switches to a copy whose files are all here. No store may have the directory open. A catalogue that
    /// may have changes of its own stays as a replaced copy.
    pub fn switch(&self, files: &[FixedFile]) -> Result<()> {
        let (disk, data) = (&*self.disk, &self.data);
        let _lock = data.lock(disk)?;
        let following = self.following()?;
        let following = following.ok_or_else(|| Error::new(ErrorKind::Internal, "this is no follower"))?;
        let copy = Layout::new(&data.copying());
        for directory in [copy.root().to_owned(), copy.runs(), copy.log()] {
            let names = disk.list(&directory);
            for name in names.map_err(|error| cannot_read(&directory.display().to_string(), &error))? {
                let path = directory.join(&name);
                let is_wanted = files.iter().any(|file| copy.root().join(&file.name) == path);
                if !is_wanted && path != copy.runs() && path != copy.log() {
                    disk.remove(&path).map_err(|error| cannot_write(&path, &error))?;
                }
            }
        }
        let identity = copy.read_identity(disk)?;
        let identity = identity.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the copy has no identity"))?;
        self.check_same(&identity)?;
        self.reserve_last(&copy)?;
        for directory in [copy.runs(), copy.log(), copy.root().to_owned()] {
            disk.sync_directory(&directory).map_err(|error| cannot_write(&directory, &error))?;
        }
        let was = data.read_identity(disk)?;
        let number = switch::next_replaced(disk, data)?;
        if was.is_some() && !following.own_changes {
            let replaced = switch::replaced_copy(data, number);
            disk.create_directory(&replaced)
                .and_then(|()| write_small(disk, &replaced.join(FOLLOWED), b""))
                .map_err(|error| self.unwritable(&error))?;
        }
        remove_tree(disk, &data.prepared())
            .and_then(|()| disk.rename(copy.root(), &data.prepared()))
            .and_then(|()| disk.sync_directory(data.root()))
            .map_err(|error| self.unwritable(&error))?;
        switch::switch(disk, data, number, was.as_ref())?;
        if following.own_changes {
            Following { own_changes: false, ..following }.write(disk, data)?;
        }
        self.remove_followed()
    }

    /// Reserves the space that the header of the last segment promises.
    fn reserve_last(&self, copy: &Layout) -> Result<()> {
        let segments = exacat_log::replay::list_segments(&*self.disk, &copy.log(), false)?;
        let Some(last) = segments.last() else {
            return Err(Error::new(ErrorKind::Corrupt, "the copy has no log"));
        };
        let name = last.path.display().to_string();
        let file = self.disk.open_to_write(&last.path).map_err(|error| cannot_write(&last.path, &error))?;
        let bytes = read_whole(&*file).map_err(|error| cannot_read(&name, &error))?;
        let header = Header::decode(&name, &bytes)?;
        let length = header.reserved.max(bytes.len() as u64) + segment::RESERVED_UNIT;
        file.preallocate(length).and_then(|()| file.sync()).map_err(|error| cannot_write(&last.path, &error))
    }
}

/// A file of a copy on its way.
pub struct FileInTransit {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    part: PathBuf,
    place: PathBuf,
    wanted: FixedFile,
    /// Bytes written, and bytes since the last sync.
    progress: Mutex<(u64, u64)>,
}

impl FileInTransit {
    /// Appends bytes.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut progress = self.progress.lock();
        let end = progress.0 + bytes.len() as u64;
        if end > self.wanted.bytes {
            let what = format!("{} is longer than the source said", self.wanted.name);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        let written = self.file.write_at(bytes, progress.0);
        written.map_err(|error| cannot_write(&self.part, &error))?;
        *progress = (end, progress.1 + bytes.len() as u64);
        if progress.1 >= SYNC_BYTES {
            progress.1 = 0;
            self.file.sync().map_err(|error| cannot_write(&self.part, &error))?;
        }
        Ok(())
    }

    /// Gives the file its name, if it is whole.
    pub fn finish(self) -> Result<()> {
        let unwritable = |error: std::io::Error| cannot_write(&self.part, &error);
        let written = self.progress.lock().0;
        let ends = ends_of(&*self.file, written).map_err(unwritable)?;
        if written != self.wanted.bytes || ends != self.wanted.ends {
            let what = format!("{} is not what the source said", self.wanted.name);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        self.file.sync().map_err(unwritable)?;
        self.disk.rename(&self.part, &self.place).map_err(unwritable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a source cannot make a follower write elsewhere than into the files of a copy.
    #[test]
    fn names_of_files_lead_nowhere_else() {
        for good in [
            "CATALOGUE",
            "runs/manifest",
            "runs/0000000012.run",
            "log/00000000000000000001.log",
            "log/00000000000000000001.logz",
        ] {
            assert!(is_known(good), "{good}");
        }
        for bad in [
            "",
            "LOCK",
            "FOLLOWS",
            "runs",
            "runs/",
            "runs/x",
            "runs/0000000012.run.part",
            "runs/../CATALOGUE",
            "../CATALOGUE",
            "/etc/passwd",
            "log/END",
            "log/1.log",
            "log/00000000000000000001.log/x",
            "history/MOMENT",
        ] {
            assert!(!is_known(bad), "{bad}");
        }
    }
}
