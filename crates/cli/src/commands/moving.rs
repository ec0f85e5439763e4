//! `mkdir`, `mv`, `rm`, `rmdir`, `ln`: changes the tree itself.

use exacat_model::{Answer, Error, ErrorKind, Kind, Lfn, Mode, Operation, Result as ModelResult};
use exacat_wire::json;
use futures::stream::{self, StreamExt};
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::{LnArgs, MkdirArgs, MvArgs, RmArgs, RmdirArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::human;
use crate::parse;

/// Removals in one request, where their order does not matter.
const REMOVALS_AT_ONCE: usize = 64;

/// `exacat mkdir`
pub(crate) async fn mkdir(context: &mut Context, args: MkdirArgs) -> Result<(), Failure> {
    let mode = args.mode.as_deref().map(Mode::parse).transpose()?;
    let mut names = context.names(&args.lfns);
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        if lfns.is_empty() {
            continue;
        }
        let answer =
            context.call(Operation::Mkdir { lfns: lfns.clone(), parents: args.parents, mode }).await?;
        context.done(&lfns, answer, Lfn::to_string)?;
    }
    Ok(())
}

/// `exacat mv`
pub(crate) async fn mv(context: &mut Context, args: MvArgs) -> Result<(), Failure> {
    let to = parse::lfn(&args.to).map_err(|error| Failure::about(&args.to, error))?;
    // At the moment of the move the catalogue decides whether the target is a directory to move
    // into. The command looks for two other reasons: several names need a directory, and it prints
    // the new names.
    let shows = context.out.style.json || context.out.style.verbose;
    let mut names = context.names_expanded(&args.from).await?;
    let several = names.may_be_several();
    let into = (several || shows) && is_directory(context, &to).await?;
    if several && !into {
        let message = "several names move into a directory, and this is none";
        return Err(Failure::about(to.as_str(), Error::new(ErrorKind::NotDirectory, message)));
    }
    while let Some(batch) = names.next_batch().await? {
        let batch = context.lfns(batch);
        move_each(context, batch, &to, into).await?;
    }
    Ok(())
}

async fn move_each(context: &mut Context, names: Vec<Lfn>, to: &Lfn, into: bool) -> Result<(), Failure> {
    for from in names {
        match context.call(Operation::Move { from: from.clone(), to: to.clone() }).await {
            Ok(Answer::Done { revision }) => {
                let stands =
                    from.file_name().filter(|_| into).map_or_else(|| to.clone(), |name| to.join(&name));
                if context.out.style.json {
                    let (from, to) = (from.as_str(), stands.as_str());
                    let moved = json::MovedOut { from, to, revision: revision.0 };
                    context.out.json(&moved)?;
                } else if context.out.style.verbose {
                    let (old, new) = (context.out.name(from.as_str()), context.out.name(stands.as_str()));
                    context.out.line(format!("{old} -> {new}"))?;
                }
            }
            Ok(other) => return Err(Failure::unexpected(&other)),
            // Either name may be wrong; the message says which.
            Err(error) => context.fail(from.as_str(), &error),
        }
    }
    Ok(())
}

async fn is_directory(context: &Context, lfn: &Lfn) -> Result<bool, Failure> {
    let answer = context.call(Operation::Stat { lfns: vec![lfn.clone()], follow: true }).await?;
    match answer {
        Answer::Stats(answers) => match answers.into_iter().next() {
            Some(Ok(stat)) => Ok(stat.entry.kind() == Kind::Directory),
            _ => Ok(false),
        },
        other => Err(Failure::unexpected(&other)),
    }
}

/// `exacat rm`
pub(crate) async fn rm(context: &mut Context, args: RmArgs) -> Result<(), Failure> {
    let mut names = context.names_expanded(&args.lfns).await?;
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        if args.dry_run {
            would_remove(context, &lfns, &args).await?;
            continue;
        }
        remove(context, lfns, args.recursive, false, args.force).await?;
    }
    Ok(())
}

/// Entry that would be removed.
#[derive(Serialize, ToSchema)]
#[schema(as = WouldRemove)]
pub(crate) struct WouldRemoveView<'a> {
    /// The entry.
    lfn: &'a str,
    /// True.
    dry_run: bool,
    /// Usage of the entry, with everything below.
    usage: json::UsageOut,
}

