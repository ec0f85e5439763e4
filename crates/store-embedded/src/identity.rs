//! The identity of the catalogue in a data directory: the file `CATALOGUE`, and the lock against a
//! second process.
//!
//! The file is text, for a person who looks into the directory:
//! ```text
//! exacat catalogue
//! version 2
//! id 0123456789abcdef0123456789abcdef
//! origin fedcba9876543210fedcba9876543210
//! timeline 3f9a1c00112233445566778899aabbcc
//! timeline d07be200112233445566778899aabbcc of 3f9a1c00112233445566778899aabbcc after 2265
//! checksum 01234567
//! ```
//! A clone has an `origin` line for the catalogue that it was made from, and for each catalogue
//! further back: it has runs of all of them. The `timeline` lines are all remembered timelines, the
//! current one last. Version 1 has none: its timeline follows from the id. The first stage wrote
//! version 1 without a checksum.

use std::io;
use std::path::{Path, PathBuf};

use exacat_disk::{Disk, cannot_read, cannot_write, random_id, read_text, replace_small};
use exacat_log::segment::{BegunFor, CatalogueId};
use exacat_model::{Error, ErrorKind, Revision, Timeline, TimelineId, Timelines};

use crate::checked_text::{check_checksum, check_version, with_checksum};
use crate::settings::ORIGINS_MAX;

/// Version of the directory's layout that this release makes.
const VERSION: u32 = 2;
/// Last version without timelines.
const VERSION_WITHOUT_TIMELINES: u32 = 1;
pub(crate) const FILE: &str = "CATALOGUE";
const LOCK: &str = "LOCK";

/// Identity of a catalogue, by which its files are recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Number of the catalogue.
    pub id: CatalogueId,
    /// Origins of a clone, the nearest first.
    pub origins: Vec<CatalogueId>,
    /// Timelines of the catalogue.
    pub timelines: Timelines,
}

impl Identity {
    /// Creates the identity of a new catalogue or clone.
    pub(crate) fn new(origins: Vec<CatalogueId>) -> Result<Self, Error> {
        if origins.len() > ORIGINS_MAX {
            return Err(Error::limit(
                "the number of catalogues a clone goes back to",
                origins.len(),
                ORIGINS_MAX,
            ));
        }
        let timelines = Timelines::new(TimelineId(random_id()?));
        Ok(Identity { id: random_id()?, origins, timelines })
    }

    /// Returns the catalogue and timeline of new segments.
    pub(crate) fn begun_for(&self) -> BegunFor {
        BegunFor { catalogue: self.id, timeline: self.timelines.current() }
    }

    /// Begins a timeline after a revision of `before`: later changes of `before` are replaced.
    pub(crate) fn begin_timeline(&mut self, before: TimelineId, after: Revision) -> Result<(), Error> {
        self.timelines.begin(TimelineId(random_id()?), before, after);
        Ok(())
    }

    /// Returns the catalogue under which its runs are written: the first of its ancestry. All runs
    /// that are read together then hash keys alike, because the hash depends on this.
    pub(crate) fn writes_runs_of(&self) -> CatalogueId {
        self.origins.last().copied().unwrap_or(self.id)
    }

    /// Says whether it may have runs of this catalogue.
    pub(crate) fn has_runs_of(&self, catalogue: CatalogueId) -> bool {
        self.id == catalogue || self.origins.contains(&catalogue)
    }

    /// Returns the text of the file.
    pub(crate) fn encode(&self) -> String {
        self.encode_as(VERSION)
    }

    /// Reads the text of the file.
    pub(crate) fn decode(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|(kind, what)| Error::new(kind, what))
    }

    fn encode_as(&self, version: u32) -> String {
        let mut text = format!("exacat catalogue\nversion {version}\nid {}\n", hex(self.id));
        for origin in &self.origins {
            text.push_str(&format!("origin {}\n", hex(*origin)));
        }
        if version > VERSION_WITHOUT_TIMELINES {
            for Timeline { id, parted } in self.timelines.all() {
                match parted {
                    None => text.push_str(&format!("timeline {id}\n")),
                    Some((before, after)) => {
                        text.push_str(&format!("timeline {id} of {before} after {}\n", after.0));
                    }
                }
            }
        }
        with_checksum(text)
    }
}

