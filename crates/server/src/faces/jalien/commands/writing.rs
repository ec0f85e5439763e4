//! Commands that make, move and remove names.

use exacat_model::limits::{BATCH_MUTATIONS_MAX, READ_BATCH_MAX};
use exacat_model::operation::{Attribute, Existing, NewFile};
use exacat_model::{Answer, Checksum, Checksums, Error, ErrorKind, Lfn, Name, Operation};
use exacat_wire::jalien::{Item, errno};

use super::expand::expand_all;
use super::{missing, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell, unexpected};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "mkdir",
        usage: "[-p] [-s] DIR…\nMakes directories; -p missing ones above them too, -s says nothing of errors. One that is there is fine.",
        run: |s, o| Box::pin(mkdir(s, o)),
    },
    Command {
        name: "rmdir",
        usage: "[-p] DIR…\nRemoves empty directories; -p those above them too, while they are empty.",
        run: |s, o| Box::pin(rmdir(s, o)),
    },
    Command {
        name: "touch",
        usage: "LFN…\nMakes empty files; sets the time of existing ones to now.",
        run: |s, o| Box::pin(touch(s, o)),
    },
    Command {
        name: "mv",
        usage: "FROM… TO\nMoves entries, with all that is below: one change, whatever it is. A name that is taken is refused.",
        run: |s, o| Box::pin(mv(s, o)),
    },
    Command {
        name: "rm",
        usage: "[-f] [-r] [-v] LFN…\nMoves entries to the trash (see trash); -r directories with everything below; -f ignores missing names.",
        run: |s, o| Box::pin(rm(s, o)),
    },
    Command {
        name: "ln",
        usage: "TARGET LFN\nMakes LFN a link that stands for TARGET.",
        run: |s, o| Box::pin(ln(s, o)),
    },
];

/// MD5 of empty content.
const MD5_OF_NOTHING: &str = "md5:d41d8cd98f00b204e9800998ecf8427e";

async fn mkdir(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["p", "s"], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("mkdir"));
    }
    let mut lfns = Vec::new();
    for text in &options.rest {
        let lfn = shell.path(text);
        lfns.extend(shell.note(lfn));
    }
    for some in lfns.chunks(BATCH_MUTATIONS_MAX) {
        let make = Operation::Mkdir { lfns: some.to_vec(), parents: options.has("p"), mode: None };
        let Answer::EachDone(done) = shell.ask(make).await? else { return Err(unexpected()) };
        for (lfn, done) in some.iter().zip(done) {
            let done = match done {
                // Accepted, if it is a directory.
                Err(error) if error.kind == ErrorKind::Exists => match shell.stat_if_there(lfn).await? {
                    Some(stat) if stat.entry.directory().is_some() => Ok(()),
                    _ => Err(error),
                },
                done => done,
            };
            if !options.has("s") {
                shell.note(done);
            }
        }
    }
    Ok(())
}

/// Refuses to remove the current or home directory, or one above them.
fn check_not_ground(shell: &Shell, lfn: &Lfn) -> Outcome {
    if lfn.contains(&shell.directory()) {
        return Err(Failure::invalid(format!("{lfn} is the current directory, or above it")));
    }
    if lfn.contains(&shell.home) {
        return Err(Failure::invalid(format!("{lfn} is the home directory, or above it")));
    }
    Ok(())
}

async fn remove(shell: &mut Shell, lfn: &Lfn, recursive: bool, directory: bool) -> Outcome {
    check_not_ground(shell, lfn)?;
    match shell.ask(Operation::Remove { lfn: lfn.clone(), recursive, directory }).await? {
        Answer::Removed { .. } => Ok(()),
        _ => Err(unexpected()),
    }
}

async fn rmdir(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["p"], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("rmdir"));
    }
    for lfn in expand_all(shell, &options.rest).await? {
        let removed = remove(shell, &lfn, false, true).await;
        if shell.note(removed).is_none() || !options.has("p") {
            continue;
        }
        let mut above = lfn.parent();
        while let Some(lfn) = above.filter(|lfn| !lfn.is_root()) {
            if remove(shell, &lfn, false, true).await.is_err() {
                break;
            }
            above = lfn.parent();
        }
    }
    Ok(())
}

