//! Copies a subtree as rows, while it changes. The changes that follow make the copy right.

use std::sync::Arc;

use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{DirId, Entry, EntryId, Lfn, Name, Result, Revision, TimeMs};
use exacat_store::{EntryLocation, ResolutionEnd};

use crate::batch::Batch;
use crate::event::{EventPlace, split};
use crate::maker::{Maker, RowsOf};
use crate::scope::Sight;

/// A directory being listed. A walk holds one for each level, with a page of it.
struct Level {
    id: DirId,
    path: Arc<str>,
    /// Name to continue after; none at the beginning.
    after: Option<Name>,
    more: bool,
    /// Directories of the page that were not entered yet.
    below: Vec<(DirId, Name)>,
}

/// A walk through a subtree.
pub(crate) struct Walk {
    levels: Vec<Level>,
    revision: Revision,
    time: TimeMs,
    index: u64,
}

impl Walk {
    /// Begins a walk, whose rows have this revision and time, and indices from `index` on. Adds the row
    /// of the entry itself.
    pub(crate) async fn begin(
        maker: &mut Maker,
        batch: &mut Batch,
        of: RowsOf,
        (revision, index, time): (Revision, u64, TimeMs),
    ) -> Result<Walk> {
        let mut walk = Walk { levels: Vec::new(), revision, time, index };
        let id = match of {
            RowsOf::Entry(id) => Some(id),
            RowsOf::Scope if maker.scope().is_all() => Some(EntryId::Directory(DirId::ROOT)),
            RowsOf::Scope => {
                let path = Lfn::parse(maker.scope().path())?;
                match maker.store.resolve(&[path]).await?.pop().map(|found| found.end) {
                    Some(ResolutionEnd::Found(entry)) => Some(entry.id()),
                    _ => None,
                }
            }
        };
        let Some(id) = id else { return Ok(walk) };
        let located = maker.store.locate(&[id]).await?.pop().flatten();
        // An entry that is elsewhere by now has later changes, which say so.
        let Some(located) = located else { return Ok(walk) };
        let EntryLocation::Tree(lfn) = located.place else { return Ok(walk) };
        if maker.scope().sight(lfn.as_str()) != Sight::Inside {
            return Ok(walk);
        }
        let (directory, name) = split(&lfn);
        walk.row(maker, batch, &located.entry, directory, name).await?;
        if let Some(id) = located.entry.directory() {
            walk.enter(id, if lfn.is_root() { "" } else { lfn.as_str() }.into());
        }
        Ok(walk)
    }

    /// Returns the index after the last row.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    fn enter(&mut self, id: DirId, path: Arc<str>) {
        self.levels.push(Level { id, path, after: None, more: true, below: Vec::new() });
    }

    /// Adds a page of rows. Returns false after the last one.
    pub(crate) async fn step(&mut self, maker: &mut Maker, batch: &mut Batch) -> Result<bool> {
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        if let Some((id, name)) = level.below.pop() {
            let path = format!("{}/{}", level.path, name.as_str()).into();
            self.enter(id, path);
            return Ok(true);
        }
        if !level.more {
            self.levels.pop();
            return Ok(true);
        }
        let page = maker.store.list(level.id, level.after.as_ref(), PAGE_ITEMS_MAX).await?;
        // A directory that was removed meanwhile has a later change.
        let Some(page) = page else {
            self.levels.pop();
            return Ok(true);
        };
        level.more = page.more && !page.items.is_empty();
        level.after = page.items.last().map(|entry| entry.at.name.clone());
        let path = Arc::clone(&level.path);
        for entry in &page.items {
            if let Some(id) = entry.directory() {
                level.below.push((id, entry.at.name.clone()));
            }
        }
        for entry in &page.items {
            self.row(maker, batch, entry, &path, entry.at.name.as_str()).await?;
        }
        Ok(true)
    }

    async fn row(
        &mut self,
        maker: &mut Maker,
        batch: &mut Batch,
        entry: &Entry,
        directory: &str,
        name: &str,
    ) -> Result<()> {
        if !maker.names.know(entry) {
            maker.names.load(&*maker.store).await?;
        }
        let place = EventPlace { directory, parent: entry.at.parent.0, name };
        let at = (self.revision, self.index, self.time);
        maker.writer.row(batch, &maker.names, at, (entry, place));
        self.index += 1;
        Ok(())
    }
}
