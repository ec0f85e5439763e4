//! Rows of one request on their way to the log.
//!
//! Rows are encoded once, by the thread of the client's connection. The log, the memtable and the
//! replay all use these bytes: for each row its length as a varint, then the row.

use std::sync::Arc;

use exacat_model::codec::{DecodeError, Reader, put_varint};
use exacat_model::{Error, FieldRef, Result};

use crate::group::Group;
use crate::limits::BATCH_BYTES_MAX;
use crate::row::{ElementNumber, RowRef, ShapeNumber, Shapes, put_row};

/// Rows of one request.
pub struct Batch {
    pub(crate) group: Arc<Group>,
    pub(crate) rows: Vec<u8>,
    pub(crate) count: u32,
    /// Bytes of one row, before its length is known.
    row: Vec<u8>,
}

impl Batch {
    /// Begins a batch.
    pub fn new(group: Arc<Group>) -> Self {
        Batch { group, rows: Vec::new(), count: 0, row: Vec::new() }
    }

    /// Returns the number of rows.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Adds a row. Its values are those of the shape's fields, in their order.
    pub fn push<'v>(
        &mut self,
        element: ElementNumber,
        shape: ShapeNumber,
        time: i64,
        values: impl IntoIterator<Item = FieldRef<'v>>,
    ) -> Result<()> {
        self.row.clear();
        put_row(&mut self.row, element, shape, time, values)?;
        if self.rows.len() + self.row.len() > BATCH_BYTES_MAX {
            return Err(Error::limit(
                "bytes of a batch of rows",
                self.rows.len() + self.row.len(),
                BATCH_BYTES_MAX,
            ));
        }
        put_varint(&mut self.rows, self.row.len() as u64);
        self.rows.extend_from_slice(&self.row);
        self.count += 1;
        Ok(())
    }

    /// Adds a row of the log once more.
    pub(crate) fn push_encoded(&mut self, row: &[u8]) {
        put_varint(&mut self.rows, row.len() as u64);
        self.rows.extend_from_slice(row);
        self.count += 1;
    }
}

/// Passes the rows of a batch to `give`, with their bytes. The bytes are this process's own.
pub(crate) fn each_row<'a>(rows: &'a [u8], mut give: impl FnMut(RowRef<'a>, &'a [u8])) {
    let mut reader = Reader::new(rows);
    while let Ok(bytes) = reader.bytes() {
        match RowRef::at(bytes) {
            Some(row) => give(row, bytes),
            None => return,
        }
    }
}

/// Passes the rows of a batch from the log to `give`, and checks each: its element and its shape have
/// names, and its bytes are those of its values.
pub(crate) fn each_checked_row<'a>(
    rows: &'a [u8],
    count: u32,
    shapes: &impl Shapes,
    elements: u32,
    mut give: impl FnMut(RowRef<'a>, &'a [u8]),
) -> std::result::Result<(), DecodeError> {
    let mut reader = Reader::new(rows);
    for _ in 0..count {
        let bytes = reader.bytes()?;
        let (row, rest) = RowRef::read(bytes, shapes)?;
        if !rest.is_empty() {
            return Err(reader.error("bytes behind a row"));
        }
        if row.element >= elements {
            return Err(reader.error("a row of an element without a name"));
        }
        give(row, bytes);
    }
    reader.finish()
}
