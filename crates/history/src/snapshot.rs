//! Snapshots of an open history: hard links of the files, of the log behind them, and the moment.
//!
//! ```text
//!   before the moment   link_ahead: the files that the manifest names; nobody waits
//!   the moment          pin, with the log locked: a segment begins; the manifest and what it names
//!                       is linked, and the sealed segments behind it
//!   after it            finish: everything is made durable, then the file MOMENT is written
//! ```
//! Files and sealed segments never change, so a snapshot shares nothing that is still written to.

use std::io;
use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, cannot_write, exists};
use exacat_log::chain::RecordPlace;
use exacat_log::moment::Moment;
use exacat_log::replay::list_segments;
use exacat_model::{Error, ErrorKind, Result};

use crate::engine::{History, Shared, create_directories};
use crate::manifest::{self, Layout, Manifest};
use crate::open::IDENTITY;

/// Attempts to link files while flushes and merges replace them.
const TRIES_MAX: usize = 20;

/// Files of a moment, linked: they never change from now on.
pub struct Pinned {
    disk: Arc<dyn Disk>,
    into: Layout,
    manifest: Manifest,
    moment: Moment,
}

/// Links a file that may be linked already; false if it is gone.
pub(crate) fn link(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<bool> {
    match disk.hard_link(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn cannot_link(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::CrossesDevices => Error::invalid(format!(
            "{} is on another file system than the history of elements, where files cannot be shared",
            path.display()
        )),
        _ => cannot_write(path, error),
    }
}

impl History {
    /// Links the files that count at present into a new directory. Most of them count at the moment of
    /// the snapshot too, so `pin` has few links to make. Nothing waits for it.
    pub fn link_ahead(&self, into: &Path) -> Result<()> {
        let shared = &self.shared;
        let into = Layout { root: into.to_owned() };
        create_directories(&*shared.disk, &into)?;
        let manifest = Manifest::read(&*shared.disk, &shared.layout.root, shared.id)?.unwrap_or_default();
        shared.link_files(&manifest, &into).map(|_| ())
    }

    /// Fixes the history at this moment: with every row that was answered, and with none whose request
    /// comes later. With `whole_log` it keeps the whole log, and otherwise what follows the files.
    pub fn pin(&self, into: &Path, whole_log: bool) -> Result<Pinned> {
        let shared = &self.shared;
        let into = Layout { root: into.to_owned() };
        create_directories(&*shared.disk, &into)?;
        // Held to the end: no row is answered meanwhile.
        let mut appender = shared.appender.lock();
        if let Some(why) = shared.queue.failed() {
            return Err(Error::new(ErrorKind::Unavailable, why.to_string()));
        }
        let place = appender.seal((shared.settings.now)())?;
        for _ in 0..TRIES_MAX {
            if let Some(manifest) = shared.link_moment(&into, place, whole_log)? {
                let moment = place.moment(shared.id);
                return Ok(Pinned { disk: Arc::clone(&shared.disk), into, manifest, moment });
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "the files changed each time they were linked: try again"))
    }
}

impl Shared {
    /// Links the files of a manifest; false if one of them is gone.
    fn link_files(&self, manifest: &Manifest, into: &Layout) -> Result<bool> {
        for path in manifest.files(&self.layout) {
            let Some(name) = path.file_name() else { continue };
            let to = into.files().join(name);
            if !link(&*self.disk, &path, &to).map_err(|error| cannot_link(&to, &error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Links the manifest, its files, and the log up to a place; none if one of them is gone, because a
    /// flush or a merge has replaced it.
    fn link_moment(&self, into: &Layout, place: RecordPlace, whole_log: bool) -> Result<Option<Manifest>> {
        let disk = &*self.disk;
        let linked = into.root.join(manifest::FILE);
        let cannot = |error: io::Error| cannot_link(&linked, &error);
        if exists(disk, &linked).map_err(cannot)? {
            disk.remove(&linked).map_err(cannot)?;
        }
        // The link of the manifest is what is read: the name may mean another one a moment later.
        link(disk, &self.layout.root.join(manifest::FILE), &linked).map_err(cannot)?;
        let manifest = Manifest::read(disk, &into.root, self.id)?.unwrap_or_default();
        if manifest.revision > place.revision.0 {
            return Err(Error::new(ErrorKind::Internal, "runs went on while a snapshot was taken"));
        }
        if !self.link_files(&manifest, into)? {
            return Ok(None);
        }
        let segments = list_segments(disk, &self.layout.log(), false)?;
        let needed = segments.partition_point(|segment| segment.first_revision.0 <= manifest.revision + 1);
        let first = if whole_log { 0 } else { needed.saturating_sub(1) };
        for segment in segments.iter().skip(first).filter(|one| one.first_revision <= place.revision) {
            let Some(name) = segment.path.file_name() else { continue };
            let to = into.log().join(name);
            if !link(disk, &segment.path, &to).map_err(|error| cannot_link(&to, &error))? {
                return Ok(None);
            }
        }
        Ok(Some(manifest))
    }
}

impl Pinned {
    /// Returns the moment.
    pub fn moment(&self) -> Moment {
        self.moment
    }

    /// Makes the snapshot durable and complete. The caller syncs the directory that has its name.
    pub fn finish(&self, of: &Path) -> Result<()> {
        let (disk, into) = (&*self.disk, &self.into);
        let cannot = |error: io::Error| cannot_write(&into.root, &error);
        // Files that were replaced between the first links and the moment.
        let kept = self.manifest.files(into);
        for name in disk.list(&into.files()).map_err(cannot)? {
            let path = into.files().join(name);
            if !kept.contains(&path) {
                disk.remove(&path).map_err(cannot)?;
            }
        }
        let identity = into.root.join(IDENTITY);
        link(disk, &of.join(IDENTITY), &identity).map_err(|error| cannot_link(&identity, &error))?;
        disk.sync_directory(&into.files()).and_then(|()| disk.sync_directory(&into.log())).map_err(cannot)?;
        self.moment.write(disk, &into.root)?;
        disk.sync_directory(&into.root).map_err(cannot)
    }
}
