//! `collection` and `archive`: files that belong together.

use exacat_model::operation::FileRef;
use exacat_model::{Answer, Cursor, Operation};
use exacat_wire::json;

use super::listing::{self, Named};
use crate::args::{ArchiveCommand, CollectionCommand};
use crate::context::{Context, PAGE_ITEMS, file_text};
use crate::failure::Failure;
use crate::output::human;
use crate::output::human::UNKNOWN;
use crate::parse;

/// `exacat collection`
pub(crate) async fn collection(context: &mut Context, command: CollectionCommand) -> Result<(), Failure> {
    match command {
        CollectionCommand::Create { lfn, tags } => {
            let create = Operation::CollectionCreate {
                lfn: parse::lfn(&lfn).map_err(|error| Failure::about(&lfn, error))?,
                tags: tags.iter().map(|text| parse::tag(text)).collect::<Result<_, _>>()?,
            };
            context.change(&lfn, create).await?;
            Ok(())
        }
        CollectionCommand::Add { lfn, files } => edit(context, &lfn, &files, true).await,
        CollectionCommand::Rm { lfn, files } => edit(context, &lfn, &files, false).await,
        CollectionCommand::Ls { lfn, long, limit } => members(context, &lfn, long, limit).await,
    }
}

async fn edit(context: &mut Context, text: &str, files: &[String], adding: bool) -> Result<(), Failure> {
    let lfn = parse::lfn(text).map_err(|error| Failure::about(text, error))?;
    let (mut came, mut went) = (0, 0);
    let mut names = context.names(files);
    while let Some(batch) = names.next_batch().await? {
        let files = context.files(batch);
        if files.is_empty() {
            continue;
        }
        let (add, remove) = if adding { (files, Vec::new()) } else { (Vec::new(), files) };
        let answer =
            context.call_about(text, Operation::CollectionEdit { lfn: lfn.clone(), add, remove }).await?;
        let Answer::CollectionEdited { added, removed, refused } = answer else {
            return Err(Failure::unexpected(&answer));
        };
        came += added;
        went += removed;
        for (file, error) in refused {
            context.fail(&file_text(&file), &error);
        }
    }
    if context.out.style.json {
        return context.out.json(&json::EditedOut { lfn: lfn.as_str(), added: came, removed: went });
    }
    if context.out.style.verbose {
        let (count, what) = if adding { (came, "added") } else { (went, "taken out") };
        return context.out.line(format!("{} {what}", human::plural(count, "file")));
    }
    Ok(())
}

async fn members(context: &mut Context, text: &str, long: bool, limit: Option<u64>) -> Result<(), Failure> {
    let mut left = limit.unwrap_or(u64::MAX);
    let lfn = parse::lfn(text).map_err(|error| Failure::about(text, error))?;
    let mut pages =
        context.pages(Operation::CollectionMembers { lfn, cursor: Cursor::default(), limit: PAGE_ITEMS });
    while left > 0
        && let Some(answer) = pages.next().await.map_err(|error| Failure::about(text, error))?
    {
        let Answer::Members { mut items, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        items.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= items.len() as u64;
        if context.out.style.json {
            let ses = context.ses().await?;
            items.iter().try_for_each(|item| context.out.json(&json::member(item, &ses)))?;
        } else if long {
            let mut table = human::long_table();
            for item in &items {
                table.row(match &item.stat {
                    Some(stat) => human::long_row(&context.out, stat, stat.lfn.as_str()),
                    None => {
                        let mut row = vec![UNKNOWN.to_owned(); human::LONG.len() - 1];
                        row.push(item.guid.to_string());
                        row
                    }
                });
            }
            context.out.table(&table)?;
        } else {
            for item in &items {
                match &item.stat {
                    Some(stat) => context.out.name_line(stat.lfn.as_str())?,
                    None => context.out.line(item.guid)?,
                }
            }
        }
    }
    Ok(())
}

/// `exacat archive`
pub(crate) async fn archive(context: &mut Context, command: ArchiveCommand) -> Result<(), Failure> {
    let ArchiveCommand::Ls { archive: text, under, long, limit } = command;
    let mut left = limit.unwrap_or(u64::MAX);
    let archive = parse::file(&text).map_err(|error| Failure::about(&text, error))?;
    let under = match (under, &archive) {
        (Some(under), _) => parse::lfn(&under).map_err(|error| Failure::about(&under, error))?,
        (None, FileRef::Lfn(lfn)) => lfn.parent().unwrap_or_else(exacat_model::Lfn::root),
        (None, FileRef::Guid(_)) => exacat_model::Lfn::root(),
    };
    let mut pages = context.pages(Operation::ArchiveMembers {
        archive,
        under,
        cursor: Cursor::default(),
        limit: PAGE_ITEMS,
    });
    while left > 0
        && let Some(answer) = pages.next().await.map_err(|error| Failure::about(&text, error))?
    {
        let Answer::Entries { mut items, ses, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        items.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= items.len() as u64;
        context.learn(&ses);
        let named: Vec<Named> = items.into_iter().map(|stat| (stat.lfn.to_string(), stat)).collect();
        listing::show(context, named, long).await?;
        context.out.flush()?;
    }
    Ok(())
}
