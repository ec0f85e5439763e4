//! The file FOLLOWS: the address of the source, and the follower's own id. A directory that has it takes
//! no changes of its own.
//!
//! ```text
//! exacat follows, version 1
//! source https://cat.example.org:7421
//! id 0123456789abcdef0123456789abcdef
//! own-changes 0
//! crc 01234567
//! ```
//! Version 2 is a filtered follower's: it has a line `under /DIRECTORY` before `crc`.

use exacat_disk::{
    Disk, TitledLines, cannot_read, cannot_write, hex_of, random_id, read_text, replace_small, titled_text,
};
use exacat_model::{Error, ErrorKind, Lfn, Result};

use crate::identity::{Identity, Layout};
use crate::settings::{EmbeddedSettings, SOURCE_BYTES_MAX};

/// Name of the file.
pub(super) const FILE: &str = "FOLLOWS";
const TITLE: &str = "exacat follows, version";
const VERSION: u32 = 1;
/// Version with a directory: an older release must not take the directory for a whole copy.
const VERSION_FILTERED: u32 = 2;

/// Source of a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// Address of the source.
    pub source: String,
    /// Id of the follower, random.
    pub id: [u8; 16],
    /// True if the catalogue here was made before it followed, and may have changes of its own. The first
    /// copy keeps it as a replaced copy.
    pub own_changes: bool,
    /// Directory of a filtered follower.
    pub under: Option<Lfn>,
}

impl Following {
    /// Makes a follower of this source, with a new id.
    pub(super) fn new(source: &str, under: Option<&Lfn>) -> Result<Self> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(Error::limit(
                "the length of a source's address in bytes",
                source.len(),
                SOURCE_BYTES_MAX,
            ));
        }
        if source.is_empty()
            || source.chars().any(|character| character.is_whitespace() || character.is_control())
        {
            return Err(Error::invalid(format!("not the address of a source: {source:.200?}")));
        }
        let (source, under) = (source.to_owned(), under.cloned());
        Ok(Following { source, id: random_id()?, own_changes: false, under })
    }

    fn encode(&self) -> String {
        let own = u8::from(self.own_changes);
        let id = hex_of(self.id);
        let mut lines: Vec<(&str, &dyn std::fmt::Display)> =
            vec![("source", &self.source), ("id", &id), ("own-changes", &own)];
        let Some(under) = &self.under else { return titled_text(TITLE, VERSION, &lines) };
        lines.push(("under", under));
        titled_text(TITLE, VERSION_FILTERED, &lines)
    }

    fn decode(text: &str) -> std::result::Result<Self, &'static str> {
        let mut lines = TitledLines::of(text, TITLE, VERSION_FILTERED)?;
        let (source, id) = (lines.next("source")?.to_owned(), lines.id("id")?);
        let own_changes = lines.number("own-changes")? != 0;
        let is_whole = text.starts_with(&format!("{TITLE} {VERSION}\n"));
        let under = match is_whole {
            true => None,
            false => Some(Lfn::parse(lines.next("under")?).map_err(|_| "its directory is none")?),
        };
        Ok(Following { source, id, own_changes, under })
    }

    /// Reads the file; none if this is no follower.
    pub(super) fn read(disk: &dyn Disk, data: &Layout) -> Result<Option<Self>> {
        let path = data.root().join(FILE);
        let text =
            read_text(disk, &path).map_err(|error| cannot_read(&path.display().to_string(), &error))?;
        let following = text.map(|text| Following::decode(&text)).transpose();
        following.map_err(|why| Error::new(ErrorKind::Corrupt, format!("{}: {why}", path.display())))
    }

    /// Writes the file, durably.
    pub(super) fn write(&self, disk: &dyn Disk, data: &Layout) -> Result<()> {
        let written = replace_small(disk, data.root(), FILE, self.encode().as_bytes());
        written.map_err(|error| cannot_write(&data.root().join(FILE), &error))
    }

    /// Refuses a promotion of a filtered follower.
    pub fn check_promotable(&self) -> Result<()> {
        let Some(under) = &self.under else { return Ok(()) };
        let what = format!("a filtered follower can never be promoted: it has only {under} of its source");
        Err(Error::new(ErrorKind::Conflict, what))
    }

    /// Refuses another directory than that of this follower.
    pub(super) fn check_under(&self, under: Option<&Lfn>, data: &Layout) -> Result<()> {
        if self.under.as_ref() == under {
            return Ok(());
        }
        let shown = data.root().display();
        let what = match &self.under {
            Some(own) => format!("{shown} has only {own} of its source: follow it with --under {own}"),
            None => format!("{shown} is a copy of the whole catalogue: leave --under out"),
        };
        let what = format!("{what}, or follow into an empty directory");
        Err(Error::new(ErrorKind::Conflict, what))
    }
}

