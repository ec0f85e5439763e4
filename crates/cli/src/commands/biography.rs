//! `log --full`: the biography of an entry: its own changes, and the moves, removals and returns of the
//! directories that it was in.
//!
//! The changes of an entry tell in which directory it was, and when. The history of that directory, for that
//! time, tells the same of the one above.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use exacat_model::answer::ChangeInfo;
use exacat_model::{
    Answer, At, Cursor, DirId, Effect, EntryId, ErrorKind, Lfn, Operation, Revision, TimelineId,
};

use crate::context::{Context, PAGE_ITEMS};
use crate::failure::{Failure, say};

/// Directories whose history one biography reads. An entry is seldom in more than a dozen.
const DIRECTORIES_MAX: usize = 256;
/// Changes that one biography holds.
const CHANGES_MAX: usize = 100_000;

/// Time that an entry, or a directory above it, was in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stay {
    directory: DirId,
    /// The change that began it.
    from: Revision,
    /// The change that ended it; none if it goes on.
    to: Option<Revision>,
}

/// History of an entry, and the present paths of the directories that it names.
struct History {
    items: Vec<ChangeInfo>,
    directories: BTreeMap<DirId, Lfn>,
    timeline: TimelineId,
    cut: bool,
}

/// Returns the place that a change leaves an entry at; none outside of the tree.
fn place_after(effect: &Effect) -> Option<&At> {
    match effect {
        Effect::Purged { .. } | Effect::Removed { .. } => None,
        effect => effect.at(),
    }
}

/// Returns the stays of an entry within a time, from its own changes, oldest first.
fn stays(items: &[ChangeInfo], within: (Revision, Option<Revision>)) -> Vec<Stay> {
    let mut stays: Vec<Stay> = Vec::new();
    for info in items {
        let revision = info.change.revision;
        let after = place_after(&info.change.effect).filter(|at| !at.is_withheld()).map(|at| at.parent);
        let open = stays.last_mut().filter(|stay| stay.to.is_none());
        match (open, after) {
            (Some(stay), Some(parent)) if stay.directory == parent => {}
            (open, after) => {
                if let Some(stay) = open {
                    stay.to = Some(revision);
                }
                if let Some(directory) = after {
                    // What it was in before its first known change is where that change finds it.
                    let first = stays.is_empty() && !matches!(info.change.effect, Effect::Created { .. });
                    let from = if first && !is_move(&info.change.effect) { Revision(0) } else { revision };
                    stays.push(Stay { directory, from, to: None });
                }
            }
        }
    }
    let (begin, end) = within;
    let earlier = |one: Option<Revision>, other: Option<Revision>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    for stay in &mut stays {
        (stay.from, stay.to) = (stay.from.max(begin), earlier(stay.to, end));
    }
    stays.retain(|stay| stay.to.is_none_or(|to| stay.from < to));
    stays
}

/// Says whether a change moves what is below a directory.
fn is_move(effect: &Effect) -> bool {
    matches!(effect, Effect::Moved { .. } | Effect::Removed { .. } | Effect::Restored { .. })
}

/// Refuses more changes than a biography holds. `who` has them.
fn check_bound(lfn: &Lfn, changes: usize, who: &str) -> Result<(), Failure> {
    if changes <= CHANGES_MAX {
        return Ok(());
    }
    let what = format!("{who} more than {CHANGES_MAX} changes: leave out --full, which holds them in memory");
    Err(Failure::about(lfn.as_str(), exacat_model::Error::new(ErrorKind::Limit, what)))
}

/// Reads the whole history of an entry; none if the caller may not.
async fn history(context: &Context, lfn: &Lfn, is_subject: bool) -> Result<Option<History>, Failure> {
    let ask = Operation::Log { lfn: lfn.clone(), cursor: Cursor::default(), limit: PAGE_ITEMS };
    let mut pages = context.pages(ask);
    let mut read: Option<History> = None;
    loop {
        match pages.next().await {
            Ok(Some(Answer::Changes { items, timeline, cut, .. })) => {
                let read = read.get_or_insert_with(|| History {
                    items: Vec::new(),
                    directories: BTreeMap::new(),
                    timeline,
                    cut: false,
                });
                read.cut |= cut;
                read.directories.extend(items.iter().flat_map(|info| info.directories.iter().cloned()));
                read.items.extend(items);
                check_bound(lfn, read.items.len(), "it has")?;
            }
            Ok(Some(other)) => return Err(Failure::unexpected(&other)),
            Ok(None) => return Ok(read),
            Err(error) if !is_subject && matches!(error.kind, ErrorKind::Denied | ErrorKind::NotFound) => {
                return Ok(None);
            }
            Err(error) => return Err(Failure::about(lfn.as_str(), error)),
        }
    }
}

/// Biography of an entry.
pub(crate) struct Biography {
    /// Changes of the entry, and of the directories that it was in, oldest first.
    pub(crate) items: Vec<ChangeInfo>,
    pub(crate) timeline: Option<TimelineId>,
}

