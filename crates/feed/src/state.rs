//! State of a feed in memory, beside its file.

use std::collections::VecDeque;
use std::path::PathBuf;

use exacat_model::{Feed, FeedState, Result, Revision, TimeMs};
use parking_lot::Mutex;

use crate::cursor::Cursor;

/// Bytes of the event of a change, before any were sent.
const EVENT_BYTES: u64 = 600;
/// Times of read changes that are kept, one for each page.
const TIMES_MAX: usize = 4096;

/// Progress of a feed.
#[derive(Debug)]
pub(crate) struct Progress {
    pub cursor: Cursor,
    /// Trouble with the sink that passes by itself.
    pub trouble: String,
    pub events: u64,
    pub failures: u64,
    /// Times of changes that the sink may lack, each the first one of a page.
    times: VecDeque<(Revision, TimeMs)>,
    /// Changes that were read, and bytes of their events.
    read: (u64, u64),
    /// True if the file is older than the cursor.
    pub is_unsaved: bool,
}

/// A feed of this server.
#[derive(Debug)]
pub(crate) struct FeedEntry {
    pub path: PathBuf,
    pub progress: Mutex<Progress>,
}

impl FeedEntry {
    pub(crate) fn new(path: PathBuf, cursor: Cursor) -> Self {
        let (times, read) = Default::default();
        let trouble = String::new();
        let progress = Progress { cursor, trouble, events: 0, failures: 0, times, read, is_unsaved: false };
        FeedEntry { path, progress: Mutex::new(progress) }
    }

    /// Returns the cursor.
    pub(crate) fn cursor(&self) -> Cursor {
        self.progress.lock().cursor.clone()
    }

    /// Writes the cursor to its file.
    pub(crate) fn save(&self) -> Result<()> {
        let cursor = {
            let mut progress = self.progress.lock();
            progress.is_unsaved = false;
            progress.cursor.clone()
        };
        let saved = cursor.write(&self.path);
        if saved.is_err() {
            self.progress.lock().is_unsaved = true;
        }
        saved
    }

    /// Writes the cursor to its file if it has changed; a failure is logged, and repeated later.
    pub(crate) fn save_changed(&self) {
        if self.progress.lock().is_unsaved
            && let Err(error) = self.save()
        {
            tracing::warn!(%error, "a feed's position is not kept: after a crash it repeats events");
        }
    }

    /// Ends the feed in a state that only an operator ends.
    pub(crate) fn end(&self, state: FeedState, why: String) {
        let mut progress = self.progress.lock();
        tracing::error!(feed = %progress.cursor.name, state = state.name(), why, "a feed stopped");
        progress.cursor.state = state;
        progress.cursor.reason = why;
        progress.is_unsaved = true;
        drop(progress);
        self.save_changed();
    }

    /// Describes the feed, while the catalogue is at `head`.
    pub(crate) fn shown(&self, head: Revision, now: TimeMs) -> Feed {
        let progress = self.progress.lock();
        let cursor = &progress.cursor;
        let lag_changes = head.0.saturating_sub(cursor.revision.0);
        let reason = match cursor.reason.is_empty() {
            true => progress.trouble.clone(),
            false => cursor.reason.clone(),
        };
        Feed {
            name: cursor.name.clone(),
            spec: cursor.spec.clone(),
            owner: cursor.owner.clone(),
            created: cursor.created,
            state: cursor.state,
            reason,
            revision: cursor.revision,
            timeline: cursor.timeline,
            lag_changes,
            lag_ms: if lag_changes == 0 { 0 } else { progress.lag_ms(now) },
            lag_bytes: progress.lag_bytes(head),
            events: progress.events,
            failures: progress.failures,
            copying: cursor.state == FeedState::Running
                && (cursor.must_copy || !cursor.undone.is_empty() || cursor.revision < cursor.window),
        }
    }
}

impl Progress {
    /// Notes changes that were read, and the bytes of their events.
    pub(crate) fn note_read(&mut self, changes: u64, bytes: u64) {
        self.read.0 = self.read.0.saturating_add(changes);
        self.read.1 = self.read.1.saturating_add(bytes);
    }

    /// Notes the time of a change that the sink may lack.
    pub(crate) fn note_time(&mut self, revision: Revision, time: TimeMs) {
        if revision > self.cursor.revision
            && self.times.back().is_none_or(|(last, _)| *last < revision)
            && self.times.len() < TIMES_MAX
        {
            self.times.push_back((revision, time));
        }
    }

    /// Forgets what was read after the position of the sink.
    pub(crate) fn forget_read(&mut self) {
        self.times.clear();
    }

