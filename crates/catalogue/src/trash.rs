//! The trash: listing, restoring and purging items.

use exacat_model::limits::{BATCH_MUTATIONS_MAX, PAGE_MEMORY_MAX};
use exacat_model::{
    Answer, At, Body, Cursor, DirId, Entry, EntryId, Error, ErrorKind, Expect, Lfn, Measured, Mutation, Name,
    OnTimeline, OperationId, PurgeTarget, Result, TrashId, TrashItem,
};
use exacat_store::{Outcome, Refusal, Request, UsageOf};

use crate::caller::{Caller, READ};
use crate::cursor::{self, CursorOf};
use crate::repeat::refused;
use crate::resolve::{Spot, is_sticky_to, may_empty_of_own};
use crate::{Catalogue, step_id};

/// Most directories skipped in one step of a purge because the caller may not empty them.
const CLOSED_PASSED_MAX: usize = 10_000;
/// List to read again when an item's timeline was replaced.
pub(crate) const TRASH: &str = "the trash";
/// Most children listed at once while a directory in the trash is emptied.
const LIST_ENTRIES_MAX: usize = 1000;
/// The smallest such number, however deep the directory.
const LIST_ENTRIES_MIN: usize = 16;

/// The result of one step of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PurgeStep {
    /// Entries that the step purged.
    pub entries: u64,
    /// True if the item itself is gone.
    pub done: bool,
    /// True if the step met directories that the caller may not empty.
    pub closed: bool,
}

/// The next entries of an item to purge.
struct PurgePlan {
    mutations: Vec<Mutation>,
    /// True if the item is empty after them.
    emptied: bool,
    /// True if directories were skipped that the caller may not empty.
    closed: bool,
}

/// A directory in the trash that is being emptied.
struct Emptying {
    directory: DirId,
    /// Its place; none for the item itself.
    at: Option<At>,
    /// The last child that was listed.
    after: Option<Name>,
    /// True if there may be more children after it.
    more: bool,
    /// Listed directories still to be emptied, the last first. The flag limits each to the caller's
    /// own entries.
    waiting: Vec<(DirId, Name, bool)>,
    /// True if an entry in it stays, so that it stays as well.
    stays: bool,
    /// True if it is sticky and another's: only the caller's own entries end.
    own_only: bool,
}

impl Emptying {
    fn new(directory: DirId, at: Option<At>, own_only: bool) -> Self {
        Emptying { directory, at, after: None, more: true, waiting: Vec::new(), stays: false, own_only }
    }
}

/// True if a purge ends only the caller's own entries in a directory. An operator ends all.
fn ends_own_only(caller: &Caller, directory: &Entry) -> bool {
    !caller.is_operator() && is_sticky_to(caller, directory)
}

/// True if the caller owns the item, removed it, or is an admin.
pub(crate) fn belongs_to(caller: &Caller, item: &TrashItem) -> bool {
    caller.owns(&item.entry) || caller.user() == Some(item.removed_by)
}

impl Catalogue {
    /// Lists items that the caller owns or removed; for an operator all. A token for a subtree
    /// shows only items removed from there.
    pub(crate) async fn trash_list(&self, caller: &Caller, cursor: &Cursor, limit: usize) -> Result<Answer> {
        caller.check_known()?;
        let names = self.registry.names();
        let timelines = self.store.timelines();
        let after: Option<OnTimeline<TrashId>> = cursor::read(CursorOf::Trash, cursor)?;
        let mut after = after.map(|after| timelines.resolve(TRASH, after)).transpose()?;
        let mut looks_left = self.settings.find_scan_entries.max(1);
        let (mut items, mut bytes) = (Vec::new(), 0);
        let mut more = true;
        while more && items.len() < limit && bytes < PAGE_MEMORY_MAX && looks_left > 0 {
            // Other users' items are skipped, so read more than are missing, but never more than
            // one page.
            let count = (limit - items.len()).max(100).min(looks_left);
            let page = self.store.trash(after, count).await?;
            more = page.more;
            for mut item in page.items {
                if items.len() == limit || bytes >= PAGE_MEMORY_MAX {
                    more = true;
                    break;
                }
                after = Some(item.id);
                looks_left -= 1;
                let shown = caller.is_operator() || belongs_to(caller, &item);
                if !shown || !caller.scope().contains(&item.lfn) {
                    continue;
                }
                if let Body::File(file) = &mut item.entry.body
                    && !caller.has(item.entry.owner, item.entry.group, item.entry.mode, READ)
                {
                    file.replicas = Vec::new();
                }
                let who =
                    names.users.get(&item.removed_by).map_or_else(String::new, |user| user.name.to_string());
                bytes += item.bytes();
                items.push((item, who));
            }
        }
        let next = after.filter(|_| more).map(|after| cursor::write(CursorOf::Trash, &timelines.name(after)));
        Ok(Answer::Trash { items, timeline: timelines.current(), next })
    }

