//! Expands wildcards in arguments: `*`, `?` and `[…]` in the names of a path match existing
//! entries.
//!
//! A shell expands them only against local files, so users quote them; `alien.py` expands them too.

use exacat_model::expansion::{Expansion, Step, is_no_match};
use exacat_model::{Answer, Cursor, Error, Kind, Lfn, Operation};

use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::input::Names;
use crate::parse;

impl Context {
    /// Returns the names to work on, with wildcards in arguments expanded. Names from standard
    /// input are exact.
    pub(crate) async fn names_expanded(&mut self, arguments: &[String]) -> Result<Names, Failure> {
        let expanded = expand(self, arguments).await?;
        Ok(self.names(&expanded))
    }
}

/// Replaces arguments with wildcards by the matching entries, in the order of their names. An
/// argument without wildcards, or with its literal name in the catalogue, stays. One without a
/// match is reported and left out.
async fn expand(context: &mut Context, arguments: &[String]) -> Result<Vec<String>, Failure> {
    let mut expanded = Vec::with_capacity(arguments.len());
    for argument in arguments {
        // The command itself refuses an argument that is no LFN, with a better message. A path that
        // is no pattern is literal, as in a shell.
        let expansion = parse::lfn(argument)
            .ok()
            .and_then(|lfn| Some((Expansion::of(&lfn, argument.ends_with('/')).ok()??, lfn)));
        let Some((expansion, lfn)) = expansion else {
            expanded.push(argument.clone());
            continue;
        };
        if !existing(context, &[lfn], false).await?.is_empty() {
            expanded.push(argument.clone());
            continue;
        }
        match matching(context, expansion).await {
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

async fn matching(context: &Context, mut expansion: Expansion) -> Result<Vec<Lfn>, Failure> {
    loop {
        match expansion.step() {
            Step::Done(found) => return Ok(found),
            Step::Check { lfns, follow } => expansion.checked(existing(context, &lfns, follow).await?),
            Step::List(directory) => {
                let list =
                    Operation::List { lfn: directory.clone(), cursor: Cursor::default(), limit: PAGE_ITEMS };
                let mut pages = context.pages(list);
                loop {
                    let answer = match pages.next().await {
                        Ok(Some(answer)) => answer,
                        Ok(None) => break,
                        Err(error) if is_no_match(&error) => break,
                        Err(error) => return Err(Failure::about(directory.as_str(), error)),
                    };
                    let Answer::Entries { items, .. } = answer else {
                        return Err(Failure::unexpected(&answer));
                    };
                    for stat in items {
                        expansion.listed(&stat.entry.at.name, stat.entry.kind())?;
                    }
                }
            }
        }
    }
}

/// Returns those of the entries that exist, with their kinds.
async fn existing(context: &Context, lfns: &[Lfn], follow: bool) -> Result<Vec<(Lfn, Kind)>, Failure> {
    let mut existing = Vec::new();
    for some in lfns.chunks(PAGE_ITEMS as usize) {
        match context.call(Operation::Stat { lfns: some.to_vec(), follow }).await? {
            Answer::Stats(stats) => existing.extend(
                some.iter().zip(stats).filter_map(|(lfn, stat)| Some((lfn.clone(), stat.ok()?.entry.kind()))),
            ),
            other => return Err(Failure::unexpected(&other)),
        }
    }
    Ok(existing)
}
