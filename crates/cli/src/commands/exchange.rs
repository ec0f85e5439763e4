//! `import`, `verify`, `export`, `generate`: imports and exports listings.

pub(crate) mod tables;
pub(crate) mod views;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use exacat_exchange::columns::{Columns, Role};
use exacat_exchange::export::{ExportOptions, ExportReport, export as export_into, export_to};
use exacat_exchange::generate::Generated;
use exacat_exchange::input::Compression;
use exacat_exchange::listing::Examined;
use exacat_exchange::local::Local;
use exacat_exchange::options::{Repeats, Rest, RowKind};
use exacat_exchange::output::OutputFile;
use exacat_exchange::records::Format;
use exacat_exchange::reject::Reason;
use exacat_exchange::resume::StateAt;
use exacat_exchange::tree::TreeSettings;
use exacat_exchange::{ImportOptions, ImportReport, ListingOptions, Preset, VerifyReport};
use exacat_model::operation::Existing;
use exacat_model::{Error, ErrorKind, SeName};
use exacat_store::Store;
use exacat_store_embedded::LoadSettings;

use super::find;
use crate::args::{
    ExistingArg, ExportArgs, ExportFormatArg, FormatArg, GenerateArgs, Global, ImportArgs, ListingArgs,
    VerifyArgs,
};
use crate::context::Context;
use crate::failure::{Failure, OnInterrupt, STATUS_REJECTED, say};
use crate::offline::Offline;
use crate::output::human::plural;
use crate::output::{Out, Style};
use crate::parse;
use crate::progress::Bar;
use crate::quoting::{harmless, quoted};
use crate::source::Source;
use views::{DifferenceView, ExaminedView, ExportView, GeneratedView, ImportView, RejectView, VerifyView};

/// Bytes of a file with rules of an SE map.
const SE_MAP_BYTES_MAX: u64 = 64 << 20;

pub(super) fn failure(error: exacat_exchange::Error) -> Failure {
    if let exacat_exchange::Error::File { source, .. } = &error
        && source.kind() == std::io::ErrorKind::BrokenPipe
    {
        return Failure::OutputClosed;
    }
    match error.kind() {
        Some(kind) => Error::new(kind, error.to_string()).into(),
        None => Failure::local(error.to_string()),
    }
}

fn yes(name: &str, text: Option<&str>) -> Result<Option<bool>, Failure> {
    match text {
        None => Ok(None),
        Some("yes") => Ok(Some(true)),
        Some("no") => Ok(Some(false)),
        Some(other) => Err(Failure::local(format!("--{name} is yes or no, not {other:?}"))),
    }
}

fn delimiter(text: Option<&str>) -> Result<Option<u8>, Failure> {
    match text.map(str::as_bytes) {
        None => Ok(None),
        Some(b"\\t") => Ok(Some(b'\t')),
        Some([byte]) if byte.is_ascii() => Ok(Some(*byte)),
        Some(_) => Err(Failure::local("--delimiter is one ASCII character (\\t for a tab)")),
    }
}

fn format(format: FormatArg) -> Format {
    match format {
        FormatArg::Tsv => Format::Tsv,
        FormatArg::Csv => Format::Csv,
        FormatArg::Jsonl => Format::JsonLines,
    }
}

fn existing(existing: ExistingArg) -> Existing {
    match existing {
        ExistingArg::Refuse => Existing::Refuse,
        ExistingArg::Same => Existing::Same,
        ExistingArg::Merge => Existing::Merge,
    }
}

/// Returns the options of the preset, if one is named, overridden by explicit ones.
fn import_options(args: &ListingArgs) -> Result<ImportOptions, Failure> {
    let mut options = match &args.preset {
        Some(name) => Preset::named(name).and_then(|preset| preset.options()).map_err(failure)?,
        None => ImportOptions::default(),
    };
    listing_options(args, &mut options.listing)?;
    Ok(options)
}

