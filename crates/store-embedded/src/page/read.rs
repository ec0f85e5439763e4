//! Reading pages: one row found by its key, or rows one after the other.
//!
//! Nothing is unpacked that is not asked for. What a page says of itself is believed only as far as it fits into the
//! page: bytes that were never a page give an error, not a panic.

use exacat_model::DirId;
use exacat_model::codec::Reader;
use std::cmp::Ordering;

use super::row::Row;
use super::{Column, Damaged, HEAD_BYTES, Head, PAGE_BYTES_MAX, ROWS_MAX, TAIL_BYTES, WHOLE_EVERY, checksum};

/// A page's bytes, with its head read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    bytes: &'a [u8],
    head: Head,
}

const SHORT: Damaged = Damaged("the page ends too early");
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
}

impl<'a> Page<'a> {
    /// How long the page is that begins here, as far as its head can be believed.
    pub fn length(head: &[u8]) -> Option<usize> {
        let head = Head::read(head.first_chunk()?);
        let length = head.length as usize;
        (HEAD_BYTES..=PAGE_BYTES_MAX).contains(&length).then_some(length)
    }

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
            || !matches!(head.id_width, 0 | 16);
        if rows == 0 || rows > ROWS_MAX || wide {
            return Err(Damaged("the head of the page is of no page"));
        }
        let places = [HEAD_BYTES as u32, head.directories_at, head.names_at, head.whole_at];
        let in_order = places.is_sorted()
            && head.whole_at as usize + whole == head.columns_at as usize
            && head.columns_at as usize + rows * head.row_bytes() == head.rest_at as usize
            && head.rest_at as usize + TAIL_BYTES <= self.bytes.len();
        if !in_order {
            return Err(Damaged("the parts of the page do not lie one behind the other"));
        }
        let mut all = self.all();
        while all.next(self)?.is_some() {}
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

    fn groups(&self) -> impl Iterator<Item = Result<Group, Damaged>> + use<'a> {
        let part = self.part(self.head.directories_at, self.head.names_at);
        let mut reader = Reader::new(part.unwrap_or_default());
        let (mut directory, mut first) = (self.head.first_directory, 0);
        let rows = self.rows();
        (0..self.head.directories).map(move |_| {
            let bad = |_| Damaged("the directories of the page cannot be read");
            directory = directory.wrapping_add(reader.varint().map_err(bad)?);
            let count = usize::try_from(reader.varint().map_err(bad)?).unwrap_or(usize::MAX);
            let end = first + count.min(rows + 1);
            if count == 0 || end > rows {
                return Err(Damaged("the directories of the page have other rows than the page"));
            }
            let group = Group { directory: DirId(directory), first, end };
            first = end;
            Ok(group)
        })
    }

    fn group(&self, directory: DirId) -> Result<Option<Group>, Damaged> {
        for group in self.groups() {
            let group = group?;
            match group.directory.cmp(&directory) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(Some(group)),
                Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
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

    /// The row with this key.
    pub fn find(&self, directory: DirId, name: &[u8]) -> Result<Option<usize>, Damaged> {
        let Some(group) = self.group(directory)? else { return Ok(None) };
        let (names, suffix) = self.names()?;
        let Some(stem) = name.strip_suffix(suffix) else { return Ok(None) };
        let whole = self.whole_before(group, name)?;
        let mut at = self.whole(whole)?;
        // How many bytes of what is looked for the last name had at its start: the next is compared only where it can
        // have more or less of them.
        let mut common = 0;
        let end = group.end.min((whole + 1) * WHOLE_EVERY);
        for row in whole * WHOLE_EVERY..end {
            let coded = Self::coded(names, at)?;
            at = coded.next;
            if coded.shared > common {
                continue;
            }
            let rest = stem.get(coded.shared..).ok_or(NAMES)?;
            let same = rest.iter().zip(coded.more).take_while(|(a, b)| a == b).count();
            common = coded.shared + same;
            if row >= group.first && common == stem.len() && same == coded.more.len() {
                return Ok(Some(row));
            }
        }
        Ok(None)
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

    // ---- columns ----

    fn column_at(&self, column: Column) -> usize {
        let rows = self.rows();
        let before: usize = self.head.widths[..column as usize].iter().map(|width| usize::from(*width)).sum();
        let fixed = usize::from(self.head.shape_width) + usize::from(self.head.id_width);
        self.head.columns_at as usize + rows * (fixed + before)
    }

    fn little(&self, at: usize, width: usize) -> Result<u64, Damaged> {
        let bytes = *self.bytes.get(at..).and_then(<[u8]>::first_chunk::<8>).ok_or(SHORT)?;
        let mask = u64::MAX.checked_shr(64 - 8 * width as u32).unwrap_or(0);
        Ok(u64::from_le_bytes(bytes) & mask)
    }

    fn number(&self, column: Column, row: usize) -> Result<u64, Damaged> {
        let width = usize::from(self.head.widths[column as usize]);
        let base = self.head.bases[column as usize];
        if width == 0 {
            return Ok(base);
        }
        Ok(base.wrapping_add(self.little(self.column_at(column) + row * width, width)?))
    }

    fn shape(&self, row: usize) -> Result<&'a [u8], Damaged> {
        let width = usize::from(self.head.shape_width);
        let index = match width {
            0 => 0,
            _ => self.little(self.head.columns_at as usize + row * width, width)?,
        };
        let mut reader = Reader::new(self.part(HEAD_BYTES as u32, self.head.directories_at)?);
        let bad = |_| Damaged("the shapes of the page cannot be read");
        for _ in 0..index {
            reader.bytes().map_err(bad)?;
        }
        reader.bytes().map_err(bad)
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
        let rows = self.rows();
        if row >= rows {
            return Err(Damaged("the page has no such row"));
        }
        let id_at = self.head.columns_at as usize + rows * usize::from(self.head.shape_width) + row * 16;
        let id = match self.head.id_width {
            0 => [0; 16],
            _ => *self.bytes.get(id_at..).and_then(<[u8]>::first_chunk::<16>).ok_or(SHORT)?,
        };
        let created = self.number(Column::Created, row)?;
        let digest_width = usize::from(self.head.digest_width);
        let digest_at = self.head.rest_at as usize - (rows - row) * digest_width;
        Ok(Row {
            parent,
            name,
            shape: self.shape(row)?,
            id,
            size: self.number(Column::Size, row)?,
            job: self.number(Column::Job, row)?,
            created,
            modified: created.wrapping_add(self.number(Column::Modified, row)?),
            revision: self.number(Column::Revision, row)?,
            checksum: self.bytes.get(digest_at..digest_at + digest_width).ok_or(SHORT)?,
            rest: self.rest(row)?,
        })
    }
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
        let group = match self.group {
            Some(group) if row < group.end => group,
            _ => page.group_of(row)?,
        };
        self.group = Some(group);
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
        let row = self.row.checked_sub(1).ok_or(Damaged("a walk that went to no row"))?;
        page.row(row, directory, name)
    }

    /// The next row of the page.
    pub fn next<'r>(&'r mut self, page: &Page<'r>) -> Result<Option<Row<'r>>, Damaged> {
        if self.advance(page)? { self.row(page).map(Some) } else { Ok(None) }
    }
}
