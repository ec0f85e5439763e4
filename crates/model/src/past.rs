//! Points of the past: the state that a read is about, if that is not the present one.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::operation::Operation;
use crate::time::TimeMs;
use crate::timeline::LogPosition;
use crate::{canonical_enum, canonical_struct};

/// Point of the history, after which a state is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PastPoint {
    /// This change.
    Revision(LogPosition),
    /// The last change at or before this time.
    Time(TimeMs),
}

canonical_enum!(PastPoint { 1 => Revision(position), 2 => Time(time) });

impl PastPoint {
    /// Reads a revision, with a timeline or without (`2315`, `2315.3f9a1c`), or a time as
    /// [`TimeMs::parse`] reads it. Digits alone are a revision.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if let Ok(position) = text.parse() {
            return Ok(PastPoint::Revision(position));
        }
        TimeMs::parse(text).map(PastPoint::Time).map_err(|_| {
            Error::invalid(format!(
                "neither a revision (2315, or 2315.3f9a1c with its timeline) nor a time (RFC 3339, or a date): {text:.60?}"
            ))
        })
    }
}

impl FromStr for PastPoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for PastPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PastPoint::Revision(position) => write!(f, "revision {position}"),
            PastPoint::Time(time) => time.fmt(f),
        }
    }
}

/// A past state that a read is about, and the work that the client accepts for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Past {
    /// The point.
    pub point: PastPoint,
    /// Most changes that the server may read to make the state. It refuses with *limit* if there are
    /// more, and says how many. The server's own limit applies as well.
    pub changes_max: u64,
}

canonical_struct!(Past { point, changes_max });

impl Past {
    /// Accepts whatever the server does.
    pub fn at(point: PastPoint) -> Self {
        Past { point, changes_max: u64::MAX }
    }

    /// Says whether an operation may be about a past state: it reads entries, or the names in them.
    pub fn admits(operation: &Operation) -> bool {
        matches!(
            operation,
            Operation::Stat { .. }
                | Operation::List { .. }
                | Operation::Find { .. }
                | Operation::Whereis { .. }
                | Operation::Du { .. }
                | Operation::SeList
                | Operation::AccountList
        )
    }

    /// Refuses an operation that cannot be about a past state.
    pub fn check(operation: &Operation) -> Result<()> {
        match Self::admits(operation) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "{} is about the present only: stat, list, find, whereis, du, se-list and account-list can be about the past",
                operation.name()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::codec::{Decode, Encode};

    /// Digits are a revision, with or without a timeline; the rest is a time or nothing.
    #[test]
    fn point_is_read_as_revision_or_time() {
        let revision = PastPoint::parse("2315").unwrap();
        assert_eq!(revision, PastPoint::Revision("2315".parse().unwrap()));
        assert_eq!(PastPoint::parse(" 7.3f9a1c ").unwrap(), PastPoint::Revision("7.3f9a1c".parse().unwrap()));
        let time = PastPoint::parse("2026-11-28T00:00:00Z").unwrap();
        assert!(matches!(time, PastPoint::Time(_)));
        assert_eq!(PastPoint::parse(&time.to_string()).unwrap(), time);
        for bad in ["", "yesterday", "-1", "7.xyz", "2026-13-01"] {
            assert!(PastPoint::parse(bad).is_err(), "{bad}");
        }
    }

    /// Encoding and decoding agree, and an unknown kind of point is refused.
    #[test]
    fn bytes_of_a_past_state_are_read_as_written() {
        for point in ["0", "2315", "2315.3f9a1c", "1970-01-01", "2026-11-28"] {
            for changes_max in [0, 1, u64::MAX] {
                let past = Past { point: point.parse().unwrap(), changes_max };
                assert_eq!(Past::from_bytes(&past.to_bytes()).unwrap(), past);
            }
        }
        assert!(Past::from_bytes(&[3, 0, 0]).is_err());
    }
}