fn listing_options(args: &ListingArgs, options: &mut ListingOptions) -> Result<(), Failure> {
    if let Some(given) = args.format {
        options.format = Some(format(given));
    }
    if let Some(text) = &args.compression {
        options.compression = Some(Compression::parse(text).map_err(failure)?);
    }
    options.delimiter = delimiter(args.delimiter.as_deref())?.or(options.delimiter);
    options.header = yes("header", args.header.as_deref())?.or(options.header);
    options.escapes = yes("escapes", args.escapes.as_deref())?.or(options.escapes);
    if let Some(text) = &args.columns {
        options.columns = Some(Columns::parse(text).map_err(failure)?);
    }
    options.auto_columns &= !args.only_columns;
    if args.rest_as_tags {
        options.rest = Rest::Tags;
    }
    if let Some(text) = &args.kind {
        let named = RowKind::ALL.into_iter().find(|kind| kind.name() == text);
        options.kind = named.ok_or_else(|| {
            let names: Vec<&str> = RowKind::ALL.iter().map(|kind| kind.name()).collect();
            Failure::local(format!("--kind is one of {}, not {text:?}", names.join(", ")))
        })?;
    }
    let lfn = |text: &str| parse::lfn(text).map_err(|error| Failure::about(text, error));
    if let Some(text) = &args.prefix {
        options.prefix = Some(lfn(text)?);
    }
    if let Some(text) = &args.collection_prefix {
        options.collection_prefix = Some(lfn(text)?);
    }
    if let Some(text) = &args.se {
        options.se = Some(SeName::parse(text)?);
    }
    if let Some(path) = &args.se_map_file {
        let content = crate::connect::read_small_file(path, SE_MAP_BYTES_MAX)?;
        options.se_map.add_file(&content).map_err(failure)?;
    }
    for rule in &args.se_map {
        options.se_map.add_rule(rule).map_err(failure)?;
    }
    options.se_auto |= args.se_auto;
    if let Some(text) = &args.pfn_same {
        options.pfn_same = Some(text.clone());
    }
    if args.repeats {
        options.repeats = Repeats::Keep;
    }
    Ok(())
}

/// Opens an output file. If an interruption can end the wait for it, nothing was made.
pub(super) async fn open_output(path: &Path) -> Result<OutputFile, Failure> {
    opened(path, OutputFile::create).await.map_err(|error| of_output(error, path))
}

/// Opens a new file for a secret in the same way.
pub(super) async fn open_secret(path: &Path) -> Result<OutputFile, Failure> {
    opened(path, OutputFile::create_secret).await.map_err(failure)
}

/// A FIFO opens when its reader comes, so a thread waits for it. Any other file is made at once: an
/// interruption must find it in the hands that tell what is left, and that remove it.
async fn opened(
    path: &Path,
    open: fn(&Path) -> Result<OutputFile, exacat_exchange::Error>,
) -> Result<OutputFile, exacat_exchange::Error> {
    if !OutputFile::waits_for_a_reader(path) {
        return open(path);
    }
    let interrupted = OnInterrupt::say(format!("{} got nothing of the output", path.display()));
    let waiting = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || open(&waiting)).await;
    interrupted.over();
    opened.map_err(|error| exacat_exchange::Error::file("open", path, error.into()))?
}

/// Makes the failure of an output file. Unlike standard output, it was requested as a whole.
pub(super) fn of_output(error: exacat_exchange::Error, path: &Path) -> Failure {
    let named = match error {
        exacat_exchange::Error::File { what, source, .. } => exacat_exchange::Error::file(what, path, source),
        error => error,
    };
    match failure(named) {
        Failure::OutputClosed => {
            Failure::local(format!("cannot write {}: its reader closed it before the end", path.display()))
        }
        failure => failure,
    }
}

/// Returns the options of an import from the command line.
fn options_to_import(args: &ImportArgs) -> Result<ImportOptions, Failure> {
    let mut options = import_options(&args.listing)?;
    if let Some(given) = args.existing {
        options.existing = existing(given);
    }
    if args.files.len() > 1
        && (args.rejects.is_some() || args.state.as_deref().is_some_and(|path| path != "none"))
    {
        return Err(Failure::local("--rejects and --state are for one listing: import them one by one"));
    }
    options.rejects = args.rejects.clone();
    options.state = match args.state.clone() {
        None => StateAt::Beside,
        Some(path) if path == Path::new("none") => StateAt::Nowhere,
        Some(path) => StateAt::At(path),
    };
    options.restart = args.restart;
    options.restore = args.restore;
    Ok(options)
}

