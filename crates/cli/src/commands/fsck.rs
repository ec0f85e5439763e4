//! `fsck --offline`: checks a data directory without a server, and repairs it.

use std::path::{Path, PathBuf};

use exacat_history::Checked;
use exacat_model::{Error, ErrorKind};
use exacat_store::SystemClock;
use exacat_store_embedded::{
    COMPANION, EmbeddedSettings, EmbeddedStore, Inspection, RepairOptions, RepairProgress, Repaired,
    on_blocking_thread,
};
use exacat_wire::json;
use serde::Serialize;
use utoipa::ToSchema;

use super::service::audit_text;
use crate::args::{FsckArgs, Global};
use crate::connect::data_directory;
use crate::failure::Failure;
use crate::offline::lock;
use crate::output::human::plural;
use crate::output::{Out, Style};
use crate::progress::Bar;

/// `exacat fsck --offline`
pub(crate) async fn offline(args: FsckArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let directory = data_directory(&global.connection)?;
    let about = |error: Error| Failure::about(directory.display().to_string(), error);
    let store = directory.join("store");
    if !store.is_dir() {
        return Err(about(Error::not_found("no catalogue is here")));
    }
    let _lock = lock(&directory, "stop it, or ask it with 'exacat fsck' without --offline")?;
    let mut out = Out::new(style);
    let shown = match args.repair {
        true => repair(args, store, global, &mut out).await,
        false => {
            let elements = directory.join(COMPANION);
            let inspected = on_blocking_thread(move || {
                let inspected = EmbeddedStore::inspect(&store)?;
                Ok((inspected, check_elements(&elements)?))
            });
            let (inspected, elements) = inspected.await.map_err(about)?;
            show_inspection(&mut out, &inspected, elements.as_ref())
        }
    };
    out.flush()?;
    shown.map(|()| 0)
}

/// Checks the history of elements, if there is one.
fn check_elements(directory: &Path) -> exacat_model::Result<Option<Checked>> {
    directory.is_dir().then(|| exacat_history::check(directory)).transpose()
}

/// History of elements that was checked.
#[derive(Serialize, ToSchema)]
#[schema(as = CheckedElements)]
pub(crate) struct ElementsView<'a> {
    /// Last record of its log.
    revision: u64,
    /// Time of that record.
    #[schema(format = "date-time")]
    time: String,
    /// Groups.
    groups: u64,
    /// Elements of all groups.
    elements: u64,
    /// Sorted runs.
    runs: u64,
    /// Rows in these runs.
    rows: u64,
    /// Segments of the log.
    segments: u64,
    /// Valid records in them.
    records: u64,
    /// Files of an interrupted flush, which opening removes. Not a fault.
    leftovers: u64,
    /// True if the log ends within a commit group, as after a power cut. Not a fault.
    torn: bool,
    /// Faults of files.
    problems: &'a [String],
}

impl<'a> ElementsView<'a> {
    fn of(found: &'a Checked) -> Self {
        ElementsView {
            revision: found.revision.0,
            time: found.time.to_string(),
            groups: found.groups,
            elements: found.elements,
            runs: found.runs,
            rows: found.rows,
            segments: found.segments,
            records: found.records,
            leftovers: found.leftovers,
            torn: found.torn,
            problems: &found.problems,
        }
    }
}

/// Data directory that was inspected.
#[derive(Serialize, ToSchema)]
#[schema(as = Inspection)]
pub(crate) struct InspectionView<'a> {
    #[serde(flatten)]
    audit: json::AuditOut<'a>,
    /// Faults of files.
    problems: &'a [String],
    /// Segments of the log.
    segments: u64,
    /// Valid records in them.
    records: u64,
    /// Sorted runs.
    runs: u64,
    /// Rows in these runs.
    rows: u64,
    /// True if the log ends within a commit group, as after a power cut. Not a fault.
    torn: bool,
    /// True if the log was replayed from its first record, and gives the state of the runs.
    replayed: bool,
    /// History of elements, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<ElementsView<'a>>,
}