    /// Returns an item that the caller may know of. To any other caller the item seems not to
    /// exist.
    async fn visible_item(
        &self,
        caller: &Caller,
        id: TrashId,
        may: impl Fn(&TrashItem) -> bool,
    ) -> Result<TrashItem> {
        match self.store.trash_item(id).await? {
            Some(item) if may(&item) => {
                caller.check_scope(&item.lfn)?;
                Ok(item)
            }
            _ => Err(Error::not_found(format!("no item {} of the trash that is yours", id.0.0))),
        }
    }

    /// Restores an item for its owner, its remover or an admin: to its former path, another path,
    /// or into a directory of that path. Takes w and x on the destination directory, which must
    /// exist.
    pub(crate) async fn trash_restore(
        &self,
        caller: &Caller,
        id: OperationId,
        item: OnTimeline<TrashId>,
        to: Option<Lfn>,
    ) -> Result<Answer> {
        let item = self.store.timelines().resolve(TRASH, item)?;
        let planned = self.plan_restore(caller, item, to).await;
        let what = format!("item {} of the trash", item.0.0);
        let outcome = self.apply_planned(caller, id, what, planned).await?;
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    async fn plan_restore(&self, caller: &Caller, id: TrashId, to: Option<Lfn>) -> Result<Mutation> {
        let item = self.visible_item(caller, id, |item| belongs_to(caller, item)).await?;
        let place = self.restored_to(caller, &item.lfn, &item.entry, to).await?;
        Ok(Mutation::Restore { trash: id, to: place })
    }

    /// Returns the destination of a trashed entry that stood at `lfn`: that path, another path, or
    /// a directory of that path.
    pub(crate) async fn restored_to(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        entry: &Entry,
        to: Option<Lfn>,
    ) -> Result<At> {
        let (name, kind) = (&entry.at.name, entry.kind());
        if let Some(to) = &to {
            let spot = self.spot(caller, to, to.must_be_directory()).await?;
            return self.destination(caller, to, name, kind, spot).await;
        }
        match self.spot(caller, lfn, false).await? {
            spot @ Spot::Vacant(_) => self.destination(caller, lfn, name, kind, spot).await,
            Spot::Taken(_) => {
                let message = format!("{lfn} is there again: say another path to restore it to");
                Err(Error::new(ErrorKind::Exists, message))
            }
        }
    }

    /// Purges one step of an item, for its owner, an admin or an operator. The client repeats it
    /// until there is no cursor. A later request continues an interrupted purge.
    ///
    /// Removing checked the top only, so the owner's purge judges each directory, as `rm -r` of
    /// each would. Other users' entries in directories closed to the owner stay, with the
    /// directories above them. They stay until the retention ends or an operator purges the item.
    pub(crate) async fn trash_purge(
        &self,
        caller: &Caller,
        id: OperationId,
        item: OnTimeline<TrashId>,
        cursor: &Cursor,
    ) -> Result<Answer> {
        let item = self.store.timelines().resolve(TRASH, item)?;
        let begun = cursor::read::<()>(CursorOf::Purge, cursor)?.is_some();
        let may = |item: &TrashItem| caller.owns(&item.entry) || caller.is_operator();
        let found = match self.visible_item(caller, item, may).await {
            Ok(found) => found,
            // This same operation may have purged the item, and the answer was lost.
            Err(error) if error.kind == ErrorKind::NotFound => {
                return match begun || self.recall(caller, last_step(id)).await?.is_some() {
                    true => Ok(Answer::Purged { entries: 0, next: None }),
                    false => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let step = self.purge_step(caller, Some(id), &found, self.settings.purge_step_entries).await?;
        if step.entries == 0 && step.closed && !step.done {
            return Err(Error::denied(format!(
                "item {} of the trash: the rest of it is in directories of others that you may not empty (no w, \
                 no x, or sticky). It stays until the retention ends, unless an operator purges the item",
                item.0.0
            )));
        }
        let next = (!step.done).then(|| cursor::write(CursorOf::Purge, &()));
        Ok(Answer::Purged { entries: step.entries, next })
    }

    /// Purges at most `entries_max` entries of an item, the deepest first, the item itself last. A
    /// step is one bounded request. The caller has judged permission. Each step starts from the
    /// top: purged entries are gone, so it leads straight to those left. Running it twice,
    /// concurrently or after a crash, purges nothing else.
    ///
    /// `operation` is the operation of this step, if a client may repeat it.
    pub(crate) async fn purge_step(
        &self,
        caller: &Caller,
        operation: Option<OperationId>,
        item: &TrashItem,
        entries_max: usize,
    ) -> Result<PurgeStep> {
        let entries_max = entries_max.clamp(1, BATCH_MUTATIONS_MAX - 1);
        let plan = self.plan_purge(caller, item, entries_max).await?;
        let PurgePlan { mutations: below, emptied, closed } = plan;
        let mut entries = 0;
        if !below.is_empty() {
            // Use an id of its own: a repeat finds other entries at the same positions. Purging by
            // place and identity is safe without remembered outcomes.
            let request = Request::new(self.new_operation_id()?, caller.acting_user(), below);
            for outcome in self.apply_request(caller, request.judged(caller.judged())).await? {
                // Otherwise another purge of the same item was faster, or an entry remains: the
                // next step finds out.
                entries += u64::from(matches!(outcome, Outcome::Applied { .. }));
            }
        }
        if !emptied {
            return Ok(PurgeStep { entries, done: false, closed });
        }
        let last = match operation {
            Some(operation) => last_step(operation),
            None => self.new_operation_id()?,
        };
        let end = Mutation::Purge(PurgeTarget::Item(item.id));
        match self.apply(caller, last, vec![end]).await?.pop() {
            Some(Outcome::Applied { .. }) => Ok(PurgeStep { entries: entries + 1, done: true, closed }),
            Some(Outcome::Refused(Refusal::NotFound)) => Ok(PurgeStep { entries, done: true, closed }),
            Some(Outcome::Refused(Refusal::NotEmpty)) => Ok(PurgeStep { entries, done: false, closed }),
            Some(Outcome::Refused(refusal)) => {
                Err(refused(format_args!("item {} of the trash", item.id.0.0), refusal))
            }
            Some(Outcome::Unchanged) | None => {
                Err(Error::new(ErrorKind::Internal, "a purge without an outcome"))
            }
        }
    }

    /// Plans the next entries to purge, in an order that empties each directory before its turn.
    /// Also says whether the item is empty after them.
    async fn plan_purge(&self, caller: &Caller, item: &TrashItem, entries_max: usize) -> Result<PurgePlan> {
        let mut plan = Vec::new();
        let mut closed = 0;
        let mut stack = Vec::new();
        stack.extend(
            item.entry
                .directory()
                .map(|directory| Emptying::new(directory, None, ends_own_only(caller, &item.entry))),
        );
        // Nothing enters a directory in the trash, so each listing continues where the one before
        // ended.
        loop {
            let depth = stack.len();
            let Some(level) = stack.last_mut() else { break };
            if let Some((directory, name, own_only)) = level.waiting.pop() {
                let at = At { parent: level.directory, name };
                stack.push(Emptying::new(directory, Some(at), own_only));
            } else if level.more {
                let left = entries_max - plan.len();
                if left == 0 || closed > CLOSED_PASSED_MAX {
                    return Ok(PurgePlan { mutations: plan, emptied: false, closed: closed > 0 });
                }
                // List fewer at greater depth, so that what waits on all levels together stays
                // small.
                let count = left.min((LIST_ENTRIES_MAX / depth).max(LIST_ENTRIES_MIN));
                let page = self.store.list(level.directory, level.after.as_ref(), count).await?;
                level.more = page.as_ref().is_some_and(|page| page.more);
                let entries = page.map_or(Vec::new(), |page| page.items);
                let stay = self.closed_to(caller, &entries).await?;
                for entry in entries {
                    level.after = Some(entry.at.name.clone());
                    if level.own_only && !caller.owns(&entry) {
                        level.stays = true;
                        closed += 1;
                        continue;
                    }
                    match entry.directory() {
                        Some(directory) if stay.contains(&directory) => {
                            level.stays = true;
                            closed += 1;
                        }
                        Some(directory) => {
                            let own_only = ends_own_only(caller, &entry);
                            level.waiting.push((directory, entry.at.name, own_only));
                        }
                        None => plan.push(below(entry.at.clone(), entry.id())),
                    }
                }
                level.waiting.reverse();
            } else {
                let (at, directory, stays) = (level.at.take(), level.directory, level.stays);
                if let Some(at) = at.filter(|_| !stays) {
                    if plan.len() == entries_max {
                        return Ok(PurgePlan { mutations: plan, emptied: false, closed: closed > 0 });
                    }
                    plan.push(below(at, EntryId::Directory(directory)));
                }
                stack.pop();
                if let Some(above) = stack.last_mut() {
                    above.stays |= stays;
                }
            }
        }
        Ok(PurgePlan { mutations: plan, emptied: closed == 0, closed: closed > 0 })
    }

    /// Returns the non-empty directories among these that the caller may not empty.
    async fn closed_to(&self, caller: &Caller, entries: &[Entry]) -> Result<Vec<DirId>> {
        let closed = entries.iter().filter_map(|entry| Some((entry.directory()?, entry)));
        let closed = closed.filter(|(_, entry)| !caller.is_operator() && !may_empty_of_own(caller, entry));
        let closed: Vec<DirId> = closed.map(|(directory, _)| directory).collect();
        if closed.is_empty() {
            return Ok(closed);
        }
        let of: Vec<UsageOf> = closed.iter().map(|directory| UsageOf::Directory(*directory)).collect();
        let accounts = self.store.usage(&of).await?;
        let with = closed.into_iter().zip(accounts);
        Ok(with.filter(|(_, account)| !account.usage.is_empty()).map(|(directory, _)| directory).collect())
    }
}

fn below(at: At, id: EntryId) -> Mutation {
    Mutation::Purge(PurgeTarget::Below { at, expect: Expect::entry(id) })
}

/// Returns the id under which an operation purges the item itself.
fn last_step(operation: OperationId) -> OperationId {
    step_id(operation, 0)
}
