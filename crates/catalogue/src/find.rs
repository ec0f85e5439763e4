//! Find: everything below a directory, depth first, a bounded page at a time.
//!
//! Each directory comes before what is in it, its children in the order of their names' bytes. A cursor is the
//! path of the last entry looked at: where it stands in that order does not depend on what else is there, so a
//! find goes on where it was after any pause, restart or change, and gives each entry that stays where it is
//! exactly once.
//!
//! Memory is bounded by the depth and by [`BUFFERED_ENTRIES_MAX`], time by the entries looked at in one page.

use std::collections::VecDeque;

use exacat_model::answer::Stat;
use exacat_model::{
    Answer, Body, Cursor, DirId, Entry, EntryId, Error, ErrorKind, Filter, Guid, Lfn, Location, Matcher,
    Name, Result, Tag, TagExpression,
};
use exacat_store::{Gate, Walk, WalkEnd};

use crate::Catalogue;
use crate::caller::{Caller, PASS, READ};
use crate::cursor::{self, CursorOf};
use crate::listing::{check_listable, entries, stat_of};
use crate::registry::Names;
use crate::resolve::Resolved;

/// Children asked for at first in one page; the next lists grow from there.
const LIST_ENTRIES_MIN: usize = 64;
/// Children asked for at once, at most.
const LIST_ENTRIES_MAX: usize = 2048;
/// Children held for all levels of the stack together; beyond, those of the upper levels are dropped and
/// listed again when the search comes back to them.
const BUFFERED_ENTRIES_MAX: usize = 16_384;

/// What a search is for.
enum Wanted<'a> {
    /// What a filter describes, its pattern made ready.
    Filter { filter: &'a Filter, matcher: Option<Matcher> },
    /// Members of the archive with this GUID.
    MembersOf(Guid),
}

/// A directory on the way from the start to where the search is.
struct Level {
    directory: DirId,
    /// The last child that was looked at.
    after: Option<Name>,
    /// Children that were listed and not yet looked at.
    buffer: VecDeque<Entry>,
    /// There may be children after those.
    more: bool,
    /// Bytes of the path before this directory's own name.
    path_before: usize,
    /// Its own tags, if the search asks for tags.
    tags: Vec<Tag>,
}

/// A search in one page.
struct Search<'a> {
    caller: &'a Caller,
    names: &'a Names,
    wanted: Wanted<'a>,
    depth_max: Option<u32>,
    /// Tags of the directories above the start, the root's first.
    tags_above: Vec<Vec<Tag>>,
    /// The start first.
    levels: Vec<Level>,
    /// The path of the last level, without a slash at its end; empty for the root.
    path: String,
    found: Vec<Stat>,
}

impl Catalogue {
    pub(crate) async fn find(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        filter: &Filter,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let matcher = filter.pattern.as_ref().map(|pattern| pattern.compile()).transpose()?;
        let position = cursor::read(CursorOf::Find, cursor)?;
        let names = self.registry.names();
        let wanted = Wanted::Filter { filter, matcher };
        let (found, next) = self.search(caller, &names, lfn, wanted, position, limit).await?;
        Ok(entries(&names, found, next.map(|position| cursor::write(CursorOf::Find, &position))))
    }

    /// Files below `under` that are registered as members of an archive, as a find gives them. Only those the
    /// caller may read: what a file is a part of is told with where it is.
    pub(crate) async fn members_of_archive(
        &self,
        caller: &Caller,
        archive: Guid,
        under: &Lfn,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let position = cursor::read(CursorOf::ArchiveMembers, cursor)?;
        let names = self.registry.names();
        let wanted = Wanted::MembersOf(archive);
        let (found, next) = self.search(caller, &names, under, wanted, position, limit).await?;
        Ok(entries(&names, found, next.map(|position| cursor::write(CursorOf::ArchiveMembers, &position))))
    }

