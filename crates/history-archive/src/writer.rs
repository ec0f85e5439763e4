//! Writes the rows of a day to files, and reads each file back before it counts.

use std::sync::Arc;

use bytes::Bytes;
use exacat_disk::random_u64;
use exacat_history::columns::Columns;
use exacat_history::run::{Wanted, day_of};
use exacat_history::sorted::SortedRows;
use exacat_history::{ArchivedFile, NamedGroup};
use exacat_model::Result;
use xxhash_rust::xxh3::xxh3_128;

use crate::block_digests::BlockDigests;
use crate::blocks::FileBytes;
use crate::place::Place;
use crate::reader::{FileScan, Source};
use crate::records::Records;
use crate::row_groups::RowGroups;
use crate::schema::{METADATA_BLOCKS, METADATA_COMPLETE, ROW_GROUP_ROWS, internal};
use crate::sum::Sum;

/// Bytes of a file, after which a further one is begun. Bounds the memory of the writer.
pub(crate) const FILE_BYTES: usize = 64 << 20;
/// Bytes of texts at which a row group ends early.
const GROUP_TEXT_BYTES: usize = 64 << 20;

/// Returns the text of a day: `2026-11-25`.
pub fn day_text(day: i32) -> String {
    let unix = jiff::Timestamp::from_second(i64::from(day) * 86_400).unwrap_or_default();
    unix.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%d").to_string()
}

/// Returns the day of such a text; none if it is no day of a 64-bit time.
pub(crate) fn day_number(text: &str) -> Option<i32> {
    let date: jiff::civil::Date = text.parse().ok()?;
    let begin = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second();
    let day = i32::try_from(begin.div_euclid(86_400)).ok()?;
    (day_text(day) == text).then_some(day)
}

/// Returns the text of a name in a path: every byte but letters, digits and `_-.` as `%XX`, as Hive does.
pub(crate) fn escaped(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A file in progress.
struct Open {
    row_groups: RowGroups,
    records: Records,
    sum: Sum,
    count: u64,
    elements: Option<(u32, u32)>,
    times: Option<(i64, i64)>,
}

impl Open {
    fn new() -> Result<Self> {
        let (records, sum) = (Records::default(), Sum::default());
        Ok(Open { row_groups: RowGroups::new()?, records, sum, count: 0, elements: None, times: None })
    }

    /// Notes the elements and times of rows. False if a row is of another day or of an unknown element.
    fn note(&mut self, columns: &Columns, day: i32, elements: usize) -> bool {
        let times = columns.times();
        let (Some((first, _)), Some((last, _))) = (columns.first(), columns.last()) else { return true };
        let from = times.iter().copied().min().unwrap_or_default();
        let to = times.iter().copied().max().unwrap_or_default();
        self.elements = Some((self.elements.map_or(first, |of| of.0), last));
        self.times = Some(self.times.map_or((from, to), |of| (of.0.min(from), of.1.max(to))));
        day_of(from) == day && day_of(to) == day && (last as usize) < elements
    }

    /// Writes the records so far as row groups.
    fn end_row_group(&mut self) -> Result<()> {
        let count = self.records.len();
        self.count += count as u64;
        self.records.take(|columns| self.row_groups.write(columns, count))
    }
}

/// Writer of a day.
pub(crate) struct DayWriter<'a> {
    pub place: &'a Arc<Place>,
    pub group: &'a Arc<dyn NamedGroup>,
    pub day: i32,
    /// Record of the log up to which the rows are complete; none if that is unknown.
    pub complete: Option<u64>,
    /// Bytes of a file.
    pub file_bytes: usize,
}

impl DayWriter<'_> {
    /// Writes all rows, and returns the files.
    pub(crate) fn write(&self, rows: &mut dyn SortedRows) -> Result<Vec<ArchivedFile>> {
        let (mut files, mut open) = (Vec::new(), None);
        while let Some(columns) = rows.next_rows()? {
            let file: &mut Open = match &mut open {
                Some(file) => file,
                none => none.insert(Open::new()?),
            };
            {
                let names = self.group.names();
                if !file.note(&columns, self.day, names.element_count()) {
                    return Err(internal(&"a row is of another day, or of an unknown element"));
                }
                file.sum.add(&columns);
                file.records.add(&names, &columns)?;
            }
            if file.records.len() >= ROW_GROUP_ROWS || file.records.text_bytes() >= GROUP_TEXT_BYTES {
                file.end_row_group()?;
            }
            if file.row_groups.len() >= self.file_bytes
                && let Some(full) = open.take()
            {
                files.push(self.end_file(full)?);
            }
        }
        if let Some(last) = open {
            files.push(self.end_file(last)?);
        }
        Ok(files)
    }

    fn end_file(&self, mut file: Open) -> Result<ArchivedFile> {
        file.end_row_group()?;
        for (key, value) in file.records.metadata(&**self.group) {
            file.row_groups.note(key, value);
        }
        if let Some(complete) = self.complete {
            file.row_groups.note(METADATA_COMPLETE, complete.to_string());
        }
        let (Some(elements), Some(times)) = (file.elements, file.times) else {
            return Err(internal(&"it has no row"));
        };
        // Indexes and the footer, with these digests, follow.
        let digests = BlockDigests::of(file.row_groups.bytes()?);
        file.row_groups.note(METADATA_BLOCKS, digests.text());
        let bytes = Bytes::from(file.row_groups.finish()?);
        let group = self.group.settings().name;
        let folder = format!("group={}/day={}", escaped(group.as_str()), day_text(self.day));
        let path = format!("{folder}/part-{:016x}.parquet", random_u64()?);
        let digest = xxh3_128(&bytes[digests.end as usize..]).to_le_bytes();
        self.check(&path, &bytes, digest, &file.sum)?;
        if !self.place.put_new(&path, bytes.clone())? {
            return Err(internal(&"two files have one random name"));
        }
        Ok(ArchivedFile {
            path,
            bytes: bytes.len() as u64,
            rows: file.sum.rows,
            records: file.count,
            digest,
            elements,
            times,
        })
    }

    /// Compares a file with the rows that were written to it: the runs with the same rows are removed later.
    fn check(&self, path: &str, bytes: &Bytes, digest: [u8; 16], wanted: &Sum) -> Result<()> {
        let source = Source {
            name: self.place.name_of(path),
            bytes: FileBytes::Memory(bytes.clone()),
            digest: Some(digest),
            known: None,
        };
        let mut scan = FileScan::open(source, self.group, &Wanted::all())?;
        let mut sum = Sum::default();
        while let Some(columns) = scan.next_rows()? {
            sum.add(&columns);
        }
        if sum == *wanted { Ok(()) } else { Err(internal(&"it is not read back as it was written")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders have the form of Hive, for any name of a group and any day.
    #[test]
    fn folders_have_the_form_of_hive() {
        assert_eq!(escaped("det2_A-b.c"), "det2_A-b.c");
        assert_eq!(escaped("é%=x"), "%C3%A9%25%3Dx");
        assert_eq!(day_text(0), "1970-01-01");
        assert_eq!(day_text(-1), "1969-12-31");
        assert_eq!(day_text(20_000), "2024-10-04");
        for day in [-106_752, -1, 0, 20_000, 106_751] {
            assert_eq!(day_number(&day_text(day)), Some(day));
        }
        assert_eq!((day_number("2024-10-4"), day_number("")), (None, None));
        assert_eq!((day_text(106_751), day_text(-106_752)), ("2262-04-11".into(), "1677-09-21".into()));
    }
}
