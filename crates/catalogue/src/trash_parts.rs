//! Parts of the trash: one user's entries inside a directory that another user removed. Their
//! owners see them and take them out of the item.

use std::collections::VecDeque;

use exacat_model::{
    Answer, At, Body, Cursor, DirId, Entry, Error, Expect, Lfn, Measured, Mutation, Name, OnTimeline,
    OperationId, Result, TrashId, TrashItem, Usage, canonical_struct,
};
use exacat_store::{PageInProgress, UsageOf};

use crate::Catalogue;
use crate::caller::{Caller, PASS, READ};
use crate::cursor::{self, CursorOf};
use crate::resolve::check_passage;
use crate::trash::{TRASH, belongs_to};

/// Children listed at once in a directory of the trash.
const LIST_ENTRIES: usize = 1000;
/// Memory in bytes of the listed entries of one directory that wait while those below are examined.
const REST_BYTES_MAX: usize = 1 << 20;
/// Items of the trash examined at once.
const ITEMS: usize = 100;

/// Position at which a listing of parts continues.
#[derive(Clone, Debug, PartialEq)]
struct PartsCursor {
    /// The current item; all items listed before it are done.
    item: OnTimeline<TrashId>,
    /// Names from the item down to the last examined entry; none if the item is done.
    path: Option<Vec<Name>>,
    /// True if the listing continues inside that entry, a directory.
    enter: bool,
}

canonical_struct!(PartsCursor { item, path, enter });

/// A directory on the way down an item.
struct Level {
    directory: DirId,
    lfn: Lfn,
    /// The last child that was examined.
    after: Option<Name>,
    /// Children that were listed, and not examined.
    rest: VecDeque<Entry>,
    more: bool,
}

impl Level {
    fn new(directory: DirId, lfn: Lfn) -> Self {
        Level { directory, lfn, after: None, rest: VecDeque::new(), more: true }
    }
}

/// Returns the position of a listing: the names down to it.
fn position(way: &[Level]) -> (Option<Vec<Name>>, bool) {
    let names = way.iter().map_while(|level| level.after.clone()).collect::<Vec<_>>();
    let enter = !names.is_empty() && names.len() < way.len();
    (Some(names), enter)
}

fn may_pass(caller: &Caller, directory: &Entry) -> bool {
    caller.is_operator() || caller.has_entry(directory, PASS)
}

fn no_part(id: TrashId, lfn: &Lfn) -> Error {
    Error::not_found(format!("item {} of the trash has no entry of yours that was at {lfn}", id.0.0))
}

/// Page of parts that is being filled.
struct PartsPage {
    /// Entries that may still be read for it.
    reads_left: usize,
    parts: PageInProgress<TrashItem>,
}

impl PartsPage {
    /// Says whether nothing more may be read for it.
    fn is_full(&self) -> bool {
        self.reads_left == 0 || self.parts.is_full()
    }
}