    /// One page. `position` is the path from the start to the last entry looked at.
    async fn search(
        &self,
        caller: &Caller,
        names: &Names,
        lfn: &Lfn,
        wanted: Wanted<'_>,
        position: Option<Vec<Name>>,
        limit: usize,
    ) -> Result<(Vec<Stat>, Option<Vec<Name>>)> {
        let (start, directory) = self.resolve_directory(caller, lfn).await?;
        check_listable(caller, &start.entry, lfn)?;
        let mut search = Search {
            caller,
            names,
            depth_max: match &wanted {
                Wanted::Filter { filter, .. } => filter.depth_max,
                Wanted::MembersOf(_) => None,
            },
            wanted,
            tags_above: Vec::new(),
            levels: Vec::new(),
            path: if start.lfn.is_root() { String::new() } else { start.lfn.as_str().to_owned() },
            found: Vec::new(),
        };
        if search.depth_max == Some(0) {
            return Ok((Vec::new(), None));
        }
        if search.asks_for_tags() {
            search.tags_above = self.tags_of(start.gates.iter().map(|gate| gate.id)).await?;
        }
        let tags = if search.asks_for_tags() { start.entry.tags.clone() } else { Vec::new() };
        search.levels.push(Level::new(directory, 0, tags));
        if let Some(names) = position {
            // No entry below another has the root's name: a path with it would lead elsewhere.
            if names.contains(&Name::root()) {
                return Err(Error::invalid(
                    "the cursor is not one that this operation gave: start again without",
                ));
            }
            self.go_to(&mut search, &start, names).await?;
        }
        let next = self.run(&mut search, limit).await?;
        Ok((search.found, next))
    }

    /// The own tags of directories, in order; none for one that is gone.
    async fn tags_of(&self, directories: impl Iterator<Item = DirId>) -> Result<Vec<Vec<Tag>>> {
        let ids: Vec<EntryId> = directories.map(EntryId::Directory).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let located = self.store.locate(&ids).await?;
        Ok(located.into_iter().map(|found| found.map_or(Vec::new(), |found| found.entry.tags)).collect())
    }

    /// Puts a search where it was: as far down the path as that is there still and open to the caller.
    async fn go_to(&self, search: &mut Search<'_>, start: &Resolved, names: Vec<Name>) -> Result<()> {
        let above = start.lfn.depth();
        let whole = start.lfn.components().chain(names.iter().map(Name::as_str));
        let path = Lfn::from_names(whole);
        let walk = self.store.walk(std::slice::from_ref(&path)).await?.pop();
        let Some(Walk { gates, end }) = walk else {
            return Err(Error::new(ErrorKind::Internal, "the store gave no walk"));
        };
        // The directories after the start, in the order of the names; the last name is none of the gates.
        let mut below: Vec<Gate> = gates.iter().skip(above + 1).copied().collect();
        if let WalkEnd::Found(entry) = &end {
            below.extend(Gate::of(entry));
        }
        // Something else may stand at the start by now; then nothing below is what was looked at.
        if gates.get(above).is_some_and(|gate| Some(gate.id) != start.entry.directory()) {
            below.clear();
        }
        let open = |gate: &Gate| search.caller.has_gate(gate, READ | PASS);
        let mut depth = below.iter().take_while(|gate| open(gate)).count();
        if let Some(max) = search.depth_max {
            depth = depth.min((max as usize).saturating_sub(1));
        }
        below.truncate(depth);
        let mut tags = match search.asks_for_tags() {
            true => self.tags_of(below.iter().map(|gate| gate.id)).await?,
            false => Vec::new(),
        }
        .into_iter();
        let mut names = names.into_iter();
        for gate in below {
            let Some(name) = names.next() else { break };
            search.enter(gate.id, &name, tags.next().unwrap_or_default());
        }
        if let (Some(level), Some(name)) = (search.levels.last_mut(), names.next()) {
            level.after = Some(name);
        }
        Ok(())
    }

    /// Looks at entries until the page is full, the work of a page is done, or nothing is left. Gives the path from the
    /// start to the last entry looked at if something may be left.
    async fn run(&self, search: &mut Search<'_>, limit: usize) -> Result<Option<Vec<Name>>> {
        let mut looks_left = self.settings.find_scan_entries.max(1);
        let mut list_entries = LIST_ENTRIES_MIN.max(limit.min(LIST_ENTRIES_MAX));
        while let Some(level) = search.levels.last_mut() {
            if level.buffer.is_empty() && level.more {
                let count = list_entries.min(looks_left);
                list_entries = (list_entries * 2).min(LIST_ENTRIES_MAX);
                let page = self.store.list(level.directory, level.after.as_ref(), count).await?;
                // A directory that was purged meanwhile has nothing in it.
                level.more = page.as_ref().is_some_and(|page| page.more);
                level.buffer = page.map_or(VecDeque::new(), |page| page.items.into());
                search.bound_buffers();
                continue;
            }
            let Some(entry) = level.buffer.pop_front() else {
                let before = level.path_before;
                search.levels.pop();
                if !search.levels.is_empty() {
                    search.path.truncate(before);
                }
                continue;
            };
            looks_left -= 1;
            // Where to go on is asked for when the buffer is empty, or the page full.
            if level.buffer.is_empty() || looks_left == 0 || search.found.len() + 1 >= limit {
                level.after = Some(entry.at.name.clone());
            }
            search.look_at(entry);
            if (search.found.len() >= limit || looks_left == 0) && !search.is_done() {
                return Ok(Some(search.position()));
            }
        }
        Ok(None)
    }
}

