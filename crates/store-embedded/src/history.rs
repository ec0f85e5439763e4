//! Reads the history: the changes of the log, from any kept revision on.
//!
//! Segments are named by their first revision, so the names say which segment has a change. An
//! index finds the change in it: that of an archived segment, or one made while writing and
//! reading. Old segments may be archived or removed meanwhile (`archive`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_disk::{Disk, corrupt};
use exacat_log::archive::Archive;
use exacat_log::record::{self, Head};
use exacat_log::segment::CatalogueId;
use exacat_log::{Form, Segment, SegmentReader};
use exacat_model::limits::PAGE_MEMORY_MAX;
use exacat_model::{Change, EntryId, Error, ErrorKind, Revision, TimeMs};
use exacat_store::{Sample, Trail, TrailEnd};
use parking_lot::RwLock;

use crate::archive::Notifier;
use crate::changes;
use crate::metric_table;

/// Result of a request for changes.
#[derive(Debug)]
pub(crate) struct KeptChanges {
    pub changes: Vec<Change>,
    /// Oldest kept change: requested changes before it are gone.
    pub oldest: Revision,
}

/// Disk usage of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogBytes {
    pub files: u64,
    pub plain: u64,
    pub archived: u64,
}

/// Segments of a log, and ways to read them.
pub(crate) struct History {
    disk: Arc<dyn Disk>,
    catalogue: CatalogueId,
    /// In order. The last is being written, the others are sealed.
    segments: RwLock<Vec<Arc<Segment>>>,
    /// Revision after which opening needs all changes.
    floor: AtomicU64,
    /// Wakes the archive thread when there may be work.
    pub notifier: Notifier,
}

impl History {
    pub(crate) fn new(disk: Arc<dyn Disk>, catalogue: CatalogueId, segments: Vec<Arc<Segment>>) -> Self {
        let (floor, notifier) = (AtomicU64::new(0), Notifier::default());
        History { disk, catalogue, segments: RwLock::new(segments), floor, notifier }
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn catalogue(&self) -> CatalogueId {
        self.catalogue
    }

    /// Adds a segment that was begun; the one before it is sealed.
    pub(crate) fn push(&self, segment: Arc<Segment>) {
        let mut segments = self.segments.write();
        // A follower replaces an empty segment as its source did.
        segments.retain(|other| other.first_revision != segment.first_revision);
        segments.push(segment);
        drop(segments);
        self.notifier.notify();
    }

    #[cfg(test)]
    pub(crate) fn segments(&self) -> usize {
        self.segments.read().len()
    }

    /// Returns all segments, the oldest first.
    pub(crate) fn list(&self) -> Vec<Arc<Segment>> {
        self.segments.read().clone()
    }

    /// Removes the oldest segment, whose file is gone.
    pub(crate) fn remove_oldest(&self, segment: &Segment) {
        self.segments.write().retain(|other| other.first_revision != segment.first_revision);
    }

    /// Returns the first kept change, or the first there would be.
    pub(crate) fn oldest(&self) -> Revision {
        self.segments.read().first().map_or(Revision(1), |segment| segment.first_revision)
    }

    /// Sets the revision after which all changes must be kept, because opening needs them. Before
    /// the first call all must. The floor never goes back.
    pub(crate) fn set_floor(&self, revision: Revision) {
        self.floor.fetch_max(revision.0, Ordering::AcqRel);
        self.notifier.notify();
    }

    pub(crate) fn floor(&self) -> Revision {
        Revision(self.floor.load(Ordering::Acquire))
    }

    /// Returns the disk usage of the log; counts only the plain sealed segments for which `counts`
    /// is true.
    pub(crate) fn bytes(&self, counts: impl Fn(&Segment) -> bool) -> LogBytes {
        let segments = self.list();
        let mut sum = LogBytes::default();
        for (at, segment) in segments.iter().enumerate() {
            let is_sealed = at + 1 < segments.len();
            let is_archived = *segment.form() == Form::Archived;
            sum.files += 1;
            if is_archived {
                sum.archived += segment.bytes(&*self.disk, is_sealed);
            } else if !is_sealed || counts(segment) {
                sum.plain += segment.bytes(&*self.disk, is_sealed);
            }
        }
        sum
    }

    /// Returns the metrics of the log.
    pub(crate) fn metrics(&self) -> [Sample; 4] {
        let bytes = self.bytes(|_| true);
        [
            metric_table::LOG_SEGMENTS.is(bytes.files),
            metric_table::LOG_SIZE.of("plain", bytes.plain),
            metric_table::LOG_SIZE.of("compressed", bytes.archived),
            metric_table::HISTORY_OLDEST.is(self.oldest().0),
        ]
    }

    /// Returns the segment that has this revision; none if it is not kept.
    fn segment_of(&self, revision: Revision) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let at = segments.partition_point(|segment| segment.first_revision <= revision).checked_sub(1)?;
        segments.get(at).cloned()
    }

