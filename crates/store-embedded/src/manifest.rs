//! The manifest: the list of the runs that count, and the revision up to which they are complete.
//!
//! One small file, replaced as a whole. A run outside of it does not count. A run in it was durable
//! before it was.
//!
//! ```text
//! 0 magic · 8 version u16 · 10 zeros · 16 catalogue 16 · 32 revision u64 · 40 time u64 · 48 next run u64
//! 56 runs u32 · 60 zeros u32 · runs of 16 bytes, the newest first: number u64, rows u64 · checksum u32
//! ```

use std::path::Path;

use exacat_disk::fixed::u64_at;
use exacat_disk::{Disk, cannot_read, cannot_write, read_whole, replace_small};
use exacat_model::{Error, ErrorKind, Revision, TimeMs};

const MAGIC: [u8; 8] = *b"exacatMF";
/// Version of the format that this release writes.
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 64;
const RUN_BYTES: usize = 16;
/// Name of the file in its directory.
pub(crate) const NAME: &str = "manifest";
/// Maximum number of runs: many times the number that compaction leaves.
pub(crate) const RUNS_MAX: usize = 4096;

/// A run in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunNamed {
    pub number: u64,
    pub rows: u64,
}

/// Content of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Newest change whose rows are all in the runs.
    pub revision: Revision,
    /// Time of that change.
    pub time: TimeMs,
    /// Number of the next run; higher than that of any run ever begun.
    pub next_run: u64,
    /// The newest first.
    pub runs: Vec<RunNamed>,
}

impl Manifest {
    /// Encodes the manifest as the bytes of its file.
    pub(crate) fn encode(&self, catalogue: [u8; 16]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&catalogue);
        bytes[32..40].copy_from_slice(&self.revision.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.time.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.next_run.to_le_bytes());
        bytes[56..60].copy_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for run in &self.runs {
            bytes.extend_from_slice(&run.number.to_le_bytes());
            bytes.extend_from_slice(&run.rows.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the bytes of the file.
    pub(crate) fn decode(bytes: &[u8], catalogue: [u8; 16]) -> Result<Self, Error> {
        let corrupt = |what: &str| Error::new(ErrorKind::Corrupt, format!("the manifest: {what}"));
        let word = |at: usize| u64_at(bytes, at);
        if bytes.len() < HEAD_BYTES + 4 || bytes[..8] != MAGIC {
            return Err(corrupt("this is none"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > VERSION {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "the manifest has version {version}, this release reads up to {VERSION}: use a newer one"
                ),
            ));
        }
        let (body, sum) = bytes.split_at(bytes.len() - 4);
        if sum != crc32fast::hash(body).to_le_bytes() {
            return Err(corrupt("it fails its checksum"));
        }
        if bytes[16..32] != catalogue {
            return Err(corrupt("it is another catalogue's"));
        }
        let count = word(56) as u32 as usize;
        if count > RUNS_MAX || body.len() != HEAD_BYTES + count * RUN_BYTES {
            return Err(corrupt("it has not as many runs as it says"));
        }
        let runs: Vec<RunNamed> = (0..count)
            .map(|index| HEAD_BYTES + index * RUN_BYTES)
            .map(|at| RunNamed { number: word(at), rows: word(at + 8) })
            .collect();
        let manifest =
            Manifest { revision: Revision(word(32)), time: TimeMs(word(40)), next_run: word(48), runs };
        if manifest.runs.iter().any(|run| run.number >= manifest.next_run) {
            return Err(corrupt("it names a run that was never begun"));
        }
        Ok(manifest)
    }

    /// Says whether only the version is damaged: with this release's version the rest would be
    /// valid.
    pub(crate) fn is_of_this_version_but_for_its_number(bytes: &[u8], catalogue: [u8; 16]) -> bool {
        let mut other = bytes.to_vec();
        if let Some(version) = other.get_mut(8..10) {
            version.copy_from_slice(&VERSION.to_le_bytes());
        }
        Self::decode(&other, catalogue).is_ok()
    }

    /// Loads the manifest in this directory; none if there is none yet.
    pub(crate) fn load(
        disk: &dyn Disk,
        directory: &Path,
        catalogue: [u8; 16],
    ) -> Result<Option<Self>, Error> {
        let path = directory.join(NAME);
        let cannot_read = |error: std::io::Error| cannot_read(&path.display().to_string(), &error);
        let file = match disk.open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot_read(error)),
        };
        Self::decode(&read_whole(&*file).map_err(cannot_read)?, catalogue).map(Some)
    }

    /// Replaces the manifest durably. After an error either one may be there.
    pub(crate) fn save(&self, disk: &dyn Disk, directory: &Path, catalogue: [u8; 16]) -> Result<(), Error> {
        if self.runs.len() > RUNS_MAX {
            return Err(Error::limit("the number of runs", self.runs.len(), RUNS_MAX));
        }
        let saved = replace_small(disk, directory, NAME, &self.encode(catalogue));
        saved.map_err(|error| cannot_write(&directory.join(NAME), &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOGUE: [u8; 16] = *b"golden catalogue";

    fn manifest() -> Manifest {
        Manifest {
            revision: Revision(1 << 40),
            time: TimeMs(1_790_000_000_000),
            next_run: 78,
            runs: vec![RunNamed { number: 77, rows: 250_000 }, RunNamed { number: 5, rows: 1 << 33 }],
        }
    }

    #[test]
    fn a_manifest_of_version_1_is_read_as_it_was_written() {
        const GOLDEN: &[u8] = include_bytes!("tests/golden/manifest-v1");
        assert!(manifest().encode(CATALOGUE) == GOLDEN, "it is written in other bytes than version 1 wrote");
        assert_eq!(crate::read_manifest(GOLDEN, CATALOGUE).unwrap(), [77, 5]);
    }

    /// Goal: a manifest is read for ever as it was written, and no other bytes pass for one.
    #[test]
    fn a_manifest_is_read_as_written_or_not_at_all() {
        for manifest in [manifest(), Manifest::default()] {
            let bytes = manifest.encode(CATALOGUE);
            assert_eq!(Manifest::decode(&bytes, CATALOGUE).unwrap(), manifest);
            assert_eq!(Manifest::decode(&bytes, [0; 16]).unwrap_err().kind, ErrorKind::Corrupt);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert!(Manifest::decode(&damaged, CATALOGUE).is_err(), "byte {at}");
                assert!(Manifest::decode(&bytes[..at], CATALOGUE).is_err(), "cut at {at}");
            }
        }
        let mut newer = manifest().encode(CATALOGUE);
        newer[8] = 2;
        assert_eq!(Manifest::decode(&newer, CATALOGUE).unwrap_err().kind, ErrorKind::Invalid);
        let unbegun = Manifest { next_run: 77, ..manifest() }.encode(CATALOGUE);
        assert!(Manifest::decode(&unbegun, CATALOGUE).unwrap_err().message.contains("never begun"));
    }
}
