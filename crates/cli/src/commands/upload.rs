//! `upload`: uploads in flight.

use exacat_model::answer::Upload;
use exacat_model::operation::SeChoice;
use exacat_model::{AccountName, Answer, Cursor, Guid, Operation, SeName};
use exacat_wire::json;

use super::register::all_checksums;
use crate::args::UploadCommand;
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::output::human::minute;
use crate::output::{Align, Table};
use crate::parse;

/// `exacat upload`
pub(crate) async fn upload(context: &mut Context, command: UploadCommand) -> Result<(), Failure> {
    match command {
        UploadCommand::Ls => list(context).await,
        UploadCommand::Reserve { lfn, size, checksum, guid, se, qos, exclude, site, job, lifetime } => {
            let ses =
                |names: &[String]| names.iter().map(|name| SeName::parse(name)).collect::<Result<_, _>>();
            let choice = SeChoice {
                wanted: ses(&se)?,
                qos: qos.iter().map(|text| parse::counted(text, Some(1))).collect::<Result<_, _>>()?,
                excluded: ses(&exclude)?,
                site: site.as_deref().map(AccountName::parse).transpose()?,
            };
            let reserve = Operation::UploadReserve {
                lfn: parse::lfn(&lfn).map_err(|error| Failure::about(&lfn, error))?,
                guid: guid.as_deref().map(Guid::parse).transpose()?,
                size: parse::bytes(&size)?,
                checksums: all_checksums(&checksum)?,
                job,
                choice: Box::new(choice),
                lifetime_seconds: lifetime.as_deref().map(parse::seconds).transpose()?,
            };
            match context.call_about(&lfn, reserve).await? {
                Answer::Upload(upload) => show(context, &upload),
                other => Err(Failure::unexpected(&other)),
            }
        }
        UploadCommand::Commit { guid, se, size, checksum } => {
            let commit = Operation::UploadCommit {
                guid: Guid::parse(&guid)?,
                se: SeName::parse(&se)?,
                size: parse::bytes(&size)?,
                checksums: all_checksums(&checksum)?,
            };
            context.change(&guid, commit).await?;
            Ok(())
        }
        UploadCommand::Abort { guid, se } => {
            let se = se.as_deref().map(SeName::parse).transpose()?;
            context.change(&guid, Operation::UploadAbort { guid: Guid::parse(&guid)?, se }).await?;
            Ok(())
        }
    }
}

/// Shows the GUID, then the URLs to write to.
fn show(context: &mut Context, upload: &Upload) -> Result<(), Failure> {
    if context.out.style.json {
        return context.out.json(&json::upload(upload));
    }
    context.out.line(upload.reservation.guid)?;
    let mut table = Table::new([Align::Left, Align::Left]);
    for target in &upload.targets {
        table.row([target.se.to_string(), context.out.name(&target.pfn).to_string()]);
    }
    context.out.table(&table)
}

async fn list(context: &mut Context) -> Result<(), Failure> {
    let mut pages = context.pages(Operation::UploadList { cursor: Cursor::default(), limit: PAGE_ITEMS });
    while let Some(answer) = pages.next().await? {
        let Answer::Uploads { items, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        if context.out.style.json {
            items.iter().try_for_each(|item| context.out.json(&json::upload(item)))?;
            continue;
        }
        items.iter().try_for_each(|item| show_listed(context, item))?;
    }
    Ok(())
}

/// Shows a block for each upload: a line would be too long for a terminal.
fn show_listed(context: &mut Context, item: &Upload) -> Result<(), Failure> {
    let heading = format!("{}:", context.out.name(item.reservation.lfn.as_str()));
    context.out.line(heading)?;
    let ses: Vec<String> = item.targets.iter().map(|target| target.se.to_string()).collect();
    let mut table = Table::new([Align::Left, Align::Left]);
    for (name, value) in [
        ("guid", item.reservation.guid.to_string()),
        ("owner", item.owner.to_string()),
        ("bytes", context.out.size(u128::from(item.reservation.size))),
        ("until", minute(item.reservation.expires)),
        ("to", ses.join(" ")),
    ] {
        table.row([format!("  {name}"), value]);
    }
    context.out.table(&table)
}
