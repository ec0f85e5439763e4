//! Walks through rows of the source, and puts them into the store of a filtered follower.

use exacat_model::{DirId, EntryId, Error, ErrorKind, Guid, RecordKind, Result, Revision};
use exacat_store_embedded::{EmbeddedStore, FilteredInside, FilteredReached, FilteredRows, FilteredStep};

use crate::limits::DIRECTORIES_MAX;
use crate::rows::{ChildrenQuery, RowsAnswer, RowsQuery};
use crate::source::FilteredSource;

/// A walk. Directories to be read are a stack: it has at most a page of them for each level of the tree.
pub(crate) struct Walk<'w, S> {
    store: &'w EmbeddedStore,
    source: &'w mut S,
    directories: Vec<ChildrenQuery>,
    collections: Vec<Guid>,
    /// Rows so far.
    rows: u64,
}

fn unfit() -> Error {
    Error::new(ErrorKind::Unavailable, "the source answers with other rows than asked for")
}

impl<'w, S: FilteredSource> Walk<'w, S> {
    pub(crate) fn new(store: &'w EmbeddedStore, source: &'w mut S) -> Self {
        Walk { store, source, directories: Vec::new(), collections: Vec::new(), rows: 0 }
    }

    /// Walks through an entry with everything below it.
    pub(crate) async fn below(mut self, id: EntryId, progress: &mut (dyn FnMut(u64) + Send)) -> Result<()> {
        let RowsAnswer::Entry(entry) = self.source.rows(&RowsQuery::Entry(id)).await? else {
            return Err(unfit());
        };
        if let Some(entry) = entry {
            self.put(vec![FilteredRows::Entry(entry)]).await?;
        }
        loop {
            while let Some(collection) = self.collections.pop() {
                self.members(collection).await?;
            }
            if self.directories.is_empty() {
                return Ok(());
            }
            self.children().await?;
            progress(self.rows);
        }
    }

    /// Walks through the whole directory, and the registry.
    pub(crate) async fn whole(
        mut self,
        from: Revision,
        identity: u64,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<FilteredReached> {
        for kind in RecordKind::ALL {
            self.records(kind).await?;
        }
        let store = self.store;
        self.below(EntryId::Directory(DirId::ROOT), progress).await?;
        store.follow_filtered(FilteredStep::Walked { whole: Some((from, identity)) }).await
    }

    async fn put(&mut self, rows: Vec<FilteredRows>) -> Result<()> {
        let reached = self.store.follow_filtered(FilteredStep::Rows(rows)).await?;
        for FilteredInside { id, only } in reached.inside {
            match id {
                EntryId::Directory(directory) => {
                    self.directories.push(ChildrenQuery { directory, after: None, only });
                }
                EntryId::Object(collection) => self.collections.push(collection),
            }
        }
        Ok(())
    }

    /// Reads pages of the last directories of the stack.
    async fn children(&mut self) -> Result<()> {
        let from = self.directories.len().saturating_sub(DIRECTORIES_MAX);
        let mut asked = self.directories.split_off(from);
        asked.reverse();
        let query = RowsQuery::Children(asked);
        let answer = self.source.rows(&query).await?;
        let (RowsAnswer::Children(pages), RowsQuery::Children(mut asked)) = (answer, query) else {
            return Err(unfit());
        };
        if pages.is_empty() || pages.len() > asked.len() {
            return Err(unfit());
        }
        let mut left = asked.split_off(pages.len());
        left.reverse();
        self.directories.append(&mut left);
        let mut rows = Vec::with_capacity(pages.len());
        for (query, page) in asked.into_iter().zip(pages) {
            let ChildrenQuery { directory, after, only } = query;
            if let (true, Some(last)) = (page.more, page.entries.last()) {
                let (after, only) = (Some(last.at.name.clone()), only.clone());
                self.directories.push(ChildrenQuery { directory, after, only });
            }
            self.rows += page.entries.len() as u64;
            let (entries, more) = (page.entries, page.more);
            let more = more && !entries.is_empty();
            rows.push(FilteredRows::Children { directory, after, only, entries, more });
        }
        self.put(rows).await
    }

    async fn members(&mut self, collection: Guid) -> Result<()> {
        let mut after = None;
        loop {
            let answer = self.source.rows(&RowsQuery::Members { collection, after }).await?;
            let RowsAnswer::Members(members, more) = answer else { return Err(unfit()) };
            let more = more && !members.is_empty();
            let next = members.last().copied();
            self.put(vec![FilteredRows::Members { collection, after, members, more }]).await?;
            if !more {
                return Ok(());
            }
            after = next;
        }
    }

    async fn records(&mut self, kind: RecordKind) -> Result<()> {
        let mut after = None;
        loop {
            let answer = self.source.rows(&RowsQuery::Records { kind, after }).await?;
            let RowsAnswer::Records(records, more) = answer else { return Err(unfit()) };
            let more = more && !records.is_empty();
            let next = records.last().map(|record| record.key());
            self.put(vec![FilteredRows::Records { kind, after, records, more }]).await?;
            if !more {
                return Ok(());
            }
            after = next;
        }
    }
}
