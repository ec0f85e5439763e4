//! Common part of the headers of segments, archived segments and runs: a version at byte 8, and a
//! checksum of all before it at the end.

use exacat_model::{Error, ErrorKind};

use crate::file_error::corrupt;
use crate::fixed::part;

const VERSION_AT: usize = 8;

fn fits(header: &[u8]) -> bool {
    let Some((said, sum)) = header.split_last_chunk::<4>() else { return false };
    *sum == crc32fast::hash(said).to_le_bytes()
}

/// Writes the checksum of all before it to the last bytes of a header.
pub fn seal(header: &mut [u8]) {
    if let Some((said, sum)) = header.split_last_chunk_mut::<4>() {
        *sum = crc32fast::hash(said).to_le_bytes();
    }
}

/// Fails unless the header of `file` is whole, and of a version up to `known`. A later version is
/// refused, not called damaged: only a newer release can judge its content. A wrong version in an
/// otherwise known header is damage.
pub fn check(file: &str, header: &[u8], known: u16) -> Result<(), Error> {
    let version = u16::from_le_bytes(part(header, VERSION_AT));
    if version > known {
        let mut as_known = header.to_vec();
        let is_known = (1..=known).any(|known| {
            as_known[VERSION_AT..VERSION_AT + 2].copy_from_slice(&known.to_le_bytes());
            fits(&as_known)
        });
        if is_known {
            return Err(corrupt(file, VERSION_AT as u64, "the header's version is damaged"));
        }
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{file} has format version {version}, this release reads up to {known}: use a newer one"),
        ));
    }
    if fits(header) { Ok(()) } else { Err(corrupt(file, 0, "the header fails its checksum")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_version_is_told_from_a_damaged_one() {
        let header = |version: u16| {
            let mut header = b"eightbyt".to_vec();
            header.extend(version.to_le_bytes());
            header.extend([7; 20]);
            header.extend(crc32fast::hash(&header).to_le_bytes());
            header
        };
        assert!(check("f", &header(1), 2).is_ok() && check("f", &header(2), 2).is_ok());
        assert_eq!(check("f", &header(3), 2).unwrap_err().kind, ErrorKind::Invalid);
        for byte in 0..header(2).len() {
            let mut damaged = header(2);
            damaged[byte] ^= 0x41;
            assert_eq!(check("f", &damaged, 2).unwrap_err().kind, ErrorKind::Corrupt, "byte {byte}");
        }
    }
}
