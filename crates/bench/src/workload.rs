//! Tree of the measurements, shaped like an experiment's: seven levels, a thousand files in a
//! directory.

use exacat_model::operation::{Existing, FileRef, NewFile, NewReplica};
use exacat_model::{Checksum, ChecksumAlgorithm, Checksums, Lfn, Operation, ReplicaState, Result, SeName};

/// Files in one directory.
pub(crate) const FILES_PER_DIRECTORY: u64 = 1000;

/// Mixes a number by a permutation of 64 bits, so that "random" files are the same in every run.
pub fn scatter(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
}

/// Directory of a file.
pub(crate) fn directory(file: u64) -> String {
    let run = file / FILES_PER_DIRECTORY;
    format!("/bench/data/2026/LHC26{}/{:09}/raw", (b'a' + (run % 26) as u8) as char, 526_000 + run)
}

/// LFN of a file: 41 bytes in its last component, as in real catalogues.
pub(crate) fn lfn(file: u64) -> Result<Lfn> {
    Lfn::parse(&format!(
        "{}/26000{:09}{:03}.{:012x}.AO2D.root",
        directory(file),
        file,
        file % 997,
        scatter(file) >> 16
    ))
}

/// Makes a file with a size, an md5 and two replicas at derived PFNs.
pub(crate) fn new_file(file: u64) -> Result<NewFile> {
    let mut digest = [0u8; 16];
    digest[..8].copy_from_slice(&scatter(file).to_le_bytes());
    digest[8..].copy_from_slice(&scatter(!file).to_le_bytes());
    let mut new = NewFile::named(lfn(file)?);
    new.size = Some(1_000_000_000 + scatter(file) % 3_000_000_000);
    new.checksums = Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &digest)?);
    for offset in [0, 1] {
        new.replicas.push(NewReplica {
            se: se((file / 7 + offset) % SES)?,
            pfn: None,
            state: ReplicaState::Available,
        });
    }
    Ok(new)
}

/// Number of storage elements.
pub(crate) const SES: u64 = 30;

/// Name of a storage element.
pub(crate) fn se(number: u64) -> Result<SeName> {
    SeName::parse(&format!("BENCH::SITE{number:02}::DISK"))
}

/// Makes the registration of files `from..to`.
pub(crate) fn register(from: u64, to: u64) -> Result<Operation> {
    let files = (from..to).map(new_file).collect::<Result<Vec<_>>>()?;
    Ok(Operation::Register { files, parents: true, existing: Existing::Refuse })
}

/// Makes the look-up of files.
pub(crate) fn whereis(files: impl Iterator<Item = u64>) -> Result<Operation> {
    let files = files.map(|file| lfn(file).map(FileRef::Lfn)).collect::<Result<Vec<_>>>()?;
    Ok(Operation::Whereis { files, site: None })
}
