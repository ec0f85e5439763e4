//! Reads a packed chunk back before it is written: a compaction removes the runs that it was made of.

use std::ops::Range;
use std::slice::from_ref;

use exacat_disk::InMemory;
use exacat_model::Error;

use super::PAGE_ROWS;
use super::encode::PackedChunk;
use super::open::{OpenChunk, Source};
use super::wanted::Fields;
use crate::columns::{Column, Columns, Values};

/// Says whether a reader finds exactly these rows in the chunk.
pub(super) fn is_read_back(rows: &Columns, packed: &PackedChunk, salt: u64) -> bool {
    let file = InMemory::from(packed.entry.at, &packed.bytes);
    let source = Source { name: "a chunk", file: &file, salt };
    read_back(rows, packed, &source).unwrap_or(false)
}

fn read_back(rows: &Columns, packed: &PackedChunk, source: &Source<'_>) -> Result<bool, Error> {
    let pages = packed.entry.pages();
    let mut chunk = OpenChunk::open(source, packed.entry, (0..pages).collect())?;
    for (page, index) in packed.pages.iter().enumerate() {
        let keys = chunk.keys(source, page, index)?;
        let count = keys.times.len();
        let range = page * PAGE_ROWS..page * PAGE_ROWS + count;
        let read = chunk.columns(source, page, keys, from_ref(&(0..count)), &Fields::All)?;
        if !is_same(rows, &range, &read) {
            return Ok(false);
        }
    }
    Ok(pages == packed.pages.len())
}

/// Says whether a range of rows is the same as these.
fn is_same(rows: &Columns, range: &Range<usize>, read: &Columns) -> bool {
    rows.times()[range.clone()] == *read.times()
        && has_elements(rows, range, read)
        && rows.columns().iter().all(|column| {
            let places = column.places(range);
            match read.column(column.field) {
                Some(read) => is_same_column(column, places, range.start, read),
                None => places.is_empty(),
            }
        })
        && read.columns().iter().all(|column| rows.column(column.field).is_some())
}

fn has_elements(rows: &Columns, range: &Range<usize>, read: &Columns) -> bool {
    let first = rows.elements().partition_point(|of| of.end as usize <= range.start);
    let of = rows.elements()[first..].iter().map(|of| (of.element, (of.end as usize).min(range.end)));
    let read = read.elements().iter().map(|of| (of.element, range.start + of.end as usize));
    let count = read.len();
    of.take(count).eq(read)
}

fn is_same_column(column: &Column, places: Range<usize>, start: usize, read: &Column) -> bool {
    let row = |column: &Column, place: usize| column.rows.as_ref().map_or(place, |rows| rows[place] as usize);
    let in_place = column.rows.is_none() && read.rows.is_none()
        || (0..read.values.len().min(places.len()))
            .all(|place| row(column, places.start + place) == start + row(read, place));
    let same = match (&column.values, &read.values) {
        (Values::Float(of), Values::Float(read)) => of[places.clone()]
            .iter()
            .map(|value| value.to_bits())
            .eq(read.iter().map(|value| value.to_bits())),
        (Values::Integer(of), Values::Integer(read)) => of[places.clone()] == **read,
        (Values::Unsigned(of), Values::Unsigned(read)) => of[places.clone()] == **read,
        (Values::Boolean(of), Values::Boolean(read)) => of[places.clone()] == **read,
        (of @ Values::Text(_), read @ Values::Text(_)) => {
            places.clone().map(|place| of.get(place)).eq((0..read.len()).map(|place| read.get(place)))
        }
        _ => false,
    };
    places.len() == read.values.len() && in_place && same
}
