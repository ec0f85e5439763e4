//! `log` and `changes`: the history.

use exacat_model::answer::ChangeInfo;
use exacat_model::{
    Answer, At, Cursor, Effect, FieldChange, GroupId, HasRevision, Lfn, LogPosition, Operation, RecordKey,
    Replica, Revision, SeNumber, TimelineId, UserId,
};
use exacat_wire::json;

use super::accounts::ID_DIGITS_SHOWN;
use super::biography::biography;
use crate::args::{ChangesArgs, LogArgs};
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::{Failure, say};
use crate::output::human::{self, plural};
use crate::output::{Align, Out, Table};
use crate::parse;
use exacat_wire::json::SeNames;

/// `exacat log`
pub(crate) async fn log(context: &mut Context, args: LogArgs) -> Result<(), Failure> {
    let lfn = parse::lfn(&args.lfn).map_err(|error| Failure::about(&args.lfn, error))?;
    let mut headed = false;
    if args.full {
        let found = biography(context, &lfn).await?;
        return match found.timeline {
            // The path tells of which directory a line is.
            Some(timeline) => show(context, &found.items, timeline, true, &mut headed).await,
            None => Ok(()),
        };
    }
    let mut pages = context.pages(Operation::Log { lfn, cursor: Cursor::default(), limit: PAGE_ITEMS });
    loop {
        match pages.next().await.map_err(|error| Failure::about(&args.lfn, error))? {
            Some(Answer::Changes { items, timeline, cut, .. }) => {
                if cut {
                    say("exacat: earlier changes of it are not kept in the history");
                }
                show(context, &items, timeline, false, &mut headed).await?;
            }
            Some(other) => return Err(Failure::unexpected(&other)),
            None => return Ok(()),
        }
    }
}

/// `exacat changes`
pub(crate) async fn changes(context: &mut Context, args: ChangesArgs) -> Result<(), Failure> {
    let under = args
        .under
        .as_deref()
        .map(|text| parse::lfn(text).map_err(|error| Failure::about(text, error)))
        .transpose()?;
    let mut after = match (&args.from, args.after.as_str()) {
        (Some(from), _) => {
            let from = from.parse::<LogPosition>()?;
            // Both timelines may have the change before it.
            context.call(Operation::Position { after: from }).await?;
            LogPosition { revision: Revision(from.revision.0.saturating_sub(1)), ..from }
        }
        (None, "last") => last(context).await?,
        (None, text) => text.parse::<LogPosition>()?,
    };
    let mut left = args.limit.unwrap_or(u64::MAX);
    let (mut at_end, mut headed, mut cursor) = (false, false, None);
    while left > 0 {
        let limit = u32::try_from(left.min(u64::from(PAGE_ITEMS))).unwrap_or(PAGE_ITEMS);
        let ask = Operation::Changes { after, under: under.clone(), limit, wait: args.follow && at_end };
        let answer = context.call(ask).await?;
        let Answer::Changes { items, next, up_to, timeline, .. } = answer else {
            return Err(Failure::unexpected(&answer));
        };
        left -= (items.len() as u64).min(left);
        show(context, &items, timeline, true, &mut headed).await?;
        let last = items.last().map_or(Revision(0), |item| item.change.revision);
        let revision = after.revision.max(up_to).max(last);
        cursor = Some(revision.on(timeline.tag()));
        at_end = next.is_none();
        if at_end && !args.follow {
            break;
        }
        if at_end {
            context.out.flush()?;
        }
        after = LogPosition { revision, timeline: Some(timeline.whole()) };
    }
    if let Some(cursor) = cursor
        && !context.out.style.json
        && !context.out.style.quiet
    {
        context.out.flush()?;
        say(&format!("exacat: go on with --after {cursor}"));
    }
    Ok(())
}

/// Returns the storage elements that an effect names.
fn elements_of(effect: &Effect) -> Vec<SeNumber> {
    match effect {
        Effect::Created { entry } | Effect::Purged { entry, .. } => {
            entry.file().map_or_else(Vec::new, |file| file.replicas.iter().map(|one| one.se).collect())
        }
        Effect::Updated { fields, .. } => {
            let named = fields.iter().flat_map(|field| match field {
                FieldChange::Replica { before, after, .. } => [before.as_ref(), after.as_ref()],
                _ => [None, None],
            });
            named.flatten().map(|replica| replica.se).collect()
        }
        Effect::Committed { replica, .. } => vec![replica.se],
        Effect::Released { se, .. } => se.iter().copied().collect(),
        Effect::Dequeued { se, .. } => vec![*se],
        _ => Vec::new(),
    }
}

/// Returns the position after the last change.
async fn last(context: &Context) -> Result<LogPosition, Failure> {
    let ask = Operation::Position { after: Revision(0).into() };
    match context.call(ask).await? {
        Answer::Changes { up_to, timeline, .. } => {
            Ok(LogPosition { revision: up_to, timeline: Some(timeline.whole()) })
        }
        other => Err(Failure::unexpected(&other)),
    }
}

