//! Disk that measures: the times of its writes and syncs, its bytes and its faults.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use exacat_disk::{Disk, DiskFile};

use crate::measures::{DiskMeasures, record_since};

/// A disk with its counters.
pub(crate) struct MeasuredDisk {
    disk: Arc<dyn Disk>,
    measures: Arc<DiskMeasures>,
}

struct MeasuredFile {
    file: Box<dyn DiskFile>,
    measures: Arc<DiskMeasures>,
}

impl MeasuredDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>, measures: Arc<DiskMeasures>) -> Self {
        MeasuredDisk { disk, measures }
    }

    /// Counts a file without direct I/O. The first one of a directory is told.
    fn note_buffered(&self, directory: &Path) {
        let mut buffered = self.measures.buffered.lock();
        let count = buffered.entry(directory.to_owned()).or_default();
        *count += 1;
        if *count == 1 {
            tracing::warn!(directory = %directory.display(),
                "the file system refuses O_DIRECT: bytes go through the page cache, which costs several times the \
                 CPU; put the volume onto ext4 or XFS on a local disk");
        }
    }

    fn measured(&self, file: io::Result<Box<dyn DiskFile>>) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(MeasuredFile { file: file?, measures: Arc::clone(&self.measures) }))
    }
}

/// Counts a fault of the disk.
fn counted<T>(measures: &DiskMeasures, result: io::Result<T>) -> io::Result<T> {
    if result.is_err() {
        measures.faults.add(1);
    }
    result
}

impl Disk for MeasuredDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.measured(self.disk.open_to_read(path))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.measured(self.disk.open_to_write(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.measured(counted(&self.measures, self.disk.create(path)))
    }

    fn create_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = counted(&self.measures, self.disk.create_direct(path))?;
        if !file.is_direct() {
            self.note_buffered(path.parent().unwrap_or(path));
        }
        self.measured(Ok(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        counted(&self.measures, self.disk.rename(from, to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.hard_link(from, to)
    }

    fn names_of(&self, path: &Path) -> io::Result<u64> {
        self.disk.names_of(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        counted(&self.measures, self.disk.remove(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_directory(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let begun = Instant::now();
        let synced = counted(&self.measures, self.disk.sync_directory(directory));
        record_since(&self.measures.syncs, begun);
        synced
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }

    fn make_private(&self, path: &Path, everything_in_it: bool) -> io::Result<u64> {
        self.disk.make_private(path, everything_in_it)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.disk.free_bytes(directory)
    }
}

impl DiskFile for MeasuredFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = counted(&self.measures, self.file.read_at(into, offset))?;
        self.measures.read_bytes.add(read as u64);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let begun = Instant::now();
        let written = counted(&self.measures, self.file.write_at(bytes, offset));
        record_since(&self.measures.writes, begun);
        self.measures.written_bytes.add(bytes.len() as u64);
        written
    }

    fn sync(&self) -> io::Result<()> {
        let begun = Instant::now();
        let synced = counted(&self.measures, self.file.sync());
        record_since(&self.measures.syncs, begun);
        synced
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        counted(&self.measures, self.file.preallocate(length))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        counted(&self.measures, self.file.set_length(length))
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn give_back(&self) {
        self.file.give_back();
    }
}
