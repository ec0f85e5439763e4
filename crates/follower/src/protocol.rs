//! Requests and answers between a follower and its source. `docs/internals/follow-protocol.md` has all.

use exacat_disk::hex_of;
use exacat_http::Query;
use exacat_model::{Error, Result, Revision};
use exacat_store::{FixedFile, LogOffset};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Start of the paths.
pub const PREFIX: &str = "/follow/v1/";
/// Path of the description of a source.
pub const SOURCE: &str = "/follow/v1/source";
/// Path of the copies.
pub const COPIES: &str = "/follow/v1/copies";
/// Path of the log.
pub const LOG: &str = "/follow/v1/log";
/// Path at which a source hears that a follower was promoted.
pub const SUPERSEDED: &str = "/follow/v1/superseded";
/// Path of the changes, for filtered followers.
pub const CHANGES: &str = "/follow/v1/changes";
/// Path of the rows, for filtered followers.
pub const ROWS: &str = "/follow/v1/rows";
/// Bytes of the hash behind a file.
pub const HASH_BYTES: usize = 16;

/// Header with the last durable change of the source.
pub const DURABLE: &str = "exacat-durable";
/// Header with the last change in a piece.
pub const UP_TO: &str = "exacat-up-to";
/// Header with the age of the last change in a piece, in ms; 0 if the piece ends with the log.
pub const AGE: &str = "exacat-age-ms";
/// Header with the digest of the state after the last change in a piece, in hexadecimal; left out if the
/// source has later changes.
pub const DIGEST: &str = "exacat-digest";
/// Header with the hash of the identity of the source.
pub const IDENTITY: &str = "exacat-identity";

/// Description of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// Id of the catalogue that its clients know.
    pub catalogue: String,
    /// Identity of the store, as its file has it.
    pub identity: String,
    /// The last durable change.
    pub revision: u64,
    /// Source of the source, if it follows another one.
    #[serde(default)]
    pub follows: Option<String>,
}

/// Message of a promoted follower to the source before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superseded {
    /// Identity of the promoted follower.
    pub identity: String,
    /// Its address.
    pub by: String,
}

/// Answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupersededAnswer {
    /// True if the server takes no more changes because of it.
    pub superseded: bool,
}

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFile {
    /// Directory and name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Hash of its ends, in hexadecimal: JSON has no such numbers.
    pub ends: String,
}

/// A copy that a source holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyInfo {
    /// Number of the copy.
    pub copy: u64,
    /// Revision of its state.
    pub revision: u64,
    /// Its files.
    pub files: Vec<CopyFile>,
}

impl CopyFile {
    /// Describes a file.
    pub fn of(file: &FixedFile) -> Self {
        CopyFile { name: file.name.clone(), bytes: file.bytes, ends: format!("{:016x}", file.ends) }
    }

    /// Returns the file.
    pub fn file(&self) -> Result<FixedFile> {
        let ends = u64::from_str_radix(&self.ends, 16)
            .map_err(|_| Error::invalid(format!("not a hash of a file: {:.40?}", self.ends)))?;
        Ok(FixedFile { name: self.name.clone(), bytes: self.bytes, ends })
    }
}

/// Returns the hash of an identity.
pub fn hash_of(identity: &str) -> String {
    format!("{:016x}", identity_number(identity))
}

/// Returns the hash of an identity as a number, which is never 0.
pub fn identity_number(identity: &str) -> u64 {
    xxh3_64(identity.as_bytes()).max(1)
}

/// A request for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Place to go on from.
    pub place: LogOffset,
    /// Follower that asks.
    pub follower: [u8; 16],
    /// The last change that is durable there.
    pub durable: Revision,
    /// Time to wait for a change, in ms.
    pub wait_ms: u64,
}

impl LogQuery {
    /// Returns the target of the request.
    pub fn target(&self) -> String {
        let LogOffset { segment, header, offset, revision } = self.place;
        format!(
            "{LOG}?segment={}&header={header:016x}&offset={offset}&after={}&follower={}&durable={}&wait={}",
            segment.0,
            revision.0,
            hex_of(self.follower),
            self.durable.0,
            self.wait_ms
        )
    }

