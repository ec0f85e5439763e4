//! Position of a log's reader, as it is in a cursor.

use exacat_model::{EntryId, Error, Lfn, Name, Revision, TimelineTag, canonical_enum, canonical_struct};

/// Changes read from the store at once.
pub(super) const READ_CHANGES: usize = 1000;
/// Most marks of a trail in a cursor; a page reads the changes between two of them.
pub(super) const MARKS_MAX: usize = 256;

/// The entry of a log. A cursor comes from outside, so it only says where to look. Each page checks
/// anew whether the caller may see the entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Subject {
    pub(super) id: EntryId,
    /// The change that purged it, if any; it names the last owner.
    pub(super) purged: Option<Revision>,
}

canonical_struct!(Subject { id, purged });

/// The entry's changes that name their predecessor: the start, newest first, and marks on the way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chain {
    /// Changes of the entry where a read began, newest first. The first is the entry's last change.
    pub(super) marks: Vec<Revision>,
    /// Parts read between two marks.
    parts: u64,
    /// Parts read since the last mark.
    since_mark: u64,
}

canonical_struct!(Chain { marks, parts, since_mark });

/// Cursor of a log: its position, and the timeline of the revisions in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogCursor {
    pub(super) timeline: TimelineTag,
    pub(super) position: Position,
}

canonical_struct!(LogCursor { timeline, position });

/// Position at which a log continues.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Position {
    /// No trace leads to an entry: reads the log part of an older release, up to `until`.
    Seeking { up_to: Revision, until: Revision, stood: Stood },
    /// Follows the chain back, to its beginning.
    Walking { subject: Subject, next: Revision, chain: Chain },
    /// Reports changes before the chain, written by an older release, up to `until`.
    Older { subject: Subject, up_to: Revision, until: Revision, chain: Chain },
    /// Reports the chain, after this change.
    Telling { subject: Subject, after: Revision, chain: Chain },
}

canonical_enum!(Position {
    3 => Seeking { up_to, until, stood },
    4 => Walking { subject, next, chain },
    5 => Older { subject, up_to, until, chain },
    6 => Telling { subject, after, chain },
});

impl Position {
    /// Returns the position at the last change of an entry.
    pub(super) fn at_last(subject: Subject, last: Revision) -> Self {
        let chain = Chain { marks: vec![last], parts: 1, since_mark: 0 };
        Position::Walking { subject, next: last, chain }
    }

    /// Returns the newest revision in the position.
    pub(super) fn newest(&self) -> Revision {
        let (subject, chain, further) = match self {
            Position::Seeking { until, stood, .. } => {
                return stood.purged().unwrap_or_default().max(*until);
            }
            Position::Walking { subject, next, chain } => (subject, chain, next),
            Position::Older { subject, until, chain, .. } => (subject, chain, until),
            Position::Telling { subject, after, chain } => (subject, chain, after),
        };
        let last = chain.marks.first().copied().unwrap_or_default();
        last.max(*further).max(subject.purged.unwrap_or_default())
    }
}

impl Chain {
    /// Notes that a part was read and the next begins with this change. Drops every second mark if
    /// there are too many.
    pub(super) fn read_part(&mut self, next: Revision) {
        self.since_mark += 1;
        if self.since_mark < self.parts {
            return;
        }
        self.since_mark = 0;
        self.marks.push(next);
        if self.marks.len() > MARKS_MAX {
            let mut number = 0usize;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.parts = self.parts.saturating_mul(2);
        }
    }
}

/// The entries found so far for each component of a path: the last one that took the name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stood {
    pub(super) ids: Vec<Option<EntryId>>,
    /// The change that purged the last of them, if any.
    pub(super) purged: Option<Revision>,
}

canonical_struct!(Stood { ids, purged });

impl Stood {
    pub(crate) fn of(names: &[Name]) -> Self {
        Stood { ids: vec![None; names.len()], purged: None }
    }

    /// Returns the change that purged the entry at the end of the path, if any.
    pub(crate) fn purged(&self) -> Option<Revision> {
        self.purged
    }
}

/// Error for an entry that the caller may not see, or that the history does not have.
pub(super) fn never_there(lfn: &Lfn) -> Error {
    Error::not_found(format!("{lfn} is not there, and the history tells of nothing there that you may see"))
}