impl From<CatalogueId> for Identity {
    /// Creates the identity of a catalogue that is no clone.
    fn from(id: CatalogueId) -> Self {
        Identity { id, origins: Vec::new(), timelines: Timelines::new(TimelineId::of_catalogue(id)) }
    }
}

/// Returns a catalogue's number as text.
pub(crate) fn hex(id: CatalogueId) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

/// Parses a catalogue's number.
pub(crate) fn parse_hex(text: &str) -> Option<CatalogueId> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(u128::to_be_bytes)
}

/// Layout of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Layout { root: root.to_owned() }
    }

    /// Returns the directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Returns the directory of the runs.
    pub(crate) fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Returns the directory of the snapshots, each in a directory of its name.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Returns the directory in which a restore prepares the new log and runs.
    pub(crate) fn prepared(&self) -> PathBuf {
        self.root.join("restore.prepared")
    }

    /// Returns the directory of replaced copies, each in a directory of the next number.
    pub(crate) fn replaced(&self) -> PathBuf {
        self.root.join("replaced")
    }

    /// Returns the directory of files that are sorted for a bulk load.
    pub(crate) fn load(&self) -> PathBuf {
        self.root.join("load")
    }

    /// Returns the directory of sorted operation ids of the log. Each process that needs it makes
    /// it anew.
    pub(crate) fn operations(&self) -> PathBuf {
        self.root.join("operations")
    }

    /// Returns the directory of the files that a follower copies.
    pub(crate) fn copying(&self) -> PathBuf {
        self.root.join("copying")
    }

    /// Creates the directory itself.
    pub(crate) fn create_root(&self, disk: &dyn Disk) -> Result<(), Error> {
        disk.create_directory(&self.root).map_err(|error| cannot_write(&self.root, &error))
    }

    /// Creates the directories in it.
    pub(crate) fn create(&self, disk: &dyn Disk) -> Result<(), Error> {
        for directory in [&self.root, &self.log(), &self.runs()] {
            disk.create_directory(directory).map_err(|error| cannot_write(directory, &error))?;
        }
        disk.sync_directory(&self.root).map_err(|error| cannot_write(&self.root, &error))
    }

    /// Removes all rights of group and others from the engine's files, and warns if there were any.
    /// A directory with other files and no catalogue stays as it is.
    pub(crate) fn make_private(&self, disk: &dyn Disk) -> Result<(), Error> {
        let make = || -> io::Result<u64> {
            let names = disk.list(&self.root)?;
            let own = [
                "log",
                "runs",
                "snapshots",
                "replaced",
                "load",
                "operations",
                "restore.prepared",
                "copying",
                "FOLLOWS",
                "SUPERSEDED",
                "PROMOTED",
                FILE,
                LOCK,
            ];
            let mut changed = 0;
            if names.iter().all(|name| own.contains(&name.as_str())) || names.iter().any(|name| name == FILE)
            {
                changed += disk.make_private(&self.root, false)?;
            }
            for name in own {
                changed += disk.make_private(&self.root.join(name), true)?;
            }
            Ok(changed)
        };
        let shown = self.root.display();
        let count = make().map_err(|error| {
            let what = format!(
                "others may read the catalogue in {shown}, and it cannot be made private: {error}; as its owner, run: \
                 chmod -R go= {shown}"
            );
            Error::new(ErrorKind::Unavailable, what)
        })?;
        if count > 0 {
            tracing::warn!(
                directory = %shown,
                count,
                "others could read the catalogue, its private names and the hashes of its tokens; now only the owner can"
            );
        }
        Ok(())
    }

    /// Locks the directory for this process.
    pub(crate) fn lock(&self, disk: &dyn Disk) -> Result<Box<dyn Send + Sync>, Error> {
        let path = self.root.join(LOCK);
        disk.lock(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{} is in use by another process: stop it, or choose another directory",
                    self.root.display()
                ),
            ),
            _ => cannot_write(&path, &error),
        })
    }

    /// Reads the identity of the catalogue here; none if there is none yet.
    pub(crate) fn read_identity(&self, disk: &dyn Disk) -> Result<Option<Identity>, Error> {
        let path = self.root.join(FILE);
        let text =
            read_text(disk, &path).map_err(|error| cannot_read(&path.display().to_string(), &error))?;
        let parsed = text.map(|text| parse(&text)).transpose();
        parsed.map_err(|(kind, what)| Error::new(kind, format!("{}: {what}", path.display())))
    }

    /// Writes the identity of the catalogue here, durably.
    pub(crate) fn write_identity(&self, disk: &dyn Disk, identity: &Identity) -> Result<(), Error> {
        let written = replace_small(disk, &self.root, FILE, identity.encode().as_bytes());
        written.map_err(|error| cannot_write(&self.root.join(FILE), &error))
    }
}

