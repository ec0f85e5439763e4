//! Two moments of the catalogue, and the differences between them, from the changes in between. The caller
//! asks the catalogue what [`HistoryReading`] wants to know.
//!
//! The changes of an entry are folded into one difference, so the result does not show what came and went
//! in between. Paths are those of now: a change names its place by directory number and name, and the
//! present path of an entry, or the one it was removed from, is what a caller can look at.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use exacat_model::answer::ChangeInfo;
use exacat_model::{
    Answer, At, Cursor, Difference, DirId, Effect, EntryId, Error, ErrorKind, FieldChange, Kind, Lfn,
    LogPosition, Operation, Result, Revision, Snapshot, SnapshotName, TimeMs,
};

/// Word for the present state.
const NOW: &str = "now";

/// A moment of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A snapshot, with its last change.
    Snapshot(SnapshotName, LogPosition),
    /// The state after a change.
    After(LogPosition),
    /// The state at a time: [`RevisionAt`] finds its last change.
    At(TimeMs),
    /// The present state.
    Now,
}

impl Moment {
    /// Reads a moment: the name of a snapshot, `now`, a revision, or a time.
    pub fn parse(text: &str, snapshots: &[Snapshot]) -> Result<Self> {
        if text == NOW {
            return Ok(Moment::Now);
        }
        if let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.name.as_str() == text) {
            return Ok(Moment::Snapshot(snapshot.name.clone(), position_of(snapshot)));
        }
        match (text.parse::<LogPosition>(), TimeMs::parse(text)) {
            (Ok(position), _) => Ok(Moment::after(position, snapshots)),
            (Err(_), Ok(time)) => Ok(Moment::At(time)),
            (Err(_), Err(_)) => Err(Error::not_found(
                "neither a snapshot (exacat snapshot ls), nor a revision, a time or 'now'",
            )),
        }
    }

    /// Returns the state after a change. A sound snapshot of that revision is cheaper, and has the paths of
    /// its time.
    pub fn after(position: LogPosition, snapshots: &[Snapshot]) -> Self {
        let same = |snapshot: &&Snapshot| {
            snapshot.problem.is_none()
                && position.timeline.is_none()
                && snapshot.revision == position.revision
        };
        match snapshots.iter().find(same) {
            Some(snapshot) => Moment::Snapshot(snapshot.name.clone(), position_of(snapshot)),
            None => Moment::After(position),
        }
    }
}

fn position_of(snapshot: &Snapshot) -> LogPosition {
    LogPosition { revision: snapshot.revision, timeline: snapshot.timeline.map(|timeline| timeline.whole()) }
}

/// Search for the last revision at or before a time, by looks at single changes.
#[derive(Debug)]
pub struct RevisionAt {
    time: TimeMs,
    // Changes after `low` are later than the time, or not kept; the change `high` + 1 is later.
    low: u64,
    high: u64,
    kept: Option<Revision>,
    /// True once the history was found to reach back to `low`, or not.
    is_checked: bool,
}

impl RevisionAt {
    /// Begins a search among the revisions up to `last`.
    pub fn new(time: TimeMs, last: Revision) -> Self {
        RevisionAt { time, low: 0, high: last.0, kept: None, is_checked: false }
    }

    fn middle(&self) -> u64 {
        self.low + (self.high - self.low).div_ceil(2)
    }

    /// Returns the revision whose next change must be looked at; none at the end of the search.
    pub fn wanted(&self) -> Option<Revision> {
        match self.low < self.high {
            true => Some(Revision(self.middle() - 1)),
            // All changes are later: the history must reach back to the first one.
            false => (self.kept.is_none() && !self.is_checked).then_some(Revision(self.low)),
        }
    }