/// `exacat import`
pub(crate) async fn import(context: &mut Context, args: ImportArgs, global: &Global) -> Result<(), Failure> {
    let options = options_to_import(&args)?;
    let catalogue = Arc::new(context.session.client().clone());
    if args.dry_run {
        for path in &args.files {
            let examined = exacat_exchange::import::examine(&*catalogue, path, &options.listing).await;
            if let Some(rejected) = show_examined(&mut context.out, path, &examined.map_err(failure)?)? {
                context.rejected(&path.to_string_lossy(), &rejected);
            }
        }
        return Ok(());
    }
    for path in &args.files {
        let mut bar = Bar::new(global, "rows");
        let goes_on =
            (options.state != StateAt::Nowhere).then_some("the same import resumes where this one stopped");
        let interrupted = OnInterrupt::maybe(goes_on);
        let imported =
            exacat_exchange::import(Arc::clone(&catalogue), path, &options, |progress| bar.show(progress))
                .await;
        interrupted.over();
        bar.end();
        let report = imported.map_err(failure)?;
        show_import(&mut context.out, path, &report, args.rejects.as_deref())?;
        context.out.flush()?;
        if let Some(error) = rejected(&report) {
            context.rejected(&path.to_string_lossy(), &error);
        }
    }
    Ok(())
}

/// `exacat import --offline`
pub(crate) async fn import_offline(args: ImportArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let options = options_to_import(&args)?;
    let instead = "'exacat import' without --offline asks it, or stop it first";
    let offline = Offline::open(&global.connection, instead).await?;
    let imported = import_into(&offline, &args, &options, global, style).await;
    let closed = offline.store.close().await.map_err(|error| offline.about(error));
    let status = imported?;
    closed?;
    Ok(status)
}

async fn import_into(
    offline: &Offline,
    args: &ImportArgs,
    options: &ImportOptions,
    global: &Global,
    style: Style,
) -> Result<u8, Failure> {
    let store = Arc::clone(&offline.store);
    let local = Local::open(store, Arc::clone(&offline.clock), LoadSettings::default())
        .await
        .map_err(|error| offline.about(error))?;
    let mut out = Out::new(style);
    let mut status = 0;
    for path in &args.files {
        if args.dry_run {
            let examined = exacat_exchange::import::examine(&*local, path, &options.listing).await;
            if let Some(rejected) = show_examined(&mut out, path, &examined.map_err(failure)?)? {
                out.flush()?;
                crate::failure::report(Some(&path.to_string_lossy()), &rejected, None);
                status = STATUS_REJECTED;
            }
            continue;
        }
        let mut bar = Bar::new(global, "rows");
        let interrupted =
            OnInterrupt::say("the same import begins with its first row, and finds the existing entries");
        let (catalogue, bulk) = (Arc::clone(&local), Arc::clone(&local));
        let imported = exacat_exchange::import_in_bulk(catalogue, bulk, path, options, |progress| {
            bar.show(progress);
        })
        .await;
        interrupted.over();
        bar.end();
        let report = imported.map_err(failure)?;
        show_import(&mut out, path, &report, args.rejects.as_deref())?;
        out.flush()?;
        if let Some(error) = rejected(&report) {
            crate::failure::report(Some(&path.to_string_lossy()), &error, None);
            status = STATUS_REJECTED;
        }
    }
    out.flush()?;
    Ok(status)
}

/// Shows the outcome of `exacat import --dry-run`; returns an error if rows were rejected.
fn show_examined(out: &mut Out, path: &Path, examined: &Examined) -> Result<Option<Error>, Failure> {
    let rejected = examined.rows - examined.accepted;
    if out.style.json {
        out.json(&ExaminedView {
            file: path.to_string_lossy(),
            dry_run: true,
            rows: examined.rows,
            accepted: examined.accepted,
            rejected,
            reasons: by_reason(&examined.rejects),
        })?;
    } else if !out.style.quiet {
        let name = out.name(&path.to_string_lossy()).to_string();
        let rows = plural(examined.rows, "row");
        out.line(format!(
            "{name}: {rows}: {} could go in, {rejected} rejected without asking; nothing was changed",
            examined.accepted
        ))?;
        show_reasons(out, &examined.rejects)?;
    }
    if rejected > 0 {
        let message = format!("{} rejected", plural(rejected, "row"));
        return Ok(Some(Error::new(ErrorKind::Invalid, message)));
    }
    Ok(None)
}

