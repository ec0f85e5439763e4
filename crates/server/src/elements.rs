//! Operations on elements: the history answers them, after the catalogue has judged the caller's rights.

use std::sync::Arc;
use std::time::Duration;

use exacat_activity::{RequestState, at_work, handed};
use exacat_catalogue::{Caller, Catalogue, ElementAccess};
use exacat_history::{Batch, ELEMENTS_MAX_DEFAULT, Group, History, HistoryFigures, Ingest};
use exacat_model::element::{ElementRows, GroupChange};
use exacat_model::limits::{HISTORY_FIELDS_MAX, PAGE_ITEMS_MAX, READ_BATCH_MAX};
use exacat_model::{Answer, Audit, Error, ErrorKind, FieldRef, GroupName, GroupSettings, Operation, Result};
use exacat_store::Sample;
use exacat_wire::influx::canonical_series;

use crate::metric_table as table;

/// Carries an operation out.
pub(crate) async fn execute(
    catalogue: &Catalogue,
    history: &Arc<History>,
    caller: &Caller,
    operation: Operation,
) -> Result<Answer> {
    let group_for = |name: &GroupName, access: ElementAccess| {
        let group = history.group(name)?;
        catalogue.check_elements(caller, &group.settings(), access)?;
        Ok::<_, Error>(group)
    };
    let done = || Ok(Answer::Done { revision: catalogue.store().seen_revision() });
    match operation {
        Operation::ElementGroups => {
            let groups = history.groups();
            let may_read = |group: &&Arc<Group>| {
                catalogue.check_elements(caller, &group.settings(), ElementAccess::Read).is_ok()
            };
            Ok(Answer::ElementGroups(groups.iter().filter(may_read).map(|group| group.counts()).collect()))
        }
        Operation::ElementGroupSet { group, change } => {
            set_group(catalogue, history, caller, group, *change).await?;
            done()
        }
        Operation::ElementGroupDrop { group } => {
            group_for(&group, ElementAccess::Own)?;
            drop_group(history, caller, group).await?;
            done()
        }
        Operation::ElementWrite { group, rows } => {
            write(history, &group_for(&group, ElementAccess::Write)?, rows).await
        }
        Operation::ElementList { of, cursor, limit } => {
            let group = group_for(&of.group, ElementAccess::Read)?;
            apart(move || {
                let (items, next) = group.element_page(&of.pattern, &cursor, page(limit))?;
                Ok(Answer::Elements { items, next })
            })
            .await
        }
        Operation::ElementValues { of, at, fields, cursor, limit } => {
            let group = group_for(&of.group, ElementAccess::Read)?;
            let read = move || {
                let (items, next) = group.value_page(&of.pattern, at, &fields, (&cursor, page(limit)))?;
                Ok(Answer::ElementValues { items, next })
            };
            // The latest values of a few elements are in memory.
            if at.is_none() && limit > 0 && limit <= AT_ONCE { read() } else { apart(read).await }
        }
        Operation::ElementRows { of, times, fields, cursor, limit } => {
            let group = group_for(&of.group, ElementAccess::Read)?;
            apart(move || {
                let (items, next) = group.row_page(&of.pattern, times, &fields, (&cursor, page(limit)))?;
                Ok(Answer::ElementRows { items, next })
            })
            .await
        }
        Operation::ElementAggregates { of, times, by, cursor, limit } => {
            let group = group_for(&of.group, ElementAccess::Read)?;
            apart(move || {
                let (items, next) = group.aggregate_page(&of.pattern, times, &by, (&cursor, page(limit)))?;
                Ok(Answer::ElementAggregates { items, next })
            })
            .await
        }
        other => Err(Error::new(ErrorKind::Internal, format!("{} is not about elements", other.name()))),
    }
}

/// Time that a write waits to become durable. A disk without space for runs holds writes up.
const DURABLE_TIME: Duration = Duration::from_secs(30);

