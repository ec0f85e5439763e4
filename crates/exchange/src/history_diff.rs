//! Differences between two moments, from the changes between them.
//!
//! The changes of an entry are folded into one difference, so the result does not show what came and went
//! in between. Paths are those of now: a change names its place by directory number and name, and the
//! present path of an entry, or the one it was removed from, is what a caller can look at.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use exacat_model::answer::ChangeInfo;
use exacat_model::{
    Answer, At, Cursor, DirId, Effect, EntryId, Error as ModelError, ErrorKind, FieldChange, Kind, Lfn,
    LogPosition, Operation, Revision,
};

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::limits::{CHANGES_PAGE_ITEMS, HISTORY_DIFF_ENTRIES_MAX, HISTORY_DIFF_LOOKUPS_MAX};
use crate::sending::unexpected;
use crate::walk::end_of_history;

/// Kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Differs {
    /// Only the later moment has the entry.
    Created,
    /// Both have it, at the same place.
    Changed,
    /// Both have it, at different places.
    Moved,
    /// Only the earlier moment has it.
    Removed,
}

/// Difference of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryDifference {
    /// Kind of it.
    pub differs: Differs,
    /// Its path now, or the one that it was removed from.
    pub lfn: Lfn,
    /// Former path of a moved entry, by the present path of the directory; none if that is gone.
    pub from: Option<Lfn>,
    /// The entry.
    pub id: EntryId,
    /// Kind of the entry, if the changes tell.
    pub kind: Option<Kind>,
    /// Names of the fields that changed.
    pub fields: Vec<&'static str>,
}

/// Differences between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryDiff {
    /// Differences below the directory, by path.
    pub items: Vec<HistoryDifference>,
    /// Entries that differ, and whose path is not known any more.
    pub unplaced: u64,
    /// Changes that were read.
    pub changes: u64,
}

/// Differences of an entry so far.
#[derive(Debug, Default)]
struct Folded {
    /// Place before the first change; none if it was not in the tree.
    before: Option<At>,
    /// Place after the last change.
    after: Option<At>,
    kind: Option<Kind>,
    fields: BTreeSet<&'static str>,
    /// Path now.
    stands: Option<Lfn>,
    /// Path that it was removed from last.
    removed: Option<Lfn>,
}

/// Changes folded by entry.
struct Fold {
    entries: BTreeMap<EntryId, Folded>,
    /// Most entries that it holds.
    entries_max: usize,
    /// Present paths of directories, as far as changes tell.
    directories: HashMap<DirId, Lfn>,
}

fn field_name(field: &FieldChange) -> &'static str {
    match field {
        FieldChange::Owner { .. } => "owner",
        FieldChange::Group { .. } => "group",
        FieldChange::Mode { .. } => "mode",
        FieldChange::Modified { .. } => "modified",
        FieldChange::Expires { .. } => "expires",
        FieldChange::Job { .. } => "job",
        FieldChange::Size { .. } => "size",
        FieldChange::Checksum { .. } => "checksums",
        FieldChange::Replica { .. } => "replicas",
        FieldChange::Tag { .. } => "tags",
        FieldChange::Member { .. } => "members",
    }
}

/// Kind of the entries that have a field.
fn kind_with(field: &FieldChange) -> Option<Kind> {
    match field {
        FieldChange::Job { .. }
        | FieldChange::Size { .. }
        | FieldChange::Checksum { .. }
        | FieldChange::Replica { .. } => Some(Kind::File),
        FieldChange::Member { .. } => Some(Kind::Collection),
        _ => None,
    }
}

/// Places of an entry before and after an effect; none if the effect is of no entry in the tree.
fn places(effect: &Effect) -> Option<(Option<&At>, Option<&At>)> {
    match effect {
        Effect::Created { entry } => Some((None, Some(&entry.at))),
        Effect::Committed { at, created: Some(_), .. } => Some((None, Some(at))),
        Effect::Updated { at, .. } | Effect::Committed { at, .. } => Some((Some(at), Some(at))),
        Effect::Moved { from, to, .. } => Some((Some(from), Some(to))),
        Effect::Removed { at, .. } => Some((Some(at), None)),
        Effect::Restored { to, .. } => Some((None, Some(to))),
        // An entry is purged from the trash.
        Effect::Purged { .. } => Some((None, None)),
        Effect::Reserved { .. }
        | Effect::Released { .. }
        | Effect::Dequeued { .. }
        | Effect::Recorded { .. } => None,
    }
}

impl Fold {
    fn new(entries_max: usize) -> Self {
        Fold { entries: BTreeMap::new(), entries_max, directories: HashMap::new() }
    }

