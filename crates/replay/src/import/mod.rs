//! Imports traces: what others recorded, as accesses of a trace.

mod binary;
mod cache;
mod columns;
mod filter;
mod rucio;
mod time;

use exacat_exchange::error::{Error, Result};
use exacat_exchange::input::{BytesRead, Input};
use exacat_exchange::records::{Flaw as RowFlaw, Format, Records};
use exacat_exchange::reject::{Complaint, Reason, RejectSink};

use crate::trace::store::{is_trace, parse_line};
use crate::trace::{AccessRow, Flaw, Trace};

pub use columns::ColumnNames;
pub use filter::{Filter, SiteShare};
pub use time::parse_time_us;

/// Kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A trace of exacat.
    Trace,
    /// Rucio traces: a JSON object in each line.
    Rucio,
    /// Records of a cache (`xrootd.mongstream pfc`), one in each line.
    GStream,
    /// Datagrams of a server (`xrootd.monitor … fstat`), one behind the other.
    FStream,
    /// Columns with a header, separated by tabs.
    Tsv,
    /// Columns with a header, separated by commas.
    Csv,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 6] =
        [Source::Trace, Source::Rucio, Source::GStream, Source::FStream, Source::Tsv, Source::Csv];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Source::Trace => "trace",
            Source::Rucio => "rucio",
            Source::GStream => "gstream",
            Source::FStream => "fstream",
            Source::Tsv => "tsv",
            Source::Csv => "csv",
        }
    }

    /// Returns the source of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn parse(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|source| source.name() == text);
        let names: Vec<&str> = Self::ALL.iter().map(|source| source.name()).collect();
        named.ok_or_else(|| Error::options(format!("not a source ({}): {text:.100?}", names.join(", "))))
    }

    /// Tells the source by the first bytes of its content.
    pub fn detect(head: &[u8]) -> Self {
        if is_trace(head) {
            return Source::Trace;
        }
        let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let has = |word: &[u8]| head.windows(word.len()).any(|some| some == word);
        match head.first() {
            Some(b'f' | b'd' | b'u') if first.iter().any(|byte| *byte < 9) => Source::FStream,
            Some(b'{') if has(b"\"file_close\"") || has(b"\"pseq\"") => Source::GStream,
            Some(b'{') => Source::Rucio,
            _ if first.contains(&b'\t') => Source::Tsv,
            _ => Source::Csv,
        }
    }
}

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportSettings {
    /// Kind of the source; none to tell it by its content.
    pub source: Option<Source>,
    /// Names of columns.
    pub columns: ColumnNames,
    /// Accesses that are taken.
    pub filter: Filter,
    /// Size of files whose size is not known; none to reject them.
    pub size_of_unknown: Option<u64>,
    /// Site of accesses that name none.
    pub site_of_unknown: String,
    /// Directory before names that are no paths; `/` if empty.
    pub below: String,
    /// True to give Rucio's files the paths that Rucio gives them at a site.
    pub hashed_paths: bool,
}

/// Numbers of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Rows of the source, or its records.
    pub rows: u64,
    /// Rows that are no accesses: headers, and records of other kinds.
    pub other: u64,
    /// Accesses that the filter left out.
    pub filtered: u64,
    /// Accesses whose file was opened, and nothing of it read.
    pub nothing_read: u64,
    /// Accesses of the trace.
    pub taken: u64,
}

/// Row that a source makes of a record.
type Row<'a> = std::result::Result<AccessRow<'a>, Complaint>;

/// Place for the accesses of an import.
pub(crate) struct Taking<'a> {
    settings: &'a ImportSettings,
    trace: &'a mut Trace,
    rejects: &'a mut RejectSink,
    counts: &'a mut ImportCounts,
    /// Name with the directory before it.
    name: String,
}

