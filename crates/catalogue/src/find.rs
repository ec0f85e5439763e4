//! Find: reports everything below a directory, depth first, a bounded page at a time.
//!
//! Each directory comes before its contents, and its children follow in the byte order of their
//! names. A cursor is the path of the last entry that was examined. Its position in that order does
//! not depend on other entries. So a find continues after any pause, restart or change, and reports
//! each entry that does not move exactly once.
//!
//! Depth, [`BUFFERED_ENTRIES_MAX`] and [`BUFFERED_BYTES_MAX`] bound the memory; the entries examined
//! per page bound the time.

use std::collections::VecDeque;

use exacat_model::answer::Stat;
use exacat_model::limits::{PAGE_MEMORY_MAX, READ_MEMORY_MAX};
use exacat_model::{
    Answer, Body, Cursor, DirId, Entry, EntryId, Error, ErrorKind, Filter, Guid, Lfn, Location, Matcher,
    Measured, Name, Result, Tag, TagExpression,
};
use exacat_store::{Ancestor, Resolution, ResolutionEnd};

use crate::Catalogue;
use crate::caller::{Caller, PASS, READ};
use crate::cursor::{self, CursorOf};
use crate::listing::{check_listable, entries, stat_of};
use crate::registry::Names;
use crate::resolve::Resolved;

/// Children requested by the first list of a page; later lists double up to [`LIST_ENTRIES_MAX`].
const LIST_ENTRIES_MIN: usize = 64;
/// Most children requested at once.
const LIST_ENTRIES_MAX: usize = 2048;
/// Most children buffered for all levels together. Beyond that, the search drops those of the upper
/// levels and lists them again when it comes back.
const BUFFERED_ENTRIES_MAX: usize = 16_384;
/// Memory in bytes of the buffered children beyond which the same happens: two lists of the largest.
const BUFFERED_BYTES_MAX: usize = 2 * PAGE_MEMORY_MAX;

/// The entries that a search selects.
enum Wanted<'a> {
    /// Entries that match a filter, with its compiled pattern.
    Filter { filter: &'a Filter, matcher: Option<Matcher> },
    /// Members of the archive with this GUID.
    MembersOf(Guid),
}

/// A directory between the start and the search's position.
struct Level {
    directory: DirId,
    /// The last child that was examined.
    after: Option<Name>,
    /// Children that were listed and not yet examined.
    buffer: VecDeque<Entry>,
    /// Bytes of the buffered children when they were listed.
    buffer_bytes: usize,
    /// True if there may be more children after those.
    more: bool,
    /// Bytes of the path before this directory's own name.
    path_before: usize,
    /// Its own tags, if the filter uses tags.
    tags: Vec<Tag>,
}

