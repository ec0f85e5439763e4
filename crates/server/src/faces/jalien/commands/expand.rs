//! Paths with wildcards: `*`, `?` and `[…]` in the names of a path stand for what is there.

use exacat_model::query::has_wildcard;
use exacat_model::{Answer, Cursor, Lfn, Name, Operation};
use exacat_wire::jalien::errno;
use globset::{GlobBuilder, GlobMatcher};

use crate::faces::jalien::shell::{Failure, Outcome, Shell, unexpected};

/// Paths one wildcard may stand for.
const EXPANDED_MAX: usize = 100_000;
/// Too many of something.
const E2BIG: i32 = 7;

/// The paths a text stands for: one without wildcards for itself, there or not; one with, for what is there.
pub(super) async fn expand(shell: &mut Shell, text: &str) -> Outcome<Vec<Lfn>> {
    let whole = shell.path(text)?;
    // What stands under just that name is meant, whatever its characters could stand for.
    if !has_wildcard(whole.as_str()) || shell.stat_if_there(&whole).await?.is_some() {
        return Ok(vec![whole]);
    }
    let mut found = vec![Lfn::root()];
    let mut certain = true;
    for name in whole.components() {
        if has_wildcard(name) {
            found = matching(shell, &found, name).await?;
            certain = true;
        } else {
            let name = Name::parse(name)?;
            found = found.iter().map(|lfn| lfn.join(&name)).collect();
            certain = false;
        }
    }
    if !certain {
        let stats = shell.stats(found.clone(), false).await?;
        found = found.into_iter().zip(stats).filter_map(|(lfn, stat)| stat.ok().map(|_| lfn)).collect();
    }
    if found.is_empty() {
        return Err(Failure::new(errno::ENOENT, text));
    }
    Ok(found)
}

/// Expands each text; what cannot be is remembered as a failure.
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

fn matcher(pattern: &str) -> Outcome<GlobMatcher> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| Failure::invalid(format!("bad pattern: {error}")))
}

/// What in these directories has a name that matches. Names that begin with a dot are meant only by patterns that do.
async fn matching(shell: &mut Shell, directories: &[Lfn], pattern: &str) -> Outcome<Vec<Lfn>> {
    let matcher = matcher(pattern)?;
    let hidden = pattern.starts_with('.');
    let mut found = Vec::new();
    for directory in directories {
        let stat = shell.stat_if_there(directory).await;
        // What is no directory has nothing in it, nor has what is closed to the caller.
        if stat.ok().flatten().is_none_or(|stat| stat.entry.directory().is_none()) {
            continue;
        }
        let list = Operation::List { lfn: directory.clone(), cursor: Cursor::default(), limit: 0 };
        let mut next = Some(list);
        while let Some(answer) = shell.page_as_asked(&mut next).await? {
            let Answer::Entries { items, .. } = answer else { return Err(unexpected()) };
            for stat in items {
                let name = stat.entry.at.name.as_str();
                if matcher.is_match(name) && (hidden || !name.starts_with('.')) {
                    found.push(directory.join(&stat.entry.at.name));
                }
            }
            if found.len() > EXPANDED_MAX {
                let why = format!("{pattern} stands for more than {EXPANDED_MAX} names: be more precise");
                return Err(Failure::new(E2BIG, why));
            }
        }
    }
    Ok(found)
}
