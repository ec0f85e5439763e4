//! Reads pages: one row by its key, or rows one after the other.
//!
//! Only the requested part is unpacked. The reader checks every offset of a page against the page's
//! length: bytes that were never a page give an error, not a panic.

use exacat_disk::fixed::u64_at;
use exacat_model::DirId;
use exacat_model::codec::Reader;
use std::cmp::Ordering;

use super::row::{Row, is_gone};
use super::{Damaged, HEAD_BYTES, Head, NUMBERS, ROWS_MAX, TAIL_BYTES, WHOLE_EVERY, checksum, mark};

/// Bytes of a processor's cache line.
const LINE_BYTES: usize = 64;
/// Cache lines read from a whole name on to find a name behind it, approximately.
const NAME_LINES: usize = 4;

/// Bytes of a page with the decoded head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    bytes: &'a [u8],
    head: Head,
}

const SHORT: Damaged = Damaged("the page ends too early");
const NO_ROW: Damaged = Damaged("a walk that went to no row");
const NAMES: Damaged = Damaged("the names of the page contradict each other");

/// A front-coded name: the number of bytes shared with the name before it, and the rest.
struct Coded<'a> {
    shared: usize,
    more: &'a [u8],
    next: usize,
}

/// Head of a page that was decoded before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageHead(Head);

/// Rows of one directory in a page.
#[derive(Clone, Copy, Debug)]
struct Group {
    directory: DirId,
    first: usize,
    end: usize,
    /// Offset of the next group in the page.
    next: u32,
}

impl<'a> Page<'a> {
    /// Opens a page from a file, and checks all of it. `salt` and `place` are those of its
    /// building.
    pub(crate) fn open(bytes: &'a [u8], salt: u64, place: u64) -> Result<Self, Damaged> {
        let page = Self::view(bytes)?;
        let mut sum = [0; 4];
        sum.copy_from_slice(&bytes[..4]);
        if u32::from_le_bytes(sum) != checksum(salt, place, bytes) {
            return Err(Damaged("the page fails its checksum"));
        }
        page.check()?;
        Ok(page)
    }

    /// Opens a page that was checked before.
    pub(crate) fn view(bytes: &'a [u8]) -> Result<Self, Damaged> {
        let head = Head::read(bytes.first_chunk::<HEAD_BYTES>().ok_or(SHORT)?);
        // Only the length is checked again. Every later access checks its own offset.
        if head.length as usize != bytes.len() {
            return Err(SHORT);
        }
        Ok(Page { bytes, head })
    }

    /// Checks that the head's numbers fit together and into the page.
    fn check(&self) -> Result<(), Damaged> {
        let head = &self.head;
        let rows = self.rows();
        let whole = rows.div_ceil(WHOLE_EVERY) * 2;
        // A width above 8 would make `little` shift by a negative number of bits.
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
        // One walk proves that the front-coded names and the groups can be decoded.
        let mut all = self.all();
        while all.advance(self)? {}
        Ok(())
    }

    /// Returns the head, so that a later `with` need not decode it again.
    pub(crate) fn head(&self) -> PageHead {
        PageHead(self.head)
    }

    /// Opens a page whose head was decoded before.
    pub(crate) fn with(bytes: &'a [u8], head: PageHead) -> Self {
        Page { bytes, head: head.0 }
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        usize::from(self.head.rows)
    }

