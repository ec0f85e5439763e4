//! Checksums of file content, and the rule that normalises the forms in use.

use std::fmt;

use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::error::{Error, Result};
use crate::hex;
use crate::limits::CHECKSUMS_PER_FILE_MAX;

/// A checksum algorithm. The number is stored: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ChecksumAlgorithm {
    /// Adler-32, 4 bytes: the most common one on the grid.
    Adler32 = 1,
    /// CRC-32C, 4 bytes.
    Crc32c = 2,
    /// MD5, 16 bytes.
    Md5 = 3,
    /// SHA-1, 20 bytes.
    Sha1 = 4,
    /// SHA-256, 32 bytes.
    Sha256 = 5,
}

impl ChecksumAlgorithm {
    /// All algorithms.
    pub const ALL: [ChecksumAlgorithm; 5] = [
        ChecksumAlgorithm::Adler32,
        ChecksumAlgorithm::Crc32c,
        ChecksumAlgorithm::Md5,
        ChecksumAlgorithm::Sha1,
        ChecksumAlgorithm::Sha256,
    ];

    /// Returns the name, as written before the colon.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumAlgorithm::Adler32 => "adler32",
            ChecksumAlgorithm::Crc32c => "crc32c",
            ChecksumAlgorithm::Md5 => "md5",
            ChecksumAlgorithm::Sha1 => "sha1",
            ChecksumAlgorithm::Sha256 => "sha256",
        }
    }

    /// Returns the bytes of its digest.
    pub fn digest_bytes(self) -> usize {
        match self {
            ChecksumAlgorithm::Adler32 | ChecksumAlgorithm::Crc32c => 4,
            ChecksumAlgorithm::Md5 => 16,
            ChecksumAlgorithm::Sha1 => 20,
            ChecksumAlgorithm::Sha256 => 32,
        }
    }

    /// Returns the algorithm of this number in canonical bytes.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| *algorithm as u8 == number)
    }

    /// Says whether the checksum is a 32-bit number. Many programs print these as numbers and so
    /// lose leading zeros.
    fn is_number(self) -> bool {
        self.digest_bytes() == 4
    }
}

/// Bytes of the longest digest, SHA-256's.
const DIGEST_BYTES_MAX: usize = 32;

/// One checksum: an algorithm and its digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    digest: [u8; DIGEST_BYTES_MAX],
}

