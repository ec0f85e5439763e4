//! `snapshot`, `clone`, `restore`, `backup`: earlier states of the catalogue, and copies of it.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{
    Answer, BackupProgress, Cursor, Difference, EntryAt, Error, ErrorKind, Lfn, Operation, Revision,
    Snapshot, SnapshotCheck, SnapshotName,
};
use exacat_server::ElementsBeside;
use exacat_store::SystemClock;
use exacat_store_embedded::{
    BackupSource, COMPANION, Companion, CompanionRestore, EmbeddedSettings, EmbeddedStore, RestorePoint,
    RestoreProgress, Restored, on_blocking_thread,
};
use exacat_wire::json::{self, DifferenceKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::{BackupArgs, CloneArgs, Connection, Global, RestoreArgs, SnapshotCommand};
use crate::connect::data_directory;
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::{Failure, report};
use crate::output::human::{self, plural};
use crate::output::{Align, Out, Style, Table};
use crate::parse::{self, Direction};
use crate::progress::Bar;

/// `exacat snapshot`
pub(crate) async fn snapshot(context: &mut Context, command: SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Create { name } => create(context, &name).await,
        SnapshotCommand::Ls { .. } => match context.call(Operation::SnapshotList).await? {
            Answer::Snapshots(list) => show_list(&mut context.out, &list),
            other => Err(Failure::unexpected(&other)),
        },
        SnapshotCommand::Diff { before, after } => diff(context, &before, after.as_deref()).await,
        SnapshotCommand::Drop { names } => drop_all(context, names).await,
        SnapshotCommand::Verify { names, .. } => {
            for name in context.parsed(names, SnapshotName::parse) {
                let checked =
                    context.session.call_long(Operation::SnapshotVerify { name: name.clone() }).await;
                match checked {
                    Ok(Answer::SnapshotChecked(check)) => {
                        if let Some(wrong) = show_check(&mut context.out, &name, &check)? {
                            context.fail(name.as_str(), &wrong);
                        }
                    }
                    Ok(other) => return Err(Failure::unexpected(&other)),
                    Err(error) => context.fail(name.as_str(), &error),
                }
            }
            Ok(())
        }
    }
}

/// `exacat snapshot ls --offline`, `exacat snapshot verify --offline`
pub(crate) fn offline(
    command: &SnapshotCommand,
    connection: &Connection,
    style: Style,
) -> Result<u8, Failure> {
    let directory = data_directory(connection)?;
    let store = directory.join("store");
    let mut out = Out::new(style);
    let about = |error: Error| Failure::about(directory.display().to_string(), error);
    let mut status = 0;
    match command {
        SnapshotCommand::Ls { .. } => {
            show_list(&mut out, &EmbeddedStore::snapshots_in(&store).map_err(about)?)?;
        }
        SnapshotCommand::Verify { names, .. } => {
            for text in names {
                let checked = SnapshotName::parse(text).and_then(|name| {
                    let mut check = EmbeddedStore::verify_snapshot_in(&store, &name)?;
                    let part = store.join("snapshots").join(name.as_str()).join(COMPANION);
                    if part.is_dir() {
                        check.problems.extend(ElementsBeside::default().check(&part)?);
                    }
                    Ok((name, check))
                });
                let wrong = match checked {
                    Ok((name, check)) => show_check(&mut out, &name, &check)?,
                    Err(error) => Some(error),
                };
                if let Some(wrong) = wrong {
                    out.flush()?;
                    report(Some(text), &wrong, None);
                    status = crate::failure::status_of(wrong.kind);
                }
            }
        }
        _ => return Err(Failure::local("this takes a server")),
    }
    out.flush()?;
    Ok(status)
}

fn hex(digest: u128) -> String {
    format!("{digest:032x}")
}

