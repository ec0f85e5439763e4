//! `log` and `changes`: what happened.

use exacat_model::answer::ChangeInfo;
use exacat_model::{Answer, Cursor, Effect, FieldChange, Operation, Replica, Revision};

use crate::args::{ChangesArgs, LogArgs};
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::names_of_ses::SeNames;
use crate::output::human::{self, plural};
use crate::output::{Align, Out, Table, json};
use crate::parse;

/// `exacat log`
pub async fn log(context: &mut Context, args: LogArgs) -> Result<(), Failure> {
    let lfn = parse::lfn(&args.lfn).map_err(|error| Failure::about(&args.lfn, error))?;
    let mut pages = context.pages(Operation::Log { lfn, cursor: Cursor::default(), limit: PAGE_ITEMS });
    loop {
        match pages.next().await.map_err(|error| Failure::about(&args.lfn, error))? {
            Some(Answer::Changes { items, .. }) => show(context, &items, false).await?,
            Some(other) => return Err(Failure::unexpected(&other)),
            None => return Ok(()),
        }
    }
}

/// `exacat changes`
pub async fn changes(context: &mut Context, args: ChangesArgs) -> Result<(), Failure> {
    let under = args
        .under
        .as_deref()
        .map(|text| parse::lfn(text).map_err(|error| Failure::about(text, error)))
        .transpose()?;
    let mut after = match (args.from, args.after.as_str()) {
        (Some(from), _) => Revision(from.saturating_sub(1)),
        (None, "last") => last(context).await?,
        (None, text) => parse::revision(text)?,
    };
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut at_end = false;
    while left > 0 {
        let limit = u32::try_from(left.min(u64::from(PAGE_ITEMS))).unwrap_or(PAGE_ITEMS);
        let ask = Operation::Changes { after, under: under.clone(), limit, wait: args.follow && at_end };
        let answer = context.call(ask).await?;
        let Answer::Changes { items, next, up_to } = answer else { return Err(Failure::unexpected(&answer)) };
        left -= (items.len() as u64).min(left);
        show(context, &items, true).await?;
        at_end = next.is_none();
        if at_end && !args.follow {
            break;
        }
        if at_end {
            context.out.flush()?;
        }
        after = after.max(up_to).max(items.last().map_or(Revision(0), |item| item.change.revision));
    }
    Ok(())
}

/// The revision of the last change.
async fn last(context: &Context) -> Result<Revision, Failure> {
    let ask = Operation::Changes { after: Revision(u64::MAX), under: None, limit: 1, wait: false };
    match context.call(ask).await? {
        Answer::Changes { up_to, .. } => Ok(up_to),
        other => Err(Failure::unexpected(&other)),
    }
}

async fn show(context: &mut Context, items: &[ChangeInfo], paths: bool) -> Result<(), Failure> {
    let ses = context.ses().await?;
    let out = &mut context.out;
    if out.style.json {
        return items.iter().try_for_each(|item| out.json(&json::change(item, &ses)));
    }
    let mut table = Table::new([Align::Right, Align::Left, Align::Left, Align::Left, Align::Left]);
    for item in items {
        let change = &item.change;
        let path = match (&item.lfn, paths) {
            (Some(lfn), true) => format!("{} ", out.name(lfn.as_str())),
            _ => String::new(),
        };
        table.row([
            change.revision.0.to_string(),
            change.time.to_string(),
            item.who.clone(),
            change.effect.name().to_owned(),
            format!("{path}{}", detail(out, &change.effect, &ses)),
        ]);
    }
    out.table(&table)
}

/// What an effect was, in a few words.
fn detail(out: &Out, effect: &Effect, ses: &SeNames) -> String {
    match effect {
        Effect::Created { entry } | Effect::Purged { entry, .. } => {
            format!("{} ({})", out.name(entry.at.name.as_str()), human::brief(out, entry))
        }
        Effect::Updated { fields, .. } => {
            let fields: Vec<String> = fields.iter().map(|change| field(out, change, ses)).collect();
            fields.join(", ")
        }
        Effect::Moved { from, to, .. } => {
            let (old, new) = (out.name(from.name.as_str()), out.name(to.name.as_str()));
            if from.parent == to.parent {
                format!("{old} -> {new}")
            } else {
                format!("directory:{}/{old} -> directory:{}/{new}", from.parent.0, to.parent.0)
            }
        }
        Effect::Removed { lfn, .. } => format!("from {}", out.name(lfn.as_str())),
        Effect::Restored { trash, to, .. } => {
            format!("{} from the trash, item {}", out.name(to.name.as_str()), trash.0.0)
        }
        Effect::Booked { booking, .. } => format!(
            "{} ({}, {})",
            out.name(booking.lfn.as_str()),
            out.size(u128::from(booking.size)),
            plural(booking.pending.len() as u64, "replica")
        ),
        Effect::Committed { at, replica, .. } => {
            format!("{} on {}", out.name(at.name.as_str()), ses.name(replica.se))
        }
        Effect::Released { booking, .. } => out.name(booking.lfn.as_str()).to_string(),
        Effect::Dequeued { se, done } => {
            format!("{} of {}", plural(done.len() as u64, "deletion"), ses.name(*se))
        }
        Effect::Recorded { key, before, after } => {
            let name = after.as_ref().or(before.as_ref()).and_then(|record| json::record_name(record));
            let what = if after.is_none() {
                "dropped"
            } else if before.is_none() {
                "added"
            } else {
                "set"
            };
            format!("{} {} {what}", key.kind().name(), name.unwrap_or_default())
        }
    }
}

fn field(out: &Out, change: &FieldChange, ses: &SeNames) -> String {
    let replica = |replica: &Replica| format!("{} ({})", ses.name(replica.se), replica.state.name());
    match change {
        FieldChange::Owner { before, after } => format!("owner number {} -> {}", before.0, after.0),
        FieldChange::Group { before, after } => format!("group number {} -> {}", before.0, after.0),
        FieldChange::Mode { before, after } => format!("mode {before} -> {after}"),
        FieldChange::Modified { before, after } => format!("modified {before} -> {after}"),
        FieldChange::Expires { before: _, after: None } => "expires never".to_owned(),
        FieldChange::Expires { before: _, after: Some(after) } => format!("expires {after}"),
        FieldChange::Job { before: _, after } => {
            format!("job {}", after.map_or_else(|| "none".to_owned(), |job| job.to_string()))
        }
        FieldChange::Size { after } => format!("size {}", out.size(u128::from(*after))),
        FieldChange::Checksum { after } => format!("checksum {after}"),
        FieldChange::Replica { before, after, .. } => match (before, after) {
            (None, Some(after)) => format!("replica on {}", replica(after)),
            (Some(before), None) => format!("no replica on {} any more", ses.name(before.se)),
            (Some(_), Some(after)) => format!("replica on {}", replica(after)),
            (None, None) => "replica".to_owned(),
        },
        FieldChange::Tag { key, after: Some(after), .. } => {
            out.name(&format!("tag {key}={after}")).to_string()
        }
        FieldChange::Tag { key, after: None, .. } => format!("no tag {key} any more"),
        FieldChange::Member { guid, added: true } => format!("member {guid} added"),
        FieldChange::Member { guid, added: false } => format!("member {guid} taken out"),
    }
}
