//! The trash: what is in it, bringing it back, ending it for good.

use exacat_model::limits::BATCH_MUTATIONS_MAX;
use exacat_model::{
    Answer, At, Body, Cursor, DirId, EntryId, Error, ErrorKind, Expect, Lfn, Mutation, Name, OperationId,
    PurgeTarget, Result, TrashId, TrashItem,
};
use exacat_store::{Outcome, Refusal, Request};

use crate::caller::{Caller, READ};
use crate::cursor::{self, CursorOf};
use crate::repeat::refused;
use crate::resolve::Spot;
use crate::{Catalogue, fill_random, step_id};

/// Children listed at once while a directory in the trash is emptied.
const LIST_ENTRIES_MAX: usize = 1000;
/// The same, at least, however deep the directory.
const LIST_ENTRIES_MIN: usize = 16;

/// What one step of a purge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PurgeStep {
    /// Entries that ended.
    pub entries: u64,
    /// The item itself is gone.
    pub done: bool,
}

/// A directory in the trash that is being emptied.
struct Emptying {
    directory: DirId,
    /// Where it stands; none for the item itself.
    at: Option<At>,
    /// The last child that was listed.
    after: Option<Name>,
    /// There may be children after it.
    more: bool,
    /// Directories among those listed, to be emptied, the last first.
    waiting: Vec<(DirId, Name)>,
}

impl Emptying {
    fn new(directory: DirId, at: Option<At>) -> Self {
        Emptying { directory, at, after: None, more: true, waiting: Vec::new() }
    }
}

/// Whose an item is: its owner's, that of who removed it, an admin's.
fn belongs_to(caller: &Caller, item: &TrashItem) -> bool {
    caller.owns(&item.entry) || caller.user() == Some(item.removed_by)
}

