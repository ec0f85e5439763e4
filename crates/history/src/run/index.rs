//! Header, index and footer of a run: what a reader knows before it reads a row.

use exacat_activity::{RequestState, blocking};
use exacat_disk::fixed::{u32_at, u64_at};
use exacat_disk::{DiskFile, cannot_read, corrupt, header};
use exacat_model::{Error, FieldType};

use super::{
    CHUNK_ROWS_MAX, FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, MAGIC, PAGE_ROWS, VERSION, checked, checksum,
    day_of,
};
use crate::columns::RowKey;
use crate::row::{ElementNumber, Field, FieldNumber};

/// Bytes of a chunk, a page and a field in the index.
const CHUNK_ENTRY_BYTES: usize = 24;
const PAGE_ENTRY_BYTES: usize = 24;
const FIELD_ENTRY_BYTES: usize = 16;

/// Identity of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// Group.
    pub group: u32,
    /// UTC day of all its rows, in days since 1970.
    pub day: i32,
    /// Random bits, so that nothing of another run passes for a part of this one.
    pub salt: u64,
}

impl RunHead {
    /// Returns the header of the file.
    ///
    /// ```text
    /// 0 magic · 8 version u16 · 10 zeros 6 · 16 group u32 · 20 day i32 · 24 salt u64 · 32 zeros 28 · 60 CRC
    /// ```
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.group.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.day.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.salt.to_le_bytes());
        header::seal(&mut bytes);
        bytes
    }

    pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        if bytes[..8] != MAGIC {
            return Err(corrupt(name, 0, "this is no run of a history"));
        }
        header::check(name, bytes, VERSION)?;
        Ok(RunHead { group: u32_at(bytes, 16), day: u32_at(bytes, 20) as i32, salt: u64_at(bytes, 24) })
    }
}

/// Number of values that a run has of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldCount {
    /// The field.
    pub field: Field,
    /// Values.
    pub values: u64,
}

/// Content of a run, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Rows, at least one.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Elements that have a row.
    pub elements: u32,
    /// Smallest and largest element.
    pub element_range: (ElementNumber, ElementNumber),
    /// Smallest and largest time.
    pub time_range: (i64, i64),
    /// Fields that a row has, in ascending order of their numbers.
    pub fields: Vec<FieldCount>,
}

/// Place of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkEntry {
    pub at: u64,
    pub bytes: u32,
    /// Bytes of the head, with its checksum.
    pub head_bytes: u32,
    pub rows: u32,
    /// Number of its first page in the run.
    pub first_page: u32,
}

impl ChunkEntry {
    /// Returns the number of its pages.
    pub(super) fn pages(&self) -> usize {
        (self.rows as usize).div_ceil(PAGE_ROWS)
    }

    /// Returns the number of rows of a page, by its number in the chunk.
    pub(super) fn page_rows(&self, page: usize) -> usize {
        (self.rows as usize - page * PAGE_ROWS).min(PAGE_ROWS)
    }
}

/// First and last row of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageEntry {
    pub first: RowKey,
    pub last: RowKey,
}

/// Index of a run: its chunks, pages and fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub chunks: Vec<ChunkEntry>,
    pub pages: Vec<PageEntry>,
    pub fields: Vec<FieldCount>,
}

