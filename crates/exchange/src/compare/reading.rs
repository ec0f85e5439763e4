//! Reads a dump, and takes the records of the catalogue, into the sorter, on a thread that may block.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use exacat_model::codec::DecodeError;
use tokio::sync::mpsc;

use super::dump::{DumpReader, Flaw, Form, Read as LineRead};
use super::paths::PathRules;
use super::record::{Batch, Fact, StoredFile};
use super::sorter::Sorter;
use crate::error::Error;
use crate::escape::push_field;
use crate::input::{BytesRead, Input};
use crate::limits::{REJECT_ROW_BYTES_MAX, REJECTS_SHOWN_MAX};
use crate::output::OutputFile;
use crate::records::{self, Format, Record, Records};

/// Lines between two looks at the records of the catalogue.
const LINES_PER_LOOK: u64 = 1024;

/// Bytes of a path after its prefixes were replaced: of a PFN, and room for a prefix that it lacks.
const KEY_BYTES_MAX: usize = 2 * exacat_model::limits::PFN_BYTES_MAX;

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: u64,
    /// Reason, as in the file of rejects.
    pub reason: &'static str,
    /// The line, or its beginning.
    pub row: String,
}

/// Counts of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpCounts {
    /// Lines with content.
    pub lines: u64,
    /// Files.
    pub files: u64,
    /// Bytes of these files, as far as the dump has them.
    pub bytes: u64,
    /// Directories, which are not compared.
    pub directories: u64,
    /// Lines of other spaces, without the beginning to remove.
    pub outside: u64,
    /// Rejected lines by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// The first rejected lines.
    pub rejects_shown: Vec<BadLine>,
    /// True if the last line has no line end: the dump may be cut off.
    pub cut_off: bool,
}

impl DumpCounts {
    /// Returns the number of rejected lines.
    pub fn rejects(&self) -> u64 {
        self.rejected.values().sum()
    }
}

/// Shared state of the reading thread and the task that waits for it.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    pub(crate) bytes: BytesRead,
    pub(crate) lines: Arc<AtomicU64>,
    pub(crate) rejected: Arc<AtomicU64>,
    /// Set if the reading of the catalogue failed, so that the rest of the dump is of no use.
    pub(crate) stop: Arc<AtomicBool>,
}

/// Remembers the last byte read.
struct LastByte<R> {
    inner: R,
    last: Arc<AtomicU8>,
}

impl<R: Read> Read for LastByte<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if let Some(last) = buffer[..read].last() {
            self.last.store(*last, Ordering::Relaxed);
        }
        Ok(read)
    }
}

/// File of rejected lines: a TSV of line, reason and row.
struct RejectFile {
    output: OutputFile,
    out: BufWriter<std::fs::File>,
    path: PathBuf,
}

impl RejectFile {
    fn create(path: &Path) -> Result<Self, Error> {
        let output = OutputFile::create(path)?;
        let mut out = BufWriter::new(output.writer()?);
        out.write_all(b"line\treason\trow\n").map_err(|error| Error::file("write", path, error))?;
        Ok(RejectFile { output, out, path: path.to_owned() })
    }

    fn push(&mut self, line: u64, reason: &str, row: &str) -> Result<(), Error> {
        let mut bytes = format!("{line}\t{reason}\t").into_bytes();
        push_field(&mut bytes, row);
        bytes.push(b'\n');
        self.out.write_all(&bytes).map_err(|error| Error::file("write", &self.path, error))
    }

    fn finish(mut self) -> Result<(), Error> {
        self.out.flush().map_err(|error| Error::file("write", &self.path, error))?;
        drop(self.out);
        self.output.finish()
    }
}

/// Everything that the reading thread needs.
pub(crate) struct Reading {
    pub(crate) input: Input,
    pub(crate) reader: DumpReader,
    pub(crate) rules: PathRules,
    pub(crate) sorter: Sorter,
    pub(crate) rejects: Option<PathBuf>,
    pub(crate) shared: Shared,
}

impl Reading {
    /// Reads the dump to its end, and the records of the catalogue until their sender is dropped.
    pub(crate) fn run(mut self, mut batches: mpsc::Receiver<Batch>) -> Result<(Sorter, DumpCounts), Error> {
        let counts = self.dump(&mut batches)?;
        while let Some(batch) = batches.blocking_recv() {
            take(&mut self.sorter, &batch)?;
        }
        Ok((self.sorter, counts))
    }

