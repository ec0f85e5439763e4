//! Feeds: named, durable cursors that deliver the changes of the catalogue to a sink.

use std::fmt;

use crate::entry::Revision;
use crate::error::{Error, Result};
use crate::lfn::Lfn;
use crate::limits::FEED_NAME_BYTES_MAX;
use crate::time::TimeMs;
use crate::timeline::{LogPosition, TimelineId};
use crate::{canonical_enum, canonical_struct, canonical_text};

/// A feed's name: 1 to 64 of `A-Z a-z 0-9 . _ -`, neither `.` nor `-` first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedName(Box<str>);

impl FeedName {
    /// Checks `text` and converts it to a name.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > FEED_NAME_BYTES_MAX {
            let what = "the length of a feed's name in bytes";
            return Err(Error::limit(what, text.len(), FEED_NAME_BYTES_MAX));
        }
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if text.is_empty() || text.starts_with(['.', '-']) || !text.bytes().all(good) {
            return Err(Error::invalid(format!(
                "not a valid name of a feed (letters, digits, . _ -, neither . nor - first): {text:.100?}"
            )));
        }
        Ok(FeedName(text.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FeedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FeedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

canonical_text!(FeedName, "not a valid name of a feed");

/// Position where a feed begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedStart {
    /// Changes from now on.
    Now,
    /// A copy of the present entries, then changes.
    Copy,
    /// Changes after a position in the history.
    After(LogPosition),
}

canonical_enum!(FeedStart { 1 => Now, 2 => Copy, 3 => After(position) });

/// Events that a feed sends after a restore, beside the notice where the timelines part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRestore {
    /// None.
    Tell,
    /// A copy of the present entries.
    Copy,
    /// The changes that the restore undid.
    Undone,
    /// Those changes, and then a copy.
    UndoneAndCopy,
}

canonical_enum!(AfterRestore { 0 => Tell, 1 => Copy, 2 => Undone, 3 => UndoneAndCopy });

impl AfterRestore {
    /// Returns the choice with these parts.
    pub fn new(sends_undone: bool, copies: bool) -> Self {
        match (sends_undone, copies) {
            (false, false) => AfterRestore::Tell,
            (false, true) => AfterRestore::Copy,
            (true, false) => AfterRestore::Undone,
            (true, true) => AfterRestore::UndoneAndCopy,
        }
    }

    /// True if the changes that the restore undid are sent.
    pub fn sends_undone(self) -> bool {
        matches!(self, AfterRestore::Undone | AfterRestore::UndoneAndCopy)
    }

    /// True if a copy is sent.
    pub fn copies(self) -> bool {
        matches!(self, AfterRestore::Copy | AfterRestore::UndoneAndCopy)
    }
}

/// Description of a feed, as its owner gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedSpec {
    /// `dir:/PATH` on the server's machine, or the `http(s)://` URL of a webhook.
    pub sink: String,
    /// Only entries in this directory; none for all.
    pub under: Option<Lfn>,
    /// Only these effects, by name; empty for all.
    pub kinds: Vec<String>,
    /// Start of the feed.
    pub start: FeedStart,
    /// Age in days of an undelivered change at which the feed is lost.
    pub days: u32,
    /// Estimated bytes of undelivered events at which the feed is lost.
    pub bytes: u64,
    /// Maximum bytes of segments that a directory may hold; the feed waits at more.
    pub room: u64,
    /// Send a copy and go on when the feed is lost; otherwise it stops.
    pub copy_when_lost: bool,
    /// Events after a restore, beside the notice where the timelines part.
    pub after_restore: AfterRestore,
    /// Permit a webhook on a loopback, private or link-local address.
    pub allow_private: bool,
    /// File on the server's machine with the secret that signs requests to a webhook.
    pub secret: Option<String>,
}

canonical_struct!(FeedSpec {
    sink,
    under,
    kinds,
    start,
    days,
    bytes,
    room,
    copy_when_lost,
    after_restore,
    allow_private,
    secret
});

/// Control of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedAction {
    /// Stop until it is resumed.
    Pause,
    /// Run again, from where it stopped.
    Resume,
    /// Go to another position, and run.
    Rewind(FeedStart),
    /// Forget the feed. Its sink keeps what it got.
    Drop,
}

canonical_enum!(FeedAction { 1 => Pause, 2 => Resume, 3 => Rewind(to), 4 => Drop });

impl FeedAction {
    /// Returns the name in logs.
    pub fn name(self) -> &'static str {
        match self {
            FeedAction::Pause => "pause",
            FeedAction::Resume => "resume",
            FeedAction::Rewind(_) => "rewind",
            FeedAction::Drop => "drop",
        }
    }
}

/// State of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FeedState {
    /// It delivers changes, or waits for them or for its sink.
    Running = 1,
    /// An operator stopped it.
    Paused = 2,
    /// Changes that it needs are gone, or beyond its limits. It goes on after a rewind.
    Lost = 3,
    /// Its sink refused it for good. It goes on after `resume`.
    Failed = 4,
}

canonical_enum!(FeedState { 1 => Running, 2 => Paused, 3 => Lost, 4 => Failed });

impl FeedState {
    /// All states.
    pub const ALL: [FeedState; 4] =
        [FeedState::Running, FeedState::Paused, FeedState::Lost, FeedState::Failed];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            FeedState::Running => "running",
            FeedState::Paused => "paused",
            FeedState::Lost => "lost",
            FeedState::Failed => "failed",
        }
    }

    /// Returns the state of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == text)
    }
}

/// A feed with its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Its name.
    pub name: FeedName,
    /// Its description.
    pub spec: FeedSpec,
    /// User that made it.
    pub owner: String,
    /// Time it was made.
    pub created: TimeMs,
    /// State.
    pub state: FeedState,
    /// Reason of the state, or the present trouble with the sink; empty if all is well.
    pub reason: String,
    /// The sink has all matching changes up to this revision.
    pub revision: Revision,
    /// Timeline of that revision.
    pub timeline: TimelineId,
    /// Changes of the catalogue after that revision.
    pub lag_changes: u64,
    /// Age in milliseconds of the oldest of them; 0 if there is none.
    pub lag_ms: u64,
    /// Estimated bytes of their events.
    pub lag_bytes: u64,
    /// Events that the sink acknowledged since the server started.
    pub events: u64,
    /// Failed attempts to deliver since the server started.
    pub failures: u64,
    /// True while a copy is being sent, and until the changes made meanwhile have followed.
    pub copying: bool,
}

canonical_struct!(Feed {
    name,
    spec,
    owner,
    created,
    state,
    reason,
    revision,
    timeline,
    lag_changes,
    lag_ms,
    lag_bytes,
    events,
    failures,
    copying
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: names that could leave the directory of feeds, or start an option, are refused.
    #[test]
    fn names_of_feeds_are_file_names() {
        for good in ["a", "mirror-1", "A.b_c", &"n".repeat(FEED_NAME_BYTES_MAX)] {
            assert_eq!(FeedName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "-x", "a/b", "a b", "a\n", "ü", &"n".repeat(FEED_NAME_BYTES_MAX + 1)] {
            assert!(FeedName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn states_are_read_by_their_names() {
        for state in FeedState::ALL {
            assert_eq!(FeedState::parse(state.name()), Some(state));
        }
        assert_eq!(FeedState::parse("Lost"), None);
    }
}
