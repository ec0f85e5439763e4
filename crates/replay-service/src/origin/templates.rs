//! Bytes that all files share, once as they are and once in pages with checksums: reads of both kinds send
//! them without a copy.

use exacat_replay::content::{BLOCK, Content, HEAD};
use exacat_wire::xrootd::limits::{CHECKSUM_BYTES, PAGE_BYTES};

/// Bytes of a page.
pub(super) const PAGE: usize = PAGE_BYTES;
/// Bytes of a page and its checksum.
pub(super) const UNIT: usize = PAGE + CHECKSUM_BYTES;

/// The shared bytes.
pub(super) struct Templates {
    content: Content,
    /// Pages of a block, each behind its checksum. The first has the head of no file.
    pages: Box<[u8]>,
}

impl Templates {
    pub(super) fn new() -> Self {
        let content = Content::default();
        let mut pages = Vec::with_capacity(BLOCK / PAGE * UNIT);
        for page in content.block().chunks(PAGE) {
            pages.extend_from_slice(&crc32c::crc32c(page).to_be_bytes());
            pages.extend_from_slice(page);
        }
        Templates { content, pages: pages.into() }
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    /// Returns a block; its first [`HEAD`] bytes are of no file.
    pub(super) fn block(&self) -> &[u8] {
        self.content.block()
    }

    /// Returns the pages of a block; the first is of no file.
    pub(super) fn pages(&self) -> &[u8] {
        &self.pages
    }

    /// Returns the checksum of bytes within one page of a block with a head.
    pub(super) fn checksum(&self, head: &[u8; HEAD], begin: usize, end: usize) -> u32 {
        let of_head = head.get(begin..end.min(HEAD)).unwrap_or_default();
        let rest = self.block().get(begin.max(HEAD)..end).unwrap_or_default();
        crc32c::crc32c_append(crc32c::crc32c(of_head), rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: pages have the checksums of their bytes, and a checksum covers the head where it is in.
    #[test]
    fn checksums_are_those_of_the_pages() {
        let templates = Templates::new();
        assert_eq!(templates.pages().len(), BLOCK / PAGE * UNIT);
        for unit in templates.pages().chunks(UNIT).skip(1) {
            assert_eq!(unit[..4], crc32c::crc32c(&unit[4..]).to_be_bytes());
        }
        let head = [9; HEAD];
        let mut block = templates.block().to_vec();
        block[..HEAD].copy_from_slice(&head);
        for (begin, end) in
            [(0, PAGE), (0, 5), (3, 16), (5, 40), (16, 100), (20, 4000), (PAGE, 2 * PAGE), (7, 7)]
        {
            assert_eq!(
                templates.checksum(&head, begin, end),
                crc32c::crc32c(&block[begin..end]),
                "{begin} {end}"
            );
        }
    }
}