/// Shows entries that would be removed.
async fn would_remove(context: &mut Context, lfns: &[Lfn], args: &RmArgs) -> Result<(), Failure> {
    if lfns.is_empty() {
        return Ok(());
    }
    let stats = match context.call(Operation::Stat { lfns: lfns.to_vec(), follow: false }).await? {
        Answer::Stats(stats) if stats.len() == lfns.len() => stats,
        other => return Err(Failure::unexpected(&other)),
    };
    let usages = match context.call(Operation::Du { lfns: lfns.to_vec() }).await? {
        Answer::Usages(usages) if usages.len() == lfns.len() => usages,
        other => return Err(Failure::unexpected(&other)),
    };
    for ((lfn, stat), usage) in lfns.iter().zip(stats).zip(usages) {
        let stat = match stat {
            Ok(stat) => stat,
            Err(error) if args.force && error.kind == ErrorKind::NotFound => continue,
            Err(error) => {
                context.fail(lfn.as_str(), &error);
                continue;
            }
        };
        if stat.entry.kind() == Kind::Directory && !args.recursive {
            let error =
                Error::new(ErrorKind::NotEmpty, "it is a directory: -r removes it with all that is below");
            context.fail(lfn.as_str(), &error);
            continue;
        }
        match usage {
            Err(error) => context.fail(lfn.as_str(), &error),
            Ok(usage) if context.out.style.json => context.out.json(&WouldRemoveView {
                lfn: lfn.as_str(),
                dry_run: true,
                usage: json::usage(&usage),
            })?,
            Ok(usage) => {
                let what = human::usage(&context.out, &usage);
                let line = format!("would remove {}: {what}", context.out.name(lfn.as_str()));
                context.out.line(line)?;
            }
        }
    }
    Ok(())
}

/// `exacat rmdir`
pub(crate) async fn rmdir(context: &mut Context, args: RmdirArgs) -> Result<(), Failure> {
    let mut names = context.names_expanded(&args.lfns).await?;
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        remove(context, lfns, false, true, false).await?;
    }
    Ok(())
}

/// Removes in the given order; several at once if none is below another.
async fn remove(
    context: &mut Context,
    lfns: Vec<Lfn>,
    recursive: bool,
    directory: bool,
    force: bool,
) -> Result<(), Failure> {
    let at_once = if independent(&lfns) { REMOVALS_AT_ONCE } else { 1 };
    let session = &context.session;
    let answers: Vec<ModelResult<Answer>> = stream::iter(lfns.iter().cloned())
        .map(|lfn| session.call(Operation::Remove { lfn, recursive, directory }))
        .buffered(at_once)
        .collect()
        .await;
    for (lfn, answer) in lfns.iter().zip(answers) {
        match answer {
            Ok(Answer::Removed { id }) => {
                if context.out.style.json {
                    context.out.json(&json::RemovedOut { lfn: lfn.as_str(), trash: id.to_string() })?;
                } else if context.out.style.verbose || (recursive && !context.out.style.quiet) {
                    let name = context.out.name(lfn.as_str());
                    let line = format!("{name} is in the trash; to bring it back: exacat trash restore {id}");
                    context.out.line(line)?;
                }
            }
            Ok(other) => return Err(Failure::unexpected(&other)),
            Err(error) if force && error.kind == ErrorKind::NotFound => {}
            Err(error) => context.fail(lfn.as_str(), &error),
        }
    }
    Ok(())
}

/// True if no name equals another, or is below it.
fn independent(lfns: &[Lfn]) -> bool {
    let mut sorted: Vec<Vec<&str>> = lfns.iter().map(|lfn| lfn.components().collect()).collect();
    // By components: then entries below a name come right after it.
    sorted.sort_unstable();
    !sorted.windows(2).any(|pair| pair[1].starts_with(&pair[0]))
}

/// `exacat ln`
pub(crate) async fn ln(context: &mut Context, args: LnArgs) -> Result<(), Failure> {
    let target = parse::lfn(&args.target).map_err(|error| Failure::about(&args.target, error))?;
    let lfn = parse::lfn(&args.lfn).map_err(|error| Failure::about(&args.lfn, error))?;
    context.change(&args.lfn, Operation::Link { lfn, target }).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_below_one_another_keep_their_order() {
        let lfns =
            |names: &[&str]| -> Vec<Lfn> { names.iter().map(|name| Lfn::parse(name).unwrap()).collect() };
        assert!(independent(&lfns(&["/a/b", "/a/c", "/ab", "/a b"])));
        assert!(!independent(&lfns(&["/a/b", "/x", "/a"])));
        // A blank sorts before a slash: by bytes these two would not be neighbours.
        assert!(!independent(&lfns(&["/a", "/a b", "/a/b"])));
        assert!(!independent(&lfns(&["/a", "/a"])));
        assert!(independent(&lfns(&[])));
    }
}