/// Shows the result of an inspection; returns an error if something is wrong.
fn show_inspection(out: &mut Out, found: &Inspection, elements: Option<&Checked>) -> Result<(), Failure> {
    let of_elements = elements.map_or(&[] as &[String], |elements| &elements.problems);
    let wrong = found.audit.findings_total + (found.problems.len() + of_elements.len()) as u64;
    if out.style.json {
        out.json(&InspectionView {
            audit: json::AuditOut { revision: found.revision.0, ..json::audit(&found.audit) },
            problems: &found.problems,
            segments: found.segments,
            records: found.records,
            runs: found.runs,
            rows: found.rows,
            torn: found.torn,
            replayed: found.replayed,
            elements: elements.map(ElementsView::of),
        })?;
    } else {
        audit_text(out, &found.audit)?;
        for problem in found.problems.iter().chain(of_elements) {
            let line = format!("WRONG {}", out.name(problem));
            out.line(line)?;
        }
    }
    if wrong > 0 {
        let message =
            format!("{} at revision {}: repair it with --repair", plural(wrong, "finding"), found.revision.0);
        return Err(Error::new(ErrorKind::Corrupt, message).into());
    }
    if !out.style.json && !out.style.quiet {
        out.line(format!("everything agrees at revision {}", found.revision.0))?;
        if let Some(of) = elements {
            let (elements, rows) = (plural(of.elements, "element"), plural(of.rows, "row"));
            let (runs, records) = (plural(of.runs, "run"), plural(of.records, "record"));
            out.line(format!("values of {elements}: {rows} in {runs}, and {records} of the log, all good"))?;
        }
    }
    Ok(())
}

/// `exacat fsck --offline --repair`
async fn repair(args: FsckArgs, store: PathBuf, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let settings = EmbeddedSettings { archive: false, ..EmbeddedSettings::at(store.clone()) };
    let options = RepairOptions { from: args.from, accept_loss: args.accept_loss };
    let mut bar = Bar::new(global, "changes");
    let (from, accept_loss) = (options.from.clone(), options.accept_loss);
    let (data, place) = (store.with_file_name(COMPANION), store.clone());
    let elements = on_blocking_thread(move || repair_elements(&data, &place, from.as_deref(), accept_loss));
    let elements = elements.await.map_err(|error| Failure::about(store.display().to_string(), error))?;
    let repaired = on_blocking_thread(move || {
        let repaired = EmbeddedStore::repair(&settings, &options, &SystemClock, &mut |step| match step {
            RepairProgress::Checking { file } => bar.show_text(&format!("checking {file}")),
            RepairProgress::Reading { revision } => bar.show_text(&format!("change {}", revision.0)),
            RepairProgress::Gathering { rows } => bar.show_text(&plural(*rows, "row")),
        });
        bar.end();
        repaired
    })
    .await;
    let repaired = repaired.map_err(|error| Failure::about(store.display().to_string(), error))?;
    // Both are shown, whatever fails of one.
    let catalogue = show_repaired(out, &repaired, elements.as_ref());
    let remaining = elements.map_or(0, |elements| elements.remaining.len() as u64);
    if remaining > 0 {
        let what = format!("{} of values cannot be repaired so", plural(remaining, "fault"));
        let help =
            "give copies with --from, accept the loss with --accept-loss, or restore a snapshot or a backup";
        return catalogue.and(Err(Error::new(ErrorKind::Corrupt, format!("{what}: {help}")).into()));
    }
    catalogue
}

/// Repairs the history of elements, if there is one. Snapshots and replaced copies may have intact files, and
/// so may another directory.
fn repair_elements(
    data: &Path,
    store: &Path,
    from: Option<&Path>,
    accept_loss: bool,
) -> exacat_model::Result<Option<exacat_history::Repaired>> {
    if !data.is_dir() {
        return Ok(None);
    }
    let mut sources: Vec<PathBuf> =
        from.iter().flat_map(|from| [from.join(COMPANION), from.to_path_buf()]).collect();
    for directory in ["snapshots", "replaced"] {
        // A directory that cannot be listed has no copies.
        let names = std::fs::read_dir(store.join(directory)).into_iter().flatten().flatten();
        sources.extend(names.map(|name| name.path().join(COMPANION)));
    }
    exacat_history::repair(data, &sources, accept_loss).map(Some)
}

