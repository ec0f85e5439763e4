//! Exports everything below a path into a listing, as a stream.
//!
//! A full export begins with a preamble and can restore everything: imported into an empty
//! catalogue and exported again, it has the same bytes. It omits when entries were added, owners
//! and times of links, GUIDs of collections and links, the history, the trash, upload reservations,
//! quotas, roles and tokens. Entries come depth first, names in the order of their bytes, each
//! directory before its content. After them come the members, collection by collection.
//!
//! An export is no snapshot. An entry that exists during the whole of the export is in it exactly
//! once. An entry that appears or vanishes meanwhile may or may not be in it.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::answer::{Member, Stat};
use exacat_model::{
    Answer, Cursor, ErrorKind, FileRef, Filter, Kind, Lfn, LogPosition, Operation, Revision, Se,
};
use futures::{Stream, StreamExt, pin_mut};
use serde_json::json;
use tokio::sync::mpsc;

use crate::catalogue::Catalogue;
use crate::cells::{self, Cells, Line, Ses, full_columns};
use crate::columns::Role;
use crate::days::Days;
use crate::error::Error;
use crate::import::position;
use crate::input::Compression;
use crate::limits::{EXPORT_PAGE_ITEMS, EXPORT_PAGES_WAITING_MAX};
use crate::listing::{EXPORT_VERSION, PREAMBLE_KEY};
use crate::output::OutputFile;
use crate::progress::Progress;
use crate::records::Format;
use crate::restore;
use crate::sending::unexpected;

/// Options of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Base directory.
    pub under: Lfn,
    /// Filter for the entries below it.
    pub filter: Filter,
    /// Format of the rows.
    pub format: Format,
    /// Compression of the file.
    pub compression: Compression,
    /// Delimiter of fields; none for the format's own.
    pub delimiter: Option<u8>,
    /// Columns; none for all columns of a full export.
    pub columns: Option<Vec<Role>>,
    /// Begin with the data for an import: the version, the columns, and the SEs and accounts that
    /// its rows name. Also end with the members of collections.
    pub full: bool,
    /// Begin the rows with the columns' names. A full export always does.
    pub header: bool,
    /// PFN prefix; a PFN that is this and the LFN is written as `=`.
    pub pfn_same: Option<String>,
}

impl Default for ExportOptions {
    fn default() -> Self {
        ExportOptions {
            under: Lfn::root(),
            filter: Filter::default(),
            format: Format::Tsv,
            compression: Compression::Plain,
            delimiter: None,
            columns: None,
            full: true,
            header: true,
            pfn_same: None,
        }
    }
}

/// Result of an export.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportReport {
    /// Number of entries.
    pub entries: u64,
    /// Number of files among them.
    pub files: u64,
    /// Members of collections.
    pub members: u64,
    /// Bytes of the rows, before compression.
    pub bytes: u64,
    /// End of the history when the export began: the export contains all changes up to there.
    pub position: Option<LogPosition>,
    /// Notes for a person on data that the columns could not hold.
    pub notes: Vec<String>,
    /// Duration of the run.
    pub elapsed: Duration,
}

/// Counts of data that the columns of an export cannot hold.
#[derive(Debug, Default)]
struct LeftOut {
    /// True if the columns cannot represent links; the next field is the same for collections.
    links: bool,
    collections: bool,
    /// True if the columns have room for one PFN or SE, and no more.
    one_place: bool,
    /// True if PFNs are the only data about replicas.
    pfns_only: bool,
    left_links: u64,
    left_collections: u64,
    files_with_more: u64,
    files_without: u64,
}

impl LeftOut {
    fn of(options: &ExportOptions, columns: &[Role]) -> Self {
        let has = |role: Role| columns.contains(&role);
        // Without names, no import is possible; and a user who filters by kind gets that kind.
        let judged = !options.full && has(Role::Lfn) && options.filter.kinds.is_empty();
        let (pfn, pfns, replicas) = (has(Role::Pfn), has(Role::Pfns), has(Role::Replicas));
        LeftOut {
            links: judged && !(has(Role::Kind) && has(Role::Target)),
            collections: judged && !has(Role::Kind),
            one_place: (pfn || has(Role::Se)) && !pfns && !replicas,
            pfns_only: (pfn || pfns) && !replicas,
            ..LeftOut::default()
        }
    }