impl Index {
    /// Encodes the index without its checksum.
    ///
    /// ```text
    /// chunks: at u64 · bytes u32 · head bytes u32 · rows u32 · first page u32
    /// pages: first element u32 · last element u32 · first time i64 · last time i64
    /// fields: number u32 · type u8 · zeros 3 · values u64
    /// ```
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes());
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.at.to_le_bytes());
            for word in [chunk.bytes, chunk.head_bytes, chunk.rows, chunk.first_page] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        for page in &self.pages {
            out.extend_from_slice(&page.first.0.to_le_bytes());
            out.extend_from_slice(&page.last.0.to_le_bytes());
            out.extend_from_slice(&page.first.1.to_le_bytes());
            out.extend_from_slice(&page.last.1.to_le_bytes());
        }
        for count in &self.fields {
            out.extend_from_slice(&count.field.number.to_le_bytes());
            out.extend_from_slice(&[count.field.kind.number(), 0, 0, 0]);
            out.extend_from_slice(&count.values.to_le_bytes());
        }
        out
    }

    fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_ENTRY_BYTES
            + self.pages.len() * PAGE_ENTRY_BYTES
            + self.fields.len() * FIELD_ENTRY_BYTES
    }

    /// Decodes an index of these counts, and checks that it describes the run of this footer.
    fn decode(bytes: &[u8], footer: &Footer) -> Result<Self, &'static str> {
        let counts = [footer.chunks, footer.pages, footer.fields];
        let ends = [CHUNK_ENTRY_BYTES, PAGE_ENTRY_BYTES, FIELD_ENTRY_BYTES].into_iter().zip(counts);
        let ends: Vec<usize> = ends.map(|(size, count)| size.saturating_mul(count as usize)).collect();
        if ends.iter().try_fold(0usize, |sum, bytes| sum.checked_add(*bytes)) != Some(bytes.len()) {
            return Err("the index has another length than its counts");
        }
        let (chunks, rest) = bytes.split_at(ends[0]);
        let (pages, fields) = rest.split_at(ends[1]);
        let chunk = |bytes: &[u8]| ChunkEntry {
            at: u64_at(bytes, 0),
            bytes: u32_at(bytes, 8),
            head_bytes: u32_at(bytes, 12),
            rows: u32_at(bytes, 16),
            first_page: u32_at(bytes, 20),
        };
        let page = |bytes: &[u8]| PageEntry {
            first: (u32_at(bytes, 0), u64_at(bytes, 8) as i64),
            last: (u32_at(bytes, 4), u64_at(bytes, 16) as i64),
        };
        let field = |bytes: &[u8]| -> Result<FieldCount, &'static str> {
            let kind = FieldType::from_number(bytes[4]).ok_or("the index has a field of an unknown type")?;
            let field = Field { number: u32_at(bytes, 0), kind };
            Ok(FieldCount { field, values: u64_at(bytes, 8) })
        };
        let index = Index {
            chunks: chunks.chunks_exact(CHUNK_ENTRY_BYTES).map(chunk).collect(),
            pages: pages.chunks_exact(PAGE_ENTRY_BYTES).map(page).collect(),
            fields: fields.chunks_exact(FIELD_ENTRY_BYTES).map(field).collect::<Result<_, _>>()?,
        };
        index.check(footer)?;
        Ok(index)
    }

    fn check(&self, footer: &Footer) -> Result<(), &'static str> {
        let (mut at, mut rows, mut pages) = (HEADER_BYTES as u64, 0, 0);
        for chunk in &self.chunks {
            let fits = chunk.at == at
                && chunk.first_page as usize == pages
                && (1..=CHUNK_ROWS_MAX).contains(&(chunk.rows as usize))
                && chunk.head_bytes <= chunk.bytes;
            if !fits {
                return Err("the index has a chunk out of place");
            }
            at += u64::from(chunk.bytes);
            rows += u64::from(chunk.rows);
            pages += chunk.pages();
        }
        if at != footer.index_at || rows != footer.rows || pages != self.pages.len() {
            return Err("the chunks of the index are not those of the footer");
        }
        let ascend = self.pages.iter().all(|page| page.first <= page.last)
            && self.pages.windows(2).all(|two| two[0].last < two[1].first);
        let ends = self.pages.first().zip(self.pages.last()).map(|(one, other)| (one.first.0, other.last.0));
        if !ascend || ends != Some(footer.element_range) {
            return Err("the pages of the index are out of order");
        }
        let counted = self.fields.iter().all(|count| (1..=footer.rows).contains(&count.values));
        let numbers = |two: &[FieldCount]| two[0].field.number < two[1].field.number;
        if !counted || !self.fields.windows(2).all(numbers) {
            return Err("the fields of the index are out of order");
        }
        Ok(())
    }

    /// Counts the values of a field.
    pub(super) fn count(&mut self, field: Field, values: u64) {
        match self.fields.binary_search_by_key(&field.number, |count| count.field.number) {
            Ok(at) => self.fields[at].values += values,
            Err(at) => self.fields.insert(at, FieldCount { field, values }),
        }
    }

    /// Returns the type of a field; none if no row has it.
    pub(super) fn kind(&self, field: FieldNumber) -> Option<FieldType> {
        let at = self.fields.binary_search_by_key(&field, |count| count.field.number).ok()?;
        self.fields.get(at).map(|count| count.field.kind)
    }

    /// Returns the chunk of a page.
    pub(super) fn chunk_of(&self, page: usize) -> usize {
        self.chunks.partition_point(|chunk| chunk.first_page as usize <= page) - 1
    }
}