    /// Takes the time of the change after the wanted revision; none if there is no change. The error is
    /// `NotFound` for a change that is not kept.
    pub fn look(&mut self, found: Result<Option<TimeMs>>) -> Result<()> {
        let is_kept = match &found {
            Err(error) if error.kind != ErrorKind::NotFound => return found.map(drop),
            found => found.is_ok(),
        };
        if self.low >= self.high {
            self.is_checked = true;
            self.kept = (is_kept && self.low == 0).then_some(Revision(0));
            return Ok(());
        }
        let middle = self.middle();
        match found {
            Ok(Some(time)) if time <= self.time => {
                self.low = middle;
                self.kept = Some(Revision(middle));
            }
            // On a cluster there are gaps.
            Ok(_) => self.high = middle - 1,
            Err(_) => self.low = middle,
        }
        Ok(())
    }

    /// Returns the revision that was found; none if the history does not reach back so far.
    pub fn found(&self) -> Option<Revision> {
        self.kept
    }
}

/// Refuses two moments in the wrong order, and one after the end of the history.
fn check_order(from: LogPosition, to: LogPosition, end: Revision) -> Result<()> {
    if from.revision > to.revision {
        return Err(Error::invalid(format!("{from} is later than {to}: give the earlier moment first")));
    }
    if to.revision > end {
        return Err(Error::not_found(format!("the history ends at revision {}: {to} is later", end.0)));
    }
    Ok(())
}

/// Says whether a difference at `lfn` concerns what is below a directory: it is there, or stands for it.
fn concerns(under: &Lfn, lfn: &Lfn) -> bool {
    under.contains(lfn) || lfn.contains(under)
}

/// Says whether a difference between snapshots concerns what is below a directory. An entry that changed at
/// its place stands for itself, any other for everything below it.
pub fn is_below(item: &Difference, under: &Lfn) -> bool {
    let mut sides = item.before.iter().chain(&item.after);
    match (&item.before, &item.after) {
        (Some(before), Some(after)) if before.entry.at == after.entry.at => {
            sides.any(|side| under.contains(&side.lfn))
        }
        _ => sides.any(|side| concerns(under, &side.lfn)),
    }
}

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

impl HistoryDifference {
    /// Compares its place in the order of a result with that of another entry.
    pub fn order(&self, (lfn, id): (&Lfn, EntryId)) -> Ordering {
        self.lfn.components().cmp(lfn.components()).then_with(|| self.id.cmp(&id))
    }
}

/// Differences between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryDiff {
    /// Differences below the directory, by path.
    pub items: Vec<HistoryDifference>,
    /// Entries that differ, and whose path is not known any more.
    pub unplaced: u64,
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

impl Folded {
    /// Returns the kind of the difference; none if the entry is the same at both moments.
    fn differs(&self) -> Option<Differs> {
        match (&self.before, &self.after) {
            (None, None) => None,
            (None, Some(_)) => Some(Differs::Created),
            (Some(_), None) => Some(Differs::Removed),
            (Some(before), Some(after)) if before != after => Some(Differs::Moved),
            (Some(_), Some(_)) => (!self.fields.is_empty()).then_some(Differs::Changed),
        }
    }
}

/// Changes folded by entry.
#[derive(Debug)]
struct HistoryFold {
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

impl HistoryFold {
    /// Makes an empty fold for at most `entries_max` entries.
    fn new(entries_max: usize) -> Self {
        HistoryFold { entries: BTreeMap::new(), entries_max, directories: HashMap::new() }
    }

