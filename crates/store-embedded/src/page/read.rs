//! Reading pages: one row found by its key, or rows one after the other.
//!
//! Nothing is unpacked that is not asked for. What a page says of itself is believed only as far as it fits into the
//! page: bytes that were never a page give an error, not a panic.

use exacat_model::DirId;
use exacat_model::codec::Reader;
use std::cmp::Ordering;

use super::row::{Row, is_gone};
use super::{Damaged, HEAD_BYTES, Head, NUMBERS, ROWS_MAX, TAIL_BYTES, WHOLE_EVERY, checksum, mark};
use crate::record::u64_at;

/// Bytes that the processor brings in together.
const LINE_BYTES: usize = 64;
/// Lines from a whole name on that are read to find one behind it, about.
const NAME_LINES: usize = 4;

/// A page's bytes, with its head read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    bytes: &'a [u8],
    head: Head,
}

const SHORT: Damaged = Damaged("the page ends too early");
const NO_ROW: Damaged = Damaged("a walk that went to no row");
const NAMES: Damaged = Damaged("the names of the page contradict each other");

/// A front-coded name: how much it shares with the one before it, and the rest.
struct Coded<'a> {
    shared: usize,
    more: &'a [u8],
    next: usize,
}

/// The head of a page, read before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageHead(Head);

/// The rows of one directory in a page.
#[derive(Clone, Copy, Debug)]
struct Group {
    directory: DirId,
    first: usize,
    end: usize,
    /// Where the next one stands in the page.
    next: u32,
}

impl<'a> Page<'a> {
    /// A page as it came from a file, checked as a whole. `salt` and `place` are those it was built with.
    pub fn open(bytes: &'a [u8], salt: u64, place: u64) -> Result<Self, Damaged> {
        let page = Self::view(bytes)?;
        let mut sum = [0; 4];
        sum.copy_from_slice(&bytes[..4]);
        if u32::from_le_bytes(sum) != checksum(salt, place, bytes) {
            return Err(Damaged("the page fails its checksum"));
        }
        page.check()?;
        Ok(page)
    }

    /// A page that was checked before.
    pub fn view(bytes: &'a [u8]) -> Result<Self, Damaged> {
        let head = Head::read(bytes.first_chunk::<HEAD_BYTES>().ok_or(SHORT)?);
        if head.length as usize != bytes.len() {
            return Err(SHORT);
        }
        Ok(Page { bytes, head })
    }

    /// Does it all fit together?
    fn check(&self) -> Result<(), Damaged> {
        let head = &self.head;
        let rows = self.rows();
        let whole = rows.div_ceil(WHOLE_EVERY) * 2;
        let wide = head.widths.iter().any(|width| *width > 8)
            || head.shape_width > 2
            || !matches!(head.shape_end_width, 2 | 4)
            || !matches!(head.id_width, 0 | 16);
        if rows == 0 || rows > ROWS_MAX || wide {
            return Err(Damaged("the head of the page is of no page"));
        }
        let places = [self.shapes_at() as u32, head.directories_at, head.names_at, head.whole_at];
        let in_order = places.is_sorted()
            && head.whole_at as usize + whole == head.records_at as usize
            && head.records_at as usize + rows * head.record_bytes() == head.rest_at as usize
            && head.rest_at as usize + TAIL_BYTES <= self.bytes.len();
        if !in_order {
            return Err(Damaged("the parts of the page do not lie one behind the other"));
        }
        let mut all = self.all();
        while all.advance(self)? {}
        Ok(())
    }

    /// Its head, to view its bytes again by without reading that again.
    pub fn head(&self) -> PageHead {
        PageHead(self.head)
    }

    /// A page whose head was read before.
    pub fn with(bytes: &'a [u8], head: PageHead) -> Self {
        Page { bytes, head: head.0 }
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        usize::from(self.head.rows)
    }

