//! `se compare`: compares a storage dump with the catalogue, and applies what it finds.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_exchange::columns::Columns;
use exacat_exchange::compare::{
    self, Applied, ApplyLimits, Beginning, Class, CompareOptions, CompareReport, Compared, DumpOptions,
    Earlier, Form, State,
};
use exacat_exchange::input::Input;
use exacat_exchange::progress::Progress;
use exacat_model::{Error, ErrorKind, Lfn, Revision, SeName, SnapshotName, TimeMs};
use exacat_store::Store;
use exacat_store_embedded::EmbeddedStore;
use serde::Serialize;
use utoipa::ToSchema;

use super::exchange::failure;
use crate::args::{CatalogueSource, CompareArgs, Connection, Global};
use crate::connect::{Session, data_directory};
use crate::failure::{Failure, OnInterrupt, STATUS_REJECTED, report, status_of};
use crate::output::human::plural;
use crate::output::{Align, Out, Style, Table};
use crate::parse::{self, Direction};
use crate::progress::Bar;
use crate::quoting::harmless;
use crate::source::Source;

/// Classes that are shown although they are empty.
const ALWAYS_SHOWN: [Class; 6] =
    [Class::Same, Class::Lost, Class::Dark, Class::WrongSize, Class::WrongChecksum, Class::OnTheWay];
/// Rejected lines that are shown.
const REJECTS_SHOWN: usize = 5;

/// Class of a comparison.
#[derive(Serialize, ToSchema)]
#[schema(as = ComparedClass)]
pub(crate) struct ClassView {
    /// Name of the class.
    class: &'static str,
    /// Copies, or files that the catalogue does not have.
    copies: u64,
    /// Their bytes, as far as they are known.
    bytes: u64,
}

/// Rejected line of a dump.
#[derive(Serialize, ToSchema)]
#[schema(as = RejectedDumpLine)]
pub(crate) struct BadLineView<'a> {
    /// Number of the line, from 1.
    line: u64,
    /// Reason.
    reason: &'a str,
    /// The line, or its beginning.
    row: &'a str,
}

/// Result of an application.
#[derive(Serialize, ToSchema)]
#[schema(as = AppliedClass)]
pub(crate) struct AppliedView {
    /// Name of the class.
    class: &'static str,
    /// Copies that were changed.
    changed: u64,
    /// Copies that were so already.
    already: u64,
    /// Copies that changed since the comparison, and were left alone.
    left: u64,
    /// Copies that the catalogue refused to change.
    refused: u64,
}

/// Comparison of a storage dump with the catalogue.
#[derive(Serialize, ToSchema)]
#[schema(as = StorageComparison)]
pub(crate) struct CompareView<'a> {
    /// The storage element.
    se: &'a str,
    /// The dump.
    dump: String,
    /// Form of its lines.
    form: &'static str,
    /// Lines of the dump.
    lines: u64,
    /// Files in it.
    files: u64,
    /// Directories in it, which are not compared.
    directories: u64,
    /// Lines of other spaces.
    outside: u64,
    /// Lines that repeat the path of another one.
    repeats: u64,
    /// Rejected lines.
    rejected: u64,
    /// The first rejected lines.
    rejects: Vec<BadLineView<'a>>,
    /// Copies of the catalogue on the storage element.
    copies: u64,
    /// Copies whose path another copy has too.
    shared: u64,
    /// Last change of the state before the dump; null if it is not known.
    #[schema(required)]
    before: Option<u64>,
    /// Last change of the state after the dump.
    after: u64,
    /// All classes.
    classes: Vec<ClassView>,
    /// Result of the application, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<AppliedView>,
    /// Notes on what could not be decided.
    notes: &'a [String],
    /// Duration.
    seconds: f64,
}

/// Class to apply, with its limits.
struct Application {
    class: Class,
    into: Option<Lfn>,
    limits: ApplyLimits,
}

