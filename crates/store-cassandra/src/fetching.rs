//! Fetches needed rows: those of one partition in one read, where the table allows that.

use std::collections::BTreeMap;

use exacat_model::{At, DirId, EntryId, Error, ErrorKind, Guid, Result};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::cluster::{Cluster, Slice};
use crate::layout::{bucket, shard_of_object};
use crate::limits::KEYS_PER_READ;
use crate::row_cache::RowCache;
use crate::rows::{Key, Row};
use crate::tables::{self, Bound, Columns};

/// Rows as the tables have them; none where there is none.
pub(crate) type FetchedRows = Vec<(Key, Option<Row>)>;

/// One read.
pub(crate) enum Read {
    /// One row: the first statement that returns one has it.
    One(Key, Vec<Bound>),
    /// Rows of one partition; keys without a returned row do not exist.
    Many(Vec<Key>, Bound, fn(Columns) -> Result<(Key, Row)>),
}

/// Plans the reads for these keys.
pub(crate) fn reads(cache: &RowCache, keys: Vec<Key>) -> Result<Vec<Read>> {
    let mut reads = Vec::new();
    let mut entries: BTreeMap<DirId, Vec<At>> = BTreeMap::new();
    let mut objects: BTreeMap<u64, Vec<Guid>> = BTreeMap::new();
    for key in keys {
        match key {
            Key::Entry(at) if cache.level(at.parent) == 0 => entries.entry(at.parent).or_default().push(at),
            Key::Place(EntryId::Object(guid)) => {
                objects.entry(shard_of_object(guid)).or_default().push(guid);
            }
            key => reads.push(one(cache, key)?),
        }
    }
    for (parent, all) in entries {
        for some in all.chunks(KEYS_PER_READ) {
            let keys: Vec<Key> = some.iter().cloned().map(Key::Entry).collect();
            reads.push(match (<[Key; 1]>::try_from(keys), some.first()) {
                (Ok([key]), _) => one(cache, key)?,
                (Err(keys), first) => {
                    let bucket = first.map_or(0, |at| bucket(0, &at.name));
                    let bound = tables::select_entries(parent, bucket, some.iter().map(|at| &at.name));
                    Read::Many(keys, bound, tables::entry_row_of)
                }
            });
        }
    }
    for (shard, all) in objects {
        for some in all.chunks(KEYS_PER_READ) {
            let key = |guid: &Guid| Key::Place(EntryId::Object(*guid));
            reads.push(match some {
                [guid] => one(cache, key(guid))?,
                some => {
                    let bound = tables::select_objects(shard, some.iter().copied());
                    Read::Many(some.iter().map(key).collect(), bound, tables::object_row_of)
                }
            });
        }
    }
    Ok(reads)
}

fn one(cache: &RowCache, key: Key) -> Result<Read> {
    let level = match &key {
        Key::Entry(at) => cache.level(at.parent),
        _ => 0,
    };
    match tables::select(&key, level) {
        Some(bounds) => Ok(Read::One(key, bounds)),
        None => Err(Error::new(ErrorKind::Corrupt, format!("{key:?} is never read alone"))),
    }
}

impl Read {
    pub(crate) async fn run(self, cluster: &Cluster) -> Result<FetchedRows> {
        match self {
            Read::One(key, bounds) => {
                let mut work: Vec<BoxFuture<'_, Result<Slice>>> = Vec::with_capacity(bounds.len());
                for bound in &bounds {
                    work.push(cluster.slice(bound, None).boxed());
                }
                let found = Cluster::all(work).await?;
                let row = found.into_iter().find_map(|slice| slice.rows.into_iter().next());
                let row = row.map(|row| tables::row_of(&key, Columns::new(row))).transpose()?;
                Ok(vec![(key, row)])
            }
            Read::Many(keys, bound, read) => {
                let mut all: BTreeMap<Key, Option<Row>> = keys.into_iter().map(|key| (key, None)).collect();
                for row in cluster.read(&bound).await? {
                    let (key, row) = read(Columns::new(row))?;
                    all.insert(key, Some(row));
                }
                Ok(all.into_iter().collect())
            }
        }
    }
}
