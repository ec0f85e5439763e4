//! GUIDs: the 128-bit identity of a file's content, and the storage path derived from it.

use std::fmt;

use crate::canonical_newtype;
use crate::error::{Error, Result};
use crate::hex;
use crate::time::TimeMs;

/// 100 ns ticks between the Gregorian calendar's start (the epoch of version-1 UUIDs) and the Unix
/// epoch.
const GREGORIAN_TICKS: u64 = 0x01b2_1dd2_1381_4000;

/// Identity of a file's content. Any 128 bits are accepted. New ones are version-7 UUIDs: their
/// leading bits are the time, so neighbours in time are neighbours on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

canonical_newtype!(Guid);

const HEX: &[u8; 16] = b"0123456789abcdef";

impl Guid {
    /// Bytes of the printed form.
    pub const TEXT_BYTES: usize = 36;
    /// Bytes of the storage path: `/CC/HHHHH/` and the printed form.
    pub const STORAGE_PATH_BYTES: usize = 10 + Self::TEXT_BYTES;

    /// Reads 32 hex digits of either case, with all four hyphens or with none.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || Error::invalid(format!("not a GUID: {text:.100?}"));
        let mut value = [0u8; 16];
        let read = match text.as_bytes() {
            digits if digits.len() == 32 => hex::read(digits, &mut value),
            bytes if bytes.len() == 36 => {
                // Ranges of digits between the hyphens, each with the bytes that it encodes.
                let parts = [(0..8, 0..4), (9..13, 4..6), (14..18, 6..8), (19..23, 8..10), (24..36, 10..16)];
                [8, 13, 18, 23].iter().all(|dash| bytes[*dash] == b'-')
                    && parts.into_iter().all(|(from, to)| hex::read(&bytes[from], &mut value[to]))
            }
            _ => false,
        };
        if read { Ok(Guid(value)) } else { Err(bad()) }
    }

    /// Makes a version-7 GUID of this time; `random` fills the bits beside time, version and
    /// variant.
    pub fn v7(time: TimeMs, random: [u8; 10]) -> Self {
        let mut value = [0u8; 16];
        value[..6].copy_from_slice(&time.0.to_be_bytes()[2..]);
        value[6..].copy_from_slice(&random);
        value[6] = 0x70 | (value[6] & 0x0f);
        value[8] = 0x80 | (value[8] & 0x3f);
        Guid(value)
    }

    /// Returns the version of an RFC 9562 UUID; none for another variant.
    pub fn version(&self) -> Option<u8> {
        (self.0[8] & 0xc0 == 0x80).then_some(self.0[6] >> 4)
    }

    /// Returns the time of its creation, if the version records it (1 and 7).
    pub fn time(&self) -> Option<TimeMs> {
        let b = &self.0;
        match self.version()? {
            1 => {
                let ticks = u64::from_be_bytes([b[6] & 0x0f, b[7], b[4], b[5], b[0], b[1], b[2], b[3]]);
                ticks.checked_sub(GREGORIAN_TICKS).map(|unix| TimeMs(unix / 10_000))
            }
            7 => Some(TimeMs(u64::from_be_bytes([0, 0, b[0], b[1], b[2], b[3], b[4], b[5]]))),
            _ => None,
        }
    }

    /// Returns the two directories of the grid's storage layout, `CC` and `HHHHH`: the sum of the
    /// 32 hex digits modulo 16, and a Fletcher pair over them. Every storage element of a grid
    /// holds files under these paths, so the function can never change.
    pub fn storage_hash(&self) -> (u8, u16) {
        // The Fletcher pair counts modulo 256 after each digit. As plain sums, the remainder can
        // wait for the end. The second sum counts each digit as often as there are digits from it
        // on.
        let (mut sum, mut weighted) = (0u32, 0u32);
        for (index, byte) in (0u32..).zip(self.0) {
            let (high, low) = (u32::from(byte >> 4), u32::from(byte & 15));
            sum += high + low;
            weighted += high * (32 - 2 * index) + low * (31 - 2 * index);
        }
        let (c0, c1) = (sum & 255, weighted & 255);
        let x = c1 % 255;
        let y = (c1 as i32 - c0 as i32).rem_euclid(255) as u32;
        ((sum % 16) as u8, ((y << 8) + x) as u16)
    }

    /// Returns `/CC/HHHHH/guid`, the storage path below a storage element's prefix.
    pub fn storage_path(&self) -> StoragePath {
        let (cc, hash) = self.storage_hash();
        let decimal = |value: u32| b'0' + (value % 10) as u8;
        let (cc, hash) = (u32::from(cc), u32::from(hash));
        let mut text = [b'/'; Self::STORAGE_PATH_BYTES];
        text[1] = decimal(cc / 10);
        text[2] = decimal(cc);
        for (at, power) in (4..).zip([10_000, 1_000, 100, 10, 1]) {
            text[at] = decimal(hash / power);
        }
        text[10..].copy_from_slice(&self.text());
        StoragePath(text)
    }

    /// Returns the GUID that has exactly this storage path.
    pub fn of_storage_path(path: &str) -> Option<Guid> {
        let guid = Guid::parse(path.get(path.len().checked_sub(Self::TEXT_BYTES)?..)?).ok()?;
        (guid.storage_path().as_str() == path).then_some(guid)
    }

    /// Appends the printed form without a formatter, because look-ups print millions per second.
    pub fn push_text(&self, out: &mut String) {
        push_ascii(out, &self.text());
    }

    fn text(&self) -> [u8; Self::TEXT_BYTES] {
        let mut text = [b'-'; Self::TEXT_BYTES];
        let mut at = 0;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = HEX[usize::from(byte >> 4)];
            text[at + 1] = HEX[usize::from(byte & 15)];
            at += 2;
        }
        text
    }
}