async fn create(context: &mut Context, name: &str) -> Result<(), Failure> {
    let operation = Operation::SnapshotCreate { name: SnapshotName::parse(name)? };
    match context.call_about(name, operation).await? {
        Answer::Snapshot(snapshot) if context.out.style.json => context.out.json(&json::snapshot(&snapshot)),
        Answer::Snapshot(_) if context.out.style.quiet => Ok(()),
        Answer::Snapshot(taken) => {
            let (entries, revision) = (plural(taken.entries, "entry"), taken.revision.0);
            let elements = taken.elements.map(|of| format!(", values up to record {}", of.revision.0));
            let elements = elements.unwrap_or_default();
            context.out.line(format!("{}: revision {revision}, {entries}{elements}", taken.name))
        }
        other => Err(Failure::unexpected(&other)),
    }
}

fn show_list(out: &mut Out, list: &[Snapshot]) -> Result<(), Failure> {
    if out.style.json {
        return list.iter().try_for_each(|snapshot| out.json(&json::snapshot(snapshot)));
    }
    if list.is_empty() {
        return Ok(());
    }
    let mut table = Table::headed([
        ("NAME", Align::Left),
        ("REVISION", Align::Right),
        ("TAKEN", Align::Left),
        ("ENTRIES", Align::Right),
        ("SIZE", Align::Right),
        ("OWN", Align::Right),
        ("VALUES", Align::Left),
    ]);
    for snapshot in list {
        table.row([
            snapshot.name.to_string(),
            snapshot.revision.0.to_string(),
            human::minute(snapshot.time),
            snapshot.entries.to_string(),
            out.size(u128::from(snapshot.bytes)),
            out.size(u128::from(snapshot.own_bytes)),
            snapshot
                .elements
                .map_or_else(String::new, |of| format!("{} of {}", of.revision.0, human::minute(of.time))),
        ]);
    }
    out.table(&table)?;
    for snapshot in list {
        if let Some(problem) = &snapshot.problem {
            let line = format!("WRONG {}: {}", snapshot.name, out.name(problem));
            out.line(line)?;
        }
    }
    Ok(())
}

/// Shows the result of a check; returns an error if something is wrong.
fn show_check(out: &mut Out, name: &SnapshotName, check: &SnapshotCheck) -> Result<Option<Error>, Failure> {
    if out.style.json {
        out.json(&json::snapshot_check(name.as_str(), check))?;
    } else {
        for problem in &check.problems {
            let line = format!("WRONG {name}: {}", out.name(problem));
            out.line(line)?;
        }
        if check.problems.is_empty() && !out.style.quiet {
            let (runs, changes) = (plural(check.runs, "run"), plural(check.changes, "change"));
            out.line(format!(
                "{name}: {} in {runs} and {changes}, all good",
                plural(check.entries, "entry")
            ))?;
        }
    }
    let wrong = plural(check.problems.len() as u64, "problem");
    Ok((!check.problems.is_empty()).then(|| Error::new(ErrorKind::Corrupt, format!("{wrong} found"))))
}

/// Snapshot that was dropped.
#[derive(Serialize, ToSchema)]
#[schema(as = DroppedSnapshot)]
pub(crate) struct DroppedView<'a> {
    /// Name.
    name: &'a str,
    /// True.
    dropped: bool,
}

/// Data directory that a snapshot was cloned into.
#[derive(Serialize, ToSchema)]
#[schema(as = Clone)]
pub(crate) struct CloneView<'a> {
    /// The snapshot.
    name: &'a str,
    /// The new data directory.
    data: String,
    /// The last change in it.
    revision: u64,
    /// Number of entries.
    entries: u64,
}

/// Catalogue that was restored.
#[derive(Serialize, ToSchema)]
#[schema(as = RestoredCatalogue)]
pub(crate) struct RestoredView {
    /// The last change in it.
    revision: u64,
    /// Time of that change.
    #[schema(format = "date-time")]
    time: String,
    /// Number of entries.
    entries: u64,
    /// Digest of all entries, 32 hex digits.
    digest: String,
    /// Revision of the oldest change in the history.
    oldest: u64,
    /// Values of elements, restored to the same moment, if the snapshot has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<json::SnapshotElementsOut>,
    /// Directory with the replaced copy, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_copy: Option<String>,
}