/// Says whether only the version is damaged: with a version that this release reads, the rest would
/// be valid.
pub(crate) fn is_of_a_known_version_but_for_its_number(text: &str) -> bool {
    let Some(second) = text.lines().nth(1).filter(|_| text.contains("\nchecksum ")) else { return false };
    let mut known = VERSION_WITHOUT_TIMELINES..=VERSION;
    known.any(|version| parse(&text.replacen(second, &format!("version {version}"), 1)).is_ok())
}

/// Parses a text, and returns what it prints as.
pub(crate) fn read_again(text: &str) -> Result<String, Error> {
    let is_old = text.lines().nth(1) == Some("version 1");
    let version = if is_old { VERSION_WITHOUT_TIMELINES } else { VERSION };
    parse(text).map(|identity| identity.encode_as(version)).map_err(|(kind, what)| Error::new(kind, what))
}

fn parse(text: &str) -> Result<Identity, (ErrorKind, String)> {
    let damaged = |what: &str| (ErrorKind::Corrupt, format!("{what} is missing or damaged"));
    let mut lines = text.lines();
    if lines.next() != Some("exacat catalogue") {
        return Err(damaged("the first line"));
    }
    check_version(lines.next(), VERSION).map_err(|error| (error.kind, error.message))?;
    let is_checked = text.lines().next_back().is_some_and(|line| line.starts_with("checksum "));
    if is_checked {
        check_checksum(text).map_err(|error| (error.kind, error.message))?;
    }
    let id = lines.next().and_then(|line| parse_hex(line.strip_prefix("id ")?));
    let id = id.ok_or_else(|| damaged("the id"))?;
    let lines: Vec<&str> = lines.take_while(|line| !(is_checked && line.starts_with("checksum "))).collect();
    let origins_end = lines.iter().take_while(|line| !line.starts_with("timeline ")).count();
    let (origins, timelines) = lines.split_at(origins_end);
    let origins =
        origins.iter().map(|line| parse_hex(line.strip_prefix("origin ")?)).collect::<Option<Vec<_>>>();
    let origins =
        origins.filter(|origins| origins.len() <= ORIGINS_MAX).ok_or_else(|| damaged("an origin"))?;
    let timelines = match text.lines().nth(1) {
        Some("version 1") if timelines.is_empty() => Timelines::new(TimelineId::of_catalogue(id)),
        // A version with timelines has a checksum.
        Some("version 1") => return Err(damaged("the version")),
        _ if !is_checked => return Err(damaged("the checksum")),
        _ => {
            let timelines = timelines.iter().map(|line| timeline(line)).collect::<Option<Vec<_>>>();
            timelines.and_then(Timelines::from_parts).ok_or_else(|| damaged("a timeline"))?
        }
    };
    Ok(Identity { id, origins, timelines })
}

