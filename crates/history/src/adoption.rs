//! Adoption of an archive: a history that was restored or cloned becomes its owner, and loses no row.
//!
//! ```text
//!   plan        days whose files differ; refused if rows would be lost
//!   state       the history notes that the adoption has begun
//!   take over   from here on no commit of the former owner counts
//!   merge       rows that only the archive has come into the history, under the history's own later rows
//!   publish     one commit replaces the files of all merged days
//!   state       the history is the owner
//! ```
//! Until the commit the readers of the archive see what the former owner published. A crash anywhere leaves
//! a history that opens only to repeat the adoption. Rows that came before are the same when they come again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exacat_disk::corrupt;
use exacat_log::replay::list_segments;
use exacat_model::codec::Reader;
use exacat_model::element::ElementRows;
use exacat_model::{Error, ErrorKind, FieldRef, GroupName, Result};

use crate::archive::{ArchiveOwner, ArchivedFile, VisibleFile};
use crate::archive_state::{ArchiveState, Tenure};
use crate::archiving::Written;
use crate::batch::{Batch, each_checked_row};
use crate::committer::Work;
use crate::engine::{History, Shared};
use crate::group::Group;
use crate::ingest::Ingest;
use crate::item::{GroupId, Item};
use crate::limits::BATCH_BYTES;
use crate::log_walk::{Walk, header_of};
use crate::owned_archive::OwnedArchive;
use crate::run::day_of;

/// Day whose files were merged with the rows of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedDay {
    /// Its group.
    pub group: GroupName,
    /// The UTC day, as days since 1970.
    pub day: i32,
    /// Rows of the archive that came into the history.
    pub rows: u64,
}

/// Result of an adoption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Owner before; none if the archive had none.
    pub previous: Option<ArchiveOwner>,
    /// Days with the same files on both sides.
    pub kept_days: u64,
    /// Days that the archive had in another version than the history, or alone.
    pub merged: Vec<MergedDay>,
    /// Days of the history that readers of the archive did not see, and see again.
    pub shown_days: u64,
    /// Days beyond the retention of their group: they leave the archive.
    pub ended_days: u64,
    /// Rows that the history wrote since it was copied, and that were put over those of the archive again.
    pub own_rows: u64,
    /// Rows that are lost, or would be.
    pub losses: Vec<String>,
    /// True if the history was the owner already, so that nothing was done.
    pub was_owner: bool,
    /// True if the history owns the archive. Otherwise the losses were not accepted.
    pub done: bool,
}

/// A day that both sides have differently.
struct DifferentDay {
    group: Arc<Group>,
    day: i32,
    files: Vec<VisibleFile>,
    /// Files of the history's own version are gone.
    forgets_own: bool,
}

/// Days whose later rows are written once more, each with the last record that the archive has of it.
type RepeatedDays = BTreeMap<(GroupId, i32), u64>;

/// Steps for each day.
#[derive(Default)]
struct Plan {
    different: Vec<DifferentDay>,
    /// Days of the history whose files are gone, and that the archive does not have.
    gone: Vec<(Arc<Group>, i32)>,
    kept_days: u64,
    shown_days: u64,
    ended_days: u64,
    losses: Vec<String>,
}

impl History {
    /// Makes this history the owner of its archive. If rows would be lost, it changes nothing unless
    /// `accepts_loss`. The settings of the history say [`adopts`](crate::HistorySettings::adopts).
    pub fn adopt_archive(&self, accepts_loss: bool) -> Result<Adopted> {
        let shared = &self.shared;
        let archive = match &shared.archive {
            Some(archive) if shared.settings.adopts => archive,
            _ => return Err(Error::invalid("the history was not opened to adopt an archive")),
        };
        let _turn = shared.archive_turn.lock();
        let adopted = shared.adopt(archive, accepts_loss);
        shared.archiving.lock().clear();
        adopted
    }
}