/// Backup in a directory of backups.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedBackup)]
pub(crate) struct BackupView<'a> {
    /// Name.
    name: &'a str,
    /// The last change in it.
    revision: u64,
    /// Time at which it was taken.
    #[schema(format = "date-time")]
    time: String,
    /// Number of entries.
    entries: u64,
}

/// Directory of backups that was verified.
#[derive(Serialize, ToSchema)]
#[schema(as = CheckedBackups)]
pub(crate) struct VerifiedView<'a> {
    /// Directory of backups.
    directory: &'a str,
    /// Faults; empty if there are none.
    problems: &'a [String],
}

async fn drop_all(context: &mut Context, names: Vec<String>) -> Result<(), Failure> {
    for name in context.parsed(names, SnapshotName::parse) {
        match context.call(Operation::SnapshotDrop { name: name.clone() }).await {
            Ok(Answer::Done { .. }) if context.out.style.json => {
                context.out.json(&DroppedView { name: name.as_str(), dropped: true })?;
            }
            Ok(Answer::Done { .. }) => {}
            Ok(other) => return Err(Failure::unexpected(&other)),
            Err(error) => context.fail(name.as_str(), &error),
        }
    }
    Ok(())
}

// ---- differences ----

async fn diff(context: &mut Context, before: &str, after: Option<&str>) -> Result<(), Failure> {
    let before = SnapshotName::parse(before)?;
    let after = after.map(SnapshotName::parse).transpose()?;
    show_differences(context, (before, after), |_| true).await
}

/// Shows the differences between two snapshots, or a snapshot and now, of which `is_wanted` holds.
pub(super) async fn show_differences(
    context: &mut Context,
    (before, after): (SnapshotName, Option<SnapshotName>),
    is_wanted: impl Fn(&Difference) -> bool,
) -> Result<(), Failure> {
    let operation = Operation::SnapshotDiff { before, after, cursor: Cursor::default(), limit: PAGE_ITEMS };
    let mut counts = [0u64; 4];
    let mut pages = context.pages(operation);
    while let Some(answer) = pages.next().await? {
        let Answer::Differences { items, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        for item in &items {
            let kind = DifferenceKind::of(item);
            if is_wanted(item) {
                counts[kind as usize] += 1;
                show_difference(&mut context.out, kind, item)?;
            }
        }
        // Do not hold earlier lines back.
        context.out.flush()?;
    }
    show_counts(&mut context.out, counts)
}

/// Shows how many differences of each kind there are, if that is asked for.
pub(super) fn show_counts(out: &mut Out, counts: [u64; 4]) -> Result<(), Failure> {
    if !out.style.verbose || out.style.json {
        return Ok(());
    }
    let words = DifferenceKind::NAMES.iter().zip(counts).map(|(kind, count)| format!("{count} {kind}"));
    out.line(words.collect::<Vec<_>>().join(", "))
}

fn show_difference(out: &mut Out, kind: DifferenceKind, item: &Difference) -> Result<(), Failure> {
    let fields = json::changed_fields(item);
    let Some(EntryAt { lfn, .. }) = item.after.as_ref().or(item.before.as_ref()) else { return Ok(()) };
    let from = item.before.as_ref().filter(|_| kind == DifferenceKind::Moved);
    if out.style.json {
        return json::difference(item).map_or(Ok(()), |shown| out.json(&shown));
    }
    show_line(out, kind, (lfn, from.map(|from| &from.lfn)), &fields)
}

/// Shows a difference for a person: the paths after and before, and the fields that changed.
pub(super) fn show_line(
    out: &mut Out,
    kind: DifferenceKind,
    (lfn, from): (&Lfn, Option<&Lfn>),
    fields: &[&str],
) -> Result<(), Failure> {
    let mut line = format!("{:<8} {}", kind.name(), out.name(lfn.as_str()));
    if let Some(from) = from {
        line.push_str(&format!("  from {}", out.name(from.as_str())));
    }
    if !fields.is_empty() {
        line.push_str(&format!("  ({})", fields.join(", ")));
    }
    out.line(line)
}

// ---- clone, restore, backup ----

fn embedded(data: &Path) -> EmbeddedSettings {
    let companion: Arc<dyn Companion> = Arc::new(ElementsBeside::default());
    EmbeddedSettings {
        directory: data.join("store"),
        companion: Some(companion),
        ..EmbeddedSettings::default()
    }
}

/// Makes a data directory, as a server does: for its owner only.
fn make_private(directory: &Path) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| Failure::local(format!("cannot make {}: {error}", directory.display())))
}

