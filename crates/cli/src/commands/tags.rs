//! `tag`: typed key-value pairs on entries.

use exacat_model::{Answer, Error, Lfn, Operation, Result as ModelResult, TagKey};
use exacat_wire::json;

use crate::args::{AtArgs, Conditions, DuringBy, FindArgs, TagCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Align, Table, human};
use crate::parse;

/// `exacat tag`
pub(crate) async fn tag(context: &mut Context, command: TagCommand) -> Result<(), Failure> {
    match command {
        TagCommand::Set { items } => {
            let (lfns, tags) = split(&items, parse::tag)?;
            if tags.is_empty() {
                return Err(Error::invalid("no tag is given (KEY=VALUE)").into());
            }
            change(context, &lfns, |lfns| Operation::TagSet { lfns, set: tags.clone(), unset: Vec::new() })
                .await
        }
        TagCommand::Rm { items } => {
            let (lfns, keys) = split(&items, TagKey::parse)?;
            if keys.is_empty() {
                return Err(Error::invalid("no tag's key is given").into());
            }
            change(context, &lfns, |lfns| Operation::TagSet { lfns, set: Vec::new(), unset: keys.clone() })
                .await
        }
        TagCommand::Get { items, own } => get(context, &items, own).await,
        TagCommand::Find { directory, expression, pattern, conditions, long, count, order } => {
            let mut tags = vec![expression];
            tags.extend(conditions.tags.iter().cloned());
            let conditions = Conditions { tags, ..*conditions };
            super::find::find(
                context,
                FindArgs {
                    directory,
                    pattern,
                    conditions,
                    long,
                    count,
                    order,
                    during: None,
                    during_by: DuringBy::Created,
                    past: AtArgs::default(),
                },
            )
            .await
        }
    }
}

/// Splits LFNs (and `-`) from tags or keys, which never begin with a slash.
fn split<T>(
    items: &[String],
    parse: impl Fn(&str) -> ModelResult<T>,
) -> Result<(Vec<String>, Vec<T>), Failure> {
    let (lfns, others): (Vec<&String>, Vec<&String>) =
        items.iter().partition(|item| item.starts_with('/') || *item == "-");
    if lfns.is_empty() {
        return Err(Error::invalid("no entry is given: an LFN begins with '/'").into());
    }
    let others = others.into_iter().map(|item| parse(item)).collect::<ModelResult<_>>()?;
    Ok((lfns.into_iter().cloned().collect(), others))
}

async fn change(
    context: &mut Context,
    lfns: &[String],
    operation: impl Fn(Vec<Lfn>) -> Operation,
) -> Result<(), Failure> {
    let mut names = context.names_expanded(lfns).await?;
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        if lfns.is_empty() {
            continue;
        }
        let answer = context.call(operation(lfns.clone())).await?;
        context.done(&lfns, answer, Lfn::to_string)?;
    }
    Ok(())
}

async fn get(context: &mut Context, items: &[String], own: bool) -> Result<(), Failure> {
    let (lfns, keys) = split(items, TagKey::parse)?;
    let mut names = context.names_expanded(&lfns).await?;
    let headings = names.may_be_several();
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        if lfns.is_empty() {
            continue;
        }
        let answer = context.call(Operation::TagGet { lfns: lfns.clone(), own }).await?;
        let Answer::Tags(answers) = answer else { return Err(Failure::unexpected(&answer)) };
        context.each(&lfns, answers, Lfn::to_string, |context, asked, tags| {
            let wanted = tags.iter().filter(|found| keys.is_empty() || keys.contains(&found.tag.key));
            if context.out.style.json {
                for found in wanted {
                    context.out.json(&json::tag(asked, found))?;
                }
                return Ok(());
            }
            if headings {
                let heading = format!("{}:", context.out.name(asked.as_str()));
                context.out.line(heading)?;
            }
            let mut table = Table::new([Align::Left, Align::Left]);
            for found in wanted {
                let from = if found.from == *asked {
                    String::new()
                } else {
                    format!("(from {})", context.out.name(found.from.as_str()))
                };
                let indent = if headings { "  " } else { "" };
                table.row([format!("{indent}{}", context.out.name(&human::tag(&found.tag))), from]);
            }
            context.out.table(&table)
        })?;
        context.out.flush()?;
    }
    Ok(())
}
