//! Bytes on their way to the network: own ones, and pieces of the templates that are sent without a copy.

use std::io::IoSlice;
use std::ops::Range;

use super::limits::PIECES_MAX;
use super::templates::{PAGE, Templates, UNIT};

/// Memory of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Bytes of this batch: headers.
    Own,
    /// Bytes of this batch that are content of a file.
    OwnContent,
    /// A block.
    Block,
    /// Pages of a block with their checksums.
    Pages,
}

/// A piece.
#[derive(Clone, Debug)]
struct Piece {
    source: Source,
    range: Range<usize>,
}

/// Bytes that are sent together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    own: Vec<u8>,
    pieces: Vec<Piece>,
    /// First piece that is not sent.
    first: usize,
    left: usize,
}

/// Counts of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// All bytes.
    pub bytes: u64,
    /// Bytes of files among them.
    pub content: u64,
}

/// Returns the bytes of files in the first bytes of the pages.
fn content_before(pages: usize) -> usize {
    (pages / UNIT) * PAGE + (pages % UNIT).saturating_sub(UNIT - PAGE)
}

impl Piece {
    fn content(&self, count: usize) -> usize {
        match self.source {
            Source::Own => 0,
            Source::OwnContent | Source::Block => count,
            Source::Pages => content_before(self.range.start + count) - content_before(self.range.start),
        }
    }
}

impl Batch {
    /// Returns the number of bytes that are not sent.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Says whether everything is sent.
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Says whether an answer may add no more pieces: the next write does not take more.
    pub(super) fn is_full(&self) -> bool {
        // The pages of one block are six at most.
        self.pieces.len() + 6 > PIECES_MAX
    }

    /// Writes headers.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.own.len();
        write(&mut self.own);
        self.put(Source::Own, begin..self.own.len());
    }

    /// Adds bytes of a file.
    pub(super) fn put_content(&mut self, bytes: &[u8]) {
        let begin = self.own.len();
        self.own.extend_from_slice(bytes);
        self.put(Source::OwnContent, begin..self.own.len());
    }

    /// Adds bytes of a block.
    pub(super) fn put_block(&mut self, range: Range<usize>) {
        self.put(Source::Block, range);
    }

    /// Adds whole pages of a block, with their checksums.
    pub(super) fn put_pages(&mut self, pages: Range<usize>) {
        self.put(Source::Pages, pages.start * UNIT..pages.end * UNIT);
    }

    fn put(&mut self, source: Source, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.left += range.len();
        match self.pieces.last_mut() {
            Some(last) if last.source == source && last.range.end == range.start => {
                last.range.end = range.end
            }
            _ => self.pieces.push(Piece { source, range }),
        }
    }

    /// Returns the next bytes, at most so many, in the first places of `slices`, and the number of places.
    pub(super) fn slices<'a>(
        &'a self,
        templates: &'a Templates,
        most: usize,
        slices: &mut [IoSlice<'a>; PIECES_MAX],
    ) -> usize {
        let (mut count, mut room) = (0, most);
        for (piece, slice) in self.pieces.iter().skip(self.first).zip(slices.iter_mut()) {
            let memory = match piece.source {
                Source::Own | Source::OwnContent => &self.own,
                Source::Block => templates.block(),
                Source::Pages => templates.pages(),
            };
            let bytes = memory.get(piece.range.clone()).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(room)];
            if bytes.is_empty() {
                break;
            }
            *slice = IoSlice::new(bytes);
            room -= bytes.len();
            count += 1;
        }
        count
    }

    /// Takes out bytes that were sent.
    pub(super) fn sent(&mut self, count: usize) -> Sent {
        let mut rest = count.min(self.left);
        let mut sent = Sent { bytes: rest as u64, content: 0 };
        self.left -= rest;
        while let Some(piece) = self.pieces.get_mut(self.first)
            && rest > 0
        {
            let taken = piece.range.len().min(rest);
            sent.content += piece.content(taken) as u64;
            piece.range.start += taken;
            rest -= taken;
            if piece.range.is_empty() {
                self.first += 1;
            }
        }
        if self.left == 0 {
            self.own.clear();
            self.pieces.clear();
            self.first = 0;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(batch: &Batch, templates: &Templates, most: usize) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let count = batch.slices(templates, most, &mut slices);
        slices[..count].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    /// Property: however small the writes, the same bytes leave, and those of files are counted exactly.
    #[test]
    fn bytes_leave_in_their_order_in_any_pieces() {
        let templates = Templates::new();
        let fill = || {
            let mut batch = Batch::default();
            batch.write(|out| out.extend_from_slice(b"head"));
            batch.put_content(b"content");
            batch.put_block(100..5000);
            batch.put_pages(3..5);
            batch.write(|out| out.push(1));
            batch
        };
        let whole = all(&fill(), &templates, usize::MAX);
        assert_eq!(whole.len(), 4 + 7 + 4900 + 2 * UNIT + 1);
        for step in [1, 3, 7, 4096, 4101, usize::MAX] {
            let (mut batch, mut out, mut content) = (fill(), Vec::new(), 0);
            while !batch.is_empty() {
                let some = all(&batch, &templates, step);
                assert!(some.len() <= step);
                let sent = batch.sent(some.len());
                assert_eq!(sent.bytes, some.len() as u64);
                content += sent.content;
                out.extend(some);
            }
            assert_eq!((out.len(), content), (whole.len(), 7 + 4900 + 2 * PAGE as u64), "{step}");
            assert!(out == whole, "{step}");
            assert_eq!(batch.sent(5), Sent::default());
        }
    }

    #[test]
    fn neighbours_are_one_piece() {
        let mut batch = Batch::default();
        for byte in 0..200 {
            batch.write(|out| out.push(byte));
            batch.write(|_| {});
        }
        assert!(!batch.is_full());
        for _ in 0..PIECES_MAX - 6 {
            assert!(!batch.is_full());
            batch.put_block(0..1);
        }
        assert!(batch.is_full());
    }
}