    /// Returns kept changes after `after`, up to `up_to`, in order: at most `limit` and a bounded
    /// number of bytes, but at least one if there is one.
    pub(crate) fn changes(
        &self,
        after: Revision,
        up_to: Revision,
        limit: usize,
    ) -> Result<KeptChanges, Error> {
        loop {
            let oldest = self.oldest();
            let from = Revision(after.0.saturating_add(1)).max(oldest);
            if let Some(changes) = self.changes_from(from, up_to, limit)? {
                return Ok(KeptChanges { changes, oldest });
            }
            // The segment was removed after `oldest` was read. The next round sees a later oldest,
            // so this ends.
        }
    }

    /// Returns changes from `from` on; none if that one is no longer kept.
    fn changes_from(
        &self,
        from: Revision,
        up_to: Revision,
        limit: usize,
    ) -> Result<Option<Vec<Change>>, Error> {
        let mut changes = Vec::new();
        let mut bytes = 0;
        if limit == 0 || from > up_to {
            return Ok(Some(changes));
        }
        let read = self.read_records(from, up_to, |name, offset, body| {
            bytes += body.len();
            changes::read_changes(body, from, |change, _| {
                if change.revision <= up_to && changes.len() < limit {
                    changes.push(change);
                }
                Ok(changes.len() < limit)
            })
            .map_err(|Undecodable(what)| corrupt(name, offset, what))?;
            Ok(changes.len() < limit && bytes < PAGE_MEMORY_MAX)
        });
        match read {
            // Returns the intact changes before an error; the request for the next ones gets the
            // error.
            Ok(false) | Err(_) if !changes.is_empty() => Ok(Some(changes)),
            Ok(true) => Ok(Some(changes)),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the changes of an entry, the newest first, from its change `from` on. Each change
    /// names the one before it. At most `limit` and a bounded number of bytes, but at least one if
    /// there is one.
    pub(crate) fn trail(&self, id: EntryId, from: Revision, limit: usize) -> Result<Trail, Error> {
        let mut trail = Trail { changes: Vec::new(), end: TrailEnd::More(from) };
        let (mut bytes, mut open) = (0, None);
        while let TrailEnd::More(revision) = trail.end
            && trail.changes.len() < limit
            && bytes < PAGE_MEMORY_MAX
        {
            match self.change(revision, &mut open)? {
                Some((change, effect_bytes)) if change.effect.changed_entry() == Some(id) => {
                    bytes += effect_bytes;
                    trail.end = TrailEnd::before(&change, self.oldest());
                    trail.changes.push(change);
                }
                _ => trail.end = TrailEnd::NotKept,
            }
        }
        Ok(trail)
    }

    /// Returns one change, and the bytes of its record; none if it is not kept. Reuses the `open`
    /// segment if that has the change, because the next one is often near.
    fn change(
        &self,
        revision: Revision,
        open: &mut Option<(Arc<Segment>, SegmentReader)>,
    ) -> Result<Option<(Change, usize)>, Error> {
        let Some(segment) = self.segment_of(revision) else { return Ok(None) };
        if open.as_ref().is_none_or(|(before, _)| before.first_revision != segment.first_revision) {
            let reader = SegmentReader::open(&*self.disk, &segment, self.catalogue)?;
            *open = reader.map(|reader| (segment, reader));
        }
        let Some((segment, reader)) = open else { return Ok(None) };
        let mut offset = reader.start_for(segment, revision);
        while let Some((at, head)) = reader.next_head(offset)? {
            offset = at;
            if head.first_revision > revision {
                break;
            }
            if reader.archive().is_none() {
                segment.note(head.first_revision, offset);
            }
            if head.last_revision() >= revision {
                let name = reader.name().to_owned();
                let body = reader.body(offset)?;
                let (mut found, bytes) = (None, body.len());
                changes::read_changes(body, revision, |change, _| {
                    found = Some((change, bytes));
                    Ok(false)
                })
                .map_err(|Undecodable(what)| corrupt(&name, offset, what))?;
                return Ok(found);
            }
            offset += reader.stride(offset)?;
        }
        let damage = reader.archive().and_then(Archive::index_damage).cloned();
        let what = || format!("the log has no change {}, but a later one", revision.0);
        Err(damage.unwrap_or_else(|| Error::new(ErrorKind::Corrupt, what())))
    }

    /// Returns the last kept change up to `up_to` at or before a time; revision 0 if all are later and
    /// kept from the first on, none if earlier ones may be gone. Reads a head of some segments, and the
    /// heads of one.
    pub(crate) fn last_until(&self, time: TimeMs, up_to: Revision) -> Result<Option<Revision>, Error> {
        loop {
            let mut segments = self.list();
            segments.retain(|segment| segment.first_revision <= up_to);
            match self.last_in(&segments, time, up_to)? {
                Some(found) => return Ok(found),
                // A segment was removed meanwhile. The list is shorter now, so this ends.
                None => continue,
            }
        }
    }

    /// Finds that change in some segments; none if one of them is gone.
    fn last_in(
        &self,
        segments: &[Arc<Segment>],
        time: TimeMs,
        up_to: Revision,
    ) -> Result<Option<Option<Revision>>, Error> {
        let (mut low, mut high) = (0, segments.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let first = segments[middle].first_revision;
            let mut began = None;
            let is_kept = self.heads(first, first, |head| {
                began = Some(head.time);
                false
            })?;
            match began {
                Some(began) if is_kept && began <= time => low = middle + 1,
                Some(_) if is_kept => high = middle,
                _ => return Ok(None),
            }
        }
        let Some(segment) = low.checked_sub(1).and_then(|at| segments.get(at)) else {
            let is_whole = segments.first().is_none_or(|first| first.first_revision <= Revision(1))
                && self.oldest() <= Revision(1);
            return Ok(Some(is_whole.then_some(Revision(0))));
        };
        let end = segments.get(low).map_or(up_to, |next| Revision(next.first_revision.0 - 1));
        let mut last = Revision(segment.first_revision.0.saturating_sub(1));
        let is_kept = self.heads(segment.first_revision, end, |head| {
            let is_before = head.time <= time;
            if is_before {
                last = head.last_revision();
            }
            is_before
        })?;
        Ok(is_kept.then_some(Some(last.min(up_to))))
    }

    /// Returns the changes of the record that begins with this revision; none if they are no longer
    /// kept.
    pub(crate) fn record(&self, first_revision: Revision) -> Result<Option<Vec<Change>>, Error> {
        let mut changes = Vec::new();
        let is_kept = self.read_records(first_revision, first_revision, |name, offset, body| {
            changes::read_changes(body, first_revision, |change, _| {
                changes.push(change);
                Ok(true)
            })
            .map_err(|Undecodable(what)| corrupt(name, offset, what))?;
            Ok(false)
        })?;
        Ok(is_kept.then_some(changes))
    }

    /// Passes the heads of the records from the one that begins with `from` to the one with `up_to`
    /// to `give`, until that returns false. Each record is checked. False if a record is no longer
    /// kept.
    pub(crate) fn heads(
        &self,
        from: Revision,
        up_to: Revision,
        mut give: impl FnMut(Head) -> bool,
    ) -> Result<bool, Error> {
        self.read_records(from, up_to, |name, offset, body| {
            let head = record::read_head(body);
            Ok(give(head.map_err(|error| corrupt(name, offset, Undecodable::from(error).0))?))
        })
    }

    /// Passes the bodies of the records from the one with `from` to the one with `up_to`, which
    /// must exist, to `give`, until that returns false. False if a record is no longer kept.
    fn read_records(
        &self,
        from: Revision,
        up_to: Revision,
        mut give: impl FnMut(&str, u64, &[u8]) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let mut wanted = from;
        // The segment read last, with the damage of its index.
        let mut before: Option<(Revision, Option<Error>)> = None;
        loop {
            let Some(segment) = self.segment_of(wanted) else { return Ok(false) };
            if let Some((first_revision, damage)) = before
                && first_revision == segment.first_revision
            {
                let what = || format!("the log has no change {}, but a later one", wanted.0);
                return Err(damage.unwrap_or_else(|| Error::new(ErrorKind::Corrupt, what())));
            }
            let Some(mut reader) = SegmentReader::open(&*self.disk, &segment, self.catalogue)? else {
                return Ok(false);
            };
            let mut offset = reader.start_for(&segment, wanted);
            while let Some((at, head)) = reader.next_head(offset)? {
                offset = at;
                let last = head.last_revision();
                if head.first_revision > wanted || last < head.first_revision {
                    return Err(corrupt(reader.name(), offset, format!("change {} is missing", wanted.0)));
                }
                if reader.archive().is_none() {
                    segment.note(head.first_revision, offset);
                }
                if last >= wanted {
                    let name = reader.name().to_owned();
                    if !give(&name, offset, reader.body(offset)?)? || last >= up_to {
                        return Ok(true);
                    }
                    wanted = Revision(last.0 + 1);
                }
                offset += reader.stride(offset)?;
            }
            before =
                Some((segment.first_revision, reader.archive().and_then(Archive::index_damage).cloned()));
        }
    }
}

/// Reason why a record's changes could not be decoded.
struct Undecodable(String);

impl From<exacat_model::codec::DecodeError> for Undecodable {
    fn from(error: exacat_model::codec::DecodeError) -> Self {
        Undecodable(format!("a valid record has something other than changes: {error}"))
    }
}
