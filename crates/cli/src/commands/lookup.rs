//! `whereis`, `lfn` and `du`: short questions about many names.

use exacat_model::{AccountName, Answer, Guid, Lfn, Operation};

use crate::args::{DuArgs, LfnArgs, WhereisArgs};
use crate::context::{Context, file_text};
use crate::failure::Failure;
use crate::output::human::UNKNOWN;
use crate::output::{Align, Table, json};

/// `exacat whereis`
pub async fn whereis(context: &mut Context, args: WhereisArgs) -> Result<(), Failure> {
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
            let mut table = Table::new([Align::Left; 3]);
            for replica in &found.replicas {
                table.row([
                    replica.se.as_ref().map_or(UNKNOWN.into(), ToString::to_string),
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
pub async fn lfn(context: &mut Context, args: LfnArgs) -> Result<(), Failure> {
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
                return context
                    .out
                    .json(&serde_json::json!({"guid": asked.to_string(), "lfn": lfn.as_str()}));
            }
            context.out.name_line(lfn.as_str())
        })?;
        context.out.flush()?;
    }
    Ok(())
}

/// `exacat du`
pub async fn du(context: &mut Context, args: DuArgs) -> Result<(), Failure> {
    let mut names = context.names_expanded(&args.lfns).await?;
    let mut headed = args.long;
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        if lfns.is_empty() {
            continue;
        }
        if args.by_se {
            super::by_se::show(context, lfns).await?;
            continue;
        }
        let answer = context.call(Operation::Du { lfns: lfns.clone() }).await?;
        let Answer::Usages(answers) = answer else { return Err(Failure::unexpected(&answer)) };
        let mut table = match (args.long, std::mem::take(&mut headed)) {
            (true, true) => Table::headed([
                ("BYTES", Align::Right),
                ("FILES", Align::Right),
                ("DIRECTORIES", Align::Right),
                ("MEMBERS", Align::Right),
                ("MEMBER-BYTES", Align::Right),
                ("OTHERS", Align::Right),
                ("REPLICAS", Align::Right),
                ("REPLICA-BYTES", Align::Right),
                ("LFN", Align::Left),
            ]),
            (true, false) => Table::new([[Align::Right; 8].as_slice(), &[Align::Left]].concat()),
            (false, _) => Table::new([Align::Right, Align::Right, Align::Left]),
        };
        context.each(&lfns, answers, Lfn::to_string, |context, asked, usage| {
            let out = &mut context.out;
            if out.style.json {
                return out.json(&json::DuOut { lfn: asked.as_str(), usage: json::usage(&usage) });
            }
            let mut row = vec![out.size(usage.bytes), usage.files.to_string()];
            if args.long {
                row.extend([
                    usage.directories.to_string(),
                    usage.members.to_string(),
                    out.size(usage.member_bytes),
                    usage.others.to_string(),
                    usage.replicas.to_string(),
                    out.size(usage.replica_bytes),
                ]);
            }
            row.push(out.name(asked.as_str()).to_string());
            table.row(row);
            Ok(())
        })?;
        if !context.out.style.json {
            context.out.table(&table)?;
        }
        context.out.flush()?;
    }
    Ok(())
}
