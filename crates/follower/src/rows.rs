//! Rows and changes for a filtered follower: requests in canonical bytes, and their answers from a store.

use std::time::Duration;

use exacat_model::{
    Change, DirId, Entry, EntryId, Error, ErrorKind, Guid, Name, Record, RecordKey, RecordKind, Result,
    Revision, TimeMs, canonical_enum, canonical_struct,
};
use exacat_store::{EntryLocation, Store};

use crate::limits::DIRECTORIES_MAX;

/// A request for a page of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildrenQuery {
    /// The directory.
    pub directory: DirId,
    /// Names after this one.
    pub after: Option<Name>,
    /// Only this name.
    pub only: Option<Name>,
}

canonical_struct!(ChildrenQuery { directory, after, only });

/// A request for rows.
#[derive(Clone, Debug, PartialEq)]
pub enum RowsQuery {
    /// An entry in the tree.
    Entry(EntryId),
    /// Pages of directories.
    Children(Vec<ChildrenQuery>),
    /// A page of the members of a collection.
    Members {
        /// The collection.
        collection: Guid,
        /// Members after this one.
        after: Option<Guid>,
    },
    /// A page of the records of a kind.
    Records {
        /// The kind.
        kind: RecordKind,
        /// Records after this one.
        after: Option<RecordKey>,
    },
}

canonical_enum!(RowsQuery {
    1 => Entry(id),
    2 => Children(queries),
    3 => Members { collection, after },
    4 => Records { kind, after },
});

/// A page of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RowsPage {
    /// The entries.
    pub entries: Vec<Entry>,
    /// True if more may follow.
    pub more: bool,
}

canonical_struct!(RowsPage { entries, more });

/// Answer to a request for rows. An entry that is gone has no rows.
#[derive(Clone, Debug, PartialEq)]
pub enum RowsAnswer {
    /// The entry.
    Entry(Option<Box<Entry>>),
    /// Pages of the first directories of the request, one at least.
    Children(Vec<RowsPage>),
    /// Members of a collection, and whether more may follow.
    Members(Vec<Guid>, bool),
    /// Records, and whether more may follow.
    Records(Vec<Record>, bool),
}

canonical_enum!(RowsAnswer {
    1 => Entry(entry),
    2 => Children(pages),
    3 => Members(members, more),
    4 => Records(records, more),
});

/// Answers a request for rows, at most `limit` of them. Every row is durable.
pub async fn rows_of(store: &dyn Store, query: &RowsQuery, limit: usize) -> Result<RowsAnswer> {
    match query {
        RowsQuery::Entry(id) => {
            let located = store.locate(&[*id]).await?.pop().flatten();
            let located = located.filter(|located| matches!(located.place, EntryLocation::Tree(_)));
            Ok(RowsAnswer::Entry(located.map(|located| Box::new(located.entry))))
        }
        RowsQuery::Children(queries) => children_of(store, queries, limit).await,
        RowsQuery::Members { collection, after } => {
            let page = store.members(*collection, *after, limit).await?;
            Ok(page.map_or(RowsAnswer::Members(Vec::new(), false), |page| {
                RowsAnswer::Members(page.items, page.more)
            }))
        }
        RowsQuery::Records { kind, after } => {
            let page = store.records(*kind, *after, limit).await?;
            let records = page.items.into_iter().map(|item| item.record).collect();
            Ok(RowsAnswer::Records(records, page.more))
        }
    }
}

async fn children_of(store: &dyn Store, queries: &[ChildrenQuery], limit: usize) -> Result<RowsAnswer> {
    if queries.is_empty() || queries.len() > DIRECTORIES_MAX {
        return Err(Error::limit(
            "the number of directories asked for at once",
            queries.len(),
            DIRECTORIES_MAX,
        ));
    }
    let (mut pages, mut left) = (Vec::new(), limit);
    for query in queries {
        let page = match &query.only {
            Some(only) => {
                let at = exacat_model::At { parent: query.directory, name: only.clone() };
                let entries = store.standing(&[at]).await?.into_iter().flatten().collect();
                RowsPage { entries, more: false }
            }
            None => match store.list(query.directory, query.after.as_ref(), left).await? {
                Some(page) => RowsPage { entries: page.items, more: page.more },
                None => RowsPage { entries: Vec::new(), more: false },
            },
        };
        // A page that is full of bytes has few items.
        let is_full = page.more;
        left = left.saturating_sub(page.entries.len());
        pages.push(page);
        if is_full || left == 0 {
            break;
        }
    }
    Ok(RowsAnswer::Children(pages))
}

/// Changes for a filtered follower.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangesHeard {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Position after them.
    pub up_to: Revision,
    /// The last durable change of the source.
    pub durable: Revision,
    /// Age of the last change, or zero if no other follows it.
    pub age: Duration,
    /// Hash of the identity of the source.
    pub source: u64,
}

/// Returns at most `limit` changes after a position, and waits for one at the end of the log. `NotFound` if
/// they are not kept any more. `now` is the time of the store's clock.
pub async fn changes_of(
    store: &dyn Store,
    (after, wait): (Revision, Duration),
    limit: usize,
    now: TimeMs,
) -> Result<ChangesHeard> {
    let mut page = store.changes(after, limit).await?;
    if page.changes.is_empty() && page.up_to <= after && !wait.is_zero() {
        if let Ok(changed) = tokio::time::timeout(wait, store.changed(after)).await {
            changed?;
        }
        page = store.changes(after, limit).await?;
    }
    let durable = store.revision().await?;
    if page.oldest.0 > after.0.saturating_add(1) {
        let oldest = page.oldest.0;
        let what = format!("changes after {} are not kept any more, the oldest is {oldest}", after.0);
        return Err(Error::new(ErrorKind::NotFound, what));
    }
    if after > durable {
        let what = format!("there is no change {} here, the last one is {}", after.0, durable.0);
        return Err(Error::new(ErrorKind::Conflict, what));
    }
    let (changes, up_to) = (page.changes, page.up_to);
    let late = changes.last().filter(|_| up_to < durable);
    let age = Duration::from_millis(late.map_or(0, |change| now.0.saturating_sub(change.time.0)));
    Ok(ChangesHeard { changes, up_to, durable, age, source: 0 })
}
