//! `chmod`, `chown`, `chgrp`, `expire`: attributes of entries, and of everything below them.

use std::collections::BTreeMap;

use exacat_model::answer::Stat;
use exacat_model::operation::Attribute;
use exacat_model::{AccountName, Filter, Kind, Lfn, Mode, Operation};
use serde::Serialize;
use utoipa::ToSchema;

use super::find::FoundEntries;
use super::listing;
use crate::args::{ChgrpArgs, ChmodArgs, ChownArgs, ExpireArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::input::BATCH_NAMES;
use crate::output::human::plural;
use crate::parse::{self, ModeChange};

/// `exacat chmod`
pub(crate) async fn chmod(context: &mut Context, args: ChmodArgs) -> Result<(), Failure> {
    match ModeChange::parse(&args.mode)? {
        ModeChange::Set(mode) => {
            set(context, &args.lfns, args.recursive, Change::All(vec![Attribute::Mode(mode)])).await
        }
        edit => set(context, &args.lfns, args.recursive, Change::Mode(edit)).await,
    }
}

/// `exacat chown`
pub(crate) async fn chown(context: &mut Context, args: ChownArgs) -> Result<(), Failure> {
    let (user, group) = args.owner.split_once(':').unwrap_or((&args.owner, ""));
    let mut attributes = Vec::new();
    if !user.is_empty() {
        attributes.push(Attribute::Owner(AccountName::parse(user)?));
    }
    if !group.is_empty() {
        attributes.push(Attribute::Group(AccountName::parse(group)?));
    }
    if attributes.is_empty() {
        return Err(exacat_model::Error::invalid("not USER, USER:GROUP or :GROUP").into());
    }
    set(context, &args.lfns, args.recursive, Change::All(attributes)).await
}

/// `exacat chgrp`
pub(crate) async fn chgrp(context: &mut Context, args: ChgrpArgs) -> Result<(), Failure> {
    let group = Attribute::Group(AccountName::parse(&args.group)?);
    set(context, &args.lfns, args.recursive, Change::All(vec![group])).await
}

/// `exacat expire`
pub(crate) async fn expire(context: &mut Context, args: ExpireArgs) -> Result<(), Failure> {
    let expires = match args.time.as_str() {
        "never" => None,
        text => Some(parse::time_to_come(text)?),
    };
    set(context, &args.lfns, false, Change::All(vec![Attribute::Expires(expires)])).await
}

/// Attributes to set.
enum Change {
    /// The same for all.
    All(Vec<Attribute>),
    /// A mode that depends on the present one.
    Mode(ModeChange),
}

impl Change {
    /// Returns the new mode of an entry, if it changes.
    fn mode(&self, stat: &Stat) -> Option<Mode> {
        match self {
            Change::All(attributes) => attributes.iter().find_map(|attribute| match attribute {
                Attribute::Mode(mode) => Some(*mode),
                _ => None,
            }),
            Change::Mode(edit) => Some(edit.apply(stat.entry.mode, stat.entry.kind() == Kind::Directory)),
        }
    }

    /// Says whether it closes a directory for its owner, so that entries below must come first.
    fn closes(&self, stat: &Stat) -> bool {
        const OWNER_READS_AND_PASSES: u16 = 0o500;
        stat.entry.kind() == Kind::Directory
            && self
                .mode(stat)
                .is_some_and(|mode| stat.entry.mode.bits() & !mode.bits() & OWNER_READS_AND_PASSES != 0)
    }
}

/// Number of entries that were set.
#[derive(Serialize, ToSchema)]
#[schema(as = AttributesSet)]
pub(crate) struct SetView {
    /// Number of entries that have the new attributes.
    set: u64,
}

/// Sets attributes of the entries named, and if `recursive` of everything below, with a count at
/// the end.
async fn set(
    context: &mut Context,
    names: &[String],
    recursive: bool,
    change: Change,
) -> Result<(), Failure> {
    let mut names = context.names_expanded(names).await?;
    let mut total = 0;
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        if !recursive && let Change::All(attributes) = &change {
            total += set_same(context, lfns, attributes.clone()).await?;
            continue;
        }
        for (asked, mut stat) in listing::stats(context, lfns, false).await? {
            stat.lfn = asked.clone();
            let below = recursive && stat.entry.kind() == Kind::Directory;
            if below && change.closes(&stat) {
                total += set_below(context, &asked, &change).await?;
                total += set_each(context, vec![stat], &change).await?;
                continue;
            }
            total += set_each(context, vec![stat], &change).await?;
            if below {
                total += set_below(context, &asked, &change).await?;
            }
        }
    }
    if context.out.style.json {
        context.out.json(&SetView { set: total })?;
    } else if recursive && !context.out.style.quiet {
        context.out.line(format!("{} set", plural(total, "entry")))?;
    }
    Ok(())
}

/// Sets attributes of everything below a directory, in the order of find. Links have no attributes
/// that matter and are left alone, as in chmod -R. Directories that will be closed wait to the end,
/// the deepest first: only their names are held in memory.
async fn set_below(context: &mut Context, top: &Lfn, change: &Change) -> Result<u64, Failure> {
    let kinds = vec![Kind::Directory, Kind::File, Kind::Collection];
    let mut found = FoundEntries::below(context, top.clone(), Filter { kinds, ..Filter::default() }, None);
    let mut total = 0;
    let mut closing: Vec<(Lfn, Mode)> = Vec::new();
    while let Some(items) = found.next(context).await? {
        let (later, now): (Vec<Stat>, Vec<Stat>) = items.into_iter().partition(|stat| change.closes(stat));
        closing.extend(later.into_iter().filter_map(|stat| Some((stat.lfn.clone(), change.mode(&stat)?))));
        total += set_each(context, now, change).await?;
    }
    while !closing.is_empty() {
        let (_, mode) = closing[closing.len() - 1];
        let mut lfns = Vec::new();
        while lfns.len() < BATCH_NAMES && closing.last().is_some_and(|(_, next)| *next == mode) {
            lfns.extend(closing.pop().map(|(lfn, _)| lfn));
        }
        total += set_same(context, lfns, vec![Attribute::Mode(mode)]).await?;
    }
    Ok(total)
}

/// Sets attributes of entries in any order; those with the same new mode together.
async fn set_each(context: &mut Context, stats: Vec<Stat>, change: &Change) -> Result<u64, Failure> {
    let edit = match change {
        Change::All(attributes) => {
            let lfns = stats.into_iter().map(|stat| stat.lfn).collect();
            return set_same(context, lfns, attributes.clone()).await;
        }
        Change::Mode(edit) => edit,
    };
    let mut by_mode: BTreeMap<Mode, Vec<Lfn>> = BTreeMap::new();
    for stat in stats {
        let mode = edit.apply(stat.entry.mode, stat.entry.kind() == Kind::Directory);
        by_mode.entry(mode).or_default().push(stat.lfn);
    }
    let mut total = 0;
    for (mode, lfns) in by_mode {
        total += set_same(context, lfns, vec![Attribute::Mode(mode)]).await?;
    }
    Ok(total)
}

async fn set_same(context: &mut Context, lfns: Vec<Lfn>, attributes: Vec<Attribute>) -> Result<u64, Failure> {
    if lfns.is_empty() {
        return Ok(0);
    }
    let answer = context.call(Operation::SetAttributes { lfns: lfns.clone(), attributes }).await?;
    context.count_done(&lfns, answer, Lfn::to_string)
}