/// Returns the error about rejected rows, if there are any.
fn rejected(report: &ImportReport) -> Option<Error> {
    let message = || format!("{} rejected", plural(report.rejected, "row"));
    (report.rejected > 0).then(|| Error::new(ErrorKind::Invalid, message()))
}

/// Returns the reason why an import changed nothing, if it changed nothing.
fn nothing_changed(report: &ImportReport) -> Option<String> {
    if !report.changed_nothing() {
        return None;
    }
    let there = report.counts.unchanged.max(report.counts.members_unchanged);
    Some(match (report.rows, there, report.rejected) {
        (0, ..) => "nothing to import: the listing has no rows".to_owned(),
        (_, 0, rejected) if rejected > 0 => {
            format!("nothing imported: {}", rejected_of(rejected, report.rows))
        }
        (_, _, 0) => "nothing changed: everything was there already, just so".to_owned(),
        (rows, _, rejected) => {
            format!(
                "nothing changed: {}, the others were there already, just so",
                rejected_of(rejected, rows)
            )
        }
    })
}

fn rejected_of(rejected: u64, rows: u64) -> String {
    if rejected >= rows {
        return "every row was rejected".to_owned();
    }
    format!("{} of {} rejected", rejected, plural(rows, "row"))
}

fn by_reason(rejects: &[(Reason, u64)]) -> BTreeMap<&'static str, u64> {
    rejects.iter().map(|(reason, count)| (reason.name(), *count)).collect()
}

pub(super) fn rate(rows: u64, elapsed: std::time::Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    format!("{seconds:.1} s, {:.0}/s", rows as f64 / seconds.max(0.001))
}

