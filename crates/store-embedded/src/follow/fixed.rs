//! Fixes the files of a store for a follower, by hard links in a hidden directory.

use std::path::PathBuf;
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, cannot_read};
use exacat_model::{Error, Result, Revision};
use exacat_store::{FixedFile, FixedFiles};
use xxhash_rust::xxh3::Xxh3;

use crate::identity::{FILE as CATALOGUE, Layout};
use crate::settings::{FILE_ENDS_BYTES, FIXED_FILES_MAX};

/// Returns the hash of the length, the first and the last bytes of a file.
pub(crate) fn ends_of(file: &dyn DiskFile, bytes: u64) -> std::io::Result<u64> {
    let mut hash = Xxh3::new();
    hash.update(&bytes.to_le_bytes());
    let mut buffer = [0; FILE_ENDS_BYTES];
    for from in [0, bytes.saturating_sub(FILE_ENDS_BYTES as u64)] {
        let read = file.read_at(&mut buffer, from)?;
        hash.update(&buffer[..read]);
    }
    Ok(hash.digest())
}

/// Fixed files, and the owner that removes their links.
pub(crate) struct Fixed<O> {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    revision: Revision,
    files: Vec<FixedFile>,
    _owner: O,
}

impl<O> Fixed<O> {
    /// Lists the files in the directories of a fixed state.
    pub(crate) fn new(disk: Arc<dyn Disk>, layout: &Layout, revision: Revision, owner: O) -> Result<Self> {
        let mut names = vec![CATALOGUE.to_owned()];
        for (directory, path) in [("runs", layout.runs()), ("log", layout.log())] {
            let listed =
                disk.list(&path).map_err(|error| cannot_read(&path.display().to_string(), &error))?;
            names.extend(listed.into_iter().map(|name| format!("{directory}/{name}")));
        }
        if names.len() > FIXED_FILES_MAX {
            return Err(Error::limit("the number of files of a copy", names.len(), FIXED_FILES_MAX));
        }
        names.sort();
        let root = layout.root().to_owned();
        let file = |name: String| {
            let path = root.join(&name);
            let unreadable = |error: std::io::Error| cannot_read(&path.display().to_string(), &error);
            let file = disk.open_to_read(&path).map_err(unreadable)?;
            let bytes = file.length().map_err(unreadable)?;
            let ends = ends_of(&*file, bytes).map_err(unreadable)?;
            Ok(FixedFile { name, bytes, ends })
        };
        let files = names.into_iter().map(file).collect::<Result<_>>()?;
        Ok(Fixed { disk, root, revision, files, _owner: owner })
    }
}

impl<O: Send + Sync> FixedFiles for Fixed<O> {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn files(&self) -> &[FixedFile] {
        &self.files
    }

    fn read(&self, number: usize, offset: u64, into: &mut [u8]) -> Result<usize> {
        let file = self.files.get(number).ok_or_else(|| Error::not_found("there is no such file"))?;
        let path = self.root.join(&file.name);
        let read = self.disk.open_to_read(&path).and_then(|opened| {
            let rest = file.bytes.saturating_sub(offset);
            let most = usize::try_from(rest).unwrap_or(usize::MAX).min(into.len());
            opened.read_at(&mut into[..most], offset)
        });
        read.map_err(|error| cannot_read(&path.display().to_string(), &error))
    }
}
