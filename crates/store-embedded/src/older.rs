//! Requests that memory has forgotten: finds the records of an operation id in the log (clause A6).
//!
//! Such a search is rare: a client must retry a request after more others than memory has
//! (`state/operations.rs`). The ids of the log's segments are then sorted into runs, segment by
//! segment, newest first. The search ends at the time at which the id was made: the request cannot
//! have been applied before. So nothing is written without need, and no segment is read twice.
//!
//! Runs are files without a sync, for this process only. Ids begin with the time of their making,
//! so the first and last id of nearly every run rule it out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, cannot_read, cannot_write, corrupt, remove_tree};
use exacat_log::Segment;
use exacat_model::limits::{OPERATION_AGE_MAX_MS, OPERATION_AHEAD_MAX_MS};
use exacat_model::{Error, OperationId, Result, Revision, TimeMs};

use crate::history::History;
use crate::identity::Layout;
use crate::settings::OLDER_RUN_IDS;

/// Bytes of an id and the first revision of its record.
const ENTRY_BYTES: usize = 24;
/// Ids of a run that are read together.
const PAGE_IDS: usize = 170;

type Entry = (OperationId, Revision);

/// Records of a request in the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OlderRecords {
    /// First revisions of the records, in order.
    Records(Vec<Revision>),
    /// The log does not reach back to the time at which the id was made.
    NotKept,
}

/// One sorted run of ids.
struct IdRun {
    name: PathBuf,
    file: Box<dyn DiskFile>,
    /// First id of each page, and the page's checksum.
    pages: Vec<(OperationId, u32)>,
    last: OperationId,
}

impl IdRun {
    fn write(disk: &dyn Disk, name: PathBuf, entries: &BTreeSet<Entry>) -> Result<Option<Self>> {
        let Some((last, _)) = entries.last().copied() else { return Ok(None) };
        let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES);
        let mut firsts = Vec::with_capacity(entries.len() / PAGE_IDS + 1);
        for (number, (id, revision)) in entries.iter().enumerate() {
            if number % PAGE_IDS == 0 {
                firsts.push(*id);
            }
            bytes.extend_from_slice(&id.0);
            bytes.extend_from_slice(&revision.0.to_le_bytes());
        }
        let sums = bytes.chunks(PAGE_IDS * ENTRY_BYTES).map(crc32fast::hash);
        let pages = firsts.into_iter().zip(sums).collect();
        let file = disk.create(&name).and_then(|file| file.write_at(&bytes, 0).map(|()| file));
        let file = file.map_err(|error| cannot_write(&name, &error))?;
        Ok(Some(IdRun { name, file, pages, last }))
    }

    /// Adds the records of an id.
    fn find(&self, id: OperationId, into: &mut Vec<Revision>) -> Result<()> {
        if id > self.last {
            return Ok(());
        }
        // An id with several records may begin at the end of the page before the first that begins
        // with it.
        let from = self.pages.partition_point(|(first, _)| *first < id).saturating_sub(1);
        for (number, (first, sum)) in self.pages.iter().enumerate().skip(from) {
            if *first > id {
                break;
            }
            let mut page = vec![0; PAGE_IDS * ENTRY_BYTES];
            let read = self.file.read_at(&mut page, (number * PAGE_IDS * ENTRY_BYTES) as u64);
            let name = self.name.display().to_string();
            page.truncate(read.map_err(|error| cannot_read(&name, &error))?);
            if crc32fast::hash(&page) != *sum {
                return Err(corrupt(&name, 0, "a page of sorted operation ids is not as it was written"));
            }
            for entry in page.as_chunks::<ENTRY_BYTES>().0 {
                let (key, revision) = entry.split_at(size_of::<OperationId>());
                if key == id.0
                    && let Some(revision) = revision.first_chunk()
                {
                    into.push(Revision(u64::from_le_bytes(*revision)));
                }
            }
        }
        Ok(())
    }
}

/// Ids of one segment, as far as it was read.
struct SegmentIds {
    /// Time of its first record; no record before this segment has a later time.
    begins: TimeMs,
    /// Last revision read.
    up_to: Revision,
    runs: Vec<IdRun>,
    /// Ids that are in no run yet.
    rest: BTreeSet<Entry>,
}

/// Ids of the log that were sorted so far.
pub(crate) struct Older {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Ids per run.
    run_ids: usize,
    runs_made: u64,
    /// Segments by their first revision.
    segments: HashMap<Revision, SegmentIds>,
}

