//! Recovers the log of a damaged catalogue. It uses three sources for each segment:
//!
//! - the segment as it is;
//! - a copy of it;
//! - its own bytes, overwritten by those of a copy where the copy has any.
//!
//! A copy of a segment is of the same timeline if it has the same first revision and salt. Then it
//! has the same bytes as far as it goes.

use std::path::{Path, PathBuf};

use exacat_model::{ErrorKind, Result, Revision};

use super::context::RepairContext;
use super::sources::{SegmentCopy, Sources, segment_of};
use super::{ProgressCallback, RepairProgress, names_in};
use crate::changes::read_changes;
use crate::manifest::Manifest;
use crate::table::newest_unnamed;
use exacat_disk::cannot_read;
use exacat_disk::{Disk, read_whole};
use exacat_log::archive::{Archive, ENDING as ARCHIVED, is_archived};
use exacat_log::log_end;
use exacat_log::record::read_head;
use exacat_log::segment::{CatalogueId, Ending, HEADER_BYTES, Header, Records, VERSION};

/// Bytes of a recovered segment.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    /// All bytes of this file, which is foreign (`own` is false) if it is not in its place.
    File { path: PathBuf, own: bool },
    /// Bytes assembled in memory.
    Made(Vec<u8>),
}

/// A recovered segment, from its first change to its last.
#[derive(Clone, Debug)]
pub(super) struct RecoveredSegment {
    pub first: Revision,
    /// Last change; the one before the first, if there is none.
    pub last: Revision,
    pub salt: u64,
    pub archived: bool,
    pub bytes: Bytes,
}

/// Changes that no source has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub from: Revision,
    /// Last missing change. None: up to the end of the log, which is unknown.
    pub to: Option<Revision>,
    pub why: String,
}

/// The log as far as it can be recovered.
#[derive(Debug, Default)]
pub(super) struct RecoveredLog {
    pub problems: Vec<String>,
    pub repairs: Vec<String>,
    pub parts: Vec<RecoveredSegment>,
    pub holes: Vec<Hole>,
}

/// Result of reading a segment's bytes once.
struct Seen {
    header: Header,
    archived: bool,
    last: Revision,
    /// Damage that ends the readable part.
    damage: Option<String>,
    /// True if another segment was begun after it.
    is_sealed: bool,
}

