//! Commands for quotas of files and of jobs.

use exacat_model::answer::QuotaInfo;
use exacat_model::operation::Owner;
use exacat_model::{AccountName, Answer, Operation};
use exacat_wire::jalien::Item;

use super::{missing, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell, unexpected};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "fquota",
        usage: "list [USER]… | set USER maxNbFiles|maxTotalSize VALUE\nShows the used part of file quotas, or sets a quota; -1 is no limit.",
        run: |s, o| Box::pin(fquota(s, o)),
    },
    Command {
        name: "jquota",
        usage: "list [USER]…\nTells the quotas of jobs, of which there are none here: the client's quota asks for them.",
        run: |s, o| Box::pin(jquota(s, o)),
    },
];

/// Text for "no limit" in a command that sets one.
const NO_LIMIT: &str = "-1";
/// Number for "no limit" in reported quotas: the client divides by it.
const ENDLESS: i64 = i64::MAX;

fn users(shell: &Shell, names: &[String]) -> Outcome<Vec<AccountName>> {
    if names.is_empty() {
        return Ok(shell.caller().name().cloned().into_iter().collect());
    }
    names.iter().map(|name| Ok(AccountName::parse(name)?)).collect()
}

async fn quotas(shell: &mut Shell, owners: Vec<Owner>) -> Outcome<Vec<QuotaInfo>> {
    match shell.ask(Operation::QuotaGet { owners }).await? {
        Answer::Quotas(quotas) => Ok(quotas),
        _ => Err(unexpected()),
    }
}

async fn fquota(shell: &mut Shell, given: Vec<String>) -> Outcome {
    // A value may be -1, which is no option.
    match given.first().map(String::as_str) {
        Some("set") => set(shell, &given[1..]).await,
        Some("list") | None => {
            let options = options(&["unit"], &[], given.into_iter().skip(1).collect())?;
            let owners = users(shell, &options.rest)?.into_iter().map(Owner::User).collect();
            for quota in quotas(shell, owners).await? {
                let Owner::User(user) = &quota.owner else { continue };
                tell(shell, user, &quota).await?;
            }
            Ok(())
        }
        Some(_) => Err(missing("fquota")),
    }
}

async fn tell(shell: &mut Shell, user: &AccountName, quota: &QuotaInfo) -> Outcome {
    // Upload reservations count.
    let bytes = quota.used.bytes + quota.used.member_bytes + quota.reserved.bytes;
    let files = quota.used.objects() + quota.reserved.objects();
    let limit = |limit: Option<u64>| limit.map_or_else(|| ENDLESS.to_string(), |limit| limit.to_string());
    let shown = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    let text = format!(
        "FQuota: user: {user}\n  total size: {bytes} of {}\n  number of files: {files} of {}",
        shown(quota.bytes),
        shown(quota.files)
    );
    let item = Item::new()
        .with("username", user.as_str())
        .with("totalSize", bytes.to_string())
        .with("maxTotalSize", limit(quota.bytes))
        .with("nbFiles", files.to_string())
        .with("maxNbFiles", limit(quota.files))
        .saying(text);
    shell.say(item).await
}

async fn set(shell: &mut Shell, given: &[String]) -> Outcome {
    let [user, what, value] = given else { return Err(missing("fquota")) };
    let owner = Owner::User(AccountName::parse(user)?);
    let value = match value.as_str() {
        NO_LIMIT => None,
        text => {
            let bad = |_| Failure::invalid(format!("not a number: {text:.100}"));
            Some(text.parse::<u64>().map_err(bad)?)
        }
    };
    let Some(now) = quotas(shell, vec![owner.clone()]).await?.pop() else { return Err(unexpected()) };
    let (files, bytes) = match what.as_str() {
        "maxNbFiles" => (value, now.bytes),
        "maxTotalSize" => (now.files, value),
        _ => return Err(missing("fquota")),
    };
    let set = Operation::QuotaSet { owner, files, bytes, replica_bytes: now.replica_bytes };
    match shell.ask(set).await? {
        Answer::Done { .. } => shell.say(Item::text(format!("{what} of {user} is set"))).await,
        _ => Err(unexpected()),
    }
}

async fn jquota(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["unit"], &[], given)?;
    let names = match options.rest.as_slice() {
        [] => &[],
        [list, names @ ..] if list == "list" => names,
        _ => return Err(missing("jquota")),
    };
    for user in users(shell, names)? {
        // No maximum may be 0, because the client divides by it. Older and newer clients spell two
        // of the keys differently.
        let mut item = Item::new().with("username", user.as_str());
        for name in ["nominalParallelJobs", "nominalparallelJobs", "maxParallelJobs", "maxparallelJobs"] {
            item = item.with(name, "1");
        }
        for name in ["running", "waiting", "totalCpuCostLast24h", "totalRunningTimeLast24h"] {
            item = item.with(name, "0");
        }
        for name in ["maxUnfinishedJobs", "maxTotalCpuCost", "maxTotalRunningTime"] {
            item = item.with(name, "1");
        }
        shell.say(item.saying(format!("JQuota: user: {user}\n  exacat runs no jobs"))).await?;
    }
    Ok(())
}
