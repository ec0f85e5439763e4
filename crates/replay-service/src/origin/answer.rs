//! Answers: short ones as bytes, reads as a place in a file, whose bytes are made when they are sent.

use std::ops::Range;

use exacat_replay::content::{BLOCK, ContentName, HEAD};
use exacat_wire::xrootd::file_response::{write_data_header, write_pages_header};
use exacat_wire::xrootd::limits::SEGMENT_HEADER_BYTES;
use exacat_wire::xrootd::pages::paged_bytes;
use exacat_wire::xrootd::{FileRange, StreamId};

use super::batch::Batch;
use super::limits::BATCH_BYTES;
use super::templates::{PAGE, Templates};

/// Bytes of a file that are to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub name: ContentName,
    pub offset: u64,
    pub left: u64,
}

/// An answer, or the rest of one.
#[derive(Debug)]
pub(super) enum Answer {
    /// Bytes that are ready.
    Bytes(Vec<u8>),
    /// Bytes of a file. The header is written first.
    Read { header: Option<StreamId>, run: Run },
    /// Pages of a file, each with a checksum.
    Pages { stream: StreamId, run: Run, is_begun: bool },
    /// Ranges of files.
    Vector(VectorAnswer),
}

/// Answer to a vector read.
#[derive(Debug)]
pub(super) struct VectorAnswer {
    header: Option<StreamId>,
    ranges: Vec<(ContentName, FileRange)>,
    /// Next range.
    at: usize,
    run: Option<Run>,
}

impl VectorAnswer {
    /// Makes the answer; none if it has more bytes than an answer can have.
    pub(super) fn new(stream: StreamId, ranges: Vec<(ContentName, FileRange)>) -> Option<Self> {
        let answer = VectorAnswer { header: Some(stream), ranges, at: 0, run: None };
        // Clients read the length as a number with a sign.
        i32::try_from(answer.bytes()).ok().map(|_| answer)
    }

    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, range)| u64::from(range.length) + SEGMENT_HEADER_BYTES as u64).sum()
    }

    fn fill(&mut self, batch: &mut Batch) -> bool {
        if let Some(stream) = self.header.take() {
            let bytes = u32::try_from(self.bytes()).unwrap_or(u32::MAX);
            batch.write(|out| write_data_header(out, stream, bytes));
        }
        loop {
            if let Some(run) = &mut self.run
                && !run.fill(batch)
            {
                return false;
            }
            let Some((name, range)) = self.ranges.get(self.at) else { return true };
            self.at += 1;
            batch.write(|out| range.write(out));
            self.run = Some(Run { name: *name, offset: range.offset, left: range.length.into() });
        }
    }
}

/// Says whether a batch takes no more.
fn is_full(batch: &Batch) -> bool {
    batch.is_full() || batch.left() >= BATCH_BYTES
}

impl Run {
    /// Returns the number of the block, the place in it, and the bytes up to its end or that of the run.
    fn here(&self) -> (u64, usize, usize) {
        let within = (self.offset % BLOCK as u64) as usize;
        let count = ((BLOCK - within) as u64).min(self.left);
        (self.offset / BLOCK as u64, within, count as usize)
    }

    fn taken(&mut self, count: usize) {
        self.offset += count as u64;
        self.left -= count as u64;
    }

    /// Adds the bytes that a batch takes. True if they were the last.
    fn fill(&mut self, batch: &mut Batch) -> bool {
        while self.left > 0 && !is_full(batch) {
            let (number, within, count) = self.here();
            put(self.name, number, within..within + count, batch);
            self.taken(count);
        }
        self.left == 0
    }
}

/// Adds bytes of one block.
fn put(name: ContentName, number: u64, range: Range<usize>, batch: &mut Batch) {
    if range.start < HEAD {
        batch.put_content(&name.head(number)[range.start..range.end.min(HEAD)]);
    }
    batch.put_block(range.start.max(HEAD).min(range.end)..range.end);
}

/// Adds the pages of one block.
fn put_pages(run: &Run, number: u64, range: Range<usize>, templates: &Templates, batch: &mut Batch) {
    let head = run.name.head(number);
    let mut at = range.start;
    while at < range.end {
        let page = at / PAGE;
        let whole = range.end / PAGE;
        if at.is_multiple_of(PAGE) && page > 0 && whole > page {
            batch.put_pages(page..whole);
            at = whole * PAGE;
            continue;
        }
        // The first page has the head of the file, the first and last of the run may be parts.
        let end = ((page + 1) * PAGE).min(range.end);
        let checksum = templates.checksum(&head, at, end);
        batch.write(|out| out.extend_from_slice(&checksum.to_be_bytes()));
        put(run.name, number, at..end, batch);
        at = end;
    }
}

impl Answer {
    /// Returns the memory of an answer that waits.
    pub(super) fn memory(&self) -> usize {
        let own = match self {
            Answer::Bytes(bytes) => bytes.capacity(),
            Answer::Vector(vector) => vector.ranges.capacity() * size_of::<(ContentName, FileRange)>(),
            Answer::Read { .. } | Answer::Pages { .. } => 0,
        };
        own + size_of::<Answer>()
    }

