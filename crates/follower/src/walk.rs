//! Reads rows of the source page by page: a directory with everything below it, and the registry.

use exacat_model::{DirId, EntryId, Error, ErrorKind, RecordKind, Result};
use exacat_store_embedded::{EmbeddedStore, FilteredInside, FilteredRows, FilteredStep};

use crate::limits::DIRECTORIES_MAX;
use crate::rows::{ChildrenQuery, RowsAnswer, RowsQuery};
use crate::source::FilteredSource;

/// A walk. What is to be read is a stack: it has at most a page of directories for each level of the tree.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    directories: Vec<ChildrenQuery>,
    /// Requests for anything else, which come first.
    others: Vec<RowsQuery>,
    /// Rows so far.
    rows: u64,
}

fn unfit() -> Error {
    Error::new(ErrorKind::Unavailable, "the source answers with other rows than asked for")
}

impl Walk {
    /// Makes a walk through an entry with everything below it.
    pub(crate) fn below(id: EntryId) -> Self {
        Walk { others: vec![RowsQuery::Entry(id)], ..Walk::default() }
    }

    /// Makes a walk through the registry, then the whole directory.
    pub(crate) fn whole() -> Self {
        let mut walk = Walk::below(EntryId::Directory(DirId::ROOT));
        let kinds = RecordKind::ALL.into_iter().rev();
        walk.others.extend(kinds.map(|kind| RowsQuery::Records { kind, after: None }));
        walk
    }

    /// Reads the next rows, and returns them with the request that they answer; none at the end.
    pub(crate) async fn next(
        &mut self,
        source: &mut impl FilteredSource,
    ) -> Result<Option<(RowsQuery, Vec<FilteredRows>)>> {
        let query = match self.others.pop() {
            Some(query) => query,
            None if self.directories.is_empty() => return Ok(None),
            None => {
                let from = self.directories.len().saturating_sub(DIRECTORIES_MAX);
                let mut asked = self.directories.split_off(from);
                asked.reverse();
                RowsQuery::Children(asked)
            }
        };
        match read(source, &query).await {
            Ok(Page { rows, following }) => {
                self.rows += rows.iter().map(count).sum::<u64>();
                following.into_iter().for_each(|query| self.put(query));
                Ok(Some((query, rows)))
            }
            Err(error) => {
                self.put(query);
                Err(error)
            }
        }
    }

    /// Returns the number of rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    fn put(&mut self, query: RowsQuery) {
        match query {
            RowsQuery::Children(directories) => self.directories.extend(directories.into_iter().rev()),
            other => self.others.push(other),
        }
    }

    /// Adds what is to be read, too.
    pub(crate) fn enter(&mut self, inside: Vec<FilteredInside>) {
        for FilteredInside { id, only } in inside {
            match id {
                EntryId::Directory(directory) => {
                    self.directories.push(ChildrenQuery { directory, after: None, only });
                }
                EntryId::Object(collection) => {
                    self.others.push(RowsQuery::Members { collection, after: None });
                }
            }
        }
    }

    /// Makes the store equal to all rows. Calls `progress` with the rows so far.
    pub(crate) async fn copy(
        mut self,
        store: &EmbeddedStore,
        source: &mut impl FilteredSource,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        while let Some((_, rows)) = self.next(source).await? {
            if rows.is_empty() {
                continue;
            }
            self.enter(store.follow_filtered(FilteredStep::Rows(rows)).await?.inside);
            progress(self.rows);
        }
        Ok(())
    }
}

fn count(rows: &FilteredRows) -> u64 {
    match rows {
        FilteredRows::Entry(_) => 1,
        FilteredRows::Children { entries, .. } => entries.len() as u64,
        FilteredRows::Members { members, .. } => members.len() as u64,
        FilteredRows::Records { records, .. } => records.len() as u64,
    }
}

/// Rows of the source.
pub(crate) struct Page {
    pub rows: Vec<FilteredRows>,
    /// Requests for what follows, the first one last.
    following: Vec<RowsQuery>,
}

/// Asks for rows.
pub(crate) async fn read(source: &mut impl FilteredSource, query: &RowsQuery) -> Result<Page> {
    let answer = source.rows(query).await?;
    let mut following = Vec::new();
    let rows = match (query, answer) {
        (RowsQuery::Children(asked), RowsAnswer::Children(pages)) => {
            if pages.is_empty() || pages.len() > asked.len() {
                return Err(unfit());
            }
            let (answered, left) = asked.split_at(pages.len());
            following.push(RowsQuery::Children(left.to_vec()));
            let mut rows = Vec::with_capacity(pages.len());
            for (query, page) in answered.iter().zip(pages) {
                let ChildrenQuery { directory, after, only } = query.clone();
                let last = page.entries.last().filter(|_| page.more).map(|last| last.at.name.clone());
                let more = last.is_some();
                if more {
                    let next = ChildrenQuery { directory, after: last, only: only.clone() };
                    following.push(RowsQuery::Children(vec![next]));
                }
                rows.push(FilteredRows::Children { directory, after, only, entries: page.entries, more });
            }
            rows
        }
        (RowsQuery::Entry(_), RowsAnswer::Entry(entry)) => {
            entry.map(FilteredRows::Entry).into_iter().collect()
        }
        (&RowsQuery::Members { collection, after }, RowsAnswer::Members(members, more)) => {
            let last = members.last().copied().filter(|_| more);
            following.extend(last.map(|last| RowsQuery::Members { collection, after: Some(last) }));
            vec![FilteredRows::Members { collection, after, members, more: last.is_some() }]
        }
        (&RowsQuery::Records { kind, after }, RowsAnswer::Records(records, more)) => {
            let last = records.last().map(|record| record.key()).filter(|_| more);
            following.extend(last.map(|last| RowsQuery::Records { kind, after: Some(last) }));
            vec![FilteredRows::Records { kind, after, records, more: last.is_some() }]
        }
        _ => return Err(unfit()),
    };
    Ok(Page { rows, following })
}
