//! The file MOMENT of a snapshot of a history: the last record of the log that the snapshot has.
//!
//! ```text
//! exacat history moment, layout 1
//! id 0123456789abcdef0123456789abcdef
//! revision 4711
//! digest 00112233445566778899aabbccddeeff
//! time 1795608000000
//! crc 01234567
//! ```
//! The time is that of the record, in ms since 1970. Only the exact text that was written is accepted.

use std::path::Path;

use exacat_disk::{Disk, cannot_read, cannot_write, corrupt, read_text, write_small};
use exacat_model::{Error, Revision, TimeMs};

use crate::segment::CatalogueId;

/// Name of the file in the directory of a snapshot.
pub const FILE: &str = "MOMENT";

/// Place in a log: the last record that a snapshot or a restored state has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Last record.
    pub revision: Revision,
    /// Time of that record.
    pub time: TimeMs,
    /// Digest of all records up to it.
    pub digest: u128,
    /// Owner of the log.
    pub log_of: CatalogueId,
}

impl Moment {
    fn encode(&self) -> String {
        let body = format!(
            "exacat history moment, layout 1\nid {:032x}\nrevision {}\ndigest {:032x}\ntime {}\n",
            u128::from_be_bytes(self.log_of),
            self.revision.0,
            self.digest,
            self.time.0
        );
        format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes()))
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines().skip(1);
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let log_of = u128::from_str_radix(field("id")?, 16).ok()?.to_be_bytes();
        let revision = Revision(field("revision")?.parse().ok()?);
        let digest = u128::from_str_radix(field("digest")?, 16).ok()?;
        let time = TimeMs(field("time")?.parse().ok()?);
        let moment = Moment { revision, time, digest, log_of };
        (moment.encode() == text).then_some(moment)
    }

    /// Reads the moment of the snapshot in a directory; none if no snapshot is there.
    pub fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(FILE);
        let name = path.display().to_string();
        let text = read_text(disk, &path).map_err(|error| cannot_read(&name, &error))?;
        let decode = |text: String| {
            Self::decode(&text).ok_or_else(|| corrupt(&name, 0, "the file is damaged, or of a newer release"))
        };
        text.map(decode).transpose()
    }

    /// Writes the file; the caller syncs the directory.
    pub fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<(), Error> {
        let path = directory.join(FILE);
        write_small(disk, &path, self.encode().as_bytes()).map_err(|error| cannot_write(&path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text is read as written, or not at all.
    #[test]
    fn moment_is_read_as_written_or_not_at_all() {
        let moment = Moment {
            revision: Revision(4711),
            time: TimeMs(1_795_608_000_000),
            digest: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            log_of: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes(),
        };
        let text = moment.encode();
        assert_eq!(text, include_str!("golden/moment-v1.txt"));
        assert_eq!(Moment::decode(&text), Some(moment));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(Moment::decode(&String::from_utf8_lossy(&bytes)), None, "byte {at}");
            assert_eq!(Moment::decode(&text[..at]), None, "cut at {at}");
        }
    }
}