/// A search for one page.
struct Search<'a> {
    caller: &'a Caller,
    names: &'a Names,
    wanted: Wanted<'a>,
    depth_max: Option<u32>,
    /// Tags of the directories above the start, the root's first.
    tags_above: Vec<Vec<Tag>>,
    /// Levels from the start downwards.
    levels: Vec<Level>,
    /// Path of the last level, without a trailing slash; empty for the root.
    path: String,
    found: Vec<Stat>,
    /// Bytes of the entries found.
    found_bytes: usize,
    /// Bytes of the tags of all levels.
    tag_bytes: usize,
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
        self.search(caller, lfn, Wanted::Filter { filter, matcher }, cursor, limit).await
    }

    /// Finds the files below `under` that are registered as members of an archive. Reports only
    /// files that the caller may read: membership reveals where the bytes are.
    pub(crate) async fn members_of_archive(
        &self,
        caller: &Caller,
        archive: Guid,
        under: &Lfn,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        self.search(caller, under, Wanted::MembersOf(archive), cursor, limit).await
    }

    /// Searches one page. The cursor has the path from the start to the last examined entry.
    async fn search(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        wanted: Wanted<'_>,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let of = match &wanted {
            Wanted::Filter { .. } => CursorOf::Find,
            Wanted::MembersOf(_) => CursorOf::ArchiveMembers,
        };
        let position: Option<Vec<Name>> = cursor::read(of, cursor)?;
        let names = self.registry.names();
        let (start, directory) = self.resolve_directory(caller, lfn).await?;
        check_listable(caller, &start.entry, lfn)?;
        let mut search = Search {
            caller,
            names: &names,
            depth_max: match &wanted {
                Wanted::Filter { filter, .. } => filter.depth_max,
                Wanted::MembersOf(_) => None,
            },
            wanted,
            tags_above: Vec::new(),
            levels: Vec::new(),
            path: if start.lfn.is_root() { String::new() } else { start.lfn.as_str().to_owned() },
            found: Vec::new(),
            found_bytes: 0,
            tag_bytes: 0,
        };
        if search.depth_max == Some(0) {
            return Ok(entries(&names, Vec::new(), None));
        }
        if search.asks_for_tags() {
            search.tags_above = self.tags_of(start.ancestors.iter().map(|ancestor| ancestor.id)).await?;
        }
        let tags = if search.asks_for_tags() { start.entry.tags.clone() } else { Vec::new() };
        search.tag_bytes = tags.iter().map(Measured::bytes).sum();
        search.levels.push(Level::new(directory, 0, tags));
        if let Some(path) = position {
            // No entry below another has the root's name: a path with it would lead elsewhere.
            if path.contains(&Name::root()) {
                return Err(Error::invalid(
                    "the cursor is not one that this operation gave: start again without",
                ));
            }
            self.go_to(&mut search, &start, path).await?;
        }
        let next = self.run(&mut search, limit).await?;
        Ok(entries(&names, search.found, next.map(|position| cursor::write(of, &position))))
    }

    /// Returns the own tags of directories, in order; empty for one that is gone.
    async fn tags_of(&self, directories: impl Iterator<Item = DirId>) -> Result<Vec<Vec<Tag>>> {
        let ids: Vec<EntryId> = directories.map(EntryId::Directory).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let located = self.store.locate(&ids).await?;
        Ok(located.into_iter().map(|found| found.map_or(Vec::new(), |found| found.entry.tags)).collect())
    }

    /// Restores a search's position, as far down the path as it still exists and the caller may
    /// list it.
    async fn go_to(&self, search: &mut Search<'_>, start: &Resolved, names: Vec<Name>) -> Result<()> {
        let above = start.lfn.depth();
        let whole = start.lfn.components().chain(names.iter().map(Name::as_str));
        let path = Lfn::from_names(whole);
        let resolution = self.store.resolve(std::slice::from_ref(&path)).await?.pop();
        let Some(Resolution { ancestors, end }) = resolution else {
            return Err(Error::new(ErrorKind::Internal, "the store gave no path resolution"));
        };
        // The directories after the start, in the order of the names. The ancestors do not
        // include the last name.
        let mut below: Vec<Ancestor> = ancestors.iter().skip(above + 1).copied().collect();
        if let ResolutionEnd::Found(entry) = &end {
            below.extend(Ancestor::of(entry));
        }
        // Another directory may stand at the start by now; then no entry below was examined.
        if ancestors.get(above).is_some_and(|ancestor| Some(ancestor.id) != start.entry.directory()) {
            below.clear();
        }
        let open = |ancestor: &Ancestor| search.caller.is_granted_by(ancestor, READ | PASS);
        let mut depth = below.iter().take_while(|ancestor| open(ancestor)).count();
        if let Some(max) = search.depth_max {
            depth = depth.min((max as usize).saturating_sub(1));
        }
        below.truncate(depth);
        let mut tags = match search.asks_for_tags() {
            true => self.tags_of(below.iter().map(|ancestor| ancestor.id)).await?,
            false => Vec::new(),
        }
        .into_iter();
        let mut names = names.into_iter();
        for ancestor in below {
            let Some(name) = names.next() else { break };
            search.enter(ancestor.id, &name, tags.next().unwrap_or_default());
        }
        if let (Some(level), Some(name)) = (search.levels.last_mut(), names.next()) {
            level.after = Some(name);
        }
        Ok(())
    }

    /// Examines entries until the page is full, its work limit is reached, or none is left. Returns
    /// the path from the start to the last examined entry if more entries may follow.
    async fn run(&self, search: &mut Search<'_>, limit: usize) -> Result<Option<Vec<Name>>> {
        let mut reads_left = self.settings.find_scan_entries.max(1);
        let mut list_entries = LIST_ENTRIES_MIN.max(limit.min(LIST_ENTRIES_MAX));
        while let Some(level) = search.levels.last_mut() {
            if level.buffer.is_empty() && level.more {
                // Entries beyond the page would be read again for the next one.
                let room = limit.saturating_sub(search.found.len()).max(LIST_ENTRIES_MIN);
                let count = list_entries.min(reads_left).min(room);
                list_entries = (list_entries * 2).min(LIST_ENTRIES_MAX);
                let page = self.store.list(level.directory, level.after.as_ref(), count).await?;
                // A directory that was purged meanwhile is empty.
                level.more = page.as_ref().is_some_and(|page| page.more);
                level.buffer = page.map_or(VecDeque::new(), |page| page.items.into());
                level.buffer_bytes = level.buffer.iter().map(Measured::bytes).sum();
                // Growing step by step would copy each entry once more.
                search.found.reserve(level.buffer.len());
                search.bound_buffers();
                continue;
            }
            let Some(entry) = level.buffer.pop_front() else {
                let before = level.path_before;
                search.tag_bytes -= level.tags.iter().map(Measured::bytes).sum::<usize>();
                search.levels.pop();
                if !search.levels.is_empty() {
                    search.path.truncate(before);
                }
                continue;
            };
            reads_left -= 1;
            // The position is needed only when the buffer is empty or the page is full.
            let near = search.found_bytes + entry.bytes() >= PAGE_MEMORY_MAX / 2;
            if level.buffer.is_empty() || reads_left == 0 || search.found.len() + 1 >= limit || near {
                level.after = Some(entry.at.name.clone());
            }
            search.examine(entry);
            if search.tag_bytes > READ_MEMORY_MAX {
                return Err(Error::limit(
                    "the bytes of the tags of nested directories",
                    search.tag_bytes,
                    READ_MEMORY_MAX,
                ));
            }
            let full =
                search.found.len() >= limit || search.found_bytes >= PAGE_MEMORY_MAX || reads_left == 0;
            if full && !search.is_done() {
                return Ok(Some(search.position()));
            }
        }
        Ok(None)
    }
}

