//! `export --format parquet`: tables for analysis, and their proof.

use std::path::Path;

use exacat_analytics::{Checked, Table, TablesOptions, TablesReport, export as export_tables};
use exacat_exchange::digest::{Digest, digest};
use exacat_exchange::output_directory::OutputDirectory;
use exacat_model::{Error, ErrorKind, Lfn, LogPosition, Revision};
use serde::Serialize;
use utoipa::ToSchema;

use super::{failure, of_output, rate};
use crate::args::{ExportArgs, Global};
use crate::commands::find;
use crate::failure::{Failure, OnInterrupt, say};
use crate::output::human::plural;
use crate::output::{Out, Style};
use crate::progress::Bar;
use crate::quoting::harmless;
use crate::source::Source;

/// Table of an export.
#[derive(Serialize, ToSchema)]
#[schema(as = ExportedTable)]
pub(crate) struct TableView {
    /// `entries`, `replicas`, `members`, `usage` or `changes`.
    table: &'static str,
    /// Its file in the directory.
    file: String,
    /// Its rows.
    rows: u64,
    /// Bytes of the file.
    bytes: u64,
}

/// Tables that were exported.
#[derive(Serialize, ToSchema)]
#[schema(as = ExportedTables)]
pub(crate) struct TablesView<'a> {
    /// The new directory.
    directory: String,
    /// Base directory in the catalogue.
    under: &'a str,
    /// Its tables.
    tables: Vec<TableView>,
    /// Entries that were read.
    entries: u64,
    /// Digest of the entries, as `exacat digest` prints it of the same state; null if no table of entries
    /// was written.
    #[schema(required)]
    digest: Option<String>,
    /// Id of the catalogue.
    #[schema(required)]
    catalogue: Option<&'a str>,
    /// End of the history when the export began.
    revision: u64,
    /// First digits of the timeline of that revision.
    #[schema(required)]
    timeline: Option<String>,
    /// End of the history when the last entry was read. If it is another one, the entries are of no one
    /// state.
    revision_end: u64,
    /// Duration in seconds.
    seconds: f64,
}

/// Table that was read back.
#[derive(Serialize, ToSchema)]
#[schema(as = CheckedTable)]
pub(crate) struct CheckedTableView {
    /// `entries`, `replicas`, `members`, `usage` or `changes`.
    table: &'static str,
    /// Its rows.
    rows: u64,
}

/// Tables that were read back.
#[derive(Serialize, ToSchema)]
#[schema(as = CheckedTables)]
pub(crate) struct CheckedView<'a> {
    /// The directory.
    directory: String,
    /// True if everything is as written, and as in the catalogue that it was compared with.
    holds: bool,
    /// Its tables.
    tables: Vec<CheckedTableView>,
    /// Base directory in the catalogue.
    #[schema(required)]
    under: Option<&'a str>,
    /// True if conditions selected the entries.
    filtered: bool,
    /// Digest of the entries, computed from the rows; null if tables for it are missing.
    #[schema(required)]
    digest: Option<String>,
    /// Digest of the catalogue that it was compared with.
    #[schema(required)]
    compared_with: Option<String>,
    /// Id of the catalogue that it is from.
    #[schema(required)]
    catalogue: Option<&'a str>,
    /// Last change in it.
    #[schema(required)]
    revision: Option<u64>,
    /// First digits of the timeline of that revision.
    #[schema(required)]
    timeline: Option<&'a str>,
    /// Problems, each with its file.
    problems: &'a [String],
}

/// Returns the tables to write.
fn tables_of(args: &ExportArgs) -> Result<Vec<Table>, Failure> {
    let Some(names) = &args.tables else {
        return Ok(Table::ALL.into_iter().filter(|table| *table != Table::Changes).collect());
    };
    let named = names.iter().map(|name| Table::parse(name)).collect::<exacat_model::Result<Vec<_>>>()?;
    // In the order of all tables, each once.
    Ok(Table::ALL.into_iter().filter(|table| named.contains(table)).collect())
}

