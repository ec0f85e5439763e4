//! Consistency levels: the permitted age of the state behind an answer, chosen by the client.

use std::fmt;
use std::str::FromStr;

use crate::canonical_enum;
use crate::error::{Error, Result};

/// Permitted age of the state behind an answer, from the weakest to the strongest. At every level,
/// an answer shows one committed state. See `docs/concepts/consistency.md` and clause R2 of the
/// store's contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Consistency {
    /// A bounded time old, according to any one replica of the cluster.
    One = 1,
    /// A bounded time old, according to most replicas of this datacenter.
    LocalQuorum = 2,
    /// A bounded time old.
    Quorum = 3,
    /// Not older than the request.
    #[default]
    Latest = 4,
}

canonical_enum!(Consistency { 1 => One, 2 => LocalQuorum, 3 => Quorum, 4 => Latest });

impl Consistency {
    /// All levels, the weakest first.
    pub const ALL: [Consistency; 4] =
        [Consistency::One, Consistency::LocalQuorum, Consistency::Quorum, Consistency::Latest];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::One => "one",
            Consistency::LocalQuorum => "local-quorum",
            Consistency::Quorum => "quorum",
            Consistency::Latest => "latest",
        }
    }

    /// Returns the consistency of that name.
    pub fn parse(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
            Error::invalid(format!("not a consistency (one, local-quorum, quorum, latest): {text:.100?}"))
        })
    }
}

impl FromStr for Consistency {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::codec::{Decode, Encode};

    #[test]
    fn names_and_bytes_are_read_as_written() {
        for (number, level) in (1..).zip(Consistency::ALL) {
            assert_eq!(Consistency::parse(&level.to_string()).unwrap(), level);
            assert_eq!(level.to_bytes(), [number]);
            assert_eq!(Consistency::from_bytes(&[number]).unwrap(), level);
        }
        assert!(Consistency::One < Consistency::LocalQuorum && Consistency::Quorum < Consistency::Latest);
        assert_eq!(Consistency::default(), Consistency::Latest);
        for bad in ["", "One", "two", "local_quorum"] {
            assert!(bad.parse::<Consistency>().is_err(), "{bad}");
        }
        assert!(Consistency::from_bytes(&[0]).is_err() && Consistency::from_bytes(&[5]).is_err());
    }
}
