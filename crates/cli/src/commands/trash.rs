//! `trash`: removed entries, until they are purged.

use std::collections::{HashMap, HashSet};

use exacat_model::{
    Answer, Cursor, Error, HasRevision, Lfn, OnTimeline, Operation, TimelineTag, TrashId, TrashItem,
};
use exacat_wire::json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::{OrderArgs, SortArg, TrashCommand};
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::ordering::Sorted;
use crate::output::human::{self, plural};
use crate::output::{Align, Table};
use crate::parse;

/// `exacat trash`
pub(crate) async fn trash(context: &mut Context, command: TrashCommand) -> Result<(), Failure> {
    match command {
        TrashCommand::Ls { inside, order } => list(context, inside, &order).await,
        TrashCommand::Restore { items, path: Some(path), to } => {
            restore_part(context, &items, &path, to.as_deref()).await
        }
        TrashCommand::Restore { items, path: None, to } => restore(context, &items, to.as_deref()).await,
        TrashCommand::Purge { items, dry_run: true, .. } => would_purge(context, &items).await,
        TrashCommand::Purge { all: true, yes: false, .. } => Err(Failure::local(
            "everything in the trash ends for good: say --yes too, or look with --dry-run",
        )),
        TrashCommand::Purge { items, all: false, .. } => purge(context, &items).await,
        TrashCommand::Purge { .. } => purge_all(context).await,
    }
}

/// An item of the trash with its timeline and the name of its remover.
type Listed = (TrashItem, String, TimelineTag);

