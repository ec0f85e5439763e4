//! Small text files, for a person who looks into a directory. The second line has the version, the
//! last line the checksum of those before it.

use exacat_model::{Error, ErrorKind, Result};

/// Appends the line with the checksum to a text.
pub(crate) fn with_checksum(mut text: String) -> String {
    let sum = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("checksum {sum:08x}\n"));
    text
}

/// Checks that the last line is the checksum of those before it.
pub(crate) fn check_checksum(text: &str) -> Result<()> {
    let at = text.strip_suffix('\n').and_then(|text| Some(text.rfind('\n')? + 1));
    let whole = at.is_some_and(|at| with_checksum(text[..at].to_owned()) == text);
    if whole { Ok(()) } else { Err(Error::new(ErrorKind::Corrupt, "it fails its checksum")) }
}

/// Checks that this release reads the version.
pub(crate) fn check_version(line: Option<&str>, newest: u32) -> Result<()> {
    let version = line.and_then(|line| line.strip_prefix("version ")?.parse::<u32>().ok());
    match version {
        Some(version) if version <= newest => Ok(()),
        Some(version) => {
            let what = format!("has version {version}, this release reads up to {newest}: use a newer one");
            Err(Error::new(ErrorKind::Invalid, what))
        }
        None => Err(Error::new(ErrorKind::Corrupt, "the version is missing or damaged")),
    }
}