/// End of a run, from which it is opened.
///
/// ```text
/// 0 magic · 8 group u32 · 12 day i32 · 16 salt u64 · 24 rows u64 · 32 index at u64
/// 40 chunks u32 · 44 pages u32 · 48 fields u32 · 52 elements u32
/// 56 smallest element u32 · 60 largest element u32 · 64 smallest time i64 · 72 largest time i64
/// 80 CRC of the index u32 · 84 zeros 40 · 124 CRC
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub head: RunHead,
    pub rows: u64,
    pub index_at: u64,
    pub chunks: u32,
    pub pages: u32,
    pub fields: u32,
    pub elements: u32,
    pub element_range: (ElementNumber, ElementNumber),
    pub time_range: (i64, i64),
    pub index_checksum: u32,
}

impl Footer {
    /// Encodes the footer, whose first byte is at `at`.
    pub(super) fn encode(&self, at: u64) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&FOOTER_MAGIC);
        out.extend_from_slice(&self.head.group.to_le_bytes());
        out.extend_from_slice(&self.head.day.to_le_bytes());
        for word in [self.head.salt, self.rows, self.index_at] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let counts = [self.chunks, self.pages, self.fields, self.elements];
        for word in counts.into_iter().chain([self.element_range.0, self.element_range.1]) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.time_range.0.to_le_bytes());
        out.extend_from_slice(&self.time_range.1.to_le_bytes());
        out.extend_from_slice(&self.index_checksum.to_le_bytes());
        bytes[..out.len()].copy_from_slice(&out);
        let sum = checksum(self.head.salt, at, &bytes[..FOOTER_BYTES - 4]);
        bytes[FOOTER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the footer of a run with this head.
    fn decode(head: RunHead, bytes: &[u8], at: u64) -> Result<Self, &'static str> {
        let Some(bytes) = checked(head.salt, at, bytes) else {
            return Err("the end of the run fails its checksum");
        };
        let footer = Footer {
            head: RunHead { group: u32_at(bytes, 8), day: u32_at(bytes, 12) as i32, salt: u64_at(bytes, 16) },
            rows: u64_at(bytes, 24),
            index_at: u64_at(bytes, 32),
            chunks: u32_at(bytes, 40),
            pages: u32_at(bytes, 44),
            fields: u32_at(bytes, 48),
            elements: u32_at(bytes, 52),
            element_range: (u32_at(bytes, 56), u32_at(bytes, 60)),
            time_range: (u64_at(bytes, 64) as i64, u64_at(bytes, 72) as i64),
            index_checksum: u32_at(bytes, 80),
        };
        let fits = bytes[..8] == FOOTER_MAGIC
            && footer.head == head
            && footer.rows > 0
            && footer.time_range.0 <= footer.time_range.1
            && day_of(footer.time_range.0) == head.day
            && day_of(footer.time_range.1) == head.day;
        if fits { Ok(footer) } else { Err("the end of the run is not that of its start") }
    }
}

/// Reads so many bytes of a file.
pub(super) fn read_exactly(name: &str, file: &dyn DiskFile, at: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut read = vec![0; bytes];
    let got = blocking(RequestState::PageRead, || file.read_at(&mut read, at));
    match got.map_err(|error| cannot_read(name, &error))? {
        got if got == bytes => Ok(read),
        got => Err(corrupt(name, at, format!("the file ends {} bytes too early", bytes - got))),
    }
}

/// Reads header, footer and index of a run, and checks them.
pub(super) fn read_index(name: &str, file: &dyn DiskFile) -> Result<(RunHead, RunSummary, Index), Error> {
    let length = file.length().map_err(|error| cannot_read(name, &error))?;
    if length < (HEADER_BYTES + FOOTER_BYTES) as u64 {
        return Err(corrupt(name, length, "the file is too short for a run"));
    }
    let head = RunHead::decode(name, &read_exactly(name, file, 0, HEADER_BYTES)?)?;
    let at = length - FOOTER_BYTES as u64;
    let end = read_exactly(name, file, at, FOOTER_BYTES)?;
    let footer = Footer::decode(head, &end, at).map_err(|what| corrupt(name, at, what))?;
    let bytes = at.checked_sub(footer.index_at).and_then(|bytes| usize::try_from(bytes).ok());
    let Some(bytes) = bytes else {
        return Err(corrupt(name, at, "the index begins behind the end of the run"));
    };
    let read = read_exactly(name, file, footer.index_at, bytes)?;
    if checksum(head.salt, footer.index_at, &read) != footer.index_checksum {
        return Err(corrupt(name, footer.index_at, "the index fails its checksum"));
    }
    let index = Index::decode(&read, &footer).map_err(|what| corrupt(name, footer.index_at, what))?;
    let summary = RunSummary {
        rows: footer.rows,
        bytes: length,
        elements: footer.elements,
        element_range: footer.element_range,
        time_range: footer.time_range,
        fields: index.fields.clone(),
    };
    Ok((head, summary, index))
}