fn show_import(
    out: &mut Out,
    path: &Path,
    report: &ImportReport,
    rejects: Option<&Path>,
) -> Result<(), Failure> {
    let counts = &report.counts;
    if out.style.json {
        let rejects = report.rejects_shown.iter().map(|reject| RejectView {
            line: reject.line,
            reason: reject.reason.name(),
            detail: &reject.detail,
        });
        return out.json(&ImportView {
            file: path.to_string_lossy(),
            rows: report.rows,
            created: counts.created,
            unchanged: counts.unchanged,
            merged: counts.merged,
            members_added: counts.members_added,
            members_unchanged: counts.members_unchanged,
            collections_made: counts.collections_made,
            ses_registered: counts.ses_registered,
            accounts_made: counts.accounts_made,
            rejected: report.rejected,
            partial: report.partial,
            reasons: by_reason(&report.rejects),
            rejects: rejects.collect(),
            resumed_from: report.resumed_from,
            changed: !report.changed_nothing(),
            notes: &report.notes,
            seconds: report.elapsed.as_secs_f64(),
        });
    }
    if out.style.quiet {
        return Ok(());
    }
    let mut parts = vec![format!("{} created", counts.created), format!("{} unchanged", counts.unchanged)];
    let more = [
        (counts.merged, "merged"),
        (counts.members_added, "added to collections"),
        (counts.members_unchanged, "in collections already"),
        (counts.collections_made, "collections made"),
        (counts.ses_registered, "storage elements registered"),
        (counts.accounts_made, "accounts made"),
        (report.partial, "taken without a part"),
    ];
    parts.extend(more.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    parts.push(format!("{} rejected", report.rejected));
    let name = out.name(&path.to_string_lossy()).to_string();
    let rows = plural(report.rows, "row");
    out.line(format!("{name}: {rows}: {} ({})", parts.join(", "), rate(report.rows, report.elapsed)))?;
    if let Some(row) = report.resumed_from {
        out.line(format!("  went on with row {row}, where an interrupted import stopped"))?;
    }
    if let Some(why) = nothing_changed(report) {
        out.line(format!("  {why}"))?;
    }
    show_reasons(out, &report.rejects)?;
    for reject in &report.rejects_shown {
        let line = format!("  line {}: {}: {}", reject.line, reject.reason.name(), harmless(&reject.detail));
        out.line(line)?;
    }
    if report.rejected + report.partial > report.rejects_shown.len() as u64 {
        let all = match rejects {
            Some(path) => format!("  all of them are in {}", path.display()),
            None => "  …; --rejects FILE writes all of them to a file".to_owned(),
        };
        out.line(all)?;
    }
    for note in &report.notes {
        out.line(format!("  {}", harmless(note)))?;
    }
    Ok(())
}

fn show_reasons(out: &mut Out, rejects: &[(Reason, u64)]) -> Result<(), Failure> {
    for (reason, count) in rejects {
        out.line(format!("  {count} {}", reason.name()))?;
    }
    Ok(())
}

/// `exacat verify`
pub(crate) async fn verify(context: &mut Context, args: VerifyArgs, global: &Global) -> Result<(), Failure> {
    let options = import_options(&args.listing)?.listing;
    if args.files.len() > 1 && args.differences.is_some() {
        return Err(Failure::local("--differences is for one listing: verify them one by one"));
    }
    let catalogue = Arc::new(context.session.client().clone());
    for path in &args.files {
        let mut bar = Bar::new(global, "rows");
        let differences = args.differences.as_deref();
        let verified =
            exacat_exchange::verify(Arc::clone(&catalogue), path, &options, differences, |progress| {
                bar.show(progress);
            })
            .await;
        bar.end();
        let report = verified.map_err(failure)?;
        show_verify(context, path, &report)?;
        context.out.flush()?;
        if !report.holds() {
            let wrong = plural(report.different + report.missing, "row");
            let message = format!("{wrong} not in the catalogue as given");
            context.fail(&path.to_string_lossy(), &Error::new(ErrorKind::Conflict, message));
        }
    }
    Ok(())
}

fn show_verify(context: &mut Context, path: &Path, report: &VerifyReport) -> Result<(), Failure> {
    if context.out.style.json {
        let differences = report.shown.iter().map(|one| DifferenceView {
            line: one.line,
            lfn: &one.lfn,
            what: one.what,
            given: &one.given,
            found: &one.found,
        });
        return context.out.json(&VerifyView {
            file: path.to_string_lossy(),
            rows: report.rows,
            same: report.same,
            different: report.different,
            missing: report.missing,
            rejected: report.rejected,
            reasons: by_reason(&report.rejects),
            differences: differences.collect(),
            holds: report.holds(),
            seconds: report.elapsed.as_secs_f64(),
        });
    }
    if context.out.style.quiet {
        return Ok(());
    }
    let name = context.out.name(&path.to_string_lossy()).to_string();
    context.out.line(format!(
        "{name}: {}: {} as given, {} different, {} missing, {} that cannot be imported ({})",
        plural(report.rows, "row"),
        report.same,
        report.different,
        report.missing,
        report.rejected,
        rate(report.rows, report.elapsed)
    ))?;
    show_reasons(&mut context.out, &report.rejects)?;
    for one in &report.shown {
        context.out.line(format!(
            "  line {}: {}: {}: given {}, found {}",
            one.line,
            quoted(&one.lfn),
            one.what,
            harmless(&one.given),
            harmless(&one.found)
        ))?;
    }
    Ok(())
}

/// `exacat export`
pub(crate) async fn export(
    source: &Source,
    out: &mut Out,
    mut args: ExportArgs,
    global: &Global,
) -> Result<(), Failure> {
    // As for input, the name is that of the standard stream.
    args.output.take_if(|path| path.as_os_str() == "-");
    if let Some(directory) = &args.check {
        return tables::check(Some(source), out, directory, global).await;
    }
    let directory = args.directory.as_deref().unwrap_or("/");
    let under = parse::lfn(directory).map_err(|error| Failure::about(directory, error))?;
    let listed = match args.format {
        Some(ExportFormatArg::Parquet) => return tables::export(source, out, (under, &args), global).await,
        Some(ExportFormatArg::Tsv) => Some(Format::Tsv),
        Some(ExportFormatArg::Csv) => Some(Format::Csv),
        Some(ExportFormatArg::Jsonl) => Some(Format::JsonLines),
        None => None,
    };
    if args.tables.is_some() || args.after.is_some() {
        return Err(Failure::local(
            "--tables and --after are for --format parquet: add that, or leave them out",
        ));
    }
    let compression = match (&args.compression, &args.output) {
        (Some(text), _) => Compression::parse(text).map_err(failure)?,
        (None, Some(path)) => Compression::of_name(path),
        (None, None) => Compression::Plain,
    };
    let columns = match &args.columns {
        Some(names) => {
            Some(names.iter().map(|name| Role::parse(name)).collect::<Result<Vec<_>, _>>().map_err(failure)?)
        }
        None => None,
    };
    let options = ExportOptions {
        under,
        filter: find::filter(source, args.pattern.as_deref(), &args.conditions).await?,
        format: listed.unwrap_or_else(|| format_of_name(args.output.as_deref())),
        compression,
        delimiter: delimiter(args.delimiter.as_deref())?,
        full: columns.is_none(),
        columns,
        header: !args.no_header,
        pfn_same: args.pfn_same.clone(),
    };
    let mut bar = Bar::new(global, "entries");
    let report = match &args.output {
        Some(path) => {
            let output = open_output(path).await?;
            let interrupted = OnInterrupt::say(output.if_interrupted());
            let exported = export_to(source, &output, path, &options, |progress| bar.show(progress)).await;
            bar.end();
            interrupted.over();
            let exported = exported.and_then(|report| output.finish().map(|()| report));
            exported.map_err(|error| of_output(error, path))?
        }
        None => {
            let to = Box::new(std::io::stdout());
            let exported = export_into(source, to, &options, |progress| bar.show(progress)).await;
            bar.end();
            exported.map_err(failure)?
        }
    };
    if !out.style.quiet {
        for note in &report.notes {
            say(&format!("exacat: {note}"));
        }
    }
    match &args.output {
        Some(path) => show_export(out, path, &report, source.catalogue_id().as_deref()),
        None => Ok(()),
    }
}

/// Format and compression by a file's name, such as `data.csv.gz`.
fn format_of_name(path: Option<&Path>) -> Format {
    let name = path.and_then(Path::file_name).map(|name| name.to_string_lossy().to_ascii_lowercase());
    let name = name.unwrap_or_default();
    let stem = Compression::NAME_ENDS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    if stem.ends_with(".csv") {
        Format::Csv
    } else if stem.ends_with(".jsonl") || stem.ends_with(".json") {
        Format::JsonLines
    } else {
        Format::Tsv
    }
}

fn show_export(
    out: &mut Out,
    path: &Path,
    report: &ExportReport,
    catalogue: Option<&str>,
) -> Result<(), Failure> {
    if out.style.json {
        return out.json(&ExportView {
            file: path.to_string_lossy(),
            entries: report.entries,
            files: report.files,
            members: report.members,
            bytes: report.bytes,
            catalogue,
            revision: report.position.map(|position| position.revision.0),
            timeline: report.position.and_then(|position| position.timeline).map(|tag| tag.to_string()),
            notes: &report.notes,
            seconds: report.elapsed.as_secs_f64(),
        });
    }
    if out.style.quiet {
        return Ok(());
    }
    let entries = plural(report.entries, "entry");
    let rate = rate(report.entries, report.elapsed);
    let name = out.name(&path.to_string_lossy()).to_string();
    out.line(format!("{name}: {entries}, of these {} ({rate})", plural(report.files, "file")))
}

/// Settings of the tree to generate.
fn tree(args: &GenerateArgs) -> Result<TreeSettings, Failure> {
    Ok(TreeSettings {
        seed: args.seed,
        entries: parse::count(&args.entries)?,
        root: parse::lfn(&args.prefix).map_err(|error| Failure::about(&args.prefix, error))?,
    })
}

/// `exacat generate`
pub(crate) async fn generate(
    context: &mut Context,
    args: GenerateArgs,
    global: &Global,
) -> Result<(), Failure> {
    let settings = tree(&args)?;
    let catalogue = Arc::new(context.session.client().clone());
    let mut bar = Bar::new(global, "entries");
    let made = exacat_exchange::generate::generate(catalogue, &settings, |progress| bar.show(progress)).await;
    bar.end();
    show_generated(&mut context.out, &args.prefix, &made.map_err(failure)?)
}

/// `exacat generate --listing`
pub(crate) async fn generate_listing(
    args: GenerateArgs,
    global: &Global,
    style: Style,
) -> Result<u8, Failure> {
    let settings = tree(&args)?;
    let path = args.listing.unwrap_or_default();
    let output = open_output(&path).await?;
    let mut file = std::io::BufWriter::new(output.writer().map_err(failure)?);
    let mut bar = Bar::new(global, "entries");
    let interrupted = OnInterrupt::say(output.if_interrupted());
    let ended = tokio::task::spawn_blocking(move || {
        let made =
            exacat_exchange::generate::generate_listing(&settings, &mut file, |progress| bar.show(progress));
        bar.end();
        let written = file.into_inner().map_err(std::io::IntoInnerError::into_error);
        (made, written.map(drop))
    });
    let ended = ended.await;
    interrupted.over();
    let (made, written) = ended.map_err(|error| Failure::local(error.to_string()))?;
    let made = made.map_err(|error| of_output(error, &path))?;
    let written = written.map_err(|error| exacat_exchange::Error::file("write", &path, error));
    written.and_then(|()| output.finish()).map_err(|error| of_output(error, &path))?;
    let mut out = Out::new(style);
    show_generated(&mut out, &path.to_string_lossy(), &made)?;
    out.flush()?;
    Ok(0)
}

fn show_generated(out: &mut Out, place: &str, made: &Generated) -> Result<(), Failure> {
    if out.style.json {
        return out.json(&GeneratedView {
            place,
            entries: made.entries,
            files: made.files,
            members: made.members,
            created: made.created,
            unchanged: made.unchanged,
            seconds: made.elapsed.as_secs_f64(),
        });
    }
    if out.style.quiet {
        return Ok(());
    }
    let place = out.name(place).to_string();
    let entries = plural(made.entries, "entry");
    let files = plural(made.files, "file");
    out.line(format!("{place}: {entries}, of these {files} ({})", rate(made.entries, made.elapsed)))?;
    if made.created == 0 && made.unchanged > 0 {
        out.line("  nothing changed: everything was there already")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_rows_are_written() {
        for (name, format) in [
            ("a.tsv", Format::Tsv),
            ("a.CSV", Format::Csv),
            ("a.csv.gz", Format::Csv),
            ("a.csv.bz2", Format::Csv),
            ("a.jsonl.zst", Format::JsonLines),
            ("csv", Format::Tsv),
        ] {
            assert_eq!(format_of_name(Some(Path::new(name))), format, "{name}");
        }
        assert_eq!(format_of_name(None), Format::Tsv);
    }

    #[test]
    fn import_that_changed_nothing_says_why() {
        let report = |rows, unchanged, rejected, created| ImportReport {
            rows,
            rejected,
            counts: exacat_exchange::counts::Counts { unchanged, created, ..Default::default() },
            ..ImportReport::default()
        };
        for (given, wanted) in [
            (report(5, 0, 5, 0), "nothing imported: every row was rejected"),
            (report(0, 0, 0, 0), "nothing to import: the listing has no rows"),
            (report(5, 5, 0, 0), "nothing changed: everything was there already, just so"),
            (
                report(5, 3, 2, 0),
                "nothing changed: 2 of 5 rows rejected, the others were there already, just so",
            ),
        ] {
            assert_eq!(nothing_changed(&given).as_deref(), Some(wanted));
        }
        assert_eq!(nothing_changed(&report(5, 0, 4, 1)), None);
    }

    #[test]
    fn what_is_said_counts_over_the_preset() {
        let mut args = ListingArgs { preset: Some("dune-transfers".to_owned()), ..ListingArgs::default() };
        let options = import_options(&args).unwrap();
        assert_eq!(options.existing, Existing::Merge);
        assert_eq!(options.listing.prefix.unwrap().as_str(), "/dune");
        args.prefix = Some("/other".to_owned());
        args.delimiter = Some("|".to_owned());
        let options = import_options(&args).unwrap();
        assert_eq!(options.listing.prefix.unwrap().as_str(), "/other");
        assert_eq!(options.listing.delimiter, Some(b'|'));
        assert!(options.listing.se_auto);
        args.delimiter = Some("||".to_owned());
        assert!(import_options(&args).is_err());
        args.delimiter = None;
        args.header = Some("maybe".to_owned());
        assert!(import_options(&args).is_err());
    }
}