    fn dump(&mut self, batches: &mut mpsc::Receiver<Batch>) -> Result<DumpCounts, Error> {
        let path = self.input.path().to_owned();
        let cannot = |error| Error::file("read", &path, error);
        let last = Arc::new(AtomicU8::new(b'\n'));
        let content = LastByte { inner: self.input.reader(&self.shared.bytes)?, last: Arc::clone(&last) };
        let format = if self.reader.form() == Form::Csv { Format::Csv } else { Format::Tsv };
        let mut records = Records::new(Box::new(content), format, self.reader.delimiter()).map_err(cannot)?;
        let mut rejects = self.rejects.as_deref().map(RejectFile::create).transpose()?;
        let mut counts = DumpCounts::default();
        let mut rest = Vec::new();
        loop {
            if counts.lines % LINES_PER_LOOK == 0 {
                self.shared.lines.store(counts.lines, Ordering::Relaxed);
                if self.shared.stop.load(Ordering::Relaxed) {
                    return Err(Error::Broken("reading the catalogue"));
                }
                while let Ok(batch) = batches.try_recv() {
                    take(&mut self.sorter, &batch)?;
                }
            }
            let Some(record) = records.next_record().map_err(cannot)? else { break };
            counts.lines += 1;
            if let Err(flaw) = self.line(&record, &mut counts, &mut rest)? {
                *counts.rejected.entry(flaw.name()).or_default() += 1;
                self.shared.rejected.fetch_add(1, Ordering::Relaxed);
                let row = String::from_utf8_lossy(&record.raw[..record.raw.len().min(REJECT_ROW_BYTES_MAX)]);
                if let Some(rejects) = &mut rejects {
                    rejects.push(record.line, flaw.name(), &row)?;
                }
                if counts.rejects_shown.len() < REJECTS_SHOWN_MAX {
                    let row = row.chars().take(200).collect();
                    counts.rejects_shown.push(BadLine { line: record.line, reason: flaw.name(), row });
                }
            }
        }
        self.shared.lines.store(counts.lines, Ordering::Relaxed);
        if let Some(rejects) = rejects {
            rejects.finish()?;
        }
        counts.cut_off = counts.lines > 0 && last.load(Ordering::Relaxed) != b'\n';
        Ok(counts)
    }

    fn line(
        &mut self,
        record: &Record<'_>,
        counts: &mut DumpCounts,
        rest: &mut Vec<u8>,
    ) -> Result<Result<(), Flaw>, Error> {
        match record.flaw {
            Some(records::Flaw::TooLong) => return Ok(Err(Flaw::RowTooLong)),
            Some(records::Flaw::OpenQuote) => return Ok(Err(Flaw::OtherForm)),
            None => {}
        }
        let line = match self.reader.read(record.raw) {
            LineRead::File(line) => line,
            LineRead::Directory => {
                counts.directories += 1;
                return Ok(Ok(()));
            }
            LineRead::Nothing => return Ok(Ok(())),
            LineRead::Bad(flaw) => return Ok(Err(flaw)),
        };
        let Some(path) = self.rules.of_line(&line.path) else {
            counts.outside += 1;
            return Ok(Ok(()));
        };
        if path.len() > KEY_BYTES_MAX {
            return Ok(Err(Flaw::PathTooLong));
        }
        rest.clear();
        Fact::Dump(StoredFile { size: line.size, checksum: line.checksum }).put(rest);
        self.sorter.push(path.as_bytes(), (rest, &[]))?;
        counts.files += 1;
        counts.bytes = counts.bytes.saturating_add(line.size.unwrap_or(0));
        Ok(Ok(()))
    }
}

fn take(sorter: &mut Sorter, batch: &Batch) -> Result<(), Error> {
    batch.each(|key, rest| sorter.push(key, (rest, &[])).map_err(Taken::Failed)).map_err(
        |taken| match taken {
            Taken::Failed(error) => error,
            Taken::Broken => Error::Broken("sorting"),
        },
    )
}

/// Reason why a batch was not taken.
enum Taken {
    Failed(Error),
    Broken,
}

impl From<DecodeError> for Taken {
    fn from(_: DecodeError) -> Self {
        Taken::Broken
    }
}
