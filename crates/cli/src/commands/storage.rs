//! `se`: storage elements and their content.

use std::collections::HashSet;

use exacat_model::answer::SeUsage;
use exacat_model::operation::SeSettings;
use exacat_model::{AccountName, Answer, Cursor, Error, ErrorKind, Operation, SeName, SeStatus};
use exacat_wire::json;

use super::listing::{self, Named};
use crate::args::{SeCommand, SeOptions};
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::output::human::UNKNOWN;
use crate::output::{Align, Table};
use crate::parse;

/// `exacat se`
pub(crate) async fn se(context: &mut Context, command: SeCommand) -> Result<(), Failure> {
    match command {
        SeCommand::Add { name, number, options } => set(context, &name, number, &options, true).await,
        SeCommand::Set { name, options } => set(context, &name, None, &options, false).await,
        SeCommand::Rm { name } => {
            context.change(&name, Operation::SeDrop { name: SeName::parse(&name)? }).await?;
            Ok(())
        }
        SeCommand::Ls => list(context).await,
        SeCommand::Usage { names } => usage(context, &names).await,
        SeCommand::Files { name, long, limit } => files(context, &name, long, limit).await,
        SeCommand::Deletions { name, limit } => deletions(context, &name, limit).await,
        SeCommand::Deleted { name, ids, dry_run: true } => would_be_deleted(context, &name, &ids).await,
        SeCommand::Deleted { name, ids, .. } => deleted(context, &name, &ids).await,
        SeCommand::Compare(_) => Err(Failure::local("a comparison opens its own sources")),
    }
}

async fn set(
    context: &mut Context,
    text: &str,
    number: Option<u16>,
    options: &SeOptions,
    only_new: bool,
) -> Result<(), Failure> {
    let name = SeName::parse(text)?;
    if !only_new && !all(context).await?.iter().any(|item| item.se.name == name) {
        // Setting would create it: a typing error must not become a storage element.
        return Err(Failure::about(text, Error::not_found("there is no such SE; 'exacat se add' makes one")));
    }
    let qos = match &options.qos {
        Some(labels) => {
            let labels =
                labels.iter().filter(|label| !label.is_empty()).map(|label| AccountName::parse(label));
            Some(labels.collect::<Result<Vec<_>, _>>()?)
        }
        None => None,
    };
    let settings = SeSettings {
        name,
        number,
        prefix: options.prefix.clone(),
        https: options.https.clone(),
        qos,
        status: options.status.as_deref().map(SeStatus::parse).transpose()?,
        distances: options
            .distance
            .iter()
            .map(|text| parse::counted(text, None))
            .collect::<Result<_, _>>()?,
        only_new,
    };
    context.change(text, Operation::SeSet(settings)).await?;
    Ok(())
}

async fn all(context: &Context) -> Result<Vec<SeUsage>, Failure> {
    match context.call(Operation::SeList).await? {
        Answer::Ses(mut list) => {
            list.sort_by(|a, b| a.se.name.cmp(&b.se.name));
            Ok(list)
        }
        other => Err(Failure::unexpected(&other)),
    }
}

async fn list(context: &mut Context) -> Result<(), Failure> {
    let list = all(context).await?;
    if context.out.style.json {
        return list.iter().try_for_each(|item| context.out.json(&json::se(item)));
    }
    let mut table = Table::headed([
        ("NAME", Align::Left),
        ("NO", Align::Right),
        ("STATUS", Align::Left),
        ("QOS", Align::Left),
        ("PREFIX", Align::Left),
    ]);
    for SeUsage { se, .. } in &list {
        let qos: Vec<&str> = se.qos.iter().map(AccountName::as_str).collect();
        table.row([
            se.name.to_string(),
            se.number.0.to_string(),
            se.status.name().to_owned(),
            if qos.is_empty() { UNKNOWN.to_owned() } else { qos.join(",") },
            context.out.name(&se.prefix).to_string(),
        ]);
    }
    context.out.table(&table)
}

async fn usage(context: &mut Context, names: &[String]) -> Result<(), Failure> {
    let list = all(context).await?;
    let mut wanted: Vec<&SeUsage> = list.iter().collect();
    if !names.is_empty() {
        wanted.clear();
        for name in names {
            match list.iter().find(|item| item.se.name.as_str() == name) {
                Some(item) => wanted.push(item),
                None => context.fail(name, &Error::not_found("there is no such SE")),
            }
        }
    }
    if context.out.style.json {
        return wanted.into_iter().try_for_each(|item| context.out.json(&json::se(item)));
    }
    let mut table = Table::headed([
        ("NAME", Align::Left),
        ("REPLICAS", Align::Right),
        ("BYTES", Align::Right),
        ("TO-DELETE", Align::Right),
        ("DELETE-BYTES", Align::Right),
    ]);
    for item in wanted {
        table.row([
            item.se.name.to_string(),
            item.used.replicas.to_string(),
            context.out.size(item.used.replica_bytes),
            item.deletions.replicas.to_string(),
            context.out.size(item.deletions.replica_bytes),
        ]);
    }
    context.out.table(&table)
}