impl Shared {
    fn adopt(&self, archive: &Arc<OwnedArchive>, accepts_loss: bool) -> Result<Adopted> {
        let now = (self.settings.now)();
        let previous = archive.files().owner()?;
        if let Some(owner) = previous.as_ref().filter(|owner| owner.history != self.id) {
            return Err(archive.owned_by(owner));
        }
        let state = archive.state();
        let is_own = previous.as_ref().is_some_and(|owner| owner.is(&archive.this(state.incarnation, now)));
        if is_own && state.tenure == Tenure::Held {
            return Ok(Adopted { previous, was_owner: true, done: true, ..Adopted::default() });
        }
        let plan = self.plan(archive, &state)?;
        if !plan.losses.is_empty() && !accepts_loss {
            return Ok(plan.adopted(previous));
        }
        let state = match state.tenure {
            Tenure::Adopting => state,
            _ => ArchiveState {
                tenure: Tenure::Adopting,
                incarnation: exacat_disk::random_id()?,
                own_up_to: Some(self.appender.lock().end.revision.0),
                ..state
            },
        };
        archive.set_state(state)?;
        let this = archive.this(state.incarnation, now);
        archive.files().take_over(&this, now)?;
        archive.set_readable(true);
        // The former owner may have published until a moment ago.
        let plan = self.plan(archive, &state)?;
        if !plan.losses.is_empty() && !accepts_loss {
            return Ok(plan.adopted(previous));
        }
        let mut adopted = plan.adopted(previous);
        let mut repeated = RepeatedDays::new();
        for different in &plan.different {
            // A merge of its runs would be for nothing.
            self.archiving.lock().insert((different.group.id, different.day));
            let (rows, complete) = self.take_day(archive, different, accepts_loss, &mut adopted.losses)?;
            let (group, day) = (different.group.settings().name, different.day);
            adopted.merged.push(MergedDay { group, day, rows });
            if let Some(copied) = state.copied_up_to {
                repeated.insert((different.group.id, day), complete.map_or(copied, |of| of.min(copied)));
            }
        }
        adopted.own_rows = self.repeat_own_rows(&state, &repeated, accepts_loss)?;
        let forgotten = plan.different.iter().filter(|different| different.forgets_own);
        let forgotten = forgotten.map(|different| (&different.group, different.day));
        self.forget_archived(forgotten.chain(plan.gone.iter().map(|(group, day)| (group, *day))));
        self.flush_with_latest()?;
        let mut written: Vec<Written> = Vec::new();
        for different in &plan.different {
            written.extend(self.write_day(archive, &different.group, different.day)?);
        }
        self.publish(archive, &this, written)?;
        archive.set_state(ArchiveState {
            tenure: Tenure::Held,
            incarnation: state.incarnation,
            ..ArchiveState::default()
        })?;
        adopted.done = true;
        Ok(adopted)
    }

    /// Compares the days of the history with those of the archive.
    fn plan(&self, archive: &OwnedArchive, state: &ArchiveState) -> Result<Plan> {
        let mut visible: BTreeMap<(String, i32), Vec<VisibleFile>> = BTreeMap::new();
        for file in archive.files().visible(self.id)? {
            visible.entry((file.group.clone(), file.day)).or_default().push(file);
        }
        let mut plan = Plan::default();
        for group in self.all_groups() {
            let name = group.settings().name;
            let first_kept = day_of(group.oldest_kept());
            let archived = Arc::clone(&group.rows.read().archived);
            for (day, own) in &archived.days {
                let seen = visible.remove(&(name.to_string(), *day));
                plan.own_day(archive, &group, *day, own, seen)?;
            }
            let of_group = visible.extract_if(.., |(of, _), _| *of == name.as_str());
            for ((_, day), files) in of_group.collect::<Vec<_>>() {
                if day < first_kept {
                    plan.ended_days += 1;
                    continue;
                }
                let group = Arc::clone(&group);
                plan.different.push(DifferentDay { group, day, files, forgets_own: false });
            }
        }
        // The rest has a group that this history does not know.
        let mut unknown: BTreeMap<String, u64> = BTreeMap::new();
        visible.into_keys().for_each(|(group, _)| *unknown.entry(group).or_default() += 1);
        plan.losses.extend(unknown.into_iter().map(|(group, days)| {
            format!(
                "group {group}: {days} days are in the archive, and this history has no such group: serve \
                 without the archive and make it with exacat history set, or accept the loss"
            )
        }));
        if !plan.different.is_empty()
            && let Some(copied) = state.copied_up_to
            && state.own_up_to.is_none_or(|own| own > copied)
            && self.oldest_record()?.is_none_or(|oldest| oldest > copied.saturating_add(1))
        {
            plan.losses.push(
                "values that this history took since it was copied: its log no longer has all of them, so \
                 older values of the archive may replace those of the same element and time"
                    .to_owned(),
            );
        }
        Ok(plan)
    }