/// Makes the rows of a batch durable. Beyond [`DURABLE_TIME`] the outcome is unknown: to send the rows again
/// is harmless.
pub(crate) async fn commit(history: &History, batch: Batch) -> Result<()> {
    match tokio::time::timeout(DURABLE_TIME, history.commit(batch)).await {
        Ok(done) => done,
        Err(_) => Err(Error::new(
            ErrorKind::Unknown,
            format!("the rows are not durable after {DURABLE_TIME:?}, and may become so: send them again"),
        )),
    }
}

/// Elements whose latest values the thread of the connection reads itself.
const AT_ONCE: u32 = 16;

/// Returns the items of a page.
fn page(limit: u32) -> usize {
    match limit as usize {
        0 => PAGE_ITEMS_MAX,
        limit => limit.min(PAGE_ITEMS_MAX),
    }
}

/// Works on a thread that may wait for the disk.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let task = handed(|activity| {
        tokio::task::spawn_blocking(move || at_work(activity, RequestState::Execute, work))
    });
    task.await.map_err(|_| internal())?
}

fn internal() -> Error {
    Error::new(ErrorKind::Internal, "internal error: the work on elements ended")
}

/// Makes a group or changes its settings, in a task of its own: the change must not be dropped in the middle
/// because the client has gone.
pub(crate) async fn set_group(
    catalogue: &Catalogue,
    history: &Arc<History>,
    caller: &Caller,
    name: GroupName,
    change: GroupChange,
) -> Result<()> {
    let new = match history.group(&name) {
        Ok(group) => {
            catalogue.check_elements(caller, &group.settings(), ElementAccess::Own)?;
            None
        }
        Err(_) => {
            catalogue.check_new_elements(caller)?;
            let new = GroupSettings::new(name.clone(), ELEMENTS_MAX_DEFAULT, history.now());
            Some(GroupSettings { owner: caller.name().cloned(), ..new })
        }
    };
    for owner in change.readers.iter().chain(&change.writers).flatten() {
        catalogue.account_of(owner)?;
    }
    let history = Arc::clone(history);
    // What the change leaves out is that of the settings in force, which another change may just have made.
    let apply = move |known: Option<GroupSettings>| match known.or(new) {
        Some(settings) => Ok(change.apply(settings)),
        None => Err(Error::not_found("the group was dropped meanwhile")),
    };
    let work = tokio::spawn(async move { history.change_group(&name, apply).await });
    work.await.map_err(|_| internal())?.map(|_| ())
}

/// Removes a group, in a task of its own.
pub(crate) async fn drop_group(history: &Arc<History>, caller: &Caller, name: GroupName) -> Result<()> {
    let (history, dropped) = (Arc::clone(history), name.clone());
    let work = tokio::spawn(async move { history.drop_group(&dropped).await });
    work.await.map_err(|_| internal())??;
    tracing::warn!(group = %name, user = ?caller.name(), "a group of elements was dropped");
    Ok(())
}