impl Level {
    fn new(directory: DirId, path_before: usize, tags: Vec<Tag>) -> Self {
        Level { directory, after: None, buffer: VecDeque::new(), more: true, path_before, tags }
    }
}

impl Search<'_> {
    fn asks_for_tags(&self) -> bool {
        match &self.wanted {
            Wanted::Filter { filter, .. } => filter.tags.is_some(),
            Wanted::MembersOf(_) => false,
        }
    }

    /// Goes into a child of the last level.
    fn enter(&mut self, directory: DirId, name: &Name, tags: Vec<Tag>) {
        if let Some(level) = self.levels.last_mut() {
            level.after = Some(name.clone());
        }
        let before = self.path.len();
        self.path.push('/');
        self.path.push_str(name.as_str());
        self.levels.push(Level::new(directory, before, tags));
    }

    /// Takes the entry if it is wanted, and goes into it if it is a directory. One that the caller may not list is
    /// passed over.
    fn look_at(&mut self, mut entry: Entry) {
        let wanted = self.wants(&entry);
        let deeper = self.depth_max.is_none_or(|max| self.levels.len() < max as usize);
        let enter = entry.directory().filter(|_| deeper && self.caller.has_entry(&entry, READ | PASS)).map(
            |directory| {
                let tags = if !self.asks_for_tags() {
                    Vec::new()
                } else if wanted {
                    entry.tags.clone()
                } else {
                    std::mem::take(&mut entry.tags)
                };
                (directory, entry.at.name.clone(), tags)
            },
        );
        if wanted {
            let lfn = Lfn::below(&self.path, &entry.at.name);
            self.found.push(stat_of(self.names, self.caller, lfn, entry));
        }
        if let Some((directory, name, tags)) = enter {
            self.enter(directory, &name, tags);
        }
    }

    fn wants(&mut self, entry: &Entry) -> bool {
        match &self.wanted {
            Wanted::MembersOf(archive) => match &entry.body {
                Body::File(file) => {
                    file.replicas.iter().any(|replica| match &replica.location {
                        Location::Member { archive: other, .. } => other == archive,
                        _ => false,
                    }) && self.caller.has_entry(entry, READ)
                }
                _ => false,
            },
            Wanted::Filter { filter, matcher } => {
                if !filter.admits(entry) {
                    return false;
                }
                // Where the bytes are is for those who may read them; so is asking for files by it.
                if filter.se.is_some() && !self.caller.has_entry(entry, READ) {
                    return false;
                }
                let name = entry.at.name.as_str();
                let matches = match matcher {
                    None => true,
                    Some(Matcher::Glob(glob)) => glob.is_match(name),
                    Some(Matcher::Regex(regex)) => {
                        let before = self.path.len();
                        self.path.push('/');
                        self.path.push_str(name);
                        let matches = regex.is_match(&self.path);
                        self.path.truncate(before);
                        matches
                    }
                };
                matches && filter.tags.as_ref().is_none_or(|tags| self.tags_hold(tags, &entry.tags))
            }
        }
    }

    /// Does an expression hold for an entry in the last level? The nearest tag of a key counts.
    fn tags_hold(&self, expression: &TagExpression, own: &[Tag]) -> bool {
        expression.holds(&|key| {
            let inside = self.levels.iter().rev().map(|level| &level.tags);
            let above = self.tags_above.iter().rev();
            let mut nearest_first = std::iter::once(own).chain(inside.chain(above).map(|tags| &tags[..]));
            nearest_first.find_map(|tags| tags.iter().find(|tag| tag.key == *key)).map(|tag| &tag.value)
        })
    }

    /// Is certainly nothing left?
    fn is_done(&self) -> bool {
        self.levels.iter().all(|level| level.buffer.is_empty() && !level.more)
    }

    /// The path from the start to the last entry looked at.
    fn position(&self) -> Vec<Name> {
        // Each level but the last was left at the directory that is the next level.
        self.levels.iter().filter_map(|level| level.after.clone()).collect()
    }

    /// Drops what the upper levels hold, as far as needed.
    fn bound_buffers(&mut self) {
        let mut held: usize = self.levels.iter().map(|level| level.buffer.len()).sum();
        let last = self.levels.len().saturating_sub(1);
        for level in &mut self.levels[..last] {
            if held <= BUFFERED_ENTRIES_MAX {
                return;
            }
            held -= level.buffer.len();
            level.more = level.more || !level.buffer.is_empty();
            level.buffer = VecDeque::new();
        }
    }
}
