//! Reads all tables in ranges of the ring, some at once, no faster than the operator allows.

use std::time::{Duration, Instant};

use exacat_model::{At, Audit, DirId, EntryId, Result};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use scylla::value::CqlValue;
use tokio::sync::mpsc;

use super::gathered::{Gathered, Misplaced, pass_on};
use crate::cluster::Pages;
use crate::follower::Follower;
use crate::limits::{AUDIT_RANGE_ROWS, AUDIT_RANGES_AT_ONCE, AUDIT_RANGES_MAX, SLICE_ROWS};
use crate::rows::{AfterImage, Key, Row};
use crate::statement::{Text, cql};
use crate::tables::{self, Bound, Columns};

/// A row that was read, and the bucket of an entry.
type ScannedRow = (Key, Row, Option<u32>);

/// Statement for a range of a table, and parser of its rows with their keys.
type Whole = (Text, fn(Columns) -> Result<ScannedRow>);

macro_rules! plain {
    ($read:path) => {
        |row| $read(row).map(|(key, row)| (key, row, None))
    };
}

/// Tables that are compared. Outcomes of requests follow from nothing that is stored, and layouts
/// are checked with the entries.
static TABLES: [Whole; 13] = [
    (
        cql!(
            "SELECT parent, bucket, name, entry FROM children WHERE token(parent, bucket) > ? AND token(parent, bucket) <= ?"
        ),
        |mut row| {
            let (parent, bucket, name) = (DirId(row.big()?), row.int()?, row.text()?);
            let at = At { parent, name: tables::name_of(&name)? };
            let (_, row) = tables::entry_row_of(row)?;
            Ok((Key::Entry(at), row, Some(bucket)))
        },
    ),
    (
        cql!(
            "SELECT bucket, trash, lfn, removed_by, removed, entry FROM trash WHERE token(bucket) > ? AND token(bucket) <= ?"
        ),
        plain!(tables::trash_of),
    ),
    (
        cql!(
            "SELECT shard, guid, reservation FROM reservations WHERE token(shard) > ? AND token(shard) <= ?"
        ),
        plain!(tables::reservation_of),
    ),
    (
        cql!("SELECT kind, key, revision, record FROM records WHERE token(kind) > ? AND token(kind) <= ?"),
        plain!(tables::record_of),
    ),
    (
        cql!("SELECT collection, guid FROM members WHERE token(collection) > ? AND token(collection) <= ?"),
        plain!(tables::member_of),
    ),
    (
        cql!(
            "SELECT se, bucket, revision, position, guid, size, pfn, queued FROM deletions WHERE token(se, bucket) > ? AND token(se, bucket) <= ?"
        ),
        plain!(tables::deletion_of),
    ),
    (
        cql!("SELECT se, shard, guid FROM on_se WHERE token(se, shard) > ? AND token(se, shard) <= ?"),
        plain!(tables::on_se_of),
    ),
    (
        cql!("SELECT kind, day, expires, id FROM due WHERE token(kind, day) > ? AND token(kind, day) <= ?"),
        plain!(tables::due_of),
    ),
    (
        cql!("SELECT directory, parent, name FROM directories WHERE token(run) > ? AND token(run) <= ?"),
        |mut row| {
            let id = EntryId::Directory(DirId(row.big()?));
            tables::place_row_of(id, row).map(|(key, row)| (key, row, None))
        },
    ),
    (
        cql!("SELECT guid, parent, name FROM objects WHERE token(shard) > ? AND token(shard) <= ?"),
        plain!(tables::object_row_of),
    ),
    (
        cql!("SELECT se, copy, deletions FROM copies WHERE token(se, copy) > ? AND token(se, copy) <= ?"),
        plain!(tables::copies_of),
    ),
    (
        cql!("SELECT kind, id, counted FROM accounts WHERE token(kind, run) > ? AND token(kind, run) <= ?"),
        plain!(tables::account_row_of),
    ),
    (
        cql!(
            "SELECT id, next_directory, time, entries_all, requests, trash, reservations, deletions FROM totals WHERE token(id) > ? AND token(id) <= ?"
        ),
        |row| Ok((Key::Totals, tables::row_of(&Key::Totals, row)?, None)),
    ),
];

/// Splits the ring into `ranges` ranges: each begins after the one before.
fn ends(ranges: u64) -> impl Iterator<Item = (i64, i64)> {
    let ranges = i128::from(ranges.max(1));
    let end = move |number: i128| (i128::from(i64::MIN) + (number << 64) / ranges) as i64;
    (0..ranges)
        .map(move |number| (end(number), if number + 1 == ranges { i64::MAX } else { end(number + 1) }))
}

/// Limits reading to a number of rows a second.
struct Pace {
    each: Duration,
    /// Time at which the rows read so far would be due at that rate.
    due: Mutex<Instant>,
}

