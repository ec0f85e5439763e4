//! Reads a listing on its own thread, into batches ready to be sent.
//!
//! Rows are read in up to two passes. Rows that refer to other rows (members of collections and of
//! archives, which may precede them) wait for the second pass. Every check that needs no catalogue
//! is made here, in the order of the rows, so rejects do not depend on timing.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use exacat_model::operation::NewFile;
use exacat_model::{FileRef, Lfn, SeName};
use tokio::sync::mpsc;

use crate::bulk::Lines;
use crate::error::Error;
use crate::input::BytesRead;
use crate::item::{Item, Other};
use crate::limits::{BATCH_BYTES_MAX, BATCHES_READ_AHEAD_MAX};
use crate::listing::Listing;
use crate::memo::Quick;
use crate::options::{Repeats, RowKind};
use crate::records::{Fields, Record};
use crate::reject::{Complaint, Reason, Reject};
use crate::row::Row;
use crate::seen::Seen;

/// Number of rows after which a batch is sent even if it has little content.
const ROWS_PER_BATCH_MAX: u64 = 65_536;
/// Bytes of a row beyond its texts.
const ROW_OVERHEAD_BYTES: usize = 128;

/// Pass over a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(crate) enum Pass {
    /// Rows that refer to no other rows.
    First,
    /// Rows that refer to other rows.
    Second,
}

/// Position of a row: its line, and its bytes in the batch.
#[derive(Clone, Debug)]
pub(crate) struct RowAt {
    pub(crate) line: u64,
    raw: Range<usize>,
}

/// Files to register in one call, all with different names.
#[derive(Debug)]
pub(crate) struct FileGroup {
    pub(crate) files: Vec<NewFile>,
    pub(crate) rows: Vec<RowAt>,
    pub(crate) collections: Vec<Option<Lfn>>,
}

/// Consecutive rows of a listing.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) pass: Pass,
    /// Rows covered, counted from 0, including deferred and skipped ones.
    pub(crate) rows: Range<u64>,
    /// Bytes of the file read by the end of the batch.
    pub(crate) bytes_read: u64,
    raw: Vec<u8>,
    /// Groups of files; a repeated name is in a later group.
    pub(crate) groups: Vec<FileGroup>,
    pub(crate) others: Vec<(RowAt, Other)>,
    pub(crate) members: Vec<(RowAt, Lfn, FileRef)>,
    /// Rows that were rejected while reading.
    pub(crate) rejects: Vec<Reject>,
    /// SEs to register before the rest of the batch.
    pub(crate) new_ses: Vec<SeName>,
    /// Hashes of the files' names, if names may repeat across batches.
    pub(crate) names: Vec<u128>,
    /// Number of rows to process.
    items: usize,
    bytes: usize,
    /// Initial capacity for files.
    room: usize,
}

impl Batch {
    /// Makes an empty batch, with the capacity that the one before it needed.
    fn after(before: Option<&Batch>, pass: Pass, first: u64) -> Self {
        let files = before.and_then(|before| before.groups.first()).map_or(0, |group| group.files.len());
        Batch {
            pass,
            rows: first..first,
            bytes_read: 0,
            room: files,
            raw: Vec::with_capacity(before.map_or(0, |before| before.raw.len() + before.raw.len() / 8)),
            groups: Vec::new(),
            others: Vec::new(),
            members: Vec::new(),
            rejects: Vec::new(),
            new_ses: Vec::new(),
            names: Vec::new(),
            items: 0,
            bytes: 0,
        }
    }

    /// Returns the bytes of a row as found.
    pub(crate) fn raw(&self, row: &RowAt) -> &[u8] {
        &self.raw[row.raw.clone()]
    }

