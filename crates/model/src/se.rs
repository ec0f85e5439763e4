//! Storage elements: named storage endpoints, each with a small number.

use std::fmt;

use crate::account::AccountName;
use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::error::{Error, Result};
use crate::limits::{DISTANCES_PER_SE_MAX, QOS_PER_SE_MAX, SE_NAME_BYTES_MAX, SE_PREFIX_BYTES_MAX};
use crate::{canonical_enum, canonical_newtype, canonical_text};

/// A storage element's number, as replicas carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeNumber(pub u16);

canonical_newtype!(SeNumber);

impl SeNumber {
    /// No storage element: the value for archive members, which are where their archive is.
    pub const NONE: SeNumber = SeNumber(0);
}

/// A storage element's name: 1 to 128 of `A-Z a-z 0-9 . _ - :`. By convention `VO::Site::Name`;
/// other names in use (Rucio's, for one) are accepted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeName(std::sync::Arc<str>);

impl SeName {
    /// Checks `text` and converts it to a name.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > SE_NAME_BYTES_MAX {
            return Err(Error::limit("the length of an SE's name in bytes", text.len(), SE_NAME_BYTES_MAX));
        }
        let good =
            |byte: u8| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b':');
        if text.is_empty() || text.starts_with('-') || !text.bytes().all(good) {
            return Err(Error::invalid(format!(
                "not a valid SE name (letters, digits, . _ - :): {text:.100?}"
            )));
        }
        Ok(SeName(text.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the site in a name of the form `VO::Site::Name`.
    pub fn site(&self) -> Option<&str> {
        let mut parts = self.0.split("::");
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(_), Some(site), Some(_), None) => Some(site),
            _ => None,
        }
    }
}

impl fmt::Display for SeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

canonical_text!(SeName, "not a valid SE name");

/// Permitted use of a storage element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SeStatus {
    /// Allows reads and writes.
    Online = 1,
    /// Allows reads only: the catalogue makes no upload reservations on it.
    ReadOnly = 2,
    /// Allows neither: the catalogue keeps its replicas but does not offer them.
    Offline = 3,
}

canonical_enum!(SeStatus { 1 => Online, 2 => ReadOnly, 3 => Offline });

impl SeStatus {
    /// All of them.
    pub const ALL: [SeStatus; 3] = [SeStatus::Online, SeStatus::ReadOnly, SeStatus::Offline];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SeStatus::Online => "online",
            SeStatus::ReadOnly => "read-only",
            SeStatus::Offline => "offline",
        }
    }

    /// Returns the status of that name.
    pub fn parse(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|status| status.name() == text).ok_or_else(|| {
            Error::invalid(format!("not an SE status (online, read-only, offline): {text:.100?}"))
        })
    }
}

/// A storage element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Se {
    /// Its number, for ever; not 0.
    pub number: SeNumber,
    /// Its name, unique.
    pub name: SeName,
    /// Beginning of derived PFNs: scheme, host and path, no slash at the end. May be empty if all
    /// PFNs on it are explicit.
    pub prefix: String,
    /// Labels such as `disk` and `tape`, sorted.
    pub qos: Vec<AccountName>,
    /// Permitted use.
    pub status: SeStatus,
    /// Distances of sites: smaller is nearer. A site not listed is farther than all listed ones.
    pub distances: Vec<(AccountName, u32)>,
    /// Beginning of the URLs of the same files for HTTPS clients, in place of `prefix`; empty if there
    /// are none.
    pub https: String,
}

/// Bit of the status's byte: `https` follows the other fields. A storage element without it keeps the
/// bytes of earlier releases.
const HAS_HTTPS: u8 = 0x80;

impl Encode for Se {
    fn encode(&self, out: &mut Vec<u8>) {
        self.number.encode(out);
        self.name.encode(out);
        self.prefix.encode(out);
        self.qos.encode(out);
        let mark = if self.https.is_empty() { 0 } else { HAS_HTTPS };
        out.push(self.status as u8 | mark);
        self.distances.encode(out);
        if mark != 0 {
            self.https.encode(out);
        }
    }
}

impl Decode for Se {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let (number, name) = (SeNumber::decode(reader)?, SeName::decode(reader)?);
        let (prefix, qos) = (String::decode(reader)?, Vec::decode(reader)?);
        let byte = reader.byte()?;
        let status = SeStatus::ALL.into_iter().find(|status| *status as u8 == byte & !HAS_HTTPS);
        let status = status.ok_or_else(|| reader.error("an SE status of an unknown number"))?;
        let distances = Vec::decode(reader)?;
        let https = if byte & HAS_HTTPS == 0 { String::new() } else { String::decode(reader)? };
        if byte & HAS_HTTPS != 0 && https.is_empty() {
            return Err(reader.error("an SE's URL for HTTPS is announced, and empty"));
        }
        Ok(Se { number, name, prefix, qos, status, distances, https })
    }
}

/// Beginning of URLs of HTTPS.
const HTTPS: &str = "https://";
/// Beginning of the prefix of a storage element whose address is unknown.
pub const UNKNOWN_PLACE: &str = "unknown://";

impl Se {
    /// Says whether its address is known, so that a PFN can be derived from its prefix.
    pub fn is_place_known(&self) -> bool {
        !self.prefix.is_empty() && !self.prefix.starts_with(UNKNOWN_PLACE)
    }

    /// Returns the URL of a PFN for HTTPS clients; none if they cannot reach it.
    pub fn https_url(&self, pfn: &str) -> Option<String> {
        if pfn.starts_with(HTTPS) {
            return Some(pfn.to_owned());
        }
        if self.https.is_empty() || self.prefix.is_empty() {
            return None;
        }
        let path = pfn.strip_prefix(&self.prefix).filter(|path| path.starts_with('/'))?;
        Some(format!("{}{path}", self.https))
    }