    /// Returns the oldest record in the log; none if there is no log.
    fn oldest_record(&self) -> Result<Option<u64>> {
        let segments = list_segments(&*self.disk, &self.layout.log(), false)?;
        let first = segments.first().map(|first| header_of(&*self.disk, first)).transpose()?;
        Ok(first.map(|header| header.first_revision.0))
    }

    /// Waits until a batch is durable and visible.
    fn commit_batch(&self, batch: Batch) -> Result<()> {
        if batch.count() == 0 {
            return Ok(());
        }
        let answer = self.queue.add(Work::Rows(batch), &self.metrics)?;
        answer.blocking_recv().map_or_else(
            |_| Err(Error::new(ErrorKind::Unknown, "internal error: the committer of the history ended")),
            |(outcome, _)| outcome,
        )
    }

    /// Writes the rows of a day of the archive to the history. Returns their number, and the record up to
    /// which the day is complete in the archive.
    fn take_day(
        &self,
        archive: &OwnedArchive,
        of: &DifferentDay,
        accepts_loss: bool,
        losses: &mut Vec<String>,
    ) -> Result<(u64, Option<u64>)> {
        let (mut count, mut refused, mut reason) = (0, 0, None);
        let mut give = |rows: &[ElementRows]| -> Result<()> {
            let mut ingest = Ingest::new(&of.group, self.now_ns());
            for element in rows {
                for (at, time) in element.times.iter().enumerate() {
                    let fields: Vec<(&str, FieldRef<'_>)> = element.row(at).collect();
                    match ingest.named(&element.key, &fields, *time) {
                        Ok(()) => count += 1,
                        Err(error) => {
                            refused += 1;
                            reason.get_or_insert(error.message);
                        }
                    }
                    if ingest.is_full() {
                        let full = std::mem::replace(&mut ingest, Ingest::new(&of.group, self.now_ns()));
                        self.commit_batch(full.finish())?;
                    }
                }
            }
            self.commit_batch(ingest.finish())
        };
        let mut complete = Some(u64::MAX);
        for file in &of.files {
            let of_file = archive.files().named_rows(file, &mut give)?;
            complete = complete.zip(of_file).map(|(one, other)| one.min(other));
        }
        if let Some(reason) = reason {
            let (name, day) = (of.group.settings().name, of.day);
            let what = format!("group {name}, day {day} since 1970: {refused} rows do not fit: {reason}");
            if !accepts_loss {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("{what}; run the adoption again, with --accept-loss to leave them out"),
                ));
            }
            losses.push(what);
        }
        Ok((count, complete))
    }

    /// Writes the rows of some days once more that the archive cannot have: they are newer than those that it
    /// has. Returns their number.
    fn repeat_own_rows(&self, state: &ArchiveState, days: &RepeatedDays, accepts_loss: bool) -> Result<u64> {
        let (Some(after), Some(up_to)) = (days.values().min().copied(), state.own_up_to) else {
            return Ok(0);
        };
        if up_to <= after {
            return Ok(0);
        }
        // The plan has looked back to the copy. A file that was written before it needs older records.
        if !accepts_loss && self.oldest_record()?.is_none_or(|oldest| oldest > after.saturating_add(1)) {
            let what = format!(
                "the log no longer has record {}, so older values of the archive may replace later ones: run \
                 the adoption again, with --accept-loss to accept that",
                after.saturating_add(1)
            );
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        let segments = list_segments(&*self.disk, &self.layout.log(), false)?;
        let begin = segments.partition_point(|segment| segment.first_revision.0 <= after.saturating_add(1));
        let mut walk = Walk { disk: &*self.disk, history: self.id, place: None };
        let mut count = 0;
        for (at, segment) in segments.iter().enumerate().skip(begin.saturating_sub(1)) {
            if segment.first_revision.0 > up_to {
                break;
            }
            let name = segment.path.display().to_string();
            walk.segment(segment, at + 1 == segments.len(), &mut |head, content| {
                let revision = head.first_revision.0;
                if revision > up_to {
                    return Ok(false);
                }
                let mut reader = Reader::new(content);
                while revision > after && !reader.is_empty() {
                    let item = Item::decode(&mut reader).map_err(|error| corrupt(&name, 0, error))?;
                    count += self.repeat_rows(&item, revision, days, &name)?;
                }
                Ok(true)
            })?;
        }
        Ok(count)
    }

    /// Writes the rows of an item once more, if they are of these days, and newer than the archive's.
    fn repeat_rows(&self, item: &Item<'_>, revision: u64, days: &RepeatedDays, file: &str) -> Result<u64> {
        let Item::Rows { group, count, bytes } = item else { return Ok(0) };
        let Some(group) = self.groups.read().by_id.get(group).cloned() else { return Ok(0) };
        let (mut batches, mut repeated) = (vec![Batch::new(Arc::clone(&group))], 0);
        {
            let names = group.names.read();
            let elements = names.element_count() as u32;
            let checked = each_checked_row(bytes, *count, &*names, elements, |row, bytes| {
                if days.get(&(group.id, day_of(row.time))).is_some_and(|after| revision > *after) {
                    if batches.last().is_none_or(|batch| batch.rows.len() >= BATCH_BYTES) {
                        batches.push(Batch::new(Arc::clone(&group)));
                    }
                    if let Some(batch) = batches.last_mut() {
                        batch.push_encoded(bytes);
                        repeated += 1;
                    }
                }
            });
            checked.map_err(|error| corrupt(file, 0, error))?;
        }
        batches.into_iter().try_for_each(|batch| self.commit_batch(batch))?;
        Ok(repeated)
    }

    /// Forgets archived days whose files are gone. The next manifest is without them.
    fn forget_archived<'d>(&self, days: impl Iterator<Item = (&'d Arc<Group>, i32)>) {
        let mut files = self.files.lock();
        for (group, day) in days {
            let mut rows = group.rows.write();
            let mut archived = (*rows.archived).clone();
            archived.days.remove(&day);
            rows.archived = Arc::new(archived);
            let is_kept =
                |of: &crate::archive::ArchivedEntry| (of.group, of.day) != (group.id, i64::from(day));
            files.manifest.archived.0.retain(is_kept);
        }
    }
}