impl Level {
    fn new(directory: DirId, path_before: usize, tags: Vec<Tag>) -> Self {
        let buffer = VecDeque::new();
        Level { directory, after: None, buffer, buffer_bytes: 0, more: true, path_before, tags }
    }
}

impl Search<'_> {
    fn asks_for_tags(&self) -> bool {
        match &self.wanted {
            Wanted::Filter { filter, .. } => filter.tags.is_some(),
            Wanted::MembersOf(_) => false,
        }
    }

    /// Descends into a child of the last level.
    fn enter(&mut self, directory: DirId, name: &Name, tags: Vec<Tag>) {
        if let Some(level) = self.levels.last_mut() {
            level.after = Some(name.clone());
        }
        let before = self.path.len();
        self.path.push('/');
        self.path.push_str(name.as_str());
        self.tag_bytes += tags.iter().map(Measured::bytes).sum::<usize>();
        self.levels.push(Level::new(directory, before, tags));
    }

    /// Reports the entry if it matches, and descends if it is a directory. Skips the contents of a
    /// directory that the caller may not list.
    fn examine(&mut self, mut entry: Entry) {
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
            let stat = stat_of(self.names, self.caller, lfn, entry);
            self.found_bytes += stat.bytes();
            self.found.push(stat);
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
                // Only readers of a file may learn where its bytes are, so only they may filter by
                // it.
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

    /// True if an expression holds for an entry in the last level. The nearest tag of a key counts.
    fn tags_hold(&self, expression: &TagExpression, own: &[Tag]) -> bool {
        expression.holds(&|key| {
            let inside = self.levels.iter().rev().map(|level| &level.tags);
            let above = self.tags_above.iter().rev();
            let mut nearest_first = std::iter::once(own).chain(inside.chain(above).map(|tags| &tags[..]));
            nearest_first.find_map(|tags| tags.iter().find(|tag| tag.key == *key)).map(|tag| &tag.value)
        })
    }

    /// True if nothing is left for certain.
    fn is_done(&self) -> bool {
        self.levels.iter().all(|level| level.buffer.is_empty() && !level.more)
    }

    /// Returns the path from the start to the last examined entry.
    fn position(&self) -> Vec<Name> {
        // Each level but the last stopped at the directory that is the next level.
        self.levels.iter().filter_map(|level| level.after.clone()).collect()
    }

    /// Drops the buffers of upper levels until the rest fits.
    fn bound_buffers(&mut self) {
        let mut held: usize = self.levels.iter().map(|level| level.buffer.len()).sum();
        let mut bytes: usize = self.levels.iter().map(|level| level.buffer_bytes).sum();
        let last = self.levels.len().saturating_sub(1);
        for level in &mut self.levels[..last] {
            if held <= BUFFERED_ENTRIES_MAX && bytes <= BUFFERED_BYTES_MAX {
                return;
            }
            held -= level.buffer.len();
            bytes -= std::mem::take(&mut level.buffer_bytes);
            level.more = level.more || !level.buffer.is_empty();
            level.buffer = VecDeque::new();
        }
    }
}