/// Makes a history of elements of its own from the part of a snapshot, if it has one.
fn clone_elements(data: &Path, name: &SnapshotName, into: &Path) -> exacat_model::Result<()> {
    let from = data.join("store").join("snapshots").join(name.as_str()).join(COMPANION);
    if !from.is_dir() {
        return Ok(());
    }
    let none = into.to_owned();
    let clone =
        CompanionRestore { from, log_of: none.clone(), present: none.clone(), into: none, until: None };
    ElementsBeside::default().restore(&clone).map(|_| ())
}

/// `exacat clone`
pub(crate) async fn clone(args: CloneArgs, connection: &Connection, style: Style) -> Result<u8, Failure> {
    let data = data_directory(connection)?;
    let name = SnapshotName::parse(&args.name)?;
    let is_there = args.directory.exists();
    make_private(&args.directory)?;
    let into = args.directory.clone();
    if std::fs::read_dir(&into).is_ok_and(|mut names| names.next().is_some()) {
        let error =
            Error::new(ErrorKind::Exists, "it is not empty: a clone needs a data directory of its own");
        return Err(Failure::about(into.display().to_string(), error));
    }
    let store = into.join("store");
    let elements = into.join(COMPANION);
    let cloned = on_blocking_thread(move || {
        // First: a clone without its values must not pass for a whole one.
        clone_elements(&data, &name, &elements)?;
        EmbeddedStore::clone_snapshot(&embedded(&data), &name, &store, &SystemClock)
    })
    .await;
    let cloned = cloned.map_err(|error| {
        let _made = std::fs::remove_dir_all(into.join(COMPANION));
        if !is_there {
            // The directory is empty again.
            let _kept = std::fs::remove_dir(&into);
        }
        Failure::about(&args.name, error)
    })?;
    let mut out = Out::new(style);
    if style.json {
        out.json(&CloneView {
            name: &args.name,
            data: args.directory.display().to_string(),
            revision: cloned.revision.0,
            entries: cloned.entries,
        })?;
    } else if !style.quiet {
        let (entries, shown) = (plural(cloned.entries, "entry"), args.directory.display());
        out.line(format!("{shown}: {entries}, as of revision {} of {}", cloned.revision.0, args.name))?;
        out.line(format!("serve it with: exacat serve --data {shown}"))?;
    }
    out.flush()?;
    Ok(0)
}

/// Parses the end point of a restore.
fn point(until: Option<&str>) -> Result<RestorePoint, Failure> {
    let about = |text: &str, error: Error| Failure::about(format!("--until {text}"), error);
    Ok(match until {
        None => RestorePoint::AsTaken,
        Some(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            let wrong = |_| Error::invalid(format!("not a revision (a number): {text:.40?}"));
            let number = text.parse().map_err(wrong).map_err(|error| about(text, error))?;
            RestorePoint::Revision(Revision(number))
        }
        Some(text) => {
            RestorePoint::Time(parse::time(text, Direction::Past).map_err(|error| about(text, error))?)
        }
    })
}

