//! Expands wildcards in arguments: `*`, `?` and `[…]` in the names of a path stand for the entries
//! that are there.
//!
//! A shell expands them only against local files, so users quote them; `alien.py` expands them too.

use exacat_model::query::{Pattern, has_wildcard};
use exacat_model::{Answer, Cursor, Error, ErrorKind, Kind, Lfn, Name, Operation};

use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::parse;

/// Entries that one argument may stand for.
const EXPANDED_MAX: usize = 100_000;

/// The arguments with wildcards replaced by the entries that match, in the order of their names. An
/// argument without wildcards, or whose literal name is there, stays. One that nothing matches
/// fails and is left out.
pub async fn expand(context: &mut Context, arguments: &[String]) -> Result<Vec<String>, Failure> {
    let mut expanded = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let lfn = match parse::lfn(argument) {
            Ok(lfn) if is_pattern(&lfn) && !is_there(context, &lfn).await? => lfn,
            // The command itself refuses what is no LFN, with a text for what it wanted.
            _ => {
                expanded.push(argument.clone());
                continue;
            }
        };
        match matching(context, &lfn, argument.ends_with('/')).await {
            Ok(found) if found.is_empty() => {
                context.fail(argument, &Error::not_found("no entry has a name that matches"));
            }
            Ok(found) => expanded.extend(found.iter().map(Lfn::to_string)),
            Err(Failure::Catalogue { error, .. }) => context.fail(argument, &error),
            Err(failure) => return Err(failure),
        }
    }
    Ok(expanded)
}

/// Says whether wildcards are in the path, and all of them can be read. Others are literal, as in a shell.
fn is_pattern(lfn: &Lfn) -> bool {
    has_wildcard(lfn.as_str())
        && lfn.components().all(|name| Pattern::Glob(name.to_owned()).compile().is_ok())
}

async fn is_there(context: &Context, lfn: &Lfn) -> Result<bool, Failure> {
    match context.call(Operation::Stat { lfns: vec![lfn.clone()], follow: false }).await? {
        Answer::Stats(answers) => Ok(answers.first().is_some_and(Result::is_ok)),
        other => Err(Failure::unexpected(&other)),
    }
}

/// The entries a path with wildcards stands for; only directories if a slash ended it.
async fn matching(context: &Context, path: &Lfn, directories_only: bool) -> Result<Vec<Lfn>, Failure> {
    let names: Vec<&str> = path.components().collect();
    let mut found = vec![Lfn::root()];
    for (depth, name) in names.iter().enumerate() {
        let is_last = depth + 1 == names.len();
        if has_wildcard(name) {
            let mut next = Vec::new();
            for directory in &found {
                add_matching(context, directory, name, !is_last || directories_only, &mut next).await?;
            }
            found = next;
        } else {
            let name = Name::parse(name)?;
            found = found.iter().map(|lfn| lfn.join(&name)).collect();
            if is_last {
                found = those_there(context, found).await?;
            }
        }
    }
    Ok(found)
}

/// Keeps the names that are there: behind a wildcard a fixed name may be in some directories only.
async fn those_there(context: &Context, lfns: Vec<Lfn>) -> Result<Vec<Lfn>, Failure> {
    let mut there = Vec::new();
    for part in lfns.chunks(PAGE_ITEMS as usize) {
        match context.call(Operation::Stat { lfns: part.to_vec(), follow: false }).await? {
            Answer::Stats(answers) => {
                there.extend(
                    part.iter().zip(answers).filter(|(_, stat)| stat.is_ok()).map(|(lfn, _)| lfn.clone()),
                );
            }
            other => return Err(Failure::unexpected(&other)),
        }
    }
    Ok(there)
}

async fn add_matching(
    context: &Context,
    directory: &Lfn,
    pattern: &str,
    directories_only: bool,
    found: &mut Vec<Lfn>,
) -> Result<(), Failure> {
    let matcher = Pattern::Glob(pattern.to_owned()).compile()?;
    let hidden = pattern.starts_with('.');
    let list = Operation::List { lfn: directory.clone(), cursor: Cursor::default(), limit: PAGE_ITEMS };
    let mut pages = context.pages(list);
    loop {
        let answer = match pages.next().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(()),
            // As in a shell: what is no directory, or is closed to the caller, has no names that match.
            Err(error)
                if matches!(
                    error.kind,
                    ErrorKind::NotDirectory | ErrorKind::NotFound | ErrorKind::Denied
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(Failure::about(directory.as_str(), error)),
        };
        let Answer::Entries { items, .. } = answer else { return Err(Failure::unexpected(&answer)) };
        for stat in items {
            let name = &stat.entry.at.name;
            let is_wanted = !directories_only || stat.entry.kind() == Kind::Directory;
            if is_wanted
                && (hidden || !name.as_str().starts_with('.'))
                && matcher.matches(name.as_str(), || directory.join(name).to_string())
            {
                found.push(directory.join(name));
            }
        }
        if found.len() > EXPANDED_MAX {
            return Err(Error::limit("the number of entries that match", found.len(), EXPANDED_MAX).into());
        }
    }
}