/// Reads the biography of the entry at a name.
pub(crate) async fn biography(context: &mut Context, lfn: &Lfn) -> Result<Biography, Failure> {
    let Some(own) = history(context, lfn, true).await? else {
        return Ok(Biography { items: Vec::new(), timeline: None });
    };
    if own.cut {
        say("exacat: earlier changes of it are not kept in the history");
    }
    let timeline = own.timeline;
    let (mut paths, mut found) = (own.directories, BTreeMap::new());
    let mut waiting: VecDeque<Stay> = stays(&own.items, (Revision(0), None)).into();
    // A directory above the present place has a path even if no change names it.
    if let (Some(stay), Some(parent)) = (waiting.back().filter(|stay| stay.to.is_none()), lfn.parent()) {
        paths.entry(stay.directory).or_insert(parent);
    }
    found.extend(own.items.into_iter().map(|info| (info.change.revision, info)));
    let mut histories: BTreeMap<DirId, Option<Vec<ChangeInfo>>> = BTreeMap::new();
    let (mut seen, mut unknown): (BTreeSet<(DirId, Revision)>, BTreeSet<DirId>) = Default::default();
    let mut is_bounded = false;
    while let Some(stay) = waiting.pop_front() {
        if stay.directory == DirId::ROOT || !seen.insert((stay.directory, stay.from)) {
            continue;
        }
        if !histories.contains_key(&stay.directory) {
            let read = match paths.get(&stay.directory).cloned() {
                Some(path) if histories.len() < DIRECTORIES_MAX => {
                    let read = history(context, &path, false).await?;
                    // Another entry may have that name by now.
                    read.filter(|read| is_of(&read.items, stay.directory)).map(|read| {
                        paths.extend(read.directories);
                        if let Some(above) = path.parent()
                            && let Some(last) = stays(&read.items, (Revision(0), None)).last()
                            && last.to.is_none()
                        {
                            paths.entry(last.directory).or_insert(above);
                        }
                        read.items
                    })
                }
                Some(_) => {
                    is_bounded = true;
                    None
                }
                None => None,
            };
            histories.insert(stay.directory, read);
        }
        let Some(Some(items)) = histories.get(&stay.directory) else {
            unknown.insert(stay.directory);
            continue;
        };
        let during = |revision: Revision| revision > stay.from && stay.to.is_none_or(|to| revision <= to);
        for info in items.iter().filter(|info| during(info.change.revision) && is_move(&info.change.effect)) {
            found.insert(info.change.revision, info.clone());
        }
        check_bound(lfn, found.len(), "the directories above it have")?;
        waiting.extend(stays(items, (stay.from, stay.to)));
    }
    if !unknown.is_empty() {
        let count = crate::output::human::plural(unknown.len() as u64, "directory");
        let why = match is_bounded {
            true => format!("--full reads {DIRECTORIES_MAX} directories"),
            false => "they cannot be read, or are gone".to_owned(),
        };
        say(&format!("exacat: moves of {count} that it was in are not shown: {why}"));
    }
    Ok(Biography { items: found.into_values().collect(), timeline: Some(timeline) })
}

/// Says whether changes are those of a directory.
fn is_of(items: &[ChangeInfo], directory: DirId) -> bool {
    let last = items.last().and_then(|info| info.change.effect.entry_id());
    last == Some(EntryId::Directory(directory))
}

#[cfg(test)]
mod tests {
    use exacat_model::{Change, Guid, Name, OperationId, TimeMs, TrashId, UserId};

    use super::*;

    fn at(parent: u64) -> At {
        At { parent: DirId(parent), name: Name::parse("f").unwrap() }
    }

    fn info(revision: u64, effect: Effect) -> ChangeInfo {
        let change = Change {
            revision: Revision(revision),
            time: TimeMs(revision),
            who: UserId(1),
            operation: OperationId([0; 16]),
            index: 0,
            effect,
        };
        let (who, lfn) = Default::default();
        ChangeInfo { change, who, lfn, users: Vec::new(), groups: Vec::new(), directories: Vec::new() }
    }

    fn stay(directory: u64, from: u64, to: Option<u64>) -> Stay {
        Stay { directory: DirId(directory), from: Revision(from), to: to.map(Revision) }
    }

    /// An entry stays in a directory from the change that brought it there to the one that took it away, and
    /// nowhere while it is in the trash.
    #[test]
    fn stays_are_between_the_changes_of_place() {
        let id = EntryId::Object(Guid([1; 16]));
        let previous = None;
        let lfn = Lfn::parse("/x/f").unwrap();
        let fields = Vec::new();
        let history = [
            info(5, Effect::Updated { at: at(2), id, fields: fields.clone(), previous }),
            info(10, Effect::Moved { id, from: at(2), to: at(3), previous }),
            info(11, Effect::Updated { at: at(3), id, fields, previous }),
            info(20, Effect::Removed { id, at: at(3), lfn, previous }),
            info(30, Effect::Restored { trash: TrashId(Revision(20)), id, to: at(4), previous }),
        ];
        let all = stays(&history, (Revision(0), None));
        assert_eq!(all, [stay(2, 0, Some(10)), stay(3, 10, Some(20)), stay(4, 30, None)]);
        let part = stays(&history, (Revision(12), Some(Revision(31))));
        assert_eq!(part, [stay(3, 12, Some(20)), stay(4, 30, Some(31))]);
        assert_eq!(stays(&history[..2], (Revision(10), Some(Revision(10)))), []);
        assert_eq!(stays(&[], (Revision(0), None)), []);
    }

    #[test]
    fn biography_of_one_change_too_many_is_refused_with_the_way_out() {
        let lfn = Lfn::parse("/x/f").unwrap();
        assert!(check_bound(&lfn, CHANGES_MAX, "it has").is_ok());
        let Err(Failure::Catalogue { error, .. }) = check_bound(&lfn, CHANGES_MAX + 1, "it has") else {
            panic!("not refused");
        };
        assert!(error.message.starts_with("it has more than 100000 changes: leave out --full"), "{error}");
    }
}
