//! Reads a whole run, and compares it with what its index and footer say.

use std::sync::Arc;

use exacat_disk::corrupt;
use exacat_model::Error;

use super::index::{FieldCount, Index};
use super::reader::Run;
use super::wanted::Wanted;
use crate::row::Field;
use crate::sorted::SortedRows;

impl Run {
    /// Reads everything. Fails if a part is damaged, or if the counts and ranges are not those of the
    /// rows.
    pub fn check(self: &Arc<Self>) -> Result<(), Error> {
        let (mut rows, mut elements, mut last) = (0, 0, None);
        let mut times = (i64::MAX, i64::MIN);
        let mut counts = Index::default();
        let mut scan = self.scan(Wanted::all());
        while let Some(batch) = scan.next_rows()? {
            rows += batch.rows() as u64;
            for of in batch.elements() {
                elements += u32::from(last != Some(of.element));
                last = Some(of.element);
            }
            for time in batch.times() {
                times = (times.0.min(*time), times.1.max(*time));
            }
            for column in batch.columns() {
                let field = Field { number: column.field, kind: column.values.kind() };
                counts.count(field, column.values.len() as u64);
            }
        }
        let summary = self.summary();
        let said: &[FieldCount] = &summary.fields;
        let fits = (rows, elements, times) == (summary.rows, summary.elements, summary.time_range);
        if fits && counts.fields == said {
            return Ok(());
        }
        Err(corrupt(self.name(), summary.bytes, "the counts at the end are not those of the rows"))
    }
}