    /// Adds a change between the moments. Refuses more entries than the limit.
    fn change(&mut self, info: &ChangeInfo) -> Result<()> {
        let effect = &info.change.effect;
        let (Some((before, after)), Some(id)) = (places(effect), effect.entry_id()) else { return Ok(()) };
        if !self.entries.contains_key(&id) && self.entries.len() >= self.entries_max {
            let message = format!(
                "more than {} entries changed between the two moments: compare two snapshots, or moments that are \
                 closer",
                self.entries_max
            );
            return Err(Error::new(ErrorKind::Limit, message));
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
        self.place(info);
        Ok(())
    }

    /// Learns paths from a change, also from one after the later moment.
    fn place(&mut self, info: &ChangeInfo) {
        let Some(id) = info.change.effect.entry_id() else { return };
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

    /// Returns the next moved entry after `last` whose former directory is not known, with its present path.
    /// Its own history names that directory.
    fn unknown_origin(&self, last: Option<EntryId>) -> Option<(EntryId, Lfn)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = last.map_or(Unbounded, Excluded);
        self.entries.range((from, Unbounded)).find_map(|(id, folded)| {
            let before = folded.before.as_ref().filter(|_| folded.differs() == Some(Differs::Moved))?;
            let stands = folded.stands.as_ref().filter(|_| !self.directories.contains_key(&before.parent))?;
            Some((*id, stands.clone()))
        })
    }

    /// Learns the present paths of directories.
    fn learn(&mut self, directories: impl IntoIterator<Item = (DirId, Lfn)>) {
        self.directories.extend(directories);
    }

    /// Returns the differences below a directory.
    fn differences(self, under: &Lfn) -> HistoryDiff {
        let mut diff = HistoryDiff::default();
        let HistoryFold { entries, directories, .. } = self;
        let by_place = |at: Option<&At>| {
            let at = at.filter(|at| !at.is_withheld())?;
            Some(directories.get(&at.parent)?.join(&at.name))
        };
        for (id, folded) in entries {
            let Some(differs) = folded.differs() else { continue };
            let place = folded.after.as_ref().or(folded.before.as_ref());
            let lfn = match differs {
                Differs::Removed => folded.removed.clone().or_else(|| by_place(place)),
                _ => folded.stands.clone().or_else(|| by_place(place)).or(folded.removed.clone()),
            };
            let from = folded.before.as_ref().filter(|_| differs == Differs::Moved);
            let from = from.and_then(|before| by_place(Some(before)));
            let Some(lfn) = lfn else {
                diff.unplaced += 1;
                continue;
            };
            let is_wanted = match differs {
                Differs::Changed => under.contains(&lfn),
                _ => concerns(under, &lfn) || from.as_ref().is_some_and(|from| concerns(under, from)),
            };
            if is_wanted {
                let fields = folded.fields.into_iter().collect();
                diff.items.push(HistoryDifference { differs, lfn, from, id, kind: folded.kind, fields });
            }
        }
        diff.items.sort_by(|one, other| one.order((&other.lfn, other.id)));
        diff
    }
}

/// Bounds of a reading.
#[derive(Clone, Copy, Debug)]
pub struct HistoryBounds {
    /// Most entries that changed between the moments.
    pub entries_max: usize,
    /// Most moved entries whose former directory is looked up.
    pub lookups_max: usize,
    /// Changes that are asked for at once.
    pub page: u32,
}

/// Step of a reading.
#[derive(Debug)]
enum Step {
    /// Both moments must be of this history.
    Check,
    /// The changes between the moments.
    Between,
    /// The changes since then: removals have the paths of what is not in the tree any more.
    Since,
    /// The own history of a moved entry, which names its former directory; none at the end.
    Origin(Option<(EntryId, Lfn)>),
}

/// Reads the differences between two moments: it tells the operations, and takes their answers.
#[derive(Debug)]
pub struct HistoryReading {
    fold: HistoryFold,
    step: Step,
    /// Position up to which the changes of a step were read.
    after: LogPosition,
    to: LogPosition,
    end: Revision,
    lookups_left: usize,
    page: u32,
}

impl HistoryReading {
    /// Begins to read. `end` is the end of the history.
    ///
    /// # Errors
    /// The moments are in the wrong order, or the later one is after the end.
    pub fn new((from, to): (LogPosition, LogPosition), end: Revision, bounds: HistoryBounds) -> Result<Self> {
        check_order(from, to, end)?;
        Ok(HistoryReading {
            fold: HistoryFold::new(bounds.entries_max),
            step: Step::Check,
            after: from,
            to,
            end,
            lookups_left: bounds.lookups_max,
            page: bounds.page,
        })
    }

