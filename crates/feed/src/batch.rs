//! Events on their way to a sink: lines of JSON, and what a sink needs to know of each.

use exacat_model::{EntryId, Revision, TimeMs};

/// Text at the end of each line until it is known to be the last of its request.
pub(crate) const NOT_LAST: &[u8] = b"\"last\":false}\n";
/// The same of the last one, as long as the other.
const LAST: &[u8] = b"\"last\":true }\n";

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Created,
    Updated,
    Moved,
    Gone,
    Other,
    Row,
    Mark,
    CopyBegins,
    CopyEnds,
    Lost,
    Parted,
    /// A change that a restore undid.
    Undone,
    UndoneEnds,
}

impl Op {
    /// Returns the text in the event.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Created => "c",
            Op::Updated => "u",
            Op::Moved => "m",
            Op::Gone => "d",
            Op::Other => "x",
            Op::Row => "r",
            Op::Mark => "mark",
            Op::CopyBegins => "copy",
            Op::CopyEnds => "copied",
            Op::Lost => "lost",
            Op::Parted => "parted",
            Op::Undone => "undone",
            Op::UndoneEnds => "undone_end",
        }
    }
}

/// An event of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// End of its line in the bytes.
    pub end: usize,
    pub op: Op,
    pub revision: Revision,
    pub index: u64,
    pub time: TimeMs,
    /// Version of the entry of a row.
    pub version: u64,
    /// Entry that a mirror changes the row of. None of notices, of events that change no entry of the
    /// tree, and of those about a directory above the feed's.
    pub entry: Option<EntryId>,
}

/// Events in order.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub heads: Vec<Head>,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.heads.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Marks the last event as the last one of its request.
    pub(crate) fn mark_last(&mut self) {
        if self.bytes.ends_with(NOT_LAST) {
            self.bytes.truncate(self.bytes.len() - NOT_LAST.len());
            self.bytes.extend_from_slice(LAST);
        }
    }

    /// Returns the lines of the events, each with its head.
    pub(crate) fn events(&self) -> impl Iterator<Item = (&Head, &[u8])> {
        let mut begin = 0;
        self.heads.iter().map(move |head| {
            let line = self.bytes.get(begin..head.end).unwrap_or_default();
            begin = head.end;
            (head, line)
        })
    }
}