impl Taking<'_> {
    /// Takes a row, or rejects it. `repeats` accesses are the same.
    fn take(&mut self, row: Row<'_>, repeats: u64, (line, raw): (u64, &[u8])) -> Result<()> {
        let Taking { settings, trace, rejects, counts, name } = self;
        counts.rows += 1;
        let mut row = match row {
            Ok(row) => row,
            Err(complaint) => return rejects.push(complaint.of_row(line, raw)),
        };
        if row.size == 0 {
            row.size = settings.size_of_unknown.unwrap_or(0);
        }
        if row.site.is_empty() {
            row.site = &settings.site_of_unknown;
        }
        if !row.name.starts_with('/') && !row.name.is_empty() {
            name.clear();
            name.push_str(settings.below.trim_end_matches('/'));
            name.push('/');
            name.push_str(row.name);
            row.name = name;
        }
        if !settings.filter.takes(&row) {
            counts.filtered += 1;
            return Ok(());
        }
        let AccessRow { time_us, size, .. } = settings.filter.scaled(&row);
        row.size = size;
        row.time_us = time_us;
        for _ in 0..repeats {
            if let Err(flaw) = trace.add(&row) {
                let reason = match flaw {
                    Flaw::Name(_) => Reason::BadLfn,
                    Flaw::Size(_) => Reason::BadSize,
                    Flaw::Time(_) => Reason::BadTime,
                    Flaw::Value(_) => Reason::BadRow,
                };
                return rejects.push(Complaint::new(reason, flaw.to_string()).of_row(line, raw));
            }
            counts.taken += 1;
        }
        Ok(())
    }
}

/// Adds the accesses of a source to a trace, which the caller sorts afterwards. `read` counts the bytes of
/// the source, and `progress` is called now and then.
///
/// # Errors
/// The source cannot be read, or the options do not suit it. A bad row stops nothing: it is rejected.
pub fn import(
    input: &Input,
    settings: &ImportSettings,
    trace: &mut Trace,
    rejects: &mut RejectSink,
    (read, progress): (&BytesRead, &mut dyn FnMut(&ImportCounts)),
) -> Result<ImportCounts> {
    let source = match settings.source {
        Some(source) => source,
        None => Source::detect(&input.content_head()?),
    };
    let mut counts = ImportCounts::default();
    let mut taking = Taking { settings, trace, rejects, counts: &mut counts, name: String::new() };
    if source == Source::FStream {
        binary::import(input, read, &mut taking, progress)?;
        return Ok(counts);
    }
    let cannot = |error| Error::file("read", input.path(), error);
    let format = if source == Source::Csv { Format::Csv } else { Format::Tsv };
    let mut records = Records::new(input.reader(read)?, format, format.delimiter()).map_err(cannot)?;
    let mut lines = Lines::of(source);
    while let Some(record) = records.next_record().map_err(cannot)? {
        let place = (record.line, record.raw);
        let flaw = match record.flaw {
            Some(RowFlaw::TooLong) => Some(Complaint::new(Reason::RowTooLong, "the row is too long")),
            Some(RowFlaw::OpenQuote) => Some(Complaint::new(Reason::BadRow, "a quote is not closed")),
            None => None,
        };
        match (flaw, std::str::from_utf8(record.raw)) {
            (Some(flaw), _) => taking.take(Err(flaw), 1, place)?,
            (None, Err(_)) => {
                taking.take(Err(Complaint::new(Reason::BadRow, "the row is not UTF-8")), 1, place)?;
            }
            (None, Ok(text)) => lines.take(&mut taking, text, place)?,
        }
        if taking.counts.rows.is_multiple_of(PROGRESS_ROWS) {
            progress(taking.counts);
        }
    }
    progress(taking.counts);
    Ok(counts)
}

/// Rows between two calls of the progress.
const PROGRESS_ROWS: u64 = 4096;

/// Reader of a source of lines.
enum Lines {
    Trace,
    Rucio(rucio::Rucio),
    GStream(cache::GStream),
    Columns(Box<columns::Columns>),
}

impl Lines {
    fn of(source: Source) -> Self {
        match source {
            Source::Trace => Lines::Trace,
            Source::Rucio => Lines::Rucio(rucio::Rucio::default()),
            Source::GStream | Source::FStream => Lines::GStream(cache::GStream::default()),
            Source::Tsv => Lines::Columns(Box::new(columns::Columns::new(Format::Tsv))),
            Source::Csv => Lines::Columns(Box::new(columns::Columns::new(Format::Csv))),
        }
    }

    fn take(&mut self, taking: &mut Taking<'_>, text: &str, place: (u64, &[u8])) -> Result<()> {
        match self {
            Lines::Trace if text.starts_with('#') => {
                taking.counts.other += 1;
                Ok(())
            }
            Lines::Trace => {
                let row = parse_line(text).map_err(|what| Complaint::new(Reason::BadRow, what));
                taking.take(row, 1, place)
            }
            Lines::Rucio(rucio) => rucio.take(taking, text, place),
            Lines::GStream(gstream) => gstream.take(taking, text, place),
            Lines::Columns(columns) => columns.take(taking, text, place),
        }
    }
}