/// Writes rows. Those that the group cannot take are counted, and the others are written.
async fn write(history: &Arc<History>, group: &Arc<Group>, rows: Vec<ElementRows>) -> Result<Answer> {
    if rows.len() > READ_BATCH_MAX {
        return Err(Error::limit("the number of elements in a request", rows.len(), READ_BATCH_MAX));
    }
    for of in &rows {
        check_form(of)?;
    }
    let now = history.now_ns();
    let (mut place, mut written, mut refused, mut reason) = ((0, 0), 0, 0, None::<String>);
    let rows = Arc::new(rows);
    while place.0 < rows.len() {
        let (group, all) = (Arc::clone(group), Arc::clone(&rows));
        let turned = move || {
            let mut ingest = Ingest::new(&group, now);
            let (mut refused, mut reason, mut key) = (0, None, String::new());
            while let Some(of) = all.get(place.0).filter(|_| !ingest.is_full()) {
                key.clear();
                let canonical = canonical_series(&of.key, &mut key).map_err(|reason| reason.to_string());
                while place.1 < of.times.len() && !ingest.is_full() {
                    let fields: Vec<(&str, FieldRef<'_>)> = of.row(place.1).collect();
                    let done = match &canonical {
                        Ok(()) if fields.is_empty() => Err("a row without a value".to_owned()),
                        Ok(()) => {
                            ingest.named(&key, &fields, of.times[place.1]).map_err(|error| error.message)
                        }
                        Err(reason) => Err(format!("bad key {:.200?}: {reason}", of.key)),
                    };
                    if let Err(why) = done {
                        refused += 1;
                        reason.get_or_insert(why);
                    }
                    place.1 += 1;
                }
                if place.1 == of.times.len() {
                    place = (place.0 + 1, 0);
                }
            }
            Ok((ingest.finish(), place, refused, reason))
        };
        let (batch, next, more, why) = apart(turned).await?;
        (place, refused, reason) = (next, refused + more, reason.or(why));
        written += u64::from(batch.count());
        commit(history, batch).await?;
    }
    Ok(Answer::ElementsWritten { rows: written, refused, reason })
}

/// Refuses rows whose columns do not fit their times.
fn check_form(rows: &ElementRows) -> Result<()> {
    let key = &rows.key;
    if rows.columns.len() > HISTORY_FIELDS_MAX {
        return Err(Error::limit("the number of fields of a row", rows.columns.len(), HISTORY_FIELDS_MAX));
    }
    match rows.columns.iter().find(|column| column.values.len() != rows.times.len()) {
        None => Ok(()),
        Some(column) => Err(Error::invalid(format!(
            "{key:.200}: {} times, and {} values of the field {:.100}",
            rows.times.len(),
            column.values.len(),
            column.field
        ))),
    }
}

/// Reads all runs of the history, and adds what it finds to an audit of the catalogue.
pub(crate) async fn check(history: Arc<History>, audit: &mut Audit) -> Result<()> {
    let found = apart(move || Ok(history.check_runs())).await?;
    let counts =
        [("elements", found.elements), ("runs of elements", found.runs), ("rows of elements", found.rows)];
    audit.checked.extend(counts.map(|(what, count)| (what.to_owned(), count)));
    for problem in found.problems {
        let (which, detail) = problem.split_once(": ").unwrap_or(("", &problem));
        audit.find("run of elements", which, detail);
    }
    Ok(())
}

/// Returns the metrics of the history.
pub(crate) fn samples(figures: &HistoryFigures) -> Vec<Sample> {
    vec![
        table::ELEMENT_ROWS.is(figures.rows),
        table::ELEMENT_BATCHES.is(figures.batches),
        table::ELEMENT_SYNCS.is(figures.syncs),
        table::ELEMENT_LOG.is(figures.log_bytes),
        table::ELEMENT_SYNC_TIME.is(figures.sync_us),
        table::ELEMENT_STALL_TIME.is(figures.stall_us),
        table::ELEMENT_REFUSED.is(figures.refused),
        table::ELEMENT_QUEUED.is(figures.queued_bytes),
        table::ELEMENT_FLUSHES.is(figures.flushes),
        table::ELEMENT_FLUSHES_WAITING.is(figures.flushes_waiting),
        table::ELEMENT_PROBLEMS.is(figures.problems.len() as u64),
        table::ELEMENT_GROUPS.is(figures.groups),
        table::ELEMENT_GROUPS_NEARLY_FULL.is(figures.nearly_full.len() as u64),
        table::ELEMENTS.is(figures.elements),
        table::ELEMENT_MEMORY.is(figures.rows_in_memory),
        table::ELEMENT_RUNS.is(figures.runs),
        table::ELEMENT_RUN_ROWS.is(figures.run_rows),
        table::ELEMENT_RUN_BYTES.is(figures.run_bytes),
        table::ELEMENT_ARCHIVED_DAYS.is(figures.archived_days),
        table::ELEMENT_ARCHIVED_ROWS.is(figures.archived_rows),
        table::ELEMENT_ARCHIVE_FAILURES.is(figures.archive_failures),
    ]
}