/// `exacat restore`
pub(crate) async fn restore(args: RestoreArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let data = data_directory(&global.connection)?;
    let point = point(args.until.as_deref())?;
    let from_backups = args.from.contains('/') || args.from == "." || args.from == "..";
    let mut bar = Bar::new(global, "changes");
    let (settings, from) = (embedded(&data), args.from.clone());
    let data_has_elements = data.join(COMPANION).is_dir();
    let restored = if from_backups {
        if args.log.is_some() {
            return Err(Failure::local("--log is for restoring a snapshot: a backup has its log with it"));
        }
        let name = args.backup.as_deref().map(SnapshotName::parse).transpose()?;
        make_private(&data)?;
        let source = BackupSource { directory: PathBuf::from(&from), name };
        on_blocking_thread(move || {
            let restored =
                EmbeddedStore::restore_backup(&settings, &source, point, &SystemClock, &mut |step| {
                    show_step(&mut bar, step);
                });
            bar.end();
            restored
        })
        .await
    } else {
        if args.backup.is_some() {
            let what = format!("--backup is for a directory of backups: write ./{from} if that is one");
            return Err(Failure::local(what));
        }
        let name = SnapshotName::parse(&from).map_err(|error| meant_directory(&from, error))?;
        let log = args.log.clone();
        on_blocking_thread(move || {
            let restored =
                EmbeddedStore::restore(&settings, &name, point, log.as_deref(), &SystemClock, &mut |step| {
                    show_step(&mut bar, step)
                });
            bar.end();
            restored
        })
        .await
    };
    let restored =
        restored.map_err(|error| Failure::about(&args.from, meant_directory(&args.from, error)))?;
    let mut out = Out::new(style);
    show_restored(&mut out, &restored, data_has_elements)?;
    out.flush()?;
    Ok(0)
}

/// Adds advice on how to name a directory of backups, if there is one under the name of a missing
/// snapshot.
fn meant_directory(from: &str, error: Error) -> Error {
    let is_name = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Invalid);
    if !is_name || from.contains('/') || !Path::new(from).is_dir() {
        return error;
    }
    let (kind, why) = (error.kind, error.message);
    Error::new(kind, format!("{why}; to restore from the directory of backups here: exacat restore ./{from}"))
}

fn show_step(bar: &mut Bar, step: &RestoreProgress) {
    match step {
        RestoreProgress::Copying { bytes_done, bytes } => bar.show_bytes(*bytes_done, *bytes),
        RestoreProgress::Reading { revision } => bar.show_text(&format!("read the log up to {}", revision.0)),
    }
}

fn show_restored(out: &mut Out, restored: &Restored, has_elements: bool) -> Result<(), Failure> {
    if out.style.json {
        return out.json(&RestoredView {
            revision: restored.revision.0,
            time: restored.time.to_string(),
            entries: restored.entries,
            digest: hex(restored.digest),
            oldest: restored.oldest.0,
            elements: restored.elements.map(|moment| json::elements_at(moment.revision, moment.time)),
            replaced_copy: restored.replaced_copy.as_ref().map(|path| path.display().to_string()),
        });
    }
    if out.style.quiet {
        return Ok(());
    }
    let entries = plural(restored.entries, "entry");
    out.line(format!("restored: revision {}, of {}, {entries}", restored.revision.0, restored.time))?;
    match restored.elements {
        Some(moment) => out.line(format!(
            "values of elements: restored up to record {}, of {}",
            moment.revision.0, moment.time
        ))?,
        None if has_elements => {
            out.line("values of elements: left as they are, because the source has none")?;
        }
        None => {}
    }
    if let Some(replaced) = &restored.replaced_copy {
        out.line(format!("the replaced copy is in {}: remove it when it is not needed", replaced.display()))?;
    }
    Ok(())
}