    /// Adds a change between the moments.
    fn change(&mut self, info: &ChangeInfo) -> Result<(), ModelError> {
        let effect = &info.change.effect;
        let (Some((before, after)), Some(id)) = (places(effect), effect.entry_id()) else { return Ok(()) };
        if !self.entries.contains_key(&id) && self.entries.len() >= self.entries_max {
            let message = format!(
                "more than {} entries changed between the two moments: compare two snapshots, or moments that are \
                 closer",
                self.entries_max
            );
            return Err(ModelError::new(ErrorKind::Limit, message));
        }
        let folded = self.entries.entry(id).or_insert_with(|| Folded {
            before: before.cloned(),
            kind: matches!(id, EntryId::Directory(_)).then_some(Kind::Directory),
            ..Folded::default()
        });
        folded.after = after.cloned();
        match effect {
            Effect::Created { entry } | Effect::Committed { created: Some(entry), .. } => {
                folded.kind = Some(entry.kind());
            }
            Effect::Committed { checksums, .. } => {
                folded.kind = Some(Kind::File);
                folded.fields.insert("replicas");
                if !checksums.is_empty() {
                    folded.fields.insert("checksums");
                }
            }
            Effect::Updated { fields, .. } => {
                folded.fields.extend(fields.iter().map(field_name));
                folded.kind = folded.kind.or(fields.iter().find_map(kind_with));
            }
            _ => {}
        }
        self.place(id, info);
        Ok(())
    }

    /// Learns paths from a change, also from one after the later moment.
    fn place(&mut self, id: EntryId, info: &ChangeInfo) {
        let stands = info.lfn.as_ref();
        if let (EntryId::Directory(directory), Some(stands)) = (id, stands) {
            self.directories.insert(directory, stands.clone());
        }
        // The last change of an entry in the tree names the directory where it stands.
        if let (Some(at), Some(stands)) = (info.change.effect.at(), stands)
            && stands.split_last().is_some_and(|(_, name)| name == at.name.as_str())
            && !matches!(info.change.effect, Effect::Removed { .. })
            && let Some(parent) = stands.parent()
        {
            self.directories.insert(at.parent, parent);
        }
        let Some(folded) = self.entries.get_mut(&id) else { return };
        folded.stands = stands.cloned();
        if let Effect::Removed { lfn, .. } = &info.change.effect
            && !lfn.is_root()
        {
            folded.removed = Some(lfn.clone());
        }
    }
}

/// Reads the changes after `from`, up to `to`.
async fn read<C: Catalogue>(
    catalogue: &C,
    (mut after, to): (LogPosition, Revision),
    mut each: impl FnMut(&ChangeInfo) -> Result<(), ModelError>,
) -> Result<u64, Error> {
    let mut count = 0;
    while after.revision < to {
        let ask = Operation::Changes { after, under: None, limit: CHANGES_PAGE_ITEMS, wait: false };
        let Answer::Changes { items, up_to, timeline, .. } = catalogue.call(ask).await? else {
            return Err(unexpected("changes").into());
        };
        for info in items.iter().filter(|info| info.change.revision <= to) {
            count += 1;
            each(info)?;
        }
        let last = items.last().map_or(Revision(0), |info| info.change.revision).max(up_to);
        if last <= after.revision {
            break;
        }
        after = LogPosition { revision: last, timeline: Some(timeline.whole()) };
    }
    Ok(count)
}

