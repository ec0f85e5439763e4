//! Listings. The store reads a slice of a table and corrects it by the row cache, which is exact.
//! So the slice is of the same one state as the rest of the answer.

use std::sync::Arc;

use exacat_model::Result;
use exacat_model::limits::{PAGE_ITEMS_MAX, PAGE_MEMORY_MAX};

use crate::cluster::failed;
use crate::limits::ROUNDS_MAX;
use crate::reader::Reader;
use crate::reading::Reading;
use crate::rows::{Key, Row};
use crate::slice::{Slice, begin};
use crate::tables;
use crate::working::CacheView;

/// A row of a slice.
pub(crate) type Item<'a> = (&'a Key, &'a Arc<Row>);

/// Result of evaluating a slice: an answer, or a request for more rows.
pub(crate) enum Enough<T> {
    Yes(T),
    No,
}

/// Evaluates `ask` on the rows of a slice, with more and more rows until they are enough. `ask`
/// gets at least `limit` + 1 rows, or rows that fill a page by their bytes, or all; and whether
/// these are all.
pub(crate) async fn ask<T>(
    reader: &Reader,
    slice: &Slice,
    limit: usize,
    ask: impl Fn(&CacheView<'_>, &[Item<'_>], bool) -> Result<Enough<T>>,
) -> Result<T> {
    let follower = &*reader.follower;
    let limit = limit.min(PAGE_ITEMS_MAX);
    let (after, least, greatest) = slice.bounds();
    'again: for _ in 0..ROUNDS_MAX {
        let (epoch, is_whole) = follower.cache(|cache| {
            let is_whole = matches!(slice, Slice::Children(parent, _) if cache.is_listed(*parent));
            (cache.epoch(), is_whole)
        });
        let mut reading =
            if is_whole { Reading::in_turn(Vec::new()) } else { begin(follower, slice, limit).await? };
        let mut table: Vec<(Key, Arc<Row>)> = Vec::new();
        let (mut wanted, mut bytes) = (limit + 1, 0);
        loop {
            while table.len() < wanted
                && bytes < PAGE_MEMORY_MAX
                && let Some(rows) = reading.next(&follower.cluster).await?
            {
                bytes += rows.iter().map(|(_, row)| row.bytes()).sum::<usize>();
                table.extend(rows.into_iter().map(|(key, row)| (key, Arc::new(row))));
            }
            if !table.is_sorted_by(|one, next| one.0 < next.0) {
                // Another order than that of keys would hide rows.
                return Err(tables::corrupt("a slice that is not in order"));
            }
            let ended = reading.ended();
            // Cached rows beyond the last row read say nothing about rows in between that were not
            // read.
            let until = match table.last() {
                Some((last, _)) if !ended => last.clone(),
                _ => greatest.clone(),
            };
            let answer = reader.answer_slice(epoch, |view| {
                let items = merged(view, slice, &table, (after.as_ref(), &least, &until));
                let fill_a_page =
                    || items.iter().map(|(_, row)| row.bytes()).sum::<usize>() >= PAGE_MEMORY_MAX;
                if items.len() <= limit && !ended && !fill_a_page() {
                    return Ok(None);
                }
                match ask(view, &items, ended)? {
                    Enough::Yes(answer) => Ok(Some(answer)),
                    Enough::No if ended => Err(failed("be read", "an answer needs more rows than there are")),
                    Enough::No => Ok(None),
                }
            });
            match answer.await? {
                Err(_) => continue 'again,
                Ok(Some(answer)) => {
                    if let (Slice::Children(parent, None), true, false) = (slice, ended, is_whole) {
                        follower.listed(epoch, *parent, &table);
                    }
                    return Ok(answer);
                }
                // Rows that the cache corrected may have had many of the bytes.
                Ok(None) => (wanted, bytes) = (table.len() + limit.max(16) + 1, 0),
            }
        }
    }
    Err(failed("be read", "the requested rows change too fast, retry"))
}

/// Merges the rows of the table with the row cache, which corrects them.
fn merged<'a>(
    view: &CacheView<'a>,
    slice: &Slice,
    table: &'a [(Key, Arc<Row>)],
    (after, least, until): (Option<&Key>, &Key, &Key),
) -> Vec<Item<'a>> {
    let cache = view.cache;
    let gone = |key: &Key| match key {
        // After its members were removed together, all members of a collection are cached.
        Key::Member { .. } => matches!(cache.get(key), Some(None)),
        _ => false,
    };
    let wanted = |key: &Key| slice.has(key) && after.is_none_or(|after| key > after) && key <= until;
    let mut items = Vec::with_capacity(table.len());
    let mut read = table.iter().filter(|(key, _)| !gone(key)).peekable();
    for (key, row) in cache.range(least, until) {
        while let Some((before, row)) = read.next_if(|(before, _)| before < key) {
            if wanted(before) {
                items.push((before, row));
            }
        }
        read.next_if(|(same, _)| same == key);
        if let Some(row) = row.filter(|_| wanted(key)) {
            items.push((key, row));
        }
    }
    items.extend(read.filter(|(key, _)| wanted(key)).map(|(key, row)| (key, row)));
    items
}
