//! The file that keeps the trusted time for the next start.
//!
//! With the last change alone, an idle catalogue would reject its clock at every start, and forget
//! an operator's confirmation. The file has the *trusted* time, so the time of a clock that is too
//! far ahead never enters it. Until the machine restarts, the kernel's count gives the time that
//! has passed since, without any clock.
//!
//! ```text
//! exacat clock
//! version 1
//! time 1800000000000
//! boot 3e0a…-… 604800000
//! checksum 0123456789abcdef
//! ```
//!
//! The `boot` line names the machine's start and the kernel's count in milliseconds. The server
//! omits it if the kernel does not name its start. The checksum is XXH3-64 of all lines before it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use exacat_model::TimeMs;
use xxhash_rust::xxh3::xxh3_64;

const HEAD: &str = "exacat clock\nversion 1\n";
/// Maximum bytes of the file.
const BYTES_MAX: u64 = 512;

/// The trusted time at a moment of the kernel's count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptTime {
    pub time: TimeMs,
    /// Name of the machine's start, and the kernel's count in milliseconds.
    pub boot: Option<(String, u64)>,
}

impl KeptTime {
    /// Returns the kept time, plus the time that the kernel counted since if the machine did not
    /// restart.
    pub(crate) fn carried(&self, boot: Option<&str>, elapsed_ms: u64) -> TimeMs {
        match (&self.boot, boot) {
            (Some((kept, count)), Some(boot)) if kept == boot => {
                self.time.plus_ms(elapsed_ms.saturating_sub(*count))
            }
            _ => self.time,
        }
    }

    fn encode(&self) -> String {
        let mut text = format!("{HEAD}time {}\n", self.time.0);
        if let Some((boot, elapsed_ms)) = &self.boot {
            text.push_str(&format!("boot {boot} {elapsed_ms}\n"));
        }
        let checksum = xxh3_64(text.as_bytes());
        text.push_str(&format!("checksum {checksum:016x}\n"));
        text
    }

    fn decode(text: &str) -> Option<KeptTime> {
        let (body, checksum) = text.strip_suffix('\n')?.rsplit_once("checksum ")?;
        if u64::from_str_radix(checksum, 16).ok()? != xxh3_64(body.as_bytes()) {
            return None;
        }
        let mut lines = body.strip_prefix(HEAD)?.lines();
        let time = TimeMs(lines.next()?.strip_prefix("time ")?.parse().ok()?);
        let boot = match lines.next() {
            None => None,
            Some(line) => {
                let (boot, elapsed_ms) = line.strip_prefix("boot ")?.split_once(' ')?;
                Some((boot.to_owned(), elapsed_ms.parse().ok()?))
            }
        };
        lines.next().is_none().then_some(KeptTime { time, boot })
    }

    /// Reads the file; none if there is none. A damaged file is an error.
    pub(crate) fn load(path: &Path) -> io::Result<Option<KeptTime>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let text = io::read_to_string(io::Read::take(file, BYTES_MAX))?;
        let kept = KeptTime::decode(&text).ok_or_else(|| io::Error::other("damaged, or of another version"));
        kept.map(Some)
    }

    /// Writes the file completely or not at all, and durably.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str =
        "exacat clock\nversion 1\ntime 1800000000000\nboot 3e0a-1 604800000\nchecksum cf824746ca1438ae\n";

    fn kept() -> KeptTime {
        KeptTime { time: TimeMs(1_800_000_000_000), boot: Some(("3e0a-1".to_owned(), 604_800_000)) }
    }

    /// Goal: the file reads back as written, and no flipped bit changes the time.
    #[test]
    fn kept_time_is_read_as_written_or_not_at_all() {
        let text = kept().encode();
        assert_eq!(text, GOLDEN);
        assert_eq!(KeptTime::decode(&text), Some(kept()));
        let without = KeptTime { boot: None, ..kept() };
        assert_eq!(KeptTime::decode(&without.encode()), Some(without));
        for at in 0..text.len() {
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let read = String::from_utf8(bytes).ok().and_then(|text| KeptTime::decode(&text));
                assert!(read.is_none_or(|read| read == kept()), "bit {bit} of byte {at}");
            }
            assert_eq!(KeptTime::decode(&text[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn time_goes_on_with_the_count_of_the_same_start_only() {
        let time = kept().time;
        assert_eq!(kept().carried(Some("3e0a-1"), 604_800_007), time.plus_ms(7));
        assert_eq!(kept().carried(Some("3e0a-1"), 0), time);
        assert_eq!(kept().carried(Some("3e0a-2"), 604_800_007), time);
        assert_eq!(kept().carried(None, 604_800_007), time);
    }
}
