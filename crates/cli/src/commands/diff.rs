//! `diff`: the differences below a directory between two moments, by snapshots or by the history.

use exacat_catalogue::moments::{Differs, HistoryDifference, Moment, is_below};
use exacat_exchange::compare::revision_at_time;
use exacat_exchange::history_diff::history_diff;
use exacat_model::{Answer, Error, Kind, Lfn, LogPosition, Operation, Revision, Snapshot, SnapshotName};
use exacat_wire::json::{self, DifferenceKind, DifferenceOut};

use super::snapshots::{show_counts, show_differences, show_line};
use crate::args::DiffArgs;
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::{Failure, say};
use crate::output::Out;
use crate::output::human::plural;
use crate::parse;

/// `exacat diff`
pub(crate) async fn diff(context: &mut Context, args: DiffArgs) -> Result<(), Failure> {
    let under = parse::lfn(&args.directory).map_err(|error| Failure::about(&args.directory, error))?;
    let snapshots = match context.call(Operation::SnapshotList).await {
        Ok(Answer::Snapshots(snapshots)) => snapshots,
        Ok(other) => return Err(Failure::unexpected(&other)),
        // A store without snapshots, or a caller who may not see them, has the history.
        Err(_) => Vec::new(),
    };
    let before = moment(context, &args.before, &snapshots).await?;
    let after = moment(context, &args.after, &snapshots).await?;
    match (before, after) {
        (Moment::Snapshot(before, _), Moment::Snapshot(after, _)) => {
            of_snapshots(context, (before, Some(after)), &under).await
        }
        (Moment::Snapshot(before, _), Moment::Now) => of_snapshots(context, (before, None), &under).await,
        (before, after) => {
            let (before, after) = (position(context, before).await?, position(context, after).await?);
            of_history(context, (before, after), &under).await
        }
    }
}

/// Reads a moment, and finds the last change before a time.
async fn moment(context: &Context, text: &str, snapshots: &[Snapshot]) -> Result<Moment, Failure> {
    let moment = Moment::parse(text, snapshots).map_err(|error| Failure::about(text, error))?;
    let Moment::At(time) = moment else { return Ok(moment) };
    let found = revision_at_time(context.session.client(), time).await.map_err(super::exchange::failure)?;
    let revision = found.ok_or_else(|| {
        let what = "the history does not reach back so far: compare with a snapshot";
        Failure::about(text, Error::not_found(what))
    })?;
    Ok(Moment::after(revision.into(), snapshots))
}

/// Returns the place of a moment in the history.
async fn position(context: &Context, moment: Moment) -> Result<LogPosition, Failure> {
    match moment {
        Moment::Snapshot(_, position) | Moment::After(position) => Ok(position),
        // A time was replaced by its last change.
        Moment::At(_) | Moment::Now => {
            match context.call(Operation::Position { after: Revision(0).into() }).await? {
                Answer::Changes { up_to, timeline, .. } => {
                    Ok(LogPosition { revision: up_to, timeline: Some(timeline.whole()) })
                }
                other => Err(Failure::unexpected(&other)),
            }
        }
    }
}

async fn of_snapshots(
    context: &mut Context,
    (before, after): (SnapshotName, Option<SnapshotName>),
    under: &Lfn,
) -> Result<(), Failure> {
    show_differences(context, (before, after), |item| is_below(item, under)).await
}

async fn of_history(
    context: &mut Context,
    (before, after): (LogPosition, LogPosition),
    under: &Lfn,
) -> Result<(), Failure> {
    let compared = history_diff(context.session.client(), (before, after), under).await;
    let mut found = compared.map_err(super::exchange::failure)?;
    learn_kinds(context, &mut found.items).await?;
    let mut counts = [0u64; 4];
    for item in &found.items {
        let kind = match item.differs {
            Differs::Created => DifferenceKind::Created,
            Differs::Changed => DifferenceKind::Changed,
            Differs::Moved => DifferenceKind::Moved,
            Differs::Removed => DifferenceKind::Removed,
        };
        counts[kind as usize] += 1;
        show(&mut context.out, kind, item)?;
    }
    show_counts(&mut context.out, counts)?;
    if found.unplaced > 0 && !context.out.style.quiet {
        context.out.flush()?;
        say(&format!(
            "exacat: {} not shown, which were below directories that are gone now: compare snapshots to see them",
            plural(found.unplaced, "difference")
        ));
    }
    Ok(())
}

/// Asks for the kinds of entries that the changes do not tell.
async fn learn_kinds(context: &Context, items: &mut [HistoryDifference]) -> Result<(), Failure> {
    let mut unknown: Vec<&mut HistoryDifference> =
        items.iter_mut().filter(|item| item.kind.is_none()).collect();
    for batch in unknown.chunks_mut(PAGE_ITEMS as usize) {
        let lfns = batch.iter().map(|item| item.lfn.clone()).collect();
        let Answer::Stats(stats) = context.call(Operation::Stat { lfns, follow: false }).await? else {
            return Err(Failure::local("internal error: the answer to stat is none to that"));
        };
        for (item, stat) in batch.iter_mut().zip(stats) {
            item.kind = stat.ok().filter(|stat| stat.entry.id() == item.id).map(|stat| stat.entry.kind());
        }
    }
    Ok(())
}

fn show(out: &mut Out, kind: DifferenceKind, item: &HistoryDifference) -> Result<(), Failure> {
    let both = matches!(kind, DifferenceKind::Changed | DifferenceKind::Moved);
    if out.style.json {
        return out.json(&DifferenceOut {
            difference: kind.name(),
            lfn: item.lfn.as_str(),
            from: item.from.as_ref().map(Lfn::as_str),
            // An entry that is gone, and of which nothing but its going is known, was mostly a file.
            kind: item.kind.unwrap_or(Kind::File).name(),
            entry: json::entry_id(item.id),
            changed: both.then(|| item.fields.clone()),
        });
    }
    let fields = if both { item.fields.as_slice() } else { &[] };
    show_line(out, kind, (&item.lfn, item.from.as_ref()), fields)
}
