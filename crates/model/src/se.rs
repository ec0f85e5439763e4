//! Storage elements: named storage endpoints, each with a small number.

use std::fmt;

use crate::account::AccountName;
use crate::error::{Error, Result};
use crate::limits::{DISTANCES_PER_SE_MAX, QOS_PER_SE_MAX, SE_NAME_BYTES_MAX, SE_PREFIX_BYTES_MAX};
use crate::{canonical_enum, canonical_newtype, canonical_struct, canonical_text};

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
}

canonical_struct!(Se { number, name, prefix, qos, status, distances });

/// Beginning of the prefix of a storage element whose address is unknown.
pub const UNKNOWN_PLACE: &str = "unknown://";

impl Se {
    /// Says whether its address is known, so that a PFN can be derived from its prefix.
    pub fn is_place_known(&self) -> bool {
        !self.prefix.is_empty() && !self.prefix.starts_with(UNKNOWN_PLACE)
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