/// Storage path of a GUID. It allocates no memory, because look-ups make millions per second.
#[derive(Clone, Copy, Debug)]
pub struct StoragePath([u8; Guid::STORAGE_PATH_BYTES]);

impl StoragePath {
    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        // ASCII is UTF-8, so the default is never used.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

fn push_ascii(out: &mut String, text: &[u8]) {
    // ASCII is UTF-8, so the default is never used.
    out.push_str(std::str::from_utf8(text).unwrap_or_default());
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ASCII is UTF-8, so the default is never used.
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Guid {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Guid::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Public vector of the storage layout; other programs depend on it.
    #[test]
    fn the_storage_path_is_the_fields() {
        let guid = Guid::parse("5d9a8f1e-5607-11ee-90f9-6c02e09897e9").unwrap();
        let path = guid.storage_path().as_str().to_owned();
        assert_eq!(path, "/06/57559/5d9a8f1e-5607-11ee-90f9-6c02e09897e9");
        assert_eq!(Guid::of_storage_path(&path), Some(guid));
        let upper = path.to_uppercase();
        for other in
            ["", "/06/57559/", &path[1..], &path[..path.len() - 1], &path.replace("06", "07"), &upper]
        {
            assert_eq!(Guid::of_storage_path(other), None, "{other}");
        }
        assert_eq!(Guid::of_storage_path(&"\u{20ac}".repeat(20)), None, "not cut inside a character");
    }

    #[test]
    fn version_1_and_7_tell_their_time() {
        // Values that Python's uuid module reads.
        let v1 = Guid::parse("5d9a8f1e-5607-11ee-90f9-6c02e09897e9").unwrap();
        assert_eq!(v1.version(), Some(1));
        assert_eq!(v1.time().unwrap().to_string(), "2023-09-18T09:40:13.023Z");
        let time = TimeMs(1_790_000_000_123);
        let v7 = Guid::v7(time, [0xff; 10]);
        assert_eq!((v7.version(), v7.time()), (Some(7), Some(time)));
        // The example of RFC 9562, appendix A.6.
        let rfc = Guid::parse("017F22E2-79B0-7CC3-98C4-DC0C0C07398F").unwrap();
        assert_eq!(rfc.time(), Some(TimeMs(0x017F22E279B0)));
        assert_eq!(Guid([0; 16]).time(), None);
    }

    #[test]
    fn text_round_trips_and_bad_text_is_refused() {
        let guid = Guid::parse("017f22e279b07cc398c4dc0c0c07398f").unwrap();
        assert_eq!(guid.to_string(), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
        assert_eq!(Guid::parse(&guid.to_string().to_uppercase()).unwrap(), guid);
        for bad in
            ["", "017f22e2", "017f22e2-79b0-7cc3-98c4-dc0c0c07398g", "017f22e279b0-7cc3-98c4-dc0c0c07398f0"]
        {
            assert!(Guid::parse(bad).is_err(), "{bad}");
        }
    }
}