/// `exacat backup --ls`, `exacat backup --verify`
pub(crate) async fn backups(args: &BackupArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let directory = args.directory.clone();
    let shown = directory.display().to_string();
    let about = |error: Error| Failure::about(&shown, error);
    let mut out = Out::new(style);
    if args.ls {
        let list =
            on_blocking_thread(move || EmbeddedStore::list_backups(&directory)).await.map_err(about)?;
        let mut table = Table::headed([
            ("NAME", Align::Left),
            ("REVISION", Align::Right),
            ("TAKEN", Align::Left),
            ("ENTRIES", Align::Right),
        ]);
        for backup in &list {
            let (name, revision) = (backup.name.as_str(), backup.revision.0);
            if style.json {
                let (time, entries) = (backup.time.to_string(), backup.entries);
                out.json(&BackupView { name, revision, time, entries })?;
            }
            let minute = human::minute(backup.time);
            table.row([name.to_owned(), revision.to_string(), minute, backup.entries.to_string()]);
        }
        if !style.json && !list.is_empty() {
            out.table(&table)?;
        }
        out.flush()?;
        return Ok(0);
    }
    let mut bar = Bar::new(global, "files");
    let problems = on_blocking_thread(move || {
        let problems = EmbeddedStore::verify_backups(&directory, &mut |step| show_step(&mut bar, step));
        bar.end();
        problems
    });
    let problems = problems.await.map_err(about)?;
    if style.json {
        out.json(&VerifiedView { directory: &shown, problems: &problems })?;
    } else {
        for problem in &problems {
            let line = format!("WRONG {}", out.name(problem));
            out.line(line)?;
        }
        if problems.is_empty() && !style.quiet {
            out.line(format!("{shown}: every file is as it was written"))?;
        }
    }
    out.flush()?;
    if problems.is_empty() {
        return Ok(0);
    }
    let wrong = format!("{} found", plural(problems.len() as u64, "problem"));
    Err(about(Error::new(ErrorKind::Corrupt, wrong)))
}

/// `exacat backup`
pub(crate) async fn backup(context: &mut Context, args: &BackupArgs, global: &Global) -> Result<(), Failure> {
    let directory = std::path::absolute(&args.directory)
        .map_err(|error| Failure::local(format!("{}: {error}", args.directory.display())))?;
    let directory = directory.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::local(format!("{}: the name of the directory is not UTF-8", args.directory.display()))
    })?;
    let operation = Operation::Backup { directory: directory.clone(), cursor: Cursor::default() };
    let mut bar = Bar::new(global, "files");
    let mut last = BackupProgress::default();
    let mut pages = context.pages(operation);
    loop {
        let answer = pages.next().await.map_err(|error| {
            bar.end();
            Failure::about(&directory, error)
        })?;
        let Some(answer) = answer else { break };
        let Answer::BackedUp { progress, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        bar.show_bytes(progress.bytes_done, progress.bytes);
        last = progress;
    }
    bar.end();
    if context.out.style.json {
        return context.out.json(&json::backup(&directory, &last));
    }
    if context.out.style.quiet {
        return Ok(());
    }
    let (name, revision) = (&last.name, last.revision.0);
    if last.files == 0 {
        return context.out.line(format!("{directory}: {name} is there already, nothing changed since"));
    }
    let (files, copied) = (plural(last.files, "file"), context.out.size(u128::from(last.bytes_copied)));
    let line =
        format!("{directory}: {name}, revision {revision}: {files}, {copied} bytes copied, all verified");
    context.out.line(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::Revision;

    #[test]
    fn a_point_is_a_revision_or_a_time() {
        assert_eq!(point(None).unwrap(), RestorePoint::AsTaken);
        assert_eq!(point(Some("123")).unwrap(), RestorePoint::Revision(Revision(123)));
        let time = point(Some("2026-11-21T14:05:00Z")).unwrap();
        assert_eq!(time, RestorePoint::Time(exacat_model::TimeMs(1_795_269_900_000)));
        assert!(matches!(point(Some("2h")).unwrap(), RestorePoint::Time(_)));
        assert!(point(Some("")).is_err() && point(Some("yesterday-ish")).is_err());
    }
}