    /// Returns the next operation; none at the end.
    pub fn wanted(&self) -> Option<Operation> {
        match &self.step {
            Step::Check => Some(Operation::Position { after: self.to }),
            Step::Between | Step::Since => {
                Some(Operation::Changes { after: self.after, under: None, limit: self.page, wait: false })
            }
            Step::Origin(asked) => asked.as_ref().map(|(_, lfn)| Operation::Log {
                lfn: lfn.clone(),
                cursor: Cursor::default(),
                limit: self.page,
            }),
        }
    }

    /// Takes the answer to the wanted operation. Refuses more entries than the bound.
    pub fn take(&mut self, answer: Result<Answer>) -> Result<()> {
        match &mut self.step {
            Step::Check => {
                answer?;
                self.step = Step::Between;
            }
            Step::Between | Step::Since => {
                let is_between = matches!(self.step, Step::Between);
                let Answer::Changes { items, up_to, timeline, .. } = answer? else { return Err(unfitting()) };
                let through = if is_between { self.to.revision } else { self.end };
                for info in items.iter().filter(|info| info.change.revision <= through) {
                    if is_between { self.fold.change(info)? } else { self.fold.place(info) }
                }
                let last = items.last().map_or(Revision(0), |info| info.change.revision).max(up_to);
                // Without progress there is nothing more.
                let last = if last <= self.after.revision { through } else { last };
                self.after = LogPosition { revision: last, timeline: Some(timeline.whole()) };
            }
            Step::Origin(asked) => {
                match answer {
                    Ok(Answer::Changes { items, .. }) => {
                        self.fold.learn(items.into_iter().flat_map(|info| info.directories));
                    }
                    Ok(_) => return Err(unfitting()),
                    // It may have gone meanwhile.
                    Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) => {}
                    Err(error) => return Err(error),
                }
                let last = asked.take().map(|(id, _)| id);
                self.look_for_origin(last);
            }
        }
        if matches!(self.step, Step::Between) && self.after.revision >= self.to.revision {
            (self.step, self.after) = (Step::Since, self.to);
        }
        if matches!(self.step, Step::Since) && self.after.revision >= self.end {
            self.look_for_origin(None);
        }
        Ok(())
    }

    fn look_for_origin(&mut self, last: Option<EntryId>) {
        let left = self.lookups_left.checked_sub(1);
        self.lookups_left = left.unwrap_or(0);
        self.step = Step::Origin(left.and_then(|_| self.fold.unknown_origin(last)));
    }

    /// Returns the differences below a directory.
    pub fn differences(self, under: &Lfn) -> HistoryDiff {
        self.fold.differences(under)
    }
}

fn unfitting() -> Error {
    Error::new(ErrorKind::Internal, "the catalogue's answer does not fit a question about its history")
}

#[cfg(test)]
mod tests {
    use exacat_model::{Change, Guid, Mode, Name, OperationId, UserId};

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
        let mut fold = HistoryFold::new(2);
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
        let mut fold = HistoryFold::new(2);
        let id = EntryId::Object(Guid([1; 16]));
        let moved = |from, to| Effect::Moved { id, from, to, previous: None };
        fold.change(&info(moved(at(2, "f"), at(3, "g")), Some("/d/f"))).unwrap();
        assert_eq!(fold.unknown_origin(None), Some((id, Lfn::parse("/d/f").unwrap())));
        assert_eq!(fold.unknown_origin(Some(id)), None);
        fold.change(&info(moved(at(3, "g"), at(2, "f")), Some("/d/f"))).unwrap();
        let folded = &fold.entries[&id];
        assert_eq!((&folded.before, &folded.after), (&Some(at(2, "f")), &Some(at(2, "f"))));
        assert_eq!(fold.directories.get(&DirId(2)), Some(&Lfn::parse("/d").unwrap()));
        assert_eq!(fold.directories.get(&DirId(3)), None);
        assert_eq!(fold.unknown_origin(None), None, "it did not move");
        assert_eq!(fold.differences(&Lfn::root()), HistoryDiff::default());
    }