    fn part(&self, from: u32, to: u32) -> Result<&'a [u8], Damaged> {
        self.bytes.get(from as usize..to as usize).ok_or(SHORT)
    }

    // ---- names ----

    /// The part with the names: first what they all end with.
    fn names(&self) -> Result<(&'a [u8], &'a [u8]), Damaged> {
        let names = self.part(self.head.names_at, self.head.whole_at)?;
        let suffix = names.get(..usize::from(self.head.suffix)).ok_or(SHORT)?;
        Ok((names, suffix))
    }

    fn whole(&self, index: usize) -> Result<usize, Damaged> {
        let at = self.head.whole_at as usize + 2 * index;
        let place = self.bytes.get(at..at + 2).ok_or(SHORT)?;
        Ok(usize::from(u16::from_le_bytes([place[0], place[1]])))
    }

    fn coded(names: &'a [u8], at: usize) -> Result<Coded<'a>, Damaged> {
        let [shared, length] = *names.get(at..).and_then(<[u8]>::first_chunk::<2>).ok_or(NAMES)?;
        let next = at + 2 + usize::from(length);
        let more = names.get(at + 2..next).ok_or(NAMES)?;
        Ok(Coded { shared: usize::from(shared), more, next })
    }

    /// The group after this one, or the first; none at the end.
    fn next_group(&self, after: Option<Group>) -> Result<Option<Group>, Damaged> {
        let before = after.unwrap_or(Group {
            directory: DirId(self.head.first_directory),
            first: 0,
            end: 0,
            next: self.head.directories_at,
        });
        if before.end >= self.rows() {
            return Ok(None);
        }
        let bad = |_| Damaged("the directories of the page cannot be read");
        let part = self.part(before.next, self.head.names_at)?;
        let mut reader = Reader::new(part);
        let directory = before.directory.0.wrapping_add(reader.varint().map_err(bad)?);
        let count = usize::try_from(reader.varint().map_err(bad)?).unwrap_or(usize::MAX);
        let end = before.end.saturating_add(count);
        if count == 0 || end > self.rows() {
            return Err(Damaged("the directories of the page have other rows than the page"));
        }
        let next = before.next + (part.len() - reader.remaining()) as u32;
        Ok(Some(Group { directory: DirId(directory), first: before.end, end, next }))
    }

    fn groups(&self) -> impl Iterator<Item = Result<Group, Damaged>> {
        let mut last = None;
        std::iter::from_fn(move || match self.next_group(last) {
            Ok(group) => {
                last = group;
                group.map(Ok)
            }
            Err(damaged) => Some(Err(damaged)),
        })
    }

    /// The last whole name among rows `first..end` that is not after `name`; if there is none, the one at or before
    /// `first`. It is where to begin to look for `name`.
    fn whole_before(&self, group: Group, name: &[u8]) -> Result<usize, Damaged> {
        let (names, suffix) = self.names()?;
        let (mut low, mut high) = (group.first / WHOLE_EVERY, (group.end - 1) / WHOLE_EVERY);
        while low < high {
            let middle = (low + high).div_ceil(2);
            let stem = Self::coded(names, self.whole(middle)?)?.more;
            if compare(stem, suffix, name) == Ordering::Greater {
                high = middle - 1;
            } else {
                low = middle;
            }
        }
        Ok(low)
    }

    /// The row with this key, which has this hash.
    pub fn find(&self, directory: DirId, name: &[u8], hash: u64) -> Result<Option<usize>, Damaged> {
        self.find_from(0, directory, name, hash)
    }

    /// The same, if it is at this row or after it.
    pub fn find_from(
        &self,
        mut from: usize,
        directory: DirId,
        name: &[u8],
        hash: u64,
    ) -> Result<Option<usize>, Damaged> {
        while let Some(row) = self.likely(hash, from)? {
            if self.stands_at(row, directory, name)? {
                return Ok(Some(row));
            }
            from = row + 1;
        }
        Ok(None)
    }

    /// The first row from `from` on that has the mark of this hash.
    pub fn likely(&self, hash: u64, from: usize) -> Result<Option<usize>, Damaged> {
        let marks = self.bytes.get(HEAD_BYTES + from..self.shapes_at()).ok_or(SHORT)?;
        Ok(memchr::memchr(mark(hash), marks).map(|row| from + row))
    }

    /// Has this row this key?
    pub fn stands_at(&self, row: usize, directory: DirId, name: &[u8]) -> Result<bool, Damaged> {
        let its = if self.head.directories == 1 {
            self.head.first_directory
        } else {
            self.group_of(row)?.directory.0
        };
        if its != directory.0 {
            return Ok(false);
        }
        let (names, suffix) = self.names()?;
        let Some(stem) = name.strip_suffix(suffix) else { return Ok(false) };
        let mut at = self.whole(row / WHOLE_EVERY)?;
        // How many bytes of what is looked for the last name had at its start: the next is compared only where it can
        // have more or less of them.
        let mut common = 0;
        for _ in 0..row % WHOLE_EVERY {
            let coded = Self::coded(names, at)?;
            at = coded.next;
            if coded.shared <= common {
                let rest = stem.get(coded.shared..).ok_or(NAMES)?;
                common = coded.shared + same_at_start(rest, coded.more);
            }
        }
        let coded = Self::coded(names, at)?;
        Ok(coded.shared <= common && stem.get(coded.shared..) == Some(coded.more))
    }

    /// Brings in what is read of a page first: head and marks. What it gives means nothing.
    #[inline]
    pub fn touch_head(bytes: &[u8]) -> u8 {
        let end = HEAD_BYTES + ROWS_MAX;
        (0..=end).step_by(LINE_BYTES).fold(0, |sum, at| sum ^ bytes.get(at).copied().unwrap_or(0))
    }

    #[inline]
    fn touch_at(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// Brings in what is read of a row then: its record, and where its name and its shape stand. What it gives means
    /// nothing.
    #[inline]
    pub fn touch(&self, row: usize) -> u8 {
        let (record, length) = (self.record_at(row), self.head.record_bytes());
        self.touch_at(record)
            ^ self.touch_at(record + length)
            ^ self.touch_at(self.head.whole_at as usize)
            ^ self.touch_at(self.head.directories_at as usize)
            ^ self.touch_at(self.shapes_at())
    }

    /// Brings in what is read of a row last: its name and its shape. What it gives means nothing.
    #[inline]
    pub fn touch_name(&self, row: usize) -> u8 {
        let begin = self.head.names_at as usize + self.whole(row / WHOLE_EVERY).unwrap_or(0);
        let shape = self.little(self.record_at(row), self.head.shape_width);
        let shape = shape.and_then(|(shape, _)| self.shape(shape)).unwrap_or_default();
        let names = (0..NAME_LINES).fold(0, |sum, line| sum ^ self.touch_at(begin + line * LINE_BYTES));
        names ^ shape.first().copied().unwrap_or(0)
    }

    /// A walk over all rows.
    pub fn all(&self) -> Walk {
        Walk::at(0, usize::from(self.head.suffix))
    }

    fn group_of(&self, row: usize) -> Result<Group, Damaged> {
        for group in self.groups() {
            let group = group?;
            if row < group.end {
                return Ok(group);
            }
        }
        Err(Damaged("the directories of the page have fewer rows than the page"))
    }

    /// The key of a row: its directory, and its name put into `name`.
    pub fn key(&self, row: usize, name: &mut Vec<u8>) -> Result<DirId, Damaged> {
        let group = self.group_of(row)?;
        let whole = row / WHOLE_EVERY;
        let mut walk = Walk::at(whole * WHOLE_EVERY, self.whole(whole)?);
        while walk.row <= row {
            walk.step(self)?;
        }
        *name = walk.name;
        name.extend_from_slice(self.names()?.1);
        Ok(group.directory)
    }

    /// A walk over the rows from this key on, or after it.
    pub fn from(&self, directory: DirId, name: &[u8], after: bool) -> Result<Walk, Damaged> {
        let mut start = None;
        for group in self.groups() {
            let group = group?;
            if group.directory >= directory {
                start = Some(group);
                break;
            }
        }
        let Some(group) = start else {
            let mut rows = self.all();
            rows.row = self.rows();
            return Ok(rows);
        };
        let is_its = group.directory == directory;
        let whole = if is_its { self.whole_before(group, name)? } else { group.first / WHOLE_EVERY };
        let row = whole * WHOLE_EVERY;
        let mut rows = Walk::at(row, self.whole(whole)?);
        // Rows before it are passed over; their names are what the next one's is told by.
        while rows.row < self.rows() {
            let row = rows.row;
            rows.step(self)?;
            let passed = row < group.first
                || is_its
                    && row < group.end
                    && match compare(&rows.name, self.names()?.1, name) {
                        Ordering::Less => true,
                        Ordering::Equal => after,
                        Ordering::Greater => false,
                    };
            if !passed {
                rows.held = true;
                break;
            }
        }
        Ok(rows)
    }

    // ---- records ----

    fn shapes_at(&self) -> usize {
        HEAD_BYTES + self.rows()
    }

    fn record_at(&self, row: usize) -> usize {
        self.head.records_at as usize + row * self.head.record_bytes()
    }

    /// The number of this width at `at`, and where the next one stands.
    fn little(&self, at: usize, width: u8) -> Result<(u64, usize), Damaged> {
        let bytes = *self.bytes.get(at..).and_then(<[u8]>::first_chunk::<8>).ok_or(SHORT)?;
        let mask = u64::MAX.checked_shr(64 - 8 * u32::from(width)).unwrap_or(0);
        Ok((u64::from_le_bytes(bytes) & mask, at + usize::from(width)))
    }

    /// The shape of this number.
    fn shape(&self, index: u64) -> Result<&'a [u8], Damaged> {
        let bad = Damaged("the shapes of the page cannot be read");
        let (head, at) = (&self.head, self.shapes_at());
        let width = usize::from(head.shape_end_width);
        if index >= u64::from(head.shapes) {
            return Err(bad);
        }
        let index = index as usize;
        let end_of = |index: usize| Ok(self.little(at + index * width, head.shape_end_width)?.0 as usize);
        let begin = index.checked_sub(1).map_or(Ok(0), end_of)?;
        let shapes = self.bytes.get(at + usize::from(head.shapes) * width..head.directories_at as usize);
        shapes.and_then(|shapes| shapes.get(begin..end_of(index).ok()?)).ok_or(bad)
    }

    fn rest(&self, row: usize) -> Result<&'a [u8], Damaged> {
        if !self.head.has_rest {
            return Ok(&[]);
        }
        let rest = self.bytes.get(self.head.rest_at as usize..).ok_or(SHORT)?;
        let end_of = |row: usize| -> Result<usize, Damaged> {
            let end = rest.get(4 * row..).and_then(<[u8]>::first_chunk::<4>).ok_or(SHORT)?;
            Ok(u32::from_le_bytes(*end) as usize)
        };
        let begin = row.checked_sub(1).map_or(Ok(0), end_of)?;
        let bytes = rest.get(4 * self.rows()..).ok_or(SHORT)?;
        bytes.get(begin..end_of(row)?).ok_or(Damaged("a row's rest lies outside of the page"))
    }

    /// The row of this number, whose key is known.
    pub fn row<'n>(&self, row: usize, parent: DirId, name: &'n [u8]) -> Result<Row<'n>, Damaged>
    where
        'a: 'n,
    {
        if row >= self.rows() {
            return Err(Damaged("the page has no such row"));
        }
        let head = &self.head;
        let (shape, at) = self.little(self.record_at(row), head.shape_width)?;
        let (id, mut at) = match head.id_width {
            0 => ([0; 16], at),
            _ => (*self.bytes.get(at..).and_then(<[u8]>::first_chunk::<16>).ok_or(SHORT)?, at + 16),
        };
        let mut numbers = head.bases;
        for (number, width) in numbers.iter_mut().zip(head.widths) {
            if width > 0 {
                let (more, next) = self.little(at, width)?;
                *number = number.wrapping_add(more);
                at = next;
            }
        }
        let [size, job, created, modified, revision]: [u64; NUMBERS] = numbers;
        Ok(Row {
            parent,
            name,
            shape: self.shape(shape)?,
            id,
            size,
            job,
            created,
            modified: created.wrapping_add(modified),
            revision,
            checksum: self.bytes.get(at..at + usize::from(head.digest_width)).ok_or(SHORT)?,
            rest: self.rest(row)?,
        })
    }

    /// The identity of this row.
    pub fn id(&self, row: usize) -> Result<[u8; 16], Damaged> {
        if row >= self.rows() {
            return Err(Damaged("the page has no such row"));
        }
        if self.head.id_width == 0 {
            return Ok([0; 16]);
        }
        let at = self.record_at(row) + usize::from(self.head.shape_width);
        Ok(*self.bytes.get(at..).and_then(<[u8]>::first_chunk::<16>).ok_or(SHORT)?)
    }
}

