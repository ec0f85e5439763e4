//! Metalink: the places of one file, for clients that try several.

use exacat_model::{ChecksumAlgorithm, Checksums};

use super::xml::{DECLARATION, push_attribute, push_number, push_text};

/// Media type of the document.
pub const MEDIA_TYPE: &str = "application/metalink4+xml";

/// One file and its places.
#[derive(Clone, Copy, Debug)]
pub struct Metalink<'a> {
    /// Name of the file: one component, since clients store the file under it.
    pub name: &'a str,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Known checksums.
    pub checksums: &'a Checksums,
    /// URLs, the best first. The place in the list is the priority.
    pub urls: &'a [String],
}

impl Metalink<'_> {
    /// Appends the document.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(DECLARATION);
        out.extend_from_slice(b"<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"");
        push_attribute(out, self.name);
        out.extend_from_slice(b"\">");
        if let Some(size) = self.size {
            out.extend_from_slice(b"<size>");
            push_number(out, size);
            out.extend_from_slice(b"</size>");
        }
        for checksum in self.checksums.iter() {
            out.extend_from_slice(b"<hash type=\"");
            out.extend_from_slice(match checksum.algorithm() {
                ChecksumAlgorithm::Adler32 => b"adler32",
                ChecksumAlgorithm::Crc32c => b"crc32c",
                ChecksumAlgorithm::Md5 => b"md5",
                ChecksumAlgorithm::Sha1 => b"sha-1",
                ChecksumAlgorithm::Sha256 => b"sha-256",
            });
            out.extend_from_slice(b"\">");
            let text = checksum.to_string();
            out.extend_from_slice(text.split_once(':').map_or("", |(_, digits)| digits).as_bytes());
            out.extend_from_slice(b"</hash>");
        }
        for (url, priority) in self.urls.iter().zip(1..) {
            out.extend_from_slice(b"<url priority=\"");
            push_number(out, priority);
            out.extend_from_slice(b"\">");
            push_text(out, url);
            out.extend_from_slice(b"</url>");
        }
        out.extend_from_slice(b"</file></metalink>\n");
    }
}