    /// A reading looks up the former directories of as many moved entries as its bound, and goes on without
    /// the others.
    #[test]
    fn former_directories_beyond_the_bound_are_not_looked_up() {
        let position = |revision| LogPosition { revision: Revision(revision), timeline: None };
        let moved = |number: u8| {
            let (id, to) = (EntryId::Object(Guid([number; 16])), at(3, &format!("g{number}")));
            let from = at(100 + u64::from(number), "f");
            let mut moved =
                info(Effect::Moved { id, from, to, previous: None }, Some(&format!("/d/g{number}")));
            moved.change.revision = Revision(number.into());
            moved
        };
        for (lookups_max, wanted) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
            let bounds = HistoryBounds { entries_max: 2, lookups_max, page: 10 };
            let mut reading = HistoryReading::new((position(0), position(2)), Revision(2), bounds).unwrap();
            let mut looked_up = 0;
            while let Some(operation) = reading.wanted() {
                let items = match operation {
                    Operation::Changes { .. } => vec![moved(1), moved(2)],
                    Operation::Log { .. } => {
                        looked_up += 1;
                        reading.take(Err(Error::not_found("gone meanwhile"))).unwrap();
                        continue;
                    }
                    _ => Vec::new(),
                };
                let (timeline, up_to) = (exacat_model::TimelineId([1; 16]), Revision(2));
                reading.take(Ok(Answer::Changes { items, next: None, up_to, timeline, cut: false })).unwrap();
            }
            assert_eq!(looked_up, wanted, "{lookups_max}");
            let diff = reading.differences(&Lfn::root());
            assert!(diff.items.len() == 2 && diff.items.iter().all(|item| item.from.is_none()), "{diff:?}");
        }
    }

    /// Searches the times of changes, of which the ones before `oldest` are not kept.
    fn search(times: &[u64], oldest: u64, time: u64) -> Option<u64> {
        let mut search = RevisionAt::new(TimeMs(time), Revision(times.len() as u64));
        let mut looks = 0;
        while let Some(after) = search.wanted() {
            looks += 1;
            assert!(looks < 70, "the search does not end");
            let found = match after.0 + 1 < oldest {
                true => Err(Error::not_found("not kept")),
                false => Ok(times.get(after.0 as usize).map(|time| TimeMs(*time))),
            };
            search.look(found).unwrap();
        }
        search.found().map(|revision| revision.0)
    }

    /// The search finds the last change at or before a time, the state before the first change, and tells a
    /// time before the history that is kept.
    #[test]
    fn revision_at_a_time_is_found() {
        let times = [10, 20, 20, 30, 40];
        for (time, wanted) in [(9, 0), (10, 1), (19, 1), (20, 3), (29, 3), (40, 5), (99, 5)] {
            assert_eq!(search(&times, 1, time), Some(wanted), "{time}");
        }
        assert_eq!((search(&times, 4, 30), search(&times, 4, 29)), (Some(4), None));
        assert_eq!(search(&[], 1, 5), Some(0), "an empty history");
        let mut failing = RevisionAt::new(TimeMs(1), Revision(5));
        let broken = Error::new(ErrorKind::Unavailable, "gone");
        assert_eq!(failing.look(Err(broken)).unwrap_err().kind, ErrorKind::Unavailable);
    }

    /// A moment is the name of a snapshot before anything else, then a revision, a time, or now.
    #[test]
    fn moment_is_read_in_each_form() {
        let parse = |text: &str| Moment::parse(text, &[]);
        assert_eq!(parse("now").unwrap(), Moment::Now);
        assert!(matches!(parse("17").unwrap(), Moment::After(position) if position.revision.0 == 17));
        assert!(matches!(parse("2026-01-31").unwrap(), Moment::At(_)));
        for bad in ["", "before-upgrade", "-1", "<script>"] {
            assert_eq!(parse(bad).unwrap_err().kind, ErrorKind::NotFound, "{bad}");
        }
        let position = |revision| LogPosition { revision: Revision(revision), timeline: None };
        assert!(check_order(position(2), position(2), Revision(2)).is_ok());
        assert_eq!(check_order(position(3), position(2), Revision(9)).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(check_order(position(1), position(3), Revision(2)).unwrap_err().kind, ErrorKind::NotFound);
    }
}