impl Catalogue {
    /// Lists the topmost entries that the caller owns inside directories that others removed, where
    /// modes let the caller pass. Describes each as an item, with the item's id and the entry's own
    /// LFN.
    pub(crate) async fn trash_parts(&self, caller: &Caller, cursor: &Cursor, limit: usize) -> Result<Answer> {
        caller.check_known()?;
        let names = self.registry.names();
        let timelines = self.store.timelines();
        let begun: Option<PartsCursor> = cursor::read(CursorOf::TrashParts, cursor)?;
        let reads_left = self.settings.find_scan_entries.max(1);
        let mut page = PartsPage { reads_left, parts: PageInProgress::new(limit, 0) };
        let mut after = None;
        if let Some(PartsCursor { item, path, enter }) = begun {
            let id = timelines.resolve(TRASH, item)?;
            after = Some(id);
            if let Some(path) = path
                && let Some(item) = self.store.trash_item(id).await?
            {
                let mut way = self.way_again(caller, &item, path, enter).await?;
                self.parts_of(caller, &item, &mut way, &mut page).await?;
                if !way.is_empty() {
                    return Ok(self.parts_page(page.parts, id, position(&way), &names));
                }
            }
        }
        loop {
            let trash = self.store.trash(after, ITEMS).await?;
            for item in trash.items {
                if page.is_full() {
                    let Some(id) = after else { break };
                    return Ok(self.parts_page(page.parts, id, (None, false), &names));
                }
                page.reads_left -= 1;
                after = Some(item.id);
                let Some(directory) = item.entry.directory() else { continue };
                if belongs_to(caller, &item) || !may_pass(caller, &item.entry) {
                    continue;
                }
                if !self.passes_above(caller, &item.lfn).await? {
                    continue;
                }
                let mut way = vec![Level::new(directory, item.lfn.clone())];
                self.parts_of(caller, &item, &mut way, &mut page).await?;
                if !way.is_empty() {
                    return Ok(self.parts_page(page.parts, item.id, position(&way), &names));
                }
            }
            if !trash.more {
                let items = told(page.parts.end(false).items, &names);
                return Ok(Answer::Trash { items, timeline: timelines.current(), next: None });
            }
        }
    }

    fn parts_page(
        &self,
        parts: PageInProgress<TrashItem>,
        id: TrashId,
        (path, enter): (Option<Vec<Name>>, bool),
        names: &crate::registry::Names,
    ) -> Answer {
        let timelines = self.store.timelines();
        let cursor = PartsCursor { item: timelines.name(id), path, enter };
        let next = Some(cursor::write(CursorOf::TrashParts, &cursor));
        Answer::Trash { items: told(parts.end(true).items, names), timeline: timelines.current(), next }
    }

    /// True if the caller may now pass the directories above the path, whatever subtree its token
    /// is for. Missing directories do not refuse.
    async fn passes_above(&self, caller: &Caller, lfn: &Lfn) -> Result<bool> {
        let resolution = self.store.resolve(std::slice::from_ref(lfn)).await?.pop();
        Ok(resolution.is_some_and(|resolution| check_passage(caller, &resolution.ancestors, lfn).is_ok()))
    }

    /// Restores the position in an item, as far as its directories still exist.
    async fn way_again(
        &self,
        caller: &Caller,
        item: &TrashItem,
        path: Vec<Name>,
        enter: bool,
    ) -> Result<Vec<Level>> {
        let Some(directory) = item.entry.directory().filter(|_| may_pass(caller, &item.entry)) else {
            return Ok(Vec::new());
        };
        let mut way = vec![Level::new(directory, item.lfn.clone())];
        let last = path.len();
        for (number, name) in path.into_iter().enumerate() {
            let Some(level) = way.last_mut() else { break };
            level.after = Some(name.clone());
            if number + 1 == last && !enter {
                break;
            }
            let (at, lfn) = (At { parent: level.directory, name: name.clone() }, level.lfn.join(&name));
            let entry = self.store.standing(&[at]).await?.pop().flatten();
            let Some(entry) = entry.filter(|entry| may_pass(caller, entry)) else { break };
            let Some(directory) = entry.directory() else { break };
            way.push(Level::new(directory, lfn));
        }
        Ok(way)
    }