    /// Moves the cursor: the sink has everything up to a revision, with so many events.
    pub(crate) fn acknowledge(&mut self, revision: Revision, events: u64) {
        self.events = self.events.saturating_add(events);
        self.trouble.clear();
        if revision <= self.cursor.revision {
            return;
        }
        self.cursor.revision = revision;
        self.is_unsaved = true;
        while self.times.get(1).is_some_and(|(first, _)| first.0 <= revision.0 + 1) {
            self.times.pop_front();
        }
    }

    /// Forgets times when nothing is behind.
    pub(crate) fn caught_up(&mut self, head: Revision) {
        if self.cursor.revision >= head {
            self.times.clear();
        }
    }

    /// Returns the age of the oldest change that the sink may lack.
    pub(crate) fn lag_ms(&self, now: TimeMs) -> u64 {
        self.times.front().map_or(0, |(_, time)| now.0.saturating_sub(time.0))
    }

    /// Returns the estimated bytes of events that the sink lacks.
    pub(crate) fn lag_bytes(&self, head: Revision) -> u64 {
        let (changes, bytes) = self.read;
        let each = if changes < 100 { EVENT_BYTES } else { bytes / changes };
        head.0.saturating_sub(self.cursor.revision.0).saturating_mul(each)
    }

    /// Returns the reason if the feed is beyond its limits.
    pub(crate) fn beyond_limits(&self, head: Revision, now: TimeMs) -> Option<String> {
        const DAY_MS: u64 = 24 * 3600 * 1000;
        let spec = &self.cursor.spec;
        if self.cursor.revision >= head {
            return None;
        }
        let (age, bytes) = (self.lag_ms(now), self.lag_bytes(head));
        if age > u64::from(spec.days).saturating_mul(DAY_MS) {
            let days = age / DAY_MS;
            return Some(format!(
                "the oldest undelivered change is {days} days old, the limit is {}",
                spec.days
            ));
        }
        (bytes > spec.bytes)
            .then(|| format!("about {bytes} bytes of events are undelivered, the limit is {}", spec.bytes))
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::{AfterRestore, FeedName, FeedSpec, FeedStart, TimelineId};

    use super::*;

    fn progress(days: u32, bytes: u64) -> FeedEntry {
        let spec = FeedSpec {
            sink: "dir:/a".to_owned(),
            under: None,
            kinds: Vec::new(),
            start: FeedStart::Now,
            days,
            bytes,
            room: 1,
            copy_when_lost: false,
            after_restore: AfterRestore::Tell,
            allow_private: false,
            secret: None,
        };
        let cursor = Cursor {
            name: FeedName::parse("a").unwrap(),
            id: [0; 16],
            spec,
            owner: String::new(),
            created: TimeMs(0),
            generation: 1,
            revision: Revision(10),
            timeline: TimelineId([0; 16]),
            window: Revision(0),
            must_copy: false,
            undone: Vec::new(),
            state: FeedState::Running,
            reason: String::new(),
        };
        FeedEntry::new(PathBuf::new(), cursor)
    }

    const DAY: u64 = 24 * 3600 * 1000;

    /// Property: a feed is lost one millisecond beyond its days, and one byte beyond its bytes, and never
    /// while it lacks nothing.
    #[test]
    fn limits_hold_at_their_edge() {
        let entry = progress(2, 5 * EVENT_BYTES);
        let mut one = entry.progress.lock();
        one.note_time(Revision(11), TimeMs(1000));
        assert_eq!(one.beyond_limits(Revision(15), TimeMs(1000 + 2 * DAY)), None);
        let why = one.beyond_limits(Revision(15), TimeMs(1001 + 2 * DAY)).unwrap();
        assert!(why.contains("2 days old, the limit is 2"), "{why}");
        let why = one.beyond_limits(Revision(16), TimeMs(1000)).unwrap();
        assert!(why.contains("3600 bytes"), "{why}");
        assert_eq!(one.beyond_limits(Revision(10), TimeMs(u64::MAX)), None);
    }

    /// Property: the delay is that of the oldest change that the sink lacks.
    #[test]
    fn delay_falls_with_each_acknowledged_page() {
        let entry = progress(1, 1);
        let mut one = entry.progress.lock();
        for (revision, time) in [(11, 100), (21, 200), (31, 300)] {
            one.note_time(Revision(revision), TimeMs(time));
        }
        assert_eq!(one.lag_ms(TimeMs(1000)), 900);
        one.acknowledge(Revision(15), 3);
        assert_eq!(one.lag_ms(TimeMs(1000)), 900, "the rest of the page is still missing");
        one.acknowledge(Revision(20), 0);
        assert_eq!(one.lag_ms(TimeMs(1000)), 800);
        one.acknowledge(Revision(40), 1);
        one.caught_up(Revision(40));
        assert_eq!((one.lag_ms(TimeMs(1000)), one.events), (0, 4));
        one.acknowledge(Revision(5), 0);
        assert_eq!(one.cursor.revision, Revision(40), "a cursor never goes back by itself");
    }
}