/// History of elements that was repaired.
#[derive(Serialize, ToSchema)]
#[schema(as = RepairedElements)]
pub(crate) struct RepairedElementsView<'a> {
    /// Faults of files.
    problems: &'a [String],
    /// Repairs that were done.
    repairs: &'a [String],
    /// Values that are lost, or would be: group, day, and time before which they were written.
    losses: &'a [String],
    /// Faults that are not repaired.
    remaining: &'a [String],
}

/// Data directory that was repaired.
#[derive(Serialize, ToSchema)]
#[schema(as = Repaired)]
pub(crate) struct RepairedView<'a> {
    /// Faults of files.
    problems: &'a [String],
    /// Repair of each fault, done or possible.
    repairs: &'a [String],
    /// The first losses.
    losses: Vec<json::FindingOut<'a>>,
    /// Number of all losses.
    losses_total: u64,
    /// True if the repair was done. Otherwise nothing was changed.
    done: bool,
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
    /// Directory with the replaced copy: the files before the repair.
    #[schema(required)]
    replaced_copy: Option<&'a str>,
    /// History of elements, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<RepairedElementsView<'a>>,
}

/// Shows what was repaired of the history of elements.
fn show_repaired_elements(out: &mut Out, of: &exacat_history::Repaired) -> Result<(), Failure> {
    let lose = if of.remaining.is_empty() { "LOST" } else { "WOULD LOSE" };
    let lines =
        [("WRONG", &of.problems), ("REPAIRED", &of.repairs), (lose, &of.losses), ("REMAINS", &of.remaining)];
    for (word, texts) in lines {
        for text in texts {
            let line = format!("{word} {}", out.name(text));
            out.line(line)?;
        }
    }
    Ok(())
}

fn show_repaired(
    out: &mut Out,
    repaired: &Repaired,
    elements: Option<&exacat_history::Repaired>,
) -> Result<(), Failure> {
    let replaced_copy = repaired.replaced_copy.as_ref().map(|path| path.display().to_string());
    if out.style.json {
        out.json(&RepairedView {
            problems: &repaired.problems,
            repairs: &repaired.repairs,
            losses: json::findings(&repaired.losses),
            losses_total: repaired.losses_total,
            done: repaired.done,
            revision: repaired.revision.0,
            time: repaired.time.to_string(),
            entries: repaired.entries,
            digest: format!("{:032x}", repaired.digest),
            oldest: repaired.oldest.0,
            replaced_copy: replaced_copy.as_deref(),
            elements: elements.map(|of| RepairedElementsView {
                problems: &of.problems,
                repairs: &of.repairs,
                losses: &of.losses,
                remaining: &of.remaining,
            }),
        })?;
    } else {
        if let Some(elements) = elements {
            show_repaired_elements(out, elements)?;
        }
        let would = repaired.losses_total > 0 && !repaired.done;
        let (repair, lose) = if would { ("WOULD REPAIR", "WOULD LOSE") } else { ("REPAIRED", "LOST") };
        for problem in &repaired.problems {
            let line = format!("WRONG {}", out.name(problem));
            out.line(line)?;
        }
        for how in &repaired.repairs {
            let line = format!("{repair} {}", out.name(how));
            out.line(line)?;
        }
        for loss in &repaired.losses {
            let line = format!("{lose} {}: {}: {}", loss.what, out.name(&loss.which), out.name(&loss.detail));
            out.line(line)?;
        }
        let more = repaired.losses_total.saturating_sub(repaired.losses.len() as u64);
        if more > 0 {
            out.line(format!("{lose} {more} more"))?;
        }
    }
    if repaired.losses_total > 0 && !repaired.done {
        let message = "the listed losses are not accepted, so nothing was changed: give a backup that has the data with --from DIR, \
                       or accept them with --accept-loss";
        return Err(Error::new(ErrorKind::Corrupt, message).into());
    }
    if out.style.json || out.style.quiet {
        return Ok(());
    }
    let (entries, revision) = (plural(repaired.entries, "entry"), repaired.revision.0);
    match replaced_copy {
        None => out.line(format!("nothing is wrong: {entries} at revision {revision}")),
        Some(replaced) => {
            out.line(format!(
                "repaired: {entries} at revision {revision}, history from {} on",
                repaired.oldest.0
            ))?;
            let replaced = out.name(&replaced).to_string();
            out.line(format!("the replaced copy is in {replaced}"))
        }
    }
}