impl RecoveredLog {
    /// Reads every segment, and finds copies of the damaged ones.
    pub(crate) fn put_together(
        context: &RepairContext<'_>,
        sources: &Sources,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<Self> {
        let disk = &**context.disk;
        let directory = context.data.log();
        let mut own: Vec<(Revision, PathBuf)> = Vec::new();
        for name in names_in(disk, &directory)? {
            if let Some(first) = segment_of(&name) {
                // A segment in both forms counts as plain, and the plain file comes first.
                if own.last().is_none_or(|(other, _)| *other != first) {
                    own.push((first, directory.join(name)));
                }
            }
        }
        let mut log = RecoveredLog::default();
        let Some((begin, _)) = own.first() else {
            log.problems.push("there is no log".to_owned());
            let from = Revision(1);
            log.holes.push(Hole { from, to: None, why: "there is no segment of the log".to_owned() });
            return Ok(log);
        };
        let mut work = LogRecovery {
            disk,
            catalogue: context.catalogue(),
            sources,
            same_line: same_line(disk, &own, sources),
            log,
        };
        let mut next = *begin;
        for (at, (first, path)) in own.iter().enumerate() {
            progress(&RepairProgress::Checking { file: path.display().to_string() });
            if *first > next {
                work.log.problems.push(format!(
                    "{}: changes {} to {} are missing before it",
                    path.display(),
                    next.0,
                    first.0 - 1
                ));
                work.fill(next, Some(*first))?;
            }
            let after = own.get(at + 1).map(|(after, _)| *after);
            next = work.segment(*first, path, after)?;
        }
        work.compare_with_end(context, next)?;
        Ok(work.log)
    }

    /// Returns the oldest change after the last hole.
    pub(crate) fn oldest(&self) -> Revision {
        self.after_last_hole().first().map_or(Revision(1), |part| part.first)
    }

    /// Returns the parts after the last hole.
    pub(crate) fn after_last_hole(&self) -> &[RecoveredSegment] {
        after_last_hole(&self.parts)
    }

    /// Returns the parts without a hole that continue a state at this revision, and their last
    /// change. They begin with the part that has the next change, or with its history.
    pub(crate) fn after(&self, revision: Revision) -> Option<(&[RecoveredSegment], Revision)> {
        let next = revision.0.saturating_add(1);
        let begin = self.parts.partition_point(|part| part.first.0 <= next).checked_sub(1)?;
        if self.parts[begin].last < revision {
            return None;
        }
        let mut end = begin + 1;
        while end < self.parts.len() && self.parts[end].first.0 == self.parts[end - 1].last.0 + 1 {
            end += 1;
        }
        // Earlier parts without a hole are its history.
        let mut first = begin;
        while first > 0 && self.parts[first].first.0 == self.parts[first - 1].last.0 + 1 {
            first -= 1;
        }
        Some((&self.parts[first..end], self.parts[end - 1].last))
    }

    /// Says whether the log leads from a state at `revision` to the last change that ever existed.
    /// `in_runs` is the last change in the runs.
    pub(crate) fn is_whole_after(&self, revision: Revision, in_runs: Revision) -> bool {
        if !self.holes.iter().all(|hole| hole.to.is_some_and(|to| to <= revision)) {
            return false;
        }
        let last = self.parts.last().map_or(in_runs, |part| part.last.max(in_runs));
        revision >= last || self.after(revision).is_some_and(|(_, end)| end >= last)
    }
}

/// Returns the parts after the last hole, of parts in order.
fn after_last_hole(parts: &[RecoveredSegment]) -> &[RecoveredSegment] {
    let mut first = parts.len().saturating_sub(1);
    while first > 0 && parts[first].first.0 == parts[first - 1].last.0 + 1 {
        first -= 1;
    }
    parts.get(first..).unwrap_or_default()
}

/// Returns how far the copies are known to be of this timeline: up to the last segment with the
/// same salt in both. Also returns from where they are known to be of another timeline.
fn same_line(disk: &dyn Disk, own: &[(Revision, PathBuf)], sources: &Sources) -> (Revision, Revision) {
    let (mut same, mut other) = (Revision(0), Revision(u64::MAX));
    for (first, path) in own {
        let Ok(header) = crate::snapshot::header_of_file(disk, path) else { continue };
        for copy in sources.segments.iter().filter(|copy| copy.first == *first) {
            match crate::snapshot::header_of_file(disk, &copy.path) {
                Ok(copied) if copied.salt == header.salt => same = same.max(*first),
                Ok(_) => other = other.min(*first),
                Err(_) => {}
            }
        }
    }
    (same, other)
}

/// Context of the recovery.
struct LogRecovery<'w> {
    disk: &'w dyn Disk,
    catalogue: CatalogueId,
    sources: &'w Sources,
    same_line: (Revision, Revision),
    log: RecoveredLog,
}