impl Checksum {
    /// Makes a checksum from its raw digest, which must have the algorithm's length.
    pub fn new(algorithm: ChecksumAlgorithm, digest: &[u8]) -> Result<Self> {
        if digest.len() != algorithm.digest_bytes() {
            return Err(Error::invalid(format!(
                "a digest of {} has {} bytes, not {}",
                algorithm.name(),
                algorithm.digest_bytes(),
                digest.len()
            )));
        }
        let mut padded = [0u8; 32];
        padded[..digest.len()].copy_from_slice(digest);
        Ok(Checksum { algorithm, digest: padded })
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// Returns the digest's bytes.
    pub fn digest(&self) -> &[u8] {
        &self.digest[..self.algorithm.digest_bytes()]
    }

    /// Reads a checksum in any of the forms in use. The rule, in order:
    ///
    /// 1. Blanks around the whole, the algorithm and the digest are dropped; letters may be of
    ///    either case.
    /// 2. The algorithm stands before the first `:` or `=`. Without one, a known algorithm's name
    ///    at the start counts (`adler32b75603bb`). With neither, 32, 40 or 64 hex digits are md5,
    ///    sha1, sha256.
    /// 3. An adler32 or crc32c of 1 to 7 digits has lost its leading zeros; they are restored.
    /// 4. Anything else without exactly the algorithm's number of hex digits is refused.
    pub fn parse(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        // Fast path: nearly all checksums have the printed form, and listings contain millions.
        if let Some((name, digest)) = trimmed.split_once(':')
            && let Some(algorithm) = ChecksumAlgorithm::ALL.into_iter().find(|known| known.name() == name)
            && let Some(checksum) = Self::of_hex(algorithm, digest.as_bytes())
        {
            return Ok(checksum);
        }
        Self::parse_odd(text)
    }

    /// Reads exactly the algorithm's number of hex digits; none if `digits` are not that.
    fn of_hex(algorithm: ChecksumAlgorithm, digits: &[u8]) -> Option<Self> {
        let mut digest = [0u8; DIGEST_BYTES_MAX];
        hex::read(digits, &mut digest[..algorithm.digest_bytes()]).then_some(Checksum { algorithm, digest })
    }

    fn parse_odd(text: &str) -> Result<Self> {
        let bad = |why: &str| Error::invalid(format!("bad checksum {text:.100?}: {why}"));
        let trimmed = text.trim();
        let lower = trimmed.to_ascii_lowercase();
        let (algorithm, digest) = match lower.split_once([':', '=']) {
            Some((name, digest)) => {
                let name = name.trim();
                let algorithm = Self::algorithm_named(name)
                    .ok_or_else(|| bad("the algorithm is not known (adler32, crc32c, md5, sha1, sha256)"))?;
                (algorithm, digest.trim())
            }
            None => match Self::algorithm_prefix(&lower) {
                Some((algorithm, digest)) => (algorithm, digest.trim()),
                None => {
                    let algorithm = match lower.len() {
                        32 => ChecksumAlgorithm::Md5,
                        40 => ChecksumAlgorithm::Sha1,
                        64 => ChecksumAlgorithm::Sha256,
                        _ => return Err(bad("no algorithm is named, and the length names none")),
                    };
                    (algorithm, lower.as_str())
                }
            },
        };
        if digest.is_empty() {
            return Err(bad("the digest is empty"));
        }
        let wanted = algorithm.digest_bytes() * 2;
        if digest.len() > wanted || (digest.len() < wanted && !algorithm.is_number()) {
            return Err(bad("the number of hex digits is not the algorithm's"));
        }
        let mut bytes = [0u8; 32];
        let missing = wanted - digest.len();
        for (position, character) in digest.chars().enumerate() {
            let value = character
                .to_digit(16)
                .ok_or_else(|| bad("the digest has a character that is no hex digit"))?;
            let at = missing + position;
            bytes[at / 2] |= (value as u8) << (4 * (1 - at % 2));
        }
        Ok(Checksum { algorithm, digest: bytes })
    }

    fn algorithm_named(name: &str) -> Option<ChecksumAlgorithm> {
        // Other spellings of the same algorithms.
        let name = match name {
            "adler-32" | "adler" | "ad" => "adler32",
            "sha-1" | "sha" => "sha1",
            "sha-256" => "sha256",
            other => other,
        };
        ChecksumAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    fn algorithm_prefix(text: &str) -> Option<(ChecksumAlgorithm, &str)> {
        // This is unambiguous: no name is the start of another, and none consists of hex digits
        // alone.
        ChecksumAlgorithm::ALL
            .into_iter()
            .find_map(|algorithm| Some((algorithm, text.strip_prefix(algorithm.name())?)))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        f.write_str(self.algorithm.name())?;
        f.write_str(":")?;
        // One write for all digits: exports print billions.
        let mut digits = [0u8; 2 * DIGEST_BYTES_MAX];
        let digits = &mut digits[..2 * self.digest().len()];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.digest()) {
            *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        }
        f.write_str(str::from_utf8(digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Checksum {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Checksum::parse(text)
    }
}

impl Encode for Checksum {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.algorithm as u8);
        out.extend_from_slice(self.digest());
    }
}
impl Decode for Checksum {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let algorithm = ChecksumAlgorithm::from_number(reader.byte()?)
            .ok_or_else(|| reader.error("unknown checksum algorithm"))?;
        let mut digest = [0u8; 32];
        digest[..algorithm.digest_bytes()].copy_from_slice(reader.take(algorithm.digest_bytes())?);
        Ok(Checksum { algorithm, digest })
    }
}

/// The checksums of one file: at most one per algorithm, in the algorithms' order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checksums(smallvec::SmallVec<[Checksum; 1]>);

impl Checksums {
    /// Returns an empty set.
    pub fn none() -> Self {
        Checksums::default()
    }

    /// Returns a set of one checksum.
    pub fn one(checksum: Checksum) -> Self {
        Checksums(smallvec::smallvec![checksum])
    }

    /// Returns the checksum of this algorithm.
    pub fn get(&self, algorithm: ChecksumAlgorithm) -> Option<&Checksum> {
        self.0.iter().find(|checksum| checksum.algorithm == algorithm)
    }