fn application(args: &CompareArgs) -> Result<Option<Application>, Failure> {
    let Some(text) = &args.apply else { return Ok(None) };
    let classes = [Class::Lost, Class::Found, Class::WrongSize, Class::WrongChecksum, Class::Dark];
    let class = classes.into_iter().find(|class| class.name() == text).ok_or_else(|| {
        let names: Vec<&str> = classes.iter().map(|class| class.name()).collect();
        Failure::local(format!("--apply is one of {}, not {text:.40?}", names.join(", ")))
    })?;
    let into = match (&args.into, class) {
        (Some(text), Class::Dark) => {
            let lfn = parse::lfn(text).map_err(|error| Failure::about(text, error))?;
            if lfn.is_root() {
                return Err(Failure::local("--into is a directory for dark files alone, not the root"));
            }
            Some(lfn)
        }
        (None, Class::Dark) => {
            return Err(Failure::local(
                "--apply dark registers files below a directory: name it with --into, such as --into /dark",
            ));
        }
        (Some(_), _) => return Err(Failure::local("--into is for --apply dark")),
        (None, _) => None,
    };
    let limits = ApplyLimits {
        count: parse::count(&args.max_count)?,
        millionths: millionths(&args.max_fraction)?,
        rejects: parse::count(&args.max_rejects)?,
    };
    Ok(Some(Application { class, into, limits }))
}

/// Parses a percentage (`1%`, `0.5 %`) to millionths.
fn millionths(text: &str) -> Result<u64, Failure> {
    let bad = || Failure::local(format!("--max-fraction is a percentage, such as 0.5%, not {text:.40?}"));
    let number = text.trim().strip_suffix('%').ok_or_else(bad)?.trim_end();
    let percent: f64 = number.parse().map_err(|_| bad())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(bad());
    }
    Ok((percent * 10_000.0).round() as u64)
}

fn dump_options(args: &CompareArgs) -> Result<DumpOptions, Failure> {
    let delimiter = match args.delimiter.as_deref().map(str::as_bytes) {
        None => None,
        Some(b"\\t") => Some(b'\t'),
        Some([byte]) if byte.is_ascii() => Some(*byte),
        Some(_) => return Err(Failure::local("--delimiter is one ASCII character (\\t for a tab)")),
    };
    Ok(DumpOptions {
        form: args.format.as_deref().map(Form::parse).transpose().map_err(failure)?,
        delimiter,
        columns: args.columns.as_deref().map(Columns::parse).transpose().map_err(failure)?,
    })
}

fn beginning(text: &str) -> Result<Beginning, Failure> {
    // As for a restore, a whole number is a revision.
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = text.parse().map_err(|_| Failure::local(format!("not a revision: {text}")))?;
        return Ok(Beginning::Revision(Revision(number)));
    }
    let time = parse::time(text, Direction::Past)
        .map_err(|error| Failure::about(format!("--from {text}"), error))?;
    Ok(Beginning::Time(time))
}

/// Returns the time of a snapshot.
fn snapshot_time(connection: &Connection, name: &str) -> Result<TimeMs, Failure> {
    let store = data_directory(connection)?.join("store");
    let wanted = SnapshotName::parse(name)?;
    let list = EmbeddedStore::snapshots_in(&store).map_err(|error| Failure::about(name, error))?;
    let found = list.into_iter().find(|snapshot| snapshot.name == wanted);
    let missing = || Failure::about(name, Error::not_found("there is no snapshot of this name"));
    Ok(found.ok_or_else(missing)?.time)
}

/// Times of the window, as far as they are known.
struct Times {
    /// Beginning: the time of the state before the dump.
    from: Option<TimeMs>,
    /// Time of the snapshot after the dump.
    after: Option<TimeMs>,
    /// Note that keeps an application from running.
    doubt: Option<String>,
}