async fn list(context: &mut Context, inside: bool, order: &OrderArgs) -> Result<(), Failure> {
    let mut sorted = Sorted::wanted(order, |key| {
        move |(a, ..): &Listed, (b, ..): &Listed| {
            let bytes = |item: &TrashItem| item.usage.bytes + item.usage.member_bytes;
            let by_key = match key {
                SortArg::Name => a.lfn.cmp(&b.lfn),
                SortArg::Size => bytes(a).cmp(&bytes(b)),
                SortArg::Time => a.removed.cmp(&b.removed),
            };
            by_key.then_with(|| a.id.cmp(&b.id))
        }
    });
    let mut left = order.limit.unwrap_or(u64::MAX);
    let mut headed = false;
    let (cursor, limit) = (Cursor::default(), PAGE_ITEMS);
    let mut pages = context.pages(match inside {
        true => Operation::TrashParts { cursor, limit },
        false => Operation::TrashList { cursor, limit },
    });
    while left > 0
        && let Some(answer) = pages.next().await?
    {
        let Answer::Trash { items, timeline, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        let mut items: Vec<Listed> =
            items.into_iter().map(|(item, who)| (item, who, timeline.tag())).collect();
        match &mut sorted {
            Some(sorted) => sorted.add(items)?,
            None => {
                items.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                left -= items.len() as u64;
                show(context, &items, &mut headed)?;
            }
        }
    }
    match sorted {
        Some(sorted) => show(context, &sorted.end(), &mut headed),
        None => Ok(()),
    }
}

fn show(context: &mut Context, items: &[Listed], headed: &mut bool) -> Result<(), Failure> {
    let out = &mut context.out;
    if out.style.json {
        return items
            .iter()
            .try_for_each(|(item, who, timeline)| out.json(&json::trash(item, who, *timeline)));
    }
    if items.is_empty() {
        return Ok(());
    }
    let mut table = Table::headed([
        ("ID", Align::Left),
        ("REMOVED", Align::Left),
        ("BY", Align::Left),
        ("FILES", Align::Right),
        ("BYTES", Align::Right),
        ("LFN", Align::Left),
    ])
    .headed_once(headed);
    for (item, who, timeline) in items {
        table.row([
            item.id.on(*timeline).to_string(),
            human::minute(item.removed),
            who.clone(),
            item.usage.objects().to_string(),
            out.size(item.usage.bytes + item.usage.member_bytes),
            out.name(item.lfn.as_str()).to_string(),
        ]);
    }
    out.table(&table)
}

/// Calls `look` for every visible item of the trash.
async fn every_item(context: &Context, mut look: impl FnMut(&TrashItem, TimelineTag)) -> Result<(), Failure> {
    let mut pages = context.pages(Operation::TrashList { cursor: Cursor::default(), limit: PAGE_ITEMS });
    while let Some(answer) = pages.next().await? {
        let Answer::Trash { items, timeline, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        items.iter().for_each(|(item, _)| look(item, timeline.tag()));
    }
    Ok(())
}

async fn restore(context: &mut Context, items: &[String], to: Option<&str>) -> Result<(), Failure> {
    let mut names = context.names(items);
    if to.is_some() && names.may_be_several() {
        return Err(Failure::local("--to is for one item: several cannot have one name"));
    }
    let to = to.map(|text| parse::lfn(text).map_err(|error| Failure::about(text, error))).transpose()?;
    while let Some(batch) = names.next_batch().await? {
        let by_name: Vec<Lfn> = batch.iter().filter_map(|text| parse::lfn(text).ok()).collect();
        let latest = latest(context, &by_name).await?;
        for text in batch {
            let id = match parse::lfn(&text) {
                Ok(lfn) => latest.get(&lfn).copied().ok_or_else(|| {
                    Error::not_found("nothing of that name is in the trash, as far as you may see")
                }),
                Err(error) if text.starts_with('/') => Err(error),
                Err(_) => parse::trash_id(&text),
            };
            let restored = match id {
                Ok(id) => context.call(Operation::TrashRestore { id, to: to.clone() }).await,
                Err(error) => Err(error),
            };
            match restored {
                Ok(Answer::Done { revision }) if context.out.style.json => {
                    context.out.json(&json::RestoredOut { item: &text, revision: revision.0 })?;
                }
                Ok(_) => {}
                Err(error) => context.fail(&text, &error),
            }
        }
    }
    Ok(())
}

/// Restores one entry from inside a directory in the trash.
async fn restore_part(
    context: &mut Context,
    items: &[String],
    path: &str,
    to: Option<&str>,
) -> Result<(), Failure> {
    let [item] = items else {
        return Err(Failure::local("--path is for one item: the id that 'trash ls --inside' shows"));
    };
    let lfn = |text: &str| parse::lfn(text).map_err(|error| Failure::about(text, error));
    let (lfn, to) = (lfn(path)?, to.map(lfn).transpose()?);
    let id = parse::trash_id(item).map_err(|error| Failure::about(item, error))?;
    match context.call(Operation::TrashRestorePart { id, lfn, to }).await {
        Ok(Answer::Done { revision }) if context.out.style.json => {
            context.out.json(&json::RestoredOut { item, revision: revision.0 })
        }
        Ok(_) => Ok(()),
        Err(error) => {
            context.fail(path, &error);
            Ok(())
        }
    }
}

/// Finds the item of each name that was removed last.
async fn latest(context: &Context, names: &[Lfn]) -> Result<HashMap<Lfn, OnTimeline<TrashId>>, Failure> {
    let mut latest = HashMap::new();
    let names: HashSet<&Lfn> = names.iter().collect();
    if names.is_empty() {
        return Ok(latest);
    }
    every_item(context, |item, timeline| {
        let id = item.id.on(timeline);
        if names.contains(&item.lfn) {
            latest
                .entry(item.lfn.clone())
                .and_modify(|latest: &mut OnTimeline<TrashId>| *latest = id.max(*latest))
                .or_insert(id);
        }
    })
    .await?;
    Ok(latest)
}

async fn purge(context: &mut Context, items: &[String]) -> Result<(), Failure> {
    let mut names = context.names(items);
    while let Some(batch) = names.next_batch().await? {
        for text in batch {
            match parse::trash_id(&text) {
                Ok(id) => purge_one(context, &text, id).await?,
                Err(error) => context.fail(&text, &error),
            }
        }
    }
    Ok(())
}

/// Item that would be purged.
#[derive(Serialize, ToSchema)]
#[schema(as = WouldPurge)]
pub(crate) struct WouldPurgeView<'a> {
    /// Id of the item.
    id: String,
    /// Former path.
    lfn: &'a str,
    /// True.
    dry_run: bool,
    /// Usage of the item.
    usage: json::UsageOut,
}

/// Shows items that would be purged; without `items`, all of them.
async fn would_purge(context: &mut Context, items: &[String]) -> Result<(), Failure> {
    let mut wanted: HashMap<OnTimeline<TrashId>, String> = HashMap::new();
    let mut names = context.names(items);
    while let Some(batch) = names.next_batch().await? {
        for text in batch {
            match parse::trash_id(&text) {
                Ok(id) => drop(wanted.insert(id, text)),
                Err(error) => context.fail(&text, &error),
            }
        }
    }
    let mut pages = context.pages(Operation::TrashList { cursor: Cursor::default(), limit: PAGE_ITEMS });
    while let Some(answer) = pages.next().await? {
        let Answer::Trash { items: page, timeline, .. } = answer else {
            return Err(Failure::unexpected(&answer));
        };
        for (item, _) in page {
            let id = item.id.on(timeline.tag());
            if !items.is_empty() && wanted.remove(&id).is_none() {
                continue;
            }
            if context.out.style.json {
                let usage = json::usage(&item.usage);
                context.out.json(&WouldPurgeView {
                    id: id.to_string(),
                    lfn: item.lfn.as_str(),
                    dry_run: true,
                    usage,
                })?;
                continue;
            }
            let what = human::usage(&context.out, &item.usage);
            let line = format!("would purge item {id}, {}: {what}", context.out.name(item.lfn.as_str()));
            context.out.line(line)?;
        }
    }
    let mut missing: Vec<String> = wanted.into_values().collect();
    missing.sort();
    for text in missing {
        context.fail(&text, &Error::not_found("no such item in the trash, as far as you may see"));
    }
    Ok(())
}

async fn purge_all(context: &mut Context) -> Result<(), Failure> {
    // Entries removed during the purge are not meant.
    let mut ids = Vec::new();
    every_item(context, |item, timeline| ids.push(item.id.on(timeline))).await?;
    for id in ids {
        purge_one(context, &id.to_string(), id).await?;
    }
    Ok(())
}

/// Purges an item step by step until nothing of it is left.
async fn purge_one(context: &mut Context, text: &str, id: OnTimeline<TrashId>) -> Result<(), Failure> {
    let mut total = 0;
    let mut cursor = Cursor::default();
    loop {
        match context.call(Operation::TrashPurge { id, cursor }).await {
            Ok(Answer::Purged { entries, next }) => {
                total += entries;
                match next {
                    Some(next) => cursor = next,
                    None => break,
                }
            }
            Ok(other) => return Err(Failure::unexpected(&other)),
            Err(error) => {
                context.fail(text, &error);
                return Ok(());
            }
        }
    }
    if context.out.style.json {
        return context.out.json(&json::PurgedOut { id: &id.to_string(), entries: total });
    }
    if context.out.style.verbose {
        return context.out.line(format!("item {text}: {} purged", plural(total, "entry")));
    }
    Ok(())
}