    /// Returns the row as a record, to be parsed again.
    pub(crate) fn record(&self, row: &RowAt) -> Record<'_> {
        Record { line: row.line, raw: self.raw(row), flaw: None }
    }

    /// Makes a reject of a row.
    pub(crate) fn reject(&self, row: &RowAt, complaint: Complaint) -> Reject {
        complaint.of_row(row.line, self.raw(row))
    }

    fn is_full(&self, batch_rows: usize) -> bool {
        self.items >= batch_rows
            || self.bytes >= BATCH_BYTES_MAX
            || self.rows.end - self.rows.start >= ROWS_PER_BATCH_MAX
    }

    fn push_reject(&mut self, complaint: Complaint, record: &Record<'_>) {
        let reject = complaint.of_row(record.line, record.raw);
        self.bytes += reject.row.len() + reject.detail.len() + ROW_OVERHEAD_BYTES;
        self.rejects.push(reject);
    }

    fn push(&mut self, record: &Record<'_>, item: Item, group: usize) {
        let from = self.raw.len();
        self.raw.extend_from_slice(record.raw);
        let row = RowAt { line: record.line, raw: from..self.raw.len() };
        self.items += 1;
        self.bytes += record.raw.len() + ROW_OVERHEAD_BYTES;
        match item {
            Item::File(file, collection) => {
                // `=` and prefixes make a file longer than its row.
                let pfns = file.replicas.iter().filter_map(|replica| replica.pfn.as_ref());
                self.bytes += file.lfn.as_str().len() + pfns.map(|pfn| pfn.as_str().len()).sum::<usize>();
                while self.groups.len() <= group {
                    // Nearly all files of a batch are in its first group. Growth in steps would
                    // copy each file twice, into fresh memory.
                    let room = if self.groups.is_empty() { self.room } else { 0 };
                    self.groups.push(FileGroup {
                        files: Vec::with_capacity(room),
                        rows: Vec::with_capacity(room),
                        collections: Vec::with_capacity(room),
                    });
                }
                let group = &mut self.groups[group];
                group.files.push(*file);
                group.rows.push(row);
                group.collections.push(collection);
            }
            Item::Other(other) => self.others.push((row, other)),
            Item::Member { collection, file } => self.members.push((row, collection, file)),
        }
    }
}

impl FileGroup {
    /// Keeps the items whose index satisfies `keep`.
    pub(crate) fn keep(&mut self, keep: impl Fn(usize) -> bool) {
        fn keep_in<T>(items: &mut Vec<T>, keep: &impl Fn(usize) -> bool) {
            let mut index = 0;
            items.retain(|_| {
                index += 1;
                keep(index - 1)
            });
        }
        keep_in(&mut self.files, &keep);
        keep_in(&mut self.rows, &keep);
        keep_in(&mut self.collections, &keep);
    }

    /// Sorts the files by name, so that files of one directory are adjacent.
    fn sort(&mut self) {
        if self.files.is_sorted_by(|a, b| a.lfn <= b.lfn) {
            return;
        }
        let files = std::mem::take(&mut self.files);
        let rows = std::mem::take(&mut self.rows);
        let collections = std::mem::take(&mut self.collections);
        let mut all: Vec<_> = files.into_iter().zip(rows).zip(collections).collect();
        all.sort_by(|((a, _), _), ((b, _), _)| a.lfn.cmp(&b.lfn));
        for ((file, row), collection) in all {
            self.files.push(file);
            self.rows.push(row);
            self.collections.push(collection);
        }
    }
}

/// Message of the reading thread.
#[derive(Debug)]
pub(crate) enum Read {
    /// A batch.
    Batch(Box<Batch>),
    /// A pass is over: so many rows.
    Passed(Pass, u64),
    /// The listing cannot be read further.
    Failed(Error),
}

/// Channel for the rows of the first pass that the second must read again.
pub(crate) type Left = std::sync::mpsc::Receiver<Lines>;

/// Settings of the reader.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Rows before this are done already.
    pub(crate) from: (Pass, u64),
    /// True if rows that refer to others are deferred.
    pub(crate) two_passes: bool,
    /// Maximum rows of a batch.
    pub(crate) batch_rows: usize,
    /// Rows to read again; if present, awaited between the passes.
    pub(crate) left: Option<Left>,
}

/// Starts the reader. Its thread ends with the listing, or when the receiver is dropped.
pub(crate) fn read(
    listing: Arc<Listing>,
    reading: Reading,
    count: BytesRead,
) -> Result<mpsc::Receiver<Read>, Error> {
    let (sender, receiver) = mpsc::channel(BATCHES_READ_AHEAD_MAX);
    std::thread::Builder::new()
        .name("listing-reader".to_owned())
        .spawn(move || {
            let mut reader =
                Reader { listing: &listing, reading, left: Lines::default(), count, sender: &sender };
            if let Err(Stop::Failed(error)) = reader.run() {
                let _receiver_may_be_gone = sender.blocking_send(Read::Failed(error));
            }
        })
        .map_err(|error| Error::file("start a thread to read", std::path::Path::new("the listing"), error))?;
    Ok(receiver)
}

enum Stop {
    Failed(Error),
    /// The receiver was dropped.
    Unwanted,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

struct Reader<'r> {
    listing: &'r Listing,
    reading: Reading,
    /// Rows of the first pass that the second must read again.
    left: Lines,
    count: BytesRead,
    sender: &'r mpsc::Sender<Read>,
}