/// Checks that the dump was made between both states.
fn check_window(
    args: &CompareArgs,
    from: Option<Beginning>,
    connection: &Connection,
) -> Result<Times, Failure> {
    let from = match (&args.before, from) {
        (Some(name), _) => Some(snapshot_time(connection, name)?),
        (None, Some(Beginning::Time(time))) => Some(time),
        _ => None,
    };
    let after = args.after.as_deref().map(|name| snapshot_time(connection, name)).transpose()?;
    let to = match &args.to {
        None => None,
        Some(text) => Some(
            parse::time(text, Direction::Past)
                .map_err(|error| Failure::about(format!("--to {text}"), error))?,
        ),
    };
    let mut times = Times { from, after, doubt: None };
    if let (Some(from), Some(to)) = (from, to)
        && to < from
    {
        return Err(Failure::local(format!("the window ends ({to}) before it begins ({from})")));
    }
    if let Some(to) = to
        && to > after.unwrap_or_else(parse::now)
    {
        return Err(Failure::local(format!(
            "the dump ended at {to}, after the state to compare with: take a later snapshot for --after"
        )));
    }
    let Some(written) = modified(&args.dump) else { return Ok(times) };
    if let Some(from) = from
        && written < from
    {
        return Err(Failure::local(format!(
            "{} was last written at {written}, before the window begins at {from}: give the state before that dump, \
             or a newer dump (or 'touch' the file if its time is wrong)",
            args.dump.display()
        )));
    }
    if to.is_none()
        && let Some(after) = times.after
        && written > after
    {
        times.doubt = Some(format!(
            "the dump was last written at {written}, after the snapshot ({after}): if the dump ended later too, new \
             files look dark; give --to with the time at which it ended"
        ));
    }
    Ok(times)
}

/// Returns the time of the last change of a regular file.
fn modified(path: &Path) -> Option<TimeMs> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let since = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(TimeMs(u64::try_from(since.as_millis()).ok()?))
}

/// Returns the directory for temporary files, and makes that for the listings.
fn directories(args: &CompareArgs) -> Result<PathBuf, Failure> {
    if let Some(output) = &args.output {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(output)
            .map_err(|error| Failure::local(format!("cannot make {}: {error}", output.display())))?;
    }
    Ok(args.temp.clone().or_else(|| args.output.clone()).unwrap_or_else(std::env::temp_dir))
}

fn store_of(source: &Source) -> Option<Arc<dyn Store>> {
    match source {
        Source::Server(_) => None,
        Source::Here { offline, .. } => Some(Arc::clone(&offline.store) as Arc<dyn Store>),
    }
}

fn state(source: &Source) -> State<'_, Source> {
    State { catalogue: source, store: store_of(source) }
}

/// Catalogue states of a comparison, and the server of an application.
struct Sources {
    session: Option<Session>,
    after: Source,
    before: Option<Source>,
}

impl Sources {
    async fn open(args: &CompareArgs, connection: &Connection) -> Result<Self, Failure> {
        let place = |snapshot: &Option<String>| CatalogueSource {
            offline: snapshot.is_none(),
            snapshot: snapshot.clone(),
        };
        let before = match &args.before {
            Some(_) => Some(Source::open(connection, &place(&args.before)).await?),
            None => None,
        };
        let is_here = args.after.is_some() || args.offline;
        let session = match !is_here || args.apply.is_some() {
            true => Some(Session::open(connection).await?),
            false => None,
        };
        let after = match &session {
            Some(session) if !is_here => Source::Server(session.client().clone()),
            _ => Source::open(connection, &place(&args.after)).await?,
        };
        Ok(Sources { session, after, before })
    }

    async fn close(self) -> Result<(), Failure> {
        let after = self.after.close().await;
        if let Some(before) = self.before {
            before.close().await?;
        }
        if let Some(session) = self.session {
            session.close().await;
        }
        after
    }
}

/// `exacat se compare`
pub(crate) async fn compare(args: CompareArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let application = application(&args)?;
    let se = SeName::parse(&args.name).map_err(|error| Failure::about(&args.name, error))?;
    let from = args.from.as_deref().map(beginning).transpose()?;
    let memory = parse::bytes(&args.memory)?;
    let mut options = CompareOptions::of(se, PathBuf::new());
    options.dump = dump_options(&args)?;
    options.strip.clone_from(&args.strip_prefix);
    options.add.clone_from(&args.add_prefix);
    options.memory = usize::try_from(memory).unwrap_or(usize::MAX);
    let times = check_window(&args, from, &global.connection)?;
    options.from = match times.from {
        Some(time) if args.before.is_some() => Some(Beginning::Time(time)),
        _ => from,
    };
    let opening = args.dump.clone();
    let input = tokio::task::spawn_blocking(move || Input::open(&opening, None)).await;
    let input = input.map_err(|error| Failure::local(error.to_string()))?.map_err(failure)?;
    options.temporary = directories(&args)?;
    options.listed = args.output.is_some();
    options.rejects = args.output.as_ref().map(|output| output.join("rejects.tsv"));
    options.applied = application.as_ref().map(|application| application.class);
    let sources = Sources::open(&args, &global.connection).await?;
    let mut out = Out::new(style);
    let plan = Plan { args: &args, application, doubt: times.doubt };
    let done = plan.run(&sources, &input, &options, global, &mut out).await;
    let closed = sources.close().await;
    out.flush()?;
    let status = done?;
    closed?;
    Ok(status)
}