impl Plan {
    /// Takes a day that the history has in the archive. `seen` are the files that readers of the archive see.
    fn own_day(
        &mut self,
        archive: &OwnedArchive,
        group: &Arc<Group>,
        day: i32,
        own: &Arc<[ArchivedFile]>,
        seen: Option<Vec<VisibleFile>>,
    ) -> Result<()> {
        let paths: BTreeSet<&str> = own.iter().map(|file| file.path.as_str()).collect();
        let seen = seen.unwrap_or_default();
        if paths == seen.iter().map(|file| file.path.as_str()).collect() {
            self.kept_days += 1;
            return Ok(());
        }
        let mut missing = 0;
        for file in &**own {
            missing += usize::from(!archive.files().has(file)?);
        }
        let group = Arc::clone(group);
        if !seen.is_empty() {
            let different = DifferentDay { group, day, files: seen, forgets_own: missing > 0 };
            self.different.push(different);
            return Ok(());
        }
        if missing == 0 {
            self.shown_days += 1;
            return Ok(());
        }
        let (name, all) = (group.settings().name, own.len());
        self.losses.push(format!(
            "group {name}, day {day} since 1970: {missing} of {all} files are gone from the archive: copy them \
             back, or accept the loss"
        ));
        self.gone.push((group, day));
        Ok(())
    }

    fn adopted(&self, previous: Option<ArchiveOwner>) -> Adopted {
        Adopted {
            previous,
            kept_days: self.kept_days,
            shown_days: self.shown_days,
            ended_days: self.ended_days,
            losses: self.losses.clone(),
            ..Adopted::default()
        }
    }
}