impl Catalogue {
    /// Items one owns or removed; for an operator all. A token for a subtree shows what was removed from there.
    pub(crate) async fn trash_list(&self, caller: &Caller, cursor: &Cursor, limit: usize) -> Result<Answer> {
        caller.check_known()?;
        let names = self.registry.names();
        let mut after: Option<TrashId> = cursor::read(CursorOf::Trash, cursor)?;
        let mut looks_left = self.settings.find_scan_entries.max(1);
        let mut items = Vec::new();
        let mut more = true;
        while more && items.len() < limit && looks_left > 0 {
            // Others' items are passed over, so more are read than are missing; never more than one page.
            let count = (limit - items.len()).max(100).min(looks_left);
            let page = self.store.trash(after, count).await?;
            more = page.more;
            for mut item in page.items {
                if items.len() == limit {
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
                items.push((item, who));
            }
        }
        let next = after.filter(|_| more).map(|after| cursor::write(CursorOf::Trash, &after));
        Ok(Answer::Trash { items, next })
    }

    /// One item, if it may be known to the caller: whoever has nothing to do with it does not learn that it is there.
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

    /// Whoever owns an item or removed it, and an admin, brings it back: to where it was, to another path, or into a
    /// directory of that path. Takes w and x on the directory it goes to, which must be there.
    pub(crate) async fn trash_restore(
        &self,
        caller: &Caller,
        id: OperationId,
        item: TrashId,
        to: Option<Lfn>,
    ) -> Result<Answer> {
        let planned = self.plan_restore(caller, item, to).await;
        let what = format!("item {} of the trash", item.0.0);
        let outcome = self.apply_planned(caller, id, what, planned).await?;
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    async fn plan_restore(&self, caller: &Caller, id: TrashId, to: Option<Lfn>) -> Result<Mutation> {
        let item = self.visible_item(caller, id, |item| belongs_to(caller, item)).await?;
        let place = match &to {
            Some(to) => {
                let spot = self.spot(caller, to, false).await?;
                self.destination(caller, to, &item.entry.at.name, spot).await?
            }
            None => match self.spot(caller, &item.lfn, false).await? {
                spot @ Spot::Vacant(_) => {
                    self.destination(caller, &item.lfn, &item.entry.at.name, spot).await?
                }
                Spot::Taken(_) => {
                    let lfn = &item.lfn;
                    let message = format!("{lfn} is there again: say another path to restore it to");
                    return Err(Error::new(ErrorKind::Exists, message));
                }
            },
        };
        Ok(Mutation::Restore { trash: id, to: place })
    }

    /// One step; its owner, an admin and an operator may. Repeated until there is no cursor; a purge that is left in the
    /// middle goes on whenever it is asked for again.
    pub(crate) async fn trash_purge(
        &self,
        caller: &Caller,
        id: OperationId,
        item: TrashId,
        cursor: &Cursor,
    ) -> Result<Answer> {
        let begun = cursor::read::<()>(CursorOf::Purge, cursor)?.is_some();
        let may = |item: &TrashItem| caller.owns(&item.entry) || caller.is_operator();
        let found = match self.visible_item(caller, item, may).await {
            Ok(found) => found,
            // It may be that this very operation ended it, and the answer was lost.
            Err(error) if error.kind == ErrorKind::NotFound => {
                return match begun || self.recall(caller, last_step(id)).await?.is_some() {
                    true => Ok(Answer::Purged { entries: 0, next: None }),
                    false => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let step = self.purge_step(caller, Some(id), &found, self.settings.purge_step_entries).await?;
        let next = (!step.done).then(|| cursor::write(CursorOf::Purge, &()));
        Ok(Answer::Purged { entries: step.entries, next })
    }

    /// Ends at most `entries_max` entries of an item, the deepest first, the item itself last: all in one request, so a
    /// step is short. Whoever calls has judged permission. Begins anew each time: what was ended is gone, so the
    /// way down leads straight to what is left. Doing it twice, at once or after a crash, ends nothing else.
    ///
    /// `operation` is the operation this is a step of, if it may be asked again.
    pub(crate) async fn purge_step(
        &self,
        caller: &Caller,
        operation: Option<OperationId>,
        item: &TrashItem,
        entries_max: usize,
    ) -> Result<PurgeStep> {
        let entries_max = entries_max.clamp(1, BATCH_MUTATIONS_MAX - 1);
        let (below, emptied) = self.plan_purge(item, entries_max).await?;
        let mut entries = 0;
        if !below.is_empty() {
            // An id of its own: a repeat finds other entries at the same positions. Ending by place and identity
            // needs no memory to be safe.
            let mut fresh = OperationId([0; 16]);
            fill_random(&mut fresh.0)?;
            let request = Request { operation: fresh, who: caller.acting_user(), mutations: below };
            for outcome in self.store.apply(request).await? {
                // Otherwise another purge of the same item was faster, or something is left: the next step sees.
                entries += u64::from(matches!(outcome, Outcome::Applied { .. }));
            }
        }
        if !emptied {
            return Ok(PurgeStep { entries, done: false });
        }
        let mut last = OperationId([0; 16]);
        match operation {
            Some(operation) => last = last_step(operation),
            None => fill_random(&mut last.0)?,
        }
        let end = Mutation::Purge(PurgeTarget::Item(item.id));
        match self.apply(caller, last, vec![end]).await?.pop() {
            Some(Outcome::Applied { .. }) => Ok(PurgeStep { entries: entries + 1, done: true }),
            Some(Outcome::Refused(Refusal::NotFound)) => Ok(PurgeStep { entries, done: true }),
            Some(Outcome::Refused(Refusal::NotEmpty)) => Ok(PurgeStep { entries, done: false }),
            Some(Outcome::Refused(refusal)) => {
                Err(refused(format_args!("item {} of the trash", item.id.0.0), refusal))
            }
            Some(Outcome::Unchanged) | None => {
                Err(Error::new(ErrorKind::Internal, "a purge without an outcome"))
            }
        }
    }

    /// The next entries to end, in an order in which each directory is empty when its turn comes; and whether the item
    /// is empty after them.
    async fn plan_purge(&self, item: &TrashItem, entries_max: usize) -> Result<(Vec<Mutation>, bool)> {
        let mut plan = Vec::new();
        let mut stack = Vec::new();
        stack.extend(item.entry.directory().map(|directory| Emptying::new(directory, None)));
        // Nothing comes into a directory in the trash, so each listing goes on where the one before ended.
        loop {
            let depth = stack.len();
            let Some(level) = stack.last_mut() else { break };
            if let Some((directory, name)) = level.waiting.pop() {
                let at = At { parent: level.directory, name };
                stack.push(Emptying::new(directory, Some(at)));
            } else if level.more {
                let left = entries_max - plan.len();
                if left == 0 {
                    return Ok((plan, false));
                }
                // The deeper, the fewer, so that what waits on all levels together stays small.
                let count = left.min((LIST_ENTRIES_MAX / depth).max(LIST_ENTRIES_MIN));
                let page = self.store.list(level.directory, level.after.as_ref(), count).await?;
                level.more = page.as_ref().is_some_and(|page| page.more);
                for entry in page.map_or(Vec::new(), |page| page.items) {
                    level.after = Some(entry.at.name.clone());
                    match entry.directory() {
                        Some(directory) => level.waiting.push((directory, entry.at.name)),
                        None => plan.push(below(entry.at.clone(), entry.id())),
                    }
                }
                level.waiting.reverse();
            } else {
                if let Some(at) = level.at.take() {
                    if plan.len() == entries_max {
                        return Ok((plan, false));
                    }
                    plan.push(below(at, EntryId::Directory(level.directory)));
                }
                stack.pop();
            }
        }
        Ok((plan, true))
    }
}

fn below(at: At, id: EntryId) -> Mutation {
    Mutation::Purge(PurgeTarget::Below { at, expect: Expect::entry(id) })
}

/// The id under which an operation ends the item itself.
fn last_step(operation: OperationId) -> OperationId {
    step_id(operation, 0)
}
