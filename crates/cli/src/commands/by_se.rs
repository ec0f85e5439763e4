//! `du --by-se`: files and bytes below a directory by storage element. No counter has them, so the
//! command reads the entries.

use std::collections::BTreeMap;

use exacat_model::answer::Stat;
use exacat_model::{Answer, Filter, Kind, Lfn, Operation, SeNumber, Usage};
use serde::Serialize;
use utoipa::ToSchema;

use super::find::FoundEntries;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Align, Table};

/// Usage of each storage element.
type BySe = BTreeMap<SeNumber, Usage>;

fn add(sums: &mut BySe, stat: &Stat) {
    let Some(file) = stat.entry.file() else { return };
    for replica in
        file.replicas.iter().filter(|replica| replica.se != SeNumber::NONE && replica.takes_space())
    {
        sums.entry(replica.se).or_default().add(&Usage::of_replica(replica, file.size));
    }
}

/// Counts the entry itself, and everything below it that the caller may see.
async fn count(context: &mut Context, lfn: &Lfn) -> Result<BySe, Failure> {
    let answer = context.call(Operation::Stat { lfns: vec![lfn.clone()], follow: false }).await?;
    let Answer::Stats(mut answers) = answer else { return Err(Failure::unexpected(&answer)) };
    let mut sums = BySe::new();
    let Some(stat) = answers.pop() else { return Ok(sums) };
    let stat = stat.map_err(|error| Failure::about(lfn.as_str(), error))?;
    if stat.entry.directory().is_none() {
        add(&mut sums, &stat);
        return Ok(sums);
    }
    let filter = Filter { kinds: vec![Kind::File], ..Filter::default() };
    let mut found = FoundEntries::below(context, lfn.clone(), filter, None);
    while let Some(items) = found.next(context).await? {
        items.iter().for_each(|stat| add(&mut sums, stat));
    }
    Ok(sums)
}

/// Usage of a storage element below an LFN.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageOnSe)]
pub(crate) struct SeUsageView<'a> {
    /// The directory.
    lfn: &'a str,
    /// Storage element.
    se: &'a str,
    /// Files with a replica on it.
    files: u64,
    /// Bytes of these replicas.
    replica_bytes: u64,
}

/// Shows the usage of each LFN.
pub(crate) async fn show(context: &mut Context, lfns: Vec<Lfn>) -> Result<(), Failure> {
    for lfn in lfns {
        let sums = count(context, &lfn).await?;
        let ses = context.ses().await?;
        let out = &mut context.out;
        let mut table = Table::headed([
            ("BYTES", Align::Right),
            ("FILES", Align::Right),
            ("SE", Align::Left),
            ("LFN", Align::Left),
        ]);
        for (number, usage) in &sums {
            let (se, bytes) = (ses.name(*number), usage.replica_bytes);
            if out.style.json {
                let replica_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                out.json(&SeUsageView { lfn: lfn.as_str(), se: &se, files: usage.files, replica_bytes })?;
            }
            table.row([
                out.size(bytes),
                usage.files.to_string(),
                se.into_owned(),
                out.name(lfn.as_str()).to_string(),
            ]);
        }
        if !out.style.json && !sums.is_empty() {
            out.table(&table)?;
        }
        out.flush()?;
    }
    Ok(())
}