/// A comparison and its application.
struct Plan<'a> {
    args: &'a CompareArgs,
    application: Option<Application>,
    doubt: Option<String>,
}

impl Plan<'_> {
    async fn run(
        &self,
        sources: &Sources,
        input: &Input,
        options: &CompareOptions,
        global: &Global,
        out: &mut Out,
    ) -> Result<u8, Failure> {
        let mut bar = Bar::new(global, "records");
        let interrupted = OnInterrupt::say("nothing was changed; the same command begins anew");
        let (after, before) = (state(&sources.after), sources.before.as_ref().map(state));
        let compared =
            compare::compare(&after, before.as_ref(), input, options, |progress| bar.show(progress));
        let compared = compared.await;
        bar.end();
        interrupted.over();
        let mut compared = compared.map_err(failure)?;
        compared.report.notes.extend(self.doubt.clone());
        if let Some(output) = &self.args.output {
            for (class, paths) in std::mem::take(&mut compared.listed) {
                let path = output.join(format!("{}.tsv", class.name()));
                compare::write_listing(class, paths, (&compared.rules, &compared.se.name), &path)
                    .map_err(failure)?;
            }
        }
        let permitted = self.permitted(&compared.report);
        let applied = match (&self.application, &permitted, &sources.session) {
            (Some(application), Ok(()), Some(session)) => {
                Some((application.class, self.apply(application, &mut compared, session, global).await?))
            }
            _ => None,
        };
        self.show(out, &compared, applied.as_ref())?;
        out.flush()?;
        permitted?;
        Ok(self.status(&compared, applied.as_ref()))
    }

    /// Refuses an application beyond its limits.
    fn permitted(&self, report: &CompareReport) -> Result<(), Failure> {
        let Some(application) = &self.application else { return Ok(()) };
        if report.counts.count(application.class) > 0
            && application.class == Class::Dark
            && let Some(doubt) = &self.doubt
        {
            return Err(Failure::local(format!("{doubt}; nothing was changed")));
        }
        report.check_apply(application.class, application.limits).map_err(failure)
    }

    async fn apply(
        &self,
        application: &Application,
        compared: &mut Compared,
        session: &Session,
        global: &Global,
    ) -> Result<Applied, Failure> {
        let Some((class, paths)) = compared.applied.take() else { return Ok(Applied::default()) };
        let client = session.client();
        let started = std::time::Instant::now();
        let total = compared.report.counts.count(class);
        let mut bar = Bar::new(global, "copies");
        let progress = |done: u64| {
            bar.show(&Progress {
                rows: done,
                rows_now: done,
                rows_total: Some(total),
                elapsed: started.elapsed(),
                ..Progress::default()
            });
        };
        let interrupted = OnInterrupt::say("a part was applied; the same command applies the rest");
        let se = &compared.se;
        let applied = match (compare::state_for(class), &application.into) {
            (Some(state), _) => compare::apply_state(client, se, state, paths, progress).await,
            (None, Some(into)) => {
                let place = (into, compared.report.after);
                compare::adopt_dark(client, (se, &compared.rules), place, paths, progress).await
            }
            (None, None) => return Err(Failure::local("this class cannot be applied")),
        };
        bar.end();
        interrupted.over();
        applied.map_err(failure)
    }

    fn status(&self, compared: &Compared, applied: Option<&(Class, Applied)>) -> u8 {
        let rejected = compared.report.dump.rejects();
        let mut status = 0;
        if rejected > 0 {
            let error = Error::new(ErrorKind::Invalid, format!("{} rejected", plural(rejected, "line")));
            report(Some(&self.args.dump.to_string_lossy()), &error, None);
            status = STATUS_REJECTED;
        }
        for (path, error) in applied.iter().flat_map(|(_, applied)| &applied.refusals) {
            report(Some(path), error, None);
            status = status_of(error.kind);
        }
        status
    }

    fn show(
        &self,
        out: &mut Out,
        compared: &Compared,
        applied: Option<&(Class, Applied)>,
    ) -> Result<(), Failure> {
        let report = &compared.report;
        if out.style.json {
            return out.json(&self.view(compared, applied));
        }
        let mut table =
            Table::headed([("CLASS", Align::Left), ("COPIES", Align::Right), ("BYTES", Align::Right)]);
        for class in Class::ALL {
            let count = report.counts.count(class);
            if count > 0 || ALWAYS_SHOWN.contains(&class) {
                let bytes = out.size(u128::from(report.counts.bytes(class)));
                table.row([class.name().to_owned(), count.to_string(), bytes]);
            }
        }
        out.table(&table)?;
        if !out.style.quiet {
            self.show_details(out, report)?;
        }
        if let Some((class, applied)) = applied {
            out.line(format!(
                "applied {}: {} changed, {} so already, {} changed since (left alone), {} refused",
                class.name(),
                applied.changed,
                applied.already,
                applied.left,
                applied.refused
            ))?;
        }
        Ok(())
    }

    fn show_details(&self, out: &mut Out, report: &CompareReport) -> Result<(), Failure> {
        let dump = &report.dump;
        let mut line = format!(
            "dump ({}): {}, {}",
            report.form.name(),
            plural(dump.lines, "line"),
            plural(dump.files, "file")
        );
        let more = [
            (dump.directories, "directories"),
            (dump.outside, "of other spaces"),
            (report.repeats, "repeated"),
            (dump.rejects(), "rejected"),
        ];
        for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
            line.push_str(&format!(", {count} {what}"));
        }
        out.line(line)?;
        for bad in dump.rejects_shown.iter().take(REJECTS_SHOWN) {
            let row: String = bad.row.chars().take(40).collect();
            out.line(format!("  line {}: {}: {}", bad.line, bad.reason, harmless(&row)))?;
        }
        let state = match report.before {
            Some(before) => format!("revision {} to {}", before.0, report.after.0),
            None => format!("revision {}", report.after.0),
        };
        let shared = match report.shared {
            0 => String::new(),
            shared => format!(", {shared} share a path with another"),
        };
        out.line(format!("catalogue: {}{shared}, {state}", plural(report.copies, "copy")))?;
        if report.earlier == Earlier::Unknown && report.counts.count(Class::Undecided) > 0 {
            out.line("what differs is undecided:")?;
        }
        for note in &report.notes {
            let words = note.split(' ');
            for line in crate::output::human::folded(words, 76) {
                out.line(format!("  {line}"))?;
            }
        }
        if let Some(output) = &self.args.output {
            out.line(format!("listings: {}", output.display()))?;
        }
        Ok(())
    }

    fn view<'a>(&self, compared: &'a Compared, applied: Option<&(Class, Applied)>) -> CompareView<'a> {
        let report = &compared.report;
        let dump = &report.dump;
        let rejects = dump.rejects_shown.iter();
        CompareView {
            se: compared.se.name.as_str(),
            dump: self.args.dump.to_string_lossy().into_owned(),
            form: report.form.name(),
            lines: dump.lines,
            files: dump.files,
            directories: dump.directories,
            outside: dump.outside,
            repeats: report.repeats,
            rejected: dump.rejects(),
            rejects: rejects
                .map(|bad| BadLineView { line: bad.line, reason: bad.reason, row: &bad.row })
                .collect(),
            copies: report.copies,
            shared: report.shared,
            before: report.before.map(|revision| revision.0),
            after: report.after.0,
            classes: Class::ALL
                .into_iter()
                .map(|class| ClassView {
                    class: class.name(),
                    copies: report.counts.count(class),
                    bytes: report.counts.bytes(class),
                })
                .collect(),
            applied: applied.map(|(class, applied)| AppliedView {
                class: class.name(),
                changed: applied.changed,
                already: applied.already,
                left: applied.left,
                refused: applied.refused,
            }),
            notes: &report.notes,
            seconds: report.elapsed.as_secs_f64(),
        }
    }
}
