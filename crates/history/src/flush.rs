//! Writes frozen memtables to runs, and the names and latest values beside them.

use std::sync::Arc;

use exacat_disk::{Disk, cannot_write, corrupt, random_u64};
use exacat_log::chain::RecordPlace;
use exacat_model::Result;
use exacat_model::codec::Reader;
use parking_lot::RwLock;

use crate::checked_file::{FileHead, FileKind, HistoryId};
use crate::group::Group;
use crate::item::Item;
use crate::latest::Latest;
use crate::manifest::{Layout, RunEntry};
use crate::memtable::Memtable;
use crate::names::NameCounts;
use crate::row::RowRef;
use crate::run::{FLUSH_LEVEL, Run, RunHead, RunWriter, span_of};
use crate::run_list::NumberedRun;
use crate::sorted::{ByRow, SortedRows};

/// Memtables of one moment, to be written to runs.
#[derive(Clone)]
pub(crate) struct FlushJob {
    /// The log up to here is in the files once the job is done.
    pub place: RecordPlace,
    pub memtables: Vec<(Arc<Group>, Arc<RwLock<Memtable>>)>,
}

/// Places of the files that a flush writes.
#[derive(Clone, Copy)]
pub(crate) struct FilePlaces<'a> {
    pub disk: &'a Arc<dyn Disk>,
    pub layout: &'a Layout,
    pub history: HistoryId,
}

impl FilePlaces<'_> {
    /// Writes the rows of a source to a new run.
    pub(crate) fn write_run(
        &self,
        number: u64,
        head: RunHead,
        level: usize,
        source: &mut dyn SortedRows,
    ) -> Result<NumberedRun> {
        let path = self.layout.run(number);
        let file = self.disk.create(&path).map_err(|error| cannot_write(&path, &error))?;
        let written = (|| {
            let mut writer = RunWriter::new(&path, &*file, head, level)?;
            writer.append_all(source)?;
            writer.finish()
        })();
        if let Err(error) = written {
            // The space is needed, most likely.
            let _opening_does = self.disk.remove(&path);
            return Err(error);
        }
        drop(file);
        self.open_run(number, head.group, head.day)
    }

    /// Opens a run.
    pub(crate) fn open_run(&self, number: u64, group: u32, day: i32) -> Result<NumberedRun> {
        let path = self.layout.run(number);
        let name = path.display().to_string();
        let file = self.disk.open_to_read(&path).map_err(|error| exacat_disk::cannot_read(&name, &error))?;
        Ok(NumberedRun {
            number,
            newest: number,
            run: Arc::new(Run::open(&name, Arc::from(file), group, day)?),
        })
    }

    /// Writes the names of a group after `from` to a file.
    pub(crate) fn write_names(&self, number: u64, group: &Group, from: &NameCounts) -> Result<NameCounts> {
        let mut content = Vec::new();
        let counts = {
            let names = group.names.read();
            names.encode_after(from, &mut content);
            names.counts()
        };
        self.head(FileKind::Names, group.id).write(&**self.disk, &self.layout.names(number), &content)?;
        Ok(counts)
    }

    /// Writes the latest values of a group to a file.
    pub(crate) fn write_latest(&self, number: u64, group: &Group) -> Result<()> {
        let mut content = Vec::new();
        let mut next = Some(0);
        // Piece by piece, so that writers wait for one piece at most. A value that is newer than the
        // place of the flush does no harm: the log has it too.
        while let Some(from) = next {
            next = group.rows.read().latest.encode_piece(from, &mut content);
        }
        self.head(FileKind::Latest, group.id).write(&**self.disk, &self.layout.latest(number), &content)
    }

    /// Reads files of names into a group.
    pub(crate) fn load_names(&self, group: &Group, numbers: &[u64]) -> Result<()> {
        let mut names = group.names.write();
        for number in numbers {
            let path = self.layout.names(*number);
            let content = self.head(FileKind::Names, group.id).read(&**self.disk, &path)?;
            let name = path.display().to_string();
            let mut reader = Reader::new(&content);
            while !reader.is_empty() {
                let item = Item::decode(&mut reader).map_err(|error| corrupt(&name, 64, error))?;
                names.learn(&item).map_err(|error| corrupt(&name, 64, error.message))?;
            }
        }
        Ok(())
    }

    /// Reads a file of latest values.
    pub(crate) fn load_latest(&self, number: u64, group: &Group) -> Result<Latest> {
        let path = self.layout.latest(number);
        let content = self.head(FileKind::Latest, group.id).read(&**self.disk, &path)?;
        let names = group.names.read();
        Latest::decode(&content, &*names, names.counts().elements)
            .map_err(|error| corrupt(&path.display().to_string(), 64, error))
    }

    pub(crate) fn head(&self, kind: FileKind, group: u32) -> FileHead {
        FileHead { history: self.history, kind, group }
    }

    /// Makes the names of all written files durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let files = self.layout.files();
        self.disk.sync_directory(&files).map_err(|error| cannot_write(&files, &error))
    }
}

/// Writes the rows of a memtable to one run for each of its days. Returns the runs with their entries.
pub(crate) fn write_memtable(
    places: &FilePlaces<'_>,
    group: &Group,
    memtable: &RwLock<Memtable>,
    next_file: &mut dyn FnMut() -> u64,
) -> Result<Vec<(RunEntry, NumberedRun)>> {
    // A copy: new names wait for no flush.
    let shapes = group.names.read().all_shapes();
    // It is frozen: only readers share the lock.
    let memtable = &*memtable.read();
    let mut written = Vec::new();
    for day in memtable.days().keys() {
        let (number, salt) = (next_file(), random_u64()?);
        let head = RunHead { group: group.id, day: *day, salt };
        let mut rows = ByRow::new(OfDay::new(memtable, *day), &shapes);
        let run = places.write_run(number, head, FLUSH_LEVEL, &mut rows)?;
        written.push((RunEntry::new(number, *day, salt), run));
    }
    Ok(written)
}

/// Rows of one day, in the order of element and time.
struct OfDay<'a> {
    memtable: &'a Memtable,
    from: i64,
    to: i64,
    element: u32,
    /// Rows of the present element.
    rows: std::vec::IntoIter<RowRef<'a>>,
}

impl<'a> OfDay<'a> {
    fn new(memtable: &'a Memtable, day: i32) -> Self {
        let (from, to) = span_of(day);
        OfDay { memtable, from, to, element: 0, rows: Vec::new().into_iter() }
    }
}

impl<'a> Iterator for OfDay<'a> {
    type Item = RowRef<'a>;

    fn next(&mut self) -> Option<RowRef<'a>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(row);
            }
            if self.element >= self.memtable.elements() {
                return None;
            }
            let mut rows = std::mem::take(&mut self.rows).collect::<Vec<_>>();
            self.memtable.collect(self.element, self.from, self.to, &mut rows);
            self.rows = rows.into_iter();
            self.element += 1;
        }
    }
}