impl Older {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: PathBuf) -> Self {
        Older { disk, directory, run_ids: OLDER_RUN_IDS, runs_made: 0, segments: HashMap::new() }
    }

    #[cfg(test)]
    pub(crate) fn with_runs_of(self, run_ids: usize) -> Self {
        Older { run_ids, ..self }
    }

    /// Returns the number of segments read.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Sorts some more of the ids that are needed to find `id` among the changes up to `durable`.
    /// None while there is more to sort. At the end returns the segments to search, and whether
    /// they reach back far enough.
    fn step(
        &mut self,
        history: &History,
        id: OperationId,
        durable: Revision,
    ) -> Result<Option<(Vec<Revision>, bool)>> {
        let since = TimeMs(id.made().0.saturating_sub(OPERATION_AHEAD_MAX_MS));
        let segments = history.list();
        let mut searched = Vec::new();
        let mut end = durable;
        for segment in segments.iter().rev() {
            let first = segment.first_revision;
            if first > end {
                // The segment has nothing durable yet.
                continue;
            }
            if self.extend(history, segment, end)? {
                return Ok(None);
            }
            let Some(known) = self.segments.get(&first) else { return Ok(Some((searched, false))) };
            searched.push(first);
            if known.begins < since {
                return Ok(Some((searched, true)));
            }
            end = Revision(first.0.saturating_sub(1));
        }
        let reaches_back = end.0 == 0;
        Ok(Some((searched, reaches_back)))
    }

    /// Reads further records of a segment, whose last change is `end`; true if there may be more.
    fn extend(&mut self, history: &History, segment: &Segment, end: Revision) -> Result<bool> {
        let first = segment.first_revision;
        let next = self.segments.get(&first).map_or(first, |known| Revision(known.up_to.0 + 1));
        if next > end {
            return Ok(false);
        }
        // Ids that the disk had no room for go first: memory never has more than these.
        self.write_full(first)?;
        let mut found = Vec::new();
        let run_ids = self.run_ids;
        let is_kept = history.heads(next, end, |head| {
            found.push((head.operation, head.first_revision, head.last_revision(), head.time));
            found.len() < run_ids
        })?;
        if !is_kept {
            // Retention removed the segment meanwhile.
            self.segments.remove(&first);
            return Ok(false);
        }
        let (Some((.., begins)), Some((.., up_to, _))) = (found.first().copied(), found.last().copied())
        else {
            return Ok(false);
        };
        let known = self.segments.entry(first).or_insert_with(|| SegmentIds {
            begins,
            up_to: first,
            runs: Vec::new(),
            rest: BTreeSet::new(),
        });
        known.rest.extend(found.into_iter().map(|(id, revision, ..)| (id, revision)));
        known.up_to = up_to;
        self.write_full(first)?;
        Ok(up_to < end)
    }

    /// Writes ids of a segment into a run, once there are enough for one.
    fn write_full(&mut self, first: Revision) -> Result<()> {
        let Some(known) = self.segments.get_mut(&first).filter(|known| known.rest.len() >= self.run_ids)
        else {
            return Ok(());
        };
        self.disk.create_directory(&self.directory).map_err(|error| cannot_write(&self.directory, &error))?;
        self.runs_made += 1;
        let name = self.directory.join(format!("{:08}.ids", self.runs_made));
        known.runs.extend(IdRun::write(&*self.disk, name, &known.rest)?);
        known.rest.clear();
        Ok(())
    }

    /// Sorts the ids that are needed to find an id. Each step takes the lock anew, so that no other
    /// request waits for all of them.
    pub(crate) fn prepare(
        older: &parking_lot::Mutex<Older>,
        history: &History,
        id: OperationId,
        durable: Revision,
    ) -> Result<()> {
        while older.lock().step(history, id, durable)?.is_none() {}
        Ok(())
    }

    /// Returns the records of a request in the log, up to the last durable change.
    pub(crate) fn find(
        &mut self,
        history: &History,
        id: OperationId,
        durable: Revision,
    ) -> Result<OlderRecords> {
        let (searched, reaches_back) = loop {
            if let Some(searched) = self.step(history, id, durable)? {
                break searched;
            }
        };
        if !reaches_back {
            return Ok(OlderRecords::NotKept);
        }
        let mut records = Vec::new();
        for first in searched {
            let Some(known) = self.segments.get(&first) else { continue };
            let from = (id, Revision(0))..=(id, Revision(u64::MAX));
            records.extend(known.rest.range(from).map(|(_, revision)| *revision));
            for run in &known.runs {
                run.find(id, &mut records)?;
            }
        }
        records.sort_unstable();
        self.forget(history);
        Ok(OlderRecords::Records(records))
    }

    /// Forgets segments that are gone, or that end before every id that a client may still use.
    fn forget(&mut self, history: &History) {
        let segments = history.list();
        let newest = self.segments.values().map(|known| known.begins).max().unwrap_or_default();
        let window = OPERATION_AGE_MAX_MS + 2 * OPERATION_AHEAD_MAX_MS;
        let since = TimeMs(newest.0.saturating_sub(window));
        // A segment ends before the next one begins.
        let ended = segments.windows(2).filter_map(|pair| match pair {
            [segment, next] => {
                let next = self.segments.get(&next.first_revision)?;
                (next.begins < since).then_some(segment.first_revision)
            }
            _ => None,
        });
        let ended: HashSet<Revision> = ended.collect();
        let kept: HashSet<Revision> = segments.iter().map(|segment| segment.first_revision).collect();
        let disk = Arc::clone(&self.disk);
        self.segments.retain(|first, known| {
            let stays = kept.contains(first) && !ended.contains(first);
            for run in known.runs.iter().filter(|_| !stays) {
                if let Err(error) = disk.remove(&run.name) {
                    tracing::debug!(file = %run.name.display(), %error, "cannot remove sorted operation ids");
                }
            }
            stays
        });
    }
}

/// Removes the files that an earlier process sorted.
pub(crate) fn sweep(disk: &dyn Disk, layout: &Layout) {
    if let Err(error) = remove_tree(disk, &layout.operations()) {
        tracing::warn!(%error, "cannot remove the sorted operation ids of an earlier process");
    }
}

/// Returns the error for a request older than the history that could show whether it was applied.
pub(crate) fn not_kept(id: OperationId) -> Error {
    Error::new(
        exacat_model::ErrorKind::Unknown,
        format!(
            "operation id {id:?} is too old: the history from when it was made is not kept; check the entries of the request, and send the rest under a new id"
        ),
    )
}