async fn touch(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("touch"));
    }
    let mut lfns = Vec::new();
    for text in &options.rest {
        let lfn = shell.path(text);
        lfns.extend(shell.note(lfn));
    }
    let now = shell.now();
    let nothing = Checksums::one(Checksum::parse(MD5_OF_NOTHING)?);
    for some in lfns.chunks(READ_BATCH_MAX) {
        let file =
            |lfn: &Lfn| NewFile { size: Some(0), checksums: nothing.clone(), ..NewFile::named(lfn.clone()) };
        let register = Operation::Register {
            files: some.iter().map(file).collect(),
            parents: false,
            existing: Existing::Refuse,
        };
        let Answer::Registered(done) = shell.ask(register).await? else { return Err(unexpected()) };
        let mut there = Vec::new();
        for (lfn, done) in some.iter().zip(done) {
            match done {
                Err(error) if error.kind == ErrorKind::Exists => there.push(lfn.clone()),
                done => drop(shell.note(done)),
            }
        }
        if there.is_empty() {
            continue;
        }
        let set = Operation::SetAttributes { lfns: there, attributes: vec![Attribute::Modified(now)] };
        let Answer::EachDone(done) = shell.ask(set).await? else { return Err(unexpected()) };
        for done in done {
            shell.note(done);
        }
    }
    Ok(())
}

async fn mv(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["f"], &[], given)?;
    let [sources @ .., target] = options.rest.as_slice() else { return Err(missing("mv")) };
    if sources.is_empty() {
        return Err(missing("mv"));
    }
    let into = target.ends_with('/');
    let to = shell.path(target)?;
    let from = expand_all(shell, sources).await?;
    let there = shell.stat_if_there(&to).await?;
    match &there {
        Some(stat) if stat.entry.directory().is_some() => {}
        Some(_) if from.len() > 1 || into => return Err(Failure::new(errno::ENOTDIR, target.as_str())),
        None if from.len() > 1 || into => {
            let make = Operation::Mkdir { lfns: vec![to.clone()], parents: true, mode: None };
            match shell.ask(make).await? {
                Answer::EachDone(done) => done.into_iter().collect::<Result<Vec<()>, Error>>()?,
                _ => return Err(unexpected()),
            };
        }
        _ => {}
    }
    for from in from {
        let moved = shell.ask(Operation::Move { from, to: to.clone() }).await;
        shell.note(moved);
    }
    Ok(())
}

async fn rm(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["f", "r", "R", "i", "v"], &[], given)?;
    let forced = options.has("f");
    if options.rest.is_empty() {
        return if forced { Ok(()) } else { Err(missing("rm")) };
    }
    let recursive = options.has("r") || options.has("R");
    let is_missing = |failure: &Failure| failure.number == errno::ENOENT;
    for text in &options.rest {
        let expanded = super::expand::expand(shell, text).await;
        let lfns = match expanded {
            Err(failure) if forced && is_missing(&failure) => continue,
            expanded => shell.note(expanded).unwrap_or_default(),
        };
        for lfn in lfns {
            match remove(shell, &lfn, recursive, false).await {
                Err(failure) if forced && is_missing(&failure) => {}
                Err(failure) => shell.fail_later(failure),
                Ok(()) if options.has("v") => shell.say(Item::text(format!("removed {lfn}"))).await?,
                Ok(()) => {}
            }
        }
    }
    Ok(())
}

async fn ln(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["s"], &[], given)?;
    let [target, name] = options.rest.as_slice() else { return Err(missing("ln")) };
    let target = shell.path(target)?;
    let mut lfn = shell.path(name)?;
    // A directory as the name: link into it, under the target's own name.
    if let Some(stat) = shell.stat_if_there(&lfn).await?
        && stat.entry.directory().is_some()
        && let Some(name) = target.file_name().map(|name: Name| name)
    {
        lfn = lfn.join(&name);
    }
    match shell.ask(Operation::Link { lfn, target }).await? {
        Answer::Done { .. } | Answer::Registered(_) => Ok(()),
        _ => Err(unexpected()),
    }
}