/// Returns the differences below a directory between two moments.
pub async fn history_diff<C: Catalogue>(
    catalogue: &C,
    (from, to): (LogPosition, LogPosition),
    under: &Lfn,
) -> Result<HistoryDiff, Error> {
    if from.revision > to.revision {
        let message = format!("{from} is later than {to}: give the earlier moment first");
        return Err(ModelError::invalid(message).into());
    }
    let end = end_of_history(catalogue).await?;
    if to.revision > end.revision {
        let message = format!("the history ends at revision {}: {to} is later", end.revision.0);
        return Err(ModelError::not_found(message).into());
    }
    // Both must be of this history.
    catalogue.call(Operation::Position { after: to }).await?;
    let mut fold = Fold::new(HISTORY_DIFF_ENTRIES_MAX);
    let changes = read(catalogue, (from, to.revision), |info| fold.change(info)).await?;
    // Removals since then have the paths of what is not in the tree any more.
    read(catalogue, (to, end.revision), |info| {
        if let Some(id) = info.change.effect.entry_id() {
            fold.place(id, info);
        }
        Ok(())
    })
    .await?;
    let mut diff = HistoryDiff { changes, ..HistoryDiff::default() };
    let mut lookups = 0;
    let Fold { entries, mut directories, .. } = fold;
    for (id, folded) in entries {
        let differs = match (&folded.before, &folded.after) {
            (None, None) => continue,
            (None, Some(_)) => Differs::Created,
            (Some(_), None) => Differs::Removed,
            (Some(before), Some(after)) if before != after => Differs::Moved,
            (Some(_), Some(_)) if folded.fields.is_empty() => continue,
            (Some(_), Some(_)) => Differs::Changed,
        };
        let by_place = |directories: &HashMap<DirId, Lfn>, at: Option<&At>| {
            let at = at.filter(|at| !at.is_withheld())?;
            Some(directories.get(&at.parent)?.join(&at.name))
        };
        let place = folded.after.as_ref().or(folded.before.as_ref());
        let lfn = match differs {
            Differs::Removed => folded.removed.clone().or_else(|| by_place(&directories, place)),
            _ => folded.stands.clone().or_else(|| by_place(&directories, place)).or(folded.removed.clone()),
        };
        let mut from = None;
        if differs == Differs::Moved {
            let known = folded.before.as_ref().is_some_and(|at| directories.contains_key(&at.parent));
            if !known
                && lookups < HISTORY_DIFF_LOOKUPS_MAX
                && let Some(stands) = &folded.stands
            {
                lookups += 1;
                learn(catalogue, stands, &mut directories).await?;
            }
            from = by_place(&directories, folded.before.as_ref());
        }
        let Some(lfn) = lfn else {
            diff.unplaced += 1;
            continue;
        };
        // A directory above stands for everything below it.
        let concerns = |lfn: &Lfn| under.contains(lfn) || lfn.contains(under);
        let is_wanted = match differs {
            Differs::Changed => under.contains(&lfn),
            _ => concerns(&lfn) || from.as_ref().is_some_and(concerns),
        };
        if is_wanted {
            let fields = folded.fields.into_iter().collect();
            diff.items.push(HistoryDifference { differs, lfn, from, id, kind: folded.kind, fields });
        }
    }
    diff.items.sort_by(|one, other| one.lfn.components().cmp(other.lfn.components()));
    Ok(diff)
}

/// Learns the present paths of the directories that an entry's own history names.
async fn learn<C: Catalogue>(
    catalogue: &C,
    lfn: &Lfn,
    directories: &mut HashMap<DirId, Lfn>,
) -> Result<(), Error> {
    let ask = Operation::Log { lfn: lfn.clone(), cursor: Cursor::default(), limit: CHANGES_PAGE_ITEMS };
    match catalogue.call(ask).await {
        Ok(Answer::Changes { items, .. }) => {
            directories.extend(items.into_iter().flat_map(|info| info.directories));
            Ok(())
        }
        Ok(_) => Err(unexpected("log").into()),
        // It may have gone meanwhile.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::{Change, Guid, Mode, Name, OperationId, TimeMs, UserId};

    use super::*;

    fn at(parent: u64, name: &str) -> At {
        At { parent: DirId(parent), name: Name::parse(name).unwrap() }
    }

    fn info(effect: Effect, lfn: Option<&str>) -> ChangeInfo {
        let change = Change {
            revision: Revision(1),
            time: TimeMs(1),
            who: UserId(1),
            operation: OperationId([0; 16]),
            index: 0,
            effect,
        };
        let lfn = lfn.map(|lfn| Lfn::parse(lfn).unwrap());
        let (users, groups, directories) = Default::default();
        ChangeInfo { change, who: String::new(), lfn, users, groups, directories }
    }

    fn updated(number: u8) -> ChangeInfo {
        let (before, after) = (Mode::new(0o644).unwrap(), Mode::new(0o600).unwrap());
        let fields = vec![FieldChange::Mode { before, after }];
        let id = EntryId::Object(Guid([number; 16]));
        info(Effect::Updated { at: at(2, "f"), id, fields, previous: None }, Some("/d/f"))
    }

    /// One entry more than the bound is refused with the way out; more changes of the same entries are not.
    #[test]
    fn entries_beyond_the_bound_are_refused() {
        let mut fold = Fold::new(2);
        for number in [1, 2, 1, 2] {
            fold.change(&updated(number)).unwrap();
        }
        let error = fold.change(&updated(3)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Limit);
        assert!(
            error.message.contains("more than 2 entries") && error.message.contains("snapshots"),
            "{error}"
        );
    }

    /// A move there and back again is no difference of place, and paths of directories are learnt on the way.
    #[test]
    fn places_are_those_of_the_first_and_the_last_change() {
        let mut fold = Fold::new(2);
        let id = EntryId::Object(Guid([1; 16]));
        let moved = |from, to| Effect::Moved { id, from, to, previous: None };
        fold.change(&info(moved(at(2, "f"), at(3, "g")), Some("/d/f"))).unwrap();
        fold.change(&info(moved(at(3, "g"), at(2, "f")), Some("/d/f"))).unwrap();
        let folded = &fold.entries[&id];
        assert_eq!((&folded.before, &folded.after), (&Some(at(2, "f")), &Some(at(2, "f"))));
        assert_eq!(fold.directories.get(&DirId(2)), Some(&Lfn::parse("/d").unwrap()));
        assert_eq!(fold.directories.get(&DirId(3)), None);
    }
}