/// Bytes that both begin with.
fn same_at_start(one: &[u8], other: &[u8]) -> usize {
    let (words, others) = (one.chunks_exact(8), other.chunks_exact(8));
    let mut same = 0;
    for (word, other) in words.zip(others) {
        let differing = u64_at(word, 0) ^ u64_at(other, 0);
        if differing != 0 {
            return same + (differing.trailing_zeros() / 8) as usize;
        }
        same += 8;
    }
    same + one[same..].iter().zip(&other[same..]).take_while(|(a, b)| a == b).count()
}

/// A name in two pieces against one in one.
fn compare(stem: &[u8], suffix: &[u8], name: &[u8]) -> Ordering {
    let head = name.len().min(stem.len());
    stem.cmp(&name[..head]).then_with(|| suffix.cmp(&name[head..]))
}

/// Where a walk over a page's rows is. It goes on in the same page, whoever holds its bytes meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The next row, and where its name stands.
    row: usize,
    at: usize,
    /// The last name: up to `stem` without what all names of the page end with.
    name: Vec<u8>,
    stem: usize,
    /// The row whose name was read last is to be given next.
    held: bool,
    group: Option<Group>,
}

impl Walk {
    fn at(row: usize, at: usize) -> Self {
        Walk { row, at, ..Walk::default() }
    }