    /// Continues through an item until it is done, the page is full, or the work limit is reached.
    /// `way` is empty when the item is done.
    async fn parts_of(
        &self,
        caller: &Caller,
        item: &TrashItem,
        way: &mut Vec<Level>,
        page: &mut PartsPage,
    ) -> Result<()> {
        while let Some(level) = way.last_mut() {
            if page.is_full() {
                return Ok(());
            }
            let Some(mut entry) = level.rest.pop_front() else {
                if !level.more {
                    way.pop();
                    continue;
                }
                let count = LIST_ENTRIES.min(page.reads_left);
                let listed = self.store.list(level.directory, level.after.as_ref(), count).await?;
                level.more = listed.as_ref().is_some_and(|listed| listed.more);
                level.rest = listed.map_or_else(VecDeque::new, |listed| listed.items.into());
                continue;
            };
            page.reads_left -= 1;
            level.after = Some(entry.at.name.clone());
            let lfn = level.lfn.join(&entry.at.name);
            if caller.owns(&entry) {
                if caller.scope().contains(&lfn) {
                    let usage = self.usage_of_part(&entry).await?;
                    let may_read = caller.has_entry(&entry, READ);
                    if let Body::File(file) = &mut entry.body
                        && !may_read
                    {
                        file.replicas = Vec::new();
                    }
                    page.parts.push(TrashItem { lfn, entry, usage, ..item.clone() });
                }
            } else if let Some(directory) = entry.directory().filter(|_| may_pass(caller, &entry)) {
                // Entries of many bytes must not wait on every level: they are listed again.
                if level.rest.iter().map(Measured::bytes).sum::<usize>() > REST_BYTES_MAX {
                    (level.rest, level.more) = (VecDeque::new(), true);
                }
                way.push(Level::new(directory, lfn));
            }
        }
        Ok(())
    }

    async fn usage_of_part(&self, entry: &Entry) -> Result<Usage> {
        let mut usage = Usage::of(entry);
        if let Some(directory) = entry.directory()
            && let Some(account) = self.store.usage(&[UsageOf::Directory(directory)]).await?.pop()
        {
            usage.add(&account.usage);
        }
        Ok(usage)
    }

    /// Takes an entry of the caller's with everything below it out of a trash item. It goes to its
    /// former path, another path, or a directory of that path.
    pub(crate) async fn trash_restore_part(
        &self,
        caller: &Caller,
        id: OperationId,
        item: OnTimeline<TrashId>,
        lfn: Lfn,
        to: Option<Lfn>,
    ) -> Result<Answer> {
        let item = self.store.timelines().resolve(TRASH, item)?;
        let planned = self.plan_restore_part(caller, item, &lfn, to).await;
        let what = format!("{lfn} of item {} of the trash", item.0.0);
        let outcome = self.apply_planned(caller, id, what, planned).await?;
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    async fn plan_restore_part(
        &self,
        caller: &Caller,
        id: TrashId,
        lfn: &Lfn,
        to: Option<Lfn>,
    ) -> Result<Mutation> {
        caller.check_known()?;
        caller.check_scope(lfn)?;
        let nothing = || no_part(id, lfn);
        let item = self.store.trash_item(id).await?.ok_or_else(nothing)?;
        if !item.lfn.contains(lfn) || item.lfn.depth() == lfn.depth() {
            return Err(nothing());
        }
        if !belongs_to(caller, &item) && !self.passes_above(caller, &item.lfn).await? {
            return Err(nothing());
        }
        let mut entry = item.entry;
        for name in lfn.components().skip(item.lfn.depth()) {
            let directory = entry.directory().filter(|_| may_pass(caller, &entry)).ok_or_else(nothing)?;
            let at = At { parent: directory, name: Name::parse(name)? };
            entry = self.store.standing(&[at]).await?.pop().flatten().ok_or_else(nothing)?;
        }
        if !caller.is_operator() && !caller.owns(&entry) {
            return Err(nothing());
        }
        let to = self.restored_to(caller, lfn, &entry, to).await?;
        let expect = Expect { id: Some(entry.id()), revision: Some(entry.revision) };
        Ok(Mutation::RestoreBelow { from: entry.at, expect, to })
    }
}

/// Adds the names of the users who removed the items.
fn told(parts: Vec<TrashItem>, names: &crate::registry::Names) -> Vec<(TrashItem, String)> {
    let who = |item: &TrashItem| {
        names.users.get(&item.removed_by).map_or_else(String::new, |user| user.name.to_string())
    };
    parts
        .into_iter()
        .map(|item| {
            let who = who(&item);
            (item, who)
        })
        .collect()
}