impl Pace {
    fn new(rows_per_second: u64) -> Self {
        let each = if rows_per_second == 0 { 0.0 } else { 1.0 / rows_per_second as f64 };
        Pace { each: Duration::from_secs_f64(each), due: Mutex::new(Instant::now()) }
    }

    async fn read(&self, rows: usize) {
        let due = {
            let mut due = self.due.lock();
            // Unused time is not saved up: an idle second must not allow a burst.
            *due = (*due).max(Instant::now())
                + self.each.saturating_mul(u32::try_from(rows).unwrap_or(u32::MAX));
            *due
        };
        tokio::time::sleep_until(due.into()).await;
    }
}

/// Reads everything and passes it on. Returns the entries that may be misplaced.
pub(super) async fn scan(
    follower: &Follower,
    rows: u64,
    to: &mpsc::Sender<Gathered>,
) -> Result<Vec<Misplaced>> {
    let settings = &follower.settings;
    let ranges = (rows / AUDIT_RANGE_ROWS.max(1)).clamp(AUDIT_RANGES_AT_ONCE as u64, AUDIT_RANGES_MAX);
    let reading = &Reading {
        follower,
        pace: Pace::new(settings.audit_rows_per_second),
        to,
        suspects: Mutex::default(),
    };
    let mut left = TABLES.iter().flat_map(|table| ends(ranges).map(move |range| (table, range)));
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < AUDIT_RANGES_AT_ONCE
            && let Some((table, range)) = left.next()
        {
            under_way.push(reading.range(table, range).boxed());
        }
        match under_way.next().await {
            Some(done) => done?,
            None => break,
        }
    }
    Ok(std::mem::take(&mut *reading.suspects.lock()))
}

/// State shared by the reads of all ranges.
struct Reading<'a> {
    follower: &'a Follower,
    pace: Pace,
    to: &'a mpsc::Sender<Gathered>,
    /// At most as many as an audit reports.
    suspects: Mutex<Vec<Misplaced>>,
}

impl Reading<'_> {
    async fn range(&self, (text, read): &Whole, (after, until): (i64, i64)) -> Result<()> {
        let bound = Bound { text: *text, values: vec![CqlValue::BigInt(after), CqlValue::BigInt(until)] };
        let mut pages = Pages::of(bound, SLICE_ROWS);
        while let Some(found) = pages.next(&self.follower.cluster).await? {
            let rows = found.len();
            let mut after_images = Vec::with_capacity(rows);
            for row in found {
                let (key, row, bucket) = read(Columns::new(row))?;
                if let (Key::Entry(at), Some(bucket)) = (&key, bucket) {
                    self.suspect(Misplaced { parent: at.parent, name: at.name.clone(), bucket });
                }
                after_images.push(AfterImage { key, row: Some(row) });
            }
            self.follower.cluster.metrics.audited(rows);
            if rows > 0 {
                pass_on(self.to, Gathered::Rows(after_images)).await?;
            }
            self.pace.read(rows).await;
        }
        Ok(())
    }

    /// Notes an entry that no read would find, as far as this server knows. The level of a
    /// directory may become visible later than the entries written because of it.
    fn suspect(&self, one: Misplaced) {
        if one.is_so(self.follower.cache(|cache| cache.level(one.parent))) {
            let mut suspects = self.suspects.lock();
            if suspects.len() < Audit::FINDINGS_MAX {
                suspects.push(one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use exacat_model::Name;

    use super::*;
    use crate::layout::{self, LEVEL_MAX};

    #[test]
    fn ranges_are_the_whole_ring() {
        for ranges in [0, 1, 2, 3, 7, 1000, AUDIT_RANGES_MAX] {
            let list: Vec<_> = ends(ranges).collect();
            assert_eq!(list.len() as u64, ranges.max(1));
            assert_eq!((list[0].0, list[list.len() - 1].1), (i64::MIN, i64::MAX));
            assert!(list.iter().all(|(after, until)| after < until));
            assert!(list.windows(2).all(|two| two[0].1 == two[1].0));
        }
    }

    #[test]
    fn names_stand_where_they_are_looked_for() {
        let name = Name::parse("run1.root").unwrap();
        for bucket in layout::all_buckets(LEVEL_MAX) {
            let one = Misplaced { parent: DirId(1), name: name.clone(), bucket };
            for level in 0..=LEVEL_MAX {
                let looked_for = layout::buckets_of(level, &name).any(|one| one == bucket);
                assert_eq!(one.is_so(level), !looked_for);
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_read_faster_than_is_allowed() {
        let pace = Pace::new(1000);
        let began = Instant::now();
        pace.read(100).await;
        pace.read(100).await;
        assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
        // Without a rate nothing is ever due later.
        let free = Pace::new(0);
        free.read(1_000_000).await;
        assert!(*free.due.lock() <= Instant::now());
    }
}