    /// Goes before the first row of this page.
    pub fn go_to_start(&mut self, page: &Page<'_>) {
        // The room of the name is kept.
        let name = std::mem::take(&mut self.name);
        *self = Walk { at: usize::from(page.head.suffix), name, ..Walk::default() };
        self.name.clear();
    }

    /// Reads the next name, without its end.
    fn step(&mut self, page: &Page<'_>) -> Result<(), Damaged> {
        let (names, _) = page.names()?;
        let coded = Page::coded(names, self.at)?;
        let shareable = if self.row.is_multiple_of(WHOLE_EVERY) { 0 } else { self.stem };
        if coded.shared > shareable {
            return Err(NAMES);
        }
        self.name.truncate(coded.shared);
        self.name.extend_from_slice(coded.more);
        self.stem = self.name.len();
        (self.at, self.row) = (coded.next, self.row + 1);
        Ok(())
    }

    /// Goes to the next row of the page; false at its end.
    pub fn advance(&mut self, page: &Page<'_>) -> Result<bool, Damaged> {
        if !std::mem::take(&mut self.held) {
            if self.row >= page.rows() {
                return Ok(false);
            }
            self.step(page)?;
        }
        let row = self.row - 1;
        match self.group {
            Some(group) if row < group.end => {}
            Some(group) if row == group.end => self.group = page.next_group(Some(group))?,
            _ => self.group = Some(page.group_of(row)?),
        }
        let (_, suffix) = page.names()?;
        self.name.truncate(self.stem);
        self.name.extend_from_slice(suffix);
        Ok(true)
    }

    /// The key of the row it went to.
    pub fn key(&self) -> (DirId, &[u8]) {
        (self.group.map_or(DirId(0), |group| group.directory), &self.name)
    }

    /// The row it went to.
    pub fn row<'r>(&'r self, page: &Page<'r>) -> Result<Row<'r>, Damaged> {
        let (directory, name) = self.key();
        let row = self.row.checked_sub(1).ok_or(NO_ROW)?;
        page.row(row, directory, name)
    }

    /// Is the row it went to one of what is gone?
    pub fn is_gone(&self, page: &Page<'_>) -> Result<bool, Damaged> {
        let row = self.row.checked_sub(1).ok_or(NO_ROW)?;
        let (shape, _) = page.little(page.record_at(row), page.head.shape_width)?;
        Ok(is_gone(page.shape(shape)?))
    }

    /// The next row of the page.
    pub fn next<'r>(&'r mut self, page: &Page<'r>) -> Result<Option<Row<'r>>, Damaged> {
        if self.advance(page)? { self.row(page).map(Some) } else { Ok(None) }
    }
}