    /// Counts the data that the rows of a page omit. Removes entries that would look like files.
    fn take(&mut self, items: &mut Vec<Stat>, ses: &Ses) {
        items.retain(|stat| match stat.entry.kind() {
            Kind::Link if self.links => {
                self.left_links += 1;
                false
            }
            Kind::Collection if self.collections => {
                self.left_collections += 1;
                false
            }
            _ => true,
        });
        if !self.one_place && !self.pfns_only {
            return;
        }
        for file in items.iter().filter_map(|stat| stat.entry.file()) {
            let offered = cells::offered(file, ses).count();
            self.files_with_more += u64::from(self.one_place && offered > 1);
            self.files_without += u64::from(self.pfns_only && offered < file.replicas.len());
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (count, what, columns) in [
            (self.left_links, "link(s)", "the columns kind and target hold"),
            (self.left_collections, "collection(s)", "the column kind holds"),
        ] {
            if count > 0 {
                notes
                    .push(format!("{count} {what} left out, which would come back as files: {columns} them"));
            }
        }
        if self.files_with_more > 0 {
            notes.push(format!(
                "{} file(s) have more replicas than the one whose PFN or storage element is written, the first by \
                 name: the columns pfns or replicas hold all",
                self.files_with_more
            ));
        }
        if self.files_without > 0 {
            notes.push(format!(
                "{} file(s) have replicas without a PFN that can be read (lost, being copied, or on a storage element \
                 whose place is not known), which are left out: the column replicas holds them",
                self.files_without
            ));
        }
        notes
    }
}

/// Exports into a file. A regular file appears under its name only when it is complete and on disk.
pub async fn export_file<C: Catalogue>(
    catalogue: &C,
    path: &Path,
    options: &ExportOptions,
    progress: impl FnMut(&Progress) + Send,
) -> Result<ExportReport, Error> {
    let output = OutputFile::create(path)?;
    let report = export_to(catalogue, &output, path, options, progress).await?;
    output.finish()?;
    Ok(report)
}

/// Exports into an open output file. The caller finishes it.
pub async fn export_to<C: Catalogue>(
    catalogue: &C,
    output: &OutputFile,
    path: &Path,
    options: &ExportOptions,
    progress: impl FnMut(&Progress) + Send,
) -> Result<ExportReport, Error> {
    let exported = export(catalogue, Box::new(output.writer()?), options, progress).await;
    exported.map_err(|error| match error {
        Error::File { what, source, .. } => Error::file(what, path, source),
        error => error,
    })
}

/// Exports into a writer.
pub async fn export<C: Catalogue>(
    catalogue: &C,
    out: Box<dyn Write + Send>,
    options: &ExportOptions,
    mut progress: impl FnMut(&Progress) + Send,
) -> Result<ExportReport, Error> {
    let started = Instant::now();
    let cells = written_by(options)?;
    let position = position(catalogue, Revision(0).into()).await?;
    let mut left_out = LeftOut::of(options, &cells.columns);
    let mut ses = known_ses(catalogue).await?;
    let mut head = Vec::new();
    if options.full {
        preamble(catalogue, &cells, options, &ses, &mut head).await?;
    }
    if cells.format != Format::JsonLines && (options.header || options.full) {
        cells.header(&mut head);
    }
    let (sender, receiver) = mpsc::channel(EXPORT_PAGES_WAITING_MAX);
    let compression = options.compression;
    let writing = tokio::task::spawn_blocking(move || write_pages(out, compression, &head, &cells, receiver));

    let mut report = ExportReport { position: Some(position), ..ExportReport::default() };
    let walked = async {
        let find = |filter: Filter| Operation::Find {
            lfn: options.under.clone(),
            filter: Box::new(filter),
            cursor: Cursor::default(),
            limit: EXPORT_PAGE_ITEMS,
        };
        let pages = catalogue.stream(find(options.filter.clone()));
        pin_mut!(pages);
        while let Some((mut items, page_ses)) = next_entries(&mut pages).await? {
            if page_ses.iter().any(|number| !ses.contains_key(number)) {
                ses = known_ses(catalogue).await?;
            }
            left_out.take(&mut items, &ses);
            report.entries += items.len() as u64;
            report.files += items.iter().filter(|stat| stat.entry.kind() == Kind::File).count() as u64;
            let page = Page { ses: Arc::clone(&ses), rows: Rows::Entries(items) };
            sender.send(page).await.map_err(|_| Error::Broken("writing the export"))?;
            progress(&Progress {
                rows: report.entries,
                rows_now: report.entries,
                elapsed: started.elapsed(),
                ..Progress::default()
            });
        }
        if options.full {
            let mut filter = options.filter.clone();
            filter.kinds = vec![Kind::Collection];
            if options.filter.kinds.is_empty() || options.filter.kinds.contains(&Kind::Collection) {
                report.members = export_members(catalogue, find(filter), &ses, &sender).await?;
            }
        }
        Ok(())
    };
    let walked: Result<(), Error> = walked.await;
    drop(sender);
    let written = writing.await.map_err(|_| Error::Broken("writing the export"))?;
    match (walked, written) {
        // The writer's error is the cause; the failure to send it pages is the consequence.
        (_, Err(error)) => Err(Error::file("write", Path::new("the export"), error)),
        (Err(error), Ok(_)) => Err(error),
        (Ok(()), Ok(bytes)) => {
            report.bytes = bytes;
            report.notes = left_out.notes();
            report.elapsed = started.elapsed();
            Ok(report)
        }
    }
}

fn written_by(options: &ExportOptions) -> Result<Cells, Error> {
    let columns = options.columns.clone().unwrap_or_else(full_columns);
    if let Some(role) = columns.iter().find(|role| matches!(role, Role::Collection | Role::Ignore)) {
        return Err(Error::options(format!("an export has no column {}", role.name())));
    }
    if options.full && !columns.contains(&Role::Lfn) {
        return Err(Error::options("an export that can be imported has the column lfn"));
    }
    if options.full
        && options.columns.is_some()
        && !columns.contains(&Role::Kind)
        && options.filter.kinds != [Kind::File]
    {
        return Err(Error::options(
            "an export that can be imported has the column kind, unless it is of files only",
        ));
    }
    let delimiter = options.delimiter.unwrap_or(options.format.delimiter());
    if matches!(delimiter, b'\n' | b'\r' | b'"' | b'\\' | 0x80..)
        || (options.format == Format::Tsv && delimiter != b'\t')
    {
        return Err(Error::options("fields of TSV are separated by tabs, of CSV by one ASCII character"));
    }
    let days = Days::default();
    Ok(Cells { columns, format: options.format, delimiter, pfn_same: options.pfn_same.clone(), days })
}

pub(crate) async fn known_ses<C: Catalogue>(catalogue: &C) -> Result<Arc<Ses>, Error> {
    match catalogue.call(Operation::SeList).await? {
        Answer::Ses(ses) => Ok(Arc::new(
            ses.into_iter().map(|usage| (usage.se.number.0, usage.se)).collect::<HashMap<_, _>>(),
        )),
        _ => Err(unexpected("se-list").into()),
    }
}

async fn preamble<C: Catalogue>(
    catalogue: &C,
    cells: &Cells,
    options: &ExportOptions,
    ses: &Ses,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let columns: Vec<String> = cells.columns.iter().map(Role::name).collect();
    let mut objects =
        vec![json!({ "export": EXPORT_VERSION, "under": options.under.as_str(), "columns": columns })];
    let all: Vec<Se> = ses.values().cloned().collect();
    objects.extend(restore::describe(catalogue, &all).await?);
    for object in objects {
        let line = match cells.format {
            Format::JsonLines => json!({ PREAMBLE_KEY: object }).to_string(),
            _ => format!("{PREAMBLE_KEY} {object}"),
        };
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    Ok(())
}

/// Returns the entries of the next page, and the numbers of the SEs in it.
pub(crate) async fn next_entries(
    pages: &mut (impl Stream<Item = Result<Answer, exacat_model::Error>> + Unpin),
) -> Result<Option<(Vec<Stat>, Vec<u16>)>, Error> {
    match pages.next().await {
        None => Ok(None),
        Some(Ok(Answer::Entries { items, ses, .. })) => {
            Ok(Some((items, ses.into_iter().map(|(number, _)| number).collect())))
        }
        Some(Ok(_)) => Err(unexpected("find").into()),
        Some(Err(error)) => Err(error.into()),
    }
}

/// Makes the operation that lists a collection.
pub(crate) fn members_of(lfn: Lfn) -> Operation {
    Operation::CollectionMembers { lfn, cursor: Cursor::default(), limit: EXPORT_PAGE_ITEMS }
}

/// Returns the next page of a collection's members. A collection that was removed meanwhile has no
/// more of them.
pub(crate) async fn next_members(
    pages: &mut (impl Stream<Item = Result<Answer, exacat_model::Error>> + Unpin),
) -> Result<Option<Vec<Member>>, Error> {
    match pages.next().await {
        None => Ok(None),
        Some(Ok(Answer::Members { items, .. })) => Ok(Some(items)),
        Some(Ok(_)) => Err(unexpected("collection-members").into()),
        Some(Err(error)) if error.kind == ErrorKind::NotFound => Ok(None),
        Some(Err(error)) => Err(error.into()),
    }
}

async fn export_members<C: Catalogue>(
    catalogue: &C,
    find: Operation,
    ses: &Arc<Ses>,
    sender: &mpsc::Sender<Page>,
) -> Result<u64, Error> {
    let mut members = 0;
    let pages = catalogue.stream(find);
    pin_mut!(pages);
    while let Some((collections, _)) = next_entries(&mut pages).await? {
        for collection in collections {
            let lfn = Arc::new(collection.lfn);
            let listing = catalogue.stream(members_of((*lfn).clone()));
            pin_mut!(listing);
            while let Some(items) = next_members(&mut listing).await? {
                members += items.len() as u64;
                let page = Page { ses: Arc::clone(ses), rows: Rows::Members(Arc::clone(&lfn), items) };
                sender.send(page).await.map_err(|_| Error::Broken("writing the export"))?;
            }
        }
    }
    Ok(members)
}

enum Rows {
    Entries(Vec<Stat>),
    Members(Arc<Lfn>, Vec<Member>),
}

struct Page {
    ses: Arc<Ses>,
    rows: Rows,
}

/// Formats, compresses and writes pages, on a thread that may block.
fn write_pages(
    out: Box<dyn Write + Send>,
    compression: Compression,
    head: &[u8],
    cells: &Cells,
    mut pages: mpsc::Receiver<Page>,
) -> io::Result<u64> {
    let out = BufWriter::with_capacity(1 << 20, out);
    match compression {
        Compression::Plain => {
            let mut out = out;
            let bytes = write_all_pages(&mut out, head, cells, &mut pages)?;
            out.flush()?;
            Ok(bytes)
        }
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            let bytes = write_all_pages(&mut encoder, head, cells, &mut pages)?;
            encoder.finish()?.flush()?;
            Ok(bytes)
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            let bytes = write_all_pages(&mut encoder, head, cells, &mut pages)?;
            encoder.finish()?.flush()?;
            Ok(bytes)
        }
        Compression::Bzip2 => {
            let mut encoder = bzip2::write::BzEncoder::new(out, bzip2::Compression::default());
            let bytes = write_all_pages(&mut encoder, head, cells, &mut pages)?;
            encoder.finish()?.flush()?;
            Ok(bytes)
        }
    }
}

fn write_all_pages(
    out: &mut impl Write,
    head: &[u8],
    cells: &Cells,
    pages: &mut mpsc::Receiver<Page>,
) -> io::Result<u64> {
    out.write_all(head)?;
    let mut bytes = head.len() as u64;
    let mut buffer = Vec::new();
    while let Some(page) = pages.blocking_recv() {
        buffer.clear();
        match &page.rows {
            Rows::Entries(items) => {
                for stat in items {
                    cells.row(&mut buffer, &Line::Entry(stat), &page.ses);
                }
            }
            Rows::Members(collection, items) => {
                for member in items {
                    let file = match &member.stat {
                        Some(stat) => FileRef::Lfn(stat.lfn.clone()),
                        None => FileRef::Guid(member.guid),
                    };
                    cells.row(&mut buffer, &Line::Member { collection, file }, &page.ses);
                }
            }
        }
        bytes += buffer.len() as u64;
        out.write_all(&buffer)?;
    }
    Ok(bytes)
}