async fn files(context: &mut Context, text: &str, long: bool, limit: Option<u64>) -> Result<(), Failure> {
    let mut left = limit.unwrap_or(u64::MAX);
    let name = SeName::parse(text)?;
    let mut pages = context.pages(Operation::SeFiles { name, cursor: Cursor::default(), limit: PAGE_ITEMS });
    while left > 0
        && let Some(answer) = pages.next().await.map_err(|error| Failure::about(text, error))?
    {
        let Answer::Entries { mut items, ses, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        items.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= items.len() as u64;
        context.learn(&ses);
        let named: Vec<Named> = items.into_iter().map(|stat| (stat.lfn.to_string(), stat)).collect();
        listing::show(context, named, long).await?;
    }
    Ok(())
}

async fn deletions(context: &mut Context, text: &str, limit: Option<u64>) -> Result<(), Failure> {
    let name = SeName::parse(text)?;
    let mut left = limit.unwrap_or(u64::MAX);
    let mut headed = false;
    let mut pages =
        context.pages(Operation::SeDeletions { name, cursor: Cursor::default(), limit: PAGE_ITEMS });
    while left > 0
        && let Some(answer) = pages.next().await.map_err(|error| Failure::about(text, error))?
    {
        let Answer::Deletions { mut items, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        items.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= items.len() as u64;
        if context.out.style.json {
            items.iter().try_for_each(|item| context.out.json(&json::deletion(item)))?;
            continue;
        }
        if items.is_empty() {
            continue;
        }
        let columns = [("ID", Align::Left), ("BYTES", Align::Right), ("URL", Align::Left)];
        let mut table = Table::headed(columns).headed_once(&mut headed);
        for item in &items {
            table.row([
                item.id.to_string(),
                item.size.map_or(UNKNOWN.into(), |bytes| context.out.size(u128::from(bytes))),
                context.out.name(&item.pfn).to_string(),
            ]);
        }
        context.out.table(&table)?;
    }
    Ok(())
}

/// Shows which of these deletions are pending.
async fn would_be_deleted(context: &mut Context, text: &str, ids: &[String]) -> Result<(), Failure> {
    let name = SeName::parse(text)?;
    let mut wanted = HashSet::new();
    let mut names = context.names(ids);
    while let Some(batch) = names.next_batch().await? {
        wanted.extend(context.parsed(batch, parse::deletion_id));
    }
    let mut pages =
        context.pages(Operation::SeDeletions { name, cursor: Cursor::default(), limit: PAGE_ITEMS });
    while !wanted.is_empty()
        && let Some(answer) = pages.next().await.map_err(|error| Failure::about(text, error))?
    {
        let Answer::Deletions { items, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        for item in items.into_iter().filter(|item| wanted.remove(&item.id)) {
            if context.out.style.json {
                context.out.json(&json::deletion(&item))?;
                continue;
            }
            let line = format!("would take off {}: {}", item.id, context.out.name(&item.pfn));
            context.out.line(line)?;
        }
    }
    Ok(())
}

async fn deleted(context: &mut Context, text: &str, ids: &[String]) -> Result<(), Failure> {
    let name = SeName::parse(text)?;
    let mut names = context.names(ids);
    let (mut taken_off, mut nothing) = (false, None);
    while let Some(batch) = names.next_batch().await? {
        let done = context.parsed(batch, parse::deletion_id);
        if done.is_empty() {
            continue;
        }
        let shown: Vec<String> = done.iter().map(ToString::to_string).collect();
        match context.call(Operation::SeDeleted { name: name.clone(), done }).await {
            Ok(_) => {
                taken_off = true;
                shown.iter().try_for_each(|id| context.show_done(id))?;
            }
            // None of these is queued: they were acknowledged before, for example by an interrupted
            // run. Later ones may be queued.
            Err(error) if error.kind == ErrorKind::NotFound => nothing = Some(error),
            Err(error) => return Err(Failure::about(text, error)),
        }
    }
    // None at all: that is no repeated run, but another queue than was meant.
    match nothing {
        Some(error) if !taken_off => Err(Failure::about(text, error)),
        _ => Ok(()),
    }
}
