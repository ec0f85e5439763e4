//! Size and checksums of a local file, from one reading.

use std::io::Read;
use std::path::Path;

use exacat_model::{Checksum, ChecksumAlgorithm};
use md5::Digest;

use crate::failure::Failure;

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// One checksum during its computation.
enum Making {
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
}

impl Making {
    fn new(algorithm: ChecksumAlgorithm) -> Self {
        match algorithm {
            ChecksumAlgorithm::Adler32 => Making::Adler32(simd_adler32::Adler32::new()),
            ChecksumAlgorithm::Crc32c => Making::Crc32c(0),
            ChecksumAlgorithm::Md5 => Making::Md5(md5::Md5::new()),
            ChecksumAlgorithm::Sha1 => Making::Sha1(sha1::Sha1::new()),
            ChecksumAlgorithm::Sha256 => Making::Sha256(sha2::Sha256::new()),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            Making::Adler32(made) => made.write(bytes),
            Making::Crc32c(made) => *made = crc32c::crc32c_append(*made, bytes),
            Making::Md5(made) => made.update(bytes),
            Making::Sha1(made) => made.update(bytes),
            Making::Sha256(made) => made.update(bytes),
        }
    }

    fn text(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self {
            Making::Adler32(made) => format!("adler32:{:08x}", made.finish()),
            Making::Crc32c(made) => format!("crc32c:{made:08x}"),
            Making::Md5(made) => format!("md5:{}", hex(&made.finalize())),
            Making::Sha1(made) => format!("sha1:{}", hex(&made.finalize())),
            Making::Sha256(made) => format!("sha256:{}", hex(&made.finalize())),
        }
    }
}

/// Size and checksums of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub size: u64,
    pub checksums: Vec<Checksum>,
}

/// Reads a file to its end.
pub(crate) fn read(path: &Path, algorithms: &[ChecksumAlgorithm]) -> Result<Content, Failure> {
    let failed = |error: std::io::Error| Failure::local(format!("cannot read {}: {error}", path.display()));
    let mut file = std::fs::File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Failure::local(format!("{} is not a file", path.display())));
    }
    let mut making: Vec<Making> = algorithms.iter().copied().map(Making::new).collect();
    let mut buffer = vec![0; READ_BYTES];
    let mut size = 0;
    loop {
        let some = file.read(&mut buffer).map_err(failed)?;
        if some == 0 {
            break;
        }
        size += some as u64;
        making.iter_mut().for_each(|making| making.add(&buffer[..some]));
    }
    let checksums =
        making.into_iter().map(|making| Checksum::parse(&making.text())).collect::<Result<_, _>>()?;
    Ok(Content { size, checksums })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_that_everybody_makes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        std::fs::write(&path, "123456789").unwrap();
        let content = read(&path, &ChecksumAlgorithm::ALL).unwrap();
        let texts: Vec<String> = content.checksums.iter().map(ToString::to_string).collect();
        assert_eq!(content.size, 9);
        assert_eq!(
            texts,
            [
                "adler32:091e01de",
                "crc32c:e3069283",
                "md5:25f9e794323b453885f5181f1b624d0b",
                "sha1:f7c3bc1d808e04732adf679965ccc34ca7ae3441",
                "sha256:15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
            ]
        );
        assert!(read(place.path(), &[]).is_err(), "a directory");
        assert!(read(&place.path().join("nope"), &[]).is_err());
    }
}