    /// Reads the fields of the request.
    pub fn read(query: Option<&str>) -> Result<Self> {
        let known = ["segment", "header", "offset", "after", "follower", "durable", "wait"];
        let query = Query::read(query, &known)?;
        let number = |name: &str| query.number(name)?.ok_or_else(|| missing(name));
        let header = query.get("header").and_then(|text| u64::from_str_radix(text, 16).ok());
        Ok(LogQuery {
            place: LogOffset {
                segment: Revision(number("segment")?),
                header: header.ok_or_else(|| missing("header"))?,
                offset: number("offset")?,
                revision: Revision(number("after")?),
            },
            follower: follower_of(&query)?,
            durable: Revision(number("durable")?),
            wait_ms: number("wait")?,
        })
    }
}

/// A request of a filtered follower for changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangesQuery {
    /// Changes after this one.
    pub after: Revision,
    /// Follower that asks.
    pub follower: [u8; 16],
    /// Time to wait for a change, in ms.
    pub wait_ms: u64,
}

impl ChangesQuery {
    /// Returns the target of the request.
    pub fn target(&self) -> String {
        let (after, follower) = (self.after.0, hex_of(self.follower));
        format!("{CHANGES}?after={after}&follower={follower}&wait={}", self.wait_ms)
    }

    /// Reads the fields of the request.
    pub fn read(query: Option<&str>) -> Result<Self> {
        let query = Query::read(query, &["after", "follower", "wait"])?;
        let number = |name: &str| query.number(name)?.ok_or_else(|| missing(name));
        Ok(ChangesQuery {
            after: Revision(number("after")?),
            follower: follower_of(&query)?,
            wait_ms: number("wait")?,
        })
    }
}

fn missing(name: &str) -> Error {
    Error::invalid(format!("the field {name} is missing or no number"))
}

fn follower_of(query: &Query) -> Result<[u8; 16]> {
    let follower = query.get("follower").filter(|text| text.len() == 32);
    let follower = follower.and_then(|text| u128::from_str_radix(text, 16).ok());
    Ok(follower.ok_or_else(|| missing("follower"))?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a request for the log is read as it was sent, and a request with any field missing or
    /// strange is refused.
    #[test]
    fn request_for_the_log_is_read_as_sent_or_refused() {
        let place = LogOffset { segment: Revision(7), header: u64::MAX, offset: 96, revision: Revision(6) };
        let sent = LogQuery { place, follower: [0xa5; 16], durable: Revision(5), wait_ms: 500 };
        let target = sent.target();
        let query = target.split_once('?').unwrap().1;
        assert_eq!(LogQuery::read(Some(query)), Ok(sent));
        let fields: Vec<&str> = query.split('&').collect();
        for at in 0..fields.len() {
            let mut fewer = fields.clone();
            let field = fewer.remove(at);
            assert!(LogQuery::read(Some(&fewer.join("&"))).is_err(), "without {field}");
            fewer.push("segment=x");
            assert!(LogQuery::read(Some(&fewer.join("&"))).is_err());
        }
        assert!(LogQuery::read(None).is_err());
        let sent = ChangesQuery { after: Revision(7), follower: [0xa5; 16], wait_ms: 500 };
        let target = sent.target();
        let query = target.split_once('?').unwrap().1;
        assert_eq!(ChangesQuery::read(Some(query)), Ok(sent));
        for field in query.split('&') {
            let fewer: Vec<&str> = query.split('&').filter(|other| *other != field).collect();
            assert!(ChangesQuery::read(Some(&fewer.join("&"))).is_err(), "without {field}");
        }
        let file = FixedFile { name: "log/1".to_owned(), bytes: 9, ends: u64::MAX };
        assert_eq!(CopyFile::of(&file).file().unwrap(), file);
        assert!(CopyFile { ends: "x".to_owned(), ..CopyFile::of(&file) }.file().is_err());
    }
}