impl LogRecovery<'_> {
    /// Names the changes that the log lacks at its end. Evidence is the file END, and runs outside
    /// of the manifest; `next` is the change after the log's last.
    fn compare_with_end(&mut self, context: &RepairContext<'_>, next: Revision) -> Result<()> {
        let (directory, runs) = (context.data.log(), context.data.runs());
        let witness = match log_end::read(self.disk, &directory, self.catalogue) {
            Err(error) if error.kind != ErrorKind::Corrupt => return Err(error),
            found => found.ok().flatten(),
        };
        let of_end = witness.map(|witness| (directory.join(log_end::FILE), witness.revision));
        // Without a manifest all runs are unnamed.
        let manifest = Manifest::load(self.disk, &runs, self.catalogue).ok().flatten().unwrap_or_default();
        let of_run = newest_unnamed(self.disk, &runs, &context.identity, &manifest)
            // Changes in the named runs are not lost.
            .filter(|(_, known)| *known > manifest.revision)
            .map(|(name, known)| (runs.join(name), known));
        let latest = of_end.into_iter().chain(of_run).max_by_key(|(_, known)| *known);
        let Some((file, known)) = latest.filter(|(_, known)| *known >= next) else { return Ok(()) };
        let what = format!(
            "{}: change {} was durable, but the log ends with change {}",
            file.display(),
            known.0,
            next.0.saturating_sub(1)
        );
        self.log.problems.push(what.clone());
        if !self.log.holes.iter().any(|hole| hole.to.is_none()) {
            self.log.holes.push(Hole { from: next, to: Some(known), why: what });
        }
        Ok(())
    }

    /// Takes copies of missing changes from one on, up to another; returns the next missing change.
    fn fill(&mut self, from: Revision, to: Option<Revision>) -> Result<Revision> {
        let mut next = from;
        while to.is_none_or(|to| next < to) {
            let reaches = |part: &RecoveredSegment| part.last >= next && to.is_none_or(|to| part.last < to);
            // Only a copy that leads to an existing segment is certain to be of this timeline.
            let best = self.copies(next, None)?.into_iter().filter(reaches).max_by_key(|part| part.last);
            let Some(part) = best else { break };
            self.log.repairs.push(format!(
                "changes {} to {} of the log: copied from {}",
                part.first.0,
                part.last.0,
                shown(&part.bytes)
            ));
            next = Revision(part.last.0 + 1);
            self.log.parts.push(part);
        }
        if to != Some(next) {
            let to = to.map(|to| Revision(to.0 - 1));
            self.log.holes.push(Hole { from: next, to, why: "no file has them".to_owned() });
        }
        Ok(to.unwrap_or(next))
    }

    /// Returns the intact parts of a segment's copies on this timeline.
    fn copies(&self, first: Revision, salt: Option<u64>) -> Result<Vec<RecoveredSegment>> {
        let mut parts = Vec::new();
        for copy in self.sources.segments.iter().filter(|copy| copy.first == first) {
            let Some(bytes) = self.bytes_of(copy) else { continue };
            let Ok(seen) = look(&copy.path.display().to_string(), &bytes, self.catalogue, first, false)
            else {
                continue;
            };
            let is_of_line = salt.map_or(first <= self.same_line.0 || first < self.same_line.1, |salt| {
                salt == seen.header.salt
            });
            if is_of_line {
                // Bytes behind the last intact record are not taken.
                let whole = seen.damage.is_none();
                let bytes = match whole {
                    true => Bytes::File { path: copy.path.clone(), own: false },
                    false if seen.archived => continue,
                    false => Bytes::Made(up_to(&bytes, seen.header.salt)),
                };
                parts.push(part_of(&seen, bytes));
            }
        }
        Ok(parts)
    }

    fn bytes_of(&self, copy: &SegmentCopy) -> Option<Vec<u8>> {
        let file = self.disk.open_to_read(&copy.path).ok()?;
        read_whole(&*file).ok()
    }

    /// Takes a segment; `after` is the first revision of the next one. Returns the change after the
    /// taken part.
    fn segment(&mut self, first: Revision, path: &Path, after: Option<Revision>) -> Result<Revision> {
        let name = path.display().to_string();
        let file = self.disk.open_to_read(path).map_err(|error| cannot_read(&name, &error))?;
        let bytes = read_whole(&*file);
        let mut seen = match &bytes {
            Ok(bytes) => look(&name, bytes, self.catalogue, first, after.is_none()),
            Err(error) => Err(cannot_read(&name, error)),
        };
        if let Ok(seen) = &mut seen
            && after.is_none()
            && seen.damage.is_none()
        {
            let further = self.copies(first, Some(seen.header.salt))?.iter().map(|part| part.last).max();
            if let Some(further) = further.filter(|further| *further > seen.last) {
                let last = seen.last.0;
                seen.damage =
                    Some(format!("{name}: it ends with change {last}, and a copy has up to {}", further.0));
            }
        }
        let reaches = |last: Revision| after.is_none_or(|after| last.0 + 1 == after.0);
        if let Ok(seen) = &seen
            && seen.damage.is_none()
            && !reaches(seen.last)
        {
            // The changes after it may have been in it, or in a missing segment.
            let copies = self.copies(first, Some(seen.header.salt))?;
            if !copies.iter().any(|part| part.last > seen.last) {
                let part = part_of(seen, Bytes::File { path: path.to_owned(), own: true });
                let next = Revision(part.last.0 + 1);
                self.log.parts.push(part);
                return Ok(next);
            }
        }
        let problem = match &seen {
            Ok(seen) if seen.damage.is_none() && reaches(seen.last) => {
                let part = part_of(seen, Bytes::File { path: path.to_owned(), own: true });
                let next = Revision(part.last.0 + 1);
                self.log.parts.push(part);
                if after.is_none() && (seen.is_sealed || seen.archived) {
                    self.log.problems.push(format!(
                        "{name}: the segment after it, which begins with change {}, is missing",
                        next.0
                    ));
                    return self.fill(next, None);
                }
                return Ok(next);
            }
            Ok(seen) => seen.damage.clone().unwrap_or_else(|| {
                format!("{name}: it ends with change {}, and the next begins with another", seen.last.0)
            }),
            Err(error) if error.kind == ErrorKind::Invalid => return Err(error.clone()),
            Err(error) => error.message.clone(),
        };
        self.log.problems.push(problem.clone());
        let salt = seen.as_ref().ok().map(|seen| seen.header.salt);
        let mut ways: Vec<RecoveryWay> = Vec::new();
        for part in self.copies(first, salt)? {
            ways.push(RecoveryWay {
                how: format!("copied from {}", shown(&part.bytes)),
                part,
                is_all: false,
            });
        }
        if let Ok(own) = &bytes {
            ways.extend(self.overlaid(&name, own, first, after.is_none()));
        }
        if let (Ok(seen), Ok(bytes)) = (&seen, &bytes)
            && !seen.archived
            && seen.last >= first
        {
            let part = part_of(seen, Bytes::Made(up_to(bytes, seen.header.salt)));
            ways.push(RecoveryWay { how: format!("kept up to change {}", part.last.0), part, is_all: false });
        }
        let ways = ways.into_iter().filter(|way| after.is_none_or(|after| way.part.last < after));
        let (mut next, mut is_all) = (first, false);
        if let Some(best) = furthest(ways) {
            (next, is_all) = (Revision(best.part.last.0 + 1), best.is_all);
            self.log.repairs.push(format!("{name}: {}", best.how));
            if best.part.last >= first {
                self.log.parts.push(best.part);
            }
        }
        // The length of the last segment is unknown, unless everything damaged in it was recovered.
        if !after.map_or(is_all, |after| next == after) {
            let to = after.map(|after| Revision(after.0 - 1));
            self.log.holes.push(Hole { from: next, to, why: problem });
        }
        Ok(after.unwrap_or(next))
    }

    /// Returns the segment's own bytes overwritten by those of copies: where they are damaged, a
    /// copy of the beginning may be intact.
    fn overlaid(&self, name: &str, own: &[u8], first: Revision, is_last: bool) -> Vec<RecoveryWay> {
        let mut ways = Vec::new();
        for copy in self.sources.segments.iter().filter(|copy| copy.first == first) {
            let Some(copied) = self.bytes_of(copy).filter(|bytes| !is_archived(bytes)) else { continue };
            if is_archived(own) || copied.len() < HEADER_BYTES {
                continue;
            }
            for length in [copied.len(), HEADER_BYTES] {
                let mut bytes = copied[..length.min(copied.len())].to_vec();
                bytes.extend_from_slice(own.get(bytes.len()..).unwrap_or_default());
                if let Ok(seen) = look(name, &bytes, self.catalogue, first, is_last)
                    && seen.damage.is_none()
                    && seen.last >= first
                {
                    let how = format!("its beginning from {}, the rest as it was", copy.path.display());
                    let part = part_of(&seen, Bytes::Made(bytes));
                    ways.push(RecoveryWay { how, part, is_all: own.len() >= copied.len() });
                    break;
                }
            }
        }
        ways
    }
}