/// Parses a `timeline` line.
fn timeline(line: &str) -> Option<Timeline> {
    let words: Vec<&str> = line.split(' ').collect();
    let id = |text: &str| parse_hex(text).map(TimelineId);
    match words[..] {
        ["timeline", own] => Some(Timeline { id: id(own)?, parted: None }),
        ["timeline", own, "of", before, "after", after] => {
            Some(Timeline { id: id(own)?, parted: Some((id(before)?, Revision(after.parse().ok()?))) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_is_refused_and_damage_is_seen() {
        let good = "exacat catalogue\nversion 1\nid 00112233445566778899aabbccddeeff\n";
        assert_eq!(parse(good).unwrap().id[1], 0x11);
        assert_eq!(parse(&good.replace("version 1", "version 3")).unwrap_err().0, ErrorKind::Invalid);
        assert_eq!(parse(&good.replace("version 1", "version 2")).unwrap_err().0, ErrorKind::Corrupt);
        for bad in ["", "exacat", &good[..40], &good.replace("00", "zz"), &good.replace("ff\n", "\n")] {
            assert_eq!(parse(bad).unwrap_err().0, ErrorKind::Corrupt, "{bad:?}");
        }
        let clone = with_checksum(format!("{good}origin {0}\norigin {0}\n", "ab".repeat(16)));
        assert!(parse(&clone).unwrap().has_runs_of([0xab; 16]));
        assert_eq!(parse(&clone).unwrap().encode_as(1), clone);
        assert_eq!(read_again(&clone).unwrap(), clone);
        assert!(!parse(good).unwrap().has_runs_of([0xab; 16]));
        assert_eq!(parse(&format!("{good}origin ab\n")).unwrap_err().0, ErrorKind::Corrupt);
        for at in 0..clone.len() {
            let mut flipped = clone.clone().into_bytes();
            flipped[at] ^= 1;
            let flipped = String::from_utf8_lossy(&flipped).into_owned();
            assert!(parse(&flipped).is_err(), "byte {at}");
            // The version line begins at byte 17.
            let is_version = (17..26).contains(&at);
            assert_eq!(is_of_a_known_version_but_for_its_number(&flipped), is_version, "byte {at}");
        }
        assert!(!is_of_a_known_version_but_for_its_number(&good.replace("version 1", "version 3")));
    }

    /// Goal: timelines are read exactly as written or not at all, and version 1 has one that
    /// follows from its id.
    #[test]
    fn timelines_are_read_as_written() {
        let mut identity = Identity::from([7; 16]);
        identity.timelines.begin(TimelineId([3; 16]), identity.timelines.current(), Revision(2265));
        let text = identity.encode();
        assert_eq!(parse(&text).unwrap(), identity);
        assert_eq!(read_again(&text).unwrap(), text);
        assert_eq!(text, include_str!("tests/golden/catalogue-v2.txt"));
        for at in 0..text.len() {
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            assert!(parse(&String::from_utf8_lossy(&flipped)).is_err(), "byte {at}");
        }
        let first = parse(&identity.encode_as(1)).unwrap();
        assert_eq!(first.timelines.current(), TimelineId::of_catalogue([7; 16]));
        assert_eq!(Identity::from([7; 16]), first);
    }

    /// Goal: the limit on clones of clones of clones, at its edge.
    #[test]
    fn a_clone_goes_back_so_far_and_no_further() {
        let origins = |count: usize| vec![[7; 16]; count];
        let most = Identity::new(origins(ORIGINS_MAX)).unwrap();
        assert_eq!(parse(&most.encode()).unwrap(), most);
        assert_eq!(Identity::new(origins(ORIGINS_MAX + 1)).unwrap_err().kind, ErrorKind::Limit);
    }
}