    /// Checks the conditions that the types do not enforce.
    pub fn check(&self) -> Result<()> {
        if self.number == SeNumber::NONE {
            return Err(Error::invalid("SE number 0 means no storage element"));
        }
        if self.prefix.len() > SE_PREFIX_BYTES_MAX {
            return Err(Error::limit(
                "the length of an SE's prefix in bytes",
                self.prefix.len(),
                SE_PREFIX_BYTES_MAX,
            ));
        }
        if self.prefix.bytes().any(|byte| byte <= b' ' || byte == 0x7f) || self.prefix.ends_with('/') {
            return Err(Error::invalid(
                "an SE's prefix has no blanks or control characters and no slash at its end",
            ));
        }
        if self.https.len() > SE_PREFIX_BYTES_MAX {
            return Err(Error::limit(
                "the length of an SE's URL for HTTPS in bytes",
                self.https.len(),
                SE_PREFIX_BYTES_MAX,
            ));
        }
        let rest = self.https.strip_prefix(HTTPS).unwrap_or_default();
        let is_good = !rest.starts_with('/')
            && !rest.ends_with('/')
            && !rest.is_empty()
            && rest.bytes().all(|byte| byte > b' ' && byte != 0x7f && !b"?#@".contains(&byte));
        if !self.https.is_empty() && !is_good {
            return Err(Error::invalid(
                "an SE's URL for HTTPS is https://HOST[:PORT][/PATH], with no slash at its end",
            ));
        }
        if self.qos.len() > QOS_PER_SE_MAX {
            return Err(Error::limit("the number of QoS labels of an SE", self.qos.len(), QOS_PER_SE_MAX));
        }
        if self.distances.len() > DISTANCES_PER_SE_MAX {
            return Err(Error::limit(
                "the number of distances of an SE",
                self.distances.len(),
                DISTANCES_PER_SE_MAX,
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::SeSettings;

    fn se(https: &str) -> Se {
        Se {
            number: SeNumber(1),
            name: SeName::parse("A").unwrap(),
            prefix: "root://h//d".to_owned(),
            qos: Vec::new(),
            status: SeStatus::Offline,
            distances: Vec::new(),
            https: https.to_owned(),
        }
    }

    fn bytes(value: &impl Encode) -> Vec<u8> {
        let mut out = Vec::new();
        value.encode(&mut out);
        out
    }

    fn read<T: Decode>(bytes: &[u8]) -> Option<T> {
        let mut reader = Reader::new(bytes);
        T::decode(&mut reader).ok().filter(|_| reader.is_empty())
    }

    /// Stored storage elements of earlier releases have no URL for HTTPS, and keep their bytes.
    #[test]
    fn storage_element_without_https_has_the_bytes_of_earlier_releases() {
        let old = b"\x01\x01A\x0broot://h//d\x00\x03\x00";
        assert_eq!(bytes(&se("")), old);
        assert_eq!(read::<Se>(old), Some(se("")));
        let new = bytes(&se("https://h/d"));
        assert_eq!(new, b"\x01\x01A\x0broot://h//d\x00\x83\x00\x0bhttps://h/d");
        assert_eq!(read::<Se>(&new), Some(se("https://h/d")));
        for bad in [
            &b"\x01\x01A\x00\x00\x83\x00\x00"[..],
            b"\x01\x01A\x00\x00\x04\x00",
            b"\x01\x01A\x00\x00\x80\x00",
        ] {
            assert_eq!(read::<Se>(bad), None);
        }
        let mut settings = SeSettings {
            name: SeName::parse("A").unwrap(),
            number: None,
            prefix: None,
            qos: None,
            status: None,
            distances: Vec::new(),
            https: None,
            only_new: true,
        };
        assert_eq!(bytes(&settings), b"\x01A\x00\x00\x00\x00\x00\x01");
        for https in [None, Some(String::new()), Some("https://h".to_owned())] {
            for only_new in [false, true] {
                (settings.https, settings.only_new) = (https.clone(), only_new);
                assert_eq!(read::<SeSettings>(&bytes(&settings)), Some(settings.clone()));
            }
        }
        assert_eq!(read::<SeSettings>(b"\x01A\x00\x00\x00\x00\x00\x04"), None);
    }

    #[test]
    fn https_url_has_the_path_of_the_pfn() {
        let both = se("https://h:1/e");
        assert_eq!(both.https_url("root://h//d/x?y").as_deref(), Some("https://h:1/e/x?y"));
        assert_eq!(both.https_url("root://h//dx"), None);
        assert_eq!(both.https_url("root://other//d/x"), None);
        assert_eq!(se("").https_url("root://h//d/x"), None);
        assert_eq!(se("").https_url("https://z/x").as_deref(), Some("https://z/x"));
        for good in ["", "https://h", "https://[::1]:1094/d/e"] {
            assert!(se(good).check().is_ok(), "{good}");
        }
        for bad in [
            "http://h",
            "https://",
            "https:///d",
            "https://h/",
            "https://h/a b",
            "https://u@h",
            "https://h?x",
            "x",
        ] {
            assert!(se(bad).check().is_err(), "{bad}");
        }
        assert!(se(&format!("https://{}", "h".repeat(SE_PREFIX_BYTES_MAX - 8))).check().is_ok());
        assert!(se(&format!("https://{}", "h".repeat(SE_PREFIX_BYTES_MAX - 7))).check().is_err());
    }
}