/// A candidate to replace a damaged segment.
struct RecoveryWay {
    how: String,
    part: RecoveredSegment,
    /// True if it reaches as far as the segment did.
    is_all: bool,
}

/// Returns the candidate that reaches furthest. Of several, a complete one wins, then the first: a
/// copy is the simplest.
fn furthest(ways: impl Iterator<Item = RecoveryWay>) -> Option<RecoveryWay> {
    ways.fold(None, |best: Option<RecoveryWay>, way| match best {
        Some(best) if (best.part.last, best.is_all) >= (way.part.last, way.is_all) => Some(best),
        _ => Some(way),
    })
}

fn shown(bytes: &Bytes) -> String {
    match bytes {
        Bytes::File { path, .. } => path.display().to_string(),
        Bytes::Made(_) => "what a copy has".to_owned(),
    }
}

fn part_of(seen: &Seen, bytes: Bytes) -> RecoveredSegment {
    let Seen { header, archived, last, .. } = seen;
    RecoveredSegment {
        first: header.first_revision,
        last: *last,
        salt: header.salt,
        archived: *archived,
        bytes,
    }
}

/// Returns the bytes of a plain segment up to the end of the last record before any damage.
fn up_to(bytes: &[u8], salt: u64) -> Vec<u8> {
    let mut records = Records::new(bytes, salt, HEADER_BYTES);
    while records.next_record().is_some() {}
    bytes[..records.offset()].to_vec()
}