    /// Adds a checksum. Refuses it if the set has another digest of the same algorithm.
    pub fn add(&mut self, checksum: Checksum) -> Result<()> {
        match self.0.binary_search_by_key(&checksum.algorithm, |known| known.algorithm) {
            Ok(index) if self.0[index] == checksum => Ok(()),
            Ok(index) => Err(Error::new(
                crate::ErrorKind::Conflict,
                format!("the checksum is {}, not {checksum}", self.0[index]),
            )),
            Err(_) if self.0.len() >= CHECKSUMS_PER_FILE_MAX => Err(Error::limit(
                "the number of checksums of a file",
                self.0.len() + 1,
                CHECKSUMS_PER_FILE_MAX,
            )),
            Err(index) => {
                self.0.insert(index, checksum);
                Ok(())
            }
        }
    }

    /// Removes the checksum of an algorithm.
    pub fn remove(&mut self, algorithm: ChecksumAlgorithm) {
        self.0.retain(|checksum| checksum.algorithm != algorithm);
    }

    /// Says whether the digests of any algorithm in both sets differ.
    pub fn contradicts(&self, other: &Checksums) -> bool {
        self.0.iter().any(|checksum| other.get(checksum.algorithm).is_some_and(|known| known != checksum))
    }

    /// Iterates over all checksums.
    pub fn iter(&self) -> impl Iterator<Item = &Checksum> {
        self.0.iter()
    }

    /// Says whether no checksum is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Encode for Checksums {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.as_slice().encode(out);
    }
}
impl Decode for Checksums {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let mut sums = Checksums::none();
        for _ in 0..reader.length()? {
            let checksum = Checksum::decode(reader)?;
            if sums.0.last().is_some_and(|last| last.algorithm >= checksum.algorithm) {
                return Err(reader.error("checksums of one file are not in the order of their algorithms"));
            }
            sums.0.push(checksum);
        }
        Ok(sums)
    }
}

/// Modulus of Adler-32.
const ADLER32_MODULUS: u64 = 65_521;

/// Returns the Adler-32 of two pieces in a row, from those of each and the length of the second.
pub fn adler32_of_both(first: u32, second: u32, second_bytes: u64) -> u32 {
    let (sum1, weighted1) = (u64::from(first & 0xffff), u64::from(first >> 16));
    let (sum2, weighted2) = (u64::from(second & 0xffff), u64::from(second >> 16));
    // Both sums of the second piece began with 1 and 0. Its start value now is the sum of the first,
    // which counts once in each weighted term.
    let shift = (sum1 + ADLER32_MODULUS - 1) % ADLER32_MODULUS;
    let sum = (shift + sum2) % ADLER32_MODULUS;
    let weighted = (weighted1 + weighted2 + (second_bytes % ADLER32_MODULUS) * shift) % ADLER32_MODULUS;
    (weighted as u32) << 16 | sum as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_found_in_the_wild_are_normalised_or_refused() {
        for (raw, normal) in [
            ("adler32:67b54f3", "adler32:067b54f3"),
            ("adler32:1", "adler32:00000001"),
            ("adler32: 538ac2ee", "adler32:538ac2ee"),
            (" ADLER32:538AC2EE ", "adler32:538ac2ee"),
            ("adler32b75603bb", "adler32:b75603bb"),
            ("adler32=b75603bb", "adler32:b75603bb"),
            ("md5:d41d8cd98f00b204e9800998ecf8427e", "md5:d41d8cd98f00b204e9800998ecf8427e"),
            ("d41d8cd98f00b204e9800998ecf8427e", "md5:d41d8cd98f00b204e9800998ecf8427e"),
            ("fd7b1361307ab21b6cc2ca3434471fb6c21b56b6", "sha1:fd7b1361307ab21b6cc2ca3434471fb6c21b56b6"),
        ] {
            assert_eq!(Checksum::parse(raw).unwrap().to_string(), normal, "{raw}");
        }
        for bad in [
            "",
            ":",
            "adler32:",
            "alder32:",
            "alder32:12345678",
            "adler32:123456789",
            "adler32:xyz",
            "md5:d41d8cd98f00b204e9800998ecf8427",
            "12345678",
            "md5",
            "adler32:+1",
            "md5:ż",
        ] {
            assert!(Checksum::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_has_one_checksum_per_algorithm() {
        let mut sums = Checksums::none();
        sums.add(Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap()).unwrap();
        sums.add(Checksum::parse("adler32:1").unwrap()).unwrap();
        sums.add(Checksum::parse("adler32:1").unwrap()).unwrap();
        assert!(sums.add(Checksum::parse("adler32:2").unwrap()).is_err());
        assert_eq!(sums.iter().count(), 2);
        assert_eq!(Checksums::from_bytes(&sums.to_bytes()).unwrap(), sums);
    }
}
