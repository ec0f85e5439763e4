//! State of a history towards its archive: the small file `ARCHIVE` in its directory.
//!
//! Neither snapshots nor backups have the file. A restore writes a new one, so a restored history or a clone
//! is never taken for the incarnation that it comes from. A history without the file never had an archive,
//! or had one of an earlier release.

use std::fmt::Display;
use std::path::Path;

use exacat_disk::{
    Disk, TitledLines, cannot_read, cannot_write, corrupt, hex_of, read_text, replace_small, titled_text,
};
use exacat_model::{Error, ErrorKind, Result};

/// Name of the file.
pub(crate) const FILE: &str = "ARCHIVE";
/// First line of the file, before its version.
const TITLE: &str = "exacat archive of a history, version";
/// Version of the file.
const VERSION: u32 = 1;

/// Relation of a history to the archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tenure {
    /// It never had an archive.
    #[default]
    None,
    /// It is a copy of another incarnation, which may still use the archive.
    Copied,
    /// An adoption has begun, and may have ended in its middle.
    Adopting,
    /// It took an archive.
    Held,
}

impl Tenure {
    const ALL: [Tenure; 4] = [Tenure::None, Tenure::Copied, Tenure::Adopting, Tenure::Held];

    fn word(self) -> &'static str {
        match self {
            Tenure::None => "none",
            Tenure::Copied => "copied",
            Tenure::Adopting => "adopting",
            Tenure::Held => "held",
        }
    }
}

/// Content of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArchiveState {
    pub tenure: Tenure,
    /// Random number by which the archive knows the history; zeros before it took one.
    pub incarnation: [u8; 16],
    /// Last record that the history shares with the one that it was copied from; none if it is no copy, or
    /// if it has adopted the archive since.
    pub copied_up_to: Option<u64>,
    /// Last record before an adoption that has begun; later ones are the adoption's.
    pub own_up_to: Option<u64>,
}

impl ArchiveState {
    fn text(&self) -> String {
        let record = |of: Option<u64>| of.map_or_else(|| "-".to_owned(), |revision| revision.to_string());
        let (copied, own) = (record(self.copied_up_to), record(self.own_up_to));
        let incarnation = hex_of(self.incarnation);
        let lines: [(&str, &dyn Display); 4] = [
            ("tenure", &self.tenure.word()),
            ("incarnation", &incarnation),
            ("copied up to", &copied),
            ("own up to", &own),
        ];
        titled_text(TITLE, VERSION, &lines)
    }

    pub(crate) fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        let mut lines = TitledLines::of(text, TITLE, VERSION)?;
        let word = lines.next("tenure")?;
        let tenure = Tenure::ALL.into_iter().find(|one| one.word() == word).ok_or("the tenure is unknown")?;
        let incarnation = lines.id("incarnation")?;
        let mut record = |name: &str| match lines.next(name)? {
            "-" => Ok(None),
            text => text.parse().map(Some).map_err(|_| "a record is no number"),
        };
        let (copied_up_to, own_up_to) = (record("copied up to")?, record("own up to")?);
        Ok(ArchiveState { tenure, incarnation, copied_up_to, own_up_to })
    }

    /// Reads the file in the directory of a history.
    pub(crate) fn read(disk: &dyn Disk, root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        let name = path.display().to_string();
        let text = read_text(disk, &path).map_err(|error| cannot_read(&name, &error))?;
        let Some(text) = text else { return Ok(ArchiveState::default()) };
        Self::parse(&text).map_err(|what| {
            let Error { message, .. } = corrupt(&name, 0, what);
            let remedy = "remove the file, then adopt the archive: exacat history adopt";
            Error::new(ErrorKind::Corrupt, format!("{message}; {remedy}"))
        })
    }

    /// Replaces the file, atomically and durably.
    pub(crate) fn write(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        let written = replace_small(disk, root, FILE, self.text().as_bytes());
        written.map_err(|error| cannot_write(&root.join(FILE), &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden file is read for ever, and written to the same bytes.
    #[test]
    fn golden_state_is_read() {
        let golden = include_str!("golden/archive-v1.txt");
        let state = ArchiveState {
            tenure: Tenure::Copied,
            incarnation: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes(),
            copied_up_to: Some(4711),
            own_up_to: None,
        };
        assert_eq!(ArchiveState::parse(golden), Ok(state));
        assert_eq!(state.text(), golden, "a golden file never changes");
    }

    /// The file comes back as written; with any byte changed, or cut anywhere, it is refused.
    #[test]
    fn damaged_state_is_refused() {
        for tenure in Tenure::ALL {
            for copied_up_to in [None, Some(0), Some(u64::MAX)] {
                let own_up_to = copied_up_to.map(|revision| revision / 2);
                let state = ArchiveState { tenure, incarnation: [0xa5; 16], copied_up_to, own_up_to };
                let text = state.text();
                assert_eq!(ArchiveState::parse(&text), Ok(state));
                for at in 0..text.len() {
                    let mut damaged = text.clone().into_bytes();
                    damaged[at] ^= 1;
                    let damaged = String::from_utf8(damaged).unwrap();
                    assert!(ArchiveState::parse(&damaged).is_err(), "byte {at} of {text}");
                    assert!(ArchiveState::parse(&text[..at]).is_err(), "cut at {at}");
                }
            }
        }
    }
}
