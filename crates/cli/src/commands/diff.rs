//! `diff`: the differences below a directory between two moments, by snapshots or by the history.

use exacat_exchange::compare::revision_at_time;
use exacat_exchange::history_diff::{Differs, HistoryDifference, history_diff};
use exacat_model::{
    Answer, Error, Kind, Lfn, LogPosition, Operation, Revision, Snapshot, SnapshotName, TimeMs,
};
use exacat_wire::json::{self, DifferenceKind, DifferenceOut};

use super::snapshots::{show_counts, show_differences, show_line};
use crate::args::DiffArgs;
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::{Failure, say};
use crate::output::Out;
use crate::output::human::plural;
use crate::parse;

/// A moment of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Moment {
    /// A snapshot, with its last change.
    Snapshot(SnapshotName, LogPosition),
    /// The state after a change.
    After(LogPosition),
    /// The present state.
    Now,
}

/// Word for the present state.
const NOW: &str = "now";

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

/// Reads a moment: the name of a snapshot, `now`, a revision, or a time.
async fn moment(context: &Context, text: &str, snapshots: &[Snapshot]) -> Result<Moment, Failure> {
    let at = |snapshot: &Snapshot| LogPosition {
        revision: snapshot.revision,
        timeline: snapshot.timeline.map(|timeline| timeline.whole()),
    };
    let usable = |snapshot: &&Snapshot| snapshot.problem.is_none();
    if text == NOW {
        return Ok(Moment::Now);
    }
    if let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.name.as_str() == text) {
        return Ok(Moment::Snapshot(snapshot.name.clone(), at(snapshot)));
    }
    let position = match (text.parse::<LogPosition>(), TimeMs::parse(text)) {
        (Ok(position), _) => position,
        (Err(_), Ok(time)) => {
            let found =
                revision_at_time(context.session.client(), time).await.map_err(super::exchange::failure)?;
            let revision = found.ok_or_else(|| {
                let what = "the history does not reach back so far: compare with a snapshot";
                Failure::about(text, Error::not_found(what))
            })?;
            LogPosition::from(revision)
        }
        (Err(_), Err(_)) => {
            let what = "neither a snapshot (exacat snapshot ls), nor a revision, a time or 'now'";
            return Err(Failure::about(text, Error::not_found(what)));
        }
    };
    // A snapshot of that revision is cheaper, and has the paths of its time.
    let same = snapshots
        .iter()
        .filter(usable)
        .find(|snapshot| position.timeline.is_none() && snapshot.revision == position.revision);
    Ok(match same {
        Some(snapshot) => Moment::Snapshot(snapshot.name.clone(), at(snapshot)),
        None => Moment::After(position),
    })
}

/// Returns the place of a moment in the history.
async fn position(context: &Context, moment: Moment) -> Result<LogPosition, Failure> {
    match moment {
        Moment::Snapshot(_, position) | Moment::After(position) => Ok(position),
        Moment::Now => match context.call(Operation::Position { after: Revision(0).into() }).await? {
            Answer::Changes { up_to, timeline, .. } => {
                Ok(LogPosition { revision: up_to, timeline: Some(timeline.whole()) })
            }
            other => Err(Failure::unexpected(&other)),
        },
    }
}

/// Says whether a difference at `lfn` concerns what is below a directory: it is there, or stands for it.
fn concerns(under: &Lfn, lfn: &Lfn) -> bool {
    under.contains(lfn) || lfn.contains(under)
}

async fn of_snapshots(
    context: &mut Context,
    (before, after): (SnapshotName, Option<SnapshotName>),
    under: &Lfn,
) -> Result<(), Failure> {
    show_differences(context, (before, after), |kind, item| {
        let mut sides = item.before.iter().chain(&item.after);
        match kind {
            DifferenceKind::Changed => sides.any(|side| under.contains(&side.lfn)),
            _ => sides.any(|side| concerns(under, &side.lfn)),
        }
    })
    .await
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
