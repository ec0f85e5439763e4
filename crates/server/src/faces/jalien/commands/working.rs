//! Commands for attributes: owners, modes, expiry.

use exacat_model::operation::Attribute;
use exacat_model::{AccountName, Answer, Cursor, Filter, Lfn, Mode, Operation, TimeMs};
use exacat_wire::jalien::{Item, Options};

use super::expand::expand_all;
use super::{missing, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell, unexpected};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "chown",
        usage: "[-R] USER[.GROUP] PATH…\nSets owner and group; -R of all that is below too.",
        run: |s, o| Box::pin(chown(s, o)),
    },
    Command {
        name: "chmod",
        usage: "[-R] MODE PATH…\nSets permissions, three octal digits; -R of all that is below too.",
        run: |s, o| Box::pin(chmod(s, o)),
    },
    Command {
        name: "lfnexpiretime",
        usage: "-a|-e|-r [-d DAYS] [-w WEEKS] [-m MONTHS] [-y YEARS] LFN…\nSets (-a), puts off (-e) or takes away (-r) the time at which entries go to the \
                trash by themselves.",
        run: |s, o| Box::pin(expire(s, o)),
    },
];

const DAY_MS: u64 = 24 * 3_600_000;

/// Sets attributes of each entry, with `recursive` also below it.
async fn set(shell: &mut Shell, lfns: Vec<Lfn>, attributes: &[Attribute], recursive: bool) -> Outcome {
    for lfn in lfns {
        set_each(shell, vec![lfn.clone()], attributes).await?;
        let is_directory = recursive
            && shell.stat_if_there(&lfn).await?.is_some_and(|stat| stat.entry.directory().is_some());
        if !is_directory {
            continue;
        }
        let find = Operation::Find {
            lfn,
            filter: Box::new(Filter::default()),
            cursor: Cursor::default(),
            limit: 1000,
        };
        let mut next = Some(find);
        while let Some(answer) = shell.exact_page(&mut next).await? {
            let Answer::Entries { items, .. } = answer else { return Err(unexpected()) };
            let some: Vec<Lfn> = items.into_iter().map(|stat| stat.lfn).collect();
            if !some.is_empty() {
                set_each(shell, some, attributes).await?;
            }
        }
    }
    Ok(())
}

async fn set_each(shell: &mut Shell, lfns: Vec<Lfn>, attributes: &[Attribute]) -> Outcome {
    let set = Operation::SetAttributes { lfns, attributes: attributes.to_vec() };
    let Answer::EachDone(done) = shell.ask(set).await? else { return Err(unexpected()) };
    for done in done {
        shell.note(done);
    }
    Ok(())
}

async fn chown(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["R"], &[], given)?;
    let [who, paths @ ..] = options.rest.as_slice() else { return Err(missing("chown")) };
    if paths.is_empty() {
        return Err(missing("chown"));
    }
    // Names may contain dots; the last one separates the group.
    let (user, group) = match who.rsplit_once([':', '.']) {
        Some((user, group)) => (user, Some(group)),
        None => (who.as_str(), None),
    };
    let mut attributes = Vec::new();
    if !user.is_empty() {
        attributes.push(Attribute::Owner(AccountName::parse(user)?));
    }
    if let Some(group) = group {
        attributes.push(Attribute::Group(AccountName::parse(group)?));
    }
    let lfns = expand_all(shell, paths).await?;
    set(shell, lfns, &attributes, options.has("R")).await
}

async fn chmod(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["R"], &[], given)?;
    let [mode, paths @ ..] = options.rest.as_slice() else { return Err(missing("chmod")) };
    if paths.is_empty() || mode.len() != 3 {
        return Err(missing("chmod"));
    }
    let attributes = [Attribute::Mode(Mode::parse(mode)?)];
    let lfns = expand_all(shell, paths).await?;
    set(shell, lfns, &attributes, options.has("R")).await
}

/// Returns the duration in options, in milliseconds. Months have 30 days, years 365.
fn lasting(options: &Options) -> Outcome<u64> {
    let mut days = 0u64;
    for (name, of) in [("d", 1), ("w", 7), ("m", 30), ("y", 365)] {
        if let Some(text) = options.value(name) {
            let bad = || Failure::invalid(format!("-{name}: not a number: {text:.100}"));
            let count: u64 = text.parse().map_err(|_| bad())?;
            days = count.checked_mul(of).and_then(|more| days.checked_add(more)).ok_or_else(bad)?;
        }
    }
    Ok(days.saturating_mul(DAY_MS))
}

async fn expire(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["a", "e", "r"], &["d", "w", "m", "y"], given)?;
    let ways = ["a", "e", "r"].iter().filter(|way| options.has(way)).count();
    let lasts = lasting(&options)?;
    if options.rest.is_empty() || ways != 1 || (lasts == 0) != options.has("r") {
        return Err(missing("lfnexpiretime"));
    }
    let now = shell.now();
    for lfn in expand_all(shell, &options.rest).await? {
        let stat = shell.stat(&lfn, true).await;
        let Some(stat) = shell.note(stat) else { continue };
        let from = match (options.has("e"), stat.entry.expires) {
            (true, Some(expires)) => expires,
            (true, None) => {
                shell.fail_later(Failure::invalid(format!("{lfn} has no expiry time that could be put off")));
                continue;
            }
            (false, _) => now,
        };
        let expires = (!options.has("r")).then(|| TimeMs(from.0.saturating_add(lasts)));
        set_each(shell, vec![lfn], &[Attribute::Expires(expires)]).await?;
    }
    let said = if options.has("r") { "Removing the expiration time" } else { "Setting the expiration time" };
    shell.say(Item::text(said)).await
}