    fn part(&self, from: u32, to: u32) -> Result<&'a [u8], Damaged> {
        self.bytes.get(from as usize..to as usize).ok_or(SHORT)
    }

    // ---- names ----

    /// Returns the part with the names, and the common end of all names, which it begins with.
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

    /// Returns the group after this one, or the first; none at the end.
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
        // A damaged count may be any number: it saturates, and the next check refuses it.
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

    /// Returns where to begin the search for `name`: the last whole name among rows `first..end`
    /// that is not after it. Without one, returns the whole name at or before `first`.
    fn whole_before(&self, group: Group, name: &[u8]) -> Result<usize, Damaged> {
        let (names, suffix) = self.names()?;
        let (mut low, mut high) = (group.first / WHOLE_EVERY, (group.end - 1) / WHOLE_EVERY);
        while low < high {
            let middle = (low + high).div_ceil(2);
            // A front-coded name means nothing without the names before it, so only whole ones are
            // compared.
            let stem = Self::coded(names, self.whole(middle)?)?.more;
            if compare(stem, suffix, name) == Ordering::Greater {
                high = middle - 1;
            } else {
                low = middle;
            }
        }
        Ok(low)
    }

    /// Returns the row with this key; `hash` is that of the key.
    pub(crate) fn find(&self, directory: DirId, name: &[u8], hash: u64) -> Result<Option<usize>, Damaged> {
        self.find_from(0, directory, name, hash)
    }

    /// Returns the row with this key, if it is at row `from` or after it.
    pub(crate) fn find_from(
        &self,
        mut from: usize,
        directory: DirId,
        name: &[u8],
        hash: u64,
    ) -> Result<Option<usize>, Damaged> {
        // A mark has one byte, so one row in 256 matches by chance. The name decides.
        while let Some(row) = self.likely(hash, from)? {
            if self.stands_at(row, directory, name)? {
                return Ok(Some(row));
            }
            from = row + 1;
        }
        Ok(None)
    }

    /// Returns the first row at or after `from` with the mark of this hash.
    pub(crate) fn likely(&self, hash: u64, from: usize) -> Result<Option<usize>, Damaged> {
        // The marks of a page take two or three cache lines, and searching them is cheaper than
        // decoding one name.
        let marks = self.bytes.get(HEAD_BYTES + from..self.shapes_at()).ok_or(SHORT)?;
        Ok(memchr::memchr(mark(hash), marks).map(|row| from + row))
    }

    /// Says whether this row has this key.
    pub(crate) fn stands_at(&self, row: usize, directory: DirId, name: &[u8]) -> Result<bool, Damaged> {
        // A page of one directory needs no group decoded.
        let its = if self.head.directories == 1 {
            self.head.first_directory
        } else {
            self.group_of(row)?.directory.0
        };
        if its != directory.0 {
            return Ok(false);
        }
        let (names, suffix) = self.names()?;
        // Stored names lack the common end, so the compared name must lack it too.
        let Some(stem) = name.strip_suffix(suffix) else { return Ok(false) };
        let mut at = self.whole(row / WHOLE_EVERY)?;
        // Number of bytes that the name and the last name read have in common at the start. The
        // next name is compared only where it can have more or fewer of them.
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

    /// Loads the part of a page that is read first into the processor's cache: head and marks. The
    /// result has no meaning.
    #[inline]
    pub(crate) fn touch_head(bytes: &[u8]) -> u8 {
        let end = HEAD_BYTES + ROWS_MAX;
        (0..=end).step_by(LINE_BYTES).fold(0, |sum, at| sum ^ bytes.get(at).copied().unwrap_or(0))
    }

    #[inline]
    fn touch_at(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// Loads the next part of a row: its record, and the offsets of its name and its shape. The
    /// result has no meaning.
    #[inline]
    pub(crate) fn touch(&self, row: usize) -> u8 {
        let (record, length) = (self.record_at(row), self.head.record_bytes());
        self.touch_at(record)
            ^ self.touch_at(record + length)
            ^ self.touch_at(self.head.whole_at as usize)
            ^ self.touch_at(self.head.directories_at as usize)
            ^ self.touch_at(self.shapes_at())
    }

    /// Loads the last part of a row: its name and its shape. The result has no meaning.
    #[inline]
    pub(crate) fn touch_name(&self, row: usize) -> u8 {
        let begin = self.head.names_at as usize + self.whole(row / WHOLE_EVERY).unwrap_or(0);
        let shape = self.little(self.record_at(row), self.head.shape_width);
        let shape = shape.and_then(|(shape, _)| self.shape(shape)).unwrap_or_default();
        let names = (0..NAME_LINES).fold(0, |sum, line| sum ^ self.touch_at(begin + line * LINE_BYTES));
        names ^ shape.first().copied().unwrap_or(0)
    }

    /// Returns a walk over all rows.
    pub(crate) fn all(&self) -> Walk {
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

    /// Returns the directory of a row, and puts its name into `name`.
    pub(crate) fn key(&self, row: usize, name: &mut Vec<u8>) -> Result<DirId, Damaged> {
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

    /// Returns a walk over the rows from this key on, or after it.
    pub(crate) fn from(&self, directory: DirId, name: &[u8], after: bool) -> Result<Walk, Damaged> {
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
        // Rows before the key are passed over; only their names matter, because the next name is
        // coded by them.
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

    /// Returns the number of this width at `at`, and the offset behind it.
    fn little(&self, at: usize, width: u8) -> Result<(u64, usize), Damaged> {
        // Eight bytes are there even at the end of the page (`TAIL_BYTES`), so one load serves
        // every width.
        let bytes = *self.bytes.get(at..).and_then(<[u8]>::first_chunk::<8>).ok_or(SHORT)?;
        // A width of 0 would shift by 64, which `checked_shr` turns into an empty mask.
        let mask = u64::MAX.checked_shr(64 - 8 * u32::from(width)).unwrap_or(0);
        Ok((u64::from_le_bytes(bytes) & mask, at + usize::from(width)))
    }

    /// Returns the shape with this number.
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

    /// Returns the row with this number; the caller has its key.
    pub(crate) fn row<'n>(&self, row: usize, parent: DirId, name: &'n [u8]) -> Result<Row<'n>, Damaged>
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
            // Width 0: all rows of the page have the smallest number, and nothing is stored.
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
            // Stored as a difference, which may be negative (`PageBuilder::kept`).
            modified: created.wrapping_add(modified),
            revision,
            checksum: self.bytes.get(at..at + usize::from(head.digest_width)).ok_or(SHORT)?,
            rest: self.rest(row)?,
        })
    }

    /// Returns the identity of this row.
    pub(crate) fn id(&self, row: usize) -> Result<[u8; 16], Damaged> {
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

/// Returns the number of leading bytes that both share.
fn same_at_start(one: &[u8], other: &[u8]) -> usize {
    // Eight bytes at a time, because names of one directory share long beginnings.
    let (words, others) = (one.chunks_exact(8), other.chunks_exact(8));
    let mut same = 0;
    for (word, other) in words.zip(others) {
        let differing = u64_at(word, 0) ^ u64_at(other, 0);
        if differing != 0 {
            // The number is little-endian: its lowest differing bit lies in the first differing
            // byte.
            return same + (differing.trailing_zeros() / 8) as usize;
        }
        same += 8;
    }
    same + one[same..].iter().zip(&other[same..]).take_while(|(a, b)| a == b).count()
}

/// Compares a name in two pieces with a name in one.
fn compare(stem: &[u8], suffix: &[u8], name: &[u8]) -> Ordering {
    let head = name.len().min(stem.len());
    stem.cmp(&name[..head]).then_with(|| suffix.cmp(&name[head..]))
}

/// Position of a walk over a page's rows. The walk continues in the same page, even if other memory
/// holds the page's bytes by then.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Next row, and the offset of its name.
    row: usize,
    at: usize,
    /// Last name read. Up to `stem` it lacks the common end of all names of the page.
    name: Vec<u8>,
    stem: usize,
    /// Set if the row of the last name is still to be returned.
    held: bool,
    group: Option<Group>,
}

impl Walk {
    fn at(row: usize, at: usize) -> Self {
        Walk { row, at, ..Walk::default() }
    }

    /// Moves before the first row of this page.
    pub(crate) fn go_to_start(&mut self, page: &Page<'_>) {
        // Reuses the allocation of the name.
        let name = std::mem::take(&mut self.name);
        *self = Walk { at: usize::from(page.head.suffix), name, ..Walk::default() };
        self.name.clear();
    }

    /// Reads the next name, without the common end.
    fn step(&mut self, page: &Page<'_>) -> Result<(), Damaged> {
        let (names, _) = page.names()?;
        let coded = Page::coded(names, self.at)?;
        // A whole name shares nothing. Any other may share at most the name before it.
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

    /// Moves to the next row of the page; false at its end.
    pub(crate) fn advance(&mut self, page: &Page<'_>) -> Result<bool, Damaged> {
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
            // A walk that begins inside of a page does not know its group yet.
            _ => self.group = Some(page.group_of(row)?),
        }
        let (_, suffix) = page.names()?;
        // The common end is appended only here, because the next name is front-coded without it.
        self.name.truncate(self.stem);
        self.name.extend_from_slice(suffix);
        Ok(true)
    }

    /// Returns the key of the current row.
    pub(crate) fn key(&self) -> (DirId, &[u8]) {
        (self.group.map_or(DirId(0), |group| group.directory), &self.name)
    }

    /// Returns the current row.
    pub(crate) fn row<'r>(&'r self, page: &Page<'r>) -> Result<Row<'r>, Damaged> {
        let (directory, name) = self.key();
        let row = self.row.checked_sub(1).ok_or(NO_ROW)?;
        page.row(row, directory, name)
    }

    /// Says whether the current row notes that something is gone.
    pub(crate) fn is_gone(&self, page: &Page<'_>) -> Result<bool, Damaged> {
        let row = self.row.checked_sub(1).ok_or(NO_ROW)?;
        // Only the shape is read: a merge asks this for every row.
        let (shape, _) = page.little(page.record_at(row), page.head.shape_width)?;
        Ok(is_gone(page.shape(shape)?))
    }

    /// Returns the next row of the page.
    pub(crate) fn next<'r>(&'r mut self, page: &Page<'r>) -> Result<Option<Row<'r>>, Damaged> {
        if self.advance(page)? { self.row(page).map(Some) } else { Ok(None) }
    }
}