/// Refuses options that only listings have.
fn check_options(args: &ExportArgs) -> Result<(), Failure> {
    let of_listings = [
        ("--compression", args.compression.is_some()),
        ("--delimiter", args.delimiter.is_some()),
        ("--columns", args.columns.is_some()),
        ("--pfn-same", args.pfn_same.is_some()),
    ];
    match of_listings.into_iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Failure::local(format!(
            "{name} is for listings, and tables have their own form: leave it out"
        ))),
        None => Ok(()),
    }
}

/// `exacat export --format parquet`
pub(crate) async fn export(
    source: &Source,
    out: &mut Out,
    (under, args): (Lfn, &ExportArgs),
    global: &Global,
) -> Result<(), Failure> {
    check_options(args)?;
    let Some(path) = &args.output else {
        return Err(Failure::local("tables are several files: name a new directory for them with -o"));
    };
    let after = match &args.after {
        Some(text) => text.parse::<LogPosition>()?,
        None => Revision(0).into(),
    };
    let tables = tables_of(args)?;
    if args.after.is_some() && !tables.contains(&Table::Changes) {
        return Err(Failure::local("--after is for the table of changes: add it to --tables"));
    }
    let filter = find::filter(source, args.pattern.as_deref(), &args.conditions).await?;
    let options = TablesOptions { under, filter, tables, after, catalogue: source.catalogue_id() };
    let output = OutputDirectory::create(path).map_err(|error| of_output(error, path))?;
    let interrupted = OnInterrupt::say(output.if_interrupted());
    let mut bar = Bar::new(global, "entries");
    let exported = export_tables(source, &output, &options, |progress| bar.show(progress)).await;
    bar.end();
    interrupted.over();
    let exported = exported.and_then(|report| output.finish().map(|()| report)).map_err(failure)?;
    let (begin, end) = (exported.position.revision, exported.end);
    if begin != end && exported.digest.is_some() && !out.style.quiet {
        say(&format!(
            "exacat: the catalogue changed meanwhile (revision {} to {}): the tables are of no one state; export a \
             snapshot for an exact one",
            begin.0, end.0
        ));
    }
    show(out, path, &options, &exported)
}

fn show(out: &mut Out, path: &Path, options: &TablesOptions, report: &TablesReport) -> Result<(), Failure> {
    if out.style.json {
        let table = |(table, file): &(Table, exacat_analytics::Written)| TableView {
            table: table.name(),
            file: table.file_name(),
            rows: file.rows,
            bytes: file.bytes,
        };
        return out.json(&TablesView {
            directory: path.to_string_lossy().into_owned(),
            under: options.under.as_str(),
            tables: report.tables.iter().map(table).collect(),
            entries: report.entries,
            digest: report.digest.map(|digest| digest.to_string()),
            catalogue: options.catalogue.as_deref(),
            revision: report.position.revision.0,
            timeline: report.position.timeline.map(|timeline| timeline.to_string()),
            revision_end: report.end.0,
            seconds: report.elapsed.as_secs_f64(),
        });
    }
    if out.style.quiet {
        return Ok(());
    }
    let name = out.name(&path.to_string_lossy()).to_string();
    let entries = plural(report.entries, "entry");
    out.line(format!(
        "{name}: {entries}, revision {} ({})",
        report.position.revision.0,
        rate(report.entries, report.elapsed)
    ))?;
    for (table, file) in &report.tables {
        let size = out.size(u128::from(file.bytes));
        out.line(format!("  {}: {}, {size} bytes", table.file_name(), plural(file.rows, "row")))?;
    }
    if let Some(digest) = report.digest {
        out.line(format!("  digest {digest}"))?;
    }
    Ok(())
}

