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
//! The time is that of the record, in ms since 1970.

use std::path::Path;

use exacat_disk::{
    Disk, TitledLines, cannot_read, cannot_write, corrupt, hex_of, read_text, titled_text, write_small,
};
use exacat_model::{Error, Revision, TimeMs};

use crate::segment::CatalogueId;

/// Name of the file in the directory of a snapshot.
pub const FILE: &str = "MOMENT";
/// First line of the file, before its version.
const TITLE: &str = "exacat history moment, layout";
/// Version of the file.
const VERSION: u32 = 1;

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
        let (id, digest) = (hex_of(self.log_of), hex_of(self.digest.to_be_bytes()));
        let lines: [(&str, &dyn std::fmt::Display); 4] =
            [("id", &id), ("revision", &self.revision.0), ("digest", &digest), ("time", &self.time.0)];
        titled_text(TITLE, VERSION, &lines)
    }

    fn decode(text: &str) -> Result<Self, &'static str> {
        let mut lines = TitledLines::of(text, TITLE, VERSION)?;
        let log_of = lines.id("id")?;
        let revision = Revision(lines.number("revision")?);
        let digest = u128::from_be_bytes(lines.id("digest")?);
        Ok(Moment { revision, time: TimeMs(lines.number("time")?), digest, log_of })
    }

    /// Reads the moment of the snapshot in a directory; none if no snapshot is there.
    pub fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(FILE);
        let name = path.display().to_string();
        let text = read_text(disk, &path).map_err(|error| cannot_read(&name, &error))?;
        text.map(|text| Self::decode(&text).map_err(|what| corrupt(&name, 0, what))).transpose()
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
        assert_eq!(Moment::decode(&text), Ok(moment));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(Moment::decode(&String::from_utf8_lossy(&bytes)).is_err(), "byte {at}");
            assert!(Moment::decode(&text[..at]).is_err(), "cut at {at}");
        }
    }
}
