//! Responses of a server that has files: to opens and reads. The bytes of a file follow a header that is
//! written here, so that their owner sends them without a copy.

use super::file_request::FileHandle;
use super::limits::RESPONSE_HEADER_BYTES;
use super::numbers::{PROTOCOL_VERSION, status};
use super::pages::{PAGE_HEADER_BYTES, PageHeader};
use super::request::StreamId;
use super::response::{self, Stat};

/// Bytes of the header of an answer to a read of pages.
pub const PAGES_HEADER_BYTES: usize = RESPONSE_HEADER_BYTES + PAGE_HEADER_BYTES;

/// Writes the answer of a server with files to the handshake.
pub fn write_handshake(out: &mut Vec<u8>) {
    let mut carried = [0; 8];
    carried[..4].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    carried[7] = 1;
    response::write(out, StreamId::default(), status::OK, &carried);
}

/// Writes the version of the protocol and the roles of a server that wants no request signed, to a client
/// that asks about signatures.
pub fn write_protocol_unsigned(out: &mut Vec<u8>, stream: StreamId, roles: u32) {
    let mut carried = [0; 14];
    carried[..4].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    carried[4..8].copy_from_slice(&roles.to_be_bytes());
    // Version, options and level of the signatures, and the number of exceptions: all 0.
    carried[8] = b'S';
    response::write(out, stream, status::OK, &carried);
}

/// Writes a successful open, with the stat of the file if the client asked for it.
pub fn write_open(out: &mut Vec<u8>, stream: StreamId, handle: FileHandle, stat: Option<&Stat<'_>>) {
    let mut carried = handle.0.to_vec();
    if let Some(stat) = stat {
        // The file is not compressed.
        carried.extend_from_slice(&[0; 8]);
        carried.extend_from_slice(stat.to_string().as_bytes());
        carried.push(0);
    }
    response::write(out, stream, status::OK, &carried);
}

/// Writes the header of a success. `bytes` bytes have to follow.
pub fn write_data_header(out: &mut Vec<u8>, stream: StreamId, bytes: u32) {
    out.extend_from_slice(&stream.0);
    out.extend_from_slice(&status::OK.to_be_bytes());
    out.extend_from_slice(&bytes.to_be_bytes());
}

/// Writes the header of an answer to a read of pages, or of a part of it. The pages have to follow:
/// [`paged_bytes`](super::pages::paged_bytes) bytes, each page after its checksum.
pub fn write_pages_header(out: &mut Vec<u8>, stream: StreamId, offset: u64, bytes: u32, is_last: bool) {
    PageHeader { stream, is_last, bytes, offset }.write(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xrootd::response::ResponseHeader;

    /// Property: the answer to an open is the handle alone, unless a stat was asked for.
    #[test]
    fn opens_are_answered_with_a_stat_when_asked() {
        let (mut out, handle) = (Vec::new(), FileHandle([0, 0, 1, 2]));
        write_open(&mut out, StreamId([9, 8]), handle, None);
        assert_eq!(out, [9, 8, 0, 0, 0, 0, 0, 4, 0, 0, 1, 2]);
        out.clear();
        let stat =
            Stat { id: 5, size: 70, flags: 48, modified: 3, created: 2, mode: 0o644, owner: "o", group: "g" };
        write_open(&mut out, StreamId([9, 8]), handle, Some(&stat));
        assert_eq!(&out[8..20], [0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&out[20..], b"5 70 48 3 2 3 0644 o g\0");
    }

    /// Property: the checksum of the header of pages covers everything behind it.
    #[test]
    fn headers_of_pages_have_their_checksum() {
        let mut out = Vec::new();
        write_pages_header(&mut out, StreamId([1, 2]), 0x1_0000_1000, 4100, true);
        assert_eq!(out.len(), PAGES_HEADER_BYTES);
        let header = ResponseHeader::read(out.first_chunk().unwrap());
        assert_eq!((header.status, header.bytes), (status::STATUS, 24));
        let expected = [1, 2, 30, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x04, 0, 0, 0, 1, 0, 0, 0x10, 0];
        assert_eq!(out[12..], expected);
        assert_eq!(out[8..12], crc32c::crc32c(&expected).to_be_bytes());
        out.clear();
        write_pages_header(&mut out, StreamId([1, 2]), 0, 4100, false);
        assert_eq!(out[15], 1, "a part of several");
    }

    #[test]
    fn a_server_with_files_says_so() {
        let mut out = Vec::new();
        write_handshake(&mut out);
        assert_eq!(out, [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x11, 0, 0, 0, 1]);
        out.clear();
        write_protocol_unsigned(&mut out, StreamId([0, 1]), 0x20_0001);
        assert_eq!(out[4..], [0, 0, 0, 14, 0, 0, 5, 0x11, 0, 0x20, 0, 1, b'S', 0, 0, 0, 0, 0]);
    }
}