    /// Adds the bytes that a batch takes. True if the answer ends with them.
    pub(super) fn fill(&mut self, templates: &Templates, batch: &mut Batch) -> bool {
        match self {
            Answer::Bytes(bytes) => {
                batch.write(|out| out.extend_from_slice(bytes));
                true
            }
            Answer::Read { header, run } => {
                if let Some(stream) = header.take() {
                    let bytes = u32::try_from(run.left).unwrap_or(u32::MAX);
                    batch.write(|out| write_data_header(out, stream, bytes));
                }
                run.fill(batch)
            }
            Answer::Pages { stream, run, is_begun } => {
                // A read behind the end has an answer without pages.
                while (run.left > 0 || !*is_begun) && !is_full(batch) {
                    let (number, within, count) = run.here();
                    let bytes = u32::try_from(paged_bytes(run.offset, count as u64)).unwrap_or(u32::MAX);
                    let is_last = run.left == count as u64;
                    batch.write(|out| write_pages_header(out, *stream, run.offset, bytes, is_last));
                    put_pages(run, number, within..within + count, templates, batch);
                    run.taken(count);
                    *is_begun = true;
                }
                run.left == 0
            }
            Answer::Vector(vector) => vector.fill(batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use exacat_replay::content::Content;
    use exacat_wire::xrootd::FileHandle;
    use exacat_wire::xrootd::file_response::PAGES_HEADER_BYTES;

    use super::*;
    use crate::origin::limits::PIECES_MAX;

    const NAME: &str = "/a/b";

    fn sent(answer: &mut Answer, templates: &Templates) -> Vec<u8> {
        let (mut out, mut is_done) = (Vec::new(), false);
        while !is_done {
            let mut batch = Batch::default();
            is_done = answer.fill(templates, &mut batch);
            assert!(batch.left() <= BATCH_BYTES + 2 * BLOCK, "{}", batch.left());
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let count = batch.slices(templates, usize::MAX, &mut slices);
            let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(bytes.len(), batch.left(), "one write has room for a batch");
            assert!(!bytes.is_empty(), "each batch has something");
            out.extend(bytes);
        }
        out
    }

    fn content(offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        Content::default().fill(NAME, offset, &mut bytes);
        bytes
    }

    const CASES: [(u64, usize); 14] = [
        (0, 0),
        (0, 1),
        (0, 16),
        (3, 5),
        (15, 2),
        (4096, 4096),
        (4090, 10),
        (0, BLOCK),
        (BLOCK as u64 - 1, 2),
        (BLOCK as u64 + 5, 3 * BLOCK),
        (7 * BLOCK as u64 - 4096, 8192),
        (1 << 40, 70_000),
        (123_457, 5 * BLOCK + 77),
        (8192, 100_000),
    ];

    /// Property: a read has the bytes of the content, from any place and of any length.
    #[test]
    fn reads_have_the_bytes_of_the_content() {
        let templates = Templates::new();
        for (offset, length) in CASES {
            let run = Run { name: ContentName::of(NAME), offset, left: length as u64 };
            let out = sent(&mut Answer::Read { header: Some(StreamId([1, 2])), run }, &templates);
            assert_eq!(out[..8], [&[1, 2, 0, 0][..], &(length as u32).to_be_bytes()].concat());
            assert!(out[8..] == content(offset, length), "{offset} {length}");
        }
    }

    /// Property: pages have the same bytes, each page its checksum, and the frames end with the last one.
    #[test]
    fn pages_have_the_bytes_of_the_content_and_checksums() {
        let templates = Templates::new();
        for (offset, length) in CASES {
            let run = Run { name: ContentName::of(NAME), offset, left: length as u64 };
            let answer = &mut Answer::Pages { stream: StreamId([1, 2]), run, is_begun: false };
            let (out, mut got, mut at) = (sent(answer, &templates), Vec::new(), 0);
            loop {
                let header = &out[at..at + PAGES_HEADER_BYTES];
                let number = |place: usize| u32::from_be_bytes(header[place..place + 4].try_into().unwrap());
                let place = u64::from_be_bytes(header[24..32].try_into().unwrap());
                assert_eq!(place, offset + got.len() as u64);
                let (is_last, bytes) = (header[15] == 0, number(20) as usize);
                at += PAGES_HEADER_BYTES;
                let mut pages = &out[at..at + bytes];
                at += bytes;
                while !pages.is_empty() {
                    let here = (offset + got.len() as u64) % PAGE as u64;
                    let (unit, rest) = pages.split_at(pages.len().min(4 + PAGE - here as usize));
                    assert_eq!(unit[..4], crc32c::crc32c(&unit[4..]).to_be_bytes());
                    got.extend_from_slice(&unit[4..]);
                    pages = rest;
                }
                if is_last {
                    break;
                }
            }
            assert_eq!(at, out.len());
            assert!(got == content(offset, length), "{offset} {length}");
        }
    }

    /// Property: a vector read has each range behind its header, also those without bytes.
    #[test]
    fn ranges_have_the_bytes_of_the_content() {
        let templates = Templates::new();
        let ranges: Vec<(ContentName, FileRange)> = CASES
            .iter()
            .map(|(offset, length)| {
                let range =
                    FileRange { handle: FileHandle([0, 0, 0, 3]), offset: *offset, length: *length as u32 };
                (ContentName::of(NAME), range)
            })
            .collect();
        let vector = VectorAnswer::new(StreamId([1, 2]), ranges).unwrap();
        let out = sent(&mut Answer::Vector(vector), &templates);
        let (length, mut rest) = out[4..].split_at(4);
        assert_eq!(length, ((out.len() - 8) as u32).to_be_bytes());
        for (offset, length) in CASES {
            assert_eq!(rest[..8], [&[0, 0, 0, 3][..], &(length as u32).to_be_bytes()].concat());
            assert_eq!(rest[8..16], offset.to_be_bytes());
            assert!(rest[16..16 + length] == content(offset, length));
            rest = &rest[16 + length..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_vector_answer_that_clients_cannot_count_is_none() {
        let range = FileRange { handle: FileHandle::default(), offset: 0, length: (2 << 20) - 16 };
        let make =
            |count| VectorAnswer::new(StreamId::default(), vec![(ContentName::of(NAME), range); count]);
        assert!(make(1023).is_some() && make(1024).is_none());
    }
}
