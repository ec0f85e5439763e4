//! `ls` and `stat`: shows entries and everything about them.

use std::collections::VecDeque;

use exacat_model::answer::Stat;
use exacat_model::{Answer, Body, Cursor, Filter, Kind, Lfn, Operation};
use exacat_wire::json;

use crate::args::{LsArgs, OrderArgs, StatArgs};
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::ordering::{self, Sorted};
use crate::output::human::{self, UNKNOWN};
use crate::output::{Align, Table};

/// An entry, and the name to show.
pub(crate) type Named = (String, Stat);

/// `exacat ls`
pub(crate) async fn ls(context: &mut Context, args: LsArgs) -> Result<(), Failure> {
    context.at(&args.past).await?;
    let mut names = context.names_expanded(&args.lfns).await?;
    let wanted = args.recursive || names.may_be_several();
    let mut sections = Sections { wanted, shown: false, long: args.long, order: args.order };
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        let stats = stats(context, lfns, !args.directory).await?;
        // As ls does: first all other entries, then each directory.
        let (directories, others): (Vec<_>, Vec<_>) =
            stats.into_iter().partition(|(_, stat)| !args.directory && stat.entry.kind() == Kind::Directory);
        let others: Vec<Named> = others.into_iter().map(|(asked, stat)| (asked.to_string(), stat)).collect();
        if !others.is_empty() {
            sections.shown = true;
            show(context, others, args.long).await?;
        }
        for (asked, _) in directories {
            list(context, &asked, &mut sections).await?;
            if args.recursive {
                list_below(context, asked, &mut sections).await?;
            }
        }
        context.out.flush()?;
    }
    Ok(())
}

/// Headings of directories, the blank lines between them, and the form of each.
struct Sections {
    wanted: bool,
    shown: bool,
    long: bool,
    order: OrderArgs,
}

impl Sections {
    fn begin(&mut self, context: &mut Context, directory: &Lfn) -> Result<(), Failure> {
        if self.wanted && !context.out.style.json && !context.out.style.null {
            if self.shown {
                context.out.line("")?;
            }
            let heading = format!("{}:", context.out.name(directory.as_str()));
            context.out.line(heading)?;
        }
        self.shown = true;
        Ok(())
    }
}

/// Shows the entries of one directory.
async fn list(context: &mut Context, directory: &Lfn, sections: &mut Sections) -> Result<(), Failure> {
    sections.begin(context, directory)?;
    let (whole, long) = (context.out.style.null && sections.wanted, sections.long);
    let mut sorted = sorted(&sections.order);
    let mut left = sections.order.limit.unwrap_or(u64::MAX);
    let mut pages = context.pages(Operation::List {
        lfn: directory.clone(),
        cursor: Cursor::default(),
        limit: PAGE_ITEMS,
    });
    loop {
        match pages.next().await {
            Ok(Some(Answer::Entries { items, ses, .. })) => {
                context.learn(&ses);
                let named = items.into_iter().map(|stat| {
                    // Without headings, -0 needs whole LFNs.
                    let name = stat.lfn.file_name().filter(|_| !whole);
                    (name.map_or_else(|| stat.lfn.to_string(), |name| name.to_string()), stat)
                });
                match &mut sorted {
                    Some(sorted) => sorted.add(named)?,
                    None => {
                        let mut named: Vec<Named> = named.collect();
                        named.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                        left -= named.len() as u64;
                        show(context, named, long).await?;
                        if left == 0 {
                            return Ok(());
                        }
                    }
                }
            }
            Ok(Some(other)) => return Err(Failure::unexpected(&other)),
            Ok(None) => return show_sorted(context, sorted, long).await,
            Err(error) => {
                context.fail(directory.as_str(), &error);
                return Ok(());
            }
        }
    }
}

/// Shows the entries of all directories below one, each before those in it. Memory is bounded: on
/// the way down, one page of subdirectories per directory.
async fn list_below(context: &mut Context, top: Lfn, sections: &mut Sections) -> Result<(), Failure> {
    let mut way = vec![Subdirectories::of(top)];
    loop {
        let Some(level) = way.last_mut() else { return Ok(()) };
        match level.next(context).await? {
            Ok(Some(directory)) => {
                list(context, &directory, sections).await?;
                way.push(Subdirectories::of(directory));
            }
            Ok(None) => {
                way.pop();
            }
            Err(error) => {
                // A directory that may not be listed was reported when it was listed.
                if error.kind != exacat_model::ErrorKind::Denied {
                    let subject = level.lfn.to_string();
                    context.fail(&subject, &error);
                }
                way.pop();
            }
        }
    }
}

/// Subdirectories of a directory, requested a page at a time. Not a stream, because there may be
/// one for each level of the tree.
struct Subdirectories {
    lfn: Lfn,
    waiting: VecDeque<Lfn>,
    cursor: Option<Cursor>,
}

impl Subdirectories {
    fn of(lfn: Lfn) -> Self {
        Subdirectories { lfn, waiting: VecDeque::new(), cursor: Some(Cursor::default()) }
    }

