//! `whereis`, `lfn` and `du`: short questions about many names.

use std::cmp::Ordering;

use exacat_model::{AccountName, Answer, Guid, Lfn, Operation, Usage};
use exacat_wire::json;

use crate::args::{DuArgs, LfnArgs, OrderArgs, SortArg, WhereisArgs};
use crate::context::{Context, file_text};
use crate::failure::Failure;
use crate::ordering::Sorted;
use crate::output::human::UNKNOWN;
use crate::output::{Align, Table};

/// `exacat whereis`
pub(crate) async fn whereis(context: &mut Context, args: WhereisArgs) -> Result<(), Failure> {
    context.at(&args.past).await?;
    let site = args.site.as_deref().map(AccountName::parse).transpose()?;
    let mut names = context.names_expanded(&args.files).await?;
    let headings = names.may_be_several();
    while let Some(batch) = names.next_batch().await? {
        let files = context.files(batch);
        if files.is_empty() {
            continue;
        }
        let answer = context.call(Operation::Whereis { files: files.clone(), site: site.clone() }).await?;
        let Answer::Whereis(answers) = answer else { return Err(Failure::unexpected(&answer)) };
        context.each(&files, answers, file_text, |context, asked, found| {
            if context.out.style.json {
                return context.out.json(&json::whereis(asked, &found));
            }
            if args.best {
                let best =
                    found.replicas.iter().map(|replica| replica.pfn.as_str()).find(|pfn| !pfn.is_empty());
                return match best {
                    Some(pfn) => context.out.name_line(pfn),
                    None => {
                        let error = exacat_model::Error::not_found("no replica of it can be read");
                        context.fail(&file_text(asked), &error);
                        Ok(())
                    }
                };
            }
            if headings {
                let heading = format!("{}:", context.out.name(&file_text(asked)));
                context.out.line(heading)?;
            }
            let indent = if headings { "  " } else { "" };
            let mut table = Table::new([Align::Left; 3]);
            for replica in &found.replicas {
                let se = replica.se.as_ref().map_or(UNKNOWN.into(), ToString::to_string);
                table.row([
                    format!("{indent}{se}"),
                    replica.state.name().to_owned(),
                    context.out.name(&replica.pfn).to_string(),
                ]);
            }
            context.out.table(&table)
        })?;
        context.out.flush()?;
    }
    Ok(())
}

/// `exacat lfn`
pub(crate) async fn lfn(context: &mut Context, args: LfnArgs) -> Result<(), Failure> {
    let mut names = context.names(&args.guids);
    while let Some(batch) = names.next_batch().await? {
        let guids = context.parsed(batch, Guid::parse);
        if guids.is_empty() {
            continue;
        }
        let answer = context.call(Operation::Lfns { guids: guids.clone() }).await?;
        let Answer::Lfns(answers) = answer else { return Err(Failure::unexpected(&answer)) };
        context.each(&guids, answers, Guid::to_string, |context, asked, lfn| {
            if context.out.style.json {
                return context.out.json(&json::LfnOut { guid: json::Shown(*asked), lfn: lfn.as_str() });
            }
            context.out.name_line(lfn.as_str())
        })?;
        context.out.flush()?;
    }
    Ok(())
}

/// `exacat du`
pub(crate) async fn du(context: &mut Context, args: DuArgs) -> Result<(), Failure> {
    context.at(&args.past).await?;
    let mut names = context.names_expanded(&args.lfns).await?;
    let order = args.sort.as_deref().or(args.reverse.then_some("name"));
    let key = move |(a, usage_a): &Counted, (b, usage_b): &Counted| {
        let by_key = match order {
            Some("size") => usage_a.bytes.cmp(&usage_b.bytes),
            Some("files") => usage_a.files.cmp(&usage_b.files),
            _ => Ordering::Equal,
        };
        by_key.then_with(|| a.cmp(b))
    };
    let ordered = OrderArgs { sort: order.map(|_| SortArg::Name), reverse: args.reverse, limit: args.limit };
    let mut sorted = Sorted::wanted(&ordered, |_| key);
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut headed = false;
    while left > 0
        && let Some(batch) = names.next_batch().await?
    {
        let mut lfns = context.lfns(batch);
        if lfns.is_empty() {
            continue;
        }
        if args.by_se {
            super::by_se::show(context, lfns).await?;
            continue;
        }
        if sorted.is_none() {
            lfns.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= lfns.len() as u64;
        }
        let answer = context.call(Operation::Du { lfns: lfns.clone() }).await?;
        let Answer::Usages(answers) = answer else { return Err(Failure::unexpected(&answer)) };
        let mut counted: Vec<Counted> = Vec::with_capacity(lfns.len());
        context.each(&lfns, answers, Lfn::to_string, |_, asked, usage| {
            counted.push((asked.clone(), usage));
            Ok(())
        })?;
        match &mut sorted {
            Some(sorted) => sorted.add(counted)?,
            None => show_counted(context, counted, args.long, &mut headed)?,
        }
        context.out.flush()?;
    }
    match sorted {
        Some(sorted) => show_counted(context, sorted.end(), args.long, &mut headed),
        None => Ok(()),
    }
}

/// An entry and its usage.
type Counted = (Lfn, Usage);

/// Shows a line for each entry. A long listing has a block for each, because eight numbers do not
/// fit a line.
fn show_counted(
    context: &mut Context,
    counted: Vec<Counted>,
    long: bool,
    headed: &mut bool,
) -> Result<(), Failure> {
    let out = &mut context.out;
    if out.style.json {
        return counted.iter().try_for_each(|(lfn, usage)| {
            out.json(&json::DuOut { lfn: lfn.as_str(), usage: json::usage(usage) })
        });
    }
    if !long {
        let columns = [("BYTES", Align::Right), ("FILES", Align::Right), ("LFN", Align::Left)];
        let mut table = Table::headed(columns).headed_once(headed);
        for (lfn, usage) in &counted {
            let name = out.name(lfn.as_str()).to_string();
            table.row([out.size(usage.bytes), usage.files.to_string(), name]);
        }
        return if table.is_empty() { Ok(()) } else { out.table(&table) };
    }
    for (lfn, usage) in &counted {
        if std::mem::replace(headed, true) {
            out.line("")?;
        }
        let heading = format!("{}:", out.name(lfn.as_str()));
        out.line(heading)?;
        let mut table = Table::new([Align::Left, Align::Right]);
        for (name, figure) in [
            ("bytes", out.size(usage.bytes)),
            ("files", usage.files.to_string()),
            ("directories", usage.directories.to_string()),
            ("archive members", usage.members.to_string()),
            ("bytes of members", out.size(usage.member_bytes)),
            ("links, collections", usage.others.to_string()),
            ("replicas", usage.replicas.to_string()),
            ("bytes of replicas", out.size(usage.replica_bytes)),
        ] {
            table.row([format!("  {name}"), figure]);
        }
        out.table(&table)?;
    }
    Ok(())
}