/// Name of the file of a source that another server replaced.
pub(super) const SUPERSEDED: &str = "SUPERSEDED";
/// Name of the file of a promoted follower: it has the address of the source before.
pub(super) const PROMOTED: &str = "PROMOTED";
const PROMOTION_TITLE: &str = "exacat promotion, version";

/// Returns the address of the server that was promoted in place of this one; none if none was.
pub(crate) fn superseded(disk: &dyn Disk, data: &Layout) -> Result<Option<String>> {
    noted(disk, data, SUPERSEDED)
}

/// Returns the address in one of the files that have only that.
pub(super) fn noted(disk: &dyn Disk, data: &Layout, name: &str) -> Result<Option<String>> {
    let path = data.root().join(name);
    let text = read_text(disk, &path).map_err(|error| cannot_read(&path.display().to_string(), &error))?;
    let by = text.map(|text| TitledLines::of(&text, PROMOTION_TITLE, VERSION)?.next("by").map(str::to_owned));
    let by = by.transpose();
    by.map_err(|why| Error::new(ErrorKind::Corrupt, format!("{}: {why}", path.display())))
}

/// Notes durably that another server was promoted in place of this one.
pub(crate) fn supersede(disk: &dyn Disk, data: &Layout, by: &str) -> Result<()> {
    note(disk, data, SUPERSEDED, by)
}

/// Writes one of the files that have only an address.
pub(super) fn note(disk: &dyn Disk, data: &Layout, name: &str, by: &str) -> Result<()> {
    // An address has no lines of its own.
    let by = Following::new(by, None)?.source;
    let text = titled_text(PROMOTION_TITLE, VERSION, &[("by", &by)]);
    let written = replace_small(disk, data.root(), name, text.as_bytes());
    written.map_err(|error| cannot_write(&data.root().join(name), &error))
}

/// Says whether the server with the identity `other` was promoted in place of the one with `own`.
pub(crate) fn is_superseded_by(own: &str, other: &str) -> Result<bool> {
    let (own, other) = (Identity::decode(own)?, Identity::decode(other)?);
    if own.id != other.id {
        return Err(Error::new(ErrorKind::Conflict, "that server has another catalogue"));
    }
    let knows = |identity: &Identity, timeline| identity.timelines.all().iter().any(|one| one.id == timeline);
    match (knows(&other, own.timelines.current()), knows(&own, other.timelines.current())) {
        // The other one is as old as this one, or older.
        (_, true) => Ok(false),
        (true, false) => Ok(true),
        (false, false) => Err(Error::new(
            ErrorKind::Conflict,
            "both servers were promoted, and each has changes that the other has not: stop one of them, and \
             let it follow the other",
        )),
    }
}

/// Refuses to open a follower's directory for changes, and one of a catalogue that follows nothing as a
/// follower.
pub(crate) fn check(disk: &dyn Disk, data: &Layout, settings: &EmbeddedSettings) -> Result<()> {
    let shown = data.root().display();
    match (Following::read(disk, data)?, &settings.follows) {
        (Some(following), Some(_)) => following.check_under(settings.under.as_ref(), data),
        (Some(following), None) => Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "{shown} follows {}: serve it with 'exacat follow', and change the catalogue at its source",
                following.source
            ),
        )),
        (None, Some(_)) => {
            Err(Error::new(ErrorKind::Conflict, format!("{shown} is no follower: 'exacat follow' makes one")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: the file is read as written, and with any byte changed it is refused.
    #[test]
    fn marker_is_read_as_written_or_refused() {
        let source = "https://cat.example.org:7421".to_owned();
        for (version, under) in [(1, None), (2, Some(Lfn::parse("/data/own").unwrap()))] {
            let following = Following { source: source.clone(), id: [0xa5; 16], own_changes: true, under };
            let text = following.encode();
            let begin = format!("exacat follows, version {version}\nsource https://cat");
            assert!(text.starts_with(&begin), "{text}");
            assert_eq!(Following::decode(&text), Ok(following));
            for at in 0..text.len() {
                let mut damaged = text.clone().into_bytes();
                damaged[at] ^= 1;
                assert!(Following::decode(&String::from_utf8(damaged).unwrap()).is_err(), "byte {at}");
            }
        }
        let newer = titled_text(
            TITLE,
            VERSION_FILTERED + 1,
            &[("source", &"x"), ("id", &hex_of([1; 16])), ("own-changes", &0)],
        );
        assert!(Following::decode(&newer).is_err());
    }

    /// Property: the limit of an address, at its edge.
    #[test]
    fn address_of_a_source_has_a_limit() {
        assert!(Following::new(&"x".repeat(SOURCE_BYTES_MAX), None).is_ok());
        assert_eq!(
            Following::new(&"x".repeat(SOURCE_BYTES_MAX + 1), None).unwrap_err().kind,
            ErrorKind::Limit
        );
        for bad in ["", "a b", "a\nb"] {
            assert_eq!(Following::new(bad, None).unwrap_err().kind, ErrorKind::Invalid, "{bad:?}");
        }
    }
}