async fn show(
    context: &mut Context,
    items: &[ChangeInfo],
    timeline: TimelineId,
    paths: bool,
    headed: &mut bool,
) -> Result<(), Failure> {
    let ses = context.ses_with(items.iter().flat_map(|item| elements_of(&item.change.effect))).await?;
    let out = &mut context.out;
    if out.style.json {
        return items.iter().try_for_each(|item| out.json(&json::change(item, timeline, &ses)));
    }
    if items.is_empty() {
        return Ok(());
    }
    let mut table = Table::headed([
        ("REVISION", Align::Right),
        ("TIME", Align::Left),
        ("BY", Align::Left),
        ("EFFECT", Align::Left),
        ("WHAT", Align::Left),
    ])
    .headed_once(headed);
    for item in items {
        let change = &item.change;
        let path = match (&item.lfn, paths) {
            (Some(lfn), true) => format!("{} ", out.name(lfn.as_str())),
            _ => String::new(),
        };
        table.row([
            change.revision.0.to_string(),
            human::second(change.time),
            item.who.clone(),
            change.effect.name().to_owned(),
            format!("{path}{}", detail(out, item, &ses)),
        ]);
    }
    out.table(&table)
}

/// Describes an effect in a few words.
fn detail(out: &Out, item: &ChangeInfo, ses: &SeNames) -> String {
    match &item.change.effect {
        Effect::Created { entry } | Effect::Purged { entry, .. } => {
            format!("{} ({})", bare(out, &entry.at), human::brief(out, entry))
        }
        Effect::Updated { fields, .. } => {
            let fields: Vec<String> = fields.iter().map(|change| field(out, change, item, ses)).collect();
            fields.join(", ")
        }
        Effect::Moved { from, to, .. } => {
            if from.parent == to.parent && !from.is_withheld() {
                format!("{} -> {}", out.name(from.name.as_str()), out.name(to.name.as_str()))
            } else {
                format!("{} -> {}", place(out, from, item), place(out, to, item))
            }
        }
        Effect::Removed { lfn, .. } if lfn.is_root() => format!("from {WITHHELD}"),
        Effect::Removed { lfn, .. } => format!("from {}", out.name(lfn.as_str())),
        Effect::Restored { trash, to, .. } => {
            format!("{} from the trash, item {}", place(out, to, item), trash.0.0)
        }
        Effect::Reserved { reservation, .. } => format!(
            "{} ({}, {})",
            out.name(reservation.lfn.as_str()),
            out.size(u128::from(reservation.size)),
            plural(reservation.pending.len() as u64, "replica")
        ),
        Effect::Committed { at, replica, .. } => {
            format!("{} on {}", bare(out, at), ses.name(replica.se))
        }
        Effect::Released { reservation, .. } => out.name(reservation.lfn.as_str()).to_string(),
        Effect::Dequeued { se, done } => {
            format!("{} of {}", plural(done.len() as u64, "deletion"), ses.name(*se))
        }
        Effect::Recorded { key, before, after } => {
            let mut name = after.as_ref().or(before.as_ref()).and_then(|record| json::record_name(record));
            if let (RecordKey::Token(_), Some(name)) = (key, &mut name) {
                name.truncate(ID_DIGITS_SHOWN);
            }
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

/// Stands for a place in a directory that the caller may not read.
const WITHHELD: &str = "(a directory you may not read)";

/// Formats a name in a directory, with the directory's present path.
fn place(out: &Out, at: &At, item: &ChangeInfo) -> String {
    match item.directories.iter().find(|(id, _)| *id == at.parent) {
        _ if at.is_withheld() => WITHHELD.to_owned(),
        Some((_, path)) => {
            let whole = Lfn::from_names(path.components().chain([at.name.as_str()]));
            out.name(whole.as_str()).to_string()
        }
        None => format!("{} (in a directory that is gone)", out.name(at.name.as_str())),
    }
}

/// Formats a name alone.
fn bare(out: &Out, at: &At) -> String {
    if at.is_withheld() { WITHHELD.to_owned() } else { out.name(at.name.as_str()).to_string() }
}

fn field(out: &Out, change: &FieldChange, item: &ChangeInfo, ses: &SeNames) -> String {
    let user = |id: UserId| named(&item.users, id, id.0);
    let group = |id: GroupId| named(&item.groups, id, id.0);
    let replica = |replica: &Replica| format!("{} ({})", ses.name(replica.se), replica.state.name());
    match change {
        FieldChange::Owner { before, after } => format!("owner {} -> {}", user(*before), user(*after)),
        FieldChange::Group { before, after } => format!("group {} -> {}", group(*before), group(*after)),
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

/// Returns the name of an account, among those that came with a change.
fn named<Id: PartialEq>(names: &[(Id, String)], id: Id, number: u32) -> String {
    names
        .iter()
        .find(|(other, _)| *other == id)
        .map_or_else(|| format!("number {number}"), |(_, name)| name.clone())
}
