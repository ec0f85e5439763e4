//! The object that names the owner of an archive: `_exacat_owner`.
//!
//! ```text
//! exacat owner of this archive, version 1
//! history 32 hexadecimal digits
//! incarnation 32 hexadecimal digits
//! since 2026-11-26T12:00:00Z
//! directory "/srv/exacat/history"
//! host "cat1"
//! crc 8 hexadecimal digits, of all bytes before
//! ```
//! Readers of Hive folders and of Delta tables ignore names that begin with `_`.

use std::fmt::Display;

use exacat_disk::{TitledLines, corrupt, hex_of, titled_text};
use exacat_history::ArchiveOwner;
use exacat_model::{Error, ErrorKind, Result, TimeMs};

use crate::place::Place;

/// Path of the object.
pub(crate) const OWNER: &str = "_exacat_owner";
/// First line, before its version.
const TITLE: &str = "exacat owner of this archive, version";
/// Version of the object.
const VERSION: u32 = 1;
/// Characters of a directory or a host: they are for people, and cut.
const TEXT_MAX: usize = 1024;

fn encode(owner: &ArchiveOwner) -> String {
    let text = |text: &str| {
        let cut: String = text.chars().take(TEXT_MAX).collect();
        serde_json::Value::from(cut)
    };
    let lines: [(&str, &dyn Display); 5] = [
        ("history", &hex_of(owner.history)),
        ("incarnation", &hex_of(owner.incarnation)),
        ("since", &owner.since),
        ("directory", &text(&owner.directory)),
        ("host", &text(&owner.host)),
    ];
    titled_text(TITLE, VERSION, &lines)
}

fn decode(text: &str) -> std::result::Result<ArchiveOwner, &'static str> {
    let mut lines = TitledLines::of(text, TITLE, VERSION)?;
    let (history, incarnation) = (lines.id("history")?, lines.id("incarnation")?);
    let since = TimeMs::parse(lines.next("since")?).map_err(|_| "a line has no time")?;
    let mut text = |name: &str| serde_json::from_str(lines.next(name)?).map_err(|_| "a line has no text");
    Ok(ArchiveOwner { history, incarnation, since, directory: text("directory")?, host: text("host")? })
}

/// Reads the owner; none if nobody has taken the archive.
pub(crate) fn read(place: &Place) -> Result<Option<ArchiveOwner>> {
    let bytes = match place.read_all(OWNER) {
        Ok(bytes) => bytes,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    decode(&String::from_utf8_lossy(&bytes)).map(Some).map_err(|what| {
        let Error { message, .. } = corrupt(&place.name_of(OWNER), 0, what);
        let remedy = "delete the object, then run exacat history adopt with the history that has the archive";
        Error::new(ErrorKind::Corrupt, format!("{message}; {remedy}"))
    })
}

/// Names the owner of an archive without one. False if it has one, or gets one at the same moment.
pub(crate) fn put_new(place: &Place, owner: &ArchiveOwner) -> Result<bool> {
    place.put_new(OWNER, encode(owner).into())
}

/// Names another owner.
pub(crate) fn replace(place: &Place, owner: &ArchiveOwner) -> Result<()> {
    place.put(OWNER, encode(owner).into())
}

/// Refuses everybody but the owner.
pub(crate) fn check(place: &Place, caller: &ArchiveOwner) -> Result<()> {
    let what = match read(place)? {
        Some(owner) if owner.is(caller) => return Ok(()),
        Some(ArchiveOwner { directory, host, since, .. }) => {
            format!("it belongs to another copy of this history, {directory} on {host}, since {since}")
        }
        None => format!("the object {OWNER} is gone, so it belongs to nobody; the next attempt takes it"),
    };
    Err(Error::new(ErrorKind::Conflict, format!("the archive {}: {what}", place.name())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The object is the golden one, and comes back as written. With any byte changed, or cut anywhere, it is
    /// refused.
    #[test]
    fn damaged_owner_is_refused() {
        let owner = ArchiveOwner {
            history: [0xab; 16],
            incarnation: [1; 16],
            since: TimeMs(1_795_608_000_000),
            directory: "/srv/a \"b\"\nc".into(),
            host: "cat1".into(),
        };
        let text = encode(&owner);
        assert_eq!(text, include_str!("tests/golden_owner.txt"));
        assert_eq!(decode(&text), Ok(owner));
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert!(decode(&String::from_utf8_lossy(&damaged)).is_err(), "byte {at}");
            assert!(decode(&text[..at]).is_err(), "cut at {at}");
        }
    }
}
