//! The file SNAPSHOT: the label of a snapshot or a backup. It is text for a person who looks into
//! the directory. Only the exact text that was written is accepted.
//!
//! ```text
//! exacat snapshot
//! version 2
//! name before-upgrade
//! revision 1099511627776
//! time 1790000000000
//! entries 200000000
//! digest 00112233445566778899aabbccddeeff
//! catalogue 0123456789abcdef0123456789abcdef
//! timeline 3f9a1c00112233445566778899aabbcc
//! checksum 01234567
//! ```
//! Version 1 has no timeline: it follows from the catalogue. The time is that of the snapshot, in
//! ms since 1970. The checksum is CRC-32 of the lines before it.

use std::path::Path;

use exacat_disk::{Disk, cannot_read, cannot_write, read_text, write_small};
use exacat_log::segment::CatalogueId;
use exacat_model::{Error, ErrorKind, Result, Revision, SnapshotName, TimeMs, TimelineId};

use crate::checked_text::{check_checksum, check_version, with_checksum};
use crate::identity::{hex, parse_hex};

/// Version of the format that this release writes.
const VERSION: u32 = 2;
/// First version with a timeline.
const VERSION_WITH_TIMELINE: u32 = 2;
/// Name of the file in a snapshot's directory.
pub(crate) const FILE: &str = "SNAPSHOT";

/// Label of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub name: SnapshotName,
    /// Last change in it.
    pub revision: Revision,
    /// Time at which it was taken.
    pub time: TimeMs,
    /// Entries, without the root.
    pub entries: u64,
    /// Digest of the state.
    pub digest: u128,
    pub catalogue: CatalogueId,
    /// Timeline of the last change.
    pub timeline: TimelineId,
}

impl Label {
    pub(crate) fn encode(&self) -> String {
        self.encode_as(VERSION)
    }

    fn encode_as(&self, version: u32) -> String {
        let mut text = format!(
            "exacat snapshot\nversion {version}\nname {}\nrevision {}\ntime {}\nentries {}\ndigest {:032x}\ncatalogue {}\n",
            self.name,
            self.revision.0,
            self.time.0,
            self.entries,
            self.digest,
            hex(self.catalogue),
        );
        if version >= VERSION_WITH_TIMELINE {
            text.push_str(&format!("timeline {}\n", self.timeline));
        }
        with_checksum(text)
    }

    /// Parses a text, and returns what it prints as.
    pub(crate) fn read_again(text: &str) -> Result<String> {
        Self::decode(text).map(|_| text.to_owned())
    }

    pub(crate) fn decode(text: &str) -> Result<Self> {
        let corrupt = |what: &str| Error::new(ErrorKind::Corrupt, format!("{what} is missing or damaged"));
        let mut lines = text.lines();
        if lines.next() != Some("exacat snapshot") {
            return Err(corrupt("the first line"));
        }
        check_version(lines.next(), VERSION)?;
        check_checksum(text)?;
        let version = if text.lines().nth(1) == Some("version 1") { 1 } else { VERSION };
        let mut field = |name: &'static str| -> Result<&str> {
            let value = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.ok_or_else(|| corrupt(name))
        };
        let name = SnapshotName::parse(field("name")?).map_err(|_| corrupt("name"))?;
        let mut number = |name: &'static str| field(name)?.parse::<u64>().map_err(|_| corrupt(name));
        let (revision, time, entries) = (number("revision")?, number("time")?, number("entries")?);
        let digest = parse_hex(field("digest")?).ok_or_else(|| corrupt("digest"))?;
        let catalogue = parse_hex(field("catalogue")?).ok_or_else(|| corrupt("catalogue"))?;
        let timeline = match version {
            VERSION_WITH_TIMELINE.. => {
                TimelineId::parse(field("timeline")?).map_err(|_| corrupt("timeline"))?
            }
            _ => TimelineId::of_catalogue(catalogue),
        };
        let label = Label {
            name,
            timeline,
            revision: Revision(revision),
            time: TimeMs(time),
            entries,
            digest: u128::from_be_bytes(digest),
            catalogue,
        };
        // Encoding again rejects every text that was not written exactly so.
        if label.encode_as(version) == text { Ok(label) } else { Err(corrupt("a line")) }
    }

    /// Loads the label in this directory.
    pub(crate) fn load(disk: &dyn Disk, directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let shown = path.display().to_string();
        let text = read_text(disk, &path).map_err(|error| cannot_read(&shown, &error))?;
        let text = text.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{shown} is not there")))?;
        Self::decode(&text).map_err(|error| Error::new(error.kind, format!("{shown}: {error}")))
    }

    /// Writes the label; its name is durable once the caller has synced the directory.
    pub(crate) fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        write_small(disk, &path, self.encode().as_bytes()).map_err(|error| cannot_write(&path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN_V1: &str = include_str!("../tests/golden/snapshot-v1.txt");
    const GOLDEN: &str = include_str!("../tests/golden/snapshot-v2.txt");

    fn label() -> Label {
        Label {
            name: SnapshotName::parse("before-upgrade").unwrap(),
            revision: Revision(1 << 40),
            time: TimeMs(1_790_000_000_000),
            entries: 200_000_000,
            digest: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            catalogue: *b"golden catalogue",
            timeline: TimelineId(*b"golden timeline!"),
        }
    }

    #[test]
    fn label_of_each_version_is_read_as_it_was_written() {
        assert_eq!(label().encode(), GOLDEN, "it is written otherwise than version 2 wrote");
        assert_eq!(Label::decode(GOLDEN).unwrap(), label());
        let timeline = TimelineId::of_catalogue(label().catalogue);
        assert_eq!(Label::decode(GOLDEN_V1).unwrap(), Label { timeline, ..label() });
    }

    /// Goal: a label is read exactly as written, or not at all.
    #[test]
    fn a_changed_byte_is_found() {
        let text = label().encode();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(Label::decode(&String::from_utf8_lossy(&bytes)).is_err(), "byte {at}");
            assert!(Label::decode(&text[..at]).is_err(), "cut at {at}");
        }
        assert!(Label::decode(&format!("{text}\n")).is_err());
        let newer = Label::decode(&text.replace("version 2", "version 3")).unwrap_err();
        assert_eq!(newer.kind, ErrorKind::Invalid);
    }
}