    /// Returns the next one, or the error of the catalogue.
    async fn next(&mut self, context: &Context) -> Result<exacat_model::Result<Option<Lfn>>, Failure> {
        while self.waiting.is_empty() {
            let Some(cursor) = self.cursor.take() else { return Ok(Ok(None)) };
            let filter = Filter { kinds: vec![Kind::Directory], depth_max: Some(1), ..Filter::default() };
            let find = Operation::Find {
                lfn: self.lfn.clone(),
                filter: Box::new(filter),
                cursor,
                limit: PAGE_ITEMS,
            };
            match context.call(find).await {
                Ok(Answer::Entries { items, next, .. }) => {
                    self.waiting.extend(items.into_iter().map(|stat| stat.lfn));
                    self.cursor = next;
                }
                Ok(other) => return Err(Failure::unexpected(&other)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(self.waiting.pop_front()))
    }
}

/// Makes a sorter for an order that is not the catalogue's.
pub(crate) fn sorted(
    order: &OrderArgs,
) -> Option<Sorted<Named, impl Fn(&Named, &Named) -> std::cmp::Ordering>> {
    Sorted::wanted(order, |key| move |a: &Named, b: &Named| ordering::entries(key, &a.1, &b.1))
}

/// Shows the sorted entries, if there is a sorter.
pub(crate) async fn show_sorted(
    context: &mut Context,
    sorted: Option<Sorted<Named, impl Fn(&Named, &Named) -> std::cmp::Ordering>>,
    long: bool,
) -> Result<(), Failure> {
    match sorted {
        Some(sorted) => show(context, sorted.end(), long).await,
        None => Ok(()),
    }
}

/// Shows entries under the given names.
pub(crate) async fn show(context: &mut Context, items: Vec<Named>, long: bool) -> Result<(), Failure> {
    if context.out.style.json {
        let ses = context.ses().await?;
        return items.iter().try_for_each(|(_, stat)| context.out.json(&json::entry(stat, &ses)));
    }
    if long {
        let mut table = human::long_table();
        for (name, stat) in &items {
            table.row(human::long_row(&context.out, stat, name));
        }
        return context.out.table(&table);
    }
    items.iter().try_for_each(|(name, _)| context.out.name_line(name))
}

/// Returns everything about these entries, with their LFNs; reports failures.
pub(crate) async fn stats(
    context: &mut Context,
    lfns: Vec<Lfn>,
    follow: bool,
) -> Result<Vec<(Lfn, Stat)>, Failure> {
    if lfns.is_empty() {
        return Ok(Vec::new());
    }
    let answer = context.call(Operation::Stat { lfns: lfns.clone(), follow }).await?;
    let Answer::Stats(answers) = answer else { return Err(Failure::unexpected(&answer)) };
    let mut found = Vec::with_capacity(lfns.len());
    context.each(&lfns, answers, Lfn::to_string, |_, asked, stat| {
        found.push((asked.clone(), stat));
        Ok(())
    })?;
    Ok(found)
}

/// `exacat stat`
pub(crate) async fn stat(context: &mut Context, args: StatArgs) -> Result<(), Failure> {
    context.at(&args.past).await?;
    let mut names = context.names_expanded(&args.lfns).await?;
    let mut first = true;
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        let found = stats(context, lfns, args.follow).await?;
        let ses = context.ses().await?;
        for (_, stat) in &found {
            if context.out.style.json {
                context.out.json(&json::entry(stat, &ses))?;
                continue;
            }
            if !std::mem::take(&mut first) {
                context.out.line("")?;
            }
            let table = everything(context, stat, &ses);
            context.out.table(&table)?;
        }
        context.out.flush()?;
    }
    Ok(())
}

/// Makes a table of all fields of an entry, one a line.
fn everything(context: &Context, stat: &Stat, ses: &json::SeNames) -> Table {
    let out = &context.out;
    let entry = &stat.entry;
    let mut table = Table::new([Align::Left, Align::Left]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("lfn", out.name(stat.lfn.as_str()).to_string());
    row("kind", entry.kind().name().to_owned());
    match &entry.body {
        Body::Directory(id) => row("directory", id.0.to_string()),
        Body::File(file) => {
            row("size", file.size.map_or(UNKNOWN.into(), |bytes| out.size(u128::from(bytes))));
            row("guid", file.guid.to_string());
            for checksum in file.checksums.iter() {
                row("checksum", checksum.to_string());
            }
            if let Some(job) = file.job {
                row("job", job.to_string());
            }
            for replica in &file.replicas {
                let shown = json::replica(entry, replica, ses);
                let pfn = out.name(&shown.pfn).to_string();
                row(
                    "replica",
                    format!("{}  {}  {pfn}", shown.se.as_deref().unwrap_or("in archive"), shown.state),
                );
            }
        }
        Body::Collection { guid, members } => {
            row("guid", guid.to_string());
            row("members", members.to_string());
        }
        Body::Link { guid, target } => {
            row("guid", guid.to_string());
            row("target", out.name(target.as_str()).to_string());
        }
    }
    row("owner", stat.owner.to_string());
    row("group", stat.group.to_string());
    row("mode", format!("{} {}", entry.mode, entry.mode.text()));
    row("created", entry.created.to_string());
    row("modified", entry.modified.to_string());
    if let Some(expires) = entry.expires {
        row("expires", expires.to_string());
    }
    for tag in &entry.tags {
        row("tag", out.name(&human::tag(tag)).to_string());
    }
    row("revision", entry.revision.0.to_string());
    table
}