/// Reads a whole segment. An error means that nothing of it is usable.
fn look(name: &str, bytes: &[u8], catalogue: CatalogueId, first: Revision, is_last: bool) -> Result<Seen> {
    let other =
        || exacat_disk::corrupt(name, 16, "the segment is another catalogue's, or has another's name");
    let before = Revision(first.0.saturating_sub(1));
    if is_archived(bytes) || name.ends_with(ARCHIVED) {
        let mut archive =
            Archive::open(Box::new(exacat_disk::InMemory::new(bytes.to_vec())), name.to_owned())?;
        let header = *archive.header();
        if header.catalogue != catalogue || header.first_revision != first {
            return Err(other());
        }
        let mut seen = Seen {
            header,
            archived: true,
            last: before,
            damage: archive.index_damage().map(|damage| damage.message.clone()),
            is_sealed: true,
        };
        for number in 0..archive.blocks().len() {
            let mut reached = seen.last;
            let read = archive.records(number, 0, |at, body| take_record(name, at, body, &mut reached));
            if let Err(error) = read {
                seen.damage = Some(error.message);
                break;
            }
            seen.last = reached;
        }
        return Ok(seen);
    }
    let header = header_in(name, bytes)?;
    if header.catalogue != catalogue || header.first_revision != first {
        return Err(other());
    }
    let mut seen = Seen {
        header,
        archived: false,
        last: before,
        damage: (Header::decode(name, bytes).is_err())
            .then(|| format!("{name} at byte 8: the version of the segment is damaged")),
        is_sealed: false,
    };
    let mut records = Records::new(bytes, header.salt, HEADER_BYTES);
    while let Some((at, body)) = records.next_record() {
        if let Err(error) = take_record(name, at as u64, body, &mut seen.last) {
            seen.damage = Some(error.message);
            return Ok(seen);
        }
    }
    match records.ending(name, is_last) {
        Ok(Ending::Sealed) => seen.is_sealed = true,
        Ok(Ending::Torn(_) | Ending::Clean) => {}
        Err(error) => seen.damage = Some(error.message),
    }
    if is_last && !seen.is_sealed && seen.damage.is_none() && (bytes.len() as u64) < header.reserved {
        let (bytes, reserved) = (bytes.len(), header.reserved);
        seen.damage =
            Some(format!("{name}: it has {bytes} bytes, but {reserved} were reserved: its end was cut off"));
    }
    Ok(seen)
}

/// Decodes the header, even if its version is damaged and nothing else.
fn header_in(name: &str, bytes: &[u8]) -> Result<Header> {
    Header::decode(name, bytes).or_else(|newer| {
        if newer.kind != ErrorKind::Invalid {
            return Err(newer);
        }
        let mut other = bytes.get(..HEADER_BYTES).unwrap_or_default().to_vec();
        let mut as_known = (1..=VERSION).filter_map(|version| {
            other.get_mut(8..10)?.copy_from_slice(&version.to_le_bytes());
            Header::decode(name, &other).ok()
        });
        as_known.next().ok_or(newer)
    })
}

/// Checks that a record follows the last one, and that its changes can be decoded.
fn take_record(name: &str, at: u64, body: &[u8], last: &mut Revision) -> Result<()> {
    let bad = |what: String| exacat_disk::corrupt(name, at, what);
    let head = read_head(body).map_err(|error| bad(error.to_string()))?;
    if head.first_revision.0 != last.0 + 1 || head.count == 0 {
        return Err(bad(format!("change {} follows where {} should", head.first_revision.0, last.0 + 1)));
    }
    read_changes(body, head.first_revision, |_, _| Ok::<bool, exacat_model::codec::DecodeError>(true))
        .map_err(|error| bad(error.to_string()))?;
    *last = head.last_revision();
    Ok(())
}
