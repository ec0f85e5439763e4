//! Reads many partitions in one order of keys: in sequence where their keys follow one another,
//! merged where they do not.

use std::collections::VecDeque;

use exacat_model::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use scylla::response::PagingState;
use scylla::value::Row as CqlRow;

use crate::cluster::{Cluster, Pages, Slice as Page};
use crate::limits::{PARTS_AT_ONCE_MAX, SLICE_ROWS};
use crate::rows::{Key, Row};
use crate::tables::{Bound, Columns};

/// Minimum rows per page and partition in a merge.
const MERGED_ROWS_MIN: usize = 16;

/// One partition: its statement, and the parser of its rows.
pub(crate) struct PartitionRead {
    pub bound: Bound,
    pub read: ReadRow,
}

/// Parser of a row with its key.
type ReadRow = fn(Columns) -> Result<(Key, Row)>;

fn read_all(read: ReadRow, rows: Vec<CqlRow>) -> Result<Vec<(Key, Row)>> {
    rows.into_iter().map(|row| read(Columns::new(row))).collect()
}

/// Rows of many partitions, page by page, in the order of their keys.
pub(crate) enum Reading {
    InTurn(InTurn),
    Merging(Merging),
}

/// Partitions whose keys follow one another.
pub(crate) struct InTurn {
    parts: std::vec::IntoIter<PartitionRead>,
    /// Partition with unread pages.
    now: Option<(PartitionRead, PagingState)>,
    /// First pages of the partitions after it.
    ready: VecDeque<(PartitionRead, Page)>,
    /// Partitions begun at once: one, and more while they turn out to be empty.
    at_once: usize,
}

/// Partitions whose keys are mixed.
pub(crate) struct Merging {
    streams: Vec<Stream>,
}

/// One partition of a merge: its pages, and the rows that were read and not returned yet.
struct Stream {
    pages: Pages<Bound>,
    read: ReadRow,
    buffer: VecDeque<(Key, Row)>,
}

impl Stream {
    async fn fill(&mut self, cluster: &Cluster) -> Result<()> {
        if let Some(rows) = self.pages.next(cluster).await? {
            self.buffer.extend(read_all(self.read, rows)?);
        }
        Ok(())
    }
}

impl Reading {
    pub(crate) fn in_turn(parts: Vec<PartitionRead>) -> Self {
        let parts = parts.into_iter();
        Reading::InTurn(InTurn { parts, now: None, ready: VecDeque::new(), at_once: 1 })
    }

    /// Merges partitions, for about `wanted` rows in all.
    pub(crate) fn merging(parts: Vec<PartitionRead>, wanted: usize) -> Self {
        // Twice its share: partitions differ in size.
        let share = (2 * wanted / parts.len().max(1)).max(MERGED_ROWS_MIN);
        let rows = i32::try_from(share).unwrap_or(SLICE_ROWS).min(SLICE_ROWS);
        let stream = |PartitionRead { bound, read }| Stream {
            pages: Pages::of(bound, rows),
            read,
            buffer: VecDeque::new(),
        };
        Reading::Merging(Merging { streams: parts.into_iter().map(stream).collect() })
    }

    /// Returns the next rows; none at the end.
    pub(crate) async fn next(&mut self, cluster: &Cluster) -> Result<Option<Vec<(Key, Row)>>> {
        match self {
            Reading::InTurn(reading) => reading.next(cluster).await,
            Reading::Merging(reading) => reading.next(cluster).await,
        }
    }

    pub(crate) fn ended(&self) -> bool {
        match self {
            Reading::InTurn(reading) => {
                reading.now.is_none() && reading.ready.is_empty() && reading.parts.as_slice().is_empty()
            }
            Reading::Merging(reading) => {
                reading.streams.iter().all(|stream| stream.buffer.is_empty() && stream.pages.ended())
            }
        }
    }
}

impl InTurn {
    async fn next(&mut self, cluster: &Cluster) -> Result<Option<Vec<(Key, Row)>>> {
        if let Some((part, state)) = self.now.take() {
            let page = cluster.slice(&part.bound, Some(state)).await?;
            return self.rows(part, page).map(Some);
        }
        while self.ready.is_empty() && !self.parts.as_slice().is_empty() {
            let begun: Vec<PartitionRead> = self.parts.by_ref().take(self.at_once).collect();
            let pages = Cluster::all(begun.into_iter().map(|part| async move {
                let page = cluster.slice(&part.bound, None).await?;
                Ok((part, page))
            }));
            self.ready.extend(pages.await?);
            // An empty partition without further pages adds nothing.
            self.ready.retain(|(_, page)| !page.rows.is_empty() || page.next.is_some());
            self.at_once = if self.ready.is_empty() { (2 * self.at_once).min(PARTS_AT_ONCE_MAX) } else { 1 };
        }
        match self.ready.pop_front() {
            Some((part, page)) => self.rows(part, page).map(Some),
            None => Ok(None),
        }
    }

    fn rows(&mut self, part: PartitionRead, page: Page) -> Result<Vec<(Key, Row)>> {
        let rows = read_all(part.read, page.rows);
        self.now = page.next.map(|state| (part, state));
        rows
    }
}

impl Merging {
    async fn next(&mut self, cluster: &Cluster) -> Result<Option<Vec<(Key, Row)>>> {
        // The next key is certain once each stream has a row or has ended.
        loop {
            let mut work: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
            for stream in &mut self.streams {
                if stream.buffer.is_empty() && !stream.pages.ended() {
                    work.push(stream.fill(cluster).boxed());
                }
            }
            if work.is_empty() {
                break;
            }
            Cluster::all(work).await?;
        }
        let mut all: Vec<(Key, Row)> = Vec::new();
        loop {
            let heads = self.streams.iter().enumerate();
            let least = heads.filter_map(|(place, stream)| Some((&stream.buffer.front()?.0, place))).min();
            let Some((_, place)) = least else { break };
            let Some(stream) = self.streams.get_mut(place) else { break };
            all.extend(stream.buffer.pop_front().filter(|(key, _)| {
                // A name can be in two partitions for a moment. Either row will do: the row cache
                // corrects it.
                all.last().is_none_or(|(last, _)| last != key)
            }));
            if stream.buffer.is_empty() && !stream.pages.ended() {
                break;
            }
        }
        Ok((!all.is_empty()).then_some(all))
    }
}