/// `exacat export --check` of a directory, without a catalogue.
pub(crate) async fn check_alone(args: &ExportArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let mut out = Out::new(style);
    let Some(directory) = &args.check else { return Ok(0) };
    let checked = check(None, &mut out, directory, global).await;
    out.flush()?;
    checked.map(|()| 0)
}

/// `exacat export --check`, compared with a catalogue if there is one.
pub(crate) async fn check(
    source: Option<&Source>,
    out: &mut Out,
    directory: &Path,
    global: &Global,
) -> Result<(), Failure> {
    let read = directory.to_owned();
    let checked = tokio::task::spawn_blocking(move || exacat_analytics::check(&read));
    let mut checked = checked.await.map_err(|error| Failure::local(error.to_string()))??;
    let of_catalogue = match source {
        Some(source) => compare(source, directory, &mut checked, global).await?,
        None => None,
    };
    if out.style.json {
        let tables = checked.tables.iter();
        out.json(&CheckedView {
            directory: directory.to_string_lossy().into_owned(),
            holds: checked.holds(),
            tables: tables
                .map(|(table, rows)| CheckedTableView { table: table.name(), rows: *rows })
                .collect(),
            under: checked.under.as_ref().map(Lfn::as_str),
            filtered: checked.is_filtered,
            digest: checked.digest.map(|digest| digest.to_string()),
            compared_with: of_catalogue.map(|digest| digest.to_string()),
            catalogue: checked.catalogue.as_deref(),
            revision: checked.revision,
            timeline: checked.timeline.as_deref(),
            problems: &checked.problems,
        })?;
    } else if !out.style.quiet {
        let name = out.name(&directory.to_string_lossy()).to_string();
        let rows: u64 = checked.tables.iter().map(|(_, rows)| rows).sum();
        let tables = plural(checked.tables.len() as u64, "table");
        let outcome = match (checked.holds(), of_catalogue) {
            (true, Some(_)) => "as written, and as the catalogue has it",
            (true, None) => "as written",
            (false, _) => "not as written",
        };
        out.line(format!("{name}: {tables}, {}: {outcome}", plural(rows, "row")))?;
        if let (Some(digest), Some(under)) = (checked.digest, &checked.under) {
            let under = out.name(under.as_str()).to_string();
            let revision = checked.revision.unwrap_or_default();
            out.line(format!("  digest {digest} of {under} at revision {revision}"))?;
        }
        for problem in &checked.problems {
            out.line(format!("  {}", harmless(problem)))?;
        }
    }
    if checked.holds() {
        return Ok(());
    }
    let problems = plural(checked.problems.len() as u64, "problem");
    let message = format!("{problems}: the export is not as written, or not of this catalogue; export again");
    Err(Failure::about(directory.display().to_string(), Error::new(ErrorKind::Conflict, message)))
}

/// Compares the digest of an export with that of a catalogue, and notes a difference as a problem.
async fn compare(
    source: &Source,
    directory: &Path,
    checked: &mut Checked,
    global: &Global,
) -> Result<Option<Digest>, Failure> {
    let (Some(under), Some(found)) = (checked.under.clone(), checked.digest) else {
        let message = "the tables entries, replicas and members are needed to compare with a catalogue: export them, \
                       or check without --snapshot and --offline";
        return Err(Failure::about(directory.display().to_string(), Error::invalid(message)));
    };
    if checked.is_filtered {
        let message = "conditions selected its entries, so no digest of a catalogue is that of the export: check \
                       without --snapshot and --offline";
        return Err(Failure::about(directory.display().to_string(), Error::invalid(message)));
    }
    let mut bar = Bar::new(global, "entries");
    let digested = digest(source, &under, |_| Ok(()), |progress| bar.show(progress)).await;
    bar.end();
    let there = digested.map_err(failure)?.root.whole;
    if there != found {
        checked.problems.push(format!("the catalogue has the digest {there} of {under}, the export {found}"));
    }
    Ok(Some(there))
}
