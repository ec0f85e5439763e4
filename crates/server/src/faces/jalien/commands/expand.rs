//! Wildcards in the paths of a command: `*`, `?`, `[…]` and `{a,b}` match entries that exist.

use exacat_model::expansion::{Expansion, Step};
use exacat_model::{Answer, Cursor, ErrorKind, Guid, Lfn, Operation};
use exacat_wire::jalien::errno;

use crate::faces::jalien::shell::{Failure, Outcome, Shell, unexpected};

/// Errno for an argument that expands to too many entries.
const E2BIG: i32 = 7;
/// Errnos of a directory in which nothing matches.
const NO_MATCH: [i32; 3] = [errno::ENOENT, errno::ENOTDIR, libc::EACCES];

/// Returns the paths for a text: itself if it has no wildcards, else the entries that match.
pub(super) async fn expand(shell: &mut Shell, text: &str) -> Outcome<Vec<Lfn>> {
    let whole = shell.path(text)?;
    // An entry with exactly this name takes precedence over a match of its characters.
    let Some(mut expansion) = Expansion::of(&whole, false)? else { return Ok(vec![whole]) };
    if shell.stat_if_there(&whole).await?.is_some() {
        return Ok(vec![whole]);
    }
    loop {
        match expansion.step() {
            Step::Done(found) if found.is_empty() => return Err(Failure::new(errno::ENOENT, text)),
            Step::Done(found) => return Ok(found),
            Step::Check { lfns, follow } => {
                let stats = shell.stats(lfns.clone(), follow).await?;
                let existing = lfns.into_iter().zip(stats);
                expansion.checked(existing.filter_map(|(lfn, stat)| Some((lfn, stat.ok()?.entry.kind()))));
            }
            Step::List(directory) => list(shell, directory, &mut expansion).await?,
        }
    }
}

async fn list(shell: &mut Shell, directory: Lfn, expansion: &mut Expansion) -> Outcome<()> {
    let list = Operation::List { lfn: directory, cursor: Cursor::default(), limit: 0 };
    let mut next = Some(list);
    loop {
        let answer = match shell.exact_page(&mut next).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(()),
            // As in a shell: a directory that vanished, or is closed to the caller, has no matches.
            Err(failure) if NO_MATCH.contains(&failure.number) => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let Answer::Entries { items, .. } = answer else { return Err(unexpected()) };
        for stat in items {
            expansion.listed(&stat.entry.at.name, stat.entry.kind()).map_err(|error| match error.kind {
                ErrorKind::Limit => Failure::new(E2BIG, format!("{error}: name fewer")),
                _ => error.into(),
            })?;
        }
    }
}

/// Expands each text; notes a failure for each text that cannot be expanded.
pub(super) async fn expand_all(shell: &mut Shell, texts: &[String]) -> Outcome<Vec<Lfn>> {
    let mut found = Vec::new();
    for text in texts {
        let expanded = expand(shell, text).await;
        if let Some(mut lfns) = shell.note(expanded) {
            found.append(&mut lfns);
        }
    }
    Ok(found)
}

/// Returns the paths for texts; a text may be a GUID.
pub(super) async fn paths_of(shell: &mut Shell, texts: &[String]) -> Outcome<Vec<Lfn>> {
    let mut lfns = Vec::new();
    for text in texts {
        let found = match Guid::parse(text) {
            Ok(guid) => match shell.ask(Operation::Lfns { guids: vec![guid] }).await? {
                Answer::Lfns(mut found) => match found.pop() {
                    Some(found) => found.map(|lfn| vec![lfn]).map_err(Failure::from),
                    None => Err(unexpected()),
                },
                _ => Err(unexpected()),
            },
            Err(_) => expand(shell, text).await,
        };
        if let Some(mut found) = shell.note(found) {
            lfns.append(&mut found);
        }
    }
    Ok(lfns)
}