impl Reader<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        let deferred = self.pass(Pass::First)?;
        if let Some(left) = &self.reading.left {
            self.left = left.recv().map_err(|_| Stop::Unwanted)?;
        }
        if deferred > 0 || !self.left.is_empty() {
            self.pass(Pass::Second)?;
        }
        Ok(())
    }

    /// Says whether a row must wait for the second pass.
    fn is_deferred(&self, item: &Item) -> bool {
        self.reading.two_passes
            && match item {
                Item::File(file, _) => file.member_of.is_some(),
                // In a listing with only members, the files are in the catalogue already.
                Item::Member { .. } => self.listing.options().kind != RowKind::Member,
                Item::Other(_) => false,
            }
    }

    /// Reads all rows once; returns the number of deferred ones.
    fn pass(&mut self, pass: Pass) -> Result<u64, Stop> {
        let (from_pass, from_row) = self.reading.from;
        let from = match pass.cmp(&from_pass) {
            std::cmp::Ordering::Less => u64::MAX,
            std::cmp::Ordering::Equal => from_row,
            std::cmp::Ordering::Greater => 0,
        };
        let once_only = self.listing.input().identity().is_none();
        let repeats = self.listing.options().repeats;
        let mut seen = Seen::new(repeats);
        let mut announced: HashSet<SeName, Quick> = HashSet::default();
        let mut occurrences: HashMap<u128, usize> = HashMap::new();
        let mut records = self.listing.records(&self.count)?;
        let mut fields = Fields::default();
        let mut deferred = 0;
        let mut batch = Batch::after(None, pass, 0);
        loop {
            let record = records
                .next_record()
                .map_err(|error| Error::file("read", self.listing.input().path(), error))?;
            let Some(record) = record else { break };
            let here = batch.rows.end >= from;
            batch.rows.end += 1;
            let judged = self.listing.row(record, &mut fields).and_then(|row| {
                let name = seen.take(&row.item)?;
                Ok((row, name))
            });
            match judged {
                Err(complaint) if here && pass == Pass::First => batch.push_reject(complaint, &record),
                Err(_) => {}
                Ok((mut row, (name, repeated))) => {
                    let left = self.left.contains(record.line);
                    // The result depends on the row before it, which may be loaded after this pass.
                    let follows = repeated && self.reading.left.is_some();
                    let put_off = left || follows || self.is_deferred(&row.item);
                    if left {
                        // The first pass reported them.
                        row.dropped.clear();
                    }
                    deferred += u64::from(put_off);
                    let wanted = here && put_off == (pass == Pass::Second);
                    if wanted {
                        let group = if repeats == Repeats::Keep && matches!(row.item, Item::File(..)) {
                            batch.names.push(name);
                            let times = occurrences.entry(name).or_default();
                            *times += 1;
                            *times - 1
                        } else {
                            0
                        };
                        take_row(&mut batch, &record, row, group, &mut announced);
                    } else if put_off && once_only && here && pass == Pass::First {
                        let why =
                            "it refers to other rows, which takes a second reading: give a file, not a pipe";
                        batch.push_reject(Complaint::new(Reason::NeedsFile, why), &record);
                    }
                }
            }
            if batch.is_full(self.reading.batch_rows) {
                let next = Batch::after(Some(&batch), pass, batch.rows.end);
                self.send(std::mem::replace(&mut batch, next))?;
                occurrences.clear();
            }
        }
        let rows = batch.rows.end;
        self.send(batch)?;
        self.sender.blocking_send(Read::Passed(pass, rows)).map_err(|_| Stop::Unwanted)?;
        Ok(if once_only { 0 } else { deferred })
    }

    fn send(&self, mut batch: Batch) -> Result<(), Stop> {
        batch.bytes_read = self.count.get();
        for group in &mut batch.groups {
            group.sort();
        }
        self.sender.blocking_send(Read::Batch(Box::new(batch))).map_err(|_| Stop::Unwanted)
    }
}

fn take_row(
    batch: &mut Batch,
    record: &Record<'_>,
    row: Row,
    group: usize,
    announced: &mut HashSet<SeName, Quick>,
) {
    for complaint in row.dropped {
        batch.push_reject(complaint, record);
    }
    for se in row.new_ses {
        if !announced.contains(&se) {
            announced.insert(se.clone());
            batch.new_ses.push(se);
        }
    }
    batch.push(record, row.item, group);
}

#[cfg(test)]
mod tests;
