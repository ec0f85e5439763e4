//! The file FILES of a backup: the list of its files, each with length and checksum.
//!
//! ```text
//! exacat backup files
//! version 1
//! run 12 0000000012-00112233445566ff.run 8123456 00112233445566778899aabbccddeeff
//! log 1 00000000000000000001-00112233445566ff-00000000000000000400.log 8192 00112233445566778899aabbccddeeff
//! checksum 01234567
//! ```
//! A line has the kind of file and its number or first revision. Then follow its name in `runs` or
//! `log` of the directory, its bytes, and their XXH3-128. Version 2 has the files of the companion too,
//! `part` and `part-log`, in `history/files` and `history/log`. A list without them stays version 1.

use std::path::Path;

use exacat_disk::{Disk, cannot_read, read_text};
use exacat_model::{Error, ErrorKind, Result};

use crate::checked_text::{check_checksum, check_version, with_checksum};
use crate::identity::parse_hex;
use crate::settings::BACKUP_FILES_MAX;

pub(super) const NAME: &str = "FILES";
const VERSION: u32 = 2;
/// Version of a list without files of the companion.
const VERSION_WITHOUT_PARTS: u32 = 1;

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BackupPart {
    /// A run, by its number.
    Run(u64),
    /// A segment, by its first revision.
    Log(u64),
    /// A file of the companion, by its place in the list.
    Part(u64),
    /// A segment of the companion's log, by its first revision.
    PartLog(u64),
}

impl BackupPart {
    /// Returns the subdirectory for such files, in a directory of backups and in a data directory.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            BackupPart::Run(_) => "runs",
            BackupPart::Log(_) => "log",
            BackupPart::Part(_) => "history/files",
            BackupPart::PartLog(_) => "history/log",
        }
    }
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackupFile {
    pub part: BackupPart,
    /// Name among the backups' files.
    pub name: String,
    pub bytes: u64,
    pub hash: u128,
}

pub(super) fn encode(files: &[BackupFile]) -> String {
    let is_part = |file: &BackupFile| matches!(file.part, BackupPart::Part(_) | BackupPart::PartLog(_));
    let version = if files.iter().any(is_part) { VERSION } else { VERSION_WITHOUT_PARTS };
    let mut text = format!("exacat backup files\nversion {version}\n");
    for file in files {
        let (what, number) = match file.part {
            BackupPart::Run(number) => ("run", number),
            BackupPart::Log(first) => ("log", first),
            BackupPart::Part(number) => ("part", number),
            BackupPart::PartLog(first) => ("part-log", first),
        };
        text.push_str(&format!("{what} {number} {} {} {:032x}\n", file.name, file.bytes, file.hash));
    }
    with_checksum(text)
}

pub(super) fn decode(text: &str) -> Result<Vec<BackupFile>> {
    let damaged = || Error::new(ErrorKind::Corrupt, "it is damaged");
    let mut lines = text.lines();
    if lines.next() != Some("exacat backup files") {
        return Err(damaged());
    }
    check_version(lines.next(), VERSION)?;
    check_checksum(text)?;
    let mut files = Vec::new();
    for line in lines.take_while(|line| !line.starts_with("checksum ")) {
        files.push(file_of(line).ok_or_else(damaged)?);
        if files.len() > BACKUP_FILES_MAX {
            return Err(Error::limit("the number of files of a backup", files.len(), BACKUP_FILES_MAX));
        }
    }
    Ok(files)
}

fn file_of(line: &str) -> Option<BackupFile> {
    let words: Vec<&str> = line.split(' ').collect();
    let [what, number, name, bytes, hash] = words[..] else { return None };
    let number = number.parse().ok()?;
    let part = match what {
        "run" => BackupPart::Run(number),
        "log" => BackupPart::Log(number),
        "part" => BackupPart::Part(number),
        "part-log" => BackupPart::PartLog(number),
        _ => return None,
    };
    // The name becomes part of a path, so only harmless characters pass.
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    if !plain || name.starts_with('.') || name.is_empty() {
        return None;
    }
    let hash = u128::from_be_bytes(parse_hex(hash)?);
    Some(BackupFile { part, name: name.to_owned(), bytes: bytes.parse().ok()?, hash })
}

/// Loads the list of files of the backup in this directory.
pub(super) fn load(disk: &dyn Disk, directory: &Path) -> Result<Vec<BackupFile>> {
    let path = directory.join(NAME);
    let shown = path.display().to_string();
    let text = read_text(disk, &path).map_err(|error| cannot_read(&shown, &error))?;
    let text = text.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("{shown} is missing")))?;
    decode(&text).map_err(|error| Error::new(error.kind, format!("{shown}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_as_written_or_not_at_all() {
        let files = vec![
            BackupFile {
                part: BackupPart::Run(12),
                name: "0000000012-00aa.run".to_owned(),
                bytes: 1 << 40,
                hash: 7,
            },
            BackupFile {
                part: BackupPart::Log(1),
                name: "1-00-400.logz".to_owned(),
                bytes: 0,
                hash: u128::MAX,
            },
            BackupFile { part: BackupPart::Part(3), name: "0a0b0c0d-7.names".to_owned(), bytes: 1, hash: 1 },
            BackupFile {
                part: BackupPart::PartLog(9),
                name: "0a0b0c0d-9-1.log".to_owned(),
                bytes: 1,
                hash: 1,
            },
        ];
        assert!(encode(&files[..2]).starts_with("exacat backup files\nversion 1\n"));
        let text = encode(&files);
        assert_eq!(decode(&text).unwrap(), files);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(decode(&String::from_utf8_lossy(&bytes)).is_err(), "byte {at}");
        }
        for bad in ["../x", "a/b", ".hidden", ""] {
            let text = encode(&[BackupFile { name: bad.to_owned(), ..files[0].clone() }]);
            assert_eq!(decode(&text).unwrap_err().kind, ErrorKind::Corrupt, "{bad:?}");
        }
        assert_eq!(decode(&text.replace("version 2", "version 3")).unwrap_err().kind, ErrorKind::Invalid);
    }
}
